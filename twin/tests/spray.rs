//! Many paths in the twin: what is gained by them, and what it costs when one of them is bad. The
//! paths are those of a leaf-spine; each statement holds for the seeds 1 to 3.

use common::units::Rate;
use std::fmt::Write;
use twin::outcome::{FlowFigures, Outcome};
use twin::scenario::Scenario;
use twin::simulation::run;

const SEEDS: [u64; 3] = [1, 2, 3];

/// Bytes of a full packet on a wire: preamble, gap and FCS, Ethernet, IPv4, UDP, BTH, RETH, MPEH
/// and what was negotiated besides, ICRC; and of its payload.
const WIRE: u64 = 4096 + 24 + 14 + 20 + 8 + 12 + 16 + 8 + 16 + 4;
const PAYLOAD: u64 = 4096;

fn done(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, "test", &|file| Err(format!("{file}: no files here")));
    let scenario = scenario.unwrap_or_else(|refusal| panic!("{}\n{text}", refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Two leaves, with so many hosts each, of 100 Gb/s; time-outs are short.
fn leaves(hosts: usize, spines: usize, more: &str) -> String {
    format!(
        r#"
[topology]
kind = "leaf-spine"
leaves = 2
spines = {spines}
hosts_per_leaf = {hosts}
speed = "100Gbps"
{more}
[host]
rto_min = "100us"
rto_initial = "200us"
message = "64KiB"
"#
    )
}

/// Each host sends so much to one other, perhaps with a fault.
fn permutation(size: &str, fault: &str) -> String {
    format!("[[workload]]\nkind = \"permutation\"\nsize = \"{size}\"\n{fault}")
}

/// The goodput of the slowest flow.
fn slowest(outcome: &Outcome) -> Rate {
    let goodput = |flow: &FlowFigures| flow.goodput_bps.expect("it is done");
    let all = outcome.flows.iter().map(goodput);
    Rate::from_bps(all.min().expect("a flow"))
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// HT-31, HT-34, HT-60: one connection has the rates of all its idle paths together, 1 to 16 of
/// them, with a tolerance of more packets than are in flight: paths are slow here, and packets
/// on the way by one of them are overtaken by many.
#[test]
fn idle_paths_add_up() {
    for (paths, seed) in [1, 2, 4, 8, 16]
        .iter()
        .flat_map(|paths| SEEDS.map(|seed| (*paths, seed)))
    {
        let speed = Rate::from_mbps(80_000 / paths);
        let spines = usize::try_from(paths).expect("few");
        let speeds = format!("fabric_speed = \"{}Mbps\"", 80_000 / paths);
        let mut text = leaves(1, spines, &speeds);
        text += "reorder_packets = 256\nreorder_time = \"1ms\"\n";
        text += &permutation("32MB", "");
        let outcome = done(&text, seed);
        let payload = paths * speed.bps() * PAYLOAD / WIRE;
        let part = ratio(slowest(&outcome).bps(), payload);
        assert!(part >= 0.97, "{paths} paths, seed {seed}: {part:.3}");
        let sent_again = outcome.totals.retransmits;
        assert_eq!(sent_again, 0, "{paths} paths, seed {seed}");
    }
}

/// HT-24, HT-36, HT-43, HT-63: a link between leaf and spine dies. Whoever chooses paths by
/// what comes back loses no byte (the twin's checks), and no flow stands for longer than three
/// round trips under load and a time-out.
#[test]
fn a_dead_link_is_gone_round() {
    let fault = "[[fault]]\nkind = \"link-down\"\nlink = \"leaf2-spine1\"\nfrom = \"200us\"\n";
    // What is in flight passes the receiver's link in one round trip.
    let round_trip = 224 * WIRE * 8 / 100;
    let limit = (3 * round_trip + 100_000) / 1_000;
    for spraying in ["bitmap", "recycling", "combined"] {
        for seed in SEEDS {
            let mut text = leaves(4, 4, "");
            let _ = writeln!(text, "spraying = \"{spraying}\"");
            text += &permutation("8MB", fault);
            let outcome = done(&text, seed);
            assert!(outcome.totals.retransmits > 0, "the link was not used");
            let waited = outcome.totals.reorder_time_us;
            assert!(waited <= limit, "{spraying}, seed {seed}: {waited} us");
            assert!(outcome.classes.iter().all(|class| class.aborted == 0));
        }
    }
}

/// HT-40, HT-43: of a hundred packets one is lost on the way, answers too: nine tenths of the
/// goodput are left, whatever chooses the paths.
#[test]
fn a_lost_percent_costs_less_than_a_tenth() {
    let fault = "[[fault]]\nkind = \"impairment\"\nlink = \"*\"\nloss = 0.0025\n";
    for spraying in ["oblivious", "bitmap", "recycling", "combined"] {
        for seed in SEEDS {
            let mut text = leaves(4, 4, "");
            let _ = writeln!(text, "spraying = \"{spraying}\"");
            let [whole, lossy] = ["", fault].map(|fault| {
                let outcome = done(&(text.clone() + &permutation("32MB", fault)), seed);
                outcome.classes[0].goodput_mean_bps
            });
            let part = ratio(lossy, whole);
            assert!(part >= 0.9, "{spraying}, seed {seed}: {part:.3}");
            assert!(part < 1.0, "nothing was lost");
        }
    }
}

/// HT-31, HT-34, HT-61: short messages beside long ones end sooner by many paths than by one
/// that a hash chose (P99 and P99.9 by a factor of 1.5 at least; 1.9 to 3.5 were seen), and
/// alone not later.
#[test]
fn short_messages_do_not_wait_for_long_ones() {
    let short = "[[workload]]\nkind = \"poisson\"\nload = 0.1\ncount = 4000\nsize = \"16kB\"\n";
    let long = "[[workload]]\nkind = \"poisson\"\nload = 0.5\ncount = 400\nsize = \"1MB\"\n";
    let fabric = leaves(4, 4, "").replace("leaves = 2", "leaves = 4");
    for seed in SEEDS {
        let tails = |multipath: bool, more: &str| {
            let text = format!("{fabric}multipath = {multipath}\n{short}{more}");
            let class = done(&text, seed).classes.swap_remove(0);
            [class.fct_p99_ns, class.fct_p999_ns]
        };
        for (one, many) in tails(false, long).into_iter().zip(tails(true, long)) {
            assert!(2 * one >= 3 * many, "seed {seed}: {one} and {many} ns");
        }
        for (one, many) in tails(false, "").into_iter().zip(tails(true, "")) {
            assert!(many <= one, "alone, seed {seed}: {one} and {many} ns");
        }
    }
}
