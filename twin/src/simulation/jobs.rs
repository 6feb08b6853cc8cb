//! Jobs whose collectives the switches compute: their members join, and end.

use super::state::Simulation;
use crate::app::{MemberEnd, NewMember};
use crate::check::{Check, Failure};
use crate::collective::ledger::Part;
use crate::collective::{Job, judge};
use crate::fabric::Node;
use crate::network::NodeId;
use common::time::{Span, Time};

/// How long something of a job may remain after its last member has ended: switches that lost each
/// other find that out by their leases, a job that forms by its time.
const REMAINS: Span = Span::from_secs(20);

impl<const BYTES: bool> Simulation<BYTES> {
    /// The members of a job join, those whose hosts live.
    pub(super) fn start_job(&mut self, job: usize) -> Result<(), Failure> {
        let now = self.fabric.now();
        self.jobs[job].started = Some(now);
        let Job { hosts, .. } = self.scenario.jobs[job].clone();
        for (node, world) in hosts.into_iter().zip(0..) {
            if !self.fabric.host(node).is_running() {
                self.end_member(job, world, MemberEnd::Died);
                continue;
            }
            let it = &self.jobs[job];
            let planned = &self.scenario.jobs[job];
            let member = NewMember {
                job,
                membership: it.seating.membership(planned, it.number, world),
                part: Part::new(it.ledger.clone(), world),
            };
            let local = self.fabric.local(node);
            let joined = self.fabric.host(node).join(member, local);
            joined.map_err(|error| self.refused(node, &error.to_string()))?;
            self.fabric.rouse(node);
        }
        Ok(())
    }

    pub(super) fn end_member(&mut self, job: usize, world: u16, end: MemberEnd) {
        let now = self.fabric.now();
        let member = &mut self.jobs[job].members[usize::from(world)];
        if member.end.is_none() {
            member.end = Some((end, now));
            self.open -= 1;
        }
    }

    /// A host has died, and those members with it that had joined.
    pub(super) fn lose_members(&mut self, node: NodeId) {
        for job in 0..self.jobs.len() {
            if self.jobs[job].started.is_none() {
                continue;
            }
            let hosts = self.scenario.jobs[job].hosts.clone();
            for (_, world) in hosts.iter().zip(0..).filter(|(host, _)| **host == node) {
                self.end_member(job, world, MemberEnd::Died);
            }
        }
    }

    /// What is left of jobs in a switch or a host, in words.
    fn remains(&self) -> Option<(NodeId, String)> {
        let nodes = self.fabric.nodes.iter().zip(0..);
        let mut remains = nodes.filter_map(|(node, number)| match node {
            Node::Switch(switch) => {
                let stats = &switch.stats().compute;
                let [jobs, open, memory] =
                    [&stats.jobs, &stats.slots_open, &stats.memory].map(|it| it.get());
                let text = format!("{jobs} jobs, {open} slots, {memory} bytes are in use");
                (jobs + open + memory > 0).then_some((NodeId(number), text))
            }
            Node::Host(host) => {
                let members = host.worker()?.engine().members();
                let left: Vec<_> = members.map(|it| (it.job, it.rank, it.phase)).collect();
                let text = format!("members are left: {left:?}");
                (!left.is_empty()).then_some((NodeId(number), text))
            }
            Node::Tester(_) => None,
        });
        remains.next()
    }

    /// Whether something of a job is still to be cleared away.
    pub(super) fn has_remains(&self) -> bool {
        !self.jobs.is_empty() && self.remains().is_some()
    }

    /// How long the fabric may take until nothing of its jobs is left.
    pub(super) fn remains_until(&self) -> Time {
        let time = if self.jobs.is_empty() {
            Span::ZERO
        } else {
            REMAINS
        };
        self.fabric.now() + time
    }

    /// Checks at the end that each job brought what it had to, or said the same to all members, and
    /// that nothing is left of it.
    pub(super) fn check_jobs(&self) -> Result<(), Failure> {
        if let (false, Some((node, what))) = (self.jobs.is_empty(), self.remains()) {
            let name = &self.fabric.plan.nodes[node.index()].name;
            return Err(self.failed(Check::Remains, &[node], format!("{name}: {what}")));
        }
        for (job, running) in self.scenario.jobs.iter().zip(&self.jobs) {
            let ends: Vec<_> = running.members.iter().map(|it| it.end).collect();
            let ends: Vec<_> = ends.into_iter().map(|it| it.map(|it| it.0)).collect();
            let judged = judge::judge(job, &running.seating, &ends, &self.troubles);
            if let Err(what) = judged {
                let leaf = running.seating.leaves[0].0;
                let what = format!("{}: {what}: {ends:?}", job.name);
                return Err(self.failed(Check::Result, &[leaf], what));
            }
        }
        Ok(())
    }
}
