//! Dynamic load balancing: each flowlet of a flow goes to the member with the best quality (SW-4).
//!
//! A flowlet is a run of packets of one flow with gaps of no more than the timeout. After a longer
//! gap the flow may take another path and nothing is reordered, provided the timeout exceeds the
//! difference in delay between any two paths. On a path in software a packet is also late by what
//! its worker was late, so the timeout must exceed the jitter of the switch's own workers, too.
//!
//! ```text
//!                    birth                  gap > hold              gap > ageing
//!   Free, or full ──────────▶ Inside ────────────────────▶ Between ──────────────▶ Free
//!      of those whose          ▲ │ ▲   (hold = timeout,       │ new flowlet:
//!      hold is over            │ │ └──  of Mode::Flow ────────┘ the member may change
//!                              └─┘      the ageing time)
//!                            packet: same member,
//!                            another only if it died
//! ```
//!
//! The table has sets of four ways. With 1000 active flows in 4096 entries, one flow in five would
//! find its entry taken if the table had a single way. With four ways, all are taken for one flow
//! in several thousand. A set is two cache lines, which are prefetched together
//! ([`Table::prefetch`]).
//!
//! A flow whose set is full of other active flows goes by its bucket (static ECMP). It must stay
//! there for the rest of its flowlet even if a way becomes free. So flows that enter a set which
//! was full go by their bucket, too, until the hold time has passed.
//!
//! Hence a packet can overtake another of its flowlet in three cases only, if its sender gives no
//! advice: the member died, which is counted; the flow went by its bucket when a member joined, as
//! in any static ECMP; the group's mode was changed.
//!
//! A flow may come with the advice of its sender (SW-6). It is a connection then: all of its
//! sub-paths, which it uses one after the other. Inside a flowlet it moves when the sender says
//! that it has left a sub-path (flag S): what was sent on the sub-path that it takes now is older
//! than what it has just sent on another. It is never balanced per packet.
//!
//! Each worker has its own table: a flow arrives at one receive queue, so at one worker.

mod choice;

use super::host_sprayed::Advice;
use crate::id::{GroupId, NextHopId};
use crate::limits::MAX_GROUPS;
use crate::stats::{FlowletRow, FlowletStats};
use crate::tables::buckets::Buckets;
use crate::tables::dlb::{MAX_ENTRIES, Mode, Settings};
use choice::{Chooser, Keep, Wish};
use common::sync::words::prefetch_all;
use common::time::{Span, Time};
use std::sync::Arc;

/// Ways of a set.
const WAYS: usize = 4;

/// What identifies a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The group that its packets are sent to.
    pub group: GroupId,
    /// The [lineage](Buckets::lineage) of the group: the flow stays the same when a route is
    /// replaced.
    pub lineage: u32,
    /// Its hash, which names its bucket and its place in the table.
    pub hash: u32,
    /// Distinguishes it from other flows in that place: another hash, or the same one. Flows of a
    /// lineage with the same place and tag are treated as one flow.
    pub tag: u32,
    /// What its sender tells with this packet.
    pub advice: Option<Advice>,
}

impl Flow {
    /// The sender says that it has left a sub-path.
    #[inline]
    fn has_switched(&self) -> bool {
        self.advice.is_some_and(|advice| advice.switched)
    }
}

/// In the place of a group where there is no entry.
const NOBODY: GroupId = GroupId(u32::MAX);

const _: () = assert!(MAX_GROUPS <= u32::MAX as usize, "no group is nobody");

/// One flow. 32 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When its last packet came.
    last: Time,
    /// The tables in which its next hop was last seen to be a member of `group` that is alive.
    epoch: u32,
    tag: u32,
    lineage: u32,
    /// The group of its last packet.
    group: GroupId,
    next_hop: NextHopId,
    /// How long after `last` the flow relies on the entry, in ns.
    hold: u32,
}

