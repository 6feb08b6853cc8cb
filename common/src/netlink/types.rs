//! The objects of the mirror.

use crate::time::Span;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Routing tables by number.
#[derive(Clone, Copy, Debug)]
pub struct Table;

impl Table {
    /// The table that `ip route` shows by default.
    pub const MAIN: u32 = 254;
    /// The kernel's own: local addresses and broadcasts.
    pub const LOCAL: u32 = 255;
    /// The one that is asked last. It is usually empty.
    pub const DEFAULT: u32 = 253;
}

/// A VLAN tag, without its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vlan {
    /// Of 802.1ad (EtherType 0x88a8) and not of 802.1Q (0x8100).
    pub is_service: bool,
    /// The identifier, 0 to 4095.
    pub id: u16,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address, if it has one.
    pub mac: Option<Mac>,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Set up by the administrator (IFF_UP).
    pub up: bool,
    /// It could carry packets: a carrier, or the kernel does not know better (IFF_RUNNING).
    pub running: bool,
    /// It has a carrier, though it may not be ready to carry packets yet (IFF_LOWER_UP).
    pub lower_up: bool,
    /// Times that its carrier came, as the kernel counts them: of a flap within some milliseconds
    /// there is one message, or two.
    pub carrier_ups: u32,
    /// Times that its carrier went.
    pub carrier_downs: u32,
    /// It is a loopback interface.
    pub loopback: bool,
    /// Nobody is asked for MAC addresses on it (`arp off`).
    pub no_arp: bool,
    /// The bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// What made it, as `ip link add type …` says it: "vlan", "bridge", "gre"; `None`: a driver.
    pub kind: Option<String>,
    /// The interface of this namespace on which it is stacked, or whose peer it is.
    pub lower: Option<u32>,
    /// It sets the priority of the tags that it writes (`egress-qos-map`).
    pub maps_priorities: bool,
    /// The tag of its frames on that interface.
    pub vlan: Option<Vlan>,
    /// It is a macvlan or macvtap that takes other frames, too, from the interface on which it is
    /// stacked than those to its own address (modes `passthru` and `source`).
    pub takes_all: bool,
    /// IPv4 packets from addresses of this machine are taken from it (`accept_local`).
    pub accepts_local: bool,
    /// What it is set to, if it is a bridge.
    pub bridge: Option<Bridge>,
}

impl Link {
    /// Whether packets can leave through it now.
    pub fn is_usable(&self) -> bool {
        self.up && self.running
    }

    /// Whether the kernel takes its next hop objects away although it is up.
    pub(super) fn is_dark(&self) -> bool {
        !self.running && !self.lower_up
    }
}

/// What `net.ipv4.conf` says of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4Settings {
    /// IPv4 packets that arrive are forwarded (`forwarding`).
    pub forwards: bool,
    /// How sources are checked (`rp_filter`): 0 not, 1 strictly, 2 loosely.
    pub rp_filter: u32,
    /// Routes by it are passed over while it has no carrier (`ignore_routes_with_linkdown`).
    pub ignores_linkdown: bool,
}

/// In place of the number of an interface: the settings of all interfaces together
/// (`net.ipv4.conf.all`).
pub const ALL_LINKS: u32 = u32::MAX;

/// Some of the settings of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// The interface, or [`ALL_LINKS`].
    pub ifindex: u32,
    /// As [`Ipv4Settings::forwards`], if it is said.
    pub forwards: Option<bool>,
    /// As [`Ipv4Settings::rp_filter`], if it is said.
    pub rp_filter: Option<u32>,
    /// As [`Ipv4Settings::ignores_linkdown`], if it is said.
    pub ignores_linkdown: Option<bool>,
}

impl SettingsChange {
    /// What the settings are after it.
    pub fn apply(self, before: Ipv4Settings) -> Ipv4Settings {
        Ipv4Settings {
            forwards: self.forwards.unwrap_or(before.forwards),
            rp_filter: self.rp_filter.unwrap_or(before.rp_filter),
            ignores_linkdown: self.ignores_linkdown.unwrap_or(before.ignores_linkdown),
        }
    }
}

/// What a bridge is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// It looks at tags, and its ports are members of VLANs (`vlan_filtering`).
    pub filters_vlans: bool,
    /// The tags that it looks at are of 802.1ad and not of 802.1Q (`vlan_protocol`).
    pub is_service: bool,
    /// A station that has sent nothing for this long is forgotten.
    pub ageing: Span,
    /// Spanning tree states are of VLANs and not of ports (`mst_enabled`).
    pub has_mst: bool,
}

/// State of a bridge's port in the spanning tree (BR_STATE_* of linux/if_bridge.h; 802.1Q clause
/// 8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StpState {
    /// Its link is down, or it is turned off.
    #[default]
    Disabled,
    /// It takes part in the protocol only.
    Listening,
    /// It learns stations, and forwards nothing.
    Learning,
    /// It forwards.
    Forwarding,
    /// It discards, so that there is no loop.
    Blocking,
}

