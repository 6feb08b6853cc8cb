//! Requests of several pieces, and with their bytes in the ring.

use crate::raw::{Raw, is_well, rings};
use crate::rig::{PATIENCE, config, pair};
use crate::work::{End, connected};
use hostd_client::abi::answer::{Event, FromDaemon};
use hostd_client::abi::descriptor::{Local, WORK_LEN};
use hostd_client::abi::descriptor::{
    Opcode, ReceiveWork, SGE_FIRST, SGE_MORE, SendWork, Sge, SgeList,
};
use hostd_client::abi::types::ErrorCode;
use hostd_client::{
    CompletionStatus, Error, Private, QueuePair, QueuePairOptions, RemoteSlice, SendRequest, Slice,
};
use rand_core::Rng;
use std::net::SocketAddr;
use std::time::Duration;

fn slices(end: &End, places: &[(usize, usize)]) -> Vec<Slice> {
    let slice = |&(offset, len)| end.memory.slice(offset, len).expect("inside");
    places.iter().map(slice).collect()
}

fn bytes_at(end: &End, places: &[(usize, usize)]) -> Vec<u8> {
    let mut all = Vec::new();
    for &(offset, len) in places {
        let mut bytes = vec![0; len];
        end.memory.read(offset, &mut bytes).expect("inside");
        all.extend(bytes);
    }
    all
}

/// As many places as `count`, of 0 to 600 bytes each, that do not overlap.
fn places(random: &mut rand_pcg::Pcg64Mcg, count: usize) -> Vec<(usize, usize)> {
    let len = |random: &mut rand_pcg::Pcg64Mcg| (random.next_u32() % 600) as usize;
    (0..count).map(|n| (n * 1000 + 13, len(random))).collect()
}

fn wait(end: &mut End, wr_id: u64) {
    let completion = end.queue.next(PATIENCE).expect("a completion");
    assert!(completion.is_success(), "{completion:?}");
    assert_eq!(completion.wr_id, wr_id);
}

/// HT-1: the library's lists of 0 to 16 pieces, as SEND into as many pieces, WRITE and READ,
/// through the rings and over the wire.
#[test]
fn lists_cross_the_rings() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |_| {});
    let seed = 0x5eed_0011;
    println!("seed {seed}");
    let mut random = rand_pcg::Pcg64Mcg::new(seed);
    let mut whole = vec![0; 1 << 19];
    random.fill_bytes(&mut whole);
    active.memory.write(0, &whole).expect("inside");
    let remote = RemoteSlice {
        address: 1 << 19,
        rkey: passive.memory.rkey(),
    };
    for (wr_id, count) in (0..).zip(0..=QueuePair::SGE_MAX) {
        let from = places(&mut random, count);
        let sent = bytes_at(&active, &from);
        let list = slices(&active, &from);
        let nothing = SendRequest::send(wr_id, Slice::EMPTY);
        // A SEND.
        let mut into = places(&mut random, QueuePair::SGE_MAX - count);
        into.push((1 << 18, 10_000));
        let room = slices(&passive, &into);
        let posted = passive
            .queue_pair
            .post_receive_list(wr_id, &room[..room.len().min(16)]);
        posted.expect("room");
        active
            .queue_pair
            .post_send_list(&nothing, &list)
            .expect("room");
        wait(&mut active, wr_id);
        wait(&mut passive, wr_id);
        let there = bytes_at(&passive, &into);
        if room.len() <= 16 {
            assert_eq!(there[..sent.len()], sent, "SEND of {count} pieces");
        }
        // A WRITE, and a READ back into another list.
        let write = SendRequest::write(wr_id, Slice::EMPTY, remote);
        active
            .queue_pair
            .post_send_list(&write, &list)
            .expect("room");
        wait(&mut active, wr_id);
        let there = bytes_at(&passive, &[(1 << 19, sent.len())]);
        assert!(there == sent, "WRITE of {count} pieces");
        let back: Vec<_> = from
            .iter()
            .map(|(at, len)| (at + (1 << 19), *len))
            .collect();
        let read = SendRequest::read(wr_id, Slice::EMPTY, remote);
        let list = slices(&active, &back);
        active
            .queue_pair
            .post_send_list(&read, &list)
            .expect("room");
        wait(&mut active, wr_id);
        assert!(bytes_at(&active, &back) == sent, "READ of {count} pieces");
    }
}

