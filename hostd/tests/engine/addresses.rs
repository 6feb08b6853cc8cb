//! Hosts with several addresses: each connection keeps to the one that it began with.

use crate::connection::{PORT, both, config, established, has, parameters, request};
use crate::network::{Host, Network};
use common::time::Span;
use hostd::verbs::{
    Direction, EngineConfig, EngineError, Event, MultipathConfig, ReadyToReceive, ReadyToSend,
    Route, Status,
};
use std::net::IpAddr;

/// Another address of the host that has `address`.
fn second(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from(u32::from(v4).wrapping_add(100).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from(u128::from(v6).wrapping_add(100).to_be_bytes()),
    }
}

/// Source and destination of a frame.
fn addresses(frame: &[u8]) -> [IpAddr; 2] {
    if frame[12] == 0x08 {
        let at = |from: usize| IpAddr::from(*frame[from..].first_chunk::<4>().expect("long"));
        [at(26), at(30)]
    } else {
        let at = |from: usize| IpAddr::from(*frame[from..].first_chunk::<16>().expect("long"));
        [at(22), at(38)]
    }
}

/// Connects host 0, bound to `local` if given, to `peer`; who listens accepts.
fn connect(network: &mut Network, local: Option<IpAddr>, peer: IpAddr) -> Option<[u32; 2]> {
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    let engine = &mut network.hosts[0].engine;
    if let Some(local) = local {
        engine.bind(qpns[0], local).expect("in INIT");
    }
    engine
        .connect(qpns[0], peer, PORT, &parameters(b"hello"))
        .expect("legal");
    let mut accepted = false;
    network.run(Span::from_secs(20), |network| {
        if let (false, Some((connection, _))) = (accepted, request(network, 1)) {
            let engine = &mut network.hosts[1].engine;
            engine
                .accept(connection, qpns[1], &parameters(b""))
                .expect("legal");
            accepted = true;
        }
        let over = |event: &Event| matches!(event, Event::Rejected { .. });
        (0..2).all(|host| established(network, host).is_some()) || has(network, 0, over)
    });
    established(network, 0).map(|_| qpns)
}

/// Sends a message from each host to the other.
fn talk(network: &mut Network, qpns: [u32; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        let bytes = network.fill(from);
        let receiver: &mut Host = &mut network.hosts[to];
        receiver.receive_into(qpns[to], 7, 0, 20_000);
        let send = network.hosts[from].send(8, 0, 20_000);
        let engine = &mut network.hosts[from].engine;
        engine.post_send(qpns[from], send).expect("room");
        let arrived = network.run(Span::from_secs(20), |network| {
            let done = |it: &hostd::verbs::Completion| it.wr_id == 7;
            network.hosts[to].completions.iter().any(done)
        });
        assert!(arrived, "{:?}", network.hosts[from].completions);
        network.hosts[to].completions.clear();
        let mut found = vec![0; 20_000];
        use hostd::memory::RegionMemory;
        assert!(network.hosts[to].memory.copy_out(0, &mut found));
        assert!(found == bytes[..20_000]);
    }
}

/// HT-1, HT-10: a connection begins and ends at the addresses that the active side chose, from the
/// REQ to the last packet, over IPv4 and IPv6, plain and with multipath, whatever source the routes
/// of both hosts name, and also when they name another one later.
#[test]
fn a_connection_keeps_to_its_addresses() {
    for (v6, plain) in [(false, false), (false, true), (true, false)] {
        let configs: [EngineConfig; 2] = match plain {
            true => [config(None), config(None)],
            false => both(),
        };
        let mut network = Network::over(5, configs, v6);
        let chosen = [0, 1].map(|host: usize| second(network.hosts[host].address));
        network.hosts[1].engine.listen(PORT).expect("free");
        network.tap = Some(Vec::new());
        let qpns = connect(&mut network, Some(chosen[0]), chosen[1]).expect("it stands");
        talk(&mut network, qpns);
        for (host, peer) in [(0, chosen[1]), (1, chosen[0])] {
            let route = network.hosts[host].route();
            let source = second(second(route.source));
            let engine = &mut network.hosts[host].engine;
            let moved = Route { source, ..route };
            engine.set_route(peer, moved).expect("legal");
            let pair = engine.queue_pair_statistics(qpns[host]).expect("there");
            assert_eq!((pair.local, pair.remote), (Some(chosen[host]), Some(peer)));
        }
        talk(&mut network, qpns);
        let tap = network.tap.take().expect("set above");
        assert!(tap.len() > 40);
        for frame in tap {
            let mut ends = addresses(&frame);
            ends.sort_unstable();
            assert_eq!(ends, chosen, "v6: {v6}, plain: {plain}");
        }
        network.close();
    }
}

