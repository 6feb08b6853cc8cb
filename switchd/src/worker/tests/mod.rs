//! The engine on simulated queues: whole workers, virtual time, every packet accounted for.

mod bridge;
mod bypass;
mod compute;
mod control;
mod csig;
mod int;
mod iqcn;
mod jumbo;
mod kernel;
mod operation;
mod punted;
mod queues;
mod resilient;
mod trace;
mod trim;
mod ways;
mod workers;

use super::builder::WorkerBuilder;
use super::events::{Detached, QueueCommand, WorkerEvent};
use super::rings::{owners, rings};
use super::*;
use crate::forward::dlb::quality::QualityTable;
use crate::forward::fib::FibWriter;
use crate::id::{GroupId, NextHopId};
use crate::tables::buckets::{Buckets, Member};
use crate::tables::policy::Policy;
use crate::tables::validation::SourceValidation;
use crate::tables::{Group, Hashing, NextHop, PortEntry};
use common::netlink::NO_MTU;
use common::sync::snapshot::Publisher;
use common::time::Span;
use common::units::Rate;
use common::wire::ip::{v4, v6};
use common::wire::{Mac, checksum, ethernet, udp};
use common::xdp::frame::{FramePool, Region};
use common::xdp::sim::SimQueue;
use crossbeam_channel::{Receiver, Sender};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const FRAMES: u32 = 4096;

/// A switch of simulated ports. Network 10.n.0.0/16 and fd00:n::/32 lie behind port n, whose one
/// neighbour is 10.n.0.1 (and fd00:n::1).
struct Switch {
    workers: Vec<Worker<SimQueue>>,
    stats: Vec<Arc<WorkerStats>>,
    /// By port.
    wires: Vec<SimQueue>,
    publisher: Publisher<Tables>,
    fib: FibWriter,
    events: Receiver<WorkerEvent>,
    commands: Vec<Sender<WorkerCommand>>,
    queue_commands: Vec<Sender<QueueCommand<SimQueue>>>,
    detached: Receiver<Detached<SimQueue>>,
    outside: FramePool,
    now: Time,
    offered: u64,
}

fn mac(port: usize, neighbour: bool) -> [u8; 6] {
    let port = u8::try_from(port).expect("few ports");
    [2, 0, 0, 0, u8::from(neighbour), port]
}

