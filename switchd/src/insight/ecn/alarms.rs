//! What tells that marks came too late: peers that had to be paused, and packets that were lost.
//! What happens at ports that do not feed a queue, or to other classes, is no alarm for it.

use crate::id::PortId;
use crate::limits::{PORT_WORDS, PRIORITIES};
use crate::stats::{PortStats, QueueFlows, WorkerStats};
use crate::tables::policy::Policy;

/// A set of ports, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ports([u64; PORT_WORDS]);

impl Ports {
    fn add(&mut self, port: PortId) {
        self.0[port.index() / 64 % PORT_WORDS] |= 1 << (port.index() % 64);
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }

    /// Those that packets of a queue came from lately.
    fn feeding(flows: &QueueFlows) -> Self {
        Self(std::array::from_fn(|word| flows.feeders[word].get()))
    }
}

/// What is known of a port and a class since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// Pauses that were sent there to what feeds the class.
    pauses: u64,
    /// Packets of groups that feed it, for which there was no headroom there.
    losses: u64,
}

/// What happened to one class since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarms {
    /// Bit n: group n feeds it,
    groups: u8,
    /// and so does priority n.
    priorities: u8,
    /// By port.
    totals: Vec<Totals>,
    paused: Ports,
    lost: Ports,
}

fn bits(all: impl Iterator<Item = usize>) -> u8 {
    all.fold(0, |mask, bit| mask | 1 << bit)
}

impl Alarms {
    /// Looks at all ports.
    pub(super) fn look(&mut self, class: usize, policy: &Policy, workers: &[&WorkerStats]) {
        let feeding = policy.feeding(class);
        let groups = bits((0..PRIORITIES).filter(|group| feeding[*group]));
        let fed = (0..PRIORITIES).filter(|group| feeding[*group]);
        let priorities = fed.fold(0, |mask, group| mask | policy.priorities_of(group));
        let ports = policy.ports.len();
        // Totals of something else are not compared.
        let is_known =
            (groups, priorities, ports) == (self.groups, self.priorities, self.totals.len());
        (self.groups, self.priorities) = (groups, priorities);
        (self.paused, self.lost) = Default::default();
        self.totals.resize(ports, Totals::default());
        for (totals, port) in self.totals.iter_mut().zip(0..) {
            let port = PortId(port);
            let of_port = workers.iter().filter_map(|it| it.ports.get(port.index()));
            let now = of_port.fold(Totals::default(), |sum, stats| Totals {
                pauses: sum.pauses + pauses(stats, priorities),
                losses: sum.losses + losses(stats, groups),
            });
            let before = std::mem::replace(totals, now);
            // Less than before: it is another port.
            if is_known && now.pauses > before.pauses {
                self.paused.add(port);
            }
            if is_known && now.losses > before.losses {
                self.lost.add(port);
            }
        }
    }

    /// Whether peers that feed a queue of the class were paused, and whether there was no headroom
    /// for packets of theirs. As long as nobody knows who feeds it, all do.
    pub(super) fn concern(&self, flows: &QueueFlows) -> (bool, bool) {
        let feeders = Ports::feeding(flows);
        let concerns = |ports: &Ports| {
            let is_anybody = feeders.is_empty() && !ports.is_empty();
            is_anybody || ports.meets(&feeders)
        };
        (concerns(&self.paused), concerns(&self.lost))
    }
}

/// Pauses that a port sent for these priorities. A PAUSE of the link is for all of them.
fn pauses(stats: &PortStats, priorities: u8) -> u64 {
    let all = stats.pauses.iter().enumerate();
    let its = all.filter(|(priority, _)| priorities & 1 << *priority != 0);
    let pfc: u64 = its.map(|(_, pause)| pause.sent_xoff.get()).sum();
    pfc + stats.link_pauses[1].get()
}

/// Packets of these groups that a port lost for lack of headroom.
fn losses(stats: &PortStats, groups: u8) -> u64 {
    let all = stats.headroom_lost.iter().enumerate();
    let its = all.filter(|(group, _)| groups & 1 << *group != 0);
    its.map(|(_, lost)| lost.get()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-24: totals of other priorities, and of another port in the same place, are not compared.
    #[test]
    fn only_like_totals_are_compared() {
        let (mut policy, stats) = (Policy::plain(2, 100), WorkerStats::new(2));
        let (mut alarms, flows) = (Alarms::default(), QueueFlows::default());
        flows.feeders[0].set(0b10);
        let mut paused = |policy: &Policy, pauses: u64| {
            stats.ports[1].pauses[4].sent_xoff.set(pauses);
            alarms.look(3, policy, &[&stats]);
            alarms.concern(&flows)
        };
        let none = (false, false);
        assert_eq!([paused(&policy, 9), paused(&policy, 10)], [none; 2]);
        // From now on priority 4 feeds the class, too.
        policy.classify.group_of_priority[4] = 3;
        assert_eq!([paused(&policy, 10), paused(&policy, 10)], [none; 2]);
        assert_eq!(paused(&policy, 11), (true, false));
        assert_eq!([paused(&policy, 11), paused(&policy, 2)], [none; 2]);
        assert_eq!(paused(&policy, 3), (true, false));
    }
}
