//! \[5\] How much may be in flight.
//!
//! ```text
//!   fixed      a window of fixed size: losses are repaired, not avoided
//!   auto       that, until a switch marks or trims a packet: then nscc
//!   notified   plain connections: halved by a notification of congestion, then it recovers
//!   nscc       by queueing delay, marks and trims (Ultra Ethernet)
//!   swift      by the round trip alone, or by congestion signals of the path beside it
//!   poseidon   by the longest time in a device of the path, with a target for each rate
//!   hpcc       by what is in flight on the worst link, as telemetry tells, and a pace
//!   dctcp      by the part of packets that is marked
//!   dcqcn      a rate, cut by notifications of congestion
//!   timely     a rate, by how the round trip changes
//!   rttcc      a rate, by the round trips of probes of its own
//!   pace       when packets leave at a rate
//!   pipe       what they know of the network without queues
//!   idle       the round trip without queues, also when the way has changed
//!   told       what they know of it by congestion signals
//! ```
//!
//! An algorithm is one file and one variant of [`Controller`]. It takes the [`Feedback`] of every
//! packet (path, entropy, departure, round-trip time, fate), what comes back of the path
//! (congestion signals, telemetry), and every retransmission time-out, with the time, and answers
//! with a window, and with a pace if it has one.

mod auto;
mod dcqcn;
mod dctcp;
mod fixed;
mod hpcc;
mod idle;
mod notified;
mod nscc;
mod pace;
mod pipe;
mod poseidon;
mod rttcc;
mod swift;
mod timely;
mod told;

pub(crate) use auto::Auto;
pub(crate) use dcqcn::Dcqcn;
pub(crate) use dctcp::Dctcp;
pub(crate) use fixed::FixedWindow;
pub(crate) use hpcc::Hpcc;
pub(crate) use notified::NotifiedWindow;
pub(crate) use nscc::Nscc;
pub(crate) use pace::LONGEST_WAIT;
pub(crate) use poseidon::Poseidon;
pub(crate) use rttcc::Rttcc;
pub(crate) use swift::{Swift, SwiftCsig};
pub(crate) use timely::Timely;

use crate::stats::{PathLoad, PathSignal};
use crate::verbs::Feedback;
use common::time::{Span, Time};
use common::units::Rate;

/// The congestion control of a queue pair. Those that keep much are in boxes: a queue pair of plain
/// RC, of which there may be thousands, does not pay for them.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    /// See [`FixedWindow`].
    Fixed(FixedWindow),
    /// See [`Auto`].
    Auto(Auto),
    /// See [`NotifiedWindow`].
    Notified(NotifiedWindow),
    /// See [`Nscc`].
    Nscc(Box<Nscc>),
    /// See [`Swift`].
    Swift(Box<Swift>),
    /// See [`SwiftCsig`].
    SwiftCsig(Box<SwiftCsig>),
    /// See [`Dctcp`].
    Dctcp(Box<Dctcp>),
    /// See [`Dcqcn`].
    Dcqcn(Box<Dcqcn>),
    /// See [`Timely`].
    Timely(Box<Timely>),
    /// See [`Poseidon`].
    Poseidon(Box<Poseidon>),
    /// See [`Hpcc`].
    Hpcc(Box<Hpcc>),
    /// See [`Rttcc`].
    Rttcc(Box<Rttcc>),
}

