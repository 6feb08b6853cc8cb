//! NSCC, the network-signalled congestion control of Ultra Ethernet (UET 3.6.13): a window that
//! follows the queueing delay, marks and trims.
//!
//! ```text
//!                    delay below the target          delay at the target or above
//!   not marked       grows by what is missing        grows slowly, alike for all
//!   marked           stays                           shrinks, once a round trip
//! ```
//!
//! Below one packet the window is a pace: a packet each `window`-th part of a round trip. It is
//! quickened alike for all senders while packets come unmarked, much if the network is idle; a mark
//! slows it, and a trim halves it. So large incasts settle with few trims.
//!
//! A large crowd in front of one host is told of by that host. Each of the crowd then takes its
//! share of the line at once, and changes its pace by little.
//!
//! The same host tells how many share its link if they are few. Then those that were slowed down
//! take their share when others have gone, instead of growing to it, and the first trim leaves them
//! little more than that.
//!
//! A connection begins with somewhat more than a delay-bandwidth product, and opens to its largest
//! window as long as no packet comes marked, late or trimmed.
//!
//! When little gets through and packets are trimmed or very late, quick adapt sets the window to
//! what did get through in the last interval. Reactions to what was sent before that are ignored.
//!
//! Windows are in bytes of payload, times in nanoseconds. Constants are those of uet-htsim, which
//! scale with the path: by its delay-bandwidth product, compared with 100 Gb/s × 12 µs.

use super::idle::IdleRoundTrip;
use super::pipe::{nanos, span};
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// Delay-bandwidth product that the constants are for, in bytes, and its round trip in ns.
const REFERENCE: (f64, f64) = (150_000.0, 12_000.0);

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
struct Aims {
    /// The target of the queueing delay, in round trips.
    target: f64,
    /// The window is this many delay-bandwidth products at most.
    window: f64,
    /// It begins with this many: the first answer comes later than in an idle network where others
    /// begin, too, and the line is not to stand still until then. What is more would only be
    /// trimmed.
    first: f64,
}

/// Without trimming the window is that of uet-htsim.
const NO_TRIMMING: Aims = Aims {
    target: 1.0,
    window: 1.5,
    first: 1.1,
};

/// With it a packet too many costs little, and where queues stand on all ways of a full network a
/// window too small leaves the line empty.
const TRIMMING: Aims = Aims {
    target: 0.75,
    window: 1.75,
    first: 1.35,
};

/// Quick adapt acts if less than this part of the largest window got through …
const GATE: f64 = 1.0 / 8.0;

/// … and the delay is this many times the target, unless packets were trimmed.
const LATE: f64 = 4.0;

/// Proportional, fair and fast increase, and what every round trip adds, in packets.
const ALPHA: f64 = 4.0;
const FAIR: f64 = 5.0;
const FAST: f64 = 0.25;
const ETA: f64 = 0.15;

/// How strongly the window shrinks, at most by half.
const GAMMA: f64 = 0.8;

/// Below one packet: the least part of a packet; how much an unmarked packet quickens the pace when
/// the network is idle, as factor, and otherwise, in packets for a round trip; and how much a
/// marked one at the target slows it.
const LEAST: f64 = 1.0 / 128.0;
const QUICKEN: f64 = 1.5;
const ADD: f64 = 1.0 / 512.0;
const SLOW: f64 = 0.25;

/// Weight of a new sample in the mean of the queueing delay.
const EWMA: f64 = 0.0125;

/// Packets after which increases take effect.
const ADJUST: f64 = 8.0;

/// Queueing delay in ns below which the network counts as idle.
const IDLE: f64 = 1_000.0;

/// If the peer tells how many share its link: the part of the target that they aim at, once a
/// packet was trimmed; and how many shares of a full pipe a trim leaves, and one takes that has
/// less when others have gone. So the line stays full, and queues have room.
const SHARED: f64 = 0.5;
const ROOM: f64 = 1.5;

/// So many at one link are a crowd.
const CROWD: f64 = 16.0;

/// With a crowd: the least part of the share; what a mark at the target takes, and a trim; what an
/// unmarked packet adds at most, and in an idle network. All together change the sum as much as
/// each changes its own, so these are small.
const CROWD_LEAST: f64 = 1.0;
const CROWD_MARK: f64 = 0.05;
const CROWD_TRIM: f64 = 0.05;
const CROWD_ADD: f64 = 0.02;
const CROWD_IDLE: f64 = 0.05;

/// Above this many shares a trim leaves one.
const CROWD_MOST: f64 = 1.5;

