//! From the receive queues to the decision where each packet goes: \[1\], \[2\] and \[4\].

use super::Worker;
use super::dispatch::Origin;
use super::rings::Crossing;
use super::source::Entrance;
use super::trace::{self, Routing};
use crate::drop::DropReason;
use crate::forward::batch::Batch;
use crate::id::{PortId, TraceId};
use crate::ingress::parse::ParseException;
use crate::ingress::pending::Waiting;
use crate::limits::BATCH;
use crate::packet::Parsed;
use crate::trace::Arrival;
use crate::trace::probe::Lost;
use common::time::Time;
use common::wire::ethernet::{HEADER_LEN, field};
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;
use std::vec::Drain;

/// Frames between the one that is worked on and the one whose first line is fetched meanwhile. The
/// chunks of a region lie a power of two apart, so that their first lines share a few sets of the
/// first-level cache: by the time of the next step they have left it.
const AHEAD: usize = 4;

/// The next of `frames`; fetches the one that follows [`AHEAD`] of it.
#[inline]
pub(super) fn next_frame(frames: &mut Drain<'_, Frame>) -> Option<Frame> {
    let next = frames.next();
    if let Some(frame) = frames.as_slice().get(AHEAD) {
        frame.prefetch();
    }
    next
}

impl<Q: QueueIo> Worker<Q> {
    /// Takes a batch from each of the receive queues `ready` and forwards it. Returns the number of
    /// packets.
    ///
    /// What several queues have is forwarded together: when many ports have a few packets each, the
    /// waits for memory of one overlap with those of the others.
    pub(super) fn receive(&mut self, now: Time, ready: impl Iterator<Item = usize>) -> usize {
        let mut work = 0;
        for index in ready {
            if !self.rings.have_room() {
                break;
            }
            let frames = &mut self.scratch.frames;
            let (port, count) = self.devices.receive(index, frames);
            if count == 0 {
                continue;
            }
            work += count;
            self.scratch.arrivals.push((port, count));
            if self.scratch.frames.len() >= BATCH {
                self.forward_batch(now);
            }
        }
        if !self.scratch.frames.is_empty() {
            self.forward_batch(now);
        }
        work
    }

    /// Forwards the packets of `self.scratch.frames`, which arrived as `self.scratch.arrivals`
    /// says.
    fn forward_batch(&mut self, now: Time) {
        let mut batch = std::mem::take(&mut self.scratch.batch);
        self.fill_batch(&mut batch, now);
        self.observe(&batch, now);
        self.choose(&mut batch, now);
        self.dispatch_batch(&mut batch, now);
        self.scratch.batch = batch;
    }

    /// Shows a batch to flow analysis, if that is on.
    #[inline]
    fn observe(&mut self, batch: &Batch, now: Time) {
        let Some(observer) = &mut self.observer else {
            return;
        };
        for ((frame, ingress), parsed) in batch.lanes.iter().zip(&batch.parsed) {
            let notified = observer.note(frame.bytes(), parsed, *ingress, now);
            if let (Some(direction), Some(compensator)) = (notified, &mut self.compensator) {
                compensator.passed(&direction, now);
            }
        }
        observer.count(now);
    }

    /// Parses what arrived. The packets that are to be routed go into the batch; all others are
    /// dealt with.
    fn fill_batch(&mut self, batch: &mut Batch, now: Time) {
        let mut frames = std::mem::take(&mut self.scratch.frames);
        let mut arrivals = std::mem::take(&mut self.scratch.arrivals);
        let mut rest = frames.drain(..);
        for (ingress, count) in arrivals.drain(..) {
            self.count_received(ingress, &rest.as_slice()[..count]);
            if self.tables.bridging.port(ingress).is_some()
                || self.tables.interfaces.on_port(ingress).is_some()
            {
                self.enter(&mut rest, (ingress, count), batch, now);
                continue;
            }
            let entrance = Entrance::of(&self.tables, ingress);
            for _ in 0..count {
                let Some(frame) = next_frame(&mut rest) else {
                    break;
                };
                match self.parse_own(entrance, &frame) {
                    Ok(parsed) => self.gather(batch, frame, ingress, parsed),
                    Err(why) => self.leave(frame, ingress, why, now),
                }
            }
        }
        drop(rest);
        (self.scratch.frames, self.scratch.arrivals) = (frames, arrivals);
    }

