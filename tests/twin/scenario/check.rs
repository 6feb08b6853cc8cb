//! From what is written to what can be run, with a line and a reason for everything that cannot.

use super::raw::{
    FaultKind, Number, Payload, Raw, RawFault, RawHost, RawTopology, RawWorkload, TopologyKind,
    WorkloadKind,
};
use super::values::Bytes;
use super::{PlannedFault, Scenario, Source, Target};
use crate::twin::app::Verb;
use crate::twin::fault::Fault;
use crate::twin::matrix;
use crate::twin::network::{LinkClass, NodeId, Plan};
use crate::twin::switch::{SwitchSettings, burst};
use crate::twin::topology::{Links, Shape};
use crate::twin::wire::Weather;
use crate::twin::workload::{Pattern, Size, Spec};
use common::time::{Span, Time};
use common::units::Rate;
use hostd::engine::{EngineConfig, MultipathConfig};
use std::ops::RangeInclusive;
use toml::Spanned;

/// Hosts of a simulation at most.
const HOSTS: usize = 4096;

/// Connections of one host at most: the queue pairs of a session.
const CONNECTIONS: usize = 1024;

/// How often a node looks at its ports, unless the scenario says: about as long as a turn of the daemons takes.
const POLL: Span = Span::from_nanos(250);

/// Flows at most.
const FLOWS: usize = 4_000_000;

/// Why a text is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file that it names, if that is to blame.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

/// A place in the text and what is wrong there.
type At<T> = Result<T, (usize, String)>;

type Read<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Reads a scenario.
pub(super) fn scenario(text: &str, name: &str, read: Read<'_>) -> Result<Scenario, Refusal> {
    let line = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    let refuse = |(offset, reason): (usize, String)| Refusal {
        file: None,
        line: line(offset),
        reason,
    };
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        refuse((offset, error.message().to_owned()))
    })?;
    let (shape, links, v6) = topology(&raw.topology).map_err(refuse)?;
    let poll = raw.poll.map_or(POLL, |it| it.0);
    if poll > Span::from_millis(1) {
        return Err(refuse((0, "poll is longer than 1ms".to_owned())));
    }
    let (host, verb, message) = host(&raw.host, links.host.speed, poll).map_err(refuse)?;
    let queue = bytes(
        raw.switch.queue.as_ref(),
        1 << 20,
        4096..=u64::from(u32::MAX / 2),
    );
    let queue = queue.map_err(refuse)?;
    let packets = number(&raw.switch.packets, "packets", 16..=1 << 24).map_err(refuse)?;
    let plan = shape.plan(links, v6);
    let mut sources = Vec::new();
    for workload in &raw.workload {
        sources.push(source(workload, &plan, read, &line)?);
    }
    if sources.is_empty() {
        return Err(refuse((0, "there is no [[workload]]".to_owned())));
    }
    let faults = raw.fault.iter().map(|raw| fault(raw, &plan));
    let faults = faults.collect::<At<Vec<_>>>().map_err(refuse)?;
    let faults = faults.into_iter().flatten().collect();
    let duration = raw.duration.map_or(Span::from_secs(10), |it| it.0);
    let scenario = Scenario {
        name: name.to_owned(),
        about: raw.about.unwrap_or_default(),
        seed: raw.seed.unwrap_or(1),
        duration,
        sample: raw
            .sample
            .map_or(Span::from_micros(20), |it| it.0)
            .max(Span::from_nanos(100)),
        carries: raw.payload == Some(Payload::Carried),
        lossless: raw.lossless.unwrap_or(false),
        shape,
        links,
        v6,
        switch: SwitchSettings {
            queue: u32::try_from(queue).expect("in range"),
            packets: u32::try_from(packets.unwrap_or(1 << 16)).expect("in range"),
            mtu: 9000,
            poll,
            class_of_dscp: switchd::ingress::tables::default_classes(),
        },
        host,
        verb,
        message,
        sources,
        faults,
    };
    bounds(&scenario).map_err(|reason| refuse((0, reason)))?;
    Ok(scenario)
}

