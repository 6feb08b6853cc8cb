//! Which ends of a job its faults explain: without faults all members have all results, and members
//! that have not are told the same (SW-42).

use super::{Job, Seating};
use crate::app::MemberEnd;
use crate::fault::{Fault, Trouble};
use crate::network::NodeId;
use common::wire::compute::Reason;
use hostd::verbs::EndReason;

/// What switches or hosts say when something keeps them apart.
const WHEN_CUT: [EndReason; 6] = [
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

/// What the members of a job may have lost.
struct Lost<'a> {
    seating: &'a Seating,
    /// The nodes that died, and the world ranks of those of them that are members.
    dead: Vec<NodeId>,
    ranks: Vec<u16>,
    /// One of the leaves or of the switches above them died.
    has_leaf: bool,
    has_spine: bool,
    /// Something else can keep members apart.
    is_cut: bool,
}

impl<'a> Lost<'a> {
    fn new(job: &Job, seating: &'a Seating, troubles: &[Trouble]) -> Self {
        let dead = troubles.iter().filter_map(|trouble| match trouble.fault {
            Fault::Crash(node) => Some(node),
            _ => None,
        });
        let dead: Vec<NodeId> = dead.collect();
        let cut = |trouble: &Trouble| match trouble.fault {
            Fault::LinkDown(_) => true,
            Fault::Impairment(_, impairment) => impairment.loss > 0.5,
            Fault::PfcStorm(..) => true,
            _ => false,
        };
        let hosts = job.hosts.iter().zip(0..);
        let ranks = hosts.filter(|it| dead.contains(it.0)).map(|it| it.1);
        Self {
            seating,
            ranks: ranks.collect(),
            has_leaf: seating.leaves.iter().any(|it| dead.contains(&it.0)),
            has_spine: seating.spines.iter().any(|it| dead.contains(it)),
            is_cut: troubles.iter().any(cut),
            dead,
        }
    }

    /// Whether the leaf of a member died.
    fn is_without_leaf(&self, world: u16) -> bool {
        let leaf = self.seating.leaf(world);
        leaf.is_some_and(|leaf| self.dead.contains(&leaf))
    }

    /// Whether a member may have been told so. Who is blamed has died, or its leaf has, for which
    /// the switches above know one of its members.
    fn explains(&self, world: u16, reason: EndReason, blamed: Option<u16>) -> bool {
        if self.is_cut {
            return WHEN_CUT.contains(&reason);
        }
        let is_gone = |it: u16| self.ranks.contains(&it) || self.is_without_leaf(it);
        match reason {
            EndReason::SwitchLost | EndReason::NoAnswer | EndReason::Told(Reason::UnknownJob) => {
                blamed.is_none() && self.is_without_leaf(world)
            }
            EndReason::Told(Reason::ParentLost) => blamed.is_none() && self.has_spine,
            EndReason::Told(Reason::MemberLost) => blamed.is_some_and(is_gone),
            // The switch does not know the world rank of one that has never joined.
            EndReason::Told(Reason::MemberMissing) => {
                blamed.is_none() && (!self.ranks.is_empty() || self.has_leaf || self.has_spine)
            }
            _ => false,
        }
    }

