//! The requester: what it is asked to send, and what of it is on its way.

use super::sender::Sender;
use super::steering::{Choice, Steering};
use super::windows;
use crate::limits;
use crate::memory::{RegionMemory, RegionTable};
use crate::send::awaited::{Again, Awaited};
use crate::send::credit::Credits;
use crate::send::flight::{Departed, Retransmission};
use crate::send::queue::SendQueue;
use crate::send::segment::{Next, Segment};
use crate::verbs::{Psn, SendRequest, Status};
use common::time::Time;

/// A plain peer is asked for an acknowledgement at least this often, in packets.
const PLAIN_ACK_INTERVAL: u32 = 16;

/// Requests that take no packets, carried out before it is another queue pair's turn. Each costs
/// about as much as a packet.
const LOCAL_TURN: usize = 16;

/// What the requester owns.
#[derive(Debug)]
pub(super) struct Requester {
    /// Requests that have not completed.
    pub(super) queue: SendQueue,
    /// The next request failed its memory check; it completes with an error after those before it.
    pub(super) blocked: bool,
    /// No other message begins: the send queue is drained.
    pub(super) held: bool,
    /// A request was carried out that took no packets: it may be complete.
    pub(super) done_locally: bool,
    /// Which requests a plain peer has receives for.
    pub(super) credits: Credits,
    /// From RTS on.
    pub(super) sender: Option<Sender>,
    /// Answers that have not come; from RTS on.
    pub(super) awaited: Option<Awaited>,
    /// The request that ends the queue pair when it is its turn.
    pub(super) refusal: Option<Refused>,
}

/// A request that fails, while those before it may still succeed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// The packet, or the answer, at which it does.
    pub(super) psn: Psn,
    pub(super) status: Status,
    /// The peer said so: it answers nothing any more.
    pub(super) by_peer: bool,
}

