//! The workloads that scenarios name, as flows.

use super::flow::{Flow, Start, Trigger, Workload};
use super::network::NodeId;
use super::sizes::Sizes;
use common::time::{Span, Time};
use common::units::Rate;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// How large flows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All the same, in bytes.
    Fixed(u64),
    /// Drawn.
    Drawn(Sizes),
}

impl Size {
    fn draw(self, random: &mut Pcg64Mcg) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Drawn(sizes) => sizes.draw(random),
        }
    }

    fn mean(self) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Drawn(sizes) => sizes.mean(),
        }
    }
}

/// A pattern of flows between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every host sends to one other and receives from one other, drawn so.
    Permutation {
        /// Flows of each host, one after the other.
        rounds: usize,
    },
    /// Many to one.
    Incast {
        /// How many senders; drawn.
        senders: usize,
        /// The receiver; drawn if none is given.
        target: Option<NodeId>,
    },
    /// Every host sends to every other, in turns that start when the last is done.
    AllToAll {
        /// Flows that a host has under way at once.
        parallel: usize,
    },
    /// A ring allreduce: each host sends a part on when it has received one, 2 (n − 1) times.
    RingAllreduce,
    /// Flows at random times between random hosts.
    Poisson {
        /// Part of the hosts' speed that is asked for, in thousandths; with a target, part of its
        /// speed.
        load: u32,
        /// How many flows.
        count: usize,
        /// Each flow is a request, and is answered with one of this size.
        response: Option<Size>,
        /// The receiver of all of them, if there is one.
        target: Option<NodeId>,
    },
}

/// A pattern with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What flows there are.
    pub pattern: Pattern,
    /// How large they are; of an allreduce, the buffer of each host.
    pub size: Size,
    /// When it begins, after the start of the workload.
    pub start: Span,
    /// The hosts that take part.
    pub hosts: Vec<NodeId>,
    /// What it is called in results.
    pub name: String,
    /// Each flow has a connection of its own.
    pub apart: bool,
}

impl Workload {
    /// Adds the flows of `spec`. `speed` is that of the hosts.
    pub fn add(&mut self, spec: &Spec, speed: Rate, random: &mut Pcg64Mcg) {
        let class = self.classes.len();
        self.classes.push(spec.name.clone());
        let mut maker = Maker {
            workload: self,
            spec,
            class,
            random,
        };
        match spec.pattern {
            Pattern::Permutation { rounds } => maker.permutation(rounds),
            Pattern::Incast { senders, target } => maker.incast(senders, target),
            Pattern::AllToAll { parallel } => maker.all_to_all(parallel),
            Pattern::RingAllreduce => maker.ring_allreduce(),
            Pattern::Poisson {
                load,
                count,
                response,
                target,
            } => {
                let receivers = if target.is_some() {
                    1
                } else {
                    spec.hosts.len() as u64
                };
                // Bits a second that all hosts together are asked to send, answers included.
                let asked = u128::from(speed.bps()) * u128::from(receivers * u64::from(load));
                maker.poisson(asked / 1000, count, response, target);
            }
        }
    }

    /// Adds what was read from elsewhere.
    pub fn append(&mut self, other: Workload, name: String) {
        let triggers = self.triggers.len();
        let class = self.classes.len();
        self.classes.push(name);
        let moved = |trigger: Option<usize>| trigger.map(|number| number + triggers);
        self.flows.extend(other.flows.into_iter().map(|flow| Flow {
            start: match flow.start {
                Start::On(trigger) => Start::On(trigger + triggers),
                at @ Start::At(_) => at,
            },
            when_sent: moved(flow.when_sent),
            when_received: moved(flow.when_received),
            class,
            ..flow
        }));
        self.triggers.extend(other.triggers);
    }
}

struct Maker<'a> {
    workload: &'a mut Workload,
    spec: &'a Spec,
    class: usize,
    random: &'a mut Pcg64Mcg,
}

