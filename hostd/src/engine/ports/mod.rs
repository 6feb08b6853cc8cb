//! The table of ports: what paces each, what pauses it, and where it leads (HT-37).
//!
//! A port that does not work gets no packets of queue pairs that have another way. It takes those
//! of the others all the same: nothing but the clocks of retransmission ends them.

mod pacer;

use crate::limits;
use crate::pauses::{Asking, Malformed, Pauses, Standstill};
use crate::stats::PortStatistics;
use crate::verbs::{
    Direction, EngineConfig, EngineError, FlowControl, PRIORITIES, PortId, PortSet, Route,
};
use common::time::Time;
use common::units::Rate;
use common::wire::Mac;
use common::wire::pause::FRAME_LEN;
use pacer::Pacer;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// The pause of packets of one kind (HT-45).
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    /// When it ends. In the past if the packets are not paused.
    until: Time,
    /// Whether they were paused at the last look.
    paused: bool,
}

impl Pause {
    /// Until both are over.
    fn longer(self, other: Self) -> Self {
        Self {
            until: self.until.max(other.until),
            paused: self.paused | other.paused,
        }
    }
}

/// One port.
#[derive(Debug)]
struct Port {
    pacer: Pacer,
    pauses: Pauses,
    asking: Asking,
    /// Of the fullest receive ring: packets that wait, and places.
    filled: (usize, usize),
    mac: Mac,
    data: Pause,
    /// Acknowledgements and connection messages.
    control: Pause,
    routes: HashMap<Direction, Route>,
    /// The speed of the link is not known otherwise: it is that of the routes.
    counts_by_routes: bool,
    /// Packets that the device has room for.
    room: usize,
}

/// All ports of an engine.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<Port>,
    /// Those whose link is up.
    working: PortSet,
    /// Priorities of data packets, a bit each. While one is paused no data packet leaves: a queue
    /// pair that is passed over would have to be found again when its pause ends.
    data_priorities: u8,
    /// Priority of acknowledgements and connection messages.
    control_priority: usize,
    /// How long data packets were paused so far, as of the last look. The clocks of senders
    /// stand still during a pause. A missing answer to a packet that was not sent is no sign of a
    /// loss, and a retransmission could not leave either.
    standstill: Standstill,
    /// The port of the last connection message.
    last: PortId,
}

impl Ports {
    /// Ports without routes, whose speed is not known yet unless the configuration says it.
    pub(super) fn new(config: &EngineConfig) -> Self {
        let rules: &FlowControl = &config.flow_control;
        let port = || Port {
            pacer: Pacer::new(config.pacer_burst),
            pauses: Pauses::new(rules),
            asking: Asking::new(rules.asks),
            filled: (0, 1),
            mac: Mac::default(),
            data: Pause::default(),
            control: Pause::default(),
            routes: HashMap::new(),
            counts_by_routes: rules.speed == Rate::default(),
            room: usize::MAX,
        };
        let count = usize::from(config.ports).clamp(1, limits::PORTS);
        Self {
            ports: (0..count).map(|_| port()).collect(),
            working: PortSet::first_of(count),
            data_priorities: [config.data_class, config.low_class, config.high_class]
                .into_iter()
                .chain(config.again_class)
                .chain(config.collective.as_ref().map(|it| it.class))
                .fold(0, |bits, class| bits | 1 << rules.priority_of(class)),
            control_priority: rules.priority_of(config.control_class),
            standstill: Standstill::default(),
            last: PortId::FIRST,
        }
    }

