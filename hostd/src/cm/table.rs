//! Connections, by own and by the peer's number, their clocks, and messages on their way out.

use super::machine::Phase;
use super::negotiation::Offer;
use crate::limits;
use crate::slab::Slab;
use crate::timers::Timers;
use crate::verbs::{EngineError, PrivateData};
use common::time::Time;
use common::wire::cm::{Mad, Message};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

/// Messages that wait for the next transmission; what finds no room is repeated by its sender.
const OUTBOX: usize = 1024;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    pub(crate) remote: IpAddr,
    /// The peer's number for it; zero before it is known.
    pub(crate) remote_id: u32,
    pub(crate) transaction: u64,
    /// Own queue pair, once there is one.
    pub(crate) qpn: Option<u32>,
    pub(crate) service: u16,
    /// What the application gave: its data and its attributes.
    pub(crate) given: Given,
    /// What the peer's REQ said; on the side that accepts.
    pub(crate) asked: Option<Asked>,
    /// The PSN that the peer is told to begin at.
    pub(crate) psn: u32,
    /// What was offered, or agreed on.
    pub(crate) offer: Option<Offer>,
    /// Path MTU of the REQ that was sent.
    pub(crate) path_mtu: u16,
    /// The message that is repeated in this phase, or the last answer; `None` before there is a
    /// route.
    pub(crate) message: Option<Message>,
    pub(crate) tries: u8,
    /// When something has to happen; `None` before the clock was seen in this phase.
    pub(crate) deadline: Option<Time>,
}

/// What the application gave to connect or to accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) private_data: PrivateData,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
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

/// What a REQ said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) rnr_retry: u8,
    pub(crate) depth: Depth,
}

/// A message and whom it is for.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) remote: IpAddr,
    pub(crate) mad: Mad,
}

/// All connections of an engine.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    connections: Slab<Connection>,
    /// By the peer's address, number and transaction: a repeated REQ is found here. A peer that was
    /// restarted may use its old numbers again, but not its old transactions: those are random.
    by_peer: HashMap<(IpAddr, u32, u64), u32>,
    /// By the peer's address and queue pair: a connection that its peer forgot is found here.
    by_queue_pair: HashMap<(IpAddr, u32), u32>,
    listeners: HashSet<u16>,
    timers: Timers,
    pub(crate) outbox: VecDeque<Outgoing>,
    /// Messages sent; each takes another path, so that one that leads nowhere does not end a
    /// connection.
    pub(crate) sent: u64,
}

impl ConnectionTable {
    /// `seed`: where the numbers begin.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            connections: Slab::new(limits::CONNECTIONS, 32).numbered_from(seed),
            by_peer: HashMap::new(),
            by_queue_pair: HashMap::new(),
            listeners: HashSet::new(),
            timers: Timers::default(),
            outbox: VecDeque::new(),
            sent: 0,
        }
    }

    pub(crate) fn listen(&mut self, port: u16) -> Result<(), EngineError> {
        if self.listeners.contains(&port) {
            return Err(EngineError::Busy);
        }
        if self.listeners.len() >= limits::LISTENERS {
            return Err(EngineError::TooMany);
        }
        self.listeners.insert(port);
        Ok(())
    }

    pub(crate) fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    pub(crate) fn listens(&self, port: u16) -> bool {
        self.listeners.contains(&port)
    }

    /// Adds a connection; `None` when the table is full.
    pub(crate) fn insert(&mut self, connection: Connection) -> Option<u32> {
        let asked = connection.asked.map(|asked| {
            let remote = connection.remote;
            let peer = (remote, connection.remote_id, connection.transaction);
            (peer, (remote, asked.qpn))
        });
        let number = self.connections.insert(connection).ok()?;
        if let Some((peer, queue_pair)) = asked {
            self.by_peer.insert(peer, number);
            self.by_queue_pair.insert(queue_pair, number);
        }
        self.wake(number, Time::ZERO);
        Some(number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Connection> {
        self.connections.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.connections.get_mut(number)
    }

    /// The connection that a repeated REQ is about.
    pub(crate) fn of_peer(&self, remote: IpAddr, remote_id: u32, transaction: u64) -> Option<u32> {
        self.by_peer.get(&(remote, remote_id, transaction)).copied()
    }

    /// The connection that a peer's queue pair asked for.
    pub(crate) fn of_queue_pair(&self, remote: IpAddr, qpn: u32) -> Option<u32> {
        self.by_queue_pair.get(&(remote, qpn)).copied()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Connection> {
        let connection = self.connections.remove(number)?;
        let remote = connection.remote;
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

    /// Puts a connection into another phase: its message, tries and clock are reset.
    pub(crate) fn enter(&mut self, number: u32, phase: Phase) {
        if let Some(connection) = self.connections.get_mut(number) {
            if connection.phase != phase {
                connection.phase = phase;
                connection.tries = 0;
                connection.deadline = None;
            }
            self.wake(number, Time::ZERO);
        }
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

    /// Connections to `remote` are looked at now: there is a route.
    pub(crate) fn routed(&mut self, remote: IpAddr) {
        let numbers: Vec<_> = self.connections.numbers().collect();
        for number in numbers {
            let waits = self.connections.get_mut(number).is_some_and(|connection| {
                let waits = connection.remote == remote
                    && connection.phase.repeats()
                    && connection.message.is_none();
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

    /// Puts a message out for the next transmission.
    pub(crate) fn send(&mut self, remote: IpAddr, transaction: u64, message: Message) {
        if self.outbox.len() < OUTBOX {
            let mad = Mad {
                transaction,
                message,
            };
            self.outbox.push_back(Outgoing { remote, mad });
        }
    }

    /// Connections, those in time-wait included.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }
}
