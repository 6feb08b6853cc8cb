//! `[int]`: telemetry in the tags of packets (SW-52).

use crate::verbs::IntTerms;
use common::config::{Refusals, within};
use common::csig::check_tpid;
use common::wire::int::TPID;
use serde::{Deserialize, Serialize};

/// `[int]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Int {
    /// Tags are offered, put on packets, and answered.
    pub enabled: bool,
    /// TPID of tags.
    pub tpid: u16,
    /// One in so many data packets has a tag.
    pub every_packets: u32,
}

impl Default for Int {
    fn default() -> Self {
        Self {
            enabled: false,
            tpid: TPID,
            every_packets: 1,
        }
    }
}

impl Int {
    /// Whether it can be done; `others`: the TPIDs of other tags, with the keys that say so.
    ///
    /// # Errors
    /// The keys that cannot.
    pub fn validate(&self, others: &[(&str, u16)]) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(check_tpid("int.tpid", self.tpid, others));
        let every = self.every_packets.into();
        refusals.keep(within("int.every_packets", every, 1, 1_000_000));
        refusals.or(())
    }

    /// What queue pairs are to do; `None`: tags are not known.
    pub fn terms(&self) -> Option<IntTerms> {
        self.enabled.then_some(IntTerms {
            tpid: self.tpid,
            every: self.every_packets,
        })
    }
}
