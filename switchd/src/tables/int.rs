//! INT: what a port does with the telemetry in the tags of packets (SW-52).

use super::csig::Mode;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInt {
    /// By what tags are known: the same in all switches and hosts.
    pub tpid: u16,
    /// What becomes of tags that leave by it. [`Mode::Update`]: it writes itself into them.
    pub mode: Mode,
    /// Tags of packets that arrive here are believed.
    pub is_trusted: bool,
}
