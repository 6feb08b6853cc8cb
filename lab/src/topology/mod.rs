//! The nodes, links, addresses and routes of a laboratory, from a few options.
//!
//! The plan is the same every time, so that an address shows where its interface is:
//!
//! | what | prefix | one end | other end |
//! |---|---|---|---|
//! | leaf L to host N | `10.L.N.0/24` | leaf `.1` | host `.2` |
//! | | `fd00:L:N::/64` | leaf `::1` | host `::2` |
//! | leaf L to spine S | `10.(200+S).L.0/31` | spine `.0` | leaf `.1` |
//! | | `fd00:ffff:S:L::/64` | spine `::1` | leaf `::2` |
//! | all hosts of leaf L | `10.L.0.0/16`, `fd00:L::/32` | | |
//! | with one network for all, host N | `10.0.0.0/24`, `fd00::/64` | | host `.N`, `::N` |
//!
//! (L, N, S counted from 1, hexadecimal in IPv6; hosts are counted over the whole fabric and fill
//! one leaf after the other.) An interface carries the name of the node at its other end.
//!
//! Routes are what a routing protocol would install: a leaf reaches each other leaf over every
//! spine that has a link to both; a spine reaches each leaf over its link; a host has a default
//! route.

mod choice;

pub use choice::{Congestion, Daemons, Qos};

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::LabError;
use common::xdp::{Mode, mtu_limit};

/// Most leaves: their number is an octet of the address plan, below those of the spines.
pub const MAX_LEAVES: u8 = 64;
/// Most spines: 200 + S is an octet of the address plan.
pub const MAX_SPINES: u8 = 32;
/// Most hosts: their number is an octet of the address plan.
pub const MAX_HOSTS: u8 = 250;
/// Most queues of an interface.
pub const MAX_QUEUES: u8 = 8;
/// Most VLANs.
pub const MAX_VLANS: u8 = 16;
/// IPv6 needs it (RFC 8200 §5).
pub const MIN_MTU: u32 = 1280;

const _: () = assert!(MAX_SPINES <= 255 - 200);

/// How many of one kind a laboratory can have: 1 to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    most: u8,
    /// What sets the limit.
    reason: &'static str,
}

impl Bound {
    /// Leaves.
    pub const LEAVES: Bound = Bound {
        most: MAX_LEAVES,
        reason: "a leaf's number is the second octet of its hosts' addresses, below those of spines",
    };
    /// Spines.
    pub const SPINES: Bound = Bound {
        most: MAX_SPINES,
        reason: "200 and a spine's number make the second octet of its links' addresses",
    };
    /// Hosts.
    pub const HOSTS: Bound = Bound {
        most: MAX_HOSTS,
        reason: "a host's number is the third octet of its address",
    };
    /// VLANs of one network.
    pub const VLANS: Bound = Bound {
        most: MAX_VLANS,
        reason: "a laboratory has no more VLANs",
    };
    /// Queues of an interface.
    pub const QUEUES: Bound = Bound {
        most: MAX_QUEUES,
        reason: "an interface of a laboratory has no more queues",
    };

    /// Reads a number within the bound.
    ///
    /// # Errors
    /// What is accepted, and why not more.
    pub fn parse(self, text: &str) -> Result<u8, String> {
        let number: i128 = text
            .parse()
            .map_err(|_| format!("not a number in 1..={}", self.most))?;
        match u8::try_from(number) {
            Ok(number) => self.check(number).map(|()| number),
            Err(_) => Err(self.refusal(number)),
        }
    }

    fn check(self, number: u8) -> Result<(), String> {
        if (1..=self.most).contains(&number) {
            Ok(())
        } else {
            Err(self.refusal(number.into()))
        }
    }

    fn refusal(self, number: i128) -> String {
        format!("{number} is not in 1..={}: {}", self.most, self.reason)
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Name of the laboratory, prefix of its namespaces.
    pub name: String,
    /// Leaf switches.
    pub leaves: u8,
    /// Spine switches.
    pub spines: u8,
    /// Hosts, spread over the leaves.
    pub hosts: u8,
    /// Speed of every link, in bits per second.
    pub speed: u64,
    /// Speed of the links between switches, in bits per second, if it is another one.
    #[serde(default)]
    pub fabric_speed: Option<u64>,
    /// How hosts answer to congestion.
    #[serde(default)]
    pub congestion: Congestion,
    /// Receive and transmit queues of every interface.
    pub queues: u8,
    /// MTU of every link.
    pub mtu: u32,
    /// Which daemons run.
    pub daemons: Daemons,
    /// What the switches' traffic managers do.
    #[serde(default)]
    pub qos: Qos,
    /// Packets of hosts have congestion signals, and switches write them.
    #[serde(default)]
    pub csig: bool,
    /// Switches compute for jobs, and hosts ask their leaf to.
    #[serde(default)]
    pub compute: bool,
    /// All hosts are in one network: switches have their ports in a bridge each, and no addresses.
    #[serde(default)]
    pub l2: bool,
    /// VLANs that the hosts of one network are dealt out to; 0: none.
    #[serde(default)]
    pub vlans: u8,
    /// Links that lead through a bridge on which [`super::capture`] listens, each by the names of
    /// its nodes in any order.
    pub taps: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "fab".to_owned(),
            leaves: 2,
            spines: 2,
            hosts: 4,
            speed: 1_000_000_000,
            fabric_speed: None,
            congestion: Congestion::default(),
            queues: 1,
            mtu: 3000,
            daemons: Daemons::All,
            qos: Qos::default(),
            csig: false,
            compute: false,
            l2: false,
            vlans: 0,
            taps: Vec::new(),
        }
    }
}

