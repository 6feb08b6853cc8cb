//! Random scenarios from random seeds: they combine topologies, workloads and faults that no
//! shipped scenario has.
//!
//! A scenario is a function of its seed alone, so the seed is all that a failure has to report.

use super::app::Verb;
use super::check::Failure;
use super::fault::Fault;
use super::host::bytes_between;
use super::network::{LinkClass, NodeId, Plan};
use super::scenario::{PlannedFault, Scenario, Source, Target};
use super::simulation::run;
use super::sizes::Sizes;
use super::switch::SwitchSettings;
use super::topology::{Links, Shape};
use super::wire::Impairment;
use super::workload::{Pattern, Size, Spec};
use common::time::Span;
use common::units::Rate;
use common::xdp::queue::LINE_OVERHEAD;
use hostd::verbs::{EngineConfig, Granularity, MultipathConfig};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// After so many scenarios.
    pub count: u64,
    /// After so much real time.
    pub time: Option<Duration>,
    /// When this is set.
    pub flag: &'static AtomicBool,
}

impl Stop {
    /// Whether a run that began at `start` and has done so many goes on.
    pub(crate) fn goes_on(&self, done: u64, start: Instant) -> bool {
        done < self.count
            && self.time.is_none_or(|time| start.elapsed() < time)
            && !self.flag.load(Ordering::Relaxed)
    }
}

/// A series of random scenarios.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// The first seed.
    pub first: u64,
    /// When to stop.
    pub stop: Stop,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Scenarios that ended well.
    pub scenarios: u64,
    /// Their flows.
    pub flows: u64,
    /// Those of them whose connection ended first, because of a fault.
    pub aborted: u64,
    /// Their faults.
    pub faults: u64,
    /// Their packet-hops.
    pub hops: u64,
    /// The last seed.
    pub seed: u64,
    /// The last scenario, in a few words.
    pub scenario: String,
}

impl Soak {
    /// Runs until told to stop. `watch` is told of each scenario before it runs.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn run(&self, watch: &mut dyn FnMut(&Done)) -> Result<Done, Failure> {
        let start = Instant::now();
        let mut done = Done::default();
        while self.stop.goes_on(done.scenarios, start) {
            let seed = self.first.wrapping_add(done.scenarios);
            let scenario = scenario(seed);
            done.seed = seed;
            done.scenario.clone_from(&scenario.about);
            watch(&done);
            let outcome = run(&scenario, seed)?;
            done.scenarios += 1;
            done.flows += outcome.flows.len() as u64;
            done.faults += scenario.faults.len() as u64;
            done.hops += outcome.hops;
            done.aborted += outcome
                .classes
                .iter()
                .map(|class| class.aborted as u64)
                .sum::<u64>();
        }
        Ok(done)
    }
}

/// Draws numbers and choices.
pub(crate) struct Dice(Pcg64Mcg);

impl Dice {
    /// Those of a seed, for one purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(purpose)))
    }

    /// A number whose size is drawn first, so that all sizes are as likely.
    pub(crate) fn log(&mut self, least: u32, most: u32) -> u32 {
        let bits = self.between(least.ilog2().into(), most.ilog2().into());
        let number = (1 << bits) + self.between(0, (1 << bits) - 1);
        u32::try_from(number).unwrap_or(most).clamp(least, most)
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.next_u64() % (most - least + 1)
    }

    pub(crate) fn count(&mut self, least: usize, most: usize) -> usize {
        usize::try_from(self.between(least as u64, most as u64)).expect("small")
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.0.next_u64().is_multiple_of(chances)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.count(0, from.len() - 1)]
    }
}

/// The random scenario of a seed.
pub fn scenario(seed: u64) -> Scenario {
    let mut dice = Dice::new(seed, 0x50a4);
    let shape = shape(&mut dice);
    let links = links(&mut dice);
    let v6 = dice.one_in(2);
    let poll = Span::from_nanos(dice.pick(&[0, 0, 250, 2000]));
    let plan = shape.plan(links, v6);
    let patterns = dice.count(1, 2);
    let sources: Vec<Source> = (0..patterns)
        .map(|number| Source::Pattern(spec(&mut dice, &plan, number)))
        .collect();
    let faults = faults(&mut dice, &plan);
    let about = format!(
        "{shape:?}, {} of {}, {} patterns, {} faults",
        links.host.speed,
        links.host.delay,
        sources.len(),
        faults.len()
    );
    Scenario {
        name: "soak".to_owned(),
        about,
        seed,
        // A plain connection whose window is larger than a slow queue repeats most of what it
        // sends: it takes its time.
        duration: Span::from_secs(600),
        sample: Span::from_millis(1),
        carries: dice.one_in(4),
        lossless: false,
        shape,
        links,
        v6,
        framing: LINE_OVERHEAD,
        switch: SwitchSettings {
            queue: dice.pick(&[64 << 10, 256 << 10, 1 << 20]),
            packets: 1 << 14,
            mtu: 9000,
            poll,
            qos: None,
            dlb: None,
            csig: None,
            int: None,
            iqcn: None,
            compute: None,
            secret: None,
            model: None,
        },
        host: host(&mut dice, links, poll),
        jobs: Vec::new(),
        collective: hostd::config::Collective::default(),
        single_path: Vec::new(),
        slow_notifiers: Vec::new(),
        describes: false,
        unordered: false,
        verb: dice.pick(&[Verb::Write, Verb::Send]),
        message: dice.pick(&[100, 4096, 65_536, 1 << 20]),
        sources,
        faults,
    }
}