fn port_entry(port: usize) -> PortEntry {
    let n = u8::try_from(port).expect("few");
    PortEntry {
        name: format!("p{port}"),
        ifindex: 100 + u32::from(n),
        mac: mac(port, false),
        up: true,
        mtu: 1500,
        speed: None,
        link: None,
        icmp_v4: Some(Ipv4Addr::new(10, n, 0, 254)),
        icmp_v6: Some(Ipv6Addr::new(0xfd00, u16::from(n), 0, 0, 0, 0, 0, 254)),
        mtu_v6: u16::MAX,
        burst: 125_000,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

/// Tables of a switch whose port n leads to its one neighbour and the networks behind it, which go
/// into `fib`.
fn tables_of(ports: usize, fib: &mut FibWriter) -> Tables {
    let entries = (0..ports).map(port_entry).collect();
    let policy = Policy::plain(ports, 4096);
    let mut tables = Tables::new(entries, Hashing::default(), Arc::new(policy));
    for port in 0..ports {
        let id = u32::try_from(port).expect("few ports");
        tables.next_hops.push(NextHop {
            port: PortId(u16::try_from(port).expect("few ports")),
            ifindex: 100 + id,
            address: Ipv4Addr::new(10, u8::try_from(port).expect("few"), 0, 1).into(),
            mac: Some(mac(port, true)),
            mtu: NO_MTU,
            source: None,
            link_header: None,
        });
        tables.groups.push(Group::Forward(NextHopId(id)));
        for prefix in [format!("10.{port}.0.0/16"), format!("fd00:{port}::/32")] {
            fib.insert(prefix.parse().expect("a prefix"), GroupId(id))
                .expect("room");
        }
    }
    tables.check().expect("tables that refer to what is there");
    tables
}

impl Switch {
    /// A switch whose ports are handed to the workers in turn.
    fn new(ports: usize, workers: usize) -> Self {
        Self::with_second_queue(ports, workers, None)
    }

    /// The same, with a second receive queue of a port for a worker that does not own the port. Its
    /// wire comes after those of the ports.
    fn with_second_queue(ports: usize, workers: usize, second: Option<(PortId, usize)>) -> Self {
        let mut fib = FibWriter::new();
        let tables = tables_of(ports, &mut fib);
        let publisher = Publisher::new(tables);
        let region = Region::heap(FRAMES, 2048, 64);
        let wires = ports + usize::from(second.is_some());
        let wires: Vec<_> = (0..wires).map(|_| SimQueue::new(64)).collect();
        let handed: Vec<Vec<PortId>> = (0..workers)
            .map(|worker| {
                (worker..ports)
                    .step_by(workers)
                    .map(|port| PortId(u16::try_from(port).expect("few ports")))
                    .collect()
            })
            .collect();
        let (events_to, events) = crossbeam_channel::bounded(64);
        let (detached_to, detached) = crossbeam_channel::bounded(64);
        let mut switch = Self {
            workers: Vec::new(),
            stats: Vec::new(),
            outside: FramePool::new(region.clone()),
            wires,
            publisher,
            fib,
            events,
            commands: Vec::new(),
            queue_commands: Vec::new(),
            detached,
            now: Time::from_nanos(1),
            offered: 0,
        };
        let ledger = Ledger::new(ports, workers);
        let quality = Arc::new(QualityTable::new(ports));
        for (id, rings) in rings(workers).into_iter().enumerate() {
            let (command, commands) = crossbeam_channel::bounded(4);
            let (queue_command, queue_commands) = crossbeam_channel::bounded(4);
            let stats = WorkerStats::new(ports);
            switch.workers.push(
                WorkerBuilder {
                    id,
                    queues: {
                        let own = handed[id].iter().map(|port| (*port, port.index()));
                        let second = second.filter(|(_, worker)| *worker == id);
                        let second = second.map(|(port, _)| (port, ports));
                        own.chain(second)
                            .map(|(port, wire)| (port, switch.wires[wire].clone()))
                            .collect()
                    },
                    owners: owners(&handed, ports),
                    rings,
                    region: region.clone(),
                    packets: FRAMES,
                    ledger: ledger.clone(),
                    quality: quality.clone(),
                    seed: 1,
                    reader: switch.publisher.reader(),
                    fib: switch.fib.fib(),
                    stats: stats.clone(),
                    events: events_to.clone(),
                    commands,
                    queue_link: QueueLink {
                        commands: queue_commands,
                        detached: detached_to.clone(),
                    },
                }
                .build(),
            );
            switch.stats.push(stats);
            switch.commands.push(command);
            switch.queue_commands.push(queue_command);
        }
        switch
    }

    fn offer(&mut self, port: usize, bytes: &[u8]) {
        self.wires[port].deliver(self.outside.take_chain(bytes).expect("free frames"));
        self.offered += 1;
    }

    fn turn(&mut self) {
        self.now += Span::from_micros(10);
        for worker in &mut self.workers {
            worker.turn(self.now);
        }
    }

    /// Turns until nothing changes any more, then what left each port.
    fn run(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut left = vec![Vec::new(); self.wires.len()];
        for _ in 0..50 {
            self.turn();
            for (port, wire) in self.wires.iter().enumerate() {
                while let Some(frame) = wire.pick_up() {
                    left[port].push(frame.pieces().flatten().copied().collect());
                    self.outside.give(frame);
                }
            }
        }
        self.assert_conserved();
        left
    }

    fn tables(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = (*self.publisher.current()).clone();
        change(&mut tables);
        tables.check().expect("tables that refer to what is there");
        self.publisher.publish(tables);
    }

    fn sum(&self, count: impl Fn(&crate::stats::PortStats) -> u64) -> u64 {
        self.stats
            .iter()
            .flat_map(|stats| stats.ports.iter())
            .map(count)
            .sum()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|port| port.dropped(reason))
    }

    /// SW-51: received + made here = transmitted + dropped by reason + held.
    fn assert_conserved(&self) {
        let arrived: u64 = self.wires.iter().map(|wire| wire.arrived() as u64).sum();
        let held: u64 = self.workers.iter().map(|worker| worker.held() as u64).sum();
        assert_eq!(
            self.offered,
            self.sum(|port| port.rx_packets.get()) + arrived
        );
        let into = self.sum(|port| port.rx_packets.get() + port.made());
        let out = self.sum(|port| port.tx_packets.get() + port.ended());
        assert_eq!(into, out + held);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let held: usize = self.workers.iter().map(Worker::held).sum();
        let arrived: usize = self.wires.iter().map(SimQueue::arrived).sum();
        self.workers.clear();
        if held + arrived == 0 {
            assert_eq!(self.outside.free_frames(), FRAMES as usize, "frames leaked");
        }
    }
}

#[derive(Clone)]
struct Udp {
    from: usize,
    dst: IpAddr,
    src_port: u16,
    ttl: u8,
    payload: usize,
}

impl Udp {
    fn to(dst: &str) -> Self {
        Self {
            from: 0,
            dst: dst.parse().expect("an address"),
            src_port: 1000,
            ttl: 64,
            payload: 40,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let len = u16::try_from(self.payload + udp::HEADER_LEN).expect("short");
        let port = u8::try_from(self.from).expect("few ports");
        let (mut bytes, ethertype, at) = match self.dst {
            IpAddr::V4(dst) => {
                let mut bytes = vec![0; 14 + 20];
                let src = Ipv4Addr::new(10, port, 3, 4);
                let repr = v4::Repr {
                    src,
                    dst,
                    traffic_class: 0,
                    ident: 0,
                    ttl: self.ttl,
                    protocol: 17,
                    payload_len: len,
                };
                repr.emit(&mut bytes[14..]);
                (bytes, 0x0800, 34)
            }
            IpAddr::V6(dst) => {
                let mut bytes = vec![0; 14 + 40];
                let src = Ipv6Addr::new(0xfd00, u16::from(port), 0, 0, 0, 0, 3, 4);
                let repr = v6::Repr {
                    src,
                    dst,
                    traffic_class: 0,
                    flow_label: 0,
                    hop_limit: self.ttl,
                    next_header: 17,
                    payload_len: len,
                };
                repr.emit(&mut bytes[14..]);
                (bytes, 0x86dd, 54)
            }
        };
        bytes.resize(at + usize::from(len), 0x5a);
        udp::emit(&mut bytes[at..], self.src_port, 4791, len);
        ethernet::emit(
            &mut bytes,
            Mac(mac(self.from, false)),
            Mac(mac(self.from, true)),
            ethertype,
        );
        bytes
    }
}

/// SW-1: unicast of both versions leaves by the port of the longest prefix, with the neighbour's
/// MAC address, one less of TTL, and nothing else changed.
#[test]
fn packets_leave_by_the_longest_prefix() {
    let mut switch = Switch::new(3, 1);
    switch
        .fib
        .insert("10.1.77.0/24".parse().expect("a prefix"), GroupId(2))
        .expect("room");
    let packets = [
        ("10.1.2.3", 1),
        ("10.1.77.3", 2),
        ("10.2.0.9", 2),
        ("fd00:1::9", 1),
    ];
    for (dst, port) in packets {
        let udp = Udp::to(dst);
        switch.offer(0, &udp.frame());
        let mut left = switch.run();
        assert_eq!(left[port].len(), 1, "{dst}");
        let bytes = left[port].remove(0);
        let mut expected = Udp { ttl: 63, ..udp }.frame();
        expected[..6].copy_from_slice(&mac(port, true));
        expected[6..12].copy_from_slice(&mac(port, false));
        assert_eq!(bytes, expected, "{dst}");
    }
    assert_eq!(switch.dropped(DropReason::NoRoute), 0);
}

/// SW-3: the answer to a sender whose own MAC address is not known either waits for it as any
/// packet does, and is sent then.
#[test]
fn an_answer_waits_for_its_receiver() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.next_hops.iter_mut().for_each(|hop| hop.mac = None));
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.turn();
    switch.now += crate::limits::PENDING_TIMEOUT;
    switch.turn();
    assert_eq!(switch.dropped(DropReason::NeighbourTimeout), 1);
    assert_eq!(switch.workers[0].held(), 1, "the answer waits");
    switch.tables(|tables| tables.next_hops[0].mac = Some(mac(0, true)));
    assert_eq!(switch.run()[0].len(), 1);
}

