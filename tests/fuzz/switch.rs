//! A whole worker of the switch against any frames, on simulated ports.

use super::program::Program;
use common::sync::snapshot::Publisher;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::{FramePool, Region};
use common::xdp::sim::SimQueue;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use switchd::ingress::balance::{Buckets, Member};
use switchd::ingress::fib::FibWriter;
use switchd::ingress::parse::parse as parse_frame;
use switchd::ingress::quality::Board;
use switchd::ingress::tables::{
    Group, GroupId, Hashing, NextHop, NextHopId, PortEntry, PortId, Tables,
};
use switchd::stats::{PortStats, WorkerStats};
use switchd::traffic::buffer::Ledger;
use switchd::traffic::policy::Policy;
use switchd::worker::{Setup, Worker, WorkerCommand, WorkerEvent};

const PORTS: u16 = 4;
const FRAMES: u32 = 1024;
/// The ports' own MAC addresses: that of the samples' destination, so that they are routed.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Turns and time after which nothing that could be sent still waits.
const TURNS: usize = 64;
const REST: Span = Span::from_secs(10);

/// One frame, taken for one that is to be routed.
pub(super) fn parse(input: &[u8]) {
    let own = input.first_chunk().copied().unwrap_or(MAC);
    if let Ok(parsed) = parse_frame(input, own) {
        let (network, transport) = (usize::from(parsed.network), usize::from(parsed.transport));
        assert!(network + usize::from(parsed.ip_len) <= input.len());
        assert!(transport == 0 || (network < transport && transport <= input.len()));
    }
}

/// A series of frames and of things that happen to the switch.
///
/// A step is a byte, what to do in its low four bits and to which port in the next two; arguments
/// follow.
pub(super) fn turns(input: &[u8]) {
    let mut switch = Switch::new();
    let mut program = Program::new(input);
    while !program.is_over() {
        switch.step(&mut program);
    }
    switch.settle();
}

struct Switch {
    worker: Worker<SimQueue>,
    stats: Arc<WorkerStats>,
    wires: Vec<SimQueue>,
    publisher: Publisher<Tables>,
    fib: FibWriter,
    outside: FramePool,
    events: Receiver<WorkerEvent>,
    commands: Sender<WorkerCommand>,
    now: Time,
    offered: u64,
}

fn entry(number: u16) -> PortEntry {
    PortEntry {
        name: format!("p{number}"),
        ifindex: 100 + u32::from(number),
        mac: MAC,
        up: true,
        mtu: if number == 3 { 576 } else { 1500 },
        speed: (number == 2).then(|| Rate::from_gbps(1)),
        icmp_v4: (number != 1).then(|| Ipv4Addr::new(10, 0, 0, 254)),
        icmp_v6: (number != 1).then(|| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe)),
        burst: 125_000,
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
        Arc::new(Policy::plain(usize::from(PORTS), 128)),
    );
    for number in 0..PORTS {
        tables.next_hops.push(NextHop {
            port: PortId(number),
            ifindex: 100 + u32::from(number),
            address: IpAddr::from([10, 0, 0, 2]),
            // One neighbour is not known yet.
            mac: (number != 3).then_some([2, 0, 0, 0, 1, 0]),
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
        },
        Group::Local,
        Group::Blackhole,
        Group::Unreachable,
        Group::Prohibit,
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
        let worker = Worker::new(Setup {
            id: 0,
            queues: (0..PORTS).map(PortId).zip(wires.iter().cloned()).collect(),
            owners: vec![0; usize::from(PORTS)],
            rings_in: Vec::new(),
            rings_out: vec![None],
            region: region.clone(),
            packets: FRAMES,
            ledger: Ledger::new(usize::from(PORTS), 1),
            board: Arc::new(Board::new(usize::from(PORTS))),
            seed: 1,
            reader: publisher.reader(),
            fib: fib.fib(),
            stats: stats.clone(),
            events: events_to,
            commands: commands_from,
        });
        Self {
            worker,
            stats,
            wires,
            publisher,
            fib,
            outside: FramePool::new(region),
            events,
            commands,
            now: Time::from_nanos(1),
            offered: 0,
        }
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

    fn turn(&mut self) {
        self.worker.turn(self.now);
        for wire in &self.wires {
            while let Some(frame) = wire.pick_up() {
                self.outside.give(frame);
            }
        }
        while self.events.try_recv().is_ok() {}
    }

    /// Everything leaves, by a port or under a reason: nothing is held, lost or made up.
    fn settle(mut self) {
        self.publish(|tables| tables.ports.iter_mut().for_each(|port| port.up = true));
        self.wires.iter().for_each(|wire| wire.set_room(64));
        self.commands.try_send(WorkerCommand::Drain).expect("room");
        for _ in 0..TURNS {
            self.turn();
            self.now += REST;
        }
        let arrived: usize = self.wires.iter().map(SimQueue::arrived).sum();
        assert_eq!(self.worker.held(), 0, "packets held after the drain");
        let sum =
            |count: fn(&PortStats) -> u64| -> u64 { self.stats.ports.iter().map(count).sum() };
        let received = sum(|port| port.rx_packets.get());
        assert_eq!(
            self.offered,
            received + u64::try_from(arrived).expect("few")
        );
        let made = sum(PortStats::made);
        let out = sum(|port| port.tx_packets.get() + port.ended());
        assert_eq!(received + made, out, "received and made, sent and dropped");
        drop(self.worker);
        let free = self.outside.free_frames();
        assert_eq!(free + arrived, FRAMES as usize, "frames are lost");
    }
}
