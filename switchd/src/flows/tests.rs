//! SW-50: what is read of packets, and what is counted where.

use super::*;
use crate::id::PortId;
use crate::ingress::parse::parse;
use crate::packet::Parsed;
use common::time::{Span, Time};
use common::wire::cm::{MAD_LEN, Mad, Message, Pair};
use common::wire::ethernet::Mac;
use common::wire::roce::frame::{Addresses, Flow, emit, layout};
use common::wire::roce::{
    AckKind, Aeth, Bth, Cookie, Extension, Headers, Mpeh, NakCode, Opcode, Operation, Sack,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The MAC address of the port that frames arrive at.
pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Host `number`.
pub(crate) fn host(number: u8, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, number).into()
    }
}

/// A frame with these headers and so much payload.
pub(crate) fn frame(from: IpAddr, to: IpAddr, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    frame_of_class(0, (from, to), headers, payload)
}

/// The same with this traffic class.
fn frame_of_class(
    traffic_class: u8,
    (from, to): (IpAddr, IpAddr),
    headers: &Headers,
    payload: &[u8],
) -> Vec<u8> {
    let flow = Flow {
        src_mac: Mac([2, 0, 0, 0, 0, 9]),
        dst_mac: Mac(OWN),
        addresses: Addresses::new(from, to).expect("of one version"),
        src_port: 0xc001,
        flow_label: 0,
        traffic_class,
        ttl: 64,
    };
    let mut bytes = vec![0; layout(flow.addresses, headers, payload.len()).len];
    let place = emit(&mut bytes, &flow, headers, payload.len());
    bytes[place].copy_from_slice(payload);
    bytes
}

/// Headers of an operation, whatever follows its BTH.
pub(crate) fn headers(operation: Operation, qp: u32, psn: u32) -> Headers {
    headers_of(Opcode::Rc(operation), qp, psn)
}

fn headers_of(opcode: Opcode, qp: u32, psn: u32) -> Headers {
    Headers::new(Bth::new(opcode, qp, psn))
}

/// A request that asks for an acknowledgement.
pub(crate) fn request(qp: u32, psn: u32) -> Headers {
    let mut headers = headers(Operation::SendOnly, qp, psn);
    headers.bth.ack_request = true;
    headers
}

/// An acknowledgement.
pub(crate) fn acknowledge(qp: u32, psn: u32, kind: AckKind) -> Headers {
    let mut headers = headers(Operation::Acknowledge, qp, psn);
    headers.aeth = Some(Aeth { kind, msn: 0 });
    headers
}

/// One that acknowledges.
pub(crate) const POSITIVE: AckKind = AckKind::Ack { credits: 31 };
/// One that tells of a loss.
pub(crate) const LOSS: AckKind = AckKind::Nak(NakCode::PsnSequenceError);

pub(crate) fn parsed(frame: &[u8]) -> Parsed {
    parse(frame, OWN).expect("a router takes it")
}

fn kind(headers: &Headers) -> Kind {
    let bytes = frame(host(1, false), host(2, false), headers, &[]);
    match read(&bytes, &parsed(&bytes)) {
        Read::Packet(packet) => {
            assert_eq!(
                (packet.qp, packet.psn),
                (headers.bth.dest_qp, headers.bth.psn)
            );
            assert_eq!(packet.source_port, 0xc001);
            packet.kind
        }
        other => panic!("{other:?}"),
    }
}

/// SW-50: requests, acknowledgements, losses and refusals are told apart, also with the headers of
/// multipath between.
#[test]
fn what_packets_do_is_read() {
    let plain = |operation| kind(&headers(operation, 0x12_3456, 0xff_fffe));
    let prompt = |prompt| Kind::Request { prompt };
    assert_eq!(plain(Operation::WriteMiddle), prompt(false));
    assert_eq!(kind(&request(7, 8)), prompt(true));
    assert_eq!(plain(Operation::ReadRequest), prompt(true));
    assert_eq!(plain(Operation::FetchAdd), prompt(true));
    assert_eq!(plain(Operation::ReadResponseFirst), Kind::Acknowledge);
    assert_eq!(plain(Operation::ReadResponseMiddle), Kind::Answer);
    assert_eq!(kind(&Headers::cnp(9)), Kind::Cnp);
    for (said, wanted) in [
        (POSITIVE, Kind::Acknowledge),
        (LOSS, Kind::Nak),
        (AckKind::Nak(NakCode::RemoteAccessError), Kind::Refusal),
        (AckKind::ReceiverNotReady { timer: 3 }, Kind::Answer),
    ] {
        assert_eq!(kind(&acknowledge(7, 8, said)), wanted);
        let mut multipath = headers_of(Opcode::Multipath(Operation::Acknowledge), 7, 8);
        multipath.mpeh = Some(Mpeh::default());
        multipath.extension = Some(Extension::new(Cookie::new(5)));
        multipath.aeth = Some(Aeth { kind: said, msn: 0 });
        multipath.sack = Some(Sack::default());
        assert_eq!(kind(&multipath), wanted);
    }
}

