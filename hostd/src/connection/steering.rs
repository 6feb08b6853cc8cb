//! The two seams between a queue pair and the algorithms that steer it: before a packet is composed
//! [`Steering::choose`] selects its port and path, and [`Steering::feedback`] takes its outcome.
//!
//! ```text
//!   free ports, now ──▶ choose ──▶ port, path, entropy, credit
//!                          ▲
//!              PathSet [4] ┼ Controller [5]
//!                          ▼
//!   path, entropy, departure, round trip,
//!   delivered / marked / not ready / trimmed / lost ──▶ feedback
//! ```
//!
//! An algorithm that needs to know more of a packet gets it as a field of [`Feedback`] or a variant
//! of [`PacketFate`].

use crate::congestion::{Controller, Dcqcn, Dctcp, FixedWindow, NotifiedWindow, Nscc, Swift};
use crate::path::{self, Entropy, LostPacket, PathSet};
use crate::stats::PathStatistics;
use crate::verbs::{
    Congestion, EngineConfig, Feedback, MultipathConfig, PacketFate, PortId, PortSet,
};
use common::time::{Span, Time};
use common::units::Rate;

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

/// What one queue pair's steering is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteeringPlan {
    /// Does not change during the life of the queue pair.
    pub(super) identity: u64,
    /// Of random choices.
    pub(super) seed: u64,
    /// Packets in flight at most.
    pub(super) window: u32,
    /// Payload bytes of a full packet.
    pub(super) mtu: u16,
}

/// Path selection and congestion control of a queue pair.
#[derive(Debug)]
pub(super) struct Steering {
    paths: PathSet,
    controller: Controller,
    /// When the last packet left.
    departed: Time,
    /// Nothing leaves before: windows below one packet are paces, and rates are.
    held_until: Option<Time>,
    /// How much of an interval the next packet waits, in parts of [`PHASES`] …
    phase: u64,
    /// … if the last one left before the window was a pace.
    first_phase: u64,
}

/// A whole interval.
const PHASES: u64 = 256;

impl Steering {
    /// Steering over the negotiated paths.
    pub(super) fn new(
        agreed: Option<&MultipathConfig>,
        plan: &SteeringPlan,
        config: &EngineConfig,
    ) -> Self {
        let SteeringPlan { window, mtu, .. } = *plan;
        let controller = match (agreed, config.congestion) {
            (_, Congestion::Dcqcn) => Controller::Dcqcn(Dcqcn::new(window, config.cnp_interval)),
            (None, _) => Controller::Notified(NotifiedWindow::new(window)),
            (Some(_), Congestion::Fixed) => Controller::Fixed(FixedWindow::new(window)),
            (Some(agreed), Congestion::Nscc) => {
                Controller::Nscc(Nscc::new(window, mtu, config.base_rtt, agreed.marks))
            }
            (Some(_), Congestion::Swift) => {
                Controller::Swift(Swift::new(window, mtu, config.base_rtt))
            }
            (Some(_), Congestion::Dctcp) => {
                Controller::Dctcp(Dctcp::new(window, mtu, config.base_rtt))
            }
        };
        let (identity, seed) = (plan.identity, plan.seed);
        let spraying = config.spraying;
        Self {
            paths: PathSet::new(agreed, spraying, identity, config.path_avoidance, seed),
            controller,
            departed: Time::ZERO,
            held_until: None,
            phase: PHASES,
            first_phase: 1 + seed % (PHASES - 1),
        }
    }

    /// Packets leave at this speed at most; zero: it is not known.
    pub(super) fn set_speed(&mut self, speed: Rate) {
        self.controller.set_speed(speed);
    }

