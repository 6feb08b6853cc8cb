//! What the kernel has for packets that it forwards, as it is found in network namespaces.

use common::netlink::{Filter, filters};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

const INET: u8 = 1;
const IPV4: u8 = 2;
const BRIDGE: u8 = 7;

/// Where chains begin, of an IP family (linux/netfilter.h).
const PREROUTING: u32 = 0;
const INPUT: u32 = 1;
const FORWARD: u32 = 2;
const POSTROUTING: u32 = 4;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// A message of nfnetlink: type, flags, family, number of a subsystem, attributes.
fn message(kind: u16, flags: u16, family: u8, subsystem: u16, attributes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(20 + attributes.len()).unwrap();
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | 1).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(subsystem.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + u16::try_from(value.len()).unwrap();
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn name(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

/// Makes a table and a base chain in it without rules; both are called after `chain`.
fn add_chain(family: u8, chain: &str, hook: u32, policy: u32) {
    const NEW_TABLE: u16 = 10 << 8;
    const NEW_CHAIN: u16 = 10 << 8 | 3;
    const CREATE: u16 = 0x400;
    const ACK: u16 = 4;
    const NESTED: u16 = 0x8000;
    let place = [
        attribute(1, &hook.to_be_bytes()),
        attribute(2, &0_u32.to_be_bytes()),
    ];
    let words = [
        name(1, chain),
        name(3, chain),
        attribute(4 | NESTED, &place.concat()),
        attribute(5, &policy.to_be_bytes()),
        name(7, "filter"),
    ];
    let batch = [
        message(0x10, 0, 0, 10, &[]),
        message(NEW_TABLE, CREATE, family, 0, &name(1, chain)),
        message(NEW_CHAIN, CREATE | ACK, family, 0, &words.concat()),
        message(0x11, 0, 0, 10, &[]),
    ];
    let socket = Socket::new(NETLINK_NETFILTER).unwrap();
    let all = batch.concat();
    socket.send_to(&all, &SocketAddr::new(0, 0), 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    let error = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    assert_eq!(error, 0, "{chain}");
}

fn chain(family: &'static str, name: &str, hook: &'static str) -> Filter {
    Filter::Chain {
        family,
        table: name.to_owned(),
        chain: name.to_owned(),
        hook,
    }
}

/// SW-1: chains of nftables on the way of forwarded packets, and policies of IPsec, are found; what
/// is empty, or is for packets of the machine itself, is not.
#[test]
fn filters_of_forwarded_packets_are_found() {
    netns::in_new(|| {
        assert_eq!(filters().unwrap().found, []);
        add_chain(INET, "input", INPUT, DROP);
        add_chain(IPV4, "empty", FORWARD, ACCEPT);
        assert_eq!(filters().unwrap().found, []);
        add_chain(INET, "fw", FORWARD, DROP);
        add_chain(IPV4, "pre", PREROUTING, DROP);
        add_chain(IPV4, "post", POSTROUTING, DROP);
        add_chain(BRIDGE, "frames", FORWARD, DROP);
        add_chain(BRIDGE, "own", INPUT, DROP);
        let chains = [
            chain("bridge", "frames", "forward"),
            chain("inet", "fw", "forward"),
            chain("ip", "post", "postrouting"),
            chain("ip", "pre", "prerouting"),
        ];
        assert_eq!(filters().unwrap().found, chains);
        assert_eq!(
            chains[1].to_string(),
            "nftables chain fw of table inet fw (forward)"
        );
        let policy = "ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir";
        netns::run(&format!("{policy} in")).unwrap();
        assert_eq!(filters().unwrap().found.len(), 4);
        netns::run(&format!("{policy} fwd")).unwrap();
        netns::run(&format!("{policy} out")).unwrap();
        assert_eq!(filters().unwrap().found[4], Filter::IpsecPolicies(2));
    });
}
