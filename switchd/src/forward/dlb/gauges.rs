//! The gauges of the ports that a worker owns, read once a sampling interval.
//!
//! ```text
//!   once an interval   own ports ─▶ gauges ─▶ quality, which all workers read
//! ```

use super::quality::{Gauge, IDLE, QualityTable, Reading};
use crate::id::PortId;
use crate::limits::PRIORITIES;
use crate::tables::Tables;
use common::time::Time;
use std::sync::Arc;

/// What the owner of a port reads off it for its gauge.
#[derive(Clone, Copy, Debug)]
pub struct PortReading {
    /// The port.
    pub port: PortId,
    /// Bytes sent so far, counted on the wire.
    pub sent: u64,
    /// Bytes that wait now.
    pub queued: u64,
    /// By priority: nanoseconds that it was paused so far; zero for those whose pauses are not
    /// obeyed.
    pub paused: [u64; PRIORITIES],
    /// Whether a pause of its peer lasts.
    pub is_paused: bool,
    /// Whether the link is up.
    pub up: bool,
}

/// A gauge and what it needs to remember of the last reading.
#[derive(Debug)]
struct Measured {
    port: PortId,
    gauge: Gauge,
    /// By priority: how long it was paused when it was last read.
    counted: [u64; PRIORITIES],
    /// Sum over the intervals of the longest pause of a priority in each, in nanoseconds.
    paused: u64,
}

impl Measured {
    fn reading(&mut self, port: &PortReading) -> Reading {
        self.paused += longest_pause(port, &mut self.counted);
        Reading {
            sent: port.sent,
            queued: port.queued,
            paused: self.paused,
            up: port.up,
        }
    }
}

/// The longest time that any priority was paused since `counted`, the totals of the last reading,
/// which are brought up to date.
///
/// Counts every priority whose pauses are obeyed, whether packets wait or not: a paused class means
/// congestion behind the port, and its next packets would wait for an unknown time. Takes the
/// longest pause, not the sum: a PAUSE of the link would count eight times.
fn longest_pause(port: &PortReading, counted: &mut [u64; PRIORITIES]) -> u64 {
    let pauses = port.paused.iter().zip(counted.iter());
    let longest = pauses.map(|(total, counted)| total.saturating_sub(*counted));
    let longest = longest.max().unwrap_or(0);
    *counted = port.paused;
    longest
}

/// The gauges of the ports that a worker owns.
#[derive(Debug)]
pub struct Gauges {
    quality: Arc<QualityTable>,
    /// By place among the worker's egress ports; none while there is no dynamic load balancing.
    ports: Vec<Measured>,
    /// When the next sample is due; never while there is no dynamic load balancing.
    due: Time,
    /// A port has a band that time alone can change: the worker must not sleep beyond the next
    /// sample.
    restless: bool,
}

impl Gauges {
    /// No gauges yet; they will write their bands to `quality`.
    pub fn new(quality: Arc<QualityTable>) -> Self {
        Self {
            quality,
            ports: Vec::new(),
            due: Time::NEVER,
            restless: false,
        }
    }

    /// Whether to sample now.
    #[inline]
    pub fn are_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// When a turn is needed even if nothing arrives.
    pub fn deadline(&self) -> Time {
        if self.restless { self.due } else { Time::NEVER }
    }

    /// The peer of a port began or ended a pause. While a pause lasts, time alone can change the
    /// band of the port.
    pub fn on_pause(&mut self) {
        self.restless = !self.ports.is_empty();
    }

