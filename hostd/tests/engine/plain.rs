//! Plain RoCEv2 in each detail, with a peer that was written from the standard (HT-10, HT-43).

use crate::network::MEMORY;
use crate::plain_peer::{FIRST_OF_HOST, FIRST_OF_PEER, MTU, PlainPeer};
use common::time::Span;
use common::wire::roce::{AckKind, Aeth, Bth, Headers, NakCode, Opcode, Operation};
use hostd::memory::RegionMemory;
use hostd::verbs::{DropReason, ReadyToSend, SendOpcode, State, Status};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

const UNLIMITED: AckKind = AckKind::Ack { credits: 31 };
const SEQUENCE_ERROR: AckKind = AckKind::Nak(NakCode::PsnSequenceError);

fn send() -> ReadyToSend {
    ReadyToSend {
        sq_psn: FIRST_OF_HOST,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 16,
    }
}

fn peer() -> PlainPeer {
    PlainPeer::new(1, send())
}

fn micros(n: u64) -> Span {
    Span::from_micros(n)
}

/// PSN of the packet `n` after the peer's first.
fn psn(n: u32) -> u32 {
    (FIRST_OF_PEER + n) & 0xff_ffff
}

/// Posts receives of 4096 bytes each at host 1.
fn post_receives(peer: &mut PlainPeer, receives: std::ops::Range<u64>) {
    let qpn = peer.qpn;
    for n in receives {
        peer.host().receive_into(qpn, n, n * 4096, 4096);
    }
}

/// Posts a SEND of `len` bytes at host 1.
fn post_send(peer: &mut PlainPeer, wr_id: u64, len: u32) {
    let qpn = peer.qpn;
    let request = peer.host().send(wr_id, wr_id * 4096, len);
    peer.host().engine.post_send(qpn, request).expect("room");
}

fn only(peer: &PlainPeer, n: u32, ack: bool) -> Vec<u8> {
    peer.data(Operation::SendOnly, n, ack, b"data")
}

/// HT-10, HT-24: a peer that has acknowledged nothing yet answers probes with a number that nobody
/// sent, as `rdma_rxe` does, and is known to live; when it is silent it is given up.
#[test]
fn a_peer_that_acknowledged_nothing_is_known_to_live() {
    let mut peer = peer();
    let state = |peer: &mut PlainPeer| {
        let qpn = peer.qpn;
        let standing = peer.host().engine.queue_pair_statistics(qpn);
        standing.expect("exists").state
    };
    let mut probes = 0;
    for _ in 0..55_000 {
        let seen = peer.pass(Span::from_millis(1));
        for probe in seen {
            assert_eq!(probe.psn(), FIRST_OF_HOST - 1);
            let answer = peer.answer(UNLIMITED, 0xff_ffff);
            assert_eq!(peer.after(&answer, micros(10)).len(), 0);
            probes += 1;
        }
    }
    assert_eq!((probes, state(&mut peer)), (5, State::ReadyToSend));
    peer.pass(Span::from_secs(20));
    assert_eq!(state(&mut peer), State::Error);
}

/// HT-10: a gap is answered by one NAK that names the missing packet. What follows is dropped in
/// silence until that one comes, and the next gap is answered again (InfiniBand 9.7.5.1.5).
#[test]
fn a_gap_is_answered_once() {
    let mut peer = peer();
    post_receives(&mut peer, 0..16);
    let frame = only(&peer, 0, true);
    let answers = peer.after(&frame, micros(10));
    assert_eq!((answers.len(), answers[0].psn()), (1, psn(0)));
    for (turn, n) in [2, 3, 4, 7, 2].into_iter().enumerate() {
        let frame = only(&peer, n, true);
        let answers = peer.after(&frame, micros(1_000));
        let kinds: Vec<_> = answers.iter().map(|it| (it.kind(), it.psn())).collect();
        let expected = (Some(SEQUENCE_ERROR), psn(1));
        assert_eq!(
            kinds,
            if turn == 0 { vec![expected] } else { vec![] },
            "{n}"
        );
    }
    let drops = &peer.host().engine.statistics().drops;
    assert_eq!((drops.get(DropReason::OutOfOrder), drops.total()), (5, 5));
    let frame = only(&peer, 1, false);
    let answers = peer.after(&frame, micros(1_000));
    assert!(matches!(answers[0].kind(), Some(AckKind::Ack { .. })));
    assert_eq!(answers[0].psn(), psn(1));
    let frame = only(&peer, 3, false);
    let answers = peer.after(&frame, micros(1_000));
    assert_eq!(answers[0].kind(), Some(SEQUENCE_ERROR));
    assert_eq!((answers.len(), answers[0].psn()), (1, psn(2)));
    assert_eq!(peer.host().completions.len(), 2);
    peer.network.close();
}

