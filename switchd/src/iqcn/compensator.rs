//! A worker's end.

use super::entry::Rules;
use super::notice::{Notice, Subject};
use super::table::Table;
use crate::flows::Key;
use crate::packet::Packet;
use common::sync::counter::Counter;
use common::time::Time;
use std::sync::Arc;

/// CNPs that a worker makes in one turn at most.
pub const NOTICES_A_TURN: usize = 32;

/// What a worker counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// CNPs that passed, of flows that are known.
    pub passed: Counter,
    /// CNPs that passed, of others.
    pub passed_unknown: Counter,
    /// Packets that found their queue congested, of flows whose other queue pair is not known:
    /// nothing can be made for them.
    pub unknown: Counter,
    /// Times that one was missing, but the turn had made enough.
    pub limited: Counter,
    /// CNPs that could not be made: no frame was free.
    pub no_frame: Counter,
}

/// A worker's end. All of its memory is there from the start.
#[derive(Debug)]
pub struct Compensator {
    table: Arc<Table>,
    rules: Rules,
    counters: Arc<Counters>,
    notices: Vec<Notice>,
}

impl Compensator {
    /// One that follows these rules.
    pub fn new(table: Arc<Table>, rules: Rules) -> Self {
        Self {
            table,
            rules,
            counters: Arc::default(),
            notices: Vec::with_capacity(NOTICES_A_TURN),
        }
    }

    /// What it counts.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// When CNPs are made.
    #[inline]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A CNP passes in this direction: it is about packets in the other one.
    pub fn passed(&mut self, direction: &Key, now: Time) {
        // The sender of packets in this direction is the one that they go to in the other.
        let receiver = self.table.find(direction).map(|entry| entry.sender());
        let about = receiver.map(|qp| direction.back_to(qp));
        match about.and_then(|key| self.table.find(&key)) {
            Some(entry) => {
                entry.pass(&self.rules, now);
                self.counters.passed.add(1);
            }
            None => self.counters.passed_unknown.add(1),
        }
    }

    /// A packet is about to be queued, and its queue is congested. `own` is the address of the port
    /// that it leaves by.
    pub fn congested(&mut self, packet: &Packet, own: [u8; 6], now: Time) {
        let ip = packet
            .frame
            .bytes()
            .get(usize::from(packet.link.network())..);
        let Some(subject) = ip.and_then(Subject::read) else {
            return;
        };
        let Some(entry) = self.table.find(&subject.key) else {
            return self.counters.unknown.add(1);
        };
        if !entry.is_missing(&self.rules, now) {
            return;
        }
        if self.notices.len() == NOTICES_A_TURN {
            // Nothing was claimed: its next packet comes soon.
            return self.counters.limited.add(1);
        }
        if !entry.claim(&self.rules, now) {
            return;
        }
        let whom = (entry.sender(), self.rules.dscp);
        self.notices
            .extend(Notice::about(packet, &subject, whom, own));
    }

    /// Whether CNPs are to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    /// The CNPs that are to be sent, in exchange for memory for others.
    pub fn exchange(&mut self, others: &mut Vec<Notice>) {
        std::mem::swap(&mut self.notices, others);
    }
}
