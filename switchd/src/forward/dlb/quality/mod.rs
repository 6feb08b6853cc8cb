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
use crate::tables::dlb::{MAX_EXPONENT, Scale, sampling_interval};
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

    /// Sets the band of a port. Only the worker that owns the port calls this. Values above
    /// [`WORST`] count as [`WORST`].
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
            interval: sampling_interval(scale.interval, speed),
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
mod tests;
