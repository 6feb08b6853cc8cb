//! Dynamic load balancing in the twin: leaves that spread flowlets over spines by the quality of
//! their ports.

use common::time::Span;
use common::units::Rate;
use common::wire::ethernet::Mac;
use common::wire::roce::Mpeh;
use std::sync::Arc;
use switchd::config::Qos;
use switchd::config::ecmp::Dlb;
use switchd::drop::DropReason;
use switchd::forward::dlb::quality::WORST;
use switchd::id::PortId;
use switchd::stats::FlowletStats;
use twin::bench::{Bench, Setup, StreamId, at, micros};
use twin::switch::{SwitchSettings, mac};
use twin::tester::{Bursts, Roce, Sizes, Stream, pfc};

/// `[ecmp.dlb]` with a mode and an idle time in microseconds.
fn dlb(mode: &str, idle: u64, more: &str) -> Dlb {
    let text = format!("mode = \"{mode}\"\nidle_time_microseconds = {idle}\n{more}");
    toml::from_str(&text).expect("a configuration")
}

/// Class 3 is lossless.
fn lossless() -> Arc<Qos> {
    let text = r#"
[buffer]
size_bytes = 67108864
[headroom]
cable_metres = 100
poll_gap_microseconds = 1
[flow_control]
mode = "pfc"
[[group]]
groups = [3]
xoff_bytes = 100000
xon_bytes = 50000
headroom = "auto"
[[queue]]
queues = [3]
lossless = true
"#;
    Arc::new(toml::from_str(text).expect("a configuration"))
}

/// Leaves with testers, and spines, of 100 Gb/s.
fn fabric(size: (usize, usize), testers: usize, dlb: Dlb) -> Setup {
    let mut setup = Setup::leaf_spine(size, testers, at(100));
    setup.switch.dlb = Some(Arc::new(dlb));
    setup
}

/// A counter of flowlets, of all switches.
fn count(bench: &Bench, switches: usize, counter: impl Fn(&FlowletStats) -> u64) -> u64 {
    let each = (0..switches).map(|switch| counter(&bench.switch(switch).stats().flowlets));
    each.sum()
}

/// The port by which the first of two leaves reaches a spine: spines are numbered after leaves.
fn uplink(bench: &Bench, spine: usize) -> u16 {
    bench.port_to(0, bench.switch_id(2 + spine))
}

/// Packets that the first of two leaves has put into its queues to a spine, by class.
fn queued_to(bench: &Bench, spine: usize) -> [u64; 8] {
    let port = usize::from(uplink(bench, spine));
    let queues = &bench.switch(0).stats().ports[port].queues;
    std::array::from_fn(|class| queues[class].enqueued_packets.get())
}

/// The same for all spines.
fn queued(bench: &Bench, spines: usize) -> Vec<[u64; 8]> {
    (0..spines).map(|spine| queued_to(bench, spine)).collect()
}

fn bytes(bench: &Bench, streams: &[StreamId]) -> u64 {
    let bytes = streams.iter().map(|it| bench.received(*it).bytes);
    bytes.sum()
}

fn reordered(bench: &Bench, streams: &[StreamId]) -> u64 {
    let packets = streams
        .iter()
        .map(|it| bench.received(*it).reordered_in_flow);
    packets.sum()
}

/// How many times as much as another one is.
fn ratio(more: u64, less: u64) -> f64 {
    let float = |number: u64| f64::from(u32::try_from(number >> 8).expect("a small number"));
    float(more) / float(less)
}

/// What arrives of two elephants of a leaf that leave by source ports `port`, and of which nothing
/// may be reordered.
fn elephants(mode: &str, port: u16, bursts: Option<Bursts>) -> u64 {
    let mut bench = Bench::new(fabric((2, 2), 2, dlb(mode, 20, "")));
    let streams = [0, 1].map(|from| {
        let stream = Stream {
            from_ports: vec![port],
            bursts,
            ..Stream::to(2 + from)
        };
        bench.send(from, stream)
    });
    bench.run_until(micros(2000));
    let arrived = bytes(&bench, &streams);
    bench.finish();
    assert_eq!(reordered(&bench, &streams), 0, "{mode}");
    arrived
}

