//! The maps of `[qos]`: from the fields of a packet to its priority, class and group.

use crate::config::qos::{Qos, Trust};
use crate::limits::CLASSES;
use crate::tables::policy::Classify;
use common::config::{Refusals, place_of, within};
use std::collections::BTreeMap;

impl Qos {
    /// The maps, with the entries that are written over the defaults.
    ///
    /// # Errors
    /// The entries whose number or value is out of range.
    pub(super) fn classify(&self) -> Result<Classify, Refusals> {
        let mut maps = Classify::default();
        let mut refusals = Refusals::default();
        let mut fill = |name: &str, from: &BTreeMap<String, u8>, to: &mut [u8]| {
            for (number, &value) in from {
                let key = format!("qos.{name}.{number}");
                let Some(place) = refusals.keep(place_of(&key, number, to.len())) else {
                    continue;
                };
                refusals.keep(within(&key, u64::from(value), 0, CLASSES as u64 - 1));
                to[place] = value;
            }
        };
        fill(
            "priority_of_dscp",
            &self.priority_of_dscp,
            &mut maps.priority_of_dscp,
        );
        fill(
            "class_of_priority",
            &self.class_of_priority,
            &mut maps.class_of_priority,
        );
        fill(
            "group_of_priority",
            &self.group_of_priority,
            &mut maps.group_of_priority,
        );
        let mut of_pcp = std::array::from_fn(|pcp| u8::try_from(pcp).expect("8"));
        fill("priority_of_pcp", &self.priority_of_pcp, &mut of_pcp);
        maps.priority_of_pcp = (self.trust == Trust::Pcp).then_some(of_pcp);
        refusals.or(maps)
    }
}
