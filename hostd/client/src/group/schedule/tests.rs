//! All members of a group in one thread: messages between two of them keep their order, and which
//! pair goes on next is random. The result is compared with a fold over the vectors.

use super::super::call::{Algorithm, Call, Collective};
use super::super::message::SIZE_MAX;
use super::super::progress::{Progress, Transfer};
use super::{Action, schedule};
use proptest::prelude::*;
use reduce::{Element, Operation, reduce};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Messages that may wait between two members.
const WINDOW: usize = 2;

struct Member {
    vector: Vec<u8>,
    progress: Progress,
}

fn make(call: &Call, rank: usize, size: usize, segment: usize, vector: Vec<u8>) -> Member {
    let steps = schedule(call, rank, size);
    let progress = Progress::new(steps, segment, call.len == 0);
    Member { vector, progress }
}

impl Member {
    fn take(&mut self, call: &Call, transfer: &Transfer, bytes: &[u8]) {
        assert_eq!(transfer.part.len, bytes.len(), "both cut in the same way");
        let range = transfer.part.start..transfer.part.start + transfer.part.len;
        let ours = &mut self.vector[range];
        let Some((operation, element)) = call.work().filter(|_| transfer.action != Action::Replace)
        else {
            ours.copy_from_slice(bytes);
            return;
        };
        if transfer.action == Action::ReduceAfter {
            reduce(operation, element, ours, bytes).expect("whole elements");
        } else {
            let mut first = bytes.to_vec();
            reduce(operation, element, &mut first, ours).expect("whole elements");
            ours.copy_from_slice(&first);
        }
    }
}

/// Messages on their way: where their bytes were in the sender's vector, and the bytes if they were
/// copied. Others are read when they arrive, as a retransmission would.
type Wire = BTreeMap<(usize, usize), VecDeque<(Transfer, Option<Vec<u8>>)>>;

/// Lets one member do one thing with one of its peers; false if nothing can be done.
fn act(members: &mut [Member], wire: &mut Wire, call: &Call, who: usize, peer: usize) -> bool {
    let rank = members[who].progress.rank(peer);
    let arrived = wire.get(&(rank, who)).and_then(VecDeque::front).cloned();
    if let Some((sent, copy)) = arrived
        && let Some((transfer, true)) = members[who].progress.next_receive(peer)
    {
        let from = sent.part.start..sent.part.start + sent.part.len;
        let bytes = copy.unwrap_or_else(|| members[rank].vector[from].to_vec());
        members[who].take(call, &transfer, &bytes);
        members[who].progress.received(peer);
        wire.get_mut(&(rank, who)).map(VecDeque::pop_front);
        return true;
    }
    let queue = wire.entry((who, rank)).or_default();
    if queue.len() < WINDOW
        && let Some(transfer) = members[who].progress.next_send(peer)
    {
        let range = transfer.part.start..transfer.part.start + transfer.part.len;
        let bytes = transfer.copied.then(|| members[who].vector[range].to_vec());
        queue.push_back((transfer, bytes));
        members[who].progress.sent(peer);
        return true;
    }
    false
}

/// Runs the collective; `choose` picks which of so many possibilities is tried next.
fn run(members: &mut [Member], call: &Call, mut choose: impl FnMut(usize) -> usize) {
    let mut wire = Wire::new();
    let pairs: Vec<_> = (0..members.len())
        .flat_map(|who| (0..members[who].progress.peers()).map(move |peer| (who, peer)))
        .collect();
    while members.iter().any(|member| !member.progress.is_done()) {
        let first = choose(pairs.len());
        let acted = (0..pairs.len()).any(|n| {
            let (who, peer) = pairs[(first + n) % pairs.len()];
            act(members, &mut wire, call, who, peer)
        });
        assert!(acted, "{call}: {} members stand still", members.len());
    }
    assert!(
        wire.values().all(VecDeque::is_empty),
        "{call}: messages left"
    );
}

fn pick(state: &mut u64) -> impl FnMut(usize) -> usize + '_ {
    |bound| {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(*state >> 33).unwrap_or(0) % bound
    }
}

/// The vectors of all members: numbers whose sum no order changes, or any.
fn vectors(size: usize, len: usize, seed: u64) -> Vec<Vec<u8>> {
    let byte = |rank: usize, at: usize| {
        let mixed = (seed ^ ((rank as u64) << 32) ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56).to_le_bytes()[0]
    };
    let vector = |rank| (0..len).map(|at| byte(rank, at)).collect();
    (0..size).map(vector).collect()
}