/// HT-10: who listens at one address is not there at the others (REJ 8), and families do not mix.
#[test]
fn listeners_at_one_address_are_nowhere_else() {
    for (own, stands) in [(true, true), (false, false)] {
        let mut network = Network::new(6, both());
        let address = network.hosts[1].address;
        let at = if own { second(address) } else { address };
        network.hosts[1].engine.listen_at(PORT, at).expect("free");
        let again = network.hosts[1].engine.listen_at(PORT, address);
        assert_eq!(again, Err(EngineError::Busy));
        let met = connect(&mut network, None, second(address));
        assert_eq!(met.is_some(), stands);
        let refused = |event: &Event| matches!(event, Event::Rejected { reason: 8, .. });
        assert_eq!(has(&network, 0, refused), !stands);
        network.close();
    }
    let mut network = Network::new(7, both());
    let qpn = network.hosts[0].queue_pair();
    let peer = network.hosts[1].address;
    let v6 = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let engine = &mut network.hosts[0].engine;
    engine.bind(qpn, v6).expect("in INIT");
    let mixed = engine.connect(qpn, peer, PORT, &parameters(b""));
    assert_eq!(mixed, Err(EngineError::Argument));
    assert_eq!(engine.bind(qpn + 1, v6), Err(EngineError::Unknown));
    network.close();
}

/// HT-10: a queue pair that is set up by hand sends from the address that its peer was told.
#[test]
fn by_hand_packets_leave_from_the_address_that_was_told() {
    let mut network = Network::new(8, [config(None), config(None)]);
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    let chosen = [0, 1].map(|host: usize| second(network.hosts[host].address));
    network.tap = Some(Vec::new());
    for (own, other) in [(0, 1), (1, 0)] {
        let route = network.hosts[own].route();
        let receive = ReadyToReceive {
            destination: chosen[other],
            destination_qpn: qpns[other],
            rq_psn: 9,
            path_mtu: 1024,
            min_rnr_timer: 12,
            multipath: None,
            max_dest_rd_atomic: 1,
        };
        let send = ReadyToSend {
            sq_psn: 9,
            timeout: 12,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        };
        let engine = &mut network.hosts[own].engine;
        engine.set_route(chosen[other], route).expect("legal");
        engine
            .connect_by_hand(qpns[own], chosen[own], &receive, &send)
            .expect("possible");
    }
    talk(&mut network, qpns);
    for frame in network.tap.take().expect("set above") {
        let mut ends = addresses(&frame);
        ends.sort_unstable();
        assert_eq!(ends, chosen);
    }
    network.close();
}

