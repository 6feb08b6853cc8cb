//! Connection set-up, negotiation and tear-down over a network that loses messages.

use crate::network::{Host, Impairment, Network, PEERS};
use common::time::Span;
use common::wire::cm::{Mad, Message};
use hostd::verbs::{
    ConnectionId, ConnectionParameters, EngineConfig, Event, Granularity, MultipathConfig, State,
    Status, Transition,
};

pub(crate) const PORT: u16 = 7471;

pub(crate) fn config(multipath: Option<MultipathConfig>) -> EngineConfig {
    EngineConfig {
        multipath,
        ..EngineConfig::default()
    }
}

pub(crate) fn both() -> [EngineConfig; 2] {
    let multipath = Some(MultipathConfig::default());
    [config(multipath), config(multipath)]
}

pub(crate) fn parameters(private_data: &[u8]) -> ConnectionParameters<'_> {
    ConnectionParameters {
        private_data,
        timeout: 12,
        ..ConnectionParameters::default()
    }
}

pub(crate) fn request(network: &Network, host: usize) -> Option<(ConnectionId, Vec<u8>)> {
    network.hosts[host]
        .events
        .iter()
        .find_map(|event| match event {
            Event::ConnectRequest {
                connection,
                private_data,
                ..
            } => Some((*connection, private_data.bytes().to_vec())),
            _ => None,
        })
}

pub(crate) fn established(network: &Network, host: usize) -> Option<(ConnectionId, bool, Vec<u8>)> {
    network.hosts[host]
        .events
        .iter()
        .find_map(|event| match event {
            Event::Established {
                connection,
                multipath,
                private_data,
                ..
            } => Some((*connection, *multipath, private_data.bytes().to_vec())),
            _ => None,
        })
}

pub(crate) fn has(network: &Network, host: usize, wanted: impl Fn(&Event) -> bool) -> bool {
    network.hosts[host].events.iter().any(wanted)
}

/// Connects host 0 to host 1 through the connection manager.
pub(crate) fn connect(network: &mut Network) -> ([u32; 2], [ConnectionId; 2]) {
    connect_with(network, |_, _| {})
}

/// The same; `prepare` has the queue pairs before.
pub(crate) fn connect_with(
    network: &mut Network,
    prepare: impl FnOnce(&mut [Host; 2], [u32; 2]),
) -> ([u32; 2], [ConnectionId; 2]) {
    let connected = try_to_connect(network, prepare);
    let [one, other] = [0, 1].map(|host| &network.hosts[host].events);
    connected.unwrap_or_else(|| panic!("{one:?} {other:?}"))
}

/// The same; nothing if it does not come about.
fn try_to_connect(
    network: &mut Network,
    prepare: impl FnOnce(&mut [Host; 2], [u32; 2]),
) -> Option<([u32; 2], [ConnectionId; 2])> {
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    prepare(&mut network.hosts, qpns);
    network.hosts[1].engine.listen(PORT).expect("free");
    let peer = network.hosts[1].address;
    let active = network.hosts[0]
        .engine
        .connect(qpns[0], peer, PORT, &parameters(b"hello"))
        .expect("legal");
    let mut accepted = None;
    let done = network.run(Span::from_secs(20), |network| {
        if let (None, Some((connection, data))) = (accepted, request(network, 1)) {
            assert!(data.starts_with(b"hello"));
            network.hosts[1]
                .engine
                .accept(connection, qpns[1], &parameters(b"welcome"))
                .expect("legal");
            accepted = Some(connection);
        }
        established(network, 0).is_some() && established(network, 1).is_some()
    });
    if !done {
        return None;
    }
    let (_, _, data) = established(network, 0).expect("just seen");
    assert!(data.starts_with(b"welcome"), "{data:?}");
    Some((qpns, [active, accepted.expect("was accepted")]))
}

fn send_one(network: &mut Network, [sender, receiver]: [u32; 2]) {
    network.hosts[1].receive_into(receiver, 1, 0, 100_000);
    let send = network.hosts[0].send(1, 0, 90_000);
    network.hosts[0]
        .engine
        .post_send(sender, send)
        .expect("room");
}

/// HT-24, HT-63: where half of the ways lead nowhere, connections come about all the same: what is
/// repeated leaves on several ways.
#[test]
fn set_up_survives_dead_ways() {
    const SEEDS: u64 = 400;
    let mut failed = 0;
    for seed in 1..=SEEDS {
        let mut network = Network::new(seed, both());
        network.swallow();
        failed += u64::from(try_to_connect(&mut network, |_, _| {}).is_none());
        network.close();
    }
    println!("{failed} of {SEEDS} connections failed");
    assert!(failed <= 1, "{failed} of {SEEDS}");
}

