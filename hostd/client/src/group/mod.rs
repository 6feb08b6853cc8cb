//! Collectives between hosts: what the processes of a job do together (HT-50, SW-41).
//!
//! ```text
//!   Group ── create (rank 0), join (the others)      rendezvous: rank 0 tells all who is where
//!     │ allreduce, reduce, broadcast, barrier, allgather, reduce_scatter
//!     ▼
//!   Request ── poll, wait, finish (a future)          one at a time, or in the group: begin, poll
//!
//!   call      what is called, by which algorithm    schedule  who sends what to whom, in steps
//!   progress  how far that is, by segments          judge     who is to blame
//!   failure   why a group fails                     message   what members send
//!   link      a connection, its places and credits  member    a group as one member has it
//!   meet      connections as they are needed        exchange  segments that come and go
//!   turn      one round of work                     request   a collective under way
//!   rendezvous   how a group forms                  collectives   the calls
//!   offload   through the switches, and back        agree     where their part ends
//!   seat   places in the tree of switches             again    when they are tried
//!   vector   the bytes that it works on               flow     how far one under way is
//!   blame    because of whom they are not used         notes   who stands still says what it calls
//!   asynchronous   how it forms and a request ends, as futures
//!   between  what others need of a member that calls nothing
//!   attempts how often one is asked for a connection
//! ```
//!
//! `schedule`, `progress`, `agree`, `again`, `blame` and `judge` do no I/O. The calling thread does
//! all the work, in the call or in the polls of the request: no thread is the group's, and nothing
//! moves between calls but in those of [`Group::poll`].
//!
//! Every collective ends at every member with the exact result, or with an error that names the
//! rank whose doing it is. Then the group has failed, and says the same to each later call.

mod again;
mod agree;
#[cfg(feature = "tokio")]
mod asynchronous;
mod attempts;
mod between;
mod blame;
mod call;
mod collectives;
mod exchange;
mod failure;
mod flow;
mod judge;
mod link;
mod meet;
mod member;
mod message;
mod notes;
mod offload;
mod progress;
mod rendezvous;
mod request;
mod schedule;
mod seat;
mod turn;
mod vector;

pub use crate::abi::collective::FailureReason;
pub use call::{Algorithm, Call, Collective};
pub use failure::{Cause, Failure, GroupError, Refusal};
pub use member::{Group, GroupOptions};
pub use message::SIZE_MAX;
pub use reduce::{Element, Operation};
pub use request::Request;
pub use seat::Fallback;
pub use vector::{SharedVector, Vector};
