//! Random jobs from random seeds (SW-42): one to three levels, up to four trees, two to eight jobs
//! at once, links that lose, double and delay, and a daemon that dies or starts again in the
//! middle.
//!
//! A case is a function of its seed alone. Each member of each job has to end with the right result
//! or the same named error, and nothing may be left of any job: see [`super::judge`].

use super::{Job, Task};
use crate::app::Verb;
use crate::check::Failure;
use crate::fault::Fault;
use crate::host::bytes_between;
use crate::network::{LinkClass, NodeId, Plan};
use crate::scenario::{PlannedFault, Scenario, Target};
use crate::simulation::run;
use crate::soak::{Dice, Stop};
use crate::switch::SwitchSettings;
use crate::topology::{Links, Shape};
use crate::wire::Impairment;
use common::reduce::{Element, Operation};
use common::time::Span;
use common::units::Rate;
use common::wire::compute::Work;
use common::xdp::queue::LINE_OVERHEAD;
use hostd::config::Collective;
use hostd::verbs::EngineConfig;
use std::sync::Arc;
use std::time::Instant;
use switchd::config::Compute;

/// How long a case may take beside its collectives: all members must come in five seconds, each
/// level has a lease of two, hosts wait for a switch that says nothing for [`JOIN_TIMEOUT`], and
/// one that died may come back after a minute.
const DURATION: Span = Span::from_secs(120);

/// The least time after which a contribution is sent again: that of leaves, which is the longer.
const AGAIN: Span = Span::from_millis(4);

/// Milliseconds that a job may take to be complete.
const JOIN_TIMEOUT: u64 = 9_000;

/// Contributions to a collective at most, of all members: simulations take real time. 64 members
/// may have vectors of 16 MiB in the longest chunks.
const CONTRIBUTIONS: u64 = 1 << 20;

/// Four pods of two edge switches with two hosts each, two switches above them in each pod, and two
/// above each of those.
const THREE_LEVELS: Shape = Shape::FatTree { k: 4 };

/// Random jobs.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// The first seed.
    pub first: u64,
    /// When to stop; `count` is of jobs.
    pub stop: Stop,
    /// Longest vector.
    pub longest: u32,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Cases that ended well.
    pub cases: u64,
    /// Their jobs.
    pub jobs: u64,
    /// Members of them that had all results, that were told why they had not, and whose hosts died.
    pub members: [u64; 3],
    /// Collectives that all members had the result of.
    pub collectives: u64,
    /// Bytes of the vectors that were reduced at all members.
    pub bytes: u64,
    /// Cases in which a daemon died.
    pub deaths: u64,
    /// Contributions of members that were sent again.
    pub sent_again: u64,
    /// Contributions that switches had already.
    pub came_twice: u64,
    /// Packet-hops.
    pub hops: u64,
    /// The last seed, and its case in a few words.
    pub seed: u64,
    /// See `seed`.
    pub about: String,
}

impl Soak {
    /// Runs until told to stop. `watch` is told of each case before it runs.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn run(&self, watch: &mut dyn FnMut(&Done)) -> Result<Done, Failure> {
        let start = Instant::now();
        let mut done = Done::default();
        while self.stop.goes_on(done.jobs, start) {
            let seed = self.first.wrapping_add(done.cases);
            let scenario = scenario(seed, self.longest);
            done.seed = seed;
            done.about.clone_from(&scenario.about);
            watch(&done);
            let outcome = run(&scenario, seed)?;
            done.cases += 1;
            done.hops += outcome.hops;
            let is_death =
                |fault: &PlannedFault| matches!(fault.fault, Target::Here(Fault::Crash(_)));
            done.deaths += u64::from(scenario.faults.iter().any(is_death));
            for job in &outcome.jobs {
                done.jobs += 1;
                let ends = [job.done, job.failed, job.died];
                for (sum, count) in done.members.iter_mut().zip(ends) {
                    *sum += count as u64;
                }
                if job.done == job.members {
                    done.collectives += job.collectives as u64;
                    done.bytes += job.bytes * job.members as u64;
                }
            }
            let sum = |name| outcome.totals.jobs.get(name).copied().unwrap_or(0);
            done.sent_again += sum("sent_again");
            done.came_twice += sum("came_twice");
        }
        Ok(done)
    }
}

