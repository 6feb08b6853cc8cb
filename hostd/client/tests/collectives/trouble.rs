//! Dead members, and members that do not come.

use crate::rig::{Rig, enter};
use hostd_client::group::{
    Cause, Element, Failure, Group, GroupError, GroupOptions, Operation, Refusal, Vector,
};
use hostd_client::{Access, Context};
use std::io::Read;
use std::net::Ipv6Addr;
use std::process::Child;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Within which all others have the error.
const BOUND: Duration = Duration::from_secs(3);

fn options(timeout: Duration) -> GroupOptions {
    GroupOptions {
        timeout,
        ..GroupOptions::default()
    }
}

fn failure(result: Result<(), GroupError>) -> Failure {
    match result {
        Err(GroupError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn allreduce(context: &Context, group: &mut Group, len: usize) -> Result<(), GroupError> {
    let memory = context.allocate(len, Access::LOCAL_WRITE).expect("memory");
    group.allreduce(Operation::Sum, Element::U32, Vector::new(&memory, 0, len))
}

fn end(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("our child");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// HT-50, SW-42: a process is killed in the middle of an allreduce: all others end with an error
/// that names its rank, within 3 s. Each rank in turn, rank 0 included, by both algorithms.
#[test]
fn a_killed_member_is_named_by_all() {
    const SIZE: usize = 4;
    let Some(rig) = Rig::new(SIZE) else {
        return;
    };
    for (victim, algorithm, length) in [
        (2, "ring", "4M"),
        (1, "doubling", "8"),
        (0, "ring", "1M"),
        (3, "chain", "4M"),
    ] {
        let port = rig.port();
        let words = [
            "--algorithm",
            algorithm,
            "--sizes",
            length,
            "--iterations",
            "10000000",
            "--warm-up",
            "5",
        ];
        let mut members: Vec<_> = (0..SIZE)
            .map(|rank| rig.tool(rank, SIZE, port, &words))
            .collect();
        // The heading: all have joined. Then they are in the middle of some repetition.
        let mut heading = [0; 10];
        let output = members[0].stdout.as_mut().expect("piped");
        output.read_exact(&mut heading).expect("a heading");
        std::thread::sleep(Duration::from_millis(1500));
        for member in &mut members {
            assert!(
                member.try_wait().expect("our child").is_none(),
                "it goes on"
            );
        }
        let mut dead = members.remove(victim);
        dead.kill().expect("it runs");
        let killed = Instant::now();
        let mut took = Duration::ZERO;
        for member in members {
            let (success, errors) = end(member);
            took = took.max(killed.elapsed());
            assert!(!success, "{errors}");
            let named = format!("rank {victim} is lost");
            assert!(
                errors.contains(&named),
                "rank {victim} was killed: {errors}"
            );
        }
        dead.wait().expect("our child");
        println!("{algorithm} of {length}: all know of rank {victim} after {took:?}");
        assert!(took < BOUND, "{took:?}");
    }
}

/// HT-50, SW-42: a daemon is killed in the middle: the others name the rank, the member there says
/// that it is its own host, and all of them say the same again.
#[test]
fn a_killed_daemon_is_named() {
    let Some(rig) = Rig::new(3) else {
        return;
    };
    let rig = std::sync::Mutex::new(rig);
    let port = rig.lock().expect("held by nobody").port();
    let begun = std::sync::Barrier::new(4);
    let contexts: Vec<_> = (0..3)
        .map(|rank| rig.lock().expect("free").session(rank))
        .collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = contexts
            .into_iter()
            .enumerate()
            .map(|(rank, context)| {
                let begun = &begun;
                scope.spawn(move || {
                    let options = options(Duration::from_secs(20));
                    let mut group = enter(&context, port, rank, 3, options).expect("all join");
                    group.barrier().expect("all are here");
                    let memory = context
                        .allocate(1 << 20, Access::LOCAL_WRITE)
                        .expect("memory");
                    let (sum, element) = (Operation::Sum, Element::U32);
                    begun.wait();
                    let begun = Instant::now();
                    let error = loop {
                        let vector = Vector::new(&memory, 0, 1 << 20);
                        if let Err(error) = group.allreduce(sum, element, vector) {
                            break error;
                        }
                    };
                    let took = begun.elapsed();
                    let again = group.barrier().expect_err("it has failed");
                    assert_eq!(again.to_string(), error.to_string(), "the same again");
                    (error, took)
                })
            })
            .collect();
        begun.wait();
        std::thread::sleep(Duration::from_millis(300));
        rig.lock().expect("free").kill(1);
        for (rank, thread) in threads.into_iter().enumerate() {
            let (error, took) = thread.join().expect("no panic");
            println!("rank {rank} after {took:?}: {error}");
            assert!(took < Duration::from_secs(9), "{took:?}");
            if rank == 1 {
                assert!(matches!(error, GroupError::Host(_)), "{error}");
                continue;
            }
            assert_eq!(
                failure(Err(error)),
                Failure {
                    rank: 1,
                    cause: Cause::Lost
                }
            );
        }
    });
}

/// HT-50: rank 0 computes for longer than its hostd lets requests for connections wait, four times
/// over, before its first collective, which goes between the hosts: it is waited for, and not lost.
#[test]
fn who_computes_is_waited_for() {
    const SIZE: usize = 3;
    let Some(rig) = Rig::new(SIZE) else {
        return;
    };
    let done = rig.group(
        SIZE,
        options(Duration::from_secs(120)),
        |context, mut group| {
            if group.rank() == 0 {
                std::thread::sleep(Duration::from_secs(44));
            }
            group
                .barrier()
                .and_then(|()| allreduce(&context, &mut group, 64))
        },
    );
    assert!(done.iter().all(Result::is_ok), "{done:?}");
}

/// HT-50: a member that cannot take part says so: the others see who it is, and at once.
#[test]
fn who_cannot_take_part_is_named() {
    let Some(rig) = Rig::new(3) else {
        return;
    };
    let unable = 1;
    let begun = Instant::now();
    let failures = rig.group(3, options(Duration::from_secs(60)), |context, mut group| {
        // Who is through it may give up while others still are in it.
        let here = group.barrier();
        if group.rank() == unable {
            here.expect("all are here");
            let own = group.give_up(hostd_client::Error::TimedOut);
            assert!(matches!(own, GroupError::Host(_)), "{own:?}");
            return None;
        }
        Some(failure(
            here.and_then(|()| allreduce(&context, &mut group, 64)),
        ))
    });
    for failure in failures.into_iter().flatten() {
        let (rank, cause) = (unable, Cause::Unable);
        assert_eq!(failure, Failure { rank, cause });
    }
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "long before the time-out"
    );
}

/// HT-50: one does not come, one has left, one gives up: all others name it, within the time that
/// is stated.
#[test]
fn who_does_not_come_is_named_by_all() {
    let Some(rig) = Rig::new(4) else {
        return;
    };
    let timeout = Duration::from_secs(1);
    for absent in [0, 2] {
        let failures = rig.group(4, options(timeout), |context, mut group| {
            group.barrier().expect("all are here");
            if group.rank() == absent {
                std::thread::sleep(Duration::from_secs(6));
                return None;
            }
            let begun = Instant::now();
            let failure = failure(allreduce(&context, &mut group, 100_000));
            let took = begun.elapsed();
            assert!(took < timeout + BOUND + Duration::from_secs(1), "{took:?}");
            Some(failure)
        });
        let late = Failure {
            rank: absent,
            cause: Cause::Late,
        };
        for failure in failures.into_iter().flatten() {
            assert_eq!(failure, late);
        }
    }
    let (left, gave_up) = (1, 3);
    for (rank, cause) in [(left, Cause::Left), (gave_up, Cause::Abandoned)] {
        let begun = Instant::now();
        let failures = rig.group(4, options(Duration::from_secs(60)), |context, mut group| {
            // A failure of what comes next also ends the barrier where it is not over yet.
            let here = group.barrier();
            if group.rank() == rank && rank == left {
                here.expect("all are here");
                return None;
            }
            if group.rank() == rank {
                let memory = context.allocate(64, Access::LOCAL_WRITE).expect("memory");
                let collective = hostd_client::group::Collective::Broadcast { root: 0 };
                drop(
                    group
                        .start(collective, Vector::new(&memory, 0, 64))
                        .expect("begun"),
                );
                let error = group.barrier();
                return Some(failure(error));
            }
            Some(failure(
                here.and_then(|()| allreduce(&context, &mut group, 64)),
            ))
        });
        for failure in failures.into_iter().flatten() {
            assert_eq!(failure, Failure { rank, cause });
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "long before the time-out"
        );
    }
}

/// HT-50: a group of which one is missing, or that takes no such member, says so to those that it
/// concerns.
#[test]
fn groups_form_or_say_why_not() {
    let Some(rig) = Rig::new(3) else {
        return;
    };
    let options = GroupOptions {
        join_timeout: Duration::from_secs(2),
        ..GroupOptions::default()
    };
    let port = rig.port();
    let missing = rig.members(3, |context, rank| {
        (rank != 2).then(|| failure(enter(&context, port, rank, 3, options).map(drop)))
    });
    let (rank, cause) = (2, Cause::Missing);
    assert_eq!(missing[..2], [Some(Failure { rank, cause }); 2]);

    let port = rig.port();
    let alone = failure(enter(&rig.session(1), port, 1, 2, options).map(drop));
    let (rank, cause) = (0, Cause::Missing);
    assert_eq!(alone, Failure { rank, cause }, "nobody waits there");

    let port = rig.port();
    rig.members(3, |context, rank| {
        let options = GroupOptions::default();
        if rank == 2 {
            let refused = |rank, size, segment| {
                let options = GroupOptions { segment, ..options };
                match enter(&context, port, rank, size, options) {
                    Err(GroupError::Refused(why)) => why,
                    other => panic!("{other:?}"),
                }
            };
            // Rank 1 has joined long before.
            std::thread::sleep(Duration::from_secs(3));
            let segment = options.segment;
            assert_eq!(refused(1, 4, segment), Refusal::Size);
            assert_eq!(refused(1, 3, 2 * segment), Refusal::Segment);
            assert_eq!(refused(1, 3, segment), Refusal::RankTaken);
        }
        let mut group = enter(&context, port, rank, 3, options).expect("the right ones join");
        group.barrier().expect("all are here");
    });
}

/// HT-50: members that can tell one another whether they are able to take part learn at once that
/// one is not, for its own host refuses what it needs: a listener, or at rank 0 a queue pair for
/// each of the others. Nobody waits for it.
#[test]
fn members_that_agree_wait_for_none_that_cannot_come() {
    const SIZE: usize = 4;
    let quotas = [
        (3, "[application.quota]\nlisteners = 0\n"),
        (0, "[application.quota]\nqueue_pairs = 2\n"),
    ];
    for (victim, quota) in quotas {
        let of = |host| if host == victim { quota } else { "" };
        let Some(rig) = Rig::with_leaf_and(SIZE, of) else {
            return;
        };
        let (port, all) = (rig.port(), Barrier::new(SIZE));
        let lowest = AtomicUsize::new(SIZE);
        let begun = Instant::now();
        let ends = rig.members(SIZE, |context, rank| {
            let agree = |able: bool| {
                let own = if able { SIZE } else { rank };
                lowest.fetch_min(own, Ordering::SeqCst);
                all.wait();
                Some(lowest.load(Ordering::SeqCst)).filter(|it| *it < SIZE)
            };
            let options = GroupOptions::default();
            let formed = if rank == 0 {
                let here = Ipv6Addr::UNSPECIFIED.into();
                let listener = context.listen(here, port, 64).expect("it may");
                Group::gather_if(&context, listener, SIZE, options, agree)
            } else {
                Group::join_if(&context, Rig::root(port), rank, SIZE, options, agree)
            };
            formed.map(drop)
        });
        assert!(begun.elapsed() < Duration::from_secs(5));
        for (rank, end) in ends.into_iter().enumerate() {
            if rank == victim {
                assert!(matches!(end, Err(GroupError::Host(_))), "{end:?}");
            } else {
                let (rank, cause) = (victim, Cause::Unable);
                assert_eq!(failure(end), Failure { rank, cause });
            }
        }
    }
}
