//! Shared receive queues: who takes which receive, and what is said of it.

use crate::network::{Impairment, Network, PEERS};
use common::time::Span;
use hostd::memory::RegionMemory;
use hostd::verbs::{
    Completion, CompletionOpcode, EngineConfig, EngineError, Event, MultipathConfig,
    QueuePairRequest, ReadyToSend, ReceiveRequest, SendOpcode, Service, SharedQueueId,
    SharedQueueRequest, State, Status, Transition,
};
use std::collections::BTreeSet;

const SEND: ReadyToSend = ReadyToSend {
    sq_psn: 0xff_fff0,
    timeout: 14,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

/// Bytes of a receive.
const BUFFER: u32 = 4096;

const MODES: [bool; 2] = [true, false];

fn network(seed: u64) -> Network {
    Network::new(seed, [EngineConfig::default(), EngineConfig::default()])
}

fn shared_queue(network: &mut Network, max_wr: u32, limit: u32) -> SharedQueueId {
    let host = &mut network.hosts[1];
    let request = SharedQueueRequest {
        domain: host.domain,
        max_wr,
        limit,
    };
    host.engine.create_shared_queue(request).expect("room")
}

/// A connection from host 0 to host 1, which takes its receives from `shared`.
fn connected(network: &mut Network, shared: SharedQueueId, room: u32, plain: bool) -> [u32; 2] {
    let multipath = (!plain).then(MultipathConfig::default);
    connected_as(network, shared, room, multipath)
}

fn connected_as(
    network: &mut Network,
    shared: SharedQueueId,
    room: u32,
    multipath: Option<MultipathConfig>,
) -> [u32; 2] {
    let first = network.hosts[0].queue_pair();
    let host = &mut network.hosts[1];
    let request = QueuePairRequest {
        domain: host.domain,
        send_cq: host.cq,
        receive_cq: host.cq,
        max_send_wr: 16,
        max_recv_wr: room,
        shared: Some(shared),
        signal_all: false,
    };
    let second = host.engine.create_queue_pair(request).expect("room");
    let init = Transition::Init(PEERS);
    host.engine.modify_queue_pair(second, &init).expect("legal");
    network.connect([first, second], multipath, SEND);
    [first, second]
}

fn post(network: &mut Network, shared: SharedQueueId, wr_id: u64) -> Result<(), EngineError> {
    let host = &mut network.hosts[1];
    let request = ReceiveRequest {
        wr_id,
        lkey: host.keys.lkey,
        addr: wr_id * u64::from(BUFFER),
        len: BUFFER,
    };
    host.engine.post_shared_receive(shared, request)
}

fn send(network: &mut Network, qpn: u32, wr_id: u64, len: u32) {
    let host = &mut network.hosts[0];
    let request = host.send(wr_id, wr_id * u64::from(BUFFER), len);
    host.engine.post_send(qpn, request).expect("room");
}

fn received(network: &Network) -> Vec<Completion> {
    let all = network.hosts[1].completions.iter();
    all.filter(|it| it.opcode == CompletionOpcode::Receive)
        .copied()
        .collect()
}

fn limit_events(network: &mut Network) -> usize {
    let events = &mut network.hosts[1].events;
    let before = events.len();
    events.retain(|event| !matches!(event, Event::SharedLimitReached { .. }));
    before - events.len()
}

/// Sends over three connections through a network that reorders; the receives, with their order.
fn reordered(seed: u64) -> Vec<Completion> {
    let mut network = network(seed);
    network.impairment = Impairment {
        skew: Span::from_micros(40),
        jitter: Span::from_micros(60),
        loss: 10,
        ..Impairment::default()
    };
    let bytes = network.fill(0);
    let shared = shared_queue(&mut network, 256, 0);
    let pairs: Vec<_> = (0..3)
        .map(|_| connected(&mut network, shared, 256, false))
        .collect();
    for wr_id in 0..180 {
        post(&mut network, shared, wr_id).expect("room");
    }
    for (number, [first, _]) in (0..180).zip(pairs.iter().cycle()) {
        let len = u32::try_from(number * 997 % 4000).expect("short");
        send(&mut network, *first, number, len);
    }
    let done = network.run(Span::from_secs(5), |net| received(net).len() == 180);
    assert!(done, "seed {seed}: {} came", received(&network).len());
    let all = received(&network);
    for (index, [_, second]) in pairs.iter().enumerate() {
        let own = all.iter().filter(|completion| completion.qpn == *second);
        let mut last = None;
        for (turn, completion) in own.enumerate() {
            let number = 3 * turn + index;
            let place = usize::try_from(completion.wr_id).expect("small") * BUFFER as usize;
            let mut got = vec![0; completion.byte_len as usize];
            assert!(network.hosts[1].memory.copy_out(place as u64, &mut got));
            let from = number * BUFFER as usize;
            assert_eq!(got.len(), number * 997 % 4000, "seed {seed}");
            assert_eq!(got, bytes[from..from + got.len()], "seed {seed}");
            assert!(last < Some(completion.wr_id), "seed {seed}: in order");
            last = Some(completion.wr_id);
        }
    }
    let mut taken: Vec<_> = all.iter().map(|completion| completion.wr_id).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..180).collect::<Vec<_>>(), "each once");
    network.close();
    all
}

