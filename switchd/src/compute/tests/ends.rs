//! Members that leave, come again, or come too often: all others are told, and what one does is not
//! at the cost of another.

use super::plan::Plan;
use super::world::{End, Random, Sent, Switch, World, member_address, switch_address};
use crate::compute::{Happening, Peer, Settings};
use crate::drop::DropReason;
use common::time::Span;
use common::wire::compute::{
    Element, Flags, Join, Level, Levels, Message, Operation, Packet, Reason, Terms, Verdict, Work,
};
use std::net::SocketAddr;

const JOB: u32 = 7;

/// A world with a job of so many sums, in which nothing has happened.
fn world(leaves: &[usize], trees: u16, sums: usize) -> World {
    let plan = Plan {
        leaves: leaves.to_vec(),
        trees,
        slots: 4,
        deterministic: false,
        works: vec![Work::Allreduce(Operation::Sum, Element::U32); sums],
        bytes: 16,
    };
    let mut world = World::new(1);
    plan.build(&mut world, JOB, &mut Random(1));
    world
}

/// Gives the first switch a message of a member.
fn say(
    world: &mut World,
    from: SocketAddr,
    (rank, epoch): (u16, u32),
    message: Message<'_>,
) -> Result<(), DropReason> {
    say_of(world, from, (JOB, rank, epoch), message)
}

/// The same of any job.
fn say_of(
    world: &mut World,
    from: SocketAddr,
    (job, rank, epoch): (u32, u16, u32),
    message: Message<'_>,
) -> Result<(), DropReason> {
    let packet = Packet {
        flags: Flags::default(),
        job,
        epoch,
        rank,
        message,
    };
    let mut bytes = vec![0; packet.len()];
    packet.write(None, &mut bytes).expect("it fits");
    world.give(0, from, &bytes, false)
}

/// A verdict of a member of generation 1.
fn leave(reason: Reason) -> Message<'static> {
    Message::Leave(Verdict {
        reason,
        level: 0,
        world: None,
        generation: 1,
    })
}

/// How often the first switch has refused so.
fn refused(world: &World, reason: Reason) -> u64 {
    world.switches[0].stats.refused[reason as usize].get()
}

/// SW-42: members that leave in good order before a chunk that others have begun end the job, at
/// their leaf and at a spine: nobody waits for them.
#[test]
fn nobody_waits_for_members_that_left() {
    for (leaves, trees, early) in [(&[2][..], 0, 0..1), (&[1, 2][..], 1, 1..3)] {
        let mut world = world(leaves, trees, 20);
        let blamed = world.members[early.start].join.world;
        for member in &mut world.members[early.clone()] {
            member.cut_short(18);
        }
        assert!(world.finish(Span::from_secs(5)), "{leaves:?}: all are told");
        for (number, member) in world.members.iter().enumerate() {
            if early.contains(&number) {
                assert_eq!(member.end, Some(End::Done));
                continue;
            }
            let Some(End::Failed(verdict)) = member.end else {
                panic!("{leaves:?}: {:?}", member.end);
            };
            let told = (verdict.reason, verdict.world);
            assert_eq!(told, (Reason::MemberLeft, Some(blamed)));
        }
    }
}