/// HT-1: inline messages of 0 to 256 bytes, as SEND and WRITE, through the rings and over the wire.
#[test]
fn inline_bytes_cross_the_rings() {
    let (a, b) = pair(&config());
    let (mut active, mut passive) = connected(&a, &b, |_| {});
    let remote = RemoteSlice {
        address: 1 << 19,
        rkey: passive.memory.rkey(),
    };
    let whole: Vec<_> = (0..600_u32).map(|n| (n % 251) as u8).collect();
    let lengths = [0, 1, 31, 32, 33, 96, 97, 160, 255, QueuePair::INLINE_MAX];
    for (wr_id, len) in (0..).zip(lengths) {
        let into = slices(&passive, &[(0, 300)]);
        passive
            .queue_pair
            .post_receive_list(wr_id, &into)
            .expect("room");
        let request = SendRequest::send(wr_id, Slice::EMPTY).with_immediate(5);
        let bytes = &whole[len..2 * len];
        active
            .queue_pair
            .post_send_inline(&request, bytes)
            .expect("room");
        wait(&mut active, wr_id);
        wait(&mut passive, wr_id);
        assert_eq!(bytes_at(&passive, &[(0, len)]), bytes);
        let write = SendRequest::write(wr_id, Slice::EMPTY, remote);
        active
            .queue_pair
            .post_send_inline(&write, bytes)
            .expect("room");
        wait(&mut active, wr_id);
        assert_eq!(bytes_at(&passive, &[(1 << 19, len)]), bytes);
    }
}

/// HT-1: the library refuses what no request may be, and posts nothing then. The smallest queue
/// takes the longest request.
#[test]
fn what_cannot_be_is_refused() {
    let (a, b) = pair(&config());
    let (mut active, _passive) = connected(&a, &b, |_| {});
    let list = vec![Slice::EMPTY; QueuePair::SGE_MAX + 1];
    let bytes = vec![0; QueuePair::INLINE_MAX + 1];
    let send = SendRequest::send(1, Slice::EMPTY);
    let read = SendRequest::read(1, Slice::EMPTY, RemoteSlice::default());
    let queue_pair = &mut active.queue_pair;
    let refusals = [
        queue_pair.post_send_list(&send, &list),
        queue_pair.post_receive_list(1, &list),
        queue_pair.post_send_inline(&send, &bytes),
        queue_pair.post_send_inline(&read, &bytes[..1]),
    ];
    use Error::{NotInline, TooManyPieces};
    for (refusal, n) in refusals.into_iter().zip([17, 17, 257, 1]) {
        match refusal {
            Err(TooManyPieces(pieces)) => assert_eq!(pieces, n),
            Err(NotInline(bytes)) => assert_eq!(bytes, n),
            other => panic!("{other:?}"),
        }
    }
    let options = QueuePairOptions {
        send_entries: 1,
        receive_entries: 1,
    };
    let (context, queue) = (&active.context, &active.queue);
    let mut small = context
        .create_queue_pair(queue, queue, options)
        .expect("a pair");
    // What is posted while nobody answers waits in the ring.
    let nobody = SocketAddr::from(([10, 0, 0, 9], 9));
    let waits = small.connect(nobody, Private::EMPTY, Duration::ZERO);
    assert!(matches!(waits, Err(Error::TimedOut)), "{waits:?}");
    small.post_send_list(&send, &list[1..]).expect("room");
    let next = small.post_send_list(&send, &list[1..]);
    assert!(matches!(next, Err(Error::QueueFull)), "{next:?}");
    small.post_receive_list(1, &list[1..]).expect("room");
}

