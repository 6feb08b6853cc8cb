//! Queue pairs that applications take through their states by hand, attribute by attribute.

use crate::network::{Impairment, Network};
use common::time::Span;
use hostd::verbs::{
    Access, Attributes, AttributesRefused, EngineConfig, Event, MultipathConfig, ReadyToSend,
    SendOpcode, SendRequest, State, Status,
};

const SEND: ReadyToSend = ReadyToSend {
    sq_psn: 0xff_fff0,
    timeout: 14,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
};

const NONE: Attributes = Attributes {
    access: None,
    destination: None,
    destination_qpn: None,
    rq_psn: None,
    sq_psn: None,
    path_mtu: None,
    min_rnr_timer: None,
    max_dest_rd_atomic: None,
    max_rd_atomic: None,
    timeout: None,
    retry_count: None,
    rnr_retry: None,
    notify_drained: None,
};

const NOTIFY: Attributes = Attributes {
    notify_drained: Some(true),
    ..NONE
};

fn network(seed: u64) -> Network {
    Network::new(seed, [EngineConfig::default(), EngineConfig::default()])
}

fn modify(
    network: &mut Network,
    host: usize,
    qpn: u32,
    next: State,
    given: Attributes,
) -> Result<(), AttributesRefused> {
    let engine = &mut network.hosts[host].engine;
    engine.modify_attributes(qpn, next, &given)
}

fn drained(network: &Network, qpn: u32) -> usize {
    let events = network.hosts[0].events.iter();
    let drained = Event::SendQueueDrained { qpn };
    events.filter(|event| **event == drained).count()
}

fn post(network: &mut Network, qpn: u32, request: SendRequest) {
    let engine = &mut network.hosts[0].engine;
    engine.post_send(qpn, request).expect("room");
}

fn write(network: &Network, wr_id: u64, len: u32) -> SendRequest {
    SendRequest {
        opcode: SendOpcode::RdmaWrite,
        rkey: network.hosts[1].keys.rkey,
        ..network.hosts[0].send(wr_id, 0, len)
    }
}

/// HT-1: two queue pairs reach RTS by the attributes of libibverbs alone, carry a message, and tell
/// what they were given.
#[test]
fn both_ends_are_readied_by_attributes() {
    let mut network = network(1);
    let qpns = [0, 1].map(|host| network.hosts[host].queue_pair());
    for (own, other) in [(0, 1), (1, 0)] {
        let receive = Attributes {
            destination: Some(network.hosts[other].address),
            destination_qpn: Some(qpns[other]),
            rq_psn: Some(77),
            path_mtu: Some(512),
            min_rnr_timer: Some(3),
            max_dest_rd_atomic: Some(4),
            ..NONE
        };
        let send = Attributes {
            sq_psn: Some(77),
            timeout: Some(14),
            retry_count: Some(2),
            rnr_retry: Some(1),
            max_rd_atomic: Some(4),
            ..NONE
        };
        let (rtr, rts) = (State::ReadyToReceive, State::ReadyToSend);
        let early = modify(&mut network, own, qpns[own], rts, send);
        let (from, to) = (State::Init, rts);
        assert_eq!(early, Err(AttributesRefused::NoTransition { from, to }));
        assert_eq!(modify(&mut network, own, qpns[own], rtr, receive), Ok(()));
        assert_eq!(modify(&mut network, own, qpns[own], rts, send), Ok(()));
        let queried = network.hosts[own].engine.query_queue_pair(qpns[own]);
        let given = Attributes {
            access: Some(Access::ALL_REMOTE),
            sq_psn: send.sq_psn,
            timeout: send.timeout,
            retry_count: send.retry_count,
            rnr_retry: send.rnr_retry,
            max_rd_atomic: send.max_rd_atomic,
            ..receive
        };
        assert_eq!(queried, Some((rts, given)));
    }
    network.hosts[1].receive_into(qpns[1], 1, 0, 9000);
    let send = network.hosts[0].send(2, 0, 9000);
    post(&mut network, qpns[0], send);
    let done = network.run(Span::from_secs(1), |net| {
        net.hosts[0].completions.len() == 1 && net.hosts[1].completions.len() == 1
    });
    assert!(done);
    network.close();
}

