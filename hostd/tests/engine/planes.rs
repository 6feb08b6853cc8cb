//! Hosts with several ports, each of which leads through a plane of its own to the same port of the
//! other host (HT-37).

use crate::network::Network;
use common::time::{Span, Time};
use common::wire::Mac;
use common::wire::pause::Control;
use hostd::stats::PathStatistics;
use hostd::verbs::{
    ConnectionParameters, EngineConfig, Event, Granularity, MultipathConfig, PortId, Spraying,
    Status,
};

/// Bytes of a message.
const LEN: u32 = 1 << 20;

/// Messages of a stream.
const COUNT: u64 = 8;

/// What a port of 10 Gb/s carries of payload of 1024 bytes: per packet Ethernet 14, IPv4 20, UDP 8,
/// BTH 12, MPEH 8, its extension 8, ICRC 4, and 24 of framing.
const PAYLOAD_GBPS: f64 = 10.0 * 1024.0 / (1024.0 + 98.0);

fn network(ports: u8, spraying: Spraying) -> Network {
    let config = EngineConfig {
        ports,
        spraying,
        window: 512,
        pacer_burst: 16 * 1024,
        ..EngineConfig::default()
    };
    Network::new(u64::from(ports), [config.clone(), config])
}

/// Posts the messages of a stream from host 0 to host 1.
fn post(network: &mut Network, qpns: [u32; 2], count: u64) {
    for wr_id in 0..count {
        network.hosts[1].receive_into(qpns[1], wr_id, 0, LEN);
        let request = network.hosts[0].send(wr_id, 0, LEN);
        let engine = &mut network.hosts[0].engine;
        engine.post_send(qpns[0], request).expect("room");
    }
}

fn done(network: &Network, count: u64) -> bool {
    let completions = &network.hosts[0].completions;
    assert!(completions.iter().all(|it| it.status == Status::Success));
    completions.len() as u64 == count
}

/// Runs until `count` messages are sent; how long that took, in nanoseconds.
fn stream(network: &mut Network, count: u64, limit: Span) -> u64 {
    let begin = network.now;
    assert!(network.run(limit, |network| done(network, count)));
    network.now.since(begin).nanos()
}

/// HT-37, HT-60: two and four ports carry as much as all of them together, whatever sprays, and
/// each an equal share.
#[test]
fn throughput_is_the_sum_of_the_ports() {
    for ports in [1, 2, 4] {
        for spraying in [Spraying::Oblivious, Spraying::Bitmap, Spraying::Combined] {
            let mut network = network(ports, spraying);
            network.impairment.delay = Span::from_micros(2);
            let qpns = network.connected(Some(MultipathConfig::default()));
            network.turn();
            post(&mut network, qpns, COUNT);
            let nanos = stream(&mut network, COUNT, Span::from_millis(100));
            let gbps = f64::from(LEN) * 8.0 * COUNT as f64 / nanos as f64;
            let part = gbps / (PAYLOAD_GBPS * f64::from(ports));
            assert!((0.97..1.01).contains(&part), "{ports} {spraying:?}: {part}");
            let carried = &network.carried_by[..usize::from(ports)];
            let (least, most) = (carried.iter().min(), carried.iter().max());
            let (least, most) = (*least.expect("some"), *most.expect("some"));
            assert!(most - least < most / 50, "{carried:?}");
            let statistics = network.hosts[1].engine.statistics();
            let by_port: u64 = statistics.ports.iter().map(|port| port.rx_packets).sum();
            assert_eq!(by_port, statistics.rx_packets);
        }
    }
}

