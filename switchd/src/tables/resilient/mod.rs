//! Groups of the kernel's type `resilient` (`ip nexthop add … type resilient`): as many buckets as
//! it has, and its timers (Linux, net/ipv4/nexthop.c; Documentation/networking/nexthop-group-
//! resilient.rst).
//!
//! A member that leaves loses its buckets at once. One that comes gets buckets of those that have
//! more than their share, but only buckets that are idle: no packet for as long as `idle`. After
//! `unbalanced` it gets busy ones, too.
//!
//! ```text
//!   worker   pick: note the bucket in Activity ──┐
//!                                                ▼ idle, or too long out of balance?
//!   control  members, clock ─▶ Allotment ─▶ Resilient (snapshot) ─▶ worker
//! ```
//!
//! The kernel cannot do this for switchd: it sees none of its packets, so to it all buckets are
//! idle.

use crate::id::NextHopId;
use crate::limits::MAX_MEMBERS;
use crate::tables::buckets::{Buckets, Member};
use common::netlink::Resilience;
use common::time::{Span, Time};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A worker notes that a bucket is busy again after this time only, so that the cache line stays
/// shared among workers. It is less than the kernel's unit of these timers, 10 ms.
const NOTED_EACH: Span = Span::from_millis(8);

/// As often as this the buckets are looked at, at most: as in the kernel.
const UPKEEP: Span = Span::from_millis(500);

/// When packets last came to the buckets of a group. Workers write, control reads.
#[derive(Debug)]
pub struct Activity(Box<[AtomicU64]>);

/// No packet came to the bucket since it was given to its member.
const UNUSED: u64 = 0;

impl Activity {
    fn new(buckets: usize) -> Self {
        Self((0..buckets).map(|_| AtomicU64::new(UNUSED)).collect())
    }

    #[inline]
    fn note(&self, bucket: usize, now: Time) {
        let (at, now) = (&self.0[bucket], now.nanos());
        let known = at.load(Ordering::Relaxed);
        if known == UNUSED || now.saturating_sub(known) >= NOTED_EACH.nanos() {
            at.store(now.max(UNUSED + 1), Ordering::Relaxed);
        }
    }

    /// When the last packet came, at the latest; `None`: there was none.
    fn last(&self, bucket: usize) -> Option<Time> {
        let known = self.0[bucket].load(Ordering::Relaxed);
        (known != UNUSED).then(|| Time::from_nanos(known) + NOTED_EACH)
    }

    fn forget(&self, bucket: usize) {
        self.0[bucket].store(UNUSED, Ordering::Relaxed);
    }
}

/// The buckets of one resilient group, as workers see them.
#[derive(Clone, Debug)]
pub struct Resilient {
    /// Next hop of each bucket.
    table: Arc<[NextHopId]>,
    /// Shared by all snapshots of the group.
    used: Arc<Activity>,
    spread: Buckets,
}

impl PartialEq for Resilient {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
            && Arc::ptr_eq(&self.used, &other.used)
            && self.spread == other.spread
    }
}

impl Eq for Resilient {}

impl Resilient {
    /// The next hop of a flow whose packet comes `now`, or `None` when no member is alive.
    #[inline]
    pub fn pick(&self, hash: u32, now: Time) -> Option<NextHopId> {
        let bucket = (hash as usize).checked_rem(self.table.len())?;
        self.used.note(bucket, now);
        Some(self.table[bucket])
    }

    /// Next hop of each bucket.
    pub fn table(&self) -> &[NextHopId] {
        &self.table
    }

    /// The members as those of any other group, for those who choose by more than the hash.
    pub fn spread(&self) -> &Buckets {
        &self.spread
    }
}

/// The bucket belongs to no member.
const VACANT: usize = usize::MAX;

/// Control's side of a resilient group: who has which bucket, and when buckets move.
#[derive(Debug)]
pub struct Allotment {
    terms: Resilience,
    members: Vec<Member>,
    /// By bucket: the place of its member, or [`VACANT`].
    holder: Vec<usize>,
    used: Arc<Activity>,
    /// Since when some member has fewer buckets than its share.
    unbalanced_since: Option<Time>,
    /// When [`Self::upkeep`] has something to do.
    due: Option<Time>,
}

impl Allotment {
    /// A group without members.
    pub fn new(terms: Resilience) -> Self {
        let buckets = usize::from(terms.buckets);
        Self {
            terms,
            members: Vec::new(),
            holder: vec![VACANT; buckets],
            used: Arc::new(Activity::new(buckets)),
            unbalanced_since: None,
            due: None,
        }
    }

    /// Buckets and timers.
    pub fn terms(&self) -> &Resilience {
        &self.terms
    }

    /// Other timers; the number of buckets stays, as in the kernel.
    pub fn set_timers(&mut self, terms: &Resilience) {
        let next = Resilience {
            buckets: self.terms.buckets,
            ..*terms
        };
        if self.terms != next {
            self.terms = next;
            self.plan();
        }
    }

