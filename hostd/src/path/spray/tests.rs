//! HT-34, HT-35, HT-36: which entropy values are used after what.

use super::*;
use common::time::Span;
use std::collections::BTreeSet;

const GOOD: PacketFate = PacketFate::Delivered {
    newest_copy: true,
    marked: false,
};
const MARKED: PacketFate = PacketFate::Delivered {
    newest_copy: true,
    marked: true,
};

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

fn draw(spray: &mut Spray, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_| spray.choose(None, at(0), |_| true))
        .collect()
}

/// HT-34, HT-36: 256 values, each once before any repeats, in an order that is drawn anew; losses
/// change nothing.
#[test]
fn oblivious_spraying_heeds_nothing() {
    let mut spray = Spray::new((Spraying::Oblivious, 50), 256, 7);
    let mut orders = BTreeSet::new();
    for _ in 0..20 {
        for value in 0..=u8::MAX {
            spray.on_feedback(value, PacketFate::Lost);
        }
        spray.timed_out(at(0));
        let round = draw(&mut spray, 256);
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 256);
        orders.insert(round);
    }
    assert_eq!(orders.len(), 20);
}

/// HT-35: a marked value is passed over once, a lost one for many rounds; then it comes back.
#[test]
fn a_bitmap_passes_bad_values_over() {
    let mut spray = Spray::new((Spraying::Bitmap, 50), 16, 7);
    draw(&mut spray, 16);
    spray.on_feedback(3, MARKED);
    spray.on_feedback(9, PacketFate::Lost);
    let rounds: Vec<Vec<u8>> = (0..40).map(|_| draw(&mut spray, 16)).collect();
    let first = |value: u8| rounds.iter().position(|round| round.contains(&value));
    assert!(first(3).is_some_and(|round| round <= 2), "{:?}", first(3));
    let back = first(9).expect("a lost value is tried again");
    assert!((12..=18).contains(&back), "after {back} rounds");
    // With all of them bad there is a choice all the same.
    for value in 0..16 {
        spray.on_feedback(value, PacketFate::Lost);
    }
    draw(&mut spray, 100);
}

/// HT-35: when more than the configured share of values is congested none is passed over, until
/// enough of them have come through again.
#[test]
fn a_saturated_network_has_no_better_values() {
    for (percent, most) in [(50, 8), (25, 4), (10, 1)] {
        let mut spray = Spray::new((Spraying::Bitmap, percent), 16, 7);
        let lose = |spray: &mut Spray, values: std::ops::Range<u8>| {
            values.for_each(|value| spray.on_feedback(value, PacketFate::Lost));
        };
        let used = |spray: &mut Spray| draw(spray, 32).into_iter().collect::<BTreeSet<_>>();
        lose(&mut spray, 0..most);
        let whole: BTreeSet<_> = (most..16).collect();
        assert_eq!(used(&mut spray), whole, "{percent} %");
        lose(&mut spray, 0..most + 1);
        assert_eq!(used(&mut spray).len(), 16, "{percent} %");
        // Use pays for all of them.
        draw(&mut spray, 32 * 16);
        assert_eq!(used(&mut spray).len(), 16, "{percent} %");
    }
    let mut few = Spray::new((Spraying::Bitmap, 50), 16, 7);
    few.set(&[1, 2, 3, 4]);
    few.on_feedback(1, PacketFate::Lost);
    few.on_feedback(2, PacketFate::Lost);
    assert_eq!(
        draw(&mut few, 2).iter().filter(|value| **value < 3).count(),
        0
    );
    few.on_feedback(3, PacketFate::Lost);
    draw(&mut few, 2);
    assert!(
        draw(&mut few, 4).contains(&1),
        "three of four are more than half"
    );
}

/// HT-35: values come round within the packets of two round trips, 16 of them at least and 256 at
/// most; their number does not change with each window. The other ways use all (HT-34).
#[test]
fn the_number_of_values_follows_the_window() {
    let used = |spray: &mut Spray| draw(spray, 512).into_iter().collect::<BTreeSet<_>>().len();
    let mut spray = Spray::new((Spraying::Bitmap, 50), 256, 7);
    for (window, expected) in [
        (224, 256),
        (128, 256),
        (127, 128),
        (224, 128),
        (256, 256),
        (33, 64),
        (32, 64),
        (9, 16),
        (1, 16),
        (31, 16),
        (32, 32),
        (500, 256),
    ] {
        spray.follow(window, 8);
        assert_eq!(used(&mut spray), expected, "window {window}");
    }
    spray.follow(1, 100);
    assert_eq!(used(&mut spray), 128, "a value for each path");
    spray.follow(8, 8);
    spray.set(&[3, 7, 11, 15, 19, 23]);
    assert_eq!(used(&mut spray), 4, "below 16");
    for spraying in [Spraying::Oblivious, Spraying::Recycling, Spraying::Combined] {
        let mut other = Spray::new((spraying, 50), 256, 7);
        other.follow(1, 8);
        assert_eq!(used(&mut other), 256, "{spraying:?}");
    }
    // Penalties of values that are not in use do not count, nor last.
    let mut spray = Spray::new((Spraying::Bitmap, 50), 256, 7);
    (0..120).for_each(|value| spray.on_feedback(value, PacketFate::Lost));
    spray.follow(1, 8);
    (16..=100).for_each(|value| spray.on_feedback(value, PacketFate::Lost));
    assert_eq!(used(&mut spray), 16, "all sixteen are congested");
    spray.follow(256, 8);
    assert_eq!(used(&mut spray), 256);
}

