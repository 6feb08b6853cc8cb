//! What goes wrong: paths that lead nowhere, peers that vanish or have no receive, requests that
//! are refused.

use crate::network::{MEMORY, Network};
use common::time::Span;
use hostd::verbs::{
    CompletionOpcode, DropReason, EngineConfig, EngineError, Event, MultipathConfig, ReadyToSend,
    SendOpcode, SendRequest, Service, State, Status, Transition,
};

fn configs() -> [EngineConfig; 2] {
    [EngineConfig::default(), EngineConfig::default()]
}

const MULTIPATH: MultipathConfig = MultipathConfig {
    paths: 8,
    granularity: hostd::verbs::Granularity::Packet,
    reorder_packets: 128,
    reorder_time: Span::from_millis(2),
    reorder_buffer: 512,
    flowlet_timeout: Span::from_micros(500),
    marks: true,
    signals: false,
    telemetry: false,
    service: Service::Ordered,
    changes: true,
};

fn modes() -> [Option<MultipathConfig>; 2] {
    [Some(MULTIPATH), None]
}

fn stats(network: &Network, host: usize, qpn: u32) -> hostd::stats::QueuePairStatistics {
    let engine = &network.hosts[host].engine;
    engine.queue_pair_statistics(qpn).expect("exists")
}

fn statuses(network: &Network, host: usize) -> Vec<(u64, Status)> {
    let completions = network.hosts[host].completions.iter();
    completions
        .map(|completion| (completion.wr_id, completion.status))
        .collect()
}

/// Writes of `len` bytes keep host 0 busy; returns how many completed in `span`.
fn busy(network: &mut Network, qpn: u32, span: Span, len: u32) -> usize {
    let rkey = network.hosts[1].keys.rkey;
    let before = network.hosts[0].completions.len();
    let mut posted = 0;
    network.run(span, |network| {
        let done = network.hosts[0].completions.len() - before;
        while posted < done + 8 {
            let mut write = network.hosts[0].send(posted as u64, 0, len);
            write.opcode = SendOpcode::RdmaWrite;
            write.rkey = rkey;
            if network.hosts[0].engine.post_send(qpn, write).is_err() {
                return true;
            }
            posted += 1;
        }
        false
    });
    network.hosts[0].completions.len() - before
}

/// HT-24, HT-34, HT-43: when half of the network's paths begin to lead nowhere while data flows,
/// the queue pair lives, its packets leave those paths, and most of its speed is back within tens
/// of milliseconds.
#[test]
fn half_of_the_paths_lead_nowhere() {
    for seed in 2..22 {
        let mut network = Network::new(seed, configs());
        network.fill(0);
        let [sender, _] = network.connected(Some(MULTIPATH));
        let before = busy(&mut network, sender, Span::from_millis(50), 65_536);
        network.impairment.black_holes = [false, true, false, true];
        busy(&mut network, sender, Span::from_millis(50), 65_536);
        let carried = network.carried;
        let after = busy(&mut network, sender, Span::from_millis(50), 65_536);
        let lost = network.carried[1] + network.carried[3] - carried[1] - carried[3];
        let all: u64 = network.carried.iter().sum::<u64>() - carried.iter().sum::<u64>();
        println!("seed {seed}: {before} then {after} messages, {lost} of {all} packets lost");
        assert_eq!(stats(&network, 0, sender).state, State::ReadyToSend);
        assert!(2 * after > before, "seed {seed}: {before} then {after}");
        assert!(lost * 20 < all, "seed {seed}: {lost} of {all} packets lost");
        let memory = network.hosts[1].memory.to_vec();
        assert_eq!(memory[..65_536], network.hosts[0].memory.to_vec()[..65_536]);
        network.close();
    }
}