/// SW-4: two elephants that collide under static ECMP get nearly twice as much when their flowlets
/// are balanced, whether they pause in between or not.
#[test]
fn colliding_elephants_part() {
    let bursts = Bursts {
        packets: 6000,
        gap: Span::from_micros(25),
    };
    for bursts in [None, Some(bursts)] {
        let alone = elephants("flow", 0xc000, bursts);
        let collide = |port: &u16| elephants("off", *port, bursts) * 10 < alone * 6;
        let port = (0xc000..0xc020).find(collide).expect("every other port");
        let (fixed, balanced) = (
            elephants("off", port, bursts),
            elephants("flowlet", port, bursts),
        );
        let ratio = ratio(balanced, fixed);
        eprintln!("elephants, {bursts:?}: {ratio:.3}");
        assert!(ratio >= 1.9, "{ratio:.3} times as much, {bursts:?}");
    }
}

/// What arrives in five milliseconds of a lossless permutation of 64 testers, each of which sends
/// bursts from a source port, and nothing of which may be reordered.
///
/// Everything of `[ecmp.dlb]` but the idle time is as shipped. That is longer than the six samples
/// in which a port forgets the flow that has fallen silent, 96 us; with less, flows flee from what
/// they sent themselves. It is also longer than the skew of the paths: pauses add up to 33 us to
/// the gaps of a flow.
fn permutation(mode: &str, port: u16) -> u64 {
    let mut setup = fabric((8, 8), 8, dlb(mode, 100, ""));
    setup.lossless = true;
    setup.switch = SwitchSettings {
        poll: Span::from_nanos(250),
        qos: Some(lossless()),
        ..setup.switch
    };
    let mut bench = Bench::new(setup);
    let streams: Vec<StreamId> = (0..64)
        .map(|from| {
            // Each leaf sends to all others, and no tester hears two.
            let (leaf, place) = (from / 8, from % 8);
            let stream = Stream {
                dscp: 24,
                from_ports: vec![port],
                sizes: Sizes::Fixed(4096),
                bursts: Some(Bursts {
                    packets: 960,
                    gap: Span::from_micros(102),
                }),
                ..Stream::to(8 * ((leaf + 1 + place % 7) % 8) + place)
            };
            bench.send(from, stream)
        })
        .collect();
    bench.run_until(micros(5000));
    let arrived = bytes(&bench, &streams);
    bench.finish();
    assert_eq!(reordered(&bench, &streams), 0, "{mode}");
    let moved = count(&bench, 16, |it| it.moved.get());
    let inside = count(&bench, 16, |it| it.moved_inside.get());
    assert_eq!((moved > 0, inside), (mode != "off", 0));
    // Where flows have entries of their own, the hash has no part in where they go.
    assert_eq!(count(&bench, 16, |it| it.collisions.get()), 0);
    arrived
}

/// SW-4: a permutation of 64 testers, each sending bursts, gets at least 1.3 times as much as with
/// static ECMP, which is what the hash makes of four source ports on average, and nothing is
/// reordered inside a flow.
#[test]
fn a_permutation_gets_more() {
    let fixed: u64 = (0xc000..0xc004).map(|port| permutation("off", port)).sum();
    let ratio = ratio(4 * permutation("flowlet", 0xc000), fixed);
    eprintln!("permutation: {ratio:.3}");
    assert!(ratio >= 1.3, "{ratio:.3} times as much");
}

/// Sends bursts with gaps around the idle time between all leaves, over queues that hold 10.5 us
/// each; returns what was reordered, moved, and moved inside of flowlets.
fn skewed(mode: &str) -> [u64; 3] {
    let mut setup = fabric((4, 2), 4, dlb(mode, 40, ""));
    setup.switch.queue = 128 << 10;
    let mut bench = Bench::new(setup);
    let streams: Vec<StreamId> = (0_u16..16)
        .map(|from| {
            let (tester, gap) = (usize::from(from), u64::from(from % 5));
            let stream = Stream {
                from_ports: vec![0xc000 + from],
                bursts: Some(Bursts {
                    packets: 40 + 13 * gap,
                    gap: Span::from_micros(15 + 13 * gap),
                }),
                ..Stream::to((tester + 4 + tester % 4 * 4) % 16)
            };
            bench.send(tester, stream)
        })
        .collect();
    bench.run_until(micros(3000));
    bench.finish();
    let moved = count(&bench, 4, |it| it.moved.get());
    let inside = count(&bench, 4, |it| it.moved_inside.get());
    [reordered(&bench, &streams), moved, inside]
}

