//! What is counted of one direction of a connection. The worker whose table it is writes, control
//! and the other workers read.

use super::Key;
use crate::id::PortId;
use common::sync::counter::Counter;
use common::time::{Span, Time};
use common::wire::roce::PSN_MASK;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// PSNs are ahead of one another by less than this.
pub const PSN_HALF: u32 = 1 << 23;

/// The lower half of a word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(super) const fn low(word: u64) -> u32 {
    word as u32
}

/// Whether `psn` is `by` or comes before it.
#[inline]
pub const fn is_covered(psn: u32, by: u32) -> bool {
    by.wrapping_sub(psn) & PSN_MASK < PSN_HALF
}

/// A PSN was seen.
const SEEN: u64 = 1 << 24;
/// The slot is in use.
const USED: u64 = 1 << 25;
/// Where a generation begins in the word that says whose a slot is.
const GENERATION: u32 = 32;
/// A peer is known.
const PEER: u64 = 1 << 40;
/// A sample waits for its answer.
pub(super) const WAITS: u64 = 1 << 24;

/// Of one direction of a connection. All times are nanoseconds of the switch's clock.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// The addresses of its key.
    addresses: [Counter; 4],
    /// The rest of its key, whether it is in use, and since how many users: written last.
    owner: AtomicU64,
    pub(super) packets: Counter,
    /// Of IP.
    pub(super) bytes: Counter,
    pub(super) last: Counter,
    // The second line: also for each packet.
    /// The PSN of the last request, and in the upper half of the first one.
    pub(super) request: Counter,
    /// The last PSN that was acknowledged.
    pub(super) acknowledged: Counter,
    /// The port that its packets arrive at, their source port, and their traffic class.
    pub(super) way: Counter,
    /// The request whose round trip is being measured: its PSN, [`WAITS`], a number.
    pub(super) sample: AtomicU64,
    /// When it passed.
    pub(super) sampled: AtomicU64,
    /// The slot of the other direction: control says so, and a new user begins without one.
    peer: AtomicU64,
    /// The sample of the other direction that was answered last.
    pub(super) answered: AtomicU64,
    pub(super) first: Counter,
    // The third line: now and then.
    /// Round trip of the other direction's requests: moving average in nanoseconds.
    pub(super) rtt: Counter,
    pub(super) rtt_samples: Counter,
    /// When the last one was taken.
    pub(super) rtt_at: Counter,
    pub(super) naks: Counter,
    pub(super) nak_at: Counter,
    pub(super) refusals: Counter,
    pub(super) cnps: Counter,
    /// What `peer` said when the sample was taken: who is to answer it.
    asked: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 192);

/// What was counted of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
    /// NAKs for PSN sequence errors: each tells of a loss in the other direction.
    pub naks: u64,
    /// NAKs for other reasons.
    pub refusals: u64,
    /// Congestion notifications.
    pub cnps: u64,
}

impl Counts {
    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets.wrapping_sub(before.packets),
            bytes: self.bytes.wrapping_sub(before.bytes),
            naks: self.naks.wrapping_sub(before.naks),
            refusals: self.refusals.wrapping_sub(before.refusals),
            cnps: self.cnps.wrapping_sub(before.cnps),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
            naks: self.naks.wrapping_add(other.naks),
            refusals: self.refusals.wrapping_add(other.refusals),
            cnps: self.cnps.wrapping_add(other.cnps),
        }
    }
}

/// A slot as control reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whose it is.
    pub key: Key,
    /// Tells its users apart.
    pub generation: u32,
    /// What was counted.
    pub counts: Counts,
    /// When the first packet passed,
    pub first: Time,
    /// the last one,
    pub last: Time,
    /// and the last NAK; zero without one.
    pub nak_at: Time,
    /// Where its packets arrive.
    pub ingress: PortId,
    /// Their UDP source port.
    pub source_port: u16,
    /// Their traffic class (TOS of IPv4): DSCP and ECN.
    pub traffic_class: u8,
    /// Its first and its last request.
    pub requests: Option<(u32, u32)>,
    /// What it acknowledged last.
    pub acknowledged: Option<u32>,
    /// Round trips of the other direction's requests: average, and how many were measured.
    pub rtt: (Span, u64),
}

