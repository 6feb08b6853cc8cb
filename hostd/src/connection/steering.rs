//! The two seams between a queue pair and the algorithms that steer it: before a packet is composed
//! [`Steering::choose`] selects its port and path, and [`Steering::feedback`] takes its outcome.
//!
//! ```text
//!   free ports, now ──▶ choose ──▶ port, path, entropy, credit
//!                          ▲
//!              PathSet [4] ┼ Lanes [5]
//!                          ▼
//!   path, entropy, departure, round trip,
//!   delivered / marked / not ready / trimmed / lost ──▶ feedback
//! ```
//!
//! An algorithm that needs to know more of a packet gets it as a field of [`Feedback`] or a variant
//! of [`PacketFate`].

use super::lanes::Lanes;
use super::ways::Ways;
use crate::congestion::{Auto, Controller, Dcqcn, Dctcp, FixedWindow, NotifiedWindow};
use crate::congestion::{Hpcc, Nscc, Poseidon, Rttcc, Swift, SwiftCsig, Timely};
use crate::limits;
use crate::path::{self, Blocks, Entropy, LostPacket, PathSet, Rules};
use crate::stats::{PathCounters, PathLoad, PathSignal, PathStatistics, PortStatistics};
use crate::verbs::{
    Congestion, CongestionScope, EngineConfig, Feedback, Granularity, MultipathConfig, PacketFate,
    PortId, PortSet, Psn, Traffic,
};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::roce::{PathIds, TrafficPattern};

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
    /// The algorithm of congestion control.
    pub(super) congestion: Congestion,
}

/// How many controllers share what was agreed on, while packets are sprayed.
fn lanes(agreed: &MultipathConfig, plan: &SteeringPlan, scope: CongestionScope) -> u8 {
    let apart = scope == CongestionScope::Path && plan.congestion.may_be_of_a_path();
    let count = if apart {
        agreed.paths.clamp(1, LANES)
    } else {
        1
    };
    u8::try_from(count).unwrap_or(1)
}

/// When paths are left. The peer is taken to hold acknowledgements back for as long as this side.
const fn rules(config: &EngineConfig) -> Rules {
    Rules {
        avoidance: config.path_avoidance,
        reroute_after: config.reroute_round_trips,
        held_back: config.ack_delay,
    }
}

/// Path selection and congestion control of a queue pair.
#[derive(Debug)]
pub(super) struct Steering {
    paths: PathSet,
    lanes: Lanes,
    /// How many lanes there are while packets are sprayed.
    spread_lanes: u8,
    /// By port, since the engine was last told; there since the first packet, as most queue pairs
    /// of a large host are idle.
    counters: Option<Box<[PathCounters; limits::PORTS]>>,
    /// The ports of which there is something to tell.
    counted: PortSet,
    /// The path of the newest answer, and when it left.
    last_answer: Option<LostPacket>,
    /// It is known to be missed.
    is_missed: bool,
}

/// Notifications that come so long after an answer may be about it.
const RECENTLY: Span = Span::from_millis(10);

/// The peer asks again for answers of which the newest left so long ago: they vanished. Those
/// that were trimmed are asked for again sooner, in a round trip.
const VANISHED_AFTER: Span = Span::from_millis(1);

fn nscc(agreed: &MultipathConfig, plan: &SteeringPlan, config: &EngineConfig) -> Nscc {
    let coalesced = config.ack_packets;
    Nscc::new(
        plan.window,
        plan.mtu,
        config.base_rtt,
        agreed.marks,
        coalesced,
    )
}

/// Controllers of a queue pair at most; further sub-paths share them.
const LANES: u16 = 16;

