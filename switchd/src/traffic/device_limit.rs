//! \[8\] Device limit: how much of a port's line time may lie in its device.
//!
//! What a device has been handed is out of reach: no strict priority overtakes it, no pause stops
//! it, nothing is marked because of it. So a device is given what it can send until the worker is
//! back, and the rest waits in the queues. How much that is, completions tell, as in the byte queue
//! limits of Linux:
//!
//! ```text
//!   handed − completed = backlog         packets wait, backlog = 0    ─▶ starved: a quarter more
//!   room = limit − backlog               ≥ slack left for 10 ms       ─▶ limit − slack ÷ 2
//! ```
//!
//! It costs a turn of a port a few integer operations, and a packet a comparison.

use crate::limits::{DEVICE_HOLD, DEVICE_LEAST, DEVICE_LEAST_BYTES, DEVICE_LEAST_UNSHAPED};
use common::time::{Span, Time};
use common::units::Rate;

/// When a port without a speed looks again at a device that has all it may have.
const LOOK_AGAIN: Span = Span::from_micros(10);

/// What a device takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRoom {
    /// Frames that its ring has room for.
    pub frames: usize,
    /// Bytes of line time that it was handed and has not completed.
    pub backlog: u64,
}

/// The limit of one transmit queue, in bytes of line time.
#[derive(Clone, Debug)]
pub struct DeviceLimit {
    speed: Option<Rate>,
    least: u64,
    most: u64,
    limit: u64,
    /// Packets wait because of it, since it was last looked at.
    is_reached: bool,
    /// The ring had no place for packets that wait, since it was last looked at: short ones fill it
    /// before they reach the limit.
    is_full: bool,
    /// When the device has half of it left; meaningful while it is reached or the ring full.
    ready_at: Time,
    /// The least backlog that was found since `since` where packets waited.
    slack: u64,
    since: Time,
}

impl DeviceLimit {
    /// The limit of a port of this speed that may send `burst` bytes at once: that is the most that
    /// it grows to. Without a speed only the ring limits it.
    pub fn new(speed: Option<Rate>, burst: u32) -> Self {
        let (least, most) = bounds(speed, burst);
        Self {
            speed,
            least,
            most,
            limit: least,
            is_reached: false,
            is_full: false,
            ready_at: Time::ZERO,
            slack: u64::MAX,
            since: Time::ZERO,
        }
    }

    /// Follows a change of the port. What was learnt holds for the same speed and burst only.
    pub fn configure(&mut self, speed: Option<Rate>, burst: u32) {
        if (self.speed, (self.least, self.most)) != (speed, bounds(speed, burst)) {
            *self = Self::new(speed, burst);
        }
    }

    /// Bytes that may be handed to a device of this backlog now. A packet may exceed them if there
    /// are any.
    #[inline]
    pub fn room(&mut self, backlog: u64, now: Time) -> u64 {
        if self.is_reached {
            self.learn(backlog, now);
        }
        self.is_full = false;
        self.limit.saturating_sub(backlog)
    }

    /// Packets wait, and the device, whose backlog was this at least, gets no more of them now.
    #[inline]
    pub fn reached(&mut self, backlog: u64, now: Time) {
        self.is_reached = true;
        let backlog = backlog.max(self.limit);
        self.ready_at = match self.speed {
            Some(speed) => now + speed.time_for(backlog - self.limit / 2),
            None => now + LOOK_AGAIN,
        };
    }

    /// Packets wait, and the ring of the device, whose backlog is this, takes none now. There is
    /// nothing to do until it has sent half.
    #[inline]
    pub fn full(&mut self, backlog: u64, now: Time) {
        self.is_full = true;
        let wait = self.speed.map(|speed| speed.time_for(backlog / 2));
        self.ready_at = now + wait.unwrap_or(LOOK_AGAIN);
    }

    /// Which queues may send has changed: if the device runs empty now, that is no matter of the
    /// limit.
    #[inline]
    pub fn forget(&mut self) {
        self.is_reached = false;
    }

    fn learn(&mut self, backlog: u64, now: Time) {
        self.is_reached = false;
        if backlog == 0 {
            self.limit = self.limit.saturating_add(self.limit / 4).min(self.most);
            (self.slack, self.since) = (u64::MAX, now);
            return;
        }
        self.slack = self.slack.min(backlog);
        if now.since(self.since) >= DEVICE_HOLD {
            let limit = self.limit.saturating_sub(self.slack / 2);
            self.limit = limit.max(self.least);
            (self.slack, self.since) = (u64::MAX, now);
        }
    }

    /// When packets that wait because of it can go on; [`Time::ZERO`] if none do.
    #[inline]
    pub fn ready_at(&self) -> Time {
        if self.is_reached || self.is_full {
            self.ready_at
        } else {
            Time::ZERO
        }
    }

    /// Its value in bytes of line time.
    pub fn bytes(&self) -> u64 {
        self.limit
    }
}

/// The most that the device of a port can hold, a frame aside, in bytes of line time: it is shaped
/// to `speed`, may send `burst` bytes at once, has a link of speed `link`, and is served every
/// `gap` at the latest.
///
/// A limit grows by a quarter when the device ran empty between two turns. So with turns that are
/// never farther apart than the gap, it stays below what the link carries in a gap and a quarter.
/// Where the shaper is another one, a device runs empty because of that, and the limit grows to the
/// burst.
pub fn worst_backlog(speed: Rate, burst: u32, link: Rate, gap: Span) -> u64 {
    let (least, most) = bounds(Some(speed), burst);
    if speed != link {
        return most;
    }
    let carried = speed.bytes_in(gap);
    carried.saturating_add(carried / 4).clamp(least, most)
}

