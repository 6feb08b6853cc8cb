//! One length.

use crate::failure::Failure;
use crate::options::{Collective, Options};
use crate::pattern;
use crate::report::Line;
use hostd_client::group::{self, Fallback, Group, Vector};
use hostd_client::{Access, Context, Region};
use std::time::{Duration, Instant};

/// What is called, and on how many bytes.
struct Plan {
    collective: group::Collective,
    /// Bytes of the vector, and of what a member gives.
    whole: usize,
    given: usize,
}

fn plan(options: &Options, size: usize) -> Plan {
    let (operation, element, root) = (options.operation, options.element, options.root_rank);
    let all = size * options.ranks;
    let (collective, whole, given) = match options.collective {
        Collective::Allreduce => {
            let collective = group::Collective::Allreduce(operation, element);
            (collective, size, size)
        }
        Collective::Reduce => {
            let collective = group::Collective::Reduce {
                operation,
                element,
                root,
            };
            (collective, size, size)
        }
        Collective::Broadcast => (group::Collective::Broadcast { root }, size, size),
        Collective::Barrier => (group::Collective::Barrier, 0, 0),
        Collective::Allgather => (group::Collective::Allgather, all, size),
        Collective::ReduceScatter => {
            let collective = group::Collective::ReduceScatter(operation, element);
            (collective, all, all)
        }
    };
    Plan {
        collective,
        whole,
        given,
    }
}

/// The bytes that must be in this member's vector, and where.
fn expected(options: &Options, plan: &Plan, size: usize, round: usize) -> Option<(usize, Vec<u8>)> {
    let work = (options.operation, options.element);
    let reduced = || pattern::reduced(work, options.ranks, plan.whole, round);
    match plan.collective {
        group::Collective::Allreduce(..) => Some((0, reduced())),
        group::Collective::Reduce { root, .. } => (root == options.rank).then(|| (0, reduced())),
        group::Collective::Broadcast { root } => {
            Some((0, pattern::vector(work, root, plan.whole, round)))
        }
        group::Collective::Barrier => None,
        group::Collective::Allgather => {
            let block = |rank| pattern::vector(work, rank, size, round);
            Some((0, (0..options.ranks).flat_map(block).collect()))
        }
        group::Collective::ReduceScatter(..) => {
            let from = options.rank * size;
            Some((from, reduced()[from..from + size].to_vec()))
        }
    }
}

/// Runs the collective once; how long it took.
fn once(
    group: &mut Group,
    plan: &Plan,
    [source, target]: [&Region; 2],
) -> Result<Duration, Failure> {
    let vector = Vector::new(target, 0, plan.whole).from(source, 0);
    let begun = Instant::now();
    if plan.collective == group::Collective::Barrier {
        group.barrier()?;
    } else {
        group.start(plan.collective, vector)?.wait()?;
    }
    Ok(begun.elapsed())
}

/// Runs it with vectors that are known; whether the result is what it must be.
fn is_right(
    group: &mut Group,
    options: &Options,
    plan: &Plan,
    regions: [&Region; 2],
    round: usize,
) -> Result<bool, Failure> {
    let size = plan.given;
    let work = (options.operation, options.element);
    let given = pattern::vector(work, options.rank, size, round);
    if !given.is_empty() {
        regions[0].write(0, &given)?;
    }
    once(group, plan, regions)?;
    let block = if options.collective == Collective::ReduceScatter {
        size / options.ranks
    } else {
        size
    };
    let Some((from, expected)) = expected(options, plan, block, round) else {
        return Ok(true);
    };
    let mut found = vec![0; expected.len()];
    regions[1].read(from, &mut found)?;
    let mut kept = vec![0; given.len()];
    regions[0].read(0, &mut kept)?;
    Ok(found == expected && kept == given)
}

/// Says once that the group does without switches, and why: it may be back with them before the
/// length is measured.
fn tell(group: &Group, told: &mut Option<Fallback>) {
    let fallback = group.fallback();
    if let Some(fallback) = fallback.filter(|it| told.replace(*it) != Some(*it)) {
        eprintln!("hostallreduce: rank {}: {fallback}", group.rank());
    }
}

/// Measures one length. All members have the same line. `told` is the last that was said of why
/// switches did not do it.
pub(crate) fn measure(
    context: &Context,
    group: &mut Group,
    options: &Options,
    size: usize,
    told: &mut Option<Fallback>,
) -> Result<Line, Failure> {
    let plan = plan(options, size);
    let source = context.allocate(plan.given.max(1), Access::LOCAL_WRITE)?;
    let target = context.allocate(plan.whole.max(1), Access::LOCAL_WRITE)?;
    let regions = [&source, &target];
    let mut right = true;
    if !options.no_validation {
        right &= is_right(group, options, &plan, regions, 0)?;
        tell(group, told);
    }
    let (measured, warm_up) = options.repetitions(size);
    let (mut total, mut switched) = (Duration::ZERO, true);
    for round in 0..warm_up + measured {
        let took = once(group, &plan, regions)?;
        tell(group, told);
        if round >= warm_up {
            total += took;
            switched &= group.last_was_switched();
        }
        if matches!(
            options.collective,
            Collective::Reduce | Collective::Broadcast
        ) {
            group.barrier()?;
        }
    }
    if !options.no_validation {
        right &= is_right(group, options, &plan, regions, 1)?;
        tell(group, told);
    }
    let each = total.as_secs_f64() * 1e6 / f64::from(measured);
    let algorithm = options.algorithm.into();
    let line = gather(context, group, size, measured, each, right, algorithm)?;
    Ok(line.by_switches(switched))
}

/// What all members have measured.
fn gather(
    context: &Context,
    group: &mut Group,
    bytes: usize,
    iterations: u32,
    each: f64,
    right: bool,
    algorithm: group::Algorithm,
) -> Result<Line, Failure> {
    const EACH: usize = 16;
    let (rank, ranks) = (group.rank(), group.size());
    let table = context.allocate(EACH * ranks, Access::LOCAL_WRITE)?;
    table.write(EACH * rank, &each.to_le_bytes())?;
    table.write(EACH * rank + 8, &u64::from(!right).to_le_bytes())?;
    group.set_algorithm(group::Algorithm::Auto);
    group.allgather(Vector::new(&table, 0, EACH * ranks))?;
    group.set_algorithm(algorithm);
    let mut times = Vec::new();
    let mut wrong = 0;
    for rank in 0..ranks {
        let mut words = [[0; 8]; 2];
        for (index, word) in words.iter_mut().enumerate() {
            table.read(EACH * rank + 8 * index, word)?;
        }
        times.push(f64::from_le_bytes(words[0]));
        wrong += usize::from(words[1] != [0; 8]);
    }
    Ok(Line::new(bytes, iterations, &times, wrong))
}
