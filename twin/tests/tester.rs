//! Testers of the twin: their rates, their obedience to PAUSE and PFC, and what they count.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::ip::Ecn;
use common::wire::pause::{Control, FRAME_LEN};
use common::wire::roce::Mpeh;
use common::xdp::frame::{FramePool, Region};
use ipnet::IpNet;
use switchd::drop::DropReason;
use switchd::id::PortId;
use switchd::packet::{Packet, wire_len};
use switchd::traffic::egress_port::PolicyAndLedger;
use switchd::traffic::shaper::Shaper;
use switchd::traffic::{EgressPort, PacketStore};
use twin::bench::{Bench, Setup, StreamId, at, micros};
use twin::fabric::Mutation;
use twin::switch::SwitchSettings;
use twin::tester::{Bursts, FCS, Roce, Sizes, Storm, Stream, TesterSettings, pfc};
use twin::topology::{Links, Shape};
use twin::wire::Impairment;

/// Picoseconds that a frame of this size takes at 100 Gb/s: 80 for each byte.
fn time_of(size: u16) -> u64 {
    80 * wire_len(u64::from(size) - FCS as u64)
}

fn fixed(to: usize, size: u16) -> Stream {
    Stream {
        sizes: Sizes::Fixed(size),
        ..Stream::to(to)
    }
}

/// Two testers on one link.
fn pair(setup: impl FnOnce(&mut Setup)) -> Bench {
    let links = Links {
        host: at(100),
        fabric: at(100),
    };
    let mut pair = Setup::new(Shape::Pair, links, false);
    setup(&mut pair);
    Bench::new(pair)
}

fn sent(bench: &Bench, streams: &[StreamId]) -> u64 {
    streams.iter().map(|one| bench.sent(*one).packets).sum()
}

fn arrived(bench: &Bench, streams: &[StreamId]) -> u64 {
    let packets = streams.iter().map(|one| bench.received(*one).packets);
    packets.sum()
}

/// Frames of every size fill the line, not a packet more or less, and a switch that has nothing
/// else to do forwards all.
#[test]
fn line_rate_is_exact_for_every_size() {
    let span = Span::from_micros(200);
    for size in [64, 65, 128, 1500, 4096] {
        let mut bench = Bench::new(Setup::star(2, at(100)));
        let stop = Time::ZERO + span;
        let stream = Stream {
            stop,
            ..fixed(1, size)
        };
        let stream = bench.send(0, stream);
        bench.run_until(stop);
        let expected = (span.nanos() * 1000).div_ceil(time_of(size));
        assert_eq!(bench.sent(stream).packets, expected, "{size}");
        let bytes = expected * u64::from(size);
        assert_eq!(bench.sent(stream).bytes, bytes, "{size}");
        bench.finish();
        let received = bench.received(stream);
        assert_eq!((received.packets, received.bytes), (expected, bytes));
        assert_eq!((bench.missing(stream), received.reordered), (0, 0));
        let (Some(first), Some(last)) = (received.first, received.last) else {
            panic!("nothing arrived");
        };
        let took = last.since(first).nanos() * 1000;
        let exact = (expected - 1) * time_of(size);
        assert!(took.abs_diff(exact) <= 2000, "{size}: {took} for {exact}");
        // Two links and two times the frame, less its preamble and gap; times on wires are rounded
        // up.
        let least = 1000 + 2 * time_of(size) / 1000;
        let latency = received.latency.min().nanos();
        assert!((least..least + 4).contains(&latency), "{size}: {latency}");
    }
}

