//! The topologies that scenarios name.
//!
//! ```text
//!   pair         two hosts on a link
//!   star         hosts around one switch
//!   dumbbell     hosts on two switches, one link between them
//!   leaf-spine   every leaf has a link to every spine
//!   fat-tree     k pods of k/2 edge and k/2 aggregation switches, (k/2)² core switches, k³/4 hosts
//!   planes       several leaf–spine fabrics beside each other; each host reaches all of them
//!                through a switch of its own, as a network card with several ports does
//!   multi-plane  the same, and hosts have a port for each plane: hostd chooses among them
//!   ring         switches in a circle, each with hosts; packets go round clockwise, so that
//!                buffers can wait for each other in a cycle
//! ```

use super::network::{LinkClass, NodeId, Plan};

/// A topology and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Two hosts on a link.
    Pair,
    /// Hosts around one switch.
    Star {
        /// Hosts.
        hosts: usize,
    },
    /// Half of the hosts on either side.
    Dumbbell {
        /// Hosts, on both sides together.
        hosts: usize,
    },
    /// Leaves and spines.
    LeafSpine {
        /// Leaf switches.
        leaves: usize,
        /// Spine switches.
        spines: usize,
        /// Hosts of each leaf.
        hosts_per_leaf: usize,
    },
    /// Three tiers of switches with `k` ports.
    FatTree {
        /// Ports of each switch: even.
        k: usize,
    },
    /// Parallel planes of leaves and spines.
    Planes {
        /// Planes.
        planes: usize,
        /// Leaf switches of each plane.
        leaves: usize,
        /// Spine switches of each plane.
        spines: usize,
        /// Hosts of each leaf.
        hosts_per_leaf: usize,
    },
    /// Parallel planes of leaves and spines, to each of which hosts have a port of their own.
    MultiPlane {
        /// Planes.
        planes: usize,
        /// Leaf switches of each plane.
        leaves: usize,
        /// Spine switches of each plane.
        spines: usize,
        /// Hosts of each leaf.
        hosts_per_leaf: usize,
    },
    /// Switches in a circle.
    Ring {
        /// Switches, at least three.
        switches: usize,
        /// Hosts of each switch.
        hosts_per_switch: usize,
    },
}

/// What links are made of.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// Between a host and its switch.
    pub host: LinkClass,
    /// Between switches.
    pub fabric: LinkClass,
}

fn names(prefix: &str, count: usize) -> impl Iterator<Item = String> + '_ {
    (1..=count).map(move |number| format!("{prefix}{number}"))
}

impl Shape {
    /// Number of hosts.
    pub fn hosts(self) -> usize {
        match self {
            Self::Pair => 2,
            Self::Star { hosts } | Self::Dumbbell { hosts } => hosts,
            Self::LeafSpine {
                leaves,
                hosts_per_leaf,
                ..
            }
            | Self::Planes {
                leaves,
                hosts_per_leaf,
                ..
            }
            | Self::MultiPlane {
                leaves,
                hosts_per_leaf,
                ..
            } => leaves * hosts_per_leaf,
            Self::FatTree { k } => k * k * k / 4,
            Self::Ring {
                switches,
                hosts_per_switch,
            } => switches * hosts_per_switch,
        }
    }

    /// The plan of the fabric.
    pub fn plan(self, links: Links, v6: bool) -> Plan {
        match self {
            Self::Pair => {
                let mut plan = Plan::new(2, Vec::new(), v6);
                plan.connect(NodeId(0), NodeId(1), links.host);
                plan
            }
            Self::Star { hosts } => {
                let mut plan = Plan::new(hosts, names("s", 1).collect(), v6);
                let only = plan.switch(0);
                attach_all(&mut plan, &[only], links);
                plan
            }
            Self::Dumbbell { hosts } => {
                let mut plan = Plan::new(hosts, names("s", 2).collect(), v6);
                let sides = [plan.switch(0), plan.switch(1)];
                attach_all(&mut plan, &sides, links);
                plan.connect(sides[0], sides[1], links.fabric);
                plan.route_shortest(&sides);
                plan
            }
            Self::LeafSpine { leaves, spines, .. } => self.leaf_spine(leaves, spines, links, v6),
            Self::FatTree { k } => self.fat_tree(k, links, v6),
            Self::Planes {
                planes,
                leaves,
                spines,
                hosts_per_leaf,
            } => self.planes((planes, leaves, spines, hosts_per_leaf), links, v6),
            Self::MultiPlane {
                planes,
                leaves,
                spines,
                ..
            } => self.multi_plane((planes, leaves, spines), links, v6),
            Self::Ring { switches, .. } => self.ring(switches, links, v6),
        }
    }

