//! What the Linux kernel knows about the network, mirrored: links, addresses, neighbours, routes
//! and next hop objects. Read only; FRR, BIRD or `ip` write, the daemons follow.
//!
//! ```text
//!   socket ─ bytes ─▶ decode ─ Message ─▶ Follower ─ Change ─▶ daemon
//!     ▲                                   │  Mirror (the state)
//!     └── dump requests ──────────────────┘
//! ```
//!
//! ```text
//!   types      Link, Address, Neighbour, Route, NextHop: plain values
//!   rule       Rule: which tables are asked
//!   decode     bytes -> Message; never panics, never trusts a length
//!   mirror     the state: applies messages, tells what changed
//!   follow     when to trust events and when to dump all and compare
//!   watch      the socket, thin
//!   request    what is asked of the kernel: resolve a neighbour, keep it alive, look up a route
//! ```
//!
//! Why the messages are decoded here and not by netlink-packet-route: that crate has no next hop
//! objects, refuses a whole message for one attribute that it finds odd, and allocates for each
//! attribute, a million times for a full table. It serves as the oracle of the tests, and rtnetlink
//! makes the requests.
//!
//! Events alone are not enough. The kernel removes next hops and routes of a link that goes down
//! without saying so, and drops messages when the socket's buffer is full (ENOBUFS). So
//! [`Follower`] dumps everything and compares after a link went down, after a next hop object was
//! removed, after an overrun, when two messages contradict each other, and periodically.

mod decode;
mod follow;
mod mirror;
mod request;
mod rule;
mod types;
mod watch;

pub use decode::{Action, Body, DecodeError, Message, decode};
pub use follow::{Follower, ResyncReason, Settings, Statistics};
pub use mirror::{Change, Mirror};
pub use request::{Requests, RouteAnswer};
pub use rule::Rule;
pub use types::{
    Address, Hop, Link, Mac, Neighbour, NeighbourKey, NeighbourState, NextHop, NextHopKind, Route,
    RouteKey, RouteKind, Table, Vlan,
};
pub use watch::{RECEIVE_BUFFER, Watch};

#[cfg(test)]
mod tests;
