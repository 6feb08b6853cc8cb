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

/// Whether the leaf of one has lost a member while the job formed, or a switch above both that was
/// told of it, and so has not joined those above: they miss it, and tell the members of the other
/// that somebody is missing, but do not know who.
fn is_apart(one: &Told, other: &Told, seating: &Seating) -> bool {
    let lost = |it: &Told| {
        let blamed = it.2.and_then(|world| seating.leaf(world));
        blamed.filter(|_| it.1 == EndReason::Told(Reason::MemberLost))
    };
    let misses = |it: &Told| (it.1, it.2) == (EndReason::Told(Reason::MemberMissing), None);
    let is_nearer = |near: &Told, far: &Told| {
        let blamed = lost(near).filter(|_| misses(far));
        blamed.is_some_and(|leaf| seating.apart(near.0, leaf) < seating.apart(far.0, leaf))
    };
    is_nearer(one, other) || is_nearer(other, one)
}

/// The switches of a job that have others above.
fn children(seating: &Seating) -> impl Iterator<Item = NodeId> {
    let leaves = seating.leaves.iter().map(|it| it.0);
    let below = seating.above.len().saturating_sub(1);
    let branches = seating.above[..below].iter().flatten();
    let upper = branches.flat_map(|branch| branch.switches.iter().copied());
    let all = leaves.chain(upper);
    all.filter(|_| !seating.above.is_empty())
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
    /// One of those died that has switches above it.
    has_child: bool,
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
            has_spine: seating.upper().any(|it| dead.contains(&it)),
            has_child: children(seating).any(|it| dead.contains(&it)),
            is_cut: troubles.iter().any(cut),
            dead,
        }
    }

    /// Whether the leaf of a member died.
    fn is_without_leaf(&self, world: u16) -> bool {
        let leaf = self.seating.leaf(world);
        leaf.is_some_and(|leaf| self.dead.contains(&leaf))
    }

    /// Whether a member may have been told so. Who is blamed has died; for a leaf that has nobody
    /// is, though the switches above it know one of its members.
    fn explains(&self, world: u16, reason: EndReason, blamed: Option<u16>) -> bool {
        if self.is_cut {
            return WHEN_CUT.contains(&reason);
        }
        match reason {
            EndReason::SwitchLost | EndReason::NoAnswer | EndReason::Told(Reason::UnknownJob) => {
                blamed.is_none() && self.is_without_leaf(world)
            }
            EndReason::Told(Reason::ParentLost) => blamed.is_none() && self.has_spine,
            EndReason::Told(Reason::MemberLost) => match blamed {
                Some(blamed) => self.ranks.contains(&blamed),
                // A switch above says so, also to members of that leaf if it was started anew while
                // they asked to be in.
                None => self.has_child,
            },
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
mod tests;
