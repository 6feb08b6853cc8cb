//! The ends of messages, and packets that leave now and then, or after a wait.

use super::*;
use crate::connection::sender::stragglers::Stragglers;

impl Bed {
    fn watch(&mut self, ends: bool) {
        let (steering, counters) = (&mut self.steering, &mut self.counters);
        self.sender
            .watch_stragglers(ends, self.now, steering, counters);
    }

    /// Round trips of 80 and 120 µs are known: 40 packets left, 5 µs apart, and all but `missing`
    /// came.
    fn all_but(missing: &[u32]) -> Self {
        let mut bed = Self::new(0, true);
        bed.sender.set_tolerance((512, micros(10_000)));
        for n in 0..20 {
            bed.send(1);
            bed.pass(micros(80 + 40 * u64::from(n % 2)));
            bed.answer(n + 1, &[]);
        }
        for _ in 0..40 {
            bed.send(1);
            bed.pass(micros(5));
        }
        for psn in 20..60 {
            bed.pass(micros(5));
            let come: Vec<_> = (20..=psn).filter(|it| !missing.contains(it)).collect();
            let expected = missing.first().copied().unwrap_or(60).min(psn + 1);
            if come.last() == Some(&psn) {
                bed.answer(expected, &come);
            }
        }
        bed
    }
}

/// HT-43: the last packets that are missing are sent again, once, when others have overtaken them
/// and they are late; not before, and not while there is more to send.
#[test]
fn the_last_packets_are_not_waited_for() {
    let mut bed = Bed::all_but(&[40]);
    bed.watch(false);
    bed.pass(micros(1_000));
    assert!(bed.resend().is_empty());
    let mut bed = Bed::all_but(&[]);
    for _ in 0..40 {
        bed.send(1);
        bed.pass(micros(3));
    }
    let come: Vec<_> = (61..100).collect();
    bed.answer(60, &come);
    bed.watch(true);
    let due = bed.sender.deadline();
    assert!(due > bed.now && due < bed.now + micros(400));
    bed.now = due;
    bed.watch(true);
    assert_eq!(bed.resend(), [60]);
    assert_eq!(bed.counters.stragglers, 1);
    bed.pass(micros(500));
    bed.watch(true);
    assert!(bed.resend().is_empty(), "a second copy");
    // The copy comes, and then the original: that is no reason to wait longer in future.
    bed.answer_to(100, 60);
    bed.answer_to(100, 60);
    assert_eq!(bed.sender.backoff_shift(), 0);
}

/// HT-43: each message has an end of its own: copies at those before it do not count. At one end
/// they are few.
#[test]
fn each_end_has_its_copies() {
    let mut bed = Bed::all_but(&[]);
    let mut next = 60;
    for message in 0..10 {
        for _ in 0..40 {
            bed.send(1);
            bed.pass(micros(3));
        }
        let come: Vec<_> = (next + 1..next + 40).collect();
        bed.answer(next, &come);
        bed.pass(micros(500));
        bed.watch(true);
        assert_eq!(bed.resend(), [next], "message {message}");
        next += 40;
        bed.answer_to(next, next - 40);
        bed.watch(true);
    }
    let mut stragglers = Stragglers::default();
    let mut made = 0;
    while stragglers.may_copy() {
        stragglers.copied(micros(100), bed.now);
        made += 1;
    }
    assert_eq!(made, 6);
    let later = bed.now + micros(10_000);
    assert!(stragglers.explain(bed.now));
    assert!(!stragglers.explain(later), "those will not come");
}

/// HT-43: where nothing that left well after it has come, a packet is not overtaken: the peer may
/// be late.
#[test]
fn who_is_silent_may_be_late() {
    for missing in [vec![56, 57, 58, 59], vec![59]] {
        let mut bed = Bed::all_but(&missing);
        bed.pass(micros(900));
        bed.watch(true);
        assert!(bed.resend().is_empty(), "{missing:?}");
    }
}

/// HT-62: if more than one of sixteen packets is overtaken, ways differ.
#[test]
fn many_are_no_stragglers() {
    for (missing, sent) in [(vec![40], 1), (vec![24, 26], 2), (vec![40, 44], 0)] {
        let mut bed = Bed::all_but(&missing);
        bed.pass(micros(500));
        bed.watch(true);
        assert_eq!(bed.resend().len(), sent, "{missing:?}");
    }
}

