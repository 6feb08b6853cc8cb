//! What the configuration has to know of a device.

use common::schedulers::PauseAnnouncement;
use common::units::Rate;

/// What has to be known of a port to make its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Its name.
    pub name: String,
    /// What its shaper enforces, if it has one.
    pub speed: Option<Rate>,
    /// The speed of its link, if it is known: what arrives comes so fast at most.
    pub link: Option<Rate>,
    /// What it may send at once, and its device may hold, in bytes of line time; 0 without a
    /// shaper, which leaves that to the ring.
    pub burst: u32,
    /// Longest IP packet.
    pub mtu: u16,
    /// Frames that its receive ring holds: of each of its queues.
    pub ring: u32,
    /// Frames that its transmit ring holds, likewise.
    pub transmit_ring: u32,
    /// It leads to the spine.
    pub uplink: bool,
    /// What its peer says still comes after a pause; `None`: nothing is heard.
    pub announced: Option<PauseAnnouncement>,
}
