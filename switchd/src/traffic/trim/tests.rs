use super::*;
use crate::tables::trim::SIZE_DEFAULT;
use crate::tables::trim::SIZE_MAX;
use crate::tables::trim::SIZE_MIN;
use common::wire::ethernet::Mac;
use common::wire::roce::Reth;
use common::wire::roce::frame::{self, Addresses};
use common::wire::roce::{DataFlags, Flow, Operation, icrc};
use common::xdp::frame::{FramePool, Region};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Code points of these tests: data and retransmissions are trimmable, acknowledgements are
/// control.
const DATA: u8 = 8;
const RTX: u8 = 9;
const TRIMMED: u8 = 16;
const ACK: u8 = 46;

/// Where the IP header begins behind no tag and behind one.
const PLAIN: u16 = 14;
const TAGGED: u16 = 18;

fn policy(size: u16) -> TrimPolicy {
    let mut policy = TrimPolicy {
        size,
        trimmable: 1 << DATA | 1 << RTX,
        rtx: 1 << RTX,
        control: 1 << ACK,
        ..TrimPolicy::default()
    };
    policy.trimmed_of[usize::from(DATA)] = TRIMMED;
    policy.trimmed_of[usize::from(RTX)] = TRIMMED;
    policy
}

/// A sealed RoCEv2 frame of DSCP [`DATA`] and ECT(0).
fn roce(is_v6: bool, opcode: Opcode, payload: usize) -> Vec<u8> {
    let flow = Flow {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        addresses: if is_v6 {
            Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
        } else {
            Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
        },
        src_port: 0xc001,
        flow_label: if is_v6 { 0xf_edcb } else { 0 },
        traffic_class: DATA << 2 | 2,
        ttl: 64,
    };
    let mut headers = Headers::new(Bth::new(opcode, 0x12_3456, 0x65_4321));
    headers.mpeh = opcode.is_multipath().then_some(Mpeh {
        path: 3,
        flags: DataFlags::PROBE,
        flowlet: 0x0405,
        tag: 0x0607,
    });
    headers.reth = Some(Reth {
        address: 0x0102_0304_0506_0708,
        rkey: 9,
        len: 10,
    });
    let mut bytes = vec![0; frame::layout(flow.addresses, &headers, payload).len];
    let place = frame::emit(&mut bytes, &flow, &headers, payload);
    for (n, byte) in bytes[place].iter_mut().enumerate() {
        *byte = n.to_le_bytes()[0];
    }
    frame::seal(&mut bytes).expect("a frame just written");
    bytes
}

const WRITES: [Opcode; 2] = [
    Opcode::Rc(Operation::WriteOnly),
    Opcode::Multipath(Operation::WriteOnly),
];

/// The frame with a tag, behind which its IP header begins at [`TAGGED`].
fn tagged(bytes: &[u8]) -> Vec<u8> {
    [&bytes[..12], &[0x81, 0, 0x60, 0x64], &bytes[12..]].concat()
}

/// The frame with `extra` put between its IP header and what follows, both versions' lengths made
/// right.
fn with_inserted(bytes: &[u8], extra: &[u8]) -> Vec<u8> {
    let ip = usize::from(PLAIN);
    let is_v6 = bytes[ip] >> 4 == 6;
    let after = ip
        + if is_v6 {
            v6::HEADER_LEN
        } else {
            v4::HEADER_LEN
        };
    let mut bytes = [&bytes[..after], extra, &bytes[after..]].concat();
    let len = u16::try_from(bytes.len() - if is_v6 { after } else { ip }).expect("short");
    if is_v6 {
        bytes[ip + v6::field::PAYLOAD_LEN..][..2].copy_from_slice(&len.to_be_bytes());
    } else {
        bytes[ip] += u8::try_from(extra.len() / 4).expect("options");
        bytes[ip + v4::field::TOTAL_LEN..][..2].copy_from_slice(&len.to_be_bytes());
        reseal(&mut bytes[ip..]);
    }
    bytes
}

/// Extension headers of `count` × 8 bytes, all hop-by-hop options, in front of UDP.
fn with_extensions(bytes: &[u8], count: u8) -> Vec<u8> {
    let mut chain = vec![0; usize::from(count) * 8];
    chain[0] = protocol::UDP;
    chain[1] = count - 1;
    let mut bytes = with_inserted(bytes, &chain);
    bytes[usize::from(PLAIN) + v6::field::NEXT_HEADER] = protocol::HOP_BY_HOP;
    bytes
}

