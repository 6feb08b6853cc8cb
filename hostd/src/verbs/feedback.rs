//! What becomes of a packet that was sent: what path selection and congestion control learn of it.

use common::time::{Span, Time};

/// The outcome of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback {
    /// Path ID of the newest copy.
    pub(crate) path: u8,
    /// Which of the entropy values the newest copy had.
    pub(crate) entropy: u8,
    /// When its newest copy left.
    pub(crate) sent: Time,
    /// The round-trip time, if it was measured.
    pub(crate) round_trip: Option<Span>,
    /// The round-trip time of the packet that caused the acknowledgement: the newest that is known
    /// of the network.
    pub(crate) delay: Option<Span>,
    /// How long its only copy and the answer were under way, at least: the packet that caused the
    /// acknowledgement took this long, and others arrived after the acknowledgement before.
    pub(crate) took: Option<Span>,
    /// Whether it arrived.
    pub(crate) fate: PacketFate,
}

/// Whether a packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketFate {
    /// It arrived.
    Delivered {
        /// The newest copy probably arrived; `false`: an older one did.
        newest_copy: bool,
        /// A switch marked it: Congestion Experienced.
        marked: bool,
    },
    /// It arrived, but no receive was posted: it has to be sent again.
    NotReady,
    /// A switch cut its payload off, and the peer says so.
    Trimmed,
    /// It counts as lost.
    Lost,
}
