//! Queues that come and go while the worker runs (SW-1): those of an interface that appears, and
//! those of one that vanishes.
//!
//! ```text
//!   Attach ─▶ the queues join the worker's; the owner of the port transmits by the first of them
//!   Detach ─▶ what is queued for the port is lost by name ─▶ its queues go back to control, which
//!             closes their sockets: that takes time, and returns the frames that lie in them
//! ```

use super::Worker;
use super::events::{Detached, QueueCommand, WorkerEvent};
use crate::id::PortId;
use common::time::Time;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Does what control wants of the queues.
    #[inline]
    pub(super) fn change_queues(&mut self, now: Time) {
        while let Ok(command) = self.queue_link.commands.try_recv() {
            self.probe.set_now(now);
            match command {
                QueueCommand::Attach {
                    port,
                    queues,
                    is_new,
                } => {
                    if is_new {
                        self.renew(port);
                    }
                    self.attach(port, queues, now);
                }
                QueueCommand::Detach { port } => self.detach(port, now),
            }
        }
    }

    /// Another port has this number from now on.
    #[cold]
    fn renew(&mut self, port: PortId) {
        if let Some(stats) = self.stats.ports.get(port.index()) {
            stats.restart();
        }
        if let Some(place) = self.ports.place_of(port) {
            self.ports.renew(place, &self.tables);
            self.ledger.shut(port, 0);
        }
    }

    #[cold]
    fn attach(&mut self, port: PortId, queues: Vec<Q>, now: Time) {
        let first = self.devices.len();
        for io in queues {
            self.devices.add(port, io);
        }
        // The link may have come up before its queue.
        self.pick_up_tables(now);
        if first < self.devices.len()
            && let Some(place) = self.ports.place_of(port)
            && let Some(steps) = self.ports.attach(place, first, &self.tables, now)
        {
            self.act(place, steps, now);
        }
        // Its peer may have to wait for packets that arrived before the port went away.
        self.ledger.repeat(port);
    }

    #[cold]
    fn detach(&mut self, port: PortId, now: Time) {
        if let Some(place) = self.ports.place_of(port) {
            self.empty(place);
            self.ports.served(place, &self.stats, now);
            self.ports.detach(place);
        }
        let ports = &mut self.ports;
        let queues = self
            .devices
            .remove(port, |before, after| ports.renumber(before, after));
        let detached = Detached {
            worker: self.id,
            port,
            queues,
        };
        // Without a listener the queues are closed here.
        let _ = self.queue_link.detached.try_send(detached);
        self.control.tell(WorkerEvent::Detached, &self.stats);
    }
}