    /// Follows the tables. `read` reads the worker's egress port at a place below `count`.
    pub fn configure(
        &mut self,
        tables: &Tables,
        count: usize,
        read: impl Fn(usize) -> PortReading,
        now: Time,
    ) {
        if !tables.dlb.is_on() {
            self.ports.clear();
            (self.due, self.restless) = (Time::NEVER, false);
            return;
        }
        let speed = |port: PortId| tables.port(port).and_then(|port| port.speed);
        let scale = tables.dlb.scale;
        if self.ports.is_empty() {
            let measured = (0..count).map(&read).map(|port| {
                let mut measured = Measured {
                    port: port.port,
                    gauge: Gauge::new(scale, None, now, Reading::default()),
                    counted: [0; PRIORITIES],
                    paused: 0,
                };
                let reading = measured.reading(&port);
                measured.gauge = Gauge::new(scale, speed(port.port), now, reading);
                measured
            });
            self.ports = measured.collect();
        }
        for measured in &mut self.ports {
            measured.gauge.configure(scale, speed(measured.port));
        }
        self.sample(read, now);
    }

    /// Takes the samples that are due and shows the bands. `read` is as in [`Self::configure`].
    #[cold]
    pub fn sample(&mut self, read: impl Fn(usize) -> PortReading, now: Time) {
        self.due = Time::NEVER;
        self.restless = false;
        for (place, measured) in self.ports.iter_mut().enumerate() {
            let port = read(place);
            if measured.gauge.is_due(now) {
                let reading = measured.reading(&port);
                measured.gauge.sample(now, reading);
            }
            let band = measured.gauge.band();
            self.quality.set(measured.port, band);
            self.due = self.due.min(measured.gauge.due_at());
            // The band of a link that is down does not change until the tables do.
            self.restless |= port.up && (band != IDLE || port.is_paused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::dlb::quality::WORST;
    use crate::tables::dlb::{DlbPolicy, Mode, Settings};
    use crate::tables::policy::Policy;
    use crate::tables::validation::SourceValidation;
    use crate::tables::{Hashing, PortEntry};
    use common::time::Span;
    use common::units::Rate;

    fn tables() -> Tables {
        let port = PortEntry {
            name: "p0".to_owned(),
            ifindex: 100,
            mac: [2, 0, 0, 0, 0, 0],
            up: true,
            mtu: 1500,
            speed: Some(Rate::from_gbps(10)),
            link: None,
            icmp_v4: None,
            icmp_v6: None,
            mtu_v6: u16::MAX,
            burst: 0,
            validation: SourceValidation::Off,
            csig: None,
            int: None,
        };
        let policy = Arc::new(Policy::plain(1, 4096));
        let mut tables = Tables::new(vec![port], Hashing::default(), policy);
        tables.dlb = Arc::new(DlbPolicy::new(Settings {
            mode: Mode::Flowlet,
            ..Settings::default()
        }));
        tables
    }

    /// SW-7: an idle port of which one priority is paused all the time gets the worst band,
    /// whatever the others do, and a port that is not paused keeps the best.
    #[test]
    fn the_longest_pause_counts() {
        let (tables, quality) = (tables(), Arc::new(QualityTable::new(1)));
        let band_after = |paused: fn(u64) -> [u64; PRIORITIES]| {
            let mut gauges = Gauges::new(quality.clone());
            let read = |nanos: u64| {
                move |_: usize| PortReading {
                    port: PortId(0),
                    sent: 0,
                    queued: 0,
                    paused: paused(nanos),
                    is_paused: false,
                    up: true,
                }
            };
            gauges.configure(&tables, 1, read(0), Time::ZERO);
            for step in 1..=200 {
                let nanos = step * tables.dlb.scale.interval.nanos();
                let now = Time::ZERO + Span::from_nanos(nanos);
                assert!(gauges.are_due(now), "step {step}");
                gauges.sample(read(nanos), now);
            }
            quality.band(PortId(0))
        };
        assert_eq!(band_after(|_| [0; PRIORITIES]), IDLE);
        assert_eq!(band_after(|nanos| [0, 0, 0, nanos, 0, 0, 0, 0]), WORST);
        // Half of the time in each of two priorities, the same half: not all of the time.
        let half = |nanos: u64| [0, nanos / 2, nanos / 2, 0, 0, 0, 0, 0];
        assert!((IDLE + 1..WORST).contains(&band_after(half)));
    }
}
