use super::*;
use crate::tables::Group;
use crate::tables::dlb::{DlbPolicy, Mode};
use crate::tables::policy::Policy;
use crate::tables::validation::SourceValidation;
use common::netlink::{
    Action, Address, Body, Hop, Link, Message, NO_MTU, Neighbour, NeighbourState, NextHop,
    NextHopKind, Route, RouteKey, RouteKind, Table,
};
use common::time::Time;
use proptest::prelude::*;

mod bridges;
mod idle_links;
mod interfaces;
mod kernels_choice;
mod punted;
mod replaced;
mod resilient;
mod room;
mod rules;

const REPLACE: u16 = 0x100;

/// A mirror, its program, and what the workers would see.
struct Rig {
    mirror: Mirror,
    program: Program,
    fib: HashMap<IpNet, GroupId>,
    tables: Tables,
    locals: HashSet<IpAddr>,
    verdicts: HashMap<IpNet, Verdict>,
    stations: HashMap<StationKey, StationPlace>,
    moves: Vec<StationMove>,
    publications: usize,
    epoch: u64,
    now: Time,
}

fn port(name: &str, ifindex: u32) -> PortEntry {
    PortEntry {
        name: name.to_owned(),
        ifindex,
        mac: [0; 6],
        up: false,
        mtu: 3000,
        speed: None,
        link: None,
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        burst: 125_000,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

fn link(index: u32, up: bool) -> Body {
    Body::Link(
        Action::Set,
        Link {
            index,
            name: format!("eth{index}"),
            mac: Some([2, 0, 0, 0, 0, u8::try_from(index).unwrap()]),
            mtu: 9000,
            up: true,
            running: up,
            loopback: false,
            ..Link::default()
        },
    )
}

fn hop(ifindex: u32, gateway: &str, weight: u32) -> Hop {
    Hop {
        ifindex,
        gateway: (gateway != "link").then(|| gateway.parse().unwrap()),
        weight,
        ..Hop::default()
    }
}

fn key(prefix: &str, priority: u32) -> RouteKey {
    RouteKey {
        table: Table::MAIN,
        prefix: prefix.parse().unwrap(),
        priority,
        tos: 0,
        source: None,
    }
}

fn route_of(kind: RouteKind, hops: &[Hop], next_hop: Option<u32>) -> Route {
    Route {
        kind,
        protocol: 4,
        hops: hops.into(),
        next_hop,
        source: None,
        mtu: NO_MTU,
        rest: 0,
    }
}

fn route(prefix: &str, priority: u32, hops: &[Hop]) -> Body {
    let route = route_of(RouteKind::Unicast, hops, None);
    Body::Route(Action::Set, key(prefix, priority), route)
}

fn neighbour(ifindex: u32, address: &str, state: NeighbourState) -> Body {
    let key = NeighbourKey {
        ifindex,
        address: address.parse().unwrap(),
    };
    let mac = state.is_valid().then_some([6; 6]);
    Body::Neighbour(Action::Set, Neighbour { key, mac, state })
}

fn removed(body: Body) -> Body {
    match body {
        Body::Route(_, key, route) => Body::Route(Action::Removed, key, route),
        Body::Neighbour(_, neighbour) => Body::Neighbour(Action::Removed, neighbour),
        Body::NextHop(_, next_hop) => Body::NextHop(Action::Removed, next_hop),
        other => other,
    }
}

fn plain() -> Arc<Policy> {
    Arc::new(Policy::plain(2, 4096))
}

impl Rig {
    /// Two ports that are up with a network each; eth9 is not ours.
    fn new() -> Self {
        let ports = vec![port("eth1", 1), port("eth2", 2)];
        let program = Program::new(ports, Hashing::default(), plain());
        let tables = program.tables().clone();
        let mut rig = Self {
            mirror: Mirror::new(),
            program,
            fib: HashMap::new(),
            tables,
            locals: HashSet::new(),
            verdicts: HashMap::new(),
            stations: HashMap::new(),
            moves: Vec::new(),
            publications: 0,
            epoch: 0,
            now: Time::ZERO,
        };
        rig.feed(vec![
            link(1, true),
            link(2, true),
            link(9, true),
            route("10.1.0.0/24", 0, &[hop(1, "link", 1)]),
            route("10.2.0.0/24", 0, &[hop(2, "link", 1)]),
        ]);
        rig
    }

    fn feed(&mut self, bodies: Vec<Body>) {
        let mut changes = Vec::new();
        for body in bodies {
            let message = Message {
                flags: REPLACE,
                sequence: 0,
                port: 0,
                lifetime: None,
                body,
            };
            self.mirror.apply(message, false, &mut changes);
        }
        let update = self.program.apply(&self.mirror, &changes);
        if let Some(tables) = update.tables {
            tables.check().expect("consistent tables");
            self.tables = tables;
            self.publications += 1;
            self.epoch += 1;
            self.program.published(self.epoch, self.now);
        }
        for (prefix, group) in update.routes {
            match group {
                Some(id) => {
                    assert!(id.index() < self.tables.groups.len(), "tables come first");
                    self.fib.insert(prefix, id);
                }
                None => {
                    self.fib.remove(&prefix);
                }
            }
        }
        let fib = &self.fib;
        self.program.release_left(|prefix| fib.get(prefix).copied());
        self.locals.extend(update.new_locals);
        for address in update.old_locals {
            self.locals.remove(&address);
        }
        for (prefix, verdict) in update.verdicts {
            match verdict {
                Some(verdict) => self.verdicts.insert(prefix, verdict),
                None => self.verdicts.remove(&prefix),
            };
        }
        for (key, place) in update.stations {
            match place {
                Some(place) => self.stations.insert(key, place),
                None => self.stations.remove(&key),
            };
        }
        self.moves.extend(update.moves);
        self.now += common::time::Span::from_secs(10);
        let epoch = self.epoch;
        self.program.reclaim(self.now, |wanted| wanted <= epoch);
    }

    fn group(&self, prefix: &str) -> Option<&Group> {
        let id = self.fib.get(&prefix.parse().unwrap())?;
        self.tables.group(*id)
    }

    /// The gateways that packets to `prefix` go to now, with their buckets.
    fn ways(&self, prefix: &str) -> Vec<(String, usize)> {
        let name = |id: &NextHopId| self.tables.next_hops[id.index()].address.to_string();
        match self.group(prefix).expect("a route") {
            Group::Forward(id) => vec![(name(id), 1)],
            Group::Balance(buckets) => {
                let mut counts = std::collections::BTreeMap::new();
                for id in buckets.table() {
                    *counts.entry(name(id)).or_default() += 1;
                }
                counts.into_iter().collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// SW-2: ports follow their links, within what AF_XDP carries.
#[test]
fn ports_follow_links_and_addresses() {
    let mut rig = Rig::new();
    assert!(rig.tables.ports[0].up);
    assert_eq!(rig.tables.ports[0].mtu, 3000);
    assert_eq!(rig.tables.ports[1].mac, [2, 0, 0, 0, 0, 2]);
    let address = |address: &str| Address {
        ifindex: 1,
        address: address.parse().unwrap(),
        prefix_len: 64,
    };
    rig.feed(vec![
        Body::Address(Action::Set, address("fe80::1")),
        Body::Address(Action::Set, address("2001:db8::1")),
        Body::Address(
            Action::Set,
            Address {
                prefix_len: 24,
                ..address("10.1.0.1")
            },
        ),
    ]);
    assert_eq!(
        rig.tables.ports[0].icmp_v4,
        Some("10.1.0.1".parse().unwrap())
    );
    assert_eq!(
        rig.tables.ports[0].icmp_v6,
        Some("2001:db8::1".parse().unwrap())
    );
    assert_eq!(rig.locals.len(), 3);
    rig.feed(vec![
        Body::Address(Action::Removed, address("2001:db8::1")),
        link(1, false),
    ]);
    assert_eq!(rig.tables.ports[0].icmp_v6, None, "no router knows fe80::1");
    assert!(!rig.tables.ports[0].up);
    assert_eq!(rig.locals.len(), 2);
}

/// SW-1: a port without an address of its own answers from another one of the box, never from a
/// link-local one.
#[test]
fn ports_without_addresses_answer_from_the_boxs() {
    let mut rig = Rig::new();
    let address = |ifindex, address: &str| {
        let address = address.parse().unwrap();
        let prefix_len = 64;
        Body::Address(
            Action::Set,
            Address {
                ifindex,
                address,
                prefix_len,
            },
        )
    };
    rig.feed(vec![
        address(1, "fe80::1"),
        address(77, "127.0.0.1"),
        address(77, "::1"),
        address(77, "192.0.2.9"),
        address(77, "192.0.2.7"),
        address(77, "2001:db8::7"),
        address(2, "10.2.0.254"),
    ]);
    let [first, second] = [&rig.tables.ports[0], &rig.tables.ports[1]];
    // The lowest of all, so that it does not depend on the order of events.
    assert_eq!(first.icmp_v4, Some("10.2.0.254".parse().unwrap()));
    assert_eq!(first.icmp_v6, Some("2001:db8::7".parse().unwrap()));
    assert_eq!(second.icmp_v4, Some("10.2.0.254".parse().unwrap()));
}

/// SW-2: neighbours of connected networks are host routes; what is longer than the network wins.
#[test]
fn neighbours_become_host_routes() {
    let mut rig = Rig::new();
    let glean = |rig: &Rig| {
        matches!(
            rig.group("10.1.0.0/24"),
            Some(Group::Glean { ifindex: 1, .. })
        )
    };
    assert!(glean(&rig));
    rig.feed(vec![neighbour(1, "10.1.0.7", NeighbourState::Reachable)]);
    assert_eq!(rig.ways("10.1.0.7/32"), [("10.1.0.7".to_owned(), 1)]);
    let before = rig.publications;
    rig.feed(vec![neighbour(1, "10.1.0.7", NeighbourState::Stale)]);
    rig.feed(vec![neighbour(1, "10.1.0.7", NeighbourState::NoArp)]);
    assert_eq!(rig.publications, before, "nothing changed for the workers");
    // On the wrong link, and behind a longer prefix that has a gateway.
    rig.feed(vec![
        neighbour(2, "10.1.0.8", NeighbourState::Reachable),
        neighbour(1, "10.1.0.130", NeighbourState::Reachable),
    ]);
    assert!(rig.group("10.1.0.8/32").is_none());
    assert!(rig.group("10.1.0.130/32").is_some());
    rig.feed(vec![route("10.1.0.128/25", 0, &[hop(2, "10.2.0.1", 1)])]);
    assert!(rig.group("10.1.0.130/32").is_none());
    rig.feed(vec![removed(route(
        "10.1.0.128/25",
        0,
        &[hop(2, "10.2.0.1", 1)],
    ))]);
    assert!(rig.group("10.1.0.130/32").is_some());
    // A host route of the kernel wins over the neighbour.
    rig.feed(vec![route("10.1.0.7/32", 0, &[hop(2, "10.2.0.1", 1)])]);
    assert_eq!(rig.ways("10.1.0.7/32"), [("10.2.0.1".to_owned(), 1)]);
    rig.feed(vec![removed(route(
        "10.1.0.7/32",
        0,
        &[hop(2, "10.2.0.1", 1)],
    ))]);
    assert_eq!(rig.ways("10.1.0.7/32"), [("10.1.0.7".to_owned(), 1)]);
    rig.feed(vec![neighbour(1, "10.1.0.7", NeighbourState::Failed)]);
    assert!(rig.group("10.1.0.7/32").is_none());
    assert!(glean(&rig));
}

/// SW-2: the metric decides, the table `local` wins, and what is removed gives way to the next.
#[test]
fn the_best_route_of_a_prefix_is_used() {
    let mut rig = Rig::new();
    let via = |metric, gateway| route("10.9.0.0/16", metric, &[hop(1, gateway, 1)]);
    rig.feed(vec![
        via(20, "10.1.0.2"),
        via(10, "10.1.0.1"),
        via(30, "10.1.0.3"),
    ]);
    assert_eq!(rig.ways("10.9.0.0/16")[0].0, "10.1.0.1");
    rig.feed(vec![removed(via(10, "10.1.0.1"))]);
    assert_eq!(rig.ways("10.9.0.0/16")[0].0, "10.1.0.2");
    let mut local = key("10.9.0.0/16", 50);
    local.table = Table::LOCAL;
    let ours = Body::Route(Action::Set, local, route_of(RouteKind::Local, &[], None));
    rig.feed(vec![ours.clone()]);
    assert_eq!(rig.group("10.9.0.0/16"), Some(&Group::Local));
    rig.feed(vec![removed(ours), removed(via(20, "10.1.0.2"))]);
    assert_eq!(rig.ways("10.9.0.0/16")[0].0, "10.1.0.3");
    rig.feed(vec![removed(via(30, "10.1.0.3"))]);
    assert!(rig.group("10.9.0.0/16").is_none());
}

#[test]
fn kinds_of_routes_have_their_groups() {
    let mut rig = Rig::new();
    let kinds = [
        (RouteKind::Blackhole, Group::Blackhole),
        (RouteKind::Unreachable, Group::Unreachable),
        (RouteKind::Throw, Group::NoRoute),
        (RouteKind::Prohibit, Group::Prohibit),
        (RouteKind::Local, Group::Local),
        (RouteKind::Broadcast, Group::Broadcast),
    ];
    for (kind, group) in kinds {
        let route = route_of(kind, &[], None);
        rig.feed(vec![Body::Route(Action::Set, key("10.9.0.0/16", 0), route)]);
        assert_eq!(rig.group("10.9.0.0/16"), Some(&group));
    }
    // By an interface that is not ours, and encapsulated.
    let punt = |reason| Some(Group::Punt(reason));
    let newer = route_of(RouteKind::Other(77), &[], None);
    rig.feed(vec![Body::Route(Action::Set, key("10.9.0.0/16", 0), newer)]);
    assert_eq!(
        rig.group("10.9.0.0/16"),
        punt(PuntReason::RouteType).as_ref()
    );
    rig.feed(vec![route("10.9.0.0/16", 0, &[hop(9, "10.3.0.1", 1)])]);
    assert_eq!(
        rig.group("10.9.0.0/16"),
        punt(PuntReason::NotAPort).as_ref()
    );
    let mixed = [hop(1, "10.1.0.1", 1), hop(9, "10.3.0.1", 1)];
    rig.feed(vec![route("10.9.0.0/16", 0, &mixed)]);
    assert_eq!(rig.group("10.9.0.0/16"), punt(PuntReason::Mixed).as_ref());
    let tunnel = Hop {
        encapsulated: true,
        ..hop(1, "10.1.0.1", 1)
    };
    rig.feed(vec![route("10.9.0.0/16", 0, &[tunnel])]);
    assert_eq!(
        rig.group("10.9.0.0/16"),
        punt(PuntReason::Encapsulated).as_ref()
    );
    // IPv4 via an IPv6 gateway.
    rig.feed(vec![route("10.9.0.0/16", 0, &[hop(1, "fe80::5", 1)])]);
    assert_eq!(rig.ways("10.9.0.0/16"), [("fe80::5".to_owned(), 1)]);
}

/// SW-3: weights; the flows of a dead member move and come back, its group stays.
#[test]
fn members_die_and_return() {
    let mut rig = Rig::new();
    let both = [hop(1, "10.1.0.1", 3), hop(2, "10.2.0.1", 1)];
    rig.feed(vec![
        route("10.9.0.0/16", 0, &both),
        route("10.8.0.0/16", 5, &both),
    ]);
    let first = |rows: Vec<(String, usize)>| rows[0].clone();
    let all_to = |address: &str| (address.to_owned(), 1024);
    assert_eq!(
        rig.ways("10.9.0.0/16").len(),
        2,
        "none is known: both may be"
    );
    assert_eq!(rig.program.unresolved().count(), 2);
    rig.feed(vec![neighbour(2, "10.2.0.1", NeighbourState::Reachable)]);
    assert_eq!(first(rig.ways("10.9.0.0/16")), all_to("10.2.0.1"));
    rig.feed(vec![neighbour(1, "10.1.0.1", NeighbourState::Reachable)]);
    let whole = rig.ways("10.9.0.0/16");
    assert!(
        whole[0].1.abs_diff(768) <= 1 && whole[1].1.abs_diff(256) <= 1,
        "{whole:?}"
    );
    let id = rig.fib[&"10.9.0.0/16".parse().unwrap()];
    let other = rig.fib[&"10.8.0.0/16".parse().unwrap()];
    assert_eq!(other, id, "one group for both");
    let group = rig.group("10.9.0.0/16").cloned();
    rig.feed(vec![link(2, false)]);
    assert_eq!(first(rig.ways("10.9.0.0/16")), all_to("10.1.0.1"));
    rig.feed(vec![link(2, true)]);
    assert_eq!(rig.group("10.9.0.0/16").cloned(), group);
    // A gateway that does not answer, or that the kernel forgot, is out until it answers.
    rig.feed(vec![neighbour(1, "10.1.0.1", NeighbourState::Failed)]);
    assert_eq!(first(rig.ways("10.9.0.0/16")), all_to("10.2.0.1"));
    let failed = neighbour(1, "10.1.0.1", NeighbourState::Failed);
    rig.feed(vec![removed(failed)]);
    assert_eq!(first(rig.ways("10.9.0.0/16")), all_to("10.2.0.1"));
    let asked = rig.program.unresolved().next().unwrap();
    assert_eq!(asked.address.to_string(), "10.1.0.1");
    rig.feed(vec![neighbour(1, "10.1.0.1", NeighbourState::Stale)]);
    assert_eq!(rig.ways("10.9.0.0/16"), whole);
    assert_eq!(rig.fib[&"10.9.0.0/16".parse().unwrap()], id);
    // With nobody left, all stay members: one may answer.
    rig.feed(vec![link(1, false), link(2, false)]);
    assert_eq!(rig.ways("10.9.0.0/16"), whole);
}

/// SW-2: next hop objects and groups of them; a change of the object moves all its routes at once.
#[test]
fn objects_are_followed() {
    let mut rig = Rig::new();
    let object = |id, kind| Body::NextHop(Action::Set, NextHop { id, kind });
    let single = |id, hop| object(id, NextHopKind::Single(hop));
    let by = |id| {
        let route = route_of(RouteKind::Unicast, &[hop(1, "10.1.0.1", 1)], Some(id));
        Body::Route(Action::Set, key("10.9.0.0/16", 0), route)
    };
    rig.feed(vec![
        single(1, hop(1, "10.1.0.1", 1)),
        single(2, hop(2, "10.2.0.1", 1)),
        object(10, NextHopKind::Group(vec![(1, 1), (2, 3)])),
        by(10),
    ]);
    assert_eq!(
        rig.ways("10.9.0.0/16"),
        [("10.1.0.1".to_owned(), 257), ("10.2.0.1".to_owned(), 767)]
    );
    let id = rig.fib[&"10.9.0.0/16".parse().unwrap()];
    rig.feed(vec![single(1, hop(1, "10.1.0.9", 1))]);
    assert_eq!(rig.ways("10.9.0.0/16")[0].0, "10.1.0.9");
    assert_eq!(rig.fib[&"10.9.0.0/16".parse().unwrap()], id);
    rig.feed(vec![object(10, NextHopKind::Blackhole)]);
    assert_eq!(rig.group("10.9.0.0/16"), Some(&Group::Blackhole));
    // An object that nobody told of: it may be another one than the hops that come with the route.
    rig.feed(vec![by(77)]);
    let unknown = Group::Punt(PuntReason::RouteType);
    assert_eq!(rig.group("10.9.0.0/16"), Some(&unknown));
}

#[derive(Clone, Debug)]
enum Op {
    Route(u8, u32, Vec<(u32, u8)>),
    NoRoute(u8, u32),
    Neighbour(u32, u8, NeighbourState),
    NoNeighbour(u32, u8),
    Link(u32, bool),
}

fn any_op() -> impl Strategy<Value = Op> {
    let state = prop_oneof![
        Just(NeighbourState::Reachable),
        Just(NeighbourState::Failed),
        Just(NeighbourState::Incomplete)
    ];
    let hops = prop::collection::vec((1_u32..=2, 0_u8..4), 1..4);
    prop_oneof![
        (0_u8..5, 0_u32..3, hops).prop_map(|(p, metric, hops)| Op::Route(p, metric, hops)),
        (0_u8..5, 0_u32..3).prop_map(|(p, metric)| Op::NoRoute(p, metric)),
        (1_u32..=2, 1_u8..4, state).prop_map(|(i, n, state)| Op::Neighbour(i, n, state)),
        (1_u32..=2, 1_u8..4).prop_map(|(i, n)| Op::NoNeighbour(i, n)),
        (1_u32..=2, any::<bool>()).prop_map(|(i, up)| Op::Link(i, up)),
    ]
}

fn body(op: &Op) -> Body {
    let prefix = |p: u8| match p {
        0 => "10.1.0.0/24".to_owned(),
        1 => "10.1.0.2/31".to_owned(),
        2 => "10.1.0.1/32".to_owned(),
        3 => "0.0.0.0/0".to_owned(),
        _ => "10.2.0.0/24".to_owned(),
    };
    match op {
        Op::Route(p, metric, hops) => {
            let hops: Vec<Hop> = hops
                .iter()
                .map(|&(ifindex, n)| match n {
                    0 => hop(ifindex, "link", 1),
                    n => hop(ifindex, &format!("10.{ifindex}.0.{n}"), u32::from(n)),
                })
                .collect();
            route(&prefix(*p), *metric, &hops)
        }
        Op::NoRoute(p, metric) => removed(route(&prefix(*p), *metric, &[])),
        Op::Neighbour(i, n, state) => neighbour(*i, &format!("10.{i}.0.{n}"), *state),
        Op::NoNeighbour(i, n) => removed(neighbour(
            *i,
            &format!("10.{i}.0.{n}"),
            NeighbourState::Failed,
        )),
        Op::Link(i, up) => link(*i, *up),
    }
}

proptest! {
    /// SW-2: whatever the order in which things become known, the workers see what one who learns
    /// everything at the end sees; nothing leaks.
    #[test]
    fn history_does_not_matter(ops in prop::collection::vec(any_op(), 1..40), burst in 1_usize..5) {
        let mut rig = Rig::new();
        for batch in ops.chunks(burst) {
            rig.feed(batch.iter().map(body).collect());
        }
        let mut fresh = Program::new(
            vec![port("eth1", 1), port("eth2", 2)], Hashing::default(), plain(),
        );
        let mut all: Vec<Change> = rig.mirror.links().map(|link| Change::Link(link.index)).collect();
        all.extend(rig.mirror.routes().map(|(key, _)| Change::Route(*key)));
        all.extend(rig.mirror.neighbours().map(|n| Change::Neighbour(n.key)));
        let update = fresh.apply(&rig.mirror, &all);
        let expected: HashMap<IpNet, GroupId> = update
            .routes
            .iter()
            .filter_map(|&(prefix, id)| Some((prefix, id?)))
            .collect();
        let mut prefixes: Vec<_> = rig.fib.keys().copied().collect();
        let mut wanted: Vec<_> = expected.keys().copied().collect();
        prefixes.sort();
        wanted.sort();
        prop_assert_eq!(&prefixes, &wanted);
        for prefix in prefixes {
            let kind = |program: &Program, tables: &Tables, id: GroupId| {
                let spec = program.groups().find(|(group, _, _)| *group == id).map(|(_, spec, _)| spec.clone());
                let macs: Vec<_> = match &tables.groups[id.index()] {
                    Group::Forward(hop) => vec![tables.next_hops[hop.index()].clone()],
                    Group::Glean { .. } => vec![],
                    _ => vec![],
                };
                (spec, macs)
            };
            prop_assert_eq!(
                kind(&rig.program, &rig.tables, rig.fib[&prefix]),
                kind(&fresh, fresh.tables(), expected[&prefix])
            );
        }
        let users: usize = rig.program.groups().map(|(_, _, users)| users).sum();
        prop_assert_eq!(users, rig.fib.len());
        prop_assert!(rig.program.next_hops().count() <= 6);
    }
}

/// SW-4: groups have modes of their own by the prefixes and the objects that lead to them, and the
/// first counts.
#[test]
fn groups_are_chosen_by_prefix_and_by_object() {
    let mut rig = Rig::new();
    let chosen = |prefixes: &[&str], object, mode| GroupMode {
        prefixes: prefixes.iter().map(|it| it.parse().unwrap()).collect(),
        object,
        mode,
    };
    rig.program = rig.program.with_balancing(
        DlbPolicy::default(),
        vec![
            chosen(&["10.7.0.0/16"], None, Mode::Packet),
            chosen(&["10.8.0.0/16"], Some(10), Mode::Flowlet),
        ],
    );
    let single = |id, hop| {
        let kind = NextHopKind::Single(hop);
        Body::NextHop(Action::Set, NextHop { id, kind })
    };
    let group = NextHop {
        id: 10,
        kind: NextHopKind::Group(vec![(1, 1), (2, 1)]),
    };
    let hops = [hop(1, "10.1.0.9", 1), hop(2, "10.2.0.9", 1)];
    let by_object = |prefix| {
        let route = route_of(RouteKind::Unicast, &hops, Some(10));
        Body::Route(Action::Set, key(prefix, 0), route)
    };
    rig.feed(vec![
        single(1, hops[0]),
        single(2, hops[1]),
        Body::NextHop(Action::Set, group),
        by_object("10.6.0.0/16"),
        route("10.5.0.0/16", 0, &hops),
    ]);
    let modes = |rig: &Rig| {
        let group = |prefix: &str| rig.fib.get(&prefix.parse().unwrap());
        let mode = |prefix| group(prefix).map(|id| rig.tables.dlb.mode(*id));
        ["10.5.0.0/16", "10.6.0.0/16"].map(|it| mode(it).unwrap())
    };
    assert_eq!(modes(&rig), [Mode::Off, Mode::Flowlet]);
    rig.feed(vec![
        route("10.8.0.0/16", 0, &hops),
        by_object("10.7.0.0/16"),
    ]);
    assert_eq!(modes(&rig), [Mode::Flowlet, Mode::Packet]);
    rig.feed(vec![removed(route("10.8.0.0/16", 0, &hops))]);
    assert_eq!(modes(&rig), [Mode::Off, Mode::Packet]);
}