/// A message of connection management in a frame.
pub(crate) fn management(from: IpAddr, to: IpAddr, message: Message) -> Vec<u8> {
    let mad = Mad {
        transaction: 1,
        message,
    };
    let headers = headers_of(Opcode::UdSendOnly, 1, 0);
    frame(from, to, &headers, &mad.emit())
}

/// SW-50: connection management is told from other datagrams, and what is cut or no RoCEv2 from
/// both.
#[test]
fn what_belongs_to_no_connection_is_told() {
    let (from, to) = (host(1, true), host(2, true));
    let pair = Pair {
        local_comm_id: 1,
        remote_comm_id: 2,
    };
    let mut bytes = management(from, to, Message::Rtu(pair));
    let all = parsed(&bytes);
    assert!(matches!(read(&bytes, &all), Read::Setup(message) if message.len() == MAD_LEN));
    assert_eq!(read(&bytes[..bytes.len() - 5], &all), Read::Cut);
    let qp = usize::from(all.transport) + 8 + 7;
    bytes[qp] = 2;
    assert_eq!(read(&bytes, &all), Read::Unconnected);
    let upper = usize::from(all.transport);
    for len in [upper, upper + 7] {
        assert_eq!(read(&bytes[..len], &all), Read::Other, "{len}");
    }
    assert_eq!(read(&bytes[..upper + 8 + 11], &all), Read::Cut);
    bytes[upper + 3] ^= 1;
    assert_eq!(read(&bytes, &all), Read::Other, "another port");
    // An acknowledgement without its AETH.
    let bytes = frame(from, to, &acknowledge(7, 8, LOSS), &[]);
    let all = parsed(&bytes);
    let aeth = usize::from(all.transport) + 8 + Bth::LEN;
    assert_eq!(read(&bytes[..aeth + 3], &all), Read::Cut);
}

/// One observer of a worker with so many slots.
pub(crate) fn observer(slots: usize) -> (Observer, Ends) {
    let mut all = observers(1, slots, Span::from_secs(1), 7);
    all.pop().expect("one worker")
}

/// Shows it a frame.
pub(crate) fn show(observer: &mut Observer, frame: &[u8], port: u16, now: Time) {
    observer.note(frame, &parsed(frame), PortId(port), now);
    observer.count(now);
}

fn all(ends: &Ends) -> Vec<Seen> {
    let slots = ends.table.slots.iter();
    slots.filter_map(Slot::read).collect()
}

/// SW-50: packets, bytes and NAKs of each direction are counted exactly, of both versions of IP.
#[test]
fn directions_are_counted() {
    let (mut observer, ends) = observer(64);
    let at = Time::from_nanos;
    for v6 in [false, true] {
        let (a, b) = (host(1, v6), host(2, v6));
        let data = frame_of_class(0x69, (a, b), &request(0x77, 5), &[0; 100]);
        for number in 0..3 {
            show(&mut observer, &data, 4, at(1000 + number));
        }
        let nak = frame(b, a, &acknowledge(0x99, 5, LOSS), &[]);
        show(&mut observer, &nak, 6, at(2000));
        let refusal = acknowledge(0x99, 5, AckKind::Nak(NakCode::InvalidRequest));
        show(&mut observer, &frame(b, a, &refusal, &[]), 6, at(2001));
        show(
            &mut observer,
            &frame(b, a, &Headers::cnp(0x99), &[]),
            6,
            at(2002),
        );
        let seen = all(&ends);
        let of = |key: Option<Key>| *seen.iter().find(|it| Some(it.key) == key).unwrap();
        let forward = of(Key::new(a, b, 0x77));
        let len = data.len() as u64 - 14;
        assert_eq!((forward.counts.packets, forward.counts.bytes), (3, 3 * len));
        assert_eq!((forward.first, forward.last), (at(1000), at(1002)));
        assert_eq!((forward.ingress, forward.source_port), (PortId(4), 0xc001));
        assert_eq!(forward.traffic_class, 0x69);
        assert_eq!(forward.requests, Some((5, 5)));
        let backward = of(Key::new(b, a, 0x99));
        let counts = backward.counts;
        assert_eq!((counts.packets, counts.naks), (3, 1));
        assert_eq!((counts.refusals, counts.cnps), (1, 1));
        assert_eq!((backward.nak_at, backward.ingress), (at(2000), PortId(6)));
        assert_eq!(backward.key.source(), b);
        assert_eq!(backward.key.destination(), a);
    }
    let counters = &ends.table.counters;
    assert_eq!((counters.used.get(), counters.packets.get()), (4, 12));
}

