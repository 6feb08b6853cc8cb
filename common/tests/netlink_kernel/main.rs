//! The mirror against the kernel itself, in network namespaces of its own. The oracle is a second
//! mirror that dumps afresh: after each change, what events told must be what a dump tells.

mod full_table;
mod objects;

use common::netlink::{
    Change, FdbKey, FdbKind, Hop, Mirror, NextHopKind, RECEIVE_BUFFER, Requests, Resilience,
    ResyncReason, RouteKey, RouteKind, Settings, Table, Watch,
};
use common::sys::{PollSet, monotonic};
use common::time::Span;
use std::fmt::Write as _;
use std::os::fd::AsFd;

/// Runs `test` in a new network namespace with a veth pair.
fn in_namespace(test: fn()) {
    netns::in_new(|| {
        ip("link set lo up");
        ip("link add left type veth peer name right");
        ip("link set left up");
        ip("link set right up");
        ip("address add 10.0.0.1/24 dev left");
        ip("address add 10.0.1.1/24 dev right");
        ip("-6 address add 2001:db8::1/64 dev left nodad");
        test();
    });
}

fn ip(arguments: &str) {
    netns::run(&format!("ip {arguments}")).expect("the kernel does it");
}

fn state(mirror: &Mirror) -> String {
    let mut lines: Vec<String> = mirror
        .links()
        .map(|link| format!("{link:?}"))
        .chain(mirror.addresses().map(|address| format!("{address:?}")))
        .chain(mirror.rules().into_iter().map(|rule| format!("{rule:?}")))
        .chain(mirror.bridge_ports().map(|port| format!("{port:?}")))
        .chain(mirror.fdb().map(|entry| format!("{entry:?}")))
        .chain(mirror.next_hops().map(|next_hop| format!("{next_hop:?}")))
        .chain(mirror.routes().map(|route| format!("{route:?}")))
        .chain(
            mirror
                .neighbours()
                .filter(|neighbour| neighbour.usable_mac().is_some())
                .map(|neighbour| format!("{:?} {:?}", neighbour.key, neighbour.mac)),
        )
        .collect();
    lines.sort();
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").expect("a string takes all");
        text
    })
}

/// What events told must be what a dump tells; what the kernel does of itself meanwhile (it finds
/// out that an address of IPv6 is its own) has some time to be told.
fn compare(watch: &mut Watch, step: &str) {
    let look = |watch: &Watch| (state(watch.mirror()), state(open().mirror()));
    let mut found = look(watch);
    for _ in 0..200 {
        if found.0 == found.1 {
            break;
        }
        follow(watch, Span::from_millis(100));
        found = look(watch);
    }
    let (told, dumped) = found;
    let only_in = |a: &str, b: &str| -> Vec<String> {
        let missing = a
            .lines()
            .filter(|line| !b.lines().any(|other| other == *line));
        missing.take(10).map(str::to_owned).collect()
    };
    let (wrong, lacking) = (only_in(&told, &dumped), only_in(&dumped, &told));
    assert!(
        told == dumped,
        "after {step}: wrong {wrong:#?}, lacking {lacking:#?}"
    );
}

fn open() -> Watch {
    let mut watch = Watch::open(Settings::default(), RECEIVE_BUFFER).unwrap();
    watch
        .sync(monotonic() + Span::from_secs(60), &mut Vec::new())
        .unwrap();
    watch
}

/// Reads events for `span`, and at least those that there are.
fn follow(watch: &mut Watch, span: Span) -> Vec<Change> {
    let end = monotonic() + span;
    let mut changes = Vec::new();
    let mut poll = PollSet::new();
    loop {
        let now = monotonic();
        if !watch.pump(now, &mut changes).unwrap() {
            if now >= end {
                break;
            }
            let until = watch.deadline().min(end);
            poll.wait([watch.as_fd()], until.since(now)).unwrap();
        }
    }
    changes
}

fn key(prefix: &str, priority: u32) -> RouteKey {
    let (table, prefix) = (Table::MAIN, prefix.parse().unwrap());
    RouteKey {
        table,
        prefix,
        priority,
        tos: 0,
        source: None,
    }
}

fn hops(watch: &Watch, key: &RouteKey) -> Vec<(String, u32)> {
    let route = watch.mirror().route(key).expect("a route");
    let gateway = |hop: &Hop| {
        hop.gateway
            .map_or_else(|| "link".to_owned(), |g| g.to_string())
    };
    let mut hops: Vec<_> = route
        .hops
        .iter()
        .map(|hop| (gateway(hop), hop.weight))
        .collect();
    hops.sort();
    hops
}

