//! iQCN, off the packet path (SW-25): which flows have an entry.
//!
//! ```text
//!   book ── flows whose two queue pairs are known ──▶ keeper ── enter, remove ──▶ table
//!                                                        │
//!                                                        └──▶ events, report, metrics
//! ```
//!
//! What was learned from set-up is exact. What was learned from data has to stand for another look,
//! half a second, before notifications are made because of it.

//! ```text
//!   keeper  the flows that have an entry
//!   follow  when control looks after them, and what it tells
//! ```

mod follow;
mod keeper;
#[cfg(test)]
mod tests;

pub use keeper::{Keeper, Row, Turning};
