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
mod tests {
    use super::super::tests::set_up;
    use super::*;
    use crate::flows::tests::host;

    /// Room for so many directions, more than are needed.
    const MOST: usize = 1 << 20;

    /// The message of connection management in a frame, between hosts behind ports of the same
    /// numbers.
    fn told(from: u8, to: u8, frame: &[u8], now: Time) -> Setup {
        // The message is the last of the packet, before its ICRC.
        let end = frame.len() - 4;
        let message = &frame[end - 256..end];
        Setup {
            ingress: PortId(from.into()),
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
        assert_eq!(setups.requests.shares.used(), 0);
        assert_eq!(setups.shares.used(), setups.others.len());
    }

    /// SW-50: a queue pair that is used anew has its new peer alone, and the old one has none.
    #[test]
    fn a_queue_pair_that_is_used_again_has_one_peer() {
        let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
        let (a, b) = (host(1, false), host(2, false));
        for (number, server) in [(1, 100), (2, 200)] {
            let [req, rep] = set_up(a, b, (7, server), number);
            setups.take(&told(1, 2, &req, now), MOST);
            setups.take(&told(2, 1, &rep, now), MOST);
        }
        let key = |from, to, qp| Key::new(from, to, qp).expect("one version");
        let other = |key| setups.other(&key).map(|other| other.key);
        assert_eq!(other(key(b, a, 7)), Some(key(a, b, 200)));
        assert_eq!(other(key(a, b, 200)), Some(key(b, a, 7)));
        assert_eq!(other(key(a, b, 100)), None);
        assert_eq!(setups.shares.used(), setups.others.len());
    }

    /// SW-50: a port from which requests with invented sources come, with answers or without, takes
    /// at most half of the room, which is counted as its own; those of other ports find theirs.
    #[test]
    fn one_port_does_not_take_all_room() {
        let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
        let (a, b) = (host(1, false), host(2, false));
        let invented = |number: u32| IpAddr::from((0x0b00_0000 + number).to_be_bytes());
        let most = 2000;
        for number in 0..10_000 {
            let (client, hostile) = (invented(number), PortId(9));
            let [req, rep] = set_up(client, b, (7, number), 1);
            let mut req = told(9, 2, &req, now);
            (req.source, req.ingress) = (client, hostile);
            setups.take(&req, most);
            if number % 4 == 0 {
                let mut rep = told(2, 9, &rep, now);
                (rep.destination, rep.ingress) = (client, hostile);
                setups.take(&rep, most);
            }
        }
        assert_eq!(setups.requests.open.len(), REQUESTS / 2);
        assert_eq!(setups.others.len(), most / 2);
        let counted: Vec<(PortId, u64)> = setups.without_room().collect();
        assert_eq!(counted, [(PortId(9), setups.refused)]);
        for number in 0..200 {
            let [req, rep] = set_up(a, b, (number, 50_000 + number), number);
            setups.take(&told(1, 2, &req, now), most);
            let pair = setups.take(&told(2, 1, &rep, now), most);
            assert!(pair.is_some(), "{number}");
        }
        assert_eq!(setups.without_room().count(), 1);
        setups.forget(now + PATIENCE, |_| false);
        assert_eq!(
            (setups.requests.shares.used(), setups.shares.used()),
            (0, 0)
        );
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
        // The same address at another port has its own room.
        let [req, rep] = set_up(a, b, (77, 6), 5000);
        let mut elsewhere = told(1, 2, &req, now);
        elsewhere.ingress = PortId(4);
        setups.take(&elsewhere, MOST);
        let pair = setups.take(&told(2, 1, &rep, now), MOST);
        assert_eq!(pair, Key::new(a, b, 6).zip(Key::new(b, a, 77)));
        let [req, rep] = set_up(c, b, (7, 8), 9);
        setups.take(&told(3, 2, &req, now), MOST);
        let pair = setups.take(&told(2, 3, &rep, now), MOST);
        assert_eq!(pair, Key::new(c, b, 8).zip(Key::new(b, c, 7)));
        let later = now + PATIENCE;
        setups.forget(later, |_| true);
        assert!(setups.requests.of.is_empty());
        assert_eq!(
            (setups.requests.shares.used(), setups.shares.used()),
            (0, 4)
        );
        let [req, rep] = set_up(a, b, (7, 8), 9);
        setups.take(&told(1, 2, &req, later), MOST);
        assert!(setups.take(&told(2, 1, &rep, later), MOST).is_some());
    }
}
