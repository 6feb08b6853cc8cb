//! Every field of every header of a packet wrong in turn: what comes of it has a name, the verbs'
//! own error code where the standard has one, and nobody else is harmed.

use crate::injection::sealed;
use crate::network::{COOKIES, Network};
use common::time::Span;
use common::wire::roce::frame::seal;
use common::wire::roce::opcode::OPERATIONS;
use common::wire::roce::{
    AckKind, Aeth, AtomicEth, Bth, Extension, Headers, Mpeh, Opcode, Operation, Reth, Sack,
};
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, EngineConfig, Event, MultipathConfig, SendOpcode, SendRequest, State, Status,
};

/// First PSN of both directions.
const FIRST: u32 = 0xff_fff0;

/// Where packets write to, read from, and do atomic operations.
const PLACE: u64 = 64;

/// Kinds of packets that have every header that there is.
const KINDS: [Operation; 7] = [
    Operation::SendOnlyImmediate,
    Operation::WriteOnly,
    Operation::ReadRequest,
    Operation::CompareSwap,
    Operation::Acknowledge,
    Operation::ReadResponseOnly,
    Operation::AtomicAcknowledge,
];

/// What becomes of a field.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Is(u64),
    Plus(u64),
    Flip(u64),
    /// The key of memory that is not open to peers.
    Closed,
}

use Wrong::{Closed, Flip, Is, Plus};

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Ethernet,
    Ip,
    Udp,
    Bth,
    Mpeh,
    Extension,
    /// What the opcode says that follows.
    Extended,
    /// The ICRC is the frame's last four bytes.
    Icrc,
}

/// A field, its first bit in its header and how many it has, what is wrong with it, and what comes
/// of it.
type Row = (Header, &'static str, usize, usize, Wrong, &'static str);

/// As if the field were right: receivers do not look at it, or it may be so.
const SAME: &str = "same";

/// Two hosts with two connections; the second host looks at a packet of the first one's.
struct Subject {
    network: Network,
    /// Of the connection that the packet is for, and of another one.
    qpns: [[u32; 2]; 2],
    kind: Operation,
    multipath: bool,
    v6: bool,
    /// Memory of the same domain that is not open to peers.
    closed: HeapMemory,
    closed_rkey: u32,
}

impl Subject {
    fn new(kind: Operation, multipath: bool, v6: bool) -> Self {
        let configs = [EngineConfig::default(), EngineConfig::default()];
        let mut network = Network::over(1, configs, v6);
        let agreed = multipath.then(MultipathConfig::default);
        let qpns = [network.connected(agreed), network.connected(agreed)];
        let host = &mut network.hosts[1];
        for (n, qpn) in qpns.iter().enumerate() {
            host.receive_into(qpn[1], n as u64, 4096, 4096);
        }
        let closed = HeapMemory::new(vec![0x5a; 4096]);
        let rights = Access::LOCAL_WRITE;
        let keys = host
            .engine
            .register(host.domain, closed.clone(), 0, rights)
            .expect("room");
        let mut subject = Self {
            closed_rkey: keys.rkey,
            network,
            qpns,
            kind,
            multipath,
            v6,
            closed,
        };
        // Each knows the way to the other.
        subject.network.pass(Span::from_micros(10));
        for (host, peer) in [(0, 1), (1, 0)] {
            let (route, peer) = (
                subject.network.hosts[host].route(),
                subject.network.hosts[peer].address,
            );
            let engine = &mut subject.network.hosts[host].engine;
            engine.set_route(peer, route).expect("legal");
        }
        subject.ask();
        subject
    }

    /// Lets the host send what the packet answers, to a peer that does not hear it.
    fn ask(&mut self) {
        let network = &mut self.network;
        network.tap = Some(Vec::new());
        network.impairment.dead = [false, true];
        let opcode = match self.kind {
            Operation::Acknowledge => SendOpcode::Send,
            Operation::ReadResponseOnly => SendOpcode::RdmaRead,
            Operation::AtomicAcknowledge => SendOpcode::AtomicCmpAndSwp,
            _ => return,
        };
        let request = SendRequest {
            opcode,
            remote_addr: PLACE,
            rkey: network.hosts[0].keys.rkey,
            ..network.hosts[1].send(7, 0, 8)
        };
        let engine = &mut network.hosts[1].engine;
        engine.post_send(self.qpns[0][1], request).expect("room");
        network.pass(Span::from_micros(10));
    }

