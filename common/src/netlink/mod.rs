//! What the Linux kernel knows about the network, mirrored: links, addresses, neighbours, routes,
//! next hop objects, ports and stations of bridges. Read only; FRR, BIRD or `ip` write, the daemons
//! follow.
//!
//! ```text
//!   socket ─ bytes ─▶ decode ─ Message ─▶ Follower ─ Change ─▶ daemon
//!     ▲                                   │  Mirror (the state)
//!     └── dump requests ──────────────────┘
//! ```
//!
//! ```text
//!   bridge     bytes of bridges, their ports and their stations
//!   types      Link, Address, Neighbour, Route, NextHop: plain values
//!   rule       Rule: which tables are asked
//!   attribute  fields and attributes of messages; settings: those of IPv4
//!   rest       what else tells routes apart
//!   decode     bytes -> Message; never panics, never trusts a length
//!   mirror     the state: applies messages, tells what changed
//!   route_set  the routes of a key, in their order
//!   silent     what the kernel removes without saying so
//!   lifetimes  routes that end by themselves
//!   follow     when to trust events and when to dump all and compare
//!   watch      the socket, thin
//!   filters    what else judges or changes packets that the kernel forwards
//!   request    what is asked of the kernel: resolve a neighbour, keep it alive, look up a route
//! ```
//!
//! Why the messages are decoded here and not by netlink-packet-route: that crate has no next hop
//! objects, refuses a whole message for one attribute that it finds odd, and allocates for each
//! attribute, a million times for a full table. It serves as the oracle of the tests, and rtnetlink
//! makes the requests.
//!
//! Events alone are not enough. The kernel removes next hops and routes of a link that goes down
//! without saying so: these are found out from what it says. It drops messages when the socket's
//! buffer is full (ENOBUFS). So [`Follower`] dumps everything and compares after a link went down,
//! after a next hop object or an address was removed, after an overrun, when two messages
//! contradict each other, and periodically.

mod attribute;
mod bridge;
mod decode;
mod filters;
mod follow;
mod lifetimes;
mod link;
mod mirror;
mod request;
mod rest;
mod route_set;
mod rule;
mod settings;
mod silent;
mod types;
mod watch;

pub use attribute::DecodeError;
pub use decode::{Action, Body, Message, decode};
pub use filters::{Filter, Filters, filters};
pub use follow::{Follower, ResyncReason, Settings, Statistics};
pub use mirror::{Change, Mirror};
pub use request::{Requests, RouteAnswer, RouteHop};
pub use rule::Rule;
pub use types::{
    ALL_LINKS, Address, Bridge, BridgePort, FdbEntry, FdbKey, FdbKind, Hop, Ipv4Settings, Link,
    Mac, NO_MTU, Neighbour, NeighbourKey, NeighbourState, NextHop, NextHopKind, PROTOCOL_KERNEL,
    PortVlan, Resilience, Route, RouteKey, RouteKind, SettingsChange, StpState, Table, Vlan,
    VlanState,
};
pub use watch::{RECEIVE_BUFFER, Watch};

#[cfg(test)]
mod tests;