    /// Adds a packet to those that are to be routed, without what the kernel does not forward
    /// either: what follows the IP packet in its frame, and a tag that was there for its priority.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn gather(
        &mut self,
        batch: &mut Batch,
        mut frame: Frame,
        ingress: PortId,
        mut parsed: Parsed,
    ) {
        let end = usize::from(parsed.network) + usize::from(parsed.ip_len);
        let header = HEADER_LEN + usize::from(parsed.edits.tag_len());
        if frame.len() > end || usize::from(parsed.network) > header {
            (frame, parsed) = self.bare(frame, parsed, end);
        }
        batch.push(frame, ingress, parsed);
    }

    /// Takes padding behind `end` off a frame, and priority tags. Both come and go by value, so
    /// that those of other frames need not lie in memory.
    #[cold]
    #[inline(never)]
    fn bare(&mut self, mut frame: Frame, mut parsed: Parsed, end: usize) -> (Frame, Parsed) {
        frame.truncate(end);
        if frame.is_chained() {
            self.devices.pool.shed(&mut frame);
        }
        let header = HEADER_LEN + usize::from(parsed.edits.tag_len());
        let tags = usize::from(parsed.network).saturating_sub(header);
        if let Some(len) = u16::try_from(tags).ok().filter(|len| *len > 0) {
            let addresses = ..field::ETHERTYPE;
            frame.bytes_mut().copy_within(addresses, tags);
            frame.shrink_front(len);
            parsed.network -= len;
            parsed.transport = parsed.transport.saturating_sub(len);
        }
        (frame, parsed)
    }

    /// Looks the routes of a batch up, and chooses among their next hops.
    fn choose(&mut self, batch: &mut Batch, now: Time) {
        self.forward.look_up(batch);
        self.catch_up(now);
        self.forward.choose(batch, &self.tables, now);
        if self.probe.is_on() {
            let routing = Routing {
                tables: &self.tables,
                forward: &self.forward,
            };
            trace::batch(&mut self.probe, routing, batch);
        }
    }

    /// Picks up the tables that what was looked up needs: those that have the group of a route were
    /// published before it.
    #[inline]
    pub(super) fn catch_up(&mut self, now: Time) {
        if self.reader.is_behind(self.forward.needs()) {
            self.pick_up_tables(now);
        }
    }

    /// Sends the packets of a batch on their ways.
    fn dispatch_batch(&mut self, batch: &mut Batch, now: Time) {
        let mut traces = batch.traces.drain(..);
        let mut hashes = batch.hashes.drain(..);
        let parsed = batch.parsed.iter().zip(&batch.choices);
        let mut lanes = batch.lanes.drain(..);
        for (parsed, choice) in parsed {
            let Some((frame, ingress)) = lanes.next() else {
                break;
            };
            if let Some((frame, _)) = lanes.as_slice().get(AHEAD) {
                frame.prefetch();
            }
            let origin = Origin {
                ingress,
                trace: traces.next().unwrap_or(TraceId::NONE),
                flow: hashes.next(),
                since: now,
                now,
            };
            self.dispatch(frame, parsed, *choice, origin);
        }
        batch.parsed.clear();
        batch.choices.clear();
        self.send_errors();
    }

    fn count_received(&self, ingress: PortId, frames: &[Frame]) {
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.rx_packets.add(frames.len() as u64);
            port.rx_bytes
                .add(frames.iter().map(|frame| frame.len() as u64).sum());
        }
    }

    /// Reads a frame about whose source nothing is to be asked.
    pub(super) fn parse(&self, ingress: PortId, frame: &Frame) -> Result<Parsed, ParseException> {
        Entrance::of(&self.tables, ingress).parse(frame, |_| false)
    }

    /// Reads a packet of the port itself, with whether its source is in doubt.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn parse_own(
        &self,
        entrance: Entrance,
        frame: &Frame,
    ) -> Result<Parsed, ParseException> {
        entrance.parse(frame, |source| {
            entrance.doubts(&self.tables.sources, source)
        })
    }

    /// Takes a frame that is not to be forwarded.
    #[cold]
    pub(super) fn leave(&mut self, frame: Frame, ingress: PortId, why: ParseException, now: Time) {
        match why {
            ParseException::Control => self.receive_control(frame, ingress, now),
            ParseException::Lost(reason) => self.refuse(frame, ingress, reason),
        }
    }

    /// Takes a MAC control frame, or gives it to the worker that owns the port it arrived at.
    #[cold]
    pub(super) fn receive_control(&mut self, frame: Frame, port: PortId, now: Time) {
        let Some(owner) = self.rings.other_owner(port) else {
            return self.take_control(frame, port, now);
        };
        if let Err(crossing) = self
            .rings
            .send(owner, Crossing::Control { frame, port }, true)
        {
            self.lose_crossing(crossing);
        }
    }

    /// Loses a frame that the parser refused.
    #[cold]
    pub(super) fn refuse(&mut self, frame: Frame, ingress: PortId, reason: DropReason) {
        let arrival = Arrival {
            port: ingress,
            priority: None,
        };
        let lost = Lost {
            trace: self.probe.begin(arrival, &frame, None),
            ..Lost::from(ingress)
        };
        self.drop_packet(frame, lost, reason);
    }

    /// Looks all packets that wait up again: their neighbour may be known by now.
    pub(super) fn retry_pending(&mut self, new_tables: bool, now: Time) {
        if self.pending.is_empty() {
            return;
        }
        let mut retries = std::mem::take(&mut self.scratch.retries);
        self.pending.take(&mut retries, new_tables);
        for Waiting {
            frame,
            ingress,
            interface,
            pcp,
            since,
            trace,
            ..
        } in retries.drain(..)
        {
            let origin = Origin {
                ingress,
                trace,
                flow: None,
                since,
                now,
            };
            match self.parse(ingress, &frame) {
                // Its source is in no doubt: that was looked at before it had to wait, unless it is
                // an answer of the switch itself.
                Ok(parsed) => {
                    let parsed = Parsed {
                        interface,
                        pcp,
                        ..parsed
                    };
                    let group = self.forward.look_up_one(&parsed);
                    self.catch_up(now);
                    let packet = (frame.bytes(), &parsed);
                    let routed = self.forward.choose_one(&self.tables, group, packet, now);
                    if trace.is_some() {
                        let routing = Routing {
                            tables: &self.tables,
                            forward: &self.forward,
                        };
                        trace::route(&mut self.probe, routing, trace, routed, packet);
                    }
                    self.dispatch_one(frame, &parsed, routed.choice, origin);
                }
                // It was parsed before: it is no control frame.
                Err(ParseException::Control) => {
                    self.drop_packet(frame, origin, DropReason::Malformed)
                }
                Err(ParseException::Lost(reason)) => self.drop_packet(frame, origin, reason),
            }
        }
        self.scratch.retries = retries;
        self.send_errors();
    }
}
