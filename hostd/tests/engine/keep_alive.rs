//! Silent peers, slow applications, and connections that end from both sides or by a fault.

use crate::connection::{
    PORT, both, config, connect, established, has, parameters, request as asked,
};
use crate::forge::overheard;
use crate::network::Network;
use common::time::Span;
use common::wire::cm::Message;
use hostd::verbs::{
    ConnectionParameters, EngineConfig, Event, MultipathConfig, SendOpcode, State, Status,
};

fn state(network: &Network, host: usize, qpn: u32) -> State {
    let standing = network.hosts[host].engine.queue_pair_statistics(qpn);
    standing.expect("exists").state
}

fn kinds() -> [Option<MultipathConfig>; 2] {
    [None, Some(MultipathConfig::default())]
}

/// HT-24: the side that only receives learns that its peer vanished: 10 s of silence, five seconds
/// with eight probes each, then the queue pair fails and the receives are flushed.
#[test]
fn a_peer_that_vanished_is_noticed() {
    for multipath in kinds() {
        let mut network = Network::new(1, [config(multipath), config(multipath)]);
        let (qpns, _) = connect(&mut network);
        network.hosts[1].receive_into(qpns[1], 7, 0, 100);
        network.impairment.dead = [true, false];
        let begin = network.now;
        let failed = |event: &Event| {
            matches!(
                event,
                Event::QueuePairFailed {
                    status: Status::RetryExceeded,
                    ..
                }
            )
        };
        assert!(network.run(Span::from_secs(30), |network| has(network, 1, failed)));
        let took = network.now.since(begin);
        assert!(
            (Span::from_millis(14_900)..Span::from_millis(15_100)).contains(&took),
            "{took}"
        );
        let stands = network.hosts[1].engine.queue_pair_statistics(qpns[1]);
        assert_eq!(stands.expect("exists").counters.keep_alives, 40);
        assert_eq!(state(&network, 1, qpns[1]), State::Error);
        network.turn();
        let flushed = network.hosts[1].completions.iter();
        let flushed: Vec<_> = flushed.map(|done| (done.wr_id, done.status)).collect();
        assert_eq!(flushed, [(7, Status::WorkRequestFlushed)]);
        network.close();
    }
}

/// HT-24: a peer that is silent but there answers, also over a network that loses a tenth; then
/// data flows as before.
#[test]
fn a_silent_peer_is_not_disturbed() {
    for multipath in kinds() {
        let mut network = Network::new(2, [config(multipath), config(multipath)]);
        let bytes = network.fill(0);
        let (qpns, _) = connect(&mut network);
        network.impairment.loss = 100;
        network.pass(Span::from_secs(120));
        let probes = [0, 1].map(|host: usize| {
            let statistics = network.hosts[host].engine.statistics();
            assert_eq!(statistics.drops.total(), 0, "{:?}", statistics.drops);
            assert_eq!(statistics.transport.retransmits, 0);
            statistics.transport.keep_alives
        });
        assert!((11..40).contains(&(probes[0] + probes[1])), "{probes:?}");
        for (host, &qpn) in qpns.iter().enumerate() {
            assert_eq!(state(&network, host, qpn), State::ReadyToSend);
        }
        network.hosts[1].receive_into(qpns[1], 1, 0, 10_000);
        let send = network.hosts[0].send(1, 0, 9000);
        let posted = network.hosts[0].engine.post_send(qpns[0], send);
        posted.expect("connected");
        assert!(network.run(Span::from_secs(2), |network| {
            network.hosts[0].completions.len() == 1 && network.hosts[1].completions.len() == 1
        }));
        assert_eq!(network.hosts[1].memory.to_vec()[..9000], bytes[..9000]);
        network.close();
    }
}

/// HT-24: without keep-alive nothing is sent on an idle connection.
#[test]
fn keep_alive_can_be_off() {
    let off = EngineConfig {
        keep_alive: Span::ZERO,
        ..EngineConfig::default()
    };
    let mut network = Network::new(3, [off.clone(), off]);
    connect(&mut network);
    network.pass(Span::from_secs(1));
    network.tap = Some(Vec::new());
    network.pass(Span::from_secs(600));
    assert!(network.tap.take().expect("was set").is_empty());
    network.close();
}