/// SW-50: what finds no slot is counted, and nobody loses his. A slot is freed when control gives
/// it back and nothing passed since, and only then; all others are found as before.
#[test]
fn slots_are_never_taken_and_freed_when_nothing_passed() {
    let (mut observer, mut ends) = observer(32);
    let (a, b) = (host(1, false), host(2, false));
    let packet = |qp| frame(a, b, &request(qp, 1), &[]);
    for qp in 0..40 {
        show(&mut observer, &packet(qp), 0, Time::from_nanos(1));
    }
    assert_eq!(ends.table.counters.unfollowed.get(), 8);
    let before = all(&ends);
    assert_eq!(before.len(), 32);
    let release = |place: usize, packets| Release {
        slot: place,
        generation: ends.table.slots[place].read().unwrap().generation,
        packets,
    };
    let given_back: Vec<Release> = (0..10).map(|place| release(place, 1)).collect();
    let late = ends.table.slots[3].read().unwrap().key.qp();
    show(&mut observer, &packet(late), 0, Time::from_nanos(2));
    for it in &given_back {
        ends.releases.push(*it).unwrap();
    }
    // Places that are none, and users that are gone, are not believed.
    let mut wrong = given_back[0];
    wrong.slot = 1000;
    ends.releases.push(wrong).unwrap();
    let mut old = given_back[5];
    old.generation += 1;
    ends.releases.push(old).unwrap();
    assert!(observer.has_releases());
    observer.free_slots();
    assert!(!observer.has_releases());
    assert_eq!(all(&ends).len(), 32 - 9);
    assert_eq!(ends.table.counters.used.get(), 32 - 9);
    assert!(all(&ends).iter().any(|it| it.key.qp() == late));
    for seen in &before {
        show(
            &mut observer,
            &packet(seen.key.qp()),
            0,
            Time::from_nanos(3),
        );
    }
    let after = all(&ends);
    assert_eq!(after.len(), 32, "each has one slot again");
    let twice = after.iter().filter(|it| it.counts.packets >= 2).count();
    assert_eq!(twice, 32 - 9);
}

/// SW-50: a host that invents connections has no more places than the table is to have, and those
/// behind other ports are followed all the same; when its flows are over the places are there
/// again.
#[test]
fn one_port_does_not_take_all_places() {
    let (mut observer, mut ends) = observer(32);
    let (a, b, c) = (host(1, false), host(2, false), host(3, false));
    let now = Time::from_nanos(1);
    let flood = |observer: &mut Observer| {
        (0..100).for_each(|qp| show(observer, &frame(a, b, &request(qp, 1), &[]), 0, now));
    };
    flood(&mut observer);
    assert_eq!(all(&ends).len(), 32);
    (0..3).for_each(|qp| show(&mut observer, &frame(c, b, &request(qp, 1), &[]), 1, now));
    let seen = all(&ends);
    let others = seen.iter().filter(|it| it.key.source() == c).count();
    assert_eq!((others, ends.table.counters.unfollowed.get()), (3, 68));
    for (slot, it) in ends.table.slots.iter().enumerate() {
        let Some(it) = it.read().filter(|it| it.key.source() == a) else {
            continue;
        };
        let (generation, packets) = (it.generation, it.counts.packets);
        let release = Release {
            slot,
            generation,
            packets,
        };
        ends.releases.push(release).unwrap();
    }
    while observer.has_releases() {
        observer.free_slots();
    }
    assert_eq!(all(&ends).len(), 3);
    flood(&mut observer);
    let seen = all(&ends);
    let own = seen.iter().filter(|it| it.key.source() == a).count();
    assert!((29..=32).contains(&own), "{own}");
}

