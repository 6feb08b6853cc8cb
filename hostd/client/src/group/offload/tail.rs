//! Results that are kept, and given to those that lack them.

use super::super::agree::Agreement;
use super::super::call::Call;
use super::super::link::Link;
use super::super::message::Header;
use super::super::progress::Progress;
use super::super::schedule::{Part, Step};
use super::super::seat::TAIL;
use crate::{Error, Region, Slice};

/// Where a vector is: its region, the first byte there, and how many there are.
pub(in super::super) type Bytes<'a> = (&'a Region, usize, usize);

/// The last bytes of the result of the last collective that this member completed through the
/// switch. Its vector is the caller's again by then, and others may still lack so many.
#[derive(Debug, Default)]
pub(in super::super) struct Tail {
    sequence: u64,
    /// The first byte that is kept.
    from: usize,
    bytes: Vec<u8>,
}

impl Tail {
    /// Keeps those of a result.
    pub(super) fn keep(&mut self, sequence: u64, vector: Option<Bytes<'_>>) -> Result<(), Error> {
        self.sequence = sequence;
        self.bytes.clear();
        self.from = 0;
        if let Some((region, offset, len)) = vector {
            self.from = len.saturating_sub(TAIL);
            self.bytes.resize(len - self.from, 0);
            region.read(offset + self.from, &mut self.bytes)?;
        }
        Ok(())
    }

    /// What is kept of collective `sequence` from byte `from` up to byte `to`.
    fn part(&self, sequence: u64, from: usize, to: usize) -> Option<&[u8]> {
        let inside = self.sequence == sequence && from >= self.from;
        let (from, to) = (from.checked_sub(self.from)?, to.checked_sub(self.from)?);
        self.bytes.get(from..to).filter(|_| inside)
    }
}

/// Results on their way to those that lack them.
#[derive(Debug)]
pub(in super::super) struct Service {
    sequence: u64,
    call: Call,
    progress: Progress,
    numbers: Vec<u32>,
    /// The first byte that somebody lacks, and all from there on.
    from: usize,
    bytes: Vec<u8>,
}

impl Service {
    /// What rank `own` gives by this agreement: out of the vector that it is still in, or of what
    /// it kept. `None` if it gives nothing; `Err` with the rank that asks for what nobody may lack.
    pub(super) fn new(
        agreement: &Agreement,
        own: usize,
        segment: usize,
        (tail, vector): (&Tail, Option<Bytes<'_>>),
    ) -> Result<Option<Self>, Wanting> {
        if agreement.holder != Some(own) {
            return Ok(None);
        }
        let place = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let to = place(agreement.agreed);
        let Some((first, least)) = agreement.lacking().min_by_key(|(_, done)| *done) else {
            return Ok(None);
        };
        let from = place(least);
        let bytes = if let Some((region, offset, _)) = vector {
            let mut bytes = vec![0; to.saturating_sub(from)];
            let read = region.read(offset + from, &mut bytes);
            read.map_err(Wanting::Own)?;
            bytes
        } else {
            let kept = tail.part(agreement.sequence, from, to);
            kept.ok_or(Wanting::Beyond(first))?.to_vec()
        };
        let step = |(rank, done): (usize, u64)| {
            let start = place(done);
            let len = to - start;
            Step::send(rank, Part { start, len })
        };
        let steps: Vec<_> = agreement.lacking().map(step).collect();
        let progress = Progress::new(steps, segment, false);
        Ok(Some(Self {
            sequence: agreement.sequence,
            call: Call::mending(own, agreement.agreed),
            numbers: vec![0; progress.peers()],
            progress,
            from,
            bytes,
        }))
    }

    /// Who gets some.
    pub(super) fn peers(&self) -> Vec<usize> {
        let all = 0..self.progress.peers();
        all.map(|peer| self.progress.rank(peer)).collect()
    }

    /// Whether all has gone.
    pub(super) fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    /// Gives what may go to the member `rank` now.
    pub(super) fn give(&mut self, rank: usize, link: &mut Link) -> Result<bool, Error> {
        let mut all = 0..self.progress.peers();
        let Some(peer) = all.find(|peer| self.progress.rank(*peer) == rank) else {
            return Ok(false);
        };
        let mut moved = false;
        while link.takes_segment()
            && let Some(transfer) = self.progress.next_send(peer)
        {
            let header = Header {
                sequence: self.sequence,
                call: self.call,
                number: self.numbers[peer],
            };
            let start = transfer.part.start - self.from;
            let bytes = &self.bytes[start..start + transfer.part.len];
            link.send_segment(header, Slice::EMPTY, Some(bytes))?;
            self.progress.sent(peer);
            self.numbers[peer] += 1;
            moved = true;
        }
        Ok(moved)
    }
}

/// Why results cannot be given.
#[derive(Debug)]
pub(super) enum Wanting {
    /// This rank lacks what nobody can lack.
    Beyond(usize),
    /// The memory of this member cannot be read.
    Own(Error),
}
