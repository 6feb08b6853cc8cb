//! AF_XDP: the boundary between the kernel and the engines.
//!
//! ```text
//!   mode    how packets get between a device and our memory
//!   limits  sizes and bounds of frames, rings and ports
//!   error   what can go wrong
//!   frame   Frame, the linear token for one buffer; FramePool, a worker's store of free ones
//!   queue   QueueIo, what an engine sees of a port's queue, real or simulated
//!   in_flight  what lies in a transmit ring: packets, and their line time
//!   umem    the memory of all frames, registered with the kernel
//!   anchor  where the first socket of that memory is bound
//!   ring    the rings that a socket shares with the kernel
//!   socket  AfXdpQueue: one socket, one receive and one transmit queue
//!   pieces  packets that take several descriptors
//!   sim     SimQueue: a queue without a device, for tests
//!   punt    what is for others and left to the kernel all the same, and why
//!   bridge  what bridges know: ports and stations
//!   steer   the XDP program that decides what belongs to the kernel
//!   port    opening a device: mode, limits, program, a socket for each queue
//!   heartbeat  how that program knows workers that take no packets
//!   netdev  what the kernel says about devices
//! ```

mod anchor;
mod attach;
mod bridge;
pub mod frame;
mod heartbeat;
mod in_flight;
pub mod limits;
pub mod mode;
pub mod netdev;
mod pieces;
pub mod port;
mod punt;
pub mod queue;
mod ring;
pub mod sim;
pub mod socket;
pub mod steer;
pub mod umem;

mod error;

pub use anchor::is_anchor;
pub use bridge::{
    BRIDGE_PORTS_MAX, BridgeMaps, BridgedPort, STATIONS_MAX, StationKey, StationPlace,
};
pub use error::{MtuError, XdpError};
pub use in_flight::InFlight;
pub use limits::{mtu_limit, multi_buffer};
pub use mode::{Mode, ModeChoice};
pub use port::{Port, PortOptions, open_port};
pub use punt::{
    LOCAL_MAX, Prefixes, PuntLimit, PuntReason, STORM_DROPS, StormLimits, UPPER_MAX, Verdict,
};
pub use socket::{AfXdpQueue, QueueCounters};
pub use steer::{Role, SteerCounts, SteerSettings, Steering, VlanTag};
pub use umem::{Umem, frames_beside_rings, frames_needed, frames_per_queue};
