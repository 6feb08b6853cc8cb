//! The application socket: who may connect, and one task for each that did.
//!
//! Nothing here waits for an application: records are sent and received without blocking, what an
//! application does not read is bounded, and one that exceeds the bound, or breaks the protocol, is
//! disconnected. The end of its task, with socket or process, ends the session in the worker.

use super::closer::{Closer, Owner};
use super::ledger::Ledger;
use super::line::Line;
use super::permissions::Permissions;
use super::process::Process;
use super::refusal::Refusal;
use super::session::Session;
use crate::config::{Application, Quota};
use crate::control::questions::RouterHandle;
use crate::doorbell::Doorbells;
use crate::edge::command::{Command, SessionCommand, SessionId, WorkerHandle};
use crate::readiness::readiness;
use crate::wakes::{Strain, Wakers};
use hostd_client::abi::answer::{Event, Reply};
use hostd_client::abi::message::Request;
use hostd_client::abi::port::PortEvent;
use hostd_client::abi::record::{TAG_NONE, tag_of};
use hostd_client::abi::types::{ErrorCode, Private};
use hostd_client::shm_socket::{self, Received};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen,
    socket, sockopt,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{mpsc, oneshot};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Events that wait for one application: connection requests take half of the room at most, the
/// rest is for what becomes of its queue pairs (two events for each until it is destroyed).
const EVENTS: usize = 4096;

/// How long an application may take to say hello.
const HELLO_TIME: Duration = Duration::from_secs(5);

/// Who is connected, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// Counters of the socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketStatistics {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused for their credentials or for too many sessions.
    pub refused: u64,
    /// Requests carried out.
    pub requests: u64,
    /// Requests refused.
    pub refusals: u64,
    /// Those of them that were refused because too much memory was being opened already.
    pub held_up: u64,
    /// Sessions ended for malformed messages.
    pub malformed: u64,
    /// Sessions ended because they did not read their replies.
    pub stalled: u64,
    /// Sessions ended because what wakes them took too much of a CPU.
    pub costly: u64,
    /// Connection requests turned down because their application did not read its events.
    pub unheard: u64,
    /// Events of the port that were not told to an application because it did not read its events.
    pub untold: u64,
}

