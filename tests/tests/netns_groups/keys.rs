//! Messages that are sealed with the key of their job.

use std::sync::atomic::{AtomicUsize, Ordering};

use hostd_client::Context;
use hostd_client::group::{FailureReason, Group};
use lab::observe::drops;
use lab::privileged;

use crate::rig::{AtEnd, Rig, check, told_by_root};

/// A laboratory of two leaves, a spine and four hosts whose daemons have a secret: all have the
/// same, but for the last host, which has the one that is given. All ask by IPv6 if told so.
fn sealed(name: &str, last: char, v6: bool) -> Rig {
    let rig = Rig::new(name, [2, 1, 4]);
    for switch in rig.switches() {
        rig.give_secret(switch, 'a', v6);
    }
    for host in ["h1", "h2", "h3"] {
        rig.give_secret(host, 'a', v6);
    }
    rig.give_secret("h4", last, v6);
    rig
}

/// Packets that a node has lost because they had not the tag of their job.
fn untagged(rig: &Rig, node: &str) -> u64 {
    let lost = drops(&rig.lab).unwrap();
    let tag = |reason: &str| reason == "compute_tag" || reason == "collective_wrong_key";
    let of_node = lost
        .iter()
        .filter(|((at, reason), _)| at == node && tag(reason));
    of_node.map(|(_, packets)| packets).sum()
}

/// SW-42, HT-50: hosts and switches with a secret seal what they say for a group, which has exact
/// results through two levels, by IPv4 and by IPv6; none of them refuses what another one has
/// sealed.
#[test]
fn a_group_with_keys_goes_through_the_switches() {
    if privileged() {
        goes_through_the_switches(false);
        goes_through_the_switches(true);
    }
}

fn goes_through_the_switches(v6: bool) {
    let rig = sealed(if v6 { "gkeys6" } else { "gkeys" }, 'a', v6);
    let member = |context: Context, mut group: Group| {
        for (seed, len) in [4, 1_400, 1_404, 100_000, 1 << 20].into_iter().enumerate() {
            check(&context, &mut group, len, seed as u64).unwrap();
        }
        group.barrier().unwrap();
        assert!(group.uses_switches(), "{:?}", group.fallback());
    };
    rig.group_at(rig.root_by(v6), 4, member, || {});
    for switch in rig.switches() {
        let added = rig.metric(switch, "switchd_compute_contributions_total");
        // Of two members each, all chunks of all vectors.
        let least = 2 * (100_000 + (1 << 20)) / 1_400;
        assert!(added > least, "{switch} has added {added} vectors");
        assert_eq!(untagged(&rig, switch), 0, "{switch}");
    }
    for host in rig.lab.hosts() {
        assert!(rig.metric(host, "hostd_collective_messages_total") > 0);
        assert_eq!(untagged(&rig, host), 0, "{host}");
        assert!(!rig.has_fallen_back(host), "{host}");
    }
}

/// SW-42, HT-50: what a host with another secret says is lost at its leaf, and counted. A group
/// with a member there has exact results between the hosts, and all of its members say why, and
/// because of which rank. Another group of the same leaves stays with the switches.
#[test]
fn a_host_with_another_key_is_left_out() {
    if privileged() {
        leaves_another_key_out(false);
        leaves_another_key_out(true);
    }
}

fn leaves_another_key_out(v6: bool) {
    let rig = sealed(if v6 { "gkeyodd6" } else { "gkeyodd" }, 'b', v6);
    let over = AtomicUsize::new(0);
    let unharmed = |context: Context, mut group: Group| {
        let mut rounds = 0;
        loop {
            // Rank 0 says whether it was the last one: all do the same number of rounds.
            let last = told_by_root(&context, &mut group, over.load(Ordering::Relaxed) == 1);
            check(&context, &mut group, 10_000, rounds).unwrap();
            assert!(group.uses_switches(), "{:?}", group.fallback());
            rounds += 1;
            if last {
                return;
            }
        }
    };
    let refused = |context: Context, mut group: Group| {
        for seed in 0..3 {
            check(&context, &mut group, 100_000, seed).unwrap();
        }
        assert!(!group.uses_switches());
        group.fallback().expect("h4 has another secret")
    };
    rig.group_at(rig.root_by(v6), 3, unharmed, || {
        let _over = AtEnd(&over, 1);
        let fallbacks = rig.group_at(rig.root_by(v6), 4, refused, || {});
        println!("{}", fallbacks[0]);
        for fallback in fallbacks {
            assert_eq!((fallback.rank, fallback.done), (Some(3), 0), "{fallback}");
            let incomplete = [FailureReason::NoAnswer, FailureReason::MemberMissing];
            assert!(incomplete.contains(&fallback.reason), "{fallback}");
        }
    });
    assert!(untagged(&rig, "leaf2") > 0, "leaf2 has lost nothing");
    for node in ["leaf1", "spine1", "h1", "h2", "h3"] {
        assert_eq!(untagged(&rig, node), 0, "{node}");
    }
    for host in rig.lab.hosts() {
        assert!(rig.has_fallen_back(host), "{host} counts it");
    }
}