/// HT-1, HT-40: however packets overtake one another, each connection's messages take receives in
/// their order, none twice; and the same packets take the same receives.
#[test]
fn receives_are_taken_in_the_order_of_messages() {
    for seed in 1..6 {
        assert_eq!(reordered(seed), reordered(seed), "seed {seed}");
    }
}

/// HT-1: the limit is said once for each time that it is set, at once if it is reached already.
#[test]
fn the_limit_is_said_once() {
    let mut network = network(2);
    let shared = shared_queue(&mut network, 16, 0);
    let [first, _] = connected(&mut network, shared, 16, false);
    for wr_id in 0..8 {
        post(&mut network, shared, wr_id).expect("room");
    }
    let limit = |network: &mut Network, limit| {
        let engine = &mut network.hosts[1].engine;
        engine.limit_shared_queue(shared, limit)
    };
    let take = |network: &mut Network, count: usize| {
        let before = received(network).len();
        for number in 0..count {
            send(network, first, number as u64, 10);
        }
        let done = |net: &mut Network| received(net).len() == before + count;
        assert!(network.run(Span::from_secs(1), done));
        limit_events(network)
    };
    assert_eq!(limit(&mut network, 17), Err(EngineError::SharedLength));
    assert_eq!(limit(&mut network, 6), Ok(()));
    assert_eq!(take(&mut network, 2), 0, "six are left");
    assert_eq!(take(&mut network, 1), 1, "five are");
    assert_eq!(take(&mut network, 2), 0, "said already");
    let standing = network.hosts[1].engine.shared_queue(shared).expect("there");
    assert_eq!((standing.posted, standing.limit), (3, 0));
    assert_eq!(limit(&mut network, 3), Ok(()));
    assert_eq!(take(&mut network, 1), 1, "two are left");
    assert_eq!(limit(&mut network, 4), Ok(()));
    assert_eq!(take(&mut network, 0), 1, "reached already");
    network.close();
}

/// HT-1: a message that finds no shared receive waits, and its peer is told to; with the
/// receive it goes on. A plain peer gets no credits, which nobody could promise.
#[test]
fn without_a_receive_the_peer_waits() {
    for plain in MODES {
        let mut network = network(3);
        network.tap = Some(Vec::new());
        let shared = shared_queue(&mut network, 16, 0);
        let [first, second] = connected(&mut network, shared, 16, plain);
        for number in 0..4 {
            send(&mut network, first, number, 3000);
        }
        network.pass(Span::from_millis(20));
        assert_eq!(received(&network).len(), 0, "plain: {plain}");
        let told = network.hosts[1].engine.queue_pair_statistics(second);
        assert!(told.expect("there").counters.tx_rnr > 0, "plain: {plain}");
        for wr_id in 0..4 {
            post(&mut network, shared, wr_id).expect("room");
        }
        let done = network.run(Span::from_secs(1), |net| received(net).len() == 4);
        assert!(done, "plain: {plain}");
        let tap = network.tap.take().expect("set above");
        // The opcode follows Ethernet, IPv4 and UDP; the syndrome the BTH. NAKs have bit 6 or 5.
        let acks: Vec<u8> = tap
            .iter()
            .filter(|bytes| bytes[42] == 0x11 && bytes[54] & 0x60 == 0)
            .map(|bytes| bytes[54])
            .collect();
        assert_eq!(acks.is_empty(), !plain);
        assert!(acks.iter().all(|syndrome| *syndrome == 0x1f), "{acks:x?}");
        network.close();
    }
}

