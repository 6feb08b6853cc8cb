//! The paths that packets can take from one host to another and back. A fault that is on none of
//! them does not excuse a connection without progress.

use super::fault::Fault;
use super::network::{Hop, LinkId, Node, NodeId, Plan};
use std::collections::BTreeSet;

/// A link that harms so large a part of its frames is no path.
const HOPELESS: f64 = 0.5;

/// All nodes and links on the paths between two hosts, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    nodes: BTreeSet<NodeId>,
    links: BTreeSet<LinkId>,
}

impl Paths {
    /// The paths that the planned routes allow between two hosts.
    pub fn between(plan: &Plan, one: NodeId, other: NodeId) -> Self {
        let mut paths = Self::default();
        paths.follow(plan, one, other);
        paths.follow(plan, other, one);
        paths
    }

    fn follow(&mut self, plan: &Plan, from: NodeId, to: NodeId) {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(node) = next.pop() {
            if !seen.insert(node) || node == to {
                continue;
            }
            for link in plan.links_towards(node, to) {
                self.links.insert(link);
                next.push(plan.links[link].across(node).node);
            }
        }
        self.nodes.extend(seen);
    }

    /// Whether a fault can cut one of them: a link that is pulled or loses nearly everything, or a
    /// daemon that dies, on the way or at its ends.
    pub fn may_be_cut_by(&self, fault: &Fault) -> bool {
        match fault {
            Fault::LinkDown(link) => self.links.contains(link),
            Fault::Crash(node) => self.nodes.contains(node),
            Fault::Impairment(link, impairment) => {
                let lost = impairment.loss.max(impairment.corruption);
                lost >= HOPELESS && self.links.contains(link)
            }
            Fault::SlowLink(..)
            | Fault::PfcStorm(..)
            | Fault::PathChanges(..)
            | Fault::Drift(..) => false,
        }
    }
}

impl Plan {
    /// The links by which a node sends packets to a host.
    pub fn links_towards(&self, node: NodeId, to: NodeId) -> Vec<LinkId> {
        let Node { ports, routes, .. } = &self.nodes[node.index()];
        if node.index() < self.hosts {
            return ports.clone();
        }
        let leads = |link: &LinkId| self.links[*link].across(node).node == to;
        let direct: Vec<_> = ports.iter().copied().filter(leads).collect();
        if !direct.is_empty() {
            return direct;
        }
        let address = self.address_of(to);
        let routes = routes.iter().filter(|(net, _)| net.contains(&address));
        let best = routes.max_by_key(|(net, _)| net.prefix_len());
        let links = |hops: &Vec<Hop>| {
            hops.iter()
                .map(|hop| ports[usize::from(hop.port)])
                .collect()
        };
        best.map_or(Vec::new(), |(_, hops)| links(hops))
    }

    /// Links by which the first switch can send what goes from one host to another.
    pub fn parallel_paths(&self, from: NodeId, to: NodeId) -> usize {
        let first = self.links[self.nodes[from.index()].ports[0]].across(from);
        self.links_towards(first.node, to).len().max(1)
    }

    /// The links of a path between two hosts, the first of those that are possible at each node;
    /// empty from a host to itself, and if there is none.
    pub fn path(&self, from: NodeId, to: NodeId) -> Vec<LinkId> {
        let mut path = Vec::new();
        let mut node = from;
        while node != to && path.len() <= self.nodes.len() {
            let Some(&link) = self.links_towards(node, to).first() else {
                return Vec::new();
            };
            path.push(link);
            node = self.links[link].across(node).node;
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_path_has_what_lies_on_it_and_nothing_else() {
        let text = "[topology]\nkind = \"leaf-spine\"\nleaves = 3\nspines = 2\nhosts_per_leaf = 2\n\
                    [[workload]]\nkind = \"permutation\"\nsize = \"1kB\"\n";
        let scenario = Scenario::parse(text, "test", &|_| Err(String::new())).expect("right");
        let plan = scenario.plan();
        let node = |name| plan.node_named(name).expect("there");
        let link = |a, b| plan.links_between(node(a), node(b)).next().expect("there");
        let paths = Paths::between(&plan, node("h1"), node("h3"));
        for name in ["h1", "leaf1", "spine1", "spine2", "leaf2", "h3"] {
            assert!(paths.may_be_cut_by(&Fault::Crash(node(name))), "{name}");
        }
        for name in ["h2", "h4", "h5", "leaf3"] {
            assert!(!paths.may_be_cut_by(&Fault::Crash(node(name))), "{name}");
        }
        assert!(paths.may_be_cut_by(&Fault::LinkDown(link("leaf2", "spine1"))));
        assert!(!paths.may_be_cut_by(&Fault::LinkDown(link("leaf3", "spine1"))));
        assert!(!paths.may_be_cut_by(&Fault::Drift(node("h1"), 3)));
    }
}
