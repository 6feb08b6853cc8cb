//! Members, a switch that keeps rule 4, and a moment at which it is gone.

use super::super::call::Algorithm;
use super::*;
use reduce::{Element, Operation};

const SUM: Collective = Collective::Allreduce(Operation::Sum, Element::U64);

fn call(collective: Collective, len: u64) -> Call {
    let algorithm = Algorithm::Ring;
    Call {
        collective,
        algorithm,
        len,
    }
}

fn at(sequence: u64, done: u64) -> Option<Position> {
    Some(Position {
        sequence,
        call: call(SUM, 64),
        switched: true,
        done,
        complete: false,
    })
}

fn whole(sequence: u64) -> Option<Position> {
    at(sequence, 64).map(|it| Position {
        complete: true,
        ..it
    })
}

/// HT-50: the furthest gives to the others, and what nobody has is reduced between the hosts.
#[test]
fn the_furthest_gives_what_others_lack() {
    let agreed = agree(&[at(3, 16), at(3, 40), at(3, 40), at(3, 0)]).expect("a way");
    assert_eq!((agreed.complete, agreed.agreed), (false, 40));
    assert_eq!(agreed.holder, Some(1));
    assert_eq!(agreed.lacking().collect::<Vec<_>>(), [(0, 16), (3, 0)]);
    let agreed = agree(&[at(3, 16), at(3, 16)]).expect("a way");
    assert_eq!((agreed.agreed, agreed.holder), (16, None));
}

/// HT-50: who is in the next collective has the whole result, and so has one that has completed it
/// and not gone on.
#[test]
fn who_is_ahead_has_all() {
    for other in [at(4, 0), whole(3)] {
        let agreed = agree(&[at(3, 16), other, at(3, 64)]).expect("a way");
        assert_eq!((agreed.complete, agreed.agreed), (true, 64));
        assert_eq!(agreed.sequence, 3);
        assert!(agreed.holder == Some(1) || agreed.holder == Some(2));
        assert_eq!(agreed.lacking().collect::<Vec<_>>(), [(0, 16)]);
    }
}

/// HT-50: who calls something else in a collective that not all have come to is named when they
/// have, if they could change who that is.
#[test]
fn who_differs_is_named_when_enough_have_come() {
    let other = at(4, 0).map(|it| Position {
        call: call(SUM, 128),
        ..it
    });
    let agreed = agree(&[other, whole(3), whole(3), at(4, 0)]).expect("a way");
    assert_eq!((agreed.sequence, agreed.complete), (3, true));
    let named = |positions: &[Option<Position>]| agree(positions).expect_err("they differ").rank;
    assert_eq!(named(&[other, at(4, 0), at(4, 0), at(4, 0)]), 0);
    let five = [other, at(4, 0), at(4, 0), at(4, 0), whole(3)];
    assert_eq!(named(&five), 0);
    let early = at(3, 0).map(|it| Position {
        call: call(SUM, 128),
        ..it
    });
    assert_eq!(
        named(&[early, at(3, 0), at(4, 0)]),
        1,
        "the lowest rank is right"
    );
}

/// HT-50: one that has left has all, and can give nothing.
#[test]
fn who_has_left_is_named_if_nobody_else_has_it() {
    let failure = agree(&[at(3, 16), None, at(3, 8)]).expect_err("nobody has it");
    let (rank, cause) = (1, Cause::Left);
    assert_eq!(failure, Failure { rank, cause });
    let agreed = agree(&[at(3, 16), None, whole(3)]).expect("a way");
    assert_eq!((agreed.complete, agreed.holder), (true, Some(2)));
}

/// HT-50: the root of a broadcast gives what others lack as it gives the rest; the others of a
/// reduce need nothing.
#[test]
fn roots_are_special() {
    let of = |collective, done: [u64; 3]| {
        let position = |done| {
            at(3, done).map(|it| Position {
                call: call(collective, 64),
                ..it
            })
        };
        agree(&done.map(position)).expect("a way")
    };
    let broadcast = of(Collective::Broadcast { root: 1 }, [24, 0, 40]);
    assert_eq!((broadcast.agreed, broadcast.holder), (24, None));
    assert_eq!(broadcast.done, [24; 3], "nobody has more than counts");
    let reduce = Collective::Reduce {
        operation: Operation::Sum,
        element: Element::U64,
        root: 2,
    };
    let reduced = of(reduce, [24, 40, 16]);
    assert_eq!((reduced.agreed, reduced.holder), (40, Some(1)));
    assert_eq!(reduced.lacking().collect::<Vec<_>>(), [(2, 16)]);
    assert_eq!(of(reduce, [24, 0, 24]).holder, None);
}

