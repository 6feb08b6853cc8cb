//! What the control thread asks of the worker, and what the worker reports.
//!
//! Commands go through a bounded channel, and the worker's waker is rung after each; a reply comes
//! through a one-shot channel. Notices go through a bounded channel the other way: when it is full
//! the worker leaves events in the engine, which bounds them itself.

use super::completion::Wake;
use super::region::SharedMemory;
use super::statistics::EdgeStatistics;
use crate::doorbell::Doorbell;
use crate::stats::{
    EngineStatistics, MemberStatistics, PathStatistics, QueuePairStatistics, WindowStatistics,
};
use crate::verbs::{
    ChangeRefused, ChangeStanding, Congestion, Direction, EngineError, MultipathChange, PortId,
    Route, Service, Speeds, Traffic,
};
use common::sys::Waker;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use hostd_client::abi::answer::Event;
use hostd_client::abi::attributes::{QueuePairAttributes, QueuePairState};
use hostd_client::abi::by_hand::ByHand;
use hostd_client::abi::collective::{FailureReason, Membership};
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_LEN};
use hostd_client::abi::doorbell::DoorbellPage;
use hostd_client::abi::options::ConnectionOptions;
use hostd_client::abi::ring::{Consumer, Producer};
use hostd_client::abi::types::{Access, ObjectKind, Private};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// Commands that may wait for the worker; it takes all of them each turn.
pub const COMMANDS: usize = 1024;

/// Notices that may wait for the control thread.
pub const NOTICES: usize = 4096;

/// Names a session within the daemon; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// Where a reply goes.
pub type Answer<T> = oneshot::Sender<Result<T, EngineError>>;

/// A request to the worker; `M` is the applications' memory.
#[derive(Debug)]
pub enum Command<M = SharedMemory> {
    /// A session begins.
    Open {
        /// Which.
        session: SessionId,
        /// The page of its doorbells.
        doorbells: DoorbellPage,
        /// What it wakes the worker with, unless it runs in this process.
        bell: Option<Arc<Doorbell>>,
        /// Done.
        answer: Answer<()>,
    },
    /// A session has ended: everything it held is released; the answer comes when it is.
    Close(SessionId, oneshot::Sender<()>),
    /// Something that a session asks for.
    Session(SessionId, SessionCommand<M>),
    /// How packets of a direction are sent, by port. Without any, those of an own address go as
    /// all others.
    SetRoutes(Direction, Vec<(PortId, Route)>),
    /// The speeds of a port, when they have changed.
    SetSpeeds(PortId, Speeds),
    /// Whether the link of a port is up, when that has changed.
    SetLinkUp(PortId, bool),
    /// Forget routes that lead to no connection; the answer is the destinations of the others.
    EvictRoutes(oneshot::Sender<HashSet<IpAddr>>),
    /// Change a connection while it carries data; the answer names the change if the peer is asked.
    ChangeMultipath(
        u32,
        MultipathChange,
        oneshot::Sender<Result<Option<u16>, ChangeRefused>>,
    ),
    /// What became of a change with this name, if there is a connection with multipath.
    ChangeStanding(u32, u16, oneshot::Sender<Option<ChangeStanding>>),
    /// How everything stands.
    Report(oneshot::Sender<Report>),
    /// Close all connections and take no new ones; the answer comes when none is left.
    Drain(oneshot::Sender<()>),
    /// End the worker.
    Stop,
}

