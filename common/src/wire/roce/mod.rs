//! RoCEv2 (InfiniBand architecture, volume 1, chapter 9 and annex A17): what UDP port 4791 carries.
//!
//! ```text
//!   BTH 12 │ MPEH 8 │ extension 8– │ extended headers │ payload │ pad 0–3 │ ICRC 4
//!            only with multipath
//! ```
//!
//! A packet of a multipath connection has its opcode in the otherwise unassigned range 0xC0–0xDF:
//! the low five bits are those of the reliable connection's operation, and an MPEH and an extension
//! header follow the BTH. A standard peer that ever saw one would drop it for its unknown
//! transport, never misread it.

mod bth;
mod change;
mod extended;
mod extension;
pub mod frame;
mod headers;
mod hint;
pub mod icrc;
mod marks;
mod mpeh;
pub mod opcode;
mod reflection;
mod sack;
#[cfg(test)]
mod tests;
mod utilisation;

pub use bth::{Bth, PSN_MASK};
pub use change::{Change, ChangeOutcome, NewTerms, PathIds};
pub use extended::{AckKind, Aeth, AtomicEth, Deth, NakCode, Reth};
pub use extension::{Cookie, Extension};
pub use frame::{Flow, Layout};
pub use headers::Headers;
pub use hint::{BlockClass, CLOCK_MASK, CLOCK_SHIFT, Hint, TrafficPattern, TrafficPriority};
pub use icrc::ICRC_LEN;
pub use marks::{Crowd, MARK_BITS, Marks};
pub use mpeh::{AckFlags, DataFlags, Mpeh};
pub use opcode::{Opcode, Operation};
pub use reflection::Reflection;
pub use sack::{SACK_BITS, Sack};
pub use utilisation::{Utilisation, WorstLink};
