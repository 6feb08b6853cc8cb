//! Which member a new flowlet goes to.
//!
//! It goes to a member in the best band. Bands are coarse and some microseconds old, so several
//! members are often in it. Of these the one is chosen to which this worker recently sent the
//! fewest flowlets in proportion to its weight. If that is equal, too, the choice is random, in
//! proportion to the weights. So two flows that begin at the same moment never go to the same one
//! of two equal ports.
//!
//! The advice of a sender (SW-6) enters in three ways. A flowlet of long blocks counts four times
//! among those that were sent to a member recently, one of short blocks a quarter, so that flows
//! that will fill a member do not meet on one. A flow that may wait stays on a member that is
//! somewhat worse. A flow into a host that many send to stays on its member: the congestion is
//! behind all of them.
//!
//! Of a group with more than [`ALL`] members only [`DRAWN`] are looked at, drawn in proportion to
//! the weights. The best of d that are drawn is nearly as good as the best of all: with d as small
//! as 2 the longest queue grows with log log n instead of log n (power of two choices), and a
//! larger d makes it less likely that all of them are bad.

use crate::forward::dlb::host_sprayed::Advice;
use crate::id::NextHopId;
use crate::tables::buckets::{BUCKETS, Buckets, Live};
use common::time::{Span, Time};
use common::wire::roce::{BlockClass, TrafficPattern, TrafficPriority};

/// In groups with at most this many members all are looked at: as many as SONiC allows in a group
/// (16 primary members).
const ALL: usize = 16;

/// In larger groups this many members are looked at: as many bucket numbers as a random word holds.
const DRAWN: u32 = u64::BITS / BUCKETS.ilog2();

/// Next hops whose recent flowlets are counted. Next hops whose numbers differ by a multiple of
/// this share a counter, which only makes the spread of their flowlets less even. The numbers of a
/// group's members are mostly close to each other, and there are at most half as many.
const REMEMBERED: usize = 2 * crate::limits::MAX_MEMBERS;

/// The counters are halved each 2¹⁸ ns, which is 262 µs, about a flowlet timeout.
const HALF_LIFE_SHIFT: u32 = 18;

/// What one flowlet counts, so that halving does not forget a single one for eight half-lives.
const FLOWLET: u32 = 256;

/// What a worker remembers of a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    /// Flowlets that were sent there, times [`FLOWLET`], older ones counting less.
    count: u32,
    /// The half-life in which `count` was right.
    period: u64,
    /// When a flow last left it; cleared when a flow that would have left stays.
    left_at: Option<Time>,
}

impl Recent {
    fn count_at(&self, period: u64) -> u32 {
        let halvings = u32::try_from(period.saturating_sub(self.period)).unwrap_or(u32::MAX);
        self.count.checked_shr(halvings).unwrap_or(0)
    }
}

/// The member that a flow has, and what keeps it there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    /// The member; alive.
    pub(super) next_hop: NextHopId,
    /// By how many bands it may be worse than the best.
    pub(super) hysteresis: u8,
    /// How long it takes until its band shows that a flow has left.
    pub(super) settle: Span,
}

/// By how many bands more the member of a flow that may wait may be worse.
const PATIENCE: u8 = 2;

/// By how many bands the member of a flow may be worse than the best before it leaves.
pub(super) fn hysteresis(configured: u8, advice: Option<Advice>) -> u8 {
    let Some(Advice { hint, .. }) = advice else {
        return configured;
    };
    if hint.pattern == TrafficPattern::ManyToOne {
        return u8::MAX;
    }
    match hint.priority {
        TrafficPriority::Low => configured.saturating_add(PATIENCE),
        TrafficPriority::Normal => configured,
        TrafficPriority::High => 0,
    }
}

/// What a flowlet is, and where it is not to go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// What it counts among those that a member got recently.
    pub(super) count: u32,
    /// Not to this member, if there is another one.
    pub(super) other_than: Option<NextHopId>,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            count: FLOWLET,
            other_than: None,
        }
    }
}

impl Wish {
    /// For a flowlet of which its sender tells this.
    pub(super) fn of(advice: Option<Advice>) -> Self {
        let blocks = advice.map(|advice| advice.hint.blocks);
        let count = match blocks {
            Some(BlockClass::Short) => FLOWLET / 4,
            Some(BlockClass::Long) => FLOWLET * 4,
            Some(BlockClass::Unknown | BlockClass::Medium) | None => FLOWLET,
        };
        Self {
            count,
            other_than: None,
        }
    }
}

/// Chooses, and remembers what it chose.
#[derive(Debug)]
pub(super) struct Chooser {
    recent: Box<[Recent]>,
    random: u64,
}

