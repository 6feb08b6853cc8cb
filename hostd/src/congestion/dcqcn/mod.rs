//! DCQCN (Zhu et al., SIGCOMM 2015; CC-1), its reaction point: a rate that notifications of
//! congestion cut, and that comes back by time and by bytes.
//!
//! ```text
//!   notified       target = rate, rate less by α/2, α grows        all counts begin anew
//!   55 µs without  α shrinks
//!   55 µs, 10 MB   a step: fast recovery   before 5 steps of either:     halfway to the target
//!                          additive        then:                         target + 1/1000 of line
//!                          hyper           after 5 steps of both:        target + 1/100 of line
//! ```
//!
//! A plain peer notifies with CNPs. With multipath the acknowledgements tell of marks, and the
//! notification point is here: the first mark in an interval notifies, and so does a trim. Losses
//! say nothing, as in the paper: the network is to lose nothing for lack of room.
//!
//! A flow begins at the speed of the line, without a limit. The first notification puts one on it,
//! with α = 1; it ends when the rate is back at that of the line. Notifications that come sooner
//! than a peer may send them change nothing, and the rate never falls below 1/1024 of the line, so
//! forged ones slow a flow no further.
//!
//! Rates are in bits per second; α is a fixed-point number.

use super::FixedWindow;
use super::pace::Pace;
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// α = 1.
const WHOLE: u64 = 1 << 20;

/// The weight g of a new value in α: 1/256.
const GAIN_SHIFT: u32 = 8;

/// Bytes of a step.
const STEP: u64 = 10_000_000;

/// Steps of fast recovery (F).
const FAST: u32 = 5;

/// Parts of the line's rate that a step adds: 40 Mb/s at 40 Gb/s, as in the paper, and ten times
/// that.
const ADDITIVE: u64 = 1_000;
const HYPER: u64 = 100;

/// The least rate, as part of the line's.
const LEAST: u64 = 1_024;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Dcqcn {
    window: FixedWindow,
    /// Least time between two notifications of a flow (N).
    interval: Span,
    /// Bits per second of the line; zero: not known.
    line: u64,
    /// When a notification last counted.
    notified: Option<Time>,
    limit: Option<Limit>,
}

/// The limit of a flow that was notified.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// R_C and R_T.
    rate: u64,
    target: u64,
    alpha: u64,
    /// When α shrinks, and when the next step by time is.
    decay_at: Time,
    step_at: Time,
    /// Bytes sent since the last step by bytes.
    bytes: u64,
    /// Steps by time and by bytes.
    steps: [u32; 2],
    pace: Pace,
}

impl Limit {
    fn new(line: u64, now: Time) -> Self {
        Self {
            rate: line,
            target: line,
            alpha: WHOLE,
            decay_at: now,
            step_at: now,
            bytes: 0,
            steps: [0; 2],
            pace: Pace::new(line, now),
        }
    }

    fn set_rate(&mut self, rate: u64, now: Time) {
        self.rate = rate;
        self.pace.set_rate(rate, now);
    }

    fn cut(&mut self, line: u64, period: Span, now: Time) {
        self.target = self.rate;
        let part = u128::from(self.rate) * u128::from(self.alpha) / u128::from(2 * WHOLE);
        let part = u64::try_from(part).unwrap_or(self.rate);
        self.set_rate((self.rate - part).max(least(line)), now);
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (WHOLE >> GAIN_SHIFT);
        self.steps = [0; 2];
        self.bytes = 0;
        self.decay_at = now + period;
        self.step_at = now + period;
    }

    /// A step by time (0) or by bytes (1).
    fn step(&mut self, by: usize, line: u64, now: Time) {
        self.steps[by] = self.steps[by].saturating_add(1);
        let [less, more] = [
            self.steps[0].min(self.steps[1]),
            self.steps[0].max(self.steps[1]),
        ];
        if less > FAST {
            self.target += line / HYPER;
        } else if more >= FAST {
            self.target += line / ADDITIVE;
        }
        self.target = self.target.min(line);
        self.set_rate((self.rate + self.target).div_ceil(2), now);
    }

