//! The devices of a worker: \[1\] receive and \[10\] transmit.
//!
//! ```text
//!   rx   [1]  a batch of frames from a receive queue
//!   tx   [10] frames to the transmit queue of the same number; flush makes the device send them
//! ```
//!
//! What a device is, [`QueueIo`] says: an AF_XDP queue in the daemon, a simulated one in the twin.

mod rx;
mod tx;

use crate::bit_set::BitSet;
use crate::id::PortId;
use common::sync::words::prefetch_all;
use common::xdp::frame::FramePool;
use common::xdp::queue::QueueIo;

/// A receive queue, with the transmit queue of the same number.
#[derive(Debug)]
struct Queue<Q> {
    port: PortId,
    io: Q,
}

/// The queues of a worker and the frames that are free for them.
#[derive(Debug)]
pub struct Devices<Q> {
    queues: Vec<Queue<Q>>,
    /// Queues whose device has not sent all that it was given, or was given something this turn.
    unsent: BitSet,
    /// Frames that no packet is in.
    pub pool: FramePool,
}

impl<Q: QueueIo> Devices<Q> {
    /// These queues, each with its port. They share `pool`.
    pub fn new(queues: Vec<(PortId, Q)>, pool: FramePool) -> Self {
        let queues = queues.into_iter().map(|(port, io)| Queue { port, io });
        let queues: Vec<_> = queues.collect();
        Self {
            unsent: BitSet::new(queues.len()),
            queues,
            pool,
        }
    }

    /// Adds a queue of `port` after all others. Returns its index.
    pub fn add(&mut self, port: PortId, io: Q) -> usize {
        self.queues.push(Queue { port, io });
        self.unsent.grow(self.queues.len());
        self.queues.len() - 1
    }

    /// Takes all queues of `port` out, in the order of their indices. Others may get another index:
    /// `moved` is told of each, by the index before and after.
    pub fn remove(&mut self, port: PortId, mut moved: impl FnMut(usize, usize)) -> Vec<Q> {
        let mut removed = Vec::new();
        let mut next = 0;
        for index in 0..self.queues.len() {
            if self.queues[next].port == port {
                removed.push(self.queues.remove(next).io);
            } else {
                if next != index {
                    moved(index, next);
                }
                if self.unsent.contains(index) {
                    self.unsent.set(next);
                } else {
                    self.unsent.clear(next);
                }
                next += 1;
            }
        }
        (next..next + removed.len()).for_each(|index| self.unsent.clear(index));
        removed
    }

    /// Number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether there is no queue.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The port of each queue.
    pub fn ports(&self) -> impl Iterator<Item = PortId> {
        self.queues.iter().map(|queue| queue.port)
    }

    /// The queues.
    pub fn queues(&self) -> impl Iterator<Item = &Q> {
        self.queues.iter().map(|queue| &queue.io)
    }

    /// A queue.
    pub fn queue_mut(&mut self, index: usize) -> &mut Q {
        &mut self.queues[index].io
    }

    /// Starts to bring a queue into the cache. Returns its port.
    pub fn prefetch(&self, index: usize) -> PortId {
        let queue = &self.queues[index];
        prefetch_all(queue);
        queue.port
    }

    /// Frames that the devices were given and have not sent yet.
    pub fn in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.io.in_flight()).sum()
    }
}
