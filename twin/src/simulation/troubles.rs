//! Faults: how they begin and end.

use super::agenda::Do;
use super::state::Simulation;
use crate::app::ConnectionId;
use crate::fabric::Node;
use crate::fault::Fault;
use crate::network::NodeId;
use crate::switch::mac;
use crate::wire::Impairment;
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
            Fault::Impairment(link, _) => {
                let impairment = self.impairment_on(link);
                self.fabric.set_impairment(link, impairment);
            }
            Fault::SlowLink(link, ..) => {
                let (troubles, active) = (&self.troubles, &self.active);
                let part = |end| {
                    let active = troubles.iter().zip(active);
                    let parts = active.filter_map(|(trouble, active)| match trouble.fault {
                        Fault::SlowLink(place, towards, part) => {
                            let here = place == link && towards.is_none_or(|it| it == end);
                            (here && *active).then_some(part)
                        }
                        _ => None,
                    });
                    parts.fold(1.0, f64::min)
                };
                self.fabric.set_part(link, part);
            }
            Fault::LinkDown(link) => {
                let down = self.is_active(|other| *other == Fault::LinkDown(link));
                self.fabric.set_link(link, !down);
            }
            Fault::Crash(node) => {
                let dead = self.is_active(|other| *other == Fault::Crash(node));
                self.crash(node, dead);
            }
            Fault::PfcStorm(..) | Fault::PathChanges(..) if begins => self.again(number),
            Fault::PfcStorm(..) | Fault::PathChanges(..) | Fault::Drift(..) => {}
        }
    }

    fn is_active(&self, which: impl Fn(&Fault) -> bool) -> bool {
        let active = self.troubles.iter().zip(&self.active);
        active
            .filter(|(_, active)| **active)
            .any(|(trouble, _)| which(&trouble.fault))
    }

    /// The sum of the impairments that are in force on a link.
    fn impairment_on(&self, link: usize) -> Impairment {
        let active = self.troubles.iter().zip(&self.active);
        let here = active.filter_map(|(trouble, active)| match trouble.fault {
            Fault::Impairment(place, impairment) if place == link && *active => Some(impairment),
            _ => None,
        });
        here.fold(Impairment::default(), |sum, impairment| Impairment {
            loss: (sum.loss + impairment.loss).min(1.0),
            corruption: (sum.corruption + impairment.corruption).min(1.0),
            duplication: (sum.duplication + impairment.duplication).min(1.0),
            reordering: (sum.reordering + impairment.reordering).min(1.0),
            lateness: sum.lateness.max(impairment.lateness),
            delay: sum.delay + impairment.delay,
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
            self.lose_members(node);
        } else if !dead && !running {
            self.fabric.restart(node);
        }
    }

    /// What a fault does once in each interval.
    pub(super) fn again(&mut self, number: usize) {
        if !self.active[number] {
            return;
        }
        let interval = match self.troubles[number].fault {
            Fault::PfcStorm(node, interval) => {
                self.storm(node);
                interval
            }
            Fault::PathChanges(node, interval) => {
                self.change_paths(node);
                interval
            }
            _ => return,
        };
        let next = self.fabric.now() + interval;
        self.fabric.enter(next, Do::Again(number).code());
    }

    fn storm(&mut self, node: NodeId) {
        let everything = Control::Pfc([Some(u16::MAX); 8]);
        let frame = everything.emit(Mac(mac(node, 0)));
        // Nothing piles up in front of a link that is slower than the storm.
        if self.fabric.is_free(node, 0, self.fabric.now() + PILE) {
            self.fabric.inject(node, 0, &frame);
        }
    }
}
