//! Resilient hashing: a fixed number of buckets, each assigned to a member of the group.
//!
//! A flow's hash names a bucket, the bucket names the next hop. When a member dies only its buckets
//! are given to others; when it returns the others give up what they have beyond their share, first
//! what was its own, so flows that had moved return and no other flow notices. Each member holds
//! its share of the buckets by weight, to within one bucket.
//!
//! A set of buckets is immutable, as everything in the tables: a change of members makes a new set
//! from the old one.

use crate::id::NextHopId;
use crate::limits::MAX_MEMBERS;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Buckets of a group. A power of two; with 64 members of equal weight each holds 16 of them, so
/// shares differ by at most one in 16, and the table of a group is 4 KiB.
pub const BUCKETS: usize = 1024;

const _: () = assert!(BUCKETS.is_power_of_two() && BUCKETS >= 2 * MAX_MEMBERS);

/// One next hop of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where its flows go.
    pub next_hop: NextHopId,
    /// Identifies the member across deaths and returns, also when its next hop got a new number: a
    /// hash of interface and address, or anything else that stays the same.
    pub key: u64,
    /// Its share of the flows, relative to the other members'. Zero counts as one.
    pub weight: u16,
}

/// A next hop of a group, as dynamic load balancing sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Where its flows go.
    pub next_hop: NextHopId,
    /// Its share of the flows, relative to the other members'. At least one.
    pub weight: u32,
}

/// The buckets of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Next hop of each bucket; empty while no member is alive.
    table: Arc<[NextHopId]>,
    /// Member that each bucket now belongs to.
    holder: Arc<[u64]>,
    /// Member that each bucket belonged to before that one died.
    home: Arc<[u64]>,
    /// The members that are alive, each next hop once, by number.
    live: Arc<[Live]>,
    lineage: u32,
}

impl Buckets {
    /// Buckets for members that are alive; those beyond [`MAX_MEMBERS`] are left out.
    pub fn new(members: &[Member]) -> Self {
        let none: Arc<[u64]> = Arc::default();
        Self {
            table: Arc::default(),
            holder: none.clone(),
            home: none,
            live: Arc::default(),
            lineage: 0,
        }
        .changed(members)
    }

    /// The same as the first of a lineage.
    #[must_use]
    pub fn of_lineage(self, lineage: u32) -> Self {
        Self { lineage, ..self }
    }

    /// A number that buckets share with those that they were [`changed`](Self::changed) from, also
    /// in another group: where a route is replaced, the flows of the old group are those of the new
    /// one.
    #[inline]
    pub fn lineage(&self) -> u32 {
        self.lineage
    }

