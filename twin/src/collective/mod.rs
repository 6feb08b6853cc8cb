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
use hostd_client::abi::collective::{LEVELS_MAX, Level, Membership};
use std::collections::{BTreeSet, VecDeque};
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
    /// Switches above each leaf that share its chunks, if it has members at several leaves, and
    /// farther up as many of them as each switch there has above.
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
    /// The levels above that the job uses, the nearest first: none if all members are at one leaf,
    /// and of the last one there is one branch.
    pub above: Vec<Vec<Branch>>,
}

/// What joins the same switches of a level: leaves, or branches of the level below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The switches that share its chunks, by tree.
    pub switches: Vec<NodeId>,
    /// Places of what joins them in the level below, by rank.
    pub below: Vec<usize>,
    /// How many trees each switch below has here.
    pub trees: usize,
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

/// How far each node is above the hosts: they are at 0, the switches that have hosts at 1.
fn heights(plan: &Plan) -> Vec<usize> {
    let mut heights = vec![usize::MAX; plan.nodes.len()];
    heights[..plan.hosts].fill(0);
    let mut next: VecDeque<NodeId> = plan.host_ids().collect();
    while let Some(node) = next.pop_front() {
        for link in &plan.nodes[node.index()].ports {
            let across = plan.links[*link].across(node).node;
            if heights[across.index()] == usize::MAX {
                heights[across.index()] = heights[node.index()] + 1;
                next.push_back(across);
            }
        }
    }
    heights
}

/// Whether a switch has hosts.
pub fn is_leaf(plan: &Plan, switch: NodeId) -> bool {
    let mut links = plan.nodes[switch.index()].ports.iter();
    links.any(|link| plan.links[*link].across(switch).node.index() < plan.hosts)
}

/// The address from which a switch asks those above: that which its hosts ask it at, or if it has
/// none, that of its first link upwards. None if nothing is above.
pub fn own_address(plan: &Plan, switch: NodeId) -> Option<IpAddr> {
    let mut links = plan.nodes[switch.index()].ports.iter();
    let has_host = |link: &&usize| plan.links[**link].across(switch).node.index() < plan.hosts;
    let of = |link: usize| plan.links[link].address(switch);
    let upwards = || Some(parents(plan, switch).first()?.1);
    match links.find(has_host) {
        Some(link) => Some(of(*link)),
        None => upwards().map(|port| of(plan.nodes[switch.index()].ports[usize::from(port)])),
    }
}

/// The neighbours of a switch that are so much farther from the hosts, or nearer to them, with the
/// port that each is behind and the address that it is asked at.
fn beside(plan: &Plan, switch: NodeId, height: usize) -> Vec<(NodeId, u16, IpAddr)> {
    let heights = heights(plan);
    let links = plan.nodes[switch.index()].ports.iter().zip(0..);
    let found = links.filter_map(|(link, port)| {
        let link = &plan.links[*link];
        let node = link.across(switch).node;
        (heights[node.index()] == height).then_some((node, port, link.address(node)))
    });
    found.collect()
}

/// The switches above one: those neighbours that are farther from the hosts.
pub fn parents(plan: &Plan, switch: NodeId) -> Vec<(NodeId, u16, IpAddr)> {
    beside(plan, switch, heights(plan)[switch.index()] + 1)
}

