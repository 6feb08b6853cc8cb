//! The engine as a whole: two of them, a network between that loses, repeats, delays and reorders,
//! and a clock that only the tests move.

mod addresses;
mod answers;
mod attackers;
mod changes;
mod cm_fields;
mod connection;
mod dcqcn;
mod declared;
mod delivery;
mod feedback;
mod fields;
mod forge;
mod hostile;
mod injection;
mod keep_alive;
mod lists;
mod long;
mod losses;
mod messages;
mod modify;
mod network;
mod partitions;
mod pauses;
mod plain;
mod plain_peer;
mod planes;
mod refused_mtu;
mod shared_queue;
mod shares;
mod sizes;
mod traffic;
mod trims;
mod trouble;
mod windows;
mod wireshark;
