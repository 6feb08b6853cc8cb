use super::*;
use proptest::prelude::*;

fn members(keys: &[u64]) -> Vec<Member> {
    let member = |&key: &u64| Member {
        next_hop: NextHopId(u32::try_from(key).expect("small")),
        key,
        weight: 1,
    };
    keys.iter().map(member).collect()
}

fn moved(before: &Buckets, after: &Buckets) -> Vec<(NextHopId, NextHopId)> {
    let pairs = before.table().iter().zip(after.table());
    pairs
        .filter(|(old, new)| old != new)
        .map(|(old, new)| (*old, *new))
        .collect()
}

/// SW-3: when a member dies only its flows move, and its return restores every one of them.
#[test]
fn only_the_flows_of_a_dead_member_move() {
    let whole = Buckets::new(&members(&[1, 2, 3, 4]));
    let without = whole.changed(&members(&[1, 2, 4]));
    let moves = moved(&whole, &without);
    assert_eq!(moves.len(), BUCKETS / 4);
    assert!(moves.iter().all(|(old, _)| *old == NextHopId(3)));
    assert_eq!(
        without.changed(&members(&[1, 2, 3, 4])).table(),
        whole.table()
    );
    // Also when another dies meanwhile, and when nobody is left for a while.
    let one = without.changed(&members(&[1, 4])).changed(&[]);
    assert_eq!(one.pick(7), None);
    assert_eq!(one.changed(&members(&[1, 2, 3, 4])).table(), whole.table());
}

/// SW-3: a member that joins takes its share from the others, no more.
#[test]
fn a_new_member_takes_its_share() {
    let before = Buckets::new(&members(&[1, 2, 3]));
    let after = before.changed(&members(&[1, 2, 3, 9]));
    let moves = moved(&before, &after);
    assert_eq!(moves.len(), BUCKETS / 4);
    assert!(moves.iter().all(|(_, new)| *new == NextHopId(9)));
}

/// SW-3: what one set of buckets was made from another by continues it, also by way of others;
/// what was made of the same members otherwise does not.
#[test]
fn buckets_know_what_they_continue() {
    let whole = Buckets::new(&members(&[1, 2, 3, 4])).of_lineage(5);
    let few = whole.changed(&members(&[1, 2, 4]));
    let more = few.changed(&members(&[1, 2, 4, 9]));
    for (before, after) in [
        (&whole, &whole),
        (&whole, &few),
        (&few, &whole),
        (&few, &more),
    ] {
        assert!(after.continues(before));
    }
    assert!(
        more.continues(&whole),
        "a share for one that comes, of one that goes"
    );
    let fresh = Buckets::new(&members(&[1, 2, 4])).of_lineage(5);
    assert!(!fresh.continues(&whole));
    assert!(!few.clone().of_lineage(6).continues(&whole));
}

/// SW-3: weights.
#[test]
fn shares_follow_weights() {
    let mut pair = members(&[1, 2]);
    pair[1].weight = 3;
    let buckets = Buckets::new(&pair);
    let first = buckets.table().iter().filter(|id| id.0 == 1).count();
    assert!(first.abs_diff(BUCKETS / 4) <= 1, "{first}");
    pair[0].weight = 0;
    pair[1].weight = u16::MAX;
    assert!(Buckets::new(&pair).table().contains(&NextHopId(1)));
}

/// SW-4: those who choose by quality see each next hop that is alive once, with all its weight,
/// in an order that does not depend on that of the members.
#[test]
fn members_are_the_next_hops_that_are_alive() {
    let mut given = members(&[9, 2, 5]);
    given.push(Member {
        next_hop: NextHopId(2),
        key: 77,
        weight: 4,
    });
    given[2].weight = 0;
    let buckets = Buckets::new(&given);
    let seen = |buckets: &Buckets| -> Vec<(u32, u32)> {
        let live = buckets.members().iter();
        live.map(|live| (live.next_hop.0, live.weight)).collect()
    };
    assert_eq!(seen(&buckets), [(2, 5), (5, 1), (9, 1)]);
    given.reverse();
    assert_eq!(seen(&buckets.changed(&given)), [(2, 5), (5, 1), (9, 1)]);
    let without = buckets.changed(&members(&[5, 9]));
    assert_eq!(seen(&without), [(5, 1), (9, 1)]);
    assert!(without.contains(NextHopId(5)) && !without.contains(NextHopId(2)));
    assert_eq!(without.changed(&[]).members(), []);
}

proptest! {
    /// SW-3: whatever came before, each member has its share, and none that keeps buckets has
    /// given others away for them.
    #[test]
    fn any_history_keeps_the_shares(
        history in prop::collection::vec(prop::collection::btree_map(0_u64..40, 0_u16..9, 0..20), 1..12)
    ) {
        let mut buckets = Buckets::new(&[]);
        for alive in history {
            let now: Vec<Member> = alive.iter().map(|(&key, &weight)| Member {
                next_hop: NextHopId(u32::try_from(key).expect("small")), key, weight,
            }).collect();
            let before = std::mem::replace(&mut buckets, Buckets::new(&[]));
            buckets = before.changed(&now);
            prop_assert!(now.is_empty() || buckets.continues(&before), "moves in vain");
            prop_assert_eq!(buckets.table().len(), if now.is_empty() { 0 } else { BUCKETS });
            for (member, share) in now.iter().zip(shares(&now)) {
                let held = buckets.table().iter().filter(|id| **id == member.next_hop).count();
                prop_assert_eq!(held, share);
            }
        }
    }
}