impl Chooser {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            recent: vec![Recent::default(); REMEMBERED].into_boxed_slice(),
            // Seeds may differ by what the generator adds each time: unmixed, one would follow the
            // other.
            random: mix(seed),
        }
    }

    /// A member for a flowlet of a flow that has none.
    pub(super) fn choose<Q: Fn(NextHopId) -> u8>(
        &mut self,
        buckets: &Buckets,
        quality: &Q,
        wish: Wish,
        now: Time,
    ) -> Option<NextHopId> {
        let best = self.best(buckets, quality, wish.other_than, now);
        // If there is no other one, it stays.
        let present = || wish.other_than.filter(|hop| buckets.contains(*hop));
        let best = best.map(|best| best.next_hop).or_else(present)?;
        self.note(best, wish.count, now);
        Some(best)
    }

    /// A member for the next flowlet of a flow: another one only if that is better.
    pub(super) fn choose_again<Q: Fn(NextHopId) -> u8>(
        &mut self,
        keep: &Keep,
        buckets: &Buckets,
        quality: &Q,
        wish: Wish,
        now: Time,
    ) -> Option<NextHopId> {
        let best = self.best(buckets, quality, None, now)?;
        let good_enough = best.band.saturating_add(keep.hysteresis);
        let stays = quality(keep.next_hop) <= good_enough || !self.may_leave(keep, now);
        let next_hop = if stays { keep.next_hop } else { best.next_hop };
        self.note(next_hop, wish.count, now);
        Some(next_hop)
    }

    /// Whether a flow with a better member leaves its own: not if another flow has just left it.
    fn may_leave(&mut self, keep: &Keep, now: Time) -> bool {
        let recent = &mut self.recent[slot(keep.next_hop)];
        let just_left = recent
            .left_at
            .is_some_and(|left_at| now.since(left_at) < keep.settle);
        recent.left_at = (!just_left).then_some(now);
        !just_left
    }

    /// Remembers a flowlet that goes to `next_hop`, and counts so much.
    fn note(&mut self, next_hop: NextHopId, count: u32, now: Time) {
        let period = now.nanos() >> HALF_LIFE_SHIFT;
        let recent = &mut self.recent[slot(next_hop)];
        recent.count = recent.count_at(period).saturating_add(count);
        recent.period = period;
    }

    fn best<Q: Fn(NextHopId) -> u8>(
        &mut self,
        buckets: &Buckets,
        quality: &Q,
        other_than: Option<NextHopId>,
        now: Time,
    ) -> Option<Candidate> {
        let mut selection = Selection {
            best: None,
            weight: 0,
            random: self.next_random(),
        };
        let period = now.nanos() >> HALF_LIFE_SHIFT;
        let candidate = |live: Live| Candidate {
            next_hop: live.next_hop,
            weight: live.weight,
            band: quality(live.next_hop),
            recent: self.recent[slot(live.next_hop)].count_at(period),
        };
        if buckets.members().len() <= ALL {
            let others = |live: &&Live| Some(live.next_hop) != other_than;
            for live in buckets.members().iter().filter(others) {
                selection.offer(candidate(*live), live.weight);
            }
        } else {
            let draw = mix(selection.random);
            for nth in 0..DRAWN {
                #[expect(clippy::cast_possible_truncation, reason = "any 32 bits will do")]
                let hash = (draw >> (nth * BUCKETS.ilog2())) as u32;
                let drawn = buckets.pick(hash).filter(|hop| Some(*hop) != other_than);
                let drawn = drawn.and_then(|hop| buckets.member(hop));
                if let Some(live) = drawn {
                    // Equal weights: the draw has already taken the weight into account.
                    selection.offer(candidate(live), 1);
                }
            }
        }
        selection.best
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

#[inline]
fn slot(next_hop: NextHopId) -> usize {
    next_hop.index() % REMEMBERED
}

/// Spreads the bits of a word: with a counter in front of it this is the generator `SplitMix64`.
#[inline]
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A member that may be chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    next_hop: NextHopId,
    weight: u32,
    band: u8,
    recent: u32,
}

impl Candidate {
    /// By the band, then by the flowlets that it was sent recently in proportion to its weight.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let load = |one: &Self, weight: u32| u64::from(one.recent) * u64::from(weight);
        let by_recent = || load(self, other.weight).cmp(&load(other, self.weight));
        self.band.cmp(&other.band).then_with(by_recent)
    }
}

/// Finds the best candidate in one pass, and chooses among equal ones at random by their weights.
struct Selection {
    best: Option<Candidate>,
    /// Sum of the weights of all that are as good as the best.
    weight: u64,
    random: u64,
}

impl Selection {
    fn offer(&mut self, candidate: Candidate, weight: u32) {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let weight = u64::from(weight);
        match self.best.map_or(Less, |best| candidate.compare(&best)) {
            Greater => {}
            Less => {
                self.best = Some(candidate);
                self.weight = weight;
            }
            Equal => {
                self.weight += weight;
                self.random = mix(self.random.wrapping_add(1));
                if self.random % self.weight < weight {
                    self.best = Some(candidate);
                }
            }
        }
    }
}
