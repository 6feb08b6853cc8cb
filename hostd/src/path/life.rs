//! The life of sub-paths on a connection that carries data (HT-21, HT-24, HT-32).
//!
//! ```text
//!            put in force                 probe answered
//!   Unused ───────────────▶ Unmeasured ──────────────────▶ Carrying
//!     ▲                         │                             │ taken out
//!     └─────────────────────────┴── taken out                 ▼
//!     └────── all of its packets acknowledged ──────────── Retiring
//! ```
//!
//! When a connection begins, all are in force. Those of a flow or of flowlets wait for their
//! probes, but for the first one.
//!
//! A path that is taken out gets no new packets; those in flight are acknowledged, or sent again on
//! others, as ever. Only if all that are in force are unmeasured, retiring ones go on carrying
//! until the first of them is measured. A path that returns has another entropy value (HT-12).

use super::PathSet;
use super::entropy::Entropy;
use super::health::Health;
use super::select::Selector;
use crate::limits;
use crate::verbs::{Granularity, MultipathConfig, PathStanding as Standing, Psn};
use common::time::{Span, Time};
use common::wire::roce::PathIds;

impl PathSet {
    /// The sub-paths in force.
    pub(crate) fn in_force(&self) -> PathIds {
        self.ids(|standing| standing.in_force())
    }

    /// Those in force that wait for the answer to a probe.
    pub(crate) fn unmeasured(&self) -> PathIds {
        self.ids(|standing| standing == Standing::Unmeasured)
    }

    /// Those that carry new packets.
    pub(crate) fn carrying(&self) -> PathIds {
        let numbered = self.paths.iter().zip(0..=u8::MAX);
        numbered
            .filter(|(path, _)| path.carries)
            .map(|(_, id)| id)
            .collect()
    }

    fn ids(&self, meant: impl Fn(Standing) -> bool) -> PathIds {
        let numbered = self.paths.iter().zip(0..=u8::MAX);
        numbered
            .filter(|(path, _)| meant(path.standing))
            .map(|(_, id)| id)
            .collect()
    }

    /// These sub-paths are in force from now on. `next`: the packets before it may be in flight.
    pub(crate) fn put_in_force(&mut self, paths: &PathIds, next: Psn) {
        for id in PathIds::first(self.paths.len()).iter() {
            let path = &mut self.paths[usize::from(id)];
            match (path.standing, paths.contains(id)) {
                (Standing::Unused, true) => {
                    path.standing = Standing::Unmeasured;
                    path.generation += path.health.times_given_up() + 1;
                    path.entropy = Entropy::derive(self.identity, id, path.generation);
                    // Answers that vanished count also when a path is out of use.
                    self.avoided -= usize::from(path.health.is_avoided());
                    path.health = Health::new(self.avoidance);
                    path.weight = 1;
                    path.probed = true;
                    path.entered = true;
                }
                // It was not left long enough to be another one.
                (Standing::Retiring, true) => path.standing = Standing::Carrying,
                (Standing::Unmeasured, false) => path.standing = Standing::Unused,
                (Standing::Carrying, false) => path.standing = Standing::Retiring,
                _ => {}
            }
        }
        self.choose_carriers(next);
    }

    /// Before the first packet of data (HT-21): a flow or a flowlet takes another path than the
    /// first one, which is drawn, only once a probe has measured that. Each sprayed packet is a
    /// probe itself.
    pub(crate) fn await_probes(&mut self, next: Psn) {
        let begun = self.paths.iter().any(|path| path.tx_packets > 0);
        let Some(first) = self.selector.begin().filter(|_| !begun) else {
            return;
        };
        for (path, id) in self.paths.iter_mut().zip(0..=u8::MAX) {
            if id != first && path.standing == Standing::Carrying {
                path.standing = Standing::Unmeasured;
                path.probed = true;
                path.entered = true;
            }
        }
        self.choose_carriers(next);
    }

