//! What is lost on its way is noticed by what comes after it, before any time-out.

use super::world::{Sent, member_address, switch_address};
use crate::compute::{Datagram, Engine, Peer, Settings};
use crate::id::PortId;
use crate::stats::ComputeStats;
use common::sync::counter::Counter;
use common::time::{Span, Time};
use common::wire::compute::{
    Chunk, Element, Flags, Join, Level, Levels, Message, Operation, Packet, Reason, Slot, Terms,
    Work,
};
use std::net::SocketAddr;
use std::sync::Arc;

const JOB: u32 = 7;
const SLOTS: u16 = 4;
const WORK: Work = Work::Allreduce(Operation::Sum, Element::U32);
const VECTOR: [u8; 8] = [1, 0, 0, 0, 2, 0, 0, 0];

/// The epoch of the parent.
const ABOVE: u32 = 90;

/// A switch, and what is said to it by hand.
struct Bench {
    engine: Engine,
    stats: Arc<ComputeStats>,
    now: Time,
}

fn chunk(rank: u16, sequence: u64) -> Chunk<'static> {
    Chunk {
        work: WORK,
        slot: Slot::of(sequence, SLOTS),
        sequence,
        contributions: 1 << rank,
        complete: 0,
        data: &VECTOR,
    }
}

impl Bench {
    /// A switch with a job of so many members, below a parent or not.
    fn new(members: u16, is_leaf: bool) -> Self {
        let stats = Arc::new(ComputeStats::default());
        let settings = Settings {
            address: Some(switch_address(0).ip()),
            parents: vec![switch_address(9)],
            ..Settings::default()
        };
        let mut bench = Self {
            engine: Engine::new(settings, 1, stats.clone()),
            stats,
            now: Time::from_nanos(1_000_000_000),
        };
        let level = Level {
            rank: 1,
            size: 2,
            trees: 1,
            first: 0,
        };
        let levels = std::slice::from_ref(&level);
        for rank in 0..members {
            let join = Join {
                slots: SLOTS,
                payload: 8,
                operations: Operation::Sum.bit(),
                elements: Element::U32.bit(),
                above: Levels::new(if is_leaf { levels } else { &[] }),
                ..Join::new(1, rank, members)
            };
            bench.say((rank, 0), Flags::default(), Message::Join(join));
        }
        if is_leaf {
            let terms = Terms {
                slots: SLOTS,
                payload: 8,
                lease_millis: 2_000,
                generation: 1,
            };
            bench.tell(Flags::default(), Message::Admit(terms));
        }
        bench
    }

    /// Gives it a message; what it says, and to whom.
    fn give(&mut self, from: SocketAddr, packet: &Packet<'_>) -> Vec<(SocketAddr, Vec<u8>)> {
        self.now += Span::from_micros(10);
        let mut bytes = vec![0; packet.len()];
        packet.write(None, &mut bytes).expect("it fits");
        let peer = Peer {
            remote: from,
            local: switch_address(0),
            port: PortId(0),
        };
        let datagram = Datagram {
            peer,
            is_ce: false,
            bytes: &bytes,
        };
        let mut sent = Sent::default();
        let taken = self.engine.receive(datagram, self.now, &mut sent);
        assert_eq!(taken, Ok(()), "{packet:?}");
        let to = |(peer, bytes): (Peer, Vec<u8>)| (peer.remote, bytes);
        sent.0.into_iter().map(to).collect()
    }

    /// A member of an epoch says something.
    fn say(
        &mut self,
        (rank, epoch): (u16, u32),
        flags: Flags,
        message: Message<'_>,
    ) -> Vec<(SocketAddr, Vec<u8>)> {
        let number = u8::try_from(rank).expect("few");
        let packet = Packet {
            flags,
            job: JOB,
            epoch,
            rank,
            message,
        };
        self.give(member_address(number), &packet)
    }

    /// A member contributes to a chunk.
    fn contribute(&mut self, rank: u16, sequence: u64) -> Vec<(SocketAddr, Vec<u8>)> {
        let message = Message::Contribution(chunk(rank, sequence));
        self.say((rank, 1), Flags::default(), message)
    }

    /// The parent says something.
    fn tell(&mut self, flags: Flags, message: Message<'_>) -> Vec<(SocketAddr, Vec<u8>)> {
        let packet = Packet {
            flags,
            job: JOB,
            epoch: ABOVE,
            rank: 1,
            message,
        };
        self.give(switch_address(9), &packet)
    }
}

/// What chunks are in messages to an address: sequence, contributions, whether it is partial or was
/// sent before, and which chunks are said to be complete.
fn chunks(sent: &[(SocketAddr, Vec<u8>)], to: SocketAddr) -> Vec<(u64, u64, bool, bool, u64)> {
    let own = sent.iter().filter(|it| it.0 == to);
    let read = own.map(|(_, bytes)| {
        let packet = Packet::read(bytes).expect("switches say nothing wrong");
        let [partial, again] =
            [Flags::PARTIAL, Flags::RETRANSMISSION].map(|it| packet.flags.contain(it));
        match packet.message {
            Message::Result(it) | Message::Contribution(it) => {
                let before = it.complete_before(SLOTS);
                (it.sequence, it.contributions, partial, again, before)
            }
            other => panic!("{other:?}"),
        }
    });
    read.collect()
}