impl Entry {
    const EMPTY: Self = Self {
        last: Time::ZERO,
        epoch: 0,
        tag: 0,
        lineage: 0,
        group: NOBODY,
        next_hop: NextHopId(0),
        hold: 0,
    };

    fn is_used(&self) -> bool {
        self.group != NOBODY
    }

    #[inline]
    fn is(&self, flow: &Flow) -> bool {
        (self.tag == flow.tag) & (self.lineage == flow.lineage) & self.is_used()
    }

    /// Whether its flow may still be inside a flowlet.
    fn holds(&self, now: Time) -> bool {
        self.is_used() && now.since(self.last) <= Span::from_nanos(self.hold.into())
    }
}

/// The entries among which a flow finds its own.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

const _: () = assert!(size_of::<Set>() == 128, "two cache lines");

/// What a packet finds in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The entry of its flow, which is inside a flowlet.
    Inside(usize),
    /// The entry of its flow, whose last flowlet is over.
    Between(usize),
    /// No entry of its flow that it remembers, and one that it may have.
    Free(usize),
    /// Only entries of other flows that hold them.
    Full,
}

/// The flows of one worker.
#[derive(Debug)]
pub struct Table {
    sets: Box<[Set]>,
    /// By set: until when new flows go by their bucket, because others found the set full.
    crowded: Box<[Time]>,
    chooser: Chooser,
    stats: Arc<FlowletStats>,
}

/// The look-up of one packet in the table: the arguments of [`Table::choose`].
struct Lookup<'a, Q> {
    flow: Flow,
    buckets: &'a Buckets,
    settings: &'a Settings,
    quality: &'a Q,
    epoch: u32,
    now: Time,
}

impl Table {
    /// A table of `entries` entries, rounded up to a power of two, between one set and
    /// [`MAX_ENTRIES`]. The seed makes the decisions of each worker independent of the others'.
    pub fn new(entries: usize, seed: u64) -> Self {
        Self::counting(entries, seed, Arc::default())
    }

    /// As [`Self::new`], counting in `stats`.
    pub fn counting(entries: usize, seed: u64, stats: Arc<FlowletStats>) -> Self {
        let entries = entries.clamp(WAYS, MAX_ENTRIES).next_power_of_two();
        let sets = entries / WAYS;
        Self {
            sets: vec![Set([Entry::EMPTY; WAYS]); sets].into_boxed_slice(),
            crowded: vec![Time::ZERO; sets].into_boxed_slice(),
            chooser: Chooser::new(seed),
            stats,
        }
    }

    /// What is counted; control reads it.
    pub fn stats(&self) -> &Arc<FlowletStats> {
        &self.stats
    }

    /// Prefetches the set in which the flow has its entry.
    #[inline]
    pub fn prefetch(&self, flow: &Flow) {
        prefetch_all(&self.sets[self.place(flow)]);
    }

    /// The next hop of a packet, or `None` when no member of its group is alive.
    ///
    /// `quality` gives the band of a next hop, lower is better; `epoch` has to change whenever the
    /// tables do. Flows that their host sprays have to go by [`Mode::Off`] (SW-5).
    #[inline]
    pub fn choose<Q: Fn(NextHopId) -> u8>(
        &mut self,
        flow: Flow,
        buckets: &Buckets,
        settings: &Settings,
        quality: &Q,
        epoch: u32,
        now: Time,
    ) -> Option<NextHopId> {
        match settings.mode {
            Mode::Off => buckets.pick(flow.hash),
            Mode::Packet if flow.advice.is_none() => {
                self.chooser.choose(buckets, quality, Wish::default(), now)
            }
            Mode::Packet | Mode::Flow | Mode::Flowlet => self.keep(&Lookup {
                flow,
                buckets,
                settings,
                quality,
                epoch,
                now,
            }),
        }
    }

