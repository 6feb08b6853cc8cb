//! What was posted and has not completed, as the library knows it: when the daemon is gone, nobody
//! else can say how it ended.
//!
//! Each work queue has a [`Ledger`], which the queue pair fills and the completion queue empties.
//! Both may be used by other threads at the same time, so it has a lock; it is held for some
//! nanoseconds. A request stands in the ledger before the daemon sees it, so its completion finds
//! it there.

use crate::abi::descriptor::{CompletionEntry, CompletionOpcode, CompletionStatus};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A request: its place among those of its queue, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    place: u64,
    wr_id: u64,
}

/// The requests of one work queue that have not completed.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Requests>);

#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Requests ever posted.
    posted: u64,
    /// Those that complete in any case. The completion queue bounds them.
    signaled: VecDeque<Entry>,
    /// Those that complete only if they fail: a success of a later one says that they are done.
    silent: VecDeque<Entry>,
    /// Of the latter only so many of the newest can be outstanding.
    silent_most: u64,
    /// Completions come in any order: one says nothing of others.
    unordered: bool,
}

impl Requests {
    /// A request was put into the ring.
    pub(crate) fn note(&mut self, wr_id: u64, signaled: bool) {
        let place = self.posted;
        self.posted += 1;
        let entry = Entry { place, wr_id };
        if signaled {
            self.signaled.push_back(entry);
            return;
        }
        self.silent.push_back(entry);
        let oldest = self.posted.saturating_sub(self.silent_most);
        drop_before(&mut self.silent, oldest);
    }

    /// Takes back the newest `count`, which the application is told were not posted; false, and
    /// nothing is taken, if one of them has completed meanwhile.
    fn take_back(&mut self, count: usize) -> bool {
        let place = self.posted.saturating_sub(count as u64);
        let newest = |entries: &VecDeque<Entry>| {
            entries.len() - entries.partition_point(|entry| entry.place < place)
        };
        let (signaled, silent) = (newest(&self.signaled), newest(&self.silent));
        if signaled + silent < count {
            return false;
        }
        self.signaled.truncate(self.signaled.len() - signaled);
        self.silent.truncate(self.silent.len() - silent);
        self.posted = place;
        true
    }

    /// The oldest request with this name has completed.
    fn complete(&mut self, wr_id: u64, success: bool) {
        let of = |entries: &VecDeque<Entry>| entries.iter().position(|it| it.wr_id == wr_id);
        let place = |entries: &VecDeque<Entry>, at: Option<usize>| at.map(|at| entries[at].place);
        let signaled = of(&self.signaled);
        // A success is of a signaled one: the others are searched for errors alone.
        let silent = if success { None } else { of(&self.silent) };
        let places = (place(&self.signaled, signaled), place(&self.silent, silent));
        let done = match places {
            (Some(first), Some(second)) if second < first => {
                self.silent.remove(silent.unwrap_or(0))
            }
            (None, Some(_)) => self.silent.remove(silent.unwrap_or(0)),
            (Some(_), _) => self.signaled.remove(signaled.unwrap_or(0)),
            (None, None) => None,
        };
        if let Some(done) = done.filter(|_| !self.unordered) {
            drop_before(&mut self.silent, done.place);
        }
    }

    /// Takes the oldest request out.
    fn take_oldest(&mut self) -> Option<u64> {
        let first = |entries: &VecDeque<Entry>| entries.front().map_or(u64::MAX, |it| it.place);
        let entries = if first(&self.silent) < first(&self.signaled) {
            &mut self.silent
        } else {
            &mut self.signaled
        };
        entries.pop_front().map(|entry| entry.wr_id)
    }

    fn is_empty(&self) -> bool {
        self.signaled.is_empty() && self.silent.is_empty()
    }
}

fn drop_before(entries: &mut VecDeque<Entry>, place: u64) {
    while entries.front().is_some_and(|entry| entry.place < place) {
        entries.pop_front();
    }
}

impl Ledger {
    /// Of a queue whose ring has so many entries. The daemon has taken as many out of it at most,
    /// which have not completed either.
    pub(crate) fn new(ring_entries: u32) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Requests {
            silent_most: 2 * u64::from(ring_entries),
            ..Requests::default()
        })))
    }

    /// The requests, for who posts some: completions wait meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon was gone when the newest `count` requests were posted. Whether they count as not
    /// posted; else their completions come.
    pub(crate) fn take_back(&self, count: usize) -> bool {
        self.lock().take_back(count)
    }

    /// Whether completions may come in any order from now on.
    pub(crate) fn set_unordered(&self, unordered: bool) {
        self.lock().unordered = unordered;
    }

    /// The queue pair was reset: nothing of what was posted completes any more.
    pub(crate) fn forget(&self) {
        let mut requests = self.lock();
        requests.signaled.clear();
        requests.silent.clear();
        requests.unordered = false;
    }
}

/// The work queues that complete in one completion queue: sends and receives of queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<BTreeMap<u32, [Option<Arc<Ledger>>; 2]>>);

