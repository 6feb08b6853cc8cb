//! \[7\] \[8\] The queues of one egress port, its scheduler and its shapers.
//!
//! A packet is admitted \[7\] by `admit.rs` and leaves \[8\] by `serve.rs`. This file has the port
//! itself: its configuration, which queues are stopped or shut, and its counters.

mod admit;
mod serve;

use crate::id::PortId;
use crate::limits::CLASSES;
use crate::stats::PortStats;
use crate::tables::policy::{Limit, Policy, QueuePolicy, Schedule, TrimAt, Wred};
use crate::traffic::buffer::Ledger;
use crate::traffic::bypass;
use crate::traffic::elephants::Progress;
use crate::traffic::gates::Gates;
use crate::traffic::queue::{Depth, Queue};
use crate::traffic::scheduler::Scheduler;
use crate::traffic::shaper::Shaper;
use common::time::Time;
use rand_pcg::Pcg64Mcg;

pub use serve::Allowance;

/// The policy in force, the ledger of the buffer and the time: what admission needs beside the port
/// itself.
#[derive(Clone, Copy, Debug)]
pub struct PolicyAndLedger<'a> {
    /// The policy in force.
    pub policy: &'a Policy,
    /// The buffer.
    pub ledger: &'a Ledger,
    /// When the turn began.
    pub now: Time,
}

/// What a queue has to keep to.
#[derive(Debug)]
struct Rules {
    guaranteed: u64,
    limit: Option<Limit>,
    shaper: Shaper,
    wred: Option<Wred>,
    trim: Option<TrimAt>,
}

impl Rules {
    fn of(policy: &QueuePolicy) -> Self {
        let (rate, burst) = policy
            .shaper
            .map_or((None, 0), |(rate, burst)| (Some(rate), burst));
        Self {
            guaranteed: u64::from(policy.guaranteed),
            limit: policy.limit,
            shaper: Shaper::new(rate, burst),
            wred: policy.wred,
            trim: policy.trim,
        }
    }
}

/// All queues of one egress port.
#[derive(Debug)]
pub struct EgressPort {
    port: PortId,
    queues: [Queue; CLASSES],
    rules: [Rules; CLASSES],
    scheduler: Scheduler,
    shaper: Shaper,
    random: Pcg64Mcg,
    /// Cells that its packets may take together.
    limit: u64,
    /// Bit n is set while queue n holds a packet.
    occupied: u8,
    /// Bit n is set while queue n may not send: it is paused, or held.
    stopped: u8,
    /// Bit n is set while queue n takes nothing. A `u32`, not a byte: avoids a store-forwarding
    /// stall with neighbouring bytes.
    shut: u32,
    /// Where elephants go.
    gates: Gates,
    /// Bit n is set while queue n may not send because of another: see [`Gates::barred`].
    barred: u8,
    /// Bit n is set when queue n has a shaper of its own.
    shaped: u8,
    /// Bit n is set when queue n changed since its counters were shown.
    changed: u8,
    /// Bit n is set when packets may bypass queue n: see [`bypass::queues`].
    bypassable: u8,
    /// Bit n is set while packets may bypass queue n as long as all queues are empty. A `u32` for
    /// the same reason as `shut`.
    open: u32,
}

const _: () = assert!(CLASSES == u8::BITS as usize, "a bit for each class");

impl EgressPort {
    /// Empty queues of `port`, configured by `policy`. `seed` is that of the random numbers of
    /// WRED.
    pub fn new(port: PortId, policy: &Policy, shaper: Shaper, seed: u64) -> Self {
        let plain = QueuePolicy {
            guaranteed: 0,
            limit: Some(Limit::Static(0)),
            schedule: Schedule::Strict,
            shaper: None,
            wred: None,
            trim: None,
        };
        let mut egress = Self {
            port,
            queues: std::array::from_fn(|_| Queue::default()),
            rules: std::array::from_fn(|_| Rules::of(&plain)),
            scheduler: Scheduler::default(),
            shaper: shaper.clone(),
            random: Pcg64Mcg::new(u128::from(seed) << 64 | port.index() as u128),
            limit: 0,
            occupied: 0,
            stopped: 0,
            shut: 0,
            gates: Gates::default(),
            barred: 0,
            shaped: 0,
            changed: 0,
            bypassable: 0,
            open: 0,
        };
        egress.configure(policy, shaper);
        egress
    }

