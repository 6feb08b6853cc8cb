//! The pauses that an egress port obeys: 802.3x PAUSE for the port, 802.1Qbb PFC for each priority.
//!
//! ```text
//!   PFC, PAUSE ──▶ is it obeyed?  ──▶ asked for until …  ──▶ does the watchdog ignore it? ──▶ paused
//!                    no: counted          │                       yes: not paused
//!                                         └─ integral, for the watchdog
//! ```
//!
//! A pause is a point in time until which the peer wants silence. A new frame replaces that point, time 0
//! resumes, and a pause whose end comes resumes by itself, so that a lost xon heals. PAUSE and PFC are kept
//! apart (a port uses one of them, IEEE 802.1Q clause 36.1): what one asks for the other does not take back.
//!
//! How long a priority was paused is an exact integral, brought up to date when a point changes and not when
//! somebody looks: two readings differ by what was paused between them, to the nanosecond.

use crate::time::Time;
use crate::units::Rate;
use crate::wire::pause::{Control, PRIORITIES, QUANTUM_BITS};

/// Speed that a port without a known one is taken to have: the slowest of Ethernet's that pauses (10 Mb/s),
/// at which the longest pause ends after 3.4 s. Without it such a pause would never end.
pub const SLOWEST: Rate = Rate::from_mbps(10);

/// Bytes that take one quantum.
const QUANTUM_BYTES: u64 = QUANTUM_BITS / 8;

/// Frames of one kind that came in; each is counted in one of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Those that pause: a time above zero.
    pub pausing: u64,
    /// Those that resume: time zero.
    pub resuming: u64,
    /// Those that the port is not configured to obey.
    pub ignored: u64,
}

/// What the peer asks for at a point in time, for one priority; obeyed by the watchdog or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// Nanoseconds of pause that were asked for until now, overlaps counted once. Never decreases.
    pub total: u64,
    /// Since when the pause runs without a gap; `None` if none runs now.
    pub since: Option<Time>,
    /// When the last frame that pauses this priority came, be its pause over or not.
    pub last: Option<Time>,
}

/// One source of pauses: PFC of one priority, or PAUSE.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    until: Time,
    last: Option<Time>,
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
            self.last = Some(now);
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

/// What one priority was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Priority {
    source: Source,
    /// When the pause that runs, or the last one, began.
    began: Time,
    /// The point in time up to which the integrals hold.
    settled: Time,
    asked: u64,
    paused: u64,
}

/// State of the pauses of one egress port.
#[derive(Clone, Debug, Default)]
pub struct Paused {
    /// Bit n: PFC for priority n is obeyed.
    obeyed: u8,
    /// Whether PAUSE is.
    obeys_link: bool,
    /// Bit n: the watchdog has priority n ignore what it is asked.
    ignored: u8,
    link: Source,
    priorities: [Priority; PRIORITIES],
}

impl Paused {
    /// A port that obeys PFC for the priorities of `obeyed` (bit n: priority n), and 802.3x PAUSE if `link`.
    pub fn new(obeyed: u8, link: bool) -> Self {
        Self {
            obeyed,
            obeys_link: link,
            ignored: 0,
            link: Source::default(),
            priorities: Default::default(),
        }
    }