    fn leaf_spine(self, leaves: usize, spines: usize, links: Links, v6: bool) -> Plan {
        let names = names("leaf", leaves)
            .chain(names("spine", spines))
            .collect();
        let mut plan = Plan::new(self.hosts(), names, v6);
        let edges: Vec<NodeId> = (0..leaves).map(|leaf| plan.switch(leaf)).collect();
        attach_all(&mut plan, &edges, links);
        for &leaf in &edges {
            for spine in 0..spines {
                plan.connect(leaf, plan.switch(leaves + spine), links.fabric);
            }
        }
        plan.route_shortest(&edges);
        plan
    }

    fn fat_tree(self, k: usize, links: Links, v6: bool) -> Plan {
        let half = k / 2;
        let all = names("edge", k * half)
            .chain(names("aggr", k * half))
            .chain(names("core", half * half));
        let mut plan = Plan::new(self.hosts(), all.collect(), v6);
        let edges: Vec<NodeId> = (0..k * half).map(|edge| plan.switch(edge)).collect();
        attach_all(&mut plan, &edges, links);
        for pod in 0..k {
            for aggregation in 0..half {
                let above = plan.switch(k * half + pod * half + aggregation);
                for edge in 0..half {
                    plan.connect(edges[pod * half + edge], above, links.fabric);
                }
                for core in 0..half {
                    let core = plan.switch(2 * k * half + aggregation * half + core);
                    plan.connect(above, core, links.fabric);
                }
            }
        }
        plan.route_shortest(&edges);
        plan
    }

    fn planes(
        self,
        (planes, leaves, spines, per_leaf): (usize, usize, usize, usize),
        links: Links,
        v6: bool,
    ) -> Plan {
        let hosts = self.hosts();
        let mut all: Vec<String> = names("nic", hosts).collect();
        for plane in 1..=planes {
            all.extend(names(&format!("p{plane}leaf"), leaves));
            all.extend(names(&format!("p{plane}spine"), spines));
        }
        let mut plan = Plan::new(hosts, all, v6);
        let edges: Vec<NodeId> = (0..hosts).map(|host| plan.switch(host)).collect();
        attach_all(&mut plan, &edges, links);
        for plane in 0..planes {
            let first = hosts + plane * (leaves + spines);
            for (host, &nic) in edges.iter().enumerate() {
                plan.connect(nic, plan.switch(first + host / per_leaf), links.fabric);
            }
            for leaf in 0..leaves {
                for spine in 0..spines {
                    let (leaf, spine) = (first + leaf, first + leaves + spine);
                    plan.connect(plan.switch(leaf), plan.switch(spine), links.fabric);
                }
            }
        }
        plan.route_shortest(&edges);
        plan
    }

    fn multi_plane(
        self,
        (planes, leaves, spines): (usize, usize, usize),
        links: Links,
        v6: bool,
    ) -> Plan {
        let hosts = self.hosts();
        let of_plane = |plane: usize| {
            let leaves = names(&format!("p{plane}leaf"), leaves).collect::<Vec<_>>();
            leaves
                .into_iter()
                .chain(names(&format!("p{plane}spine"), spines).collect::<Vec<_>>())
        };
        let mut plan = Plan::new(hosts, (1..=planes).flat_map(of_plane).collect(), v6);
        for plane in 0..planes {
            let first = plane * (leaves + spines);
            let edges: Vec<NodeId> = (0..leaves).map(|leaf| plan.switch(first + leaf)).collect();
            if plane == 0 {
                attach_all(&mut plan, &edges, links);
            } else {
                let share = hosts.div_ceil(leaves);
                for (number, host) in plan.host_ids().collect::<Vec<_>>().into_iter().enumerate() {
                    let edge = number / share;
                    plan.attach_again(host, edges[edge], edge, links.host);
                }
            }
            for &leaf in &edges {
                for spine in 0..spines {
                    plan.connect(leaf, plan.switch(first + leaves + spine), links.fabric);
                }
            }
            plan.route_shortest(&edges);
        }
        plan
    }

