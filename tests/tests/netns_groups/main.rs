//! Groups of applications whose collectives two levels of switches compute, in laboratories with
//! both daemons: results, and what becomes of groups when switches restart, are full, or are told
//! to end a job, when a member dies, and when messages are sealed; and what becomes of other
//! traffic.

mod beside;
mod keys;
mod levels;
mod rig;
mod silent;
mod spines;
mod tiers;
mod trouble;
