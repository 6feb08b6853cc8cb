//! One direction of a link: frames take time to send and to travel, and may be lost or changed.

use super::network::End;
use common::sync::words::prefetch_all;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::Frame;
use common::xdp::queue::LINE_OVERHEAD;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use switchd::packet::wire_len;

/// Picoseconds of a nanosecond: the time on a wire is counted in them, or a 400 Gb/s link would be
/// a percent slow.
const PICO: u64 = 1000;

/// What can happen to a frame on a link, by chance: parts of one, each drawn for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// It vanishes.
    pub loss: f64,
    /// A bit flips.
    pub corruption: f64,
    /// It comes twice.
    pub duplication: f64,
    /// It is overtaken: comes later by up to [`Self::lateness`].
    pub reordering: f64,
    /// Most that an overtaken frame is late.
    pub lateness: Span,
    /// By so much all of them come later: the link is longer.
    pub delay: Span,
}

impl Impairment {
    /// Whether nothing happens.
    pub fn is_none(&self) -> bool {
        let chances = self.loss + self.corruption + self.duplication + self.reordering;
        chances == 0.0 && self.delay == Span::ZERO
    }
}

/// What became of a frame that was to be sent.
#[derive(Debug)]
pub enum Sent {
    /// It is on its way.
    OnItsWay,
    /// It vanished.
    Lost(Frame),
    /// The link is down.
    Down(Frame),
}

/// Counters of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCount {
    /// Frames that were to be sent.
    pub frames: u64,
    /// Their bytes, less what the link adds.
    pub bytes: u64,
    /// Time that the link was busy sending, in picoseconds.
    pub busy: u64,
    /// Frames that vanished on the way.
    pub lost: u64,
    /// Frames that were to be sent, or were on the way, while the link was down.
    pub down: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that came twice: one more for each.
    pub duplicated: u64,
    /// Frames that were made late.
    pub delayed: u64,
    /// Frames that arrived and did not fit in the receive ring.
    pub overrun: u64,
    /// Frames that arrived where no daemon ran.
    pub no_daemon: u64,
    /// Frames that arrived and were received.
    pub delivered: u64,
    /// PAUSE and PFC frames among those sent.
    pub pauses: u64,
    /// Frames with CE, if it leads to a host.
    pub marked: u64,
}

