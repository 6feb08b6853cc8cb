//! How congested each egress port is (SW-7): utilisation, queue, pauses and link state, as one
//! band.
//!
//! ```text
//!   sent, paused ──▶ utilisation: EWMA ──┐ past weight
//!                                        ├──▶ load ──┐
//!   queued ────────▶ fill of the range ──┘ future    ├──▶ worst of them ──▶ band 0 idle … 7 worst
//!   paused ────────▶ share of the interval, EWMA ────┤                      QualityTable,
//!   up ────────────▶ worst if not ───────────────────┘                      read by all workers
//! ```
//!
//! A paused port counts as utilised, like a port that sends. It is worse than that: a pause has no
//! known end. So the paused share is also a lower bound of the band by itself.
//!
//! Nothing is done per packet. The worker that owns the port has counters of bytes and pauses
//! anyway, and hands them to its [`Gauge`] once per sampling interval. Names and defaults are those
//! of adaptive routing and switching in SONiC (`sampling_interval`, `port_load_past_weight`,
//! `port_load_future_weight`, `ewma_exponent`, eight quantisation bands).

use crate::id::PortId;
use crate::tables::dlb::{MAX_EXPONENT, MIN_INTERVAL, Scale};
use common::time::Time;
use common::units::Rate;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bands: three bits, as in CONGA and in SONiC's profile.
pub const BANDS: u8 = 8;

/// The band of an idle port.
pub const IDLE: u8 = 0;

/// The band of a port that is paused all the time, or down.
pub const WORST: u8 = BANDS - 1;

/// The whole of something, where shares are fixed-point numbers: 100 %.
const WHOLE: u64 = 1 << 32;

/// After this many intervals, times 2ᵏ, an average no longer depends on its earlier value: (1 −
/// 2⁻ᵏ)ⁿ < 2⁻³² from n = 32 ln 2 × 2ᵏ = 22.2 × 2ᵏ on, and one more 2ᵏ brings the last units.
const MEMORY: u64 = 24;

/// The bands of all ports. One worker writes each, all read it.
///
/// A byte a port, four lines for 256 ports: bands are written only when they change, which is far
/// less often than they are read, and a choice among the members of a group touches few lines.
#[derive(Debug)]
pub struct QualityTable(Box<[AtomicU8]>);

impl QualityTable {
    /// A table in which `ports` ports are idle.
    pub fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| AtomicU8::new(IDLE)).collect())
    }

    /// The band of a port; [`WORST`] for one that does not exist.
    #[inline]
    pub fn band(&self, port: PortId) -> u8 {
        let band = self.0.get(port.index());
        band.map_or(WORST, |band| band.load(Ordering::Relaxed))
    }

    /// Sets the band of a port; only the worker that owns it. What is above [`WORST`] counts as
    /// that.
    pub fn set(&self, port: PortId, band: u8) {
        let band = band.min(WORST);
        if let Some(known) = self.0.get(port.index())
            && known.load(Ordering::Relaxed) != band
        {
            known.store(band, Ordering::Relaxed);
        }
    }
}

/// What the owner of a port knows of it at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes sent so far, counted as the port's speed is (on the wire).
    pub sent: u64,
    /// Bytes that wait now.
    pub queued: u64,
    /// Nanoseconds that the port was paused so far.
    pub paused: u64,
    /// Whether the link is up.
    pub up: bool,
}

/// The quality of one egress port, kept by its owner.
#[derive(Clone, Debug)]
pub struct Gauge {
    scale: Scale,
    /// Time of one byte in ns, 32 bits behind the point; 0 if the port's speed is not known.
    byte_time: u64,
    /// The last point of the sampling grid that has passed. Samples may come late, the grid does
    /// not move.
    grid: Time,
    /// When `last` was read.
    read_at: Time,
    last: Reading,
    utilised: Average,
    paused: Average,
    band: u8,
}

impl Gauge {
    /// A gauge of a port of this speed that was idle until `now`. Without a speed only queue,
    /// pauses and link state count.
    pub fn new(scale: Scale, speed: Option<Rate>, now: Time, reading: Reading) -> Self {
        let mut gauge = Self {
            scale: Scale::default(),
            byte_time: 0,
            grid: now,
            read_at: now,
            last: reading,
            utilised: Average::default(),
            paused: Average::default(),
            band: if reading.up { IDLE } else { WORST },
        };
        gauge.configure(scale, speed);
        gauge
    }

