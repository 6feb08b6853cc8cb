//! Which sources packets may have by the configuration of their port (`source_validation`), of IPv4
//! and IPv6: ingress filtering of RFC 2827 by the reverse path of RFC 3704.
//!
//! It is the operator's, beside what the kernel's settings ask (see [`super::sources`]), and holds
//! for every packet that a worker routes, whatever becomes of it.

use super::port_set::PortSet;
use crate::id::{GroupId, PortId};
use serde::{Deserialize, Serialize};

/// What the route back to the source of a packet has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceValidation {
    /// Anything.
    #[default]
    Off,
    /// One of its next hops, dead ones included, is reached by the port (RFC 3704 §2.3).
    Feasible,
    /// All of its next hops are reached by the port (RFC 3704 §2.2).
    Strict,
}

impl SourceValidation {
    /// As it is configured and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Feasible => "feasible",
            Self::Strict => "strict",
        }
    }
}

/// By which ports the packets of a group may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReversePaths {
    /// At least one next hop is reached by it.
    pub some: PortSet,
    /// All of them are.
    pub all: PortSet,
}

/// What is asked of the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Ports that ask for anything.
    asking: PortSet,
    /// Those among them that are strict.
    strict: PortSet,
    /// By group.
    reverse_paths: Vec<ReversePaths>,
}

impl Validation {
    /// What ports ask, by number, and the reverse paths of the groups.
    pub fn new(
        ports: impl Iterator<Item = SourceValidation>,
        reverse_paths: Vec<ReversePaths>,
    ) -> Self {
        let mut new = Self {
            reverse_paths,
            ..Self::default()
        };
        for (number, asked) in (0..).zip(ports) {
            if asked != SourceValidation::Off {
                new.asking.insert(PortId(number));
            }
            if asked == SourceValidation::Strict {
                new.strict.insert(PortId(number));
            }
        }
        new
    }

    /// Whether any port asks for anything.
    pub fn asks(&self) -> bool {
        self.asking != PortSet::default()
    }

    /// Ports that ask for anything.
    pub fn asking(&self) -> &PortSet {
        &self.asking
    }

    /// Whether a packet may have arrived at `port`, if the route to its source leads to the group
    /// `back`.
    pub fn allows(&self, port: PortId, back: GroupId) -> bool {
        let reverse_paths = self.reverse_paths.get(back.index());
        reverse_paths.is_some_and(|reverse_paths| {
            if self.strict.contains(port) {
                reverse_paths.all.contains(port)
            } else {
                reverse_paths.some.contains(port)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-1, RFC 3704: strict asks for all next hops, feasible for one, and a port without
    /// validation is not among those that ask.
    #[test]
    fn strict_asks_for_all_next_hops() {
        let set = |ports: &[u16]| {
            let mut set = PortSet::default();
            ports.iter().for_each(|port| set.insert(PortId(*port)));
            set
        };
        let by_one = ReversePaths {
            some: set(&[0]),
            all: set(&[0]),
        };
        let by_two = ReversePaths {
            some: set(&[0, 1]),
            all: set(&[]),
        };
        for (asked, expected) in [
            (SourceValidation::Strict, [true, false, false]),
            (SourceValidation::Feasible, [true, true, false]),
        ] {
            let ports = [asked, SourceValidation::Off];
            let validation = Validation::new(ports.into_iter(), vec![by_one, by_two]);
            let asking = [0, 1, 300].map(|port| validation.asking().contains(PortId(port)));
            assert_eq!(asking, [true, false, false]);
            let allowed = [0, 1, 2].map(|group| validation.allows(PortId(0), GroupId(group)));
            assert_eq!(allowed, expected, "{asked:?}");
        }
    }
}
