//! A switch of one level, as `docs/compute.md` describes it, and a network that loses, doubles and
//! reorders what goes to it and comes from it.

use super::super::*;
use crate::memory::HeapMemory;
use common::reduce::reduce_in_order;
use common::wire::compute::{Chunk, Flags, HEADER_LEN, Message, PAYLOAD_MAX, Packet, Terms};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

pub(super) const JOB: u32 = 77;
pub(super) const EPOCH: u32 = 5;
pub(super) const GENERATION: u32 = 3;
pub(super) const SECRET: [u8; 32] = [9; 32];

/// The addresses of all members, and of the leaf.
pub(super) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(super) const SWITCH: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

/// World ranks are these many above the ranks at the leaf.
pub(super) const WORLD: u16 = 100;

#[derive(Debug)]
struct Slot {
    work: Work,
    /// What all say of the collective.
    call: [bool; 2],
    vectors: Vec<Option<Vec<u8>>>,
    root: Option<usize>,
    result: Option<Vec<u8>>,
}

/// The switch.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) size: usize,
    pub(super) slots: u16,
    pub(super) payload: u16,
    pub(super) lease: u32,
    pub(super) marks: bool,
    /// It says nothing any more.
    pub(super) dead: bool,
    /// The epoch is over.
    pub(super) over: Option<Verdict>,
    pub(super) joined: Vec<bool>,
    pub(super) left: Vec<Option<Verdict>>,
    chunks: BTreeMap<u64, Slot>,
    key: Key,
}

impl Leaf {
    fn new(size: usize) -> Self {
        Self {
            size,
            slots: 16,
            payload: 256,
            lease: 2_000,
            marks: false,
            dead: false,
            over: None,
            joined: vec![false; size],
            left: vec![None; size],
            chunks: BTreeMap::new(),
            key: Key::of_job(&SECRET, JOB),
        }
    }

    fn say(&self, to: usize, flags: Flags, message: Message<'_>) -> (usize, Vec<u8>) {
        let packet = Packet {
            flags,
            job: JOB,
            epoch: if matches!(message, Message::Refuse(_)) {
                0
            } else {
                EPOCH
            },
            rank: u16::try_from(to).expect("few"),
            message,
        };
        let mut bytes = vec![0; packet.len()];
        let seal = self.key.between(SWITCH, HOST);
        packet.write(Some(seal), &mut bytes).expect("it fits");
        (to, bytes)
    }

    /// Takes a message of `from`; what it answers, and to whom.
    pub(super) fn take(&mut self, from: usize, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let packet = Packet::read(bytes).expect("members say what can be read");
        assert!(self.key.between(HOST, SWITCH).made(bytes), "without a tag");
        assert_eq!((packet.job, usize::from(packet.rank)), (JOB, from));
        if self.dead {
            return Vec::new();
        }
        let none = Flags::default();
        if let (Some(verdict), false) = (self.over, matches!(packet.message, Message::Leave(_))) {
            return vec![self.say(from, none, Message::Error(verdict))];
        }
        match packet.message {
            Message::Join(join) => {
                assert_eq!((join.generation, packet.epoch), (GENERATION, 0));
                let again = std::mem::replace(&mut self.joined[from], true);
                let all = self.joined.iter().all(|it| *it);
                if again && !all {
                    return vec![self.say(from, none, Message::Alive)];
                }
                let terms = Terms {
                    slots: self.slots,
                    payload: self.payload.min(join.payload),
                    lease_millis: self.lease,
                    generation: GENERATION,
                };
                let to = if all { 0..self.size } else { 0..0 };
                to.map(|to| self.say(to, none, Message::Admit(terms)))
                    .collect()
            }
            Message::KeepAlive => vec![self.say(from, none, Message::Alive)],
            Message::Leave(verdict) => {
                self.left[from] = Some(verdict);
                vec![self.say(from, none, Message::Left)]
            }
            Message::Contribution(chunk) => self.contribution(from, packet.flags, &chunk),
            other => panic!("a member says {other:?}"),
        }
    }

