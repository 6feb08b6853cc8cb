//! The workloads: those that the table is trained on, and others that judge it.

use crate::sizes::Sizes;
use std::fmt::Write;

/// The congestion control of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// A window, by the part of packets that is marked.
    Dctcp,
    /// A rate, by notifications of marks.
    Dcqcn,
}

/// What is sent to the one receiver.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Each sender has one flow that never ends.
    Writers,
    /// The same, and flows of 20 kB at random times, for this part of the line.
    Mixed(f64),
    /// Flows of such sizes at random times, for this part of the line.
    Random(Sizes, f64),
    /// So many writers from the beginning, all from the middle on.
    Step(usize),
}

/// What scenarios call sizes.
const fn key(sizes: Sizes) -> &'static str {
    match sizes {
        Sizes::WebSearch => "web-search",
        Sizes::Hadoop => "hadoop",
        Sizes::Training => "training",
    }
}

/// A workload in front of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// Hosts that send to the receiver.
    pub senders: usize,
    /// Gb/s of all links.
    pub gbps: u64,
    /// Nanoseconds that a link takes.
    pub delay: u64,
    /// How the hosts react to marks.
    pub hosts: Hosts,
    /// What they send.
    pub kind: Kind,
}

impl Workload {
    /// A workload with a name that says what it is.
    pub fn new(kind: Kind, senders: usize, hosts: Hosts, (gbps, delay): (u64, u64)) -> Self {
        let how = match &kind {
            Kind::Writers => format!("{senders} writers"),
            Kind::Mixed(load) => format!("{senders} writers and {:.0} % mice", load * 100.0),
            Kind::Random(sizes, load) => {
                format!("{} at {:.0} % from {senders}", key(*sizes), load * 100.0)
            }
            Kind::Step(first) => format!("{first}, then {senders} writers"),
        };
        let hosts_name = match hosts {
            Hosts::Dctcp => "DCTCP",
            Hosts::Dcqcn => "DCQCN",
        };
        Self {
            name: format!("{how}, {hosts_name}, {gbps}G, {delay} ns"),
            senders,
            gbps,
            delay,
            hosts,
            kind,
        }
    }

    /// Its `[[workload]]` tables, for so many milliseconds.
    pub(super) fn tables(&self, millis: u64) -> String {
        // Flows that share the line unequally last to the end, too.
        let bytes = self.gbps * 125_000 * millis * 13 / 10;
        let mut text = String::new();
        let writers = |text: &mut String, from: usize, to: usize, start: u64, bytes: u64| {
            for sender in from..=to {
                let _ = write!(
                    text,
                    "[[workload]]\nkind = \"incast\"\nhosts = [\"h1\", \"h{}\"]\ntarget = \"h1\"\n\
                     start = \"{start}ms\"\nsize = \"{}B\"\n",
                    sender + 1,
                    bytes / to as u64
                );
            }
        };
        let random = |text: &mut String, sizes: &str, mean: u64, load: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a number of flows"
            )]
            let count = (load * (self.gbps * 125_000 * millis) as f64 / mean as f64).ceil() as u64;
            let _ = write!(
                text,
                "[[workload]]\nkind = \"poisson\"\ntarget = \"h1\"\nload = {load:?}\ncount = {}\n{sizes}\n",
                count.max(1)
            );
        };
        match &self.kind {
            Kind::Writers => writers(&mut text, 1, self.senders, 0, bytes),
            Kind::Mixed(load) => {
                writers(&mut text, 1, self.senders, 0, bytes);
                random(&mut text, "size = \"20kB\"", 20_000, *load);
            }
            Kind::Random(sizes, load) => {
                let keys = format!("sizes = {:?}", key(*sizes));
                random(&mut text, &keys, sizes.mean(), *load);
            }
            Kind::Step(first) => {
                writers(&mut text, 1, *first, 0, bytes);
                writers(&mut text, first + 1, self.senders, millis / 2, bytes / 2);
            }
        }
        text
    }
}

/// Those that the table that ships is trained on.
pub fn trained() -> Vec<Workload> {
    let mut all = Vec::new();
    for hosts in [Hosts::Dctcp, Hosts::Dcqcn] {
        for senders in [2, 4, 8, 16, 32] {
            for delay in [1000, 3000] {
                all.push(Workload::new(Kind::Writers, senders, hosts, (100, delay)));
            }
        }
        for load in [0.5, 0.8] {
            let kind = Kind::Random(Sizes::WebSearch, load);
            all.push(Workload::new(kind, 8, hosts, (100, 1000)));
        }
        for (load, senders) in [(0.05, 8), (0.2, 4)] {
            let kind = Kind::Mixed(load);
            all.push(Workload::new(kind, senders, hosts, (100, 1000)));
        }
    }
    all
}

/// Others, which judge it: other degrees, speeds, delays, loads and sizes.
pub fn untrained() -> Vec<Workload> {
    let mut all = Vec::new();
    for hosts in [Hosts::Dctcp, Hosts::Dcqcn] {
        for (senders, line) in [
            (3, (100, 1000)),
            (6, (40, 2000)),
            (12, (25, 1000)),
            (24, (100, 2000)),
            (48, (100, 1000)),
        ] {
            all.push(Workload::new(Kind::Writers, senders, hosts, line));
        }
        all.push(Workload::new(Kind::Mixed(0.1), 6, hosts, (100, 1000)));
        let kind = Kind::Random(Sizes::Hadoop, 0.6);
        all.push(Workload::new(kind, 12, hosts, (40, 1000)));
    }
    all
}
