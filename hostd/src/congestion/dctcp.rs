//! A window as DCTCP has it (RFC 8257; CC-7): it shrinks by how large a part of the packets is
//! marked.
//!
//! α follows the part of marked packets of each window with weight 1/16. A window with a mark
//! shrinks by α/2, and each grows by a packet, unless it was marked throughout: so who has little
//! catches up while some packets of all are marked, and a crowd whose packets all are makes room. A
//! loss or a trim halves it, once a round trip. Windows are in packets.
//!
//! The first marked window sets α; if it was marked throughout, so does the next one, unless it has
//! no mark. Otherwise who joins a full link would take sixteen windows to learn how little is
//! marked, and halve its own as often.

use super::pipe::{Pipe, nanos};
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// Weight of a new sample in the part of marked packets.
const GAIN: f64 = 1.0 / 16.0;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    pipe: Pipe,
    /// Most packets in flight by configuration.
    limit: f64,
    window: f64,
    /// Part of the packets that are marked; `None`: none was yet.
    alpha: Option<f64>,
    /// Packets of the present window: all, and those marked.
    came: f64,
    marked: f64,
    halved: Time,
}

impl Dctcp {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured.
    pub(crate) fn new(window: u32, mtu: u16, base: Span) -> Self {
        let limit = f64::from(window.max(1));
        Self {
            pipe: Pipe::new(mtu, base),
            limit,
            window: limit,
            alpha: None,
            came: 0.0,
            marked: 0.0,
            halved: Time::ZERO,
        }
    }

    /// Packets that may be in flight, with the fraction.
    pub(crate) fn exact(&self) -> f64 {
        self.window
    }

    /// The speed that packets leave at is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        if self.pipe.set_speed(speed) {
            self.window = self.pipe.opening(self.window, self.limit);
        }
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        if self.pipe.learn(feedback) {
            self.window = self.pipe.opening(self.window, self.limit);
        }
        match feedback.fate {
            PacketFate::Delivered { marked, .. } => {
                self.came += 1.0;
                self.marked += f64::from(u8::from(marked));
                if self.came >= self.window {
                    self.end_of_window();
                }
            }
            PacketFate::Trimmed | PacketFate::Lost => {
                if nanos(now.since(self.halved)) >= self.pipe.base().unwrap_or(0.0) {
                    self.window /= 2.0;
                    self.halved = now;
                }
            }
            PacketFate::NotReady => {}
        }
        self.window = self.window.clamp(1.0, self.limit);
    }

    fn end_of_window(&mut self) {
        let part = self.marked / self.came;
        self.alpha = match self.alpha {
            Some(alpha) if alpha < 1.0 || part == 0.0 => Some(alpha + GAIN * (part - alpha)),
            Some(_) | None => (part > 0.0).then_some(part),
        };
        if let (true, Some(alpha)) = (part > 0.0, self.alpha) {
            self.window *= 1.0 - alpha / 2.0;
        }
        if part < 1.0 {
            self.window += 1.0;
        }
        (self.came, self.marked) = (0.0, 0.0);
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window = 1.0;
        (self.came, self.marked) = (0.0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, MTU, apart, came, feedback, trace};
    use super::*;

    fn dctcp() -> Dctcp {
        let mut dctcp = Dctcp::new(224, MTU, BASE);
        dctcp.set_speed(Rate::from_gbps(100));
        dctcp
    }

    /// CC-7: the window of a flow alone swings about the threshold by as much as the paper says:
    /// √(threshold + product) / √2 … and never empties the queue.
    #[test]
    fn it_swings_about_the_threshold() {
        let mut dctcp = dctcp();
        let now = Time::from_nanos(1_000_000);
        let (product, threshold) = (42.0, 20.0);
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for turn in 0..40_000 {
            let marked = dctcp.exact() > product + threshold;
            dctcp.on_feedback(&feedback(came(marked), BASE), now);
            if turn > 20_000 {
                least = least.min(dctcp.exact());
                most = most.max(dctcp.exact());
            }
        }
        assert!(
            least > product && most < product + threshold + 2.0,
            "{least} to {most}"
        );
    }

    /// A window of packets, the first `marks` of them marked. Returns what it changed.
    fn a_window(dctcp: &mut Dctcp, mut marks: u32) -> f64 {
        let before = dctcp.exact();
        let mut left = before;
        while left > 0.0 {
            let fate = came(marks > 0);
            dctcp.on_feedback(&feedback(fate, BASE), Time::from_nanos(1_000_000));
            marks = marks.saturating_sub(1);
            left -= 1.0;
        }
        dctcp.exact() - before
    }

    /// CC-7: who joins a link on which few packets are marked gives up little of its window, also
    /// if all of its first packets were. What it gives up comes back by a packet in each window.
    #[test]
    fn a_newcomer_learns_of_marks_at_once() {
        let mut dctcp = dctcp();
        // Two of 43: it gives up a packet, and grows by one.
        let change = a_window(&mut dctcp, 2);
        assert!(change.abs() < 0.1, "{change}");
        let mut crowded = self::dctcp();
        let before = crowded.exact();
        a_window(&mut crowded, u32::MAX);
        let halved = crowded.exact();
        assert!((halved - before / 2.0).abs() < 0.01, "{halved}");
        // Two of 22.
        let change = a_window(&mut crowded, 2);
        assert!(change.abs() < 0.1, "{change}");
    }

    /// CC-7: all packets marked: it halves in each window in the end; a loss halves it at once.
    #[test]
    fn marks_of_all_packets_halve_it() {
        let mut dctcp = dctcp();
        let now = Time::from_nanos(1_000_000);
        for _ in 0..500 {
            dctcp.on_feedback(&feedback(came(true), BASE), now);
        }
        assert!((dctcp.exact() - 1.0).abs() < 0.01, "{}", dctcp.exact());
        let mut dctcp = self::dctcp();
        let before = dctcp.exact();
        for _ in 0..3 {
            dctcp.on_feedback(&feedback(PacketFate::Lost, BASE), now);
        }
        assert!((dctcp.exact() - before / 2.0).abs() < 0.01, "once");
    }

    /// CC-7: an independent model agrees within 1 % over 10,000 events.
    #[test]
    fn an_independent_model_agrees() {
        for seed in [1, 2, 3] {
            let mut dctcp = dctcp();
            let trace = trace(seed, |feedback, _, now| {
                dctcp.on_feedback(feedback, now);
                dctcp.exact()
            });
            let apart = apart("dctcp.py", &trace);
            assert!(apart < 0.01, "seed {seed}: {apart} apart");
        }
    }
}
