//! The results of a simulation, in figures.

use super::collective::figures::{self, JobFigures};
use super::fabric::{Node, Work};
use super::network::{NodeId, Plan};
use super::sample::Samples;
use super::scenario::Scenario;
use super::simulation::state::Simulation;
use super::totals::{Totals, add};
use super::tuning::Tuned;
use super::wire::WireCount;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::queue::LINE_OVERHEAD;
use hostd::verbs::{Granularity, MultipathConfig};
use serde::Serialize;
use std::collections::BTreeMap;
use switchd::drop::DropReason;
use switchd::packet::wire_len;

/// One flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowFigures {
    /// Its number in the workload.
    pub flow: usize,
    /// Its class.
    pub class: String,
    /// Sender.
    pub from: String,
    /// Receiver.
    pub to: String,
    /// Bytes.
    pub bytes: u64,
    /// When it started, in nanoseconds after the workload began; none if it never did.
    pub start_ns: Option<u64>,
    /// Flow completion time in nanoseconds: from its start until the receiver had everything.
    pub fct_ns: Option<u64>,
    /// The same in an empty fabric, on a shortest path.
    pub ideal_ns: u64,
    /// Bytes of payload in bits per second over the completion time.
    pub goodput_bps: Option<u64>,
}

/// Figures of a class of flows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClassFigures {
    /// Its name.
    pub class: String,
    /// Flows that completed.
    pub completed: usize,
    /// Flows that did not, because their connection ended.
    pub aborted: usize,
    /// Completion times in nanoseconds: mean, and those that 50, 99 and 99.9 of 100 flows did not
    /// exceed.
    pub fct_mean_ns: u64,
    /// See `fct_mean_ns`.
    pub fct_p50_ns: u64,
    /// See `fct_mean_ns`.
    pub fct_p99_ns: u64,
    /// See `fct_mean_ns`.
    pub fct_p999_ns: u64,
    /// The longest.
    pub fct_max_ns: u64,
    /// Completion times as multiples of those in an empty fabric.
    pub slowdown_mean: f64,
    /// See `slowdown_mean`.
    pub slowdown_p99: f64,
    /// Mean goodput of a flow, in bits per second.
    pub goodput_mean_bps: u64,
    /// Jain's index of fairness over the flows' goodput: one if all are alike.
    pub jain: f64,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkFigures {
    /// Where it begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Its speed in bits per second.
    pub speed_bps: u64,
    /// Frames sent.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Part of the time from the start of the workload until the fabric was at rest that it was
    /// busy.
    pub utilisation: f64,
    /// Deepest that the queue at its beginning was seen, in bytes.
    pub queue_bytes: u32,
}

/// Everything that is known at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// A number that stands for everything that happened.
    #[serde(serialize_with = "hexadecimal")]
    pub digest: u64,
    /// Virtual time from the start of the workload to the end of its last flow or job, in
    /// nanoseconds.
    pub duration_ns: u64,
    /// Packets through a switch's pipeline or a host's engine.
    pub hops: u64,
    /// By class.
    pub classes: Vec<ClassFigures>,
    /// Jobs that switches computed for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobFigures>,
    /// Sums.
    pub totals: Totals,
    /// Directions of links.
    pub links: Vec<LinkFigures>,
    /// Flows.
    pub flows: Vec<FlowFigures>,
    /// Queues and links over time.
    #[serde(skip)]
    pub samples: Samples,
    /// Work that was done.
    #[serde(skip)]
    pub work: Work,
    /// What thresholds that follow the traffic did, by queue.
    #[serde(skip)]
    pub tuned: Vec<Tuned>,
}

fn hexadecimal<S: serde::Serializer>(digest: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{digest:016x}"))
}

impl Outcome {
    /// Of a simulation that has come to its end.
    pub(super) fn of<const BYTES: bool>(simulation: &mut Simulation<BYTES>) -> Self {
        let began = simulation.began.unwrap_or(Time::ZERO);
        let flows = flows(simulation, began);
        let ended = flows
            .iter()
            .filter_map(|flow| Some(flow.start_ns? + flow.fct_ns?));
        let jobs = simulation.scenario.jobs.iter().zip(&simulation.jobs);
        let jobs: Vec<_> = jobs
            .map(|(job, running)| JobFigures::of(job, running, began))
            .collect();
        let over = jobs
            .iter()
            .filter_map(|it| Some(it.start_ns? + it.time_ns?));
        let duration = Span::from_nanos(ended.chain(over).max().unwrap_or(0));
        let classes = simulation.workload.classes.iter();
        let classes = classes.map(|name| class(name, &flows)).collect();
        Self {
            scenario: simulation.scenario.name.clone(),
            seed: simulation.seed,
            digest: simulation.fabric.trace.digest(),
            duration_ns: duration.nanos(),
            hops: simulation.fabric.work.hops,
            classes,
            jobs,
            totals: totals(simulation),
            links: links(simulation, began),
            flows,
            samples: simulation.samples.clone(),
            work: simulation.fabric.work,
            tuned: tuned(simulation, began),
        }
    }
}

