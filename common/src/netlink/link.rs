//! Interfaces: linux/if_link.h.

use super::attribute::{DecodeError, attributes, u8_at, u16_at, u32_at};
use super::bridge::bridge_link;
use super::settings::accepts_local;
use super::types::{Link, Vlan};

/// struct ifinfomsg and IFLA_*. Messages of other families (bridge ports) are not about the link
/// itself.
pub(super) fn link(body: &[u8]) -> Result<Option<Link>, DecodeError> {
    const IFF_UP: u32 = 1;
    const IFF_LOOPBACK: u32 = 8;
    const IFF_RUNNING: u32 = 0x40;
    const IFF_NOARP: u32 = 0x80;
    const IFF_LOWER_UP: u32 = 0x1_0000;
    let index = u32_at(body, 4)?;
    let flags = u32_at(body, 8)?;
    let rest = body.get(16..).ok_or(DecodeError::Short)?;
    if u8_at(body, 0)? != 0 {
        return Ok(None);
    }
    let mut link = Link {
        index,
        name: String::new(),
        mac: None,
        mtu: 0,
        up: flags & IFF_UP != 0,
        running: flags & IFF_RUNNING != 0,
        lower_up: flags & IFF_LOWER_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        no_arp: flags & IFF_NOARP != 0,
        ..Link::default()
    };
    let mut lower_is_elsewhere = false;
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            1 => link.mac = attribute.mac(),
            3 => link.name = attribute.name()?,
            4 => link.mtu = attribute.u32()?,
            5 => link.lower = Some(attribute.u32()?).filter(|&index| index != 0),
            10 => link.master = Some(attribute.u32()?).filter(|&index| index != 0),
            18 => link_info(attribute.value, &mut link)?,
            26 => link.accepts_local = accepts_local(attribute.value)?,
            // IFLA_LINK_NETNSID: the number above is of another namespace.
            37 => lower_is_elsewhere = true,
            // IFLA_CARRIER_UP_COUNT and IFLA_CARRIER_DOWN_COUNT.
            47 => link.carrier_ups = attribute.u32()?,
            48 => link.carrier_downs = attribute.u32()?,
            _ => {}
        }
    }
    link.lower = link.lower.filter(|_| !lower_is_elsewhere);
    Ok(Some(link))
}

/// IFLA_INFO_KIND, and what IFLA_INFO_DATA says of bridges, VLANs and macvlans.
fn link_info(bytes: &[u8], link: &mut Link) -> Result<(), DecodeError> {
    let mut data: &[u8] = &[];
    for attribute in attributes(bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => link.kind = Some(attribute.name()?),
            2 => data = attribute.value,
            _ => {}
        }
    }
    match link.kind.as_deref() {
        Some("bridge") => link.bridge = Some(bridge_link(data)?),
        Some("macvlan" | "macvtap") => link.takes_all = takes_all(data)?,
        Some("vlan") => vlan(data, link)?,
        _ => {}
    }
    Ok(())
}

/// IFLA_MACVLAN_MODE: passthru and source go by other things than the destination.
fn takes_all(data: &[u8]) -> Result<bool, DecodeError> {
    const PASSTHRU: u32 = 8;
    const SOURCE: u32 = 16;
    let mut takes_all = false;
    for attribute in attributes(data) {
        let attribute = attribute?;
        if attribute.kind == 1 {
            takes_all = attribute.u32()? & (PASSTHRU | SOURCE) != 0;
        }
    }
    Ok(takes_all)
}

/// IFLA_VLAN_*.
fn vlan(data: &[u8], link: &mut Link) -> Result<(), DecodeError> {
    let mut vlan = Vlan {
        is_service: false,
        id: 0,
    };
    for attribute in attributes(data) {
        let attribute = attribute?;
        match attribute.kind {
            1 => vlan.id = u16_at(attribute.value, 0)?,
            3 => link.maps_priorities = maps_priorities(attribute.value)?,
            // Big-endian, unlike the rest.
            5 => vlan.is_service = attribute.value == [0x88, 0xa8],
            _ => {}
        }
    }
    link.vlan = Some(vlan);
    Ok(())
}

/// IFLA_VLAN_EGRESS_QOS: whether a priority becomes another one than zero.
fn maps_priorities(bytes: &[u8]) -> Result<bool, DecodeError> {
    let mut any = false;
    for mapping in attributes(bytes) {
        // struct ifla_vlan_qos_mapping: from, to.
        any |= u32_at(mapping?.value, 4)? != 0;
    }
    Ok(any)
}