/// HT-43: where ways always differ nothing is late that takes the longer one.
#[test]
fn ways_that_differ_have_no_stragglers() {
    let mut bed = Bed::new(0, true);
    let mut next = 0;
    for _ in 0..40 {
        // Each second packet takes 1,000 µs and not 100.
        bed.send(2);
        bed.pass(micros(100));
        bed.answer(next, &[next + 1]);
        bed.watch(true);
        assert!(bed.resend().is_empty());
        bed.pass(micros(900));
        bed.watch(true);
        assert!(bed.resend().is_empty());
        next += 2;
        bed.answer_to(next, next - 2);
    }
    assert_eq!(bed.counters.stragglers, 0);
}

/// HT-24, HT-63: the clocks run from the last sign of life. A packet now and then does not hide
/// that the peer is silent (RFC 6298, 5.1).
#[test]
fn a_trickle_hides_no_silence() {
    let mut bed = Bed::new(0, true);
    bed.send(1);
    bed.pass(micros(100));
    bed.answer(1, &[]);
    let begun = bed.now;
    while bed.counters.timeouts == 0 {
        assert!(bed.now.since(begun) < micros(10_000), "nothing expires");
        if bed.sender.may_send_new(&bed.steering) {
            bed.send(1);
        }
        bed.pass(micros(900));
        if bed.sender.deadline() <= bed.now {
            let _ = bed.expire();
            bed.resend();
        }
    }
    assert!(bed.counters.tail_probes > 0);
}

/// HT-43: an acknowledgement names 256 packets. What is beyond is not taken for lost because it is
/// not named.
#[test]
fn what_cannot_be_named_is_not_lost() {
    let mut bed = Bed::wide(0, 512);
    bed.send(400);
    bed.pass(micros(100));
    let named: Vec<_> = (1..256).collect();
    bed.answer(0, &named);
    assert_eq!(bed.resend(), [0]);
    // It came; one beyond the bitmap causes each of these.
    for trigger in [300, 340, 399] {
        let mut come = named.clone();
        come.push(trigger);
        bed.answer(0, &come);
    }
    assert!(bed.resend().is_empty(), "they have come");
}

/// CC-8, HT-42: senders that a crowd slows down at the same time do not go on at the same time: the
/// first wait is a part of the interval, different for each, and further ones are spread about it.
#[test]
fn a_crowd_does_not_go_on_in_step() {
    let agreed = MultipathConfig::default();
    let config = EngineConfig {
        congestion: crate::verbs::Congestion::Nscc,
        base_rtt: micros(14),
        ..EngineConfig::default()
    };
    let now = Time::from_nanos(1_000_000_000);
    let waits = (0..64_u64).map(|seed| {
        let plan = SteeringPlan {
            identity: 1,
            seed,
            window: 64,
            mtu: 4096,
            congestion: config.congestion,
        };
        let mut steering = Steering::new(Some(&agreed), &plan, &config);
        steering.set_speed(common::units::Rate::from_gbps(100));
        let choice = steering.choose_for_answer(PortSet::first_of(1), now);
        steering.left(&choice, (4096, 0), true, now);
        assert_eq!(steering.held_until(), None, "no pace yet");
        let trimmed = Feedback {
            path: 0,
            entropy: 0,
            sent: now,
            round_trip: None,
            delay: None,
            fate: PacketFate::Trimmed,
        };
        steering.crowd(1_024, now);
        steering.feedback(&trimmed, 0, now);
        let first = steering.held_until().expect("a pace");
        steering.release(first);
        assert!(steering.credit(0) > 0, "then it may leave");
        steering.left(&choice, (4096, 0), true, first);
        let second = steering.held_until().expect("a pace").since(first);
        // A packet of each in turn takes the line 344 µs.
        assert!((150..520).contains(&(second.nanos() / 1_000)), "{second:?}");
        assert!(first.since(now) <= micros(360), "a part of it");
        (first.since(now).nanos(), second.nanos())
    });
    let waits: std::collections::BTreeSet<(u64, u64)> = waits.collect();
    assert_eq!(waits.len(), 64, "each its own");
    let mean = waits.iter().map(|(_, second)| second).sum::<u64>() / 64_000;
    assert!((300..390).contains(&mean), "{mean} µs");
}