/// Streams with a rate have it to the packet, whatever their sizes; one without takes the rest, and
/// several share it in turn.
#[test]
fn streams_share_a_port() {
    let mut bench = pair(|_| {});
    let rated = |gbps, size| Stream {
        rate: Some(Rate::from_gbps(gbps)),
        ..fixed(1, size)
    };
    let streams = [rated(10, 64), rated(30, 1500), fixed(1, 512), fixed(1, 512)];
    let streams = streams.map(|stream| bench.send(0, stream));
    bench.run_until(micros(1000));
    let [mice, elephant, one, other] = streams.map(|stream| bench.sent(stream).packets);
    let exact = |tenths: u64, size| 1_000_000_000 * tenths / 10 / time_of(size);
    assert!(mice.abs_diff(exact(1, 64)) <= 2, "{mice}");
    assert!(elephant.abs_diff(exact(3, 1500)) <= 1, "{elephant}");
    assert!(one.abs_diff(other) <= 1, "{one} {other}");
    assert!((one + other).abs_diff(exact(6, 512)) <= 4, "{one} {other}");
    bench.finish();
}

/// What the switch drops at the tail is what is missing, of all streams together, and nothing else
/// is.
#[test]
fn an_overloaded_queue_loses_what_it_counts() {
    let mut bench = Bench::new(Setup::star(9, at(100)));
    let sizes = [64, 65, 128, 256, 777, 1500, 4096, 4218];
    let streams: Vec<StreamId> = sizes
        .iter()
        .zip(1..)
        .map(|(size, from)| bench.send(from, fixed(0, *size)))
        .collect();
    bench.run_until(micros(300));
    bench.finish();
    let dropped = bench.switch(0).dropped(DropReason::QueueFull);
    assert!(dropped > 1000, "{dropped}");
    assert_eq!(arrived(&bench, &streams) + dropped, sent(&bench, &streams));
    for stream in streams {
        let received = bench.received(stream);
        assert!(received.gaps() <= bench.missing(stream));
        assert_eq!((received.duplicated, received.reordered), (0, 0));
    }
}

/// A tester does what the standard asks of a station, so that a switch can be held against it: it
/// stops when the packet that it sends is over, and begins again when time runs out, to the
/// quantum, or is taken back.
#[test]
fn pfc_is_obeyed_within_a_packet_and_a_quantum() {
    let quantum = 512_000 / 100;
    for response in [Span::ZERO, Span::from_nanos(700)] {
        for (quanta, last) in [(1000, None), (4, None), (40_000, Some(pfc(1 << 3, 0)))] {
            let mut bench = pair(|setup| setup.tester.response = response);
            let stream = bench.send(
                0,
                Stream {
                    dscp: 24,
                    ..fixed(1, 128)
                },
            );
            bench.storm(
                1,
                Storm {
                    control: pfc(1 << 3, quanta),
                    every: Span::MAX,
                    from: micros(10),
                    until: micros(30),
                    last,
                },
            );
            bench.run_until(micros(200));
            bench.finish();
            let travel = 500 + (wire_len(FRAME_LEN as u64) * 80).div_ceil(1000);
            let heard = 10_000 + travel;
            assert_eq!(
                bench.controls(0)[0],
                (Time::from_nanos(heard), pfc(1 << 3, quanta))
            );
            let acts = heard + response.nanos();
            let (from, silence) = bench.received(stream).silence;
            let packet = time_of(128).div_ceil(1000);
            let stopped = from.nanos() - 500;
            assert!(
                (acts..=acts + packet).contains(&stopped),
                "{stopped} of {acts}"
            );
            let resumed = stopped + silence.nanos() - packet;
            let exact = match last {
                Some(_) => 30_000 + travel + response.nanos(),
                None => acts + u64::from(quanta) * quantum / 1000,
            };
            let off = resumed.abs_diff(exact);
            assert!(off <= quantum.div_ceil(1000), "{resumed} of {exact}");
        }
    }
}