/// SW-1: bridges, their ports and what they know are followed, and events alone make the state that
/// a dump makes.
#[test]
fn bridges_are_followed() {
    in_namespace(|| {
        let mut watch = open();
        let steps = [
            "ip link add br0 type bridge forward_delay 0 mcast_snooping 0",
            "ip link set br0 up",
            "ip link set left master br0",
            "ip link set right master br0",
            "bridge link set dev left state 4",
            "bridge link set dev left state 3 isolated on",
            "bridge link set dev right hairpin on",
            "bridge fdb add 02:00:00:00:07:01 dev left master static",
            "bridge fdb add 02:00:00:00:07:02 dev right master dynamic",
            "bridge fdb replace 02:00:00:00:07:02 dev left master dynamic",
            "bridge fdb add 02:00:00:00:07:03 dev br0 self local",
            "bridge fdb add 02:00:00:00:07:04 dev left self",
            "bridge fdb del 02:00:00:00:07:01 dev left master",
            "ip link set br0 type bridge ageing_time 2000",
            "ip link set right nomaster",
        ];
        for step in steps {
            netns::run(step).expect("the kernel does it");
            follow(&mut watch, Span::from_millis(60));
            compare(&mut watch, step);
        }
        let index = |watch: &Watch, name| watch.mirror().link_named(name).unwrap().index;
        let (left, bridge) = (index(&watch, "left"), index(&watch, "br0"));
        let port = watch.mirror().bridge_port(left).unwrap().clone();
        assert!(port.is_isolated && port.bridge == bridge, "{port:?}");
        assert_eq!(watch.mirror().bridge_port(index(&watch, "right")), None);
        let settings = watch.mirror().link(bridge).unwrap().bridge.unwrap();
        assert_eq!(settings.ageing, Span::from_secs(20));
        let key = FdbKey {
            bridge,
            vlan: 0,
            mac: [2, 0, 0, 0, 7, 2],
        };
        let entry = watch.mirror().fdb_entry(&key).unwrap();
        assert_eq!(
            (entry.ifindex, entry.kind),
            (port.ifindex, FdbKind::Learned)
        );
        // What the kernel's filter of multicast addresses knows is not of the bridge.
        let of_device = FdbKey {
            mac: [2, 0, 0, 0, 7, 4],
            ..key
        };
        assert_eq!(watch.mirror().fdb_entry(&of_device), None);
        ip("link del br0");
        follow(&mut watch, Span::from_millis(60));
        compare(&mut watch, "link del br0");
        assert_eq!(watch.mirror().fdb().count(), 0);
    });
}

/// Tests of this file that need more of a kernel than this machine's may have.
const IN_GUEST: &[&str] = &["vlans_of_bridges_are_followed"];

/// SW-1: what this machine's kernel may not be able to show, by one that is.
#[test]
fn a_guest_has_bridges_with_vlans() {
    if guest::available() {
        guest::run_selected(IN_GUEST, std::time::Duration::from_secs(1200));
    }
}

/// SW-1: the VLANs of a bridge's ports are followed where the kernel's bridge has them. Belongs
/// into [`IN_GUEST`].
#[test]
fn vlans_of_bridges_are_followed() {
    in_namespace(|| {
        let mut watch = open();
        if let Err(error) =
            netns::run("ip link add br1 type bridge vlan_filtering 1 forward_delay 0")
        {
            return eprintln!("SKIP VLANs of bridges: {error}");
        }
        for step in [
            "ip link set br1 up",
            "ip link set left master br1",
            "bridge vlan add dev left vid 10-20",
            "bridge vlan add dev left vid 30 pvid untagged",
            "bridge vlan del dev left vid 12",
            "bridge fdb add 02:00:00:00:07:02 dev left master dynamic vlan 15",
        ] {
            netns::run(step).expect("the kernel does it");
            follow(&mut watch, Span::from_millis(60));
            compare(&mut watch, step);
        }
        let left = watch.mirror().link_named("left").unwrap();
        let vlans = &watch.mirror().bridge_port(left.index).unwrap().vlans;
        let vlans: Vec<_> = vlans
            .iter()
            .map(|it| (it.first, it.last, it.is_pvid))
            .collect();
        assert_eq!(
            vlans,
            [
                (1, 1, false),
                (10, 11, false),
                (13, 20, false),
                (30, 30, true)
            ]
        );
    });
}

