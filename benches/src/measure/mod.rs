//! Rounds, medians and tables.

use comfy_table::{Cell, CellAlignment, Table};
use std::time::Duration;

/// Processor time that this thread has used: what a pure computation is measured by, since other processes
/// do not add to it when they take turns on the core.
pub fn busy_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    clock.now().map_or(Duration::ZERO, Duration::from)
}

/// What one contender reached, a value for each round. More is better.
#[derive(Clone, Debug)]
pub struct Series {
    /// Whose values.
    pub name: String,
    /// The rounds, in order.
    pub rounds: Vec<f64>,
}

impl Series {
    /// An empty series.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rounds: Vec::new(),
        }
    }

    /// The middle value; zero of an empty series.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// Half the distance between lowest and highest round, as a share of the median.
    pub fn spread(&self) -> f64 {
        let lowest = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.rounds.iter().copied().fold(0.0, f64::max);
        match self.median() {
            median if median > 0.0 => (highest - lowest) / 2.0 / median,
            _ => 0.0,
        }
    }

    /// Median of the ratios to `base`, round by round: what disturbed one round disturbed both.
    pub fn ratio_to(&self, base: &Self) -> f64 {
        let ratios: Vec<_> = self
            .rounds
            .iter()
            .zip(&base.rounds)
            .filter(|(_, base)| **base > 0.0)
            .map(|(value, base)| value / base)
            .collect();
        median(&ratios)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// Prints `series` as ratios to the first of them.
pub fn print_ratios(title: &str, unit: &str, series: &[Series]) {
    let Some(base) = series.first() else { return };
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header([title, unit, "spread", &format!("ratio to {}", base.name)]);
    for one in series {
        let cells = [
            format!("{:.3}", one.median()),
            format!("±{:.1} %", one.spread() * 100.0),
            format!("{:.3}", one.ratio_to(base)),
        ];
        let right = |text| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row(std::iter::once(Cell::new(&one.name)).chain(cells.map(right)));
    }
    println!("{table}");
}

/// Prints single figures, already in words.
pub fn print_figures(title: &str, unit: &str, figures: &[(String, String)]) {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header([title, unit]);
    for (name, figure) in figures {
        let figure = Cell::new(figure).set_alignment(CellAlignment::Right);
        table.add_row([Cell::new(name), figure]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let base = Series {
            name: "base".into(),
            rounds: vec![1.0, 2.0, 4.0],
        };
        let other = Series {
            name: "other".into(),
            rounds: vec![0.5, 1.0, 3.0],
        };
        assert!((other.ratio_to(&base) - 0.5).abs() < 1e-9);
        assert!((base.spread() - 0.75).abs() < 1e-9);
        assert!(Series::new("none").median().abs() < 1e-9);
    }
}
