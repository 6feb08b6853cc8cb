//! Jobs through networks that lose, double and delay, with members and switches that die: every
//! member ends with the right result or is told why not, and nothing is left.

mod bad;
mod differ;
mod ends;
mod loss;
mod plan;
mod reserve;
mod world;

use common::time::Span;
use common::wire::compute::{Element, Level, Levels, Operation, Reason, Work};
use plan::{Plan, work};
use world::{End, Random, World};

/// How long it may take until all are told: a lease at each of two levels and what it takes to say
/// it (SW-42).
const TOLD: Span = Span::from_secs(5);

/// Until nothing is left of a job: it is remembered for ten seconds, and members that were never
/// told are lost.
const FORGOTTEN: Span = Span::from_secs(16);

fn assert_nothing_left(world: &mut World) {
    world.pass(FORGOTTEN);
    for (number, switch) in world.switches.iter().enumerate() {
        let rows = switch.engine.rows(world.now);
        assert!(
            switch.is_empty() && rows.is_empty(),
            "switch {number}: {rows:?}"
        );
    }
}

/// SW-40, SW-41: every operation on every type, and the other collectives, at one switch and at
/// two levels.
#[test]
fn every_collective_has_the_right_result() {
    let mut all = vec![Work::Broadcast, Work::Barrier];
    for operation in Operation::ALL {
        let elements = Element::ALL.into_iter().filter(|it| operation.takes(*it));
        for element in elements {
            all.push(Work::Allreduce(operation, element));
            all.push(Work::Reduce(operation, element));
        }
    }
    for (leaves, trees) in [(vec![5], 0), (vec![3, 1, 2], 2)] {
        for deterministic in [false, true] {
            let mut random = Random(9);
            let plan = Plan {
                leaves: leaves.clone(),
                trees,
                slots: 8,
                deterministic,
                works: all.clone(),
                bytes: 64,
            };
            let mut world = World::new(1);
            plan.build(&mut world, 7, &mut random);
            assert!(world.finish(TOLD), "all are done in time");
            let ends: Vec<_> = world.members.iter().map(|it| it.end).collect();
            assert!(ends.iter().all(|end| *end == Some(End::Done)), "{ends:?}");
            assert_nothing_left(&mut world);
        }
    }
}

/// SW-40: without loss a chunk crosses each link once in each direction: as many exchanges as there
/// are levels, and one contribution of a leaf however many members it has.
#[test]
fn a_leaf_sends_once_for_all_its_members() {
    let plan = Plan {
        leaves: vec![6, 6],
        trees: 1,
        slots: 4,
        deterministic: false,
        works: vec![Work::Allreduce(Operation::Sum, Element::F32); 20],
        bytes: 64,
    };
    let mut world = World::new(1);
    // What is overtaken passes for lost.
    world.spread = 1;
    plan.build(&mut world, 7, &mut Random(3));
    assert!(world.finish(TOLD));
    for leaf in &world.switches[..2] {
        assert_eq!(leaf.stats.sent_up.get(), 20);
        assert_eq!(leaf.stats.contributions.get(), 120);
        assert_eq!(leaf.stats.results.get(), 120);
    }
    assert_eq!(world.switches[2].stats.contributions.get(), 40);
}

/// SW-40: trees begin with the switch above that the members name, and go on with the first one
/// behind the last: so a dead one is left out, whichever it is. There is no place behind the last.
#[test]
fn trees_begin_where_members_say() {
    let plan = Plan {
        leaves: vec![2, 2],
        trees: 3,
        slots: 4,
        deterministic: false,
        works: vec![Work::Allreduce(Operation::Sum, Element::F32); 20],
        bytes: 64,
    };
    for (first, trees, used) in [
        (0, 2, [true, true, false]),
        (1, 1, [false, true, false]),
        (2, 2, [true, false, true]),
        (3, 1, [false; 3]),
    ] {
        let mut world = World::new(1);
        plan.build(&mut world, 7, &mut Random(3));
        for member in &mut world.members {
            let rank = member.join.levels()[0].rank;
            let above = Level {
                rank,
                size: 2,
                trees,
                first,
            };
            member.join.above = Levels::new(&[above]);
        }
        assert!(world.finish(TOLD));
        let ends = world.members.iter().map(|it| it.end);
        let is_done = |end| end == Some(End::Done);
        let any = used.contains(&true);
        assert!(ends.map(is_done).all(|it| it == any), "{first}");
        let spines = &world.switches[2..];
        let had: Vec<_> = spines
            .iter()
            .map(|it| it.stats.completed.get() > 0)
            .collect();
        assert_eq!(had, used, "{first}");
    }
}

/// Any job on so many leaves and spines.
fn random_plan(random: &mut Random, leaves: u64, trees: u64) -> Plan {
    let small = |number: u64| usize::try_from(number).expect("few");
    let members = |random: &mut Random| small(1 + random.below(5));
    let leaves = (0..leaves).map(|_| members(random)).collect();
    let count = random.below(40);
    Plan {
        leaves,
        trees: u16::try_from(trees).expect("few"),
        slots: u16::try_from(1 + random.below(16)).expect("few"),
        deterministic: random.of_100(50),
        works: (0..count).map(|_| work(random)).collect(),
        bytes: 8 * small(1 + random.below(16)),
    }
}

/// Who dies in the middle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    Member(usize),
    /// A switch is started anew.
    Switch,
    Nobody,
}

