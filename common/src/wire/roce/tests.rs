use super::super::ethernet::Mac;
use super::super::{Error, ip, udp};
use super::frame::{self, Addresses};
use super::opcode::OPERATIONS;
use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16);
    digits
        .chunks(2)
        .map(|pair| byte(pair).expect("hex"))
        .collect()
}

const WRITE_ONLY: &str = "4502004400004000401126a50a0000010a000002c00112b7003000000a30ffff\
     000012348000004d0000000000001000deadbeef0000000568656c6c6f0000007b94e3a1";

/// HT-10: a CNP captured from a ConnectX-4 Lx, and a WRITE whose ICRC two other programs agree on.
#[test]
fn icrc_vectors_of_others() {
    let cnp = "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118\
               000000000000000000000000000000000000000082fd002a";
    for packet in [cnp, WRITE_ONLY] {
        assert_eq!(icrc::verify_sparse(&bytes_of(packet), 0..0), Ok(()));
    }
}

/// HT-10: what switches may change does not count; everything else does.
#[test]
fn the_icrc_covers_what_must_not_change() {
    let packet = bytes_of(WRITE_ONLY);
    for (at, free) in [
        (1, true),
        (8, true),
        (10, true),
        (26, true),
        (32, true),
        (36, false),
        (6, false),
        (20, false),
        (63, false),
    ] {
        let mut changed = packet.clone();
        changed[at] ^= 0x40;
        assert_eq!(
            icrc::verify_sparse(&changed, 0..0).is_ok(),
            free,
            "byte {at}"
        );
    }
    assert!(icrc::verify_sparse(&packet[..40], 0..0).is_err());
    assert!(
        icrc::verify_sparse(&packet[..20], 0..0).is_err()
            && icrc::verify_sparse(&[], 0..0).is_err()
    );
}

fn flow(addresses: Addresses) -> Flow {
    Flow {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        addresses,
        src_port: 0xc001,
        flow_label: 0x1_2345,
        traffic_class: 2,
        ttl: 64,
    }
}

fn v4() -> Addresses {
    Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
}

fn v6() -> Addresses {
    let host = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    Addresses::V6(host(1), host(2))
}

fn write_only(opcode: Opcode) -> Headers {
    let mut headers = Headers::new(Bth::new(opcode, 0x1234, 77));
    headers.bth.migrated = false;
    headers.bth.ack_request = true;
    headers.reth = Some(Reth {
        address: 0x1000,
        rkey: 0xdead_beef,
        len: 5,
    });
    headers
}

fn build(addresses: Addresses, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xa5; frame::layout(addresses, headers, payload.len()).len];
    let place = frame::emit(&mut bytes, &flow(addresses), headers, payload.len());
    bytes[place].copy_from_slice(payload);
    frame::seal(&mut bytes).expect("a frame just written");
    bytes
}

/// HT-10, HT-11: frames of ours are the vectors, to the byte or to the ICRC.
#[test]
fn frames_are_the_vectors() {
    let plain = Opcode::Rc(Operation::WriteOnly);
    let bytes = build(v4(), &write_only(plain), b"hello");
    assert_eq!(bytes[14..], bytes_of(WRITE_ONLY)[..]);

    let bytes = build(v6(), &write_only(plain), b"hello");
    assert_eq!(bytes[bytes.len() - 4..], [0xf2, 0xae, 0xd5, 0x7f]);

    let mut ack = Headers::new(Bth::new(Opcode::Rc(Operation::Acknowledge), 0x1234, 77));
    ack.bth.migrated = false;
    ack.aeth = Some(Aeth {
        kind: AckKind::Ack { credits: 31 },
        msn: 1,
    });
    let bytes = build(v4(), &ack, &[]);
    assert_eq!(bytes.len(), 14 + 20 + 8 + 12 + 4 + 4);
}

