//! The receiver: what the peer asks of a port, for each priority, and until when.
//!
//! ```text
//!                          time > 0
//!                 ┌───────────────────────▶┐ ┌──┐ another frame: its time
//!               sends                     paused ◀┘ replaces what was left
//!                 └◀───────────────────────┘
//!                    time over, or time 0
//!
//!   PFC, PAUSE ──▶ is it obeyed? ──▶ requested until … ──▶ does the watchdog ignore it? ──▶ paused
//!                    no: counted         │                       yes: not paused
//!                                        └─ integral, for the watchdog
//! ```
//!
//! A pause is a point in time until which the peer wants silence. A new frame replaces that point,
//! time 0 resumes, and a pause whose end comes resumes by itself, so that a lost XON heals. PAUSE
//! and PFC are kept apart (a port uses one of them, IEEE 802.1Q clause 36.1): neither takes back
//! what the other asks for.
//!
//! How long a priority was paused is an exact integral, brought up to date when a point changes and
//! not when somebody looks: two readings differ by what was paused between them, to the nanosecond.
//!
//! # Quanta and speed
//! Times are in quanta of 512 bit times at the link's speed (IEEE 802.3 annex 31B.2). When the
//! speed is not known a quantum is taken to last as long as at [`SLOWEST`], 51.2 µs. The true speed
//! is never lower, so the port is silent at least as long as its peer asked for: a shorter silence
//! could overrun the peer's headroom and lose packets of a lossless class. And the silence ends: by
//! XON as at any speed, and by itself after 3.4 s at most.

use crate::time::Time;
use crate::units::Rate;
use crate::wire::pause::{Control, PRIORITIES, QUANTUM_BITS};

/// Speed that a port without a known one is taken to have: the slowest Ethernet that pauses
/// (10 Mb/s full duplex, IEEE 802.3 annex 31B), at which the longest pause lasts 3.4 s.
pub const SLOWEST: Rate = Rate::from_mbps(10);

/// Bytes that take one quantum.
const QUANTUM_BYTES: u64 = QUANTUM_BITS / 8;

/// Frames of one kind that came in. Each is counted in one of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Those that pause: a time above zero.
    pub pausing: u64,
    /// Those that resume: time zero.
    pub resuming: u64,
    /// Those that the port is not configured to obey.
    pub ignored: u64,
}

/// What the peer requests of one priority at a point in time, whether the watchdog ignores it or
/// not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseRequest {
    /// Nanoseconds of pause that were requested until now, overlaps counted once. Never decreases.
    pub total: u64,
    /// Since when the pause runs without a gap; `None` if none runs now.
    pub since: Option<Time>,
}

/// One source of pauses: PFC of one priority, or PAUSE.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    until: Time,
    counters: Counters,
}

impl Source {
    /// Takes a frame that is obeyed.
    fn take(&mut self, quanta: u16, now: Time, speed: Rate) {
        if quanta == 0 {
            self.counters.resuming += 1;
            self.end(now);
        } else {
            self.counters.pausing += 1;
            self.until = pause_end(quanta, now, speed);
        }
    }

    /// Ends the pause that runs. One that is over keeps its end, so that the gap since stays a gap.
    fn end(&mut self, now: Time) {
        self.until = self.until.min(now);
    }
}

/// The end of a pause: 512 bit times a quantum, rounded up to a nanosecond.
fn pause_end(quanta: u16, now: Time, speed: Rate) -> Time {
    let speed = if speed.bps() == 0 { SLOWEST } else { speed };
    now + speed.time_for(u64::from(quanta) * QUANTUM_BYTES)
}

/// What was requested of one priority, and for how long it was paused.
#[derive(Clone, Copy, Debug, Default)]
struct Priority {
    source: Source,
    /// When the pause that runs, or the last one, began.
    began: Time,
    /// The point in time up to which the integrals hold.
    settled: Time,
    /// Nanoseconds of pause that were requested.
    requested: u64,
    /// Nanoseconds of these that were obeyed.
    paused: u64,
}

/// The pauses of one port, as its peer requests them.
#[derive(Clone, Debug, Default)]
pub struct PfcReceiver {
    /// Bit n: PFC for priority n is obeyed.
    obeyed: u8,
    /// Whether PAUSE is obeyed.
    obeys_link: bool,
    /// Bit n: the watchdog ignores what is requested of priority n.
    ignored: u8,
    link: Source,
    priorities: [Priority; PRIORITIES],
}

impl PfcReceiver {
    /// A port that obeys PFC for the priorities of `obeyed` (bit n: priority n), and 802.3x PAUSE
    /// if `link`. Nothing is paused yet.
    pub fn new(obeyed: u8, link: bool) -> Self {
        Self {
            obeyed,
            obeys_link: link,
            ignored: 0,
            link: Source::default(),
            priorities: Default::default(),
        }
    }

