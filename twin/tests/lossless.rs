//! Lossless classes in the twin: incast at full rate, the thresholds at which peers are paused and
//! go on, pauses that are obeyed, and headroom.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::pause::{Control, FRAME_LEN};
use std::sync::Arc;
use switchd::config::Qos;
use switchd::drop::DropReason;
use switchd::id::PortId;
use switchd::limits::{CELL, DEVICE_LEAST_BYTES};
use switchd::packet::{cells, wire_len};
use twin::bench::{Bench, Setup, at, micros};
use twin::lossless::{Incast, every_size, lossless, qos, star, with, written};
use twin::tester::{Sizes, Storm, Stream, pfc};
use twin::wire::Impairment;

/// Class 3 is lossless, with these thresholds of its group.
fn group(thresholds: &str, more: &str) -> Arc<Qos> {
    written(
        &format!("{thresholds}\nheadroom = \"auto\""),
        "",
        "mode = \"pfc\"",
        more,
    )
}

/// A switch that looks at its ports at once.
fn prompt(mut setup: Setup) -> Bench {
    setup.switch.poll = Span::ZERO;
    Bench::new(setup)
}

/// Ends a test: everything comes out, and no cell stays in use.
fn finish(bench: &mut Bench) {
    bench.finish();
    assert_eq!(bench.cells_in_use(), 0);
}

/// Seeds of a test: as many as the environment variable `TWIN_SEEDS` says, or two.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let wanted = std::env::var("TWIN_SEEDS").ok();
    1..=wanted.and_then(|it| it.parse().ok()).unwrap_or(2)
}

/// See [`Incast`].
fn incast(senders: usize, sizes: &Sizes, seed: u64, lasting: Span) {
    let incast = Incast {
        senders,
        sizes: sizes.clone(),
        seed,
        lasting,
    };
    incast.run(&mut |_| true).expect("nobody stops it");
}

/// SW-12, SW-31: 8:1 incast at full rate of frames of any size loses nothing; of 1500 bytes over 10
/// ms.
#[test]
fn incast_of_8_loses_nothing() {
    for seed in seeds() {
        for sizes in every_size() {
            incast(8, &sizes, seed, Span::from_micros(500));
        }
    }
    incast(8, &Sizes::Fixed(1500), 1, Span::from_millis(10));
}

/// SW-12, SW-31: and of 15:1.
#[test]
fn incast_of_15_loses_nothing() {
    for seed in seeds() {
        for sizes in every_size() {
            incast(15, &sizes, seed, Span::from_micros(300));
        }
    }
    incast(15, &Sizes::Between(64, 4096), 1, Span::from_millis(10));
}

/// SW-12, SW-31: and of 63:1. With frames of 64 bytes 10 ms would be 1.5 million packets at the
/// receiver alone: those are shorter.
#[test]
fn incast_of_63_loses_nothing() {
    for sizes in every_size() {
        incast(63, &sizes, 1, Span::from_micros(300));
    }
    incast(63, &Sizes::Fixed(4096), 1, Span::from_millis(10));
}

/// SW-10: a class that drops does not disturb a lossless one on the same ports, whether that one
/// fits in the port or is paused itself.
#[test]
fn a_lossy_class_beside_it_does_not_disturb() {
    for (rate, weights) in [(Some(Rate::from_gbps(10)), false), (None, true)] {
        let more = if weights {
            "weight = 50\n[[queue]]\nqueues = [0]\nweight = 50"
        } else {
            ""
        };
        let mut setup = star(9, qos(100_000, more));
        setup.lossless = false;
        let mut bench = Bench::new(setup);
        let mut kept = Vec::new();
        for from in 1..=8 {
            let sizes = Sizes::Fixed(1500);
            kept.push(bench.send(
                from,
                Stream {
                    rate,
                    ..lossless(0, sizes)
                },
            ));
            bench.send(from, Stream::to(0));
        }
        let lasting = Span::from_millis(2);
        bench.run_for(lasting);
        let got: u64 = kept.iter().map(|it| bench.line_bytes(*it)).sum();
        finish(&mut bench);
        assert!(kept.iter().all(|it| bench.missing(*it) == 0));
        let line = bench.speed(0).bytes_in(lasting);
        let (least, pauses) = if weights { (49, true) } else { (79, false) };
        assert!(got * 100 > line * least, "{got} of {line}");
        let switch = bench.switch(0);
        let sent = switch.sum(|port| port.pauses[3].sent_xoff.get());
        assert_eq!(sent > 0, pauses, "{sent} pauses");
        assert!(switch.dropped(DropReason::QueueFull) > 1000);
        assert_eq!(switch.dropped(DropReason::HeadroomFull), 0);
    }
}