    /// The members that are alive are now these, in the kernel's order; those beyond
    /// [`MAX_MEMBERS`] are left out. Buckets of those that left move at once, as do those that no
    /// packet has come to. Whether the rest may move, [`Self::upkeep`] finds out.
    pub fn set_members(&mut self, members: &[Member]) {
        let members = &members[..members.len().min(MAX_MEMBERS)];
        if self.members == members {
            return;
        }
        let place_of: HashMap<u64, usize> = (members.iter().zip(0..))
            .map(|(member, place)| (member.key, place))
            .collect();
        for holder in &mut self.holder {
            let key = self.members.get(*holder).map(|member| member.key);
            let place = key.and_then(|key| place_of.get(&key));
            *holder = place.copied().unwrap_or(VACANT);
        }
        self.members = members.to_vec();
        self.fill(|used, bucket| used.last(bucket).is_none());
        self.plan();
    }

    /// Moves the buckets that may move now; whether any did.
    pub fn upkeep(&mut self, now: Time) -> bool {
        let Some(due) = self.due else { return false };
        if now < due {
            return false;
        }
        let since = *self.unbalanced_since.get_or_insert(now);
        let Resilience {
            idle, unbalanced, ..
        } = self.terms;
        let is_forced = unbalanced > Span::ZERO && now >= since + unbalanced;
        let has_moved = self.fill(|used, bucket| is_forced || is_idle(used, bucket, idle, now));
        self.plan();
        if self.due.is_some() {
            // The kernel waits for the first bucket that may become idle, and for this at least.
            self.due = Some(now + UPKEEP);
        }
        has_moved
    }

    /// When [`Self::upkeep`] is to be called; `None`: all members have their share.
    pub fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Buckets that wait to be idle, so that a member with fewer than its share may have them.
    pub fn waiting(&self) -> usize {
        let shares = shares(&self.members, self.holder.len());
        let held = self.held();
        let lacking = shares.iter().zip(&held);
        lacking
            .map(|(share, held)| share.saturating_sub(*held))
            .sum()
    }

    /// What workers are to see of it; `spread` has the same members.
    pub fn snapshot(&self, spread: Buckets) -> Resilient {
        let hops = self.holder.iter().map_while(|place| {
            let member = self.members.get(*place)?;
            Some(member.next_hop)
        });
        Resilient {
            table: hops.collect(),
            used: self.used.clone(),
            spread,
        }
    }

    fn plan(&mut self) {
        if self.waiting() > 0 {
            self.due = Some(Time::ZERO);
        } else {
            (self.due, self.unbalanced_since) = (None, None);
        }
    }

    /// Buckets of each member.
    fn held(&self) -> Vec<usize> {
        let mut held = vec![0; self.members.len()];
        for place in &self.holder {
            if let Some(held) = held.get_mut(*place) {
                *held += 1;
            }
        }
        held
    }

    /// Gives buckets to members that have fewer than their share, the last of them first: those of
    /// nobody, and of the members that have more than theirs those that `may_move`. Whether any
    /// moved.
    fn fill(&mut self, may_move: impl Fn(&Activity, usize) -> bool) -> bool {
        let shares = shares(&self.members, self.holder.len());
        let mut held = self.held();
        let mut lacking: Vec<usize> = (0..held.len())
            .filter(|&place| held[place] < shares[place])
            .collect();
        let mut has_moved = false;
        for (bucket, holder) in self.holder.iter_mut().enumerate() {
            let Some(&next) = lacking.last() else { break };
            if let Some(share) = shares.get(*holder) {
                if held[*holder] <= *share || !may_move(&self.used, bucket) {
                    continue;
                }
                held[*holder] -= 1;
            }
            *holder = next;
            held[next] += 1;
            self.used.forget(bucket);
            has_moved = true;
            if held[next] == shares[next] {
                lacking.pop();
            }
        }
        has_moved
    }
}

/// Whether no packet came to `bucket` for as long as `idle`.
fn is_idle(used: &Activity, bucket: usize, idle: Span, now: Time) -> bool {
    let is_over = |last: Time| idle == Span::ZERO || now >= last + idle;
    used.last(bucket).is_none_or(is_over)
}

/// Buckets of each member, all together `buckets`: its share of them by weight, rounded as the
/// kernel does (`nh_res_group_rebalance`).
fn shares(members: &[Member], buckets: usize) -> Vec<usize> {
    let weight = |member: &Member| usize::from(member.weight.max(1));
    let total: usize = members.iter().map(weight).sum();
    let (mut weights, mut before) = (0, 0);
    let share = |member: &Member| {
        weights += weight(member);
        let end = (buckets * weights + total / 2) / total;
        end - std::mem::replace(&mut before, end)
    };
    members.iter().map(share).collect()
}

#[cfg(test)]
mod tests;