    /// Another scale or speed. What is known of the past is kept.
    pub fn configure(&mut self, scale: Scale, speed: Option<Rate>) {
        let utilised = self.utilised.share(self.scale.exponent);
        let paused = self.paused.share(self.scale.exponent);
        self.scale = Scale {
            interval: scale.interval.max(MIN_INTERVAL),
            exponent: scale.exponent.min(MAX_EXPONENT),
            ..scale
        };
        self.utilised = Average::of(utilised, self.scale.exponent);
        self.paused = Average::of(paused, self.scale.exponent);
        self.byte_time = speed.filter(|speed| speed.bps() > 0).map_or(0, |speed| {
            let rate = u128::from(speed.bps());
            let scaled = (8_000_000_000_u128 << 32) + rate / 2;
            u64::try_from(scaled / rate).unwrap_or(u64::MAX)
        });
    }

    /// Whether a sample is due: ask this before reading the counters.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        now.since(self.grid) >= self.scale.interval
    }

    /// When the next sample is due.
    pub fn due_at(&self) -> Time {
        self.grid + self.scale.interval
    }

    /// Takes a sample, if one is due, and returns the band that results. A late sample stands for
    /// all the intervals that passed meanwhile, as if the port had been used evenly.
    pub fn sample(&mut self, now: Time, reading: Reading) -> u8 {
        let intervals = now.since(self.grid).nanos() / self.scale.interval.nanos();
        if intervals > 0 {
            self.grid += self.scale.interval.times(intervals);
            let paused_now = self.accrue(now, reading, intervals);
            self.band = self.judge(reading, paused_now);
        }
        self.band
    }

    /// The band that resulted from the last sample.
    pub fn band(&self) -> u8 {
        self.band
    }

    /// Brings the averages up to the present; returns the share of the time since the last sample
    /// in which the port was paused.
    fn accrue(&mut self, now: Time, reading: Reading, intervals: u64) -> u64 {
        let elapsed = now.since(self.read_at).nanos().max(1);
        // Counters that begin anew count from there.
        let sent = reading.sent.saturating_sub(self.last.sent);
        let paused = reading.paused.saturating_sub(self.last.paused).min(elapsed);
        let sending = u128::from(sent) * u128::from(self.byte_time);
        let busy = (sending + (u128::from(paused) << 32)).min(u128::from(elapsed) << 32);
        let utilised_share = share_of(busy, elapsed);
        let paused_share = share_of(u128::from(paused) << 32, elapsed);
        let exponent = self.scale.exponent;
        self.utilised.add(utilised_share, intervals, exponent);
        self.paused.add(paused_share, intervals, exponent);
        self.read_at = now;
        self.last = reading;
        paused_share
    }

    fn judge(&self, reading: Reading, paused_now: u64) -> u8 {
        if !reading.up {
            return WORST;
        }
        // A pause counts at once and is forgotten slowly.
        let paused = paused_now.max(self.paused.share(self.scale.exponent));
        band_of(self.load(reading.queued).max(paused))
    }

    /// Utilisation and queue by their weights.
    fn load(&self, queued: u64) -> u64 {
        let scale = &self.scale;
        let range = u64::from(scale.queue_max.saturating_sub(scale.queue_min)).max(1);
        let above = queued.saturating_sub(scale.queue_min.into()).min(range);
        let future = above * WHOLE / range;
        let past = self.utilised.share(scale.exponent);
        let weights = u64::from(scale.past_weight) + u64::from(scale.future_weight);
        (u64::from(scale.past_weight) * past + u64::from(scale.future_weight) * future)
            / weights.max(1)
    }
}

/// `part` (32 bits behind the point) of `whole`, as a share. Within 4 s in one machine division.
#[inline]
fn share_of(part: u128, whole: u64) -> u64 {
    match u64::try_from(part) {
        Ok(part) => part / whole,
        Err(_) => u64::try_from(part / u128::from(whole)).unwrap_or(WHOLE),
    }
}

/// Eight equal bands; all of the whole belongs to the worst.
fn band_of(share: u64) -> u8 {
    let band = share * u64::from(BANDS) / WHOLE;
    u8::try_from(band).map_or(WORST, |band| band.min(WORST))
}

/// A moving average of shares: X ← X − ⌊X / 2ᵏ⌋ + sample, which settles at 2ᵏ times the sample.
#[derive(Clone, Copy, Debug, Default)]
struct Average(u64);

impl Average {
    fn of(share: u64, exponent: u8) -> Self {
        Self(share << exponent)
    }