/// HT-50: the root of a broadcast has all of it, whatever it says of results: it gives to those
/// that lack some after another one has left with the whole.
#[test]
fn the_root_of_a_broadcast_can_always_give() {
    let position = |done| {
        at(3, done).map(|it| Position {
            call: call(Collective::Broadcast { root: 1 }, 64),
            ..it
        })
    };
    let agreed = agree(&[position(24), position(0), None]).expect("a way");
    assert_eq!((agreed.complete, agreed.holder), (true, Some(1)));
    assert_eq!(agreed.lacking().collect::<Vec<_>>(), [(0, 24)]);
}

/// HT-50: one that is complete has all, whatever it says of bytes.
#[test]
fn who_is_complete_has_all() {
    let complete = at(3, 16).map(|it| Position {
        complete: true,
        ..it
    });
    let agreed = agree(&[at(3, 40), complete]).expect("a way");
    assert_eq!((agreed.agreed, agreed.holder), (64, Some(1)));
    assert_eq!(agreed.lacking().collect::<Vec<_>>(), [(0, 40)]);
}

/// HT-50: what goes between the hosts goes on there, though others are further: no switch has
/// computed anything of it.
#[test]
fn what_goes_between_the_hosts_goes_on() {
    let between = at(3, 0).map(|it| Position {
        switched: false,
        ..it
    });
    for further in [at(4, 0), None] {
        let agreed = agree(&[between, further, between]).expect("a way");
        assert_eq!((agreed.sequence, agreed.complete), (3, false));
        assert_eq!((agreed.agreed, agreed.holder), (0, None));
        assert_eq!(agreed.lacking().count(), 0);
    }
}

/// HT-50: those that call something else, and those that say what cannot be, are named.
#[test]
fn what_cannot_be_is_refused() {
    let protocol = |positions: &[Option<Position>], rank| {
        let cause = Cause::Protocol;
        assert_eq!(agree(positions), Err(Failure { rank, cause }));
    };
    protocol(&[at(3, 0), at(4, 8)], 1);
    protocol(&[at(3, 0), at(3, 72)], 1);
    protocol(&[at(3, 0), at(3, 12)], 1);
    let between = |it: Position| Position {
        switched: false,
        ..it
    };
    protocol(&[at(3, 0), at(3, 0).map(between)], 1);
    protocol(&[at(3, 8).map(between), at(3, 8).map(between)], 0);
    let complete = |it: Position| Position {
        complete: true,
        ..it
    };
    protocol(&[at(3, 0), at(4, 0).map(complete)], 1);
    let both = at(3, 0).map(between).map(complete);
    protocol(&[at(3, 0).map(between), both], 1);
    let other = at(3, 0).map(|it| Position {
        call: call(SUM, 32),
        ..it
    });
    let failure = agree(&[at(3, 0), at(3, 0), other]).expect_err("another length");
    assert_eq!(failure.rank, 2);
    assert!(matches!(failure.cause, Cause::Mismatch { .. }));
}

/// Bytes of a chunk: an element.
const CHUNK: usize = 8;

/// A member as the protocol has it.
struct Member {
    /// The collective that it is in, or will be in next.
    sequence: usize,
    called: bool,
    /// Results that it has, of all collectives.
    have: usize,
    /// The vector of the collective that it is in.
    vector: Vec<u64>,
    /// The last results that it had through the switches: collective of all, first chunk of it,
    /// and chunks.
    tail: (usize, usize, Vec<u64>),
}

struct World {
    /// Collectives before the members came to the switches for the last time.
    base: usize,
    slots: usize,
    calls: Vec<Call>,
    members: Vec<Member>,
    random: Random,
}

/// SplitMix64.
pub(in crate::group) struct Random(pub(in crate::group) u64);

impl Random {
    pub(in crate::group) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % most as u64).expect("below it")
    }
}

