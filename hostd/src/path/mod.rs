//! \[4\] The sub-paths of a queue pair: what tells them apart on the wire, which one a packet
//! takes, and how they perform.
//!
//! ```text
//!   entropy   Path ID to UDP source port and flow label
//!   select    spraying, flowlets, one path        shuffle   random orders
//!   spray     which entropy value a sprayed packet has: oblivious, bitmap, recycling, combined
//!   health    delays, and packets that vanish
//!   life      paths that come and go while packets are under way
//!   deal      which port each entropy value belongs to
//!   signals   congestion signals that come back
//!   reroute   when a flow leaves a congested or slow path
//!   leave     which paths it compares, and which one it takes then
//! ```

mod deal;
mod entropy;
mod health;
mod leave;
mod life;
mod reroute;
mod select;
mod shuffle;
mod signals;
mod spray;
mod stripped;
mod telemetry;

pub(crate) use entropy::{Entropy, mix};
pub(crate) use health::LostPacket;
pub(crate) use select::{Blocks, Choice, Selector};
pub(crate) use signals::{Reflected, Signals};
pub(crate) use telemetry::{Loads, Told};

use crate::limits;
use crate::stats::PathStatistics;
use crate::verbs::{
    Feedback, Granularity, MultipathConfig, PathStanding, PortId, PortSet, Psn, Spraying,
};
use common::csig::SIGNALS;
use common::time::{Span, Time};
use common::units::Rate;
use deal::Deal;
use health::Health;
use reroute::Reroute;

/// One sub-path.
#[derive(Clone, Debug)]
struct Path {
    entropy: Entropy,
    health: Health,
    tx_packets: u64,
    /// A packet left on it, with its present entropy.
    probed: bool,
    standing: PathStanding,
    /// New packets take it.
    carries: bool,
    /// It came into force, and its first packet of data has not left: that one has flag S.
    entered: bool,
    /// The packet before which all of the path's packets left, once it does not carry any more.
    left_at: Psn,
    /// The share of packets against that of other paths.
    weight: u8,
    /// Of its entropy, but for how often it was given up since it is in force.
    generation: u32,
    /// Set with the first packet that comes on the path (HT-21).
    rx: Option<Reception>,
}

impl Path {
    /// How often its entropy value was replaced.
    fn whole_generation(&self) -> u32 {
        self.generation.wrapping_add(self.health.times_given_up())
    }
}

/// What the receiver knows of a path (HT-40).
#[derive(Clone, Copy, Debug, Default)]
struct Reception {
    packets: u64,
}

/// The sub-paths of a queue pair.
#[derive(Debug)]
pub(crate) struct PathSet {
    paths: Vec<Path>,
    selector: Selector,
    /// What the entropy is derived from, with the Path ID and how often the path was given up.
    identity: u64,
    avoidance: Span,
    avoided: usize,
    /// Some path is retiring.
    retiring: bool,
    plan: Plan,
    deal: Deal,
    /// The ports of the values in use.
    ports: PortSet,
    /// Number of the last flowlet, if flows or packets take paths now.
    flowlet: u16,
    /// Of the path that a flow has, if it may leave it.
    reroute: Option<Box<Reroute>>,
}

/// When paths are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// One on which packets vanish is not used for so long at first.
    pub(crate) avoidance: Span,
    /// A flow leaves a congested or slow one after so many round trips at the earliest; zero:
    /// never.
    pub(crate) reroute_after: u16,
    /// For how long the peer may hold acknowledgements back.
    pub(crate) held_back: Span,
}

impl Rules {
    /// When a flow leaves its path: there has to be another.
    fn reroute(&self, paths: usize) -> Option<Box<Reroute>> {
        let leaves = paths > 1 && self.reroute_after > 0;
        leaves.then(|| Box::new(Reroute::new(self.reroute_after, self.held_back)))
    }
}

/// What selectors are made of.
#[derive(Clone, Copy, Debug)]
struct Plan {
    spraying: Spraying,
    /// Percent of congested values beyond which none is passed over.
    saturation: u8,
    /// Entropy values of a sprayed connection with several paths.
    values: usize,
    seed: u64,
    blocks: Blocks,
}

