//! HT-31, HT-34: when a flow leaves its path, and when it stays.

use super::*;

const ROUND_TRIP: Span = Span::from_micros(10);

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

/// Outcomes of packets that left when they are told, one each microsecond.
fn told(reroute: &mut Reroute, micros: std::ops::Range<u64>, marked: impl Fn(u64) -> bool) {
    for now in micros {
        let feedback = Feedback {
            path: 0,
            entropy: 0,
            sent: at(now),
            round_trip: None,
            delay: None,
            fate: PacketFate::Delivered {
                newest_copy: true,
                marked: marked(now),
            },
        };
        reroute.on_feedback(&feedback, ROUND_TRIP, at(now));
    }
}

fn is_due(reroute: &Reroute, idle: bool, micros: u64) -> bool {
    reroute.is_due(Some(ROUND_TRIP), idle, at(micros)) != Due::No
}

/// HT-34: a path of whose packets half are marked is left after ten round trips, or when
/// nothing is in flight; one of which fewer are is not.
#[test]
fn a_congested_path_is_left_after_ten_round_trips() {
    let mut reroute = Reroute::new(10, Span::ZERO);
    reroute.took(false, at(0));
    told(&mut reroute, 1..60, |now| now % 2 == 0);
    assert!(!is_due(&reroute, false, 60) && is_due(&reroute, true, 60));
    assert!(!is_due(&reroute, false, 99) && is_due(&reroute, false, 100));
    let unmeasured = reroute.is_due(None, true, at(100));
    assert_eq!(unmeasured, Due::No, "nothing was measured");
    told(&mut reroute, 100..130, |now| now % 3 == 0);
    assert!(!is_due(&reroute, true, 130), "less than half is marked");
    told(&mut reroute, 130..160, |_| true);
    assert!(is_due(&reroute, false, 160));
    reroute.took(false, at(160));
    assert!(
        !is_due(&reroute, true, 1_000),
        "of the new path nothing is known"
    );
}

/// HT-34: congestion on the last hop is no reason, whoever tells of it.
#[test]
fn congestion_on_the_last_hop_is_no_reason() {
    let mut reroute = Reroute::new(10, Span::ZERO);
    told(&mut reroute, 0..200, |_| true);
    assert!(is_due(&reroute, false, 200));
    reroute.crowd(40);
    assert!(!is_due(&reroute, true, 200));
    reroute.crowd(3);
    assert!(is_due(&reroute, true, 200), "few are no crowd");
    reroute.located(true);
    assert!(!is_due(&reroute, true, 200));
    reroute.located(false);
    assert!(is_due(&reroute, true, 200));
    reroute.located(true);
    // Ten microseconds are a round trip.
    told(&mut reroute, 200..340, |_| true);
    assert!(!is_due(&reroute, true, 340));
    told(&mut reroute, 340..420, |_| true);
    assert!(is_due(&reroute, true, 420), "the signal is an old one");
}

fn micros(micros: u64) -> Span {
    Span::from_micros(micros)
}

/// A whole round trip of so many microseconds that ends at `now`: whether to probe another
/// path. The path had 10 µs.
fn judge(reroute: &mut Reroute, took: u64, now: u64) -> bool {
    reroute.judge((micros(took), at(now - took)), ROUND_TRIP, at(now))
}

/// HT-31: a slow path is left for one that was probed in the same round trip and takes half the
/// time at most, ten of its round trips after it was taken. A probe that is as slow says that
/// it is the last hop, or the first.
#[test]
fn a_slow_path_is_left_for_a_better_one() {
    let mut reroute = Reroute::new(10, micros(5));
    reroute.took(false, at(1_000));
    assert!(judge(&mut reroute, 12, 1_012), "the first look");
    assert!(!judge(&mut reroute, 12, 1_024), "one more is not due");
    assert!(judge(&mut reroute, 25, 1_049), "slow: twice and 5 µs");
    reroute.probed(3, micros(10), at(1_040));
    assert!(
        judge(&mut reroute, 26, 1_080),
        "the answer is of another time"
    );
    reroute.probed(4, micros(12), at(1_082));
    assert!(judge(&mut reroute, 26, 1_106), "12 µs are not far below 26");
    reroute.probed(5, micros(10), at(1_107));
    let due = |reroute: &Reroute, idle, now| reroute.is_due(Some(micros(26)), idle, at(now));
    assert!(!judge(&mut reroute, 26, 1_132));
    assert_eq!(due(&reroute, false, 1_099), Due::No);
    assert_eq!(due(&reroute, true, 1_099), Due::For(5));
    assert_eq!(due(&reroute, false, 1_100), Due::For(5));
    reroute.located(true);
    assert_eq!(due(&reroute, false, 1_200), Due::No);
    assert!(
        !judge(&mut reroute, 26, 1_158),
        "there is nothing to look for"
    );
    reroute.located(false);
    reroute.probed(5, micros(10), at(1_170));
    assert!(!judge(&mut reroute, 26, 1_184));
    assert!(
        judge(&mut reroute, 12, 1_196),
        "a look, as it is not slow any more"
    );
    assert_eq!(due(&reroute, true, 1_200), Due::No);
}

/// HT-31: a path that turns out no better than the one that was left is kept, for ten round
/// trips first, then for twenty; one that is better may be left for a still better one, when it
/// has had the time to show what it is like.
#[test]
fn a_move_that_does_not_help_is_not_repeated() {
    let mut reroute = Reroute::new(10, Span::ZERO);
    let leave = |reroute: &mut Reroute, took: u64, now: u64| {
        reroute.probed(1, micros(10), at(now));
        judge(reroute, took, now);
        reroute.took(true, at(now));
    };
    leave(&mut reroute, 100, 10_000);
    assert!(
        !judge(&mut reroute, 60, 10_060),
        "100 µs are not far above 60"
    );
    assert!(!judge(&mut reroute, 60, 10_659));
    assert!(judge(&mut reroute, 60, 10_660), "ten round trips later");
    leave(&mut reroute, 60, 11_000);
    assert!(!judge(&mut reroute, 60, 11_060));
    assert!(!judge(&mut reroute, 60, 12_259));
    assert!(judge(&mut reroute, 60, 12_260), "twenty round trips later");
    leave(&mut reroute, 100, 20_000);
    assert!(judge(&mut reroute, 40, 20_040), "it helped");
    reroute.probed(2, micros(10), at(20_041));
    assert!(!judge(&mut reroute, 40, 20_080));
    let due = |now| reroute.is_due(Some(micros(40)), false, at(now));
    assert_eq!((due(20_999), due(21_000)), (Due::No, Due::For(2)));
}