impl Steering {
    /// Steering over the negotiated paths.
    pub(super) fn new(
        agreed: Option<&MultipathConfig>,
        plan: &SteeringPlan,
        config: &EngineConfig,
    ) -> Self {
        let SteeringPlan { window, mtu, .. } = *plan;
        let controller = match (agreed, plan.congestion) {
            (_, Congestion::Dcqcn) => {
                Controller::Dcqcn(Box::new(Dcqcn::new(window, config.cnp_interval)))
            }
            (None, _) => Controller::Notified(NotifiedWindow::new(window)),
            (Some(_), Congestion::Fixed) => Controller::Fixed(FixedWindow::new(window)),
            (Some(agreed), Congestion::Auto) => {
                Controller::Auto(Auto::new(window, nscc(agreed, plan, config)))
            }
            (Some(agreed), Congestion::Nscc) => {
                Controller::Nscc(Box::new(nscc(agreed, plan, config)))
            }
            (Some(_), Congestion::Swift) => {
                Controller::Swift(Box::new(Swift::new(window, mtu, config.base_rtt)))
            }
            (Some(_), Congestion::SwiftCsig) => {
                let lambda = config.swift_lambda;
                Controller::SwiftCsig(Box::new(SwiftCsig::new(
                    window,
                    mtu,
                    config.base_rtt,
                    lambda,
                )))
            }
            (Some(_), Congestion::Timely) => Controller::Timely(Box::new(Timely::new(
                window,
                mtu,
                config.base_rtt,
                config.timely,
            ))),
            (Some(_), Congestion::Poseidon) => {
                let targets = config.poseidon;
                Controller::Poseidon(Box::new(Poseidon::new(
                    window,
                    mtu,
                    config.base_rtt,
                    targets,
                )))
            }
            (Some(_), Congestion::Hpcc) => {
                let flows = config.hpcc_flows;
                Controller::Hpcc(Box::new(Hpcc::new(window, mtu, config.base_rtt, flows)))
            }
            (Some(_), Congestion::Rttcc) => {
                let interval = config.rttcc_probe;
                Controller::Rttcc(Box::new(Rttcc::new(window, mtu, config.base_rtt, interval)))
            }
            (Some(_), Congestion::Dctcp) => {
                Controller::Dctcp(Box::new(Dctcp::new(window, mtu, config.base_rtt)))
            }
        };
        let (identity, seed) = (plan.identity, plan.seed);
        let spraying = (config.spraying, config.saturation_percent);
        let paths = PathSet::new(agreed, spraying, identity, rules(config), seed);
        let spread_lanes = agreed.map_or(1, |agreed| lanes(agreed, plan, config.congestion_scope));
        let paths = if spread_lanes > 1 {
            paths.with_a_value_each()
        } else {
            paths
        };
        let sprayed = agreed.is_some_and(|agreed| agreed.granularity == Granularity::Packet);
        let count = if sprayed { spread_lanes } else { 1 };
        Self {
            paths,
            lanes: Lanes::new(&controller, count, seed),
            spread_lanes,
            counters: None,
            counted: PortSet::NONE,
            last_answer: None,
            is_missed: false,
        }
    }

    /// Packets leave at this speed at most; zero: it is not known.
    pub(super) fn set_speed(&mut self, speed: Rate) {
        self.lanes.set_speed(speed);
    }

    /// Packets leave by these ways.
    pub(super) fn set_ways(&mut self, ways: &Ways) {
        self.paths.set_ports(&ways.speeds(), ways.usable());
    }

    /// Ports that the next packet may leave through.
    pub(super) fn wanted(&self, now: Time) -> PortSet {
        self.paths.wanted(now, |path| self.lanes.is_open(path))
    }

    /// The ports that packets leave through.
    pub(super) fn ports(&self) -> PortSet {
        self.paths.ports()
    }

    /// The port of `path`, for what is no answer to a packet.
    pub(super) fn port(&self, path: u8) -> PortId {
        self.paths.port(path)
    }

