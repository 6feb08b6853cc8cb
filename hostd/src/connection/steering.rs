//! The two seams between a queue pair and the algorithms that steer it: before a packet is composed
//! [`Steering::choose`] selects its port and path, and [`Steering::feedback`] takes its outcome.
//!
//! ```text
//!   free ports, now ──▶ choose ──▶ port, path, entropy, credit
//!                          ▲
//!              PathSet [4] ┼ Controller [5]
//!                          ▼
//!   path, departure, round trip, delivered / not ready / lost ──▶ feedback
//! ```
//!
//! An algorithm that needs to know more of a packet (its entropy value, Congestion Experienced,
//! trimmed payload) gets it as a field of [`Feedback`] or a variant of [`PacketFate`].

use crate::congestion::{Controller, FixedWindow, NotifiedWindow};
use crate::path::{self, Entropy, LostPacket, PathSet};
use crate::stats::PathStatistics;
use crate::verbs::{Feedback, MultipathConfig, PacketFate, PortId, PortSet};
use common::time::{Span, Time};

/// Port and path of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The port that it leaves through.
    pub(super) port: PortId,
    /// The sub-path, and what the multipath header says about it.
    pub(super) path: path::Choice,
    /// The header fields that select this sub-path in the network.
    pub(super) entropy: Entropy,
    /// Packets that may leave now, this one included.
    pub(super) credit: u32,
}

/// Path selection and congestion control of a queue pair.
#[derive(Debug)]
pub(super) struct Steering {
    paths: PathSet,
    controller: Controller,
}

impl Steering {
    /// Steering over the negotiated paths, with a window of `window` packets. `identity` does not
    /// change during the life of the queue pair.
    pub(super) fn new(
        agreed: Option<&MultipathConfig>,
        identity: u64,
        avoidance: Span,
        seed: u64,
        window: u32,
    ) -> Self {
        Self {
            paths: PathSet::new(agreed, identity, avoidance, seed),
            controller: match agreed {
                Some(_) => Controller::Fixed(FixedWindow::new(window)),
                None => Controller::Notified(NotifiedWindow::new(window)),
            },
        }
    }

    /// Packets that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.controller.window()
    }

    /// Packets that may leave while `in_flight` are unacknowledged.
    pub(super) fn credit(&self, in_flight: u32) -> u32 {
        self.window().saturating_sub(in_flight)
    }

    /// Port and path of the next packet, through one of the `free` ports. It avoids the path
    /// `other_than`, where its last copy was lost, if there is another (HT-42). `None`: the packet
    /// may not leave now.
    pub(super) fn choose(
        &mut self,
        free: PortSet,
        in_flight: u32,
        other_than: Option<u8>,
        now: Time,
    ) -> Option<Choice> {
        let port = free.first()?;
        let credit = self.credit(in_flight);
        if credit == 0 {
            return None;
        }
        let path = self.paths.select(other_than, now);
        Some(Choice {
            port,
            path,
            entropy: self.paths.entropy(path.path),
            credit,
        })
    }

    /// Port and path of an answer, through one of the `free` ports. The peer bounds what it asks
    /// for, so there is no window.
    pub(super) fn choose_for_answer(&mut self, free: PortSet, now: Time) -> Option<Choice> {
        let port = free.first()?;
        let path = self.paths.select(None, now);
        Some(Choice {
            port,
            path,
            entropy: self.paths.entropy(path.path),
            credit: 1,
        })
    }

    /// Passes the outcome of a packet to path selection and congestion control.
    pub(super) fn feedback(&mut self, feedback: &Feedback, now: Time) {
        let Feedback { path, sent, .. } = *feedback;
        if let Some(round_trip) = feedback.round_trip {
            self.paths.measured(path, round_trip);
        }
        match feedback.fate {
            PacketFate::Delivered { newest_copy: true } => self.paths.acknowledged(path, sent),
            PacketFate::Lost => self.paths.lost(LostPacket { path, sent }, now),
            PacketFate::Delivered { newest_copy: false } | PacketFate::NotReady => {}
        }
        self.controller.on_feedback(feedback);
    }

    /// A retransmission time-out expired.
    pub(super) fn timed_out(&mut self) {
        self.controller.timed_out();
    }

    /// The peer tells of congestion; `round_trip` is the smoothed time, once measured.
    pub(super) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        self.controller.notified(round_trip, now);
    }

    /// The peer reports the one-way delay of `path`.
    pub(super) fn one_way(&mut self, path: u8, delay: u16) {
        self.paths.one_way(path, delay);
    }

    /// Counts a data packet that arrived on `path`. `false` if there is no such path.
    pub(super) fn received(&mut self, path: u8) -> bool {
        self.paths.received(path)
    }

    /// The entropy of `path`: an acknowledgement returns on the path of the packet that caused it.
    pub(super) fn entropy(&self, path: u8) -> Entropy {
        self.paths.entropy(path)
    }

    /// Number of sub-paths.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Statistics of each path.
    pub(super) fn statistics(&self) -> Vec<PathStatistics> {
        self.paths.statistics()
    }
}
