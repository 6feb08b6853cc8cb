//! Decides when a packet counts as lost, and when the peer does (HT-41, HT-43).
//!
//! Over many paths an overtaken packet is not lost yet. It counts as lost when packets that left
//! well after it arrive: more of them than the agreed number, or later than it by more than the
//! agreed time. It also counts as lost when the peer reports that it waited long enough. A packet
//! that was sent again gets one round trip before these rules apply to its new copy.
//! [`Judge::is_lost`] decides this.
//!
//! No packet follows the last ones, so only silence shows their loss. Two clocks measure silence:
//! one for the next probe, one for the retransmission time-out. Every change is an [`Event`] of one
//! state machine. The events that the diagram leaves out change only what the rules remember, and
//! [`Event::Paused`] and [`Event::Held`] the clocks:
//!
//! ```text
//!              Sent                  ┌──┐ SentAgain, or Acknowledged with news: the clocks restart
//!   Idle ───────────────▶ Waiting ◀──┴──┤ Expired, probe due: the oldest again, as a probe
//!    ▲ ▲                  │   ▲         └ Expired, time-out: all again; the next one takes twice
//!    │ └──────────────────┘   │           as long
//!    │   all acknowledged     │
//!    │                        │ Acknowledged in order; Expired: the oldest again
//!    │                        │
//!    └─────────── ReceiverNotReady ◀──┐ Acknowledged, but not in order
//!  all acknowledged      ▲        └───┘
//!                        │
//!    ReceiverNotReady, from any state: its wait replaces the one before
//! ```
//!
//! The peer is gone ([`Action::GiveUp`]) when ReceiverNotReady comes too often in a row, or a
//! time-out when silence has lasted too long. The state does not change then.
//!
//! After two round trips the oldest packet is sent again as a probe, on another path, and once more
//! after that. What the answer to it does not name is lost. After the retransmission time-out (RFC
//! 6298) everything is sent again, with probes as before, and ever more slowly: the time-out
//! doubles up to the queue pair's ACK time-out. From the second one in a row on the ways are
//! searched: eight probes are spread over the next. A peer that was never heard has no round trip:
//! it is probed after thirds of the time-out from the first one on. Without progress for
//! `retry_count` + 1 of those the peer is gone.
//!
//! An acknowledgement triggered by a packet that had already arrived shows a spurious
//! retransmission; it doubles all waits, up to 16 times. Each second without one halves them again
//! (much as RFC 8985 6.2 does). So a host whose threads wait for a processor counts as late,
//! not as lossy.
//!
//! While the switch pauses the port the clocks stand still. Packets that the port may not send
//! are no sign of a loss, and a lost one could not be repaired either (HT-45).

use crate::verbs::Status;
use common::time::{Span, Time};

/// What the rules were negotiated and configured to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
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

/// The same after the second time-out in a row: the peer may be well, and most ways there or back
/// be silent. Where three of four are, nine tries find one in 92 of 100 time-outs, three in 58.
const SEARCH_PROBES: u8 = 8;

/// Shortest wait for a probe: below it waiting threads are taken for lost packets.
const TAIL_PROBE_MIN: Span = Span::from_millis(1);

/// Doublings of the waits at most.
const BACKOFF_SHIFT_MAX: u32 = 4;

/// Spurious retransmissions within this time have one cause.
const SPURIOUS_INTERVAL: Span = Span::from_millis(2);

/// Time without a spurious retransmission after which the waits are halved.
const BACKOFF_DECAY: Span = Span::from_secs(1);

/// The round-trip time of a queue pair, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed.
    pub(crate) smoothed: Option<Span>,
    /// After that an answer is late.
    pub(crate) late_after: Option<Span>,
}

/// The clocks of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clocks {
    /// When the retransmission time-out ends.
    rto_at: Time,
    /// When a probe is due.
    probe_at: Time,
}

impl Clocks {
    const STOPPED: Self = Self {
        rto_at: Time::NEVER,
        probe_at: Time::NEVER,
    };
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is awaited.
    Idle,
    /// Answers are awaited.
    Waiting(Clocks),
    /// The peer has no receive: nothing is sent before `until`.
    ReceiverNotReady { until: Time, clocks: Clocks },
}

impl State {
    fn awaiting(clocks: Clocks) -> Self {
        if clocks == Clocks::STOPPED {
            Self::Idle
        } else {
            Self::Waiting(clocks)
        }
    }

