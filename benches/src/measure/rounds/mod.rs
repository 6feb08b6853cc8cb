//! Rounds: who is measured when, and how many rounds there are.
//!
//! ```text
//!   round 1   A B C C B A
//!   round 2   B C A A C B
//!   …
//! ```
//!
//! Each contender is measured twice in a round, and its value is the mean of the two: a steady
//! drift cancels. A round gives one ratio for each pair, however fast the machine was during it.
//!
//! After [`ROUNDS_FIRST`] rounds, and whenever their number has doubled, every bound is judged by
//! the interval of its median. Measuring ends when all are decided, or when the time is up. Every
//! look can be wrong, so each may be wrong with a probability of [`ERROR`] / [`LOOKS`] only: all
//! looks together are wrong with a probability of at most [`ERROR`] (Bonferroni).

use super::bound::Verdict;
use super::statistics::{Interval, median, median_interval};
use super::subject::{Figure, Group, Subject};
use std::time::Duration;

/// Probability that an interval misses what it should contain, all looks of a run together.
pub const ERROR: f64 = 0.01;

/// Looks at most: after 12, 24, … 384 rounds and when the time is up.
pub const LOOKS: u32 = 7;

/// Rounds before the first look: the fewest that give an interval (11) fit in.
pub const ROUNDS_FIRST: usize = 12;

/// Rounds at most.
pub const ROUNDS_MAX: usize = ROUNDS_FIRST << (LOOKS - 2);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Exactly so many rounds; without it, as many as the verdicts need.
    pub rounds: Option<usize>,
    /// No round of a group begins after this time, whatever is decided by then.
    pub seconds: Duration,
    /// Go on until each figure is known to this share of its value, too.
    pub precision: Option<f64>,
}

/// What the rounds of a group gave.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// For each round the contenders' values.
    pub values: Vec<Vec<f64>>,
    /// How long they took, without the round to warm up.
    pub elapsed: Duration,
}

/// What is known of a figure.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its value in each round.
    pub samples: Vec<f64>,
    /// Their median; zero of none.
    pub median: f64,
    /// The interval that contains the true median, if there were enough rounds.
    pub interval: Option<Interval>,
    /// What it says about the bound, if there is one.
    pub verdict: Option<Verdict>,
}

/// The order of the first half of a round; the second half is its reverse.
pub fn order(contenders: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..contenders).collect();
    order.rotate_left(round % contenders.max(1));
    order
}

/// Measures group number `group` of `subject`, after one round to warm up. `clock` is any clock,
/// `watch` is told after each round how many there were.
///
/// # Errors
/// The first error of a turn.
pub fn measure(
    subject: &mut dyn Subject,
    group: usize,
    plan: &Plan,
    clock: &mut dyn FnMut() -> Duration,
    watch: &mut dyn FnMut(usize),
) -> Result<Rounds, String> {
    let facts = subject.groups()[group].clone();
    round(subject, group, &facts, 0)?;
    let began = clock();
    let mut rounds = Rounds {
        values: Vec::new(),
        elapsed: Duration::ZERO,
    };
    while !rounds.suffice(&facts, plan) {
        let values = round(subject, group, &facts, rounds.values.len())?;
        rounds.values.push(values);
        rounds.elapsed = clock() - began;
        watch(rounds.values.len());
    }
    Ok(rounds)
}

fn round(
    subject: &mut dyn Subject,
    group: usize,
    facts: &Group,
    number: usize,
) -> Result<Vec<f64>, String> {
    let mut order = order(facts.contenders.len(), number);
    let mut values = vec![0.0; order.len()];
    for _ in 0..2 {
        let pass = subject.pass(group, &order)?;
        for (contender, value) in order.iter().zip(pass) {
            values[*contender] += value / 2.0;
        }
        order.reverse();
    }
    Ok(values)
}

impl Rounds {
    /// Whether no more rounds are needed, or allowed.
    fn suffice(&self, group: &Group, plan: &Plan) -> bool {
        let count = self.values.len();
        if let Some(wanted) = plan.rounds {
            return count >= wanted;
        }
        if self.elapsed >= plan.seconds || count >= ROUNDS_MAX {
            return true;
        }
        let look = count
            .checked_div(ROUNDS_FIRST)
            .is_some_and(|times| times.is_power_of_two() && times * ROUNDS_FIRST == count);
        look && group.figures.iter().all(|figure| {
            let known = self.known(figure);
            let narrow = |precision| {
                let interval = known.interval;
                interval.is_some_and(|interval| interval.half_width(known.median) <= precision)
            };
            known.verdict != Some(Verdict::Undecided) && plan.precision.is_none_or(narrow)
        })
    }

    /// The values of a contender.
    pub fn of_contender(&self, contender: usize) -> Known {
        Known::new(self.values.iter().map(|round| round[contender]).collect())
    }

    /// What is known of a figure.
    pub fn known(&self, figure: &Figure) -> Known {
        let values = self.values.iter().filter_map(|round| figure.value(round));
        let mut known = Known::new(values.collect());
        known.verdict = figure.bound.map(|bound| bound.judge(known.interval));
        known
    }
}

impl Known {
    fn new(samples: Vec<f64>) -> Self {
        Self {
            median: median(&samples).unwrap_or(0.0),
            interval: median_interval(&samples, ERROR / f64::from(LOOKS)),
            verdict: None,
            samples,
        }
    }
}

#[cfg(test)]
mod tests;
