//! The sending half of a queue pair: what is on its way \[3\], its recovery, and what steers it
//! \[4\] \[5\].
//!
//! It passes results between these parts: an acknowledgement updates the flight, and what is new in
//! it goes to the round-trip time, the recovery and the steering.

mod stragglers;

use super::steering::Steering;
use crate::frame::Acknowledgement;
use crate::recovery::{Action, Event, Judge, Recovery, RoundTrip, Rules, Suspect};
use crate::send::flight::{
    Arrived, Departed, Flight, Retransmission, SACK_BITS, Slot, Told, Verdict,
};
use crate::stats::QueuePairCounters;
use crate::verbs::{Feedback, PacketFate, Psn, Status};
use common::rtt::RttEstimator;
use common::time::{Span, Time};
use std::collections::VecDeque;
use stragglers::Stragglers;

/// See the module.
#[derive(Debug)]
pub(super) struct Sender {
    flight: Flight,
    recovery: Recovery,
    rtt: RttEstimator,
    /// The last measurement, until it is taken.
    measured: Option<Span>,
    /// The requests of packets that were acknowledged, oldest first, until they are taken; for
    /// services without an order.
    acked: Option<VecDeque<u32>>,
    stragglers: Stragglers,
}

impl Sender {
    /// A sender whose first packet is `first`, with at most `span` packets between the oldest
    /// unacknowledged and the newest.
    pub(super) fn new(first: Psn, span: u32, rules: Rules) -> Self {
        Self {
            flight: Flight::new(first, span),
            recovery: Recovery::new(rules),
            rtt: RttEstimator::default(),
            measured: None,
            acked: None,
            stragglers: Stragglers::default(),
        }
    }

    /// The same, which tells the requests of packets that are acknowledged.
    pub(super) fn telling_each(mut self) -> Self {
        self.acked = Some(VecDeque::with_capacity(self.flight.span() as usize));
        self
    }

    /// The request of a packet that was acknowledged; each packet is told of once.
    pub(super) fn next_acked(&mut self) -> Option<u32> {
        self.acked.as_mut()?.pop_front()
    }

    /// From now on the peer is waited for this long, and so often.
    pub(super) fn set_patience(
        &mut self,
        ack_timeout: Option<Span>,
        retry_count: u8,
        rnr_retry: Option<u8>,
    ) {
        self.recovery
            .set_patience(ack_timeout, retry_count, rnr_retry);
    }

    /// Packets and time by which a packet may be overtaken from now on.
    pub(super) fn set_tolerance(&mut self, (packets, time): (u32, Span)) {
        self.recovery.set_tolerance(packets, time);
    }

    /// What was sent and is not acknowledged.
    pub(super) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// The round trip that the last acknowledgement gave, unless this was asked before.
    pub(super) fn take_measured(&mut self) -> Option<Span> {
        self.measured.take()
    }

    /// The smoothed round-trip time, once measured.
    pub(super) fn rtt(&self) -> Option<Span> {
        self.rtt.smoothed()
    }

    /// The retransmission time-out that stands.
    pub(super) fn rto(&self) -> Span {
        self.recovery.rto(self.round_trip())
    }

    fn round_trip(&self) -> RoundTrip {
        RoundTrip {
            smoothed: self.rtt.smoothed(),
            late_after: self.rtt.late_after(),
        }
    }

    /// The shortest round-trip time; `None`: none was measured.
    pub(super) fn shortest(&self) -> Option<Span> {
        self.rtt.shortest()
    }

    /// Packets that may leave at present.
    pub(super) fn credit(&self, steering: &Steering) -> u32 {
        if self.recovery.may_send() {
            steering.credit(self.flight.in_flight())
        } else {
            0
        }
    }

    /// Whether a new packet may leave.
    pub(super) fn may_send_new(&self, steering: &Steering) -> bool {
        self.credit(steering) > 0 && self.flight.room() > 0
    }

