//! Schedulers and shapers in the twin: shares of queues, strict priority, and rates from 10 Mb/s to
//! 400 Gb/s.

use common::time::{Span, Time};
use common::units::Rate;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt::Write;
use std::sync::Arc;
use switchd::config::Qos;
use switchd::limits::{DEVICE_LEAST, DEVICE_LEAST_BYTES};
use switchd::packet::wire_len;
use twin::bench::{Bench, Setup, StreamId, at, micros};
use twin::switch::SwitchSettings;
use twin::tester::{Bursts, Sizes, Stream};

/// What a test says of a queue: its number, its weight (strict without one), and more keys.
type Queue<'a> = (u8, Option<u8>, &'a str);

fn qos(queues: &[Queue<'_>]) -> Arc<Qos> {
    let mut text = "[buffer]\nsize_bytes = 33554432\n".to_owned();
    for (queue, weight, more) in queues {
        write!(text, "[[queue]]\nqueues = [{queue}]\n{more}\n").expect("a string");
        if let Some(weight) = weight {
            writeln!(text, "weight = {weight}").expect("a string");
        }
    }
    Arc::new(toml::from_str(&text).expect("a configuration"))
}

/// Testers around a switch; all links have the same speed.
fn star(testers: usize, gbps: u64, qos: Arc<Qos>) -> Bench {
    let mut setup = Setup::star(testers, at(gbps));
    setup.switch = SwitchSettings {
        packets: 65_536,
        qos: Some(qos),
        ..setup.switch
    };
    Bench::new(setup)
}

/// A stream to tester 0 that waits in this queue.
fn of(class: u8, sizes: Sizes) -> Stream {
    Stream {
        dscp: class * 8,
        sizes,
        ..Stream::to(0)
    }
}

fn lines(bench: &Bench, streams: &[StreamId]) -> Vec<u64> {
    streams.iter().map(|one| bench.line_bytes(*one)).collect()
}

/// Line bytes that arrive of each stream in the next `span`.
fn measured(bench: &mut Bench, streams: &[StreamId], span: Span) -> Vec<u64> {
    let before = lines(bench, streams);
    bench.run_for(span);
    let after = lines(bench, streams);
    after.iter().zip(before).map(|(b, a)| b - a).collect()
}

/// Ends a test: everything comes out, and no cell stays in use.
fn finish(mut bench: Bench) {
    bench.finish();
    assert_eq!(bench.cells_in_use(), 0);
}

/// Each of the streams has its part of what all of them have, within so many per mille of that
/// part.
fn assert_shares(found: &[u64], parts: &[u64], tolerance: u64, what: &str) {
    let (sum, whole) = (found.iter().sum::<u64>(), parts.iter().sum::<u64>());
    for (found_of, part) in found.iter().zip(parts) {
        let wanted = sum * part / whole;
        assert!(
            found_of.abs_diff(wanted) * 1000 <= wanted * tolerance,
            "{what}: {found:?} for {parts:?}"
        );
    }
}

/// Time for the queues to fill.
const FILL: Span = Span::from_millis(2);

/// SW-15: queues share a port by weight to within 2 %, whatever the sizes of their frames, over 100
/// ms at 10 Gb/s.
#[test]
fn shares_follow_weights_for_every_mix_of_sizes() {
    let mix = || Sizes::Mix(vec![64, 64, 64, 594, 1518]);
    let cases: [Vec<(u8, Sizes)>; 4] = [
        vec![(1, Sizes::Fixed(1500)), (1, Sizes::Fixed(1500))],
        vec![(50, Sizes::Fixed(64)), (50, Sizes::Fixed(4096))],
        vec![
            (10, Sizes::Fixed(65)),
            (30, Sizes::Fixed(1500)),
            (60, mix()),
        ],
        vec![
            (1, Sizes::Between(64, 4096)),
            (10, Sizes::Fixed(4096)),
            (100, Sizes::Fixed(1024)),
        ],
    ];
    for case in cases {
        let queues: Vec<Queue<'_>> = case
            .iter()
            .zip(0..)
            .map(|((weight, _), queue)| (queue, Some(*weight), ""))
            .collect();
        let mut bench = star(case.len() + 1, 10, qos(&queues));
        let streams: Vec<StreamId> = case
            .iter()
            .zip(0..)
            .map(|((_, sizes), queue)| bench.send(usize::from(queue) + 1, of(queue, sizes.clone())))
            .collect();
        bench.run_for(FILL);
        let span = Span::from_millis(100);
        let found = measured(&mut bench, &streams, span);
        let parts: Vec<u64> = case.iter().map(|(weight, _)| u64::from(*weight)).collect();
        assert_shares(&found, &parts, 20, &format!("{case:?}"));
        let line = bench.speed(0).bytes_in(span);
        let busy: u64 = found.iter().sum();
        assert!(busy * 1000 >= line * 999, "{busy} of {line}");
        finish(bench);
    }
}

/// SW-16: with the profile that ships TC_med gets 75 % against all of TC_low, whose three queues
/// share the rest; while one of those has nothing to send its part goes to the others by weight.
#[test]
fn tc_med_has_three_quarters_against_all_of_tc_low() {
    let shipped: toml::Table =
        toml::from_str(include_str!("../../etc/switchd-uet.toml")).expect("a configuration");
    let mut qos: Qos = shipped["qos"].clone().try_into().expect("its [qos]");
    // Marks and limits of links of 10 Gb/s and 12 µs: so the queues are full soon.
    qos.base_rtt_microseconds = 12;
    qos.buffer.size_bytes = 32 << 20;
    for others in [&[0, 2, 3][..], &[3]] {
        let mut bench = star(5, 10, Arc::new(qos.clone()));
        let medium = bench.send(1, of(4, Sizes::Fixed(1500)));
        let low = others.iter().zip(2..);
        let low: Vec<StreamId> = low
            .map(|(class, from)| bench.send(from, of(*class, Sizes::Fixed(1500))))
            .collect();
        bench.run_for(FILL);
        let all = [&[medium], &low[..]].concat();
        let found = measured(&mut bench, &all, Span::from_millis(20));
        let parts: &[u64] = match others.len() {
            3 => &[9, 1, 1, 1],
            _ => &[9, 1],
        };
        assert_shares(&found, parts, 20, "TC_med and TC_low");
        finish(bench);
    }
}

/// SW-16: TC_med gets 75 % of the bandwidth when it competes with TC_low, and all of it when it
/// does not.
#[test]
fn tc_med_has_three_quarters() {
    let mut bench = star(3, 10, qos(&[(0, Some(25), ""), (1, Some(75), "")]));
    let low = Stream {
        stop: micros(30_000),
        ..of(0, Sizes::Fixed(1500))
    };
    let low = bench.send(1, low);
    let medium = bench.send(2, of(1, Sizes::Fixed(4096)));
    bench.run_for(FILL);
    let found = measured(&mut bench, &[low, medium], Span::from_millis(20));
    assert_shares(&found, &[25, 75], 20, "TC_low and TC_med");
    // What waits of TC_low at its end has left after 4 ms.
    bench.run_until(micros(36_000));
    let found = measured(&mut bench, &[low, medium], Span::from_millis(5));
    let line = bench.speed(0).bytes_in(Span::from_millis(5));
    assert_eq!(found[0], 0);
    assert!(found[1] * 1000 >= line * 999, "{} of {line}", found[1]);
    finish(bench);
}

/// SW-15: any mix of strict and weighted queues: strict ones have what they ask for, wherever they
/// are among the others, and these share the rest by weight.
#[test]
fn strict_and_weighted_queues_mix() {
    for seed in 1..=4_u64 {
        let mut random = Pcg64Mcg::new(u128::from(seed));
        let mut below = |most: u64| random.next_u64() % most;
        let kinds: Vec<Option<u8>> = (0..6)
            .map(|queue| {
                let strict = queue < 2 || below(3) == 0;
                (!strict).then(|| u8::try_from(1 + below(100)).expect("at most 100"))
            })
            .collect();
        // Any class can be any of them.
        let turn = u8::try_from(below(8)).expect("below 8");
        let class = |place: usize| (u8::try_from(place).expect("6") + turn) % 8;
        let queues: Vec<Queue<'_>> = kinds
            .iter()
            .enumerate()
            .map(|(place, weight)| (class(place), *weight, ""))
            .collect();
        let sizes = [64, 300, 1500, 4096, 9000].map(|size| u16::min(size, 4218));
        let mut bench = star(kinds.len() + 1, 10, qos(&queues));
        let streams: Vec<StreamId> = kinds
            .iter()
            .enumerate()
            .map(|(place, weight)| {
                let size = sizes[usize::try_from(below(5)).expect("below 5")];
                let stream = Stream {
                    // The strict ones ask for a tenth each.
                    rate: weight.is_none().then(|| Rate::from_gbps(1)),
                    ..of(class(place), Sizes::Fixed(size))
                };
                bench.send(place + 1, stream)
            })
            .collect();
        bench.run_for(FILL);
        let span = Span::from_millis(20);
        let found = measured(&mut bench, &streams, span);
        let what = format!("seed {seed}, {queues:?}, {found:?}");
        let tenth = bench.speed(0).bytes_in(span) / 10;
        let (mut shared, mut weights) = (Vec::new(), Vec::new());
        for ((weight, found), &stream) in kinds.iter().zip(&found).zip(&streams) {
            match weight {
                None => {
                    assert!(found.abs_diff(tenth) * 100 <= tenth, "{what}");
                    let waiting = bench.missing(stream);
                    assert!(waiting <= 64, "{what}: {waiting} strict packets wait");
                }
                Some(weight) => {
                    shared.push(*found);
                    weights.push(u64::from(*weight));
                }
            }
        }
        // Twenty rounds of a weight of one are few packets: two of the longest may be missing or
        // too many.
        let (sum, whole) = (shared.iter().sum::<u64>(), weights.iter().sum::<u64>());
        for (found, weight) in shared.iter().zip(&weights) {
            let wanted = sum * weight / whole;
            let allowed = wanted / 50 + 2 * 4238;
            assert!(found.abs_diff(wanted) <= allowed, "{what}: {wanted}");
        }
        let line = bench.speed(0).bytes_in(span);
        let busy: u64 = found.iter().sum();
        assert!(weights.is_empty() || busy * 1000 >= line * 998, "{what}");
        finish(bench);
    }
}

/// SW-15: a strict packet waits for what the device holds at most, the last packet of which may
/// exceed the limit.
#[test]
fn a_strict_packet_waits_for_the_device_at_most() {
    for (gbps, weight) in [(10, None), (100, None), (100, Some(100))] {
        let run = |load: bool| {
            let mut bench = star(4, gbps, qos(&[(1, weight, ""), (2, weight, "")]));
            if load {
                bench.send(1, of(1, Sizes::Fixed(4218)));
                bench.send(2, of(2, Sizes::Fixed(4218)));
            }
            let probe = Stream {
                // Not in step with the load.
                rate: Some(Rate::from_mbps(67)),
                start: micros(500),
                ..of(7, Sizes::Fixed(64))
            };
            let probe = bench.send(3, probe);
            bench.run_until(micros(10_000));
            let latency = &bench.received(probe).latency;
            let found = (latency.min(), latency.max());
            assert!(bench.received(probe).packets > 800);
            finish(bench);
            found
        };
        let (alone, loaded) = (run(false), run(true));
        let speed = Rate::from_gbps(gbps);
        let held = speed.bytes_in(DEVICE_LEAST).max(DEVICE_LEAST_BYTES);
        let held = speed.time_for(held + 4218 + 20).nanos();
        let waited = loaded.1.nanos() - alone.0.nanos();
        // Times are rounded up.
        assert!(waited <= held + 4, "{gbps}: {waited} ns for {held}");
        assert!(waited > held / 4, "{gbps}: the load was none: {waited} ns");
    }
}

/// SW-15: weights change while queues are full, from the next packet on.
#[test]
fn weights_change_live() {
    let mut bench = star(3, 10, qos(&[(0, Some(20), ""), (1, Some(80), "")]));
    let streams = [0, 1].map(|queue| {
        let sender = usize::from(queue) + 1;
        bench.send(sender, of(queue, Sizes::Fixed(1500)))
    });
    bench.run_for(FILL);
    let span = Span::from_millis(20);
    for weights in [(20, 80), (60, 40), (100, 1)] {
        let queues = [(0, Some(weights.0), ""), (1, Some(weights.1), "")];
        bench.set_qos(0, qos(&queues));
        // A turn of the old weights may still be going on.
        bench.run_for(Span::from_micros(500));
        let found = measured(&mut bench, &streams, span);
        let parts = [u64::from(weights.0), u64::from(weights.1)];
        assert_shares(&found, &parts, 20, "after a change");
    }
    // And from weighted to strict and back.
    bench.set_qos(0, qos(&[(0, None, ""), (1, Some(80), "")]));
    bench.run_for(Span::from_micros(500));
    assert_eq!(measured(&mut bench, &streams, span)[1], 0);
    bench.set_qos(0, qos(&[(0, Some(20), ""), (1, Some(80), "")]));
    bench.run_for(Span::from_micros(500));
    let found = measured(&mut bench, &streams, span);
    assert_shares(&found, &[20, 80], 20, "weighted again");
    finish(bench);
}

/// SW-15: a weighted queue that its own shaper holds back leaves its share to the others and saves
/// nothing: when the shaper is taken away it gets its weight and not more.
#[test]
fn a_shaped_queue_saves_no_share() {
    let shaped = qos(&[(0, Some(100), "rate = \"1Gbps\""), (1, Some(100), "")]);
    let mut bench = star(3, 10, shaped);
    let streams = [0, 1].map(|queue| {
        let sender = usize::from(queue) + 1;
        bench.send(sender, of(queue, Sizes::Fixed(1500)))
    });
    bench.run_for(FILL);
    let found = measured(&mut bench, &streams, Span::from_millis(20));
    assert_shares(&found, &[10, 90], 20, "while it is shaped");
    bench.set_qos(0, qos(&[(0, Some(100), ""), (1, Some(100), "")]));
    let found = measured(&mut bench, &streams, Span::from_millis(5));
    assert_shares(&found, &[50, 50], 20, "without its shaper");
    finish(bench);
}

/// Rates of shapers, and how long they are watched: enough for a thousand packets or more, or a
/// second.
const RATES: [(u64, u64); 6] = [
    (10, 1_000_000),
    (100, 200_000),
    (1000, 20_000),
    (10_000, 10_000),
    (100_000, 2_000),
    (400_000, 1_000),
];

/// SW-15: the shaper of a queue keeps its rate to 1 % from 10 Mb/s to 400 Gb/s, and the queue
/// beside it has the rest of the port.
#[test]
fn a_queue_keeps_its_rate() {
    for (mbps, lasting) in RATES {
        let rate = Rate::from_mbps(mbps);
        let key = format!("rate = \"{mbps}Mbps\"");
        let gbps = (mbps / 500).max(1);
        let mut bench = star(2, gbps, qos(&[(3, None, &key)]));
        let stream = Stream {
            rate: Some(Rate::from_bps(rate.bps() * 3 / 2)),
            ..of(3, Sizes::InTurn(vec![64, 1500, 700]))
        };
        let stream = bench.send(1, stream);
        bench.run_for(FILL);
        // What waits by now is what the burst did not let go.
        let before = bench.line_bytes(stream);
        bench.run_for(Span::from_micros(lasting));
        let found = bench.line_bytes(stream) - before;
        let wanted = rate.bytes_in(Span::from_micros(lasting));
        assert!(
            found.abs_diff(wanted) * 100 <= wanted,
            "{mbps} Mb/s: {found} of {wanted}"
        );
        finish(bench);
    }
}

/// SW-15: the shaper of a port keeps its speed to 1 %, as the switch hands packets to the device:
/// the wire does not help it.
#[test]
fn a_port_keeps_its_speed() {
    for (mbps, lasting) in RATES {
        let rate = Rate::from_mbps(mbps);
        let gbps = (mbps / 500).max(1);
        let setup = Setup::star(2, at(gbps)).with_speed(0, rate);
        let mut bench = Bench::new(setup);
        let stream = Stream {
            rate: Some(Rate::from_bps(rate.bps() * 3 / 2)),
            ..of(0, Sizes::InTurn(vec![64, 1500, 700]))
        };
        bench.send(1, stream);
        bench.run_for(FILL);
        let port = usize::from(bench.port_to(0, bench.tester_id(0)));
        let sent = |bench: &Bench| {
            let port = &bench.switch(0).stats().ports[port];
            // The check sequence, preamble and gap; none of the frames is padded.
            port.tx_bytes.get() + port.tx_packets.get() * wire_len(60) - 60 * port.tx_packets.get()
        };
        let before = sent(&bench);
        bench.run_for(Span::from_micros(lasting));
        let (found, wanted) = (
            sent(&bench) - before,
            rate.bytes_in(Span::from_micros(lasting)),
        );
        assert!(
            found.abs_diff(wanted) * 100 <= wanted,
            "{mbps} Mb/s: {found} of {wanted}"
        );
        // At 10 Mb/s a full queue takes most of a second to empty.
        bench.fabric.run(&mut Vec::new());
        bench.run_for(Span::from_millis(if mbps < 1000 { 2000 } else { 0 }));
        finish(bench);
    }
}

/// SW-15: after a pause a queue sends its burst at the speed of the line, and what follows at its
/// rate.
#[test]
fn a_burst_goes_at_once() {
    let frame = wire_len(1496);
    for burst in [1_u64, 20_000, 100_000] {
        let keys = format!("rate = \"1Gbps\"\nburst_bytes = {burst}");
        let mut bench = star(2, 100, qos(&[(3, None, &keys)]));
        // Twice: what the first burst took has been saved again after 1 ms.
        let stream = Stream {
            packets: 400,
            start: micros(1000),
            bursts: Some(Bursts {
                packets: 200,
                gap: Span::from_micros(4000),
            }),
            ..of(3, Sizes::Fixed(1500))
        };
        let stream = bench.send(1, stream);
        let mut before = 0;
        for begin in [1000, 5024] {
            // 200 frames take 24.3 us; 25 us after the beginning 3125 bytes have accrued too.
            bench.run_until(micros(begin + 26));
            let at_once = bench.received(stream).packets - before;
            let saved = (burst + 3250) / frame;
            assert!(
                (saved..=saved + 2).contains(&at_once),
                "burst {burst}: {at_once} packets, {saved} were saved"
            );
            let seen = bench.received(stream).packets;
            bench.run_for(Span::from_micros(1000));
            let paced = bench.received(stream).packets - seen;
            let wanted = 125_000 / frame;
            assert!(paced.abs_diff(wanted) <= 1, "{paced} of {wanted}");
            bench.run_until(Time::from_nanos((begin + 4000) * 1000));
            before = bench.received(stream).packets;
            assert_eq!(before % 200, 0);
        }
        finish(bench);
    }
}
