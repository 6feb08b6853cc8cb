//! Follows the kernel: changes from the netlink socket go into the mirror and from there to the
//! workers.
//!
//! ```text
//!   kernel ─▶ Watch ─ Mirror, Changes ─▶ TablePublisher ─▶ workers
//! ```

use super::program::Program;
use super::publisher::{SteerChanges, TablePublisher};
use super::silent_settings::SilentSettings;
use crate::forward::fib::FibWriter;
use crate::id::PortId;
use crate::tables::policy::Policy;
use crate::tables::{PortEntry, PortSpeeds};
use common::netlink::{Change, Mirror, NeighbourKey, Watch};
use common::time::{Span, Time};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A neighbour is not asked for more often than this: the kernel's own interval
/// of retransmission.
const ASK_AGAIN: Span = Span::from_secs(1);

/// Neighbours that are remembered as asked for. With more than this all are forgotten.
const ASKED_MAX: usize = 16_384;

/// The routing half of control.
#[derive(Debug)]
pub struct Routing {
    watch: Watch,
    publisher: TablePublisher,
    changes: Vec<Change>,
    asked: HashMap<NeighbourKey, Time>,
}

impl Routing {
    /// Nothing is known yet; `program` has the ports of the switch.
    pub fn new(watch: Watch, program: Program) -> Self {
        Self {
            watch,
            publisher: TablePublisher::new(program, FibWriter::new()),
            changes: Vec::new(),
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

    /// What is programmed, and how.
    pub fn publisher(&self) -> &TablePublisher {
        &self.publisher
    }

    /// What is programmed.
    pub fn program(&self) -> &Program {
        self.publisher.program()
    }

    /// When [`Self::follow`] is to be called at the latest.
    pub fn deadline(&self) -> Time {
        self.watch.deadline().min(self.publisher.deadline())
    }

    /// Reads everything once and programs it: the start.
    ///
    /// # Errors
    /// The kernel did not answer before `limit`.
    pub fn synchronise(&mut self, limit: Time) -> io::Result<SteerChanges> {
        let mut changes = std::mem::take(&mut self.changes);
        let result = self.watch.sync(limit, &mut changes);
        self.changes = changes;
        result?;
        Ok(self.apply())
    }

    /// Reads changes from the kernel and programs them. Returns what the steering programs are to
    /// be told, and whether there is more to read.
    ///
    /// # Errors
    /// The socket failed.
    pub fn follow(&mut self, now: Time) -> io::Result<(SteerChanges, bool)> {
        let mut changes = std::mem::take(&mut self.changes);
        let result = self.watch.pump(now, &mut changes);
        self.changes = changes;
        let more = result?;
        self.publisher.upkeep(now);
        let steer = self.apply();
        self.publisher.reclaim_if_due(now);
        Ok((steer, more))
    }

    fn apply(&mut self) -> SteerChanges {
        if self.changes.iter().any(|it| matches!(it, Change::Link(_))) {
            // What was asked of a link that was down has to be asked again.
            self.asked.clear();
        }
        self.publisher.apply(self.watch.mirror(), &mut self.changes)
    }

    /// Makes port `id` this, in the tables as well. Returns what the steering programs are to be
    /// told.
    pub fn set_port(&mut self, id: PortId, entry: PortEntry) -> SteerChanges {
        let mirror = self.watch.mirror();
        self.publisher.program_mut().set_port(mirror, id, entry);
        // What was asked of an interface that went away has to be asked of the one that comes.
        self.asked.clear();
        self.publisher.apply(mirror, &mut Vec::new())
    }

    /// The kernel has these settings, of which it tells in no message. Returns what the steering
    /// programs are to be told.
    pub fn set_silent(&mut self, settings: SilentSettings) -> SteerChanges {
        let program = self.publisher.program_mut();
        program.set_accept_own(settings.accept_own);
        program.set_ipv6_links(settings.ipv6);
        program.set_error_rules(settings.errors);
        let mirror = self.watch.mirror();
        self.publisher.apply(mirror, &mut Vec::new())
    }

    /// Port `id` has these speeds from now on.
    pub fn set_speed(&mut self, id: PortId, speeds: PortSpeeds) {
        self.publisher.program_mut().set_speed(id, speeds);
        let mirror = self.watch.mirror();
        self.publisher.apply(mirror, &mut Vec::new());
    }

    /// Publishes another policy of the traffic manager at once.
    pub fn set_traffic(&mut self, policy: Arc<Policy>) {
        self.publisher.set_traffic(policy);
    }

    /// Whether the kernel should be asked for `key` now: it was not asked a moment ago, and
    /// resolves it at all.
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

    /// Next hops that carried packets since the last call, for the kernel to keep resolved.
    pub fn take_used(&self) -> Vec<NeighbourKey> {
        let program = self.program();
        let used = &program.tables().used;
        let hops = program.next_hops();
        hops.filter(|(_, id)| used.take(*id))
            .map(|(key, _)| key)
            .collect()
    }
}
