//! Jobs whose collectives the switches compute (SW-40, HT-50).
//!
//! ```text
//!   Job ─▶ Seating: which leaf each member asks, and who it is there
//!    │
//!    └──▶ Ledger: what has come to each member, beside what must come
//!           values   the vectors of members, and what may come of them
//!   judge    which ends of a job its faults explain;  figures  what came of it
//!   soak     random jobs
//! ```
//!
//! Switches run switchd's engine, hosts hostd's member: here is only what the applications do. They
//! post all collectives of a job at once, as an asynchronous library does.

pub mod figures;
pub mod judge;
pub mod ledger;
pub mod soak;
pub mod values;

use super::network::{NodeId, Plan};
use common::time::Span;
use common::wire::compute::Work;
use hostd_client::abi::collective::{Level, Membership};
use std::net::IpAddr;

/// A collective of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is done.
    pub work: Work,
    /// Bytes of the vector.
    pub len: u32,
    /// World rank of the root, for those that have one.
    pub root: u16,
}

impl Task {
    /// Whether a member has a vector.
    pub fn gives(&self, world: u16) -> bool {
        match self.work {
            Work::Allreduce(..) | Work::Reduce(..) => true,
            Work::Broadcast => world == self.root,
            Work::Barrier => false,
        }
    }

    /// Whether something comes to a member.
    pub fn gets(&self, world: u16) -> bool {
        match self.work {
            Work::Allreduce(..) => true,
            Work::Reduce(..) => world == self.root,
            Work::Broadcast => world != self.root,
            Work::Barrier => false,
        }
    }

    /// Whether a member is the root of a collective that has one.
    pub fn is_root(&self, world: u16) -> bool {
        matches!(self.work, Work::Reduce(..) | Work::Broadcast) && world == self.root
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it is called in results.
    pub name: String,
    /// When its members join, after the workload began.
    pub start: Span,
    /// The hosts of its members, by world rank. A host may have several.
    pub hosts: Vec<NodeId>,
    /// Spines that share its chunks, if it has members at several leaves.
    pub trees: u16,
    /// Slots that it asks for.
    pub slots: u16,
    /// Bytes of a chunk that it asks for.
    pub payload: u16,
    /// Sums of floats have the same bits each time.
    pub deterministic: bool,
    /// What it does, in this order.
    pub tasks: Vec<Task>,
}

/// Where the members of a job are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seating {
    /// The leaves, each with the world ranks of its members in the order of their ranks there.
    pub leaves: Vec<(NodeId, Vec<u16>)>,
    /// The switches above that the job uses: none if all members are at one leaf.
    pub spines: Vec<NodeId>,
}

/// The switch that a host asks.
pub fn leaf_of(plan: &Plan, host: NodeId) -> NodeId {
    let link = plan.nodes[host.index()].ports[0];
    plan.links[link].across(host).node
}

/// The address at which a host asks its leaf.
pub fn leaf_address(plan: &Plan, host: NodeId) -> IpAddr {
    let link = plan.nodes[host.index()].ports[0];
    plan.links[link].address(leaf_of(plan, host))
}

/// The address from which a switch asks those above, if it has hosts: that which its hosts ask it
/// at.
pub fn own_address(plan: &Plan, switch: NodeId) -> Option<IpAddr> {
    let mut links = plan.nodes[switch.index()].ports.iter();
    let link = links.find(|link| plan.links[**link].across(switch).node.index() < plan.hosts)?;
    Some(plan.links[*link].address(switch))
}

/// The switches above one that has hosts, with the port that each is behind and the address that it
/// is asked at: those neighbours that have none.
pub fn parents(plan: &Plan, switch: NodeId) -> Vec<(NodeId, u16, IpAddr)> {
    if own_address(plan, switch).is_none() {
        return Vec::new();
    }
    let links = plan.nodes[switch.index()].ports.iter().zip(0..);
    let above = links.filter_map(|(link, port)| {
        let link = &plan.links[*link];
        let node = link.across(switch).node;
        let is_above = node.index() >= plan.hosts && own_address(plan, node).is_none();
        is_above.then(|| (node, port, link.address(node)))
    });
    above.collect()
}

/// Most members of a job at a switch, and most switches below one.
pub const RANKS: usize = common::wire::compute::RANKS;

impl Job {
    /// Where its members sit in a fabric.
    ///
    /// # Errors
    /// Why there can be no such job in it.
    pub fn seating(&self, plan: &Plan) -> Result<Seating, String> {
        let mut leaves: Vec<(NodeId, Vec<u16>)> = Vec::new();
        for (host, world) in self.hosts.iter().zip(0..) {
            let leaf = leaf_of(plan, *host);
            if leaf.index() < plan.hosts {
                return Err("its hosts have no switch".to_owned());
            }
            match leaves.iter_mut().find(|it| it.0 == leaf) {
                Some((_, members)) => members.push(world),
                None => leaves.push((leaf, vec![world])),
            }
        }
        let most = leaves.iter().map(|it| it.1.len()).max().unwrap_or(0);
        if most > RANKS || leaves.len() > RANKS {
            return Err(format!("a switch takes {RANKS} members at most"));
        }
        if leaves.len() < 2 {
            let spines = Vec::new();
            return Ok(Seating { leaves, spines });
        }
        let above = |leaf: NodeId| {
            let all = parents(plan, leaf).into_iter().map(|it| it.0);
            all.take(self.trees.into()).collect::<Vec<_>>()
        };
        let spines = above(leaves[0].0);
        let same = leaves.iter().all(|it| above(it.0) == spines);
        if self.trees == 0 || spines.len() < usize::from(self.trees) || !same {
            let count = leaves.len();
            return Err(format!(
                "its members are at {count} switches, which do not have {} switches above in common",
                self.trees.max(1)
            ));
        }
        Ok(Seating { leaves, spines })
    }
}

impl Seating {
    /// What the member of a world rank asks for.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn membership(&self, job: &Job, number: u32, world: u16) -> Membership {
        let is_there = |members: &[u16]| members.iter().position(|it| *it == world);
        let mut leaves = self.leaves.iter().enumerate();
        let found = leaves.find_map(|(leaf, (_, members))| Some((leaf, is_there(members)?)));
        let (leaf, rank) = found.expect("a member of the job");
        let small = |number: usize| u16::try_from(number).expect("few");
        let mut of_tasks = (0, 0);
        for task in &job.tasks {
            if let Work::Allreduce(operation, element) | Work::Reduce(operation, element) =
                task.work
            {
                of_tasks.0 |= operation.bit();
                of_tasks.1 |= element.bit();
            }
        }
        let membership = Membership {
            world,
            slots: job.slots,
            payload: job.payload,
            operations: of_tasks.0,
            elements: of_tasks.1,
            deterministic: job.deterministic,
            ..Membership::new(number, 1, small(rank), small(self.leaves[leaf].1.len()))
        };
        let above = Level {
            rank: small(leaf),
            size: small(self.leaves.len()),
            trees: small(self.spines.len()),
            first: 0,
        };
        let levels = [above];
        let levels = &levels[..usize::from(!self.spines.is_empty())];
        membership.with_levels(levels).expect("one level above")
    }

    /// Levels of switches.
    pub fn levels(&self) -> usize {
        1 + usize::from(!self.spines.is_empty())
    }

    /// The leaf of a world rank.
    pub fn leaf(&self, world: u16) -> Option<NodeId> {
        let mut leaves = self.leaves.iter();
        leaves.find(|it| it.1.contains(&world)).map(|it| it.0)
    }
}