impl Slot {
    /// Takes a slot that is free for a direction.
    pub(super) fn begin(&self, key: Key, now: Time) {
        let zeroed = [
            &self.packets,
            &self.bytes,
            &self.request,
            &self.acknowledged,
            &self.way,
            &self.rtt,
            &self.rtt_samples,
            &self.rtt_at,
            &self.naks,
            &self.nak_at,
            &self.refusals,
            &self.cnps,
        ];
        zeroed.into_iter().for_each(|counter| counter.set(0));
        // Nobody else writes them now: control has given the slot back.
        for word in [
            &self.sample,
            &self.sampled,
            &self.asked,
            &self.answered,
            &self.peer,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for (counter, word) in self.addresses.iter().zip(key.addresses) {
            counter.set(word);
        }
        self.first.set(now.nanos());
        self.last.set(now.nanos());
        let generation = u64::from(self.generation().wrapping_add(1)) << GENERATION;
        let owner = generation | USED | u64::from(key.pair);
        self.owner.store(owner, Ordering::Release);
    }

    /// Frees it.
    pub(super) fn end(&self) {
        let owner = self.owner.load(Ordering::Relaxed) & !USED;
        self.owner.store(owner, Ordering::Release);
    }

    /// Tells its users apart.
    pub(super) fn generation(&self) -> u32 {
        low(self.owner.load(Ordering::Relaxed) >> GENERATION)
    }

    /// Whether it is in use.
    pub(super) fn is_used(&self) -> bool {
        self.owner.load(Ordering::Relaxed) & USED != 0
    }

    /// Whether it is that of `key`; for its writer, of one that is in use.
    #[inline]
    pub(super) fn is_of(&self, key: &Key) -> bool {
        let pair = low(self.owner.load(Ordering::Relaxed));
        let is_same = |word: usize| self.addresses[word].get() == key.addresses[word];
        // Both addresses of IPv4 are in the first word.
        (pair == key.pair | low(USED)) & is_same(0)
            && (!key.is_v6() || is_same(1) & is_same(2) & is_same(3))
    }

    /// Its key; for its writer.
    pub(super) fn key(&self) -> Key {
        self.key_of(self.owner.load(Ordering::Relaxed))
    }

    fn key_of(&self, owner: u64) -> Key {
        let pair = low(owner & !USED);
        Key {
            addresses: [0, 1, 2, 3].map(|word| self.addresses[word].get()),
            pair,
        }
    }

    /// What it says now; `None` if it is free, or changes hands at this moment.
    pub fn read(&self) -> Option<Seen> {
        let owner = self.owner.load(Ordering::Acquire);
        if owner & USED == 0 {
            return None;
        }
        let way = self.way.get();
        let seen = Seen {
            key: self.key_of(owner),
            generation: low(owner >> GENERATION),
            counts: Counts {
                packets: self.packets.get(),
                bytes: self.bytes.get(),
                naks: self.naks.get(),
                refusals: self.refusals.get(),
                cnps: self.cnps.get(),
            },
            first: Time::from_nanos(self.first.get()),
            last: Time::from_nanos(self.last.get()),
            nak_at: Time::from_nanos(self.nak_at.get()),
            ingress: PortId((way & 0xffff) as u16),
            source_port: (way >> 16 & 0xffff) as u16,
            traffic_class: (way >> 32 & 0xff) as u8,
            requests: self.requests(),
            acknowledged: psn(self.acknowledged.get()),
            rtt: (Span::from_nanos(self.rtt.get()), self.rtt_samples.get()),
        };
        std::sync::atomic::fence(Ordering::Acquire);
        (self.owner.load(Ordering::Relaxed) == owner).then_some(seen)
    }

    /// Its first and its last request now.
    pub fn requests(&self) -> Option<(u32, u32)> {
        let word = self.request.get();
        let last = psn(word)?;
        Some((low(word >> 32) & PSN_MASK, last))
    }

    /// Notes a request; whether it is newer than all before.
    #[inline]
    pub(super) fn note_request(&self, number: u32) -> bool {
        let word = self.request.get();
        let Some(last) = psn(word) else {
            let both = u64::from(number);
            self.request.set(both << 32 | SEEN | both);
            return true;
        };
        let is_newer = !is_covered(number, last);
        if is_newer {
            let first = word & !u64::from(u32::MAX);
            self.request.set(first | SEEN | u64::from(number));
        }
        is_newer
    }

    /// Notes what is acknowledged.
    #[inline]
    pub(super) fn note_acknowledged(&self, number: u32) {
        let is_newer = psn(self.acknowledged.get()).is_none_or(|last| !is_covered(number, last));
        if is_newer {
            self.acknowledged.set(SEEN | u64::from(number));
        }
    }

    /// Says where the slot of the other direction is; `None`: it is not known. For control.
    pub fn set_peer(&self, peer: Option<(usize, usize, u32)>) {
        let word = peer.map_or(0, |(worker, slot, generation)| {
            let generation = u64::from(generation) << 48;
            generation | PEER | (worker as u64 & 0xff) << 32 | slot as u64 & u64::from(u32::MAX)
        });
        self.peer.store(word, Ordering::Relaxed);
    }

    /// The slot of the other direction, as long as it is still that one's.
    #[inline]
    pub(super) fn peer<'a>(&self, tables: &'a [Arc<Table>]) -> Option<&'a Self> {
        Self::named(self.peer.load(Ordering::Relaxed), tables)
    }

    /// The slot that a word of [`Self::set_peer`] is about, as long as its user is the same.
    #[inline]
    fn named(word: u64, tables: &[Arc<Table>]) -> Option<&Self> {
        if word & PEER == 0 {
            return None;
        }
        let table = tables.get((word >> 32) as usize & 0xff)?;
        let slot = table.slots.get(low(word) as usize)?;
        let owner = slot.owner.load(Ordering::Relaxed);
        let is_its = owner & USED != 0 && owner >> GENERATION & 0xffff == word >> 48;
        is_its.then_some(slot)
    }

    /// Begins to measure the round trip of a request: the sample waits for the other direction
    /// that is known now.
    pub(super) fn take_sample(&self, psn: u32, now: Time) {
        let last = self.sample.load(Ordering::Relaxed);
        // Who reads the new time has seen that the old sample waits no more.
        self.sample.store(last & !WAITS, Ordering::Relaxed);
        self.sampled.store(now.nanos(), Ordering::Release);
        let peer = self.peer.load(Ordering::Relaxed);
        self.asked.store(peer, Ordering::Release);
        let number = (last >> 32).wrapping_add(1) << 32;
        let sample = number | WAITS | u64::from(psn);
        self.sample.store(sample, Ordering::Release);
    }

    /// Whether the sample waits for the other direction that is known now, and not for one before.
    pub(super) fn asks_peer(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.peer.load(Ordering::Relaxed)
    }

    /// Whether the sample of `other` waits for the user of this slot. Of any other it may have its
    /// answer already, long ago.
    pub(super) fn is_asked_by(&self, other: &Self, tables: &[Arc<Table>]) -> bool {
        let asked = Self::named(other.asked.load(Ordering::Acquire), tables);
        asked.is_some_and(|asked| std::ptr::eq(asked, self))
    }
}

/// A PSN, if one was seen.
#[inline]
fn psn(word: u64) -> Option<u32> {
    (word & SEEN != 0).then_some(low(word) & PSN_MASK)
}

/// What a worker counts beside its slots.
#[derive(Debug, Default)]
pub struct TableCounters {
    /// Slots in use.
    pub used: Counter,
    /// Packets of connections.
    pub packets: Counter,
    /// Those of directions that found no slot.
    pub unfollowed: Counter,
    /// RoCEv2 packets of no connection.
    pub unconnected: Counter,
    /// RoCEv2 packets that end inside of what they have to say.
    pub cut: Counter,
    /// Messages of connection management that control did not take in time.
    pub setups_lost: Counter,
}

/// The directions that a worker sees.
#[derive(Debug)]
pub struct Table {
    /// One for each.
    pub slots: Box<[Slot]>,
    /// What else is counted.
    pub counters: TableCounters,
}

impl Table {
    /// A table of `slots` free slots.
    pub fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            counters: TableCounters::default(),
        })
    }
}