    /// Up to `max` flows that have not aged, for operators. Reads at
    /// most the whole table, 128 KiB of it by default, so a worker may do it between two batches.
    pub fn sample(&self, max: usize, ageing: Span, now: Time) -> Vec<FlowletRow> {
        let entries = self.sets.iter().flat_map(|set| &set.0);
        let alive = entries.filter(|entry| entry.is_used() && now.since(entry.last) <= ageing);
        let row = |entry: &Entry| FlowletRow {
            group: entry.group,
            tag: entry.tag,
            next_hop: entry.next_hop,
            idle: now.since(entry.last),
            is_inside: entry.holds(now),
        };
        alive.take(max).map(row).collect()
    }

    /// The set of a flow. The lineage enters, so that the groups do not crowd each other's sets.
    #[inline]
    fn place(&self, flow: &Flow) -> usize {
        let mixed = choice::mix(u64::from(flow.lineage) << 32 | u64::from(flow.hash));
        // The number of sets is a power of two, and less than 2³².
        (mixed >> 32) as usize & (self.sets.len() - 1)
    }

    fn keep<Q: Fn(NextHopId) -> u8>(&mut self, lookup: &Lookup<'_, Q>) -> Option<NextHopId> {
        let place = self.place(&lookup.flow);
        match self.sets[place].find(lookup) {
            Found::Inside(way) | Found::Between(way) if lookup.flow.has_switched() => {
                self.switched(place, way, lookup)
            }
            Found::Inside(way) => self.inside(place, way, lookup),
            Found::Between(way) => self.renew(place, way, lookup),
            Found::Free(way) => self.birth(place, way, lookup),
            Found::Full => {
                self.stats.collisions.add(1);
                // The first moment at which a gap is too long to be one inside a flowlet.
                let over = lookup.now + lookup.settings.hold() + Span::from_nanos(1);
                self.crowded[place] = self.crowded[place].max(over);
                lookup.buckets.pick(lookup.flow.hash)
            }
        }
    }

    /// The same member as before, unless it died.
    #[inline]
    fn inside<Q: Fn(NextHopId) -> u8>(
        &mut self,
        place: usize,
        way: usize,
        lookup: &Lookup<'_, Q>,
    ) -> Option<NextHopId> {
        let entry = &mut self.sets[place].0[way];
        if entry.is_alive(lookup) {
            entry.renew(lookup, entry.next_hop);
            return Some(entry.next_hop);
        }
        let next_hop = self.chooser.choose(
            lookup.buckets,
            lookup.quality,
            Wish::of(lookup.flow.advice),
            lookup.now,
        )?;
        entry.renew(lookup, next_hop);
        self.stats.moved_inside.add(1);
        Some(next_hop)
    }

    /// The sender has left a sub-path, which led over this entry's member: the best other one, if
    /// there is one.
    #[cold]
    fn switched<Q: Fn(NextHopId) -> u8>(
        &mut self,
        place: usize,
        way: usize,
        lookup: &Lookup<'_, Q>,
    ) -> Option<NextHopId> {
        let entry = &mut self.sets[place].0[way];
        let wish = Wish {
            other_than: Some(entry.next_hop),
            ..Wish::of(lookup.flow.advice)
        };
        let next_hop = self
            .chooser
            .choose(lookup.buckets, lookup.quality, wish, lookup.now)?;
        self.stats.started.add(1);
        self.stats.hinted.add(1);
        let has_moved = next_hop != entry.next_hop;
        self.stats.moved_by_sender.add(u64::from(has_moved));
        entry.renew(lookup, next_hop);
        Some(next_hop)
    }