    /// The answer to a probe of a path took `rtt`: it carries data from now on.
    pub(crate) fn probed(&mut self, id: u8, rtt: Span, next: Psn, now: Time) {
        let Some(path) = self.paths.get_mut(usize::from(id)) else {
            return;
        };
        path.health.measured(rtt, now);
        if let Some(reroute) = &mut self.reroute {
            reroute.probed(id, rtt, now);
        }
        if path.standing == Standing::Unmeasured {
            path.standing = Standing::Carrying;
            self.choose_carriers(next);
        }
    }

    /// The weights of these paths.
    pub(crate) fn weigh(&mut self, weights: &[(u8, u8)], next: Psn) {
        for (path, weight) in weights {
            if let Some(path) = self.paths.get_mut(usize::from(*path)) {
                path.weight = (*weight).clamp(1, limits::WEIGHT);
            }
        }
        self.choose_carriers(next);
    }

    /// Another granularity, or another time-out of flowlets.
    pub(crate) fn respread(&mut self, agreed: &MultipathConfig) {
        let (granularity, timeout) = (agreed.granularity, agreed.flowlet_timeout);
        if let (Granularity::Flowlet, Selector::Flowlet(flowlets)) =
            (granularity, &mut self.selector)
        {
            return flowlets.set_timeout(timeout);
        }
        let same = matches!(
            (granularity, &self.selector),
            (Granularity::Packet, Selector::Spray(..)) | (Granularity::Flow, Selector::Single(_))
        );
        if !same {
            let flowlet = self.selector.flowlet_number().unwrap_or(self.flowlet);
            self.flowlet = flowlet;
            self.selector = self
                .plan
                .selector(granularity, timeout, self.paths.len(), flowlet);
            self.set_entries();
            if granularity == Granularity::Flow {
                // Congestion control may know the round trips of other paths only.
                self.paths.iter_mut().for_each(|path| path.entered = true);
            }
        }
    }

    /// All packets before `unacknowledged` were acknowledged: paths that carried only such are
    /// released.
    pub(crate) fn settle(&mut self, unacknowledged: Psn) {
        if !self.retiring {
            return;
        }
        self.retiring = false;
        for path in &mut self.paths {
            if path.standing != Standing::Retiring {
                continue;
            }
            if path.carries || unacknowledged.is_before(path.left_at) {
                self.retiring = true;
                continue;
            }
            path.standing = Standing::Unused;
            self.avoided -= usize::from(path.health.is_avoided());
            let given_up = path.health.times_given_up();
            path.generation += given_up;
            path.health = Health::new(self.avoidance);
            path.rx = None;
        }
    }

    /// Which paths carry new packets follows from how all of them stand.
    fn choose_carriers(&mut self, next: Psn) {
        let any = self
            .paths
            .iter()
            .any(|path| path.standing == Standing::Carrying);
        for path in &mut self.paths {
            let carries = match path.standing {
                Standing::Carrying => true,
                Standing::Retiring => !any && path.carries,
                Standing::Unused | Standing::Unmeasured => false,
            };
            if path.carries && !carries {
                path.left_at = next;
            }
            path.carries = carries;
            self.retiring |= path.standing == Standing::Retiring;
        }
        self.set_entries();
    }

    /// What the selection draws from: each value of each path that carries, as often as its weight
    /// says.
    pub(super) fn set_entries(&mut self) {
        let carrying = || {
            self.paths
                .iter()
                .zip(0..=u8::MAX)
                .filter(|(path, _)| path.carries)
        };
        let shared = carrying().fold(0, |all, (path, _)| greatest_divisor(all, path.weight));
        let paths = self.paths.len();
        let values = match &self.selector {
            Selector::Spray(..) => self.plan.values_over(paths),
            Selector::Flowlet(_) | Selector::Single(_) => paths,
        };
        let mut entries = Vec::new();
        for (path, id) in carrying() {
            for _ in 0..path.weight / shared.max(1) {
                entries.extend(
                    (id..=u8::MAX)
                        .step_by(paths)
                        .take_while(|value| usize::from(*value) < values),
                );
            }
        }
        if !entries.is_empty() {
            self.selector.set(&entries);
        }
        self.note_ports();
    }
}

/// The greatest common divisor; that with zero is the other number.
const fn greatest_divisor(one: u8, other: u8) -> u8 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}
