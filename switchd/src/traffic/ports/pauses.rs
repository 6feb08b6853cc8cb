//! Pauses of the peers, pauses for them, and the watchdogs against endless ones (SW-30 to SW-34).
//!
//! ```text
//!   pauses asked for, packets sent ─▶ poll ─▶ storm ──▶ queues shut, or pauses ignored
//!                                            restored ▶ as before
//! ```

use super::{EgressPorts, OwnedPort};
use crate::limits::{CLASSES, KICK_AGAIN};
use crate::packet::{Packet, wire_len};
use crate::stats::WorkerStats;
use crate::tables::policy::{Classify, Policy};
use crate::traffic::egress_port::PolicyAndLedger;
use crate::traffic::flow_control::{PauseStep, mapped};
use crate::traffic::watchdog::{Input, Masks, Steps, Watchdog};
use common::time::{Span, Time};
use common::wire::pause::Control;

/// Packets that a class has sent, its elephants' included.
fn sent_of(port: &OwnedPort, policy: &Policy, class: u8) -> u64 {
    let queues = policy.with_elephants(1 << class);
    (0..CLASSES)
        .filter(|queue| queues & 1 << queue != 0)
        .map(|queue| port.manager.sent_packets(queue))
        .sum()
}

impl EgressPorts {
    /// The peer of the port at `place` sent a control frame.
    #[cold]
    pub fn on_control_frame(
        &mut self,
        place: usize,
        control: &Control,
        policy: &Policy,
        stats: &WorkerStats,
        now: Time,
    ) {
        let port = &mut self.ports[place];
        port.pauses.take(control, now);
        port.stop_paused(policy, now);
        port.show_pauses(stats, now);
    }

    /// Holds exactly these classes of the port at `place` (bit n: class n).
    #[cold]
    pub fn hold(
        &mut self,
        place: usize,
        classes: u8,
        policy: &Policy,
        stats: &WorkerStats,
        now: Time,
    ) {
        let port = &mut self.ports[place];
        port.pauses.held = classes;
        port.stop_paused(policy, now);
        port.show_pauses(stats, now);
    }

    /// Whether pauses that were asked of peers have to be refreshed.
    #[inline]
    pub fn is_refresh_due(&self, now: Time) -> bool {
        now >= self.refresh_at
    }

    /// Sets when the next refresh is due.
    pub fn plan_refresh(&mut self, now: Time) {
        let refreshes = self.ports.iter().map(|it| {
            let due = it.pauses.sender.deadline();
            // One that found no room is tried again in every turn, and when its device is kicked
            // again.
            if due <= now { now + KICK_AGAIN } else { due }
        });
        self.refresh_at = refreshes.min().unwrap_or(Time::NEVER);
    }

    /// The pause frame that is due to the peer of the port at `place`.
    #[cold]
    pub fn pause_step(
        &mut self,
        place: usize,
        buffer: PolicyAndLedger<'_>,
        now: Time,
    ) -> PauseStep {
        let port = &mut self.ports[place];
        // Before the look at the groups: what changes after it is news again.
        buffer.ledger.clear_news(port.port);
        let wanted = buffer.ledger.wanted(buffer.policy, port.port);
        let step = port.pauses.next_step(wanted, port.up, now);
        if step == PauseStep::Replanned {
            self.plan_refresh(now);
        }
        step
    }

    /// The frame of [`PauseStep::Send`]; it counts as sent, and [`Self::paused`] has to follow.
    pub fn pause_frame(&mut self, place: usize, wanted: u8, now: Time) -> Option<Control> {
        self.ports[place].pauses.next_frame(wanted, now)
    }

    /// A control frame of `len` bytes was given to the device of the port at `place`.
    pub fn paused(&mut self, place: usize, len: u64, stats: &WorkerStats, now: Time) {
        let port = &mut self.ports[place];
        port.manager.spend(wire_len(len));
        port.show_pauses(stats, now);
        self.plan_refresh(now);
    }

    /// Whether a watchdog has to be polled.
    #[inline]
    pub fn is_watch_due(&self, now: Time) -> bool {
        now >= self.watch_at
    }

    /// Polls the watchdog of the port at `place` if it is due. Returns the steps that it takes, if
    /// any.
    #[cold]
    pub fn poll_watchdog(
        &mut self,
        place: usize,
        policy: &Policy,
        stats: &WorkerStats,
        now: Time,
    ) -> Option<Steps> {
        let port = &mut self.ports[place];
        if now < port.watchdog.deadline() {
            return None;
        }
        let classes = policy.classify.class_of_priority;
        let inputs = std::array::from_fn(|priority| Input {
            request: port.pauses.pfc_rx.request(priority, now),
            sent_packets: sent_of(port, policy, classes[priority] & 7),
        });
        let steps = port.watchdog.poll(now, &inputs);
        port.show_pauses(stats, now);
        steps.any().then_some(steps)
    }

    /// Sets when the next watchdog is due, and how long a worker may be away without telling it.
    pub fn plan_watch(&mut self) {
        let watchdogs = || self.ports.iter().map(|it| &it.watchdog);
        self.watch_at = watchdogs()
            .map(Watchdog::deadline)
            .min()
            .unwrap_or(Time::NEVER);
        self.patience = watchdogs()
            .map(Watchdog::patience)
            .min()
            .unwrap_or(Span::MAX);
    }

    /// The worker was to turn at `due` and turns at `now`, before it reads what has arrived. If
    /// that is so late that pauses may have ended unseen, no watchdog counts this time.
    #[inline]
    pub fn note_lateness(&mut self, due: Time, now: Time) {
        if now.since(due) > self.patience {
            self.away(due, now);
        }
    }

    #[cold]
    fn away(&mut self, from: Time, to: Time) {
        self.ports.iter_mut().for_each(|port| port.away(from, to));
        self.plan_watch();
    }

    /// An operator turns PFC on again for a priority. Returns the steps to take, if any.
    pub fn enable_pfc(&mut self, place: usize, priority: u8, now: Time) -> Option<Steps> {
        let watchdog = &mut self.ports[place].watchdog;
        let steps = watchdog.enable(usize::from(priority), now);
        steps.any().then_some(steps)
    }

    /// Applies the actions of a watchdog. Packets of queues that are discarded go to `packets`.
    pub fn apply_watchdog(
        &mut self,
        place: usize,
        masks: Masks,
        buffer: PolicyAndLedger<'_>,
        stats: &WorkerStats,
        packets: &mut Vec<Packet>,
        now: Time,
    ) {
        let PolicyAndLedger { policy, ledger, .. } = buffer;
        let Classify {
            class_of_priority,
            group_of_priority,
            ..
        } = &policy.classify;
        let port = &mut self.ports[place];
        let ignored = masks.ignoring | masks.dropping;
        port.pauses.pfc_rx.ignore(ignored, now);
        port.pauses.off = masks.off;
        let shut = policy.with_elephants(mapped(masks.dropping, class_of_priority));
        port.manager.shut(shut);
        port.stop_paused(policy, now);
        ledger.shut(port.port, mapped(masks.dropping, group_of_priority));
        // What was paused at the peer by a priority that is off now goes on there.
        ledger.repeat(port.port);
        port.manager.clear(shut, &mut self.store, ledger, packets);
        port.show_watchdog(stats);
    }
}
