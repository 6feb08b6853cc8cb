//! A whole worker of the switch against any frames, on simulated ports.

use super::program::Program;
use super::traffic::{audit, is_empty, variant};
use common::sync::snapshot::Publisher;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::csig::Tpids;
use common::wire::ethernet;
use common::wire::pause::Control;
use common::xdp::PuntReason;
use common::xdp::frame::{FramePool, Region};
use common::xdp::sim::SimQueue;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use switchd::config::csig::Port as CsigPort;
use switchd::config::int::Port as IntPort;
use switchd::config::{Csig, Int};
use switchd::forward::dlb::quality::QualityTable;
use switchd::forward::fib::FibWriter;
use switchd::id::{GroupId, NextHopId, PortId};
use switchd::ingress::parse::{Arrived, ParseException, parse_partial};
use switchd::packet::Parsed;
use switchd::stats::{PortStats, WorkerStats};
use switchd::tables::buckets::{Buckets, Member};
use switchd::tables::csig::Mode;
use switchd::tables::reading::Reading;
use switchd::tables::validation::SourceValidation;
use switchd::tables::{Group, Hashing, NextHop, PortEntry, Tables};
use switchd::traffic::buffer::Ledger;
use switchd::worker::Worker;
use switchd::worker::builder::WorkerBuilder;
use switchd::worker::events::{QueueLink, WorkerCommand, WorkerEvent};
use switchd::worker::rings::rings;

const PORTS: u16 = 4;
const FRAMES: u32 = 1024;
/// The ports' own MAC addresses: that of the samples' destination, so that they are routed.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Turns of a drain that begin when the worker wants them; later ones are [`STEP`] apart, so that a
/// wait of seconds is over soon.
const PROMPT: usize = 256;
/// Turns after which nothing that could be sent still waits: 40 s with the slowest shaper, beyond
/// any pause, storm or question for a neighbour.
const TURNS: usize = 4096;
const STEP: Span = Span::from_millis(10);
/// What passes in a step that waits for the worker at most, and at rest.
const REST: Span = Span::from_secs(10);
/// Where UDP source ports are in frames without tags, over IPv4 and IPv6.
const SOURCE_PORT: [usize; 2] = [34, 54];

/// One frame, taken for one that is to be routed.
pub(super) fn parse(input: &[u8]) {
    let own = input.first_chunk().copied().unwrap_or(MAC);
    if let Ok(parsed) = parse_frame(input, own) {
        assert!(
            usize::from(parsed.network)
                >= ethernet::HEADER_LEN + usize::from(parsed.edits.tag_len())
        );
        let (network, transport) = (usize::from(parsed.network), usize::from(parsed.transport));
        assert!(network + usize::from(parsed.ip_len) <= input.len());
        assert!(transport == 0 || (network < transport && transport <= input.len()));
    }
}

/// A series of frames and of things that happen to the switch.
///
/// A step is a byte, what to do in its low four bits and to which port in the next two; arguments
/// follow. The highest bit lets the next step come in the same turn.
pub(super) fn turns(input: &[u8]) {
    played(input);
}

/// Runs a series; what was counted.
fn played(input: &[u8]) -> Arc<WorkerStats> {
    let mut switch = Switch::new();
    let stats = switch.stats.clone();
    let mut program = Program::new(input);
    while !program.is_over() {
        switch.step(&mut program);
    }
    switch.settle();
    stats
}

struct Switch {
    /// There until the end of a series.
    worker: Option<Worker<SimQueue>>,
    stats: Arc<WorkerStats>,
    ledger: Arc<Ledger>,
    wires: Vec<SimQueue>,
    publisher: Publisher<Tables>,
    fib: FibWriter,
    outside: FramePool,
    events: Receiver<WorkerEvent>,
    commands: Sender<WorkerCommand>,
    now: Time,
    /// When the worker wants its next turn.
    deadline: Time,
    offered: u64,
}

