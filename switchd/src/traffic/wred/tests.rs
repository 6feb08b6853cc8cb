use super::*;
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::num::NonZeroU8;

const KMIN: u32 = 100_000;
const KMAX: u32 = 400_000;

/// A probability of `n` in a thousand, rounded to the nearest.
fn per_mille(n: u16) -> u32 {
    (n as u32 * ONE + 500) / 1000
}

fn linear(pmax: u32) -> Profile {
    Profile::of(Curve::Linear {
        kmin: KMIN,
        kmax: KMAX,
        pmax,
    })
}

/// A source that must not be asked.
fn none() -> u32 {
    panic!("a random number where the answer is certain")
}

/// How often a packet is marked when each of 2¹⁶ evenly spaced numbers is drawn once.
fn marked(profile: &Profile, depth: u32) -> u32 {
    let draws = (0..ONE).filter(|n| profile.decide(depth, true, || n << 16) == Decision::Mark);
    u32::try_from(draws.count()).expect("at most 65536")
}

/// SW-20: at ten depths the share of marked packets is the line's, to within 2 %.
#[test]
fn marking_follows_the_line() {
    const DRAWS: u32 = 100_000;
    for pmax in [per_mille(50), per_mille(250), per_mille(750), ONE] {
        let mut random = Pcg64Mcg::seed_from_u64(u64::from(pmax));
        let profile = linear(pmax);
        for tenth in 1..=10 {
            let depth = KMIN + (KMAX - KMIN) / 10 * tenth;
            let marks = (0..DRAWS)
                .filter(|_| profile.decide(depth, true, || random.next_u32()) == Decision::Mark);
            let measured = marks.count() as f64 / f64::from(DRAWS);
            let expected = f64::from(pmax) / f64::from(ONE) * f64::from(tenth) / 10.0;
            assert!(
                (measured - expected).abs() < 0.02,
                "at {depth}: {measured}, not {expected}"
            );
        }
    }
}

/// SW-20: 0 below Kmin, Pmax at Kmax, 1 above; no random number where the answer is certain.
#[test]
fn the_ends_of_the_line_are_exact() {
    let profile = linear(per_mille(250));
    for depth in [0, KMIN - 1, KMIN] {
        assert_eq!(profile.decide(depth, true, none), Decision::Pass);
    }
    for depth in [KMAX + 1, u32::MAX] {
        assert_eq!(profile.decide(depth, true, none), Decision::Mark);
    }
    assert_eq!(marked(&profile, KMAX), ONE / 4);
    assert_eq!(marked(&profile, u32::midpoint(KMIN, KMAX)), ONE / 8);
    assert_eq!(linear(ONE).decide(KMAX, true, none), Decision::Mark);
    assert_eq!(linear(0).decide(KMAX, true, none), Decision::Pass);
    assert_eq!(
        profile.decide(KMIN + 1, true, || 0),
        Decision::Mark,
        "rare, not impossible"
    );
    assert_eq!(profile.decide(KMAX, true, || u32::MAX), Decision::Pass);
}

/// SW-20: a line without length, and one as long as can be.
#[test]
fn extreme_lines_hold() {
    let mut profile = linear(per_mille(500));
    profile.curve = Curve::Linear {
        kmin: 7,
        kmax: 7,
        pmax: per_mille(500),
    };
    assert_eq!(profile.decide(6, true, none), Decision::Pass);
    assert_eq!(marked(&profile, 7), ONE / 2);
    assert_eq!(profile.decide(8, true, none), Decision::Mark);
    profile.curve = Curve::Linear {
        kmin: 0,
        kmax: u32::MAX,
        pmax: ONE,
    };
    assert_eq!(
        profile.decide(u32::MAX - 1, true, || u32::MAX),
        Decision::Pass
    );
    assert_eq!(marked(&profile, 1 << 31), ONE / 2 + 1);
}

/// SW-20: the deterministic alternative.
#[test]
fn one_threshold_needs_no_chance() {
    let profile = Profile::of(Curve::Deterministic { threshold: 5000 });
    assert_eq!(profile.decide(5000, true, none), Decision::Pass);
    assert_eq!(profile.decide(5001, true, none), Decision::Mark);
    assert_eq!(profile.decide(5001, false, none), Decision::Drop);
}

/// SW-20: capable packets are marked, others dropped, each if the profile says so.
#[test]
fn what_is_chosen_is_marked_or_dropped() {
    use Decision::{Drop, Mark, Pass};
    let cases = [
        (true, true, Mark, Drop),
        (true, false, Mark, Pass),
        (false, true, Drop, Drop),
        (false, false, Pass, Pass),
    ];
    for (ecn, drop, capable, other) in cases {
        let profile = Profile {
            ecn,
            drop,
            ..linear(ONE)
        };
        assert_eq!(profile.decide(KMAX + 1, true, none), capable);
        assert_eq!(profile.decide(KMAX + 1, false, none), other);
        assert_eq!(profile.decide(KMIN, false, none), Pass);
    }
    let idle = Profile {
        ecn: false,
        drop: false,
        ..linear(ONE)
    };
    assert_eq!(idle.decide(KMIN + 1, true, none), Pass, "nothing to choose");
}

