//! The same packets through a router of Linux alone and through switchd, in network namespaces:
//! what leaves, and by which port, must be the same. The oracle is the kernel that the test runs
//! on.
//!
//! ```text
//!    e1 10.1.0.2 ──── p1 10.1.0.1 ┌────┐ p2 10.2.0.1 ──── e2 10.2.0.2
//!       (namespace of the ends)   │ rt │                     (the same)
//!                                 └────┘
//! ```

mod packets;
mod rig;
mod unused;

use packets::{V4, V6, icmp4, icmp6};
use rig::{Rig, assert_same};

/// A frame, and what it is.
type Case = (&'static str, Vec<u8>);

/// SW-1: packets of every size, by routes with an MTU, locked or not: forwarded, fragmented, or
/// answered with the MTU of the route.
#[test]
fn sizes_and_route_mtus() {
    let udp = |dst: &str, len: usize| V4::new("10.1.0.2", dst).len(len);
    let udp6 = |dst: &str, len: usize| V6::new("2001:db8:1::2", dst).len(len);
    let cases = vec![
        ("fits", udp("10.2.0.2", 1500).df().frame()),
        (
            "too big for the link, DF",
            udp("10.3.0.1", 1400).df().frame(),
        ),
        ("route MTU, fits", udp("10.3.0.1", 1200).df().frame()),
        ("route MTU, fragmented", udp("10.3.0.1", 1400).frame()),
        ("locked MTU, fragmented", udp("10.4.0.1", 1500).frame()),
        ("locked MTU, DF", udp("10.4.0.1", 601).df().frame()),
        ("odd MTU, fragmented", udp("10.8.0.1", 1000).frame()),
        (
            "a later fragment is fragmented",
            udp("10.4.0.1", 1300).fragment(100 | 0x2000).frame(),
        ),
        (
            "the last fragment is fragmented",
            udp("10.4.0.1", 1300).fragment(100).frame(),
        ),
        (
            "a later fragment with DF",
            udp("10.4.0.1", 1300).fragment(100).df().frame(),
        ),
        (
            "no-operations",
            udp("10.4.0.1", 1300).options(&[1, 1, 1, 1]).frame(),
        ),
        ("TTL before size", udp("10.4.0.1", 1300).df().ttl(1).frame()),
        (
            "IPv6, MTU without lock",
            udp6("2001:db8:3::1", 1400).frame(),
        ),
        ("IPv6, locked", udp6("2001:db8:4::1", 1400).frame()),
        ("IPv6, locked, fits", udp6("2001:db8:4::1", 1300).frame()),
        ("IPv6, below its least", udp6("2001:db8:8::1", 1281).frame()),
        ("IPv6, least", udp6("2001:db8:8::1", 1280).frame()),
    ];
    Rig::new("size", &[]).compare(&cases);
}

/// SW-1: an MTU of IPv6 that is less than that of the link holds for packets of IPv6, whether their
/// neighbour is known or not, and for no others.
#[test]
fn an_mtu_of_ipv6_holds_for_ipv6() {
    let udp6 = |dst: &str, len: usize| V6::new("2001:db8:1::2", dst).len(len).frame();
    Rig::new("mtu6", &["net.ipv6.conf.p2.mtu=1400"]).compare(&[
        (
            "IPv4",
            V4::new("10.1.0.2", "10.2.0.2").len(1500).df().frame(),
        ),
        ("fits", udp6("2001:db8:2::2", 1400)),
        ("too big", udp6("2001:db8:2::2", 1401)),
        ("too big by a gateway", udp6("2001:db8:13::1", 1500)),
        ("too big for nobody", udp6("2001:db8:2::99", 1500)),
    ]);
}

/// SW-1: sources that are no single host, that are the router's own, of another network, and
/// destinations that are none.
fn sources() -> Vec<Case> {
    let from = |src: &str| V4::new(src, "10.2.0.2").frame();
    let from6 = |src: &str| V6::new(src, "2001:db8:2::2").frame();
    let to = |dst: &str| V4::new("10.1.0.2", dst).frame();
    vec![
        ("a host", from("10.1.0.2")),
        ("a host of another network", from("192.0.2.1")),
        ("a host behind another port", from("10.2.0.77")),
        ("a host behind a multipath route", from("10.9.0.1")),
        ("0.0.0.0", from("0.0.0.0")),
        ("0/8", from("0.1.2.3")),
        ("127/8", from("127.0.0.1")),
        ("multicast", from("224.0.0.1")),
        ("broadcast", from("255.255.255.255")),
        ("own address of the port", from("10.1.0.1")),
        ("own address of another port", from("10.2.0.1")),
        ("own address of lo", from("10.99.0.1")),
        ("blackholed source", from("10.5.0.1")),
        ("unreachable source", from("10.6.0.1")),
        ("own broadcast", from("10.1.0.255")),
        ("to 0/8", to("0.1.2.3")),
        ("to 127/8", to("127.0.0.1")),
        ("to 240/4", to("240.0.0.1")),
        ("to a network's broadcast", to("10.2.0.255")),
        ("IPv6 host", from6("2001:db8:1::2")),
        ("IPv6 ::", from6("::")),
        ("IPv6 ::1", from6("::1")),
        ("IPv6 multicast", from6("ff02::1")),
        ("IPv6 mapped", from6("::ffff:10.1.0.2")),
        ("IPv6 own address", from6("2001:db8:1::1")),
        (
            "no route, own source",
            V4::new("10.1.0.1", "172.16.0.1").frame(),
        ),
    ]
}

/// SW-1, RFC 4443 §3.1: packets of IPv6 from an address of their link only. The sender learns that
/// they go beyond it, they go back to their link, or have the fate of any other.
#[test]
fn link_local_sources() {
    let from = "fe80::ff:fe00:102";
    let to = |dst: &str| V6::new(from, dst);
    let mut cases = vec![
        ("to another link", to("2001:db8:2::2").frame()),
        ("long", to("2001:db8:2::2").len(1500).frame()),
        ("too long", to("2001:db8:4::1").len(1400).frame()),
        ("expired", to("2001:db8:2::2").ttl(1).frame()),
        ("back to its link", to("2001:db8:1::2").frame()),
        ("to the router", to("2001:db8:1::1").frame()),
        ("to the router's other link", to("2001:db8:2::1").frame()),
        ("no route", to("2001:db8:ffff::1").frame()),
        ("blackhole", to("2001:db8:5::1").frame()),
        ("unreachable", to("2001:db8:6::1").frame()),
        ("prohibited", to("2001:db8:7::1").frame()),
        ("to a link-local address", to("fe80::1").frame()),
        (
            "unknown sender",
            V6::new("fe80::77", "2001:db8:2::2").frame(),
        ),
        ("febf::", V6::new("febf::1", "2001:db8:2::2").frame()),
        ("fec0::", V6::new("fec0::1", "2001:db8:2::2").frame()),
    ];
    cases.push(("an error", icmp6(from, "2001:db8:2::2", 1)));
    let rig = Rig::new("link", &[]);
    let Some((linux, ours)) = rig.run(&cases) else {
        return;
    };
    assert_same(&cases, &linux, &ours);
    // ICMPv6, destination unreachable, beyond scope of source address.
    assert_eq!(linux[0][0][0].get(108..112), Some("0102"), "{:?}", linux[0]);
    assert!(linux[0][1].is_empty());
}

/// SW-1: sources, without any filter.
#[test]
fn martians() {
    Rig::new("mart", &[]).compare(&sources());
}

/// SW-1: sources, with `rp_filter` strict, loose, loose at a port without address, own addresses
/// accepted, a port that does not forward, networks that are local.
#[test]
fn source_rules() {
    for (name, sysctls) in [
        ("str", &["net.ipv4.conf.p1.rp_filter=1"][..]),
        ("loo", &["net.ipv4.conf.all.rp_filter=2"]),
        (
            "own",
            &[
                "net.ipv4.conf.p1.accept_local=1",
                "net.ipv4.conf.p1.rp_filter=2",
            ],
        ),
        ("all", &["net.ipv4.conf.all.accept_local=1"]),
        ("off", &["net.ipv4.conf.p1.forwarding=0"]),
        ("bc", &["net.ipv4.conf.all.bc_forwarding=1"]),
    ] {
        println!("{sysctls:?}");
        Rig::new(name, sysctls).compare(&sources());
    }
    let rig = Rig::new("net", &[]);
    rig.route("route add local 192.0.2.0/24 dev lo");
    rig.compare(&sources());
    let rig = Rig::new("bare", &["net.ipv4.conf.p1.rp_filter=2"]);
    rig.route("address flush dev p1 scope global");
    rig.route("route add 10.1.0.0/24 dev p1");
    rig.compare(&sources());
}

/// SW-1: link-local and reserved sources are not forwarded (RFC 3927 §2.7, RFC 1112 §4), though
/// Linux does.
#[test]
fn sources_that_linux_forwards() {
    let from = |src: &str| V4::new(src, "10.2.0.2").frame();
    let cases = vec![
        ("169.254/16", from("169.254.1.1")),
        ("240/4", from("240.0.0.1")),
        ("255/8", from("255.1.1.1")),
    ];
    let Some((linux, ours)) = Rig::new("resv", &[]).run(&cases) else {
        return;
    };
    for ((name, _), (linux, ours)) in cases.iter().zip(linux.iter().zip(&ours)) {
        assert_eq!((linux[1].len(), &ours[1]), (1, &vec![]), "{name}");
    }
}

/// SW-1: who is told of a packet that is not forwarded, by whom, and how much of it.
#[test]
fn errors() {
    let expired = |src: &str| V4::new(src, "10.2.0.2").ttl(1);
    let expired6 = |src: &str| V6::new(src, "2001:db8:2::2").ttl(1);
    let to = |dst: &str| V4::new("10.1.0.2", dst).frame();
    let to6 = |dst: &str| V6::new("2001:db8:1::2", dst).frame();
    let mut cases: Vec<Case> = vec![
        ("expired", expired("10.1.0.2").frame()),
        ("expired, long", expired("10.1.0.2").len(1500).frame()),
        ("expired, TOS", expired("10.1.0.2").tos(0x5d).frame()),
        (
            "expired, from a second network",
            expired("10.11.0.2").frame(),
        ),
        (
            "expired, from behind another port",
            expired("10.2.0.77").frame(),
        ),
        (
            "expired, first fragment",
            expired("10.1.0.2").fragment(0x2000).frame(),
        ),
        (
            "expired, later fragment",
            expired("10.1.0.2").fragment(9).frame(),
        ),
        ("no route", to("172.16.0.1")),
        ("blackhole", to("10.5.0.1")),
        ("unreachable", to("10.6.0.1")),
        ("prohibited", to("10.7.0.1")),
        ("thrown", to("10.13.1.1")),
        ("IPv6 thrown", to6("2001:db8:13:1::1")),
        ("IPv6 expired", expired6("2001:db8:1::2").frame()),
        (
            "IPv6 expired, long",
            expired6("2001:db8:1::2").len(1500).frame(),
        ),
        (
            "IPv6 expired, first fragment",
            expired6("2001:db8:1::2").fragment(0, 17).frame(),
        ),
        (
            "IPv6 expired, later fragment",
            expired6("2001:db8:1::2").fragment(8, 17).frame(),
        ),
        (
            "IPv6 expired, later fragment of ICMPv6",
            expired6("2001:db8:1::2").fragment(8, 58).frame(),
        ),
        ("IPv6 no route", to6("2001:db8:ffff::1")),
        ("IPv6 blackhole", to6("2001:db8:5::1")),
        ("IPv6 unreachable", to6("2001:db8:6::1")),
        ("IPv6 prohibited", to6("2001:db8:7::1")),
        ("noarp neighbour", to("10.2.0.9")),
    ];
    for kind in [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 42, 255,
    ] {
        cases.push(("an ICMP type", icmp4("10.1.0.2", "10.2.0.2", kind)));
    }
    for kind in [0, 1, 2, 3, 4, 100, 127, 128, 129, 135, 200, 255] {
        cases.push((
            "an ICMPv6 type",
            icmp6("2001:db8:1::2", "2001:db8:2::2", kind),
        ));
    }
    Rig::new("icmp", &[]).compare(&cases);
}

/// SW-1: errors have the TTL and the hop limit that are set, those of IPv6 that of the interface
/// that they leave by.
#[test]
fn lives_of_errors() {
    let settings = [
        "net.ipv4.ip_default_ttl=77",
        "net.ipv6.conf.p1.hop_limit=99",
        "net.ipv6.conf.p2.hop_limit=88",
    ];
    let expired6 = |src: &str| V6::new(src, "2001:db8:2::2").ttl(1).frame();
    Rig::new("life", &settings).compare(&[
        ("IPv4", V4::new("10.1.0.2", "10.2.0.2").ttl(1).frame()),
        ("IPv6", expired6("2001:db8:1::2")),
    ]);
}

/// SW-1: tags of VLAN 0 are there for their priority only, however many there are; behind them one
/// of a VLAN without an interface is not.
#[test]
fn tags_for_priorities() {
    let tagged = |frame: Vec<u8>, tags: &[[u8; 4]]| {
        let mut frame = frame;
        frame.splice(12..12, tags.concat());
        frame
    };
    let v4 = || V4::new("10.1.0.2", "10.2.0.2").frame();
    let v6 = || V6::new("2001:db8:1::2", "2001:db8:2::2").frame();
    let (none, some) = ([0x81, 0, 0x60, 0], [0x81, 0, 0x60, 5]);
    let service = [0x88, 0xa8, 0xa0, 0];
    let expired = V4::new("10.1.0.2", "10.2.0.2").ttl(1).frame();
    Rig::new("tags", &[]).compare(&[
        ("one", tagged(v4(), &[none])),
        ("two", tagged(v4(), &[none, none])),
        ("two, IPv6", tagged(v6(), &[none, none])),
        ("two kinds", tagged(v4(), &[service, none])),
        ("three", tagged(v4(), &[none, none, none])),
        ("four", tagged(v4(), &[none, service, none, none])),
        ("one of a VLAN", tagged(v4(), &[some])),
        ("one of a VLAN behind it", tagged(v4(), &[none, some])),
        ("one of a VLAN in front", tagged(v4(), &[some, none])),
        ("expired", tagged(expired, &[none, none])),
    ]);
}

/// SW-1: on a link where nobody asks for MAC addresses, packets go to those that are set, and
/// others to where the kernel sends them.
#[test]
fn links_without_arp() {
    let rig = Rig::new("noarp", &[]);
    rig.route("link set p2 arp off");
    // The kernel has forgotten them.
    for address in ["10.2.0.2", "2001:db8:2::2"] {
        let words = "lladdr 02:00:00:00:02:02 dev p2 nud permanent";
        rig.route(&format!("neighbour replace {address} {words}"));
    }
    rig.route("route add 10.20.0.0/16 via 10.2.0.60");
    let to = |dst: &str| V4::new("10.1.0.2", dst).frame();
    let to6 = |dst: &str| V6::new("2001:db8:1::2", dst).frame();
    rig.compare(&[
        ("a neighbour that is set", to("10.2.0.2")),
        ("another one", to("10.2.0.50")),
        ("a gateway that is set", to("10.3.0.1")),
        ("another one", to("10.20.0.1")),
        ("IPv6, a neighbour that is set", to6("2001:db8:2::2")),
        ("IPv6, another one", to6("2001:db8:2::50")),
        ("IPv6, a gateway that is set", to6("2001:db8:3::1")),
        (
            "too long",
            V4::new("10.1.0.2", "10.3.0.1").len(1400).df().frame(),
        ),
    ]);
}

/// SW-1: errors come from the source of the route to the sender, or from where the packet arrived.
#[test]
fn sources_of_errors() {
    let expired = |src: &str| V4::new(src, "10.2.0.2").ttl(1).frame();
    let expired6 = |src: &str| V6::new(src, "2001:db8:2::2").ttl(1).frame();
    let cases = vec![
        ("connected", expired("10.1.0.2")),
        ("by a gateway", expired("10.60.0.1")),
        ("by a gateway, with a source", expired("10.61.0.1")),
        ("connected, with a source", expired("10.62.0.2")),
        ("by another port", expired("10.2.0.77")),
        ("by another port, with a source", expired("10.63.0.1")),
        ("IPv6, by a gateway", expired6("2001:db8:60::1")),
        ("IPv6, with a source", expired6("2001:db8:61::1")),
    ];
    for (name, inbound) in [("srcout", 0), ("srcin", 1)] {
        let setting = format!("net.ipv4.icmp_errors_use_inbound_ifaddr={inbound}");
        println!("{setting}");
        let rig = Rig::new(name, &[&setting]);
        for words in [
            "address add 2001:db8:99::1/128 dev lo",
            "neighbour add 10.62.0.2 lladdr 02:00:00:00:01:02 dev p1 nud permanent",
            "route add 10.60.0.0/16 via 10.1.0.2",
            "route add 10.61.0.0/16 via 10.1.0.2 src 10.99.0.1",
            "route add 10.62.0.0/24 dev p1 src 10.99.0.1",
            "route add 10.63.0.0/16 via 10.2.0.2 src 10.99.0.1",
            "route add 2001:db8:60::/48 via 2001:db8:1::2",
            "route add 2001:db8:61::/48 via 2001:db8:1::2 src 2001:db8:99::1",
        ] {
            rig.route(words);
        }
        rig.compare(&cases);
    }
}

/// SW-1: a destination gets as many errors as from Linux, also while another one gets too many.
#[test]
fn errors_are_limited_for_each_destination() {
    let rig = Rig::new(
        "limit",
        &[
            "net.ipv4.icmp_ratemask=6168",
            "net.ipv6.icmp.ratelimit=1000",
        ],
    );
    let expired = |src: &str| V4::new(src, "10.2.0.2").ttl(1).frame();
    let expired6 = V6::new("2001:db8:1::2", "2001:db8:2::2").ttl(1).frame();
    let too_long = V4::new("10.1.0.2", "10.4.0.1").len(1300).df().frame();
    let repeated = |name, frame: Vec<u8>| std::iter::repeat_n((name, frame), 24);
    let cases: Vec<Case> = repeated("one", expired("10.1.0.2"))
        .chain([("another one", expired("10.11.0.2"))])
        .chain(repeated("IPv6", expired6))
        .chain(repeated("too long", too_long))
        .collect();
    let Some(runs) = rig.run(&cases) else {
        return;
    };
    let answers = |run: &[rig::Seen], of: &str| {
        let seen = cases.iter().zip(run).filter(|((name, _), _)| *name == of);
        seen.map(|(_, seen)| seen[0].len()).sum::<usize>()
    };
    for (name, about) in [
        ("one", 7),
        ("another one", 1),
        ("IPv6", 7),
        ("too long", 24),
    ] {
        let [linux, ours] = [&runs.0, &runs.1].map(|run| answers(run, name));
        println!("{name}: Linux {linux}, switchd {ours}");
        // Frames come each 60 ms or later.
        assert!(
            linux.abs_diff(ours) <= 1 + about / 5,
            "{name}: {linux} {ours}"
        );
        assert!(ours.abs_diff(about) <= 1 + about / 5, "{name}: {ours}");
    }
}

/// SW-1: a packet that leaves by the port at which it arrived is forwarded as by Linux, but nobody
/// is told of a shorter way (ICMP redirect), though Linux tells.
#[test]
fn redirects_are_not_sent() {
    // The ends leave out those of IPv6.
    let cases = vec![("IPv4", V4::new("10.1.0.2", "10.12.0.1").frame())];
    let rig = Rig::new("red", &["net.ipv4.conf.p1.send_redirects=1"]);
    for words in [
        "neighbour add 10.1.0.77 lladdr 02:00:00:00:01:77 dev p1 nud permanent",
        "route add 10.12.0.0/16 via 10.1.0.77",
    ] {
        rig.route(words);
    }
    let Some((linux, ours)) = rig.run(&cases) else {
        return;
    };
    for ((name, _), (linux, ours)) in cases.iter().zip(linux.iter().zip(&ours)) {
        assert_eq!((linux[0].len(), ours[0].len()), (2, 1), "{name}: {linux:?}");
        assert!(linux[0].contains(&ours[0][0]), "{name}");
    }
}

/// IPv4 options, by what they say.
const OPTIONS: [(&str, &[u8]); 16] = [
    ("no-operations", &[1, 1, 1, 1]),
    ("end of options", &[1, 0, 0, 0, 0, 0, 0, 0]),
    ("something behind the end", &[0, 7, 3, 4]),
    ("record route", &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("record route, full", &[7, 7, 8, 10, 9, 9, 9, 0]),
    ("record route, wrong pointer", &[7, 7, 3, 0, 0, 0, 0, 0]),
    (
        "timestamps of others",
        &[68, 12, 5, 3, 10, 9, 9, 9, 0, 0, 0, 0],
    ),
    ("timestamps, full", &[68, 8, 9, 0, 0, 0, 0, 1]),
    ("timestamps, overflowing", &[68, 8, 9, 0xf0, 0, 0, 0, 1]),
    ("router alert", &[148, 4, 0, 0]),
    (
        "router alert behind no-operations",
        &[1, 1, 1, 1, 148, 4, 0, 0],
    ),
    ("loose source route", &[131, 7, 4, 10, 2, 0, 2, 0]),
    ("strict source route", &[137, 7, 4, 10, 2, 0, 2, 0]),
    ("an unknown option", &[30, 4, 1, 2]),
    ("an option that is too long", &[30, 9, 1, 2]),
    ("an option without length", &[1, 1, 1, 30]),
];

/// Packets with options, and IPv6 packets with a hop-by-hop header.
fn with_options() -> Vec<Case> {
    let udp = |options: &[u8]| V4::new("10.1.0.2", "10.2.0.2").options(options);
    let udp6 = |options: &[u8]| {
        V6::new("2001:db8:1::2", "2001:db8:2::2")
            .hop_by_hop(options)
            .frame()
    };
    let mut cases: Vec<Case> = OPTIONS
        .iter()
        .map(|(name, options)| (*name, udp(options).frame()))
        .collect();
    let record = OPTIONS[3].1;
    cases.extend([
        ("record route, expired", udp(record).ttl(1).frame()),
        (
            "record route, without a route",
            V4::new("10.1.0.2", "172.16.0.1").options(record).frame(),
        ),
        (
            "record route, fragmented",
            V4::new("10.1.0.2", "10.4.0.1")
                .len(1300)
                .options(record)
                .frame(),
        ),
        ("IPv6 padding", udp6(&[1, 4, 0, 0, 0, 0])),
        ("IPv6 padding that is not zero", udp6(&[1, 4, 0, 0, 7, 0])),
        ("IPv6 router alert", udp6(&[5, 2, 0, 0, 1, 0])),
        ("IPv6 unknown, skip", udp6(&[0x1e, 4, 0, 0, 0, 0])),
        ("IPv6 unknown, discard", udp6(&[0x5e, 4, 0, 0, 0, 0])),
        ("IPv6 unknown, tell", udp6(&[0x9e, 4, 0, 0, 0, 0])),
        (
            "IPv6 unknown, tell if no group",
            udp6(&[0xde, 4, 0, 0, 0, 0]),
        ),
        ("IPv6 jumbo payload", udp6(&[0xc2, 4, 0, 1, 0, 0])),
    ]);
    cases
}

/// SW-1: options of IPv4 and hop-by-hop headers of IPv6 are read by the kernel: routes are
/// recorded, source routes followed only where that is allowed, what is wrong is answered.
#[test]
fn options() {
    Rig::new("opt", &[]).compare(&with_options());
    let sourced = [
        "net.ipv4.conf.all.accept_source_route=1",
        "net.ipv4.conf.p1.accept_source_route=1",
    ];
    let rig = Rig::new("osr", &sourced);
    rig.compare(&with_options());
    let Some(mut running) = rig.start() else {
        return;
    };
    running.send(&with_options());
    assert!(running.count("ports", "punted") > 20);
}

/// SW-1, SW-51: where the kernel does not forward, packets with options are lost by name.
#[test]
fn options_without_the_kernels_forwarding() {
    let off = ["net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"];
    let rig = Rig::new("onf", &off);
    let Some(mut running) = rig.start() else {
        return;
    };
    let seen = running.send(&with_options());
    let forwarded = seen.iter().filter(|seen| !seen[1].is_empty()).count();
    // No-operations, with and without an end.
    assert_eq!(forwarded, 2);
    let lost = with_options().len() - forwarded;
    assert_eq!(running.count("drops", "options"), lost as u64);
}

/// SW-1: settings of the kernel are followed while switchd runs.
#[test]
fn settings_are_followed() {
    let cases = sources();
    let rig = Rig::new("live", &[]);
    let Some(mut running) = rig.start() else {
        return;
    };
    for sysctl in [
        "net.ipv4.conf.p1.rp_filter=1",
        "net.ipv4.conf.p1.rp_filter=0",
        "net.ipv4.conf.all.rp_filter=2",
        "net.ipv4.conf.p1.accept_local=1",
    ] {
        let before = running.send(&cases);
        rig.sysctl(sysctl);
        running.eventually_changes(&cases, &before, sysctl);
    }
}
