//! A leaf that computes for the members of one daemon, at the other end of its cable: what
//! `docs/compute.md` asks of a switch of one level, and no more.

use crate::rig::Peer;
use common::reduce::reduce_in_order;
use common::wire::compute::{
    Chunk, Flags, HEADER_LEN, Key, Message, Packet, Reason, Terms, Verdict, Work,
};
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::ip::{protocol, v4};
use common::wire::udp;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Its address: that of the second host.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The port of switches.
pub(crate) const PORT: u16 = 4795;

const HEADERS: usize = ethernet::HEADER_LEN + v4::HEADER_LEN + udp::HEADER_LEN;
const EPOCH: u32 = 9;

struct Slot {
    work: Work,
    vectors: Vec<Option<Vec<u8>>>,
    root: Option<usize>,
    result: Option<Vec<u8>>,
}

struct State {
    size: usize,
    key: Option<Key>,
    job: u32,
    joined: Vec<bool>,
    slots: BTreeMap<u64, Slot>,
    over: Option<Verdict>,
    /// One packet in so many is lost, in each direction; zero: none.
    loses: u32,
    seen: u32,
}

/// The leaf on a thread of its own.
pub(crate) struct Leaf {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Leaf {
    /// For one job of so many members.
    pub(crate) fn start(peer: Peer, job: u32, size: usize, key: Option<Key>, loses: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut state = State {
            size,
            key,
            job,
            joined: vec![false; size],
            slots: BTreeMap::new(),
            over: None,
            loses,
            seen: 0,
        };
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok(frame) = peer.from.recv_timeout(Duration::from_millis(20)) else {
                    continue;
                };
                for answer in state.frame(&frame) {
                    // Full: lost, as on a real cable.
                    let _ = peer.to.try_send(answer);
                }
                peer.wake.write(1).expect("a counter that is never full");
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("it ran").expect("members keep the rules");
        }
    }
}

impl State {
    fn is_lost(&mut self) -> bool {
        self.seen += 1;
        self.loses > 0 && self.seen.is_multiple_of(self.loses)
    }

    /// The frames that answer one.
    fn frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let ip = v4::Packet::new_checked(&frame[ethernet::HEADER_LEN..]).expect("IPv4");
        assert!(ip.verify_checksum() && ip.dst() == ADDRESS);
        let datagram = udp::Datagram::new_checked(ip.payload()).expect("UDP");
        assert_eq!((datagram.src_port(), datagram.dst_port()), (PORT, PORT));
        let from = ip.src();
        let message = datagram.payload().to_vec();
        if self.is_lost() {
            return Vec::new();
        }
        let answers = self.take(&message);
        let answers = answers.into_iter().filter(|_| !self.is_lost());
        answers.map(|it| framed(frame, from, &it)).collect()
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
        packet
            .write(self.key.as_ref(), &mut bytes)
            .expect("it fits");
        bytes
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let packet = Packet::read(bytes).expect("members say what can be read");
        assert!(self.key.as_ref().is_none_or(|key| key.sealed(bytes)));
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

/// A frame that goes back to where `frame` came from.
fn framed(frame: &[u8], to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; HEADERS + message.len()];
    let len = u16::try_from(udp::HEADER_LEN + message.len()).expect("short");
    let header = v4::Repr {
        src: ADDRESS,
        dst: to,
        traffic_class: 0,
        ident: 0,
        ttl: 64,
        protocol: protocol::UDP,
        payload_len: len,
    };
    header.emit(&mut answer[ethernet::HEADER_LEN..]);
    let [to, from] = [6, 0].map(|at| Mac(frame[at..at + 6].try_into().expect("six bytes")));
    ethernet::emit(&mut answer, to, from, ethertype::IPV4);
    let at = HEADERS - udp::HEADER_LEN;
    udp::emit(&mut answer[at..], PORT, PORT, len);
    answer[HEADERS..].copy_from_slice(message);
    assert!(HEADER_LEN <= message.len());
    answer
}
