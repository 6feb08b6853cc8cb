//! The parts of `[csig]` that switchd and hostd have in common, as they are written and checked.

use super::scale::{BUCKETS, Buckets, Scale, Scales, WHOLE};
use crate::config::{Refusal, Refusals, within};
use crate::units::Rate;
use crate::wire::csig::{Signal, Tpids};
use crate::wire::ethernet::ethertype;
use serde::{Deserialize, Serialize};

/// The least number that is an EtherType and not a length (IEEE 802.3 clause 3.2.6).
const LEAST_TYPE: u16 = 0x0600;

/// EtherTypes that the switch knows to be something else.
const TAKEN: [u16; 7] = [
    ethertype::IPV4,
    ethertype::ARP,
    ethertype::IPV6,
    ethertype::VLAN,
    ethertype::SERVICE_VLAN,
    ethertype::MAC_CONTROL,
    ethertype::LLDP,
];

/// How available bandwidth is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bandwidth {
    /// Lower ends of the buckets of compact tags.
    pub buckets: Vec<Rate>,
    /// Unit of expanded tags.
    pub unit: Rate,
}

/// How the available share of the capacity is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    /// Lower ends of the buckets of compact tags.
    pub buckets_percent: Vec<f64>,
    /// Unit of expanded tags, in millionths of the capacity.
    pub unit_millionths: u64,
}

/// How delays are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delay {
    /// Lower ends of the buckets of compact tags.
    pub buckets_microseconds: Vec<u64>,
    /// Unit of expanded tags.
    pub unit_nanoseconds: u64,
}

/// A signal as it is configured and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalName {
    /// min(ABW).
    Bandwidth,
    /// min(ABW/C).
    Share,
    /// max(PD).
    Delay,
}

impl From<SignalName> for Signal {
    fn from(name: SignalName) -> Self {
        match name {
            SignalName::Bandwidth => Self::AvailableBandwidth,
            SignalName::Share => Self::AvailableShare,
            SignalName::Delay => Self::Delay,
        }
    }
}

impl SignalName {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Share => "share",
            Self::Delay => "delay",
        }
    }
}

impl From<Signal> for SignalName {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::AvailableBandwidth => Self::Bandwidth,
            Signal::AvailableShare => Self::Share,
            Signal::Delay => Self::Delay,
        }
    }
}

impl Default for Bandwidth {
    /// Finer near zero, and as far as 400 Gb/s.
    fn default() -> Self {
        let mbps = [
            0, 10, 25, 50, 100, 250, 500, 1000, 2000, 3000, 4000, 5000, 7500, 10_000, 12_500,
            15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 60_000, 75_000, 90_000, 100_000,
            125_000, 150_000, 200_000, 250_000, 300_000, 350_000, 400_000,
        ];
        Self {
            buckets: mbps.map(Rate::from_mbps).to_vec(),
            unit: Rate::from_mbps(8),
        }
    }
}

impl Default for Share {
    fn default() -> Self {
        let percent = [
            0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 25.0,
            30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0,
            98.0, 99.0,
        ];
        Self {
            buckets_percent: percent.to_vec(),
            unit_millionths: 1,
        }
    }
}

impl Default for Delay {
    fn default() -> Self {
        let micros = [
            0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200,
            250, 300, 400, 500, 700, 1000, 1500, 2000, 4000, 8000,
        ];
        Self {
            buckets_microseconds: micros.to_vec(),
            unit_nanoseconds: 128,
        }
    }
}

fn key(name: &str) -> String {
    format!("csig.{name}")
}

/// A share in percent in parts of the whole. It is from 0 to 100.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "at most a million"
)]
fn millionths(percent: f64) -> u64 {
    (percent / 100.0 * WHOLE as f64).round() as u64
}

