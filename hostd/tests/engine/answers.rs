//! RDMA READs and atomic operations: answered with data, exactly once, whatever the network does.

use crate::network::{Impairment, MEMORY, Network};
use common::time::Span;
use hostd::memory::RegionMemory;
use hostd::verbs::{
    Access, AtomicOperation, CompletionOpcode, DropReason, EngineConfig, MultipathConfig,
    ReadyToSend, SendOpcode, SendRequest, State, Status, Transition,
};

/// Begins close to the wrap of the sequence numbers.
const TIMEOUTS: ReadyToSend = ReadyToSend {
    sq_psn: 0xff_fff0,
    timeout: 14,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

fn network(seed: u64) -> Network {
    let paced = EngineConfig {
        pacer_burst: 4096,
        ..EngineConfig::default()
    };
    Network::new(seed, [paced.clone(), paced])
}

fn modes() -> [Option<MultipathConfig>; 2] {
    [Some(MultipathConfig::default()), None]
}

/// Trouble of every kind; a plain connection is used on networks that keep the order.
fn trouble(multipath: bool, loss: u32) -> Impairment {
    Impairment {
        loss,
        duplication: loss,
        skew: Span::from_micros(if multipath { 20 } else { 0 }),
        jitter: Span::from_micros(if multipath { 30 } else { 0 }),
        ..Impairment::default()
    }
}

fn read(network: &Network, wr_id: u64, from: u64, to: u64, len: u32) -> SendRequest {
    SendRequest {
        opcode: SendOpcode::RdmaRead,
        remote_addr: from,
        rkey: network.hosts[1].keys.rkey,
        ..network.hosts[0].send(wr_id, to, len)
    }
}

fn add(network: &Network, wr_id: u64, at: u64, to: u64, n: u64) -> SendRequest {
    SendRequest {
        opcode: SendOpcode::AtomicFetchAndAdd,
        compare_add: n,
        ..read(network, wr_id, at, to, 8)
    }
}

fn post(network: &mut Network, qpn: u32, request: SendRequest) {
    let engine = &mut network.hosts[0].engine;
    engine.post_send(qpn, request).expect("room");
}

fn word(network: &Network, host: usize, at: u64) -> u64 {
    let mut bytes = [0; 8];
    assert!(network.hosts[host].memory.copy_out(at, &mut bytes));
    u64::from_ne_bytes(bytes)
}

fn statuses(network: &Network) -> Vec<(u64, Status)> {
    let completions = network.hosts[0].completions.iter();
    completions
        .map(|completion| (completion.wr_id, completion.status))
        .collect()
}

fn idle_receiver_drops(network: &Network) -> u64 {
    let drops = &network.hosts[1].engine.statistics().drops;
    drops.total() - drops.get(DropReason::ForgottenAnswer) - drops.get(DropReason::OutOfOrder)
}

/// HT-1: READs of many sizes between SENDs and WRITEs, through loss, duplication and reordering:
/// every byte arrives, completions come in order, and nobody at the other host learns of it.
#[test]
fn reads_bring_every_byte() {
    let sizes = [0_u32, 1, 1023, 1024, 1025, 5000, 65_536, 65_537, 300_001, 7];
    for (seed, loss) in [(1, 0), (2, 5), (3, 50), (4, 150)] {
        for multipath in modes() {
            let mut network = network(seed);
            network.impairment = trouble(multipath.is_some(), loss);
            let bytes = network.fill(1);
            let [requester, _] = network.connected_with(multipath, TIMEOUTS);
            let mut offset = 0;
            let mut expected = Vec::new();
            for (wr_id, &len) in (0..).zip(sizes.iter().cycle().take(40)) {
                let (from, to) = (offset % 3_000_000, offset % 3_700_000);
                let request = read(&network, wr_id, from, to, len);
                post(&mut network, requester, request);
                offset += u64::from(len) + 13;
                let write = SendRequest {
                    opcode: SendOpcode::RdmaWrite,
                    signaled: false,
                    ..read(&network, 1000, 4_100_000, 4_000_000, 3000)
                };
                post(&mut network, requester, write);
                expected.push((from, to, len));
            }
            let done = network.run(Span::from_secs(60), |network| {
                network.hosts[0].completions.len() == 40
            });
            let stats = network.hosts[0].engine.queue_pair_statistics(requester);
            assert!(done, "seed {seed}, {multipath:?}: {stats:#?}");
            let memory = network.hosts[0].memory.to_vec();
            for (n, completion) in network.hosts[0].completions.iter().enumerate() {
                let (_, _, len) = expected[n];
                assert_eq!(completion.status, Status::Success);
                assert_eq!(completion.wr_id, n as u64, "in order");
                assert_eq!(completion.opcode, CompletionOpcode::RdmaRead);
                assert_eq!(completion.byte_len, len);
            }
            // No two places overlap within the last 3.7 MB.
            for &(from, to, len) in &expected {
                let place = |at: u64| usize::try_from(at).expect("small");
                let (from, to, len) = (place(from), place(to), place(u64::from(len)));
                assert_eq!(memory[to..to + len], bytes[from..from + len], "seed {seed}");
            }
            assert!(network.hosts[1].completions.is_empty());
            if loss == 0 {
                // What the first READs leave out may look like a gap over many paths.
                let counters = stats.expect("exists").counters;
                let most = u64::from(multipath.is_some());
                assert!(counters.retransmits <= most, "{multipath:?}: {counters:#?}");
                assert_eq!(idle_receiver_drops(&network), 0);
            }
            network.close();
        }
    }
}

/// HT-1: with every packet twice and a fifth lost both ways, and across the wrap of the sequence
/// numbers, 10,000 additions are each done once.
#[test]
fn atomic_operations_are_done_exactly_once() {
    for multipath in modes() {
        let mut network = network(5);
        network.impairment = Impairment {
            duplication: 1000,
            ..trouble(multipath.is_some(), 200)
        };
        let timeouts = ReadyToSend {
            timeout: 18,
            sq_psn: 0xff_f000,
            ..TIMEOUTS
        };
        let [requester, _] = network.connected_with(multipath, timeouts);
        let total = 10_000_u64;
        let (mut posted, mut done) = (0, 0);
        let ended = network.run(Span::from_secs(4000), |network| {
            done += network.hosts[0].completions.drain(..).len() as u64;
            while posted < total && posted < done + 64 {
                let request = add(network, posted, 64, 8 * posted, 1);
                post(network, requester, request);
                posted += 1;
            }
            done == total
        });
        let stats = network.hosts[0].engine.queue_pair_statistics(requester);
        assert!(ended, "{done} done, {multipath:?}: {stats:#?}");
        assert_eq!(word(&network, 1, 64), total);
        let mut originals: Vec<_> = (0..total).map(|n| word(&network, 0, 8 * n)).collect();
        originals.sort_unstable();
        assert!(originals.into_iter().eq(0..total), "a permutation");
        network.close();
    }
}

/// HT-1: compare and swap swaps only what is equal, and returns what it found in either case.
#[test]
fn compare_and_swap() {
    for multipath in modes() {
        let mut network = network(6);
        let [requester, _] = network.connected_with(multipath, TIMEOUTS);
        for (wr_id, compare_add, swap) in [(0, 0, 7), (1, 0, 8), (2, 7, u64::MAX)] {
            let request = SendRequest {
                opcode: SendOpcode::AtomicCmpAndSwp,
                compare_add,
                swap,
                ..add(&network, wr_id, 8, 8 * wr_id, 0)
            };
            post(&mut network, requester, request);
        }
        network.pass(Span::from_millis(20));
        let completions = &network.hosts[0].completions;
        assert!(completions.iter().all(|completion| {
            completion.opcode == CompletionOpcode::CompSwap
                && completion.status == Status::Success
                && completion.byte_len == 8
        }));
        let found: Vec<_> = (0..3).map(|n| word(&network, 0, 8 * n)).collect();
        assert_eq!(found, [0, 7, 7]);
        assert_eq!(word(&network, 1, 8), u64::MAX);
        network.close();
    }
}

/// HT-1: what the responder refuses, with the verbs' status; what was asked for before is answered
/// first, also when the refusal overtakes it.
#[test]
fn refused_questions() {
    type Spoil = fn(&mut SendRequest);
    let cases: [(Spoil, Access, Status); 7] = [
        (
            |read| read.rkey ^= 1,
            Access::ALL_REMOTE,
            Status::RemoteAccess,
        ),
        (
            |read| read.remote_addr = MEMORY as u64 - 7,
            Access::ALL_REMOTE,
            Status::RemoteAccess,
        ),
        (
            |read| read.remote_addr = u64::MAX,
            Access::ALL_REMOTE,
            Status::RemoteAccess,
        ),
        (
            |read| {
                read.opcode = SendOpcode::AtomicFetchAndAdd;
                read.remote_addr = 12;
            },
            Access::ALL_REMOTE,
            Status::RemoteInvalidRequest,
        ),
        (
            |read| read.opcode = SendOpcode::AtomicFetchAndAdd,
            Access::REMOTE_READ,
            Status::RemoteInvalidRequest,
        ),
        (
            |read| read.opcode = SendOpcode::RdmaWrite,
            Access::REMOTE_READ,
            Status::RemoteInvalidRequest,
        ),
        (
            |read| read.lkey ^= 1,
            Access::ALL_REMOTE,
            Status::LocalProtection,
        ),
    ];
    for multipath in modes() {
        for (n, (spoil, rights, status)) in cases.into_iter().enumerate() {
            let mut network = network(20 + n as u64);
            network.impairment = trouble(multipath.is_some(), 0);
            let qpns = [0, 1].map(|host: usize| network.hosts[host].queue_pair());
            let again = Transition::Init(rights);
            let responder = &mut network.hosts[1].engine;
            responder.modify_queue_pair(qpns[1], &again).expect("legal");
            network.connect(qpns, multipath, TIMEOUTS);
            let before = read(&network, 1, 0, 0, 100_000);
            post(&mut network, qpns[0], before);
            let mut wrong = read(&network, 2, 0, 0, 8);
            spoil(&mut wrong);
            post(&mut network, qpns[0], wrong);
            let after = read(&network, 3, 0, 0, 8);
            post(&mut network, qpns[0], after);
            network.pass(Span::from_millis(400));
            assert_eq!(
                statuses(&network),
                [
                    (1, Status::Success),
                    (2, status),
                    (3, Status::WorkRequestFlushed)
                ],
                "case {n}, {multipath:?}"
            );
            let stats = network.hosts[0].engine.queue_pair_statistics(qpns[0]);
            assert_eq!(stats.expect("exists").state, State::Error);
            network.close();
        }
    }
}

/// HT-1: a fenced request begins when the READs and atomic operations before it are done, and not
/// earlier; one that is not fenced overtakes them.
#[test]
fn a_fence_waits_for_answers() {
    for multipath in modes() {
        for fence in [false, true] {
            let mut network = network(7);
            network.impairment.delay = Span::from_micros(500);
            let [requester, _] = network.connected_with(multipath, TIMEOUTS);
            assert!(network.hosts[1].memory.copy_in(0, &[9; 16]));
            // What is read is written back: with a fence the peer gets its own bytes.
            let request = read(&network, 0, 0, 0, 16);
            post(&mut network, requester, request);
            let write = SendRequest {
                opcode: SendOpcode::RdmaWrite,
                fence,
                ..read(&network, 1, 1000, 0, 16)
            };
            post(&mut network, requester, write);
            network.pass(Span::from_millis(20));
            assert_eq!(network.hosts[0].completions.len(), 2);
            let memory = network.hosts[1].memory.to_vec();
            assert_eq!(memory[1000..1016], [if fence { 9 } else { 0 }; 16]);
            network.close();
        }
    }
}

/// HT-1: no more READs and atomic operations are outstanding than were agreed on, so the responder
/// never refuses one; without any they fail.
#[test]
fn the_agreed_depth_is_kept() {
    for multipath in modes() {
        for depth in [1, 3] {
            let mut network = network(8);
            network.impairment.duplication = 300;
            network.depth = depth;
            let timeouts = ReadyToSend {
                max_rd_atomic: depth,
                ..TIMEOUTS
            };
            let bytes = network.fill(1);
            let [requester, _] = network.connected_with(multipath, timeouts);
            for wr_id in 0..30 {
                let request = read(&network, wr_id, wr_id * 70_000, wr_id * 70_000, 70_000);
                post(&mut network, requester, request);
                let request = add(&network, 100 + wr_id, 4_000_000, 4_000_000, 1);
                post(&mut network, requester, request);
            }
            let done = network.run(Span::from_secs(20), |network| {
                network.hosts[0].completions.len() == 60
            });
            assert!(
                done && statuses(&network)
                    .iter()
                    .all(|end| end.1 == Status::Success)
            );
            assert_eq!(
                network.hosts[0].memory.to_vec()[..2_100_000],
                bytes[..2_100_000]
            );
            network.close();
        }
        let mut network = network(9);
        let timeouts = ReadyToSend {
            max_rd_atomic: 0,
            ..TIMEOUTS
        };
        let [requester, _] = network.connected_with(multipath, timeouts);
        let request = read(&network, 1, 0, 0, 1);
        post(&mut network, requester, request);
        network.pass(Span::from_millis(1));
        assert_eq!(statuses(&network), [(1, Status::LocalQpOperation)]);
        network.close();
    }
}

/// HT-1: a READ of many megabytes lets the other requests of its queue pair through, and asks for
/// no more at a time than the window.
#[test]
fn a_long_read_lets_others_through() {
    let mut network = network(10);
    let bytes = network.fill(1);
    let [requester, responder] = network.connected_with(modes()[0], TIMEOUTS);
    let request = read(&network, 0, 0, 0, 4_000_000);
    post(&mut network, requester, request);
    network.pass(Span::from_micros(300));
    // The responder's own requests and answers take turns.
    network.hosts[0].receive_into(requester, 5, 4_100_000, 1000);
    let send = network.hosts[1].send(6, 0, 1000);
    let engine = &mut network.hosts[1].engine;
    engine.post_send(responder, send).expect("room");
    network.pass(Span::from_micros(300));
    assert_eq!(network.hosts[1].completions.len(), 1, "the SEND is done");
    assert_eq!(network.hosts[0].completions.len(), 1, "and received");
    let done = network.run(Span::from_millis(50), |network| {
        network.hosts[0].completions.len() == 2
    });
    assert!(done);
    assert_eq!(
        network.hosts[0].memory.to_vec()[..4_000_000],
        bytes[..4_000_000]
    );
    network.close();
}

/// HT-1: memory that is deregistered while it is read, at either end.
#[test]
fn regions_that_go_while_they_are_read() {
    for multipath in modes() {
        for (host, expected) in [(0, Status::LocalProtection), (1, Status::RemoteAccess)] {
            let mut network = network(11);
            let [requester, _] = network.connected_with(multipath, TIMEOUTS);
            let request = read(&network, 4, 0, 0, 2_000_000);
            post(&mut network, requester, request);
            network.pass(Span::from_micros(200));
            let lkey = network.hosts[host].keys.lkey;
            network.hosts[host].engine.deregister(lkey).expect("known");
            network.pass(Span::from_millis(300));
            assert_eq!(statuses(&network), [(4, expected)], "host {host}");
            network.close();
        }
    }
}

/// HT-1: a peer that vanishes while it answers.
#[test]
fn a_peer_that_vanishes_while_it_answers() {
    for multipath in modes() {
        let mut network = network(12);
        let timeouts = ReadyToSend {
            timeout: 12,
            ..TIMEOUTS
        };
        let [requester, _] = network.connected_with(multipath, timeouts);
        let request = read(&network, 4, 0, 0, 4_000_000);
        post(&mut network, requester, request);
        network.pass(Span::from_micros(500));
        network.impairment.dead = [false, true];
        network.pass(Span::from_secs(2));
        assert_eq!(statuses(&network), [(4, Status::RetryExceeded)]);
        network.close();
    }
}

/// HT-1: the operation of the memory itself.
#[test]
fn words_of_memory() {
    let memory = hostd::memory::HeapMemory::new(vec![0; 20]);
    let add = AtomicOperation::FetchAdd(u64::MAX);
    assert_eq!(memory.atomic(8, add), Some(0));
    assert_eq!(memory.atomic(8, add), Some(u64::MAX));
    for outside in [4, 16, u64::MAX - 7] {
        assert_eq!(memory.atomic(outside, add), None);
    }
}
