//! Which sub-path the next packet takes (HT-31, HT-34).

use super::shuffle::Shuffle;
use super::spray::Spray;
use crate::verbs::Spraying;
use common::time::{Span, Time};

/// The choice for one packet, with what MPEH says of it (HT-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Path ID.
    pub(crate) path: u8,
    /// Which of the entropy values: that of the path, or the one of a sprayed packet.
    pub(crate) entropy: u8,
    /// Flowlet that the packet belongs to; 0 in the other modes.
    pub(crate) flowlet: u16,
    /// First packet of its flowlet (flag F).
    pub(crate) boundary: bool,
    /// First packet after the sub-path changed (flag S). When every packet changes it, that is said
    /// only of the first one on a path that came into force.
    pub(crate) switched: bool,
    /// A flow left a congested or slow path.
    pub(crate) moved: bool,
    /// First packet ever on this path, or with its present entropy: a probe (flag P, HT-21).
    pub(crate) fresh: bool,
}

/// The selection of a queue pair.
#[derive(Clone, Debug)]
pub(crate) enum Selector {
    /// An entropy value for each packet; the paths share them out. Most queue pairs of a large host
    /// have one path, and spare its memory.
    Spray(Box<Spray>, u8),
    /// One path until a pause ends the flowlet.
    Flowlet(Flowlets),
    /// One path as long as it can be used.
    Single(Shuffle),
}

impl Selector {
    /// Spraying over `paths` paths, with `values` entropy values; see [`Spray::new`]. One path has
    /// one.
    pub(crate) fn spray(spraying: (Spraying, u8), paths: usize, values: usize, seed: u64) -> Self {
        let values = if paths > 1 { values } else { 1 };
        let last = u8::try_from(paths.saturating_sub(1)).unwrap_or(u8::MAX);
        Self::Spray(Box::new(Spray::new(spraying, values, seed)), last)
    }

    /// A path for each flowlet; `number`: that of the last one.
    pub(crate) fn flowlet(
        paths: usize,
        seed: u64,
        timeout: Span,
        number: u16,
        blocks: Blocks,
    ) -> Self {
        Self::Flowlet(Flowlets {
            shuffle: Shuffle::new(paths, seed),
            timeout,
            number,
            last: None,
            blocks,
            packets: 0,
        })
    }

    /// A single path.
    pub(crate) fn single(paths: usize, seed: u64) -> Self {
        Self::Single(Shuffle::new(paths, seed))
    }

    /// Number of the last flowlet, if flowlets take paths.
    pub(super) const fn flowlet_number(&self) -> Option<u16> {
        match self {
            Self::Flowlet(flowlets) => Some(flowlets.number),
            Self::Spray(..) | Self::Single(_) => None,
        }
    }

    /// The path of the flow, if it is one.
    pub(super) fn flow(&self) -> Option<u8> {
        match self {
            Self::Single(shuffle) => shuffle.current(),
            Self::Spray(..) | Self::Flowlet(_) => None,
        }
    }

    /// Draws the path of the first flow or flowlet.
    pub(super) fn begin(&mut self) -> Option<u8> {
        match self {
            Self::Spray(..) => None,
            Self::Single(shuffle) | Self::Flowlet(Flowlets { shuffle, .. }) => {
                Some(shuffle.next_usable(|_| true))
            }
        }
    }

    /// The path that packets keep to if they can: that of the flow, or of the present flowlet.
    pub(super) fn current(&self, now: Time) -> Option<u8> {
        match self {
            Self::Spray(..) => None,
            Self::Single(shuffle) => shuffle.current(),
            Self::Flowlet(flowlets) if flowlets.is_over(now) && !flowlets.blocks.settled => None,
            Self::Flowlet(flowlets) => flowlets.shuffle.current(),
        }
    }

    /// Draws from these `entries` from now on: paths, or entropy values of sprayed packets.
    pub(super) fn set(&mut self, entries: &[u8]) {
        match self {
            Self::Spray(spray, _) => spray.set(entries),
            Self::Flowlet(Flowlets { shuffle, .. }) | Self::Single(shuffle) => shuffle.set(entries),
        }
    }

    /// The path of a packet that leaves now, among those that are `usable`; a sprayed one has
    /// another entropy value than `other_than`, and one that leads `through` a free port. A flow or
    /// a flowlet prefers a path with a short `delay`, as far as that is known.
    pub(crate) fn select(
        &mut self,
        now: Time,
        other_than: Option<u8>,
        usable: impl Fn(u8) -> bool,
        through: impl Fn(u8) -> bool,
        delay: impl Fn(u8) -> Option<Span>,
    ) -> Choice {
        let usable = |path| usable(path) && through(path);
        let plain = |path| Choice {
            path,
            entropy: path,
            flowlet: 0,
            boundary: false,
            switched: false,
            moved: false,
            fresh: false,
        };
        match self {
            Self::Spray(spray, last) => {
                let entropy = spray.choose(other_than, now, &through);
                let path = match last.checked_add(1) {
                    Some(paths) => entropy % paths,
                    None => entropy,
                };
                Choice {
                    entropy,
                    ..plain(path)
                }
            }
            Self::Single(shuffle) => {
                let before = shuffle.current();
                let path = before.filter(|&path| usable(path));
                let path = path.unwrap_or_else(|| shuffle.next_better(usable, delay));
                Choice {
                    switched: before.is_some_and(|before| before != path),
                    ..plain(path)
                }
            }
            Self::Flowlet(flowlets) => flowlets.next(now, usable, delay),
        }
    }
}

/// See [`Selector::Flowlet`].
#[derive(Clone, Debug)]
pub(crate) struct Flowlets {
    shuffle: Shuffle,
    timeout: Span,
    number: u16,
    last: Option<Time>,
    blocks: Blocks,
    /// Packets of the last flowlet.
    packets: u32,
}

/// What is known of an application's blocks (HT-46).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// A flowlet has no more packets than this, which a block takes; zero: blocks are not known.
    pub(crate) packets: u32,
    /// Another path would not be better: the next flowlet takes the same one as long as that can
    /// be used.
    pub(crate) settled: bool,
}

impl Flowlets {
    /// A pause as long as this ends a flowlet from now on.
    pub(super) const fn set_timeout(&mut self, timeout: Span) {
        self.timeout = timeout;
    }

    /// Flowlets follow these blocks from now on.
    pub(super) const fn set_blocks(&mut self, blocks: Blocks) {
        self.blocks = blocks;
    }

    /// Whether the next packet begins another flowlet.
    fn is_over(&self, now: Time) -> bool {
        let full = self.blocks.packets > 0 && self.packets >= self.blocks.packets;
        full || self.last.is_none_or(|last| now.since(last) > self.timeout)
    }

    fn next(
        &mut self,
        now: Time,
        usable: impl Fn(u8) -> bool,
        delay: impl Fn(u8) -> Option<Span>,
    ) -> Choice {
        let before = self.shuffle.current();
        let ended = self.is_over(now);
        self.last = Some(now);
        let stays = before.filter(|&path| (!ended || self.blocks.settled) && usable(path));
        let boundary = ended || stays.is_none();
        let path = stays.unwrap_or_else(|| self.shuffle.next_better(usable, delay));
        if boundary {
            // Zero means "no flowlets", so it is left out.
            self.number = self.number.checked_add(1).unwrap_or(1);
            self.packets = 0;
        }
        self.packets = self.packets.saturating_add(1);
        Choice {
            path,
            entropy: path,
            flowlet: self.number,
            boundary,
            switched: before.is_some_and(|before| before != path),
            moved: false,
            fresh: false,
        }
    }
}