/// A priority that is paused does not block another, which keeps its rate and may use what is left
/// of the line.
#[test]
fn a_paused_priority_leaves_the_others_their_rate() {
    let mut bench = pair(|_| {});
    let of = |dscp, rate| Stream {
        dscp,
        rate,
        ..fixed(1, 1000)
    };
    let paused = bench.send(0, of(24, Some(Rate::from_gbps(40))));
    let steady = bench.send(0, of(32, Some(Rate::from_gbps(40))));
    let greedy = bench.send(0, of(0, None));
    bench.hold(1, 1 << 3, (micros(100), micros(300)));
    let mut counts = Vec::new();
    for now in [110, 290, 310, 490] {
        bench.run_until(micros(now));
        counts.push([paused, steady, greedy].map(|stream| bench.received(stream).packets));
    }
    let between = |a: usize, b: usize| {
        let [from, to] = [counts[a], counts[b]];
        [0, 1, 2].map(|n: usize| to[n] - from[n])
    };
    let part = |tenths: u64| 180_000_000 * tenths / 10 / time_of(1000);
    let during = between(0, 1);
    assert_eq!(during[0], 0);
    assert!(during[1].abs_diff(part(4)) <= 1, "{during:?}");
    assert!(during[2].abs_diff(part(6)) <= 2, "{during:?}");
    let after = between(2, 3);
    assert!(after[0].abs_diff(part(4)) <= 1, "{after:?}");
    assert!(after[1].abs_diff(part(4)) <= 1, "{after:?}");
    assert!(after[2].abs_diff(part(2)) <= 2, "{after:?}");
    bench.finish();
    // Refreshed before it runs out (335 us), and taken back.
    let heard: Vec<Control> = bench
        .controls(0)
        .iter()
        .map(|(_, control)| *control)
        .collect();
    let xoff = pfc(1 << 3, u16::MAX);
    assert_eq!(heard, [xoff, xoff, pfc(1 << 3, 0)]);
    assert_eq!(bench.missing(paused), 0);
}

/// PAUSE stops everything but control frames. A station that never ceases to send it silences its
/// neighbour until it does; one that does not obey only records it.
#[test]
fn a_storm_silences_who_obeys() {
    for obeys in [true, false] {
        let mut bench = pair(|setup| {
            setup.tester = TesterSettings {
                obeys,
                ..setup.tester
            }
        });
        let stream = bench.send(0, fixed(1, 64));
        let back = bench.send(1, fixed(0, 1500));
        let storm = Storm {
            control: Control::Pause(u16::MAX),
            every: Span::from_micros(1),
            from: micros(10),
            until: micros(60),
            last: Some(Control::Pause(0)),
        };
        bench.storm(1, storm);
        bench.run_until(micros(15));
        let before = bench.sent(stream).packets;
        bench.run_until(micros(60));
        let during = bench.sent(stream).packets - before;
        assert_eq!(during == 0, obeys, "{during}");
        bench.run_until(micros(80));
        assert!(bench.sent(stream).packets > before + 2000);
        bench.finish();
        assert_eq!(bench.controls(0).len(), 51);
        assert_eq!(bench.tester(1).count.controls_sent, 51);
        // The storm waits for packets, and packets for the storm; all of them get through.
        assert_eq!(bench.missing(back), 0);
    }
}

fn mixed(seed: u64) -> u64 {
    let mut setup = Setup::leaf_spine((2, 2), 2, at(100));
    setup.seed = seed;
    let mut bench = Bench::new(setup);
    for from in 0..4 {
        let stream = Stream {
            sizes: Sizes::Between(64, 4096),
            from_ports: (0xc000..0xc010).collect(),
            rate: Some(Rate::from_gbps(60)),
            ..Stream::to((from + 2) % 4)
        };
        bench.send(from, stream);
    }
    bench.run_until(micros(100));
    bench.finish();
    bench.digest()
}

#[test]
fn a_bench_is_a_function_of_its_seed() {
    assert_eq!(mixed(1), mixed(1));
    assert_ne!(mixed(1), mixed(2));
}

