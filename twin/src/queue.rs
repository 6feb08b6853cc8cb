//! A port's queue of a simulated device: a receive ring that can be full, and a transmit side that
//! passes the frames of a turn to the wire when the turn ends. The device of a switch has completed
//! a frame when the frame has left: until then it counts as its backlog, as in a network card.

use common::time::Time;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use switchd::packet::wire_len;

/// What a node has sent in its turn: ports and packets, in order.
pub type Outbox = Rc<RefCell<Vec<(u16, Frame)>>>;

/// The time of the wires, which a node's devices go by whatever its own clock shows.
pub type WireTime = Rc<Cell<Time>>;

/// The rings of one port.
#[derive(Debug)]
pub struct DeviceQueue {
    port: u16,
    /// Packets that wait in the receive ring at most, and those in the transmit ring.
    receive_ring: usize,
    transmit_ring: usize,
    arrived: VecDeque<Frame>,
    /// Packets that it was handed in this turn.
    handed: usize,
    /// Packets that the wire has not sent yet: when it will have, and their line time in bytes.
    leaving: VecDeque<(Time, u64)>,
    /// Line time in bytes of what was handed and has not left.
    backlog: u64,
    now: WireTime,
    outbox: Outbox,
}

impl DeviceQueue {
    /// The queue of this port of a node with this outbox, with a receive and a transmit ring of so
    /// many packets.
    pub fn new(port: u16, (receive, transmit): (u32, u32), outbox: Outbox, now: WireTime) -> Self {
        Self {
            port,
            receive_ring: receive as usize,
            transmit_ring: transmit as usize,
            arrived: VecDeque::new(),
            handed: 0,
            leaving: VecDeque::new(),
            backlog: 0,
            now,
            outbox,
        }
    }

    /// Lets a packet arrive.
    ///
    /// # Errors
    /// The packet, if the ring is full.
    #[inline]
    pub fn deliver(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.arrived.len() >= self.receive_ring {
            return Err(frame);
        }
        self.arrived.push_back(frame);
        Ok(())
    }

    /// The wire has taken a frame of `len` bytes, and will have sent it at `at`.
    #[inline]
    pub fn leaves(&mut self, len: u64, at: Time) {
        self.leaving.push_back((at, wire_len(len)));
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

    #[inline]
    fn complete(&mut self) {
        while let Some((at, bytes)) = self.leaving.front()
            && *at <= self.now.get()
        {
            self.backlog -= bytes;
            self.leaving.pop_front();
        }
    }

    fn room(&self) -> usize {
        self.transmit_ring
            .saturating_sub(self.leaving.len() + self.handed)
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
        self.complete();
        self.room()
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let outbox = &mut self.outbox.borrow_mut();
        let count = batch.len().min(self.room());
        self.handed += count;
        let handed = batch.drain(..count);
        outbox.extend(handed.map(|frame| {
            self.backlog += wire_len(frame.len() as u64);
            (self.port, frame)
        }));
        count
    }

    fn flush(&mut self, _pool: &mut FramePool, _now: Time) {
        self.handed = 0;
    }

    /// None that anybody had to be woken for, as the wire takes them without being kicked; but who
    /// finds the ring full has to wait for room.
    fn in_flight(&self) -> usize {
        match self.room() {
            0 => self.transmit_ring,
            _ => 0,
        }
    }

    fn backlog(&self) -> u64 {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::xdp::frame::Region;

    /// Who finds the ring full has to wait for room, so that its worker does not look again and
    /// again at the same time; who finds room does not.
    #[test]
    fn a_full_ring_is_waited_for() {
        let mut pool = FramePool::new(Region::heap(4, 256, 0));
        let (outbox, now) = (Outbox::default(), WireTime::default());
        let mut queue = DeviceQueue::new(0, (4, 2), outbox.clone(), now.clone());
        let mut batch: Vec<_> = (0..3).filter_map(|_| pool.take_filled(&[7; 60])).collect();
        assert_eq!((queue.transmit_room(&mut pool), queue.in_flight()), (2, 0));
        assert_eq!(queue.transmit(&mut batch), 2);
        assert_eq!((queue.transmit_room(&mut pool), queue.in_flight()), (0, 2));
        // The wire takes both, and has sent one after a while.
        queue.flush(&mut pool, Time::ZERO);
        for at in [100, 200] {
            queue.leaves(60, Time::from_nanos(at));
        }
        assert_eq!((queue.transmit_room(&mut pool), queue.in_flight()), (0, 2));
        now.set(Time::from_nanos(150));
        assert_eq!((queue.transmit_room(&mut pool), queue.in_flight()), (1, 0));
        let mut sent = outbox.borrow_mut();
        let sent = sent.drain(..).map(|(_, frame)| frame);
        let sent: Vec<_> = sent.chain(batch).collect();
        sent.into_iter().for_each(|frame| pool.give(frame));
    }
}