/// HT-1, HT-10: a request that the peer refuses fails with the verbs' status on the side that
/// asked, and with the reason on the other, though the network lets messages overtake the NAK. The
/// connection ends on both sides.
#[test]
fn a_refused_request_is_known_as_such_by_both() {
    for multipath in kinds() {
        for seed in 10..20 {
            let mut network = Network::new(seed, [config(multipath), config(multipath)]);
            let (qpns, _) = connect(&mut network);
            network.impairment.skew = Span::from_micros(50);
            let mut write = network.hosts[0].send(1, 0, 100);
            write.opcode = SendOpcode::RdmaWrite;
            write.rkey = network.hosts[1].keys.rkey ^ 1;
            let posted = network.hosts[0].engine.post_send(qpns[0], write);
            posted.expect("connected");
            let gone = |event: &Event| matches!(event, Event::Disconnected { .. });
            assert!(network.run(Span::from_secs(1), |network| {
                has(network, 0, gone) && has(network, 1, gone)
            }));
            let status = network.hosts[0].completions[0].status;
            assert_eq!(status, Status::RemoteAccess, "seed {seed}");
            let failed = |wanted| move |event: &Event| matches!(event, Event::QueuePairFailed { status, .. } if *status == wanted);
            assert!(has(&network, 0, failed(Status::RemoteAccess)));
            assert!(has(&network, 1, failed(Status::LocalAccess)));
            network.close();
        }
    }
}

/// HT-10: an application that takes its time is announced by an MRA, and waited for: the REQ is
/// not repeated, though the connection manager would give up long before.
#[test]
fn a_slow_application_is_waited_for() {
    let impatient = EngineConfig {
        cm_retries: 1,
        ..EngineConfig::default()
    };
    let mut network = Network::new(4, [impatient, EngineConfig::default()]);
    network.tap = Some(Vec::new());
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    network.hosts[1].engine.listen(PORT).expect("free");
    let peer = network.hosts[1].address;
    let engine = &mut network.hosts[0].engine;
    engine
        .connect(qpns[0], peer, PORT, &parameters(b""))
        .expect("legal");
    network.pass(Span::from_secs(8));
    let (connection, _) = asked(&network, 1).expect("came");
    let engine = &mut network.hosts[1].engine;
    engine
        .accept(connection, qpns[1], &parameters(b""))
        .expect("legal");
    assert!(network.run(Span::from_millis(10), |network| {
        established(network, 0).is_some() && established(network, 1).is_some()
    }));
    let messages = overheard(&mut network);
    let count = |wanted: fn(&Message) -> bool| {
        messages
            .iter()
            .filter(|(_, _, mad)| wanted(&mad.message))
            .count()
    };
    assert_eq!(count(|message| matches!(message, Message::Req(_))), 1);
    assert_eq!(count(|message| matches!(message, Message::Mra(_))), 1);
    network.close();
}

/// HT-10: the side that connects decides how often the other one tries again (IBTA 12.7.32).
#[test]
fn the_retry_count_of_the_request_is_honoured() {
    let took = [0, 7].map(|retry_count| {
        let mut network = Network::new(5, [config(None), config(None)]);
        let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
        network.hosts[1].engine.listen(PORT).expect("free");
        let peer = network.hosts[1].address;
        let active = ConnectionParameters {
            retry_count,
            ..parameters(b"")
        };
        let engine = &mut network.hosts[0].engine;
        engine.connect(qpns[0], peer, PORT, &active).expect("legal");
        network.pass(Span::from_millis(1));
        let (connection, _) = asked(&network, 1).expect("came");
        let engine = &mut network.hosts[1].engine;
        engine
            .accept(connection, qpns[1], &parameters(b""))
            .expect("legal");
        network.pass(Span::from_millis(1));
        network.impairment.dead = [true, false];
        let send = network.hosts[1].send(1, 0, 1);
        network.hosts[1]
            .engine
            .post_send(qpns[1], send)
            .expect("connected");
        let begin = network.now;
        let failed = |event: &Event| matches!(event, Event::QueuePairFailed { .. });
        assert!(network.run(Span::from_secs(9), |network| has(network, 1, failed)));
        let took = network.now.since(begin);
        network.close();
        took
    });
    assert!(took[0].times(2) < took[1], "{took:?}");
}

/// HT-23: both sides disconnect at once, and every message comes twice: each learns it once, and
/// nothing is left.
#[test]
fn disconnections_that_cross() {
    for loss in [0, 200] {
        let mut network = Network::new(6, both());
        network.impairment.duplication = 1000;
        network.impairment.loss = loss;
        let (_, connections) = connect(&mut network);
        for (host, connection) in connections.into_iter().enumerate() {
            network.hosts[host]
                .engine
                .disconnect(connection)
                .expect("legal");
        }
        network.pass(Span::from_secs(20));
        for host in &network.hosts {
            let events = host.events.iter();
            let ended = events.filter(|event| matches!(event, Event::Disconnected { .. }));
            assert_eq!(ended.count(), 1);
            assert_eq!(host.engine.connections(), 0);
        }
        network.close();
    }
}
