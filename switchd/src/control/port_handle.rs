//! An open port, as control sees it.

use common::xdp::netdev::Device;
use common::xdp::{AfXdpQueue, Mode, Port, QueueCounters, SteerCounts, Steering};
use std::sync::Arc;

/// A port, as control sees it.
#[derive(Debug)]
pub struct PortHandle {
    /// The program on the device.
    pub steering: Steering,
    /// The device.
    pub device: Device,
    /// How packets get in and out.
    pub mode: Mode,
    /// Descriptors on the receive ring of each queue.
    pub receive_ring: u32,
    /// What its queues count.
    pub counters: Vec<Arc<QueueCounters>>,
}

impl PortHandle {
    /// An open port as control keeps it, and its queues for the workers.
    pub fn split(port: Port) -> (Self, Vec<AfXdpQueue>) {
        let counters = port.queues.iter().map(|queue| queue.counters().clone());
        let handle = Self {
            counters: counters.collect(),
            receive_ring: port.receive_ring,
            steering: port.steering,
            device: port.device,
            mode: port.mode,
        };
        (handle, port.queues)
    }

    /// What its program counted; nothing if the kernel does not say.
    pub(super) fn steer_counts(&self) -> SteerCounts {
        self.steering.counts().unwrap_or_default()
    }
}
