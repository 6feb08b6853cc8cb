//! Which ends of a job its faults explain: without faults all members have all results, and members
//! that have not are told the same (SW-42).

use super::{Job, Seating};
use crate::app::MemberEnd;
use crate::fault::{Fault, Trouble};
use crate::network::NodeId;
use common::wire::compute::Reason;
use hostd::verbs::EndReason;

/// What switches or hosts say when one of them has died.
const BY_SWITCH: [EndReason; 6] = [
    EndReason::SwitchLost,
    EndReason::NoAnswer,
    EndReason::Told(Reason::UnknownJob),
    EndReason::Told(Reason::ParentLost),
    EndReason::Told(Reason::MemberLost),
    EndReason::Told(Reason::MemberMissing),
];

/// What members of a leaf were told: the leaf, the reason and who is to blame.
type Told = (NodeId, EndReason, Option<u16>);

/// Whether one leaf has lost a member of its own while the job formed, and so has not joined the
/// switches above: they miss the leaf, and tell the members of the other that somebody is missing,
/// but do not know who.
fn is_apart(one: &Told, other: &Told, seating: &Seating) -> bool {
    let lost = |it: &Told| {
        let own = it.2.and_then(|world| seating.leaf(world)) == Some(it.0);
        it.1 == EndReason::Told(Reason::MemberLost) && own
    };
    let misses = |it: &Told| (it.1, it.2) == (EndReason::Told(Reason::MemberMissing), None);
    one.0 != other.0 && (lost(one) && misses(other) || misses(one) && lost(other))
}

/// The nodes that died, and whether something else can keep members apart.
fn lost(troubles: &[Trouble]) -> (Vec<NodeId>, bool) {
    let dead = troubles.iter().filter_map(|trouble| match trouble.fault {
        Fault::Crash(node) => Some(node),
        _ => None,
    });
    let cut = |trouble: &Trouble| match trouble.fault {
        Fault::LinkDown(_) => true,
        Fault::Impairment(_, impairment) => impairment.loss > 0.5,
        Fault::PfcStorm(..) => true,
        _ => false,
    };
    (dead.collect(), troubles.iter().any(cut))
}

