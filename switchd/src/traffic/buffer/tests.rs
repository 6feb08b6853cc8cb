use super::*;
use crate::tables::policy::{FlowControl, Limit, Regions};
use proptest::prelude::*;

const PORT: PortId = PortId(0);

/// One port whose group 3 is lossless, with this limit, and whose others are not.
fn policy(guaranteed: u32, limit: Limit, headroom: u32) -> Policy {
    let mut policy = Policy::plain(1, 1 << 20);
    policy.ports[0].flow_control = FlowControl::Pfc {
        send: 8,
        obey: 8,
        quanta: u16::MAX,
    };
    policy.ports[0].groups[3] = GroupPolicy {
        guaranteed,
        limit,
        headroom,
        xon: 10,
        xon_offset: 0,
    };
    policy.divide(1000, None).expect("it fits");
    policy
}

fn fill(ledger: &Ledger, policy: &Policy, group: u8, cells: u64) -> u64 {
    let mut packets = 0;
    while ledger.charge(policy, PORT, group, cells).is_ok() {
        packets += 1;
    }
    packets
}

/// SW-10, SW-31: guaranteed first, then service up to the limit, then headroom; the peer is to wait
/// exactly from the first packet that goes to headroom until usage is down to xon; the packet that
/// exceeds headroom is refused.
#[test]
fn a_lossless_group_fills_region_by_region() {
    let policy = policy(20, Limit::Static(80), 50);
    assert_eq!(
        policy.regions,
        Regions {
            service: 930,
            egress_service: 1000,
            headroom: 50
        }
    );
    let ledger = Ledger::new(1, 1);
    for packet in 0..100 {
        assert_eq!(
            ledger.charge(&policy, PORT, 3, 1),
            Ok(XoffChange::Same),
            "{packet}"
        );
    }
    assert_eq!(ledger.wanted(&policy, PORT), 0);
    assert_eq!(ledger.charge(&policy, PORT, 3, 1), Ok(XoffChange::Changed));
    assert_eq!((ledger.wanted(&policy, PORT), ledger.news(0)), (8, 1));
    ledger.clear_news(PORT);
    assert_eq!(ledger.news(0), 0);
    assert_eq!(fill(&ledger, &policy, 3, 1), 49);
    assert_eq!(
        ledger.charge(&policy, PORT, 3, 1),
        Err(DropReason::HeadroomFull.into())
    );
    let group = ledger.group(PORT, 3);
    assert_eq!((group.shared.now, group.headroom.now), (100, 50));
    for _ in 0..139 {
        assert_eq!(ledger.release(&policy, PORT, 3, 1), XoffChange::Same);
    }
    assert_eq!(ledger.wanted(&policy, PORT), 8);
    assert_eq!(ledger.release(&policy, PORT, 3, 1), XoffChange::Changed);
    assert_eq!(ledger.wanted(&policy, PORT), 0);
    assert_eq!(ledger.group(PORT, 3).shared.now, 10);
    assert_eq!(ledger.group(PORT, 3).headroom.peak, 50);
    ledger.clear_watermarks();
    assert_eq!(ledger.group(PORT, 3).headroom.peak, 0);
}

/// SW-10: what is guaranteed to one group cannot be used by another, however full the switch is.
#[test]
fn a_guarantee_is_kept() {
    let policy = policy(20, Limit::Static(80), 50);
    let ledger = Ledger::new(1, 1);
    assert_eq!(fill(&ledger, &policy, 0, 1), 930);
    assert_eq!(
        ledger.charge(&policy, PORT, 0, 1),
        Err(DropReason::IngressFull.into())
    );
    assert_eq!(fill(&ledger, &policy, 3, 1), 70, "guaranteed and headroom");
}

/// SW-10: with a dynamic threshold n groups that want all of it get αB / (1 + nα) each.
#[test]
fn dynamic_thresholds_share_fairly() {
    let mut policy = Policy::plain(1, 1 << 20);
    for (exponent, groups, share) in [
        (0, 1, 500),
        (0, 2, 333),
        (1, 3, 285),
        (-1, 1, 333),
        (3, 1, 888),
    ] {
        for group in &mut policy.ports[0].groups {
            group.limit = Limit::Dynamic(exponent);
        }
        policy.divide(1000, None).expect("it fits");
        let ledger = Ledger::new(1, 1);
        for _ in 0..1000 {
            for group in 0..groups {
                let _ = ledger.charge(&policy, PORT, group, 1);
            }
        }
        for group in 0..usize::from(groups) {
            let used = ledger.group(PORT, group).shared.now;
            assert!(
                used.abs_diff(share) <= 1,
                "2^{exponent}, {groups} groups: {used}"
            );
        }
    }
}

/// SW-10: a run of packets that leave at once lets the peer go on as if they had left one by one:
/// what the run itself gives back is free when it is compared with a dynamic threshold.
#[test]
fn a_run_of_packets_resumes_like_its_packets() {
    // 950 cells of service. Alone the group gets 8/9 of them before it pauses.
    let mut policy = policy(0, Limit::Dynamic(3), 50);
    policy.ports[0].groups[3].xon = 0;
    policy.ports[0].groups[3].xon_offset = 500;
    let left = |runs: &[u64]| {
        let ledger = Ledger::new(1, 1);
        while ledger.wanted(&policy, PORT) == 0 {
            ledger.charge(&policy, PORT, 3, 1).expect("headroom");
        }
        assert_eq!(ledger.group(PORT, 3).headroom.now, 1);
        let wishes: Vec<XoffChange> = runs
            .iter()
            .map(|cells| ledger.release(&policy, PORT, 3, *cells))
            .collect();
        (
            wishes.contains(&XoffChange::Changed),
            ledger.wanted(&policy, PORT),
        )
    };
    assert_eq!(left(&[1; 300]), (true, 0));
    assert_eq!(left(&[300]), (true, 0));
    assert_eq!(left(&[1]), (false, 8));
}