/// HT-41: hosts whose threads are kept waiting for longer than the time-outs are late, not
/// lossy: the sender learns it and repeats little.
#[test]
fn late_hosts_are_not_lossy() {
    let mut network = Network::new(20, configs());
    let [sender, receiver] = network.connected(Some(MULTIPATH));
    for _ in 0..50 {
        busy(&mut network, sender, Span::from_millis(10), 65_536);
        network.impairment.stalled_until = network.now + Span::from_millis(14);
        busy(&mut network, sender, Span::from_millis(14), 65_536);
    }
    let sent = stats(&network, 0, sender).counters;
    let duplicates = stats(&network, 1, receiver).counters.duplicates;
    println!("{duplicates} of {} in vain: {sent:#?}", sent.tx_packets);
    assert!(
        duplicates * 100 < sent.tx_packets,
        "{duplicates} of {}",
        sent.tx_packets
    );
    network.close();
}

/// HT-36: when the paths lead somewhere again they are used again.
#[test]
fn paths_come_back() {
    let mut network = Network::new(6, configs());
    let [sender, _] = network.connected(Some(MULTIPATH));
    network.impairment.black_holes = [true, true, true, false];
    busy(&mut network, sender, Span::from_millis(100), 65_536);
    network.impairment.black_holes = [false; 4];
    busy(&mut network, sender, Span::from_secs(2), 65_536);
    let paths = network.hosts[0].engine.path_statistics(sender);
    assert_eq!(paths.len(), 8);
    assert!(paths.iter().all(|path| !path.avoided), "{paths:#?}");
    let lost: u64 = paths.iter().map(|path| path.lost).sum();
    assert!(lost > 0);
    network.close();
}

/// HT-1, HT-24: a peer that vanishes is given up after its ACK time-outs: the oldest request says
/// why, the rest is flushed in order, and the application is told.
#[test]
fn a_peer_that_vanishes() {
    for multipath in modes() {
        let mut network = Network::new(7, configs());
        let [sender, receiver] = network.connected(multipath);
        network.hosts[0].receive_into(sender, 50, 0, 100);
        network.hosts[0].receive_into(sender, 51, 0, 100);
        network.hosts[1].receive_into(receiver, 1, 0, 100);
        network.impairment.dead = [false, true];
        for wr_id in 1..5 {
            let mut send = network.hosts[0].send(wr_id, 0, 100);
            send.signaled = false;
            network.hosts[0]
                .engine
                .post_send(sender, send)
                .expect("room");
        }
        let start = network.now;
        let done = network.run(Span::from_secs(10), |network| {
            network.hosts[0].completions.len() == 6
        });
        assert!(done, "{:#?}", stats(&network, 0, sender));
        // 4.096 µs × 2¹² × 8 ≈ 134 ms, and one more time-out.
        let took = network.now.since(start);
        assert!(
            took >= Span::from_millis(134) && took < Span::from_millis(170),
            "{took}"
        );
        let flushed = Status::WorkRequestFlushed;
        assert_eq!(
            statuses(&network, 0),
            [
                (1, Status::RetryExceeded),
                (2, flushed),
                (3, flushed),
                (4, flushed),
                (50, flushed),
                (51, flushed)
            ]
        );
        let failed = Event::QueuePairFailed {
            qpn: sender,
            status: Status::RetryExceeded,
            refused: false,
        };
        assert!(network.hosts[0].events.contains(&failed));
        // What is posted now is flushed at once.
        let send = network.hosts[0].send(9, 0, 1);
        network.hosts[0]
            .engine
            .post_send(sender, send)
            .expect("room");
        network.pass(Span::from_millis(1));
        assert_eq!(statuses(&network, 0).last(), Some(&(9, flushed)));
        network.close();
    }
}

/// HT-1: a sender waits for a receive to be posted, does not lose what follows, and goes on as soon
/// as there is one.
#[test]
fn a_receiver_that_is_not_ready() {
    for multipath in modes() {
        let mut network = Network::new(8, configs());
        let bytes = network.fill(0);
        let [sender, receiver] = network.connected(multipath);
        for wr_id in 0..20 {
            let send = network.hosts[0].send(wr_id, wr_id * 3000, 3000);
            network.hosts[0]
                .engine
                .post_send(sender, send)
                .expect("room");
        }
        network.pass(Span::from_millis(20));
        assert!(network.hosts[0].completions.is_empty());
        assert!(stats(&network, 0, sender).counters.rx_rnr > 5);
        for wr_id in 0..20 {
            network.hosts[1].receive_into(receiver, wr_id, 100_000 * wr_id, 3000);
            network.pass(Span::from_millis(3));
            let done = usize::try_from(wr_id).expect("small") + 1;
            assert_eq!(network.hosts[1].completions.len(), done);
        }
        network.pass(Span::from_millis(3));
        assert_eq!(network.hosts[0].completions.len(), 20);
        let memory = network.hosts[1].memory.to_vec();
        for n in 0..20 {
            assert_eq!(memory[n * 100_000..][..3000], bytes[n * 3000..][..3000]);
        }
        assert_eq!(stats(&network, 0, sender).state, State::ReadyToSend);
        network.close();
    }
}