    /// Follows a change of what is obeyed. A pause that is not obeyed any more ends now; integrals stay.
    pub fn obey(&mut self, obeyed: u8, link: bool, now: Time) {
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

    /// Has exactly the priorities of `mask` ignore what they are asked. Their pauses go on being counted, and
    /// those that still run when a priority leaves the mask are obeyed again.
    pub fn ignore(&mut self, mask: u8, now: Time) {
        if mask == self.ignored {
            return;
        }
        for n in 0..PRIORITIES {
            self.settle(n, now);
        }
        self.ignored = mask;
    }

    /// Takes a frame that came in at `now` on a port of this speed.
    pub fn on_control(&mut self, control: &Control, now: Time, speed: Rate) {
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

    /// Brings the integrals of priority `n` up to `now`, before what it is asked changes. What is asked for
    /// from now on is one pause with the one before only if that one ends no earlier than now.
    fn settle(&mut self, n: usize, now: Time) {
        let end = self.end(n);
        let ran = self.ran(n, now);
        let ignored = self.ignores(n);
        let priority = &mut self.priorities[n];
        priority.asked += ran;
        if !ignored {
            priority.paused += ran;
        }
        priority.settled = priority.settled.max(now);
        if end < now {
            priority.began = now;
        }
    }

    /// Nanoseconds that were asked for from where the integrals are to `now`.
    fn ran(&self, n: usize, now: Time) -> u64 {
        let settled = self.priorities[n].settled;
        self.end(n).min(now).since(settled).nanos()
    }

    /// Until when priority `n` is asked to wait. All pauses began in the past, so they run to the later end.
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

    /// When the first of the pauses that are obeyed at `now` ends by itself; [`Time::NEVER`] if none runs.
    pub fn next_expiry(&self, now: Time) -> Time {
        (0..PRIORITIES)
            .map(|n| self.paused_until(n))
            .filter(|&until| now < until)
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Nanoseconds that a priority was paused until `now`; 0 for one that there is not.
    pub fn paused_total(&self, priority: usize, now: Time) -> u64 {
        self.priorities.get(priority).map_or(0, |state| {
            let ignored = self.ignores(priority);
            state.paused + if ignored { 0 } else { self.ran(priority, now) }
        })
    }

    /// All that the watchdog needs to know of a priority.
    pub fn asking(&self, priority: usize, now: Time) -> Asking {
        let Some(state) = self.priorities.get(priority) else {
            return Asking::default();
        };
        Asking {
            total: state.asked + self.ran(priority, now),
            since: (now < self.end(priority)).then_some(state.began),
            last: state.source.last.max(self.link.last),
        }
    }

    /// PFC frames that named this priority.
    pub fn counters(&self, priority: usize) -> Counters {
        self.priorities
            .get(priority)
            .map_or_else(Counters::default, |state| state.source.counters)
    }

    /// PAUSE frames.
    pub fn link_counters(&self) -> Counters {
        self.link.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A speed at which a quantum takes 512 ns.
    const GIGABIT: Rate = Rate::from_gbps(1);

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// A frame that names the priorities of `mask`, all with the same time.
    fn pfc(mask: u8, quanta: u16) -> Control {
        Control::Pfc(std::array::from_fn(|n| {
            (mask & 1 << n != 0).then_some(quanta)
        }))
    }

    /// SW-31: a frame pauses the named priorities alone, for its time, which ends by itself.
    #[test]
    fn only_the_named_priorities_wait_and_a_lost_xon_heals() {
        let mut paused = Paused::new(0xff, false);
        paused.on_control(&pfc(0b0001_1000, 2), at(100), GIGABIT);
        assert_eq!(paused.mask(at(100)), 0b0001_1000);
        assert_eq!(paused.next_expiry(at(100)), at(1124));
        assert_eq!(paused.mask(at(1123)), 0b0001_1000);
        assert_eq!(paused.mask(at(1124)), 0);
        assert_eq!(paused.next_expiry(at(1124)), Time::NEVER);
        assert_eq!(paused.paused_total(3, at(9999)), 1024);
        assert_eq!(paused.paused_total(2, at(9999)), 0);
    }

    /// SW-31: xon resumes at once what it names, and a new time replaces the old one, longer or shorter.
    #[test]
    fn a_new_frame_replaces_the_time() {
        let mut paused = Paused::new(0xff, false);
        paused.on_control(&pfc(0xff, 100), at(0), GIGABIT);
        paused.on_control(&pfc(0b1, 0), at(500), GIGABIT);
        paused.on_control(&pfc(0b10, 1), at(500), GIGABIT);
        assert_eq!(paused.mask(at(600)), 0b1111_1110);
        assert_eq!(paused.mask(at(1012)), 0b1111_1100);
        assert_eq!(paused.paused_total(0, at(100_000)), 500);
        assert_eq!(paused.paused_total(1, at(100_000)), 1012);
        assert_eq!(paused.paused_total(2, at(100_000)), 51_200);
        let counted = paused.counters(0);
        assert_eq!(
            (counted.pausing, counted.resuming, counted.ignored),
            (1, 1, 0)
        );
    }

    /// SW-30: PAUSE pauses all; neither it nor PFC takes back what the other asked for.
    #[test]
    fn pause_and_pfc_do_not_take_back_each_other() {
        let mut paused = Paused::new(0b1000, true);
        paused.on_control(&Control::Pause(4), at(0), GIGABIT);
        paused.on_control(&pfc(0b1000, 10), at(1), GIGABIT);
        assert_eq!(paused.mask(at(2)), 0xff);
        paused.on_control(&pfc(0b1000, 0), at(3), GIGABIT);
        assert_eq!(paused.mask(at(4)), 0xff, "PAUSE still runs");
        paused.on_control(&pfc(0b1000, 10), at(5), GIGABIT);
        paused.on_control(&Control::Pause(0), at(6), GIGABIT);
        assert_eq!(paused.mask(at(7)), 0b1000, "PFC still runs");
        assert_eq!(paused.asking(3, at(7)).since, Some(at(0)));
        assert_eq!(paused.paused_total(0, at(9999)), 6);
        let counted = paused.link_counters();
        assert_eq!(
            (counted.pausing, counted.resuming, counted.ignored),
            (1, 1, 0)
        );
    }

    /// SW-31: what the port is not configured to obey is counted and pauses nothing.
    #[test]
    fn what_is_not_obeyed_is_counted() {
        let mut paused = Paused::new(0b1000, false);
        paused.on_control(&Control::Pause(9), at(0), GIGABIT);
        paused.on_control(&pfc(0b0100, 9), at(0), GIGABIT);
        assert_eq!(paused.mask(at(1)), 0);
        assert_eq!(paused.asking(2, at(99)).total, 0);
        assert_eq!(paused.asking(2, at(99)), Asking::default());
        assert_eq!(paused.counters(2).ignored, 1);
        assert_eq!(paused.link_counters().ignored, 1);

        paused.on_control(&pfc(0b1000, 9), at(100), GIGABIT);
        paused.obey(0b0100, true, at(200));
        assert_eq!(
            paused.mask(at(200)),
            0,
            "the pause ends with its permission"
        );
        assert_eq!(paused.paused_total(3, at(9999)), 100);
    }

    /// SW-32: while the watchdog ignores a priority nothing is paused, what is asked is counted, and
    /// afterwards the pause that still runs is obeyed again.
    #[test]
    fn what_the_watchdog_ignores_goes_on_being_asked() {
        let mut paused = Paused::new(0xff, false);
        paused.on_control(&pfc(0b1001, 10), at(0), GIGABIT);
        paused.ignore(0b1000, at(1000));
        assert_eq!(paused.mask(at(1000)), 0b0001);
        paused.on_control(&pfc(0b1000, 10), at(2000), GIGABIT);
        assert_eq!(paused.mask(at(2001)), 0b0001);
        assert_eq!(paused.next_expiry(at(5200)), Time::NEVER);
        paused.ignore(0, at(7000));
        assert_eq!(paused.mask(at(7000)), 0b1000);
        assert_eq!(paused.next_expiry(at(7000)), at(7120));
        assert_eq!(paused.paused_total(3, at(9999)), 1120);
        assert_eq!(paused.asking(3, at(9999)).total, 7120);
        assert_eq!(paused.counters(3).pausing, 2);
    }

    /// SW-32: a refresh that comes in time continues the pause, one that comes late begins another.
    #[test]
    fn a_gap_begins_another_pause() {
        let mut paused = Paused::new(0xff, false);
        let since = |paused: &Paused, now| paused.asking(0, at(now)).since;
        paused.on_control(&pfc(1, 1), at(10), GIGABIT);
        paused.on_control(&pfc(1, 1), at(522), GIGABIT);
        assert_eq!(since(&paused, 1033), Some(at(10)), "at the very end");
        assert_eq!(since(&paused, 1034), None);
        paused.on_control(&pfc(1, 1), at(1035), GIGABIT);
        assert_eq!(since(&paused, 1035), Some(at(1035)));
        paused.on_control(&pfc(1, 0), at(2000), GIGABIT);
        paused.on_control(&pfc(1, 1), at(2000), GIGABIT);
        assert_eq!(since(&paused, 2000), Some(at(2000)), "an xon that was late");
        assert_eq!(paused.asking(0, at(2000)).last, Some(at(2000)));
        assert_eq!(paused.asking(0, at(2000)).total, 1024 + 512);
    }

    /// SW-31: quanta are of 512 bit times at every speed.
    #[test]
    fn quanta_are_exact_from_10_megabits_to_1600_gigabits() {
        let length = |quanta, speed| pause_end(quanta, at(0), speed).nanos();
        assert_eq!(length(1, SLOWEST), 51_200);
        assert_eq!(length(u16::MAX, SLOWEST), 3_355_392_000);
        assert_eq!(length(1, Rate::from_gbps(100)), 6, "5.12 ns");
        assert_eq!(
            length(u16::MAX, Rate::from_gbps(100)),
            335_540,
            "335539.2 ns"
        );
        assert_eq!(
            length(u16::MAX, Rate::from_gbps(1600)),
            20_972,
            "20971.2 ns"
        );
        assert_eq!(length(1, Rate::from_bps(0)), 51_200, "unknown speed");
    }

    proptest! {
        /// SW-31: never shorter than asked and never a whole nanosecond longer.
        #[test]
        fn quanta_are_rounded_up_to_a_nanosecond(quanta: u16, bps in 10_000_000..=1_600_000_000_000_u64) {
            let nanos = u128::from(pause_end(quanta, at(0), Rate::from_bps(bps)).nanos());
            let bits = u128::from(quanta) * 512 * 1_000_000_000;
            prop_assert!(nanos * u128::from(bps) >= bits);
            prop_assert!(nanos.saturating_sub(1) * u128::from(bps) <= bits);
        }

        /// SW-31, SW-32: integrals, masks and ends are those of a model that looks at every nanosecond,
        /// while nobody looks at the port but at the end.
        #[test]
        fn integrals_are_exact(
            steps in prop::collection::vec((0..40_u64, 0..6_u8, any::<u8>(), 0..30_u16), 0..40),
            rest in 0..60_u64,
        ) {
            // A quantum takes one nanosecond.
            let speed = Rate::from_gbps(512);
            let mut paused = Paused::new(0xff, true);
            let (mut pfc_until, mut link_until) = ([0_u64; PRIORITIES], 0_u64);
            let (mut obeyed, mut link, mut ignored) = (0xff_u8, true, 0_u8);
            let (mut asked, mut was_paused) = ([0_u64; PRIORITIES], [0_u64; PRIORITIES]);
            let mut now = 0_u64;
            let steps = steps.into_iter().chain([(rest, 0, 0, 0)]);
            for (gap, kind, mask, quanta) in steps {
                for nano in now..now + gap {
                    for n in 0..PRIORITIES {
                        if nano < pfc_until[n].max(link_until) {
                            asked[n] += 1;
                            was_paused[n] += u64::from(ignored & 1 << n == 0);
                        }
                    }
                }
                now += gap;
                match kind {
                    0..=2 => {
                        paused.on_control(&pfc(mask, quanta), at(now), speed);
                        for (n, until) in pfc_until.iter_mut().enumerate() {
                            if mask & obeyed & 1 << n != 0 {
                                *until = now + u64::from(quanta);
                            }
                        }
                    }
                    3 => {
                        paused.on_control(&Control::Pause(quanta), at(now), speed);
                        if link {
                            link_until = now + u64::from(quanta);
                        }
                    }
                    4 => {
                        paused.ignore(mask, at(now));
                        ignored = mask;
                    }
                    _ => {
                        (obeyed, link) = (mask, quanta % 2 == 0);
                        paused.obey(obeyed, link, at(now));
                        for (n, until) in pfc_until.iter_mut().enumerate() {
                            if obeyed & 1 << n == 0 {
                                *until = 0;
                            }
                        }
                        if !link {
                            link_until = 0;
                        }
                    }
                }
            }
            let mut next = u64::MAX;
            for n in 0..PRIORITIES {
                let until = pfc_until[n].max(link_until);
                let waits = now < until && ignored & 1 << n == 0;
                prop_assert_eq!(paused.asking(n, at(now)).total, asked[n]);
                prop_assert_eq!(paused.paused_total(n, at(now)), was_paused[n]);
                prop_assert_eq!(paused.mask(at(now)) & 1 << n != 0, waits);
                if waits {
                    next = next.min(until);
                }
            }
            prop_assert_eq!(paused.next_expiry(at(now)), at(next));
        }
    }
}
