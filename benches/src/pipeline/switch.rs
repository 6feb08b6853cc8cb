//! SW-1, SW-2: the packet path of one worker without I/O: from parse to rewrite, on a full Internet table.
//!
//! The ports' queues give frames whose headers were just written, as a device leaves them in the cache,
//! to random destinations; what is transmitted is received again with another destination. What that
//! costs by itself is measured too, by handing each batch from receive to transmit directly, and
//! subtracted.
//!
//! A plain switch sees a destination once in a million packets, which is the worst for its look-ups. With everything on, what is
//! remembered of flows counts too: its packets are of [`FLOWS`] flows, and what a million flows cost, each of whose packets takes
//! the place of another flow, is shown beside it. Packets find their ports idle and bypass the queues; what those cost, with the
//! accounts of the buffer and the scheduler, is measured with a port more, whose groups take nothing: then no packet bypasses any.

use crate::everything::{self, TRAFFIC_CLASS};
use crate::measure::{Series, busy_time, print_figures};
use crate::routes::{self, FULL_V4, FULL_V6};
use common::sync::snapshot::Publisher;
use common::sys::alloc::allocations;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::ip::{protocol, v4, v6};
use common::wire::{Mac, ethernet, udp};
use common::xdp::frame::{Frame, FramePool, Region};
use common::xdp::queue::QueueIo;
use ipnet::IpNet;
use rand_core::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use switchd::config::PortFacts;
use switchd::drop::DropReason;
use switchd::ingress::balance::{Buckets, Member};
use switchd::ingress::fib::FibWriter;
use switchd::ingress::quality::Board;
use switchd::ingress::tables::{
    Group, GroupId, Hashing, NextHop, NextHopId, PortEntry, PortId, Tables,
};
use switchd::limits::BATCH;
use switchd::stats::WorkerStats;
use switchd::traffic::buffer::Ledger;
use switchd::traffic::policy::Policy;
use switchd::worker::{Setup, Worker, owners, rings};

/// The bound, in nanoseconds for a packet to a random route of the table, of either family by its share of the routes; with
/// everything on and [`FLOWS`] flows, too.
const LIMIT: f64 = 130.0;

/// What is measured.
const CASES: [&str; 5] = [
    "plain",
    "plain, queued",
    "everything on, 2048 flows",
    "everything on, 2048 flows, queued",
    "everything on, 1 M flows",
];
/// The first so many cases are bounded.
const BOUNDED: usize = 4;

/// Ports of the switch.
const PORTS: u16 = 4;
/// Neighbours behind each port.
const NEIGHBOURS: u16 = 16;
/// Groups of several next hops.
const BALANCED: u32 = 16;
/// Frames that go round at each port.
const FRAMES: usize = 256;
/// Destinations, in random order.
const DESTINATIONS: usize = 1 << 20;
/// Flows of the traffic that is not of a million: what a worker has at the same time on a busy switch.
const FLOWS: usize = 2048;
/// Packets of a round.
const PACKETS: usize = 2_000_000;
/// Rounds of each contender.
const ROUNDS: usize = 9;
/// Bytes of each frame.
const LEN: usize = 64;
/// Virtual time of a turn; long enough for the shapers to let a batch go.
const TURN: Span = Span::from_micros(10);

/// What is written into a frame before it is received: its destination, and what depends on it.
#[derive(Clone, Copy)]
enum Destination {
    V4([u8; 4], u16),
    V6([u8; 16]),
}

/// A port's queue that receives what it transmitted, with the next destination.
struct Round {
    idle: Vec<Frame>,
    header: [u8; LEN],
    destinations: Arc<[Destination]>,
    next: usize,
}

impl Round {
    fn new(port: u16, destinations: Arc<[Destination]>, region: &Arc<Region>) -> Self {
        let mut header = [0; LEN];
        let (own, other) = (Mac(port_mac(port)), Mac(neighbour_mac(port, 0)));
        let src_port = 49_152 + port;
        match destinations[0] {
            Destination::V4(..) => {
                ethernet::emit(&mut header, own, other, ethernet::ethertype::IPV4);
                v4_header(Ipv4Addr::UNSPECIFIED).emit(&mut header[14..]);
                udp::emit(&mut header[34..], src_port, 4791, 30);
            }
            Destination::V6(_) => {
                ethernet::emit(&mut header, own, other, ethernet::ethertype::IPV6);
                v6_header().emit(&mut header[14..]);
                udp::emit(&mut header[54..], src_port, 4791, 10);
            }
        }
        let mut pool = FramePool::new(region.clone());
        // Room for all frames: they leave by another port than they came.
        let mut idle = Vec::with_capacity(usize::from(PORTS) * FRAMES);
        idle.extend((0..FRAMES).map_while(|_| pool.take_sized(LEN)));
        let next = usize::from(port) * DESTINATIONS / usize::from(PORTS);
        Self {
            idle,
            header,
            destinations,
            next,
        }
    }
}