/// Lost and doubled packets are what the wires say, and a late one is counted as such.
#[test]
fn losses_and_duplicates_are_found() {
    let mut bench = pair(|_| {});
    let stream = bench.send(
        0,
        Stream {
            sizes: Sizes::Mix(vec![64, 64, 594, 1518]),
            ..Stream::to(1)
        },
    );
    let impairment = Impairment {
        loss: 0.01,
        duplication: 0.02,
        reordering: 0.01,
        lateness: Span::from_micros(2),
        ..Impairment::default()
    };
    bench.fabric.set_impairment(0, impairment);
    bench.run_until(micros(500));
    bench.finish();
    let count = bench.fabric.wires[0].count;
    let received = bench.received(stream);
    assert!(count.lost > 50 && count.duplicated > 100);
    assert_eq!(bench.missing(stream), count.lost);
    assert_eq!(received.duplicated, count.duplicated);
    assert!(received.reordered > 10 && received.reordered <= count.delayed);
}

/// RoCE packets with MPEH, plain ones and UDP, over both versions of IP, in bursts, marked and
/// counted.
#[test]
fn every_kind_of_packet_arrives() {
    let mpeh = Some(Mpeh::default());
    for v6 in [false, true] {
        for roce in [None, Some(Roce::default()), Some(Roce { mpeh })] {
            let shape = Shape::LeafSpine {
                leaves: 2,
                spines: 4,
                hosts_per_leaf: 1,
            };
            let links = Links {
                host: at(100),
                fabric: at(100),
            };
            let mut bench = Bench::new(Setup::new(shape, links, v6));
            let mut stream = Stream {
                dscp: 26,
                ecn: Ecn::Ect0,
                from_ports: (0xc000..0xc040).collect(),
                packets: 1000,
                start: micros(5),
                bursts: Some(Bursts {
                    packets: 100,
                    gap: Span::from_micros(3),
                }),
                roce,
                ..Stream::to(1)
            };
            let least = stream.least_size(v6);
            stream.sizes = Sizes::InTurn(vec![least, 1500, 4096]);
            let stream = bench.send(0, stream);
            bench.run_until(micros(500));
            bench.finish();
            let received = bench.received(stream);
            assert_eq!((received.packets, received.gaps()), (1000, 0));
            assert_eq!(received.by_dscp[26], 1000);
            let odd = [received.trimmed, received.remarked, received.marked];
            assert_eq!(odd, [0; 3], "{v6} {roce:?}");
            assert!(received.first >= Some(micros(5)));
            assert!(received.silence.1 >= Span::from_micros(2));
            assert_eq!(received.reordered_in_flow, 0);
            let spines =
                (0..4_usize).map(|spine| bench.switch(2 + spine).sum(|port| port.rx_packets.get()));
            assert!(
                spines.clone().all(|packets| packets > 50),
                "spread over all"
            );
            assert_eq!(spines.sum::<u64>(), 1000);
        }
    }
}

/// One route is enough for packets to go round a ring until their time to live runs out.
#[test]
fn a_route_can_make_a_loop() {
    let mut bench = Bench::new(Setup::ring(4, at(100)));
    let before = Stream {
        packets: 10,
        ..Stream::to(0)
    };
    let before = bench.send(2, before);
    bench.run_until(micros(50));
    assert_eq!(bench.missing(before), 0);
    let next = bench.switch_id(1);
    bench.route(0, IpNet::from(bench.address(0)), &[next]);
    let lost = Stream {
        packets: 10,
        start: micros(60),
        ttl: 33,
        ..Stream::to(0)
    };
    let lost = bench.send(2, lost);
    bench.run_until(micros(500));
    bench.finish();
    assert_eq!((bench.sent(lost).packets, bench.missing(lost)), (10, 10));
    let expired = |switch| bench.switch(switch).dropped(DropReason::TtlExpired);
    assert_eq!((0..4).map(expired).collect::<Vec<_>>(), [0, 0, 10, 0]);
    // Whose packets they were is told by ICMP.
    assert_eq!(bench.tester(2).count.others, 10);
}

