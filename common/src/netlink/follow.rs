//! When to trust events and when to dump everything and compare. Sans I/O: bytes, time and overruns
//! come in, dump requests go out.
//!
//! ```text
//!            start / reason to doubt                     last step done
//!   Idle ───────────────────────────▶ Dumping(step) ───────────────────▶ Idle
//!    ▲                                  │    ▲  │ step done, not interrupted: sweep, next step
//!    └──────── no answer in time ───────┘    └──┘ interrupted (EINTR mark, overrun): the same step
//!                                                 again, later
//! ```

use super::decode::{AF_BRIDGE, AF_INET, AF_INET6, Action, Body, Message, decode, flag, kind};
use super::lifetimes::Lifetimes;
use super::mirror::{Change, Kind, Mirror};
use super::silent::{Loss, loss_of};
use super::types::Link;
use crate::time::{Span, Time};

/// The steps of a resynchronisation, in the order that lets each find what it refers to.
const STEPS: [Kind; 11] = [
    Kind::Links,
    Kind::Settings,
    Kind::BridgePorts,
    Kind::VlanStates,
    Kind::Fdb,
    Kind::Addresses,
    Kind::Rules,
    Kind::NextHops,
    Kind::Neighbours,
    Kind::Routes4,
    Kind::Routes6,
];

/// The first step that takes long when there are many routes. Those before are done at once.
const ROUTES: usize = 9;

const _: () = assert!(matches!(STEPS[ROUTES], Kind::Routes4));

/// A reason to resynchronise is followed after this time, so that a burst of reasons costs one
/// dump, and the kernel has finished what it was doing.
const SETTLE: Span = Span::from_millis(20);

/// At least this many times the length of the last dump of routes passes until the next one:
/// following a full table takes at most a fifth of the control thread. Messages that were lost are
/// worth a dump at once, but only one: who loses messages while it dumps loses more by dumping on.
const REST: u64 = 4;

/// A dump that is silent for this long is begun again.
const PATIENCE: Span = Span::from_secs(5);

/// When to resynchronise.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The longest time between two dumps.
    pub resync: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resync: Span::from_secs(30),
        }
    }
}

/// Why everything is dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResyncReason {
    /// Nothing is known yet.
    Start,
    /// It was long ago.
    Periodic,
    /// An interface went down or came up: the kernel changes routes without saying so.
    Link,
    /// A next hop object or an address went, and routes with it.
    NextHop,
    /// The socket lost messages (ENOBUFS).
    Overrun,
    /// Messages contradicted what was known.
    Doubt,
    /// A dump did not end well.
    Retry,
}

impl ResyncReason {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Start,
        Self::Periodic,
        Self::Link,
        Self::NextHop,
        Self::Overrun,
        Self::Doubt,
        Self::Retry,
    ];

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Periodic => "periodic",
            Self::Link => "link",
            Self::NextHop => "next_hop",
            Self::Overrun => "overrun",
            Self::Doubt => "doubt",
            Self::Retry => "retry",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages understood.
    pub messages: u64,
    /// Messages that contradict themselves; skipped.
    pub malformed: u64,
    /// Times that the socket lost messages.
    pub overruns: u64,
    /// Resynchronisations begun, by [`ResyncReason`] in the order of `ALL`.
    pub resyncs: [u64; ResyncReason::ALL.len()],
    /// Steps that were repeated because the tables changed meanwhile.
    pub interrupted: u64,
    /// Differences found by resynchronisations after the first: what events did not tell.
    pub corrections: u64,
    /// How long the last resynchronisation took.
    pub last_duration: Span,
    /// When it ended.
    pub last_end: Time,
    /// How long the dumps of routes in it took.
    pub last_routes: Span,
}

#[derive(Clone, Copy, Debug)]
struct Dump {
    step: usize,
    sequence: u32,
    /// The request is to be sent.
    unsent: bool,
    interrupted: bool,
    began: Time,
    heard: Time,
    /// The request is not sent before.
    rests_until: Time,
}

/// Follows the kernel.
#[derive(Debug)]
pub struct Follower {
    mirror: Mirror,
    changes: Vec<Change>,
    /// What went without a word since changes were last taken.
    losses: Vec<Loss>,
    /// Routes that end by themselves.
    lifetimes: Lifetimes,
    settings: Settings,
    dump: Option<Dump>,
    /// The next resynchronisation, and why.
    planned: (Time, ResyncReason),
    /// Why there is the one that is under way, or was the last.
    reason: ResyncReason,
    /// Why there was the last that came to its end.
    ended_reason: ResyncReason,
    sequence: u32,
    /// Number of our socket: its dumps, not those of others, answer us.
    port: u32,
    synced: bool,
    /// When the last dump of routes was asked for.
    routes_began: Time,
    statistics: Statistics,
}

