//! Results: tables for people, JSON for programs.

use crate::measure::machine::{Facts, Load};
use crate::measure::rounds::{ERROR, Known, Rounds};
use crate::measure::statistics::Interval;
use crate::measure::{Better, Bound, Group, Verdict};
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

/// Share of its time that the measuring thread waits on a machine that is called busy.
const WAITED_BUSY: f64 = 0.05;

/// Share of the time that a hypervisor takes from a machine that is called busy.
const STOLEN_BUSY: f64 = 0.02;

/// All results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What they were measured on.
    pub machine: Facts,
    /// Probability that an interval misses what it should contain.
    pub error: f64,
    /// The groups that were measured.
    pub groups: Vec<GroupResult>,
    /// What kept a bench from its end, exact checks among it.
    pub faults: Vec<String>,
}

/// What a group gave.
#[derive(Clone, Debug, Serialize)]
pub struct GroupResult {
    /// Name of the bench.
    pub bench: String,
    /// What was measured.
    pub title: String,
    /// How long, in seconds.
    pub seconds: f64,
    /// What else the machine did meanwhile.
    pub load: Load,
    /// The contenders' values.
    pub contenders: Vec<Line>,
    /// What follows from them.
    pub figures: Vec<Line>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// A contender or a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: String,
    /// The value of each round.
    pub samples: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The interval that contains the true median.
    pub interval: Option<Interval>,
    /// What it has to keep.
    pub bound: Option<Bound>,
    /// Whether it does.
    pub verdict: Option<Verdict>,
}

impl Line {
    /// A line of what is known.
    pub fn new(name: &str, unit: &str, known: Known, bound: Option<Bound>) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            samples: known.samples,
            median: known.median,
            interval: known.interval,
            bound,
            verdict: known.verdict,
        }
    }

    fn cells(&self) -> [String; 5] {
        let interval = self.interval.map_or_else(
            || "too few rounds".to_owned(),
            |it| format!("{} … {}", number(it.low), number(it.high)),
        );
        [
            number(self.median),
            interval,
            self.unit.clone(),
            self.bound.map(|it| it.to_string()).unwrap_or_default(),
            self.verdict.map(|it| it.to_string()).unwrap_or_default(),
        ]
    }
}

impl GroupResult {
    /// What the rounds of a group gave.
    pub fn new(
        bench: &str,
        group: &Group,
        rounds: &Rounds,
        load: Load,
        notes: Vec<String>,
    ) -> Self {
        let contenders = group.contenders.iter().enumerate();
        let contenders = contenders
            .map(|(at, name)| Line::new(name, &group.unit, rounds.of_contender(at), None));
        let figures = group.figures.iter().map(|figure| {
            let known = rounds.known(figure);
            Line::new(&figure.name, figure.unit, known, figure.bound)
        });
        Self {
            bench: bench.to_owned(),
            title: group.title.clone(),
            seconds: rounds.elapsed.as_secs_f64(),
            load,
            contenders: contenders.collect(),
            figures: figures.collect(),
            notes,
        }
    }

    /// The figures with this verdict.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Line> {
        let figures = self.figures.iter();
        figures.filter(move |line| line.verdict == Some(verdict))
    }

    /// Whether the machine had so much else to do that intervals are wide.
    pub fn is_busy(&self) -> bool {
        self.load.waited > WAITED_BUSY || self.load.stolen > STOLEN_BUSY
    }

    /// As tables and sentences.
    pub fn text(&self) -> String {
        let rounds = self.contenders.first().map_or(0, |it| it.samples.len());
        let mut text = format!(
            "{}: {}\n{rounds} rounds in {:.0} s; {}{}\n",
            self.bench,
            self.title,
            self.seconds,
            self.load,
            if self.is_busy() {
                ": a busy machine"
            } else {
                ""
            }
        );
        let confidence = format!("{} % interval", (1.0 - ERROR) * 100.0);
        let mut rows = table(["measured", "median", &confidence, "", "", ""]);
        for line in &self.contenders {
            add(&mut rows, line);
        }
        text += &format!("{rows}\n");
        if !self.figures.is_empty() {
            let mut rows = table(["derived", "median", &confidence, "", "bound", "verdict"]);
            for line in &self.figures {
                add(&mut rows, line);
            }
            text += &format!("{rows}\n");
        }
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        for line in self.with(Verdict::Undecided) {
            let why = match line.interval {
                Some(_) => "the machine is too noisy; run again, alone, or longer (--seconds)",
                None => "there were too few rounds for an interval",
            };
            text += &format!("undecided: {}: {why}\n", line.name);
        }
        text
    }
}

