//! From a route to one of its next hops.

use crate::forward::ecmp;
use crate::forward::fib::Fib;
use crate::id::{GroupId, NextHopId};
use crate::packet::{Parsed, Version};
use crate::tables::{Group, Tables};
use common::time::Time;

/// What the route of a packet leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This neighbour.
    Hop(NextHopId),
    /// A group without next hops, which defines the action itself.
    Special(GroupId),
    /// A group without any next hop that is alive, or one that is not in the tables.
    Dead,
    /// There is no route.
    NoRoute,
}

/// Chooses among the next hops of `group`, to which the longest matching route leads. A separate
/// step because it waits for memory: done for all packets of a batch in a row, the waits overlap.
#[inline]
pub fn choose(
    tables: &Tables,
    group: Option<GroupId>,
    (frame, parsed): (&[u8], &Parsed),
    now: Time,
) -> Choice {
    let hash = || ecmp::flow_hash(frame, parsed, &tables.hashing);
    choose_by(tables, group, hash, now)
}

/// The same for a packet whose flow's hash is `flow`, if it is needed.
#[inline]
pub fn choose_by(
    tables: &Tables,
    group: Option<GroupId>,
    flow: impl FnOnce() -> u32,
    now: Time,
) -> Choice {
    let Some(id) = group else {
        return Choice::NoRoute;
    };
    match tables.group(id) {
        Some(Group::Forward(next_hop)) => Choice::Hop(*next_hop),
        Some(Group::Balance(buckets)) => buckets.pick(flow()).map_or(Choice::Dead, Choice::Hop),
        Some(Group::Resilient(resilient)) => {
            let next_hop = resilient.pick(flow(), now);
            next_hop.map_or(Choice::Dead, Choice::Hop)
        }
        Some(_) => Choice::Special(id),
        None => Choice::Dead,
    }
}

/// The group that the route of one packet leads to.
pub fn look_up(fib: &Fib, parsed: &Parsed) -> Option<GroupId> {
    match parsed.version {
        Version::V4 => fib.lookup_v4(parsed.dst.octets_v4()),
        Version::V6 => fib.lookup_v6(parsed.dst.octets_v6()),
    }
}
