//! Every field of every connection message wrong in turn: what is obeyed, what is refused, and what
//! is lost for which reason.

use crate::forge::{overheard, read};
use crate::messages::{Subject, disconnecting, established, listening, replying, requesting};
use common::time::Span;
use common::wire::cm::{Mad, Message, about, reject};
use common::wire::roce::frame::seal;

/// Where the datagram header begins behind Ethernet, IPv4, UDP and BTH, where the message's common
/// header, and where what the standard calls its data.
const DETH: usize = 14 + 20 + 8 + 12;
const MAD: usize = DETH + 8;
const DATA: usize = MAD + 24;
/// The private data of a REQ: the IP CM header, then the consumer's.
const IP: usize = DATA + 140;

/// A field: where its header begins, its first bit and how many it has, the bits to change, and
/// what comes of it.
type Row = (&'static str, usize, usize, usize, u64, &'static str);

/// As if the field were right.
const SAME: &str = "same";

type Kind = (&'static str, fn() -> Subject, &'static [Row]);

fn spoiled(frame: &[u8], (_, start, bit, bits, flip, _): &Row) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for n in 0..*bits {
        let at = start * 8 + bit + bits - 1 - n;
        if n < 64 && flip >> n & 1 == 1 {
            bytes[at / 8] ^= 0x80 >> (at % 8);
        }
    }
    assert_ne!(bytes, frame);
    seal(&mut bytes).expect("a frame");
    bytes
}

/// A message whose field is wrong, and who gets it.
fn wrong_frame(reach: fn() -> Subject, kind: &str, row: Option<&Row>) -> (Vec<u8>, Subject) {
    let subject = reach();
    let messages = subject.messages();
    let known = messages.into_iter().find(|(name, ..)| *name == kind);
    let (_, transaction, message) = known.expect("a kind");
    let right = subject.frame(transaction, message);
    let frame = row.map_or_else(|| right.clone(), |row| spoiled(&right, row));
    (frame, subject)
}

/// What comes of a message, and the state of the queue pair before.
fn outcome(reach: fn() -> Subject, kind: &str, row: Option<&Row>) -> (String, &'static str) {
    let (frame, mut subject) = wrong_frame(reach, kind, row);
    let (before, outcome) = (subject.state(), subject.outcome(&frame));
    subject.network.close();
    (outcome, before)
}

