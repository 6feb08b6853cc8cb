//! What a RoCEv2 packet says, as far as flow analysis asks.
//!
//! It passes whatever becomes of it here: what makes no sense is told and forwarded.

use crate::packet::Parsed;
use common::wire::ip::protocol;
use common::wire::roce::{Aeth, Bth, Deth, Extension, Mpeh};
use common::wire::{cm, udp};

/// What a packet of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks for something; `prompt` if the other side answers at once.
    Request {
        /// It asks for an acknowledgement, or for data.
        prompt: bool,
    },
    /// It acknowledges all up to its PSN.
    Acknowledge,
    /// It has more of what was read, or says that the receiver is not ready.
    Answer,
    /// A packet before it was lost: a NAK for a PSN sequence error.
    Nak,
    /// A NAK for another reason: the request is refused.
    Refusal,
    /// A congestion notification.
    Cnp,
}

/// A packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocePacket {
    /// The queue pair that it is for.
    pub qp: u32,
    /// Its sequence number.
    pub psn: u32,
    /// UDP source port, which chooses the path.
    pub source_port: u16,
    /// What it does.
    pub kind: Kind,
    /// It goes by one of many paths: packets of its connection overtake each other.
    pub is_multipath: bool,
}

/// What a packet is to flow analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// Not RoCEv2.
    Other,
    /// RoCEv2 that ends inside of what it has to say.
    Cut,
    /// RoCEv2 of no connection: datagrams.
    Unconnected,
    /// A message of connection management.
    Setup(&'a [u8]),
    /// A packet of a connection.
    Packet(RocePacket),
}

/// What the upper three bits of an opcode name.
mod transport {
    pub(super) const RELIABLE: u8 = 0;
    pub(super) const UNRELIABLE: u8 = 1;
    pub(super) const EXTENDED_RELIABLE: u8 = 5;
    pub(super) const MULTIPATH: u8 = 6;
}

/// UD SEND ONLY.
const DATAGRAM: u8 = 0x64;
/// Congestion notification packet.
const CNP: u8 = 0x81;
/// The queue pair of connection management.
const MANAGEMENT: u32 = 1;
/// Acknowledgement request, in the byte before the PSN.
const ACK_REQUEST: u8 = 0x80;

/// The low five bits of an opcode.
mod operation {
    pub(super) const READ_REQUEST: u8 = 0x0c;
    pub(super) const READ_FIRST: u8 = 0x0d;
    pub(super) const READ_MIDDLE: u8 = 0x0e;
    pub(super) const READ_LAST: u8 = 0x0f;
    pub(super) const READ_ONLY: u8 = 0x10;
    pub(super) const ACKNOWLEDGE: u8 = 0x11;
    pub(super) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub(super) const COMPARE_SWAP: u8 = 0x13;
    pub(super) const FETCH_ADD: u8 = 0x14;
}

/// Reads the packet in a frame.
#[inline]
pub fn read<'a>(frame: &'a [u8], parsed: &Parsed) -> Read<'a> {
    if parsed.protocol != protocol::UDP || parsed.transport == 0 {
        return Read::Other;
    }
    let upper = frame
        .get(usize::from(parsed.transport)..)
        .unwrap_or_default();
    let Some((header, roce)) = upper.split_first_chunk::<{ udp::HEADER_LEN }>() else {
        return Read::Other;
    };
    if header[2..4] != udp::ROCE_PORT.to_be_bytes() {
        return Read::Other;
    }
    let Some(bth) = roce.first_chunk::<{ Bth::LEN }>() else {
        return Read::Cut;
    };
    let number = |at: usize| u32::from_be_bytes([0, bth[at], bth[at + 1], bth[at + 2]]);
    let packet = |kind| {
        Read::Packet(RocePacket {
            qp: number(5),
            psn: number(9),
            source_port: u16::from_be_bytes([header[0], header[1]]),
            kind,
            is_multipath: bth[0] >> 5 == transport::MULTIPATH,
        })
    };
    match (bth[0], bth[0] >> 5) {
        (CNP, _) => packet(Kind::Cnp),
        (
            opcode,
            transport::RELIABLE
            | transport::UNRELIABLE
            | transport::EXTENDED_RELIABLE
            | transport::MULTIPATH,
        ) => kind(opcode, bth[8] & ACK_REQUEST != 0, roce).map_or(Read::Cut, packet),
        (DATAGRAM, _) if number(5) == MANAGEMENT => {
            let at = Bth::LEN + Deth::LEN;
            let message = roce.get(at..at + cm::MAD_LEN);
            message.map_or(Read::Cut, Read::Setup)
        }
        _ => Read::Unconnected,
    }
}

/// What the packet whose BTH begins `roce` does; `None` if it ends too early to tell.
#[inline]
fn kind(opcode: u8, asks: bool, roce: &[u8]) -> Option<Kind> {
    Some(match opcode & 0x1f {
        operation::ACKNOWLEDGE => return acknowledgement(opcode, roce),
        operation::READ_FIRST | operation::READ_ONLY | operation::ATOMIC_ACKNOWLEDGE => {
            Kind::Acknowledge
        }
        operation::READ_MIDDLE | operation::READ_LAST => Kind::Answer,
        operation::READ_REQUEST | operation::COMPARE_SWAP | operation::FETCH_ADD => {
            Kind::Request { prompt: true }
        }
        _ => Kind::Request { prompt: asks },
    })
}

/// What an acknowledgement says in its AETH.
fn acknowledgement(opcode: u8, roce: &[u8]) -> Option<Kind> {
    let mut at = Bth::LEN;
    if opcode >> 5 == transport::MULTIPATH {
        at += Mpeh::LEN;
        at += Extension::announced_len(roce.get(at..)?);
    }
    let aeth: &[u8] = roce.get(at..at + Aeth::LEN)?;
    Some(match (aeth[0] >> 5, aeth[0] & 0x1f) {
        (0, _) => Kind::Acknowledge,
        (3, 0) => Kind::Nak,
        (3, _) => Kind::Refusal,
        _ => Kind::Answer,
    })
}
