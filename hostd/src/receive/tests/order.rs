use crate::receive::*;
use common::xdp::frame::{FramePool, Region};

const NOTIFIER: Notifier = Notifier::new(Span::from_micros(50));

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000 + micros * 1_000)
}

fn receiver(first: u32, capacity: u32) -> Receiver {
    let tolerance = (4, Span::from_micros(500));
    Receiver::new(
        Psn::new(first),
        capacity,
        tolerance,
        (Reports::new(4, Span::from_micros(100)), NOTIFIER),
        256,
    )
}

fn header() -> DataHeader {
    DataHeader::default()
}

/// The head of the ring, which has waited in a frame.
fn take_waiting(receiver: &mut Receiver) -> Option<Held> {
    match receiver.take_head()? {
        Early::Waited(held) => Some(held),
        Early::Placed(_) => panic!("it was placed"),
    }
}

/// HT-40: early packets wait, across the wrap, and come out in order.
#[test]
fn early_packets_wait_for_their_turn() {
    let mut pool = FramePool::new(Region::heap(16, 512, 0));
    let mut receiver = receiver(0xff_fffe, 8);
    for ahead in [3, 1, 2] {
        let psn = Psn::new(0xff_fffe).plus(ahead);
        assert_eq!(receiver.place(psn), (ahead, Arrival::Early));
        let byte = u8::try_from(ahead).expect("small");
        let frame = pool.take_filled(&[byte]).expect("free");
        receiver.hold(ahead, frame, header(), at(u64::from(ahead)));
        assert_eq!(receiver.place(psn), (ahead, Arrival::Duplicate));
    }
    assert_eq!(receiver.received_early(), [0b1110, 0, 0, 0]);
    assert_eq!(receiver.place(Psn::new(6)), (8, Arrival::Beyond));
    assert_eq!(receiver.place(Psn::new(0xff_fffd)).1, Arrival::Duplicate);
    assert_eq!(receiver.place(receiver.expected()).1, Arrival::InOrder);
    assert!(receiver.take_head().is_none());
    receiver.delivered(1, false, at(9));
    let mut order = Vec::new();
    while let Some(held) = take_waiting(&mut receiver) {
        order.push(held.frame.bytes()[0]);
        pool.give(held.frame);
        let closed = receiver.delivered(1, true, at(9));
        assert_eq!(closed.is_some(), order.len() == 3);
    }
    assert_eq!(order, [1, 2, 3]);
    assert_eq!(receiver.expected(), Psn::new(2));
    assert_eq!((receiver.waiting(), receiver.msn), (0, 3));
    assert_eq!(pool.free_frames(), 16);
}

/// HT-40, HT-44: a placed packet is in its place in the ring as one that waits, but for the frame:
/// it comes once, is acknowledged, says since when there is a gap, and is forgotten with the rest.
#[test]
fn a_placed_packet_takes_no_frame() {
    let mut pool = FramePool::new(Region::heap(16, 512, 0));
    let mut receiver = receiver(0xff_fffe, 8);
    receiver.placed(2, (7, 512), at(3));
    receiver.placed(4, (8, 1024), at(4));
    receiver.hold(5, pool.take().expect("free"), header(), at(5));
    receiver.hold(6, pool.take().expect("free"), header(), at(6));
    assert_eq!(receiver.waiting(), 2);
    assert_eq!(receiver.received_early(), [0b111_0100, 0, 0, 0]);
    for ahead in [2, 4, 5, 6] {
        let psn = Psn::new(0xff_fffe).plus(ahead);
        assert_eq!(receiver.place(psn), (ahead, Arrival::Duplicate));
        assert_eq!(receiver.early(ahead).is_some(), ahead > 4);
    }
    let held = receiver.placed_after_all(5, 0).expect("it waited");
    pool.give(held.frame);
    assert!(receiver.placed_after_all(5, 0).is_none() && receiver.placed_after_all(1, 0).is_none());
    assert_eq!((receiver.waiting(), receiver.gap_since()), (1, Some(at(3))));
    receiver.delivered(1, false, at(8));
    assert!(receiver.take_head().is_none());
    assert_eq!(
        receiver.delivered(1, false, at(9)),
        None,
        "the head is there"
    );
    let Some(Early::Placed(placed)) = receiver.take_head() else {
        panic!("it was placed");
    };
    assert_eq!((placed.flowlet, placed.offset), (7, 512));
    let closed = receiver.delivered(1, false, at(9));
    assert_eq!(closed, Some(Span::from_micros(6)));
    assert_eq!(receiver.expected(), Psn::new(1));
    assert_eq!(receiver.gap_since(), Some(at(4)));
    let drained: Vec<_> = receiver.drain().collect();
    assert_eq!(drained.len(), 1, "the frame of the last one");
    drained.into_iter().for_each(|frame| pool.give(frame));
    assert_eq!(receiver.waiting(), 0);
    assert_eq!(receiver.place(Psn::new(3)), (2, Arrival::Early));
    assert_eq!(pool.free_frames(), 16);
}

