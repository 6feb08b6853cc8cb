//! One core's turn, and what it exchanges with control and with the other workers.

use std::net::IpAddr;

/// What a worker tells control. Sent with `try_send`: an event that does not fit is counted and
/// repeated when its reason occurs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A packet waits for the MAC address of `address` on the network of `ifindex`: ask the kernel to
    /// resolve it. Repeated (at most once a second for each address) while packets wait.
    Resolve {
        /// The kernel's number of the interface.
        ifindex: u32,
        /// The neighbour.
        address: IpAddr,
    },
    /// After [`WorkerCommand::Drain`]: nothing of this worker is queued or in flight any more.
    Drained {
        /// The worker's number.
        worker: usize,
    },
}

/// What control tells a worker, beyond the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCommand {
    /// Stop receiving, send what is queued, say [`WorkerEvent::Drained`].
    Drain,
}

/// A set of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSet(u64);

impl WorkerSet {
    /// Adds a worker.
    pub fn insert(&mut self, worker: usize) {
        self.0 |= 1 << worker;
    }

    /// Whether nobody is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..crate::limits::MAX_WORKERS).filter(move |worker| self.0 & (1 << worker) != 0)
    }
}