/// HT-1: a queue pair that fails leaves the shared receives to the others, completes the one that
/// it took, and says once that it takes no more.
#[test]
fn a_failure_takes_no_shared_receive_along() {
    let mut network = network(4);
    let shared = shared_queue(&mut network, 16, 0);
    let [first, second] = connected(&mut network, shared, 16, false);
    let [other, _] = connected(&mut network, shared, 16, false);
    for wr_id in 0..4 {
        post(&mut network, shared, wr_id).expect("room");
    }
    // The second packet of a message gets lost with the network.
    send(&mut network, first, 0, 3000);
    let begun = |net: &mut Network| {
        let standing = net.hosts[1].engine.shared_queue(shared).expect("there");
        standing.posted == 3
    };
    network.impairment.delay = Span::from_micros(1);
    assert!(network.run(Span::from_secs(1), begun));
    network.hosts[1].completions.clear();
    let to_error = |network: &mut Network| {
        let engine = &mut network.hosts[1].engine;
        engine.modify_queue_pair(second, &Transition::Error)
    };
    to_error(&mut network).expect("legal");
    to_error(&mut network).expect("legal");
    network.pass(Span::from_millis(1));
    let last = Event::LastReceiveTaken { qpn: second };
    let said = network.hosts[1].events.iter().filter(|it| **it == last);
    assert_eq!(said.count(), 1);
    let left = network.hosts[1].engine.shared_queue(shared).expect("there");
    assert_eq!(left.posted, 3, "shared receives are not flushed");
    let ended: Vec<_> = received(&network);
    assert!(ended.iter().all(|it| it.wr_id == 0), "{ended:?}");
    send(&mut network, other, 1, 100);
    let done = |net: &mut Network| received(net).iter().any(|it| it.wr_id == 1);
    assert!(network.run(Span::from_secs(1), done), "the others go on");
    let busy = network.hosts[1].engine.destroy_shared_queue(shared);
    assert_eq!(busy, Err(EngineError::Busy));
    network.close();
}

/// HT-1: a receive that was taken completes with an error when its queue pair ends, and with the
/// status that says why when its memory is not valid.
#[test]
fn a_taken_receive_always_completes() {
    let mut network = network(5);
    let shared = shared_queue(&mut network, 16, 0);
    let [first, second] = connected(&mut network, shared, 16, true);
    let host = &mut network.hosts[1];
    let request = ReceiveRequest {
        wr_id: 7,
        lkey: host.keys.lkey ^ 1,
        addr: 0,
        len: 100,
    };
    host.engine
        .post_shared_receive(shared, request)
        .expect("room");
    send(&mut network, first, 0, 50);
    assert!(network.run(Span::from_secs(1), |net| received(net).len() == 1));
    let [ended] = received(&network)[..] else {
        panic!("one receive");
    };
    assert_eq!((ended.wr_id, ended.status), (7, Status::LocalProtection));
    assert_eq!(ended.qpn, second);
    let standing = network.hosts[1].engine.queue_pair_statistics(second);
    assert_eq!(standing.expect("there").state, State::Error);
    network.close();
}

