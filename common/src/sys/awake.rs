//! Staying awake between two messages that follow each other sooner than a thread is woken.
//!
//! A thread that waits in a system call is woken by who brings it something: that takes longer than
//! a small collective has between two of its messages, and of all threads on the way each has to be
//! woken. One that stays awake gives its core to others each time that it finds nothing. If it gets
//! it back late, the core has other work, and sleeping is better: who sleeps goes before that when
//! something comes, who is awake waits until it is done.

use crate::time::{Span, Time};

/// How long after the last message: more than others take to answer it, also where several ranks
/// share a core.
const STAY: Span = Span::from_micros(500);

/// A core that was given away for so long has other work: those who answer each other have it for
/// some microseconds each, what computes for a slice of the scheduler, which is 3 ms.
const AWAY: Span = Span::from_millis(1);

/// How long nothing is given away then: so that costs a thirtieth of the time at most.
const REST: Span = Span::from_millis(100);

/// Whether a thread stays awake.
#[derive(Clone, Copy, Debug)]
pub struct Awake {
    messages: u64,
    /// It stays until then, but not before the time that the core had other work is over.
    until: Time,
    rests: Time,
    /// When it gave its core away.
    gave: Option<Time>,
}

impl Awake {
    /// One that has had no message.
    pub fn new() -> Self {
        Self {
            messages: 0,
            until: Time::ZERO,
            rests: Time::ZERO,
            gave: None,
        }
    }

    /// Takes note, once in each turn, of how many messages there were so far. Whether to stay awake
    /// if there is nothing to do.
    pub fn stays(&mut self, messages: u64, now: Time) -> bool {
        if let Some(gave) = self.gave.take()
            && now.since(gave) > AWAY
        {
            self.rests = now + REST;
        }
        if messages != self.messages {
            (self.messages, self.until) = (messages, now + STAY);
        }
        now < self.until && now >= self.rests
    }

    /// Gives the core to others once. `now`: when this turn began.
    pub fn give_way(&mut self, now: Time) {
        self.gave = Some(now);
        std::thread::yield_now();
    }
}

impl Default for Awake {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_secs(1) + Span::from_micros(micros)
    }

    /// SW-40: a thread stays awake for a while after each message, and sleeps without.
    #[test]
    fn messages_keep_a_thread_awake() {
        let mut awake = Awake::new();
        assert!(!awake.stays(0, at(0)));
        assert!(awake.stays(1, at(1)));
        awake.give_way(at(1));
        assert!(awake.stays(1, at(500)));
        assert!(!awake.stays(1, at(501)));
        assert!(awake.stays(3, at(700)));
        assert!(!awake.stays(3, at(1_200)));
    }

    /// SW-40: where the core has other work a thread sleeps for a while; its own work is no
    /// sign of that.
    #[test]
    fn a_core_with_other_work_is_slept_on() {
        let mut awake = Awake::new();
        assert!(awake.stays(1, at(0)));
        assert!(awake.stays(2, at(3_000)), "it worked for long");
        awake.give_way(at(3_000));
        assert!(!awake.stays(3, at(6_000)));
        assert!(!awake.stays(4, at(105_000)));
        assert!(awake.stays(5, at(106_000)));
        awake.give_way(at(106_000));
        assert!(awake.stays(5, at(106_499)));
    }
}