/// SW-50: the round trip is that of a request and the acknowledgement that covers it, a moving
/// average; requests that are sent again are not measured; PSNs go round.
#[test]
fn round_trips_are_measured() {
    let (mut observer, ends) = observer(32);
    let (a, b) = (host(1, false), host(2, false));
    let data = |psn| frame(a, b, &request(2, psn), &[]);
    let ack = |psn| frame(b, a, &acknowledge(1, psn, POSITIVE), &[]);
    let at = Time::from_nanos;
    let mut now = at(1_000_000_000);
    show(&mut observer, &data(0xff_fff0), 0, now);
    show(&mut observer, &ack(0xff_fff0), 0, now);
    let seen = all(&ends);
    let place = |key: Option<Key>| seen.iter().position(|it| Some(it.key) == key).unwrap();
    let (forward, backward) = (place(Key::new(a, b, 2)), place(Key::new(b, a, 1)));
    assert_eq!(
        seen[backward].rtt.1, 0,
        "nobody knows that they belong together"
    );
    let slots = &ends.table.slots;
    slots[forward].set_peer(Some((0, backward, seen[backward].generation)));
    slots[backward].set_peer(Some((0, forward, seen[forward].generation)));
    let rtt = || slots[backward].read().unwrap().rtt;
    let mut round = |psn: u32, acked: u32, nanos: u64, twice: bool| {
        now += Span::from_millis(2);
        show(&mut observer, &data(psn & 0xff_ffff), 0, now);
        if twice {
            show(
                &mut observer,
                &data(psn & 0xff_ffff),
                0,
                now + Span::from_nanos(9),
            );
        }
        let later = now + Span::from_nanos(nanos);
        show(&mut observer, &ack(acked & 0xff_ffff), 0, later);
    };
    round(0xff_fff1, 0xff_fff1, 8000, false);
    assert_eq!(rtt(), (Span::from_nanos(8000), 1));
    round(0xff_fff2, 0xff_fff1, 9000, false);
    assert_eq!(rtt().1, 1, "the acknowledgement is about what came before");
    round(0xff_fff3, 0x100_0004, 100, false);
    assert_eq!(rtt().1, 2, "the sample waited");
    let before = rtt();
    round(0x100_0005, 0x100_0005, 50_000, true);
    assert_eq!(rtt(), before, "sent again");
    round(0x100_0006, 0x100_0006, 16_000, false);
    let expected = (before.0.nanos() * 7 + 16_000) / 8;
    assert_eq!(rtt(), (Span::from_nanos(expected), 3));
    // Another user of the slot is not taken for the peer.
    slots[backward].set_peer(Some((0, forward, seen[forward].generation + 1)));
    round(0x100_0007, 0x100_0007, 16_000, false);
    assert_eq!(rtt().1, 3);
}

/// SW-50: packets that go by many paths overtake each other: one with an older number says nothing
/// of the one that is measured, and the same number does.
#[test]
fn round_trips_of_many_paths_are_measured() {
    let (mut observer, ends) = observer(32);
    let (a, b) = (host(1, false), host(2, false));
    let data = |psn| {
        let mut headers = request(2, psn);
        headers.bth.opcode = Opcode::Multipath(Operation::SendOnly);
        headers.mpeh = Some(Mpeh::default());
        headers.extension = Some(Extension::new(Cookie::new(5)));
        frame(a, b, &headers, &[])
    };
    let ack = |psn| frame(b, a, &acknowledge(1, psn, POSITIVE), &[]);
    let start = Time::from_nanos(1_000_000_000);
    show(&mut observer, &data(1), 0, start);
    show(&mut observer, &ack(1), 0, start);
    let seen = all(&ends);
    let place = |key: Option<Key>| seen.iter().position(|it| Some(it.key) == key).unwrap();
    let (forward, backward) = (place(Key::new(a, b, 2)), place(Key::new(b, a, 1)));
    let slots = &ends.table.slots;
    slots[forward].set_peer(Some((0, backward, seen[backward].generation)));
    slots[backward].set_peer(Some((0, forward, seen[forward].generation)));
    let mut samples = Vec::new();
    for (round, second) in [(1, 99), (2, 200)] {
        let at = |micros| start + Span::from_millis(2 * round) + Span::from_micros(micros);
        let psn = 100 * u32::try_from(round).expect("few");
        show(&mut observer, &data(psn), 0, at(0));
        show(&mut observer, &data(second), 0, at(1));
        show(&mut observer, &ack(psn), 0, at(8));
        samples.push(slots[backward].read().expect("seen").rtt.1);
    }
    assert_eq!(samples, [1, 1], "overtaken, and sent again");
}