/// MG-5: what became of packets is counted by the port that they left through: the sums are those
/// of the sub-paths, packets on a dead plane are lost there and nowhere else, and marks count where
/// they were made. What counted stays when the queue pair ends.
#[test]
fn paths_are_counted_by_port() {
    let mut network = network(2, Spraying::Oblivious);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    let ports = |network: &Network| {
        let statistics = network.hosts[0].engine.statistics();
        [statistics.ports[0].paths, statistics.ports[1].paths]
    };
    network.impairment.marks = 500;
    post(&mut network, qpns, 4);
    stream(&mut network, 4, Span::from_millis(50));
    network.impairment.marks = 0;
    for port in ports(&network) {
        assert!(port.tx_packets > 100 && port.lost == 0, "{port:?}");
        assert!(port.tx_bytes > port.tx_packets * 1024, "{port:?}");
        assert!(port.acknowledged <= port.tx_packets, "{port:?}");
        assert!((1..port.acknowledged).contains(&port.marked), "{port:?}");
    }
    network.impairment.dead_planes[0] = true;
    network.hosts[0].completions.clear();
    post(&mut network, qpns, 4);
    stream(&mut network, 4, Span::from_millis(200));
    let [dead, alive] = ports(&network);
    assert!(dead.lost > 0 && alive.lost == 0, "{dead:?} {alive:?}");
    let engine = &mut network.hosts[0].engine;
    let paths = engine.path_statistics(qpns[0]);
    let sum = |of: fn(&PathStatistics) -> u64| paths.iter().map(of).sum::<u64>();
    assert_eq!(dead.tx_packets + alive.tx_packets, sum(|it| it.tx_packets));
    assert_eq!(
        dead.acknowledged + alive.acknowledged,
        sum(|it| it.acknowledged)
    );
    assert_eq!(dead.lost + alive.lost, sum(|it| it.lost));
    engine.destroy_queue_pair(qpns[0]).expect("it is there");
    assert_eq!(ports(&network), [dead, alive]);
}

/// The longest time without a packet of data that came, while a stream of `count` messages ends.
fn longest_stall(network: &mut Network, count: u64) -> Span {
    let mut longest = Span::ZERO;
    let (mut seen, mut since) = (0, network.now);
    let ended = network.run(Span::from_millis(200), |network| {
        let now = network.hosts[1].engine.statistics().delivered;
        if now != seen {
            longest = longest.max(network.now.since(since));
            (seen, since) = (now, network.now);
        }
        done(network, count)
    });
    assert!(ended, "the stream ends");
    longest
}

/// HT-37, HT-24: a plane dies somewhere in the network, where no host sees it, and comes back: the
/// stream never stands longer than three round trips and a time-out, nothing is lost, packets keep
/// away from the plane meanwhile, and use it again afterwards.
#[test]
fn a_plane_fails_and_returns() {
    for spraying in [Spraying::Oblivious, Spraying::Combined] {
        let mut network = network(2, spraying);
        let qpns = network.connected(Some(MultipathConfig::default()));
        let sent = network.fill(0);
        network.turn();
        post(&mut network, qpns, 32);
        network.pass(Span::from_millis(2));
        network.impairment.dead_planes[0] = true;
        network.carried_by = [0; 4];
        let begin = network.now;
        let mut longest = Span::ZERO;
        let (mut seen, mut since) = (0, network.now);
        network.run(Span::from_millis(5), |network| {
            let now = network.hosts[1].engine.statistics().delivered;
            if now != seen {
                longest = longest.max(network.now.since(since));
                (seen, since) = (now, network.now);
            }
            false
        });
        let [dead, alive, ..] = network.carried_by;
        assert!(dead < alive / 5, "{spraying:?}: {dead} of {alive}");
        network.impairment.dead_planes[0] = false;
        longest = longest.max(longest_stall(&mut network, 32));
        // A round trip is 40 µs, and the time-out 10 ms at least.
        assert!(longest < Span::from_millis(10), "{spraying:?}: {longest:?}");
        assert!(network.now.since(begin) < Span::from_millis(60));
        let received = network.hosts[1].memory.to_vec();
        assert!(received[..LEN as usize] == sent[..LEN as usize]);
        // Longer than a broken plane is left alone at first.
        network.pass(Span::from_millis(150));
        network.carried_by = [0; 4];
        network.hosts[0].completions.clear();
        post(&mut network, qpns, 4);
        stream(&mut network, 4, Span::from_millis(50));
        let [back, other, ..] = network.carried_by;
        assert!(back > other / 2, "{spraying:?}: {back} of {other}");
    }
}

