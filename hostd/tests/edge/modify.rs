//! Applications that take queue pairs through their states by hand.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{
    Access, CompletionStatus, Error, ErrorCode, QueuePairAttributes, QueuePairState,
    ReceiveRequest, SendRequest,
};
use std::net::IpAddr;
use std::time::Duration;

fn end(daemon: &Daemon) -> End {
    End::new(daemon, 64, (4096, Access::LOCAL_WRITE))
}

/// To RTS; both sides begin at the same packet sequence number.
fn ready(end: &mut End, peer: u32, address: IpAddr, psn: u32) {
    let receive = QueuePairAttributes {
        destination: Some(address),
        destination_number: Some(peer),
        rq_psn: Some(psn),
        path_mtu: Some(1024),
        min_rnr_timer: Some(12),
        max_dest_rd_atomic: Some(1),
        ..QueuePairAttributes::default()
    };
    let send = QueuePairAttributes {
        sq_psn: Some(psn),
        timeout: Some(14),
        retry_count: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        ..QueuePairAttributes::default()
    };
    let queue_pair = &mut end.queue_pair;
    let changes = [
        (QueuePairState::ReadyToReceive, receive),
        (QueuePairState::ReadyToSend, send),
    ];
    for (next, attributes) in changes {
        queue_pair.modify(next, &attributes).expect("legal");
    }
}