/// HT-20, HT-22: connected with what both can do, and data flows both in IPv4 and in IPv6.
#[test]
fn two_engines_connect_and_carry_data() {
    for v6 in [false, true] {
        let mut network = Network::over(1, both(), v6);
        let bytes = network.fill(0);
        let (qpns, _) = connect(&mut network);
        let stats = network.hosts[0]
            .engine
            .queue_pair_statistics(qpns[0])
            .expect("exists");
        assert_eq!(stats.state, State::ReadyToSend);
        assert!(stats.agreed.is_some());
        assert_eq!((stats.paths, stats.path_mtu), (8, 2048));
        send_one(&mut network, qpns);
        assert!(network.run(Span::from_millis(50), |network| {
            network.hosts[0].completions.len() == 1 && network.hosts[1].completions.len() == 1
        }));
        assert_eq!(network.hosts[1].memory.to_vec()[..90_000], bytes[..90_000]);
        network.close();
    }
}

/// HT-20: the result is what both offer; one side without it makes the connection plain.
#[test]
fn negotiation_meets_in_the_middle() {
    let small = MultipathConfig {
        paths: 3,
        granularity: Granularity::Flowlet,
        reorder_buffer: 64,
        ..MultipathConfig::default()
    };
    let large = MultipathConfig::default();
    let cases = [
        (Some(large), Some(large), (true, 8, 224)),
        (Some(small), Some(large), (true, 3, 64)),
        (Some(large), Some(small), (true, 3, 64)),
        (Some(large), None, (false, 1, 128)),
        (None, Some(large), (false, 1, 128)),
        (None, None, (false, 1, 128)),
    ];
    for (active, passive, (multipath, paths, window)) in cases {
        let mut network = Network::new(2, [config(active), config(passive)]);
        let (qpns, _) = connect(&mut network);
        for (host, qpn) in network.hosts.iter().zip(qpns) {
            let stats = host.engine.queue_pair_statistics(qpn).expect("exists");
            assert_eq!(stats.agreed.is_some(), multipath, "{active:?} {passive:?}");
            assert_eq!((stats.paths, stats.window), (paths, window));
        }
        send_one(&mut network, qpns);
        assert!(network.run(Span::from_millis(50), |network| {
            network.hosts[1].completions.len() == 1
        }));
        network.close();
    }
}

/// HT-10: without multipath on one side no packet has an opcode or header that is not in the
/// standard.
#[test]
fn plain_connections_use_the_standards_opcodes_only() {
    let mut network = Network::new(3, [config(None), config(Some(MultipathConfig::default()))]);
    network.tap = Some(Vec::new());
    let (qpns, _) = connect(&mut network);
    send_one(&mut network, qpns);
    network.pass(Span::from_millis(20));
    let frames = network.tap.take().expect("was set");
    assert!(frames.len() > 40);
    for frame in frames {
        let opcode = frame[14 + 20 + 8];
        assert!(opcode < 0x20 || opcode == 0x64, "opcode {opcode:#x}");
    }
    network.close();
}

/// HT-10: a side begins to send at the PSN that its peer's REQ or REP said (IBTA 12.6.5), and not
/// at the one that it said itself. Two engines that had it the other way round would understand
/// each other.
#[test]
fn a_side_begins_at_the_starting_psn_of_its_peer() {
    const BTH: usize = 14 + 20 + 8;
    const MAD: usize = BTH + 12 + 8;
    let mut network = Network::new(4, [config(None), config(None)]);
    network.tap = Some(Vec::new());
    let (qpns, _) = connect(&mut network);
    send_one(&mut network, qpns);
    network.hosts[0].receive_into(qpns[0], 1, 0, 100);
    let send = network.hosts[1].send(1, 0, 100);
    network.hosts[1]
        .engine
        .post_send(qpns[1], send)
        .expect("room");
    network.pass(Span::from_millis(20));
    let frames = network.tap.take().expect("was set");
    // What the other side of each host said.
    let mut said = [None; 2];
    for frame in frames.iter().filter(|frame| frame[BTH] == 0x64) {
        match Mad::parse(&frame[MAD..]).expect("whole").message {
            Message::Req(req) => said[1] = Some(req.starting_psn),
            Message::Rep(rep) => said[0] = Some(rep.starting_psn),
            _ => {}
        }
    }
    assert_ne!(said[0], said[1]);
    for (host, said) in said.into_iter().enumerate() {
        let first = frames.iter().find(|frame| {
            let to = u32::from_be_bytes([0, frame[BTH + 5], frame[BTH + 6], frame[BTH + 7]]);
            // SEND first and SEND only.
            matches!(frame[BTH], 0x00 | 0x04) && to == qpns[1 - host]
        });
        let first = first.expect("has sent");
        let psn = u32::from_be_bytes([0, first[BTH + 9], first[BTH + 10], first[BTH + 11]]);
        assert_eq!(Some(psn), said, "host {host}");
    }
    network.close();
}

