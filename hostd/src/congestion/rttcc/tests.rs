//! RTTCC by its own formulas, and beside an independent model.

use super::super::tests::{BASE, MTU, apart, came, feedback, trace};
use super::*;

const LINE: f64 = 100e9;

fn rttcc() -> Rttcc {
    let mut rttcc = Rttcc::new(224, MTU, BASE, Span::from_micros(10));
    rttcc.set_speed(Rate::from_gbps(100));
    rttcc
}

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000_000 + micros * 1_000)
}

/// The rate after probes with these round trips in microseconds, in parts of the line.
fn rates(rttcc: &mut Rttcc, round_trips: &[u64]) -> Vec<f64> {
    let each = round_trips.iter().zip(0..);
    each.map(|(micros, turn)| {
        rttcc.probed(Span::from_micros(*micros), at(100 * turn));
        rttcc.rate / LINE
    })
    .collect()
}

/// CC-6: a probe above the limit, 17.5 µs, cuts by how far it is above; one below it
/// adds a step, which doubles up to a twentieth of the line and begins anew.
#[test]
fn the_rate_follows_the_round_trip() {
    let mut rttcc = rttcc();
    assert_eq!(rttcc.not_before(at(0)), None);
    let found = rates(&mut rttcc, &[14, 35, 17, 16, 15, 14, 14, 14, 200, 14]);
    let mut expected = vec![1.0, 0.8];
    for step in [1.0, 2.0, 4.0, 8.0, 12.8, 12.8] {
        expected.push(expected.last().unwrap_or(&0.0) + step / 256.0);
    }
    expected.push(expected[7] * (1.0 - 0.4 * (1.0 - 17.5 / 200.0)));
    expected.push(expected[8] + 1.0 / 256.0);
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    assert!(rttcc.is_guided());
}

/// CC-6: on a slow line eight packets may stand, however short the way is.
#[test]
fn a_slow_line_has_room_for_packets() {
    let mut rttcc = Rttcc::new(224, MTU, BASE, Span::from_micros(10));
    rttcc.set_speed(Rate::from_gbps(1));
    rttcc.probed(Span::from_micros(276), at(0));
    assert!(rttcc.rate >= 1e9);
    rttcc.probed(Span::from_micros(277), at(1_000));
    assert!(rttcc.rate < 1e9);
}

/// CC-2, CC-6: a way that has become longer keeps a flow at the least rate for some round trips
/// only, if it is not told of by losses.
#[test]
fn a_longer_path_is_noticed() {
    let mut rttcc = Rttcc::new(224, MTU, Span::ZERO, Span::from_micros(10));
    rttcc.set_speed(Rate::from_gbps(100));
    let mut turn = 0;
    let mut pass = |rttcc: &mut Rttcc, micros, times| {
        for _ in 0..times {
            turn += 1;
            rttcc.probed(Span::from_micros(micros), at(100 * turn));
        }
        (rttcc.rate / LINE, at(100 * turn))
    };
    let near = |rate: f64, expected: f64| (rate - expected).abs() < 1e-9;
    pass(&mut rttcc, 14, 10);
    let (rate, _) = pass(&mut rttcc, 40, 80);
    assert!(near(rate, 1.0 / 1024.0), "{rate}");
    // A loss says that there is a queue.
    let (_, now) = pass(&mut rttcc, 40, 1);
    rttcc.on_feedback(&feedback(PacketFate::Lost, BASE), now);
    let (rate, _) = pass(&mut rttcc, 40, 70);
    assert!(near(rate, 1.0 / 1024.0), "{rate}");
    let (rate, _) = pass(&mut rttcc, 40, 100);
    assert!(near(rate, 1.0), "{rate}");
}

/// CC-6: without a configured round trip the shortest probe is the idle one.
#[test]
fn the_idle_round_trip_is_learnt() {
    let mut rttcc = Rttcc::new(224, MTU, Span::ZERO, Span::from_micros(10));
    rttcc.set_speed(Rate::from_gbps(100));
    let found = rates(&mut rttcc, &[40, 49, 20, 26, 24]);
    let fine = found[1] >= 1.0 && found[2] >= 1.0;
    assert!(fine && found[3] < 1.0 && found[4] > found[3], "{found:?}");
}

