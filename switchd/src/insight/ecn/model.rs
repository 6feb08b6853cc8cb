//! The table of known scenarios: a text that anybody can read, and that `fabric twin train` makes.
//!
//! ```toml
//! format = 1
//! radius = 0.5
//! [[scenario]]
//! name = "8 writers at 100 Gb/s"
//! kmin_bdp = 0.125
//! kmax_bdp = 0.5
//! pmax_percent = 100.0
//! seen = [
//!     # Kmax in force, utilisation, queue, marked, degree, flows, evenness
//!     [0.25, 0.967, 0.07, 0.04, 8.0, 8.3, 0.9],
//! ]
//! ```
//!
//! A scenario looks different under different thresholds, so it has a row for each Kmax that was in
//! force when it was seen.

use super::features::{FEATURES, Features, distance};
use super::thresholds::Thresholds;
use crate::tables::wred::ONE;
use common::config::{ConfigError, Refusals, Settings, load_text, require};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The one that ships.
const SHIPPED: &str = include_str!("../../../../etc/aiecn.toml");

/// Rows of all scenarios at most: the nearest is looked for in all of them.
const ROWS: usize = 1024;

/// The format that is understood.
const FORMAT: u32 = 1;

/// Names of the features in messages and comments, in the order of a row.
const NAMES: &str = "Kmax in force, utilisation, queue, marked, degree, flows, evenness";

/// Values that features may have, in the order of a row.
const RANGES: [RangeInclusive<f64>; FEATURES] = [
    0.001..=1000.0,
    0.0..=1.0,
    0.0..=1e6,
    0.0..=1.0,
    0.0..=64.0,
    0.0..=1000.0,
    0.0..=1.0,
];

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    radius: f64,
    scenario: Vec<Scenario>,
}

/// A known scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What operators read.
    pub name: String,
    /// Its Kmin in bandwidth-delay products.
    pub kmin_bdp: f64,
    /// Its Kmax likewise.
    pub kmax_bdp: f64,
    /// Percentage that is marked just below Kmax.
    pub pmax_percent: f64,
    /// What it looked like: features, in the order of [`Features::row`].
    pub seen: Vec<[f64; FEATURES]>,
}

/// Known scenarios.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// A scenario is known if one of its rows is no farther.
    pub radius: f64,
    /// All of them.
    pub scenarios: Vec<Scenario>,
    /// Points of all rows, with the number of their scenario.
    points: Vec<([f64; FEATURES], usize)>,
}

impl Settings for File {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.require(
            self.format == FORMAT,
            "format",
            format_args!(
                "{} is not {FORMAT}, the one that is understood",
                self.format
            ),
        );
        refusals.require(
            (0.0..=10.0).contains(&self.radius),
            "radius",
            format_args!("{} is not within 0 to 10", self.radius),
        );
        let rows: usize = self.scenario.iter().map(|it| it.seen.len()).sum();
        refusals.require(
            (1..=ROWS).contains(&rows),
            "scenario",
            format_args!("{rows} rows of features in all; 1 to {ROWS} are possible"),
        );
        for (place, scenario) in self.scenario.iter().enumerate() {
            let key = |name: &str| format!("scenario[{place}].{name}");
            refusals.keep(scenario.check(&key));
            let mut before = self.scenario[..place].iter();
            refusals.require(
                before.all(|it| it.name != scenario.name),
                &key("name"),
                format_args!("{:?} is the name of another one, too", scenario.name),
            );
        }
        refusals.or(())
    }
}

