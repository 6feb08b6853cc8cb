//! \[1\] Receive: a batch of frames from a receive queue.

use super::{Devices, Queue};
use crate::id::PortId;
use crate::limits::BATCH;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Devices<Q> {
    /// Appends at most a batch of frames of queue `index` to `frames`. Returns the port they
    /// arrived at and their number.
    #[inline]
    pub fn receive(&mut self, index: usize, frames: &mut Vec<Frame>) -> (PortId, usize) {
        let Queue { port, io } = &mut self.queues[index];
        (*port, io.receive(&mut self.pool, frames, BATCH))
    }
}
