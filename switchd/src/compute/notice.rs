//! What control is told of jobs, for events: as many a second as people read.

use common::time::{Span, Time};
use common::wire::compute::{Reason, Verdict};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Jobs that are told of in a second: all of a worker as shipped, twice.
const JOBS: u32 = 32;

/// Refusals of members that are told of in a second. They can be made to happen from outside, so
/// they have a share of their own.
const REFUSALS: u32 = 4;

/// Something that happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The job.
    pub job: u32,
    /// What.
    pub happening: Happening,
}

/// What happens to jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// An operator has reserved what it needs.
    Reserved {
        /// Members.
        members: u16,
        /// Slots.
        slots: u16,
        /// How long its first member may take to come.
        lease: Span,
    },
    /// Nobody joined what was reserved.
    Unused,
    /// All members are here, and it runs.
    Runs {
        /// Members.
        members: u16,
        /// Slots.
        slots: u16,
        /// Switches above.
        parents: u16,
    },
    /// It ran, and is over.
    Over {
        /// Why.
        reason: Reason,
        /// The world rank that is to blame.
        blamed: Option<u16>,
    },
    /// It formed, and will not run.
    Refused {
        /// Why.
        reason: Reason,
        /// The world rank that is to blame.
        blamed: Option<u16>,
    },
    /// A member was refused.
    MemberRefused {
        /// Why.
        reason: Reason,
        /// Whose JOIN it was.
        source: IpAddr,
    },
}

impl Happening {
    /// How a job ends.
    pub(super) fn end(verdict: Verdict, has_run: bool) -> Self {
        let (reason, blamed) = (verdict.reason, verdict.blamed());
        match has_run {
            true => Self::Over { reason, blamed },
            false => Self::Refused { reason, blamed },
        }
    }
}

/// So much in a second.
#[derive(Debug)]
struct Share {
    most: u32,
    left: u32,
    until: Time,
}

impl Share {
    const fn new(most: u32) -> Self {
        Self {
            most,
            left: 0,
            until: Time::ZERO,
        }
    }

    /// Whether there is something left of it, which is taken.
    fn take(&mut self, now: Time) -> bool {
        if now >= self.until {
            (self.left, self.until) = (self.most, now + Span::from_secs(1));
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// What is to be told.
#[derive(Debug)]
pub(super) struct Notices {
    waiting: VecDeque<Notice>,
    jobs: Share,
    refusals: Share,
    /// The last refusal of a member, which repeats its JOIN.
    last: Option<Notice>,
}

impl Notices {
    /// Most that wait to be taken.
    const MOST: usize = (JOBS + REFUSALS) as usize;

    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(Self::MOST),
            jobs: Share::new(JOBS),
            refusals: Share::new(REFUSALS),
            last: None,
        }
    }

    /// Something has happened. Whether it will be told, or is the last refusal once more.
    pub(super) fn add(&mut self, job: u32, happening: Happening, now: Time) -> bool {
        let notice = Notice { job, happening };
        let is_told = match happening {
            Happening::MemberRefused { .. } if self.last.replace(notice) == Some(notice) => {
                return true;
            }
            Happening::MemberRefused { .. } => self.refusals.take(now),
            _ => self.jobs.take(now),
        };
        let has_room = self.waiting.len() < Self::MOST;
        if is_told && has_room {
            self.waiting.push_back(notice);
        }
        is_told && has_room
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> Option<Notice> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn taken(notices: &mut Notices) -> usize {
        std::iter::from_fn(|| notices.next()).count()
    }

    /// SW-42: however much happens, so much is told in a second; who is refused again and again is
    /// told of once, and takes nothing from what is told of jobs.
    #[test]
    fn notices_are_bounded_in_rate() {
        let refused = |last: u8| Happening::MemberRefused {
            reason: Reason::Full,
            source: Ipv4Addr::new(10, 0, 0, last).into(),
        };
        let over = Happening::Over {
            reason: Reason::Finished,
            blamed: None,
        };
        let mut notices = Notices::new();
        let begin = Time::from_nanos(1_000_000_000);
        for second in 0..3 {
            let now = begin + Span::from_secs(second);
            for _ in 0..100 {
                assert!(notices.add(7, refused(200), now));
            }
            let told = (0..100).filter(|it| notices.add(7, refused(*it), now));
            assert_eq!(told.count(), 3);
            let told = (0..100).filter(|_| notices.add(7, over, now));
            assert_eq!(told.count(), 32);
            assert_eq!(taken(&mut notices), 36);
        }
        // Nobody takes them.
        for second in 10..20 {
            let now = begin + Span::from_secs(second);
            for _ in 0..100 {
                notices.add(7, over, now);
            }
        }
        assert_eq!(taken(&mut notices), Notices::MOST);
    }
}
