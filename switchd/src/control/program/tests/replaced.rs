//! Routes that are replaced: which flows move (SW-3).

use super::*;
use crate::tables::buckets::Buckets;

const ALL: [&str; 4] = ["10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2"];

/// The prefix whose flows are looked at, and one that others use.
const PREFIX: &str = "10.9.0.0/16";
const OTHER: &str = "10.8.0.0/16";

fn hops() -> Vec<Hop> {
    ALL.map(|it| hop(u32::from(it.as_bytes()[3] - b'0'), it, 1))
        .into()
}

/// All four hops are resolved; object 10 has all of them, object 11 all but the last.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.feed(
        hops()
            .iter()
            .zip(ALL)
            .map(|(hop, address)| neighbour(hop.ifindex, address, NeighbourState::Reachable))
            .collect(),
    );
    rig.feed(object(10, &hops()));
    rig.feed(object(11, &hops()[..3]));
    rig
}

fn object(id: u32, hops: &[Hop]) -> Vec<Body> {
    let members = (100..).zip(hops).map(|(id, hop)| NextHop {
        id,
        kind: NextHopKind::Single(*hop),
    });
    let group = NextHop {
        id,
        kind: NextHopKind::Group((100..).zip(hops).map(|(id, _)| (id, 1)).collect()),
    };
    members
        .chain([group])
        .map(|it| Body::NextHop(Action::Set, it))
        .collect()
}

fn by_object(prefix: &str, id: u32) -> Body {
    Body::Route(
        Action::Set,
        key(prefix, 0),
        route_of(RouteKind::Unicast, &[], Some(id)),
    )
}

fn buckets<'a>(rig: &'a Rig, prefix: &str) -> &'a Buckets {
    match rig.group(prefix) {
        Some(Group::Balance(buckets)) => buckets,
        other => panic!("{other:?}"),
    }
}

/// By bucket: the gateway that its flows go to.
fn gateways(rig: &Rig, prefix: &str) -> Vec<IpAddr> {
    let hops = buckets(rig, prefix).table().iter();
    hops.map(|id| rig.tables.next_hops[id.index()].address)
        .collect()
}

/// Of flows that went by all four ways, those by the last one have moved, and no others.
fn assert_only_the_last_moved(before: &[IpAddr], after: &[IpAddr]) {
    let lost: IpAddr = ALL[3].parse().unwrap();
    let moved = before.iter().zip(after).filter(|(old, new)| old != new);
    let innocent = moved.clone().filter(|(old, _)| **old != lost).count();
    assert!(moved.count() > 0);
    assert_eq!(innocent, 0);
    assert!(!after.contains(&lost));
}

/// SW-3: a route that is replaced without one of its hops, by a list of hops or by another next hop
/// object, moves the flows of that hop and no others; they return with it. Its flowlets stay known.
/// Whether other routes lead to what it leaves, or to what it takes, does not matter.
#[test]
fn a_replaced_route_keeps_the_flows_of_the_hops_that_stay() {
    let all = |prefix| route(prefix, 0, &hops());
    let few = |prefix| route(prefix, 0, &hops()[..3]);
    let others = [
        vec![],
        vec![all(OTHER), by_object("10.7.0.0/16", 10)],
        vec![few(OTHER), by_object("10.7.0.0/16", 11)],
        vec![few(OTHER), by_object("10.7.0.0/16", 11), all("10.6.0.0/16")],
    ];
    for others in others {
        let mut rig = rig();
        rig.feed(others);
        rig.feed(vec![all(PREFIX)]);
        let before = gateways(&rig, PREFIX);
        let born = buckets(&rig, PREFIX).lineage();
        for change in [few(PREFIX), by_object(PREFIX, 11)] {
            rig.feed(vec![change]);
            assert_only_the_last_moved(&before, &gateways(&rig, PREFIX));
            assert_eq!(buckets(&rig, PREFIX).lineage(), born);
        }
        for change in [all(PREFIX), few(PREFIX), by_object(PREFIX, 10)] {
            rig.feed(vec![change]);
        }
        assert_eq!(gateways(&rig, PREFIX), before, "they return");
        assert_eq!(buckets(&rig, PREFIX).lineage(), born);
    }
}