/// SW-1: a learned station does not age while the kernel is told that it is used, stays a learned
/// one, and ages afterwards.
#[test]
fn a_station_in_use_does_not_age() {
    in_namespace(|| {
        // The kernel looks for stations that have aged every few seconds at most.
        ip("link add br0 type bridge ageing_time 200");
        ip("link set left master br0");
        ip("link set br0 up");
        netns::run("bridge fdb add 02:00:00:00:07:02 dev left master dynamic").unwrap();
        let mut watch = open();
        let key = FdbKey {
            bridge: watch.mirror().link_named("br0").unwrap().index,
            vlan: 0,
            mac: [2, 0, 0, 0, 7, 2],
        };
        let entry = *watch.mirror().fdb_entry(&key).expect("it was set");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let end = monotonic() + Span::from_secs(6);
        runtime.block_on(async {
            let requests = Requests::connect().unwrap();
            while monotonic() < end {
                requests.use_station(&entry).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
        });
        follow(&mut watch, Span::from_millis(50));
        assert_eq!(watch.mirror().fdb_entry(&key), Some(&entry));
        compare(&mut watch, "use");
        let end = monotonic() + Span::from_secs(20);
        while watch.mirror().fdb_entry(&key).is_some() {
            assert!(monotonic() < end, "it does not age");
            follow(&mut watch, Span::from_millis(200));
        }
    });
}

/// SW-2: routes of all kinds are followed, and events alone make the state that a dump makes.
#[test]
fn events_lead_to_the_state_that_a_dump_shows() {
    in_namespace(|| {
        let mut watch = open();
        let steps = [
            "route add 10.9.0.0/16 via 10.0.0.2",
            "route replace 10.9.0.0/16 via 10.0.0.3",
            "route replace 10.9.0.0/16 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2",
            "route add 10.9.0.0/16 via 10.0.0.9 metric 50",
            "route del 10.9.0.0/16 metric 50",
            "route append 10.9.0.0/16 via 10.0.0.7",
            "route prepend 10.9.0.0/16 via 10.0.0.8",
            "route del 10.9.0.0/16 via 10.0.0.8",
            "route add blackhole 10.10.0.0/16",
            "route add prohibit 10.11.0.0/16",
            "route add 10.12.0.0/16 via inet6 fe80::5 dev left",
            "-6 route add 2001:db8:1::/48 via 2001:db8::2",
            "-6 route append 2001:db8:1::/48 via 2001:db8::3",
            "-6 route append 2001:db8:1::/48 via 2001:db8::4",
            "-6 route del 2001:db8:1::/48 via 2001:db8::3",
            "-6 route replace 2001:db8:1::/48 via 2001:db8::5",
            "-6 route add unreachable 2001:db8:2::/48",
            "-6 route add 2001:db8:3::/48 from 2001:db8:4::/48 via 2001:db8::2",
            "-6 route del 2001:db8:3::/48 from 2001:db8:4::/48 via 2001:db8::2",
            "route add 10.13.0.0/16 tos 0x10 via 10.0.0.2",
            "route add 10.14.0.0/16 via 10.0.0.2 table default",
            "rule add from 10.0.0.0/8 iif left lookup 100",
            "rule add to 10.99.0.0/16 fwmark 7 ipproto udp blackhole",
            "rule add not from 10.0.0.0/8 lookup main",
            "-6 rule add tos 0x10 lookup 100",
            "rule del from 10.0.0.0/8 iif left lookup 100",
            "link add tunnel type vxlan id 5 dstport 4789 dev left local 10.0.0.1",
            "link add bridge type bridge",
            "link set tunnel master bridge",
            "neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev left",
            "neigh replace 10.0.0.2 lladdr 02:00:00:00:00:03 dev left nud stale",
            "neigh del 10.0.0.2 dev left",
            "nexthop add id 1 via 10.0.0.2 dev left",
            "nexthop add id 2 via 10.0.1.2 dev right",
            "nexthop add id 10 group 1,3/2,1",
            "nexthop add id 11 group 1/2 type resilient buckets 8",
            "route add 10.13.0.0/16 nhid 10",
            "nexthop replace id 1 via 10.0.0.4 dev left",
            "nexthop replace id 10 group 1/2",
            "nexthop del id 11",
            "nexthop del id 1",
            "address add 10.0.5.1/24 dev left",
            "address del 10.0.5.1/24 dev left",
            "link set left mtu 1400",
            "link set left down",
            "link set left up",
            "link set right down",
            "nexthop flush",
            "link del left",
        ];
        for step in steps {
            ip(step);
            follow(&mut watch, Span::from_millis(90));
            compare(&mut watch, step);
        }
        assert_eq!(watch.follower().statistics().malformed, 0);
    });
}

/// SW-2: routes of one key that differ only in what changes nothing here are several routes: when
/// one goes the other is left, and the first of them is used.
#[test]
fn routes_that_hardly_differ_are_several() {
    in_namespace(|| {
        let mut watch = open();
        let mut step = |command: &str| {
            ip(command);
            follow(&mut watch, Span::from_millis(90));
            compare(&mut watch, command);
        };
        let ways = [
            "advmss 1300",
            "initcwnd 20",
            "quickack 1",
            "realm 7",
            "onlink",
        ];
        for (number, way) in ways.iter().enumerate() {
            let to = format!("10.{}.0.0/16 via 10.0.0.2 dev left", 20 + number);
            step(&format!("route add {to}"));
            step(&format!("route append {to} {way}"));
            step(&format!("route del {to}"));
        }
        for (number, way) in ways.iter().enumerate() {
            let to = format!("10.{}.0.0/16", 30 + number);
            step(&format!("route add {to} via 10.0.0.2 dev left metric 5"));
            step(&format!(
                "route prepend {to} via 10.0.0.3 dev left metric 5"
            ));
            step(&format!(
                "route append {to} via 10.0.0.3 dev left metric 5 {way}"
            ));
        }
        for (number, way) in ways.iter().enumerate() {
            let left = hops(&watch, &key(&format!("10.{}.0.0/16", 20 + number), 0));
            assert_eq!(left, [("10.0.0.2".to_owned(), 1)]);
            let first = hops(&watch, &key(&format!("10.{}.0.0/16", 30 + number), 5));
            assert_eq!(first, [("10.0.0.3".to_owned(), 1)], "{way}");
        }
    });
}

/// SW-2: weights, gateways of the other family and next hop objects arrive as they were set.
#[test]
fn routes_are_read_as_they_were_set() {
    in_namespace(|| {
        let mut watch = open();
        ip("route add 10.9.0.0/16 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2 weight 200");
        ip("route add 10.12.0.0/16 via inet6 fe80::5 dev left metric 7");
        ip("-6 route add 2001:db8:1::/48 nexthop via 2001:db8::2 weight 2 nexthop via 2001:db8::3");
        ip("route add unreachable 10.10.0.0/16");
        ip("nexthop add id 1 via 10.0.0.2 dev left");
        ip("nexthop add id 2 via 10.0.1.2 dev right");
        ip("nexthop add id 10 group 1,3/2,1");
        ip("route add 10.13.0.0/16 nhid 10");
        let changes = follow(&mut watch, Span::from_millis(30));
        let named = |name: &str, weight| (name.to_owned(), weight);
        assert!(changes.contains(&Change::Route(key("10.9.0.0/16", 0))));
        assert_eq!(
            hops(&watch, &key("10.9.0.0/16", 0)),
            [named("10.0.0.2", 3), named("10.0.1.2", 200)]
        );
        assert_eq!(hops(&watch, &key("10.12.0.0/16", 7)), [named("fe80::5", 1)]);
        let v6 = key("2001:db8:1::/48", 1024);
        assert_eq!(
            hops(&watch, &v6),
            [named("2001:db8::2", 2), named("2001:db8::3", 1)]
        );
        let kind = watch.mirror().route(&key("10.10.0.0/16", 0)).unwrap().kind;
        assert_eq!(kind, RouteKind::Unreachable);
        assert_eq!(
            watch
                .mirror()
                .route(&key("10.13.0.0/16", 0))
                .unwrap()
                .next_hop,
            Some(10)
        );
        let group = &watch.mirror().next_hop(10).unwrap().kind;
        assert_eq!(*group, NextHopKind::Group(vec![(1, 3), (2, 1)]));
    });
}

/// SW-3: a resilient group arrives with its buckets and timers, changes with them, and loses
/// members that are removed, by events as by a dump.
#[test]
fn resilient_groups_are_read_as_they_were_set() {
    in_namespace(|| {
        let mut watch = open();
        ip("nexthop add id 1 via 10.0.0.2 dev left");
        ip("nexthop add id 2 via 10.0.1.2 dev right");
        ip("nexthop add id 10 group 1,3/2 type resilient \
            buckets 128 idle_timer 60 unbalanced_timer 300");
        ip("nexthop add id 11 group 1/2 type resilient buckets 7");
        let mut expect = |id, members: &[(u32, u32)], (buckets, idle, unbalanced)| {
            let terms = Resilience {
                buckets,
                idle: Span::from_secs(idle),
                unbalanced: Span::from_secs(unbalanced),
            };
            let expected = NextHopKind::Resilient(members.to_vec(), terms);
            until(&mut watch, |mirror| {
                mirror.next_hop(id).is_some_and(|it| it.kind == expected)
            });
            assert_eq!(
                open().mirror().next_hop(id).expect("the group").kind,
                expected
            );
            watch.mirror().next_hops().count()
        };
        expect(10, &[(1, 3), (2, 1)], (128, 60, 300));
        // What nobody gave is the kernel's.
        expect(11, &[(1, 1), (2, 1)], (7, 120, 0));
        ip("nexthop replace id 10 group 2 type resilient idle_timer 5");
        expect(10, &[(2, 1)], (128, 5, 300));
        ip("nexthop del id 2");
        assert_eq!(
            expect(11, &[(1, 1)], (7, 120, 0)),
            2,
            "the group that has nobody is gone"
        );
        let statistics = watch.follower().statistics();
        assert_eq!(statistics.malformed, 0);
    });
}

/// SW-2: a link that goes down takes routes with it silently; the mirror notices soon.
#[test]
fn link_down_is_followed_by_a_resync() {
    in_namespace(|| {
        ip("nexthop add id 1 via 10.0.0.2 dev left");
        ip("route add 10.13.0.0/16 nhid 1");
        ip("route add 10.14.0.0/16 via 10.0.0.2");
        let mut watch = open();
        assert!(watch.mirror().route(&key("10.14.0.0/16", 0)).is_some());
        ip("link set left down");
        until(&mut watch, |mirror| {
            let is_gone = |prefix| mirror.route(&key(prefix, 0)).is_none();
            is_gone("10.13.0.0/16") && is_gone("10.14.0.0/16") && mirror.next_hop(1).is_none()
        });
        until_so(&mut watch, |watch| {
            watch.follower().statistics().resyncs[ResyncReason::Link as usize] > 0
        });
        assert!(!watch.mirror().link_named("left").unwrap().is_usable());
    });
}

/// SW-2: messages that the kernel could not deliver (ENOBUFS) are made good by a dump.
#[test]
fn overruns_are_made_good() {
    in_namespace(|| {
        let mut watch = Watch::open(Settings::default(), 4096).unwrap();
        watch
            .sync(monotonic() + Span::from_secs(60), &mut Vec::new())
            .unwrap();
        let mut batch = String::new();
        for n in 0..2000 {
            writeln!(
                batch,
                "route add 10.{}.{}.0/24 via 10.0.0.2",
                100 + n / 250,
                n % 250
            )
            .unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), batch).unwrap();
        ip(&format!("-batch {}", file.path().display()));
        until_so(&mut watch, |watch| {
            let statistics = watch.follower().statistics();
            statistics.overruns > 0 && statistics.corrections > 0
        });
        compare(&mut watch, "the batch");
        assert!(watch.mirror().routes().count() > 2000);
    });
}

