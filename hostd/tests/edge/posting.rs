//! Requests that nobody can carry out: before the connection, after it, and without a daemon.

use crate::rig::{PATIENCE, config, pair};
use hostd_client::{
    Access, CompletionStatus, Error, ErrorCode, Private, QueuePairOptions, SendRequest,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// HT-1, HT-3: a request is refused before a connection was asked for, completes as flushed after
/// its end, and is refused when the daemon is gone; none waits for ever. Both sides have the data
/// that the other gave for the set-up.
#[test]
fn no_request_waits_for_ever() {
    let (a, b) = pair(&config());
    let (active, passive) = (a.application(), b.application());
    let mut queue = active.create_completion_queue(16).expect("a queue");
    let other = passive.create_completion_queue(16).expect("a queue");
    let options = QueuePairOptions::default();
    let qp = active.create_queue_pair(&queue, &queue, options);
    let mut qp = qp.expect("a queue pair");
    let memory = active.allocate(64, Access::LOCAL_WRITE).expect("memory");
    let request = SendRequest::send(7, memory.slice(0, 64).expect("inside"));
    let early = qp.post_send(&request);
    assert!(
        matches!(
            &early,
            Err(Error::Refused { code: ErrorCode::InvalidState, text }) if text.contains("INIT")
        ),
        "{early:?}"
    );
    assert!(qp.post_send_inline(&request, &[1]).is_err());

    let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let listener = passive.listen(any, 0, 1).expect("a listener");
    let peer = SocketAddr::new(b.address, listener.port());
    let data = |text: &[u8]| Private::new(text).expect("short");
    let accepting = std::thread::spawn(move || {
        let pair = passive.create_queue_pair(&other, &other, options);
        let mut pair = pair.expect("a queue pair");
        let request = listener.get_request(PATIENCE).expect("a request");
        let connected = request.accept(&mut pair, data(b"from b"), PATIENCE);
        let connected = connected.expect("accepted");
        assert_eq!(connected.private.as_slice(), b"from a");
        pair.disconnect(PATIENCE).expect("closed");
        (pair, other, passive)
    });
    let connected = qp.connect(peer, data(b"from a"), PATIENCE);
    let connected = connected.expect("connected");
    assert!(connected.private.as_slice().starts_with(b"from b"));
    let _peer = accepting.join().expect("no panic");
    let reason = qp.wait_disconnected(PATIENCE).expect("it ends");
    assert_eq!(reason, ErrorCode::Closed);
    let again = qp.connect(peer, Private::EMPTY, PATIENCE);
    let again = again.expect_err("once").to_string();
    assert!(again.contains("one connects once"), "{again}");

    qp.post_send(&request).expect("as in verbs");
    let completion = queue.next(PATIENCE).expect("it completes");
    assert_eq!(
        (completion.wr_id, completion.status),
        (7, CompletionStatus::Flushed)
    );

    drop(a);
    // A library that has just looked for the daemon does so again some milliseconds later.
    let until = Instant::now() + PATIENCE;
    let gone = loop {
        match qp.post_send(&request) {
            Err(Error::DaemonGone) => break true,
            _ if Instant::now() > until => break false,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    assert!(gone, "requests are taken without a daemon");
}