    /// Whether the rate is that of the line but for what a step adds.
    fn is_over(&self, line: u64) -> bool {
        self.rate + line / ADDITIVE >= line
    }
}

/// The least rate on a line.
fn least(line: u64) -> u64 {
    (line / LEAST).max(1)
}

impl Dcqcn {
    /// At most `window` packets in flight. `interval`: the least time between two notifications of
    /// a flow. Steps take a tenth more, as in the paper, so that what comes back in an interval is
    /// the same part of the line whatever the interval is.
    pub(crate) fn new(window: u32, interval: Span) -> Self {
        Self {
            window: FixedWindow::new(window),
            interval,
            line: 0,
            notified: None,
            limit: None,
        }
    }

    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window.window()
    }

    /// The speed of the line is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        // Faster than any line, and the arithmetic holds.
        self.line = speed.bps().min(1 << 50);
        // What was learnt on another line says nothing.
        self.limit = None;
    }

    /// Time of a step (T), and until α shrinks (K): 55 µs with the paper's interval of 50 µs.
    fn period(&self) -> Span {
        self.interval + self.interval.divided_by(10)
    }

    /// Lets time pass for the limit.
    fn elapse(&mut self, now: Time) {
        let (line, period) = (self.line, self.period());
        let Some(limit) = &mut self.limit else { return };
        // A limit comes to its end by time alone, so this does too.
        while limit.step_at <= now {
            while limit.decay_at <= limit.step_at {
                limit.alpha -= limit.alpha >> GAIN_SHIFT;
                limit.decay_at += period;
            }
            let at = limit.step_at;
            limit.step_at += period;
            limit.step(0, line, at);
            if limit.is_over(line) {
                self.limit = None;
                return;
            }
        }
        while limit.decay_at <= now {
            limit.alpha -= limit.alpha >> GAIN_SHIFT;
            limit.decay_at += period;
        }
    }

    /// A packet of `bytes` in memory leaves.
    pub(crate) fn left(&mut self, bytes: usize, now: Time) {
        self.elapse(now);
        let line = self.line;
        let Some(limit) = &mut self.limit else { return };
        limit.bytes += limit.pace.left(bytes, now);
        if limit.bytes >= STEP {
            limit.bytes -= STEP;
            limit.step(1, line, now);
            if limit.is_over(line) {
                self.limit = None;
            }
        }
    }

    /// When to look again whether the next packet may leave; `None`: it may now.
    pub(crate) fn not_before(&mut self, now: Time) -> Option<Time> {
        self.elapse(now);
        let limit = self.limit.as_ref()?;
        // The next step shortens the wait.
        let next = limit.pace.not_before(now)?;
        Some(next.min(limit.step_at))
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        self.window.on_feedback(feedback);
        match feedback.fate {
            PacketFate::Delivered { marked: true, .. } | PacketFate::Trimmed => {
                self.cut(self.interval, now);
            }
            PacketFate::Delivered { marked: false, .. }
            | PacketFate::NotReady
            | PacketFate::Lost => {}
        }
    }

    /// The peer notifies. Its packets may come a little closer than they left.
    pub(crate) fn notified(&mut self, now: Time) {
        self.cut(self.interval.divided_by(2), now);
    }

    /// Cuts the rate, unless that was done less than `apart` ago.
    fn cut(&mut self, apart: Span, now: Time) {
        let soon = |last: Time| now.since(last) < apart;
        if self.line == 0 || self.notified.is_some_and(soon) {
            return;
        }
        self.elapse(now);
        self.notified = Some(now);
        let (line, period) = (self.line, self.period());
        let limit = self.limit.get_or_insert_with(|| Limit::new(line, now));
        limit.cut(line, period, now);
    }

    /// A time-out expired: few packets ask whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window.timed_out();
    }

    /// Bits per second at present; zero: not known.
    #[cfg(test)]
    fn rate(&self) -> u64 {
        self.limit.map_or(self.line, |limit| limit.rate)
    }
}

#[cfg(test)]
mod tests;