/// The port of the switch to tester 1, which sends in these tests.
fn ingress(bench: &Bench) -> PortId {
    PortId(bench.port_to(0, bench.tester_id(1)))
}

/// Cells that group 3 of the sender's port accounts for before it pauses, in packets of so many:
/// (with the packet that is too much, without headroom).
fn packets_until_xoff(bench: &Bench, each: u64) -> u64 {
    let policy = bench.switch(0).traffic();
    let group = &policy.ports[ingress(bench).index()].groups[3];
    let mut held = 0;
    loop {
        let free = u64::from(policy.regions.service) - held;
        if held + each > group.limit.cells(free) {
            return held / each + 1;
        }
        held += each;
    }
}

/// Cells at which the group resumes when only its packets are in the buffer.
fn resumes_at(bench: &Bench, held: u64) -> u64 {
    let policy = bench.switch(0).traffic();
    let group = &policy.ports[ingress(bench).index()].groups[3];
    let mut held = held;
    loop {
        let free = u64::from(policy.regions.service) - held;
        let below = group
            .limit
            .cells(free)
            .saturating_sub(u64::from(group.xon_offset));
        let xon = match group.xon_offset {
            0 => u64::from(group.xon),
            _ => below.max(u64::from(group.xon)),
        };
        if held <= xon {
            return held;
        }
        held -= 1;
    }
}

/// SW-31: the first xoff comes with the packet that exceeds the threshold, xon with the one that
/// leaves the group at its own: within two packets and what the device takes at once; static and
/// dynamic thresholds, xon_bytes and xon_offset_bytes, frames of any size. No other priority is
/// ever named.
#[test]
fn thresholds_are_exact() {
    let thresholds = [
        "xoff_bytes = 200000\nxon_bytes = 100000",
        "xoff_bytes = 200000\nxon_offset_bytes = 30000",
        "guaranteed_bytes = 0\nxoff_bytes = 50000\nxon_bytes = 40000\nxon_offset_bytes = 40000",
        "dynamic_th = -8\nxon_bytes = 65536",
        "dynamic_th = -7\nxon_offset_bytes = 65536",
    ];
    for keys in thresholds {
        for size in [64, 65, 128, 257, 1500, 4096] {
            // What leaves is slow, and what comes too: a packet is longer than its pause takes.
            let setup = star(2, group(keys, "")).with_speed(0, Rate::from_gbps(1));
            let mut bench = prompt(setup);
            let what = format!("{keys}, {size}");
            let each = cells(usize::from(size) - 4);
            let limit = packets_until_xoff(&bench, each);
            bench.hold(0, 1 << 3, (micros(1), Time::from_nanos(1 << 40)));
            let slow = Stream {
                rate: Some(Rate::from_gbps(if size < 1000 { 1 } else { 10 })),
                start: micros(10),
                ..lossless(0, Sizes::Fixed(size))
            };
            let stream = bench.send(1, slow);
            while bench.controls(1).is_empty() {
                bench.run_for(Span::from_nanos(100));
                assert!(bench.sent(stream).packets < limit + 10, "{what}: no xoff");
            }
            let port = ingress(&bench);
            let arrived = bench.switch(0).stats().ports[port.index()].rx_packets.get();
            assert!(arrived.abs_diff(limit) <= 2, "{what}: {arrived} of {limit}");
            bench.run_for(Span::from_micros(2));
            bench.stop(stream);
            let held = bench.switch(0).ledger().in_use();
            let wanted = resumes_at(&bench, held);
            // The receiver lets it go on.
            let now = bench.now();
            bench.storm(
                0,
                Storm {
                    control: pfc(1 << 3, 0),
                    every: Span::from_micros(20),
                    from: now,
                    until: Time::from_nanos(1 << 40),
                    last: None,
                },
            );
            let heard = |bench: &Bench| {
                let mut all = bench.controls(1).iter();
                all.any(|(_, control)| *control == pfc(1 << 3, 0))
            };
            // A refresh of the hold may come between: then it stops once more for 20 us.
            while !heard(&bench) {
                bench.run_for(Span::from_nanos(100));
                assert!(bench.cells_in_use() > 0, "{what}: no xon");
            }
            let left = bench.switch(0).ledger().in_use();
            // On its way for 507 ns, in which up to one packet of 64 bytes leaves at 1 Gb/s; and
            // the packet that reaches xon leaves with those that the device takes at once.
            let at_once = DEVICE_LEAST_BYTES / wire_len(u64::from(size) - 4) + 1;
            assert!(
                left.abs_diff(wanted) <= (1 + at_once) * each,
                "{what}: xon at {left} cells, not {wanted}"
            );
            for (_, control) in bench.controls(1) {
                let Control::Pfc(times) = control else {
                    panic!("{what}: {control:?}")
                };
                let named = times.map(|time| time.is_some());
                assert_eq!(named, std::array::from_fn(|it| it == 3), "{what}");
            }
            finish(&mut bench);
        }
    }
}