/// HT-11: the MPEH is eight bytes right after the BTH, in network order, its reserved bytes are
/// zero, and the extension follows it.
#[test]
fn mpeh_lies_after_the_bth() {
    let mut headers = write_only(Opcode::Multipath(Operation::WriteOnly));
    headers.mpeh = Some(Mpeh {
        path: 7,
        flags: DataFlags::FLOWLET_BOUNDARY,
        flowlet: 0x0203,
        tag: 0x0a0b,
    });
    headers.extension = Some(Extension::new(Cookie::new(0x0a1a_2a3a_4a5a)));
    let bytes = build(v4(), &headers, b"hello");
    assert_eq!(bytes[42], 0xca);
    assert_eq!(bytes[54..62], [7, 1, 2, 3, 0x0a, 0x0b, 0, 0]);
    assert_eq!(bytes[62..70], [2, 0, 0x0a, 0x1a, 0x2a, 0x3a, 0x4a, 0x5a]);
    let (parsed, payload) = Headers::parse(&bytes[42..]).expect("valid");
    assert_eq!(parsed.mpeh, headers.mpeh);
    assert_eq!(parsed.extension, headers.extension);
    assert_eq!(bytes[42..][payload], b"hello"[..]);
}

/// HT-11: blocks that later versions add to the extension are skipped, and everything behind them
/// is where it belongs.
#[test]
fn blocks_to_come_are_skipped() {
    let mpeh = Some(Mpeh {
        path: 7,
        flags: 0,
        flowlet: 0,
        tag: 9,
    });
    let mut write = write_only(Opcode::Multipath(Operation::WriteOnly));
    let acknowledge = Opcode::Multipath(Operation::Acknowledge);
    let mut ack = Headers::new(Bth::new(acknowledge, 0x1234, 77));
    ack.aeth = Some(Aeth {
        kind: AckKind::Ack { credits: 31 },
        msn: 1,
    });
    ack.sack = Some(Sack::default());
    for (headers, payload) in [(&mut write, &b"hello"[..]), (&mut ack, &b""[..])] {
        headers.mpeh = mpeh;
        headers.extension = Some(Extension::new(Cookie::new(0x0a1a_2a3a_4a5a)));
        let bytes = build(v4(), headers, payload);
        let (known, _) = Headers::parse(&bytes[42..]).expect("valid");
        let mut later = bytes[42..].to_vec();
        // The length in words, and the bits of the blocks.
        later[20] += 2;
        later[21] |= 0x40;
        later.splice(28..28, [0xee; 8]);
        let (parsed, place) = Headers::parse(&later).expect("valid");
        assert_eq!((parsed, &later[place]), (known, payload));
    }
}

#[test]
fn wrong_headers_are_refused() {
    let bytes = build(
        v4(),
        &write_only(Opcode::Rc(Operation::WriteOnly)),
        b"hello",
    );
    let good = &bytes[42..];
    assert!(Headers::parse(good).is_ok());
    for cut in 0..good.len() - 8 {
        assert!(Headers::parse(&good[..cut]).is_err(), "{cut} bytes");
    }
    for (at, value, field) in [
        (0, 0x15, "opcode"),
        (0, 0x2a, "opcode"),
        (1, 0x01, "transport version"),
    ] {
        let mut wrong = good.to_vec();
        wrong[at] = value;
        assert!(matches!(Headers::parse(&wrong), Err(Error::Field { field: f, .. }) if f == field));
    }
    let mut ack = good.to_vec();
    ack[0] = Opcode::Rc(Operation::Acknowledge).byte();
    assert!(Headers::parse(&ack).is_err(), "an ACK with payload");
}

#[test]
fn rnr_timers_are_those_of_the_table() {
    assert_eq!(Aeth::rnr_nanos(0), 655_360_000);
    assert_eq!(Aeth::rnr_nanos(1), 10_000);
    assert_eq!(Aeth::rnr_nanos(31), 491_520_000);
}

