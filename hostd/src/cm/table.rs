//! Connections, by own and by the peer's number, their clocks, and messages on their way out.
//!
//! What strangers can fill is bounded: connections that they asked for and that do not stand yet,
//! in all and for each address, and answers to what concerns no connection. The table has room for
//! a connection of every queue pair besides, because those in time-wait make way.

use super::machine::Phase;
use super::negotiation::Offer;
use crate::limits;
use crate::slab::Slab;
use crate::timers::Timers;
use crate::verbs::{Cookies, DropReason, EngineError, PortId, PrivateData, Untagged};
use common::time::{Span, Time};
use common::wire::cm::{Mad, Message, Pair};
use common::wire::roce::Flow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

/// Messages that wait for the next transmission; what finds no room is repeated by its sender.
const OUTBOX: usize = 1024;

/// Answers to strangers that wait for the next transmission.
const ANSWERS: usize = 256;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    /// This side sent the REQ.
    pub(crate) active: bool,
    pub(crate) remote: IpAddr,
    /// The own address that the peer knows it by: what its REQ was sent to, or this side's REQ is
    /// sent from. `None` before there is a route, unless the application chose one.
    pub(crate) local: Option<IpAddr>,
    /// The peer's number for it; zero before it is known.
    pub(crate) remote_id: u32,
    /// Of the REQ, and of all that answers it.
    pub(crate) transaction: u64,
    /// Of the DREQ, own or the peer's.
    pub(crate) closing: u64,
    /// Own queue pair, while it is there.
    pub(crate) qpn: Option<u32>,
    /// The number of own queue pair, also when it is gone; zero before there is one.
    pub(crate) own_qpn: u32,
    pub(crate) service: u16,
    /// It is refused because there is no room for its request.
    pub(crate) no_room: bool,
    /// What the application gave: its data and its attributes.
    pub(crate) given: Given,
    /// What the peer's REQ or REP said.
    pub(crate) asked: Option<Asked>,
    /// The way back that the peer's REQ came; until there is a route.
    pub(crate) way: Option<(PortId, Flow)>,
    /// The own key of its partition.
    pub(crate) partition: u16,
    /// The PSN that the peer is told to begin at.
    pub(crate) psn: u32,
    /// What was offered, or agreed on.
    pub(crate) offer: Option<Offer>,
    /// Why its packets have no tags though this side offers them, if that is so.
    pub(crate) untagged: Option<Untagged>,
    /// What packets to each side carry if multipath was agreed on.
    pub(crate) cookies: Cookies,
    /// Path MTU of the REQ that was sent.
    pub(crate) path_mtu: u16,
    /// The path MTU that the peer found acceptable when it refused the REQ before this one.
    pub(crate) acceptable_mtu: Option<u16>,
    /// The message that is repeated in this phase, or the last answer; `None` before there is a
    /// route.
    pub(crate) message: Option<Message>,
    pub(crate) tries: u8,
    /// MRAs that were obeyed.
    pub(crate) patience: u8,
    /// An MRA said that the answer takes this long.
    pub(crate) extended: Option<Span>,
    /// When something has to happen; `None` before the clock was seen in this phase.
    pub(crate) deadline: Option<Time>,
    /// When the phase ends though something has to happen before.
    pub(crate) end: Option<Time>,
}

/// What the application gave to connect or to accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) private_data: PrivateData,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) depth: Depth,
}

/// RDMA READs and atomic operations that one side can have outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    /// Those of the other side.
    pub(crate) responder_resources: u8,
    /// Its own.
    pub(crate) initiator_depth: u8,
}

impl Given {
    /// Before the application gave anything.
    pub(crate) const NOTHING: Self = Self {
        private_data: PrivateData::EMPTY,
        timeout: 0,
        retry_count: 0,
        rnr_retry: 0,
        min_rnr_timer: 0,
        depth: Depth {
            responder_resources: 0,
            initiator_depth: 0,
        },
    };

    /// What this side can do together with a peer that `asked`: each side's own ones are bounded by
    /// the other's resources (InfiniBand 12.7.29, 12.7.30).
    pub(crate) fn depth_with(&self, asked: &Asked) -> Depth {
        let (own, peer) = (self.depth, asked.depth);
        Depth {
            responder_resources: own.responder_resources.min(peer.initiator_depth),
            initiator_depth: own.initiator_depth.min(peer.responder_resources),
        }
    }
}

/// What a REQ or REP said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    /// Retries that this side is asked for when the peer is not ready.
    pub(crate) rnr_retry: u8,
    pub(crate) depth: Depth,
    /// Retries that this side is asked for when nothing answers; a REP says nothing of it.
    pub(crate) retry_count: Option<u8>,
    /// How long this side is asked to wait for an acknowledgement; a REP says nothing of it.
    pub(crate) timeout: Option<u8>,
    /// Time in which the peer expects an answer.
    pub(crate) response: Span,
}

