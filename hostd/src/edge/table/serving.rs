//! Rings: requests out of those of work, completions into those of completion queues.
//!
//! A turn of the worker takes so much out of rings and no more, and shares that among the sessions
//! that have something in theirs (deficit round robin, without the deficits: requests cost about
//! the same). A request, and a look into a ring that has none, is a unit of work. What the engine
//! has no room for waits until it has, and costs nothing meanwhile.

use super::{Application, Slot, Table, break_off};
use crate::edge::collective::CollectiveRing;
use crate::edge::command::{Notice, SessionId};
use crate::edge::queue_pair::{Remains, TURN, WorkRings};
use crate::edge::shared_queue::SharedRing;
use crate::edge::statistics::EdgeStatistics;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{CompletionQueueId, SharedQueueId};
use common::time::Time;
use hostd_client::abi::doorbell::WORDS;
use std::collections::HashMap;

/// Units of work in a turn. A session without competitors gets them all.
const UNITS: u32 = 512;

/// What a session gets at least when its turn comes.
const SHARE: u32 = 8;

/// Rings of all sessions that wait for something else than room, and are looked at in a turn.
const LOOKS: u32 = 16;

/// Full completion rings that are looked at in a turn; all are after a bell of who owns one.
const FULL: usize = 8;

/// The rings of all sessions.
struct AllRings<'a> {
    queue_pairs: &'a mut HashMap<u32, (SessionId, WorkRings)>,
    shared: &'a mut HashMap<u32, (SessionId, SharedQueueId, SharedRing)>,
    members: &'a mut HashMap<u32, (SessionId, CollectiveRing)>,
    statistics: &'a mut EdgeStatistics,
    notices: &'a mut Vec<Notice>,
    broken: Option<SharedQueueId>,
}

impl AllRings<'_> {
    /// Takes up to `most` requests of each kind out of the rings behind a bit.
    fn serve<M: RegionMemory>(
        &mut self,
        slot: Option<Slot>,
        most: u32,
        engine: &mut Engine<M>,
    ) -> Remains {
        let statistics = &mut *self.statistics;
        match slot {
            // A bit without a queue means nothing.
            None => Remains::Nothing,
            Some(Slot::QueuePair(number)) => {
                let Some((session, rings)) = self.queue_pairs.get_mut(&number) else {
                    return Remains::Nothing;
                };
                rings.serve(engine, statistics, most).unwrap_or_else(|_| {
                    statistics.broken_queues += 1;
                    let notice = break_off(*session, number, rings, engine);
                    self.notices.push(notice);
                    Remains::Nothing
                })
            }
            Some(Slot::Member(id)) => {
                let Some((_, ring)) = self.members.get_mut(&id.number()) else {
                    return Remains::Nothing;
                };
                ring.serve(engine, statistics, most).unwrap_or_else(|_| {
                    statistics.broken_queues += 1;
                    // The others of the job learn that this member is gone.
                    let _ = engine.destroy_member(id);
                    Remains::Nothing
                })
            }
            Some(Slot::Shared(queue)) => {
                let Some((_, _, ring)) = self.shared.get_mut(&queue.number()) else {
                    return Remains::Nothing;
                };
                ring.serve(engine, statistics, most).unwrap_or_else(|_| {
                    statistics.broken_queues += 1;
                    self.broken = Some(queue);
                    Remains::Nothing
                })
            }
        }
    }
}

/// What a session was given in a turn.
#[derive(Clone, Copy, Debug)]
struct Served {
    units: u32,
    /// Something is left that could be taken at once.
    more: bool,
}

impl Application {
    /// Takes requests out of the rings whose bells rang, that have more, or that there is room for
    /// now: for about `share` units.
    fn serve<M: RegionMemory>(
        &mut self,
        rings: &mut AllRings<'_>,
        (share, looks): (u32, &mut u32),
        engine: &mut Engine<M>,
        now: Time,
    ) -> Served {
        let mut rung = std::mem::take(&mut self.hearing.rang);
        for index in 0..self.words {
            if self.hearing.is_open() {
                let bits = self.doorbells.take(index);
                rung |= bits != 0;
                self.pending[index] |= bits;
            }
        }
        let before = rings.statistics.sends + rings.statistics.receives;
        let mut served = self.serve_pending(rings, share, engine);
        served.units += self.serve_waiting(rings, (share, looks), engine);
        let taken = rings.statistics.sends + rings.statistics.receives - before;
        if rung || taken > 0 || self.heard.is_none() {
            self.heard = Some(now);
        }
        if taken > 0 {
            self.hearing.useful();
        } else if rung && self.hearing.futile(now) {
            rings.statistics.silences += 1;
        }
        served
    }

