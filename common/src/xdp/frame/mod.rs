//! Buffers and their tokens.
//!
//! All packet memory of a daemon is one [`Region`], cut into chunks of equal size. A [`Frame`] is
//! the right to use one chunk: it is neither `Clone` nor `Copy`, so a chunk always has exactly one
//! holder (a pool, a queue, a ring of the kernel), and memory is reached through the token only.
//! Dropping a frame loses its chunk for good, so drops are counted ([`leaked`]) and the tests
//! assert that the count does not move.
//!
//! Free frames live in a [`FramePool`], one per worker, which needs no lock. Frames move between
//! workers with the packets they carry, so pools trade surplus through the region's depot: one
//! lock-free operation for each [`TRADE`] frames.
//!
//! A packet that is longer than a chunk lies in several; its frame is that of the first.
//!
//! ```text
//!   token   Region, Frame, FramePool
//!   chain   packets that lie in several chunks
//! ```

mod chain;
mod token;

pub use chain::Pieces;
pub use token::{Frame, FramePool, POOL_FULL, Region, TRADE, leaked};