const ALL: &str = "mode = \"pfc\"\npriorities = [0, 1, 2, 3, 4, 5, 6, 7]";

const STATIC: &str = "xoff_bytes = 400000\nxon_bytes = 200000\nheadroom = \"auto\"";

/// SW-31: classes that are paused send nothing, and all others keep their rate.
#[test]
fn a_paused_class_is_silent_and_others_are_not() {
    for mask in [1_u8 << 3, 1 << 4, 1 | 1 << 3] {
        let more = "[[queue]]\nqueues = [0, 4]\nlimit_bytes = 8388608";
        let mut bench = prompt(star(2, written(STATIC, "", ALL, more)));
        let streams = [0_u8, 3, 4].map(|class| {
            let stream = Stream {
                dscp: class * 8,
                rate: Some(Rate::from_gbps(30)),
                ..Stream::to(0)
            };
            (class, bench.send(1, stream))
        });
        bench.hold(0, mask, (micros(100), micros(300)));
        let count = |bench: &Bench| streams.map(|(_, it)| bench.line_bytes(it));
        bench.run_until(micros(102));
        let before = count(&bench);
        bench.run_until(micros(299));
        let after = count(&bench);
        let whole = Rate::from_gbps(30).bytes_in(Span::from_micros(197));
        for (place, (class, _)) in streams.iter().enumerate() {
            let got = after[place] - before[place];
            if mask & 1 << class != 0 {
                assert_eq!(got, 0, "{mask:b}: {class}");
            } else {
                assert!(
                    got * 100 >= whole * 99,
                    "{mask:b}: {class}: {got} of {whole}"
                );
            }
        }
        bench.run_until(micros(400));
        finish(&mut bench);
        assert!(streams.iter().all(|(_, it)| bench.missing(*it) == 0));
    }
}

/// SW-30, SW-31: a pause that nobody takes back lasts as long as it says, to a quantum at the speed
/// of the port: a lost xon heals. PAUSE silences every class.
#[test]
fn pauses_last_to_the_quantum() {
    for gbps in [10, 100, 400] {
        for quanta in [1000, 5000, u16::MAX] {
            for (mode, control) in [
                ("pfc", pfc(1 << 3, quanta)),
                ("pause", Control::Pause(quanta)),
            ] {
                let mode = format!("mode = \"{mode}\"");
                let setup = with(Setup::star(2, at(gbps)), written(STATIC, "", &mode, ""));
                let mut bench = prompt(setup);
                let stream = bench.send(1, lossless(0, Sizes::Fixed(256)));
                let from = micros(20);
                bench.storm(
                    0,
                    Storm {
                        control,
                        every: Span::MAX,
                        from,
                        until: micros(30),
                        last: None,
                    },
                );
                let link = Rate::from_gbps(gbps);
                let lasts = link.time_for(u64::from(quanta) * 64);
                bench.run_until(micros(60) + lasts);
                let (last, silence) = bench.received(stream).silence;
                finish(&mut bench);
                let packet = link.time_for(wire_len(252)).nanos();
                let travel = 500 + link.time_for(wire_len(FRAME_LEN as u64)).nanos();
                let quantum = link.time_for(64).nanos();
                // The next would have arrived a packet later; the pause begins when it has been
                // heard, and what is sent then ends.
                let begins = from.nanos() + travel;
                let stopped = last.nanos() - 500;
                let what = format!("{gbps} Gb/s, {control:?}");
                assert!(stopped <= begins + packet + 4, "{what}: {stopped} {begins}");
                let resumed = stopped + silence.nanos() - packet;
                let wanted = begins + lasts.nanos();
                assert!(
                    resumed.abs_diff(wanted) <= quantum + 4,
                    "{what}: on at {resumed}, not {wanted}"
                );
                assert_eq!(bench.missing(stream), 0, "{what}");
            }
        }
    }
}