/// Host 1 asks queue pair 2 of host 2, which acknowledges to queue pair 1.
struct Couple {
    observer: Observer,
    ends: Ends,
}

impl Couple {
    /// A request, which has the first slot if it is the first packet.
    fn ask(&mut self, psn: u32, at: Time) {
        let bytes = frame(host(1, false), host(2, false), &request(2, psn), &[]);
        show(&mut self.observer, &bytes, 0, at);
    }

    fn answer(&mut self, psn: u32, at: Time) {
        let headers = acknowledge(1, psn, POSITIVE);
        let bytes = frame(host(2, false), host(1, false), &headers, &[]);
        show(&mut self.observer, &bytes, 0, at);
    }

    fn seen(&self, slot: usize) -> Seen {
        self.ends.table.slots[slot].read().expect("it is in use")
    }

    fn knows_its_peer(&self, slot: usize) -> bool {
        let table = &self.ends.table;
        let peer = table.slots[slot].peer(std::slice::from_ref(table));
        peer.is_some()
    }

    /// Control finds that both belong together.
    fn pair(&self) {
        for (slot, other) in [(0, 1), (1, 0)] {
            let peer = (0, other, self.seen(other).generation);
            self.ends.table.slots[slot].set_peer(Some(peer));
        }
    }

    fn release(&mut self, slot: usize) {
        let seen = self.seen(slot);
        let (generation, packets) = (seen.generation, seen.counts.packets);
        let release = Release {
            slot,
            generation,
            packets,
        };
        self.ends.releases.push(release).expect("there is room");
        self.observer.free_slots();
    }

    /// Round trips as who answers has measured them.
    fn rtt(&self) -> (Span, u64) {
        self.seen(1).rtt
    }

    /// Both directions have passed and belong together; one round trip was measured.
    fn new(at: Time) -> Self {
        let (observer, ends) = observer(2);
        let mut it = Self { observer, ends };
        it.ask(1, at);
        it.answer(1, at);
        it.pair();
        it.ask(2, at);
        it.answer(2, at + Span::from_micros(10));
        assert_eq!(it.rtt(), (Span::from_micros(10), 1));
        it
    }
}

/// SW-50: an answer is measured against the request that was asked of it, and not against one that
/// the flow before in its slot had answered long ago.
#[test]
fn a_new_flow_does_not_answer_what_the_one_before_was_asked() {
    let start = Time::from_nanos(1_000_000_000);
    let later = start + Span::from_secs(15);
    // Both slots are free again, and who answers is the first to come back.
    let mut both = Couple::new(start);
    both.release(0);
    both.release(1);
    both.answer(3, later);
    both.answer(4, later);
    assert_eq!(both.rtt().1, 0);
    // The first request is shorter ago than the round trip of any that was answered before.
    both.ask(5, later);
    both.pair();
    both.ask(6, later);
    both.answer(6, later + Span::from_micros(20));
    assert_eq!(both.rtt(), (Span::from_micros(20), 1));
    // Only the slot of who answers was given back: a request came in time to keep the other.
    for wait in [Span::from_millis(2), Span::from_secs(15)] {
        let later = start + wait;
        let mut one = Couple::new(start);
        one.release(1);
        assert!(!one.knows_its_peer(0), "nobody is there");
        one.ask(3, later);
        one.answer(3, later);
        assert!(!one.knows_its_peer(1), "control has not said so yet");
        one.pair();
        one.answer(4, later);
        assert_eq!(one.rtt().1, 0, "after {wait}");
        // It does not wait for the answer to what was asked of another.
        one.ask(5, later + Span::from_millis(2));
        one.answer(5, later + Span::from_micros(2_030));
        assert_eq!(one.rtt(), (Span::from_micros(30), 1));
    }
}