    /// The packet as it has to be.
    fn frame(&self) -> Vec<u8> {
        let payload: &[u8] = if self.kind.has_payload() {
            b"payload!"
        } else {
            b""
        };
        self.packet(self.kind, FIRST, 8, payload)
    }

    /// A packet of a request or an answer of `len` bytes.
    fn packet(&self, kind: Operation, psn: u32, len: u32, payload: &[u8]) -> Vec<u8> {
        let opcode = if self.multipath {
            Opcode::Multipath(kind)
        } else {
            Opcode::Rc(kind)
        };
        let mut headers = Headers::new(Bth::new(opcode, self.qpns[0][1], psn));
        headers.bth.ack_request = !kind.has_aeth();
        if self.multipath {
            headers.mpeh = Some(Mpeh::default());
            headers.extension = Some(Extension::new(COOKIES[1]));
        }
        let rkey = self.network.hosts[1].keys.rkey;
        headers.immediate = kind.has_immediate().then_some(77);
        headers.invalidate = kind.has_invalidate().then_some(rkey);
        headers.reth = kind.has_reth().then_some(Reth {
            address: PLACE,
            rkey,
            len,
        });
        headers.atomic = kind.has_atomic().then_some(AtomicEth {
            address: PLACE,
            rkey,
            swap_or_add: 7,
            compare: 0,
        });
        headers.aeth = kind.has_aeth().then_some(Aeth {
            kind: AckKind::Ack { credits: 31 },
            msn: 1,
        });
        headers.sack = (kind == Operation::Acknowledge).then_some(Sack {
            trigger: psn,
            ..Sack::default()
        });
        headers.atomic_original = (kind == Operation::AtomicAcknowledge).then_some(9);
        sealed(&self.network, 1, &headers, payload)
    }

    /// Where a header begins.
    fn start(&self, header: Header, frame: &[u8]) -> usize {
        let transport = 14 + if self.v6 { 40 } else { 20 };
        let bth = transport + 8;
        let multipath = if self.multipath { 16 } else { 0 };
        match header {
            Header::Ethernet => 0,
            Header::Ip => 14,
            Header::Udp => transport,
            Header::Bth => bth,
            Header::Mpeh => bth + 12,
            Header::Extension => bth + 20,
            Header::Extended => bth + 12 + multipath,
            Header::Icrc => frame.len() - 4,
        }
    }

    /// The packet with a field that is wrong, and with the checksums that a sender would give it.
    fn spoiled(&self, row: &Row) -> Vec<u8> {
        self.spoil(self.frame(), row)
    }