fn shape(dice: &mut Dice) -> Shape {
    match dice.between(0, 6) {
        0 => Shape::Pair,
        1 => Shape::Star {
            hosts: dice.count(2, 10),
        },
        2 => Shape::Dumbbell {
            hosts: dice.count(2, 8),
        },
        3 => Shape::LeafSpine {
            leaves: dice.count(1, 4),
            spines: dice.count(1, 4),
            hosts_per_leaf: dice.count(2, 4),
        },
        4 => Shape::FatTree { k: 4 },
        5 => Shape::Planes {
            planes: dice.count(1, 3),
            leaves: dice.count(1, 3),
            spines: dice.count(1, 2),
            hosts_per_leaf: dice.count(2, 3),
        },
        _ => Shape::Ring {
            switches: dice.count(3, 5),
            hosts_per_switch: dice.count(1, 3),
        },
    }
}

fn links(dice: &mut Dice) -> Links {
    let speed = Rate::from_gbps(dice.pick(&[1, 10, 25, 100, 400]));
    let delay = Span::from_nanos(dice.pick(&[100, 500, 1000, 5000, 20_000]));
    let slower = dice.pick(&[1, 1, 2, 4]);
    Links {
        host: LinkClass { speed, delay },
        fabric: LinkClass {
            speed: Rate::from_bps(speed.bps() / slower),
            delay,
        },
    }
}

fn host(dice: &mut Dice, links: Links, poll: Span) -> EngineConfig {
    let path_mtu = dice.pick(&[256, 1024, 4096]);
    // As an operator would choose: enough time for all queues on the way to drain.
    let queues = links.fabric.speed.time_for(8 * (1 << 20));
    let drain_time = queues + links.fabric.delay.times(20) + Span::from_micros(100);
    EngineConfig {
        multipath: (!dice.one_in(5)).then(|| MultipathConfig {
            paths: dice.pick(&[1, 4, 16, 64]),
            granularity: dice.pick(&[Granularity::Flow, Granularity::Flowlet, Granularity::Packet]),
            reorder_packets: dice.pick(&[16, 128, 256]),
            reorder_time: dice.pick(&[Span::from_micros(100), drain_time]),
            ..MultipathConfig::default()
        }),
        path_mtu,
        window: dice.pick(&[8, 64, 224]),
        reorder_frames: 1 << 16,
        rto_min: drain_time,
        rto_initial: drain_time.times(2),
        ack_packets: dice.pick(&[1, 8, 16]),
        ack_delay: dice.pick(&[Span::from_micros(5), Span::from_micros(100)]),
        path_avoidance: Span::from_millis(2),
        pacer_burst: 2 * u32::from(path_mtu) + bytes_between(links.host.speed, poll),
        ..EngineConfig::default()
    }
}

fn spec(dice: &mut Dice, plan: &Plan, number: usize) -> Spec {
    let hosts: Vec<NodeId> = plan.host_ids().collect();
    let size = match dice.between(0, 3) {
        0 => Size::Drawn(dice.pick(&[Sizes::WebSearch, Sizes::Hadoop, Sizes::Training])),
        1 => Size::Fixed(dice.between(1, 2000)),
        2 => Size::Fixed(dice.between(10_000, 100_000)),
        _ => Size::Fixed(dice.between(500_000, 2_000_000)),
    };
    let pattern = match dice.between(0, 4) {
        0 => Pattern::Permutation {
            rounds: dice.count(1, 3),
        },
        1 => Pattern::Incast {
            senders: dice.count(1, hosts.len() - 1),
            target: None,
        },
        2 => Pattern::AllToAll { parallel: 1 },
        3 => Pattern::RingAllreduce,
        _ => Pattern::Poisson {
            load: u32::try_from(dice.between(100, 900)).expect("small"),
            count: dice.count(5, 60),
            response: dice.one_in(2).then_some(Size::Fixed(1000)),
            target: None,
        },
    };
    Spec {
        pattern,
        size,
        start: Span::from_micros(dice.between(0, 50)),
        hosts,
        name: format!("pattern {}", number + 1),
        apart: false,
    }
}

fn faults(dice: &mut Dice, plan: &Plan) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    let any_node = |dice: &mut Dice| {
        let node = dice.count(0, plan.nodes.len() - 1);
        NodeId(u32::try_from(node).expect("few nodes"))
    };
    let count = dice.count(0, 4);
    for _ in 0..count {
        let from = Span::from_micros(dice.between(0, 200));
        let until = from + Span::from_micros(dice.pick(&[20, 200, 5000]));
        let link = dice.count(0, plan.links.len() - 1);
        let fault = match dice.between(0, 6) {
            0 | 1 => Target::Here(Fault::Impairment(link, impairment(dice))),
            2 => Target::Here(Fault::LinkDown(link)),
            3 if plan.nodes.len() > plan.hosts => Target::AnySwitch,
            4 => Target::Here(Fault::Crash(any_node(dice))),
            5 => {
                let host = dice.count(0, plan.hosts - 1);
                let host = NodeId(u32::try_from(host).expect("few hosts"));
                Target::Here(Fault::PfcStorm(
                    host,
                    Span::from_micros(dice.between(1, 20)),
                ))
            }
            _ => {
                let drift = i64::try_from(dice.between(0, 2000)).expect("small") - 1000;
                Target::Here(Fault::Drift(any_node(dice), drift))
            }
        };
        faults.push(PlannedFault {
            fault,
            from,
            until,
            random: None,
        });
    }
    faults
}

fn impairment(dice: &mut Dice) -> Impairment {
    let mut chance = || dice.pick(&[0.0, 0.0, 0.001, 0.01, 0.05]);
    let impairment = Impairment {
        loss: chance(),
        corruption: chance(),
        duplication: chance(),
        reordering: chance(),
        lateness: Span::from_micros(30),
        ..Impairment::default()
    };
    if impairment.is_none() {
        Impairment {
            loss: 0.01,
            ..impairment
        }
    } else {
        impairment
    }
}
