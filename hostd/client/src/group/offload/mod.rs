//! What a group knows of the switches: its place there, and how members stop using them together.
//!
//! ```text
//!   offered ── all are ready, rank 0 says so ──▶ joined ── somebody stops ──▶ over
//!                                                  ▲                           │ after a while
//!                                                  └──── all have joined anew ─┘
//!
//!   state     where that is                choice    which collectives go there
//!   gate      all ask rank 0 whether one goes there
//!   carry     a collective through the switches, turn by turn
//!   settle    rank 0 asks all how far they are, and says what comes next
//!   tail      results of the last collective, for those that lack them
//! ```

mod carry;
mod choice;
mod gate;
mod settle;
mod state;
mod tail;

pub(super) use choice::Way;
pub(super) use state::Offload;