/// Acknowledgements that the window has packets for however short the path is. The peer sends one
/// for several packets: with fewer in flight each would wait until the peer ends its delay.
const CLOCK: u32 = 2;

/// Bytes that a packet takes on the line beside its payload: headers over IPv4, and 24 of framing.
const OVERHEAD: f64 = 98.0;

/// Without a known speed and without a measured round trip the window is the largest there is.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Round trip without queueing.
    base: f64,
    /// Of the queueing delay.
    target: f64,
    /// Largest window.
    most: f64,
    /// Bytes that get through in an interval of quick adapt, unless the network is to blame.
    little: f64,
    /// With which a connection begins.
    first: f64,
    /// What the line has for each of those that share it, in bytes of window; zero if the peer has
    /// not told how many there are.
    fair: f64,
    /// The same of a crowd; zero without one.
    share: f64,
    /// Delay-bandwidth product, as multiple of the reference.
    scale: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Nscc {
    /// Payload bytes of a packet.
    mtu: f64,
    /// Most bytes in flight by configuration.
    limit: f64,
    /// The window may have so many bytes however short the path is.
    clocked: f64,
    aims: Aims,
    /// Bytes in a nanosecond; zero: not known.
    speed: f64,
    /// The round trip without queueing.
    empty: IdleRoundTrip,
    window: f64,
    /// Mean of the queueing delay.
    average: f64,
    /// What the window grows by, times the window.
    growth: f64,
    /// Bytes since it was adjusted.
    received: f64,
    adjusted: Time,
    added: Time,
    shrunk: Time,
    /// Bytes without queueing in a row, and whether the window grows fast.
    idle: f64,
    fast: bool,
    /// Bytes that got through in this interval of quick adapt, and its end.
    achieved: f64,
    interval_end: Option<Time>,
    /// Packets were trimmed in this interval.
    suffered: bool,
    /// Bytes whose outcome is still from before the last quick adapt.
    ignored: f64,
    /// Queue pairs that share the way to the peer; zero: it has not said.
    crowd: f64,
    /// It has not met congestion yet.
    opening: bool,
    /// A packet was trimmed.
    trims: bool,
}

impl Nscc {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured. `trims`: switches may trim packets, and the peer tells. `coalesced`:
    /// packets to an acknowledgement.
    pub(crate) fn new(window: u32, mtu: u16, base: Span, trims: bool, coalesced: u32) -> Self {
        let mtu = f64::from(mtu.max(1));
        let limit = f64::from(window.max(1)) * mtu;
        Self {
            mtu,
            limit,
            clocked: f64::from(coalesced.saturating_mul(CLOCK)) * mtu,
            aims: if trims { TRIMMING } else { NO_TRIMMING },
            speed: 0.0,
            empty: IdleRoundTrip::new(base),
            window: limit,
            average: 0.0,
            growth: 0.0,
            received: 0.0,
            adjusted: Time::ZERO,
            added: Time::ZERO,
            shrunk: Time::ZERO,
            idle: 0.0,
            fast: false,
            achieved: 0.0,
            interval_end: None,
            suffered: false,
            ignored: 0.0,
            crowd: 0.0,
            opening: true,
            trims: false,
        }
    }

    /// The peer tells that `crowd` queue pairs share its link.
    pub(crate) fn crowd(&mut self, crowd: u32) {
        let before = std::mem::replace(&mut self.crowd, f64::from(crowd));
        let Some(path) = self.path() else { return };
        let fewer = self.crowd > 0.0 && self.crowd < before;
        if fewer && !self.is_crowded(&path) && self.window < path.fair {
            // Some have gone, and what they had is there for the others.
            self.window = (ROOM * path.fair).min(path.most);
        }
        if self.window < self.mtu {
            if before > 0.0 && self.crowd > 0.0 {
                self.window *= before / self.crowd;
            }
            // Also if that is a packet or more now: whoever tells of many and then of few opens the
            // window no further than it may be.
            self.bound(&path);
        }
    }

