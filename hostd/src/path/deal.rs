//! Which port each entropy value belongs to (HT-37, UET 3.6.16.6).
//!
//! Values are dealt out in their order: each to the port that is furthest behind its share of the
//! speed, the one with the lower number if two are. So ports of one speed take turns, and value v
//! has port (v + o) modulo their number; o is the same for the life of the queue pair, and spreads
//! queue pairs of one value over the ports. The values of a port that does not work are dealt out
//! once more, to those that do; all others stay where they are.

use super::health::{Health, LostPacket};
use crate::limits;
use crate::verbs::{Feedback, PacketFate, PortId, PortSet};
use common::time::{Span, Time};
use common::units::Rate;

/// Packets in a row that vanish on a port, while others come through, after which it is left alone
/// for a while: somewhere its plane is broken. More than bursts of a congested network lose.
const VANISHED: u8 = 32;

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Deal {
    /// All values are of one port.
    One(PortId),
    /// Of several.
    Several(Box<Several>),
}

/// The values of several ports, and how their planes do.
#[derive(Clone, Debug)]
pub(super) struct Several {
    by_value: [PortId; limits::ENTROPIES],
    health: [Health; limits::PORTS],
    avoidance: Span,
    avoided: PortSet,
    /// When a packet left that came through, on any port: the newest one.
    newest_through: Time,
}

impl Deal {
    /// Deals the values out to `ports`, which have these speeds, of which the `usable` ones work.
    /// `offset`: of the queue pair; `avoidance`: how long a port is left alone at first.
    pub(super) fn new(
        ports: &[(PortId, Rate)],
        usable: PortSet,
        offset: u64,
        avoidance: Span,
    ) -> Self {
        let works = |(port, _): &&(PortId, Rate)| usable.contains(*port);
        let left: Vec<_> = ports.iter().filter(works).copied().collect();
        let left = if left.is_empty() { ports } else { &left };
        if let [] | [_] = left {
            return Self::One(left.first().map_or(PortId::FIRST, |(port, _)| *port));
        }
        let (mut all, mut again) = (Hand::new(ports, offset), Hand::new(left, offset));
        let by_value = std::array::from_fn(|_| {
            let port = all.next();
            match left.iter().any(|(other, _)| *other == port) {
                true => port,
                false => again.next(),
            }
        });
        Self::Several(Box::new(Several {
            by_value,
            health: std::array::from_fn(|_| Health::new(avoidance).patient(VANISHED)),
            avoidance,
            avoided: PortSet::NONE,
            newest_through: Time::ZERO,
        }))
    }

    /// The same after `before`: of ports that worked then and do now, besides others, it stays
    /// known how their planes do. One that did not begins anew, as does one that was left alone.
    pub(super) fn after(self, before: &Self) -> Self {
        let Self::Several(old) = before else {
            return self;
        };
        let Self::Several(mut now) = self else {
            return self;
        };
        let both = now.dealt().and(old.dealt());
        for port in both.iter() {
            now.health[port.index()] = old.health[port.index()].clone();
        }
        now.avoided = old.avoided.and(both);
        now.newest_through = old.newest_through;
        Self::Several(now)
    }

    /// The port of a value.
    #[inline]
    pub(super) fn port(&self, value: u8) -> PortId {
        match self {
            Self::One(port) => *port,
            Self::Several(several) => several.by_value[usize::from(value)],
        }
    }

    /// Whether packets with a value may leave through one of `ports`.
    #[inline]
    pub(super) fn allows(&self, value: u8, ports: PortSet) -> bool {
        match self {
            Self::One(_) => true,
            Self::Several(several) => ports.contains(several.by_value[usize::from(value)]),
        }
    }

    /// Whether there are several ports.
    pub(super) const fn is_several(&self) -> bool {
        matches!(self, Self::Several(_))
    }

