//! A switch of one level that computes for one job: what `docs/compute.md` asks of it, and no more.
//! It answers each message to the member with the rank that the answer names.

use common::reduce::reduce_in_order;
use common::wire::compute::{Chunk, Flags, Key, Message, Packet, Reason, Terms, Verdict, Work};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

const EPOCH: u32 = 9;

struct Slot {
    work: Work,
    vectors: Vec<Option<Vec<u8>>>,
    root: Option<usize>,
    result: Option<Vec<u8>>,
}

/// The switch.
pub(crate) struct Switch {
    size: usize,
    key: Option<Key>,
    job: u32,
    joined: Vec<bool>,
    slots: BTreeMap<u64, Slot>,
    over: Option<Verdict>,
    /// The addresses of the members' host and of the switch, as of the last message.
    ends: (IpAddr, IpAddr),
    /// One packet in so many is lost, in each direction; zero: none.
    loses: u32,
    seen: u32,
}

impl Switch {
    /// For so many members; one message in so many is lost, in each direction, none if it is zero.
    pub(crate) fn new(job: u32, size: usize, key: Option<Key>, loses: u32) -> Self {
        Self {
            size,
            key,
            job,
            joined: vec![false; size],
            slots: BTreeMap::new(),
            over: None,
            ends: (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()),
            loses,
            seen: 0,
        }
    }

    /// What answers a message of a member, whose packet has these addresses.
    pub(crate) fn answer(&mut self, ends: (IpAddr, IpAddr), message: &[u8]) -> Vec<Vec<u8>> {
        self.ends = ends;
        if self.is_lost() {
            return Vec::new();
        }
        let mut answers = self.take(message);
        answers.retain(|_| !self.is_lost());
        answers
    }

    fn is_lost(&mut self) -> bool {
        self.seen += 1;
        self.loses > 0 && self.seen.is_multiple_of(self.loses)
    }

    fn say(&self, to: usize, flags: Flags, message: Message<'_>) -> Vec<u8> {
        let packet = Packet {
            flags,
            job: self.job,
            epoch: EPOCH,
            rank: u16::try_from(to).expect("few"),
            message,
        };
        let mut bytes = vec![0; packet.len()];
        let (host, own) = self.ends;
        let seal = self.key.as_ref().map(|key| key.between(own, host));
        packet.write(seal, &mut bytes).expect("it fits");
        bytes
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let packet = Packet::read(bytes).expect("members say what can be read");
        let (host, own) = self.ends;
        let is_made = |key: &Key| key.between(host, own).made(bytes);
        assert!(self.key.as_ref().is_none_or(is_made));
        let (from, none) = (usize::from(packet.rank), Flags::default());
        match packet.message {
            Message::Leave(verdict) => {
                let verdict = Verdict {
                    reason: Reason::MemberLeft,
                    ..verdict
                };
                self.over.get_or_insert(verdict);
                let busy = self.slots.values().any(|it| it.result.is_none());
                let mut all = vec![self.say(from, none, Message::Left)];
                let others = (0..self.size).filter(|it| busy && *it != from);
                all.extend(others.map(|to| self.say(to, none, Message::Error(verdict))));
                all
            }
            Message::Join(join) => {
                self.joined[from] = true;
                let terms = Terms {
                    slots: join.slots.min(64),
                    payload: join.payload,
                    lease_millis: 2_000,
                    generation: join.generation,
                };
                let all = self.joined.iter().all(|it| *it);
                let to = if all { 0..self.size } else { 0..0 };
                to.map(|to| self.say(to, none, Message::Admit(terms)))
                    .collect()
            }
            Message::KeepAlive => vec![self.say(from, none, Message::Alive)],
            Message::Contribution(chunk) => self.contribution(from, packet.flags, &chunk),
            other => panic!("a member says {other:?}"),
        }
    }

    fn contribution(&mut self, from: usize, flags: Flags, chunk: &Chunk<'_>) -> Vec<Vec<u8>> {
        let size = self.size;
        let slot = self.slots.entry(chunk.sequence).or_insert_with(|| Slot {
            work: chunk.work,
            vectors: vec![None; size],
            root: None,
            result: None,
        });
        assert_eq!(slot.work, chunk.work);
        if slot.result.is_some() {
            return vec![self.result(from, chunk)];
        }
        if let Some(verdict) = self.over {
            return vec![self.say(from, Flags::default(), Message::Error(verdict))];
        }
        if slot.vectors[from].is_some() {
            let partial = Chunk {
                data: &[],
                ..*chunk
            };
            let answer = self.say(from, Flags::PARTIAL, Message::Result(partial));
            let again = flags.contain(Flags::RETRANSMISSION);
            return if again { vec![answer] } else { Vec::new() };
        }
        slot.vectors[from] = Some(chunk.data.to_vec());
        if flags.contain(Flags::ROOT) {
            slot.root = Some(from);
        }
        if slot.vectors.iter().any(Option::is_none) {
            return Vec::new();
        }
        let vectors = slot.vectors.iter().flatten().map(Vec::as_slice);
        slot.result = Some(match slot.work {
            Work::Allreduce(operation, element) | Work::Reduce(operation, element) => {
                let mut into = vec![0; chunk.data.len()];
                reduce_in_order(operation, element, &mut into, vectors).expect("of one length");
                into
            }
            Work::Broadcast | Work::Barrier => vectors
                .max_by_key(|it| it.len())
                .unwrap_or_default()
                .to_vec(),
        });
        (0..size).map(|to| self.result(to, chunk)).collect()
    }

    fn result(&self, to: usize, chunk: &Chunk<'_>) -> Vec<u8> {
        let slot = &self.slots[&chunk.sequence];
        let gets = !matches!(slot.work, Work::Reduce(..)) || slot.root == Some(to);
        let data = slot.result.as_deref().filter(|_| gets).unwrap_or_default();
        let chunk = Chunk { data, ..*chunk };
        self.say(to, Flags::default(), Message::Result(chunk))
    }
}
