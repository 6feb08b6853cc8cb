//! SW-50: which directions belong together, and when flows are over.

use super::*;
use crate::config::flows::Flows;
use crate::flows::tests::{LOSS, POSITIVE, acknowledge, frame, host, management, request, show};
use crate::flows::{Ends, Key, Observer, observers};
use crate::id::PortId;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::cm::{Message, RELIABLE_CONNECTION, Rep, Req};
use std::net::IpAddr;

mod records;

/// Both queue pairs of a flow, how they were found, and packets both ways.
type Shown = (Option<u32>, u32, Option<Learned>, u64, u64);

/// Two workers: requests arrive at one, answers at the other.
struct Rig {
    observers: Vec<Observer>,
    book: Book,
    now: Time,
}

fn settings() -> Flows {
    Flows {
        enabled: true,
        active_seconds: 10,
        inactive_seconds: 4,
        ..Flows::default()
    }
}

impl Rig {
    fn new(slots: usize) -> Self {
        let all = observers(2, slots, Span::from_secs(10), 3);
        let (observers, ends): (Vec<_>, Vec<Ends>) = all.into_iter().unzip();
        Self {
            observers,
            book: Book::new(&settings(), ends),
            now: Time::ZERO + Span::from_secs(100),
        }
    }

    /// One that has records made.
    fn exporting() -> Self {
        let settings = Flows {
            collector: "127.0.0.1:4739".to_owned(),
            ..settings()
        };
        let all = observers(2, 16, Span::from_secs(10), 3);
        let (observers, ends): (Vec<_>, Vec<Ends>) = all.into_iter().unzip();
        Self {
            observers,
            book: Book::new(&settings, ends),
            now: Time::ZERO + Span::from_secs(100),
        }
    }

    fn show(&mut self, worker: usize, frame: &[u8]) {
        let port = u16::try_from(worker).unwrap() + 1;
        show(&mut self.observers[worker], frame, port, self.now);
    }

    fn read(&mut self) {
        self.book.read(self.now);
        self.observers.iter_mut().for_each(|it| it.free_slots());
    }

    fn wait(&mut self, millis: u64) {
        self.now += Span::from_millis(millis);
    }

    /// A request from host 1 to host 2, and its answer.
    fn exchange(&mut self, qps: (u32, u32), psn: u32) {
        let (a, b) = (host(1, false), host(2, false));
        self.show(0, &frame(a, b, &request(qps.1, psn), &[0; 64]));
        self.show(1, &frame(b, a, &acknowledge(qps.0, psn, POSITIVE), &[]));
    }

    fn flows(&self) -> Vec<Shown> {
        let one = |flow: Flow<'_>| {
            let learned = flow.other.map(|(_, learned)| learned);
            let back = flow.backward.map_or(0, |it| it.counts.packets);
            let qp = flow.other.map(|(key, _)| key.qp());
            let forward = flow.forward;
            (qp, forward.key.qp(), learned, forward.counts.packets, back)
        };
        let mut all: Vec<_> = self.book.flows().map(one).collect();
        all.sort_unstable_by_key(|it| it.1);
        all
    }
}

/// A connection that is set up: REQ and REP of host 1 and 2.
pub(in crate::control) fn set_up(
    client: IpAddr,
    server: IpAddr,
    qps: (u32, u32),
    id: u32,
) -> [Vec<u8>; 2] {
    let req = Req {
        local_comm_id: id,
        service_id: 0,
        ca_guid: 1,
        local_qpn: qps.0,
        responder_resources: 1,
        initiator_depth: 1,
        remote_cm_timeout: 1,
        transport: RELIABLE_CONNECTION,
        starting_psn: 0,
        local_cm_timeout: 1,
        retry_count: 7,
        partition: 0xffff,
        path_mtu: 5,
        rnr_retry_count: 7,
        max_cm_retries: 1,
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 64,
        ack_timeout: 14,
        src_port: 1,
        src: client,
        dst: server,
        private: [0; 56],
    };
    let rep = Rep {
        local_comm_id: id + 1000,
        remote_comm_id: id,
        local_qpn: qps.1,
        starting_psn: 0,
        responder_resources: 1,
        initiator_depth: 1,
        rnr_retry_count: 7,
        ca_guid: 2,
        private: [0; 196],
    };
    [
        management(client, server, Message::Req(Box::new(req))),
        management(server, client, Message::Rep(Box::new(rep))),
    ]
}