fn fold(call: &Call, vectors: &[Vec<u8>]) -> Vec<u8> {
    let (operation, element) = call.work().expect("it reduces");
    let mut result = vectors[0].clone();
    for vector in &vectors[1..] {
        reduce(operation, element, &mut result, vector).expect("whole elements");
    }
    result
}

/// Runs one call at `size` members and compares what each has.
fn check(collective: Collective, algorithm: Algorithm, size: usize, len: usize, seed: u64) {
    let deterministic = algorithm == Algorithm::Chain;
    let Some(algorithm) = algorithm.choose(collective, deterministic, len) else {
        return;
    };
    let call = Call {
        collective,
        algorithm,
        len: len as u64,
    };
    let vectors = vectors(size, len, seed);
    let each = |rank: usize| make(&call, rank, size, 24, vectors[rank].clone());
    let mut members: Vec<_> = (0..size).map(each).collect();
    let mut state = seed;
    run(&mut members, &call, pick(&mut state));
    let block = |rank: usize| rank * len / size..(rank + 1) * len / size;
    for (rank, member) in members.iter().enumerate() {
        let seen = format!("{call}, rank {rank} of {size}, seed {seed}");
        match collective {
            Collective::Allreduce(..) => {
                assert_eq!(member.vector, fold(&call, &vectors), "{seen}");
            }
            Collective::Reduce { root, .. } if rank == root => {
                assert_eq!(member.vector, fold(&call, &vectors), "{seen}");
            }
            Collective::Broadcast { root } => assert_eq!(member.vector, vectors[root], "{seen}"),
            Collective::Allgather => {
                let all: Vec<u8> = (0..size)
                    .flat_map(|of| vectors[of][block(of)].iter().copied())
                    .collect();
                assert_eq!(member.vector, all, "{seen}");
            }
            Collective::ReduceScatter(..) => {
                let whole = fold(&call, &vectors);
                assert_eq!(member.vector[block(rank)], whole[block(rank)], "{seen}");
            }
            Collective::Reduce { .. } | Collective::Barrier => {}
        }
    }
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::Auto,
    Algorithm::Ring,
    Algorithm::Doubling,
    Algorithm::Chain,
];

/// HT-50, SW-41: at every size from 2 to 64, by every algorithm, every member ends with the result;
/// nobody waits for what does not come, and nothing is left over.
#[test]
fn every_size_gets_the_result() {
    let (operation, element) = (Operation::Sum, Element::U32);
    for size in 2..=64 {
        for algorithm in ALGORITHMS {
            for (count, seed) in [(0, 1), (1, 2), (3, 3), (size, 4), (7 * size + 3, 5)] {
                let len = 4 * count;
                let seed = seed + size as u64;
                let sum = Collective::Allreduce(operation, element);
                check(sum, algorithm, size, len, seed);
                for root in [0, size / 2, size - 1] {
                    let reduce = Collective::Reduce {
                        operation,
                        element,
                        root,
                    };
                    check(reduce, algorithm, size, len, seed);
                    check(Collective::Broadcast { root }, algorithm, size, len, seed);
                }
            }
            for (each, seed) in [(1, 6), (9, 7)] {
                let len = 4 * each * size;
                check(Collective::Allgather, algorithm, size, len, seed);
                let scatter = Collective::ReduceScatter(operation, element);
                check(scatter, algorithm, size, len, seed);
            }
        }
        check(Collective::Barrier, Algorithm::Auto, size, 0, 8);
    }
}

/// SW-43: the bits of a sum of floats depend neither on who is first nor, in order of the ranks, on
/// the algorithm; all members have the same.
#[test]
fn floats_have_the_same_bits() {
    let sum = Collective::Allreduce(Operation::Sum, Element::F32);
    for size in [2, 3, 7, 8, 13] {
        let len: usize = 4 * 29;
        let of = |rank: usize| -> Vec<u8> {
            let power = [0.02, 0.14, 1.0, 7.0, 49.0][rank % 5];
            let number = |at: u16| f32::from(at + 1) * 0.1 * power;
            // NaN, whose payloads are lost.
            let nan = f32::from_bits(0x7fc0_0001 + u32::try_from(rank).unwrap_or(0));
            let number = |at: u16| if at == 3 { nan } else { number(at) };
            (0..29).flat_map(|at| number(at).to_le_bytes()).collect()
        };
        let vectors: Vec<_> = (0..size).map(of).collect();
        for algorithm in [Algorithm::Ring, Algorithm::Doubling, Algorithm::Chain] {
            let call = Call {
                collective: sum,
                algorithm,
                len: len as u64,
            };
            let mut results = Vec::new();
            for seed in 1..20 {
                let each = |rank: usize| make(&call, rank, size, 16, vectors[rank].clone());
                let mut members: Vec<_> = (0..size).map(each).collect();
                let mut state = seed;
                run(&mut members, &call, pick(&mut state));
                results.extend(members.into_iter().map(|member| member.vector));
            }
            results.dedup();
            assert_eq!(results.len(), 1, "{call} at {size}");
            if algorithm == Algorithm::Chain {
                assert_eq!(results[0], fold(&call, &vectors), "in order of the ranks");
            }
        }
    }
}