impl Options {
    /// Refuses what the address plan or AF_XDP cannot carry.
    ///
    /// # Errors
    /// [`LabError::BadOption`], naming the option and what is accepted.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |option, reason: String| Err(LabError::BadOption { option, reason });
        if !valid_name(&self.name) {
            return bad(
                "--name",
                "1 to 8 lower-case letters and digits, a letter first".to_owned(),
            );
        }
        for (option, value, bound) in [
            ("--leaves", self.leaves, Bound::LEAVES),
            ("--spines", self.spines, Bound::SPINES),
            ("--hosts", self.hosts, Bound::HOSTS),
            ("--queues", self.queues, Bound::QUEUES),
        ] {
            bound.check(value).or_else(|reason| bad(option, reason))?;
        }
        let most = mtu_limit(Mode::NativeCopy, "veth");
        if !(MIN_MTU..=most).contains(&self.mtu) {
            return bad(
                "--mtu",
                format!(
                    "{} is not in {MIN_MTU}..={most}: IPv6 needs {MIN_MTU}, and AF_XDP on veth \
                     carries no more than {most} with this kernel",
                    self.mtu
                ),
            );
        }
        if self.compute && self.l2 {
            let reason = "with --l2 switches have no address to be asked at".to_owned();
            return bad("--compute", reason);
        }
        if self.vlans > 0 {
            if !self.l2 {
                return bad("--vlans", "there are VLANs with --l2 only".to_owned());
            }
            let refusal = Bound::VLANS.check(self.vlans);
            refusal.or_else(|reason| bad("--vlans", reason))?;
            let most = self.hosts_per_leaf();
            if self.vlans > most {
                let reason = format!(
                    "{} VLANs, and no leaf has more hosts than {most}",
                    self.vlans
                );
                return bad("--vlans", reason + ": some VLAN would have no host");
            }
        }
        let speeds = [Some(self.speed), self.fabric_speed];
        let possible = 1_000_000..=100_000_000_000;
        if speeds.iter().flatten().any(|it| !possible.contains(it)) {
            return bad("--speed", "between 1Mbps and 100Gbps".to_owned());
        }
        self.check_taps().or_else(|reason| bad("--tap", reason))
    }

    /// Hosts of a leaf; the last may have fewer.
    fn hosts_per_leaf(&self) -> u8 {
        self.hosts.div_ceil(self.leaves)
    }

    /// Each tap is on a link of the plan, and no link has two.
    fn check_taps(&self) -> Result<(), String> {
        let plan = Topology::plan(self);
        let mut tapped = BTreeSet::new();
        for (a, b) in &self.taps {
            plan.link(a, b).map_err(|error| error.to_string())?;
            if !tapped.insert((a.min(b), a.max(b))) {
                return Err(format!("the link between '{a}' and '{b}' is named twice"));
            }
        }
        Ok(())
    }
}

/// Names are prefixes of namespaces and interfaces; a dash would make one the prefix of another.
#[must_use]
pub fn valid_name(name: &str) -> bool {
    (1..=8).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// Connects leaves.
    Spine,
    /// Connects hosts.
    Leaf,
    /// Runs applications.
    Host,
}

impl NodeRole {
    /// Whether switchd runs there.
    #[must_use]
    pub fn is_switch(self) -> bool {
        self != NodeRole::Host
    }

    /// The daemon that is made for it.
    #[must_use]
    pub fn program(self) -> &'static str {
        if self.is_switch() { "switchd" } else { "hostd" }
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `leaf1`, `spine2`, `h3`.
    pub name: String,
    /// What it is.
    pub role: NodeRole,
    /// Its number among its kind, from 1.
    pub number: u8,
}

