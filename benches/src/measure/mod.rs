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
//! All of it but `clock` and the reading of counters is plain computation, so tests run made-up
//! programs on made-up machines.

pub mod bound;
pub mod clock;
pub mod machine;
pub mod rounds;
pub mod statistics;
pub mod subject;

pub use bound::{Bound, Verdict};
pub use clock::{busy_time, millions_each_second, nanos_each};
pub use subject::{Better, Figure, Group, Subject, Term};