/// The least and the most of the limit of a port.
fn bounds(speed: Option<Rate>, burst: u32) -> (u64, u64) {
    let Some(speed) = speed else {
        return (DEVICE_LEAST_UNSHAPED, u64::MAX);
    };
    let most = u64::from(burst).max(DEVICE_LEAST_BYTES);
    let least = speed.bytes_in(DEVICE_LEAST).max(DEVICE_LEAST_BYTES);
    (least.min(most), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: Rate = Rate::from_gbps(10);
    const BURST: u32 = 125_000;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// SW-15: a device that runs empty while packets wait gets a quarter more, up to the burst; one
    /// that never does gets less again, down to the least.
    #[test]
    fn the_limit_follows_what_the_device_completes() {
        let mut limit = DeviceLimit::new(Some(SPEED), BURST);
        assert_eq!(limit.room(0, at(0)), DEVICE_LEAST_BYTES);
        // An empty device that nobody waited for is no reason to give it more.
        assert_eq!(limit.room(0, at(1)), DEVICE_LEAST_BYTES);
        for (turn, expected) in (0..).zip([10_240, 12_800, 16_000, 20_000, 25_000]) {
            limit.reached(0, at(turn));
            assert_eq!(limit.room(0, at(turn + 1)), expected);
        }
        for turn in 1..20 {
            limit.reached(0, at(turn));
            limit.room(0, at(turn));
        }
        assert_eq!(limit.bytes(), u64::from(BURST));
        // 80,000 bytes are always left: for ten milliseconds that changes nothing.
        for time in (10..10_000).step_by(10) {
            limit.reached(125_000, at(time));
            assert_eq!(limit.room(80_000, at(time + 5)), 45_000);
        }
        limit.reached(125_000, at(10_020));
        assert_eq!(limit.room(100_000, at(10_030)), 0);
        assert_eq!(limit.bytes(), 125_000 - 40_000);
        for time in 2..100 {
            limit.reached(limit.bytes(), at(time * 10_100));
            limit.room(limit.bytes() / 2, at(time * 10_100 + 1));
        }
        assert_eq!(limit.bytes(), DEVICE_LEAST_BYTES);
    }

    /// Short packets fill the ring before its bytes are many. Those that wait go on when half of it
    /// has left, not at once, for there would be nothing to do but look again.
    #[test]
    fn packets_that_wait_for_a_place_in_the_ring_go_on_when_half_has_left() {
        let mut limit = DeviceLimit::new(Some(SPEED), BURST);
        limit.full(4000, at(7));
        assert_eq!(limit.ready_at(), at(7) + SPEED.time_for(2000));
        limit.room(100, at(9));
        assert_eq!(limit.ready_at(), Time::ZERO);
        let mut limit = DeviceLimit::new(None, BURST);
        limit.full(0, at(7));
        assert_eq!(limit.ready_at(), at(7) + LOOK_AGAIN);
    }

    /// Packets that wait go on when half of the limit is left, at the speed of the port.
    #[test]
    fn waiting_packets_go_on_at_half_of_the_limit() {
        let mut limit = DeviceLimit::new(Some(SPEED), BURST);
        assert_eq!(limit.ready_at(), Time::ZERO);
        limit.reached(9192, at(7));
        let rest = SPEED.time_for(9192 - DEVICE_LEAST_BYTES / 2);
        assert_eq!(limit.ready_at(), at(7) + rest);
        limit.room(100, at(9));
        assert_eq!(limit.ready_at(), Time::ZERO);
        // A device that ran empty because of a pause is no reason to give it more.
        limit.reached(9192, at(10));
        limit.forget();
        assert_eq!(limit.ready_at(), Time::ZERO);
        assert_eq!(limit.room(0, at(100)), DEVICE_LEAST_BYTES);
    }

    /// SW-12, SW-15: however late turns are, within a gap, the device holds no more than is planned
    /// for.
    #[test]
    fn the_device_holds_no_more_than_is_planned_for() {
        for gap in [1, 3, 10, 40, 100, 1000] {
            let planned = worst_backlog(SPEED, BURST, SPEED, Span::from_micros(gap));
            let mut limit = DeviceLimit::new(Some(SPEED), BURST);
            let (mut backlog, mut most) = (0_u64, 0);
            for turn in 0..2_000 {
                // Between nothing and a gap.
                let late = Span::from_nanos(gap * 10 * (turn * 7919 % 101));
                let now = at(turn * gap);
                let room = limit.room(backlog, now);
                backlog += room;
                limit.reached(backlog, now);
                most = most.max(backlog);
                backlog = backlog.saturating_sub(SPEED.bytes_in(late));
            }
            assert!(most <= planned, "{gap} µs: {most} of {planned}");
            assert!(most * 2 > planned, "{gap} µs: {most} of {planned}");
        }
        let slow = Rate::from_gbps(1);
        let shaped = worst_backlog(slow, 12_500, SPEED, Span::from_micros(1));
        assert_eq!(shaped, 12_500, "the shaper empties the device");
    }

    /// What was learnt lasts while the port stays as it is, and begins anew with another speed or
    /// burst.
    #[test]
    fn bounds_follow_the_port() {
        let mut limit = DeviceLimit::new(None, 0);
        limit.reached(1 << 16, at(0));
        let learnt = DEVICE_LEAST_UNSHAPED * 5 / 4;
        assert_eq!(limit.room(0, at(1)), learnt);
        limit.configure(None, 0);
        assert_eq!(limit.bytes(), learnt);
        limit.configure(Some(SPEED), 5_000);
        assert_eq!(limit.bytes(), DEVICE_LEAST_BYTES);
        limit.configure(Some(Rate::from_gbps(400)), 5_000_000);
        assert_eq!(limit.bytes(), Rate::from_gbps(400).bytes_in(DEVICE_LEAST));
    }
}
