use super::*;
use crate::congestion::tests::{BASE, Event, MTU, apart, came, feedback, signal, signalled_trace};

fn swift() -> SwiftCsig {
    let mut swift = SwiftCsig::new(224, MTU, BASE, 1.0);
    swift.set_speed(Rate::from_gbps(100));
    swift
}

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000_000 + micros * 1_000)
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 0.01 * expected
}

/// One that is past its first round trip, with so many packets.
fn running(window: f64) -> SwiftCsig {
    let mut swift = swift();
    (swift.swift.window, swift.first) = (window, 0.0);
    swift
}

/// CC-2: the first share that comes back sets the window to what is free of the line. If none
/// comes in the first round trip it is a delay-bandwidth product, as of plain Swift.
#[test]
fn the_first_answer_opens_the_window() {
    for (share, expected) in [(1_000_000, 42.7), (500_000, 21.4), (50_000, START)] {
        let mut swift = swift();
        assert!(near(swift.exact(), START));
        swift.signalled(&signal(Signal::AvailableShare, share, at(0)), at(0));
        assert!(near(swift.exact(), expected), "{}", swift.exact());
    }
    let mut swift = swift();
    for n in 1..=10 {
        assert!(swift.exact() < START + 1.0, "{n}");
        swift.on_feedback(&feedback(came(false), BASE), at(n));
    }
    assert!(near(swift.exact(), 42.7), "{}", swift.exact());
    assert!(!swift.is_guided());
}

/// CC-2: a round trip adds one packet and λ times the free part of the window, and no more than
/// the own line has left; an old share adds nothing.
#[test]
fn the_increase_follows_the_free_share() {
    let grown = |swift: &mut SwiftCsig, from: u64| {
        for n in 0..10 {
            swift.on_feedback(&feedback(came(false), BASE), at(from + n));
        }
        swift.exact()
    };
    let mut quarter = running(10.0);
    quarter.signalled(&signal(Signal::AvailableShare, 250_000, at(0)), at(0));
    assert!(near(grown(&mut quarter, 0), 13.4));
    assert!(quarter.is_guided());
    let mut most = running(32.0);
    most.signalled(&signal(Signal::AvailableShare, 1_000_000, at(0)), at(0));
    // A quarter of the line is left, and less with each packet.
    assert!((33.5..34.6).contains(&grown(&mut most, 0)));
    let mut old = running(10.0);
    old.signalled(&signal(Signal::AvailableShare, 250_000, at(0)), at(0));
    assert!(near(grown(&mut old, 113), 10.96));
    assert!(!old.is_guided());
}

/// CC-2: the greatest delay of a hop decides on the decrease, once a round trip; the round trip
/// over all hops does, where nobody tells of hops.
#[test]
fn the_decrease_follows_the_worst_hop() {
    let slow = BASE + Span::from_micros(21);
    let target = |swift: &SwiftCsig| swift.swift.target(nanos(BASE)) - nanos(BASE);
    let mut hop = running(100.0);
    let part = 0.8 * (7_000.0 - target(&hop)) / 7_000.0;
    hop.signalled(&signal(Signal::Delay, 7_000, at(0)), at(0));
    assert!(near(hop.exact(), 100.0 * (1.0 - part)), "{}", hop.exact());
    let before = hop.exact();
    hop.signalled(&signal(Signal::Delay, 20_000, at(1)), at(1));
    assert!(near(hop.exact(), before), "once a round trip");
    // Queues of the way back, or several small ones.
    let mut back = running(100.0);
    back.signalled(&signal(Signal::Delay, 1_000, at(0)), at(0));
    for n in 0..100 {
        back.on_feedback(&feedback(came(false), slow), at(n));
    }
    assert!(near(back.exact(), 100.0) && back.is_guided());
    let mut plain = running(100.0);
    plain.on_feedback(&feedback(came(false), slow), at(0));
    assert!(plain.exact() < 90.0 && !plain.is_guided());
}

/// CC-2: where the path becomes longer, and no hop has a queue that would explain it, the flow
/// has its bandwidth again after some time; with signals of hops, and without.
#[test]
fn a_longer_path_is_noticed() {
    for hops in [true, false] {
        let mut swift = SwiftCsig::new(224, MTU, Span::ZERO, 1.0);
        swift.set_speed(Rate::from_gbps(100));
        let mut now = at(0);
        let mut pass = |swift: &mut SwiftCsig, micros, time: Span| {
            let (end, round_trip) = (now + time, Span::from_micros(micros));
            while now < end {
                now += span(nanos(round_trip) / swift.exact());
                if hops {
                    swift.signalled(&signal(Signal::Delay, 100, now), now);
                }
                let round_trip = Some(round_trip);
                let came = feedback(came(false), BASE);
                let delay = round_trip;
                let came = Feedback {
                    round_trip,
                    delay,
                    ..came
                };
                swift.on_feedback(&came, now);
            }
        };
        pass(&mut swift, 14, Span::from_millis(20));
        assert!(swift.exact() > 100.0);
        swift.on_feedback(&feedback(PacketFate::Lost, BASE), at(30_000));
        let before = swift.exact();
        pass(&mut swift, 40, Span::from_millis(1));
        assert!(swift.exact() <= before, "{}", swift.exact());
        pass(&mut swift, 40, Span::from_secs(1));
        assert!(swift.exact() > 100.0, "{hops}: {}", swift.exact());
    }
}

/// CC-2: a loss or a trim halves it, once a round trip; a time-out leaves one packet.
#[test]
fn losses_halve_it_once() {
    let mut swift = running(40.0);
    for fate in [PacketFate::Lost, PacketFate::Trimmed, PacketFate::Lost] {
        swift.on_feedback(&feedback(fate, BASE), at(0));
    }
    assert!(near(swift.exact(), 20.0));
    swift.timed_out();
    assert!(near(swift.exact(), 1.0));
    assert_eq!(swift.interval(), None);
}

/// CC-2: an independent model agrees within 1 % over 10,000 events.
#[test]
fn an_independent_model_agrees() {
    for seed in [1, 2, 3] {
        let mut swift = swift();
        let trace = signalled_trace(seed, |event, now| {
            match event {
                Event::Outcome(feedback) => swift.on_feedback(feedback, now),
                Event::Signal(read) => swift.signalled(read, now),
            }
            swift.exact()
        });
        let apart = apart("swift_csig.py", &trace);
        assert!(apart < 0.01, "seed {seed}: {apart} apart");
    }
}
