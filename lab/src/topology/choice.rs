//! What is chosen among a few.

use serde::{Deserialize, Serialize};

/// How the hosts of a laboratory answer to congestion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Congestion {
    /// Not at all: so many packets are in flight, whatever becomes of them.
    #[default]
    Off,
    /// Marks of switches slow them down, as in DCTCP.
    Marks,
}

/// What the traffic managers of a laboratory's switches do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Qos {
    /// Eight queues in strict priority, which drop.
    Plain,
    /// What Ultra Ethernet recommends for the laboratory's bandwidth-delay product: hostd's data in
    /// TC_low, its control in TC_high.
    #[default]
    Uet,
    /// hostd's data is lossless: a sender that would overrun a switch is paused.
    Lossless,
}

/// Which daemons a laboratory runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Daemons {
    /// switchd on switches, hostd on hosts.
    All,
    /// switchd on switches only.
    Switches,
    /// None; the Linux kernel forwards. For comparison.
    KernelRouters,
    /// None; nothing forwards. For starting daemons by hand.
    Nothing,
}
