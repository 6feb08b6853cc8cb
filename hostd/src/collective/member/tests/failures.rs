//! Ends of epochs, and messages that no switch should say.

use super::leaf::{EPOCH, GENERATION, HOST, SWITCH, WORLD, World};
use super::*;
use crate::verbs::DropReason;
use common::wire::compute::{Chunk, Flags, Level, Levels, Message, Packet, Slot, Terms};

pub(super) const ALL: Work = Work::Allreduce(Operation::Sum, Element::F32);

fn verdict(reason: Reason, world: Option<u16>) -> Verdict {
    Verdict {
        reason,
        level: 0,
        world,
        generation: GENERATION,
    }
}

fn reasons(world: &World, rank: usize) -> Vec<Option<End>> {
    let ended = world.ended[rank].iter();
    ended.map(|it| it.failed.map(|it| it.1)).collect()
}

fn told(reason: Reason, world: u16) -> Option<End> {
    Some(End {
        reason: EndReason::Told(reason),
        world: Some(world),
    })
}

/// HT-50: when the epoch ends in the middle of a collective, each member learns why and because of
/// whom; up to the reported prefix the result is in place, and behind it is what the caller put
/// there, though later results had come.
#[test]
fn what_is_behind_the_prefix_is_as_it_was() {
    const LEN: u32 = 50_000;
    for seed in 0..8 {
        println!("seed {seed}");
        let mut world = World::new(3, LEN as usize, seed);
        world.faults.lost = 20;
        world.join();
        let before: Vec<_> = world.memory.iter().map(|it| it.to_vec()).collect();
        let wanted = expected(ALL, &before, LEN as usize);
        for rank in 0..3 {
            let place = world.at(rank, 0);
            world.post(rank, work(ALL, LEN, place, place));
            world.post(rank, work(Work::Barrier, 0, place, place));
        }
        let target = 20 + 15 * usize::try_from(seed).expect("small");
        assert!(world.run(PATIENCE, |it| it.leaf.complete() >= target));
        let messages = world
            .leaf
            .fail(verdict(Reason::MemberLost, Some(WORLD + 1)));
        world.tell(messages);
        for (rank, kept) in before.iter().enumerate() {
            let end = told(Reason::MemberLost, WORLD + 1);
            assert_eq!(reasons(&world, rank), [end, end]);
            let done = world.ended[rank][0].done as usize;
            assert!(
                done > 0 && done < LEN as usize && done.is_multiple_of(256),
                "{done}"
            );
            let after = world.memory[rank].to_vec();
            assert!(after[..done] == wanted[..done] && after[done..] == kept[done..]);
            assert_eq!(world.ended[rank][1].done, 0);
            // Whoever comes later learns the same, and nothing is sent any more.
            let place = world.at(rank, 0);
            world.post(rank, work(ALL, 8, place, place));
            assert_eq!(reasons(&world, rank).len(), 3);
            assert!(world.members[rank].is_over());
            assert_eq!(world.members[rank].deadline(), Time::NEVER);
        }
    }
}

/// HT-50: a switch that is silent for the lease is lost, in the middle of work and without any; and
/// one that does not answer at all is given up.
#[test]
fn silent_switches_are_given_up() {
    for busy in [true, false] {
        let mut world = World::new(2, 8, 1);
        world.join();
        world.leaf.dead = true;
        let from = world.now;
        if busy {
            let place = world.at(0, 0);
            world.post(0, work(ALL, 8, place, place));
        }
        let over = |it: &World| it.members.iter().all(Member::is_over);
        assert!(world.run(Span::from_secs(3), over));
        let after = world.now.since(from);
        assert!(
            after >= Span::from_secs(2) && after <= Span::from_millis(2_600),
            "{after}"
        );
        let lost = End {
            reason: EndReason::SwitchLost,
            world: None,
        };
        assert_eq!(world.members[0].end(), Some(lost));
        assert_eq!(reasons(&world, 0), vec![Some(lost); usize::from(busy)]);
    }
    let mut world = World::new(2, 8, 1);
    world.leaf.dead = true;
    assert!(world.run(Span::from_secs(11), |it| {
        it.members.iter().all(Member::is_over)
    }));
    assert_eq!(
        world.members[1].end().map(|it| it.reason),
        Some(EndReason::NoAnswer)
    );
    // A request to be admitted is no collective that failed.
    let place = world.at(1, 0);
    let admission = CollectiveRequest {
        work: None,
        ..work(ALL, 8, place, place)
    };
    world.post(1, admission);
    let failed = |world: &World| world.members[1].statistics(0).counters.failed;
    assert_eq!((world.ended[1].len(), failed(&world)), (1, 0));
    world.post(1, work(ALL, 8, place, place));
    assert_eq!((world.ended[1].len(), failed(&world)), (2, 1));
}

