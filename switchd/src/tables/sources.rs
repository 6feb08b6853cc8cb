//! Which packets are looked at for their source address, and by what rules: those of Linux's
//! `fib_validate_source`, which are for IPv4 only.
//!
//! Most packets are not looked at. In doubt is one that arrives at a port with a rule (`rp_filter`
//! above all), or whose source may be an address of the switch: a filter of a few bits for each
//! address says so, and is right more often than not. What is in doubt is looked up.
//!
//! Ports whose configuration asks for more have all their packets looked at, of IPv6 as well: see
//! [`Validation`].

use super::port_set::PortSet;
use super::validation::Validation;
use crate::id::{GroupId, PortId};
use std::net::Ipv4Addr;

/// What the route back to a source has to be (RFC 3704; `rp_filter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Nothing.
    #[default]
    Any,
    /// There has to be one, by any interface.
    Loose,
    /// It has to leave by the port of the packet; one of several next hops is enough.
    Strict,
}

/// The rules of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRules {
    /// What is asked of the source.
    pub reverse_path: ReversePath,
    /// Packets from the switch's own addresses are forwarded (`accept_local`).
    pub accepts_own: bool,
    /// Packets are forwarded at all (`forwarding` of the interface).
    pub forwards: bool,
    /// Packets of IPv6 are taken (the opposite of `disable_ipv6`).
    pub takes_v6: bool,
}

impl Default for PortRules {
    fn default() -> Self {
        Self {
            reverse_path: ReversePath::Any,
            accepts_own: false,
            forwards: true,
            takes_v6: true,
        }
    }
}

impl PortRules {
    /// Whether every packet is to be looked at.
    fn are_for_all(self) -> bool {
        self.reverse_path != ReversePath::Any || !self.forwards
    }
}

/// Bits of the filter, as a power of two: of 256 addresses, one for each port, 1.6 % of other
/// sources are in doubt for nothing.
const FILTER_BITS: u32 = 14;

/// The filter of the switch's own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnFilter(Box<[u64; 1 << (FILTER_BITS - 6)]>);

impl OwnFilter {
    fn of(addresses: impl Iterator<Item = Ipv4Addr>) -> Self {
        let mut words = Box::new([0; 1 << (FILTER_BITS - 6)]);
        for address in addresses {
            let (word, bit) = Self::place(address);
            words[word] |= bit;
        }
        Self(words)
    }

    #[inline]
    fn place(address: Ipv4Addr) -> (usize, u64) {
        // Multiplicative hashing: the high bits of the product depend on all of the address.
        let hash = address.to_bits().wrapping_mul(0x9e37_79b1) >> (u32::BITS - FILTER_BITS);
        ((hash >> 6) as usize, 1 << (hash & 63))
    }

    #[inline]
    fn may_contain(&self, address: Ipv4Addr) -> bool {
        let (word, bit) = Self::place(address);
        self.0[word] & bit != 0
    }
}

/// All rules for sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    own: OwnFilter,
    /// Ports all of whose packets are in doubt.
    examined: PortSet,
    /// Ports all of whose packets of IPv6 are.
    examined_v6: PortSet,
    /// Whole networks are local to the switch: all packets are in doubt.
    has_networks: bool,
    rules: Vec<PortRules>,
    /// By group: ports by which its packets may leave, dead next hops included. Empty while no port
    /// asks for it.
    reverse_paths: Vec<PortSet>,
    /// What the configuration asks.
    validation: Validation,
}

impl Default for Sources {
    /// No port has a rule, and the switch has no address.
    fn default() -> Self {
        Self::new(std::iter::empty(), Vec::new(), false)
    }
}

impl Sources {
    /// Rules of ports, by number; ports beyond have none. `own` are the switch's addresses, and
    /// `has_networks` says that whole networks are local to it, too.
    pub fn new(
        own: impl Iterator<Item = Ipv4Addr>,
        rules: Vec<PortRules>,
        has_networks: bool,
    ) -> Self {
        let (mut examined, mut examined_v6) = (PortSet::default(), PortSet::default());
        for (port, rules) in (0..).zip(&rules) {
            if !rules.takes_v6 {
                examined_v6.insert(PortId(port));
            }
            if rules.are_for_all() || has_networks {
                examined.insert(PortId(port));
            }
        }
        Self {
            own: OwnFilter::of(own),
            examined,
            examined_v6,
            has_networks,
            rules,
            reverse_paths: Vec::new(),
            validation: Validation::default(),
        }
    }

    /// The same where every source has a route, but for the addresses that are in doubt: then ports
    /// that ask for no more than a route look at these only.
    #[must_use]
    pub fn sparing_loose_ports(mut self) -> Self {
        for (port, rules) in (0..).zip(&self.rules) {
            if rules.reverse_path == ReversePath::Loose && rules.forwards {
                self.examined.remove(PortId(port));
            }
        }
        self
    }

    /// The same, knowing by which ports the packets of each group may leave.
    #[must_use]
    pub fn with_reverse_paths(self, reverse_paths: Vec<PortSet>) -> Self {
        Self {
            reverse_paths,
            ..self
        }
    }

