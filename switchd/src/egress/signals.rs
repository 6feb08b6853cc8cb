//! \[9\] The tag of a packet that leaves and tells of its path: a congestion signal (CS-2, CS-7) or
//! telemetry (SW-52). It is updated, left alone, or taken off.
//!
//! ```text
//!   from an untrusted port, too long, or mode strip ──▶ taken off
//!   D, or a reserved signal, or mode pass-through ────▶ left alone
//!   trimmed here, mode update ──▶ CSIG: D is set, and nobody updates it any more
//!   mode update ────────────────▶ CSIG: compared; the worse of both stays, with its locator
//!                                 INT: this hop is added, if there is room
//! ```
//!
//! The tag is looked for where it stands now: VLAN tags have come or gone before.

use super::{csig, int};
use crate::packet::{Edits, Packet};
use crate::stats::Signed;
use crate::tables::csig::{PortCsig, Stamp};
use crate::tables::int::PortInt;
use common::time::Time;
use common::wire::csig::{Kind, Tpids, walk};
use common::wire::ethernet::HEADER_LEN;
use common::wire::int::Hop;

/// What the port is that a packet leaves by.
#[derive(Clone, Copy, Debug)]
pub struct Exit<'a> {
    /// By what tags are known.
    pub tpids: Tpids,
    /// What it does with congestion signals, and what it writes for now.
    pub csig: Option<(&'a PortCsig, Stamp)>,
    /// What it does with telemetry, and what it writes for now, but for the queue.
    pub int: Option<(PortInt, Hop)>,
    /// Bytes of the longest frame that keeps its tag.
    pub longest: usize,
}

/// Does with the tag of `packet`, which is about to leave, what the port is to do; `behind` bytes
/// wait in its queue. `None`: it has no tag.
#[inline]
pub fn sign(packet: &mut Packet, exit: Exit<'_>, behind: u64, now: Time) -> Option<(Kind, Signed)> {
    let (kind, at) = locate(packet.frame.bytes(), exit.tpids)?;
    let off = if packet.edits.contain(Edits::UNTRUSTED) {
        Some(Signed::Untrusted)
    } else if packet.frame.len() > exit.longest {
        Some(Signed::TooLong)
    } else {
        None
    };
    let signed = match (off, kind) {
        (Some(signed), _) => signed,
        (None, Kind::Csig(form)) => {
            let (port, stamp) = exit.csig?;
            csig::sign(packet, (form, at), port, stamp, now)?
        }
        (None, Kind::Int) => {
            let (port, hop) = exit.int?;
            int::sign(packet, at, port, hop, behind)?
        }
    };
    if signed.is_off() && !strip(packet, kind, at) {
        return None;
    }
    Some((kind, signed))
}

/// The tag of a frame, and where it stands.
#[inline]
fn locate(frame: &[u8], tpids: Tpids) -> Option<(Kind, usize)> {
    const UNTAGGED: usize = HEADER_LEN - 2;
    let kind = frame.get(UNTAGGED..HEADER_LEN)?;
    if let Some(kind) = tpids.kind(u16::from_be_bytes([kind[0], kind[1]])) {
        return Some((kind, UNTAGGED));
    }
    walk(frame, tpids).ok()?.signal
}

/// Takes the tag at `at` off. False, and nothing done, if the frame ends in it.
fn strip(packet: &mut Packet, kind: Kind, at: usize) -> bool {
    let len = kind.len();
    let (bytes, Ok(short)) = (packet.frame.bytes_mut(), u16::try_from(len)) else {
        return false;
    };
    if bytes.len() < at + len {
        return false;
    }
    bytes.copy_within(..at, len);
    packet.frame.shrink_front(short);
    packet
        .link
        .set_network(packet.link.network().saturating_sub(short));
    true
}
