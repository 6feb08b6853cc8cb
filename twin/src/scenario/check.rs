//! Checks a scenario file and makes a scenario from it, with a line and a reason for everything
//! that is refused.

use super::definition::{Scenario, Source};
use super::faults::fault;
use super::jobs::{collective, compute, jobs};
use super::keys::{At, Keys, bytes, number, period, place};
use super::raw::{Number, Payload, Raw, RawHost, RawTopology, ServiceName, TopologyKind};
use super::refusal::{Read, Refusal};
use super::switches::switches;
use super::values::Period;
use super::workloads::{FLOWS, source};
use crate::app::Verb;
use crate::flow::{Flow, Start};
use crate::frames::packet_memory;
use crate::host::bytes_between;
use crate::network::LinkClass;
use crate::topology::{Links, Shape};
use crate::workload::Pattern;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::queue::LINE_OVERHEAD;
use hostd::verbs::{EngineConfig, MultipathConfig};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use toml::Spanned;

/// Hosts of a simulation at most.
const HOSTS: usize = 4096;

/// Connections of one host at most: the queue pairs of a session.
const CONNECTIONS: usize = 1024;

/// How often a node looks at its ports, unless the scenario says: about as long as a turn of the
/// daemons takes.
const POLL: Span = Span::from_nanos(250);

/// Bytes of all frames at most. They take real memory only when they are used.
const MEMORY: u64 = 32 << 30;

/// Messages at most: each is remembered.
const MESSAGES: u64 = 16_000_000;

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
    let most = Span::from_millis(1);
    let poll = period(raw.poll.as_ref(), "poll", POLL, Span::ZERO..=most).map_err(refuse)?;
    let (mut host, verb, message) =
        self::host(&raw.host, links.host.speed, poll).map_err(refuse)?;
    signals(&raw, &mut host).map_err(refuse)?;
    telemetry(&raw, &mut host).map_err(refuse)?;
    guided(&raw.host, &host).map_err(refuse)?;
    let framing = number(&raw.topology.framing, "framing", 0..=1000).map_err(refuse)?;
    let plan = shape.plan(links, v6);
    let mut switch = switches(&raw, &plan, poll).map_err(refuse)?;
    let jobs = jobs(&raw, &plan).map_err(refuse)?;
    switch.compute = compute(text, &raw, !jobs.is_empty()).map_err(refuse)?;
    let collective = collective(&raw).map_err(refuse)?;
    let mut sources = Vec::new();
    for workload in &raw.workload {
        sources.push(source(workload, &plan, read, &line)?);
    }
    if sources.is_empty() && jobs.is_empty() {
        return Err(refuse((
            0,
            "there is no [[workload]], and no [[job]]".to_owned(),
        )));
    }
    let faults = raw.fault.iter().map(|raw| fault(raw, &plan));
    let faults = faults.collect::<At<Vec<_>>>().map_err(refuse)?;
    let faults = faults.into_iter().flatten().collect();
    let second = Span::from_secs(1);
    let sample = period(
        raw.sample.as_ref(),
        "sample",
        Span::from_micros(20),
        Span::from_nanos(100)..=second,
    );
    let sample = sample.map_err(refuse)?;
    let duration = raw.duration.as_ref();
    let duration = duration.map_or(Span::from_secs(10), |it| it.get_ref().0);
    let scenario = Scenario {
        name: name.to_owned(),
        about: raw.about.unwrap_or_default(),
        seed: raw.seed.unwrap_or(1),
        duration,
        sample,
        carries: raw.payload == Some(Payload::Carried),
        lossless: raw.lossless.unwrap_or(false),
        shape,
        links,
        v6,
        framing: framing.unwrap_or(LINE_OVERHEAD),
        switch,
        host,
        single_path: Vec::new(),
        slow_notifiers: Vec::new(),
        verb,
        describes: raw.host.describes.unwrap_or(false),
        unordered: unordered(&raw.host).map_err(refuse)?,
        message,
        sources,
        jobs,
        collective,
        faults,
    };
    // What all workloads have too much of shows at the last one.
    let last = raw.workload.last().map_or(0, |it| it.span().start);
    bounds(&scenario, scenario.seed).map_err(|reason| refuse((last, reason)))?;
    Ok(scenario)
}

