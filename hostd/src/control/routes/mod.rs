//! How packets to each peer are addressed: source address, next hop's Ethernet address, MTU.
//!
//! The kernel decides. Its route for a peer is looked up, its neighbour table is asked for the
//! next hop (and made to resolve it), and both are followed: when something changes the peers'
//! routes are looked up again and pushed to the worker. Neighbours in use are kept alive, as the
//! kernel sees none of the packets.
//!
//! A route with several hops leads through several ports (HT-37): each hop that leaves by one of
//! the daemon's interfaces is a way, the first of each interface. How packets are shared out among
//! them follows from the ports' speeds, and not from the weights of the hops.

mod hops;
mod sources;

use super::interfaces::{Interface, Interfaces, ports, speeds};
use super::link::LinkState;
use super::peers::{NoWay, Peer, Room, forget_unused};
use super::port::{Announce, Port};
use super::questions::{Question, Questions};
use crate::edge::command::{Command, WorkerHandle};
use crate::readiness::readiness;
use crate::verbs::{Direction, Route, Speeds};
use common::netlink::{Change, Mirror, NeighbourKey, NeighbourState, Requests, Settings, Watch};
use common::sys::monotonic;
use common::time::{Span, Time};
use common::xdp::netdev::Device;
use hostd_client::abi::port::PortEvent;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How long the resolution of a neighbour may take. The kernel gives up after three seconds and is
/// asked once more: on a link that has just come up it is silent itself (duplicate address
/// detection of its link-local address), and so may the neighbour be.
const RESOLVE_TIME: Span = Span::from_secs(5);

/// Neighbours in use are confirmed this often: well below the kernel's default of 30 s reachable
/// time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Changes of routes settle for this long before peers are looked up again, so that a burst costs
/// one look.
const SETTLE: Span = Span::from_millis(20);

/// After this time the kernel is asked again for a route that it did not tell.
const ASK_AGAIN: Span = Span::from_secs(1);

/// The longest time between two dumps of the kernel's tables.
const RESYNC: Span = Span::from_secs(60);

/// Receive buffer in bytes: a host has few routes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Why a router ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterEnd {
    /// Nobody can ask any more.
    Unused,
    /// An interface of this name is there in place of one that is gone.
    Replaced(String),
}

/// Follows the kernel and tells the worker.
#[derive(Debug)]
pub struct Router {
    watch: Watch,
    readable: AsyncFd<OwnedFd>,
    requests: Requests,
    interfaces: Interfaces,
    worker: WorkerHandle,
    questions: Questions,
    peers: HashMap<Direction, Peer>,
    /// When all peers are looked up again.
    look_again: Time,
    /// What the worker was told last of each port: its speeds, and whether its link is up.
    told: Vec<(Speeds, bool)>,
    changes: Vec<Change>,
    /// Neighbours that did not answer and are asked once more.
    silent: HashSet<NeighbourKey>,
    port: Arc<Port>,
    announce: Announce,
}