/// SW-4: nothing is reordered as long as the idle time exceeds the skew between paths, which is
/// that of two queues here, although flowlets move. Packets that are spread one by one are
/// reordered.
#[test]
fn flowlets_are_not_reordered() {
    let [reordered, moved, inside] = skewed("flowlet");
    assert_eq!((reordered, inside), (0, 0));
    assert!(moved > 50, "{moved} moved");
    let [reordered, ..] = skewed("packet");
    assert!(reordered > 100, "{reordered}");
}

/// By class: the spines that packets of it went to.
type Paths = [Vec<usize>; 8];

/// The paths that packets have taken since `before`.
fn paths(bench: &Bench, spines: usize, before: &[[u64; 8]]) -> Paths {
    let after = queued(bench, spines);
    std::array::from_fn(|class| {
        let grew = |spine: &usize| after[*spine][class] > before[*spine][class];
        (0..spines).filter(grew).collect()
    })
}

/// A flow of each class of a tester at the rate, the packets of which are so many nanoseconds
/// apart.
fn flows(bench: &mut Bench, to: usize, rate: Rate, roce: Option<Roce>) {
    for class in 0_u8..8 {
        let stream = Stream {
            dscp: 8 * class,
            from_ports: vec![0xc000 + 97 * u16::from(class)],
            rate: Some(rate),
            roce,
            ..Stream::to(to)
        };
        bench.send(0, stream);
    }
}

/// The spines that flows of a host which sprays go by while others disturb them.
fn sprayed(mode: &str, more: &str, roce: Option<Roce>) -> Paths {
    let mut bench = Bench::new(fabric((2, 4), 2, dlb(mode, 5, more)));
    flows(&mut bench, 2, Rate::from_gbps(1), roce);
    // Of class 0, which is not looked at.
    let bursts = Bursts {
        packets: 200,
        gap: Span::from_micros(20),
    };
    let disturbing = Stream {
        bursts: Some(bursts),
        ..Stream::to(3)
    };
    bench.send(1, disturbing);
    bench.run_until(micros(1000));
    let mut paths = paths(&bench, 4, &[[0; 8]; 4]);
    paths[0].clear();
    bench.finish();
    paths
}

/// SW-5, SW-6, MG-9: flows that their host sprays go where the hash says in every mode, whatever
/// they are recognised by; others do not.
#[test]
fn flows_that_hosts_spray_keep_their_paths() {
    let mpeh = Some(Roce {
        mpeh: Some(Mpeh::default()),
    });
    for (roce, more) in [
        (mpeh, ""),
        (mpeh, "multipath_hints = true"),
        (None, "host_sprayed_dscp = [8, 16, 24, 32, 40, 48, 56]"),
        (None, "host_sprayed_udp_port = 5001"),
    ] {
        let fixed = sprayed("off", more, roce);
        assert!(fixed[1..].iter().all(|spines| spines.len() == 1));
        for mode in ["flow", "flowlet", "packet"] {
            assert_eq!(sprayed(mode, more, roce), fixed, "{mode} {more}");
        }
    }
    let others = sprayed("packet", "", None);
    assert!(others[1..].iter().all(|spines| spines.len() == 4));
}

/// SW-3, SW-4: a member that goes down loses its flows, and no other flow notices, also when it
/// comes back.
#[test]
fn a_member_that_goes_down_loses_only_its_flows() {
    const DEAD: usize = 2;
    for mode in ["flow", "flowlet"] {
        let mut bench = Bench::new(fabric((2, 4), 1, dlb(mode, 20, "")));
        flows(&mut bench, 1, Rate::from_gbps(5), None);
        bench.run_until(micros(200));
        let first = paths(&bench, 4, &[[0; 8]; 4]);
        let bereft = first.iter().filter(|it| **it == [DEAD]).count();
        assert!(
            first.iter().all(|it| it.len() == 1) && bereft > 0,
            "{first:?}"
        );
        let port = usize::from(uplink(&bench, DEAD));
        let link = bench.fabric.plan.nodes[bench.switch_id(0).index()].ports[port];
        let mut expected = first.clone();
        for up in [false, true] {
            let before = queued(&bench, 4);
            bench.fabric.set_link(link, up);
            bench.run_for(Span::from_micros(200));
            let after = paths(&bench, 4, &before);
            for (class, (after, expected)) in after.iter().zip(&mut expected).enumerate() {
                assert_eq!(after.len(), 1, "{mode}, class {class}, {up}: {after:?}");
                if *expected == [DEAD] {
                    assert_ne!(*after, [DEAD], "{mode}, class {class}");
                    expected.clone_from(after);
                }
                assert_eq!(after, expected, "{mode}, class {class}, up: {up}");
            }
        }
        let inside = count(&bench, 2, |it| it.moved_inside.get());
        assert_eq!(inside, bereft as u64, "{mode}");
        bench.finish();
    }
}

