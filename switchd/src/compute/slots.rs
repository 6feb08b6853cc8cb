//! The slots of a job: each has two versions, which take turns.
//!
//! ```text
//!                    contribution to q + 2S, and q + S is complete
//!        ┌───────────────────────────────────────────────────────────┐
//!        ▼                                                           │
//!      Empty ──first──▶ Filling ──last, no parent──────────────▶ Complete
//!                          │ last                                    ▲
//!                          ▼              result of the parent       │
//!                       Pending ─────────────────────────────────────┘
//! ```
//!
//! A member that sends q has the result of q − S, with S slots. So once q + S is complete, all have
//! the result of q, and its place may be used anew.

use common::reduce::{reduce, reduce_in_order};
use common::time::Time;
use common::unheard::Unheard;
use common::wire::compute::{Chunk, Flags, Slot, Work};

/// Where a version of a slot is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has contributed.
    Empty,
    /// Some have.
    Filling,
    /// All have, and the parent is asked.
    Pending,
    /// The result is here.
    Complete,
}

/// A version of a slot.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    pub(super) state: State,
    pub(super) work: Work,
    /// What contributions say of the collective, beside its work.
    pub(super) call: Flags,
    /// Bytes of its vector.
    len: u16,
    /// Who has contributed.
    pub(super) contributed: u64,
    /// Who of them said that the root is there.
    pub(super) roots: u64,
    pub(super) is_ce: bool,
    /// When it was sent up last, and how often.
    pub(super) sent: Time,
    pub(super) tries: u8,
    /// Of which the parent says nothing.
    pub(super) unheard: Unheard,
}

impl Entry {
    /// It is sent up.
    pub(super) fn go_up(&mut self, now: Time) {
        match self.tries {
            0 => self.unheard = Unheard::since(now),
            _ => self.unheard.again(),
        }
        self.sent = now;
        self.tries = self.tries.saturating_add(1);
    }
}

/// What came of a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in; others are missing.
    Added(usize),
    /// It is in, and was the last.
    Last(usize),
    /// It was in before; others are missing.
    Again(usize),
    /// The result is there since.
    Stored(usize),
    /// It is of a chunk whose result its sender has.
    Old,
    /// It is of a chunk whose turn has not come, or names another slot or rank than it has.
    OutOfTurn,
    /// It does not go with those of others, or with the terms of the job.
    Mismatch,
    /// It was the last, and none of them is the root's.
    NoRoot,
}

/// What a contribution says of its collective, beside the work: the same at all members.
fn call_of(flags: Flags) -> Flags {
    let [last, shared] = [Flags::LAST, Flags::SHARED].map(|it| it.when(flags.contain(it)));
    last.with(shared)
}

/// What a job allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) operations: u8,
    pub(super) elements: u8,
    /// The root may be elsewhere: there are parents.
    pub(super) has_parents: bool,
}

impl Allowed {
    fn work(self, work: Work) -> bool {
        match work {
            Work::Allreduce(operation, element) | Work::Reduce(operation, element) => {
                self.operations & operation.bit() != 0 && self.elements & element.bit() != 0
            }
            Work::Broadcast | Work::Barrier => true,
        }
    }
}

/// All slots of a job.
#[derive(Debug)]
pub(super) struct Slots {
    /// How many.
    pub(super) count: u16,
    /// Most bytes of a vector.
    payload: usize,
    /// Members.
    size: usize,
    allowed: Allowed,
    entries: Vec<Entry>,
    vectors: Vec<u8>,
    /// The vectors of all members, for jobs whose sums are added in order; else empty.
    kept: Vec<u8>,
    /// Versions that are filling or pending.
    pub(super) open: usize,
    /// Those that are pending.
    pub(super) pending: usize,
    /// All chunks before this one are complete.
    oldest: u64,
    /// By rank: the chunk behind the last one that it contributed to. Members send chunks in their
    /// order, so what a rank lacks before this one was lost on its way.
    ahead: Vec<u64>,
    /// None of them is late before.
    pub(super) late: Time,
    /// The place at which the next search for late ones begins.
    pub(super) search: usize,
}

impl Slots {
    /// Bytes that a job takes for so many slots.
    pub(super) fn memory(count: usize, payload: usize, size: usize, is_kept: bool) -> usize {
        let vectors = if is_kept { 1 + size } else { 1 };
        2 * count * (payload * vectors + size_of::<Entry>())
    }