/// HT-10: a NAK that has not left yet is not sent when nothing is missing any more, and names what
/// is missing when it leaves.
#[test]
fn a_nak_is_true_when_it_leaves() {
    for (order, expected) in [
        (vec![1, 0], Some((SEQUENCE_ERROR, psn(1)))),
        (vec![1, 0, 1], None),
        (vec![2, 0, 1], Some((SEQUENCE_ERROR, psn(2)))),
    ] {
        let mut peer = peer();
        post_receives(&mut peer, 0..16);
        for &n in &order {
            let frame = only(&peer, n, true);
            peer.network.inject(1, &frame);
        }
        let answers = peer.pass(micros(1_000));
        assert_eq!(answers.len(), 1, "{order:?}");
        let found = answers[0].kind().map(|kind| (kind, answers[0].psn()));
        match expected {
            Some(nak) => assert_eq!(found, Some(nak), "{order:?}"),
            None => assert!(matches!(found, Some((AckKind::Ack { .. }, at)) if at == psn(1))),
        }
        peer.network.close();
    }
}

/// HT-10: a request for an acknowledgement is followed at once, several in a row by one; without it
/// one acknowledgement covers many packets. What came before is acknowledged again and not
/// delivered again (InfiniBand 9.7.5.1).
#[test]
fn acknowledgements_are_coalesced() {
    let mut peer = peer();
    post_receives(&mut peer, 0..64);
    for n in 0..10 {
        let frame = only(&peer, n, n % 3 == 0);
        peer.network.inject(1, &frame);
    }
    let answers = peer.pass(micros(1));
    assert_eq!((answers.len(), answers[0].psn()), (1, psn(9)));
    assert_eq!(answers[0].headers.aeth.map(|aeth| aeth.msn), Some(10));
    for n in 10..30 {
        let frame = only(&peer, n, false);
        assert!(peer.after(&frame, micros(1)).is_empty(), "{n}");
    }
    let answers = peer.pass(micros(1_000));
    assert_eq!((answers.len(), answers[0].psn()), (1, psn(29)));
    for n in [29, 0, 12] {
        let frame = only(&peer, n, false);
        let answers = peer.after(&frame, micros(10));
        assert_eq!((answers.len(), answers[0].psn()), (1, psn(29)), "{n}");
    }
    // The oldest that can be told from the future.
    let mut bth = Bth::new(Opcode::Rc(Operation::SendOnly), peer.qpn, 0);
    bth.psn = psn(30).wrapping_sub(1 << 23) & 0xff_ffff;
    let frame = peer.frame(&Headers::new(bth), b"data");
    assert_eq!(peer.after(&frame, micros(10))[0].psn(), psn(29));
    bth.psn = psn(30).wrapping_sub((1 << 23) + 1) & 0xff_ffff;
    let frame = peer.frame(&Headers::new(bth), b"data");
    let answers = peer.after(&frame, micros(10));
    assert_eq!(answers[0].kind(), Some(SEQUENCE_ERROR));
    let statistics = peer.host().engine.statistics();
    assert_eq!((statistics.delivered, statistics.duplicates), (30, 4));
    peer.network.close();
}

/// HT-10: without a receive the peer is told to wait, and nothing after that packet is answered
/// until it comes again.
#[test]
fn a_missing_receive_is_told_once() {
    let mut peer = peer();
    let frames: Vec<_> = (0..3).map(|n| only(&peer, n, true)).collect();
    let not_ready = Some(AckKind::ReceiverNotReady { timer: 14 });
    for _ in 0..2 {
        for frame in &frames {
            peer.network.inject(1, frame);
        }
        let answers = peer.pass(micros(1_000));
        let kinds: Vec<_> = answers.iter().map(|it| (it.kind(), it.psn())).collect();
        assert_eq!(kinds, [(not_ready, psn(0))]);
    }
    // Told apart, too: the RNR NAK leaves before the next packet comes.
    let answers: Vec<_> = frames
        .iter()
        .flat_map(|frame| peer.after(frame, micros(100)))
        .collect();
    assert_eq!((answers.len(), answers[0].kind()), (1, not_ready));
    // An RNR NAK that has not left when the packet comes again and finds a receive is not sent.
    peer.network.inject(1, &frames[0]);
    post_receives(&mut peer, 0..8);
    peer.network.inject(1, &frames[0]);
    let answers = peer.pass(micros(1_000));
    assert_eq!((answers.len(), answers[0].psn()), (1, psn(0)));
    assert!(matches!(answers[0].kind(), Some(AckKind::Ack { .. })));
    peer.network.close();
}

