//! How a host takes part in INT (SW-52): which of its packets carry telemetry.

/// See the module. The TPID is that of all switches and hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntTerms {
    /// By which tags are known.
    pub tpid: u16,
    /// One in so many data packets of a queue pair has a tag; above zero.
    pub every: u32,
}
