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

/// How often the carrier of an interface came and went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carriers {
    ifindex: u32,
    ups: u32,
    downs: u32,
}

impl Carriers {
    /// Those of `link`, if there is one.
    pub fn of(link: Option<&Link>) -> Option<Self> {
        link.map(|link| Self {
            ifindex: link.index,
            ups: link.carrier_ups,
            downs: link.carrier_downs,
        })
    }

    /// Times that it came and went since `before`; none if that was another interface.
    fn since(self, before: Self) -> (u32, u32) {
        if self.ifindex != before.ifindex {
            return (0, 0);
        }
        let ups = self.ups.saturating_sub(before.ups);
        (ups, self.downs.saturating_sub(before.downs))
    }

    /// As before all but so many of these, which are not more than there were.
    fn after(self, before: Self, (ups, downs): (u32, u32)) -> Self {
        let (all_ups, all_downs) = self.since(before);
        Self {
            ups: self.ups - all_ups.saturating_sub(ups),
            downs: self.downs - all_downs.saturating_sub(downs),
            ..self
        }
    }
}

/// How a link changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// It is up now.
    pub is_up: bool,
    /// Times before that that it went down and came up, or the other way round, and no message
    /// told.
    pub unseen: u64,
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
    carriers: Option<Carriers>,
}

impl LinkHistory {
    /// The link is like this now, and its carrier came and went so often. Returns how it changed,
    /// if it did.
    ///
    /// A link that was up and is up went down as often as it came up, whatever of that was told.
    /// The kernel counts first and tells then: what it has counted and the state does not show
    /// belongs to the next message.
    pub fn note(
        &mut self,
        state: LinkState,
        carriers: Option<Carriers>,
        at: SystemTime,
    ) -> Option<LinkChange> {
        let known = std::mem::replace(&mut self.carriers, carriers);
        let before = self.now.replace(state)?;
        // What a device does that is set down is nothing to its link.
        let known = known.filter(|_| before.admin_up || state.admin_up);
        let counted = carriers.zip(known);
        let (ups, downs) = counted.map_or((0, 0), |(now, known)| now.since(known));
        let was_up = before.is_up();
        let is_other = u32::from(was_up != state.is_up());
        let (first, back) = if was_up { (downs, ups) } else { (ups, downs) };
        let first = first.min(back + is_other).max(is_other);
        let unseen = first - is_other;
        let (ups, downs) = if was_up {
            (unseen, first)
        } else {
            (first, unseen)
        };
        if let Some((now, known)) = counted {
            self.carriers = Some(now.after(known, (ups, downs)));
        }
        if first == 0 {
            return None;
        }
        self.ups += u64::from(ups);
        self.downs += u64::from(downs);
        self.changed = Some(at);
        Some(LinkChange {
            is_up: state.is_up(),
            unseen: unseen.into(),
        })
    }
}