impl Report {
    /// A report without results.
    pub fn new() -> Self {
        Self {
            machine: Facts::read(),
            error: ERROR,
            groups: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Whether no bound was missed and nothing went wrong.
    pub fn is_good(&self) -> bool {
        let mut groups = self.groups.iter();
        self.faults.is_empty() && groups.all(|it| it.with(Verdict::Fails).next().is_none())
    }

    /// The last lines: what failed, what is undecided, how many bounds hold.
    pub fn summary(&self) -> String {
        let count = |verdict| -> usize {
            let groups = self.groups.iter();
            groups.map(|group| group.with(verdict).count()).sum()
        };
        let mut text = String::new();
        for group in &self.groups {
            for line in group.with(Verdict::Fails) {
                let [median, interval, _, bound, _] = line.cells();
                text += &format!(
                    "FAILS: {}: {}: {}: {median} ({interval}), bound {bound}\n",
                    group.bench, group.title, line.name
                );
            }
        }
        for fault in &self.faults {
            text += &format!("FAILS: {fault}\n");
        }
        let [holds, fails, undecided] =
            [Verdict::Holds, Verdict::Fails, Verdict::Undecided].map(count);
        text += &format!("bounds: {holds} hold, {fails} failed, {undecided} undecided\n");
        text
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

/// The sense of a ratio between two values of a group, whatever is good in it.
pub fn compared(better: Better, interval: Option<Interval>) -> &'static str {
    let Some(Interval { low, high }) = interval else {
        return "too few rounds";
    };
    match (better, low > 1.0, high < 1.0) {
        (Better::Low, true, _) | (Better::High, _, true) => "slower",
        (Better::Low, _, true) | (Better::High, true, _) => "faster",
        _ => "no difference seen",
    }
}

fn table(header: [&str; 6]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

fn add(table: &mut Table, line: &Line) {
    let [median, interval, unit, bound, verdict] = line.cells();
    let right = |text| Cell::new(text).set_alignment(CellAlignment::Right);
    table.add_row([
        Cell::new(&line.name),
        right(median),
        right(interval),
        Cell::new(unit),
        right(bound),
        Cell::new(verdict),
    ]);
}

/// Three digits after the point for ratios, one for what is greater than a hundred.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        below if below < 10.0 => 3,
        below if below < 100.0 => 2,
        _ => 1,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figure;
    use std::time::Duration;

    fn result(ours: f64) -> GroupResult {
        let names = ["reference", "ours"];
        let group = Group {
            title: "made up".to_owned(),
            unit: "ns a packet".to_owned(),
            better: Better::Low,
            contenders: names.map(str::to_owned).to_vec(),
            figures: vec![Figure::ratio(&names, 1, 0, Some(Bound::AtMost(1.5)))],
        };
        let rounds = Rounds {
            values: (0..12).map(|_| vec![100.0, 100.0 * ours]).collect(),
            elapsed: Duration::from_secs(3),
        };
        GroupResult::new("test", &group, &rounds, Load::default(), Vec::new())
    }

    #[test]
    fn a_report_is_good_when_nothing_failed() {
        let mut report = Report::new();
        report.groups.push(result(1.25));
        assert!(report.is_good());
        assert_eq!(report.summary(), "bounds: 1 hold, 0 failed, 0 undecided\n");
        report.groups.push(result(1.75));
        assert!(!report.is_good());
        let failed = "FAILS: test: made up: ours ÷ reference: 1.750 (1.750 … 1.750), bound ≤ 1.5\n";
        assert!(report.summary().starts_with(failed), "{}", report.summary());
        report.groups.pop();
        report
            .faults
            .push("test: 3 packets were dropped".to_owned());
        assert!(!report.is_good());
    }

    #[test]
    fn json_has_everything_that_a_verdict_rests_on() {
        let mut report = Report::new();
        report.groups.push(result(1.25));
        let json = serde_json::to_value(&report).unwrap();
        let group = &json["groups"][0];
        let figure = &group["figures"][0];
        assert_eq!(figure["bound"]["at_most"], 1.5);
        assert_eq!(figure["verdict"], "holds");
        assert_eq!(figure["samples"].as_array().unwrap().len(), 12);
        assert_eq!(figure["interval"]["low"], 1.25);
        assert_eq!(group["contenders"][0]["unit"], "ns a packet");
        assert_eq!(group["load"]["waited"], 0.0);
        assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
    }

    #[test]
    fn undecided_says_what_to_do() {
        let mut result = result(1.25);
        result.figures[0].verdict = Some(Verdict::Undecided);
        assert!(
            result
                .text()
                .contains("the machine is too noisy; run again")
        );
    }

    #[test]
    fn comparisons_know_what_is_good() {
        let interval = |low, high| Some(Interval { low, high });
        assert_eq!(compared(Better::Low, interval(1.01, 1.02)), "slower");
        assert_eq!(compared(Better::High, interval(1.01, 1.02)), "faster");
        assert_eq!(compared(Better::High, interval(0.9, 0.99)), "slower");
        assert_eq!(compared(Better::Low, interval(0.9, 0.99)), "faster");
        assert_eq!(
            compared(Better::Low, interval(0.9, 1.01)),
            "no difference seen"
        );
        assert_eq!(compared(Better::Low, None), "too few rounds");
    }
}