/// SW-31: xoff is said again before it runs out for as long as it is wanted, so that the peer stays
/// silent; an xon that is lost is made up for by the end of the pause.
#[test]
fn xoff_is_refreshed_and_a_lost_xon_heals() {
    for (quanta, lost) in [(2000_u16, false), (u16::MAX, false), (2000, true)] {
        let mode = format!("mode = \"pfc\"\nquanta = {quanta}");
        let group = "xoff_bytes = 100000\nxon_bytes = 50000\nheadroom = \"auto\"";
        let mut bench = prompt(star(2, written(group, "", &mode, "")));
        let stream = bench.send(1, lossless(0, Sizes::Fixed(1500)));
        bench.hold(0, 1 << 3, (micros(1), micros(1000)));
        bench.run_until(micros(50));
        let before = bench.sent(stream).packets;
        bench.run_until(micros(999));
        assert_eq!(bench.sent(stream).packets, before, "it went on");
        let lasts = bench.speed(1).time_for(u64::from(quanta) * 64);
        let times: Vec<Time> = bench.controls(1).iter().map(|(at, _)| *at).collect();
        let xoff = pfc(1 << 3, quanta);
        assert!(bench.controls(1).iter().all(|(_, it)| *it == xoff));
        assert!(times.len() as u64 >= 900_000 / lasts.nanos());
        let latest = times.windows(2).map(|it| it[1].since(it[0])).max();
        assert!(latest.is_none_or(|it| it.nanos() <= lasts.nanos() / 2 + 10));
        if lost {
            // Everything on the sender's link vanishes while xon is on it.
            let from = bench.switch_id(0);
            let port = ingress(&bench).0;
            let wire = bench.fabric.wire_from(from, port);
            let all = Impairment {
                loss: 1.0,
                ..Impairment::default()
            };
            bench.fabric.set_impairment(wire / 2, all);
            bench.run_until(micros(1006));
            assert!(bench.fabric.wires[wire].count.lost > 0, "xon was sent");
            bench.fabric.set_impairment(wire / 2, Impairment::default());
            assert_eq!(bench.sent(stream).packets, before);
        }
        bench.run_until(micros(1100));
        assert!(bench.sent(stream).packets > before + 500);
        finish(&mut bench);
        assert_eq!(bench.missing(stream), 0);
    }
}

/// SW-30: with PAUSE instead of PFC incast loses nothing either. What it says is heard by those it
/// is for, and by nobody else: MAC control frames end at the switch.
#[test]
fn pause_is_sent_and_never_forwarded() {
    let mode = written(STATIC, "", "mode = \"pause\"\nquanta = 4000", "");
    let mut bench = Bench::new(star(5, mode));
    let streams = [1, 2, 3].map(|from| bench.send(from, lossless(0, Sizes::Fixed(1500))));
    bench.storm(
        0,
        Storm {
            control: Control::Pause(10),
            every: Span::from_micros(5),
            from: micros(50),
            until: micros(300),
            last: None,
        },
    );
    bench.storm(
        4,
        Storm {
            control: pfc(0xff, 100),
            every: Span::from_micros(5),
            from: micros(50),
            until: micros(300),
            last: None,
        },
    );
    bench.run_until(micros(500));
    finish(&mut bench);
    assert!(streams.iter().all(|it| bench.missing(*it) == 0));
    for tester in [1, 2, 3] {
        let heard = bench.controls(tester);
        let known = |it: &Control| [Control::Pause(4000), Control::Pause(0)].contains(it);
        assert!(heard.len() > 2 && heard.iter().all(|(_, it)| known(it)));
    }
    assert!(bench.controls(0).is_empty() && bench.controls(4).is_empty());
    assert!((0..5).all(|tester| bench.tester(tester).count.others == 0));
    // PFC is not obeyed where PAUSE is configured: it is counted.
    let port = usize::from(bench.port_to(0, bench.tester_id(4)));
    let ignored = bench.switch(0).stats().ports[port].pauses[3].ignored.get();
    assert_eq!(ignored, bench.tester(4).count.controls_sent);
}

