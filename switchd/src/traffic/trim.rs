//! Packet trimming: of a packet that would be dropped the headers go on, and tell the receiver what
//! was lost.
//!
//! ```text
//!   link header │ IP header, extensions │ UDP │ BTH … │ payload …………………………… │ ICRC │ padding
//!   ◀───────────────────────── size ─────────────────────────▶ the rest is cut off
//!                 DSCP, length, checksum
//!                 are made right
//! ```
//!
//! What changes besides the end is in the IP header: its length, the IPv4 header checksum, and the
//! DSCP, which becomes the trimmed code point. The ECN bits stay. The UDP length, the checksum of the
//! transport and the ICRC belong to the sender: no router corrects them, and the receiver learns from
//! the UDP length how long the packet was. A tag keeps its priority; the class of the trimmed packet
//! follows from its new DSCP.
//!
//! A packet is trimmed once: a trimmed code point is never trimmable ([`TrimPolicy::check`]), so that
//! a trimmed packet which finds no room is dropped. Ports towards hosts may have a policy of their
//! own, with the trimmed code point of the last hop.
//!
//! Not trimmed, though their code point is trimmable:
//!
//! - Fragments, the first one included. A later one has no transport header that would tell what was
//!   lost, and a first one that is cut leaves a hole in a datagram that then can never be reassembled,
//!   while the receiver keeps the others until its timer runs out (RFC 1122 §3.3.2).
//! - Packets whose headers, IPv4 options and IPv6 extension headers included, do not fit in the size:
//!   without their transport header they tell nothing.
//! - Packets whose chain of extension headers is not understood.

use common::wire::ethernet;
use common::wire::ip::{protocol, v4, v6};
use common::wire::roce::{Bth, Headers, Mpeh, Opcode, Reth};
use common::wire::{checksum, udp, vlan};
use common::xdp::frame::Frame;

/// Differentiated services code points (RFC 2474): six bits.
pub const DSCPS: usize = 64;

/// Bytes that are kept when nothing else is configured, as in SONiC and SAI
/// (`SAI_SWITCH_ATTR_PACKET_TRIM_SIZE`). It holds [`SIZE_MIN`].
pub const SIZE_DEFAULT: u16 = 128;

/// Least size: the headers of the longest data packet, a WRITE ONLY with immediate data (4 bytes) and
/// MPEH, over IPv6 in a frame with one tag. With less, trimming would silently do nothing.
pub const SIZE_MIN: u16 = 106;

/// Largest size: the longest path MTU of RoCE. With more, nothing would ever be cut.
pub const SIZE_MAX: u16 = 4096;

const _: () = assert!(
    SIZE_MIN as usize
        == ethernet::HEADER_LEN
            + vlan::TAG_LEN
            + v6::HEADER_LEN
            + udp::HEADER_LEN
            + Bth::LEN
            + Mpeh::LEN
            + Reth::LEN
            + 4
);
const _: () = assert!(SIZE_MIN <= SIZE_DEFAULT && SIZE_DEFAULT <= SIZE_MAX);
const _: () = assert!(SIZE_MIN as usize >= ethernet::MIN_LEN);

/// What a receiver needs of an IP packet to know what was lost: the headers of Ultra Ethernet's
/// transport right over IP, which are no shorter than the port numbers of any other transport.
const OVER_IP: usize = 20;

/// The same for UDP, with its header.
const OVER_UDP: usize = 24;

/// Which packets are trimmed, to what size, and what they become. Code points are the operator's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimPolicy {
    /// Bytes of the frame that are kept, link header and tags included, check sequence not:
    /// [`SIZE_MIN`] to [`SIZE_MAX`].
    pub size: u16,
    /// Bit n is set when packets of DSCP n may be trimmed.
    pub trimmable: u64,
    /// Bit n is set when DSCP n is for retransmissions, which are trimmed later than the others; all
    /// of them are trimmable too.
    pub rtx: u64,
    /// Bit n is set when DSCP n is for control packets (ACK, CNP): never trimmable, never trimmed.
    pub control: u64,
    /// What each trimmable DSCP becomes; several may become the same. The others are not looked at.
    pub trimmed_of: [u8; DSCPS],
}

