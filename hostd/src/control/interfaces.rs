//! The ports as the control thread sees them.

use super::link::Link;
use crate::verbs::{PortId, Speeds};
use common::xdp::{Mode, QueueCounters, Steering};
use std::sync::Arc;

/// One interface of the daemon.
#[derive(Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in the kernel.
    pub ifindex: u32,
    /// Its Ethernet address, which the worker tells its packets by.
    pub mac: [u8; 6],
    /// How packets get in and out.
    pub mode: Mode,
    /// The program on it.
    pub steering: Steering,
    /// Counters of its queues.
    pub queues: Vec<Arc<QueueCounters>>,
    /// Its speeds and its MTU.
    pub link: Arc<Link>,
}

/// All interfaces of the daemon.
pub type Interfaces = Arc<Vec<Interface>>;

/// The speeds of each port, in their order.
pub fn speeds(interfaces: &[Interface]) -> Vec<Speeds> {
    let speeds = interfaces
        .iter()
        .map(|interface| interface.link.now().speeds);
    speeds.collect()
}

/// The ports with their interfaces.
pub fn ports(interfaces: &[Interface]) -> impl Iterator<Item = (PortId, &Interface)> {
    (0..).map(PortId::new).zip(interfaces)
}