/// HT-37: a port whose link goes down gets no packet from then on, and its share when it is up
/// again; queue pairs of a single path move, too.
#[test]
fn a_link_that_is_down_is_out_of_the_list_at_once() {
    let single = MultipathConfig {
        paths: 1,
        ..MultipathConfig::default()
    };
    let flow = MultipathConfig {
        granularity: Granularity::Flow,
        ..MultipathConfig::default()
    };
    for agreed in [
        Some(MultipathConfig::default()),
        Some(single),
        Some(flow),
        None,
    ] {
        let mut network = network(2, Spraying::Combined);
        let pairs: Vec<_> = (0..8).map(|_| network.connected(agreed)).collect();
        network.turn();
        pairs.iter().for_each(|qpns| post(&mut network, *qpns, 4));
        network.pass(Span::from_micros(500));
        assert!(network.carried_by[..2].iter().all(|sent| *sent > 0));
        let dead = PortId::new(0);
        for host in &mut network.hosts {
            host.engine.set_link_up(dead, false);
        }
        network.impairment.dead_planes[0] = true;
        network.carried_by = [0; 4];
        let nanos = stream(&mut network, 32, Span::from_millis(400));
        assert_eq!(network.carried_by[0], 0, "{agreed:?}");
        let gbps = f64::from(LEN) * 8.0 * 28.0 / nanos as f64;
        assert!(gbps > 0.8 * PAYLOAD_GBPS, "{agreed:?}: {gbps}");
        network.impairment.dead_planes[0] = false;
        for host in &mut network.hosts {
            host.engine.set_link_up(dead, true);
        }
        network.hosts[0].completions.clear();
        pairs.iter().for_each(|qpns| post(&mut network, *qpns, 4));
        stream(&mut network, 32, Span::from_millis(400));
        let [one, other, ..] = network.carried_by;
        assert!(one > 0 && other > one / 4, "{agreed:?}: {one} {other}");
    }
}

/// HT-37, HT-45: while the switch pauses one plane, the other goes on at its full speed, and the
/// time is not counted as a loss; acknowledgements leave through the port that may send.
#[test]
fn a_paused_plane_stops_no_other() {
    let mut network = network(2, Spraying::Combined);
    network.impairment.delay = Span::from_micros(2);
    let qpns = network.connected(Some(MultipathConfig::default()));
    network.turn();
    post(&mut network, qpns, COUNT);
    network.pass(Span::from_micros(500));
    let pause = Control::Pfc([Some(u16::MAX); 8]).emit(Mac([2, 0, 0, 0, 0, 2]));
    let delivered = |network: &Network| network.hosts[1].engine.statistics().delivered;
    let before = delivered(&network);
    let begin = network.now;
    network.carried_by = [0; 4];
    for _ in 0..2 {
        for host in 0..2 {
            network.inject_through(host, PortId::new(1), &pause);
        }
        network.pass(Span::from_millis(1));
    }
    let nanos = network.now.since(begin).nanos() as f64;
    let gbps = (delivered(&network) - before) as f64 * 1024.0 * 8.0 / nanos;
    assert!(gbps > 0.97 * PAYLOAD_GBPS, "{gbps}");
    assert_eq!(network.carried_by[1], 0);
    let statistics = network.hosts[0].engine.statistics();
    assert_eq!(statistics.ports[1].pauses.pfc, 2);
    assert_eq!(statistics.ports[0].pauses.pfc, 0);
    stream(&mut network, COUNT, Span::from_millis(100));
    let counters = network.hosts[0].engine.statistics().transport;
    assert_eq!((counters.timeouts, counters.retransmits), (0, 0));
    assert!(network.carried_by[1] > 0);
}

/// HT-37: connections are made though one of the planes is dead, and leave addresses and routes for
/// each port.
#[test]
fn connections_are_made_over_the_plane_that_works() {
    let mut network = network(2, Spraying::Combined);
    network.impairment.dead_planes[0] = true;
    network.hosts[1].engine.listen(7).expect("free");
    let [client, server] = [0, 1].map(|host| network.hosts[host].queue_pair());
    let peer = network.hosts[1].address;
    let parameters = ConnectionParameters::default();
    let engine = &mut network.hosts[0].engine;
    engine.connect(client, peer, 7, &parameters).expect("legal");
    let established = network.run(Span::from_secs(3), |network| {
        let host = &mut network.hosts[1];
        for event in std::mem::take(&mut host.events) {
            if let Event::ConnectRequest { connection, .. } = event {
                let accepted = host.engine.accept(connection, server, &parameters);
                accepted.expect("legal");
            }
        }
        let events = &network.hosts[0].events;
        events
            .iter()
            .any(|event| matches!(event, Event::Established { .. }))
    });
    assert!(established);
    assert!(network.now > Time::ZERO);
    post(&mut network, [client, server], 2);
    stream(&mut network, 2, Span::from_millis(500));
}