/// SW-50: a flow that was set up is known with both queue pairs from its first packet, and its
/// client is the source, whoever sends first. Of many that look the same none is mistaken.
#[test]
fn flows_that_are_set_up_are_paired_exactly() {
    let mut rig = Rig::new(4096);
    let (a, b) = (host(1, false), host(2, false));
    for number in 0..500 {
        let [req, rep] = set_up(a, b, (1000 + number, 5000 + number), number);
        rig.show(0, &req);
        rig.show(1, &rep);
    }
    for number in 0..500 {
        // All at the same PSN; of the last one only the server sends.
        if number < 499 {
            rig.exchange((1000 + number, 5000 + number), 7);
        } else {
            rig.show(1, &frame(b, a, &request(1000 + number, 7), &[]));
        }
    }
    rig.read();
    let flows = rig.flows();
    assert_eq!(flows.len(), 500);
    let (one_way, both) = flows.split_first().unwrap();
    let expected = (Some(5499), 1499, Some(Learned::Setup), 1, 0);
    assert_eq!(*one_way, expected, "its other direction is known already");
    for (number, flow) in (0..499).zip(both) {
        let expected = (
            Some(1000 + number),
            5000 + number,
            Some(Learned::Setup),
            1,
            1,
        );
        assert_eq!(*flow, expected);
    }
}

/// SW-50: a REP that is read before its REQ, because another worker saw it, still finds it; a REP
/// without one, and a message that makes no sense, pair nothing.
#[test]
fn messages_of_set_up_come_in_any_order() {
    let mut rig = Rig::new(64);
    let (a, b) = (host(1, true), host(2, true));
    let [req, rep] = set_up(a, b, (11, 22), 5);
    // The workers are read in order.
    rig.show(0, &rep);
    rig.show(1, &req);
    let [_, lost] = set_up(a, b, (33, 44), 6);
    rig.show(0, &lost);
    let mut broken = req.clone();
    let method = broken.len() - 4 - 256 + 3;
    broken[method] ^= 0xff;
    rig.show(0, &broken);
    rig.show(0, &frame(a, b, &request(22, 1), &[]));
    rig.show(0, &frame(a, b, &request(44, 1), &[]));
    rig.read();
    rig.read();
    let found: Vec<_> = rig.flows().iter().map(|it| (it.0, it.1)).collect();
    assert_eq!(found, [(Some(11), 22), (None, 44)]);
    assert_eq!(rig.book.setups_refused(), 1);
}

/// SW-50: flows that run already are paired by what is acknowledged; where several fit, once only
/// one does; a pair that turns out to be wrong is parted.
#[test]
fn flows_that_run_already_are_paired_by_what_is_acknowledged() {
    let mut rig = Rig::new(4096);
    for number in 0..400_u32 {
        let psn = number.wrapping_mul(0x9e_3779) & 0xff_ffff;
        rig.exchange((1000 + number, 5000 + number), psn);
    }
    rig.exchange((1, 2), 77);
    rig.exchange((3, 4), 77);
    rig.read();
    let flows = rig.flows();
    let paired = flows.iter().filter(|it| it.2 == Some(Learned::Data));
    assert!(paired.clone().count() > 350, "most do not wait for more");
    for flow in paired {
        assert_eq!(flow.0.unwrap() + 4000, flow.1);
    }
    assert!(flows.iter().all(|it| it.1 != 2 || it.0.is_none()));
    for psn in 78..80 {
        rig.exchange((1, 2), psn);
    }
    for number in 0..400_u32 {
        let psn = (number.wrapping_mul(0x9e_3779) + 1) & 0xff_ffff;
        rig.exchange((1000 + number, 5000 + number), psn);
    }
    rig.read();
    rig.read();
    let flows = rig.flows();
    assert_eq!(flows.len(), 402, "{flows:?}");
    assert_eq!((flows[0].0, flows[0].1), (Some(1), 2));
    assert_eq!((flows[1].0, flows[1].1), (Some(3), 4));

    // What acknowledges more than was asked is the answer to something else.
    let (a, b) = (host(1, false), host(2, false));
    rig.show(1, &frame(b, a, &acknowledge(3, 2000, POSITIVE), &[]));
    rig.read();
    assert!(rig.flows().iter().any(|it| it.1 == 4 && it.0.is_none()));
}