    fn contribution(
        &mut self,
        from: usize,
        flags: Flags,
        chunk: &Chunk<'_>,
    ) -> Vec<(usize, Vec<u8>)> {
        let sequence = chunk.sequence;
        assert_eq!(
            chunk.slot,
            common::wire::compute::Slot::of(sequence, self.slots)
        );
        assert_eq!(chunk.contributions, 1 << from);
        let complete = |it: u64| self.chunks.get(&it).is_some_and(|it| it.result.is_some());
        let turn = sequence.checked_sub(self.slots.into());
        assert!(
            turn.is_none_or(complete),
            "chunk {sequence} before its turn (rule 4)"
        );
        let size = self.size;
        let call = [Flags::LAST, Flags::SHARED].map(|it| flags.contain(it));
        let slot = self.chunks.entry(sequence).or_insert_with(|| Slot {
            work: chunk.work,
            call,
            vectors: vec![None; size],
            root: None,
            result: None,
        });
        assert_eq!(
            (slot.work, slot.call),
            (chunk.work, call),
            "members do the same"
        );
        if slot.result.is_none() {
            if slot.vectors[from].is_some() {
                let again = flags.contain(Flags::RETRANSMISSION);
                let partial = Chunk {
                    data: &[],
                    ..*chunk
                };
                let answer = self.say(from, Flags::PARTIAL, Message::Result(partial));
                return if again { vec![answer] } else { Vec::new() };
            }
            slot.vectors[from] = Some(chunk.data.to_vec());
            if flags.contain(Flags::ROOT) {
                assert_eq!(slot.root.replace(from), None, "one root");
            }
            if slot.vectors.iter().any(Option::is_none) {
                return Vec::new();
            }
            slot.result = Some(computed(slot));
            return (0..size).map(|to| self.result(to, chunk)).collect();
        }
        assert_eq!(
            slot.vectors[from].as_deref(),
            Some(chunk.data),
            "the same again"
        );
        vec![self.result(from, chunk)]
    }

    fn result(&self, to: usize, chunk: &Chunk<'_>) -> (usize, Vec<u8>) {
        let slot = &self.chunks[&chunk.sequence];
        let data = slot.result.as_deref().unwrap_or_default();
        let gets = !matches!(slot.work, Work::Reduce(..)) || slot.root == Some(to);
        let chunk = Chunk {
            data: if gets { data } else { &[] },
            contributions: (1 << self.size) - 1,
            ..*chunk
        };
        self.say(to, Flags::CE.when(self.marks), Message::Result(chunk))
    }

    /// Says who has contributed.
    pub(super) fn partial(&self, to: usize, chunk: Chunk<'_>) -> (usize, Vec<u8>) {
        self.say(to, Flags::PARTIAL, Message::Result(chunk))
    }

    /// The epoch ends.
    pub(super) fn fail(&mut self, verdict: Verdict) -> Vec<(usize, Vec<u8>)> {
        self.over = Some(verdict);
        let say = |to| self.say(to, Flags::default(), Message::Error(verdict));
        (0..self.size).map(say).collect()
    }

    pub(super) fn refuse(&self, to: usize, verdict: Verdict) -> (usize, Vec<u8>) {
        self.say(to, Flags::default(), Message::Refuse(verdict))
    }

    /// What contributions to each chunk said of the collective: that it is the last chunk, that it
    /// is a reduce whose result all get; and who said that it is the root.
    pub(super) fn said(&self) -> Vec<([bool; 2], Option<usize>)> {
        self.chunks.values().map(|it| (it.call, it.root)).collect()
    }

    /// Chunks that are complete.
    pub(super) fn complete(&self) -> usize {
        self.chunks
            .values()
            .filter(|it| it.result.is_some())
            .count()
    }
}

fn computed(slot: &Slot) -> Vec<u8> {
    let vectors = slot.vectors.iter().flatten().map(Vec::as_slice);
    match slot.work {
        Work::Allreduce(operation, element) | Work::Reduce(operation, element) => {
            let mut into = vec![0; slot.vectors[0].as_ref().expect("all are in").len()];
            reduce_in_order(operation, element, &mut into, vectors).expect("of one length");
            into
        }
        Work::Broadcast => vectors
            .max_by_key(|it| it.len())
            .unwrap_or_default()
            .to_vec(),
        Work::Barrier => Vec::new(),
    }
}

/// What happens to a message, in parts of a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) doubled: u64,
}

/// Members, each with a region of its own, and their leaf.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) leaf: Leaf,
    pub(super) members: Vec<Member>,
    pub(super) regions: Vec<RegionTable<HeapMemory>>,
    pub(super) memory: Vec<HeapMemory>,
    pub(super) lkeys: Vec<u32>,
    pub(super) ended: Vec<Vec<Ended>>,
    pub(super) drops: Vec<crate::verbs::DropReason>,
    pub(super) faults: Faults,
    wire: BTreeMap<(Time, u64), (bool, usize, Vec<u8>)>,
    sent: u64,
    random: Pcg64Mcg,
}

pub(super) fn config() -> CollectiveConfig {
    CollectiveConfig {
        leaf: IpAddr::from([10, 0, 0, 1]),
        port: 4795,
        secret: Some(crate::verbs::Secret(SECRET)),
        class: 0,
        slots: 16,
        memberships: 8,
        staging: 1 << 20,
        join_timeout: Span::from_secs(10),
        rto_min: Span::from_micros(500),
        rto_initial: Span::from_millis(5),
    }
}

