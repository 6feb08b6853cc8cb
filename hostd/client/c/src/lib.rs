//! The client library of hostd for C: what `hostd.h` declares, over the crate `hostd-client`.
//!
//! ```text
//!   context  memory  completion  queue_pair  post  shared_queue  connection  paths
//!   group  collectives     the functions
//!   member    a group as one member of it has it
//!   pieces    a collective of a caller, which is several of a group
//!   text      texts of errors, statuses and reasons
//!   layout    the structures of the header
//!   handle    what handles stand for
//!   failure   results, the last error of a thread, and panics that end there
//!   pointer   arguments of callers that are pointers: the only ones that are followed
//! ```
//!
//! A function brings its pointers in as values of `pointer`, and works on them inside of
//! `failure::answer`, where a panic becomes `HOSTD_ERR_DEFECT`. Functions of one topic are one
//! module, and one section of the header; `hostd/client/c/tests/library/header.rs` compares
//! the two.
//!
//! A handle is a number that looks like a pointer: it is looked up and never followed. So no
//! mistake of a caller with handles is undefined behaviour.

#![allow(
    unsafe_code,
    reason = "functions that C calls by name and with pointers; see each SAFETY"
)]

mod carrying;
mod collectives;
mod completion;
mod connection;
mod context;
mod failure;
mod group;
mod handle;
mod layout;
mod member;
mod memory;
mod paths;
mod pieces;
mod pointer;
mod post;
mod queue_pair;
mod shared_queue;
mod text;

/// A value of a C enumeration, as an index into a short list or a code.
fn small(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}