/// Which of the two work queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sends,
    Receives,
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, [Option<Arc<Ledger>>; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue of the queue pair `handle` completes here.
    pub(crate) fn add(&self, handle: u32, side: Side, ledger: &Arc<Ledger>) {
        self.lock().entry(handle).or_default()[side as usize] = Some(ledger.clone());
    }

    /// The queue pair `handle` is no more.
    pub(crate) fn remove(&self, handle: u32) {
        self.lock().remove(&handle);
    }

    /// The daemon has completed a request.
    pub(crate) fn complete(&self, entry: &CompletionEntry) {
        let side = match entry.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteImmediate => Side::Receives,
            _ => Side::Sends,
        };
        let users = self.lock();
        if let Some(ledger) = users
            .get(&entry.qp)
            .and_then(|it| it[side as usize].as_ref())
        {
            let success = entry.status == CompletionStatus::Success;
            ledger.lock().complete(entry.wr_id, success);
        }
    }

    /// Whether requests are outstanding.
    pub(crate) fn is_waiting(&self) -> bool {
        let users = self.lock();
        let mut ledgers = users.values().flatten().flatten();
        ledgers.any(|ledger| !ledger.lock().is_empty())
    }

    /// Flushes a request, now that the daemon is gone: of each queue pair its sends in order, then
    /// its receives.
    pub(crate) fn flush_one(&self) -> Option<CompletionEntry> {
        let users = self.lock();
        users.iter().find_map(|(handle, sides)| {
            let opcodes = [CompletionOpcode::Send, CompletionOpcode::Receive];
            sides.iter().zip(opcodes).find_map(|(ledger, opcode)| {
                let wr_id = ledger.as_ref()?.lock().take_oldest()?;
                Some(CompletionEntry {
                    wr_id,
                    qp: *handle,
                    status: CompletionStatus::Flushed,
                    opcode,
                    byte_len: 0,
                    immediate: None,
                    invalidated: None,
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(ledger: &Ledger) -> Vec<u64> {
        std::iter::from_fn(|| ledger.lock().take_oldest()).collect()
    }

    fn with(entries: u32, requests: &[(u64, bool)]) -> Arc<Ledger> {
        let ledger = Ledger::new(entries);
        for (wr_id, signaled) in requests {
            ledger.lock().note(*wr_id, *signaled);
        }
        ledger
    }

    /// HT-1: a success says that the requests before it are done, and of those behind it nothing,
    /// also where several have one name.
    #[test]
    fn a_success_ends_those_before_it() {
        let requests = [(1, false), (7, true), (7, false), (7, true), (2, true)];
        let ledger = with(8, &requests);
        ledger.lock().complete(7, true);
        assert_eq!(rest(&ledger), [7, 7, 2]);
        let ledger = with(8, &requests);
        ledger.lock().complete(7, true);
        ledger.lock().complete(7, true);
        assert_eq!(rest(&ledger), [2]);
    }

    /// HT-1: an error may be of a request that would not complete otherwise.
    #[test]
    fn an_error_ends_the_first_of_its_name() {
        let ledger = with(8, &[(1, true), (2, false), (2, true), (3, false)]);
        ledger.lock().complete(1, true);
        ledger.lock().complete(2, false);
        assert_eq!(rest(&ledger), [2, 3]);
        let ledger = with(8, &[(1, true)]);
        ledger.lock().complete(9, false);
        assert_eq!(rest(&ledger), [1], "of a name that was not posted");
    }

    /// HT-39: without an order a completion ends its own request alone.
    #[test]
    fn without_an_order_others_stay() {
        let ledger = with(8, &[(1, false), (2, true), (3, true)]);
        ledger.set_unordered(true);
        ledger.lock().complete(3, true);
        assert_eq!(rest(&ledger), [1, 2]);
    }

    /// HT-2: an application that never asks for completions does not make the ledger grow: what the
    /// daemon cannot hold any more is done.
    #[test]
    fn requests_without_completions_are_bounded() {
        let requests: Vec<_> = (0..1000).map(|wr_id| (wr_id, false)).collect();
        let ledger = with(8, &requests);
        assert_eq!(rest(&ledger), (984..1000).collect::<Vec<_>>());
        // Also behind one that has completed, which nobody has polled.
        let ledger = with(8, &[(7, true)]);
        requests
            .iter()
            .for_each(|(id, _)| ledger.lock().note(*id, false));
        assert_eq!(rest(&ledger).len(), 17);
    }

    /// HT-2: what the application is told was not posted is not flushed, and the other way round.
    #[test]
    fn a_request_fails_once() {
        let ledger = with(8, &[(1, true), (2, false), (3, true)]);
        assert!(ledger.take_back(2));
        assert_eq!(rest(&ledger), [1]);
        let ledger = with(8, &[(1, true), (2, true)]);
        assert_eq!(ledger.lock().take_oldest(), Some(1));
        assert!(!ledger.take_back(2), "the first was flushed");
        assert_eq!(rest(&ledger), [2]);
    }
}
