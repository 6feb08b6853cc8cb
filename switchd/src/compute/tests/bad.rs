//! Bad input: every field wrong in turn, strangers, lies and floods. Each has a reason of its own,
//! changes nothing, and another job goes on unharmed.

use super::plan::Plan;
use super::world::{End, Random, Switch, World, member_address, switch_address};
use crate::compute::Settings;
use crate::drop::DropReason;
use common::time::Span;
use common::wire::compute::{
    Chunk, Element, Flags, Join, Key, Level, Levels, Message, Operation, Packet, Reason, Slot,
    Terms, Verdict, Work,
};

const JOB: u32 = 7;

/// Another job at the same switches: whatever is done to the first one, it ends with the right
/// results.
const OTHER: u32 = 9;

/// A world in which a job of two members has just begun, with many chunks to go, and another one of
/// two more members.
fn running(secret: Option<[u8; 32]>) -> World {
    let plan = Plan {
        leaves: vec![2],
        trees: 0,
        slots: 4,
        deterministic: false,
        works: vec![Work::Allreduce(Operation::Sum, Element::U32); 3_000],
        bytes: 16,
    };
    let mut world = World::new(1);
    if secret.is_some() {
        let settings = Settings {
            secret,
            ..Settings::default()
        };
        world
            .switches
            .push(Switch::new(switch_address(0), settings));
    }
    plan.build(&mut world, JOB, &mut Random(1));
    plan.build(&mut world, OTHER, &mut Random(2));
    for member in &mut world.members {
        member.key = secret.map(|secret| Key::of_job(&secret, member.job));
    }
    world.pass(Span::from_millis(12));
    assert!(world.members.iter().all(|it| it.admitted.is_some()));
    world
}

/// What member 0 sends next, changed by `change`.
fn changed(world: &World, change: impl FnOnce(&mut Packet<'_>, &mut Chunk<'_>)) -> Vec<u8> {
    let member = &world.members[0];
    let (epoch, _) = member.admitted.expect("it runs");
    let mut chunk = member.chunk(2_900);
    let mut packet = Packet {
        flags: Flags::default(),
        job: JOB,
        epoch,
        rank: 0,
        message: Message::KeepAlive,
    };
    change(&mut packet, &mut chunk);
    if packet.message == Message::KeepAlive {
        packet.message = Message::Contribution(chunk);
    }
    let mut bytes = vec![0; packet.len()];
    let key = member.key.as_ref();
    let seal = key.map(|key| key.between(member.address.ip(), member.leaf.ip()));
    packet.write(seal, &mut bytes).expect("it fits");
    bytes
}

/// SW-42: each wrong field has its reason, and the job ends with the right results all the same.
#[test]
fn wrong_fields_are_dropped_by_reason_and_change_nothing() {
    let mut world = running(None);
    let from = member_address(0);
    let stranger = member_address(9);
    let of = |change: fn(&mut Packet<'_>, &mut Chunk<'_>)| change;
    let cases = [
        (
            from,
            of(|packet, _| packet.job = 8),
            DropReason::ComputeUnknownJob,
        ),
        (
            from,
            of(|packet, _| packet.epoch += 1),
            DropReason::ComputeEpoch,
        ),
        (
            from,
            of(|packet, _| packet.epoch = 0),
            DropReason::ComputeEpoch,
        ),
        (
            from,
            of(|packet, _| packet.rank = 1),
            DropReason::ComputeStranger,
        ),
        (
            from,
            of(|packet, _| packet.rank = 2),
            DropReason::ComputeStranger,
        ),
        (
            from,
            of(|packet, _| packet.rank = 0xffff),
            DropReason::ComputeStranger,
        ),
        (stranger, of(|_, _| {}), DropReason::ComputeStranger),
        // Far before its turn.
        (from, of(|_, _| {}), DropReason::ComputeOutOfTurn),
        (
            from,
            of(|_, chunk| chunk.sequence = u64::MAX),
            DropReason::ComputeOutOfTurn,
        ),
        (
            from,
            of(|_, chunk| chunk.slot.number = 0x7fff),
            DropReason::ComputeOutOfTurn,
        ),
        (
            from,
            of(|_, chunk| chunk.slot.version ^= 1),
            DropReason::ComputeOutOfTurn,
        ),
        (
            from,
            of(|_, chunk| chunk.contributions = 3),
            DropReason::ComputeOutOfTurn,
        ),
        (
            from,
            of(|_, chunk| chunk.contributions = 0),
            DropReason::ComputeOutOfTurn,
        ),
    ];
    for (from, change, reason) in cases {
        let bytes = changed(&world, change);
        assert_eq!(world.give(0, from, &bytes, false), Err(reason));
    }
    let bytes = changed(&world, |_, _| {});
    assert_eq!(
        world.give(0, stranger, &bytes, false),
        Err(DropReason::ComputeStranger)
    );
    assert!(world.finish(Span::from_secs(5)));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
}

