//! `[csig]`: congestion signals in the tags of packets, as they are written, checked, and as the
//! workers need them (CS-1 to CS-7).

use super::rules::{matches_nothing, matches_pattern};
use crate::tables::csig::{
    BUCKETS, Buckets, Domain, Estimator, Mode, PortCsig, Rule, Scale, WHOLE,
};
use common::config::{Refusal, Refusals, within};
use common::time::Span;
use common::units::Rate;
use common::wire::csig::{Form, Signal, Tpids};
use common::wire::ethernet::ethertype;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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

/// Congestion signals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Csig {
    /// Tags are known.
    pub enabled: bool,
    /// TPID of compact tags.
    pub compact_tpid: u16,
    /// TPID of expanded tags.
    pub expanded_tpid: u16,
    /// How the load of a port is measured,
    pub estimator: Estimator,
    /// and over which time.
    pub window_microseconds: u64,
    /// How available bandwidth is written.
    pub bandwidth: Bandwidth,
    /// How the available share of the capacity is written.
    pub share: Share,
    /// How delays are written.
    pub delay: Delay,
    /// Ports that do not just update all tags.
    pub port: Vec<Port>,
}

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

/// What some ports do with tags. Of several sections about a port and a signal the last that says
/// something holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Names or patterns; empty: all.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Signals that mode and locators are about; empty: all.
    #[serde(default)]
    pub signals: Vec<SignalName>,
    /// What becomes of tags of packets that leave there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Locator in compact tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locator: Option<u16>,
    /// Locator in expanded tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expanded_locator: Option<u16>,
    /// Tags of packets that arrive there are believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
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

impl Default for Csig {
    fn default() -> Self {
        let tpids = Tpids::default();
        Self {
            enabled: false,
            compact_tpid: tpids.compact,
            expanded_tpid: tpids.expanded,
            estimator: Estimator::Window,
            window_microseconds: 100,
            bandwidth: Bandwidth::default(),
            share: Share::default(),
            delay: Delay::default(),
            port: Vec::new(),
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

impl Csig {
    pub(super) fn validate(&self, is_port: impl Fn(&str) -> bool) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        for (name, tpid) in [
            ("compact_tpid", self.compact_tpid),
            ("expanded_tpid", self.expanded_tpid),
        ] {
            if tpid < LEAST_TYPE || TAKEN.contains(&tpid) {
                let why = if tpid < LEAST_TYPE {
                    "a length and no EtherType"
                } else {
                    "the EtherType of something else"
                };
                let reason = format!("{tpid:#06x} is {why}");
                refusals.add(Refusal::alone(key(name), reason));
            }
        }
        refusals.require(
            self.compact_tpid != self.expanded_tpid,
            &key("expanded_tpid"),
            format_args!("{:#06x} is compact_tpid, too", self.expanded_tpid),
        );
        let window = self.window_microseconds;
        refusals.keep(within(&key("window_microseconds"), window, 10, 1_000_000));
        refusals.keep(self.validate_scales());
        for (place, port) in self.port.iter().enumerate() {
            refusals.keep(port.validate(&format!("port[{place}]"), &is_port));
        }
        refusals.or(())
    }

    fn validate_scales(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let (bandwidth, share, delay) = (&self.bandwidth, &self.share, &self.delay);
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

    /// What the port `name` does with tags; `None` while nobody knows any.
    pub fn of_port(&self, name: &str) -> Option<Arc<PortCsig>> {
        self.enabled.then(|| {
            let mut port = PortCsig {
                domain: Arc::new(self.domain()),
                is_trusted: true,
                rules: [Rule::default(); Signal::ALL.len()],
            };
            let its = |it: &&Port| {
                it.ports.is_empty() || it.ports.iter().any(|form| matches_pattern(form, name))
            };
            self.port
                .iter()
                .filter(its)
                .for_each(|it| it.fill(&mut port));
            Arc::new(port)
        })
    }

    /// What all devices agree on.
    pub fn domain(&self) -> Domain {
        let scale = |lows: Vec<u64>, unit| Scale {
            buckets: Buckets::new(&lows),
            unit,
        };
        let bandwidth = self.bandwidth.buckets.iter().map(|rate| rate.bps());
        let shares = self.share.buckets_percent.iter();
        let delays = self.delay.buckets_microseconds.iter();
        Domain {
            tpids: Tpids {
                compact: self.compact_tpid,
                expanded: self.expanded_tpid,
            },
            estimator: self.estimator,
            window: Span::from_micros(self.window_microseconds),
            scales: [
                scale(bandwidth.collect(), self.bandwidth.unit.bps()),
                scale(
                    shares.map(|percent| millionths(*percent)).collect(),
                    self.share.unit_millionths,
                ),
                scale(
                    delays.map(|micros| micros.saturating_mul(1_000)).collect(),
                    self.delay.unit_nanoseconds,
                ),
            ],
        }
    }
}

impl Port {
    fn validate(&self, place: &str, is_port: impl Fn(&str) -> bool) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let key = |name: &str| key(&format!("{place}.{name}"));
        for (number, pattern) in self.ports.iter().enumerate() {
            let reason = matches_nothing(pattern).or_else(|| {
                let is_known = is_port(pattern);
                (!is_known).then(|| format!("{pattern:?} is no port: see ports and [[port]]"))
            });
            if let Some(reason) = reason {
                let key = key(&format!("ports[{number}]"));
                refusals.add(Refusal::new(key, reason));
            }
        }
        for (name, form, locator) in [
            ("locator", Form::Compact, self.locator),
            ("expanded_locator", Form::Expanded, self.expanded_locator),
        ] {
            let most = form.locator_max().into();
            let locator = locator.unwrap_or_default().into();
            refusals.keep(within(&key(name), locator, 0, most));
        }
        refusals.or(())
    }

    /// Fills in what this section says.
    fn fill(&self, port: &mut PortCsig) {
        port.is_trusted = self.trusted.unwrap_or(port.is_trusted);
        for signal in Signal::ALL {
            let is_about = |name: &SignalName| Signal::from(*name) == signal;
            if !self.signals.is_empty() && !self.signals.iter().any(is_about) {
                continue;
            }
            let rule = &mut port.rules[usize::from(signal.number())];
            rule.mode = self.mode.unwrap_or(rule.mode);
            let [compact, expanded] = rule.locators;
            rule.locators = [
                self.locator.unwrap_or(compact),
                self.expanded_locator.unwrap_or(expanded),
            ];
        }
    }
}
