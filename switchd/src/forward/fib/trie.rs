//! Changes of the trie that [`lpm`](super::lpm) reads: nodes are built aside, linked by one store,
//! retired.

use crate::forward::fib::lpm::MAX_GROUP;
use crate::forward::fib::lpm::{
    CHILD, COUNTS, COVERING, Fib, LINE, MAX_LINES, ROOT, Root, SLOTS, VALUES, first_16, rank,
};
use std::collections::VecDeque;

/// Why a route was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// The arena has no place for another node.
    #[error(
        "the route table is full ({used} of {limit} bytes, {waiting} nodes waiting for readers)"
    )]
    Full {
        /// Bytes in use.
        used: usize,
        /// Bytes there are.
        limit: usize,
        /// Nodes that will be free when no reader is in them any more.
        waiting: usize,
    },
    /// The group's number does not fit in a leaf.
    #[error("group {0} is beyond what a route can hold ({MAX_GROUP})")]
    Group(u32),
}

/// What happens to the entries in reach of a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The leaf takes the place of holes and of leaves that are not longer.
    Put(u32),
    /// Leaves of this rank give way to another leaf or to a hole.
    Take { rank: u32, then: u32 },
}

impl Change {
    /// What becomes of a leaf or a hole.
    fn of(self, old: u32) -> u32 {
        match self {
            Self::Put(new) if rank(old) <= rank(new) => new,
            Self::Take { rank: gone, then } if rank(old) == gone => then,
            Self::Put(_) | Self::Take { .. } => old,
        }
    }
}

/// The lines of one node.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: usize,
    lines: usize,
}

/// Lines of the arena: which are free, which wait for readers to leave them.
#[derive(Debug)]
pub(super) struct Lines {
    /// The first line never used.
    next: usize,
    limit: usize,
    /// First lines of free blocks, by their length in lines.
    free: [Vec<usize>; MAX_LINES + 1],
    /// Unlinked since the last seal.
    unlinked: Vec<Block>,
    /// Unlinked before the epoch was published.
    sealed: VecDeque<(u64, Vec<Block>)>,
    /// Lines of linked nodes.
    used: usize,
}

impl Lines {
    pub(super) fn new(next: usize, limit: usize) -> Self {
        Self {
            next,
            limit,
            free: std::array::from_fn(|_| Vec::new()),
            unlinked: Vec::new(),
            sealed: VecDeque::new(),
            used: 0,
        }
    }

    /// Lines that linked nodes take.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Blocks that were unlinked and not sealed yet.
    pub(super) fn unlinked(&self) -> usize {
        self.unlinked.len()
    }

    pub(super) fn seal(&mut self, epoch: u64) {
        if !self.unlinked.is_empty() {
            let blocks = std::mem::take(&mut self.unlinked);
            self.sealed.push_back((epoch, blocks));
        }
    }

    pub(super) fn reclaim(&mut self, passed: impl Fn(u64) -> bool) -> bool {
        while let Some((epoch, _)) = self.sealed.front()
            && passed(*epoch)
        {
            let (_, blocks) = self.sealed.pop_front().expect("just seen");
            for block in blocks {
                self.free[block.lines].push(block.first);
            }
        }
        self.sealed.is_empty() && self.unlinked.is_empty()
    }

    fn acquire(&mut self, lines: usize) -> Result<Block, FibError> {
        let first = match self.free[lines].pop() {
            Some(first) => first,
            None if self.next + lines <= self.limit => {
                self.next += lines;
                self.next - lines
            }
            None => self.split(lines)?,
        };
        self.used += lines;
        Ok(Block { first, lines })
    }

    /// Cuts a free block in two.
    fn split(&mut self, lines: usize) -> Result<usize, FibError> {
        for longer in lines + 1..=MAX_LINES {
            if let Some(first) = self.free[longer].pop() {
                self.free[longer - lines].push(first + lines);
                return Ok(first);
            }
        }
        Err(FibError::Full {
            used: self.used * LINE * 4,
            limit: self.limit * LINE * 4,
            waiting: self.unlinked.len()
                + self
                    .sealed
                    .iter()
                    .map(|(_, blocks)| blocks.len())
                    .sum::<usize>(),
        })
    }

    /// A block that no reader has ever been led to.
    fn release(&mut self, block: Block) {
        self.used -= block.lines;
        self.free[block.lines].push(block.first);
    }

