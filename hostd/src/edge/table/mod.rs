//! The worker's table of sessions: requests of applications become calls of the engine, and reports
//! of the engine go to the application that they concern.
//!
//! Handles of applications are the engine's own numbers, which contain a generation. A session may
//! only name what it owns.

mod attending;
mod attention;
mod burial;
mod by_hand;
mod collective;
mod events;
mod grave;
mod hearing;
mod modify;
mod objects;
mod options;
mod paths;
mod serving;
mod shared;

use attention::Attention;
pub use grave::{BURIALS, Burial};
use grave::{Done, Grave};
use hearing::Hearing;

use super::collective::{CollectiveRing, note_fallback};
use super::command::{Answer, Notice, SessionCommand, SessionId, SessionReport};
use super::completion::CompletionRing;
use super::queue_pair::{Link, Remains, TURN, WorkRings};
use super::region::Released;
use super::shared_queue::SharedRing;
use super::statistics::EdgeStatistics;
use crate::doorbell::Doorbell;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::Transition;
use crate::verbs::{
    CompletionQueueId, ConnectionId, DomainId, EngineError, MemberId, PrivateData, SharedQueueId,
};
use common::time::Time;
use crossbeam_channel::Sender;
use hostd_client::abi::answer::Event;
use hostd_client::abi::doorbell::{DoorbellPage, WORDS};
use hostd_client::abi::types::{ErrorCode, ObjectKind, Private};
use hostd_client::abi::{PRIVATE_MAX, QUEUE_PAIRS_MAX, RING_ENTRIES_MAX};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Connection requests that may wait for one application's answer, whatever backlog it asks for.
const REQUESTS_WAITING: usize = 256;

/// Those of them that may come from one address.
const REQUESTS_OF_SOURCE: usize = 64;

/// First port that `Listen` with port zero tries (RFC 6335: the dynamic ports).
const DYNAMIC_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// What a bit of a doorbell page stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// This queue pair.
    QueuePair(u32),
    /// This shared receive queue.
    Shared(SharedQueueId),
    /// This membership of a job.
    Member(MemberId),
}

/// One application.
#[derive(Debug)]
struct Application {
    doorbells: DoorbellPage,
    domain: DomainId,
    hearing: Hearing,
    /// It is among those that each turn looks at.
    awake: bool,
    /// It is among those that are deaf, or were a moment ago.
    deaf: bool,
    /// When it rang last, or was first looked at since it woke the worker; `None` until then.
    heard: Option<Time>,
    /// What may have requests in its rings, by slot.
    pending: [u64; WORDS],
    /// What has requests there for which the engine has no room, until it has.
    blocked: [u64; WORDS],
    /// What has requests there that have to wait, and nobody says for how long.
    waiting: [u64; WORDS],
    /// The slots where the next turn begins: of those with requests, of those that wait.
    place: usize,
    place_waiting: usize,
    slots: Vec<Option<Slot>>,
    /// Words of bits in which there are slots in use, or were.
    words: usize,
    /// Local keys and lengths.
    regions: BTreeMap<u32, u64>,
    windows: BTreeSet<u32>,
    completion_queues: HashMap<u32, CompletionQueueId>,
    /// Those of them whose ring is full.
    full: usize,
    queue_pairs: usize,
    listeners: Vec<u16>,
}

/// A connection request that waits for its application's answer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    session: SessionId,
    connection: ConnectionId,
    /// The port that the peer asked for, and its address.
    port: u16,
    source: IpAddr,
}

/// All applications, and who owns what.
#[derive(Debug)]
pub struct Table<M> {
    released_memory: Sender<Released<M>>,
    applications: BTreeMap<SessionId, Application>,
    queue_pairs: HashMap<u32, (SessionId, WorkRings)>,
    completions: HashMap<CompletionQueueId, (SessionId, CompletionRing)>,
    shared: HashMap<u32, (SessionId, SharedQueueId, SharedRing)>,
    members: HashMap<u32, (SessionId, CollectiveRing)>,
    /// Who listens, and the backlog.
    listeners: HashMap<u16, (SessionId, u16)>,
    /// Connection requests that wait for an answer.
    requests: HashMap<u32, Waiting>,
    /// Completion queues whose ring is full, and how many of them have to be looked at before the
    /// worker sleeps.
    starved: VecDeque<CompletionQueueId>,
    looks: usize,
    /// The sessions that turns look at, and how many had work in the last one.
    attention: Attention,
    busy: u32,
    /// What ended sessions held and is not released yet.
    graves: VecDeque<Grave>,
    notices: Vec<Notice>,
    draining: bool,
    /// What was counted.
    pub statistics: EdgeStatistics,
}

