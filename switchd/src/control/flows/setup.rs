//! Pairs from connection management: a REQ names the queue pair of the client, the REP to it that
//! of the server.

use crate::flows::{Key, Setup};
use common::time::{Span, Time};
use common::wire::cm::{Mad, Message};
use std::collections::HashMap;
use std::net::IpAddr;

/// Connections that are being set up at a time.
const REQUESTS: usize = 4096;

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
}

/// A REP whose REQ was seen by another worker, and may not have been read yet.
type Reply = (Request, u32, Time);

/// What connection management has told.
#[derive(Debug, Default)]
pub(super) struct Setups {
    requests: HashMap<Request, (u32, Time)>,
    replies: Vec<Reply>,
    others: HashMap<Key, Other>,
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
                if self.requests.len() >= REQUESTS && !self.requests.contains_key(&request) {
                    self.refused += 1;
                    return None;
                }
                self.requests.insert(request, (req.local_qpn, setup.at));
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

    /// Looks once more for the requests of replies that came before them.
    pub(super) fn retry(&mut self, most: usize) -> Vec<(Key, Key)> {
        let replies = std::mem::take(&mut self.replies);
        let join = |(request, qp, at)| self.join(request, qp, at, most);
        replies.into_iter().filter_map(join).collect()
    }

    fn join(&mut self, request: Request, qp: u32, now: Time, most: usize) -> Option<(Key, Key)> {
        let (client, server, _) = request;
        let (client_qp, _) = *self.requests.get(&request)?;
        let to_server = Key::new(client, server, qp)?;
        let to_client = Key::new(server, client, client_qp)?;
        if self.others.len() + 2 > most {
            self.refused += 1;
            return None;
        }
        for (key, other, is_client) in [(to_server, to_client, true), (to_client, to_server, false)]
        {
            let other = Other {
                key: other,
                is_client,
                since: now,
            };
            self.others.insert(key, other);
        }
        Some((to_server, to_client))
    }

    /// The other direction, if a set-up told it.
    pub(super) fn other(&self, key: &Key) -> Option<Other> {
        self.others.get(key).copied()
    }

    /// Forgets what is older than anything that still comes of it, but not `used` pairs.
    pub(super) fn forget(&mut self, now: Time, used: impl Fn(&Key) -> bool) {
        let is_young = |since: Time| now.since(since) < PATIENCE;
        self.requests.retain(|_, (_, since)| is_young(*since));
        self.others
            .retain(|key, other| is_young(other.since) || used(key) || used(&other.key));
    }

    /// The connection of this direction is over.
    pub(super) fn end(&mut self, key: &Key) {
        self.others.remove(key);
    }
}