/// HT-50: doubling takes as few steps as there can be, and the ring as few bytes.
#[test]
fn algorithms_cost_what_they_should() {
    for size in 2..=64_usize {
        let call = |algorithm| Call {
            collective: Collective::Allreduce(Operation::Sum, Element::U64),
            algorithm,
            len: 8 * 64 * 63,
        };
        let rounds = size.ilog2() as usize + 2 * usize::from(!size.is_power_of_two());
        for rank in 0..size {
            let doubling = schedule(&call(Algorithm::Doubling), rank, size);
            assert!(doubling.len() <= rounds, "{rank} of {size}");
            let ring = schedule(&call(Algorithm::Ring), rank, size);
            let sent = ring.iter().filter_map(|step| step.send);
            let bytes: usize = sent.map(|send| send.part.len).sum();
            let least = 2 * (size - 1) * 8 * 64 * 63 / size;
            assert!(bytes <= least + 2 * 8 * size, "{bytes} of {least}");
        }
    }
}

/// The other members that one ever sends to or hears from, whatever is called with every root.
fn peers(rank: usize, size: usize, algorithms: &[Algorithm]) -> BTreeSet<usize> {
    let (operation, element) = (Operation::Sum, Element::U32);
    let of_root = (0..size).flat_map(|root| {
        let reduce = Collective::Reduce {
            operation,
            element,
            root,
        };
        [reduce, Collective::Broadcast { root }]
    });
    let others = [
        Collective::Allreduce(operation, element),
        Collective::Allgather,
        Collective::ReduceScatter(operation, element),
        Collective::Barrier,
    ];
    let mut met = BTreeSet::new();
    for (collective, algorithm) in others
        .into_iter()
        .chain(of_root)
        .flat_map(|it| algorithms.iter().map(move |algorithm| (it, *algorithm)))
    {
        let len = (size * element.len()) as u64;
        let call = Call {
            collective,
            algorithm,
            len,
        };
        for step in schedule(&call, rank, size) {
            met.extend(step.send.map(|it| it.peer));
            met.extend(step.receive.map(|it| it.peer));
        }
    }
    met
}

/// HT-50, HT-3: connections for data are never given back, and need not be: whatever a program
/// calls with whatever roots, a member has those of the ring and of two powers of two around it, at
/// most 12, and those of recursive doubling, where the size is no power of two. Only the last rank
/// of chains may have one to each other member, and these one to it.
#[test]
fn members_have_few_connections_whatever_is_called() {
    let mut most = 0;
    for size in 2..=SIZE_MAX {
        let of_power = size.next_power_of_two().ilog2() as usize;
        for rank in 0..size {
            let usual = peers(rank, size, &[Algorithm::Ring, Algorithm::Doubling]);
            let bound = match size.is_power_of_two() {
                true => 2 * of_power,
                false => 3 * of_power,
            };
            assert!(usual.len() <= bound, "{rank} of {size}: {usual:?}");
            most = most.max(usual.len());
            let mut all = peers(rank, size, &[Algorithm::Chain]);
            all.retain(|peer| !usual.contains(peer));
            if rank + 1 < size {
                assert!(
                    all.iter().all(|it| *it == size - 1),
                    "{rank} of {size}: {all:?}"
                );
            }
        }
    }
    assert_eq!(most, 16);
}

proptest! {
    /// HT-50: whatever goes on first, and however the vector is cut.
    #[test]
    fn any_order_gives_the_result(
        size in 2_usize..=17,
        count in 0_usize..200,
        which in 0_usize..4,
        operation in 0_usize..7,
        element in 0_usize..4,
        root in 0_usize..17,
        seed in any::<u64>(),
    ) {
        let (operation, element) = (Operation::ALL[operation], Element::ALL[element]);
        let len = count * element.len();
        let root = root % size;
        let algorithm = ALGORITHMS[which];
        check(Collective::Allreduce(operation, element), algorithm, size, len, seed);
        check(Collective::Reduce { operation, element, root }, algorithm, size, len, seed);
        check(Collective::Broadcast { root }, algorithm, size, len, seed);
        check(Collective::Allgather, algorithm, size, len * size, seed);
        check(Collective::ReduceScatter(operation, element), algorithm, size, len * size, seed);
    }
}
