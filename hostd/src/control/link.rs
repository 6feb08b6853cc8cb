//! What changes of an interface while the daemon runs: its speeds, its MTU, whether packets can
//! pass.

use crate::verbs::Speeds;
use common::units::Rate;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What the configuration says of the speeds of an interface; what it leaves out is the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// What packets are paced to.
    pub speed: Option<Rate>,
    /// What bits take on the link.
    pub link_speed: Option<Rate>,
}

impl Wanted {
    /// The speeds with a device of this speed; `None`: nobody says what packets are to be paced to.
    pub fn speeds(self, device: Option<Rate>) -> Option<Speeds> {
        let pacing = self.speed.or(device)?;
        let link = self.link_speed.or(device).unwrap_or(pacing);
        Some(Speeds { pacing, link })
    }
}

/// Whether packets can pass an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// It is set up and has a carrier.
    #[default]
    Up,
    /// Its administrator has set it down.
    Down,
    /// It is set up and has no carrier.
    NoCarrier,
    /// It was deleted, or moved to another network namespace. What hostd has open of it never
    /// works again.
    Gone,
}

impl LinkState {
    /// What the kernel says of a link; `None`: there is none.
    pub fn of(link: Option<&common::netlink::Link>) -> Self {
        match link {
            None => Self::Gone,
            Some(link) if !link.up => Self::Down,
            Some(link) if !link.running => Self::NoCarrier,
            Some(_) => Self::Up,
        }
    }

    /// What is wrong, for operators; `None` if nothing is.
    pub fn problem(self) -> Option<&'static str> {
        match self {
            Self::Up => None,
            Self::Down => Some("is set down"),
            Self::NoCarrier => Some("has no carrier"),
            Self::Gone => Some("is gone: it was deleted or moved to another network namespace"),
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::NoCarrier => "no carrier",
            Self::Gone => "gone",
        })
    }
}

/// What an interface is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its speeds.
    pub speeds: Speeds,
    /// Longest IP packet that its link carries, in bytes.
    pub mtu: u32,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Speeds { pacing, link } = self.speeds;
        write!(f, "MTU {}, paced to {pacing}, link {link}", self.mtu)
    }
}

/// What changes of an interface while the daemon runs. Tasks of the control thread read and change
/// it; the worker is told.
#[derive(Debug)]
pub struct Link {
    wanted: Wanted,
    now: Mutex<Standing>,
    state: Mutex<LinkState>,
}

impl Link {
    /// As it is at the start.
    pub fn new(wanted: Wanted, now: Standing) -> Self {
        Self {
            wanted,
            now: Mutex::new(now),
            state: Mutex::default(),
        }
    }

    /// Whether packets can pass.
    pub fn state(&self) -> LinkState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over whether packets can pass; true if that is news. One that is gone stays so, also
    /// if another one takes its number.
    pub fn set_state(&self, next: LinkState) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *state;
        if before != LinkState::Gone {
            *state = next;
        }
        before != *state
    }

    /// As it is now.
    pub fn now(&self) -> Standing {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the device says now. What it was before, if it is something else; a device
    /// that tells no speed, as one without a carrier, keeps the one it had.
    pub fn adopt(&self, device: Option<Rate>, mtu: u32) -> Option<Standing> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let speeds = match device {
            Some(_) => self.wanted.speeds(device).unwrap_or(now.speeds),
            None => now.speeds,
        };
        let before = std::mem::replace(&mut *now, Standing { speeds, mtu });
        (before != *now).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(wanted: Wanted, device: Option<u64>) -> Option<Link> {
        let speeds = wanted.speeds(device.map(Rate::from_gbps))?;
        Some(Link::new(wanted, Standing { speeds, mtu: 1500 }))
    }

    /// MG-1: an interface that is gone does not come back by itself; the others do.
    #[test]
    fn a_link_that_is_gone_stays_so() {
        let link = link(Wanted::default(), Some(10)).expect("a speed");
        for next in [LinkState::NoCarrier, LinkState::Down, LinkState::Up] {
            assert!(link.set_state(next), "news");
            assert!(!link.set_state(next), "none");
            assert_eq!(link.state(), next);
            assert_eq!(next.problem().is_none(), next == LinkState::Up);
        }
        assert!(link.set_state(LinkState::Gone));
        assert!(!link.set_state(LinkState::Up));
        assert_eq!(link.state(), LinkState::Gone);
    }

    /// HT-45: what the configuration leaves out is the device's, also when that changes.
    #[test]
    fn speeds_follow_the_device_where_nobody_says_them() {
        let [one, ten, hundred] = [1, 10, 100].map(Rate::from_gbps);
        let free = link(Wanted::default(), Some(10)).expect("the device tells one");
        assert_eq!(free.adopt(Some(ten), 1500), None, "the same");
        assert!(free.adopt(Some(hundred), 9000).is_some());
        let speeds = |pacing, link| Speeds { pacing, link };
        assert_eq!(free.now().speeds, speeds(hundred, hundred));
        assert_eq!(free.now().mtu, 9000);
        let before = free.adopt(None, 1400).expect("another MTU");
        assert_eq!(
            (before.mtu, before.speeds),
            (9000, speeds(hundred, hundred))
        );
        assert_eq!(free.now().speeds, before.speeds, "no carrier, no news");

        let paced = Wanted {
            speed: Some(one),
            link_speed: None,
        };
        let paced = link(paced, Some(10)).expect("a speed");
        assert!(paced.adopt(Some(hundred), 1500).is_some());
        assert_eq!(paced.now().speeds, speeds(one, hundred));

        let both = Wanted {
            speed: Some(one),
            link_speed: Some(ten),
        };
        let both = link(both, None).expect("a speed");
        assert_eq!(both.adopt(Some(hundred), 1500), None);
        assert_eq!(both.now().speeds, speeds(one, ten));
        assert!(link(Wanted::default(), None).is_none(), "nobody says it");
    }
}
