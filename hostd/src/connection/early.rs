//! Messages that are given out before their turn, for services without an order (HT-39).
//!
//! ```text
//!   early packet ─▶ [9] whole? ─ no ─▶ it waits
//!                        │ yes
//!                        ▼
//!                 [10] possible? ─ no ─▶ dropped: the peer sends it again
//!                        │ yes
//!                        ▼
//!                 [8] place ─▶ completion
//! ```
//!
//! A packet that makes a message whole is acknowledged only if the message is given out. So a peer
//! whose packets of a message are all acknowledged knows that it was, and completes it.

use super::QueuePair;
use super::deliver::Delivery;
use crate::frame::DataHeader;
use crate::memory::RegionMemory;
use crate::receive::posted::ReceiveQueue;
use crate::receive::respond::Outcome;
use crate::verbs::DropReason;
use common::xdp::frame::Frame;
use std::ops::RangeInclusive;

impl QueuePair {
    /// Takes the packet `ahead` of the expected one, which makes `message` whole: gives that out,
    /// or drops the packet.
    pub(super) fn give_out<M: RegionMemory>(
        &mut self,
        message: RangeInclusive<u32>,
        ahead: u32,
        (frame, header): (Frame, DataHeader),
        delivery: &mut Delivery<'_, M>,
    ) {
        let Some(receiver) = &mut self.responder.receiver else {
            return delivery.drop_packet(frame, DropReason::QueuePairState);
        };
        receiver.lay(ahead, frame, header, delivery.now);
        if !self.may_give_out(message.clone(), delivery) {
            if let Some(receiver) = &mut self.responder.receiver
                && let Some(held) = receiver.lift(ahead)
            {
                receiver.reports.on_early(&held.header, false, delivery.now);
                delivery.drop_packet(held.frame, DropReason::NotYet);
            }
            return;
        }
        for place in message {
            if !self.give_out_one(place, place == ahead, delivery) {
                return;
            }
        }
    }

    /// Whether all of a message that is whole can be given out now.
    fn may_give_out<M: RegionMemory>(
        &mut self,
        message: RangeInclusive<u32>,
        delivery: &mut Delivery<'_, M>,
    ) -> bool {
        let rights = self.rights();
        let mut none = ReceiveQueue::new(0);
        let starved = self.responder.is_starved();
        let receives = match &mut delivery.shared {
            // The next receive is for the packet that waits for one.
            _ if starved => Some(&mut none),
            Some(shared) if shared.room > 0 => Some(shared.receives.queue()),
            Some(_) => Some(&mut none),
            None => None,
        };
        self.responder
            .may_give_out(message, rights, delivery.regions, receives)
    }

    /// Gives one packet of a message out; whether it `came` just now, or has waited. Whether the
    /// next one may follow.
    fn give_out_one<M: RegionMemory>(
        &mut self,
        place: u32,
        came: bool,
        delivery: &mut Delivery<'_, M>,
    ) -> bool {
        let rights = self.rights();
        let receiver = self.responder.receiver.as_mut();
        let Some((held, receiver)) = receiver.and_then(|it| Some((it.give_out(place)?, it))) else {
            return false;
        };
        if came {
            receiver.reports.on_early(&held.header, true, delivery.now);
        } else {
            delivery.budget.give(rights.domain, 1);
        }
        let segment = held.header.segment(held.frame.bytes());
        let outcome = segment.map(|segment| self.accept(&segment, rights, delivery, true));
        match outcome {
            Some(Outcome::Taken) => {}
            Some(Outcome::Finished(completion)) => {
                if let Some(receiver) = &mut self.responder.receiver {
                    receiver.gave_out();
                }
                self.counters.early_messages += 1;
                self.finish(completion, rights, delivery);
            }
            Some(Outcome::Refused(refusal, completion)) => {
                delivery.drop_packet(held.frame, DropReason::RequestRefused);
                self.refuse(refusal, completion, delivery.effects);
                return false;
            }
            Some(Outcome::NotReady) | None => {
                debug_assert!(false, "it was checked");
                delivery.drop_packet(held.frame, DropReason::ReceiverNotReady);
                return false;
            }
        }
        delivery.effects.delivered += 1;
        self.counters.rx_bytes += held.header.len() as u64;
        delivery.pool.give(held.frame);
        true
    }
}