impl<M: RegionMemory> Table<M> {
    /// No session yet. Memory that applications give back goes to `released_memory`: unmapping some
    /// GiB takes the time of thousands of packets.
    pub fn new(released_memory: Sender<Released<M>>) -> Self {
        Self {
            released_memory,
            applications: BTreeMap::new(),
            queue_pairs: HashMap::new(),
            completions: HashMap::new(),
            shared: HashMap::new(),
            members: HashMap::new(),
            listeners: HashMap::new(),
            requests: HashMap::new(),
            starved: VecDeque::new(),
            looks: 0,
            attention: Attention::default(),
            busy: 0,
            graves: VecDeque::new(),
            notices: Vec::new(),
            draining: false,
            statistics: EdgeStatistics::default(),
        }
    }

    /// Begins a session.
    ///
    /// # Errors
    /// The engine has no room for another protection domain.
    pub fn open(
        &mut self,
        session: SessionId,
        doorbells: DoorbellPage,
        bell: Option<Arc<Doorbell>>,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        let application = Application {
            doorbells,
            domain: engine.create_domain()?,
            hearing: Hearing::new(bell),
            awake: false,
            deaf: false,
            heard: None,
            pending: [0; WORDS],
            blocked: [0; WORDS],
            waiting: [0; WORDS],
            place: 0,
            place_waiting: 0,
            slots: vec![None; QUEUE_PAIRS_MAX],
            words: 0,
            regions: BTreeMap::new(),
            windows: BTreeSet::new(),
            completion_queues: HashMap::new(),
            full: 0,
            queue_pairs: 0,
            listeners: Vec::new(),
        };
        self.applications.insert(session, application);
        self.attend(session);
        Ok(())
    }

    /// Ends a session. [`Self::bury`] releases what it held, and tells `buried` then.
    pub fn close(
        &mut self,
        session: SessionId,
        buried: oneshot::Sender<()>,
        engine: &mut Engine<M>,
    ) {
        let Some(application) = self.applications.remove(&session) else {
            return;
        };
        self.attention.forget(session);
        for port in &application.listeners {
            self.listeners.remove(port);
            engine.unlisten(*port);
        }
        self.reject_all(|owner| owner == session, engine);
        let slots = application.slots.iter().flatten().copied();
        self.graves.push_back(Grave {
            session,
            domain: Some(application.domain),
            queue_pairs: slots.clone().filter_map(Slot::queue_pair).collect(),
            shared: slots.clone().filter_map(Slot::shared).collect(),
            members: slots.filter_map(Slot::member).collect(),
            completion_queues: application.completion_queues.into_values().collect(),
            windows: application.windows.into_iter().collect(),
            regions: application.regions,
            rings: vec![application.doorbells.into_memory()],
            done: Done::Session(buried),
        });
    }

