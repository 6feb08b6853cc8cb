//! RoCEv2 flow analysis, on the packet path: what passes for each direction of each connection
//! (SW-50). The analysis itself is control's: see [`crate::control::flows`].
//!
//! ```text
//!   packets of a batch ─▶ read ─▶ observer ─▶ Slot of the direction ──────▶ control reads, at will
//!                                   │ ▲           (one writer: the worker)
//!              messages of set-up ──┘ └── releases of slots ◀── control
//! ```
//!
//! A connection has two directions, which may be seen by two workers: each has a slot of its own,
//! and control finds out which two belong together. From then on the worker that sees the
//! acknowledgements of one looks at the other's slot for the time at which a packet passed.
//!
//! ```text
//!   key       which direction of which connection
//!   read      what a packet says
//!   slot      what is counted of a direction
//!   index     where the slot of a key is
//!   observer  a worker's end: it alone writes the slots of its table
//!   shares    how much of a table the packets of one port may take
//! ```

mod index;
mod key;
mod observer;
mod read;
mod shares;
mod slot;
#[cfg(test)]
pub(crate) mod tests;

pub use key::Key;
pub use observer::{Ends, Observer, Release, SETUPS, Setup, observers};
pub use read::{Kind, Read, RocePacket, read};
pub use shares::Shares;
pub use slot::{Counts, PSN_HALF, Seen, Slot, Table, TableCounters, is_covered};