/// The way to each of the switches below one that have no hosts: the address from which it asks,
/// the port that it is behind, and its address there.
pub fn children(plan: &Plan, switch: NodeId) -> Vec<(IpAddr, u16, IpAddr)> {
    let below = heights(plan)[switch.index()].saturating_sub(1);
    let all = beside(plan, switch, below).into_iter();
    let asks = |(node, port, gateway): (NodeId, u16, IpAddr)| {
        let is_switch = node.index() >= plan.hosts && !is_leaf(plan, node);
        Some((own_address(plan, node)?, port, gateway)).filter(|_| is_switch)
    };
    all.filter_map(asks).collect()
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
        if most > RANKS {
            return Err(format!("a switch takes {RANKS} members at most"));
        }
        let mut above = Vec::new();
        let leaf = |leaf: &(NodeId, Vec<u16>)| vec![leaf.0];
        let mut below: Vec<Vec<NodeId>> = leaves.iter().map(leaf).collect();
        while below.len() > 1 {
            let branches = self.branches(plan, &below);
            let level = branches.filter(|_| above.len() < LEVELS_MAX).ok_or_else(|| {
                let trees = self.trees.max(1);
                format!(
                    "its members are at {} switches, which do not have {trees} switches above in \
                     common",
                    leaves.len()
                )
            })?;
            if level.iter().any(|branch| branch.below.len() > RANKS) {
                return Err(format!("a switch takes {RANKS} members at most"));
            }
            below = level.iter().map(|it| it.switches.clone()).collect();
            above.push(level);
        }
        Ok(Seating { leaves, above })
    }

    /// The branches of the level above these, each of which has one switch for each tree. At the
    /// level above leaves they have `trees` switches, farther up as many of them as there are.
    fn branches(&self, plan: &Plan, below: &[Vec<NodeId>]) -> Option<Vec<Branch>> {
        let trees = usize::from(self.trees);
        let mut branches: Vec<Branch> = Vec::new();
        for (place, switches) in below.iter().enumerate() {
            let above = |switch: &NodeId| {
                let all = parents(plan, *switch).into_iter().map(|it| it.0);
                all.take(trees).collect::<Vec<_>>()
            };
            let each: Vec<Vec<NodeId>> = switches.iter().map(above).collect();
            let count = each[0].len();
            let all = each.concat();
            // A switch has one place for each rank, so no two trees may meet in it.
            let is_apart = all.iter().collect::<BTreeSet<_>>().len() == all.len();
            let is_enough = count > 0 && (count == trees || !is_leaf(plan, switches[0]));
            if !is_apart || !is_enough || each.iter().any(|it| it.len() != count) {
                return None;
            }
            match branches.iter_mut().find(|it| it.switches == all) {
                Some(branch) => branch.below.push(place),
                None => branches.push(Branch {
                    switches: all,
                    below: vec![place],
                    trees: count,
                }),
            }
        }
        // What is shared in part only cannot be told apart by ranks.
        let all: Vec<_> = branches.iter().flat_map(|it| &it.switches).collect();
        let is_apart = all.iter().collect::<BTreeSet<_>>().len() == all.len();
        is_apart.then_some(branches)
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
        let mut levels = Vec::new();
        let mut place = leaf;
        for branches in &self.above {
            let is_in = |branch: &Branch| branch.below.iter().position(|it| *it == place);
            let mut all = branches.iter().enumerate();
            let found = all.find_map(|(number, branch)| Some((number, branch, is_in(branch)?)));
            let (number, branch, rank) = found.expect("all are in a branch");
            levels.push(Level {
                rank: small(rank),
                size: small(branch.below.len()),
                trees: small(branch.trees),
                first: 0,
            });
            place = number;
        }
        membership.with_levels(&levels).expect("few levels")
    }

    /// Levels of switches.
    pub fn levels(&self) -> usize {
        1 + self.above.len()
    }

    /// Switches above a leaf that share its chunks; none with one level.
    pub fn trees(&self) -> usize {
        self.above.first().map_or(0, |level| level[0].trees)
    }

    /// The switches above the leaves.
    pub fn upper(&self) -> impl Iterator<Item = NodeId> {
        let branches = self.above.iter().flatten();
        branches.flat_map(|branch| branch.switches.iter().copied())
    }

    /// The branch of a leaf at a level, from one on; its own place at zero.
    fn branch(&self, leaf: NodeId, level: usize) -> Option<usize> {
        let mut place = self.leaves.iter().position(|it| it.0 == leaf)?;
        for branches in &self.above[..level] {
            place = branches.iter().position(|it| it.below.contains(&place))?;
        }
        Some(place)
    }

    /// The lowest level at which two leaves have something in common: zero if they are the same.
    pub fn apart(&self, one: NodeId, other: NodeId) -> usize {
        let mut levels = 0..self.levels();
        let meet = levels.find(|level| self.branch(one, *level) == self.branch(other, *level));
        meet.unwrap_or_else(|| self.levels())
    }

    /// The leaf of a world rank.
    pub fn leaf(&self, world: u16) -> Option<NodeId> {
        let mut leaves = self.leaves.iter();
        leaves.find(|it| it.1.contains(&world)).map(|it| it.0)
    }
}
