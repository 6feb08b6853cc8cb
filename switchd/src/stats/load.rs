//! The load of an egress port (CS-4), as its worker measures it. Control finds out what it is now
//! from what was measured last, in the same way.
//!
//! - **window**: bits since the last measurement, once that is at least the window ago.
//! - **ewma**: each stretch between two turns weighs as much as it lasted, against the window.
//! - **dre**: a register of bytes that loses a part of itself in each such part of the window.

use crate::tables::csig::{Estimator, Measure};
use common::csig::WHOLE;
use common::time::{Span, Time};
use common::units::Rate;

/// Times in a window that a discounting estimator forgets, and the part of its register that it
/// forgets each time: CONGA's α is one of it. What it finds goes up and down by that part.
const DISCOUNTS: u64 = 64;

/// What was measured last. It can be told to others in words, so that they find out what it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// When it was measured.
    pub since: Time,
    /// Bytes of line time sent until then, since the port began.
    pub sent: u64,
    /// Bytes a nanosecond; bytes in the register of the discounting estimator.
    pub level: f64,
}

impl Load {
    /// Goes on to `now`, until when the port has sent `sent` bytes. Whether anything was measured.
    #[expect(
        clippy::cast_precision_loss,
        reason = "bytes and nanoseconds of a window are far below 2^52"
    )]
    pub fn advance(&mut self, measure: Measure, now: Time, sent: u64) -> bool {
        let Measure {
            estimator: how,
            window,
        } = measure;
        let passed = now.since(self.since).nanos();
        let bytes = sent.saturating_sub(self.sent) as f64;
        match how {
            Estimator::Window => {
                if passed < window.nanos() {
                    return false;
                }
                self.level = bytes / passed as f64;
                self.since = now;
            }
            Estimator::Ewma => {
                if passed == 0 {
                    return false;
                }
                let passed = passed as f64;
                let weight = passed / (passed + window.nanos() as f64);
                self.level += (bytes / passed - self.level) * weight;
                self.since = now;
            }
            Estimator::Dre => {
                let step = (window.nanos() / DISCOUNTS).max(1);
                let steps = passed / step;
                if steps == 0 && bytes == 0.0 {
                    return false;
                }
                let kept = 1.0 - 1.0 / DISCOUNTS as f64;
                let times = i32::try_from(steps).unwrap_or(i32::MAX);
                // What was sent was sent in between.
                self.level = self.level * kept.powi(times) + bytes * kept.powi(times / 2);
                self.since += Span::from_nanos(steps * step);
            }
        }
        self.sent = sent;
        true
    }

    /// Bits a second.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no rate is negative, and what is too large is the largest"
    )]
    pub fn rate(&self, measure: Measure) -> u64 {
        let bytes_a_nanosecond = match measure.estimator {
            Estimator::Window | Estimator::Ewma => self.level,
            Estimator::Dre => self.level / measure.window.nanos() as f64,
        };
        (bytes_a_nanosecond * 8e9).round() as u64
    }
}

/// Bits a second that are available at a port of this capacity, and their share of it in parts of
/// [`WHOLE`].
pub fn available(capacity: Rate, used: u64) -> (u64, u64) {
    let bits = capacity.bps().saturating_sub(used);
    let share = u128::from(bits) * u128::from(WHOLE) / u128::from(capacity.bps().max(1));
    (bits, u64::try_from(share).unwrap_or(WHOLE))
}
