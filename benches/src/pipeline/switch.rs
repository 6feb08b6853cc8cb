//! A switch with one worker, and the packets that circulate in it. No other file of this bench
//! depends on switchd's internals.

use super::queue::{
    BRIDGE, Destination, Links, Loopback, PORTS, STATIONS, VLAN, neighbour_mac, port_mac, region,
    station,
};
use crate::everything;
use crate::measure::{busy_time, nanos_each};
use common::sync::snapshot::Publisher;
use common::sys::alloc::allocations;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::csig::Signal;
use common::wire::ethernet::ethertype;
use ipnet::IpNet;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::net::Ipv4Addr;
use std::sync::Arc;
use switchd::config::{Csig, Flows, PortFacts};
use switchd::drop::DropReason;
use switchd::flows::{Table, observers};
use switchd::forward::dlb::quality::QualityTable;
use switchd::forward::fib::FibWriter;
use switchd::id::{GroupId, NextHopId, PortId};
use switchd::insight::ecn::Mode;
use switchd::limits::BATCH;
use switchd::stats::{PortStats, Signed, WorkerStats};
use switchd::tables::bridge::{BridgePort, Bridging, Fdb, Station, StationUse};
use switchd::tables::buckets::{Buckets, Member};
use switchd::tables::interfaces::{Interface, Interfaces, LinkHeader, PortInterfaces, tag_key};
use switchd::tables::policy::Policy;
use switchd::tables::sources::PortRules;
use switchd::tables::validation::SourceValidation;
use switchd::tables::{Group, Hashing, NextHop, PortEntry, Tables};
use switchd::traffic::buffer::Ledger;
use switchd::worker::Worker;
use switchd::worker::builder::WorkerBuilder;
use switchd::worker::events::{QueueLink, WorkerCommand};
use switchd::worker::rings::{owners, rings};

/// Neighbours behind each port.
const NEIGHBOURS: u16 = 16;
/// Groups of several next hops.
const BALANCED: u32 = 16;
/// Virtual time of a turn; long enough for the shapers to let a batch go.
const TURN: Span = Span::from_micros(10);
/// The same, of jumbo frames.
const JUMBO_TURN: Span = Span::from_micros(400);

/// What a switch is to do.
#[derive(Clone, Copy)]
pub(super) struct Duties {
    /// With everything on, or plain.
    pub(super) everything: bool,
    /// All packets are queued.
    pub(super) queued: bool,
    /// RoCEv2 flows are analysed, with a table of the default size.
    pub(super) analysed: bool,
    /// AI ECN looks at the queues, and leaves the thresholds as they are.
    pub(super) watched: bool,
    /// How frames come and go.
    pub(super) links: Links,
}

impl Duties {
    /// A switch that does nothing but forward.
    pub(super) fn plain(links: Links) -> Self {
        Self {
            everything: false,
            queued: false,
            analysed: false,
            watched: false,
            links,
        }
    }
}

/// The policy of such a switch.
fn policy(duties: Duties) -> Policy {
    let mut policy = if duties.everything {
        everything_on(duties.watched)
    } else {
        let cells = if duties.links == Links::Jumbo {
            1 << 20
        } else {
            4096
        };
        Policy::plain(usize::from(PORTS), cells)
    };
    if duties.queued {
        // A group that takes nothing at one port is bypassed at none. No packet comes by this port.
        let mut shut = policy.ports[0].clone();
        shut.ingress_limit = 0;
        policy.ports.push(shut);
    }
    policy
}

fn everything_on(watched: bool) -> Policy {
    let (mut qos, _) = everything::settings();
    if watched {
        qos.aiecn.mode = Mode::Static;
    }
    let facts = |port: u16| PortFacts {
        name: format!("p{port}"),
        speed: Some(Rate::from_gbps(100)),
        link: Some(Rate::from_gbps(100)),
        burst: 1_250_000,
        mtu: 1500,
        ring: 1024,
        transmit_ring: 1024,
        uplink: false,
        announced: None,
    };
    let facts: Vec<PortFacts> = (0..PORTS).map(facts).collect();
    let policy = qos.compile(&facts).expect("it fits together").policy;
    assert_eq!(policy.sketched != 0, watched, "class 3 marks");
    policy
}

