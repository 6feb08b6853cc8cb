//! Packets whose next hop's MAC address the kernel is still finding out.
//!
//! They wait here, few and not for long (RFC 4861 §7.2.2 asks for at least one; RFC 1122 §2.3.2.2
//! likewise), and are looked up again from the beginning whenever something may have changed.
//!
//! A packet costs the same however many wait: its neighbour is found in a set of a table, and what
//! a port may ask of it is bounded, so that a scan of unused addresses costs only the port that it
//! arrives at.

use crate::drop::DropReason;
use crate::id::{Neighbour, PortId, TraceId};
use crate::limits::{
    PENDING_PER_NEIGHBOUR, PENDING_PER_PORT, PENDING_RETRY, PENDING_RETRY_MAX, PENDING_TIMEOUT,
    PENDING_TOTAL, RESOLVE_BURST, RESOLVE_INTERVAL, RESOLVE_REFILL,
};
use crate::outcome::Outcome;
use crate::tables::interfaces::InterfaceId;
use common::time::{Span, Time};
use common::wire::icmp::Problem;
use common::xdp::frame::Frame;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A packet that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Whom it waits for.
    pub neighbour: Neighbour,
    /// The packet.
    pub frame: Frame,
    /// Where it arrived.
    pub ingress: PortId,
    /// The interface that it arrived by, if that is not the port itself.
    pub interface: InterfaceId,
    /// The priority of its tag, which it may have lost by now.
    pub pcp: u8,
    /// Since when it waits.
    pub since: Time,
    /// Which traced packet it is, if it is one.
    pub trace: TraceId,
}

/// What became of a packet that has to wait.
#[derive(Debug)]
pub struct Wait {
    /// Whether the kernel is to be asked for the neighbour now.
    pub ask: bool,
    /// The packet, if it does not wait, and what becomes of it.
    pub refused: Option<(Frame, Outcome<Infallible>)>,
}

/// Places of a set.
const WAYS: usize = 8;
/// Sets of the table: twice as many places as packets may wait, so that sets seldom are full.
const SETS: usize = 2 * PENDING_TOTAL / WAYS;

/// A neighbour that packets wait for, or that the kernel was asked for lately.
#[derive(Clone, Copy, Debug)]
struct Entry {
    neighbour: Neighbour,
    waiting: usize,
    asked: Option<Time>,
}

/// What a port takes of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    waiting: usize,
    /// When it may have the kernel asked [`RESOLVE_BURST`] times in a row again.
    full_at: Time,
}

impl Share {
    /// Takes a question from the token bucket, if there is one.
    fn ask(&mut self, now: Time) -> bool {
        let next = self.full_at.max(now) + RESOLVE_REFILL;
        let may = next.since(now) <= RESOLVE_REFILL.times(RESOLVE_BURST);
        if may {
            self.full_at = next;
        }
        may
    }
}

/// The packets of one worker that wait.
#[derive(Debug)]
pub struct Pending {
    waiting: Vec<Waiting>,
    sets: Vec<[Option<Entry>; WAYS]>,
    ports: Vec<Share>,
    /// Nobody can choose addresses that share a set without knowing it.
    seed: u64,
    again: Time,
    /// How long to wait before packets are looked up again without a change of the tables.
    backoff: Span,
}

impl Pending {
    /// Nothing waits yet. `ports`: how many the switch has.
    pub fn new(ports: usize, seed: u64) -> Self {
        Self {
            waiting: Vec::with_capacity(PENDING_TOTAL),
            sets: vec![[None; WAYS]; SETS],
            ports: vec![Share::default(); ports],
            seed,
            again: Time::NEVER,
            backoff: PENDING_RETRY,
        }
    }

    /// Lets a packet wait, unless it has waited for too long or too many wait already.
    pub fn wait(&mut self, waiting: Waiting, now: Time) -> Wait {
        if now.since(waiting.since) >= PENDING_TIMEOUT {
            let outcome = Outcome::Answered(DropReason::NeighbourTimeout, Problem::HostUnreachable);
            return Wait {
                ask: false,
                refused: Some((waiting.frame, outcome)),
            };
        }
        let full = |ask, frame| Wait {
            ask,
            refused: Some((frame, Outcome::Dropped(DropReason::NeighbourFull))),
        };
        let set = self.set_of(waiting.neighbour);
        let (Some(entry), Some(port)) = (
            entry_for(&mut self.sets[set], waiting.neighbour),
            self.ports.get_mut(waiting.ingress.index()),
        ) else {
            return full(false, waiting.frame);
        };
        // Not more often than this for one neighbour, and not for a port that asks for too many.
        let is_due = |asked| now.since(asked) >= RESOLVE_INTERVAL;
        let ask = entry.asked.is_none_or(is_due) && port.ask(now);
        if ask {
            entry.asked = Some(now);
        }
        if self.waiting.len() >= PENDING_TOTAL
            || entry.waiting >= PENDING_PER_NEIGHBOUR
            || port.waiting >= PENDING_PER_PORT
        {
            return full(ask, waiting.frame);
        }
        entry.waiting += 1;
        port.waiting += 1;
        if self.waiting.is_empty() && waiting.since == now {
            // What others waited for says nothing about this one.
            self.backoff = PENDING_RETRY;
        }
        self.waiting.push(waiting);
        self.again = self.again.min(now + self.backoff);
        Wait { ask, refused: None }
    }

    fn set_of(&self, neighbour: Neighbour) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.seed, neighbour).hash(&mut hasher);
        usize::try_from(hasher.finish() % SETS as u64).expect("below the number of sets")
    }

    /// Moves all packets to `out`, to be looked up again: because of new tables, or because it is
    /// time to. Without new tables, the next time is twice as far away.
    pub fn take(&mut self, out: &mut Vec<Waiting>, new_tables: bool) {
        for waiting in &self.waiting {
            let set = self.set_of(waiting.neighbour);
            let entries = self.sets[set].iter_mut().flatten();
            for entry in entries.filter(|entry| entry.neighbour == waiting.neighbour) {
                entry.waiting -= 1;
            }
        }
        self.ports.iter_mut().for_each(|port| port.waiting = 0);
        out.append(&mut self.waiting);
        self.again = Time::NEVER;
        self.backoff = if new_tables {
            PENDING_RETRY
        } else {
            self.backoff.times(2).min(PENDING_RETRY_MAX)
        };
    }

    /// When the packets are to be looked up again even if no change was noticed.
    pub fn deadline(&self) -> Time {
        self.again
    }

    /// Number of packets that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The entry of a neighbour in its set. A new one takes the place of the one that was asked for
/// the longest time ago, among those that no packet waits for; `None`: there is none.
fn entry_for(set: &mut [Option<Entry>; WAYS], neighbour: Neighbour) -> Option<&mut Entry> {
    let is_it = |entry: &Option<Entry>| {
        #[cfg(test)]
        tests::looked();
        entry.is_some_and(|entry| entry.neighbour == neighbour)
    };
    if let Some(place) = set.iter().position(is_it) {
        return set[place].as_mut();
    }
    let free = |entry: &&mut Option<Entry>| {
        #[cfg(test)]
        tests::looked();
        entry.is_none_or(|entry| entry.waiting == 0)
    };
    let place = set
        .iter_mut()
        .filter(free)
        .min_by_key(|entry| entry.and_then(|entry| entry.asked))?;
    Some(place.insert(Entry {
        neighbour,
        waiting: 0,
        asked: None,
    }))
}

#[cfg(test)]
mod tests;
