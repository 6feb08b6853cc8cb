//! The receiving side of a queue pair: packets, in order, into messages, and what is reported of
//! them.

use super::requester::{Departure, lay_out};
use super::{Peer, QueuePair};
use crate::engine::Shared;
use crate::frame::{self, DataHeader};
use crate::memory::RegionMemory;
use crate::receive::Arrival;
use crate::receive::report::Report;
use crate::receive::respond::{Outcome, Refusal, Target};
use crate::verbs::State;
use crate::verbs::{DropReason, Status};
use common::time::Time;
use common::wire::roce::frame as roce_frame;
use common::xdp::frame::{Frame, FramePool};
use std::net::IpAddr;

impl QueuePair {
    /// Whether packets from `source` to `destination` are of this queue pair's connection.
    pub(crate) fn check_peer(&self, source: IpAddr, destination: IpAddr) -> Result<(), DropReason> {
        let peer = self.peer.as_ref().ok_or(DropReason::QueuePairState)?;
        let own = peer.flows.as_ref().map(|(flow, _)| flow.addresses.src());
        if peer.address == source && own.is_none_or(|own| own == destination) {
            Ok(())
        } else {
            Err(DropReason::WrongPeer)
        }
    }

    /// Takes a data packet. The frame goes to the pool, or waits for its turn.
    pub(crate) fn data<M: RegionMemory>(
        &mut self,
        frame: Frame,
        header: DataHeader,
        multipath: bool,
        pool: &mut FramePool,
        now: Time,
        shared: &mut Shared<M>,
    ) {
        if let Err(reason) = self.admit(&header, multipath) {
            shared.statistics.drops.add(reason);
            pool.give(frame);
            return;
        }
        let Some(peer) = &mut self.peer else {
            shared.statistics.drops.add(DropReason::QueuePairState);
            return pool.give(frame);
        };
        let receiver = &mut peer.receiver;
        let (ahead, arrival) = receiver.place(header.psn);
        let reason = match arrival {
            Arrival::InOrder => return self.deliver(frame, header, pool, now, shared),
            Arrival::Early => {
                self.counters.out_of_order += 1;
                self.counters.reorder_depth_max = self.counters.reorder_depth_max.max(ahead);
                receiver.reports.reordered = true;
                if shared.held_frames >= shared.config.reorder_frames {
                    DropReason::ReorderMemory
                } else {
                    shared.held_frames += 1;
                    receiver.reports.came(&header, now);
                    receiver.hold(ahead, frame, header, now);
                    return;
                }
            }
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                if receiver.is_starved() && ahead == 0 {
                    receiver.reports.report = Report::NotReady;
                    self.counters.tx_rnr += 1;
                }
                receiver.reports.came(&header, now);
                receiver.reports.now();
                shared.statistics.duplicates += 1;
                return pool.give(frame);
            }
            Arrival::Beyond => DropReason::BeyondWindow,
            Arrival::Unwanted => {
                self.counters.out_of_order += 1;
                if !receiver.reports.sequence_error_sent {
                    receiver.reports.sequence_error_sent = true;
                    receiver.reports.report = Report::SequenceError;
                    receiver.reports.now();
                }
                DropReason::OutOfOrder
            }
        };
        shared.statistics.drops.add(reason);
        pool.give(frame);
    }

    /// Whether a data packet may be looked at.
    fn admit(&mut self, header: &DataHeader, multipath: bool) -> Result<(), DropReason> {
        let Some(peer) = &mut self.peer else {
            return Err(DropReason::QueuePairState);
        };
        if peer.agreed.is_some() != multipath {
            return Err(DropReason::UnknownOpcode);
        }
        if !self.state.receives() {
            // Whoever asks again why it was refused is told again: the first answer may be lost.
            if matches!(peer.receiver.reports.report, Report::Refused(_)) {
                peer.receiver.reports.now();
            }
            return Err(DropReason::QueuePairState);
        }
        if !peer.paths.received(header.path) {
            return Err(DropReason::MalformedTransport);
        }
        self.heard |= self.counters.rx_packets == 0;
        self.counters.rx_packets += 1;
        Ok(())
    }

    /// Delivers the expected packet, and those that waited for it.
    fn deliver<M: RegionMemory>(
        &mut self,
        frame: Frame,
        header: DataHeader,
        pool: &mut FramePool,
        now: Time,
        shared: &mut Shared<M>,
    ) {
        if let Some(peer) = &mut self.peer {
            peer.receiver.reports.came(&header, now);
        }
        let mut next = Some((frame, header));
        while let Some((frame, header)) = next {
            if !self.deliver_one(frame, header, pool, now, shared) {
                return;
            }
            let head = self
                .peer
                .as_mut()
                .and_then(|peer| peer.receiver.take_head());
            next = head.map(|held| {
                shared.held_frames -= 1;
                (held.frame, held.header)
            });
        }
    }

    /// Delivers one packet. Whether the next one may follow.
    fn deliver_one<M: RegionMemory>(
        &mut self,
        frame: Frame,
        header: DataHeader,
        pool: &mut FramePool,
        now: Time,
        shared: &mut Shared<M>,
    ) -> bool {
        let outcome = match (header.arrival(frame.bytes()), &self.peer) {
            (Some(arrival), Some(peer)) => {
                let mut target = Target {
                    regions: &shared.regions,
                    receives: &mut self.receives,
                    domain: self.request.domain.0,
                    access: self.access,
                    mtu: peer.path_mtu,
                    qpn: self.number,
                };
                self.assembly.accept(&arrival, &mut target)
            }
            _ => Outcome::Refused(Refusal::InvalidRequest, None),
        };
        let Some(peer) = &mut self.peer else {
            shared.statistics.drops.add(DropReason::QueuePairState);
            pool.give(frame);
            return false;
        };
        let receiver = &mut peer.receiver;
        let completion = match outcome {
            Outcome::Taken => None,
            Outcome::Finished(completion) => completion,
            Outcome::NotReady => {
                self.counters.tx_rnr += 1;
                receiver.reports.report = Report::NotReady;
                receiver.reports.now();
                if receiver.reorders() && shared.held_frames < shared.config.reorder_frames {
                    shared.held_frames += 1;
                    receiver.hold(0, frame, header, now);
                    receiver.starve();
                } else {
                    shared.statistics.drops.add(DropReason::ReceiverNotReady);
                    pool.give(frame);
                }
                return false;
            }
            Outcome::Refused(refusal, completion) => {
                receiver.reports.report = Report::Refused(refusal);
                receiver.reports.now();
                shared.statistics.drops.add(DropReason::RequestRefused);
                pool.give(frame);
                let status = completion.map_or(Status::LocalQpOperation, |ended| ended.status);
                if let Some(completion) = completion {
                    shared.completions.push(self.request.receive_cq, completion);
                }
                self.fail(status, shared);
                return false;
            }
        };
        let ends = matches!(outcome, Outcome::Finished(_));
        receiver.reports.sequence_error_sent = false;
        receiver.reports.flowlet = header.flowlet;
        if let Some(open) = receiver.delivered(ends, now) {
            self.counters.reorder_span_max = self.counters.reorder_span_max.max(open);
        }
        shared.statistics.delivered += 1;
        self.counters.rx_messages += u64::from(ends);
        self.counters.rx_bytes += header.len() as u64;
        if let Some(completion) = completion {
            shared.completions.push(self.request.receive_cq, completion);
        }
        pool.give(frame);
        true
    }

    /// Delivers what waited for a receive, now that one is posted. Whether anything could have waited.
    pub(crate) fn resume<M: RegionMemory>(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        shared: &mut Shared<M>,
    ) -> bool {
        if !std::mem::take(&mut self.resume) || !self.state.receives() {
            return false;
        }
        let head = self.peer.as_mut().and_then(|peer| {
            peer.receiver.reports.report = Report::Acknowledge;
            peer.receiver.reports.now();
            peer.receiver.take_head()
        });
        if let Some(held) = head {
            shared.held_frames -= 1;
            self.deliver(held.frame, held.header, pool, now, shared);
        }
        true
    }

    /// Whether an acknowledgement is to be sent now, or a receive was posted that packets wait for.
    pub(crate) fn wants_to_acknowledge(&self, now: Time) -> bool {
        let due = self.peer.as_ref().is_some_and(|peer| {
            let receiver = &peer.receiver;
            let due = receiver.reports.is_due(now) || receiver.report_is_due(now);
            due && peer.flows.is_some() && self.may_answer(peer)
        });
        due || self.resume
    }

    /// A queue pair that failed says why, and nothing else.
    pub(super) fn may_answer(&self, peer: &Peer) -> bool {
        let refused = matches!(peer.receiver.reports.report, Report::Refused(_));
        self.state.receives() || (self.state == State::Error && refused)
    }

    /// The acknowledgement that is due.
    pub(crate) fn acknowledge(&mut self, pool: &mut FramePool, now: Time) -> Departure {
        if !self.wants_to_acknowledge(now) {
            return Departure::Nothing;
        }
        let Some(Peer {
            receiver,
            paths,
            flows: Some((_, flow)),
            qpn,
            min_rnr_timer,
            ..
        }) = &mut self.peer
        else {
            return Departure::Nothing;
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let loss = receiver.suspects_loss(now);
        let headers = frame::ack_headers(receiver, *qpn, *min_rnr_timer, loss);
        let flow = frame::on_path(flow, paths.entropy(receiver.reports.trigger.path));
        let written = lay_out(&mut frame, pool, &flow, &headers, 0);
        if written.is_none() || roce_frame::seal(frame.bytes_mut()).is_err() {
            receiver.reports.left();
            pool.give(frame);
            return Departure::Nothing;
        }
        if loss {
            receiver.loss_was_reported(now);
            self.counters.loss_reports += 1;
        }
        receiver.reports.left();
        self.counters.tx_acks += 1;
        Departure::Frame(frame)
    }
}
