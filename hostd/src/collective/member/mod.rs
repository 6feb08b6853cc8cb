//! A member of a job: what it says to the switch, and what it makes of the answers.
//!
//! ```text
//!   phase     joining, running, leaving, over
//!   incoming  messages of the switch
//!   outgoing  messages to it, in this order: joining or leaving, what was late, the next chunks,
//!             signs of life
//! ```

mod incoming;
mod outgoing;
mod phase;
#[cfg(test)]
mod tests;

pub(crate) use incoming::Incoming;
pub(crate) use outgoing::Way;
use phase::Input;
pub(crate) use phase::Phase;

use super::flight::{Flight, Patience};
use super::queue::Queue;
use super::window::Window;
use crate::memory::{AccessDenied, RegionMemory, RegionTable};
use crate::stats::{MemberCounters, MemberStatistics};
use crate::verbs::{
    Access, Buffer, CollectiveConfig, CollectiveRequest, Completion, CompletionOpcode,
    CompletionQueueId, End, EndReason, EngineError, MemberRequest, Status,
};
use common::time::{Span, Time};
use common::wire::compute::{Join, Key, Reason, Verdict, Work};
use std::collections::VecDeque;
use std::net::IpAddr;

/// From one JOIN or LEAVE to the next.
const REPEAT: Span = Span::from_millis(100);

/// Silence of the switch after which a member that joins is not heard by it: ten JOINs without an
/// answer, where ALIVE answers each but the first.
const UNANSWERED: Span = Span::from_secs(1);

/// How long a member that never learned its lease tries to leave.
const FAREWELL: Span = Span::from_secs(2);

/// Shortest lease that is believed: a member says something in each quarter of it.
const LEASE_MIN: Span = Span::from_millis(20);

/// Longest lease that is believed, and that switches have: a member whose switch is lost waits for
/// the lease.
const LEASE_MAX: Span = Span::from_secs(60);

/// The part of the lease after which a member says that it lives, once the switch has heard it.
const QUIET: u64 = 4;

/// The same until the switch has: so that no few losses pass for the death of either. Where one of
/// twenty messages is lost each way, a member of a job of 64 would have to lose 13 in a row to be
/// taken for dead, and 16 exchanges to take the switch for it, less than once in 10¹² minutes.
const UNHEARD: u64 = 16;

/// A collective that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) wr_id: u64,
    /// Why it failed; nothing if it did not.
    pub(crate) failed: Option<(Status, End)>,
    /// Bytes of the output that are in place, from its beginning on.
    pub(crate) done: u32,
}

