//! Follows the kernel and keeps the workers' tables: the mirror, the program, the publication.
//!
//! ```text
//!   kernel ─▶ Watch ─ changes ─▶ Program ─ Update ─▶ 1. publish tables
//!                                                    2. change routes in place
//!                                                    3. seal: what was replaced rests until
//!                                                       every worker has moved on
//! ```

use super::program::Program;
use crate::ingress::fib::{Fib, FibWriter};
use crate::ingress::tables::{PortEntry, Tables};
use common::netlink::{Change, Mirror, NeighbourKey, Watch};
use common::sync::snapshot::Publisher;
use common::time::{Span, Time};
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// How often numbers and nodes that nobody uses any more are taken back.
const RECLAIM: Span = Span::from_secs(1);

/// So many replaced nodes are worth a publication of their own.
const SEAL_EARLY: usize = 4096;

/// A neighbour is not asked for more often than this, whoever wants it: the kernel's own interval of retransmission.
const ASK_AGAIN: Span = Span::from_secs(1);

/// Neighbours that are remembered as asked for; more than that and the memory is cleared.
const ASKED_MAX: usize = 16_384;

/// Addresses that became ours or ceased to be.
#[derive(Debug, Default)]
pub struct LocalChanges {
    /// Packets to these belong to the kernel from now on.
    pub added: Vec<IpAddr>,
    /// Packets to these do not any more.
    pub removed: Vec<IpAddr>,
}

/// The routing half of control.
#[derive(Debug)]
pub struct Routing {
    watch: Watch,
    program: Program,
    publisher: Publisher<Tables>,
    fib: FibWriter,
    changes: Vec<Change>,
    reclaim_at: Time,
    unsealed: bool,
    /// Times that the table had no place for a route.
    fib_refused: u64,
    /// Routes that it has no place for now.
    fib_lacking: HashSet<IpNet>,
    asked: HashMap<NeighbourKey, Time>,
}

impl Routing {
    /// Nothing is known yet; `ports` are the ports of the switch.
    pub fn new(watch: Watch, program: Program) -> Self {
        let publisher = Publisher::new(program.tables().clone());
        Self {
            watch,
            program,
            publisher,
            fib: FibWriter::new(),
            changes: Vec::new(),
            reclaim_at: Time::ZERO,
            unsealed: false,
            fib_refused: 0,
            fib_lacking: HashSet::new(),
            asked: HashMap::new(),
        }
    }

    /// What is known of the kernel.
    pub fn mirror(&self) -> &Mirror {
        self.watch.mirror()
    }

    /// The socket and its statistics.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What is programmed.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The publisher, for readers.
    pub fn publisher(&self) -> &Publisher<Tables> {
        &self.publisher
    }

    /// The route table as workers read it.
    pub fn fib(&self) -> Arc<Fib> {
        self.fib.fib()
    }

    /// The writer of the route table, for reports.
    pub fn fib_writer(&self) -> &FibWriter {
        &self.fib
    }

    /// Routes that do not fit in the tables now.
    pub fn lacking(&self) -> usize {
        self.program.lacking() + self.fib_lacking.len()
    }

    /// Times that a route, or one of its next hops, did not fit in a table.
    pub fn overflow(&self) -> u64 {
        self.program.overflow() + self.fib_refused
    }

    /// The ports as the workers see them.
    pub fn ports(&self) -> &[PortEntry] {
        &self.program.tables().ports
    }

    /// When [`Self::follow`] wants to be called at the latest.
    pub fn deadline(&self) -> Time {
        self.watch.deadline().min(self.reclaim_at)
    }

    /// Reads everything once and programs it: the start.
    ///
    /// # Errors
    /// The kernel did not answer before `limit`.
    pub fn synchronise(&mut self, limit: Time) -> io::Result<LocalChanges> {
        let mut changes = std::mem::take(&mut self.changes);
        let result = self.watch.sync(limit, &mut changes);
        self.changes = changes;
        result?;
        Ok(self.apply())
    }

    /// Reads what the kernel tells and programs it. Returns the local addresses that changed and whether there is
    /// more to read.
    ///
    /// # Errors
    /// The socket failed.
    pub fn follow(&mut self, now: Time) -> io::Result<(LocalChanges, bool)> {
        let mut changes = std::mem::take(&mut self.changes);
        let result = self.watch.pump(now, &mut changes);
        self.changes = changes;
        let more = result?;
        let locals = self.apply();
        if now >= self.reclaim_at || self.fib.retired() >= SEAL_EARLY {
            self.reclaim(now);
        }
        Ok((locals, more))
    }

    fn apply(&mut self) -> LocalChanges {
        if self.changes.is_empty() {
            return LocalChanges::default();
        }
        if self.changes.iter().any(|it| matches!(it, Change::Link(_))) {
            // What was asked of a link that was down has to be asked again.
            self.asked.clear();
        }
        self.changes.sort_unstable();
        self.changes.dedup();
        let update = self.program.apply(self.watch.mirror(), &self.changes);
        self.changes.clear();
        if let Some(tables) = update.tables {
            if let Err(error) = tables.check() {
                tracing::error!("tables are inconsistent: {error}");
            }
            self.publisher.publish(tables);
            self.unsealed = true;
        }
        for (prefix, group) in update.routes {
            self.unsealed = true;
            let refused = match group {
                Some(group) => self.fib.insert(prefix, group).err(),
                None => self.fib.remove(prefix).err(),
            };
            self.fib_lacking.remove(&prefix);
            if let Some(error) = refused {
                self.fib_refused += 1;
                self.fib_lacking.insert(prefix);
                tracing::error!("{prefix} cannot be programmed: {error}");
            }
        }
        LocalChanges {
            added: update.new_locals,
            removed: update.old_locals,
        }
    }

    /// Publishes once more, so that everything replaced before has an epoch, and takes back what has passed.
    fn reclaim(&mut self, now: Time) {
        self.reclaim_at = now + RECLAIM;
        if self.unsealed {
            self.unsealed = false;
            let epoch = self.publisher.publish_shared(self.publisher.current());
            self.fib.seal(epoch);
            self.program.published(epoch, now);
        }
        let publisher = &self.publisher;
        self.program.reclaim(now, |epoch| publisher.passed(epoch));
        self.fib.reclaim(|epoch| publisher.passed(epoch));
    }

    /// Whether the kernel should be asked for `key` now: it was not asked a moment ago, and resolves it at all.
    pub fn may_ask(&mut self, key: NeighbourKey, now: Time) -> bool {
        if self.watch.mirror().is_static_neighbour(&key) {
            return false;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        match self.asked.get(&key) {
            Some(&last) if now < last + ASK_AGAIN => false,
            _ => {
                self.asked.insert(key, now);
                true
            }
        }
    }

    /// Next hops that carried packets since the last call: the kernel is to be told.
    pub fn take_used(&self) -> Vec<NeighbourKey> {
        let used = &self.program.tables().used;
        let hops = self.program.next_hops();
        hops.filter(|(_, id)| used.take(*id))
            .map(|(key, _)| key)
            .collect()
    }
}
