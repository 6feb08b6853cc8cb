//! What a switch knows of a member, and what it says to it.

use super::super::program::Program;
use common::wire::Mac;
use common::wire::compute::{
    Chunk, Element, Flags, HEADER_LEN, Join, Key, Message, Operation, Packet, Reason, Slot, Terms,
    Verdict, Work, guard,
};
use common::wire::roce::Flow;
use common::wire::roce::frame::{Addresses, emit_datagram};
use common::wire::udp;
use hostd::verbs::MemberId;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

pub(super) const LEAF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(super) const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
pub(super) const PORT: u16 = 4795;

/// The secret of the fabric, if it has one.
pub(super) const SECRET: [u8; 32] = [9; 32];

/// What results are full of.
pub(super) const FILL: u8 = 0x11;

/// The job, and the bytes of a chunk that its members ask for.
pub(super) const JOB: u32 = 5;
pub(super) const PAYLOAD: u16 = 64;

/// What vectors are full of, and places that nothing was written to.
pub(super) const VECTOR: u8 = 0x33;
pub(super) const UNTOUCHED: u8 = 0xc3;

/// Ethernet, IPv4 and UDP: where a message begins.
pub(super) const AT: usize = 14 + 20 + 8;

/// Slots of the job, and its epoch, where the switch does as it should.
const GRANTED: u16 = 4;
const EPOCH: u32 = 8;

/// Messages of a member that are answered later.
const HEARD: usize = 64;

/// Leases in milliseconds, each as an admission may have it.
const LEASES: [u32; 6] = [2_000, 0, 1, 100, 60_000, u32::MAX];

/// A collective that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    pub(super) work: Option<Work>,
    pub(super) len: u32,
    pub(super) root: bool,
    pub(super) in_place: bool,
    pub(super) place: usize,
}

impl Posted {
    /// Bytes of a chunk but the last, and how many chunks there are.
    fn chunks(&self, payload: u32) -> (u32, u64) {
        match self.work {
            None => (0, 0),
            Some(Work::Barrier) => (0, 1),
            Some(Work::Broadcast) => (payload, self.len.div_ceil(payload).into()),
            Some(Work::Allreduce(_, element) | Work::Reduce(_, element)) => {
                let size = u32::try_from(element.len()).expect("small");
                let step = payload / size * size;
                (step, self.len.div_ceil(step).into())
            }
        }
    }

    /// Whether a result is written here.
    pub(super) fn gets(&self) -> bool {
        match self.work {
            Some(Work::Allreduce(..)) => true,
            Some(Work::Reduce(..)) => self.root,
            Some(Work::Broadcast) => !self.root,
            Some(Work::Barrier) | None => false,
        }
    }
}

/// What a member said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    Join,
    Sign,
    Leave,
    Chunk(u64),
}

/// A member.
pub(super) struct Part {
    pub(super) id: MemberId,
    pub(super) rank: u16,
    pub(super) generation: u32,
    /// Collectives that have not ended, the oldest first.
    pub(super) posted: VecDeque<Posted>,
    /// The number of the first chunk of the oldest one.
    first: u64,
    /// Bytes of a chunk, once it was admitted.
    pub(super) payload: u32,
    /// What was heard of it and not answered.
    pub(super) heard: VecDeque<Heard>,
}

impl Part {
    pub(super) fn new(id: MemberId, rank: u16, generation: u32) -> Self {
        Self {
            id,
            rank,
            generation,
            posted: VecDeque::new(),
            first: 0,
            payload: PAYLOAD.into(),
            heard: VecDeque::new(),
        }
    }

    /// The oldest collective ended with a result.
    pub(super) fn done(&mut self, posted: &Posted) {
        self.first += posted.chunks(self.payload).1;
    }

    /// The collective of a chunk, and how many bytes of it are in the chunk.
    fn find(&self, sequence: u64) -> Option<(&Posted, u32)> {
        let mut first = self.first;
        for posted in &self.posted {
            let (step, chunks) = posted.chunks(self.payload);
            let number = sequence.checked_sub(first)?;
            if number < chunks {
                let offset = u32::try_from(number).expect("few") * step;
                return Some((posted, step.min(posted.len - offset)));
            }
            first += chunks;
        }
        None
    }

