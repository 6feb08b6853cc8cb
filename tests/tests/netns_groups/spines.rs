//! Several spines, one of them dead, and groups that come back to the switches.

use std::time::{Duration, Instant};

use hostd_client::Context;
use hostd_client::group::{FailureReason, Group};
use lab::privileged;

use crate::rig::{Rig, check};
use crate::trouble::{SIZE, disturbed};

/// Collectives between the hosts until a group is back at the latest.
const CALLS: usize = 20_000;

/// SW-40: two spines share the chunks of a vector: each uplink of a leaf carries half of it, in the
/// best of forty collectives.
#[test]
fn two_spines_share_a_vector() {
    const LEN: usize = 1 << 20;
    if !privileged() {
        return;
    }
    let rig = Rig::new("gshare", [2, 2, 4]);
    let sent = || ["spine1", "spine2"].map(|spine| rig.sent("leaf1", spine));
    for least in rig.least_sent(SIZE, LEN, sent) {
        let half = LEN as u64 / 2;
        assert!(least >= half && least * 10 <= half * 11, "{least}");
    }
}

/// Calls collectives until the group is back at the switches; how many there were.
pub(crate) fn comes_back(context: &Context, group: &mut Group) -> usize {
    for call in 0..CALLS {
        if group.uses_switches() {
            assert_eq!(group.fallback(), None);
            return call;
        }
        check(context, group, 4_096, call as u64).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("rank {}: {:?}", group.rank(), group.fallback());
}

/// Ends a spine as when its power goes: its links lose their carrier, too.
fn end(rig: &Rig, spine: &str) {
    for leaf in ["leaf1", "leaf2"] {
        let down = ["ip", "link", "set", leaf, "down"];
        rig.lab.host(spine).run(down).unwrap().expect_ok();
    }
    rig.lab.stop(spine).unwrap();
}

/// SW-42, HT-50: one of two spines dies in the middle of a vector, and stays dead: all have the
/// exact result, between the hosts. A group that forms then has it, too. When the first spine is
/// left, a group comes back with that as its only tree.
#[test]
fn a_dead_spine_changes_no_result() {
    if !privileged() {
        return;
    }
    for (name, spine) in [("gdead1", "spine1"), ("gdead2", "spine2")] {
        let rig = Rig::new(name, [2, 2, 4]);
        let fallback = disturbed(&rig, || end(&rig, spine));
        assert_eq!(fallback.reason, FailureReason::ParentLost, "{spine}");
        let member = |context: Context, mut group: Group| {
            check(&context, &mut group, 100_000, 1).unwrap();
            let fallback = group.fallback().expect("a spine is dead");
            assert_eq!(fallback.reason, FailureReason::ParentLost, "{spine}");
            for seed in 2..10 {
                check(&context, &mut group, 1 << 20, seed).unwrap();
            }
            if spine == "spine2" {
                comes_back(&context, &mut group);
                check(&context, &mut group, 1 << 20, 11).unwrap();
            }
            group.barrier().unwrap();
        };
        let begun = Instant::now();
        rig.group(SIZE, member, || {});
        println!(
            "{spine} is dead: a group was done after {:?}",
            begun.elapsed()
        );
    }
}

/// HT-50, SW-42: the leaf of two members, and the spine, is started anew again and again: the group
/// goes on between the hosts, comes back to the switches each time, and all results are exact.
#[test]
fn a_group_comes_back_to_the_switches() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gback", [2, 1, 4]);
    let member = |context: Context, mut group: Group| {
        check(&context, &mut group, 100_000, 1).unwrap();
        for node in ["leaf1", "spine1", "leaf2"] {
            assert!(group.uses_switches(), "{node}: {:?}", group.fallback());
            group.barrier().unwrap();
            if group.rank() == 0 {
                rig.lab.kill(node).unwrap();
                rig.lab.wait_ready(Duration::from_secs(60)).unwrap();
            }
            // The first one learns that the job is unknown, in the middle of its vector or before.
            let mut seed = 0;
            while group.uses_switches() {
                check(&context, &mut group, 1 << 20, seed).unwrap();
                seed += 1;
            }
            let begun = Instant::now();
            let calls = comes_back(&context, &mut group);
            if group.rank() == 0 {
                println!("{node}: back after {calls} calls, {:?}", begun.elapsed());
            }
            check(&context, &mut group, 1 << 20, 77).unwrap();
        }
        assert!(group.uses_switches());
        group.barrier().unwrap();
    };
    rig.group(SIZE, member, || {});
    for switch in rig.switches() {
        assert_eq!(rig.running(switch), None, "{switch}");
    }
}