    /// The ports among `all` that are not left alone; all of them if nothing else is left.
    pub(super) fn healthy(&self, all: PortSet) -> PortSet {
        let Self::Several(several) = self else {
            return all;
        };
        let healthy = several
            .avoided
            .iter()
            .fold(all, |left, port| left.without(port));
        if healthy.is_empty() { all } else { healthy }
    }

    /// Ends the avoidance of ports whose time is over.
    pub(super) fn release(&mut self, now: Time) {
        let Self::Several(several) = self else { return };
        for port in several.avoided.iter() {
            if several.health[port.index()].returns(now) {
                several.avoided = several.avoided.without(port);
            }
        }
    }

    /// The outcome of a packet is known.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        let Self::Several(several) = self else { return };
        let port = several.by_value[usize::from(feedback.entropy)];
        let health = &mut several.health[port.index()];
        match feedback.fate {
            PacketFate::Delivered {
                newest_copy: true, ..
            }
            | PacketFate::NotReady
            | PacketFate::Trimmed => {
                health.acknowledged(feedback.sent, several.avoidance);
                several.newest_through = several.newest_through.max(feedback.sent);
            }
            // Where nothing comes through at all no port is to blame.
            PacketFate::Lost if feedback.sent <= several.newest_through => {
                let (path, sent) = (feedback.path, feedback.sent);
                health.lost(LostPacket { path, sent }, false, now);
            }
            PacketFate::Lost | PacketFate::Delivered { .. } => {}
        }
        several.avoided = match health.is_avoided() {
            true => several.avoided.with(port),
            false => several.avoided.without(port),
        };
    }
}

impl Several {
    /// The ports that have values.
    fn dealt(&self) -> PortSet {
        let values = self.by_value.iter();
        values.fold(PortSet::NONE, |set, port| set.with(*port))
    }
}

/// Deals values out, one after another.
struct Hand<'a> {
    ports: &'a [(PortId, Rate)],
    /// How far each is behind its share.
    behind: [i128; limits::PORTS],
    total: i128,
}

impl<'a> Hand<'a> {
    /// Begins as if `offset` values had been dealt out.
    fn new(ports: &'a [(PortId, Rate)], offset: u64) -> Self {
        let total = ports.iter().map(|(_, rate)| weight(*rate)).sum();
        let mut hand = Self {
            ports,
            behind: [0; limits::PORTS],
            total,
        };
        for _ in 0..offset % ports.len() as u64 {
            hand.next();
        }
        hand
    }

    fn next(&mut self) -> PortId {
        for ((_, rate), behind) in self.ports.iter().zip(&mut self.behind) {
            *behind += weight(*rate);
        }
        let most = self.behind[..self.ports.len()].iter().max().copied();
        let of_most = self.behind.iter().position(|it| Some(*it) == most);
        let place = of_most.unwrap_or_default().min(self.ports.len() - 1);
        self.behind[place] -= self.total;
        self.ports[place].0
    }
}

