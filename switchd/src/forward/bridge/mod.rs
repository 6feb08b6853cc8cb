//! \[4\] Forward: frames between the stations of a bridge (802.1Q clause 8.6), as the kernel's
//! bridge would forward them (SW-1).
//!
//! ```text
//!   port forwards? ─▶ VLAN of the frame ─▶ port of the destination
//!                     tag, or PVID         forwards, is a member, not isolated, another one
//!                     port is a member?
//! ```
//!
//! The steering program sends only frames here for which all of this holds but the rules between
//! two ports, and whose source is known at the port; the kernel gets the rest. A program that lags
//! behind may bring others: they are dropped and counted. Whether the source is known is not asked
//! again, so that nothing is lost while a station moves.

pub mod input;

use crate::drop::DropReason;
use crate::id::PortId;
use crate::packet::NO_PCP;
use crate::tables::Tables;
use crate::tables::bridge::{BridgePort, Bridging, Station};
use common::wire::vlan::{TAG_LEN, Tci, is_tag};
use common::wire::{csig, ethernet};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridged {
    /// The port it leaves by.
    pub egress: PortId,
    /// Its VLAN; 0 in a bridge that has none.
    pub vlan: u16,
    /// Whether it has a tag that its bridge looks at, and whether that has a VLAN.
    pub tagged: Tagged,
    /// Whether it leaves without a tag.
    pub leaves_untagged: bool,
    /// Priority code point of its outermost tag, or [`NO_PCP`].
    pub pcp: u8,
}

/// The tag with which a frame came, if its bridge looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagged {
    /// None.
    No,
    /// One with a priority only (802.1Q clause 6.9.1).
    Priority,
    /// One with a VLAN.
    Vlan,
}

/// A frame as a bridge sees it.
#[derive(Clone, Copy, Debug)]
struct Header {
    destination: [u8; 6],
    source: [u8; 6],
    /// EtherType and control information of its outermost tag, if it has one.
    tag: Option<(u16, Tci)>,
}

impl Header {
    #[inline]
    fn of(frame: &[u8]) -> Result<Self, DropReason> {
        let header = frame.first_chunk::<{ ethernet::HEADER_LEN }>();
        let header = header.ok_or(DropReason::Truncated)?;
        let mac = |at: usize| std::array::from_fn(|octet| header[at + octet]);
        let kind = u16::from_be_bytes([header[12], header[13]]);
        let tag = if is_tag(kind) {
            let control = frame.get(14..16).ok_or(DropReason::Truncated)?;
            Some((kind, Tci(u16::from_be_bytes([control[0], control[1]]))))
        } else {
            None
        };
        Ok(Self {
            destination: mac(0),
            source: mac(6),
            tag,
        })
    }
}

/// The VLAN of a frame that arrives at a port, and the tag that said so.
#[inline]
fn vlan_of(own: &BridgePort, header: &Header) -> Result<(u16, Tagged), DropReason> {
    let Some(kind) = own.tag else {
        return Ok((0, Tagged::No));
    };
    let (vlan, tagged) = match header.tag {
        Some((found, control)) if found == kind => match control.vid() {
            0 => (own.pvid, Tagged::Priority),
            vlan => (Some(vlan), Tagged::Vlan),
        },
        _ => (own.pvid, Tagged::No),
    };
    let vlan = vlan.filter(|vlan| own.members.contains(*vlan));
    vlan.map(|vlan| (vlan, tagged))
        .ok_or(DropReason::UnknownVlan)
}

/// Decides where a frame goes that arrived at `ingress`, given its first bytes and its length, and
/// notes that its source sent it.
///
/// # Errors
/// Why it goes nowhere.
#[inline]
pub fn decide(
    tables: &Tables,
    ingress: PortId,
    (frame, len): (&[u8], usize),
) -> Result<Bridged, DropReason> {
    let bridging = &*tables.bridging;
    let own = bridging.port(ingress).ok_or(DropReason::StationUnknown)?;
    if !own.forwards {
        return Err(DropReason::BridgeBlocked);
    }
    let header = Header::of(frame)?;
    if header.destination[0] & 1 != 0 {
        return Err(DropReason::Multicast);
    }
    let (vlan, tagged) = vlan_of(own, &header)?;
    let find = |mac| bridging.fdb.get(own.bridge, vlan, mac);
    let to = find(header.destination).ok_or(DropReason::StationUnknown)?;
    if let Some(from) = find(header.source).filter(|from| from.port == ingress) {
        bridging.used.mark(from.number);
    }
    let out = way_out(bridging, own, (ingress, to), vlan)?;
    let leaves_untagged = out.tag.is_some() && out.untagged.contains(vlan);
    let bridged = Bridged {
        egress: to.port,
        vlan,
        tagged,
        leaves_untagged,
        pcp: header.tag.map_or(NO_PCP, |(_, control)| control.pcp()),
    };
    let counted = if header.tag.is_some() {
        len - TAG_LEN
    } else {
        len
    };
    fits(tables, &bridged, counted, || {
        path_tag_len(tables, ingress, frame)
    })?;
    Ok(bridged)
}

/// The port by which a frame leaves, if it may pass from the one to the other.
#[inline]
fn way_out<'a>(
    bridging: &'a Bridging,
    own: &BridgePort,
    (ingress, to): (PortId, Station),
    vlan: u16,
) -> Result<&'a BridgePort, DropReason> {
    if to.port == ingress && !own.has_hairpin {
        return Err(DropReason::SamePort);
    }
    let out = bridging.port(to.port);
    let out = out.filter(|out| out.bridge == own.bridge);
    let out = out.ok_or(DropReason::StationUnknown)?;
    if !out.forwards {
        return Err(DropReason::BridgeBlocked);
    }
    if own.is_isolated && out.is_isolated {
        return Err(DropReason::PortIsolated);
    }
    if out.tag.is_some() && !out.members.contains(vlan) {
        return Err(DropReason::VlanNotMember);
    }
    Ok(out)
}

/// Bytes of the tag in the frame that tells of its path.
#[cold]
fn path_tag_len(tables: &Tables, ingress: PortId, frame: &[u8]) -> usize {
    let reading = tables.reading(ingress);
    let tagged = reading.and_then(|reading| csig::walk(frame, reading.tpids).ok());
    let kind = tagged.and_then(|tagged| tagged.signal);
    kind.map_or(0, |(kind, _)| kind.len())
}

/// Whether the egress port is up and takes a frame of this length, of which `removable` bytes may
/// be taken off there. As in the kernel, which tells nobody of one that is too long, a tag more
/// than the MTU and the link header is no harm, and the outermost one is not counted.
#[inline]
fn fits(
    tables: &Tables,
    bridged: &Bridged,
    counted: usize,
    removable: impl Fn() -> usize,
) -> Result<(), DropReason> {
    let entry = tables.port(bridged.egress).filter(|entry| entry.up);
    let entry = entry.ok_or(DropReason::EgressDown)?;
    let most = usize::from(entry.mtu) + ethernet::HEADER_LEN + TAG_LEN;
    if counted > most && counted - removable() > most {
        return Err(DropReason::FrameTooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
