//! What was done about the traffic since it is what it is, and what that did to the line.

use super::super::features::Features;
use super::super::search::NO_MARKS;
use super::super::thresholds::Thresholds;

/// Times that the model is asked about the same traffic at most.
const CORRECTIONS: usize = 3;

/// Part of the throughput whose loss makes thresholds larger again. It is a little more than what
/// the model gives up for a shorter queue: traffic that is like a scenario is not the same.
const LOSS: f64 = 0.025;

/// Times that a line is looked at again which is used less than before, as long as it is used more
/// each time by this part: senders that suddenly get more marks take a while to find their rates.
const PATIENCE: u32 = 4;
const BETTER: f64 = 0.002;

/// How the line is used, beside how it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As well.
    Good,
    /// Less, but more and more.
    Recovering,
    /// Less than with this larger Kmax.
    Short(u32),
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// Thresholds that were given up because the line was less used with them, and those that the
    /// model gave.
    pub(super) given: Vec<Thresholds>,
    /// The traffic has changed in a step: that is followed however much has changed before.
    pub(super) is_step: bool,
    /// Times that the model was asked.
    asked: usize,
    /// The most that the line was used, and Kmax then.
    most: Option<(u32, f64)>,
    /// How much it was used when it was looked at again, and how often it was.
    again: (f64, u32),
}

impl Course {
    /// It begins with a step of the load.
    pub(super) fn of_step(is_step: bool) -> Self {
        Self {
            is_step,
            ..Self::default()
        }
    }

    /// Whether the model may be asked.
    pub(super) const fn may_ask(&self) -> bool {
        self.asked < CORRECTIONS
    }

    /// These thresholds were given by the model, or are given up.
    pub(super) fn note(&mut self, thresholds: Thresholds) {
        self.given.push(thresholds);
        self.asked += 1;
        self.again = (0.0, 0);
    }

    /// The model has had another opinion for long: it may be asked once more.
    pub(super) fn ask_again(&mut self) {
        self.asked = self.asked.min(CORRECTIONS - 1);
    }

    /// Whether the line is used less under `kmax` than it was with a larger one; differences by
    /// less than the part `chance` may mean nothing.
    pub(super) fn is_short(&self, kmax: u32, mean: &Features, chance: f64) -> bool {
        let Some((before, most)) = self.most else {
            return false;
        };
        let is_less = mean.utilisation < most * (1.0 - LOSS.max(chance));
        is_less && mean.marked >= NO_MARKS && before > kmax && self.may_ask()
    }

    /// How the line is used under `kmax`; differences by less than the part `chance` may mean
    /// nothing.
    pub(super) fn judge(&mut self, kmax: u32, mean: &Features, chance: f64) -> Verdict {
        let used = mean.utilisation;
        let (before, most) = *self.most.get_or_insert((kmax, used));
        if used >= most {
            self.most = Some((kmax, used));
        }
        if !self.is_short(kmax, mean, chance) {
            return Verdict::Good;
        }
        let (last, times) = self.again;
        self.again = (used, times + 1);
        if times < PATIENCE && used > last * (1.0 + BETTER) {
            Verdict::Recovering
        } else {
            Verdict::Short(before)
        }
    }
}