impl Follower {
    /// A follower that knows nothing and wants to dump at once. `port` is the number of the socket.
    pub fn new(settings: Settings, port: u32) -> Self {
        Self {
            mirror: Mirror::new(),
            changes: Vec::new(),
            losses: Vec::new(),
            lifetimes: Lifetimes::default(),
            settings,
            dump: None,
            planned: (Time::ZERO, ResyncReason::Start),
            reason: ResyncReason::Start,
            ended_reason: ResyncReason::Start,
            sequence: 0,
            port,
            synced: false,
            routes_began: Time::ZERO,
            statistics: Statistics::default(),
        }
    }

    /// What is known.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Whether everything was dumped once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// What happened so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Changes the settings; they hold from the next plan on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Moves the changes since the last call to `changes`. An object may be named several times.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.lose();
        changes.append(&mut self.changes);
    }

    /// Removes what went without a word.
    fn lose(&mut self) {
        if !self.losses.is_empty() {
            let losses = std::mem::take(&mut self.losses);
            self.mirror.lose(&losses, &mut self.changes);
        }
    }

    /// When [`Self::poll_request`] wants to be called at the latest.
    pub fn deadline(&self) -> Time {
        let deadline = match &self.dump {
            Some(dump) if dump.unsent => dump.rests_until,
            Some(dump) => dump.heard + PATIENCE,
            None => self.planned.0,
        };
        let end = self.lifetimes.next();
        end.map_or(deadline, |end| end.min(deadline))
    }

    /// Removes the routes whose time is up, and looks soon whether the kernel has prolonged them.
    fn end_routes(&mut self, now: Time) {
        while let Some((key, route)) = self.lifetimes.take_ended(&self.mirror, now) {
            let message = Message {
                flags: 0,
                sequence: 0,
                port: 0,
                lifetime: None,
                body: Body::Route(Action::Removed, key, route),
            };
            self.mirror.apply(message, false, &mut self.changes);
            self.plan(ResyncReason::Periodic, now);
        }
    }

    /// The request to send now, if any.
    pub fn poll_request(&mut self, now: Time) -> Option<Vec<u8>> {
        self.end_routes(now);
        if let Some(dump) = &mut self.dump {
            if dump.unsent {
                if now < dump.rests_until {
                    return None;
                }
                (dump.unsent, dump.heard) = (false, now);
                if dump.step == ROUTES {
                    self.routes_began = now;
                }
                return Some(dump_request(STEPS[dump.step], dump.sequence));
            }
            if now >= dump.heard + PATIENCE {
                self.dump = None;
                self.plan(ResyncReason::Retry, now);
            }
            return None;
        }
        if now < self.planned.0 {
            return None;
        }
        self.reason = self.planned.1;
        self.statistics.resyncs[self.reason.index()] += 1;
        self.planned = (now + self.settings.resync, ResyncReason::Periodic);
        self.begin_step(0, now, now);
        self.poll_request(now)
    }

    fn begin_step(&mut self, step: usize, began: Time, now: Time) {
        // Zero marks messages that nobody asked for.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        self.mirror.begin(self.sequence);
        let rests = self.reason != ResyncReason::Overrun || self.ended_reason == self.reason;
        let rests_until = if step == ROUTES && rests {
            let statistics = &self.statistics;
            statistics.last_end + statistics.last_routes.times(REST)
        } else {
            now
        };
        self.dump = Some(Dump {
            step,
            sequence: self.sequence,
            unsent: true,
            interrupted: false,
            began,
            heard: now,
            rests_until,
        });
    }

    fn plan(&mut self, reason: ResyncReason, now: Time) {
        if let Some(dump) = &self.dump
            && dump.unsent
            && dump.step == ROUTES
        {
            // It has not looked at routes yet: the rest is looked at again, and then these once.
            self.dump = None;
        }
        let at = now + SETTLE;
        // An urgent reason replaces the periodic plan, and stays when others follow.
        if at < self.planned.0 {
            self.planned = (at, reason);
        }
    }

    /// Takes what was received.
    pub fn handle(&mut self, datagram: &[u8], now: Time) {
        for message in decode(datagram) {
            match message {
                Ok(message) => {
                    self.statistics.messages += 1;
                    self.handle_message(message, now);
                }
                Err(_) => self.statistics.malformed += 1,
            }
        }
        if self.mirror.take_doubt() {
            self.plan(ResyncReason::Doubt, now);
        }
    }

    fn handle_message(&mut self, message: Message, now: Time) {
        let answers = self
            .dump
            .filter(|dump| dump.sequence == message.sequence && self.port == message.port);
        if let Some(dump) = &mut self.dump
            && answers.is_some()
        {
            dump.heard = now;
            dump.interrupted |= message.flags & flag::DUMP_INTERRUPTED != 0;
        }
        match (&message.body, answers) {
            (Body::Done(status), Some(_)) => self.end_step(*status, now),
            (Body::Error(status), Some(_)) if *status != 0 => self.end_step(*status, now),
            (Body::Overrun, _) => self.handle_overrun(now),
            _ => {
                let known = self.changes.len();
                self.note_silent_removals(&message, now);
                if let Some(at) = self.lifetimes.note(&message, now)
                    && at < self.planned.0
                {
                    self.planned = (at, ResyncReason::Periodic);
                }
                let is_over = message.lifetime == Some(Span::ZERO);
                if is_over && answers.is_some() {
                    // It waits to be cleared away.
                    return;
                }
                if self.losses.iter().any(|loss| loss.is_over(&message.body)) {
                    self.lose();
                }
                let loss = loss_of(&self.mirror, &message.body);
                self.mirror
                    .apply(message, answers.is_some(), &mut self.changes);
                self.losses.extend(loss.filter(|_| self.synced));
                if self.synced && answers.is_some() {
                    self.count_corrections(known);
                }
            }
        }
    }

    fn count_corrections(&mut self, known: usize) {
        let found = u64::try_from(self.changes.len() - known).unwrap_or(u64::MAX);
        self.statistics.corrections += found;
    }

    /// The kernel takes routes and next hops of a link away silently when it goes down, and routes
    /// of a next hop object when that is removed.
    fn note_silent_removals(&mut self, message: &Message, now: Time) {
        match &message.body {
            Body::Link(action, link) => {
                let flags = |link: &Link| (link.up, link.running, link.is_dark());
                let now_is = Some(flags(link)).filter(|_| *action == Action::Set);
                let was = self.mirror.link(link.index).map(flags);
                if now_is != was && self.synced {
                    self.plan(ResyncReason::Link, now);
                }
            }
            Body::NextHop(Action::Removed, _) | Body::Address(Action::Removed, _) => {
                self.plan(ResyncReason::NextHop, now);
            }
            _ => {}
        }
    }

    /// The socket lost messages.
    pub fn handle_overrun(&mut self, now: Time) {
        self.statistics.overruns += 1;
        if let Some(dump) = &mut self.dump {
            dump.interrupted = true;
        }
        self.plan(ResyncReason::Overrun, now);
    }

    fn end_step(&mut self, status: i32, now: Time) {
        const EOPNOTSUPP: i32 = -95;
        let Some(dump) = self.dump.take() else { return };
        if status != 0 && status != EOPNOTSUPP {
            self.plan(ResyncReason::Retry, now);
            return;
        }
        if dump.interrupted {
            self.statistics.interrupted += 1;
            self.begin_step(dump.step, dump.began, now);
            return;
        }
        let known = self.changes.len();
        self.mirror.sweep(STEPS[dump.step], &mut self.changes);
        if self.synced {
            self.count_corrections(known);
        }
        if dump.step + 1 < STEPS.len() {
            self.begin_step(dump.step + 1, dump.began, now);
            return;
        }
        self.synced = true;
        self.ended_reason = self.reason;
        self.statistics.last_routes = now.since(self.routes_began);
        self.statistics.last_duration = now.since(dump.began);
        self.statistics.last_end = now;
    }
}

