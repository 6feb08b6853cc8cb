//! \[10\] Transmit: frames to the device, and the calls that make it send them.

use super::Devices;
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Devices<Q> {
    /// Frames that the device of queue `index` has room for.
    #[inline]
    pub fn room(&mut self, index: usize) -> usize {
        self.queues[index].io.transmit_room(&mut self.pool)
    }

    /// Bytes of line time that the device of queue `index` was handed and has not completed, as of
    /// the last [`Self::room`] or [`Self::flush`].
    #[inline]
    pub fn backlog(&self, index: usize) -> u64 {
        self.queues[index].io.backlog()
    }

    /// Gives frames to the device of queue `index` and leaves in `frames` those that it has no room
    /// for. Returns how many it took. [`Self::kick`] and [`Self::flush`] make it send them.
    #[inline]
    pub fn transmit(&mut self, index: usize, frames: &mut Vec<Frame>) -> usize {
        self.queues[index].io.transmit(frames)
    }

    /// Has the next flush look at queue `index`.
    #[inline]
    pub fn kick(&mut self, index: usize) {
        self.unsent.set(index);
    }

    /// Whether a device has not sent all that it was given.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The worker sleeps until a packet arrives, or it is woken.
    pub fn doze(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.io.doze());
    }

    /// Makes the devices send, and remembers those that have not sent all.
    pub fn flush(&mut self, now: Time) {
        let mut next = self.unsent.next(0);
        while let Some(index) = next {
            let io = &mut self.queues[index].io;
            io.flush(&mut self.pool, now);
            if io.in_flight() == 0 {
                self.unsent.clear(index);
            }
            next = self.unsent.next(index + 1);
        }
    }
}
