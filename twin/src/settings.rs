//! What all switches of a simulation have in common, and what follows from it for each.

use super::following::LOOK;
use super::network::{NodeId, Plan};
use common::config::Refusals;
use common::time::Span;
use common::units::Rate;
use common::xdp::ModeChoice;
use std::sync::Arc;
use switchd::config::ecmp::Dlb;
use switchd::config::{Compute, Config, Csig, Fitted, Int, Iqcn, PortFacts, PortSettings, Qos};
use switchd::insight::ecn::{Mode, Model};
use switchd::limits::{CELL, MAX_CELLS};
use switchd::tables::policy::Policy;

/// What all switches of a simulation have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSettings {
    /// Bytes that each egress queue holds.
    pub queue: u32,
    /// Packets that all queues of a switch hold together.
    pub packets: u32,
    /// Largest IP packet.
    pub mtu: u16,
    /// How often a node looks at its ports: at once if it is zero.
    pub poll: Span,
    /// Classes, buffer, queues, marks and flow control; without them eight queues that drop.
    pub qos: Option<Arc<Qos>>,
    /// Dynamic load balancing; without it flows go by their hash.
    pub dlb: Option<Arc<Dlb>>,
    /// Congestion signals; without them nobody knows their tags.
    pub csig: Option<Arc<Csig>>,
    /// Telemetry; without it nobody knows its tags.
    pub int: Option<Arc<Int>>,
    /// Congestion notifications that senders miss; without it nobody makes any.
    pub iqcn: Option<Arc<Iqcn>>,
    /// In-network compute; without it switches have no jobs. Addresses and parents follow from the
    /// plan.
    pub compute: Option<Arc<Compute>>,
    /// The secret of the fabric, with which jobs have keys; hosts have it, too.
    pub secret: Option<[u8; 32]>,
    /// Known scenarios for `[qos.aiecn]`; without it those that ship.
    pub model: Option<Arc<Model>>,
}

impl Default for SwitchSettings {
    /// Queues as in scenarios, frames of up to 4218 bytes, a buffer of 4 MiB in cells, and a look
    /// at the ports at once.
    fn default() -> Self {
        Self {
            queue: 1 << 20,
            packets: 16_384,
            mtu: 4200,
            poll: Span::ZERO,
            qos: None,
            dlb: None,
            csig: None,
            int: None,
            iqcn: None,
            compute: None,
            secret: None,
            model: None,
        }
    }
}

impl SwitchSettings {
    /// The policy of a switch of `plan`, and the receive rings of its ports.
    ///
    /// # Panics
    /// If its ports cannot do what is wanted of them.
    pub(super) fn policy(&self, plan: &Plan, node: NodeId) -> (Policy, Vec<u32>) {
        let fitted = self
            .compile(plan, node)
            .unwrap_or_else(|refusals| panic!("{refusals}"));
        let rings = fitted.facts.iter().map(|port| port.ring).collect();
        (fitted.compiled.policy, rings)
    }

    /// What the ports of a switch of `plan` are given.
    ///
    /// # Errors
    /// The keys of `[qos]` that its ports cannot follow.
    pub fn compile(&self, plan: &Plan, node: NodeId) -> Result<Fitted, Refusals> {
        self.config().fit(self.facts(plan, node), None)
    }

    /// What is wrong with patterns of ports in `[qos]` that no port of any switch matches.
    pub fn idle_patterns(&self, plan: &Plan) -> Option<String> {
        let nodes = (plan.hosts..plan.nodes.len()).map(|node| u32::try_from(node).ok());
        let facts = nodes.map(|node| self.facts(plan, NodeId(node.expect("few nodes"))));
        let facts: Vec<PortFacts> = facts.flatten().collect();
        let qos = self.config().qos;
        let idle = qos.idle_patterns(&facts).next();
        idle.map(|(key, pattern)| {
            let one = facts.first().map_or("", |port| port.name.as_str());
            format!("{key}: no port of a switch matches {pattern:?}; one is called {one:?}")
        })
    }

    /// What there is to know of the ports of `node`.
    fn facts(&self, plan: &Plan, node: NodeId) -> Vec<PortFacts> {
        let ports = &plan.nodes[node.index()].ports;
        let config = self.config();
        let leads_on = |link: usize| plan.links[link].across(node).node.index() >= plan.hosts;
        let is_edge = ports.iter().any(|link| !leads_on(*link));
        let facts = ports.iter().map(|link| {
            let uplink = is_edge && leads_on(*link);
            let (port, device) = self.port(plan, *link, uplink);
            config.facts(&port, device, self.mtu)
        });
        facts.collect()
    }

    /// The configuration that its daemon runs with: what is not said here is as shipped.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        match &self.qos {
            Some(qos) => config.qos = (**qos).clone(),
            // Queues that drop, and nothing else that limits.
            None => {
                config.qos.queue_depth_bytes = self.queue;
                let cell = u32::try_from(CELL).expect("a small constant");
                config.qos.buffer.size_bytes = MAX_CELLS * cell;
            }
        }
        if let Some(dlb) = &self.dlb {
            config.ecmp.dlb = (**dlb).clone();
        }
        if let Some(csig) = &self.csig {
            config.csig = (**csig).clone();
        }
        if let Some(int) = &self.int {
            config.int = (**int).clone();
        }
        if let Some(iqcn) = &self.iqcn {
            config.iqcn = (**iqcn).clone();
            config.flows.enabled = iqcn.enabled;
            config.flows.max_flows = iqcn.max_flows;
        }
        if let Some(compute) = &self.compute {
            config.compute = (**compute).clone();
        }
        config
    }

    /// How often thresholds follow the traffic, if any do.
    pub fn tuning_interval(&self) -> Option<Span> {
        let aiecn = &self.qos.as_ref()?.aiecn;
        let is_on = aiecn.mode != Mode::Off;
        is_on.then(|| Span::from_micros(aiecn.interval_microseconds))
    }

    /// How often control looks at what the workers saw of flows, if it does.
    pub fn look_interval(&self) -> Option<Span> {
        let is_on = self.iqcn.as_ref().is_some_and(|iqcn| iqcn.enabled);
        is_on.then_some(LOOK)
    }

    /// The port that a link of `plan` begins or ends at, and its speed, as if the device said so.
    pub(super) fn port(
        &self,
        plan: &Plan,
        link: usize,
        uplink: bool,
    ) -> (PortSettings, Option<Rate>) {
        let config = self.config();
        let (name, defaults) = (plan.link_name(link), config.port_defaults);
        let settings = PortSettings {
            csig: config.csig.of_port(&name),
            int: config.int.of_port(&name),
            name,
            speed: defaults.speed,
            link: defaults.link_speed,
            burst: Span::from_micros(u64::from(defaults.burst_microseconds)),
            mode: ModeChoice::Best,
            uplink,
            source_validation: defaults.source_validation,
        };
        let speed = plan.links[link].speed;
        (
            settings,
            Some(speed).filter(|speed| *speed != Rate::default()),
        )
    }
}