/// HT-50: a member that waits for one that is slow does not take the switch for lost: partial
/// results say that it lives.
#[test]
fn slow_members_are_waited_for() {
    let mut world = World::new(2, 8, 1);
    world.join();
    let place = world.at(0, 0);
    world.post(0, work(ALL, 8, place, place));
    assert!(!world.run(Span::from_secs(20), |_| false));
    let counters = world.members[0].statistics(0).counters;
    // Never later than a quarter of the lease.
    assert!((38..60).contains(&counters.retransmissions), "{counters:?}");
    assert!(counters.partials >= 38);
    let place = world.at(1, 0);
    world.post(1, work(ALL, 8, place, place));
    assert!(world.run(PATIENCE, |it| it.ended.iter().all(|it| it.len() == 1)));
}

/// HT-50: a refusal of this attempt ends it, one of an earlier attempt does not.
#[test]
fn refusals_count_for_their_attempt() {
    let mut world = World::new(2, 8, 1);
    let place = world.at(0, 0);
    world.post(0, work(ALL, 8, place, place));
    let mut old = verdict(Reason::MemberMissing, Some(WORLD + 1));
    old.generation -= 1;
    let message = world.leaf.refuse(0, old);
    world.tell(vec![message]);
    assert_eq!(world.drops, [DropReason::CollectiveEpoch]);
    let message = world
        .leaf
        .refuse(0, verdict(Reason::MemberMissing, Some(WORLD + 1)));
    world.tell(vec![message]);
    assert_eq!(reasons(&world, 0), [told(Reason::MemberMissing, WORLD + 1)]);
}

/// HT-50: who closes with work under way tells the others that it left; who has finished says so;
/// LEAVE is repeated until it is answered, and no longer than the lease.
#[test]
fn leaving_says_why() {
    let mut world = World::new(3, 8, 1);
    world.faults.lost = 30;
    world.join();
    let place = world.at(0, 0);
    world.post(0, work(ALL, 8, place, place));
    let now = world.now;
    world.members[0].close(now);
    world.members[1].close(now);
    assert!(world.run(PATIENCE, |it| it.members[..2].iter().all(Member::is_over)));
    let left = |rank: usize| world.leaf.left[rank].map(|it| (it.reason, it.world));
    assert_eq!(left(0), Some((Reason::MemberLeft, Some(WORLD))));
    assert_eq!(left(1), Some((Reason::Finished, Some(WORLD + 1))));
    assert_eq!(world.members[2].phase(), Phase::Running);
    world.leaf.dead = true;
    let from = world.now;
    world.members[2].close(from);
    assert!(world.run(PATIENCE, |it| it.members[2].is_over()));
    assert_eq!(world.now.since(from), Span::from_secs(2));
}

/// HT-50: who does without the switch because others did not come has not left, and nobody else is
/// told so; an application that ends meanwhile has.
#[test]
fn who_waits_in_vain_is_not_to_blame() {
    for (gives_up, reason, world_rank) in [
        (true, Reason::MemberMissing, None),
        (false, Reason::MemberLeft, Some(WORLD)),
    ] {
        let mut world = World::new(2, 8, 1);
        // The other one does not come.
        world.members[1].close(world.now);
        assert!(!world.run(Span::from_millis(50), |it| {
            it.members[0].phase() != Phase::Joining
        }));
        let now = world.now;
        if gives_up {
            world.members[0].withdraw(now);
        } else {
            world.members[0].close(now);
        }
        world.run(PATIENCE, |it| it.members[0].is_over());
        let left = world.leaf.left[0].expect("it says so");
        assert_eq!((left.reason, left.world), (reason, world_rank));
    }
}

