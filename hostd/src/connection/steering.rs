//! The two seams between a queue pair and the algorithms that steer it: before a packet is composed
//! [`Steering::choose`] says which way it goes, and [`Steering::feedback`] hears what became of it.
//!
//! ```text
//!   free ports, now ──▶ choose ──▶ port, path, entropy, credit
//!                          ▲
//!              Selector [4]┼ Controller [5]      each an enum: one variant an algorithm
//!                          ▼
//!   path, entropy, CE, round trip, delivered / lost / trimmed ──▶ feedback
//! ```

use crate::congestion::{Controller, FixedWindow};
use crate::path::{self, Entropy, LostPacket, PathSet};
use crate::stats::PathStatistics;
use crate::verbs::{MultipathConfig, PortId, PortSet};
use common::time::{Span, Time};

/// The way of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The port that it leaves through.
    pub(super) port: PortId,
    /// The sub-path, and what its header says of it.
    pub(super) path: path::Choice,
    /// What leads it there.
    pub(super) entropy: Entropy,
    /// Packets that may leave, this one included.
    pub(super) credit: u32,
}

/// What became of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feedback {
    /// Path ID of its newest copy.
    pub(super) path: u8,
    /// UDP source port of its newest copy.
    #[expect(
        dead_code,
        reason = "for algorithms that learn which entropy values are good"
    )]
    pub(super) entropy: u16,
    /// When that left.
    pub(super) sent: Time,
    /// Its round trip, if it was measured.
    pub(super) round_trip: Option<Span>,
    /// The network marked it with Congestion Experienced. `None`: the acknowledgement does not
    /// say.
    #[expect(dead_code, reason = "for algorithms that react to marks")]
    pub(super) congested: Option<bool>,
    /// How it fared.
    pub(super) fate: Fate,
}

/// How a packet fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It came.
    Delivered {
        /// Its newest copy came, as far as can be told; an older one otherwise.
        newest_copy: bool,
    },
    /// It came, but found no receive: it has to come again.
    NotReady,
    /// It was taken for lost.
    Lost,
    /// A switch cut its payload off. Not known yet: no acknowledgement says it.
    #[expect(
        dead_code,
        reason = "the seam names every fate; trimmed packets are not reported yet"
    )]
    Trimmed,
}

/// Path selection and congestion control of a queue pair.
#[derive(Debug)]
pub(super) struct Steering {
    paths: PathSet,
    controller: Controller,
}

impl Steering {
    /// Over the paths that were agreed on, with a window of `window` packets. `identity` is the
    /// same for the life of the queue pair.
    pub(super) fn new(
        agreed: Option<&MultipathConfig>,
        identity: u64,
        avoidance: Span,
        seed: u64,
        window: u32,
    ) -> Self {
        Self {
            paths: PathSet::new(agreed, identity, avoidance, seed),
            controller: Controller::Fixed(FixedWindow::new(window)),
        }
    }

    /// Packets that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.controller.window()
    }

    /// Packets that may leave with `in_flight` on their way.
    pub(super) fn credit(&self, in_flight: u32) -> u32 {
        self.window().saturating_sub(in_flight)
    }

    /// The way of the next packet, through one of the `free` ports; not the path `other_than`,
    /// where its last copy was lost, as long as there is another (HT-42). `None`: it may not leave.
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

    /// Takes what became of a packet.
    pub(super) fn feedback(&mut self, feedback: &Feedback, now: Time) {
        let Feedback { path, sent, .. } = *feedback;
        if let Some(round_trip) = feedback.round_trip {
            self.paths.measured(path, round_trip);
        }
        match feedback.fate {
            Fate::Delivered { newest_copy } => {
                if newest_copy {
                    self.paths.acknowledged(path, sent);
                }
                self.controller.acknowledged(1);
            }
            Fate::Lost | Fate::Trimmed => self.paths.lost(LostPacket { path, sent }, now),
            Fate::NotReady => {}
        }
    }

    /// Nothing was heard for a whole retransmission time-out.
    pub(super) fn timed_out(&mut self) {
        self.controller.timed_out();
    }

    /// The peer measured the one-way delay of `path`.
    pub(super) fn one_way(&mut self, path: u8, delay: u16) {
        self.paths.one_way(path, delay);
    }

    /// A data packet came on `path`; whether that can be.
    pub(super) fn received(&mut self, path: u8) -> bool {
        self.paths.received(path)
    }

    /// What leads packets along `path`: an acknowledgement goes back on the path that it is about.
    pub(super) fn entropy(&self, path: u8) -> Entropy {
        self.paths.entropy(path)
    }

    /// Number of sub-paths.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// How each path stands.
    pub(super) fn statistics(&self) -> Vec<PathStatistics> {
        self.paths.statistics()
    }
}
