//! Whom the switch talks to.

use crate::id::PortId;
use std::net::SocketAddr;

/// Somebody to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address and port.
    pub remote: SocketAddr,
    /// The address and port of the switch that it talks to.
    pub local: SocketAddr,
    /// The port of the switch at which it was heard last.
    pub port: PortId,
}