/// SW-42: a member that is started anew, with the address, port and generation that it had, gets
/// nothing of what its predecessor asked for; one that never heard of its admission is told again.
#[test]
fn members_that_were_started_anew_get_no_old_results() {
    let mut world = world(&[2], 0, 3_000);
    world.pass(Span::from_millis(12));
    assert!(world.members.iter().all(|it| it.admitted.is_some()));
    world.members[0].restart();
    assert!(world.finish(Span::from_secs(3)));
    let end = world.members[0].end;
    let is_refused = matches!(end, Some(End::Refused(it)) if it.reason == Reason::StaleGeneration);
    assert!(is_refused, "{end:?}");
    let end = world.members[1].end;
    let is_told = matches!(end, Some(End::Failed(it)) if it.reason == Reason::MemberLost);
    assert!(is_told, "{end:?}");

    let mut world = self::world(&[1], 0, 1);
    let join = Message::Join(world.members[0].join);
    for _ in 0..2 {
        assert_eq!(say(&mut world, member_address(0), (0, 0), join), Ok(()));
    }
    assert_eq!(refused(&world, Reason::StaleGeneration), 0);
    assert_eq!(
        say(&mut world, member_address(0), (0, 1), Message::KeepAlive),
        Ok(())
    );
    assert_eq!(say(&mut world, member_address(0), (0, 0), join), Ok(()));
    assert_eq!(refused(&world, Reason::StaleGeneration), 1);
}

/// SW-42: a member that does not know that the job ran, because its ADMIT was lost, is told why the
/// job is over when it asks again; one that was started anew is not.
#[test]
fn members_whose_admission_was_lost_are_told_the_end() {
    let mut world = self::world(&[2], 0, 1);
    for rank in [0, 1] {
        let join = Message::Join(world.members[usize::from(rank)].join);
        let from = member_address(rank);
        assert_eq!(say(&mut world, from, (rank.into(), 0), join), Ok(()));
    }
    let left = leave(Reason::MemberLeft);
    assert_eq!(say(&mut world, member_address(0), (0, 1), left), Ok(()));
    for (rank, reason) in [(1, Reason::MemberLeft), (0, Reason::StaleGeneration)] {
        let before = refused(&world, reason);
        let join = Message::Join(world.members[usize::from(rank)].join);
        let from = member_address(rank);
        assert_eq!(say(&mut world, from, (rank.into(), 0), join), Ok(()));
        assert_eq!(refused(&world, reason), before + 1, "{reason:?}");
    }
}

/// SW-42: a member that gives up before it was admitted is heard by its generation, and the others
/// are told at once, not when they have waited for it.
#[test]
fn members_that_leave_while_a_job_forms_are_heard() {
    let mut world = world(&[3], 0, 1);
    world.members[2].is_dead = true;
    world.pass(Span::from_millis(12));
    let old = Message::Leave(Verdict {
        reason: Reason::MemberLeft,
        level: 0,
        world: None,
        generation: 2,
    });
    let of_another = say(&mut world, member_address(0), (0, 0), old);
    assert_eq!(of_another, Err(DropReason::ComputeEpoch));
    world.members[0].is_dead = true;
    let left = say(
        &mut world,
        member_address(0),
        (0, 0),
        leave(Reason::MemberLeft),
    );
    assert_eq!(left, Ok(()));
    assert!(world.finish(Span::from_millis(100)), "at once");
    let Some(End::Refused(verdict)) = world.members[1].end else {
        panic!("{:?}", world.members[1].end);
    };
    assert_eq!(
        (verdict.reason, verdict.world),
        (Reason::MemberLeft, Some(0))
    );
}

/// SW-42: who left is to blame for that, but not for the switch that it has lost, or for a member
/// that it misses: then nobody is named.
#[test]
fn who_tells_of_a_loss_is_not_to_blame_for_it() {
    for (reason, blamed) in [
        (Reason::MemberLeft, Some(0)),
        (Reason::ParentLost, None),
        (Reason::MemberMissing, None),
    ] {
        let mut world = world(&[2], 0, 3_000);
        world.pass(Span::from_millis(12));
        let left = leave(reason);
        assert_eq!(say(&mut world, member_address(0), (0, 1), left), Ok(()));
        world.members[0].is_dead = true;
        assert!(world.finish(Span::from_secs(1)));
        let Some(End::Failed(verdict)) = world.members[1].end else {
            panic!("{reason:?}: {:?}", world.members[1].end);
        };
        assert_eq!((verdict.reason, verdict.world), (reason, blamed));
    }
}