/// What a port weighs: its speed, at least something.
fn weight(rate: Rate) -> i128 {
    i128::from(rate.bps().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(speeds: &[u64]) -> Vec<(PortId, Rate)> {
        let speeds = speeds.iter().map(|gbps| Rate::from_gbps(*gbps));
        (0..).map(PortId::new).zip(speeds).collect()
    }

    fn dealt(speeds: &[u64], usable: PortSet) -> Vec<usize> {
        let deal = Deal::new(&ports(speeds), usable, 0, Span::from_millis(100));
        (0..=255).map(|value| deal.port(value).index()).collect()
    }

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    /// HT-37: each value has one port, and ports have values by their speeds, in turns if these are
    /// the same.
    #[test]
    fn values_are_dealt_out_by_speed() {
        let all = PortSet::first_of(4);
        for count in 2..=4 {
            let even = dealt(&vec![100; count], all);
            assert!(even.iter().enumerate().all(|(v, port)| *port == v % count));
        }
        let uneven = dealt(&[100, 25, 25], all);
        let of = |port| uneven.iter().filter(|it| **it == port).count();
        assert!((170..=171).contains(&of(0)) && of(1).abs_diff(of(2)) <= 1);
        assert_eq!(dealt(&[100], all), [0; 256]);
        let other = Deal::new(&ports(&[1, 1]), all, 7, Span::ZERO);
        assert_eq!(
            other.port(0).index(),
            1,
            "queue pairs begin at different ports"
        );
    }

    /// HT-37: the values of a port that does not work go to the others, which keep theirs.
    #[test]
    fn values_of_a_dead_port_go_to_the_others() {
        let all = PortSet::first_of(3);
        let (before, after) = (
            dealt(&[1, 1, 1], all),
            dealt(&[1, 1, 1], all.without(PortId::new(1))),
        );
        let of = |port: usize| after.iter().filter(|it| **it == port).count();
        assert_eq!((of(0), of(1), of(2)), (129, 0, 127));
        let kept = before.iter().zip(&after).filter(|(old, _)| **old != 1);
        assert!(kept.into_iter().all(|(old, new)| old == new));
        assert_eq!(dealt(&[1, 1], PortSet::NONE), dealt(&[1, 1], all));
    }

    /// HT-37, HT-36: a port on which everything vanishes is left alone while another one leads
    /// somewhere, and comes back; loss alone, or that of everything, is no reason.
    #[test]
    fn a_port_whose_plane_is_broken_is_left_alone() {
        let all = PortSet::first_of(2);
        let new = || Deal::new(&ports(&[1, 1]), all, 0, Span::from_millis(1));
        let told = |deal: &mut Deal, entropy, sent, fate| {
            let feedback = Feedback {
                path: 0,
                entropy,
                sent: at(sent),
                round_trip: None,
                delay: None,
                fate,
            };
            deal.on_feedback(&feedback, at(sent + 10));
        };
        let delivered = PacketFate::Delivered {
            newest_copy: true,
            marked: false,
        };
        let mut deal = new();
        for sent in 1..=40 {
            told(&mut deal, 0, sent, PacketFate::Lost);
        }
        assert_eq!(deal.healthy(all), all, "nothing came through at all");
        for sent in 50..=90 {
            told(&mut deal, 1, sent, delivered);
            told(&mut deal, 0, sent, PacketFate::Lost);
        }
        assert_eq!(deal.healthy(all), all.without(PortId::new(0)));
        deal.release(at(500));
        assert_eq!(deal.healthy(all), all.without(PortId::new(0)));
        deal.release(at(1_200));
        assert_eq!(deal.healthy(all), all);
        let mut lossy = new();
        for sent in 1..=1_000 {
            told(&mut lossy, 1, sent, delivered);
            let fate = if sent % 4 == 0 {
                delivered
            } else {
                PacketFate::Lost
            };
            told(&mut lossy, 0, sent, fate);
        }
        assert_eq!(lossy.healthy(all), all);
    }

    /// HT-37: another route, or a port more, does not make a broken plane whole; a port that came
    /// back is tried.
    #[test]
    fn a_broken_plane_is_remembered() {
        let broken = PortId::new(0);
        let new =
            |ports: &[u64], usable| Deal::new(&self::ports(ports), usable, 0, Span::from_millis(1));
        let two = PortSet::first_of(2);
        let mut deal = new(&[1, 1], two);
        if let Deal::Several(several) = &mut deal {
            several.avoided = several.avoided.with(broken);
        }
        let all = PortSet::first_of(3);
        let three = new(&[1, 1, 1], all).after(&deal);
        assert_eq!(three.healthy(all), all.without(broken));
        let without = new(&[1, 1, 1], all.without(broken)).after(&three);
        let back = new(&[1, 1, 1], all).after(&without);
        assert_eq!(back.healthy(all), all);
        let one = new(&[1, 1], PortSet::NONE.with(broken)).after(&deal);
        assert_eq!(one.healthy(two), two, "nothing else is left");
    }
}
