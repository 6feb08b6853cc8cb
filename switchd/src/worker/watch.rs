//! The watchdog of the worker's egress ports: what it is told, and what becomes of what it finds (SW-32, SW-34).
//!
//! ```text
//!   pauses asked for, packets sent ─▶ poll ─▶ storm ──▶ queues shut, or pauses ignored ─▶ event
//!                                            restored ▶ as before                      ─▶ event
//! ```

use super::egress::Egress;
use super::{Worker, WorkerEvent};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::{CLASSES, PRIORITIES};
use crate::tables::policy::{Classify, Policy};
use crate::traffic::watchdog::{Input, State, Steps};
use common::time::Time;
use common::xdp::queue::QueueIo;

/// What happened to a priority of a port that its peer paused without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    /// A storm was found, and the action is in force.
    Found,
    /// It is over.
    Restored,
    /// There were too many: PFC is off for this priority until an operator turns it on.
    TurnedOff,
    /// An operator, or a change of the configuration, turned it on again.
    TurnedOn,
}

impl Storm {
    /// The word for it in logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "storm",
            Self::Restored => "restored",
            Self::TurnedOff => "turned off",
            Self::TurnedOn => "turned on",
        }
    }
}

/// Bit c is set for each c that `map` makes of a priority in `mask`.
pub(super) fn mapped(mask: u8, map: &[u8; PRIORITIES]) -> u8 {
    (0..PRIORITIES)
        .filter(|priority| mask & 1 << priority != 0)
        .fold(0, |all, priority| all | 1 << (map[priority] & 7))
}

/// Packets that a class has sent, its elephants' included.
fn sent_of(egress: &Egress, policy: &Policy, class: u8) -> u64 {
    let queues = policy.with_elephants(1 << class);
    (0..CLASSES)
        .filter(|queue| queues & 1 << queue != 0)
        .map(|queue| egress.manager.sent_packets(queue))
        .sum()
}

impl<Q: QueueIo> Worker<Q> {
    /// Polls the watchdogs that are due.
    #[inline]
    pub(super) fn watch(&mut self, now: Time) {
        if now >= self.watch_at {
            self.poll_watchdogs(now);
        }
    }

    #[cold]
    fn poll_watchdogs(&mut self, now: Time) {
        let tables = self.tables.clone();
        let classes = tables.traffic.classify.class_of_priority;
        for place in 0..self.egress.len() {
            let egress = &mut self.egress[place];
            if now < egress.watchdog.deadline() {
                continue;
            }
            let inputs = std::array::from_fn(|priority| Input {
                request: egress.pauses.pfc_rx.request(priority, now),
                sent_packets: sent_of(egress, &tables.traffic, classes[priority] & 7),
            });
            let steps = egress.watchdog.poll(now, &inputs);
            egress.show_pauses(&self.stats, now);
            if steps.any() {
                self.act(place, steps, now);
            }
        }
        self.plan_watch();
    }

    /// Sets when the next watchdog is due.
    pub(super) fn plan_watch(&mut self) {
        let due = self.egress.iter().map(|it| it.watchdog.deadline());
        self.watch_at = due.min().unwrap_or(Time::NEVER);
    }

    /// An operator wants PFC on again.
    pub(super) fn enable_pfc(&mut self, port: PortId, priority: u8, now: Time) {
        let Some(place) = self.place.get(port.index()).copied().flatten() else {
            return;
        };
        let steps = self.egress[place]
            .watchdog
            .enable(usize::from(priority), now);
        if steps.any() {
            self.act(place, steps, now);
        }
    }

    /// Does what a watchdog wants to be done now, and tells control.
    pub(super) fn act(&mut self, place: usize, steps: Steps, now: Time) {
        let tables = self.tables.clone();
        let Classify {
            class_of_priority,
            group_of_priority,
            ..
        } = tables.traffic.classify;
        let egress = &mut self.egress[place];
        let (port, masks) = (egress.port, steps.masks);
        egress
            .pauses
            .pfc_rx
            .ignore(masks.ignoring | masks.dropping, now);
        egress.pauses.off = masks.off;
        let shut = tables
            .traffic
            .with_elephants(mapped(masks.dropping, &class_of_priority));
        egress.manager.shut(shut);
        egress
            .manager
            .stop(egress.pauses.stopped(&tables.traffic, now));
        let groups = mapped(masks.dropping, &group_of_priority);
        self.ledger.shut(port, groups);
        // What was paused at the peer by a priority that is off now goes on there.
        self.ledger.repeat(port);
        let mut packets = std::mem::take(&mut self.scratch.packets);
        let egress = &mut self.egress[place];
        egress
            .manager
            .clear(shut, &mut self.store, &self.ledger, &mut packets);
        for packet in packets.drain(..) {
            self.drop_charged(packet, DropReason::PfcStorm);
        }
        self.scratch.packets = packets;
        self.egress[place].show_watchdog(&self.stats);
        for (mask, storm) in [
            (steps.storm, Storm::Found),
            (steps.restored, Storm::Restored),
            (steps.turned_off, Storm::TurnedOff),
            (steps.turned_on, Storm::TurnedOn),
        ] {
            for priority in (0_u8..8).filter(|priority| mask & 1 << priority != 0) {
                self.tell(WorkerEvent::Storm {
                    port,
                    priority,
                    storm,
                });
            }
        }
    }

    /// Tells control, or counts that it did not listen.
    pub(super) fn tell(&self, event: WorkerEvent) {
        if self.events.try_send(event).is_err() {
            self.stats.events_lost.add(1);
        }
    }
}

/// The number of a state in metrics: 0 operational, 1 stormed, 2 off.
pub fn number(state: State) -> u64 {
    match state {
        State::Operational => 0,
        State::Stormed => 1,
        State::Off => 2,
    }
}