/// HT-10: acknowledgements tell how many receives are posted, a message that is being received
/// included (InfiniBand 9.7.7.2.1).
#[test]
fn credits_are_told() {
    let mut peer = peer();
    post_receives(&mut peer, 0..7);
    let told = |peer: &mut PlainPeer, frame: &[u8]| match peer.after(frame, micros(10))[0].kind() {
        Some(AckKind::Ack { credits }) => Aeth::credits(credits),
        other => panic!("{other:?}"),
    };
    let frame = only(&peer, 0, true);
    assert_eq!(told(&mut peer, &frame), Some(6));
    let frame = peer.data(Operation::SendFirst, 1, true, &[7; MTU]);
    assert_eq!(told(&mut peer, &frame), Some(6), "five, and the one in use");
    let frame = peer.data(Operation::SendLast, 2, true, b"end");
    assert_eq!(
        told(&mut peer, &frame),
        Some(4),
        "five: four is the next code"
    );
    for (n, left) in [(3, 4), (4, 3), (5, 2), (6, 1), (7, 0)] {
        let frame = only(&peer, n, true);
        assert_eq!(told(&mut peer, &frame), Some(left));
    }
    // Whoever was told of none is told of the first one, and of nothing more.
    post_receives(&mut peer, 7..8);
    let answers = peer.pass(micros(1_000));
    let credits = AckKind::Ack { credits: 1 };
    assert_eq!((answers.len(), answers[0].kind()), (1, Some(credits)));
    assert_eq!(answers[0].psn(), psn(7));
    post_receives(&mut peer, 8..105);
    assert!(peer.pass(micros(1_000)).is_empty());
    let frame = only(&peer, 8, true);
    assert_eq!(told(&mut peer, &frame), Some(96), "97");
    peer.network.close();
}

/// HT-10: packets that a switch marked are answered by a CNP, at most one in 50 µs.
#[test]
fn marks_are_notified() {
    let mut peer = peer();
    post_receives(&mut peer, 0..200);
    let cnps = |peer: &PlainPeer| {
        let cnp = |seen: &&crate::plain_peer::Seen| seen.headers.bth.opcode == Opcode::Cnp;
        peer.seen.iter().filter(cnp).count()
    };
    for n in 0..100 {
        peer.traffic_class = if n < 50 { 0b10 } else { 0b11 };
        let frame = only(&peer, n, false);
        peer.after(&frame, micros(5));
        assert_eq!(cnps(&peer) > 0, n >= 50);
    }
    // 250 µs of marks.
    assert_eq!(cnps(&peer), 5);
    let qpn = peer.qpn;
    let statistics = peer.host().engine.queue_pair_statistics(qpn);
    assert_eq!(statistics.expect("is there").counters.tx_cnps, 5);
    peer.pass(micros(1_000));
    peer.network.close();
}

/// HT-10: a CNP halves what may be in flight, and acknowledgements open it again. One for another
/// queue pair, or from another host, does nothing.
#[test]
fn notifications_slow_down() {
    let mut peer = peer();
    let window = |peer: &PlainPeer| {
        let engine = &peer.network.hosts[1].engine;
        engine
            .queue_pair_statistics(peer.qpn)
            .expect("there")
            .window
    };
    let full = window(&peer);
    // Who has nothing on its way causes no congestion.
    post_send(&mut peer, 1000, 10);
    let mut first = peer.pass(micros(10));
    assert_eq!(first.len(), 1);
    let stray = peer.frame(&Headers::cnp(peer.qpn ^ 1), &[]);
    peer.after(&stray, micros(100));
    assert_eq!(window(&peer), full);
    let cnp = peer.frame(&Headers::cnp(peer.qpn), &[]);
    peer.after(&cnp, micros(10));
    peer.after(&cnp, micros(100));
    assert_eq!(window(&peer), full / 2);
    let qpn = peer.qpn;
    for wr_id in 0..100 {
        let request = peer
            .host()
            .send(wr_id, 0, u32::try_from(4 * MTU).expect("small"));
        peer.host().engine.post_send(qpn, request).expect("room");
    }
    first.extend(peer.pass(micros(1_000)));
    assert_eq!(first.len(), (full / 2) as usize);
    for seen in first {
        if let Some(answer) = peer.respond(&seen) {
            peer.network.inject(1, &answer);
        }
    }
    assert_eq!(window(&peer), full / 2 + 1);
    let mut random = Pcg64Mcg::new(1);
    peer.talk(Span::from_millis(20), 0, &mut random);
    assert_eq!(peer.messages.len(), 101);
    let statistics = peer.host().engine.statistics();
    assert_eq!(statistics.notifications, 2);
    assert_eq!(statistics.drops.get(DropReason::UnknownQueuePair), 1);
    peer.network.close();
}

