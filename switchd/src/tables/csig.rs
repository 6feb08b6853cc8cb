//! CSIG: what a port does with the congestion signals in the tags of packets (CS-1 to CS-7).
//!
//! ```text
//!   Domain    the same in all switches and hosts: TPIDs, buckets, units, how load is measured
//!   PortCsig  of one port: what becomes of tags that leave by it, its locators, its trust
//!   Stamp     what the port writes for now, in both forms: made when its load was measured anew
//!   Quick     stamp and rules as packets are compared with them, bits in their places
//! ```

use common::csig::{SIGNALS, Scales};
use common::time::Span;
use common::wire::csig::{Form, Signal, Tpids};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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

/// How the load of a port is measured for one signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// In which way,
    pub estimator: Estimator,
    /// and over which time.
    pub window: Span,
}

/// What all devices of a domain agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// By which tags are known.
    pub tpids: Tpids,
    /// How load is measured: for the bandwidth that is available, and for its share.
    pub measures: [Measure; 2],
    /// How values are written.
    pub scales: Scales,
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
            let scale = domain.scales.of(signal);
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

/// What a tag of one form and one signal is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// A greater value gives way to this port's.
    pub value: u32,
    /// That value and the locator, where they stand in the fields of the tag.
    pub fields: u64,
}

/// What most packets with a tag need: those of a minimum, at a port that updates it, and those of a
/// delay that were not delayed. The fields of a tag, its TPID included, are one word, so that a
/// packet costs a comparison and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// The TPIDs of both forms.
    pub tpids: [u16; 2],
    /// By form, then by the type of the signal. `None`: it takes more than this.
    pub rows: [[Option<Row>; SIGNALS]; 2],
    /// A longer frame may not keep its tag.
    pub longest: usize,
}

impl Quick {
    /// Of a port with these rules that writes this for now, and sends frames of so many bytes.
    pub fn new(domain: &Domain, rules: &[Rule; SIGNALS], stamp: &Stamp, longest: usize) -> Self {
        let row = |form: Form, signal: Signal| {
            let rule = &rules[usize::from(signal.number())];
            if signal == Signal::Delay {
                // No delay of others is less than none, so the tag stays.
                let none = Row {
                    value: u32::MAX,
                    fields: 0,
                };
                return (rule.mode == Mode::Update).then_some(none);
            }
            let value = stamp.value(signal, form)?;
            let locator = u64::from(rule.locator(form) & form.locator_max());
            let bits = u64::from(value);
            let fields = match form {
                Form::Compact => bits << 7 | locator,
                Form::Expanded => bits << 8 | locator << 32,
            };
            // A port that replaces nothing has no value that a tag could have.
            let is_quick = rule.mode == Mode::Update && value <= form.value_max();
            is_quick.then_some(Row { value, fields })
        };
        Self {
            tpids: Form::ALL.map(|form| domain.tpids.of(form)),
            rows: Form::ALL.map(|form| Signal::ALL.map(|signal| row(form, signal))),
            longest,
        }
    }
}