fn own(rank: usize, sequence: usize, chunk: usize) -> u64 {
    ((rank as u64 + 1) << 40).wrapping_mul(sequence as u64 + 3) + (chunk as u64) * 17 + 1
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let size = 2 + random.below(5);
        let member = |_| Member {
            sequence: 0,
            called: false,
            have: 0,
            vector: Vec::new(),
            tail: (usize::MAX, 0, Vec::new()),
        };
        let mut world = Self {
            base: 0,
            slots: 0,
            calls: Vec::new(),
            members: (0..size).map(member).collect(),
            random,
        };
        world.come();
        world
    }

    /// The members come to the switches, for the first time or again: what they do there is new,
    /// and what they kept is of the time before.
    fn come(&mut self) {
        self.base += self.calls.len();
        let random = &mut self.random;
        let root = random.below(self.members.len());
        let reduce = Collective::Reduce {
            operation: Operation::Sum,
            element: Element::U64,
            root,
        };
        let kinds = [
            SUM,
            SUM,
            reduce,
            Collective::Broadcast { root },
            Collective::Barrier,
        ];
        let mut one = || {
            let collective = kinds[random.below(kinds.len())];
            let chunks = if collective == Collective::Barrier {
                0
            } else {
                1 + random.below(9)
            };
            call(collective, (chunks * CHUNK) as u64)
        };
        self.calls = (0..3).map(|_| one()).collect();
        self.slots = 1 + random.below(4);
        for member in &mut self.members {
            (member.sequence, member.called, member.have) = (0, false, 0);
            member.vector.clear();
        }
    }

    /// Chunks of a collective; a barrier has one.
    fn chunks(&self, sequence: usize) -> usize {
        let bytes = usize::try_from(self.calls[sequence].len).expect("few");
        (bytes / CHUNK).max(1)
    }

    /// The number of its first chunk.
    fn first(&self, sequence: usize) -> usize {
        (0..sequence).map(|it| self.chunks(it)).sum()
    }

    /// What must come of a chunk.
    fn result(&self, sequence: usize, chunk: usize) -> u64 {
        match self.calls[sequence].collective {
            Collective::Broadcast { root } => own(root, sequence, chunk),
            _ => {
                let all = 0..self.members.len();
                let sum = |sum: u64, rank| sum.wrapping_add(own(rank, sequence, chunk));
                all.fold(0, sum)
            }
        }
    }

    /// Chunks that a member has contributed to, of all collectives: rule 4.
    fn contributed(&self, rank: usize) -> usize {
        let member = &self.members[rank];
        let first = self.first(member.sequence);
        if !member.called {
            return first;
        }
        let end = first + self.chunks(member.sequence);
        (member.have + self.slots).min(end)
    }

    /// Something happens at a member: it calls, or gets its next result.
    fn step(&mut self) {
        let rank = self.random.below(self.members.len());
        let all = 0..self.members.len();
        let there = all.map(|it| self.contributed(it)).min().unwrap_or(0);
        let member = &self.members[rank];
        if !member.called {
            self.call(rank);
            return;
        }
        let (sequence, have) = (member.sequence, member.have);
        if have >= there {
            return;
        }
        let chunk = have - self.first(sequence);
        self.put(rank, chunk);
        self.members[rank].have += 1;
        if chunk + 1 == self.chunks(sequence) {
            self.complete(rank);
        }
    }

    fn call(&mut self, rank: usize) {
        let sequence = self.members[rank].sequence;
        if sequence < self.calls.len() {
            let chunks = self.chunks(sequence);
            let vector = (0..chunks).map(|it| own(rank, sequence, it)).collect();
            let member = &mut self.members[rank];
            (member.called, member.vector) = (true, vector);
        }
    }

    fn put(&mut self, rank: usize, chunk: usize) {
        let sequence = self.members[rank].sequence;
        self.members[rank].vector[chunk] = self.result(sequence, chunk);
    }

    /// It returns, keeps a tail, and the vector is the caller's again.
    fn complete(&mut self, rank: usize) {
        let (slots, base) = (self.slots, self.base);
        let member = &mut self.members[rank];
        let from = member.vector.len().saturating_sub(slots);
        let kept = member.vector[from..].to_vec();
        member.tail = (base + member.sequence, from, kept);
        member.vector.clear();
        member.called = false;
        member.sequence += 1;
    }

    /// Those that are in no collective come to the next one, if there is one.
    fn positions(&mut self) -> Vec<Option<Position>> {
        for rank in 0..self.members.len() {
            if !self.members[rank].called {
                self.call(rank);
            }
        }
        let position = |rank: usize| {
            let member = &self.members[rank];
            let call = *self.calls.get(member.sequence)?;
            let done = (member.have - self.first(member.sequence)) * CHUNK;
            Some(Position {
                sequence: u64::try_from(self.base + member.sequence).expect("few"),
                call,
                switched: true,
                done: (done as u64).min(call.len),
                complete: false,
            })
        };
        (0..self.members.len()).map(position).collect()
    }

    /// Goes on as it was agreed, and looks whether all have the result of that collective.
    fn follow(&mut self, agreement: &Agreement) {
        let sequence = usize::try_from(agreement.sequence).expect("few") - self.base;
        let chunk = |bytes: u64| usize::try_from(bytes).expect("few") / CHUNK;
        let agreed = chunk(agreement.agreed);
        for (rank, done) in agreement.lacking() {
            let holder = agreement.holder.expect("somebody lacks some");
            for place in chunk(done)..agreed {
                let holder = &self.members[holder];
                let value = if holder.sequence == sequence {
                    holder.vector[place]
                } else {
                    let (of, from, kept) = &holder.tail;
                    assert_eq!(*of, self.base + sequence, "the tail is of that one");
                    let at = place.checked_sub(*from);
                    kept[at.expect("the tail reaches back far enough")]
                };
                self.members[rank].vector[place] = value;
            }
        }
        let here: Vec<usize> = (0..self.members.len())
            .filter(|rank| self.members[*rank].sequence == sequence)
            .collect();
        let call = self.calls[sequence];
        let chunks = self.chunks(sequence);
        if !agreement.complete {
            assert_eq!(here.len(), self.members.len(), "all reduce the rest");
            let rest = agreed..if call.len == 0 { 0 } else { chunks };
            for place in rest {
                let vectors = self.members.iter().map(|it| it.vector[place]);
                let value = match call.collective {
                    Collective::Broadcast { root } => self.members[root].vector[place],
                    _ => vectors.fold(0, u64::wrapping_add),
                };
                for member in &mut self.members {
                    member.vector[place] = value;
                }
            }
        }
        for rank in here {
            let gets = match call.collective {
                Collective::Reduce { root, .. } => root == rank,
                _ => call.len > 0,
            };
            for place in (0..chunks).filter(|_| gets) {
                let found = self.members[rank].vector[place];
                assert_eq!(
                    found,
                    self.result(sequence, place),
                    "rank {rank} at {place}"
                );
            }
        }
    }
}

