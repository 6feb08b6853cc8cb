//! \[9\] The reorder buffer: packets that came early wait here as frames until the gap before them
//! closes. Of those that were placed in memory as they came, it remembers that they are there.

use crate::frame::DataHeader;
use crate::limits;
use crate::verbs::Psn;
use common::time::Time;
use common::xdp::frame::Frame;

/// Of all frames, a fourth is for owners and queue pairs below their least, and not shared.
const KEPT: u32 = 4;

/// An owner may hold as many frames as are free of the shared ones, times this: one alone takes two
/// thirds of them, and nine leave some for the tenth.
const GREED: u32 = 2;

/// The part of all frames that each owner may hold as long as any is free.
const LEAST_OF_OWNER: u32 = 64;

/// Frames that each queue pair may hold as long as any is free, unless its owner holds a fourth of
/// all.
const LEAST_OF_QUEUE_PAIR: u32 = 8;

/// Frames that reorder buffers may hold together, shared among owners: protection domains, one for
/// each application.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    held: u32,
    most: u32,
    /// Frames held, by the slot of the domain: the low bits of its number.
    owners: Box<[u32]>,
}

impl FrameBudget {
    /// None is held; at most `most` may be.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            held: 0,
            most,
            owners: vec![0; limits::DOMAINS as usize].into_boxed_slice(),
        }
    }

    /// Frames that are held.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    fn place(owner: u32) -> usize {
        (owner % limits::DOMAINS) as usize
    }

    /// Holds one more for a queue pair of `owner` that holds `own`, if that may be.
    pub(crate) fn take(&mut self, owner: u32, own: u32) -> bool {
        let free = self.most - self.held;
        let shared = free.saturating_sub(self.most / KEPT);
        let held = &mut self.owners[Self::place(owner)];
        let least = *held < self.most / LEAST_OF_OWNER
            || (own < LEAST_OF_QUEUE_PAIR && *held < self.most.div_ceil(KEPT));
        let room = free > 0 && (*held < GREED * shared || least);
        *held += u32::from(room);
        self.held += u32::from(room);
        room
    }

    /// Holds `frames` less for `owner`.
    pub(crate) fn give(&mut self, owner: u32, frames: u32) {
        let held = &mut self.owners[Self::place(owner)];
        debug_assert!(frames <= *held, "more frames given than taken");
        *held -= frames;
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

/// A packet that was placed before its turn: what is left to do in its turn needs no more. It is in
/// the middle of the message that is being received, so it is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) flowlet: u16,
    /// Where in its message it was put.
    pub(crate) offset: u32,
    /// When it arrived.
    pub(super) arrived: Time,
}

/// A packet that came before its turn, when it is its turn.
#[derive(Debug)]
pub(crate) enum Early {
    /// It waited in a frame.
    Waited(Held),
    /// It is in memory.
    Placed(Placed),
}

/// What a place of the ring has.
#[derive(Debug, Default)]
enum Slot {
    /// No packet.
    #[default]
    Empty,
    /// One that waits in a frame.
    Waiting(Held),
    /// One that was placed before its turn.
    Placed(Placed),
    /// One that was given out before its turn, and when it came.
    Given(Time),
}

// What is remembered of a packet without its frame takes no more than one that waits.
const _: () = assert!(size_of::<Slot>() == size_of::<Option<Held>>());

/// See the module. Place of packet n is n modulo the ring's length.
#[derive(Debug)]
pub(super) struct ReorderRing {
    slots: Box<[Slot]>,
    /// Packets that wait in frames.
    waiting: u32,
}

impl ReorderRing {
    /// An empty ring; without any place for a peer whose early packets are not kept.
    pub(super) fn new(keeps: bool) -> Self {
        let places = if keeps {
            limits::REORDER_BUFFER as usize
        } else {
            0
        };
        let mut ring = Vec::with_capacity(places);
        ring.resize_with(places, Slot::default);
        Self {
            slots: ring.into_boxed_slice(),
            waiting: 0,
        }
    }

    /// Packets that wait in frames.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    fn index(psn: Psn) -> usize {
        (psn.value() & (limits::REORDER_BUFFER - 1)) as usize
    }

    /// Keeps packet `psn`.
    pub(super) fn put(&mut self, psn: Psn, held: Held) {
        let place = &mut self.slots[Self::index(psn)];
        debug_assert!(matches!(place, Slot::Empty), "place of {psn:?} is taken");
        *place = Slot::Waiting(held);
        self.waiting += 1;
    }

    /// Packet `psn`, if it waits in a frame.
    pub(super) fn get(&self, psn: Psn) -> Option<&Held> {
        match self.slots.get(Self::index(psn))? {
            Slot::Waiting(held) => Some(held),
            Slot::Empty | Slot::Placed(_) | Slot::Given(_) => None,
        }
    }

    /// Packet `psn` is in memory before its turn. Returns it, if it waited in a frame until now.
    pub(super) fn place(&mut self, psn: Psn, placed: Placed) -> Option<Held> {
        let waited = self.take(psn);
        let place = &mut self.slots[Self::index(psn)];
        debug_assert!(matches!(place, Slot::Empty), "{psn:?} is placed twice");
        *place = Slot::Placed(placed);
        waited
    }

    /// Whether packet `psn` was placed before its turn.
    pub(super) fn is_placed(&self, psn: Psn) -> bool {
        let slot = self.slots.get(Self::index(psn));
        matches!(slot, Some(Slot::Placed(_)))
    }

    /// When packet `psn` came, if it did before its turn.
    pub(super) fn arrived(&self, psn: Psn) -> Option<Time> {
        match self.slots.get(Self::index(psn))? {
            Slot::Waiting(held) => Some(held.arrived),
            Slot::Placed(placed) => Some(placed.arrived),
            Slot::Given(arrived) => Some(*arrived),
            Slot::Empty => None,
        }
    }

    /// Takes packet `psn` out, if it waits in a frame.
    pub(super) fn take(&mut self, psn: Psn) -> Option<Held> {
        let slot = self.slots.get_mut(Self::index(psn))?;
        match std::mem::take(slot) {
            Slot::Waiting(held) => {
                self.waiting -= 1;
                Some(held)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// It is the turn of packet `psn`: takes it out, wherever its payload is.
    pub(super) fn take_early(&mut self, psn: Psn) -> Option<Early> {
        let slot = self.slots.get_mut(Self::index(psn))?;
        if let Slot::Placed(placed) = *slot {
            *slot = Slot::Empty;
            return Some(Early::Placed(placed));
        }
        self.take(psn).map(Early::Waited)
    }

    /// Takes packet `psn` out, to be given out before its turn.
    pub(super) fn give_out(&mut self, psn: Psn) -> Option<Held> {
        let held = self.take(psn)?;
        self.slots[Self::index(psn)] = Slot::Given(held.arrived);
        Some(held)
    }

    /// It is the turn of packet `psn`. Whether it was given out before.
    pub(super) fn pass(&mut self, psn: Psn) -> bool {
        let slot = self.slots.get_mut(Self::index(psn));
        let slot = slot.filter(|slot| matches!(slot, Slot::Given(_)));
        slot.map(std::mem::take).is_some()
    }

    /// Takes everything out, and forgets what was placed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.waiting = 0;
        self.slots
            .iter_mut()
            .filter_map(|slot| match std::mem::take(slot) {
                Slot::Waiting(held) => Some(held.frame),
                Slot::Empty | Slot::Placed(_) | Slot::Given(_) => None,
            })
    }
}
