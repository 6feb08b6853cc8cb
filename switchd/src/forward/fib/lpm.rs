//! The read side of the route table: longest prefix match in one bounded arena of words.
//!
//! A multibit trie. The root is indexed by the first 16 bits of the address, each node below it by
//! 8 more, so an IPv4 address takes at most three steps and an IPv6 /48 five. Every entry is one
//! word:
//!
//! ```text
//!    31  30        23 22                    0
//!   +---+------------+-----------------------+
//!   | 0 | length + 1 | group                 |   leaf: a prefix that ends in this stride
//!   +---+------------+-----------------------+
//!   | 1 | number of the node's first line    |   child: there are longer prefixes
//!   +---+------------------------------------+
//!     0                                          hole: nothing here, the best match so far holds
//! ```
//!
//! Neighbouring entries of a node are mostly equal, so a node keeps runs: a bit for each of the 256
//! slots says whether a run starts there, the runs' values follow. A node is a whole number of
//! cache lines:
//!
//! ```text
//!   word 0..8    bit of each slot at which a run starts
//!   word 8..10   a byte for each of the eight words before: how many runs start in front of it
//!   word 10      covering: the leaf in the parent's slot before this node was there, or a hole
//!   word 11..    value of each run
//! ```
//!
//! Holes fall back to the covering leaf, and that to the best match on the way, so a short prefix
//! is never pushed into deeper nodes: a new default route costs 65 536 stores in the root and no
//! more.
//!
//! One writer (the control thread) changes the words while workers read them. A value is replaced
//! by one store. When the runs themselves change, the node is built anew beside the old one and
//! linked by one store; the old one's lines are used again only when no reader can still be in it.
//! So a reader sees the route before a change or the one after it, never neither.

use crate::id::GroupId;
use common::sync::words::{prefetch, zeroed};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of a root, one for each value of the first 16 bits.
pub(super) const ROOT: usize = 1 << 16;
/// Slots of a node.
pub(super) const SLOTS: usize = 256;
/// Words of a cache line; nodes begin at line boundaries.
pub(super) const LINE: usize = 16;
/// Where a node keeps the number of runs in front of each word of its bitmap.
pub(super) const COUNTS: usize = 8;
/// Where a node keeps its covering leaf.
pub(super) const COVERING: usize = 10;
/// Where the values of a node begin.
pub(super) const VALUES: usize = 11;
/// Lines of the largest node.
pub(super) const MAX_LINES: usize = (VALUES + SLOTS).div_ceil(LINE);
/// Marks an entry that leads to a node.
pub(super) const CHILD: u32 = 1 << 31;
/// Bits of a leaf that hold the group.
const GROUP_BITS: u32 = 23;
/// Words of the arena: 384 MiB, of which only those ever used are resident. A table of 1 M IPv4 and
/// 250 k IPv6 routes takes less than 256 MiB, as a test in `benches` shows; the rest is for nodes
/// that wait until readers have left them, and for tables more scattered than the Internet's.
pub(super) const WORDS: usize = 96 << 20;

/// The largest group number that a leaf can hold.
pub(super) const MAX_GROUP: u32 = (1 << GROUP_BITS) - 1;

const _: () = assert!(
    WORDS * 4 < 512 << 20,
    "the bound that the specification sets"
);
const _: () = assert!(
    WORDS / LINE < CHILD as usize,
    "a line's number fits beside the flag"
);
const _: () = assert!(crate::limits::MAX_GROUPS - 1 <= MAX_GROUP as usize);

/// The two address families, by where their roots begin in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    V4 = 0,
    V6 = ROOT as isize,
}

/// First word that belongs to nodes.
pub(super) const NODES: usize = 2 * ROOT;

/// A leaf: what a prefix of `len` bits that leads to `group` looks like in the arena.
pub(super) const fn leaf(len: u8, group: u32) -> u32 {
    (len as u32 + 1) << GROUP_BITS | group
}

/// Length of a leaf's prefix plus one; zero for a hole.
pub(super) const fn rank(leaf: u32) -> u32 {
    leaf >> GROUP_BITS
}

const fn group_of(leaf: u32) -> Option<GroupId> {
    if leaf == 0 {
        None
    } else {
        Some(GroupId(leaf & MAX_GROUP))
    }
}

/// Routes, as workers see them: addresses to groups.
#[derive(Debug)]
pub struct Fib {
    words: Box<[AtomicU32]>,
    /// Epoch of the first tables that have the groups of all routes.
    needs: AtomicU64,
}

impl Fib {
    pub(super) fn new(words: usize) -> Self {
        Self {
            words: zeroed(words),
            needs: AtomicU64::new(0),
        }
    }

    /// Epoch of the first tables in which the groups mean what the routes that were looked up
    /// before this call say: a group's number may have meant another one in older tables.
    #[inline]
    pub fn needs(&self) -> u64 {
        // After the loads of the words, which acquire what was stored before a route.
        self.needs.load(Ordering::Acquire)
    }

    pub(super) fn set_needs(&self, epoch: u64) {
        // Before the stores of the words, which release it.
        self.needs.store(epoch, Ordering::Release);
    }

