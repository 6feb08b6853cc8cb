//! Marks, early drops and trimming in the twin, and flows that are remarked.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::ip::Ecn;
use common::wire::roce::Mpeh;
use ipnet::IpNet;
use std::fmt::Write;
use std::sync::Arc;
use switchd::config::Qos;
use switchd::drop::DropReason;
use twin::bench::{Bench, Setup, StreamId, at, micros};
use twin::switch::SwitchSettings;
use twin::tester::{Roce, Sizes, Stream};
use twin::topology::{Links, Shape};

/// What a frame of 1500 bytes takes of packet memory, and of the buffer.
const BYTES: u64 = 1496;
const CELLS: u64 = 6 * 256;

fn qos(text: &str) -> Arc<Qos> {
    let text = format!("[buffer]\nsize_bytes = 67108864\n{text}");
    // Tables come after keys.
    Arc::new(toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

fn with(mut setup: Setup, qos: Arc<Qos>) -> Setup {
    setup.switch = SwitchSettings {
        packets: 65_536,
        qos: Some(qos),
        ..setup.switch
    };
    setup
}

fn ect(dscp: u8, to: usize) -> Stream {
    Stream {
        dscp,
        ecn: Ecn::Ect0,
        ..Stream::to(to)
    }
}

/// Ends a test: everything comes out, and no cell stays in use.
fn finish(bench: &mut Bench) {
    bench.finish();
    assert_eq!(bench.cells_in_use(), 0);
}

/// A port of 50 Gb/s to which 100 Gb/s are sent, whose queue of a limit of so many packets stays
/// full of them; with these keys of its profile.
fn full_queue(packets: u64, wred: &str, ecn: Ecn) -> (Bench, StreamId) {
    let limit = packets * CELLS;
    let text = format!("[[queue]]\nqueues = [0]\nlimit_bytes = {limit}\n[queue.wred]\n{wred}\n");
    let setup = Setup::star(2, at(100)).with_speed(0, Rate::from_gbps(50));
    let mut bench = Bench::new(with(setup, qos(&text)));
    let stream = Stream {
        ecn,
        ..Stream::to(0)
    };
    let stream = bench.send(1, stream);
    (bench, stream)
}

/// Time until the longest of these queues is full and what came before has left it, twice over.
const FILL: Span = Span::from_micros(400);

/// What becomes of packets that meet a queue of `packets`: the part that is chosen, with `averaged`
/// of its profile.
fn chosen(packets: u64, wred: &str, ecn: Ecn) -> f64 {
    let (mut bench, stream) = full_queue(packets, wred, ecn);
    bench.run_for(FILL);
    let count = |bench: &Bench| {
        let received = bench.received(stream);
        let dropped = bench.switch(0).dropped(DropReason::Wred);
        (received.packets, received.marked + dropped, dropped)
    };
    let before = count(&bench);
    bench.run_for(Span::from_micros(3000));
    let after = count(&bench);
    finish(&mut bench);
    let all = after.0 - before.0 + after.2 - before.2;
    assert!(all > 11_000, "{all}");
    let sent = bench.sent(stream).packets;
    let lost = bench.switch(0).sum(|port| port.dropped_in_all());
    assert_eq!(bench.received(stream).packets + lost, sent);
    #[expect(clippy::cast_precision_loss, reason = "few packets")]
    let part = (after.1 - before.1) as f64 / all as f64;
    part
}

/// The configured line: from 100,000 bytes on, to 40 % at 400,000.
const LINE: &str = "min_bytes = 100000\nmax_bytes = 400000\nprobability_percent = 40.0";

fn on_the_line(depth: u64) -> f64 {
    match depth {
        0..=100_000 => 0.0,
        400_001.. => 1.0,
        #[expect(clippy::cast_precision_loss, reason = "small")]
        _ => 0.4 * (depth - 100_000) as f64 / 300_000.0,
    }
}

/// Packets of ten queues, from below the line to above it.
const DEPTHS: [u64; 10] = [34, 67, 80, 100, 130, 160, 200, 230, 266, 280];

fn follows_the_line(more: &str, ecn: Ecn) {
    for packets in DEPTHS {
        let part = chosen(packets, &format!("{LINE}\n{more}"), ecn);
        // Whoever comes when one has left, and whoever leaves, sees all others.
        let wanted = on_the_line((packets - 1) * BYTES);
        let off = (part - wanted).abs();
        assert!(
            off <= 0.02,
            "{packets} packets, {more}: {part}, not {wanted}"
        );
        assert!(wanted > 0.0 || part == 0.0, "{packets}: {part}");
        assert!(wanted < 1.0 || part == 1.0, "{packets}: {part}");
    }
}

/// SW-20, SW-21: the part of packets that is marked is on the configured line at ten depths, within
/// 2 %, as they come.
#[test]
fn marks_follow_the_line_at_enqueue() {
    follows_the_line("mark_at = \"enqueue\"", Ecn::Ect0);
}

/// SW-20, SW-21: and as they leave.
#[test]
fn marks_follow_the_line_at_dequeue() {
    follows_the_line("mark_at = \"dequeue\"", Ecn::Ect1);
}

/// SW-20: and with the average of the depth.
#[test]
fn marks_follow_the_line_with_an_average() {
    follows_the_line("mark_at = \"enqueue\"\naverage_exponent = 5", Ecn::Ect0);
    follows_the_line("mark_at = \"dequeue\"\naverage_exponent = 7", Ecn::Ect0);
}

/// SW-20: packets of senders that do not understand marks are dropped on the same line, with a
/// reason of its own, wherever marks are made.
#[test]
fn others_are_dropped_on_the_line() {
    for (more, packets) in [
        ("mark_at = \"enqueue\"", 67),
        ("mark_at = \"enqueue\"", 130),
        ("mark_at = \"dequeue\"", 200),
        ("mark_at = \"enqueue\"\naverage_exponent = 6", 266),
    ] {
        let part = chosen(packets, &format!("{LINE}\n{more}"), Ecn::NotEct);
        let wanted = on_the_line((packets - 1) * BYTES);
        // Where one was dropped the next meets one packet less.
        assert!(
            (part - wanted).abs() <= 0.02,
            "{packets}, {more}: {part}, not {wanted}"
        );
    }
    // Not dropped if the profile says so.
    let part = chosen(200, &format!("{LINE}\ndrop = false"), Ecn::NotEct);
    assert!(part < f64::EPSILON);
}

/// SW-20: the same minimum and maximum make a threshold: no packet is marked below it, every packet
/// above.
#[test]
fn a_threshold_is_sharp() {
    for mark_at in ["enqueue", "dequeue"] {
        let depth = 99 * BYTES;
        for (threshold, wanted) in [(depth, 0.0), (depth - 1, 1.0)] {
            let wred = format!(
                "min_bytes = {threshold}\nmax_bytes = {threshold}\nmark_at = \"{mark_at}\""
            );
            let part = chosen(100, &wred, Ecn::Ect0);
            assert!((part - wanted).abs() < f64::EPSILON, "{mark_at}: {part}");
        }
    }
}

/// SW-21: a burst of 2 Kmax waits and is let go. At dequeue its first packet is marked and its last
/// is not: the mark tells of the queue that is there now. At enqueue it is the other way round.
#[test]
fn a_mark_at_dequeue_is_fresh() {
    const THRESHOLD: u64 = 100_000;
    let burst = 2 * THRESHOLD / BYTES;
    for (mark_at, fresh) in [("dequeue", true), ("enqueue", false)] {
        let text = format!(
            "[flow_control]\nmode = \"pfc\"\npriorities = [0]\n[[queue]]\nqueues = [0]\n[queue.wred]\n\
             min_bytes = {THRESHOLD}\nmax_bytes = {THRESHOLD}\nmark_at = \"{mark_at}\"\n"
        );
        let mut bench = Bench::new(with(Setup::star(2, at(100)), qos(&text)));
        bench.hold(0, 1, (micros(1), micros(200)));
        let stream = Stream {
            packets: burst,
            start: micros(10),
            ..ect(0, 0)
        };
        let stream = bench.send(1, stream);
        bench.run_until(micros(199));
        assert_eq!(bench.received(stream).packets, 0, "it is held");
        bench.run_until(micros(400));
        finish(&mut bench);
        let marks = &bench.received(stream).marks;
        assert_eq!(marks.len() as u64, burst);
        let wanted: Vec<bool> = (0..burst)
            .map(|number| {
                let behind = burst - 1 - number;
                let before = number;
                (if fresh { behind } else { before }) * BYTES > THRESHOLD
            })
            .collect();
        assert_eq!(marks, &wanted, "{mark_at}");
        assert_eq!((marks[0], marks.last()), (fresh, Some(&!fresh)));
    }
}

/// SW-20: a profile that is replaced under load is in force from one packet to the next, in all
/// queues at once, and nothing is lost by it.
#[test]
fn a_profile_is_replaced_at_once() {
    let of = |threshold: u64| {
        let wred = format!("min_bytes = {threshold}\nmax_bytes = {threshold}");
        qos(&format!(
            "[[queue]]\nqueues = [0, 1]\nlimit_bytes = 153600\n[queue.wred]\n{wred}\n"
        ))
    };
    let mut setup = Setup::star(4, at(100));
    for receiver in [0, 1] {
        setup = setup.with_speed(receiver, Rate::from_gbps(50));
    }
    let mut bench = Bench::new(with(setup, of(1 << 30)));
    let streams = [bench.send(2, ect(0, 0)), bench.send(3, ect(8, 1))];
    bench.run_until(micros(500));
    let ports = [0, 1].map(|tester| usize::from(bench.port_to(0, bench.tester_id(tester))));
    let sent =
        |bench: &Bench| ports.map(|port| bench.switch(0).stats().ports[port].tx_packets.get());
    let mut changes = Vec::new();
    for threshold in [1000, 1 << 30, 1] {
        changes.push(sent(&bench));
        bench.set_qos(0, of(threshold));
        bench.run_for(Span::from_micros(100));
    }
    for stream in streams {
        bench.stop(stream);
    }
    let end = sent(&bench);
    finish(&mut bench);
    for (place, stream) in streams.into_iter().enumerate() {
        let marks = &bench.received(stream).marks;
        let flips: Vec<u64> = (1..marks.len())
            .filter(|&at| marks[at] != marks[at - 1])
            .map(|at| at as u64)
            .filter(|at| *at < end[place])
            .collect();
        assert_eq!(flips.len(), 3, "{flips:?}");
        for (flip, change) in flips.iter().zip(&changes) {
            assert!(flip.abs_diff(change[place]) <= 1, "{flips:?} {changes:?}");
        }
    }
}

/// A class that trims: DSCP 10 and 11 (retransmissions) wait in queue 1 and become 42, which waits
/// in queue 5, of `room` bytes, with more keys.
fn trims(room: u32, more: &str) -> Arc<Qos> {
    qos(&format!(
        r#"
[trim]
trimmable = {{"10" = 42, "11" = 42}}
rtx = [11]
control = [46]
[[queue]]
queues = [1]
limit_bytes = 262144
trim_bytes = 100000
[[queue]]
queues = [5]
limit_bytes = {room}
{more}
"#
    ))
}

/// Packets that were trimmed, that left as such, and for which there was no room either, at all
/// switches.
fn trimmed(bench: &Bench, switches: usize) -> [u64; 3] {
    let mut sums = [0; 3];
    for switch in (0..switches).map(|number| bench.switch(number)) {
        sums[0] += switch.sum(|port| {
            let queues = port.queues.iter();
            queues.map(|queue| queue.trimmed_packets.get()).sum()
        });
        sums[1] += switch.sum(|port| port.trimmed_sent.get());
        sums[2] += switch.sum(|port| port.trimmed_dropped.get());
    }
    sums
}

/// UDP, RoCEv2, and RoCEv2 with MPEH.
fn kinds() -> [Option<Roce>; 3] {
    let mpeh = Some(Mpeh::default());
    [None, Some(Roce { mpeh: None }), Some(Roce { mpeh })]
}

fn links() -> Links {
    Links {
        host: at(100),
        fabric: at(100),
    }
}

/// SW-23: of what was trimmed everything left or found no room: the counters add up. Receivers see
/// the trimmed packets, short and with the trimmed DSCP, whatever they are made of.
#[test]
fn trimmed_packets_add_up() {
    for (v6, room) in [
        (false, 1 << 20),
        (true, 1 << 20),
        (false, 8192),
        (true, 8192),
    ] {
        // Such a queue is full only if it is slow.
        let slow = if room == 8192 { "rate = \"1Gbps\"" } else { "" };
        for roce in kinds() {
            let setup = Setup::new(Shape::Star { hosts: 4 }, links(), v6);
            let mut bench = Bench::new(with(setup, trims(room, slow)));
            let streams = [1, 2, 3].map(|from| {
                let stream = Stream {
                    dscp: 10,
                    roce,
                    sizes: Sizes::InTurn(vec![1500, 4096, 256]),
                    ..Stream::to(0)
                };
                bench.send(from, stream)
            });
            bench.run_until(micros(150));
            finish(&mut bench);
            let what = format!("v6 {v6}, {roce:?}, {room}");
            let [cut, left, lost] = trimmed(&bench, 1);
            assert_eq!(cut, left + lost, "{what}");
            assert!(left > 50, "{what}: {left}");
            // In 8192 bytes there is room for 32 of them.
            assert_eq!(lost > 0, room == 8192, "{what}: {lost}");
            let mut seen = 0;
            let mut missing = 0;
            for stream in streams {
                let received = bench.received(stream);
                assert_eq!((received.remarked, received.duplicated), (0, 0), "{what}");
                assert_eq!(received.by_dscp[42], received.trimmed, "{what}");
                let whole = received.packets - received.trimmed;
                assert_eq!(received.by_dscp[10], whole, "{what}");
                seen += received.trimmed;
                missing += bench.missing(stream);
            }
            assert_eq!((seen, missing), (left, lost), "{what}");
            let switch = bench.switch(0);
            assert_eq!(switch.dropped(DropReason::TrimFull), lost, "{what}");
            assert_eq!(switch.sum(|port| port.dropped_in_all()), lost, "{what}");
            assert_eq!(bench.tester(0).count.others, 0, "{what}");
        }
    }
}

/// SW-23: a packet is trimmed once: at a second congested switch the trimmed ones pass, and whole
/// ones are trimmed.
#[test]
fn no_packet_is_trimmed_twice() {
    for v6 in [false, true] {
        for roce in kinds() {
            // Two senders and two more behind each switch: both its ports are congested.
            let setup = Setup::new(Shape::Dumbbell { hosts: 8 }, links(), v6);
            let mut bench = Bench::new(with(setup, trims(1 << 22, "")));
            let streams = [0, 1, 5, 6].map(|from| {
                let stream = Stream {
                    dscp: 10,
                    roce,
                    ..Stream::to(4)
                };
                bench.send(from, stream)
            });
            bench.run_until(micros(150));
            finish(&mut bench);
            let cuts = |switch: usize| {
                let ports = bench.switch(switch);
                ports.sum(|port| port.queues.iter().map(|it| it.trimmed_packets.get()).sum())
            };
            assert!(cuts(0) > 100 && cuts(1) > 100);
            let mut seen = 0;
            for stream in streams {
                // Everything arrives, whole or not.
                assert_eq!(bench.missing(stream), 0, "v6 {v6}, {roce:?}");
                assert_eq!(bench.received(stream).duplicated, 0);
                seen += bench.received(stream).trimmed;
            }
            assert_eq!(seen, cuts(0) + cuts(1), "v6 {v6}, {roce:?}");
            let [cut, left, lost] = trimmed(&bench, 2);
            assert_eq!((cut, lost), (left, 0));
        }
    }
}

/// SW-23: retransmissions are trimmed later: while a queue stays between the two thresholds they
/// stay whole. A packet that fits in the size gets its DSCP only.
#[test]
fn retransmissions_are_trimmed_later() {
    let mut bench = Bench::new(with(Setup::star(3, at(100)), trims(1 << 20, "")));
    // 67 frames fill the queue to 100,000 bytes; ten retransmissions stay below 150,000.
    let of = |dscp, packets, start, size| Stream {
        dscp,
        packets,
        start,
        sizes: Sizes::Fixed(size),
        ..Stream::to(0)
    };
    bench.send(1, of(10, u64::MAX, Time::ZERO, 1500));
    let other = bench.send(2, of(10, 200, micros(60), 1500));
    let again = bench.send(2, of(11, 10, micros(90), 1500));
    let small = bench.send(2, of(10, 10, micros(120), 64));
    bench.run_until(micros(160));
    finish(&mut bench);
    assert!(bench.received(other).trimmed > 50);
    assert_eq!(bench.received(again).trimmed, 0);
    assert_eq!(bench.received(again).by_dscp[11], 10);
    let small = bench.received(small);
    assert_eq!((small.trimmed, small.packets), (0, 10));
    assert_eq!(small.remarked, small.by_dscp[42]);
    let [cut, left, lost] = trimmed(&bench, 1);
    assert_eq!((cut, lost), (left, 0));
}

/// Three leaves and two spines, and routes by which what leaf 0 sends to tester 1 goes up, down to
/// leaf 2, and up again.
fn hooked(more: &str) -> Bench {
    let text = format!("[hook]\npriority = 5\ndscp = 41\n{more}");
    let setup = Setup::leaf_spine((3, 2), 2, at(100));
    let mut bench = Bench::new(with(setup, qos(&text)));
    let to = IpNet::from(bench.address(2));
    let [first, second, third] = [3, 4, 2].map(|switch| bench.switch_id(switch));
    bench.route(0, to, &[first]);
    bench.route(3, to, &[third]);
    bench.route(2, to, &[second]);
    bench
}

/// SW-33: a flow that comes from the uplink group and leaves through it gets another priority and
/// DSCP, and so another queue, there and from there on; no other flow does.
#[test]
fn hook_flows_are_remarked() {
    let mut bench = hooked("");
    let hook = bench.send(
        0,
        Stream {
            packets: 100,
            ..ect(24, 2)
        },
    );
    let plain = bench.send(
        4,
        Stream {
            packets: 100,
            ..ect(24, 0)
        },
    );
    bench.run_until(micros(100));
    finish(&mut bench);
    assert_eq!(bench.received(hook).by_dscp[41], 100);
    assert_eq!(bench.received(plain).by_dscp[24], 100);
    let through = |switch: usize, queue: usize| {
        let switch = bench.switch(switch);
        switch.sum(|port| port.queues[queue].sent_packets.get())
    };
    // Leaf 0, spine 0, leaf 2, spine 1, leaf 1.
    assert_eq!((through(3, 5), through(2, 5)), (0, 100));
    assert_eq!((through(4, 5), through(1, 5)), (100, 100));
    assert!(through(0, 5) == 0 && through(0, 3) >= 100);
}

/// SW-23, SW-33: a hook flow is trimmed by the DSCP that it got, not by the one that it came with.
#[test]
fn a_hook_flow_is_trimmed_by_its_new_dscp() {
    let mut more = String::new();
    writeln!(more, "[trim]\ntrimmable = {{\"41\" = 50}}").expect("a string");
    writeln!(more, "[[queue]]\nqueues = [5]\ntrim_bytes = 50000").expect("a string");
    let mut bench = hooked(&more);
    // Its port is the one of a spine that another flow fills.
    let hook = Stream {
        rate: Some(Rate::from_gbps(80)),
        ..ect(24, 2)
    };
    let hook = bench.send(0, hook);
    let other = bench.send(
        4,
        Stream {
            dscp: 48,
            rate: Some(Rate::from_gbps(80)),
            ..Stream::to(2)
        },
    );
    bench.run_until(micros(200));
    finish(&mut bench);
    let received = bench.received(hook);
    let [cut, left, lost] = trimmed(&bench, 5);
    assert!(cut > 100, "{cut}");
    assert_eq!((cut, lost), (left, 0));
    assert_eq!((received.trimmed, received.by_dscp[50]), (cut, cut));
    assert_eq!((bench.missing(hook), bench.missing(other)), (0, 0));
}