    fn serve_pending<M: RegionMemory>(
        &mut self,
        rings: &mut AllRings<'_>,
        share: u32,
        engine: &mut Engine<M>,
    ) -> Served {
        let (mut units, mut more) = (0, false);
        // Each pending ring once at most, from where the last turn ended.
        let mut todo = self.pending;
        let mut place = self.place;
        while let Some(slot) = next_from(&todo, place) {
            if units >= share {
                self.place = slot;
                return Served { units, more: true };
            }
            todo[slot / 64] &= !(1 << (slot % 64));
            place = slot;
            let spent = self.serve_slot(rings, slot, share - units, engine);
            units += spent.units;
            more |= spent.more;
        }
        Served { units, more }
    }

    /// Looks again at some of the rings that wait for what nobody announces.
    fn serve_waiting<M: RegionMemory>(
        &mut self,
        rings: &mut AllRings<'_>,
        (share, looks): (u32, &mut u32),
        engine: &mut Engine<M>,
    ) -> u32 {
        let mut units = 0;
        let mut todo = self.waiting;
        while *looks > 0
            && let Some(slot) = next_from(&todo, self.place_waiting)
        {
            *looks -= 1;
            todo[slot / 64] &= !(1 << (slot % 64));
            self.place_waiting = (slot + 1) % (64 * WORDS);
            units += self.serve_slot(rings, slot, share, engine).units;
        }
        units
    }

    /// Serves the rings of a slot, and notes what they wait for.
    fn serve_slot<M: RegionMemory>(
        &mut self,
        rings: &mut AllRings<'_>,
        slot: usize,
        most: u32,
        engine: &mut Engine<M>,
    ) -> Served {
        let before = rings.statistics.sends + rings.statistics.receives;
        let remains = rings.serve(self.slots[slot], most.min(TURN), engine);
        let taken = rings.statistics.sends + rings.statistics.receives - before;
        let (index, bit) = (slot / 64, 1 << (slot % 64));
        for (set, holds) in [
            (&mut self.pending, remains == Remains::More),
            (&mut self.blocked, remains == Remains::Blocked),
            (&mut self.waiting, remains == Remains::Waiting),
        ] {
            set[index] &= !bit;
            set[index] |= if holds { bit } else { 0 };
        }
        let more = remains == Remains::More;
        let units = 1_u32.saturating_add(u32::try_from(taken).unwrap_or(u32::MAX));
        Served { units, more }
    }
}

impl<M: RegionMemory> Table<M> {
    /// Takes requests out of the rings of queues whose doorbell rang, and returns how many sessions
    /// have more.
    pub fn serve(&mut self, engine: &mut Engine<M>, now: Time) -> usize {
        self.relieve(engine);
        self.hear_again(now);
        let mut rings = AllRings {
            queue_pairs: &mut self.queue_pairs,
            shared: &mut self.shared,
            members: &mut self.members,
            statistics: &mut self.statistics,
            notices: &mut self.notices,
            broken: None,
        };
        let share = (UNITS / self.busy.max(1)).max(SHARE);
        let (mut left, mut looks) = (UNITS, LOOKS);
        let (mut more, mut busy) = (0, 0);
        let mut unseen = self.attention.awake();
        while unseen > 0 {
            if left == 0 {
                // The others are the first of the next turn.
                more += 1;
                busy += u32::try_from(unseen).unwrap_or(u32::MAX);
                break;
            }
            unseen -= 1;
            let Some(session) = self.attention.next() else {
                break;
            };
            let Some(application) = self.applications.get_mut(&session) else {
                continue;
            };
            let served = application.serve(&mut rings, (share, &mut looks), engine, now);
            left = left.saturating_sub(served.units);
            busy += u32::from(served.units > 0);
            more += usize::from(served.more);
            let open = application.hearing.is_open();
            if !open && !std::mem::replace(&mut application.deaf, true) {
                let until = application.hearing.deaf_until();
                self.attention.silence(session, until);
            }
            application.awake = application.stays_awake(now);
            if application.awake {
                self.attention.put_back(session);
            }
        }
        self.busy = busy;
        if looks == 0 {
            // Another one is the first to have looks next time.
            let first = self.attention.next();
            first.into_iter().for_each(|it| self.attention.put_back(it));
        }
        if let Some(queue) = rings.broken {
            self.break_sharing(queue, engine);
        }
        more
    }

