//! What a bench measures: groups of contenders that take turns, and the figures that follow from
//! them.

use super::bound::Bound;
use serde::{Deserialize, Serialize};

/// Something whose contenders can be measured, one turn at a time.
pub trait Subject {
    /// The groups, the same from first to last.
    fn groups(&self) -> &[Group];

    /// Measures one contender once: 25 to 300 ms of work where that can be, in the unit of its
    /// group.
    ///
    /// # Errors
    /// What went wrong, among it what is checked exactly: a lost packet, an allocation on the
    /// packet path.
    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String>;

    /// Measures the contenders of a group one after the other, in the order given; their values in
    /// the same order.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    fn pass(&mut self, group: usize, order: &[usize]) -> Result<Vec<f64>, String> {
        order
            .iter()
            .map(|contender| self.turn(group, *contender))
            .collect()
    }

    /// Sentences for the reader of a group's results.
    fn notes(&self, _group: usize) -> Vec<String> {
        Vec::new()
    }

    /// The last exact checks, and tear-down. Called once, also after an error.
    ///
    /// # Errors
    /// What a check found, or what could not be torn down.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Which values of a group are good ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Low ones, such as nanoseconds a packet.
    Low,
    /// High ones, such as packets a second.
    High,
}

/// Contenders that take turns.
#[derive(Clone, Debug)]
pub struct Group {
    /// What is measured.
    pub title: String,
    /// Unit of the contenders' values.
    pub unit: String,
    /// Which values are good.
    pub better: Better,
    /// Names of the contenders.
    pub contenders: Vec<String>,
    /// What follows from their values.
    pub figures: Vec<Figure>,
}

/// A figure that each round gives anew: a quotient of two sums over the contenders' values of that
/// round.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it says.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// The numerator.
    pub of: Vec<Term>,
    /// The denominator; empty for 1.
    pub to: Vec<Term>,
    /// What it has to keep; a figure without a bound is shown and not judged.
    pub bound: Option<Bound>,
}

/// A contender's share in a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// Its place in the group.
    pub contender: usize,
    /// What its value is multiplied with.
    pub weight: f64,
}

impl Group {
    /// A group that shows each contender as a ratio to the first, without bounds.
    pub fn beside_first(
        title: impl Into<String>,
        unit: &str,
        better: Better,
        contenders: &[&str],
    ) -> Self {
        let figures = (1..contenders.len()).map(|one| Figure::ratio(contenders, one, 0, None));
        Self {
            title: title.into(),
            unit: unit.to_owned(),
            better,
            contenders: contenders.iter().map(|&name| name.to_owned()).collect(),
            figures: figures.collect(),
        }
    }
}

impl Figure {
    /// Contender `one` as a ratio to contender `other`.
    pub fn ratio<S: AsRef<str>>(
        contenders: &[S],
        one: usize,
        other: usize,
        bound: Option<Bound>,
    ) -> Self {
        let (name, base) = (contenders[one].as_ref(), contenders[other].as_ref());
        Self {
            name: format!("{name} ÷ {base}"),
            unit: "",
            of: vec![Term::of(one)],
            to: vec![Term::of(other)],
            bound,
        }
    }

    /// Its value in a round, from the contenders' values. None if that is no number.
    pub fn value(&self, round: &[f64]) -> Option<f64> {
        let sum = |terms: &[Term]| -> f64 {
            let parts = terms.iter().map(|term| round[term.contender] * term.weight);
            parts.sum()
        };
        let base = if self.to.is_empty() {
            1.0
        } else {
            sum(&self.to)
        };
        let value = sum(&self.of) / base;
        value.is_finite().then_some(value)
    }
}

impl Term {
    /// A contender's value as it is.
    pub fn of(contender: usize) -> Self {
        Self {
            contender,
            weight: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_quotients_of_sums() {
        let terms = |terms: &[(usize, f64)]| {
            let term = |&(contender, weight)| Term { contender, weight };
            terms.iter().map(term).collect::<Vec<_>>()
        };
        let mut figure = Figure {
            name: "net cost beside the reference".to_owned(),
            unit: "",
            of: terms(&[(0, 0.75), (1, 0.25), (2, -1.0)]),
            to: terms(&[(3, 2.0)]),
            bound: None,
        };
        let round = [8.0, 4.0, 1.0, 3.0];
        assert_eq!(figure.value(&round), Some(1.0));
        assert_eq!(figure.value(&[8.0, 4.0, 1.0, 0.0]), None);
        figure.to.clear();
        assert_eq!(figure.value(&round), Some(6.0));
    }

    #[test]
    fn contenders_are_shown_beside_the_first() {
        let group = Group::beside_first("speed", "M/s", Better::High, &["kept", "ours", "theirs"]);
        let names: Vec<_> = group.figures.iter().map(|figure| &figure.name).collect();
        assert_eq!(names, ["ours ÷ kept", "theirs ÷ kept"]);
        assert_eq!(group.figures[1].value(&[2.0, 8.0, 3.0]), Some(1.5));
    }
}
