//! Where a queue marks, and the bounds that nothing may leave.

use crate::limits::{CELL, CLASSES};
use crate::tables::policy::{GroupPolicy, Policy};
use crate::tables::wred::{Curve, ONE};
use crate::traffic::buffer::Ledger;
use std::fmt;

/// Values of Kmax that are tried and trained, in bandwidth-delay products: powers of two.
pub const LADDER: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// The least Kmax: a page of payload.
const LEAST: u64 = 4096;

/// The part of what a group may hold before its peer is paused that marks may wait for: the rest
/// is for what arrives until senders react.
const PART: (u64, u64) = (4, 5);

/// Where a queue marks: none below `kmin`, all above `kmax`, in a line up to `pmax` between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Bytes.
    pub kmin: u32,
    /// Bytes.
    pub kmax: u32,
    /// Probability at `kmax`, in parts of 2¹⁶.
    pub pmax: u32,
}

impl Thresholds {
    /// Those of a curve.
    pub const fn of(curve: Curve) -> Self {
        match curve {
            Curve::Linear { kmin, kmax, pmax } => Self { kmin, kmax, pmax },
            Curve::Deterministic { threshold } => Self {
                kmin: threshold,
                kmax: threshold,
                pmax: ONE,
            },
        }
    }

    /// The curve with them.
    pub const fn curve(self) -> Curve {
        if self.kmin == self.kmax {
            Curve::Deterministic {
                threshold: self.kmax,
            }
        } else {
            Curve::Linear {
                kmin: self.kmin,
                kmax: self.kmax,
                pmax: self.pmax,
            }
        }
    }

    /// The same shape with another `kmax`.
    #[must_use]
    pub fn at(self, kmax: u32) -> Self {
        let kmin = u64::from(self.kmin) * u64::from(kmax) / u64::from(self.kmax.max(1));
        Self {
            kmin: u32::try_from(kmin).unwrap_or(kmax).min(kmax),
            kmax,
            ..self
        }
    }

    /// Whether another one is nearly the same: nobody could tell the difference.
    pub fn is_like(self, other: Self) -> bool {
        let near = |a: u32, b: u32| {
            let (low, high) = (u64::from(a.min(b)), u64::from(a.max(b)));
            high * 8 <= low * 9
        };
        near(self.kmax, other.kmax) && near(self.kmin.max(1), other.kmin.max(1))
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.pmax) * 100.0 / f64::from(ONE);
        write!(f, "{} to {} bytes, {percent:.0} %", self.kmin, self.kmax)
    }
}

/// What thresholds of a queue have to keep to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// `kmin` is at least this: no threshold lies below a guarantee (SW-10).
    pub floor: u32,
    /// `kmax` is at most this: below 0.8 of the xoff of each group that feeds the queue, which is
    /// fixed or what a dynamic threshold leaves now, and below the sum of all xoff (SW-11).
    pub ceiling: u32,
}

impl Bounds {
    /// Those of queue `class` of a port, as the buffer stands.
    pub fn of(policy: &Policy, ledger: &Ledger, port: usize, class: usize) -> Self {
        let ceiling = Self::ceiling_of(policy, ledger, class);
        Self::below(ceiling, policy, port, class)
    }

    /// Those of queue `class` of a port under a ceiling that is known: all ports have the same.
    pub(super) fn below(ceiling: u32, policy: &Policy, port: usize, class: usize) -> Self {
        let queue = policy.ports.get(port);
        let guaranteed = queue.map_or(0, |it| it.queues[class % CLASSES].guaranteed);
        Self {
            floor: bytes(u64::from(guaranteed) * CELL as u64),
            ceiling,
        }
    }

    /// The ceiling of queues `class` of all ports, as the buffer stands. It asks the groups of
    /// all ports.
    pub(super) fn ceiling_of(policy: &Policy, ledger: &Ledger, class: usize) -> u32 {
        let count = policy.feeders(class).count() as u64;
        let service = u64::from(policy.regions.service);
        let cell = CELL as u64;
        let sum: u64 = policy
            .feeders(class)
            .map(|it| it.xoff(count, service) * cell)
            .sum();
        let first = policy
            .feeders(class)
            .map(|group| marks_by(policy, ledger, group) * cell)
            .min();
        bytes(first.unwrap_or(0).min(sum).saturating_sub(1))
    }