    pub(super) fn new(
        count: u16,
        payload: u16,
        size: u16,
        is_kept: bool,
        allowed: Allowed,
    ) -> Self {
        let (payload, size) = (usize::from(payload), usize::from(size));
        let places = 2 * usize::from(count);
        let entry = |sequence| Entry {
            sequence,
            state: State::Empty,
            work: Work::Barrier,
            call: Flags::default(),
            len: 0,
            contributed: 0,
            roots: 0,
            is_ce: false,
            sent: Time::ZERO,
            tries: 0,
            unheard: Unheard::default(),
        };
        Self {
            count,
            payload,
            size,
            allowed,
            entries: (0..places as u64).map(entry).collect(),
            vectors: vec![0; places * payload],
            kept: vec![0; if is_kept { places * payload * size } else { 0 }],
            open: 0,
            pending: 0,
            oldest: 0,
            ahead: vec![0; size],
            late: Time::NEVER,
            search: 0,
        }
    }

    fn place(&self, slot: Slot) -> usize {
        usize::from(slot.version) * usize::from(self.count) + usize::from(slot.number)
    }

    pub(super) fn entry(&self, place: usize) -> &Entry {
        &self.entries[place]
    }

    pub(super) fn entry_mut(&mut self, place: usize) -> &mut Entry {
        &mut self.entries[place]
    }

    /// The vector of a place.
    pub(super) fn vector(&self, place: usize) -> &[u8] {
        let begin = place * self.payload;
        &self.vectors[begin..begin + usize::from(self.entries[place].len)]
    }

    /// Whether a chunk that others have begun waits for a member.
    pub(super) fn waits_for(&self, rank: u16) -> bool {
        let mut filling = self.entries.iter().filter(|it| it.state == State::Filling);
        filling.any(|it| it.contributed & 1 << rank == 0)
    }

    /// All members.
    pub(super) fn everybody(&self) -> u64 {
        u64::MAX >> (64 - self.size)
    }

    /// Takes the contribution of a member. Nothing of it is in unless the answer says so.
    pub(super) fn take(
        &mut self,
        rank: u16,
        flags: Flags,
        is_ce: bool,
        chunk: &Chunk<'_>,
    ) -> Taken {
        let bit = 1 << rank;
        if chunk.slot != Slot::of(chunk.sequence, self.count) || chunk.contributions != bit {
            return Taken::OutOfTurn;
        }
        let place = self.place(chunk.slot);
        let entry = &self.entries[place];
        if chunk.sequence < entry.sequence {
            return Taken::Old;
        }
        if chunk.sequence == entry.sequence && entry.contributed & bit != 0 {
            return if entry.state == State::Complete {
                Taken::Stored(place)
            } else {
                Taken::Again(place)
            };
        }
        let is_new = chunk.sequence != entry.sequence || entry.state == State::Empty;
        if is_new && !self.begins(place, chunk.sequence) {
            return Taken::OutOfTurn;
        }
        let is_root = flags.contain(Flags::ROOT);
        if !self.fits(place, is_new, flags, chunk) {
            return Taken::Mismatch;
        }
        if is_new {
            self.begin(place, flags, chunk);
        }
        self.add(place, rank, chunk);
        let ahead = &mut self.ahead[usize::from(rank)];
        *ahead = (*ahead).max(chunk.sequence + 1);
        let everybody = self.everybody();
        let entry = &mut self.entries[place];
        entry.is_ce |= is_ce;
        entry.contributed |= bit;
        if is_root {
            entry.roots |= bit;
        }
        if entry.contributed != everybody {
            return Taken::Added(place);
        }
        let wants_root = matches!(entry.work, Work::Reduce(..) | Work::Broadcast)
            || entry.call.contain(Flags::SHARED);
        if wants_root && entry.roots == 0 && !self.allowed.has_parents {
            return Taken::NoRoot;
        }
        self.put_in_order(place);
        Taken::Last(place)
    }

    /// Whether a place may begin with this chunk: what it had is complete, and so is the chunk
    /// before in the other version, which all who send this one have.
    fn begins(&self, place: usize, sequence: u64) -> bool {
        let count = u64::from(self.count);
        let entry = &self.entries[place];
        let is_next = match entry.state {
            State::Empty => sequence == entry.sequence,
            State::Complete => Some(sequence) == entry.sequence.checked_add(2 * count),
            State::Filling | State::Pending => false,
        };
        let Some(before) = sequence.checked_sub(count) else {
            return is_next;
        };
        let other = &self.entries[self.place(Slot::of(before, self.count))];
        is_next && other.sequence == before && other.state == State::Complete
    }