/// The way of events to a session.
#[derive(Debug)]
struct Listening {
    peer: Peer,
    events: mpsc::Sender<Event>,
    /// It asked for events of the port.
    watches: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Sessions {
    events: HashMap<SessionId, Listening>,
    /// Connections by user: those that have not said hello, and those whose end takes time, too.
    connections: HashMap<u32, u32>,
    last: u32,
    statistics: SocketStatistics,
}

/// All sessions of the daemon, seen from the control thread.
#[derive(Clone, Debug)]
pub struct Applications {
    sessions: Arc<Mutex<Sessions>>,
    permissions: Arc<Permissions>,
    quota: Quota,
    /// How long an application may leave a reply unread.
    patience: Duration,
    ledger: Ledger,
    worker: WorkerHandle,
    routes: RouterHandle,
    doorbells: Doorbells,
    wakers: Wakers,
    closer: Closer,
}

/// Makes the socket at `path`. A socket that nobody listens on any more is replaced, a folder that
/// is missing is made as for an admin socket.
///
/// # Errors
/// Another daemon listens there; the folder cannot be written.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let new = || {
        socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
    };
    let address = UnixAddr::new(path)?;
    common::admin::make_folder_of(path)?;
    if path.exists() {
        common::sys::require_socket(path)?;
        let probe = new()?;
        match connect(probe.as_raw_fd(), &address) {
            Err(Errno::ECONNREFUSED) => std::fs::remove_file(path)?,
            Ok(()) => {
                let text = format!("another hostd listens on {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let fd = new()?;
    // Until it is known who it is, nobody brings descriptors.
    common::sys::permit_descriptors(&fd, false)?;
    bind(fd.as_raw_fd(), &address)?;
    // Anybody may knock: credentials are checked at each connection, and the refusal says why.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(fd)
}

impl Applications {
    /// No session yet; who may connect, and hold how much, is the configuration's.
    pub fn new(
        application: &Application,
        worker: WorkerHandle,
        routes: RouterHandle,
        doorbells: Doorbells,
    ) -> Self {
        Self {
            sessions: Arc::default(),
            permissions: Arc::new(Permissions::resolve(application)),
            quota: application.quota,
            patience: Duration::from_secs(application.reply_timeout_s),
            ledger: Ledger::new(application),
            worker,
            routes,
            doorbells,
            wakers: Wakers::default(),
            closer: Closer::default(),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Sessions) -> T) -> T {
        f(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counters.
    pub fn statistics(&self) -> SocketStatistics {
        SocketStatistics {
            held_up: self.ledger.held_up(),
            ..self.with(|sessions| sessions.statistics)
        }
    }

    /// What closes descriptors of applications.
    pub fn closer(&self) -> &Closer {
        &self.closer
    }

    /// Who is connected.
    pub fn peers(&self) -> HashMap<SessionId, Peer> {
        self.with(|sessions| {
            sessions
                .events
                .iter()
                .map(|(id, listening)| (*id, listening.peer))
                .collect()
        })
    }

    /// Passes an event on. What the network causes never ends a session: connection requests for an
    /// application that lets too many lie are turned down, and what becomes of its queue pairs is
    /// bounded by their number, because it is not heard while it does not listen. One that exceeds
    /// that all the same is disconnected.
    pub fn deliver(&self, session: SessionId, event: Event) {
        let turned_down = self.with(|sessions| {
            let events = &sessions.events.get(&session)?.events;
            if let Event::ConnectRequest { request, .. } = event
                && events.capacity() <= EVENTS / 2
            {
                sessions.statistics.unheard += 1;
                return Some(request);
            }
            if events.try_send(event).is_err() {
                // Without a sender its task ends.
                sessions.events.remove(&session);
                sessions.statistics.stalled += 1;
            }
            None
        });
        if let Some(request) = turned_down {
            self.turn_down(session, request);
        }
    }

    /// Turns a connection request down for a session.
    fn turn_down(&self, session: SessionId, request: u32) {
        let (answer, _) = oneshot::channel();
        let reject = SessionCommand::Reject(request, Private::EMPTY, answer);
        // Should the worker's channel be full, the request waits until its peer gives up.
        self.worker.tell(Command::Session(session, reject));
    }

    /// Tells an application an event. A connection request of which it was not told before its
    /// listener went is turned down at once: nobody will answer it.
    fn pass_on(&self, line: &mut Line, session: &Session, event: Event) {
        match event {
            Event::ConnectRequest {
                listener, request, ..
            } if !session.listens(listener) => self.turn_down(session.id(), request),
            event => line.queue(session.understood(event).encode()),
        }
    }

    /// Tells what happens to the port to all that asked for it. Who lets many events lie is not
    /// told, which is counted, and loses nothing else.
    pub fn announce(&self, event: PortEvent) {
        self.with(|sessions| {
            let all = sessions.events.values();
            for listening in all.filter(|it| it.watches.load(Ordering::Relaxed)) {
                let events = &listening.events;
                let room = events.capacity() > EVENTS / 2;
                if !room || events.try_send(Event::Port { event }).is_err() {
                    sessions.statistics.untold += 1;
                }
            }
        });
    }

    /// Accepts connections for ever.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn serve(self, listener: OwnedFd) -> io::Result<()> {
        // The standard library's listener accepts for any kind of Unix socket.
        let acceptor = UnixListener::from(listener.try_clone()?);
        acceptor.set_nonblocking(true)?;
        let listener = readiness(listener)?;
        loop {
            let accepted = listener
                .async_io(Interest::READABLE, |_| acceptor.accept())
                .await;
            match accepted {
                Ok((stream, _)) => {
                    // What those bring who have no permission is bounded by letting them wait.
                    self.closer.room(Owner::Stranger).await;
                    if let Err(error) = self.admit(stream.into()) {
                        tracing::debug!(%error, "application turned away");
                    }
                }
                // Out of descriptors or memory: pass, and not as fast as possible.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an application");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Begins a session, or says why there is none. Nothing is read from who is refused, and
    /// nothing is kept of it.
    fn admit(&self, fd: OwnedFd) -> io::Result<()> {
        let welcome = self.welcome(&fd).and_then(|(session, peer, place)| {
            // Should the line not come to be, this is not the last to close.
            Ok((Line::new(fd.try_clone()?)?, session, peer, place))
        });
        let (line, session, peer, place) = match welcome {
            Ok(all) => all,
            Err(error) => {
                self.closer.put(Owner::Stranger, 1, fd);
                return Err(error);
            }
        };
        let applications = self.clone();
        tokio::spawn(async move {
            let conversation = applications.converse(line, session, peer, place);
            if let Err(error) = conversation.await {
                tracing::debug!(%error, "application session ended");
            }
        });
        Ok(())
    }

    /// Who is there, and a session if he may have one; else he is told why not.
    fn welcome(&self, fd: &OwnedFd) -> io::Result<(Session, Peer, Place)> {
        let credentials = getsockopt(fd, sockopt::PeerCredentials)?;
        let peer = Peer {
            pid: credentials.pid(),
            uid: credentials.uid(),
            gid: credentials.gid(),
        };
        let more = shm_socket::peer_groups(fd.as_fd()).unwrap_or_default();
        let permitted = self
            .permissions
            .allow(peer.uid, more.into_iter().chain([peer.gid]));
        let session = if permitted {
            self.begin(peer)
        } else {
            let text = format!(
                "user {} is neither in application.users nor in one of application.groups",
                peer.uid
            );
            Err(Refusal::new(ErrorCode::NotPermitted, text))
        };
        match session {
            Ok((session, place)) => {
                common::sys::permit_descriptors(fd, true)?;
                Ok((session, peer, place))
            }
            Err(refusal) => {
                self.with(|sessions| sessions.statistics.refused += 1);
                let reply = refusal.into_reply();
                let why = io::Error::other(format!("{reply:?}"));
                shm_socket::send(fd.as_fd(), reply.encode(TAG_NONE).as_slice(), &[])?;
                Err(why)
            }
        }
    }

    /// A session of a user who is permitted, if there is room for it.
    fn begin(&self, peer: Peer) -> Result<(Session, Place), Refusal> {
        if !self.closer.has_room(Owner::User(peer.uid)) {
            let text = format!("user {} has too many descriptors being closed", peer.uid);
            return Err(Refusal::new(ErrorCode::Quota, text));
        }
        self.take_place(peer.uid)?;
        let waking = self.wakers.for_user(peer.uid);
        let place = Place {
            applications: self.clone(),
            uid: peer.uid,
            strain: waking.strain.clone(),
        };
        let id = self.with(|sessions| {
            sessions.last += 1;
            SessionId(sessions.last)
        });
        let session = Session::new(
            id,
            self.quota,
            self.ledger.account(id, peer.uid),
            self.worker.clone(),
            self.routes.for_user(peer.uid),
            self.doorbells.clone(),
            waking,
        )?;
        Ok((session, place))
    }

    /// One more connection of this user, if it may have one.
    fn take_place(&self, uid: u32) -> Result<(), Refusal> {
        let quota = self.quota.sessions;
        self.with(|sessions| {
            let held = sessions.connections.entry(uid).or_default();
            if *held >= quota {
                let text = format!("the quota is {quota} sessions (application.quota.sessions)");
                return Err(Refusal::new(ErrorCode::Quota, text));
            }
            *held += 1;
            Ok(())
        })
    }

    /// One connection from beginning to end.
    async fn converse(
        self,
        mut line: Line,
        mut session: Session,
        peer: Peer,
        place: Place,
    ) -> io::Result<()> {
        let (sender, events) = mpsc::channel(EVENTS);
        let id = session.id();
        let watches = session.watches();
        self.with(|sessions| {
            sessions.statistics.accepted += 1;
            let listening = Listening {
                peer,
                events: sender,
                watches,
            };
            sessions.events.insert(id, listening);
        });
        let process = Process::of(&line.socket);
        let exchange = self.exchange(&mut line, &mut session, events, &place);
        let ended = process.while_it_lives(exchange).await;
        self.with(|sessions| sessions.events.remove(&id));
        // What it held counts until it is free.
        self.worker.ask(|buried| Command::Close(id, buried)).await;
        drop(session);
        // What lies unread in the socket may hold descriptors too. The place is taken until then.
        let socket = line.socket.into_inner();
        self.closer.put(Owner::User(place.uid), 1, (socket, place));
        ended
    }

    async fn exchange(
        &self,
        line: &mut Line,
        session: &mut Session,
        mut events: mpsc::Receiver<Event>,
        place: &Place,
    ) -> io::Result<()> {
        let mut greeted = false;
        loop {
            line.flush(&place.strain)?;
            let busy = line.is_full();
            tokio::select! {
                event = events.recv(), if !busy => match event {
                    Some(event) => self.pass_on(line, session, event),
                    None => return Err(io::Error::other("it does not read its events")),
                },
                ready = line.writable(), if line.has_outgoing() => ready?,
                () = line.stalled(self.patience) => {
                    self.with(|sessions| sessions.statistics.stalled += 1);
                    return Err(io::Error::other("it does not read its replies"));
                }
                () = place.strain.exceeded() => {
                    self.with(|sessions| sessions.statistics.costly += 1);
                    return Err(io::Error::other("waking it costs too much"));
                }
                () = tokio::time::sleep(HELLO_TIME), if !greeted => {
                    return Err(io::Error::other("it said no hello"));
                }
                received = line.receive(&self.closer, Owner::User(place.uid)), if !line.has_outgoing() => {
                    let Some(received) = received? else { return Ok(()) };
                    let lawful = self
                        .answer(line, session, (received, &mut events), place)
                        .await;
                    line.flush(&place.strain)?;
                    if !lawful {
                        self.with(|sessions| sessions.statistics.malformed += 1);
                        return Err(io::Error::other("it broke the protocol"));
                    }
                    greeted = true;
                }
            }
        }
    }

    /// Answers one record; false if it is none that the library would send. What had happened
    /// before the answer is told before it.
    async fn answer(
        &self,
        line: &mut Line,
        session: &mut Session,
        (received, events): (Received, &mut mpsc::Receiver<Event>),
        place: &Place,
    ) -> bool {
        let tag = tag_of(&received.bytes);
        let decoded = Request::decode(&received.bytes);
        let (outcome, lawful) = match decoded {
            _ if received.truncated => {
                let refusal = Refusal::new(ErrorCode::BadMessage, "the message is too long");
                (Err(refusal), false)
            }
            Err(error) => (
                Err(Refusal::new(ErrorCode::BadMessage, error.to_string())),
                false,
            ),
            // The application's fault is not that the daemon has no number for its descriptor.
            Ok(_) if received.shortage => (Err(Errno::EMFILE.into()), true),
            Ok((_, request)) => (session.handle(request, &received.descriptors).await, true),
        };
        // One that was taken is a memfd, whose close takes no time.
        if outcome.is_err() {
            place.put_away(received.descriptors);
        }
        self.with(|sessions| match outcome {
            Ok(_) => sessions.statistics.requests += 1,
            Err(_) => sessions.statistics.refusals += 1,
        });
        if let Err(refusal) = &outcome {
            tracing::debug!(session = session.id().0, code = ?refusal.code, "refused: {refusal}");
        }
        let (reply, descriptors) =
            outcome.unwrap_or_else(|refusal| (refusal.into_reply(), Vec::new()));
        let hello_refused = line.first && matches!(reply, Reply::Error { .. });
        line.first = false;
        while let Ok(event) = events.try_recv() {
            self.pass_on(line, session, event);
        }
        line.queue_reply(reply.encode(tag), descriptors);
        lawful && !hello_refused
    }
}

/// A connection's place among those of its user, free when it is dropped.
#[derive(Debug)]
struct Place {
    applications: Applications,
    uid: u32,
    /// What waking the session costs.
    strain: Arc<Strain>,
}

impl Place {
    /// Closes descriptors that were refused, elsewhere.
    fn put_away(&self, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            let owner = Owner::User(self.uid);
            let closer = &self.applications.closer;
            closer.put(owner, descriptors.len(), descriptors);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.applications.with(|sessions| {
            if let Some(held) = sessions.connections.get_mut(&self.uid) {
                *held -= 1;
                if *held == 0 {
                    sessions.connections.remove(&self.uid);
                }
            }
        });
    }
}
