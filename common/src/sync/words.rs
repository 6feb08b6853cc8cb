//! Large arrays of atomic words: tables that one thread changes in place while others read them.

#![allow(
    unsafe_code,
    reason = "zeroed allocation, huge pages and prefetching have no safe form; see each SAFETY"
)]

use std::sync::atomic::AtomicU32;

/// `len` words, all zero. Memory that is never written never becomes resident, so a table can be
/// bounded generously.
pub fn zeroed(len: usize) -> Box<[AtomicU32]> {
    let words = Box::into_raw(vec![0_u32; len].into_boxed_slice());
    advise_huge(words.cast(), len * size_of::<u32>());
    // SAFETY: `AtomicU32` has the size, the alignment and the bit patterns of `u32` (its
    // documentation says so), and the pointer was the only one to the allocation.
    unsafe { Box::from_raw(words as *mut [AtomicU32]) }
}

/// Asks for huge pages: a walk through a large table otherwise waits for page tables as much as for
/// the table itself. Where the kernel does not grant them, nothing changes.
fn advise_huge(start: *mut libc::c_void, len: usize) {
    const HUGE: usize = 2 << 20;
    let skipped = start.align_offset(HUGE);
    if len.saturating_sub(skipped) >= HUGE {
        // SAFETY: the range is inside an allocation of `len` bytes, aligned to pages at its start,
        // and the advice changes neither content nor access.
        unsafe {
            libc::madvise(
                start.byte_add(skipped),
                (len - skipped) / HUGE * HUGE,
                libc::MADV_HUGEPAGE,
            );
        }
    }
}

/// Starts to bring the cache line in which `value` begins close, without waiting for it.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

/// Starts to bring all cache lines of `value` close (what it owns elsewhere is left where it is).
#[inline]
pub fn prefetch_all<T: ?Sized>(value: &T) {
    /// Bytes of a cache line.
    const LINE: usize = 64;
    let base = std::ptr::from_ref(value).cast::<u8>();
    let before = base.addr() % LINE;
    for at in (0..before + size_of_val(value)).step_by(LINE) {
        prefetch_line(base.wrapping_sub(before).wrapping_add(at));
    }
}

/// A hint about an address; it reads nothing that a program can see, and faults on nothing.
#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is allowed on any address.
        unsafe { _mm_prefetch(at.cast::<i8>(), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_begin_at_zero_and_can_be_changed() {
        let words = zeroed(100_000);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        prefetch(&words[99_999]);
        prefetch_all(&words[..100]);
        words[7].store(9, Ordering::Relaxed);
        assert_eq!(words[7].load(Ordering::Relaxed), 9);
    }
}
