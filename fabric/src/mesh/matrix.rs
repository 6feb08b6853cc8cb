//! What came of probes, as text and as a picture.

use std::fmt::Write;
use std::path::Path;

use lab::LabError;
use serde_json::json;
use twin::heat::{Cell, Heat};

use super::{Bottleneck, Probed};
use crate::show;

/// Pairs of hosts.
#[derive(Debug)]
pub(super) struct Matrix {
    names: Vec<String>,
    all: Vec<Probed>,
}

impl Matrix {
    /// Of what hosts have found. Of several probes of a pair the last one counts.
    pub(super) fn of(found: Vec<Probed>) -> Self {
        let mut all: Vec<Probed> = Vec::new();
        for probed in found {
            let is_it = |it: &&mut Probed| it.from == probed.from && it.to == probed.to;
            match all.iter_mut().find(is_it) {
                Some(known) => *known = probed,
                None => all.push(probed),
            }
        }
        // Those that probed come in the order in which they did.
        let mut names: Vec<String> = Vec::new();
        let probers = all.iter().map(|it| &it.from);
        for name in probers.chain(all.iter().map(|it| &it.to)) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self { names, all }
    }

    fn between(&self, from: &str, to: &str) -> Option<&Probed> {
        self.all.iter().find(|it| it.from == from && it.to == to)
    }

    pub(super) fn print_json(&self) {
        println!("{:#}", json!(self.all));
    }

    pub(super) fn print(&self) {
        let names = self.names.iter().map(String::as_str);
        let heading: Vec<&str> = std::iter::once("from / to").chain(names).collect();
        let mut table = show::table(&heading);
        for from in &self.names {
            let of = |to: &String| {
                let found = self.between(from, to);
                found.map_or_else(|| "·".to_owned(), lines)
            };
            table.add_row(std::iter::once(from.clone()).chain(self.names.iter().map(of)));
        }
        println!("{table}");
        println!(
            "half round trips of 64 bytes, median; the longest time in a device; the least that is free of a link"
        );
    }

    /// Draws it into a file, as SVG.
    pub(super) fn draw(&self, whose: &str, file: &Path) -> Result<(), LabError> {
        let cell = |from: &str, to: &str| {
            let probed = self.between(from, to)?;
            Some(Cell {
                value: probed.median_us,
                text: lines(probed),
            })
        };
        let names = &self.names;
        let heat = Heat {
            title: format!("{whose}: half round trips of 64 bytes, from (rows) to (columns)"),
            names: names.clone(),
            cells: names
                .iter()
                .map(|from| names.iter().map(|to| cell(from, to)).collect())
                .collect(),
        };
        heat.draw(file).map_err(|error| LabError::Answer {
            what: "picture".to_owned(),
            reason: error.to_string(),
        })
    }
}

/// What is known of a way, in short lines.
fn lines(probed: &Probed) -> String {
    let Some(median) = probed.median_us else {
        return "no answer".to_owned();
    };
    let mut text = format!("{median:.0} µs");
    let Bottleneck {
        delay_us,
        delayed_at,
        free_percent,
        fullest,
    } = &probed.worst;
    if let (Some(delay), Some(at)) = (delay_us, delayed_at) {
        let _ = write!(text, "\n{delay:.0} µs in {at}");
    }
    if let (Some(free), Some(at)) = (free_percent, fullest) {
        let _ = write!(text, "\n{free:.0} % free at {at}");
    }
    text
}

/// A host's own row, each way with its sub-paths.
pub(super) fn print_row(found: &[Probed]) {
    const COLUMNS: [&str; 9] = [
        "to",
        "median µs",
        "p99 µs",
        "path",
        "RTT µs",
        "longest µs",
        "in",
        "free %",
        "at",
    ];
    let mut table = show::table(&COLUMNS);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.1}"));
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let signals = |worst: &Bottleneck| {
        let (delay, free) = (number(worst.delay_us), number(worst.free_percent));
        [delay, text(&worst.delayed_at), free, text(&worst.fullest)]
    };
    for probed in found {
        let own = [
            probed.to.clone(),
            number(probed.median_us),
            number(probed.p99_us),
        ];
        if let Some(error) = &probed.error {
            table.add_row([&own[0], "no answer", error.as_str()]);
            continue;
        }
        let mut begin = own.to_vec();
        for way in &probed.paths {
            let path = [way.path.to_string(), number(way.rtt_us)];
            table.add_row(begin.iter().chain(&path).chain(&signals(&way.worst)));
            begin = vec![String::new(); own.len()];
        }
        if probed.paths.is_empty() {
            let path = ["-".to_owned(), "-".to_owned()];
            table.add_row(begin.iter().chain(&path).chain(&signals(&probed.worst)));
        }
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(from: &str, to: &str, median_us: Option<f64>) -> Probed {
        Probed {
            from: from.to_owned(),
            to: to.to_owned(),
            median_us,
            worst: Bottleneck {
                delay_us: Some(12.0),
                delayed_at: Some("leaf1 → hosts".to_owned()),
                ..Bottleneck::default()
            },
            ..Probed::default()
        }
    }

    /// CS-10: a cell says what is known, and that nothing came back.
    #[test]
    fn a_cell_says_what_is_known() {
        let text = lines(&probed("h1", "h2", Some(41.6)));
        assert_eq!(text, "42 µs\n12 µs in leaf1 → hosts");
        assert_eq!(lines(&probed("h1", "h2", None)), "no answer");
    }

    /// CS-10: rows of several hosts make one matrix, with those that only others have probed; the
    /// last probe of a pair counts.
    #[test]
    fn rows_make_a_matrix() {
        let matrix = Matrix::of(vec![
            probed("h2", "h1", Some(1.0)),
            probed("h2", "h3", None),
            probed("h1", "h2", Some(2.0)),
            probed("h2", "h1", Some(3.0)),
        ]);
        assert_eq!(matrix.names, ["h2", "h1", "h3"]);
        assert_eq!(matrix.all.len(), 3);
        let of = |from, to| matrix.between(from, to).map(|it| it.median_us);
        assert_eq!(of("h2", "h1"), Some(Some(3.0)));
        assert_eq!((of("h2", "h3"), of("h3", "h2")), (Some(None), None));
        // What is written is read again.
        let text = json!(matrix.all).to_string();
        let read: Vec<Probed> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, matrix.all);
    }
}
