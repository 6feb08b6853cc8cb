//! \[12\] The shared-memory edge to applications: their work requests enter here, before \[1\], and
//! their completions leave here.
//!
//! ```text
//!   table        sessions, what they own, and their doorbells
//!   queue_pair   work requests from the rings          work   requests out of their slots
//!   shared_queue receives from the rings of shared queues
//!   collective   collectives from the rings of memberships
//!   completion   completions into the rings
//!   region       registered memory
//!   command      what the control thread asks of the worker, and what the worker reports
//!   statistics   counters
//! ```
//!
//! Rings are copied and checked, so no application can stop the worker or mislead it. A queue pair
//! whose rings break the rules is closed.

pub mod collective;
pub mod command;
pub mod completion;
pub mod queue_pair;
pub mod region;
pub mod shared_queue;
pub mod statistics;
pub mod table;
pub mod work;