#[test]
fn a_sack_says_what_arrived() {
    let mut sack = Sack {
        trigger: 9,
        ..Sack::default()
    };
    assert!(sack.is_empty() && sack.highest().is_none());
    sack.set(0);
    sack.set(200);
    sack.set(SACK_BITS);
    assert!(sack.has(0) && sack.has(200) && !sack.has(1) && !sack.has(SACK_BITS));
    assert_eq!(sack.highest(), Some(200));
    let mut bytes = [0xff; Sack::LEN];
    sack.emit(&mut bytes);
    assert_eq!((bytes[0], bytes[25], bytes[34]), (1, 1, 9));
    assert_eq!(Sack::parse(&bytes), Ok(sack));
}

/// HT-42: marks name packets from their base on, across the wrap of sequence numbers.
#[test]
fn marks_name_packets() {
    let mut marks = Marks {
        base: PSN_MASK - 1,
        ..Marks::default()
    };
    assert!(marks.is_empty());
    assert_eq!((marks.bit(PSN_MASK - 1), marks.bit(2)), (1, 1 << 4));
    assert_eq!((marks.bit(PSN_MASK - 2), marks.bit(126)), (0, 0));
    marks.marked = marks.bit(125);
    marks.trimmed = marks.bit(PSN_MASK);
    let sack = Sack {
        marks: Some(marks),
        ..Sack::default()
    };
    let mut bytes = [0xff; Sack::LEN + Marks::LEN];
    sack.emit(&mut bytes);
    assert_eq!(
        (bytes[35], bytes[39], bytes[55], bytes[56]),
        (1, 0, 0x80, 2)
    );
    assert_eq!(Sack::parse(&bytes), Ok(sack));
    assert!(Sack::parse(&bytes[..71]).is_err(), "cut");
    bytes[39] = 21;
    marks.crowd = Crowd::from_code(21);
    let crowded = Sack {
        marks: Some(marks),
        ..sack
    };
    assert_eq!(Sack::parse(&bytes), Ok(crowded));
    bytes[35] = 2;
    assert!(Sack::parse(&bytes).is_err(), "no such block");
}

fn any_headers() -> impl Strategy<Value = Headers> {
    let opcode = (0..OPERATIONS.len(), any::<bool>()).prop_map(|(n, multipath)| {
        if multipath {
            Opcode::Multipath(OPERATIONS[n])
        } else {
            Opcode::Rc(OPERATIONS[n])
        }
    });
    (
        opcode,
        0..=PSN_MASK,
        0..=PSN_MASK,
        any::<[u8; 8]>(),
        any::<u64>(),
        any::<u32>(),
    )
        .prop_map(|(opcode, qp, psn, small, big, word)| {
            let operation = opcode.operation().expect("of a connection");
            let multipath = opcode.is_multipath();
            let mut headers = Headers::new(Bth::new(opcode, qp, psn));
            headers.bth.solicited = small[0] & 1 != 0;
            headers.bth.ack_request = small[0] & 2 != 0;
            headers.mpeh = multipath.then_some(Mpeh {
                path: small[1],
                flags: small[2] & 15,
                flowlet: 7,
                tag: 9,
            });
            headers.extension = multipath.then_some(Extension::new(Cookie::new(big)));
            headers.reth = operation.has_reth().then_some(Reth {
                address: big,
                rkey: word,
                len: 3,
            });
            headers.atomic = operation.has_atomic().then_some(AtomicEth {
                address: big,
                rkey: word,
                swap_or_add: 1,
                compare: 2,
            });
            headers.aeth = operation.has_aeth().then_some(Aeth {
                kind: AckKind::ReceiverNotReady {
                    timer: small[3] & 31,
                },
                msn: qp,
            });
            headers.sack = (multipath && operation == Operation::Acknowledge).then_some(Sack {
                bitmap: [big; 4],
                trigger: psn,
                marks: (small[4] & 1 != 0).then_some(Marks {
                    base: qp,
                    crowd: Crowd::from_code(small[5]),
                    marked: u128::from(big) << 3,
                    trimmed: u128::from(word) << 90,
                }),
            });
            headers.atomic_original = (operation == Operation::AtomicAcknowledge).then_some(big);
            headers.immediate = operation.has_immediate().then_some(word);
            headers.invalidate = operation.has_invalidate().then_some(word);
            headers
        })
}

