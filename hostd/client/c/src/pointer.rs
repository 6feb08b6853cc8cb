//! Arguments of callers that are pointers.
//!
//! Each is brought in by an `unsafe` call that states what the caller has promised by calling, and
//! is a safe value from then on. What can be checked is checked: null pointers, text that is no
//! text.

use crate::failure::Failure;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Bytes that one argument may have: no object is larger.
const MOST: usize = isize::MAX as usize;

/// Text of a caller, or none.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(Option<&'a CStr>);

impl<'a> Text<'a> {
    /// The text at `pointer`.
    ///
    /// # Safety
    /// `pointer` is null, or points to bytes that end with a zero and do not change in `'a`.
    pub(crate) unsafe fn new(pointer: *const c_char) -> Self {
        // SAFETY: not null here, and the rest is the caller's promise.
        Self((!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }))
    }

    /// The text, if there is one.
    pub(crate) fn given(self) -> Option<&'a CStr> {
        self.0
    }
}

/// An array of a caller, or one value.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a, T> {
    start: Option<NonNull<T>>,
    count: usize,
    _of: PhantomData<&'a [T]>,
}

impl<'a, T: Copy> Input<'a, T> {
    /// `count` values at `start`.
    ///
    /// # Safety
    /// `start` is null, or points to as many initialized values, which do not change in `'a`.
    pub(crate) unsafe fn new(start: *const T, count: u32) -> Self {
        Self {
            start: NonNull::new(start.cast_mut()),
            count: count as usize,
            _of: PhantomData,
        }
    }

    /// All of them. None at all need no pointer.
    ///
    /// # Errors
    /// A null pointer, one that is not aligned, or more than memory can hold.
    pub(crate) fn all(self, what: &str) -> Result<&'a [T], Failure> {
        if self.count == 0 {
            return Ok(&[]);
        }
        let start = aligned(self.start, what)?;
        let bytes = self.count.checked_mul(size_of::<T>());
        if bytes.is_none_or(|bytes| bytes > MOST) {
            return Err(Failure::argument(format!("{what}: too many")));
        }
        // SAFETY: neither null nor misaligned, not too long, and the rest is the promise of `new`.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), self.count) })
    }

    /// The one value.
    ///
    /// # Errors
    /// A null pointer, or one that is not aligned.
    pub(crate) fn one(self, what: &str) -> Result<&'a T, Failure> {
        let all = self.all(what)?;
        all.first()
            .ok_or_else(|| Failure::argument(format!("{what}: none")))
    }
}

impl<'a> Input<'a, u8> {
    /// `count` bytes at `start`.
    ///
    /// # Safety
    /// As [`Self::new`].
    pub(crate) unsafe fn bytes(start: *const c_void, count: u32) -> Self {
        // SAFETY: bytes need no alignment, and the rest is the caller's promise.
        unsafe { Self::new(start.cast(), count) }
    }
}

/// Room of a caller for values.
pub(crate) struct Output<'a, T> {
    start: Option<NonNull<T>>,
    count: usize,
    _of: PhantomData<&'a mut [T]>,
}

impl<T: Copy> Output<'_, T> {
    /// Room for `count` values at `start`.
    ///
    /// # Safety
    /// `start` is null, or points to room for as many, which nobody else uses in `'a`.
    pub(crate) unsafe fn new(start: *mut T, count: u32) -> Self {
        Self {
            start: NonNull::new(start),
            count: count as usize,
            _of: PhantomData,
        }
    }

    /// Whether there is room at all.
    pub(crate) fn is_given(&self) -> bool {
        self.start.is_some()
    }

    /// Values that find room.
    pub(crate) fn room(&self) -> usize {
        self.count
    }

    /// Fails where [`Self::put`] would: to be asked before anything is done.
    ///
    /// # Errors
    /// A null pointer, or one that is not aligned.
    pub(crate) fn check(&self, what: &str) -> Result<(), Failure> {
        if self.count == 0 {
            return Ok(());
        }
        aligned(self.start, what).map(drop)
    }

    /// Gives the caller a value at place `at`.
    ///
    /// # Panics
    /// If there is no such place, or [`Self::check`] would fail.
    pub(crate) fn put(&mut self, at: usize, value: T) {
        assert!(at < self.count, "place {at} of {}", self.count);
        let start = aligned(self.start, "room").expect("checked before");
        // SAFETY: inside of the room that `new` was promised, neither null nor misaligned.
        unsafe { start.as_ptr().add(at).write(value) };
    }
}

/// Memory of a caller that a collective works on, or none.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    start: Option<NonNull<u8>>,
    _of: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is an address; who reads and writes there has the promise of `new`, in any thread.
unsafe impl Send for Bytes<'_> {}

impl Bytes<'_> {
    /// None.
    pub(crate) const NOWHERE: Self = Self {
        start: None,
        _of: PhantomData,
    };

    /// The memory at `start`.
    ///
    /// # Safety
    /// `start` is null, or as many bytes may be read there in the lifetime of the value as
    /// [`Self::read`] is asked for, and written as [`Self::write`] is asked for.
    pub(crate) unsafe fn new(start: *mut c_void) -> Self {
        Self {
            start: NonNull::new(start.cast()),
            _of: PhantomData,
        }
    }

    /// Where it is; zero is nowhere.
    pub(crate) fn address(self) -> usize {
        self.start.map_or(0, |start| start.addr().get())
    }

    /// Hands `len` bytes from `at` on to `work`, which reads them.
    ///
    /// # Panics
    /// If there is no memory.
    pub(crate) fn read<R>(self, at: usize, len: usize, work: impl FnOnce(&[u8]) -> R) -> R {
        let start = self.start.expect("checked before");
        // SAFETY: not null, and the rest is the promise of `new`; the bytes are not kept.
        work(unsafe { std::slice::from_raw_parts(start.as_ptr().add(at), len) })
    }

    /// Hands `len` bytes from `at` on to `work`, which writes them.
    ///
    /// # Panics
    /// If there is no memory.
    pub(crate) fn write<R>(self, at: usize, len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let start = self.start.expect("checked before");
        // SAFETY: not null, and the rest is the promise of `new`; nobody else has the bytes, for
        // the caller leaves them alone until the collective is over.
        work(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().add(at), len) })
    }
}

fn aligned<T>(start: Option<NonNull<T>>, what: &str) -> Result<NonNull<T>, Failure> {
    let start = start.ok_or_else(|| Failure::argument(format!("{what} is NULL")))?;
    if !start.is_aligned() {
        return Err(Failure::argument(format!("{what} is not aligned")));
    }
    Ok(start)
}
