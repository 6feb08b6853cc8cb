//! What control publishes to the workers: a snapshot of ports, next hops, groups and policies.
//!
//! A [`Tables`] is immutable. Control publishes a new one with `common::sync::snapshot`; a worker
//! picks up the newest at the beginning of a turn. Routes are not in here: a full Internet table
//! changes too often to be copied, so the [`Fib`](crate::forward::fib::Fib) is changed in place,
//! and maps a prefix to the number of a group in these tables.
//!
//! Order of publication: first the tables that contain a group, then the routes that use it. A
//! worker that finds a group number which its tables lack picks up the newest tables. Numbers are
//! reused only after `Publisher::passed` reports that no worker uses the old tables.

pub mod bridge;
pub mod buckets;
pub mod csig;
pub mod dlb;
pub mod elephants;
pub mod errors;
pub mod int;
pub mod interfaces;
pub mod policy;
pub mod port_set;
pub mod reading;
pub mod resilient;
pub mod sources;
pub mod trim;
pub mod validation;
pub mod watchdog;
pub mod wred;

use crate::id::{GroupId, NextHopId, PortId};
use crate::limits::{MAX_GROUPS, MAX_NEXT_HOPS, MAX_PORTS};
use bridge::Bridging;
use buckets::Buckets;
use common::units::Rate;
use common::wire::ethernet::HEADER_LEN;
use common::wire::vlan::TAG_LEN;
use common::xdp::PuntReason;
use csig::PortCsig;
use dlb::DlbPolicy;
use errors::Errors;
use int::PortInt;
use interfaces::{Interfaces, LinkHeader};
use policy::{Policy, PolicyError};
use reading::Reading;
use resilient::Resilient;
use sources::Sources;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use validation::SourceValidation;

/// A routed port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// Name of the interface.
    pub name: String,
    /// The kernel's number of the interface.
    pub ifindex: u32,
    /// The port's own MAC address: the destination of frames to be routed, the source of those
    /// sent.
    pub mac: [u8; 6],
    /// Whether packets are taken from it and may be sent to it.
    pub up: bool,
    /// Longest IP packet that may be sent, in bytes.
    pub mtu: u16,
    /// Longest IPv6 packet that is forwarded to its own neighbours, where that is less; 65535 is no
    /// limit.
    pub mtu_v6: u16,
    /// Speed that the egress shaper enforces, counted on the wire (preamble, frame check sequence
    /// and gap included); `None` for no shaper.
    pub speed: Option<Rate>,
    /// Speed of the link, which the quanta of pauses are counted at; `None`: not known, and there
    /// is no flow control.
    pub link: Option<Rate>,
    /// Source address of ICMP messages about packets that arrived here; `None` sends none.
    pub icmp_v4: Option<Ipv4Addr>,
    /// As `icmp_v4`, for IPv6; a global address if there is one.
    pub icmp_v6: Option<Ipv6Addr>,
    /// Bytes that the port may send at once after a pause, to make up for having been served late.
    pub burst: u32,
    /// What is asked of the sources of its packets, beside the kernel's settings.
    pub validation: SourceValidation,
    /// What it does with congestion signals; `None`: it knows no tags of them.
    pub csig: Option<Arc<PortCsig>>,
    /// What it does with telemetry; `None`: it knows no tags of it.
    pub int: Option<PortInt>,
}

impl PortEntry {
    /// Bytes of the longest frame that keeps its tag that tells of its path. As in the kernel, a
    /// VLAN's tag more than the MTU and the link header is no harm.
    #[inline]
    pub fn longest_tagged(&self) -> usize {
        usize::from(self.mtu) + HEADER_LEN + TAG_LEN
    }

    /// How tags that tell of a path are read here; `None`: they are not known.
    #[inline]
    pub fn reading(&self) -> Option<Reading> {
        Reading::new(self.csig.as_deref(), self.int)
    }
}

/// The speeds of a port: see [`PortEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpeeds {
    /// What its shaper enforces.
    pub shaper: Option<Rate>,
    /// What bits take on its link.
    pub link: Option<Rate>,
    /// What it may send at once, in bytes.
    pub burst: u32,
}

/// A neighbour that packets are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The egress port.
    pub port: PortId,
    /// The kernel's number of the egress interface, for questions to control.
    pub ifindex: u32,
    /// The neighbour's address; may be IPv6 for IPv4 routes (RFC 8950).
    pub address: IpAddr,
    /// The neighbour's MAC address; `None` while the kernel has not resolved it.
    pub mac: Option<[u8; 6]>,
    /// Longest IP packet in bytes that may be sent to it by its routes, where the port sends longer
    /// ones; 65535 is no limit.
    pub mtu: u16,
    /// The switch's own address on the neighbour's network: it tells it of problems from there.
    pub source: Option<Ipv4Addr>,
    /// Its link header, if it is behind an interface that is no port.
    pub link_header: Option<LinkHeader>,
}

