//! Switches and members around a network that loses, doubles and delays, from one seed: the engine
//! that ships, and members that do what `docs/compute.md` says.

use crate::compute::{Datagram, Engine, Outbox, Peer, Settings};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::stats::ComputeStats;
use common::time::{Span, Time};
use common::wire::compute::{
    Chunk, Flags, Join, Key, Message, PORT, Packet, Reason, Slot, Terms, Verdict, Work,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Random numbers of a seed (splitmix64).
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(super) fn of_100(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

pub(super) fn switch_address(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, number, 1), PORT))
}

pub(super) fn member_address(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, number, 1), 5_000))
}

/// Where it is heard: behind each port are two of them.
fn port_of(from: SocketAddr) -> PortId {
    let IpAddr::V4(address) = from.ip() else {
        return PortId(0);
    };
    PortId(u16::from(address.octets()[2] % 128))
}

/// A piece of a collective at a member.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) work: Work,
    pub(super) data: Vec<u8>,
    pub(super) is_root: bool,
    /// What its contribution says of its collective: as shipped that it is all of it.
    pub(super) call: Flags,
    /// What must come back.
    pub(super) expected: Vec<u8>,
}

/// How it ended for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has all results, and they are right.
    Done,
    /// It was told that there is no such job.
    Refused(Verdict),
    /// It was told that the job is over.
    Failed(Verdict),
    /// It has not heard of its switch for its lease.
    SwitchLost,
}

/// A member that follows the rules.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddr,
    pub(super) leaf: SocketAddr,
    pub(super) job: u32,
    pub(super) rank: u16,
    pub(super) join: Join,
    pub(super) pieces: Vec<Piece>,
    pub(super) key: Option<Key>,
    pub(super) admitted: Option<(u32, Terms)>,
    has: Vec<bool>,
    sent: Vec<Option<Time>>,
    begin: u64,
    pub(super) end: Option<End>,
    /// The switch knows that it has left.
    pub(super) left: bool,
    pub(super) is_dead: bool,
    heard: Time,
    spoke: Time,
    /// The job asks for congestion marks.
    pub(super) saw_ce: bool,
}

/// After which time a contribution is sent again.
const AGAIN: Span = Span::from_millis(5);
const ASK: Span = Span::from_millis(50);

impl Member {
    pub(super) fn new(
        (address, leaf): (SocketAddr, SocketAddr),
        (job, rank): (u32, u16),
        join: Join,
        pieces: Vec<Piece>,
    ) -> Self {
        Self {
            address,
            leaf,
            job,
            rank,
            join,
            has: vec![false; pieces.len()],
            sent: vec![None; pieces.len()],
            pieces,
            key: None,
            admitted: None,
            begin: 0,
            end: None,
            left: false,
            is_dead: false,
            heard: Time::ZERO,
            spoke: Time::ZERO,
            saw_ce: false,
        }
    }

    /// It forgets everything, as when it is started anew.
    pub(super) fn restart(&mut self) {
        let route = (self.address, self.leaf);
        let key = self.key.take();
        *self = Self::new(
            route,
            (self.job, self.rank),
            self.join,
            std::mem::take(&mut self.pieces),
        );
        self.key = key;
    }

    /// It has no more than so many pieces.
    pub(super) fn cut_short(&mut self, pieces: usize) {
        self.pieces.truncate(pieces);
        self.has.truncate(pieces);
        self.sent.truncate(pieces);
    }

    /// It has a piece more.
    pub(super) fn append(&mut self, piece: Piece) {
        self.pieces.push(piece);
        self.has.push(false);
        self.sent.push(None);
    }

