//! Flow control of the worker's egress ports: frames from their peers, frames for their peers, and
//! the watchdogs (SW-30 to SW-34).

use super::Worker;
use super::events::{Storm, WorkerEvent};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::traffic::egress_port::PolicyAndLedger;
use crate::traffic::flow_control::{self, PauseStep};
use crate::traffic::watchdog::Steps;
use common::time::Time;
use common::wire::ethernet::Mac;
use common::wire::pause;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Does what a MAC control frame says that arrived at a port of this worker. It ends here.
    #[cold]
    pub(super) fn take_control(&mut self, frame: Frame, port: PortId, now: Time) {
        let Some(place) = self.ports.place_of(port) else {
            return self.drop_packet(frame, port, DropReason::IngressDown);
        };
        let control = match flow_control::read(frame.bytes(), self.ports.at(place).mac) {
            Ok(control) => control,
            Err(reason) => return self.drop_packet(frame, port, reason),
        };
        self.devices.pool.give(frame);
        if let Some(counters) = self.stats.ports.get(port.index()) {
            counters.control_received.add(1);
        }
        let policy = &self.tables.traffic;
        self.ports
            .on_control_frame(place, &control, policy, &self.stats, now);
        self.forward.on_pause();
    }

    /// Holds exactly these classes of an egress port.
    pub(super) fn hold(&mut self, place: usize, classes: u8, now: Time) {
        let policy = &self.tables.traffic;
        self.ports.hold(place, classes, policy, &self.stats, now);
    }

    /// Sends the control frames that are due: to the peers of ports whose groups have crossed a
    /// threshold, and to those whose pause is about to end.
    #[inline]
    pub(super) fn pause_peers(&mut self, now: Time) {
        for word in 0..self.ledger.words() {
            let mut news = self.ledger.news(word);
            while news != 0 {
                let port = 64 * word + news.trailing_zeros() as usize;
                news &= news - 1;
                if let Some(place) = self.ports.place_at(port) {
                    self.pause_peer(place, now);
                }
            }
        }
        if self.ports.is_refresh_due(now) {
            for place in 0..self.ports.len() {
                self.pause_peer(place, now);
            }
            self.ports.plan_refresh(now);
        }
    }

    /// Sends the control frame that the peer of a port is due, if any.
    #[cold]
    fn pause_peer(&mut self, place: usize, now: Time) {
        let buffer = PolicyAndLedger {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
            now,
        };
        let PauseStep::Send(wanted) = self.ports.pause_step(place, buffer, now) else {
            return;
        };
        let (port, queue, mac) = {
            let port = self.ports.at(place);
            (port.port, port.queue, port.mac)
        };
        let has_room = self.devices.room(queue) > 0;
        let frame = has_room.then(|| self.devices.pool.take_sized(pause::FRAME_LEN));
        let Some(mut frame) = frame.flatten() else {
            // In the next turn, then; the port kicks its device until it has room.
            self.devices.kick(queue);
            return self.ledger.repeat(port);
        };
        let Some(control) = self.ports.pause_frame(place, wanted, now) else {
            return self.devices.pool.give(frame);
        };
        let bytes = control.emit(Mac(mac));
        frame.bytes_mut().copy_from_slice(&bytes);
        let mut batch = std::mem::take(&mut self.scratch.frames);
        batch.push(frame);
        self.devices.transmit(queue, &mut batch);
        self.scratch.frames = batch;
        self.devices.kick(queue);
        let counters = &self.stats.ports[port.index()];
        counters.control_sent.add(1);
        counters.tx_packets.add(1);
        counters.tx_bytes.add(bytes.len() as u64);
        self.ports
            .paused(place, bytes.len() as u64, &self.stats, now);
    }

    /// Polls the watchdogs that are due.
    #[inline]
    pub(super) fn watch(&mut self, now: Time) {
        if self.ports.is_watch_due(now) {
            self.poll_watchdogs(now);
        }
    }

    #[cold]
    fn poll_watchdogs(&mut self, now: Time) {
        for place in 0..self.ports.len() {
            let policy = &self.tables.traffic;
            let steps = self.ports.poll_watchdog(place, policy, &self.stats, now);
            if let Some(steps) = steps {
                self.act(place, steps, now);
            }
        }
        self.ports.plan_watch();
    }

    /// Does what the watchdog of a port wants to be done now, and tells control (SW-32, SW-34).
    pub(super) fn act(&mut self, place: usize, steps: Steps, now: Time) {
        let mut packets = std::mem::take(&mut self.scratch.packets);
        let buffer = PolicyAndLedger {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
            now,
        };
        let (masks, stats) = (steps.masks, &self.stats);
        self.ports
            .apply_watchdog(place, masks, buffer, stats, &mut packets, now);
        for packet in packets.drain(..) {
            self.drop_charged(packet, DropReason::PfcStorm);
        }
        self.scratch.packets = packets;
        let port = self.ports.at(place).port;
        for (mask, storm) in [
            (steps.storm, Storm::Found),
            (steps.restored, Storm::Restored),
            (steps.turned_off, Storm::TurnedOff),
            (steps.turned_on, Storm::TurnedOn),
        ] {
            for priority in (0_u8..8).filter(|priority| mask & 1 << priority != 0) {
                let event = WorkerEvent::Storm {
                    port,
                    priority,
                    storm,
                };
                self.control.tell(event, &self.stats);
            }
        }
    }
}
