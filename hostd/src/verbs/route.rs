//! How packets to a destination are addressed.

use common::units::Rate;
use std::net::IpAddr;

/// What packets are paced to, and what bits take on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speeds {
    /// Of the pacer.
    pub pacing: Rate,
    /// Of the link.
    pub link: Rate,
}

/// How packets to a destination are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Own address, of the destination's family.
    pub source: IpAddr,
    /// Own Ethernet address.
    pub source_mac: [u8; 6],
    /// Ethernet address of the next hop; the own one if the destination is this host itself.
    pub destination_mac: [u8; 6],
    /// Largest IP packet of the port.
    pub mtu: u16,
    /// Speed of the port, which packets are paced to.
    pub rate: Rate,
}