impl Ended {
    /// As the application gets it.
    pub(crate) fn completion(self, member: u32) -> Completion {
        let (status, imm) = match self.failed {
            None => (Status::Success, None),
            Some((status, end)) => (status, Some(end.word())),
        };
        Completion {
            wr_id: self.wr_id,
            status,
            opcode: CompletionOpcode::Collective,
            byte_len: self.done,
            imm,
            invalidated: None,
            qpn: member,
            solicited: true,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) job: u32,
    pub(crate) rank: u16,
    pub(crate) cq: CompletionQueueId,
    pub(crate) max_wr: u32,
    pub(crate) domain: u32,
    /// The own address that it joined from; that of the first route to the switch.
    pub(crate) source: Option<IpAddr>,
    /// It waits for its turn to send.
    pub(crate) listed: bool,
    /// Its application is gone, or has closed it: when it is over nobody asks for it.
    pub(crate) is_forgotten: bool,
    /// Bytes of results that it may keep at most.
    pub(crate) staging: u64,
    join: Join,
    key: Option<Key>,
    rto: [Span; 2],
    join_timeout: Span,
    phase: Phase,
    epoch: u32,
    /// S of the page: slots and versions in messages follow from it.
    granted: u16,
    lease: Span,
    queue: Queue,
    flight: Flight,
    window: Window,
    /// When the present phase began.
    since: Time,
    /// When JOIN, LEAVE or a sign of life is due.
    next_sign: Time,
    /// Since when the switch owes an answer.
    unanswered: Option<Time>,
    /// When the switch last said that the job forms.
    formed: Option<Time>,
    /// Why the epoch ended.
    end: Option<End>,
    farewell: Verdict,
    /// Collectives that have ended and were not collected.
    ended: VecDeque<Ended>,
    counters: MemberCounters,
    /// Those of them that the engine knows.
    reported: MemberCounters,
    scratch: Vec<u8>,
}

/// A member asks for no slots of bytes that it has no memory for.
pub(crate) fn staging_of(join: &Join, config: &CollectiveConfig) -> u64 {
    u64::from(join.slots.min(config.slots)) * u64::from(join.payload)
}

impl Member {
    /// A member that is about to join.
    pub(crate) fn new(request: &MemberRequest, config: &CollectiveConfig, now: Time) -> Self {
        let mut join = request.join;
        join.slots = join.slots.min(config.slots).max(1);
        let verdict = Verdict {
            reason: Reason::Finished,
            level: u8::try_from(join.levels().len()).unwrap_or(u8::MAX),
            world: Some(join.world),
            generation: join.generation,
        };
        let secret = config.secret.as_ref();
        let most = request.max_wr as usize;
        Self {
            job: request.job,
            rank: request.rank,
            cq: request.cq,
            max_wr: request.max_wr,
            domain: request.domain.0,
            source: None,
            listed: false,
            is_forgotten: false,
            staging: staging_of(&join, config),
            key: secret.map(|secret| Key::of_job(&secret.0, request.job)),
            rto: [config.rto_min, config.rto_initial],
            join_timeout: config.join_timeout,
            phase: Phase::Joining,
            epoch: 0,
            granted: 1,
            lease: FAREWELL,
            queue: Queue::new(request.max_wr),
            flight: Flight::new(
                1,
                0,
                patience([config.rto_min, config.rto_initial], FAREWELL),
            ),
            window: Window::new(1),
            since: now,
            next_sign: now,
            unanswered: None,
            formed: None,
            end: None,
            farewell: verdict,
            ended: VecDeque::with_capacity(most + 1),
            counters: MemberCounters::default(),
            reported: MemberCounters::default(),
            scratch: vec![0; usize::from(join.payload)],
            join,
        }
    }

    /// Where it is.
    #[cfg(test)]
    const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether nothing is sent any more.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Since when it only leaves, and nobody asks for it.
    pub(crate) fn leaving_since(&self) -> Option<Time> {
        self.is_forgotten.then_some(self.since)
    }

    /// What messages of the job are sealed with, of a member that is gone.
    pub(crate) fn into_key(self) -> Option<Key> {
        self.key
    }

    /// Why it ended, if it did.
    pub(crate) const fn end(&self) -> Option<End> {
        self.end
    }

    /// Whether there is room for another collective.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`].
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.queue.is_full() || self.queue.len() + self.ended.len() >= self.max_wr as usize {
            return Err(EngineError::QueueFull);
        }
        Ok(())
    }

    /// Appends a collective; [`Self::check`] was asked before. One whose memory may not be used, or
    /// that is none, ends the membership: the others give chunks to it, so all that came later
    /// would have other numbers here than there.
    pub(crate) fn post<M: RegionMemory>(
        &mut self,
        request: CollectiveRequest,
        regions: &RegionTable<M>,
        now: Time,
    ) {
        if let Some(end) = self.end {
            return self.give_up(&request, 0, end);
        }
        if !self.is_possible(&request) {
            return self.fault(request.wr_id, Status::LocalQpOperation, now);
        }
        match self.buffers(&request, regions) {
            Ok([input, output]) => self.queue.push(request, input, output),
            Err(AccessDenied) => {
                return self.fault(request.wr_id, Status::LocalProtection, now);
            }
        }
        self.settle();
    }

    /// A collective cannot be done: those before it, which have not ended, fail before it does.
    fn fault(&mut self, wr_id: u64, status: Status, now: Time) {
        self.break_off(now);
        self.counters.failed += 1;
        let end = End {
            reason: EndReason::Memory,
            world: None,
        };
        self.ended.push_back(Ended {
            wr_id,
            failed: Some((status, end)),
            done: 0,
        });
    }

