use super::*;
use crate::drop::DropReason;
use crate::id::FlowKey;
use crate::packet::{NextLink, Packet, Treatment, cells, wire_len};
use crate::stats::WorkerStats;
use crate::tables::elephants::{Moves, Settings};
use crate::tables::wred::Profile;
use crate::traffic::elephants::Elephants;
use crate::traffic::store::PacketStore;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::{FramePool, Region};
use proptest::prelude::*;
use std::num::NonZeroU8;
use std::sync::Arc;

/// What a port may send at once in these tests.
const BURST: u32 = 125_000;

struct Bench {
    pool: FramePool,
    store: PacketStore,
    stats: Arc<WorkerStats>,
    policy: Policy,
    ledger: Arc<Ledger>,
    now: Time,
}

impl Bench {
    fn new(limit: u32) -> Self {
        let region = Region::heap(4096, 4096, 0);
        Self {
            pool: FramePool::new(region),
            store: PacketStore::new(4096),
            stats: WorkerStats::new(1),
            policy: Policy::plain(1, limit),
            ledger: Ledger::new(1, 1),
            now: Time::ZERO,
        }
    }

    fn packet(&mut self, class: u8, len: usize) -> Packet {
        let frame = self.pool.take_sized(len).expect("a free frame");
        Packet {
            treatment: Treatment::new((class, 0), 0, 0),
            cells: u16::try_from(cells(len)).expect("few"),
            ..Packet::at(frame, PortId(0))
        }
    }

    fn admit(&mut self, port: &mut EgressPort, class: u8, len: usize) -> bool {
        let packet = self.packet(class, len);
        let buffer = PolicyAndLedger {
            policy: &self.policy,
            ledger: &self.ledger,
            now: self.now,
        };
        let admitted = port.admit(packet, &mut self.store, buffer);
        port.show(&self.stats.ports[0], Time::ZERO);
        match admitted {
            Ok(()) => true,
            Err((packet, reason)) => {
                assert_eq!(reason, DropReason::QueueFull);
                self.pool.give(packet.frame);
                false
            }
        }
    }

    fn dequeue(&mut self, port: &mut EgressPort, now: Time, room: usize) -> Vec<(u8, usize)> {
        let mut out = Vec::new();
        let all = Allowance {
            packets: room,
            bytes: u64::MAX,
        };
        port.dequeue(now, all, &mut self.store, &self.ledger, |popped| {
            out.push(popped.take())
        });
        port.show(&self.stats.ports[0], Time::ZERO);
        out.into_iter()
            .map(|packet| {
                let seen = (packet.treatment.class(), packet.frame.len());
                self.pool.give(packet.frame);
                seen
            })
            .collect()
    }
}

impl Bench {
    /// The port, with a shaper if it has a rate.
    fn port(&self, rate: Option<Rate>) -> EgressPort {
        EgressPort::new(PortId(0), &self.policy, Shaper::new(rate, BURST), 1)
    }
}

/// SW-15: strict priority; inside a class the order is kept.
#[test]
fn higher_classes_go_first() {
    let mut bench = Bench::new(4096);
    let mut port = bench.port(None);
    for (class, len) in [(1, 100), (7, 101), (1, 102), (3, 103), (7, 104)] {
        assert!(bench.admit(&mut port, class, len));
    }
    let order = bench.dequeue(&mut port, Time::ZERO, 2);
    assert_eq!(order, [(7, 101), (7, 104)]);
    assert!(bench.admit(&mut port, 5, 105));
    let order = bench.dequeue(&mut port, Time::ZERO, 10);
    assert_eq!(order, [(5, 105), (3, 103), (1, 100), (1, 102)]);
    assert!(port.is_empty() && bench.store.is_empty());
    assert_eq!(port.deadline(), Time::NEVER);
}

