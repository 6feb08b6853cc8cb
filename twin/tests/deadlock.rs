//! Endless pauses in the twin: broken NICs, and switches that wait for each other in a circle.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::pause::Control;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use switchd::config::Qos;
use switchd::config::qos::Mode;
use switchd::drop::DropReason;
use twin::bench::{Bench, Setup, StreamId, at};
use twin::switch::SwitchSettings;
use twin::tester::{Sizes, Storm, Stream, pfc};

const DETECTION: Span = Span::from_millis(3);
const RESTORATION: Span = Span::from_millis(5);
const POLL: Span = Span::from_millis(1);

/// These classes are lossless, and watched as `watchdog` says.
fn qos(lossless: &[u8], watchdog: &str) -> Arc<Qos> {
    let text = format!(
        r#"
[buffer]
size_bytes = 16777216
[headroom]
poll_gap_microseconds = 1
[flow_control]
mode = "pfc"
[watchdog]
detection_time_milliseconds = 3
restoration_time_milliseconds = 5
poll_interval_milliseconds = 1
{watchdog}
[[group]]
groups = {lossless:?}
xoff_bytes = 100000
xon_bytes = 50000
headroom = "auto"
[[queue]]
queues = {lossless:?}
lossless = true
"#
    );
    Arc::new(toml::from_str(&text).expect("a configuration"))
}

fn settings(watchdog: &str, setup: &Setup) -> SwitchSettings {
    SwitchSettings {
        poll: Span::from_nanos(250),
        qos: Some(qos(&[3], watchdog)),
        ..setup.switch.clone()
    }
}

fn star(testers: usize, gbps: u64, watchdog: &str) -> Bench {
    let mut setup = Setup::star(testers, at(gbps));
    setup.switch = settings(watchdog, &setup);
    Bench::new(setup)
}

/// A stream of this priority.
fn stream(to: usize, priority: u8) -> Stream {
    Stream {
        dscp: priority << 3,
        sizes: Sizes::Fixed(1500),
        ..Stream::to(to)
    }
}

/// A NIC that pauses priority 3 from then on, until then.
fn storm(from: Time, until: Time) -> Storm {
    Storm {
        control: pfc(8, u16::MAX),
        every: Span::from_micros(100),
        from,
        until,
        last: None,
    }
}

fn after(nanos: u64) -> Time {
    Time::ZERO + Span::from_nanos(nanos)
}

/// State of the watchdog of a priority at the port to a tester (0 operational, 1 stormed, 2 off),
/// and storms so far.
fn watched(bench: &Bench, tester: usize, priority: usize) -> (u64, u64) {
    let port = bench.port_to(0, bench.tester_id(tester));
    let stats = &bench.switch(0).stats().ports[usize::from(port)].pauses[priority];
    (stats.storm_state.get(), stats.storms.get())
}

/// State of the watchdog of priority 3.
fn state(bench: &Bench, tester: usize) -> u64 {
    watched(bench, tester, 3).0
}

fn storms(bench: &Bench, tester: usize) -> u64 {
    watched(bench, tester, 3).1
}

/// Runs until the watchdog is in this state; how long that took.
fn wait_for(bench: &mut Bench, tester: usize, wanted: u64, limit: Span) -> Span {
    let from = bench.now();
    while state(bench, tester) != wanted {
        assert!(bench.now().since(from) < limit, "state {wanted} never came");
        bench.run_for(Span::from_micros(10));
    }
    bench.now().since(from)
}

