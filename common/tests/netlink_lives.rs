//! Hops and routes that end and come back without a word of the kernel, in network namespaces of
//! their own. The oracle is what the kernel shows when it is asked.

use common::netlink::{RECEIVE_BUFFER, Settings, Watch};
use common::sys::{PollSet, monotonic};
use common::time::Span;
use std::os::fd::AsFd;

fn ip(arguments: &str) {
    netns::run(&format!("ip {arguments}")).expect("the kernel does it");
}

fn in_namespace(test: fn()) {
    netns::in_new(|| {
        ip("link set lo up");
        for (one, other, number) in [("left", "right", 0), ("third", "fourth", 3)] {
            ip(&format!("link add {one} type veth peer name {other}"));
            ip(&format!("link set {one} up"));
            ip(&format!("link set {other} up"));
            ip(&format!("address add 10.0.{number}.1/24 dev {one}"));
            let address = format!("2001:db8:{number}::1/64");
            ip(&format!("-6 address add {address} dev {one} nodad"));
        }
        test();
    });
}

fn open() -> Watch {
    let mut watch = Watch::open(Settings::default(), RECEIVE_BUFFER).unwrap();
    let limit = monotonic() + Span::from_secs(60);
    watch.sync(limit, &mut Vec::new()).unwrap();
    watch
}

/// Reads events for `span`.
fn follow(watch: &mut Watch, span: Span) {
    let end = monotonic() + span;
    let mut poll = PollSet::new();
    loop {
        let now = monotonic();
        if !watch.pump(now, &mut Vec::new()).unwrap() {
            if now >= end {
                return;
            }
            let until = watch.deadline().min(end);
            poll.wait([watch.as_fd()], until.since(now)).unwrap();
        }
    }
}

/// The routes to `prefixes`, with what is dead of them.
fn routes(watch: &Watch) -> Vec<String> {
    let routes = watch.mirror().routes();
    let routes = routes.filter(|(_, route)| route.protocol != 2);
    let mut all: Vec<String> = routes.map(|route| format!("{route:?}")).collect();
    all.sort();
    all
}

/// SW-2, SW-3: hops die with the last IPv4 address of their interface and come back with a new one,
/// or with the interface; those of routes that are made meanwhile live.
#[test]
fn hops_without_addresses_are_dead() {
    in_namespace(|| {
        let mut watch = open();
        let hops = "nexthop via inet6 fe80::1 dev left nexthop via inet6 fe80::3 dev third";
        let dead = |watch: &Watch| {
            let routes = watch.mirror().routes();
            let hops = routes.flat_map(|(_, route)| route.hops.iter());
            hops.filter(|hop| hop.dead).count()
        };
        for (step, expected) in [
            (format!("route add 10.9.0.0/16 {hops}"), 0),
            ("address add 10.0.4.1/24 dev third".to_owned(), 0),
            ("address del 10.0.3.1/24 dev third".to_owned(), 0),
            ("address del 10.0.4.1/24 dev third".to_owned(), 1),
            // It has the hops of the other one in the kernel, too.
            (format!("route add 10.10.0.0/16 {hops}"), 2),
            (format!("route add 10.11.0.0/16 {hops} weight 2"), 2),
            ("link set fourth down".to_owned(), 2),
            ("link set fourth up".to_owned(), 2),
            ("address add 10.0.3.1/24 dev third".to_owned(), 0),
            ("address del 10.0.3.1/24 dev third".to_owned(), 3),
            ("link set third down".to_owned(), 0),
            ("link set third up".to_owned(), 0),
            ("address add 10.0.3.1/24 dev third".to_owned(), 0),
            ("address del 10.0.3.1/24 dev third".to_owned(), 3),
            ("address del 10.0.0.1/24 dev left".to_owned(), 0),
        ] {
            ip(&step);
            follow(&mut watch, Span::from_millis(200));
            assert_eq!(routes(&watch), routes(&open()), "after {step}");
            assert_eq!(dead(&watch), expected, "after {step}");
        }
        assert_eq!(routes(&watch), Vec::<String>::new());
    });
}

/// SW-2: routes of IPv6 end on time, though the kernel clears them away later; those whose life was
/// prolonged go on, also if the kernel did not say so.
#[test]
fn lifetimes_end_on_time() {
    in_namespace(|| {
        let mut watch = open();
        let via = "via 2001:db8:0::2";
        for (prefix, seconds) in [("a", 3), ("b", 3), ("c", 100)] {
            let prefix = format!("2001:db8:{prefix}::/48");
            ip(&format!("-6 route add {prefix} {via} expires {seconds}"));
        }
        ip(&format!("-6 route add 2001:db8:d::/48 {via}"));
        let began = monotonic();
        let left = |watch: &Watch| routes(watch).len();
        follow(&mut watch, Span::from_millis(200));
        assert_eq!(left(&watch), 4);
        // The prefix route of an address: its life changes without a word.
        ip("-6 address add 2001:db8:e::1/64 dev left nodad valid_lft 4 preferred_lft 4");
        follow(&mut watch, Span::from_millis(200));
        ip("-6 address change 2001:db8:e::1/64 dev left nodad valid_lft 60 preferred_lft 60");
        ip(&format!(
            "-6 route replace 2001:db8:b::/48 {via} expires 60"
        ));
        let so_far = monotonic().since(began);
        follow(&mut watch, Span::from_nanos(2_700_000_000 - so_far.nanos()));
        assert_eq!(left(&watch), 4);
        follow(&mut watch, Span::from_millis(500));
        assert_eq!(left(&watch), 3);
        // Who looks now finds the same, though the kernel still shows the one that ended.
        assert_eq!(routes(&watch), routes(&open()));
        follow(&mut watch, Span::from_millis(1_800));
        let connected = "2001:db8:e::/64".parse().unwrap();
        let mut known = watch.mirror().routes();
        assert!(known.any(|(key, _)| key.prefix == connected));
    });
}
