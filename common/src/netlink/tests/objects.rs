//! Next hop objects whose routes the kernel does not tell of (`nexthop_compat_mode` 0), and
//! interfaces that are back before anybody has looked.

use super::*;
use std::collections::BTreeSet;

const LINK: u16 = 16;
const ROUTE: u16 = 24;
const OBJECT: u16 = 104;

const UP: u32 = 0x1 | 0x40 | 0x1_0000;

/// Answers all that the follower asks for with these messages of a kind, and with nothing else.
pub(super) fn sync(follower: &mut Follower, now: &mut Time, known: &[(u16, Vec<u8>)]) {
    *now = follower.deadline().max(*now);
    while let Some(request) = follower.poll_request(*now) {
        let (kind, sequence) = asked(&request);
        for (_, known) in known.iter().filter(|it| it.0 == kind) {
            let mut answer = known.clone();
            answer[8..12].copy_from_slice(&sequence.to_ne_bytes());
            follower.handle(&answer, *now);
        }
        follower.handle(&message(3, 2, sequence, &[0; 4], &[]), *now);
    }
}

/// One that has dumped everything, which was nothing.
pub(super) fn synced() -> (Follower, Time) {
    let mut follower = Follower::new(Settings::default(), PORT);
    let mut now = Time::from_nanos(1);
    sync(&mut follower, &mut now, &[]);
    assert!(follower.is_synced());
    (follower, now)
}

fn link(kind: u16, index: u32, flags: u32) -> Vec<u8> {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    message(kind, 0, 0, &fixed, &[(3, b"eth\0")])
}

fn object(kind: u16, id: u32, ifindex: u32) -> Vec<u8> {
    let rest: [(u16, &[u8]); 3] = [
        (1, &id.to_ne_bytes()),
        (5, &ifindex.to_ne_bytes()),
        (6, &[10, 0, 0, 1]),
    ];
    message(kind, 0, 0, &[2, 0, 4, 0, 0, 0, 0, 0], &rest)
}

fn group(id: u32, members: &[u32]) -> Vec<u8> {
    let member = |id: &u32| [id.to_ne_bytes(), [0; 4]].concat();
    let members = members.iter().flat_map(member).collect::<Vec<u8>>();
    let rest: [(u16, &[u8]); 2] = [(1, &id.to_ne_bytes()), (2, &members)];
    message(OBJECT, 0, 0, &[0; 8], &rest)
}

/// A route to `10.<number>.0.0/16`, or to `2001:db8:<number>::/48`, by an object.
fn route(kind: u16, is_v6: bool, number: u8, id: u32) -> Vec<u8> {
    let id = id.to_ne_bytes();
    if is_v6 {
        let mut prefix = [0; 16];
        prefix[..6].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, number]);
        let fixed = [10, 48, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        return message(kind, 0, 0, &fixed, &[(1, &prefix), (30, &id)]);
    }
    let fixed = [2, 16, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    message(kind, 0, 0, &fixed, &[(1, &[10, number, 0, 0]), (30, &id)])
}