/// HT-50: whatever the moments at which the switch is gone, and the group has come back to it in
/// between, all members end with the exact result, and nothing is reduced twice. Those that have
/// left are blamed only if what others lack went with them.
#[test]
fn results_are_exact_whenever_the_switch_is_gone() {
    let (mut mended, mut resumed, mut left, mut back) = (0, 0, 0, 0);
    for seed in 0..30_000 {
        let mut world = World::new(seed);
        for visit in 0..=seed % 3 {
            if visit > 0 {
                world.come();
            }
            let most = 1 + world.first(world.calls.len()) * world.members.len() * 3;
            for _ in 0..world.random.below(most) {
                world.step();
            }
            let positions = world.positions();
            if positions.iter().all(Option::is_none) {
                continue;
            }
            match agree(&positions) {
                Ok(agreement) => {
                    back += usize::from(visit > 0);
                    mended += usize::from(agreement.holder.is_some());
                    resumed += usize::from(!agreement.complete && agreement.agreed > 0);
                    let run = std::panic::AssertUnwindSafe(|| world.follow(&agreement));
                    let ran = std::panic::catch_unwind(run);
                    assert!(ran.is_ok(), "seed {seed}: {positions:?}: {agreement:?}");
                }
                Err(Failure { rank, cause }) => {
                    left += 1;
                    assert_eq!(cause, Cause::Left, "seed {seed}: {positions:?}");
                    assert!(positions[rank].is_none(), "seed {seed}: {positions:?}");
                    break;
                }
            }
        }
    }
    println!("{mended} mended, {resumed} resumed, {back} after a return, {left} had left");
    assert!(mended > 1_000 && resumed > 1_000 && back > 10_000 && left > 10);
}