/// HT-3, HT-10, InfiniBand 12.6: each field of each message, in a phase that has a place for it.
#[test]
fn every_field_of_every_message() {
    let mut wrong = Vec::new();
    for (kind, reach, rows) in KINDS {
        let (right, _) = outcome(*reach, kind, None);
        for row in COMMON.iter().chain(*rows) {
            let (name, .., flip, expected) = row;
            let (found, state) = outcome(*reach, kind, Some(row));
            let wanted = if *expected == SAME {
                right.clone()
            } else {
                format!("{expected} = {state}")
            };
            if found != wanted {
                wrong.push(format!(
                    "{kind}, {name} ^ {flip:#x}: {found:?} instead of {wanted:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// HT-1, HT-10, InfiniBand 12.6.7: who asks for what is not offered is told why, in the transaction
/// of the request and with its identifiers; for an MTU that does not exist also one that does.
#[test]
fn refusals_say_why() {
    let cases = [
        ("REQ", "service", 1, reject::INVALID_SERVICE_ID),
        ("REQ", "transport", 1, reject::INVALID_TRANSPORT),
        ("REQ", "transport", 3, reject::INVALID_TRANSPORT),
        ("REQ", "partition", 1, reject::UNSUPPORTED),
        ("REQ", "path MTU", 5, reject::INVALID_MTU),
        ("REP", "remote id", 1, reject::INVALID_COMM_ID),
    ];
    for (kind, field, flip, reason) in cases {
        let (_, reach, rows) = KINDS.iter().find(|it| it.0 == kind).expect("a kind");
        let row = rows.iter().find(|row| row.0 == field && row.4 == flip);
        let (frame, mut subject) = wrong_frame(*reach, kind, row);
        let asked = read(&frame).expect("a message").2;
        let (own, other, about) = match &asked.message {
            Message::Req(req) => (0, req.local_comm_id, about::REQ),
            Message::Rep(rep) => (rep.remote_comm_id, rep.local_comm_id, about::REP),
            other => panic!("{other:?}"),
        };
        subject.network.tap = Some(Vec::new());
        subject.network.inject(subject.host, &frame);
        subject.network.pass(Span::from_micros(10));
        let mut said = overheard(&mut subject.network);
        said.retain(|(from, ..)| *from != subject.peer);
        let [
            (
                _,
                _,
                Mad {
                    transaction,
                    message: Message::Rej(rej),
                },
            ),
        ] = &said[..]
        else {
            panic!("{kind}, {field}: {said:?}");
        };
        assert_eq!(*transaction, asked.transaction, "{field}");
        assert_eq!((rej.reason, rej.message), (reason, about), "{field}");
        let ids = (rej.local_comm_id, rej.remote_comm_id);
        assert_eq!(ids, (own, other), "{field}");
        let mtu = reason == reject::INVALID_MTU;
        assert_eq!(rej.info_len, u8::from(mtu), "{field}");
        // Codes of 256 to 4096 bytes, in the upper half of the byte as in a REQ.
        assert_eq!((1..=5).contains(&(rej.info[0] >> 4)), mtu, "{field}");
        subject.network.close();
    }
}

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    ("REQ", listening, REQ),
    ("REP", requesting, REP),
    ("RTU", replying, RTU),
    ("REJ", established, REJ),
    ("MRA of REQ", requesting, MRA),
    ("LAP", established, LAP),
    ("DREQ", established, DREQ),
    ("DREP", disconnecting, DREP),
    ("SIDR REQ", established, SIDR),
];

const MALFORMED: &str = "malformed_management";
const ELSEWHERE: &str = "unknown_queue_pair";

/// In front of every message.
#[rustfmt::skip]
const COMMON: &[Row] = &[
    ("queue key", DETH, 0, 32, 1, ELSEWHERE),
    ("queue key", DETH, 0, 32, 1 << 31, ELSEWHERE),
    ("reserved", DETH, 32, 8, 0xff, SAME),
    ("source queue pair", DETH, 40, 24, 2, SAME),
    ("base version", MAD, 0, 8, 3, MALFORMED),
    ("class", MAD, 8, 8, 1, MALFORMED),
    ("class version", MAD, 16, 8, 3, MALFORMED),
    ("method", MAD, 24, 8, 0x80, MALFORMED),
    ("status", MAD, 32, 16, 0xffff, SAME),
    ("of the class", MAD, 48, 16, 0xffff, SAME),
    ("attribute", MAD, 128, 16, 0x0f00, MALFORMED),
    ("reserved", MAD, 144, 16, 0xffff, SAME),
    ("modifier", MAD, 160, 32, 0xffff_ffff, SAME),
];

#[rustfmt::skip]
const REQ: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, SAME),
    ("local id of zero", DATA, 0, 32, 0x1234, "malformed_management"),
    ("local id", DATA, 0, 32, 1, SAME),
    ("reserved", DATA, 32, 32, 0xffff_ffff, SAME),
    ("service", DATA, 64, 64, 1, "no_service > REJ"),
    ("service", DATA, 64, 64, 1 << 16, "no_service > REJ"),
    ("service", DATA, 64, 64, 1 << 63, "no_service > REJ"),
    ("GUID", DATA, 128, 64, u64::MAX, SAME),
    ("reserved", DATA, 192, 32, u64::MAX, SAME),
    ("queue key", DATA, 224, 32, u64::MAX, SAME),
    ("queue pair of zero", DATA, 256, 24, 0x77, "malformed_management"),
    ("queue pair of one", DATA, 256, 24, 0x76, "malformed_management"),
    ("responder resources", DATA, 280, 8, 0xff, SAME),
    ("EE context", DATA, 288, 24, u64::MAX, SAME),
    ("initiator depth", DATA, 312, 8, 0xff, SAME),
    ("remote EE context", DATA, 320, 24, u64::MAX, SAME),
    ("remote response time-out", DATA, 344, 5, 0x1f, SAME),
    ("transport", DATA, 349, 2, 1, "no_service > REJ"),
    ("transport", DATA, 349, 2, 2, "no_service > REJ"),
    ("transport", DATA, 349, 2, 3, "no_service > REJ"),
    ("end-to-end flow control", DATA, 351, 1, 1, SAME),
    ("starting PSN", DATA, 352, 24, u64::MAX, SAME),
    ("local response time-out", DATA, 376, 5, 0x1f, SAME),
    ("retries", DATA, 381, 3, 7, SAME),
    ("partition", DATA, 384, 16, 1, "wrong_partition > REJ"),
    ("limited member", DATA, 384, 16, 0x8000, SAME),
    ("path MTU of zero", DATA, 400, 4, 3, "malformed_management > REJ"),
    ("path MTU", DATA, 400, 4, 5, "malformed_management > REJ"),
    ("path MTU", DATA, 400, 4, 12, "malformed_management > REJ"),
    ("RDC exists", DATA, 404, 1, 1, SAME),
    ("RNR retries", DATA, 405, 3, 7, SAME),
    ("CM retries", DATA, 408, 4, 0xf, SAME),
    ("SRQ", DATA, 412, 1, 1, SAME),
    ("reserved", DATA, 413, 3, 7, SAME),
    ("local LID", DATA, 416, 16, 0xffff, SAME),
    ("remote LID", DATA, 432, 16, 0xffff, SAME),
    ("local GID", DATA, 448 + 64, 64, 1, SAME),
    ("remote GID", DATA, 576 + 64, 64, 1, SAME),
    ("flow label", DATA, 704, 20, 0xf_ffff, SAME),
    ("packet rate", DATA, 730, 6, 0x3f, SAME),
    ("traffic class", DATA, 736, 8, 0xff, SAME),
    ("hop limit", DATA, 744, 8, 0xff, SAME),
    ("service level", DATA, 752, 4, 0xf, SAME),
    ("subnet local", DATA, 756, 1, 1, SAME),
    ("ACK time-out", DATA, 760, 5, 0x1f, SAME),
    ("alternate path", DATA, 768, 64, u64::MAX, SAME),
    ("version of the IP CM header", IP, 0, 4, 1, "malformed_management"),
    ("minor version of the IP CM header", IP, 4, 4, 1, SAME),
    ("IP version", IP, 8, 4, 1, "malformed_management"),
    ("IP version", IP, 8, 4, 2, "malformed_management"),
    ("reserved", IP, 12, 4, 0xf, SAME),
    ("source port", IP, 16, 16, 0xffff, SAME),
    ("source address", IP, 128, 32, 8, "malformed_management"),
    ("destination address", IP, 256, 32, 8, SAME),
    ("private data", IP, 288, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const REP: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, "cm_wrong_transaction"),
    ("local id of zero", DATA, 0, 32, 0x1234, "cm_wrong_id"),
    ("local id", DATA, 0, 32, 1, SAME),
    ("remote id", DATA, 32, 32, 1, "unknown_connection > REJ"),
    ("remote id", DATA, 32, 32, 1 << 31, "unknown_connection > REJ"),
    ("queue key", DATA, 64, 32, u64::MAX, SAME),
    ("queue pair of zero", DATA, 96, 24, 0x77, "malformed_management"),
    ("queue pair of one", DATA, 96, 24, 0x76, "malformed_management"),
    ("EE context", DATA, 128, 24, u64::MAX, SAME),
    ("starting PSN", DATA, 160, 24, u64::MAX, SAME),
    ("responder resources", DATA, 192, 8, 0xff, SAME),
    ("initiator depth", DATA, 200, 8, 0xff, SAME),
    ("target ACK delay", DATA, 208, 5, 0x1f, SAME),
    ("failover accepted", DATA, 213, 2, 3, SAME),
    ("end-to-end flow control", DATA, 215, 1, 1, SAME),
    ("RNR retries", DATA, 216, 3, 7, SAME),
    ("SRQ", DATA, 219, 1, 1, SAME),
    ("GUID", DATA, 224, 64, u64::MAX, SAME),
    ("private data", DATA, 288, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const RTU: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, "cm_wrong_transaction"),
    ("local id", DATA, 0, 32, 1, "cm_wrong_id"),
    ("remote id", DATA, 32, 32, 1, "unknown_connection"),
    ("private data", DATA, 64, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const REJ: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, "cm_wrong_transaction"),
    ("local id", DATA, 0, 32, 1, "cm_wrong_id"),
    ("local id of zero", DATA, 0, 32, 0x1234, "cm_wrong_id"),
    ("remote id", DATA, 32, 32, 1, "unknown_connection"),
    ("message", DATA, 64, 2, 1, SAME),
    ("information length", DATA, 72, 7, 0x7f, SAME),
    ("reason", DATA, 80, 16, 0xffff, SAME),
    ("information", DATA, 96, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const MRA: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, "cm_wrong_transaction"),
    ("remote id", DATA, 32, 32, 1, "unknown_connection"),
    ("message", DATA, 64, 2, 1, "cm_out_of_place"),
    ("message", DATA, 64, 2, 3, "cm_out_of_place"),
    ("service time-out", DATA, 72, 5, 0x1f, SAME),
];

#[rustfmt::skip]
const LAP: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, SAME),
    ("local id", DATA, 0, 32, 1, "cm_wrong_id"),
    ("remote id", DATA, 32, 32, 1, "unknown_connection"),
    ("queue pair", DATA, 96, 24, 1, "cm_wrong_queue_pair"),
    ("alternate path", DATA, 160, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const DREQ: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, SAME),
    ("local id", DATA, 0, 32, 1, "cm_wrong_id"),
    ("local id of zero", DATA, 0, 32, 0x1234, "cm_wrong_id"),
    ("remote id", DATA, 32, 32, 1, "unknown_connection > DREP"),
    ("queue pair", DATA, 64, 24, 1, "cm_wrong_queue_pair"),
    ("private data", DATA, 96, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const DREP: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, "cm_wrong_transaction"),
    ("local id", DATA, 0, 32, 1, "cm_wrong_id"),
    ("remote id", DATA, 32, 32, 1, "unknown_connection"),
    ("private data", DATA, 64, 64, u64::MAX, SAME),
];

#[rustfmt::skip]
const SIDR: &[Row] = &[
    ("transaction", MAD, 64, 64, 1, SAME),
    ("request", DATA, 0, 32, 1, SAME),
    ("partition", DATA, 32, 16, 1, SAME),
    ("service", DATA, 64, 64, 1, SAME),
];