/// SW-32: detection and recovery take as long as configured and one poll interval more at most; 20
/// of 20, on occupied queues and on empty ones.
#[test]
fn the_watchdog_is_exact() {
    let mut random = Pcg64Mcg::new(0xdead);
    for round in 0..20 {
        let mut bench = star(2, 10, "");
        let occupied = round % 2 == 0;
        if occupied {
            bench.send(0, stream(1, 3));
        }
        let from = 1_000_000 + random.next_u64() % 3_000_000;
        let until = from + 5_000_000 + random.next_u64() % 1_000_000;
        bench.storm(1, storm(after(from), after(until)));
        bench.run_until(after(from));
        // The frame takes a moment to arrive, and the steps of the clock here are 10 µs.
        let slack = Span::from_micros(20);
        let took = wait_for(&mut bench, 1, 1, Span::from_millis(100));
        assert!(
            took + slack > DETECTION,
            "round {round}: detected after {took}"
        );
        assert!(
            took <= DETECTION + POLL + slack,
            "round {round}: detected after {took}"
        );
        let took = wait_for(&mut bench, 1, 0, Span::from_millis(100));
        assert!(
            took + slack >= RESTORATION,
            "round {round}: recovered after {took}"
        );
        assert!(
            took <= RESTORATION + POLL + slack,
            "round {round}: recovered after {took}"
        );
        assert_eq!(storms(&bench, 1), 1, "round {round}");
        bench.finish();
    }
}

/// SW-32: a pause that is shorter than the detection time is obeyed to its end, and nothing is
/// lost.
#[test]
fn a_short_pause_is_no_storm() {
    let mut bench = star(2, 10, "");
    let stream = bench.send(0, stream(1, 3));
    bench.hold(1, 8, (after(1_000_000), after(3_900_000)));
    bench.run_for(Span::from_millis(10));
    assert_eq!(storms(&bench, 1), 0);
    bench.finish();
    assert_eq!(bench.missing(stream), 0);
}

/// SW-34: while a NIC storms, traffic of other priorities and ports goes on; when it is over
/// nothing is lost any more.
#[test]
fn a_storm_harms_nobody_else() {
    let mut bench = star(4, 10, "");
    let rated = |to, priority| Stream {
        rate: Some(Rate::from_gbps(4)),
        ..stream(to, priority)
    };
    let victim = bench.send(0, rated(3, 3));
    let same_port = bench.send(1, rated(3, 0));
    let other_port = bench.send(1, rated(2, 3));
    bench.storm(3, storm(after(1_000_000), after(17_000_000)));
    bench.run_until(after(1_000_000) + DETECTION + POLL + POLL);
    let before = [same_port, other_port].map(|it| bench.received(it).packets);
    let sent = [same_port, other_port].map(|it| bench.sent(it).packets);
    bench.run_for(Span::from_millis(10));
    for (n, it) in [same_port, other_port].into_iter().enumerate() {
        let (got, made) = (
            bench.received(it).packets - before[n],
            bench.sent(it).packets - sent[n],
        );
        assert!(
            got * 100 >= made * 99,
            "stream {n}: {got} of {made} during the storm"
        );
    }
    let stormed = bench.received(victim).packets;
    bench.run_until(after(17_000_000));
    assert_eq!(bench.received(victim).packets, stormed, "nothing passes");
    assert!(bench.switch(0).dropped(DropReason::PfcStorm) > 0);
    bench.run_for(RESTORATION + POLL + POLL);
    let (lost, got) = (
        bench.switch(0).sum(|it| it.dropped_in_all()),
        bench.received(victim).packets,
    );
    bench.run_for(Span::from_millis(5));
    assert_eq!(
        bench.switch(0).sum(|it| it.dropped_in_all()),
        lost,
        "after recovery"
    );
    assert!(bench.received(victim).packets > got, "traffic is back");
    for it in [same_port, other_port] {
        bench.stop(it);
    }
    bench.finish();
    assert_eq!(bench.missing(other_port), 0);
    assert_eq!(bench.missing(same_port), 0);
}

/// SW-32: forward sends what the peer does not want; alert only tells, and the peer is obeyed.
#[test]
fn actions_differ() {
    for (action, passes) in [("forward", true), ("alert", false)] {
        let mut bench = star(2, 10, &format!("action = \"{action}\""));
        let stream = bench.send(0, stream(1, 3));
        bench.storm(1, storm(after(1_000_000), after(15_000_000)));
        bench.run_until(after(6_000_000));
        let before = bench.received(stream).packets;
        bench.run_until(after(14_000_000));
        assert_eq!(bench.received(stream).packets > before, passes, "{action}");
        assert_eq!(storms(&bench, 1), 1, "{action}");
        bench.run_until(after(30_000_000));
        bench.finish();
        assert_eq!(bench.missing(stream), 0, "{action} loses nothing");
    }
}

