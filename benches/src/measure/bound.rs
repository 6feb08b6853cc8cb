//! Bounds, and what a measurement says about them.

use super::statistics::Interval;
use serde::Serialize;
use std::fmt;

/// What a figure has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It must not be below this.
    AtLeast(f64),
    /// It must not be above this.
    AtMost(f64),
}

/// What a measurement says about a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval keeps the bound.
    Holds,
    /// The whole interval lies beyond the bound: the program is too slow.
    Fails,
    /// The bound lies inside of the interval, or there were too few rounds: the machine is too
    /// noisy to tell.
    Undecided,
}

impl Bound {
    /// Judges the true value by the interval in which it is.
    pub fn judge(self, interval: Option<Interval>) -> Verdict {
        let Some(Interval { low, high }) = interval else {
            return Verdict::Undecided;
        };
        let (holds, fails) = match self {
            Self::AtLeast(least) => (low >= least, high < least),
            Self::AtMost(most) => (high <= most, low > most),
        };
        match (holds, fails) {
            (true, _) => Verdict::Holds,
            (_, true) => Verdict::Fails,
            _ => Verdict::Undecided,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::Fails => "FAILS",
            Self::Undecided => "undecided",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(bound: Bound, low: f64, high: f64) -> Verdict {
        bound.judge(Some(Interval { low, high }))
    }

    #[test]
    fn only_a_whole_interval_decides() {
        let least = Bound::AtLeast(0.9);
        assert_eq!(judge(least, 0.9, 1.0), Verdict::Holds);
        assert_eq!(judge(least, 0.89, 1.0), Verdict::Undecided);
        assert_eq!(judge(least, 0.8, 0.9), Verdict::Undecided);
        assert_eq!(judge(least, 0.8, 0.89), Verdict::Fails);
        let most = Bound::AtMost(5.0);
        assert_eq!(judge(most, 4.0, 5.0), Verdict::Holds);
        assert_eq!(judge(most, 4.0, 5.1), Verdict::Undecided);
        assert_eq!(judge(most, 5.0, 6.0), Verdict::Undecided);
        assert_eq!(judge(most, 5.1, 6.0), Verdict::Fails);
        assert_eq!(most.judge(None), Verdict::Undecided);
    }
}