/// What a session may ask of the worker. Quotas have been checked.
#[derive(Debug)]
pub enum SessionCommand<M = SharedMemory> {
    /// Register memory.
    Register(M, u64, Access, Answer<(u32, u32)>),
    /// Create a completion queue; its ring, and what wakes the application.
    CreateCompletionQueue(Producer<COMPLETION_LEN>, Wake, Answer<u32>),
    /// Create a memory window; its number and first key.
    CreateWindow(Answer<(u32, u32)>),
    /// Create a queue pair.
    CreateQueuePair(Box<NewQueuePair>, Answer<u32>),
    /// Create a shared receive queue.
    CreateSharedQueue(Box<NewSharedQueue>, Answer<u32>),
    /// Become a member of a job.
    JoinJob(Box<NewMember>, Answer<u32>),
    /// The switch that members ask, if there is one.
    QueryLeaf(Answer<Option<IpAddr>>),
    /// Count that a member without a membership does without switches: the job, and why.
    NoteFallback(u32, FailureReason, Answer<()>),
    /// Set the limit of a shared receive queue.
    LimitSharedQueue(u32, u32, Answer<()>),
    /// Choose the own address that a queue pair connects from.
    Bind(u32, IpAddr, Answer<()>),
    /// Choose the partition of a queue pair by the index of its key.
    ChoosePartition(u32, u16, Answer<()>),
    /// Listen at one own address, or all, on a port; so many connection requests may wait there for
    /// an answer.
    Listen(Option<IpAddr>, u16, u16, Answer<u16>),
    /// Connect a queue pair.
    Connect(u32, IpAddr, u16, Private, Answer<()>),
    /// Set what a queue pair's connection will be like.
    SetOptions(u32, ConnectionOptions, Answer<Readied>),
    /// Accept a request with a queue pair.
    Accept(u32, u32, Private, Answer<()>),
    /// Turn a request down.
    Reject(u32, Private, Answer<()>),
    /// Close the connection of a queue pair.
    Disconnect(u32, Answer<()>),
    /// Ready a queue pair for a peer, without connection management.
    ConnectByHand(u32, Box<ByHand>, Answer<Readied>),
    /// Change the state or attributes of a queue pair.
    ModifyQueuePair(
        u32,
        QueuePairState,
        Box<QueuePairAttributes>,
        Answer<Readied>,
    ),
    /// Tell the state and attributes of a queue pair.
    QueryQueuePair(u32, Answer<(QueuePairState, QueuePairAttributes)>),
    /// Something about the sub-paths of a queue pair.
    Paths(u32, PathsCommand),
    /// Give an object back.
    Destroy(ObjectKind, u32, Answer<()>),
}

/// What is asked about the sub-paths of a queue pair.
#[derive(Debug)]
pub enum PathsCommand {
    /// Note what is told of the traffic.
    Describe(Traffic, Answer<()>),
    /// Change the sub-paths and their use.
    Change(Box<MultipathChange>, Answer<ChangeAsked>),
    /// Tell what became of a change with this name.
    Standing(u16, Answer<ChangeStanding>),
    /// Ask for this service in the connection to come.
    Serve(Service, Answer<()>),
    /// Steer what is sent in the connection to come by this algorithm.
    Steer(Congestion, Answer<Readied>),
}

/// What became of an application's wish to change sub-paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAsked {
    /// The peer is asked for the change, which has this name.
    Peer(u16),
    /// It is made: nothing in it concerns the peer.
    Made,
    /// It is not possible: why, for people. Nothing has changed.
    Refused(String),
}

/// What became of a queue pair that was to be readied by hand, or to be as the application chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readied {
    /// It is ready.
    Done,
    /// An attribute is not possible: which, and why, for people. Nothing has changed.
    Refused(String),
}

/// A queue pair to be made.
#[derive(Debug)]
pub struct NewQueuePair {
    /// Completion queue of the sends.
    pub send_cq: u32,
    /// Completion queue of the receives.
    pub receive_cq: u32,
    /// The ring of send requests.
    pub send: Consumer<WORK_LEN>,
    /// The ring of receives.
    pub receive: Consumer<WORK_LEN>,
    /// Entries of the send ring.
    pub send_entries: u32,
    /// Receives that may be posted; with a shared queue: completions of receives that may wait.
    pub receive_entries: u32,
    /// The shared receive queue, instead of the receive ring; zero: none.
    pub shared: u32,
    /// Its bit in the doorbell page.
    pub slot: u32,
}

/// A shared receive queue to be made.
#[derive(Debug)]
pub struct NewSharedQueue {
    /// The ring of receives.
    pub ring: Consumer<WORK_LEN>,
    /// Receives that may be posted.
    pub entries: u32,
    /// Fewer of them are an event; zero: none.
    pub limit: u32,
    /// Its bit in the doorbell page.
    pub slot: u32,
}

/// A membership of a job to be made.
#[derive(Debug)]
pub struct NewMember {
    /// Completion queue of the collectives.
    pub cq: u32,
    /// The ring of collectives.
    pub ring: Consumer<WORK_LEN>,
    /// Collectives that may be posted.
    pub entries: u32,
    /// The job, and who the member is there.
    pub membership: Membership,
    /// Its bit in the doorbell page.
    pub slot: u32,
}