proptest! {
    /// HT-10, HT-11: what is written is read back, and its ICRC holds, over both versions of IP.
    #[test]
    fn frames_are_read_back(headers in any_headers(), payload in prop::collection::vec(any::<u8>(), 0..300), six: bool) {
        let payload = if headers.bth.opcode.operation().expect("rc").has_payload() { payload } else { vec![] };
        let addresses = if six { v6() } else { v4() };
        let bytes = build(addresses, &headers, &payload);
        prop_assert_eq!(icrc::verify_sparse(&bytes[14..], 0..0), Ok(()));
        let datagram = if six {
            let packet = ip::v6::Packet::new_checked(&bytes[14..]).expect("valid");
            packet.payload().to_vec()
        } else {
            let packet = ip::v4::Packet::new_checked(&bytes[14..]).expect("valid");
            prop_assert!(packet.verify_checksum());
            packet.payload().to_vec()
        };
        let datagram = udp::Datagram::new_checked(&datagram[..]).expect("valid");
        let (parsed, place) = Headers::parse(datagram.payload()).expect("valid");
        prop_assert_eq!(&datagram.payload()[place], &payload[..]);
        prop_assert_eq!(Headers { bth: Bth { pad: 0, ..parsed.bth }, ..parsed }, headers);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, opcode in 0..OPERATIONS.len(), multipath: bool) {
        let mut bytes = bytes;
        let _ = Headers::parse(&bytes);
        let _ = icrc::verify_sparse(&bytes, 0..0);
        if bytes.len() > 2 {
            let operation = OPERATIONS[opcode];
            bytes[0] = if multipath { Opcode::Multipath(operation) } else { Opcode::Rc(operation) }.byte();
            bytes[1] &= 0xf0;
            let _ = Headers::parse(&bytes);
        }
    }

    /// HT-10: a payload of zeros that is not looked at counts like one that is.
    #[test]
    fn zeros_need_not_be_there(len in 0..9000_usize, garbage: u8, six: bool) {
        let headers = write_only(Opcode::Rc(Operation::WriteOnly));
        let addresses = if six { v6() } else { v4() };
        let mut bytes = build(addresses, &headers, &vec![0; len]);
        let place = frame::layout(addresses, &headers, len).payload;
        let zeros = place.start - 14..place.end - 14;
        let sealed = bytes[bytes.len() - 4..].to_vec();
        bytes[place.clone()].fill(garbage);
        prop_assert_eq!(icrc::verify_sparse(&bytes[14..], zeros.clone()), Ok(()));
        frame::seal_sparse(&mut bytes, place).expect("a frame just written");
        prop_assert_eq!(&bytes[bytes.len() - 4..], &sealed[..]);
        bytes[43] ^= 1;
        prop_assert!(icrc::verify_sparse(&bytes[14..], zeros).is_err());
        let outside = bytes.len()..bytes.len() + 1;
        prop_assert!(icrc::verify_sparse(&bytes[14..], outside).is_err());
        prop_assert!(icrc::verify_sparse(&bytes[14..], 3..100).is_err());
    }

    /// HT-10: one flipped bit in what is covered is noticed.
    #[test]
    fn a_flipped_bit_is_noticed(at in 42..74_usize, bit in 0..8_u8) {
        let mut bytes = build(v4(), &write_only(Opcode::Rc(Operation::WriteOnly)), b"hello");
        prop_assume!(at != 46);
        bytes[at] ^= 1 << bit;
        prop_assert!(icrc::verify_sparse(&bytes[14..], 0..0).is_err());
    }
}