fn tables(duties: Duties) -> Tables {
    let is_jumbo = duties.links == Links::Jumbo;
    let csig = Csig {
        enabled: matches!(duties.links, Links::Signed(..)),
        ..Csig::default()
    };
    let ports = (0..PORTS).map(|port| PortEntry {
        name: format!("p{port}"),
        ifindex: u32::from(port),
        mac: port_mac(port),
        up: true,
        mtu: if is_jumbo { 9000 } else { 1500 },
        speed: Some(Rate::from_gbps(100)),
        link: Some(Rate::from_gbps(100)),
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        // What all ports receive in a turn may have to leave by one.
        burst: if is_jumbo { 8 << 20 } else { 125_000 },
        validation: SourceValidation::Off,
        csig: csig.of_port(""),
        int: None,
    });
    let policy = Arc::new(policy(duties));
    let mut tables = Tables::new(ports.collect(), Hashing::default(), policy);
    if duties.everything {
        let (_, dlb) = everything::settings();
        tables.dlb = Arc::new(dlb.policy());
    }
    for neighbour in 0..NEIGHBOURS {
        for port in 0..PORTS {
            let id = NextHopId(u32::try_from(tables.next_hops.len()).expect("few"));
            tables.next_hops.push(NextHop {
                port: PortId(port),
                ifindex: u32::from(port),
                address: Ipv4Addr::from_bits(id.0).into(),
                mac: Some(neighbour_mac(port, neighbour)),
                mtu: u16::MAX,
                source: None,
                link_header: link_header(duties.links, port),
            });
            tables.groups.push(Group::Forward(id));
        }
    }
    for group in 0..BALANCED {
        let member = |port: u32| {
            let id = (group * 4 + port) % u32::from(PORTS * NEIGHBOURS);
            Member {
                next_hop: NextHopId(id),
                key: u64::from(id),
                weight: 1,
            }
        };
        tables
            .groups
            .push(Group::Balance(Buckets::new(&[0, 1, 2, 3].map(member))));
    }
    if matches!(duties.links, Links::Svi | Links::Bridged | Links::Joined) {
        tables.bridging = Arc::new(bridging(duties.links));
    }
    if matches!(duties.links, Links::Tagged | Links::Svi) {
        tables.interfaces = Arc::new(interfaces(duties.links));
    }
    tables
}

/// The link header of frames that leave by an interface of this port.
fn link_header(links: Links, port: u16) -> Option<LinkHeader> {
    let mac = match links {
        Links::Tagged => port_mac(port),
        Links::Svi => BRIDGE,
        _ => return None,
    };
    let tag = links.has_tag(port).then_some((ethertype::VLAN, VLAN));
    Some(LinkHeader::new(mac, tag))
}

/// A bridge of all ports, which knows the stations behind each.
fn bridging(links: Links) -> Bridging {
    let mut bridging = Bridging {
        fdb: Fdb::new(1),
        used: Arc::new(StationUse::new(usize::from(PORTS) * STATIONS as usize)),
        ..Bridging::default()
    };
    let has_vlans = links != Links::Bridged;
    let vlan = if has_vlans { VLAN } else { 0 };
    for port in 0..PORTS {
        let mut entry = BridgePort {
            bridge: 1,
            forwards: true,
            ..BridgePort::default()
        };
        if has_vlans {
            entry.tag = Some(ethertype::VLAN);
            entry.members.insert(VLAN, VLAN);
            if !links.has_tag(port) {
                entry.pvid = Some(VLAN);
                entry.untagged.insert(VLAN, VLAN);
            }
        }
        bridging.ports.push(Some(entry));
        for number in 0..STATIONS {
            let known = Station {
                port: PortId(port),
                number: u32::from(port) * STATIONS + number,
            };
            bridging.fdb.insert(1, vlan, station(port, number), known);
        }
        if links == Links::Svi {
            // Who sends to the interface of the bridge.
            let known = Station {
                port: PortId(port),
                number: u32::from(port),
            };
            bridging.fdb.insert(1, vlan, neighbour_mac(port, 0), known);
        }
    }
    bridging
}

/// An interface that packets arrive for at all ports.
fn interfaces(links: Links) -> Interfaces {
    let on_port = |port| {
        let (mac, key) = match links {
            Links::Tagged => (port_mac(port), tag_key(ethertype::VLAN, VLAN)),
            _ => (BRIDGE, u32::from(VLAN)),
        };
        Some(PortInterfaces {
            mac,
            interfaces: vec![(key, 1)],
        })
    };
    Interfaces {
        all: vec![Interface {
            name: "vlan".to_owned(),
            icmp_v6: None,
            rules: PortRules::default(),
        }],
        on_port: (0..PORTS).map(on_port).collect(),
    }
}

/// The switch and the frames that go round in it.
pub(super) struct Switch {
    duties: Duties,
    ledger: Arc<Ledger>,
    worker: Worker<Loopback>,
    stats: Arc<WorkerStats>,
    /// What flow analysis saw, if it is on.
    followed: Option<Arc<Table>>,
    now: Time,
    /// Kept, or the worker would have nothing to read.
    _publisher: Publisher<Tables>,
}