/// HT-1: in SQD messages that have begun are finished, which is told once; no other begins, while
/// the peer's come in; what is posted waits for RTS, and all of it completes in order.
#[test]
fn a_send_queue_is_drained() {
    for (seed, multipath) in [(2, Some(MultipathConfig::default())), (3, None)] {
        let mut network = network(seed);
        network.impairment = Impairment {
            loss: 20,
            ..Impairment::default()
        };
        let [first, second] = network.connected_with(multipath, SEND);
        // More than can have begun when the third completes.
        for wr_id in 0..120 {
            let mut request = write(&network, wr_id, 100_000);
            if wr_id % 3 == 1 {
                request.opcode = SendOpcode::RdmaRead;
            }
            post(&mut network, first, request);
        }
        let some = |net: &mut Network| net.hosts[0].completions.len() >= 3;
        assert!(network.run(Span::from_secs(5), some));
        let drain = modify(&mut network, 0, first, State::SendQueueDrained, NOTIFY);
        assert_eq!(drain, Ok(()));
        let over = |net: &mut Network| drained(net, first) == 1;
        assert!(network.run(Span::from_secs(5), over), "it is told");
        let done = network.hosts[0].completions.len();
        assert!((3..120).contains(&done), "{done} of 120");
        let packets = |network: &Network| {
            let standing = network.hosts[0].engine.queue_pair_statistics(first);
            standing.expect("there").counters.tx_packets
        };
        let sent = packets(&network);
        let late = write(&network, 120, 10);
        post(&mut network, first, late);
        network.hosts[0].receive_into(first, 999, 0, 100);
        let back = network.hosts[1].send(1, 0, 100);
        let engine = &mut network.hosts[1].engine;
        engine.post_send(second, back).expect("room");
        network.pass(Span::from_millis(500));
        let came = network.hosts[0].completions.last().expect("the receive");
        assert_eq!((came.wr_id, came.status), (999, Status::Success));
        assert_eq!(network.hosts[0].completions.len(), done + 1);
        assert_eq!(packets(&network), sent, "nothing else leaves");
        let resumed = modify(&mut network, 0, first, State::ReadyToSend, NONE);
        assert_eq!(resumed, Ok(()));
        let all = |net: &mut Network| net.hosts[0].completions.len() == 122;
        assert!(network.run(Span::from_secs(10), all));
        let completions = network.hosts[0].completions.iter();
        let order: Vec<_> = completions
            .map(|it| it.wr_id)
            .filter(|it| *it < 999)
            .collect();
        assert_eq!(order, (0..121).collect::<Vec<_>>());
        assert_eq!(drained(&network, first), 1);
        network.close();
    }
}