/// HT-50, SW-42: who withdraws from a job that is not complete learns whether the switch has heard
/// it, so that the members can find out whose messages it drops; soon after the beginning, nothing.
#[test]
fn who_withdraws_learns_whether_it_was_heard() {
    let after = |hears: bool, millis: u64| {
        let mut world = World::new(2, 8, 1);
        world.members[1].close(world.now);
        world.leaf.dead = !hears;
        world.run(Span::from_millis(millis), |_| false);
        assert_eq!(world.members[0].phase(), Phase::Joining);
        assert_eq!(world.drops, [], "what it says of the job is awaited");
        let now = world.now;
        world.members[0].withdraw(now);
        world.members[0].end().map(|it| (it.reason, it.world))
    };
    assert_eq!(after(true, 3_000), Some((EndReason::NoAnswer, None)));
    assert_eq!(after(false, 3_000), Some((EndReason::SwitchLost, None)));
    assert_eq!(after(false, 900), Some((EndReason::Closed, None)));
    // One that fell silent meanwhile does not hear it any more.
    let mut world = World::new(2, 8, 1);
    world.members[1].close(world.now);
    for dead in [false, true] {
        world.leaf.dead = dead;
        world.run(Span::from_millis(1_500), |_| false);
    }
    let now = world.now;
    world.members[0].withdraw(now);
    let end = world.members[0].end().map(|it| it.reason);
    assert_eq!(end, Some(EndReason::SwitchLost));
}

/// HT-50, SW-42: a member that its leaf did not hear is named, at its own leaf and at others, to
/// which the verdict was passed on twice. A leaf that its spine did not hear is none of its
/// members.
#[test]
fn nobody_is_named_for_a_silent_leaf() {
    for (levels, found_at, named) in [
        (0, 0, true),
        (1, 1, true),
        (1, 0, false),
        (2, 2, true),
        (2, 1, false),
        (2, 0, false),
    ] {
        let mut world = World::new(2, 8, 1);
        let above = [Level {
            rank: 0,
            size: 2,
            trees: 1,
            first: 0,
        }; 2];
        let mut asked = super::leaf::request(0, 2);
        asked.join.above = Levels::new(&above[..levels]);
        world.members[0] = Member::new(&asked, &super::leaf::config(), world.now);
        world.join();
        let told = Verdict {
            level: found_at,
            ..verdict(Reason::MemberLost, Some(WORLD + 1))
        };
        let messages = world.leaf.fail(told);
        world.tell(messages);
        let expected = End {
            reason: EndReason::Told(Reason::MemberLost),
            world: named.then_some(WORLD + 1),
        };
        let end = world.members[0].end();
        assert_eq!(
            end,
            Some(expected),
            "{levels} levels, {found_at} above who found it"
        );
    }
}

/// HT-50: memory that is deregistered in the middle ends the membership, and the others learn who.
#[test]
fn memory_that_goes_away_ends_the_membership() {
    let mut world = World::new(2, 50_000, 1);
    world.join();
    for rank in 0..2 {
        let place = world.at(rank, 0);
        world.post(rank, work(ALL, 50_000, place, place));
    }
    assert!(world.run(PATIENCE, |it| it.leaf.complete() >= 20));
    let lkey = world.lkeys[1];
    world.regions[1].deregister(lkey).expect("it was there");
    assert!(world.run(PATIENCE, |it| it.members[1].is_over()));
    let end = world.ended[1][0].failed.expect("it failed");
    assert_eq!(
        (end.0, end.1.reason),
        (Status::LocalProtection, EndReason::Memory)
    );
    let left = world.leaf.left[1].expect("it left");
    assert_eq!(
        (left.reason, left.world),
        (Reason::MemberLeft, Some(WORLD + 1))
    );
}

