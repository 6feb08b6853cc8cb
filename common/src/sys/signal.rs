//! Signals of the process.

#![allow(
    unsafe_code,
    reason = "the disposition of a signal is set by a system call"
)]

/// Lets the process end quietly when whoever reads its output stops reading (`switchctl ports |
/// head`), as programs for the command line do. Rust ignores the signal and makes it an error of
/// each write. To be called first in `main` of such a program, never in a daemon.
pub fn end_quietly_on_broken_pipe() {
    // SAFETY: SIG_DFL is a valid disposition, and no handler is replaced that anyone relies on.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
