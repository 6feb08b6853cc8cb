//! Whom the switch talks to.

use crate::id::PortId;
use common::wire::compute::{Key, Seal};
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

impl Peer {
    /// What makes the tags of messages to it.
    pub fn seal<'a>(&self, key: &'a Key) -> Seal<'a> {
        key.between(self.local.ip(), self.remote.ip())
    }

    /// Whether a message came from it by this key.
    pub(super) fn made(&self, key: &Key, message: &[u8]) -> bool {
        key.between(self.remote.ip(), self.local.ip()).made(message)
    }
}