/// SW-42: what is cut or changed on the way, and what only switches say, changes nothing.
#[test]
fn cut_and_forged_messages_change_nothing() {
    let mut world = running(None);
    let from = member_address(0);
    // What only switches say, forged.
    let terms = Terms {
        slots: 1,
        payload: 1,
        lease_millis: 1,
        generation: 1,
    };
    for message in [Message::Alive, Message::Left, Message::Admit(terms)] {
        let bytes = changed(&world, |packet, _| packet.message = message);
        let taken = world.give(0, from, &bytes, false);
        assert_eq!(taken, Err(DropReason::ComputeStranger));
    }
    let bytes = changed(&world, |_, _| {});
    for cut in [0, 1, 47, bytes.len() - 1] {
        let taken = world.give(0, from, &bytes[..cut], false);
        assert_eq!(taken, Err(DropReason::ComputeMalformed));
    }
    let mut wrong = bytes.clone();
    wrong[50] ^= 1;
    assert_eq!(
        world.give(0, from, &wrong, false),
        Err(DropReason::ComputeMalformed)
    );
    assert!(world.finish(Span::from_secs(5)));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
}

/// SW-42: without the key of the job nothing is taken.
#[test]
fn messages_without_the_key_are_dropped() {
    let mut world = running(Some([3; 32]));
    let from = member_address(0);
    let sealed = changed(&world, |_, _| {});
    world.members[0].key = Some(Key::of_job(&[4; 32], JOB));
    let of_another = changed(&world, |_, _| {});
    world.members[0].key = None;
    let unsealed = changed(&world, |_, _| {});
    let unknown = changed(&world, |packet, _| packet.job = 8);
    let join = Message::Join(Join::new(2, 0, 2));
    let anew = changed(&world, |packet, _| packet.message = join);
    for bytes in [of_another, unsealed, unknown, anew] {
        let taken = world.give(0, from, &bytes, false);
        assert_eq!(taken, Err(DropReason::ComputeTag));
    }
    let taken = world.give(0, from, &sealed, false);
    assert_eq!(taken, Err(DropReason::ComputeOutOfTurn), "it has the key");
    world.members[0].key = Some(Key::of_job(&[3; 32], JOB));
    assert!(world.finish(Span::from_secs(5)));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
}

/// SW-42: what was recorded on its way to a switch, or is sent on from another address, says
/// nothing with keys: another switch, which does not know the job, has no answer for it, nor does
/// one that has forgotten the job make a member of who sends its JOIN.
#[test]
fn recorded_messages_say_nothing_elsewhere() {
    let mut world = running(Some([3; 32]));
    let settings = Settings {
        secret: Some([3; 32]),
        ..Settings::default()
    };
    // The third has the address of the first, as when that was started anew.
    for number in [1, 0] {
        let other = Switch::new(switch_address(number), settings.clone());
        world.switches.push(other);
    }
    let contribution = changed(&world, |_, _| {});
    let join = Message::Join(Join::new(1, 0, 2));
    let join = changed(&world, |packet, _| {
        (packet.epoch, packet.message) = (0, join)
    });
    for bytes in [&contribution, &join] {
        for (switch, from) in [(1, 0), (0, 9), (1, 9), (2, 9)] {
            let before = world.on_the_way();
            let taken = world.give(switch, member_address(from), bytes, false);
            assert_eq!(taken, Err(DropReason::ComputeTag), "{switch} {from}");
            assert_eq!(world.on_the_way(), before, "no answer");
            assert!(switch == 0 || world.switches[switch].is_empty());
        }
    }
    // From the member it means what it says.
    assert_eq!(world.give(2, member_address(0), &join, false), Ok(()));
    assert!(!world.switches[2].is_empty());
    world.switches.truncate(1);
    assert!(world.finish(Span::from_secs(5)));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
}

