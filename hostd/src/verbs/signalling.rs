//! How a host takes part in CSIG: which tags its packets carry, and what comes back means (CS-8 to
//! CS-10).

use common::csig::Scales;
use common::wire::csig::{Form, Signal, Tpids};

/// See the module. TPIDs and scales are those of the whole domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signalling {
    /// By which tags are known.
    pub tpids: Tpids,
    /// Form of the tags of own packets.
    pub form: Form,
    /// One in so many data packets of a queue pair has a tag; above zero.
    pub every: u32,
    /// The signals that tags ask for, in turns; at least one.
    pub signals: Vec<Signal>,
    /// How values are written.
    pub scales: Scales,
    /// The locators that switches write at ports to hosts: a bottleneck there is the last hop, and
    /// no other path avoids it.
    pub host_locators: Vec<u16>,
}
