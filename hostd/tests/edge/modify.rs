//! Applications that take queue pairs through their states by hand.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{
    Access, CompletionStatus, Error, QueuePairAttributes, QueuePairState, ReceiveRequest,
    SendRequest,
};
use std::net::IpAddr;
use std::time::Duration;

fn end(daemon: &Daemon) -> End {
    End::new(daemon, 64, (4096, Access::LOCAL_WRITE))
}

fn ready(end: &mut End, peer: u32, address: IpAddr) {
    let receive = QueuePairAttributes {
        destination: Some(address),
        destination_number: Some(peer),
        rq_psn: Some(5),
        path_mtu: Some(1024),
        min_rnr_timer: Some(12),
        max_dest_rd_atomic: Some(1),
        ..QueuePairAttributes::default()
    };
    let send = QueuePairAttributes {
        sq_psn: Some(5),
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
    ready(&mut first, numbers[1], b.address);
    ready(&mut second, numbers[0], a.address);
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
        (QueuePairState::Reset, none, "make another one"),
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