impl Maker<'_> {
    fn begin(&self) -> Time {
        Time::ZERO + self.spec.start
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.random.next_u64() % count as u64).expect("below a usize")
    }

    /// Mixes hosts (Fisher and Yates).
    fn mixed(&mut self) -> Vec<NodeId> {
        let mut hosts = self.spec.hosts.clone();
        for last in (1..hosts.len()).rev() {
            let other = self.below(last + 1);
            hosts.swap(last, other);
        }
        hosts
    }

    fn flow(&mut self, from: NodeId, to: NodeId, start: Start) -> &mut Flow {
        let bytes = self.spec.size.draw(self.random).max(1);
        self.push(from, to, start, bytes)
    }

    fn push(&mut self, from: NodeId, to: NodeId, start: Start, bytes: u64) -> &mut Flow {
        let place = self.workload.flows.len();
        let lane = if self.spec.apart { place } else { 0 };
        self.workload.flows.push(Flow {
            from,
            to,
            lane: u32::try_from(lane).expect("no scenario has so many flows"),
            bytes,
            start,
            when_sent: None,
            when_received: None,
            class: self.class,
        });
        self.workload.flows.last_mut().expect("just pushed")
    }

    fn trigger(&mut self, trigger: Trigger) -> usize {
        self.workload.triggers.push(trigger);
        self.workload.triggers.len() - 1
    }

    fn permutation(&mut self, rounds: usize) {
        // Neighbours in a mixed circle: nobody sends to himself.
        let circle = self.mixed();
        let begin = self.begin();
        for (place, &from) in circle.iter().enumerate() {
            let to = circle[(place + 1) % circle.len()];
            let mut start = Start::At(begin);
            for round in 0..rounds {
                let next = (round + 1 < rounds).then(|| self.trigger(Trigger::Once));
                self.flow(from, to, start).when_sent = next;
                start = next.map_or(start, Start::On);
            }
        }
    }

    fn incast(&mut self, senders: usize, target: Option<NodeId>) {
        let hosts = self.mixed();
        let target = target.unwrap_or(hosts[0]);
        let begin = self.begin();
        let others = hosts.into_iter().filter(|host| *host != target);
        let chosen: Vec<NodeId> = others.take(senders).collect();
        for from in chosen {
            self.flow(from, target, Start::At(begin));
        }
    }

    fn all_to_all(&mut self, parallel: usize) {
        let hosts = self.spec.hosts.clone();
        let begin = self.begin();
        for (place, &from) in hosts.iter().enumerate() {
            let mut starts = vec![Start::At(begin); parallel];
            for step in 1..hosts.len() {
                let to = hosts[(place + step) % hosts.len()];
                let slot = (step - 1) % parallel;
                let next = (step + parallel < hosts.len()).then(|| self.trigger(Trigger::Once));
                self.flow(from, to, starts[slot]).when_sent = next;
                if let Some(next) = next {
                    starts[slot] = Start::On(next);
                }
            }
        }
    }

    fn ring_allreduce(&mut self) {
        let hosts = self.spec.hosts.clone();
        let count = hosts.len();
        let bytes = self
            .spec
            .size
            .draw(self.random)
            .div_ceil(count as u64)
            .max(1);
        let mut starts = vec![Start::At(self.begin()); count];
        let steps = 2 * (count - 1);
        for step in 0..steps {
            let mut next = starts.clone();
            for place in 0..count {
                let after = (place + 1) % count;
                let pulled = (step + 1 < steps).then(|| self.trigger(Trigger::Once));
                let start = starts[place];
                self.push(hosts[place], hosts[after], start, bytes)
                    .when_received = pulled;
                if let Some(pulled) = pulled {
                    next[after] = Start::On(pulled);
                }
            }
            starts = next;
        }
    }

    fn poisson(
        &mut self,
        asked: u128,
        count: usize,
        response: Option<Size>,
        target: Option<NodeId>,
    ) {
        let mean = |size: Size| u128::from(size.mean());
        let bytes = mean(self.spec.size) + response.map_or(0, mean);
        let bits = bytes * 8;
        let picoseconds = bits * 1_000_000_000_000 / asked.max(1);
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let mean = picoseconds as f64 / 1000.0;
        let mut at = 0.0;
        for _ in 0..count {
            at += mean * self.exponential();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a positive time"
            )]
            let start = self.begin() + Span::from_nanos(at as u64);
            let (from, to) = self.pair(target);
            match response {
                None => drop(self.flow(from, to, Start::At(start)).lane),
                Some(size) => {
                    let asked = self.trigger(Trigger::Once);
                    self.flow(from, to, Start::At(start)).when_received = Some(asked);
                    let bytes = size.draw(self.random).max(1);
                    self.push(to, from, Start::On(asked), bytes);
                }
            }
        }
    }

    /// A sender, and its receiver.
    fn pair(&mut self, target: Option<NodeId>) -> (NodeId, NodeId) {
        let hosts = &self.spec.hosts;
        if let Some(target) = target {
            let others = hosts.iter().copied().filter(|host| *host != target);
            let others: Vec<NodeId> = others.collect();
            return (others[self.below(others.len())], target);
        }
        let from = self.below(hosts.len());
        let to = (from + 1 + self.below(hosts.len() - 1)) % hosts.len();
        (hosts[from], hosts[to])
    }

    /// An exponentially distributed number of mean one.
    fn exponential(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
        let drawn = ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        // The standard library's logarithm is the machine's own; this one is the same everywhere.
        -libm::log(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn made(pattern: Pattern, hosts: u32, size: Size) -> Workload {
        let spec = Spec {
            pattern,
            size,
            start: Span::ZERO,
            hosts: (0..hosts).map(NodeId).collect(),
            name: "w".to_owned(),
            apart: true,
        };
        let mut workload = Workload::default();
        workload.add(&spec, Rate::from_gbps(100), &mut Pcg64Mcg::new(3));
        assert!(workload.flows.iter().all(|flow| flow.from != flow.to));
        let lanes: BTreeSet<u32> = workload.flows.iter().map(|flow| flow.lane).collect();
        assert_eq!(lanes.len(), workload.flows.len());
        workload
    }

    #[test]
    fn patterns_are_what_their_names_say() {
        let fixed = Size::Fixed(1000);
        let permutation = made(Pattern::Permutation { rounds: 2 }, 8, fixed);
        for host in 0..8 {
            let sent = permutation.flows.iter().filter(|f| f.from == NodeId(host));
            let received = permutation.flows.iter().filter(|f| f.to == NodeId(host));
            assert_eq!((sent.count(), received.count()), (2, 2));
        }
        let incast = Pattern::Incast {
            senders: 5,
            target: Some(NodeId(3)),
        };
        let incast = made(incast, 8, fixed);
        assert_eq!(incast.flows.len(), 5);
        assert!(incast.flows.iter().all(|flow| flow.to == NodeId(3)));
        let all = made(Pattern::AllToAll { parallel: 2 }, 6, fixed);
        assert_eq!(all.flows.len(), 30);
        let at_once = all.flows.iter().filter(|f| matches!(f.start, Start::At(_)));
        assert_eq!(at_once.count(), 12);
        let ring = made(Pattern::RingAllreduce, 4, fixed);
        assert_eq!(ring.flows.len(), 24);
        assert!(ring.flows.iter().all(|flow| flow.bytes == 250));
        assert_eq!(ring.triggers.len(), 20);
    }

    #[test]
    fn poisson_arrivals_have_the_load() {
        for (target, receivers) in [(None, 10), (Some(NodeId(7)), 1)] {
            let pattern = Pattern::Poisson {
                load: 500,
                count: 20_000,
                response: None,
                target,
            };
            let workload = made(pattern, 10, Size::Drawn(Sizes::WebSearch));
            let Start::At(last) = workload.flows.last().expect("some").start else {
                panic!("random times");
            };
            let bytes: u64 = workload.flows.iter().map(|flow| flow.bytes).sum();
            let able = receivers * Rate::from_gbps(100).bytes_in(last.since(Time::ZERO));
            let load = bytes * 1000 / able;
            assert!((460..540).contains(&load), "{load}");
            let heard: BTreeSet<NodeId> = workload.flows.iter().map(|flow| flow.to).collect();
            assert_eq!(heard.len() as u64, receivers);
            assert!(target.is_none_or(|target| heard.contains(&target)));
            let sent: BTreeSet<NodeId> = workload.flows.iter().map(|flow| flow.from).collect();
            assert_eq!(sent.len(), 10 - usize::from(target.is_some()));
        }
    }
}