/// Picoseconds of a byte, times 2^16, at a part of `speed`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part between nothing and one, of a number far below 2^53"
)]
fn per_byte(speed: Rate, part: f64) -> u64 {
    let whole = (8_000_000_000_000_u128 << 16) / u128::from(speed.bps().max(1));
    let whole = u64::try_from(whole).unwrap_or(u64::MAX);
    if part < 1.0 {
        (whole as f64 / part) as u64
    } else {
        whole
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Wire {
    /// Where it begins.
    pub from: End,
    /// Where it ends.
    pub to: End,
    /// Its speed.
    pub speed: Rate,
    /// Time that a frame travels.
    pub delay: Span,
    /// Picoseconds of a byte, times 2^16.
    per_byte: u64,
    /// Bytes of line time that a frame takes beside those in memory.
    framing: u64,
    /// The part of its speed that it has.
    part: f64,
    /// When the last frame has left, in picoseconds.
    free_at: u64,
    /// In the order in which they arrive.
    in_flight: VecDeque<(Time, Frame)>,
    /// When the frame that was sent last arrives.
    last_arrival: Time,
    up: bool,
    /// Payload has bytes, which can be corrupted.
    carries: bool,
    impairment: Impairment,
    random: Pcg64Mcg,
    /// Frames that no daemon has sent: see `Fabric::inject`.
    pub injected: u64,
    /// What was counted.
    pub count: WireCount,
}

impl Wire {
    /// A link that is up, whose chances are drawn from `seed`; `carries` says whether payload has
    /// bytes.
    pub fn new(
        (from, to): (End, End),
        (speed, delay): (Rate, Span),
        carries: bool,
        seed: u64,
    ) -> Self {
        Self {
            from,
            to,
            speed,
            delay,
            per_byte: per_byte(speed, 1.0),
            framing: LINE_OVERHEAD,
            part: 1.0,
            free_at: 0,
            in_flight: VecDeque::new(),
            last_arrival: Time::ZERO,
            up: true,
            carries,
            impairment: Impairment::default(),
            random: Pcg64Mcg::new(u128::from(seed) << 64 | 0x5851_f42d),
            injected: 0,
            count: WireCount::default(),
        }
    }

    /// The same, on which each frame takes so many bytes of line time beside those in memory.
    #[must_use]
    pub fn with_framing(mut self, framing: u64) -> Self {
        self.framing = framing;
        self
    }

    /// Frames that are on the way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether it carries frames.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether all that was sent so far has left by `then`.
    pub fn is_free(&self, then: Time) -> bool {
        self.free_at <= then.nanos().saturating_mul(PICO)
    }

    /// When all that was sent so far has left, in picoseconds.
    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// The point in time at which all that was sent so far has left.
    #[inline]
    pub fn left_at(&self) -> Time {
        Time::from_nanos(self.free_at.div_ceil(PICO))
    }

    /// From the next frame on it has this part of its speed.
    pub fn set_part(&mut self, part: f64) {
        self.part = part;
        self.per_byte = per_byte(self.speed, part);
    }

    /// The part of its speed that it has.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// Changes what can happen to frames.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.impairment = impairment;
    }

    /// Pulls the plug, or puts it back. What was on the way is lost: it is returned.
    pub fn set_up(&mut self, up: bool) -> Vec<Frame> {
        self.up = up;
        if up {
            return Vec::new();
        }
        self.count.down += self.in_flight.len() as u64;
        self.in_flight.drain(..).map(|(_, frame)| frame).collect()
    }

    /// Sends a frame at `now`: it follows those that are being sent.
    pub fn send(&mut self, mut frame: Frame, now: Time) -> Sent {
        let len = frame.len() as u64;
        self.count.frames += 1;
        self.count.bytes += len;
        if !self.up {
            self.count.down += 1;
            return Sent::Down(frame);
        }
        let taken = self.time_of(len);
        let left = self.free_at.max(now.nanos().saturating_mul(PICO)) + taken;
        self.free_at = left;
        self.count.busy += taken;
        let mut arrival = Time::from_nanos(left.div_ceil(PICO)) + self.delay;
        if self.impairment.is_none() {
            self.put(arrival, frame);
            return Sent::OnItsWay;
        }
        arrival += self.impairment.delay;
        if self.happens(self.impairment.loss) {
            self.count.lost += 1;
            return Sent::Lost(frame);
        }
        if self.happens(self.impairment.corruption) {
            self.count.corrupted += 1;
            self.flip_a_bit(&mut frame);
        }
        if self.happens(self.impairment.reordering) {
            self.count.delayed += 1;
            let most = self.impairment.lateness.nanos().max(1);
            arrival += Span::from_nanos(1 + self.random.next_u64() % most);
        }
        self.put(arrival, frame);
        Sent::OnItsWay
    }

    /// Puts a frame on its way, behind those that arrive before it.
    #[inline]
    fn put(&mut self, arrival: Time, frame: Frame) {
        self.last_arrival = arrival;
        match self.in_flight.back() {
            Some((last, _)) if *last > arrival => {
                let place = self.in_flight.partition_point(|(at, _)| *at <= arrival);
                self.in_flight.insert(place, (arrival, frame));
            }
            _ => self.in_flight.push_back((arrival, frame)),
        }
    }

    /// Whether the frame that was just sent comes twice; its copy is put behind it with
    /// [`Self::follow`].
    pub fn duplicates(&mut self) -> bool {
        !self.impairment.is_none() && self.up && self.happens(self.impairment.duplication)
    }

    /// Puts a copy of the last frame behind it.
    pub fn follow(&mut self, copy: Frame) {
        self.count.duplicated += 1;
        self.put(self.last_arrival, copy);
    }

    /// The frame that was sent last, if it is on its way.
    pub fn last(&self) -> Option<&Frame> {
        let behind = self
            .in_flight
            .partition_point(|(at, _)| *at <= self.last_arrival);
        let (_, frame) = self.in_flight.get(behind.checked_sub(1)?)?;
        Some(frame)
    }

    /// Fetches what says which frames arrive first.
    pub fn fetch_first(&self) {
        let (first, _) = self.in_flight.as_slices();
        prefetch_all(&first[..first.len().min(4)]);
    }

    /// When the first frame that is on the way arrives.
    #[inline]
    pub fn next_arrival(&self) -> Option<Time> {
        self.in_flight.front().map(|(at, _)| *at)
    }

    /// Takes the first frame that is on the way, if it has arrived.
    #[inline]
    pub fn arrived(&mut self, now: Time) -> Option<Frame> {
        match self.in_flight.front() {
            Some((at, _)) if *at <= now => self.in_flight.pop_front().map(|(_, frame)| frame),
            _ => None,
        }
    }

    /// Picoseconds that a frame of `len` bytes takes to be sent.
    #[inline]
    pub fn time_of(&self, len: u64) -> u64 {
        let bytes = wire_len(len) - LINE_OVERHEAD + self.framing;
        bytes.saturating_mul(self.per_byte) >> 16
    }

    fn happens(&mut self, chance: f64) -> bool {
        if chance <= 0.0 {
            return false;
        }
        #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
        let drawn = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < chance
    }

    /// Flips a bit of what the frame has of bytes. Payload that has only a length is spared:
    /// flipping a bit of the ICRC instead has the same result at the receiver.
    fn flip_a_bit(&mut self, frame: &mut Frame) {
        /// Headers that are always there: Ethernet, IPv4, UDP and BTH.
        const HEADERS: usize = 14 + 20 + 8 + 12;
        const ICRC: usize = 4;
        let len = frame.len();
        let real = if self.carries {
            len
        } else {
            len.min(HEADERS + ICRC)
        };
        let bit =
            usize::try_from(self.random.next_u64() % (real as u64 * 8)).expect("a frame is small");
        let (byte, bit) = (bit / 8, bit % 8);
        let at = if len > real && byte >= HEADERS {
            len - real + byte
        } else {
            byte
        };
        frame.bytes_mut()[at] ^= 1 << bit;
    }
}
