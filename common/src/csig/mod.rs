//! How the values of congestion signals are written in the tags of packets (CS-3), and the
//! configuration of that. Switches compare what is written, and hosts read it, so all of a domain
//! have the same.

mod config;
mod scale;

pub use config::{
    Bandwidth, Delay, Share, SignalName, check_scales, check_tpid, check_tpids, scales,
};
pub use scale::{BUCKETS, Buckets, SIGNALS, Scale, Scales, WHOLE};
