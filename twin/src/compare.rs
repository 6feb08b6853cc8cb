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
use toml::{Table, Value};

/// The settings of htsim's comparisons: links, queues, marks, trimming, and hosts to match.
pub const SETTINGS: &str = include_str!("../comparison.toml");

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
        let mut given = BTreeMap::new();
        for (name, value) in beside.map(load).transpose()?.unwrap_or_default() {
            let figure = value.as_float();
            #[expect(clippy::cast_precision_loss, reason = "microseconds")]
            let figure = figure.or_else(|| value.as_integer().map(|whole| whole as f64));
            let figure =
                figure.ok_or_else(|| format!("figure of {name:?}: {value} is no number"))?;
            given.insert(name, figure);
        }
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
mod tests {
    use super::*;
    use crate::simulation::run;

    /// The shipped matrices run with the shipped settings, each on a tree that has its hosts, and
    /// the figures beside them are those of their names.
    #[test]
    fn shipped_matrices_are_compared() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/matrices"));
        let comparison = Comparison::load(folder, None, None, "").expect("a folder of matrices");
        for name in comparison.given.keys() {
            assert!(
                comparison.matrices.iter().any(|file| file.ends_with(name)),
                "a figure of {name}, which is not there"
            );
        }
        for file in &comparison.matrices {
            comparison.scenario(file).expect("a scenario");
        }
        let pair = Comparison::load(folder, None, None, "one").expect("a matrix");
        let scenario = pair.scenario(&pair.matrices[0]).expect("a scenario");
        let row = pair.row(&run(&scenario, 1).expect("a run"));
        let tail = row.tail.expect("it is done");
        // 2 MB take 160 µs at 100 Gb/s without headers.
        assert!((160.0..200.0).contains(&tail), "{tail} µs");
        assert!(table(&[row]).to_string().contains("one.cm"));
    }

    /// HT-34, HT-42, CC-8: as uet-htsim, the transport needs no time-out in an incast, and sprays a
    /// permutation about as well as it can be done: 194 µs for 16 flows of 2 MB.
    #[test]
    fn the_transport_reaches_the_given_figures() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/matrices"));
        for (only, slack) in [("permutation-16", 1.0), ("incast-15", 1.005)] {
            let comparison = Comparison::load(folder, None, None, only).expect("a matrix");
            let scenario = comparison.scenario(&comparison.matrices[0]).expect("it");
            for seed in 1..4 {
                let row = comparison.row(&run(&scenario, seed).expect("a run"));
                let (tail, given) = (row.tail.expect("done"), row.given.expect("a figure"));
                assert!(tail <= given * slack, "{only}, seed {seed}: {tail} µs");
                assert_eq!(row.timeouts, 0, "{only}, seed {seed}");
            }
        }
    }

    /// A link at a tenth of its speed takes ten times as long for a flow, and no longer than that.
    #[test]
    fn a_slow_link_is_slow() {
        let text = |fault: &str| {
            format!(
                "[topology]\nkind = \"pair\"\n[[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n{fault}"
            )
        };
        let time = |fault: &str| {
            let read = |_: &str| Err("none".to_owned());
            let scenario = Scenario::parse(&text(fault), "pair", &read).expect("a scenario");
            run(&scenario, 1).expect("a run").duration_ns
        };
        let slow = "[[fault]]\nkind = \"slow-link\"\nlink = \"h1-h2\"\npart = 0.1\n";
        let (whole, tenth) = (time(""), time(slow));
        assert!((9 * whole..11 * whole).contains(&tenth), "{whole} {tenth}");
        // Towards one end alone: only what is sent there is late.
        let towards = |end: &str| {
            let read = |_: &str| Err("none".to_owned());
            let text = text(&format!("{slow}towards = \"{end}\"\n"));
            let scenario = Scenario::parse(&text, "pair", &read).map_err(|it| it.reason)?;
            let outcome = run(&scenario, 1).expect("a run");
            let late = outcome
                .flows
                .iter()
                .filter(|it| it.fct_ns > Some(5 * whole));
            Ok::<_, String>(late.map(|flow| flow.to.clone()).collect::<Vec<_>>())
        };
        assert_eq!(towards("h1"), Ok(vec!["h1".to_owned()]));
        assert_eq!(towards("h2"), Ok(vec!["h2".to_owned()]));
        let refused = towards("h3").expect_err("no such node");
        assert!(refused.contains("no node"), "{refused}");
        let half = format!("{slow}until = \"10us\"\n");
        // What the link was given while it was slow still leaves slowly: ten times 10 µs.
        let half = time(&half);
        assert!(half < 3 * whole, "it ends: {half} {whole}");
        for part in ["0.0", "1.0", "2.5"] {
            let fault = slow.replace("0.1", part);
            let refused = Scenario::parse(&text(&fault), "pair", &|_| Err(String::new()));
            let reason = refused.expect_err("no part").reason;
            assert!(reason.contains("is not from 0.0001"), "{reason}");
        }
    }

    /// Full packets leave as fast as a link takes them, with Ethernet's framing and without it.
    #[test]
    fn framing_takes_its_time() {
        let time = |framing: u64| {
            let text = format!(
                "[topology]\nkind = \"pair\"\nframing = {framing}\n[[workload]]\nkind = \"permutation\"\nsize = \"4MB\"\n"
            );
            let read = |_: &str| Err("none".to_owned());
            let scenario = Scenario::parse(&text, "pair", &read).expect("a scenario");
            let nanos = run(&scenario, 1).expect("a run").duration_ns;
            u32::try_from(nanos).map(f64::from).expect("short")
        };
        // A packet of 4 KiB has 74 bytes of headers.
        let bytes = |framing: f64| 4096.0 + 74.0 + framing;
        let ratio = time(0) / time(24);
        assert!((ratio - bytes(0.0) / bytes(24.0)).abs() < 0.001, "{ratio}");
        let ratio = time(1000) / time(24);
        assert!(
            (ratio - bytes(1000.0) / bytes(24.0)).abs() < 0.005,
            "{ratio}"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = |only: &str| Comparison::load(folder.path(), None, None, only);
        assert!(load("").expect_err("empty").contains("no matrix"));
        let file = folder.path().join("a.cm");
        std::fs::write(&file, "Nodes 5000\n").expect("written");
        let refused = |file: &Path| load("").expect("a matrix").scenario(file);
        let error = refused(&file).expect_err("too many");
        assert!(error.contains("too many hosts"), "{error}");
        std::fs::write(&file, "0->1 start 0 size 1\n").expect("written");
        let error = refused(&file).expect_err("no nodes");
        assert!(error.contains("Nodes N is missing"), "{error}");
        std::fs::write(&file, "Nodes 4\n0->9 start 0 size 1\n").expect("written");
        let error = refused(&file).expect_err("no such host");
        assert!(error.contains("line 2: host 9 does not exist"), "{error}");
        std::fs::write(folder.path().join("figures.toml"), "\"a.cm\" = \"x\"\n").expect("written");
        assert!(load("").expect_err("no number").contains("is no number"));
    }
}
