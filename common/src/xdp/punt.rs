//! What is punted: left to the kernel although it is for other machines, because only the kernel
//! can do with it what its tables say.

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};

/// Local addresses of a family that a port's program finds without a look at prefixes
/// (`LOCAL_MAX` in steer.bpf.c).
pub const LOCAL_MAX: usize = 4096;

/// Stations on a port, beside its own, that its program can be told of (`UPPER_MAX` in
/// steer.bpf.c).
pub const UPPER_MAX: usize = 4096;

/// Prefixes of a family that the map holds (`PREFIXES_MAX` in steer.bpf.c).
const PREFIXES_MAX: u32 = 2_097_152;

/// Why a packet is punted. The numbers are those of steer.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PuntReason {
    /// The route leaves by an interface that is no port.
    NotAPort = 1,
    /// The route encapsulates.
    Encapsulated = 2,
    /// The route is of a type that is not known here, or by a next hop object that is not.
    RouteType = 3,
    /// Some next hops of the route are forwarded to by ports and others are not, or are links
    /// without a gateway: the kernel chooses among all of them.
    Mixed = 4,
    /// Routes to this prefix depend on more than the destination: the source, or the TOS.
    Selective = 5,
    /// Policy rules decide, or a table that switchd does not follow, or the table `local`, which
    /// has a wider route.
    Rule = 6,
    /// The port belongs to a bridge, a bond, a VRF, or another interface that takes its packets.
    Master = 7,
    /// The frame carries the tag of a VLAN for which the kernel has an interface on the port.
    Vlan = 8,
    /// Neighbour discovery for an address that this machine does not have: it may be a proxy.
    Discovery = 9,
    /// The worker of the queue has taken no packets for too long. Not limited: nobody else would
    /// forward them.
    Absent = 10,
    /// A bridge floods it: it is for all stations.
    Broadcast = 11,
    /// A bridge floods it, or hands it to those who want it: it is for a group.
    Multicast = 12,
    /// A bridge floods it: its destination is not known.
    UnknownUnicast = 13,
    /// A bridge learns from it: its source is not known at this port.
    Learning = 14,
    /// Only the bridge can forward it, or has to drop it: its destination is behind an interface
    /// that is no port, or a port does not forward, or is no member of the VLAN.
    Bridge = 15,
    /// Its source is an IPv6 address of its link only: the kernel tells the sender, or sends it
    /// back to that link.
    LinkLocal = 16,
    /// The neighbour is on a link where nobody is asked for MAC addresses (`arp off`), and nobody
    /// has set its.
    NoArp = 17,
    /// It has IPv4 options or an IPv6 hop-by-hop header, which each router reads.
    Options = 18,
    /// It is for a station on the port that is not the port itself: an interface with a MAC address
    /// of its own, as a macvlan is.
    Station = 19,
}

impl PuntReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::NotAPort,
        Self::Encapsulated,
        Self::RouteType,
        Self::Mixed,
        Self::Selective,
        Self::Rule,
        Self::Master,
        Self::Vlan,
        Self::Discovery,
        Self::Absent,
        Self::Broadcast,
        Self::Multicast,
        Self::UnknownUnicast,
        Self::Learning,
        Self::Bridge,
        Self::LinkLocal,
        Self::NoArp,
        Self::Options,
        Self::Station,
    ];

    /// A word for it, as in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotAPort => "not_a_port",
            Self::Encapsulated => "encapsulated",
            Self::RouteType => "route_type",
            Self::Mixed => "mixed",
            Self::Selective => "selective",
            Self::Rule => "rule",
            Self::Master => "master",
            Self::Vlan => "vlan",
            Self::Discovery => "discovery",
            Self::Absent => "absent",
            Self::Broadcast => "flood_broadcast",
            Self::Multicast => "flood_multicast",
            Self::UnknownUnicast => "flood_unknown",
            Self::Learning => "learning",
            Self::Bridge => "bridge",
            Self::LinkLocal => "link_local",
            Self::NoArp => "no_arp",
            Self::Options => "options",
            Self::Station => "station",
        }
    }
}

/// What becomes of packets to a prefix. The longest prefix that contains the destination counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The daemon forwards them, although a shorter prefix says otherwise.
    Forward,
    /// They are for this machine.
    Local,
    /// They are for other machines, and left to the kernel.
    Punt(PuntReason),
}

impl Verdict {
    const fn byte(self) -> u8 {
        match self {
            Self::Forward => 0,
            Self::Local => 255,
            Self::Punt(reason) => reason as u8,
        }
    }
}

/// How many punted packets the kernel is handed from one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuntLimit {
    /// Packets per second on average, at least 1.
    pub packets_per_second: u32,
}

impl PuntLimit {
    /// Nanoseconds for each packet, and those that may be saved up: 10 ms or 64 packets, whichever
    /// are more.
    pub(super) fn nanoseconds(self) -> (u64, u64) {
        let rate = u64::from(self.packets_per_second.max(1));
        let interval = 1_000_000_000 / rate;
        (interval, interval * (rate / 100).max(64))
    }
}

/// How many frames of each kind the kernel is handed from one port of a bridge, so that a storm
/// leaves it time for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormLimits {
    /// Frames to all stations.
    pub broadcast: PuntLimit,
    /// Frames to groups.
    pub multicast: PuntLimit,
    /// Frames to a station that is not known, or from one.
    pub unknown: PuntLimit,
    /// Frames to all stations or to groups that ask for an address of this machine, or are of
    /// protocols between neighbours.
    pub control: PuntLimit,
}