/// A packet that is about to leave.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) psn: Psn,
    pub(super) segment: Segment,
    /// It leaves again; the entropy value of its last copy.
    pub(super) again: Option<u8>,
    /// It asks for answers again.
    pub(super) asks_again: Option<Again>,
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
            held: false,
            done_locally: false,
            credits: Credits::new(0),
            sender: None,
            awaited: None,
            refusal: None,
        }
    }

    /// Nothing is sent or awaited any more.
    pub(super) fn stop(&mut self) {
        self.blocked = false;
        self.held = false;
        self.sender = None;
        self.awaited = None;
        self.refusal = None;
    }

    /// Whether a new packet may leave, as far as windows and the requests before it let it.
    pub(super) fn may_send_new(&self, steering: &Steering) -> bool {
        let Some(sender) = &self.sender else {
            return false;
        };
        let held = self.held && self.queue.begins();
        let fails = self.blocked || self.refusal.is_some();
        !(fails || held || self.queue.all_sent())
            && sender.may_send_new(steering)
            && !self.waits_for_credit()
            && self.may_ask(sender, steering)
    }

    /// A request fails when it is its turn: the oldest of those that do.
    pub(super) fn refuse(&mut self, refused: Refused) {
        let is_first = |known: Refused| refused.psn.is_before(known.psn);
        if self.refusal.is_none_or(is_first) {
            self.refusal = Some(refused);
        }
    }

    /// The packet to send again, if one may leave: none of a request that fails.
    pub(super) fn retransmission(&self, steering: &Steering) -> Option<Retransmission> {
        let again = self.sender.as_ref()?.retransmission(steering)?;
        let fails = self.refusal.is_some_and(|it| !again.psn.is_before(it.psn));
        (!fails).then_some(again)
    }

    /// Whether everything that has begun is over: sent, acknowledged and answered.
    pub(super) fn is_drained(&self) -> bool {
        let idle = |sender: &Sender| sender.flight().is_idle();
        self.queue.begins()
            && self.sender.as_ref().is_none_or(idle)
            && self.awaited.as_ref().is_none_or(Awaited::is_empty)
    }

    /// Whether the next packet, if it asks for answers or is fenced, need not wait for answers.
    fn may_ask(&self, sender: &Sender, steering: &Steering) -> bool {
        let (Some(awaited), Some(request)) = (&self.awaited, self.queue.current()) else {
            return true;
        };
        if !awaited.reaches(sender.flight().next()) {
            return false;
        }
        if request.fence && self.queue.begins() && !awaited.is_empty() {
            return false;
        }
        // One that is not possible fails when it begins.
        self.queue.next_answers().is_none_or(|answers| {
            let answers = answers.min(self.answers_at_once(steering));
            let room = answers <= sender.flight().room();
            !awaited.is_possible() || (room && awaited.has_room(answers, steering.window()))
        })
    }

    /// How many answers one packet asks for, at most: half a window, so that the next ones are
    /// asked for while these are under way.
    fn answers_at_once(&self, steering: &Steering) -> u32 {
        let span = self.sender.as_ref().map_or(1, |it| it.flight().span());
        let most = limits::READ_REQUEST.min(span);
        most.min(steering.window() / 2).max(1)
    }

    /// What is to be asked for again, if it may leave.
    pub(super) fn next_again(&self, steering: &Steering) -> Option<Again> {
        let (sender, awaited) = (self.sender.as_ref()?, self.awaited.as_ref()?);
        awaited.again().filter(|_| sender.credit(steering) > 0)
    }

    /// What to send next: what is lost first, then what is new. A `plain` peer is asked for answers
    /// in between. `owner`: domain and number of the queue pair.
    ///
    /// # Errors
    /// How the oldest request ends.
    pub(super) fn next_outgoing<M: RegionMemory>(
        &mut self,
        steering: &Steering,
        plain: bool,
        owner: (u32, u32),
        regions: &mut RegionTable<M>,
    ) -> Result<Option<Outgoing>, Status> {
        if let Some(again) = self.retransmission(steering) {
            // Lost packets are never older than the oldest request that has not completed.
            let asked = self.awaited.as_ref().and_then(|it| it.asked_by(again.psn));
            let segment = match asked {
                // The window may be another one since then.
                Some((index, packets)) => self.queue.ask_again(again.request, index, packets),
                None => self.queue.again(again.request, again.psn),
            };
            return Ok(Some(Outgoing {
                psn: again.psn,
                segment: segment.ok_or(Status::Fatal)?,
                again: Some(again.entropy),
                asks_again: None,
                probe: again.probe,
                request: again.request,
                ack_request: true,
            }));
        }
        if let Some(again) = self.next_again(steering) {
            let segment = self
                .queue
                .ask_again(again.request, again.index, again.packets);
            return Ok(Some(Outgoing {
                psn: again.psn,
                segment: segment.ok_or(Status::Fatal)?,
                again: None,
                asks_again: Some(again),
                probe: false,
                request: again.request,
                ack_request: false,
            }));
        }
        if !self.begin_next(steering, owner, regions)? {
            return Ok(None);
        }
        let Some(sender) = &self.sender else {
            return Ok(None);
        };
        let Next::Segment(request, segment) = self.queue.next() else {
            return Ok(None);
        };
        let psn = sender.flight().next();
        // The peer answers at once if nothing follows this packet for now.
        let ack_request = (segment.position.ends() && self.queue.sends_last())
            || sender.flight().room() <= segment.packets
            || (plain && psn.value().is_multiple_of(PLAIN_ACK_INTERVAL))
            || self.credits.end_at(request);
        // The answer of a plain peer is the acknowledgement.
        let ack_request = ack_request && !(plain && segment.request.opcode.is_answered());
        Ok(Some(Outgoing {
            psn,
            segment,
            again: None,
            asks_again: None,
            probe: false,
            request,
            ack_request,
        }))
    }

    /// Carries out some of the requests that are next and take no packets, and checks the memory of
    /// the one after them. Whether there is a packet to send.
    fn begin_next<M: RegionMemory>(
        &mut self,
        steering: &Steering,
        (domain, qpn): (u32, u32),
        regions: &mut RegionTable<M>,
    ) -> Result<bool, Status> {
        for _ in 0..=LOCAL_TURN {
            // Of the one behind a request that was carried out here, too: what is looked at is what
            // is asked for.
            if self.queue.next_answers().is_some() {
                self.queue.set_answers(self.answers_at_once(steering));
            }
            if !self.may_send_new(steering) {
                return Ok(false);
            }
            let Next::Begin(request) = self.queue.next() else {
                return Ok(true);
            };
            let possible = !request.opcode.is_answered()
                || self.awaited.as_ref().is_some_and(Awaited::is_possible);
            let checked = if request.opcode.is_local() {
                windows::carry_out(&request, domain, qpn, regions).map(|()| None)
            } else if possible {
                self.queue.check_memory(&request, domain, regions).map(Some)
            } else {
                Err(Status::LocalQpOperation)
            };
            match checked {
                Ok(Some(payload)) => self.queue.begin(payload),
                Ok(None) => {
                    let next = self.sender.as_ref().map(|sender| sender.flight().next());
                    self.queue.done_locally(next.unwrap_or_default());
                    self.credits.sent_nothing();
                    self.done_locally = true;
                }
                // What was sent before may still succeed: only then it is this request's turn.
                Err(status) if self.queue.at_front() => return Err(status),
                Err(_) => {
                    self.blocked = true;
                    return Ok(false);
                }
            }
        }
        Ok(false)
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

    /// A request whose packets were all acknowledged since this was last called, if services
    /// without an order tell: the request, and when it was posted.
    pub(super) fn next_whole(&mut self) -> Option<(SendRequest, Time)> {
        let sender = self.sender.as_mut()?;
        while let Some(number) = sender.next_acked() {
            if let whole @ Some(_) = self.queue.acknowledged(number) {
                return whole;
            }
        }
        None
    }

    /// Notes that a packet left.
    pub(super) fn left(&mut self, outgoing: &Outgoing, choice: &Choice, now: Time) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let departed = Departed {
            path: choice.path.path,
            entropy: choice.path.entropy,
            at: now,
        };
        let packets = outgoing.segment.packets;
        if outgoing.again.is_some() {
            sender.sent_again(outgoing.psn, departed);
        } else if let (Some(again), Some(awaited)) = (&outgoing.asks_again, &mut self.awaited) {
            awaited.asked_again(again, now);
            sender.asked_again(now);
        } else {
            sender.sent(outgoing.request, packets, departed);
            self.queue.sent(outgoing.psn);
            if outgoing.segment.request.opcode.is_answered()
                && let Some(awaited) = &mut self.awaited
            {
                if outgoing.segment.offset > 0 {
                    self.credits.sent_part();
                }
                let index = outgoing.segment.offset / u32::from(self.queue.mtu().max(1));
                let asked = (outgoing.psn, packets);
                awaited.ask(outgoing.request, index, asked, sender.rto(), now);
            }
        }
    }
}
