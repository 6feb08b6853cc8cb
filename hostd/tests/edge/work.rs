//! What applications do: connect, send, receive, write.

use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd::edge::command::Command;
use hostd_client::{
    Access, AtomicOperation, ByHand, Completion, CompletionOpcode, CompletionQueue,
    CompletionStatus, Context, Error, ErrorCode, Private, QueuePair, QueuePairOptions,
    ReceiveRequest, Region, RemoteSlice, SendRequest, Slice,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) queue: CompletionQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) memory: Region,
}

fn end(daemon: &Daemon) -> End {
    end_of(daemon, 32)
}

/// An end whose queues have this many entries.
fn end_of(daemon: &Daemon, entries: u32) -> End {
    let context = daemon.application();
    let queue = context
        .create_completion_queue(2 * entries)
        .expect("a completion queue");
    let options = QueuePairOptions {
        send_entries: entries,
        receive_entries: entries,
    };
    let queue_pair = context
        .create_queue_pair(&queue, &queue, options)
        .expect("a queue pair");
    let access = Access::LOCAL_WRITE
        .with(Access::REMOTE_WRITE)
        .with(Access::REMOTE_READ)
        .with(Access::REMOTE_ATOMIC);
    let memory = context.allocate(1 << 20, access).expect("memory");
    End {
        context,
        queue,
        queue_pair,
        memory,
    }
}

impl End {
    fn receive(&mut self, wr_id: u64, offset: usize, len: usize) {
        let local = self.memory.slice(offset, len).expect("inside");
        self.queue_pair
            .post_receive(&ReceiveRequest { wr_id, local })
            .expect("posted");
    }

    fn send(&mut self, wr_id: u64, bytes: &[u8]) {
        self.memory.write(0, bytes).expect("inside");
        let local = self.memory.slice(0, bytes.len()).expect("inside");
        self.queue_pair
            .post_send(&SendRequest::send(wr_id, local))
            .expect("posted");
    }

    fn next(&mut self) -> Completion {
        self.queue.next(PATIENCE).expect("a completion")
    }
}

/// Two ends, connected; `before` prepares the passive one.
pub(crate) fn connected(a: &Daemon, b: &Daemon, before: impl FnOnce(&mut End)) -> (End, End) {
    let (active, mut passive) = (end(a), end(b));
    before(&mut passive);
    connect(a, b, active, passive)
}

fn connect(a: &Daemon, b: &Daemon, mut active: End, mut passive: End) -> (End, End) {
    let listener = passive.context.listen(ANY, 0, 8).expect("a listener");
    let peer = SocketAddr::from((b.address, listener.port()));
    let hello = Private::new(b"hello").expect("short");
    let thread = std::thread::spawn(move || {
        let done = active
            .queue_pair
            .connect(peer, hello, PATIENCE)
            .expect("connected");
        (active, done)
    });
    let request = listener.get_request(PATIENCE).expect("a request");
    assert_eq!(&request.private().as_slice()[..5], b"hello");
    assert_eq!(request.peer(), a.address);
    let welcome = Private::new(b"welcome").expect("short");
    let accepted = request
        .accept(&mut passive.queue_pair, welcome, PATIENCE)
        .expect("accepted");
    let (active, done) = thread.join().expect("the active side");
    assert_eq!(&done.private.as_slice()[..7], b"welcome");
    assert_eq!((done.peer, accepted.peer), (b.address, a.address));
    assert_eq!((done.paths, done.mtu), (8, 2048));
    (active, passive)
}

