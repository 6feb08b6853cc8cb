//! The controllers of congestion of a queue pair, and the paces that follow from them: one for all
//! its packets, or one for those of each sub-path (HT-33).
//!
//! ```text
//!   scope       a controller takes in            and says
//!   connection  the outcome of all packets       how many may be in flight
//!   path        that of n lanes: its own ones,   of which each lane has the n-th part
//!               each as if it were n
//! ```
//!
//! So each controller of a lane acts as that of a whole flow on its sub-path. Together they allow
//! the mean of what they say: no more than one flow where they meet at one bottleneck (CC-10).
//! Where one sub-path is congested, its lane alone shrinks, and packets take those that have room.

use crate::congestion::{Controller, LONGEST_WAIT};
use crate::path::mix;
use crate::stats::{PathLoad, PathSignal};
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::roce::PathIds;

/// A whole interval.
const PHASES: u64 = 256;

/// One controller and its pace.
#[derive(Debug)]
struct Lane {
    controller: Controller,
    /// Packets whose outcome is not known, about: what was lost may come after all.
    in_flight: u32,
    /// When the last packet left.
    departed: Time,
    /// Nothing leaves before: windows below one packet are paces, and rates are.
    held_until: Option<Time>,
    /// The last packet left when the window was a pace already.
    paced: bool,
    /// How much of an interval the next packet waits, in parts of [`PHASES`].
    phase: u64,
    /// Of random waits.
    random: u64,
    /// New packets take it.
    used: bool,
}

impl Lane {
    /// Holds the next packet back as long as the pace asks for, with `lanes` of them.
    ///
    /// Senders that a crowd slows down at the same time would go on at the same time, and each of
    /// their bursts would be trimmed again. So the first wait is a random part of the interval. The
    /// others are random about it: with one interval for all, those that meet once would meet
    /// always, and the same ones would be trimmed each time.
    fn hold(&mut self, lanes: u64, now: Time) {
        if self.controller.has_rate() {
            self.held_until = self.controller.not_before(now);
            return;
        }
        let interval = self.controller.interval();
        let interval = interval.map(|interval| interval.min(LONGEST_WAIT));
        let parts = self.phase * lanes;
        let wait = interval.map(|interval| interval.times(parts).divided_by(PHASES));
        // What left before the pace may be answered by all at once, long after.
        let from = if self.paced { self.departed } else { now };
        let until = wait.map(|wait| from + wait);
        self.held_until = until.filter(|until| *until > now);
    }

    /// Draws the wait of the next packet, unless there is none and was none.
    fn draw(&mut self) {
        let before = self.paced;
        self.paced = self.controller.interval().is_some();
        if !self.paced && !before {
            return;
        }
        self.random = mix(self.random);
        let part = self.random % PHASES;
        self.phase = match self.paced {
            // From half an interval to one and a half.
            true => PHASES / 2 + part,
            false => 1 + part,
        };
    }

    /// Whether the window of one of `lanes` has room.
    fn has_room(&self, lanes: u32) -> bool {
        self.in_flight == 0 || self.in_flight * lanes < self.controller.window()
    }

