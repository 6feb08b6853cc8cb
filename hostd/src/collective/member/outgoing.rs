//! Messages to the switch.

use super::{Member, Phase, REPEAT, UNHEARD};
use crate::memory::{RegionMemory, RegionTable};
use common::time::Time;
use common::wire::compute::{Chunk, Flags, HEADER_LEN, Join, Message, Packet, Slot};
use std::net::IpAddr;

/// The way of a message to the switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The addresses of its packet.
    pub(crate) source: IpAddr,
    pub(crate) leaf: IpAddr,
    /// Bytes that it may have at most.
    pub(crate) most: usize,
}

/// What leaves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Join,
    Leave,
    Alive,
    /// A chunk that was late.
    Again(u64),
    Chunk(u64),
}

impl Member {
    fn next(&mut self, now: Time) -> Option<Next> {
        let sign = now >= self.next_sign;
        match self.phase {
            Phase::Joining => sign.then_some(Next::Join),
            Phase::Leaving => sign.then_some(Next::Leave),
            Phase::Over => None,
            Phase::Running => {
                if let Some(late) = self.flight.late() {
                    return Some(Next::Again(late));
                }
                let next = self.flight.next();
                let room = self.flight.under_way() < self.window.size() && self.flight.has_slot();
                if room && self.queue.has(next) {
                    return Some(Next::Chunk(next));
                }
                sign.then_some(Next::Alive)
            }
        }
    }

    /// Whether something is to be sent now.
    pub(crate) fn wants_to_send(&mut self, now: Time) -> bool {
        self.next(now).is_some()
    }

    /// Writes the next message, which goes this way, at the front of `out`, and returns its length;
    /// `None` if nothing is to be sent now.
    pub(crate) fn transmit<M: RegionMemory>(
        &mut self,
        way: Way,
        out: &mut [u8],
        regions: &RegionTable<M>,
        now: Time,
    ) -> Option<usize> {
        loop {
            let next = self.next(now)?;
            if next == Next::Join {
                self.fit(way.most);
            }
            let written = match next {
                Next::Join => self.write(way, Flags::default(), Message::Join(self.join), out),
                Next::Leave => {
                    self.write(way, Flags::default(), Message::Leave(self.farewell), out)
                }
                Next::Alive => self.write(way, Flags::default(), Message::KeepAlive, out),
                Next::Again(sequence) | Next::Chunk(sequence) => {
                    let again = matches!(next, Next::Again(_));
                    self.contribute(way, (sequence, again), out, regions)
                }
            };
            let Some(len) = written else {
                if matches!(self.phase, Phase::Leaving | Phase::Over) {
                    // There is no room even for that; the lease ends it.
                    self.next_sign = now + REPEAT;
                    return None;
                }
                // The memory is gone, so the next message is another one.
                self.break_off(now);
                continue;
            };
            self.sent(next, now);
            return Some(len);
        }
    }

    /// Asks for vectors that fit into packets of the way to the switch.
    fn fit(&mut self, most: usize) {
        let room = most.saturating_sub(HEADER_LEN) / 8 * 8;
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        let payload = self.join.payload.min(room);
        self.join = Join {
            payload,
            ..self.join
        };
    }

    fn write(&self, way: Way, flags: Flags, message: Message<'_>, out: &mut [u8]) -> Option<usize> {
        let packet = Packet {
            flags,
            job: self.job,
            epoch: self.epoch,
            rank: self.rank,
            message,
        };
        let key = self.key.as_ref();
        let seal = key.map(|key| key.between(way.source, way.leaf));
        packet.write(seal, out).ok()
    }

    /// Writes a contribution; `None` if its memory is gone.
    fn contribute<M: RegionMemory>(
        &mut self,
        way: Way,
        (sequence, again): (u64, bool),
        out: &mut [u8],
        regions: &RegionTable<M>,
    ) -> Option<usize> {
        let (collective, piece) = self.queue.find(sequence)?;
        let (len, _) = collective.lengths(&piece);
        let data = self.scratch.get_mut(..len as usize)?;
        if let Some(range) = collective.input {
            regions.copy_out(range, piece.offset, data).ok()?;
        }
        let flags = Flags::RETRANSMISSION.when(again);
        let chunk = Chunk {
            work: piece.work,
            slot: Slot::of(sequence, self.granted),
            sequence,
            contributions: 1 << self.rank,
            complete: 0,
            data: &self.scratch[..len as usize],
        };
        let flags = flags
            .with(Flags::ROOT.when(piece.root))
            .with(Flags::LAST.when(piece.last))
            .with(Flags::SHARED.when(piece.shared));
        self.write(way, flags, Message::Contribution(chunk), out)
    }

    /// Takes note of a message that leaves.
    fn sent(&mut self, next: Next, now: Time) {
        match next {
            Next::Join | Next::Leave => {
                self.next_sign = now + REPEAT;
                return;
            }
            Next::Alive => self.counters.keep_alives += 1,
            Next::Again(_) => {
                self.counters.retransmissions += 1;
                self.flight.depart_again(now);
            }
            Next::Chunk(_) => {
                self.counters.contributions += 1;
                self.flight.depart(now);
            }
        }
        self.next_sign = now + self.lease.divided_by(UNHEARD);
        self.unanswered.get_or_insert(now);
    }
}
