//! Congestion control by congestion signals in the twin, with the figures of
//! draft-ravi-ippm-csig-01.

use common::time::Span;
use std::ops::Range;
use twin::outcome::Outcome;
use twin::scenario::Scenario;
use twin::simulation::run;

/// With one packet of 4 KiB in this time a flow has 400 Mb/s.
const ROUND_TRIP: Span = Span::from_micros(82);

/// Two hosts on a line of 200 Gb/s, 80 µs apart there and back. Round trips of the idle network are
/// 82 µs with what acknowledgements wait.
const PAIR: &str = r#"
sample = "2us"
[topology]
kind = "star"
hosts = 2
speed = "200Gbps"
delay = "20us"
[qos]
queue_depth_bytes = 8000000
[qos.buffer]
size_bytes = 67108864
[csig]
enabled = true
window_microseconds = 50
[host]
paths = 1
ack_packets = 4
base_rtt = "82us"
"#;

fn outcome(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, "signals", &|file| Err(format!("no {file}")));
    let scenario =
        scenario.unwrap_or_else(|refusal| panic!("line {}: {}", refusal.line, refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Picoseconds that the first host's line was busy, and when.
fn line(outcome: &Outcome) -> (&[Span], &[u64]) {
    let mut links = outcome.links.iter();
    let place = links.position(|link| link.from == "h1" && link.to == "s1");
    let place = place.expect("a line");
    (&outcome.samples.times, &outcome.samples.wires[place].busy)
}

/// Part of this time that the first host's line was busy.
#[expect(clippy::cast_precision_loss, reason = "a part")]
fn busy(outcome: &Outcome, during: &Range<Span>) -> f64 {
    let (times, busy) = line(outcome);
    let place = |at: Span| {
        let place = times.partition_point(|time| *time < at);
        place.min(times.len() - 1)
    };
    let (first, last) = (place(during.start), place(during.end));
    let span = times[last].nanos().saturating_sub(times[first].nanos());
    (busy[last] - busy[first]) as f64 / 1_000.0 / span.max(1) as f64
}

/// When the line is first busy after a time.
fn first_after(outcome: &Outcome, after: Span) -> Span {
    let (times, busy) = line(outcome);
    let from = times.partition_point(|time| *time < after);
    let mut later = (from..times.len()).filter(|at| busy[*at] > busy[from]);
    times[later.next().expect("something is sent") - 1]
}

/// A packet and a half of 4 KiB in a round trip, as a part of the line.
const MORE_THAN_ONE: f64 = 1.5 * 0.002;

/// Round trips until 80 Gb/s of the 200 are sent in one, from the last one after a time that has no
/// more than a packet. Probes after time-outs are such packets, too, and change no window.
fn round_trips_to_80(outcome: &Outcome, after: Span) -> u64 {
    let mut begin = first_after(outcome, after);
    while busy(outcome, &(begin + ROUND_TRIP..begin + ROUND_TRIP.times(2))) < MORE_THAN_ONE {
        begin = first_after(outcome, begin + ROUND_TRIP);
    }
    let last = *outcome.samples.times.last().expect("samples");
    let mut trips = (0..).take_while(|trip| begin + ROUND_TRIP.times(trip + 1) < last);
    let fast = trips.find(|trip| {
        let from = begin + ROUND_TRIP.times(*trip);
        busy(outcome, &(from..from + ROUND_TRIP)) >= 0.4
    });
    fast.expect("it comes to 80 Gb/s")
}

/// CC-2: a flow whose acknowledgements are lost for a while has one packet in flight then, on an
/// idle path. From there Swift, with 400 Mb/s more in each round trip, takes about 200 of them
/// to 80 Gb/s; with signals it takes fewer than ten.
#[test]
fn an_idle_path_is_used_within_ten_round_trips() {
    // The last packet of the first window has left, and the first answer has not come.
    let fault = "[[workload]]\nkind = \"incast\"\ntarget = \"h2\"\nsize = \"120MB\"\n\
                 [[fault]]\nkind = \"impairment\"\nlink = \"h1-s1\"\nloss = 1.0\n\
                 from = \"50us\"\nuntil = \"4ms\"\n";
    for seed in 1..=3 {
        let took = |host: &str| {
            let host = format!("window = 224\ncongestion = {host}");
            let outcome = outcome(&format!("{PAIR}{host}\n{fault}"), seed);
            let totals = &outcome.totals;
            assert!(totals.timeouts > 0 && totals.retransmits < 20, "{host}");
            round_trips_to_80(&outcome, Span::from_millis(4))
        };
        let plain = took("\"swift\"");
        let guided = ["compact", "expanded"]
            .map(|form| took(&format!("\"swift-csig\"\n[host.csig]\nform = \"{form}\"")));
        println!("seed {seed}: {guided:?} round trips, plain Swift {plain}");
        assert!(guided.iter().all(|trips| *trips < 10), "{guided:?}");
        assert!((150..250).contains(&plain), "{plain}");
    }
}

/// CC-2, CS-11: a flow that begins on an empty path of 200 Gb/s has it all in its second round
/// trip, and a few packets in the first. Tags are less than 0.2 % of the bytes.
#[test]
#[expect(clippy::cast_precision_loss, reason = "a part")]
fn an_empty_path_is_full_in_the_second_round_trip() {
    let workload = "[[workload]]\nkind = \"incast\"\ntarget = \"h2\"\nsize = \"20MB\"\n";
    for seed in 1..=3 {
        for form in ["compact", "expanded"] {
            let host = format!(
                "window = 512\ncongestion = \"swift-csig\"\n[host.csig]\nform = \"{form}\""
            );
            let outcome = outcome(&format!("{PAIR}{host}\n{workload}"), seed);
            let begin = first_after(&outcome, Span::ZERO);
            let trip = |n| begin + ROUND_TRIP.times(n)..begin + ROUND_TRIP.times(n + 1);
            let [first, second, third] = [0, 1, 2].map(|n| busy(&outcome, &trip(n)));
            println!("seed {seed}, {form}: {first:.3}, {second:.3}, {third:.3} of the line");
            assert!(first < 0.05 && second > 0.95 && third > 0.95);
            let tag = if form == "compact" { 4 } else { 8 };
            let bytes: u64 = (outcome.links.iter())
                .filter(|link| link.from == "h1")
                .map(|link| link.bytes)
                .sum();
            let tags = (outcome.totals.tags * tag) as f64 / bytes as f64;
            println!("{:.4} % of the bytes are tags", 100.0 * tags);
            assert!(outcome.totals.tags == outcome.totals.data_packets && tags < 0.002);
        }
    }
}
