//! Jobs that an operator reserves: members that come have what was kept for them and no more, and
//! what nobody joins ends.

use super::plan::Plan;
use super::world::{End, Random, Switch, World, member_address, switch_address};
use super::{FORGOTTEN, TOLD, assert_nothing_left};
use crate::compute::{Happening, NotReserved, Reservation, Settings};
use crate::drop::DropReason;
use common::time::Span;
use common::wire::compute::{
    Element, Flags, Join, Level, Levels, Message, Operation, Packet, Reason, Work,
};

const JOB: u32 = 7;

const WANTED: Reservation = Reservation {
    job: JOB,
    size: 3,
    slots: 8,
    payload: 64,
    operations: 0xfe,
    elements: 0xff,
    deterministic: true,
    trees: 0,
    lease: Span::from_secs(60),
};

fn plan(leaves: Vec<usize>) -> Plan {
    Plan {
        leaves,
        trees: 0,
        slots: 8,
        deterministic: true,
        works: vec![Work::Allreduce(Operation::Sum, Element::F32); 40],
        bytes: 64,
    }
}

/// A world with one switch.
fn world(settings: Settings) -> World {
    let mut world = World::new(1);
    let switch = Switch::new(switch_address(0), settings);
    world.switches.push(switch);
    world
}

fn told(world: &mut World) -> Vec<(u32, Happening)> {
    let engine = &mut world.switches[0].engine;
    let notices = std::iter::from_fn(|| engine.next_notice());
    notices.map(|it| (it.job, it.happening)).collect()
}

/// What the switch is told by a JOIN to the job, from member `from`, and what it has refused since.
fn join(world: &mut World, from: u8, join: Join) -> Option<Reason> {
    let count = |world: &World| {
        world.switches[0]
            .stats
            .refused
            .each_ref()
            .map(|it| it.get())
    };
    let before = count(world);
    let packet = Packet {
        flags: Flags::default(),
        job: JOB,
        epoch: 0,
        rank: 0,
        message: Message::Join(join),
    };
    let mut bytes = vec![0; packet.len()];
    packet.write(None, &mut bytes).expect("it fits");
    let taken = world.give(0, member_address(from), &bytes, false);
    assert_eq!(taken, Ok(()));
    let mut counts = count(world).into_iter().zip(before).zip(Reason::ALL);
    counts
        .find(|((now, before), _)| now > before)
        .map(|it| it.1)
}

/// SW-42: a reserved job has its place and memory though others want all there is, its members run
/// as those of any other job, and nothing is left at the end.
#[test]
fn members_have_what_was_reserved() {
    // So much, and no byte more, as the reservation takes.
    let mut free = world(Settings::default());
    let now = free.now;
    let row = free.switches[0].engine.reserve(&WANTED, now).expect("room");
    assert_eq!((row.state, row.members, row.slots), ("reserved", (0, 3), 8));
    assert_eq!(row.expires, Some(WANTED.lease));
    let mut world = world(Settings {
        memory: row.memory,
        jobs: 2,
        ..Settings::default()
    });
    let now = world.now;
    let again = world.switches[0]
        .engine
        .reserve(&WANTED, now)
        .expect("room");
    assert_eq!(again, row);
    assert_eq!(world.switches[0].stats.jobs.get(), 1);
    plan(vec![2]).build(&mut world, 8, &mut Random(1));
    world.pass(Span::from_millis(200));
    let refused =
        |end: &Option<End>| matches!(end, Some(End::Refused(it)) if it.reason == Reason::Full);
    assert!(world.members.iter().all(|it| refused(&it.end)));
    world.members.clear();
    plan(vec![3]).build(&mut world, JOB, &mut Random(2));
    assert!(world.finish(TOLD));
    assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
    let reserved = Happening::Reserved {
        members: 3,
        slots: 8,
        lease: WANTED.lease,
    };
    let runs = Happening::Runs {
        members: 3,
        slots: 8,
        parents: 0,
    };
    let over = Happening::Over {
        reason: Reason::Finished,
        blamed: None,
    };
    let told = told(&mut world).into_iter().filter(|it| it.0 == JOB);
    let told: Vec<_> = told.map(|it| it.1).collect();
    assert_eq!(told, [reserved, runs, over]);
    assert_nothing_left(&mut world);
}