impl Scenario {
    fn check(&self, key: &dyn Fn(&str) -> String) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(require(
            (1..=64).contains(&self.name.len()) && !self.name.contains(char::is_control),
            &key("name"),
            format_args!("{:?} is no name of 1 to 64 bytes", self.name),
        ));
        let (kmin, kmax, percent) = (self.kmin_bdp, self.kmax_bdp, self.pmax_percent);
        refusals.keep(require(
            (0.001..=1000.0).contains(&kmax),
            &key("kmax_bdp"),
            format_args!("{kmax} is not within 0.001 to 1000"),
        ));
        refusals.keep(require(
            (0.0..=kmax).contains(&kmin),
            &key("kmin_bdp"),
            format_args!("{kmin} is not within 0 and kmax_bdp, {kmax}"),
        ));
        refusals.keep(require(
            (0.0..=100.0).contains(&percent),
            &key("pmax_percent"),
            format_args!("{percent} is not within 0 to 100"),
        ));
        for (place, row) in self.seen.iter().enumerate() {
            let mut values = row.iter().zip(&RANGES);
            let wrong = values.position(|(value, range)| !range.contains(value));
            let names = NAMES.split(", ");
            if let Some((number, name)) = wrong.and_then(|it| names.enumerate().nth(it)) {
                let (value, range) = (row[number], &RANGES[number]);
                refusals.require(
                    false,
                    &key(&format!("seen[{place}][{number}]")),
                    format_args!(
                        "{name}: {value} is not within {} to {}",
                        range.start(),
                        range.end()
                    ),
                );
            }
        }
        refusals.or(())
    }

    /// Its thresholds where a bandwidth-delay product is `unit` bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "saturates"
    )]
    pub fn thresholds(&self, unit: u64) -> Thresholds {
        let bytes = |bdp: f64| (bdp * unit as f64).round() as u32;
        Thresholds {
            kmin: bytes(self.kmin_bdp),
            kmax: bytes(self.kmax_bdp).max(1),
            pmax: (self.pmax_percent / 100.0 * f64::from(ONE)).round() as u32,
        }
    }
}

