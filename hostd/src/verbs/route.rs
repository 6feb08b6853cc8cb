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

/// Packets from one own address, or any, to one destination: what the kernel chooses a way for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction {
    /// The address of the peer.
    pub destination: IpAddr,
    /// The own address, of the same family, if packets from it go another way than those from
    /// others (`ip rule from`).
    pub source: Option<IpAddr>,
}

impl Direction {
    /// Whether both addresses are of one family.
    pub fn is_of_one_family(&self) -> bool {
        let of_one = |own: IpAddr| own.is_ipv4() == self.destination.is_ipv4();
        self.source.is_none_or(of_one)
    }
}

/// From any own address that has no way of its own.
impl From<IpAddr> for Direction {
    fn from(destination: IpAddr) -> Self {
        let source = None;
        Self {
            destination,
            source,
        }
    }
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