    fn packet<'a>(&self, flags: Flags, message: Message<'a>) -> Packet<'a> {
        Packet {
            flags,
            job: self.job,
            epoch: self.admitted.map_or(0, |(epoch, _)| epoch),
            rank: self.rank,
            message,
        }
    }

    /// Whether it has nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        self.is_dead
            || match self.end {
                None => false,
                Some(End::Done) => self.left,
                Some(_) => true,
            }
    }

    /// Chunk `number` as it is sent.
    pub(super) fn chunk(&self, number: u64) -> Chunk<'_> {
        let slots = self.admitted.map_or(1, |(_, terms)| terms.slots);
        let piece = &self.pieces[usize::try_from(number).expect("few")];
        Chunk {
            work: piece.work,
            slot: Slot::of(number, slots),
            sequence: number,
            contributions: 1 << self.rank,
            complete: 0,
            data: &piece.data,
        }
    }

    /// Says what is due.
    pub(super) fn act(&mut self, now: Time, mut say: impl FnMut(&Packet<'_>, Option<&Key>)) {
        if self.is_over() {
            return;
        }
        if self.heard == Time::ZERO {
            self.heard = now;
        }
        let key = self.key.clone();
        let Some((_, terms)) = self.admitted else {
            if self.spoke == Time::ZERO || now.since(self.spoke) >= ASK {
                self.spoke = now;
                let join = Message::Join(self.join);
                say(&self.packet(Flags::default(), join), key.as_ref());
            }
            if now.since(self.heard) >= Span::from_secs(8) {
                self.end = Some(End::SwitchLost);
            }
            return;
        };
        let lease = Span::from_millis(terms.lease_millis.into());
        if now.since(self.heard) >= lease {
            match self.end {
                Some(End::Done) => self.left = true,
                _ => self.end = Some(End::SwitchLost),
            }
            return;
        }
        if self.end == Some(End::Done) {
            if now.since(self.spoke) >= ASK {
                self.spoke = now;
                let verdict = Verdict {
                    reason: Reason::Finished,
                    level: 0,
                    world: None,
                    generation: self.join.generation,
                };
                let leave = Message::Leave(verdict);
                say(&self.packet(Flags::default(), leave), key.as_ref());
            }
            return;
        }
        let window = u64::from(terms.slots);
        let last = (self.begin + window).min(self.pieces.len() as u64);
        for number in self.begin..last {
            let at = usize::try_from(number).expect("few");
            let is_due = match self.sent[at] {
                None => true,
                Some(sent) => !self.has[at] && now.since(sent) >= AGAIN,
            };
            if !is_due {
                continue;
            }
            let flags = Flags::RETRANSMISSION.when(self.sent[at].is_some());
            let piece = &self.pieces[at];
            let flags = flags.with(Flags::ROOT.when(piece.is_root)).with(piece.call);
            let contribution = Message::Contribution(self.chunk(number));
            say(&self.packet(flags, contribution), key.as_ref());
            self.sent[at] = Some(now);
            self.spoke = now;
        }
        if now.since(self.spoke) >= lease.divided_by(4) {
            self.spoke = now;
            say(
                &self.packet(Flags::default(), Message::KeepAlive),
                key.as_ref(),
            );
        }
    }

    /// Hears its switch.
    pub(super) fn hear(&mut self, from: SocketAddr, bytes: &[u8], now: Time) {
        let packet = Packet::read(bytes).expect("switches say nothing wrong");
        if self.is_over() || from != self.leaf || packet.job != self.job {
            return;
        }
        if let Some(key) = &self.key {
            let seal = key.between(self.leaf.ip(), self.address.ip());
            assert!(seal.made(bytes), "switches seal");
        }
        let epoch = self.admitted.map(|(epoch, _)| epoch);
        match packet.message {
            Message::Admit(terms) if terms.generation == self.join.generation => {
                self.heard = now;
                self.admitted.get_or_insert((packet.epoch, terms));
                if self.pieces.is_empty() {
                    self.end.get_or_insert(End::Done);
                }
            }
            Message::Refuse(verdict)
                if epoch.is_none() && verdict.generation == self.join.generation =>
            {
                self.end = Some(End::Refused(verdict));
            }
            Message::Alive => self.heard = now,
            Message::Left if self.end == Some(End::Done) => self.left = true,
            Message::Error(verdict) if Some(packet.epoch) == epoch => match self.end {
                Some(End::Done) => self.left = true,
                _ => self.end = Some(End::Failed(verdict)),
            },
            Message::Result(chunk) if Some(packet.epoch) == epoch => {
                self.heard = now;
                self.saw_ce |= packet.flags.contain(Flags::CE);
                let number = usize::try_from(chunk.sequence).expect("few");
                let is_new = !packet.flags.contain(Flags::PARTIAL) && !self.has[number];
                if is_new {
                    let piece = &self.pieces[number];
                    assert_eq!(chunk.work, piece.work, "chunk {number}");
                    assert_eq!(
                        chunk.data, piece.expected,
                        "chunk {number} {:?}",
                        piece.work
                    );
                    self.has[number] = true;
                }
                while self.has.get(usize::try_from(self.begin).expect("few")) == Some(&true) {
                    self.begin += 1;
                }
                if self.begin == self.pieces.len() as u64 {
                    self.end = Some(End::Done);
                    self.spoke = Time::ZERO;
                }
            }
            _ => {}
        }
    }
}

/// A switch with its counters.
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) address: SocketAddr,
    pub(super) engine: Engine,
    pub(super) stats: Arc<ComputeStats>,
    /// What it did not take.
    pub(super) lost: Vec<DropReason>,
    epoch: u32,
    settings: Settings,
}

impl Switch {
    pub(super) fn new(address: SocketAddr, settings: Settings) -> Self {
        let stats = Arc::new(ComputeStats::default());
        Self {
            address,
            engine: Engine::new(settings.clone(), 1, stats.clone()),
            stats,
            lost: Vec::new(),
            epoch: 1,
            settings,
        }
    }

    /// Forgets everything, as when it is started anew.
    pub(super) fn restart(&mut self) {
        self.epoch += 1_000;
        self.stats = Arc::new(ComputeStats::default());
        self.engine = Engine::new(self.settings.clone(), self.epoch, self.stats.clone());
    }

    /// Nothing is left of any job.
    pub(super) fn is_empty(&self) -> bool {
        let stats = &self.stats;
        let gauges = [&stats.jobs, &stats.slots_open, &stats.memory];
        gauges.iter().all(|it| it.get() == 0)
    }
}

