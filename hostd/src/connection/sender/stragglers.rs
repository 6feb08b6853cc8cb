//! The last packets that are missing, when all that there is to send has left.
//!
//! What is sent later shows a slow way, and takes others; at the end nothing is. One packet on a
//! slow link, or in a queue that the others passed by, then keeps the whole message waiting. A copy
//! of it by another way costs nothing that is needed: it takes what is left of the window.
//! (Multipath TCP calls that opportunistic retransmission: Raiciu et al., NSDI 2012, section 4.2.)
//!
//! ```text
//!   all has left, and    a packet that left a quarter of a round trip after it has come: overtaken
//!                  and   of sixteen packets since the oldest missing one at most one is
//!                  and   it is late: the smoothed round trip and 4 variations are over (RFC 6298)
//!                  and   fewer than six have a copy already
//! ```
//!
//! The first says that the peer and its threads are well. The others heed how much the ways differ:
//! where some always take longer, as over a wide area, nothing is sent twice (HT-62). Each packet
//! has one copy at most, and neither congestion control nor the patience with the peer takes it for
//! a loss.

use crate::bit_set::BitSet;
use crate::frame::SPAN_WORDS;
use crate::send::flight::{Flight, Told};
use common::time::{Span, Time};

/// A packet that left so many parts of a round trip later, and has come, has overtaken.
const PARTS: u64 = 4;

/// Of so many packets at most one is a straggler; if more are overtaken, ways differ.
const RARE: u32 = 16;

/// Packets that have a copy at one end, at most. More are many.
const AT_AN_END: u8 = 6;

/// Copies whose originals may come yet, at most: what is remembered of them.
const COPIES: u8 = 64;

/// An original that has not come so many times as late as one is late will not come: it was lost.
const FORGOTTEN: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Stragglers {
    /// When the oldest one will be late.
    due: Time,
    /// Copies at this end.
    made: u8,
    /// Copies whose originals may come yet.
    copies: u8,
    /// Until then.
    until: Time,
}

impl Default for Stragglers {
    fn default() -> Self {
        Self {
            due: Time::NEVER,
            made: 0,
            copies: 0,
            until: Time::ZERO,
        }
    }
}

impl Stragglers {
    /// When [`Self::find`] is to be called again.
    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// Whether a packet that came twice is explained by a copy.
    pub(super) fn explain(&mut self, now: Time) -> bool {
        if self.until < now {
            self.copies = 0;
        }
        let explains = self.copies > 0;
        self.copies = self.copies.saturating_sub(1);
        explains
    }

    /// Whether another packet may have a copy at this end.
    pub(super) const fn may_copy(&self) -> bool {
        self.made < AT_AN_END
    }

    /// Takes note of a copy, where a packet is late after such a time.
    pub(super) fn copied(&mut self, late_after: Span, now: Time) {
        self.made += 1;
        self.expect(late_after, now);
    }

    /// A packet will come twice that was not sent again for having been late: the question of an
    /// answer that is lacking, say.
    pub(super) fn expect(&mut self, late_after: Span, now: Time) {
        if self.until < now {
            self.copies = 0;
        }
        self.copies = (self.copies + 1).min(COPIES);
        self.until = now + late_after.times(FORGOTTEN);
    }

    /// The packets of `flight` that are to be sent again. `newest`: when the newest packet left
    /// that has come.
    pub(super) fn find(
        &mut self,
        flight: &Flight,
        newest: Time,
        (round_trip, late_after): (Span, Span),
        now: Time,
    ) -> BitSet<SPAN_WORDS> {
        self.due = Time::NEVER;
        if !self.may_copy() {
            return BitSet::default();
        }
        let outstanding = flight.outstanding();
        let in_flight = flight.in_flight_among(outstanding);
        let (mut overtaken, mut late) = (0, BitSet::default());
        for index in in_flight.iter() {
            let slot = flight.packet(index);
            if slot.sent + round_trip.divided_by(PARTS) > newest {
                continue;
            }
            overtaken += 1;
            if slot.copies > 1 || slot.told != Told::Nothing {
                continue;
            }
            let late_at = slot.sent + late_after;
            if late_at <= now {
                late.set(index);
            } else {
                self.due = self.due.min(late_at);
            }
        }
        if overtaken <= outstanding / RARE {
            return late;
        }
        self.due = Time::NEVER;
        BitSet::default()
    }

    /// Nothing is awaited, or there is more to send.
    pub(super) fn stop(&mut self) {
        self.due = Time::NEVER;
    }

    /// Something new was sent: what is missing at its end has copies of its own.
    pub(super) const fn begin_another_end(&mut self) {
        self.made = 0;
    }
}