/// HT-1: an application reads memory of another one, and does atomic operations on it; what it may
/// not read is refused.
#[test]
fn memory_of_a_peer_is_read_and_changed_atomically() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |_| {});
    let bytes: Vec<_> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    passive.memory.write(64, &bytes).expect("inside");
    passive
        .memory
        .write(8, &41_u64.to_ne_bytes())
        .expect("inside");
    let rkey = passive.memory.rkey();
    let local = |end: &End, offset, len| end.memory.slice(offset, len).expect("inside");
    let word = local(&active, 16, 8);
    let remote = |address| RemoteSlice { address, rkey };
    let add = AtomicOperation::FetchAdd(1);
    let swap = AtomicOperation::CompareSwap {
        compare: 42,
        swap: 7,
    };
    let whole = local(&active, 1000, bytes.len());
    let requests = [
        SendRequest::read(1, whole, remote(64)),
        SendRequest::atomic(2, local(&active, 0, 8), remote(8), add),
        SendRequest::atomic(3, local(&active, 8, 8), remote(8), swap),
        SendRequest::read(4, word, remote(8)).fenced(),
    ];
    let posted = active.queue_pair.post_sends(&requests).expect("a ring");
    assert_eq!(posted, requests.len());
    use CompletionOpcode::{CompareSwap, FetchAdd, Read};
    for (wr_id, opcode, len) in [
        (1, Read, 300_000),
        (2, FetchAdd, 8),
        (3, CompareSwap, 8),
        (4, Read, 8),
    ] {
        let done = active.next();
        assert_eq!(done.status, CompletionStatus::Success);
        assert_eq!(
            (done.wr_id, done.opcode, done.byte_len),
            (wr_id, opcode, len)
        );
    }
    let mut got = vec![0; bytes.len()];
    active.memory.read(1000, &mut got).expect("inside");
    assert!(got == bytes);
    let found = [0, 8, 16].map(|offset| {
        let mut word = [0; 8];
        active.memory.read(offset, &mut word).expect("inside");
        u64::from_ne_bytes(word)
    });
    assert_eq!(found, [41, 42, 7]);
    let mut wrong = SendRequest::atomic(5, word, remote(8), add);
    wrong.local = local(&active, 0, 9);
    let refused = active.queue_pair.post_send(&wrong);
    assert!(matches!(refused, Err(Error::AtomicLength(9))));
    // A region that peers may only write.
    let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let closed = passive.context.allocate(4096, access).expect("memory");
    let forbidden = RemoteSlice {
        address: 0,
        rkey: closed.rkey(),
    };
    let request = SendRequest::read(6, word, forbidden);
    active.queue_pair.post_send(&request).expect("room");
    // Not that the connection has ended, which is told after it.
    assert_eq!(active.next().status, CompletionStatus::RemoteAccess);
    assert!(
        passive.queue.poll().expect("a ring").is_none(),
        "it knows nothing"
    );
    let reasons = [&active, &passive].map(|end| end.queue_pair.wait_disconnected(PATIENCE).ok());
    let expected = [ErrorCode::RequestFailed, ErrorCode::Access];
    assert_eq!(reasons, expected.map(Some), "which rule was broken");
    for end in [&mut active, &mut passive] {
        let left = end.queue_pair.disconnect(PATIENCE);
        left.expect("what is over has ended");
    }
}

