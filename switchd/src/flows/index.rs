//! Where the slot of a key is: open addressing with linear probing.
//!
//! A place has the number of a slot and a part of the hash of its key, so that the slot of a packet
//! can be fetched before any slot was looked at.

/// Bits of a place that number a slot; zero is no slot.
const SLOT_BITS: u32 = 20;
/// The most slots.
pub(super) const SLOTS_MAX: usize = SLOT_MASK as usize;
/// Those bits.
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// The places.
#[derive(Debug)]
pub(super) struct Index {
    places: Box<[u32]>,
    mask: usize,
}

/// The part of a hash that stands in a place.
#[inline]
fn tag(hash: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a part of it is enough")]
    let low = hash as u32;
    low & !SLOT_MASK
}

#[inline]
fn slot(place: u32) -> usize {
    (place & SLOT_MASK) as usize - 1
}

impl Index {
    /// Room for `slots` slots: at most half of the places are taken, so probes are short.
    pub(super) fn new(slots: usize) -> Self {
        assert!(slots <= SLOTS_MAX, "{slots} slots");
        let len = (2 * slots).next_power_of_two();
        Self {
            places: vec![0; len].into(),
            mask: len - 1,
        }
    }

    /// Where the search for a hash begins: it is taken from other bits than the tag.
    #[inline]
    fn start(&self, hash: u64) -> usize {
        let high = (hash >> 32) as usize;
        high & self.mask
    }

    /// The place to fetch for a hash.
    #[inline]
    pub(super) fn place(&self, hash: u64) -> &u32 {
        &self.places[self.start(hash)]
    }

    /// The slot for which `is_it` holds, of those that a hash may stand for.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        let (mut at, tag) = (self.start(hash), tag(hash));
        loop {
            let place = self.places[at];
            if place == 0 {
                return None;
            }
            if place & !SLOT_MASK == tag && is_it(slot(place)) {
                return Some(slot(place));
            }
            at = (at + 1) & self.mask;
        }
    }

    /// The first slot that a hash may stand for.
    #[inline]
    pub(super) fn first(&self, hash: u64) -> Option<u32> {
        let (mut at, tag) = (self.start(hash), tag(hash));
        loop {
            let place = self.places[at];
            if place == 0 {
                return None;
            }
            if place & !SLOT_MASK == tag {
                return Some((place & SLOT_MASK) - 1);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a slot that is not there.
    pub(super) fn insert(&mut self, hash: u64, slot: usize) {
        let mut at = self.start(hash);
        while self.places[at] != 0 {
            at = (at + 1) & self.mask;
        }
        let number = u32::try_from(slot + 1).expect("fewer slots than numbers");
        self.places[at] = tag(hash) | number;
    }

    /// Removes a slot. `hash_of` says the hash of any other that is there.
    pub(super) fn remove(&mut self, hash: u64, wanted: usize, hash_of: impl Fn(usize) -> u64) {
        let mut at = self.start(hash);
        loop {
            match self.places[at] {
                0 => return,
                place if slot(place) == wanted => break,
                _ => at = (at + 1) & self.mask,
            }
        }
        // Those behind it move up, unless their search begins behind the gap.
        let mut next = at;
        loop {
            next = (next + 1) & self.mask;
            let place = self.places[next];
            if place == 0 {
                break;
            }
            let from_start = next.wrapping_sub(self.start(hash_of(slot(place)))) & self.mask;
            if from_start >= next.wrapping_sub(at) & self.mask {
                self.places[at] = place;
                at = next;
            }
        }
        self.places[at] = 0;
    }
}
