//! The plan of a simulated fabric: nodes, links, addresses, routes.
//!
//! | what | IPv4 | IPv6 |
//! |---|---|---|
//! | host H of edge switch E | `10.0.0.0/8` + E × 4096 + H + 2 | the same 32 bits behind `fd00::` |
//! | all hosts of edge switch E | `10.0.0.0/8` + E × 4096, `/20` | `/116` |
//! | link L between switches | `172.16.0.0/12` + 2 L, `/31` | `/127` |
//!
//! (all counted from 0.) Routes are what a routing protocol would install: all shortest paths.

use common::time::Span;
use common::units::Rate;
use ipnet::IpNet;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Hosts of one edge switch at most: its prefix has 12 bits for them.
pub const HOSTS_PER_EDGE: usize = 4000;

/// Number of a node: its place in [`Plan::nodes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The node.
    pub node: NodeId,
    /// Its port.
    pub port: u16,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs hostd and an application.
    Host,
    /// Runs switchd.
    Switch,
    /// Sends and receives raw frames.
    Tester,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name, unique in the plan.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its ports: the links that end there.
    pub ports: Vec<LinkId>,
    /// Its routes, if it is a switch. Hosts send everything by their only port.
    pub routes: Vec<(IpNet, Vec<Hop>)>,
    /// What its hash is seeded with, so that no two switches spread flows alike.
    pub hash_seed: u64,
}

/// Number of a link: its place in [`Plan::links`].
pub type LinkId = usize;

/// A way to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The port to leave by.
    pub port: u16,
    /// The neighbour's address; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
}

/// A link between two nodes.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its ends.
    pub ends: [End; 2],
    /// The addresses of its ends, and the length of their common prefix.
    pub addresses: [IpAddr; 2],
    /// Length of that prefix.
    pub prefix_len: u8,
    /// Speed in either direction.
    pub speed: Rate,
    /// Time that a frame travels.
    pub delay: Span,
}

impl Link {
    /// The other end than `node`'s.
    pub fn across(&self, node: NodeId) -> End {
        let [a, b] = self.ends;
        if a.node == node { b } else { a }
    }

    /// The address of the end at `node`.
    pub fn address(&self, node: NodeId) -> IpAddr {
        self.addresses[usize::from(self.ends[0].node != node)]
    }
}

/// A whole fabric.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Hosts first, in the order in which workloads count them, then switches.
    pub nodes: Vec<Node>,
    /// All links.
    pub links: Vec<Link>,
    /// Number of hosts.
    pub hosts: usize,
    /// Addresses are IPv6.
    pub v6: bool,
}

/// Speed and delay of a class of links.
#[derive(Clone, Copy, Debug)]
pub struct LinkClass {
    /// Speed.
    pub speed: Rate,
    /// One-way delay.
    pub delay: Span,
}

/// The 32 bits of an address of either version.
fn address(v6: bool, bits: u32) -> IpAddr {
    if v6 {
        Ipv6Addr::from((0xfd00_u128 << 112) | u128::from(bits)).into()
    } else {
        Ipv4Addr::from(bits).into()
    }
}

fn prefix(v6: bool, bits: u32, len: u8) -> IpNet {
    let len = if v6 { 96 + len } else { len };
    IpNet::new(address(v6, bits), len).expect("a length within its version")
}

const HOSTS_BASE: u32 = 10 << 24;
const HOSTS_SHIFT: u32 = 12;
const LINKS_BASE: u32 = 172 << 24 | 16 << 16;

impl Plan {
    /// A plan of `hosts` hosts named `h1` … and the switches `switches`, without links.
    pub fn new(hosts: usize, switches: Vec<String>, v6: bool) -> Self {
        let named = (1..=hosts).map(|number| (format!("h{number}"), Role::Host));
        let switches = switches.into_iter().map(|name| (name, Role::Switch));
        let nodes = named
            .chain(switches)
            .zip(1_u64..)
            .map(|((name, role), number)| Node {
                name,
                role,
                ports: Vec::new(),
                routes: Vec::new(),
                hash_seed: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            })
            .collect();
        Self {
            nodes,
            links: Vec::new(),
            hosts,
            v6,
        }
    }

    /// The hosts.
    pub fn host_ids(&self) -> impl Iterator<Item = NodeId> {
        (0..u32::try_from(self.hosts).expect("few nodes")).map(NodeId)
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        let index = self.nodes.iter().position(|node| node.name == name)?;
        Some(NodeId(u32::try_from(index).expect("few nodes")))
    }