/// HT-39, HT-1: messages of services without an order take shared receives before their turn, each
/// one, also if receives come one by one; none is taken twice, and what is in it is the message.
#[test]
fn messages_before_their_turn_take_shared_receives() {
    for (seed, service) in [(1, Service::Unordered), (2, Service::Idempotent)] {
        let mut network = network(seed);
        network.impairment = Impairment {
            skew: Span::from_micros(40),
            jitter: Span::from_micros(60),
            loss: 100,
            ..Impairment::default()
        };
        let bytes = network.fill(0);
        let shared = shared_queue(&mut network, 256, 0);
        let agreed = MultipathConfig {
            service,
            ..MultipathConfig::default()
        };
        let pairs: Vec<_> = (0..3)
            .map(|_| connected_as(&mut network, shared, 256, Some(agreed)))
            .collect();
        for (number, [first, _]) in (0..180).zip(pairs.iter().cycle()) {
            let host = &mut network.hosts[0];
            let at = u64::from(number) * u64::from(BUFFER);
            let mut request = host.send(number.into(), at, number * 997 % 4000);
            (request.opcode, request.imm) = (SendOpcode::SendWithImm, number);
            host.engine.post_send(*first, request).expect("room");
        }
        let mut posted = 0;
        let done = network.run(Span::from_secs(20), |network| {
            let came = received(network).len() as u64;
            while posted < 180 && posted < came + 4 {
                post(network, shared, posted).expect("room");
                posted += 1;
            }
            came == 180
        });
        assert!(done, "seed {seed}: {} came", received(&network).len());
        let mut numbers = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for completion in received(&network) {
            let number = completion.imm.expect("all have some");
            assert!(numbers.insert(number), "seed {seed}: {number} came twice");
            assert!(taken.insert(completion.wr_id), "seed {seed}: taken twice");
            let mut got = vec![0; completion.byte_len as usize];
            let place = completion.wr_id * u64::from(BUFFER);
            assert!(network.hosts[1].memory.copy_out(place, &mut got));
            let from = number as usize * BUFFER as usize;
            assert_eq!(got.len(), number as usize * 997 % 4000, "seed {seed}");
            assert_eq!(got, bytes[from..from + got.len()], "seed {seed}: {number}");
        }
        let early = pairs.iter().map(|[_, second]| {
            let standing = network.hosts[1].engine.queue_pair_statistics(*second);
            standing.expect("there").counters.early_messages
        });
        let early: Vec<_> = early.collect();
        println!("seed {seed}: {early:?} before their turn");
        assert!(
            early.iter().all(|count| *count > 0),
            "seed {seed}: {early:?}"
        );
        network.close();
    }
}

/// HT-1, HT-3: connections that wait for shared receives get them in turn.
#[test]
fn those_that_wait_take_turns() {
    let mut network = network(6);
    let shared = shared_queue(&mut network, 16, 0);
    let pairs: Vec<_> = (0..6)
        .map(|_| connected(&mut network, shared, 16, false))
        .collect();
    for [first, _] in &pairs {
        for number in 0..40 {
            send(&mut network, *first, number, 64);
        }
    }
    network.pass(Span::from_millis(5));
    for count in 0..120 {
        post(&mut network, shared, count).expect("room");
        let done = |net: &mut Network| received(net).len() as u64 == count + 1;
        assert!(network.run(Span::from_secs(2), done), "{count}");
    }
    let all = received(&network);
    for [_, second] in &pairs {
        let own = all.iter().filter(|it| it.qpn == *second).count();
        assert!((19..=21).contains(&own), "{own} of 120");
    }
    network.close();
}

/// HT-1, HT-3: a connection whose completions nobody polls takes no more receives than it has room
/// for, and goes on once they are polled. Others are not in its way.
#[test]
fn room_for_completions_bounds_what_is_taken() {
    for plain in MODES {
        let mut network = network(7);
        let shared = shared_queue(&mut network, 64, 0);
        let [first, _] = connected(&mut network, shared, 4, plain);
        for wr_id in 0..20 {
            post(&mut network, shared, wr_id).expect("room");
            send(&mut network, first, wr_id, 64);
        }
        network.hosts[1].polls = false;
        network.pass(Span::from_millis(20));
        let standing = network.hosts[1].engine.shared_queue(shared).expect("there");
        // The send queue's part of the completion queue is unused.
        assert_eq!(standing.posted, 0, "sixteen and four fit");
        for wr_id in 20..30 {
            post(&mut network, shared, wr_id).expect("room");
            send(&mut network, first, wr_id, 64);
        }
        network.pass(Span::from_millis(20));
        let standing = network.hosts[1].engine.shared_queue(shared).expect("there");
        assert_eq!(standing.posted, 10, "plain: {plain}");
        network.hosts[1].polls = true;
        let done = network.run(Span::from_secs(2), |net| received(net).len() == 30);
        assert!(done, "plain: {plain}, {}", received(&network).len());
        network.close();
    }
}