/// SW-32, SW-34: a storm on all priorities of all ports, with traffic and without: every priority
/// goes through the same rounds, and is obeyed again when the storm is over.
#[test]
fn a_storm_everywhere_is_the_same_rounds_everywhere() {
    let all: Vec<u8> = (0..8).collect();
    let mut setup = Setup::star(4, at(10));
    setup.switch = SwitchSettings {
        qos: Some(qos(&all, "")),
        ..settings("", &setup)
    };
    let mut bench = Bench::new(setup);
    for tester in 0..4 {
        // Half of the queues are occupied when it begins.
        for priority in [0, 3, 5, 7] {
            let slow = Stream {
                rate: Some(Rate::from_gbps(1)),
                ..stream((tester + 1) % 4, priority)
            };
            bench.send(tester, slow);
        }
        bench.storm(
            tester,
            Storm {
                control: pfc(u8::MAX, u16::MAX),
                ..storm(after(1_000_000), after(60_000_000))
            },
        );
    }
    // Found within a poll of 4 ms; then a round is 5 ms of recovery and up to 4 ms of detection.
    for (until, wanted) in [
        (3_900_000, (0, 0)),
        (9_000_000, (1, 1)),
        (18_000_000, (1, 2)),
    ] {
        bench.run_until(after(until));
        for (tester, priority) in (0..4).flat_map(|it| (0..8).map(move |priority| (it, priority))) {
            let found = watched(&bench, tester, priority);
            assert_eq!(
                found, wanted,
                "{until}: tester {tester}, priority {priority}"
            );
        }
    }
    bench.run_until(after(80_000_000));
    let (state, rounds) = watched(&bench, 0, 0);
    assert!(state == 0 && (6..=7).contains(&rounds), "{rounds} rounds");
    for (tester, priority) in (0..4).flat_map(|it| (0..8).map(move |priority| (it, priority))) {
        assert_eq!(watched(&bench, tester, priority), (0, rounds));
    }
    bench.finish();
}

/// SW-32: an endless storm is one round after the other, and more of them than the window tolerates
/// turn PFC off for that port and priority.
#[test]
fn an_endless_storm_turns_pfc_off() {
    let mut bench = star(2, 10, "storms = 2\nwindow_milliseconds = 1000");
    let waiting = bench.send(0, stream(1, 3));
    bench.storm(1, storm(after(1_000_000), after(100_000_000)));
    wait_for(&mut bench, 1, 2, Span::from_millis(40));
    assert_eq!(storms(&bench, 1), 3);
    let before = bench.received(waiting).packets;
    bench.run_for(Span::from_millis(5));
    let got = bench.received(waiting).packets - before;
    assert!(got > 4_000, "{got} packets in 5 ms: pauses are not obeyed");
    bench.finish();
}

/// SW-34: a host that storms for ever never stops the traffic of its neighbours, from the same
/// sender and of the same priority, for longer than the detection time and a poll.
#[test]
fn nobody_waits_longer_than_the_detection_time() {
    let mut bench = star(3, 10, "");
    let rated = |to| Stream {
        rate: Some(Rate::from_gbps(4)),
        ..stream(to, 3)
    };
    bench.send(0, rated(1));
    let neighbour = bench.send(0, rated(2));
    bench.storm(1, storm(after(1_000_000), after(100_000_000)));
    let (mut seen, mut since, mut longest) = (0, bench.now(), Span::ZERO);
    while bench.now() < after(60_000_000) {
        bench.run_for(Span::from_micros(50));
        let got = bench.received(neighbour).packets;
        if got > seen {
            (seen, since) = (got, bench.now());
        }
        longest = longest.max(bench.now().since(since));
    }
    assert!(longest > Span::from_millis(1), "nobody ever waited");
    assert!(longest <= DETECTION + POLL, "stopped for {longest}");
    bench.finish();
}

