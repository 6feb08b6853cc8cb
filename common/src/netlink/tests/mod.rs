use super::decode::flag;
use super::*;
use crate::time::{Span, Time};
use ipnet::IpNet;
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteVia,
};
use netlink_packet_route::{AddressFamily, neighbour, route};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod objects;
mod rules;

const PORT: u32 = 77;

/// A message made by hand: header, fixed part, attributes.
fn message(
    kind: u16,
    flags: u16,
    sequence: u32,
    fixed: &[u8],
    attributes: &[(u16, &[u8])],
) -> Vec<u8> {
    let mut body = fixed.to_vec();
    body.extend(message_attributes(attributes));
    let len = u32::try_from(16 + body.len()).unwrap();
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&PORT.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn message_attributes(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in attributes {
        let len = u16::try_from(4 + value.len()).unwrap();
        bytes.extend_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// The bytes that netlink-packet-route, the oracle, makes of a message.
fn emitted(payload: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::new(
        NetlinkHeader::default(),
        NetlinkPayload::InnerMessage(payload),
    );
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn only(bytes: &[u8]) -> Body {
    let messages: Vec<_> = decode(bytes).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.into_iter().next().unwrap().unwrap().body
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (1_u32..).prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        (1_u128..).prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
    ]
}

fn any_prefix() -> impl Strategy<Value = IpNet> {
    (any_ip(), 0_u8..=128).prop_map(|(address, len)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        IpNet::new(address, len.min(most)).unwrap().trunc()
    })
}

prop_compose! {
    fn any_hop()(ifindex in 1_u32..100, gateway in proptest::option::of(any_ip()), weight in 1_u32..=256) -> Hop {
        Hop { ifindex, gateway, weight, ..Hop::default() }
    }
}

/// The attribute that carries a gateway in a route of `family`: RTA_VIA for another family.
fn gateway_attribute(gateway: IpAddr, family: IpAddr) -> RouteAttribute {
    match (gateway, family.is_ipv4() == gateway.is_ipv4()) {
        (address, true) => RouteAttribute::Gateway(RouteAddress::from(address)),
        (IpAddr::V4(address), false) => RouteAttribute::Via(RouteVia::Inet(address)),
        (IpAddr::V6(address), false) => RouteAttribute::Via(RouteVia::Inet6(address)),
    }
}

fn oracle_route(prefix: IpNet, priority: u32, table: u32, hops: &[Hop]) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: match prefix {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        },
        destination_prefix_length: prefix.prefix_len(),
        table: 254,
        protocol: route::RouteProtocol::Static,
        kind: route::RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Table(table));
    message.attributes.push(RouteAttribute::Priority(priority));
    if prefix.prefix_len() > 0 {
        let address = RouteAddress::from(prefix.addr());
        message
            .attributes
            .push(RouteAttribute::Destination(address));
    }
    if let [hop] = hops {
        message.attributes.push(RouteAttribute::Oif(hop.ifindex));
        let gateway = hop
            .gateway
            .map(|address| gateway_attribute(address, prefix.addr()));
        message.attributes.extend(gateway);
    } else {
        let hops = hops.iter().map(|hop| {
            let mut next_hop = RouteNextHop::default();
            next_hop.interface_index = hop.ifindex;
            next_hop.hops = u8::try_from(hop.weight - 1).unwrap();
            let gateway = hop
                .gateway
                .map(|address| gateway_attribute(address, prefix.addr()));
            next_hop.attributes.extend(gateway);
            next_hop
        });
        message
            .attributes
            .push(RouteAttribute::MultiPath(hops.collect()));
    }
    message
}