    /// Whether the job was asked for with such operations, and the vector is whole elements.
    fn is_possible(&self, request: &CollectiveRequest) -> bool {
        let len = request.len;
        match request.work {
            None | Some(Work::Barrier) => len == 0 && !request.root && !request.shared,
            Some(Work::Broadcast) => len <= crate::limits::MESSAGE && !request.shared,
            Some(Work::Allreduce(operation, element) | Work::Reduce(operation, element)) => {
                self.join.operations & operation.bit() != 0
                    && self.join.elements & element.bit() != 0
                    && element.divides(len as usize)
                    && len <= crate::limits::MESSAGE
                    && match request.work {
                        Some(Work::Reduce(..)) => !request.shared,
                        _ => request.shared || !request.root,
                    }
            }
        }
    }

    /// Checks the memory of a collective: that of the own vector, and where the result goes.
    fn buffers<M: RegionMemory>(
        &self,
        request: &CollectiveRequest,
        regions: &RegionTable<M>,
    ) -> Result<[Option<crate::memory::MemoryRange>; 2], AccessDenied> {
        let (reads, writes) = match request.work {
            None | Some(Work::Barrier) => (false, false),
            Some(Work::Allreduce(..)) => (true, true),
            Some(Work::Reduce(..)) => (true, request.root),
            Some(Work::Broadcast) => (request.root, !request.root),
        };
        let range = |wanted: bool, buffer: Buffer, rights| {
            let named = (wanted && request.len > 0).then(|| {
                let Buffer { addr, lkey } = buffer;
                regions.local(self.domain, lkey, addr, request.len, rights)
            });
            named.transpose()
        };
        Ok([
            range(reads, request.input, Access::NONE)?,
            range(writes, request.output, Access::LOCAL_WRITE)?,
        ])
    }

    /// A collective ends because the epoch did, or a request to be admitted, which does not count.
    fn give_up(&mut self, request: &CollectiveRequest, done: u32, end: End) {
        self.counters.failed += u64::from(request.work.is_some());
        let status = match end.reason {
            EndReason::Memory => Status::LocalProtection,
            EndReason::Closed => Status::WorkRequestFlushed,
            _ => Status::RemoteOperation,
        };
        self.ended.push_back(Ended {
            wr_id: request.wr_id,
            failed: Some((status, end)),
            done,
        });
    }

    /// Takes out what is complete.
    fn settle(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        while let Some(complete) = self.queue.take_complete(self.flight.prefix()) {
            self.counters.completed += u64::from(complete.request.work.is_some());
            self.ended.push_back(Ended {
                wr_id: complete.request.wr_id,
                failed: None,
                done: complete.request.len,
            });
        }
    }

    /// A collective that has ended, the oldest first.
    pub(crate) fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// The application needs the membership no more, or is gone. With collectives under way the
    /// others are told that this member left, so that they end; else it has finished, and what the
    /// others still do with what it sent goes on.
    pub(crate) fn close(&mut self, now: Time) {
        self.is_forgotten = true;
        if !self.queue.is_empty() || self.phase == Phase::Joining {
            self.farewell.reason = Reason::MemberLeft;
        }
        self.part(EndReason::Closed, now);
    }

    /// The application does without the switch from now on: what is under way ends here, and its
    /// completions say how far it came. Who waits for others that do not come has not left them: of
    /// a job that is not complete nobody is to blame who is there. Its end says whether the switch
    /// has heard it: so the members find whose messages it drops.
    pub(crate) fn withdraw(&mut self, now: Time) {
        let reason = self.reason_to_withdraw(now);
        if self.phase == Phase::Joining {
            (self.farewell.reason, self.farewell.world) = (Reason::MemberMissing, None);
        } else if !self.queue.is_empty() {
            self.farewell.reason = Reason::MemberLeft;
        }
        self.part(reason, now);
    }

    fn reason_to_withdraw(&self, now: Time) -> EndReason {
        let silent = |since: Time| now.since(since) >= UNANSWERED;
        match self.phase {
            Phase::Joining if silent(self.formed.unwrap_or(self.since)) => EndReason::SwitchLost,
            Phase::Joining if self.formed.is_some() => EndReason::NoAnswer,
            // It is too early to tell.
            _ => EndReason::Closed,
        }
    }