/// SW-2: of a full table that is installed while the reader has no core no message is lost: nothing
/// has to be dumped to know the last route.
#[test]
fn a_full_table_waits_for_its_reader() {
    in_namespace(|| {
        let mut watch = open();
        let dumped = watch.follower().statistics().last_end;
        let mut batch = String::new();
        for n in 0..500_000 {
            let address = std::net::Ipv4Addr::from_bits(0x1400_0000 + n * 256);
            writeln!(batch, "route add {address}/24 via 10.0.0.2").unwrap();
        }
        batch += "route add 10.9.0.0/16 via 10.0.1.2\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), batch).unwrap();
        ip(&format!("-batch {}", file.path().display()));
        let last = key("10.9.0.0/16", 0);
        let took = until(&mut watch, |mirror| mirror.route(&last).is_some());
        let statistics = *watch.follower().statistics();
        assert_eq!(statistics.overruns, 0, "{statistics:?}");
        assert_eq!(statistics.last_end, dumped, "{statistics:?}");
        println!("500,000 messages that had waited were read in {took}");
        ip("route replace 10.9.0.0/16 via 10.0.0.2");
        let hop = hops(&watch, &last);
        let took = until(&mut watch, |mirror| {
            let route = mirror.route(&last).expect("it stays");
            route.hops[0].gateway == Some("10.0.0.2".parse().unwrap())
        });
        println!("a route that changed then, from {hop:?}: {took}");
        // Its message said so, not a dump.
        let statistics = *watch.follower().statistics();
        assert_eq!(statistics.last_end, dumped, "{statistics:?}");
        let mut second = Watch::open(Settings::default(), RECEIVE_BUFFER).unwrap();
        let began = monotonic();
        second
            .sync(began + Span::from_secs(60), &mut Vec::new())
            .unwrap();
        println!("and a dump: {}", monotonic().since(began));
        // All of them, not most: each as the kernel has it.
        let (told, dumped) = (watch.mirror(), second.mirror());
        assert_eq!(told.routes().count(), dumped.routes().count());
        for (key, route) in dumped.routes() {
            let known = told.route(key).unwrap_or_else(|| panic!("{key:?}"));
            assert_eq!(
                (&known.hops, known.kind),
                (&route.hops, route.kind),
                "{key:?}"
            );
        }
    });
}