proptest! {
    /// SW-2: what netlink-packet-route writes is what is read here: multipath, weights, gateways of
    /// the other family.
    #[test]
    fn routes_agree_with_the_oracle(
        prefix in any_prefix(),
        priority in any::<u32>(),
        table in 1_u32..1000,
        mut hops in proptest::collection::vec(any_hop(), 1..5),
    ) {
        if let [hop] = &mut hops[..] {
            hop.weight = 1;
        }
        hops.sort_unstable();
        let message = oracle_route(prefix, priority, table, &hops);
        let body = only(&emitted(RouteNetlinkMessage::NewRoute(message)));
        let Body::Route(Action::Set, key, route) = body else { panic!("{body:?}") };
        prop_assert_eq!(key, RouteKey { table, prefix, priority, tos: 0, source: None });
        prop_assert_eq!(&*route.hops, &hops[..]);
        prop_assert_eq!((route.kind, route.protocol), (RouteKind::Unicast, 4));
    }

    #[test]
    fn neighbours_agree_with_the_oracle(address in any_ip(), ifindex in 1_u32.., mac: [u8; 6]) {
        let mut message = neighbour::NeighbourMessage::default();
        message.header.family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.ifindex = ifindex;
        message.header.state = neighbour::NeighbourState::Stale;
        let destination = match address {
            IpAddr::V4(address) => neighbour::NeighbourAddress::Inet(address),
            IpAddr::V6(address) => neighbour::NeighbourAddress::Inet6(address),
        };
        message.attributes.push(neighbour::NeighbourAttribute::Destination(destination));
        message.attributes.push(neighbour::NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        let expected = Neighbour {
            key: NeighbourKey { ifindex, address },
            mac: Some(mac),
            state: NeighbourState::Stale,
        };
        prop_assert_eq!(
            only(&emitted(RouteNetlinkMessage::DelNeighbour(message))),
            Body::Neighbour(Action::Removed, expected)
        );
    }

    /// Malformed netlink is survived: any bytes, and real messages with bytes changed or cut off.
    #[test]
    fn no_bytes_do_harm(
        garbage in proptest::collection::vec(any::<u8>(), 0..200),
        prefix in any_prefix(),
        hops in proptest::collection::vec(any_hop(), 1..4),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut follower = Follower::new(Settings::default(), PORT);
        follower.handle(&garbage, Time::ZERO);
        let mut real = emitted(RouteNetlinkMessage::NewRoute(oracle_route(prefix, 1, 254, &hops)));
        real.extend(message(104, 0, 0, &[0; 8], &[(1, &[1, 0, 0, 0]), (2, &[0; 16])]));
        real.extend(message(16, 0, 0, &[0; 16], &[(3, b"eth0\0"), (1, &[2; 6])]));
        for (at, byte) in changes {
            let at = at.index(real.len());
            real[at] = byte;
        }
        real.truncate(keep.index(real.len()) + 1);
        follower.handle(&real, Time::ZERO);
    }
}

#[test]
fn next_hop_objects_are_read() {
    let single = message(
        104,
        0,
        0,
        &[2, 0, 4, 0, 0, 0, 0, 0],
        &[
            (1, &7_u32.to_ne_bytes()),
            (5, &3_u32.to_ne_bytes()),
            (6, &[10, 0, 0, 1]),
        ],
    );
    let hop = Hop {
        ifindex: 3,
        gateway: Some([10, 0, 0, 1].into()),
        ..Hop::default()
    };
    let expected = NextHop {
        id: 7,
        kind: NextHopKind::Single(hop),
    };
    assert_eq!(only(&single), Body::NextHop(Action::Set, expected));
    let group = message(
        104,
        0,
        0,
        &[0; 8],
        &[
            (1, &9_u32.to_ne_bytes()),
            (2, &[7, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0xff, 1, 0, 0]),
            (3, &1_u16.to_ne_bytes()),
        ],
    );
    let expected = NextHop {
        id: 9,
        kind: NextHopKind::Group(vec![(7, 3), (8, 512)]),
    };
    assert_eq!(only(&group), Body::NextHop(Action::Set, expected));
    let resilience = |buckets: u16| {
        message_attributes(&[
            (1, &buckets.to_ne_bytes()),
            (2, &6000_u32.to_ne_bytes()),
            (3, &30_000_u32.to_ne_bytes()),
            (4, &7_u64.to_ne_bytes()),
        ])
    };
    let resilient = |nested: &[u8]| {
        let members = [7, 0, 0, 0, 0, 0, 0, 0];
        let id = 9_u32.to_ne_bytes();
        let attributes: [(u16, &[u8]); 3] = [(1, &id), (2, &members), (0x8000 | 12, nested)];
        message(104, 0, 0, &[0; 8], &attributes)
    };
    let terms = Resilience {
        buckets: 128,
        idle: Span::from_secs(60),
        unbalanced: Span::from_secs(300),
    };
    let expected = NextHop {
        id: 9,
        kind: NextHopKind::Resilient(vec![(7, 1)], terms),
    };
    assert_eq!(
        only(&resilient(&resilience(128))),
        Body::NextHop(Action::Set, expected)
    );
    let mut none = decode(&resilient(&resilience(0))).collect::<Vec<_>>();
    assert_eq!(none.pop(), Some(Err(DecodeError::Attribute(12))));
    let blackhole = message(104, 0, 0, &[0; 8], &[(1, &5_u32.to_ne_bytes()), (4, &[])]);
    let expected = NextHop {
        id: 5,
        kind: NextHopKind::Blackhole,
    };
    assert_eq!(only(&blackhole), Body::NextHop(Action::Set, expected));
}

/// What a kernel writes of a route's MTU, of a neighbour that needs no resolution, and of settings.
#[test]
fn metrics_settings_and_static_neighbours_are_read() {
    let metrics = message_attributes(&[(1, &4_u32.to_ne_bytes()), (2, &1200_u32.to_ne_bytes())]);
    let route = message(
        24,
        0,
        0,
        &[2, 16, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0],
        &[(1, &[10, 9, 0, 0]), (7, &[10, 0, 0, 1]), (8, &metrics)],
    );
    let Body::Route(_, _, route) = only(&route) else {
        panic!("a route")
    };
    assert_eq!(
        (route.mtu, route.source),
        (1200, Some([10, 0, 0, 1].into()))
    );
    let neighbour = |mac: &[u8]| {
        let header = [2, 0, 0, 0, 7, 0, 0, 0, 0x40, 0, 0, 1];
        only(&message(
            28,
            0,
            0,
            &header,
            &[(1, &[10, 0, 0, 9]), (2, mac)],
        ))
    };
    assert!(matches!(
        neighbour(&[2, 0, 0, 0, 0, 1]),
        Body::Neighbour(..)
    ));
    for group in [[1, 0, 0x5e, 0, 0, 1], [0xff; 6], [0; 6]] {
        assert_eq!(neighbour(&group), Body::Other, "{group:?}");
    }
    let settings = |ifindex: i32, more: (u16, &[u8])| {
        let rest = [(1, &ifindex.to_ne_bytes()[..]), more];
        only(&message(80, 0, 0, &[2, 0, 0, 0], &rest))
    };
    let expected = SettingsChange {
        ifindex: ALL_LINKS,
        rp_filter: Some(2),
        ..SettingsChange::default()
    };
    let body = settings(-1, (3, &2_u32.to_ne_bytes()));
    assert_eq!(body, Body::Settings(Action::Set, expected));
    assert_eq!(settings(-2, (2, &[1, 0, 0, 0])), Body::Other);
    // The 23rd of the settings that come with an interface.
    let mut all = [0; 4 * 33];
    all[4 * 22] = 1;
    let of_family = message_attributes(&[(1, &all)]);
    let families = message_attributes(&[(2, &of_family)]);
    let link = message(16, 0, 0, &[0; 16], &[(3, b"l\0"), (26, &families)]);
    assert!(matches!(only(&link), Body::Link(_, link) if link.accepts_local));
}

/// What a kernel writes of `ip rule`: its own, one that selects, one of VRFs.
#[test]
fn rules_are_read() {
    let suppress = (14, &u32::MAX.to_ne_bytes()[..]);
    let protocol = (21, &[2][..]);
    let rule = |kind, table: u8, rest: &[(u16, &[u8])]| {
        let fixed = [2, 0, 8, 0, table, 0, 0, 1, 0, 0, 0, 0];
        only(&message(kind, 0, 0, &fixed, rest))
    };
    let plain = rule(32, 255, &[(2, &[10, 0, 0, 0]), suppress, protocol]);
    let Body::Rule(Action::Set, read) = plain else {
        panic!("{plain:?}")
    };
    assert_eq!(read.to_string(), "0: from 10.0.0.0/8 lookup local");
    assert!(!read.is_for_all() && !read.has_more);
    assert!(
        Rule {
            source: None,
            ..read
        }
        .is_for_all()
    );
    let long = rule(
        33,
        0,
        &[
            (2, &[10, 0, 0, 0]),
            (3, b"eth0\0"),
            (6, &100_u32.to_ne_bytes()),
            (10, &7_u32.to_ne_bytes()),
            (15, &1000_u32.to_ne_bytes()),
            (22, &[6]),
        ],
    );
    let Body::Rule(Action::Removed, read) = long else {
        panic!("{long:?}")
    };
    let text = "100: from 10.0.0.0/8 fwmark 0x7 iif eth0 … lookup 1000";
    assert_eq!(read.to_string(), text);
    let multicast = message(32, 0, 0, &[128, 0, 0, 0, 253, 0, 0, 1, 0, 0, 0, 0], &[]);
    assert_eq!(only(&multicast), Body::Other);
}

/// Links that are stacked on others, and routes that look at the source.
#[test]
fn stacked_links_and_sources_are_read() {
    let link = |info: &[u8]| {
        let rest = [(3, &b"l\0"[..]), (5, &[9, 0, 0, 0]), (18, info)];
        only(&message(16, 0, 0, &[0; 16], &rest))
    };
    let kind = |name: &[u8]| message_attributes(&[(1, name)]);
    let Body::Link(_, bridge) = link(&kind(b"bridge\0")) else {
        panic!("a link")
    };
    assert_eq!(
        (bridge.kind.as_deref(), bridge.vlan),
        (Some("bridge"), None)
    );
    let tagged = |to: u32| {
        let mapping = [0_u32.to_ne_bytes(), to.to_ne_bytes()].concat();
        let mappings = message_attributes(&[(1, &mapping)]);
        let number = 5_u16.to_ne_bytes();
        let data = message_attributes(&[(1, &number), (3, &mappings), (5, &[0x88, 0xa8])]);
        let vlan = message_attributes(&[(1, b"vlan\0"), (2, &data)]);
        let Body::Link(_, vlan) = link(&vlan) else {
            panic!("a link")
        };
        vlan
    };
    for kind in [&b"macvlan\0"[..], b"macvtap\0"] {
        let of_mode = |mode: u32| {
            let data = message_attributes(&[(1, &mode.to_ne_bytes()), (2, &[0, 0])]);
            let Body::Link(_, macvlan) = link(&message_attributes(&[(1, kind), (2, &data)])) else {
                panic!("a link")
            };
            (macvlan.lower, macvlan.takes_all)
        };
        // MACVLAN_MODE_*: private, vepa, bridge, passthru, source.
        let takes_all = [1, 2, 4, 8, 16].map(of_mode).map(|it| it.1);
        assert_eq!(takes_all, [false, false, false, true, true]);
        assert_eq!(of_mode(4).0, Some(9));
    }
    assert!(tagged(3).maps_priorities);
    let vlan = tagged(0);
    assert!(!vlan.maps_priorities);
    let tag = Vlan {
        is_service: true,
        id: 5,
    };
    assert_eq!((vlan.lower, vlan.vlan), (Some(9), Some(tag)));
    let route = message(
        24,
        0,
        0,
        &[10, 32, 48, 0, 254, 4, 0, 1, 0, 0, 0, 0],
        &[
            (1, &"2001:db8::".parse::<Ipv6Addr>().unwrap().octets()),
            (2, &"fd00::".parse::<Ipv6Addr>().unwrap().octets()),
        ],
    );
    let Body::Route(_, key, _) = only(&route) else {
        panic!("a route")
    };
    assert_eq!(key.source, Some("fd00::/48".parse().unwrap()));
}

#[test]
fn lying_messages_are_errors_and_do_not_hide_the_next() {
    let good = message(105, 0, 0, &[0; 8], &[(1, &5_u32.to_ne_bytes())]);
    let cases = [
        (
            message(104, 0, 0, &[0; 8], &[(2, &[0; 8])]),
            DecodeError::Missing(1),
        ),
        (
            message(104, 0, 0, &[0; 8], &[(1, &[1, 0])]),
            DecodeError::Attribute(1),
        ),
        (message(104, 0, 0, &[0; 4], &[]), DecodeError::Short),
        (
            message(104, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0], &[]),
            DecodeError::Length,
        ),
        (
            message(24, 0, 0, &[2, 40, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0], &[]),
            DecodeError::Value("prefix length", 40),
        ),
    ];
    for (bad, error) in cases {
        let found: Vec<_> = decode(&[bad, good.clone()].concat()).collect();
        assert_eq!(found[0], Err(error));
        assert!(matches!(
            found[1],
            Ok(Message {
                body: Body::NextHop(Action::Removed, _),
                ..
            })
        ));
    }
    let mut lie = good.clone();
    lie[0] = 8;
    assert_eq!(decode(&lie).collect::<Vec<_>>(), [Err(DecodeError::Length)]);
}