/// HT-1: SEND with and without immediate data, WRITE with and without, all with their completions.
#[test]
fn messages_and_writes_arrive() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |end| {
        end.receive(7, 1000, 500);
        end.receive(8, 2000, 100_000);
        end.receive(9, 0, 0);
    });
    active.send(1, b"a message");
    let got = passive.next();
    assert_eq!(
        (got.wr_id, got.opcode, got.byte_len),
        (7, CompletionOpcode::Receive, 9)
    );
    assert_eq!(got.queue_pair, passive.queue_pair.id());
    let mut bytes = [0; 9];
    passive.memory.read(1000, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"a message");
    let done = active.next();
    assert_eq!(
        (done.wr_id, done.opcode, done.is_success()),
        (1, CompletionOpcode::Send, true)
    );

    let long: Vec<u8> = (0..90_000_u32)
        .map(|i| i.to_le_bytes()[1] ^ i.to_le_bytes()[0])
        .collect();
    active.memory.write(0, &long).expect("inside");
    let local = active.memory.slice(0, long.len()).expect("inside");
    let request = SendRequest::send(2, local).with_immediate(77);
    active.queue_pair.post_send(&request).expect("posted");
    let got = passive.next();
    assert_eq!(
        (got.wr_id, got.byte_len, got.immediate),
        (8, 90_000, Some(77))
    );
    let mut back = vec![0; long.len()];
    passive.memory.read(2000, &mut back).expect("inside");
    assert!(back == long);

    let remote = RemoteSlice {
        address: 500_000,
        rkey: passive.memory.rkey(),
    };
    let plain = SendRequest {
        signaled: false,
        ..SendRequest::write(3, local, remote)
    };
    active.queue_pair.post_send(&plain).expect("posted");
    let remote = RemoteSlice {
        address: 700_000,
        ..remote
    };
    let with = SendRequest::write(4, local, remote).with_immediate(78);
    active.queue_pair.post_send(&with).expect("posted");
    let got = passive.next();
    assert_eq!(
        (got.wr_id, got.opcode),
        (9, CompletionOpcode::ReceiveWriteImmediate)
    );
    assert_eq!((got.byte_len, got.immediate), (90_000, Some(78)));
    for place in [500_000, 700_000] {
        passive.memory.read(place, &mut back).expect("inside");
        assert!(back == long, "at {place}");
    }
    assert_eq!(active.next().wr_id, 2);
    assert_eq!(
        active.next().wr_id,
        4,
        "the unsignaled write completes silently"
    );
}

/// HT-1: closing flushes what is outstanding, and both sides hear of it.
#[test]
fn disconnect_flushes() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |end| {
        (0..3).for_each(|wr_id| end.receive(wr_id, 0, 100));
    });
    active.queue_pair.disconnect(PATIENCE).expect("closed");
    assert_eq!(
        passive.queue_pair.wait_disconnected(PATIENCE).ok(),
        Some(ErrorCode::Closed)
    );
    for wr_id in 0..3 {
        let flushed = passive.next();
        assert_eq!(
            (flushed.wr_id, flushed.status),
            (wr_id, CompletionStatus::Flushed)
        );
    }
    passive.send(9, b"too late");
    assert_eq!(passive.next().status, CompletionStatus::Flushed);
    // It is closed: nothing more is to be done.
    active.queue_pair.disconnect(PATIENCE).expect("closed");
    passive.queue_pair.disconnect(PATIENCE).expect("closed");
}

/// HT-1: what was posted before a connection is closed arrives, also when it is more than a turn
/// takes from the ring; and what is posted afterwards is flushed, and does not break the queue
/// pair.
#[test]
fn what_was_posted_before_the_end_arrives() {
    const COUNT: u32 = 500;
    let (a, b) = pair(&config());
    let (active, mut passive) = (end_of(&a, 512), end_of(&b, 512));
    for wr_id in 0..COUNT {
        passive.receive(wr_id.into(), 0, 100);
    }
    let (mut active, mut passive) = connect(&a, &b, active, passive);
    for wr_id in 0..COUNT {
        active.send(wr_id.into(), b"before the end");
    }
    active.queue_pair.disconnect(PATIENCE).expect("closed");
    active.send(u64::from(COUNT), b"after it");
    for wr_id in 0..COUNT {
        for end in [&mut active, &mut passive] {
            let done = end.next();
            assert_eq!(
                (done.wr_id, done.status),
                (wr_id.into(), CompletionStatus::Success)
            );
        }
    }
    assert_eq!(active.next().status, CompletionStatus::Flushed);
    let reason = passive.queue_pair.wait_disconnected(PATIENCE);
    assert_eq!(reason.ok(), Some(ErrorCode::Closed));
}

