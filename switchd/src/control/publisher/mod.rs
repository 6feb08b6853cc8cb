//! Brings what the program decides to the workers, in the order in which they may see it. No
//! socket: the daemon follows the kernel's mirror with it, the twin a mirror that it writes itself.
//!
//! ```text
//!   Mirror, Changes ─▶ Program ─ Update ─▶ 1. publish tables
//!                                          2. say that routes need them
//!                                          3. change routes in place
//!                                          4. free groups that no route leads to
//!                                          5. seal: what was replaced rests until
//!                                             every worker has moved on
//! ```

use super::lacking::Lacking;
use super::program::{Program, StationMove, Update};
use crate::forward::fib::{Fib, FibError, FibWriter};
use crate::id::GroupId;
use crate::tables::policy::Policy;
use crate::tables::{PortEntry, Tables};
use common::netlink::{Change, Mirror};
use common::sync::snapshot::{Publisher, Reader};
use common::time::{Span, Time};
use common::xdp::{StationKey, StationPlace, Verdict};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// How often numbers and nodes without users are reclaimed.
const RECLAIM: Span = Span::from_secs(1);

/// From this many replaced nodes on, they are worth a publication of their own.
const SEAL_EARLY: usize = 4096;

/// What the steering programs are to be told.
#[derive(Debug, Default)]
pub struct SteerChanges {
    /// Packets to these addresses belong to the kernel from now on.
    pub new_locals: Vec<IpAddr>,
    /// Packets to these do not any more.
    pub old_locals: Vec<IpAddr>,
    /// Prefixes that are to be treated so, or forgotten, in this order.
    pub verdicts: Vec<(IpNet, Option<Verdict>)>,
    /// Stations of bridges that are there now, or to be forgotten.
    pub stations: Vec<(StationKey, Option<StationPlace>)>,
    /// Stations of bridges that moved.
    pub moves: Vec<StationMove>,
    /// Interfaces that changed, came or went.
    pub links: Vec<u32>,
}

/// The tables of one switch and their publication.
#[derive(Debug)]
pub struct TablePublisher {
    program: Program,
    snapshots: Publisher<Tables>,
    fib: FibWriter,
    reclaim_at: Time,
    unsealed: bool,
    /// Times that the table had no place for a route.
    fib_refused: u64,
    /// Routes that it has no place for now: it has none of them, or leads them where they led
    /// before.
    fib_lacking: Lacking,
    /// Of the times that something found no room, those that have been told.
    told: u64,
    /// The first of the route table since then, and why.
    first_refused: Option<(IpNet, FibError)>,
}

impl TablePublisher {
    /// Nothing is programmed but the ports of `program`; routes go to `fib`.
    pub fn new(program: Program, fib: FibWriter) -> Self {
        let snapshots = Publisher::new(program.tables().clone());
        Self {
            program,
            snapshots,
            fib,
            reclaim_at: Time::ZERO,
            unsealed: false,
            fib_refused: 0,
            fib_lacking: Lacking::default(),
            told: 0,
            first_refused: None,
        }
    }

    /// What is programmed.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Another reader of the tables: a worker's.
    pub fn reader(&self) -> Reader<Tables> {
        self.snapshots.reader()
    }

