//! Bytes of bridges: what a bridge is set to, its ports with their VLANs, the stations that it
//! knows (linux/if_bridge.h, linux/if_link.h, linux/neighbour.h).

use super::attribute::{Attribute, DecodeError, attributes, u8_at, u16_at, u32_at};
use super::types::{Bridge, BridgePort, FdbEntry, FdbKey, FdbKind, PortVlan, StpState, VlanState};
use crate::time::Span;

/// The largest VLAN identifier (802.1Q clause 9.6).
const VLAN_MAX: u16 = 4094;

/// IFLA_BR_*.
pub(super) fn bridge_link(data: &[u8]) -> Result<Bridge, DecodeError> {
    const MST_ENABLE: u32 = 1 << 2;
    let mut bridge = Bridge {
        filters_vlans: false,
        is_service: false,
        ageing: Span::from_secs(300),
        has_mst: false,
    };
    for attribute in attributes(data) {
        let attribute = attribute?;
        match attribute.kind {
            // In hundredths of a second (USER_HZ).
            4 => bridge.ageing = Span::from_millis(u64::from(attribute.u32()?) * 10),
            7 => bridge.filters_vlans = u8_at(attribute.value, 0)? != 0,
            // Big-endian, unlike the rest.
            8 => bridge.is_service = attribute.value == [0x88, 0xa8],
            // struct br_boolopt_multi begins with the values.
            46 => bridge.has_mst = u32_at(attribute.value, 0)? & MST_ENABLE != 0,
            _ => {}
        }
    }
    Ok(bridge)
}

/// struct ifinfomsg of the family AF_BRIDGE. `exists`: it tells of a port that there is.
pub(super) fn bridge_port(body: &[u8], exists: bool) -> Result<Option<BridgePort>, DecodeError> {
    let mut port = BridgePort {
        ifindex: u32_at(body, 4)?,
        ..BridgePort::default()
    };
    let mut state = None;
    let mut is_of_device = false;
    for attribute in attributes(body.get(16..).ok_or(DecodeError::Short)?) {
        let attribute = attribute?;
        match attribute.kind {
            10 => port.bridge = attribute.u32()?,
            12 => state = port_attributes(attribute.value, &mut port)?,
            26 => is_of_device = port_vlans(attribute.value, &mut port)?,
            _ => {}
        }
    }
    // What a network card says of its own switch is not about a bridge of the kernel.
    if is_of_device || port.bridge == 0 {
        return Ok(None);
    }
    if exists && port.bridge != port.ifindex {
        let Some(state) = state else { return Ok(None) };
        port.state = state;
    }
    Ok(Some(port))
}

/// IFLA_BRPORT_* in IFLA_PROTINFO; the state, if it is there.
fn port_attributes(bytes: &[u8], port: &mut BridgePort) -> Result<Option<StpState>, DecodeError> {
    let mut state = None;
    for attribute in attributes(bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => state = Some(stp_state(&attribute)?),
            4 => port.has_hairpin = is_set(&attribute)?,
            29 => port.has_tunnels = is_set(&attribute)?,
            33 => port.is_isolated = is_set(&attribute)?,
            _ => {}
        }
    }
    Ok(state)
}

fn stp_state(attribute: &Attribute<'_>) -> Result<StpState, DecodeError> {
    let number = u8_at(attribute.value, 0)?;
    let wrong = DecodeError::Value("state of a port", u32::from(number));
    StpState::from_number(number).ok_or(wrong)
}

fn is_set(attribute: &Attribute<'_>) -> Result<bool, DecodeError> {
    Ok(u8_at(attribute.value, 0)? != 0)
}