/// HT-1, HT-2: an application readies its queue pairs attribute by attribute, drains one, changes
/// it, goes on and ends it; what is refused says why.
#[test]
fn a_queue_pair_goes_through_its_states() {
    let (a, b) = pair(&config());
    let (mut first, mut second) = (end(&a), end(&b));
    let numbers = [first.queue_pair.number(), second.queue_pair.number()];
    let (state, _) = first.queue_pair.query().expect("told");
    assert_eq!(state, QueuePairState::Init);
    ready(&mut first, numbers[1], b.address, 5);
    ready(&mut second, numbers[0], a.address, 5);
    let none = QueuePairAttributes::default();
    let drain = QueuePairAttributes {
        notify_drained: Some(true),
        ..none
    };
    let sqd = QueuePairState::SendQueueDrained;
    first.queue_pair.modify(sqd, &drain).expect("legal");
    assert!(first.queue_pair.wait_drained(PATIENCE).expect("told"));
    let local = second.memory.slice(0, 100).expect("inside");
    let receive = ReceiveRequest { wr_id: 1, local };
    second.queue_pair.post_receive(&receive).expect("posted");
    let local = first.memory.slice(0, 100).expect("inside");
    let send = SendRequest::send(2, local);
    first.queue_pair.post_send(&send).expect("posted");
    let waiting = first.queue.wait(Duration::from_millis(50));
    assert!(!waiting.expect("the daemon lives"), "nothing begins in SQD");
    let retries = QueuePairAttributes {
        retry_count: Some(3),
        timeout: Some(10),
        ..none
    };
    let rts = QueuePairState::ReadyToSend;
    for (next, given, text) in [
        (rts, retries, "SQD to RTS does not take timeout"),
        (QueuePairState::Init, none, "no way from SQD to INIT"),
    ] {
        let refused = first.queue_pair.modify(next, &given);
        let Err(Error::Refused { text: told, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(told.contains(text), "{told}");
    }
    first.queue_pair.modify(sqd, &retries).expect("legal");
    first.queue_pair.modify(rts, &none).expect("legal");
    let done = first.queue.next(PATIENCE).expect("a completion");
    assert_eq!((done.wr_id, done.status), (2, CompletionStatus::Success));
    let (state, attributes) = first.queue_pair.query().expect("told");
    assert_eq!(state, rts);
    assert_eq!(attributes.retry_count, Some(3));
    assert_eq!(attributes.destination, Some(b.address));
    first.queue_pair.post_receive(&receive).expect("posted");
    first
        .queue_pair
        .modify(QueuePairState::Error, &none)
        .expect("legal");
    let flushed = first.queue.next(PATIENCE).expect("a completion");
    assert_eq!(flushed.status, CompletionStatus::Flushed);
}

fn reset(end: &mut End) {
    let none = QueuePairAttributes::default();
    let access = Some(Access::LOCAL_WRITE.with(Access::REMOTE_WRITE));
    let begin = QueuePairAttributes { access, ..none };
    let queue_pair = &mut end.queue_pair;
    let (to_reset, to_init) = (QueuePairState::Reset, QueuePairState::Init);
    queue_pair.modify(to_reset, &none).expect("from any state");
    let (state, attributes) = queue_pair.query().expect("told");
    assert_eq!((state, attributes), (to_reset, none));
    // In RESET nothing may be posted, and INIT needs the rights of the peer.
    let local = end.memory.slice(0, 100).expect("inside");
    let request = ReceiveRequest { wr_id: 0, local };
    for early in [
        queue_pair.post_receive(&request),
        queue_pair.post_receive_list(0, &[local]),
        queue_pair.post_send(&SendRequest::send(0, local)),
        queue_pair.modify(to_init, &none),
        queue_pair.modify(QueuePairState::ReadyToReceive, &none),
    ] {
        let Err(Error::Refused { text, .. }) = early else {
            panic!("{early:?}");
        };
        let why = [
            "in RESET",
            "needs qp_access_flags",
            "no way from RESET",
            "RESET to RTR",
        ];
        assert!(why.iter().any(|it| text.contains(it)), "{text}");
    }
    queue_pair.modify(to_init, &begin).expect("legal");
    let (state, attributes) = queue_pair.query().expect("told");
    assert_eq!((state, attributes), (to_init, begin));
    // INIT to INIT takes other rights.
    let access = Some(Access::LOCAL_WRITE);
    let other = QueuePairAttributes { access, ..none };
    queue_pair.modify(to_init, &other).expect("legal");
    assert_eq!(queue_pair.query().expect("told").1, other);
}

/// Sends one message that is received.
fn message(from: &mut End, to: &mut End, wr_id: u64) {
    let local = to.memory.slice(0, 100).expect("inside");
    let receive = ReceiveRequest { wr_id, local };
    to.queue_pair.post_receive(&receive).expect("posted");
    let local = from.memory.slice(0, 100).expect("inside");
    let send = SendRequest::send(wr_id, local);
    from.queue_pair.post_send(&send).expect("posted");
    for end in [from, to] {
        let done = end.queue.next(PATIENCE).expect("a completion");
        let told = (done.wr_id, done.status);
        assert_eq!(told, (wr_id, CompletionStatus::Success));
    }
}

/// HT-1: a queue pair is reset in each state and used again, with the same peer, by connection
/// management, and by hand again. What was posted before has no completion, what happened before is
/// no event.
#[test]
fn a_queue_pair_is_reset_and_used_again() {
    let (a, b) = pair(&config());
    let (mut first, mut second) = (end(&a), end(&b));
    let numbers = [first.queue_pair.number(), second.queue_pair.number()];
    let none = QueuePairAttributes::default();
    for round in 0..5 {
        // Packets of the round before may still come.
        let psn = 100_000 * round;
        ready(&mut first, numbers[1], b.address, psn);
        ready(&mut second, numbers[0], a.address, psn);
        for wr_id in 0..40 {
            message(&mut first, &mut second, wr_id);
        }
        // Outstanding when the queue pairs are reset: sends without a receive, and receives.
        let local = first.memory.slice(0, 100).expect("inside");
        for wr_id in 0..10 {
            let send = SendRequest::send(wr_id, local);
            first.queue_pair.post_send(&send).expect("posted");
            let receive = ReceiveRequest { wr_id, local };
            first.queue_pair.post_receive(&receive).expect("posted");
        }
        let last = match round {
            0 => QueuePairState::ReadyToSend,
            1 => QueuePairState::SendQueueDrained,
            _ => QueuePairState::Error,
        };
        first.queue_pair.modify(last, &none).expect("legal");
        reset(&mut first);
        reset(&mut second);
        while let Some(old) = first.queue.poll().expect("it lives") {
            assert_eq!(old.status, CompletionStatus::Flushed, "{last:?}");
        }
        let ended = first
            .queue_pair
            .wait_disconnected(Duration::from_millis(20));
        assert!(matches!(ended, Err(Error::TimedOut)), "{ended:?}");
    }
    // With a connection, which the reset closes.
    first.connect(&mut second, b.address);
    message(&mut first, &mut second, 1);
    reset(&mut first);
    let reason = second.queue_pair.wait_disconnected(PATIENCE);
    assert_eq!(reason.expect("told"), ErrorCode::Closed);
    reset(&mut second);
    first.connect(&mut second, b.address);
    message(&mut second, &mut first, 2);
    first.queue_pair.disconnect(PATIENCE).expect("closed");
    reset(&mut first);
    reset(&mut second);
    ready(&mut first, numbers[1], b.address, 900_000);
    ready(&mut second, numbers[0], a.address, 900_000);
    message(&mut first, &mut second, 3);
    assert!(first.queue.poll().expect("it lives").is_none());
}

/// HT-1, HT-3: an application that posts in RESET all the same harms nobody: its requests stay in
/// the ring until INIT, and go with the next RESET.
#[test]
fn requests_of_the_reset_state_wait() {
    let (a, b) = pair(&config());
    let (mut first, mut second) = (end(&a), end(&b));
    let numbers = [first.queue_pair.number(), second.queue_pair.number()];
    let none = QueuePairAttributes::default();
    let local = first.memory.slice(0, 100).expect("inside");
    // As many as fit, many times over: those that a reset throws away make room.
    for round in 0..10 {
        for wr_id in 0..64 {
            let receive = ReceiveRequest { wr_id, local };
            first.queue_pair.post_receive(&receive).expect("room");
        }
        let next = [QueuePairState::Reset, QueuePairState::Error][round % 2];
        first.queue_pair.modify(next, &none).expect("legal");
        if next == QueuePairState::Error {
            for wr_id in 0..64 {
                let flushed = first.queue.next(PATIENCE).expect("a completion");
                assert_eq!(flushed.wr_id, wr_id);
            }
        }
        reset(&mut first);
    }
    assert!(first.queue.poll().expect("it lives").is_none());
    ready(&mut first, numbers[1], b.address, 5);
    ready(&mut second, numbers[0], a.address, 5);
    message(&mut second, &mut first, 7);
}
