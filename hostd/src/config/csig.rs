//! `[csig]`: congestion signals in the tags of packets (CS-8 to CS-10).

use crate::verbs::Signalling;
use common::config::{Refusal, Refusals, within};
use common::csig::{Bandwidth, Delay, Share, SignalName, check_scales, check_tpids, scales};
use common::wire::csig::{Form, Signal, Tpids};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `[csig]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Csig {
    /// Tags are offered, put on packets, and reflected.
    pub enabled: bool,
    /// Form of the tags of own packets.
    pub form: FormName,
    /// One in so many data packets has a tag.
    pub every_packets: u32,
    /// What tags ask for, in turns.
    pub signals: Vec<SignalName>,
    /// Locators that switches write at ports to hosts.
    pub host_locators: Vec<u16>,
    /// TPID of compact tags.
    pub compact_tpid: u16,
    /// TPID of expanded tags.
    pub expanded_tpid: u16,
    /// How available bandwidth is written.
    pub bandwidth: Bandwidth,
    /// How the available share of the capacity is written.
    pub share: Share,
    /// How delays are written.
    pub delay: Delay,
}

/// The form of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FormName {
    /// Four bytes.
    Compact,
    /// Eight bytes.
    Expanded,
}

impl Default for Csig {
    fn default() -> Self {
        let tpids = Tpids::default();
        Self {
            enabled: false,
            form: FormName::Compact,
            every_packets: 1,
            signals: vec![SignalName::Share, SignalName::Delay],
            host_locators: Vec::new(),
            compact_tpid: tpids.compact,
            expanded_tpid: tpids.expanded,
            bandwidth: Bandwidth::default(),
            share: Share::default(),
            delay: Delay::default(),
        }
    }
}

impl Csig {
    /// Whether it can be done.
    ///
    /// # Errors
    /// The keys that cannot.
    pub fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(check_tpids(self.all_tpids()));
        refusals.keep(check_scales(&self.bandwidth, &self.share, &self.delay));
        let every = self.every_packets.into();
        refusals.keep(within("csig.every_packets", every, 1, 1_000_000));
        if self.signals.is_empty() {
            let reason = "tags ask for at least one of bandwidth, share, delay";
            refusals.add(Refusal::alone("csig.signals", reason));
        }
        // What comes back is the locator of an own tag: one that does not fit there never does.
        let most = self.tag_form().locator_max().into();
        for (place, locator) in self.host_locators.iter().enumerate() {
            let key = format!("csig.host_locators[{place}]");
            refusals.keep(within(&key, (*locator).into(), 0, most));
        }
        refusals.or(())
    }

    /// What queue pairs are to do; `None`: tags are not known.
    pub fn signalling(&self) -> Option<Arc<Signalling>> {
        self.enabled.then(|| {
            Arc::new(Signalling {
                tpids: self.all_tpids(),
                form: self.tag_form(),
                every: self.every_packets,
                signals: self.signals.iter().copied().map(Signal::from).collect(),
                scales: scales(&self.bandwidth, &self.share, &self.delay),
                host_locators: self.host_locators.clone(),
            })
        })
    }

    const fn tag_form(&self) -> Form {
        match self.form {
            FormName::Compact => Form::Compact,
            FormName::Expanded => Form::Expanded,
        }
    }

    const fn all_tpids(&self) -> Tpids {
        Tpids {
            compact: self.compact_tpid,
            expanded: self.expanded_tpid,
            ..Tpids::NONE
        }
    }
}