/// HT-1, HT-3: an application that does not take its completions stops itself and nobody else, and
/// loses none when it goes on.
#[test]
fn a_full_completion_queue_waits() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |_| {});
    const COUNT: u64 = 500;
    let receiver = std::thread::spawn(move || {
        let (mut posted, mut got) = (0, 0);
        while got < COUNT {
            let local = passive.memory.slice(0, 64).expect("inside");
            let request = ReceiveRequest {
                wr_id: posted,
                local,
            };
            if posted < COUNT && passive.queue_pair.post_receive(&request).is_ok() {
                posted += 1;
                continue;
            }
            // Slow enough that its completion ring fills again and again.
            std::thread::sleep(Duration::from_millis(2));
            while let Some(completion) = passive.queue.poll().expect("a sound ring") {
                assert!(completion.is_success());
                assert_eq!(completion.wr_id, got);
                got += 1;
            }
        }
        passive
    });
    let (mut sent, mut done) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while done < COUNT {
        let local = active.memory.slice(0, 64).expect("inside");
        if sent < COUNT
            && active
                .queue_pair
                .post_send(&SendRequest::send(sent, local))
                .is_ok()
        {
            sent += 1;
            continue;
        }
        let completion = active.queue.next(PATIENCE).expect("a completion");
        assert!(completion.is_success(), "{completion:?}");
        assert_eq!(completion.wr_id, done);
        done += 1;
        assert!(Instant::now() < until, "{done} of {COUNT}");
    }
    drop(receiver.join().expect("the receiver"));
}

/// HT-2: a waiting application is woken, and one that waits for nothing has its time-out.
#[test]
fn waiting_ends() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |end| end.receive(1, 0, 100));
    assert!(
        !active
            .queue
            .wait(Duration::from_millis(20))
            .expect("no fault")
    );
    let sleeper = std::thread::spawn(move || {
        let completion = passive.next();
        (passive, completion)
    });
    std::thread::sleep(Duration::from_millis(50));
    active.send(1, b"wake up");
    let (_passive, completion) = sleeper.join().expect("the sleeper");
    assert_eq!(completion.byte_len, 7);
}

/// HT-2: the death of the daemon is an error for everybody who waits, and for nobody a hang.
#[test]
fn the_death_of_the_daemon_is_noticed() {
    let (a, b) = pair(&config());
    let (mut active, passive) = connected(&a, &b, |end| end.receive(1, 0, 100));
    let listener = passive.context.listen(ANY, 0, 8).expect("a listener");
    let waiting = std::thread::spawn(move || listener.get_request(PATIENCE).map(drop));
    let polling = std::thread::spawn(move || {
        let mut passive = passive;
        loop {
            match passive.queue.poll() {
                Ok(_) => std::hint::spin_loop(),
                Err(error) => return error,
            }
        }
    });
    drop(b);
    assert!(matches!(
        waiting.join().expect("no panic"),
        Err(Error::DaemonGone)
    ));
    assert!(matches!(
        polling.join().expect("no panic"),
        Error::DaemonGone
    ));
    drop(a);
    assert!(matches!(
        active.queue.next(PATIENCE),
        Err(Error::DaemonGone)
    ));
    assert!(matches!(
        active.context.create_completion_queue(1),
        Err(Error::DaemonGone)
    ));
}

/// HT-2: a daemon that is told to end closes its connections in good order, and takes no new ones.
#[test]
fn draining_closes_connections() {
    let (a, b) = pair(&config());
    let (active, passive) = connected(&a, &b, |end| end.receive(1, 0, 100));
    let (answer, drained) = tokio::sync::oneshot::channel();
    assert!(b.worker.tell(Command::Drain(answer)));
    for end in [&active, &passive] {
        let reason = end.queue_pair.wait_disconnected(PATIENCE);
        assert_eq!(reason.ok(), Some(ErrorCode::Closed));
    }
    drained.blocking_recv().expect("drained");
    let refused = passive.context.listen(ANY, 0, 1);
    assert!(matches!(
        refused,
        Err(Error::Refused {
            code: ErrorCode::InvalidState,
            ..
        })
    ));
}

