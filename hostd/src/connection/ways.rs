//! The ways to a peer, by port: how packets are addressed there (HT-37).

use crate::frame;
use crate::verbs::{EngineConfig, PortId, PortSet, Route};
use common::units::Rate;
use common::wire::roce::Flow;
use std::net::IpAddr;

/// A route as packets of one connection use it.
#[derive(Debug)]
pub(super) struct Addressing {
    /// Addresses of data packets.
    pub(super) data: Flow,
    /// Addresses of acknowledgements.
    pub(super) acknowledgements: Flow,
    /// Class of data packets that are sent again, if it is another one.
    pub(super) again: Option<u8>,
    /// Speed of the port.
    rate: Rate,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ways {
    by_port: Vec<Option<Addressing>>,
    /// The ports with a way.
    all: PortSet,
    /// Those among them that work; all of them if none does.
    usable: PortSet,
}

impl Ways {
    /// By these routes from `source` to `peer`, through the `working` ports if that is possible;
    /// data is of this `class`.
    pub(super) fn new<'a>(
        routes: impl Iterator<Item = (PortId, &'a Route)>,
        working: PortSet,
        [source, peer]: [IpAddr; 2],
        (class, config): (u8, &EngineConfig),
    ) -> Self {
        let mut ways = Self::default();
        for (port, route) in routes {
            let flow = |class| frame::flow(route, source, peer, class);
            let flows = flow(class).zip(flow(config.control_class));
            let Some((data, acknowledgements)) = flows else {
                continue;
            };
            let count = ways.by_port.len().max(port.index() + 1);
            ways.by_port.resize_with(count, || None);
            ways.by_port[port.index()] = Some(Addressing {
                data,
                acknowledgements,
                again: config.again_class,
                rate: route.rate,
            });
            ways.all = ways.all.with(port);
        }
        let working = ways.all.and(working);
        ways.usable = if working.is_empty() {
            ways.all
        } else {
            working
        };
        ways
    }

    /// Data packets are of this class from now on.
    pub(super) fn set_class(&mut self, class: u8) {
        for way in self.by_port.iter_mut().flatten() {
            way.data.traffic_class = class;
        }
    }

    /// Whether there is no way.
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The ports with a way.
    pub(super) const fn ports(&self) -> PortSet {
        self.all
    }

    /// The ports that packets leave through: those that work, or all if none does.
    pub(super) const fn usable(&self) -> PortSet {
        self.usable
    }

    /// The way through a port.
    #[inline]
    pub(super) fn of(&self, port: PortId) -> Option<&Addressing> {
        self.by_port.get(port.index())?.as_ref()
    }

    /// The port of an acknowledgement, among those that are `open`: that which the peer was heard
    /// through, if it works, as that one leads back.
    pub(super) fn back(&self, heard: PortId, open: PortSet) -> Option<PortId> {
        let best = self.usable.and(open);
        if best.contains(heard) {
            return Some(heard);
        }
        best.first().or_else(|| self.all.and(open).first())
    }

    /// The speed of each port with a way.
    pub(super) fn speeds(&self) -> Vec<(PortId, Rate)> {
        let ports = self.all.iter();
        ports
            .filter_map(|port| Some((port, self.of(port)?.rate)))
            .collect()
    }

    /// What packets leave at, at most, through all usable ports; zero: that is not known.
    pub(super) fn speed(&self) -> Rate {
        let usable = self.usable.iter();
        let speeds = usable.filter_map(|port| Some(self.of(port)?.rate.bps()));
        Rate::from_bps(speeds.sum())
    }
}
