//! SW-24: what AI ECN costs a queue in an interval: from counters to thresholds.
//!
//! Each of 64 ports has a lossless queue whose traffic changes from interval to interval. Either
//! the scenarios that ship are known, so that the nearest one is looked for, or none is, so that
//! thresholds are searched. A change of thresholds, which publishes a policy, is not measured: it
//! is rare.

use crate::measure::{Better, Bound, Figure, Group, Subject, Term, busy_time};
use common::time::{Span, Time};
use common::units::Rate;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use switchd::config::{PortFacts, Qos};
use switchd::insight::ecn::{Controller, Model, View};
use switchd::stats::{QueueStats, WorkerStats};
use switchd::tables::PortEntry;
use switchd::tables::policy::Policy;
use switchd::tables::validation::SourceValidation;
use switchd::traffic::buffer::Ledger;

/// Ports, each with one queue.
const PORTS: u16 = 64;
/// The queue.
const CLASS: usize = 3;
/// Intervals of a turn: 10 to 40 ms of work.
const INTERVALS: u64 = 500;
/// The most that a queue may cost in an interval, in nanoseconds.
const MOST: f64 = 1_000.0;

const CONTENDERS: [&str; 2] = ["scenarios that ship", "no scenario is known"];

/// `[qos]` of switchd.
const QOS: &str = r#"
[buffer]
size_bytes = 402653184
[flow_control]
mode = "pfc"
[[group]]
groups = [3]
guaranteed_bytes = 4096
dynamic_th = 0
xon_offset_bytes = 8192
headroom = "auto"
[[queue]]
queues = [3]
guaranteed_bytes = 4096
lossless = true
[queue.wred]
min_bytes = 30000
max_bytes = 120000
[aiecn]
mode = "ai"
"#;

/// A switch as the controller sees it.
struct Case {
    controller: Controller,
    interval: Span,
    stats: Arc<WorkerStats>,
    now: Time,
    random: Pcg64Mcg,
}

/// The bench.
struct AiEcn {
    groups: [Group; 1],
    entries: Vec<PortEntry>,
    policy: Policy,
    ledger: Arc<Ledger>,
    cases: [Case; CONTENDERS.len()],
}

fn entry(port: u16) -> PortEntry {
    PortEntry {
        name: format!("p{port}"),
        ifindex: u32::from(port),
        mac: [2, 0, 0, 0, 0, 1],
        up: true,
        mtu: 1500,
        speed: Some(Rate::from_gbps(100)),
        link: Some(Rate::from_gbps(100)),
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        burst: 125_000,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

fn policy(qos: &Qos) -> Result<Policy, String> {
    let facts = |port: u16| PortFacts {
        name: format!("p{port}"),
        speed: Some(Rate::from_gbps(100)),
        link: Some(Rate::from_gbps(100)),
        burst: 1_250_000,
        mtu: 1500,
        ring: 1024,
        transmit_ring: 1024,
        uplink: false,
        announced: None,
    };
    let facts: Vec<PortFacts> = (0..PORTS).map(facts).collect();
    let compiled = qos
        .compile(&facts)
        .map_err(|refusals| refusals.to_string())?;
    Ok(compiled.policy)
}

/// Sets the switches up.
///
/// # Errors
/// If their configuration is refused.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let qos: Qos = toml::from_str(QOS).map_err(|error| error.to_string())?;
    let base_rtt = Span::from_micros(qos.base_rtt_microseconds);
    let settings = qos.aiecn.settings(base_rtt);
    let mut unknown = (*Model::shipped()).clone();
    // Nothing is as near as that.
    unknown.radius = -1.0;
    let case = |model: Arc<Model>| Case {
        controller: Controller::new(settings, model),
        interval: settings.interval,
        stats: WorkerStats::new(PORTS.into()),
        now: Time::from_nanos(1),
        random: Pcg64Mcg::seed_from_u64(1),
    };
    let figures = (0..CONTENDERS.len()).map(|contender| Figure {
        name: CONTENDERS[contender].to_owned(),
        unit: "ns a queue and interval",
        of: vec![Term {
            contender,
            weight: 1.0,
        }],
        to: Vec::new(),
        bound: Some(Bound::AtMost(MOST)),
    });
    Ok(Box::new(AiEcn {
        groups: [Group {
            title: format!("{PORTS} ports with a lossless queue each"),
            unit: "ns a queue and interval".to_owned(),
            better: Better::Low,
            contenders: CONTENDERS.map(str::to_owned).to_vec(),
            figures: figures.collect(),
        }],
        entries: (0..PORTS).map(entry).collect(),
        policy: policy(&qos)?,
        ledger: Ledger::new(PORTS.into(), 1),
        cases: [case(Model::shipped()), case(Arc::new(unknown))],
    }))
}

impl Case {
    /// An interval passes, in which each queue has sent something.
    fn pass(&mut self) {
        self.now += self.interval;
        for port in &self.stats.ports {
            let bits = self.random.next_u64();
            let packets = 1_000 + (bits & 0x3fff);
            let queue: &QueueStats = &port.queues[CLASS];
            queue.sent_packets.add(packets);
            queue.sent_bytes.add(packets * 1_000);
            queue
                .marked_packets
                .add(packets * (bits >> 16 & 0xff) / 512);
            let bytes = bits >> 24 & 0x3_ffff;
            queue.byte_time.add(bytes * self.interval.nanos());
            queue.shown_at.set(self.now.nanos());
            queue.flows.buckets.set(1 + (bits >> 42 & 31));
            queue.flows.even_milli.set(500 + (bits >> 47 & 0x3fff));
            queue.flows.sources.set(1 + (bits >> 61));
            queue.flows.answered.set(queue.flows.asked.get());
        }
    }
}

impl Subject for AiEcn {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, _: usize, contender: usize) -> Result<f64, String> {
        let case = &mut self.cases[contender];
        let mut busy = Duration::ZERO;
        for _ in 0..INTERVALS {
            case.pass();
            let view = View {
                now: case.now,
                ports: &self.entries,
                configured: &self.policy,
                ledger: &self.ledger,
                workers: &[&case.stats],
                owner: &|_| 0,
            };
            let began = busy_time();
            black_box(case.controller.tick(&view));
            busy += busy_time() - began;
        }
        let queues = case.controller.queues().count();
        if queues != usize::from(PORTS) {
            return Err(format!("{queues} queues are looked after, not {PORTS}"));
        }
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let each = busy.as_nanos() as f64 / (INTERVALS * u64::from(PORTS)) as f64;
        Ok(each)
    }
}