/// SW-1: what cannot be forwarded is answered with the message that a router sends, quoting the
/// packet.
#[test]
fn senders_are_told_why() {
    let cases = [
        ("10.1.0.9", 1, 40, DropReason::TtlExpired, (11, 0)),
        ("10.200.0.9", 64, 40, DropReason::NoRoute, (3, 0)),
        ("10.1.0.9", 64, 1500, DropReason::TooBig, (3, 4)),
        ("fd00:1::9", 1, 40, DropReason::TtlExpired, (3, 0)),
        ("fd99::1", 64, 40, DropReason::NoRoute, (1, 0)),
        ("fd00:1::9", 64, 1500, DropReason::TooBig, (2, 0)),
    ];
    for (dst, ttl, payload, reason, (kind, code)) in cases {
        let mut switch = Switch::new(2, 1);
        let udp = Udp {
            ttl,
            payload,
            ..Udp::to(dst)
        };
        switch.offer(0, &udp.frame());
        let left = switch.run();
        assert_eq!((left[0].len(), left[1].len()), (1, 0), "{dst} {reason:?}");
        let answer = &left[0][0];
        assert_eq!(answer[..6], mac(0, true));
        let at = if udp.dst.is_ipv4() {
            let packet = v4::Packet::new_checked(&answer[14..]).expect("valid");
            assert!(packet.verify_checksum());
            assert_eq!(
                (packet.src(), packet.dst()),
                (Ipv4Addr::new(10, 0, 0, 254), Ipv4Addr::new(10, 0, 3, 4))
            );
            34
        } else {
            let packet = v6::Packet::new_checked(&answer[14..]).expect("valid");
            let len = u32::try_from(packet.payload_len()).expect("short");
            let sum = checksum::Sum::default().pseudo_v6(packet.src(), packet.dst(), 58, len);
            assert!(sum.bytes(packet.payload()).is_valid());
            54
        };
        assert_eq!(
            (answer[at], answer[at + 1]),
            (kind, code),
            "{dst} {reason:?}"
        );
        let original = &udp.frame()[14..];
        let quoted = &answer[at + 8..];
        assert_eq!(
            quoted,
            &original[..quoted.len()],
            "the packet as it arrived"
        );
        assert_eq!(switch.dropped(reason), 1);
    }
}

