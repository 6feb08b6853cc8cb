//! HT-3: as many sessions as a user may have fill every quota, and others post and ring without
//! end, to peers that have no receive, and read no completion; beside them one application
//! transfers data.

use crate::rig::{Daemon, pair};
use crate::siege::{full_session, small_quotas};
use crate::storm::{Attacker, Service, Victim, compute};
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sessions that hold all that they may.
const FULL: usize = 59;

/// Sessions that post and never read.
const DEAF: usize = 4;

/// Posts, rings and wakes until `stop`, and looks at nothing that comes back: one session fills its
/// ring and goes on, which breaks it; one keeps its ring full; one rings for nothing; one wakes.
fn post_only(daemon: &Daemon, peer: &Daemon, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = Pcg64Mcg::new(seed.into());
    let mut attackers: Vec<_> = (0..DEAF).map(|_| Attacker::new(daemon, peer)).collect();
    let mut posted = 0;
    while !stop.load(Ordering::Relaxed) {
        for (number, attacker) in attackers.iter_mut().enumerate() {
            match number % 4 {
                0 => attacker.post_lawful(&mut random),
                1 => attacker.post_within(&mut random),
                2 => attacker.ring_any(&mut random),
                _ => attacker.wake_only(),
            }
            posted += 1;
        }
    }
    posted
}

/// HT-3: sessions are full, some are deaf, and one is served: what it sends arrives as it was sent.
/// When they end all is given back.
#[test]
fn a_transfer_beside_full_and_deaf_sessions() {
    let (a, b) = pair(&small_quotas());
    let mut victim = Victim::new(&a, &b);
    let full: Vec<_> = (0..FULL).map(|_| full_session(&a)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deaf = scope.spawn(|| post_only(&a, &b, 1, &stop));
        a.wait_for("all are there", |report| {
            report.sessions.len() == FULL + DEAF + 1
        });
        a.wait_for("bells are not listened to", |report| {
            report.edge.silences > 20
        });
        for _ in 0..500 {
            victim.transfer();
        }
        assert_eq!(a.report().sessions.len(), FULL + DEAF + 1);
        stop.store(true, Ordering::Relaxed);
        assert!(deaf.join().expect("it ends well") > 500);
    });
    drop((full, victim));
    a.wait_empty();
    b.wait_empty();
}

/// HT-3: the same with figures: the application keeps 0.95 of its messages a second, and their time
/// at the 99th percentile grows by no more than a fifth, against a thread that takes as much of the
/// machine as theirs and uses no hostd, over all windows, which take turns. Both threads are alike
/// for the kernel.
#[test]
#[ignore = "takes minutes, and the machine for itself: make soak"]
fn the_service_beside_full_and_deaf_sessions() {
    const PAIRS: u64 = 30;
    const WINDOW: Duration = Duration::from_millis(750);
    let (a, b) = pair(&small_quotas());
    let mut victim = Victim::new(&a, &b);
    let (mut beside, mut under) = (Service::default(), Service::default());
    for seed in 0..PAIRS {
        let calm = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| compute(seed, &calm));
            beside.add(&victim.measure(WINDOW));
            calm.store(true, Ordering::Relaxed);
        });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let full: Vec<_> = (0..FULL).map(|_| full_session(&a)).collect();
            scope.spawn(|| post_only(&a, &b, seed, &stop));
            a.wait_for("all are there", |report| {
                report.sessions.len() == FULL + DEAF + 1
            });
            under.add(&victim.measure(WINDOW));
            stop.store(true, Ordering::Relaxed);
            drop(full);
        });
        a.wait_for("the others have ended", |report| report.sessions.len() == 1);
    }
    beside.judge(&under);
}
