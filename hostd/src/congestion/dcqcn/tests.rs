use super::super::pace::{CATCH_UP, FRAMING};
use super::super::tests::{BASE, apart, came, feedback, trace};
use super::*;

const LINE: u64 = 100_000_000_000;
const INTERVAL: Span = Span::from_micros(50);

fn dcqcn(interval: Span) -> Dcqcn {
    let mut dcqcn = Dcqcn::new(224, interval);
    dcqcn.set_speed(Rate::from_bps(LINE));
    dcqcn
}

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000_000 + micros * 1_000)
}

/// How long the next packet waits.
fn wait(dcqcn: &Dcqcn, now: Time) -> Span {
    let limit = dcqcn.limit.expect("one");
    limit
        .pace
        .not_before(now)
        .map_or(Span::ZERO, |next| next.since(now))
}

/// A rate as part of the line's.
#[expect(clippy::cast_precision_loss, reason = "a part")]
fn part(dcqcn: &Dcqcn) -> f64 {
    dcqcn.rate() as f64 / LINE as f64
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 0.001 * expected
}

/// CC-1: before the first notification nothing limits a flow; it halves the rate, four steps of
/// time come halfway back each, further ones add, and beside enough bytes they add more, until the
/// flow is free again.
#[test]
fn notifications_cut_the_rate_and_it_comes_back() {
    let mut dcqcn = dcqcn(INTERVAL);
    assert_eq!(dcqcn.not_before(at(0)), None);
    dcqcn.left(9_000, at(0));
    assert_eq!(dcqcn.not_before(at(0)), None, "no limit yet");
    // Twice, so that the target is below the line.
    dcqcn.notified(at(0));
    assert!(near(part(&dcqcn), 0.5));
    dcqcn.notified(at(50));
    assert!(near(part(&dcqcn), 0.25));
    let mut expected = 0.25;
    for step in 1..=4 {
        dcqcn.elapse(at(50 + 55 * step - 1));
        assert!(near(part(&dcqcn), expected), "not before {step}");
        dcqcn.elapse(at(50 + 55 * step));
        expected = f64::midpoint(expected, 0.5);
        assert!(near(part(&dcqcn), expected), "{step}: {}", part(&dcqcn));
    }
    let mut target = 0.5;
    for step in 5..=8 {
        dcqcn.elapse(at(50 + 55 * step));
        target += 0.001;
        expected = f64::midpoint(expected, target);
        assert!(near(part(&dcqcn), expected), "{step}: {}", part(&dcqcn));
    }
    // 60 MB are six steps by bytes: the last one adds more.
    let now = at(50 + 55 * 8 + 1);
    for _ in 0..60_000_000 / 9_024 + 1 {
        dcqcn.left(9_000, now);
    }
    for more in [0.001, 0.001, 0.001, 0.001, 0.001, 0.01] {
        target += more;
        expected = f64::midpoint(expected, target);
    }
    assert!(near(part(&dcqcn), expected), "{} {expected}", part(&dcqcn));
    dcqcn.elapse(at(100_000));
    assert_eq!((dcqcn.rate(), dcqcn.limit.is_none()), (LINE, true));
}

/// CC-1: with multipath the notification point is here: the first mark or trim in an interval
/// counts. Losses do not, and a time-out narrows the window alone.
#[test]
fn marks_and_trims_notify_once_in_an_interval() {
    let mut dcqcn = dcqcn(INTERVAL);
    for fate in [came(false), PacketFate::Lost, PacketFate::NotReady] {
        dcqcn.on_feedback(&feedback(fate, BASE), at(0));
    }
    assert_eq!(dcqcn.rate(), LINE);
    for micros in 0..50 {
        let fate = if micros % 2 == 0 {
            came(true)
        } else {
            PacketFate::Trimmed
        };
        dcqcn.on_feedback(&feedback(fate, BASE), at(micros));
        assert!(near(part(&dcqcn), 0.5), "{micros}");
    }
    dcqcn.on_feedback(&feedback(PacketFate::Trimmed, BASE), at(50));
    assert!(near(part(&dcqcn), 0.25));
    assert_eq!(dcqcn.window(), 224);
    dcqcn.timed_out();
    assert!(dcqcn.window() < 224 && near(part(&dcqcn), 0.25));
}

