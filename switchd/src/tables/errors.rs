//! What the switch tells senders by ICMP errors: how often, and from which address.

use crate::id::GroupId;
use crate::limits::{ICMP_BURST, ICMP_INTERVAL};
use common::time::Span;
use std::collections::HashMap;
use std::net::IpAddr;

/// The kernel's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRules {
    /// Time in which a worker may send one more error of a type that is limited.
    pub interval: Span,
    /// Such errors of a worker in a row, at least 1.
    pub burst: u32,
    /// Those to one destination.
    pub v4: PeerRules,
    /// The same of IPv6.
    pub v6: PeerRules,
    /// IPv4 errors come from the interface that the packet arrived at, and not from the one that
    /// they leave by (`icmp_errors_use_inbound_ifaddr`).
    pub are_inbound: bool,
    /// TTL of errors of IPv4 (`ip_default_ttl`).
    pub ttl: u8,
}

/// TTL and hop limit where nothing else is set.
pub const TTL: u8 = 64;

/// The limit of errors to one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerRules {
    /// Time in which there may be one more (`icmp_ratelimit`); zero: as many as there are.
    pub interval: Span,
    /// Types that are limited, a bit each, of those up to 63 (`icmp_ratemask`).
    pub types: u64,
}

impl PeerRules {
    /// Whether errors of a type are limited, for one destination and in all.
    pub const fn limits(self, icmp_type: u8) -> bool {
        icmp_type < 64 && self.types >> icmp_type & 1 != 0
    }
}

impl Default for ErrorRules {
    /// All errors are limited in all, and none for one destination.
    fn default() -> Self {
        let all = PeerRules {
            interval: Span::ZERO,
            types: u64::MAX,
        };
        Self {
            interval: ICMP_INTERVAL,
            burst: u32::try_from(ICMP_BURST).expect("a small constant"),
            v4: all,
            v6: all,
            are_inbound: false,
            ttl: TTL,
        }
    }
}

/// All that errors follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// The kernel's settings.
    pub rules: ErrorRules,
    /// By group: the address from which this machine sends by it, where somebody has set one
    /// (`ip route … src`).
    pub sources: HashMap<GroupId, IpAddr>,
    /// By port: the hop limit of errors of IPv6 that leave by it (`hop_limit` of the interface);
    /// ports beyond have [`TTL`].
    pub hop_limits: Vec<u8>,
}
