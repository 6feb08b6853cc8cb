//! The application of a simulated host. It talks to hostd as a real one does, by commands, rings
//! and a doorbell. Only the socket that carries commands and the sharing of memory between
//! processes are left out.

mod members;
mod outside;
mod seats;

pub use seats::{MemberEnd, NewMember};

use super::check::Check;
use super::flow::FlowId;
use super::memory::{Expected, Ledger, Memory};
use crossbeam_channel::{Receiver, Sender};
use hostd::edge::command::{
    self, Answer, Command, ControlHandle, NewQueuePair, Notice, PathsCommand, SessionCommand,
    SessionId,
};
use hostd::edge::completion::Wake;
use hostd::verbs::{EngineError, Service, Traffic};
use hostd_client::abi::answer::Event;
use hostd_client::abi::descriptor::{
    COMPLETION_LEN, CompletionEntry, CompletionOpcode, CompletionStatus, Local, Opcode,
    ReceiveWork, SendWork, Sge, SgeList, WORK_LEN,
};
use hostd_client::abi::doorbell::Doorbell;
use hostd_client::abi::doorbell::DoorbellPage;
use hostd_client::abi::ring::{Consumer, Producer, RingMemory};
use hostd_client::abi::types::{Access, Private};
use seats::Members;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// Number of a connection in the simulation.
pub type ConnectionId = usize;

/// Requests that one end has posted and not seen completed, at most.
const RING: u32 = 64;

/// Completions of a host that wait to be looked at, at most.
const COMPLETIONS: u32 = 4096;

/// Where all applications listen.
const SERVICE: u16 = 7471;

/// Connection requests that may wait there: hosts of a fabric may all connect at once.
const BACKLOG: u16 = u16::MAX;

/// Commands and notices under way between application and daemon.
const CHANNEL: usize = 64;

/// The only session of a host.
const SESSION: SessionId = SessionId(1);

/// How applications send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// RDMA WRITE with immediate data.
    Write,
    /// SEND.
    Send,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Connects and sends.
    Sender,
    /// Accepts and receives.
    Receiver,
}

/// A message that waits for a place in the send ring.
#[derive(Clone, Copy, Debug)]
struct Message {
    len: u32,
    /// The flow that it ends.
    ends: Option<FlowId>,
}

/// One end of a connection.
#[derive(Debug)]
struct Endpoint {
    connection: ConnectionId,
    side: Side,
    qp: u32,
    slot: u32,
    lkey: u32,
    rkey: u32,
    /// The receiver's key, once connected.
    remote: Option<u32>,
    send: Producer<WORK_LEN>,
    receive: Producer<WORK_LEN>,
    ledger: Rc<RefCell<Ledger>>,
    backlog: VecDeque<Message>,
    /// The messages that are posted and not complete, oldest first, and the flows that end with
    /// them.
    posted: VecDeque<(u64, Option<FlowId>)>,
    /// Messages may complete in any order.
    unordered: bool,
    /// Messages posted so far; of a receiver, receives.
    messages: u64,
    /// Completions so far.
    completed: u64,
    /// Bytes posted so far.
    stream: u64,
    /// Space in the receiver's memory for one message.
    slot_bytes: u64,
    over: bool,
}

/// What the application learned or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// This side of a connection is up.
    Established(ConnectionId, Side),
    /// A connection could not be made, or has ended; the text says why.
    Ended(ConnectionId, Side, &'static str),
    /// The sender's last request of a flow completed.
    Sent(FlowId),
    /// A message was received whole: of this connection, its number.
    Received(ConnectionId, u64),
    /// The daemon did what it may not do: see [`App::violation`].
    Violated(ConnectionId),
    /// Packets wait for a route to this address.
    NeedRoute(IpAddr),
    /// A member of a job is done, or was told that the job is over: of this job, its world rank.
    Member(usize, u16, MemberEnd),
}