    fn ring(self, switches: usize, links: Links, v6: bool) -> Plan {
        let mut plan = Plan::new(self.hosts(), names("s", switches).collect(), v6);
        let edges: Vec<NodeId> = (0..switches).map(|switch| plan.switch(switch)).collect();
        attach_all(&mut plan, &edges, links);
        for switch in 0..switches {
            plan.connect(edges[switch], edges[(switch + 1) % switches], links.fabric);
        }
        plan.route_clockwise(&edges);
        plan
    }
}

/// Gives each edge switch its share of the hosts, in order.
fn attach_all(plan: &mut Plan, edges: &[NodeId], links: Links) {
    let share = plan.hosts.div_ceil(edges.len());
    let hosts: Vec<NodeId> = plan.host_ids().collect();
    for (number, host) in hosts.into_iter().enumerate() {
        let edge = number / share;
        plan.attach(host, edges[edge], edge, links.host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;
    use common::units::Rate;

    fn links() -> Links {
        let class = LinkClass {
            speed: Rate::from_gbps(100),
            delay: Span::from_micros(1),
        };
        Links {
            host: class,
            fabric: class,
        }
    }

    /// Every pair of hosts has a path, as long as the topology says, and each switch on it a route.
    #[test]
    fn all_hosts_are_reached() {
        let shapes = [
            (Shape::Pair, 1, 0),
            (Shape::Star { hosts: 5 }, 2, 1),
            (Shape::Dumbbell { hosts: 6 }, 3, 2),
            (
                Shape::LeafSpine {
                    leaves: 3,
                    spines: 2,
                    hosts_per_leaf: 2,
                },
                4,
                5,
            ),
            (Shape::FatTree { k: 4 }, 6, 20),
            (
                Shape::Planes {
                    planes: 2,
                    leaves: 2,
                    spines: 2,
                    hosts_per_leaf: 2,
                },
                6,
                12,
            ),
            (
                Shape::MultiPlane {
                    planes: 2,
                    leaves: 2,
                    spines: 2,
                    hosts_per_leaf: 2,
                },
                4,
                8,
            ),
            (
                Shape::Ring {
                    switches: 4,
                    hosts_per_switch: 1,
                },
                5,
                4,
            ),
        ];
        for (shape, longest, switches) in shapes {
            for v6 in [false, true] {
                let plan = shape.plan(links(), v6);
                assert_eq!(plan.hosts, shape.hosts());
                assert_eq!(plan.nodes.len() - plan.hosts, switches, "{shape:?}");
                let mut most = 0;
                for from in plan.host_ids() {
                    for to in plan.host_ids().filter(|to| *to != from) {
                        let path = plan.path(from, to);
                        let last = path.last().map(|link| plan.links[*link].ends);
                        let arrives =
                            last.is_some_and(|ends| ends.iter().any(|end| end.node == to));
                        assert!(arrives, "{shape:?}: {from:?} to {to:?}");
                        most = most.max(path.len());
                    }
                }
                assert_eq!(most, longest, "{shape:?}");
            }
        }
    }

    #[test]
    fn a_fat_tree_uses_all_its_cores() {
        let plan = Shape::FatTree { k: 8 }.plan(links(), false);
        assert_eq!(plan.hosts, 128);
        let edge = &plan.nodes[plan.switch(0).index()];
        assert!(edge.routes.iter().all(|(_, hops)| hops.len() == 4));
        let names: std::collections::BTreeSet<String> = (0..plan.links.len())
            .map(|link| plan.link_name(link))
            .collect();
        assert_eq!(names.len(), plan.links.len());
    }
}