    fn is_open(&self, lanes: u32) -> bool {
        self.held_until.is_none() && self.has_room(lanes)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lanes {
    /// At least one.
    lanes: Vec<Lane>,
    /// How many there are: at most as many as there are paths.
    total: u8,
    /// How many of them are used: at least one.
    count: u8,
    /// As controllers begin.
    fresh: Controller,
    seed: u64,
    /// Of the line, once told.
    speed: Option<Rate>,
}

impl Lanes {
    /// `count` lanes, at least one, each with a `controller`; `seed`: of random waits.
    pub(super) fn new(controller: &Controller, count: u8, seed: u64) -> Self {
        let lane = |number: u64| Lane {
            controller: controller.clone(),
            in_flight: 0,
            departed: Time::ZERO,
            held_until: None,
            paced: true,
            phase: PHASES,
            random: seed.wrapping_add(number),
            used: true,
        };
        let count = count.max(1);
        Self {
            lanes: (0..u64::from(count)).map(lane).collect(),
            total: count,
            count,
            fresh: controller.clone(),
            seed,
            speed: None,
        }
    }

    /// So many lanes from now on: each goes on as the first one that was used did.
    pub(super) fn resize(&mut self, count: u8) {
        if count != self.total {
            let (fresh, speed) = (self.fresh.clone(), self.speed);
            let kept = self.used().next().unwrap_or(&self.lanes[0]);
            *self = Self::new(&kept.controller, count, self.seed);
            (self.fresh, self.speed) = (fresh, speed);
        }
    }

    /// New packets take these paths alone: lanes without any share in nothing. One that comes back
    /// begins anew.
    pub(super) fn use_paths(&mut self, paths: &PathIds) {
        let total = self.total;
        for (lane, number) in self.lanes.iter_mut().zip(0..) {
            let used = total == 1 || paths.iter().any(|path| path % total == number);
            if used && !lane.used {
                lane.controller = self.fresh.clone();
                lane.held_until = None;
                lane.in_flight = 0;
            }
            lane.used = used;
        }
        let used = self.lanes.iter().filter(|lane| lane.used).count();
        self.count = u8::try_from(used).unwrap_or(u8::MAX).max(1);
    }

    fn is_one(&self) -> bool {
        self.total == 1
    }

    /// The lanes that new packets take.
    fn used(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|lane| lane.used)
    }

    /// The lane of a path.
    fn of(&mut self, path: u8) -> &mut Lane {
        &mut self.lanes[usize::from(path % self.total)]
    }

    /// Packets leave at this speed at most; zero: it is not known. What was learnt at the same
    /// speed still holds.
    pub(super) fn set_speed(&mut self, speed: Rate) {
        if self.speed.replace(speed) == Some(speed) {
            return;
        }
        self.fresh.set_speed(speed);
        for lane in &mut self.lanes {
            lane.controller.set_speed(speed);
        }
    }

    /// The packets of the flow take another way from now on.
    pub(super) fn rerouted(&mut self, now: Time) {
        for lane in &mut self.lanes {
            lane.controller.rerouted(now);
        }
    }

    /// Packets that may be in flight.
    pub(super) fn window(&self) -> u32 {
        let windows = self.used().map(|lane| lane.controller.window());
        (windows.sum::<u32>() / u32::from(self.count)).max(1)
    }

    /// Packets that may leave while `in_flight` are unacknowledged.
    pub(super) fn credit(&self, in_flight: u32) -> u32 {
        let open = match self.lanes.as_slice() {
            [alone] => alone.held_until.is_none(),
            // What lanes count is forgotten when nothing is in flight.
            _ if in_flight == 0 => self.used().any(|lane| lane.held_until.is_none()),
            _ => self.used().any(|lane| lane.is_open(self.count.into())),
        };
        if open {
            self.window().saturating_sub(in_flight)
        } else {
            0
        }
    }

    /// Whether a packet may leave on `path`, as far as that is concerned.
    pub(super) fn is_open(&self, path: u8) -> bool {
        self.is_one() || self.lanes[usize::from(path % self.total)].is_open(self.count.into())
    }

    /// Until when nothing leaves, whatever the window is.
    pub(super) fn held_until(&self) -> Option<Time> {
        let lanes = u32::from(self.count);
        match self.lanes.as_slice() {
            [alone] => alone.held_until,
            _ if self.used().any(|lane| lane.is_open(lanes)) => None,
            _ => {
                let waiting = self.used().filter(|lane| lane.has_room(lanes));
                waiting.filter_map(|lane| lane.held_until).min()
            }
        }
    }

    /// Lets packets leave again if it is time for them.
    pub(super) fn release(&mut self, now: Time) {
        let lanes = u64::from(self.count);
        for lane in &mut self.lanes {
            if lane.controller.has_rate() {
                lane.hold(lanes, now);
            } else {
                lane.held_until = lane.held_until.filter(|until| *until > now);
            }
        }
    }

    /// The peer tells that `crowd` queue pairs share its link.
    pub(super) fn crowd(&mut self, crowd: u32, now: Time) {
        let lanes = u64::from(self.count);
        for lane in &mut self.lanes {
            lane.controller.crowd(crowd);
            lane.hold(lanes, now);
        }
    }

    /// A packet of an own request leaves on `path`, with `bytes` in memory. `awaited`: its outcome
    /// will be told.
    pub(super) fn left(&mut self, path: u8, bytes: usize, awaited: bool, now: Time) {
        let count = self.count;
        let lane = self.of(path);
        lane.in_flight += u32::from(awaited);
        let parts = if lane.controller.is_slow_rate() {
            count
        } else {
            1
        };
        lane.controller.left(bytes * usize::from(parts), now);
        lane.departed = now;
        lane.draw();
        lane.hold(count.into(), now);
    }

    /// The outcome of no packet is awaited.
    pub(super) fn settle(&mut self) {
        for lane in &mut self.lanes {
            lane.in_flight = 0;
        }
    }

    /// The outcome of a packet is known; that of `in_flight` packets is not.
    pub(super) fn feedback(&mut self, feedback: &Feedback, in_flight: u32, now: Time) {
        let (one, count) = (self.is_one(), self.count);
        let lane = self.of(feedback.path);
        lane.in_flight = lane.in_flight.saturating_sub(1);
        let in_flight = if one {
            in_flight
        } else {
            lane.in_flight * u32::from(count)
        };
        for _ in 0..count {
            lane.controller.on_feedback(feedback, in_flight, now);
        }
        lane.hold(count.into(), now);
    }

    /// The outcome of an answer that was `asked` for at this time is known; `outstanding` are
    /// awaited. Answers belong to no lane: each hears of all of them.
    pub(super) fn answered(
        &mut self,
        fate: PacketFate,
        (asked, outstanding): (Time, u32),
        now: Time,
    ) {
        let lanes = u64::from(self.count);
        let feedback = Feedback {
            path: 0,
            entropy: 0,
            sent: asked,
            round_trip: None,
            delay: None,
            fate,
        };
        for lane in &mut self.lanes {
            lane.controller.on_feedback(&feedback, outstanding, now);
            lane.hold(lanes, now);
        }
    }

    /// The outcome of a packet on `path` is not awaited any more, and says nothing of congestion.
    pub(super) fn doubted(&mut self, path: u8) {
        let lane = self.of(path);
        lane.in_flight = lane.in_flight.saturating_sub(1);
    }

    /// A congestion signal of `path` came back.
    pub(super) fn signalled(&mut self, path: u8, read: &PathSignal, now: Time) {
        let count = self.count;
        let lane = self.of(path);
        lane.controller.signalled(read, now);
        lane.hold(count.into(), now);
    }

    /// The peer told of the worst link of `path`.
    pub(super) fn loaded(&mut self, path: u8, load: &PathLoad) {
        self.of(path).controller.loaded(load);
    }

    /// The time from one probe of the round trip to the next, at least; `None`: there are none.
    pub(super) fn probe_interval(&self) -> Option<Span> {
        self.lanes.first()?.controller.probe_interval()
    }

    /// A probe of the round trip was answered after this time.
    pub(super) fn timed(&mut self, round_trip: Span, now: Time) {
        let count = u64::from(self.count);
        for lane in &mut self.lanes {
            lane.controller.probed(round_trip, now);
            lane.hold(count, now);
        }
    }

    /// Whether signals of the path decided the last time in any lane; `None`: they never do.
    pub(super) fn is_guided(&self) -> Option<bool> {
        let guided = self.used().map(|lane| lane.controller.is_guided());
        guided.max().flatten()
    }

    /// The name of the algorithm in force: [`Controller::Auto`] is replaced by another one.
    pub(super) fn algorithm(&self) -> &'static str {
        let used = self.used().next().unwrap_or(&self.lanes[0]);
        used.controller.name()
    }

    /// A retransmission time-out expired.
    pub(super) fn timed_out(&mut self) {
        for lane in &mut self.lanes {
            lane.controller.timed_out();
        }
    }

    /// The peer tells of congestion; `round_trip` is the smoothed time, once measured.
    pub(super) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        let lanes = u64::from(self.count);
        for lane in &mut self.lanes {
            lane.controller.notified(round_trip, now);
            lane.hold(lanes, now);
        }
    }
}

#[cfg(test)]
mod tests;