/// HT-1, HT-3: a key that is not its own in any of the pieces ends the request with a local
/// protection error.
#[test]
fn a_bad_piece_ends_its_request() {
    for bad in 0..QueuePair::SGE_MAX {
        let (a, b) = pair(&config());
        let (mut active, passive) = connected(&a, &b, |_| {});
        let mut list = vec![active.memory.slice(0, 100).expect("inside"); QueuePair::SGE_MAX];
        // The other session's memory.
        list[bad] = passive.memory.slice(0, 100).expect("inside");
        let request = SendRequest::send(3, Slice::EMPTY);
        active
            .queue_pair
            .post_send_list(&request, &list)
            .expect("room");
        let completion = active.queue.next(PATIENCE).expect("a completion");
        assert_eq!(completion.status, CompletionStatus::LocalProtection);
        if bad % 5 > 0 {
            continue;
        }
        is_well(&a);
    }
}

/// HT-3: a request whose further slots were not published breaks its queue pair, and nothing else;
/// one with any bytes in all of its slots does not.
#[test]
fn slots_that_are_missing() {
    let (a, _b) = pair(&config());
    let seed = 0x5eed_0012;
    println!("seed {seed}");
    let mut random = rand_pcg::Pcg64Mcg::new(seed);
    for count in SGE_FIRST + 1..=QueuePair::SGE_MAX {
        for whole in [true, false] {
            let raw = Raw::greeted(&a);
            let mut own = rings(&raw);
            let buffers = SgeList::new(&vec![Sge::default(); count]).expect("few enough");
            let work = ReceiveWork { wr_id: 1, buffers };
            let more = (count - SGE_FIRST).div_ceil(SGE_MORE);
            own.receives.push(&work.to_bytes()).expect("sound");
            for _ in 0..if whole { more } else { more - 1 } {
                let mut slot = [0; WORK_LEN];
                random.fill_bytes(&mut slot);
                own.receives.push(&slot).expect("sound");
            }
            own.receives.publish();
            raw.ring(own.slot);
            if !whole {
                let (message, _) = raw.next().expect("an event");
                let broken = Event::Disconnected {
                    qp: own.handle,
                    reason: ErrorCode::Protocol,
                };
                assert_eq!(message, FromDaemon::Event(broken));
            }
            is_well(&a);
        }
    }
    let broken = a.report().edge.broken_queues;
    assert_eq!(broken, (QueuePair::SGE_MAX - SGE_FIRST) as u64);
    a.wait_empty();
}

/// HT-3: lengths that a descriptor cannot have are no lawful requests.
#[test]
fn impossible_lengths() {
    let work = SendWork {
        wr_id: 1,
        opcode: Opcode::Send,
        signaled: true,
        solicited: false,
        fence: false,
        immediate: 0,
        remote_address: 0,
        rkey: 0,
        local: Local::inline(&[1; QueuePair::INLINE_MAX]).expect("short enough"),
        compare_add: 0,
        swap: 0,
    };
    let good = work.to_bytes();
    assert_eq!(SendWork::parse(&good), Ok(work));
    for (at, value) in [
        (28, 1),          // 257 bytes inline
        (31, 1),          // 16 MiB more
        (10, 1),          // a piece, too
        (8, 4),           // an RDMA READ
        (8, 6),           // an atomic operation
        (9, 1 << 1),      // not inline, with a length
        (9, 1 << 4 | 10), // a flag that nobody knows
    ] {
        let mut bytes = good;
        bytes[at] = value;
        assert!(SendWork::parse(&bytes).is_err(), "{value} at {at}");
    }
    let list = SgeList::new(&[Sge::default(); 16]).expect("few enough");
    let mut bytes = SendWork {
        local: Local::Pieces(list),
        ..work
    }
    .to_bytes();
    assert!(SendWork::parse(&bytes).is_ok());
    bytes[10] = 17;
    assert!(SendWork::parse(&bytes).is_err());
}
