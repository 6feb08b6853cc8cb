//! \[5\] In-network compute: jobs whose vectors the switch reduces (SW-40). `docs/compute.md` has
//! the protocol and its state machines.
//!
//! ```text
//!   datagram ─▶ engine ─▶ job ─┬─▶ slots: vectors, and what comes of them
//!                              ├─▶ members: who they are, and when they were heard of
//!                              └─▶ parents: the switches above, of which it is a member
//!   peer       whom the switch talks to
//!   notice     what control is told of jobs
//!   backlog    what has come and waits for its share of the turn, by port and job
//!   settings   what is configured, and what there is room for
//! ```
//!
//! The engine takes datagrams and the time, and gives datagrams to an [`Outbox`]. A job belongs to
//! one worker. Memory is taken when a job is admitted, none for a packet.

mod backlog;
mod engine;
mod job;
mod notice;
mod parent;
mod peer;
mod settings;
mod slots;
#[cfg(test)]
mod tests;

pub use backlog::{Backlog, TURN, job_of};
pub use engine::{Datagram, Engine, NotReserved, Outbox, Reservation};
pub use notice::{Happening, Notice};
pub use peer::Peer;
pub use settings::Settings;
