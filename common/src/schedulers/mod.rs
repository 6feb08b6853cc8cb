//! What the two ends of a link tell each other ([`crate::wire::schedule`]): who spreads packets
//! over paths (MG-9), and what still follows a pause (SW-12). Both show what they heard.
//!
//! Each tells it once a second, and at once by a port that has come up. Who has heard nothing there
//! asks with that, and is answered at once: so both know of each other as soon as both are there.

use crate::sys::{LinkSocket, monotonic};
use crate::time::{Span, Time};
use crate::wire::Mac;
use crate::wire::ethernet::HEADER_LEN;
use crate::wire::schedule::{Announcement, ETHERTYPE, FRAME_MAX, GROUP, PauseTerms, Role, Spread};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// How often it is told, and for how many seconds that holds: three may be lost.
const EVERY: Duration = Duration::from_secs(1);
const HOLDS: u16 = 4;

/// Who asks at a port is answered at once, but not more often than this: others wait for what is
/// told each second.
const ANSWER_EVERY: Span = Span::from_millis(200);

/// Frames that are read at a time, and the pause after that: a flood costs little, for the others
/// wait or are lost.
const BATCH: usize = 64;
const PAUSE: Duration = Duration::from_millis(50);

/// `[scheduling]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheduling {
    /// Ports tell their peers how packets are spread and what follows a pause, and listen to them.
    pub announce: bool,
}

/// A port of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPort {
    /// Its name.
    pub name: String,
    /// Its number in the kernel.
    pub ifindex: u32,
    /// Its address.
    pub mac: Mac,
    /// What still leaves by it after a pause; `None`: it obeys none, or nobody knows.
    pub pauses: Option<PauseTerms>,
}

/// What is known of the two ends of a link, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerRow {
    /// The port.
    pub port: String,
    /// What this end spreads.
    pub own: String,
    /// Who is at the other end; nothing if nobody says.
    pub peer: Option<String>,
    /// Whether that is a host or a switch.
    pub role: Option<String>,
    /// What it spreads.
    pub theirs: Option<String>,
    /// Which end spreads single packets of flows: `host`, `switch`, or `nobody`. If both would,
    /// it is the host: switches leave flows alone that it spreads.
    pub by_packet: String,
    /// Nanoseconds that it takes to obey a pause, if it knows.
    #[serde(default)]
    pub response_nanoseconds: Option<u64>,
    /// Bytes that its device still sends then, if it obeys pauses.
    #[serde(default)]
    pub backlog_bytes: Option<u32>,
}

/// What the peer of a port says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseAnnouncement {
    /// Whether it is a host or a switch.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// What still comes from it after a pause.
    pub terms: PauseTerms,
}

/// What one end said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    role: Role,
    spread: Spread,
    pauses: Option<PauseTerms>,
    name: String,
    until: Time,
    /// The log has it.
    logged: bool,
}

/// What is known of all links.
#[derive(Debug)]
struct Schedulers {
    role: Role,
    own: Spread,
    ports: Vec<LocalPort>,
    /// By interface: since when it is listened to.
    since: BTreeMap<u32, Time>,
    heard: BTreeMap<u32, Heard>,
    /// By interface: when who asked there was last answered.
    answered: BTreeMap<u32, Time>,
    /// A peer says something else of pauses than before, which nobody has looked at.
    is_news: bool,
    /// Announcements that made no sense.
    bad: u64,
}

/// As tasks share it.
#[derive(Clone, Debug)]
pub struct SharedSchedulers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    known: Mutex<Schedulers>,
    /// There may be new ports.
    hurry: Notify,
    /// A peer says something else of pauses.
    news: Notify,
}