/// Computes the IPv4 header checksum from nothing.
fn reseal(ip: &mut [u8]) {
    ip[v4::field::CHECKSUM..][..2].fill(0);
    let header = usize::from(ip[0] & 0xf) * 4;
    let sum = checksum::of(&ip[..header]);
    ip[v4::field::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// Trims a copy of the frame: what became of it, and the bytes afterwards.
fn trimmed(bytes: &[u8], network: u16, policy: &TrimPolicy) -> (Option<Trimmed>, Vec<u8>) {
    let mut pool = FramePool::new(Region::heap(1, 8192, 64));
    let mut frame = pool.take_filled(bytes).expect("a free frame");
    let what = trim(&mut frame, network, policy);
    let after = frame.bytes().to_vec();
    pool.give(frame);
    (what, after)
}

/// What the frame must be after it was cut to `len` bytes, written without any of the code under
/// test.
fn expected(bytes: &[u8], network: u16, len: usize) -> Vec<u8> {
    let network = usize::from(network);
    let mut after = bytes[..len].to_vec();
    let ip = &mut after[network..];
    let total = |fixed: usize| u16::try_from(len - network - fixed).expect("short");
    // Of UDP without extension headers, where something was cut off.
    let header = if ip[0] >> 4 == 4 {
        usize::from(ip[0] & 0xf) * 4
    } else {
        udp_of_v6(ip)
    };
    let is_cut = if ip[0] >> 4 == 4 {
        u16::from_be_bytes([ip[2], ip[3]]) > total(0)
    } else {
        u16::from_be_bytes([ip[4], ip[5]]) > total(40)
    };
    if is_cut {
        ip[header + 4..header + 6].copy_from_slice(&total(header).to_be_bytes());
    }
    if ip[0] >> 4 == 4 {
        ip[1] = TRIMMED << 2 | ip[1] & 3;
        ip[2..4].copy_from_slice(&total(0).to_be_bytes());
        reseal(ip);
    } else {
        ip[0] = 0x60 | TRIMMED >> 2;
        ip[1] = (TRIMMED & 3) << 6 | ip[1] & 0x3f;
        ip[4..6].copy_from_slice(&total(40).to_be_bytes());
    }
    after
}

/// Where UDP begins, behind one extension header at most.
fn udp_of_v6(ip: &[u8]) -> usize {
    match ip[6] {
        protocol::HOP_BY_HOP => 40 + 8 * (usize::from(ip[41]) + 1),
        _ => 40,
    }
}

/// The frame must be trimmed to `len` bytes, and nothing but the IP header and the UDP length may
/// differ.
fn assert_cut(bytes: &[u8], network: u16, policy: &TrimPolicy, len: usize) {
    let (what, after) = trimmed(bytes, network, policy);
    let expected_what = Trimmed {
        len,
        dscp: TRIMMED,
        shortened: true,
    };
    assert_eq!(what, Some(expected_what));
    assert_eq!(after, expected(bytes, network, len));
}

/// The frame must not be trimmed and not be touched.
fn assert_refused(bytes: &[u8], network: u16, policy: &TrimPolicy) {
    assert_eq!(trimmed(bytes, network, policy), (None, bytes.to_vec()));
}

/// SW-23: cut to the size, DSCP, lengths and header checksum right, ECN, ports and payload
/// untouched; with and without MPEH, with and without a tag.
#[test]
fn data_packets_are_cut_to_their_headers() {
    for is_v6 in [false, true] {
        for opcode in WRITES {
            for size in [SIZE_MIN, SIZE_DEFAULT, 256] {
                let bytes = roce(is_v6, opcode, 1024);
                let len = usize::from(size);
                assert_cut(&bytes, PLAIN, &policy(size), len);
                assert_cut(&tagged(&bytes), TAGGED, &policy(size), len);
            }
        }
    }
}

/// SW-23: with `headers_only` nothing of the payload is left, however large the size is. The
/// receiver reads the headers as those of a packet without payload, whose ICRC does not hold.
#[test]
fn headers_alone_are_kept() {
    let only = TrimPolicy {
        headers_only: true,
        ..policy(SIZE_DEFAULT)
    };
    for is_v6 in [false, true] {
        for opcode in WRITES {
            // With three bytes of padding, and with none.
            for payload in [1021, 1024] {
                let bytes = roce(is_v6, opcode, payload);
                let ip = usize::from(PLAIN) + if is_v6 { 40 } else { 20 };
                let pad = (1024 - payload) % 4;
                let len = ip + udp::HEADER_LEN + Headers::len_of(opcode) + pad + ICRC_LEN;
                assert_cut(&bytes, PLAIN, &only, len.max(ethernet::MIN_LEN));
                let (_, after) = trimmed(&bytes, PLAIN, &only);
                let (headers, left) =
                    Headers::parse(&after[ip + udp::HEADER_LEN..len]).expect("headers");
                assert_eq!((headers.bth.psn, left.len()), (0x65_4321, 0));
                assert!(icrc::verify_sparse(&after[usize::from(PLAIN)..len], 0..0).is_err());
            }
        }
        // The size is still the most.
        let long = roce(is_v6, WRITES[1], 1024);
        let least = TrimPolicy {
            size: SIZE_MIN,
            ..only.clone()
        };
        let (what, _) = trimmed(&tagged(&long), TAGGED, &least);
        assert!(what.is_some_and(|what| what.len <= usize::from(SIZE_MIN)));
    }
    // Other transports are cut to the size.
    let mut other = roce(false, WRITES[0], 1024);
    other[usize::from(PLAIN) + v4::HEADER_LEN + udp::field::DST_PORT] ^= 1;
    assert_cut(&other, PLAIN, &only, SIZE_DEFAULT.into());
}

/// SW-23: the receiver can read every header of what is left, and finds a whole datagram.
#[test]
fn what_is_left_tells_what_was_lost() {
    let immediate = Opcode::Multipath(Operation::WriteOnlyImmediate);
    let bytes = tagged(&roce(true, immediate, 4000));
    let (_, after) = trimmed(&bytes, TAGGED, &policy(SIZE_MIN));
    let packet = v6::Packet::new_checked(&after[18..]).expect("a whole packet");
    let datagram = packet.payload();
    assert_eq!(datagram.len(), 8 + Headers::len_of(immediate));
    assert_eq!(datagram[..4], bytes[58..62], "ports");
    assert_eq!(datagram[8..], bytes[66..][..datagram.len() - 8]);
    let whole = udp::Datagram::new_checked(datagram).expect("a whole datagram");
    assert_eq!(whole.payload().len(), Headers::len_of(immediate));
    let bth = Bth::parse(&datagram[8..]).expect("a BTH");
    assert_eq!((bth.psn, bth.dest_qp), (0x65_4321, 0x12_3456));
    let mpeh = Mpeh::parse(&datagram[20..]).expect("an MPEH");
    assert_eq!((mpeh.path, mpeh.flowlet), (3, 0x0405));
}

/// SW-23: a UDP checksum is that of what is left; one of zero, which says that there is none,
/// stays.
#[test]
fn udp_checksums_are_made_right() {
    for is_v6 in [false, true] {
        let mut bytes = roce(is_v6, WRITES[0], 1024);
        let at = usize::from(PLAIN) + if is_v6 { 40 } else { 20 };
        // As any sender of UDP would: the sum over the whole datagram.
        let sum = |bytes: &[u8]| {
            let addresses = if is_v6 {
                &bytes[22..54]
            } else {
                &bytes[26..34]
            };
            let len = u16::try_from(bytes.len() - at).expect("short");
            let pseudo = Sum::default().bytes(addresses).word(17).word(len);
            pseudo.bytes(&bytes[at..]).finish()
        };
        assert_eq!(bytes[at + 6..at + 8], [0, 0], "RoCEv2 has none");
        let right = sum(&bytes);
        bytes[at + 6..at + 8].copy_from_slice(&right.to_be_bytes());
        assert_eq!(sum(&bytes), 0);
        let (_, after) = trimmed(&bytes, PLAIN, &policy(SIZE_DEFAULT));
        assert_eq!(sum(&after), 0);
        assert_ne!(after[at + 6..at + 8], bytes[at + 6..at + 8]);
    }
}

/// SW-23: a packet that fits keeps its bytes and its valid ICRC; only its DSCP says that there was
/// no room for it.
#[test]
fn short_packets_change_their_code_point_only() {
    for is_v6 in [false, true] {
        let bytes = roce(is_v6, WRITES[0], 8);
        let (what, after) = trimmed(&bytes, PLAIN, &policy(SIZE_DEFAULT));
        let expected_what = Trimmed {
            len: bytes.len(),
            dscp: TRIMMED,
            shortened: false,
        };
        assert_eq!(what, Some(expected_what));
        assert_eq!(after, expected(&bytes, PLAIN, bytes.len()));
        assert_eq!(icrc::verify_sparse(&after[14..], 0..0), Ok(()));
        // A packet of exactly the size is whole; one byte less, and it is cut.
        let size = u16::try_from(bytes.len()).expect("short").max(SIZE_MIN);
        let longer = roce(is_v6, WRITES[0], 8 + usize::from(size) - bytes.len());
        let len = u16::try_from(longer.len()).expect("short");
        let (what, _) = trimmed(&longer, PLAIN, &policy(len));
        assert!(what.is_some_and(|what| !what.shortened));
        assert_cut(&longer, PLAIN, &policy(len - 1), usize::from(len) - 1);
    }
}

/// SW-23: a trimmed packet is not trimmed again, nor is one whose code point is not trimmable.
#[test]
fn nothing_is_trimmed_twice() {
    for is_v6 in [false, true] {
        let bytes = roce(is_v6, WRITES[1], 1024);
        let policy = policy(256);
        let (_, once) = trimmed(&bytes, PLAIN, &policy);
        assert_refused(&once, PLAIN, &policy);
        assert_refused(&bytes, PLAIN, &TrimPolicy::default());
    }
}

/// SW-23: padding goes with what is cut, and is otherwise kept only up to the least frame.
#[test]
fn padding_is_not_taken_for_payload() {
    let policy = policy(SIZE_DEFAULT);
    let long = [roce(false, WRITES[0], 512), vec![0xaa; 40]].concat();
    assert_cut(&long, PLAIN, &policy, 128);

    let whole = roce(false, WRITES[0], 8);
    let padded = [&whole[..], &[0xaa; 100]].concat();
    let (what, after) = trimmed(&padded, PLAIN, &policy);
    assert!(what.is_some_and(|what| !what.shortened && what.len == whole.len()));
    assert_eq!(after, expected(&whole, PLAIN, whole.len()));

    // 20 + 8 + 4 bytes of IP in a frame that a sender filled up.
    let mut small = roce(false, WRITES[0], 0)[..46].to_vec();
    small[16..18].copy_from_slice(&32_u16.to_be_bytes());
    reseal(&mut small[14..]);
    let padded = [&small[..], &[0xaa; 30]].concat();
    let (what, after) = trimmed(&padded, PLAIN, &policy);
    assert!(what.is_some_and(|what| !what.shortened && what.len == 60));
    assert_eq!(after[..46], expected(&small, PLAIN, 46));
    assert_eq!(after[46..], padded[46..60]);
}

/// SW-23: options and extension headers stay with the transport headers behind them, or nothing is
/// trimmed.
#[test]
fn all_headers_fit_or_nothing_is_cut() {
    let v4 = roce(false, WRITES[1], 1024);
    let v4 = with_inserted(&v4, &[1; 40]);
    assert_cut(&v4, PLAIN, &policy(128), 128);
    // 14 + 60 + 8 + 12 + 8 + 8 + 16 bytes of headers.
    assert_cut(&v4, PLAIN, &policy(126), 126);
    assert_refused(&v4, PLAIN, &policy(125));
    // The extension of the MPEH has a block.
    let mut longer = v4.clone();
    longer[14 + 60 + 8 + 12 + 8] = 3;
    longer[14 + 60 + 8 + 12 + 9] = 1;
    assert_cut(&longer, PLAIN, &policy(130), 130);
    assert_refused(&longer, PLAIN, &policy(129));

    let v6 = with_extensions(&roce(true, WRITES[1], 1024), 4);
    // 14 + 40 + 32 + 8 + 12 + 8 + 8 + 16.
    assert_cut(&v6, PLAIN, &policy(138), 138);
    assert_refused(&v6, PLAIN, &policy(137));

    let deep = with_extensions(&roce(true, WRITES[0], 1024), 100);
    assert_refused(&deep, PLAIN, &policy(256));
    let mut lying = v6.clone();
    lying[14 + 40 + 1] = 255;
    assert_refused(&lying, PLAIN, &policy(256));
}

/// SW-23: other transports keep their headers too, an unknown one twenty bytes.
#[test]
fn every_transport_keeps_its_header() {
    let mut bytes = with_inserted(&roce(false, WRITES[0], 1024), &[1; 40]);
    let room = |headers: u16| policy(14 + 60 + headers);
    let mut least = |protocol: u8, at: usize, byte: u8| {
        bytes[14 + v4::field::PROTOCOL] = protocol;
        bytes[14 + 60 + at] = byte;
        reseal(&mut bytes[14..]);
        let fits = |headers: &u16| trimmed(&bytes, PLAIN, &room(*headers)).0.is_some();
        (1..200).find(fits).expect("some room is enough")
    };
    assert_eq!(least(protocol::UDP, 2, 0xff), 24, "another port");
    assert_eq!(least(protocol::UDP, 2, 0x12), 8 + 12 + 16, "WRITE ONLY");
    assert_eq!(least(protocol::UDP, 8, 0x81), 8 + 12 + 16, "CNP");
    assert_eq!(least(protocol::UDP, 8, 0x24), 8 + 12, "another transport");
    assert_eq!(least(protocol::UDP, 8, 0xdf), 8 + 12 + 8 + 8, "its MPEH");
    assert_eq!(least(protocol::TCP, 12, 0xb0), 44, "options");
    assert_eq!(least(protocol::TCP, 12, 0x10), 20, "an impossible offset");
    assert_eq!(least(253, 12, 0xf0), 20, "an unknown protocol");
}

/// SW-23: fragments are dropped whole.
#[test]
fn fragments_are_not_trimmed() {
    let mut v4 = roce(false, WRITES[0], 1024);
    for fragment in [v4::MORE_FRAGMENTS, v4::MORE_FRAGMENTS | 9, 9] {
        v4[20..22].copy_from_slice(&fragment.to_be_bytes());
        reseal(&mut v4[14..]);
        assert_refused(&v4, PLAIN, &policy(256));
    }
    for offset in [0, 9 << 3] {
        let fragment = [protocol::UDP, 0, 0, offset, 0, 0, 0, 1];
        let mut v6 = with_inserted(&roce(true, WRITES[0], 1024), &fragment);
        v6[20] = protocol::FRAGMENT;
        assert_refused(&v6, PLAIN, &policy(256));
    }
}

/// SW-23: thresholds of data and of retransmissions, in bytes of the queue.
#[test]
fn retransmissions_are_trimmed_later() {
    let policy = policy(SIZE_DEFAULT);
    assert_eq!(policy.threshold(DATA, 600_000, 900_000), Some(600_000));
    assert_eq!(policy.threshold(RTX, 600_000, 900_000), Some(900_000));
    assert_eq!(
        policy.threshold(RTX, 0, u32::MAX),
        Some(u64::from(u32::MAX))
    );
    assert_eq!(policy.threshold(TRIMMED, 600_000, 900_000), None);
    assert_eq!(policy.trimmed(), 1 << TRIMMED);
    assert_eq!(TrimPolicy::default().trimmed(), 0);
}

/// SW-23: what would trim twice, or confuse trimmed packets with others, is refused with its
/// numbers.
#[test]
fn impossible_policies_are_refused() {
    type Change = fn(&mut TrimPolicy);
    assert_eq!(TrimPolicy::default().check(), Ok(()));
    assert_eq!(policy(SIZE_MIN).check(), Ok(()));
    assert_eq!(policy(SIZE_MAX).check(), Ok(()));
    let wrong: [(Change, &str); 8] = [
        (
            |policy| policy.size = 113,
            "a trimmed frame of 113 bytes; 114 to 4096 are possible",
        ),
        (
            |policy| policy.size = 4097,
            "a trimmed frame of 4097 bytes; 114 to 4096 are possible",
        ),
        (
            |policy| policy.control |= 1 << 9,
            "DSCP 9 is both trimmable and for control packets",
        ),
        (
            |policy| policy.rtx |= 1 << 63,
            "DSCP 63 is for trimmable retransmissions, but not trimmable",
        ),
        (
            |policy| policy.trimmed_of[8] = 64,
            "trimmable DSCP 8 becomes 64; code points are 0 to 63",
        ),
        (
            |policy| policy.trimmed_of[8] = 8,
            "trimmable DSCP 8 becomes 8, which is trimmable itself",
        ),
        (
            |policy| policy.trimmed_of[9] = 8,
            "trimmable DSCP 9 becomes 8, which is trimmable itself",
        ),
        (
            |policy| policy.trimmed_of[9] = 46,
            "trimmable DSCP 9 becomes 46, which is for control packets",
        ),
    ];
    for (change, text) in wrong {
        let mut policy = policy(SIZE_DEFAULT);
        change(&mut policy);
        let error = policy.check().expect_err(text);
        assert_eq!(error.to_string(), text);
    }
    let mut others = policy(SIZE_DEFAULT);
    others.trimmed_of[1] = 255;
    assert_eq!(others.check(), Ok(()), "not trimmable, so not looked at");
}

proptest! {
    /// SW-23: any RoCEv2 frame of any length and policy is cut to the size or left whole, and its
    /// header is the one that a whole computation writes.
    #[test]
    fn any_frame_is_trimmed_right(
        is_v6: bool,
        is_multipath: bool,
        is_tagged: bool,
        payload in 0_usize..2048,
        padding in 0_usize..64,
        options in 0_usize..10,
        size in SIZE_MIN..1024,
        headers_only: bool,
    ) {
        let mut whole = roce(is_v6, WRITES[usize::from(is_multipath)], payload);
        let options = if is_v6 { options / 2 * 2 } else { options };
        if options > 0 && is_v6 {
            whole = with_extensions(&whole, u8::try_from(options).expect("few"));
        } else if options > 0 {
            whole = with_inserted(&whole, &vec![1; options * 4]);
        }
        let network = if is_tagged { TAGGED } else { PLAIN };
        if is_tagged {
            whole = tagged(&whole);
        }
        let bytes = [&whole[..], &vec![0x5a; padding]].concat();
        let headers = whole.len() - payload - payload.wrapping_neg() % 4 - 4;
        let policy = TrimPolicy { headers_only, ..policy(size) };
        let size = usize::from(size);
        let kept = if headers_only { size.min(whole.len() - payload) } else { size };
        if whole.len() > size && headers > size {
            assert_refused(&bytes, network, &policy);
        } else if whole.len() > kept {
            assert_cut(&bytes, network, &policy, kept);
        } else {
            let (what, after) = trimmed(&bytes, network, &policy);
            prop_assert!(what.is_some_and(|what| !what.shortened && what.len == whole.len()));
            prop_assert_eq!(after, expected(&whole, network, whole.len()));
        }
    }

    /// Bytes of any length and content, made to look like IP, are survived; a frame never grows,
    /// and what is trimmed is a packet that the rest of the switch can read.
    #[test]
    fn any_bytes_are_taken(
        mut bytes in prop::collection::vec(any::<u8>(), 0..1600),
        network in prop::sample::select(vec![0_u16, 14, 18, 1590, u16::MAX]),
        first in prop::sample::select(vec![0x45_u8, 0x46, 0x60, 0x00]),
        is_honest: bool,
        next in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 60]),
        size: u16,
    ) {
        let at = usize::from(network);
        let room = u16::try_from(bytes.len().saturating_sub(at)).expect("short");
        if let Some(ip) = bytes.get_mut(at..).filter(|ip| is_honest && ip.len() >= 40) {
            ip[0] = first;
            ip[1] = DATA << 2;
            if first == 0x60 {
                ip[0] |= DATA >> 2;
                ip[4..6].copy_from_slice(&(room - 40).to_be_bytes());
                ip[6] = next;
            } else {
                ip[2..4].copy_from_slice(&room.to_be_bytes());
                ip[6..8].fill(0);
                ip[9] = next;
            }
        }
        let (what, after) = trimmed(&bytes, network, &policy(size));
        prop_assert!(after.len() <= bytes.len());
        match what {
            None => prop_assert_eq!(after, bytes),
            Some(what) => {
                prop_assert_eq!(what.len, after.len());
                let ip = &after[at..];
                let is_whole = v4::Packet::new_checked(ip).is_ok() || v6::Packet::new_checked(ip).is_ok();
                prop_assert!(is_whole);
            }
        }
    }
}
