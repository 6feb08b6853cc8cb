use super::*;
use crate::congestion::{Dcqcn, Hpcc, Rttcc, Swift, Timely};
use crate::verbs::PacketFate;

const BASE: Span = Span::from_micros(14);

fn lanes(count: u8) -> Lanes {
    let swift = Controller::Swift(Box::new(Swift::new(224, 4096, BASE)));
    let mut lanes = Lanes::new(&swift, count, 1);
    lanes.set_speed(Rate::from_gbps(100));
    lanes
}

/// A packet on `path` came, `micros` later than in an idle network.
fn came(lanes: &mut Lanes, path: u8, micros: u64, now: Time) {
    let fate = PacketFate::Delivered {
        newest_copy: true,
        marked: false,
    };
    outcome(lanes, path, micros, fate, now);
}

fn outcome(lanes: &mut Lanes, path: u8, micros: u64, fate: PacketFate, now: Time) {
    let feedback = Feedback {
        path,
        entropy: path,
        sent: now,
        round_trip: None,
        delay: Some(BASE + Span::from_micros(micros)),
        fate,
    };
    lanes.feedback(&feedback, 0, now);
}

/// CC-10, HT-33: eight lanes begin and grow as one does; a congested one shrinks alone and
/// closes, and the others keep what they have.
#[test]
fn lanes_grow_as_one_and_shrink_apart() {
    let mut now = Time::from_nanos(1_000_000);
    let (mut one, mut eight) = (lanes(1), lanes(8));
    assert_eq!((one.window(), eight.window()), (42, 42));
    for path in (0..8).cycle().take(42 * 20) {
        now += Span::from_nanos(300);
        came(&mut one, 0, 0, now);
        came(&mut eight, path, 0, now);
    }
    assert!((55..63).contains(&one.window()), "{}", one.window());
    assert!(
        eight.window().abs_diff(one.window()) < 3,
        "{}",
        eight.window()
    );
    let before = eight.window();
    for _ in 0..10 {
        now += Span::from_micros(50);
        came(&mut eight, 3, 30, now);
    }
    let (after, lost) = (eight.window(), before / 8);
    assert!(before - after >= lost - 1 && before - after <= lost + 1);
    for _ in 0..3 {
        eight.left(3, 4_096, true, now);
    }
    eight.left(4, 4_096, true, now);
    assert!(!eight.is_open(3) && eight.is_open(4));
    assert!(eight.credit(4) > 0 && eight.held_until().is_none());
    eight.settle();
}

/// CC-2: what was learnt is forgotten when the speed of all ports in use together changes, and not
/// when the same speed is told again.
#[test]
fn another_speed_begins_anew_and_the_same_does_not() {
    let bounds = [Span::from_micros(20), Span::from_micros(50)];
    let interval = Span::from_micros(50);
    for controller in [
        Controller::Dcqcn(Box::new(Dcqcn::new(224, interval))),
        Controller::Timely(Box::new(Timely::new(224, 4096, BASE, bounds))),
        Controller::Rttcc(Box::new(Rttcc::new(224, 4096, BASE, interval))),
    ] {
        let mut now = Time::from_nanos(1_000_000_000);
        let mut lanes = Lanes::new(&controller, 1, 1);
        lanes.set_speed(Rate::from_gbps(100));
        let fresh = format!("{:?}", lanes.lanes[0].controller);
        for _ in 0..20 {
            now += Span::from_micros(60);
            lanes.left(0, 4_096, true, now);
            lanes.notified(Some(BASE), now);
            lanes.timed(BASE + Span::from_micros(90), now);
            came(&mut lanes, 0, 90, now);
        }
        let slowed = format!("{:?}", lanes.lanes[0].controller);
        assert_ne!(slowed, fresh);
        lanes.set_speed(Rate::from_gbps(100));
        assert_eq!(format!("{:?}", lanes.lanes[0].controller), slowed);
        lanes.set_speed(Rate::from_gbps(50));
        assert_ne!(format!("{:?}", lanes.lanes[0].controller), slowed);
    }
}

/// CC-10: below a packet in a round trip each of eight lanes waits eight times as long as one
/// would.
#[test]
fn lanes_pace_together_as_one_does() {
    let now = Time::from_nanos(1_000_000_000);
    let wait = |mut lanes: Lanes, count: u8| {
        for path in 0..count {
            lanes.left(path, 4_096, true, now);
            lanes.timed_out();
            for later in 0..20 {
                came(&mut lanes, path, 1_000, now + Span::from_millis(5 * later));
            }
        }
        let now = now + Span::from_secs(1);
        for path in 0..count {
            lanes.left(path, 4_096, true, now);
            lanes.left(path, 4_096, true, now);
            came(&mut lanes, path, 1_000, now);
            came(&mut lanes, path, 1_000, now);
        }
        assert_eq!(lanes.credit(0), 0);
        lanes.held_until().expect("a pace").since(now).nanos()
    };
    let (one, eight) = (wait(lanes(1), 1), wait(lanes(8), 8));
    // Each wait is half an interval to one and a half.
    assert!((8 * one / 3..24 * one).contains(&eight), "{one} {eight}");
}

/// CC-10: the same of one that has a rate: eight lanes whose window is less than a packet send no
/// more than one.
#[test]
fn lanes_with_a_rate_pace_together_as_one_does() {
    let sent = |count: u8| {
        let hpcc = Controller::Hpcc(Box::new(Hpcc::new(224, 4096, BASE, 1)));
        let mut lanes = Lanes::new(&hpcc, count, 1);
        lanes.set_speed(Rate::from_gbps(100));
        let mut now = Time::from_nanos(1_000_000_000);
        // Nothing comes of what is sent, so all close.
        for path in (0..count).cycle().take(64 * usize::from(count)) {
            now += Span::from_millis(1);
            lanes.left(path, 4_096, true, now);
            outcome(&mut lanes, path, 0, PacketFate::Lost, now);
        }
        let mut sent = 0;
        for _ in 0..10_000 {
            now += Span::from_micros(100);
            lanes.release(now);
            let open = (0..count).find(|path| lanes.lanes[usize::from(*path)].held_until.is_none());
            if let Some(path) = open {
                lanes.left(path, 4_096, false, now);
                sent += 1;
            }
        }
        (sent, lanes.lanes[0].controller.is_slow_rate())
    };
    let ((one, slow), (eight, _)) = (sent(1), sent(8));
    assert!(slow && one > 0, "{one}");
    assert!((1..=one + 8).contains(&eight), "{one} {eight}");
}

/// Senders with the same pace do not keep step: waits are spread about the interval, which is
/// their mean.
#[test]
fn waits_are_spread_about_the_interval() {
    let mut lanes = lanes(1);
    let mut now = Time::from_nanos(1_000_000_000);
    lanes.left(0, 4_096, true, now);
    lanes.timed_out();
    for _ in 0..20 {
        now += Span::from_millis(5);
        came(&mut lanes, 0, 1_000, now);
    }
    let waits = (0..1_000).map(|_| {
        now += Span::from_secs(1);
        lanes.left(0, 4_096, true, now);
        let until = lanes.held_until().expect("a pace");
        until.since(now).nanos()
    });
    // The first one waits a part of an interval.
    let waits: Vec<u64> = waits.skip(1).collect();
    let mean = waits.iter().sum::<u64>() / 999;
    let (least, most) = (waits.iter().min().copied(), waits.iter().max().copied());
    let part = |wait: Option<u64>| wait.unwrap_or_default() * 100 / mean;
    assert!((45..60).contains(&part(least)), "{least:?} {mean}");
    assert!((140..155).contains(&part(most)), "{most:?} {mean}");
}