    /// Packets that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.controller.window()
    }

    /// Packets that may leave while `in_flight` are unacknowledged.
    pub(super) fn credit(&self, in_flight: u32) -> u32 {
        match self.held_until {
            Some(_) => 0,
            None => self.window().saturating_sub(in_flight),
        }
    }

    /// Until when nothing leaves, whatever the window is.
    pub(super) fn held_until(&self) -> Option<Time> {
        self.held_until
    }

    /// Lets packets leave again if it is time for them.
    pub(super) fn release(&mut self, now: Time) {
        if self.controller.has_rate() {
            self.hold(now);
        } else {
            self.held_until = self.held_until.filter(|until| *until > now);
        }
    }

    /// The peer tells that `crowd` queue pairs share its link.
    pub(super) fn crowd(&mut self, crowd: u32, now: Time) {
        self.controller.crowd(crowd);
        self.hold(now);
    }

    /// A packet of an own request leaves, with `bytes` in memory.
    pub(super) fn left(&mut self, bytes: usize, now: Time) {
        self.controller.left(bytes, now);
        self.departed = now;
        let paced = self.controller.interval().is_some();
        self.phase = if paced { PHASES } else { self.first_phase };
        self.hold(now);
    }

    /// Holds the next packet back as long as the pace asks for.
    ///
    /// Senders that a crowd slows down at the same time would go on at the same time, and each of
    /// their bursts would be trimmed again. So the first wait is a random part of the interval.
    fn hold(&mut self, now: Time) {
        if self.controller.has_rate() {
            self.held_until = self.controller.not_before(now);
            return;
        }
        let interval = self.controller.interval();
        let wait = interval.map(|interval| interval.times(self.phase).divided_by(PHASES));
        // What left before the pace may be answered by all at once, long after.
        let from = if self.phase == PHASES {
            self.departed
        } else {
            now
        };
        let until = wait.map(|wait| from + wait);
        self.held_until = until.filter(|until| *until > now);
    }

    /// Port and path of the next packet, through one of the `free` ports. It avoids the entropy
    /// value `other_than`, with which its last copy was lost, if there is another (HT-42). `None`:
    /// the packet
    /// may not leave now.
    pub(super) fn choose(
        &mut self,
        free: PortSet,
        in_flight: u32,
        other_than: Option<u8>,
        now: Time,
    ) -> Option<Choice> {
        let port = free.first()?;
        let credit = self.window().saturating_sub(in_flight);
        if credit == 0 {
            return None;
        }
        let path = self.paths.select(other_than, now);
        Some(Choice {
            port,
            path,
            entropy: self.paths.entropy_of(&path),
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
            entropy: self.paths.entropy_of(&path),
            credit: 1,
        })
    }

    /// Passes the outcome of a packet to path selection and congestion control; `in_flight`:
    /// packets whose outcome is not known.
    pub(super) fn feedback(&mut self, feedback: &Feedback, in_flight: u32, now: Time) {
        let Feedback { path, sent, .. } = *feedback;
        if let Some(round_trip) = feedback.round_trip {
            self.paths.measured(path, round_trip);
        }
        match feedback.fate {
            PacketFate::Delivered {
                newest_copy: true, ..
            } => self.paths.acknowledged(path, sent),
            PacketFate::Lost => self.paths.lost(LostPacket { path, sent }, now),
            PacketFate::Delivered {
                newest_copy: false, ..
            }
            | PacketFate::NotReady
            | PacketFate::Trimmed => {}
        }
        self.paths.on_feedback(feedback);
        self.controller.on_feedback(feedback, in_flight, now);
        self.hold(now);
    }

    /// A retransmission time-out expired.
    pub(super) fn timed_out(&mut self, now: Time) {
        self.paths.timed_out(now);
        self.controller.timed_out();
    }

    /// The peer tells of congestion; `round_trip` is the smoothed time, once measured.
    pub(super) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        self.controller.notified(round_trip, now);
        self.hold(now);
    }

    /// The peer reports the one-way delay of `path`.
    pub(super) fn one_way(&mut self, path: u8, delay: u16) {
        self.paths.one_way(path, delay);
    }

    /// Counts a data packet that arrived on `path`. `false` if there is no such path.
    pub(super) fn received(&mut self, path: u8) -> bool {
        self.paths.received(path)
    }

    /// The entropy of `path`, for what is no answer to a packet.
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