    fn clocks(self) -> Clocks {
        match self {
            Self::Idle => Clocks::STOPPED,
            Self::Waiting(clocks) | Self::ReceiverNotReady { clocks, .. } => clocks,
        }
    }
}

/// What happens to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A new packet left.
    Sent {
        /// Nothing else is outstanding.
        first: bool,
    },
    /// A packet left again.
    SentAgain,
    /// A packet was acknowledged for the first time.
    PacketAcked {
        /// When its newest copy left.
        sent: Time,
        /// Several copies left.
        retransmitted: bool,
        /// The newest copy arrived, not an older one, as far as can be told.
        newest_copy: bool,
    },
    /// A packet arrived for the second time: its retransmission was spurious.
    SpuriousRetransmit,
    /// An acknowledgement came.
    Acknowledged {
        /// It acknowledged something for the first time.
        news: bool,
        /// The oldest packet was among what it named.
        in_order: bool,
        /// Packets are left that are not acknowledged.
        outstanding: bool,
    },
    /// All that an acknowledgement says is known: losses may show.
    FindLosses {
        /// The peer takes the oldest gap for a loss.
        reported: bool,
    },
    /// The peer has no receive for the packet that it expects, and wants to be left alone.
    ReceiverNotReady {
        /// For so long.
        wait: Span,
    },
    /// The port has paused data packets.
    Paused {
        /// For so long in all, up to now.
        total: Span,
    },
    /// Congestion control holds packets back: none leaves before.
    Held {
        /// Then.
        until: Time,
    },
    /// [`Recovery::deadline`] may have passed.
    Expired {
        /// Packets wait to be acknowledged.
        outstanding: bool,
    },
}

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// Packets in flight are lost if these rules say so.
    Judge(Judge),
    /// The oldest packet in flight is to be sent again.
    SendOldestAgain,
    /// The same, if none is marked already, to learn what became of the others.
    Probe,
    /// Everything in flight is to be sent again.
    SendAllAgain,
    /// The same, after a time-out: the network was silent.
    BackOff,
    /// The peer is gone; how its oldest request ends.
    GiveUp(Status),
}

/// A packet that is not acknowledged, as far as its loss is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    /// When its newest copy left.
    pub(crate) sent: Time,
    /// How many copies left.
    pub(crate) copies: u8,
    /// The distance to the newest acknowledged packet.
    pub(crate) overtaken_by: u32,
    /// It is older than all acknowledged packets after the expected one: it is in the oldest gap.
    pub(crate) in_oldest_gap: bool,
}

/// The rules of loss as they stand while one acknowledgement is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judge {
    packets: u32,
    time: Span,
    round_trip: Span,
    newest_acked_sent: Time,
    backed_off: bool,
    reported: bool,
    now: Time,
    /// Packets that are newer than all acknowledged ones may be lost, too.
    pub(crate) also_newer: bool,
}

impl Judge {
    /// Whether a packet is lost.
    pub(crate) fn is_lost(&self, suspect: &Suspect) -> bool {
        let had_a_round_trip = self.now.since(suspect.sent) > self.round_trip;
        // A report left the peer after what is named in it should have come.
        let reported = self.reported
            && suspect.in_oldest_gap
            && (had_a_round_trip || (suspect.copies == 1 && !self.backed_off));
        let overtaken = suspect.overtaken_by > self.packets
            || suspect.sent + self.time <= self.newest_acked_sent;
        let fair =
            suspect.copies == 1 || (had_a_round_trip && self.newest_acked_sent > suspect.sent);
        reported || (overtaken && fair)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    rules: Rules,
    state: State,
    /// Probes since something new was acknowledged.
    probes: u8,
    /// Time-outs since something new was acknowledged: how often the next one is doubled.
    timeouts: u32,
    /// Since when nothing new was acknowledged.
    silent_since: Time,
    /// How often all waits are doubled.
    backoff_shift: u32,
    /// Since when that stands.
    backoff_since: Time,
    /// Times in a row that the peer had no receive.
    rnr_tries: u32,
    /// When the newest acknowledged packet left.
    newest_acked_sent: Time,
    /// A packet that had been sent again was acknowledged since the last [`Event::FindLosses`].
    retransmission_acked: bool,
    /// How long the port has paused data packets in all, as far as the clocks know.
    paused_total: Span,
}

impl Recovery {
    /// Nothing was sent yet.
    pub(crate) const fn new(rules: Rules) -> Self {
        Self {
            rules,
            state: State::Idle,
            probes: 0,
            timeouts: 0,
            silent_since: Time::ZERO,
            backoff_shift: 0,
            backoff_since: Time::ZERO,
            rnr_tries: 0,
            newest_acked_sent: Time::ZERO,
            retransmission_acked: false,
            paused_total: Span::ZERO,
        }
    }

