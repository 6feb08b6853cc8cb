//! Lock-free cores between threads.
//!
//! ```text
//!   spsc      bounded ring from one thread to one other, in batches
//!   snapshot  immutable tables, published with an epoch; readers never wait
//!   counter   a number with one writer and any number of readers
//!   words     large arrays of atomic words, for tables that are changed in place
//! ```
//!
//! `spsc` and `snapshot` are checked by loom too (`models`, by `make loom`), so what they are made
//! of comes from `primitive`.

pub mod counter;
mod primitive;
pub mod snapshot;
pub mod spsc;
pub mod words;

#[cfg(all(test, common_loom))]
mod models;

/// Keeps a value on cache lines of its own, so that two threads that write neighbours do not slow
/// each other down. 128 bytes: x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