/// SW-3: an object that several groups are made from changes for all of them, each moving its own
/// flows only.
#[test]
fn an_object_of_several_groups_is_followed_by_each() {
    let mut rig = rig();
    rig.feed(vec![by_object(OTHER, 11), by_object(PREFIX, 10)]);
    rig.feed(vec![by_object(PREFIX, 11)]);
    assert_ne!(gateways(&rig, OTHER), gateways(&rig, PREFIX));
    let before = [OTHER, PREFIX].map(|prefix| gateways(&rig, prefix));
    rig.feed(object(11, &hops()[..2]));
    let lost: IpAddr = ALL[2].parse().unwrap();
    for (prefix, before) in [OTHER, PREFIX].into_iter().zip(before) {
        for (old, new) in before.iter().zip(gateways(&rig, prefix)) {
            assert_eq!(*old != new, *old == lost, "{prefix}");
        }
    }
}

/// SW-3: routes that come from one group share the next one; those that come from nowhere share
/// what is there.
#[test]
fn routes_of_equal_origin_share_a_group() {
    let mut rig = rig();
    let prefixes: Vec<String> = (0..20).map(|n| format!("10.9.{n}.0/24")).collect();
    let groups = |rig: &Rig| {
        let specs = rig.program.groups();
        let many = |spec: &Spec| matches!(spec, Spec::Hops(hops, _) if hops.len() > 1);
        specs.filter(|(_, spec, _)| many(spec)).count()
    };
    rig.feed(vec![route(OTHER, 0, &hops()[..3])]);
    for list in [&hops()[..], &hops()[..3]] {
        for prefix in &prefixes {
            rig.feed(vec![route(prefix, 0, list)]);
        }
        assert_eq!(groups(&rig), 2);
    }
    rig.feed(vec![route(PREFIX, 0, &hops()[..3])]);
    assert_eq!(groups(&rig), 2);
    rig.feed(vec![
        removed(route(OTHER, 0, &[])),
        removed(route(PREFIX, 0, &[])),
    ]);
    assert_eq!(groups(&rig), 1);
}

proptest! {
    /// SW-3: however routes share groups, one that is replaced moves no flow of a hop that stays
    /// unless another hop has to have its share.
    #[test]
    fn no_flow_moves_in_vain(
        steps in prop::collection::vec((0_u8..3, 0_u8..16, 0_u32..3, any::<bool>()), 1..40)
    ) {
        let mut rig = rig();
        for (prefix, chosen, weight, answers) in steps {
            let prefix = format!("10.{}.0.0/16", 20 + prefix);
            let mut list = hops();
            list[0].weight += weight;
            let list = list.into_iter().enumerate();
            let list: Vec<Hop> = list
                .filter_map(|(n, hop)| (chosen >> n & 1 == 1).then_some(hop))
                .collect();
            let state = if answers { NeighbourState::Reachable } else { NeighbourState::Failed };
            rig.feed(vec![neighbour(1, ALL[0], state)]);
            let before = match rig.group(&prefix) {
                Some(Group::Balance(_)) => gateways(&rig, &prefix),
                _ => Vec::new(),
            };
            let twin = prefix.replace("10.", "11.");
            for prefix in [&prefix, &twin] {
                rig.feed(vec![if list.is_empty() {
                    removed(route(prefix, 0, &[]))
                } else {
                    route(prefix, 0, &list)
                }]);
            }
            let groups = [&prefix, &twin].map(|it| rig.fib.get(&it.parse().unwrap()));
            prop_assert_eq!(groups[0], groups[1], "routes of equal history share groups");
            let Some(Group::Balance(_)) = rig.group(&prefix) else { continue };
            let after = gateways(&rig, &prefix);
            let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
            let (left, taken): (HashSet<IpAddr>, HashSet<IpAddr>) = moved.unzip();
            prop_assert!(left.is_disjoint(&taken), "{left:?} {taken:?}");
        }
    }
}
