//! What the kernel's settings of an interface ask of the sources of packets.

use super::idle_links::Ipv6Links;
use crate::tables::sources::{PortRules, ReversePath};
use common::netlink::{ALL_LINKS, Mirror};
use std::collections::BTreeMap;

/// Where packets from the switch's own addresses are forwarded (`accept_local`), as read from the
/// kernel's files: it tells of changes in no message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptOwn {
    /// The setting of all interfaces.
    pub all: bool,
    /// Those of interfaces, by number.
    pub of: BTreeMap<u32, bool>,
}

impl AcceptOwn {
    /// Whether they are forwarded that arrive at an interface. What was not read is as the kernel
    /// has told with the interface.
    fn at(&self, mirror: &Mirror, ifindex: u32) -> bool {
        let told = || mirror.link(ifindex).is_some_and(|it| it.accepts_local);
        self.all || self.of.get(&ifindex).copied().unwrap_or_else(told)
    }
}

/// What was read from the kernel's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    pub(super) accept_own: &'a AcceptOwn,
    pub(super) ipv6: &'a Ipv6Links,
}

/// The rules of an interface.
pub(super) fn rules_of(mirror: &Mirror, ifindex: u32, files: Files<'_>) -> PortRules {
    let all = mirror.settings(ALL_LINKS).unwrap_or_default();
    let takes_v6 = !files.ipv6.disabled.contains(&ifindex);
    let Some(own) = mirror.settings(ifindex) else {
        return PortRules {
            takes_v6,
            ..PortRules::default()
        };
    };
    let has_address = mirror
        .addresses()
        .any(|it| it.ifindex == ifindex && it.address.is_ipv4());
    PortRules {
        // The stricter one of the two, but strict is the smaller number.
        reverse_path: match own.rp_filter.max(all.rp_filter) {
            0 => ReversePath::Any,
            // Without an address of its own an interface is asked for its own routes only.
            2 if has_address => ReversePath::Loose,
            _ => ReversePath::Strict,
        },
        accepts_own: files.accept_own.at(mirror, ifindex),
        // Off everywhere says that forwarding is switchd's, and not the kernel's.
        forwards: own.forwards || !all.forwards,
        takes_v6,
    }
}
