//! The state of a simulation, and its beginning.

use super::running::{Running, jobs};
use crate::app::ConnectionId;
use crate::check::{Check, Failure};
use crate::collective::leaf_address;
use crate::fabric::{Fabric, Node};
use crate::fault::Trouble;
use crate::flow::{FlowId, Progress, Pulled, Workload};
use crate::frames::region;
use crate::host::Host;
use crate::memory::Ledger;
use crate::network::{LinkId, NodeId, Plan};
use crate::sample::Samples;
use crate::scenario::{BEGINNING, Scenario};
use crate::switch::{Switch, mac};
use crate::wire::Wire;
use common::time::Time;
use hostd::verbs::{CollectiveConfig, EngineConfig, PortId, Route, Secret};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// A connection, as the simulation sees it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    /// Ends that are up.
    pub(super) up: u8,
    pub(crate) over: bool,
    /// Messages posted so far.
    pub(super) messages: u64,
    /// Flows under way.
    pub(super) under_way: VecDeque<UnderWay>,
    /// Bytes and time at the last look that found progress.
    pub(super) seen: (u64, Time),
}

/// A flow under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) flow: FlowId,
    /// Its messages, as the connection counts them.
    pub(super) messages: Range<u64>,
    /// How many of them did not come yet.
    pub(super) left: u64,
}

/// A simulation.
#[derive(Debug)]
pub struct Simulation<const BYTES: bool> {
    pub(crate) fabric: Fabric<BYTES>,
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    pub(crate) progress: Vec<Progress>,
    pub(crate) connections: Vec<Connection>,
    pub(super) connection_of: Vec<ConnectionId>,
    pub(super) triggers: Vec<Pulled>,
    /// Flows that triggers have started, and whether they are being started.
    pub(super) starting: VecDeque<FlowId>,
    pub(super) is_starting: bool,
    /// By job of the scenario.
    pub(crate) jobs: Vec<Running>,
    pub(crate) troubles: Vec<Trouble>,
    /// By trouble: whether it has begun and not ended. Several may lie over one another.
    pub(super) active: Vec<bool>,
    /// What operators of hosts do.
    pub(super) operators: Pcg64Mcg,
    pub(crate) began: Option<Time>,
    /// Flows and members of jobs that are not over.
    pub(super) open: usize,
    pub(crate) samples: Samples,
    pub(super) audited: u64,
    /// A broken engine is simulated, at the applications' edge.
    pub(super) edge: Option<Edge>,
}

/// What is done wrong on purpose at the edge of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A completion comes twice: the one of this number, at the first connection's receiver.
    DeliverTwice(u64),
    /// After so many bytes, a packet of the first connection is delivered after the last one of its
    /// message.
    SwapPackets(u64),
}

/// A source of randomness for one purpose.
fn random(seed: u64, purpose: u64) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn engine_config(scenario: &Scenario, random: &mut Pcg64Mcg) -> EngineConfig {
    let mut config = scenario.host.clone();
    random.fill_bytes(&mut config.seed);
    config
}

/// How a host addresses all others, by port.
fn routes(plan: &Plan, node: NodeId, scenario: &Scenario) -> Vec<(PortId, Route)> {
    let route = |(link, number): (&LinkId, u8)| {
        let link = &plan.links[*link];
        let across = link.across(node);
        let route = Route {
            source: link.address(node),
            source_mac: mac(node, number.into()),
            destination_mac: mac(across.node, across.port),
            mtu: scenario.switch.mtu,
            rate: scenario.pace(link.speed),
        };
        (PortId::new(number), route)
    };
    let links = &plan.nodes[node.index()].ports;
    links.iter().zip(0..).map(route).collect()
}