/// SW-30, SW-32: PAUSE frames without end are a storm of all priorities: all of them recover.
#[test]
fn an_endless_pause_of_the_link_is_a_storm() {
    let mut setup = Setup::star(2, at(10));
    let mut paused = Qos::clone(&qos(&[3], ""));
    paused.flow_control.mode = Mode::Pause;
    setup.switch = SwitchSettings {
        qos: Some(Arc::new(paused)),
        ..settings("", &setup)
    };
    let mut bench = Bench::new(setup);
    let waiting = bench.send(0, stream(1, 3));
    bench.storm(
        1,
        Storm {
            control: Control::Pause(u16::MAX),
            ..storm(after(1_000_000), after(12_000_000))
        },
    );
    bench.run_until(after(6_000_000));
    for priority in 0..8 {
        assert_eq!(watched(&bench, 1, priority), (1, 1), "priority {priority}");
    }
    bench.run_until(after(30_000_000));
    assert_eq!(state(&bench, 1), 0);
    let got = bench.received(waiting).packets;
    bench.run_for(Span::from_millis(1));
    assert!(bench.received(waiting).packets > got, "traffic is back");
    bench.finish();
}

/// Four switches in a circle whose routes for two destinations go round, for 2 ms; then they are
/// right again. What arrives of a stream that begins afterwards.
fn ring(watchdog: &str) -> (Bench, StreamId) {
    let mut setup = Setup::ring(4, at(10));
    setup.switch = settings(watchdog, &setup);
    let mut bench = Bench::new(setup);
    let next = |bench: &Bench, switch: usize| bench.switch_id((switch + 1) % 4);
    let host = |bench: &Bench, tester: usize| -> ipnet::IpNet { bench.address(tester).into() };
    // Everything to tester 0 goes round.
    let looping = host(&bench, 0);
    let to = next(&bench, 0);
    bench.route(0, looping, &[to]);
    let streams: Vec<StreamId> = (1..4).map(|from| bench.send(from, stream(0, 3))).collect();
    bench.run_for(Span::from_millis(4));
    for it in streams {
        bench.stop(it);
    }
    let home = bench.tester_id(0);
    bench.route(0, looping, &[home]);
    bench.run_for(Span::from_millis(1));
    let probe = bench.send(1, stream(3, 3));
    (bench, probe)
}

/// SW-32: a routing loop locks a ring of switches for good; with the watchdog its traffic resumes.
#[test]
fn a_ring_that_locked_resumes() {
    let (mut bench, probe) = ring("enabled = false");
    bench.run_for(Span::from_millis(200));
    assert_eq!(bench.received(probe).packets, 0, "locked for good");
    assert!(bench.switch(0).ledger().in_use() > 0);
    drop(bench);

    let (mut bench, probe) = ring("");
    bench.run_for(Span::from_millis(30));
    let got = bench.received(probe).packets;
    assert!(got > 0, "nothing passes");
    bench.finish();
    let stormed: u64 = (0..4)
        .map(|it| bench.switch(it).dropped(DropReason::PfcStorm))
        .sum();
    assert!(stormed > 0);
}

/// SW-33: with prevention the same loop never locks the ring: what comes from one uplink and leaves
/// by another has another priority from then on, whose buffers nobody waits for: it is not
/// lossless, so what goes round in the loop without end is dropped there. No watchdog is needed.
#[test]
fn a_ring_with_prevention_never_locks() {
    let (mut bench, probe) = ring("enabled = false\n[hook]\npriority = 1\ndscp = 8");
    bench.run_for(Span::from_millis(1));
    let got = bench.received(probe).packets;
    assert!(got > 100, "{got} of the probe's packets arrived");
    bench.finish();
    for switch in 0..4 {
        assert_eq!(bench.switch(switch).dropped(DropReason::PfcStorm), 0);
        assert_eq!(bench.switch(switch).dropped(DropReason::HeadroomFull), 0);
    }
}

