//! Immutable tables that one thread publishes and others read.
//!
//! Control builds a new table and publishes it; each worker picks up the newest between batches.
//! Publications are numbered: the epoch. Once [`Publisher::passed`] says that an epoch has passed,
//! no reader looks at anything older, so what the new table no longer mentions (a next hop's
//! number, say) may be used again.
//!
//! A reader that goes to sleep parks; otherwise one sleeping worker would delay every reuse. Old
//! tables are freed by the publisher, never by a reader, so no reader is delayed by a long free.

use super::primitive::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};
use std::fmt;
use std::sync::PoisonError;

/// In place of an epoch: this reader looks at nothing until it has picked up the newest table.
const PARKED: u64 = u64::MAX;

struct State<T> {
    current: Arc<T>,
    /// Tables that were replaced, until no reader holds them.
    retired: Vec<Arc<T>>,
    /// For each reader the epoch it has picked up, or [`PARKED`].
    readers: Vec<Arc<AtomicU64>>,
}

struct Shared<T> {
    epoch: AtomicU64,
    /// Held to copy or to swap a pointer, never while a table is built or freed.
    state: Mutex<State<T>>,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side that publishes. May be used by several threads; publications are serialised.
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
}

/// The side that reads; one for each thread that does.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    current: Arc<T>,
    /// Epoch of `current`, or [`PARKED`].
    epoch: u64,
    seen: Arc<AtomicU64>,
}

impl<T> Publisher<T> {
    /// A publisher whose first table, of epoch 0, is `first`.
    pub fn new(first: T) -> Self {
        let state = Mutex::new(State {
            current: Arc::new(first),
            retired: Vec::new(),
            readers: Vec::new(),
        });
        Self {
            shared: Arc::new(Shared {
                epoch: AtomicU64::new(0),
                state,
            }),
        }
    }

    /// Makes `next` what readers get from now on and returns its epoch.
    pub fn publish(&self, next: T) -> u64 {
        self.publish_shared(Arc::new(next))
    }

    /// As [`Self::publish`], for a table that is already shared.
    pub fn publish_shared(&self, next: Arc<T>) -> u64 {
        let mut state = self.shared.state();
        let replaced = std::mem::replace(&mut state.current, next);
        state.retired.push(replaced);
        let epoch = self.shared.epoch.load(Ordering::Relaxed) + 1;
        self.shared.epoch.store(epoch, Ordering::SeqCst);
        // A reader whose other half is gone will never pick anything up again.
        state.readers.retain(|seen| Arc::strong_count(seen) > 1);
        drop(state);
        self.reclaim();
        epoch
    }

    /// The newest table.
    pub fn current(&self) -> Arc<T> {
        self.shared.state().current.clone()
    }

    /// The newest epoch.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// A new reader, holding the newest table.
    pub fn reader(&self) -> Reader<T> {
        let mut state = self.shared.state();
        let epoch = self.shared.epoch.load(Ordering::SeqCst);
        let seen = Arc::new(AtomicU64::new(epoch));
        state.readers.push(seen.clone());
        Reader {
            shared: self.shared.clone(),
            current: state.current.clone(),
            epoch,
            seen,
        }
    }

    /// Whether every reader has picked up the table of `epoch` or a newer one, or is parked. Frees
    /// old tables that nobody holds any more.
    pub fn passed(&self, epoch: u64) -> bool {
        let passed = self
            .shared
            .state()
            .readers
            .iter()
            .all(|seen| Arc::strong_count(seen) == 1 || seen.load(Ordering::SeqCst) >= epoch);
        self.reclaim();
        passed
    }

    fn reclaim(&self) {
        let mut state = self.shared.state();
        let (unused, held) = std::mem::take(&mut state.retired)
            .into_iter()
            .partition(|table| Arc::strong_count(table) == 1);
        state.retired = held;
        drop(state);
        drop::<Vec<_>>(unused);
    }
}

impl<T> Reader<T> {
    /// The newest table; one atomic load when it is the one that this reader has already. Ends
    /// parking.
    #[inline]
    pub fn get(&mut self) -> &Arc<T> {
        if self.shared.epoch.load(Ordering::Acquire) != self.epoch {
            self.refresh();
        }
        &self.current
    }