    /// The group of the longest prefix that covers an IPv4 address.
    #[inline]
    pub fn lookup_v4(&self, address: [u8; 4]) -> Option<GroupId> {
        group_of(self.walk(Root::V4, &address))
    }

    /// The group of the longest prefix that covers an IPv6 address.
    #[inline]
    pub fn lookup_v6(&self, address: [u8; 16]) -> Option<GroupId> {
        group_of(self.walk(Root::V6, &address))
    }

    /// [`Self::lookup_v4`] for many addresses, which overlaps their cache misses.
    ///
    /// # Panics
    /// If `found` is shorter than `addresses`.
    pub fn lookup_v4_batch(&self, addresses: &[[u8; 4]], found: &mut [Option<GroupId>]) {
        self.batch(Root::V4, addresses, found);
    }

    /// [`Self::lookup_v6`] for many addresses.
    ///
    /// # Panics
    /// If `found` is shorter than `addresses`.
    pub fn lookup_v6_batch(&self, addresses: &[[u8; 16]], found: &mut [Option<GroupId>]) {
        self.batch(Root::V6, addresses, found);
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> u32 {
        // Acquire: what a child entry leads to was written before the entry.
        self.words[index].load(Ordering::Acquire)
    }

    pub(super) fn store(&self, index: usize, value: u32) {
        self.words[index].store(value, Ordering::Release);
    }

    /// First word of the node that a child entry leads to.
    #[inline]
    pub(super) fn node(entry: u32) -> usize {
        (entry & !CHILD) as usize * LINE
    }

    /// Index of the word that holds the value of `slot` in the node at `base`.
    #[inline]
    pub(super) fn value_index(&self, base: usize, slot: u8) -> usize {
        // One check for the whole header.
        let header: &[AtomicU32; VALUES] = self.words[base..]
            .first_chunk()
            .expect("a node is inside the arena");
        let word = usize::from(slot >> 5);
        let bits = header[word].load(Ordering::Relaxed);
        let counts = header[COUNTS + word / 4].load(Ordering::Relaxed);
        let before = counts >> (8 * (word % 4)) & 0xff;
        // Runs that start at or before the slot; slot 0 always starts one.
        let upto = (bits << (31 - (slot & 31))).count_ones();
        base + VALUES - 1 + (before + upto) as usize
    }

    fn walk<const N: usize>(&self, root: Root, address: &[u8; N]) -> u32 {
        let mut entry = self.word(root as usize + first_16(address));
        let mut best = 0;
        for &slot in &address[2..] {
            if entry & CHILD == 0 {
                break;
            }
            let base = Self::node(entry);
            let covering = self.word(base + COVERING);
            best = if covering == 0 { best } else { covering };
            entry = self.word(self.value_index(base, slot));
        }
        settle(entry, best)
    }

    fn batch<const N: usize>(
        &self,
        root: Root,
        addresses: &[[u8; N]],
        found: &mut [Option<GroupId>],
    ) {
        for (addresses, found) in addresses.chunks(LANES).zip(found.chunks_mut(LANES)) {
            self.lanes(root, addresses, found);
        }
    }

    /// Walks up to [`LANES`] addresses side by side, one step of each at a time: while one waits
    /// for its node, the others' are fetched too.
    fn lanes<const N: usize>(
        &self,
        root: Root,
        addresses: &[[u8; N]],
        found: &mut [Option<GroupId>],
    ) {
        let mut entries = [0_u32; LANES];
        let mut best = [0_u32; LANES];
        for address in addresses {
            prefetch(&self.words[root as usize + first_16(address)]);
        }
        let mut open = false;
        for (entry, address) in entries.iter_mut().zip(addresses) {
            *entry = self.word(root as usize + first_16(address));
            open |= self.fetch(*entry);
        }
        for depth in 2..N {
            if !open {
                break;
            }
            open = false;
            for ((entry, best), address) in entries.iter_mut().zip(&mut best).zip(addresses) {
                if *entry & CHILD != 0 {
                    let base = Self::node(*entry);
                    let covering = self.word(base + COVERING);
                    *best = if covering == 0 { *best } else { covering };
                    *entry = self.word(self.value_index(base, address[depth]));
                    open |= self.fetch(*entry);
                }
            }
        }
        for ((found, entry), best) in found.iter_mut().zip(entries).zip(best) {
            *found = group_of(settle(entry, best));
        }
    }

    /// Starts to fetch the node that `entry` leads to, if it leads to one.
    #[inline]
    fn fetch(&self, entry: u32) -> bool {
        let child = entry & CHILD != 0;
        if child {
            // The second line holds most values of a small node.
            let base = Self::node(entry);
            prefetch(&self.words[base]);
            if let Some(second) = self.words.get(base + LINE) {
                prefetch(second);
            }
        }
        child
    }
}

/// Lookups that are under way side by side. One step of all takes about as long as one miss; half
/// as many lose 15 % on IPv6, whose paths are long.
const LANES: usize = 32;

/// What a walk that ended at `entry` found.
#[inline]
fn settle(entry: u32, best: u32) -> u32 {
    if entry == 0 || entry & CHILD != 0 {
        best
    } else {
        entry
    }
}

#[inline]
pub(super) fn first_16<const N: usize>(address: &[u8; N]) -> usize {
    usize::from(u16::from_be_bytes([address[0], address[1]]))
}