/// HT-1: a bounded number of tries without a receive fails the request.
#[test]
fn a_receiver_that_is_never_ready() {
    for multipath in modes() {
        let mut network = Network::new(9, configs());
        let timeouts = ReadyToSend {
            sq_psn: 5,
            timeout: 12,
            retry_count: 7,
            rnr_retry: 3,
            max_rd_atomic: 16,
        };
        let [sender, _] = network.connected_with(multipath, timeouts);
        let send = network.hosts[0].send(1, 0, 10);
        network.hosts[0]
            .engine
            .post_send(sender, send)
            .expect("room");
        network.pass(Span::from_millis(50));
        assert_eq!(statuses(&network, 0), [(1, Status::RnrRetryExceeded)]);
        network.close();
    }
}

/// HT-1: what the responder refuses: the oldest request says why, those before it succeeded, those
/// after it are flushed, and both queue pairs have failed.
#[test]
fn refused_requests() {
    type Spoil = fn(&mut hostd::verbs::SendRequest);
    let cases: [(Spoil, Status); 4] = [
        (|write| write.rkey ^= 1, Status::RemoteAccess),
        (
            |write| write.remote_addr = MEMORY as u64 - 10,
            Status::RemoteAccess,
        ),
        (|write| write.remote_addr = u64::MAX, Status::RemoteAccess),
        (
            |write| {
                // Longer than the receive of 100 bytes.
                write.opcode = SendOpcode::Send;
                write.len = 2000;
            },
            Status::RemoteInvalidRequest,
        ),
    ];
    for multipath in modes() {
        for (spoil, status) in cases {
            let mut network = Network::new(10, configs());
            let [sender, receiver] = network.connected(multipath);
            network.hosts[1].receive_into(receiver, 70, 0, 100);
            network.impairment.loss = 100;
            for wr_id in 1..4 {
                let mut write = network.hosts[0].send(wr_id, 0, 5000);
                write.opcode = SendOpcode::RdmaWrite;
                write.rkey = network.hosts[1].keys.rkey;
                if wr_id == 2 {
                    spoil(&mut write);
                }
                network.hosts[0]
                    .engine
                    .post_send(sender, write)
                    .expect("room");
            }
            network.pass(Span::from_millis(300));
            let flushed = Status::WorkRequestFlushed;
            assert_eq!(
                statuses(&network, 0),
                [(1, Status::Success), (2, status), (3, flushed)]
            );
            let receive = match status {
                Status::RemoteInvalidRequest => Status::LocalLength,
                _ => flushed,
            };
            assert_eq!(statuses(&network, 1), [(70, receive)]);
            assert_eq!(stats(&network, 0, sender).state, State::Error);
            assert_eq!(stats(&network, 1, receiver).state, State::Error);
            assert!(
                network.hosts[1]
                    .engine
                    .statistics()
                    .drops
                    .get(DropReason::RequestRefused)
                    == 1
            );
            network.close();
        }
    }
}

/// HT-1, HT-3: local keys are checked when a request's turn comes; what was sent before still
/// succeeds.
#[test]
fn wrong_local_memory() {
    let mut network = Network::new(11, configs());
    let [sender, receiver] = network.connected(Some(MULTIPATH));
    network.hosts[1].receive_into(receiver, 1, 0, 10_000);
    let good = network.hosts[0].send(1, 0, 10_000);
    let mut wrong = network.hosts[0].send(2, 0, 1);
    wrong.lkey ^= 1;
    let last = network.hosts[0].send(3, 0, 1);
    for send in [good, wrong, last] {
        network.hosts[0]
            .engine
            .post_send(sender, send)
            .expect("room");
    }
    network.pass(Span::from_millis(20));
    assert_eq!(
        statuses(&network, 0),
        [
            (1, Status::Success),
            (2, Status::LocalProtection),
            (3, Status::WorkRequestFlushed)
        ]
    );
    network.close();
}