/// SW-1: errors are not sent about errors, nor without end.
#[test]
fn errors_are_limited() {
    let mut switch = Switch::new(2, 1);
    let expired = Udp {
        ttl: 1,
        ..Udp::to("10.1.0.9")
    }
    .frame();
    let mut error = expired.clone();
    error[14 + 9] = 1;
    error[34] = 11;
    let sum = checksum::update(u16::from_be_bytes([error[24], error[25]]), 0x0111, 0x0101);
    error[24..26].copy_from_slice(&sum.to_be_bytes());
    switch.offer(0, &error);
    assert!(switch.run()[0].is_empty(), "an error about an error");
    for _ in 0..500 {
        switch.offer(0, &expired);
    }
    let answers = switch.run()[0].len() as u64;
    assert!((100..110).contains(&answers), "{answers}");
    assert_eq!(switch.sum(|port| port.icmp_suppressed.get()), 500 - answers);
    assert_eq!(switch.dropped(DropReason::TtlExpired), 501);
}

/// SW-51: each kind of packet that goes nowhere has its reason.
#[test]
fn every_loss_has_its_reason() {
    let good = Udp::to("10.1.0.9").frame();
    let patched = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    // A change of the IP header with the checksum made right again.
    let ip = |at: usize, value: u8| {
        let mut bytes = patched(14 + at, value);
        bytes[24..26].fill(0);
        let sum = checksum::of(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let mut tagged = good.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let mut pause = good.clone();
    pause[12..14].copy_from_slice(&[0x88, 0x08]);
    let cases = [
        (good[..20].to_vec(), DropReason::Truncated),
        (good[..13].to_vec(), DropReason::Truncated),
        (patched(14, 0x65), DropReason::Malformed),
        (patched(14, 0x41), DropReason::Malformed),
        (patched(24, good[24] ^ 1), DropReason::BadChecksum),
        (patched(0, 6), DropReason::OtherMac),
        (patched(0, 3), DropReason::Multicast),
        (tagged, DropReason::UnknownVlan),
        (patched(13, 0x99), DropReason::UnknownEtherType),
        (pause, DropReason::ControlOpcode),
        (ip(12, 127), DropReason::Martian),
        (ip(16, 127), DropReason::Martian),
        (ip(16, 224), DropReason::Multicast),
    ];
    for (bytes, reason) in cases {
        let mut switch = Switch::new(2, 1);
        switch.offer(0, &bytes);
        assert!(switch.run().iter().all(Vec::is_empty), "{reason:?}");
        assert_eq!(switch.dropped(reason), 1, "{reason:?}");
    }
}

/// SW-51: reasons that come from routes and ports.
#[test]
fn routes_and_ports_refuse_with_their_reason() {
    let groups = [
        (Group::Local, DropReason::Local),
        (Group::Blackhole, DropReason::Blackhole),
        (Group::Unreachable, DropReason::Unreachable),
        (Group::Prohibit, DropReason::Prohibited),
        (Group::Balance(Buckets::new(&[])), DropReason::NoNextHop),
    ];
    for (group, reason) in groups {
        let mut switch = Switch::new(2, 1);
        switch.tables(|tables| tables.groups[1] = group);
        switch.offer(0, &Udp::to("10.1.0.9").frame());
        assert!(switch.run()[1].is_empty());
        assert_eq!(switch.dropped(reason), 1, "{reason:?}");
    }
    for (down, reason) in [(0, DropReason::IngressDown), (1, DropReason::EgressDown)] {
        let mut switch = Switch::new(2, 1);
        switch.tables(|tables| tables.ports[down].up = false);
        switch.offer(0, &Udp::to("10.1.0.9").frame());
        assert!(switch.run()[1].is_empty());
        assert_eq!(switch.dropped(reason), 1, "{reason:?}");
    }
}

/// SW-2: packets to a neighbour that is not resolved wait, the kernel is asked once, and they leave
/// in order when the neighbour is known.
#[test]
fn packets_wait_for_their_neighbour() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| {
        tables.groups[1] = Group::Glean {
            port: PortId(1),
            ifindex: 101,
            mtu: NO_MTU,
        }
    });
    for src_port in 0..5 {
        switch.offer(
            0,
            &Udp {
                src_port,
                ..Udp::to("10.1.0.9")
            }
            .frame(),
        );
    }
    assert!(switch.run()[1].is_empty());
    let address = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 9));
    assert_eq!(
        switch.events.try_iter().collect::<Vec<_>>(),
        [WorkerEvent::Resolve {
            ifindex: 101,
            address
        }]
    );
    switch.tables(|tables| {
        tables.next_hops.push(NextHop {
            port: PortId(1),
            ifindex: 101,
            address,
            mac: Some([2, 9, 9, 9, 9, 9]),
            ..tables.next_hops[1].clone()
        });
        tables.groups.push(Group::Forward(NextHopId(2)));
    });
    switch.turn();
    // The route follows the tables, after the worker has seen those: it must look again by itself.
    switch
        .fib
        .insert("10.1.0.9/32".parse().expect("a prefix"), GroupId(2))
        .expect("room");
    switch.now += Span::from_millis(10);
    let left = switch.run();
    let ports: Vec<u8> = left[1].iter().map(|bytes| bytes[35]).collect();
    assert_eq!(ports, [0, 1, 2, 3, 4]);
    assert!(
        switch.publisher.current().used.take(NextHopId(2)),
        "control sees the next hop in use"
    );
}