/// Two leaves and two spines whose flows to a third leaf make a hook, as after two links have
/// failed: 0 ─▶ spine 0 ─▶ 1 ─▶ spine 1 ─▶ 2, and 1 ─▶ spine 1 ─▶ 0 ─▶ spine 0 ─▶ 2. Each of the
/// four waits for the next one's buffer, in a circle. No packet goes round: all are delivered.
struct Hooked {
    bench: Bench,
    streams: Vec<StreamId>,
}

/// The receivers pause for a millisecond; then there is only what the switches do.
fn hooked(more: &str) -> Hooked {
    let mut setup = Setup::leaf_spine((3, 2), 2, at(10));
    setup.switch = SwitchSettings {
        qos: Some(qos(&[3, 4], more)),
        ..settings("", &setup)
    };
    let mut bench = Bench::new(setup);
    let (first, second) = (3, 4);
    for (to, hops) in [(4, [0, first, 1, second, 2]), (5, [1, second, 0, first, 2])] {
        let prefix: ipnet::IpNet = bench.address(to).into();
        for pair in hops.windows(2) {
            let next = bench.switch_id(pair[1]);
            bench.route(pair[0], prefix, &[next]);
        }
    }
    let streams = [(0, 4), (1, 4), (2, 5), (3, 5)]
        .map(|(from, to)| bench.send(from, stream(to, 3)))
        .to_vec();
    for receiver in [4, 5] {
        bench.hold(receiver, 0b11000, (after(1_000_000), after(2_000_000)));
    }
    bench.run_until(after(2_500_000));
    Hooked { bench, streams }
}

impl Hooked {
    /// Packets that each stream delivers in this time.
    fn delivers(&mut self, span: Span) -> Vec<u64> {
        let counts = |bench: &Bench| -> Vec<u64> {
            let all = self.streams.iter();
            all.map(|it| bench.received(*it).packets).collect()
        };
        let before = counts(&self.bench);
        self.bench.run_for(span);
        let after = counts(&self.bench);
        after.iter().zip(before).map(|(a, b)| a - b).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        (0..5).map(|it| self.bench.switch(it).dropped(reason)).sum()
    }
}

/// SW-33: hook flows close a circle of four switches in a lossless class, which then stands still
/// for good, though nothing is wrong any more.
#[test]
fn hook_flows_of_a_lossless_class_lock_four_switches() {
    let mut hooked = hooked("enabled = false");
    hooked.delivers(Span::from_millis(10));
    assert_eq!(hooked.delivers(Span::from_millis(100)), [0; 4], "locked");
    for stream in hooked.streams.clone() {
        hooked.bench.stop(stream);
    }
    assert_eq!(hooked.delivers(Span::from_millis(100)), [0; 4], "for good");
    assert!(hooked.bench.cells_in_use() > 0);
}

/// SW-33: with prevention the same flows have another lossless class behind the hook, and no circle
/// closes: all of them go on and lose nothing, and no watchdog is needed.
#[test]
fn prevention_keeps_hook_flows_of_a_lossless_class_going() {
    let mut hooked = hooked("enabled = false\n[hook]\npriority = 4\ndscp = 32");
    let got = hooked.delivers(Span::from_millis(10));
    assert!(got.iter().all(|packets| *packets > 1_000), "{got:?}");
    hooked.bench.finish();
    for stream in &hooked.streams {
        assert_eq!(hooked.bench.missing(*stream), 0);
    }
}

/// SW-32: without prevention the watchdog opens the circle, at the price of what it discards.
#[test]
fn the_watchdog_opens_a_circle_of_hook_flows() {
    let mut hooked = hooked("");
    hooked.delivers(DETECTION + POLL + POLL);
    let got = hooked.delivers(Span::from_millis(40));
    assert!(got.iter().any(|packets| *packets > 0), "{got:?}");
    assert!(hooked.dropped(DropReason::PfcStorm) > 0);
    hooked.bench.finish();
    assert_eq!(hooked.bench.cells_in_use(), 0);
}