    /// Carries out what a session asks for.
    pub fn carry_out(
        &mut self,
        session: SessionId,
        command: SessionCommand<M>,
        engine: &mut Engine<M>,
    ) {
        use SessionCommand as Asked;
        match command {
            Asked::Register(memory, iova, access, answer) => {
                reply(answer, self.register(session, memory, iova, access, engine));
            }
            Asked::CreateCompletionQueue(ring, wake, answer) => {
                reply(
                    answer,
                    self.create_completion_queue(session, ring, wake, engine),
                );
            }
            Asked::CreateWindow(answer) => reply(answer, self.create_window(session, engine)),
            Asked::CreateQueuePair(request, answer) => {
                reply(answer, self.create_queue_pair(session, *request, engine));
            }
            Asked::CreateSharedQueue(request, answer) => {
                reply(answer, self.create_shared_queue(session, *request, engine));
            }
            Asked::JoinJob(new, answer) => reply(answer, self.join_job(session, *new, engine)),
            Asked::QueryLeaf(answer) => reply(answer, Ok(engine.configured_leaf())),
            Asked::NoteFallback(job, reason, answer) => {
                note_fallback(engine, job, reason);
                reply(answer, Ok(()));
            }
            Asked::LimitSharedQueue(queue, limit, answer) => {
                let limited = self.limit_shared_queue(session, queue, limit, engine);
                reply(answer, limited);
            }
            Asked::Bind(qp, local, answer) => {
                reply(answer, self.bind(session, qp, local, engine));
            }
            Asked::ChoosePartition(qp, index, answer) => {
                reply(answer, self.choose_partition(session, qp, index, engine));
            }
            Asked::Listen(at, port, backlog, answer) => {
                reply(answer, self.listen(session, at, port, backlog, engine));
            }
            Asked::Connect(qp, address, port, private, answer) => {
                reply(
                    answer,
                    self.connect(session, qp, address, port, &private, engine),
                );
            }
            Asked::Accept(request, qp, private, answer) => {
                reply(answer, self.accept(session, request, qp, &private, engine));
            }
            Asked::SetOptions(qp, options, answer) => {
                reply(answer, self.set_options(session, qp, options));
            }
            Asked::Reject(request, private, answer) => {
                let waiting = self.take_request(session, request);
                let rejected =
                    waiting.and_then(|it| engine.reject(it.connection, private.as_slice()));
                reply(answer, rejected);
            }
            Asked::Disconnect(qp, answer) => reply(answer, self.disconnect(session, qp, engine)),
            Asked::ConnectByHand(qp, by_hand, answer) => {
                reply(answer, self.connect_by_hand(session, qp, &by_hand, engine));
            }
            Asked::ModifyQueuePair(qp, next, given, answer) => {
                self.change_state(session, qp, (next, &given), answer, engine);
            }
            Asked::QueryQueuePair(qp, answer) => reply(answer, self.query(session, qp, engine)),
            Asked::Paths(qp, asked) => self.paths(session, qp, asked, engine),
            Asked::Destroy(ObjectKind::Region, lkey, answer) => {
                self.destroy_region(session, lkey, engine, answer);
            }
            Asked::Destroy(kind, handle, answer) => {
                match self.destroy(session, kind, handle, engine) {
                    Ok(rings) if !rings.is_empty() => {
                        let grave = Grave::of_rings(session, rings, answer);
                        self.graves.push_back(grave);
                    }
                    other => reply(answer, other.map(drop)),
                }
            }
        }
    }

    fn application(&mut self, session: SessionId) -> Result<&mut Application, EngineError> {
        self.applications
            .get_mut(&session)
            .ok_or(EngineError::Unknown)
    }

    fn rings(&mut self, session: SessionId, qp: u32) -> Result<&mut WorkRings, EngineError> {
        match self.queue_pairs.get_mut(&qp) {
            Some((owner, rings)) if *owner == session => Ok(rings),
            _ => Err(EngineError::Unknown),
        }
    }

    fn may_connect(&self) -> Result<(), EngineError> {
        if self.draining {
            Err(EngineError::State)
        } else {
            Ok(())
        }
    }

    fn take_request(&mut self, session: SessionId, request: u32) -> Result<Waiting, EngineError> {
        match self.requests.get(&request).copied() {
            Some(waiting) if waiting.session == session => {
                self.requests.remove(&request);
                Ok(waiting)
            }
            _ => Err(EngineError::Unknown),
        }
    }

    fn disconnect(
        &mut self,
        session: SessionId,
        qp: u32,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        let rings = self.rings(session, qp)?;
        if rings.link == Link::ByHand {
            return self.end_by_hand(qp, engine);
        }
        if matches!(rings.link, Link::Ended | Link::Broken) {
            // A fault or the peer was faster: it is what was asked for.
            return Ok(());
        }
        let connection = rings.connection().ok_or(EngineError::State)?;
        // What was posted before is sent before, as far as the engine's queue has room.
        if let Some((session, rings)) = self.queue_pairs.get_mut(&qp) {
            empty(
                *session,
                qp,
                rings,
                engine,
                &mut self.statistics,
                &mut self.notices,
            );
        }
        engine.disconnect(connection)
    }

    /// A completion queue that its application broke takes its queue pairs with it.
    fn break_users(&mut self, session: SessionId, id: CompletionQueueId, engine: &mut Engine<M>) {
        for (number, (owner, rings)) in &mut self.queue_pairs {
            if *owner == session && rings.queues.contains(&id) && rings.link != Link::Broken {
                self.statistics.broken_queues += 1;
                self.notices
                    .push(break_off(session, *number, rings, engine));
            }
        }
        self.break_members(session, id, engine);
    }

