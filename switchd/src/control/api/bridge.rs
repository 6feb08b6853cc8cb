//! Bridges of the kernel, as operators see them.

use serde::{Deserialize, Serialize};

/// A port that belongs to a bridge of the kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BridgeRow {
    /// Interface.
    pub port: String,
    /// The bridge.
    pub bridge: String,
    /// State in the spanning tree.
    pub state: String,
    /// Why switchd bridges nothing that arrives here; `null`: it does.
    pub left_to_kernel: Option<String>,
    /// VLAN of frames without a tag; `null`: none, or the bridge looks at no tags.
    pub pvid: Option<u16>,
    /// VLANs of which it is a member, as `1 untagged, 10-20`; empty: the bridge looks at no tags.
    pub vlans: String,
    /// Nothing passes between it and other isolated ports.
    pub isolated: bool,
    /// Frames from here that switchd forwarded to other stations.
    pub bridged_packets: u64,
    /// Frames from here that the kernel was handed to flood.
    pub flooded_packets: u64,
    /// Frames from here that the kernel was handed to learn from.
    pub learning_packets: u64,
    /// Frames from here that exceeded a limit of `[bridge]` and were dropped.
    pub storm_drops: u64,
}

/// A station of a bridge.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StationRow {
    /// Its address.
    pub mac: String,
    /// Its VLAN; `null`: the bridge has none.
    pub vlan: Option<u16>,
    /// The bridge.
    pub bridge: String,
    /// The interface behind which it is.
    pub port: String,
    /// Where the kernel has it from: local, static, learned, external, locked.
    pub kind: String,
    /// Who forwards to it: switchd or kernel.
    pub by: String,
}