    /// The packet to send again, if one may leave. A probe does also when the window is full: what
    /// fills it may have vanished (RFC 8985 7.3).
    pub(super) fn retransmission(&self, steering: &Steering) -> Option<Retransmission> {
        let again = self.flight.retransmission()?;
        let may_leave = match again.probe {
            true => self.recovery.may_send() && steering.held_until().is_none(),
            false => self.credit(steering) > 0,
        };
        may_leave.then_some(again)
    }

    /// A new packet, part of `request`, leaves; it takes `numbers` sequence numbers.
    pub(super) fn sent(&mut self, request: u32, numbers: u32, departed: Departed) {
        let first = self.flight.is_idle();
        self.flight.sent(request, numbers, departed);
        self.stragglers.begin_another_end();
        let round_trip = self.round_trip();
        self.recovery
            .on(Event::Sent { first }, round_trip, departed.at);
    }

    /// A lost packet leaves again.
    pub(super) fn sent_again(&mut self, psn: Psn, departed: Departed) {
        self.flight.sent_again(psn, departed);
        let round_trip = self.round_trip();
        self.recovery.on(Event::SentAgain, round_trip, departed.at);
    }

    /// Takes an acknowledgement in.
    pub(super) fn acknowledge(
        &mut self,
        ack: &Acknowledgement,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) -> Verdict {
        let shortest = self.rtt.shortest();
        let before = self.round_trip();
        let in_flight = self.flight.in_flight();
        let mut measured = None;
        // Karn: take an RTT sample only from packets sent once.
        let delay = self.flight.in_flight_at(ack.trigger);
        let delay = delay.filter(|(_, slot)| slot.copies == 1);
        let delay = delay.map(|(_, slot)| now.since(slot.sent));
        let recovery = &mut self.recovery;
        let acked = &mut self.acked;
        let verdict = self.flight.acknowledge(ack, |slot, arrived| {
            let (trigger, marked) = match arrived {
                Arrived::Acked { trigger, marked } => (trigger, marked),
                Arrived::NotReady => (true, false),
            };
            let round_trip = (trigger && slot.copies == 1).then(|| now.since(slot.sent));
            measured = measured.or(round_trip);
            let fate = if arrived == Arrived::NotReady {
                PacketFate::NotReady
            } else {
                // An answer that comes too soon is to the first copy, and says nothing of the
                // second.
                let newest_copy = slot.copies == 1
                    || shortest.is_some_and(|shortest| now.since(slot.sent) >= shortest);
                if let Some(acked) = acked {
                    acked.push_back(slot.request);
                }
                let acked = Event::PacketAcked {
                    sent: slot.sent,
                    retransmitted: slot.copies > 1,
                    newest_copy,
                };
                recovery.on(acked, before, now);
                PacketFate::Delivered {
                    newest_copy,
                    marked,
                }
            };
            let feedback = Feedback {
                delay,
                ..feedback(slot, round_trip, fate)
            };
            steering.feedback(&feedback, in_flight, now);
        });
        let Verdict::Valid(news) = verdict else {
            return self.without_news(verdict, ack, now, steering, counters);
        };
        if let Some(crowd) = ack.crowd() {
            steering.crowd(crowd, now);
        }
        if news.spurious && !self.stragglers.explain(now) {
            self.recovery.on(Event::SpuriousRetransmit, before, now);
        }
        if let Some(round_trip) = measured {
            self.rtt.sample(round_trip);
            self.measured = Some(round_trip);
        }
        let event = Event::Acknowledged {
            news: news.acked > 0,
            in_order: news.in_order,
            outstanding: !self.flight.is_idle(),
        };
        self.recovery.on(event, self.round_trip(), now);
        self.mark_trimmed(ack, now, steering, counters);
        let event = Event::FindLosses { reported: ack.loss };
        let judged = self.act(event, now, steering, counters);
        debug_assert!(judged.is_ok(), "only silence and a missing receive give up");
        self.held(steering, now);
        verdict
    }

    /// The peer expects a packet that it said had come: see [`Flight::take_back`].
    pub(super) fn take_back(&mut self, expected: Psn, is_done: impl Fn(u32) -> bool) {
        self.flight.take_back(expected, is_done);
    }

