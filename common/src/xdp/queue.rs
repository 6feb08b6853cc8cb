//! What an engine sees of one queue of a port.

use super::frame::{Frame, FramePool};
use crate::time::Time;

/// What a packet takes on the line beyond its frame: preamble and start delimiter (8), frame check
/// sequence (4), interpacket gap (12); IEEE 802.3 clauses 3.1, 4.4.2.
pub const LINE_OVERHEAD: u64 = 24;

/// One receive queue and one transmit queue of a port.
///
/// A daemon gives its workers AF_XDP queues; the twin and the unit tests give them simulated ones.
/// Nothing here blocks.
pub trait QueueIo {
    /// Appends received packets to `batch`, at most `max`, and returns how many. `pool` gives the
    /// buffers for what will be received next: the kernel's fill ring is restocked first. A queue
    /// whose packets may lie outside of the cache starts to fetch their first lines
    /// ([`Frame::prefetch`]): nobody does that again.
    fn receive(&mut self, pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize;

    /// How many packets [`Self::transmit`] would take now if each lay in one chunk. May collect
    /// sent frames into `pool` first.
    fn transmit_room(&mut self, pool: &mut FramePool) -> usize;

    /// Takes packets from the front of `batch`, as many as there is room for, in order, and returns
    /// how many. What does not fit stays in `batch`.
    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize;

    /// Makes the kernel send what was taken and collects sent frames into `pool`. Called once a
    /// turn, also when nothing new was taken: a kick that did not suffice is repeated.
    fn flush(&mut self, pool: &mut FramePool, now: Time);

    /// Whoever takes the packets sleeps from now on, until one arrives. From [`Self::flush`] to
    /// this it is awake: a device may send packets elsewhere when it is silent for too long.
    fn doze(&mut self) {}

    /// How full the receive side is: packets that arrived and were not received, or buffers that
    /// the kernel lacks for more of them, whichever are more; and how many there can be. A queue
    /// without a ring is never full.
    fn filled(&mut self) -> (usize, usize) {
        (0, 1)
    }

    /// Packets, or parts of them, that were taken but whose frames have not come back yet. While
    /// there are any, whoever sleeps wakes within a millisecond or so and flushes: a device that
    /// was full or down does not say when it is ready.
    fn in_flight(&self) -> usize;

    /// Bytes of line time ([`LINE_OVERHEAD`] and all) of the packets that the device was handed and
    /// has not completed, as of the last [`Self::transmit_room`] or [`Self::flush`]: what a packet
    /// that is handed to it now waits for.
    fn backlog(&self) -> u64;
}