/// SW-42: a JOIN with a newer generation that cannot be admitted is refused, and the job that runs
/// goes on; one that can be has the memory of the one before it.
#[test]
fn a_job_goes_on_if_the_next_one_cannot_be() {
    let mut world = world(&[2], 0, 500);
    world.pass(Span::from_millis(12));
    let join = world.members[0].join;
    let wrong = Join {
        generation: 2,
        operations: 1,
        ..join
    };
    let from = member_address(0);
    assert_eq!(say(&mut world, from, (0, 0), Message::Join(wrong)), Ok(()));
    assert_eq!(refused(&world, Reason::NotCapable), 1);
    assert!(world.finish(Span::from_secs(5)));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));

    let mut tight = self::world(&[2], 0, 500);
    tight.pass(Span::from_millis(12));
    let memory = tight.switches[0].stats.memory.get();
    let settings = Settings {
        // A job that forms may have half.
        memory: 2 * usize::try_from(memory).expect("small"),
        jobs: 1,
        ..Settings::default()
    };
    tight.switches[0] = Switch::new(switch_address(0), settings);
    for generation in [1, 2] {
        let join = Message::Join(Join { generation, ..join });
        assert_eq!(say(&mut tight, from, (0, 0), join), Ok(()));
        assert_eq!(tight.switches[0].stats.memory.get(), memory);
    }
    assert_eq!(tight.switches[0].engine.rows(tight.now)[0].generation, 2);
}

/// SW-42: jobs that are over make room, the oldest first, and one port cannot take all places
/// with jobs that nobody else joins, nor by beginning jobs anew that are over.
#[test]
fn jobs_that_are_over_or_form_keep_nobody_out() {
    revived_jobs_count();
    let settings = Settings {
        jobs: 8,
        ..Settings::default()
    };
    let mut world = World::new(1);
    world
        .switches
        .push(Switch::new(switch_address(0), settings));
    let join = |world: &mut World, from: u8, job: u32, size: u16| {
        let packet = Packet {
            flags: Flags::default(),
            job,
            epoch: 0,
            rank: 0,
            message: Message::Join(Join::new(1, 0, size)),
        };
        let mut bytes = vec![0; packet.len()];
        packet.write(None, &mut bytes).expect("it fits");
        world.pass(Span::from_millis(1));
        let _ = world.give(0, member_address(from), &bytes, false);
        let jobs = world.switches[0].engine.rows(world.now);
        jobs.iter().any(|row| row.job == job)
    };
    assert_eq!(
        [1, 2, 3].map(|job| join(&mut world, 1, job, 2)),
        [true, true, false]
    );
    assert!(!join(&mut world, 129, 3, 2), "another address is no help");
    assert!(join(&mut world, 2, 4, 2), "another port has its own share");
    // Those of one member run at once, and have half of the places.
    assert_eq!(
        [5, 6, 7, 8, 9].map(|job| join(&mut world, 3, job, 1)),
        [true, true, true, true, false]
    );
    assert!(join(&mut world, 4, 9, 1), "it is another port's");
    assert!(!join(&mut world, 4, 10, 1), "all places are taken");
    let mut sent = Sent::default();
    for job in [6, 5] {
        world.pass(Span::from_millis(1));
        let now = world.now;
        assert!(world.switches[0].engine.delete(job, now, &mut sent));
    }
    assert!(join(&mut world, 4, 10, 1));
    let jobs = world.switches[0].engine.rows(world.now);
    let has = |job| jobs.iter().any(|row| row.job == job);
    assert!(has(5) && !has(6), "the oldest goes");
}

