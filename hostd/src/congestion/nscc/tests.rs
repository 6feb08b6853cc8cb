//! CC-8: the window follows what the network says, and an independent model of it.

use super::*;
use crate::congestion::tests::{BASE, MTU, apart, came, feedback, trace};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

fn nscc() -> Nscc {
    let mut nscc = Nscc::new(224, MTU, BASE, true, 8);
    nscc.set_speed(Rate::from_gbps(100));
    nscc
}

/// Packets come at the line's rate, each with queueing of `micros`; returns the time after them.
fn arrive(nscc: &mut Nscc, from: Time, packets: u32, micros: u64, marked: bool) -> Time {
    let mut now = from;
    for _ in 0..packets {
        now += Span::from_nanos(330);
        let delay = BASE + Span::from_micros(micros);
        let window = nscc.window();
        nscc.on_feedback(&feedback(came(marked), delay), window, now);
    }
    now
}

/// With trimming it begins with 1.35 delay-bandwidth products, not before both are known, and opens
/// to 1.75 unless something comes marked, late or trimmed; without trimming with 1.1, and to 1.5.
#[test]
fn it_begins_with_a_full_pipe() {
    let mut nscc = Nscc::new(224, MTU, Span::ZERO, true, 8);
    assert_eq!(nscc.window(), 224, "nothing is known");
    nscc.set_speed(Rate::from_gbps(100));
    let first = Feedback {
        round_trip: Some(BASE),
        ..feedback(came(false), BASE)
    };
    nscc.on_feedback(&first, 10, Time::from_nanos(1_000_000));
    // 1.35 × 12.5 bytes/ns × 14,000 ns = 236,250 bytes, and that packet came without a mark.
    assert_eq!(nscc.window(), 58);
    assert_eq!(self::nscc().window(), 57);
    let start = Time::from_nanos(1_000_000);
    let opened = |micros, marked, fate: Option<PacketFate>| {
        let mut nscc = self::nscc();
        if let Some(fate) = fate {
            nscc.on_feedback(&feedback(fate, BASE), 42, start);
        }
        arrive(&mut nscc, start, 10, micros, marked);
        nscc.window()
    };
    assert_eq!(opened(2, false, None), 67, "a packet more for each");
    assert_eq!(opened(2, true, None), 57, "as it began");
    let trimmed = opened(2, false, Some(PacketFate::Trimmed));
    assert!(trimmed < 61, "it was trimmed: {trimmed}");
    let mut whole = self::nscc();
    arrive(&mut whole, start, 100, 2, false);
    assert_eq!(whole.window(), 74, "1.75 products");
    let mut drops = Nscc::new(224, MTU, BASE, false, 8);
    drops.set_speed(Rate::from_gbps(100));
    assert_eq!(drops.window(), 46, "1.1 products");
    arrive(&mut drops, start, 100, 2, false);
    assert_eq!(drops.window(), 64, "1.5 products");
    whole.on_feedback(&feedback(PacketFate::Lost, BASE), 42, start);
    arrive(&mut whole, start, 1, 2, false);
    assert_eq!(
        whole.window(),
        64,
        "where nothing is trimmed what is too much is lost"
    );
    let mut narrow = Nscc::new(16, MTU, BASE, true, 8);
    narrow.set_speed(Rate::from_gbps(100));
    assert_eq!(narrow.window(), 16, "the configured window bounds it");
}

/// The four cases: without marks it grows, fast below the target; with marks it stays below the
/// target, and shrinks above, at most by half in a round trip.
#[test]
fn delay_and_marks_steer_it() {
    let start = Time::from_nanos(1_000_000);
    let narrow = || {
        let mut nscc = nscc();
        nscc.window = 16.0 * f64::from(MTU);
        nscc.opening = false;
        nscc
    };
    let window = |micros, marked| {
        let mut nscc = narrow();
        arrive(&mut nscc, start, 200, micros, marked);
        nscc.window()
    };
    assert!(window(0, false) > 60, "idle: {}", window(0, false));
    let (near, below, above) = (window(10, false), window(3, false), window(14, false));
    assert!(
        near > 16 && below > near,
        "by what is missing: {near}, {below}"
    );
    assert!(above > 16, "alike for all, however late: {above}");
    assert!((16..=17).contains(&window(3, true)), "marks alone");
    assert!(window(14, true) < 16, "late and marked");
    // The mean of the delay takes long to rise, and each round trip takes half at most.
    let mut nscc = nscc();
    let mut now = arrive(&mut nscc, start, 2_000, 40, true);
    let before = nscc.window;
    now = arrive(&mut nscc, now, 42, 40, true);
    assert!(nscc.window >= before / 2.0, "{before} {}", nscc.window);
    arrive(&mut nscc, now, 4_000, 40, true);
    assert_eq!(nscc.window(), 1);
    assert_eq!(nscc.interval(), None, "marks alone leave a packet");
}