/// SW-30: a pause leaves though all queues of its port are paused, shaped to nearly nothing, or
/// full.
#[test]
fn control_frames_pass_every_queue() {
    let shaped = "[[queue]]\nqueues = [0, 1, 2, 4, 5, 6, 7]\nrate = \"1Mbps\"\nburst_bytes = 1";
    for (more, silenced) in [("", true), (shaped, false), ("", false)] {
        let mut setup = star(3, written(STATIC, "", ALL, more));
        setup.lossless = false;
        let mut bench = prompt(setup);
        // What waits for the sender of the lossless class.
        for class in [0_u8, 5, 7] {
            bench.send(
                2,
                Stream {
                    dscp: class * 8,
                    ..Stream::to(1)
                },
            );
        }
        if silenced {
            bench.hold(1, 0xff, (micros(5), micros(300)));
        }
        bench.hold(0, 1 << 3, (micros(1), micros(200)));
        let start = micros(100);
        bench.send(
            1,
            Stream {
                start,
                ..lossless(0, Sizes::Fixed(1500))
            },
        );
        let each = cells(1496);
        let limit = packets_until_xoff(&bench, each);
        bench.run_until(micros(200));
        // It may wait for the packet that is on the line, or that the shaper has let go too early.
        let line = bench.speed(1).time_for(1520).nanos();
        let due = start.nanos() + limit * line + 500;
        let (heard, control) = bench.controls(1)[0];
        assert_eq!(control, pfc(1 << 3, u16::MAX));
        let late = heard.nanos().saturating_sub(due);
        assert!(late <= 500 + 2 * line + 20, "{more}: {late} ns late");
        bench.run_until(micros(400));
        // Nothing waits for seconds.
        bench.set_qos(0, written(STATIC, "", ALL, ""));
        finish(&mut bench);
        assert_eq!(bench.switch(0).dropped(DropReason::HeadroomFull), 0);
    }
}

/// The worst case for headroom: short frames, peers that stop as late as 802.1Q allows, and the
/// lines to them saturated, from idleness, by twice as many others with the longest frames, if
/// `reverse`: pauses leave behind what the device holds. The switch looks at its ports each
/// `poll_gap` microseconds; lossless frames have `frame` bytes.
struct Worst {
    senders: usize,
    reverse: bool,
    poll_gap: u64,
    frame: u16,
    until: Time,
}

/// What most of the tests look at.
const PROMPT: Worst = Worst {
    senders: 8,
    reverse: true,
    poll_gap: 1,
    frame: 60,
    until: Time::from_nanos(150_000),
};

impl Worst {
    fn run(&self, group: &str, buffer: &str) -> Bench {
        let mut qos = (*written(group, buffer, "mode = \"pfc\"", "")).clone();
        qos.headroom.poll_gap_microseconds = self.poll_gap;
        qos.headroom.shortest_frame_bytes = self.frame;
        let mut setup = star(3 * self.senders + 1, Arc::new(qos));
        setup.lossless = false;
        setup.switch.poll = Span::from_micros(self.poll_gap);
        setup.tester.response = Span::from_nanos(2017);
        let mut bench = Bench::new(setup);
        for from in 1..=self.senders {
            bench.send(from, lossless(0, Sizes::Fixed(self.frame + 4)));
            for other in [from + self.senders, from + 2 * self.senders] {
                let saturates = Stream {
                    sizes: Sizes::Fixed(4200),
                    ..Stream::to(from)
                };
                if self.reverse {
                    bench.send(other, saturates);
                }
            }
        }
        bench.run_until(self.until);
        finish(&mut bench);
        bench
    }
}

