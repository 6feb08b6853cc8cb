//! Registered memory (HT-1, HT-3): regions of applications, and who may access them. Payloads are
//! copied out of them when a packet is composed \[6\], and into them where it is placed \[8\].
//!
//! ```text
//!   access   how the engine reaches memory    heap   memory of simulated hosts and tests
//!   table    regions and their keys           copy   payloads out of them and into them
//!   list     lists of pieces, copied as one     window memory windows
//! ```

mod access;
mod copy;
mod heap;
mod list;
mod table;
mod window;

pub use access::RegionMemory;
pub use heap::HeapMemory;
pub(crate) use list::Part;
pub(crate) use table::{AccessDenied, MemoryRange, RegionTable};
pub(crate) use window::Bind;

#[cfg(test)]
mod tests;
