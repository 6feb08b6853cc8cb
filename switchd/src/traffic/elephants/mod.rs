//! \[7\] Elephants and mice: flows that send much go to a lower queue, so that the others need not
//! wait behind them. No packet overtakes one of its own flow while the flow moves.
//!
//! ```text
//!             level above its limit                      class
//!          ┌────────────────────────┐            from ───────────▶ to
//!          │                        ▼                 ◀───────────
//!        Mouse                  Elephant         follows the size as soon as
//!          ▲                        │            no packet of the flow is left
//!          └────────────────────────┘            in the queue that it leaves,
//!             level empty, or idle               or behind a gate
//! ```
//!
//! **Size.** Each flow has a level, a leaky bucket: its bytes fill it, and it leaks at the
//! threshold's rate. A flow becomes an elephant when the level exceeds the threshold's bytes: over
//! some time t it sent more than bytes + rate × t. It becomes a mouse again when the level has run
//! empty, or when it sent nothing for the ageing time. So a flow near the rate does not swing
//! between the queues.
//!
//! **Order.** A queue is first in, first out. So the number of a flow's last packet and the number
//! of packets that have left tell whether the flow still has packets in the queue. There are two
//! ways to move without reordering:
//!
//! - [`Moves::Drained`]: the flow moves when none of its packets is left in the queue. A flow that
//!   sends all the time into a queue that is never empty does not move before it pauses for as long
//!   as the queue takes to empty.
//! - [`Moves::Gated`]: the flow goes down at once. Its packets in the lower queue wait at a
//!   [`Gate`] until its earlier packets have left the upper queue, which takes at most the delay of
//!   that queue.
//!
//! The way back has no gate: the upper queue never waits for the lower one, so mice are not
//! delayed and the two queues cannot wait for each other.
//!
//! **Memory.** One table for each worker, keyed by port, class and flow: the ports of a worker
//! share its entries, where one table for each of 256 ports would lie idle for most. It is
//! associative in sets of [`WAYS`]. A new flow takes the place of the mouse with the lowest level
//! in its set, and never that of an elephant or of a flow that has packets in the lower queue, so a
//! flood of mice pushes out mice only. If there is no such place, the flow is not followed and
//! stays in its queue. Levels are not inherited: a mouse is never taken for an elephant because of
//! its predecessor. A packet touches two adjacent cache lines, one of an elephant a third.
//!
//! Two flows with the same hash are one flow here: they move together, and each keeps its order.
//!
//! The frames are not changed. The next switch sees the class that the frames came with and pauses
//! that class, so a port whose peer pauses `from` has to hold `to` as well.

mod account;
mod gate;
#[cfg(test)]
mod tests;
pub mod tracker;

use crate::id::{FlowKey, PortId};
use crate::limits::CLASSES;
use crate::stats::ElephantRow;
use crate::tables::elephants::{MAX_BYTES, Moves, Settings, SettingsError, check};
use account::Account;
pub use account::RATE_INTERVAL;
use common::sync::words::prefetch_all;
use common::time::{Span, Time};
pub use gate::Gate;

/// Entries of a worker's table. A port seldom has more than a few hundred flows that send at once;
/// 4096 are enough for 16 busy ports and take 320 KiB, which fit in a second-level cache.
pub const ENTRIES: usize = 4096;

/// Entries of a set: two cache lines of 64 bytes.
pub const WAYS: usize = 4;

/// Sets that [`Elephants::age`] looks at in a turn: eight cache lines, and the whole table in 256
/// turns.
pub const AGE_SETS: usize = 4;

/// Level of one byte: bits × 10⁹, so that the leak, rate × nanoseconds, is exact.
const BYTE: u64 = 8_000_000_000;

const _: () = assert!(size_of::<Entry>() * WAYS == 128, "a set is two cache lines");
const _: () = assert!(MAX_BYTES <= u64::MAX / BYTE / 2, "levels fit in a word");

