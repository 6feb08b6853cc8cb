//! Turns of nodes. Several nodes take their turns together: the state of a large fabric does not
//! fit in the processor's cache, so it is prefetched for all of them before the first one uses it.

use super::{Fabric, Node};
use crate::app::Report;
use crate::check::Check;
use crate::fabric::Mutation;
use crate::network::NodeId;
use crate::tester::Act;
use common::sync::words::prefetch_all;
use common::time::Time;

/// Nodes that are looked at together.
const TOGETHER: usize = 16;

/// A turn of a node that lasts longer than so many rounds goes in circles.
const ROUNDS: usize = 100_000;

impl<const BYTES: bool> Fabric<BYTES> {
    /// Lets all nodes take their turns that have something to do now.
    pub fn run(&mut self, reports: &mut Vec<(NodeId, Report)>) {
        let mut ready = std::mem::take(&mut self.ready);
        for group in ready.chunks(TOGETHER) {
            group.iter().for_each(|node| self.fetch_node(*node));
            group.iter().for_each(|node| self.fetch_wires(*node));
            group.iter().for_each(|node| self.fetch_frames(*node));
            group.iter().for_each(|node| self.gather(*node));
            for &node in group {
                self.is_ready[node.index()] = false;
                self.turn(node, reports);
            }
        }
        ready.clear();
        self.ready = ready;
    }

    /// Fetches a node itself.
    fn fetch_node(&self, node: NodeId) {
        prefetch_all(self.inputs[node.index()].heads.as_slice());
        match &self.nodes[node.index()] {
            Node::Switch(switch) => prefetch_all(&**switch),
            Node::Host(host) => prefetch_all(&**host),
            Node::Tester(tester) => prefetch_all(&**tester),
        }
    }

    /// Fetches the wires at whose end something has arrived.
    fn fetch_wires(&self, node: NodeId) {
        for port in self.arrived_at(node) {
            prefetch_all(&self.wires[self.wire_to(node, port)]);
        }
    }

    /// Fetches what says which frames they are, and what a switch needs to forward them.
    fn fetch_frames(&self, node: NodeId) {
        for port in self.arrived_at(node) {
            self.wires[self.wire_to(node, port)].fetch_first();
        }
        if let Node::Switch(switch) = &self.nodes[node.index()] {
            switch.fetch(self.arrived_at(node).map(usize::from));
        }
    }

    /// Ports at which something has arrived that was not gathered.
    fn arrived_at(&self, node: NodeId) -> impl Iterator<Item = u16> + '_ {
        let heads = self.inputs[node.index()].heads.iter().zip(0_u16..);
        heads.filter_map(|(head, port)| (*head <= self.now).then_some(port))
    }

    /// A node finds at its ports what has arrived there.
    #[inline]
    fn gather(&mut self, node: NodeId) {
        let index = node.index();
        if self.inputs[index].next > self.now {
            return;
        }
        let mut next = Time::NEVER;
        for port in 0..self.inputs[index].heads.len() {
            let head = self.inputs[index].heads[port];
            if head > self.now {
                next = next.min(head);
                continue;
            }
            let wire = self.wire_to(node, u16::try_from(port).expect("few ports"));
            while let Some(frame) = self.wires[wire].arrived(self.now) {
                self.deliver(wire, frame);
            }
            let head = self.wires[wire].next_arrival().unwrap_or(Time::NEVER);
            self.inputs[index].heads[port] = head;
            next = next.min(head);
        }
        self.inputs[index].next = next;
    }

    /// Lets a node take a turn.
    fn turn(&mut self, node: NodeId, reports: &mut Vec<(NodeId, Report)>) {
        let clock = &mut self.clocks[node.index()];
        let local = clock.local(self.now);
        if local < clock.shown {
            self.fail(Check::Clock, node, || {
                format!("the clock went back to {} ns", local.nanos())
            });
            return;
        }
        clock.shown = local;
        self.work.turns += 1;
        if self.mutation == Some(Mutation::LeakBuffer(self.work.turns))
            && let Some(frame) = self.outside.take()
        {
            std::mem::forget(frame);
        }
        let due = match &self.nodes[node.index()] {
            Node::Switch(_) => self.turn_switch(node, local),
            Node::Host(_) => self.turn_host(node, local, reports),
            Node::Tester(_) => self.turn_tester(node),
        };
        let due = self.clocks[node.index()].global(due);
        let due = due.min(self.inputs[node.index()].next);
        self.due[node.index()] = self.looks_at(node, due);
        self.arm(node);
    }

    fn turn_switch(&mut self, node: NodeId, local: Time) -> Time {
        for _ in 0..ROUNDS {
            let Node::Switch(switch) = &mut self.nodes[node.index()] else {
                break;
            };
            switch.set_wire_time(self.now);
            let Some(turn) = switch.turn(local, &mut self.scratch) else {
                return Time::NEVER;
            };
            let more = switch.has_more();
            std::mem::swap(&mut *switch.outbox().borrow_mut(), &mut self.sent);
            self.work.hops += self.sent.len() as u64;
            self.send_all(node);
            if !more && turn.deadline > local {
                return turn.deadline;
            }
        }
        self.circles(node)
    }

    fn turn_host(
        &mut self,
        node: NodeId,
        local: Time,
        reports: &mut Vec<(NodeId, Report)>,
    ) -> Time {
        for _ in 0..ROUNDS {
            let verb = self.verb;
            let mut said = std::mem::take(&mut self.reports);
            let now = self.now;
            let host = self.host(node);
            host.set_wire_time(now);
            let arrived = host.arrived();
            let Some(turn) = host.turn(local) else {
                self.reports = said;
                return Time::NEVER;
            };
            let mut acted = host.react(verb, &mut said);
            for report in said.drain(..) {
                if let Report::NeedRoute(destination) = report {
                    self.answer_route(node, destination);
                    acted = true;
                } else {
                    reports.push((node, report));
                }
            }
            self.reports = said;
            let host = self.host(node);
            let left = host.arrived();
            let outbox = host.outbox().clone();
            std::mem::swap(&mut *outbox.borrow_mut(), &mut self.sent);
            self.work.hops += (arrived - left + self.sent.len()) as u64;
            self.send_all(node);
            if !acted && !turn.again {
                return turn.deadline;
            }
        }
        self.circles(node)
    }

    fn turn_tester(&mut self, node: NodeId) -> Time {
        let wire = self.wire_from(node, 0);
        for _ in 0..ROUNDS {
            let Node::Tester(tester) = &mut self.nodes[node.index()] else {
                break;
            };
            match tester.act(self.now, &self.wires[wire], &mut self.outside) {
                Act::Send(frame) => self.send(wire, frame),
                Act::Wait(until) => return until,
            }
        }
        self.circles(node)
    }

    fn answer_route(&mut self, node: NodeId, destination: std::net::IpAddr) {
        let host = self.host(node);
        let routes = host.routes.clone();
        if let Some(app) = host.app() {
            app.route(destination, routes);
        }
    }

    fn circles(&mut self, node: NodeId) -> Time {
        self.fail(Check::Liveness, node, || {
            "it takes turns without end".to_owned()
        });
        Time::NEVER
    }
}