    /// Under constant samples this is exactly the sample once it has settled, from above as from
    /// below.
    fn share(self, exponent: u8) -> u64 {
        self.0 >> exponent
    }

    /// Takes the same sample `times` times.
    fn add(&mut self, share: u64, times: u64, exponent: u8) {
        let limit = (MEMORY << exponent).min(times);
        for _ in 0..limit {
            let next = self.0 - (self.0 >> exponent) + share;
            if next == self.0 {
                return;
            }
            self.0 = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;
    use proptest::prelude::*;

    const STEP: u64 = 16_000;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(1_000_000 + nanos)
    }

    /// A gauge of a port of 100 Gbit/s, which is 12.5 bytes a nanosecond.
    fn gauge() -> Gauge {
        let up = reading(0, 0, 0);
        Gauge::new(Scale::default(), Some(Rate::from_gbps(100)), at(0), up)
    }

    fn reading(sent: u64, queued: u64, paused: u64) -> Reading {
        Reading {
            sent,
            queued,
            paused,
            up: true,
        }
    }

    impl Gauge {
        /// The average utilisation in parts per million, pauses included.
        fn utilisation_ppm(&self) -> u32 {
            let share = self.utilised.share(self.scale.exponent);
            u32::try_from((share * 1_000_000 + WHOLE / 2) / WHOLE).unwrap_or(1_000_000)
        }
    }

    /// Runs the gauge for `steps` intervals in each of which `sent` bytes leave and it is paused so
    /// long.
    fn run(gauge: &mut Gauge, steps: u64, sent: u64, queued: u64, paused: u64) -> u8 {
        for _ in 0..steps {
            let last = gauge.last;
            let now = gauge.grid + Span::from_nanos(STEP);
            let next = reading(last.sent + sent, queued, last.paused + paused);
            assert!(gauge.is_due(now));
            gauge.sample(now, next);
        }
        gauge.band()
    }

    /// SW-7: a constant load is measured exactly, from below and from above, and an idle port is
    /// idle again.
    #[test]
    fn converges_to_the_utilisation() {
        let mut gauge = gauge();
        for percent in [30, 100, 70, 1] {
            run(&mut gauge, 120, 2_000 * percent, 0, 0);
            assert_eq!(u64::from(gauge.utilisation_ppm()), percent * 10_000);
        }
        run(&mut gauge, 120, 200_000, 0, 0);
        let before = gauge.utilisation_ppm();
        run(&mut gauge, 1, 0, 0, 0);
        assert_eq!(gauge.utilisation_ppm(), before / 4 * 3);
        assert_eq!(run(&mut gauge, 120, 0, 0, 0), IDLE);
        assert_eq!(gauge.utilised.share(2), 0);
    }

    /// SW-7: more load, a longer queue, or both, is never better; both in full is the worst.
    #[test]
    fn load_and_queue_make_the_band() {
        let full = u64::from(Scale::default().queue_max);
        let band = |percent: u64, queued| run(&mut gauge(), 120, 2_000 * percent, queued, 0);
        assert_eq!(band(0, 0), IDLE);
        assert_eq!(band(100, 0), 4);
        assert_eq!(band(0, full), 4);
        assert_eq!(band(100, full), WORST);
        assert_eq!(band(100, u64::MAX), WORST);
        let bands: Vec<u8> = (0..=100).map(|percent| band(percent, full)).collect();
        assert!(bands.is_sorted());
    }

    /// SW-7: a port that is paused all the time is the worst at once, without a byte in its queue;
    /// one that is paused half of the time is in the middle, and the time counts as utilised.
    #[test]
    fn paused_time_counts() {
        let mut gauge = gauge();
        assert_eq!(run(&mut gauge, 1, 0, 0, STEP), WORST);
        assert_eq!(run(&mut gauge, 60, 0, 0, STEP), WORST);
        assert_eq!(gauge.utilisation_ppm(), 1_000_000);
        assert_eq!(run(&mut gauge, 120, 0, 0, STEP / 2), 4);
        assert_eq!(gauge.utilisation_ppm(), 500_000);
        assert_eq!(run(&mut gauge, 120, 50_000, 0, STEP / 2), 4);
        assert_eq!(gauge.utilisation_ppm(), 750_000);
        assert_eq!(run(&mut gauge, 120, 0, 0, 0), IDLE);
    }

    /// SW-7: a link that is down is the worst; afterwards what it carried before is forgotten as
    /// usual.
    #[test]
    fn a_link_that_is_down_is_the_worst() {
        let mut gauge = gauge();
        let now = at(STEP);
        let down = Reading::default();
        assert_eq!(gauge.sample(now, down), WORST);
        assert_eq!(run(&mut gauge, 1, 0, 0, 0), IDLE);
        let dead = Gauge::new(Scale::default(), None, now, down);
        assert_eq!(dead.band(), WORST);
    }

    /// SW-7: between two points of the grid nothing is taken, and what was sent is not lost.
    #[test]
    fn early_samples_change_nothing() {
        let mut gauge = gauge();
        for nanos in (0..STEP).step_by(1_000) {
            assert!(!gauge.is_due(at(nanos)));
            assert_eq!(
                gauge.sample(at(nanos), reading(nanos, 1 << 20, nanos)),
                IDLE
            );
        }
        gauge.sample(at(STEP), reading(200_000, 0, 0));
        assert_eq!(gauge.utilisation_ppm(), 250_000);
    }

    #[test]
    fn without_a_speed_the_queue_counts() {
        let start = reading(0, 0, 0);
        for speed in [None, Some(Rate::from_bps(0))] {
            let mut gauge = Gauge::new(Scale::default(), speed, at(0), start);
            assert_eq!(run(&mut gauge, 9, 1 << 40, 0, 0), IDLE);
            assert_eq!(run(&mut gauge, 1, 0, 128 << 10, 0), 4);
        }
    }

    #[test]
    fn another_exponent_keeps_what_is_known() {
        let mut gauge = gauge();
        run(&mut gauge, 120, 100_000, 0, 0);
        let slower = Scale {
            exponent: 5,
            ..Scale::default()
        };
        gauge.configure(slower, Some(Rate::from_gbps(100)));
        assert_eq!(gauge.utilisation_ppm(), 500_000);
        run(&mut gauge, 1, 100_000, 0, 0);
        assert_eq!(gauge.utilisation_ppm(), 500_000);
    }

    /// SW-7: what one worker writes the others read; ports that do not exist are never a good
    /// choice.
    #[test]
    fn the_board_shows_what_was_set() {
        let quality = QualityTable::new(2);
        quality.set(PortId(1), 3);
        quality.set(PortId(9), 3);
        let bands = [0, 1, 2, 9].map(|port| quality.band(PortId(port)));
        assert_eq!(bands, [IDLE, 3, WORST, WORST]);
        quality.set(PortId(1), 200);
        assert_eq!(quality.band(PortId(1)), WORST);
    }

    proptest! {
        /// SW-7: a sample that comes late has the effect of as many punctual ones, however long the
        /// worker slept.
        #[test]
        fn late_samples_are_exact(
            before in 0_u64..=200_000, load in 0_u64..=200_000, steps in 1_u64..400, late in 0..STEP,
            exponent in 0_u8..=4,
        ) {
            let mut punctual = gauge();
            let scale = Scale { exponent, ..Scale::default() };
            punctual.configure(scale, Some(Rate::from_gbps(100)));
            run(&mut punctual, 3, before, 0, 0);
            let mut sleeper = punctual.clone();
            run(&mut punctual, steps, load, 0, 0);
            let last = sleeper.last;
            let now = sleeper.grid + Span::from_nanos(STEP * steps + late);
            // Evenly: as much in the rest of the interval.
            let sent = last.sent + load * steps + load * late / STEP;
            sleeper.sample(now, reading(sent, 0, 0));
            prop_assert!(sleeper.utilisation_ppm().abs_diff(punctual.utilisation_ppm()) <= 20);
            prop_assert_eq!(sleeper.grid, punctual.grid);
        }

        /// SW-7: no reading, however absurd, is fatal, and every band is one.
        #[test]
        fn survives_anything(
            readings in prop::collection::vec(any::<(u64, u64, u64, u64, bool)>(), 1..20),
            scale in any::<(u64, u8, u16, u16, u32, u32)>(), speed in any::<Option<u64>>(),
        ) {
            let (interval, exponent, past_weight, future_weight, queue_min, queue_max) = scale;
            let scale = Scale {
                interval: Span::from_nanos(interval), exponent, past_weight, future_weight, queue_min, queue_max,
            };
            let speed = speed.map(Rate::from_bps);
            let mut gauge = Gauge::new(scale, speed, Time::ZERO, Reading::default());
            for (now, sent, queued, paused, up) in readings {
                let band = gauge.sample(Time::from_nanos(now), Reading { sent, queued, paused, up });
                prop_assert!(band <= WORST);
                prop_assert!(gauge.utilisation_ppm() <= 1_000_000);
            }
        }
    }
}
