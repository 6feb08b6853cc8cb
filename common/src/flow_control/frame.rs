//! MAC control frames, from the Ethernet header on.

use crate::wire::Error;
use crate::wire::ethernet::{self, Mac, ethertype};
use crate::wire::pause::{self, Control};

/// Why a MAC control frame is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Sent to another station.
    Address,
    /// Ends before its fields do.
    Length,
    /// An opcode other than those of PAUSE and PFC.
    Opcode,
    /// An enable vector with more than eight bits.
    Vector,
}

impl Malformed {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Address, Self::Length, Self::Opcode, Self::Vector];

    /// The name of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Length => "length",
            Self::Opcode => "opcode",
            Self::Vector => "vector",
        }
    }
}

/// Whether `frame` is for the MAC control sublayer: its EtherType, without a tag (802.3 clause
/// 31.4.1).
pub fn is_control(frame: &[u8]) -> bool {
    let place = ethernet::field::ETHERTYPE;
    frame.get(place..place + 2) == Some(&ethertype::MAC_CONTROL.to_be_bytes())
}

/// What a frame that [`is_control`] asks for.
///
/// A station takes frames to the group address and to its `own` (802.3 annex 31B.3.3); without
/// `own`, to the group address alone.
///
/// # Errors
/// Why it is not understood.
pub fn read(frame: &[u8], own: Option<Mac>) -> Result<Control, Malformed> {
    let (header, payload) = frame
        .split_at_checked(ethernet::HEADER_LEN)
        .ok_or(Malformed::Length)?;
    let destination = &header[ethernet::field::DST];
    if destination != pause::DESTINATION.0 && own.is_none_or(|own| destination != own.0) {
        return Err(Malformed::Address);
    }
    Control::parse(payload).map_err(|error| match error {
        Error::Truncated { .. } => Malformed::Length,
        Error::Field {
            field: "opcode", ..
        } => Malformed::Opcode,
        Error::Field { .. } => Malformed::Vector,
        _ => Malformed::Length,
    })
}