impl Router {
    /// Opens the kernel's tables and reads them once. What happens to the port later goes to
    /// `announce`. Inside a tokio runtime.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn open(
        interfaces: Interfaces,
        worker: WorkerHandle,
        questions: Questions,
        port: Arc<Port>,
        announce: Announce,
    ) -> io::Result<Self> {
        let mut watch = Watch::open(Settings { resync: RESYNC }, RECEIVE_BUFFER)?;
        let mut changes = Vec::new();
        watch.sync(monotonic() + Span::from_secs(10), &mut changes)?;
        // The same socket under another number: the watch stays free to be used.
        let readable = watch.as_fd().try_clone_to_owned()?;
        // What the worker began with.
        let speeds = speeds(&interfaces);
        let mut router = Self {
            readable: readiness(readable)?,
            watch,
            requests: Requests::connect()?,
            interfaces,
            worker,
            questions,
            peers: HashMap::new(),
            look_again: Time::NEVER,
            told: speeds.into_iter().map(|speeds| (speeds, true)).collect(),
            changes,
            silent: HashSet::new(),
            port,
            announce,
        };
        router.apply_changes();
        Ok(router)
    }

    /// Runs until all handles are gone, or an interface was made again that hostd holds.
    ///
    /// # Errors
    /// The kernel's socket failed.
    pub async fn run(mut self) -> io::Result<RouterEnd> {
        let mut keep_alive = tokio::time::interval(KEEP_ALIVE);
        loop {
            let due = self.deadline();
            let left = Duration::from(due.since(monotonic()));
            tokio::select! {
                question = self.questions.next() => match question {
                    Some(question) => self.answer(question).await,
                    None => return Ok(RouterEnd::Unused),
                },
                ready = self.readable.readable() => ready?.clear_ready(),
                () = tokio::time::sleep(left), if due != Time::NEVER => {}
                _ = keep_alive.tick() => self.keep_alive().await,
            }
            self.follow().await?;
            if let Some(name) = self.replaced() {
                return Ok(RouterEnd::Replaced(name));
            }
        }
    }

    /// The name of an interface that is gone and has a successor which packets can pass.
    fn replaced(&self) -> Option<String> {
        let gone = |it: &&Interface| it.link.state() == LinkState::Gone;
        let names = self.interfaces.iter().filter(gone).map(|it| &it.name);
        let mirror = self.watch.mirror();
        let back = |name: &&String| {
            let mut links = mirror.links();
            links.any(|link| link.name == **name && LinkState::of(Some(link)) == LinkState::Up)
        };
        names.into_iter().find(back).cloned()
    }

    fn deadline(&self) -> Time {
        let waiting = self.peers.values().filter(|peer| !peer.waiting.is_empty());
        let give_up = waiting
            .map(|peer| peer.give_up)
            .min()
            .unwrap_or(Time::NEVER);
        self.watch.deadline().min(self.look_again).min(give_up)
    }

    async fn answer(&mut self, question: Question) {
        let direction = match self.direction(question.destination, question.source).await {
            Ok(direction) => direction,
            Err(reason) => return question.answer(Err(reason)),
        };
        let known = self.peers.get(&direction);
        if known.is_some_and(|it| !it.told.is_empty()) && question.answer.is_some() {
            // An application connects where others do: the kernel need not be asked each time.
            return question.answer(Ok(()));
        }
        let user = question.user;
        if let Err(reason) = self.make_room(direction, user).await {
            return question.answer(Err(reason));
        }
        let peer = self.peers.entry(direction).or_insert_with(|| Peer {
            user,
            ..Peer::default()
        });
        if peer.waiting.is_empty() {
            // Who asks later waits with the others: their patience is not renewed by that.
            peer.give_up = monotonic() + RESOLVE_TIME;
            peer.asked_again = false;
        }
        peer.waiting.extend(question.answer);
        // The engine asks because it has no route, whatever it was told.
        peer.told.clear();
        self.look_up(direction).await;
        self.look_up_sources(direction.destination).await;
    }

    /// Makes room for a direction that `user` asks for.
    async fn make_room(&mut self, direction: Direction, user: Option<u32>) -> Result<(), String> {
        let room = Room::DEFAULT;
        if self.peers.contains_key(&direction) || room.refuses(&self.peers, user).is_none() {
            return Ok(());
        }
        self.evict().await;
        room.refuses(&self.peers, user).map_or(Ok(()), Err)
    }

    /// Forgets the peers without a connection, here and in the worker.
    async fn evict(&mut self) {
        let Some(used) = self.worker.ask(Command::EvictRoutes).await else {
            return;
        };
        forget_unused(&mut self.peers, &used);
        tracing::info!(
            left = self.peers.len(),
            "peers without a connection are forgotten"
        );
    }

    /// Asks the kernel how it sends to a peer.
    async fn look_up(&mut self, direction: Direction) {
        let found = self.find(direction.destination, direction.source).await;
        let Some(peer) = self.peers.get_mut(&direction) else {
            return;
        };
        match found {
            Ok((next_hops, source)) => {
                peer.next_hops.clone_from(&next_hops);
                peer.source = Some(source);
                self.tell(direction);
                for next_hop in next_hops {
                    if self.route(next_hop, source).is_none() {
                        self.resolve(next_hop).await;
                    }
                }
            }
            Err(no_way) => {
                let is_closed = matches!(no_way, NoWay::Closed(_));
                let reason = no_way.into_reason();
                tracing::debug!(destination = %direction.destination, %reason, "no way");
                peer.waiting.drain(..).for_each(|waiting| {
                    let _ = waiting.send(Err(reason.clone()));
                });
                if is_closed {
                    if peer.close() {
                        self.withdraw(direction);
                    }
                } else {
                    self.look_again = self.look_again.min(monotonic() + ASK_AGAIN);
                }
            }
        }
    }

    /// Tells the worker that no way leads to a peer any more: a route that is gone or forbids the
    /// peer is not to be used on.
    fn withdraw(&mut self, direction: Direction) {
        if !self.worker.tell(Command::SetRoutes(direction, Vec::new())) {
            // Its channel is full.
            return self.look_soon();
        }
        if let Some(peer) = self.peers.get_mut(&direction) {
            peer.withdrawn = true;
        }
    }

    fn interface(&self, ifindex: u32) -> Option<&Interface> {
        self.interfaces
            .iter()
            .find(|interface| interface.ifindex == ifindex)
    }

    /// Tells the worker the ways to a peer, as far as they are known.
    fn tell(&mut self, direction: Direction) {
        let Some(peer) = self.peers.get(&direction) else {
            return;
        };
        let Some(source) = peer.source else { return };
        let way = |next_hop: &NeighbourKey| {
            let mut ports = ports(&self.interfaces);
            let (port, interface) = ports.find(|(_, it)| it.ifindex == next_hop.ifindex)?;
            // The kernel forgets the neighbours of a link that is down. When that comes back, each
            // entropy value has the port that it had.
            let down = interface.link.state() != LinkState::Up;
            let before = peer.told.iter().find(|(told, _)| down && *told == port);
            let route = self.route(*next_hop, source);
            Some((port, route.or_else(|| before.map(|(_, route)| *route))?))
        };
        let ways: Vec<_> = peer.next_hops.iter().filter_map(way).collect();
        if ways.is_empty() {
            return;
        }
        let news = peer.told != ways;
        if news
            && !self
                .worker
                .tell(Command::SetRoutes(direction, ways.clone()))
        {
            // Its channel is full.
            return self.look_soon();
        }
        if let Some(peer) = self.peers.get_mut(&direction) {
            peer.told = ways;
            peer.withdrawn = false;
            peer.waiting
                .drain(..)
                .for_each(|waiting| drop(waiting.send(Ok(()))));
        }
    }

    /// Tells the worker the ways by these next hops; returns whose they are.
    fn tell_those(&mut self, chosen: impl Fn(NeighbourKey) -> bool) -> Vec<Direction> {
        let affected =
            |(_, peer): &(&Direction, &Peer)| peer.next_hops.iter().any(|hop| chosen(*hop));
        let peers = self.peers.iter().filter(affected);
        let affected: Vec<_> = peers.map(|(direction, _)| *direction).collect();
        for direction in &affected {
            self.tell(*direction);
        }
        affected
    }

    fn route(&self, next_hop: NeighbourKey, source: IpAddr) -> Option<Route> {
        let mirror: &Mirror = self.watch.mirror();
        let interface = self.interface(next_hop.ifindex)?;
        let link = mirror.link(next_hop.ifindex)?;
        Some(Route {
            source,
            source_mac: interface.mac,
            destination_mac: if self.is_own(&next_hop) {
                interface.mac
            } else {
                mirror.neighbour(&next_hop)?.usable_mac()?
            },
            mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            rate: interface.link.now().speeds.pacing,
        })
    }

    /// Whether a way to a peer is known.
    fn has_way(&self, direction: Direction) -> bool {
        let Some(peer) = self.peers.get(&direction) else {
            return false;
        };
        let Some(source) = peer.source else {
            return false;
        };
        let mut hops = peer.next_hops.iter();
        hops.any(|hop| self.route(*hop, source).is_some())
    }

    async fn resolve(&self, next_hop: NeighbourKey) {
        if self.is_own(&next_hop) || self.watch.mirror().is_static_neighbour(&next_hop) {
            return;
        }
        let known = self.watch.mirror().neighbour(&next_hop).is_some();
        if let Err(error) = self.requests.use_neighbour(next_hop, known).await {
            tracing::debug!(?next_hop, %error, "the kernel does not resolve the neighbour");
        }
    }

    async fn keep_alive(&self) {
        let mut used: Vec<_> = self
            .peers
            .values()
            .filter(|peer| peer.is_in_use())
            .flat_map(|peer| peer.next_hops.iter().copied())
            .collect();
        used.sort_unstable_by_key(|key| (key.ifindex, key.address));
        used.dedup();
        for next_hop in used {
            self.resolve(next_hop).await;
        }
    }

    /// Reads what the kernel says, and acts on it.
    async fn follow(&mut self) -> io::Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        while self.watch.pump(monotonic(), &mut changes)? {}
        self.changes = changes;
        self.apply_changes();
        for next_hop in std::mem::take(&mut self.silent) {
            self.resolve(next_hop).await;
        }
        self.tell_ports();
        let now = monotonic();
        if now >= self.look_again {
            self.look_again = Time::NEVER;
            let all: Vec<_> = self.peers.keys().copied().collect();
            for direction in &all {
                self.look_up(*direction).await;
            }
            let peers: HashSet<_> = all.into_iter().map(|it| it.destination).collect();
            for destination in peers {
                self.look_up_sources(destination).await;
            }
        }
        for (direction, peer) in &mut self.peers {
            if now >= peer.give_up && !peer.waiting.is_empty() {
                no_answer(direction.destination, peer);
            }
        }
        Ok(())
    }

    fn apply_changes(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        let mut addresses = false;
        for change in changes.drain(..) {
            match change {
                Change::Neighbour(key) => self.neighbour_changed(key),
                Change::Address(address) => {
                    addresses = true;
                    self.steer(address.address);
                    self.look_soon();
                }
                // Of bridges only addresses and neighbours matter.
                Change::BridgePort(_) | Change::Fdb(_) => {}
                Change::Link(ifindex) => {
                    self.link_changed(ifindex);
                    self.look_soon();
                }
                Change::Route(_) | Change::NextHop(_) | Change::Rules => self.look_soon(),
                // Whether others' packets are forwarded is no concern of a host.
                Change::Settings(_) => {}
            }
        }
        self.changes = changes;
        if addresses {
            self.follow_addresses();
        }
    }

    /// Packets of RoCE to `address` are taken from all interfaces if it is an own one: planes share
    /// it, and an anycast address has several ports. A link-local one is that of its link.
    fn steer(&self, address: IpAddr) {
        let mirror = self.watch.mirror();
        for interface in self.interfaces.iter() {
            let mut known = mirror.addresses().filter(|it| it.address == address);
            let own = known.any(|it| {
                it.ifindex == interface.ifindex || (self.is_served(it) && !is_link_local(it))
            });
            let steering = &interface.steering;
            let done = if own {
                steering.add_local(address)
            } else {
                steering.remove_local(address)
            };
            if let Err(error) = done {
                let name = &interface.name;
                tracing::warn!(%address, interface = %name, %error, "not steered");
            }
        }
    }

    /// The daemon has other addresses.
    fn follow_addresses(&self) {
        let all = self.watch.mirror().addresses();
        let own = all.filter(|it| self.is_served(it));
        let gids = own.map(|it| (it.address, it.prefix_len));
        if self.port.follow(gids) {
            self.announce.tell(PortEvent::GidChange);
        }
    }

    /// An interface may have another speed or MTU. Routes carry both to the worker: what is sent
    /// from now on is paced so, and new connections take packets that fit.
    fn link_changed(&mut self, ifindex: u32) {
        if self.interface(ifindex).is_none() {
            return;
        }
        self.adopt_link(ifindex);
        // Before its routes: packets avoid a link that is down at once.
        self.tell_ports();
        // At once, unlike other changes: whoever reads the new MTU may connect with it.
        self.tell_those(|next_hop| next_hop.ifindex == ifindex);
    }

    fn adopt_link(&self, ifindex: u32) {
        let Some(interface) = self.interface(ifindex) else {
            return;
        };
        let state = LinkState::of(self.watch.mirror().link(ifindex));
        let before = self.port.state();
        if interface.link.set_state(state) {
            let after = self.port.state();
            self.announce.tell(match after {
                _ if after == before => PortEvent::Changed,
                LinkState::Up => PortEvent::Active,
                LinkState::Down | LinkState::NoCarrier | LinkState::Gone => PortEvent::Error,
            });
            match state.problem() {
                None => tracing::info!(interface = %interface.name, "the link is up"),
                Some(problem) => {
                    tracing::warn!(interface = %interface.name, "the interface {problem}")
                }
            }
        }
        let device = Device::lookup(&interface.name).ok();
        // One of the same name may have come in its place.
        let Some(device) = device.filter(|it| it.ifindex == ifindex) else {
            return;
        };
        let Some(before) = interface.link.adopt(device.speed, device.mtu) else {
            return;
        };
        self.announce.tell(PortEvent::Changed);
        let (name, now) = (&interface.name, interface.link.now());
        tracing::info!(interface = %name, %before, %now, "the link is another one now");
        if now.mtu < before.mtu {
            tracing::warn!(
                interface = %name,
                mtu = now.mtu,
                "connections keep the packets that were agreed on: those whose packets are longer \
                 than the link takes now end when their retransmissions are used up"
            );
        }
    }

    /// Tells the worker of each port what it does not know: its speeds, and whether its link is up.
    fn tell_ports(&mut self) {
        let mut told = true;
        let numbered = ports(&self.interfaces).zip(&mut self.told);
        for ((port, interface), (speeds, up)) in numbered {
            let now = interface.link.now().speeds;
            let is_up = interface.link.state() == LinkState::Up;
            if now != *speeds && self.worker.tell(Command::SetSpeeds(port, now)) {
                *speeds = now;
            }
            if is_up != *up && self.worker.tell(Command::SetLinkUp(port, is_up)) {
                *up = is_up;
            }
            told &= (now, is_up) == (*speeds, *up);
        }
        if !told {
            // Its channel is full.
            self.look_again = self.look_again.min(monotonic() + SETTLE);
        }
    }

    fn look_soon(&mut self) {
        if !self.peers.is_empty() {
            self.look_again = self.look_again.min(monotonic() + SETTLE);
        }
    }

    fn neighbour_changed(&mut self, key: NeighbourKey) {
        let affected = self.tell_those(|next_hop| next_hop == key);
        let state = self
            .watch
            .mirror()
            .neighbour(&key)
            .map(|neighbour| neighbour.state);
        for direction in affected {
            let known = self.has_way(direction);
            if state == Some(NeighbourState::Failed)
                && !known
                && let Some(peer) = self.peers.get_mut(&direction)
            {
                peer.told.clear();
                if peer.waiting.is_empty() || std::mem::replace(&mut peer.asked_again, true) {
                    no_answer(direction.destination, peer);
                } else {
                    self.silent.insert(key);
                }
            }
        }
    }
}

/// Whether an address is of one link only.
fn is_link_local(address: &common::netlink::Address) -> bool {
    match address.address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn no_answer(destination: IpAddr, peer: &mut Peer) {
    let via = peer.next_hops.first();
    let via = via.map_or(destination, |key| key.address);
    peer.waiting.drain(..).for_each(|waiting| {
        let _ = waiting.send(Err(format!("{via} does not answer to address resolution")));
    });
}