impl Connection {
    /// A connection in `phase`, of which nothing else is known than whom it is with.
    pub(crate) fn new(phase: Phase, remote: IpAddr, transaction: u64) -> Self {
        Self {
            phase,
            active: phase == Phase::Requesting,
            remote,
            local: None,
            remote_id: 0,
            transaction,
            closing: 0,
            qpn: None,
            own_qpn: 0,
            service: 0,
            no_room: false,
            given: Given::NOTHING,
            asked: None,
            way: None,
            partition: 0,
            psn: 0,
            offer: None,
            untagged: None,
            cookies: Cookies::default(),
            path_mtu: 0,
            acceptable_mtu: None,
            message: None,
            tries: 0,
            patience: 0,
            extended: None,
            deadline: None,
            end: None,
        }
    }

    /// Gives it a queue pair.
    pub(crate) fn take_queue_pair(&mut self, qpn: u32) {
        self.qpn = Some(qpn);
        self.own_qpn = qpn;
    }

    /// Whether a message from `source` that names `pair` comes from the peer. `nameless`: it may
    /// come from a peer that has no number of its own (a REJ of a REQ).
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(
        &self,
        pair: &Pair,
        source: IpAddr,
        nameless: bool,
    ) -> Result<(), DropReason> {
        if self.remote != source {
            return Err(DropReason::ManagementSource);
        }
        let named = pair.local_comm_id;
        let right = match (self.phase, self.remote_id) {
            // Its number is not known before its first message.
            (Phase::Requesting, 0) => named != 0 || nameless,
            (Phase::Requesting, known) => named == known || (named == 0 && nameless),
            (_, known) => named == known && known != 0,
        };
        if right {
            Ok(())
        } else {
            Err(DropReason::ManagementId)
        }
    }
}

/// A message and whom it is for.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) remote: IpAddr,
    /// The own address that it leaves from; the route's if `None`.
    pub(crate) local: Option<IpAddr>,
    /// The way there if there is no route.
    pub(crate) way: Option<(PortId, Flow)>,
    /// The own key of the partition.
    pub(crate) partition: u16,
    pub(crate) mad: Mad,
}

/// All connections of an engine.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    connections: Slab<Box<Connection>>,
    /// By the peer's address, number and transaction: a repeated REQ is found here. A peer that was
    /// restarted may use its old numbers again, but not its old transactions: those are random.
    by_peer: HashMap<(IpAddr, u32, u64), u32>,
    /// By the peer's address and queue pair: a connection that its peer forgot is found here.
    by_queue_pair: HashMap<(IpAddr, u32), u32>,
    /// Ports, and the own address that requests have to be sent to, if not any.
    listeners: HashMap<u16, Option<IpAddr>>,
    /// By the peer's address: connections whose message waits for a route.
    unrouted: BTreeSet<(IpAddr, u32)>,
    timers: Timers,
    pub(crate) outbox: VecDeque<Outgoing>,
    /// Answers to what concerns no connection.
    pub(crate) answers: VecDeque<Outgoing>,
    /// Messages sent; each takes another path, so that one that leads nowhere does not end a
    /// connection.
    pub(crate) sent: u64,
    /// Half-open connections of each address.
    half_open: HashMap<IpAddr, u32>,
    half_open_total: u32,
    /// Those that wait for the application, the oldest first; some may have gone on meanwhile.
    waiting: VecDeque<u32>,
    /// Those in time-wait, the oldest first; some may be gone.
    time_wait: VecDeque<u32>,
}