impl Switch {
    pub(super) fn new(
        routes: &FibWriter,
        destinations: &Arc<[Destination]>,
        duties: Duties,
    ) -> Self {
        let publisher = Publisher::new(tables(duties));
        let region = region(duties.links);
        let stats = WorkerStats::new(usize::from(PORTS));
        let ledger = Ledger::new(usize::from(PORTS), 1);
        let handed = vec![(0..PORTS).map(PortId).collect::<Vec<_>>()];
        let (sender, commands) = crossbeam_channel::bounded(1);
        let mut followed = None;
        if duties.analysed {
            let slots = 2 * Flows::default().max_flows as usize;
            let (observer, ends) = observers(1, slots, Span::from_secs(60), 1)
                .pop()
                .expect("one worker");
            let observe = WorkerCommand::Observe(Some(Box::new(observer)));
            sender.try_send(observe).expect("room for one");
            followed = Some(ends.table);
        }
        let worker = WorkerBuilder {
            id: 0,
            queues: (0..PORTS)
                .map(|port| {
                    (
                        PortId(port),
                        Loopback::new(port, duties.links, destinations.clone(), &region),
                    )
                })
                .collect(),
            owners: owners(&handed, usize::from(PORTS)),
            rings: rings(1).pop().expect("one worker"),
            packets: region.frames(),
            ledger: ledger.clone(),
            quality: Arc::new(QualityTable::new(usize::from(PORTS))),
            seed: 1,
            region,
            reader: publisher.reader(),
            fib: routes.fib(),
            stats: stats.clone(),
            events: crossbeam_channel::bounded(1).0,
            commands,
            queue_link: QueueLink::none(),
        }
        .build();
        Self {
            duties,
            ledger,
            worker,
            stats,
            followed,
            now: Time::from_nanos(1),
            _publisher: publisher,
        }
    }

    fn sum(&self, count: impl Fn(&PortStats) -> u64) -> u64 {
        self.stats.ports.iter().map(count).sum()
    }

    fn received(&self) -> u64 {
        self.sum(|port| port.rx_packets.get())
    }

    /// Forwards about `least` packets.
    pub(super) fn forward(&mut self, least: u64) {
        let end = self.received() + least;
        let turn = if self.duties.links == Links::Jumbo {
            JUMBO_TURN
        } else {
            TURN
        };
        while self.received() < end {
            self.now += turn;
            self.worker.turn(self.now);
        }
    }

    /// Forwards about `least` packets; nanoseconds for each.
    ///
    /// # Errors
    /// If the packet path allocates.
    pub(super) fn turn(&mut self, least: u64) -> Result<f64, String> {
        let (before, allocated) = (self.received(), allocations());
        let began = busy_time();
        self.forward(least);
        let nanos = nanos_each(began, self.received() - before);
        match allocations() - allocated {
            0 => Ok(nanos),
            some => Err(format!("{some} allocations on the packet path")),
        }
    }

    /// Fails if anything was lost or refused, or if packets took another way than was to be
    /// measured.
    ///
    /// # Errors
    /// What was lost, or how many were queued.
    pub(super) fn check(&self) -> Result<(), String> {
        for reason in DropReason::ALL {
            let lost = self.sum(|port| port.dropped(*reason));
            if lost != 0 {
                return Err(format!("{lost} packets were dropped: {}", reason.label()));
            }
        }
        // What a turn receives, a cell each. Of those that bypass the queues some wait
        // nevertheless: more than a batch for a port.
        let turn = u64::from(PORTS) * BATCH as u64;
        let peak: u64 = (0..PORTS)
            .map(|port| self.ledger.port(PortId(port))[0].peak)
            .sum();
        if self.duties.links != Links::Jumbo && (peak >= turn) != self.duties.queued {
            return Err(format!("{peak} of {turn} packets of a turn were queued"));
        }
        let all = self.received();
        let (bridged, by_interface) = match self.duties.links {
            Links::Plain | Links::Jumbo | Links::Signed(..) => (0, 0),
            Links::Tagged | Links::Svi => (0, all),
            Links::Bridged | Links::Joined => (all, 0),
        };
        if let Links::Signed(_, signal) = self.duties.links {
            // Packets that find their ports idle have no delay.
            let (outcome, word) = if signal == Signal::Delay {
                (Signed::Kept, "compared")
            } else {
                (Signed::Updated, "updated")
            };
            let signed = self.sum(|port| port.csig.signed[outcome as usize].get());
            if signed < all / 2 {
                return Err(format!("of {all} tags only {signed} were {word}"));
            }
        }
        if let Some(table) = &self.followed {
            let it = &table.counters;
            // Those of IPv6 have no room for all that a RoCEv2 packet begins with.
            let seen = it.packets.get() + it.cut.get();
            if (seen, it.unfollowed.get()) != (all, 0) {
                return Err(format!("of {all} packets {seen} were analysed"));
            }
        }
        let found = (
            self.sum(|port| port.bridged_packets.get()),
            self.sum(|port| port.interface_packets.get()),
        );
        if found != (bridged, by_interface) {
            return Err(format!(
                "of {all} packets {} were bridged and {} for an interface",
                found.0, found.1
            ));
        }
        Ok(())
    }
}

/// The route table of all switches: half of the routes have several next hops.
///
/// # Errors
/// If it has no room for them.
pub(super) fn fill(table: &[IpNet], random: &mut Pcg64Mcg) -> Result<FibWriter, String> {
    let mut routes = FibWriter::new();
    let plain = Duties::plain(Links::Plain);
    let groups = u32::try_from(tables(plain).groups.len()).expect("few groups");
    for prefix in table {
        let balanced = random.next_u32().is_multiple_of(2);
        let single = groups - BALANCED;
        let group = if balanced {
            single + random.next_u32() % BALANCED
        } else {
            random.next_u32() % single
        };
        routes
            .insert(*prefix, GroupId(group))
            .map_err(|error| error.to_string())?;
        routes.seal(0);
        routes.reclaim(|_| true);
    }
    Ok(routes)
}