/// HT-1, HT-2: impossible lengths and limits, and queues of other protection domains, are refused.
#[test]
fn what_is_not_possible_is_refused() {
    let mut network = network(8);
    let shared = shared_queue(&mut network, 2, 0);
    let host = &mut network.hosts[1];
    let other = host.engine.create_domain().expect("room");
    let request = |domain, max_wr, limit| SharedQueueRequest {
        domain,
        max_wr,
        limit,
    };
    for (max_wr, limit) in [(0, 0), (16_385, 0), (4, 5)] {
        let made = host
            .engine
            .create_shared_queue(request(other, max_wr, limit));
        assert_eq!(made, Err(EngineError::SharedLength));
    }
    let queue_pair = |domain| QueuePairRequest {
        domain,
        send_cq: host.cq,
        receive_cq: host.cq,
        max_send_wr: 1,
        max_recv_wr: 1,
        shared: Some(shared),
        signal_all: false,
    };
    let refused = host.engine.create_queue_pair(queue_pair(other));
    assert_eq!(refused, Err(EngineError::Unknown));
    let own = host.engine.create_queue_pair(queue_pair(host.domain));
    let own = own.expect("the same domain");
    let init = Transition::Init(PEERS);
    host.engine.modify_queue_pair(own, &init).expect("legal");
    let receive = ReceiveRequest {
        wr_id: 0,
        lkey: 0,
        addr: 0,
        len: 0,
    };
    let posted = host.engine.post_receive(own, receive);
    assert_eq!(posted, Err(EngineError::Argument), "it has no receives");
    let full = (0..3).map(|_| host.engine.post_shared_receive(shared, receive));
    let full: Vec<_> = full.collect();
    assert_eq!(full, [Ok(()), Ok(()), Err(EngineError::QueueFull)]);
    host.engine.destroy_queue_pair(own).expect("there");
    assert_eq!(host.engine.destroy_shared_queue(shared), Ok(()));
    let gone = host.engine.post_shared_receive(shared, receive);
    assert_eq!(gone, Err(EngineError::Unknown));
    host.engine.destroy_domain(other).expect("empty");
    network.close();
}

/// HT-3: a full queue tells once when there is room for a receive that it refused, and only then:
/// who posts more than it holds need not be looked at each turn.
#[test]
fn a_full_queue_tells_when_it_has_room() {
    let mut network = network(9);
    let shared = shared_queue(&mut network, 2, 0);
    let qpns = connected(&mut network, shared, 8, false);
    let relieved = |network: &mut Network| network.hosts[1].engine.next_relieved_shared_queue();
    for wr_id in 0..2 {
        post(&mut network, shared, wr_id).expect("room");
    }
    send(&mut network, qpns[0], 1, BUFFER);
    network.pass(Span::from_millis(50));
    assert_eq!(received(&network).len(), 1);
    assert_eq!(relieved(&mut network), None, "nothing was refused");
    post(&mut network, shared, 2).expect("room");
    assert_eq!(post(&mut network, shared, 3), Err(EngineError::QueueFull));
    assert_eq!(post(&mut network, shared, 3), Err(EngineError::QueueFull));
    assert_eq!(relieved(&mut network), None, "still full");
    send(&mut network, qpns[0], 2, BUFFER);
    send(&mut network, qpns[0], 3, BUFFER);
    network.pass(Span::from_millis(50));
    assert_eq!(relieved(&mut network), Some(shared));
    assert_eq!(relieved(&mut network), None, "once");
    network.close();
}
