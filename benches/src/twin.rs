//! The twin: packet-hops a second on one core, over the number of hosts.
//!
//! The workload is a permutation on fat trees of 16, 128 and 1,024 hosts, with links of 400 Gb/s
//! and virtual payload. The bench counts hops after all applications have connected, in processor
//! time of this thread. The rate is judged as a ratio to a reference loop of the same round, which
//! does the minimum that any event simulator does for a hop.

use crate::measure::{Better, Bound, Figure, Group, Subject, busy_time, millions_each_second};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;
use twin::scenario::Scenario;
use twin::simulation::{Standing, run_watched};

/// A fat tree, and the bytes that each of its hosts sends: about the same work for each size.
struct Size {
    name: &'static str,
    /// Ports of the switches.
    k: u32,
    bytes: &'static str,
}

const SIZES: [Size; 3] = [
    Size {
        name: "16 hosts",
        k: 4,
        bytes: "20MB",
    },
    Size {
        name: "128 hosts",
        k: 8,
        bytes: "12MB",
    },
    Size {
        name: "1024 hosts",
        k: 16,
        bytes: "8MB",
    },
];

/// Sizes of each group, and the least that their rates may be as a share of the reference.
///
/// On a machine all of whose cores were busy, with others waiting, the shares were 0.16 to 0.18 and
/// 0.083; a quarter less fails. (The more hosts, the more the caches count, which the reference
/// does not need.) A turn of the greatest size takes ten seconds: too long for an interval in
/// reasonable time, so it is shown and not judged.
const GROUPS: [(&[usize], &[f64]); 2] = [(&[0, 1], &[0.12, 0.06]), (&[0, 2], &[])];

/// Events of a turn of the reference.
const EVENTS: u64 = 400_000;

/// Events that wait in the reference, and the nodes they belong to.
const WAITING: u32 = 256;
const NODES: usize = 64;

/// The bench.
struct Twin {
    groups: Vec<Group>,
    /// For each size.
    scenarios: Vec<Scenario>,
    reference: Reference,
}

/// A simulator that does nothing: it takes the earliest event, touches the node and a packet's
/// header, and enters the next.
struct Reference {
    /// Time, node.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    nodes: Vec<[u64; 64]>,
}

impl Reference {
    fn new() -> Self {
        let event = |n: u32| Reverse((u64::from(n), n));
        Self {
            events: (0..WAITING).map(event).collect(),
            nodes: vec![[1; 64]; NODES],
        }
    }

    fn run(&mut self, events: u64) {
        for _ in 0..events {
            let Reverse((time, number)) = self.events.pop().expect("as many as before");
            let node = &mut self.nodes[number as usize % NODES];
            // Counters and a queue: a few lines of the cache.
            for word in node.iter_mut().step_by(8) {
                *word = word
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(time);
            }
            let later = time + 1 + (node[0] >> 54);
            self.events.push(Reverse((later, number)));
        }
        black_box(&self.nodes);
    }
}

/// Reads the scenarios.
///
/// # Errors
/// If one of them is no scenario.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let scenarios = SIZES.iter().map(|size| scenario(size.k, size.bytes));
    Ok(Box::new(Twin {
        groups: GROUPS
            .iter()
            .map(|(sizes, least)| group(sizes, least))
            .collect(),
        scenarios: scenarios.collect::<Result<_, _>>()?,
        reference: Reference::new(),
    }))
}

/// The reference loop and these sizes, each beside the reference and beside the first.
fn group(sizes: &[usize], least: &[f64]) -> Group {
    let names = sizes.iter().map(|size| SIZES[*size].name);
    let contenders: Vec<_> = std::iter::once("reference loop").chain(names).collect();
    let to_reference = (1..contenders.len()).map(|one| {
        let bound = least.get(one - 1).copied().map(Bound::AtLeast);
        Figure::ratio(&contenders, one, 0, bound)
    });
    let to_first = (2..contenders.len()).map(|one| Figure::ratio(&contenders, one, 1, None));
    Group {
        title: format!(
            "packet-hops, permutations on fat trees of up to {}",
            SIZES[sizes[1]].name
        ),
        unit: "M/s".to_owned(),
        better: Better::High,
        figures: to_reference.chain(to_first).collect(),
        contenders: contenders.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn scenario(k: u32, size: &str) -> Result<Scenario, String> {
    let text = format!(
        "poll = \"1us\"\nsample = \"1ms\"\n[host]\nwindow = 128\n[topology]\nkind = \"fat-tree\"\nk = {k}\n\
         speed = \"400Gbps\"\nfabric_speed = \"400Gbps\"\n\
         [[workload]]\nkind = \"permutation\"\nsize = \"{size}\"\n"
    );
    let none = |file: &str| Err(format!("{file}: no files here"));
    Scenario::parse(&text, "bench", &none).map_err(|refusal| refusal.reason)
}

/// Millions of packet-hops a second.
fn speed(scenario: &Scenario) -> Result<f64, String> {
    let mut begin: Option<(u64, Duration)> = None;
    let mut watch = |standing: Standing| {
        if standing.since.is_some() {
            begin.get_or_insert_with(|| (standing.hops, busy_time()));
        }
    };
    let outcome = run_watched(scenario, 1, &mut watch).map_err(|failure| failure.to_string())?;
    let (hops, since) = begin.ok_or("the run was too short to be measured")?;
    Ok(millions_each_second(since, outcome.hops - hops))
}

impl Subject for Twin {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        if contender > 0 {
            let size = GROUPS[group].0[contender - 1];
            return speed(&self.scenarios[size]);
        }
        self.reference.run(EVENTS / 10);
        let began = busy_time();
        self.reference.run(EVENTS);
        Ok(millions_each_second(began, EVENTS))
    }
}