    /// Hears what it says. A contribution is of a collective that was posted, and has its bytes.
    pub(super) fn hear(&mut self, packet: &Packet<'_>) {
        let heard = match packet.message {
            Message::Join(join) => {
                assert!(join.payload <= PAYLOAD && join.generation == self.generation);
                Heard::Join
            }
            Message::KeepAlive => Heard::Sign,
            Message::Leave(_) => Heard::Leave,
            Message::Contribution(chunk) => {
                self.check(&chunk, packet.flags);
                Heard::Chunk(chunk.sequence)
            }
            message => panic!("members do not say {message:?}"),
        };
        if self.heard.len() < HEARD {
            self.heard.push_back(heard);
        }
    }

    fn check(&self, chunk: &Chunk<'_>, flags: Flags) {
        let (posted, len) = self.find(chunk.sequence).expect("a chunk of a collective");
        assert_eq!(Some(chunk.work), posted.work);
        assert_eq!(chunk.contributions, 1 << self.rank);
        let gives = chunk.work != Work::Broadcast || posted.root;
        assert_eq!(chunk.data.len(), if gives { len as usize } else { 0 });
        // The place of a result that has come is not read again.
        let byte = if posted.in_place { UNTOUCHED } else { VECTOR };
        assert!(chunk.data.iter().all(|&it| it == byte), "another vector");
        assert_eq!(flags.contain(Flags::ROOT), posted.root);
    }

    /// A frame with a message to it.
    fn frame(&self, epoch: u32, flags: Flags, message: Message<'_>, key: Option<&Key>) -> Vec<u8> {
        let packet = Packet {
            flags,
            job: JOB,
            epoch,
            rank: self.rank,
            message,
        };
        datagram(&bytes(&packet, key), LEAF, PORT, PORT, 0)
    }

    /// The right answer to what it said.
    pub(super) fn right(&self, heard: Heard, epoch: u32, key: Option<&Key>) -> Option<Vec<u8>> {
        let data = [FILL; PAYLOAD as usize];
        let message = match heard {
            Heard::Join => Message::Admit(self.terms()),
            Heard::Sign => Message::Alive,
            Heard::Leave => Message::Left,
            Heard::Chunk(sequence) => {
                let (posted, len) = self.find(sequence)?;
                Message::Result(Chunk {
                    work: posted.work?,
                    slot: Slot::of(sequence, GRANTED),
                    sequence,
                    contributions: 0xf,
                    complete: 0,
                    data: &data[..len as usize],
                })
            }
        };
        let epoch = if matches!(heard, Heard::Join) {
            EPOCH
        } else {
            epoch
        };
        Some(self.frame(epoch, Flags::default(), message, key))
    }

    fn terms(&self) -> Terms {
        Terms {
            slots: GRANTED,
            payload: PAYLOAD,
            lease_millis: LEASES[0],
            generation: self.generation,
        }
    }

    /// A frame with any message: each bit of the second byte has another byte that changes
    /// something.
    pub(super) fn message(
        &self,
        epoch: u32,
        key: Option<&Key>,
        program: &mut Program<'_>,
    ) -> Vec<u8> {
        let (kind, how) = (program.u8(), program.u8());
        let mut change = |bit: u8| if how & bit == 0 { 0 } else { program.u8() };
        let [who, when, marks, which, shape, sums, way, way_in] =
            [1, 2, 4, 8, 16, 32, 64, 128].map(&mut change);
        let flag = |bit: u8, flag: Flags| flag.when(marks & bit != 0);
        let flags = flag(1, Flags::RETRANSMISSION)
            .with(flag(2, Flags::PARTIAL))
            .with(flag(4, Flags::CE))
            .with(flag(8, Flags::ROOT));
        let verdict = Verdict {
            reason: Reason::ALL[(1 + usize::from(which)) % Reason::ALL.len()],
            level: sums,
            world: (shape & 1 == 0).then_some(shape.into()),
            generation: self.generation.wrapping_sub(u32::from(shape >> 1)),
        };
        let data = [FILL; 2 * PAYLOAD as usize];
        let message = match kind % 16 {
            0..=6 => Message::Result(self.chunk(which, shape, sums, flags, &data)),
            7 => Message::Error(verdict),
            8 | 9 => Message::Admit(Terms {
                slots: GRANTED ^ u16::from(which),
                payload: PAYLOAD ^ u16::from(shape),
                lease_millis: LEASES[usize::from(sums) % LEASES.len()],
                generation: self.generation ^ u32::from(marks),
            }),
            10 => Message::Refuse(verdict),
            11 => Message::Alive,
            12 => Message::Left,
            13 => Message::Contribution(self.chunk(which, shape, sums, flags, &data)),
            14 => Message::KeepAlive,
            _ if which & 1 == 0 => Message::Leave(verdict),
            _ => Message::Join(Join::new(self.generation, self.rank, 4)),
        };
        let epoch = if matches!(message, Message::Admit(_)) && epoch == 0 {
            EPOCH
        } else {
            epoch
        };
        let packet = Packet {
            flags,
            job: JOB ^ u32::from(who >> 2),
            epoch: epoch.wrapping_add_signed(i32::from(when.cast_signed())),
            rank: self.rank ^ u16::from(who & 3),
            message,
        };
        let key = key.filter(|_| way & 1 == 0);
        astray(&bytes(&packet, key), way, way_in)
    }