/// Quick adapt: after an interval of trims the window is what got through, once, and what was sent
/// before is ignored.
#[test]
fn trims_set_the_window_to_what_got_through() {
    let mut nscc = nscc();
    let mut now = arrive(&mut nscc, Time::from_nanos(1_000_000), 1, 0, false);
    let begun = nscc.window();
    for turn in 0..60 {
        now += Span::from_nanos(430);
        let fate = if turn % 15 == 0 {
            came(true)
        } else {
            PacketFate::Trimmed
        };
        nscc.on_feedback(&feedback(fate, BASE + Span::from_micros(14)), begun, now);
    }
    // Each of 15 senders: four packets and what came before in 24.5 µs.
    assert!((2..=5).contains(&nscc.window()), "{}", nscc.window());
    let adapted = nscc.window;
    nscc.on_feedback(&feedback(PacketFate::Trimmed, BASE), 3, now);
    assert!((nscc.window - adapted).abs() < 1.0, "it is from before");
    nscc.timed_out();
    assert_eq!(nscc.window(), 1);
}

/// Any events leave the window between one packet and its bound.
#[test]
fn the_window_keeps_its_bounds() {
    for seed in 0..50 {
        println!("seed {seed}");
        let mut random = Pcg64Mcg::new(seed);
        let mut nscc = nscc();
        let mut now = Time::from_nanos(1_000_000);
        for _ in 0..2_000 {
            now += Span::from_nanos(random.next_u64() % 3_000);
            let delay = Span::from_nanos(random.next_u64() % 200_000);
            let fate = match random.next_u64() % 8 {
                0 => PacketFate::Trimmed,
                1 => PacketFate::Lost,
                2 | 3 => came(true),
                _ => came(false),
            };
            nscc.on_feedback(&feedback(fate, delay), nscc.window(), now);
            if random.next_u64().is_multiple_of(300) {
                nscc.timed_out();
            }
            assert!((1..=64).contains(&nscc.window()));
        }
    }
}

/// CC-8: over a trace of 10,000 events the window is within 1 % of that of a model that was written
/// from the published algorithm alone, in another language.
#[test]
fn an_independent_model_agrees() {
    for seed in [1, 2, 3] {
        let mut nscc = nscc();
        let trace = trace(seed, |feedback, in_flight, now| {
            nscc.on_feedback(feedback, in_flight, now);
            nscc.window
        });
        let apart = apart("nscc.py", &trace);
        assert!(apart < 0.01, "seed {seed}: {apart} apart");
    }
}

/// CC-8: the same where the peer tells of crowds that come, grow, shrink and go.
#[test]
fn an_independent_model_agrees_about_crowds() {
    let crowds = [
        (500, 128),
        (2_500, 1_024),
        (5_000, 64),
        (7_000, 300),
        (8_000, 12),
        (8_500, 3),
        (9_000, 1),
        (9_500, 0),
    ];
    let told = crowds.map(|(event, crowd)| format!("{event}:{crowd}"));
    for seed in [1, 2, 3] {
        let mut nscc = nscc();
        let (mut event, mut paced) = (0, 0);
        let trace = trace(seed, |feedback, in_flight, now| {
            if let Some((_, crowd)) = crowds.iter().find(|(at, _)| *at == event) {
                nscc.crowd(*crowd);
            }
            event += 1;
            nscc.on_feedback(feedback, in_flight, now);
            paced += u32::from(nscc.crowd > 0.0 && nscc.window < nscc.mtu);
            nscc.window
        });
        assert!(paced > 1_000, "{paced} events with a share");
        let apart = apart(&format!("nscc.py {}", told.join(" ")), &trace);
        assert!(apart < 0.01, "seed {seed}: {apart} apart");
    }
}

