//! Interfaces of the router that are no ports: VLANs of ports, bridges, and VLANs of bridges
//! (SW-1). Their packets arrive at ports and leave by ports, like those of any other.

use super::bridge::VlanSet;
use super::sources::PortRules;
use crate::id::PortId;
use common::wire::ethernet;
use common::wire::vlan::TAG_LEN;
use std::hint::select_unpredictable;
use std::net::Ipv6Addr;

/// Number of an interface, from 1; 0: none, the packet is the port's own.
pub type InterfaceId = u8;

/// An interface that is no port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Source address of ICMPv6 errors about packets that arrived by it.
    pub icmp_v6: Option<Ipv6Addr>,
    /// What is asked of the sources of its packets.
    pub rules: PortRules,
}

/// Which frames of a port are those of interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortInterfaces {
    /// The MAC address of the interfaces.
    pub mac: [u8; 6],
    /// By VLAN of the bridge of the port, or by [`tag_key`] for a port that belongs to none; in
    /// order.
    pub interfaces: Vec<(u32, InterfaceId)>,
}

impl PortInterfaces {
    /// The interface, if there is one.
    #[inline]
    pub fn find(&self, key: u32) -> Option<InterfaceId> {
        let found = self.interfaces.binary_search_by_key(&key, |(key, _)| *key);
        found.ok().map(|place| self.interfaces[place].1)
    }

    /// The VLANs of the bridge that have one.
    pub fn vlans(&self) -> VlanSet {
        let mut vlans = VlanSet::default();
        for (vlan, _) in &self.interfaces {
            let vlan = u16::try_from(*vlan).unwrap_or(u16::MAX);
            vlans.insert(vlan, vlan);
        }
        vlans
    }
}

/// What an interface on a port itself is found by: the EtherType and the VLAN of its tag.
#[inline]
pub const fn tag_key(ethertype: u16, vlan: u16) -> u32 {
    (ethertype as u32) << 16 | vlan as u32
}

/// All interfaces that are no ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// By number, the first is 1.
    pub all: Vec<Interface>,
    /// By [`PortId`]; a port that is not in it, or `None`, has no interfaces beside itself.
    pub on_port: Vec<Option<PortInterfaces>>,
}

impl Interfaces {
    /// Which frames of a port are those of interfaces; `None`: there are no such interfaces.
    #[inline]
    pub fn on_port(&self, port: PortId) -> Option<&PortInterfaces> {
        self.on_port.get(port.index()).and_then(Option::as_ref)
    }

    /// The interface of this number.
    #[inline]
    pub fn get(&self, id: InterfaceId) -> Option<&Interface> {
        self.all.get(usize::from(id).checked_sub(1)?)
    }
}

/// What a frame to a neighbour behind an interface that is no port has in its link header, but for
/// the address of the neighbour and the EtherType of the packet: as it is written, all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    /// Zeros, the MAC address of the interface, and the tag or zeros.
    image: [u8; LinkHeader::IMAGE],
    has_tag: bool,
}

impl LinkHeader {
    /// Bytes of the addresses and a tag.
    pub const IMAGE: usize = ethernet::field::ETHERTYPE + TAG_LEN;

    /// One with the MAC address of the interface, and EtherType and VLAN of the tag, which has
    /// priority 0, if there is one.
    pub fn new(mac: [u8; 6], tag: Option<(u16, u16)>) -> Self {
        let mut image = [0; Self::IMAGE];
        image[ethernet::field::SRC].copy_from_slice(&mac);
        if let Some((kind, vlan)) = tag {
            let tag = u32::from(kind) << 16 | u32::from(vlan);
            image[ethernet::field::ETHERTYPE..].copy_from_slice(&tag.to_be_bytes());
        }
        let has_tag = tag.is_some();
        Self { image, has_tag }
    }

    /// Whether frames get a tag.
    #[inline]
    pub fn has_tag(&self) -> bool {
        self.has_tag
    }

    /// Writes it to `head`, the beginning of a frame to the neighbour `dst`. What is in the place
    /// of the tag stays if it has none: the EtherType, and the first bytes of the packet.
    #[inline]
    pub fn write(&self, head: &mut [u8; Self::IMAGE], dst: [u8; 6]) {
        const TAG: u128 = {
            let mut mask = [0; LinkHeader::IMAGE];
            let mut at = ethernet::field::ETHERTYPE;
            while at < mask.len() {
                mask[at] = 0xff;
                at += 1;
            }
            u128::from_ne_bytes(mask)
        };
        let mut to = [0; Self::IMAGE];
        to[ethernet::field::DST].copy_from_slice(&dst);
        // Frames with and without tags follow one another: a branch would be guessed wrong.
        let kept = select_unpredictable(self.has_tag, 0, TAG);
        let new = u128::from_ne_bytes(self.image) | u128::from_ne_bytes(to);
        *head = (new | u128::from_ne_bytes(*head) & kept).to_ne_bytes();
    }
}
