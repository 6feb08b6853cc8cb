//! Atomics and cells for the lock-free cores: those of the standard library, or loom's. `make loom`
//! uses loom's to run every interleaving and every order of memory accesses that the standard
//! allows.

#[cfg(common_loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    sync::{Arc, Mutex, MutexGuard},
};

#[cfg(not(common_loom))]
pub(super) use cell::UnsafeCell;
#[cfg(not(common_loom))]
pub(super) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

#[cfg(not(common_loom))]
mod cell {
    /// `std::cell::UnsafeCell` with the accessors of loom's, which checks that they do not overlap.
    #[derive(Debug)]
    pub(in super::super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in super::super) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Gives the content to be read.
        #[inline(always)]
        pub(in super::super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Gives the content to be written.
        #[inline(always)]
        pub(in super::super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}