    /// Changes what is obeyed. A pause that is not obeyed any more ends now; integrals stay.
    pub fn configure(&mut self, obeyed: u8, link: bool, now: Time) {
        for n in 0..PRIORITIES {
            self.settle(n, now);
            if obeyed & 1 << n == 0 {
                self.priorities[n].source.end(now);
            }
        }
        if !link {
            self.link.end(now);
        }
        (self.obeyed, self.obeys_link) = (obeyed, link);
    }

    /// Ignores what is requested of the priorities of `mask`, and of no others. Their requests are
    /// still counted, and one that still runs when its priority leaves the mask is obeyed again.
    pub fn ignore(&mut self, mask: u8, now: Time) {
        if mask == self.ignored {
            return;
        }
        for n in 0..PRIORITIES {
            self.settle(n, now);
        }
        self.ignored = mask;
    }

    /// Takes a frame that came in at `now` on a port of this speed; zero: not known.
    pub fn receive(&mut self, control: &Control, now: Time, speed: Rate) {
        match control {
            Control::Pause(quanta) => self.on_pause(*quanta, now, speed),
            Control::Pfc(times) => {
                for (n, quanta) in times.iter().enumerate() {
                    if let Some(quanta) = *quanta {
                        self.on_pfc(n, quanta, now, speed);
                    }
                }
            }
        }
    }

    fn on_pause(&mut self, quanta: u16, now: Time, speed: Rate) {
        if !self.obeys_link {
            self.link.counters.ignored += 1;
            return;
        }
        for n in 0..PRIORITIES {
            self.settle(n, now);
        }
        self.link.take(quanta, now, speed);
    }

    fn on_pfc(&mut self, n: usize, quanta: u16, now: Time, speed: Rate) {
        if self.obeyed & 1 << n == 0 {
            self.priorities[n].source.counters.ignored += 1;
            return;
        }
        self.settle(n, now);
        self.priorities[n].source.take(quanta, now, speed);
    }

    /// Brings the integrals of priority `n` up to `now`, before its request changes. A request from
    /// now on continues the pause before only if that one ends no earlier than now.
    fn settle(&mut self, n: usize, now: Time) {
        let end = self.end(n);
        let ran = self.ran(n, now);
        let ignored = self.ignores(n);
        let priority = &mut self.priorities[n];
        priority.requested += ran;
        if !ignored {
            priority.paused += ran;
        }
        priority.settled = priority.settled.max(now);
        if end < now {
            priority.began = now;
        }
    }

    /// Nanoseconds that were requested from where the integrals are to `now`.
    fn ran(&self, n: usize, now: Time) -> u64 {
        let settled = self.priorities[n].settled;
        self.end(n).min(now).since(settled).nanos()
    }

    /// Until when priority `n` is requested to wait. Both kinds of pauses began in the past, so
    /// they run to the later end.
    fn end(&self, n: usize) -> Time {
        self.priorities[n].source.until.max(self.link.until)
    }

    fn ignores(&self, n: usize) -> bool {
        self.ignored & 1 << n != 0
    }

    /// Until when priority `n` is paused; a time in the past if it is not.
    pub fn paused_until(&self, n: usize) -> Time {
        if self.ignores(n) {
            Time::ZERO
        } else {
            self.end(n)
        }
    }

    /// The priorities that are paused at `now`; bit n: priority n.
    #[inline]
    pub fn mask(&self, now: Time) -> u8 {
        (0..PRIORITIES)
            .filter(|&n| now < self.paused_until(n))
            .fold(0, |mask, n| mask | 1 << n)
    }

    /// When the first of the pauses that are obeyed at `now` ends by itself; [`Time::NEVER`] if
    /// none runs.
    pub fn next_expiry(&self, now: Time) -> Time {
        (0..PRIORITIES)
            .map(|n| self.paused_until(n))
            .filter(|&until| now < until)
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Nanoseconds that a priority was paused until `now`; 0 for a priority that does not exist.
    pub fn paused_total(&self, priority: usize, now: Time) -> u64 {
        self.priorities.get(priority).map_or(0, |state| {
            let ignored = self.ignores(priority);
            state.paused + if ignored { 0 } else { self.ran(priority, now) }
        })
    }

    /// What the peer requests of a priority: all that a watchdog needs to know.
    pub fn request(&self, priority: usize, now: Time) -> PauseRequest {
        let Some(state) = self.priorities.get(priority) else {
            return PauseRequest::default();
        };
        PauseRequest {
            total: state.requested + self.ran(priority, now),
            since: (now < self.end(priority)).then_some(state.began),
        }
    }

    /// PFC frames that named this priority.
    pub fn pfc_counters(&self, priority: usize) -> Counters {
        self.priorities
            .get(priority)
            .map_or_else(Counters::default, |state| state.source.counters)
    }

    /// PAUSE frames.
    pub fn pause_counters(&self) -> Counters {
        self.link.counters
    }
}
