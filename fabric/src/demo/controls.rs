//! The same incast with three congestion controls, drawn over time: DCQCN, which goes by marks,
//! Swift by congestion signals, and HPCC by telemetry.
//!
//! It runs in the twin, which has the daemons' own engines and virtual time: what the algorithms
//! differ in happens within microseconds at 100 Gb/s, and namespaces have milliseconds. So a busy
//! machine makes this chapter slower and changes none of its figures.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use console::style;
use lab::LabError;
use twin::congestion::{Congestion, Course};
use twin::outcome::Outcome;
use twin::picture::{Panel, Picture};
use twin::simulation;

use super::samples::Points;
use super::spark;
use super::stage::{Stage, holds, say};

/// What is compared, the first one with the others.
const CONTROLS: [Congestion; 3] = [Congestion::Dcqcn, Congestion::SwiftCsig, Congestion::Hpcc];

/// Of the random choices.
const SEED: u64 = 1;

/// The end of the link that all flows share.
const RECEIVER: &str = "h9";

/// What the others may have of the first one's queue at most, and of its throughput at least.
const QUEUE: f64 = 0.5;
const THROUGHPUT: f64 = 1.0;

/// Throughput is that of so many samples.
const SAMPLES: usize = 20;

/// Columns and lines on the terminal.
const COLUMNS: usize = 60;
const LINES: usize = 3;

/// What came of an algorithm.
struct Seen {
    name: &'static str,
    /// Milliseconds, and kilobytes in the queue.
    queue: Points,
    /// Milliseconds, and Gbit/s on the link.
    throughput: Points,
    /// Kilobytes that 99 % of the looks at the queue do not exceed, until the first flow ends.
    deep_queue: f64,
    /// Gbit/s in the mean until then: all flows are under way.
    mean_throughput: f64,
    pauses: u64,
}

/// Runs the chapter; `false` when an algorithm keeps more queued than the first one, or sends less.
pub(super) fn run(stage: &Stage, folder: &Path) -> Result<bool, LabError> {
    stage.bar.suspend(|| {
        say("The same incast with DCQCN, with Swift by congestion signals (CSIG), and with HPCC (INT)");
        println!(
            "  Eight hosts send 10 MB each to a ninth over links of 100 Gb/s and a lossless class; in the twin, which runs the\n  \
             daemons' own engines in virtual time."
        );
    });
    let mut seen = Vec::new();
    for control in CONTROLS {
        stage
            .bar
            .set_message(format!("incast with {}", control.name()));
        stage.interrupts.settle();
        let outcome = Course::Incast
            .scenario(control)
            .and_then(|scenario| {
                simulation::run(&scenario, SEED).map_err(|failure| failure.to_string())
            })
            .map_err(|reason| failed("twin", &reason))?;
        seen.push(Seen::of(control.name(), &outcome)?);
    }
    let drawn = draw(&seen, folder);
    let fine = stage.bar.suspend(|| {
        terminal(&seen);
        match &drawn {
            Ok(file) => println!("  drawn: {}", file.display()),
            Err(error) => eprintln!("fabric: no picture: {error}"),
        }
        say("What has to hold");
        verdict(&seen)
    });
    Ok(fine && drawn.is_ok())
}

fn failed(what: &str, reason: &dyn Display) -> LabError {
    LabError::Answer {
        what: what.to_owned(),
        reason: reason.to_string(),
    }
}

impl Seen {
    #[expect(clippy::cast_precision_loss, reason = "figures to show")]
    fn of(name: &'static str, outcome: &Outcome) -> Result<Self, LabError> {
        let mut links = outcome.links.iter();
        let shared = links.position(|link| link.to == RECEIVER);
        let shared = shared.ok_or_else(|| failed("twin", &format!("no link to {RECEIVER}")))?;
        let speed = outcome.links[shared].speed_bps as f64 / 1e9;
        let series = &outcome.samples.wires[shared];
        let times = outcome.samples.times.iter();
        let times: Vec<f64> = times.map(|time| time.nanos() as f64 / 1e6).collect();
        let ends = outcome.flows.iter();
        let ends = ends.filter_map(|flow| Some(flow.start_ns? + flow.fct_ns?));
        let ends: Vec<f64> = ends.map(|nanos| nanos as f64 / 1e6).collect();
        let first = ends.iter().copied().fold(f64::MAX, f64::min);
        let last = ends.iter().copied().fold(0.0, f64::max);
        let depths = times.iter().zip(&series.depth);
        let queue: Points = depths
            .filter(|(at, _)| **at <= last)
            .map(|(at, bytes)| (*at, f64::from(*bytes) / 1e3))
            .collect();
        let shared = queue.iter().take_while(|(at, _)| *at <= first);
        let mut depths: Vec<f64> = shared.map(|(_, depth)| *depth).collect();
        depths.sort_unstable_by(f64::total_cmp);
        let busy = |first: usize, last: usize| {
            let picos = (series.busy[last] - series.busy[first]) as f64;
            picos / 1e9 / (times[last] - times[first])
        };
        let before_end = queue.len().saturating_sub(1);
        let throughput = (SAMPLES..=before_end).step_by(SAMPLES);
        let throughput = throughput.map(|last| {
            let first = last - SAMPLES;
            (
                f64::midpoint(times[first], times[last]),
                speed * busy(first, last),
            )
        });
        Ok(Self {
            name,
            throughput: throughput.collect(),
            deep_queue: depths.get(depths.len() * 99 / 100).copied().unwrap_or(0.0),
            mean_throughput: match depths.len() {
                0 | 1 => 0.0,
                looks => speed * busy(0, looks - 1),
            },
            pauses: outcome.totals.pauses,
            queue,
        })
    }
}