    /// The tables that were published last.
    pub fn published(&self) -> Arc<Tables> {
        self.snapshots.current()
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

    /// Times that a route, or one of its next hops, did not fit in a table. One that is tried again
    /// counts once.
    pub fn overflow(&self) -> u64 {
        self.program.overflow() + self.fib_refused
    }

    /// The ports as the workers see them.
    pub fn ports(&self) -> &[PortEntry] {
        &self.program.tables().ports
    }

    /// When [`Self::upkeep`] or [`Self::reclaim_if_due`] has something to do.
    pub fn deadline(&self) -> Time {
        let upkeep = self.program.upkeep_deadline();
        upkeep.map_or(self.reclaim_at, |at| at.min(self.reclaim_at))
    }

    /// Decides what depends on time alone: [`Self::apply`] has to follow.
    pub fn upkeep(&mut self, now: Time) {
        self.program.upkeep(now);
    }

    /// Programs `changes` of the mirror, and empties them. Returns what the
    /// steering programs are to be told.
    pub fn apply(&mut self, mirror: &Mirror, changes: &mut Vec<Change>) -> SteerChanges {
        if changes.is_empty() && !self.program.is_pending() {
            return SteerChanges::default();
        }
        changes.sort_unstable();
        changes.dedup();
        let links = changes.iter().filter_map(|change| match change {
            Change::Link(index) => Some(*index),
            _ => None,
        });
        let links = links.collect();
        let update = self.program.apply(mirror, changes);
        changes.clear();
        SteerChanges {
            links,
            ..self.carry_out(update)
        }
    }

    fn carry_out(&mut self, update: Update) -> SteerChanges {
        if let Some(tables) = update.tables {
            if let Err(error) = tables.check() {
                tracing::error!("tables are inconsistent: {error}");
            }
            self.snapshots.publish(tables);
            self.unsealed = true;
        }
        // A worker that has begun its turn before may meet the routes with the tables it has.
        self.fib.need(self.snapshots.epoch());
        for (prefix, group) in update.routes {
            self.set_route(prefix, group);
        }
        self.release_left();
        SteerChanges {
            new_locals: update.new_locals,
            old_locals: update.old_locals,
            verdicts: update.verdicts,
            stations: update.stations,
            moves: update.moves,
            links: Vec::new(),
        }
    }

    /// Makes `prefix` lead to `group` in the workers' route table, or to nothing.
    fn set_route(&mut self, prefix: IpNet, group: Option<GroupId>) {
        self.unsealed = true;
        if self.fib.retired() >= SEAL_EARLY {
            // One batch may be all the routes of the kernel.
            self.free_nodes();
        }
        let mut done = self.change_route(prefix, group);
        if let Err(FibError::Full { waiting: 1.., .. }) = done {
            self.free_nodes();
            done = self.change_route(prefix, group);
        }
        let Err(error) = done else {
            self.fib_lacking.remove(&prefix);
            return;
        };
        if self.fib_lacking.insert(prefix) {
            self.fib_refused += 1;
            self.first_refused.get_or_insert((prefix, error));
        }
    }

    /// What found no room since the last call, in one text: a table that is too small by 100,000
    /// routes must not fill the journal.
    fn refusal(&mut self) -> Option<String> {
        let news = self.overflow() - self.told;
        if news == 0 {
            return None;
        }
        self.told += news;
        let first = self.first_refused.take();
        let first = first.map_or_else(String::new, |(prefix, error)| {
            format!("; {prefix}: {error}")
        });
        Some(format!(
            "routes or next hops found no room in the tables {news} times, which is tried again; \
             {} routes lack now{first}",
            self.lacking()
        ))
    }

    fn change_route(&mut self, prefix: IpNet, group: Option<GroupId>) -> Result<(), FibError> {
        match group {
            Some(group) => self.fib.insert(prefix, group)?,
            None => self.fib.remove(prefix)?,
        };
        Ok(())
    }

    /// Gives what was replaced in the route table an epoch, and frees what has passed.
    fn free_nodes(&mut self) {
        if self.fib.retired() > 0 {
            let epoch = self.snapshots.publish_shared(self.snapshots.current());
            self.fib.seal(epoch);
        }
        let snapshots = &self.snapshots;
        self.fib.reclaim(|epoch| snapshots.passed(epoch));
    }

    /// Frees the groups that routes have left, but for those where the route table has had no room
    /// to follow.
    fn release_left(&mut self) {
        let fib = &self.fib;
        self.program.release_left(|prefix| fib.get(*prefix));
    }

    /// Tries again what there was no room for: in the route table at once, in the tables with the
    /// next update.
    fn retry(&mut self) {
        for prefix in self.fib_lacking.take_turn() {
            self.set_route(prefix, self.program.group_of(&prefix));
        }
        self.release_left();
        self.program.retry();
    }

    /// What is programmed, to change its ports: [`Self::apply`] has to follow.
    pub fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Publishes tables with another policy of the traffic manager: workers follow it at their next
    /// turn, all of it at once.
    pub fn set_traffic(&mut self, traffic: Arc<Policy>) {
        self.program.set_traffic(traffic);
        self.snapshots.publish(self.program.tables().clone());
        self.unsealed = true;
    }

    /// Takes back what no worker uses any more, if it is time to or much of it waits. What found no
    /// room is logged at these times, in a line for all of it.
    pub fn reclaim_if_due(&mut self, now: Time) {
        if now >= self.reclaim_at
            && let Some(refusal) = self.refusal()
        {
            tracing::error!("{refusal}");
        }
        if now >= self.reclaim_at || self.fib.retired() >= SEAL_EARLY {
            self.reclaim(now);
        }
    }

    /// Publishes once more, so that everything replaced before has an epoch, and takes back what
    /// has passed.
    fn reclaim(&mut self, now: Time) {
        self.reclaim_at = now + RECLAIM;
        if self.program.forget_left_stations() {
            self.snapshots.publish(self.program.tables().clone());
            self.unsealed = true;
        }
        if self.unsealed {
            self.unsealed = false;
            let epoch = self.snapshots.publish_shared(self.snapshots.current());
            self.fib.seal(epoch);
            self.program.published(epoch, now);
        }
        let snapshots = &self.snapshots;
        self.program.reclaim(now, |epoch| snapshots.passed(epoch));
        self.fib.reclaim(|epoch| snapshots.passed(epoch));
        self.retry();
    }
}

#[cfg(test)]
mod tests;
