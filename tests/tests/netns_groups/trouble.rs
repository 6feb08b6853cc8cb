//! Switches that restart, are full or end a job, and members that die.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hostd_client::Context;
use hostd_client::group::{
    Algorithm, Collective, Element, FailureReason, Fallback, Group, Operation, Vector,
};
use lab::privileged;

use crate::rig::{Rig, check, numbers, read, region, sum};

pub(crate) const SIZE: usize = 4;

/// Bytes of a vector that takes switches a while.
const LONG: usize = 16 << 20;

/// Within which all go on between the hosts after a switch has gone.
const BOUND: Duration = Duration::from_secs(5);

/// Within which the rest of the vector is done as well, on a busy machine.
const REST: Duration = Duration::from_secs(20);

/// How long a member waits before it looks whether the group has gone on without the switches.
const LOOK: Duration = Duration::from_millis(20);

/// All reduce long vectors; `disturb` runs when they have begun. Everybody has the exact result,
/// and the switches' part has ended at all within [`BOUND`], whatever the rest of the vector takes.
/// Why they went on between the hosts.
pub(crate) fn disturbed(rig: &Rig, disturb: impl FnOnce()) -> Fallback {
    let begun = AtomicUsize::new(0);
    let member = |context: Context, mut group: Group| {
        check(&context, &mut group, 100_000, 1).unwrap();
        assert!(group.uses_switches(), "{:?}", group.fallback());
        let rank = group.rank();
        let expected = sum(SIZE, LONG, 2);
        // Again, until it happens in the middle of one: who disturbs may be slow.
        for turn in 0..100 {
            let memory = region(&context, &numbers(rank, LONG, 2));
            group.barrier().unwrap();
            if turn == 0 {
                begun.fetch_add(1, Ordering::Relaxed);
            }
            let vector = Vector::new(&memory, 0, LONG);
            let call = Collective::Allreduce(Operation::Sum, Element::U32);
            let mut request = group.start(call, vector).unwrap();
            let mut ended = None;
            while !request.wait_for(LOOK).unwrap() {
                if request.fallback().is_some() {
                    ended.get_or_insert_with(Instant::now);
                }
            }
            let done = Instant::now();
            drop(request);
            assert!(read(&memory, LONG) == expected, "rank {rank}");
            if let Some(fallback) = group.fallback() {
                check(&context, &mut group, 100_000, 3).unwrap();
                group.barrier().unwrap();
                return (fallback, ended.unwrap_or(done), done);
            }
        }
        panic!("the switches have carried all out");
    };
    let mut at = Instant::now();
    let ends = rig.group(SIZE, member, || {
        while begun.load(Ordering::Relaxed) < SIZE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        at = Instant::now();
        disturb();
    });
    let (fallback, ..) = ends[0];
    assert!(ends.iter().all(|(it, ..)| *it == fallback), "{ends:?}");
    let last = |times: Vec<Instant>| {
        let last = times.into_iter().max().unwrap();
        last.saturating_duration_since(at)
    };
    let ended = last(ends.iter().map(|(_, ended, _)| *ended).collect());
    let done = last(ends.iter().map(|(.., done)| *done).collect());
    println!("{fallback}; known to all after {ended:?}, and all have the result after {done:?}");
    assert!(fallback.done < LONG as u64, "in the middle: {fallback}");
    assert!(ended < BOUND, "{fallback}: {ended:?}");
    assert!(done < REST, "{fallback}: {done:?}");
    fallback
}

/// HT-50, SW-42: the leaf of two members, or the spine, is killed in the middle of a vector and
/// started again at once: all have the exact result, between the hosts, and know the same reason.
#[test]
fn a_restarted_switch_ends_in_a_fallback() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("grestart", [2, 1, 4]);
    for node in ["leaf1", "spine1", "leaf2"] {
        let fallback = disturbed(&rig, || rig.lab.kill(node).unwrap());
        let lost = [
            FailureReason::UnknownJob,
            FailureReason::SwitchLost,
            FailureReason::ParentLost,
            FailureReason::MemberLost,
        ];
        assert!(lost.contains(&fallback.reason), "{node}: {fallback}");
        rig.lab.wait_ready(Duration::from_secs(60)).unwrap();
        check_anew(&rig);
    }
}

/// The next group goes through the switches again.
fn check_anew(rig: &Rig) {
    let member = |context: Context, mut group: Group| {
        check(&context, &mut group, 100_000, 7).unwrap();
        group.uses_switches()
    };
    assert_eq!(rig.group(SIZE, member, || {}), [true; SIZE]);
}

/// HT-50, SW-42: an operator ends the job at a leaf, and at the spine, in the middle of a vector:
/// all go on between the hosts with exact results, and know why.
#[test]
fn a_deleted_job_ends_in_a_fallback() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gdelete", [2, 1, 4]);
    for node in ["leaf2", "spine1"] {
        let fallback = disturbed(&rig, || {
            let job = rig.running(node).expect("it runs").to_string();
            rig.lab.switchctl(node, &["inc", "delete", &job]).unwrap();
        });
        assert_eq!(fallback.reason, FailureReason::Deleted, "{node}");
        assert!(rig.fallbacks("h1", "deleted"), "hostd counts it");
        for switch in rig.switches() {
            assert_eq!(rig.running(switch), None, "{switch}");
        }
        check_anew(&rig);
    }
}