impl Model {
    /// Reads a file; `path` is for messages.
    ///
    /// # Errors
    /// All that is wrong with it, with line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        // Nothing overrides a model: the prefix is of no variable.
        let file: File = load_text(text, path, "", std::iter::empty(), &[])?;
        Ok(Self::new(file.radius, file.scenario))
    }

    /// Of these scenarios.
    pub fn new(radius: f64, scenarios: Vec<Scenario>) -> Self {
        let points = scenarios.iter().enumerate().flat_map(|(number, it)| {
            let rows = it.seen.iter();
            rows.map(move |row| (Features::of_row(*row).point(), number))
        });
        Self {
            radius,
            points: points.collect(),
            scenarios,
        }
    }

    /// The one that ships.
    ///
    /// # Panics
    /// Never: a test reads it.
    pub fn shipped() -> Arc<Self> {
        static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| {
            let model = Model::parse(SHIPPED, Path::new("the model that ships"));
            Arc::new(model.expect("a test reads it"))
        });
        MODEL.clone()
    }

    /// The scenario with the nearest row, and how far it is; known or not.
    pub fn nearest(&self, features: &Features) -> Option<(&Scenario, f64)> {
        let point = features.point();
        let far = self
            .points
            .iter()
            .map(|(it, number)| (distance(it, &point), *number));
        let (far, number) = far.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((self.scenarios.get(number)?, far))
    }

    /// The scenario that these are features of, if it is known.
    pub fn known(&self, features: &Features) -> Option<&Scenario> {
        let (scenario, far) = self.nearest(features)?;
        (far <= self.radius).then_some(scenario)
    }

    /// The file, with `head` as a comment in front.
    pub fn to_toml(&self, head: &str) -> String {
        let mut text = String::new();
        for line in head.lines() {
            let _ = writeln!(text, "{}", format!("# {line}").trim_end());
        }
        let _ = writeln!(text, "format = {FORMAT}\nradius = {:?}", self.radius);
        for scenario in &self.scenarios {
            let _ = write!(
                text,
                "\n[[scenario]]\nname = {}\nkmin_bdp = {:?}\nkmax_bdp = {:?}\npmax_percent = {:?}\n\
                 seen = [\n    # {NAMES}\n",
                toml::Value::from(scenario.name.as_str()),
                scenario.kmin_bdp,
                scenario.kmax_bdp,
                scenario.pmax_percent
            );
            for row in &scenario.seen {
                let _ = writeln!(text, "    {row:?},");
            }
            text.push_str("]\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "format = 1\nradius = 0.5\n\
        [[scenario]]\nname = \"few\"\nkmin_bdp = 0.25\nkmax_bdp = 1.0\npmax_percent = 100.0\n\
        seen = [[1.0, 0.9, 0.1, 0.01, 2.0, 2.0, 1.0]]\n\
        [[scenario]]\nname = \"many\"\nkmin_bdp = 0.05\nkmax_bdp = 0.2\npmax_percent = 50.0\n\
        seen = [[1.0, 1.0, 0.5, 0.3, 32.0, 40.0, 1.0]]\n";

    fn parse(text: &str) -> Result<Model, ConfigError> {
        Model::parse(text, Path::new("m.toml"))
    }

    /// SW-24: the model that ships can be read, and is what is written.
    #[test]
    fn the_shipped_model_is_good() {
        let model = Model::shipped();
        let again = parse(&model.to_toml("made\n\nby a test")).unwrap();
        assert_eq!(again, *model);
        assert!(SHIPPED.starts_with("# "), "it says where it comes from");
    }

    /// SW-24: the nearest row decides, and what is far from all is not known.
    #[test]
    fn the_nearest_scenario_is_found() {
        let model = parse(GOOD).unwrap();
        let mut features = Features::of_row([1.0, 0.92, 0.12, 0.01, 2.0, 2.0, 1.0]);
        let found = model.known(&features).unwrap();
        assert_eq!(found.name, "few");
        let thresholds = found.thresholds(100_000);
        assert_eq!((thresholds.kmin, thresholds.kmax), (25_000, 100_000));
        features.in_force = 16.0;
        assert_eq!(model.known(&features), None);
        assert_eq!(model.nearest(&features).unwrap().0.name, "few");
    }

    /// SW-24: whatever is wrong with a model is refused with line and key.
    #[test]
    fn broken_models_are_refused_by_line_and_key() {
        let cases = [
            (
                "format = 1",
                "format = 2",
                "m.toml:1:",
                "format: 2 is not 1",
            ),
            ("radius = 0.5", "radius = -1.0", "m.toml:2:", "radius: -1"),
            ("radius = 0.5", "radius = nan", "m.toml:2:", "radius: NaN"),
            ("radius = 0.5", "radius = \"far\"", "m.toml:2:", "radius"),
            ("radius = 0.5", "", "m.toml", "radius: is missing"),
            ("radius = 0.5", "radios = 0.5", "m.toml:2:", "radios"),
            ("\"few\"", "\"\"", "m.toml:4:", "scenario[0].name"),
            (
                "\"few\"",
                "\"many\"",
                "m.toml:10:",
                "scenario[1].name: \"many\"",
            ),
            (
                "= 0.25",
                "= 1.25",
                "m.toml:5:",
                "scenario[0].kmin_bdp: 1.25",
            ),
            (
                "= 0.2\n",
                "= 2000.0\n",
                "m.toml:12:",
                "scenario[1].kmax_bdp",
            ),
            (
                "= 50.0",
                "= 150.0",
                "m.toml:13:",
                "scenario[1].pmax_percent",
            ),
            (
                "0.1, 0.01",
                "0.1, 7.0",
                "m.toml:8:",
                "scenario[0].seen[0][3]: marked",
            ),
            ("[[1.0, 0.9", "[[0.9", "m.toml:8:", "scenario[0].seen"),
            ("name = \"few\"", "name = \"few", "m.toml:4:", ""),
        ];
        for (from, to, line, key) in cases {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(line), "{to}: {error}");
            assert!(error.contains(key), "{to}: {error}");
        }
        let error = parse("format = 1\nradius = 0.5\nscenario = []\n").unwrap_err();
        assert!(error.to_string().contains("0 rows"), "{error}");
        let row = "[1.0, 0.9, 0.1, 0.01, 2.0, 2.0, 1.0],".repeat(ROWS);
        let text = GOOD.replacen("seen = [", &format!("seen = [{row}"), 1);
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("1026 rows"), "{error}");
        assert!(parse("").is_err());
    }
}