fn random_death(world: &mut World, random: &mut Random) -> Death {
    let of =
        |random: &mut Random, len: usize| usize::try_from(random.below(len as u64)).expect("few");
    match random.below(4) {
        0 => {
            let at = of(random, world.members.len());
            world.members[at].is_dead = true;
            Death::Member(at)
        }
        1 => {
            let at = of(random, world.switches.len());
            world.switches[at].restart();
            Death::Switch
        }
        _ => Death::Nobody,
    }
}

/// Whether it may end so for a member of a job, one of which may be dead, with this world rank.
fn may_end(member: &world::Member, dead: Option<u16>, death: Death) -> bool {
    match member.end {
        None => member.is_dead,
        Some(End::Done) => true,
        Some(End::Failed(verdict)) if dead.is_some() => {
            verdict.reason == Reason::MemberLost && verdict.world == dead
        }
        // It died before it joined, or while the job formed.
        Some(End::Refused(verdict)) if dead.is_some() => {
            matches!(verdict.reason, Reason::MemberMissing | Reason::MemberLost)
        }
        Some(_) => death == Death::Switch,
    }
}

/// One or two jobs at once on one tree, with loss, duplicates and reordering, and perhaps a death.
fn random_jobs(seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new(random.next());
    let (loss, doubled) = (random.below(6), random.below(11));
    let levels = random.below(2);
    let leaves = 1 + levels * (1 + random.below(3));
    let trees = levels * (1 + random.below(4));
    let mut ranges = Vec::new();
    for job in 0..1 + random.below(2) {
        let first = world.members.len();
        let plan = random_plan(&mut random, leaves, trees);
        let number = 100 + u32::try_from(job).expect("few");
        plan.build(&mut world, number, &mut random);
        ranges.push(first..world.members.len());
    }
    (world.loss, world.doubled, world.marked) = (loss, doubled, random.below(3));
    world.pass(Span::from_micros(random.below(30_000)));
    let death = random_death(&mut world, &mut random);
    // All members must come in five seconds, and each level has a lease.
    let is_told = world.finish(Span::from_secs(12));
    let ends = world.members.iter().map(|it| (it.job, it.is_dead, it.end));
    let ends: Vec<_> = ends.collect();
    let rows: Vec<_> = world
        .switches
        .iter()
        .map(|it| it.engine.rows(world.now))
        .collect();
    assert!(
        is_told,
        "seed {seed}: somebody was not told: {ends:?} {rows:?}"
    );
    for range in ranges {
        let dead = match death {
            Death::Member(at) if range.contains(&at) => Some(world.members[at].join.world),
            _ => None,
        };
        for member in &world.members[range] {
            let fine = may_end(member, dead, death);
            assert!(fine, "seed {seed}: {:?} of {ends:?}", member.end);
        }
    }
    (world.loss, world.doubled) = (0, 0);
    assert_nothing_left(&mut world);
}

/// SW-42: random jobs. `COMPUTE_JOBS` says how many, `COMPUTE_SEED` where they begin.
#[test]
fn random_jobs_end_with_the_right_result_or_a_named_error() {
    let number = |name: &str, default| {
        let set = std::env::var(name).ok().and_then(|it| it.parse().ok());
        set.unwrap_or(default)
    };
    let (first, count) = (number("COMPUTE_SEED", 0), number("COMPUTE_JOBS", 300));
    for seed in first..first + count {
        random_jobs(seed);
    }
}

/// SW-42: a member that dies is named to all others, at both levels, also if nothing gets through
/// while that is noticed, and its job's slots are free.
#[test]
fn a_dead_member_is_named_to_all() {
    for is_cut_off in [false, true] {
        let plan = Plan {
            leaves: vec![2, 3],
            trees: 2,
            slots: 4,
            deterministic: false,
            works: vec![Work::Allreduce(Operation::Sum, Element::I32); 2_000],
            bytes: 64,
        };
        let mut world = World::new(5);
        plan.build(&mut world, 7, &mut Random(3));
        world.pass(Span::from_millis(20));
        world.members[1].is_dead = true;
        world.pass(Span::from_millis(1_900));
        if is_cut_off {
            world.loss = 100;
            world.pass(Span::from_millis(250));
            world.loss = 0;
        }
        assert!(
            world.finish(Span::from_millis(1_000)),
            "within the lease and a second"
        );
        for (number, member) in world.members.iter().enumerate().filter(|it| it.0 != 1) {
            match member.end {
                Some(End::Failed(verdict)) => {
                    assert_eq!(
                        (verdict.reason, verdict.world),
                        (Reason::MemberLost, Some(1))
                    );
                    // Above who found it there is one level: so hosts know that it was a leaf.
                    assert_eq!(verdict.level, 1);
                }
                other => panic!("member {number}: {other:?}"),
            }
        }
        assert!(world.switches.iter().all(world::Switch::is_empty));
        assert_nothing_left(&mut world);
    }
}

/// SW-42: marks on the way up, at any level, come down in the result.
#[test]
fn marks_come_down_with_the_result() {
    for (marked, leaves, trees) in [(0, vec![2, 2], 1), (100, vec![2, 2], 1), (100, vec![2], 0)] {
        let plan = Plan {
            leaves,
            trees,
            slots: 4,
            deterministic: false,
            works: vec![Work::Barrier],
            bytes: 8,
        };
        let mut world = World::new(5);
        world.marked = marked;
        plan.build(&mut world, 7, &mut Random(3));
        assert!(world.finish(TOLD));
        assert!(world.members.iter().all(|it| it.saw_ce == (marked > 0)));
    }
}