    /// Whether a chunk goes with the job and with what others contributed.
    fn fits(&self, place: usize, is_new: bool, flags: Flags, chunk: &Chunk<'_>) -> bool {
        if !self.allowed.work(chunk.work) || chunk.data.len() > self.payload {
            return false;
        }
        if is_new {
            return true;
        }
        let entry = &self.entries[place];
        let is_second_root = flags.contain(Flags::ROOT) && entry.roots != 0;
        let is_call = entry.work == chunk.work && entry.call == call_of(flags);
        let is_same = is_call && !is_second_root;
        let is_vector = matches!(chunk.work, Work::Allreduce(..) | Work::Reduce(..));
        is_same && (!is_vector || chunk.data.len() == usize::from(entry.len))
    }

    fn begin(&mut self, place: usize, flags: Flags, chunk: &Chunk<'_>) {
        self.open += 1;
        let entry = &mut self.entries[place];
        *entry = Entry {
            sequence: chunk.sequence,
            state: State::Filling,
            work: chunk.work,
            call: call_of(flags),
            len: 0,
            contributed: 0,
            roots: 0,
            is_ce: false,
            sent: Time::ZERO,
            tries: 0,
            unheard: Unheard::default(),
        };
    }

    /// Whether the vectors of a place are kept until all are there.
    fn is_kept(&self, work: Work) -> bool {
        !self.kept.is_empty()
            && match work {
                Work::Allreduce(operation, element) | Work::Reduce(operation, element) => {
                    operation.is_ordered(element)
                }
                Work::Broadcast | Work::Barrier => false,
            }
    }

    fn add(&mut self, place: usize, rank: u16, chunk: &Chunk<'_>) {
        let data = chunk.data;
        let is_first = self.entries[place].contributed == 0;
        // A datagram is shorter than 65536 bytes.
        let len = u16::try_from(data.len()).unwrap_or(u16::MAX);
        if self.is_kept(chunk.work) {
            let begin = (place * self.size + usize::from(rank)) * self.payload;
            self.kept[begin..begin + data.len()].copy_from_slice(data);
            self.entries[place].len = len;
            return;
        }
        let begin = place * self.payload;
        let vector = &mut self.vectors[begin..begin + data.len()];
        match chunk.work {
            Work::Barrier => {}
            Work::Broadcast if data.is_empty() => {}
            Work::Allreduce(operation, element) | Work::Reduce(operation, element) if !is_first => {
                let done = reduce(operation, element, vector, data);
                debug_assert_eq!(done, Ok(()), "the parser and `fits` have seen to it");
            }
            _ => {
                vector.copy_from_slice(data);
                self.entries[place].len = len;
            }
        }
    }

    /// Adds the vectors that were kept, in the order of the ranks.
    fn put_in_order(&mut self, place: usize) {
        let (work, len) = (
            self.entries[place].work,
            usize::from(self.entries[place].len),
        );
        let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = work else {
            return;
        };
        if !self.is_kept(work) {
            return;
        }
        let begin = place * self.payload;
        let all = place * self.size * self.payload..(place + 1) * self.size * self.payload;
        let vectors = self.kept[all].chunks(self.payload).map(|it| &it[..len]);
        let into = &mut self.vectors[begin..begin + len];
        let done = reduce_in_order(operation, element, into, vectors);
        debug_assert_eq!(done, Ok(()), "they are equally long");
    }

    /// All have contributed: the parent is asked.
    pub(super) fn wait(&mut self, place: usize) {
        self.entries[place].state = State::Pending;
        self.pending += 1;
    }

    /// The result is here: nothing more comes to this place.
    pub(super) fn complete(&mut self, place: usize) {
        let before = std::mem::replace(&mut self.entries[place].state, State::Complete);
        self.pending -= usize::from(before == State::Pending);
        self.open -= 1;
        while self.in_state(self.oldest, State::Complete).is_some() {
            self.oldest += 1;
        }
    }