/// HT-43: after a NAK everything is repeated in order from the packet that it names, and what it
/// acknowledges is not; after silence everything.
#[test]
fn the_requester_goes_back() {
    let mut peer = peer();
    post_send(&mut peer, 0, 2500);
    post_send(&mut peer, 1, 100);
    let numbers = |seen: Vec<crate::plain_peer::Seen>| -> Vec<u32> {
        let after = |psn: u32| psn.wrapping_sub(FIRST_OF_HOST) & 0xff_ffff;
        seen.iter().map(|seen| after(seen.psn())).collect()
    };
    let sent = peer.pass(micros(1_000));
    assert_eq!(numbers(sent), (0..11).collect::<Vec<_>>());
    let nak = peer.answer(SEQUENCE_ERROR, FIRST_OF_HOST + 4);
    let timeout = |peer: &PlainPeer| {
        let engine = &peer.network.hosts[1].engine;
        engine.queue_pair_statistics(peer.qpn).expect("there").rto
    };
    let mut before = None;
    for _ in 0..3 {
        let sent = peer.after(&nak, micros(3_000));
        assert_eq!(numbers(sent), (4..11).collect::<Vec<_>>());
        // A plain peer does not say whether a repetition was needed.
        assert_eq!(
            timeout(&peer),
            *before.get_or_insert_with(|| timeout(&peer))
        );
    }
    // Older than what is known, and what was never sent.
    for (kind, psn) in [
        (SEQUENCE_ERROR, FIRST_OF_HOST + 2),
        (SEQUENCE_ERROR, FIRST_OF_HOST + 12),
        (UNLIMITED, FIRST_OF_HOST + 11),
    ] {
        let frame = peer.answer(kind, psn);
        assert!(peer.after(&frame, micros(1_000)).is_empty());
    }
    let drops = &peer.host().engine.statistics().drops;
    assert_eq!(drops.get(DropReason::ImpossibleAcknowledgement), 2);
    let sent = peer.pass(Span::from_millis(80));
    assert_eq!(numbers(sent)[..7], (4..11).collect::<Vec<_>>());
    let ack = peer.answer(UNLIMITED, FIRST_OF_HOST + 10);
    peer.after(&ack, micros(1_000));
    let ended = peer
        .host()
        .completions
        .iter()
        .map(|it| (it.wr_id, it.status));
    let expected = [(0, Status::Success), (1, Status::Success)];
    assert_eq!(ended.collect::<Vec<_>>(), expected);
    peer.network.close();
}

/// HT-10: RNR NAKs are waited out for as long as they say, and the request fails when they come
/// once more often than was agreed.
#[test]
fn the_requester_waits_for_a_receive() {
    let rnr_retry = 3;
    let mut peer = PlainPeer::new(
        1,
        ReadyToSend {
            rnr_retry,
            ..send()
        },
    );
    post_send(&mut peer, 0, 600);
    assert_eq!(peer.pass(micros(100)).len(), 3);
    let frame = peer.answer(AckKind::ReceiverNotReady { timer: 14 }, FIRST_OF_HOST);
    for _ in 0..rnr_retry {
        assert!(peer.after(&frame, micros(1_270)).is_empty(), "1.28 ms");
        let sent = peer.pass(micros(100));
        assert_eq!((sent.len(), sent[0].psn()), (3, FIRST_OF_HOST));
        assert!(peer.host().completions.is_empty());
    }
    peer.after(&frame, micros(10));
    let ended = peer.host().completions.iter().map(|it| it.status);
    assert_eq!(ended.collect::<Vec<_>>(), [Status::RnrRetryExceeded]);
    peer.network.close();
}