    /// The links between two nodes.
    pub fn links_between(&self, a: NodeId, b: NodeId) -> impl Iterator<Item = LinkId> + '_ {
        let matches = move |link: &Link| {
            let [x, y] = link.ends.map(|end| end.node);
            (x, y) == (a, b) || (x, y) == (b, a)
        };
        (0..self.links.len()).filter(move |link| matches(&self.links[*link]))
    }

    /// Whether a link ends at a node.
    pub fn leads_to(&self, link: LinkId, node: NodeId) -> bool {
        self.links[link].ends.iter().any(|end| end.node == node)
    }

    /// The name of a link: of its nodes.
    pub fn link_name(&self, link: LinkId) -> String {
        let [a, b] = self.links[link].ends.map(|end| end.node);
        format!(
            "{}-{}",
            self.nodes[a.index()].name,
            self.nodes[b.index()].name
        )
    }

    /// Number of the switch `index` among the switches.
    pub fn switch(&self, index: usize) -> NodeId {
        NodeId(u32::try_from(self.hosts + index).expect("few nodes"))
    }

    /// Address of a host.
    pub fn address_of(&self, host: NodeId) -> IpAddr {
        let link = self.nodes[host.index()].ports[0];
        self.links[link].address(host)
    }

    /// Connects `host` to `edge`, whose number among the edges is `number`; it gets the next free
    /// address there.
    pub fn attach(&mut self, host: NodeId, edge: NodeId, number: usize, class: LinkClass) {
        let base = edge_base(number);
        let there = self.nodes[edge.index()]
            .ports
            .iter()
            .filter(|link| self.links[**link].ends[0].node.index() < self.hosts)
            .count();
        assert!(there < HOSTS_PER_EDGE, "too many hosts on an edge switch");
        let own = base + 2 + u32::try_from(there).expect("few hosts");
        let addresses = [own, base + 1].map(|bits| address(self.v6, bits));
        let len = if self.v6 { 116 } else { 20 };
        self.join([host, edge], addresses, len, class);
    }

    /// Connects a host that has its address to the edge switch of another plane, whose number among
    /// that plane's edges is `number`.
    pub fn attach_again(&mut self, host: NodeId, edge: NodeId, number: usize, class: LinkClass) {
        let own = self.address_of(host);
        let addresses = [own, address(self.v6, edge_base(number) + 1)];
        let len = if self.v6 { 116 } else { 20 };
        self.join([host, edge], addresses, len, class);
    }

    /// Connects two switches, or two hosts.
    pub fn connect(&mut self, a: NodeId, b: NodeId, class: LinkClass) {
        let bits = LINKS_BASE + 2 * u32::try_from(self.links.len()).expect("few links");
        let addresses = [bits, bits + 1].map(|bits| address(self.v6, bits));
        let len = if self.v6 { 127 } else { 31 };
        self.join([a, b], addresses, len, class);
    }

    fn join(&mut self, nodes: [NodeId; 2], addresses: [IpAddr; 2], len: u8, class: LinkClass) {
        let link = self.links.len();
        let ends = nodes.map(|node| {
            let ports = &mut self.nodes[node.index()].ports;
            ports.push(link);
            End {
                node,
                port: u16::try_from(ports.len() - 1).expect("few ports"),
            }
        });
        self.links.push(Link {
            ends,
            addresses,
            prefix_len: len,
            speed: class.speed,
            delay: class.delay,
        });
    }

    /// Gives every switch routes to the hosts of all `edges`: over all its neighbours that are
    /// nearest to them. Upper switches are never used to go down and up again, as shortest paths do
    /// not.
    pub fn route_shortest(&mut self, edges: &[NodeId]) {
        for (number, &edge) in edges.iter().enumerate() {
            let distance = self.distances(edge);
            let destination = prefix(self.v6, edge_base(number), 20);
            for index in self.hosts..self.nodes.len() {
                let node = NodeId(u32::try_from(index).expect("few nodes"));
                let Some(own) = distance[index].filter(|own| *own > 0) else {
                    continue;
                };
                let nearer = |link: &LinkId| {
                    let across = self.links[*link].across(node).node;
                    distance[across.index()].is_some_and(|other| other < own)
                };
                let links = self.nodes[index].ports.iter().copied();
                let hops: Vec<Hop> = links
                    .enumerate()
                    .filter(|(_, link)| nearer(link))
                    .map(|(port, link)| self.hop(node, port, link))
                    .collect();
                self.nodes[index].routes.push((destination, hops));
            }
        }
    }

    /// Gives every switch of a ring routes to the hosts of all others: always on to the next one.
    pub fn route_clockwise(&mut self, edges: &[NodeId]) {
        for (number, &node) in edges.iter().enumerate() {
            let next = edges[(number + 1) % edges.len()];
            let links = &self.nodes[node.index()].ports;
            let onward = |link: &LinkId| {
                let [first, second] = self.links[*link].ends.map(|end| end.node);
                (first, second) == (node, next)
            };
            let port = links.iter().position(onward).expect("a ring is closed");
            let hop = self.hop(node, port, links[port]);
            for other in (0..edges.len()).filter(|other| *other != number) {
                let destination = prefix(self.v6, edge_base(other), 20);
                self.nodes[node.index()]
                    .routes
                    .push((destination, vec![hop]));
            }
        }
    }

    /// The way to the neighbour at the other end of `link`.
    pub fn hop(&self, node: NodeId, port: usize, link: LinkId) -> Hop {
        let across = self.links[link].across(node).node;
        Hop {
            port: u16::try_from(port).expect("few ports"),
            gateway: Some(self.links[link].address(across)),
        }
    }

    /// Links from each switch to `to`, over switches only.
    fn distances(&self, to: NodeId) -> Vec<Option<u32>> {
        let mut distance = vec![None; self.nodes.len()];
        distance[to.index()] = Some(0);
        let mut next = VecDeque::from([(to, 0)]);
        while let Some((node, far)) = next.pop_front() {
            for link in &self.nodes[node.index()].ports {
                let across = self.links[*link].across(node).node;
                if across.index() >= self.hosts && distance[across.index()].is_none() {
                    distance[across.index()] = Some(far + 1);
                    next.push_back((across, far + 1));
                }
            }
        }
        distance
    }
}

/// First address of the prefix of an edge switch's hosts.
fn edge_base(number: usize) -> u32 {
    HOSTS_BASE + (u32::try_from(number).expect("few edges") << HOSTS_SHIFT)
}