impl Node {
    /// The daemon that runs on it, if one does.
    #[must_use]
    pub fn program(&self, daemons: Daemons) -> Option<&'static str> {
        let runs = match daemons {
            Daemons::All => true,
            Daemons::Switches => self.role.is_switch(),
            Daemons::KernelRouters | Daemons::Nothing => false,
        };
        runs.then(|| self.role.program())
    }
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The node.
    pub node: String,
    /// The interface there: the name of the node at the other end.
    pub interface: String,
    /// Addresses with prefix lengths, IPv4 and IPv6.
    pub addresses: [(IpAddr, u8); 2],
}

/// A point-to-point link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The lower end: host, or leaf.
    pub lower: End,
    /// The upper end: leaf, or spine.
    pub upper: End,
}

/// One route of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination in `ip route` notation.
    pub destination: String,
    /// Whether it is IPv6.
    pub v6: bool,
    /// Gateways and the interfaces they are on.
    pub next_hops: Vec<(IpAddr, String)>,
}

/// The plan of a laboratory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Spines, then leaves, then hosts.
    pub nodes: Vec<Node>,
    /// Hosts' links first, then those between leaves and spines.
    pub links: Vec<Link>,
    /// All hosts are in one network, and nothing is routed.
    #[serde(default)]
    pub l2: bool,
    /// VLANs that the hosts of each leaf are dealt out to; 0: none.
    #[serde(default)]
    pub vlans: u8,
}

impl Topology {
    /// Plans what `options` ask for. They have been checked.
    #[must_use]
    pub fn plan(options: &Options) -> Topology {
        let mut nodes = Vec::new();
        for (role, count, prefix) in [
            (NodeRole::Spine, options.spines, "spine"),
            (NodeRole::Leaf, options.leaves, "leaf"),
            (NodeRole::Host, options.hosts, "h"),
        ] {
            nodes.extend((1..=count).map(|number| Node {
                name: format!("{prefix}{number}"),
                role,
                number,
            }));
        }
        let per_leaf = options.hosts_per_leaf();
        let mut links: Vec<Link> = (1..=options.hosts)
            .map(|host| (host, (host - 1) / per_leaf + 1))
            .map(|(host, leaf)| match options.l2 {
                true => one_network(host, host_link(host, leaf)),
                false => host_link(host, leaf),
            })
            .collect();
        for leaf in 1..=options.leaves {
            links.extend((1..=options.spines).map(|spine| spine_link(leaf, spine)));
        }
        Topology {
            nodes,
            links,
            l2: options.l2,
            vlans: options.vlans,
        }
    }

    /// Identifiers of the VLANs: 10, 20 and so on.
    pub fn vlan_ids(&self) -> impl Iterator<Item = u16> {
        (1..=u16::from(self.vlans)).map(|number| 10 * number)
    }

    /// The VLAN of a host, if there are any: the hosts of each leaf are dealt out in turn.
    #[must_use]
    pub fn vlan_of(&self, host: &str) -> Option<u16> {
        if self.vlans == 0 || self.node(host)?.role != NodeRole::Host {
            return None;
        }
        let is_own = |link: &&Link| link.lower.node == host;
        let leaf = &self.links.iter().find(is_own)?.upper.node;
        let mut hosts = self.links.iter().filter(|link| link.upper.node == *leaf);
        let place = hosts.position(|link| is_own(&link))?;
        self.vlan_ids().nth(place % usize::from(self.vlans))
    }

    /// The node called `name`.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Names of all nodes of a role.
    pub fn names(&self, role: NodeRole) -> impl Iterator<Item = &str> {
        self.nodes
            .iter()
            .filter(move |node| node.role == role)
            .map(|node| node.name.as_str())
    }

    /// Ends of links at `node`.
    pub fn ends<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a End> {
        self.links
            .iter()
            .flat_map(|link| [&link.lower, &link.upper])
            .filter(move |end| end.node == node)
    }

    /// The link between two nodes, named in any order: the end at `a`, the end at `b`.
    #[must_use]
    pub fn between(&self, a: &str, b: &str) -> Option<(&End, &End)> {
        self.links.iter().find_map(|link| {
            if link.lower.node == a && link.upper.node == b {
                Some((&link.lower, &link.upper))
            } else if link.lower.node == b && link.upper.node == a {
                Some((&link.upper, &link.lower))
            } else {
                None
            }
        })
    }

    /// [`Self::between`] for names that someone typed.
    ///
    /// # Errors
    /// [`LabError::NoNode`] with the nodes that there are; [`LabError::NoLink`] with the links that
    /// these two have.
    pub fn link(&self, a: &str, b: &str) -> Result<(&End, &End), LabError> {
        for node in [a, b] {
            self.known(node)?;
        }
        self.between(a, b).ok_or_else(|| {
            let links = |node: &str| {
                let far: Vec<_> = self.ends(node).map(|end| end.interface.as_str()).collect();
                format!("{node} has links to {}", far.join(", "))
            };
            let mut both = vec![a, b];
            both.dedup();
            LabError::NoLink {
                a: a.to_owned(),
                b: b.to_owned(),
                links: both.into_iter().map(links).collect::<Vec<_>>().join("; "),
            }
        })
    }