/// What to do with packets to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Send to this one next hop: a neighbour's host route, a route with one next hop.
    Forward(NextHopId),
    /// Send to one of several next hops, chosen by the flow's hash.
    Balance(Buckets),
    /// The same, by the buckets and timers of a resilient group of the kernel.
    Resilient(Box<Resilient>),
    /// A connected network: the destination itself is the neighbour, and the kernel has to find it.
    /// Neighbours that are known have host routes of their own.
    Glean {
        /// The port of the network.
        port: PortId,
        /// The kernel's number of the interface.
        ifindex: u32,
        /// As of a next hop.
        mtu: u16,
    },
    /// An address of the switch itself.
    Local,
    /// The broadcast address of one of its networks: it is the kernel's, and nobody sends from it.
    Broadcast,
    /// Discard silently.
    Blackhole,
    /// Discard and answer that the host is unreachable.
    Unreachable,
    /// As if there were no route, not even a shorter one.
    NoRoute,
    /// Discard and answer that communication is prohibited.
    Prohibit,
    /// Only the kernel can forward it: the steering program leaves it there.
    Punt(PuntReason),
}

// Groups that are rare must not make all of them larger: with many routes they fill the cache.
const _: () = assert!(size_of::<Group>() <= size_of::<Buckets>() + 8);

impl Group {
    /// The buckets of a group with several next hops, as groups that the kernel says nothing of
    /// have them: what dynamic load balancing chooses among.
    #[inline]
    pub fn buckets(&self) -> Option<&Buckets> {
        match self {
            Self::Balance(buckets) => Some(buckets),
            Self::Resilient(resilient) => Some(resilient.spread()),
            _ => None,
        }
    }
}

/// What the hash that chooses among the members of a group is computed from. The addresses always
/// belong to it; of fragments nothing else does, so that a packet's fragments stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    /// Makes the hash of each switch a different function. It must differ between switches in a
    /// row, or the second finds all flows in one bucket (polarisation).
    pub seed: u64,
    /// Protocol and, for TCP, UDP and SCTP, source and destination port.
    pub ports: bool,
    /// The IPv6 flow label (RFC 6438).
    pub flow_label: bool,
    /// The destination queue pair of RoCEv2 packets (UDP port 4791).
    pub destination_qp: bool,
}

impl Default for Hashing {
    fn default() -> Self {
        Self {
            seed: 0,
            ports: true,
            flow_label: true,
            destination_qp: false,
        }
    }
}

/// Which next hops carried traffic lately. Shared by all snapshots of the tables. Workers set the
/// bits; control takes them and confirms those neighbours to the kernel.
#[derive(Debug)]
pub struct NextHopUse(Box<[AtomicBool]>);

impl Default for NextHopUse {
    fn default() -> Self {
        Self((0..MAX_NEXT_HOPS).map(|_| AtomicBool::new(false)).collect())
    }
}

