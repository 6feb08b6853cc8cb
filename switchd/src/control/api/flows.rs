//! RoCEv2 flows, as operators see them.

use serde::{Deserialize, Serialize};

/// What passes in one direction of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowDirection {
    /// The port that its packets arrive at.
    pub port: String,
    /// Packets since the flow is known.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
    /// NAKs for PSN sequence errors in this active time: packets of the other direction were lost.
    pub naks: u64,
    /// When the last of them passed, in seconds since the Epoch.
    pub last_nak: Option<f64>,
    /// NAKs for other reasons in this active time: requests that were refused.
    pub refusals: u64,
    /// Congestion notifications in this active time.
    pub cnps: u64,
    /// Time from a request of this direction to its acknowledgement, both as they pass here, in
    /// nanoseconds: a moving average.
    pub rtt_nanoseconds: Option<u64>,
    /// Bits a second, of an elephant.
    pub rate: Option<u64>,
}

/// A flow: a connection, or the one direction of it that is seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Address of the client; if nobody knows which side that is, of who asks; if both do, of the
    /// one that was seen first.
    pub source: String,
    /// Its queue pair; `null`: not known yet.
    pub source_qp: Option<u32>,
    /// Address of the other side.
    pub destination: String,
    /// Its queue pair.
    pub destination_qp: u32,
    /// How it is known which directions belong together: `set-up` or `data`.
    pub learned: Option<String>,
    /// Seconds since its first packet.
    pub age_seconds: f64,
    /// Seconds since its last packet.
    pub idle_seconds: f64,
    /// From the source.
    pub forward: FlowDirection,
    /// From the destination.
    pub backward: Option<FlowDirection>,
}
