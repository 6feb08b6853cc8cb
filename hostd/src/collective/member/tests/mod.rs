mod failures;
mod leaf;

use super::*;
use common::reduce::reduce_in_order;
use common::wire::compute::{Element, Operation};
use leaf::{Faults, World};

const PATIENCE: Span = Span::from_secs(60);

fn work(work: Work, len: u32, input: Buffer, output: Buffer) -> CollectiveRequest {
    CollectiveRequest {
        wr_id: 1,
        work: Some(work),
        root: false,
        shared: false,
        len,
        input,
        output,
    }
}

/// What comes of the first bytes of all members' memory.
fn expected(work: Work, inputs: &[Vec<u8>], len: usize) -> Vec<u8> {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = work else {
        return inputs[0][..len].to_vec();
    };
    let mut into = vec![0; len];
    let vectors = inputs.iter().map(|it| &it[..len]);
    reduce_in_order(operation, element, &mut into, vectors).expect("of one length");
    into
}

/// HT-50, SW-41, SW-42: allreduce of every operation and type, in place, over a network that loses
/// 5 % each way, doubles 10 % and reorders, gives each member the same bits, and nothing is added
/// twice.
#[test]
fn results_are_exact_whatever_the_network_does() {
    const LEN: u32 = 10_000;
    for seed in 0..6_u8 {
        println!("seed {seed}");
        let mut world = World::new(4, LEN as usize, seed.into());
        world.faults = Faults {
            lost: 5,
            doubled: 10,
        };
        world.join();
        for (number, element) in (0_usize..).zip(Element::ALL) {
            let mut operations = Operation::ALL.into_iter().cycle();
            let mut operations = operations.by_ref().skip(number + usize::from(seed));
            let operation = operations
                .find(|it| it.takes(element))
                .expect("one of them");
            let all = Work::Allreduce(operation, element);
            let inputs: Vec<_> = world.memory.iter().map(|it| it.to_vec()).collect();
            let wanted = expected(all, &inputs, LEN as usize);
            for rank in 0..4 {
                let place = world.at(rank, 0);
                world.post(rank, work(all, LEN, place, place));
            }
            let done = |world: &World| world.ended.iter().all(|it| it.len() == number + 1);
            assert!(world.run(PATIENCE, done), "{all:?}");
            for (memory, ended) in world.memory.iter().zip(&world.ended) {
                assert!(memory.to_vec() == wanted, "{all:?}");
                let last = ended.last().expect("it has ended");
                assert_eq!((last.failed, last.done), (None, LEN));
            }
        }
        let repeated = |it: &_| *it == crate::verbs::DropReason::CollectiveRepeated;
        assert!(world.drops.iter().all(repeated), "{:?}", world.drops);
        let again = world.members.iter().map(|it| it.counters.retransmissions);
        assert!(again.sum::<u64>() > 0, "something was lost");
    }
}

/// HT-50: collectives follow one another without waiting, of all kinds and lengths; roots get what
/// is theirs and others keep what they had.
#[test]
fn collectives_follow_one_another() {
    let mut world = World::new(3, 4_000, 11);
    world.faults = Faults {
        lost: 5,
        doubled: 10,
    };
    let sum = (Operation::Sum, Element::U32);
    let before: Vec<_> = world.memory.iter().map(|it| it.to_vec()).collect();
    for rank in 0..3 {
        let (input, output) = (world.at(rank, 0), world.at(rank, 2_000));
        let reduce = work(Work::Reduce(sum.0, sum.1), 1_000, input, output);
        let spread = work(Work::Broadcast, 333, input, world.at(rank, 3_000));
        let none = world.at(rank, 0);
        let requests = [
            CollectiveRequest {
                work: None,
                ..work(Work::Barrier, 0, none, none)
            },
            CollectiveRequest {
                root: rank == 1,
                ..reduce
            },
            work(Work::Barrier, 0, none, none),
            CollectiveRequest {
                root: rank == 2,
                ..spread
            },
            work(Work::Allreduce(sum.0, sum.1), 0, none, none),
        ];
        for (number, request) in (0..).zip(requests) {
            world.post(
                rank,
                CollectiveRequest {
                    wr_id: number,
                    ..request
                },
            );
        }
    }
    assert!(world.run(PATIENCE, |it| it.ended.iter().all(|it| it.len() == 5)));
    let wanted = expected(Work::Reduce(sum.0, sum.1), &before, 1_000);
    for rank in 0..3 {
        let ended = &world.ended[rank];
        assert!(ended.iter().all(|it| it.failed.is_none()), "{ended:?}");
        assert!(ended.iter().map(|it| it.wr_id).eq(0..5));
        let after = world.memory[rank].to_vec();
        let kept = &before[rank];
        let at_2000 = if rank == 1 {
            &wanted
        } else {
            &kept[2_000..3_000]
        };
        assert!(&after[2_000..3_000] == at_2000, "rank {rank}");
        let at_3000 = if rank == 2 {
            &kept[3_000..3_333]
        } else {
            &before[2][..333]
        };
        assert!(&after[3_000..3_333] == at_3000, "rank {rank}");
        assert!(after[..2_000] == kept[..2_000] && after[3_333..] == kept[3_333..]);
    }
}