/// SW-7: a spine that pauses the leaf gets no new flowlets as long as that lasts, though its queue
/// is short; afterwards new flows go there again.
#[test]
fn a_paused_spine_gets_no_flowlets() {
    let mut setup = fabric((2, 2), 1, dlb("flowlet", 20, "settle_microseconds = 0"));
    setup.lossless = true;
    setup.switch = SwitchSettings {
        poll: Span::from_nanos(250),
        qos: Some(lossless()),
        ..setup.switch
    };
    let mut bench = Bench::new(setup);
    let stream = |port: u16| Stream {
        dscp: 24,
        from_ports: vec![0xc000 + port],
        rate: Some(Rate::from_gbps(4)),
        bursts: Some(Bursts {
            packets: 4,
            gap: Span::from_micros(30),
        }),
        ..Stream::to(1)
    };
    for port in 0..8 {
        bench.send(0, stream(port));
    }
    let of_spines = |bench: &Bench| [0, 1].map(|spine| queued_to(bench, spine)[3]);
    bench.run_until(micros(300));
    let before = of_spines(&bench);
    assert!(before.iter().all(|packets| *packets > 100), "{before:?}");
    let (leaf, port) = (bench.switch_id(0), uplink(&bench, 0));
    let at = bench.fabric.plan.nodes[leaf.index()].ports[usize::from(port)];
    let end = bench.fabric.plan.links[at].across(leaf);
    // 336 us.
    let pause = pfc(1 << 3, u16::MAX).emit(Mac(mac(end.node, end.port)));
    bench.fabric.offer(leaf, port, &pause);
    // A sample, and flowlets that had begun before.
    bench.run_until(micros(340));
    let paused = of_spines(&bench);
    bench.run_until(micros(630));
    assert_eq!(bench.switch(0).quality().band(PortId(port)), WORST);
    let still = of_spines(&bench);
    assert_eq!(still[0], paused[0], "flowlets went to a paused port");
    assert!(still[1] > paused[1] + 150, "{paused:?} {still:?}");
    bench.run_until(micros(800));
    for port in 8..12 {
        bench.send(0, stream(port));
    }
    bench.run_until(micros(1500));
    let after = of_spines(&bench);
    assert!(after[0] > still[0] + 100, "{still:?} {after:?}");
    bench.finish();
}

/// SW-4: flows, flowlets and packets are spread by the weights of the members.
#[test]
fn weights_are_kept() {
    for mode in ["flow", "flowlet", "packet"] {
        let mut bench = Bench::new(fabric((2, 2), 1, dlb(mode, 20, "")));
        let [one, other] = [2, 3].map(|switch| bench.switch_id(switch));
        // The same way twice has both weights.
        bench.route(0, bench.address(1).into(), &[one, one, other]);
        for flow in 0..60 {
            let stream = Stream {
                from_ports: vec![0xc000 + flow],
                start: micros(u64::from(flow) * 5),
                packets: 100,
                rate: Some(Rate::from_mbps(400)),
                ..Stream::to(1)
            };
            bench.send(0, stream);
        }
        bench.run_until(micros(4000));
        bench.finish();
        let sent = [0, 1].map(|spine| queued_to(&bench, spine).iter().sum::<u64>());
        assert_eq!(sent.iter().sum::<u64>(), 6000);
        assert!(sent[0].abs_diff(4000) <= 300, "{mode}: {sent:?}");
    }
}

/// A leaf with testers at 1 Gb/s and an uplink of each of these speeds, in Mb/s.
fn uplinks(speeds: [u64; 2], testers: usize, dlb: Dlb) -> Setup {
    let mut setup = Setup::leaf_spine((2, 2), testers, at(1));
    setup.switch.dlb = Some(Arc::new(dlb));
    let plan = &mut setup.plan;
    for (spine, speed) in speeds.iter().enumerate() {
        let spine = plan.hosts + 2 + spine;
        for link in plan.nodes[spine].ports.clone() {
            plan.links[link].speed = Rate::from_mbps(*speed);
        }
    }
    setup
}