    /// Whether the table that this reader picked up last is older than `epoch`.
    #[inline]
    pub fn is_behind(&self, epoch: u64) -> bool {
        self.epoch < epoch
    }

    /// Says that this reader looks at nothing until its next [`Self::get`]. Before going to sleep.
    pub fn park(&mut self) {
        self.epoch = PARKED;
        self.seen.store(PARKED, Ordering::SeqCst);
    }

    #[cold]
    fn refresh(&mut self) {
        let state = self.shared.state();
        self.epoch = self.shared.epoch.load(Ordering::SeqCst);
        self.current.clone_from(&state.current);
        // Under the lock, as `passed` reads it: what it saw parked gets at least the epoch that
        // had been published by then.
        self.seen.store(self.epoch, Ordering::SeqCst);
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(common_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    #[derive(Clone, Debug)]
    enum Op {
        Publish,
        Get(usize),
        Park(usize),
        Leave(usize),
        Join,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            Just(Op::Publish),
            (0..4_usize).prop_map(Op::Get),
            (0..4_usize).prop_map(Op::Park),
            (0..4_usize).prop_map(Op::Leave),
            Just(Op::Join),
        ]
    }

    proptest! {
        /// The model of a reader is the epoch that it has, `None` while it is parked.
        #[test]
        fn an_epoch_has_passed_when_every_reader_has_it_or_is_parked(
            ops in prop::collection::vec(op(), 0..100),
        ) {
            let publisher = Publisher::new(0_u64);
            let mut readers: Vec<(Reader<u64>, Option<u64>)> = Vec::new();
            let mut newest = 0;
            for op in ops {
                match op {
                    Op::Publish => {
                        newest += 1;
                        prop_assert_eq!(publisher.publish(newest), newest);
                    }
                    Op::Join => readers.push((publisher.reader(), Some(newest))),
                    Op::Get(index) => if let Some((reader, has)) = readers.get_mut(index) {
                        if let Some(has) = *has {
                            prop_assert_eq!(reader.is_behind(newest), has < newest);
                        }
                        prop_assert_eq!(**reader.get(), newest);
                        *has = Some(newest);
                    },
                    Op::Park(index) => if let Some((reader, has)) = readers.get_mut(index) {
                        reader.park();
                        *has = None;
                    },
                    Op::Leave(index) => if index < readers.len() {
                        readers.remove(index);
                    },
                }
                for epoch in 0..=newest {
                    let expected = readers.iter().all(|(_, has)| has.is_none_or(|has| has >= epoch));
                    prop_assert_eq!(publisher.passed(epoch), expected);
                }
                prop_assert_eq!(*publisher.current(), newest);
            }
        }
    }

    #[test]
    fn old_tables_are_freed_once_nobody_reads_them() {
        let witness = Arc::new(());
        let publisher = Publisher::new(witness.clone());
        let mut reader = publisher.reader();
        publisher.publish(witness.clone());
        assert_eq!(Arc::strong_count(&witness), 3, "the reader holds the first");
        reader.get();
        assert!(publisher.passed(1));
        assert_eq!(Arc::strong_count(&witness), 2);
    }

    /// What has passed is marked as reused; a reader that still meets it shows the fault.
    #[test]
    fn nothing_that_has_passed_is_still_read() {
        let retired: Vec<AtomicBool> = (0..2000).map(|_| AtomicBool::new(false)).collect();
        let publisher = Publisher::new(0_usize);
        let readers: Vec<_> = (0..2).map(|_| publisher.reader()).collect();
        std::thread::scope(|scope| {
            for mut reader in readers {
                let retired = &retired;
                scope.spawn(move || {
                    let mut turns = 0_u32;
                    loop {
                        let table = **reader.get();
                        assert!(!retired[table].load(Ordering::SeqCst), "table {table}");
                        if table == retired.len() - 1 {
                            break;
                        }
                        turns += 1;
                        if turns.is_multiple_of(7) {
                            reader.park();
                            std::thread::yield_now();
                        }
                    }
                });
            }
            for table in 1..retired.len() {
                let epoch = publisher.publish(table);
                while !publisher.passed(epoch) {
                    std::thread::yield_now();
                }
                retired[table - 1].store(true, Ordering::SeqCst);
            }
        });
    }
}