/// Collects what an engine sends.
#[derive(Debug, Default)]
pub(super) struct Sent(pub(super) Vec<(Peer, Vec<u8>)>);

impl Outbox for Sent {
    fn send(&mut self, to: &Peer, packet: &Packet<'_>, key: Option<&Key>) -> bool {
        let mut bytes = vec![0; packet.len()];
        let seal = key.map(|key| to.seal(key));
        packet.write(seal, &mut bytes).expect("it fits");
        self.0.push((*to, bytes));
        true
    }
}

/// A datagram on its way.
#[derive(Debug)]
struct OnItsWay {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Everything, in virtual time.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) random: Random,
    pub(super) switches: Vec<Switch>,
    pub(super) members: Vec<Member>,
    /// By time of arrival and number.
    network: BTreeMap<(Time, u64), OnItsWay>,
    count: u64,
    /// Percent that are lost, and that come twice.
    pub(super) loss: u64,
    pub(super) doubled: u64,
    /// Percent that meet congestion.
    pub(super) marked: u64,
    /// Most microseconds by which one overtakes another.
    pub(super) spread: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Time::from_nanos(1_000_000_000),
            random: Random(seed),
            switches: Vec::new(),
            members: Vec::new(),
            network: BTreeMap::new(),
            count: 0,
            loss: 0,
            doubled: 0,
            marked: 0,
            spread: 200,
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let copies = if self.random.of_100(self.doubled) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            if self.random.of_100(self.loss) {
                continue;
            }
            let delay = Span::from_micros(5 + self.random.below(self.spread));
            self.count += 1;
            let bytes = bytes.to_vec();
            let key = (self.now + delay, self.count);
            self.network.insert(key, OnItsWay { from, to, bytes });
        }
    }

    /// Datagrams that have not arrived.
    pub(super) fn on_the_way(&self) -> usize {
        self.network.len()
    }

    fn flush(&mut self, from: SocketAddr, sent: Sent) {
        for (peer, bytes) in sent.0 {
            assert_eq!(
                peer.local, from,
                "switches answer from where they were asked"
            );
            self.send(from, peer.remote, &bytes);
        }
    }

    /// One step: half a millisecond, or more while nothing is on its way.
    pub(super) fn step(&mut self) {
        let is_quiet = self.network.is_empty();
        let end = self.now + Span::from_micros(if is_quiet { 5_000 } else { 500 });
        while let Some(entry) = self.network.first_entry() {
            if entry.key().0 > end {
                break;
            }
            self.now = entry.key().0;
            let it = entry.remove();
            self.arrive(&it);
        }
        self.now = end;
        for at in 0..self.switches.len() {
            let mut sent = Sent::default();
            let (now, address) = (self.now, self.switches[at].address);
            if now >= self.switches[at].engine.deadline() {
                self.switches[at].engine.tick(now, &mut sent);
            }
            self.flush(address, sent);
        }
        for at in 0..self.members.len() {
            self.act(at);
        }
    }

    fn act(&mut self, at: usize) {
        let (now, mut said) = (self.now, Vec::new());
        let member = &mut self.members[at];
        let (address, leaf) = (member.address, member.leaf);
        member.act(now, |packet, key| {
            let mut bytes = vec![0; packet.len()];
            let seal = key.map(|key| key.between(address.ip(), leaf.ip()));
            packet.write(seal, &mut bytes).expect("it fits");
            said.push(bytes);
        });
        for bytes in said {
            self.send(address, leaf, &bytes);
        }
    }

    fn arrive(&mut self, it: &OnItsWay) {
        if let Some(at) = self
            .switches
            .iter()
            .position(|switch| switch.address == it.to)
        {
            let is_ce = self.random.of_100(self.marked);
            let _ = self.give(at, it.from, &it.bytes, is_ce);
        } else {
            let now = self.now;
            // The twins of an address are members of other jobs.
            for at in 0..self.members.len() {
                if self.members[at].address == it.to {
                    self.members[at].hear(it.from, &it.bytes, now);
                    self.act(at);
                }
            }
        }
    }

    /// Gives a datagram to a switch.
    pub(super) fn give(
        &mut self,
        at: usize,
        from: SocketAddr,
        bytes: &[u8],
        is_ce: bool,
    ) -> Result<(), DropReason> {
        let (now, mut sent) = (self.now, Sent::default());
        let switch = &mut self.switches[at];
        let peer = Peer {
            remote: from,
            local: switch.address,
            port: port_of(from),
        };
        let datagram = Datagram { peer, is_ce, bytes };
        let taken = switch.engine.receive(datagram, now, &mut sent);
        if let Err(reason) = taken {
            switch.lost.push(reason);
        }
        let address = switch.address;
        self.flush(address, sent);
        taken
    }

    /// Goes on until all members are done or it has taken too long; whether they are.
    pub(super) fn finish(&mut self, limit: Span) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if self.members.iter().all(Member::is_over) {
                return true;
            }
            self.step();
        }
        self.members.iter().all(Member::is_over)
    }

    /// Goes on for so long.
    pub(super) fn pass(&mut self, time: Span) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }
}