/// SW-42: a stranger who knows all but the address of a member cannot end the job by a newer
/// generation; a member can, and those of the old one are told.
#[test]
fn only_members_begin_anew() {
    let mut world = running(None);
    let join = Message::Join(Join::new(2, 0, 2));
    let bytes = changed(&world, |packet, _| packet.message = join);
    let taken = world.give(0, member_address(9), &bytes, false);
    assert_eq!(taken, Err(DropReason::ComputeStranger));
    assert_eq!(world.give(0, member_address(0), &bytes, false), Ok(()));
    assert!(world.finish(Span::from_secs(5)));
    for member in &world.members[..2] {
        let told = matches!(member.end, Some(End::Failed(verdict))
            if matches!(verdict.reason, Reason::Superseded | Reason::StaleEpoch));
        assert!(told, "{:?}", member.end);
    }
    let others = &world.members[2..];
    assert!(others.iter().all(|it| it.end == Some(End::Done)));
    let older = Message::Join(Join::new(1, 0, 2));
    let bytes = changed(&world, |packet, _| packet.message = older);
    assert_eq!(world.give(0, member_address(0), &bytes, false), Ok(()));
    let stats = &world.switches[0].stats;
    assert_eq!(stats.refused[Reason::StaleGeneration as usize].get(), 1);
}

/// What a switch says of a JOIN.
fn refusal(settings: Settings, joins: &[(u8, u16, Join)]) -> Vec<Reason> {
    let mut world = World::new(1);
    world
        .switches
        .push(Switch::new(switch_address(0), settings));
    for (from, rank, join) in joins {
        let packet = Packet {
            flags: Flags::default(),
            job: JOB + u32::from(*from) / 100,
            epoch: 0,
            rank: *rank,
            message: Message::Join(*join),
        };
        let mut bytes = vec![0; packet.len()];
        packet.write(None, &mut bytes).expect("it fits");
        let _ = world.give(0, member_address(*from), &bytes, false);
    }
    let refused = world.switches[0].stats.refused.iter();
    let refused = refused
        .zip(Reason::ALL)
        .filter(|(count, _)| count.get() > 0);
    refused.map(|(_, reason)| reason).collect()
}

/// What a member of two usually asks for, but for this.
fn asking(change: impl FnOnce(&mut Join)) -> Join {
    let mut join = Join {
        slots: 4,
        payload: 64,
        operations: 2,
        elements: 1,
        ..Join::new(1, 0, 2)
    };
    change(&mut join);
    join
}

/// SW-42: what can be no job here is refused with its reason.
#[test]
fn what_cannot_be_is_refused() {
    let levels = Levels::new(&[Level {
        rank: 0,
        size: 2,
        trees: 1,
        first: 0,
    }]);
    let plain = asking(|_| {});
    let cases = [
        ((0, 2, plain), Reason::BadRequest),
        ((0, 0, asking(|it| it.generation = 0)), Reason::BadRequest),
        ((0, 0, asking(|it| it.operations = 1)), Reason::NotCapable),
        ((0, 0, asking(|it| it.above = levels)), Reason::NoParents),
        ((1, 0, plain), Reason::RankTaken),
        ((1, 1, asking(|it| it.size = 3)), Reason::WrongTerms),
        ((1, 1, asking(|it| it.elements = 3)), Reason::WrongTerms),
    ];
    for (join, reason) in cases {
        let is_second = join.0 == 1;
        let all = [(0, 0, plain), join];
        let joins = if is_second { &all[..] } else { &all[1..] };
        assert_eq!(refusal(Settings::default(), joins), [reason], "{join:?}");
    }
    let none = refusal(
        Settings::default(),
        &[(0, 0, plain), (0, 0, plain), (1, 1, plain)],
    );
    assert!(none.is_empty(), "{none:?}");
}

/// SW-40, SW-42: whoever asks for more trees than the leaf has parents learns how many it has, also
/// in an attempt that follows another one; no job is left of the question.
#[test]
fn how_many_parents_there_are_is_told() {
    let plan = Plan {
        leaves: vec![1, 1],
        trees: 3,
        slots: 4,
        deterministic: false,
        works: vec![Work::Barrier],
        bytes: 16,
    };
    for anew in [false, true] {
        let mut world = World::new(1);
        plan.build(&mut world, JOB, &mut Random(1));
        world.members.truncate(1);
        if anew {
            world.pass(Span::from_millis(10));
        }
        let above = Level {
            rank: 0,
            size: 2,
            trees: u16::MAX,
            first: 0,
        };
        let member = &mut world.members[0];
        member.join.above = Levels::new(&[above]);
        member.join.generation += u32::from(anew);
        world.pass(Span::from_millis(60));
        let Some(End::Refused(verdict)) = world.members[0].end else {
            panic!("{:?}", world.members[0].end);
        };
        assert_eq!(
            (verdict.reason, verdict.world),
            (Reason::NoParents, Some(3))
        );
        let rows = world.switches[0].engine.rows(world.now);
        assert_eq!(rows.len(), usize::from(anew), "{rows:?}");
    }
}

