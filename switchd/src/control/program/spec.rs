//! What a group stands for.

use common::netlink::{Hop, NeighbourKey};
use common::xdp::PuntReason;
use std::sync::Arc;

/// What a group stands for. Routes with equal specifications share a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Spec {
    /// An address of this machine.
    Local,
    /// Discard.
    Blackhole,
    /// Discard, and answer that the destination is unreachable.
    Unreachable,
    /// Discard, and answer that it is prohibited.
    Prohibit,
    /// Left to the kernel, for this reason.
    Punt(PuntReason),
    /// The hops of a route.
    Hops(Arc<[Hop]>),
    /// A next hop object of the kernel, which may change while the routes stay.
    Object(u32),
    /// A neighbour that is the destination itself.
    Neighbour(NeighbourKey),
}
