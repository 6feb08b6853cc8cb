//! The benches there are, and how one is run.

use crate::measure::Subject;
use crate::measure::machine::Counters;
use crate::measure::rounds::{self, Plan};
use crate::report::GroupResult;
use crate::{
    aiecn, allreduce, arithmetic, copy, forward, idle, lookup, pipeline, transport, transports,
    twin,
};
use std::time::{Duration, Instant};

/// A bench.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Whether it needs network namespaces, and so root.
    pub privileged: bool,
    /// Seconds after which no more rounds of a group begin, unless the command line says so.
    pub seconds: u64,
    /// Sets up what is measured.
    pub prepare: fn() -> Result<Box<dyn Subject>, String>,
}

/// All benches, in the order in which they run.
pub const BENCHES: &[Bench] = &[
    Bench {
        name: "lookup",
        about: "longest prefix match in a full table: the route table, a kept library",
        privileged: false,
        seconds: 30,
        prepare: lookup::prepare,
    },
    Bench {
        name: "pipeline",
        about: "one worker of switchd from parse to rewrite, without I/O, beside a reference loop",
        privileged: false,
        seconds: 90,
        prepare: pipeline::prepare,
    },
    Bench {
        name: "aiecn",
        about: "marking thresholds that follow the traffic, from counters to a decision",
        privileged: false,
        seconds: 20,
        prepare: aiecn::prepare,
    },
    Bench {
        name: "forward",
        about: "a switch on veth under overload: bare AF_XDP, switchd, Open vSwitch",
        privileged: true,
        seconds: 120,
        prepare: forward::prepare,
    },
    Bench {
        name: "copy",
        about: "a file across a fabric with hostcp, beside hostperf and iperf3",
        privileged: true,
        seconds: 180,
        prepare: copy::prepare,
    },
    Bench {
        name: "idle",
        about: "processor time of daemons that have nothing to do, beside a thread that only wakes",
        privileged: true,
        seconds: 60,
        prepare: idle::prepare,
    },
    Bench {
        name: "transport",
        about: "hostd's engine, both ends in one thread, beside copies and checksums",
        privileged: false,
        seconds: 60,
        prepare: transport::prepare,
    },
    Bench {
        name: "transports",
        about: "hostd on a link and over four paths, beside bare AF_XDP and the kernel's UDP, TCP, Multipath TCP",
        privileged: true,
        seconds: 45,
        prepare: transports::prepare,
    },
    Bench {
        name: "arithmetic",
        about: "the arithmetic of collectives, beside a copy of the same bytes",
        privileged: false,
        seconds: 30,
        prepare: arithmetic::prepare,
    },
    Bench {
        name: "allreduce",
        about: "allreduce through switches, beside hostd's own ring and doubling, Open MPI and gloo",
        privileged: true,
        seconds: 40,
        prepare: allreduce::prepare,
    },
    Bench {
        name: "twin",
        about: "whole fabrics in virtual time, beside a reference loop",
        privileged: false,
        seconds: 90,
        prepare: twin::prepare,
    },
];

/// How long to measure, as the command line says it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Exactly so many rounds of each group.
    pub rounds: Option<usize>,
    /// Seconds for each group, in place of the bench's own.
    pub seconds: Option<u64>,
}

impl Bench {
    /// The bench of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BENCHES.iter().find(|bench| bench.name == name)
    }

    /// Sets up what is measured.
    ///
    /// # Errors
    /// What is missing, root among it.
    pub fn set_up(&self) -> Result<Box<dyn Subject>, String> {
        if self.privileged && !nix::unistd::geteuid().is_root() {
            return Err("network namespaces and AF_XDP need root".to_owned());
        }
        progress(self.name, "setting up");
        (self.prepare)()
    }

    /// How long to measure.
    pub fn plan(&self, limits: Limits, precision: Option<f64>) -> Plan {
        Plan {
            rounds: limits.rounds,
            seconds: Duration::from_secs(limits.seconds.unwrap_or(self.seconds)),
            precision,
        }
    }

    /// Runs it: each group of contenders, then the last checks. `show` gets the results of each
    /// group as soon as it is measured.
    ///
    /// # Errors
    /// What kept it from its end, exact checks among it.
    pub fn run(&self, limits: Limits, show: &mut dyn FnMut(GroupResult)) -> Result<(), String> {
        let mut subject = self.set_up()?;
        let measured = self.measure(&mut *subject, self.plan(limits, None), show);
        let finished = subject.finish();
        measured.and(finished)
    }

    fn measure(
        &self,
        subject: &mut dyn Subject,
        plan: Plan,
        show: &mut dyn FnMut(GroupResult),
    ) -> Result<(), String> {
        for number in 0..subject.groups().len() {
            let group = subject.groups()[number].clone();
            let before = Counters::read();
            let rounds = timed_rounds(self.name, subject, number, &plan)?;
            let load = Counters::read().since(&before);
            let notes = subject.notes(number);
            show(GroupResult::new(self.name, &group, &rounds, load, notes));
        }
        Ok(())
    }
}

/// Measures a group by the clock on the wall, with lines of progress.
///
/// # Errors
/// The first error of a turn.
pub fn timed_rounds(
    name: &str,
    subject: &mut dyn Subject,
    group: usize,
    plan: &Plan,
) -> Result<rounds::Rounds, String> {
    /// Time between two lines.
    const LINES: Duration = Duration::from_secs(10);
    let title = subject.groups()[group].title.clone();
    progress(name, &title);
    let began = Instant::now();
    let mut next = LINES;
    let mut watch = |rounds| {
        let elapsed = began.elapsed();
        if elapsed >= next {
            next = elapsed + LINES;
            let most = plan.seconds.as_secs();
            let text = format!(
                "{title}: {rounds} rounds, {} of at most {most} s",
                elapsed.as_secs()
            );
            progress(name, &text);
        }
    };
    rounds::measure(subject, group, plan, &mut || began.elapsed(), &mut watch)
}

/// A line of progress, beside the results.
pub fn progress(name: &str, text: &str) {
    eprintln!("bench: {name}: {text}");
}