/// The random case of a seed, with vectors of `longest` bytes at most.
pub fn scenario(seed: u64, longest: u32) -> Scenario {
    let mut dice = Dice::new(seed, 0x10b5);
    let drawn = shape(&mut dice);
    // Not drawn, either: every eighth case has three levels.
    let shape = if seed % 8 == 3 { THREE_LEVELS } else { drawn };
    let speed = Rate::from_gbps(dice.pick(&[10, 100, 400]));
    let delay = Span::from_nanos(dice.pick(&[500, 1000, 10_000]));
    let class = LinkClass { speed, delay };
    let links = Links {
        host: class,
        fabric: class,
    };
    let v6 = dice.one_in(2);
    let poll = Span::from_nanos(dice.pick(&[250, 1000]));
    let plan = shape.plan(links, v6);
    let count = dice.count(2, 8);
    let jobs: Vec<Job> = (1..=count)
        .map(|number| job(&mut dice, &plan, number, longest))
        .collect();
    let impairment = impairment(&mut dice);
    let mut faults = on_all_links(impairment, &plan);
    let death = death(&mut dice, &plan);
    faults.extend(death);
    let members: usize = jobs.iter().map(|job| job.hosts.len()).sum();
    // Not drawn: cases without keys are what they were.
    let secret = (seed % 2 == 1).then_some([7; 32]);
    let keys = if secret.is_some() { "with" } else { "without" };
    let about =
        format!("{shape:?}, {count} jobs, {members} members, {keys} keys, death: {death:?}");
    let host = EngineConfig {
        reorder_frames: 1 << 12,
        pacer_burst: 2 * 4096 + bytes_between(speed, poll),
        ..EngineConfig::default()
    };
    Scenario {
        name: "jobs".to_owned(),
        about,
        seed,
        duration: duration(&jobs, &impairment),
        sample: Span::from_millis(100),
        carries: dice.one_in(2),
        lossless: false,
        shape,
        links,
        v6,
        framing: LINE_OVERHEAD,
        switch: SwitchSettings {
            queue: dice.pick(&[256 << 10, 1 << 20]),
            packets: 1 << 14,
            mtu: dice.pick(&[1500, 9000]),
            poll,
            // No job is refused for want of room, or because its members' host has begun others.
            compute: Some(Arc::new(Compute {
                enabled: true,
                jobs: 64,
                memory_megabytes: 4096,
                ..Compute::default()
            })),
            secret,
            ..SwitchSettings::default()
        },
        host,
        jobs,
        collective: Collective {
            join_timeout_ms: JOIN_TIMEOUT,
            ..Collective::default()
        },
        single_path: Vec::new(),
        slow_notifiers: Vec::new(),
        describes: false,
        unordered: false,
        verb: Verb::Write,
        message: 4096,
        sources: Vec::new(),
        faults,
    }
}

fn shape(dice: &mut Dice) -> Shape {
    match dice.one_in(2) {
        true => Shape::Star {
            hosts: dice.count(2, 16),
        },
        false => Shape::LeafSpine {
            leaves: dice.count(2, 4),
            spines: dice.count(1, 4),
            hosts_per_leaf: dice.count(1, 6),
        },
    }
}

/// A job of 2 to 64 members on some of the hosts.
fn job(dice: &mut Dice, plan: &Plan, number: usize, longest: u32) -> Job {
    let each = dice.pick(&[1, 1, 1, 1, 2, 4]);
    let first = dice.count(0, plan.hosts - 1);
    let count = dice.count(1, plan.hosts);
    let taken = (first..first + count).map(|host| host % plan.hosts);
    let node = |host: usize| NodeId(u32::try_from(host).expect("few hosts"));
    let mut hosts: Vec<NodeId> = taken
        .flat_map(|host| std::iter::repeat_n(node(host), each))
        .collect();
    if hosts.len() < 2 {
        hosts.push(hosts[0]);
    }
    hosts.truncate(super::RANKS);
    // The ranks in any order.
    for at in (1..hosts.len()).rev() {
        hosts.swap(at, dice.count(0, at));
    }
    let most = super::parents(plan, plan.switch(0)).len().clamp(1, 4);
    let bytes = dice.log(4, longest);
    let tasks = dice.count(1, if bytes > 1 << 16 { 1 } else { 8 });
    let trees = u16::try_from(dice.count(1, most)).expect("few");
    let slots = dice.pick(&[4, 16, 64, 256, 512]);
    let payload = dice.pick(&[64, 512, 1400, 1400, 1400]);
    let most_bytes = CONTRIBUTIONS / hosts.len() as u64 * u64::from(payload);
    let bytes = bytes.min(u32::try_from(most_bytes).unwrap_or(longest));
    Job {
        name: format!("job {number}"),
        start: Span::from_micros(dice.between(0, 300)),
        trees,
        slots,
        payload,
        deterministic: dice.one_in(2),
        tasks: (0..tasks).map(|_| task(dice, hosts.len(), bytes)).collect(),
        hosts,
    }
}