impl StpState {
    /// The state for the kernel's number; `None` for one that makes no sense.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Disabled,
            1 => Self::Listening,
            2 => Self::Learning,
            3 => Self::Forwarding,
            4 => Self::Blocking,
            _ => return None,
        })
    }

    /// The name that `bridge link` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Listening => "listening",
            Self::Learning => "learning",
            Self::Forwarding => "forwarding",
            Self::Blocking => "blocking",
        }
    }
}

/// VLANs in a row of which a port of a bridge is a member alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortVlan {
    /// The first identifier, 1 to 4094.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// Frames without a tag belong to it.
    pub is_pvid: bool,
    /// Its frames leave without a tag.
    pub is_untagged: bool,
}

/// The state in the spanning tree of VLANs in a row, which is another thing than that of their
/// port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanState {
    /// The first identifier, 1 to 4094.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// Their state.
    pub state: StpState,
}

/// A port of a bridge, or the bridge itself (`bridge link`, `bridge vlan`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgePort {
    /// The interface.
    pub ifindex: u32,
    /// The bridge; the interface itself: this is about the bridge.
    pub bridge: u32,
    /// Its state in the spanning tree.
    pub state: StpState,
    /// Frames may leave by the port at which they arrived.
    pub has_hairpin: bool,
    /// Nothing passes between it and other isolated ports.
    pub is_isolated: bool,
    /// Tags stand for tunnels (`vlan_tunnel`).
    pub has_tunnels: bool,
    /// VLANs of which it is a member, in order.
    pub vlans: Vec<PortVlan>,
}

/// What identifies a station: an address in a VLAN of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FdbKey {
    /// The bridge.
    pub bridge: u32,
    /// The VLAN; 0 in a bridge that does not look at tags.
    pub vlan: u16,
    /// The address.
    pub mac: Mac,
}

/// Where a station of a bridge comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FdbKind {
    /// The bridge itself: frames to it are this machine's (`permanent`).
    Local,
    /// The administrator set it (`static`).
    Static,
    /// It has sent a frame, and ages.
    Learned,
    /// Another program manages it (`extern_learn`): it does not age.
    External,
    /// It asks to be let in at a locked port: nothing is sent to it (`locked`).
    Locked,
}

impl FdbKind {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Static => "static",
            Self::Learned => "learned",
            Self::External => "external",
            Self::Locked => "locked",
        }
    }
}

/// An entry of the forwarding database of a bridge (`bridge fdb`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// Who it is.
    pub key: FdbKey,
    /// The port behind which it is; the bridge itself for some of its own addresses.
    pub ifindex: u32,
    /// Where it comes from.
    pub kind: FdbKind,
}

/// An address of an interface of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The interface.
    pub ifindex: u32,
    /// The address itself.
    pub address: IpAddr,
    /// Length of the prefix that is on the link.
    pub prefix_len: u8,
}

/// What identifies a neighbour: an address is unique on its link only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NeighbourKey {
    /// The interface behind which it lives.
    pub ifindex: u32,
    /// Its IP address.
    pub address: IpAddr,
}

/// How sure the kernel is of a neighbour (NUD_* of linux/neighbour.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeighbourState {
    /// Nothing was done yet.
    None,
    /// Asked, no answer yet.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Not confirmed for a while; still used.
    Stale,
    /// Used while stale; a confirmation is awaited before probing.
    Delay,
    /// Being probed.
    Probe,
    /// Did not answer.
    Failed,
    /// Needs no resolution (multicast, broadcast, point-to-point).
    NoArp,
    /// Set by the administrator.
    Permanent,
}

impl NeighbourState {
    /// The state for the kernel's bits; `None` for bits that make no sense.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        Some(match bits {
            0x00 => Self::None,
            0x01 => Self::Incomplete,
            0x02 => Self::Reachable,
            0x04 => Self::Stale,
            0x08 => Self::Delay,
            0x10 => Self::Probe,
            0x20 => Self::Failed,
            0x40 => Self::NoArp,
            0x80 => Self::Permanent,
            _ => return None,
        })
    }

    /// Whether packets may be sent to the address that is known in this state.
    pub const fn is_valid(self) -> bool {
        matches!(
            self,
            Self::Reachable
                | Self::Stale
                | Self::Delay
                | Self::Probe
                | Self::NoArp
                | Self::Permanent
        )
    }

    /// Whether the kernel neither resolves nor probes the neighbour. Telling it that such a one is
    /// used (NTF_USE) would take an administrator's entry for a learned one and lose it.
    pub const fn is_static(self) -> bool {
        matches!(self, Self::NoArp | Self::Permanent)
    }

    /// The name that `ip neighbour` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Incomplete => "INCOMPLETE",
            Self::Reachable => "REACHABLE",
            Self::Stale => "STALE",
            Self::Delay => "DELAY",
            Self::Probe => "PROBE",
            Self::Failed => "FAILED",
            Self::NoArp => "NOARP",
            Self::Permanent => "PERMANENT",
        }
    }
}

/// An entry of the neighbour table (ARP, ND).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Who it is.
    pub key: NeighbourKey,
    /// Its Ethernet address, once known.
    pub mac: Option<Mac>,
    /// How sure the kernel is.
    pub state: NeighbourState,
}

