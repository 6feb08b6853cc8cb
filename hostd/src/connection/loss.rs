//! When a packet is taken for lost, and when the peer (HT-41, HT-43).
//!
//! Over many paths a packet that is overtaken is not lost yet. It is when packets that were sent well
//! after it came: more of them than the agreed number, or sent later by more than the agreed time; or
//! when the peer says that it has waited long enough. A packet that was sent again gets a round
//! trip before the same is asked of its new copy.
//!
//! Nothing comes after the last packets, so silence is the only sign of their loss. After two round
//! trips the oldest is sent again as a probe, on another path; what its answer does not name came.
//! All these waits are doubled, up to sixteen times, when an acknowledgement was caused by a packet that
//! had come before: it was sent again in vain. They are halved for each second in which that did not
//! happen (much as RFC 8985 6.2 does). Hosts whose threads are kept waiting are late, not lossy.
//!
//! While the switch pauses the own port these clocks stand still, as they do before a packet is sent: what
//! the port may not send is no sign of a loss, and could not be repaired either (HT-45).
//!
//! After the retransmission time-out (RFC 6298) everything is sent again, ever more slowly: the
//! time-out doubles up to the queue pair's ACK time-out. Without any progress for `retry_count` + 1 of
//! those the peer is gone.

use super::sender::{Acknowledgement, Sender};
use crate::bit_set::BitSet;
use crate::path::PathSet;
use crate::stats::QueuePairCounters;
use common::time::{Span, Time};

/// What the rules were negotiated and configured to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossRules {
    /// Packets and time by which a packet may be overtaken; `None` with a plain peer.
    pub(crate) tolerance: Option<(u32, Span)>,
    /// Shortest retransmission time-out.
    pub(crate) rto_min: Span,
    /// Retransmission time-out before the round-trip time is known.
    pub(crate) rto_initial: Span,
    /// How long the peer may keep an acknowledgement back.
    pub(crate) ack_delay: Span,
    /// The queue pair's ACK time-out; `None` never gives up.
    pub(crate) ack_timeout: Option<Span>,
    /// Whole time-outs without progress before the peer is gone, less one.
    pub(crate) retry_count: u8,
    /// Tries when the peer has no receive; `None` never gives up.
    pub(crate) rnr_retry: Option<u8>,
}

/// Longest retransmission time-out when the queue pair never gives up.
const RTO_MAX: Span = Span::from_secs(2);

/// Probes before the retransmission time-out (RFC 8985 7.2 has one; over many paths the second
/// often finds another).
const TAIL_PROBES: u8 = 2;

/// Shortest wait for a probe: below it waiting threads are taken for lost packets.
const TAIL_PROBE_MIN: Span = Span::from_millis(1);

/// Doublings of the waits at most.
const PATIENCE_MAX: u32 = 4;

/// What was sent again in vain within this time had one cause.
const VAIN_INTERVAL: Span = Span::from_millis(2);

/// Time without a packet sent in vain after which the waits are halved.
const FORGET: Span = Span::from_secs(1);

/// The clocks of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    /// When the retransmission time-out ends; [`Time::NEVER`] when nothing is in flight.
    rto_at: Time,
    /// When a probe is due.
    probe_at: Time,
    probes: u8,
    doublings: u32,
    /// Since when nothing new came.
    silent_since: Time,
    /// How often the waits are doubled.
    pub(super) patience: u32,
    /// Since when that stands.
    patience_since: Time,
}

impl Timer {
    pub(super) const fn new() -> Self {
        Self {
            rto_at: Time::NEVER,
            probe_at: Time::NEVER,
            probes: 0,
            doublings: 0,
            silent_since: Time::ZERO,
            patience: 0,
            patience_since: Time::ZERO,
        }
    }

    /// The first packet after a pause leaves.
    pub(super) fn begin(&mut self, now: Time) {
        self.progress(now);
    }

    /// A packet came for the second time.
    pub(super) fn sent_in_vain(&mut self, now: Time) {
        if now > self.patience_since + VAIN_INTERVAL {
            self.patience = (self.patience + 1).min(PATIENCE_MAX);
        }
        // Also within the interval: as long as it happens nothing is forgotten.
        if self.patience == PATIENCE_MAX || now > self.patience_since + VAIN_INTERVAL {
            self.patience_since = now;
        }
    }

    /// The waits are looked at.
    fn forget(&mut self, now: Time) {
        if self.patience > 0 && now > self.patience_since + FORGET {
            self.patience -= 1;
            self.patience_since = now;
        }
    }

    /// The clocks stood still for `span`. What never comes is not put off: additions saturate.
    fn put_off(&mut self, span: Span) {
        self.rto_at += span;
        self.probe_at += span;
        self.silent_since += span;
    }

    /// Something new came.
    pub(super) fn progress(&mut self, now: Time) {
        self.silent_since = now;
        self.doublings = 0;
        self.probes = 0;
    }
}

/// What a sender's timers had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Nothing, or packets were marked to be sent again.
    Continue,
    /// The peer does not answer any more.
    PeerGone,
}

impl Sender {
    /// The retransmission time-out that stands.
    pub(crate) fn rto(&self) -> Span {
        let rules = &self.rules;
        let measured = self.rtt.late_after().map(|late| late + rules.ack_delay);
        let longest = rules.ack_timeout.unwrap_or(RTO_MAX).max(rules.rto_min);
        let shortest = rules.rto_min.times(1 << self.timer.patience);
        let base = measured.unwrap_or(rules.rto_initial).max(shortest);
        base.times(1 << self.timer.doublings.min(20)).min(longest)
    }

