//! Which flows their host spreads over the paths itself.
//!
//! Such a host changes the entropy value, which is part of the hash, to move to another path. It
//! learns from the answers how congested each path is. This works only if a value keeps its path.
//! So these flows always go by their bucket (UET 3.6.16, MPR 8.3), never by a choice of the switch.
//!
//! A host that sends a connection on one sub-path at a time can say in the Scheduling Tag that it
//! leaves the way to switches. Where that is wanted (SW-6), tag and flags of such packets are read.

use crate::packet::Parsed;
use crate::tables::dlb::HostSprayed;
use common::wire::ip::protocol;
use common::wire::roce::{Bth, DataFlags, Hint, Mpeh, Opcode, Operation};
use common::wire::udp;

/// Who chooses the way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steered {
    /// Its host, by the entropy value (SW-5).
    ByHost,
    /// The switch, and the sender tells nothing.
    BySwitch,
    /// The switch, with the advice of the sender (SW-6).
    Advised(Advice),
}

/// What the sender of a packet with an MPEH tells the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it tells of the traffic.
    pub hint: Hint,
    /// It has left another sub-path with this packet (flag S).
    pub switched: bool,
}

/// Who chooses the way of a packet.
///
/// Of a fragment only the DSCP counts: the later ones have no ports, and all fragments of a packet
/// have to be treated alike.
#[inline]
pub fn steered(frame: &[u8], parsed: &Parsed, spray: &HostSprayed) -> Steered {
    if spray.dscp >> (parsed.dscp & 63) & 1 != 0 {
        return Steered::ByHost;
    }
    if parsed.protocol != protocol::UDP || parsed.transport == 0 || parsed.is_fragment {
        return Steered::BySwitch;
    }
    // Up to the end of the IP packet: padding of a short frame says nothing.
    let end = usize::from(parsed.network) + usize::from(parsed.ip_len);
    let start = usize::from(parsed.transport);
    let Some(datagram) = frame.get(start..end.min(frame.len())) else {
        return Steered::BySwitch;
    };
    let Some(port) = datagram.get(udp::field::DST_PORT..udp::field::DST_PORT + 2) else {
        return Steered::BySwitch;
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    if Some(port) == spray.udp_port {
        return Steered::ByHost;
    }
    if port != udp::ROCE_PORT || !has_mpeh(datagram) {
        return Steered::BySwitch;
    }
    let advised = spray.reads_hints.then(|| advice(datagram)).flatten();
    advised.map_or(Steered::ByHost, Steered::Advised)
}

/// The advice in a datagram that is long enough for an MPEH, if its sender leaves the way to
/// switches. The tag of an acknowledgement is none.
#[inline]
fn advice(datagram: &[u8]) -> Option<Advice> {
    let (bth, mpeh) = datagram
        .get(udp::HEADER_LEN..)?
        .split_at_checked(Bth::LEN)?;
    let mpeh = Mpeh::parse(mpeh).ok()?;
    let acknowledges = bth[0] == Opcode::Multipath(Operation::Acknowledge).byte();
    let hint = Hint::of(mpeh.tag);
    (hint.movable && !acknowledges).then(|| Advice {
        hint,
        switched: mpeh.has(DataFlags::PATH_SWITCH),
    })
}

/// Whether a RoCEv2 datagram is long enough for an MPEH and its BTH announces one.
#[inline]
fn has_mpeh(datagram: &[u8]) -> bool {
    datagram.len() >= udp::HEADER_LEN + Bth::LEN + Mpeh::LEN
        && Opcode::announces_mpeh(datagram[udp::HEADER_LEN])
}

#[cfg(test)]
mod tests;
