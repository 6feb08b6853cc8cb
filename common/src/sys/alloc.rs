//! An allocator that counts, to prove that the packet path does not allocate.

#![allow(
    unsafe_code,
    reason = "the trait of allocators is unsafe; every call is handed on unchanged"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Allocations (and reallocations) that this thread has made through a [`Counting`] allocator.
pub fn allocations() -> u64 {
    CALLS.with(Cell::get)
}

/// Bytes that this thread has allocated through a [`Counting`] allocator, less those that it has
/// given back; negative if it gave back more, which other threads allocated.
pub fn live_bytes() -> i64 {
    BYTES.with(Cell::get)
}

/// Hands everything on to `A` and counts the allocations of each thread.
#[derive(Debug)]
pub struct Counting<A>(pub A);

fn count(more: usize, less: usize) {
    let size = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + size(more) - size(less)));
    if more == 0 {
        return;
    }
    // A thread that is being torn down has no counter any more, and nobody to ask for it.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: all requests are handed on to `A`, which is an allocator; counting touches a `Cell` of
// the thread that has no destructor, so it allocates nothing itself.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises are those that `A` asks for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as in `alloc`.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        // SAFETY: as in `alloc`; what came from here came from `A`.
        unsafe { self.0.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as in `realloc`.
        unsafe { self.0.dealloc(ptr, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn allocations_of_this_thread_are_counted() {
        let counting = Counting(System);
        let before = (allocations(), live_bytes());
        let layout = Layout::new::<u64>();
        // SAFETY: the layout is not empty, and what is allocated is given back once.
        unsafe {
            let memory = counting.alloc(layout);
            std::thread::scope(|scope| {
                scope.spawn(|| counting.dealloc(counting.alloc_zeroed(layout), layout));
            });
            assert_eq!(live_bytes(), before.1 + 8);
            counting.dealloc(memory, layout);
        }
        assert_eq!((allocations(), live_bytes()), (before.0 + 1, before.1));
    }
}