/// SW-2: the kernel resolves a neighbour when asked, and says how it would send.
#[test]
fn the_kernel_resolves_what_it_is_asked_to() {
    in_namespace(|| {
        use common::netlink::{NeighbourKey, Requests};
        ip("route add 10.9.0.0/16 via 10.0.0.2");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut watch = open();
        let left = watch.mirror().link_named("left").unwrap().index;
        let wanted = NeighbourKey {
            ifindex: left,
            address: "10.0.0.2".parse().unwrap(),
        };
        let (found, missing) = runtime.block_on(async {
            let requests = Requests::connect().unwrap();
            requests.use_neighbour(wanted, false).await.unwrap();
            requests.use_neighbour(wanted, true).await.unwrap();
            // Of one that came unnoticed the kernel forgets nothing.
            requests.use_neighbour(wanted, false).await.unwrap_err();
            (
                requests
                    .route_to("10.9.1.1".parse().unwrap(), None)
                    .await
                    .unwrap(),
                requests
                    .route_to("172.16.0.1".parse().unwrap(), None)
                    .await
                    .unwrap(),
            )
        });
        follow(&mut watch, Span::from_millis(30));
        assert!(watch.mirror().neighbour(&wanted).is_none());
        // Nobody answers on the other end: after three requests the kernel says so.
        until(&mut watch, |mirror| {
            let known = mirror.neighbour(&wanted);
            known.is_some_and(|known| known.state.name() == "FAILED")
        });
        let found = found.unwrap();
        assert_eq!((found.ifindex, found.gateway), (left, Some(wanted.address)));
        assert_eq!(found.source, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(missing, None);
    });
}

/// SW-2: what the administrator set is known as such: the kernel must not be asked for it, or it
/// forgets the address.
#[test]
fn static_neighbours_are_not_to_be_asked_for() {
    in_namespace(|| {
        use common::netlink::NeighbourKey;
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev left");
        let mut watch = open();
        follow(&mut watch, Span::from_millis(50));
        let key = |address: &str| NeighbourKey {
            ifindex: watch.mirror().link_named("left").unwrap().index,
            address: address.parse().unwrap(),
        };
        assert!(watch.mirror().is_static_neighbour(&key("10.0.0.2")));
        assert!(!watch.mirror().is_static_neighbour(&key("10.0.0.3")));
    });
}

/// The IPv4 routes and the next hop objects.
fn forwarding(mirror: &Mirror) -> Vec<String> {
    let routes = mirror
        .routes()
        .filter(|(key, _)| key.prefix.addr().is_ipv4());
    let objects = mirror.next_hops().map(|object| format!("{object:?}"));
    // Hops that come with an object are not looked at.
    let routes = routes.map(|(key, route)| {
        let hops = route.hops.iter().filter(|_| route.next_hop.is_none());
        (key, hops.collect::<Vec<_>>(), route.next_hop, route.kind)
    });
    let mut all: Vec<String> = routes
        .map(|route| format!("{route:?}"))
        .chain(objects)
        .collect();
    all.sort();
    all
}

/// Reads events, and what is known of forwarding when the next dump begins.
fn known_before_the_dump(watch: &mut Watch) -> Vec<String> {
    let dumps = |watch: &Watch| watch.follower().statistics().resyncs.iter().sum::<u64>();
    let mut poll = PollSet::new();
    let before = dumps(watch);
    loop {
        let known = forwarding(watch.mirror());
        let now = monotonic();
        let more = watch.pump(now, &mut Vec::new()).unwrap();
        if dumps(watch) > before {
            return known;
        }
        if !more {
            let until = watch.deadline();
            poll.wait([watch.as_fd()], until.since(now)).unwrap();
        }
    }
}

/// SW-2: what the kernel removes without a word is known at once from what it says: the dump that
/// follows finds nothing that is wrong.
#[test]
fn silent_removals_are_known_without_a_dump() {
    in_namespace(|| {
        ip("link add third type veth peer name fourth");
        ip("link set third up");
        ip("link set fourth up");
        ip("address add 10.0.3.1/24 dev third");
        let mut watch = open();
        let setup = [
            "route add 10.9.0.0/16 via 10.0.0.2",
            "route add 10.9.0.0/16 via 10.0.1.2 metric 50",
            "route add 10.10.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.1.2",
            "route add 10.11.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.0.3",
            "route add 10.12.0.0/16 via 10.0.1.2 src 10.0.3.1",
            "route add local 77.7.0.0/16 dev left",
            "nexthop add id 1 via 10.0.0.2 dev left",
            "nexthop add id 2 via 10.0.3.2 dev third",
            "nexthop add id 9 group 1/2",
            "nexthop add id 8 group 1",
            "route add 10.13.0.0/16 nhid 1",
            "route add 10.14.0.0/16 nhid 9",
            "route add 10.15.0.0/16 nhid 8",
            "route add 10.16.0.0/16 nhid 2",
            "route add 10.17.0.0/16 via 10.0.3.2",
            "-6 route add 2001:db8:1::/48 via 2001:db8::2",
        ];
        setup.into_iter().for_each(ip);
        follow(&mut watch, Span::from_millis(200));
        compare(&mut watch, "the beginning");
        let silent = [
            "link set left down",
            "link set left up",
            "nexthop del id 2",
            "address del 10.0.3.1/24 dev third",
            "address flush dev right",
            "link del third",
        ];
        for step in silent {
            ip(step);
            let known = known_before_the_dump(&mut watch);
            assert_eq!(known, forwarding(open().mirror()), "after {step}");
            follow(&mut watch, Span::from_millis(300));
            compare(&mut watch, step);
        }
    });
}

/// After so long it never does. On a busy machine a dump of a full table takes ten seconds, and
/// rests for four times as long before it.
const NEVER: Span = Span::from_secs(300);

/// Reads until `holds`, and how long that took.
fn until(watch: &mut Watch, holds: impl Fn(&Mirror) -> bool) -> Span {
    until_so(watch, |watch| holds(watch.mirror()))
}

/// The same of what it says of itself.
fn until_so(watch: &mut Watch, holds: impl Fn(&Watch) -> bool) -> Span {
    let began = monotonic();
    let mut poll = PollSet::new();
    while !holds(watch) {
        let now = monotonic();
        assert!(now.since(began) < NEVER, "it never does");
        let more = watch.pump(now, &mut Vec::new()).unwrap();
        if !more && !holds(watch) {
            let until = watch.deadline();
            poll.wait([watch.as_fd()], until.since(now)).unwrap();
        }
    }
    monotonic().since(began)
}

/// How long this thread was ready to run and did not: schedstat(5).
fn waited() -> Span {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("it is there");
    let nanos = text.split_whitespace().nth(1);
    Span::from_nanos(nanos.and_then(|it| it.parse().ok()).expect("a number"))
}

/// As [`until`], less the time in which the machine let the thread wait for a core.
fn until_at_work(watch: &mut Watch, holds: impl Fn(&Mirror) -> bool) -> Span {
    let before = waited();
    let took = until(watch, holds);
    let machine = waited().nanos() - before.nanos();
    Span::from_nanos(took.nanos().saturating_sub(machine))
}