    /// What has to be told to the control thread, the oldest first.
    pub fn take_notices(&mut self, room: usize) -> impl Iterator<Item = Notice> + '_ {
        let count = room.min(self.notices.len());
        self.notices.drain(..count)
    }

    /// Begins to close all connections.
    pub fn drain(&mut self, engine: &mut Engine<M>) {
        self.draining = true;
        self.reject_all(|_| true, engine);
        self.leave_jobs(engine);
        for (number, (session, rings)) in &mut self.queue_pairs {
            empty(
                *session,
                *number,
                rings,
                engine,
                &mut self.statistics,
                &mut self.notices,
            );
            if let Some(connection) = rings.connection() {
                let _ = engine.disconnect(connection);
            }
        }
    }

    /// Whether connections stand or are under way.
    pub fn has_connections(&self) -> bool {
        self.queue_pairs
            .values()
            .any(|(_, rings)| rings.connection().is_some())
    }

    /// The session of a queue pair.
    pub fn owner(&self, qp: u32) -> Option<SessionId> {
        self.queue_pairs.get(&qp).map(|(session, _)| *session)
    }

    /// What every session holds, and what ended ones still do.
    pub fn report(&self, engine: &Engine<M>) -> Vec<SessionReport> {
        let report = |(session, application): (&SessionId, &Application)| SessionReport {
            session: *session,
            regions: application
                .regions
                .iter()
                .map(|(key, len)| (*key, *len))
                .collect(),
            windows: application
                .windows
                .iter()
                .filter_map(|window| engine.window_statistics(*window))
                .collect(),
            completion_queues: application.completion_queues.len(),
            queue_pairs: application.queue_pairs,
            listeners: application.listeners.clone(),
        };
        let ended = self.graves.iter().map(|grave| grave.report(engine));
        self.applications.iter().map(report).chain(ended).collect()
    }

    /// Marks a queue pair to be served in the next turn.
    fn mark(&mut self, qp: u32) {
        let Some((session, rings)) = self.queue_pairs.get(&qp) else {
            return;
        };
        let (session, slot) = (*session, usize::try_from(rings.slot).unwrap_or(0));
        if let Some(application) = self.applications.get_mut(&session) {
            application.pending[slot / 64] |= 1 << (slot % 64);
        }
        self.attend(session);
    }
}

impl Slot {
    fn queue_pair(self) -> Option<u32> {
        match self {
            Self::QueuePair(number) => Some(number),
            Self::Shared(_) | Self::Member(_) => None,
        }
    }

    fn shared(self) -> Option<SharedQueueId> {
        match self {
            Self::QueuePair(_) | Self::Member(_) => None,
            Self::Shared(queue) => Some(queue),
        }
    }

    fn member(self) -> Option<MemberId> {
        match self {
            Self::QueuePair(_) | Self::Shared(_) => None,
            Self::Member(member) => Some(member),
        }
    }
}

fn reply<T>(answer: Answer<T>, result: Result<T, EngineError>) {
    // The session that asked may have ended meanwhile.
    let _ = answer.send(result);
}

/// What fits of a peer's data.
fn private(data: &PrivateData) -> Private {
    let bytes = data.bytes();
    Private::new(&bytes[..bytes.len().min(PRIVATE_MAX)]).unwrap_or_default()
}

/// Takes all requests out of the rings of a queue pair, as far as the engine has room for them.
fn empty<M: RegionMemory>(
    session: SessionId,
    qp: u32,
    rings: &mut WorkRings,
    engine: &mut Engine<M>,
    statistics: &mut EdgeStatistics,
    notices: &mut Vec<Notice>,
) {
    // Bounded, for an application that goes on posting.
    for _ in 0..=RING_ENTRIES_MAX / TURN {
        match rings.serve(engine, statistics, TURN) {
            Ok(Remains::More) => {}
            Ok(Remains::Nothing | Remains::Blocked | Remains::Waiting) => return,
            Err(_) => {
                statistics.broken_queues += 1;
                notices.push(break_off(session, qp, rings, engine));
                return;
            }
        }
    }
}

/// Ends a queue pair whose application broke the rules: its requests are flushed, its peer is told.
fn break_off<M: RegionMemory>(
    session: SessionId,
    qp: u32,
    rings: &mut WorkRings,
    engine: &mut Engine<M>,
) -> Notice {
    if let Some(connection) = rings.connection() {
        let _ = engine.disconnect(connection);
    }
    let _ = engine.modify_queue_pair(qp, &Transition::Error);
    rings.link = Link::Broken;
    Notice::Event(
        session,
        Event::Disconnected {
            qp,
            reason: ErrorCode::Protocol,
        },
    )
}