/// HT-50, SW-42: the leaf has room for one job: the second group is refused explicitly, says so,
/// and goes between the hosts, while the first one stays with the switches. When that has gone, the
/// next one has its place. Memory for slots runs out in the same way.
#[test]
fn a_full_switch_refuses_explicitly() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gfull", [2, 1, 4]);
    rig.configure("spine1", "jobs", 1);
    let first = |context: Context, mut group: Group| {
        check(&context, &mut group, 100_000, 1).unwrap();
        group.barrier().unwrap();
        if group.rank() == 0 {
            let second = |context: Context, mut group: Group| {
                check(&context, &mut group, 100_000, 2).unwrap();
                group.fallback().expect("there is no place")
            };
            for fallback in rig.group(SIZE, second, || {}) {
                println!("{fallback}");
                assert_eq!(fallback.done, 0);
                assert_eq!(fallback.reason, FailureReason::TooManyJobs);
            }
            assert!(rig.fallbacks("h2", "too_many_jobs"), "hostd counts it");
        }
        check(&context, &mut group, 100_000, 3).unwrap();
        assert!(group.uses_switches(), "{:?}", group.fallback());
        group.barrier().unwrap();
    };
    rig.group(SIZE, first, || {});
    check_anew(&rig);

    let rig = &rig;
    rig.configure("leaf1", "memory_megabytes", 1);
    // Each gets half of what is free at most, until that is less than a slot.
    let mut refused = false;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut groups = 0;
        while !refused && groups < 24 {
            groups += 1;
            let root = rig.root();
            let (done, came) = std::sync::mpsc::channel();
            for rank in 0..2 {
                let (done, over) = (done.clone(), &over);
                scope.spawn(move || {
                    let context = rig.session(rank);
                    let mut group = crate::rig::enter(&context, root, rank, 2).unwrap();
                    check(&context, &mut group, 100_000, 4).unwrap();
                    done.send(group.fallback()).unwrap();
                    // Those that have slots keep them until one group has none.
                    while !over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                });
            }
            let came = || came.recv_timeout(Duration::from_secs(60)).ok();
            let ends: Vec<_> = (0..2).map_while(|_| came()).collect();
            refused = ends.iter().any(|it| it.is_some());
            let full = |it: &Option<Fallback>| {
                it.is_some_and(|it| it.reason == FailureReason::Full && it.done == 0)
            };
            let right = ends.len() == 2 && (!refused || ends.iter().all(full));
            if !right {
                over.store(true, Ordering::Relaxed);
            }
            assert!(right, "{ends:?}");
        }
        over.store(true, Ordering::Relaxed);
        println!("group {groups} of one leaf found no memory");
        assert!(refused && groups > 2, "{groups} groups");
    });
}

/// HT-50, SW-42: a worker is killed in the middle, on another leaf than rank 0 or rank 0 itself:
/// all others end with the error that names it, within 3 s, and 5 s later no switch of either level
/// has a job that runs.
#[test]
fn a_killed_worker_is_named_through_two_levels() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gkilled", [2, 1, 4]);
    for victim in [3, 0] {
        let root = rig.root();
        let words = "--algorithm inc --sizes 256K --iterations 10000000";
        let words: Vec<&str> = words.split(' ').collect();
        let mut members: Vec<_> = (0..SIZE).map(|rank| rig.tool(root, rank, &words)).collect();
        let output = members[0].stdout.as_mut().unwrap();
        output.read_exact(&mut [0; 10]).expect("a heading");
        std::thread::sleep(Duration::from_millis(1500));
        for switch in rig.switches() {
            assert!(rig.running(switch).is_some(), "{switch}");
        }
        let mut dead = members.remove(victim);
        dead.kill().unwrap();
        let killed = Instant::now();
        let named = format!("rank {victim} is lost");
        for member in members {
            let output = member.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            let fine = !output.status.success() && errors.contains(&named);
            assert!(fine, "{errors}");
        }
        let took = killed.elapsed();
        dead.wait().unwrap();
        println!("all know of rank {victim} after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        while let Some(switch) = rig.switches().find(|it| rig.running(it).is_some()) {
            let took = killed.elapsed();
            assert!(took < BOUND, "{switch} after {took:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("no switch has the job after {:?}", killed.elapsed());
    }
}

/// HT-50: members that ask for the switches by name are told aloud that there are none.
#[test]
fn inc_without_a_spine_goes_between_the_hosts() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gnospine", [2, 1, 4]);
    rig.configure("leaf2", "parents", Vec::<String>::new());
    let member = |context: Context, mut group: Group| {
        group.set_algorithm(Algorithm::Inc);
        check(&context, &mut group, 100_000, 1).unwrap();
        group.fallback().expect("leaf2 knows no spine").reason
    };
    let reasons = rig.group(SIZE, member, || {});
    assert_eq!(reasons, [FailureReason::NoParents; SIZE]);
}