fn task(dice: &mut Dice, members: usize, bytes: u32) -> Task {
    let operation = dice.pick(&Operation::ALL);
    let elements = Element::ALL.into_iter().filter(|it| operation.takes(*it));
    let element = dice.pick(&elements.collect::<Vec<_>>());
    let work = match dice.between(0, 9) {
        0 => Work::Barrier,
        1 => Work::Broadcast,
        2 | 3 => Work::Reduce(operation, element),
        _ => Work::Allreduce(operation, element),
    };
    let whole = u32::try_from(element.len()).expect("short");
    let len = match work {
        Work::Barrier => 0,
        Work::Broadcast => bytes,
        Work::Allreduce(..) | Work::Reduce(..) => bytes.next_multiple_of(whole),
    };
    Task {
        work,
        len,
        root: u16::try_from(dice.count(0, members - 1)).expect("few"),
    }
}

/// What happens to frames: nothing, or up to 5 % lost each way, up to 10 % twice, some late, one of
/// two thousand broken.
fn impairment(dice: &mut Dice) -> Impairment {
    if dice.one_in(4) {
        return Impairment::default();
    }
    Impairment {
        loss: dice.pick(&[0.0, 0.001, 0.01, 0.05]),
        corruption: dice.pick(&[0.0, 0.0005]),
        duplication: dice.pick(&[0.0, 0.01, 0.1]),
        reordering: dice.pick(&[0.0, 0.01, 0.1]),
        lateness: Span::from_micros(dice.pick(&[20, 200, 3000])),
        ..Impairment::default()
    }
}

/// How long a case may take: as long as its jobs would one after the other, each in rounds of its
/// slots. Of a round some message is lost again and again, of all that the members of the job send,
/// and each time what follows is waited for twice as long.
fn duration(jobs: &[Job], impairment: &Impairment) -> Span {
    let lost = 1.0 - (1.0 - impairment.loss - impairment.corruption).powi(4);
    let of_job = |job: &Job| {
        let members = u32::try_from(job.hosts.len()).expect("few");
        let mut missing = f64::from(members * u32::from(job.slots)) * lost;
        let mut round = AGAIN.times(2) + impairment.lateness.times(4);
        while missing > 1.0 {
            missing *= lost;
            round = round.times(2);
        }
        let chunks = |task: &Task| task.len.div_ceil(job.payload.into()).max(1);
        let chunks: u64 = job.tasks.iter().map(|it| u64::from(chunks(it))).sum();
        round.times(chunks.div_ceil(job.slots.into()))
    };
    jobs.iter()
        .map(of_job)
        .fold(DURATION, |sum, time| sum + time)
}

fn on_all_links(impairment: Impairment, plan: &Plan) -> Vec<PlannedFault> {
    if impairment == Impairment::default() {
        return Vec::new();
    }
    let links = 0..plan.links.len();
    let planned = links.map(|link| PlannedFault {
        fault: Target::Here(Fault::Impairment(link, impairment)),
        from: Span::ZERO,
        until: Span::MAX,
        random: None,
    });
    planned.collect()
}

/// One of three: a host or a switch dies at a random moment, for ever, or for less than a lease, or
/// for longer.
fn death(dice: &mut Dice, plan: &Plan) -> Option<PlannedFault> {
    let is_switch = match dice.between(0, 5) {
        0 => false,
        1 => true,
        _ => return None,
    };
    let nodes = match is_switch {
        true => plan.hosts..plan.nodes.len(),
        false => 0..plan.hosts,
    };
    let node = dice.count(nodes.start, nodes.end - 1);
    let from = Span::from_micros(u64::from(dice.log(1, 100_000)));
    let lasting = dice.pick(&[20, 500, 3000, 60_000]);
    Some(PlannedFault {
        fault: Target::Here(Fault::Crash(NodeId(u32::try_from(node).expect("few")))),
        from,
        until: from + Span::from_millis(lasting),
        random: None,
    })
}