impl QueueIo for Round {
    fn receive(&mut self, _: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let count = self.idle.len().min(max);
        for mut frame in self.idle.drain(..count) {
            let bytes = frame.bytes_mut();
            bytes.copy_from_slice(&self.header);
            match self.destinations[self.next % DESTINATIONS] {
                Destination::V4(address, sum) => {
                    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
                    bytes[30..34].copy_from_slice(&address);
                }
                Destination::V6(address) => bytes[38..54].copy_from_slice(&address),
            }
            self.next += 1;
            batch.push(frame);
        }
        count
    }

    fn transmit_room(&mut self, _: &mut FramePool) -> usize {
        usize::from(PORTS) * FRAMES - self.idle.len()
    }

    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        self.idle.append(batch);
        count
    }

    fn flush(&mut self, _: &mut FramePool, _: Time) {}

    fn in_flight(&self) -> usize {
        0
    }
}

fn port_mac(port: u16) -> [u8; 6] {
    let [high, low] = port.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

fn neighbour_mac(port: u16, neighbour: u16) -> [u8; 6] {
    let [_, port] = port.to_be_bytes();
    let [high, low] = neighbour.to_be_bytes();
    [2, 0, 1, port, high, low]
}

fn v4_header(dst: Ipv4Addr) -> v4::Repr {
    v4::Repr {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst,
        traffic_class: TRAFFIC_CLASS,
        ident: 0,
        ttl: 64,
        protocol: protocol::UDP,
        payload_len: 30,
    }
}

fn v6_header() -> v6::Repr {
    v6::Repr {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::UNSPECIFIED,
        traffic_class: TRAFFIC_CLASS,
        flow_label: 7,
        hop_limit: 64,
        next_header: protocol::UDP,
        payload_len: 10,
    }
}

/// What a switch is to do.
#[derive(Clone, Copy)]
struct Duties {
    /// With everything on, or plain.
    everything: bool,
    /// All packets are queued.
    queued: bool,
}

/// The policy of such a switch.
fn policy(duties: Duties) -> Policy {
    let mut policy = if duties.everything {
        everything_on()
    } else {
        Policy::plain(usize::from(PORTS), 4096)
    };
    if duties.queued {
        // A group that takes nothing at one port is bypassed at none. No packet comes by this port.
        let mut shut = policy.ports[0].clone();
        shut.ingress_limit = 0;
        policy.ports.push(shut);
    }
    policy
}

fn everything_on() -> Policy {
    let (qos, _) = everything::settings();
    let facts = |port: u16| PortFacts {
        name: format!("p{port}"),
        speed: Some(Rate::from_gbps(100)),
        mtu: 1500,
        ring: 1024,
        uplink: false,
    };
    let facts: Vec<PortFacts> = (0..PORTS).map(facts).collect();
    qos.compile(&facts).expect("it fits together").policy
}

fn tables(duties: Duties) -> Tables {
    let ports = (0..PORTS).map(|port| PortEntry {
        name: format!("p{port}"),
        ifindex: u32::from(port),
        mac: port_mac(port),
        up: true,
        mtu: 1500,
        speed: Some(Rate::from_gbps(100)),
        icmp_v4: None,
        icmp_v6: None,
        burst: 125_000,
    });
    let policy = Arc::new(policy(duties));
    let mut tables = Tables::new(ports.collect(), Hashing::default(), policy);
    if duties.everything {
        let (_, dlb) = everything::settings();
        tables.dynamic = Arc::new(dlb.dynamic());
    }
    for neighbour in 0..NEIGHBOURS {
        for port in 0..PORTS {
            let id = NextHopId(u32::try_from(tables.next_hops.len()).expect("few"));
            tables.next_hops.push(NextHop {
                port: PortId(port),
                ifindex: u32::from(port),
                address: Ipv4Addr::from_bits(id.0).into(),
                mac: Some(neighbour_mac(port, neighbour)),
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
    tables
}

/// The switch and the frames that go round in it.
struct Rig {
    /// All packets are to be queued; if not, only those that are too many for a turn are.
    queued: bool,
    ledger: Arc<Ledger>,
    worker: Worker<Round>,
    stats: Arc<WorkerStats>,
    now: Time,
    /// Kept, or the worker would have nothing to read.
    _publisher: Publisher<Tables>,
}

impl Rig {
    fn new(routes: &FibWriter, destinations: &Arc<[Destination]>, duties: Duties) -> Self {
        let publisher = Publisher::new(tables(duties));
        let region = region();
        let stats = WorkerStats::new(usize::from(PORTS));
        let ledger = Ledger::new(usize::from(PORTS), 1);
        let handed = vec![(0..PORTS).map(PortId).collect::<Vec<_>>()];
        let (rings_in, rings_out) = rings(1).pop().expect("one worker");
        let worker = Worker::new(Setup {
            id: 0,
            queues: (0..PORTS)
                .map(|port| {
                    (
                        PortId(port),
                        Round::new(port, destinations.clone(), &region),
                    )
                })
                .collect(),
            owners: owners(&handed, usize::from(PORTS)),
            rings_in,
            rings_out,
            packets: region.frames(),
            ledger: ledger.clone(),
            board: Arc::new(Board::new(usize::from(PORTS))),
            seed: 1,
            region,
            reader: publisher.reader(),
            fib: routes.fib(),
            stats: stats.clone(),
            events: crossbeam_channel::bounded(1).0,
            commands: crossbeam_channel::bounded(1).1,
        });
        Self {
            queued: duties.queued,
            ledger,
            worker,
            stats,
            now: Time::from_nanos(1),
            _publisher: publisher,
        }
    }

    fn received(&self) -> u64 {
        self.stats
            .ports
            .iter()
            .map(|port| port.rx_packets.get())
            .sum()
    }

    /// Forwards about [`PACKETS`] packets; nanoseconds for each.
    fn round(&mut self) -> f64 {
        let before = self.received();
        let began = busy_time();
        while self.received() < before + PACKETS as u64 {
            self.now += TURN;
            self.worker.turn(self.now);
        }
        nanos_each(began, self.received() - before)
    }

    /// Fails if anything was lost or refused, or if packets took another way than was to be measured.
    fn check(&self) -> Result<(), String> {
        for reason in DropReason::ALL {
            let lost: u64 = self
                .stats
                .ports
                .iter()
                .map(|port| port.dropped(*reason))
                .sum();
            if lost != 0 {
                return Err(format!("{lost} packets were dropped: {}", reason.label()));
            }
        }
        // What a turn receives, a cell each. Of those that bypass the queues some wait nevertheless: more than a batch for a port.
        let turn = u64::from(PORTS) * BATCH as u64;
        let peak: u64 = (0..PORTS)
            .map(|port| self.ledger.port(PortId(port))[0].peak)
            .sum();
        if (peak >= turn) != self.queued {
            return Err(format!("{peak} of {turn} packets of a turn were queued"));
        }
        Ok(())
    }
}

fn region() -> Arc<Region> {
    Region::heap(u32::from(PORTS) * 512, 2048, 256)
}

fn nanos_each(began: Duration, packets: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let nanos = (busy_time() - began).as_nanos() as f64 / packets as f64;
    nanos
}

/// What the queues alone cost.
fn queues_only(queues: &mut [Round], pool: &mut FramePool) -> f64 {
    let mut batch = Vec::with_capacity(BATCH);
    let (mut packets, began) = (0, busy_time());
    while packets < PACKETS as u64 {
        for queue in &mut *queues {
            packets += queue.receive(pool, &mut batch, BATCH) as u64;
            queue.transmit(&mut batch);
        }
    }
    nanos_each(began, packets)
}

/// Runs the bench and prints its table.
///
/// # Errors
/// If a packet is lost or takes another way than is measured, if the packet path allocates, or if a packet takes longer than
/// [`LIMIT`].
pub fn bench() -> Result<(), String> {
    let mut random = routes::random();
    let table = routes::table(FULL_V4, FULL_V6, &mut random);
    let mut routes = FibWriter::new();
    let plain = Duties {
        everything: false,
        queued: false,
    };
    let groups = u32::try_from(tables(plain).groups.len()).expect("few groups");
    for prefix in &table {
        // Half of the routes have several next hops.
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
    let mut means = [0.0; CASES.len()];
    let mut figures = Vec::new();
    for (name, v4) in [("IPv4", true), ("IPv6", false)] {
        let destinations = destinations(&table, v4, &mut random);
        let measured = measure(&routes, &destinations)?;
        let share = if v4 { FULL_V4 } else { FULL_V6 };
        #[expect(clippy::cast_precision_loss, reason = "shares of a table")]
        let share = share as f64 / (FULL_V4 + FULL_V6) as f64;
        for ((what, series), mean) in CASES.iter().zip(&measured).zip(&mut means) {
            let figure = format!("{:.1} ±{:.1} %", series.median(), series.spread() * 100.0);
            figures.push((format!("{name}, {what}"), figure));
            *mean += series.median() * share;
        }
    }
    for (what, mean) in CASES.iter().zip(means) {
        figures.push((format!("a random route, {what}"), format!("{mean:.1}")));
    }
    print_figures(
        "pipeline, parse to rewrite, 1.25 M routes",
        "ns a packet",
        &figures,
    );
    for (what, mean) in CASES.iter().zip(means).take(BOUNDED) {
        if mean > LIMIT {
            return Err(format!(
                "{what}: {mean:.1} ns a packet, at most {LIMIT} are allowed"
            ));
        }
    }
    Ok(())
}

fn destinations(table: &[IpNet], v4: bool, random: &mut rand_pcg::Pcg64Mcg) -> Arc<[Destination]> {
    let mut destinations = Vec::with_capacity(DESTINATIONS);
    while destinations.len() < DESTINATIONS {
        let which = usize::try_from(random.next_u64()).expect("64-bit machine") % table.len();
        match routes::inside(table[which], random) {
            // Loopback addresses are in the table, but not on a wire.
            IpAddr::V4(dst) if v4 && !dst.is_loopback() && !dst.is_link_local() => {
                let mut ip = [0; 20];
                v4_header(dst).emit(&mut ip);
                let sum = u16::from_be_bytes([ip[10], ip[11]]);
                destinations.push(Destination::V4(dst.octets(), sum));
            }
            IpAddr::V6(dst) if !v4 => destinations.push(Destination::V6(dst.octets())),
            _ => {}
        }
    }
    destinations.into()
}

/// The same destinations again and again, so few that there are [`FLOWS`] flows: each port has a source port of its own.
fn few(destinations: &[Destination]) -> Arc<[Destination]> {
    let few = destinations.iter().take(FLOWS / usize::from(PORTS)).cycle();
    few.copied().take(DESTINATIONS).collect()
}

/// What the pipeline costs in each of the [`CASES`], in rounds that take turns.
fn measure(
    routes: &FibWriter,
    destinations: &Arc<[Destination]>,
) -> Result<[Series; CASES.len()], String> {
    let few = few(destinations);
    let rig = |destinations, everything, queued| {
        let duties = Duties { everything, queued };
        Rig::new(routes, destinations, duties)
    };
    let mut rigs = [
        rig(destinations, false, false),
        rig(destinations, false, true),
        rig(&few, true, false),
        rig(&few, true, true),
        rig(destinations, true, false),
    ];
    let region = region();
    let mut pool = FramePool::new(region.clone());
    let mut queues: Vec<_> = (0..PORTS)
        .map(|port| Round::new(port, destinations.clone(), &region))
        .collect();
    // Buffers grow to their size before anything is counted.
    for rig in &mut rigs {
        rig.round();
    }
    queues_only(&mut queues, &mut pool);
    let mut series = CASES.map(Series::new);
    for _ in 0..ROUNDS {
        let queues = queues_only(&mut queues, &mut pool);
        for (rig, series) in rigs.iter_mut().zip(&mut series) {
            let before = allocations();
            let nanos = rig.round();
            let allocated = allocations() - before;
            series.rounds.push(nanos - queues);
            if allocated != 0 {
                return Err(format!(
                    "{}: {allocated} allocations on the packet path",
                    series.name
                ));
            }
        }
    }
    for rig in &rigs {
        rig.check()?;
    }
    Ok(series)
}