/// Settings of switches are what they are set to: a slow port behind a short queue, and daemons
/// that poll.
#[test]
fn a_bench_is_made_to_measure() {
    let mut setup = Setup::star(3, at(100)).with_speed(2, Rate::from_gbps(10));
    setup.switch = SwitchSettings {
        queue: 64 << 10,
        poll: Span::from_nanos(250),
        ..SwitchSettings::default()
    };
    let mut bench = Bench::new(setup);
    let slow = bench.send(0, fixed(2, 1000));
    let fast = bench.send(0, fixed(1, 1000));
    bench.run_until(micros(200));
    bench.finish();
    assert_eq!(bench.missing(fast), 0);
    // 200 us at 10 Gb/s, and 64 cells of four.
    let expected = 200_000_000 / (10 * time_of(1000)) + 64;
    let found = bench.received(slow).packets;
    assert!(found.abs_diff(expected) <= 2, "{found} of {expected}");
    let to_slow = bench.port_to(0, bench.tester_id(2));
    let queues = &bench.switch(0).stats().ports[usize::from(to_slow)].queues;
    let refused: u64 = queues.iter().map(|queue| queue.dropped_packets.get()).sum();
    assert_eq!(refused, bench.missing(slow));
}

/// The books are kept with testers as with hosts.
#[test]
#[should_panic(expected = "check 'conservation' failed in scenario 'bench', seed 1")]
fn a_frame_that_a_switch_loses_is_noticed() {
    let mut bench = Bench::new(Setup::star(2, at(100)));
    bench.fabric.mutate(Mutation::LoseFrame(10));
    bench.send(0, Stream::to(1));
    bench.run_until(micros(10));
    bench.finish();
}

/// A switch that sends everything and keeps a cell of it in the books, where only the side that
/// packets leave by sees it.
#[test]
#[should_panic(expected = "it holds nothing, but 2 cells are in the accounts of its buffer")]
fn a_cell_that_stays_on_the_egress_side_is_noticed() {
    let mut bench = Bench::new(Setup::star(2, at(100)));
    bench.send(0, Stream::to(1));
    bench.run_until(micros(10));
    bench.finish();
    assert_eq!(bench.cells_in_use(), 0);
    let (policy, ledger) = (bench.switch(0).traffic(), bench.switch(0).ledger());
    let mut port = EgressPort::new(PortId(0), policy, Shaper::new(None, 0), 1);
    let mut store = PacketStore::new(1);
    let mut pool = FramePool::new(Region::heap(1, 2048, 64));
    let frame = pool.take_filled(&[0; 64]).expect("a free frame");
    let packet = Packet {
        cells: 1,
        ..Packet::at(frame, PortId(0))
    };
    let now = Time::ZERO;
    let buffer = PolicyAndLedger {
        policy,
        ledger,
        now,
    };
    assert!(port.admit(packet, &mut store, buffer).is_ok());
    std::mem::forget(store);
    assert_eq!(ledger.in_use(), 0, "nothing was charged where it arrived");
    bench.finish();
}

/// In a lossless fabric nothing may be lost for want of room.
#[test]
#[should_panic(expected = "check 'lossless' failed")]
fn a_loss_in_a_lossless_bench_is_noticed() {
    let mut setup = Setup::star(3, at(100));
    setup.lossless = true;
    let mut bench = Bench::new(setup);
    bench.send(1, Stream::to(0));
    bench.send(2, Stream::to(0));
    bench.run_until(micros(300));
    bench.finish();
}

/// A stream that cannot be is refused with the reason.
#[test]
#[should_panic(expected = "stream 0: frames of 64 to 64 bytes; at least 84")]
fn a_stream_that_cannot_be_is_refused() {
    let links = Links {
        host: at(100),
        fabric: at(100),
    };
    let mut bench = Bench::new(Setup::new(Shape::Pair, links, true));
    bench.send(0, fixed(1, 64));
}