/// What only shows when all flows are known.
fn bounds(scenario: &Scenario) -> Result<(), String> {
    let mut random = rand_pcg::Pcg64Mcg::new(u128::from(scenario.seed));
    let workload = scenario.workload(&mut random);
    if workload.flows.len() > FLOWS {
        return Err(format!(
            "{} flows, at most {FLOWS} are possible",
            workload.flows.len()
        ));
    }
    let mut lanes: Vec<_> = workload
        .flows
        .iter()
        .map(|f| (f.from, f.to, f.lane))
        .collect();
    lanes.sort_unstable();
    lanes.dedup();
    let mut ends = vec![0; scenario.shape.hosts()];
    for (from, to, _) in lanes {
        ends[from.index()] += 1;
        ends[to.index()] += 1;
    }
    match ends.iter().position(|count| *count > CONNECTIONS) {
        Some(host) => Err(format!(
            "h{} takes part in {} connections, {CONNECTIONS} are possible",
            host + 1,
            ends[host]
        )),
        None => Ok(()),
    }
}

/// A number that may be left out, in its range.
fn number(value: &Number, name: &str, range: RangeInclusive<u64>) -> At<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    let number = *value.get_ref();
    if range.contains(&number) {
        return Ok(Some(number));
    }
    let reason = format!(
        "{name} = {number} is not in {}..={}",
        range.start(),
        range.end()
    );
    Err((value.span().start, reason))
}

fn bytes(value: Option<&Spanned<Bytes>>, default: u64, range: RangeInclusive<u64>) -> At<u64> {
    let Some(value) = value else {
        return Ok(default);
    };
    let Bytes(bytes) = *value.get_ref();
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let reason = format!(
        "{bytes} bytes are not in {}..={}",
        range.start(),
        range.end()
    );
    Err((value.span().start, reason))
}

/// Keys of a table of which each kind has its own.
struct Keys<'a> {
    /// Where the kind stands.
    at: usize,
    kind: String,
    keys: Vec<(&'static str, Option<usize>, &'a Number)>,
}

/// A key that is not a number: where it stands, if it does.
fn place<T>(value: &Option<Spanned<T>>) -> Option<usize> {
    value.as_ref().map(|value| value.span().start)
}

const NO_NUMBER: Number = None;

impl<'a> Keys<'a> {
    fn new(at: usize, kind: &impl std::fmt::Debug) -> Self {
        Self {
            at,
            kind: format!("{kind:?}"),
            keys: Vec::new(),
        }
    }

    fn with(mut self, name: &'static str, value: &'a Number) -> Self {
        self.keys.push((name, place(value), value));
        self
    }

    fn with_other(mut self, name: &'static str, at: Option<usize>) -> Self {
        self.keys.push((name, at, &NO_NUMBER));
        self
    }

    /// A number of this kind, which must be there.
    fn need(&mut self, name: &str, range: RangeInclusive<u64>) -> At<usize> {
        match self.may(name, range)? {
            Some(number) => Ok(number),
            None => Err((self.at, format!("{} needs {name}", self.kind))),
        }
    }

    /// A number of this kind, which may be there.
    fn may(&mut self, name: &str, range: RangeInclusive<u64>) -> At<Option<usize>> {
        let found = self.keys.iter().position(|(key, ..)| *key == name);
        let (_, _, value) = self.keys.remove(found.expect("a key of the table"));
        let number = number(value, name, range)?;
        Ok(number.map(|number| usize::try_from(number).expect("in range")))
    }

    /// This kind has a key of this name.
    fn has(&mut self, name: &str) {
        self.keys.retain(|(key, ..)| *key != name);
    }

    /// All that this kind has were asked for: what else is there is too much.
    fn end(self) -> At<()> {
        match self
            .keys
            .iter()
            .find_map(|(name, at, _)| Some((name, (*at)?)))
        {
            Some((name, at)) => Err((at, format!("{} has no {name}", self.kind))),
            None => Ok(()),
        }
    }
}

