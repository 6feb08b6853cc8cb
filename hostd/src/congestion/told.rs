//! What the newest congestion signals say of the paths of a controller (CS-10): how much of the
//! worst link is free, and the longest time in a device.
//!
//! The two come in turns, so each is kept for itself, and counts until it is too old. A neutral
//! value, which no device replaced, says that all of them are idle or that none of them writes. So
//! it counts beside a value that a device wrote; alone, only until a queue shows that nobody does.

use super::pipe::span;
use crate::stats::PathSignal;
use common::time::{Span, Time};
use common::wire::csig::Signal;

/// One part of a whole share.
const MILLIONTH: f64 = 1e-6;

/// Round trips for which a signal counts; below a packet in a round trip, packets.
const FRESH: f64 = 8.0;

/// How old a signal may be for a `window` of packets whose round trip takes so many ns.
pub(super) fn age(round_trip: f64, window: f64) -> Span {
    span(FRESH * round_trip / window.min(1.0))
}

#[derive(Clone, Copy, Debug)]
struct Value {
    value: f64,
    is_neutral: bool,
    at: Time,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Share of the capacity, 0 to 1.
    free: Option<Value>,
    /// Nanoseconds.
    delay: Option<Value>,
    /// When a value last came that a device wrote.
    written: Option<Time>,
    /// There was a queue that nobody wrote of.
    doubted: bool,
}

impl Told {
    /// Takes a signal; `speed`: that of the own line in bytes a nanosecond, zero if it is not
    /// known.
    #[expect(clippy::cast_precision_loss, reason = "rates, shares and short times")]
    pub(super) fn take(&mut self, read: &PathSignal, speed: f64) {
        let number = read.last as f64;
        let value = |value| {
            Some(Value {
                value,
                is_neutral: read.is_neutral,
                at: read.at,
            })
        };
        match read.signal {
            Signal::AvailableBandwidth if read.is_neutral => self.free = value(1.0),
            Signal::AvailableBandwidth if speed > 0.0 => {
                self.free = value((number / 8e9 / speed).min(1.0));
            }
            Signal::AvailableBandwidth => {}
            Signal::AvailableShare => self.free = value((number * MILLIONTH).min(1.0)),
            Signal::Delay => self.delay = value(number),
        }
        if !read.is_neutral {
            self.written = Some(read.at);
            self.doubted = false;
        }
    }

    /// The share of the worst link that is free, if that came at most `age` ago.
    pub(super) fn free(&self, age: Span, now: Time) -> Option<f64> {
        let free = self.free.filter(|free| now.since(free.at) <= age)?;
        (!free.is_neutral || !self.doubted).then_some(free.value)
    }

    /// The longest time in a device in nanoseconds, if that came at most `age` ago and devices
    /// write at all.
    pub(super) fn delay(&self, age: Span, now: Time) -> Option<f64> {
        let delay = self.delay.filter(|delay| now.since(delay.at) <= age)?;
        let writes = self.written.is_some_and(|at| now.since(at) <= age);
        writes.then_some(delay.value)
    }

    /// There is a queue, and no device says so.
    pub(super) fn doubt(&mut self) {
        self.doubted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::signal;
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000 + micros * 1_000)
    }

    const AGE: Span = Span::from_micros(100);

    fn near(told: Option<f64>, expected: f64) -> bool {
        told.is_some_and(|told| (told - expected).abs() < 1e-9)
    }

    /// CS-10: share and delay are kept apart, each until it is too old, and a bandwidth counts as a
    /// share of the own line.
    #[test]
    fn signals_are_kept_apart_and_grow_old() {
        let mut told = Told::default();
        assert_eq!(
            (told.free(AGE, at(0)), told.delay(AGE, at(0))),
            (None, None)
        );
        told.take(&signal(Signal::AvailableShare, 250_000, at(0)), 12.5);
        told.take(&signal(Signal::Delay, 7_000, at(50)), 12.5);
        assert!(near(told.free(AGE, at(100)), 0.25));
        assert!(near(told.delay(AGE, at(100)), 7_000.0));
        assert_eq!(told.free(AGE, at(101)), None, "the share is old");
        assert!(near(told.delay(AGE, at(101)), 7_000.0));
        told.take(
            &signal(Signal::AvailableBandwidth, 10_000_000_000, at(110)),
            12.5,
        );
        assert!(near(told.free(AGE, at(120)), 0.1));
        told.take(
            &signal(Signal::AvailableBandwidth, 5_000_000_000, at(120)),
            0.0,
        );
        assert!(near(told.free(AGE, at(130)), 0.1), "of an unknown line");
    }

    /// CS-9, CS-10: where no device writes there is no delay to go by, and the neutral share is not
    /// believed once there was a queue. A value of a device ends that.
    #[test]
    fn neutral_values_are_doubted() {
        let neutral = |kind, value, at| PathSignal {
            is_neutral: true,
            ..signal(kind, value, at)
        };
        let mut told = Told::default();
        told.take(&neutral(Signal::AvailableShare, 990_000, at(0)), 12.5);
        told.take(&neutral(Signal::Delay, 0, at(1)), 12.5);
        assert_eq!(told.delay(AGE, at(2)), None);
        assert!(near(told.free(AGE, at(2)), 0.99));
        told.doubt();
        assert_eq!(told.free(AGE, at(2)), None);
        told.take(&signal(Signal::AvailableShare, 900_000, at(3)), 12.5);
        assert!(near(told.delay(AGE, at(4)), 0.0), "idle, and they write");
        told.take(&neutral(Signal::AvailableShare, 990_000, at(5)), 12.5);
        assert!(near(told.free(AGE, at(6)), 0.99));
    }
}
