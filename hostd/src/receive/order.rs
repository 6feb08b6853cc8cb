//! \[9\] The reorder buffer: packets that came early wait here as frames until the gap before them
//! closes.

use crate::frame::DataHeader;
use crate::limits;
use crate::verbs::Psn;
use common::time::Time;
use common::xdp::frame::Frame;

/// Frames that reorder buffers may hold together.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    held: u32,
    most: u32,
}

impl FrameBudget {
    /// None is held; at most `most` may be.
    pub(crate) const fn new(most: u32) -> Self {
        Self { held: 0, most }
    }

    /// Frames that are held.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Holds one more, if that may be.
    pub(crate) fn take(&mut self) -> bool {
        let room = self.held < self.most;
        self.held += u32::from(room);
        room
    }

    /// Holds `frames` less.
    pub(crate) fn give(&mut self, frames: u32) {
        debug_assert!(frames <= self.held, "more frames given than taken");
        self.held -= frames;
    }
}

/// A packet that waits in the ring.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) frame: Frame,
    pub(crate) header: DataHeader,
    /// When it arrived.
    pub(super) arrived: Time,
}

/// See the module. Place of packet n is n modulo the ring's length.
#[derive(Debug)]
pub(super) struct ReorderRing(Box<[Option<Held>]>);

impl ReorderRing {
    /// An empty ring; without any place for a peer whose early packets are not kept.
    pub(super) fn new(keeps: bool) -> Self {
        let places = if keeps {
            limits::REORDER_BUFFER as usize
        } else {
            0
        };
        let mut ring = Vec::with_capacity(places);
        ring.resize_with(places, || None);
        Self(ring.into_boxed_slice())
    }

    fn index(psn: Psn) -> usize {
        (psn.value() & (limits::REORDER_BUFFER - 1)) as usize
    }

    /// Keeps packet `psn`.
    pub(super) fn put(&mut self, psn: Psn, held: Held) {
        let place = &mut self.0[Self::index(psn)];
        debug_assert!(place.is_none(), "place of {psn:?} is taken");
        *place = Some(held);
    }

    /// Packet `psn`, if it waits.
    pub(super) fn get(&self, psn: Psn) -> Option<&Held> {
        self.0.get(Self::index(psn))?.as_ref()
    }

    /// Takes packet `psn` out.
    pub(super) fn take(&mut self, psn: Psn) -> Option<Held> {
        self.0.get_mut(Self::index(psn))?.take()
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.0
            .iter_mut()
            .filter_map(|place| Some(place.take()?.frame))
    }
}
