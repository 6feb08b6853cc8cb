//! Groups of applications whose collectives two levels of switches compute, in laboratories with
//! both daemons: results, and what becomes of groups when switches restart, are full, or are told
//! to end a job, and when a member dies.

mod levels;
mod rig;
mod spines;
mod trouble;
