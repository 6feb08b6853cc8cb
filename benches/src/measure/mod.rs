//! Measuring side by side: contenders take turns, and a bound is judged by the interval in which
//! the true ratio is.
//!
//! ```text
//!   subject     groups of contenders, the figures that follow from their values
//!   rounds      who is measured when, and how often
//!   statistics  the median and its confidence interval
//!   bound       what a figure has to keep; holds, fails, undecided
//!   machine     what else the machine did meanwhile
//!   clock       processor time
//! ```
//!
//! Everything except `clock` and the reading of counters is pure computation, so tests use
//! simulated programs on simulated machines.

pub mod bound;
pub mod clock;
pub mod machine;
pub mod rounds;
pub mod statistics;
pub mod subject;

pub use bound::{Bound, Verdict};
pub use clock::{busy_time, millions_each_second, nanos_each};
pub use subject::{Better, Figure, Group, Subject, Term};