    /// When the sender wants to be woken.
    pub(crate) fn deadline(&self) -> Time {
        match self.not_before {
            Some(until) => until,
            None => self.timer.rto_at.min(self.timer.probe_at),
        }
    }

    /// The own port has kept data packets back for `total` so far: for what is new of it the clocks
    /// stood still.
    pub(crate) fn was_kept_back(&mut self, total: Span) {
        if total != self.kept_back {
            self.timer.put_off(total - self.kept_back);
            self.kept_back = total;
        }
    }

    /// Sets the clocks after a packet left or an acknowledgement came.
    pub(super) fn arm(&mut self, now: Time) {
        if self.outstanding() == 0 {
            self.timer.rto_at = Time::NEVER;
            self.timer.probe_at = Time::NEVER;
            return;
        }
        let rto = self.rto();
        self.timer.rto_at = now + rto;
        self.timer.probe_at = Time::NEVER;
        if self.rules.tolerance.is_none() || self.timer.probes >= TAIL_PROBES {
            return;
        }
        if let Some(smoothed) = self.rtt.smoothed() {
            let shortest = TAIL_PROBE_MIN.times(1 << self.timer.patience);
            let wait = smoothed.times(2).max(shortest) + self.rules.ack_delay;
            if wait < rto {
                self.timer.probe_at = now + wait;
            }
        }
    }

    /// Does what the clocks say.
    pub(crate) fn expire(
        &mut self,
        now: Time,
        paths: &mut PathSet,
        counters: &mut QueuePairCounters,
    ) -> Expiry {
        if let Some(until) = self.not_before {
            if until <= now {
                self.not_before = None;
                self.lose_head(now, paths);
                self.arm(now);
            }
            return Expiry::Continue;
        }
        if self.timer.rto_at <= now {
            return self.time_out(now, paths, counters);
        }
        if self.timer.probe_at <= now {
            self.timer.probes += 1;
            self.timer.probe_at = Time::NEVER;
            // With something marked for retransmission already, that is the probe.
            if self.lost == BitSet::default() {
                counters.tail_probes += 1;
                self.lose_head(now, paths);
                self.probing = true;
            }
        }
        Expiry::Continue
    }

    fn time_out(
        &mut self,
        now: Time,
        paths: &mut PathSet,
        counters: &mut QueuePairCounters,
    ) -> Expiry {
        let endurance = self
            .rules
            .ack_timeout
            .map(|timeout| timeout.times(u64::from(self.rules.retry_count) + 1));
        let silence = now.since(self.timer.silent_since);
        let tried = self.timer.doublings >= u32::from(self.rules.retry_count);
        if tried && endurance.is_some_and(|endurance| silence >= endurance) {
            return Expiry::PeerGone;
        }
        counters.timeouts += 1;
        self.back_off(now, paths);
        self.timer.doublings += 1;
        self.arm(now);
        Expiry::Continue
    }

    /// The oldest packet that did not come is to be sent again.
    fn lose_head(&mut self, now: Time, paths: &mut PathSet) {
        let known = self.sacked.either(&self.lost);
        let waiting = BitSet::first(self.outstanding()).without(&known);
        if let Some(index) = waiting.lowest() {
            self.lose(index, now, paths);
        }
    }

    /// Marks what `ack` and all before it show to be lost.
    pub(super) fn find_losses(
        &mut self,
        ack: &Acknowledgement,
        now: Time,
        paths: &mut PathSet,
        counters: &mut QueuePairCounters,
    ) {
        let Some((packets, time)) = self.rules.tolerance else {
            return;
        };
        let highest = self.sacked.highest().unwrap_or(0);
        // Only the new copy of a packet can come before packets with higher numbers that left earlier.
        let candidates = if std::mem::take(&mut self.repeated_came) {
            self.outstanding()
        } else {
            highest
        };
        self.timer.forget(now);
        let first_that_came = self.sacked.lowest().unwrap_or(0);
        let round_trip = self.rtt.late_after().unwrap_or(self.rules.rto_initial);
        let patience = 1 << self.timer.patience;
        let (packets, time) = (packets * patience, time.times(u64::from(patience)));
        let known = self.sacked.either(&self.lost);
        for index in BitSet::first(candidates).without(&known).iter() {
            let slot = *self.slot(self.una.plus(index));
            let had_a_round_trip = now.since(slot.sent) > round_trip;
            // A report left the peer after what is named in it should have come.
            let reported = ack.loss
                && index < first_that_came
                && (had_a_round_trip || (slot.copies == 1 && patience == 1));
            let overtaken =
                highest.saturating_sub(index) > packets || slot.sent + time <= self.newest_came;
            let fair = slot.copies == 1 || (had_a_round_trip && self.newest_came > slot.sent);
            if reported || (overtaken && fair) {
                self.lose(index, now, paths);
                counters.fast_retransmits += 1;
            }
        }
    }

    /// The peer has no receive for the packet that it expects; it wants to be left alone for `wait`.
    /// It keeps what came later only if it reorders.
    pub(crate) fn not_ready(&mut self, wait: Span, now: Time, paths: &mut PathSet) -> Expiry {
        self.rnr_tries += 1;
        if self
            .rules
            .rnr_retry
            .is_some_and(|most| self.rnr_tries > u32::from(most))
        {
            return Expiry::PeerGone;
        }
        if self.rules.tolerance.is_none() {
            self.lose_from(0, now, paths);
        }
        self.not_before = Some(now + wait);
        // The peer is alive.
        self.timer.progress(now);
        Expiry::Continue
    }
}