fn topology(raw: &RawTopology) -> At<(Shape, Links, bool)> {
    let kind = *raw.kind.get_ref();
    let at = raw.kind.span().start;
    let mut keys = Keys::new(at, &kind)
        .with("hosts", &raw.hosts)
        .with("leaves", &raw.leaves)
        .with("spines", &raw.spines)
        .with("hosts_per_leaf", &raw.hosts_per_leaf)
        .with("k", &raw.k)
        .with("planes", &raw.planes)
        .with("switches", &raw.switches)
        .with("hosts_per_switch", &raw.hosts_per_switch);
    let shape = match kind {
        TopologyKind::Pair => Shape::Pair,
        TopologyKind::Star => Shape::Star {
            hosts: keys.need("hosts", 2..=250)?,
        },
        TopologyKind::Dumbbell => Shape::Dumbbell {
            hosts: keys.need("hosts", 2..=500)?,
        },
        TopologyKind::LeafSpine => Shape::LeafSpine {
            leaves: keys.need("leaves", 1..=128)?,
            spines: keys.need("spines", 1..=128)?,
            hosts_per_leaf: keys.need("hosts_per_leaf", 1..=128)?,
        },
        TopologyKind::FatTree => {
            let k = keys.need("k", 2..=24)?;
            if k % 2 != 0 {
                return Err((at, format!("k = {k} is odd: half of the ports lead up")));
            }
            Shape::FatTree { k }
        }
        TopologyKind::Planes => Shape::Planes {
            planes: keys.need("planes", 1..=16)?,
            leaves: keys.need("leaves", 1..=64)?,
            spines: keys.need("spines", 1..=64)?,
            hosts_per_leaf: keys.need("hosts_per_leaf", 1..=64)?,
        },
        TopologyKind::Ring => Shape::Ring {
            switches: keys.need("switches", 3..=64)?,
            hosts_per_switch: keys.need("hosts_per_switch", 1..=64)?,
        },
    };
    keys.end()?;
    let hosts = shape.hosts();
    if !(2..=HOSTS).contains(&hosts) {
        return Err((at, format!("{hosts} hosts, 2 to {HOSTS} are possible")));
    }
    let speed = speed(raw.speed.as_ref(), Rate::from_gbps(100))?;
    let delay = raw.delay.map_or(Span::from_micros(1), |it| it.0);
    let host = LinkClass { speed, delay };
    let fabric = LinkClass {
        speed: self::speed(raw.fabric_speed.as_ref(), speed)?,
        delay: raw.fabric_delay.map_or(delay, |it| it.0),
    };
    for delay in [host.delay, fabric.delay] {
        if delay == Span::ZERO || delay > Span::from_secs(1) {
            return Err((at, format!("a delay of {delay} is not between 1ns and 1s")));
        }
    }
    let v6 = number(&raw.ip, "ip", 4..=6)?;
    if v6 == Some(5) {
        return Err((place(&raw.ip).unwrap_or(at), "ip is 4 or 6".to_owned()));
    }
    Ok((shape, Links { host, fabric }, v6 == Some(6)))
}

fn speed(value: Option<&Spanned<Rate>>, default: Rate) -> At<Rate> {
    let Some(value) = value else {
        return Ok(default);
    };
    let speed = *value.get_ref();
    if (1_000_000..=1_600_000_000_000).contains(&speed.bps()) {
        return Ok(speed);
    }
    Err((
        value.span().start,
        format!("{speed} is not between 1Mbps and 1600Gbps"),
    ))
}