    /// A chunk that counts from the oldest one that was heard and not answered.
    fn chunk<'a>(&self, which: u8, shape: u8, sums: u8, flags: Flags, data: &'a [u8]) -> Chunk<'a> {
        let oldest = self.heard.iter().find_map(|it| match it {
            Heard::Chunk(sequence) => Some(*sequence),
            _ => None,
        });
        let oldest = oldest.unwrap_or(self.first);
        let sequence = oldest.wrapping_add_signed(i64::from(which.cast_signed()));
        let found = self.find(sequence);
        let len = found.map_or(0, |it| it.1 as usize);
        let len = match shape & 3 {
            _ if flags.contain(Flags::PARTIAL) => 0,
            0 => len,
            1 => 0,
            2 => len + usize::from(shape >> 3),
            _ => len.saturating_sub(usize::from(shape >> 3)),
        };
        let work = found.and_then(|it| it.0.work).unwrap_or(Work::Barrier);
        let other = Work::Allreduce(Operation::Sum, Element::I32);
        Chunk {
            work: if shape & 4 == 0 { work } else { other },
            slot: Slot::of(sequence.wrapping_add(u64::from(sums & 1)), GRANTED),
            sequence,
            contributions: 0xf ^ u64::from(sums >> 1 & 0xf),
            complete: u16::from(sums >> 5),
            data: &data[..len.min(data.len())],
        }
    }
}

/// The bytes of a message.
fn bytes(packet: &Packet<'_>, key: Option<&Key>) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    let seal = key.map(|key| key.between(LEAF, OWN));
    packet.write(seal, &mut bytes).expect("it fits");
    bytes
}

/// A message on its way, by which something may happen to it.
fn astray(message: &[u8], way: u8, more: u8) -> Vec<u8> {
    let from = if way & 2 == 0 { LEAF } else { OWN };
    let wrong = |bit: u8| PORT ^ u16::from(way & bit != 0);
    let mut frame = datagram(message, from, wrong(4), wrong(8), way >> 4 & 3);
    match way >> 6 {
        1 => {
            let at = usize::from(more) % frame.len();
            frame[at] ^= 1 << (more % 8);
        }
        2 => frame.truncate(usize::from(more)),
        _ => (),
    }
    frame
}

/// A frame with these bytes as a datagram to the member, with the checksum of UDP if it needs one.
pub(super) fn datagram(message: &[u8], from: IpAddr, source: u16, port: u16, ecn: u8) -> Vec<u8> {
    let flow = Flow {
        src_mac: Mac([2; 6]),
        dst_mac: Mac([4; 6]),
        addresses: Addresses::new(from, OWN).expect("one version"),
        src_port: source,
        flow_label: 0,
        traffic_class: ecn & 3,
        ttl: 64,
    };
    let mut frame = vec![0; AT];
    frame.extend_from_slice(message);
    let len = u16::try_from(udp::HEADER_LEN + message.len()).expect("an input is short");
    emit_datagram(&mut frame, &flow, port, len);
    guard(&mut frame[AT - udp::HEADER_LEN..], from, OWN);
    frame
}

/// Reads what a member sends: a whole message to its leaf, which members may say, with its tag.
pub(super) fn read<'a>(frame: &'a [u8], key: Option<&Key>) -> Packet<'a> {
    let message = &frame[AT..];
    let packet = Packet::read(message).expect("members say nothing wrong");
    assert!(packet.message.is_up(), "{packet:?}");
    let is_made = |key: &Key| key.between(OWN, LEAF).made(message);
    assert!(key.is_none_or(is_made), "no tag");
    assert!(message.len() <= HEADER_LEN + usize::from(PAYLOAD).max(Join::LEN));
    let mut again = datagram(message, OWN, PORT, PORT, 2);
    guard(&mut again[AT - udp::HEADER_LEN..], OWN, LEAF);
    let udp = AT - udp::HEADER_LEN..;
    assert_eq!(frame[udp.clone()], again[udp], "the checksum of UDP");
    packet
}