/// Whether a job may have ended so, by world rank, after these troubles.
///
/// # Errors
/// Why not.
pub fn judge(
    job: &Job,
    seating: &Seating,
    ends: &[Option<MemberEnd>],
    troubles: &[Trouble],
) -> Result<(), String> {
    let (dead, is_cut) = lost(troubles);
    let switches = seating.leaves.iter().map(|it| it.0);
    let mut switches = switches.chain(seating.spines.iter().copied());
    let by_switch = switches.any(|it| dead.contains(&it)) || is_cut;
    let dead_ranks: Vec<u16> = job
        .hosts
        .iter()
        .zip(0..)
        .filter(|it| dead.contains(it.0))
        .map(|it| it.1)
        .collect();
    let mut told: Vec<Told> = Vec::new();
    for (world, end) in (0..).zip(ends) {
        match end {
            None => return Err(format!("rank {world} was told nothing")),
            Some(MemberEnd::Died) if dead_ranks.contains(&world) => {}
            Some(MemberEnd::Died) => return Err(format!("rank {world} died of nothing")),
            Some(MemberEnd::Done) => {}
            Some(MemberEnd::Failed(number, blamed)) => {
                let reason = EndReason::of_number(*number);
                let reason = reason.ok_or_else(|| format!("reason {number} is none"))?;
                let is_lost = reason == EndReason::Told(Reason::MemberLost)
                    && blamed.is_some_and(|it| dead_ranks.contains(&it));
                // The switch does not know the world rank of one that has never joined.
                let never_came = blamed.is_none()
                    && reason == EndReason::Told(Reason::MemberMissing)
                    && !dead_ranks.is_empty();
                if !(is_lost || never_came || by_switch && BY_SWITCH.contains(&reason)) {
                    return Err(format!("rank {world} ended by {reason:?} of {blamed:?}"));
                }
                let leaf = seating.leaf(world).expect("a member");
                told.push((leaf, reason, *blamed));
            }
        }
    }
    // One leaf says one thing. So do all, if all live.
    for one in &told {
        let (leaf, reason, blamed) = one;
        let other = told.iter().find(|other| {
            let same = (&other.1, &other.2) == (reason, blamed);
            let may_differ = by_switch || is_apart(one, other, seating);
            !same && (!may_differ || (other.0 == *leaf && !dead.contains(leaf) && !is_cut))
        });
        if let Some(other) = other {
            return Err(format!(
                "some ended by {reason:?} of {blamed:?}, others by {:?} of {:?}",
                other.1, other.2
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;

    /// SW-42: an end that nothing explains is noticed, and one that differs from the others'.
    #[test]
    fn ends_have_causes_and_are_the_same() {
        let job = Job {
            name: "job".to_owned(),
            start: Span::ZERO,
            hosts: vec![NodeId(0), NodeId(1), NodeId(2)],
            trees: 0,
            slots: 1,
            payload: 8,
            deterministic: false,
            tasks: Vec::new(),
        };
        let seating = Seating {
            leaves: vec![(NodeId(3), vec![0, 1, 2])],
            spines: Vec::new(),
        };
        let crash = |node| Trouble {
            fault: Fault::Crash(NodeId(node)),
            from: Span::ZERO,
            until: Span::MAX,
        };
        let failed = |reason, world| {
            let reason = EndReason::Told(reason).number();
            Some(MemberEnd::Failed(reason, world))
        };
        let (done, died) = (Some(MemberEnd::Done), Some(MemberEnd::Died));
        let lost = failed(Reason::MemberLost, Some(1));
        let missing = failed(Reason::MemberMissing, None);
        let others = failed(Reason::MemberLost, Some(0));
        let gone = Some(MemberEnd::Failed(EndReason::SwitchLost.number(), None));
        let cases = [
            ([done, done, done], vec![], true),
            ([done, None, done], vec![], false),
            ([done, lost, done], vec![], false),
            ([done, died, done], vec![], false),
            ([lost, died, done], vec![crash(1)], true),
            ([others, died, lost], vec![crash(1)], false),
            (
                [lost, died, failed(Reason::MemberMissing, Some(1))],
                vec![crash(1)],
                false,
            ),
            ([lost, died, gone], vec![crash(1)], false),
            ([missing, died, missing], vec![crash(1)], true),
            ([missing, missing, missing], vec![], false),
            ([gone, gone, gone], vec![crash(3)], true),
            (
                [gone, failed(Reason::UnknownJob, None), done],
                vec![crash(3)],
                true,
            ),
            (
                [failed(Reason::Mismatch, Some(1)), done, done],
                vec![crash(3)],
                false,
            ),
        ];
        for (ends, troubles, is_fine) in cases {
            let judged = judge(&job, &seating, &ends, &troubles);
            assert_eq!(judged.is_ok(), is_fine, "{ends:?} {troubles:?}: {judged:?}");
        }
        // The first two at a leaf of their own.
        let seating = Seating {
            leaves: vec![(NodeId(3), vec![0, 1]), (NodeId(4), vec![2])],
            spines: vec![NodeId(5)],
        };
        let named = failed(Reason::MemberMissing, Some(1));
        let cases = [
            ([lost, died, missing], vec![crash(1)], true),
            ([missing, died, lost], vec![crash(1)], false),
            ([missing, died, missing], vec![crash(1)], true),
            ([lost, died, named], vec![crash(1)], false),
            ([lost, died, done], vec![crash(1)], true),
            ([lost, died, gone], vec![crash(1)], false),
        ];
        for (ends, troubles, is_fine) in cases {
            let judged = judge(&job, &seating, &ends, &troubles);
            assert_eq!(judged.is_ok(), is_fine, "{ends:?} {troubles:?}: {judged:?}");
        }
    }
}
