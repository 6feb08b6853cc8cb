//! Collectives that the switches compute (HT-50): this host's side of `docs/compute.md`.
//!
//! ```text
//!   member   a membership of a job: one state machine, fed with messages, requests and the time
//!   queue    the collectives that were posted, and the numbers of their chunks
//!   flight   which chunks are under way, and results that wait for their turn
//!   window   how many may be under way
//! ```
//!
//! Like all of the engine it does no I/O and reads no clock. Vectors are copied out of registered
//! memory when a contribution leaves, again for each retransmission. Results are written in the
//! order of their bytes: one that comes early waits beside. So when an epoch ends in the middle of
//! a collective, everything behind the reported prefix of its output is as it was, and one that is
//! done in place can go on from there by other means.

mod flight;
mod member;
mod queue;
mod window;

pub(crate) use member::{Incoming, Member, Way};
