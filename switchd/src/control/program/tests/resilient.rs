//! Resilient groups of the kernel, from its messages to the tables.

use super::*;
use crate::tables::resilient::Resilient;
use common::netlink::Resilience;
use common::time::Span;

const PREFIX: &str = "10.9.0.0/16";

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn object(id: u32, kind: NextHopKind) -> Body {
    Body::NextHop(Action::Set, NextHop { id, kind })
}

fn group(members: &[u32], idle: u64) -> Body {
    let terms = Resilience {
        buckets: 128,
        idle: Span::from_secs(idle),
        unbalanced: Span::from_secs(300),
    };
    let members = members.iter().map(|id| (*id, 1)).collect();
    object(10, NextHopKind::Resilient(members, terms))
}

/// Two objects, both resolved, in a group with a route.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.feed(vec![
        neighbour(1, "10.1.0.1", NeighbourState::Reachable),
        neighbour(2, "10.2.0.1", NeighbourState::Reachable),
        object(1, NextHopKind::Single(hop(1, "10.1.0.1", 1))),
        object(2, NextHopKind::Single(hop(2, "10.2.0.1", 1))),
        group(&[1, 2], 60),
        Body::Route(
            Action::Set,
            key(PREFIX, 0),
            route_of(RouteKind::Unicast, &[], Some(10)),
        ),
    ]);
    rig
}

fn resilient(rig: &Rig) -> &Resilient {
    match rig.group(PREFIX) {
        Some(Group::Resilient(resilient)) => resilient,
        other => panic!("{other:?}"),
    }
}

fn share(rig: &Rig, gateway: &str) -> usize {
    let is_it = |id: &&NextHopId| rig.tables.next_hops[id.index()].address.to_string() == gateway;
    resilient(rig).table().iter().filter(is_it).count()
}

/// Time passes: what it moves is published.
fn pass(rig: &mut Rig, now: Time) {
    rig.program.upkeep(now);
    rig.feed(Vec::new());
}

/// SW-3: a resilient group has the kernel's buckets. A link that goes takes its buckets along at
/// once; when it returns it gets those that were idle for the kernel's `idle_timer`, whether the
/// object stayed in the group or was taken out of it.
#[test]
fn resilient_groups_follow_the_kernels_timers() {
    for stays_in_group in [true, false] {
        let mut rig = rig();
        assert_eq!((share(&rig, "10.1.0.1"), share(&rig, "10.2.0.1")), (64, 64));
        let without = if stays_in_group {
            link(2, false)
        } else {
            group(&[1], 60)
        };
        let with = if stays_in_group {
            link(2, true)
        } else {
            group(&[1, 2], 60)
        };
        rig.feed(vec![without]);
        assert_eq!(
            share(&rig, "10.1.0.1"),
            128,
            "one member has buckets as well"
        );
        for bucket in 0..128 {
            resilient(&rig).pick(bucket, at(100));
        }
        rig.feed(vec![with]);
        assert_eq!(share(&rig, "10.2.0.1"), 0);
        assert_eq!(rig.program.upkeep_deadline(), Some(Time::ZERO));
        pass(&mut rig, at(101));
        assert_eq!(share(&rig, "10.2.0.1"), 0);
        for bucket in 0..118 {
            resilient(&rig).pick(bucket, at(150));
        }
        pass(&mut rig, at(161));
        assert_eq!(share(&rig, "10.2.0.1"), 10, "those that were idle");
        pass(&mut rig, at(402));
        assert_eq!(share(&rig, "10.2.0.1"), 64, "and all others after 300 s");
        assert_eq!(rig.program.upkeep_deadline(), None);
    }
}

/// SW-3: other timers hold from now on, without a bucket moving for them; a group of another kind
/// in its place has other buckets.
#[test]
fn timers_and_kinds_of_groups_change() {
    let mut rig = rig();
    rig.feed(vec![group(&[1], 60)]);
    for bucket in 0..128 {
        resilient(&rig).pick(bucket, at(100));
    }
    rig.feed(vec![group(&[1, 2], 60)]);
    pass(&mut rig, at(110));
    assert_eq!(share(&rig, "10.2.0.1"), 0);
    rig.feed(vec![group(&[1, 2], 5)]);
    assert_eq!(share(&rig, "10.2.0.1"), 0);
    pass(&mut rig, at(111));
    assert_eq!(share(&rig, "10.2.0.1"), 64);
    rig.feed(vec![object(10, NextHopKind::Group(vec![(1, 1), (2, 1)]))]);
    assert_eq!(
        rig.ways(PREFIX),
        [("10.1.0.1".to_owned(), 512), ("10.2.0.1".to_owned(), 512)]
    );
}