    /// Whether flows that went by `before` and go by these keep their next hops, unless those left
    /// or others have to have their share: they are of one lineage, and no member has lost buckets
    /// and gained others.
    pub fn continues(&self, before: &Self) -> bool {
        if self.lineage != before.lineage {
            return false;
        }
        let (mut losers, mut gainers) = (Vec::new(), Vec::new());
        let pairs = before.holder.iter().zip(&*self.holder);
        for (old, new) in pairs.filter(|(old, new)| old != new) {
            for (keys, key) in [(&mut losers, old), (&mut gainers, new)] {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        !losers.iter().any(|key| gainers.contains(key))
    }

    /// The next hop of a flow, or `None` when no member is alive.
    #[inline]
    pub fn pick(&self, hash: u32) -> Option<NextHopId> {
        self.table.get(hash as usize % BUCKETS).copied()
    }

    /// Next hop of each bucket.
    pub fn table(&self) -> &[NextHopId] {
        &self.table
    }

    /// The members that are alive, each next hop once, ordered by number, so that the order in
    /// which they were given does not matter. Empty when no member is alive.
    pub fn members(&self) -> &[Live] {
        &self.live
    }

    /// The member that is this next hop, if it is alive.
    #[inline]
    pub fn member(&self, next_hop: NextHopId) -> Option<Live> {
        let place = self
            .live
            .binary_search_by_key(&next_hop, |live| live.next_hop);
        place.ok().map(|place| self.live[place])
    }

    /// Whether this next hop is a member that is alive.
    #[inline]
    pub fn contains(&self, next_hop: NextHopId) -> bool {
        self.member(next_hop).is_some()
    }

    /// The buckets after the members that are alive became `members`: as few buckets move as
    /// possible, and those of a member that returns come back.
    pub fn changed(&self, members: &[Member]) -> Self {
        let members = &members[..members.len().min(MAX_MEMBERS)];
        if members.is_empty() {
            // Nothing is alive, but who held what is remembered for their return.
            return Self {
                table: Arc::default(),
                holder: self.holder.clone(),
                home: self.home.clone(),
                live: Arc::default(),
                lineage: self.lineage,
            };
        }
        let mut assignment = Assignment::new(members);
        // A member keeps what it holds while it has room, so that nothing moves in vain. What it
        // has to give up goes home first: this is how a member that returns gets its own.
        let pairs = self.holder.iter().zip(&*self.home);
        let hold: Vec<Hold> = pairs
            .map(|(holder, home)| match holder == home {
                true => Hold::AtHome,
                false if !assignment.place.contains_key(home) => Hold::Bereft,
                false => Hold::Abroad,
            })
            .collect();
        for now in [Hold::AtHome, Hold::Bereft, Hold::Abroad] {
            for (bucket, key) in self.holder.iter().enumerate() {
                if hold[bucket] == now {
                    assignment.keep(bucket, *key);
                }
            }
        }
        for (bucket, key) in self.home.iter().enumerate() {
            assignment.keep(bucket, *key);
        }
        assignment.fill();
        let holder: Arc<[u64]> = assignment
            .holder
            .iter()
            .map(|&place| members[place].key)
            .collect();
        let home = (0..BUCKETS)
            .map(|bucket| self.next_home(bucket, holder[bucket], &assignment.place))
            .collect();
        let table = assignment
            .holder
            .iter()
            .map(|&place| members[place].next_hop)
            .collect();
        Self {
            table,
            holder,
            home,
            live: live(members),
            lineage: self.lineage,
        }
    }

    /// A bucket that moved because its member died keeps its home, so that it returns with the
    /// member. A bucket that moves for another reason gets a new home.
    fn next_home(&self, bucket: usize, next: u64, alive: &HashMap<u64, usize>) -> u64 {
        let (Some(&home), Some(&holder)) = (self.home.get(bucket), self.holder.get(bucket)) else {
            return next;
        };
        let bereft = !alive.contains_key(&home);
        let moved_by_death = holder == next || !alive.contains_key(&holder);
        if bereft && moved_by_death { home } else { next }
    }
}

/// The next hops of `members`, each once with all its weight, by number.
fn live(members: &[Member]) -> Arc<[Live]> {
    let mut weights: BTreeMap<NextHopId, u32> = BTreeMap::new();
    for member in members {
        *weights.entry(member.next_hop).or_default() += u32::from(member.weight.max(1));
    }
    let live = |(next_hop, weight)| Live { next_hop, weight };
    weights.into_iter().map(live).collect()
}

/// How a member holds a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// It is the bucket's home.
    AtHome,
    /// The bucket's home is dead.
    Bereft,
    /// The bucket's home is alive.
    Abroad,
}

/// The bucket is free.
const FREE: usize = usize::MAX;

/// A new assignment of buckets on its way.
struct Assignment {
    place: HashMap<u64, usize>,
    /// Buckets that each member may still get.
    room: Vec<usize>,
    /// For each bucket its member's place, or [`FREE`].
    holder: Vec<usize>,
}

impl Assignment {
    fn new(members: &[Member]) -> Self {
        Self {
            place: members
                .iter()
                .enumerate()
                .map(|(place, member)| (member.key, place))
                .collect(),
            room: shares(members),
            holder: vec![FREE; BUCKETS],
        }
    }

    /// Assigns `bucket` to the member `key` if that is alive and has room and the bucket is free.
    fn keep(&mut self, bucket: usize, key: u64) {
        if self.holder[bucket] == FREE
            && let Some(&place) = self.place.get(&key)
            && self.room[place] > 0
        {
            self.room[place] -= 1;
            self.holder[bucket] = place;
        }
    }

    /// Gives the buckets that are left to the members that have room, in turn.
    fn fill(&mut self) {
        let mut place = 0;
        for holder in self.holder.iter_mut().filter(|holder| **holder == FREE) {
            // The room that is left is the number of buckets that are left, so this ends.
            while self.room[place % self.room.len()] == 0 {
                place += 1;
            }
            *holder = place % self.room.len();
            self.room[*holder] -= 1;
            place += 1;
        }
    }
}

/// Buckets of each member: in proportion to the weights, [`BUCKETS`] in all (largest remainder),
/// and at least one each.
fn shares(members: &[Member]) -> Vec<usize> {
    let weight = |member: &Member| usize::from(member.weight.max(1));
    let total: usize = members.iter().map(weight).sum();
    // One bucket for each member is set aside first, so that no weight is too small for any.
    let spread = BUCKETS - members.len();
    let mut shares: Vec<usize> = members
        .iter()
        .map(|member| 1 + spread * weight(member) / total)
        .collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(spread * weight(&members[place]) % total));
    let left = BUCKETS - shares.iter().sum::<usize>();
    for place in order.into_iter().cycle().take(left) {
        shares[place] += 1;
    }
    shares
}

#[cfg(test)]
mod tests;