/// SW-51: what waits is bounded in number and in time.
#[test]
fn waiting_is_bounded() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| {
        tables.groups[1] = Group::Glean {
            port: PortId(1),
            ifindex: 101,
            mtu: NO_MTU,
        }
    });
    for _ in 0..40 {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    switch.run();
    assert_eq!(switch.dropped(DropReason::NeighbourFull), 8);
    switch.now += Span::from_secs(4);
    let left = switch.run();
    assert_eq!(switch.dropped(DropReason::NeighbourTimeout), 32);
    assert_eq!(left[0].len(), 32, "host unreachable, to the sender");
    assert_eq!((left[0][0][34], left[0][0][35]), (3, 1));
}

/// SW-3: a flow keeps to one member, flows spread over all, by weight, and when a member dies only
/// its flows move.
#[test]
fn flows_are_balanced_and_resilient() {
    let mut switch = Switch::new(5, 1);
    let member = |port: u32, weight| Member {
        next_hop: NextHopId(port),
        key: u64::from(port),
        weight,
    };
    let all = Buckets::new(&[member(1, 1), member(2, 1), member(3, 2)]);
    switch.tables(|tables| tables.groups[4] = Group::Balance(all.clone()));
    let place = |switch: &mut Switch| -> HashMap<u16, usize> {
        let mut place = HashMap::new();
        for src_port in 0..2000_u16 {
            switch.offer(
                0,
                &Udp {
                    src_port,
                    ..Udp::to("10.4.0.9")
                }
                .frame(),
            );
            if src_port % 50 == 49 {
                for (port, left) in switch.run().iter().enumerate() {
                    for bytes in left {
                        place.insert(u16::from_be_bytes([bytes[34], bytes[35]]), port);
                    }
                }
            }
        }
        place
    };
    let before = place(&mut switch);
    for (port, share) in [(1, 0.25), (2, 0.25), (3, 0.5)] {
        let flows = before.values().filter(|&&at| at == port).count() as f64 / 2000.0;
        assert!((flows - share).abs() < 0.04, "port {port}: {flows}");
    }
    assert_eq!(place(&mut switch), before, "a flow keeps its path");
    let without = all.changed(&[member(1, 1), member(3, 2)]);
    switch.tables(|tables| tables.groups[4] = Group::Balance(without.clone()));
    let after = place(&mut switch);
    for (flow, &port) in &before {
        assert!(
            port == 2 || after[flow] == port,
            "flow {flow} of a live member moved"
        );
        assert_ne!(after[flow], 2);
    }
    switch.tables(|tables| {
        tables.groups[4] =
            Group::Balance(without.changed(&[member(1, 1), member(2, 1), member(3, 2)]))
    });
    assert_eq!(place(&mut switch), before, "and returns");
}

