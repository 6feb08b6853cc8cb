//! Connection matrices side by side: each file of a folder is run on a fat tree with the settings
//! of htsim's own comparisons, and its tail is put beside figures that are given.
//!
//! ```text
//!   DIR/NAME.cm       a matrix (see `matrix`); the smallest fat tree that has its hosts carries it
//!   DIR/figures.toml  "NAME.cm" = 193.2        tail of the completion times in µs, to compare with
//!   settings.toml     tables of a scenario that replace those of `comparison.toml`
//! ```

use super::outcome::Outcome;
use super::scenario::Scenario;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, Table as Shown};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Spanned, Table, Value};

/// The settings of htsim's comparisons: links, queues, marks, trimming, and hosts to match.
pub const SETTINGS: &str = include_str!("../../comparison.toml");

/// Ports of the switches of the largest fat tree that a scenario may have.
const PORTS: u64 = 24;

/// What is compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The matrices, in the order of their names.
    pub matrices: Vec<PathBuf>,
    /// Tails to compare with, in µs, by the names of the files.
    pub given: BTreeMap<String, f64>,
    settings: Table,
}

/// One run of one matrix.
#[derive(Clone, Debug)]
pub struct Row {
    /// The matrix.
    pub name: String,
    /// The seed.
    pub seed: u64,
    /// Longest completion time, in µs; `None` if a flow was aborted.
    pub tail: Option<f64>,
    /// Median of the completion times, in µs.
    pub median: f64,
    /// The first flow of the matrix, in µs.
    pub first: Option<f64>,
    /// Data packets that were sent more than once.
    pub retransmits: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// The figure to compare with, in µs.
    pub given: Option<f64>,
}

fn parse(text: &str, of: &str) -> Result<Table, String> {
    text.parse()
        .map_err(|error: toml::de::Error| format!("{of}: {}", error.message()))
}

fn load(path: &Path) -> Result<Table, String> {
    let of = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{of}: {error}"))?;
    parse(&text, &of)
}

/// Reads figures in µs by the names of matrices, all of which are in `folder`.
fn figures(path: &Path, folder: &Path) -> Result<BTreeMap<String, f64>, String> {
    let of = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{of}: {error}"))?;
    let line = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    let values: BTreeMap<String, Spanned<Value>> = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("{of}:{}: {}", line(at), error.message())
    })?;
    let mut given = BTreeMap::new();
    for (name, value) in values {
        let line = line(value.span().start);
        let value = value.into_inner();
        let figure = value.as_float();
        #[expect(clippy::cast_precision_loss, reason = "microseconds")]
        let figure = figure.or_else(|| value.as_integer().map(|whole| whole as f64));
        let figure = figure
            .ok_or_else(|| format!("{of}:{line}: the figure of {name:?} is no number: {value}"))?;
        if !folder.join(&name).is_file() {
            let folder = folder.display();
            return Err(format!("{of}:{line}: there is no {name:?} in {folder}"));
        }
        given.insert(name, figure);
    }
    Ok(given)
}