/// A kernel in miniature: neighbours and IPv4 routes, of which events can be lost.
#[derive(Default)]
struct Kernel {
    routes: BTreeMap<IpNet, Vec<u8>>,
    neighbours: BTreeMap<Ipv4Addr, Vec<u8>>,
}

impl Kernel {
    fn route(prefix: IpNet, gateway: u8) -> impl Fn(u16, u16, u32) -> Vec<u8> {
        move |kind, flags, sequence| {
            let fixed = [2, prefix.prefix_len(), 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
            let IpAddr::V4(address) = prefix.addr() else {
                unreachable!()
            };
            message(
                kind,
                flags,
                sequence,
                &fixed,
                &[
                    (1, &address.octets()),
                    (4, &1_u32.to_ne_bytes()),
                    (5, &[10, 0, 0, gateway]),
                ],
            )
        }
    }

    fn neighbour(address: Ipv4Addr, mac: u8) -> impl Fn(u16, u32) -> Vec<u8> {
        move |kind, sequence| {
            let fixed = [2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1];
            message(
                kind,
                0,
                sequence,
                &fixed,
                &[(1, &address.octets()), (2, &[mac; 6])],
            )
        }
    }

    /// Makes a change and returns the event that tells of it.
    fn change(&mut self, what: (bool, u8, u8)) -> Vec<u8> {
        let (is_route, at, value) = what;
        let address = Ipv4Addr::new(192, 168, at, 0);
        if is_route {
            let prefix = IpNet::new(address.into(), 24).unwrap();
            let make = Self::route(prefix, value);
            if value == 0 {
                return self
                    .routes
                    .remove(&prefix)
                    .map_or_else(Vec::new, |mut old| {
                        old[4] = 25;
                        old
                    });
            }
            let flags = if self.routes.contains_key(&prefix) {
                flag::REPLACE
            } else {
                0x400
            };
            self.routes.insert(prefix, make(24, 0, 0));
            make(24, flags, 0)
        } else {
            let make = Self::neighbour(address, value);
            if value == 0 {
                self.neighbours.remove(&address);
                return make(29, 0);
            }
            self.neighbours.insert(address, make(28, 0));
            make(28, 0)
        }
    }

    /// Answers a dump request.
    fn dump(&self, request: &[u8]) -> Vec<Vec<u8>> {
        let kind = u16::from_ne_bytes([request[4], request[5]]);
        let sequence = u32::from_ne_bytes(request[8..12].try_into().unwrap());
        let found: Vec<&Vec<u8>> = match (kind, request[16]) {
            (26, 2) => self.routes.values().collect(),
            (30, _) => self.neighbours.values().collect(),
            _ => Vec::new(),
        };
        let number = |bytes: &Vec<u8>| {
            let mut bytes = bytes.clone();
            bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
            bytes
        };
        let mut parts: Vec<Vec<u8>> = found.into_iter().map(number).collect();
        parts.push(message(3, 2, sequence, &[0; 4], &[]));
        parts
    }

    fn matches(&self, mirror: &Mirror) -> bool {
        let expected_routes: BTreeMap<_, _> = self
            .routes
            .values()
            .map(|bytes| match only(bytes) {
                Body::Route(_, key, route) => (key, route),
                other => panic!("{other:?}"),
            })
            .collect();
        let routes = mirror
            .routes()
            .map(|(key, route)| (*key, route.clone()))
            .collect();
        let mut expected: Vec<_> = self.neighbours.values().map(|bytes| only(bytes)).collect();
        let mut known: Vec<_> = mirror
            .neighbours()
            .map(|n| Body::Neighbour(Action::Set, *n))
            .collect();
        expected.sort_by_key(|body| format!("{body:?}"));
        known.sort_by_key(|body| format!("{body:?}"));
        expected_routes == routes && expected == known
    }
}

/// Runs a follower against the kernel in miniature. Each step changes something; its event is lost
/// when told so.
fn run(steps: &[((bool, u8, u8), bool)]) {
    let mut kernel = Kernel::default();
    let mut follower = Follower::new(Settings::default(), PORT);
    let mut now = Time::from_nanos(1);
    let mut answers: std::collections::VecDeque<Vec<u8>> = std::collections::VecDeque::new();
    let turn = |follower: &mut Follower,
                kernel: &Kernel,
                answers: &mut std::collections::VecDeque<Vec<u8>>,
                now| {
        if let Some(request) = follower.poll_request(now) {
            answers.extend(kernel.dump(&request));
        }
        if let Some(part) = answers.pop_front() {
            follower.handle(&part, now);
        }
    };
    for (what, lost) in steps {
        now += Span::from_millis(7);
        // What the kernel has queued of a dump was generated before this change. Of routes it may
        // come after its event all the same.
        let (is_route, ..) = *what;
        let event = kernel.change(*what);
        let mut queued: Vec<_> = answers.drain(..).collect();
        let at = if is_route { 0 } else { queued.len() };
        if *lost {
            follower.handle_overrun(now);
        } else {
            queued.insert(at, event);
        }
        for part in queued {
            follower.handle(&part, now);
        }
        turn(&mut follower, &kernel, &mut answers, now);
    }
    for _ in 0..2000 {
        now += Span::from_millis(7);
        turn(&mut follower, &kernel, &mut answers, now);
    }
    assert!(follower.is_synced());
    assert!(kernel.matches(follower.mirror()), "{:?}", follower.mirror());
    let mut changes = Vec::new();
    follower.take_changes(&mut changes);
    for (key, _) in follower.mirror().routes() {
        assert!(changes.contains(&Change::Route(*key)));
    }
}

proptest! {
    /// SW-2: whatever is lost, the mirror becomes what the kernel knows.
    #[test]
    fn lost_events_are_made_good(
        steps in proptest::collection::vec(((any::<bool>(), 0_u8..4, 0_u8..4), prop::bool::weighted(0.2)), 0..60),
    ) {
        run(&steps);
    }
}

/// A dump that never ends is asked for again; one that fails too.
#[test]
fn dumps_that_fail_are_repeated() {
    let mut follower = Follower::new(Settings::default(), PORT);
    let mut now = Time::from_nanos(1);
    assert!(follower.poll_request(now).is_some());
    assert!(follower.poll_request(now).is_none());
    now += Span::from_secs(6);
    assert!(follower.deadline() <= now);
    assert!(follower.poll_request(now).is_none());
    now += Span::from_secs(1);
    let again = follower.poll_request(now).expect("asked again");
    let sequence = u32::from_ne_bytes(again[8..12].try_into().unwrap());
    follower.handle(&message(2, 0, sequence, &(-16_i32).to_ne_bytes(), &[]), now);
    assert!(follower.poll_request(now).is_none());
    now += Span::from_secs(1);
    assert!(follower.poll_request(now).is_some());
    assert!(!follower.is_synced());
    assert_eq!(follower.statistics().resyncs[6], 2);
}

/// The kind of what a request asks for, and its number.
fn asked(request: &[u8]) -> (u16, u32) {
    let kind = u16::from_ne_bytes([request[4], request[5]]);
    let sequence = u32::from_ne_bytes(request[8..12].try_into().unwrap());
    (kind - 2, sequence)
}

/// SW-2: after a loss of messages everything that a large table of routes would delay is read
/// before the routes are asked for, each thing is told as it is found, and the routes are asked for
/// at once; when that was not enough, only after a rest.
#[test]
fn what_was_lost_is_read_before_the_routes() {
    const ROUTE: u16 = 24;
    let mut follower = Follower::new(Settings::default(), PORT);
    let mut now = Time::from_nanos(1);
    let slow = Span::from_secs(6);
    let neighbour = message(
        28,
        0,
        0,
        &[2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0],
        &[(1, &[10, 0, 0, 9]), (2, &[2; 6])],
    );
    // Answers the dump that is asked for; routes take their time. Returns the requests, with the
    // changes that were told by then.
    let dump = |follower: &mut Follower, now: &mut Time| {
        let mut seen = Vec::new();
        loop {
            let Some(request) = follower.poll_request(*now) else {
                return seen;
            };
            let (kind, sequence) = asked(&request);
            let mut changes = Vec::new();
            follower.take_changes(&mut changes);
            seen.push((kind, changes));
            if kind == 28 && request[16] == 0 {
                let mut answer = neighbour.clone();
                answer[8..12].copy_from_slice(&sequence.to_ne_bytes());
                follower.handle(&answer, *now);
            }
            if kind == ROUTE {
                *now += slow;
            }
            follower.handle(&message(3, 2, sequence, &[0; 4], &[]), *now);
        }
    };
    let kinds = |seen: &[(u16, Vec<Change>)]| seen.iter().map(|it| it.0).collect::<Vec<_>>();
    let start = dump(&mut follower, &mut now);
    let all = kinds(&start);
    assert!(follower.is_synced());
    let routes = all.iter().position(|kind| *kind == ROUTE).expect("asked");
    assert_eq!(all[routes..], [ROUTE, ROUTE], "they come last: {all:?}");
    let told = Change::Neighbour(NeighbourKey {
        ifindex: 3,
        address: [10, 0, 0, 9].into(),
    });
    assert_eq!(start[routes].1, [told], "before the routes are asked for");
    follower.handle_overrun(now);
    now += Span::from_millis(20);
    assert_eq!(kinds(&dump(&mut follower, &mut now)), all, "no rest");
    follower.handle_overrun(now);
    now += Span::from_millis(20);
    let again = kinds(&dump(&mut follower, &mut now));
    assert_eq!(again, all[..routes], "the routes rest");
    assert!(follower.deadline() > now + slow);
    now = follower.deadline();
    let rest = kinds(&dump(&mut follower, &mut now));
    assert_eq!(rest[..2], all[routes..], "then they are asked for");
}
