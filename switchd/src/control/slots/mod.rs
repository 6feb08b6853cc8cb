//! Which interface is which port, while interfaces come and go (SW-1). Pure: the kernel's links
//! come in, steps come out; [`State`](super::state::State) takes them.
//!
//! The switch has a fixed number of slots: everything that has a place for each port is made for
//! so many at the start. A slot belongs to a name: a port that comes back has its old number,
//! counters and settings.
//!
//! ```text
//!   Vacant ──▶ Opening ──opened──▶ Open ──gone, renamed──▶ Closing ──closed──▶ Absent
//!     ▲          ▲ ▲ │              │                       ▲   │                │ │
//!     │          │ │ └─refused─┐    └─MTU too large─────────┘   │                │ │
//!     │          │ │           ▼                                │                │ │
//!     │          │ └─later── Failed ◀──closed, and why──────────┘                │ │
//!     │          │             └──gone──────────────────────────────────────────▶│ │
//!     │          └────────────────────comes back, or another takes the slot──────┘ │
//!     └───────────────────────────────no port after all (never was)────────────────┘
//! ```
//!
//! A port that came by a pattern is `Forgotten` instead of `Absent`: who deletes such an interface
//! wants no port.

mod link;

pub use link::{Carriers, LinkChange, LinkHistory, LinkState};

use crate::config::{Config, PortSettings};
use common::netlink::{Link, Mirror};
use common::time::{Span, Time};
use std::collections::{BTreeMap, HashMap, HashSet};

/// First wait before a port that could not be opened is tried again; each further one is twice as
/// long.
const RETRY_FIRST: Span = Span::from_millis(500);

/// Longest wait between two tries.
const RETRY_LAST: Span = Span::from_secs(30);

/// A slot is given to another name only so long after its interface went: by then no packet is on
/// its way to the old one.
const REST: Span = Span::from_secs(1);

/// How far the port of a slot is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// No port has it.
    #[default]
    Vacant,
    /// Its interface is gone, and the configuration has it by name.
    Absent,
    /// Its interface is gone, and was a port by a pattern only: there is no such port now. The slot
    /// keeps its name for an interface that comes back, until another needs it.
    Forgotten {
        /// Since when.
        since: Time,
    },
    /// Its interface is being opened.
    Opening {
        /// The interface.
        ifindex: u32,
        /// Which one it is of those that have had its number.
        arrival: Option<u64>,
    },
    /// It forwards while its link is up.
    Open {
        /// The interface.
        ifindex: u32,
        /// Which one it is of those that have had its number; `None`: it is not looked at yet.
        arrival: Option<u64>,
        /// The largest MTU that it may have.
        mtu_limit: u32,
    },
    /// The workers let it go, then its sockets are closed.
    Closing {
        /// The interface.
        ifindex: u32,
        /// Why, if its interface is still there.
        why: Option<String>,
    },
    /// Its interface is there and could not be opened.
    Failed {
        /// Why.
        why: String,
        /// The next try.
        retry_at: Time,
        /// With another one it is tried at once.
        seen: Seen,
    },
}

/// An interface that could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    ifindex: u32,
    arrival: Option<u64>,
    /// Its MTU; 0: that was not known.
    mtu: u32,
}

impl Seen {
    /// Whether this is another interface, or has another MTU.
    fn differs(self, mirror: &Mirror, link: &Link) -> bool {
        let is_it = (self.ifindex, self.arrival) == (link.index, mirror.arrival(link.index));
        !is_it || (self.mtu != 0 && self.mtu != link.mtu)
    }
}

/// A slot.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// Whose it is; `None`: nobody's.
    pub settings: Option<PortSettings>,
    /// How far it is.
    pub stage: Stage,
    /// Its link.
    pub link: LinkHistory,
    /// Tries that failed, one after the other.
    failures: u32,
}

