//! The requester: what it is asked to send, and what of it is on its way.

use super::sender::Sender;
use super::steering::{Choice, Steering};
use crate::memory::{MemoryRange, RegionMemory, RegionTable};
use crate::send::credit::Credits;
use crate::send::flight::Departed;
use crate::send::queue::SendQueue;
use crate::send::segment::{Next, Segment};
use crate::verbs::{Access, Psn, SendRequest, Status};
use common::time::Time;

/// A plain peer is asked for an acknowledgement at least this often, in packets.
const PLAIN_ACK_INTERVAL: u32 = 16;

/// What the requester owns.
#[derive(Debug)]
pub(super) struct Requester {
    /// Requests that have not completed.
    pub(super) queue: SendQueue,
    /// The next request failed its memory check; it completes with an error after those before it.
    pub(super) blocked: bool,
    /// Which requests a plain peer has receives for.
    pub(super) credits: Credits,
    /// From RTS on.
    pub(super) sender: Option<Sender>,
}

/// A packet that is about to leave.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) psn: Psn,
    pub(super) segment: Segment,
    /// It leaves again; the path of its last copy.
    pub(super) again: Option<u8>,
    /// Sent to learn what became of the others.
    pub(super) probe: bool,
    /// The request it is of.
    request: u32,
    pub(super) ack_request: bool,
}

impl Requester {
    /// A requester for `requests` requests at a time, which sends nothing yet.
    pub(super) fn new(requests: u32) -> Self {
        Self {
            queue: SendQueue::new(requests),
            blocked: false,
            credits: Credits::new(0),
            sender: None,
        }
    }

    /// What to send next: what is lost first, then what is new. A `plain` peer is asked for answers
    /// in between.
    ///
    /// # Errors
    /// How the oldest request ends.
    pub(super) fn next_outgoing<M: RegionMemory>(
        &mut self,
        steering: &Steering,
        plain: bool,
        domain: u32,
        regions: &RegionTable<M>,
    ) -> Result<Option<Outgoing>, Status> {
        let Some(sender) = &self.sender else {
            return Ok(None);
        };
        if let Some(again) = sender.retransmission(steering) {
            // Lost packets are never older than the oldest request that has not completed.
            let segment = self.queue.again(again.request, again.psn);
            return Ok(Some(Outgoing {
                psn: again.psn,
                segment: segment.ok_or(Status::Fatal)?,
                again: Some(again.path),
                probe: again.probe,
                request: again.request,
                ack_request: true,
            }));
        }
        if !sender.may_send_new(steering) || self.waits_for_credit() {
            return Ok(None);
        }
        if let Next::Begin(request) = self.queue.next() {
            match local_memory(&request, domain, regions) {
                Ok(memory) => self.queue.begin(memory),
                // What was sent before may still succeed: only then it is this request's turn.
                Err(status) if self.queue.at_front() => return Err(status),
                Err(_) => {
                    self.blocked = true;
                    return Ok(None);
                }
            }
        }
        let Next::Segment(request, segment) = self.queue.next() else {
            return Ok(None);
        };
        let psn = sender.flight().next();
        // The peer answers at once if nothing follows this packet for now.
        let ack_request = (segment.position.ends() && self.queue.sends_last())
            || sender.flight().room() <= 1
            || (plain && psn.value().is_multiple_of(PLAIN_ACK_INTERVAL))
            || self.credits.end_at(request);
        Ok(Some(Outgoing {
            psn,
            segment,
            again: None,
            probe: false,
            request,
            ack_request,
        }))
    }

    /// Whether the next new packet has to wait until the peer has a receive for its message. One
    /// packet alone goes without: its answer brings the peer's newest credits, or says that it has
    /// none (InfiniBand 9.7.7.2.5).
    pub(super) fn waits_for_credit(&self) -> bool {
        let (Some(sender), Some(upcoming)) = (&self.sender, self.queue.upcoming()) else {
            return false;
        };
        if !upcoming.opcode.takes_receive() || self.credits.allow(upcoming.number) {
            return false;
        }
        match upcoming.first {
            None => !sender.flight().is_idle(),
            // A SEND whose first packet came has its receive. That of a WRITE is taken at its end.
            Some(first) => !upcoming.opcode.is_write() && sender.flight().unacknowledged() == first,
        }
    }

    /// Notes that a packet left.
    pub(super) fn left(&mut self, outgoing: &Outgoing, choice: &Choice, now: Time) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let departed = Departed {
            path: choice.path.path,
            at: now,
        };
        if outgoing.again.is_some() {
            sender.sent_again(outgoing.psn, departed);
        } else {
            sender.sent(outgoing.request, departed);
            self.queue.sent(outgoing.psn);
        }
    }
}

/// Checks the memory of a request that is about to be sent.
fn local_memory<M: RegionMemory>(
    request: &SendRequest,
    domain: u32,
    regions: &RegionTable<M>,
) -> Result<Option<MemoryRange>, Status> {
    if request.len == 0 {
        return Ok(None);
    }
    regions
        .local(
            domain,
            request.lkey,
            request.addr,
            request.len,
            Access::NONE,
        )
        .map(Some)
        .map_err(|_| Status::LocalProtection)
}