/// HT-1: connections that cannot be say why.
#[test]
fn refusals_have_reasons() {
    let (a, b) = pair(&config());
    let mut active = end(&a);
    let nowhere = SocketAddr::from((b.address, 1));
    let refused = active.queue_pair.connect(nowhere, Private::EMPTY, PATIENCE);
    assert!(
        matches!(
            refused,
            Err(Error::ConnectFailed {
                reason: ErrorCode::Refused,
                ..
            })
        ),
        "{refused:?}"
    );

    let passive = end(&b);
    let listener = passive.context.listen(ANY, 4000, 8).expect("a listener");
    let twice = passive.context.listen(ANY, 4000, 8);
    assert!(matches!(
        twice,
        Err(Error::Refused {
            code: ErrorCode::AddressInUse,
            ..
        })
    ));
    let mut active = end(&a);
    let peer = SocketAddr::from((b.address, 4000));
    let connecting =
        std::thread::spawn(move || active.queue_pair.connect(peer, Private::EMPTY, PATIENCE));
    listener
        .get_request(PATIENCE)
        .expect("a request")
        .reject(Private::new(b"not today").expect("short"));
    match connecting.join().expect("no panic") {
        Err(Error::ConnectFailed {
            reason: ErrorCode::Rejected,
            private,
            ..
        }) => assert!(private.as_slice().starts_with(b"not today"), "{private:?}"),
        other => panic!("{other:?}"),
    }
    drop(listener);
    assert!(
        passive.context.listen(ANY, 4000, 8).is_ok(),
        "the port is free again"
    );
}

/// HT-3: what can be seen to be wrong is refused before any memory is allocated, says what it is,
/// and does not end the session.
#[test]
fn memory_is_asked_for_before_it_is_allocated() {
    let (a, _b) = pair(&config());
    let context = a.application();
    let refused = |len, access| match context.allocate(len, access) {
        Err(Error::Refused { code, text }) => (code, text),
        other => panic!("{len}: {other:?}"),
    };
    // More than any machine has: the kernel is not asked.
    let huge = 5 << 40;
    let (code, text) = refused(huge, Access::LOCAL_WRITE);
    assert_eq!(code, ErrorCode::Quota);
    assert!(
        text.contains(&huge.to_string()) && text.contains("memory_mib"),
        "{text}"
    );
    // What is held counts; a second huge one does not wrap around.
    let held = context.allocate(4096, Access::LOCAL_WRITE).expect("within");
    let rest = usize::try_from(context.limits().memory).expect("64 bits");
    assert_eq!(refused(rest, Access::LOCAL_WRITE).0, ErrorCode::Quota);
    assert_eq!(refused(usize::MAX, Access::LOCAL_WRITE).0, ErrorCode::Quota);
    drop(held);
    for (len, access, words) in [
        (0, Access::LOCAL_WRITE, "at least one byte"),
        (4096, Access::REMOTE_WRITE, "REMOTE_WRITE needs LOCAL_WRITE"),
        (
            4096,
            Access::REMOTE_ATOMIC,
            "REMOTE_ATOMIC needs LOCAL_WRITE",
        ),
    ] {
        let (code, text) = refused(len, access);
        assert_eq!(code, ErrorCode::InvalidArgument);
        assert!(text.contains(words), "{text}");
    }
    assert!(context.allocate(4096, Access::LOCAL_WRITE).is_ok());
}