/// The application and its link to the daemon.
#[derive(Debug)]
pub struct App<const BYTES: bool> {
    commands: Sender<Command<Memory<BYTES>>>,
    notices: Receiver<Notice>,
    doorbell: Doorbell,
    completions: Consumer<COMPLETION_LEN>,
    woken: Arc<AtomicBool>,
    queue: u32,
    ends: Vec<Endpoint>,
    by_qp: HashMap<u32, usize>,
    by_connection: HashMap<ConnectionId, usize>,
    members: Members,
    /// A broken engine is simulated: this completion comes twice.
    repeat: Option<u64>,
    seen: u64,
    /// The first thing that a daemon may not do.
    pub violation: Option<(Check, String)>,
}

/// What hostd's worker is given of the application's side.
pub type WorkerEnd<const BYTES: bool> = ControlHandle<Memory<BYTES>>;

/// A new end of a connection.
#[derive(Debug)]
pub struct NewEnd {
    /// Its connection.
    pub connection: ConnectionId,
    /// Which end.
    pub side: Side,
    /// What is to be delivered on it.
    pub ledger: Rc<RefCell<Ledger>>,
    /// Longest message.
    pub message: u32,
    /// It asks for messages as they become whole (HT-39).
    pub unordered: bool,
}

fn memory_works<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    result.expect("memory for a ring")
}

impl<const BYTES: bool> App<BYTES> {
    /// The application and the worker's end of its channels.
    pub fn new() -> (
        Self,
        WorkerEnd<BYTES>,
        DoorbellPage,
        Producer<COMPLETION_LEN>,
    ) {
        let (commands, commands_to) = crossbeam_channel::bounded(CHANNEL);
        let (notices_from, notices) = crossbeam_channel::bounded(CHANNEL);
        let (doorbell, page) = memory_works(DoorbellPage::private());
        let ring = memory_works(RingMemory::<COMPLETION_LEN>::private(COMPLETIONS));
        let app = Self {
            commands,
            notices,
            doorbell,
            completions: ring.consumer(),
            woken: Arc::default(),
            queue: 0,
            ends: Vec::new(),
            by_qp: HashMap::new(),
            by_connection: HashMap::new(),
            members: Members::default(),
            repeat: None,
            seen: 0,
            violation: None,
        };
        let control = ControlHandle::new(commands_to, notices_from);
        (app, control, page, ring.producer())
    }

    fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> SessionCommand<Memory<BYTES>>) -> Reply<T> {
        let (answer, reply) = oneshot::channel();
        self.tell(Command::Session(SESSION, command(answer)));
        reply
    }

    fn tell(&self, command: Command<Memory<BYTES>>) {
        let sent = self.commands.try_send(command);
        assert!(sent.is_ok(), "the daemon takes all commands each turn");
    }

    /// Begins the session, makes the completion queue and listens. `turn` lets the daemon take a
    /// turn.
    ///
    /// # Errors
    /// What the daemon refused.
    pub fn begin(
        &mut self,
        doorbells: DoorbellPage,
        ring: Producer<COMPLETION_LEN>,
        mut turn: impl FnMut(),
    ) -> Result<(), EngineError> {
        let (answer, opened) = oneshot::channel();
        self.tell(Command::Open {
            session: SESSION,
            doorbells,
            bell: None,
            answer,
        });
        turn();
        answered(opened)?;
        let wake = Wake::Flag(self.woken.clone());
        let created = self.ask(|answer| SessionCommand::CreateCompletionQueue(ring, wake, answer));
        turn();
        self.queue = answered(created)?;
        let listening = self.ask(|answer| SessionCommand::Listen(None, SERVICE, BACKLOG, answer));
        turn();
        answered(listening)?;
        memory_works(self.completions.arm());
        Ok(())
    }

    /// Makes a queue pair and registers memory for one end of a connection.
    ///
    /// # Errors
    /// What the daemon refused.
    pub fn add(&mut self, new: NewEnd, mut turn: impl FnMut()) -> Result<(), EngineError> {
        let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
        let memory = Memory::Stream(new.ledger.clone());
        let registered = self.ask(|answer| SessionCommand::Register(memory, 0, access, answer));
        turn();
        let (lkey, rkey) = answered(registered)?;
        let send = memory_works(RingMemory::<WORK_LEN>::private(RING));
        let receive = memory_works(RingMemory::<WORK_LEN>::private(RING));
        let slot = self.free_slot();
        let request = Box::new(NewQueuePair {
            send_cq: self.queue,
            receive_cq: self.queue,
            send: send.consumer(),
            receive: receive.consumer(),
            send_entries: RING,
            receive_entries: RING,
            shared: 0,
            slot,
        });
        let created = self.ask(|answer| SessionCommand::CreateQueuePair(request, answer));
        turn();
        let qp = answered(created)?;
        if new.unordered {
            let serve = |answer| PathsCommand::Serve(Service::Unordered, answer);
            let chosen = self.ask(|answer| SessionCommand::Paths(qp, serve(answer)));
            turn();
            answered(chosen)?;
        }
        self.by_qp.insert(qp, self.ends.len());
        self.by_connection.insert(new.connection, self.ends.len());
        self.ends.push(Endpoint {
            connection: new.connection,
            side: new.side,
            qp,
            slot,
            lkey,
            rkey,
            remote: None,
            send: send.producer(),
            receive: receive.producer(),
            ledger: new.ledger,
            backlog: VecDeque::new(),
            posted: VecDeque::new(),
            unordered: new.unordered,
            messages: 0,
            completed: 0,
            stream: 0,
            slot_bytes: u64::from(new.message),
            over: false,
        });
        if new.side == Side::Receiver {
            let end = self.ends.last_mut().expect("just pushed");
            (0..RING).for_each(|_| end.post_receive());
            end.receive.publish();
            self.doorbell.ring(slot);
        }
        Ok(())
    }

    /// A bit of the doorbell page that nothing has yet.
    fn free_slot(&self) -> u32 {
        u32::try_from(self.ends.len() + self.members.len()).expect("few ends and members")
    }

    /// Connects a sender to its peer.
    pub fn connect(&self, connection: ConnectionId, peer: IpAddr) {
        let end = &self.ends[self.by_connection[&connection]];
        let number = u64::try_from(connection).expect("few connections");
        let private = Private::new(&number.to_be_bytes()).expect("eight bytes");
        drop(self.ask(|answer| SessionCommand::Connect(end.qp, peer, SERVICE, private, answer)));
    }

    /// Tells the daemon that the next flow of a connection has so many bytes.
    pub fn describe(&self, connection: ConnectionId, bytes: u64) {
        let end = &self.ends[self.by_connection[&connection]];
        let traffic = Traffic {
            block: u32::try_from(bytes).unwrap_or(u32::MAX),
            ..Traffic::default()
        };
        drop(
            self.ask(|answer| {
                SessionCommand::Paths(end.qp, PathsCommand::Describe(traffic, answer))
            }),
        );
    }

    /// Sends `bytes` as messages of at most `message` bytes.
    pub fn send(
        &mut self,
        connection: ConnectionId,
        flow: FlowId,
        bytes: u64,
        message: u32,
        verb: Verb,
    ) {
        let end = &mut self.ends[self.by_connection[&connection]];
        let mut left = bytes;
        while left > 0 {
            let len = u32::try_from(left.min(u64::from(message))).expect("at most a message");
            left -= u64::from(len);
            let ends = (left == 0).then_some(flow);
            end.backlog.push_back(Message { len, ends });
        }
        end.post(verb);
        self.doorbell.ring(end.slot);
    }

    /// Simulates a daemon that lets a completion come twice, the one of this number.
    pub fn repeat_completion(&mut self, number: u64) {
        self.repeat = Some(number);
    }

    /// Looks at what the daemon has done, acts on it, and appends what is to be known to `reports`.
    /// Whether the daemon has to take another turn.
    pub fn react(&mut self, verb: Verb, reports: &mut Vec<Report>) -> bool {
        let mut acted = false;
        while let Ok(notice) = self.notices.try_recv() {
            acted |= self.notice(notice, verb, reports);
        }
        if self.woken.swap(false, Ordering::Acquire) {
            acted |= self.complete(verb, reports);
        }
        acted
    }

    fn notice(&mut self, notice: Notice, verb: Verb, reports: &mut Vec<Report>) -> bool {
        let event = match notice {
            Notice::NeedRoute(destination) => {
                reports.push(Report::NeedRoute(destination));
                return true;
            }
            Notice::Event(_, event) => event,
            Notice::Reset(answer) => {
                command::confirm(answer);
                return false;
            }
        };
        match event {
            Event::ConnectRequest {
                request, private, ..
            } => {
                self.accept(request, private.as_slice());
                true
            }
            Event::Established { qp, private, .. } => {
                let Some(end) = self.by_qp.get(&qp).map(|index| &mut self.ends[*index]) else {
                    return false;
                };
                if end.side == Side::Sender {
                    let key = private.as_slice().first_chunk().copied();
                    end.remote = Some(u32::from_be_bytes(key.unwrap_or_default()));
                }
                end.post(verb);
                self.doorbell.ring(end.slot);
                reports.push(Report::Established(end.connection, end.side));
                true
            }
            Event::ConnectFailed { qp, reason, .. } | Event::Disconnected { qp, reason } => {
                let Some(end) = self.by_qp.get(&qp).map(|index| &mut self.ends[*index]) else {
                    return false;
                };
                end.over = true;
                reports.push(Report::Ended(end.connection, end.side, reason.text()));
                false
            }
            // Applications of the twin neither share receives nor drain queues.
            Event::SharedLimitReached { .. }
            | Event::LastReceiveTaken { .. }
            | Event::SendQueueDrained { .. }
            | Event::Port { .. } => false,
        }
    }

    fn accept(&self, request: u32, private: &[u8]) {
        let number = private
            .first_chunk()
            .map(|number| u64::from_be_bytes(*number));
        let known = number
            .and_then(|number| usize::try_from(number).ok())
            .and_then(|connection| self.by_connection.get(&connection));
        match known {
            Some(&index) => {
                let end = &self.ends[index];
                let key = Private::new(&end.rkey.to_be_bytes()).expect("four bytes");
                drop(self.ask(|answer| SessionCommand::Accept(request, end.qp, key, answer)));
            }
            None => {
                let nothing = Private::EMPTY;
                drop(self.ask(|answer| SessionCommand::Reject(request, nothing, answer)));
            }
        }
    }

    fn complete(&mut self, verb: Verb, reports: &mut Vec<Report>) -> bool {
        loop {
            while let Some(bytes) = memory_works(self.completions.pop()) {
                let entry = memory_works(CompletionEntry::parse(&bytes));
                self.seen += 1;
                self.take(&entry, verb, reports);
                if self.repeat == Some(self.seen) {
                    self.take(&entry, verb, reports);
                }
            }
            self.completions.release();
            if !memory_works(self.completions.arm()) {
                break;
            }
        }
        // Its doorbell was rung if there is something new; room in the ring of completions it sees
        // by itself.
        true
    }

    fn take(&mut self, entry: &CompletionEntry, verb: Verb, reports: &mut Vec<Report>) {
        if self.take_collective(entry, reports) {
            return;
        }
        let Some(&index) = self.by_qp.get(&entry.qp) else {
            let what = format!("a completion of queue pair {}, which is not ours", entry.qp);
            self.complain(Check::ExactlyOnce, what);
            return;
        };
        let end = &mut self.ends[index];
        if entry.status != CompletionStatus::Success {
            if !end.over {
                end.over = true;
                reports.push(Report::Ended(end.connection, end.side, entry.status.text()));
            }
            return;
        }
        let wrong = end.check(entry);
        if let Some((check, wrong)) = wrong {
            let what = format!("connection {}, {:?}: {wrong}", end.connection, end.side);
            reports.push(Report::Violated(end.connection));
            self.complain(check, what);
            return;
        }
        end.completed += 1;
        match end.side {
            Side::Sender => {
                let place = end.posted.iter().position(|one| one.0 == entry.wr_id);
                let one = place.and_then(|place| end.posted.remove(place));
                if let Some((_, Some(flow))) = one {
                    reports.push(Report::Sent(flow));
                }
                end.post(verb);
            }
            Side::Receiver => {
                let number = entry.immediate.map_or(0, u64::from);
                reports.push(Report::Received(end.connection, number));
                end.post_receive();
                end.receive.publish();
            }
        }
        self.doorbell.ring(end.slot);
    }

    fn complain(&mut self, check: Check, what: String) {
        self.violation.get_or_insert((check, what));
    }
}

