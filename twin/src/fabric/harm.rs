//! Events from outside the daemons: foreign frames, links that are pulled, daemons that are killed.

use super::{Fabric, Node};
use crate::check::Check;
use crate::network::{End, LinkId, NodeId};
use crate::trace::Kind;
use crate::wire::Impairment;
use common::time::Time;

impl<const BYTES: bool> Fabric<BYTES> {
    /// Puts a frame on the wire that begins at a port, past the daemon: as a broken device does.
    pub fn inject(&mut self, node: NodeId, port: u16, bytes: &[u8]) {
        if let Some(frame) = self.outside.take_filled(bytes) {
            let wire = self.wire_from(node, port);
            self.wires[wire].injected += 1;
            self.send(wire, frame);
        }
    }

    /// Whether all that a port has sent so far has left it by `then`.
    pub fn is_free(&self, node: NodeId, port: u16, then: Time) -> bool {
        self.wires[self.wire_from(node, port)].is_free(then)
    }

    /// Lets a frame arrive at a port, as if it had come over its link.
    pub fn offer(&mut self, node: NodeId, port: u16, bytes: &[u8]) {
        let link = self.plan.nodes[node.index()].ports[usize::from(port)];
        let across = self.plan.links[link].across(node);
        self.inject(across.node, across.port, bytes);
    }

    /// From the next frame on, the wires of a link have these parts of their speed, as `part` says
    /// of the node that each of them ends at.
    pub fn set_part(&mut self, link: LinkId, part: impl Fn(NodeId) -> f64) {
        for wire in &mut self.wires[2 * link..2 * link + 2] {
            wire.set_part(part(wire.to.node));
        }
    }

    /// Changes what can happen on a link.
    pub fn set_impairment(&mut self, link: LinkId, impairment: Impairment) {
        for wire in [2 * link, 2 * link + 1] {
            self.wires[wire].set_impairment(impairment);
        }
    }

    /// Pulls a link, or plugs it in again. Both ends see their carrier go or come.
    pub fn set_link(&mut self, link: LinkId, up: bool) {
        if self.wires[2 * link].is_up() == up {
            return;
        }
        let kind = if up { Kind::Up } else { Kind::Down };
        for wire in [2 * link, 2 * link + 1] {
            for frame in self.wires[wire].set_up(up) {
                self.outside.give(frame);
            }
        }
        for End { node, port } in self.plan.links[link].ends {
            self.trace.record(kind, self.now, (node, port), &[]);
            let local = self.local(node);
            match &mut self.nodes[node.index()] {
                Node::Switch(switch) => switch.set_carrier(node, port, up, local),
                Node::Host(host) => host.set_carrier(port, up),
                Node::Tester(_) => continue,
            }
            self.rouse(node);
        }
    }

    /// Takes back all frames that are under way, before the fabric is dropped.
    pub fn abandon(&mut self) {
        for wire in &mut self.wires {
            for frame in wire.set_up(false) {
                self.outside.give(frame);
            }
        }
        for node in &mut self.nodes {
            match node {
                Node::Switch(switch) => switch.crash(),
                Node::Host(host) => host.crash(),
                Node::Tester(_) => {}
            }
        }
    }

    /// Kills a daemon.
    ///
    /// # Panics
    /// If the node is a tester, which has none.
    pub fn crash(&mut self, node: NodeId) {
        self.trace.record(Kind::Crashed, self.now, (node, 0), &[]);
        match &mut self.nodes[node.index()] {
            Node::Switch(switch) => switch.crash(),
            Node::Host(host) => host.crash(),
            Node::Tester(_) => panic!("node {} is a tester", node.0),
        }
        self.due[node.index()] = Time::NEVER;
    }

    /// Starts a daemon that was killed.
    ///
    /// # Panics
    /// If the node is a tester, which has none.
    pub fn restart(&mut self, node: NodeId) {
        self.trace.record(Kind::Started, self.now, (node, 0), &[]);
        let local = self.local(node);
        match &mut self.nodes[node.index()] {
            Node::Switch(switch) => switch.start(),
            Node::Host(host) => {
                if let Err(error) = host.start(local) {
                    self.fail(Check::Service, node, || error.to_string());
                }
            }
            Node::Tester(_) => panic!("node {} is a tester", node.0),
        }
        self.rouse(node);
    }
}