/// Why a [`TrimPolicy`] makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrimPolicyError {
    /// The size keeps too little or too much.
    #[error("a trimmed frame of {size} bytes; {SIZE_MIN} to {SIZE_MAX} are possible")]
    Size {
        /// The size.
        size: u16,
    },
    /// A control packet would be trimmed.
    #[error("DSCP {dscp} is both trimmable and for control packets")]
    TrimmableControl {
        /// The code point.
        dscp: u8,
    },
    /// A threshold is named for packets that are not trimmed at all.
    #[error("DSCP {dscp} is for trimmable retransmissions, but not trimmable")]
    Retransmission {
        /// The code point.
        dscp: u8,
    },
    /// There is no such code point.
    #[error("trimmable DSCP {dscp} becomes {trimmed}; code points are 0 to 63")]
    Range {
        /// The trimmable code point.
        dscp: u8,
        /// What it would become.
        trimmed: u8,
    },
    /// A packet could be trimmed again.
    #[error("trimmable DSCP {dscp} becomes {trimmed}, which is trimmable itself")]
    TrimmedTrimmable {
        /// The trimmable code point.
        dscp: u8,
        /// What it would become.
        trimmed: u8,
    },
    /// A trimmed packet could not be told from a control packet.
    #[error("trimmable DSCP {dscp} becomes {trimmed}, which is for control packets")]
    TrimmedControl {
        /// The trimmable code point.
        dscp: u8,
        /// What it would become.
        trimmed: u8,
    },
}

/// A packet after it was trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes of the frame.
    pub len: usize,
    /// Its DSCP, from which its class follows.
    pub dscp: u8,
    /// Whether something of the IP packet was cut off; one that fits in the size changes its DSCP only.
    pub shortened: bool,
}

impl Default for TrimPolicy {
    /// Nothing is trimmed.
    fn default() -> Self {
        Self {
            size: SIZE_DEFAULT,
            trimmable: 0,
            rtx: 0,
            control: 0,
            trimmed_of: [0; DSCPS],
        }
    }
}

impl TrimPolicy {
    /// Refuses a policy that would trim a packet twice, or confuse trimmed packets with others.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), TrimPolicyError> {
        if !(SIZE_MIN..=SIZE_MAX).contains(&self.size) {
            return Err(TrimPolicyError::Size { size: self.size });
        }
        if let Some(dscp) = code_points(self.trimmable & self.control).next() {
            return Err(TrimPolicyError::TrimmableControl { dscp });
        }
        if let Some(dscp) = code_points(self.rtx & !self.trimmable).next() {
            return Err(TrimPolicyError::Retransmission { dscp });
        }
        code_points(self.trimmable).try_for_each(|dscp| {
            let trimmed = self.trimmed_of[usize::from(dscp)];
            if usize::from(trimmed) >= DSCPS {
                return Err(TrimPolicyError::Range { dscp, trimmed });
            }
            if has(self.trimmable, trimmed) {
                return Err(TrimPolicyError::TrimmedTrimmable { dscp, trimmed });
            }
            if has(self.control, trimmed) {
                return Err(TrimPolicyError::TrimmedControl { dscp, trimmed });
            }
            Ok(())
        })
    }

    /// The trimmed code points: bit n is set when packets of DSCP n were trimmed, here or before.
    pub fn trimmed(&self) -> u64 {
        code_points(self.trimmable)
            .map(|dscp| self.trimmed_of[usize::from(dscp)] & 63)
            .fold(0, |mask, trimmed| mask | 1 << trimmed)
    }

    /// Bytes of its queue above which a packet of this DSCP is trimmed, `None` if it is not trimmable: `bytes` for most, `rtx_bytes`
    /// for retransmissions.
    #[inline]
    pub fn threshold(&self, dscp: u8, bytes: u32, rtx_bytes: u32) -> Option<u64> {
        let bytes = if has(self.rtx, dscp) {
            rtx_bytes
        } else {
            bytes
        };
        has(self.trimmable, dscp).then_some(u64::from(bytes))
    }

    /// What packets of this DSCP become, `None` if they are not trimmable.
    #[inline]
    fn becomes(&self, dscp: u8) -> Option<u8> {
        has(self.trimmable, dscp).then(|| self.trimmed_of[usize::from(dscp & 63)] & 63)
    }
}

#[inline]
const fn has(mask: u64, dscp: u8) -> bool {
    mask & 1 << (dscp & 63) != 0
}

/// The code points of a mask.
fn code_points(mask: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |dscp| has(mask, *dscp))
}