/// How far a queue has come. Both count packets since the queue was made and never go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets that it took. The next has this number plus one.
    pub enqueued: u64,
    /// Packets that left it, sent or discarded.
    pub dequeued: u64,
}

impl Progress {
    /// Whether packet number `packet` and all before it have left. A number that was never given
    /// counts as left when the queue is empty: a packet may be refused after its number was noted.
    #[inline]
    pub const fn passed(self, packet: u64) -> bool {
        self.dequeued >= packet || self.dequeued >= self.enqueued
    }
}

/// The queue for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The queue.
    pub class: u8,
    /// Unless it is `None`, the packet may not leave before this packet of the queue of its own
    /// class has: to be added to the gate, see [`Gate::add`].
    pub after: Option<u64>,
}

/// What happened since the table was made, and what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Flows that are followed now.
    pub flows: u64,
    /// Those of them that are elephants.
    pub elephants: u64,
    /// Moves to a lower queue.
    pub demoted: u64,
    /// Moves back.
    pub restored: u64,
    /// Packets that stayed in a queue because others of their flow were still there.
    pub waiting: u64,
    /// Flows whose place was given to another one.
    pub evicted: u64,
    /// Packets whose flow found no place.
    pub unfollowed: u64,
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Mouse,
    Elephant,
}

/// The state of a flow, which each packet reads and updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// The level had run empty, and is within its limit.
    Empty,
    /// The level is within its limit.
    Within,
    /// The level exceeds its limit.
    Over,
}

impl State {
    #[inline]
    const fn after(self, load: Load) -> Self {
        match (self, load) {
            (Self::Mouse, Load::Over) => Self::Elephant,
            (Self::Elephant, Load::Empty) => Self::Mouse,
            (state, _) => state,
        }
    }
}

/// What every packet needs to know of its flow.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u32,
    port: u8,
    /// The class of its packets.
    home: u8,
    /// The queue they go to.
    class: u8,
    state: State,
    /// Number of the last one in that queue.
    last: u64,
    seen: Time,
    level: u64,
}

impl Entry {
    fn flow(&self) -> FlowKey {
        FlowKey {
            port: self.port(),
            class: self.home,
            hash: self.hash,
        }
    }

    #[inline]
    fn port(&self) -> PortId {
        PortId(u16::from(self.port))
    }

    /// Whether its packets go to another queue than their class says.
    #[inline]
    const fn is_away(&self) -> bool {
        self.class != self.home
    }

    /// Whether none of its packets is in its queue.
    #[inline]
    fn has_left(&self, queues: &impl Fn(PortId, u8) -> Progress) -> bool {
        queues(self.port(), self.class).passed(self.last)
    }

    /// What is left of the level.
    #[inline]
    fn left(&self, watch: Option<Watch>, now: Time) -> u64 {
        let idle = now.since(self.seen);
        match watch {
            Some(watch) if idle < watch.ageing => self
                .level
                .saturating_sub(watch.leak.saturating_mul(idle.nanos())),
            _ => 0,
        }
    }

    /// The queue it belongs in.
    #[inline]
    fn wanted(&self, watch: Option<Watch>) -> u8 {
        match (self.state, watch) {
            (State::Elephant, Some(watch)) => watch.to,
            _ => self.home,
        }
    }
}

/// Entries among which a flow is sought.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(128))]
struct Set([Entry; WAYS]);

impl Set {
    /// The entry of a flow. All are compared, without a branch for each: which one it is cannot be
    /// predicted.
    #[inline]
    fn find(&self, hash: u32, port: u8, class: u8) -> Option<usize> {
        let found = self.0.iter().enumerate().fold(0_u32, |found, (way, it)| {
            let same = (it.hash == hash) & (it.port == port) & (it.home == class);
            found | u32::from(same & (it.state != State::Free)) << way
        });
        (found != 0).then_some(found.trailing_zeros() as usize)
    }
}

/// [`Settings`], as packets need them.
#[derive(Clone, Copy, Debug)]
struct Watch {
    to: u8,
    gated: bool,
    limit: u64,
    leak: u64,
    ageing: Span,
}

