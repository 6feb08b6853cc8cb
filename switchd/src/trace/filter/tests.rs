use super::*;
use crate::ingress::parse::parse;
use crate::packet::{Address, Edits};
use crate::trace::tests::{PORTS, TAG, roce, tagged};
use proptest::prelude::*;

fn read(text: &str) -> Filter {
    Filter::parse(text, &PORTS).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    let error = Filter::parse(text, &PORTS).expect_err(text);
    error.to_string()
}

fn arrival(port: u16, priority: Option<u8>) -> Arrival {
    Arrival {
        port: PortId(port),
        priority,
    }
}

fn parsed(frame: &[u8]) -> Parsed {
    let own = *frame.first_chunk().expect("a frame");
    parse(frame, own).expect("a good frame")
}

fn matches(text: &str, frame: &[u8]) -> bool {
    read(text).matches(arrival(1, Some(3)), frame, Some(&parsed(frame)))
}

/// MG-7: every word of a filter.
#[test]
fn words_are_read() {
    let text = "in=swp1 out=swp2 src=10.0.0.7/8 dst=10.2.3.4 proto=udp sport=0 dport=4791 dscp=26 \
                priority=3 qp=0x012345 drop=queue_full,no_route every=10 count=7";
    let expected = Filter {
        ingress: Some(PortId(1)),
        egress: Some(PortId(2)),
        src: Some("10.0.0.0/8".parse().expect("a prefix")),
        dst: Some("10.2.3.4/32".parse().expect("a prefix")),
        protocol: Some(17),
        src_port: Some(0),
        dst_port: Some(4791),
        dscp: Some(26),
        priority: Some(3),
        dest_qp: Some(0x01_2345),
        drops: Some(
            ReasonSet::NONE
                .with(DropReason::QueueFull)
                .with(DropReason::NoRoute),
        ),
        every: 10,
        count: 7,
    };
    assert_eq!(read(text), expected);
    assert_eq!(read("  "), Filter::default());
    let all = read("drop").drops.expect("reasons");
    assert!(DropReason::ALL.iter().all(|reason| all.contains(*reason)));
    for (name, number) in [
        ("tcp", 6),
        ("icmp", 1),
        ("icmp6", 58),
        ("sctp", 132),
        ("47", 47),
    ] {
        assert_eq!(read(&format!("proto={name}")).protocol, Some(number));
    }
    assert_eq!(read("qp=74565").dest_qp, Some(74_565));
    assert_eq!(
        read("src=fd00::1").src,
        Some("fd00::1/128".parse().expect("a prefix"))
    );
}

