//! A port's queue without a device: what tests give to an engine. (The twin has its own, with rings
//! of a node's size.)

use super::frame::{Frame, FramePool};
use super::queue::{LINE_OVERHEAD, QueueIo};
use crate::time::Time;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

#[derive(Debug, Default)]
struct Ends {
    /// Arrived, not received yet.
    arrived: VecDeque<Frame>,
    /// Transmitted, not yet picked up by the wire.
    sent: VecDeque<Frame>,
    /// Most packets that may be in `sent`.
    room: usize,
    /// Places of the receive ring; zero: it is never full.
    places: usize,
}

/// A queue without a device. The holder of a clone acts as its wire.
#[derive(Clone, Debug)]
pub struct SimQueue(Rc<RefCell<Ends>>);

impl SimQueue {
    /// A queue that takes `room` packets for transmission before the wire picks some up.
    pub fn new(room: usize) -> Self {
        Self(Rc::new(RefCell::new(Ends {
            room,
            ..Ends::default()
        })))
    }

    /// Lets a packet arrive.
    pub fn deliver(&self, frame: Frame) {
        self.0.borrow_mut().arrived.push_back(frame);
    }

    /// Picks up the oldest packet that was transmitted.
    pub fn pick_up(&self) -> Option<Frame> {
        self.0.borrow_mut().sent.pop_front()
    }

    /// Packets that arrived and were not received yet.
    pub fn arrived(&self) -> usize {
        self.0.borrow().arrived.len()
    }

    /// Gives the receive ring so many places.
    pub fn set_places(&self, places: usize) {
        self.0.borrow_mut().places = places;
    }

    /// Changes how many packets may wait for the wire.
    pub fn set_room(&self, room: usize) {
        self.0.borrow_mut().room = room;
    }
}

impl QueueIo for SimQueue {
    fn receive(&mut self, _pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let arrived = &mut self.0.borrow_mut().arrived;
        let count = arrived.len().min(max);
        batch.extend(arrived.drain(..count));
        count
    }

    fn filled(&mut self) -> (usize, usize) {
        let ends = self.0.borrow();
        match ends.places {
            0 => (0, 1),
            places => (ends.arrived.len().min(places), places),
        }
    }

    fn transmit_room(&mut self, _pool: &mut FramePool) -> usize {
        let ends = self.0.borrow();
        ends.room.saturating_sub(ends.sent.len())
    }

    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let mut ends = self.0.borrow_mut();
        let count = ends.room.saturating_sub(ends.sent.len()).min(batch.len());
        ends.sent.extend(batch.drain(..count));
        count
    }

    fn flush(&mut self, _pool: &mut FramePool, _now: Time) {}

    fn in_flight(&self) -> usize {
        self.0.borrow().sent.len()
    }

    fn backlog(&self) -> u64 {
        let ends = self.0.borrow();
        let line = ends
            .sent
            .iter()
            .map(|frame| frame.len() as u64 + LINE_OVERHEAD);
        line.sum()
    }
}
