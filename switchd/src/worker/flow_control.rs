//! Flow control of the worker's egress ports: pauses from their peers are obeyed, and their peers are paused.
//!
//! ```text
//!   MAC control frame ─▶ owner of the port ─▶ pfc_rx ─▶ queues stopped until it ends
//!   priority group over its threshold ─▶ news ─▶ owner of the port ─▶ PFC frame, before everything else
//! ```

use super::Worker;
use super::watch::mapped;
use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::KICK_AGAIN;
use crate::packet::{Packet, wire_len};
use crate::tables::policy::{FlowControl, Policy};
use crate::traffic::pfc_tx::PfcSender;
use common::flow_control::{Malformed, PfcReceiver, is_control};
use common::time::Time;
use common::units::Rate;
use common::wire::ethernet::{self, Mac};
use common::wire::pause::Control;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// The class of a MAC control frame on its way to the owner of its port. No queue has it.
pub(super) const CONTROL: u8 = 0xff;

/// What a port knows of pauses, both ways.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// What its peer asked for.
    pub(super) pfc_rx: PfcReceiver,
    /// What its peer was asked for.
    pub(super) sender: PfcSender,
    flow_control: FlowControl,
    /// The speed that quanta are counted at; without one there is no flow control.
    speed: Option<Rate>,
    /// When the first pause that is obeyed now ends.
    over_at: Time,
    /// Bit n: class n is held by an operator.
    pub(super) held: u8,
    /// Bit n: PFC is off for priority n until an operator turns it on.
    pub(super) off: u8,
}

impl Pauses {
    /// Follows the policy.
    pub(super) fn configure(
        &mut self,
        policy: &Policy,
        port: PortId,
        speed: Option<Rate>,
        now: Time,
    ) {
        self.speed = speed;
        self.flow_control = match policy.ports.get(port.index()) {
            Some(port) if speed.is_some() => port.flow_control,
            _ => FlowControl::Off,
        };
        let (obeyed, link) = match self.flow_control {
            FlowControl::Off => (0, false),
            FlowControl::Pause { obey, .. } => (0, obey),
            FlowControl::Pfc { obey, .. } => (obey, false),
        };
        self.pfc_rx.configure(obeyed, link, now);
    }

    /// Whether any priority can be paused by the peer.
    pub(super) fn obeys_pfc(&self) -> bool {
        self.flow_control.obeys_pfc() != 0
    }

    /// Takes a control frame of the peer.
    fn take(&mut self, control: &Control, now: Time) {
        if let Some(speed) = self.speed {
            self.pfc_rx.receive(control, now, speed);
        }
    }

    /// The classes that may send nothing at `now`, until [`Self::over_at`] or the next change.
    pub(super) fn stopped(&mut self, policy: &Policy, now: Time) -> u8 {
        self.over_at = self.pfc_rx.next_expiry(now);
        let paused = self.pfc_rx.mask(now);
        if paused == 0 {
            return self.held;
        }
        self.held | mapped(paused, &policy.classify.class_of_priority)
    }

    /// The priorities whose pauses have to be measured: those that are obeyed. A PAUSE of the link pauses all
    /// alike, so one stands for all.
    pub(super) fn to_measure(&self) -> u8 {
        match self.flow_control {
            FlowControl::Pfc { obey, .. } => obey,
            FlowControl::Pause { obey, .. } => u8::from(obey),
            FlowControl::Off => 0,
        }
    }