    /// A later acknowledgement that came before an overtaken one says all that it does, but not
    /// what was trimmed.
    fn without_news(
        &mut self,
        verdict: Verdict,
        ack: &Acknowledgement,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) -> Verdict {
        if verdict == Verdict::Overtaken {
            self.mark_trimmed(ack, now, steering, counters);
            self.held(steering, now);
        }
        verdict
    }

    /// The packets whose payload was cut off are to be sent again. Each copy is told of once. So
    /// what is said after a copy that counted as lost may be about that one, if it is too soon for
    /// the new one. If that copy was told of, only an acknowledgement that came twice can say so.
    /// (The shortest round trip may itself have been measured in a crowd, and be many times that of
    /// the idle network.) What is said of a first copy gives a round-trip time like an
    /// acknowledgement: it may be all that comes in an incast.
    fn mark_trimmed(
        &mut self,
        ack: &Acknowledgement,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) {
        for psn in ack.trimmed() {
            let Some((index, slot)) = self.flight.in_flight_at(psn) else {
                continue;
            };
            let took = now.since(slot.sent);
            if slot.copies == 1 {
                self.rtt.sample(took);
            } else if let Some(shortest) = self.rtt.shortest()
                && took < shortest.divided_by(if slot.told == Told::Trimmed { 64 } else { 4 })
            {
                continue;
            }
            let slot = self.flight.mark_trimmed(index);
            let feedback = feedback(&slot, None, PacketFate::Trimmed);
            steering.feedback(&feedback, self.flight.in_flight(), now);
            counters.rx_trims += 1;
        }
    }

    /// While packets are held back the clocks do not count their absence.
    pub(super) fn held(&mut self, steering: &Steering, now: Time) {
        if let Some(until) = steering.held_until() {
            let event = Event::Held { until };
            self.recovery.on(event, self.round_trip(), now);
        }
    }

    /// Marks the packets in flight that are lost by the rules of `judge`.
    fn mark_losses(
        &mut self,
        judge: &Judge,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) {
        let newest = self.flight.largest_sacked();
        let oldest = self.flight.smallest_sacked();
        // Beyond what an acknowledgement can name nothing is known.
        let candidates = SACK_BITS.min(if judge.also_newer {
            self.flight.outstanding()
        } else {
            newest
        });
        for index in self.flight.in_flight_among(candidates).iter() {
            let slot = self.flight.packet(index);
            if slot.told == Told::Came {
                // The peer has said why it waits for it.
                continue;
            }
            let suspect = Suspect {
                sent: slot.sent,
                copies: slot.copies,
                overtaken_by: self.flight.packets_after(index, newest),
                in_oldest_gap: index < oldest,
            };
            if judge.is_lost(&suspect) {
                self.mark_lost(index, now, steering);
                counters.fast_retransmits += 1;
            }
        }
    }

    /// A question left whose answer is lacking. It has come before, and is acknowledged again.
    pub(super) fn asked_again(&mut self, now: Time) {
        self.stragglers.expect(self.rto(), now);
    }

    /// Packet `index` of the flight is lost: it will be sent again.
    fn mark_lost(&mut self, index: u32, now: Time, steering: &mut Steering) {
        let slot = self.flight.mark_lost(index);
        let feedback = feedback(&slot, None, PacketFate::Lost);
        steering.feedback(&feedback, self.flight.in_flight(), now);
    }

    /// Everything that is in flight is lost.
    fn mark_all_lost(&mut self, now: Time, steering: &mut Steering) {
        let outstanding = self.flight.outstanding();
        for index in self.flight.in_flight_among(outstanding).iter() {
            self.mark_lost(index, now, steering);
        }
    }

    /// The oldest packet that did not come is to be sent again.
    fn mark_oldest_lost(&mut self, now: Time, steering: &mut Steering) {
        let outstanding = self.flight.outstanding();
        if let Some(index) = self.flight.in_flight_among(outstanding).lowest() {
            self.mark_lost(index, now, steering);
        }
    }

