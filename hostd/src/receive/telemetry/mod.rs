//! \[11\] What an acknowledgement says of the telemetry of the packets that it answers (SW-52): how
//! much of the worst link of a path is used.
//!
//! Each packet tells of all hops. What is in flight on a link follows from two packets of the same
//! path, as in HPCC (Li et al., SIGCOMM 2019, algorithm 1, MeasureInflight):
//!
//! ```text
//!   u    of a hop: least queue of both / (speed · T) + bytes sent between them / time / speed
//!   U    the largest of them, smoothed with the weight τ / T of the time τ between the packets
//! ```
//!
//! T is the round trip of the idle network. It is done here and not by the sender, so that an
//! acknowledgement carries eight bytes and not those of all hops, and nothing is lost when one
//! stands for many packets.

use common::time::{Span, Time};
use common::wire::int::{HOPS, Hop, Scaled, Telemetry};
use common::wire::roce::{Utilisation, WorstLink};

/// What came longer ago says nothing of the time since: the counts of switches may have begun anew.
const FORGOTTEN: Span = Span::from_millis(100);

/// So much of a link cannot be in use: the packets took different ways, or a switch lies.
const IMPOSSIBLE: f64 = 2.0;

/// Of one path.
#[derive(Clone, Copy, Debug, Default)]
struct OfPath {
    /// What the last packet said of the hops, and when it came.
    before: [Hop; HOPS],
    hops: usize,
    at: Time,
    /// U, once there were two packets.
    in_flight: Option<f64>,
    worst: Option<WorstLink>,
    /// Packets came since the path was told of last,
    is_new: bool,
    /// and there was telemetry among them.
    is_told: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    /// T, in nanoseconds.
    base: f64,
    paths: Box<[OfPath]>,
    /// The path that is told next, if there is something new of it.
    next: usize,
    /// Paths of which there is.
    new: usize,
}

impl Observer {
    /// Of packets on so many paths, with the round trip of the idle network.
    pub(crate) fn new(base: Span, paths: usize) -> Self {
        Self {
            base: nanos(base).max(1.0),
            paths: vec![OfPath::default(); paths].into(),
            next: 0,
            new: 0,
        }
    }

    /// A packet came on `path`, with telemetry or without.
    pub(crate) fn note(&mut self, path: u8, telemetry: Option<&Telemetry>, now: Time) {
        let Some(path) = self.paths.get_mut(usize::from(path)) else {
            return;
        };
        if let Some(telemetry) = telemetry {
            path.take(telemetry, self.base, now);
            path.is_told = path.worst.is_some();
            if !path.is_told {
                // One packet says nothing yet.
                return;
            }
        }
        self.new += usize::from(!path.is_new);
        path.is_new = true;
    }

    /// What the next acknowledgement says. `None`: no packet came that it could speak of.
    pub(crate) fn tell(&mut self) -> Option<Utilisation> {
        if self.new == 0 {
            return None;
        }
        let count = self.paths.len();
        let places = (0..count).map(|step| (self.next + step) % count);
        let mut news = places.filter(|place| self.paths[*place].is_new);
        let place = news.next()?;
        let path = &mut self.paths[place];
        let worst = path.worst.filter(|_| path.is_told);
        (path.is_new, path.is_told) = (false, false);
        self.new -= 1;
        self.next = place + 1;
        Some(Utilisation {
            path: u8::try_from(place).ok()?,
            worst,
        })
    }
}

impl OfPath {
    fn take(&mut self, telemetry: &Telemetry, base: f64, now: Time) {
        let hops = telemetry.hops();
        let old = now.since(self.at) > FORGOTTEN;
        let same = hops.len() == self.hops && self.at != Time::ZERO && !old;
        let pairs = || self.before.iter().zip(hops);
        // In one turn of a switch no time passes. Then the next packet tells of both.
        if same && pairs().any(|(before, hop)| before.at == hop.at) {
            return;
        }
        let sample = if same {
            worst(pairs(), base)
        } else {
            // The way has changed.
            self.in_flight = None;
            None
        };
        if old {
            // What is known is of another time.
            self.worst = None;
        }
        if let Some((hop, in_flight, passed)) = sample {
            let weight = (passed / base).min(1.0);
            let smoothed = self.in_flight.map_or(in_flight, |before| {
                before * (1.0 - weight) + in_flight * weight
            });
            self.in_flight = Some(smoothed);
            self.worst = Some(WorstLink {
                hop: u8::try_from(hop + 1).unwrap_or(u8::MAX),
                is_cut: telemetry.is_cut,
                in_flight: written(smoothed),
                queue: hops[hop].queue,
                speed: hops[hop].speed,
            });
        }
        self.before[..hops.len()].copy_from_slice(hops);
        (self.hops, self.at) = (hops.len(), now);
    }
}

/// The hop of which most is in flight, that part, and the nanoseconds between both packets there.
/// `None`: no hop tells anything, or what the worst one may say is not known.
fn worst<'a>(
    pairs: impl Iterator<Item = (&'a Hop, &'a Hop)>,
    base: f64,
) -> Option<(usize, f64, f64)> {
    let mut worst: Option<(usize, f64, f64)> = None;
    for (number, (before, hop)) in pairs.enumerate() {
        let passed = f64::from(hop.at.wrapping_sub(before.at));
        let speed = number_of(hop.speed) / 8e6;
        if speed == 0.0 || passed > nanos(FORGOTTEN) {
            continue;
        }
        if passed * speed > f64::from(u32::MAX) {
            // The count of bytes may have wrapped: what this hop, perhaps the worst, sends is not
            // known.
            return None;
        }
        let sent = f64::from(hop.sent.wrapping_sub(before.sent)) / passed / speed;
        if sent > IMPOSSIBLE {
            // Nor is it where a device was handed much in one turn, or the clock went back.
            return None;
        }
        let queue = number_of(hop.queue).min(number_of(before.queue));
        let in_flight = queue / (speed * base) + sent;
        if worst.is_none_or(|(_, most, _)| in_flight > most) {
            worst = Some((number, in_flight, passed));
        }
    }
    worst
}

#[expect(clippy::cast_precision_loss, reason = "eleven bits of mantissa")]
fn number_of(scaled: Scaled) -> f64 {
    scaled.value() as f64
}

#[expect(clippy::cast_precision_loss, reason = "times of a network are short")]
fn nanos(span: Span) -> f64 {
    span.nanos() as f64
}

/// A part of a delay-bandwidth product as it is told.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "not negative, and bounded by the largest queue that can be written"
)]
fn written(part: f64) -> Scaled {
    Scaled::of((part * Utilisation::WHOLE as f64).round() as u64)
}

#[cfg(test)]
mod tests;
