//! Clocks.

use std::time::Duration;

/// Processor time that this thread has used: what a pure computation is measured by, since other
/// processes do not add to it when they take turns on the core.
pub fn busy_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    clock.now().map_or(Duration::ZERO, Duration::from)
}

/// Nanoseconds of processor time for each of `count` things since `began`.
pub fn nanos_each(began: Duration, count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let nanos = (busy_time() - began).as_nanos() as f64 / count as f64;
    nanos
}

/// Millions of `count` things for each second of processor time since `began`.
pub fn millions_each_second(began: Duration, count: u64) -> f64 {
    1e3 / nanos_each(began, count)
}
