//! The worker's thread: turns while there is work, sleep otherwise.
//!
//! ```text
//!   turn ──work──▶ turn
//!     │ none
//!     ▼
//!   stay awake for a while after a message of a collective at switches, and give the core to
//!   others meanwhile ──none──▶ sleep: the queues' sockets, doorbells, the waker, the deadline
//! ```

use super::Worker;
use crate::net::sleep::Sleeper;
use common::sys::{Awake, monotonic};
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::queue::QueueIo;
use std::io;

/// Sleeps shorter than this are not worth their system calls, if the pacer can catch up after them.
const NAP: Span = Span::from_micros(50);

/// How often a worker that does not sleep looks for doorbells of sessions that were long quiet.
const LOOK: Span = Span::from_micros(50);

/// The shortest sleep at a speed: meanwhile the line carries at most half of the pacer's burst.
fn nap_at(speed: Rate, pacer_burst: u32) -> Span {
    NAP.min(speed.time_for(u64::from(pacer_burst / 2)))
}

/// The worker's thread, until the worker is told to end.
///
/// # Errors
/// The kernel lacks memory, and sleep is not possible.
pub(crate) fn run<Q: QueueIo>(
    mut worker: Worker<Q>,
    mut sleeper: Sleeper,
    pacer_burst: u32,
) -> io::Result<()> {
    let mut nap = (Rate::default(), NAP);
    let mut look = Time::ZERO;
    let mut awake = Awake::new();
    loop {
        let now = monotonic();
        let turn = worker.turn(now);
        let stays = awake.stays(worker.collective_messages(), now);
        if turn.stop {
            return Ok(());
        }
        let is_busy = turn.work > 0 || turn.deadline <= now;
        if is_busy || stays {
            if !is_busy {
                awake.give_way(now);
            }
            if now >= look && worker.has_dormant() {
                look = now + LOOK;
                sleeper.look()?;
                worker.rang(sleeper.rang());
            }
            continue;
        }
        worker.publish_now(now);
        if !worker.may_sleep() {
            continue;
        }
        if nap.0 != worker.pacing() {
            nap = (worker.pacing(), nap_at(worker.pacing(), pacer_burst));
        }
        let slept = sleeper.sleep(turn.deadline.max(now + nap.1));
        worker.wake_up(sleeper.rang());
        slept?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_are_short_on_fast_lines() {
        assert_eq!(nap_at(Rate::from_gbps(1), 128 * 1024), NAP);
        let fast = nap_at(Rate::from_gbps(100), 128 * 1024);
        // The time is rounded up, so a byte more than half may pass.
        assert!(Rate::from_gbps(100).bytes_in(fast) <= 64 * 1024 + 13);
        assert!(fast >= Span::from_micros(5));
    }
}