    /// Packets that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.lanes.window()
    }

    /// Packets that may leave while `in_flight` are unacknowledged.
    pub(super) fn credit(&self, in_flight: u32) -> u32 {
        self.lanes.credit(in_flight)
    }

    /// Until when nothing leaves, whatever the window is.
    pub(super) fn held_until(&self) -> Option<Time> {
        self.lanes.held_until()
    }

    /// Lets packets leave again if it is time for them.
    pub(super) fn release(&mut self, now: Time) {
        self.lanes.release(now);
    }

    /// The peer tells that `crowd` queue pairs share its link.
    pub(super) fn crowd(&mut self, crowd: u32, now: Time) {
        self.lanes.crowd(crowd, now);
        self.paths.crowd(crowd);
    }

    /// A congestion signal of `path` came back.
    pub(super) fn signalled(&mut self, path: u8, read: &PathSignal, now: Time) {
        self.paths.located(path, read.is_last_hop);
        self.lanes.signalled(path, read, now);
    }

    /// The peer told of the worst link of `path`.
    pub(super) fn loaded(&mut self, path: u8, load: &PathLoad) {
        self.lanes.loaded(path, load);
    }

    /// The time from one probe of the round trip to the next, at least; `None`: there are none.
    pub(super) fn probe_interval(&self) -> Option<Span> {
        self.lanes.probe_interval()
    }

    /// A probe of the round trip was answered after this time.
    pub(super) fn timed(&mut self, round_trip: Span, now: Time) {
        self.lanes.timed(round_trip, now);
    }

    /// The algorithm of congestion control, and whether signals of the path decided the last time;
    /// `None`: they never do.
    pub(super) fn congestion(&self) -> (&'static str, Option<bool>) {
        (self.lanes.algorithm(), self.lanes.is_guided())
    }

    /// A packet leaves as chosen, with `bytes` in memory, and asks for so many `answers`, in bytes.
    /// `awaited`: its outcome will be told.
    pub(super) fn left(
        &mut self,
        choice: &Choice,
        (bytes, answers): (usize, u32),
        awaited: bool,
        now: Time,
    ) {
        self.note_switch(&choice.path, now);
        let moved = bytes.saturating_add(usize::try_from(answers).unwrap_or(usize::MAX));
        self.lanes.left(choice.path.path, moved, awaited, now);
        self.count_sent(choice.port, bytes);
    }

    /// A flow may have another path from this packet on: its round trips are others then.
    fn note_switch(&mut self, choice: &path::Choice, now: Time) {
        if choice.switched && self.paths.is_flow() {
            self.lanes.rerouted(now);
        }
    }

    /// The counters of the paths through a port.
    fn count(&mut self, port: PortId) -> &mut PathCounters {
        self.counted = self.counted.with(port);
        &mut self.counters.get_or_insert_default()[port.index()]
    }

    /// A packet leaves through `port`.
    pub(super) fn count_sent(&mut self, port: PortId, bytes: usize) {
        let counters = self.count(port);
        counters.tx_packets += 1;
        counters.tx_bytes += u64::try_from(bytes).unwrap_or(0);
    }

    /// Adds what was counted since this was last called to the counters of the ports.
    #[inline]
    pub(super) fn report_to(&mut self, ports: &mut [PortStatistics; limits::PORTS]) {
        let Some(counters) = &mut self.counters else {
            return;
        };
        for port in std::mem::replace(&mut self.counted, PortSet::NONE).iter() {
            let counted = std::mem::take(&mut counters[port.index()]);
            ports[port.index()].paths.add(&counted);
        }
    }

    /// Port and path of the next packet, through one of the `free` ports. It avoids the entropy
    /// value `other_than`, with which its last copy was lost, if there is another (HT-42). A
    /// `probe` leaves also when the window is full. `None`: the packet may not leave now.
    pub(super) fn choose(
        &mut self,
        free: PortSet,
        (in_flight, probe): (u32, bool),
        other_than: Option<u8>,
        now: Time,
    ) -> Option<Choice> {
        let window = self.window();
        let credit = window.saturating_sub(in_flight).max(probe.into());
        if credit == 0 {
            return None;
        }
        self.paths.follow(window);
        if in_flight == 0 {
            self.lanes.settle();
        }
        let lanes = &self.lanes;
        let open = |path| lanes.is_open(path);
        let free = (free, in_flight == 0);
        let path = self.paths.select_among(other_than, free, now, open);
        Some(Choice {
            port: self.paths.port(path.entropy),
            path,
            entropy: self.paths.entropy_of(&path),
            credit,
        })
    }

    /// Port and path of an answer, through one of the `free` ports. The peer bounds what it asks
    /// for, so there is no window.
    pub(super) fn choose_for_answer(&mut self, free: PortSet, now: Time) -> Choice {
        let path = self.paths.select(None, free, now);
        self.note_switch(&path, now);
        self.last_answer = Some(LostPacket {
            path: path.path,
            sent: now,
        });
        self.is_missed = false;
        Choice {
            port: self.paths.port(path.entropy),
            path,
            entropy: self.paths.entropy_of(&path),
            credit: 1,
        }
    }

    /// The peer asks again for what was answered: after a silence the way of the answers is left,
    /// as after a time-out (HT-24). One answer is missed once, however many questions come again.
    pub(super) fn asked_again(&mut self, now: Time) {
        let vanished = |it: &LostPacket| now.since(it.sent) >= VANISHED_AFTER;
        let Some(answer) = self.last_answer.filter(vanished) else {
            return;
        };
        if !std::mem::replace(&mut self.is_missed, true) {
            self.paths.lost(answer, now);
            self.paths.timed_out(now);
        }
    }

    /// Whether an answer left not long ago, so that what is said of congestion may be about it.
    pub(super) fn has_answered(&self, now: Time) -> bool {
        self.last_answer
            .is_some_and(|it| now.since(it.sent) < RECENTLY)
    }

    /// Passes the outcome of a packet to path selection and congestion control; `in_flight`:
    /// packets whose outcome is not known.
    pub(super) fn feedback(&mut self, feedback: &Feedback, in_flight: u32, now: Time) {
        let Feedback { path, sent, .. } = *feedback;
        if let Some(round_trip) = feedback.round_trip {
            self.paths.measured(path, round_trip, now);
        }
        let port = self.paths.port(feedback.entropy);
        match feedback.fate {
            PacketFate::Delivered {
                newest_copy: true,
                marked,
            } => {
                self.paths.acknowledged(path, sent);
                let counters = self.count(port);
                counters.acknowledged += 1;
                counters.marked += u64::from(marked);
            }
            PacketFate::Lost => {
                self.paths.lost(LostPacket { path, sent }, now);
                self.count(port).lost += 1;
            }
            PacketFate::Trimmed => self.count(port).trimmed += 1,
            PacketFate::Delivered {
                newest_copy: false, ..
            }
            | PacketFate::NotReady => {}
        }
        self.paths.on_feedback(feedback, now);
        self.lanes.feedback(feedback, in_flight, now);
    }

    /// A packet is sent again, by another way, because others have overtaken it: it may come yet.
    pub(super) fn overtaken(&mut self, feedback: &Feedback, now: Time) {
        self.paths.on_feedback(feedback, now);
        self.lanes.doubted(feedback.path);
    }

    /// The outcome of an answer that was `asked` for at this time, while `outstanding` are awaited.
    /// It took a way that the peer chose, so only congestion control is told.
    pub(super) fn answered(&mut self, fate: PacketFate, awaited: (Time, u32), now: Time) {
        self.lanes.answered(fate, awaited, now);
    }

    /// A packet is sent again to learn what became of the others: its path may have lost it.
    /// Whether that was congestion is not known yet.
    pub(super) fn doubted(&mut self, feedback: &Feedback, now: Time) {
        let Feedback { path, sent, .. } = *feedback;
        self.paths.lost(LostPacket { path, sent }, now);
        self.count(self.paths.port(feedback.entropy)).lost += 1;
        self.overtaken(feedback, now);
    }

    /// A retransmission time-out expired.
    pub(super) fn timed_out(&mut self, now: Time) {
        self.paths.timed_out(now);
        self.lanes.timed_out();
    }

    /// The peer tells of congestion; `round_trip` is the smoothed time, once measured.
    pub(super) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        self.lanes.notified(round_trip, now);
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

    /// That of the first path, or for `number` above zero another value in its place: what is no
    /// answer to a packet may need another way, too.
    pub(super) fn detour(&self, number: u8) -> Entropy {
        self.paths.detour(number)
    }

    /// The sub-path that is to be probed, to compare that of the flow with: it is told of once.
    pub(super) fn take_doubt(&mut self) -> Option<u8> {
        self.paths.take_doubt()
    }

    /// The sub-paths in force.
    pub(super) fn in_force(&self) -> PathIds {
        self.paths.in_force()
    }

    /// Those in force that wait for the answer to a probe.
    pub(super) fn unmeasured(&self) -> PathIds {
        self.paths.unmeasured()
    }

    /// Those that carry new packets.
    pub(super) fn carrying(&self) -> PathIds {
        self.paths.carrying()
    }

    /// These sub-paths are in force from now on; the packets before `next` may be in flight.
    pub(super) fn put_in_force(&mut self, paths: &PathIds, next: Psn) {
        self.paths.put_in_force(paths, next);
        self.lanes.use_paths(&self.paths.carrying());
    }

    /// Paths wait for the answer to a probe, as far as each packet is not one itself (HT-21).
    pub(super) fn await_probes(&mut self, next: Psn) {
        self.paths.await_probes(next);
        self.lanes.use_paths(&self.paths.carrying());
    }

    /// The answer to a probe of `path` took `rtt`.
    pub(super) fn probed(&mut self, path: u8, rtt: Span, next: Psn, now: Time) {
        self.paths.probed(path, rtt, next, now);
        self.lanes.use_paths(&self.paths.carrying());
    }

    /// The weights of these paths.
    pub(super) fn weigh(&mut self, weights: &[(u8, u8)], next: Psn) {
        self.paths.weigh(weights, next);
    }

    /// Another granularity, or another time-out of flowlets.
    pub(super) fn respread(&mut self, agreed: &MultipathConfig) {
        self.paths.respread(agreed);
        let lanes = match agreed.granularity {
            Granularity::Packet => self.spread_lanes,
            Granularity::Flow | Granularity::Flowlet => 1,
        };
        self.lanes.resize(lanes);
        self.lanes.use_paths(&self.paths.carrying());
    }

    /// The application tells of its traffic, which leaves in packets of `mtu` bytes.
    pub(super) fn describe(&mut self, traffic: &Traffic, mtu: u16) {
        let packets = traffic.block.div_ceil(u32::from(mtu.max(1)));
        // All paths to a receiver that many send to end at the same congested hop.
        let settled = traffic.pattern == TrafficPattern::ManyToOne;
        self.paths.describe(Blocks { packets, settled });
    }

    /// All packets before `unacknowledged` were acknowledged.
    pub(super) fn settle(&mut self, unacknowledged: Psn) {
        self.paths.settle(unacknowledged);
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
