//! Tables that are full, until they are not.

use super::*;

/// SW-1: a next hop that found no room is counted once, and used as soon as another one has left,
/// though nothing of its own routes changes.
#[test]
fn next_hops_without_room_are_tried_again() {
    let mut rig = Rig::new();
    rig.program.groups.limit_hops(2);
    let gateways = ["10.1.0.1", "10.1.0.2", "10.1.0.3"];
    let by = |numbers: [usize; 2]| numbers.map(|number| hop(1, gateways[number], 1));
    let known = |number: usize, state| neighbour(1, gateways[number], state);
    rig.feed(vec![
        route("10.8.0.0/16", 0, &by([0, 1])),
        known(0, NeighbourState::Reachable),
        known(1, NeighbourState::Reachable),
    ]);
    rig.feed(vec![
        route("10.9.0.0/16", 0, &by([0, 2])),
        known(2, NeighbourState::Reachable),
    ]);
    let names = |rig: &Rig, prefix| {
        let ways = rig.ways(prefix).into_iter();
        ways.map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&rig, "10.9.0.0/16"), gateways[..1]);
    assert_eq!(names(&rig, "10.1.0.3/32"), [""; 0]);
    // That of the route, and that of the host.
    let counts = |rig: &Rig| (rig.program.lacking_hops(), rig.program.overflow());
    assert_eq!(counts(&rig), (2, 2));
    let wait = |rig: &mut Rig| {
        rig.program.published(rig.epoch, rig.now);
        rig.now += common::time::Span::from_secs(10);
        rig.program.reclaim(rig.now, |_| true);
        rig.program.retry();
    };
    for _ in 0..3 {
        wait(&mut rig);
        assert!(!rig.program.is_pending(), "there is no room");
    }
    rig.feed(vec![link(2, false)]);
    assert_eq!(counts(&rig), (2, 2), "those are counted already");
    let old = route("10.8.0.0/16", 0, &by([0, 1]));
    rig.feed(vec![removed(old), known(1, NeighbourState::Failed)]);
    assert_eq!(names(&rig, "10.9.0.0/16"), gateways[..1]);
    wait(&mut rig);
    assert!(rig.program.is_pending());
    rig.feed(vec![]);
    assert_eq!(names(&rig, "10.9.0.0/16"), [gateways[0], gateways[2]]);
    assert_eq!(names(&rig, "10.1.0.3/32"), gateways[2..]);
    assert_eq!(counts(&rig), (0, 2));
    wait(&mut rig);
    assert!(!rig.program.is_pending());
    // A group that goes takes what it lacks with it.
    rig.feed(vec![
        route("10.8.0.0/16", 0, &by([1, 0])),
        route("10.7.0.0/16", 0, &by([1, 2])),
    ]);
    assert_eq!(rig.program.lacking_hops(), 2);
    for prefix in ["10.8.0.0/16", "10.7.0.0/16"] {
        rig.feed(vec![removed(route(prefix, 0, &by([1, 0])))]);
    }
    assert_eq!(rig.program.lacking_hops(), 0);
}
