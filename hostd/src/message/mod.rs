//! Messages: what applications ask for, and its way into packets and out of them.
//!
//! ```text
//!   work          work requests and completions, named as in libibverbs
//!   region        registered memory and its keys
//! ```

pub mod region;
pub mod work;