/// Puts the values of `over` in the place of those of `under`, table by table.
fn replace(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => replace(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Ports of the switches of the smallest fat tree with so many hosts.
fn fat_tree(hosts: u64) -> Option<u64> {
    (2..=PORTS)
        .step_by(2)
        .find(|k| k * k * k / 4 >= hosts.max(2))
}

/// The number of nodes that a matrix begins with.
fn nodes(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "Nodes");
    words.nth(1)?.parse().ok()
}

impl Comparison {
    /// Reads the folder `matrices`; figures and settings from the files `beside` and `with`, if
    /// they are given. Only matrices with `only` in their names count.
    ///
    /// # Errors
    /// What cannot be read, with the file.
    pub fn load(
        matrices: &Path,
        beside: Option<&Path>,
        with: Option<&Path>,
        only: &str,
    ) -> Result<Self, String> {
        let folder = |error: std::io::Error| format!("{}: {error}", matrices.display());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(matrices).map_err(folder)? {
            let path = entry.map_err(folder)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.extension().is_some_and(|it| it == "cm") && name.contains(only) {
                files.push(path);
            }
        }
        files.sort();
        if files.is_empty() {
            let folder = matrices.display();
            return Err(format!("{folder}: there is no matrix (*.cm) to compare"));
        }
        let own = matrices.join("figures.toml");
        let beside = beside.or_else(|| own.exists().then_some(own.as_path()));
        let given = beside.map(|path| figures(path, matrices)).transpose()?;
        let given = given.unwrap_or_default();
        let mut settings = parse(SETTINGS, "comparison.toml")?;
        replace(
            &mut settings,
            with.map(load).transpose()?.unwrap_or_default(),
        );
        Ok(Self {
            matrices: files,
            given,
            settings,
        })
    }

    /// The scenario that runs the matrix in `file`.
    ///
    /// # Errors
    /// Why there is none, with the file.
    pub fn scenario(&self, file: &Path) -> Result<Scenario, String> {
        let shown = file.display();
        let matrix = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
        let hosts = nodes(&matrix).ok_or_else(|| format!("{shown}: Nodes N is missing"))?;
        let ports =
            fat_tree(hosts).ok_or_else(|| format!("{shown}: {hosts} are too many hosts"))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut settings = self.settings.clone();
        let mut topology = Table::new();
        topology.insert("kind".to_owned(), "fat-tree".into());
        topology.insert("k".to_owned(), i64::try_from(ports).unwrap_or(2).into());
        let topology = Table::from_iter([("topology".to_owned(), Value::Table(topology))]);
        replace(&mut settings, topology);
        let mut workload = Table::new();
        workload.insert("kind".to_owned(), "matrix".into());
        workload.insert("file".to_owned(), name.as_ref().into());
        settings.insert("workload".to_owned(), vec![Value::Table(workload)].into());
        let read = |_: &str| Ok(matrix.clone());
        Scenario::parse(&settings.to_string(), &name, &read).map_err(|refusal| {
            let of = refusal.file.map_or("the settings", |_| "the matrix");
            format!("{shown}: {of}, line {}: {}", refusal.line, refusal.reason)
        })
    }

    /// What came of the run of a matrix.
    pub fn row(&self, outcome: &Outcome) -> Row {
        let micros = |nanos: u64| {
            #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
            let nanos = nanos as f64;
            nanos / 1000.0
        };
        let times = || outcome.flows.iter().map(|flow| flow.fct_ns);
        let all: Option<Vec<u64>> = times().collect();
        let classes = outcome.classes.first();
        Row {
            name: outcome.scenario.clone(),
            seed: outcome.seed,
            tail: all.and_then(|all| all.into_iter().max()).map(micros),
            median: classes.map_or(0.0, |class| micros(class.fct_p50_ns)),
            first: times().next().flatten().map(micros),
            retransmits: outcome.totals.retransmits,
            timeouts: outcome.totals.timeouts,
            given: self.given.get(&outcome.scenario).copied(),
        }
    }
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> Shown {
    let mut table = Shown::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([
        "matrix",
        "seed",
        "tail µs",
        "given",
        "of it",
        "median",
        "first flow",
        "sent again",
        "time-outs",
    ]);
    let one = |figure: f64| format!("{figure:.1}");
    for row in rows {
        let ratio = row.tail.zip(row.given).map(|(tail, given)| tail / given);
        let cells = [
            row.seed.to_string(),
            row.tail.map_or_else(|| "aborted".to_owned(), one),
            row.given.map_or_else(String::new, one),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
            one(row.median),
            row.first.map_or_else(String::new, one),
            row.retransmits.to_string(),
            row.timeouts.to_string(),
        ];
        let right = |cell: String| Cell::new(cell).set_alignment(CellAlignment::Right);
        let mut line = vec![Cell::new(&row.name)];
        line.extend(cells.into_iter().map(right));
        table.add_row(line);
    }
    table
}

#[cfg(test)]
mod tests;
