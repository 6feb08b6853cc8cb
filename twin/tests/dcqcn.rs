//! DCQCN's convergence in the twin, as its paper has it (SIGCOMM'15): flows that join one after the
//! other at a link of 40 Gb/s, with the paper's parameters. The picture is `docs/images/dcqcn.svg`:
//!
//! ```sh
//! UPDATE_PICTURES=1 cargo test -p twin --test dcqcn
//! ```

use common::time::Span;
use std::fmt::Write;
use std::path::Path;
use twin::outcome::Outcome;
use twin::picture::{Line, Panel, Picture};
use twin::scenario::Scenario;
use twin::simulation::run;

/// Gb/s of each link, and its bytes in a millisecond.
const SPEED: f64 = 40.0;
const LINE: u64 = 5_000_000;

/// Each so many milliseconds a flow joins, until there are four.
const STEP: u64 = 10;

/// Megabytes of each flow: enough that the first three outlive the fourth.
const SIZES: [u64; 4] = [140, 90, 60, 30];

/// Kmin, Kmax and Pmax are those of the paper, section 5.2, and so is the time between
/// notifications; the rest is what hostd's `dcqcn` has.
const STAR: &str = r#"
poll = "500ns"
sample = "10us"
[topology]
kind = "star"
hosts = 5
speed = "40Gbps"
delay = "1us"
[qos]
queue_depth_bytes = 8000000
[qos.buffer]
size_bytes = 67108864
[[qos.queue]]
queues = [3]
limit_bytes = 8000000
[qos.queue.wred]
min_bytes = 5000
max_bytes = 200000
probability_percent = 1.0
[host]
congestion = "dcqcn"
cnp_interval = "50us"
ack_packets = 4
window = 512
"#;

fn outcome(seed: u64) -> Outcome {
    let mut text = STAR.to_owned();
    for (n, megabytes) in (0_u64..).zip(SIZES) {
        let _ = write!(
            text,
            "[[workload]]\nkind = \"incast\"\nhosts = [\"h{}\", \"h5\"]\ntarget = \"h5\"\n\
             start = \"{}ms\"\nsize = \"{megabytes}MB\"\n",
            n + 1,
            n * STEP
        );
    }
    let scenario = Scenario::parse(&text, "dcqcn", &|file| Err(format!("no {file}")));
    let scenario =
        scenario.unwrap_or_else(|refusal| panic!("line {}: {}", refusal.line, refusal.reason));
    run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))
}

fn wire(outcome: &Outcome, from: &str, to: &str) -> usize {
    let mut links = outcome.links.iter();
    let place = links.position(|link| link.from == from && link.to == to);
    place.unwrap_or_else(|| panic!("no link from {from} to {to}"))
}

/// Gb/s on a wire between two times.
#[expect(clippy::cast_precision_loss, reason = "a speed")]
fn speed(outcome: &Outcome, wire: usize, from: Span, to: Span) -> f64 {
    let times = &outcome.samples.times;
    let place = |at: Span| {
        times
            .partition_point(|time| *time < at)
            .min(times.len() - 1)
    };
    let (first, last) = (place(from), place(to));
    let busy = &outcome.samples.wires[wire].busy;
    let span = times[last].nanos().saturating_sub(times[first].nanos());
    if span == 0 {
        return 0.0;
    }
    (busy[last] - busy[first]) as f64 / 1_000.0 / span as f64 * SPEED
}

/// Gb/s of the first `flows` flows in the last third of the step in which they are all there.
fn settled(outcome: &Outcome, flows: u64) -> Vec<f64> {
    let end = Span::from_millis(flows * STEP);
    let begin = Span::from_micros(flows * STEP * 1_000 - STEP * 1_000 / 3);
    (1..=flows)
        .map(|n| speed(outcome, wire(outcome, &format!("h{n}"), "s1"), begin, end))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "few")]
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

/// What is drawn: the rates of the flows, and the queue before the receiver.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn picture(outcome: &Outcome) -> Picture {
    const WINDOW: u64 = 250;
    let end = outcome.duration_ns / 1_000 / WINDOW;
    let rates: Vec<Line> = (1..=SIZES.len())
        .map(|n| {
            let wire = wire(outcome, &format!("h{n}"), "s1");
            let points = (0..end).map(|at| {
                let from = Span::from_micros(at * WINDOW);
                let to = Span::from_micros((at + 1) * WINDOW);
                let middle = (at as f64 + 0.5) * WINDOW as f64 / 1_000.0;
                (middle, speed(outcome, wire, from, to))
            });
            (format!("flow {n}"), points.collect())
        })
        .collect();
    let samples = &outcome.samples;
    let depth = &samples.wires[wire(outcome, "s1", "h5")].depth;
    let queue = samples.times.iter().zip(depth).step_by(10);
    let queue = queue.map(|(time, bytes)| (time.nanos() as f64 / 1e6, f64::from(*bytes) / 1e3));
    Picture {
        title: "DCQCN: four flows join at a link of 40 Gb/s".to_owned(),
        x: "ms".to_owned(),
        panels: vec![
            Panel {
                title: "rates of the flows".to_owned(),
                y: "Gb/s".to_owned(),
                lines: rates,
                levels: Vec::new(),
            },
            Panel {
                title: "queue before the receiver".to_owned(),
                y: "kB".to_owned(),
                lines: vec![("queue".to_owned(), queue.collect())],
                levels: vec![("Kmax".to_owned(), 200.0)],
            },
        ],
    }
}

/// CC-1: flows that join share the link alike in the end of each step, and use it, in the mean of
/// eight seeds; in one of them two that are notified together may just have cut their rates, which
/// takes milliseconds to come back. The picture of the manual is that of the first seed.
#[test]
#[expect(clippy::cast_precision_loss, reason = "few")]
fn flows_that_join_converge_as_in_the_paper() {
    const SEEDS: u64 = 8;
    let mut used = [0.0; 3];
    for seed in 1..=SEEDS {
        let outcome = outcome(seed);
        for (flows, used) in (2..=4).zip(&mut used) {
            let rates = settled(&outcome, flows);
            let (sum, fair) = (rates.iter().sum::<f64>(), jain(&rates));
            println!("seed {seed}, {flows} flows: {rates:.1?}, Jain {fair:.3}");
            assert!(sum >= 0.8 * SPEED, "seed {seed}, {flows} flows: {sum} Gb/s");
            *used += sum / SPEED / SEEDS as f64;
            assert!(fair >= 0.9, "seed {seed}, {flows} flows: Jain {fair}");
        }
        let total: u64 = SIZES.iter().map(|megabytes| megabytes * 1_000_000).sum();
        assert!(outcome.duration_ns / 1_000_000 < total * 10 / 9 / LINE + STEP);
        if seed != 1 {
            continue;
        }
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images/dcqcn.svg");
        let folder = tempfile::tempdir().expect("a temporary directory");
        let drawn = folder.path().join("dcqcn.svg");
        picture(&outcome).draw(&drawn).expect("a picture");
        if std::env::var_os("UPDATE_PICTURES").is_some() {
            std::fs::copy(&drawn, &kept).expect("docs/images can be written");
        }
        let same = std::fs::read(&drawn).ok() == std::fs::read(&kept).ok();
        assert!(
            same,
            "docs/images/dcqcn.svg is another one; see the head of this file"
        );
    }
    println!("used of the link: {used:.3?}");
    assert!(used.iter().all(|used| *used >= 0.95), "{used:.3?}");
}
