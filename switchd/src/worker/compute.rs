//! Messages of in-network compute: from the packets that are the switch's own to the engine of
//! \[5\], and what it says back onto its way.
//!
//! ```text
//!   dispatch ─▶ own address, its port ─┬─▶ backlog ─▶ engine ─▶ frames ─▶ routes, as any other
//!                                      └─▶ ring to the worker that has the job
//! ```

use super::Worker;
use super::dispatch::Origin;
use super::events::{Reserve, WorkerEvent};
use super::jobs::{Frames, Message};
use super::rings::Crossing;
use crate::compute::{TURN, job_of};
use crate::drop::DropReason;
use crate::id::TraceId;
use crate::ingress::parse::parse;
use crate::packet::Parsed;
use common::time::Time;
use common::wire::ip::protocol;
use common::wire::udp;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// CE in the ECN field (RFC 3168 §5).
const CE: u8 = 3;

impl<Q: QueueIo> Worker<Q> {
    /// Takes a packet to an address of the switch: a message, or one that the kernel should have.
    #[cold]
    pub(super) fn take_own(&mut self, frame: Frame, parsed: &Parsed, origin: Origin) {
        let port = self.compute.as_ref().map(|it| it.engine.settings().port);
        let transport = usize::from(parsed.transport);
        let head = frame.bytes().get(transport..);
        let is_message = port.is_some()
            && parsed.protocol == protocol::UDP
            && !parsed.is_fragment
            && transport != 0
            && head.and_then(|it| it.get(2..4))
                == port.map(u16::to_be_bytes).as_ref().map(|it| &it[..]);
        if !is_message {
            return self.drop_packet(frame, origin, DropReason::Local);
        }
        let job = head
            .and_then(|it| it.get(udp::HEADER_LEN..))
            .map_or(0, job_of);
        let message = Message {
            ingress: origin.ingress,
            version: parsed.version,
            network: parsed.network,
            transport: parsed.transport,
            is_ce: parsed.ecn == CE,
            frame,
        };
        if let Err(reason) = self.check_source(&message) {
            let (frame, ingress) = message.into_frame();
            return self.drop_packet(frame, ingress, reason);
        }
        let owner = job as usize % self.rings.workers();
        if owner == self.id {
            return self.await_turn(message);
        }
        let crossing = Crossing::Compute(message);
        if let Err(crossing) = self.rings.send(owner, crossing, false) {
            self.lose_crossing(crossing);
        }
    }

    /// Whether a message may take a place among those that wait.
    fn check_source(&self, message: &Message) -> Result<(), DropReason> {
        let datagram = message.verified()?;
        let source = datagram.peer.remote.ip();
        let settings = self.compute.as_ref().map(|it| it.engine.settings());
        match settings.is_none_or(|it| it.hears(source)) {
            true => Ok(()),
            false => Err(DropReason::ComputeStranger),
        }
    }

    /// A message waits for the share of its port and job. Where many wait it is marked, as by any
    /// queue that is long.
    #[cold]
    pub(super) fn await_turn(&mut self, mut message: Message) {
        let datagram = message.datagram();
        let job = datagram.map_or(0, |it| job_of(it.bytes));
        let refused = match &mut self.compute {
            Some(compute) => {
                let port = message.ingress.index();
                message.is_ce |= compute.backlog.is_long(port, job);
                compute.backlog.push(port, job, message)
            }
            None => Err(message),
        };
        if let Err(message) = refused {
            let (frame, ingress) = message.into_frame();
            self.drop_packet(frame, ingress, DropReason::ComputeFull);
        }
    }

