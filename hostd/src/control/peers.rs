//! The peers that the router knows: how many there may be, of whom, and which make way.

use crate::limits;
use crate::verbs::{Direction, PortId, Route};
use common::netlink::NeighbourKey;
use common::time::Time;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use tokio::sync::oneshot;

/// Whether an address can be reached, or why not.
pub(super) type Reached = Result<(), String>;

/// Why there are no next hops to a peer, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoWay {
    /// The kernel drops what goes there, or its route leads elsewhere than hostd can send.
    Closed(String),
    /// The kernel did not say: what it said before may hold.
    Unknown(String),
}

impl NoWay {
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::Closed(reason) | Self::Unknown(reason) => reason,
        }
    }
}

/// The way to a peer: of packets from any own address, or from one that goes another way.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The user whose application asked for it first.
    pub(super) user: Option<u32>,
    /// The next hops, one for each port that leads there.
    pub(super) next_hops: Vec<NeighbourKey>,
    /// Own address.
    pub(super) source: Option<IpAddr>,
    /// What the worker was told last; empty: nothing, or it has forgotten it.
    pub(super) told: Vec<(PortId, Route)>,
    /// The worker was told that there is no way, and nothing else since.
    pub(super) withdrawn: bool,
    /// Who waits for an answer.
    pub(super) waiting: Vec<oneshot::Sender<Reached>>,
    /// When waiting requests fail because no answer came.
    pub(super) give_up: Time,
    /// The kernel has given up once and was asked again.
    pub(super) asked_again: bool,
}

impl Peer {
    /// There is no way any more. Whether the worker has to be told so.
    pub(super) fn close(&mut self) -> bool {
        self.next_hops.clear();
        self.told.clear();
        !self.withdrawn
    }

    /// Whether its neighbours are in use, or connections wait for them: a way that is back may have
    /// a neighbour that did not answer at once.
    pub(super) fn is_in_use(&self) -> bool {
        !self.told.is_empty() || self.withdrawn
    }
}

/// How many peers there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// In all.
    all: usize,
    /// That applications of one user asked for.
    of_user: usize,
}

impl Room {
    /// As many as the engine has routes.
    pub(super) const DEFAULT: Self = Self {
        all: limits::ROUTES,
        of_user: limits::ROUTES_OF_USER,
    };

    /// Why there is no room for another peer that an application of `user` asks for, or, without
    /// one, packets do; `None` if there is.
    pub(super) fn refuses(
        self,
        peers: &HashMap<Direction, Peer>,
        user: Option<u32>,
    ) -> Option<String> {
        let all = peers.len();
        if all >= self.all {
            return Some(format!("{all} peers are too many"));
        }
        let user = user?;
        let of_user = |peer: &&Peer| peer.user == Some(user);
        let held = peers.values().filter(of_user).count();
        (held >= self.of_user).then(|| format!("{held} peers are too many for user {user}"))
    }
}

/// Forgets peers that are not among the `used` ones, which have a connection, unless somebody waits
/// for them. The worker has forgotten the routes of both.
pub(super) fn forget_unused(peers: &mut HashMap<Direction, Peer>, used: &HashSet<IpAddr>) {
    let is_used = |direction: &Direction| used.contains(&direction.destination);
    peers.retain(|direction, peer| is_used(direction) || !peer.waiting.is_empty());
    for (direction, peer) in peers {
        if !is_used(direction) {
            peer.told.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::units::Rate;
    use std::net::Ipv4Addr;

    const ROOM: Room = Room { all: 8, of_user: 4 };

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    /// A peer that `user` asked for, and that the worker was told.
    fn peer(user: Option<u32>) -> Peer {
        let route = Route {
            source: address(1),
            source_mac: [2; 6],
            destination_mac: [4; 6],
            mtu: 1500,
            rate: Rate::from_gbps(1),
        };
        Peer {
            user,
            told: vec![(PortId::FIRST, route)],
            ..Peer::default()
        }
    }

    fn known(users: &[Option<u32>]) -> HashMap<Direction, Peer> {
        let numbered = (10..).zip(users);
        numbered
            .map(|(number, user)| (address(number).into(), peer(*user)))
            .collect()
    }

    /// HT-3: a user has no more peers than its share, whatever others have, and all together have
    /// no more than the table; packets that wait count for nobody.
    #[test]
    fn users_have_a_share_of_the_peers() {
        let mut users = vec![Some(1); 3];
        assert_eq!(ROOM.refuses(&known(&users), Some(1)), None);
        users.push(Some(1));
        let peers = known(&users);
        let text = ROOM.refuses(&peers, Some(1)).expect("four are enough");
        assert!(text.contains("user 1"), "{text}");
        assert_eq!(ROOM.refuses(&peers, Some(2)), None);
        assert_eq!(ROOM.refuses(&peers, None), None);
        users.extend([Some(2), None, None]);
        assert_eq!(ROOM.refuses(&known(&users), Some(2)), None);
        users.push(None);
        for user in [Some(1), Some(2), Some(3), None] {
            let text = ROOM.refuses(&known(&users), user).expect("it is full");
            assert!(text.contains("8 peers"), "{text}");
        }
    }

    /// HT-37: the worker is told once of a way that is gone, whatever it was told last. The
    /// neighbour of one that is back is asked for until it answers.
    #[test]
    fn a_way_that_is_gone_is_told_once() {
        assert!(Peer::default().close(), "the worker may know one");
        let mut one = peer(None);
        assert!(one.close() && !one.is_in_use());
        assert!(one.close(), "the worker's channel was full");
        one.withdrawn = true;
        assert!(!one.close() && one.is_in_use());
        one.next_hops = vec![NeighbourKey {
            ifindex: 2,
            address: address(1),
        }];
        assert!(one.is_in_use());
        let other = peer(None);
        assert!(other.is_in_use() && !Peer::default().is_in_use());
    }

    /// Peers without a connection make way; those with one keep their route, and those that
    /// somebody waits for are asked for again, as the worker has forgotten them.
    #[test]
    fn peers_without_a_connection_make_way() {
        let mut peers = known(&[Some(1); 4]);
        let (waiting, mut answer) = oneshot::channel();
        let wanted = peers.get_mut(&address(11).into()).expect("known");
        wanted.waiting.push(waiting);
        let used = HashSet::from([address(12), address(99)]);
        forget_unused(&mut peers, &used);
        let mut left: Vec<_> = peers.keys().map(|it| it.destination).collect();
        left.sort_unstable();
        assert_eq!(left, [address(11), address(12)]);
        assert!(peers[&address(11).into()].told.is_empty());
        assert!(!peers[&address(12).into()].told.is_empty());
        assert!(answer.try_recv().is_err(), "nobody answered it yet");
        assert_eq!(ROOM.refuses(&peers, Some(1)), None);
    }
}