/// Trims the packet whose IP header begins at `network`: cuts the frame, corrects the header and
/// gives it the trimmed DSCP. `None`, and nothing changed, if the packet is not to be trimmed: then
/// it is to be dropped.
///
/// The frame never becomes longer. Padding that the packet does not need is cut off too.
#[inline]
pub fn trim(frame: &mut Frame, network: u16, policy: &TrimPolicy) -> Option<Trimmed> {
    let network = usize::from(network);
    let room = usize::from(policy.size).checked_sub(network)?;
    let ip = frame.bytes_mut().get_mut(network..)?;
    let cut = match ip.first()? >> 4 {
        4 => trim_v4(ip, room, policy)?,
        6 => trim_v6(ip, room, policy)?,
        _ => return None,
    };
    // What pads a frame to the least length of Ethernet stays.
    frame.truncate((network + cut.kept).max(ethernet::MIN_LEN));
    Some(Trimmed {
        len: frame.len(),
        dscp: cut.dscp,
        shortened: cut.shortened,
    })
}

/// What became of an IP packet.
struct Cut {
    /// Bytes of the IP packet.
    kept: usize,
    dscp: u8,
    shortened: bool,
}

impl Cut {
    /// An IP packet of `total` bytes that ends within `room`, if the first `headers` of them do.
    #[inline]
    fn new(total: usize, headers: usize, room: usize, dscp: u8) -> Option<Self> {
        let kept = total.min(room);
        (headers.min(total) <= kept).then_some(Self {
            kept,
            dscp,
            shortened: kept < total,
        })
    }
}

#[inline]
fn trim_v4(ip: &mut [u8], room: usize, policy: &TrimPolicy) -> Option<Cut> {
    let mut packet = v4::Packet::new_checked(&mut *ip).ok()?;
    let class = packet.traffic_class();
    let dscp = policy.becomes(class >> 2)?;
    if packet.is_fragment() {
        return None;
    }
    let total = packet.total_len();
    let headers = packet.header_len() + transport_len(packet.protocol(), packet.payload());
    let cut = Cut::new(total, headers, room, dscp)?;
    let (old, new) = (u16::try_from(total).ok()?, u16::try_from(cut.kept).ok()?);
    packet.set_traffic_class(dscp << 2 | class & 3);
    let sum = checksum::update(packet.checksum(), old, new);
    ip[v4::field::TOTAL_LEN..][..2].copy_from_slice(&new.to_be_bytes());
    ip[v4::field::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    Some(cut)
}

#[inline]
fn trim_v6(ip: &mut [u8], room: usize, policy: &TrimPolicy) -> Option<Cut> {
    let mut packet = v6::Packet::new_checked(&mut *ip).ok()?;
    let class = packet.traffic_class();
    let dscp = policy.becomes(class >> 2)?;
    let upper = packet.upper().ok()?;
    if upper.fragment.is_some() {
        return None;
    }
    let total = v6::HEADER_LEN + packet.payload_len();
    let payload = &packet.payload()[upper.at - v6::HEADER_LEN..];
    let headers = upper.at + transport_len(upper.protocol, payload);
    let cut = Cut::new(total, headers, room, dscp)?;
    let len = u16::try_from(cut.kept - v6::HEADER_LEN).ok()?;
    packet.set_traffic_class(dscp << 2 | class & 3);
    ip[v6::field::PAYLOAD_LEN..][..2].copy_from_slice(&len.to_be_bytes());
    Some(cut)
}

/// Bytes of the headers of a transport that begin `bytes`, which may be fewer.
#[inline]
fn transport_len(number: u8, bytes: &[u8]) -> usize {
    match number {
        protocol::UDP => match bytes
            .get(udp::field::DST_PORT..)
            .and_then(<[u8]>::first_chunk)
        {
            Some(port) if u16::from_be_bytes(*port) == udp::ROCE_PORT => {
                udp::HEADER_LEN + roce_len(bytes)
            }
            _ => OVER_UDP,
        },
        // The data offset, in words (RFC 9293 §3.1).
        protocol::TCP => OVER_IP.max(bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4)),
        _ => OVER_IP,
    }
}

/// Bytes of the transport headers of RoCEv2: what its opcode announces, or what all opcodes have.
#[inline]
fn roce_len(datagram: &[u8]) -> usize {
    let Some(&byte) = datagram.get(udp::HEADER_LEN) else {
        return Bth::LEN;
    };
    match Opcode::from_byte(byte) {
        Some(opcode) => Headers::len_of(opcode),
        None if Opcode::announces_mpeh(byte) => Bth::LEN + Mpeh::LEN,
        None => Bth::LEN,
    }
}

#[cfg(test)]
mod tests;
