//! Packets with tags take the way that they would take without, also where more than their
//! destination decides: the load of the ports, a full queue, a job of in-network compute.

use super::compute::{computing, frame, packet};
use super::csig::{crossroads, csig, tagged, untagged};
use super::*;
use crate::config::Csig;
use crate::egress::remark::set_dscp;
use crate::tables::dlb::{DlbPolicy, Mode, Scale, Settings};
use crate::tables::policy::TrimAt;
use common::wire::compute::{Chunk, Element, Join, Message, Operation, Slot, Work};
use common::wire::csig::{Form, Signal, Tag};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A switch that gets packets without tags, and the same that gets them with tags.
struct Pair {
    plain: Switch,
    with_tags: Switch,
    random: Pcg64Mcg,
    /// Tags of packets that have left.
    tags: usize,
}

impl Pair {
    fn new(seed: u64, build: impl Fn() -> Switch) -> Self {
        let (plain, with_tags) = (build(), build());
        plain.know(&Csig::default());
        with_tags.know(&csig(vec![]));
        Self {
            plain,
            with_tags,
            random: Pcg64Mcg::seed_from_u64(seed),
            tags: 0,
        }
    }

    fn pick(&mut self, most: u32) -> u32 {
        self.random.next_u32() % most
    }

    fn both(&mut self, act: impl Fn(&mut Switch)) {
        act(&mut self.plain);
        act(&mut self.with_tags);
    }

    /// Offers a packet to both, to one of them with some tag.
    fn offer(&mut self, port: usize, bytes: &[u8]) {
        let form = Form::ALL[self.pick(2) as usize];
        let signal = Signal::ALL[self.pick(3) as usize];
        let tag = Tag::neutral(form, signal, 1);
        self.plain.offer(port, bytes);
        self.with_tags.offer(port, &tagged(bytes, form, tag));
    }

    /// Lets both forward what they have. The same has to leave each port of both, but for the tags.
    fn run(&mut self) -> Vec<Vec<Vec<u8>>> {
        let (plain, with_tags) = (self.plain.run(), self.with_tags.run());
        for (expected, found) in plain.iter().zip(&with_tags) {
            let found = found.iter().map(|frame| untagged(frame));
            let (tags, found): (Vec<_>, Vec<_>) = found.unzip();
            let [found, expected] =
                [&found, expected].map(|it| it.iter().map(|frame| whole(frame)));
            assert!(found.eq(expected), "{plain:02x?}\n{with_tags:02x?}");
            self.tags += tags.iter().flatten().count();
        }
        for reason in DropReason::ALL {
            let lost = [&self.plain, &self.with_tags].map(|it| it.dropped(*reason));
            assert_eq!(lost[0], lost[1], "{reason:?}");
        }
        plain
    }
}

/// A frame without padding, of which one with a tag needs less.
fn whole(frame: &[u8]) -> &[u8] {
    let is_v4 = frame[12..14] == [0x08, 0x00];
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    &frame[..if is_v4 { end } else { frame.len() }]
}

/// Holds classes of port 1 back.
fn hold(switch: &mut Switch, classes: u8) {
    let owner = 1 % switch.workers.len();
    let hold = WorkerCommand::Hold {
        port: PortId(1),
        classes,
    };
    switch.commands[owner].send(hold).expect("a worker");
    switch.turn();
}

/// CS-1, SW-4: a flow, a flowlet or a packet has the same member of its group with a tag and
/// without, while a queue in front of one of them comes and goes.
#[test]
fn load_is_balanced_the_same_with_tags_and_without() {
    for (seed, mode) in [(1, Mode::Flow), (2, Mode::Flowlet), (3, Mode::Packet)] {
        let mut pair = Pair::new(seed, || {
            let switch = crossroads(false);
            switch.tables(|tables| {
                let mut dlb = DlbPolicy::new(Settings {
                    mode,
                    ..Settings::default()
                });
                dlb.scale = Scale {
                    queue_max: 16 << 10,
                    ..Scale::default()
                };
                tables.dlb = Arc::new(dlb);
            });
            switch
        });
        let mut taken = HashMap::<u16, HashSet<usize>>::new();
        for n in 0..600_u16 {
            let is_held = n / 50 % 2 == 1;
            if n % 50 == 0 {
                let filler = Udp {
                    payload: 1400,
                    ..Udp::to("10.1.0.9")
                };
                pair.both(|switch| {
                    hold(switch, u8::from(is_held));
                    (0..if is_held { 20 } else { 0 })
                        .for_each(|_| switch.offer(0, &filler.frame()));
                });
                pair.run();
            }
            let src_port = u16::try_from(pair.pick(40)).expect("few");
            let udp = Udp {
                src_port,
                ..Udp::to("10.9.1.2")
            };
            pair.offer(0, &udp.frame());
            // Some are within a flowlet, some behind its end, some behind that of the flow.
            let gap = [0, 0, 0, 200, 20_000][pair.pick(5) as usize];
            let left = pair.run();
            pair.both(|switch| switch.now += Span::from_micros(gap));
            let ports = (1..4).filter(|port| !left[*port].is_empty());
            taken.entry(src_port).or_default().extend(ports);
        }
        pair.both(|switch| hold(switch, 0));
        pair.run();
        assert!(pair.tags > 500, "{mode:?}: {}", pair.tags);
        let moved = taken.values().filter(|ports| ports.len() > 1).count();
        assert!(moved > 20, "{mode:?}: {taken:?}");
    }
}