/// The share of new flows that take the idle one of two uplinks of so many Mb/s, with the sampling
/// interval as shipped, while a flow uses the other at `percent` of its speed in frames of `size`.
fn of_new_flows(mbps: u64, percent: u64, size: u16) -> f64 {
    const PROBES: u16 = 1000;
    // Longer than between two frames of the other flow, which so keeps its uplink.
    let dlb = dlb("flowlet", 100_000, "ageing_milliseconds = 4000");
    let mut bench = Bench::new(uplinks([mbps; 2], 1, dlb));
    let background = Stream {
        dscp: 24,
        sizes: Sizes::Fixed(size),
        rate: Some(Rate::from_bps(mbps * percent * 10_000)),
        ..Stream::to(1)
    };
    bench.send(0, background);
    let millis = |n: u64| micros(n * 1000 * 100 / mbps);
    // The bands have settled.
    let probes = Stream {
        dscp: 8,
        from_ports: (0..PROBES).map(|probe| 0xd000 + probe).collect(),
        sizes: Sizes::Fixed(64),
        // A frame of 64 bytes each millisecond at 100 Mb/s, drifting past the frames of the other.
        rate: Some(Rate::from_bps(mbps * 6_830)),
        start: millis(20),
        packets: u64::from(PROBES),
        ..Stream::to(1)
    };
    bench.send(0, probes);
    bench.run_until(millis(1100));
    let [used, idle] = {
        let mut queued = [0, 1].map(|spine| queued_to(&bench, spine));
        queued.sort_by_key(|classes| std::cmp::Reverse(classes[3]));
        queued
    };
    bench.finish();
    assert!(used[3] > 100 && idle[3] == 0, "{used:?} {idle:?}");
    assert_eq!(used[1] + idle[1], u64::from(PROBES));
    f64::from(u32::try_from(idle[1]).expect("few")) / f64::from(PROBES)
}

/// SW-4, SW-7: at least 95 of 100 new flowlets choose the idle one of two uplinks, also where a
/// frame takes longer than the configured sampling interval: the interval follows from the speed.
#[test]
fn new_flowlets_choose_the_idle_uplink_of_any_speed() {
    for mbps in [10, 100, 1000] {
        for percent in [50, 75, 95] {
            for size in [1000, 1500] {
                let share = of_new_flows(mbps, percent, size);
                eprintln!("{mbps} Mb/s, {percent} %, {size} bytes: {share:.3}");
                assert!(
                    share >= 0.95,
                    "{mbps} Mb/s, {percent} %, {size} bytes: {share}"
                );
            }
        }
    }
}

/// What leaves by uplinks of two speeds, when so much is sent as `percent` of both carry, in many
/// flows of bursts; and what is lost.
fn over_unequal(mode: &str, speeds: [u64; 2], percent: u64) -> ([u64; 2], u64) {
    let mut bench = Bench::new(uplinks(speeds, 4, dlb(mode, 256, "")));
    let total: u64 = speeds.iter().sum();
    for from in 0..4 {
        let stream = Stream {
            from_ports: (0..16).map(|flow| 0xc000 + 61 * flow).collect(),
            rate: Some(Rate::from_bps(total * percent * 10_000 / 4)),
            ..Stream::to(4 + from)
        };
        bench.send(from, stream);
    }
    bench.run_until(micros(1_000_000));
    bench.finish();
    let sent = [0, 1].map(|spine| queued_to(&bench, spine).iter().sum::<u64>());
    let lost = (0..4).map(|it| bench.switch(it).dropped(DropReason::QueueFull));
    (sent, lost.sum())
}

/// SW-4, SW-7: uplinks of unequal speeds that are nearly full carry packets as their speeds are,
/// within a fifth (bands of quality are coarse), and nothing is lost at one while the other has
/// room.
#[test]
fn unequal_uplinks_get_shares_as_their_speeds() {
    for mode in ["packet", "flowlet"] {
        for speeds in [[200, 100], [400, 100], [2000, 1000]] {
            let (sent, lost) = over_unequal(mode, speeds, 90);
            let speeds_are = ratio(speeds[0] << 8, speeds[1] << 8);
            let share = ratio(sent[0] << 8, sent[1] << 8) / speeds_are;
            eprintln!("{mode} {speeds:?}: {share:.2} of what the speeds say, lost {lost}");
            assert!(
                (0.8..=1.2).contains(&share),
                "{mode} {speeds:?}: {share:.2}"
            );
            assert_eq!(lost, 0, "{mode} {speeds:?}");
        }
    }
}