/// Losses by the limits of a port of a bridge, in the order of [`StormLimits`]: name and meaning.
pub const STORM_DROPS: [(&str, &str); 4] = [
    (
        "storm_broadcast",
        "The bridge would flood the frame, which is for all stations, and [bridge] allows no more.",
    ),
    (
        "storm_multicast",
        "The bridge would flood the frame, which is for a group, and [bridge] allows no more.",
    ),
    (
        "storm_unknown",
        "The bridge does not know the source or destination of the frame, and [bridge] allows no more.",
    ),
    (
        "storm_control",
        "The frame asks this machine or is of a protocol between neighbours, and [bridge] allows no more.",
    ),
];

/// The prefixes whose packets are not all forwarded by the daemon: one pair of maps for all ports.
pub struct Prefixes {
    v4: MapHandle,
    v6: MapHandle,
}

impl Prefixes {
    /// Empty ones.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Self::with_room(PREFIXES_MAX)
    }

    /// Empty ones with room for so many prefixes of each family. Programs take no others than those
    /// of [`Self::new`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn with_room(prefixes: u32) -> io::Result<Self> {
        Ok(Self {
            v4: create("steer_prefix4", 8, prefixes)?,
            v6: create("steer_prefix6", 20, prefixes)?,
        })
    }

    pub(super) fn of_map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        match name {
            "steer_prefix4" => Some(self.v4.as_fd()),
            "steer_prefix6" => Some(self.v6.as_fd()),
            _ => None,
        }
    }

    /// Says what `prefix` is, in place of what it was.
    ///
    /// # Errors
    /// When the map is full, or the kernel has no memory.
    pub fn set(&self, prefix: IpNet, verdict: Verdict) -> io::Result<()> {
        let (map, key, len) = self.place(prefix);
        map.update(&key[..len], &[verdict.byte()], MapFlags::ANY)
            .map_err(io::Error::other)
    }

    /// Forgets `prefix`. One that was never set is no error.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&self, prefix: IpNet) -> io::Result<()> {
        let (map, key, len) = self.place(prefix);
        match map.delete(&key[..len]) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(io::Error::other(error))
            }
            _ => Ok(()),
        }
    }

    /// The map of a prefix, its key there, and the length of that: `struct bpf_lpm_trie_key`.
    fn place(&self, prefix: IpNet) -> (&MapHandle, [u8; 20], usize) {
        let mut key = [0; 20];
        key[..4].copy_from_slice(&u32::from(prefix.prefix_len()).to_ne_bytes());
        match prefix {
            IpNet::V4(prefix) => {
                key[4..8].copy_from_slice(&prefix.network().octets());
                (&self.v4, key, 8)
            }
            IpNet::V6(prefix) => {
                key[4..].copy_from_slice(&prefix.network().octets());
                (&self.v6, key, 20)
            }
        }
    }
}

fn create(name: &str, key_size: u32, prefixes: u32) -> io::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    MapHandle::create(
        MapType::LpmTrie,
        Some(name),
        key_size,
        1,
        prefixes,
        &options,
    )
    .map_err(io::Error::other)
}

impl fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefixes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program counts by these numbers, and takes the others for verdicts.
    #[test]
    fn reasons_have_the_numbers_of_the_program() {
        for (number, reason) in (1..).zip(PuntReason::ALL) {
            assert_eq!(reason as u8, number);
            assert_eq!(Verdict::Punt(reason).byte(), number);
        }
        let source = include_str!("steer.bpf.c");
        for (name, number) in [
            ("REASONS", PuntReason::ALL.len()),
            ("REASON_VLAN", PuntReason::Vlan as usize),
            ("REASON_DISCOVERY", PuntReason::Discovery as usize),
            ("REASON_ABSENT", PuntReason::Absent as usize),
            ("REASON_BROADCAST", PuntReason::Broadcast as usize),
            ("REASON_MULTICAST", PuntReason::Multicast as usize),
            ("REASON_UNKNOWN", PuntReason::UnknownUnicast as usize),
            ("REASON_LEARNING", PuntReason::Learning as usize),
            ("REASON_BRIDGE", PuntReason::Bridge as usize),
            ("REASON_LINK_LOCAL", PuntReason::LinkLocal as usize),
            ("REASON_OPTIONS", PuntReason::Options as usize),
            ("REASON_STATION", PuntReason::Station as usize),
            ("BUCKETS", 1 + STORM_DROPS.len()),
            ("LOCAL_MAX", LOCAL_MAX),
            ("UPPER_MAX", UPPER_MAX),
            ("PREFIXES_MAX", PREFIXES_MAX as usize),
            ("VERDICT_LOCAL", 255),
        ] {
            let line = format!("#define {name} {number}\n");
            assert!(source.contains(&line), "{line}");
        }
    }

    #[test]
    fn a_limit_saves_up_ten_milliseconds_or_a_few_packets() {
        let of = |packets_per_second| PuntLimit { packets_per_second }.nanoseconds();
        assert_eq!(of(100_000), (10_000, 10_000_000));
        assert_eq!(of(100), (10_000_000, 640_000_000));
    }
}
