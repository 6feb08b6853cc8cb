use super::*;
use proptest::prelude::*;

const IDLE: Span = Span::from_secs(60);
const UNBALANCED: Span = Span::from_secs(300);

fn terms(buckets: u16, idle: Span, unbalanced: Span) -> Resilience {
    Resilience {
        buckets,
        idle,
        unbalanced,
    }
}

fn member(key: u32, weight: u16) -> Member {
    Member {
        next_hop: NextHopId(key),
        key: key.into(),
        weight,
    }
}

fn members(keys: &[u32]) -> Vec<Member> {
    keys.iter().map(|&key| member(key, 1)).collect()
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

/// A group whose members came before any packet did.
fn group(terms: Resilience, keys: &[u32]) -> Allotment {
    let mut group = Allotment::new(terms);
    group.set_members(&members(keys));
    assert_eq!((group.waiting(), group.deadline()), (0, None));
    group
}

fn seen(group: &Allotment) -> Resilient {
    group.snapshot(Buckets::new(&group.members))
}

/// By bucket: the member.
fn holders(group: &Allotment) -> Vec<u32> {
    seen(group).table().iter().map(|id| id.0).collect()
}

fn count(holders: &[u32], key: u32) -> usize {
    holders.iter().filter(|holder| **holder == key).count()
}

/// Packets of flows come to these buckets.
fn send(group: &Allotment, buckets: impl IntoIterator<Item = u32>, now: Time) {
    let group = seen(group);
    for bucket in buckets {
        let hop = group.pick(bucket, now);
        assert_eq!(hop, Some(group.table()[bucket as usize]));
    }
}

/// SW-3: as many buckets as the kernel gives, to whom it gives them: the last that lacks one first
/// (`ip nexthop bucket show` of such groups).
#[test]
fn a_new_group_is_dealt_out_as_in_the_kernel() {
    let mut group = Allotment::new(terms(128, IDLE, UNBALANCED));
    group.set_members(&[member(1, 1), member(2, 2)]);
    let holders = holders(&group);
    assert_eq!((count(&holders, 1), count(&holders, 2)), (43, 85));
    assert!(
        holders[..85].iter().all(|&holder| holder == 2),
        "{holders:?}"
    );
    let share = |weights: &[u16], buckets| {
        let members = weights.iter().map(|&weight| member(1, weight));
        shares(&members.collect::<Vec<_>>(), buckets)
    };
    assert_eq!(share(&[1, 1, 1], 8), [3, 2, 3]);
    assert_eq!(share(&[1, 3], 7), [2, 5]);
    assert_eq!(share(&[1, 1, 1], 2), [1, 0, 1], "some may have none");
}

/// SW-3: a member that leaves loses its buckets at once, busy or not, and nobody else loses any.
#[test]
fn only_buckets_of_a_member_that_leaves_move() {
    let mut group = group(terms(128, IDLE, UNBALANCED), &[1, 2, 3, 4]);
    send(&group, 0..128, at(1));
    let before = holders(&group);
    group.set_members(&members(&[1, 2, 4]));
    let after = holders(&group);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before != after, *before == 3);
        assert_ne!(*after, 3);
    }
    assert_eq!(group.waiting(), 0);
    group.set_members(&[]);
    assert_eq!(seen(&group).pick(7, at(2)), None);
}

/// SW-3: a member that comes back gets buckets that were idle, and only when they have been for
/// `idle_timer`; busy ones after `unbalanced_timer`.
#[test]
fn a_member_that_comes_waits_for_buckets_to_be_idle() {
    let mut group = group(terms(128, IDLE, UNBALANCED), &[1, 2]);
    group.set_members(&members(&[1]));
    // No packet has come to the upper half: it moves at once. The others are busy.
    send(&group, 0..100, at(10));
    group.set_members(&members(&[1, 2]));
    let holders_now = holders(&group);
    assert!(holders_now[..100].iter().all(|&holder| holder == 1));
    assert!(holders_now[100..].iter().all(|&holder| holder == 2));
    assert_eq!(group.waiting(), 64 - 28);
    assert!(!group.upkeep(at(20)), "nothing has been idle for 60 s");
    assert_eq!(group.deadline(), Some(at(20) + UPKEEP));
    send(&group, 0..80, at(69));
    assert!(!group.upkeep(at(70)));
    assert!(group.upkeep(at(71)), "20 have");
    let holders_now = holders(&group);
    assert!(holders_now[80..].iter().all(|&holder| holder == 2));
    assert_eq!(count(&holders_now, 2), 48);
    assert_eq!(group.waiting(), 16);
    // Out of balance since it was first looked at, at 20 s.
    for now in 72..320 {
        send(&group, 0..80, at(now));
        assert!(!group.upkeep(at(now)), "{now}");
    }
    send(&group, 0..80, at(320));
    assert!(group.upkeep(at(320)));
    assert_eq!(count(&holders(&group), 2), 64);
    assert_eq!((group.waiting(), group.deadline()), (0, None));
}