fn host(raw: &RawHost, speed: Rate, poll: Span) -> At<(EngineConfig, Verb, u32)> {
    let defaults = EngineConfig::default();
    let paths = MultipathConfig::default();
    let small = |value: &Number, name, range| -> At<Option<u32>> {
        let number = number(value, name, range)?;
        Ok(number.map(|number| u32::try_from(number).expect("in range")))
    };
    let short = |value: &Number, name, range, default: u16| -> At<u16> {
        let number = number(value, name, range)?;
        Ok(number.map_or(default, |number| u16::try_from(number).expect("in range")))
    };
    let path_mtu = short(&raw.path_mtu, "path_mtu", 256..=4096, 4096)?;
    if !path_mtu.is_power_of_two() {
        let reason = format!("path_mtu = {path_mtu} is not 256, 512, 1024, 2048 or 4096");
        return Err((place(&raw.path_mtu).unwrap_or(0), reason));
    }
    let multipath = MultipathConfig {
        paths: short(&raw.paths, "paths", 1..=256, 16)?,
        granularity: raw.granularity.map_or(paths.granularity, Into::into),
        reorder_packets: short(
            &raw.reorder_packets,
            "reorder_packets",
            1..=512,
            paths.reorder_packets,
        )?,
        reorder_time: raw.reorder_time.map_or(Span::from_micros(200), |it| it.0),
        reorder_buffer: paths.reorder_buffer,
        flowlet_timeout: raw.flowlet_timeout.map_or(paths.flowlet_timeout, |it| it.0),
    };
    let config = EngineConfig {
        multipath: raw.multipath.unwrap_or(true).then_some(multipath),
        path_mtu,
        window: small(&raw.window, "window", 1..=512)?.unwrap_or(defaults.window),
        ack_packets: small(&raw.ack_packets, "ack_packets", 1..=64)?
            .unwrap_or(defaults.ack_packets),
        ack_delay: raw.ack_delay.map_or(Span::from_micros(10), |it| it.0),
        rto_min: raw.rto_min.map_or(Span::from_micros(500), |it| it.0),
        rto_initial: raw.rto_initial.map_or(Span::from_millis(1), |it| it.0),
        path_avoidance: raw.path_avoidance.map_or(Span::from_millis(1), |it| it.0),
        // Nobody is ever later than a poll: two packets, so that the rate is kept between turns.
        pacer_burst: 2 * u32::from(path_mtu) + burst(speed, poll),
        reorder_frames: 1 << 16,
        ..defaults
    };
    let message = bytes(raw.message.as_ref(), 1 << 20, 1..=1 << 30)?;
    let message = u32::try_from(message).expect("in range");
    Ok((config, raw.verb.unwrap_or(Verb::Write), message))
}

fn find(plan: &Plan, name: &Spanned<String>) -> At<NodeId> {
    plan.node_named(name.get_ref()).ok_or_else(|| {
        let reason = format!("there is no node {:?} in this topology", name.get_ref());
        (name.span().start, reason)
    })
}

fn find_host(plan: &Plan, name: &str, at: usize) -> At<NodeId> {
    let found = plan.node_named(name);
    found
        .filter(|node| node.index() < plan.hosts)
        .ok_or_else(|| {
            (
                at,
                format!("there is no host {name:?}: they are h1 to h{}", plan.hosts),
            )
        })
}

fn hosts(raw: &RawWorkload, plan: &Plan) -> At<Vec<NodeId>> {
    let Some(list) = &raw.hosts else {
        return Ok(plan.host_ids().collect());
    };
    let at = list.span().start;
    let mut hosts = Vec::new();
    for item in list.get_ref() {
        let (first, last) = item.split_once("..").unwrap_or((item, item));
        let (first, last) = (find_host(plan, first, at)?, find_host(plan, last, at)?);
        if first > last {
            return Err((at, format!("{item:?} runs backwards")));
        }
        hosts.extend((first.0..=last.0).map(NodeId));
    }
    let mut sorted = hosts.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != hosts.len() {
        return Err((at, "a host is named twice".to_owned()));
    }
    if hosts.len() < 2 {
        return Err((at, "at least two hosts take part".to_owned()));
    }
    Ok(hosts)
}

fn source(
    spanned: &Spanned<RawWorkload>,
    plan: &Plan,
    read: Read<'_>,
    line: &dyn Fn(usize) -> usize,
) -> Result<Source, Refusal> {
    let raw = spanned.get_ref();
    let refuse = |(offset, reason): (usize, String)| Refusal {
        file: None,
        line: line(offset),
        reason,
    };
    let kind = *raw.kind.get_ref();
    let name = raw.name.clone();
    let name = name.unwrap_or_else(|| format!("{kind:?}").to_lowercase());
    if kind != WorkloadKind::Matrix {
        let spec = pattern(raw, plan, name).map_err(refuse)?;
        return Ok(Source::Pattern(spec));
    }
    let mut keys = workload_keys(raw);
    keys.has("file");
    keys.end().map_err(refuse)?;
    let at = raw.kind.span().start;
    let file = raw.file.as_ref();
    let file = file.ok_or_else(|| refuse((at, "Matrix needs file".to_owned())))?;
    let text = read(file.get_ref()).map_err(|error| {
        let reason = format!("{}: {error}", file.get_ref());
        refuse((file.span().start, reason))
    })?;
    let start = Time::ZERO + raw.start.map_or(Span::ZERO, |it| it.0);
    match matrix::read(&text, plan.hosts, start, 0) {
        Ok(workload) => Ok(Source::Flows(workload, name)),
        Err(error) => Err(Refusal {
            file: Some(file.get_ref().clone()),
            line: error.line,
            reason: error.reason,
        }),
    }
}