/// SW-3: two switches in a row with different seeds do not polarise; ECMP of flows that the first
/// sent one way still spreads at the second.
#[test]
fn switches_in_a_row_do_not_polarise() {
    let member = |port: u32| Member {
        next_hop: NextHopId(port),
        key: u64::from(port),
        weight: 1,
    };
    let build = |seed| {
        let switch = Switch::new(4, 1);
        switch.tables(|tables| {
            tables.hashing.seed = seed;
            tables.groups[3] = Group::Balance(Buckets::new(&[member(1), member(2)]));
        });
        switch
    };
    let (mut first, mut second) = (build(1), build(2));
    let mut at_second = [0; 2];
    for src_port in 0..1000 {
        let frame = Udp {
            src_port,
            ..Udp::to("10.3.0.9")
        }
        .frame();
        first.offer(0, &frame);
        if !first.run()[1].is_empty() {
            second.offer(0, &frame);
            at_second[usize::from(second.run()[1].is_empty())] += 1;
        }
    }
    let total: i32 = at_second.iter().sum();
    assert!(
        total > 400 && (at_second[0] - at_second[1]).abs() < total / 5,
        "{at_second:?}"
    );
}

/// SW-2: a change between two routes that can both carry a packet loses none, whenever it happens.
#[test]
fn a_route_change_loses_nothing() {
    let mut switch = Switch::new(3, 1);
    let mut left = HashSet::new();
    for n in 0..300_u16 {
        let group = GroupId(1 + u32::from(n % 2));
        switch
            .fib
            .insert("10.1.0.0/16".parse().expect("a prefix"), group)
            .expect("room");
        switch.offer(
            0,
            &Udp {
                src_port: n,
                ..Udp::to("10.1.0.9")
            }
            .frame(),
        );
        switch.turn();
        if n % 10 == 9 {
            for bytes in switch.run().iter().flatten() {
                left.insert(u16::from_be_bytes([bytes[34], bytes[35]]));
            }
        }
    }
    assert_eq!(left.len(), 300);
    assert_eq!(switch.sum(crate::stats::PortStats::dropped_in_all), 0);
}