impl Neighbour {
    /// The Ethernet address, if packets may be sent to it.
    pub fn usable_mac(&self) -> Option<Mac> {
        self.mac.filter(|_| self.state.is_valid())
    }
}

/// What identifies a set of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// Routing table, see [`Table`].
    pub table: u32,
    /// The destinations.
    pub prefix: IpNet,
    /// The metric; the smallest wins.
    pub priority: u32,
    /// Only for packets with this TOS or DSCP; zero for all.
    pub tos: u8,
    /// Only for packets from these sources (`ip -6 route add … from …`).
    pub source: Option<IpNet>,
}

/// What is to be done with packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Forward.
    Unicast,
    /// The packet is for this machine.
    Local,
    /// A broadcast address of this machine.
    Broadcast,
    /// An anycast address of this machine.
    Anycast,
    /// Multicast.
    Multicast,
    /// Drop silently.
    Blackhole,
    /// Drop and say that the host is unreachable.
    Unreachable,
    /// Drop and say that it is forbidden.
    Prohibit,
    /// Go on as if the table had no route.
    Throw,
    /// Something newer than this program.
    Other(u8),
}

impl RouteKind {
    /// The kind for the kernel's number (RTN_* of linux/rtnetlink.h).
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Unicast,
            2 => Self::Local,
            3 => Self::Broadcast,
            4 => Self::Anycast,
            5 => Self::Multicast,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            9 => Self::Throw,
            other => Self::Other(other),
        }
    }
}

/// One way to the next router, or onto the link itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The interface to leave by.
    pub ifindex: u32,
    /// The next router, of either family (IPv4 via IPv6 next hop); `None`: the destination is on
    /// the link.
    pub gateway: Option<IpAddr>,
    /// Share of the flows, relative to the other hops; at least 1.
    pub weight: u32,
    /// Packets are to be encapsulated (MPLS, SRv6, tunnels), which only the kernel can do.
    pub encapsulated: bool,
    /// The kernel does not use it (RTNH_F_DEAD): the interface has lost its last IPv4 address, and
    /// has got none since.
    pub dead: bool,
}

impl Default for Hop {
    fn default() -> Self {
        Self {
            ifindex: 0,
            gateway: None,
            weight: 1,
            encapsulated: false,
            dead: false,
        }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What to do.
    pub kind: RouteKind,
    /// Who made it (RTPROT_*: 2 kernel, 4 static, 186 BGP, …).
    pub protocol: u8,
    /// The ways, as the kernel sent them; shared among routes with the same ones. None of a route
    /// by a next hop object.
    pub hops: Arc<[Hop]>,
    /// The next hop object that says the ways.
    pub next_hop: Option<u32>,
    /// The address that this machine says something from by it (`src`), if it names one.
    pub source: Option<IpAddr>,
    /// The largest packet in bytes that a router sends by it, where its link carries larger ones;
    /// [`NO_MTU`]: what the link carries.
    pub mtu: u16,
    /// Stands for what else the kernel tells routes of one key apart by, and which changes nothing
    /// here: other metrics, realms, how packets are encapsulated, `onlink`, the scope. 0: nothing.
    pub rest: u32,
}

/// Who made the routes that belong to addresses (RTPROT_KERNEL).
pub const PROTOCOL_KERNEL: u8 = 2;

/// The MTU of a route that has none of its own: no packet is larger.
pub const NO_MTU: u16 = u16::MAX;

/// A next hop object (`ip nexthop`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its number.
    pub id: u32,
    /// What it stands for.
    pub kind: NextHopKind,
}

/// How a resilient group of next hop objects moves its flows (`NHA_RES_GROUP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resilience {
    /// Buckets, 1 to 65,535, that the flows are dealt out to.
    pub buckets: u16,
    /// A bucket that no packet came to for this long may be given to a member that has too few.
    pub idle: Span,
    /// When members have had too few buckets for this long, they get busy ones, too. Zero: never.
    pub unbalanced: Span,
}

impl NextHopKind {
    /// The objects of a group, by number and weight.
    pub fn members(&self) -> Option<&[(u32, u32)]> {
        match self {
            Self::Group(members) | Self::Resilient(members, _) => Some(members),
            Self::Single(_) | Self::Blackhole | Self::Foreign => None,
        }
    }

    /// The same, to be changed.
    pub(super) fn members_mut(&mut self) -> Option<&mut Vec<(u32, u32)>> {
        match self {
            Self::Group(members) | Self::Resilient(members, _) => Some(members),
            Self::Single(_) | Self::Blackhole | Self::Foreign => None,
        }
    }
}

/// What a next hop object stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHopKind {
    /// One way.
    Single(Hop),
    /// Drop.
    Blackhole,
    /// Several other objects, by number and weight (at least 1).
    Group(Vec<(u32, u32)>),
    /// The same, with buckets that do not move while flows are in them (`type resilient`).
    Resilient(Vec<(u32, u32)>, Resilience),
    /// Not for routes (bridge FDB).
    Foreign,
}
