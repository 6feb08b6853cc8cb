//! What a group stands for.

use common::netlink::{Hop, NeighbourKey, PROTOCOL_KERNEL, Route};
use common::xdp::PuntReason;
use std::net::IpAddr;
use std::sync::Arc;

/// What a route says beside its hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Longest packet in bytes.
    pub mtu: u16,
    /// The address from which this machine sends by it (`src`), if somebody has set it: the
    /// kernel's own routes have that of their network.
    pub source: Option<IpAddr>,
}

impl Terms {
    /// Those of a route.
    pub fn of(route: &Route) -> Self {
        Self {
            mtu: route.mtu,
            source: route.source.filter(|_| route.protocol != PROTOCOL_KERNEL),
        }
    }
}

/// What a group stands for. Routes with equal specifications share a group, unless they come from
/// different ones and would lose flows by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Spec {
    /// An address of this machine.
    Local,
    /// The broadcast address of a network of this machine.
    Broadcast,
    /// Discard.
    Blackhole,
    /// Discard, and answer that the destination is unreachable.
    Unreachable,
    /// Go on in the next table, which has no routes: there is none.
    Throw,
    /// Discard, and answer that it is prohibited.
    Prohibit,
    /// Left to the kernel, for this reason.
    Punt(PuntReason),
    /// The hops of a route.
    Hops(Arc<[Hop]>, Terms),
    /// A next hop object of the kernel, which may change while the routes stay.
    Object(u32, Terms),
    /// A neighbour that is the destination itself, and what the route to it says.
    Neighbour(NeighbourKey, Terms),
}

impl Spec {
    /// The address from which this machine sends by it, if somebody has set it.
    pub fn source(&self) -> Option<IpAddr> {
        match self {
            Self::Hops(_, terms) | Self::Object(_, terms) | Self::Neighbour(_, terms) => {
                terms.source
            }
            _ => None,
        }
    }
}
