//! iQCN: the switch makes congestion notifications that senders of RoCEv2 miss (SW-25).
//!
//! ```text
//!   CNPs that pass ──────────────▶ Entry of their flow: when
//!                                    │
//!   packet of the flow, about to     ▼
//!   be queued at a congested port ─▶ missing? ─▶ Notice ─▶ the flow's sender
//!                                    ▲
//!   control: flows whose two queue ──┘
//!   pairs are known
//! ```
//!
//! A receiver that saw marks tells the sender by a CNP, at most once in an interval. The sender's
//! NIC raises its rate when it has heard nothing for an interval of its own. If that one is
//! shorter, or CNPs come late, it raises the rate while the port is still congested. So, while a
//! flow finds its port congested and no CNP of it passes for as long as that, the worker that owns
//! the port makes one.
//!
//! Control alone enters flows, when it knows the queue pairs of both ends, from connection set-up
//! or from data: no number is guessed. Nothing is made for a flow whose receiver sends no CNPs.
//!
//! ```text
//!   entry        the times of one direction of a flow, and whether a CNP is missing
//!   table        the entries: control enters and removes, all workers look up
//!   notice       a CNP that is made
//!   compensator  a worker's end
//! ```

mod compensator;
mod entry;
mod notice;
mod table;
#[cfg(test)]
mod tests;

pub use compensator::{Compensator, Counters, NOTICES_A_TURN};
pub use entry::{Entry, Rules, Times};
pub use notice::Notice;
pub use table::{Place, Table};