/// SW-2: a route may lead to a group that the worker's tables do not have yet, or whose number
/// means another one there: it looks again at once.
#[test]
fn newer_tables_are_picked_up_in_the_middle_of_a_turn() {
    for number in [2, 1] {
        let mut switch = Switch::new(3, 1);
        switch.tables(|tables| tables.groups.truncate(2));
        switch.turn();
        switch.offer(0, &Udp::to("10.9.0.9").frame());
        // What a turn begins with has passed when control publishes.
        assert!(!switch.workers[0].pick_up_tables(Time::from_nanos(1)));
        let group = Group::Forward(NextHopId(2));
        switch.tables(|tables| {
            tables.groups.truncate(number as usize);
            tables.groups.push(group);
        });
        switch.fib.need(switch.publisher.epoch());
        switch
            .fib
            .insert("10.9.0.0/16".parse().expect("a prefix"), GroupId(number))
            .expect("room");
        let now = switch.now;
        assert_eq!(switch.workers[0].receive(now, 0..1), 1);
        assert_eq!(switch.run()[2].len(), 1, "group {number}");
    }
}

/// SW-15: the port's speed is kept in virtual time, through the whole worker.
#[test]
fn a_port_keeps_its_speed() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.ports[1].speed = Some(Rate::from_mbps(100)));
    let frame = Udp {
        payload: 1200,
        ..Udp::to("10.1.0.9")
    }
    .frame();
    for _ in 0..400 {
        switch.offer(0, &frame);
    }
    let start = switch.now;
    let (mut sent, mut deadline) = (0_u64, start);
    while sent < 300 {
        switch.now = deadline.max(switch.now + Span::from_nanos(100));
        deadline = switch.workers[0].turn(switch.now).deadline;
        while let Some(frame) = switch.wires[1].pick_up() {
            sent += 1;
            switch.outside.give(frame);
        }
    }
    let wire = (frame.len() as u64 + 24) * 8 * 300;
    let rate = wire as f64 / switch.now.since(start).as_secs_f64();
    assert!((rate / 1e8 - 1.0).abs() < 0.05, "{rate}");
    switch.run();
}