impl NextHopUse {
    /// Notes that a packet was sent to `id`. Writes only if the bit was not set, so that the cache
    /// line stays shared.
    #[inline]
    pub fn mark(&self, id: NextHopId) {
        if let Some(flag) = self.0.get(id.index())
            && !flag.load(Ordering::Relaxed)
        {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a packet was sent to `id` since this was last asked.
    pub fn take(&self, id: NextHopId) -> bool {
        self.0
            .get(id.index())
            .is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
    }
}

/// The snapshot.
#[derive(Clone, Debug)]
pub struct Tables {
    /// By [`PortId`].
    pub ports: Vec<PortEntry>,
    /// By [`NextHopId`]; at most [`MAX_NEXT_HOPS`].
    pub next_hops: Vec<NextHop>,
    /// By [`GroupId`]; at most [`MAX_GROUPS`].
    pub groups: Vec<Group>,
    /// How flows are spread over the members of a group.
    pub hashing: Hashing,
    /// Dynamic load balancing.
    pub dlb: Arc<DlbPolicy>,
    /// What the traffic manager is to do.
    pub traffic: Arc<Policy>,
    /// Which sources packets may have.
    pub sources: Arc<Sources>,
    /// Ports of bridges, and the stations behind them.
    pub bridging: Arc<Bridging>,
    /// Interfaces that are no ports.
    pub interfaces: Arc<Interfaces>,
    /// ICMP errors.
    pub errors: Arc<Errors>,
    /// Shared by all snapshots: cloning the tables keeps it.
    pub used: Arc<NextHopUse>,
}

/// A reference inside [`Tables`] that leads nowhere, or a number out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// Too many entries.
    #[error("{count} {what}, but at most {limit} are possible")]
    TooMany {
        /// Of which kind.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An entry refers to another that does not exist.
    #[error("{from} {number} refers to {to} {target}, which does not exist")]
    Dangling {
        /// Kind of the referring entry.
        from: &'static str,
        /// Its number.
        number: usize,
        /// Kind of the missing entry.
        to: &'static str,
        /// Its number.
        target: usize,
    },
    /// The traffic manager cannot work with its policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy is for other ports.
    #[error("a traffic policy for {policy} ports, but there are {ports}")]
    Ports {
        /// Ports of the policy.
        policy: usize,
        /// Ports of the tables.
        ports: usize,
    },
}

impl Tables {
    /// Tables of `ports` without any next hop or group.
    pub fn new(ports: Vec<PortEntry>, hashing: Hashing, traffic: Arc<Policy>) -> Self {
        Self {
            ports,
            next_hops: Vec::new(),
            groups: Vec::new(),
            hashing,
            dlb: Arc::default(),
            traffic,
            sources: Arc::default(),
            bridging: Arc::default(),
            interfaces: Arc::default(),
            errors: Arc::default(),
            used: Arc::default(),
        }
    }

    /// The port, if it exists.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&PortEntry> {
        self.ports.get(id.index())
    }

    /// How tags that tell of a path are read at a port; `None`: they are not known there.
    #[inline]
    pub fn reading(&self, id: PortId) -> Option<Reading> {
        self.port(id)?.reading()
    }

    /// The next hop, if it exists.
    #[inline]
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.next_hops.get(id.index())
    }

    /// The group, if it exists.
    #[inline]
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.index())
    }

    /// Checks bounds and references. Workers survive tables that fail this (such packets are
    /// dropped as [`NoNextHop`](crate::drop::DropReason::NoNextHop)), but control should not
    /// publish them.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), TablesError> {
        too_many("ports", self.ports.len(), MAX_PORTS)?;
        too_many("next hops", self.next_hops.len(), MAX_NEXT_HOPS)?;
        too_many("groups", self.groups.len(), MAX_GROUPS)?;
        for (number, hop) in self.next_hops.iter().enumerate() {
            self.refers_to_port("next hop", number, hop.port)?;
        }
        for (number, group) in self.groups.iter().enumerate() {
            match group {
                Group::Forward(id) => self.refers_to_next_hop(number, *id)?,
                Group::Balance(buckets) => self.refer_to_next_hops(number, buckets.table())?,
                Group::Resilient(resilient) => {
                    self.refer_to_next_hops(number, resilient.table())?;
                    self.refer_to_next_hops(number, resilient.spread().table())?;
                }
                Group::Glean { port, .. } => self.refers_to_port("group", number, *port)?,
                Group::Local
                | Group::Broadcast
                | Group::Blackhole
                | Group::Unreachable
                | Group::NoRoute
                | Group::Prohibit
                | Group::Punt(_) => {}
            }
        }
        self.traffic.check()?;
        let (policy, ports) = (self.traffic.ports.len(), self.ports.len());
        if policy != ports {
            return Err(TablesError::Ports { policy, ports });
        }
        Ok(())
    }

    fn refers_to_port(
        &self,
        from: &'static str,
        number: usize,
        port: PortId,
    ) -> Result<(), TablesError> {
        let target = port.index();
        match self.port(port) {
            Some(_) => Ok(()),
            None => Err(TablesError::Dangling {
                from,
                number,
                to: "port",
                target,
            }),
        }
    }

    fn refer_to_next_hops(&self, number: usize, ids: &[NextHopId]) -> Result<(), TablesError> {
        let mut ids = ids.iter();
        ids.try_for_each(|id| self.refers_to_next_hop(number, *id))
    }

    fn refers_to_next_hop(&self, number: usize, id: NextHopId) -> Result<(), TablesError> {
        let target = id.index();
        match self.next_hop(id) {
            Some(_) => Ok(()),
            None => Err(TablesError::Dangling {
                from: "group",
                number,
                to: "next hop",
                target,
            }),
        }
    }
}

fn too_many(what: &'static str, count: usize, limit: usize) -> Result<(), TablesError> {
    if count > limit {
        return Err(TablesError::TooMany { what, count, limit });
    }
    Ok(())
}