    /// The place of a chunk, if it is there and in this state.
    pub(super) fn in_state(&self, sequence: u64, state: State) -> Option<usize> {
        let place = self.place(Slot::of(sequence, self.count));
        let entry = self.entries.get(place)?;
        (entry.sequence == sequence && entry.state == state).then_some(place)
    }

    /// What the result of a place says of chunks before it.
    pub(super) fn complete_at(&self, place: usize) -> u16 {
        Chunk::complete_at(self.entries[place].sequence, self.oldest, self.count)
    }

    /// The chunk behind the last one that a rank contributed to.
    pub(super) fn ahead(&self, rank: u16) -> u64 {
        self.ahead.get(usize::from(rank)).copied().unwrap_or(0)
    }

    /// The place of a chunk to which others have contributed and this rank has not.
    pub(super) fn lacks(&self, sequence: u64, rank: u16) -> Option<usize> {
        let place = self.in_state(sequence, State::Filling)?;
        (self.entries[place].contributed & 1 << rank == 0).then_some(place)
    }

    /// The ranks that are ahead of a chunk to which they have not contributed, a bit each.
    pub(super) fn skipped_by(&self, place: usize) -> u64 {
        let entry = &self.entries[place];
        let ahead = (0_u32..).zip(&self.ahead);
        let ahead = ahead.filter(|(_, ahead)| **ahead > entry.sequence);
        let bits = ahead.fold(0, |bits, (rank, _)| bits | 1 << rank);
        bits & !entry.contributed
    }

    /// Takes the result of a parent, of the chunk that stands here as `sequence`. Returns its
    /// place, or nothing if nobody waits for it or it cannot be.
    pub(super) fn take_result(
        &mut self,
        sequence: u64,
        is_ce: bool,
        chunk: &Chunk<'_>,
    ) -> Option<usize> {
        let place = self.place(Slot::of(sequence, self.count));
        let entry = &self.entries[place];
        let is_awaited = entry.sequence == sequence && entry.state == State::Pending;
        let len = chunk.data.len();
        let fits = match entry.work {
            Work::Allreduce(..) => len == usize::from(entry.len),
            Work::Reduce(..) if entry.roots != 0 => len == usize::from(entry.len),
            Work::Reduce(..) | Work::Barrier => len == 0,
            Work::Broadcast => len <= self.payload,
        };
        if !is_awaited || entry.work != chunk.work || !fits {
            return None;
        }
        let begin = place * self.payload;
        self.vectors[begin..begin + len].copy_from_slice(chunk.data);
        let entry = &mut self.entries[place];
        entry.len = u16::try_from(len).unwrap_or(u16::MAX);
        entry.is_ce |= is_ce;
        self.complete(place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-42: a chunk has its turn once the one before it in its slot is complete: until then its
    /// place may still be asked for.
    #[test]
    fn chunks_have_their_turn_when_the_one_before_is_complete() {
        let allowed = Allowed {
            operations: 0,
            elements: 0,
            has_parents: false,
        };
        let mut slots = Slots::new(2, 0, 2, false, allowed);
        let mut take = |rank: u16, sequence| {
            let chunk = Chunk {
                work: Work::Barrier,
                slot: Slot::of(sequence, 2),
                sequence,
                contributions: 1 << rank,
                complete: 0,
                data: &[],
            };
            let taken = slots.take(rank, Flags::default(), false, &chunk);
            if let Taken::Last(place) = taken {
                slots.complete(place);
            }
            taken
        };
        assert_eq!(take(0, 2), Taken::OutOfTurn);
        assert_eq!(take(0, 0), Taken::Added(0));
        assert_eq!(take(0, 0), Taken::Again(0));
        assert_eq!(take(0, 2), Taken::OutOfTurn);
        assert_eq!(take(1, 0), Taken::Last(0));
        assert_eq!(take(0, 0), Taken::Stored(0));
        assert_eq!(take(0, 4), Taken::OutOfTurn);
        assert_eq!(take(0, 2), Taken::Added(2));
        assert_eq!(take(0, 4), Taken::OutOfTurn);
        assert_eq!(
            take(1, 0),
            Taken::Stored(0),
            "it is kept until chunk 4 begins"
        );
        assert_eq!(take(1, 2), Taken::Last(2));
        assert_eq!(take(1, 4), Taken::Added(0));
        assert_eq!(take(1, 0), Taken::Old);
        assert_eq!(take(0, 6), Taken::OutOfTurn);
    }
}