/// The queue of each as blocks, all on one scale, and what it comes to.
fn terminal(seen: &[Seen]) {
    say(&format!("kB queued before {RECEIVER}, and Gbit/s there"));
    let end = seen.iter().filter_map(|it| it.queue.last());
    let end = end.map(|(at, _)| *at).fold(0.0, f64::max);
    let columns = |it: &Seen| spark::columns(&it.queue, end, COLUMNS);
    let most = seen.iter().flat_map(columns).fold(0.0, f64::max);
    for it in seen {
        for (number, blocks) in spark::blocks(&columns(it), most, LINES).iter().enumerate() {
            let scale = match number {
                0 => format!("{most:.0}"),
                _ => String::new(),
            };
            println!("  {scale:>6} ┤{}", style(blocks).cyan());
        }
        let pauses = match it.pauses {
            0 => "nobody was paused".to_owned(),
            frames => format!("{frames} frames paused hosts"),
        };
        println!(
            "  {:<11}{:>7.1} kB at most in 99 % of the time, {:>5.1} Gbit/s, {pauses}",
            it.name, it.deep_queue, it.mean_throughput
        );
    }
}

fn draw(seen: &[Seen], folder: &Path) -> Result<PathBuf, LabError> {
    fs::create_dir_all(folder).map_err(LabError::io(folder.display().to_string()))?;
    let panel = |y: &str, points: fn(&Seen) -> &Points| Panel {
        title: String::new(),
        y: y.to_owned(),
        lines: seen
            .iter()
            .map(|it| (it.name.to_owned(), points(it).clone()))
            .collect(),
        levels: Vec::new(),
    };
    let picture = Picture {
        title: "Eight hosts send 10 MB each to a ninth, 100 Gb/s (twin)".to_owned(),
        x: "milliseconds".to_owned(),
        panels: vec![
            panel("kB queued", |it| &it.queue),
            panel("Gbit/s that arrive", |it| &it.throughput),
        ],
    };
    let file = folder.join("controls.svg");
    picture
        .draw(&file)
        .map_err(|error| failed("picture", &error))?;
    Ok(file)
}

/// Says what holds: the run is the same on every machine, so all of it is judged.
fn verdict(seen: &[Seen]) -> bool {
    let Some((first, others)) = seen.split_first() else {
        return false;
    };
    let mut fine = true;
    for it in others {
        let queue = it.deep_queue / first.deep_queue.max(f64::MIN_POSITIVE);
        let throughput = it.mean_throughput / first.mean_throughput.max(f64::MIN_POSITIVE);
        let rows = [
            (
                queue <= QUEUE,
                format!(
                    "{} keeps {queue:.2} times as much queued as {}; at most {QUEUE}",
                    it.name, first.name
                ),
            ),
            (
                throughput >= THROUGHPUT,
                format!(
                    "{} sends {throughput:.2} times as much as {}; at least {THROUGHPUT}",
                    it.name, first.name
                ),
            ),
            (it.pauses == 0, format!("{} has nobody paused", it.name)),
        ];
        for (holding, text) in &rows {
            holds(*holding, text);
            fine &= holding;
        }
    }
    fine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(deep_queue: f64, mean_throughput: f64, pauses: u64) -> Seen {
        Seen {
            name: "one",
            queue: Points::new(),
            throughput: Points::new(),
            deep_queue,
            mean_throughput,
            pauses,
        }
    }

    #[test]
    fn each_figure_is_judged() {
        let judged = |other| verdict(&[seen(100.0, 80.0, 9), other]);
        assert!(judged(seen(20.0, 90.0, 0)));
        assert!(!judged(seen(60.0, 90.0, 0)));
        assert!(!judged(seen(20.0, 70.0, 0)));
        assert!(!judged(seen(20.0, 90.0, 1)));
        assert!(!verdict(&[]));
    }
}