fn workload_keys(raw: &RawWorkload) -> Keys<'_> {
    Keys::new(raw.kind.span().start, raw.kind.get_ref())
        .with("rounds", &raw.rounds)
        .with("senders", &raw.senders)
        .with("parallel", &raw.parallel)
        .with("count", &raw.count)
        .with_other("hosts", place(&raw.hosts))
        .with_other("size", place(&raw.size))
        .with_other("sizes", place(&raw.sizes))
        .with_other("response", place(&raw.response))
        .with_other("response_sizes", place(&raw.response_sizes))
        .with_other("target", place(&raw.target))
        .with_other("load", place(&raw.load))
        .with_other("file", place(&raw.file))
}

type Sized<'a, T> = Option<&'a Spanned<T>>;

fn size(fixed: Sized<'_, Bytes>, drawn: Sized<'_, crate::twin::sizes::Sizes>) -> At<Option<Size>> {
    match (fixed, drawn) {
        (Some(fixed), None) => Ok(Some(Size::Fixed(bytes(Some(fixed), 0, 1..=1 << 40)?))),
        (None, Some(drawn)) => Ok(Some(Size::Drawn(*drawn.get_ref()))),
        (None, None) => Ok(None),
        (Some(_), Some(drawn)) => {
            let reason = "either one size for all or a distribution of sizes".to_owned();
            Err((drawn.span().start, reason))
        }
    }
}

fn pattern(raw: &RawWorkload, plan: &Plan, name: String) -> At<Spec> {
    let at = raw.kind.span().start;
    let hosts = hosts(raw, plan)?;
    let most = hosts.len() as u64;
    let mut keys = workload_keys(raw);
    for common in ["hosts", "size", "sizes"] {
        keys.has(common);
    }
    let sized = size(raw.size.as_ref(), raw.sizes.as_ref())?;
    let pattern = match *raw.kind.get_ref() {
        WorkloadKind::Permutation => Pattern::Permutation {
            rounds: keys.may("rounds", 1..=1000)?.unwrap_or(1),
        },
        WorkloadKind::Incast => {
            keys.has("target");
            let target = match &raw.target {
                None => None,
                Some(name) => {
                    let target = find_host(plan, name.get_ref(), name.span().start)?;
                    if !hosts.contains(&target) {
                        let reason = format!("{} takes no part", name.get_ref());
                        return Err((name.span().start, reason));
                    }
                    Some(target)
                }
            };
            let senders = keys.may("senders", 1..=most - 1)?;
            Pattern::Incast {
                senders: senders.unwrap_or(hosts.len() - 1),
                target,
            }
        }
        WorkloadKind::AllToAll => Pattern::AllToAll {
            parallel: keys.may("parallel", 1..=most - 1)?.unwrap_or(1),
        },
        WorkloadKind::RingAllreduce => Pattern::RingAllreduce,
        WorkloadKind::Poisson => {
            for own in ["response", "response_sizes", "load"] {
                keys.has(own);
            }
            Pattern::Poisson {
                load: load(raw, at)?,
                count: keys.need("count", 1..=FLOWS as u64)?,
                response: size(raw.response.as_ref(), raw.response_sizes.as_ref())?,
            }
        }
        WorkloadKind::Matrix => unreachable!("read elsewhere"),
    };
    keys.end()?;
    let size = sized.ok_or((at, "the workload needs size, or sizes".to_owned()))?;
    Ok(Spec {
        pattern,
        size,
        start: raw.start.map_or(Span::ZERO, |it| it.0),
        hosts,
        name,
    })
}

