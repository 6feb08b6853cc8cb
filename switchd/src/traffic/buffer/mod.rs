//! \[6\] The shared buffer, as the ports account for it: at ingress by port and priority group, at
//! egress by port and class.
//!
//! ```text
//!   ingress   guaranteed ─full─▶ service ─full─▶ headroom (lossless only) ─full─▶ drop
//!             of the group       shared, up to   of the group; the peer
//!                                its limit       is paused
//!   egress    guaranteed ─full─▶ service ─full─▶ drop or trim
//!             of the queue       shared
//! ```
//!
//! A packet that has to wait is charged (`charge.rs`): to its group when it is received, to its
//! queue when it is admitted there. It gives both back when it leaves (`release.rs`). A packet that
//! need not wait [bypasses](super::bypass) the buffer. What was charged last is given back first:
//! headroom, then service, then what is guaranteed.
//!
//! All workers of a switch share one [`Ledger`]. A group's state is one word, so that a charge or a
//! release happens at once; a switch with one worker uses plain loads and stores, which cost a
//! tenth.

mod charge;
mod release;

use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::{MAX_CELLS, PRIORITIES};
use crate::tables::policy::{GroupPolicy, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bits of each amount in a group's word.
const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;

const _: () = assert!(
    (MAX_CELLS as u64) < MASK,
    "an amount of cells fits in its bits"
);

/// Cells that many workers add to and take from.
#[derive(Debug, Default)]
struct Level {
    cells: AtomicU64,
    peak: AtomicU64,
}

impl Level {
    #[inline]
    fn get(&self) -> u64 {
        self.cells.load(Ordering::Relaxed)
    }

    #[inline]
    fn add(&self, exclusive: bool, cells: u64) {
        let now = if exclusive {
            let now = self.get() + cells;
            self.cells.store(now, Ordering::Relaxed);
            now
        } else {
            self.cells.fetch_add(cells, Ordering::Relaxed) + cells
        };
        raise(&self.peak, exclusive, now);
    }

    #[inline]
    fn take(&self, exclusive: bool, cells: u64) {
        if exclusive {
            let before = self.get();
            debug_assert!(cells <= before, "{cells} cells released of {before}");
            self.cells.store(before - cells, Ordering::Relaxed);
        } else {
            let before = self.cells.fetch_sub(cells, Ordering::Relaxed);
            debug_assert!(cells <= before, "{cells} cells released of {before}");
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            now: self.get(),
            peak: self.peak.load(Ordering::Relaxed),
        }
    }

    fn clear_peak(&self) {
        self.peak.store(self.get(), Ordering::Relaxed);
    }
}

#[inline]
fn raise(peak: &AtomicU64, exclusive: bool, now: u64) {
    if now > peak.load(Ordering::Relaxed) {
        if exclusive {
            peak.store(now, Ordering::Relaxed);
        } else {
            peak.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// Cells in use now, and the most since the watermark was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Now.
    pub now: u64,
    /// At most.
    pub peak: u64,
}

/// A group's word, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    guaranteed: u64,
    shared: u64,
    headroom: u64,
    /// The peer is to wait.
    xoff: bool,
}

impl Parts {
    #[inline]
    const fn from_word(word: u64) -> Self {
        Self {
            guaranteed: word & MASK,
            shared: word >> BITS & MASK,
            headroom: word >> (2 * BITS) & MASK,
            xoff: word >> 63 != 0,
        }
    }

    #[inline]
    const fn word(self) -> u64 {
        self.guaranteed
            | self.shared << BITS
            | self.headroom << (2 * BITS)
            | (self.xoff as u64) << 63
    }
}

/// What the packets of one group take.
#[derive(Debug, Default)]
struct Group {
    word: AtomicU64,
    /// Most of guaranteed and service together.
    peak: AtomicU64,
    /// Most of headroom.
    peak_headroom: AtomicU64,
}

/// The groups of one ingress port, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PortAccount {
    groups: [Group; PRIORITIES],
    ingress: Level,
    egress: Level,
    /// Bit n: group n takes nothing.
    shut: AtomicU8,
}

/// A group, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// Cells guaranteed and of the service region.
    pub shared: Usage,
    /// Cells of headroom.
    pub headroom: Usage,
    /// The peer is to wait.
    pub xoff: bool,
}

/// Thresholds of a group in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Beyond this its peer is paused, or its packets are dropped.
    pub xoff: u64,
    /// At this its peer may go on.
    pub xon: u64,
}

/// What all packets in the switch take of the buffer.
#[derive(Debug)]
pub struct Ledger {
    /// One worker alone uses it.
    exclusive: bool,
    service: Level,
    headroom: Level,
    egress: Level,
    ports: Box<[PortAccount]>,
    /// By port, 64 to a word: the wish to pause its peer has changed.
    news: Box<[AtomicU64]>,
}

/// What a charge or a release did to a group's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XoffChange {
    /// Nothing new.
    Same,
    /// The peer of the port is to wait, or need not wait any more.
    Changed,
}

/// A packet that was not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why it is lost.
    pub reason: DropReason,
    /// What its loss did to the group's peer.
    pub xoff_change: XoffChange,
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self {
            reason,
            xoff_change: XoffChange::Same,
        }
    }
}

