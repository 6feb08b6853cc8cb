//! The twin: packet-hops a second on one core, over the number of hosts.
//!
//! A permutation on fat trees of 16, 128 and 1,024 hosts, all links at 400 Gb/s, virtual payload. Counted is what happens after
//! all applications are connected, in processor time of this thread. The rate is judged as a ratio to a reference
//! loop of the same round: the least that any simulator of events does for a hop.

use crate::measure::{Better, Bound, Figure, Group, Subject, busy_time, millions_each_second};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;
use twin::scenario::Scenario;
use twin::simulation::{Standing, run_watched};

/// Ports of the switches, bytes that each host sends, and the least that the rate may be as a share of the reference.
const SIZES: [(&str, u32, &str, f64); 3] = [
    ("16 hosts", 4, "20MB", 0.1),
    ("128 hosts", 8, "4MB", 0.06),
    ("1024 hosts", 16, "1MB", 0.03),
];

/// Events of a turn of the reference.
const EVENTS: u64 = 400_000;

/// Events that wait in the reference, and the nodes they belong to.
const WAITING: u32 = 256;
const NODES: usize = 64;

/// The bench.
struct Twin {
    groups: [Group; 1],
    scenarios: Vec<Scenario>,
    reference: Reference,
}

/// A simulator that does nothing: it takes the earliest event, touches the node and a packet's header, and enters the next.
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
    let names: Vec<_> = SIZES.map(|(name, ..)| name.to_owned()).into();
    let contenders = [names, vec!["reference loop".to_owned()]].concat();
    let reference = SIZES.len();
    let bounded = SIZES.iter().enumerate().map(|(one, (.., least))| {
        Figure::ratio(&contenders, one, reference, Some(Bound::AtLeast(*least)))
    });
    let between = (1..SIZES.len()).map(|one| Figure::ratio(&contenders, one, 0, None));
    let scenarios = SIZES.map(|(_, k, size, _)| scenario(k, size));
    Ok(Box::new(Twin {
        groups: [Group {
            title: "packet-hops, permutations on fat trees".to_owned(),
            unit: "M/s".to_owned(),
            better: Better::High,
            figures: bounded.chain(between).collect(),
            contenders: contenders.clone(),
        }],
        scenarios: scenarios.into_iter().collect::<Result<_, _>>()?,
        reference: Reference::new(),
    }))
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

    fn turn(&mut self, _: usize, contender: usize) -> Result<f64, String> {
        if let Some(scenario) = self.scenarios.get(contender) {
            return speed(scenario);
        }
        self.reference.run(EVENTS / 10);
        let began = busy_time();
        self.reference.run(EVENTS);
        Ok(millions_each_second(began, EVENTS))
    }
}