type Reply<T> = oneshot::Receiver<Result<T, EngineError>>;

fn answered<T>(mut reply: Reply<T>) -> Result<T, EngineError> {
    reply.try_recv().expect("the daemon answers in its turn")
}

impl Endpoint {
    /// Posts what waits, as far as there is room.
    fn post(&mut self, verb: Verb) {
        let Some(rkey) = self.remote else { return };
        while self.posted.len() < RING as usize {
            let Some(message) = self.backlog.pop_front() else {
                break;
            };
            let target = self.messages * self.slot_bytes;
            let list = [Sge {
                address: self.stream,
                length: message.len,
                lkey: self.lkey,
            }];
            let opcode = match verb {
                Verb::Write => Opcode::WriteWithImmediate,
                Verb::Send => Opcode::SendWithImmediate,
            };
            let work = SendWork {
                wr_id: self.messages,
                opcode,
                signaled: true,
                solicited: false,
                fence: false,
                immediate: number(self.messages),
                remote_address: if verb == Verb::Write { target } else { 0 },
                rkey: if verb == Verb::Write { rkey } else { 0 },
                local: Local::Pieces(SgeList::new(&list).expect("one buffer")),
                compare_add: 0,
                swap: 0,
            };
            let pushed = memory_works(self.send.push(&work.to_bytes()));
            assert!(pushed, "the ring has as many places");
            self.ledger.borrow_mut().expect(Expected {
                source: self.stream,
                target,
                len: message.len,
            });
            self.stream += u64::from(message.len);
            self.posted.push_back((self.messages, message.ends));
            self.messages += 1;
        }
        self.send.publish();
    }