impl Controller {
    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        match self {
            Self::Fixed(fixed) => fixed.window(),
            Self::Auto(auto) => auto.window(),
            Self::Notified(notified) => notified.window(),
            Self::Nscc(nscc) => nscc.window(),
            Self::Swift(swift) => whole(swift.exact()),
            Self::SwiftCsig(swift) => whole(swift.exact()),
            Self::Dctcp(dctcp) => whole(dctcp.exact()),
            Self::Dcqcn(dcqcn) => dcqcn.window(),
            Self::Timely(timely) => timely.window(),
            Self::Poseidon(poseidon) => whole(poseidon.exact()),
            Self::Hpcc(hpcc) => whole(hpcc.exact()),
            Self::Rttcc(rttcc) => whole(rttcc.exact()),
        }
    }

    /// The least time from one packet to the next, whatever their length; `None`: there is none.
    pub(crate) fn interval(&self) -> Option<Span> {
        match self {
            Self::Fixed(_) | Self::Auto(_) | Self::Notified(_) | Self::Dctcp(_) => None,
            Self::Dcqcn(_) | Self::Timely(_) | Self::Hpcc(_) | Self::Rttcc(_) => None,
            Self::Poseidon(poseidon) => poseidon.interval(),
            Self::Nscc(nscc) => nscc.interval(),
            Self::Swift(swift) => swift.interval(),
            Self::SwiftCsig(swift) => swift.interval(),
        }
    }

    /// Whether packets are paced by a rate: [`Self::not_before`] says when they leave.
    pub(crate) const fn has_rate(&self) -> bool {
        matches!(
            self,
            Self::Dcqcn(_) | Self::Timely(_) | Self::Hpcc(_) | Self::Rttcc(_)
        )
    }

    /// Whether it has a rate that is less than a packet in a round trip: then lanes divide it, as
    /// they divide intervals.
    pub(crate) fn is_slow_rate(&self) -> bool {
        // Of those that have rates this one alone is there for each path.
        matches!(self, Self::Hpcc(hpcc) if hpcc.is_below_packet())
    }

    /// When to look again whether the rate lets the next packet leave; `None`: it does now.
    pub(crate) fn not_before(&mut self, now: Time) -> Option<Time> {
        match self {
            Self::Fixed(_) | Self::Auto(_) | Self::Notified(_) | Self::Dctcp(_) => None,
            Self::Nscc(_) | Self::Swift(_) | Self::SwiftCsig(_) | Self::Poseidon(_) => None,
            Self::Dcqcn(dcqcn) => dcqcn.not_before(now),
            Self::Timely(timely) => timely.not_before(now),
            Self::Hpcc(hpcc) => hpcc.not_before(now),
            Self::Rttcc(rttcc) => rttcc.not_before(now),
        }
    }

    /// A packet of `bytes` in memory leaves.
    pub(crate) fn left(&mut self, bytes: usize, now: Time) {
        match self {
            Self::Fixed(_) | Self::Auto(_) | Self::Notified(_) | Self::Dctcp(_) => {}
            Self::Nscc(_) | Self::Swift(_) | Self::SwiftCsig(_) | Self::Poseidon(_) => {}
            Self::Dcqcn(dcqcn) => dcqcn.left(bytes, now),
            Self::Timely(timely) => timely.left(bytes, now),
            Self::Hpcc(hpcc) => hpcc.left(bytes, now),
            Self::Rttcc(rttcc) => rttcc.left(bytes, now),
        }
    }

    /// The speed that packets leave at is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        match self {
            Self::Fixed(_) | Self::Notified(_) => {}
            Self::Auto(auto) => auto.set_speed(speed),
            Self::Nscc(nscc) => nscc.set_speed(speed),
            Self::Swift(swift) => swift.set_speed(speed),
            Self::SwiftCsig(swift) => swift.set_speed(speed),
            Self::Dctcp(dctcp) => dctcp.set_speed(speed),
            Self::Dcqcn(dcqcn) => dcqcn.set_speed(speed),
            Self::Timely(timely) => timely.set_speed(speed),
            Self::Poseidon(poseidon) => poseidon.set_speed(speed),
            Self::Hpcc(hpcc) => hpcc.set_speed(speed),
            Self::Rttcc(rttcc) => rttcc.set_speed(speed),
        }
    }

    /// The packets take another way from now on, which may be longer. Those that go by marks alone
    /// need not know how long it is.
    pub(crate) fn rerouted(&mut self, now: Time) {
        match self {
            Self::Fixed(_) | Self::Notified(_) | Self::Dctcp(_) | Self::Dcqcn(_) => {}
            Self::Auto(auto) => auto.rerouted(now),
            Self::Nscc(nscc) => nscc.rerouted(now),
            Self::Swift(swift) => swift.rerouted(now),
            Self::SwiftCsig(swift) => swift.rerouted(now),
            Self::Timely(timely) => timely.rerouted(now),
            Self::Poseidon(poseidon) => poseidon.rerouted(now),
            Self::Hpcc(hpcc) => hpcc.rerouted(now),
            Self::Rttcc(rttcc) => rttcc.rerouted(now),
        }
    }

    /// The peer tells that `crowd` queue pairs share its link.
    pub(crate) fn crowd(&mut self, crowd: u32) {
        match self {
            Self::Fixed(_) | Self::Notified(_) | Self::Swift(_) => {}
            Self::SwiftCsig(_) | Self::Dctcp(_) | Self::Dcqcn(_) => {}
            Self::Timely(_) | Self::Poseidon(_) | Self::Hpcc(_) | Self::Rttcc(_) => {}
            Self::Auto(auto) => auto.crowd(crowd),
            Self::Nscc(nscc) => nscc.crowd(crowd),
        }
    }

    /// A congestion signal of a path came back.
    pub(crate) fn signalled(&mut self, read: &PathSignal, now: Time) {
        match self {
            Self::Fixed(_) | Self::Auto(_) | Self::Notified(_) => {}
            Self::Nscc(_) | Self::Swift(_) => {}
            Self::Dctcp(_) | Self::Dcqcn(_) | Self::Timely(_) | Self::Hpcc(_) => {}
            Self::Rttcc(_) => {}
            Self::SwiftCsig(swift) => swift.signalled(read, now),
            Self::Poseidon(poseidon) => poseidon.signalled(read),
        }
    }

    /// The peer told of the worst link of a path.
    pub(crate) fn loaded(&mut self, load: &PathLoad) {
        if let Self::Hpcc(hpcc) = self {
            hpcc.loaded(load);
        }
    }

    /// The time from one probe of the round trip to the next, at least; `None`: it asks for none.
    pub(crate) fn probe_interval(&self) -> Option<Span> {
        match self {
            Self::Rttcc(rttcc) => Some(rttcc.probe_interval()),
            Self::Fixed(_) | Self::Auto(_) | Self::Notified(_) => None,
            Self::Nscc(_) | Self::Swift(_) => None,
            Self::SwiftCsig(_) | Self::Dctcp(_) | Self::Dcqcn(_) => None,
            Self::Timely(_) | Self::Poseidon(_) | Self::Hpcc(_) => None,
        }
    }

    /// A probe of the round trip was answered after this time.
    pub(crate) fn probed(&mut self, round_trip: Span, now: Time) {
        if let Self::Rttcc(rttcc) = self {
            rttcc.probed(round_trip, now);
        }
    }

    /// Whether signals of the path, or probes, decided the last time; `None`: they never do.
    pub(crate) fn is_guided(&self) -> Option<bool> {
        match self {
            Self::Fixed(_) | Self::Auto(_) | Self::Notified(_) => None,
            Self::Nscc(_) | Self::Swift(_) => None,
            Self::Dctcp(_) | Self::Dcqcn(_) | Self::Timely(_) => None,
            Self::SwiftCsig(swift) => Some(swift.is_guided()),
            Self::Poseidon(poseidon) => Some(poseidon.is_guided()),
            Self::Hpcc(hpcc) => Some(hpcc.is_guided()),
            Self::Rttcc(rttcc) => Some(rttcc.is_guided()),
        }
    }

    /// Its name, for people.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Auto(_) => "auto",
            Self::Fixed(_) => "fixed",
            Self::Notified(_) => "notified",
            Self::Nscc(_) => "nscc",
            Self::Swift(_) => "swift",
            Self::SwiftCsig(_) => "swift-csig",
            Self::Dctcp(_) => "dctcp",
            Self::Dcqcn(_) => "dcqcn",
            Self::Timely(_) => "timely",
            Self::Poseidon(_) => "poseidon",
            Self::Hpcc(_) => "hpcc",
            Self::Rttcc(_) => "rttcc",
        }
    }

    /// The outcome of a packet is known; that of `in_flight` packets is not.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, in_flight: u32, now: Time) {
        match self {
            Self::Fixed(fixed) => fixed.on_feedback(feedback),
            Self::Auto(auto) => {
                if let Some(mut nscc) = auto.on_feedback(feedback, in_flight) {
                    nscc.on_feedback(feedback, in_flight, now);
                    *self = Self::Nscc(nscc);
                }
            }
            Self::Notified(notified) => notified.on_feedback(feedback),
            Self::Nscc(nscc) => nscc.on_feedback(feedback, in_flight, now),
            Self::Swift(swift) => swift.on_feedback(feedback, now),
            Self::SwiftCsig(swift) => swift.on_feedback(feedback, now),
            Self::Dctcp(dctcp) => dctcp.on_feedback(feedback, now),
            Self::Dcqcn(dcqcn) => dcqcn.on_feedback(feedback, now),
            Self::Timely(timely) => timely.on_feedback(feedback, now),
            Self::Poseidon(poseidon) => poseidon.on_feedback(feedback, now),
            Self::Hpcc(hpcc) => hpcc.on_feedback(feedback, now),
            Self::Rttcc(rttcc) => rttcc.on_feedback(feedback, now),
        }
    }

    /// A retransmission time-out expired without an acknowledgement.
    pub(crate) fn timed_out(&mut self) {
        match self {
            Self::Fixed(fixed) => fixed.timed_out(),
            Self::Auto(auto) => auto.timed_out(),
            Self::Notified(notified) => notified.timed_out(),
            Self::Nscc(nscc) => nscc.timed_out(),
            Self::Swift(swift) => swift.timed_out(),
            Self::SwiftCsig(swift) => swift.timed_out(),
            Self::Dctcp(dctcp) => dctcp.timed_out(),
            Self::Dcqcn(dcqcn) => dcqcn.timed_out(),
            Self::Timely(timely) => timely.timed_out(),
            Self::Poseidon(poseidon) => poseidon.timed_out(),
            Self::Hpcc(hpcc) => hpcc.timed_out(),
            Self::Rttcc(rttcc) => rttcc.timed_out(),
        }
    }

    /// The peer tells of congestion (CNP); `round_trip` is the smoothed time, once measured.
    pub(crate) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        match self {
            Self::Fixed(_) | Self::Auto(_) | Self::Nscc(_) => {}
            Self::Swift(_) | Self::Dctcp(_) => {}
            Self::SwiftCsig(_) | Self::Timely(_) | Self::Poseidon(_) | Self::Hpcc(_) => {}
            Self::Rttcc(_) => {}
            Self::Notified(notified) => notified.notified(round_trip, now),
            Self::Dcqcn(dcqcn) => dcqcn.notified(now),
        }
    }
}

/// Whole packets of a window, at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a window is positive and far below the bounds of u32"
)]
fn whole(window: f64) -> u32 {
    (window as u32).max(1)
}

#[cfg(test)]
mod tests;
