//! Changes of a connection that carries data, in packets (HT-22, HT-32).
//!
//! What is asked, and what is answered, travels in block 0 of the extension header of an empty RDMA
//! WRITE. Who understands the block looks at nothing behind it: the packet takes no sequence number
//! and is not acknowledged. Questions leave before data; answers leave with the acknowledgements.

use super::terms::Way;
use super::transmit::Departure;
use super::{Peer, QueuePair};
use crate::frame::{self, timestamp};
use crate::limits;
use crate::verbs::{
    ChangeRefused, ChangeStanding, DropReason, Granularity, MultipathChange, MultipathState,
    PortId, PortSet, Psn, State,
};
use common::time::{Span, Time};
use common::wire::roce::{Bth, Change, Flow, Headers, Mpeh, NewTerms, Opcode, Operation, Reth};
use common::xdp::frame::{Frame, FramePool};

impl QueuePair {
    /// Asks the peer for a change, and names it. What concerns this side alone is done at once, and
    /// has no name.
    ///
    /// # Errors
    /// Why it is refused; nothing has changed.
    pub(crate) fn change(
        &mut self,
        change: &MultipathChange,
    ) -> Result<Option<u16>, ChangeRefused> {
        let connected = matches!(self.state, State::ReadyToSend | State::SendQueueDrained);
        let next = self.next_psn();
        let Some(peer) = self.peer.as_mut().filter(|_| connected && !self.draining) else {
            return Err(ChangeRefused::NotConnected);
        };
        let agreed = peer.agreed.ok_or(ChangeRefused::Plain)?;
        let in_force = peer.steering.in_force();
        let after = change.check(&in_force, peer.steering.paths())?;
        let micros = |span: Span| u16::try_from(span.nanos() / 1_000).unwrap_or(u16::MAX);
        let terms = NewTerms {
            paths: (after != in_force).then_some(after),
            granularity: change.granularity.map(granularity_code),
            reorder_packets: change.reorder_packets,
            reorder_micros: change.reorder_time.map(micros),
            flowlet_micros: change.flowlet_timeout.map(micros),
        };
        if terms == NewTerms::default() {
            peer.steering.weigh(&change.weights, next);
            return Ok(None);
        }
        if !agreed.changes {
            return Err(ChangeRefused::PeerTooOld);
        }
        if peer.terms.is_pending() {
            return Err(ChangeRefused::Pending);
        }
        let name = peer.terms.ask(terms, change.weights.clone());
        self.counters.changes_asked += 1;
        Ok(Some(name))
    }

    /// The connection is established: sub-paths are measured before they carry data (HT-21).
    pub(crate) fn measure_paths(&mut self) {
        let next = self.next_psn();
        let Some(peer) = &mut self.peer else { return };
        if peer.agreed.is_some_and(|agreed| agreed.changes) {
            peer.steering.await_probes(next);
            peer.terms.measure(&peer.steering.unmeasured());
        }
    }

    /// What became of the change with this name; `None` without multipath.
    pub(crate) fn change_standing(&self, change: u16) -> Option<ChangeStanding> {
        let peer = self.peer.as_ref().filter(|peer| peer.agreed.is_some())?;
        let standing = peer.terms.standing(change);
        // Who sends nothing any more is answered nothing.
        let over = standing == ChangeStanding::Pending && !self.state.sends();
        Some(if over {
            ChangeStanding::Refused
        } else {
            standing
        })
    }

    /// What the sides agreed on, as it stands; `None` without multipath.
    pub(crate) fn multipath_state(&self) -> Option<MultipathState> {
        let peer = self.peer.as_ref()?;
        Some(MultipathState {
            agreed: peer.agreed?,
            in_force: peer.steering.in_force(),
            pending: peer.terms.is_pending(),
            refused: peer.terms.was_refused(),
        })
    }