/// Congestion signals: each port does something else with them.
fn csig() -> Csig {
    let port = |name: &str, mode, trusted| CsigPort {
        ports: vec![name.to_owned()],
        mode: Some(mode),
        trusted: Some(trusted),
        ..CsigPort::default()
    };
    Csig {
        enabled: true,
        port: vec![
            port("p1", Mode::PassThrough, true),
            port("p2", Mode::Update, false),
            port("p3", Mode::Strip, true),
        ],
        ..Csig::default()
    }
}

/// Telemetry: the same.
fn int() -> Int {
    let port = |name: &str, mode, trusted| IntPort {
        ports: vec![name.to_owned()],
        mode: Some(mode),
        trusted: Some(trusted),
    };
    Int {
        enabled: true,
        port: vec![
            port("p1", Mode::PassThrough, true),
            port("p2", Mode::Update, false),
            port("p3", Mode::Strip, true),
        ],
        ..Int::default()
    }
}

/// Reads a frame at a port with this address where tags are known.
fn parse_frame(frame: &[u8], own: [u8; 6]) -> Result<Parsed, ParseException> {
    let reading = Some(Reading {
        tpids: Tpids::default(),
        trusts_csig: true,
        trusts_int: true,
    });
    parse_partial(frame, frame.len(), Arrived { own, reading }, |_| false)
}

fn entry(number: u16) -> PortEntry {
    let name = format!("p{number}");
    PortEntry {
        csig: csig().of_port(&name),
        int: int().of_port(&name),
        name,
        ifindex: 100 + u32::from(number),
        mac: MAC,
        up: true,
        mtu: if number == 3 { 576 } else { 1500 },
        speed: (number == 2).then(|| Rate::from_gbps(1)),
        link: (number == 2).then(|| Rate::from_gbps(1)),
        icmp_v4: (number != 1).then(|| Ipv4Addr::new(10, 0, 0, 254)),
        icmp_v6: (number != 1).then(|| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe)),
        mtu_v6: u16::MAX,
        burst: 125_000,
        validation: SourceValidation::Off,
    }
}

/// Tables with a group of every kind.
fn tables() -> Tables {
    let mut tables = Tables::new(
        (0..PORTS).map(entry).collect(),
        Hashing {
            destination_qp: true,
            ..Hashing::default()
        },
        variant(0).policy(),
    );
    for number in 0..PORTS {
        tables.next_hops.push(NextHop {
            port: PortId(number),
            ifindex: 100 + u32::from(number),
            address: IpAddr::from([10, 0, 0, 2]),
            // One neighbour is not known yet.
            mac: (number != 3).then_some([2, 0, 0, 0, 1, 0]),
            mtu: if number == 2 { 800 } else { u16::MAX },
            source: None,
            link_header: None,
        });
        tables
            .groups
            .push(Group::Forward(NextHopId(u32::from(number))));
    }
    let member = |number| Member {
        key: u64::from(number),
        next_hop: NextHopId(number),
        weight: 1,
    };
    tables.groups.extend([
        Group::Balance(Buckets::new(&[member(0), member(1), member(2)])),
        Group::Glean {
            port: PortId(1),
            ifindex: 101,
            mtu: u16::MAX,
        },
        Group::Local,
        Group::Blackhole,
        Group::Unreachable,
        Group::Prohibit,
        Group::Punt(PuntReason::NotAPort),
    ]);
    tables.check().expect("tables that refer to what is there");
    tables
}

/// Routes to every group, and to one that does not exist; the samples' peers are balanced.
fn routes(groups: usize) -> FibWriter {
    let mut fib = FibWriter::new();
    let mut add = |prefix: String, group: usize| {
        let group = GroupId(u32::try_from(group).expect("few groups"));
        fib.insert(prefix.parse().expect("a prefix"), group)
            .expect("room");
    };
    for group in 0..=groups {
        add(format!("10.0.{group}.0/24"), group);
        add(format!("fd00::{group:x}:0:0/96"), group);
    }
    add("10.0.0.2/32".to_owned(), usize::from(PORTS));
    add("fd00::2/128".to_owned(), usize::from(PORTS));
    fib
}

