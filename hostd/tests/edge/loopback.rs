//! Applications of one host that connect to one another.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{Access, Private, ReceiveRequest, RemoteSlice, SendRequest};
use std::net::SocketAddr;

const LEN: usize = 1 << 20;

fn end(daemon: &Daemon) -> End {
    let access = Access::LOCAL_WRITE
        .with(Access::REMOTE_WRITE)
        .with(Access::REMOTE_READ);
    End::new(daemon, 64, (LEN, access))
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
        assert_eq!(first.connect(&mut second, a.address), a.address);
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
    assert_eq!(inner.connect(&mut other, a.address), a.address);
    let (mut outer, mut peer) = (end(&a), end(&b));
    assert_eq!(outer.connect(&mut peer, b.address), a.address);
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