impl Slot {
    /// The name of the port; empty if there is none.
    pub fn name(&self) -> &str {
        self.settings.as_ref().map_or("", |port| &port.name)
    }

    /// The interface that the port has, if it is open.
    pub fn ifindex(&self) -> Option<u32> {
        match self.stage {
            Stage::Open { ifindex, .. } => Some(ifindex),
            _ => None,
        }
    }

    /// Whether there is such a port: it is open, to be opened, or missed.
    pub fn is_port(&self) -> bool {
        !matches!(self.stage, Stage::Vacant | Stage::Forgotten { .. })
    }

    /// Whether it has a socket on this interface, or may have.
    fn holds(&self, interface: u32) -> bool {
        match self.stage {
            Stage::Opening { ifindex, .. }
            | Stage::Open { ifindex, .. }
            | Stage::Closing { ifindex, .. } => ifindex == interface,
            _ => false,
        }
    }

    /// The state of the port in a word.
    pub fn state(&self) -> &'static str {
        let up = self.link.now.is_some_and(LinkState::is_up);
        match &self.stage {
            Stage::Vacant => "vacant",
            Stage::Absent => "absent",
            Stage::Forgotten { .. } => "forgotten",
            Stage::Opening { .. } => "opening",
            Stage::Open { .. } if up => "up",
            Stage::Open { .. } => "down",
            Stage::Closing { .. } => "closing",
            Stage::Failed { .. } => "failed",
        }
    }

    /// Why no packets pass; `None`: they do.
    pub fn why_down(&self) -> Option<String> {
        match &self.stage {
            Stage::Vacant | Stage::Forgotten { .. } => None,
            Stage::Absent | Stage::Closing { why: None, .. } => {
                Some("there is no such interface".to_owned())
            }
            Stage::Opening { .. } => Some("it is being opened".to_owned()),
            Stage::Open { .. } => self.link.now?.why_down().map(str::to_owned),
            Stage::Closing { why: Some(why), .. } | Stage::Failed { why, .. } => Some(why.clone()),
        }
    }

    fn fail(&mut self, why: String, seen: Seen, now: Time) {
        let wait = RETRY_FIRST.nanos() << self.failures.min(16);
        self.failures += 1;
        self.stage = Stage::Failed {
            why,
            retry_at: now + Span::from_nanos(wait.min(RETRY_LAST.nanos())),
            seen,
        };
    }
}

/// What is to be done with a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Open its interface.
    Open,
    /// Have its port let go and closed: the interface is gone, or has another name or MTU.
    Close,
    /// Its interface has another name now, under which it stays a port with these settings, which
    /// the slot has already.
    Rename(PortSettings),
    /// Nothing but to say so: its interface is gone for good, as far as anybody can tell.
    Forget,
}

/// The slots of a switch.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    /// Interfaces that match and are no ports, because no slot is free, and why.
    refused: BTreeMap<String, String>,
    /// Times that an interface was refused.
    refusals: u64,
    /// Times that a port was forgotten.
    forgotten: u64,
    /// Interfaces that match and can be no ports.
    unfit: HashSet<(u32, Option<u64>)>,
    /// By slot: the name of the port that was open in it last.
    last: Vec<String>,
}

impl Slots {
    /// `ports` are open, with the number of their interface and the largest MTU of each; so many
    /// more may come.
    pub fn new(ports: impl Iterator<Item = (PortSettings, u32, u32)>, spare: usize) -> Self {
        let open = |(settings, ifindex, mtu_limit)| Slot {
            settings: Some(settings),
            stage: Stage::Open {
                ifindex,
                arrival: None,
                mtu_limit,
            },
            ..Slot::default()
        };
        let mut slots: Vec<Slot> = ports.map(open).collect();
        slots.resize(slots.len() + spare, Slot::default());
        Self {
            last: slots.iter().map(|slot| slot.name().to_owned()).collect(),
            slots,
            ..Self::default()
        }
    }