/// HT-1: attributes that change in SQD and RTS count from then on: retries, RNR retries, the RNR
/// timer that is told, and what peers may do.
#[test]
fn changed_attributes_count() {
    // Retries: a peer that is gone is given up by what stands now.
    let mut network = network(4);
    let [first, _] = network.connected_with(None, SEND);
    let drain = modify(&mut network, 0, first, State::SendQueueDrained, NOTIFY);
    assert_eq!(drain, Ok(()));
    let over = |net: &mut Network| drained(net, first) == 1;
    assert!(network.run(Span::from_millis(1), over), "nothing has begun");
    let hasty = Attributes {
        timeout: Some(8),
        retry_count: Some(0),
        rnr_retry: Some(0),
        ..NONE
    };
    let changed = modify(&mut network, 0, first, State::SendQueueDrained, hasty);
    assert_eq!(changed, Ok(()));
    let resumed = modify(&mut network, 0, first, State::ReadyToSend, NONE);
    assert_eq!(resumed, Ok(()));
    network.impairment.dead = [true; 2];
    let request = write(&network, 1, 10);
    post(&mut network, first, request);
    let failed = |net: &mut Network| !net.hosts[0].completions.is_empty();
    // Eight time-outs of 67 ms before.
    assert!(network.run(Span::from_millis(200), failed));
    assert_eq!(
        network.hosts[0].completions[0].status,
        Status::RetryExceeded
    );
    network.close();

    // RNR: the peer's timer is told as it stands, and its own patience is over at once.
    let mut network = crate::modify::network(5);
    network.tap = Some(Vec::new());
    let [first, second] = network.connected_with(None, SEND);
    let slow = Attributes {
        min_rnr_timer: Some(27),
        ..NONE
    };
    let changed = modify(&mut network, 1, second, State::ReadyToSend, slow);
    assert_eq!(changed, Ok(()));
    for (next, given) in [
        (State::SendQueueDrained, NONE),
        (State::SendQueueDrained, hasty),
        (State::ReadyToSend, NONE),
    ] {
        assert_eq!(modify(&mut network, 0, first, next, given), Ok(()));
    }
    let send = network.hosts[0].send(1, 0, 10);
    post(&mut network, first, send);
    assert!(network.run(Span::from_secs(2), failed));
    assert_eq!(
        network.hosts[0].completions[0].status,
        Status::RnrRetryExceeded
    );
    let tap = network.tap.take().expect("set above");
    // The opcode follows Ethernet, IPv4 and UDP; the syndrome the BTH.
    let told = tap.iter().filter(|frame| frame[42] == 0x11);
    let told: Vec<_> = told.map(|frame| frame[54]).collect();
    assert_eq!(told, [0x20 | 27], "RNR NAK");
    network.close();

    // Rights: what peers may no longer do is refused.
    let mut network = crate::modify::network(6);
    let [first, second] = network.connected_with(None, SEND);
    let closed = Attributes {
        access: Some(Access::REMOTE_READ),
        ..NONE
    };
    let changed = modify(&mut network, 1, second, State::ReadyToSend, closed);
    assert_eq!(changed, Ok(()));
    let request = write(&network, 1, 10);
    post(&mut network, first, request);
    assert!(network.run(Span::from_secs(1), failed));
    let status = network.hosts[0].completions[0].status;
    assert_eq!(status, Status::RemoteInvalidRequest);
    network.close();
}

/// HT-1: a refused change changes nothing, and says which attribute was wrong.
#[test]
fn refusals_name_the_attribute() {
    let mut network = network(7);
    let [first, _] = network.connected_with(None, SEND);
    let before = network.hosts[0].engine.query_queue_pair(first);
    let sqd = State::SendQueueDrained;
    for (next, given, text) in [
        (
            State::ReadyToSend,
            Attributes {
                retry_count: Some(1),
                min_rnr_timer: Some(1),
                ..NONE
            },
            "RTS to RTS does not take retry_cnt",
        ),
        (
            sqd,
            Attributes {
                access: Some(Access::NONE),
                ..NONE
            },
            "RTS to SQD does not take qp_access_flags",
        ),
        (
            State::ReadyToSend,
            Attributes {
                access: Some(Access::NONE),
                min_rnr_timer: Some(32),
                ..NONE
            },
            "min_rnr_timer is out of range",
        ),
        (State::Init, NONE, "there is no way from RTS to INIT"),
    ] {
        let refused = modify(&mut network, 0, first, next, given);
        assert_eq!(refused.expect_err("refused").to_string(), text);
        let after = network.hosts[0].engine.query_queue_pair(first);
        assert_eq!(after, before, "{text}");
    }
    let unknown = modify(&mut network, 0, first ^ 1, sqd, NONE);
    assert_eq!(unknown, Err(AttributesRefused::Unknown));
    network.close();
}