/// CC-8: with a crowd, the first trim leaves this connection its share of the line; further ones
/// and marks leave most of it; and the share of a smaller crowd is taken at once.
#[test]
fn a_crowd_shares_the_line() {
    let now = Time::from_nanos(1_000_000);
    for crowd in [128, 1_024] {
        let share = 14_000.0 * 12.5 / f64::from(crowd);
        let mut nscc = nscc();
        nscc.crowd(crowd);
        assert_eq!(nscc.window(), 57, "nothing was trimmed yet");
        let tell = |nscc: &mut Nscc, fate| {
            nscc.on_feedback(&feedback(fate, BASE + Span::from_micros(12)), 0, now);
            nscc.window / share
        };
        let first = tell(&mut nscc, PacketFate::Trimmed);
        assert!((0.9..1.05).contains(&first), "{crowd}: {first}");
        for fate in [PacketFate::Trimmed, came(true)] {
            for _ in 0..100 {
                tell(&mut nscc, fate);
            }
            let least = nscc.window / share;
            assert!((0.85..1.0).contains(&least), "{crowd}: {least}");
        }
        let before = nscc.window;
        nscc.timed_out();
        assert!((nscc.window - before).abs() < 1.0, "a pace stays");
        nscc.crowd(crowd / 2);
        assert!((nscc.window / before - 2.0).abs() < 0.01, "{crowd}");
        let faster = nscc.window;
        arrive(&mut nscc, now, 20, 0, false);
        assert!(nscc.window > 1.2 * faster, "an idle line is used");
    }
}

/// CC-8: if few share a link, the first trim leaves one and a half shares, once for what was under
/// way; when some have gone the others take what they left, and an idle line is used at once.
#[test]
fn few_share_the_line() {
    let now = Time::from_nanos(1_000_000);
    let pipe = 14_000.0 * 12.5 / (1.0 + 98.0 / f64::from(MTU));
    let shares = |nscc: &Nscc, of: f64| nscc.window / (pipe / of);
    let mut nscc = nscc();
    nscc.crowd(10);
    for in_flight in (0..42).rev() {
        nscc.on_feedback(&feedback(PacketFate::Trimmed, BASE), in_flight, now);
        assert!((shares(&nscc, 10.0) - 1.5).abs() < 0.01, "{nscc:?}");
    }
    nscc.crowd(9);
    assert!((shares(&nscc, 10.0) - 1.5).abs() < 0.01, "it has enough");
    nscc.crowd(4);
    assert!((shares(&nscc, 4.0) - 1.5).abs() < 0.01, "others have gone");
    nscc.crowd(8);
    assert!(
        (shares(&nscc, 4.0) - 1.5).abs() < 0.01,
        "marks tell of more"
    );
    nscc.window = f64::from(MTU);
    let mut late = nscc.clone();
    arrive(&mut nscc, now, 1, 0, false);
    assert!((shares(&nscc, 8.0) - 1.0).abs() < 0.05, "the line is idle");
    arrive(&mut late, now, 1, 3, false);
    assert!(shares(&late, 8.0) < 0.5, "it is not");
    nscc.crowd(1);
    assert_eq!(nscc.window(), 62, "alone, it has all");
}

/// HT-3: a peer that tells of the largest crowd and then of one queue pair, and answers within a
/// tick of the clock, opens the window no further than its bound, and the window stays a number.
#[test]
fn forged_crowds_open_no_window() {
    let mut nscc = nscc();
    let most = 64;
    let now = arrive(&mut nscc, Time::from_nanos(1_000_000), 100, 30, true);
    for crowd in [1_000, u32::MAX, 1] {
        nscc.crowd(crowd);
        for _ in 0..200 {
            let late = BASE + Span::from_micros(50);
            nscc.on_feedback(&feedback(PacketFate::Trimmed, late), 10, now);
        }
    }
    nscc.window = f64::from(MTU) / 1e6;
    nscc.crowd(u32::MAX);
    nscc.crowd(1);
    assert!((1..=most).contains(&nscc.window()), "{nscc:?}");

    let mut nscc = Nscc::new(224, MTU, Span::ZERO, true, 8);
    nscc.set_speed(Rate::from_gbps(100));
    let at_once = Feedback {
        round_trip: Some(Span::ZERO),
        ..feedback(came(true), Span::ZERO)
    };
    for fate in [came(true), PacketFate::Trimmed, came(false)].repeat(50) {
        nscc.on_feedback(&Feedback { fate, ..at_once }, 10, now);
        assert!(nscc.window.is_finite() && nscc.window > 0.0, "{nscc:?}");
    }
}