    /// The worker was woken by the doorbell of `session`.
    pub fn rang(&mut self, session: SessionId) {
        if let Some(application) = self.applications.get_mut(&session) {
            application.hearing.rang = true;
            // It may have made room in a completion ring.
            if application.full > 0 {
                self.looks = self.starved.len();
            }
            self.attend(session);
        }
    }

    /// Has the rings served of which requests were refused, as far as there is room now.
    fn relieve(&mut self, engine: &mut Engine<M>) {
        while let Some(id) = engine.next_relieved_completion_queue() {
            if let Some((session, _)) = self.completions.get(&id) {
                self.relieve_session(*session);
            }
        }
        while let Some(id) = engine.next_relieved_shared_queue() {
            if let Some((session, ..)) = self.shared.get(&id.number()) {
                self.relieve_session(*session);
            }
        }
    }

    fn relieve_session(&mut self, session: SessionId) {
        if let Some(application) = self.applications.get_mut(&session) {
            let refused = std::mem::replace(&mut application.blocked, [0; WORDS]);
            for (pending, bits) in application.pending.iter_mut().zip(refused) {
                *pending |= bits;
            }
            self.attend(session);
        }
    }

    pub(super) fn serve_one(&mut self, qp: u32, engine: &mut Engine<M>) {
        let Some((session, rings)) = self.queue_pairs.get_mut(&qp) else {
            return;
        };
        if rings.serve(engine, &mut self.statistics, TURN).is_err() {
            self.statistics.broken_queues += 1;
            self.notices.push(break_off(*session, qp, rings, engine));
        } else {
            self.mark(qp);
        }
    }

    /// Moves completions from the engine to the rings, as far as there is room, and returns how
    /// many.
    pub fn complete(&mut self, engine: &mut Engine<M>) -> usize {
        let before = self.statistics.completions + self.statistics.lost_completions;
        // Full rings first, some of them: a full one that has something new is not looked at twice.
        for _ in 0..self.starved.len().min(FULL) {
            self.looks = self.looks.saturating_sub(1);
            if let Some(id) = self.starved.pop_front() {
                self.complete_one(id, engine);
            }
        }
        while let Some(id) = engine.next_ready_completion_queue() {
            let ring = self.completions.get(&id);
            if ring.is_some_and(|(_, ring)| !ring.is_full()) {
                self.complete_one(id, engine);
            }
        }
        self.looks = self.looks.min(self.starved.len());
        let after = self.statistics.completions + self.statistics.lost_completions;
        let moved = usize::try_from(after - before).unwrap_or(usize::MAX);
        moved + usize::from(self.looks > 0)
    }

    /// Moves completions of one queue.
    fn complete_one(&mut self, id: CompletionQueueId, engine: &mut Engine<M>) {
        let Some((session, ring)) = self.completions.get_mut(&id) else {
            return;
        };
        let (was_broken, was_full) = (ring.is_broken(), ring.is_full());
        let next = || engine.poll_completion(id);
        let moved = ring.fill(next, &mut self.statistics);
        if ring.is_full() {
            self.starved.push_back(id);
        }
        let (session, is_full) = (*session, ring.is_full());
        let broke = ring.is_broken() && !was_broken;
        if let Some(application) = self.applications.get_mut(&session) {
            application.full = application.full + usize::from(is_full) - usize::from(was_full);
            if was_full && moved > 0 {
                application.hearing.useful();
                self.attend(session);
            }
        }
        if broke {
            self.break_users(session, id, engine);
        }
    }
}

/// The first bit from `place` on that is set, going round; `None` if none is.
fn next_from(bits: &[u64; WORDS], place: usize) -> Option<usize> {
    if *bits == [0; WORDS] {
        return None;
    }
    let (first, from) = (place / 64, !0 << (place % 64));
    (0..=WORDS).find_map(|step| {
        let index = (first + step) % WORDS;
        let mask = match step {
            0 => from,
            WORDS => !from,
            _ => !0,
        };
        let left = bits[index] & mask;
        let bit = usize::try_from(left.trailing_zeros()).expect("at most 64");
        (left != 0).then_some(64 * index + bit)
    })
}