/// HT-1: packets that leave from an address with a way of its own take that, from the first
/// connection message on, on the side that connects and on the one that answers; others, and all
/// once it has none any more, take the usual one.
#[test]
fn an_address_with_a_way_of_its_own() {
    const OTHER: [u8; 6] = [2, 0, 0, 0, 9, 9];
    let from = |destination, own| Direction {
        destination,
        source: Some(own),
    };
    let mut network = Network::new(9, both());
    let own = [0, 1].map(|host: usize| network.hosts[host].address);
    let chosen = own.map(second);
    network.hosts[1].engine.listen(PORT).expect("free");
    for (host, peer) in [(0, chosen[1]), (1, chosen[0])] {
        let usual = network.hosts[host].route();
        let route = Route {
            source: chosen[host],
            destination_mac: OTHER,
            ..usual
        };
        let engine = &mut network.hosts[host].engine;
        engine.set_route(peer, usual).expect("legal");
        engine
            .set_route(from(peer, chosen[host]), route)
            .expect("legal");
        let mixed = engine.set_route(from(peer, IpAddr::from([0; 16])), route);
        assert_eq!(mixed, Err(EngineError::Argument));
    }
    let other_way = |network: &mut Network| {
        let tap = network.tap.replace(Vec::new()).expect("set below");
        assert!(tap.len() > 12);
        let count = |to: bool| tap.iter().filter(|it| (it[..6] == OTHER) == to).count();
        (count(true) > 0, count(false) > 0)
    };
    network.tap = Some(Vec::new());
    let qpns = connect(&mut network, Some(chosen[0]), chosen[1]).expect("it stands");
    talk(&mut network, qpns);
    assert_eq!(other_way(&mut network), (true, false));
    for (host, peer) in [(0, chosen[1]), (1, chosen[0])] {
        let engine = &mut network.hosts[host].engine;
        engine
            .set_routes(from(peer, chosen[host]), &[])
            .expect("legal");
    }
    talk(&mut network, qpns);
    assert_eq!(other_way(&mut network), (false, true));
    network.close();
}

/// Takes the ways from a host to the other one.
fn close_ways(network: &mut Network, host: usize) {
    let peer = network.hosts[1 - host].address;
    network.hosts[host].routed = false;
    network.hosts[host].events.clear();
    let closed = network.hosts[host].engine.set_routes(peer, &[]);
    closed.expect("legal");
}

/// HT-24, HT-37: while the kernel has no route to a peer, or one that forbids it, nothing leaves,
/// and the route is asked for; what waited is delivered when there is one again.
#[test]
fn nothing_leaves_without_a_way() {
    for multipath in [None, Some(MultipathConfig::default())] {
        let mut network = Network::new(11, [config(multipath), config(multipath)]);
        let qpns = network.connected(multipath);
        talk(&mut network, qpns);
        let done = network.hosts[1].completions.len();
        close_ways(&mut network, 0);
        network.tap = Some(Vec::new());
        network.hosts[1].receive_into(qpns[1], 5, 0, 100);
        let send = network.hosts[0].send(5, 0, 100);
        let posted = network.hosts[0].engine.post_send(qpns[0], send);
        posted.expect("connected");
        network.pass(Span::from_secs(1));
        let tap = network.tap.take().expect("set above");
        let own = network.hosts[0].address;
        assert!(tap.iter().all(|frame| addresses(frame)[0] != own));
        assert!(has(&network, 0, |event| matches!(
            event,
            Event::NeedRoute { .. }
        )));
        let (peer, route) = (network.hosts[1].address, network.hosts[0].route());
        let opened = network.hosts[0].engine.set_route(peer, route);
        opened.expect("legal");
        assert!(network.run(Span::from_secs(2), |network| {
            network.hosts[1].completions.len() == done + 1
        }));
        network.close();
    }
}

/// HT-24: a peer to which no way leads any more counts as gone in time: by the clock of what is in
/// flight, and on an idle connection by that of keep-alive, as if its network swallowed all.
#[test]
fn a_peer_without_a_way_counts_as_gone() {
    for in_flight in [false, true] {
        let mut network = Network::new(12, both());
        let qpns = network.connected(None);
        talk(&mut network, qpns);
        if in_flight {
            network.hosts[1].receive_into(qpns[1], 5, 0, 100);
            network.impairment.dead = [false, true];
            let send = network.hosts[0].send(5, 0, 100);
            let posted = network.hosts[0].engine.post_send(qpns[0], send);
            posted.expect("connected");
            network.turn();
        }
        close_ways(&mut network, 0);
        let failed = |event: &Event| {
            matches!(
                event,
                Event::QueuePairFailed {
                    status: Status::RetryExceeded,
                    ..
                }
            )
        };
        assert!(
            network.run(Span::from_secs(60), |network| has(network, 0, failed)),
            "in flight: {in_flight}"
        );
        network.close();
    }
}