/// Most headroom that a group used, and that all used together.
fn peaks(bench: &Bench) -> (u64, u64) {
    let ledger = bench.switch(0).ledger();
    let ports = 0..bench.switch(0).stats().ports.len();
    let of = |port| {
        let port = PortId(u16::try_from(port).expect("few ports"));
        ledger.group(port, 3).headroom.peak
    };
    let most = ports.map(of).max().expect("ports");
    (most, ledger.regions()[1].peak)
}

/// Packets that were lost for headroom.
fn lost(bench: &Bench) -> u64 {
    let lost = bench.switch(0).dropped(DropReason::HeadroomFull);
    // What saturates the lines drops: two to one.
    let others = bench.switch(0).dropped(DropReason::QueueFull);
    let all = bench.switch(0).sum(|port| port.dropped_in_all());
    assert_eq!(lost + others, all);
    lost
}

/// The headroom that a group was given, in cells.
fn given(bench: &Bench) -> u64 {
    u64::from(bench.switch(0).traffic().ports[0].groups[3].headroom)
}

const THRESHOLDS: &str = "xoff_bytes = 100000\nxon_bytes = 50000";

/// SW-12: the computed headroom is enough in the worst case, also while the lines to the senders
/// are saturated, and most of it is used. With exactly what was used nothing is lost, with a cell
/// less something is, and with half of it much, for the reason that it is.
#[test]
fn headroom_is_exactly_enough() {
    let computed = format!("{THRESHOLDS}\nheadroom = \"auto\"");
    let auto = PROMPT.run(&computed, "");
    assert_eq!(lost(&auto), 0);
    let computed = given(&auto);
    let (used, all) = peaks(&auto);
    println!("{used} of {computed} cells, {all} together");
    assert!(
        used <= computed && used * 4 >= computed * 3,
        "{used} of {computed}"
    );
    // What the own device holds is a part of it.
    let alone = Worst {
        reverse: false,
        ..PROMPT
    };
    let alone = alone.run(&format!("{THRESHOLDS}\nheadroom = \"auto\""), "");
    let without = peaks(&alone).0;
    println!("{without} cells without traffic in reverse");
    assert!(without + 16 < used, "{without} of {used}");
    let of = |cells: u64, buffer: &str| {
        let bytes = cells * CELL as u64;
        PROMPT.run(&format!("{THRESHOLDS}\nheadroom = {bytes}"), buffer)
    };
    assert_eq!(lost(&of(used, "")), 0);
    assert!(lost(&of(used - 1, "")) > 0);
    assert!(lost(&of(used / 2, "")) > 8);
    // A pool for all: what they used together is enough, whatever each might use; that of one is
    // not.
    let pool = |cells: u64| format!("shared_headroom_bytes = {}", cells * CELL as u64);
    let shared = of(used, &pool(all));
    assert_eq!((lost(&shared), peaks(&shared).1), (0, all));
    assert!(lost(&of(used, &pool(all - 1))) > 0);
    let small = of(used, &pool(used));
    assert!(lost(&small) > 0 && peaks(&small).1 <= used);
}

/// SW-12: so it is with the poll gap that ships, for frames of which a receive ring takes as many
/// as arrive in it. Turns at regular times find the own device nearly empty, so the term for what
/// it holds, up to the shipped burst, is there for irregular ones, and is not used here.
#[test]
fn headroom_is_enough_for_the_shipped_poll_gap() {
    let shipped = Worst {
        senders: 2,
        reverse: true,
        poll_gap: Qos::default().headroom.poll_gap_microseconds,
        frame: 1514,
        until: Time::from_nanos(3_000_000),
    };
    let auto = shipped.run(&format!("{THRESHOLDS}\nheadroom = \"auto\""), "");
    let (used, _) = peaks(&auto);
    println!("{used} of {} cells", given(&auto));
    assert_eq!(lost(&auto), 0);
    assert!(used <= given(&auto) && used * 3 >= given(&auto), "{used}");
    let less = (used - 1) * CELL as u64;
    let less = shipped.run(&format!("{THRESHOLDS}\nheadroom = {less}"), "");
    assert!(lost(&less) > 0);
}