/// HT-50: what cannot be done ends the membership, as the others have numbers for its chunks: what
/// was posted before and comes after fails, and the others learn who left.
#[test]
fn impossible_collectives_end_the_membership() {
    let rooted = |it| CollectiveRequest { root: true, ..it };
    let shared = |it| CollectiveRequest { shared: true, ..it };
    for number in 0..9 {
        let mut world = World::new(2, 64, 1);
        world.join();
        let good = world.at(0, 0);
        let (outside, unknown) = (world.at(0, 32), Buffer { addr: 0, lkey: 1 });
        let (request, status) = match number {
            0 => (work(ALL, 64, outside, good), Status::LocalProtection),
            1 => (work(ALL, 64, good, outside), Status::LocalProtection),
            2 => (work(ALL, 64, unknown, good), Status::LocalProtection),
            3 => (work(ALL, 63, good, good), Status::LocalQpOperation),
            4 => (rooted(work(ALL, 64, good, good)), Status::LocalQpOperation),
            5 => (work(Work::Barrier, 8, good, good), Status::LocalQpOperation),
            number => {
                let reduce = Work::Reduce(Operation::Sum, Element::F32);
                let (it, len) =
                    [(reduce, 64), (Work::Broadcast, 64), (Work::Barrier, 0)][number - 6];
                (shared(work(it, len, good, good)), Status::LocalQpOperation)
            }
        };
        world.post(0, work(ALL, 64, good, good));
        world.post(
            0,
            CollectiveRequest {
                wr_id: 2,
                ..request
            },
        );
        let later = work(ALL, 64, good, good);
        world.post(0, CollectiveRequest { wr_id: 3, ..later });
        let ended = world.ended[0].iter();
        let ended: Vec<_> = ended
            .map(|it| (it.wr_id, it.failed.map(|it| it.0)))
            .collect();
        let denied = Some(Status::LocalProtection);
        assert_eq!(ended, [(1, denied), (2, Some(status)), (3, denied)]);
        let reason = world.members[0].end().map(|it| it.reason);
        assert_eq!(reason, Some(EndReason::Memory), "case {number}");
        assert_eq!(world.members[0].statistics(0).counters.failed, 3);
        assert!(world.run(PATIENCE, |it| it.members[0].is_over()));
        let left = world.leaf.left[0].map(|it| (it.reason, it.world));
        assert_eq!(left, Some((Reason::MemberLeft, Some(WORLD))));
        assert_eq!(world.leaf.complete(), 0);
    }
}

/// HT-50: a member whose messages have no room in a packet says nothing, and its clocks end it.
#[test]
fn messages_without_room_end_the_membership() {
    for joined in [false, true] {
        let mut world = World::new(1, 8, 1);
        if joined {
            world.join();
        }
        for _ in 0..2 {
            world.now = world.members[0].deadline();
            let (member, regions) = (&mut world.members[0], &world.regions[0]);
            member.expire(world.now);
            let way = Way {
                source: HOST,
                leaf: SWITCH,
                most: 0,
            };
            assert_eq!(member.transmit(way, &mut [], regions, world.now), None);
            assert_eq!(member.phase(), Phase::Leaving);
            assert!(!member.wants_to_send(world.now) && member.deadline() > world.now);
        }
        assert!(world.run(PATIENCE, |it| it.members[0].is_over()));
    }
}

/// A member of two in the middle of a collective of four chunks.
pub(super) fn amid() -> World {
    let mut world = World::new(2, 1_024, 1);
    world.join();
    let place = world.at(0, 0);
    world.post(0, work(ALL, 1_024, place, place));
    world.run(Span::from_millis(1), |_| false);
    world
}

