//! SW-40: messages of in-network compute, byte by byte and as properties.

use super::*;
use proptest::prelude::*;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

const CHUNK: Chunk<'static> = Chunk {
    work: Work::Allreduce(Operation::Max, Element::Bf16),
    slot: Slot {
        number: 0x0102,
        version: 1,
    },
    sequence: 0x0304_0506_0708_090a,
    contributions: 0x0b0c_0d0e_0f10_1112,
    complete: 0,
    data: &[1, 2, 3, 4],
};

fn packet(message: Message<'_>) -> Packet<'_> {
    Packet {
        flags: Flags::default(),
        job: 0x2122_2324,
        epoch: 0x3132_3334,
        rank: 0x4142,
        message,
    }
}

const MEMBER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SWITCH: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xff));

/// Its bytes, from [`MEMBER`] to [`SWITCH`].
fn written(packet: &Packet<'_>, key: Option<&Key>) -> Vec<u8> {
    let mut out = vec![0xee; 2_000];
    let seal = key.map(|key| key.between(MEMBER, SWITCH));
    let len = packet.write(seal, &mut out).expect("room");
    out.truncate(len);
    out
}

fn verdict() -> Verdict {
    Verdict {
        reason: Reason::MemberLost,
        level: 1,
        world: Some(0x0506),
        generation: 7,
    }
}

fn join() -> Join {
    let levels = [
        Level {
            rank: 1,
            size: 2,
            trees: 4,
            first: 2,
        },
        Level {
            rank: 0,
            size: 64,
            trees: 1,
            first: 0,
        },
    ];
    Join {
        slots: 128,
        payload: 1_024,
        operations: 0xfe,
        elements: 0xff,
        deterministic: true,
        above: Levels::new(&levels),
        ..Join::new(3, 17, 64)
    }
}

fn terms() -> Terms {
    Terms {
        slots: 64,
        payload: 1_400,
        lease_millis: 2_000,
        generation: 3,
    }
}

/// One message of every kind.
fn all() -> Vec<Message<'static>> {
    vec![
        Message::Contribution(CHUNK),
        Message::Result(Chunk {
            complete: 0x1314,
            ..CHUNK
        }),
        Message::Error(verdict()),
        Message::Join(join()),
        Message::Admit(terms()),
        Message::Refuse(verdict()),
        Message::KeepAlive,
        Message::Alive,
        Message::Leave(verdict()),
        Message::Left,
    ]
}

/// Writes the checksum anew after a change.
fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    put(&mut bytes, field::CHECKSUM, sum.to_be_bytes());
    bytes
}

