//! DCQCN with a plain peer (CC-1): its notifications set the rate, and ours leave as configured.

use crate::network::Network;
use crate::plain_peer::{FIRST_OF_HOST, MTU, PlainPeer};
use common::time::Span;
use common::wire::roce::{Headers, Opcode, Operation};
use hostd::verbs::{Congestion, DropReason, EngineConfig, ReadyToSend, SendOpcode};
use rand_pcg::Pcg64Mcg;

const SEND: ReadyToSend = ReadyToSend {
    sq_psn: FIRST_OF_HOST,
    timeout: 14,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

fn peer(cnp_interval: Span) -> PlainPeer {
    let config = EngineConfig {
        congestion: Congestion::Dcqcn,
        cnp_interval,
        ..EngineConfig::default()
    };
    PlainPeer::of(1, SEND, config)
}

/// Host 1 sends as fast as it may for `span`; the part of its line, 10 Gb/s, that its data takes.
/// `notify`: time between the peer's notifications, if it sends any, and their number.
fn load(peer: &mut PlainPeer, span: Span, mut notify: Option<(Span, &mut u64)>) -> f64 {
    let mut random = Pcg64Mcg::new(1);
    let (qpn, end) = (peer.qpn, peer.network.now + span);
    let cnp = peer.frame(&Headers::cnp(qpn), &[]);
    let mut next = peer.network.now;
    let before = peer.seen.len();
    while peer.network.now < end {
        loop {
            let request = peer.host().send(1, 0, 4096);
            if peer.host().engine.post_send(qpn, request).is_err() {
                break;
            }
        }
        while let Some((every, count)) = &mut notify
            && next <= peer.network.now
        {
            peer.network.inject(1, &cnp);
            **count += 1;
            next += *every;
        }
        peer.talk(Span::from_micros(10), 0, &mut random);
        peer.messages.clear();
    }
    let data = peer.seen[before..].iter().filter(|seen| seen.is_data());
    // Ethernet, IP, UDP, BTH, ICRC and framing.
    let bytes = data.count() * (MTU + 58 + 24);
    #[expect(clippy::cast_precision_loss, reason = "a part")]
    let part = bytes as f64 * 8.0 / 10.0 / span.nanos() as f64;
    part
}

fn is_about(part: f64, expected: f64) {
    assert!(
        (part - expected).abs() < 0.1 * expected,
        "{part} instead of {expected}"
    );
}

/// CC-1, HT-10: a CNP of a plain peer halves the rate at first, and the rate comes back by itself.
/// Nothing is sent twice for it, and everything arrives.
#[test]
fn notifications_of_a_plain_peer_set_the_rate() {
    let mut peer = peer(Span::from_micros(50));
    let all = load(&mut peer, Span::from_micros(500), None);
    assert!(all > 0.9, "{all}");
    let (never, mut sent) = (Span::from_secs(1), 0);
    let halved = load(&mut peer, Span::from_micros(50), Some((never, &mut sent)));
    is_about(halved, 0.5);
    // Three quarters, and seven eighths, …
    is_about(load(&mut peer, Span::from_micros(60), None), 0.75);
    load(&mut peer, Span::from_micros(500), None);
    let back = load(&mut peer, Span::from_micros(200), None);
    assert!(back > 0.9, "{back}");
    let qpn = peer.qpn;
    let standing = peer
        .host()
        .engine
        .queue_pair_statistics(qpn)
        .expect("there");
    assert_eq!(
        (standing.counters.rx_cnps, standing.counters.retransmits),
        (1, 0)
    );
    peer.network.close();
}

/// CC-1: forged notifications, ten in each microsecond, are all counted, and slow a queue pair
/// down to 1/1024 of its line and no further, without a time-out; afterwards it recovers.
#[test]
fn a_flood_of_notifications_slows_down_to_the_floor() {
    let mut peer = peer(Span::from_micros(50));
    load(&mut peer, Span::from_micros(200), None);
    let (flood, mut sent) = (Span::from_nanos(100), 0);
    load(
        &mut peer,
        Span::from_micros(2_000),
        Some((flood, &mut sent)),
    );
    let floor = load(&mut peer, Span::from_millis(20), Some((flood, &mut sent)));
    // A packet in 277 µs.
    is_about(floor, 1.0 / 1024.0);
    let qpn = peer.qpn;
    let standing = peer
        .host()
        .engine
        .queue_pair_statistics(qpn)
        .expect("there");
    // While nothing is on its way there is nothing to tell of.
    let idle = &peer.host().engine.statistics().drops;
    let idle = idle.get(DropReason::UnexpectedNotification);
    assert_eq!(standing.counters.rx_cnps + idle, sent);
    assert!(sent > 200_000 && idle < sent / 5, "{idle} of {sent}");
    assert_eq!(
        (standing.counters.timeouts, standing.counters.retransmits),
        (0, 0)
    );
    // A thousandth of the line each 55 µs.
    load(&mut peer, Span::from_micros(55 * 510), None);
    is_about(load(&mut peer, Span::from_micros(500), None), 0.5);
    peer.network.close();
}

/// CC-1: marked packets are answered by a CNP, at most one in the configured interval.
#[test]
fn the_interval_of_notifications_is_configured() {
    for (interval, times) in [(4, 100), (50, 8), (400, 1)] {
        let mut peer = peer(Span::from_micros(interval));
        let qpn = peer.qpn;
        peer.traffic_class = 0b11;
        for n in 0..400 {
            peer.host().receive_into(qpn, 1, 0, 4096);
            let frame = peer.data(Operation::SendOnly, n, false, b"marked");
            peer.after(&frame, Span::from_micros(1));
        }
        let cnps = peer.seen.iter();
        let cnps = cnps.filter(|seen| seen.headers.bth.opcode == Opcode::Cnp);
        assert_eq!(cnps.count(), times, "{interval} µs");
        peer.network.close();
    }
}

/// CC-1: marked answers to RDMA READs are answered by CNPs like other data: who reads is who
/// receives. They set the rate of the answers.
#[test]
fn marked_answers_are_notified() {
    let config = EngineConfig {
        congestion: Congestion::Dcqcn,
        ..EngineConfig::default()
    };
    let mut took = Vec::new();
    for marks in [0, 500] {
        let mut network = Network::new(2, [config.clone(), config.clone()]);
        let start = network.now;
        network.impairment.marks = marks;
        let [reader, responder] = network.connected(None);
        for number in 0..50 {
            let mut read = network.hosts[0].send(number, 0, 65_536);
            read.opcode = SendOpcode::RdmaRead;
            read.rkey = network.hosts[1].keys.rkey;
            let posted = network.hosts[0].engine.post_send(reader, read);
            posted.expect("room");
            network.run(Span::from_secs(1), |network| {
                network.hosts[0].completions.len() as u64 > number
            });
        }
        let counters = [reader, responder].map(|qpn| {
            let host = usize::from(qpn == responder);
            let standing = network.hosts[host].engine.queue_pair_statistics(qpn);
            standing.expect("exists").counters
        });
        println!("{counters:#?}");
        let [read, answered] = counters;
        assert_eq!(read.tx_messages, 50);
        assert_eq!(read.marked > 500, marks > 0, "{}", read.marked);
        assert_eq!(read.tx_cnps > 10, marks > 0, "{}", read.tx_cnps);
        assert_eq!(answered.rx_cnps > 10, marks > 0, "{}", answered.rx_cnps);
        took.push(network.now.since(start));
        network.close();
    }
    assert!(took[1] > took[0].times(3), "{took:?}");
}