/// SW-50: an active flow counts its NAKs anew after the active time, and an inactive one is over
/// after the inactive time; what passes while it is given back is not lost, and not counted twice.
#[test]
fn flows_age() {
    let mut rig = Rig::new(16);
    let (a, b) = (host(1, false), host(2, false));
    let nak = frame(b, a, &acknowledge(1, 5, LOSS), &[]);
    rig.exchange((1, 2), 5);
    rig.show(1, &nak);
    let naks = |rig: &Rig| {
        let flow = rig.book.flows().next().unwrap();
        flow.backward.unwrap().in_active_time().naks
    };
    for second in 0..10 {
        rig.read();
        assert_eq!((naks(&rig), rig.book.aged()), (1, (0, 0)), "{second} s");
        rig.wait(1000);
        rig.exchange((1, 2), 6 + second);
    }
    rig.read();
    assert_eq!((naks(&rig), rig.book.aged()), (0, (0, 1)));
    rig.show(1, &nak);
    rig.read();
    assert_eq!(naks(&rig), 1);
    rig.wait(3900);
    rig.read();
    assert_eq!(rig.flows().len(), 1);
    rig.wait(100);
    // The worker does not look at once: meanwhile something passes.
    rig.book.read(rig.now);
    assert_eq!((rig.flows().len(), rig.book.aged()), (0, (1, 1)));
    rig.exchange((1, 2), 20);
    rig.read();
    let flow = rig.book.flows().next().unwrap();
    assert_eq!(flow.forward.in_active_time().packets, 1);
    assert_eq!(flow.backward.unwrap().in_active_time().packets, 1);
    assert_eq!(naks(&rig), 0);
    rig.wait(4000);
    rig.read();
    rig.read();
    assert_eq!((rig.flows().len(), rig.book.aged()), (0, (2, 1)));
    assert_eq!(rig.book.counted(|it| it.used.get()), 0);
}

/// SW-50: all slots are given back however many flows end at once, and full tables are counted.
#[test]
fn a_full_table_is_counted_and_emptied() {
    let mut rig = Rig::new(6000);
    let (a, b) = (host(1, false), host(2, false));
    for qp in 0..6100 {
        rig.show(0, &frame(a, b, &request(qp, 1), &[]));
    }
    assert_eq!(rig.book.counted(|it| it.unfollowed.get()), 100);
    rig.wait(4000);
    for _ in 0..4 {
        rig.read();
        while rig.observers[0].has_releases() {
            rig.observers[0].free_slots();
        }
    }
    assert_eq!((rig.flows().len(), rig.book.aged()), (0, (6000, 0)));
    assert_eq!(rig.book.counted(|it| it.used.get()), 0);
}

/// SW-50: the round trip towards each side is measured across workers; it is shown as long as it
/// changes. The rate is shown of elephants.
#[test]
fn round_trips_and_rates_are_shown() {
    let mut rig = Rig::new(16);
    let (a, b) = (host(1, false), host(2, false));
    rig.show(0, &frame(a, b, &request(2, 4), &[]));
    rig.wait(1);
    rig.exchange((1, 2), 5);
    rig.read();
    assert_eq!(rig.flows()[0].2, Some(Learned::Data));
    let rtt = |rig: &Rig| {
        let flow = rig.book.flows().next().unwrap();
        [true, false].map(|it| flow.rtt(it).map(|it| it.nanos()))
    };
    assert_eq!(rtt(&rig), [None; 2]);
    rig.show(0, &frame(a, b, &request(2, 6), &[0; 1000]));
    let sent = rig.now;
    rig.now = sent + Span::from_micros(12);
    rig.show(1, &frame(b, a, &acknowledge(1, 6, POSITIVE), &[]));
    rig.read();
    assert_eq!(rtt(&rig), [Some(12_000), None]);
    for _ in 0..12_000 {
        rig.show(1, &frame(b, a, &request(1, 9), &[0; 1024]));
    }
    rig.wait(1000);
    rig.read();
    let flow = rig.book.flows().next().unwrap();
    assert_eq!(flow.forward.rate, None);
    let rate = flow.backward.unwrap().rate.unwrap();
    // 1024 bytes and the headers of IP, UDP, BTH and the ICRC, 12,000 times.
    assert!(rate.bps().abs_diff(12_000 * 8 * 1068) < 1_000_000, "{rate}");
    assert!(rate > Rate::from_mbps(100));
    for _ in 0..2 {
        for _ in 0..4 {
            rig.wait(2500);
            rig.show(0, &frame(a, b, &request(2, 7), &[]));
        }
        rig.read();
    }
    assert_eq!(
        rtt(&rig),
        [None; 2],
        "nothing was measured in an active time"
    );
    assert_eq!(
        rig.book.flows().next().unwrap().backward.unwrap().rate,
        None
    );
}

