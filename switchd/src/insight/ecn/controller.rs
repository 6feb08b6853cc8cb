//! All queues of a switch: from counters to thresholds, once an interval.

use super::alarms::Alarms;
use super::features::{Features, FlowSample, Sample};
use super::model::Model;
use super::thresholds::{Bounds, Thresholds};
use super::tuner::{Change, Interval, Tuner};
use super::{Mode, Settings};
use crate::id::PortId;
use crate::limits::CLASSES;
use crate::stats::{PortStats, WorkerStats};
use crate::tables::PortEntry;
use crate::tables::policy::Policy;
use crate::traffic::buffer::Ledger;
use common::time::Time;
use common::units::Rate;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What the controller sees of a switch.
pub struct View<'a> {
    /// The present.
    pub now: Time,
    /// The ports, by number.
    pub ports: &'a [PortEntry],
    /// The policy as it is configured.
    pub configured: &'a Policy,
    /// The accounts of the buffer.
    pub ledger: &'a Ledger,
    /// What all workers count.
    pub workers: &'a [&'a WorkerStats],
    /// Which of them owns a port as egress.
    pub owner: &'a dyn Fn(PortId) -> usize,
}

/// A queue whose thresholds follow its traffic, or could.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// What is known of it, and in force.
    pub tuner: Tuner,
    before: Option<Sample>,
    /// Packets that it had refused by then.
    refused: u64,
}

/// What the queues of a class have in common in an interval: all ports have to be asked for it.
#[derive(Clone, Copy, Debug)]
struct Shared<'a> {
    /// Pauses and losses, by port.
    alarms: &'a Alarms,
    /// What their Kmax stays under.
    ceiling: u32,
}

/// The thresholds of all lossless queues of a switch.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    model: Arc<Model>,
    queues: BTreeMap<(PortId, u8), QueueState>,
    /// By class: what happened to it in the last interval.
    alarms: [Alarms; CLASSES],
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("now", &self.now)
            .field("ports", &self.ports.len())
            .finish_non_exhaustive()
    }
}

impl View<'_> {
    /// The counters of a port at the worker that owns it.
    fn owned(&self, port: PortId) -> Option<&PortStats> {
        let worker = self.workers.get((self.owner)(port))?;
        worker.ports.get(port.index())
    }

    /// The line of a port and the bytes of its bandwidth-delay product.
    fn line(&self, port: PortId, settings: &Settings) -> Option<(Rate, u64)> {
        let entry = self.ports.get(port.index())?;
        let speed = entry.speed.or(entry.link)?;
        Some((speed, speed.bytes_in(settings.base_rtt).max(1)))
    }
}

impl QueueState {
    fn new(configured: Thresholds) -> Self {
        Self {
            tuner: Tuner::new(configured),
            before: None,
            refused: 0,
        }
    }

    /// What the interval was like that ends now.
    fn interval(
        &mut self,
        (port, class): (PortId, u8),
        view: &View<'_>,
        shared: Shared<'_>,
        line: (Rate, u64),
    ) -> Option<Interval> {
        let index = usize::from(class);
        let queue = &view.owned(port)?.queues[index % CLASSES];
        let sample = Sample {
            at: view.now,
            packets: queue.sent_packets.get(),
            bytes: queue.sent_bytes.get(),
            marked: queue.marked_packets.get(),
            byte_time: queue.byte_time_at(view.now),
            flows: (queue.flows.asked.get() == queue.flows.answered.get()).then(|| FlowSample {
                buckets: queue.flows.buckets.get(),
                even_milli: queue.flows.even_milli.get(),
                sources: queue.flows.sources.get(),
            }),
        };
        queue.flows.asked.add(1);
        // Both, before the first interval ends here without any: what is counted since the start is
        // no news.
        let refused = queue.dropped_packets.get();
        let refused_before = std::mem::replace(&mut self.refused, refused);
        let before = self.before.replace(sample)?;
        let (paused, lost) = shared.alarms.concern(&queue.flows);
        let kmax = self.tuner.in_force().kmax;
        let features = Features::between(&before, &sample, line, kmax);
        // Others than the queues that marked are not to blame for a pause.
        let is_loaded = features.is_some_and(|it| it.marked > 0.0);
        Some(Interval {
            now: view.now,
            features,
            paused: is_loaded && paused,
            lost: is_loaded && (lost || refused > refused_before),
            bounds: Bounds::below(shared.ceiling, view.configured, port.index(), index),
            unit: line.1,
        })
    }
}