fn plain_route(number: u8, ifindex: u32) -> Vec<u8> {
    let fixed = [2, 16, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    let ifindex = ifindex.to_ne_bytes();
    let rest: [(u16, &[u8]); 3] = [(1, &[10, number, 0, 0]), (4, &ifindex), (5, &[10, 0, 0, 1])];
    message(ROUTE, 0, 0, &fixed, &rest)
}

/// Takes the messages at once. Returns the prefixes that have routes then.
fn batch(follower: &mut Follower, now: Time, messages: &[Vec<u8>]) -> BTreeSet<String> {
    for message in messages {
        follower.handle(message, now);
    }
    follower.take_changes(&mut Vec::new());
    let routes = follower.mirror().routes();
    routes.map(|(key, _)| key.prefix.to_string()).collect()
}

fn set<const N: usize>(prefixes: [&str; N]) -> BTreeSet<String> {
    prefixes.map(str::to_owned).into()
}

/// SW-2: routes of both families go with their next hop object though the kernel says nothing of
/// them, and what it says later of those of IPv6 takes no other route away.
#[test]
fn routes_go_with_their_objects() {
    let (mut follower, now) = synced();
    let all = [
        object(OBJECT, 1, 3),
        object(OBJECT, 2, 4),
        group(9, &[1, 2]),
        route(ROUTE, false, 1, 1),
        route(ROUTE, true, 1, 1),
        route(ROUTE, true, 2, 2),
        route(ROUTE, false, 9, 9),
    ];
    assert_eq!(batch(&mut follower, now, &all).len(), 4);
    let left = batch(&mut follower, now, &[object(105, 1, 3)]);
    assert_eq!(left, set(["10.9.0.0/16", "2001:db8:2::/48"]));
    let members = &follower.mirror().next_hop(9).unwrap().kind;
    assert_eq!(*members, NextHopKind::Group(vec![(2, 1)]));
    let late = [route(ROUTE, true, 1, 2), route(25, true, 1, 1)];
    let left = batch(&mut follower, now, &late);
    assert!(left.contains("2001:db8:1::/48"));
}

/// SW-2: an object that goes and comes back at once has taken its routes along; those that are made
/// by the new one are there.
#[test]
fn objects_that_return_have_new_routes_only() {
    let (mut follower, now) = synced();
    let all = [
        object(OBJECT, 1, 3),
        route(ROUTE, false, 1, 1),
        route(ROUTE, false, 2, 1),
    ];
    assert_eq!(batch(&mut follower, now, &all).len(), 2);
    let returned = [
        object(105, 1, 3),
        object(OBJECT, 1, 4),
        route(ROUTE, false, 2, 1),
    ];
    assert_eq!(batch(&mut follower, now, &returned), set(["10.2.0.0/16"]));
    assert!(follower.mirror().next_hop(1).is_some());
}

/// SW-2: a route by an object is the same whether the kernel tells its hops or not.
#[test]
fn hops_of_objects_do_not_count() {
    let fixed = |flags| [2, 16, 0, 0, 254, 4, 0, 1, flags, 0, 0, 0];
    let own: [(u16, &[u8]); 2] = [(1, &[10, 1, 0, 0]), (30, &[1, 0, 0, 0])];
    let hops: [(u16, &[u8]); 2] = [(4, &[3, 0, 0, 0]), (5, &[10, 0, 0, 1])];
    let silent = only(&message(ROUTE, 0, 0, &fixed(0), &own));
    let told = [own, hops].concat();
    assert_eq!(only(&message(ROUTE, 0, 0, &fixed(4), &told)), silent);
}

/// SW-2: without carrier the kernel has no next hop objects by an interface, and says nothing of
/// that; one that waits to be let in has its carrier.
#[test]
fn objects_go_with_the_carrier() {
    let (mut follower, now) = synced();
    let all = [
        link(LINK, 3, UP),
        link(LINK, 4, UP),
        object(OBJECT, 1, 3),
        object(OBJECT, 2, 4),
        group(9, &[1, 2]),
        route(ROUTE, false, 1, 1),
        route(ROUTE, true, 1, 1),
        route(ROUTE, false, 9, 9),
        plain_route(5, 3),
    ];
    assert_eq!(batch(&mut follower, now, &all).len(), 4);
    let dormant = batch(&mut follower, now, &[link(LINK, 3, 0x1 | 0x1_0000)]);
    assert_eq!(dormant.len(), 4);
    let dark = batch(&mut follower, now, &[link(LINK, 3, 0x1)]);
    assert_eq!(dark, set(["10.5.0.0/16", "10.9.0.0/16"]));
    assert_eq!(follower.mirror().next_hop(1), None);
}

/// SW-2: an interface that goes and is back at once is another one, without the routes of the
/// first; one that was set down and up has lost them, too.
#[test]
fn interfaces_that_return_have_lost_their_routes() {
    for (kind, is_another) in [(17, true), (LINK, false)] {
        let (mut follower, now) = synced();
        let all = [link(LINK, 3, UP), plain_route(1, 3), plain_route(2, 3)];
        assert_eq!(batch(&mut follower, now, &all).len(), 2);
        let before = follower.mirror().arrival(3).expect("it is there");
        let returned = [link(kind, 3, 0), link(LINK, 3, UP), plain_route(2, 3)];
        let left = batch(&mut follower, now, &returned);
        assert_eq!(left, set(["10.2.0.0/16"]));
        let after = follower.mirror().arrival(3).expect("it is back");
        assert_eq!(after != before, is_another);
    }
}
