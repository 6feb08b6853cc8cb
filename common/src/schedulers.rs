//! What the two ends of a link tell each other once a second ([`crate::wire::schedule`]): who
//! spreads packets over paths (MG-9), and what still follows a pause (SW-12). Both show what they
//! heard.

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

/// How often it is told, and for how many seconds that holds: three may be lost.
const EVERY: Duration = Duration::from_secs(1);
const HOLDS: u16 = 4;

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
    heard: BTreeMap<u32, Heard>,
    /// Announcements that made no sense.
    bad: u64,
}

/// As tasks share it.
#[derive(Clone, Debug)]
pub struct SharedSchedulers(Arc<Mutex<Schedulers>>);

impl SharedSchedulers {
    /// Of a machine that spreads this.
    pub fn new(role: Role, own: Spread) -> Self {
        Self(Arc::new(Mutex::new(Schedulers::new(role, own))))
    }

    fn lock(&self) -> MutexGuard<'_, Schedulers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            heard: BTreeMap::new(),
            bad: 0,
        }
    }

    /// The machine has these ports now.
    fn set_ports(&mut self, ports: Vec<LocalPort>) {
        let known: BTreeSet<u32> = ports.iter().map(|port| port.ifindex).collect();
        self.heard.retain(|ifindex, _| known.contains(ifindex));
        self.ports = ports;
    }

    /// Takes a frame that came by an interface.
    fn hear(&mut self, ifindex: u32, frame: &[u8], now: Time) {
        let Some(port) = self.ports.iter().find(|port| port.ifindex == ifindex) else {
            return;
        };
        let body = frame.get(HEADER_LEN..).unwrap_or_default();
        let said = match Announcement::parse(body) {
            Ok(said) => said,
            Err(error) => {
                self.bad += 1;
                tracing::debug!(port = %port.name, "a bad announcement: {error}");
                return;
            }
        };
        if said.seconds == 0 {
            self.heard.remove(&ifindex);
            return;
        }
        let before = self.heard.get(&ifindex);
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

/// Tells and listens, until it is dropped; `ports` says which ports there are.
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
    let name = name.to_string_lossy();
    let readiness = AsyncFd::new(socket.as_fd().try_clone_to_owned()?)?;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut joined = BTreeSet::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let ports = ports();
                shared.lock().set_ports(ports);
                shared.lock().log();
                tell(&socket, &shared.lock(), &name, &mut joined);
            }
            ready = readiness.readable() => {
                ready?.clear_ready();
                listen(&socket, &mut shared.lock());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn tell(socket: &LinkSocket, known: &Schedulers, name: &str, joined: &mut BTreeSet<u32>) {
    for port in &known.ports {
        let said = Announcement {
            role: known.role,
            spread: known.own,
            seconds: HOLDS,
            pauses: port.pauses,
            name,
        };
        if !joined.contains(&port.ifindex) && socket.join(port.ifindex, GROUP.0).is_ok() {
            joined.insert(port.ifindex);
        }
        // A port may be down: it is told again in a second.
        if let Err(error) = socket.send(port.ifindex, &said.frame(port.mac)) {
            tracing::debug!(port = %port.name, "nothing is announced: {error}");
        }
    }
}

fn listen(socket: &LinkSocket, known: &mut Schedulers) {
    let mut buffer = [0; FRAME_MAX];
    for _ in 0..BATCH {
        match socket.receive(&mut buffer) {
            Ok(Some((ifindex, frame))) => known.hear(ifindex, frame, monotonic()),
            Ok(None) => return,
            // It tells that an interface went down, once.
            Err(error) => tracing::debug!("announcements: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn schedulers(role: Role, own: Spread) -> Schedulers {
        let mut known = Schedulers::new(role, own);
        known.set_ports(vec![LocalPort {
            name: "h1".to_owned(),
            ifindex: 7,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            pauses: None,
        }]);
        known
    }

    fn frame(role: Role, spread: Spread, seconds: u16) -> Vec<u8> {
        let said = Announcement {
            role,
            spread,
            seconds,
            pauses: None,
            name: "peer",
        };
        said.frame(Mac([2, 0, 0, 0, 0, 2]))
    }

    /// MG-9: what the peer said holds for as long as it said, at ports that there are; what makes
    /// no sense is counted and changes nothing.
    #[test]
    fn what_was_heard_holds_for_a_time() {
        let mut known = schedulers(Role::Switch, Spread::Flowlets);
        known.hear(8, &frame(Role::Host, Spread::Packets, 4), at(1));
        assert_eq!(known.rows(at(1))[0].peer, None);
        known.hear(7, &frame(Role::Host, Spread::Packets, 4), at(1));
        known.hear(7, &[0; 60], at(1));
        known.hear(7, &[0; 3], at(1));
        assert_eq!(known.bad, 2);
        let row = &known.rows(at(4))[0];
        assert_eq!(row.peer.as_deref(), Some("peer"));
        assert_eq!(row.theirs.as_deref(), Some("packets"));
        assert_eq!(
            (row.own.as_str(), row.by_packet.as_str()),
            ("flowlets", "host")
        );
        assert_eq!(known.rows(at(5))[0].theirs, None);
        known.hear(7, &frame(Role::Host, Spread::Packets, 4), at(6));
        known.hear(7, &frame(Role::Host, Spread::Packets, 0), at(6));
        assert_eq!(known.rows(at(6))[0].theirs, None, "it said goodbye");
        known.hear(7, &frame(Role::Host, Spread::Flows, 4), at(6));
        known.set_ports(Vec::new());
        assert!(known.rows(at(6)).is_empty() && known.heard.is_empty());
    }

    /// SW-12: what the peer says of pauses is known as long as the rest; a name is no command to a
    /// terminal.
    #[test]
    fn pauses_are_heard_with_the_rest() {
        let shared = SharedSchedulers::new(Role::Switch, Spread::Flowlets);
        *shared.lock() = schedulers(Role::Switch, Spread::Flowlets);
        let terms = PauseTerms {
            response: None,
            backlog: 131_072,
        };
        let said = Announcement {
            role: Role::Host,
            spread: Spread::Packets,
            seconds: 4,
            pauses: Some(terms),
            name: "h1\x1b[2J\n",
        };
        assert_eq!(shared.pauses(7, at(1)), None);
        let frame = said.frame(Mac([2, 0, 0, 0, 0, 2]));
        shared.lock().hear(7, &frame, at(1));
        let heard = shared.pauses(7, at(4)).expect("it was said");
        assert_eq!((heard.role, heard.terms), (Role::Host, terms));
        assert_eq!(heard.name, "h1\u{fffd}[2J\u{fffd}");
        assert_eq!(shared.rows(at(4))[0].backlog_bytes, Some(131_072));
        assert_eq!(shared.pauses(7, at(5)), None);
        assert_eq!(shared.rows(at(5))[0].backlog_bytes, None);
    }

    /// MG-9: of two ends that spread packets the host does it, whichever end is asked.
    #[test]
    fn never_both_spread_packets() {
        use Spread::{Flows, Packets};
        for (host, switch, wanted) in [
            (Packets, Packets, "host"),
            (Packets, Flows, "host"),
            (Flows, Packets, "switch"),
            (Flows, Flows, "nobody"),
        ] {
            let mut at_switch = schedulers(Role::Switch, switch);
            at_switch.hear(7, &frame(Role::Host, host, 4), at(1));
            let mut at_host = schedulers(Role::Host, host);
            at_host.hear(7, &frame(Role::Switch, switch, 4), at(1));
            for known in [at_switch, at_host] {
                assert_eq!(
                    known.rows(at(2))[0].by_packet,
                    wanted,
                    "{host:?} {switch:?}"
                );
            }
        }
    }
}