/// IFLA_BRIDGE_* in IFLA_AF_SPEC: the VLANs. Returns whether a device says it of itself
/// (BRIDGE_FLAGS_SELF).
fn port_vlans(bytes: &[u8], port: &mut BridgePort) -> Result<bool, DecodeError> {
    const SELF: u16 = 2;
    const PVID: u16 = 2;
    const UNTAGGED: u16 = 4;
    const RANGE_BEGIN: u16 = 8;
    const RANGE_END: u16 = 16;
    let mut is_of_device = false;
    let mut begin = None;
    for attribute in attributes(bytes) {
        let attribute = attribute?;
        match attribute.kind {
            0 => is_of_device = u16_at(attribute.value, 0)? & SELF != 0,
            // struct bridge_vlan_info.
            2 => {
                let (flags, id) = (u16_at(attribute.value, 0)?, u16_at(attribute.value, 2)?);
                if flags & RANGE_BEGIN != 0 {
                    begin = Some(id);
                    continue;
                }
                let first = begin
                    .take()
                    .filter(|_| flags & RANGE_END != 0)
                    .unwrap_or(id);
                if first == 0 || first > id || id > VLAN_MAX {
                    return Err(DecodeError::Value("VLAN", u32::from(id)));
                }
                port.vlans.push(PortVlan {
                    first,
                    last: id,
                    is_pvid: flags & PVID != 0,
                    is_untagged: flags & UNTAGGED != 0,
                });
            }
            _ => {}
        }
    }
    port.vlans.sort_unstable();
    Ok(is_of_device)
}

/// struct br_vlan_msg and BRIDGE_VLANDB_ENTRY_*: the interface, and the states of its VLANs.
pub(super) fn vlan_states(body: &[u8]) -> Result<(u32, Vec<VlanState>), DecodeError> {
    let ifindex = u32_at(body, 4)?;
    let mut states = Vec::new();
    for entry in attributes(body.get(8..).ok_or(DecodeError::Short)?) {
        let entry = entry?;
        // Others are options of a VLAN in all of the bridge.
        if entry.kind != 1 {
            continue;
        }
        // Linux before 5.7 has no states.
        let (mut first, mut last, mut state) = (None, None, StpState::Forwarding);
        for attribute in attributes(entry.value) {
            let attribute = attribute?;
            match attribute.kind {
                // struct bridge_vlan_info.
                1 => first = Some(u16_at(attribute.value, 2)?),
                2 => last = Some(u16_at(attribute.value, 0)?),
                3 => state = stp_state(&attribute)?,
                _ => {}
            }
        }
        let first = first.ok_or(DecodeError::Missing(1))?;
        let last = last.unwrap_or(first);
        if first == 0 || first > last || last > VLAN_MAX {
            return Err(DecodeError::Value("VLAN", u32::from(last)));
        }
        states.push(VlanState { first, last, state });
    }
    Ok((ifindex, states))
}

/// struct ndmsg of the family AF_BRIDGE. What devices filter by, and what tunnels know of their
/// peers, is not of a bridge.
pub(super) fn fdb_entry(body: &[u8]) -> Result<Option<FdbEntry>, DecodeError> {
    const NUD_NOARP: u16 = 0x40;
    const NUD_PERMANENT: u16 = 0x80;
    const NTF_SELF: u8 = 2;
    const NTF_EXT_LEARNED: u8 = 16;
    const NTF_EXT_LOCKED: u32 = 2;
    let ifindex = u32_at(body, 4)?;
    let (state, flags) = (u16_at(body, 8)?, u8_at(body, 10)?);
    let (mut mac, mut vlan, mut bridge, mut more) = (None, 0, None, 0);
    for attribute in attributes(body.get(12..).ok_or(DecodeError::Short)?) {
        let attribute = attribute?;
        match attribute.kind {
            2 => mac = attribute.mac(),
            5 => vlan = u16_at(attribute.value, 0)?,
            9 => bridge = Some(attribute.u32()?),
            15 => more = attribute.u32()?,
            _ => {}
        }
    }
    let (Some(mac), Some(bridge)) = (mac, bridge) else {
        return Ok(None);
    };
    if flags & NTF_SELF != 0 {
        return Ok(None);
    }
    let kind = if more & NTF_EXT_LOCKED != 0 {
        FdbKind::Locked
    } else if state & NUD_PERMANENT != 0 {
        FdbKind::Local
    } else if state & NUD_NOARP != 0 {
        FdbKind::Static
    } else if flags & NTF_EXT_LEARNED != 0 {
        FdbKind::External
    } else {
        FdbKind::Learned
    };
    Ok(Some(FdbEntry {
        key: FdbKey { bridge, vlan, mac },
        ifindex,
        kind,
    }))
}

#[cfg(test)]
mod tests;
