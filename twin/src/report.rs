//! Figures for people and for other programs: tables, CSV and JSON.

use super::collective::figures::JobFigures;
use super::outcome::{ClassFigures, Outcome};
use super::sample::Samples;
use super::totals::Totals;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// A time with three digits that mean something, as people write it.
fn time(nanos: u64) -> String {
    let (unit, scale) = match nanos {
        0..1_000 => return format!("{nanos}ns"),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let (whole, part) = (nanos / scale, nanos % scale * 1000 / scale);
    match whole {
        0..10 => format!("{whole}.{:02}{unit}", part / 10),
        10..100 => format!("{whole}.{}{unit}", part / 100),
        _ => format!("{whole}{unit}"),
    }
}

/// A rate in Gbit/s.
fn gigabits(bps: u64) -> String {
    let hundredths = (bps + 5_000_000) / 10_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn class_table(classes: &[ClassFigures]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([
        "flows", "done", "aborted", "FCT mean", "p50", "p99", "p99.9", "max", "slowdown", "p99",
        "Gbit/s", "Jain",
    ]);
    for one in classes {
        let cells = [
            one.completed.to_string(),
            one.aborted.to_string(),
            time(one.fct_mean_ns),
            time(one.fct_p50_ns),
            time(one.fct_p99_ns),
            time(one.fct_p999_ns),
            time(one.fct_max_ns),
            format!("{:.2}", one.slowdown_mean),
            format!("{:.2}", one.slowdown_p99),
            gigabits(one.goodput_mean_bps),
            format!("{:.3}", one.jain),
        ];
        let right = |cell: String| Cell::new(cell).set_alignment(CellAlignment::Right);
        let mut row = vec![Cell::new(&one.class)];
        row.extend(cells.into_iter().map(right));
        table.add_row(row);
    }
    table
}

fn job_table(jobs: &[JobFigures]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([
        "jobs", "members", "leaves", "trees", "done", "failed", "died", "bytes", "time", "Gbit/s",
        "told",
    ]);
    for one in jobs {
        let cells = [
            one.members.to_string(),
            one.leaves.to_string(),
            one.trees.to_string(),
            one.done.to_string(),
            one.failed.to_string(),
            one.died.to_string(),
            one.bytes.to_string(),
            one.time_ns.map_or_else(String::new, time),
            one.bandwidth_bps().map_or_else(String::new, gigabits),
        ];
        let right = |cell: String| Cell::new(cell).set_alignment(CellAlignment::Right);
        let mut row = vec![Cell::new(&one.job)];
        row.extend(cells.into_iter().map(right));
        row.push(Cell::new(&one.error));
        table.add_row(row);
    }
    table
}

fn reasons(counts: &BTreeMap<&'static str, u64>) -> String {
    let parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn totals(text: &mut String, totals: &Totals) {
    let lines = [
        ("lost by switches", reasons(&totals.switch_drops)),
        ("lost by hosts", reasons(&totals.host_drops)),
        ("on the wires", reasons(&totals.wire)),
        (
            "transport",
            format!(
                "{} data packets, {} sent again, {} time-outs, {} came twice",
                totals.data_packets, totals.retransmits, totals.timeouts, totals.duplicates
            ),
        ),
        (
            "reordering",
            format!(
                "{} packets early, by {} at most",
                totals.out_of_order, totals.reorder_depth
            ),
        ),
        (
            "congestion",
            format!(
                "{} marked, {} pause frames, queues up to {} bytes",
                totals.marks, totals.pauses, totals.queue_bytes
            ),
        ),
    ];
    for (name, value) in lines {
        let _ = writeln!(text, "{name:>18}  {value}");
    }
    if !totals.jobs.is_empty() {
        let _ = writeln!(text, "{:>18}  {}", "of jobs", reasons(&totals.jobs));
    }
}

/// The summary of an outcome: what a snapshot holds. Nothing in it depends on the machine.
pub fn summary(outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}, seed {}: {} in virtual time, {} packet-hops, digest {:016x}",
        outcome.scenario,
        outcome.seed,
        time(outcome.duration_ns),
        outcome.hops,
        outcome.digest
    );
    if !outcome.classes.is_empty() {
        let _ = writeln!(text, "{}", class_table(&outcome.classes));
    }
    if !outcome.jobs.is_empty() {
        let _ = writeln!(text, "{}", job_table(&outcome.jobs));
    }
    totals(&mut text, &outcome.totals);
    text
}

/// The links that were busiest, as a table.
pub fn busiest_links(outcome: &Outcome, count: usize) -> Table {
    let mut links: Vec<_> = outcome.links.iter().collect();
    links.sort_by(|a, b| b.utilisation.total_cmp(&a.utilisation));
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([
        "busiest links",
        "Gbit/s",
        "frames",
        "utilisation",
        "queue bytes",
    ]);
    for link in links.into_iter().take(count) {
        table.add_row([
            format!("{} → {}", link.from, link.to),
            gigabits(link.speed_bps),
            link.frames.to_string(),
            format!("{:.1} %", 100.0 * link.utilisation),
            link.queue_bytes.to_string(),
        ]);
    }
    table
}

/// Everything that is known of an outcome, for other programs.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    series: Series<'a>,
}