    /// Whether thresholds keep to them.
    pub const fn hold(self, thresholds: Thresholds) -> bool {
        thresholds.kmin >= self.floor && thresholds.kmax <= self.ceiling
    }

    /// The nearest thresholds that keep to them; `None`: there are none.
    pub fn nearest(self, thresholds: Thresholds) -> Option<Thresholds> {
        let least = self.floor.max(u32::try_from(LEAST).expect("small"));
        if least > self.ceiling {
            return None;
        }
        let kmax = thresholds.kmax.clamp(least, self.ceiling);
        let kmin = thresholds.kmin.min(kmax).max(self.floor);
        Some(Thresholds {
            kmin,
            kmax,
            ..thresholds
        })
    }
}

/// As thresholds have them.
fn bytes(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Cells that a group may hold before marks are to come.
fn marks_by(policy: &Policy, ledger: &Ledger, group: &GroupPolicy) -> u64 {
    ledger.thresholds(policy, group).xoff * PART.0 / PART.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::policy::Limit;

    fn policy(limit: Limit, guaranteed: u32) -> Policy {
        let mut policy = Policy::plain(4, 100);
        for port in &mut policy.ports {
            port.groups[3].limit = limit;
            port.groups[3].headroom = 50;
            port.queues[3].guaranteed = guaranteed;
        }
        policy.divide(10_000, None).unwrap();
        policy
    }

    /// SW-24, SW-11: marks stay below 0.8 of the xoff of one group, fixed or as a dynamic threshold
    /// leaves it.
    #[test]
    fn bounds_follow_the_groups_that_feed_the_queue() {
        let cell = u32::try_from(CELL).unwrap();
        let fixed = policy(Limit::Static(1000), 20);
        let bounds = Bounds::of(&fixed, &Ledger::new(4, 1), 0, 3);
        assert_eq!(bounds.ceiling, 800 * cell - 1);
        assert_eq!(bounds.floor, 20 * cell);
        // Nobody holds anything: alpha 1/4 of the service region, 0.8 of that; all four together
        // would hold S / (4 + 4) each, half of S.
        let dynamic = policy(Limit::Dynamic(-2), 0);
        let service = u64::from(dynamic.regions.service);
        let bounds = Bounds::of(&dynamic, &Ledger::new(4, 1), 0, 3);
        let wanted = (service / 4 * 4 / 5) * CELL as u64 - 1;
        assert_eq!(u64::from(bounds.ceiling), wanted);
        // Nothing lossless feeds queue 2: there is no room for thresholds.
        let none = Bounds::of(&dynamic, &Ledger::new(4, 1), 0, 2);
        assert_eq!(none.ceiling, 0);
    }

    /// SW-24: what is outside is brought to the nearest thresholds inside.
    #[test]
    fn thresholds_are_brought_inside() {
        let bounds = Bounds {
            floor: 10_000,
            ceiling: 100_000,
        };
        let at = |kmin, kmax| Thresholds {
            kmin,
            kmax,
            pmax: ONE,
        };
        assert_eq!(bounds.nearest(at(20_000, 50_000)), Some(at(20_000, 50_000)));
        assert_eq!(bounds.nearest(at(1, 2)), Some(at(10_000, 10_000)));
        assert_eq!(
            bounds.nearest(at(50_000, 500_000)),
            Some(at(50_000, 100_000))
        );
        let narrow = Bounds {
            floor: 10,
            ceiling: 9,
        };
        assert_eq!(narrow.nearest(at(1, 2)), None);
        assert!(bounds.hold(at(10_000, 100_000)));
        assert!(!bounds.hold(at(9_999, 100_000)) && !bounds.hold(at(10_000, 100_001)));
    }

    /// SW-24: curves and thresholds are the same thing.
    #[test]
    fn thresholds_are_curves() {
        for curve in [
            Curve::Deterministic { threshold: 5 },
            Curve::Linear {
                kmin: 2,
                kmax: 9,
                pmax: 77,
            },
        ] {
            assert_eq!(Thresholds::of(curve).curve(), curve);
        }
        let thresholds = Thresholds {
            kmin: 25,
            kmax: 100,
            pmax: ONE,
        };
        assert_eq!(thresholds.at(400).kmin, 100);
        assert!(thresholds.is_like(thresholds.at(110)));
        assert!(!thresholds.is_like(thresholds.at(120)));
        assert_eq!(thresholds.to_string(), "25 to 100 bytes, 100 %");
    }
}