impl Switch {
    fn new() -> Self {
        let tables = tables();
        let fib = routes(tables.groups.len());
        let publisher = Publisher::new(tables);
        let region = Region::heap(FRAMES, 2048, 64);
        let wires: Vec<_> = (0..PORTS).map(|_| SimQueue::new(64)).collect();
        let (events_to, events) = bounded(4);
        let (commands, commands_from) = bounded(4);
        let stats = WorkerStats::new(usize::from(PORTS));
        let ledger = Ledger::new(usize::from(PORTS), 1);
        let worker = WorkerBuilder {
            id: 0,
            queues: (0..PORTS).map(PortId).zip(wires.iter().cloned()).collect(),
            owners: vec![0; usize::from(PORTS)],
            rings: rings(1).pop().expect("one worker"),
            region: region.clone(),
            packets: FRAMES,
            ledger: ledger.clone(),
            quality: Arc::new(QualityTable::new(usize::from(PORTS))),
            seed: 1,
            reader: publisher.reader(),
            fib: fib.fib(),
            stats: stats.clone(),
            events: events_to,
            commands: commands_from,
            queue_link: QueueLink::none(),
        }
        .build();
        Self {
            worker: Some(worker),
            stats,
            ledger,
            wires,
            publisher,
            fib,
            outside: FramePool::new(region),
            events,
            commands,
            now: Time::from_nanos(1),
            deadline: Time::NEVER,
            offered: 0,
        }
    }