/// HT-23: what was sent before the disconnection arrives, then both sides know, and nothing is left
/// after the time-wait.
#[test]
fn a_connection_ends_after_its_data() {
    for (seed, loss) in [(4, 0), (5, 100), (6, 300)] {
        let mut network = Network::new(seed, both());
        let (qpns, connections) = connect(&mut network);
        network.impairment.loss = loss;
        send_one(&mut network, qpns);
        network.hosts[0]
            .engine
            .disconnect(connections[0])
            .expect("legal");
        let send = network.hosts[0].send(2, 0, 1);
        assert!(network.hosts[0].engine.post_send(qpns[0], send).is_err());
        let gone = |event: &Event| matches!(event, Event::Disconnected { .. });
        let done = network.run(Span::from_secs(20), |network| {
            has(network, 0, gone) && has(network, 1, gone)
        });
        assert!(done, "seed {seed}");
        assert_eq!(network.hosts[0].completions[0].status, Status::Success);
        assert_eq!(network.hosts[1].completions[0].status, Status::Success);
        network.impairment.loss = 0;
        network.pass(Span::from_secs(5));
        for host in &network.hosts {
            assert_eq!(host.engine.connections(), 0, "seed {seed}");
        }
        network.close();
    }
}

/// HT-10: data says as much as an RTU that was lost (InfiniBand 12.9.8.4), in each life of a queue
/// pair.
#[test]
fn data_says_that_a_connection_stands() {
    let mut network = Network::new(8, both());
    network.hosts[1].engine.listen(PORT).expect("free");
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    for life in 0..3 {
        for host in &mut network.hosts {
            host.events.clear();
            host.completions.clear();
        }
        let peer = network.hosts[1].address;
        let engine = &mut network.hosts[0].engine;
        let asked = engine.connect(qpns[0], peer, PORT, &parameters(b""));
        let connection = asked.expect("legal");
        let mut accepted = false;
        let done = network.run(Span::from_millis(90), |network| {
            if let (false, Some((connection, _))) = (accepted, request(network, 1)) {
                let engine = &mut network.hosts[1].engine;
                let taken = engine.accept(connection, qpns[1], &parameters(b""));
                taken.expect("legal");
                // The RTU is lost.
                network.impairment.dead[0] = true;
                accepted = true;
            }
            established(network, 0).is_some()
        });
        assert!(done, "life {life}");
        network.impairment.dead[0] = false;
        assert!(established(&network, 1).is_none());
        send_one(&mut network, qpns);
        let told = network.run(Span::from_millis(20), |network| {
            established(network, 1).is_some()
        });
        assert!(told, "life {life}");
        let ended = network.hosts[0].engine.disconnect(connection);
        ended.expect("legal");
        network.pass(Span::from_secs(10));
        for (host, qpn) in network.hosts.iter_mut().zip(qpns) {
            for transition in [Transition::Reset, Transition::Init(PEERS)] {
                host.engine
                    .modify_queue_pair(qpn, &transition)
                    .expect("legal");
            }
        }
    }
    network.close();
}

/// HT-20: set-up survives a network that loses a third of everything, and repeats it.
#[test]
fn set_up_survives_loss() {
    for seed in 10..20 {
        let mut network = Network::new(seed, both());
        network.impairment = Impairment {
            loss: 300,
            duplication: 200,
            ..Impairment::default()
        };
        connect(&mut network);
        network.close();
    }
}

