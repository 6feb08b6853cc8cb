//! Soft-RoCE as a peer: the RDMA of a Linux kernel that nobody here wrote, in a guest behind two
//! tiers of switches, with links that carry path MTUs up to 4096.
//!
//! ```text
//!   h1: hostd ── tap ── leaf1 ── spine1 ── leaf2 ── h2: bridge ── tap device ── eth0 of the guest
//! ```
//!
//! The guest takes the place of a host: its interface has the address that h2 had. All tests share
//! one guest and one laboratory, one after the other.
//!
//!   rig         laboratory and guest;  dissection  what is wrong in a capture
//!   peer        the verbs program of the guest, and what is told to it
//!   talk        a queue pair of hostd with that program at its other end
//!   first       a device that is up, connection set-up, the first message
//!   addresses   further addresses of hostd's interface
//!   classics    `ibv_rc_pingpong` and `rping` of the guest with those of hostd
//!   links       links that lose packets, and one from the guest to hostd without switches
//!   operations  every operation, also with losses;  large  a message of 1 GiB
//!   events      solicited events;  several  queue pairs at once, and with a shared queue
//!   windows     memory windows, and keys that are taken back

mod addresses;
mod classics;
mod dissection;
mod events;
mod first;
mod large;
mod links;
mod operations;
mod peer;
mod rig;
mod several;
mod talk;
mod windows;