/// SW-42: a member that skips a chunk of others is told that its contribution is missing, at once,
/// and when somebody begins a chunk that it has skipped; never twice. Results tell which chunks are
/// complete.
#[test]
fn a_lost_contribution_is_asked_for_at_once() {
    let mut bench = Bench::new(2, false);
    let [first, second] = [0, 1].map(member_address);
    for sequence in 0..3 {
        assert_eq!(bench.contribute(0, sequence), []);
    }
    let said = bench.contribute(1, 1);
    assert_eq!(chunks(&said, first), [(1, 3, false, false, 0)]);
    let missing = (0, 1, true, false, 0);
    assert_eq!(chunks(&said, second), [missing, (1, 3, false, false, 0)]);
    let said = bench.contribute(1, 0);
    assert_eq!(chunks(&said, first), [(0, 3, false, false, 2)]);
    // It skips chunk 2, which is begun, and 4, which is not.
    let said = bench.contribute(1, 3);
    assert_eq!(chunks(&said, second), [(2, 1, true, false, 2)]);
    assert_eq!(bench.contribute(1, 5), []);
    assert_eq!(
        chunks(&bench.contribute(0, 3), first),
        [(3, 3, false, false, 2)]
    );
    let said = bench.contribute(0, 4);
    assert_eq!(chunks(&said, second), [(4, 1, true, false, 2)]);
    assert_eq!(chunks(&said, first), []);
    let said = bench.contribute(1, 2);
    assert_eq!(chunks(&said, second), [(2, 3, false, false, 4)]);
    assert_eq!(bench.stats.asked.get(), 3);
}

/// SW-42: a leaf that is told by its parent that a chunk lacks what it sent, or that one is
/// complete whose result did not come, sends it up again at once, and once.
#[test]
fn a_leaf_sends_up_again_at_once() {
    let mut bench = Bench::new(1, true);
    let above = switch_address(9);
    for sequence in 0..3 {
        let said = bench.contribute(0, sequence);
        assert_eq!(chunks(&said, above), [(sequence, 2, false, false, 0)]);
    }
    let result = |sequence, oldest| {
        let complete = Chunk::complete_at(sequence, oldest, SLOTS);
        Message::Result(Chunk {
            contributions: 3,
            complete,
            ..chunk(0, sequence)
        })
    };
    let said = bench.tell(Flags::default(), result(2, 1));
    assert_eq!(chunks(&said, above), [(0, 2, false, true, 0)]);
    let partial = |contributions| {
        Message::Result(Chunk {
            contributions,
            data: &[],
            ..chunk(0, 1)
        })
    };
    let said = bench.tell(Flags::PARTIAL, partial(3));
    assert_eq!(said, [], "it is there");
    let said = bench.tell(Flags::PARTIAL, partial(1));
    assert_eq!(chunks(&said, above), [(1, 2, false, true, 0)]);
    let said = bench.tell(Flags::RETRANSMISSION, result(0, 1));
    assert_eq!(chunks(&said, above), []);
    assert_eq!(bench.stats.sent_up_again.get(), 2);
}

/// SW-42: what a member is told that asks again before all are in is no result, and counts apart.
#[test]
fn partial_answers_count_apart_from_results() {
    let mut bench = Bench::new(2, false);
    let first = member_address(0);
    let again = |bench: &mut Bench| {
        let message = Message::Contribution(chunk(0, 0));
        let said = bench.say((0, 1), Flags::RETRANSMISSION, message);
        chunks(&said, first)
    };
    let counts = |bench: &Bench| {
        let stats = &bench.stats;
        [&stats.results, &stats.partials, &stats.served_again].map(Counter::get)
    };
    bench.contribute(0, 0);
    assert_eq!(again(&mut bench), [(0, 1, true, true, 0)]);
    assert_eq!(counts(&bench), [0, 1, 0]);
    bench.contribute(1, 0);
    assert_eq!(counts(&bench), [2, 1, 0]);
    assert_eq!(again(&mut bench), [(0, 3, false, true, 1)]);
    assert_eq!(counts(&bench), [3, 1, 1]);
}

/// SW-42: a parent that says nothing of what is sent up is lost, though it answers signs of life,
/// as one whose results do not pass; one that waits for other members is not.
#[test]
fn a_parent_that_says_nothing_of_a_chunk_is_lost() {
    let above = switch_address(9);
    for (says, lost) in [(false, 1), (true, 0)] {
        let mut bench = Bench::new(1, true);
        bench.contribute(0, 0);
        let begun = bench.now;
        let ended = |bench: &Bench| bench.stats.ended[Reason::ParentLost as usize].get();
        while ended(&bench) == 0 && bench.now.since(begun) < Span::from_secs(20) {
            let member = Message::KeepAlive;
            bench.say((0, 1), Flags::default(), member);
            bench.now = bench.engine.deadline().max(bench.now);
            let mut sent = Sent::default();
            bench.engine.tick(bench.now, &mut sent);
            let to_parent = sent.0.iter().filter(|(to, _)| to.remote == above);
            for (_, bytes) in to_parent.collect::<Vec<_>>() {
                match Packet::read(bytes).expect("whole").message {
                    Message::KeepAlive => drop(bench.tell(Flags::default(), Message::Alive)),
                    Message::Contribution(_) if says => {
                        let partial = Message::Result(Chunk {
                            contributions: 3,
                            data: &[],
                            ..chunk(0, 0)
                        });
                        bench.tell(Flags::PARTIAL, partial);
                    }
                    _ => {}
                }
            }
        }
        let took = bench.now.since(begun);
        assert_eq!(ended(&bench), lost, "after {took}");
        assert!(lost == 0 || took >= Span::from_secs(2), "after {took}");
    }
}
