//! Through a leaf, and between the hosts where that is gone.

use crate::results::{fold, read, region, vector};
use crate::rig::Rig;
use hostd_client::group::{
    Algorithm, Element, FailureReason, Fallback, Group, GroupError, GroupOptions, Operation, Vector,
};
use hostd_client::{Access, Context};
use std::io::{BufRead, BufReader, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) const SIZE: usize = 4;

/// Bytes of a vector that takes switches a while.
const LONG: usize = 8 << 20;

/// An allreduce whose result is compared with what must come of it.
pub(crate) fn check(
    context: &Context,
    group: &mut Group,
    (operation, element): (Operation, Element),
    len: usize,
    seed: u64,
) -> Result<(), GroupError> {
    let of = |rank| vector(element, operation, rank, len, seed);
    let vectors: Vec<_> = (0..group.size()).map(of).collect();
    let memory = region(context, &vectors[group.rank()]);
    group.allreduce(operation, element, Vector::new(&memory, 0, len))?;
    let right = read(&memory, 0, len) == fold(operation, element, &vectors);
    assert!(
        right,
        "rank {}: {operation:?} of {len} bytes, seed {seed}",
        group.rank()
    );
    Ok(())
}

/// HT-50, SW-40, SW-41: a group goes through the leaf by itself, or as asked: exact results of all
/// kinds of collectives; those that switches do not do go between the hosts.
#[test]
fn groups_go_through_the_leaf() {
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    for algorithm in [Algorithm::Auto, Algorithm::Inc] {
        rig.group(SIZE, GroupOptions::default(), |context, mut group| {
            group.set_algorithm(algorithm);
            for (number, element) in (0_u64..).zip(Element::ALL) {
                for operation in [Operation::Sum, Operation::Max] {
                    let len = [8, 1_400, 4_096, 100_000][usize::try_from(number).expect("few") % 4];
                    let work = (operation, element);
                    check(&context, &mut group, work, len, number).expect("reduced");
                }
            }
            everything(&context, &mut group);
            assert!(group.uses_switches(), "{:?}", group.fallback());
            assert_eq!(group.fallback(), None);
            group.set_algorithm(Algorithm::Ring);
            check(&context, &mut group, (Operation::Sum, Element::U32), 64, 9).expect("reduced");
            assert!(!group.uses_switches());
        });
    }
    assert!(!rig.status(0).contains("fallbacks"), "{}", rig.status(0));
}

/// All the other collectives.
pub(crate) fn everything(context: &Context, group: &mut Group) {
    let (rank, len) = (group.rank(), 10_000);
    group.barrier().expect("all come");
    let of = |rank| vector(Element::U32, Operation::Sum, rank, len, 77);
    let vectors: Vec<_> = (0..SIZE).map(of).collect();
    let sum = fold(Operation::Sum, Element::U32, &vectors);
    let memory = region(context, &vectors[rank]);
    let all = Vector::new(&memory, 0, len);
    group
        .reduce(Operation::Sum, Element::U32, 2, all)
        .expect("reduced");
    assert!(rank != 2 || read(&memory, 0, len) == sum);
    memory.write(0, &vectors[rank]).expect("inside");
    group.broadcast(1, all).expect("broadcast");
    assert!(read(&memory, 0, len) == vectors[1]);
    let blocks = region(context, &[u8::try_from(rank).expect("few"); SIZE]);
    group.set_algorithm(Algorithm::Auto);
    group
        .allgather(Vector::new(&blocks, 0, SIZE))
        .expect("gathered");
    assert_eq!(read(&blocks, 0, SIZE), [0, 1, 2, 3]);
}

