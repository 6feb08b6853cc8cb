//! How packets to each peer are addressed: source address, next hop's Ethernet address, MTU.
//!
//! The kernel decides. Its route for a peer is looked up, its neighbour table is asked for the
//! next hop (and made to resolve it), and both are followed: when something changes the peers'
//! routes are looked up again and pushed to the worker. Neighbours in use are kept alive, as the
//! kernel sees none of the packets.

use super::interfaces::{Interface, Interfaces, fastest};
use super::link::LinkState;
use super::peers::{Peer, Room, forget_unused};
use super::port::Announce;
use super::questions::{Question, Questions};
use crate::edge::command::{Command, WorkerHandle};
use crate::readiness::readiness;
use crate::verbs::{Route, Speeds};
use common::netlink::{
    Change, Mirror, NeighbourKey, NeighbourState, Requests, RouteKind, Settings, Watch,
};
use common::sys::monotonic;
use common::time::{Span, Time};
use common::xdp::netdev::Device;
use hostd_client::abi::port::PortEvent;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How long the resolution of a neighbour may take; the kernel gives up after three seconds.
const RESOLVE_TIME: Span = Span::from_secs(4);

/// Neighbours in use are confirmed this often: well below the kernel's default of 30 s reachable
/// time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Changes of routes settle for this long before peers are looked up again, so that a burst costs
/// one look.
const SETTLE: Span = Span::from_millis(20);

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
    peers: HashMap<IpAddr, Peer>,
    /// When all peers are looked up again.
    look_again: Time,
    /// What the worker was told last of the speeds.
    told_speeds: Option<Speeds>,
    changes: Vec<Change>,
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
        announce: Announce,
    ) -> io::Result<Self> {
        let mut watch = Watch::open(Settings { resync: RESYNC }, RECEIVE_BUFFER)?;
        let mut changes = Vec::new();
        watch.sync(monotonic() + Span::from_secs(10), &mut changes)?;
        // The same socket under another number: the watch stays free to be used.
        let readable = watch.as_fd().try_clone_to_owned()?;
        let mut router = Self {
            readable: readiness(readable)?,
            watch,
            requests: Requests::connect()?,
            interfaces,
            worker,
            questions,
            peers: HashMap::new(),
            look_again: Time::NEVER,
            told_speeds: None,
            changes,
            announce,
        };
        // What the worker began with.
        router.told_speeds = fastest(&router.interfaces);
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
        let destination = question.destination;
        let user = question.user;
        if let Some(source) = question.source
            && let Err(reason) = self.check_source(destination, source).await
        {
            return question.answer(Err(reason));
        }
        let told = self
            .peers
            .get(&destination)
            .is_some_and(|peer| peer.told.is_some());
        if told && question.answer.is_some() {
            // An application connects where others do: the kernel need not be asked each time.
            return question.answer(Ok(()));
        }
        let room = Room::DEFAULT;
        if !self.peers.contains_key(&destination) && room.refuses(&self.peers, user).is_some() {
            self.evict().await;
            if let Some(reason) = room.refuses(&self.peers, user) {
                return question.answer(Err(reason));
            }
        }
        let peer = self.peers.entry(destination).or_insert_with(|| Peer {
            user,
            ..Peer::default()
        });
        peer.waiting.extend(question.answer);
        peer.give_up = monotonic() + RESOLVE_TIME;
        // The engine asks because it has no route, whatever it was told.
        peer.told = None;
        self.look_up(destination).await;
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
    async fn look_up(&mut self, destination: IpAddr) {
        let found = self.find(destination, None).await;
        let Some(peer) = self.peers.get_mut(&destination) else {
            return;
        };
        match found {
            Ok((next_hop, source)) => {
                peer.next_hop = Some(next_hop);
                peer.source = Some(source);
                if !self.tell(destination) {
                    self.resolve(next_hop).await;
                }
            }
            Err(reason) => {
                peer.next_hop = None;
                peer.told = None;
                tracing::debug!(%destination, %reason, "no way");
                peer.waiting.drain(..).for_each(|waiting| {
                    let _ = waiting.send(Err(reason.clone()));
                });
            }
        }
    }

    /// Packets to a destination take one way, whatever own address they leave from: the kernel must
    /// not have another one for `source`.
    async fn check_source(&self, destination: IpAddr, source: IpAddr) -> Result<(), String> {
        let (usual, _) = self.find(destination, None).await?;
        let (theirs, _) = self.find(destination, Some(source)).await?;
        if usual == theirs {
            return Ok(());
        }
        let (usual, theirs) = (usual.address, theirs.address);
        Err(format!(
            "packets from {source} to {destination} go by {theirs}, others by {usual}: hostd does \
             not follow rules that look at the source"
        ))
    }

    /// The next hop, and the address that packets leave from.
    async fn find(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<(NeighbourKey, IpAddr), String> {
        let answer = match self.requests.route_to(destination, source).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(format!("no route to {destination}")),
            Err(error) => return Err(format!("the kernel tells no route: {error}")),
        };
        match answer.kind {
            RouteKind::Unicast => {}
            RouteKind::Local => return self.find_own(destination),
            RouteKind::Multicast | RouteKind::Broadcast | RouteKind::Anycast => {
                return Err(format!(
                    "{destination} is no address of one host, and connections are between two"
                ));
            }
            kind => {
                return Err(format!(
                    "no route to {destination}: the kernel's is of the kind {kind:?}"
                ));
            }
        }
        let mirror = self.watch.mirror();
        if self.interface(answer.ifindex).is_none() {
            let name = mirror
                .link(answer.ifindex)
                .map_or("?", |link| link.name.as_str());
            return Err(format!(
                "the route to {destination} leaves by {name}, which is no interface of hostd"
            ));
        }
        let own = |address: &&common::netlink::Address| {
            address.ifindex == answer.ifindex && address.address.is_ipv4() == destination.is_ipv4()
        };
        let source = source
            .or(answer.source)
            .or_else(|| mirror.addresses().find(own).map(|address| address.address))
            .ok_or_else(|| format!("no own address towards {destination}"))?;
        let address = answer.gateway.unwrap_or(destination);
        Ok((
            NeighbourKey {
                ifindex: answer.ifindex,
                address,
            },
            source,
        ))
    }

    /// The way to an address of this host: it begins and ends there.
    fn find_own(&self, destination: IpAddr) -> Result<(NeighbourKey, IpAddr), String> {
        let mirror = self.watch.mirror();
        let mut names = Vec::new();
        for address in mirror.addresses().filter(|it| it.address == destination) {
            if self.interface(address.ifindex).is_some() {
                let ifindex = address.ifindex;
                let address = destination;
                return Ok((NeighbourKey { ifindex, address }, destination));
            }
            let link = mirror.link(address.ifindex);
            names.push(link.map_or("?", |link| link.name.as_str()));
        }
        Err(format!(
            "{destination} is this host itself, by {}: hostd reaches itself by the addresses of its \
             interfaces only",
            if names.is_empty() {
                "none of its addresses".to_owned()
            } else {
                names.join(", ")
            }
        ))
    }

    /// Whether a next hop is this host itself.
    fn is_own(&self, key: &NeighbourKey) -> bool {
        let mut all = self.watch.mirror().addresses();
        all.any(|it| it.ifindex == key.ifindex && it.address == key.address)
    }

    fn interface(&self, ifindex: u32) -> Option<&Interface> {
        self.interfaces
            .iter()
            .find(|interface| interface.ifindex == ifindex)
    }

    /// Tells the worker the way to a peer, if everything is known; false if the next hop is not.
    fn tell(&mut self, destination: IpAddr) -> bool {
        let Some(peer) = self.peers.get(&destination) else {
            return true;
        };
        let (Some(next_hop), Some(source)) = (peer.next_hop, peer.source) else {
            return true;
        };
        let Some(route) = self.route(next_hop, source) else {
            return false;
        };
        if peer.told != Some(route) && !self.worker.tell(Command::SetRoute(destination, route)) {
            // Its channel is full.
            self.look_soon();
            return true;
        }
        if let Some(peer) = self.peers.get_mut(&destination) {
            peer.told = Some(route);
            peer.waiting
                .drain(..)
                .for_each(|waiting| drop(waiting.send(Ok(()))));
        }
        true
    }

    /// Tells the worker the ways by these next hops; returns whose they are.
    fn tell_those(&mut self, chosen: impl Fn(NeighbourKey) -> bool) -> Vec<IpAddr> {
        let affected = |(_, peer): &(&IpAddr, &Peer)| peer.next_hop.is_some_and(&chosen);
        let peers = self.peers.iter().filter(affected);
        let affected: Vec<_> = peers.map(|(destination, _)| *destination).collect();
        for destination in &affected {
            self.tell(*destination);
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
            .filter(|peer| peer.told.is_some())
            .filter_map(|peer| peer.next_hop)
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
        self.tell_speeds();
        let now = monotonic();
        if now >= self.look_again {
            self.look_again = Time::NEVER;
            let all: Vec<_> = self.peers.keys().copied().collect();
            for destination in all {
                self.look_up(destination).await;
            }
        }
        for (destination, peer) in &mut self.peers {
            if now >= peer.give_up && !peer.waiting.is_empty() {
                no_answer(*destination, peer);
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
                    if let Some(interface) = self.interface(address.ifindex) {
                        let steering = &interface.steering;
                        let done = if self.watch.mirror().has_address(&address) {
                            steering.add_local(address.address)
                        } else {
                            steering.remove_local(address.address)
                        };
                        if let Err(error) = done {
                            tracing::warn!(address = %address.address, %error, "not steered");
                        }
                    }
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

    /// The interface has other addresses.
    fn follow_addresses(&self) {
        for interface in self.interfaces.iter() {
            let all = self.watch.mirror().addresses();
            let own = all.filter(|it| it.ifindex == interface.ifindex);
            let gids = own.map(|it| (it.address, it.prefix_len));
            if interface.port.follow(gids) {
                self.announce.tell(PortEvent::GidChange);
            }
        }
    }

    /// An interface may have another speed or MTU. Routes carry both to the worker: what is sent
    /// from now on is paced so, and new connections take packets that fit.
    fn link_changed(&mut self, ifindex: u32) {
        if self.interface(ifindex).is_none() {
            return;
        }
        self.adopt_link(ifindex);
        // At once, unlike other changes: whoever reads the new MTU may connect with it.
        self.tell_those(|next_hop| next_hop.ifindex == ifindex);
    }

    fn adopt_link(&self, ifindex: u32) {
        let Some(interface) = self.interface(ifindex) else {
            return;
        };
        let state = LinkState::of(self.watch.mirror().link(ifindex));
        if interface.link.set_state(state) {
            self.announce.tell(match state {
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

    /// Tells the worker the speeds if they are others than it knows.
    fn tell_speeds(&mut self) {
        let now = fastest(&self.interfaces);
        let Some(speeds) = now.filter(|_| now != self.told_speeds) else {
            return;
        };
        if self.worker.tell(Command::SetSpeeds(speeds)) {
            self.told_speeds = now;
        } else {
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
        for destination in affected {
            if state == Some(NeighbourState::Failed)
                && let Some(peer) = self.peers.get_mut(&destination)
            {
                peer.told = None;
                no_answer(destination, peer);
            }
        }
    }
}

fn no_answer(destination: IpAddr, peer: &mut Peer) {
    let via = peer.next_hop.map_or(destination, |key| key.address);
    peer.waiting.drain(..).for_each(|waiting| {
        let _ = waiting.send(Err(format!("{via} does not answer to address resolution")));
    });
}