/// SW-22: thresholds as shares of the plane's bandwidth × delay.
#[test]
fn defaults_follow_the_plane() {
    let curve = |kmin, kmax| Curve::Linear {
        kmin,
        kmax,
        pmax: ONE,
    };
    // 400 Gb/s × 12 µs.
    assert_eq!(Profile::derived(600_000).curve, curve(120_000, 480_000));
    assert_eq!(Profile::derived(9).curve, curve(1, 7));
    assert_eq!(
        Profile::derived(u32::MAX).curve,
        curve(858_993_459, 3_435_973_836)
    );
    assert_eq!(
        Profile::deterministic(600_000).curve,
        Curve::Deterministic { threshold: 300_000 }
    );
    for plane in [0, 1, 600_000, u32::MAX] {
        let profile = Profile::derived(plane);
        assert_eq!(profile.check(), Ok(()));
        assert!(profile.ecn && profile.drop && profile.average.is_none());
        assert_eq!(Profile::deterministic(plane).check(), Ok(()));
    }
}

/// SW-20: profiles that contradict themselves are refused with their numbers.
#[test]
fn contradictions_are_refused_with_their_numbers() {
    let of = |kmin, kmax, pmax| Profile::of(Curve::Linear { kmin, kmax, pmax }).check();
    assert_eq!(of(8, 8, ONE), Ok(()));
    let error = of(9, 8, ONE).expect_err("backwards");
    assert_eq!(error.to_string(), "kmin is 9 bytes, above kmax, 8 bytes");
    let error = of(8, 9, ONE + 1).expect_err("above one");
    assert_eq!(
        error.to_string(),
        "pmax is 65537, above 65536, which is 100 %"
    );
    assert!(of(8, 9, per_mille(1001)).is_err());
    let weighted = |exponent| Profile {
        average: NonZeroU8::new(exponent),
        ..linear(ONE)
    };
    assert_eq!(weighted(15).check(), Ok(()));
    let error = weighted(16).check().expect_err("too slow");
    assert_eq!(
        error.to_string(),
        "the average has a weight of 2^-16; 2^-1 to 2^-15 are possible"
    );
}

/// SW-20: the average moves by its weight, settles on a constant depth and comes back to zero.
#[test]
fn the_average_follows_the_queue() {
    let mut average = Average::default();
    assert_eq!(average.update(4000, 2), 1000);
    assert_eq!(average.update(4000, 2), 1750);
    for exponent in 1..=EXPONENT_MAX {
        for depth in [u32::MAX, 1, 123_456, 0] {
            // ln 2³² × 2ⁿ steps bring a distance of 2³² below one; twice as many, well below a
            // half.
            (0..50_u32 << exponent).for_each(|_| {
                average.update(depth, exponent);
            });
            assert_eq!(average.bytes(), depth, "weight 2^-{exponent}");
        }
    }
    let profile = Profile {
        average: NonZeroU8::new(1),
        ..linear(ONE)
    };
    let mut average = Average::default();
    assert_eq!(profile.depth(&mut average, 1000), 500);
    assert_eq!(linear(ONE).depth(&mut average, 1000), 1000);
}

/// SW-20: while nothing arrives, the average moves as packets would move it that find the queue
/// empty.
#[test]
fn an_idle_average_moves_as_by_packets() {
    for exponent in [1, 4, 9, EXPONENT_MAX] {
        for packets in [0_u64, 1, 7, 100, 5000] {
            let mut stepped = Average::default();
            (0..200_000).for_each(|_| {
                stepped.update(1_000_000, exponent);
            });
            let mut rested = stepped;
            (0..packets).for_each(|_| {
                stepped.update(0, exponent);
            });
            rested.rest(packets, exponent);
            let (stepped, rested) = (stepped.bytes(), rested.bytes());
            assert!(
                stepped.abs_diff(rested) <= 1,
                "2^-{exponent}, {packets}: {rested}, not {stepped}"
            );
        }
        let mut average = Average::default();
        average.update(u32::MAX, exponent);
        average.rest(u64::MAX, exponent);
        assert_eq!(average.bytes(), 0);
    }
}

proptest! {
    /// SW-20: the share of numbers that choose a packet is the line's, to within 2⁻¹⁶.
    #[test]
    fn the_probability_is_on_the_line(ends: [u32; 2], at: u32, pmax in 0..=ONE) {
        let (kmin, kmax) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        prop_assume!(kmin < kmax);
        let done = at % (kmax - kmin);
        let profile = Profile::of(Curve::Linear { kmin, kmax, pmax });
        prop_assert_eq!(profile.check(), Ok(()));
        let line = f64::from(pmax) * f64::from(done) / f64::from(kmax - kmin);
        let measured = f64::from(marked(&profile, kmin + done));
        prop_assert!((measured - line).abs() <= 1.0, "{measured} of 65536, not {line}");
    }

    /// SW-20: with the same number drawn, a deeper queue never chooses less.
    #[test]
    fn a_deeper_queue_never_chooses_less(ends: [u32; 2], depths: [u32; 2], random: u32, pmax in 0..=ONE) {
        let (kmin, kmax) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let profile = Profile::of(Curve::Linear { kmin, kmax, pmax });
        let decide = |depth| profile.decide(depth, true, || random);
        let (low, high) = (depths[0].min(depths[1]), depths[0].max(depths[1]));
        prop_assert!(decide(low) == Decision::Pass || decide(high) == Decision::Mark);
    }

    /// SW-20: an average lies between where it was and the depth it goes to.
    #[test]
    fn an_average_never_overshoots(depths: Vec<u32>, exponent in 1_u8..=EXPONENT_MAX) {
        let mut average = Average::default();
        for depth in depths {
            let before = average.bytes();
            let after = average.update(depth, exponent);
            prop_assert!((before.min(depth)..=before.max(depth)).contains(&after));
        }
    }
}