/// One port ends the jobs that it has begun, and begins all of them anew with others beside them:
/// no more of them form than if they were new ones.
fn revived_jobs_count() {
    const JOBS: u32 = 16;
    let mut world = World::new(1);
    let settings = Settings {
        jobs: JOBS as usize,
        ..Settings::default()
    };
    world
        .switches
        .push(Switch::new(switch_address(0), settings));
    let from = member_address(1);
    let join = |generation| Message::Join(Join::new(generation, 0, 2));
    for job in 0..JOBS {
        assert_eq!(say_of(&mut world, from, (job, 0, 0), join(1)), Ok(()));
        if job < 12 {
            let left = say_of(&mut world, from, (job, 0, 0), leave(Reason::MemberLeft));
            assert_eq!(left, Ok(()));
        }
    }
    let forming = |world: &World| {
        let rows = world.switches[0].engine.rows(world.now);
        rows.iter().filter(|row| row.state == "forming").count()
    };
    assert_eq!(forming(&world), 4);
    for job in 0..12 {
        assert_eq!(say_of(&mut world, from, (job, 0, 0), join(2)), Ok(()));
    }
    assert_eq!(forming(&world), 4);
    assert_eq!(refused(&world, Reason::TooManyJobs), 12);
    let another = member_address(2);
    assert_eq!(say_of(&mut world, another, (0, 0, 0), join(2)), Ok(()));
    assert_eq!(forming(&world), 5, "another port has its own share");
    // One that forms has its place.
    assert_eq!(say_of(&mut world, from, (15, 0, 0), join(2)), Ok(()));
    assert_eq!(forming(&world), 5);
    assert_eq!(refused(&world, Reason::TooManyJobs), 12);
}

/// SW-42: a job may have what nobody else uses, half of the memory, and leaves others a share of
/// what is left.
#[test]
fn a_job_has_what_nobody_else_uses() {
    let join = Join {
        slots: 1024,
        payload: 1400,
        ..Join::new(1, 0, 2)
    };
    let taken = |memory: Option<usize>| {
        let mut world = World::new(1);
        let mut settings = Settings::default();
        settings.memory = memory.unwrap_or(settings.memory);
        world
            .switches
            .push(Switch::new(switch_address(0), settings));
        [(1, 1), (1, 2), (2, 3), (2, 4)].map(|(port, job)| {
            let before = world.switches[0].stats.memory.get();
            let from = member_address(port);
            let said = say_of(&mut world, from, (job, 0, 0), Message::Join(join));
            assert_eq!(said, Ok(()));
            world.switches[0].stats.memory.get() - before
        })
    };
    let [whole, ..] = taken(None);
    let memory = 2 * usize::try_from(whole).expect("small");
    assert_eq!(taken(Some(memory)), [whole, 0, whole / 2, 0]);
}

/// SW-42: one port cannot take all memory with jobs that nobody else joins: those of another port
/// have as many slots as before.
#[test]
fn one_port_does_not_take_all_memory() {
    let mut world = World::new(1);
    let settings = Settings {
        jobs: 64,
        ..Settings::default()
    };
    let memory = settings.memory as u64;
    world
        .switches
        .push(Switch::new(switch_address(0), settings));
    // What one member alone asks for runs at once.
    let join = |size| Join {
        slots: 1024,
        payload: 1400,
        ..Join::new(1, 0, size)
    };
    let taken = |world: &World| world.switches[0].stats.memory.get();
    let mut whole = 0;
    for (port, (size, share)) in (1..).zip([(2, memory / 2), (1, memory / 4)]) {
        let before = taken(&world);
        for job in 0..16 {
            let job = (100 * u32::from(port) + job, 0, 0);
            let join = Message::Join(join(size));
            assert_eq!(say_of(&mut world, member_address(port), job, join), Ok(()));
            if whole == 0 {
                whole = taken(&world);
            }
        }
        let more = taken(&world) - before;
        assert!(more <= share && more > share / 2, "{more} of {share}");
    }
    let another = member_address(3);
    for job in [1, 2] {
        let before = taken(&world);
        let message = Message::Join(join(2));
        assert_eq!(say_of(&mut world, another, (job, 0, 0), message), Ok(()));
        assert_eq!(taken(&world) - before, whole);
    }
}

