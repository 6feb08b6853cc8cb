//! A spine that swallows what it gets: its daemon stands still, its links stay up, and no route
//! follows. The other spine works all the time, so groups go on, and nobody is taken for lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hostd_client::Context;
use hostd_client::group::{Algorithm, FailureReason, Fallback, Group};
use lab::privileged;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::rig::{Rig, check, told_by_root};
use crate::spines::comes_back;
use crate::trouble::SIZE;

/// Longer than the time after which any peer counts as lost: retransmissions go on for 4.3 s,
/// set-up of a connection for 6.3 s, and who has nothing to say is asked after 10 s, for 5 s.
const SILENCE: Duration = Duration::from_secs(20);

/// It goes on when this is dropped.
struct Silent(Pid);

impl Silent {
    fn new(rig: &Rig, spine: &str) -> Self {
        let daemons = rig.lab.daemons().unwrap();
        let daemon = daemons.iter().find(|it| it.node == spine);
        let silent = Self(Pid::from_raw(daemon.unwrap().pid.unwrap()));
        kill(silent.0, Signal::SIGSTOP).unwrap();
        silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Lengths of vectors: of one packet, of few, and of many.
const LENGTHS: [usize; 3] = [4, 5_000, 300_000];

/// Calls collectives until `over`, and compares every result. How many there were, and why the
/// group did without switches, if it did.
fn calls(context: &Context, group: &mut Group, over: &AtomicBool) -> (u64, Option<Fallback>) {
    let mut fallback = None;
    for (seed, len) in (0..).zip(LENGTHS.into_iter().cycle()) {
        check(context, group, len, seed).unwrap();
        fallback = group.fallback().or(fallback);
        if told_by_root(context, group, over.load(Ordering::Relaxed)) {
            return (seed + 1, fallback);
        }
    }
    unreachable!("more calls than there is time for")
}

/// A spine falls silent while a group works, and stays so for [`SILENCE`], and while a second group
/// forms and works. Why the groups did without switches.
fn silenced(
    rig: &Rig,
    root: impl Fn() -> SocketAddr,
    algorithm: Algorithm,
    spine: &str,
) -> Vec<Option<Fallback>> {
    let (begun, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let member = |context: Context, mut group: Group| {
        group.set_algorithm(algorithm);
        check(&context, &mut group, 100_000, 1).unwrap();
        begun.fetch_add(1, Ordering::Relaxed);
        let (calls, fallback) = calls(&context, &mut group, &over);
        (calls, fallback)
    };
    let mut silent = None;
    let ends = rig.group_at(root(), SIZE, member, || {
        while begun.load(Ordering::Relaxed) < SIZE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(200));
        silent = Some(Silent::new(rig, spine));
        std::thread::sleep(SILENCE);
        over.store(true, Ordering::Relaxed);
    });
    println!("{spine} is silent: {ends:?}");
    let member = |context: Context, mut group: Group| {
        group.set_algorithm(algorithm);
        for seed in 0..6 {
            check(&context, &mut group, 100_000, seed).unwrap();
        }
        if algorithm == Algorithm::Auto {
            comes_back(&context, &mut group);
            check(&context, &mut group, 1 << 20, 11).unwrap();
        }
    };
    let formed = Instant::now();
    rig.group_at(root(), SIZE, member, || {});
    let took = formed.elapsed();
    println!("{spine} is silent: a group was done after {took:?}");
    drop(silent);
    ends.into_iter().map(|(_, fallback)| fallback).collect()
}

/// HT-24, HT-50: a group between the hosts goes on while one of two spines swallows half of its
/// packets, and of their acknowledgements; so does one that forms then. IPv4 and IPv6.
#[test]
fn a_ring_goes_around_a_silent_spine() {
    if !privileged() {
        return;
    }
    // A laboratory each: leaves may have given the spine up that was silent before.
    for (name, v6, spine) in [("gsilrin6", true, "spine2"), ("gsilrin4", false, "spine1")] {
        let rig = Rig::new(name, [2, 2, 4]);
        let root = || SocketAddr::new(rig.lab.host("h1").address(v6), rig.root().port());
        let ends = silenced(&rig, root, Algorithm::Ring, spine);
        assert_eq!(ends, [None; SIZE], "it asked for no switches");
    }
}

/// SW-42, HT-24, HT-50: a group goes on without the switches when one of two spines falls silent,
/// and comes back with the other one as its only tree; so does one that forms then. No rank is
/// named.
#[test]
fn a_group_with_switches_goes_around_a_silent_spine() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gsiltree", [2, 2, 4]);
    for spine in ["spine1", "spine2"] {
        let ends = silenced(&rig, || rig.root(), Algorithm::Auto, spine);
        for end in &ends {
            let fallback = end.expect("a parent is silent");
            assert_eq!(fallback.rank, None, "{fallback}");
            assert_eq!(fallback.reason, FailureReason::ParentLost, "{fallback}");
        }
        // The leaves find the spine that goes on.
        rig.lab.wait_ready(Duration::from_secs(60)).unwrap();
    }
}