/// How many flows a source makes, without making them.
fn flows(source: &Source) -> usize {
    match source {
        Source::Flows(workload, _) => workload.flows.len(),
        Source::Pattern(spec) => {
            let hosts = spec.hosts.len();
            match spec.pattern {
                Pattern::Permutation { rounds } => hosts * rounds,
                Pattern::Incast { senders, .. } => senders,
                Pattern::AllToAll { .. } => hosts * (hosts - 1),
                Pattern::RingAllreduce => 2 * hosts * (hosts - 1),
                Pattern::Poisson { count, .. } => 2 * count,
            }
        }
    }
}

/// What only shows when all flows are known, as `seed` draws them.
pub(super) fn bounds(scenario: &Scenario, seed: u64) -> Result<(), String> {
    let flows: usize = scenario.sources.iter().map(flows).sum();
    if flows > FLOWS {
        return Err(format!("{flows} flows, at most {FLOWS} are possible"));
    }
    let workload = scenario.workload(seed);
    let end = Time::ZERO + scenario.duration;
    let starts = |flow: &&Flow| matches!(flow.start, Start::At(at) if at >= end);
    if let Some(Flow { start, .. }) = workload.flows.iter().find(starts)
        && let Start::At(at) = start
    {
        let (at, end) = (at.since(Time::ZERO), scenario.duration);
        return Err(format!(
            "a flow starts at {at}, when all is over after {end} (duration)"
        ));
    }
    let message = u64::from(scenario.message);
    let messages = |flow: &Flow| flow.bytes.div_ceil(message);
    let messages: u64 = workload.flows.iter().map(messages).sum();
    if messages > MESSAGES {
        return Err(format!(
            "{messages} messages of {message} bytes, at most {MESSAGES} are possible"
        ));
    }
    let memory = packet_memory(
        &scenario.host,
        scenario.plan().nodes.len(),
        &workload,
        &scenario.jobs,
    );
    if memory > MEMORY {
        return Err(format!(
            "the frames that can be under way take {} GiB, {} are possible: fewer flows, or a smaller window",
            memory >> 30,
            MEMORY >> 30
        ));
    }
    let connections: HashSet<_> = workload.flows.iter().map(Flow::connection).collect();
    let mut ends = vec![0; scenario.shape.hosts()];
    for (from, to, ..) in connections {
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
        TopologyKind::MultiPlane => Shape::MultiPlane {
            planes: keys.need("planes", 1..=4)?,
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
    let delay = delay(raw.delay.as_ref(), Span::from_micros(1))?;
    let host = LinkClass { speed, delay };
    let fabric = LinkClass {
        speed: self::speed(raw.fabric_speed.as_ref(), speed)?,
        delay: self::delay(raw.fabric_delay.as_ref(), delay)?,
    };
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

fn delay(value: Option<&Spanned<Period>>, default: Span) -> At<Span> {
    let least = Span::from_nanos(1);
    period(value, "a delay", default, least..=Span::from_secs(1))
}

/// Lets hosts ask for congestion signals, if they are to.
fn signals(raw: &Raw, host: &mut EngineConfig) -> At<()> {
    let Some(signals) = &raw.host.csig else {
        return Ok(());
    };
    let at = signals.span().start;
    let Some(domain) = &raw.csig else {
        let reason = "host.csig needs [csig]: what TPIDs, buckets and units are";
        return Err((at, reason.to_owned()));
    };
    let (domain, signals) = (domain.get_ref(), signals.get_ref());
    let default = hostd::config::Csig::default();
    let every = number(&signals.every_packets, "every_packets", 1..=1_000_000)?;
    let every = every.map(|every| u32::try_from(every).expect("in range"));
    let csig = hostd::config::Csig {
        enabled: true,
        form: signals.form.unwrap_or(default.form),
        every_packets: every.unwrap_or(default.every_packets),
        signals: signals.signals.clone().unwrap_or(default.signals),
        host_locators: signals.host_locators.clone(),
        compact_tpid: domain.compact_tpid,
        expanded_tpid: domain.expanded_tpid,
        bandwidth: domain.bandwidth.clone(),
        share: domain.share.clone(),
        delay: domain.delay.clone(),
    };
    csig.validate().map_err(|it| (at, it.to_string()))?;
    host.csig = csig.signalling();
    if let Some(multipath) = &mut host.multipath {
        multipath.signals = true;
    }
    Ok(())
}

/// Lets packets of hosts carry telemetry, if they are to.
fn telemetry(raw: &Raw, host: &mut EngineConfig) -> At<()> {
    let Some(int) = &raw.host.int else {
        return Ok(());
    };
    let refused = |reason: &str| Err((int.span().start, reason.to_owned()));
    let Some(domain) = &raw.int else {
        return refused("host.int needs [int]: what the TPID is");
    };
    if host.csig.is_some() {
        return refused("a packet has one tag at most, and host.csig is there, too");
    }
    if host.base_rtt == Span::ZERO {
        return refused("needs host.base_rtt, which what telemetry says is reckoned against");
    }
    let every = number(&int.get_ref().every_packets, "every_packets", 1..=1_000_000)?;
    let config = hostd::config::Int {
        enabled: true,
        tpid: domain.get_ref().tpid,
        every_packets: every.map_or(1, |every| u32::try_from(every).expect("in range")),
    };
    host.int = config.terms();
    if let Some(multipath) = &mut host.multipath {
        multipath.telemetry = true;
    }
    Ok(())
}

/// Refuses congestion control that goes by signals which hosts do not ask for.
fn guided(raw: &RawHost, host: &EngineConfig) -> At<()> {
    let at = raw.congestion.as_ref().map_or(0, |it| it.span().start);
    let missing = host.congestion.missing(host.csig.as_deref(), host.int);
    missing.map_or(Ok(()), |missing| Err((at, missing.to_owned())))
}

/// The longest time of a host that is practical.
const LONGEST: Span = Span::from_secs(60);

/// A time of a host, from the shortest that makes sense at these speeds.
fn time(value: &Option<Spanned<Period>>, name: &'static str, default: Span) -> At<Span> {
    period(
        value.as_ref(),
        name,
        default,
        Span::from_nanos(100)..=LONGEST,
    )
}

fn small(value: &Number, name: &'static str, range: RangeInclusive<u64>) -> At<Option<u32>> {
    let number = number(value, name, range)?;
    Ok(number.map(|number| u32::try_from(number).expect("in range")))
}

fn short(value: &Number, name: &'static str, range: RangeInclusive<u64>, default: u16) -> At<u16> {
    let number = number(value, name, range)?;
    Ok(number.map_or(default, |number| u16::try_from(number).expect("in range")))
}

/// What a host offers of many paths.
fn multipath(raw: &RawHost) -> At<MultipathConfig> {
    let paths = MultipathConfig::default();
    let most = paths.reorder_packets;
    Ok(MultipathConfig {
        paths: short(&raw.paths, "paths", 1..=256, 16)?,
        granularity: raw.granularity.map_or(paths.granularity, Into::into),
        reorder_packets: short(&raw.reorder_packets, "reorder_packets", 1..=512, most)?,
        reorder_time: time(&raw.reorder_time, "reorder_time", Span::from_micros(200))?,
        reorder_buffer: paths.reorder_buffer,
        flowlet_timeout: time(
            &raw.flowlet_timeout,
            "flowlet_timeout",
            paths.flowlet_timeout,
        )?,
        ..paths
    })
}

/// Whether messages come as they become whole. Those of SENDs lie where their receive is, so their
/// place does not say which they are.
fn unordered(raw: &RawHost) -> At<bool> {
    let Some(service) = raw.service.as_ref() else {
        return Ok(false);
    };
    let unordered = *service.get_ref() == ServiceName::Unordered;
    if unordered && raw.verb == Some(Verb::Send) {
        let reason = "service = \"unordered\" is for verb = \"write\"".to_owned();
        return Err((service.span().start, reason));
    }
    Ok(unordered)
}

/// T_low and T_high of TIMELY.
fn timely(raw: &RawHost, [low, high]: [Span; 2]) -> At<[Span; 2]> {
    let low = time(&raw.timely_low, "timely_low", low)?;
    let range = low + Span::from_nanos(1)..=LONGEST;
    let high = period(
        raw.timely_high.as_ref(),
        "timely_high",
        high.max(low),
        range,
    )?;
    Ok([low, high])
}

fn host(raw: &RawHost, speed: Rate, poll: Span) -> At<(EngineConfig, Verb, u32)> {
    let defaults = EngineConfig::default();
    let path_mtu = short(&raw.path_mtu, "path_mtu", 256..=4096, 4096)?;
    if !path_mtu.is_power_of_two() {
        let reason = format!("path_mtu = {path_mtu} is not 256, 512, 1024, 2048 or 4096");
        return Err((place(&raw.path_mtu).unwrap_or(0), reason));
    }
    let rto_min = time(&raw.rto_min, "rto_min", Span::from_micros(500))?;
    let rto_initial = period(
        raw.rto_initial.as_ref(),
        "rto_initial",
        Span::from_millis(1).max(rto_min),
        rto_min..=LONGEST,
    )?;
    let config = EngineConfig {
        multipath: raw.multipath.unwrap_or(true).then_some(multipath(raw)?),
        path_mtu,
        window: small(&raw.window, "window", 1..=512)?.unwrap_or(defaults.window),
        ack_packets: small(&raw.ack_packets, "ack_packets", 1..=64)?
            .unwrap_or(defaults.ack_packets),
        ack_delay: time(&raw.ack_delay, "ack_delay", Span::from_micros(10))?,
        congestion: (raw.congestion.as_ref()).map_or(defaults.congestion, |it| *it.get_ref()),
        congestion_scope: raw.congestion_scope.unwrap_or(defaults.congestion_scope),
        cnp_interval: time(&raw.cnp_interval, "cnp_interval", defaults.cnp_interval)?,
        base_rtt: period(
            raw.base_rtt.as_ref(),
            "base_rtt",
            defaults.base_rtt,
            Span::ZERO..=LONGEST,
        )?,
        timely: timely(raw, defaults.timely)?,
        hpcc_flows: small(&raw.hpcc_flows, "hpcc_flows", 1..=1_000_000)?
            .unwrap_or(defaults.hpcc_flows),
        rttcc_probe: period(
            raw.rttcc_probe.as_ref(),
            "rttcc_probe",
            defaults.rttcc_probe,
            Span::from_micros(1)..=LONGEST,
        )?,
        spraying: raw.spraying.unwrap_or(defaults.spraying),
        saturation_percent: small(&raw.saturation_percent, "saturation_percent", 1..=100)?
            .and_then(|percent| u8::try_from(percent).ok())
            .unwrap_or(defaults.saturation_percent),
        rto_min,
        rto_initial,
        path_avoidance: period(
            raw.path_avoidance.as_ref(),
            "path_avoidance",
            Span::from_millis(1),
            Span::ZERO..=LONGEST,
        )?,
        reroute_round_trips: short(
            &raw.reroute_round_trips,
            "reroute_round_trips",
            0..=10_000,
            defaults.reroute_round_trips,
        )?,
        // Nobody is ever later than a poll: two packets, so that the rate is kept between turns.
        pacer_burst: 2 * u32::from(path_mtu) + bytes_between(speed, poll),
        reorder_frames: 1 << 16,
        ..defaults
    };
    let message = bytes(raw.message.as_ref(), 1 << 20, 1..=1 << 30)?;
    let message = u32::try_from(message).expect("in range");
    Ok((config, raw.verb.unwrap_or(Verb::Write), message))
}