/// The load in thousandths.
fn load(raw: &RawWorkload, at: usize) -> At<u32> {
    let Some(load) = &raw.load else {
        return Err((at, "Poisson needs load".to_owned()));
    };
    let part = *load.get_ref();
    if !(0.001..=2.0).contains(&part) {
        return Err((
            load.span().start,
            format!("load = {part} is not between 0.001 and 2"),
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked"
    )]
    let thousandths = (part * 1000.0).round() as u32;
    Ok(thousandths)
}

fn fault(spanned: &Spanned<RawFault>, plan: &Plan) -> At<Vec<PlannedFault>> {
    let raw = spanned.get_ref();
    let at = raw.kind.span().start;
    let kind = *raw.kind.get_ref();
    let mut keys = Keys::new(at, &kind)
        .with("count", &raw.count)
        .with_other("link", place(&raw.link))
        .with_other("node", place(&raw.node))
        .with_other("lasting", place(&raw.lasting))
        .with_other("loss", place(&raw.loss))
        .with_other("corruption", place(&raw.corruption))
        .with_other("duplication", place(&raw.duplication))
        .with_other("reordering", place(&raw.reordering))
        .with_other("lateness", place(&raw.lateness))
        .with_other("interval", place(&raw.interval))
        .with_other("ppm", place(&raw.ppm));
    let from = raw.from.as_ref().map_or(Span::ZERO, |it| it.get_ref().0);
    let until = raw.until.as_ref().map_or(Span::MAX, |it| it.get_ref().0);
    if until <= from {
        return Err((
            place(&raw.until).unwrap_or(at),
            "until is not after from".to_owned(),
        ));
    }
    let targets: Vec<Target> = match kind {
        FaultKind::Weather => {
            for own in [
                "link",
                "loss",
                "corruption",
                "duplication",
                "reordering",
                "lateness",
            ] {
                keys.has(own);
            }
            let weather = weather(raw, at)?;
            let links = links(raw, plan, at)?.unwrap_or_default();
            let harmed = |link| Target::Here(Fault::Weather(link, weather));
            links.into_iter().map(harmed).collect()
        }
        FaultKind::LinkDown => {
            keys.has("link");
            match links(raw, plan, at)? {
                Some(links) => links
                    .into_iter()
                    .map(|it| Target::Here(Fault::LinkDown(it)))
                    .collect(),
                None => vec![Target::AnyLink],
            }
        }
        FaultKind::Crash => {
            keys.has("node");
            match nodes(raw, plan, at)? {
                Some(nodes) => nodes
                    .into_iter()
                    .map(|it| Target::Here(Fault::Crash(it)))
                    .collect(),
                None if plan.nodes.len() == plan.hosts => {
                    return Err((at, "there is no switch to crash".to_owned()));
                }
                None => vec![Target::AnySwitch],
            }
        }
        FaultKind::PfcStorm => {
            keys.has("node");
            keys.has("interval");
            let interval = raw
                .interval
                .as_ref()
                .map_or(Span::from_micros(10), |it| it.get_ref().0);
            if interval < Span::from_nanos(100) {
                return Err((
                    place(&raw.interval).unwrap_or(at),
                    "an interval below 100ns".to_owned(),
                ));
            }
            let nodes = nodes(raw, plan, at)?.unwrap_or_default();
            if nodes.is_empty() || nodes.iter().any(|node| node.index() >= plan.hosts) {
                return Err((
                    place(&raw.node).unwrap_or(at),
                    "a storm comes from a host".to_owned(),
                ));
            }
            let storm = |node| Target::Here(Fault::PfcStorm(node, interval));
            nodes.into_iter().map(storm).collect()
        }
        FaultKind::Drift => {
            keys.has("node");
            keys.has("ppm");
            let ppm = raw.ppm.as_ref().map(|it| (*it.get_ref(), it.span().start));
            let (ppm, ppm_at) = ppm.ok_or((at, "Drift needs ppm".to_owned()))?;
            if !(-100_000..=100_000).contains(&ppm) {
                return Err((ppm_at, format!("ppm = {ppm} is not in -100000..=100000")));
            }
            let nodes = nodes(raw, plan, at)?.unwrap_or_default();
            let drifts = |node| Target::Here(Fault::Drift(node, ppm));
            nodes.into_iter().map(drifts).collect()
        }
    };
    let random = at_random(raw, kind, &mut keys, at)?;
    keys.end()?;
    if targets.is_empty() {
        return Err((at, format!("{kind:?} needs a place: link, or node")));
    }
    let planned = |fault| PlannedFault {
        fault,
        from,
        until,
        random,
    };
    Ok(targets.into_iter().map(planned).collect())
}

/// How often a fault happens at random times, and how long.
fn at_random(
    raw: &RawFault,
    kind: FaultKind,
    keys: &mut Keys<'_>,
    at: usize,
) -> At<Option<(usize, Span)>> {
    if !matches!(kind, FaultKind::LinkDown | FaultKind::Crash) {
        return Ok(None);
    }
    keys.has("lasting");
    let count = keys.may("count", 1..=10_000)?;
    match (count, &raw.lasting, &raw.until) {
        (None, None, _) => Ok(None),
        (Some(count), Some(lasting), Some(_)) => Ok(Some((count, lasting.get_ref().0))),
        _ => Err((
            at,
            "at random times: count, lasting and until go together".to_owned(),
        )),
    }
}

fn weather(raw: &RawFault, at: usize) -> At<Weather> {
    let chance = |value: &Option<Spanned<super::values::Chance>>| {
        value.as_ref().map_or(0.0, |value| value.get_ref().0)
    };
    let weather = Weather {
        loss: chance(&raw.loss),
        corruption: chance(&raw.corruption),
        duplication: chance(&raw.duplication),
        reordering: chance(&raw.reordering),
        lateness: raw
            .lateness
            .as_ref()
            .map_or(Span::ZERO, |it| it.get_ref().0),
    };
    if weather.is_fair() {
        return Err((
            at,
            "weather without loss, corruption, duplication or reordering".to_owned(),
        ));
    }
    if weather.reordering > 0.0 && weather.lateness == Span::ZERO {
        return Err((at, "reordering needs lateness".to_owned()));
    }
    Ok(weather)
}

/// The links that a fault names; `None` if any will do.
fn links(raw: &RawFault, plan: &Plan, at: usize) -> At<Option<Vec<usize>>> {
    let Some(name) = &raw.link else {
        return Err((
            at,
            "the fault needs link: A-B, \"*\" for all, \"?\" for any".to_owned(),
        ));
    };
    let text = name.get_ref().as_str();
    let there = name.span().start;
    if text == "*" {
        return Ok(Some((0..plan.links.len()).collect()));
    }
    if text == "?" {
        return Ok(None);
    }
    let (pair, which) = text.split_once('#').unwrap_or((text, ""));
    let nodes = pair
        .split_once('-')
        .and_then(|(a, b)| plan.node_named(a).zip(plan.node_named(b)));
    let Some((a, b)) = nodes else {
        return Err((
            there,
            format!("there is no link {text:?}: name two nodes, like leaf1-spine1"),
        ));
    };
    let mut links: Vec<usize> = plan.links_between(a, b).collect();
    if !which.is_empty() {
        let place = which.parse::<usize>().unwrap_or(0).wrapping_sub(1);
        links = links.get(place).copied().into_iter().collect();
    }
    if links.is_empty() {
        return Err((there, format!("there is no link {text:?}")));
    }
    Ok(Some(links))
}

/// The nodes that a fault names; `None` if any switch will do.
fn nodes(raw: &RawFault, plan: &Plan, at: usize) -> At<Option<Vec<NodeId>>> {
    let Some(name) = &raw.node else {
        return Err((
            at,
            "the fault needs node: a name, \"*\" for all, \"?\" for any switch".to_owned(),
        ));
    };
    match name.get_ref().as_str() {
        "*" => {
            let all = 0..u32::try_from(plan.nodes.len()).expect("few nodes");
            Ok(Some(all.map(NodeId).collect()))
        }
        "?" => Ok(None),
        _ => Ok(Some(vec![find(plan, name)?])),
    }
}