/// HT-10: as many messages are sent as the peer has receives for, then one packet at a time, which
/// asks; a SEND goes on when its first packet came, and WRITEs need no receive.
#[test]
fn credits_are_honoured() {
    let mut peer = peer();
    peer.gives_credits = true;
    peer.receives = 3;
    let qpn = peer.qpn;
    post_send(&mut peer, 0, 10);
    let sent = peer.pass(micros(100));
    let answer = peer.respond(&sent[0]).expect("asked for");
    for wr_id in 1..8 {
        post_send(&mut peer, wr_id, 600);
    }
    // Two receives are left: two messages of three packets.
    let sent = peer.after(&answer, micros(1_000));
    assert_eq!(sent.len(), 6);
    assert!(sent[5].headers.bth.ack_request, "the last one asks");
    let answers: Vec<_> = sent.iter().filter_map(|seen| peer.respond(seen)).collect();
    for answer in answers {
        peer.network.inject(1, &answer);
    }
    // None is left: one packet, which asks.
    let sent = peer.pass(micros(1_000));
    assert_eq!(sent.len(), 1);
    assert!(sent[0].headers.bth.ack_request);
    let answer = peer.respond(&sent[0]).expect("an RNR NAK");
    peer.receives = 1;
    assert!(peer.after(&answer, micros(1_270)).is_empty());
    let sent = peer.pass(micros(100));
    assert_eq!(sent.len(), 1);
    let answer = peer.respond(&sent[0]).expect("asked for");
    // The rest of this message, and one packet of the next.
    let sent = peer.after(&answer, micros(1_000));
    assert_eq!(sent.len(), 2);
    peer.receives = 1000;
    for seen in sent {
        if let Some(answer) = peer.respond(&seen) {
            peer.network.inject(1, &answer);
        }
    }
    peer.talk(Span::from_millis(20), 0, &mut Pcg64Mcg::new(1));
    assert_eq!(peer.messages.len(), 8);
    // All that there is goes at once for a WRITE.
    peer.receives = 0;
    let mut write = peer.host().send(9, 0, 2560);
    write.opcode = SendOpcode::RdmaWrite;
    let request = peer.host().send(8, 0, 10);
    peer.host().engine.post_send(qpn, request).expect("room");
    peer.host().engine.post_send(qpn, write).expect("room");
    let sent = peer.pass(micros(1_000));
    assert_eq!(sent.len(), 11);
    peer.network.close();
}

/// HT-10, HT-43: messages go both ways, with credits and without, over networks that lose, repeat
/// and swap packets: each arrives once, to the byte.
#[test]
fn messages_survive_a_bad_network() {
    for seed in 0..24_u32 {
        println!("seed {seed}");
        let bad = [0, 10, 50, 120][seed as usize % 4];
        let mut random = Pcg64Mcg::new(u128::from(seed));
        let mut peer = PlainPeer::new(u64::from(seed), send());
        peer.gives_credits = seed % 3 == 0;
        let qpn = peer.qpn;
        // The upper half of host 1's memory is sent, and the lower half received into.
        let half = MEMORY / 2;
        let bytes = peer.network.fill(1);
        peer.host().memory.copy_in(0, &vec![0; half]);
        let mut lens = Vec::new();
        for n in 0..60 {
            let len = random.next_u32() as usize % 3000 * usize::from(n % 5 > 0);
            lens.push(len);
            let from = half + n * 4096;
            let len32 = u32::try_from(len).expect("short");
            let request = peer.host().send(n as u64, from as u64, len32);
            peer.host().engine.post_send(qpn, request).expect("room");
            peer.post(&bytes[from..from + len]);
        }
        peer.receives = 20;
        for n in 0..60 {
            if n % 3 == 0 {
                post_receives(&mut peer, n..n + 3);
            }
            peer.talk(micros(300), bad, &mut random);
            peer.receives += 1;
        }
        for _ in 0..200 {
            if peer.has_sent_all() && peer.messages.len() == lens.len() {
                break;
            }
            peer.talk(Span::from_millis(10), bad, &mut random);
        }
        // The last acknowledgements.
        peer.talk(Span::from_millis(100), 0, &mut random);
        let received = peer.host().memory.to_vec();
        assert_eq!(peer.messages.len(), lens.len(), "seed {seed}");
        for (n, &len) in lens.iter().enumerate() {
            let from = half + n * 4096;
            assert!(
                peer.messages[n] == bytes[from..from + len],
                "seed {seed}: {n}"
            );
            assert!(received[n * 4096..][..len] == bytes[from..from + len]);
        }
        let completions = &peer.host().completions;
        assert_eq!(completions.len(), 120, "seed {seed}");
        assert!(completions.iter().all(|it| it.status == Status::Success));
        let lengths = completions.iter().filter(|it| it.opcode.value() == 128);
        assert!(lengths.map(|it| it.byte_len as usize).eq(lens.clone()));
        peer.network.close();
    }
}