/// SW-42: what happens to a job is told, each thing once: that it runs, how it ends, and who was
/// refused. What is only asked is not.
#[test]
fn what_happens_to_a_job_is_told() {
    let mut world = world(&[2], 0, 2_000);
    let told = |world: &mut World| -> Vec<Happening> {
        let engine = &mut world.switches[0].engine;
        let notices = std::iter::from_fn(|| engine.next_notice());
        notices.map(|it| it.happening).collect()
    };
    let join = world.members[0].join;
    let wrong = Join { size: 3, ..join };
    world.pass(Span::from_millis(6));
    for _ in 0..2 {
        let stranger = member_address(9);
        let refused = say(&mut world, stranger, (2, 0), Message::Join(wrong));
        assert_eq!(refused, Ok(()));
    }
    assert!(world.finish(Span::from_secs(5)));
    let of_stranger = |reason| Happening::MemberRefused {
        reason,
        source: member_address(9).ip(),
    };
    let runs = Happening::Runs {
        members: 2,
        slots: 4,
        parents: 0,
    };
    let over = Happening::Over {
        reason: Reason::Finished,
        blamed: None,
    };
    let bad = of_stranger(Reason::BadRequest);
    let mut all = told(&mut world);
    all.sort_by_key(|it| *it != bad);
    assert_eq!(all, [bad, runs, over]);

    let mut world = self::world(&[2], 0, 1);
    let from = member_address(0);
    assert_eq!(say(&mut world, from, (0, 0), Message::Join(join)), Ok(()));
    let left = leave(Reason::MemberLeft);
    assert_eq!(say(&mut world, from, (0, 0), left), Ok(()));
    let (reason, blamed) = (Reason::MemberLeft, Some(0));
    assert_eq!(told(&mut world), [Happening::Refused { reason, blamed }]);
    // It has the verdict of the job that is over.
    assert_eq!(say(&mut world, from, (0, 0), Message::Join(join)), Ok(()));
    for (trees, happening) in [
        (2, vec![of_stranger(Reason::NoParents)]),
        (u16::MAX, Vec::new()),
    ] {
        let above = Level {
            rank: 0,
            size: 2,
            trees,
            first: 0,
        };
        let join = Join {
            above: Levels::new(&[above]),
            ..join
        };
        let asked = say_of(
            &mut world,
            member_address(9),
            (8, 0, 0),
            Message::Join(join),
        );
        assert_eq!(asked, Ok(()));
        assert_eq!(told(&mut world), happening);
    }
}

/// SW-42: a job that is over is known to a parent when it says so in its epoch, not in another one:
/// it is told until then.
#[test]
fn parents_know_the_end_of_their_own_epoch() {
    let mut world = world(&[1, 1], 1, 3_000);
    world.pass(Span::from_millis(12));
    let spine = switch_address(2);
    let mut lost = Sent::default();
    let now = world.now;
    assert!(world.switches[0].engine.delete(JOB, now, &mut lost));
    let verdict = Verdict {
        reason: Reason::StaleEpoch,
        level: 0,
        world: None,
        generation: 1,
    };
    for message in [Message::Left, Message::Error(verdict)] {
        let taken = say(&mut world, spine, (0, 2), message);
        assert_eq!(taken, Err(DropReason::ComputeEpoch));
    }
    for is_known in [false, true] {
        if is_known {
            assert_eq!(say(&mut world, spine, (0, 1), Message::Left), Ok(()));
        }
        let mut sent = Sent::default();
        world.now += Span::from_millis(60);
        let now = world.now;
        world.switches[0].engine.tick(now, &mut sent);
        assert_eq!(sent.0.is_empty(), is_known, "{sent:?}");
    }
}