    fn worker(&mut self) -> &mut Worker<SimQueue> {
        self.worker.as_mut().expect("a series that is not over")
    }

    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        let port = usize::from(byte >> 4 & 3);
        match byte & 0x0f {
            0 => self.now += Span::from_micros(u64::from(program.u16())),
            1 => self.now += Span::from_millis(u64::from(program.u16())),
            2 => self.publish(|tables| tables.ports[port].up ^= true),
            3 => self.publish(|tables| {
                let mac = &mut tables.next_hops[port].mac;
                *mac = if mac.is_some() {
                    None
                } else {
                    Some([2, 0, 0, 0, 1, 1])
                };
            }),
            4 => {
                let mtu = program.u16().max(68);
                self.publish(|tables| tables.ports[port].mtu = mtu);
            }
            5 => self.wires[port].set_room(usize::from(program.u8() & 63)),
            6 => {
                let prefix = IpAddr::from([10, 0, program.u8(), program.u8()]);
                let group = GroupId(u32::from(program.u8() & 15));
                let _ = self.fib.insert(prefix.into(), group);
            }
            7 => self.turn(),
            8 => {
                let bytes = program.block();
                (0..32).for_each(|_| self.offer(port, bytes));
            }
            10 => {
                let chosen = variant(program.u8());
                self.publish(|tables| chosen.apply(tables));
            }
            11 => self.command(port, program.u8()),
            12 => self.now = self.now.max(self.deadline.min(self.now + REST)),
            13 => self.offer_flows(port, program.block()),
            _ => self.offer(port, program.block()),
        }
        if byte & 0x80 == 0 {
            self.turn();
        }
    }

    fn publish(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = (*self.publisher.current()).clone();
        change(&mut tables);
        self.publisher.publish(tables);
    }

    fn offer(&mut self, port: usize, bytes: &[u8]) {
        if let Some(frame) = self.outside.take_filled(bytes) {
            self.wires[port].deliver(frame);
            self.offered += 1;
        }
    }

    /// Frames of eight flows in turn.
    fn offer_flows(&mut self, port: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let at = SOURCE_PORT[usize::from(bytes.get(12) == Some(&0x86))] + 1;
        for flow in 0..32 {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = flow & 7;
            }
            self.offer(port, &bytes);
        }
    }

    /// What an operator can tell a worker. A full channel is the operator's loss.
    fn command(&self, port: usize, what: u8) {
        let port = PortId(u16::try_from(port).expect("few ports"));
        self.stats.flowlet_rows.ask();
        let command = match what & 3 {
            0 => WorkerCommand::Hold {
                port,
                classes: what >> 2,
            },
            1 => WorkerCommand::EnablePfc {
                port,
                priority: what >> 2 & 7,
            },
            _ => WorkerCommand::Hold { port, classes: 0 },
        };
        let _ = self.commands.try_send(command);
    }

    fn turn(&mut self) {
        let now = self.now;
        self.deadline = self.worker().turn(now).deadline;
        for wire in &self.wires {
            while let Some(frame) = wire.pick_up() {
                check_sent(frame.bytes());
                self.outside.give(frame);
            }
        }
        while self.events.try_recv().is_ok() {}
        audit(&self.ledger, &self.stats);
    }

    /// Lets everything leave that is held: at the times at which the worker wants to be asked.
    fn drain(&mut self) {
        self.publish(|tables| tables.ports.iter_mut().for_each(|port| port.up = true));
        self.wires.iter().for_each(|wire| wire.set_room(64));
        self.turn();
        self.commands.try_send(WorkerCommand::Drain).expect("room");
        for turn in 0..TURNS {
            self.turn();
            if self.worker().held() == 0 {
                return;
            }
            assert!(self.deadline < Time::NEVER, "a worker sleeps with packets");
            let next = self.now + STEP;
            let due = if turn < PROMPT {
                self.deadline.min(next)
            } else {
                next
            };
            self.now = due.max(self.now + Span::from_nanos(1));
        }
    }

    fn sum(&self, count: fn(&PortStats) -> u64) -> u64 {
        self.stats.ports.iter().map(count).sum()
    }

    /// Who holds nothing asks nobody for silence.
    fn is_silent(&mut self) {
        self.now += REST;
        self.turn();
        let sent = self.sum(|port| port.control_sent.get());
        self.now += REST;
        self.turn();
        let after = self.sum(|port| port.control_sent.get());
        assert_eq!(sent, after, "an empty switch pauses its peers");
    }

    /// Everything leaves, by a port or under a reason: nothing is held, lost or made up.
    fn settle(mut self) {
        self.drain();
        let policy = self.publisher.current().traffic.clone();
        is_empty(&self.ledger, &policy, usize::from(PORTS));
        self.is_silent();
        let arrived: usize = self.wires.iter().map(SimQueue::arrived).sum();
        assert_eq!(self.worker().held(), 0, "packets held after the drain");
        let received = self.sum(|port| port.rx_packets.get());
        assert_eq!(
            self.offered,
            received + u64::try_from(arrived).expect("few")
        );
        let made = self.sum(PortStats::made);
        let out = self.sum(|port| port.tx_packets.get() + port.ended());
        assert_eq!(received + made, out, "received and made, sent and dropped");
        self.worker = None;
        let free = self.outside.free_frames();
        assert_eq!(free + arrived, FRAMES as usize, "frames are lost");
    }
}

impl Drop for Switch {
    /// A worker whose books are wrong would find that once more while it empties itself, and hide
    /// the first finding.
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(self.worker.take());
        }
    }
}