    /// When a pause ends.
    pub(super) fn over_at(&self) -> Time {
        self.over_at
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// Takes a MAC control frame, or gives it to the worker that owns the port it arrived at.
    #[cold]
    pub(super) fn receive_control(&mut self, frame: Frame, port: PortId, now: Time) {
        let owner = self.owners.get(port.index()).copied().unwrap_or(self.id);
        if owner == self.id {
            return self.take_control(frame, port, now);
        }
        self.hand_over(Packet {
            class: CONTROL,
            ..Packet::at(frame, port)
        });
    }

    /// Does what a MAC control frame says that arrived at a port of this worker. It ends here.
    #[cold]
    pub(super) fn take_control(&mut self, frame: Frame, port: PortId, now: Time) {
        let Some(place) = self.place.get(port.index()).copied().flatten() else {
            return self.drop_packet(frame, port, DropReason::IngressDown);
        };
        let control = match read(frame.bytes(), self.egress[place].mac) {
            Ok(control) => control,
            Err(reason) => return self.drop_packet(frame, port, reason),
        };
        self.pool.give(frame);
        if let Some(counters) = self.stats.ports.get(port.index()) {
            counters.control_received.add(1);
        }
        let egress = &mut self.egress[place];
        egress.pauses.take(&control, now);
        let stopped = egress.pauses.stopped(&self.tables.traffic, now);
        egress.manager.stop(stopped);
        egress.show_pauses(&self.stats, now);
        self.gauges.heard_pause();
    }

    /// Holds exactly these classes of an egress port.
    #[cold]
    pub(super) fn hold(&mut self, place: usize, classes: u8, now: Time) {
        let egress = &mut self.egress[place];
        egress.pauses.held = classes;
        let stopped = egress.pauses.stopped(&self.tables.traffic, now);
        egress.manager.stop(stopped);
        egress.show_pauses(&self.stats, now);
    }

    /// Sends the control frames that are due: to the peers of ports whose groups have crossed a threshold, and to
    /// those whose pause is about to end.
    #[inline]
    pub(super) fn pause_peers(&mut self, now: Time) {
        for word in 0..self.ledger.words() {
            let mut news = self.ledger.news(word);
            while news != 0 {
                let port = 64 * word + news.trailing_zeros() as usize;
                news &= news - 1;
                if let Some(place) = self.place.get(port).copied().flatten() {
                    self.pause_peer(place, now);
                }
            }
        }
        if now >= self.refresh_at {
            for place in 0..self.egress.len() {
                self.pause_peer(place, now);
            }
            self.plan_refresh(now);
        }
    }

    fn plan_refresh(&mut self, now: Time) {
        let refreshes = self.egress.iter().map(|it| {
            let due = it.pauses.sender.deadline();
            // One that found no room is tried again in every turn, and when its device is kicked again.
            if due <= now { now + KICK_AGAIN } else { due }
        });
        self.refresh_at = refreshes.min().unwrap_or(Time::NEVER);
    }

    #[cold]
    fn pause_peer(&mut self, place: usize, now: Time) {
        let egress = &mut self.egress[place];
        let port = egress.port;
        // Before the look at the groups: what changes after it is news again.
        self.ledger.heard(port);
        let wanted = self.ledger.wanted(&self.tables.traffic, port);
        let pauses = &mut egress.pauses;
        let wanted = wanted & !pauses.off;
        let Some(speed) = pauses.speed else { return };
        if !pauses.sender.is_due(wanted, pauses.flow_control, now) {
            return;
        }
        if pauses.flow_control == FlowControl::Off {
            // It was turned off while the peer waited: that ends by itself.
            pauses.sender.next(wanted, FlowControl::Off, speed, now);
            return self.plan_refresh(now);
        }
        if !egress.up {
            pauses.sender.reset();
            return self.plan_refresh(now);
        }
        let io = &mut self.queues[egress.queue].io;
        let frame = if io.transmit_room(&mut self.pool) > 0 {
            self.pool.take_sized(common::wire::pause::FRAME_LEN)
        } else {
            None
        };
        let Some(mut frame) = frame else {
            // In the next turn, then; the port kicks its device until it has room.
            self.unsent.set(egress.queue);
            return self.ledger.repeat(port);
        };
        let Some(control) = pauses.sender.next(wanted, pauses.flow_control, speed, now) else {
            return self.pool.give(frame);
        };
        let bytes = control.emit(Mac(egress.mac));
        frame.bytes_mut().copy_from_slice(&bytes);
        let mut batch = std::mem::take(&mut self.scratch.frames);
        batch.push(frame);
        io.transmit(&mut batch);
        self.scratch.frames = batch;
        egress.manager.spend(wire_len(bytes.len() as u64));
        self.unsent.set(egress.queue);
        let counters = &self.stats.ports[port.index()];
        counters.control_sent.add(1);
        counters.tx_packets.add(1);
        counters.tx_bytes.add(bytes.len() as u64);
        egress.show_pauses(&self.stats, now);
        self.plan_refresh(now);
    }
}

/// What a MAC control frame says that arrived at a port with the MAC address `own`.
fn read(frame: &[u8], own: [u8; 6]) -> Result<Control, DropReason> {
    if frame.len() >= ethernet::HEADER_LEN && !is_control(frame) {
        // A VLAN tag before it: MAC control has none (IEEE 802.3 clause 31.4).
        return Err(DropReason::Malformed);
    }
    common::flow_control::read(frame, Some(Mac(own))).map_err(|why| match why {
        Malformed::Address => DropReason::OtherMac,
        Malformed::Length => DropReason::ControlLength,
        Malformed::Opcode => DropReason::ControlOpcode,
        Malformed::Vector => DropReason::ControlVector,
    })
}
