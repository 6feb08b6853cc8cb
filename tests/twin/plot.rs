//! Pictures of an outcome, as SVG.

use super::outcome::Outcome;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Width and height of a picture.
const SIZE: (u32, u32) = (960, 480);

/// Lines in one picture at most.
const LINES: usize = 8;

/// Why a picture was not drawn.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct PlotError {
    file: PathBuf,
    reason: String,
}

/// A line: its name and its points.
type Line = (String, Vec<(f64, f64)>);

/// Draws all pictures of an outcome into a folder, and returns their files.
///
/// # Errors
/// What the file system says.
pub fn draw(outcome: &Outcome, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    std::fs::create_dir_all(folder).map_err(|error| PlotError {
        file: folder.to_owned(),
        reason: error.to_string(),
    })?;
    let pictures = [
        Picture {
            file: "fct.svg",
            title: "Flow completion time",
            x: "completion time in µs",
            y: "part of the flows",
            lines: distribution(outcome, |fct, _| fct / 1000.0),
        },
        Picture {
            file: "slowdown.svg",
            title: "Slowdown against an empty fabric",
            x: "completion time ÷ ideal",
            y: "part of the flows",
            lines: distribution(outcome, |fct, ideal| fct / ideal),
        },
        Picture {
            file: "queues.svg",
            title: "Deepest queues",
            x: "time in µs",
            y: "KiB in the queues of a port",
            lines: queues(outcome),
        },
        Picture {
            file: "utilisation.svg",
            title: "Busiest links",
            x: "time in µs",
            y: "part of the time that the link is busy",
            lines: utilisation(outcome),
        },
    ];
    let title = format!("{}, seed {}", outcome.scenario, outcome.seed);
    pictures
        .into_iter()
        .filter(|picture| !picture.lines.is_empty())
        .map(|picture| picture.draw(&title, folder))
        .collect()
}

struct Picture {
    file: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    lines: Vec<Line>,
}

impl Picture {
    fn draw(&self, of: &str, folder: &Path) -> Result<PathBuf, PlotError> {
        let file = folder.join(self.file);
        let area = SVGBackend::new(&file, SIZE).into_drawing_area();
        let drawn = self.paint(of, &area);
        drawn.map_err(|error| PlotError {
            file: file.clone(),
            reason: error.to_string(),
        })?;
        drop(area);
        Ok(file)
    }

    fn paint<'a>(
        &self,
        of: &str,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        area.fill(&WHITE)?;
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let most = |value: fn(&(f64, f64)) -> f64| {
            let most = points().map(value).fold(0.0, f64::max);
            if most > 0.0 { 1.02 * most } else { 1.0 }
        };
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{} — {of}", self.title), ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1))?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .light_line_style(WHITE)
            .draw()?;
        for (number, (name, points)) in self.lines.iter().enumerate() {
            let colour = Palette99::pick(number).to_rgba();
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .position(SeriesLabelPosition::LowerRight)
            .draw()?;
        area.present()
    }
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