    /// Takes a packet with block 0, which came this way.
    ///
    /// # Errors
    /// Why it is dropped; nothing has changed.
    pub(crate) fn changed(&mut self, said: &Change, way: Way, now: Time) -> Result<(), DropReason> {
        let sends = self.state.sends();
        let Some(peer) = self.peer.as_mut().filter(|_| sends) else {
            return Err(DropReason::QueuePairState);
        };
        if !peer.agreed.is_some_and(|agreed| agreed.changes) {
            return Err(DropReason::UnexpectedChange);
        }
        let made = peer.terms.take(said, way, now)?;
        self.pulse.heard(now);
        self.counters.changes_refused += u64::from(made.refused);
        if let Some((terms, weights)) = made.own {
            self.make(&terms, &weights);
        }
        if let Some(terms) = made.peers {
            self.make(&terms, &[]);
        }
        if let Some((path, rtt)) = made.probed {
            let next = self.next_psn();
            if let Some(peer) = &mut self.peer {
                peer.steering.probed(path, rtt, next, now);
            }
        }
        if let Some(round_trip) = made.timed {
            self.timed(round_trip, now);
        }
        self.settle_paths();
        Ok(())
    }

    /// A probe for congestion control was answered after this time.
    fn timed(&mut self, round_trip: Span, now: Time) {
        let (Some(peer), Some(sender)) = (&mut self.peer, &mut self.requester.sender) else {
            return;
        };
        self.counters.round_trip_answers += 1;
        peer.steering.timed(round_trip, now);
        sender.held(&peer.steering, now);
        let interval = peer.steering.probe_interval().unwrap_or_default();
        peer.terms.go_on(interval, sender.flight().is_idle(), now);
    }

    /// Makes a change that both sides agreed on.
    fn make(&mut self, terms: &NewTerms, weights: &[(u8, u8)]) {
        let next = self.next_psn();
        let Some(peer) = &mut self.peer else { return };
        let Some(agreed) = &mut peer.agreed else {
            return;
        };
        let micros = |micros: u16| Span::from_micros(micros.into());
        if let Some(granularity) = terms.granularity.and_then(granularity_of) {
            agreed.granularity = granularity;
        }
        if let Some(packets) = terms.reorder_packets {
            agreed.reorder_packets = packets;
        }
        if let Some(time) = terms.reorder_micros {
            agreed.reorder_time = micros(time).max(limits::REORDER_TIME_MIN);
        }
        if let Some(timeout) = terms.flowlet_micros {
            agreed.flowlet_timeout = micros(timeout);
        }
        let agreed = *agreed;
        if let Some(paths) = &terms.paths {
            peer.steering.put_in_force(paths, next);
            peer.terms.measure(&peer.steering.unmeasured());
        }
        if !weights.is_empty() {
            peer.steering.weigh(weights, next);
        }
        peer.steering.respread(&agreed);
        let tolerance = (u32::from(agreed.reorder_packets), agreed.reorder_time);
        if let Some(receiver) = &mut self.responder.receiver {
            receiver.set_tolerance(tolerance);
        }
        if let Some(sender) = &mut self.requester.sender {
            sender.set_tolerance(tolerance);
        }
        if let Some(awaited) = &mut self.requester.awaited {
            awaited.set_tolerance(agreed.reorder_time);
        }
        self.counters.changes += 1;
    }

    /// Packets before this one may be in flight.
    fn next_psn(&self) -> Psn {
        let sender = self.requester.sender.as_ref();
        sender.map_or_else(Psn::default, |sender| sender.flight().next())
    }

    /// Releases paths that were taken out, and whose packets are all acknowledged.
    pub(super) fn settle_paths(&mut self) {
        if let (Some(peer), Some(sender)) = (&mut self.peer, &self.requester.sender) {
            peer.steering.settle(sender.flight().unacknowledged());
        }
    }

    /// Whether something is to be asked of the peer now.
    pub(super) fn has_questions(&self) -> bool {
        let peer = self.peer.as_ref().filter(|peer| !peer.ways.is_empty());
        self.state.sends() && peer.is_some_and(|peer| peer.terms.has_questions())
    }

    /// Whether the peer is to be told something now.
    pub(crate) fn has_replies(&self) -> bool {
        let peer = self.peer.as_ref().filter(|peer| !peer.ways.is_empty());
        self.state.sends() && peer.is_some_and(|peer| peer.terms.has_answers())
    }

    /// When something is to be asked again.
    pub(super) fn change_deadline(&self) -> Time {
        match &self.peer {
            Some(peer) if self.state.sends() => peer.terms.deadline(),
            _ => Time::NEVER,
        }
    }

    /// Does what the clock says.
    pub(super) fn expire_changes(&mut self, now: Time) {
        let sender = self.requester.sender.as_ref();
        let idle = sender.is_none_or(|sender| sender.flight().is_idle());
        if let Some(peer) = &mut self.peer {
            peer.terms.expire(idle, now);
        }
    }

