//! Whose a frame is that arrives at a port with more than one interface: the port's own, to be
//! bridged, or that of an interface on the port or its bridge (SW-1).

use super::{Header, Tagged, vlan_of};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::packet::NO_PCP;
use crate::tables::Tables;
use crate::tables::interfaces::{InterfaceId, PortInterfaces, tag_key};
use common::wire::ethernet;
use common::wire::vlan::{TAG_LEN, is_tag};

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
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
pub fn input_interface(
    tables: &Tables,
    ingress: PortId,
    frame: &[u8],
) -> Result<Input, DropReason> {
    let on_port = tables.interfaces.on_port(ingress);
    let to_interfaces = on_port.filter(|on_port| frame.starts_with(&on_port.mac));
    let Some(own) = tables.bridging.port(ingress) else {
        return Ok(to_interfaces.map_or(Input::Port, |on_port| of_tag(on_port, frame)));
    };
    let Some(on_port) = to_interfaces else {
        return Ok(Input::Bridge);
    };
    let header = Header::of(frame)?;
    let (vlan, tagged) = vlan_of(own, &header)?;
    // The kernel has what is for another VLAN of the bridge.
    let id = on_port.find(u32::from(vlan)).ok_or(DropReason::Punted)?;
    let fdb = &tables.bridging.fdb;
    let from = fdb.get(own.bridge, vlan, header.source);
    if let Some(from) = from.filter(|from| from.port == ingress) {
        tables.bridging.used.mark(from.number);
    }
    let tag = header.tag.filter(|_| tagged != Tagged::No);
    Ok(Input::Interface {
        id,
        has_tag: tag.is_some(),
        pcp: tag.map_or(NO_PCP, |(_, control)| control.pcp()),
    })
}

/// The same at a port that belongs to no bridge: what has the tag of an interface is its.
fn of_tag(on_port: &PortInterfaces, frame: &[u8]) -> Input {
    let tag = Header::of(frame).ok().and_then(|header| header.tag);
    let found = tag.and_then(|(kind, control)| {
        let id = on_port.find(tag_key(kind, control.vid()))?;
        Some((id, control.pcp()))
    });
    found.map_or(Input::Port, |(id, pcp)| Input::Interface {
        id,
        has_tag: true,
        pcp,
    })
}

/// Bytes of the addresses and a tag, or of the EtherType and what follows: all that the answer of
/// [`input_interface`] follows from.
pub const HEAD: usize = ethernet::field::ETHERTYPE + TAG_LEN;
const _: () = assert!(HEAD == size_of::<[u64; 2]>());

/// Where the tag control information of the outermost tag is.
const CONTROL: usize = ethernet::field::ETHERTYPE + 2;

/// What was found out about a frame, for the frames behind it: a sender sends many in a row, of one
/// VLAN. It holds for frames of one port, and as long as the tables do.
#[derive(Clone, Copy, Debug)]
pub struct LastInput {
    /// The bits of the first bytes that the answer followed from.
    mask: [u64; 2],
    /// What they were.
    value: [u64; 2],
    input: Input,
}

impl LastInput {
    /// No frame was seen yet: none repeats it.
    pub const NONE: Self = Self {
        mask: [0; 2],
        value: [1; 2],
        input: Input::Bridge,
    };

    /// Remembers the answer for a frame that arrived at `ingress`. Nothing is remembered of one
    /// that is bridged: that depends on more than these bytes.
    #[inline]
    pub fn of(tables: &Tables, ingress: PortId, frame: &[u8], input: Input) -> Self {
        let head = match frame.first_chunk::<HEAD>() {
            Some(head) if input != Input::Bridge => *head,
            _ => return Self::NONE,
        };
        let mut mask = [0xff_u8; HEAD];
        if tables.bridging.port(ingress).is_none() {
            // No port outside of a bridge learns sources.
            mask[ethernet::field::SRC].fill(0);
        }
        let at = ethernet::field::ETHERTYPE;
        if is_tag(u16::from_be_bytes([head[at], head[at + 1]])) {
            // Each frame has a priority of its own.
            mask[CONTROL] = 0x0f;
        } else {
            mask[CONTROL..].fill(0);
        }
        let mask = words(&mask);
        let [first, second] = words(&head);
        let value = [first & mask[0], second & mask[1]];
        Self { mask, value, input }
    }

    /// The answer of [`input_interface`] for another frame, if it follows from that before.
    #[inline]
    pub fn repeated_by(&self, frame: &[u8]) -> Option<Input> {
        let head = frame.first_chunk::<HEAD>()?;
        let [first, second] = words(head);
        let others = first & self.mask[0] ^ self.value[0] | second & self.mask[1] ^ self.value[1];
        if others != 0 {
            return None;
        }
        Some(match self.input {
            Input::Interface { id, has_tag, .. } => Input::Interface {
                id,
                has_tag,
                pcp: if has_tag { head[CONTROL] >> 5 } else { NO_PCP },
            },
            other => other,
        })
    }
}

#[inline]
fn words(head: &[u8; HEAD]) -> [u64; 2] {
    let (first, rest) = head.split_at(size_of::<u64>());
    [first, rest].map(|half| half.try_into().map_or(0, u64::from_ne_bytes))
}