fn tuned<const BYTES: bool>(simulation: &Simulation<BYTES>, began: Time) -> Vec<Tuned> {
    let plan = &simulation.fabric.plan;
    let nodes = simulation.fabric.nodes.iter().zip(&plan.nodes);
    let of_node = nodes.filter_map(|(node, planned)| match node {
        Node::Switch(switch) => Some((switch.tuning()?, planned)),
        Node::Host(_) | Node::Tester(_) => None,
    });
    let all = of_node.flat_map(|(tuning, planned)| {
        let port = |port: usize| plan.link_name(planned.ports[port]);
        tuning.tuned(&planned.name, &port, began)
    });
    all.collect()
}

fn flows<const BYTES: bool>(simulation: &Simulation<BYTES>, began: Time) -> Vec<FlowFigures> {
    let plan = &simulation.fabric.plan;
    let mut ideals: BTreeMap<(NodeId, NodeId), Ideal> = BTreeMap::new();
    let name = |node: NodeId| plan.nodes[node.index()].name.clone();
    let all = simulation.workload.flows.iter().zip(&simulation.progress);
    all.enumerate()
        .map(|(number, (flow, progress))| {
            let ideal = ideals
                .entry((flow.from, flow.to))
                .or_insert_with(|| Ideal::new(plan, &simulation.scenario, flow.from, flow.to));
            let whole = progress.started.zip(progress.received);
            let fct = whole.map(|(from, to)| to.since(from).nanos());
            FlowFigures {
                flow: number,
                class: simulation.workload.classes[flow.class].clone(),
                from: name(flow.from),
                to: name(flow.to),
                bytes: flow.bytes,
                start_ns: progress.started.map(|at| at.since(began).nanos()),
                fct_ns: fct,
                ideal_ns: ideal.time(flow.bytes).nanos(),
                goodput_bps: fct.map(|nanos| rate(flow.bytes, nanos)),
            }
        })
        .collect()
}

/// Bits per second.
fn rate(bytes: u64, nanos: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(nanos.max(1))).unwrap_or(u64::MAX)
}

/// What a flow takes when it is alone: its bytes at the slowest link of its path (or at all that
/// lie beside each other, if it is spread over them), one packet at each other link, and the
/// delays.
struct Ideal {
    slowest: Rate,
    others: Vec<Rate>,
    delay: Span,
    headers: u64,
    framing: u64,
    mtu: u64,
}

impl Ideal {
    fn new(plan: &Plan, scenario: &Scenario, from: NodeId, to: NodeId) -> Self {
        let route = plan.path(from, to);
        let sprayed = |multipath: &MultipathConfig| match multipath.granularity {
            Granularity::Packet => u64::from(multipath.paths),
            Granularity::Flow | Granularity::Flowlet => 1,
        };
        let paths = scenario.host.multipath.as_ref().map_or(1, sprayed);
        let spread = paths.min(plan.parallel_paths(from, to) as u64);
        let speed = |link: &usize| {
            let link = &plan.links[*link];
            let of_host = link.ends[0].node.index() < plan.hosts;
            let parallel = if of_host { 1 } else { spread };
            Rate::from_bps(link.speed.bps() * parallel)
        };
        let mut speeds: Vec<Rate> = route.iter().map(speed).collect();
        speeds.sort_unstable();
        let delay = route
            .iter()
            .fold(Span::ZERO, |sum, link| sum + plan.links[*link].delay);
        let ip = if scenario.v6 { 40 } else { 20 };
        // Ethernet, IP, UDP, BTH, ICRC, and MPEH with its extension.
        let multipath = if scenario.host.multipath.is_some() {
            16
        } else {
            0
        };
        Self {
            slowest: speeds[0],
            others: speeds[1..].to_vec(),
            delay,
            framing: scenario.framing,
            headers: 14 + ip + 8 + 12 + 4 + multipath,
            mtu: u64::from(scenario.host.path_mtu),
        }
    }

    fn time(&self, bytes: u64) -> Span {
        let full = bytes / self.mtu;
        let rest = bytes % self.mtu;
        let packet = |payload: u64| wire_len(self.headers + payload) - LINE_OVERHEAD + self.framing;
        let all = full * packet(self.mtu) + if rest > 0 { packet(rest) } else { 0 };
        let first = packet(bytes.min(self.mtu));
        let passing = self.others.iter().map(|speed| speed.time_for(first));
        passing.fold(self.slowest.time_for(all) + self.delay, |sum, it| sum + it)
    }
}

/// What `part` thousandths of `sorted` do not exceed.
fn percentile(sorted: &[u64], part: usize) -> u64 {
    let rank = (sorted.len() * part).div_ceil(1000).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "figures to show")]