impl Plan {
    /// Entropy values over so many `paths`: one path has one.
    const fn values_over(&self, paths: usize) -> usize {
        if paths > 1 { self.values } else { 1 }
    }

    fn selector(
        &self,
        granularity: Granularity,
        flowlet_timeout: Span,
        paths: usize,
        flowlet: u16,
    ) -> Selector {
        let Self {
            spraying,
            saturation,
            values,
            seed,
            blocks,
        } = *self;
        match granularity {
            Granularity::Packet => Selector::spray((spraying, saturation), paths, values, seed),
            Granularity::Flowlet => {
                Selector::flowlet(paths, seed, flowlet_timeout, flowlet, blocks)
            }
            Granularity::Flow => Selector::single(paths, seed),
        }
    }
}

impl PathSet {
    /// The paths that were agreed on; one for plain RoCEv2. `identity` is the same for the life of
    /// the queue pair.
    pub(crate) fn new(
        agreed: Option<&MultipathConfig>,
        (spraying, saturation): (Spraying, u8),
        identity: u64,
        rules: Rules,
        seed: u64,
    ) -> Self {
        let count = agreed.map_or(1, |agreed| {
            usize::from(agreed.paths).clamp(1, limits::PATHS)
        });
        let path = |id: u8| Path {
            entropy: Entropy::derive(identity, id, 0),
            health: Health::new(rules.avoidance),
            tx_packets: 0,
            probed: false,
            standing: PathStanding::Carrying,
            carries: true,
            entered: false,
            left_at: Psn::default(),
            weight: 1,
            generation: 0,
            rx: None,
        };
        let plan = Plan {
            spraying,
            saturation,
            values: limits::ENTROPIES,
            seed,
            blocks: Blocks::default(),
        };
        let spread = agreed.map(|agreed| (agreed.granularity, agreed.flowlet_timeout));
        let (granularity, timeout) = spread.unwrap_or((Granularity::Flow, Span::ZERO));
        let selector = plan.selector(granularity, timeout, count, 0);
        Self {
            paths: (0..=u8::MAX).take(count).map(path).collect(),
            selector,
            identity,
            avoidance: rules.avoidance,
            avoided: 0,
            retiring: false,
            plan,
            deal: Deal::One(PortId::FIRST),
            ports: PortSet::NONE.with(PortId::FIRST),
            flowlet: 0,
            reroute: rules.reroute(count),
        }
    }

    /// Gives each sprayed path one entropy value, so that it is one way through the network.
    pub(crate) fn with_a_value_each(mut self) -> Self {
        let paths = self.paths.len();
        self.plan.values = paths;
        if matches!(self.selector, Selector::Spray(..)) {
            let granularity = Granularity::Packet;
            self.selector = self.plan.selector(granularity, Span::ZERO, paths, 0);
        }
        self
    }

    /// The application tells of its blocks: flowlets follow them (HT-46).
    pub(crate) fn describe(&mut self, blocks: Blocks) {
        self.plan.blocks = blocks;
        if let Selector::Flowlet(flowlets) = &mut self.selector {
            flowlets.set_blocks(blocks);
        }
    }

    /// Whether all packets take one path.
    pub(crate) fn is_flow(&self) -> bool {
        self.selector.flow().is_some()
    }

    /// Number of sub-paths.
    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    /// So many packets may be in flight: the number of entropy values follows it. A path that has
    /// one keeps it.
    pub(crate) fn follow(&mut self, window: u32) {
        let paths = self.paths.len();
        if let Selector::Spray(spray, _) = &mut self.selector
            && self.plan.values_over(paths) > paths
        {
            spray.follow(window, paths);
        }
    }

    /// The path of the next packet; not the entropy value `other_than`, with which its last copy
    /// was lost, as long as there is a choice (HT-42).
    pub(crate) fn select(&mut self, other_than: Option<u8>, free: PortSet, now: Time) -> Choice {
        self.select_among(other_than, (free, false), now, |_| true)
    }