/// SW-42: what there is no room for, and who may not join, is refused with its reason.
#[test]
fn what_is_not_allowed_is_refused() {
    let plain = Settings::default;
    let join = asking(|_| {});
    let full = Settings {
        memory: 64,
        ..plain()
    };
    assert_eq!(refusal(full, &[(0, 0, join)]), [Reason::Full]);
    let one = Settings { jobs: 1, ..plain() };
    let two_jobs = [(0, 0, join), (100, 0, join)];
    assert_eq!(refusal(one, &two_jobs), [Reason::TooManyJobs]);
    let others = Settings {
        members: vec!["192.0.2.0/24".parse().expect("a prefix")],
        ..plain()
    };
    assert_eq!(refusal(others, &[(0, 0, join)]), [Reason::NotAllowed]);
}

/// SW-42: an operator ends a job, and all learn it; another one goes on.
#[test]
fn a_deleted_job_ends_for_all_and_for_no_other() {
    let mut world = running(None);
    let plan = Plan {
        leaves: vec![3],
        trees: 0,
        slots: 2,
        deterministic: true,
        works: vec![Work::Allreduce(Operation::Sum, Element::F32); 100],
        bytes: 16,
    };
    plan.build(&mut world, 8, &mut Random(2));
    world.pass(Span::from_millis(2));
    let mut sent = super::world::Sent::default();
    let now = world.now;
    assert!(world.switches[0].engine.delete(JOB, now, &mut sent));
    assert_eq!(sent.0.len(), 2, "both members are told");
    assert!(!world.switches[0].engine.delete(JOB, now, &mut sent));
    assert!(world.finish(Span::from_secs(5)));
    for member in &world.members[..2] {
        let told = matches!(member.end, Some(End::Failed(it)) if it.reason == Reason::Deleted);
        assert!(told, "{:?}", member.end);
    }
    assert!(
        world.members[2..]
            .iter()
            .all(|it| it.end == Some(End::Done))
    );
    assert_eq!(
        world.switches[0].stats.ended[Reason::Deleted as usize].get(),
        1
    );
}

/// SW-42: results that nobody asked the parent for, and forged ones, change nothing.
#[test]
fn forged_results_change_nothing() {
    let plan = Plan {
        leaves: vec![1, 1],
        trees: 1,
        slots: 2,
        deterministic: false,
        works: vec![Work::Allreduce(Operation::Sum, Element::U32); 2_000],
        bytes: 16,
    };
    let mut world = World::new(1);
    plan.build(&mut world, JOB, &mut Random(1));
    plan.build(&mut world, OTHER, &mut Random(2));
    world.pass(Span::from_millis(12));
    let chunk = Chunk {
        work: Work::Allreduce(Operation::Sum, Element::U32),
        slot: Slot::of(1_900, 2),
        sequence: 1_900,
        contributions: 3,
        complete: 0,
        data: &[9; 16],
    };
    let forged = |message, epoch| {
        let packet = Packet {
            flags: Flags::default(),
            job: JOB,
            epoch,
            rank: 0,
            message,
        };
        let mut bytes = vec![0; packet.len()];
        packet.write(None, &mut bytes).expect("it fits");
        bytes
    };
    let spine = switch_address(2);
    let verdict = Verdict {
        reason: Reason::Deleted,
        level: 0,
        world: None,
        generation: 1,
    };
    let cases = [
        (
            spine,
            Message::Result(chunk),
            1,
            DropReason::ComputeUnexpected,
        ),
        (spine, Message::Result(chunk), 2, DropReason::ComputeEpoch),
        (spine, Message::Error(verdict), 2, DropReason::ComputeEpoch),
        (
            member_address(0),
            Message::Result(chunk),
            1,
            DropReason::ComputeStranger,
        ),
        (
            member_address(9),
            Message::Error(verdict),
            1,
            DropReason::ComputeStranger,
        ),
    ];
    for (from, message, epoch, reason) in cases {
        let bytes = forged(message, epoch);
        assert_eq!(
            world.give(0, from, &bytes, false),
            Err(reason),
            "{message:?}"
        );
    }
    assert!(world.finish(Span::from_secs(5)));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
}