/// HT-50, SW-42: contributions say where a collective ends and whether it is a reduce whose result
/// all get: what is as long at first, or done in the same way, is not the same.
#[test]
fn contributions_say_what_their_collective_is() {
    let mut world = World::new(2, 1_024, 3);
    let sum = Work::Allreduce(Operation::Sum, Element::U32);
    for rank in 0..2 {
        let place = world.at(rank, 0);
        let of = |it, len| work(it, len, place, place);
        let shared = CollectiveRequest {
            shared: true,
            root: rank == 1,
            ..of(sum, 300)
        };
        let spread = CollectiveRequest {
            root: rank == 0,
            ..of(Work::Broadcast, 512)
        };
        for request in [
            of(sum, 600),
            of(sum, 256),
            shared,
            of(Work::Barrier, 0),
            spread,
        ] {
            world.post(rank, request);
        }
    }
    assert!(world.run(PATIENCE, |it| it.ended.iter().all(|it| it.len() == 5)));
    let (goes_on, last) = ([false, false], [true, false]);
    let wanted = [
        (goes_on, None),
        (goes_on, None),
        (last, None),
        (last, None),
        ([false, true], Some(1)),
        ([true, true], Some(1)),
        (last, None),
        (goes_on, Some(0)),
        (last, Some(0)),
    ];
    assert_eq!(world.leaf.said(), wanted);
}

/// HT-50: marks of congestion halve the window, and without loss hardly anything is sent twice.
#[test]
fn marks_shrink_the_window() {
    let mut world = World::new(2, 64_000, 3);
    world.join();
    world.leaf.marks = true;
    let all = Work::Allreduce(Operation::Sum, Element::I64);
    for rank in 0..2 {
        let place = world.at(rank, 0);
        world.post(rank, work(all, 64_000, place, place));
    }
    assert!(world.run(PATIENCE, |it| it.ended.iter().all(|it| it.len() == 1)));
    let member = world.members[0].statistics(0);
    assert_eq!((member.window, member.counters.results), (1, 250));
    assert!(
        member.counters.cuts >= 4 && member.counters.marks == 250,
        "{member:?}"
    );
    // A delay that was longer than those before it may pass for a loss.
    assert!(member.counters.retransmissions < 5, "{member:?}");
    assert_eq!(world.leaf.complete(), 250);
}

/// HT-50: a member that has nothing to do says that it lives, each quarter of the lease.
#[test]
fn idle_members_show_that_they_live() {
    let mut world = World::new(2, 8, 5);
    world.join();
    assert!(!world.run(Span::from_secs(20), |_| false));
    for member in &world.members {
        let alive = member.statistics(0).counters.keep_alives;
        assert!((39..=41).contains(&alive), "{alive} in ten leases");
        assert_eq!(member.phase(), Phase::Running);
    }
}

/// HT-50: a member whose signs are lost repeats them sooner than it else gives them: a few losses
/// pass neither for its death nor for that of the switch.
#[test]
fn signs_without_an_answer_are_repeated() {
    let mut world = World::new(2, 8, 5);
    world.join();
    world.faults.lost = 100;
    let before = world.members[0].statistics(0).counters.keep_alives;
    assert!(!world.run(Span::from_millis(2_300), |_| false));
    let member = world.members[0].statistics(0);
    let signs = member.counters.keep_alives - before;
    assert!((13..=16).contains(&signs), "{signs} in a lease");
    assert_eq!(world.members[0].phase(), Phase::Running);
    world.faults.lost = 0;
    assert!(!world.run(Span::from_secs(4), |_| false));
    assert_eq!(world.members[0].phase(), Phase::Running);
}

/// HT-50, SW-42: a contribution that the switch says it lacks leaves again at once; one that it has
/// does not.
#[test]
fn what_the_switch_lacks_leaves_again() {
    let mut world = failures::amid();
    for (contributions, sent) in [(3, 0), (2, 1)] {
        let before = world.members[0].counters.retransmissions;
        let chunk = common::wire::compute::Chunk {
            work: failures::ALL,
            slot: common::wire::compute::Slot::of(1, 16),
            sequence: 1,
            contributions,
            complete: 0,
            data: &[],
        };
        let said = world.leaf.partial(0, chunk);
        world.tell(vec![said]);
        world.run(Span::ZERO, |_| true);
        let after = world.members[0].counters.retransmissions;
        assert_eq!(after - before, sent, "{contributions}");
    }
}