/// Links over time.
#[derive(Serialize)]
struct Series<'a> {
    /// Nanoseconds after the start of the workload.
    time_ns: Vec<u64>,
    /// Directions of links that were ever used.
    links: Vec<LinkSeries<'a>>,
}

/// One direction of a link: a value for each time.
#[derive(Serialize)]
struct LinkSeries<'a> {
    from: &'a str,
    to: &'a str,
    queue_bytes: &'a [u32],
    /// Part of the time since the last sample that it was busy.
    utilisation: Vec<f64>,
}

fn series(outcome: &Outcome) -> Series<'_> {
    let Samples { times, wires, .. } = &outcome.samples;
    let links = wires.iter().zip(&outcome.links).enumerate();
    let links = links.filter_map(|(index, (wire, link))| {
        let utilisation = outcome.samples.utilisation(index);
        let used = utilisation.iter().any(|part| *part > 0.0);
        used.then(|| LinkSeries {
            from: &link.from,
            to: &link.to,
            queue_bytes: &wire.depth,
            utilisation: std::iter::once(0.0).chain(utilisation).collect(),
        })
    });
    Series {
        time_ns: times.iter().map(|at| at.nanos()).collect(),
        links: links.collect(),
    }
}

/// Writes everything as one JSON document.
///
/// # Errors
/// What the file system says.
pub fn write_json(outcome: &Outcome, path: &Path) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    let series = series(outcome);
    serde_json::to_writer(&mut file, &Document { outcome, series })?;
    file.flush()
}

/// Writes flows, classes, links, totals and series as CSV files into a folder.
///
/// # Errors
/// What the file system says.
pub fn write_csv(outcome: &Outcome, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    rows(&folder.join("flows.csv"), &outcome.flows)?;
    rows(&folder.join("classes.csv"), &outcome.classes)?;
    rows(&folder.join("links.csv"), &outcome.links)?;
    if !outcome.jobs.is_empty() {
        rows(&folder.join("jobs.csv"), &outcome.jobs)?;
    }
    totals_csv(&outcome.totals, &folder.join("totals.csv"))?;
    series_csv(&series(outcome), &folder.join("series.csv"))
}

/// One line for each sum: its name, the reason if there are several, and the number.
fn totals_csv(totals: &Totals, path: &Path) -> io::Result<()> {
    let mut writer = csv::Writer::from_path(path)?;
    writer.write_record(["total", "reason", "count"])?;
    let serde_json::Value::Object(all) = serde_json::to_value(totals)? else {
        return Err(io::Error::other("totals are not an object"));
    };
    for (name, value) in &all {
        if let serde_json::Value::Object(reasons) = value {
            for (reason, count) in reasons {
                writer.write_record([name, reason, &count.to_string()])?;
            }
        } else {
            writer.write_record([name, "", &value.to_string()])?;
        }
    }
    writer.flush()
}

fn rows<T: Serialize>(path: &Path, rows: &[T]) -> io::Result<()> {
    let mut writer = csv::Writer::from_path(path)?;
    for row in rows {
        writer.serialize(row)?;
    }
    writer.flush()
}

/// One line for each direction of a link that was ever used, and each sample.
fn series_csv(series: &Series<'_>, path: &Path) -> io::Result<()> {
    let mut writer = csv::Writer::from_path(path)?;
    writer.write_record(["time_ns", "from", "to", "queue_bytes", "utilisation"])?;
    for link in &series.links {
        let samples = link.queue_bytes.iter().zip(&link.utilisation);
        for (at, (depth, busy)) in series.time_ns.iter().zip(samples) {
            writer.write_record([
                &at.to_string(),
                link.from,
                link.to,
                &depth.to_string(),
                &format!("{busy:.4}"),
            ])?;
        }
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (nanos, text) in [
            (7, "7ns"),
            (1_234, "1.23us"),
            (45_678, "45.6us"),
            (456_789, "456us"),
            (2_000_000, "2.00ms"),
            (61_000_000_000, "61.0s"),
        ] {
            assert_eq!(time(nanos), text);
        }
        assert_eq!(gigabits(97_456_000_000), "97.46");
    }
}