    /// The port of the next question, if there is one and it leads to the peer.
    pub(super) fn question_port(&self) -> Option<PortId> {
        if !self.has_questions() {
            return None;
        }
        let peer = self.peer.as_ref()?;
        let (_, path) = peer.terms.question(&peer.steering.carrying())?;
        let port = peer.steering.port(path);
        peer.ways.of(port).map(|_| port)
    }

    /// The next question, through the port of its path: what it measures is that.
    pub(super) fn transmit_question(&mut self, pool: &mut FramePool, now: Time) -> Departure {
        let psn = self.last_psn();
        let Some(peer) = &mut self.peer else {
            return Departure::Nothing;
        };
        let carrying = peer.steering.carrying();
        let Some((question, path)) = peer.terms.question(&carrying) else {
            return Departure::Nothing;
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let port = peer.steering.port(path);
        let flow = peer.ways.of(port).map(|it| it.data);
        let entropy = peer.steering.entropy(path);
        let way = (path, entropy.port, entropy.flow_label);
        if !write(&mut frame, pool, peer, flow, (question, way), psn, now) {
            pool.give(frame);
            return Departure::Nothing;
        }
        if peer.terms.question_left(path, now) {
            self.counters.round_trip_probes += 1;
        } else {
            self.counters.path_probes += u64::from(matches!(question, Change::Probe { .. }));
        }
        Departure::Frame(frame, port)
    }

    /// The next answer to a question of the peer, through one of the `open` ports.
    pub(crate) fn transmit_reply(
        &mut self,
        open: PortSet,
        pool: &mut FramePool,
        now: Time,
    ) -> Departure {
        let psn = self.last_psn();
        let Some(peer) = &mut self.peer else {
            return Departure::Nothing;
        };
        let port = peer.ways.back(self.heard_through, open);
        let way = port.and_then(|port| Some((port, peer.ways.of(port)?)));
        let Some((port, flow)) = way.map(|(port, it)| (port, it.acknowledgements)) else {
            return Departure::Nothing;
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let reply = peer.terms.next_answer();
        let written =
            reply.is_some_and(|reply| write(&mut frame, pool, peer, Some(flow), reply, psn, now));
        if written {
            Departure::Frame(frame, port)
        } else {
            pool.give(frame);
            Departure::Nothing
        }
    }

    /// The number of a packet that the peer has acknowledged.
    fn last_psn(&self) -> Psn {
        let sender = self.requester.sender.as_ref();
        let next = sender.map_or_else(Psn::default, |it| it.flight().unacknowledged());
        next.minus(1)
    }
}

/// Writes a packet with nothing but `block` into `frame`. Whether that was possible.
fn write(
    frame: &mut Frame,
    pool: &FramePool,
    peer: &Peer,
    flow: Option<Flow>,
    (block, (path, port, label)): (Change, Way),
    psn: Psn,
    now: Time,
) -> bool {
    let (Some(flow), Some(extension)) = (flow, peer.extension()) else {
        return false;
    };
    let opcode = Opcode::Multipath(Operation::WriteOnly);
    let mut headers = Headers::new(Bth::new(opcode, peer.qpn, psn.value()));
    headers.reth = Some(Reth {
        address: 0,
        rkey: 0,
        len: 0,
    });
    headers.mpeh = Some(Mpeh {
        path,
        flags: 0,
        flowlet: 0,
        tag: timestamp(now),
    });
    peer.label(&mut headers);
    headers.extension = Some(extension.with_change(block));
    let flow = frame::on_path(&flow, port, label);
    frame::lay_out(frame, pool, &flow, &headers, 0).is_some()
        && frame::seal(frame.bytes_mut()).is_ok()
}

/// A granularity as block 0 has it.
const fn granularity_code(granularity: Granularity) -> u8 {
    match granularity {
        Granularity::Flow => 0,
        Granularity::Flowlet => 1,
        Granularity::Packet => 2,
    }
}

/// The granularity of a code.
const fn granularity_of(code: u8) -> Option<Granularity> {
    match code {
        0 => Some(Granularity::Flow),
        1 => Some(Granularity::Flowlet),
        2 => Some(Granularity::Packet),
        _ => None,
    }
}