/// MG-7: what is wrong is named, with what would be right.
#[test]
fn errors_name_the_word_and_what_is_allowed() {
    for (text, wanted) in [
        ("dst=10.0.0.0/8 port=4", ["port=4: ", "dscp, priority"]),
        ("=", ["=: there is no such word", "in, out"]),
        (
            "in",
            ["in: in takes the name of a port", "swp0, swp1, swp2"],
        ),
        ("in=eth0", ["in=eth0: ", "swp0, swp1, swp2"]),
        ("out=", ["out=: ", "swp0"]),
        (
            "src=10.0.0.0/33",
            ["src=10.0.0.0/33: src takes", "10.2.0.0/16"],
        ),
        ("dst=host", ["dst=host: dst takes", "an address"]),
        ("proto=ip", ["proto=ip: ", "tcp, udp"]),
        ("proto=256", ["proto=256: ", "0 to 255"]),
        ("sport=65536", ["sport=65536: ", "0 to 65535"]),
        ("dport=-1", ["dport=-1: ", "0 to 65535"]),
        ("dscp=64", ["dscp=64: ", "0 to 63"]),
        ("priority=8", ["priority=8: ", "0 to 7"]),
        ("qp=16777216", ["qp=16777216: ", "0xffffff"]),
        ("qp=0xg", ["qp=0xg: ", "0xffffff"]),
        ("drop=", ["drop=: ", "queue_full"]),
        (
            "drop=queue_full,lost",
            ["drop=queue_full,lost: ", "ttl_expired"],
        ),
        ("every=0", ["every=0: ", "1 to "]),
        ("count=0", ["count=0: ", "1 to 10000"]),
        ("count=10001", ["count=10001: ", "1 to 10000"]),
        ("count", ["count: ", "1 to 10000"]),
        ("dscp=1 dscp=1", ["dscp=1: ", "twice"]),
        (
            "src=10.0.0.1 dst=fd00::1",
            ["versions of IP", "src and dst"],
        ),
        ("proto=icmp dport=1", ["sport and dport", "tcp or udp"]),
        ("qp=1 proto=tcp", ["qp", "udp"]),
        ("qp=1 dport=4790", ["qp", "4791"]),
    ] {
        let error = refused(text);
        assert!(wanted.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// The table of words says the same bounds as the code.
#[test]
fn limits_are_told_as_they_are() {
    let allowed = |word| {
        WORDS
            .iter()
            .find(|(name, _)| *name == word)
            .expect("a word")
            .1
    };
    assert_eq!(allowed("count"), format!("1 to {MAX_COUNT}"));
    assert_eq!(allowed("every"), format!("1 to {}", u32::MAX));
}

/// MG-7: every criterion, on IPv4 and IPv6, with and without a VLAN tag.
#[test]
fn headers_are_matched() {
    for (v6, frame) in [false, true].map(|v6| (v6, roce(v6, 64))) {
        let (good_src, bad_src) = if v6 {
            ("src=fd00::/16", "src=fd01::/16")
        } else {
            ("src=10.0.0.0/8", "src=11.0.0.0/8")
        };
        let (good_dst, bad_dst) = if v6 {
            ("dst=fd00::2", "dst=fd00::1")
        } else {
            ("dst=10.0.0.2", "dst=10.0.0.1")
        };
        let other_version = if v6 { "dst=0.0.0.0/0" } else { "dst=::/0" };
        for frame in [frame.clone(), tagged(&frame)] {
            for (good, bad) in [
                ("in=swp1", "in=swp0"),
                ("priority=3", "priority=2"),
                (good_src, bad_src),
                (good_dst, bad_dst),
                (good_dst, other_version),
                ("proto=udp", "proto=tcp"),
                ("sport=0xc123", "sport=4791"),
                ("dport=4791", "dport=49443"),
                ("dscp=26", "dscp=27"),
                ("qp=0x54321", "qp=0x54320"),
            ] {
                // Ports are decimal in filters.
                let good = good.replace("0xc123", "49443");
                assert!(matches(&good, &frame), "{good}, v6 {v6}");
                assert!(!matches(bad, &frame), "{bad}, v6 {v6}");
            }
        }
    }
    assert_eq!(
        tagged(&roce(false, 0)).len(),
        roce(false, 0).len() + TAG.len()
    );
}

/// What stands where ports would be is none in a fragment, or in another protocol.
#[test]
fn only_udp_and_tcp_have_ports() {
    let frame = roce(false, 64);
    let good = parsed(&frame);
    let filter = read("dport=4791");
    let tcp = Parsed {
        protocol: protocol::TCP,
        ..good
    };
    let later_fragment = Parsed {
        transport: 0,
        ..good
    };
    let icmp = Parsed {
        protocol: protocol::ICMP,
        ..good
    };
    let found = [good, tcp, later_fragment, icmp].map(|parsed| {
        let arrival = arrival(0, None);
        let qp = read("qp=0x54321").matches(arrival, &frame, Some(&parsed));
        (filter.matches(arrival, &frame, Some(&parsed)), qp)
    });
    let expected = [(true, true), (true, false), (false, false), (false, false)];
    assert_eq!(found, expected);
}

#[test]
fn what_was_not_parsed_matches_no_header() {
    let filter = |text: &str| read(text).matches(arrival(1, None), &[0; 20], None);
    assert!(filter("") && filter("in=swp1") && filter("drop"));
    assert!(!filter("in=swp0") && !filter("dscp=0") && !filter("dst=0.0.0.0/0"));
    assert!(!filter("priority=0"), "nothing is known of it");
}

/// SW-51: what is decided when the packet leaves.
#[test]
fn ends_are_matched() {
    let (no_route, full) = (Some(DropReason::NoRoute), Some(DropReason::QueueFull));
    let filter = read("drop=no_route out=swp2");
    assert!(filter.is_late() && read("drop").is_late() && read("out=swp0").is_late());
    assert!(!read("in=swp0 dscp=3").is_late());
    assert!(filter.wants(Some(PortId(2)), no_route));
    assert!(!filter.wants(Some(PortId(2)), full) && !filter.wants(Some(PortId(2)), None));
    assert!(!filter.wants(Some(PortId(1)), no_route) && !filter.wants(None, no_route));
    assert!(read("drop").wants(None, full) && !read("drop").wants(None, None));
    assert!(read("").wants(None, None));
}

proptest! {
    /// No bytes, and no offsets into them, are too strange.
    #[test]
    fn nothing_panics(
        frame in prop::collection::vec(any::<u8>(), 0..120),
        (network, transport, protocol) in (any::<u16>(), any::<u16>(), any::<u8>()),
        v6 in any::<bool>(),
        near in any::<bool>(),
    ) {
        let place = |at: u16| if near { at % 128 } else { at };
        let parsed = Parsed {
            version: if v6 { Version::V6 } else { Version::V4 },
            protocol: if near { protocol::UDP } else { protocol },
            ttl: 1,
            dscp: 0,
            ecn: 0,
            pcp: 0,
            network: place(network),
            transport: place(transport),
            is_fragment: false,
            may_fragment: false,
            in_doubt: false,
            interface: 0,
            edits: Edits::default(),
            ip_len: 0,
            dst: Address::default(),
        };
        for text in ["src=10.0.0.0/8", "src=fd00::/8", "sport=1", "dport=4791 qp=1", "qp=1"] {
            read(text).matches(arrival(0, None), &frame, Some(&parsed));
        }
    }

    /// Text is refused or read, and what is read is within its bounds.
    #[test]
    fn any_text_is_read_or_refused(
        text in "((in|src|dst|proto|dscp|priority|qp|drop|every|count|x)=?[a-z0-9./:,]{0,9} ?){0,4}",
    ) {
        if let Ok(filter) = Filter::parse(&text, &PORTS) {
            prop_assert!(filter.every >= 1 && (1..=MAX_COUNT).contains(&filter.count));
            prop_assert!(filter.dscp.is_none_or(|dscp| dscp < 64));
        }
    }
}