/// HT-34: what came through is used again in its order, once; marked values are not.
#[test]
fn what_came_through_is_used_again() {
    for spraying in [Spraying::Recycling, Spraying::Combined] {
        let mut spray = Spray::new((spraying, 50), 256, 7);
        for value in [10, 20, 30] {
            spray.on_feedback(value, GOOD);
            spray.on_feedback(value + 1, MARKED);
            spray.on_feedback(value + 2, PacketFate::Trimmed);
        }
        assert_eq!(draw(&mut spray, 3), [10, 20, 30]);
        let next: BTreeSet<_> = draw(&mut spray, 200).into_iter().collect();
        assert!(next.len() > 190, "others are tried: {}", next.len());
    }
}

/// HT-34, HT-36: where switches trim, and once enough values are known, one that led through is
/// taken again before a new one is tried, unless it was marked, trimmed or lost since.
#[test]
fn known_values_come_before_new_ones() {
    for spraying in [Spraying::Recycling, Spraying::Combined] {
        let mut spray = Spray::new((spraying, 50), 256, 7);
        for value in 0..20 {
            spray.on_feedback(value, GOOD);
        }
        draw(&mut spray, 20);
        let new: BTreeSet<_> = draw(&mut spray, 100).into_iter().collect();
        assert!(new.len() > 80, "nothing trims: {}", new.len());
        for (value, fate) in [(3, MARKED), (4, PacketFate::Trimmed), (5, PacketFate::Lost)] {
            spray.on_feedback(value, fate);
        }
        let again: BTreeSet<_> = draw(&mut spray, 200).into_iter().collect();
        let good = (0..20).filter(|value| !(3..=5).contains(value));
        assert_eq!(again, good.collect(), "{spraying:?}");
        for value in 0..20 {
            spray.on_feedback(value, MARKED);
        }
        let new: BTreeSet<_> = draw(&mut spray, 200).into_iter().collect();
        assert!(new.len() > 150, "{spraying:?}: {}", new.len());
    }
}

/// HT-36: after a time-out only what led somewhere is used for a while.
#[test]
fn a_time_out_freezes_what_is_known() {
    let mut spray = Spray::new((Spraying::Recycling, 50), 256, 7);
    for value in [10, 20, 30] {
        spray.on_feedback(value, GOOD);
    }
    spray.timed_out(at(1_000));
    let used = |spray: &mut Spray, micros| {
        let values = (0..100).map(|_| spray.choose(None, at(micros), |_| true));
        values.collect::<BTreeSet<_>>()
    };
    assert_eq!(used(&mut spray, 1_000), BTreeSet::from([10, 20, 30]));
    spray.on_feedback(40, GOOD);
    assert_eq!(used(&mut spray, 10_999), BTreeSet::from([10, 20, 30, 40]));
    let later = at(1_000) + Span::from_millis(10);
    assert!(used(&mut spray, later.nanos() / 1_000).len() > 90);
}

/// HT-24, HT-36: a second time-out without an answer in between forgets what led somewhere before,
/// which may be the same part of the network for all of it.
#[test]
fn a_second_time_out_forgets_what_is_known() {
    for spraying in [Spraying::Recycling, Spraying::Combined] {
        let mut spray = Spray::new((spraying, 50), 256, 7);
        let fill = |spray: &mut Spray| (0..64).for_each(|value| spray.on_feedback(value, GOOD));
        fill(&mut spray);
        spray.timed_out(at(0));
        assert_eq!(draw(&mut spray, 3), [0, 1, 2], "{spraying:?}");
        spray.on_feedback(0, PacketFate::Lost);
        spray.on_feedback(1, GOOD);
        spray.timed_out(at(80_000));
        assert_eq!(
            draw(&mut spray, 3),
            [3, 4, 5],
            "{spraying:?}: the peer answered"
        );
        spray.on_feedback(3, PacketFate::Lost);
        spray.timed_out(at(240_000));
        let next = draw(&mut spray, 100);
        let known = next.iter().filter(|value| **value < 64).count();
        assert!(known < 50, "{spraying:?}: {known} of 100");
        spray.on_feedback(200, GOOD);
        assert_eq!(draw(&mut spray, 1), [200], "{spraying:?}: it goes on");
    }
}

/// HT-42: the copy of a lost packet has another value, if there is one.
#[test]
fn a_retransmission_goes_another_way() {
    let all = [
        Spraying::Oblivious,
        Spraying::Bitmap,
        Spraying::Recycling,
        Spraying::Combined,
    ];
    for spraying in all {
        let mut spray = Spray::new((spraying, 50), 2, 7);
        for _ in 0..50 {
            spray.on_feedback(1, GOOD);
            assert_eq!(spray.choose(Some(1), at(0), |_| true), 0, "{spraying:?}");
        }
        let mut alone = Spray::new((spraying, 50), 1, 7);
        assert_eq!(alone.choose(Some(0), at(0), |_| true), 0);
    }
}
