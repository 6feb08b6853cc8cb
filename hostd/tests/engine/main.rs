//! The engine as a whole: two of them, a network between that loses, repeats, delays and reorders,
//! and a clock that only the tests move.

mod answers;
mod connection;
mod delivery;
mod hostile;
mod losses;
mod network;
mod pauses;
mod plain;
mod plain_peer;
mod trouble;
