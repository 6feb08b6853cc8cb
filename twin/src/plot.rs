//! Pictures of an outcome, as SVG.

use super::outcome::Outcome;
use crate::picture::{Line, Panel, Picture, PlotError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Lines in one picture at most.
const LINES: usize = 8;

/// Draws all pictures of an outcome into a folder, and returns their files.
///
/// # Errors
/// What the file system says.
pub fn draw(outcome: &Outcome, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    std::fs::create_dir_all(folder).map_err(|error| PlotError::of(folder, &error))?;
    let pictures = [
        (
            "fct.svg",
            "Flow completion time",
            ["completion time in µs", "part of the flows"],
            distribution(outcome, |fct, _| fct / 1000.0),
        ),
        (
            "slowdown.svg",
            "Slowdown against an empty fabric",
            ["completion time ÷ ideal", "part of the flows"],
            distribution(outcome, |fct, ideal| fct / ideal),
        ),
        (
            "queues.svg",
            "Deepest queues",
            ["time in µs", "KiB in the queues of a port"],
            queues(outcome),
        ),
        (
            "utilisation.svg",
            "Busiest links",
            ["time in µs", "part of the time that the link is busy"],
            utilisation(outcome),
        ),
    ];
    let of = format!("{}, seed {}", outcome.scenario, outcome.seed);
    pictures
        .into_iter()
        .filter(|(.., lines)| !lines.is_empty())
        .map(|(file, title, [x, y], lines)| {
            let picture = Picture {
                title: format!("{title} — {of}"),
                x: x.to_owned(),
                panels: vec![Panel {
                    title: String::new(),
                    y: y.to_owned(),
                    lines,
                    levels: Vec::new(),
                }],
            };
            let file = folder.join(file);
            picture.draw(&file).map(|()| file)
        })
        .collect()
}

/// By class: which part of the flows has at most which value. Few points say as much as many.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn distribution(outcome: &Outcome, value: fn(f64, f64) -> f64) -> Vec<Line> {
    const POINTS: usize = 1000;
    let mut classes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for flow in &outcome.flows {
        if let Some(fct) = flow.fct_ns {
            let drawn = value(fct as f64, flow.ideal_ns.max(1) as f64);
            classes.entry(&flow.class).or_default().push(drawn);
        }
    }
    classes
        .into_iter()
        .map(|(class, mut values)| {
            values.sort_unstable_by(f64::total_cmp);
            let count = values.len();
            let step = count.div_ceil(POINTS);
            let kept = values.iter().enumerate();
            let kept = kept.filter(|(place, _)| place % step == 0 || place + 1 == count);
            let line = kept.map(|(place, value)| (*value, (place + 1) as f64 / count as f64));
            let first = values.first().map(|value| (*value, 0.0));
            (class.to_owned(), first.into_iter().chain(line).collect())
        })
        .collect()
}

fn name(outcome: &Outcome, wire: usize) -> String {
    let link = &outcome.links[wire];
    format!("{} → {}", link.from, link.to)
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn times(outcome: &Outcome) -> Vec<f64> {
    let times = outcome.samples.times.iter();
    times.map(|time| time.nanos() as f64 / 1000.0).collect()
}

fn queues(outcome: &Outcome) -> Vec<Line> {
    let times = times(outcome);
    let mut wires: Vec<usize> = (0..outcome.links.len()).collect();
    wires.retain(|wire| outcome.links[*wire].queue_bytes > 0);
    wires.sort_by_key(|wire| std::cmp::Reverse(outcome.links[*wire].queue_bytes));
    wires
        .into_iter()
        .take(LINES)
        .map(|wire| {
            let depth = &outcome.samples.wires[wire].depth;
            let points = times.iter().zip(depth);
            let points = points.map(|(at, bytes)| (*at, f64::from(*bytes) / 1024.0));
            (name(outcome, wire), points.collect())
        })
        .collect()
}

fn utilisation(outcome: &Outcome) -> Vec<Line> {
    let times = times(outcome);
    let mut wires: Vec<usize> = (0..outcome.links.len()).collect();
    wires.retain(|wire| outcome.links[*wire].utilisation > 0.0);
    wires.sort_by(|a, b| {
        let busy = |wire: usize| outcome.links[wire].utilisation;
        busy(*b).total_cmp(&busy(*a))
    });
    wires
        .into_iter()
        .take(LINES)
        .map(|wire| {
            let busy = outcome.samples.utilisation(wire);
            let points = times.iter().skip(1).copied().zip(busy);
            (name(outcome, wire), points.collect())
        })
        .collect()
}