/// The connections of a workload, and by flow which one it uses.
fn connections(
    workload: &Workload,
    seed: u64,
    unordered: bool,
) -> (Vec<Connection>, Vec<ConnectionId>) {
    let mut numbers = HashMap::new();
    let mut connections = Vec::new();
    let mut of_flow = Vec::with_capacity(workload.flows.len());
    for flow in &workload.flows {
        let number = *numbers.entry(flow.connection()).or_insert_with(|| {
            let own = seed ^ (connections.len() as u64).rotate_left(32);
            let mut ledger = Ledger::new(own);
            if unordered {
                ledger.allow_any_order();
            }
            connections.push(Connection {
                from: flow.from,
                to: flow.to,
                ledger: Rc::new(RefCell::new(ledger)),
                up: 0,
                over: false,
                messages: 0,
                under_way: VecDeque::new(),
                seen: (0, BEGINNING),
            });
            connections.len() - 1
        });
        of_flow.push(number);
    }
    (connections, of_flow)
}

impl<const BYTES: bool> Simulation<BYTES> {
    /// A simulation in which nothing has happened yet.
    pub fn new(scenario: &Scenario, seed: u64, edge: Option<Edge>) -> Self {
        let plan = scenario.plan();
        let workload = scenario.workload(seed);
        let troubles = scenario.troubles(&plan, &mut random(seed, 2));
        let (connections, connection_of) = connections(&workload, seed, scenario.unordered);
        let region = region(&scenario.host, plan.nodes.len(), &workload, &scenario.jobs);
        let jobs = jobs(scenario, &plan, seed);
        let mut secrets = random(seed, 3);
        let nodes = (0..plan.nodes.len())
            .map(|index| {
                let node = NodeId(u32::try_from(index).expect("few nodes"));
                if index >= plan.hosts {
                    let switch = Switch::new(&plan, node, scenario.switch.clone(), region.clone());
                    return Node::Switch(Box::new(switch));
                }
                let routes = routes(&plan, node, scenario);
                let mut config = engine_config(scenario, &mut secrets);
                if let (true, Some(offer)) =
                    (scenario.single_path.contains(&node), &mut config.multipath)
                {
                    offer.paths = 1;
                }
                let mut slow = scenario.slow_notifiers.iter();
                if let Some((_, interval)) = slow.find(|(slow, _)| *slow == node) {
                    config.cnp_interval = *interval;
                }
                if !scenario.jobs.is_empty() {
                    let mut collective = scenario.collective.clone();
                    collective.leaf = Some(leaf_address(&plan, node));
                    config.collective = collective.engine().map(|it| CollectiveConfig {
                        secret: scenario.switch.secret.map(Secret),
                        ..it
                    });
                }
                Node::Host(Box::new(Host::new(routes, config, region.clone())))
            })
            .collect();
        let mut seeds = random(seed, 4);
        let wires = plan
            .links
            .iter()
            .flat_map(|link| {
                let [a, b] = link.ends;
                let class = (link.speed, link.delay);
                [(a, b), (b, a)].map(|ends| {
                    Wire::new(ends, class, scenario.carries, seeds.next_u64())
                        .with_framing(scenario.framing)
                })
            })
            .collect::<Vec<_>>();
        let samples = Samples::new(&plan, scenario.sample);
        Self {
            triggers: workload.pulled(),
            starting: VecDeque::new(),
            is_starting: false,
            progress: vec![Progress::default(); workload.flows.len()],
            open: workload.flows.len() + jobs.iter().map(|job| job.members.len()).sum::<usize>(),
            jobs,
            fabric: Fabric::new(
                plan,
                nodes,
                wires,
                region,
                (scenario.verb, scenario.switch.poll),
                BEGINNING,
            ),
            scenario: scenario.clone(),
            seed,
            workload,
            connections,
            connection_of,
            active: vec![false; troubles.len()],
            troubles,
            operators: random(seed, 5),
            began: None,
            samples,
            audited: 0,
            edge,
        }
    }

    /// A failure now, at some nodes.
    pub(crate) fn failed(&self, check: Check, nodes: &[NodeId], what: String) -> Failure {
        self.signed(self.fabric.failed(check, nodes, what))
    }

    /// A failure with the name and the seed of the scenario.
    pub(crate) fn signed(&self, failure: Failure) -> Failure {
        Failure {
            scenario: self.scenario.name.clone(),
            seed: self.seed,
            ..failure
        }
    }
}