    /// Packets and time by which a packet may be overtaken from now on.
    pub(crate) const fn set_tolerance(&mut self, packets: u32, time: Span) {
        self.rules.tolerance = Some((packets, time));
    }

    /// From now on the peer is waited for this long, and so often; clocks that run go on.
    pub(crate) const fn set_patience(
        &mut self,
        ack_timeout: Option<Span>,
        retry_count: u8,
        rnr_retry: Option<u8>,
    ) {
        self.rules.ack_timeout = ack_timeout;
        self.rules.retry_count = retry_count;
        self.rules.rnr_retry = rnr_retry;
    }

    /// Whether packets may be overtaken.
    pub(crate) const fn tolerates(&self) -> bool {
        self.rules.tolerance.is_some()
    }

    /// When the newest acknowledged packet left.
    pub(crate) const fn newest_acked_sent(&self) -> Time {
        self.newest_acked_sent
    }

    /// Whether the peer takes packets, as far as is known.
    pub(crate) const fn may_send(&self) -> bool {
        !matches!(self.state, State::ReceiverNotReady { .. })
    }

    /// When [`Event::Expired`] is due.
    pub(crate) fn deadline(&self) -> Time {
        match self.state {
            State::Idle => Time::NEVER,
            State::Waiting(clocks) => clocks.rto_at.min(clocks.probe_at),
            State::ReceiverNotReady { until, .. } => until,
        }
    }

    /// Lets `event` happen.
    pub(crate) fn on(&mut self, event: Event, round_trip: RoundTrip, now: Time) -> Action {
        let action = self.step(event, round_trip, now);
        self.check_invariants();
        action
    }

    /// In debug builds: no waiting state without a running clock, and no counter beyond its bound.
    fn check_invariants(&self) {
        debug_assert!(
            !matches!(self.state, State::Waiting(Clocks::STOPPED)),
            "nothing would end the wait"
        );
        debug_assert!(self.probes <= self.tail_probes(), "{} probes", self.probes);
        debug_assert!(self.backoff_shift <= BACKOFF_SHIFT_MAX, "waits too long");
    }

    fn step(&mut self, event: Event, round_trip: RoundTrip, now: Time) -> Action {
        match (self.state, event) {
            (State::Idle | State::Waiting(_), Event::Sent { first }) => {
                self.sent(first, round_trip, now);
                Action::Nothing
            }
            (State::Idle | State::Waiting(_), Event::SentAgain) => {
                self.sent_again(round_trip, now);
                Action::Nothing
            }
            (State::ReceiverNotReady { .. }, Event::Sent { .. } | Event::SentAgain) => {
                debug_assert!(false, "a packet left though the peer has no receive");
                Action::Nothing
            }
            (
                _,
                Event::PacketAcked {
                    sent,
                    retransmitted,
                    newest_copy,
                },
            ) => {
                if newest_copy {
                    self.retransmission_acked |= retransmitted;
                    self.newest_acked_sent = self.newest_acked_sent.max(sent);
                }
                Action::Nothing
            }
            (_, Event::SpuriousRetransmit) => {
                self.spurious_retransmit(now);
                Action::Nothing
            }
            (
                _,
                Event::Acknowledged {
                    news,
                    in_order,
                    outstanding,
                },
            ) => {
                // An acknowledgement without news does not restart the clocks.
                let clocks = news.then(|| {
                    self.progress(now);
                    self.clocks(outstanding, round_trip, now)
                });
                self.acknowledged(clocks, in_order);
                Action::Nothing
            }
            (_, Event::FindLosses { reported }) => self.find_losses(reported, round_trip, now),
            (_, Event::Paused { total }) => self.paused(total),
            (_, Event::Held { until }) => self.held(until, round_trip),
            (_, Event::ReceiverNotReady { wait }) => self.receiver_not_ready(now + wait, now),
            (State::ReceiverNotReady { until, .. }, Event::Expired { .. }) if until <= now => {
                self.state = State::Waiting(self.armed(round_trip, now));
                Action::SendOldestAgain
            }
            (State::Waiting(clocks), Event::Expired { outstanding }) if clocks.rto_at <= now => {
                self.time_out(outstanding, round_trip, now)
            }
            (State::Waiting(clocks), Event::Expired { .. }) if clocks.probe_at <= now => {
                self.probes += 1;
                self.state = State::Waiting(Clocks {
                    probe_at: Time::NEVER,
                    ..clocks
                });
                Action::Probe
            }
            (_, Event::Expired { .. }) => Action::Nothing,
        }
    }

