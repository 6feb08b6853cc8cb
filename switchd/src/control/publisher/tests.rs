use super::*;
use crate::tables::{Group, Hashing};
use common::netlink::{Action, Body, Message, NO_MTU, Route, RouteKey, RouteKind, Table};

/// SW-2: whoever has looked a new route up can tell which tables it needs, and those have its
/// group.
#[test]
fn routes_say_which_tables_they_need() {
    let policy = Arc::new(Policy::plain(0, 64));
    let program = Program::new(Vec::new(), Hashing::default(), policy);
    let mut publisher = TablePublisher::new(program, FibWriter::small());
    let (mut mirror, mut reader) = (Mirror::new(), publisher.reader());
    for number in 0..3 {
        let key = RouteKey {
            table: Table::MAIN,
            prefix: format!("10.{number}.0.0/16").parse().expect("a prefix"),
            priority: 0,
            tos: 0,
            source: None,
        };
        let kinds = [
            RouteKind::Blackhole,
            RouteKind::Prohibit,
            RouteKind::Unreachable,
        ];
        let route = Route {
            kind: kinds[number],
            protocol: 4,
            hops: [].into(),
            next_hop: None,
            source: None,
            mtu: NO_MTU,
            rest: 0,
        };
        let message = Message {
            flags: 0,
            sequence: 0,
            port: 0,
            lifetime: None,
            body: Body::Route(Action::Set, key, route),
        };
        let mut changes = Vec::new();
        mirror.apply(message, false, &mut changes);
        publisher.apply(&mirror, &mut changes);
        let fib = publisher.fib();
        let address = [10, u8::try_from(number).expect("few"), 0, 1];
        let group = fib.lookup_v4(address).expect("a route");
        assert!(reader.is_behind(fib.needs()), "{number}");
        let groups = [Group::Blackhole, Group::Prohibit, Group::Unreachable];
        assert_eq!(reader.get().group(group), Some(&groups[number]));
        assert!(!reader.is_behind(fib.needs()));
    }
}

/// A publisher with a small route table, and what it follows.
struct Rig {
    publisher: TablePublisher,
    mirror: Mirror,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        let policy = Arc::new(Policy::plain(0, 64));
        let program = Program::new(Vec::new(), Hashing::default(), policy);
        Self {
            publisher: TablePublisher::new(program, FibWriter::small()),
            mirror: Mirror::new(),
            now: Time::ZERO,
        }
    }

    /// Routes come or go, all of them in one batch.
    fn feed(&mut self, action: Action, routes: impl IntoIterator<Item = (IpNet, RouteKind)>) {
        let mut changes = Vec::new();
        for (prefix, kind) in routes {
            let key = RouteKey {
                table: Table::MAIN,
                prefix,
                priority: 0,
                tos: 0,
                source: None,
            };
            let route = Route {
                kind,
                protocol: 4,
                hops: [].into(),
                next_hop: None,
                source: None,
                mtu: NO_MTU,
                rest: 0,
            };
            let message = Message {
                flags: 0,
                sequence: 0,
                port: 0,
                lifetime: None,
                body: Body::Route(action, key, route),
            };
            self.mirror.apply(message, false, &mut changes);
        }
        self.publisher.apply(&self.mirror, &mut changes);
    }

    /// Some seconds go by, in which control looks after its tables.
    fn wait(&mut self) {
        for _ in 0..5 {
            self.now += Span::from_secs(1);
            self.publisher.reclaim_if_due(self.now);
            self.publisher.apply(&self.mirror, &mut Vec::new());
        }
    }

    /// Where packets to this address go.
    fn way(&self, address: &str) -> Option<Group> {
        let fib = self.publisher.fib();
        let group = match address.parse().expect("an address") {
            IpAddr::V4(address) => fib.lookup_v4(address.octets()),
            IpAddr::V6(address) => fib.lookup_v6(address.octets()),
        };
        self.publisher.published().group(group?).cloned()
    }

    /// Makes what is left of the route table's nodes too small for any route.
    fn fill(&mut self) {
        self.feed(Action::Set, (0..1300).map(host));
        // One node each, of the shortest.
        self.feed(Action::Set, (0..20).map(short));
        assert!(self.publisher.lacking() > 100, "not full");
    }
}

/// An IPv6 host that has all of its nodes for itself.
fn host(number: u16) -> (IpNet, RouteKind) {
    let prefix = format!("{:x}::1/128", 0x2000 + number);
    (prefix.parse().expect("a prefix"), RouteKind::Blackhole)
}

/// A network that has one node for itself.
fn short(number: u16) -> (IpNet, RouteKind) {
    let prefix = format!("20.{number}.0.0/24");
    (prefix.parse().expect("a prefix"), RouteKind::Blackhole)
}