    /// The same with what the configuration asks: the last of these steps.
    #[must_use]
    pub fn with_validation(mut self, validation: Validation) -> Self {
        self.examined.unite(validation.asking());
        self.examined_v6.unite(validation.asking());
        Self { validation, ..self }
    }

    /// What the configuration asks.
    pub fn validation(&self) -> &Validation {
        &self.validation
    }

    /// Whether a port asks for routes back.
    pub fn ask_for_routes(&self) -> bool {
        let asks = |rules: &PortRules| rules.reverse_path != ReversePath::Any;
        self.rules.iter().any(asks) || self.validation.asks()
    }

    /// Whether a port asks by which ports packets would leave.
    pub fn ask_for_reverse_paths(&self) -> bool {
        let is_strict = |rules: &PortRules| rules.reverse_path == ReversePath::Strict;
        self.rules.iter().any(is_strict)
    }

    /// Whether all IPv4 packets that arrive at `port` are to be looked up by their source. Of the
    /// others those whose source may be the switch's own are.
    #[inline]
    pub fn doubt_v4(&self, port: PortId) -> bool {
        self.examined.contains(port)
    }

    /// Whether all IPv6 packets that arrive at `port` are to be looked up by their source, or not
    /// taken at all.
    #[inline]
    pub fn doubt_v6(&self, port: PortId) -> bool {
        self.examined_v6.contains(port)
    }

    /// The same for those that arrive by an interface with these rules.
    #[inline]
    pub fn doubt_v6_by(&self, rules: PortRules, port: PortId) -> bool {
        !rules.takes_v6 || self.validation.asking().contains(port)
    }

    /// Whether all IPv4 packets are to be looked up that arrive at `port` by an interface with
    /// these rules. Of the others those whose source may be the switch's own are.
    #[inline]
    pub fn doubt_all_by(&self, rules: PortRules, port: PortId) -> bool {
        rules.are_for_all() || self.has_networks || self.validation.asking().contains(port)
    }

    /// Whether a source may be an address of the switch.
    #[inline]
    pub fn may_be_own(&self, source: Ipv4Addr) -> bool {
        self.own.may_contain(source)
    }

    /// The rules of a port.
    pub fn rules(&self, port: PortId) -> PortRules {
        self.rules.get(port.index()).copied().unwrap_or_default()
    }

    /// Whether packets of a group may leave by a port.
    pub fn leads_to(&self, group: GroupId, port: PortId) -> bool {
        let ports = self.reverse_paths.get(group.index());
        ports.is_some_and(|ports| ports.contains(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a packet that arrived at `port` is in doubt.
    fn doubts(sources: &Sources, port: u16, source: Ipv4Addr) -> bool {
        sources.doubt_v4(PortId(port)) || sources.may_be_own(source)
    }

    /// SW-1: every address of the switch is in doubt, and few others are.
    #[test]
    fn few_sources_are_in_doubt_for_nothing() {
        let own = |port: u32| Ipv4Addr::from_bits(0x0a00_0001 | port << 8);
        let sources = Sources::new((0..256).map(own), vec![PortRules::default(); 256], false);
        for port in 0..256 {
            assert!(doubts(&sources, 0, own(port)));
        }
        let others = (0..100_000_u32).map(|n| Ipv4Addr::from_bits(0xc0a8_0000 + n * 7));
        let doubted = others.filter(|source| doubts(&sources, 0, *source));
        let doubted = doubted.count();
        assert!(doubted < 3_000, "{doubted} of 100,000");
    }

    /// SW-1: a port with a rule doubts everything, and no other port does.
    #[test]
    fn a_rule_is_that_of_its_port() {
        let strict = PortRules {
            reverse_path: ReversePath::Strict,
            ..PortRules::default()
        };
        let none = PortRules::default();
        let sources = Sources::new(std::iter::empty(), vec![none, strict], false);
        let anybody = Ipv4Addr::new(192, 0, 2, 1);
        assert!(sources.ask_for_reverse_paths());
        assert!(!doubts(&sources, 0, anybody) && doubts(&sources, 1, anybody));
        assert!(!doubts(&sources, 255, anybody) && !doubts(&sources, 999, anybody));
        let mut reverse_paths = PortSet::default();
        reverse_paths.insert(PortId(1));
        let sources = sources.with_reverse_paths(vec![PortSet::default(), reverse_paths]);
        assert!(sources.leads_to(GroupId(1), PortId(1)));
        assert!(doubts(&sources.clone().sparing_loose_ports(), 1, anybody));
        let loose = PortRules {
            reverse_path: ReversePath::Loose,
            ..none
        };
        let loose = Sources::new(std::iter::once(anybody), vec![loose], false);
        let other = Ipv4Addr::new(192, 0, 2, 2);
        assert!(loose.ask_for_routes() && doubts(&loose, 0, other));
        let spared = loose.sparing_loose_ports();
        assert!(doubts(&spared, 0, anybody) && !doubts(&spared, 0, other));
        assert!(
            !sources.leads_to(GroupId(0), PortId(1)) && !sources.leads_to(GroupId(9), PortId(1))
        );
    }
}