    /// A new packet left. Clocks that run go on (RFC 6298 5.1): else one packet now and then would
    /// hide a silence.
    fn sent(&mut self, first: bool, round_trip: RoundTrip, now: Time) {
        if first {
            self.progress(now);
        }
        let running = self.state.clocks();
        let anew = self.armed(round_trip, now);
        self.state = State::Waiting(Clocks {
            rto_at: running.rto_at.min(anew.rto_at),
            probe_at: running.probe_at.min(anew.probe_at),
        });
    }

    /// A packet left again: the clocks restart.
    fn sent_again(&mut self, round_trip: RoundTrip, now: Time) {
        let mut clocks = self.armed(round_trip, now);
        // Probes that are spread over the time-out are part of it.
        let are_spread = round_trip.smoothed.is_none() || self.timeouts > 1;
        if are_spread && self.probes > 0 {
            clocks.rto_at = clocks.rto_at.min(self.state.clocks().rto_at);
        }
        self.state = State::Waiting(clocks);
    }

    /// An acknowledgement came; `anew`: the restarted clocks, if it restarts them.
    fn acknowledged(&mut self, anew: Option<Clocks>, in_order: bool) {
        let clocks = anew.unwrap_or_else(|| self.state.clocks());
        if in_order {
            self.rnr_tries = 0;
        }
        self.state = match self.state {
            State::ReceiverNotReady { until, .. } if !in_order => {
                State::ReceiverNotReady { until, clocks }
            }
            _ => State::awaiting(clocks),
        };
    }

    /// The peer has no receive, and wants to be left alone until then.
    fn receiver_not_ready(&mut self, until: Time, now: Time) -> Action {
        self.rnr_tries += 1;
        let most = self.rules.rnr_retry.map(u32::from);
        if most.is_some_and(|most| self.rnr_tries > most) {
            return Action::GiveUp(Status::RnrRetryExceeded);
        }
        // The peer is alive.
        self.progress(now);
        self.state = State::ReceiverNotReady {
            until,
            clocks: self.state.clocks(),
        };
        // It keeps what came later only if it reorders.
        match self.rules.tolerance {
            Some(_) => Action::Nothing,
            None => Action::SendAllAgain,
        }
    }

    fn time_out(&mut self, outstanding: bool, round_trip: RoundTrip, now: Time) -> Action {
        let retries = self.rules.retry_count;
        let endurance = self
            .rules
            .ack_timeout
            .map(|timeout| timeout.times(u64::from(retries) + 1));
        let silence = now.since(self.silent_since);
        let tried = self.timeouts >= u32::from(retries);
        if tried && endurance.is_some_and(|endurance| silence >= endurance) {
            return Action::GiveUp(Status::RetryExceeded);
        }
        self.timeouts += 1;
        // Silence may be that of the ways which were tried.
        self.probes = 0;
        self.state = State::awaiting(self.clocks(outstanding, round_trip, now));
        Action::BackOff
    }

    /// Something new was acknowledged.
    fn progress(&mut self, now: Time) {
        self.silent_since = now;
        self.timeouts = 0;
        self.probes = 0;
    }

    /// The restarted clocks; stopped ones if nothing is outstanding.
    fn clocks(&self, outstanding: bool, round_trip: RoundTrip, now: Time) -> Clocks {
        if outstanding {
            self.armed(round_trip, now)
        } else {
            Clocks::STOPPED
        }
    }