    /// [`Self::node`] for a name that someone typed.
    ///
    /// # Errors
    /// [`LabError::NoNode`] with the nodes that there are.
    pub fn known(&self, name: &str) -> Result<&Node, LabError> {
        self.node(name).ok_or_else(|| LabError::NoNode {
            node: name.to_owned(),
            nodes: self
                .nodes
                .iter()
                .map(|node| node.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Address of a host, as others reach it.
    #[must_use]
    pub fn address(&self, host: &str, v6: bool) -> Option<IpAddr> {
        let end = self.ends(host).next()?;
        Some(end.addresses[usize::from(v6)].0)
    }

    /// Routes that `node` should have while the links in `down` (either order) carry nothing.
    #[must_use]
    pub fn routes(&self, node: &Node, down: &BTreeSet<(String, String)>) -> Vec<Route> {
        if self.l2 {
            return Vec::new();
        }
        let up = |a: &str, b: &str| {
            !down.contains(&(a.to_owned(), b.to_owned()))
                && !down.contains(&(b.to_owned(), a.to_owned()))
        };
        let mut routes = Vec::new();
        for v6 in [false, true] {
            let hop = |via: &str| {
                let (near, far) = self.between(&node.name, via)?;
                Some((far.addresses[usize::from(v6)].0, near.interface.clone()))
            };
            let mut add = |destination: String, next_hops: Vec<(IpAddr, String)>| {
                if !next_hops.is_empty() {
                    routes.push(Route {
                        destination,
                        v6,
                        next_hops,
                    });
                }
            };
            match node.role {
                NodeRole::Host => {
                    let leaf = self
                        .ends(&node.name)
                        .next()
                        .map(|end| end.interface.clone());
                    add(
                        "default".to_owned(),
                        leaf.iter().filter_map(|leaf| hop(leaf)).collect(),
                    );
                }
                NodeRole::Leaf => {
                    for other in self
                        .nodes
                        .iter()
                        .filter(|n| n.role == NodeRole::Leaf && *n != node)
                    {
                        let hops = self
                            .names(NodeRole::Spine)
                            .filter(|spine| up(&node.name, spine) && up(spine, &other.name))
                            .filter_map(hop)
                            .collect();
                        add(hosts_of(other.number, v6), hops);
                    }
                }
                NodeRole::Spine => {
                    for leaf in self.nodes.iter().filter(|n| n.role == NodeRole::Leaf) {
                        let hops = Some(leaf.name.as_str())
                            .filter(|leaf| up(&node.name, leaf))
                            .and_then(hop)
                            .into_iter()
                            .collect();
                        add(hosts_of(leaf.number, v6), hops);
                    }
                }
            }
        }
        routes
    }
}

/// The prefix of all hosts of a leaf.
fn hosts_of(leaf: u8, v6: bool) -> String {
    if v6 {
        format!("fd00:{leaf:x}::/32")
    } else {
        format!("10.{leaf}.0.0/16")
    }
}

fn host_link(host: u8, leaf: u8) -> Link {
    let end = |node: String, interface: String, last: u8| End {
        node,
        interface,
        addresses: [
            (Ipv4Addr::new(10, leaf, host, last).into(), 24),
            (
                Ipv6Addr::new(0xfd00, leaf.into(), host.into(), 0, 0, 0, 0, last.into()).into(),
                64,
            ),
        ],
    };
    let (leaf_name, host_name) = (format!("leaf{leaf}"), format!("h{host}"));
    Link {
        lower: end(host_name.clone(), leaf_name.clone(), 2),
        upper: end(leaf_name, host_name, 1),
    }
}

/// The link of a host as one of a network that all hosts share.
fn one_network(host: u8, mut link: Link) -> Link {
    link.lower.addresses = [
        (Ipv4Addr::new(10, 0, 0, host).into(), 24),
        (
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
            64,
        ),
    ];
    link
}

fn spine_link(leaf: u8, spine: u8) -> Link {
    let end = |node: String, interface: String, v4: u8, v6: u16| End {
        node,
        interface,
        addresses: [
            (Ipv4Addr::new(10, 200 + spine, leaf, v4).into(), 31),
            (
                Ipv6Addr::new(0xfd00, 0xffff, spine.into(), leaf.into(), 0, 0, 0, v6).into(),
                64,
            ),
        ],
    };
    let (leaf_name, spine_name) = (format!("leaf{leaf}"), format!("spine{spine}"));
    Link {
        lower: end(leaf_name.clone(), spine_name.clone(), 1, 2),
        upper: end(spine_name, leaf_name, 0, 1),
    }
}

#[cfg(test)]
mod tests;