fn class(name: &str, flows: &[FlowFigures]) -> ClassFigures {
    let own = flows.iter().filter(|flow| flow.class == name);
    let (done, not): (Vec<_>, Vec<_>) = own.partition(|flow| flow.fct_ns.is_some());
    let mut figures = ClassFigures {
        class: name.to_owned(),
        completed: done.len(),
        aborted: not.len(),
        ..ClassFigures::default()
    };
    if done.is_empty() {
        return figures;
    }
    let count = done.len() as u64;
    let mut times: Vec<u64> = done.iter().filter_map(|flow| flow.fct_ns).collect();
    times.sort_unstable();
    let sum: u128 = times.iter().map(|nanos| u128::from(*nanos)).sum();
    figures.fct_mean_ns = u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX);
    figures.fct_p50_ns = percentile(&times, 500);
    figures.fct_p99_ns = percentile(&times, 990);
    figures.fct_p999_ns = percentile(&times, 999);
    figures.fct_max_ns = percentile(&times, 1000);
    let slowdown = |flow: &&FlowFigures| {
        let fct = flow.fct_ns.unwrap_or(0);
        fct as f64 / flow.ideal_ns.max(1) as f64
    };
    let mut slow: Vec<f64> = done.iter().map(slowdown).collect();
    slow.sort_unstable_by(f64::total_cmp);
    figures.slowdown_mean = slow.iter().sum::<f64>() / count as f64;
    let rank = (slow.len() * 990).div_ceil(1000).max(1) - 1;
    figures.slowdown_p99 = slow[rank];
    let goodput: Vec<f64> = done
        .iter()
        .map(|flow| flow.goodput_bps.unwrap_or(0) as f64)
        .collect();
    let total: f64 = goodput.iter().sum();
    let squares: f64 = goodput.iter().map(|rate| rate * rate).sum();
    figures.goodput_mean_bps = done.iter().filter_map(|flow| flow.goodput_bps).sum::<u64>() / count;
    figures.jain = total * total / (count as f64 * squares).max(f64::MIN_POSITIVE);
    figures
}

fn totals<const BYTES: bool>(simulation: &mut Simulation<BYTES>) -> Totals {
    let mut totals = Totals {
        jobs: figures::sums(&simulation.fabric, &simulation.jobs),
        ..Totals::default()
    };
    for node in &simulation.fabric.nodes {
        match node {
            Node::Switch(switch) => {
                for &reason in DropReason::ALL {
                    add(
                        &mut totals.switch_drops,
                        reason.label(),
                        switch.dropped(reason),
                    );
                }
                let crashed = switch.lost_in_crash + switch.lost_in_rings;
                add(&mut totals.switch_drops, "crash", crashed);
                totals.notifications_made += switch.sum(|port| port.cnps_made.get());
            }
            Node::Host(host) => {
                totals.add_past(&host.past.totals);
                if let Some(worker) = host.worker() {
                    totals.add_engine(worker.engine());
                }
            }
            Node::Tester(_) => {}
        }
    }
    for (index, wire) in simulation.fabric.wires.iter().enumerate() {
        let WireCount {
            lost,
            down,
            corrupted,
            duplicated,
            delayed,
            overrun,
            no_daemon,
            pauses,
            marked,
            ..
        } = wire.count;
        for (name, count) in [
            ("lost", lost),
            ("link_down", down),
            ("corrupted", corrupted),
            ("duplicated", duplicated),
            ("delayed", delayed),
            ("receive_ring_full", overrun),
            ("no_daemon", no_daemon),
        ] {
            add(&mut totals.wire, name, count);
        }
        totals.pauses += pauses;
        totals.marks += marked;
        totals.queue_bytes = totals.queue_bytes.max(simulation.samples.deepest(index));
    }
    totals
}

#[expect(clippy::cast_precision_loss, reason = "figures to show")]
fn links<const BYTES: bool>(simulation: &Simulation<BYTES>, began: Time) -> Vec<LinkFigures> {
    let whole = simulation.fabric.now().since(began);
    let plan = &simulation.fabric.plan;
    let name = |node: NodeId| plan.nodes[node.index()].name.clone();
    let wires = simulation.fabric.wires.iter().enumerate();
    wires
        .map(|(index, wire)| {
            let samples = &simulation.samples.wires[index];
            let before = samples.busy.first().copied().unwrap_or(0);
            let busy = (wire.count.busy - before) as f64 / 1000.0;
            LinkFigures {
                from: name(wire.from.node),
                to: name(wire.to.node),
                speed_bps: wire.speed.bps(),
                frames: wire.count.frames,
                bytes: wire.count.bytes,
                utilisation: (busy / whole.nanos().max(1) as f64).min(1.0),
                queue_bytes: simulation.samples.deepest(index),
            }
        })
        .collect()
}