    /// Posts a buffer for the next message.
    fn post_receive(&mut self) {
        let list = [Sge {
            address: self.messages * self.slot_bytes,
            length: u32::try_from(self.slot_bytes).expect("a message"),
            lkey: self.lkey,
        }];
        let work = ReceiveWork {
            wr_id: self.messages,
            buffers: SgeList::new(&list).expect("one buffer"),
        };
        if memory_works(self.receive.push(&work.to_bytes())) {
            self.messages += 1;
        }
    }

    /// What is wrong with a completion, if anything: they come once, in order unless the service
    /// has none, and not before the data.
    fn check(&self, entry: &CompletionEntry) -> Option<(Check, String)> {
        if self.unordered && self.side == Side::Sender {
            let known = self.posted.iter().any(|one| one.0 == entry.wr_id);
            let what = || format!("request {} completed, and was not under way", entry.wr_id);
            return (!known).then(|| (Check::ExactlyOnce, what()));
        }
        // Receives are taken in order, whatever message comes.
        if entry.wr_id != self.completed {
            let check = if entry.wr_id < self.completed {
                Check::ExactlyOnce
            } else {
                Check::InOrder
            };
            let what = format!(
                "request {} completed, {} was to be next",
                entry.wr_id, self.completed
            );
            return Some((check, what));
        }
        let expected = match self.side {
            Side::Sender => [CompletionOpcode::Send, CompletionOpcode::Write],
            Side::Receiver => [
                CompletionOpcode::Receive,
                CompletionOpcode::ReceiveWriteImmediate,
            ],
        };
        if !expected.contains(&entry.opcode) {
            let what = format!("a completion of kind {:?}", entry.opcode);
            return Some((Check::InOrder, what));
        }
        if self.side == Side::Sender {
            return None;
        }
        if self.unordered {
            let target = entry.immediate.map(|it| u64::from(it) * self.slot_bytes);
            let whole = target.is_some_and(|target| self.ledger.borrow().is_whole(target));
            let what = || "a message completed before its data came".to_owned();
            return (!whole).then(|| (Check::ExactlyOnce, what()));
        }
        if entry.immediate != Some(number(self.completed)) {
            let what = format!(
                "message {} came with the immediate data {:?}",
                self.completed, entry.immediate
            );
            return Some((Check::InOrder, what));
        }
        let whole = self.ledger.borrow().whole;
        (whole <= self.completed).then(|| {
            let what = format!("message {} completed before its data came", self.completed);
            (Check::InOrder, what)
        })
    }
}

/// The number of a message as immediate data.
fn number(message: u64) -> u32 {
    u32::try_from(message & u64::from(u32::MAX)).expect("masked")
}