    /// The same, among the paths that are `open`, if they have one value each and one is open;
    /// `idle`: nothing is in flight.
    pub(crate) fn select_among(
        &mut self,
        other_than: Option<u8>,
        (free, idle): (PortSet, bool),
        now: Time,
        open: impl Fn(u8) -> bool,
    ) -> Choice {
        self.end_avoidance(now);
        let free = self.narrow(free, other_than, now);
        let deal = &self.deal;
        let through = |value: u8| deal.allows(value, free);
        debug_assert_eq!(
            self.avoided,
            self.paths
                .iter()
                .filter(|path| path.health.is_avoided())
                .count(),
            "avoided paths"
        );
        let leave = self.leaves(idle, now, |to| Some(to) != other_than && through(to));
        let paths = &self.paths;
        let ids = || (0..=u8::MAX).take(paths.len());
        let carries = |id: u8, avoided: bool| {
            let path = &paths[usize::from(id)];
            path.carries && (avoided || !path.health.is_avoided())
        };
        // What leads through no free port would wait there: rather one that is avoided, and rather
        // the one on which the last copy was lost.
        let all = self.avoided > 0 && !ids().any(|id| carries(id, false) && through(id));
        let spared = other_than.filter(|lost| {
            let mut others = ids().filter(|id| id != lost);
            let may = |id: u8| leave.is_none_or(|leave| leave.allows(id));
            others.any(|id| carries(id, all) && may(id) && through(id))
        });
        let mut choice = self.selector.select(
            now,
            other_than,
            |id| {
                carries(id, all) && Some(id) != spared && leave.is_none_or(|leave| leave.allows(id))
            },
            through,
            |id| {
                let path = paths.get(usize::from(id)).filter(|path| path.carries);
                path?.health.delay(now)
            },
        );
        if choice.switched
            && self.is_flow()
            && let Some(reroute) = &mut self.reroute
        {
            choice.moved = leave.is_some();
            reroute.took(leave.is_some_and(|leave| leave.is_for_better()), now);
        }
        if matches!(self.selector, Selector::Spray(..)) && !open(choice.path) {
            let ids = (0..=u8::MAX).take(self.paths.len());
            let after = ids.clone().skip(usize::from(choice.path) + 1);
            let carries = |id: u8| self.paths[usize::from(id)].carries;
            let open = |id: u8| open(id) && carries(id) && through(id);
            let mut others = after.chain(ids).filter(|&id| open(id));
            let first = others.next();
            let best = first.filter(|id| Some(*id) != other_than);
            if let Some(id) = best.or_else(|| others.next()).or(first) {
                (choice.path, choice.entropy) = (id, id);
            }
        }
        let path = &mut self.paths[usize::from(choice.path)];
        path.tx_packets += 1;
        choice.fresh = !std::mem::replace(&mut path.probed, true);
        choice.switched |= std::mem::take(&mut path.entered);
        choice
    }

    /// The ports among those that are `free` that the next packet is to leave through: none that is
    /// left alone, nor that on which its last copy was lost, if there is a choice.
    fn narrow(&mut self, free: PortSet, other_than: Option<u8>, now: Time) -> PortSet {
        if !self.deal.is_several() {
            return free;
        }
        self.deal.release(now);
        let wanted = self.deal.healthy(self.ports);
        let among = if free.meets(wanted) {
            free.and(wanted)
        } else {
            free.and(self.ports)
        };
        let lost = other_than.map(|value| self.deal.port(value));
        let others = lost.map_or(among, |lost| among.without(lost));
        match (others.is_empty(), among.is_empty()) {
            (false, _) => others,
            (true, false) => among,
            (true, true) => self.ports,
        }
    }

