//! How the link of a port has fared.

use common::netlink::Link;
use std::time::SystemTime;

/// The link of a port now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// There is an interface.
    pub present: bool,
    /// It is set up by the administrator.
    pub admin_up: bool,
    /// It has a carrier, or the kernel knows no better.
    pub carrier: bool,
}

impl LinkState {
    /// The state of `link`, if there is one.
    pub fn of(link: Option<&Link>) -> Self {
        Self {
            present: link.is_some(),
            admin_up: link.is_some_and(|link| link.up),
            carrier: link.is_some_and(|link| link.running),
        }
    }

    /// Whether packets can pass.
    pub const fn is_up(self) -> bool {
        self.present && self.admin_up && self.carrier
    }

    /// Why packets cannot pass; `None`: they can.
    pub const fn why_down(self) -> Option<&'static str> {
        match self {
            Self { present: false, .. } => Some("there is no such interface"),
            Self {
                admin_up: false, ..
            } => Some("it is set down"),
            Self { carrier: false, .. } => Some("no carrier"),
            _ => None,
        }
    }
}

/// The link of a port now, and how often it changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHistory {
    /// Now; `None` before it was first looked at.
    pub now: Option<LinkState>,
    /// Times that it came up.
    pub ups: u64,
    /// Times that it went down, or away.
    pub downs: u64,
    /// When it last did either.
    pub changed: Option<SystemTime>,
}

impl LinkHistory {
    /// The link is like this now. Returns whether it came up (`true`) or went down (`false`), if it
    /// did.
    pub fn note(&mut self, state: LinkState, at: SystemTime) -> Option<bool> {
        let before = self.now.replace(state)?;
        if before.is_up() == state.is_up() {
            return None;
        }
        let count = if state.is_up() {
            &mut self.ups
        } else {
            &mut self.downs
        };
        *count += 1;
        self.changed = Some(at);
        Some(state.is_up())
    }
}
