//! A port's queue of a simulated device: a receive ring that can be full, and a transmit side that
//! passes the frames of a turn to the wire when the turn ends.

use common::time::Time;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Packets that wait in a receive ring at most, as in the daemons by default.
pub const RECEIVE_RING: usize = 2048;

/// Packets that a turn may hand to a device at most. The shaper and the pacer hold ports to their
/// speed, so that there are never more than their burst.
pub const TRANSMIT_RING: usize = 2048;

/// What a node has sent in its turn: ports and packets, in order.
pub type Outbox = Rc<RefCell<Vec<(u16, Frame)>>>;

/// The rings of one port.
#[derive(Debug)]
pub struct DeviceQueue {
    port: u16,
    arrived: VecDeque<Frame>,
    /// Packets that it was handed in this turn.
    handed: usize,
    outbox: Outbox,
}

impl DeviceQueue {
    /// The queue of this port of a node with this outbox.
    pub fn new(port: u16, outbox: Outbox) -> Self {
        Self {
            port,
            arrived: VecDeque::new(),
            handed: 0,
            outbox,
        }
    }

    /// Lets a packet arrive.
    ///
    /// # Errors
    /// The packet, if the ring is full.
    #[inline]
    pub fn deliver(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.arrived.len() >= RECEIVE_RING {
            return Err(frame);
        }
        self.arrived.push_back(frame);
        Ok(())
    }

    /// Packets that arrived and were not received yet.
    #[inline]
    pub fn arrived(&self) -> usize {
        self.arrived.len()
    }

    /// Takes out what has arrived, as when the device is reset.
    pub fn clear(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.arrived.drain(..)
    }
}

impl QueueIo for DeviceQueue {
    #[inline]
    fn receive(&mut self, _pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let count = self.arrived.len().min(max);
        batch.extend(self.arrived.drain(..count).inspect(Frame::prefetch));
        count
    }

    #[inline]
    fn transmit_room(&mut self, _pool: &mut FramePool) -> usize {
        TRANSMIT_RING - self.handed
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let outbox = &mut self.outbox.borrow_mut();
        let count = batch.len().min(TRANSMIT_RING - self.handed);
        self.handed += count;
        outbox.extend(batch.drain(..count).map(|frame| (self.port, frame)));
        count
    }

    fn flush(&mut self, _pool: &mut FramePool, _now: Time) {
        self.handed = 0;
    }

    /// None that anybody had to be woken for: the wire takes them without being kicked.
    fn in_flight(&self) -> usize {
        0
    }
}