    /// A new flowlet of a flow that is known.
    fn renew<Q: Fn(NextHopId) -> u8>(
        &mut self,
        place: usize,
        way: usize,
        lookup: &Lookup<'_, Q>,
    ) -> Option<NextHopId> {
        let entry = &mut self.sets[place].0[way];
        let (buckets, quality, now) = (lookup.buckets, lookup.quality, lookup.now);
        let next_hop = if entry.is_alive(lookup) {
            let keep = Keep {
                next_hop: entry.next_hop,
                hysteresis: choice::hysteresis(lookup.settings.hysteresis, lookup.flow.advice),
                settle: lookup.settings.settle,
            };
            let wish = Wish::of(lookup.flow.advice);
            self.chooser
                .choose_again(&keep, buckets, quality, wish, now)?
        } else {
            let wish = Wish::of(lookup.flow.advice);
            self.chooser.choose(buckets, quality, wish, now)?
        };
        self.stats.started.add(1);
        self.stats
            .hinted
            .add(u64::from(lookup.flow.advice.is_some()));
        self.stats.moved.add(u64::from(next_hop != entry.next_hop));
        entry.renew(lookup, next_hop);
        Some(next_hop)
    }

    /// A flow that is not known, or was forgotten.
    fn birth<Q: Fn(NextHopId) -> u8>(
        &mut self,
        place: usize,
        way: usize,
        lookup: &Lookup<'_, Q>,
    ) -> Option<NextHopId> {
        let next_hop = if lookup.now < self.crowded[place] {
            lookup.buckets.pick(lookup.flow.hash)?
        } else {
            let wish = Wish::of(lookup.flow.advice);
            self.chooser
                .choose(lookup.buckets, lookup.quality, wish, lookup.now)?
        };
        let entry = &mut self.sets[place].0[way];
        if entry.is_used() {
            let has_aged = lookup.now.since(entry.last) > lookup.settings.ageing();
            let counter = if has_aged {
                &self.stats.aged
            } else {
                &self.stats.evicted
            };
            counter.add(1);
        }
        self.stats.births.add(1);
        self.stats.started.add(1);
        self.stats
            .hinted
            .add(u64::from(lookup.flow.advice.is_some()));
        entry.tag = lookup.flow.tag;
        entry.lineage = lookup.flow.lineage;
        entry.renew(lookup, next_hop);
        Some(next_hop)
    }
}

impl Entry {
    /// Whether its next hop is still a member that is alive.
    #[inline]
    fn is_alive<Q>(&self, lookup: &Lookup<'_, Q>) -> bool {
        let is_checked = self.epoch == lookup.epoch && self.group == lookup.flow.group;
        is_checked || lookup.buckets.contains(self.next_hop)
    }

    /// Notes a packet that goes to `next_hop`, which is alive.
    #[inline]
    fn renew<Q>(&mut self, lookup: &Lookup<'_, Q>, next_hop: NextHopId) {
        self.last = lookup.now;
        self.epoch = lookup.epoch;
        self.group = lookup.flow.group;
        self.next_hop = next_hop;
        self.hold = u32::try_from(lookup.settings.hold().nanos()).unwrap_or(u32::MAX);
    }
}

impl Set {
    #[inline]
    fn find<Q>(&self, lookup: &Lookup<'_, Q>) -> Found {
        // All are compared, without a branch for each: which one it is cannot be predicted.
        let ways = self.0.iter().enumerate();
        let own = ways.fold(0_u32, |own, (way, entry)| {
            own | u32::from(entry.is(&lookup.flow)) << way
        });
        if own == 0 {
            return self.vacancy(lookup.now);
        }
        let way = own.trailing_zeros() as usize;
        let gap = lookup.now.since(self.0[way].last);
        if gap <= lookup.settings.hold() {
            Found::Inside(way)
        } else if gap <= lookup.settings.ageing() {
            Found::Between(way)
        } else {
            Found::Free(way)
        }
    }

    /// An entry that was never used; else, of those that may be taken, the one that has been silent
    /// longest.
    fn vacancy(&self, now: Time) -> Found {
        let ways = self.0.iter().enumerate();
        ways.filter(|(_, entry)| !entry.holds(now))
            .min_by_key(|(_, entry)| (entry.is_used(), entry.last))
            .map_or(Found::Full, |(way, _)| Found::Free(way))
    }
}

#[cfg(test)]
mod tests;