    /// The next packet that is sent again is a probe: the oldest one in flight, unless some are
    /// marked already.
    fn probe(&mut self, now: Time, steering: &mut Steering) {
        if !self.flight.has_lost() {
            let outstanding = self.flight.outstanding();
            let Some(oldest) = self.flight.in_flight_among(outstanding).lowest() else {
                return;
            };
            let slot = self.flight.mark_lost(oldest);
            steering.doubted(&feedback(&slot, None, PacketFate::Lost), now);
        }
        self.flight.probe();
    }

    /// Lets copies leave of packets that keep a message waiting (HT-43): see [`stragglers`].
    /// `ends`: there is nothing new to send, and no answer is awaited.
    pub(super) fn watch_stragglers(
        &mut self,
        ends: bool,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) {
        let times = self.rtt.smoothed().zip(self.rtt.late_after());
        let watches = ends && self.recovery.tolerates();
        let Some(times) = times.filter(|_| watches) else {
            return self.stragglers.stop();
        };
        let newest = self.recovery.newest_acked_sent();
        let found = self.stragglers.find(&self.flight, newest, times, now);
        for index in found.iter() {
            if self.credit(steering) == 0 || !self.stragglers.may_copy() {
                return;
            }
            let slot = self.flight.mark_lost(index);
            steering.overtaken(&feedback(&slot, None, PacketFate::Lost), now);
            self.stragglers.copied(times.1, now);
            counters.stragglers += 1;
        }
    }

    /// A plain peer misses the oldest packet and dropped all after it (InfiniBand 9.7.5.2.8).
    pub(super) fn sequence_error(&mut self, now: Time, steering: &mut Steering) {
        self.mark_all_lost(now, steering);
    }

    /// The peer has no receive for the packet that it expects; it wants to be left alone for
    /// `wait`.
    ///
    /// # Errors
    /// How the oldest request ends: that was once too often.
    pub(super) fn not_ready(
        &mut self,
        wait: Span,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) -> Result<(), Status> {
        let event = Event::ReceiverNotReady { wait };
        self.act(event, now, steering, counters)
    }

    /// When the sender wants to be woken.
    pub(super) fn deadline(&self) -> Time {
        self.recovery.deadline().min(self.stragglers.due())
    }

    /// The port has paused data packets for `total` so far.
    pub(super) fn paused(&mut self, total: Span, now: Time) {
        let event = Event::Paused { total };
        self.recovery.on(event, self.round_trip(), now);
    }

    /// Does what the clocks say.
    ///
    /// # Errors
    /// How the oldest request ends: the peer does not answer any more.
    pub(super) fn expire(
        &mut self,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) -> Result<(), Status> {
        let event = Event::Expired {
            outstanding: !self.flight.is_idle(),
        };
        self.act(event, now, steering, counters)
    }

    /// Lets `event` happen, and does what recovery asks for.
    fn act(
        &mut self,
        event: Event,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) -> Result<(), Status> {
        match self.recovery.on(event, self.round_trip(), now) {
            Action::Nothing => {}
            Action::Judge(judge) => self.mark_losses(&judge, now, steering, counters),
            Action::SendOldestAgain => self.mark_oldest_lost(now, steering),
            Action::Probe => {
                counters.tail_probes += 1;
                self.probe(now, steering);
            }
            Action::SendAllAgain => self.mark_all_lost(now, steering),
            Action::BackOff => {
                counters.timeouts += 1;
                self.mark_all_lost(now, steering);
                steering.timed_out(now);
            }
            Action::GiveUp(status) => return Err(status),
        }
        Ok(())
    }

    /// How often all waits of the recovery are doubled.
    #[cfg(test)]
    pub(super) fn backoff_shift(&self) -> u32 {
        self.recovery.backoff_shift()
    }
}

fn feedback(slot: &Slot, round_trip: Option<Span>, fate: PacketFate) -> Feedback {
    Feedback {
        path: slot.path,
        entropy: slot.entropy,
        sent: slot.sent,
        round_trip,
        delay: round_trip,
        fate,
    }
}

#[cfg(test)]
mod tests;