/// SW-31: flow control that is turned off while a peer waits says nothing any more, and the peer
/// goes on when its pause is over.
#[test]
fn flow_control_is_turned_off_live() {
    let mut bench = prompt(star(2, qos(100_000, "")));
    bench.hold(0, 1 << 3, (micros(1), micros(100)));
    let stream = bench.send(1, lossless(0, Sizes::Fixed(1500)));
    bench.run_until(micros(50));
    assert_eq!(bench.controls(1).len(), 1);
    let off = written(STATIC, "", "mode = \"off\"", "");
    bench.set_qos(0, off);
    bench.stop(stream);
    bench.run_until(micros(500));
    assert_eq!(bench.controls(1).len(), 1, "{:?}", bench.controls(1));
    finish(&mut bench);
    assert_eq!(bench.missing(stream), 0);
}

/// SW-31: a port that goes down while its peer waits costs nothing more, and when it comes back the
/// peer is told what holds then.
#[test]
fn a_link_that_goes_down_while_its_peer_waits_comes_back() {
    let mut bench = prompt(star(3, qos(100_000, "")));
    bench.hold(0, 1 << 3, (micros(1), micros(1000)));
    let stream = bench.send(1, lossless(0, Sizes::Fixed(1500)));
    // So little that it has room while the lossless class, which goes first, makes up for its
    // pause.
    let beside = Stream {
        rate: Some(Rate::from_gbps(10)),
        ..Stream::to(0)
    };
    let beside = bench.send(2, beside);
    bench.run_until(micros(50));
    let link = bench.fabric.plan.nodes[bench.tester_id(1).index()].ports[0];
    bench.fabric.set_link(link, false);
    bench.run_until(micros(300));
    let turns = bench.switch(0).stats().turns.get();
    bench.run_until(micros(600));
    // A packet each 1216 ns wakes it twice; a pause that cannot be sent is looked at each time.
    let turns = bench.switch(0).stats().turns.get() - turns;
    assert!(turns < 2000, "{turns} turns");
    bench.fabric.set_link(link, true);
    let sent = bench.sent(stream).packets;
    bench.run_until(micros(1200));
    assert!(bench.sent(stream).packets > sent + 500);
    bench.stop(stream);
    finish(&mut bench);
    assert_eq!(bench.missing(beside), 0);
    assert_eq!(bench.switch(0).dropped(DropReason::HeadroomFull), 0);
}

/// SW-12: what a switch expects of a peer that is a hostd is what hostd may hand to its device, and
/// of one that is a switchd what a port like this may.
#[test]
fn peers_in_software_are_as_they_ship() {
    let of = |peer: &str| {
        let text = format!(
            "[headroom]\npoll_gap_microseconds = 20\npeer = \"{peer}\"\n[flow_control]\nmode = \"pfc\"\n\
             [buffer]\nsize_bytes = 67108864\n\
             [[group]]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n\
             [[queue]]\nqueues = [3]\nlossless = true"
        );
        let mut config = switchd::config::Config {
            qos: toml::from_str(&text).expect("[qos]"),
            ..switchd::config::Config::default()
        };
        config.ports = vec!["p".to_owned()];
        let port = config.settings_of("p").expect("a port");
        let facts = config.facts(&port, Some(Rate::from_gbps(100)), 1500);
        let compiled = config.qos.compile(&[facts]).expect("accepted");
        compiled.headroom[0].as_ref().expect("computed").made_of
    };
    let burst = hostd::verbs::EngineConfig::default().pacer_burst;
    assert_eq!(of("hostd").peer_backlog.bytes, u64::from(burst));
    let gap = Span::from_micros(20);
    let speed = Rate::from_gbps(100);
    let switchd = of("switchd");
    assert_eq!(switchd.response.bytes, speed.bytes_in(gap));
    // As much as leaves in a gap and a quarter.
    assert_eq!(switchd.peer_backlog.bytes, speed.bytes_in(gap) * 5 / 4);
}