    fn part(&mut self, reason: EndReason, now: Time) {
        let end = End {
            reason,
            world: None,
        };
        self.happen(Input::Closed, Some(end), now);
    }

    /// The memory of a collective is gone, or one cannot be done: this member cannot go on.
    fn break_off(&mut self, now: Time) {
        self.farewell.reason = Reason::MemberLeft;
        let end = End {
            reason: EndReason::Memory,
            world: None,
        };
        self.happen(Input::Closed, Some(end), now);
    }

    /// Goes on to the next phase; `false` if this does not happen in the present one.
    fn happen(&mut self, input: Input, end: Option<End>, now: Time) -> bool {
        let Some(next) = self.phase.next(input) else {
            return false;
        };
        self.phase = next;
        self.since = now;
        self.next_sign = if next == Phase::Over {
            Time::NEVER
        } else {
            now
        };
        self.unanswered = None;
        if matches!(next, Phase::Leaving | Phase::Over) {
            if self.end.is_none() {
                self.end = end;
            }
            if let Some(end) = self.end {
                while let Some(waiting) = self.queue.take() {
                    self.give_up(&waiting.request, waiting.done, end);
                }
            }
            // The memory of results that will not come.
            self.flight = Flight::new(1, 0, patience(self.rto, self.lease));
        }
        true
    }

    /// It has something to say that cannot leave: the lease runs as if it had left. The switch does
    /// not hear the member either.
    pub(crate) fn held_up(&mut self, now: Time) {
        if self.phase == Phase::Running {
            self.unanswered.get_or_insert(now);
        }
    }

    /// Does what the clock says.
    pub(crate) fn expire(&mut self, now: Time) {
        match self.phase {
            Phase::Joining if now.since(self.since) >= self.join_timeout => {
                let end = End {
                    reason: EndReason::NoAnswer,
                    world: None,
                };
                self.happen(Input::Silent, Some(end), now);
            }
            Phase::Leaving if now.since(self.since) >= self.lease => {
                self.happen(Input::Silent, None, now);
            }
            Phase::Running => {
                let is_mute = self.flight.expire(now);
                let silent = |since: Time| now.since(since) >= self.lease;
                if is_mute || self.unanswered.is_some_and(silent) {
                    let end = End {
                        reason: EndReason::SwitchLost,
                        world: None,
                    };
                    self.happen(Input::Silent, Some(end), now);
                }
            }
            Phase::Joining | Phase::Leaving | Phase::Over => {}
        }
    }

    /// When [`Self::expire`] is to be called, or something is due to be sent.
    pub(crate) fn deadline(&self) -> Time {
        let ends = match self.phase {
            Phase::Joining => self.since + self.join_timeout,
            Phase::Leaving => self.since + self.lease,
            Phase::Running => {
                let silence = self.unanswered.map_or(Time::NEVER, |it| it + self.lease);
                silence.min(self.flight.deadline())
            }
            Phase::Over => return Time::NEVER,
        };
        ends.min(self.next_sign)
    }

    /// How it stands.
    pub(crate) fn statistics(&self, member: u32) -> MemberStatistics {
        MemberStatistics {
            member,
            job: self.job,
            rank: self.rank,
            world: self.join.world,
            size: self.join.size,
            generation: self.join.generation,
            epoch: self.epoch,
            phase: self.phase.label(),
            end: self.end,
            slots: self.flight.slots(),
            window: self.window.size(),
            under_way: self.flight.under_way(),
            waiting: self.queue.len(),
            chunks: self.flight.prefix(),
            round_trip: self.flight.smoothed(),
            counters: self.counters,
        }
    }

    /// Adds what it counted since the last time to the sums of all.
    pub(crate) fn report_to(&mut self, sums: &mut MemberCounters) {
        sums.add_since(&self.reported, &self.counters);
        self.reported = self.counters;
    }
}

/// How long results may take: never more than a quarter of the lease.
fn patience([least, initial]: [Span; 2], lease: Span) -> Patience {
    Patience {
        least,
        initial,
        most: lease.divided_by(4),
    }
}