    /// Follows a change of the configuration. Packets that wait stay where they are.
    pub fn configure(&mut self, policy: &Policy, shaper: Shaper) {
        self.shaper.adopt(shaper);
        let Some(port) = policy.ports.get(self.port.index()) else {
            return;
        };
        self.limit = u64::from(port.egress_limit);
        self.shaped = 0;
        for (class, queue) in port.queues.iter().enumerate() {
            let (new, rules) = (Rules::of(queue), &mut self.rules[class]);
            (rules.guaranteed, rules.limit) = (new.guaranteed, new.limit);
            (rules.wred, rules.trim) = (new.wred, new.trim);
            rules.shaper.adopt(new.shaper);
            self.queues[class].configure_sketch(policy.sketched & 1 << class != 0);
            self.shaped |= u8::from(queue.shaper.is_some()) << class;
        }
        self.scheduler
            .configure(&std::array::from_fn(|class| port.queues[class].schedule));
        self.gates.configure(&policy.elephants, self.occupied);
        self.bypassable = bypass::queues(policy, port);
        self.bar();
    }

    /// Stops the queues whose bit is set in `mask` and the queues that their elephants go to. All
    /// others may send.
    pub fn stop(&mut self, mask: u8) {
        self.stopped = mask;
        self.bar();
    }

    /// How far queue `class` has come, since the port was made.
    #[inline]
    pub fn progress(&self, class: u8) -> Progress {
        self.queues[usize::from(class) % CLASSES].progress()
    }

    /// What is in queue `class`.
    pub fn depth(&self, class: u8) -> Depth {
        self.queues[usize::from(class) % CLASSES].depth()
    }

    /// Whether queue `class` is congested: `is_deep` is asked with its bytes and the depth at which
    /// it marks every packet. One that does not mark never is.
    #[inline]
    pub fn is_congested(&self, class: u8, is_deep: impl FnOnce(u64, u64) -> bool) -> bool {
        let class = usize::from(class) % CLASSES;
        let marks = self.rules[class].wred.filter(|wred| wred.profile.ecn);
        marks.is_some_and(|it| is_deep(self.queues[class].bytes(), it.profile.curve.certain()))
    }

    /// Finds out which queues may not send because of others.
    #[inline]
    fn bar(&mut self) {
        let queues = &self.queues;
        let progress = |class: u8| queues[usize::from(class)].progress();
        self.barred = self.gates.barred(self.stopped, progress);
        let open = u32::from(self.bypassable & !(self.stopped | self.barred)) & !self.shut;
        self.open = self.gates.with_both(open);
    }

    /// Lets exactly the queues whose bit is set in `mask` take no packet.
    pub fn shut(&mut self, mask: u8) {
        self.shut = u32::from(mask);
        self.bar();
    }

    /// Whether no packet waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Packets that queue `class` ever sent.
    pub fn sent_packets(&self, class: usize) -> u64 {
        self.queues[class].sent_packets()
    }

    /// Bytes that wait in each queue.
    #[inline]
    pub fn waiting(&self) -> [u64; CLASSES] {
        std::array::from_fn(|class| self.queues[class].bytes())
    }

    /// Bytes that wait in all queues.
    pub fn bytes(&self) -> u64 {
        self.queues.iter().map(Queue::bytes).sum()
    }

    /// Brings the counters that control reads up to date. Once a turn, not once a packet.
    pub fn show(&mut self, stats: &PortStats, now: Time) {
        let changed = std::mem::take(&mut self.changed);
        for (class, queue) in self.queues.iter_mut().enumerate() {
            if changed & 1 << class != 0 {
                queue.show(&stats.queues[class], now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