/// SW-20: an average that was high when the queue emptied does not mark what arrives after an idle
/// time, and marks what arrives at once.
#[test]
fn an_average_falls_while_its_queue_is_empty() {
    let fill = |idle: Span| {
        let mut bench = Bench::new(4096);
        let profile = Profile {
            average: NonZeroU8::new(6),
            ..Profile::deterministic(40_000)
        };
        bench.policy.ports[0].queues[3].wred = Some(Wred {
            profile,
            at_dequeue: false,
        });
        let mut port = bench.port(Some(Rate::from_bps(1_000_000_000)));
        let offer = |bench: &mut Bench, port: &mut EgressPort| {
            let before = port.depth(3).marked;
            let packet = Packet {
                treatment: Treatment::new((3, 0), 0, 1),
                ..bench.packet(3, 1500)
            };
            let buffer = PolicyAndLedger {
                policy: &bench.policy,
                ledger: &bench.ledger,
                now: bench.now,
            };
            assert!(port.admit(packet, &mut bench.store, buffer).is_ok());
            port.depth(3).marked - before
        };
        (0..60).for_each(|_| {
            offer(&mut bench, &mut port);
        });
        assert_eq!(offer(&mut bench, &mut port), 1, "the average is high");
        bench.now += Span::from_secs(1);
        while !port.is_empty() {
            let now = bench.now;
            bench.dequeue(&mut port, now, 10);
            bench.now += Span::from_micros(100);
        }
        bench.now += idle;
        let marked = offer(&mut bench, &mut port);
        bench.dequeue(&mut port, Time::NEVER, 10);
        marked
    };
    assert_eq!(fill(Span::ZERO), 1);
    // Some 60 packets could have been sent: a third of the average is left.
    assert_eq!(fill(Span::from_micros(500)), 0);
    assert_eq!(fill(Span::from_secs(100)), 0);
}

/// SW-51 (QueueFull): a queue takes what its cells allow and no more; other queues do not suffer.
#[test]
fn a_full_queue_drops_the_newcomer() {
    let mut bench = Bench::new(10);
    let mut port = bench.port(None);
    for n in 0..12 {
        assert_eq!(bench.admit(&mut port, 2, 1), n < 10, "packet {n}");
    }
    assert!(bench.admit(&mut port, 3, 10 * 256));
    assert!(!bench.admit(&mut port, 3, 1));
    let stats = &bench.stats.ports[0].queues[2];
    assert_eq!((stats.depth_cells.get(), stats.depth_bytes.get()), (10, 10));
    assert_eq!(
        (stats.enqueued_packets.get(), stats.dropped_packets.get()),
        (10, 2)
    );
    bench.dequeue(&mut port, Time::ZERO, 100);
    assert_eq!(bench.stats.ports[0].queues[2].depth_cells.get(), 0);
}

/// SW-10: a queue keeps its guarantee though another one has taken all that the port may hold.
#[test]
fn the_limit_of_a_port_takes_no_guarantee() {
    let mut bench = Bench::new(4096);
    bench.policy.ports[0].egress_limit = 10;
    bench.policy.ports[0].queues[3].guaranteed = 4;
    let mut port = bench.port(None);
    for n in 0..11 {
        assert_eq!(bench.admit(&mut port, 2, 256), n < 10, "packet {n}");
    }
    for n in 0..5 {
        assert_eq!(bench.admit(&mut port, 3, 256), n < 4, "packet {n}");
    }
    bench.dequeue(&mut port, Time::ZERO, 100);
}

/// SW-15: the port's speed holds to a packet over any span, for any packet length.
#[test]
fn a_shaped_port_keeps_its_speed() {
    for (rate, len) in [
        (Rate::from_mbps(10), 60),
        (Rate::from_gbps(1), 1514),
        (Rate::from_gbps(100), 64),
    ] {
        let mut bench = Bench::new(4096);
        let mut port = bench.port(Some(rate));
        let span = rate.time_for(wire_len(len as u64) * 5_000);
        let (mut now, mut sent) = (Time::ZERO, 0_u64);
        loop {
            while bench.store.len() < 64 && bench.admit(&mut port, 0, len) {}
            sent += bench.dequeue(&mut port, now, 64).len() as u64;
            now = port.deadline().max(now + Span::from_nanos(1));
            if now >= Time::ZERO + span {
                break;
            }
        }
        assert!((4_999..=5_001).contains(&sent), "{rate}: {sent} of 5000");
    }
}

/// SW-15: a port that was served late makes up for at most one burst.
#[test]
fn a_burst_is_bounded() {
    let mut bench = Bench::new(4096);
    let rate = Rate::from_gbps(1);
    let mut port = bench.port(Some(rate));
    for _ in 0..500 {
        assert!(bench.admit(&mut port, 0, 1514));
    }
    let late = Time::ZERO + Span::from_secs(10);
    let sent = bench.dequeue(&mut port, late, 1000).len() as u64;
    let most = rate.bytes_in(Span::from_millis(1)) / wire_len(1514) + 1;
    assert_eq!(sent, most);
    assert!(port.deadline() > late);
}