    /// All ports with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (PortId, &Port)> {
        (0..).map(PortId::new).zip(&self.ports)
    }

    /// Whether there is such a port.
    pub(super) fn has(&self, port: PortId) -> bool {
        port.index() < self.ports.len()
    }

    /// Those whose link is up.
    pub(super) const fn working(&self) -> PortSet {
        self.working
    }

    /// Whether the link of a port is up from now on; whether that is news.
    pub(super) fn set_working(&mut self, port: PortId, up: bool) -> bool {
        if let Some(port) = self.ports.get_mut(port.index()).filter(|_| !up) {
            port.asking.forget();
        }
        let before = self.working;
        self.working = match up {
            true => before.with(port),
            false => before.without(port),
        };
        self.working != before
    }

    /// How packets to `destination` are addressed, by port; empty without a route. `source`: the
    /// own address that they leave from; without one it is that of the route for all others. As
    /// with sockets of the kernel, rules that look at the source count for that one, too.
    pub(super) fn routes(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> impl Iterator<Item = (PortId, &Route)> {
        let usual = Direction::from(destination);
        let source = source.or_else(|| self.exact(usual).next().map(|(_, route)| route.source));
        let own = Direction { source, ..usual };
        let has_own = self.exact(own).next().is_some();
        self.exact(if has_own { own } else { usual })
    }

    /// The routes of this direction alone.
    fn exact(&self, direction: Direction) -> impl Iterator<Item = (PortId, &Route)> {
        self.numbered()
            .filter_map(move |(number, port)| Some((number, port.routes.get(&direction)?)))
    }

    /// How packets are addressed that leave through the first port with a route; both addresses as
    /// in [`Self::routes`].
    pub(super) fn route(&self, destination: IpAddr, source: Option<IpAddr>) -> Option<Route> {
        let mut routes = self.routes(destination, source);
        routes.next().map(|(_, route)| *route)
    }

    /// The way of the next connection message to `destination`: ports that may send now take turns,
    /// so that a repetition does not go where its first copy was lost.
    pub(super) fn message_route(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Option<(PortId, Route)> {
        let ports = self.routes(destination, source).map(|(port, _)| port);
        let all = ports.fold(PortSet::NONE, PortSet::with);
        let chosen = self.next_of(all)?;
        let mut routes = self.routes(destination, source);
        let (_, route) = routes.find(|(port, _)| *port == chosen)?;
        Some((chosen, *route))
    }

    /// The next of these ports for a connection message: one that works and may send, if there is
    /// one.
    pub(super) fn next_of(&mut self, all: PortSet) -> Option<PortId> {
        let open = all.and(self.control_open());
        let best = [open.and(self.working), open, all.and(self.working), all];
        let among = best.into_iter().find(|set| !set.is_empty())?;
        let after = among.iter().find(|port| *port > self.last);
        self.last = after.or_else(|| among.first())?;
        Some(self.last)
    }

    /// The longest IP packet of the ports that packets to `destination` leave through; as long as
    /// there is no route to it, of the link of any. `None` without routes.
    pub(super) fn mtu(&self, destination: IpAddr, source: Option<IpAddr>) -> Option<u16> {
        let known = self.routes(destination, source);
        let known = known.map(|(_, route)| route.mtu).min();
        let mut routes = self.ports.iter().flat_map(|port| port.routes.values());
        known.or_else(|| routes.next().map(|it| it.mtu))
    }

    /// Whether there is no room for a route of another direction than those that are known.
    pub(super) fn is_full_for(&self, direction: Direction) -> bool {
        let full = |port: &Port| {
            port.routes.len() >= limits::ROUTES && !port.routes.contains_key(&direction)
        };
        self.ports.iter().any(full)
    }

    /// Forgets the routes to all destinations but these.
    pub(super) fn keep_routes(&mut self, used: &HashSet<IpAddr>) {
        for port in &mut self.ports {
            port.routes
                .retain(|direction, _| used.contains(&direction.destination));
        }
    }

    /// Packets of a direction are addressed this way from now on, and leave through these ports
    /// alone. A port is paced to the route's speed, and its link has that one, too, unless the
    /// configuration says another. Whether anything is another way now.
    ///
    /// # Errors
    /// The addresses are of different families, a port does not exist, or there are too many
    /// routes.
    pub(super) fn set_routes(
        &mut self,
        direction: Direction,
        routes: &[(PortId, Route)],
    ) -> Result<bool, EngineError> {
        let legal = |(port, route): &(PortId, Route)| {
            self.has(*port) && direction.destination.is_ipv4() == route.source.is_ipv4()
        };
        if !routes.iter().all(legal) || !direction.is_of_one_family() {
            return Err(EngineError::Argument);
        }
        if !routes.is_empty() && self.is_full_for(direction) {
            return Err(EngineError::TooMany);
        }
        let mut changed = false;
        for (port, number) in self.ports.iter_mut().zip((0..).map(PortId::new)) {
            let route = routes.iter().find(|(port, _)| *port == number);
            let Some((_, route)) = route else {
                changed |= port.routes.remove(&direction).is_some();
                continue;
            };
            changed |= port.routes.insert(direction, *route) != Some(*route);
            port.pacer.set_rate(route.rate);
            if port.counts_by_routes {
                port.pauses.set_speed(route.rate);
            }
        }
        Ok(changed)
    }

    /// The quanta of pauses of a port that begin from now on count by this speed, whatever routes
    /// say.
    pub(super) fn set_link_speed(&mut self, port: PortId, speed: Rate) {
        if let Some(port) = self.ports.get_mut(port.index()) {
            port.counts_by_routes = false;
            port.pauses.set_speed(speed);
        }
    }

    /// The device of a port takes so many packets from now on.
    pub(super) fn set_room(&mut self, port: PortId, packets: usize) {
        if let Some(port) = self.ports.get_mut(port.index()) {
            port.room = packets;
        }
    }

    /// The Ethernet address that a port's own frames come from.
    pub(super) fn set_mac(&mut self, port: PortId, mac: Mac) {
        if let Some(port) = self.ports.get_mut(port.index()) {
            port.mac = mac;
        }
    }

    /// In the fullest receive ring of a port packets wait in so many of so many places.
    pub(super) fn set_filled(&mut self, port: PortId, filled: (usize, usize)) {
        if let Some(port) = self.ports.get_mut(port.index()) {
            port.filled = filled;
        }
    }

    /// Whether pauses are asked for at all.
    pub(super) fn asks(&self) -> bool {
        self.ports.iter().any(|port| port.asking.is_on())
    }

    /// The next port with a frame of flow control that is due, and the frame.
    pub(super) fn next_asked(
        &mut self,
        now: Time,
        statistics: &mut [PortStatistics],
    ) -> Option<(PortId, [u8; FRAME_LEN])> {
        let ports = self.ports.iter_mut().zip(statistics);
        let mut ports = ports.zip((0..).map(PortId::new));
        ports.find_map(|((port, statistics), number)| {
            let on = port.asking.is_on() && port.room > 0;
            let (filled, speed) = (port.filled, port.pauses.speed());
            let asked = &mut statistics.pauses.asked;
            let control = on.then(|| port.asking.look(filled, speed, now, asked))??;
            Some((number, control.emit(port.mac)))
        })
    }

    /// A packet goes to the device of `port`.
    pub(super) fn take_room(&mut self, port: PortId) {
        let port = &mut self.ports[port.index()];
        port.room = port.room.saturating_sub(1);
    }

    /// Takes a MAC control frame that came through `port`.
    ///
    /// # Errors
    /// It is not understood.
    pub(super) fn on_control_frame(
        &mut self,
        port: PortId,
        frame: &[u8],
        now: Time,
        statistics: &mut [PortStatistics],
    ) -> Result<(), Malformed> {
        let counters = &mut statistics[port.index()].pauses;
        self.ports[port.index()]
            .pauses
            .receive(frame, now, counters)?;
        self.look(now, statistics);
        Ok(())
    }

    /// Looks at how the pauses stand. Once a turn this is all that a port costs that is not paused.
    pub(super) fn settle(&mut self, now: Time, statistics: &mut [PortStatistics]) {
        if self.ports.iter().any(|port| port.pauses.any()) {
            self.look(now, statistics);
        }
    }

    fn look(&mut self, now: Time, statistics: &mut [PortStatistics]) {
        let (data, control) = (self.data_priorities, self.control_priority);
        let of_data = || (0..PRIORITIES).filter(move |priority| data >> priority & 1 == 1);
        let before = self.ports.iter().map(|port| port.data);
        let until = before.map(|data| data.paused.then_some(data.until));
        self.standstill.go_on(until, now);
        for (port, statistics) in self.ports.iter_mut().zip(statistics) {
            let paused = port.pauses.settle(now, &mut statistics.pauses);
            let pause = |priority: usize| Pause {
                until: port.pauses.until(priority),
                paused: paused & 1 << priority != 0,
            };
            let pauses = of_data().map(pause);
            port.data = pauses.reduce(Pause::longer).unwrap_or_default();
            port.control = pause(control);
        }
    }

    /// Ports through which a data packet may leave now.
    pub(super) fn free(&self, now: Time) -> PortSet {
        let mut free = PortSet::NONE;
        for (number, port) in self.numbered() {
            if !port.data.paused && port.room > 0 && port.pacer.departure() <= now {
                free = free.with(number);
            }
        }
        free
    }

    /// A data packet of `len` bytes leaves through `port`.
    pub(super) fn depart(&mut self, port: PortId, len: usize, now: Time) {
        self.ports[port.index()].pacer.depart(len, now);
        self.take_room(port);
    }

    /// Ports through which acknowledgements and connection messages may leave.
    pub(super) fn control_open(&self) -> PortSet {
        let open = self.numbered();
        let open = open.filter(|(_, port)| !port.control.paused && port.room > 0);
        open.fold(PortSet::NONE, |set, (number, _)| set.with(number))
    }

    /// Whether acknowledgements and connection messages are paused on all ports.
    pub(super) fn control_is_paused(&self) -> bool {
        self.ports.iter().all(|port| port.control.paused)
    }

    /// How long data packets were paused so far, as of the last look.
    pub(super) const fn standstill(&self) -> &Standstill {
        &self.standstill
    }

    /// When acknowledgements and connection messages may leave through one of `among`; a time that
    /// has passed if they may.
    pub(super) fn control_from(&self, among: PortSet) -> Time {
        self.earliest(among, |port| port.control.until)
    }

    /// When the next data packet may leave through one of `among`.
    pub(super) fn data_from(&self, among: PortSet) -> Time {
        self.earliest(among, |port| port.pacer.departure().max(port.data.until))
    }

    /// When the next pause ends, or is asked for again; [`Time::NEVER`] if none is known.
    pub(super) fn deadline(&self) -> Time {
        let of = |port: &Port| port.pauses.deadline().min(port.asking.deadline());
        self.ports.iter().map(of).min().unwrap_or(Time::NEVER)
    }

    fn earliest(&self, among: PortSet, of: impl Fn(&Port) -> Time) -> Time {
        let meant = self.numbered().filter(|(port, _)| among.contains(*port));
        meant.map(|(_, port)| of(port)).min().unwrap_or(Time::NEVER)
    }

    /// All ports.
    pub(super) fn all(&self) -> PortSet {
        PortSet::first_of(self.ports.len())
    }
}