/// SW-50: what covers a request more than a second later is the answer to something else.
#[test]
fn a_late_answer_is_not_measured() {
    let start = Time::from_nanos(1_000_000_000);
    let mut couple = Couple::new(start);
    let asked = start + Span::from_millis(2);
    couple.ask(3, asked);
    couple.answer(3, asked + Span::from_secs(1));
    assert_eq!(couple.rtt().1, 1);
    let asked = asked + Span::from_secs(2);
    couple.ask(4, asked);
    couple.answer(4, asked + Span::from_millis(999));
    assert_eq!(couple.rtt().1, 2);
}

/// What is told to control is bounded.
#[test]
fn setups_that_nobody_reads_are_counted() {
    let (mut observer, mut ends) = observer(32);
    let pair = Pair {
        local_comm_id: 1,
        remote_comm_id: 2,
    };
    let (a, b) = (host(1, false), host(2, false));
    let bytes = management(a, b, Message::Rtu(pair));
    // One port leaves the others half of what there is room for.
    for _ in 0..=SETUPS / 2 {
        show(&mut observer, &bytes, 0, Time::from_nanos(5));
    }
    assert_eq!(ends.table.counters.setups_lost.get(), 1);
    for _ in 0..SETUPS {
        show(&mut observer, &bytes, 1, Time::from_nanos(5));
    }
    let lost = ends.table.counters.setups_lost.get();
    assert_eq!(lost, 1 + SETUPS as u64 * 3 / 4);
    // Control has looked by then, if only at some.
    let later = Time::from_nanos(5) + Span::from_millis(500);
    assert_eq!(ends.setups.len(), SETUPS * 3 / 4);
    let first = ends.setups.pop().unwrap();
    assert_eq!((first.source, first.destination), (a, b));
    assert_eq!((first.at, first.ingress), (Time::from_nanos(5), PortId(0)));
    for _ in 0..=SETUPS / 4 {
        show(&mut observer, &bytes, 2, later);
    }
    assert_eq!(ends.setups.len(), SETUPS - 1 + 1, "it is full");
    assert_eq!(ends.table.counters.setups_lost.get(), lost);
}

proptest! {
    /// SW-50: keys are what they were made of.
    #[test]
    fn keys_keep_what_they_are_made_of(
        a in any::<[u8; 16]>(), b in any::<[u8; 16]>(), qp in 0_u32..1 << 24, v6 in any::<bool>(),
    ) {
        let address = |octets: [u8; 16]| -> IpAddr {
            let [a, b, c, d, ..] = octets;
            if v6 { octets.into() } else { [a, b, c, d].into() }
        };
        let key = Key::new(address(a), address(b), qp).unwrap();
        prop_assert_eq!((key.source(), key.destination()), (address(a), address(b)));
        prop_assert_eq!((key.qp(), key.is_v6()), (qp, v6));
    }

    /// SW-50: whatever comes and goes, each direction that is there is found, once.
    #[test]
    fn slots_are_found_whatever_comes_and_goes(steps in prop::collection::vec(0_u32..40, 1..400)) {
        let (mut observer, mut ends) = observer(16);
        let (a, b) = (host(1, false), host(2, false));
        let mut held = std::collections::BTreeSet::new();
        for qp in steps {
            if held.contains(&qp) {
                let place = ends.table.slots.iter().position(|slot| {
                    slot.read().is_some_and(|it| it.key.qp() == qp)
                }).unwrap();
                let seen = ends.table.slots[place].read().unwrap();
                let (generation, packets) = (seen.generation, seen.counts.packets);
                ends.releases.push(Release { slot: place, generation, packets }).unwrap();
                observer.free_slots();
                held.remove(&qp);
            } else {
                show(&mut observer, &frame(a, b, &request(qp, 1), &[]), 0, Time::from_nanos(1));
                if held.len() < 16 {
                    held.insert(qp);
                }
            }
            let mut found: Vec<u32> = all(&ends).iter().map(|it| it.key.qp()).collect();
            found.sort_unstable();
            prop_assert_eq!(found, held.iter().copied().collect::<Vec<_>>());
        }
    }
}
