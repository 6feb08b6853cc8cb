//! Pairs from connection management: a REQ names the queue pair of the client, the REP to it that
//! of the server.

use crate::flows::{Key, Setup, Shares};
use crate::id::PortId;
use common::time::{Span, Time};
use common::wire::cm::{Mad, Message};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Connections that are being set up at a time: requests that wait for their answer. A port has at
/// most half of them, and leaves others room: see [`Shares`].
const REQUESTS: usize = 8192;

/// Those of one source address at a port among them: others behind the same port have room whatever
/// it asks for. Who invents addresses takes the room of its port, and none of theirs at others.
const REQUESTS_OF_ONE: usize = 512;

/// How long a REP may take, and the first packet after it.
const PATIENCE: Span = Span::from_secs(60);

/// A REQ: client, server, and the client's name for the connection.
type Request = (IpAddr, IpAddr, u32);

/// The other direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Other {
    /// Its key.
    pub(super) key: Key,
    /// This direction is that of the client's packets.
    pub(super) is_client: bool,
    since: Time,
    /// The port at which the client's request arrived.
    asked_at: PortId,
}

/// A REP whose REQ was seen by another worker, and may not have been read yet.
type Reply = (Request, u32, Time);

/// Requests that wait for their answer.
#[derive(Debug, Default)]
struct Requests {
    open: HashMap<Request, Waiting>,
    /// How many there are of each client, at each port.
    of: HashMap<(PortId, IpAddr), usize>,
    shares: Shares,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The client's queue pair.
    qp: u32,
    since: Time,
    /// The port at which it arrived.
    port: PortId,
}

impl Requests {
    /// Whether there was room.
    fn insert(&mut self, request: Request, asked: Waiting) -> bool {
        if let Some(known) = self.open.get_mut(&request) {
            // Its time goes on: who repeats it keeps no place longer.
            known.qp = asked.qp;
            return true;
        }
        let client = (asked.port, request.0);
        let of_client = self.of.get(&client).copied().unwrap_or(0);
        if of_client >= REQUESTS_OF_ONE || !self.shares.have_room(asked.port, 1, REQUESTS) {
            return false;
        }
        self.of.insert(client, of_client + 1);
        self.shares.take(asked.port, 1);
        self.open.insert(request, asked);
        true
    }

    fn remove(&mut self, request: &Request) {
        let Some(removed) = self.open.remove(request) else {
            return;
        };
        self.shares.give(removed.port, 1);
        if let Some(of_client) = self.of.get_mut(&(removed.port, request.0)) {
            *of_client -= 1;
        }
    }

    fn retain(&mut self, is_kept: impl Fn(Time) -> bool) {
        let (of, shares) = (&mut self.of, &mut self.shares);
        self.open.retain(|(client, ..), waiting| {
            let is_kept = is_kept(waiting.since);
            if !is_kept {
                shares.give(waiting.port, 1);
                if let Some(of_client) = of.get_mut(&(waiting.port, *client)) {
                    *of_client -= 1;
                }
            }
            is_kept
        });
        self.of.retain(|_, count| *count > 0);
    }
}

/// What connection management has told.
#[derive(Debug, Default)]
pub(super) struct Setups {
    requests: Requests,
    replies: Vec<Reply>,
    others: HashMap<Key, Other>,
    /// Of `others`, by the port that asked.
    shares: Shares,
    /// Connections for which there was no room, by the port that asked.
    without_room: BTreeMap<PortId, u64>,
    /// Messages that made no sense, or for which there was no room.
    pub(super) refused: u64,
}

impl Setups {
    /// Takes a message. Returns the directions of a connection that is now known: the client's, and
    /// the server's.
    pub(super) fn take(&mut self, setup: &Setup, most: usize) -> Option<(Key, Key)> {
        let (from, to) = (setup.source, setup.destination);
        match Mad::parse(&setup.message).map(|mad| mad.message) {
            Ok(Message::Req(req)) => {
                let request = (from, to, req.local_comm_id);
                let asked = Waiting {
                    qp: req.local_qpn,
                    since: setup.at,
                    port: setup.ingress,
                };
                if !self.requests.insert(request, asked) {
                    self.refuse(setup.ingress);
                }
                None
            }
            Ok(Message::Rep(rep)) => {
                let request = (to, from, rep.remote_comm_id);
                let known = self.join(request, rep.local_qpn, setup.at, most);
                if known.is_none() {
                    self.replies.push((request, rep.local_qpn, setup.at));
                }
                known
            }
            Ok(_) => None,
            Err(_) => {
                self.refused += 1;
                None
            }
        }
    }

    /// There is no room for a connection that was asked for at this port.
    fn refuse(&mut self, port: PortId) {
        self.refused += 1;
        *self.without_room.entry(port).or_default() += 1;
    }

    /// Connections for which there was no room, by the port that asked.
    pub(super) fn without_room(&self) -> impl Iterator<Item = (PortId, u64)> {
        self.without_room
            .iter()
            .map(|(port, count)| (*port, *count))
    }

    /// Looks once more for the requests of replies that came before them.
    pub(super) fn retry(&mut self, most: usize) -> Vec<(Key, Key)> {
        let replies = std::mem::take(&mut self.replies);
        let join = |(request, qp, at)| self.join(request, qp, at, most);
        replies.into_iter().filter_map(join).collect()
    }

    fn join(&mut self, request: Request, qp: u32, now: Time, most: usize) -> Option<(Key, Key)> {
        let (client, server, _) = request;
        let to_server = Key::new(client, server, qp)?;
        let Some(asked) = self.requests.open.get(&request).copied() else {
            // The answer may have been sent again.
            let known = self.others.get(&to_server).filter(|it| it.is_client)?;
            return Some((to_server, known.key));
        };
        let to_client = Key::new(server, client, asked.qp)?;
        let is_again = self.others.contains_key(&to_server);
        if !is_again && !self.shares.have_room(asked.port, 2, most) {
            self.refuse(asked.port);
            return None;
        }
        for (key, other, is_client) in [(to_server, to_client, true), (to_client, to_server, false)]
        {
            let other = Other {
                key: other,
                is_client,
                since: now,
                asked_at: asked.port,
            };
            self.shares.take(asked.port, 1);
            if let Some(before) = self.others.insert(key, other) {
                self.shares.give(before.asked_at, 1);
                // A queue pair has another peer now: who was it before has none.
                if before.key != other.key {
                    self.end(&before.key);
                }
            }
        }
        self.requests.remove(&request);
        Some((to_server, to_client))
    }

    /// The other direction, if a set-up told it.
    pub(super) fn other(&self, key: &Key) -> Option<Other> {
        self.others.get(key).copied()
    }

    /// Forgets what is older than anything that still comes of it, but not `used` pairs.
    pub(super) fn forget(&mut self, now: Time, used: impl Fn(&Key) -> bool) {
        let is_young = |since: Time| now.since(since) < PATIENCE;
        self.requests.retain(is_young);
        let shares = &mut self.shares;
        self.others.retain(|key, other| {
            let is_kept = is_young(other.since) || used(key) || used(&other.key);
            if !is_kept {
                shares.give(other.asked_at, 1);
            }
            is_kept
        });
    }

    /// The connection of this direction is over.
    pub(super) fn end(&mut self, key: &Key) {
        if let Some(other) = self.others.remove(key) {
            self.shares.give(other.asked_at, 1);
        }
    }
}

#[cfg(test)]
mod tests;
