//! Partitions (HT-1, InfiniBand 10.9): queue pairs in one of several, by connection management and
//! by hand, and packets of others.

use crate::connection::{PORT, both, config, established, has, parameters, request};
use crate::network::Network;
use common::time::Span;
use common::wire::roce::frame::seal;
use hostd::verbs::{
    DropReason, EngineConfig, EngineError, Event, Partitions, ReadyToReceive, ReadyToSend,
};

/// Where the BTH has its partition key, behind Ethernet, IPv4 and UDP.
const KEY: usize = 14 + 20 + 8 + 2;

/// Configurations with these tables.
fn tables([first, second]: [&[u16]; 2], plain: bool) -> [EngineConfig; 2] {
    let mut configs = if plain {
        [config(None), config(None)]
    } else {
        both()
    };
    for (config, keys) in configs.iter_mut().zip([first, second]) {
        config.partitions = Partitions::new(keys).expect("a table");
    }
    configs
}

/// Connects host 0, in the partition at `index`; whether it stands.
fn connect(network: &mut Network, index: u16) -> Option<[u32; 2]> {
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    network.hosts[1].engine.listen(PORT).expect("free");
    let peer = network.hosts[1].address;
    let engine = &mut network.hosts[0].engine;
    engine.choose_partition(qpns[0], index).expect("in INIT");
    let asked = engine.connect(qpns[0], peer, PORT, &parameters(b""));
    asked.expect("legal");
    let mut accepted = false;
    network.run(Span::from_secs(20), |network| {
        if let (false, Some((connection, _))) = (accepted, request(network, 1)) {
            let engine = &mut network.hosts[1].engine;
            let answer = engine.accept(connection, qpns[1], &parameters(b""));
            answer.expect("legal");
            accepted = true;
        }
        let over =
            |event: &Event| matches!(event, Event::Rejected { .. } | Event::Unreachable { .. });
        (0..2).all(|host| established(network, host).is_some()) || has(network, 0, over)
    });
    established(network, 0).map(|_| qpns)
}

/// Sends from host 0 to host 1; whether it arrived.
fn send(network: &mut Network, qpns: [u32; 2], wr_id: u64) -> bool {
    network.hosts[1].receive_into(qpns[1], wr_id, 0, 20_000);
    let send = network.hosts[0].send(wr_id, 0, 20_000);
    let engine = &mut network.hosts[0].engine;
    engine.post_send(qpns[0], send).expect("room");
    network.run(Span::from_secs(2), |network| {
        let arrived = |host: usize| {
            let of = network.hosts[host].completions.iter();
            of.filter(|it| it.wr_id == wr_id).count()
        };
        arrived(0) == 1 && arrived(1) == 1
    })
}

/// Sets the key of a frame.
fn with_key(frame: &[u8], key: u16) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    bytes[KEY..KEY + 2].copy_from_slice(&key.to_be_bytes());
    seal(&mut bytes).expect("a frame");
    bytes
}

fn wrong(network: &Network, host: usize) -> u64 {
    let statistics = network.hosts[host].engine.statistics();
    statistics.drops.get(DropReason::WrongPartition)
}

/// HT-1, HT-10: a connection is in the partition that the active side chose, from the REQ to the
/// last packet: each side's packets carry its own key, with its own membership. Packets with
/// another key, though it is in the table, or with a limited member's at a limited member, are
/// dropped and counted, and harm nothing.
#[test]
fn a_connection_is_in_the_partition_that_was_chosen() {
    for plain in [false, true] {
        let configs = tables([&[0xffff, 0x8005], &[0x8009, 0x0005, 0xffff]], plain);
        let mut network = Network::new(31, configs);
        network.tap = Some(Vec::new());
        let qpns = connect(&mut network, 1).expect("it stands");
        assert!(send(&mut network, qpns, 1));
        let tap = network.tap.replace(Vec::new()).expect("set above");
        assert!(tap.len() > 12);
        let first = network.hosts[0].address;
        for frame in &tap {
            let key = u16::from_be_bytes([frame[KEY], frame[KEY + 1]]);
            let from_first =
                first == std::net::IpAddr::from(*frame[26..].first_chunk::<4>().expect("long"));
            assert_eq!(key, if from_first { 0x8005 } else { 0x0005 });
        }
        // What was sent to queue pairs, in other partitions.
        let data = tap
            .iter()
            .filter(|frame| frame[42] != 0x64 && frame[26 + 3] == 1);
        let mut count = 0;
        for frame in data {
            for key in [0xffff, 0x8009, 0x0005, 0x8006] {
                network.inject(1, &with_key(frame, key));
                count += 1;
                assert_eq!(wrong(&network, 1), count, "{key:#06x}");
            }
        }
        assert!(count > 12);
        assert!(send(&mut network, qpns, 2));
        network.close();
    }
}

/// HT-1: two limited members of a partition do not hear each other, and who asks for a partition
/// that the other side is not in is refused, though its messages are heard in another one.
#[test]
fn who_is_in_another_partition_is_not_connected() {
    let configs = tables([&[0xffff, 0x0005], &[0xffff, 0x0005]], false);
    let mut network = Network::new(32, configs);
    assert_eq!(connect(&mut network, 1), None);
    assert!(has(&network, 0, |event| matches!(
        event,
        Event::Unreachable { .. }
    )));
    assert!(wrong(&network, 1) > 0);
    network.close();

    let configs = tables([&[0xffff, 0x8006], &[0xffff, 0x8005]], false);
    let mut network = Network::new(33, configs);
    let qpn = network.hosts[0].queue_pair();
    let engine = &mut network.hosts[0].engine;
    assert_eq!(engine.choose_partition(qpn, 2), Err(EngineError::Argument));
    assert_eq!(
        engine.choose_partition(qpn + 1, 1),
        Err(EngineError::Unknown)
    );
    assert_eq!(connect(&mut network, 1), None);
    assert!(wrong(&network, 1) > 0);
    network.close();
}

/// HT-1: queue pairs that are set up by hand are in the partitions that were chosen for them: those
/// of one hear each other, those of two do not.
#[test]
fn by_hand_in_a_partition() {
    for (index, arrives) in [(0, false), (1, true)] {
        let configs = tables([&[0xffff, 0x0005], &[0xffff, 0x8005]], true);
        let mut network = Network::new(34, configs);
        let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
        for (own, other, index) in [(0, 1, index), (1, 0, 1)] {
            let peer = network.hosts[other].address;
            let host = &mut network.hosts[own];
            let (local, route) = (host.address, host.route());
            host.engine.set_route(peer, route).expect("legal");
            host.engine
                .choose_partition(qpns[own], index)
                .expect("in INIT");
            let receive = ReadyToReceive {
                destination: peer,
                destination_qpn: qpns[other],
                rq_psn: 7,
                path_mtu: 1024,
                min_rnr_timer: 12,
                max_dest_rd_atomic: 1,
                multipath: None,
            };
            let send = ReadyToSend {
                sq_psn: 7,
                timeout: 14,
                retry_count: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
            };
            let readied = host
                .engine
                .connect_by_hand(qpns[own], local, &receive, &send);
            readied.expect("legal");
            let late = host.engine.choose_partition(qpns[own], 0);
            assert_eq!(late, Err(EngineError::State));
        }
        assert_eq!(send(&mut network, qpns, 1), arrives);
        assert_eq!(wrong(&network, 1) > 0, !arrives);
        network.close();
    }
}