/// HT-1: a region that is deregistered while it is sent from fails the request, and nothing else.
#[test]
fn a_region_that_goes_away() {
    let mut network = Network::new(12, configs());
    let [sender, _] = network.connected(Some(MULTIPATH));
    let mut write = network.hosts[0].send(1, 0, 4_000_000);
    write.opcode = SendOpcode::RdmaWrite;
    write.rkey = network.hosts[1].keys.rkey;
    network.hosts[0]
        .engine
        .post_send(sender, write)
        .expect("room");
    network.pass(Span::from_micros(500));
    let lkey = network.hosts[0].keys.lkey;
    network.hosts[0].engine.deregister(lkey).expect("exists");
    network.pass(Span::from_millis(5));
    assert_eq!(statuses(&network, 0), [(1, Status::LocalProtection)]);
    network.close();
}

/// HT-1: posting is refused beyond what was asked for, and silent requests give their place back.
#[test]
fn queues_are_bounded() {
    let mut network = Network::new(13, configs());
    let [sender, receiver] = network.connected(Some(MULTIPATH));
    for round in 0..3 {
        for wr_id in 0..256 {
            network.hosts[1].receive_into(receiver, wr_id, 0, 10);
            let mut send = network.hosts[0].send(wr_id, 0, 10);
            send.signaled = false;
            network.hosts[0]
                .engine
                .post_send(sender, send)
                .expect("room");
        }
        let send = network.hosts[0].send(1, 0, 10);
        let full = network.hosts[0].engine.post_send(sender, send);
        assert_eq!(full, Err(EngineError::QueueFull), "round {round}");
        network.pass(Span::from_millis(20));
        assert!(network.hosts[0].completions.is_empty(), "unsignaled");
        assert_eq!(network.hosts[1].completions.len(), 256 * (round + 1));
    }
    assert_eq!(stats(&network, 0, sender).counters.tx_messages, 768);
    network.close();
}

/// HT-1: completions that nobody polls refuse further requests instead of being lost.
#[test]
fn completions_are_never_lost() {
    let mut network = Network::new(14, configs());
    let [sender, _] = network.connected(Some(MULTIPATH));
    let host = &mut network.hosts[0];
    let mut posted = 0;
    host.engine
        .modify_queue_pair(sender, &Transition::Error)
        .expect("always");
    let refused = loop {
        let send = host.send(posted, 0, 0);
        match host.engine.post_send(sender, send) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, EngineError::CompletionQueueFull);
    let cq = host.cq;
    let polled = std::iter::from_fn(|| host.engine.poll_completion(cq)).count();
    assert_eq!(polled as u64, posted);
    let send = host.send(0, 0, 0);
    host.engine.post_send(sender, send).expect("room again");
    network.close();
}

/// HT-40, HT-62: all reorder buffers together hold no more frames than allowed; what finds no room
/// is counted and sent again.
#[test]
fn reorder_memory_is_bounded() {
    let small = EngineConfig {
        reorder_frames: 4,
        ..EngineConfig::default()
    };
    let mut network = Network::new(15, [EngineConfig::default(), small]);
    let bytes = network.fill(0);
    network.impairment.skew = Span::from_micros(30);
    let [sender, receiver] = network.connected(Some(MULTIPATH));
    let start = network.now;
    network.hosts[1].receive_into(receiver, 1, 0, 300_000);
    let send = network.hosts[0].send(1, 0, 300_000);
    network.hosts[0]
        .engine
        .post_send(sender, send)
        .expect("room");
    let done = network.run(Span::from_secs(20), |network| {
        assert!(stats(network, 1, receiver).reordering <= 4);
        !network.hosts[0].completions.is_empty()
    });
    println!(
        "took {} {:#?}",
        network.now.since(start),
        stats(&network, 0, sender)
    );
    assert!(done);
    assert_eq!(
        network.hosts[1].memory.to_vec()[..300_000],
        bytes[..300_000]
    );
    let drops = &network.hosts[1].engine.statistics().drops;
    assert!(drops.get(DropReason::ReorderMemory) > 0);
    network.close();
}