pub(super) fn request(rank: usize, size: usize) -> MemberRequest {
    let rank = u16::try_from(rank).expect("few");
    let size = u16::try_from(size).expect("few");
    MemberRequest {
        domain: crate::verbs::DomainId(1),
        cq: CompletionQueueId(1),
        max_wr: 32,
        job: JOB,
        rank,
        join: Join {
            slots: 16,
            payload: 256,
            operations: 0xfe,
            elements: 0xff,
            ..Join::new(GENERATION, WORLD + rank, size)
        },
    }
}

impl World {
    pub(super) fn new(size: usize, bytes: usize, seed: u64) -> Self {
        let mut world = Self {
            now: Time::from_nanos(1_000_000),
            leaf: Leaf::new(size),
            members: Vec::new(),
            regions: Vec::new(),
            memory: Vec::new(),
            lkeys: Vec::new(),
            ended: vec![Vec::new(); size],
            drops: Vec::new(),
            faults: Faults::default(),
            wire: BTreeMap::new(),
            sent: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
        };
        for rank in 0..size {
            let mut content = vec![0; bytes];
            world.random.fill_bytes(&mut content);
            let memory = HeapMemory::new(content);
            let mut regions = RegionTable::new([u8::try_from(rank).expect("few"); 32]);
            let keys = regions.register(1, memory.clone(), 0, Access::LOCAL_WRITE);
            world.lkeys.push(keys.expect("room").lkey);
            world.regions.push(regions);
            world.memory.push(memory);
            let member = Member::new(&request(rank, size), &config(), world.now);
            world.members.push(member);
        }
        world
    }

    /// A buffer of a member.
    pub(super) fn at(&self, rank: usize, addr: u64) -> Buffer {
        let lkey = self.lkeys[rank];
        Buffer { addr, lkey }
    }

    pub(super) fn post(&mut self, rank: usize, request: CollectiveRequest) {
        self.members[rank].check().expect("room");
        self.members[rank].post(request, &self.regions[rank], self.now);
        self.collect(rank);
    }

    fn collect(&mut self, rank: usize) {
        while let Some(ended) = self.members[rank].next_ended() {
            self.ended[rank].push(ended);
        }
    }

    /// Puts a message on its way.
    pub(super) fn send(&mut self, up: bool, who: usize, bytes: &[u8]) {
        let copies = match self.random.next_u64() % 100 {
            it if it < self.faults.lost => 0,
            it if it < self.faults.lost + self.faults.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = Span::from_nanos(10_000 + self.random.next_u64() % 200_000);
            self.sent += 1;
            let place = (self.now + delay, self.sent);
            self.wire.insert(place, (up, who, bytes.to_vec()));
        }
    }

    /// A member takes a message now.
    pub(super) fn deliver(&mut self, rank: usize, bytes: &[u8]) {
        let packet = Packet::read(bytes).expect("the leaf says what can be read");
        let incoming = Incoming {
            packet,
            bytes,
            ends: (SWITCH, HOST),
            congested: false,
        };
        let taken = self.members[rank].receive(&incoming, &self.regions[rank], self.now);
        self.drops.extend(taken.err());
        self.collect(rank);
    }

    fn send_all(&mut self) {
        let mut out = [0; HEADER_LEN + PAYLOAD_MAX];
        let way = Way {
            source: HOST,
            leaf: SWITCH,
            most: 1_448,
        };
        for rank in 0..self.members.len() {
            self.members[rank].expire(self.now);
            while let Some(len) =
                self.members[rank].transmit(way, &mut out, &self.regions[rank], self.now)
            {
                self.send(true, rank, &out[..len]);
            }
            self.collect(rank);
        }
    }

    /// Goes on until `done`; false if that is not so after `time`.
    pub(super) fn run(&mut self, time: Span, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + time;
        loop {
            self.send_all();
            if done(self) {
                return true;
            }
            let arrival = self.wire.first_key_value().map_or(Time::NEVER, |it| it.0.0);
            let clocks = self.members.iter().map(Member::deadline).min();
            let next = arrival.min(clocks.unwrap_or(Time::NEVER));
            if next > until {
                self.now = until;
                return false;
            }
            self.now = self.now.max(next);
            while let Some(first) = self.wire.first_entry() {
                if first.key().0 > self.now {
                    break;
                }
                let (up, who, bytes) = first.remove();
                if up {
                    for (to, answer) in self.leaf.take(who, &bytes) {
                        self.send(false, to, &answer);
                    }
                } else {
                    self.deliver(who, &bytes);
                }
            }
        }
    }

    /// Has all members join.
    pub(super) fn join(&mut self) {
        let running = |world: &Self| world.members.iter().all(|it| it.phase() == Phase::Running);
        assert!(self.run(Span::from_secs(5), running), "admitted");
    }

    /// Tells all what the leaf says.
    pub(super) fn tell(&mut self, messages: Vec<(usize, Vec<u8>)>) {
        for (to, bytes) in messages {
            self.deliver(to, &bytes);
        }
    }
}
