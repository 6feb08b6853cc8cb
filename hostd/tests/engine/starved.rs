//! Packets that came early and then find no receive, and requests whose memory goes away: who asks
//! again, who waits, and who is told what.

use crate::network::{Network, PEERS};
use common::time::Span;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, DropReason, EngineConfig, MultipathConfig, ReadyToSend, RegionKeys, SendOpcode,
    SendRequest, State, Status,
};

/// Silence ends a connection after 134 ms.
const IMPATIENT: ReadyToSend = ReadyToSend {
    sq_psn: 0xff_fffe,
    timeout: 12,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

fn network(seed: u64) -> Network {
    Network::new(seed, [EngineConfig::default(), EngineConfig::default()])
}

fn modes() -> [Option<MultipathConfig>; 2] {
    [Some(MultipathConfig::default()), None]
}

fn post(network: &mut Network, qpn: u32, request: SendRequest) {
    let engine = &mut network.hosts[0].engine;
    engine.post_send(qpn, request).expect("room");
}

/// Posts SENDs of a byte each, numbered from zero.
fn post_sends(network: &mut Network, qpn: u32, count: u64) {
    for wr_id in 0..count {
        let send = network.hosts[0].send(wr_id, wr_id, 1);
        post(network, qpn, send);
    }
}

fn read(network: &Network, wr_id: u64, lkey: u32, len: u32) -> SendRequest {
    SendRequest {
        opcode: SendOpcode::RdmaRead,
        lkey,
        rkey: network.hosts[1].keys.rkey,
        ..network.hosts[0].send(wr_id, 0, len)
    }
}

fn statuses(network: &Network, host: usize) -> Vec<(u64, Status)> {
    let completions = network.hosts[host].completions.iter();
    completions.map(|it| (it.wr_id, it.status)).collect()
}

fn state(network: &Network, host: usize, qpn: u32) -> State {
    let statistics = network.hosts[host].engine.queue_pair_statistics(qpn);
    statistics.expect("exists").state
}

/// A second region of host 0, which can go away.
fn second_region(network: &mut Network) -> RegionKeys {
    let host = &mut network.hosts[0];
    let memory = HeapMemory::new(vec![0; 1 << 20]);
    let rights = Access::LOCAL_WRITE | PEERS;
    let keys = host.engine.register(host.domain, memory, 0, rights);
    keys.expect("room")
}

/// HT-1, HT-40: SENDs that came early and wait for receives are asked for as long as the sender has
/// patience with a peer that is not ready: for ever, if it never gives up. Each receive takes the
/// next one.
#[test]
fn early_sends_wait_for_receives() {
    for multipath in modes() {
        let mut network = network(1);
        let qpns = network.connected_with(multipath, IMPATIENT);
        post_sends(&mut network, qpns[0], 6);
        for wr_id in 0..6 {
            network.pass(Span::from_millis(400));
            for (host, qpn) in (0..).zip(qpns) {
                assert_eq!(state(&network, host, qpn), State::ReadyToSend);
            }
            network.hosts[1].receive_into(qpns[1], wr_id, wr_id, 1);
            network.pass(Span::from_millis(30));
            let done: Vec<_> = (0..=wr_id).map(|it| (it, Status::Success)).collect();
            assert_eq!(statuses(&network, 1), done);
            assert_eq!(statuses(&network, 0), done);
        }
        network.close();
    }
}

/// HT-1: a sender with little patience gives up for that reason, also if the packet came early.
#[test]
fn early_sends_are_given_up_for_want_of_a_receive() {
    let mut network = network(2);
    let impatient = ReadyToSend {
        rnr_retry: 3,
        ..IMPATIENT
    };
    let qpns = network.connected_with(Some(MultipathConfig::default()), impatient);
    post_sends(&mut network, qpns[0], 3);
    network.pass(Span::from_micros(200));
    network.hosts[1].receive_into(qpns[1], 0, 0, 1);
    network.pass(Span::from_millis(60));
    let exceeded = Status::RnrRetryExceeded;
    let expected = [
        (0, Status::Success),
        (1, exceeded),
        (2, Status::WorkRequestFlushed),
    ];
    assert_eq!(statuses(&network, 0), expected);
    network.close();
}

/// HT-43: the acknowledgement of a SEND that had waited for its receive may be lost like any other.
#[test]
fn an_acknowledgement_after_a_wait_may_be_lost() {
    let mut network = network(3);
    let qpns = network.connected_with(Some(MultipathConfig::default()), IMPATIENT);
    // The first one came in its turn, the others early.
    post_sends(&mut network, qpns[0], 3);
    for wr_id in 0..2 {
        network.pass(Span::from_millis(20));
        network.hosts[1].receive_into(qpns[1], wr_id, 0, 1);
    }
    network.pass(Span::from_millis(20));
    network.impairment.dead[1] = true;
    network.hosts[1].receive_into(qpns[1], 2, 0, 1);
    network.pass(Span::from_millis(1));
    assert_eq!(statuses(&network, 1).len(), 3);
    network.impairment.dead[1] = false;
    network.pass(Span::from_millis(100));
    let done = [0, 1, 2].map(|it| (it, Status::Success));
    assert_eq!(statuses(&network, 0), done);
    network.close();
}

/// HT-1: a READ behind a SEND that waits for a receive waits with it: nobody can have answered it.
#[test]
fn a_read_waits_with_the_send_before_it() {
    for multipath in modes() {
        let mut network = network(4);
        let qpns = network.connected_with(multipath, IMPATIENT);
        post_sends(&mut network, qpns[0], 1);
        let lkey = network.hosts[0].keys.lkey;
        let behind = read(&network, 1, lkey, 5_000);
        post(&mut network, qpns[0], behind);
        network.pass(Span::from_secs(1));
        assert_eq!(state(&network, 0, qpns[0]), State::ReadyToSend);
        network.hosts[1].receive_into(qpns[1], 0, 0, 1);
        network.pass(Span::from_millis(30));
        let done = [0, 1].map(|it| (it, Status::Success));
        assert_eq!(statuses(&network, 0), done);
        network.close();
    }
}

/// HT-1: memory that goes away fails the request that needs it, and not one before it that is on
/// its way.
#[test]
fn the_request_whose_memory_is_gone_is_blamed() {
    for multipath in modes() {
        let mut network = network(5);
        let qpns = network.connected_with(multipath, IMPATIENT);
        let second = second_region(&mut network);
        let rkey = network.hosts[1].keys.rkey;
        for (wr_id, lkey, len) in [
            (0, network.hosts[0].keys.lkey, 60_000),
            (1, second.lkey, 1 << 20),
            (2, network.hosts[0].keys.lkey, 1),
        ] {
            let write = SendRequest {
                opcode: SendOpcode::RdmaWrite,
                lkey,
                rkey,
                ..network.hosts[0].send(wr_id, 0, len)
            };
            post(&mut network, qpns[0], write);
        }
        // Some of the second WRITE has left, and nothing of the first one is acknowledged.
        network.impairment.dead[1] = true;
        network.pass(Span::from_micros(60));
        assert!(network.hosts[0].completions.is_empty());
        let gone = network.hosts[0].engine.deregister(second.lkey);
        gone.expect("exists");
        network.pass(Span::from_micros(200));
        network.impairment.dead[1] = false;
        network.pass(Span::from_millis(50));
        let expected = [
            (0, Status::Success),
            (1, Status::LocalProtection),
            (2, Status::WorkRequestFlushed),
        ];
        assert_eq!(statuses(&network, 0), expected);
        network.close();
    }
}

/// HT-1, HT-43: what a READ brings for memory that is gone fails it alone: the answers to the one
/// before it are asked for again if they are lost.
#[test]
fn a_read_whose_memory_is_gone_leaves_the_one_before_it_alone() {
    for (seed, multipath) in (6..).zip(modes()) {
        let mut network = network(seed);
        let qpns = network.connected_with(multipath, IMPATIENT);
        let second = second_region(&mut network);
        let first = network.hosts[0].keys.lkey;
        for (wr_id, lkey) in [(0, first), (1, second.lkey)] {
            let read = read(&network, wr_id, lkey, 20_000);
            post(&mut network, qpns[0], read);
        }
        // The questions arrive; of the answers each third is lost.
        network.pass(Span::from_micros(15));
        network.impairment.loss = 300;
        let gone = network.hosts[0].engine.deregister(second.lkey);
        gone.expect("exists");
        network.pass(Span::from_millis(100));
        let expected = [(0, Status::Success), (1, Status::LocalProtection)];
        assert_eq!(statuses(&network, 0), expected);
        network.close();
    }
}

/// HT-1: a SEND that waited for a receive, and is longer than that, gives its frame back.
#[test]
fn a_refused_send_that_waited_leaves_nothing_behind() {
    let mut network = network(9);
    let qpns = network.connected_with(Some(MultipathConfig::default()), IMPATIENT);
    let send = network.hosts[0].send(0, 0, 100);
    post(&mut network, qpns[0], send);
    network.pass(Span::from_millis(1));
    assert_eq!(network.hosts[1].engine.held_packets(), 1);
    network.hosts[1].receive_into(qpns[1], 0, 0, 10);
    network.pass(Span::from_millis(10));
    assert_eq!(state(&network, 1, qpns[1]), State::Error);
    assert_eq!(network.hosts[1].engine.held_packets(), 0);
    network.close();
}

/// HT-1: a hundred SENDs that wait for receives, one after the other, all arrive, and none is
/// dropped.
#[test]
fn who_waits_for_a_receive_loses_nothing() {
    let mut network = network(8);
    let qpns = network.connected_with(Some(MultipathConfig::default()), IMPATIENT);
    post_sends(&mut network, qpns[0], 100);
    for wr_id in 0..100 {
        network.pass(Span::from_millis(2));
        network.hosts[1].receive_into(qpns[1], wr_id, wr_id, 1);
    }
    network.pass(Span::from_millis(50));
    assert_eq!(statuses(&network, 0).len(), 100);
    let drops = &network.hosts[1].engine.statistics().drops;
    assert_eq!(drops.get(DropReason::ReceiverNotReady), 0);
    network.close();
}