/// Refuses lower ends of buckets that are none.
fn check_buckets<T: PartialOrd + std::fmt::Debug>(
    name: &str,
    lows: &[T],
    zero: &T,
) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    let key = key(name);
    let count = lows.len();
    refusals.require(
        (1..=BUCKETS).contains(&count),
        &key,
        format_args!("{count} buckets are not within 1 to {BUCKETS}"),
    );
    if let Some(first) = lows.first().filter(|first| *first != zero) {
        let reason = format!("{first:?} is not 0: what is less has no bucket");
        refusals.add(Refusal::alone(format!("{key}[0]"), reason));
    }
    for (place, pair) in lows.windows(2).enumerate() {
        let [before, low] = pair else { continue };
        // Of numbers that cannot be compared neither is above the other.
        if low.partial_cmp(before) != Some(std::cmp::Ordering::Greater) {
            let reason = format!("{low:?} is not above the bucket before it, {before:?}");
            let key = format!("{key}[{}]", place + 1);
            refusals.add(Refusal::alone(key, reason));
        }
    }
    refusals.or(())
}

/// Refuses TPIDs that are something else, or the same for both forms.
///
/// # Errors
/// The keys in `[csig]`, and why.
pub fn check_tpids(tpids: Tpids) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    refusals.keep(check_tpid(&key("compact_tpid"), tpids.compact, &[]));
    let others = [("compact_tpid", tpids.compact)];
    refusals.keep(check_tpid(&key("expanded_tpid"), tpids.expanded, &others));
    refusals.or(())
}

/// Refuses a TPID that is a length, the EtherType of something else, or that of `others`, which are
/// named.
///
/// # Errors
/// The `key`, and why.
pub fn check_tpid(key: &str, tpid: u16, others: &[(&str, u16)]) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    if tpid < LEAST_TYPE || TAKEN.contains(&tpid) {
        let why = if tpid < LEAST_TYPE {
            "a length and no EtherType"
        } else {
            "the EtherType of something else"
        };
        let reason = format!("{tpid:#06x} is {why}");
        refusals.add(Refusal::alone(key, reason));
    }
    for (name, other) in others {
        refusals.require(
            tpid != *other,
            key,
            format_args!("{tpid:#06x} is {name}, too"),
        );
    }
    refusals.or(())
}

/// Refuses scales that say nothing.
///
/// # Errors
/// The keys in `[csig]`, and why.
pub fn check_scales(bandwidth: &Bandwidth, share: &Share, delay: &Delay) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    let none = Rate::from_bps(0);
    refusals.keep(check_buckets(
        "bandwidth.buckets",
        &bandwidth.buckets,
        &none,
    ));
    refusals.keep(check_buckets(
        "share.buckets_percent",
        &share.buckets_percent,
        &0.0,
    ));
    if let Some(place) = share.buckets_percent.iter().position(|it| *it > 100.0) {
        let reason = format!("{} is more than all", share.buckets_percent[place]);
        let key = key(&format!("share.buckets_percent[{place}]"));
        refusals.add(Refusal::alone(key, reason));
    }
    refusals.keep(check_buckets(
        "delay.buckets_microseconds",
        &delay.buckets_microseconds,
        &0,
    ));
    refusals.require(
        bandwidth.unit > none,
        &key("bandwidth.unit"),
        "0 is no unit",
    );
    let unit = share.unit_millionths;
    refusals.keep(within(&key("share.unit_millionths"), unit, 1, WHOLE));
    let unit = delay.unit_nanoseconds;
    refusals.keep(within(&key("delay.unit_nanoseconds"), unit, 1, 1_000_000));
    refusals.or(())
}

/// What is written by these.
pub fn scales(bandwidth: &Bandwidth, share: &Share, delay: &Delay) -> Scales {
    let scale = |lows: Vec<u64>, unit| Scale {
        buckets: Buckets::new(&lows),
        unit,
    };
    let rates = bandwidth.buckets.iter().map(|rate| rate.bps());
    let shares = share.buckets_percent.iter();
    let delays = delay.buckets_microseconds.iter();
    Scales::new([
        scale(rates.collect(), bandwidth.unit.bps()),
        scale(
            shares.map(|percent| millionths(*percent)).collect(),
            share.unit_millionths,
        ),
        scale(
            delays.map(|micros| micros.saturating_mul(1_000)).collect(),
            delay.unit_nanoseconds,
        ),
    ])
}
