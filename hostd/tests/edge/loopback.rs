//! Applications of one host that connect to one another.

use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{
    Access, CompletionQueue, Context, Listener, Private, QueuePair, QueuePairOptions,
    ReceiveRequest, Region, RemoteSlice, SendRequest,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const LEN: usize = 1 << 20;

struct End {
    context: Context,
    queue: CompletionQueue,
    queue_pair: QueuePair,
    memory: Region,
}

fn end(daemon: &Daemon) -> End {
    let context = daemon.application();
    let queue = context.create_completion_queue(64).expect("a queue");
    let options = QueuePairOptions::default();
    let queue_pair = context
        .create_queue_pair(&queue, &queue, options)
        .expect("a queue pair");
    let access = Access::LOCAL_WRITE
        .with(Access::REMOTE_WRITE)
        .with(Access::REMOTE_READ);
    let memory = context.allocate(LEN, access).expect("memory");
    End {
        context,
        queue,
        queue_pair,
        memory,
    }
}

impl End {
    fn remote(&self) -> RemoteSlice {
        RemoteSlice {
            address: 0,
            rkey: self.memory.rkey(),
        }
    }

    fn next(&mut self) -> u64 {
        let completion = self.queue.next(PATIENCE).expect("a completion");
        assert!(completion.is_success(), "{completion:?}");
        completion.wr_id
    }
}

fn listener(end: &End) -> Listener {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    end.context.listen(any, 0, 8).expect("a listener")
}

/// Connects `first` to a listener of `second`'s, at `address`.
fn connect(first: &mut End, second: &mut End, address: IpAddr) {
    let listener = listener(second);
    let peer = SocketAddr::new(address, listener.port());
    let queue_pair = &mut second.queue_pair;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let request = listener.get_request(PATIENCE).expect("a request");
            assert_eq!(request.peer(), address, "it came from the same host");
            request
                .accept(queue_pair, Private::EMPTY, PATIENCE)
                .expect("accepted");
        });
        first
            .queue_pair
            .connect(peer, Private::EMPTY, PATIENCE)
            .expect("connected");
    });
}

/// Sends and writes both ways, and reads back.
fn exchange(first: &mut End, second: &mut End, rounds: u8) {
    for round in 0..rounds {
        for (from, to) in [(true, 1), (false, 2)] {
            let (from, into) = if from {
                (&mut *first, &mut *second)
            } else {
                (&mut *second, &mut *first)
            };
            let local = into.memory.slice(0, 9000).expect("inside");
            let receive = ReceiveRequest { wr_id: 7, local };
            into.queue_pair.post_receive(&receive).expect("posted");
            let bytes = vec![round ^ to; 9000];
            from.memory.write(10_000, &bytes).expect("inside");
            let local = from.memory.slice(10_000, 9000).expect("inside");
            let send = SendRequest::send(8, local);
            from.queue_pair.post_send(&send).expect("posted");
            assert_eq!((from.next(), into.next()), (8, 7));
            let mut got = vec![0; 9000];
            into.memory.read(0, &mut got).expect("inside");
            assert!(got == bytes, "round {round}");
            let local = from.memory.slice(500_000, 9000).expect("inside");
            let read = SendRequest::read(9, local, into.remote());
            from.queue_pair.post_send(&read).expect("posted");
            assert_eq!(from.next(), 9);
            from.memory.read(500_000, &mut got).expect("inside");
            assert!(got == bytes, "round {round}");
        }
    }
}

/// HT-1: two applications of a host reach each other, as well as an application itself, by the
/// host's own address; nothing of it is seen on the wire, and nothing is left behind.
#[test]
fn a_host_reaches_itself() {
    let (a, b) = pair(&config());
    {
        let (mut first, mut second) = (end(&a), end(&a));
        connect(&mut first, &mut second, a.address);
        exchange(&mut first, &mut second, 20);
        let standing = a.report();
        assert_eq!(standing.queue_pairs.len(), 2);
        for (_, queue_pair, _) in &standing.queue_pairs {
            assert_eq!(queue_pair.remote, Some(a.address));
        }
        first.queue_pair.disconnect(PATIENCE).expect("closed");
        let reason = second.queue_pair.wait_disconnected(PATIENCE);
        assert_eq!(reason.expect("told"), hostd_client::ErrorCode::Closed);
    }
    a.wait_empty();
    let standing = a.report();
    assert_eq!(standing.engine.drops.total(), 0, "{:?}", standing.engine);
    assert_eq!(b.report().engine.rx_packets, 0, "on the wire");
}

/// HT-1: nobody listens there is told as by any other host.
#[test]
fn nobody_listens_here() {
    let (a, b) = pair(&config());
    let mut lonely = end(&a);
    let failed = lonely
        .queue_pair
        .connect(SocketAddr::new(a.address, 9), Private::EMPTY, PATIENCE);
    let text = failed.expect_err("nobody listens").to_string();
    assert!(text.contains("nobody listens"), "{text}");
    assert_eq!(b.report().engine.rx_packets, 0, "on the wire");
}

/// HT-1, HT-3: a connection within the host that never rests leaves the wire to others, and theirs
/// leave it its turns.
#[test]
fn loopback_and_wire_take_turns() {
    let (a, b) = pair(&config());
    let (mut inner, mut other) = (end(&a), end(&a));
    connect(&mut inner, &mut other, a.address);
    let (mut outer, mut peer) = (end(&a), end(&b));
    connect_across(&mut outer, &mut peer, a.address, b.address);
    let post = |from: &mut End, to: RemoteSlice| {
        let local = from.memory.slice(0, LEN).expect("inside");
        let write = SendRequest::write(1, local, to);
        from.queue_pair.post_send(&write).expect("posted");
    };
    for _ in 0..16 {
        post(&mut inner, other.remote());
        post(&mut outer, peer.remote());
    }
    let mut done = [0_u32; 2];
    while done.iter().sum::<u32>() < 32 {
        for (count, end) in done.iter_mut().zip([&mut inner, &mut outer]) {
            while let Some(completion) = end.queue.poll().expect("the daemon lives") {
                assert!(completion.is_success(), "{completion:?}");
                *count += 1;
            }
        }
        let starved = done.contains(&16) && done.contains(&0);
        assert!(!starved, "{done:?}: one waited for all of the other");
        std::thread::yield_now();
    }
}

fn connect_across(first: &mut End, second: &mut End, own: IpAddr, address: IpAddr) {
    let listener = listener(second);
    let peer = SocketAddr::new(address, listener.port());
    let queue_pair = &mut second.queue_pair;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let request = listener.get_request(PATIENCE).expect("a request");
            assert_eq!(request.peer(), own);
            request
                .accept(queue_pair, Private::EMPTY, PATIENCE)
                .expect("accepted");
        });
        first
            .queue_pair
            .connect(peer, Private::EMPTY, PATIENCE)
            .expect("connected");
    });
}