/// SW-10: headroom that all groups share ends for all together.
#[test]
fn a_headroom_pool_is_shared() {
    let mut policy = policy(0, Limit::Static(0), 50);
    policy.ports[0].groups[4] = policy.ports[0].groups[3];
    policy.divide(1000, Some(60)).expect("it fits");
    let ledger = Ledger::new(1, 1);
    assert_eq!(fill(&ledger, &policy, 3, 1), 50);
    assert_eq!(fill(&ledger, &policy, 4, 1), 10);
    assert_eq!(
        policy.divide(1000, Some(1001)),
        Err(crate::tables::policy::PolicyError::Exceeded {
            guaranteed: 0,
            headroom: 1001,
            cells: 1000
        })
    );
}

/// SW-10, SW-31: a group that others have left no headroom loses a packet, and its peer is to wait
/// from then on; it goes on when the group has room again. A group that holds nothing has nobody
/// wait: nothing would ever end that.
#[test]
fn a_group_without_headroom_pauses_its_peer() {
    let mut policy = policy(0, Limit::Static(0), 50);
    let rules = policy.ports[0].groups[3];
    for group in [4, 5] {
        policy.ports[0].groups[group] = GroupPolicy {
            limit: Limit::Static(20),
            ..rules
        };
    }
    for workers in [1, 2] {
        policy.divide(1000, Some(50)).expect("it fits");
        let ledger = Ledger::new(1, workers);
        assert_eq!(fill(&ledger, &policy, 3, 1), 50);
        ledger.clear_news(PORT);
        for _ in 0..20 {
            assert_eq!(ledger.charge(&policy, PORT, 4, 1), Ok(XoffChange::Same));
        }
        let lost = |xoff_change| {
            Err(Refused {
                reason: DropReason::HeadroomFull,
                xoff_change,
            })
        };
        assert_eq!(ledger.charge(&policy, PORT, 5, 21), lost(XoffChange::Same));
        assert_eq!((ledger.wanted(&policy, PORT), ledger.news(0)), (8, 0));
        assert_eq!(
            ledger.charge(&policy, PORT, 4, 1),
            lost(XoffChange::Changed)
        );
        assert_eq!((ledger.wanted(&policy, PORT), ledger.news(0)), (8 | 16, 1));
        assert_eq!(ledger.charge(&policy, PORT, 4, 1), lost(XoffChange::Same));
        assert_eq!(ledger.group(PORT, 4).shared.now, 20);
        for _ in 0..9 {
            assert_eq!(ledger.release(&policy, PORT, 4, 1), XoffChange::Same);
        }
        assert_eq!(ledger.release(&policy, PORT, 4, 1), XoffChange::Changed);
        assert_eq!(ledger.wanted(&policy, PORT), 8);
    }
}

proptest! {
    /// SW-10: whatever is charged, released and configured, usage is what is charged and not
    /// released, no region exceeds its size, and the buffer is empty when all packets have left.
    #[test]
    fn the_books_balance(
        ops in prop::collection::vec((0..8_u8, 1..18_u64, any::<bool>(), 0..60_u32), 1..300),
        exclusive: bool,
    ) {
        let ledger = Ledger::new(1, if exclusive { 1 } else { 2 });
        let mut rules = policy(20, Limit::Dynamic(0), 200);
        let mut inside: Vec<(u8, u64)> = Vec::new();
        for (group, cells, arrives, knob) in ops {
            if knob == 0 {
                rules = policy(u32::from(group), Limit::Static(u32::try_from(cells).expect("few")), 3 * u32::from(group));
            }
            if arrives {
                if ledger.charge(&rules, PORT, group, cells).is_ok() {
                    inside.push((group, cells));
                }
            } else if !inside.is_empty() {
                let (group, cells) = inside.swap_remove(knob as usize % inside.len());
                ledger.release(&rules, PORT, group, cells);
            }
            let sum: u64 = inside.iter().map(|(_, cells)| cells).sum();
            prop_assert_eq!(ledger.in_use(), sum);
            let [service, headroom, _] = ledger.regions();
            let parts: u64 = (0..8).map(|group| {
                let usage = ledger.group(PORT, group);
                usage.shared.now + usage.headroom.now
            }).sum();
            prop_assert_eq!(parts, sum);
            prop_assert!(service.now + headroom.now <= sum);
        }
        for (group, cells) in inside {
            ledger.release(&rules, PORT, group, cells);
        }
        prop_assert_eq!(ledger.in_use(), 0);
        prop_assert_eq!(ledger.regions().map(|usage| usage.now), [0; 3]);
        prop_assert_eq!(ledger.wanted(&rules, PORT), 0);
    }
}

/// SW-10: workers that charge and release at once lose no cell, and no peer is left waiting.
#[test]
fn many_workers_share_one_ledger() {
    let policy = policy(20, Limit::Static(30), 200);
    let ledger = Ledger::new(1, 4);
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (ledger, policy) = (&ledger, &policy);
            scope.spawn(move || {
                for turn in 0..20_000_u64 {
                    let cells = 1 + (turn + worker) % 17;
                    if ledger.charge(policy, PORT, 3, cells).is_ok() {
                        ledger.release(policy, PORT, 3, cells);
                    }
                }
            });
        }
    });
    assert_eq!(ledger.in_use(), 0);
    assert_eq!(ledger.regions().map(|usage| usage.now), [0; 3]);
    assert_eq!(ledger.wanted(&policy, PORT), 0);
}