impl Ledger {
    /// An empty buffer of a switch with `ports` ports; `workers` use it.
    pub fn new(ports: usize, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            exclusive: workers <= 1,
            service: Level::default(),
            headroom: Level::default(),
            egress: Level::default(),
            ports: (0..ports).map(|_| PortAccount::default()).collect(),
            news: (0..ports.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    #[inline]
    fn exchange(&self, word: &AtomicU64, old: u64, new: u64) -> bool {
        if self.exclusive {
            word.store(new, Ordering::Relaxed);
            return true;
        }
        word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Cells of the service region that are free, apart from `less` that are still counted.
    #[inline]
    fn free(&self, policy: &Policy, less: u64) -> u64 {
        let used = self.service.get().saturating_sub(less);
        u64::from(policy.regions.service).saturating_sub(used)
    }

    /// Where a group with these rules pauses its peer, or drops, and where it resumes: dynamic
    /// thresholds as of now.
    #[inline]
    pub fn thresholds(&self, policy: &Policy, rules: &GroupPolicy) -> Thresholds {
        thresholds(rules, self.free(policy, 0))
    }

    /// Lets exactly the groups of `mask` take nothing.
    pub fn shut(&self, port: PortId, mask: u8) {
        if let Some(port) = self.ports.get(port.index()) {
            port.shut.store(mask, Ordering::Relaxed);
        }
    }

    /// Whether a group takes nothing.
    #[inline]
    pub fn is_shut(&self, port: PortId, group: u8) -> bool {
        let shut = |port: &PortAccount| port.shut.load(Ordering::Relaxed);
        let mask = self.ports.get(port.index()).map_or(u8::MAX, shut);
        mask & 1 << (usize::from(group) % PRIORITIES) != 0
    }

    /// Announces a port again, after a reader of the news could not act on them.
    pub fn repeat(&self, port: PortId) {
        self.tell(port);
    }

    #[cold]
    fn tell(&self, port: PortId) -> XoffChange {
        let bit = 1 << (port.index() % 64);
        self.news[port.index() / 64].fetch_or(bit, Ordering::Release);
        XoffChange::Changed
    }

    /// Ports whose wish to pause their peers has changed: bit n is port `64 × word + n`.
    #[inline]
    pub fn news(&self, word: usize) -> u64 {
        self.news[word].load(Ordering::Acquire)
    }

    /// Number of words of [`Self::news`].
    #[inline]
    pub fn words(&self) -> usize {
        self.news.len()
    }

    /// Removes the news of a port that its owner has read.
    pub fn clear_news(&self, port: PortId) {
        self.news[port.index() / 64].fetch_and(!(1 << (port.index() % 64)), Ordering::AcqRel);
    }

    /// Priorities of `port` that are to wait: bit n for priority n.
    pub fn wanted(&self, policy: &Policy, port: PortId) -> u8 {
        let groups = self.ports[port.index()].groups.iter().enumerate();
        groups
            .filter(|(_, group)| Parts::from_word(group.word.load(Ordering::Acquire)).xoff)
            .fold(0, |mask, (group, _)| mask | policy.priorities_of(group))
    }

    /// Cells of the egress service region that are free.
    #[inline]
    pub fn egress_free(&self, policy: &Policy) -> u64 {
        u64::from(policy.regions.egress_service).saturating_sub(self.egress.get())
    }

    /// Cells of packets that leave by `port`.
    #[inline]
    pub(super) fn egress_of(&self, port: PortId) -> u64 {
        self.ports[port.index()].egress.get()
    }

    /// A priority group.
    pub fn group(&self, port: PortId, group: usize) -> GroupUsage {
        let group = &self.ports[port.index()].groups[group];
        let parts = Parts::from_word(group.word.load(Ordering::Acquire));
        GroupUsage {
            shared: Usage {
                now: parts.guaranteed + parts.shared,
                peak: group.peak.load(Ordering::Relaxed),
            },
            headroom: Usage {
                now: parts.headroom,
                peak: group.peak_headroom.load(Ordering::Relaxed),
            },
            xoff: parts.xoff,
        }
    }

    /// Service region as ingress accounts it, headroom, and service region as egress accounts it.
    pub fn regions(&self) -> [Usage; 3] {
        [&self.service, &self.headroom, &self.egress].map(Level::usage)
    }

    /// Cells of all packets that arrived at a port, and of all that leave by it.
    pub fn port(&self, port: PortId) -> [Usage; 2] {
        let port = &self.ports[port.index()];
        [port.ingress.usage(), port.egress.usage()]
    }

    /// Cells in use in all, as ingress accounts them.
    pub fn in_use(&self) -> u64 {
        self.ports.iter().map(|port| port.ingress.get()).sum()
    }

    /// Sets all watermarks to what is in use now.
    pub fn clear_watermarks(&self) {
        for level in [&self.service, &self.headroom, &self.egress] {
            level.clear_peak();
        }
        for port in &self.ports {
            port.ingress.clear_peak();
            port.egress.clear_peak();
            for group in &port.groups {
                let parts = Parts::from_word(group.word.load(Ordering::Relaxed));
                group
                    .peak
                    .store(parts.guaranteed + parts.shared, Ordering::Relaxed);
                group.peak_headroom.store(parts.headroom, Ordering::Relaxed);
            }
        }
    }
}

/// The thresholds of a group while `free` cells of the service region are free.
#[inline]
fn thresholds(rules: &GroupPolicy, free: u64) -> Thresholds {
    let xoff = u64::from(rules.guaranteed) + rules.limit.cells(free);
    let below = xoff.saturating_sub(u64::from(rules.xon_offset));
    let xon = match rules.xon_offset {
        0 => u64::from(rules.xon),
        _ => below.max(u64::from(rules.xon)),
    };
    Thresholds { xoff, xon }
}

#[cfg(test)]
mod tests;
