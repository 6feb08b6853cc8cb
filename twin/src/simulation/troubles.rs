//! Faults: how they begin and end.

use super::{Do, Simulation};
use crate::app::ConnectionId;
use crate::fabric::Node;
use crate::fault::Fault;
use crate::network::NodeId;
use crate::switch::mac;
use crate::wire::Weather;
use common::time::Span;
use common::wire::ethernet::Mac;
use common::wire::pause::Control;

/// What may wait in front of a link for a storm to go on.
const PILE: Span = Span::from_millis(1);

impl<const BYTES: bool> Simulation<BYTES> {
    pub(super) fn trouble(&mut self, number: usize, begins: bool) {
        let fault = self.troubles[number].fault;
        self.active[number] = begins;
        match fault {
            Fault::Weather(link, _) => {
                let weather = self.weather_on(link);
                self.fabric.set_weather(link, weather);
            }
            Fault::LinkDown(link) => {
                let down = self.is_active(|other| *other == Fault::LinkDown(link));
                self.fabric.set_link(link, !down);
            }
            Fault::Crash(node) => {
                let dead = self.is_active(|other| *other == Fault::Crash(node));
                self.crash(node, dead);
            }
            Fault::PfcStorm(..) if begins => self.storm(number),
            Fault::PfcStorm(..) | Fault::Drift(..) => {}
        }
    }

    fn is_active(&self, which: impl Fn(&Fault) -> bool) -> bool {
        let active = self.troubles.iter().zip(&self.active);
        active
            .filter(|(_, active)| **active)
            .any(|(trouble, _)| which(&trouble.fault))
    }

    /// All weather that lies over a link, one upon another.
    fn weather_on(&self, link: usize) -> Weather {
        let active = self.troubles.iter().zip(&self.active);
        let here = active.filter_map(|(trouble, active)| match trouble.fault {
            Fault::Weather(place, weather) if place == link && *active => Some(weather),
            _ => None,
        });
        here.fold(Weather::default(), |sum, weather| Weather {
            loss: (sum.loss + weather.loss).min(1.0),
            corruption: (sum.corruption + weather.corruption).min(1.0),
            duplication: (sum.duplication + weather.duplication).min(1.0),
            reordering: (sum.reordering + weather.reordering).min(1.0),
            lateness: sum.lateness.max(weather.lateness),
        })
    }

    fn crash(&mut self, node: NodeId, dead: bool) {
        let running = match &self.fabric.nodes[node.index()] {
            Node::Switch(switch) => switch.is_running(),
            Node::Host(host) => host.is_running(),
            // It is no daemon that could crash.
            Node::Tester(_) => return,
        };
        if dead && running {
            self.fabric.crash(node);
            let lost = (0..self.connections.len()).filter(|number| {
                let connection = &self.connections[*number];
                connection.from == node || connection.to == node
            });
            let lost: Vec<ConnectionId> = match self.fabric.is_switch(node) {
                true => Vec::new(),
                false => lost.collect(),
            };
            lost.into_iter().for_each(|number| self.give_up(number));
        } else if !dead && !running {
            self.fabric.restart(node);
        }
    }

    pub(super) fn storm(&mut self, number: usize) {
        let Fault::PfcStorm(node, interval) = self.troubles[number].fault else {
            return;
        };
        if !self.active[number] {
            return;
        }
        let everything = Control::Pfc([Some(u16::MAX); 8]);
        let frame = everything.emit(Mac(mac(node, 0)));
        // Nothing piles up in front of a link that is slower than the storm.
        if self.fabric.is_free(node, 0, self.fabric.now() + PILE) {
            self.fabric.inject(node, 0, &frame);
        }
        let next = self.fabric.now() + interval;
        self.fabric.enter(next, Do::Storm(number).code());
    }
}