    /// Ports that the next packet may leave through, among the paths that are `open`. A flow waits
    /// for that of its path.
    pub(crate) fn wanted(&self, now: Time, open: impl Fn(u8) -> bool) -> PortSet {
        if !self.deal.is_several() {
            return self.ports;
        }
        let healthy = self.deal.healthy(self.ports);
        let current = match self.leaves(false, now, |_| true) {
            Some(leave) => leave.to(),
            None => self.selector.current(now),
        };
        if let Some(path) = current.filter(|path| self.is_usable(*path)) {
            let port = PortSet::NONE.with(self.deal.port(path));
            return if port.meets(healthy) { port } else { healthy };
        }
        if self.plan.values != self.paths.len() {
            return healthy;
        }
        let ids = (0..=u8::MAX).zip(&self.paths);
        let open = ids.filter(|(id, path)| path.carries && open(*id));
        let ports = open.fold(PortSet::NONE, |set, (id, _)| set.with(self.deal.port(id)));
        if ports.meets(healthy) {
            ports.and(healthy)
        } else {
            healthy
        }
    }

    /// The port of an entropy value.
    pub(crate) fn port(&self, value: u8) -> PortId {
        self.deal.port(value)
    }

    /// The ports of the values in use.
    pub(crate) fn ports(&self) -> PortSet {
        self.ports
    }

    /// Packets leave through these ports, which have these speeds: through the `usable` ones, if
    /// there is one.
    pub(crate) fn set_ports(&mut self, ports: &[(PortId, Rate)], usable: PortSet) {
        let before = self.deal.is_several();
        let offset = entropy::mix(self.identity);
        self.deal = Deal::new(ports, usable, offset, self.avoidance).after(&self.deal);
        if before || self.deal.is_several() {
            // Values lead other ways now.
            self.set_entries();
        } else {
            self.note_ports();
        }
    }

    /// Notes the ports of the values in use.
    pub(super) fn note_ports(&mut self) {
        let paths = self.paths.len();
        let values = match &self.selector {
            Selector::Spray(..) => self.plan.values_over(paths),
            Selector::Flowlet(_) | Selector::Single(_) => paths,
        };
        let carries = |value: &u8| self.paths[usize::from(*value) % paths].carries;
        let used = (0..=u8::MAX).take(values).filter(carries);
        self.ports = used.fold(PortSet::NONE, |set, value| set.with(self.deal.port(value)));
        if self.ports.is_empty() {
            self.ports = PortSet::NONE.with(self.deal.port(0));
        }
    }

    /// What tells a packet apart for which `choice` was made.
    pub(crate) fn entropy_of(&self, choice: &Choice) -> Entropy {
        match self.selector {
            Selector::Spray(..) => {
                let generation = self.paths[usize::from(choice.path)].generation;
                Entropy::derive(self.identity, choice.entropy, generation)
            }
            Selector::Flowlet(_) | Selector::Single(_) => self.entropy(choice.path),
        }
    }

