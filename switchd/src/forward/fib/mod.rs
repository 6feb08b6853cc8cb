//! \[4\] The route table: prefix -> group. Control writes it, workers read it at the same time.
//!
//! ```text
//!   lpm      the read side: longest prefix match over words in an arena
//!   trie     changes of the nodes: built aside, linked by one store, retired
//!   writer   the write side: prefixes in, words out
//! ```

mod lpm;
mod trie;
mod writer;

pub use lpm::Fib;
pub use trie::FibError;
pub use writer::FibWriter;
