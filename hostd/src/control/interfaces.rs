//! The ports as the control thread sees them.

use common::units::Rate;
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
    /// What packets are paced to.
    pub speed: Rate,
    /// What bits take on the link.
    pub link_speed: Rate,
    /// How packets get in and out.
    pub mode: Mode,
    /// The program on it.
    pub steering: Steering,
    /// Counters of its queues.
    pub queues: Vec<Arc<QueueCounters>>,
}

/// All interfaces of the daemon.
pub type Interfaces = Arc<Vec<Interface>>;