/// CC-1: a flood of notifications brings the rate to its floor, in no fewer intervals than it
/// takes, and no further; then it comes back by itself. So forged ones slow a flow no more than
/// that.
#[test]
fn a_flood_ends_at_the_floor() {
    let mut dcqcn = dcqcn(INTERVAL);
    for tenth in 0..1_000 {
        dcqcn.notified(at(0) + Span::from_nanos(tenth * 100));
    }
    // 100 µs: at 0, 25, 50, 75.
    assert!(part(&dcqcn) > 0.06, "{}", part(&dcqcn));
    for micros in 100..100_000 {
        dcqcn.notified(at(micros));
        assert!(dcqcn.rate() >= LINE / LEAST);
    }
    assert_eq!(dcqcn.rate(), LINE / LEAST);
    dcqcn.elapse(at(100_000 + 60_000));
    assert_eq!(dcqcn.rate(), LINE, "1,000 steps of a thousandth");
}

/// CC-1: packets of any length leave at the rate to the bit. A thread that runs late makes up for
/// 50 µs and no more.
#[test]
fn the_pace_is_the_rate() {
    let mut dcqcn = dcqcn(INTERVAL);
    dcqcn.notified(at(0));
    dcqcn.notified(at(50));
    // No step comes in between: fewer bytes, and no clock.
    let mut now = at(50);
    let never = now + Span::from_secs(10);
    let limit = dcqcn.limit.as_mut().expect("one");
    (limit.step_at, limit.decay_at) = (never, never);
    let burst = |dcqcn: &mut Dcqcn, now| {
        let mut bytes = 0;
        while dcqcn.not_before(now).is_none() {
            dcqcn.left(976, now);
            bytes += 1_000;
        }
        bytes
    };
    let room = Rate::from_bps(LINE / 4).bytes_in(CATCH_UP);
    let first = burst(&mut dcqcn, now);
    assert!((room..room + 2_000).contains(&first), "{first} {room}");
    let (start, mut bytes) = (now, 0);
    for turn in 0..1_500 {
        let len = 1_000 + turn * 7 % 8_000;
        while dcqcn.not_before(now).is_some() {
            now += Span::from_nanos(7);
        }
        dcqcn.left(len, now);
        bytes += len as u64 + FRAMING;
        if turn % 100 == 0 {
            now += Span::from_micros(20);
        }
    }
    let allowed = Rate::from_bps(LINE / 4).bytes_in(now.since(start));
    assert!(bytes.abs_diff(allowed) < 5_000, "{bytes} {allowed}");
    now += Span::from_millis(100);
    let again = burst(&mut dcqcn, now);
    assert!((room..room + 2_000).contains(&again), "{again} {room}");
}

/// CC-1: when the rate changes, a packet that waits waits as much longer or shorter.
#[test]
fn a_wait_follows_the_rate() {
    let mut dcqcn = dcqcn(INTERVAL);
    for micros in 0..12 {
        dcqcn.notified(at(micros * 50));
    }
    let now = at(550);
    assert_eq!(dcqcn.rate(), LINE / LEAST);
    dcqcn.left(9_000, now);
    let first = wait(&dcqcn, now - CATCH_UP);
    assert!(near(first.as_secs_f64(), 9_024.0 * 8.0 * 1_024.0 / 1e11));
    let look = dcqcn.not_before(now).expect("it waits");
    assert_eq!(look, now + dcqcn.period(), "a step shortens it");
    // Steps that double the rate and more.
    dcqcn.elapse(at(550 + 55 * 8));
    let faster = wait(&dcqcn, now);
    assert!(faster < first, "{faster:?} {first:?}");
    dcqcn.set_speed(Rate::from_gbps(10));
    assert_eq!(
        dcqcn.rate(),
        10_000_000_000,
        "another line, without a limit"
    );
}

/// CC-1: an independent model agrees within 1 % over 10,000 events, also where steps by bytes lead
/// to hyper increase.
#[test]
fn an_independent_model_agrees() {
    let mut hyper = 0;
    for (seed, interval) in [(1, 50), (2, 50), (3, 50), (1, 5), (2, 5), (3, 5), (4, 1)] {
        let mut dcqcn = dcqcn(Span::from_micros(interval));
        let trace = trace(seed, |feedback, _, now| {
            dcqcn.elapse(now);
            dcqcn.on_feedback(feedback, now);
            for _ in 0..64 {
                dcqcn.left(9_000, now);
            }
            let steps = |limit: Limit| limit.steps[0].min(limit.steps[1]);
            hyper += u32::from(dcqcn.limit.map_or(0, steps) > FAST);
            100e9 * part(&dcqcn)
        });
        let apart = apart(&format!("dcqcn.py {interval}"), &trace);
        assert!(apart < 0.01, "seed {seed}, {interval} µs: {apart} apart");
    }
    assert!(hyper > 100, "{hyper} events of hyper increase");
}
