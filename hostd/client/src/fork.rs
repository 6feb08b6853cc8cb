//! Whether this process is the one that opened a session. A child of fork(2) has its socket and its
//! rings as well, and would speak in its name: when it ends, say, by what it drops.

#![allow(unsafe_code, reason = "the C library is told of a function")]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between this process and the one in which the library was used first.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static REGISTER: Once = Once::new();

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The process that something was made in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker(u32);

impl Maker {
    /// This process.
    pub(crate) fn here() -> Self {
        REGISTER.call_once(|| {
            // SAFETY: the function does nothing but add to an atomic, which is allowed between fork
            // and exec, and it lives as long as the program. Without memory it is not called, and
            // children are taken for the process itself.
            unsafe {
                libc::pthread_atfork(None, None, Some(in_child));
            }
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether it was this one.
    pub(crate) fn is_here(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}