impl From<&Settings> for Watch {
    fn from(settings: &Settings) -> Self {
        Self {
            to: settings.to,
            gated: settings.moves == Moves::Gated,
            limit: settings.bytes * BYTE,
            leak: settings.rate.bps(),
            ageing: settings.ageing,
        }
    }
}

/// The flows that a worker follows on all its ports.
#[derive(Debug)]
pub struct Elephants {
    sets: Box<[Set]>,
    /// One for each entry.
    accounts: Box<[[Account; WAYS]]>,
    /// By class.
    watched: [Option<Watch>; CLASSES],
    /// Entries whose packets go to another queue than their class says.
    away: u64,
    /// The set that is looked at next for what has aged.
    hand: usize,
    counters: Counters,
}

impl Elephants {
    /// An empty table of `entries`, rounded up to whole sets, that watches no class.
    pub fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).max(1);
        Self {
            sets: vec![Set::default(); sets].into(),
            accounts: vec![[Account::default(); WAYS]; sets].into(),
            watched: [None; CLASSES],
            away: 0,
            hand: 0,
            counters: Counters::default(),
        }
    }

    /// Watches these classes from now on. Flows that are in a queue which they no longer belong in
    /// move without a gate.
    ///
    /// # Errors
    /// If [`check`] refuses them; then nothing changes.
    pub fn configure(&mut self, settings: &[Settings]) -> Result<(), SettingsError> {
        check(settings)?;
        self.watched = [None; CLASSES];
        for settings in settings {
            self.watched[usize::from(settings.from)] = Some(Watch::from(settings));
        }
        // The packets of a class that is not watched are not counted, so nothing may be known of
        // its flows that would be out of date when it is watched again.
        self.remove_where(|table, entry| !entry.is_away() && !table.is_watched(entry.home));
        Ok(())
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The queue for a packet of `bytes` bytes. The caller asks for each packet right before it
    /// queues it, in the order of the packets. A packet that the queue then refuses counts, too.
    #[inline]
    pub fn classify(
        &mut self,
        flow: FlowKey,
        bytes: u32,
        now: Time,
        queues: &impl Fn(PortId, u8) -> Progress,
    ) -> Place {
        let stay = Place {
            class: flow.class,
            after: None,
        };
        let watch = self.watched.get(usize::from(flow.class)).copied().flatten();
        if watch.is_none() && self.away == 0 {
            return stay;
        }
        let Ok(port) = u8::try_from(flow.port.0) else {
            return stay;
        };
        let set = self.set_of(flow);
        let way = match self.sets[set].find(flow.hash, port, flow.class) {
            Some(way) => way,
            // A flow that is not followed was never moved.
            None if watch.is_none() => return stay,
            None => {
                let Some(way) = self.make_room(set, now, queues) else {
                    self.counters.unfollowed += 1;
                    return stay;
                };
                self.counters.flows += 1;
                self.sets[set].0[way] = Entry {
                    hash: flow.hash,
                    port,
                    home: flow.class,
                    class: flow.class,
                    state: State::Mouse,
                    // Any of the packets in the queue may be one of this flow.
                    last: queues(flow.port, flow.class).enqueued,
                    seen: now,
                    level: 0,
                };
                way
            }
        };
        self.follow((set, way), bytes, now, queues)
    }

    /// The class in whose queue the next packet of a flow waits, as things are.
    pub fn class_of(&self, flow: FlowKey) -> u8 {
        let set = &self.sets[self.set_of(flow)];
        let port = u8::try_from(flow.port.0).ok();
        let way = port.and_then(|port| set.find(flow.hash, port, flow.class));
        way.map_or(flow.class, |way| set.0[way].class)
    }

    /// Takes notice of what has aged, in [`AGE_SETS`] of the sets; to be called once a turn.
    pub fn age(&mut self, now: Time, queues: &impl Fn(PortId, u8) -> Progress) {
        self.age_sets(AGE_SETS.min(self.sets.len()), now, queues);
    }

    /// Takes notice of all that has aged, before it is shown.
    pub fn age_all(&mut self, now: Time, queues: &impl Fn(PortId, u8) -> Progress) {
        self.age_sets(self.sets.len(), now, queues);
    }

    fn age_sets(&mut self, sets: usize, now: Time, queues: &impl Fn(PortId, u8) -> Progress) {
        for _ in 0..sets {
            for way in 0..WAYS {
                self.age_entry((self.hand, way), now, queues);
            }
            self.hand = (self.hand + 1) % self.sets.len();
        }
    }

    /// Forgets the flows of a port whose queues go away with all that is in them.
    pub fn forget(&mut self, port: PortId) {
        self.remove_where(|_, entry| entry.port() == port);
    }

    /// The elephants, and flows on their way back, at most `max`: those that sent most first.
    pub fn rows(&self, max: usize, now: Time) -> Vec<ElephantRow> {
        let entries = self.sets.iter().flat_map(|set| &set.0);
        let accounts = self.accounts.iter().flatten();
        let mut rows: Vec<ElephantRow> = entries
            .zip(accounts)
            .filter(|(entry, _)| entry.state == State::Elephant || entry.is_away())
            .map(|(entry, account)| self.row(entry, account, now))
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.flow));
        rows.truncate(max);
        rows
    }

    fn row(&self, entry: &Entry, account: &Account, now: Time) -> ElephantRow {
        ElephantRow {
            flow: entry.flow(),
            class: entry.class,
            waiting: entry.wanted(self.watched[usize::from(entry.home)]) != entry.class,
            bytes: account.bytes,
            rate: account.rate(now),
            age: now.since(account.since),
        }
    }

    /// Starts to bring what is known of a flow into the cache.
    #[inline]
    pub fn prefetch(&self, flow: FlowKey) {
        prefetch_all(&self.sets[self.set_of(flow)]);
    }

    /// The set of a flow. The low bits of the hash also choose the port, so the flows of a port
    /// have few values there: a multiplication brings all bits to the top.
    #[inline]
    fn set_of(&self, flow: FlowKey) -> usize {
        let key = u64::from(flow.hash) << 32 | u64::from(flow.port.0) << 8 | u64::from(flow.class);
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((mixed >> 32) * self.sets.len() as u64) >> 32) as usize
    }

    /// Counts a packet of a flow that has an entry, and moves the flow if it is time.
    #[inline]
    fn follow(
        &mut self,
        (set, way): (usize, usize),
        bytes: u32,
        now: Time,
        queues: &impl Fn(PortId, u8) -> Progress,
    ) -> Place {
        self.weigh((set, way), bytes, now);
        self.relocate((set, way), queues);
        let entry = &mut self.sets[set].0[way];
        let class = entry.class;
        if !entry.is_away() && self.watched[usize::from(entry.home)].is_none() {
            // As in `configure`.
            self.remove((set, way));
            return Place { class, after: None };
        }
        entry.last = queues(entry.port(), class).enqueued + 1;
        if !entry.is_away() {
            return Place { class, after: None };
        }
        let behind = self.accounts[set][way].behind;
        let overtakes = !queues(entry.port(), entry.home).passed(behind);
        Place {
            class,
            after: overtakes.then_some(behind),
        }
    }

    /// Brings the level up to date, and the state with it.
    #[inline]
    fn weigh(&mut self, (set, way): (usize, usize), bytes: u32, now: Time) {
        let entry = &mut self.sets[set].0[way];
        let watch = self.watched[usize::from(entry.home)];
        let left = entry.left(watch, now);
        let limit = watch.map_or(u64::MAX, |watch| watch.limit);
        let level = left.saturating_add(u64::from(bytes).saturating_mul(BYTE));
        let load = match left {
            _ if level > limit => Load::Over,
            0 => Load::Empty,
            _ => Load::Within,
        };
        let before = entry.state;
        entry.state = before.after(load);
        entry.level = level.min(limit);
        entry.seen = now;
        match (before, entry.state) {
            (State::Mouse, State::Elephant) => {
                self.counters.elephants += 1;
                self.accounts[set][way].begin(now);
            }
            (State::Elephant, State::Mouse) => self.counters.elephants -= 1,
            _ => {}
        }
        if entry.state == State::Elephant {
            self.accounts[set][way].add(bytes, now);
        }
    }

    /// Moves a flow to the queue it belongs in, unless one of its packets would overtake another.
    #[inline]
    fn relocate(&mut self, (set, way): (usize, usize), queues: &impl Fn(PortId, u8) -> Progress) {
        let entry = &mut self.sets[set].0[way];
        let watch = self.watched[usize::from(entry.home)];
        let wanted = entry.wanted(watch);
        if wanted == entry.class {
            return;
        }
        let gated = !entry.is_away() && watch.is_some_and(|watch| watch.gated);
        if !gated && !entry.has_left(queues) {
            self.counters.waiting += 1;
            return;
        }
        if !entry.is_away() {
            self.accounts[set][way].behind = entry.last;
            self.away += 1;
            self.counters.demoted += 1;
        } else if wanted == entry.home {
            self.away -= 1;
            self.counters.restored += 1;
        }
        entry.class = wanted;
    }

    /// A place in the set for a new flow.
    fn make_room(
        &mut self,
        set: usize,
        now: Time,
        queues: &impl Fn(PortId, u8) -> Progress,
    ) -> Option<usize> {
        let entries = &self.sets[set].0;
        if let Some(way) = entries.iter().position(|it| it.state == State::Free) {
            return Some(way);
        }
        // One by one and not as a tuple, so that they stay in registers.
        let (mut least, mut oldest, mut found) = (u64::MAX, Time::NEVER, None);
        for (way, entry) in entries.iter().enumerate() {
            let left = entry.left(self.watched[usize::from(entry.home)], now);
            let is_mouse = entry.state == State::Mouse || left == 0;
            let is_less = left < least || (left == least && entry.seen < oldest);
            if is_mouse && is_less && (!entry.is_away() || entry.has_left(queues)) {
                (least, oldest, found) = (left, entry.seen, Some(way));
            }
        }
        let way = found?;
        self.remove((set, way));
        self.counters.evicted += 1;
        Some(way)
    }

    fn age_entry(
        &mut self,
        (set, way): (usize, usize),
        now: Time,
        queues: &impl Fn(PortId, u8) -> Progress,
    ) {
        let entry = &mut self.sets[set].0[way];
        let watch = self.watched[usize::from(entry.home)];
        if entry.state == State::Elephant && entry.left(watch, now) == 0 {
            entry.state = State::Mouse;
            self.counters.elephants -= 1;
        }
        if entry.state == State::Mouse && entry.is_away() && entry.has_left(queues) {
            entry.class = entry.home;
            entry.last = self.accounts[set][way].behind;
            self.away -= 1;
            self.counters.restored += 1;
        }
        let is_old = watch.is_none_or(|watch| now.since(entry.seen) >= watch.ageing);
        if entry.state == State::Mouse && !entry.is_away() && is_old {
            self.remove((set, way));
        }
    }

    fn is_watched(&self, class: u8) -> bool {
        self.watched[usize::from(class)].is_some()
    }

    fn remove_where(&mut self, goes: impl Fn(&Self, &Entry) -> bool) {
        for set in 0..self.sets.len() {
            for way in 0..WAYS {
                let entry = &self.sets[set].0[way];
                if entry.state != State::Free && goes(self, entry) {
                    self.remove((set, way));
                }
            }
        }
    }

    fn remove(&mut self, (set, way): (usize, usize)) {
        // Its account is left as it is: the next flow begins its own when it becomes an elephant.
        let entry = std::mem::take(&mut self.sets[set].0[way]);
        self.counters.flows -= 1;
        self.counters.elephants -= u64::from(entry.state == State::Elephant);
        self.away -= u64::from(entry.is_away());
    }
}