/// HT-10: refusals have their reasons: nobody listens, or the application says no.
#[test]
fn refusals_are_told() {
    let mut network = Network::new(7, both());
    let peer = network.hosts[1].address;
    let qpn = network.hosts[0].queue_pair();
    network.hosts[0]
        .engine
        .connect(qpn, peer, 99, &parameters(b""))
        .expect("legal");
    let refused = |reason| move |event: &Event| matches!(event, Event::Rejected { reason: is, .. } if *is == reason);
    assert!(network.run(Span::from_secs(1), |network| has(network, 0, refused(8))));

    network.hosts[1].engine.listen(PORT).expect("free");
    let second = network.hosts[0].queue_pair();
    network.hosts[0]
        .engine
        .connect(second, peer, PORT, &parameters(b""))
        .expect("legal");
    assert!(network.run(Span::from_secs(1), |network| request(network, 1).is_some()));
    let (connection, _) = request(&network, 1).expect("just seen");
    network.hosts[1]
        .engine
        .reject(connection, b"not you")
        .expect("legal");
    assert!(network.run(Span::from_secs(1), |network| has(network, 0, refused(28))));
    let told = has(&network, 0, |event| {
        matches!(event, Event::Rejected { reason: 28, private_data, .. }
            if private_data.bytes().starts_with(b"not you"))
    });
    assert!(told);
    for qpn in [qpn, second] {
        let stats = network.hosts[0].engine.queue_pair_statistics(qpn);
        assert_eq!(stats.expect("exists").state, State::Error);
    }
    network.pass(Span::from_secs(5));
    assert_eq!(network.hosts[0].engine.connections(), 0);
    assert_eq!(network.hosts[1].engine.connections(), 0);
    network.close();
}

/// HT-10: a peer that is not there, or to which there is no route, is told in bounded time.
#[test]
fn nobody_there() {
    for routed in [true, false] {
        let mut network = Network::new(8, both());
        network.impairment.dead = [false, true];
        network.hosts[0].routed = routed;
        let peer = network.hosts[1].address;
        let qpn = network.hosts[0].queue_pair();
        network.hosts[0]
            .engine
            .connect(qpn, peer, PORT, &parameters(b""))
            .expect("legal");
        let done = network.run(Span::from_secs(30), |network| {
            has(network, 0, |event| {
                matches!(event, Event::Unreachable { .. })
            })
        });
        assert!(done);
        assert!(
            routed
                || has(&network, 0, |event| matches!(
                    event,
                    Event::NeedRoute { .. }
                ))
        );
        assert_eq!(network.hosts[0].engine.connections(), 0);
        network.close();
    }
}

/// HT-23: a queue pair that is destroyed, or fails, takes its connection down on both sides.
#[test]
fn a_queue_pair_takes_its_connection_along() {
    let gone = |event: &Event| matches!(event, Event::Disconnected { .. });
    let mut network = Network::new(9, both());
    let (qpns, _) = connect(&mut network);
    network.hosts[0]
        .engine
        .destroy_queue_pair(qpns[0])
        .expect("exists");
    assert!(network.run(Span::from_secs(1), |network| has(network, 1, gone)));
    assert!(!has(&network, 0, gone), "who destroys it need not be told");
    let stats = network.hosts[1].engine.queue_pair_statistics(qpns[1]);
    assert_eq!(stats.expect("exists").state, State::Error);
    network.close();

    let mut network = Network::new(10, both());
    let (qpns, _) = connect(&mut network);
    // A message longer than its receive fails both queue pairs.
    network.hosts[1].receive_into(qpns[1], 1, 0, 10);
    let send = network.hosts[0].send(1, 0, 11);
    network.hosts[0]
        .engine
        .post_send(qpns[0], send)
        .expect("room");
    assert!(network.run(Span::from_secs(1), |network| {
        has(network, 0, gone) && has(network, 1, gone)
    }));
    network.close();
}

/// HT-10: a peer that began anew is not taken for its former self.
#[test]
fn a_peer_that_began_anew_connects_again() {
    let mut network = Network::new(11, both());
    connect(&mut network);
    let fresh = Network::new(1011, both());
    let [host, _] = fresh.hosts;
    let old = std::mem::replace(&mut network.hosts[0], host);
    network.hosts[1].events.clear();
    network.hosts[1].engine.unlisten(PORT);
    connect(&mut network);
    drop(old);
    network.close();
}

/// Messages of any content neither panic nor leave anything behind (HT-3).
#[test]
fn repeated_requests_are_one_request() {
    let mut network = Network::new(12, both());
    network.impairment.duplication = 1000;
    connect(&mut network);
    let requests = network.hosts[1]
        .events
        .iter()
        .filter(|event| matches!(event, Event::ConnectRequest { .. }))
        .count();
    assert_eq!(requests, 1);
    network.close();
}

/// HT-20: set-up takes a round trip and a half, not a time-out.
#[test]
fn set_up_is_quick() {
    let mut network = Network::new(13, both());
    let start = network.now;
    connect(&mut network);
    let took = network.now.since(start);
    assert!(took < Span::from_millis(1), "{took}");
    network.close();
}
