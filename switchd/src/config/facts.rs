//! What the configuration has to know of a device.

use common::units::Rate;

/// What has to be known of a port to make its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Its name.
    pub name: String,
    /// Its speed, if it has one.
    pub speed: Option<Rate>,
    /// Longest IP packet.
    pub mtu: u16,
    /// Frames that its receive ring holds.
    pub ring: u32,
    /// It leads to the spine.
    pub uplink: bool,
}
