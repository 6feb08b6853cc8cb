//! HPCC by the telemetry of the switches that ship, against the figures of its paper (SIGCOMM
//! 2019), with links of 100 Gb/s. Each statement holds for the seeds 1 to 3.

use common::time::Span;
use std::ops::Range;
use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;

const SEEDS: [u64; 3] = [1, 2, 3];

/// Bytes of a frame with a tag and 4 KiB of payload.
const PACKET: f64 = 4_230.0;

/// Seventeen hosts at a switch, 14 µs from one to another and back. The class of data loses
/// nothing: who has 500 kB in the switch is paused.
const STAR: &str = r#"
poll = "250ns"
sample = "2us"
lossless = true
[topology]
kind = "star"
hosts = 17
delay = "3us"
[int]
enabled = true
[qos]
queue_depth_bytes = 16000000
[qos.buffer]
size_bytes = 67108864
[qos.headroom]
cable_metres = 600
poll_gap_microseconds = 1
[qos.flow_control]
mode = "pfc"
[[qos.group]]
groups = [3]
xoff_bytes = 500000
xon_bytes = 400000
headroom = "auto"
[[qos.queue]]
queues = [3]
lossless = true
[host]
ack_packets = 4
base_rtt = "14us"
congestion = "hpcc"
int = {}
"#;

fn outcome(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, "telemetry", &|file| Err(format!("no {file}")));
    let scenario =
        scenario.unwrap_or_else(|refusal| panic!("line {}: {}", refusal.line, refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Mean depth of the queue to a host in packets, and the part of this time that its link was busy.
#[expect(clippy::cast_precision_loss, reason = "a part")]
fn link(outcome: &Outcome, from: &str, to: &str, during: &Range<Span>) -> (f64, f64) {
    let mut links = outcome.links.iter();
    let place = links.position(|link| link.from == from && link.to == to);
    let wire = &outcome.samples.wires[place.expect("a link")];
    let times = &outcome.samples.times;
    let at = |time: Span| times.partition_point(|sample| *sample < time);
    let samples = at(during.start)..at(during.end);
    assert!(samples.len() > 100, "{} samples", samples.len());
    let depth = wire.depth[samples.clone()].iter();
    let mean = depth.map(|bytes| f64::from(*bytes)).sum::<f64>() / samples.len() as f64;
    let (first, last) = (samples.start, samples.end - 1);
    let span = times[last].nanos() - times[first].nanos();
    let busy = (wire.busy[last] - wire.busy[first]) as f64 / 1_000.0 / span as f64;
    (mean / PACKET, busy)
}

fn span(from: u64, to: u64) -> Range<Span> {
    Span::from_micros(from)..Span::from_micros(to)
}

/// SW-52, CC-3: sixteen flows to one host keep hardly any queue (ten packets at most in the mean),
/// use 0.93 of the link at least, lose nothing and have nobody paused; each packet carried
/// telemetry.
#[test]
fn an_incast_of_sixteen_keeps_hardly_a_queue() {
    for seed in SEEDS {
        let text =
            format!("{STAR}[[workload]]\nkind = \"incast\"\ntarget = \"h17\"\nsize = \"6MB\"\n");
        let outcome = outcome(&text, seed);
        let (queue, used) = link(&outcome, "s1", "h17", &span(1_000, 6_000));
        println!("seed {seed}: {queue:.2} packets, {used:.3} of the link");
        assert!(queue <= 10.0 && used >= 0.93, "{queue} {used}");
        let totals = &outcome.totals;
        assert_eq!((totals.retransmits, totals.unsigned), (0, 0));
        assert_eq!(totals.pauses, 0);
        assert_eq!(totals.tags, totals.data_packets);
    }
}

/// CC-3: a flow that joins another has its half within some hundred round trips, and the queue
/// stays as short; nobody is paused.
#[test]
fn two_flows_converge() {
    let flow = |from: &str, start: u64| {
        format!(
            "[[workload]]\nkind = \"incast\"\nhosts = [\"{from}\", \"h17\"]\ntarget = \"h17\"\n\
             start = \"{start}us\"\nsize = \"60MB\"\n"
        )
    };
    for seed in SEEDS {
        let text = format!("{STAR}{}{}", flow("h1", 0), flow("h2", 1_000));
        let outcome = outcome(&text, seed);
        let during = span(3_000, 6_000);
        let (queue, used) = link(&outcome, "s1", "h17", &during);
        let parts = ["h1", "h2"].map(|host| link(&outcome, host, "s1", &during).1);
        println!("seed {seed}: {queue:.2} packets, {used:.3} of the link, {parts:.3?}");
        assert!(queue <= 10.0 && used >= 0.93, "{queue} {used}");
        assert_eq!(outcome.totals.pauses, 0);
        let [one, other] = parts;
        assert!((one - other).abs() / used < 0.15, "{parts:?}");
    }
}