impl SharedSchedulers {
    /// Of a machine that spreads this.
    pub fn new(role: Role, own: Spread) -> Self {
        Self(Arc::new(Shared {
            known: Mutex::new(Schedulers::new(role, own)),
            hurry: Notify::new(),
            news: Notify::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Schedulers> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port may have come up, or gone down: [`run`] looks at once.
    pub fn hurry(&self) {
        self.0.hurry.notify_one();
    }

    /// Waits until a peer says something else of pauses than before.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    /// The machine has these ports now, by which packets pass. Returns those among them that are
    /// new, by interface.
    pub fn set_ports(&self, ports: Vec<LocalPort>, now: Time) -> BTreeSet<u32> {
        self.lock().set_ports(ports, now)
    }

    /// Whether a peer of this interface would have been heard by now.
    pub fn has_listened(&self, ifindex: u32, now: Time) -> bool {
        let since = self.lock().since.get(&ifindex).copied();
        since.is_some_and(|since| now >= since + Span::from_secs(HOLDS.into()))
    }

    /// What is known, by port.
    pub fn rows(&self, now: Time) -> Vec<SchedulerRow> {
        self.lock().rows(now)
    }

    /// What the peer of a port says of pauses, if it does.
    pub fn pauses(&self, ifindex: u32, now: Time) -> Option<PauseAnnouncement> {
        let known = self.lock();
        let heard = known.heard.get(&ifindex)?;
        let terms = heard.pauses.filter(|_| heard.until > now)?;
        Some(PauseAnnouncement {
            role: heard.role,
            name: heard.name.clone(),
            terms,
        })
    }

    /// Announcements that made no sense, so far.
    pub fn bad(&self) -> u64 {
        self.lock().bad
    }
}

impl Schedulers {
    fn new(role: Role, own: Spread) -> Self {
        Self {
            role,
            own,
            ports: Vec::new(),
            since: BTreeMap::new(),
            heard: BTreeMap::new(),
            answered: BTreeMap::new(),
            is_news: false,
            bad: 0,
        }
    }

    fn set_ports(&mut self, ports: Vec<LocalPort>, now: Time) -> BTreeSet<u32> {
        let all: BTreeSet<u32> = ports.iter().map(|port| port.ifindex).collect();
        self.heard.retain(|ifindex, _| all.contains(ifindex));
        self.answered.retain(|ifindex, _| all.contains(ifindex));
        self.since.retain(|ifindex, _| all.contains(ifindex));
        let known = |ifindex: &u32| self.since.contains_key(ifindex);
        let new: BTreeSet<u32> = all.into_iter().filter(|it| !known(it)).collect();
        self.since.extend(new.iter().map(|ifindex| (*ifindex, now)));
        self.ports = ports;
        new
    }

    /// Takes a frame that came by an interface. Returns whether it is to be answered at once.
    fn hear(&mut self, ifindex: u32, frame: &[u8], now: Time) -> bool {
        let Some(port) = self.ports.iter().find(|port| port.ifindex == ifindex) else {
            return false;
        };
        // Bridges pass on what has any other destination: then it is no neighbour that speaks.
        if !frame.starts_with(&GROUP.0) {
            self.bad += 1;
            tracing::debug!(port = %port.name, "an announcement that is not for the neighbour");
            return false;
        }
        let body = frame.get(HEADER_LEN..).unwrap_or_default();
        let said = match Announcement::parse(body) {
            Ok(said) => said,
            Err(error) => {
                self.bad += 1;
                tracing::debug!(port = %port.name, "a bad announcement: {error}");
                return false;
            }
        };
        let answered = self.answered.get(&ifindex);
        let answers = said.asks && answered.is_none_or(|it| now >= *it + ANSWER_EVERY);
        if answers {
            self.answered.insert(ifindex, now);
        }
        if said.seconds == 0 {
            self.heard.remove(&ifindex);
            return answers;
        }
        let before = self.heard.get(&ifindex);
        self.is_news |= before.is_none_or(|it| it.pauses != said.pauses);
        let name = printable(said.name);
        let is_same = |it: &Heard| it.spread == said.spread && it.name == name;
        let heard = Heard {
            logged: before.is_some_and(|it| it.logged && is_same(it)),
            role: said.role,
            spread: said.spread,
            pauses: said.pauses,
            name,
            until: now + Span::from_secs(said.seconds.into()),
        };
        self.heard.insert(ifindex, heard);
        answers
    }

    /// What is said by a port: with a question if nobody is heard there.
    fn said<'a>(&self, port: &LocalPort, name: &'a str, now: Time) -> Announcement<'a> {
        let heard = self.heard.get(&port.ifindex);
        Announcement {
            role: self.role,
            spread: self.own,
            seconds: HOLDS,
            pauses: port.pauses,
            asks: heard.is_none_or(|heard| heard.until <= now),
            name,
        }
    }

    /// Writes down what is new: a line for each port at most, whatever its peer says in between.
    fn log(&mut self) {
        for port in &self.ports {
            let heard = self.heard.get_mut(&port.ifindex);
            let Some(heard) = heard.filter(|heard| !heard.logged) else {
                continue;
            };
            heard.logged = true;
            let (role, spread) = (heard.role.name(), heard.spread.name());
            tracing::info!(port = %port.name, peer = %heard.name, role, spread, "the peer spreads");
        }
    }

    fn rows(&self, now: Time) -> Vec<SchedulerRow> {
        let row = |port: &LocalPort| {
            let heard = self.heard.get(&port.ifindex);
            let heard = heard.filter(|heard| heard.until > now);
            let mut by_packet: Vec<Role> = Vec::new();
            if self.own == Spread::Packets {
                by_packet.push(self.role);
            }
            if let Some(heard) = heard.filter(|heard| heard.spread == Spread::Packets) {
                by_packet.push(heard.role);
            }
            let by_packet = if by_packet.contains(&Role::Host) {
                Role::Host.name()
            } else {
                by_packet.first().map_or("nobody", |role| role.name())
            };
            let pauses = heard.and_then(|heard| heard.pauses);
            SchedulerRow {
                port: port.name.clone(),
                own: self.own.name().to_owned(),
                peer: heard.map(|heard| heard.name.clone()),
                role: heard.map(|heard| heard.role.name().to_owned()),
                theirs: heard.map(|heard| heard.spread.name().to_owned()),
                by_packet: by_packet.to_owned(),
                response_nanoseconds: pauses.and_then(|it| Some(it.response?.nanos())),
                backlog_bytes: pauses.map(|it| it.backlog),
            }
        };
        self.ports.iter().map(row).collect()
    }
}

/// A name that a stranger chose, without what terminals obey.
fn printable(name: &str) -> String {
    let visible = |it: char| if it.is_control() { '\u{fffd}' } else { it };
    name.chars().map(visible).collect()
}

/// Tells and listens, until it is dropped; `ports` says by which ports packets pass.
///
/// # Errors
/// The kernel gives no socket.
#[expect(
    deprecated,
    reason = "the replacement is unsafe, for descriptors that others may close; this one is owned"
)]
pub async fn run(shared: SharedSchedulers, ports: impl Fn() -> Vec<LocalPort>) -> io::Result<()> {
    let socket = LinkSocket::open(ETHERTYPE)?;
    let name = nix::unistd::gethostname().unwrap_or_default();
    let readiness = AsyncFd::new(socket.as_fd().try_clone_to_owned()?)?;
    let mut teller = Teller {
        socket,
        name: name.to_string_lossy().into_owned(),
        joined: BTreeSet::new(),
    };
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                shared.set_ports(ports(), monotonic());
                shared.lock().log();
                teller.tell(&shared.lock(), |_| true);
            }
            () = shared.0.hurry.notified() => {
                let new = shared.set_ports(ports(), monotonic());
                teller.tell(&shared.lock(), |ifindex| new.contains(&ifindex));
            }
            ready = readiness.readable() => {
                ready?.clear_ready();
                if teller.listen(&mut shared.lock()) {
                    shared.0.news.notify_one();
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What tells and listens.
struct Teller {
    socket: LinkSocket,
    name: String,
    /// Interfaces that take frames to the group.
    joined: BTreeSet<u32>,
}

impl Teller {
    /// Tells by these ports, among those that are known.
    fn tell(&mut self, known: &Schedulers, by: impl Fn(u32) -> bool) {
        for port in known.ports.iter().filter(|port| by(port.ifindex)) {
            let ifindex = port.ifindex;
            let said = known.said(port, &self.name, monotonic());
            if !self.joined.contains(&ifindex) && self.socket.join(ifindex, GROUP.0).is_ok() {
                self.joined.insert(ifindex);
            }
            // A port may be down: it is told again in a second.
            if let Err(error) = self.socket.send(ifindex, &said.frame(port.mac)) {
                tracing::debug!(port = %port.name, "nothing is announced: {error}");
            }
        }
    }

    /// Takes what has come, and answers who asks. Returns whether there is news of pauses.
    fn listen(&mut self, known: &mut Schedulers) -> bool {
        let mut buffer = [0; FRAME_MAX];
        let mut asking = BTreeSet::new();
        for _ in 0..BATCH {
            match self.socket.receive(&mut buffer) {
                Ok(Some((ifindex, frame))) => {
                    if known.hear(ifindex, frame, monotonic()) {
                        asking.insert(ifindex);
                    }
                }
                Ok(None) => break,
                // It tells that an interface went down, once.
                Err(error) => tracing::debug!("announcements: {error}"),
            }
        }
        self.tell(known, |ifindex| asking.contains(&ifindex));
        std::mem::take(&mut known.is_news)
    }
}

#[cfg(test)]
mod tests;