/// SW-42: a leaf is as silent as its parent allows, not as it allows its members itself.
#[test]
fn a_leaf_keeps_the_lease_of_its_parent() {
    let mut world = world(&[1, 1], 1, 20);
    let join = Message::Join(world.members[0].join);
    assert_eq!(say(&mut world, member_address(0), (0, 0), join), Ok(()));
    let terms = Terms {
        slots: 4,
        payload: 16,
        lease_millis: 400,
        generation: 1,
    };
    let spine = switch_address(2);
    let admit = Message::Admit(terms);
    assert_eq!(say(&mut world, spine, (0, 1), admit), Ok(()));
    let (begin, mut last) = (world.now, world.now);
    while world.now < begin + Span::from_millis(1_500) {
        world.now = world.switches[0].engine.deadline();
        let (now, mut sent) = (world.now, Sent::default());
        world.switches[0].engine.tick(now, &mut sent);
        let to_spine = |(to, bytes): &(Peer, Vec<u8>)| {
            let message = Packet::read(bytes).expect("whole").message;
            to.remote == spine && message == Message::KeepAlive
        };
        if sent.0.iter().any(to_spine) {
            assert!(now.since(last) <= Span::from_millis(150), "silent");
            last = now;
            assert_eq!(say(&mut world, spine, (0, 1), Message::Alive), Ok(()));
        }
    }
    assert!(world.now.since(last) <= Span::from_millis(150), "silent");
    assert_eq!(world.switches[0].engine.rows(world.now)[0].state, "running");
    // Nothing comes from the parent for its lease, though the leaf's own is five times as long.
    let end = last + Span::from_millis(550);
    while world.now < end {
        world.now = world.switches[0].engine.deadline();
        let now = world.now;
        world.switches[0].engine.tick(now, &mut Sent::default());
    }
    let ended = &world.switches[0].stats.ended;
    assert_eq!(ended[Reason::ParentLost as usize].get(), 1);
}

/// SW-40: vectors are as short as a switch can take them: that is granted, and no reason to refuse.
#[test]
fn shorter_vectors_are_granted() {
    let mut world = world(&[2], 0, 20);
    let settings = Settings {
        payload: 8,
        ..Settings::default()
    };
    world.switches[0] = Switch::new(switch_address(0), settings);
    world.pass(Span::from_millis(12));
    for member in &world.members {
        let (_, terms) = member.admitted.expect("there is room");
        assert_eq!(terms.payload, 8);
    }
}

/// SW-42: what waits for a silent parent is sent again a bounded part at a time, all of it in the
/// end; and slots are searched only when something may be late.
#[test]
fn what_is_late_goes_up_a_part_at_a_time() {
    let plan = Plan {
        leaves: vec![1, 1],
        trees: 1,
        slots: 256,
        deterministic: false,
        works: vec![Work::Allreduce(Operation::Sum, Element::U32); 300],
        bytes: 16,
    };
    let mut world = World::new(1);
    plan.build(&mut world, JOB, &mut Random(1));
    world.step();
    // It has asked to join, and says nothing more: the spine has no result.
    world.members[1].is_dead = true;
    world.pass(Span::from_millis(20));
    let first = world.switches[0].stats.sent_up.get();
    assert_eq!(first, 256, "all that may be under way");
    let engine = &mut world.switches[0].engine;
    let mut again = std::collections::BTreeSet::new();
    let (mut idle, mut now, end) = (0, world.now, world.now + Span::from_millis(500));
    while now < end {
        now = engine.deadline();
        let mut sent = Sent::default();
        engine.tick(now, &mut sent);
        assert!(sent.0.len() <= 66, "{} at once", sent.0.len());
        let mut is_idle = true;
        for (_, bytes) in &sent.0 {
            if let Message::Contribution(chunk) = Packet::read(bytes).expect("whole").message {
                again.insert(chunk.sequence);
                is_idle = false;
            }
        }
        idle += u32::from(is_idle);
    }
    assert_eq!(again.len() as u64, first);
    assert!(idle <= 11, "{idle} turns, and nothing was late");
}
