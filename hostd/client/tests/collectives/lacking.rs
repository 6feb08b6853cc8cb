//! Members that have their result, and one that the leaf has left without.

use crate::rig::Rig;
use crate::switches::{SIZE, check, everything};
use hostd_client::Context;
use hostd_client::group::{Cause, Element, Group, GroupError, GroupOptions, Operation};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What members wait for that have their result: the last one, which lacks it.
struct Lack<'a> {
    begun: Instant,
    is_there: &'a AtomicUsize,
}

impl Lack<'_> {
    fn lasts(&self) -> bool {
        assert!(
            self.begun.elapsed() < Duration::from_secs(20),
            "nobody serves"
        );
        self.is_there.load(Ordering::Relaxed) > 0
    }

    /// Waits until another member has said so, and a moment more.
    fn wait_for(&self, said: &AtomicUsize) {
        while said.load(Ordering::Relaxed) == 0 {
            assert!(self.lasts(), "it has what it lacked too early");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Polls while it lasts, as one that waits for that member by other means, up to a time.
    fn attend(&self, group: &mut Group, most: Duration) {
        while self.lasts() && self.begun.elapsed() < most {
            assert!(group.poll().expect("the group goes on"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const EVER: Duration = Duration::MAX;

/// After the last one has told the others that it lacks results: a lease and some.
const EARLY: Duration = Duration::from_secs(4);

const SUM: (Operation, Element) = (Operation::Sum, Element::U32);

/// One member of a group gets no results any more, and so lacks that of a collective; all have
/// connections with each other. Each goes on by `then` once it has its result.
fn with_a_deaf_member(then: impl Fn(&Context, Group, &Lack<'_>) + Sync) {
    let Some(rig) = Rig::with_leaf(SIZE) else {
        return;
    };
    let last = SIZE - 1;
    let (done, is_there) = (AtomicUsize::new(0), AtomicUsize::new(1));
    rig.group(SIZE, GroupOptions::default(), |context, mut group| {
        everything(&context, &mut group);
        if group.rank() == last {
            rig.deafen(last);
            done.fetch_add(1, Ordering::Relaxed);
        }
        while done.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let lack = Lack {
            begun: Instant::now(),
            is_there: &is_there,
        };
        check(&context, &mut group, SUM, 10_000, 2).expect("reduced");
        if group.rank() == last {
            assert_eq!(done.load(Ordering::Relaxed), SIZE, "the others were done");
            assert!(group.fallback().is_some());
            is_there.store(0, Ordering::Relaxed);
            println!("the last one has it after {:?}", lack.begun.elapsed());
        } else {
            assert!(group.last_was_switched(), "{:?}", group.fallback());
            done.fetch_add(1, Ordering::Relaxed);
        }
        then(&context, group, &lack);
    });
}

/// HT-50, SW-42: one member gets no results any more. The others have theirs, and call nothing:
/// they wait for that member by other means, and poll the group meanwhile. So it gets what it
/// lacks from them, and the next collective goes between the hosts.
#[test]
fn who_is_done_gives_results_to_who_lacks_them() {
    with_a_deaf_member(|context, mut group, lack| {
        lack.attend(&mut group, EVER);
        check(context, &mut group, SUM, 100_000, 3).expect("reduced");
        assert!(!group.last_was_switched());
        everything(context, &mut group);
    });
}

/// HT-50, SW-42: the same when a member begins the next collective after it has said how far it is,
/// and before rank 0 has heard all and decides.
#[test]
fn who_goes_on_before_the_decision_is_waited_for() {
    let goes_on = AtomicUsize::new(0);
    with_a_deaf_member(|context, mut group, lack| {
        match group.rank() {
            1 => {
                lack.attend(&mut group, EARLY);
                assert!(lack.lasts(), "rank 2 has not said how far it is");
                goes_on.store(1, Ordering::Relaxed);
            }
            2 => {
                lack.wait_for(&goes_on);
                lack.attend(&mut group, EVER);
            }
            _ => lack.attend(&mut group, EVER),
        }
        for seed in 3..8 {
            check(context, &mut group, SUM, 100_000, seed).expect("reduced");
        }
        everything(context, &mut group);
    });
}

/// HT-50, SW-42: one that is dropped, which others need, gives them what they lack before: here the
/// one that decides and that gives. In the next collective it has left.
#[test]
fn who_is_dropped_gives_results_first() {
    let goes = AtomicUsize::new(0);
    let together = Barrier::new(SIZE - 1);
    with_a_deaf_member(|context, mut group, lack| match group.rank() {
        0 => {
            lack.attend(&mut group, EARLY);
            assert!(lack.lasts(), "rank 2 has not said how far it is");
            goes.store(1, Ordering::Relaxed);
            drop(group);
        }
        rank => {
            if rank == 2 {
                lack.wait_for(&goes);
            }
            lack.attend(&mut group, EVER);
            // The first that fails tells the others, who may poll still.
            together.wait();
            let ended = check(context, &mut group, SUM, 100_000, 3).expect_err("rank 0 is gone");
            let GroupError::Failed(failure) = ended else {
                panic!("{ended}");
            };
            assert_eq!((failure.rank, failure.cause), (0, Cause::Left));
        }
    });
}