/// CC-6: a loss or a trim halves the rate, once a round trip, down to a floor; packets leave at
/// the rate.
#[test]
fn losses_halve_it_once_in_a_round_trip() {
    let mut rttcc = rttcc();
    rates(&mut rttcc, &[14]);
    for fate in [PacketFate::Lost, PacketFate::Trimmed, PacketFate::Lost] {
        rttcc.on_feedback(&feedback(fate, BASE), at(10));
    }
    assert!((rttcc.rate / LINE - 0.5).abs() < 1e-9);
    let mut now = at(11);
    for _ in 0..1_000 {
        while let Some(next) = rttcc.not_before(now) {
            now = next;
        }
        rttcc.left(976, now);
    }
    let bits = nanos(now.since(at(11)) + Span::from_micros(50)) * rttcc.rate / 1e9;
    assert!((bits / 8e6 - 1.0).abs() < 0.01, "{bits}");
    for turn in 0..100 {
        let now = at(1_000 + 20 * turn);
        rttcc.on_feedback(&feedback(PacketFate::Lost, BASE), now);
    }
    assert!((rttcc.rate - LINE * LEAST).abs() < 1.0);
}

/// CC-6: probes are as far apart as configured, and a fiftieth of the rate at most.
#[test]
fn probes_are_a_small_part_of_the_rate() {
    let mut rttcc = rttcc();
    assert_eq!(rttcc.probe_interval(), Span::from_micros(10));
    for turn in 0..100 {
        let now = at(1_000 + 20 * turn);
        rttcc.on_feedback(&feedback(PacketFate::Lost, BASE), now);
    }
    let bits = nanos(rttcc.probe_interval()) * rttcc.rate / 1e9;
    assert!((bits * SHARE / PROBE - 1.0).abs() < 0.01, "{bits}");
}

/// CC-6: in flight is what the rate makes of one and a quarter limits, and never more than is
/// configured; a time-out closes the window.
#[test]
fn what_is_in_flight_follows_the_rate() {
    let mut rttcc = rttcc();
    // 21.9 µs of 12.5 bytes a nanosecond.
    assert!((rttcc.exact() - 66.8).abs() < 0.1);
    rates(&mut rttcc, &[14, 200]);
    // A cut by 0.4 (1 - 17.5 / 200).
    assert!((rttcc.exact() - 42.4).abs() < 0.1);
    for turn in 0..100 {
        let now = at(1_000 + 300 * turn);
        rttcc.on_feedback(&feedback(PacketFate::Lost, BASE), now);
    }
    assert!(rttcc.exact() < 1.0);
    let mut rttcc = Rttcc::new(20, MTU, BASE, Span::from_micros(10));
    rttcc.set_speed(Rate::from_gbps(100));
    assert!((rttcc.exact() - 20.0).abs() < 0.1);
    rttcc.timed_out();
    assert!(rttcc.exact() < 20.0);
}

/// CC-6: packets count only while no probe was answered for long, and once in a round trip.
#[test]
fn packets_stand_in_for_probes() {
    let mut rttcc = rttcc();
    let late = feedback(came(false), Span::from_micros(35));
    rttcc.on_feedback(&late, at(0));
    rttcc.on_feedback(&late, at(10));
    assert!((rttcc.rate / LINE - 0.8).abs() < 1e-9 && !rttcc.is_guided());
    rttcc.probed(BASE, at(50));
    let rate = rttcc.rate;
    rttcc.on_feedback(&late, at(100));
    assert!(rttcc.is_guided() && (rttcc.rate - rate).abs() < 1.0);
    rttcc.on_feedback(&late, at(200));
    assert!(rttcc.rate < rate && !rttcc.is_guided());
}

/// CC-6: an independent model agrees within 1 % over 10,000 events.
#[test]
fn an_independent_model_agrees() {
    for seed in [1, 2, 3] {
        let mut rttcc = rttcc();
        let trace = trace(seed, |feedback, _, now| {
            match (feedback.fate, feedback.delay) {
                (PacketFate::Delivered { marked: true, .. }, Some(delay)) => {
                    rttcc.probed(delay, now);
                }
                _ => rttcc.on_feedback(feedback, now),
            }
            rttcc.rate
        });
        let apart = apart("rttcc.py", &trace);
        assert!(apart < 0.01, "seed {seed}: {apart} apart");
    }
}