/// HT-1: solicited events and immediate data reach the peer's completion.
#[test]
fn flags_and_immediate_data_arrive() {
    let mut network = Network::new(16, configs());
    let [sender, receiver] = network.connected(None);
    network.hosts[1].receive_into(receiver, 1, 0, 5000);
    let mut send = network.hosts[0].send(1, 0, 5000);
    send.opcode = SendOpcode::SendWithImm;
    send.imm = 0x0102_0304;
    send.solicited = true;
    network.hosts[0]
        .engine
        .post_send(sender, send)
        .expect("room");
    network.pass(Span::from_millis(5));
    let completion = network.hosts[1].completions[0];
    assert_eq!(completion.imm, Some(0x0102_0304));
    assert!(completion.solicited);
    assert_eq!(completion.opcode, CompletionOpcode::Receive);
    network.close();
}

/// HT-1: the SE bit leaves in the last packet of a message that completes at the peer, and in no
/// other (IBTA 9.2.3).
#[test]
fn what_completes_at_the_peer_is_solicited() {
    for (opcode, completes) in [
        (SendOpcode::Send, true),
        (SendOpcode::RdmaWriteWithImm, true),
        (SendOpcode::RdmaWrite, false),
        (SendOpcode::RdmaRead, false),
    ] {
        let mut network = Network::new(18, configs());
        let [sender, receiver] = network.connected(None);
        network.hosts[1].receive_into(receiver, 1, 0, 3000);
        let send = SendRequest {
            opcode,
            solicited: true,
            rkey: network.hosts[1].keys.rkey,
            ..network.hosts[0].send(1, 0, 3000)
        };
        network.tap = Some(Vec::new());
        let engine = &mut network.hosts[0].engine;
        engine.post_send(sender, send).expect("room");
        network.pass(Span::from_millis(5));
        assert_eq!(network.hosts[0].completions.len(), 1, "{opcode:?}");
        let frames = network.tap.take().expect("was set");
        // The BTH follows Ethernet, IPv4 and UDP.
        let own = frames.iter().filter(|frame| frame[14 + 15] == 1);
        let solicited: Vec<_> = own.map(|frame| frame[43] & 0x80 != 0).collect();
        let count = solicited.iter().filter(|bit| **bit).count();
        assert_eq!(count, usize::from(completes), "{opcode:?}");
        network.close();
    }
}

/// HT-12: over IPv6 every entropy value has its own flow label besides its source port, and belongs
/// to one path.
#[test]
fn ipv6_paths_have_flow_labels() {
    let mut network = Network::over(17, configs(), true);
    network.tap = Some(Vec::new());
    let [sender, _] = network.connected(Some(MULTIPATH));
    busy(&mut network, sender, Span::from_millis(2), 20_000);
    let frames = network.tap.take().expect("was set");
    let entropies: std::collections::BTreeSet<_> = frames
        .iter()
        .filter(|frame| frame[14 + 8 + 15] == 1)
        // Source port, flow label, and Path ID after the 12 bytes of BTH.
        .map(|frame| (frame[54..56].to_vec(), frame[15..18].to_vec(), frame[74]))
        .collect();
    let ports: std::collections::BTreeSet<_> = entropies.iter().map(|it| &it.0).collect();
    let labels: std::collections::BTreeSet<_> = entropies.iter().map(|it| &it.1).collect();
    let paths: std::collections::BTreeSet<_> = entropies.iter().map(|it| it.2).collect();
    assert!(ports.len() > 100 && ports.len() <= 256, "{}", ports.len());
    assert_eq!(
        entropies.len(),
        ports.len(),
        "a port has one label and path"
    );
    assert_eq!(labels.len(), ports.len(), "a label for each port");
    assert_eq!(paths.len(), 8, "all paths");
    network.close();
}
