//! The table of ports: what paces each, what pauses it, and where it leads.
//!
//! There is one port at present. A frame leaves with the port that [`Ports::free`] offered for it,
//! or with the port of its route. A second port still needs:
//!
//! - the port that a frame came through, because a pause frame stops only that port;
//! - routes that name their port when they are set;
//! - addresses of a queue pair for each port that its data may leave through;
//! - the pause of control packets, and the time that data packets were paused, for each port.

mod pacer;

use crate::limits;
use crate::pauses::{Malformed, PauseCounters, Pauses};
use crate::verbs::{EngineConfig, EngineError, FlowControl, PortId, PortSet, Route};
use common::time::{Span, Time};
use common::units::Rate;
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

/// One port.
#[derive(Debug)]
struct Port {
    pacer: Pacer,
    pauses: Pauses,
    data: Pause,
    /// Acknowledgements and connection messages.
    control: Pause,
    routes: HashMap<IpAddr, Route>,
}

/// All ports of an engine.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<Port>,
    /// Priority of data packets.
    data_priority: usize,
    /// The speed of the link is not known otherwise: it is that of the routes.
    counts_by_routes: bool,
    /// Priority of acknowledgements and connection messages.
    control_priority: usize,
    /// How long data packets were paused so far, as of the last look. The clocks of senders
    /// stand still during a pause. A missing answer to a packet that was not sent is no sign of a
    /// loss, and a retransmission could not leave either.
    paused_total: Span,
}

impl Ports {
    /// One port without routes, whose speed is not known yet unless the configuration says it.
    pub(super) fn new(config: &EngineConfig) -> Self {
        let rules: &FlowControl = &config.flow_control;
        Self {
            ports: vec![Port {
                pacer: Pacer::new(config.pacer_burst),
                pauses: Pauses::new(rules),
                data: Pause::default(),
                control: Pause::default(),
                routes: HashMap::new(),
            }],
            counts_by_routes: rules.speed == Rate::default(),
            data_priority: rules.priority_of(config.data_class),
            control_priority: rules.priority_of(config.control_class),
            paused_total: Span::ZERO,
        }
    }

    /// The port of received frames and of routes, neither of which name one.
    pub(super) const fn main(&self) -> PortId {
        PortId::new(0)
    }

    /// How packets to `destination` are addressed, and the port that they leave through.
    pub(super) fn route(&self, destination: IpAddr) -> Option<(PortId, Route)> {
        self.ports.iter().zip(0..).find_map(|(port, number)| {
            let route = port.routes.get(&destination)?;
            Some((PortId::new(number), *route))
        })
    }

    /// The longest IP packet of the port that packets to `destination` leave through; as long as
    /// there is no route to it, of the link of any. `None` without routes.
    pub(super) fn mtu(&self, destination: IpAddr) -> Option<u16> {
        let known = self.route(destination).map(|(_, route)| route);
        let mut routes = self.ports.iter().flat_map(|port| port.routes.values());
        known.or_else(|| routes.next().copied()).map(|it| it.mtu)
    }

    /// Whether there is no room for a route to another destination than those that are known.
    pub(super) fn is_full_for(&self, port: PortId, destination: IpAddr) -> bool {
        let routes = &self.ports[port.index()].routes;
        routes.len() >= limits::ROUTES && !routes.contains_key(&destination)
    }

    /// Forgets the routes to all destinations but these.
    pub(super) fn keep_routes(&mut self, used: &HashSet<IpAddr>) {
        for port in &mut self.ports {
            port.routes
                .retain(|destination, _| used.contains(destination));
        }
    }

    /// Packets to `destination` are addressed this way from now on. The port is paced to the
    /// route's speed, and its link has that one, too, unless the configuration says another.
    ///
    /// # Errors
    /// The addresses are of different families, or there are too many routes.
    pub(super) fn set_route(
        &mut self,
        port: PortId,
        destination: IpAddr,
        route: Route,
    ) -> Result<(), EngineError> {
        if destination.is_ipv4() != route.source.is_ipv4() {
            return Err(EngineError::Argument);
        }
        let port = &mut self.ports[port.index()];
        if port.routes.len() >= limits::ROUTES && !port.routes.contains_key(&destination) {
            return Err(EngineError::TooMany);
        }
        port.routes.insert(destination, route);
        port.pacer.set_rate(route.rate);
        if self.counts_by_routes {
            port.pauses.set_speed(route.rate);
        }
        Ok(())
    }

    /// The quanta of pauses that begin from now on count by this speed, whatever routes say.
    pub(super) fn set_link_speed(&mut self, speed: Rate) {
        self.counts_by_routes = false;
        for port in &mut self.ports {
            port.pauses.set_speed(speed);
        }
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
        counters: &mut PauseCounters,
    ) -> Result<(), Malformed> {
        let pauses = &mut self.ports[port.index()].pauses;
        pauses.receive(frame, now, counters)?;
        self.look(now, counters);
        Ok(())
    }

    /// Looks at how the pauses stand. Once a turn this is all that a port costs that is not paused.
    pub(super) fn settle(&mut self, now: Time, counters: &mut PauseCounters) {
        if self.ports.iter().any(|port| port.pauses.any()) {
            self.look(now, counters);
        }
    }

    fn look(&mut self, now: Time, counters: &mut PauseCounters) {
        let (data, control) = (self.data_priority, self.control_priority);
        for port in &mut self.ports {
            let paused = port.pauses.settle(now, counters);
            let pause = |priority: usize| Pause {
                until: port.pauses.until(priority),
                paused: paused & 1 << priority != 0,
            };
            port.data = pause(data);
            port.control = pause(control);
        }
        self.paused_total = counters.paused[data];
    }

    /// Ports through which a data packet may leave now.
    pub(super) fn free(&self, now: Time) -> PortSet {
        let mut free = PortSet::NONE;
        for (port, number) in self.ports.iter().zip(0..) {
            if !port.data.paused && port.pacer.departure() <= now {
                free = free.with(PortId::new(number));
            }
        }
        free
    }

    /// A data packet of `len` bytes leaves through `port`.
    pub(super) fn depart(&mut self, port: PortId, len: usize, now: Time) {
        self.ports[port.index()].pacer.depart(len, now);
    }

    /// Whether acknowledgements and connection messages may leave.
    pub(super) fn control_is_paused(&self) -> bool {
        self.ports.iter().all(|port| port.control.paused)
    }

    /// How long data packets were paused so far, as of the last look.
    pub(super) const fn paused_total(&self) -> Span {
        self.paused_total
    }

    /// When acknowledgements and connection messages may leave; a time that has passed if they may.
    pub(super) fn control_from(&self) -> Time {
        self.earliest(|port| port.control.until)
    }

    /// When the next data packet may leave.
    pub(super) fn data_from(&self) -> Time {
        self.earliest(|port| port.pacer.departure().max(port.data.until))
    }

    /// When the next pause ends; [`Time::NEVER`] if none is known.
    pub(super) fn deadline(&self) -> Time {
        self.earliest(|port| port.pauses.deadline())
    }

    fn earliest(&self, of: impl Fn(&Port) -> Time) -> Time {
        self.ports.iter().map(of).min().unwrap_or(Time::NEVER)
    }
}