    fn spoil(&self, right: Vec<u8>, (header, name, bit, bits, wrong, _): &Row) -> Vec<u8> {
        let mut frame = right.clone();
        let first = self.start(*header, &frame) * 8 + bit;
        let places: Vec<usize> = (first..first + bits).collect();
        let old = places.iter().fold(0_u64, |value, at| {
            value << 1 | u64::from(frame[at / 8] >> (7 - at % 8) & 1)
        });
        let new = match *wrong {
            Is(value) => value,
            Plus(more) => old.wrapping_add(more),
            Flip(mask) => old ^ mask,
            Closed => self.closed_rkey.into(),
        };
        for (n, at) in places.iter().rev().enumerate() {
            let mask = 0x80 >> (at % 8);
            frame[at / 8] &= !mask;
            if n < 64 && new >> n & 1 == 1 {
                frame[at / 8] |= mask;
            }
        }
        assert_ne!(frame, right, "{name}: nothing is wrong");
        if *header == Header::Ip && !self.v6 && *name != "checksum" {
            frame[24..26].fill(0);
            let checksum = common::wire::checksum::of(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        if *header != Header::Icrc {
            // One whose lengths lie has no place for it.
            let _ = seal(&mut frame);
        }
        frame
    }

    /// What comes of a packet: "taken" or why it is lost, what is answered, what completes, what
    /// the application is told, and the state of the queue pair unless it is RTS.
    fn outcome(&mut self, frame: &[u8]) -> String {
        let network = &mut self.network;
        network.tap = Some(Vec::new());
        network.hosts[1].completions.clear();
        network.hosts[1].events.clear();
        network.inject(1, frame);
        network.pass(Span::from_micros(200));
        let host = &network.hosts[1];
        let drops = &host.engine.statistics().drops;
        assert!(drops.total() <= 1, "{drops:?}");
        let lost = drops.iter().find(|(_, count)| *count > 0);
        let mut text = lost
            .map_or("taken", |(reason, _)| reason.label())
            .to_owned();
        if lost.is_some() {
            let memory = network.hosts[1].memory.to_vec();
            assert_eq!(memory[..8192], [0; 8192], "{text}, but written");
        }
        let bth = self.start(Header::Bth, frame);
        for sent in self.network.tap.take().expect("was set") {
            let (headers, _) = Headers::parse(&sent[bth..]).expect("a packet");
            if let Some(aeth) = headers.aeth {
                text += &match aeth.kind {
                    AckKind::Ack { .. } => match headers.bth.opcode.operation() {
                        Some(Operation::Acknowledge) => " > ACK".to_owned(),
                        _ => " > answer".to_owned(),
                    },
                    AckKind::ReceiverNotReady { .. } => " > RNR NAK".to_owned(),
                    AckKind::Nak(code) => format!(" > {code:?}"),
                };
            }
        }
        let host = &self.network.hosts[1];
        for completion in &host.completions {
            text += &format!(" + {:?} {:?}", completion.opcode, completion.status);
        }
        for event in &host.events {
            text += &match event {
                Event::QueuePairFailed { status, .. } => format!(" ! {status:?}"),
                other => format!(" ! {other:?}"),
            };
        }
        let state = host.engine.queue_pair_statistics(self.qpns[0][1]);
        let state = state.expect("exists").state;
        if state != State::ReadyToSend {
            text += &format!(" = {}", state.name());
        }
        text
    }

    /// The other connection still carries data, and closed memory is as it was.
    fn others_are_well(mut self, what: &str) {
        assert_eq!(self.closed.to_vec(), vec![0x5a; 4096], "{what}");
        let network = &mut self.network;
        network.impairment.dead = [false; 2];
        network.hosts[0].completions.clear();
        let send = network.hosts[0].send(99, 0, 3000);
        let engine = &mut network.hosts[0].engine;
        engine.post_send(self.qpns[1][0], send).expect("room");
        let done = network.run(Span::from_millis(5), |network| {
            let done = &network.hosts[0].completions;
            done.iter()
                .any(|it| it.wr_id == 99 && it.status == Status::Success)
        });
        assert!(done, "{what}: its neighbour stands still");
        self.network.close();
    }
}

/// What comes of each kind of packet if nothing is wrong with it.
fn right(kind: Operation, multipath: bool) -> String {
    let mut subject = Subject::new(kind, multipath, false);
    let frame = subject.frame();
    let outcome = subject.outcome(&frame);
    assert!(outcome.starts_with("taken"), "{kind:?}: {outcome}");
    subject.others_are_well("nothing");
    outcome
}

/// Tries rows with one kind of packet.
fn try_rows(rows: &[Row], kind: Operation, multipath: bool, v6: bool, wrong: &mut Vec<String>) {
    let right = right(kind, multipath);
    for row in rows {
        let (header, name, _, _, value, expected) = row;
        let mut subject = Subject::new(kind, multipath, v6);
        let frame = subject.spoiled(row);
        let outcome = subject.outcome(&frame);
        let what = format!("{kind:?}, multipath {multipath}: {header:?}, {name}, {value:x?}");
        let wanted = if *expected == SAME { &right } else { *expected };
        if outcome != wanted {
            wrong.push(format!("{what}: {outcome:?} instead of {wanted:?}"));
        }
        subject.others_are_well(&what);
    }
}

/// HT-1, HT-3, HT-10: what is in front of the transport's own headers, in packets of each kind,
/// over IPv4 and IPv6.
#[test]
fn every_field_around_a_packet() {
    let mut wrong = Vec::new();
    for (kind, multipath) in KINDS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let rows = [ETHERNET, IPV4, UDP].concat();
        try_rows(&rows, kind, multipath, false, &mut wrong);
        try_rows(IPV6, kind, multipath, true, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// HT-1, HT-3, HT-10, HT-11: BTH, MPEH, its extension, and ICRC of packets of each kind.
#[test]
fn every_field_of_every_packet() {
    let mut wrong = Vec::new();
    for kind in KINDS {
        for multipath in [false, true] {
            try_rows(BTH, kind, multipath, false, &mut wrong);
        }
        try_rows(MULTIPATH, kind, true, false, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// HT-1, HT-3, HT-10: what the opcode says that follows, and fields whose meaning depends on it.
#[test]
fn every_field_that_an_opcode_brings() {
    let mut wrong = Vec::new();
    for (kind, modes, rows) in BY_KIND {
        for multipath in *modes {
            try_rows(rows, *kind, *multipath, false, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// HT-10, InfiniBand A17.9.3: a notification of congestion (CNP), whose last 16 bytes are
/// reserved, halves the window of a connection that sends, or is dropped by name.
#[test]
fn every_field_of_a_notification() {
    // Two have in a notification what is wrong elsewhere.
    let set = |row: &&Row| row.1 != "migrated" && row.1 != "BECN";
    let others = [ETHERNET, IPV4, UDP, BTH].concat();
    let rows = others.iter().filter(set).chain(NOTIFICATION);
    let mut wrong = Vec::new();
    for row in rows {
        let mut subject = Subject::new(Operation::Acknowledge, false, false);
        let notification = Headers::cnp(subject.qpns[0][1]);
        let right = sealed(&subject.network, 1, &notification, &[]);
        let frame = subject.spoil(right, row);
        let outcome = subject.outcome(&frame);
        let wanted = if row.5 == SAME { "taken" } else { row.5 };
        let heard = subject.network.hosts[1].engine.statistics().notifications;
        if outcome != wanted || heard != u64::from(wanted == "taken") {
            wrong.push(format!("{row:x?}: {outcome:?}, {heard} heard"));
        }
        subject.others_are_well(row.1);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // To a connection that has nothing on its way, and to one with another congestion control.
    for (kind, multipath, outcome) in [
        (Operation::SendOnly, false, "unexpected_notification"),
        (Operation::Acknowledge, true, "unknown_opcode"),
    ] {
        let mut subject = Subject::new(kind, multipath, false);
        let notification = Headers::cnp(subject.qpns[0][1]);
        let frame = sealed(&subject.network, 1, &notification, &[]);
        assert_eq!(subject.outcome(&frame), outcome);
        subject.others_are_well(outcome);
    }
}

/// HT-1, HT-10, InfiniBand 9.7.4.1: each request packet where no message has begun, within a SEND,
/// and within a WRITE: what does not continue the message is refused as an invalid request. A SEND
/// that ends there and invalidates a key that is none of a window's is refused for the key.
#[test]
fn every_operation_in_every_place() {
    use Operation as O;
    const FULL: usize = 1024;
    let places = [None, Some(O::SendFirst), Some(O::WriteFirst)];
    let requests = OPERATIONS
        .into_iter()
        .filter(|it| !it.is_response() && *it != O::Acknowledge);
    for (next, multipath) in requests.flat_map(|it| [(it, false), (it, true)]) {
        let last = [
            O::SendLast,
            O::SendLastImmediate,
            O::SendLastInvalidate,
            O::WriteLast,
            O::WriteLastImmediate,
        ];
        let middle = [O::SendMiddle, O::WriteMiddle];
        let first = [O::SendFirst, O::WriteFirst];
        let whole = first.contains(&next) || middle.contains(&next);
        // Zeros change nothing, wherever they go.
        let payload = vec![
            0;
            if whole {
                FULL
            } else if next.has_payload() {
                8
            } else {
                0
            }
        ];
        for before in places {
            let mut subject = Subject::new(O::SendOnly, multipath, false);
            let mut psn = FIRST;
            if let Some(before) = before {
                let len = if middle.contains(&next) { 3000 } else { 1032 };
                let frame = subject.packet(before, psn, len, &[0; FULL]);
                assert_eq!(subject.outcome(&frame), "taken > ACK", "{before:?}");
                psn += 1;
            }
            let len = if whole { 3000 } else { 8 };
            let frame = subject.packet(next, psn, len, &payload);
            let outcome = subject.outcome(&frame);
            let begins = !last.contains(&next) && !middle.contains(&next);
            let fits = match before {
                None => begins,
                Some(O::SendFirst) => next == O::SendMiddle || last[..3].contains(&next),
                _ => [O::WriteMiddle, O::WriteLast, O::WriteLastImmediate].contains(&next),
            };
            let what = format!("{next:?} after {before:?}, multipath {multipath}");
            let (invalid, access) = ("InvalidRequest", "RemoteAccessError");
            let begin = match (fits, next.has_invalidate()) {
                (true, false) => "taken".to_owned(),
                (true, true) => format!("request_refused > {access}"),
                (false, _) => format!("request_refused > {invalid}"),
            };
            assert!(outcome.starts_with(&begin), "{what}: {outcome}");
            subject.others_are_well(&what);
        }
    }
}

#[rustfmt::skip]
const ETHERNET: &[Row] = &[
    (Header::Ethernet, "destination", 0, 48, Flip(0x1), SAME),
    (Header::Ethernet, "source", 48, 48, Flip(0x1), SAME),
    (Header::Ethernet, "type", 96, 16, Is(0x8906), "not_roce"),
    (Header::Ethernet, "type", 96, 16, Is(0x86dd), "malformed_headers"),
];

#[rustfmt::skip]
const IPV4: &[Row] = &[
    (Header::Ip, "version", 0, 4, Is(6), "malformed_headers"),
    (Header::Ip, "header length", 4, 4, Is(4), "malformed_headers"),
    (Header::Ip, "header length", 4, 4, Is(6), "malformed_headers"),
    (Header::Ip, "header length", 4, 4, Is(15), "malformed_headers"),
    (Header::Ip, "DSCP", 8, 6, Is(63), SAME),
    (Header::Ip, "ECN", 14, 2, Is(0), SAME),
    (Header::Ip, "length", 16, 16, Plus(1), "malformed_headers"),
    (Header::Ip, "length", 16, 16, Plus(u64::MAX), "malformed_headers"),
    (Header::Ip, "length", 16, 16, Is(0), "malformed_headers"),
    (Header::Ip, "length", 16, 16, Is(0xffff), "malformed_headers"),
    (Header::Ip, "identification", 32, 16, Flip(0xffff), SAME),
    (Header::Ip, "reserved flag", 48, 1, Is(1), SAME),
    (Header::Ip, "may fragment", 49, 1, Flip(1), SAME),
    (Header::Ip, "more fragments", 50, 1, Is(1), "malformed_headers"),
    (Header::Ip, "fragment offset", 51, 13, Is(1), "malformed_headers"),
    (Header::Ip, "hops", 64, 8, Is(0), SAME),
    (Header::Ip, "protocol", 72, 8, Is(6), "not_roce"),
    (Header::Ip, "checksum", 80, 16, Flip(1), "malformed_headers"),
    (Header::Ip, "checksum", 80, 16, Is(0), "malformed_headers"),
    (Header::Ip, "source", 96, 32, Flip(8), "wrong_peer"),
    (Header::Ip, "destination", 128, 32, Flip(8), "wrong_peer"),
];

#[rustfmt::skip]
const IPV6: &[Row] = &[
    (Header::Ip, "version", 0, 4, Is(4), "malformed_headers"),
    (Header::Ip, "traffic class", 4, 8, Is(255), SAME),
    (Header::Ip, "flow label", 12, 20, Is(0xf_ffff), SAME),
    (Header::Ip, "length", 32, 16, Plus(1), "malformed_headers"),
    (Header::Ip, "length", 32, 16, Plus(u64::MAX), "malformed_headers"),
    (Header::Ip, "length", 32, 16, Is(0), "malformed_headers"),
    (Header::Ip, "next header", 48, 8, Is(0), "not_roce"),
    (Header::Ip, "next header", 48, 8, Is(44), "not_roce"),
    (Header::Ip, "hops", 56, 8, Is(0), SAME),
    (Header::Ip, "source", 64, 128, Is(8), "wrong_peer"),
    (Header::Ip, "destination", 192, 128, Is(8), "wrong_peer"),
];

#[rustfmt::skip]
const UDP: &[Row] = &[
    (Header::Udp, "source port", 0, 16, Is(0), SAME),
    (Header::Udp, "destination port", 16, 16, Plus(1), "not_roce"),
    (Header::Udp, "length", 32, 16, Plus(1), "malformed_headers"),
    (Header::Udp, "length", 32, 16, Plus(u64::MAX), "malformed_headers"),
    (Header::Udp, "length", 32, 16, Is(7), "malformed_headers"),
    (Header::Udp, "checksum", 48, 16, Is(0xffff), SAME),
];

#[rustfmt::skip]
const BTH: &[Row] = &[
    (Header::Bth, "opcode", 0, 8, Is(0x3f), "unknown_opcode"),
    (Header::Bth, "opcode of UC", 0, 8, Flip(0x20), "unknown_opcode"),
    (Header::Bth, "opcode reserved", 0, 8, Is(0x15), "unknown_opcode"),
    (Header::Bth, "solicited", 8, 1, Is(1), SAME),
    (Header::Bth, "migrated", 9, 1, Is(0), SAME),
    (Header::Bth, "version", 12, 4, Is(1), "malformed_transport"),
    (Header::Bth, "partition", 16, 16, Flip(1), "wrong_partition"),
    (Header::Bth, "limited member", 16, 16, Flip(0x8000), SAME),
    (Header::Bth, "FECN", 32, 1, Is(1), SAME),
    (Header::Bth, "BECN", 33, 1, Is(1), SAME),
    (Header::Bth, "reserved", 34, 6, Is(0x3f), SAME),
    (Header::Bth, "queue pair", 40, 24, Plus(2), "unknown_queue_pair"),
    (Header::Bth, "queue pair", 40, 24, Is(0), "unknown_queue_pair"),
    (Header::Bth, "queue pair", 40, 24, Is(1), "unknown_queue_pair"),
    (Header::Bth, "queue pair", 40, 24, Is(0xff_ffff), "unknown_queue_pair"),
    (Header::Bth, "reserved", 65, 7, Is(0x7f), SAME),
    (Header::Icrc, "ICRC", 0, 32, Flip(1), "bad_icrc"),
    (Header::Icrc, "ICRC", 0, 32, Flip(0x8000_0000), "bad_icrc"),
];

#[rustfmt::skip]
const MULTIPATH: &[Row] = &[
    (Header::Mpeh, "flags", 8, 8, Is(255), "malformed_transport"),
    (Header::Mpeh, "flowlet", 16, 16, Is(0xffff), SAME),
    (Header::Mpeh, "tag", 32, 16, Is(0xffff), SAME),
    (Header::Mpeh, "reserved", 48, 16, Is(0xffff), "malformed_transport"),
    (Header::Extension, "length", 0, 8, Is(0), "malformed_transport"),
    (Header::Extension, "length", 0, 8, Is(1), "malformed_transport"),
    (Header::Extension, "length", 0, 8, Is(3), "malformed_transport"),
    (Header::Extension, "length", 0, 8, Is(255), "malformed_transport"),
    (Header::Extension, "blocks", 8, 8, Is(1), "malformed_transport"),
    (Header::Extension, "cookie", 16, 48, Flip(1), "wrong_cookie"),
    (Header::Extension, "cookie", 16, 48, Flip(1 << 47), "wrong_cookie"),
];

/// What else a notification has, and what other packets have otherwise.
#[rustfmt::skip]
const NOTIFICATION: &[Row] = &[
    (Header::Bth, "migrated", 9, 1, Flip(1), SAME),
    (Header::Bth, "BECN", 33, 1, Flip(1), SAME),
    (Header::Bth, "pad", 10, 2, Is(1), MALFORMED),
    (Header::Bth, "ack request", 64, 1, Is(1), SAME),
    (Header::Bth, "PSN", 72, 24, Is(0xff_ffff), SAME),
    (Header::Extended, "reserved", 0, 128, Is(u64::MAX), SAME),
];

const PLAIN: &[bool] = &[false];
const MANY: &[bool] = &[true];
const BOTH: &[bool] = &[false, true];

/// The verbs' ends of a request that the responder refuses.
const ACCESS: &str =
    "request_refused > RemoteAccessError + Receive WorkRequestFlushed ! LocalAccess = ERR";
const INVALID: &str =
    "request_refused > InvalidRequest + Receive WorkRequestFlushed ! LocalQpOperation = ERR";
const MALFORMED: &str = "malformed_transport";
const OUT_OF_ORDER: &str = "out_of_order > PsnSequenceError";

/// Rows whose outcome depends on the kind of the packet and on what was agreed.
#[rustfmt::skip]
const BY_KIND: &[(Operation, &[bool], &[Row])] = &[
    (Operation::SendOnlyImmediate, PLAIN, &[
        (Header::Bth, "opcode of multipath", 0, 8, Flip(0xc0), MALFORMED),
        (Header::Bth, "PSN", 72, 24, Plus(1), OUT_OF_ORDER),
        (Header::Bth, "PSN", 72, 24, Plus(1000), OUT_OF_ORDER),
    ]),
    (Operation::SendOnlyImmediate, MANY, &[
        (Header::Bth, "opcode of plain RC", 0, 8, Flip(0xc0), "unknown_opcode"),
        (Header::Bth, "PSN", 72, 24, Plus(1), "taken > ACK"),
        (Header::Bth, "PSN", 72, 24, Plus(1000), "beyond_window"),
        (Header::Mpeh, "path", 0, 8, Is(255), MALFORMED),
    ]),
    (Operation::SendOnlyImmediate, BOTH, &[
        (Header::Bth, "pad", 10, 2, Is(1), SAME),
        (Header::Bth, "ack request", 64, 1, Is(0), SAME),
        (Header::Bth, "PSN", 72, 24, Plus(u64::MAX), "taken > ACK"),
        (Header::Bth, "PSN", 72, 24, Flip(0x80_0000), "taken > ACK"),
        (Header::Extended, "immediate", 0, 32, Flip(1), SAME),
    ]),
    (Operation::WriteOnly, BOTH, &[
        (Header::Bth, "pad", 10, 2, Is(1), INVALID),
        (Header::Bth, "pad", 10, 2, Is(3), INVALID),
        (Header::Bth, "PSN", 72, 24, Plus(u64::MAX), SAME),
        (Header::Extended, "length", 96, 32, Plus(1), INVALID),
        (Header::Extended, "length", 96, 32, Is(0), INVALID),
    ]),
    (Operation::WriteOnly, BOTH, RETH),
    (Operation::ReadRequest, BOTH, RETH),
    (Operation::ReadRequest, BOTH, &[
        (Header::Bth, "pad", 10, 2, Is(1), MALFORMED),
        (Header::Bth, "PSN", 72, 24, Plus(u64::MAX), "forgotten_answer"),
        (Header::Bth, "PSN", 72, 24, Flip(0x80_0000), "forgotten_answer"),
        (Header::Extended, "length", 96, 32, Plus(1), SAME),
        (Header::Extended, "length", 96, 32, Is(0), SAME),
    ]),
    (Operation::ReadRequest, PLAIN, &[
        (Header::Bth, "PSN", 72, 24, Plus(1), OUT_OF_ORDER),
    ]),
    (Operation::CompareSwap, BOTH, ATOMIC),
    (Operation::Acknowledge, BOTH, &[
        (Header::Bth, "pad", 10, 2, Is(1), MALFORMED),
        (Header::Bth, "PSN", 72, 24, Plus(1), "impossible_acknowledgement"),
        (Header::Bth, "PSN", 72, 24, Plus(1000), "impossible_acknowledgement"),
        (Header::Bth, "PSN", 72, 24, Plus(u64::MAX), "taken"),
        (Header::Extended, "syndrome", 0, 8, Is(0), SAME),
    ]),
    (Operation::Acknowledge, PLAIN, NAKS),
    (Operation::Acknowledge, MANY, &[
        (Header::Mpeh, "path", 0, 8, Is(255), SAME),
        (Header::Mpeh, "flags of data", 8, 8, Is(8), SAME),
        (Header::Extended, "last byte of the SACK", 32 + 35 * 8, 8, Is(2), MALFORMED),
        (Header::Extended, "marks that do not follow", 32 + 35 * 8, 8, Is(1), MALFORMED),
        (Header::Extended, "trigger that was never sent", 32 + 32 * 8, 24, Plus(300), SAME),
        (Header::Extended, "trigger long ago", 32 + 32 * 8, 24, Plus(0xff_ff00), SAME),
        (Header::Extended, "trigger of the SACK", 32 + 32 * 8, 24, Plus(5), SAME),
        (Header::Extended, "bitmap of the SACK", 32, 64, Is(u64::MAX), SAME),
    ]),
    (Operation::ReadResponseOnly, BOTH, ANSWER),
    (Operation::AtomicAcknowledge, BOTH, ANSWER),
    (Operation::ReadResponseOnly, BOTH, &[
        (Header::Bth, "pad", 10, 2, Is(1), "wrong_answer"),
    ]),
    (Operation::AtomicAcknowledge, BOTH, &[
        (Header::Bth, "pad", 10, 2, Is(1), MALFORMED),
        (Header::Extended, "original", 32, 64, Flip(1), SAME),
    ]),
    (Operation::Acknowledge, BOTH, AETH),
    (Operation::ReadResponseOnly, BOTH, AETH),
    (Operation::AtomicAcknowledge, BOTH, AETH),
];

#[rustfmt::skip]
const RETH: &[Row] = &[
    (Header::Extended, "address", 0, 64, Is(u64::MAX), ACCESS),
    (Header::Extended, "address", 0, 64, Is(u64::MAX - 7), ACCESS),
    (Header::Extended, "address", 0, 64, Is((4 << 20) - 7), ACCESS),
    (Header::Extended, "key", 64, 32, Flip(1), ACCESS),
    (Header::Extended, "key", 64, 32, Flip(0x100), ACCESS),
    (Header::Extended, "key", 64, 32, Is(0), ACCESS),
    (Header::Extended, "key", 64, 32, Closed, ACCESS),
    (Header::Extended, "length", 96, 32, Is(0x8000_0001), INVALID),
    (Header::Extended, "length", 96, 32, Is(0xffff_ffff), INVALID),
];

#[rustfmt::skip]
const ATOMIC: &[Row] = &[
    (Header::Bth, "pad", 10, 2, Is(1), MALFORMED),
    (Header::Bth, "PSN", 72, 24, Plus(u64::MAX), "forgotten_answer"),
    (Header::Extended, "address", 0, 64, Plus(1), INVALID),
    (Header::Extended, "address", 0, 64, Plus(4), INVALID),
    (Header::Extended, "address", 0, 64, Is(u64::MAX - 7), ACCESS),
    (Header::Extended, "address", 0, 64, Is(4 << 20), ACCESS),
    (Header::Extended, "key", 64, 32, Flip(1), ACCESS),
    (Header::Extended, "key", 64, 32, Is(0), ACCESS),
    (Header::Extended, "key", 64, 32, Closed, ACCESS),
    (Header::Extended, "swap", 96, 64, Is(u64::MAX), SAME),
    (Header::Extended, "compare", 160, 64, Is(u64::MAX), SAME),
];

/// Codes that the standard does not have, and a number that requesters need not look at.
#[rustfmt::skip]
const AETH: &[Row] = &[
    (Header::Extended, "reserved bit of the syndrome", 0, 8, Flip(0x80), MALFORMED),
    (Header::Extended, "reserved syndrome", 0, 8, Is(0x40), MALFORMED),
    (Header::Extended, "reserved NAK", 0, 8, Is(0x7f), MALFORMED),
    (Header::Extended, "MSN", 8, 24, Is(0xff_ffff), SAME),
    (Header::Extended, "MSN", 8, 24, Is(0), SAME),
];

/// What a NAK of the request that is on its way means.
#[rustfmt::skip]
const NAKS: &[Row] = &[
    (Header::Extended, "RNR NAK", 0, 8, Is(0x20), "taken"),
    (Header::Extended, "PSN sequence error", 0, 8, Is(0x60), "taken"),
    (Header::Extended, "invalid request", 0, 8, Is(0x61), "taken + Send RemoteInvalidRequest + Receive WorkRequestFlushed ! RemoteInvalidRequest = ERR"),
    (Header::Extended, "remote access error", 0, 8, Is(0x62), "taken + Send RemoteAccess + Receive WorkRequestFlushed ! RemoteAccess = ERR"),
    (Header::Extended, "remote operational error", 0, 8, Is(0x63), "taken + Send RemoteOperation + Receive WorkRequestFlushed ! RemoteOperation = ERR"),
    (Header::Extended, "invalid RD request", 0, 8, Is(0x64), "taken + Send General + Receive WorkRequestFlushed ! General = ERR"),
];

/// A NAK is no answer: the requester asks again.
#[rustfmt::skip]
const ANSWER: &[Row] = &[
    (Header::Bth, "PSN", 72, 24, Plus(1), "impossible_acknowledgement"),
    (Header::Bth, "PSN", 72, 24, Flip(0x80_0000), "impossible_acknowledgement"),
    (Header::Bth, "PSN", 72, 24, Plus(u64::MAX), "taken"),
    (Header::Extended, "syndrome", 0, 8, Is(0), SAME),
    (Header::Extended, "RNR NAK", 0, 8, Is(0x20), "wrong_answer"),
    (Header::Extended, "PSN sequence error", 0, 8, Is(0x60), "wrong_answer"),
    (Header::Extended, "remote access error", 0, 8, Is(0x62), "wrong_answer"),
];
