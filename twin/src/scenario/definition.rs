//! The definition of a scenario: what is simulated, and what is drawn at random.

use crate::app::Verb;
use crate::collective::Job;
use crate::fault::{Fault, Trouble};
use crate::flow::Workload;
use crate::network::{NodeId, Plan};
use crate::switch::SwitchSettings;
use crate::topology::{Links, Shape};
use crate::workload::Spec;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::queue::LINE_OVERHEAD;
use hostd::config::Collective;
use hostd::verbs::EngineConfig;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Flows of a scenario: made from a pattern, or read from a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A pattern.
    Pattern(Spec),
    /// Flows that are known already, and what they are called.
    Flows(Workload, String),
}

/// A fault and when it happens, or how often at random times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedFault {
    /// What goes wrong; without a target, where is drawn.
    pub fault: Target,
    /// From when, after the start of the workload.
    pub from: Span,
    /// Until when.
    pub until: Span,
    /// If it happens at random times between the two: how often, and how long each time.
    pub random: Option<(usize, Span)>,
}

/// A fault whose place may be left to chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Here.
    Here(Fault),
    /// On any link between switches, or any at all if there is none.
    AnyLink,
    /// At any switch.
    AnySwitch,
}

/// A scenario that can be run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name: that of its file.
    pub name: String,
    /// One line for readers.
    pub about: String,
    /// Its seed, unless another is asked for.
    pub seed: u64,
    /// How long the workload may take.
    pub duration: Span,
    /// How often queues and links are looked at.
    pub sample: Span,
    /// Payload has bytes, which are checked; otherwise only a length.
    pub carries: bool,
    /// Switches may not drop anything for want of room.
    pub lossless: bool,
    /// The topology.
    pub shape: Shape,
    /// Its links.
    pub links: Links,
    /// Addresses are IPv6.
    pub v6: bool,
    /// Bytes of line time that each frame takes beside those in memory.
    pub framing: u64,
    /// All switches.
    pub switch: SwitchSettings,
    /// All hosts.
    pub host: EngineConfig,
    /// Hosts that offer one sub-path only. Files have no such key; tests compare hosts.
    pub single_path: Vec<NodeId>,
    /// Hosts whose notifications of congestion are so far apart at least, whatever the others'
    /// are. Files have no such key; tests compare hosts.
    pub slow_notifiers: Vec<(NodeId, Span)>,
    /// How applications send.
    pub verb: Verb,
    /// Applications tell hostd how long their flows are (HT-46).
    pub describes: bool,
    /// Applications ask for messages as they become whole (HT-39).
    pub unordered: bool,
    /// Longest message, in bytes.
    pub message: u32,
    /// What is sent.
    pub sources: Vec<Source>,
    /// Jobs that switches compute for.
    pub jobs: Vec<Job>,
    /// How hosts take part in them. Their leaves follow from the plan.
    pub collective: Collective,
    /// What goes wrong.
    pub faults: Vec<PlannedFault>,
}

impl Scenario {
    /// The plan of its fabric.
    pub fn plan(&self) -> Plan {
        self.shape.plan(self.links, self.v6)
    }

    /// The speed that hosts are told of a link. They reckon with the framing of Ethernet, and are
    /// to send full packets as fast as the link takes them.
    pub fn pace(&self, link: Rate) -> Rate {
        /// Ethernet, IPv4, UDP, BTH, MPEH with its extension, and ICRC.
        const HEADERS: u64 = 14 + 20 + 8 + 12 + 16 + 4;
        let full = HEADERS + u64::from(self.host.path_mtu);
        let (told, taken) = (full + LINE_OVERHEAD, full + self.framing);
        let bps = u128::from(link.bps()) * u128::from(told) / u128::from(taken);
        Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    /// All its flows, as `seed` draws them.
    pub fn workload(&self, seed: u64) -> Workload {
        let random = &mut Pcg64Mcg::new((u128::from(seed) << 64) | 0xf10e5);
        let mut workload = Workload::default();
        for source in &self.sources {
            match source {
                Source::Pattern(spec) => workload.add(spec, self.links.host.speed, random),
                Source::Flows(flows, name) => workload.append(flows.clone(), name.clone()),
            }
        }
        workload
    }

    /// What goes wrong in `plan`, with what was left to chance drawn.
    pub fn troubles(&self, plan: &Plan, random: &mut Pcg64Mcg) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        let mut below = |count: u64| random.next_u64() % count.max(1);
        for planned in &self.faults {
            let times = planned.random.map_or(1, |(count, _)| count);
            for _ in 0..times {
                let fault = match planned.fault {
                    Target::Here(fault) => fault,
                    Target::AnyLink => Fault::LinkDown(any_link(plan, &mut below)),
                    Target::AnySwitch => {
                        let switches = (plan.nodes.len() - plan.hosts) as u64;
                        let index = usize::try_from(below(switches)).expect("few switches");
                        Fault::Crash(plan.switch(index))
                    }
                };
                let (from, until) = match planned.random {
                    None => (planned.from, planned.until),
                    Some((_, lasting)) => {
                        let room = planned.until - planned.from;
                        let from = planned.from + Span::from_nanos(below(room.nanos()));
                        (from, from + lasting)
                    }
                };
                troubles.push(Trouble { fault, from, until });
            }
        }
        troubles
    }
}

fn any_link(plan: &Plan, below: &mut impl FnMut(u64) -> u64) -> usize {
    let inner: Vec<usize> = (0..plan.links.len())
        .filter(|link| plan.links[*link].ends[0].node.index() >= plan.hosts)
        .collect();
    let all: Vec<usize> = (0..plan.links.len()).collect();
    let links = if inner.is_empty() { all } else { inner };
    links[usize::try_from(below(links.len() as u64)).expect("few links")]
}

/// The time before which nothing happens: engines never see time zero.
pub const BEGINNING: Time = Time::from_nanos(1_000_000);