/// HT-50, SW-40: with one packet in a hundred lost each way results are exact, and the group stays
/// with the leaf.
#[test]
fn results_are_exact_though_packets_are_lost() {
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    rig.lose();
    let begun = Instant::now();
    rig.group(SIZE, GroupOptions::default(), |context, mut group| {
        for seed in 0..30 {
            let work = (Operation::Sum, Element::F32);
            check(&context, &mut group, work, 100_000, seed).expect("reduced");
        }
        assert_eq!(group.fallback(), None);
    });
    println!("30 times 100 kB with 1 % lost: {:?}", begun.elapsed());
    assert!(!rig.status(0).contains("fallbacks"), "{}", rig.status(0));
}

/// HT-50, SW-40: 200 runs, each of a group of its own that calls a few collectives of any length,
/// type and operation, with one packet in a hundred lost each way: all results are exact, and
/// nearly all of them come from the leaf.
#[test]
#[ignore = "takes minutes; make soak runs it"]
fn two_hundred_runs_are_exact_though_packets_are_lost() {
    const RUNS: u64 = 200;
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    rig.lose();
    let (begun, mut switched) = (Instant::now(), 0);
    for seed in 0..RUNS {
        let size = 2 + usize::try_from(seed % 7).expect("few");
        let whole = rig.group(size, GroupOptions::default(), |context, mut group| {
            group.set_deterministic(seed % 5 == 0);
            for call in 0..4 {
                let random = (seed * 4 + call + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let pick = |shift: u32, of: usize| {
                    usize::try_from(random >> shift & 0xffff).expect("16 bits") % of
                };
                let element = Element::ALL[pick(0, Element::ALL.len())];
                let takes = |it: &Operation| it.takes(element);
                let all: Vec<_> = Operation::ALL.into_iter().filter(takes).collect();
                let operation = all[pick(16, all.len())];
                // Lengths of all orders up to 256 KiB.
                let len = element.len() * (1 + pick(32, (256 << 10) >> pick(48, 15)) / 8);
                check(&context, &mut group, (operation, element), len, seed).expect("reduced");
            }
            group.fallback().is_none()
        });
        assert!(whole.iter().all(|it| *it == whole[0]), "seed {seed}");
        switched += u64::from(whole[0]);
        if seed % 20 == 19 {
            let (runs, took) = (seed + 1, begun.elapsed());
            println!("{runs} runs, {switched} of them by the leaf alone, in {took:?}");
        }
    }
    // A busy machine may have a lease end.
    assert!(switched * 10 >= RUNS * 9, "{switched} of {RUNS}");
}

/// HT-50, SW-42: a member is killed in the middle: all others end with the error that names it,
/// within 3 s, and nothing is left at the leaf 5 s later.
#[test]
fn a_killed_member_is_named_through_the_leaf() {
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    for victim in [2, 0] {
        let port = rig.port();
        let words = [
            "--algorithm",
            "inc",
            "--sizes",
            "256K",
            "--iterations",
            "10000000",
        ];
        let mut members: Vec<_> = (0..SIZE)
            .map(|rank| rig.tool(rank, SIZE, port, &words))
            .collect();
        let mut heading = [0; 10];
        let output = members[0].stdout.as_mut().expect("piped");
        output.read_exact(&mut heading).expect("a heading");
        std::thread::sleep(Duration::from_millis(1500));
        assert!(rig.jobs().contains("running"), "{}", rig.jobs());
        let mut dead = members.remove(victim);
        dead.kill().expect("it runs");
        let killed = Instant::now();
        let named = format!("rank {victim} is lost");
        for member in members {
            let output = member.wait_with_output().expect("our child");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && errors.contains(&named),
                "{errors}"
            );
        }
        let took = killed.elapsed();
        println!("all know of rank {victim} after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        dead.wait().expect("our child");
        while rig.jobs().contains("running") {
            let took = killed.elapsed();
            assert!(took < Duration::from_secs(5), "{took:?}: {}", rig.jobs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// HT-50, SW-42: the leaf is killed in the middle of a vector: all go on between the hosts from
/// where it came to, with exact results, within 5 s; hostd counts why, and the group stays with the
/// hosts.
#[test]
fn a_killed_leaf_ends_in_a_fallback() {
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    let port = rig.port();
    let contexts: Vec<_> = (0..SIZE).map(|rank| rig.session(rank)).collect();
    let (rig, calling) = (Mutex::new(rig), AtomicUsize::new(0));
    let fallbacks: Vec<Fallback> = std::thread::scope(|scope| {
        let member = |(rank, context): (usize, Context)| {
            let calling = &calling;
            scope.spawn(move || {
                let options = GroupOptions::default();
                let mut group = crate::rig::enter(&context, port, rank, SIZE, options).expect("in");
                let (sum, element) = (Operation::Sum, Element::U32);
                check(&context, &mut group, (sum, element), 100_000, 1).expect("reduced");
                let of = |rank| vector(element, sum, rank, LONG, 2);
                let vectors: Vec<_> = (0..SIZE).map(of).collect();
                let memory = region(&context, &vectors[rank]);
                group.barrier().expect("all are here");
                calling.fetch_add(1, Ordering::Relaxed);
                let all = Vector::new(&memory, 0, LONG);
                group.allreduce(sum, element, all).expect("reduced");
                let ended = Instant::now();
                assert!(
                    read(&memory, 0, LONG) == fold(sum, element, &vectors),
                    "rank {rank}"
                );
                assert!(!group.uses_switches());
                check(&context, &mut group, (sum, element), 100_000, 3).expect("reduced");
                everything(&context, &mut group);
                (group.fallback().expect("the leaf is gone"), ended)
            })
        };
        let threads: Vec<_> = contexts.into_iter().enumerate().map(member).collect();
        while calling.load(Ordering::Relaxed) < SIZE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        rig.lock().expect("free").kill_leaf();
        let killed = Instant::now();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        let ends: Vec<(Fallback, Instant)> = threads.into_iter().map(join).collect();
        let last = ends.iter().map(|(_, ended)| *ended - killed).max();
        println!("all have the result {last:?} after the leaf was killed");
        assert!(
            last.is_some_and(|took| took < Duration::from_secs(5)),
            "{last:?}"
        );
        ends.into_iter().map(|(fallback, _)| fallback).collect()
    });
    println!("{}", fallbacks[0]);
    assert!(
        fallbacks.iter().all(|it| *it == fallbacks[0]),
        "{fallbacks:?}"
    );
    assert_eq!(fallbacks[0].reason, FailureReason::SwitchLost);
    let middle = 1..LONG as u64;
    assert!(
        middle.contains(&fallbacks[0].done),
        "in the middle: {:?}",
        fallbacks[0]
    );
    let status = rig.lock().expect("free").status(1);
    assert!(
        status.contains("fallbacks from switches: switch_lost"),
        "{status}"
    );
}

/// HT-50: the tool says what it went through, and says so when that changes; without a leaf `inc`
/// goes between the hosts.
#[test]
fn the_tool_tells_of_the_switches() {
    let Some(mut rig) = Rig::with_leaf(2) else {
        return;
    };
    let run = |rig: &Rig, words: &[&str]| {
        let port = rig.port();
        let all = (0..2).map(|rank| rig.tool(rank, 2, port, words));
        let all: Vec<_> = all.collect();
        let end = |child: std::process::Child| child.wait_with_output().expect("our child");
        let ends: Vec<_> = all.into_iter().map(end).collect();
        assert!(ends.iter().all(|it| it.status.success()), "{ends:?}");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&ends[0].stdout), text(&ends[0].stderr))
    };
    let words = [
        "--algorithm",
        "inc",
        "--json",
        "--sizes",
        "8,64K",
        "--iterations",
        "20",
    ];
    let (output, errors) = run(&rig, &words);
    assert_eq!(output.matches("\"switched\":true").count(), 2, "{output}");
    assert_eq!(output.matches("\"wrong\":0").count(), 2, "{output}");
    assert_eq!(errors, "");
    rig.kill_leaf();
    let (output, errors) = run(&rig, &words);
    assert_eq!(output.matches("\"switched\":false").count(), 2, "{output}");
    assert!(
        errors.contains("without switches since collective 0"),
        "{errors}"
    );
    let mut lines = BufReader::new(errors.as_bytes()).lines();
    assert!(
        lines.next().is_some() && lines.next().is_none(),
        "once: {errors}"
    );
    let context = rig.session(0);
    drop(
        context
            .allocate(1, Access::LOCAL_WRITE)
            .expect("the hosts live"),
    );
}

/// What a member knows after its first collective: why it does without switches, if it does.
fn first_call(context: &Context, group: &mut Group) -> Option<Fallback> {
    let work = (Operation::Sum, Element::U32);
    check(context, group, work, 100_000, 1).expect("reduced");
    check(context, group, work, 100_000, 2).expect("reduced");
    assert_eq!(group.uses_switches(), group.last_was_switched());
    group.fallback()
}

/// HT-50, SW-42: where one of the hosts knows no leaf, a group says so aloud: to the program, with
/// that rank, in the tool, in the counters and the log of each member's hostd, once. So does one
/// that asks for switches where nobody knows any; nothing is said where nobody asks.
#[test]
fn a_missing_leaf_is_told_of() {
    let leaf = |host| match host {
        1 => "",
        _ => "[collective]\nleaf = '10.31.0.200'\n",
    };
    let Some(rig) = Rig::with_leaf_and(3, leaf) else {
        return;
    };
    let counted = |rig: &Rig, host, times: usize| {
        let status = rig.status(host);
        let lines = status.lines();
        let line = lines.filter(|it| it.contains("fallbacks from switches: no_leaf"));
        let count = line.map(|it| it.split_whitespace().next_back().map(str::parse));
        let count: Vec<_> = count
            .flatten()
            .map(Result::<usize, _>::unwrap_or_default)
            .collect();
        let expected: &[usize] = if times > 0 { &[times] } else { &[] };
        assert_eq!(count, expected, "{status}");
        let said = rig.log(host);
        let said = said.matches("a group goes on between the hosts: a host knows no leaf");
        assert_eq!(said.count(), times, "{}", rig.log(host));
    };
    let fallbacks = rig.group(3, GroupOptions::default(), |context, mut group| {
        first_call(&context, &mut group)
    });
    let expected = Fallback {
        reason: FailureReason::NoLeaf,
        rank: Some(1),
        sequence: 0,
        done: 0,
    };
    assert_eq!(fallbacks, [Some(expected); 3]);
    (0..3).for_each(|host| counted(&rig, host, 1));
    let port = rig.port();
    let words = [
        "--algorithm",
        "inc",
        "--sizes",
        "8,64K",
        "--iterations",
        "20",
    ];
    let tools: Vec<_> = (0..3).map(|rank| rig.tool(rank, 3, port, &words)).collect();
    for (rank, tool) in tools.into_iter().enumerate() {
        let output = tool.wait_with_output().expect("our child");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert_eq!(
            errors.matches("a host knows no leaf").count(),
            1,
            "{errors}"
        );
        let said = String::from_utf8_lossy(&output.stdout);
        let lines = said.lines().filter(|it| it.ends_with(" hosts"));
        assert_eq!(lines.count(), if rank == 0 { 2 } else { 0 }, "{said}");
    }
    (0..3).for_each(|host| counted(&rig, host, 2));

    let Some(rig) = Rig::new(2) else {
        return;
    };
    let nobody = Fallback {
        rank: None,
        ..expected
    };
    for (algorithm, expected) in [
        (Algorithm::Auto, None),
        (Algorithm::Ring, None),
        (Algorithm::Inc, Some(nobody)),
    ] {
        let fallbacks = rig.group(2, GroupOptions::default(), |context, mut group| {
            group.set_algorithm(algorithm);
            first_call(&context, &mut group)
        });
        assert_eq!(fallbacks, [expected; 2], "{algorithm:?}");
    }
    (0..2).for_each(|host| counted(&rig, host, 1));
}

/// HT-50, SW-42: a member whose own hostd refuses it is named to all, and its hostd counts that the
/// group does without switches, and says so, as those of the others do.
#[test]
fn a_member_that_its_own_host_refuses_is_counted_there() {
    let quota = |host| match host {
        3 => "[collective]\nleaf = '10.31.0.200'\n[application.quota]\nmemberships = 0\n",
        _ => "[collective]\nleaf = '10.31.0.200'\n",
    };
    let Some(rig) = Rig::with_leaf_and(SIZE, quota) else {
        return;
    };
    let options = GroupOptions {
        again: Duration::ZERO,
        ..GroupOptions::default()
    };
    let fallbacks = rig.group(SIZE, options, |context, mut group| {
        first_call(&context, &mut group)
    });
    let expected = Fallback {
        reason: FailureReason::Full,
        rank: Some(3),
        sequence: 0,
        done: 0,
    };
    assert_eq!(fallbacks, [Some(expected); SIZE]);
    for host in 0..SIZE {
        let status = rig.status(host);
        let mut lines = status.lines();
        let line = lines.find(|it| it.contains("fallbacks from switches: full"));
        let count = line.and_then(|it| it.split_whitespace().next_back());
        assert_eq!(count, Some("1"), "{host}: {status}");
        let (log, said) = (rig.log(host), "a group goes on between the hosts");
        assert_eq!(log.matches(said).count(), 1, "{host}: {log}");
    }
}

/// HT-50, SW-42: the daemon of a host behind the leaf is killed in the middle: the others end with
/// the error that names the rank, within 3 s, as its leaf does not hear it either; the member there
/// learns at once that it is its own host. Nothing is left at the leaf 5 s later.
#[test]
fn a_killed_daemon_is_named_through_the_leaf() {
    const VICTIM: usize = 2;
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    let port = rig.port();
    let contexts: Vec<_> = (0..SIZE).map(|rank| rig.session(rank)).collect();
    let (rig, calling) = (Mutex::new(rig), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let member = |(rank, context): (usize, Context)| {
            let calling = &calling;
            scope.spawn(move || {
                let options = GroupOptions::default();
                let mut group = crate::rig::enter(&context, port, rank, SIZE, options).expect("in");
                let work = (Operation::Sum, Element::U32);
                check(&context, &mut group, work, 100_000, 1).expect("reduced");
                assert!(group.uses_switches(), "{:?}", group.fallback());
                calling.fetch_add(1, Ordering::Relaxed);
                let memory = region(&context, &vec![0; 1 << 20]);
                let error = loop {
                    let all = Vector::new(&memory, 0, 1 << 20);
                    if let Err(error) = group.allreduce(work.0, work.1, all) {
                        break error;
                    }
                };
                (error, Instant::now())
            })
        };
        let threads: Vec<_> = contexts.into_iter().enumerate().map(member).collect();
        while calling.load(Ordering::Relaxed) < SIZE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
        rig.lock().expect("free").kill(VICTIM);
        let killed = Instant::now();
        for (rank, thread) in threads.into_iter().enumerate() {
            let (error, ended) = thread.join().expect("no panic");
            let took = ended.saturating_duration_since(killed);
            println!("rank {rank} after {took:?}: {error}");
            let bound = if rank == VICTIM {
                assert!(matches!(error, GroupError::Host(_)), "{error}");
                Duration::from_secs(1)
            } else {
                let named = format!("rank {VICTIM} is lost");
                assert!(error.to_string().contains(&named), "{error}");
                Duration::from_secs(3)
            };
            assert!(took < bound, "rank {rank}: {took:?}");
        }
        let rig = rig.lock().expect("free");
        while rig.jobs().contains("running") {
            let took = killed.elapsed();
            assert!(took < Duration::from_secs(5), "{took:?}: {}", rig.jobs());
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}
