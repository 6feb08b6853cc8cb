//! iQCN in the twin (SW-25): DCQCN senders that raise their rate more often than the receiver
//! notifies, with and without a switch that makes the notifications that are missing.

use common::time::Span;
use twin::network::NodeId;
use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;

/// Senders, all to one receiver.
const SENDERS: u32 = 8;

/// Megabytes of each: some 20 ms.
const SIZE: u32 = 10;

/// When the queue is looked at: the first notifications have come and gone.
const FROM: Span = Span::from_millis(2);

/// The senders are notified each 50 µs at most, and raise their rate 55 µs after a notification;
/// the receiver notifies each 200 µs.
fn star(senders: u32, megabytes: u32, iqcn: bool, ip: u32) -> Scenario {
    let mut scenario = parsed(&text(senders, megabytes, iqcn, ip));
    scenario.slow_notifiers = vec![(NodeId(senders), Span::from_micros(200))];
    scenario
}

fn parsed(text: &str) -> Scenario {
    let scenario = Scenario::parse(text, "iqcn", &|file| Err(format!("no {file}")));
    scenario.unwrap_or_else(|refusal| panic!("line {}: {}", refusal.line, refusal.reason))
}

fn text(senders: u32, megabytes: u32, iqcn: bool, ip: u32) -> String {
    format!(
        r#"
poll = "500ns"
sample = "5us"
[topology]
kind = "star"
hosts = {hosts}
speed = "40Gbps"
delay = "1us"
ip = {ip}
[qos]
queue_depth_bytes = 16000000
[qos.buffer]
size_bytes = 67108864
[[qos.queue]]
queues = [3]
limit_bytes = 16000000
[qos.queue.wred]
min_bytes = 5000
max_bytes = 200000
probability_percent = 1.0
[iqcn]
enabled = {iqcn}
max_flows = 100
increase_microseconds = 50
[host]
congestion = "dcqcn"
multipath = false
cnp_interval = "50us"
window = 512
[[workload]]
kind = "incast"
target = "h{hosts}"
size = "{megabytes}MB"
"#,
        hosts = senders + 1,
    )
}

fn outcome(scenario: &Scenario, seed: u64) -> Outcome {
    run(scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Bytes in the queue before the receiver that 99 of 100 looks do not exceed, while all send.
fn p99(outcome: &Outcome) -> u32 {
    let to = format!("h{}", SENDERS + 1);
    let mut links = outcome.links.iter();
    let wire = links.position(|link| link.from == "s1" && link.to == to);
    let wire = wire.expect("the switch has a link to the receiver");
    let until = outcome
        .flows
        .iter()
        .filter_map(|flow| Some(flow.start_ns? + flow.fct_ns?));
    let until = Span::from_nanos(until.min().expect("flows end"));
    let samples = &outcome.samples;
    let looks = samples.times.iter().zip(&samples.wires[wire].depth);
    let mut depths: Vec<u32> = looks
        .filter(|(time, _)| **time >= FROM && **time <= until)
        .map(|(_, depth)| *depth)
        .collect();
    depths.sort_unstable();
    assert!(depths.len() > 1_000, "{} looks", depths.len());
    depths[depths.len() * 99 / 100]
}

/// SW-25: the queue before the receiver is at most half as deep, and nothing is lost. The flows
/// take less than a third longer: the queue that never ended kept the line busy, and short flows
/// like these have to come back from their first cuts.
#[test]
fn missing_notifications_halve_the_queue() {
    for (seed, ip) in [(1, 4), (2, 6)] {
        let without = outcome(&star(SENDERS, SIZE, false, ip), seed);
        let with = outcome(&star(SENDERS, SIZE, true, ip), seed);
        let [before, after] = [&without, &with].map(p99);
        let made = with.totals.notifications_made;
        println!(
            "seed {seed}, IPv{ip}: p99 {before} bytes without, {after} with {made} CNPs; {} and {} µs",
            without.duration_ns / 1_000,
            with.duration_ns / 1_000
        );
        assert!(
            2 * after <= before,
            "seed {seed}: {after} bytes, {before} without"
        );
        assert_eq!(without.totals.notifications_made, 0);
        assert!(made > 0);
        assert!(
            with.totals.switch_drops.is_empty(),
            "{:?}",
            with.totals.switch_drops
        );
        assert!(
            with.duration_ns < without.duration_ns * 4 / 3,
            "seed {seed}: {} ns, {} without",
            with.duration_ns,
            without.duration_ns
        );
    }
}

/// SW-25: none is made while the port is not congested, though packets are marked and the receiver
/// notifies: the queue never holds the share of its depth from which on it counts as congested.
#[test]
fn none_is_made_without_congestion() {
    for seed in 1..=3 {
        let text = text(4, 10, true, 4).replace("max_bytes = 200000", "max_bytes = 2000000");
        let text = text.replace("probability_percent = 1.0", "probability_percent = 100.0");
        let calm = outcome(&parsed(&text), seed);
        let totals = &calm.totals;
        println!("seed {seed}: {} marks", totals.marks);
        assert!(totals.marks > 20, "seed {seed}: {}", totals.marks);
        assert_eq!(totals.notifications_made, 0, "seed {seed}");
    }
}
