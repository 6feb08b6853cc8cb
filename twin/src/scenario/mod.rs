//! Scenarios: files that say what is simulated.
//!
//! `twin/README.md` explains every key. A file with a key that does not exist, a number that makes no
//! sense, or a host that is not there is refused with the line and the reason.

mod check;
mod faults;
mod keys;
mod raw;
mod switches;
pub mod values;
mod workloads;

pub use check::Refusal;

use super::app::Verb;
use super::fault::{Fault, Trouble};
use super::flow::Workload;
use super::network::Plan;
use super::switch::SwitchSettings;
use super::topology::{Links, Shape};
use super::workload::Spec;
use common::time::{Span, Time};
use hostd::verbs::EngineConfig;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::path::{Path, PathBuf};

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {reason}", file.display())]
pub struct ScenarioError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 when the file could not be read.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

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
    /// All switches.
    pub switch: SwitchSettings,
    /// All hosts.
    pub host: EngineConfig,
    /// How applications send.
    pub verb: Verb,
    /// Longest message, in bytes.
    pub message: u32,
    /// What is sent.
    pub sources: Vec<Source>,
    /// What goes wrong.
    pub faults: Vec<PlannedFault>,
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
            file: path.to_owned(),
            line: 0,
            reason: error.to_string(),
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let read = |file: &str| {
            std::fs::read_to_string(folder.join(file)).map_err(|error| error.to_string())
        };
        Self::parse(&text, &name, &read).map_err(|error| ScenarioError {
            file: error
                .file
                .map_or_else(|| path.to_owned(), |file| folder.join(file)),
            line: error.line,
            reason: error.reason,
        })
    }

    /// Reads the text of a scenario called `name`. `read` reads files that it names.
    ///
    /// # Errors
    /// The place and the reason.
    pub fn parse(
        text: &str,
        name: &str,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, Refusal> {
        check::scenario(text, name, read)
    }

    /// The plan of its fabric.
    pub fn plan(&self) -> Plan {
        self.shape.plan(self.links, self.v6)
    }

    /// Whether it can be run with another seed than its own.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, seed: u64) -> Result<(), String> {
        check::bounds(self, seed)
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