impl ConnectionTable {
    pub(crate) fn new() -> Self {
        Self {
            connections: Slab::new(limits::CONNECTIONS, 32),
            by_peer: HashMap::new(),
            by_queue_pair: HashMap::new(),
            listeners: HashMap::new(),
            unrouted: BTreeSet::new(),
            timers: Timers::default(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            sent: 0,
            half_open: HashMap::new(),
            half_open_total: 0,
            waiting: VecDeque::new(),
            time_wait: VecDeque::new(),
        }
    }

    pub(crate) fn listen(&mut self, port: u16, at: Option<IpAddr>) -> Result<(), EngineError> {
        if self.listeners.contains_key(&port) {
            return Err(EngineError::Busy);
        }
        if self.listeners.len() >= limits::LISTENERS {
            return Err(EngineError::TooMany);
        }
        self.listeners.insert(port, at);
        Ok(())
    }

    pub(crate) fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Whether somebody listens on `port` of the own address `local`.
    pub(crate) fn listens(&self, port: u16, local: IpAddr) -> bool {
        let at = self.listeners.get(&port);
        at.is_some_and(|at| at.is_none_or(|at| at == local))
    }

    /// Adds a connection under the number that `draw` makes; `None` when the table is full. One in
    /// time-wait makes way.
    pub(crate) fn insert(&mut self, connection: Connection, draw: u64) -> Option<u32> {
        while self.connections.len() >= limits::CONNECTIONS as usize {
            let oldest = self.time_wait.pop_front()?;
            let over = self.get(oldest).is_some_and(|c| c.phase == Phase::TimeWait);
            if over {
                self.remove(oldest);
            }
        }
        let phase = connection.phase;
        let remote = connection.remote;
        let peer = (remote, connection.remote_id, connection.transaction);
        let asked = connection.asked.map(|asked| asked.qpn);
        let boxed = Box::new(connection);
        let number = self.connections.insert_drawn(boxed, draw).ok()?;
        if let Some(qpn) = asked {
            self.by_peer.insert(peer, number);
            self.by_queue_pair.insert((remote, qpn), number);
        }
        if phase.is_half_open() {
            *self.half_open.entry(remote).or_default() += 1;
            self.half_open_total += 1;
            self.waiting.push_back(number);
        }
        self.wake(number, Time::ZERO);
        Some(number)
    }

    /// Whether `remote` has as many half-open connections as one address may have.
    pub(crate) fn is_greedy(&self, remote: IpAddr) -> bool {
        let held = self.half_open.get(&remote).copied().unwrap_or(0);
        held >= limits::HALF_OPEN_OF_SOURCE
    }

    /// Whether there are as many half-open connections as there may be.
    pub(crate) fn is_crowded(&self) -> bool {
        self.half_open_total >= limits::HALF_OPEN
    }

    /// Whether the room that is left is for connections that this host begins.
    pub(crate) fn is_reserved(&self) -> bool {
        let lasting = self.connections.len().saturating_sub(self.time_wait.len());
        lasting >= (limits::CONNECTIONS - limits::OUTGOING) as usize
    }

    /// The connection that has waited longest for the application.
    pub(crate) fn oldest_waiting(&mut self) -> Option<u32> {
        while let Some(&number) = self.waiting.front() {
            if self.get(number).is_some_and(|c| c.phase == Phase::Waiting) {
                return Some(number);
            }
            self.waiting.pop_front();
        }
        None
    }

    fn leave_half_open(&mut self, remote: IpAddr) {
        self.half_open_total -= 1;
        if let Some(held) = self.half_open.get_mut(&remote) {
            *held -= 1;
            if *held == 0 {
                self.half_open.remove(&remote);
            }
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Connection> {
        self.connections.get(number).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.connections.get_mut(number).map(Box::as_mut)
    }

    /// The connection that a repeated REQ is about.
    pub(crate) fn of_peer(&self, remote: IpAddr, remote_id: u32, transaction: u64) -> Option<u32> {
        self.by_peer.get(&(remote, remote_id, transaction)).copied()
    }

    /// The connection of a peer's queue pair, unless it is over.
    pub(crate) fn of_queue_pair(&self, remote: IpAddr, qpn: u32) -> Option<u32> {
        let number = *self.by_queue_pair.get(&(remote, qpn))?;
        let connection = self.get(number)?;
        (!matches!(connection.phase, Phase::Disconnecting | Phase::TimeWait)).then_some(number)
    }

    /// Notes what the REP of a connection said.
    pub(crate) fn learn(&mut self, number: u32, remote_id: u32, asked: Asked) {
        let Some(connection) = self.get_mut(number) else {
            return;
        };
        connection.remote_id = remote_id;
        connection.asked = Some(asked);
        let queue_pair = (connection.remote, asked.qpn);
        self.by_queue_pair.insert(queue_pair, number);
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Box<Connection>> {
        let connection = self.connections.remove(number)?;
        let remote = connection.remote;
        if connection.phase.is_half_open() {
            self.leave_half_open(remote);
        }
        self.unrouted.remove(&(remote, number));
        let peer = (remote, connection.remote_id, connection.transaction);
        if self.by_peer.get(&peer) == Some(&number) {
            self.by_peer.remove(&peer);
        }
        if let Some(asked) = connection.asked {
            let queue_pair = (remote, asked.qpn);
            if self.by_queue_pair.get(&queue_pair) == Some(&number) {
                self.by_queue_pair.remove(&queue_pair);
            }
        }
        Some(connection)
    }

    /// Puts a connection into another phase: its tries and clock are reset.
    pub(crate) fn enter(&mut self, number: u32, phase: Phase) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let before = connection.phase;
        if before != phase {
            connection.phase = phase;
            connection.tries = 0;
            connection.patience = 0;
            connection.extended = None;
            connection.deadline = None;
            connection.end = None;
            let remote = connection.remote;
            if before.is_half_open() && !phase.is_half_open() {
                self.leave_half_open(remote);
            }
            if phase == Phase::TimeWait {
                self.time_wait.push_back(number);
            }
        }
        self.forget_queues();
        self.wake(number, Time::ZERO);
    }

    /// Keeps the queues of waiting and ended connections short: those at the front that have gone
    /// on are forgotten.
    fn forget_queues(&mut self) {
        let connections = &self.connections;
        let is = |number: u32, phase: Phase| {
            let connection = connections.get(number);
            connection.is_some_and(|connection| connection.phase == phase)
        };
        for (queue, phase) in [
            (&mut self.waiting, Phase::Waiting),
            (&mut self.time_wait, Phase::TimeWait),
        ] {
            while queue.front().is_some_and(|&number| !is(number, phase)) {
                queue.pop_front();
            }
        }
    }

    /// The peer refused the REQ of a connection, and accepts one with this path MTU: another REQ
    /// follows at once, in a transaction of its own. `false` if that was tried already.
    pub(crate) fn ask_again(&mut self, number: u32, transaction: u64, path_mtu: u16) -> bool {
        let Some(connection) = self.get_mut(number) else {
            return false;
        };
        if connection.acceptable_mtu.is_some() {
            return false;
        }
        connection.acceptable_mtu = Some(path_mtu);
        connection.transaction = transaction;
        connection.remote_id = 0;
        connection.message = None;
        connection.tries = 0;
        connection.patience = 0;
        connection.extended = None;
        connection.deadline = None;
        self.wake(number, Time::ZERO);
        true
    }

    /// Makes sure that a connection is looked at by `deadline`.
    pub(crate) fn wake(&mut self, number: u32, deadline: Time) {
        let slot = self.connections.slot(number);
        self.timers.at_latest(slot, deadline);
    }

    /// A connection that has to be looked at.
    pub(crate) fn expired(&mut self, now: Time) -> Option<u32> {
        loop {
            let slot = self.timers.expired(now)?;
            if let Some(number) = self.connections.number_of(slot) {
                return Some(number);
            }
        }
    }

    /// When the next connection has to be looked at.
    pub(crate) fn deadline(&self) -> Time {
        self.timers.first()
    }

    /// The message of a connection could not be composed: it is tried again when there is another
    /// route.
    pub(crate) fn await_route(&mut self, number: u32) {
        if let Some(connection) = self.connections.get(number) {
            self.unrouted.insert((connection.remote, number));
        }
    }

    /// Connections that wait for a route to `remote` are looked at now: there is one.
    pub(crate) fn routed(&mut self, remote: IpAddr) {
        let waiting = self.unrouted.range((remote, 0)..=(remote, u32::MAX));
        let waiting: Vec<_> = waiting.copied().collect();
        for one in waiting {
            self.unrouted.remove(&one);
            let (_, number) = one;
            let waits = self.connections.get_mut(number).is_some_and(|connection| {
                let waits = connection.phase.repeats() && connection.message.is_none();
                if waits {
                    connection.deadline = None;
                }
                waits
            });
            if waits {
                self.wake(number, Time::ZERO);
            }
        }
    }

    /// Puts a message of a connection out for the next transmission.
    pub(crate) fn send(&mut self, number: u32, message: Message) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        let transaction = match message {
            Message::Dreq(_) | Message::Drep(_) => connection.closing,
            _ => connection.transaction,
        };
        self.send_in(number, transaction, message);
    }

    /// The same, in this transaction.
    pub(crate) fn send_in(&mut self, number: u32, transaction: u64, message: Message) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back(Outgoing {
                remote: connection.remote,
                local: connection.local,
                way: connection.way,
                partition: connection.partition,
                mad: Mad {
                    transaction,
                    message,
                },
            });
        }
    }

    /// Answers a message that concerns no connection, the way that it came. Nothing is kept.
    /// `false` if as many answers wait as there may be.
    pub(crate) fn answer(
        &mut self,
        way: (PortId, Flow),
        partition: u16,
        transaction: u64,
        message: Message,
    ) -> bool {
        let room = self.answers.len() < ANSWERS;
        if room {
            self.answers.push_back(Outgoing {
                remote: way.1.addresses.dst(),
                local: Some(way.1.addresses.src()),
                way: Some(way),
                partition,
                mad: Mad {
                    transaction,
                    message,
                },
            });
        }
        room
    }

    /// Addresses that connections are with.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.connections
            .values()
            .map(|connection| connection.remote)
    }

    /// Connections, those in time-wait included.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }
}