impl Controller {
    /// Nothing is known yet.
    pub fn new(settings: Settings, model: Arc<Model>) -> Self {
        Self {
            settings,
            model,
            queues: BTreeMap::new(),
            alarms: Default::default(),
        }
    }

    /// How it is done.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The scenarios that it knows.
    pub const fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The queues that it looks after, by port and class.
    pub fn queues(&self) -> impl Iterator<Item = (PortId, u8, &QueueState)> {
        let all = self.queues.iter();
        all.map(|((port, class), state)| (*port, *class, state))
    }

    /// Does it so from now on, with this model. Returns what changes at once.
    pub fn follow(
        &mut self,
        settings: Settings,
        model: Arc<Model>,
        now: Time,
    ) -> Vec<(PortId, u8, Change)> {
        (self.settings, self.model) = (settings, model);
        if matches!(settings.mode, Mode::Ai | Mode::Frozen) {
            return Vec::new();
        }
        let queues = self.queues.iter_mut();
        let changes = queues
            .filter_map(|((port, class), it)| Some((*port, *class, it.tuner.restore(now)?)))
            .collect();
        if settings.mode == Mode::Off {
            self.queues.clear();
        }
        changes
    }

    /// Takes samples of all queues, once an interval. Returns the thresholds that change.
    pub fn tick(&mut self, view: &View<'_>) -> Vec<(PortId, u8, Change)> {
        self.follow_configuration(view);
        let mut ceilings = [None; CLASSES];
        let mut changes = Vec::new();
        for ((port, class), queue) in &mut self.queues {
            let index = usize::from(*class);
            let alarms = &mut self.alarms[index % CLASSES];
            let ceiling = *ceilings[index % CLASSES].get_or_insert_with(|| {
                alarms.look(index, view.configured, view.workers);
                Bounds::ceiling_of(view.configured, view.ledger, index)
            });
            let Some(line) = view.line(*port, &self.settings) else {
                continue;
            };
            let shared = Shared { alarms, ceiling };
            let interval = queue.interval((*port, *class), view, shared, line);
            let change = interval
                .and_then(|interval| queue.tuner.take(&interval, &self.settings, &self.model));
            changes.extend(change.map(|change| (*port, *class, change)));
        }
        changes
    }

    /// Looks after the queues that are configured so, from the thresholds that are configured.
    fn follow_configuration(&mut self, view: &View<'_>) {
        let mut before = std::mem::take(&mut self.queues);
        let ports = view.configured.ports.iter().zip(view.ports).zip(0..);
        for ((policy, entry), port) in ports {
            let port = PortId(port);
            for (class, queue) in policy.queues.iter().enumerate() {
                let is_wanted = view.configured.sketched & 1 << class != 0;
                let Some(wred) = queue.wred.filter(|it| it.profile.ecn && is_wanted) else {
                    continue;
                };
                if entry.name.is_empty() {
                    continue;
                }
                let key = (port, u8::try_from(class).expect("8"));
                let configured = Thresholds::of(wred.profile.curve);
                let kept = before.remove(&key);
                let kept = kept.filter(|it| it.tuner.configured() == configured);
                self.queues
                    .insert(key, kept.unwrap_or_else(|| QueueState::new(configured)));
            }
        }
    }

    /// The configured policy with the thresholds that are in force; `None`: they are those.
    pub fn overlay(&self, configured: &Policy) -> Option<Policy> {
        let others = self.queues.iter();
        let others = others.filter(|(_, it)| it.tuner.in_force() != it.tuner.configured());
        let mut policy = None;
        for ((port, class), it) in others {
            let policy = policy.get_or_insert_with(|| configured.clone());
            let port = policy.ports.get_mut(port.index());
            let queue = port.map(|port| &mut port.queues[usize::from(*class) % CLASSES]);
            let Some(wred) = queue.and_then(|queue| queue.wred.as_mut()) else {
                continue;
            };
            // Another configuration has other thresholds there: the next tick begins with them.
            if Thresholds::of(wred.profile.curve) == it.tuner.configured() {
                wred.profile.curve = it.tuner.in_force().curve();
            }
        }
        policy
    }
}