/// HT-3: quotas are kept, and what is given back can be had again.
#[test]
fn quotas_are_kept() {
    let mut config = config();
    let quota = &mut config.application.quota;
    (quota.memory_mib, quota.queue_pairs, quota.completion_queues) = (1, 2, 2);
    (quota.regions, quota.listeners, quota.work_requests) = (2, 1, 64);
    quota.sessions = 3;
    let (a, _b) = pair(&config);
    let context = a.application();
    assert_eq!(context.limits().memory, 1 << 20);
    let over = |result: Result<(), Error>, what: &str| match result {
        Err(Error::Refused {
            code: ErrorCode::Quota,
            text,
        }) => assert!(text.contains("quota")),
        other => panic!("{what}: {other:?}"),
    };
    let half = context
        .allocate(1 << 19, Access::LOCAL_WRITE)
        .expect("within");
    over(
        context.allocate(1 << 20, Access::LOCAL_WRITE).map(drop),
        "memory",
    );
    let small = context.allocate(4096, Access::LOCAL_WRITE).expect("within");
    over(
        context.allocate(4096, Access::LOCAL_WRITE).map(drop),
        "regions",
    );
    drop((half, small));
    let again = context
        .allocate(900 << 10, Access::LOCAL_WRITE)
        .expect("given back");
    drop(again);

    let queue = context.create_completion_queue(64).expect("within");
    let other = context.create_completion_queue(64).expect("within");
    over(
        context.create_completion_queue(1).map(drop),
        "completion queues",
    );
    let options = |entries| QueuePairOptions {
        send_entries: entries,
        receive_entries: entries,
    };
    over(
        context
            .create_queue_pair(&queue, &queue, options(64))
            .map(drop),
        "work requests",
    );
    let first = context
        .create_queue_pair(&queue, &other, options(16))
        .expect("within");
    let _second = context
        .create_queue_pair(&queue, &queue, options(16))
        .expect("within");
    over(
        context
            .create_queue_pair(&queue, &queue, options(1))
            .map(drop),
        "queue pairs",
    );
    drop(first);
    let _third = context
        .create_queue_pair(&queue, &queue, options(16))
        .expect("given back");

    let listener = context.listen(ANY, 0, 1).expect("within");
    over(context.listen(ANY, 0, 1).map(drop), "listeners");
    drop(listener);
    let _more = [a.application(), a.application()];
    over(Context::connect(&a.socket).map(drop), "sessions");
    for wrong in [0, u32::MAX] {
        let refused = context.create_completion_queue(wrong);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{wrong}");
    }
    let slice = Slice::EMPTY;
    assert!(slice.is_empty());
}

/// HT-1, HT-10: a queue pair is set up by hand only as it can work, or not at all; who asks is told
/// what is wrong. It ends for its application alone.
#[test]
fn queue_pairs_by_hand() {
    let (a, b) = pair(&config());
    let mut end = end(&a);
    let right = ByHand {
        peer_number: 17,
        ..ByHand::new(a.address, b.address)
    };
    let wrong = [
        (
            ByHand {
                local: b.address,
                ..right
            },
            "is no address of cable",
        ),
        (ByHand { mtu: 4096, ..right }, "at most 2048"),
        (ByHand { mtu: 1500, ..right }, "out of range"),
        (
            ByHand {
                peer_number: 1 << 24,
                ..right
            },
            "out of range",
        ),
        (
            ByHand {
                peer_psn: 1 << 24,
                ..right
            },
            "out of range",
        ),
        (
            ByHand {
                psn: 1 << 24,
                ..right
            },
            "out of range",
        ),
        (
            ByHand {
                rnr_retry: 8,
                ..right
            },
            "out of range",
        ),
        (
            ByHand {
                max_rd_atomic: 129,
                ..right
            },
            "out of range",
        ),
    ];
    for (by_hand, text) in wrong {
        let error = end.queue_pair.connect_by_hand(&by_hand);
        let error = error.expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
    end.queue_pair.connect_by_hand(&right).expect("possible");
    let again = end.queue_pair.connect_by_hand(&right).unwrap_err();
    assert!(again.to_string().contains("state"), "{again}");
    end.queue_pair.disconnect(PATIENCE).expect("it ends");
}
