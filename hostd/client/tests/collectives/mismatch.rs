//! Members that do something else than the rest, between the hosts and through a leaf.

use crate::rig::Rig;
use hostd_client::Access;
use hostd_client::group::{Cause, Element, Group, GroupError, GroupOptions, Operation, Vector};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIZE: usize = 4;

/// Within which all know, on a busy machine: the time-out is ten times as long.
const BOUND: Duration = Duration::from_secs(6);

/// What a member calls, on a vector of the usual length or on a shorter one.
type Call = fn(&mut Group, Vector<'_>, Vector<'_>) -> Result<(), GroupError>;

const ALLREDUCE: Call = |group, same, _| group.allreduce(Operation::Sum, Element::U32, same);
const REDUCE: Call = |group, same, _| group.reduce(Operation::Sum, Element::U32, 3, same);
const BROADCAST: Call = |group, same, _| group.broadcast(3, same);

/// Who calls something else, what it calls, and what the others call.
type Case = (usize, Call, Call);

const CASES: [Case; 11] = [
    (
        2,
        |group, _, short| group.allreduce(Operation::Sum, Element::U32, short),
        ALLREDUCE,
    ),
    (
        1,
        |group, same, _| group.allreduce(Operation::Sum, Element::F32, same),
        ALLREDUCE,
    ),
    (
        3,
        |group, same, _| group.allreduce(Operation::Max, Element::U32, same),
        ALLREDUCE,
    ),
    (0, |group, same, _| group.broadcast(0, same), ALLREDUCE),
    (2, |group, _, _| group.barrier(), ALLREDUCE),
    (1, REDUCE, ALLREDUCE),
    (1, BROADCAST, REDUCE),
    (3, BROADCAST, REDUCE),
    (
        0,
        |group, same, _| group.reduce(Operation::Sum, Element::I32, 3, same),
        REDUCE,
    ),
    (1, |group, same, _| group.broadcast(1, same), BROADCAST),
    (2, |group, _, short| group.broadcast(3, short), BROADCAST),
];

/// One that is not the root takes another member for it, which no switch finds fault with. The root
/// itself may, so that nobody sends anything.
const ROOTS: [Case; 4] = [
    (
        2,
        |group, same, _| group.reduce(Operation::Sum, Element::U32, 0, same),
        REDUCE,
    ),
    (
        3,
        |group, same, _| group.reduce(Operation::Sum, Element::U32, 0, same),
        REDUCE,
    ),
    (1, |group, same, _| group.broadcast(2, same), BROADCAST),
    (3, |group, same, _| group.broadcast(2, same), BROADCAST),
];

/// In groups of four one member calls something else than the rest: all of them end with the error
/// that names it, long before the time-out.
fn name_the_one_that_differs(rig: &Rig, cases: &[Case], through_leaf: bool) {
    let options = GroupOptions {
        timeout: Duration::from_secs(60),
        ..GroupOptions::default()
    };
    for (case, (odd, wrong, right)) in cases.iter().copied().enumerate() {
        for len in [64, 200 << 10] {
            let begun = Instant::now();
            let ends = rig.group(SIZE, options, |context, mut group| {
                let here = group.barrier();
                let switched = here.is_ok().then(|| group.uses_switches());
                let memory = context.allocate(len, Access::LOCAL_WRITE).expect("memory");
                let (same, short) = (Vector::new(&memory, 0, len), Vector::new(&memory, 0, 32));
                let call = if group.rank() == odd { wrong } else { right };
                let result = here.and_then(|()| call(&mut group, same, short));
                // A root that only gives is done before the others find out.
                (switched, result.and_then(|()| group.barrier()))
            });
            // One that has not come to it ends the barrier before between the hosts, too.
            let through = ends.iter().any(|(switched, _)| *switched == Some(true));
            assert_eq!(through, through_leaf, "case {case} of {len}");
            for (rank, (_, result)) in ends.into_iter().enumerate() {
                let Err(GroupError::Failed(failure)) = result else {
                    panic!("case {case} of {len}, rank {rank}: {result:?}");
                };
                let mismatch = matches!(failure.cause, Cause::Mismatch { .. });
                assert!(
                    mismatch && failure.rank == odd,
                    "case {case} of {len}, rank {rank}: {failure}"
                );
            }
            let took = begun.elapsed();
            println!("case {case} of {len}: {took:?}");
            assert!(took < BOUND, "case {case} of {len}: {took:?}");
        }
    }
}

/// HT-50, SW-42: one calls another length, another type, another operation, another root, another
/// collective: all, itself included, end with the error that names it, long before the time-out.
#[test]
fn the_one_that_differs_is_named_by_all() {
    if let Some(rig) = Rig::new(SIZE) {
        name_the_one_that_differs(&rig, &CASES, false);
        name_the_one_that_differs(&rig, &ROOTS, false);
    }
}

/// HT-50, SW-42: the same in groups that go through a leaf, but for another root, which switches do
/// not see. Meanwhile another group of the leaf
/// goes on there with exact results.
#[test]
fn the_one_that_differs_is_named_by_all_through_the_leaf() {
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    let over = AtomicBool::new(false);
    let other = |context: hostd_client::Context, mut group: Group| {
        let [rank, size] = [group.rank(), group.size()].map(|it| u32::try_from(it).expect("few"));
        let memory = context
            .allocate(8_000, Access::LOCAL_WRITE)
            .expect("memory");
        let (mut last, mut round) = (0, 0);
        while last == 0 {
            // The first number says whether rank 0 was told to end: all end with the same round.
            let ends = u32::from(rank == 0 && over.load(Ordering::Relaxed));
            let number = |at: u32| if at == 0 { ends } else { at + rank + round };
            let own: Vec<u8> = (0..2_000).flat_map(|at| number(at).to_le_bytes()).collect();
            memory.write(0, &own).expect("inside");
            let vector = Vector::new(&memory, 0, 8_000);
            group
                .allreduce(Operation::Sum, Element::U32, vector)
                .expect("unharmed");
            let mut sums = [0; 8_000];
            memory.read(0, &mut sums).expect("inside");
            for (at, sum) in (0_u32..).zip(sums.as_chunks::<4>().0) {
                let sum = u32::from_le_bytes(*sum);
                match at {
                    0 => last = sum,
                    _ => assert_eq!(sum, size * (at + round) + size * (size - 1) / 2),
                }
            }
            round += 1;
        }
        assert!(group.uses_switches(), "{:?}", group.fallback());
        round
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| rig.group(3, GroupOptions::default(), other));
        let all = || name_the_one_that_differs(&rig, &CASES, true);
        let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all));
        over.store(true, Ordering::Relaxed);
        let rounds = other.join().expect("the other group is unharmed");
        println!("the other group did {} rounds meanwhile", rounds[0]);
        if let Err(panic) = all {
            std::panic::resume_unwind(panic);
        }
    });
}
