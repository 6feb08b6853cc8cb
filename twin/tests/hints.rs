//! Hosts that leave the way of their connections to switches, in the twin: what is gained, and what
//! hostile hints can do. Each statement holds for the seeds 1 to 3.

use common::units::Rate;
use common::wire::roce::{DataFlags, Hint, Mpeh};
use std::sync::Arc;
use twin::bench::{Bench, Setup, at, micros};
use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;
use twin::tester::{Roce, Stream};

const SEEDS: [u64; 3] = [1, 2, 3];

fn done(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, "test", &|file| Err(format!("{file}: no files here")));
    let scenario = scenario.unwrap_or_else(|refusal| panic!("{}\n{text}", refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Two leaves with so many hosts each, whose connections take one sub-path at a time, over as many
/// spines, all of 100 Gb/s.
fn leaves(hosts: usize, hints: bool, more: &str) -> String {
    format!(
        r#"
duration = "200ms"
[topology]
kind = "leaf-spine"
leaves = 2
spines = {hosts}
hosts_per_leaf = {hosts}
speed = "100Gbps"
[ecmp.dlb]
mode = "flowlet"
multipath_hints = {hints}
[host]
granularity = "flow"
rto_min = "100us"
rto_initial = "200us"
message = "64KiB"
describes = true
[[workload]]
kind = "permutation"
size = "8MB"
{more}
"#
    )
}

/// The longest completion time in nanoseconds.
fn tail(outcome: &Outcome) -> u64 {
    let classes = outcome.classes.iter();
    classes
        .map(|class| class.fct_max_ns)
        .max()
        .expect("a class")
}

/// HT-46, SW-6: eight flows from each leaf over eight spines. By the hash several meet on a spine;
/// switches that may choose deal them out, and nothing is reordered within a sub-path.
#[test]
fn switches_deal_flows_out_that_hosts_leave_to_them() {
    let mut gains = Vec::new();
    for seed in SEEDS {
        let [by_hash, by_switch] = [false, true].map(|hints| done(&leaves(8, hints, ""), seed));
        let gain = tail(&by_hash) as f64 / tail(&by_switch) as f64;
        let tails = [&by_hash, &by_switch].map(|it| tail(it) / 1_000);
        eprintln!("seed {seed}: {tails:?} us, {gain:.2} times as fast");
        // 8 MB take 655 us on a link of 100 Gb/s, headers included, and nobody waits longer.
        assert!(tail(&by_switch) <= 690_000, "seed {seed}: {tails:?} us");
        gains.push(gain);
        assert_eq!(by_switch.totals.out_of_order, 0, "seed {seed}");
        assert_eq!(by_switch.totals.retransmits, 0, "seed {seed}");
    }
    // How many meet by the hash is chance.
    assert!(gains.iter().all(|gain| *gain >= 1.1), "{gains:.2?}");
    assert!(
        gains.iter().sum::<f64>() >= 1.3 * gains.len() as f64,
        "{gains:.2?}"
    );
}

/// SW-6, HT-24: a link behind a spine dies, which the leaf does not see. A host that loses packets
/// leaves its sub-path and says so, and the switch moves its connection to another spine.
#[test]
fn a_flow_moves_when_its_host_leaves_the_sub_path() {
    let fault = "[[fault]]\nkind = \"link-down\"\nlink = \"leaf2-spine1\"\nfrom = \"200us\"\n";
    for seed in SEEDS {
        let outcome = done(&leaves(4, true, fault), seed);
        assert!(outcome.totals.retransmits > 0, "the link was not used");
        assert!(outcome.classes.iter().all(|class| class.aborted == 0));
        let completed: usize = outcome.classes.iter().map(|class| class.completed).sum();
        assert_eq!(completed, 8, "seed {seed}");
    }
}

/// SW-5, SW-6: a stranger that sends every tag and every flag, to hosts of its choice and at the
/// speed of its line, has its packets in the class of their DSCP, takes entries of the table and
/// none beyond it, and takes nothing from a connection beside it.
#[test]
fn hostile_hints_gain_nothing() {
    let mut shares = Vec::new();
    for hostile in [false, true] {
        let mut setup = Setup::leaf_spine((2, 4), 4, at(100));
        let dlb = "mode = \"flowlet\"\nflows = 64\nmultipath_hints = true\n";
        setup.switch.dlb = Some(Arc::new(toml::from_str(dlb).expect("a configuration")));
        let mut bench = Bench::new(setup);
        let rate = Some(Rate::from_gbps(10));
        let honest = |tag: u16| {
            let mpeh = Mpeh {
                tag,
                ..Mpeh::default()
            };
            Some(Roce { mpeh: Some(mpeh) })
        };
        let hint = Hint {
            movable: true,
            ..Hint::default()
        };
        let victim = bench.send(
            1,
            Stream {
                dscp: 24,
                rate,
                roce: honest(hint.tag(0)),
                ..Stream::to(5)
            },
        );
        for number in 0..64_u16 {
            // All bits of tag and flags come, together and apart.
            let tag = if hostile {
                number << 10 | (number & 1) << 6 | number
            } else {
                0
            };
            let flags = if hostile {
                number.to_le_bytes()[0] & DataFlags::ALL
            } else {
                0
            };
            let mpeh = Mpeh {
                flags,
                tag,
                ..Mpeh::default()
            };
            let stream = Stream {
                dscp: 8,
                from_ports: vec![0xc000 + 31 * number],
                rate: Some(Rate::from_mbps(1400)),
                roce: Some(Roce { mpeh: Some(mpeh) }),
                ..Stream::to(4 + usize::from(number % 4))
            };
            bench.send(0, stream);
        }
        bench.run_until(micros(500));
        let received = bench.received(victim);
        assert_eq!(received.reordered_in_flow, 0, "hostile: {hostile}");
        shares.push(received.bytes);
        let stats = bench.switch(0).stats();
        for (class, others) in (0..8).map(|class| (class, class != 1 && class != 3)) {
            let queues = stats.ports.iter().map(|port| &port.queues[class]);
            let packets: u64 = queues.map(|queue| queue.enqueued_packets.get()).sum();
            assert_eq!(packets == 0, others, "class {class}: {packets}");
        }
        let stats = &stats.flowlets;
        assert!(stats.births.get() > 0);
        assert_eq!(stats.moved_by_sender.get() > 0, hostile);
        bench.finish();
    }
    assert!(shares[1] * 100 >= shares[0] * 99, "{shares:?}");
}