/// SW-40: each field is where the page says.
#[test]
fn fields_are_where_they_are_described() {
    let bytes = written(&packet(Message::Contribution(CHUNK)), None);
    assert_eq!(bytes[..4], [0x11, 0, 0x04, 6]);
    assert_eq!(
        bytes[4..12],
        [0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34]
    );
    assert_eq!(bytes[12..16], [0x41, 0x42, 0x02, 0x05]);
    assert_eq!(bytes[16..24], [3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(bytes[24..32], [11, 12, 13, 14, 15, 16, 17, 18]);
    assert_eq!(bytes[32..36], [0, 4, 0, 0]);
    assert_eq!(bytes[40..], [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    let result = written(&packet(all()[1]), None);
    assert_eq!(result[32..36], [0, 4, 0x13, 0x14]);
    let flags = [
        Flags::RETRANSMISSION,
        Flags::PARTIAL,
        Flags::CE,
        Flags::ROOT,
        Flags::LAST,
        Flags::SHARED,
    ];
    let bits = flags.map(|flags| {
        let message = Message::Contribution(CHUNK);
        written(
            &Packet {
                flags,
                ..packet(message)
            },
            None,
        )[1]
    });
    assert_eq!(bits, [1, 2, 4, 8, 16, 32]);
    let kinds: Vec<u8> = all()
        .iter()
        .map(|it| written(&packet(*it), None)[0])
        .collect();
    assert_eq!(kinds, (0x11..=0x1a).collect::<Vec<u8>>());
}

/// SW-42: a result says which chunks were complete when it was sent; without that it says what
/// follows from the order of chunks, that one may be sent when the one a round before is complete.
#[test]
fn results_tell_what_is_complete() {
    let chunk = |sequence, complete| Chunk {
        sequence,
        complete,
        ..CHUNK
    };
    assert_eq!(chunk(3, 0).complete_before(8), 0);
    assert_eq!(chunk(100, 0).complete_before(8), 92);
    for (sequence, oldest) in [(100, 93), (100, 100), (100, 130), (3, 0), (3, 2), (0, 0)] {
        let complete = Chunk::complete_at(sequence, oldest, 8);
        let told = chunk(sequence, complete).complete_before(8);
        assert_eq!(told, oldest, "{sequence}");
    }
    assert_eq!(Chunk::complete_at(0, u64::MAX, 8), u16::MAX);
    assert_eq!(Chunk::complete_at(u64::MAX, 0, 8), 0);
    let far = chunk(u64::MAX, u16::MAX).complete_before(1);
    assert_eq!(far, u64::MAX - 1);
}

/// SW-40: what is written is read the same, of every kind, and only in whole.
#[test]
fn messages_are_read_as_they_were_written() {
    let key = Key::of_job(&[7; 32], 1);
    let seal = key.between(MEMBER, SWITCH);
    for message in all() {
        let sent = packet(message);
        let bytes = written(&sent, Some(&key));
        assert_eq!(bytes.len(), sent.len());
        assert_eq!(Packet::read(&bytes), Ok(sent));
        assert!(seal.made(&bytes));
        for cut in 0..bytes.len() {
            assert!(Packet::read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Packet::read(&longer).is_err());
        assert!(sent.write(None, &mut vec![0; bytes.len() - 1]).is_err());
    }
}

/// SW-42: a bit that changed on the way is seen by the checksum, wherever it is but for the tag,
/// and by the tag wherever it is.
#[test]
fn every_bit_is_covered() {
    let key = Key::of_job(&[7; 32], 1);
    let seal = key.between(MEMBER, SWITCH);
    let bytes = written(&packet(Message::Contribution(CHUNK)), Some(&key));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            let in_tag = (field::TAG..HEADER_LEN).contains(&at);
            assert_eq!(Packet::read(&wrong).is_ok(), in_tag, "byte {at}");
            let wrong = if in_tag { wrong } else { repaired(wrong) };
            let in_checksum = (field::CHECKSUM..field::TAG).contains(&at);
            assert_eq!(seal.made(&wrong), in_checksum, "byte {at}");
        }
    }
}

/// SW-42: the key is that of the fabric and of the job, the tag that of one way between two
/// addresses; what is too short has no tag.
#[test]
fn keys_are_told_apart() {
    let key = Key::of_job(&[7; 32], 1);
    let bytes = written(&packet(Message::KeepAlive), Some(&key));
    let made = |key: &Key, bytes: &[u8]| key.between(MEMBER, SWITCH).made(bytes);
    assert!(!made(&Key::of_job(&[7; 32], 2), &bytes));
    assert!(!made(&Key::of_job(&[8; 32], 1), &bytes));
    assert!(!made(&key, &bytes[..20]));
    assert!(!made(&key, &written(&packet(Message::KeepAlive), None)));
    assert!(!key.between(SWITCH, MEMBER).made(&bytes));
    for [src, dst] in [[MEMBER, SWITCH], [SWITCH, MEMBER]] {
        let mut bytes = vec![0; HEADER_LEN];
        let keep_alive = packet(Message::KeepAlive);
        let written = keep_alive.write(Some(key.between(src, dst)), &mut bytes);
        assert_eq!(written, Ok(HEADER_LEN));
        let turned = |it: IpAddr, bit: usize| match it {
            IpAddr::V4(it) => IpAddr::from((it.to_bits() ^ 1 << (bit % 32)).to_be_bytes()),
            IpAddr::V6(it) => IpAddr::from((it.to_bits() ^ 1 << bit).to_be_bytes()),
        };
        for bit in 0..128 {
            assert!(!key.between(turned(src, bit), dst).made(&bytes), "{bit}");
            assert!(!key.between(src, turned(dst, bit)).made(&bytes), "{bit}");
        }
        assert!(key.between(src, dst).made(&bytes));
    }
    assert_eq!(format!("{key:?}"), "Key(hidden)");
}

/// What the model, written from RFC 10032, says of `key nonce data` lines in hex.
fn model_of_tags(lines: &str) -> String {
    let mut child = Command::new("/usr/bin/python3")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/models/aegis_mac.py"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs the model");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("the model ends");
    assert!(output.status.success(), "the model failed");
    String::from_utf8(output.stdout).expect("text")
}

/// SW-42: the tag is the one that docs/compute.md describes, by a model that has RFC 10032's own
/// test vector right.
#[test]
fn tags_are_those_of_the_rfc() {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let vector: Vec<u8> = (0..35).collect();
    let known = "10010000000000000000000000000000 10000200000000000000000000000000";
    let mut lines = format!("{known} {}\n", hex(&vector));
    let mut derived =
        blake3::Hasher::new_derive_key("switchd in-network compute, key of a job, version 1");
    derived
        .update(&[7; 32])
        .update(&0x2122_2324_u32.to_be_bytes());
    let derived = hex(&derived.finalize().as_bytes()[..16]);
    let key = Key::of_job(&[7; 32], 0x2122_2324);
    let mut tags = vec!["d3f09b2842ad301687d6902c921d7818".to_owned()];
    for message in all() {
        let mut bytes = written(&packet(message), Some(&key));
        tags.push(hex(&bytes[field::TAG..HEADER_LEN]));
        bytes[field::CHECKSUM..HEADER_LEN].fill(0);
        // 10.0.0.1 as one of IPv6, then fd00::ff.
        bytes.extend([&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 1]].concat());
        bytes.extend([&[0xfd, 0][..], &[0; 13], &[0xff]].concat());
        lines += &format!("{derived} {} {}\n", hex(&[0; 16]), hex(&bytes));
    }
    let said = model_of_tags(&lines);
    assert_eq!(said.lines().count(), tags.len());
    for (said, tag) in said.lines().zip(tags) {
        assert!(said.starts_with(&tag), "{said} and {tag}");
    }
}

/// SW-42: a field that no message can have is refused, though the checksum is right.
#[test]
fn fields_that_there_are_not_are_refused() {
    let chunk = written(&packet(Message::Contribution(CHUNK)), None);
    let wrong = [
        (0, 0x21, "version"),
        (0, 0x10, "kind"),
        (0, 0x1b, "kind"),
        (1, 0x40, "flags"),
        (1, 0x80, "flags"),
        (1, 2, "length"),
        (1, 8, "length"),
        (2, 0x00, "operation"),
        (2, 0x08, "operation"),
        (2, 0x05, "element"),
        (2, 0x44, "collective"),
        (2, 0x24, "collective"),
        (3, 0, "element"),
        (3, 9, "element"),
        (3, 8, "length"),
        (34, 1, "complete"),
    ];
    for (at, value, name) in wrong {
        let mut bytes = chunk.clone();
        bytes[at] = value;
        match Packet::read(&repaired(bytes)) {
            Err(Error::Field { field, .. }) => assert_eq!(field, name, "byte {at}: {value}"),
            other => panic!("byte {at}: {value}: {other:?}"),
        }
    }
    for message in &all()[1..] {
        for flag in [0x10, 0x20] {
            let mut bytes = written(&packet(*message), None);
            bytes[1] = flag;
            let bytes = repaired(bytes);
            let read = Packet::read(&bytes);
            let is_refused = matches!(read, Err(Error::Field { field: "flags", .. }));
            assert!(is_refused, "{message:?} {flag}: {read:?}");
        }
    }
    let mut bytes = chunk.clone();
    bytes[33] = 5;
    assert!(Packet::read(&repaired(bytes)).is_err());
    let mut bytes = written(&packet(Message::Alive), None);
    bytes[20] = 1;
    assert!(Packet::read(&repaired(bytes)).is_err());
}

/// SW-42: bodies that lie are refused.
#[test]
fn bodies_that_lie_are_refused() {
    let wrong: &[(Message<'_>, usize, u8)] = &[
        (Message::Error(verdict()), 0, 19),
        (Message::Join(join()), 6, 1),
        (Message::Join(join()), 14, 2),
        (Message::Join(join()), 15, 4),
        (Message::Join(join()), 15, 1),
        (Message::Join(join()), 15, 3),
        (Message::Join(join()), 17, 2),
        (Message::Join(join()), 19, 65),
        (Message::Join(join()), 21, 0),
        (Message::Join(join()), 39, 1),
        (Message::Admit(terms()), 15, 1),
    ];
    for (message, at, value) in wrong {
        let mut bytes = written(&packet(*message), None);
        bytes[HEADER_LEN + at] = *value;
        let bytes = repaired(bytes);
        let read = Packet::read(&bytes).map(|it| it.message);
        assert!(read.is_err(), "byte {at}: {value}: {read:?}");
    }
    for (size, slots, world) in [
        (0, 1, 1),
        (65, 1, 1),
        (1, 0, 1),
        (1, 0x8001, 1),
        (1, 1, 0xffff),
    ] {
        let join = Join {
            slots,
            ..Join::new(1, world, size)
        };
        let bytes = written(&packet(Message::Join(join)), None);
        assert!(Packet::read(&bytes).is_err(), "{size} {slots} {world}");
    }
    let none = Terms {
        slots: 0,
        ..terms()
    };
    assert!(Packet::read(&written(&packet(Message::Admit(none)), None)).is_err());
}

/// SW-41: which marks and lengths go with which work.
#[test]
fn chunks_do_not_contradict_themselves() {
    let sum = (Operation::Sum, Element::F64);
    let (allreduce, reduce) = (Work::Allreduce(sum.0, sum.1), Work::Reduce(sum.0, sum.1));
    let (none, root, partial) = (Flags::default(), Flags::ROOT, Flags::PARTIAL);
    let (last, shared) = (Flags::LAST, Flags::SHARED);
    let cases = [
        // Work, marks, bytes, whether it is a contribution, whether it is a result.
        (allreduce, none, 8, true, true),
        (allreduce, none, 0, false, false),
        (allreduce, none, 12, false, false),
        (allreduce, root, 8, false, false),
        (allreduce, last, 8, true, false),
        (allreduce, shared, 8, true, false),
        (allreduce, shared.with(root).with(last), 8, true, false),
        (allreduce, shared, 0, false, false),
        (reduce, shared, 8, false, false),
        (reduce, last, 8, true, false),
        (Work::Broadcast, shared.with(root), 3, false, false),
        (Work::Barrier, last, 0, true, false),
        (Work::Barrier, shared, 0, false, false),
        (allreduce, partial, 0, false, true),
        (allreduce, partial, 8, false, false),
        (reduce, none, 8, true, true),
        (reduce, root, 8, true, true),
        (reduce, none, 0, false, true),
        (Work::Broadcast, root, 3, true, true),
        (Work::Broadcast, none, 3, false, true),
        (Work::Broadcast, none, 0, true, false),
        (Work::Broadcast, root, 0, false, false),
        (Work::Barrier, none, 0, true, true),
        (Work::Barrier, none, 8, false, false),
    ];
    for (work, flags, len, up, down) in cases {
        let data = vec![0; len];
        let chunk = Chunk {
            work,
            data: &data,
            ..CHUNK
        };
        for (message, fits) in [
            (Message::Contribution(chunk), up),
            (Message::Result(chunk), down),
        ] {
            let sent = Packet {
                flags,
                ..packet(message)
            };
            let read = Packet::read(&written(&sent, None)).is_ok();
            assert_eq!(read, fits, "{message:?} {flags:?}");
        }
    }
    let long = vec![0; PAYLOAD_MAX + 8];
    let chunk = Chunk {
        data: &long,
        ..CHUNK
    };
    let sent = packet(Message::Contribution(chunk));
    assert!(sent.write(None, &mut [0; 2_000]).is_err());
}

/// SW-42: a sequence number stands for a slot and a version, whatever it is.
#[test]
fn sequences_go_round_the_slots() {
    let of = |sequence, slots| {
        let slot = Slot::of(sequence, slots);
        (slot.number, slot.version)
    };
    assert_eq!(
        [0, 1, 2, 3, 4].map(|it| of(it, 2)),
        [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]
    );
    assert_eq!(of(u64::MAX, 0x8000), (0x7fff, 1));
    assert_eq!(of(5, 0), (0, 1));
    assert!(Message::KeepAlive.is_up() && !Message::Alive.is_up());
}

prop_compose! {
    /// Bytes that are a message but for what is random in them.
    fn nearly()(kind in 0..all().len(), changes: Vec<(prop::sample::Index, u8)>) -> Vec<u8> {
        let mut bytes = written(&packet(all()[kind]), None);
        for (at, value) in changes.into_iter().take(4) {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        repaired(bytes)
    }
}

proptest! {
    /// SW-42: whatever comes is read or refused, and what is read is written the same.
    #[test]
    fn anything_is_read_or_refused(bytes: Vec<u8>, near in nearly()) {
        let _ = Packet::read(&bytes);
        if let Ok(read) = Packet::read(&near) {
            let mut again = written(&read, None);
            again[field::TAG..HEADER_LEN].copy_from_slice(&near[field::TAG..HEADER_LEN]);
            prop_assert_eq!(again, near);
        }
    }
}
