//! The collectives of a membership, in their order, and the numbers of their chunks.

use crate::memory::MemoryRange;
use crate::verbs::CollectiveRequest;
use common::wire::compute::Work;
use std::collections::VecDeque;

/// A collective that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) request: CollectiveRequest,
    /// The own vector; nothing if this member has none.
    pub(super) input: Option<MemoryRange>,
    /// Where the result goes; nothing if this member gets none.
    pub(super) output: Option<MemoryRange>,
    /// Its first chunk in the epoch, and how many it has; unknown before the epoch.
    first: u64,
    chunks: u64,
    /// Bytes of a chunk but the last.
    step: u32,
    /// Bytes whose results are in place.
    pub(super) done: u32,
}

/// A chunk of a collective: where its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) work: Work,
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) root: bool,
    pub(super) shared: bool,
    /// Its collective has none behind it.
    pub(super) last: bool,
}

impl Collective {
    /// Bytes that the contribution to a chunk has, and its result here.
    pub(super) fn lengths(&self, piece: &Piece) -> (u32, u32) {
        match piece.work {
            Work::Barrier => (0, 0),
            Work::Broadcast => (if piece.root { piece.len } else { 0 }, piece.len),
            Work::Allreduce(..) | Work::Reduce(..) => (piece.len, piece.len),
        }
    }
}

/// Collectives that are not complete, the oldest first. It has room for all that may be posted.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<Collective>,
    most: usize,
    /// Chunks of all collectives of the epoch so far.
    end: u64,
    /// Most bytes of a chunk; zero before the epoch.
    payload: u32,
}

impl Queue {
    pub(super) fn new(most: u32) -> Self {
        let most = most as usize;
        Self {
            waiting: VecDeque::with_capacity(most),
            most,
            end: 0,
            payload: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.most
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The epoch begins: chunks have at most so many bytes.
    pub(super) fn begin(&mut self, payload: u32) {
        self.payload = payload;
        let mut end = 0;
        for collective in &mut self.waiting {
            number(collective, payload, &mut end);
        }
        self.end = end;
    }

    /// Appends one.
    pub(super) fn push(
        &mut self,
        request: CollectiveRequest,
        input: Option<MemoryRange>,
        output: Option<MemoryRange>,
    ) {
        let mut collective = Collective {
            request,
            input,
            output,
            first: 0,
            chunks: 0,
            step: 0,
            done: 0,
        };
        if self.payload > 0 {
            number(&mut collective, self.payload, &mut self.end);
        }
        self.waiting.push_back(collective);
    }

    /// The oldest, if it is complete now that all chunks before `prefix` are; it is taken out.
    pub(super) fn take_complete(&mut self, prefix: u64) -> Option<Collective> {
        let front = self.waiting.front()?;
        let complete = self.payload > 0 && front.first + front.chunks <= prefix;
        if complete {
            return self.waiting.pop_front();
        }
        None
    }

    /// Takes the oldest out, whatever it lacks.
    pub(super) fn take(&mut self) -> Option<Collective> {
        self.waiting.pop_front()
    }

    /// Whether there is a chunk of this number by now.
    pub(super) const fn has(&self, sequence: u64) -> bool {
        sequence < self.end
    }

    /// The collective of a chunk, and which of its bytes the chunk is.
    pub(super) fn find(&mut self, sequence: u64) -> Option<(&mut Collective, Piece)> {
        let ends = |it: &Collective| it.first + it.chunks <= sequence;
        let place = self.waiting.partition_point(ends);
        let collective = self.waiting.get_mut(place)?;
        let number = sequence.checked_sub(collective.first)?;
        let request = &collective.request;
        let offset = u32::try_from(number.checked_mul(collective.step.into())?).ok()?;
        let piece = Piece {
            work: request.work?,
            offset,
            len: collective.step.min(request.len.saturating_sub(offset)),
            root: request.root,
            shared: request.shared,
            last: number + 1 == collective.chunks,
        };
        Some((collective, piece))
    }
}

/// Gives a collective its chunks: whole elements, as many as fit.
fn number(collective: &mut Collective, payload: u32, end: &mut u64) {
    let whole = |len: usize| {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        payload / len * len
    };
    let len = collective.request.len;
    (collective.step, collective.chunks) = match collective.request.work {
        None => (0, 0),
        Some(Work::Barrier) => (0, 1),
        Some(Work::Broadcast) => (payload, len.div_ceil(payload).into()),
        Some(Work::Allreduce(_, element) | Work::Reduce(_, element)) => {
            let step = whole(element.len());
            (step, len.div_ceil(step.max(1)).into())
        }
    };
    collective.first = *end;
    *end += collective.chunks;
}