/// What leaves can be read by the next switch: marked, trimmed and rewritten, every length and
/// checksum is right.
fn check_sent(bytes: &[u8]) {
    let own = *bytes.first_chunk().expect("a destination");
    match parse_frame(bytes, own) {
        Ok(parsed) => assert!(parsed.ttl > 0, "sent with nothing left of its TTL"),
        Err(ParseException::Control) => {
            let payload = &bytes[ethernet::HEADER_LEN..];
            assert!(Control::parse(payload).is_ok(), "an impossible pause");
        }
        Err(ParseException::Lost(reason)) => panic!("sent, and nobody can read it: {reason:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use switchd::drop::DropReason;
    use switchd::stats::{PauseStats, QueueStats};

    type Count = (&'static str, fn(&WorkerStats) -> u64);

    fn ports(stats: &WorkerStats, count: impl Fn(&PortStats) -> u64) -> u64 {
        stats.ports.iter().map(count).sum()
    }

    fn pauses(stats: &WorkerStats, count: impl Fn(&PauseStats) -> u64) -> u64 {
        ports(stats, |port| port.pauses.iter().map(&count).sum())
    }

    fn queues(stats: &WorkerStats, count: impl Fn(&QueueStats) -> u64) -> u64 {
        ports(stats, |port| port.queues.iter().map(&count).sum())
    }

    const COUNTS: &[Count] = &[
        ("marked", |it| {
            queues(it, |queue| queue.marked_packets.get())
        }),
        ("trimmed", |it| {
            queues(it, |queue| queue.trimmed_packets.get())
        }),
        ("trimmed, sent", |it| {
            ports(it, |port| port.trimmed_sent.get())
        }),
        ("xoff sent", |it| pauses(it, |pause| pause.sent_xoff.get())),
        ("xon sent", |it| pauses(it, |pause| pause.sent_xon.get())),
        ("PAUSE sent", |it| {
            ports(it, |port| port.link_pauses[1].get())
        }),
        ("PAUSE heard", |it| {
            ports(it, |port| port.link_pauses[0].get())
        }),
        ("xoff heard", |it| {
            pauses(it, |pause| pause.received_xoff.get())
        }),
        ("xon heard", |it| {
            pauses(it, |pause| pause.received_xon.get())
        }),
        ("ignored", |it| pauses(it, |pause| pause.ignored.get())),
        ("storms", |it| pauses(it, |pause| pause.storms.get())),
        ("restored", |it| pauses(it, |pause| pause.restored.get())),
        ("flowlets", |it| it.flowlets.started.get()),
        ("moved flowlets", |it| it.flowlets.moved.get()),
        ("demoted", |it| it.elephants.demoted.get()),
        ("restored elephants", |it| it.elephants.restored.get()),
    ];

    const REASONS: &[DropReason] = &[
        DropReason::ControlLength,
        DropReason::ControlOpcode,
        DropReason::ControlVector,
        DropReason::Malformed,
        DropReason::EgressDown,
        DropReason::IngressFull,
        DropReason::HeadroomFull,
        DropReason::QueueFull,
        DropReason::Wred,
        DropReason::TrimFull,
        DropReason::PfcStorm,
    ];

    /// What is kept reaches every part of the traffic manager: mutations begin where something
    /// happens.
    #[test]
    fn the_corpus_reaches_the_traffic_manager() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/switch_turns");
        let entries = std::fs::read_dir(folder).expect("the corpus");
        let paths = entries.map(|entry| entry.expect("a readable folder").path());
        let inputs = paths.map(|path| std::fs::read(path).expect("a readable input"));
        let all: Vec<_> = inputs.map(|input| played(&input)).collect();
        let counts = COUNTS
            .iter()
            .filter(|(_, count)| all.iter().all(|it| count(it) == 0));
        let missed: Vec<_> = counts.map(|(name, _)| *name).collect();
        assert!(
            missed.is_empty(),
            "nothing of the corpus reaches {missed:?}"
        );
        let dropped = |it: &WorkerStats, reason| ports(it, |port| port.dropped(reason));
        let reasons = REASONS
            .iter()
            .filter(|reason| all.iter().all(|it| dropped(it, **reason) == 0));
        let missed: Vec<_> = reasons.collect();
        assert!(
            missed.is_empty(),
            "nothing of the corpus is dropped as {missed:?}"
        );
    }
}