    /// Restarted clocks.
    fn armed(&self, round_trip: RoundTrip, now: Time) -> Clocks {
        let rto = self.rto(round_trip);
        let mut clocks = Clocks {
            rto_at: now + rto,
            probe_at: Time::NEVER,
        };
        let most = self.tail_probes();
        if self.rules.tolerance.is_none() || self.probes >= most {
            return clocks;
        }
        let shortest = TAIL_PROBE_MIN.times(1 << self.backoff_shift);
        let wait = match round_trip.smoothed {
            None if self.timeouts == 0 => return clocks,
            Some(smoothed) if self.timeouts < 2 => {
                smoothed.times(2).max(shortest) + self.rules.ack_delay
            }
            // The ways alone may be silent. A peer that was never heard was tried on no others.
            _ => rto.divided_by(u64::from(most) + 1),
        };
        if wait < rto {
            clocks.probe_at = now + wait;
        }
        clocks
    }

    /// Probes before the time-out that stands.
    fn tail_probes(&self) -> u8 {
        if self.timeouts < 2 {
            TAIL_PROBES
        } else {
            SEARCH_PROBES
        }
    }

    /// The retransmission time-out that stands.
    pub(crate) fn rto(&self, round_trip: RoundTrip) -> Span {
        let rules = &self.rules;
        let measured = round_trip.late_after.map(|late| late + rules.ack_delay);
        let longest = rules.ack_timeout.unwrap_or(RTO_MAX).max(rules.rto_min);
        let shortest = rules.rto_min.times(1 << self.backoff_shift);
        let base = measured.unwrap_or(rules.rto_initial).max(shortest);
        base.times(1 << self.timeouts.min(20)).min(longest)
    }

    /// The port has paused data packets for `total` so far. The clocks stood still during the part
    /// of it that is new here. A clock that is stopped stays so: additions saturate.
    fn paused(&mut self, total: Span) -> Action {
        let span = total - self.paused_total;
        self.paused_total = total;
        self.silent_since += span;
        if let State::Waiting(clocks) | State::ReceiverNotReady { clocks, .. } = &mut self.state {
            clocks.rto_at += span;
            clocks.probe_at += span;
        }
        Action::Nothing
    }

    /// Nothing leaves before `until`, so nothing can be missed before a time-out after that.
    fn held(&mut self, until: Time, round_trip: RoundTrip) -> Action {
        let rto_at = until + self.rto(round_trip);
        if let State::Waiting(clocks) | State::ReceiverNotReady { clocks, .. } = &mut self.state
            && *clocks != Clocks::STOPPED
        {
            clocks.rto_at = clocks.rto_at.max(rto_at);
            if clocks.probe_at < until {
                clocks.probe_at = until;
            }
        }
        Action::Nothing
    }

    /// A retransmission was spurious.
    fn spurious_retransmit(&mut self, now: Time) {
        let another_cause = now > self.backoff_since + SPURIOUS_INTERVAL;
        if another_cause {
            self.backoff_shift = (self.backoff_shift + 1).min(BACKOFF_SHIFT_MAX);
        }
        // Also inside the interval: continuing spurious retransmissions prevent the decay.
        if another_cause || self.backoff_shift == BACKOFF_SHIFT_MAX {
            self.backoff_since = now;
        }
    }

    /// The rules of loss as they stand. A plain peer says itself what it misses.
    fn find_losses(&mut self, reported: bool, round_trip: RoundTrip, now: Time) -> Action {
        let Some((packets, time)) = self.rules.tolerance else {
            return Action::Nothing;
        };
        if self.backoff_shift > 0 && now > self.backoff_since + BACKOFF_DECAY {
            self.backoff_shift -= 1;
            self.backoff_since = now;
        }
        let factor = 1 << self.backoff_shift;
        Action::Judge(Judge {
            packets: packets * factor,
            time: time.times(u64::from(factor)),
            round_trip: round_trip.late_after.unwrap_or(self.rules.rto_initial),
            newest_acked_sent: self.newest_acked_sent,
            backed_off: self.backoff_shift > 0,
            reported,
            now,
            // Only the new copy of a packet can arrive before newer packets that left earlier.
            also_newer: std::mem::take(&mut self.retransmission_acked),
        })
    }
}

#[cfg(test)]
impl Recovery {
    /// How often all waits are doubled.
    pub(crate) const fn backoff_shift(&self) -> u32 {
        self.backoff_shift
    }
}