/// Each of these messages is dropped for this reason, without its tag for the lack of that, and
/// changes nothing.
fn dropped(world: &mut World, reason: DropReason, messages: &[(u32, Message<'_>)]) {
    let before = world.memory[0].to_vec();
    let key = Key::of_job(&super::leaf::SECRET, super::leaf::JOB);
    for (epoch, message) in messages {
        let packet = Packet {
            flags: Flags::default(),
            job: super::leaf::JOB,
            epoch: *epoch,
            rank: 0,
            message: *message,
        };
        let mut bytes = vec![0; packet.len()];
        // Neither a message to the leaf nor one to another host counts for one to this.
        let seals = [(SWITCH, SWITCH), (HOST, SWITCH), (HOST, HOST)];
        let seals = seals.map(|(src, dst)| Some(key.between(src, dst)));
        let wrong = seals
            .into_iter()
            .chain([None])
            .map(|it| (it, DropReason::CollectiveKey));
        for (seal, reason) in wrong.chain([(Some(key.between(SWITCH, HOST)), reason)]) {
            packet.write(seal, &mut bytes).expect("it fits");
            world.deliver(0, &bytes);
            assert_eq!(world.drops.pop(), Some(reason), "{message:?}");
        }
        assert_eq!(world.members[0].phase(), Phase::Running);
        assert!(world.memory[0].to_vec() == before && world.ended[0].is_empty());
    }
}

/// HT-50, SW-42: results that are not awaited, or are of something else than what was contributed.
#[test]
fn wrong_results_are_dropped_by_reason() {
    let mut world = amid();
    let data = [0; 256];
    let chunk = Chunk {
        work: ALL,
        slot: Slot::of(1, 16),
        sequence: 1,
        contributions: 3,
        complete: 0,
        data: &data,
    };
    let at = |sequence| Message::Result(Chunk { sequence, ..chunk });
    let repeated = [(EPOCH, at(4)), (EPOCH, at(u64::MAX))];
    dropped(&mut world, DropReason::CollectiveRepeated, &repeated);
    let slot = Slot {
        version: 1,
        ..chunk.slot
    };
    let data = &data[..252];
    let work = Work::Allreduce(Operation::Max, Element::F32);
    let unlike = [
        Chunk { slot, ..chunk },
        Chunk { work, ..chunk },
        Chunk { data, ..chunk },
    ];
    let unlike = unlike.map(|it| (EPOCH, Message::Result(it)));
    dropped(&mut world, DropReason::CollectiveUnlike, &unlike);
    let late = [(EPOCH + 1, at(1))];
    dropped(&mut world, DropReason::CollectiveEpoch, &late);
}

/// HT-50, SW-42: messages of other epochs and phases, and such as no switch says.
#[test]
fn wrong_messages_are_dropped_by_reason() {
    let mut world = amid();
    let terms = Terms {
        slots: 16,
        payload: 256,
        lease_millis: 2_000,
        generation: GENERATION,
    };
    let admit = Message::Admit(terms);
    let deleted = Message::Error(verdict(Reason::Deleted, None));
    let epochs = [
        (EPOCH + 1, Message::Alive),
        (EPOCH + 1, deleted),
        (0, deleted),
        (0, admit),
    ];
    dropped(&mut world, DropReason::CollectiveEpoch, &epochs);
    let full = Message::Refuse(verdict(Reason::Full, None));
    let phases = [(EPOCH, Message::Left), (0, full), (EPOCH + 1, admit)];
    dropped(&mut world, DropReason::CollectivePhase, &phases);
    dropped(
        &mut world,
        DropReason::CollectiveRepeated,
        &[(EPOCH, admit)],
    );
    let upward = [(EPOCH, Message::KeepAlive)];
    dropped(&mut world, DropReason::CollectiveUpward, &upward);
    let of = |payload| (EPOCH, Message::Admit(Terms { payload, ..terms }));
    dropped(&mut world, DropReason::CollectiveTerms, &[of(4), of(257)]);
}

/// HT-50: what comes to a member that leaves, or is over, was under way or came twice. It is lost
/// under a name of its own, as it is no sign of anything wrong, and changes nothing.
#[test]
fn what_comes_after_the_end_has_its_own_name() {
    let mut world = amid();
    let terms = Terms {
        slots: 16,
        payload: 256,
        lease_millis: 2_000,
        generation: GENERATION,
    };
    let (member, now) = (&mut world.members[0], world.now);
    member.close(now);
    assert_eq!(member.phase(), Phase::Leaving);
    let late = |world: &mut World, message: Message<'_>| {
        let key = Key::of_job(&super::leaf::SECRET, super::leaf::JOB);
        let packet = Packet {
            flags: Flags::default(),
            job: super::leaf::JOB,
            epoch: EPOCH,
            rank: 0,
            message,
        };
        let mut bytes = vec![0; packet.len()];
        let seal = Some(key.between(SWITCH, HOST));
        packet.write(seal, &mut bytes).expect("it fits");
        world.deliver(0, &bytes);
        world.drops.pop()
    };
    let ended = Some(DropReason::CollectiveEnded);
    let finished = Message::Error(verdict(Reason::Finished, None));
    for message in [Message::Alive, Message::Admit(terms)] {
        assert_eq!(late(&mut world, message), ended, "{message:?}");
    }
    assert_eq!(late(&mut world, Message::Left), None);
    for message in [Message::Left, Message::Alive, finished] {
        assert_eq!(world.members[0].phase(), Phase::Over);
        assert_eq!(late(&mut world, message), ended, "{message:?}");
    }
}