    /// A block that readers may still be in.
    fn retire(&mut self, block: Block) {
        self.used -= block.lines;
        self.unlinked.push(block);
    }
}

/// Values of all slots of a node, to be changed.
type Slots = [u32; SLOTS];

/// The nodes on the way to a prefix. Level n is the node whose slot is byte n + 1 of the address.
struct Path {
    /// Word of the entry that leads to the node of each level.
    entry: [usize; LEVELS],
    /// First word of the node of each level.
    node: [usize; LEVELS],
}

/// The longest address has 16 bytes, of which the root takes two; level 0 stands for the root.
const LEVELS: usize = 15;

/// The trie and its store of lines, for one change.
pub(super) struct Trie<'a> {
    pub(super) fib: &'a Fib,
    pub(super) lines: &'a mut Lines,
}

impl Trie<'_> {
    /// Changes all entries in reach of a prefix. An error leaves everything as it was.
    pub(super) fn apply<const N: usize>(
        &mut self,
        root: Root,
        address: &[u8; N],
        len: u8,
        change: Change,
    ) -> Result<(), FibError> {
        let first = root as usize + first_16(address);
        if len <= 16 {
            for index in first..first + (ROOT >> len) {
                self.change_word(index, change);
            }
            return Ok(());
        }
        let target = usize::from((len - 1) / 8) - 1;
        let mut path = Path {
            entry: [first; LEVELS],
            node: [0; LEVELS],
        };
        for level in 1..=target {
            let entry = self.fib.word(path.entry[level]);
            if entry & CHILD == 0 {
                return match change {
                    Change::Put(_) => self.grow(&path, level, address, len, change),
                    Change::Take { .. } => Ok(()),
                };
            }
            path.node[level] = Fib::node(entry);
            if level < target {
                path.entry[level + 1] = self.fib.value_index(path.node[level], address[level + 1]);
            }
        }
        self.change_node(&path, target, address, len, change)
    }

    /// Changes an entry of the root.
    fn change_word(&self, index: usize, change: Change) {
        let entry = self.fib.word(index);
        if entry & CHILD == 0 {
            self.fib.store(index, change.of(entry));
        } else {
            self.change_covering(entry, change);
        }
    }

    fn change_covering(&self, child: u32, change: Change) {
        let index = Fib::node(child) + COVERING;
        self.fib.store(index, change.of(self.fib.word(index)));
    }

    /// Changes the entries of an existing node.
    fn change_node<const N: usize>(
        &mut self,
        path: &Path,
        level: usize,
        address: &[u8; N],
        len: u8,
        change: Change,
    ) -> Result<(), FibError> {
        let mut slots = self.spread(path.node[level]);
        let reach = reach(address[level + 1], len);
        for entry in &mut slots[reach.clone()] {
            if *entry & CHILD == 0 {
                *entry = change.of(*entry);
            }
        }
        self.replace(path, level, address, &slots)?;
        for &child in slots[reach].iter().filter(|entry| **entry & CHILD != 0) {
            self.change_covering(child, change);
        }
        Ok(())
    }

    /// Builds the nodes that are missing on the way to a prefix, from `missing` down, and links
    /// them.
    fn grow<const N: usize>(
        &mut self,
        path: &Path,
        missing: usize,
        address: &[u8; N],
        len: u8,
        change: Change,
    ) -> Result<(), FibError> {
        let target = usize::from((len - 1) / 8) - 1;
        let covering = self.fib.word(path.entry[missing]);
        let mut slots: Slots = [0; SLOTS];
        for entry in &mut slots[reach(address[target + 1], len)] {
            *entry = change.of(*entry);
        }
        let mut built: [Option<Block>; LEVELS] = [None; LEVELS];
        let mut linked = Ok(());
        for level in (missing..=target).rev() {
            match self.build(&slots, if level == missing { covering } else { 0 }) {
                Ok((entry, block)) => {
                    built[level] = Some(block);
                    slots = [0; SLOTS];
                    slots[usize::from(address[level])] = entry;
                }
                Err(full) => linked = Err(full),
            }
            if linked.is_err() {
                break;
            }
        }
        if linked.is_ok() {
            let child = slots[usize::from(address[missing])];
            linked = self.link(path, missing, address, child);
        }
        if linked.is_err() {
            built
                .into_iter()
                .flatten()
                .for_each(|block| self.lines.release(block));
        }
        linked
    }

    /// Makes the entry that leads (or is to lead) to the node of `level` something else.
    fn link<const N: usize>(
        &mut self,
        path: &Path,
        level: usize,
        address: &[u8; N],
        entry: u32,
    ) -> Result<(), FibError> {
        if level == 1 {
            self.fib.store(path.entry[1], entry);
            return Ok(());
        }
        let mut slots = self.spread(path.node[level - 1]);
        slots[usize::from(address[level])] = entry;
        self.replace(path, level - 1, address, &slots)
    }

    /// Makes `slots` the content of the node of `level`: in place if its runs stay the same, or by
    /// a new node, or by none if only holes are left.
    fn replace<const N: usize>(
        &mut self,
        path: &Path,
        level: usize,
        address: &[u8; N],
        slots: &Slots,
    ) -> Result<(), FibError> {
        let base = path.node[level];
        let covering = self.fib.word(base + COVERING);
        let old = self.block(base);
        if slots.iter().all(|entry| *entry == 0) {
            self.link(path, level, address, covering)?;
            self.lines.retire(old);
            return Ok(());
        }
        let runs = starts(slots);
        if (0..COUNTS).all(|word| self.fib.word(base + word) == runs[word]) {
            let values = (0..SLOTS).filter(|slot| starts_at(&runs, *slot));
            for (index, slot) in (base + VALUES..).zip(values) {
                self.fib.store(index, slots[slot]);
            }
            return Ok(());
        }
        let (entry, _) = self.build(slots, covering)?;
        // The entry of a child is a run of its own, so it can be replaced in place.
        self.fib.store(path.entry[level], entry);
        self.lines.retire(old);
        Ok(())
    }

    /// Writes a new node that nothing leads to yet; returns the entry that will.
    fn build(&mut self, slots: &Slots, covering: u32) -> Result<(u32, Block), FibError> {
        let runs = starts(slots);
        let count: u32 = runs.iter().map(|word| word.count_ones()).sum();
        let block = self
            .lines
            .acquire((VALUES + count as usize).div_ceil(LINE))?;
        let base = block.first * LINE;
        let (mut before, mut counts) = (0, [0_u32; 2]);
        for (word, bits) in runs.iter().enumerate() {
            self.fib.store(base + word, *bits);
            counts[word / 4] |= before << (8 * (word % 4));
            before += bits.count_ones();
        }
        self.fib.store(base + COUNTS, counts[0]);
        self.fib.store(base + COUNTS + 1, counts[1]);
        self.fib.store(base + COVERING, covering);
        let values = (0..SLOTS).filter(|slot| starts_at(&runs, *slot));
        for (index, slot) in (base + VALUES..).zip(values) {
            self.fib.store(index, slots[slot]);
        }
        let line = u32::try_from(block.first).expect("the arena has fewer lines than 2^31");
        Ok((CHILD | line, block))
    }

    /// Where the node at `base` lies.
    fn block(&self, base: usize) -> Block {
        let count: u32 = (0..COUNTS)
            .map(|word| self.fib.word(base + word).count_ones())
            .sum();
        Block {
            first: base / LINE,
            lines: (VALUES + count as usize).div_ceil(LINE),
        }
    }

    /// The value of each slot of the node at `base`.
    fn spread(&self, base: usize) -> Slots {
        let mut slots = [0; SLOTS];
        let mut index = base + VALUES - 1;
        for (slot, value) in slots.iter_mut().enumerate() {
            if self.fib.word(base + slot / 32) & 1 << (slot % 32) != 0 {
                index += 1;
            }
            *value = self.fib.word(index);
        }
        slots
    }
}

/// The slots that a prefix of `len` bits reaches in the node in which it ends.
fn reach(slot: u8, len: u8) -> std::ops::Range<usize> {
    let first = usize::from(slot);
    first..first + (1 << (7 - (len - 1) % 8))
}

/// A bit for each slot that differs from the one before it. Slot 0 starts a run always.
fn starts(slots: &Slots) -> [u32; COUNTS] {
    let mut runs = [0; COUNTS];
    for slot in 0..SLOTS {
        if slot == 0 || slots[slot] != slots[slot - 1] {
            runs[slot / 32] |= 1 << (slot % 32);
        }
    }
    runs
}

fn starts_at(runs: &[u32; COUNTS], slot: usize) -> bool {
    runs[slot / 32] & 1 << (slot % 32) != 0
}
