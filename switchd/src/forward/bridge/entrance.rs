//! Whose a frame is that arrives at a port with more than one interface: the port's own, to be
//! bridged, or that of an interface on the port or its bridge (SW-1).

use super::{Header, Tagged, vlan_of};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::packet::NO_PCP;
use crate::tables::Tables;
use crate::tables::interfaces::{Doors, InterfaceId, tag_key};

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// It is routed as one of the port itself.
    Port,
    /// It is bridged.
    Bridge,
    /// It is routed as one of an interface.
    Interface {
        /// Which interface.
        id: InterfaceId,
        /// It has a tag, by which it was found or which has a priority only.
        has_tag: bool,
        /// Priority code point of that tag, or [`NO_PCP`].
        pcp: u8,
    },
}

/// Finds out whose a frame is that arrived at `ingress`. The source of one that is routed for a
/// bridge is noted, so that the bridge does not forget it.
///
/// # Errors
/// Why it is nobody's.
#[inline]
pub fn entrance(tables: &Tables, ingress: PortId, frame: &[u8]) -> Result<Entrance, DropReason> {
    let doors = tables.interfaces.doors(ingress);
    let to_doors = doors.filter(|doors| frame.starts_with(&doors.mac));
    let Some(own) = tables.bridging.port(ingress) else {
        return Ok(to_doors.map_or(Entrance::Port, |doors| on_port(doors, frame)));
    };
    let Some(doors) = to_doors else {
        return Ok(Entrance::Bridge);
    };
    let header = Header::of(frame)?;
    let (vlan, tagged) = vlan_of(own, &header)?;
    // The kernel has what is for another VLAN of the bridge.
    let id = doors.find(u32::from(vlan)).ok_or(DropReason::Punted)?;
    let fdb = &tables.bridging.fdb;
    let from = fdb.get(own.bridge, vlan, header.source);
    if let Some(from) = from.filter(|from| from.port == ingress) {
        tables.bridging.used.mark(from.number);
    }
    let tag = header.tag.filter(|_| tagged != Tagged::No);
    Ok(Entrance::Interface {
        id,
        has_tag: tag.is_some(),
        pcp: tag.map_or(NO_PCP, |(_, control)| control.pcp()),
    })
}

/// The same at a port that belongs to no bridge: what has the tag of an interface is its.
fn on_port(doors: &Doors, frame: &[u8]) -> Entrance {
    let tag = Header::of(frame).ok().and_then(|header| header.tag);
    let found = tag.and_then(|(kind, control)| {
        let id = doors.find(tag_key(kind, control.vid()))?;
        Some((id, control.pcp()))
    });
    found.map_or(Entrance::Port, |(id, pcp)| Entrance::Interface {
        id,
        has_tag: true,
        pcp,
    })
}
