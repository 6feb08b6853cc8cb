//! What the kernel's settings of an interface ask of the sources of packets.

use crate::tables::sources::{PortRules, ReversePath};
use common::netlink::{ALL_LINKS, Mirror};

/// The rules of an interface. `accept_own` is the setting of all interfaces.
pub(super) fn rules_of(mirror: &Mirror, ifindex: u32, accept_own: bool) -> PortRules {
    let all = mirror.settings(ALL_LINKS).unwrap_or_default();
    let Some(own) = mirror.settings(ifindex) else {
        return PortRules::default();
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
        accepts_own: accept_own || mirror.link(ifindex).is_some_and(|it| it.accepts_local),
        // Off everywhere says that forwarding is switchd's, and not the kernel's.
        forwards: own.forwards || !all.forwards,
    }
}