/// SW-10: cells and packets of a port that goes away come back.
#[test]
fn a_port_that_goes_away_gives_its_packets_back() {
    let mut bench = Bench::new(4096);
    let mut port = bench.port(None);
    for class in 0..8 {
        assert!(bench.admit(&mut port, class, 64));
    }
    let mut out = Vec::new();
    port.clear(u8::MAX, &mut bench.store, &bench.ledger, &mut out);
    port.show(&bench.stats.ports[0], Time::ZERO);
    assert_eq!(out.len(), 8);
    assert!(port.is_empty() && bench.store.is_empty());
    out.into_iter()
        .for_each(|packet| bench.pool.give(packet.frame));
    assert_eq!(bench.pool.free_frames(), 4096);
}

proptest! {
    /// Packets come out once, in order within their class, and cells return to zero.
    #[test]
    fn nothing_is_lost_or_reordered(ops in prop::collection::vec((0..8_u8, 1..1500_usize, 0..4_usize), 1..200)) {
        let mut bench = Bench::new(32);
        let mut port = bench.port(None);
        let mut expected: [std::collections::VecDeque<usize>; 8] = Default::default();
        for (class, len, take) in ops {
            if bench.admit(&mut port, class, len) {
                expected[usize::from(class)].push_back(len);
            }
            for (class, len) in bench.dequeue(&mut port, Time::ZERO, take) {
                prop_assert!(expected[usize::from(class) + 1..].iter().all(|queue| queue.is_empty()));
                prop_assert_eq!(expected[usize::from(class)].pop_front(), Some(len));
            }
        }
        bench.dequeue(&mut port, Time::ZERO, 4096);
        prop_assert_eq!(bench.pool.free_frames(), 4096);
        for queue in &bench.stats.ports[0].queues {
            prop_assert_eq!(queue.depth_cells.get() + queue.depth_packets.get() + queue.depth_bytes.get(), 0);
        }
    }
}

/// The queue that elephants come from, and theirs.
const FROM: u8 = 3;
const TO: u8 = 1;

/// A port with a table of elephants before it, as a worker has them, and a witness of what leaves.
struct Herd {
    bench: Bench,
    port: EgressPort,
    table: Elephants,
    now: Time,
    /// Number of the last packet, of all flows.
    sent: u32,
    /// By flow: number of the last that left.
    seen: [u32; 6],
    stopped: u8,
}

impl Herd {
    fn new(moves: Moves, weights: [u8; 2]) -> Self {
        let mut bench = Bench::new(200);
        bench.policy.elephants = vec![Settings {
            from: FROM,
            to: TO,
            bytes: 8192,
            rate: Rate::from_mbps(100),
            ageing: Span::from_micros(50),
            moves,
        }];
        for (class, weight) in [FROM, TO].into_iter().zip(weights) {
            let schedule = &mut bench.policy.ports[0].queues[usize::from(class)].schedule;
            *schedule = Schedule::Dwrr(weight);
        }
        bench.policy.check().expect("possible");
        let mut table = Elephants::new(64);
        table.configure(&bench.policy.elephants).expect("valid");
        Self {
            port: bench.port(None),
            bench,
            table,
            now: Time::ZERO,
            sent: 0,
            seen: [0; 6],
            stopped: 0,
        }
    }

    fn arrive(&mut self, flow: u32) {
        self.sent += 1;
        let mut packet = self.bench.packet(FROM, 1500);
        packet.flow = flow;
        // Its number stands where nobody looks here.
        let [a, b, c, d] = self.sent.to_be_bytes();
        packet.link = NextLink::new([a, b, c, d, 0, 0], 0);
        let of = FlowKey {
            port: PortId(0),
            class: FROM,
            hash: flow,
        };
        let port = &self.port;
        let queues = |_: PortId, class: u8| port.progress(class);
        let place = self.table.classify(of, 1500, self.now, &queues);
        packet.treatment.set_class(place.class);
        let buffer = PolicyAndLedger {
            policy: &self.bench.policy,
            ledger: &self.bench.ledger,
            now: self.now,
        };
        match self.port.admit(packet, &mut self.bench.store, buffer) {
            Err((packet, _)) => self.bench.pool.give(packet.frame),
            Ok(()) => {
                if let Some(until) = place.after {
                    self.port.wait_for(place.class, until);
                }
            }
        }
    }

