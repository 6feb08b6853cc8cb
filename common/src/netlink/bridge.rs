//! Bytes of bridges: what a bridge is set to, its ports with their VLANs, the stations that it
//! knows (linux/if_bridge.h, linux/if_link.h, linux/neighbour.h).

use super::attribute::{Attribute, DecodeError, attributes, u8_at, u16_at, u32_at};
use super::types::{Bridge, BridgePort, FdbEntry, FdbKey, FdbKind, PortVlan, StpState};
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
            1 => {
                let number = u8_at(attribute.value, 0)?;
                let wrong = DecodeError::Value("state of a port", u32::from(number));
                state = Some(StpState::from_number(number).ok_or(wrong)?);
            }
            4 => port.has_hairpin = is_set(&attribute)?,
            29 => port.has_tunnels = is_set(&attribute)?,
            33 => port.is_isolated = is_set(&attribute)?,
            39 => port.is_locked = is_set(&attribute)?,
            _ => {}
        }
    }
    Ok(state)
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
mod tests {
    use super::*;

    /// Attributes: types and values.
    fn packed(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in attributes {
            bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn message(ifindex: u32, fixed: usize, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![7, 0, 0, 0];
        bytes.extend(ifindex.to_ne_bytes());
        bytes.resize(fixed, 0);
        bytes.extend(packed(attributes));
        bytes
    }

    fn vlan(flags: u16, id: u16) -> [u8; 4] {
        let ([a, b], [c, d]) = (flags.to_ne_bytes(), id.to_ne_bytes());
        [a, b, c, d]
    }

    /// SW-1: a port of a bridge with its flags and its VLANs, ranges among them.
    #[test]
    fn a_port_has_its_state_and_vlans() {
        let bridge = 20_u32.to_ne_bytes();
        let of_port = packed(&[(1, &[3]), (4, &[0]), (33, &[1]), (39, &[0])]);
        let (access, begin, end) = (vlan(2 | 4, 1), vlan(8, 10), vlan(16, 20));
        let of_vlans = packed(&[(2, &access), (2, &begin), (2, &end)]);
        let attributes: [(u16, &[u8]); 3] = [(10, &bridge), (12, &of_port), (26, &of_vlans)];
        let port = bridge_port(&message(5, 16, &attributes), true)
            .unwrap()
            .unwrap();
        let vlan = |first, last, is_access| PortVlan {
            first,
            last,
            is_pvid: is_access,
            is_untagged: is_access,
        };
        let expected = BridgePort {
            ifindex: 5,
            bridge: 20,
            state: StpState::Forwarding,
            is_isolated: true,
            vlans: vec![vlan(1, 1, true), vlan(10, 20, false)],
            ..BridgePort::default()
        };
        assert_eq!(port, expected);
        // The bridge itself has no state.
        let own = bridge_port(&message(20, 16, &attributes[..1]), true).unwrap();
        assert_eq!(own.map(|it| it.ifindex), Some(20));
        // A port that is gone needs none; one that exists does.
        let gone = message(5, 16, &attributes[..1]);
        assert!(bridge_port(&gone, false).unwrap().is_some());
        assert_eq!(bridge_port(&gone, true), Ok(None));
        // A card that tells of its own switch.
        let of_card = packed(&[(0, &2_u16.to_ne_bytes())]);
        let card: [(u16, &[u8]); 3] = [(10, &bridge), (12, &of_port), (26, &of_card)];
        assert_eq!(bridge_port(&message(5, 16, &card), true), Ok(None));
        let odd = packed(&[(1, &[9])]);
        let odd: [(u16, &[u8]); 2] = [(10, &bridge), (12, &odd)];
        assert!(bridge_port(&message(5, 16, &odd), true).is_err());
        assert_eq!(bridge_port(&[7; 12], true), Err(DecodeError::Short));
    }

    /// SW-1: entries of the database by kind; what devices filter by is none.
    #[test]
    fn stations_have_their_kind() {
        let (mac, bridge, five) = (
            [2, 0, 0, 0, 0, 9],
            20_u32.to_ne_bytes(),
            5_u16.to_ne_bytes(),
        );
        let of = |state: u16, flags: u8, more: u32| {
            let more = more.to_ne_bytes();
            let attributes: [(u16, &[u8]); 4] = [(2, &mac), (5, &five), (9, &bridge), (15, &more)];
            let mut body = message(7, 12, &attributes);
            body[8..10].copy_from_slice(&state.to_ne_bytes());
            body[10] = flags;
            fdb_entry(&body).unwrap()
        };
        let key = FdbKey {
            bridge: 20,
            vlan: 5,
            mac,
        };
        for (state, flags, more, kind) in [
            (0x02, 0, 0, FdbKind::Learned),
            (0x04, 0, 0, FdbKind::Learned),
            (0x40, 0, 0, FdbKind::Static),
            (0x80, 0, 0, FdbKind::Local),
            (0x02, 16, 0, FdbKind::External),
            (0x02, 0, 2, FdbKind::Locked),
        ] {
            let expected = FdbEntry {
                key,
                ifindex: 7,
                kind,
            };
            assert_eq!(of(state, flags, more), Some(expected));
        }
        assert_eq!(of(0x80, 2, 0), None, "of a device");
        let without = message(7, 12, &[(2, &mac)]);
        assert_eq!(fdb_entry(&without), Ok(None), "of no bridge");
    }

    #[test]
    fn a_bridge_has_its_settings() {
        let ageing = 3000_u32.to_ne_bytes();
        let options = [4_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat();
        let data = packed(&[(4, &ageing), (7, &[1]), (8, &[0x88, 0xa8]), (46, &options)]);
        let expected = Bridge {
            filters_vlans: true,
            is_service: true,
            ageing: Span::from_secs(30),
            has_mst: true,
        };
        assert_eq!(bridge_link(&data), Ok(expected));
    }
}