/// SW-3: a bucket that has moved counts as idle until a packet comes to it, however busy it was
/// before (`nh_res_bucket_set_idle`): a member that comes may have it at once.
#[test]
fn a_bucket_that_moved_is_idle() {
    let mut group = group(terms(128, IDLE, UNBALANCED), &[1, 2]);
    let before = holders(&group);
    send(&group, 0..128, at(1));
    group.set_members(&members(&[1]));
    assert_eq!(count(&holders(&group), 1), 128);
    group.set_members(&members(&[1, 3]));
    let wanted: Vec<u32> = before
        .iter()
        .map(|it| if *it == 2 { 3 } else { 1 })
        .collect();
    assert_eq!(holders(&group), wanted);
    assert_eq!((group.waiting(), group.deadline()), (0, None));
}

/// SW-3: with the kernel's own timers busy buckets stay for ever; with an idle timer of 0 none is
/// busy.
#[test]
fn a_timer_of_zero_is_never_or_at_once() {
    let back = |group: &mut Allotment| {
        group.set_members(&members(&[1]));
        send(group, 0..128, at(1));
        group.set_members(&members(&[1, 2]));
        assert_eq!(group.waiting(), 64);
    };
    let mut never = group(terms(128, Span::from_secs(120), Span::ZERO), &[1, 2]);
    back(&mut never);
    for now in (2..100_000).step_by(100) {
        send(&never, 0..128, at(now));
        assert!(!never.upkeep(at(now)));
    }
    // Until somebody changes the timers.
    never.set_timers(&terms(5, Span::ZERO, Span::ZERO));
    assert!(never.upkeep(at(100_000)));
    assert_eq!((never.waiting(), never.terms().buckets), (0, 128));
    let mut at_once = group(terms(128, Span::ZERO, Span::ZERO), &[1, 2]);
    back(&mut at_once);
    assert!(at_once.upkeep(at(1)));
    assert_eq!(at_once.waiting(), 0);
}

/// SW-3: a packet makes its bucket busy, however many came before; a bucket is noted once each few
/// milliseconds, and never taken for idle too early.
#[test]
fn the_last_packet_counts() {
    let activity = Activity::new(1);
    assert_eq!(activity.last(0), None);
    let mut now = Time::from_nanos(1);
    for step in 0..1000 {
        now += Span::from_micros(step);
        activity.note(0, now);
        let last = activity.last(0).expect("used");
        assert!(last >= now && last.since(now) <= NOTED_EACH, "{step}");
    }
    activity.forget(0);
    assert_eq!(activity.last(0), None);
}

#[derive(Clone, Debug)]
enum Op {
    Members(Vec<(u32, u16)>),
    Packets(Vec<u32>),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let members = prop::collection::btree_map(0_u32..6, 0_u16..5, 1..5)
        .prop_map(|members| Op::Members(members.into_iter().collect()));
    let packets = prop::collection::vec(0_u32..40, 0..40).prop_map(Op::Packets);
    let op = prop_oneof![members, packets, (0_u64..40).prop_map(Op::Pass)];
    prop::collection::vec(op, 1..60)
}

proptest! {
    /// SW-3: whatever happens, a bucket moves only when its member left, when it was idle, or when
    /// the group was out of balance for too long; and only while some member lacks buckets.
    #[test]
    fn buckets_move_only_for_a_reason(ops in ops()) {
        let (buckets, idle, unbalanced) = (40, Span::from_secs(20), Span::from_secs(90));
        let mut group = Allotment::new(terms(buckets, idle, unbalanced));
        let mut now = at(1);
        let mut last: Vec<Option<Time>> = vec![None; buckets.into()];
        let mut balanced_at = now;
        for op in ops {
            let before = holders(&group);
            let was_waiting = group.waiting() > 0;
            match op {
                Op::Members(list) => {
                    let list: Vec<Member> =
                        list.into_iter().map(|(key, weight)| member(key, weight)).collect();
                    group.set_members(&list);
                }
                Op::Packets(buckets) => {
                    for &bucket in buckets.iter().filter(|_| !before.is_empty()) {
                        last[bucket as usize] = Some(now);
                    }
                    if !before.is_empty() {
                        send(&group, buckets, now);
                    }
                }
                Op::Pass(seconds) => {
                    now += Span::from_secs(seconds);
                    group.upkeep(now);
                }
            }
            let after = holders(&group);
            for (bucket, (old, new)) in before.iter().zip(&after).enumerate() {
                if old == new {
                    continue;
                }
                let has_left = !group.members.iter().any(|it| it.next_hop.0 == *old);
                let is_idle = last[bucket].is_none_or(|last| now.since(last) >= idle);
                let is_forced = was_waiting && now.since(balanced_at) >= unbalanced;
                prop_assert!(has_left || is_idle || is_forced, "bucket {}", bucket);
                last[bucket] = None;
            }
            if group.waiting() == 0 {
                balanced_at = now;
            }
            if !after.is_empty() {
                prop_assert_eq!(after.len(), usize::from(buckets));
                let all = shares(&group.members, buckets.into());
                let lacks = group.members.iter().zip(all)
                    .any(|(member, share)| count(&after, member.next_hop.0) < share);
                prop_assert_eq!(lacks, group.deadline().is_some());
            }
        }
    }
}