    /// Packets that left, at most `room`, none of them behind a later one of its flow.
    fn serve(&mut self, room: usize) -> usize {
        let mut out = Vec::new();
        let Bench { store, ledger, .. } = &mut self.bench;
        let all = Allowance {
            packets: room,
            bytes: u64::MAX,
        };
        self.port.dequeue(self.now, all, store, ledger, |popped| {
            out.push(popped.take())
        });
        let left = out.len();
        for packet in out {
            let last = &mut self.seen[packet.flow as usize];
            let number = u32::from_be_bytes(*packet.link.mac().first_chunk().expect("4 of 6"));
            assert!(*last < number, "flow {}", packet.flow);
            *last = number;
            let queue = 1 << packet.treatment.class();
            assert_eq!(
                self.stopped & queue,
                0,
                "queue {} is paused",
                packet.treatment.class()
            );
            let paused_with = self.stopped & 1 << FROM != 0;
            assert!(!paused_with, "elephants of a class that is paused");
            self.bench.pool.give(packet.frame);
        }
        left
    }
}

proptest! {
    /// SW-17: whatever arrives, is refused, is paused and is served in which order, flows keep
    /// their order when they move, a pause of the class holds its elephants, and nothing is left
    /// behind a gate.
    #[test]
    fn elephants_do_not_overtake_themselves(
        ops in prop::collection::vec((0..12_u8, 0..6_u32, 1..14_usize, 0..20_000_u64), 1..300),
        drained: bool,
        weights in prop::array::uniform2(1..8_u8),
    ) {
        let moves = if drained { Moves::Drained } else { Moves::Gated };
        let mut herd = Herd::new(moves, weights);
        for (kind, flow, count, wait) in ops {
            match kind {
                0..=4 => (0..count).for_each(|_| herd.arrive(flow)),
                5..=8 => {
                    herd.serve(count);
                }
                9 => herd.now += Span::from_nanos(wait),
                10 => {
                    herd.stopped = [0, 1 << FROM, 1 << TO, 0][count % 4];
                    herd.port.stop(herd.stopped);
                }
                _ => {
                    let port = &herd.port;
                    herd.table.age(herd.now, &|_, class| port.progress(class));
                }
            }
            if herd.stopped == 0 && !herd.port.is_empty() {
                prop_assert!(herd.port.deadline() < Time::NEVER);
            }
        }
        herd.stopped = 0;
        herd.port.stop(0);
        herd.serve(usize::MAX);
        prop_assert!(herd.port.is_empty() && herd.bench.store.is_empty());
        prop_assert_eq!(herd.bench.pool.free_frames(), 4096);
        prop_assert_eq!(herd.bench.ledger.egress_of(PortId(0)), 0);
    }
}

/// SW-17: elephants of a class that is not watched any more are held by its pauses until the last
/// of them has left, and their queue is its own again then.
#[test]
fn a_pair_that_is_not_configured_any_more_ends_with_its_packets() {
    let mut herd = Herd::new(Moves::Gated, [1, 1]);
    (0..20).for_each(|_| herd.arrive(0));
    // Nothing waits at the gate any more.
    assert_eq!((herd.serve(10), herd.port.occupied), (10, 1 << TO));
    herd.bench.policy.elephants.clear();
    let plain = Shaper::new(None, BURST);
    herd.port.configure(&herd.bench.policy, plain);
    herd.stopped = 1 << FROM;
    herd.port.stop(herd.stopped);
    assert_eq!((herd.serve(100), herd.port.deadline()), (0, Time::NEVER));
    herd.stopped = 0;
    herd.port.stop(0);
    herd.port.shut(1 << TO);
    assert_eq!(herd.serve(100), 10);
    assert!(herd.port.is_open(FROM, herd.now), "no pair closes it");
    herd.port.shut(0);
    herd.port.stop(1 << FROM);
    assert!(herd.bench.admit(&mut herd.port, TO, 100));
    let left = herd.bench.dequeue(&mut herd.port, herd.now, 9);
    assert_eq!(left, [(TO, 100)]);
}
