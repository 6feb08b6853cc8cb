//! CSIG: what a port does with the congestion signals in the tags of packets (CS-1 to CS-7).
//!
//! ```text
//!   Domain    the same in all switches and hosts: TPIDs, buckets, units, how load is measured
//!   PortCsig  of one port: what becomes of tags that leave by it, its locators, its trust
//!   Stamp     what the port writes for now, in both forms: made when its load was measured anew
//! ```

use common::time::Span;
use common::wire::csig::{Form, Signal, Tpids};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Signals that are defined.
pub const SIGNALS: usize = Signal::ALL.len();

/// Buckets of the values of compact tags (CS-3).
pub const BUCKETS: usize = 1 << 5;

/// Parts of the capacity that shares of it are counted in.
pub const WHOLE: u64 = 1_000_000;

/// Buckets of the values of a signal, by their lower ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets([u64; BUCKETS]);

impl Buckets {
    /// Those that begin at `lows`, which ascend from 0. There are at most [`BUCKETS`].
    pub fn new(lows: &[u64]) -> Self {
        let mut buckets = [u64::MAX; BUCKETS];
        for (bucket, low) in buckets.iter_mut().zip(lows) {
            *bucket = *low;
        }
        Self(buckets)
    }

    /// The bucket that `value` belongs to.
    #[inline]
    pub fn of(&self, value: u64) -> u32 {
        let begun = self.0.iter().map(|low| u32::from(*low <= value));
        begun.sum::<u32>().saturating_sub(1)
    }

    /// Where bucket `number` begins; `None` if there is no such bucket.
    pub fn low(&self, number: u32) -> Option<u64> {
        let low = self.0.get(number as usize).copied();
        low.filter(|low| *low != u64::MAX)
    }
}

/// How the values of a signal are written. They are bits a second, shares of [`WHOLE`], or
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// In compact tags.
    pub buckets: Buckets,
    /// In expanded tags: so much is 1. Not zero.
    pub unit: u64,
}

impl Scale {
    /// The value as a tag of this form has it: rounded down, and no more than it can say.
    #[inline]
    pub fn write(&self, form: Form, value: u64) -> u32 {
        match form {
            Form::Compact => self.buckets.of(value),
            Form::Expanded => {
                let most = form.value_max();
                u32::try_from(value / self.unit).map_or(most, |units| units.min(most))
            }
        }
    }
}

/// How the load of a port is measured (CS-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Estimator {
    /// Bits sent in the last complete window.
    #[default]
    Window,
    /// Exponentially weighted moving average over what is sent, with the window as its time
    /// constant.
    Ewma,
    /// Discounting rate estimator (CONGA, SIGCOMM'14 §3.2), with the window as its time constant.
    Dre,
}

/// What all devices of a domain agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// By which tags are known.
    pub tpids: Tpids,
    /// How load is measured,
    pub estimator: Estimator,
    /// and over which time.
    pub window: Span,
    /// By signal.
    pub scales: [Scale; SIGNALS],
}

impl Domain {
    /// How the values of `signal` are written.
    #[inline]
    pub fn scale(&self, signal: Signal) -> &Scale {
        &self.scales[usize::from(signal.number())]
    }
}

/// What becomes of a tag at the port that a packet leaves by (CS-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It is compared, and replaced if this port is the bottleneck.
    #[default]
    Update,
    /// It stays as it is.
    PassThrough,
    /// It is taken off.
    Strip,
}

impl Mode {
    /// As it is configured and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::PassThrough => "pass-through",
            Self::Strip => "strip",
        }
    }
}

/// What a port does with one signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// With its tags.
    pub mode: Mode,
    /// What it writes as locator, by form: compact, expanded (CS-6).
    pub locators: [u16; 2],
}

impl Rule {
    /// The locator for a form.
    #[inline]
    pub const fn locator(&self, form: Form) -> u16 {
        self.locators[form as usize]
    }
}

/// How tags are read at the port where packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// By which they are known.
    pub tpids: Tpids,
    /// They are believed; otherwise they are taken off.
    pub is_trusted: bool,
}

/// What a port does with tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortCsig {
    /// What it shares with others.
    pub domain: Arc<Domain>,
    /// Tags of packets that arrive here are believed.
    pub is_trusted: bool,
    /// By signal, at the port that packets leave by.
    pub rules: [Rule; SIGNALS],
}

impl PortCsig {
    /// How tags of packets that arrive here are read.
    #[inline]
    pub fn reading(&self) -> Reading {
        Reading {
            tpids: self.domain.tpids,
            is_trusted: self.is_trusted,
        }
    }

    /// What it does with `signal`.
    #[inline]
    pub fn rule(&self, signal: Signal) -> &Rule {
        &self.rules[usize::from(signal.number())]
    }

    /// Whether no tag leaves here, whatever its signal.
    #[inline]
    pub fn strips_all(&self) -> bool {
        self.rules.iter().all(|rule| rule.mode == Mode::Strip)
    }
}

/// What a port writes in tags until its load is measured again: by signal and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp([[u32; 2]; 2]);

impl Stamp {
    /// Of a port whose capacity is not known: it replaces nothing.
    pub const NEUTRAL: Self = Self([[u32::MAX; 2]; 2]);

    /// Of a port with so many bits a second available, and this share of its capacity.
    pub fn new(domain: &Domain, available: u64, share: u64) -> Self {
        let written = |signal, value| {
            let scale = domain.scale(signal);
            Form::ALL.map(|form| scale.write(form, value))
        };
        Self([
            written(Signal::AvailableBandwidth, available),
            written(Signal::AvailableShare, share),
        ])
    }

    /// The value of a signal of the port; `None` for the one that each packet has its own of.
    #[inline]
    pub fn value(&self, signal: Signal, form: Form) -> Option<u32> {
        let [available, share] = &self.0;
        match signal {
            Signal::AvailableBandwidth => Some(available[form as usize]),
            Signal::AvailableShare => Some(share[form as usize]),
            Signal::Delay => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CS-3: the example of three bits of the draft, at the ends of each bucket.
    #[test]
    fn values_are_in_the_buckets_of_the_draft() {
        let lows = [0, 10, 50, 100, 200, 400, 800, 2000].map(|micros| micros * 1000);
        let buckets = Buckets::new(&lows);
        for (number, low) in (0..).zip(lows) {
            assert_eq!(buckets.of(low), number);
            assert_eq!(buckets.low(number), Some(low));
            if number > 0 {
                assert_eq!(buckets.of(low - 1), number - 1);
            }
        }
        assert_eq!(buckets.of(u64::MAX - 1), 7);
        assert_eq!(buckets.low(8), None);
    }

    /// CS-3: 8 Mb/s reach 8 Tb/s, 128 ns reach 134 ms; beyond, the largest value stands.
    #[test]
    fn units_reach_as_far_as_the_draft_says() {
        let scale = |unit| Scale {
            buckets: Buckets::new(&[0]),
            unit,
        };
        let rate = scale(8_000_000);
        assert_eq!(rate.write(Form::Expanded, 399_999_999_999), 49_999);
        assert_eq!(rate.write(Form::Expanded, 8_388_600_000_000), 0xf_ffff);
        assert_eq!(rate.write(Form::Expanded, u64::MAX), 0xf_ffff);
        let delay = scale(128);
        assert_eq!(delay.write(Form::Expanded, 127), 0);
        assert_eq!(delay.write(Form::Expanded, 128_000_000), 1_000_000);
        assert_eq!(delay.write(Form::Compact, u64::MAX - 1), 0);
    }
}