    /// Whether members may have been told different things: never by one leaf that lives, and by
    /// two only if a switch above died, which each of them notices by itself.
    fn may_differ(&self, one: &Told, other: &Told) -> bool {
        let died = |leaf: &NodeId| self.dead.contains(leaf);
        let apart = if one.0 == other.0 {
            died(&one.0)
        } else {
            self.has_spine || died(&one.0) || died(&other.0) || is_apart(one, other, self.seating)
        };
        self.is_cut || apart
    }
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
    let lost = Lost::new(job, seating, troubles);
    let mut told: Vec<Told> = Vec::new();
    for (world, end) in (0..).zip(ends) {
        match end {
            None => return Err(format!("rank {world} was told nothing")),
            Some(MemberEnd::Died) if lost.ranks.contains(&world) => {}
            Some(MemberEnd::Died) => return Err(format!("rank {world} died of nothing")),
            Some(MemberEnd::Done) => {}
            Some(MemberEnd::Failed(number, blamed)) => {
                let reason = EndReason::of_number(*number);
                let reason = reason.ok_or_else(|| format!("reason {number} is none"))?;
                if !lost.explains(world, reason, *blamed) {
                    return Err(format!("rank {world} ended by {reason:?} of {blamed:?}"));
                }
                let leaf = seating.leaf(world).expect("a member");
                told.push((leaf, reason, *blamed));
            }
        }
    }
    for one in &told {
        let mut others = told.iter().filter(|it| (it.1, it.2) != (one.1, one.2));
        if let Some(other) = others.find(|other| !lost.may_differ(one, other)) {
            return Err(format!(
                "some ended by {:?} of {:?}, others by {:?} of {:?}",
                one.1, one.2, other.1, other.2
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;

    /// How members ended, which nodes died, and whether that is fine.
    type Case<const N: usize> = ([Option<MemberEnd>; N], &'static [u32], bool);

    const DONE: Option<MemberEnd> = Some(MemberEnd::Done);
    const DIED: Option<MemberEnd> = Some(MemberEnd::Died);

    fn ended(reason: EndReason, world: Option<u16>) -> Option<MemberEnd> {
        Some(MemberEnd::Failed(reason.number(), world))
    }

    fn failed(reason: Reason, world: Option<u16>) -> Option<MemberEnd> {
        ended(EndReason::Told(reason), world)
    }

    /// Judges each case of a job whose members have the hosts from zero on.
    fn check<const N: usize>(seating: &Seating, cases: &[Case<N>]) {
        let hosts = 0..u32::try_from(N).expect("few");
        let job = Job {
            name: "job".to_owned(),
            start: Span::ZERO,
            hosts: hosts.map(NodeId).collect(),
            trees: 0,
            slots: 1,
            payload: 8,
            deterministic: false,
            tasks: Vec::new(),
        };
        let crash = |node: &u32| Trouble {
            fault: Fault::Crash(NodeId(*node)),
            from: Span::ZERO,
            until: Span::MAX,
        };
        for (ends, dead, is_fine) in cases {
            let troubles: Vec<_> = dead.iter().map(crash).collect();
            let judged = judge(&job, seating, ends, &troubles);
            assert_eq!(judged.is_ok(), *is_fine, "{ends:?} {dead:?}: {judged:?}");
        }
    }

    /// SW-42: an end that nothing explains is noticed, and one that differs from the others'.
    #[test]
    fn ends_have_causes_and_are_the_same() {
        let seating = Seating {
            leaves: vec![(NodeId(3), vec![0, 1, 2])],
            spines: Vec::new(),
        };
        let lost = failed(Reason::MemberLost, Some(1));
        let missing = failed(Reason::MemberMissing, None);
        let named = failed(Reason::MemberMissing, Some(1));
        let others = failed(Reason::MemberLost, Some(0));
        let gone = ended(EndReason::SwitchLost, None);
        let silent = ended(EndReason::NoAnswer, None);
        let unknown = failed(Reason::UnknownJob, None);
        let parent = failed(Reason::ParentLost, None);
        let cases = [
            ([DONE, DONE, DONE], &[][..], true),
            ([DONE, None, DONE], &[], false),
            ([DONE, lost, DONE], &[], false),
            ([DONE, DIED, DONE], &[], false),
            ([lost, DIED, DONE], &[1], true),
            ([others, DIED, lost], &[1], false),
            ([lost, DIED, named], &[1], false),
            ([named, DIED, named], &[1], false),
            ([lost, DIED, gone], &[1], false),
            ([gone, DIED, gone], &[1], false),
            ([unknown, DIED, unknown], &[1], false),
            ([missing, DIED, missing], &[1], true),
            ([missing, missing, missing], &[], false),
            ([gone, gone, gone], &[3], true),
            ([gone, unknown, DONE], &[3], true),
            ([silent, missing, silent], &[3], true),
            // There is nothing above.
            ([parent, parent, parent], &[3], false),
            ([failed(Reason::Mismatch, Some(1)), DONE, DONE], &[3], false),
            ([failed(Reason::MemberLost, None), DONE, DONE], &[3], false),
        ];
        check(&seating, &cases);
        // The first two at a leaf of their own.
        let seating = Seating {
            leaves: vec![(NodeId(3), vec![0, 1]), (NodeId(4), vec![2])],
            spines: vec![NodeId(5)],
        };
        let cases = [
            ([lost, DIED, missing], &[1][..], true),
            ([missing, DIED, lost], &[1], false),
            ([missing, DIED, missing], &[1], true),
            ([lost, DIED, named], &[1], false),
            ([lost, DIED, DONE], &[1], true),
            ([lost, DIED, gone], &[1], false),
        ];
        check(&seating, &cases);
    }

    /// SW-42: when a switch has died members are told different things only where each notices it
    /// by itself, and nobody is blamed who lives and whose leaf does.
    #[test]
    fn dead_switches_explain_no_more_than_they_must() {
        // Leaves 6, 7 and 8 with two members each, and the spines 9 and 10.
        let seating = Seating {
            leaves: vec![
                (NodeId(6), vec![0, 1]),
                (NodeId(7), vec![2, 3]),
                (NodeId(8), vec![4, 5]),
            ],
            spines: vec![NodeId(9), NodeId(10)],
        };
        let [first, third] = [0, 4].map(|world| failed(Reason::MemberLost, Some(world)));
        let missing = failed(Reason::MemberMissing, None);
        let parent = failed(Reason::ParentLost, None);
        let named = failed(Reason::ParentLost, Some(0));
        let gone = ended(EndReason::SwitchLost, None);
        let silent = ended(EndReason::NoAnswer, None);
        let unknown = failed(Reason::UnknownJob, None);
        let cases = [
            // A leaf: what its own members hear is nobody's word.
            ([gone, unknown, first, first, first, first], &[6][..], true),
            (
                [silent, missing, missing, missing, missing, missing],
                &[6],
                true,
            ),
            ([gone, DONE, first, DONE, DONE, first], &[6], true),
            // One that lives says one thing, and what all that live say is the same.
            ([gone, gone, first, missing, first, first], &[6], false),
            ([gone, gone, first, first, missing, missing], &[6], false),
            // Nobody is blamed whose leaf lives, nor loses it.
            ([gone, gone, third, third, third, third], &[6], false),
            ([gone, gone, gone, gone, first, first], &[6], false),
            ([gone, gone, unknown, unknown, first, first], &[6], false),
            ([gone, gone, parent, parent, first, first], &[6], false),
            // A switch above: each leaf notices by itself, and all its members hear of it.
            ([parent, parent, parent, parent, parent, parent], &[9], true),
            (
                [parent, parent, missing, missing, parent, DONE],
                &[10],
                true,
            ),
            (
                [parent, missing, parent, parent, parent, parent],
                &[9],
                false,
            ),
            ([parent, parent, parent, parent, gone, gone], &[9], false),
            ([parent, parent, first, first, parent, parent], &[9], false),
            // Who noticed it is not to blame.
            ([parent, parent, named, named, parent, parent], &[9], false),
            // A switch that has no part in the job.
            (
                [parent, parent, parent, parent, parent, parent],
                &[11],
                false,
            ),
        ];
        check(&seating, &cases);
    }
}
