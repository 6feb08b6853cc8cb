//! \[7\] \[8\] Where queued packets lie: a slab whose slots are chained into queues.

use crate::packet::Packet;

/// No slot.
const NONE: u32 = u32::MAX;

/// A cache line of its own: the packet is read when others have passed.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    packet: Option<Packet>,
    /// Next in the queue, or in the chain of free slots.
    next: u32,
}

/// The packets of all queues of a worker. As many slots as there are frames, so it cannot run out
/// before the frames do.
#[derive(Debug)]
pub struct PacketStore {
    /// Those that were ever used: room for all of them is reserved at the start, so that pushing
    /// never allocates, and memory that no packet ever needed is never touched.
    slots: Vec<Slot>,
    capacity: usize,
    free: u32,
    held: usize,
}

/// A packet that is in no queue any more and lies in its slot still, which is free as soon as this
/// is gone: what is done to the packet here is done without moving it.
#[derive(Debug)]
#[must_use = "a packet that is not taken is lost"]
pub struct Popped<'a>(&'a mut Option<Packet>);

impl Popped<'_> {
    /// The packet.
    #[inline]
    pub fn packet(&mut self) -> &mut Packet {
        self.0.as_mut().expect("slots of chains hold packets")
    }

    /// Takes the packet.
    #[inline]
    pub fn take(self) -> Packet {
        self.0.take().expect("slots of chains hold packets")
    }
}

/// The ends of a chain in a [`PacketStore`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    head: u32,
    tail: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
        }
    }
}

impl PacketStore {
    /// A store for `capacity` packets.
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            free: NONE,
            held: 0,
        }
    }

    /// Packets that are in it.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether no packet is in it.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Appends a packet to a chain; gives it back if the store is full.
    #[inline]
    pub(super) fn push(&mut self, chain: &mut Chain, packet: Packet) -> Result<(), Packet> {
        if self.free == NONE {
            self.first_use();
        }
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return Err(packet);
        };
        self.free = slot.next;
        *slot = Slot {
            packet: Some(packet),
            next: NONE,
        };
        match self.slots.get_mut(chain.tail as usize) {
            Some(last) => last.next = index,
            None => chain.head = index,
        }
        chain.tail = index;
        self.held += 1;
        Ok(())
    }

    /// Frees a slot that was never used, if there is one.
    #[cold]
    fn first_use(&mut self) {
        if self.slots.len() < self.capacity {
            self.free = u32::try_from(self.slots.len()).expect("the capacity is a u32");
            self.slots.push(Slot {
                packet: None,
                next: NONE,
            });
        }
    }

    /// Takes the first packet out of a chain.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `EgressPort::admit`")]
    pub(super) fn pop(&mut self, chain: &mut Chain) -> Option<Popped<'_>> {
        let index = chain.head;
        let slot = self.slots.get_mut(index as usize)?;
        chain.head = slot.next;
        if chain.head == NONE {
            chain.tail = NONE;
        }
        slot.next = self.free;
        self.free = index;
        self.held -= 1;
        Some(Popped(&mut slot.packet))
    }
}