/// CS-1, CS-2, SW-20: the same packets are trimmed with a tag and without, and what is left of them
/// is the same.
#[test]
fn the_same_is_trimmed_with_tags_and_without() {
    let mut pair = Pair::new(4, || {
        let switch = crossroads(false);
        let mut policy = Policy::plain(4, 4096);
        policy.trim.trimmable = 1 << 8;
        policy.trim.trimmed_of[8] = 16;
        policy.trim.headers_only = true;
        // Two packets fit, and a third one with or without the tags of all.
        for port in &mut policy.ports {
            port.queues[1].trim = Some(TrimAt {
                bytes: 2100,
                rtx_bytes: 2100,
            });
        }
        policy.divide(4096, None).expect("room");
        switch.tables(|tables| tables.traffic = Arc::new(policy));
        switch
    });
    for _ in 0..60 {
        pair.both(|switch| hold(switch, 0b10));
        for _ in 0..=pair.pick(7) {
            let udp = Udp {
                src_port: u16::try_from(pair.pick(40)).expect("few"),
                payload: 800,
                ..Udp::to("10.1.0.9")
            };
            let mut frame = udp.frame();
            // The middle of a WRITE, whose headers are known.
            frame[14 + 20 + udp::HEADER_LEN] = 0x07;
            let dscp = [8, 8, 8, 0][pair.pick(4) as usize];
            assert!(set_dscp(&mut frame, 14, dscp));
            pair.offer(0, &frame);
        }
        pair.run();
        pair.both(|switch| hold(switch, 0));
        pair.run();
    }
    let trimmed = |switch: &Switch| switch.sum(|port| port.trimmed_sent.get());
    let counts = [&pair.plain, &pair.with_tags].map(trimmed);
    assert!(counts[0] > 50 && counts[0] == counts[1], "{counts:?}");
    assert!(pair.tags > 200, "{}", pair.tags);
}

/// CS-1, SW-40: members of a job are admitted and have their sum, whether their messages have tags
/// or not, and what the switch says has none.
#[test]
fn jobs_are_served_the_same_with_tags_and_without() {
    for (workers, job) in [(1, 4), (2, 4), (2, 5)] {
        let mut pair = Pair::new(5, || computing(workers));
        for rank in [0_u16, 1] {
            let join = Join {
                slots: 4,
                payload: 64,
                operations: Operation::Sum.bit(),
                elements: Element::U32.bit(),
                ..Join::new(1, rank, 2)
            };
            let join = packet(job, rank, Message::Join(join));
            pair.offer(rank.into(), &frame(rank.into(), rank == 1, &join));
        }
        let mut said = pair.run().concat().len();
        for sequence in 0..8 {
            let data = [1, 0, 0, 0, u8::try_from(sequence).expect("few"), 0, 0, 0];
            for rank in [0_u16, 1] {
                let chunk = Chunk {
                    work: Work::Allreduce(Operation::Sum, Element::U32),
                    slot: Slot::of(sequence, 4),
                    sequence,
                    contributions: 1 << rank,
                    complete: 0,
                    data: &data,
                };
                let message = packet(job, rank, Message::Contribution(chunk));
                pair.offer(rank.into(), &frame(rank.into(), rank == 1, &message));
            }
            said += pair.run().concat().len();
        }
        assert!(said >= 2 + 2 * 8, "{said} answers");
        assert_eq!(pair.tags, 0);
    }
}