    /// Does the share of a turn that is for jobs. Returns the number of messages.
    pub(super) fn compute(&mut self, now: Time) -> usize {
        if self.compute.is_none() {
            return 0;
        }
        let mut work = 0;
        while work < TURN && self.next_message(now) {
            work += 1;
        }
        if let Some(compute) = &mut self.compute {
            if compute.engine.deadline() <= now {
                let mut frames = Frames {
                    pool: &mut self.devices.pool,
                    tables: &self.tables,
                    out: &mut compute.out,
                    ident: &mut compute.ident,
                    dscp: compute.engine.settings().dscp,
                };
                compute.engine.tick(now, &mut frames);
            }
            let stats = &self.stats.compute;
            stats.waiting.set(compute.backlog.len() as u64);
            stats.rows.answer(|| compute.engine.rows(now));
        }
        self.send_messages(now);
        self.tell_of_jobs();
        work
    }

    /// Tells control what has happened to jobs.
    fn tell_of_jobs(&mut self) {
        let Some(compute) = &mut self.compute else {
            return;
        };
        while let Some(notice) = compute.engine.next_notice() {
            self.control.tell(WorkerEvent::Job(notice), &self.stats);
        }
    }

    /// Gives the engine the next message. Whether there was one.
    fn next_message(&mut self, now: Time) -> bool {
        let Some(compute) = &mut self.compute else {
            return false;
        };
        let Some(message) = compute.backlog.pop() else {
            return false;
        };
        let mut frames = Frames {
            pool: &mut self.devices.pool,
            tables: &self.tables,
            out: &mut compute.out,
            ident: &mut compute.ident,
            dscp: compute.engine.settings().dscp,
        };
        let taken = match message.datagram() {
            Some(datagram) => compute.engine.receive(datagram, now, &mut frames),
            None => Err(DropReason::ComputeMalformed),
        };
        let (frame, ingress) = message.into_frame();
        match taken {
            Ok(()) => {
                if let Some(port) = self.stats.ports.get(ingress.index()) {
                    port.compute_received.add(1);
                }
                self.devices.pool.give(frame);
            }
            Err(reason) => self.drop_packet(frame, ingress, reason),
        }
        self.send_messages(now);
        true
    }

    /// Reserves what a job needs, for an operator, who is waiting for the answer.
    pub(super) fn reserve_job(&mut self, reserve: &Reserve, now: Time) {
        if let Some(compute) = &mut self.compute {
            let reserved = compute.engine.reserve(&reserve.wanted, now);
            reserve.answer.get_or_init(|| reserved);
            self.tell_of_jobs();
        }
    }

    /// Ends a job for an operator. If it is over by now, control is told of that anyway.
    pub(super) fn delete_job(&mut self, job: u32, now: Time) {
        let Some(compute) = &mut self.compute else {
            return;
        };
        let mut frames = Frames {
            pool: &mut self.devices.pool,
            tables: &self.tables,
            out: &mut compute.out,
            ident: &mut compute.ident,
            dscp: compute.engine.settings().dscp,
        };
        compute.engine.delete(job, now, &mut frames);
        self.send_messages(now);
    }

    /// Sends what the engine said, as packets of the switch itself.
    fn send_messages(&mut self, now: Time) {
        let Some(compute) = &mut self.compute else {
            return;
        };
        let mut out = std::mem::take(&mut compute.out);
        for (frame, ingress) in out.drain(..) {
            if let Some(port) = self.stats.ports.get(ingress.index()) {
                port.compute_sent.add(1);
            }
            let mac = self.tables.port(ingress).map(|port| port.mac);
            let parsed = mac.and_then(|mac| parse(frame.bytes(), mac).ok());
            let Some(parsed) = parsed else {
                self.drop_packet(frame, ingress, DropReason::NoRoute);
                continue;
            };
            let group = self.forward.look_up_one(&parsed);
            self.catch_up(now);
            let packet = (frame.bytes(), &parsed);
            let routed = self.forward.route_own(&self.tables, group, packet, now);
            let origin = Origin {
                ingress,
                trace: TraceId::NONE,
                flow: None,
                since: now,
                now,
            };
            self.dispatch_one(frame, &parsed, routed.choice, origin);
        }
        if let Some(compute) = &mut self.compute {
            compute.out = out;
        }
        // About messages that have no way, as whose senders broken packets name others.
        self.send_errors();
    }
}
