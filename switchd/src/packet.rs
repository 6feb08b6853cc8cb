//! A packet: a frame and what the stages found out about it.

use crate::ingress::tables::{NextHopId, PortId};
use common::xdp::frame::Frame;

/// A packet on its way from the ingress to an egress queue. It owns its frame.
///
/// Everything later stages need is here, so that they read the headers only to change them, and a
/// packet that crosses to another worker needs nothing but this.
#[derive(Debug)]
pub struct Packet {
    /// The bytes.
    pub frame: Frame,
    /// The port it arrived at; drops are counted there.
    pub ingress: PortId,
    /// The port it leaves by.
    pub egress: PortId,
    /// The neighbour it goes to.
    pub next_hop: NextHopId,
    /// Destination MAC address.
    pub mac: [u8; 6],
    /// Traffic class: the index of the egress queue.
    pub class: u8,
    /// Where the IP header begins.
    pub network: u16,
}
