//! The last packets that are missing, when all that there is to send has left.
//!
//! What is sent later shows a slow way, and takes others; at the end nothing is. One packet on a slow
//! link, or in a queue that the others passed by, then keeps the whole message waiting. A copy of it
//! by another way costs nothing that is needed: it takes what is left of the window. (Multipath TCP
//! calls that opportunistic retransmission: Raiciu et al., NSDI 2012, section 4.2.)
//!
//! ```text
//!   all has left, and    a packet that left a quarter of a round trip after it has come: overtaken
//!                  and   of sixteen packets since the oldest missing one at most one is
//!                  and   it is late: longer under way than RFC 6298 waits (smoothed + 4 variations)
//! ```
//!
//! The first says that the peer and its threads are well. The others heed how much the ways differ:
//! where some always take longer, as over a wide area, nothing is sent twice (HT-62). Each packet has
//! one copy at most, and neither congestion control nor the patience with the peer takes it for a
//! loss.

use super::{PacketFate, Sender, Slot, Steering, Time, Told, feedback};
use crate::stats::QueuePairCounters;

/// A packet that left so many parts of a round trip later, and has come, has overtaken.
const PARTS: u64 = 4;

/// Of so many packets at most one is a straggler; if more are overtaken, ways differ.
const RARE: u32 = 16;

/// Copies whose originals may come yet, at most: what is remembered of them.
const COPIES: u8 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Stragglers {
    /// When the oldest one will be late.
    due: Time,
    /// Copies whose originals may come yet.
    copies: u8,
}

impl Default for Stragglers {
    fn default() -> Self {
        let due = Time::NEVER;
        Self { due, copies: 0 }
    }
}

impl Stragglers {
    /// When [`Sender::watch_stragglers`] is to be called again.
    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// Whether a packet that came twice is explained by a copy.
    pub(super) const fn explain(&mut self) -> bool {
        let explains = self.copies > 0;
        self.copies = self.copies.saturating_sub(1);
        explains
    }
}

impl Sender {
    /// Lets copies leave of packets that keep a message waiting (HT-43). `ends`: there is nothing
    /// new to send, and no answer is awaited.
    pub(in crate::connection) fn watch_stragglers(
        &mut self,
        ends: bool,
        now: Time,
        steering: &mut Steering,
        counters: &mut QueuePairCounters,
    ) {
        self.stragglers.due = Time::NEVER;
        let times = self.rtt.smoothed().zip(self.rtt.late_after());
        let Some((round_trip, late_after)) = times.filter(|_| ends && self.recovery.tolerates())
        else {
            return;
        };
        let newest = self.recovery.newest_acked_sent();
        let left = |slot: &Slot| slot.sent + round_trip.divided_by(PARTS);
        let outstanding = self.flight.outstanding();
        let in_flight = self.flight.in_flight_among(outstanding);
        let mut overtaken = in_flight;
        for index in in_flight.iter() {
            if left(self.flight.packet(index)) > newest {
                overtaken.clear(index);
            }
        }
        let count = u32::try_from(overtaken.iter().count()).unwrap_or(u32::MAX);
        if count > outstanding / RARE {
            return;
        }
        for index in overtaken.iter() {
            let slot = *self.flight.packet(index);
            if slot.copies > 1 || slot.told != Told::Nothing {
                continue;
            }
            if self.credit(steering) == 0 {
                return;
            }
            let late_at = slot.sent + late_after;
            if now < late_at {
                self.stragglers.due = late_at;
                return;
            }
            let slot = self.flight.mark_lost(index);
            steering.doubted(&feedback(&slot, None, PacketFate::Lost), now);
            self.stragglers.copies = (self.stragglers.copies + 1).min(COPIES);
            counters.stragglers += 1;
        }
    }
}