/// SW-50: packets that several workers see of one direction are one direction.
#[test]
fn directions_of_several_workers_are_put_together() {
    let mut rig = Rig::new(16);
    let (a, b) = (host(1, false), host(2, false));
    let key = Key::new(a, b, 2).unwrap();
    for psn in 0..6 {
        rig.show(usize::from(psn >= 4), &frame(a, b, &request(2, psn), &[]));
    }
    rig.show(1, &frame(b, a, &acknowledge(1, 5, POSITIVE), &[]));
    rig.read();
    rig.read();
    let flow = rig.book.flows().next().unwrap();
    let forward = if flow.forward.key == key {
        flow.forward
    } else {
        flow.backward.unwrap()
    };
    assert_eq!(forward.counts.packets, 6);
    assert_eq!(rig.flows().len(), 1);
}

/// SW-50: a record of each direction is made when its flow is over, and after each active time, of
/// what passed since the last one; all together have everything.
#[test]
fn records_have_everything_once() {
    let mut rig = Rig::exporting();
    let mut records = Vec::new();
    for psn in 0..25 {
        rig.exchange((1, 2), psn);
        rig.read();
        records.extend(rig.book.take_records());
        rig.wait(1000);
    }
    rig.exchange((1, 2), 25);
    rig.book.end(rig.now);
    let last = rig.book.take_records();
    assert!(last.iter().all(|it| it.reason == EndReason::Forced) && last.len() == 2);
    rig.wait(4000);
    rig.read();
    records.extend(rig.book.take_records());
    let forward: Vec<_> = records.iter().filter(|it| it.key.qp() == 2).collect();
    let told = |it: &&Record| (it.reason, it.counts.packets, it.other);
    let other = Some((1, Learned::Data));
    let expected = [
        (EndReason::Active, 11, other),
        (EndReason::Active, 10, other),
        (EndReason::Idle, 5, other),
    ];
    assert_eq!(forward.iter().map(told).collect::<Vec<_>>(), expected);
    let bytes: u64 = forward.iter().map(|it| it.counts.bytes).sum();
    assert_eq!(bytes, 26 * (20 + 8 + 12 + 64 + 4));
    for pair in forward.windows(2) {
        assert!(pair[0].last <= pair[1].first && pair[1].first <= pair[1].last);
    }
}

/// SW-50: the record of an active time that began with silence starts where that ended, and its
/// rate is that of what passed since.
#[test]
fn records_start_with_what_passes() {
    let mut rig = Rig::exporting();
    let begin = rig.now;
    for psn in 0..11 {
        rig.exchange((1, 2), psn);
        rig.read();
        rig.wait(1000);
    }
    for _ in 0..3 {
        rig.read();
        rig.wait(1000);
    }
    for psn in 11..20 {
        rig.exchange((1, 2), psn);
        rig.read();
        rig.wait(1000);
    }
    let records = rig.book.take_records();
    let times = |it: &Record| [it.first, it.last].map(|it| it.since(begin).nanos() / 1_000_000);
    let forward = records.iter().filter(|it| it.key.qp() == 2);
    let found: Vec<_> = forward.map(times).collect();
    // The last look that saw nothing was a second before the first packet.
    assert_eq!(found, [[0, 10_000], [13_000, 20_000]]);
}
