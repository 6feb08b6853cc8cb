use super::*;
use crate::ingress::parse::parse;
use common::wire::checksum;
use common::wire::ip::v4;
use common::wire::roce::{BlockClass, TrafficPattern, TrafficPriority};
use proptest::prelude::*;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// BTH opcodes: RDMA WRITE ONLY of a reliable connection, plain and with an MPEH.
const PLAIN: u8 = 0x0a;
const MULTIPATH: u8 = 0xca;

/// An IPv4 packet with `payload` behind a UDP header to `port`, and bytes of `padding` behind
/// it.
fn frame(dscp: u8, port: u16, payload: &[u8], padding: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 20 + 8];
    bytes[..6].copy_from_slice(&OWN);
    bytes[12] = 8;
    let len = u16::try_from(28 + payload.len()).expect("short");
    bytes[14] = 0x45;
    bytes[15] = dscp << 2;
    bytes[16..18].copy_from_slice(&len.to_be_bytes());
    bytes[22] = 9;
    bytes[23] = protocol::UDP;
    bytes[26..30].copy_from_slice(&[10, 0, 0, 1]);
    bytes[30..34].copy_from_slice(&[10, 0, 0, 2]);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(padding);
    sum(&mut bytes);
    bytes
}

fn sum(bytes: &mut [u8]) {
    let at = 14 + v4::field::CHECKSUM;
    bytes[at..at + 2].fill(0);
    let sum = checksum::of(&bytes[14..34]);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn roce(opcode: u8) -> Vec<u8> {
    let mut payload = vec![0; 40];
    payload[0] = opcode;
    payload
}

fn sprayed(bytes: &[u8], spray: &HostSprayed) -> bool {
    let parsed = parse(bytes, OWN).expect("valid");
    steered(bytes, &parsed, spray) == Steered::ByHost
}

/// SW-5: MPEH, a code point of the mask, or the port; nothing else.
#[test]
fn tells_what_the_host_sprays() {
    let nothing = HostSprayed::default();
    assert!(sprayed(&frame(0, 4791, &roce(MULTIPATH), &[]), &nothing));
    assert!(!sprayed(&frame(0, 4791, &roce(PLAIN), &[]), &nothing));
    assert!(!sprayed(&frame(0, 4792, &roce(MULTIPATH), &[]), &nothing));
    let configured = HostSprayed {
        dscp: 1 << 63 | 1 << 26,
        udp_port: Some(4793),
        reads_hints: false,
    };
    for (dscp, port, expected) in [
        (26, 53, true),
        (63, 4791, true),
        (25, 4791, false),
        (0, 4793, true),
        (0, 4794, false),
    ] {
        let bytes = frame(dscp, port, &roce(PLAIN), &[]);
        assert_eq!(sprayed(&bytes, &configured), expected, "{dscp} {port}");
    }
}

/// SW-5: what is behind the IP packet, too short, or in a fragment says nothing.
#[test]
fn believes_only_the_packet() {
    let nothing = HostSprayed::default();
    let whole = roce(MULTIPATH);
    assert!(sprayed(&frame(0, 4791, &whole[..20], &[]), &nothing));
    assert!(!sprayed(&frame(0, 4791, &whole[..19], &whole), &nothing));
    assert!(!sprayed(&frame(0, 4791, &[], &whole), &nothing));
    let mut fragment = frame(0, 4791, &whole, &[]);
    fragment[20] = 0x20;
    sum(&mut fragment);
    assert!(!sprayed(&fragment, &nothing));
    let by_dscp = HostSprayed {
        dscp: 1,
        udp_port: Some(4791),
        reads_hints: false,
    };
    assert!(sprayed(&fragment, &by_dscp));
}

/// SW-6: the advice of a sender is read where that is wanted, and where it leaves the way to
/// switches; all others choose their way themselves.
#[test]
fn reads_what_the_sender_tells() {
    let wanted = HostSprayed {
        reads_hints: true,
        ..HostSprayed::default()
    };
    let hint = Hint {
        movable: true,
        priority: TrafficPriority::High,
        pattern: TrafficPattern::ManyToOne,
        blocks: BlockClass::Long,
    };
    let frame_with = |opcode, flags, tag| {
        let mut payload = roce(opcode);
        let mpeh = Mpeh {
            flags,
            tag,
            ..Mpeh::default()
        };
        mpeh.emit(&mut payload[Bth::LEN..]);
        frame(0, 4791, &payload, &[])
    };
    let read = |bytes: &[u8], spray: &HostSprayed| {
        let parsed = parse(bytes, OWN).expect("valid");
        steered(bytes, &parsed, spray)
    };
    let advised = |switched| Steered::Advised(Advice { hint, switched });
    let (tag, s) = (hint.tag(0xabcd), DataFlags::PATH_SWITCH);
    let data = frame_with(MULTIPATH, 0, tag);
    assert_eq!(read(&data, &wanted), advised(false));
    assert_eq!(read(&frame_with(MULTIPATH, s, tag), &wanted), advised(true));
    assert_eq!(read(&data, &HostSprayed::default()), Steered::ByHost);
    let fixed = Hint {
        movable: false,
        ..hint
    };
    let sprayed = frame_with(MULTIPATH, s, fixed.tag(0xffff));
    assert_eq!(read(&sprayed, &wanted), Steered::ByHost);
    // Of an acknowledgement the tag is a delay, and a flag without a meaning is no advice.
    let acknowledgement = frame_with(0xd1, 0, tag);
    assert_eq!(read(&acknowledgement, &wanted), Steered::ByHost);
    let mut wrong = data.clone();
    wrong[14 + 20 + 8 + Bth::LEN + 1] = 0x10;
    assert_eq!(read(&wrong, &wanted), Steered::ByHost);
    let by_dscp = HostSprayed { dscp: 1, ..wanted };
    assert_eq!(read(&data, &by_dscp), Steered::ByHost);
    let plain = frame_with(PLAIN, 0, tag);
    assert_eq!(read(&plain, &wanted), Steered::BySwitch);
}

proptest! {
    /// Offsets and lengths of a parser that is wrong do no harm.
    #[test]
    fn survives_anything(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        offsets in any::<(u16, u16, u16, u8)>(), spray in any::<(u64, Option<u16>)>(),
    ) {
        let mut parsed = parse(&frame(0, 4791, &roce(PLAIN), &[]), OWN).expect("valid");
        (parsed.network, parsed.transport, parsed.ip_len, parsed.dscp) = offsets;
        for cut in [(offsets.0 % 80, offsets.1 % 80, offsets.2 % 80), (offsets.0, offsets.1, offsets.2)] {
            (parsed.network, parsed.transport, parsed.ip_len) = cut;
            let spray = HostSprayed { dscp: spray.0, udp_port: spray.1, reads_hints: true };
            let expected = spray.dscp >> (parsed.dscp % 64) & 1 == 1;
            let found = steered(&bytes, &parsed, &spray) == Steered::ByHost;
            prop_assert!(found || !expected);
        }
    }
}