/// HT-40: which packet is of the message that is being received, if its length is not known: one
/// behind which, or behind the next one before which, is one that is.
#[test]
fn two_missing_packets_may_end_a_message() {
    let mut pool = FramePool::new(Region::heap(16, 512, 0));
    let mut receiver = receiver(0xff_fffe, 16);
    let continues = |receiver: &Receiver| -> Vec<u32> {
        let all = 0..16;
        all.filter(|ahead| receiver.continues_message(*ahead))
            .collect()
    };
    assert_eq!(continues(&receiver), [1]);
    receiver.placed(1, (0, 0), at(1));
    assert_eq!(continues(&receiver), [1, 2, 3]);
    receiver.placed(3, (0, 0), at(1));
    assert_eq!(continues(&receiver), [1, 2, 3, 4, 5]);
    // One that waits in a frame may be of another message, and so may all behind it.
    receiver.hold(4, pool.take().expect("free"), header(), at(1));
    assert_eq!(continues(&receiver), [1, 2, 3, 4]);
    receiver.placed(8, (0, 0), at(1));
    assert_eq!(continues(&receiver), [1, 2, 3, 4, 9, 10]);
    receiver.hold(0, pool.take().expect("free"), header(), at(1));
    assert_eq!(
        continues(&receiver),
        [2, 3, 4, 9, 10],
        "the head waits for a receive"
    );
    receiver.drain().for_each(|frame| pool.give(frame));
    assert_eq!(continues(&receiver), [1]);
}

/// HT-41: a gap is reported when more packets than agreed came after it, or it is as old as agreed,
/// then again only after a while.
#[test]
fn a_gap_is_reported_past_the_tolerance() {
    let mut pool = FramePool::new(Region::heap(16, 512, 0));
    let mut receiver = receiver(100, 16);
    assert_eq!(receiver.deadline(), Time::NEVER);
    let hold = |receiver: &mut Receiver, ahead, now, pool: &mut FramePool| {
        let frame = pool.take().expect("free");
        receiver.hold(ahead, frame, header(), now);
    };
    hold(&mut receiver, 2, at(0), &mut pool);
    hold(&mut receiver, 4, at(10), &mut pool);
    assert!(!receiver.suspects_loss(at(499)));
    assert_eq!(receiver.deadline(), at(500));
    assert!(receiver.report_is_due(at(500)), "by time");
    hold(&mut receiver, 5, at(20), &mut pool);
    assert!(receiver.report_is_due(at(20)), "by number");
    receiver.loss_was_reported(at(20));
    assert!(receiver.suspects_loss(at(30)) && !receiver.report_is_due(at(30)));
    assert_eq!(receiver.deadline(), at(1_020));
    assert!(receiver.report_is_due(at(1_020)), "the report may be lost");
    receiver.loss_was_reported(at(1_020));
    assert_eq!(receiver.deadline(), at(3_020), "the peer may be gone");
    hold(&mut receiver, 6, at(1_100), &mut pool);
    assert_eq!(receiver.deadline(), at(2_020), "it is there");
    // The first gap closes; the next is as old as the first packet behind it.
    receiver.delivered(1, false, at(600));
    assert!(receiver.suspects_loss(at(600)), "still a packet missing");
    let closed = receiver.delivered(1, false, at(601));
    assert!(closed.is_none(), "the head is there");
    pool.give(take_waiting(&mut receiver).expect("there").frame);
    assert_eq!(
        receiver.delivered(1, false, at(602)),
        Some(Span::from_micros(602))
    );
    assert_eq!(receiver.deadline(), at(510));
    for frame in receiver.drain().collect::<Vec<_>>() {
        pool.give(frame);
    }
    assert_eq!(receiver.waiting(), 0);
    assert_eq!(pool.free_frames(), 16);
}

/// HT-10: nothing waits for a plain peer.
#[test]
fn a_plain_peer_repeats_what_it_sent() {
    let receiver = receiver(5, 0);
    assert_eq!(receiver.place(Psn::new(6)), (1, Arrival::Unwanted));
    assert_eq!(receiver.place(Psn::new(5)), (0, Arrival::InOrder));
    assert_eq!(receiver.place(Psn::new(4)).1, Arrival::Duplicate);
    assert!(!receiver.reorders());
}

/// CC-8: who sends to a crowded host is told how many do: with marks and trims, and otherwise once
/// for each news; when the others are gone it is told that. One alone is never told of.
#[test]
fn the_crowd_is_told_as_news() {
    let mut receiver = Receiver::new(
        Psn::new(100),
        16,
        (4, Span::from_micros(500)),
        (
            Reports::new(4, Span::from_micros(100)).with_marks(),
            NOTIFIER,
        ),
        256,
    );
    let mut told = |crowd: u32, trims: bool| {
        if trims {
            assert!(receiver.reports.on_trimmed(Psn::new(101)));
        }
        receiver.reports.on_crowd(crowd, (0, 0));
        let sack = receiver.ack_fields(1, 0, None, false).multipath;
        let marks = sack.expect("with multipath").marks;
        receiver.reports.on_left();
        marks.map(|marks| marks.crowd.count())
    };
    assert_eq!(told(15, false), None, "nothing was trimmed");
    assert_eq!(told(1, true), Some(None), "it is alone");
    assert_eq!(told(15, false), Some(Some(15)));
    assert_eq!(told(1_000, false), Some(Some(1_024)));
    assert_eq!(told(1_010, false), None, "that is no news");
    assert_eq!(told(1_000, true), Some(Some(1_024)), "beside a trim it is");
    assert_eq!(told(500, false), Some(Some(512)));
    assert_eq!(told(3, false), Some(Some(3)));
    assert_eq!(told(3, false), None);
    assert_eq!(told(0, false), Some(Some(1)), "the others are gone");
    assert_eq!(told(1, false), None);
}