/// What the worker reports on its own.
#[derive(Debug)]
pub enum Notice {
    /// For an application.
    Event(SessionId, Event),
    /// Packets wait for a route to this address.
    NeedRoute(IpAddr),
    /// A queue pair was reset: to be answered once all notices before are passed on, so that the
    /// application hears nothing later of what the queue pair was before.
    Reset(Answer<Readied>),
}

/// Answers that what was asked for is done.
pub fn confirm(answer: Answer<Readied>) {
    // The session that asked may have ended meanwhile.
    let _ = answer.send(Ok(Readied::Done));
}

/// How the worker and its engine stand.
#[derive(Debug, Default)]
pub struct Report {
    /// Counters of the engine.
    pub engine: EngineStatistics,
    /// Counters of the applications' edge.
    pub edge: EdgeStatistics,
    /// Every queue pair with its session and its sub-paths.
    pub queue_pairs: Vec<(SessionId, QueuePairStatistics, Vec<PathStatistics>)>,
    /// Every membership of a job with its session, if that is still there.
    pub members: Vec<(Option<SessionId>, MemberStatistics)>,
    /// Every session.
    pub sessions: Vec<SessionReport>,
    /// Free frames at hand of the worker.
    pub frames_at_hand: usize,
}

/// What the worker holds for a session.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// Which.
    pub session: SessionId,
    /// Its regions: local key and bytes.
    pub regions: Vec<(u32, u64)>,
    /// Its memory windows.
    pub windows: Vec<WindowStatistics>,
    /// Completion queues.
    pub completion_queues: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Ports that it listens on.
    pub listeners: Vec<u16>,
}

/// The control thread's end.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    commands: Sender<Command>,
    waker: Waker,
}

/// The worker's end.
#[derive(Debug)]
pub struct ControlHandle<M = SharedMemory> {
    /// What is asked.
    pub commands: Receiver<Command<M>>,
    notices: Sender<Notice>,
    notify: Arc<Notify>,
}

/// The control thread's end for notices.
#[derive(Debug)]
pub struct Notices {
    notices: Receiver<Notice>,
    notify: Arc<Notify>,
}

/// The channels between the two threads; `waker` wakes the worker.
pub fn channels(waker: Waker) -> (WorkerHandle, Notices, ControlHandle) {
    let (command_tx, command_rx) = crossbeam_channel::bounded(COMMANDS);
    let (notice_tx, notice_rx) = crossbeam_channel::bounded(NOTICES);
    let notify = Arc::new(Notify::new());
    (
        WorkerHandle {
            commands: command_tx,
            waker,
        },
        Notices {
            notices: notice_rx,
            notify: notify.clone(),
        },
        ControlHandle {
            commands: command_rx,
            notices: notice_tx,
            notify,
        },
    )
}

impl WorkerHandle {
    /// Sends a command. `false`: the worker is gone, or the channel is full.
    pub fn tell(&self, command: Command) -> bool {
        let sent = self.commands.try_send(command).is_ok();
        self.waker.wake();
        sent
    }

    /// Sends a command; waits while the channel is full. `false`: the worker is gone.
    pub async fn insist(&self, mut command: Command) -> bool {
        loop {
            match self.commands.try_send(command) {
                Ok(()) => {
                    self.waker.wake();
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(back)) => command = back,
            }
            self.waker.wake();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Asks something of the worker; `None` if it is gone.
    pub async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, reply) = oneshot::channel();
        if !self.insist(command(answer)).await {
            return None;
        }
        reply.await.ok()
    }

    /// Wakes the worker, so that it shows that it lives.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

impl<M> ControlHandle<M> {
    /// The worker's end of channels whose other ends are in the same thread.
    pub fn new(commands: Receiver<Command<M>>, notices: Sender<Notice>) -> Self {
        Self {
            commands,
            notices,
            notify: Arc::default(),
        }
    }

    /// Whether there is room for another notice.
    pub fn has_room(&self) -> bool {
        !self.notices.is_full()
    }

    /// Reports something. It is lost if there is no room: ask [`Self::has_room`] first.
    pub fn report(&self, notice: Notice) {
        let _ = self.notices.try_send(notice);
        self.notify.notify_one();
    }
}

impl Notices {
    /// The next notice; `None` when the worker is gone.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.notices.try_recv() {
                Ok(notice) => return Some(notice),
                Err(crossbeam_channel::TryRecvError::Disconnected) => return None,
                Err(crossbeam_channel::TryRecvError::Empty) => self.notify.notified().await,
            }
        }
    }
}
