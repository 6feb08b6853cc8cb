//! What a group stands for.

use common::netlink::{Hop, NeighbourKey};
use common::xdp::PuntReason;
use std::sync::Arc;

/// What a group stands for. Routes with equal specifications share a group.
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
    /// Discard, and answer that it is prohibited.
    Prohibit,
    /// Left to the kernel, for this reason.
    Punt(PuntReason),
    /// The hops of a route, and its MTU.
    Hops(Arc<[Hop]>, u16),
    /// A next hop object of the kernel, which may change while the routes stay, and their MTU.
    Object(u32, u16),
    /// A neighbour that is the destination itself, and the MTU of the route to it.
    Neighbour(NeighbourKey, u16),
}