/// SW-1: routes that the table has no room for are programmed as soon as others have left.
#[test]
fn routes_without_room_are_tried_again() {
    let mut rig = Rig::new();
    rig.feed(Action::Set, (0..1300).map(host));
    let lacking = rig.publisher.lacking();
    let times = rig.publisher.overflow();
    assert!((101..1200).contains(&lacking), "{lacking}");
    rig.wait();
    assert_eq!(rig.publisher.lacking(), lacking, "nothing has left");
    assert_eq!(rig.publisher.overflow(), times, "one that is tried again");
    rig.feed(Action::Removed, (0..100).map(host));
    rig.wait();
    assert_eq!(rig.publisher.lacking(), lacking - 100);
    let programmed = (100..1300).filter(|number| {
        let address = format!("{:x}::1", 0x2000 + number);
        rig.way(&address) == Some(Group::Blackhole)
    });
    assert_eq!(programmed.count(), 1300 - lacking);
    rig.feed(Action::Removed, (100..500).map(host));
    rig.wait();
    assert_eq!(rig.publisher.lacking(), 0);
}

/// SW-1, MG-5: however many routes find no room, they are told of once, with the first one.
#[test]
fn routes_without_room_are_told_of_in_one_line() {
    let mut rig = Rig::new();
    assert_eq!(rig.publisher.refusal(), None);
    rig.feed(Action::Set, (0..1300).map(host));
    let lacking = rig.publisher.lacking();
    let told = rig.publisher.refusal().expect("there is no room");
    let wanted = format!(
        "routes or next hops found no room in the tables {lacking} times, which is tried again; \
         {lacking} routes lack now; "
    );
    let (prefix, _) = host(u16::try_from(1300 - lacking).expect("few"));
    let first = told.strip_prefix(&wanted);
    assert!(
        first.is_some_and(|it| it.starts_with(&format!("{prefix}: "))),
        "{told}"
    );
    assert_eq!(rig.publisher.refusal(), None, "told already");
    rig.publisher.retry();
    assert_eq!(rig.publisher.refusal(), None, "one that is tried again");
    rig.feed(Action::Set, (1300..1302).map(host));
    let told = rig.publisher.refusal().expect("there is no room");
    assert!(told.contains("in the tables 2 times"), "{told}");
}

/// SW-2: while the table has no room to forget a route, its group means what it did; and the route
/// is forgotten as soon as there is room.
#[test]
fn a_route_that_cannot_leave_keeps_its_group() {
    let mut rig = Rig::new();
    let parse = |prefix: &str| prefix.parse::<IpNet>().expect("a prefix");
    let leaving = (parse("10.0.0.5/32"), RouteKind::Prohibit);
    rig.feed(
        Action::Set,
        [leaving, (parse("10.0.0.6/32"), RouteKind::Blackhole)],
    );
    rig.fill();
    let lacking = rig.publisher.lacking();
    rig.feed(Action::Removed, [leaving]);
    assert_eq!(rig.publisher.lacking(), lacking + 1, "it could leave");
    rig.wait();
    rig.feed(Action::Set, [(parse("10.0.0.0/8"), RouteKind::Unreachable)]);
    assert_eq!(rig.way("10.0.0.4"), Some(Group::Unreachable));
    assert_eq!(rig.way("10.0.0.5"), Some(Group::Prohibit));
    rig.feed(Action::Removed, (0..1300).map(host));
    rig.wait();
    assert_eq!(rig.publisher.lacking(), 0);
    assert_eq!(rig.way("10.0.0.5"), Some(Group::Unreachable));
    let groups = rig.publisher.program().groups();
    let specs: Vec<_> = groups
        .map(|(_, spec, users)| (spec.clone(), users))
        .collect();
    assert_eq!(specs.len(), 2, "one is left over: {specs:?}");
}

/// SW-1: a batch that replaces more nodes than the table has room for finds room all the same: all
/// routes of a kernel come in one.
#[test]
fn one_batch_may_replace_many_nodes() {
    let mut rig = Rig::new();
    let kinds = [
        RouteKind::Blackhole,
        RouteKind::Prohibit,
        RouteKind::Unreachable,
    ];
    let routes = (0..8192_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        let prefix = IpNet::new([10, 0, high, low].into(), 32).expect("a prefix");
        (prefix, kinds[usize::from(number % 3)])
    });
    rig.feed(Action::Set, routes);
    assert_eq!((rig.publisher.lacking(), rig.publisher.overflow()), (0, 0));
    assert_eq!(rig.publisher.fib_writer().len(), (8192, 0));
}