    /// The outcome of a packet is known: which entropy values are good may follow from it.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        self.deal.on_feedback(feedback, now);
        let path = self.paths.get(usize::from(feedback.path));
        if let (Selector::Spray(spray, _), Some(Path { carries: true, .. })) =
            (&mut self.selector, path)
        {
            spray.on_feedback(feedback.entropy, feedback.fate);
        }
        self.weigh_up(feedback, now);
    }

    /// A retransmission time-out expired. The only path takes another entropy value from the second
    /// one in a row on: the way may be silent, and not the peer (HT-24). One may be congestion.
    pub(crate) fn timed_out(&mut self, now: Time) {
        if let Selector::Spray(spray, _) = &mut self.selector {
            spray.timed_out(now);
        }
        if let [path] = &mut self.paths[..] {
            if path.health.is_silent() {
                path.generation = path.generation.wrapping_add(1);
                path.entropy = Entropy::derive(self.identity, 0, path.whole_generation());
                path.probed = false;
            }
            path.health.timed_out();
        }
    }

    /// What tells the first path apart, or for `number` above zero another value in its place.
    pub(crate) fn detour(&self, number: u8) -> Entropy {
        let Some(path) = self.paths.first().filter(|_| number > 0) else {
            return self.entropy(0);
        };
        // Far from the generations that come next.
        let generation = path.whole_generation() ^ u32::from(number) << 24;
        Entropy::derive(self.identity, 0, generation)
    }

    /// What tells the packets of `path` apart.
    pub(crate) fn entropy(&self, path: u8) -> Entropy {
        self.paths
            .get(usize::from(path))
            .or_else(|| self.paths.first())
            .map_or_else(Entropy::default, |path| path.entropy)
    }

    /// A data packet came on `path`; whether that can be: the peer numbers its paths within what
    /// was agreed on.
    pub(crate) fn received(&mut self, path: u8) -> bool {
        let Some(path) = self.paths.get_mut(usize::from(path)) else {
            return false;
        };
        path.rx.get_or_insert_default().packets += 1;
        true
    }

    /// A packet that left on `path` at `sent` was acknowledged.
    pub(crate) fn acknowledged(&mut self, path: u8, sent: Time) {
        if let Some(path) = self.paths.get_mut(usize::from(path)) {
            let was = path.health.is_avoided();
            path.health.acknowledged(sent, self.avoidance);
            self.avoided -= usize::from(was && !path.health.is_avoided());
        }
    }

    /// A packet was taken for lost. Sprayed ones take no path out: they have other means (HT-36).
    pub(crate) fn lost(&mut self, packet: LostPacket, now: Time) {
        let sprayed = matches!(self.selector, Selector::Spray(..));
        if let Some(path) = self.paths.get_mut(usize::from(packet.path)) {
            let was = path.health.is_avoided();
            path.health.lost(packet, sprayed, now);
            self.avoided += usize::from(!was && path.health.is_avoided());
        }
    }

    /// A round trip on `path` was measured.
    pub(crate) fn measured(&mut self, path: u8, rtt: Span, now: Time) {
        if let Some(path) = self.paths.get_mut(usize::from(path)) {
            path.health.measured(rtt, now);
        }
    }

    /// The peer measured the one-way delay of `path`, against an origin that is the same for all.
    pub(crate) fn one_way(&mut self, path: u8, delay: u16) {
        if let Some(path) = self.paths.get_mut(usize::from(path)) {
            path.health.one_way = Some(delay);
        }
    }

    /// Paths whose avoidance is over come back, with another entropy value (HT-12): the old one led
    /// where packets vanish.
    fn end_avoidance(&mut self, now: Time) {
        if self.avoided == 0 {
            return;
        }
        for (path, id) in self.paths.iter_mut().zip(0..=u8::MAX) {
            if path.health.returns(now) {
                self.avoided -= 1;
                path.probed = false;
                path.entropy = Entropy::derive(self.identity, id, path.whole_generation());
            }
        }
    }

    /// How each path stands.
    pub(crate) fn statistics(&self) -> Vec<PathStatistics> {
        let best = self.best_one_way();
        let paths = self.paths.iter().zip(0..=u8::MAX);
        paths
            .map(|(path, id)| PathStatistics {
                path: id,
                entropy: path.entropy.port,
                tx_packets: path.tx_packets,
                rx_packets: path.rx.map_or(0, |rx| rx.packets),
                acknowledged: path.health.acknowledged,
                lost: path.health.lost,
                rtt: path.health.rtt.smoothed(),
                rtt_min: path.health.rtt.shortest(),
                delay_above_best: best
                    .zip(path.health.one_way)
                    .map(|(best, own)| health::delay_span(own.wrapping_sub(best))),
                avoided: path.health.is_avoided(),
                standing: path.standing,
                weight: path.weight,
                signals: [None; SIGNALS],
                stripped: false,
                load: None,
            })
            .collect()
    }

    /// The smallest one-way delay. The measures wrap, so they are compared with the first one.
    fn best_one_way(&self) -> Option<u16> {
        let mut measures = self.paths.iter().filter_map(|path| path.health.one_way);
        let first = measures.next()?;
        let offset = |measure: u16| measure.wrapping_sub(first).cast_signed();
        Some(measures.fold(first, |best, measure| {
            if offset(measure) < offset(best) {
                measure
            } else {
                best
            }
        }))
    }
}

#[cfg(test)]
mod tests;
