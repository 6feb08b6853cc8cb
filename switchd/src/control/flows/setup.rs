//! Pairs from connection management: a REQ names the queue pair of the client, the REP to it that
//! of the server.

use crate::flows::{Key, Setup};
use common::time::{Span, Time};
use common::wire::cm::{Mad, Message};
use std::collections::HashMap;
use std::net::IpAddr;

/// Connections that are being set up at a time: requests that wait for their answer.
const REQUESTS: usize = 4096;

/// Those of one source address among them: others have room whatever it asks for. Who invents
/// addresses is for source validation to stop.
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
}

/// A REP whose REQ was seen by another worker, and may not have been read yet.
type Reply = (Request, u32, Time);

/// Requests that wait for their answer.
#[derive(Debug, Default)]
struct Requests {
    /// The client's queue pair, and when it asked.
    open: HashMap<Request, (u32, Time)>,
    /// How many there are of each client.
    of: HashMap<IpAddr, usize>,
}

impl Requests {
    /// Whether there was room.
    fn insert(&mut self, request: Request, qp: u32, now: Time) -> bool {
        if let Some((known, _)) = self.open.get_mut(&request) {
            // Its time goes on: who repeats it keeps no place longer.
            *known = qp;
            return true;
        }
        let of_client = self.of.get(&request.0).copied().unwrap_or(0);
        if self.open.len() >= REQUESTS || of_client >= REQUESTS_OF_ONE {
            return false;
        }
        self.of.insert(request.0, of_client + 1);
        self.open.insert(request, (qp, now));
        true
    }

    fn remove(&mut self, request: &Request) {
        if self.open.remove(request).is_some()
            && let Some(of_client) = self.of.get_mut(&request.0)
        {
            *of_client -= 1;
        }
    }

    fn retain(&mut self, is_kept: impl Fn(Time) -> bool) {
        let of = &mut self.of;
        self.open.retain(|(client, ..), (_, since)| {
            let is_kept = is_kept(*since);
            if !is_kept && let Some(of_client) = of.get_mut(client) {
                *of_client -= 1;
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
                let has_room = self.requests.insert(request, req.local_qpn, setup.at);
                self.refused += u64::from(!has_room);
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
        let to_server = Key::new(client, server, qp)?;
        let Some((client_qp, _)) = self.requests.open.get(&request).copied() else {
            // The answer may have been sent again.
            let known = self.others.get(&to_server).filter(|it| it.is_client)?;
            return Some((to_server, known.key));
        };
        let to_client = Key::new(server, client, client_qp)?;
        let is_again = self.others.contains_key(&to_server);
        if !is_again && self.others.len() + 2 > most {
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
        self.others
            .retain(|key, other| is_young(other.since) || used(key) || used(&other.key));
    }

    /// The connection of this direction is over.
    pub(super) fn end(&mut self, key: &Key) {
        self.others.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::set_up;
    use super::*;
    use crate::flows::tests::host;

    /// Room for so many directions, more than are needed.
    const MOST: usize = 1 << 20;

    /// The message of connection management in a frame, between hosts 1 and 2.
    fn told(from: u8, to: u8, frame: &[u8], now: Time) -> Setup {
        // The message is the last of the packet, before its ICRC.
        let end = frame.len() - 4;
        let message = &frame[end - 256..end];
        Setup {
            source: host(from, false),
            destination: host(to, false),
            message: message.try_into().expect("a whole message"),
            at: now,
        }
    }

    /// SW-50: more connections are set up in a minute than may wait for their answer; an answer
    /// that is sent again says the same.
    #[test]
    fn answered_requests_make_room() {
        let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
        let (a, b) = (host(1, false), host(2, false));
        let count = 3 * u32::try_from(REQUESTS).expect("few");
        for number in 0..count {
            let [req, rep] = set_up(a, b, (1000 + number, 500_000 + number), number);
            assert_eq!(setups.take(&told(1, 2, &req, now), MOST), None);
            let [pair, again] = [(); 2].map(|()| setups.take(&told(2, 1, &rep, now), MOST));
            let expected = Key::new(a, b, 500_000 + number).zip(Key::new(b, a, 1000 + number));
            assert_eq!((pair, again), (expected, expected), "{number}");
        }
        assert_eq!(setups.refused, 0);
        assert_eq!(setups.others.len(), 2 * 3 * REQUESTS);
        assert!(setups.requests.open.is_empty());
    }

    /// SW-50: one source that asks and is not answered leaves room for the requests of others, and
    /// has its own back after a minute.
    #[test]
    fn one_source_does_not_take_all_room() {
        let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
        let (a, b, c) = (host(1, false), host(2, false), host(3, false));
        for number in 0..5000 {
            let [req, _] = set_up(a, b, (number, 0), number);
            setups.take(&told(1, 2, &req, now), MOST);
        }
        assert_eq!(setups.refused, 5000 - REQUESTS_OF_ONE as u64);
        let [req, rep] = set_up(c, b, (7, 8), 9);
        setups.take(&told(3, 2, &req, now), MOST);
        let pair = setups.take(&told(2, 3, &rep, now), MOST);
        assert_eq!(pair, Key::new(c, b, 8).zip(Key::new(b, c, 7)));
        let later = now + PATIENCE;
        setups.forget(later, |_| true);
        assert!(setups.requests.of.is_empty());
        let [req, rep] = set_up(a, b, (7, 8), 9);
        setups.take(&told(1, 2, &req, later), MOST);
        assert!(setups.take(&told(2, 1, &rep, later), MOST).is_some());
    }
}