/// SW-42: what nobody joins in time ends, and what is deleted does at once; both leave nothing, and
/// the number is anybody's again.
#[test]
fn what_nobody_joins_ends() {
    for is_deleted in [false, true] {
        let mut world = world(Settings::default());
        let lease = Span::from_secs(3);
        let wanted = Reservation { lease, ..WANTED };
        let now = world.now;
        world.switches[0]
            .engine
            .reserve(&wanted, now)
            .expect("room");
        world.pass(Span::from_millis(2_900));
        assert_eq!(world.switches[0].engine.rows(world.now).len(), 1);
        if is_deleted {
            let mut sent = super::world::Sent::default();
            let now = world.now;
            assert!(world.switches[0].engine.delete(JOB, now, &mut sent));
            assert!(sent.0.is_empty(), "there is nobody to tell");
        } else {
            world.pass(Span::from_millis(300));
        }
        assert!(world.switches[0].is_empty());
        assert_eq!(world.switches[0].engine.rows(world.now).len(), 0);
        let end = match is_deleted {
            false => Happening::Unused,
            true => Happening::Over {
                reason: Reason::Deleted,
                blamed: None,
            },
        };
        assert_eq!(told(&mut world).last(), Some(&(JOB, end)));
        plan(vec![5]).build(&mut world, JOB, &mut Random(3));
        assert!(world.finish(TOLD));
        assert!(world.members.iter().all(|it| it.end == Some(End::Done)));
    }
}

/// SW-42: who wants more than was reserved is refused and learns that, and what was reserved is
/// there still. Only JOIN is for a job that has no member.
#[test]
fn members_that_want_more_are_refused() {
    let parent = switch_address(9);
    let mut world = world(Settings {
        address: Some(switch_address(0).ip()),
        parents: vec![parent],
        ..Settings::default()
    });
    let wanted = Reservation {
        operations: Operation::Sum.bit() | Operation::Max.bit(),
        elements: Element::F32.bit(),
        deterministic: false,
        ..WANTED
    };
    let now = world.now;
    world.switches[0]
        .engine
        .reserve(&wanted, now)
        .expect("room");
    let fits = Join {
        slots: 1_024,
        payload: 1_400,
        operations: Operation::Sum.bit(),
        elements: Element::F32.bit(),
        ..Join::new(1, 0, 3)
    };
    let above = Levels::new(&[Level {
        rank: 0,
        size: 2,
        trees: 1,
        first: 0,
    }]);
    for wrong in [
        Join { size: 2, ..fits },
        Join {
            operations: 0xfe,
            ..fits
        },
        Join {
            elements: 0xff,
            ..fits
        },
        Join {
            deterministic: true,
            ..fits
        },
        Join { above, ..fits },
    ] {
        let refused = join(&mut world, 1, wrong);
        assert_eq!(refused, Some(Reason::WrongTerms), "{wrong:?}");
        assert_eq!(
            world.switches[0].engine.rows(world.now)[0].state,
            "reserved"
        );
    }
    let packet = Packet {
        flags: Flags::default(),
        job: JOB,
        epoch: 5,
        rank: 0,
        message: Message::KeepAlive,
    };
    let mut bytes = vec![0; packet.len()];
    packet.write(None, &mut bytes).expect("it fits");
    let taken = world.give(0, member_address(1), &bytes, false);
    assert_eq!(taken, Err(DropReason::ComputeUnknownJob));
    assert_eq!(join(&mut world, 1, fits), None);
    let row = &world.switches[0].engine.rows(world.now)[0];
    assert_eq!((row.state, row.members), ("forming", (1, 3)));
    world.pass(FORGOTTEN);
    assert_nothing_left(&mut world);
}

/// SW-42: what cannot be reserved is refused with its reason.
#[test]
fn what_cannot_be_reserved_is_refused() {
    let one = Settings {
        jobs: 1,
        memory: 100_000,
        ..Settings::default()
    };
    let mut world = world(one);
    let now = world.now;
    let engine = &mut world.switches[0].engine;
    let refused = |reason| Err(NotReserved::Refused(reason));
    for (wrong, reason) in [
        (Reservation { size: 0, ..WANTED }, Reason::BadRequest),
        (Reservation { size: 65, ..WANTED }, Reason::BadRequest),
        (Reservation { slots: 0, ..WANTED }, Reason::BadRequest),
        (
            Reservation {
                operations: 1,
                ..WANTED
            },
            Reason::NotCapable,
        ),
        (Reservation { trees: 1, ..WANTED }, Reason::NoParents),
        (
            Reservation {
                size: 64,
                payload: 1_400,
                ..WANTED
            },
            Reason::Full,
        ),
    ] {
        assert_eq!(engine.reserve(&wrong, now), refused(reason), "{wrong:?}");
    }
    engine.reserve(&WANTED, now).expect("room");
    let exists = Err(NotReserved::Exists("reserved"));
    assert_eq!(engine.reserve(&WANTED, now), exists);
    let other = Reservation { job: 8, ..WANTED };
    assert_eq!(engine.reserve(&other, now), refused(Reason::TooManyJobs));
}
