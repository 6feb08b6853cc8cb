//! Tags of CSIG and INT: what they change in where a packet goes, which is nothing, and that the
//! kernel gets none (CS-1, CS-7, SW-52).

use crate::punting::{Fate, Rig};
use crate::steering::{PORT, discovery, ethernet, ipv6, tagged, udp4};
use common::wire::csig::Tpids;
use common::wire::int;
use common::wire::ip::v4;
use netns::privileged;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

const TPIDS: Tpids = Tpids {
    compact: 0x9900,
    expanded: 0x9901,
    int: 0x9902,
};

/// What stands in front of `kind` in a frame with a tag: its TPID and fields.
fn tags() -> [(u16, &'static [u8]); 3] {
    [
        (TPIDS.compact, &[0x0f, 0x80]),
        (TPIDS.expanded, &[0, 7, 0x0f, 0xff, 0xff, 0]),
        (TPIDS.int, &[7; int::LEN - 2]),
    ]
}

fn with_tag((tpid, data): (u16, &[u8]), kind: u16, rest: &[u8]) -> (u16, Vec<u8>) {
    (tpid, [data, &kind.to_be_bytes(), rest].concat())
}

/// CS-1, SW-52: the same packets are the kernel's with a tag and without, behind VLAN tags, too;
/// and while tags are not known they are no packets of the daemon.
#[test]
fn a_tag_changes_nothing_in_whose_a_packet_is() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    let transit = udp4([10, 0, 0, 2], 80, 0);
    let packets = [
        (0x0800, transit.clone()),
        (0x0800, udp4([10, 0, 0, 1], 80, 0)),
        (0x0800, udp4([224, 0, 0, 5], 80, 0)),
        (0x86dd, ipv6("2001:db8::2", 17, &[0; 4])),
        (0x86dd, ipv6("fe80::1", 17, &[0; 4])),
        (0x86dd, discovery("2001:db8::2", 135)),
        (0x0806, vec![0; 28]),
        (0x88cc, vec![0; 28]),
    ];
    for tag in tags() {
        let (tpid, rest) = with_tag(tag, 0x0800, &transit);
        assert_eq!(rig.fate(ethernet(PORT, tpid, &rest)), Fate::Kernel);
    }
    rig.configure(|settings| settings.signals = Some(TPIDS));
    for (kind, rest) in packets {
        let plain = rig.fate(ethernet(PORT, kind, &rest));
        let in_vlan = rig.fate(ethernet(PORT, 0x8100, &tagged(kind, &rest)));
        for tag in tags() {
            let (tpid, rest) = with_tag(tag, kind, &rest);
            assert_eq!(rig.fate(ethernet(PORT, tpid, &rest)), plain, "{kind:04x}");
            let found = rig.fate(ethernet(PORT, 0x8100, &tagged(tpid, &rest)));
            assert_eq!(found, in_vlan, "{kind:04x}");
        }
    }
    // What is no tag is the daemon's to count: two of them, and a VLAN's behind it.
    for behind in [0x9900, 0x9901, 0x9902, 0x8100] {
        let (tpid, rest) = with_tag(tags()[0], behind, &[0; 20]);
        assert_eq!(rig.fate(ethernet(PORT, tpid, &rest)), Fate::Socket);
    }
}

/// A datagram to 10.0.0.1, port 7777.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; v4::HEADER_LEN];
    v4::Repr {
        src: Ipv4Addr::new(10, 0, 0, 9),
        dst: Ipv4Addr::new(10, 0, 0, 1),
        traffic_class: 0,
        ident: 0,
        ttl: 64,
        protocol: 17,
        payload_len: 8 + u16::try_from(payload.len()).unwrap(),
    }
    .emit(&mut ip);
    let len = u16::try_from(8 + payload.len()).unwrap();
    for word in [7776, 7777, len, 0_u16] {
        ip.extend(word.to_be_bytes());
    }
    ip.extend(payload);
    ip
}

/// CS-7, SW-52: packets to the kernel's own addresses reach their sockets, whatever tags they came
/// with: it would not know the protocol.
#[test]
fn the_kernel_gets_packets_without_tags() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    rig.namespace.run("ip addr add 10.0.0.1/24 dev vb");
    let socket = UdpSocket::bind("0.0.0.0:7777").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    rig.configure(|settings| settings.signals = Some(TPIDS));
    let mut number = 0_u8;
    for has_priority in [false, true] {
        for tag in [None].into_iter().chain(tags().map(Some)) {
            number += 1;
            let ip = datagram(&[number; 40]);
            let (kind, rest) = match tag {
                Some(tag) => with_tag(tag, 0x0800, &ip),
                None => (0x0800, ip),
            };
            let frame = if has_priority {
                ethernet(
                    PORT,
                    0x8100,
                    &[&[0xa0, 0], &kind.to_be_bytes()[..], &rest].concat(),
                )
            } else {
                ethernet(PORT, kind, &rest)
            };
            assert_eq!(rig.fate(frame), Fate::Kernel);
            let mut payload = [0; 64];
            let len = socket.recv(&mut payload).expect("it arrives");
            assert_eq!(payload[..len], [number; 40], "{tag:?}, {has_priority}");
        }
    }
}
