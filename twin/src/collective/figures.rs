//! What came of jobs, in figures.

use super::Job;
use crate::app::MemberEnd;
use crate::fabric::{Fabric, Node};
use crate::network::{LinkId, NodeId};
use crate::simulation::running::Running;
use crate::totals::add;
use common::time::Time;
use hostd::verbs::EndReason;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobFigures {
    /// Its name.
    pub job: String,
    /// Its members, and the leaves that they are at.
    pub members: usize,
    /// See `members`.
    pub leaves: usize,
    /// Switches above the leaves that share its chunks.
    pub trees: usize,
    /// Its collectives, and the bytes of all their vectors.
    pub collectives: usize,
    /// See `collectives`.
    pub bytes: u64,
    /// Members that had all results, each of them right.
    pub done: usize,
    /// Members that were told why they had not, and those whose hosts died.
    pub failed: usize,
    /// See `failed`.
    pub died: usize,
    /// Why, as members were told; empty if nobody was.
    pub error: String,
    /// When its members joined, in nanoseconds after the workload began; none if they never did.
    pub start_ns: Option<u64>,
    /// From then until the last member was done, or was told.
    pub time_ns: Option<u64>,
}

/// What a member was told, in words.
fn told(reason: u16, world: Option<u16>) -> String {
    let label = EndReason::of_number(reason).map_or("unknown", EndReason::label);
    match world {
        Some(world) => format!("{label} (rank {world})"),
        None => label.to_owned(),
    }
}

impl JobFigures {
    /// Of a job that is over.
    pub(crate) fn of(job: &Job, running: &Running, began: Time) -> Self {
        let ends = || running.members.iter().filter_map(|it| it.end);
        let count = |which: fn(&MemberEnd) -> bool| ends().filter(|it| which(&it.0)).count();
        let errors: BTreeSet<String> = ends()
            .filter_map(|(end, _)| match end {
                MemberEnd::Failed(reason, world) => Some(told(reason, world)),
                MemberEnd::Done | MemberEnd::Died => None,
            })
            .collect();
        let lived = ends().filter(|it| it.0 != MemberEnd::Died);
        let last = lived.map(|it| it.1).max();
        Self {
            job: job.name.clone(),
            members: job.hosts.len(),
            leaves: running.seating.leaves.len(),
            trees: running.seating.trees(),
            collectives: job.tasks.len(),
            bytes: job.tasks.iter().map(|it| u64::from(it.len)).sum(),
            done: count(|end| *end == MemberEnd::Done),
            failed: count(|end| matches!(end, MemberEnd::Failed(..))),
            died: count(|end| *end == MemberEnd::Died),
            error: errors.into_iter().collect::<Vec<_>>().join(", "),
            start_ns: running.started.map(|at| at.since(began).nanos()),
            time_ns: running
                .started
                .zip(last)
                .map(|(from, to)| to.since(from).nanos()),
        }
    }

    /// Bits of its vectors in a second.
    pub fn bandwidth_bps(&self) -> Option<u64> {
        let bits = u128::from(self.bytes) * 8 * 1_000_000_000;
        let nanos = self.time_ns.filter(|_| self.done == self.members)?;
        u64::try_from(bits / u128::from(nanos.max(1))).ok()
    }
}

/// Sums of what switches and members count of jobs; empty without jobs.
pub(crate) fn sums<const BYTES: bool>(
    fabric: &Fabric<BYTES>,
    jobs: &[Running],
) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    if jobs.is_empty() {
        return sums;
    }
    for node in &fabric.nodes {
        match node {
            Node::Switch(switch) => {
                let stats = &switch.stats().compute;
                for (name, counter) in [
                    ("added", &stats.contributions),
                    ("came_twice", &stats.duplicates),
                    ("results_sent", &stats.results),
                    ("results_sent_again", &stats.served_again),
                    ("sent_up", &stats.sent_up),
                    ("sent_up_again", &stats.sent_up_again),
                ] {
                    add(&mut sums, name, counter.get());
                }
            }
            Node::Host(host) => {
                let own = host
                    .worker()
                    .map(|it| it.engine().statistics().collective.sums);
                let own = own.unwrap_or_default();
                add(&mut sums, "sent", own.contributions);
                add(&mut sums, "sent_again", own.retransmissions);
                add(&mut sums, "results", own.results);
            }
            Node::Tester(_) => {}
        }
    }
    let (mut of_leaves, mut farther_up) = (BTreeSet::new(), BTreeSet::new());
    for seating in jobs.iter().map(|it| &it.seating) {
        let leaf = |leaf: &(NodeId, Vec<u16>)| vec![leaf.0];
        let mut below: Vec<Vec<NodeId>> = seating.leaves.iter().map(leaf).collect();
        for (level, branches) in seating.above.iter().enumerate() {
            let uplinks = if level == 0 {
                &mut of_leaves
            } else {
                &mut farther_up
            };
            for branch in branches {
                let switches = branch.below.iter().flat_map(|place| &below[*place]);
                for (from, to) in
                    switches.flat_map(|it| branch.switches.iter().map(move |to| (*it, *to)))
                {
                    let links = fabric.plan.links_between(from, to);
                    uplinks.extend(links.map(|link| (link, from)));
                }
            }
            below = branches.iter().map(|it| it.switches.clone()).collect();
        }
    }
    let carried = |uplinks: BTreeSet<(LinkId, NodeId)>| {
        let wires = uplinks.into_iter().map(|(link, from)| {
            let wires = &fabric.wires[2 * link..2 * link + 2];
            let wire = wires.iter().find(|it| it.from.node == from);
            wire.map_or(0, |it| it.count.bytes)
        });
        wires.sum::<u64>()
    };
    add(&mut sums, "uplink_bytes", carried(of_leaves));
    add(&mut sums, "farther_up_bytes", carried(farther_up));
    sums
}
