//! Collectives between real daemons: each rank has a namespace with a hostd, at the ports of one
//! bridge. Members are threads that talk to their daemons by their sockets, or `hostallreduce`
//! where one has to be killed.
//!
//! Needs root, `ip`, `ethtool`, and `hostd` beside the programs of this crate.
//!
//!   rig   hosts, and members on them;   results   against an oracle;   trouble   dead members;
//!   mismatch   those that do something else;   switches   through a leaf, and without it;
//!   lacking   members that have results, and one that does not

mod lacking;
mod mismatch;
mod results;
mod rig;
mod switches;
mod trouble;