    /// Packets that may be in flight.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window is positive and far below the bounds of u32"
    )]
    pub(crate) fn window(&self) -> u32 {
        ((self.window / self.mtu) as u32).max(1)
    }

    /// The time from one packet to the next, if the window is less than a packet.
    pub(crate) fn interval(&self) -> Option<Span> {
        let part = self.window / self.mtu;
        let base = nanos(self.empty.known()?);
        (part < 1.0).then(|| span(base / part))
    }

    /// The speed that packets leave at is known; zero: not.
    #[expect(clippy::cast_precision_loss, reason = "a speed")]
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        let before = std::mem::replace(&mut self.speed, speed.bps() as f64 / 8e9);
        if before == 0.0
            && let Some(path) = self.path()
        {
            self.window = path.first;
        }
    }

    fn path(&self) -> Option<Path> {
        let base = nanos(self.empty.known()?);
        if self.speed == 0.0 {
            return None;
        }
        let product = base * self.speed;
        let fair = match self.crowd > 0.0 {
            true => product / (1.0 + OVERHEAD / self.mtu) / self.crowd,
            false => 0.0,
        };
        let whole = (product * self.aims.window).min(self.limit);
        let most = whole.max(self.clocked.min(self.limit)).max(self.mtu);
        Some(Path {
            base,
            target: base
                * self.aims.target
                * if self.crowd > 1.0 && self.trims {
                    SHARED
                } else {
                    1.0
                },
            first: (product * self.aims.first).clamp(self.mtu, most),
            fair,
            share: if self.crowd >= CROWD { fair } else { 0.0 },
            most,
            little: whole * GATE,
            scale: product / REFERENCE.0,
        })
    }

    /// The packets take another way from now on.
    pub(crate) fn rerouted(&mut self, now: Time) {
        self.empty.rerouted(now);
    }

    /// Learns how long the round trip takes without queueing.
    pub(super) fn measure(&mut self, feedback: &Feedback) {
        if self.empty.learn(feedback)
            && let Some(path) = self.path()
        {
            self.window = self.window.min(path.first);
        }
    }

    /// It takes over from a window that nobody steered, of which `in_flight` packets are still on
    /// their way. It does because a queue has built up, so its own window does not open.
    pub(super) fn take_over(&mut self, in_flight: u32) {
        self.opening = false;
        self.ignored = f64::from(in_flight) * self.mtu;
    }

    /// The outcome of a packet is known; that of `in_flight` packets is not.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, in_flight: u32, now: Time) {
        self.measure(feedback);
        let Some(path) = self.path() else { return };
        let in_flight = f64::from(in_flight) * self.mtu;
        match feedback.fate {
            PacketFate::Delivered { marked, .. } => {
                let delay = feedback
                    .delay
                    .map(|delay| (nanos(delay) - path.base).max(0.0));
                self.arrived(delay, marked, in_flight, &path, now);
            }
            PacketFate::Trimmed => self.trimmed(in_flight, &path, now),
            // No switch has trimmed, and what is too much is lost. The next packet that comes
            // bounds the window.
            PacketFate::Lost if !self.trims => self.aims.window = NO_TRIMMING.window,
            // What is lost says nothing of queues that trim.
            PacketFate::Lost | PacketFate::NotReady => {}
        }
        debug_assert!(self.window > 0.0 && self.window <= self.limit);
    }

    fn arrived(
        &mut self,
        delay: Option<f64>,
        marked: bool,
        in_flight: f64,
        path: &Path,
        now: Time,
    ) {
        self.achieved += self.mtu;
        let delay = delay.unwrap_or(self.average);
        // What is late without a mark did not wait in a queue that marks.
        let sample = if !marked && delay > path.target {
            path.base * 0.25
        } else {
            delay
        };
        self.average = EWMA * sample + (1.0 - EWMA) * self.average;
        if self.ignored > 0.0 {
            self.ignored -= self.mtu;
            if marked {
                return;
            }
        }
        if self.quick_adapt(delay > LATE * path.target, in_flight, path, now) {
            return;
        }
        if self.window < self.mtu {
            return self.change_pace(delay, marked, path);
        }
        self.opening &= !marked && delay < path.target;
        match (marked, delay >= path.target) {
            (false, true) => self.growth += FAIR * self.mtu * path.scale * self.mtu,
            (false, false) => self.grow(delay, path),
            (true, true) => self.shrink(path, now),
            (true, false) => {}
        }
        self.received += self.mtu;
        if self.received >= ADJUST * self.mtu || nanos(now.since(self.adjusted)) >= path.base {
            self.adjust(path, now);
        }
        self.bound(path);
    }

    /// The window grows: fast if the network has been idle for a window, else by what is missing to
    /// the target.
    fn grow(&mut self, delay: f64, path: &Path) {
        self.opening &= self.window < path.most;
        if self.opening {
            self.window += self.mtu;
            return;
        }
        if delay < IDLE && self.window < path.fair {
            // Those that the line was shared with have gone.
            self.window = path.fair.min(path.most);
            return;
        }
        if delay < IDLE {
            self.idle += self.mtu;
            if self.fast || self.idle > self.window {
                self.fast = true;
                self.window += self.mtu * FAST * path.scale;
                return;
            }
        } else {
            self.idle = 0.0;
        }
        self.fast = false;
        let alpha = ALPHA * self.mtu * path.scale / REFERENCE.1;
        self.growth += alpha * self.mtu * (path.target - delay);
    }

    /// A packet came while the window is less than one.
    fn change_pace(&mut self, delay: f64, marked: bool, path: &Path) {
        let part = (delay / path.target).min(1.0);
        if path.share > 0.0 {
            self.window *= match (marked, delay < IDLE) {
                (true, _) => 1.0 - CROWD_MARK * part,
                (false, true) => 1.0 + CROWD_IDLE,
                (false, false) => 1.0 + CROWD_ADD * (1.0 - part),
            };
        } else if marked {
            self.window *= 1.0 - SLOW * part;
        } else if delay < IDLE {
            self.window *= QUICKEN;
        } else {
            // Alike for all in the same time, so that they become alike.
            let share = (ADD * self.mtu * self.mtu / self.window).min(self.window);
            self.window += share * (1.0 - part);
        }
        self.growth = 0.0;
        // It leaves the region with one packet.
        self.window = self.window.clamp(self.least(path), self.mtu);
    }

    /// Least window. With a crowd it is the share: a packet that comes too many is trimmed, and
    /// takes less of the line than one that is missing.
    fn least(&self, path: &Path) -> f64 {
        let least = (LEAST * self.mtu).max(CROWD_LEAST * path.share);
        least.min(self.mtu)
    }

    fn shrink(&mut self, path: &Path, now: Time) {
        if self.average > path.target && nanos(now.since(self.shrunk)) > path.base {
            let part = GAMMA * (self.average - path.target) / self.average;
            // Less than a packet is for trims and for what is very late: whoever has little would
            // find all packets marked by those who have more.
            let least = self.window.min(self.mtu);
            self.window = (self.window * (1.0 - part).max(0.5)).max(least);
            self.shrunk = now;
        }
    }

    fn adjust(&mut self, path: &Path, now: Time) {
        self.window += self.growth / self.window;
        self.growth = 0.0;
        self.received = 0.0;
        self.adjusted = now;
        if nanos(now.since(self.added)) > path.base {
            self.window += ETA * self.mtu * path.scale;
            self.added = now;
        }
    }

    /// A packet was trimmed.
    fn trimmed(&mut self, in_flight: f64, path: &Path, now: Time) {
        self.suffered = true;
        self.opening = false;
        self.trims = true;
        if self.ignored > 0.0 {
            self.ignored -= self.mtu;
            return;
        }
        if !self.is_crowded(path) && path.fair > 0.0 && self.window > ROOM * path.fair {
            self.window = ROOM * path.fair;
            self.ignored = in_flight;
            self.growth = 0.0;
            return self.bound(path);
        }
        if !self.quick_adapt(true, in_flight, path, now) {
            let crowded = self.is_crowded(path);
            self.window = if crowded && self.window > CROWD_MOST * path.share {
                path.share
            } else if crowded {
                self.window * (1.0 - CROWD_TRIM)
            } else {
                (self.window - self.mtu).max(self.window / 2.0)
            };
            self.bound(path);
        }
    }

    /// At the end of an interval: sets the window to what got through, if that was little and the
    /// network is to blame. Whether it did.
    fn quick_adapt(&mut self, bad: bool, in_flight: f64, path: &Path, now: Time) -> bool {
        if self.interval_end.is_some_and(|end| now < end) {
            return false;
        }
        let begun = self.interval_end.is_some();
        // The share of a crowd is less than a packet in an interval, and better known.
        let little = self.achieved < path.little && !self.is_crowded(path);
        let adapts = begun && little && (bad || self.suffered);
        if adapts {
            // With less than a packet in an interval it is not known how much less.
            self.window = self.achieved.max(self.window.min(self.mtu) / 2.0);
            self.ignored = in_flight;
            self.growth = 0.0;
            self.bound(path);
        }
        self.suffered = false;
        self.achieved = 0.0;
        self.interval_end = Some(now + span(path.base + path.target));
        adapts
    }

    /// Whether the peer tells of a crowd in which there is less than a packet for each.
    fn is_crowded(&self, path: &Path) -> bool {
        path.share > 0.0 && path.share < self.mtu
    }

    fn bound(&mut self, path: &Path) {
        self.window = self.window.clamp(self.least(path), path.most);
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window = self.window.min(self.mtu);
        self.growth = 0.0;
        self.ignored = 0.0;
    }
}

#[cfg(test)]
mod tests;
