//! Numbers that one thread counts and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with a single writer.
///
/// Adding is a plain load and a plain store, no locked instruction, so a worker can count several
/// things for each packet. If two threads add, counts are lost (never torn).
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`; only from the one thread that owns the counter.
    #[inline]
    pub fn add(&self, n: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the value, for gauges that are read from somewhere else; same thread as
    /// [`Self::add`].
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The count so far, from any thread.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_its_writer_adds() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10_000).for_each(|_| counter.add(3)));
            let mut last = 0;
            while last < 30_000 {
                let now = counter.get();
                assert!(now >= last, "{now} after {last}");
                last = now;
                std::thread::yield_now();
            }
        });
        counter.set(5);
        assert_eq!(counter.get(), 5);
    }
}
