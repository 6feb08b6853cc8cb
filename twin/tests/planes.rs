//! Hosts with a port for each of several planes (HT-37). Each statement holds for the seeds 1 to 3.

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

/// Two hosts on leaves of their own in each of several planes, of so many Gb/s.
fn planes(planes: u64, gbps: u64) -> String {
    format!(
        r#"
[topology]
kind = "multi-plane"
planes = {planes}
leaves = 2
spines = 2
hosts_per_leaf = 1
speed = "{gbps}Gbps"

[host]
rto_min = "100us"
rto_initial = "200us"
message = "64KiB"
reorder_packets = 256
reorder_time = "1ms"
"#
    )
}

/// The same; each host sprays 32 MB to the other, while these links are down for 400 us.
fn sprayed(count: u64, gbps: u64, spraying: &str, down: &[&str]) -> String {
    let mut text = planes(count, gbps);
    let _ = write!(
        text,
        "spraying = \"{spraying}\"\n\
         [[workload]]\nkind = \"permutation\"\nsize = \"32MB\"\n"
    );
    for link in down {
        let _ = write!(
            text,
            "[[fault]]\nkind = \"link-down\"\nlink = \"{link}\"\nfrom = \"200us\"\n\
             until = \"600us\"\n"
        );
    }
    text
}

/// The part of `whole` that the slowest flow has.
fn part(outcome: &Outcome, whole: Rate) -> f64 {
    let goodput = |flow: &FlowFigures| flow.goodput_bps.expect("it is done");
    let slowest = outcome.flows.iter().map(goodput).min().expect("a flow");
    slowest as f64 / (whole.bps() * PAYLOAD / WIRE) as f64
}

/// HT-37, HT-60: one connection has the rates of two and of four planes together, whatever sprays
/// its packets.
#[test]
fn planes_add_up() {
    for count in [2, 4] {
        for spraying in ["oblivious", "bitmap", "recycling", "combined"] {
            for seed in SEEDS {
                let outcome = done(&sprayed(count, 80 / count, spraying, &[]), seed);
                let part = part(&outcome, Rate::from_gbps(80));
                assert!(
                    part >= 0.97,
                    "{count} planes, {spraying}, seed {seed}: {part:.3}"
                );
                let totals = &outcome.totals;
                assert_eq!(
                    totals.retransmits, totals.stragglers,
                    "{count}, seed {seed}"
                );
                assert!(totals.stragglers * 1_000 <= totals.data_packets, "{count}");
            }
        }
    }
}

/// HT-37, HT-24, HT-63: a plane dies, within it or at a host, and returns: no byte is lost (the
/// twin's checks), no packet waits longer than three round trips under load and a time-out, and the
/// plane is used again.
#[test]
fn a_plane_fails_and_returns() {
    // What is in flight passes the receiver's links in one round trip.
    let round_trip = 224 * WIRE * 8 / 100;
    let limit = (3 * round_trip + 100_000) / 1_000;
    for links in [
        &["p1leaf1-p1spine1", "p1leaf1-p1spine2"][..],
        &["h1-p1leaf1"],
        &["h2-p1leaf2"],
    ] {
        for spraying in ["oblivious", "bitmap", "recycling", "combined"] {
            for seed in SEEDS {
                let outcome = done(&sprayed(2, 100, spraying, links), seed);
                assert!(outcome.totals.retransmits > 0, "the plane was not used");
                let waited = outcome.totals.reorder_time_us;
                let what = format!("{links:?}, {spraying}, seed {seed}");
                assert!(waited <= limit, "{what}: {waited} us of {limit}");
                assert!(outcome.classes.iter().all(|class| class.aborted == 0));
                // One plane alone would leave half.
                let part = part(&outcome, Rate::from_gbps(200));
                assert!(part > 0.6, "{what}: {part:.3}");
            }
        }
    }
}

/// HT-37, HT-45: a host's card storms pauses into one of two planes, which are lossless, so that
/// its switches pause the other host in turn: the other plane carries as much as ever, and no more
/// is sent again than what is stuck in the paused one.
#[test]
fn a_paused_plane_stops_no_other() {
    let lossless = r#"
[qos.buffer]
size_bytes = 67108864

[qos.headroom]
cable_metres = 200
poll_gap_microseconds = 1

[qos.flow_control]
mode = "pfc"

[[qos.group]]
groups = [3]
xoff_bytes = 100000
xon_bytes = 50000
headroom = "auto"

[[qos.queue]]
queues = [3]
lossless = true

[[workload]]
kind = "permutation"
size = "32MB"

[[fault]]
kind = "pfc-storm"
node = "h2"
interval = "20us"
until = "20ms"
"#;
    for seed in SEEDS {
        let outcome = done(&(planes(2, 100) + lossless), seed);
        let part = part(&outcome, Rate::from_gbps(100));
        assert!(part >= 0.97, "seed {seed}: {part:.3}");
        let again = outcome.totals.retransmits;
        assert!(again < 224, "seed {seed}: {again}");
    }
}