    /// The slots, by number of the port.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// A slot.
    pub fn get(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)
    }

    /// Times that an interface found no free slot.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Times that a port by a pattern was forgotten because its interface was gone.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// When a port is to be tried again.
    pub fn deadline(&self) -> Time {
        let retries = self.slots.iter().map(|slot| match slot.stage {
            Stage::Failed { retry_at, .. } => retry_at,
            _ => Time::NEVER,
        });
        let rests = self.slots.iter().map(|slot| match slot.stage {
            // Somebody waits for a slot.
            Stage::Forgotten { since } if !self.refused.is_empty() => since + REST,
            _ => Time::NEVER,
        });
        retries.chain(rests).fold(Time::NEVER, Time::min)
    }

    /// Compares the slots with the kernel's links. Returns what is to be done, by slot, and
    /// the interfaces that were refused just now.
    pub fn follow(
        &mut self,
        mirror: &Mirror,
        config: &Config,
        now: Time,
    ) -> (Vec<(usize, Step)>, Vec<String>) {
        let by_name: HashMap<&str, &Link> = mirror
            .links()
            .map(|link| (link.name.as_str(), link))
            .collect();
        let mut steps = Vec::new();
        for number in 0..self.slots.len() {
            if let Some(step) = self.follow_one(number, mirror, &by_name, config, now) {
                steps.push((number, step));
            }
        }
        let refused = self.take_in(mirror, &by_name, config, now, &mut steps);
        (steps, refused)
    }

    fn follow_one(
        &mut self,
        number: usize,
        mirror: &Mirror,
        by_name: &HashMap<&str, &Link>,
        config: &Config,
        now: Time,
    ) -> Option<Step> {
        if let Stage::Open {
            ifindex,
            arrival: arrival @ None,
            ..
        } = &mut self.slots[number].stage
        {
            *arrival = mirror.arrival(*ifindex);
        }
        let slot = &self.slots[number];
        let name = slot.name();
        match &slot.stage {
            Stage::Vacant | Stage::Opening { .. } | Stage::Closing { .. } => None,
            Stage::Open {
                ifindex,
                arrival,
                mtu_limit,
            } => {
                let why = match mirror.link(*ifindex) {
                    None => None,
                    // It went, and this one came under its number: its sockets went, too.
                    Some(_) if mirror.arrival(*ifindex) != *arrival => None,
                    Some(link) if link.name != name => {
                        if let Some(settings) = self.renamed(number, link, config) {
                            self.last[number].clone_from(&settings.name);
                            self.slots[number].settings = Some(settings.clone());
                            return Some(Step::Rename(settings));
                        }
                        None
                    }
                    Some(link) if link.mtu > *mtu_limit => Some(format!(
                        "MTU {} is above {mtu_limit}, the most that AF_XDP carries here: \
                         ip link set dev {name} mtu {mtu_limit}",
                        link.mtu
                    )),
                    Some(_) => return None,
                };
                let ifindex = *ifindex;
                self.slots[number].stage = Stage::Closing { ifindex, why };
                Some(Step::Close)
            }
            Stage::Forgotten { .. } => self.open(number, mirror, by_name.get(name).copied()),
            Stage::Absent => match by_name.get(name) {
                None => self.forget(number, config, now),
                link => self.open(number, mirror, link.copied()),
            },
            Stage::Failed { retry_at, seen, .. } => match by_name.get(name) {
                None => {
                    let slot = &mut self.slots[number];
                    (slot.stage, slot.failures) = (Stage::Absent, 0);
                    self.forget(number, config, now)
                }
                Some(link) if now >= *retry_at || seen.differs(mirror, link) => {
                    self.open(number, mirror, Some(link))
                }
                Some(_) => None,
            },
        }
    }

    /// The settings under which the port of a slot goes on with its new name.
    fn renamed(&self, number: usize, link: &Link, config: &Config) -> Option<PortSettings> {
        let next = config.settings_of(&link.name)?;
        let is_taken = self.slots.iter().any(|slot| slot.name() == link.name);
        let before = self.slots[number].settings.as_ref()?;
        let same = PortSettings {
            name: before.name.clone(),
            ..next.clone()
        };
        (same == *before && !is_taken).then_some(next)
    }

    fn open(&mut self, number: usize, mirror: &Mirror, link: Option<&Link>) -> Option<Step> {
        let ifindex = link?.index;
        let arrival = mirror.arrival(ifindex);
        self.slots[number].stage = Stage::Opening { ifindex, arrival };
        Some(Step::Open)
    }

    /// The interface of a slot is gone: if nobody asked for it by name, there is no such port.
    fn forget(&mut self, number: usize, config: &Config, now: Time) -> Option<Step> {
        let slot = &mut self.slots[number];
        if is_named(config, slot.name()) {
            return None;
        }
        slot.stage = Stage::Forgotten { since: now };
        self.forgotten += 1;
        Some(Step::Forget)
    }

    /// Gives slots to interfaces that match and have none.
    fn take_in(
        &mut self,
        mirror: &Mirror,
        by_name: &HashMap<&str, &Link>,
        config: &Config,
        now: Time,
        steps: &mut Vec<(usize, Step)>,
    ) -> Vec<String> {
        let is_there = |name: &String| by_name.contains_key(name.as_str());
        self.refused.retain(|name, _| is_there(name));
        self.unfit
            .retain(|(index, arrival)| mirror.arrival(*index) == *arrival);
        let mut links: Vec<&Link> = by_name.values().copied().collect();
        links.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut new = Vec::new();
        for link in links {
            let its = |slot: &Slot| slot.name() == link.name || slot.holds(link.index);
            let has_slot = self.slots.iter().any(its);
            let is_unfit = self
                .unfit
                .contains(&(link.index, mirror.arrival(link.index)));
            if has_slot || is_unfit || link.loopback {
                continue;
            }
            if config.leaves_out(&link.name, link.kind.as_deref().unwrap_or_default()) {
                continue;
            }
            let Some(settings) = config.settings_of(&link.name) else {
                continue;
            };
            match self.free_slot(now) {
                Some(number) => {
                    self.refused.remove(&link.name);
                    self.slots[number] = Slot {
                        settings: Some(settings),
                        ..Slot::default()
                    };
                    let step = self.open(number, mirror, Some(link));
                    steps.extend(step.map(|step| (number, step)));
                }
                None if !self.refused.contains_key(&link.name) => {
                    let why = format!(
                        "it matches and is no port: {} ports are in use or reserved, and \
                         memory.spare_queues leaves room for no more",
                        self.slots.len()
                    );
                    self.refusals += 1;
                    self.refused.insert(link.name.clone(), why);
                    new.push(link.name.clone());
                }
                None => {}
            }
        }
        new
    }

    /// A slot for a name that has none: one that nobody has, or that of the port that has been
    /// forgotten for the longest time.
    fn free_slot(&self, now: Time) -> Option<usize> {
        let mut all = self.slots.iter();
        if let Some(vacant) = all.position(|slot| slot.stage == Stage::Vacant) {
            return Some(vacant);
        }
        let away = self.slots.iter().enumerate().filter_map(|(number, slot)| {
            let Stage::Forgotten { since } = slot.stage else {
                return None;
            };
            (now >= since + REST).then_some((since, number))
        });
        away.min().map(|(_, number)| number)
    }

    /// The port of a slot is open.
    pub fn opened(&mut self, number: usize, ifindex: u32, mtu_limit: u32) {
        let slot = &mut self.slots[number];
        let arrival = match slot.stage {
            Stage::Opening {
                ifindex: opening,
                arrival,
            } if opening == ifindex => arrival,
            _ => None,
        };
        slot.failures = 0;
        slot.stage = Stage::Open {
            ifindex,
            arrival,
            mtu_limit,
        };
    }

    /// The port of a slot is about to be taken into use. Returns the name of the port that had the
    /// slot before, if that was another one.
    pub fn succeed(&mut self, number: usize) -> Option<String> {
        let name = self.slots[number].name().to_owned();
        let before = std::mem::replace(&mut self.last[number], name);
        (!before.is_empty() && before != self.last[number]).then_some(before)
    }

    /// The port of a slot could not be opened, or not be taken into use: `why`. Returns whether
    /// that is news.
    pub fn failed(&mut self, number: usize, why: String, mtu: u32, now: Time) -> bool {
        let slot = &mut self.slots[number];
        let Stage::Opening { ifindex, arrival } = slot.stage else {
            return false;
        };
        let is_first = slot.failures == 0;
        let seen = Seen {
            ifindex,
            arrival,
            mtu,
        };
        slot.fail(why, seen, now);
        is_first
    }

    /// What was to be opened is nothing that can be a port. Its slot is free again if it came by a
    /// pattern.
    pub fn unfit(&mut self, number: usize, why: String, config: &Config, now: Time) {
        let slot = &mut self.slots[number];
        let Stage::Opening { ifindex, arrival } = slot.stage else {
            return;
        };
        if is_named(config, slot.name()) {
            let seen = Seen {
                ifindex,
                arrival,
                mtu: 0,
            };
            slot.fail(why, seen, now);
            return;
        }
        self.unfit.insert((ifindex, arrival));
        *slot = Slot::default();
    }

    /// A port that was just opened is not taken into use, and closed again: `why`, or its interface
    /// is gone.
    pub fn abandoned(&mut self, number: usize, why: Option<String>) {
        let slot = &mut self.slots[number];
        if let Stage::Opening { ifindex, .. } = slot.stage {
            slot.stage = Stage::Closing { ifindex, why };
        }
    }

    /// The port of a slot is closed.
    pub fn closed(&mut self, number: usize, mirror: &Mirror, now: Time) {
        let slot = &mut self.slots[number];
        let Stage::Closing { why, .. } = slot.stage.clone() else {
            return;
        };
        let link = mirror.link_named(slot.name());
        match (why, link) {
            (Some(why), Some(link)) => {
                let seen = Seen {
                    ifindex: link.index,
                    arrival: mirror.arrival(link.index),
                    mtu: link.mtu,
                };
                slot.fail(why, seen, now);
            }
            _ => slot.stage = Stage::Absent,
        }
    }

    /// The link history of a slot.
    pub fn link_mut(&mut self, number: usize) -> &mut LinkHistory {
        &mut self.slots[number].link
    }

    /// What is wrong with ports, a sentence each. That the interface of a port by a pattern is gone
    /// is not.
    pub fn problems(&self, config: &Config) -> Vec<String> {
        let is_slot = |name: &str| self.slots.iter().any(|slot| slot.name() == name);
        let lost = config.named_ports().filter(|name| !is_slot(name));
        let lost = lost.map(|name| format!("{name}: there is no such interface"));
        let is_going = |slot: &Slot| {
            let is_gone = matches!(slot.stage, Stage::Absent | Stage::Closing { why: None, .. });
            is_gone && !is_named(config, slot.name())
        };
        let down = self.slots.iter().filter(|slot| !is_going(slot));
        let down = down.filter_map(|slot| {
            let why = slot.why_down()?;
            Some(format!("{} is down: {why}", slot.name()))
        });
        let refused = self.refused.iter();
        let refused = refused.map(|(name, why)| format!("{name}: {why}"));
        down.chain(lost).chain(refused).collect()
    }
}

/// Whether the configuration has the port by its name.
fn is_named(config: &Config, name: &str) -> bool {
    config.named_ports().any(|named| named == name)
}

#[cfg(test)]
mod tests;