/// An attribute of length 8 and type 29 with the value 4.
const BRIDGE_VLANS: [u8; 8] = {
    let ([a, b], [c, d]) = (8_u16.to_ne_bytes(), 29_u16.to_ne_bytes());
    let [e, f, g, h] = 4_u32.to_ne_bytes();
    [a, b, c, d, e, f, g, h]
};

/// A request to dump all objects of a kind: struct nlmsghdr and the fixed part of that kind.
fn dump_request(step: Kind, sequence: u32) -> Vec<u8> {
    const GET: u16 = 2;
    const REQUEST_DUMP: u16 = 0x1 | 0x300;
    let (number, family, fixed_len) = match step {
        Kind::Links => (kind::LINK, 0, 16),
        Kind::Addresses => (kind::ADDRESS, 0, 8),
        Kind::Settings => (kind::SETTINGS, AF_INET, 4),
        Kind::NextHops => (kind::NEXT_HOP, 0, 8),
        Kind::Routes4 => (kind::ROUTE, AF_INET, 12),
        Kind::Routes6 => (kind::ROUTE, AF_INET6, 12),
        Kind::Neighbours => (kind::NEIGHBOUR, 0, 12),
        Kind::Rules => (kind::RULE, 0, 12),
        Kind::BridgePorts => (kind::LINK, AF_BRIDGE, 16),
        Kind::VlanStates => (kind::VLAN, AF_BRIDGE, 8),
        Kind::Fdb => (kind::NEIGHBOUR, AF_BRIDGE, 12),
    };
    // The VLANs of bridge ports are told on request only: IFLA_EXT_MASK with
    // RTEXT_FILTER_BRVLAN_COMPRESSED.
    let mask: &[u8] = match step {
        Kind::BridgePorts => &BRIDGE_VLANS,
        _ => &[],
    };
    let fixed_end: u32 = 16 + fixed_len;
    let len = fixed_end + u32::try_from(mask.len()).expect("a few bytes");
    let mut request = Vec::with_capacity(40);
    request.extend_from_slice(&len.to_ne_bytes());
    request.extend_from_slice(&(number + GET).to_ne_bytes());
    request.extend_from_slice(&REQUEST_DUMP.to_ne_bytes());
    request.extend_from_slice(&sequence.to_ne_bytes());
    request.extend_from_slice(&0_u32.to_ne_bytes());
    request.push(family);
    request.resize(usize::try_from(fixed_end).expect("a few bytes"), 0);
    request.extend_from_slice(mask);
    request
}
