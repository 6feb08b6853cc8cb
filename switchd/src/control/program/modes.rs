//! Which groups choose their next hops in a mode of their own.

use super::Program;
use super::groups::Spec;
use crate::ingress::dynamic::Dynamic;
use crate::ingress::flowlet::Mode;
use crate::ingress::tables::GroupId;
use ipnet::IpNet;
use std::sync::Arc;

/// A mode for some groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenMode {
    /// Those that routes to exactly these prefixes lead to.
    pub prefixes: Vec<IpNet>,
    /// That of this next hop object.
    pub object: Option<u32>,
    /// How they choose.
    pub mode: Mode,
}

impl Program {
    /// The same with dynamic load balancing. Where several of `chosen` mean a group the first one counts.
    #[must_use]
    pub fn with_balancing(mut self, dynamic: Dynamic, chosen: Vec<ChosenMode>) -> Self {
        self.tables.dynamic = Arc::new(dynamic);
        self.chosen = chosen;
        self.dirty = true;
        self
    }

    /// Finds the groups that have modes of their own. Routes and objects that are not there yet may come.
    pub(super) fn resolve_modes(&mut self) {
        if self.chosen.is_empty() {
            return;
        }
        let dynamic = &self.tables.dynamic;
        let mut modes = vec![dynamic.common(); self.tables.groups.len()];
        // The first one last, so that it counts.
        for chosen in self.chosen.iter().rev() {
            let of_object = chosen
                .object
                .and_then(|id| self.groups.find(&Spec::Object(id)));
            let of_prefixes = chosen.prefixes.iter().filter_map(|it| self.group_of(it));
            for GroupId(id) in of_prefixes.chain(of_object) {
                if let Some(mode) = modes.get_mut(id as usize) {
                    *mode = chosen.mode;
                }
            }
        }
        if modes != dynamic.modes() {
            self.tables.dynamic = Arc::new(dynamic.with_modes(modes));
            self.dirty = true;
        }
    }
}
