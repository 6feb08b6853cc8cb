//! One round of work: what has come is taken, what may be sent is sent, and who stands still asks.

use super::failure::{Cause, Failure, GroupError};
use super::flow::{Flow, Stage};
use super::judge::{State, Trial, is_decided, judge, mismatch};
use super::link::{Came, Link, Phase, Tag, Work};
use super::member::Group;
use super::message::Message;
use super::notes::STILL;
use crate::Completion;
use crate::abi::completion::CompletionStatus;
use crate::abi::descriptor::CompletionOpcode;
use crate::channel::wait_ready;
use nix::poll::{PollFd, PollFlags};
use std::time::{Duration, Instant};

/// How long rank 0 waits for the answers of the others, of which the most are right.
pub(super) const ANSWERS: Duration = Duration::from_secs(1);

/// How long a member waits for what rank 0 decides.
const VERDICT: Duration = Duration::from_secs(2);

/// How long a member that ends waits until the others have been told.
const FAREWELL: Duration = Duration::from_millis(500);

/// How often those who wait have the others' daemons asked whether they live.
const PROBE: Duration = Duration::from_secs(1);

/// The longest sleep: another thread may have read what the session's socket says.
const NAP: Duration = Duration::from_millis(100);

impl Group {
    /// Does what can be done now. True when the collective is over: the result is there, and
    /// nothing is read from the vector any more.
    pub(super) fn turn(&mut self, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut moved = self.drain()?;
        self.settle(Some(flow))?;
        self.answer(flow)?;
        moved |= self.offloaded(flow)?;
        let connecting = self.connect(flow)?;
        if connecting || std::mem::take(&mut self.stirred) {
            moved |= self.hear()?;
        }
        self.look_for_mismatch(flow)?;
        self.compare(flow)?;
        self.end_if_silent()?;
        let doubted = |(_, suspect): (Instant, Failure)| suspect.cause != Cause::Late;
        // Those who lack results must not find segments of what comes next before them.
        let serves = self.offload.as_ref().is_some_and(|it| it.serves());
        if !serves && !flow.appealed.is_some_and(doubted) {
            moved |= self.advance(flow)?;
            if flow.stage == Stage::Mending && flow.progress.is_done() {
                return self.turn(flow);
            }
        }
        self.post()?;
        if moved {
            flow.moved = Instant::now();
        }
        let acknowledged = self
            .links()
            .all(|link| link.borrowed == 0 || link.phase != Phase::Up);
        let bound = self.binds();
        let trial = self.trial.as_ref();
        let tried = trial.is_some_and(|trial| !trial.waits_for_own(flow.sequence));
        // One that calls nothing is no judge, for it might be the one that all wait for.
        if flow.is_over() && acknowledged && !bound && (flow.is_past || !tried) {
            return Ok(true);
        }
        self.judge(flow)?;
        Ok(false)
    }

    /// Tells rank 0 how far this member is, once it has asked.
    fn answer(&mut self, flow: &mut Flow<'_>) -> Result<(), GroupError> {
        // That it calls nothing others have to find out.
        let calls = !flow.is_past || self.binds();
        if !self.asked || flow.answered || !calls {
            return Ok(());
        }
        flow.answered = true;
        let state = Message::State(flow.state(&self.history));
        let sent = self
            .link(true, 0)
            .map_or(Ok(false), |link| link.send(&state));
        sent.map(drop).map_err(|error| self.broken(error))
    }

    /// Sleeps until something may have come, or `until`.
    pub(super) fn pause(&mut self, until: Instant) -> Result<(), GroupError> {
        if self.queue.arm().map_err(|error| self.broken(error))? {
            return Ok(());
        }
        let until = until.min(Instant::now() + NAP);
        let mut fds = [
            PollFd::new(self.queue.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.context.inner.channel.as_fd(), PollFlags::POLLIN),
        ];
        let ready = wait_ready(&mut fds, until);
        let stirred = fds[1].any().unwrap_or(true);
        match ready {
            Ok(ready) => {
                self.stirred = stirred || !ready;
                Ok(())
            }
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Takes all completions.
    pub(super) fn drain(&mut self) -> Result<bool, GroupError> {
        let mut moved = false;
        loop {
            match self.queue.poll() {
                Ok(Some(completion)) => {
                    self.completed(&completion)?;
                    // That a daemon lives is no progress.
                    moved |= Tag::from_wr_id(completion.wr_id).work != Work::Message;
                }
                Ok(None) => return Ok(moved),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// The connection that a completion is of, unless it was given up and another one took its
    /// place.
    fn link_of(&mut self, completion: &Completion) -> Option<(Tag, &mut Link)> {
        let tag = Tag::from_wr_id(completion.wr_id);
        let link = self.link(tag.control, tag.peer)?;
        (link.queue_pair.id() == completion.queue_pair).then_some((tag, link))
    }

    fn completed(&mut self, completion: &Completion) -> Result<(), GroupError> {
        if completion.opcode == CompletionOpcode::Collective {
            if let Some(offload) = &mut self.offload {
                offload.completed(completion);
            }
            return Ok(());
        }
        let rank = self.rank;
        let Some((tag, link)) = self.link_of(completion) else {
            return Ok(());
        };
        if tag.work != Work::Receive {
            link.sent(tag.work, tag.place);
        }
        match completion.status {
            CompletionStatus::Success => {}
            // Of a connection that this side asks for, the session's socket says what became of it.
            CompletionStatus::Flushed if link.phase == Phase::Begun && tag.peer < rank => {
                return Ok(());
            }
            own @ (CompletionStatus::LocalLength
            | CompletionStatus::LocalQpOperation
            | CompletionStatus::LocalProtection
            | CompletionStatus::LocalAccess) => return Err(self.broken(GroupError::Work(own))),
            _ => {
                if link.phase != Phase::Ended {
                    link.phase = Phase::Ended;
                    // The peer may have given it up before it heard that it stood here.
                    if !tag.control && !link.used {
                        self.unmet(tag.peer, false);
                    } else if link.left.is_none() {
                        self.lost.push(tag.peer);
                    }
                }
                return Ok(());
            }
        }
        if tag.work != Work::Receive {
            return Ok(());
        }
        let len = usize::try_from(completion.byte_len).unwrap_or(0);
        let came = link.came(tag.place, len);
        match came.map_err(|error| self.broken(error))? {
            Came::Nothing => {}
            Came::Message(Message::Goodbye(done)) => {
                if let Some(link) = self.link(tag.control, tag.peer) {
                    link.left = Some(done);
                }
            }
            Came::Message(message) => self.told.push((tag.peer, message)),
            Came::Garbage => {
                let cause = Cause::Protocol;
                let rank = tag.peer;
                return Err(self.fail(Failure { rank, cause }));
            }
        }
        Ok(())
    }

    /// Acts on what the others said, and on who is lost: in this order, as who has failed says why
    /// before it ends.
    pub(super) fn settle(&mut self, flow: Option<&Flow<'_>>) -> Result<(), GroupError> {
        for (from, message) in std::mem::take(&mut self.told) {
            match message {
                Message::Failed(failure) => return Err(self.fail(failure)),
                Message::Table {
                    group,
                    members,
                    seat,
                } if from == 0 && self.members.is_empty() => {
                    self.id = group;
                    self.members = members;
                    self.sit(seat);
                }
                Message::Inquiry => self.asked = true,
                Message::Note(state) if self.rank == 0 => self.noted(from, state)?,
                Message::Noted if from == 0 => self.notes.taken(),
                Message::Appeal(state, suspicion) if self.rank == 0 => {
                    self.try_case(from, state, suspicion)?;
                }
                Message::State(state) => {
                    if let Some(trial) = &mut self.trial
                        && let Some(place) = trial.states.get_mut(from)
                    {
                        *place = Some(state);
                    }
                }
                other => {
                    if let Some(offload) = &mut self.offload {
                        offload.told(from, other);
                    }
                }
            }
        }
        if let Some(rank) = self.lost.first().copied() {
            let cause = Cause::Lost;
            return Err(self.fail(Failure { rank, cause }));
        }
        let done = flow.map(|flow| flow.sequence);
        let gone = |link: &Option<Link>| {
            let left = link.as_ref().and_then(|link| link.left);
            left.zip(done).is_some_and(|(left, now)| left <= now)
        };
        // One that has left gives nothing any more, but what has come of it is here.
        let holder = flow.filter(|flow| flow.stage == Stage::Mending);
        let holder = holder.and_then(|flow| Some((flow.progress.waits_for()?, flow.sequence)));
        if let Some((rank, sequence)) = holder
            && let Some(link) = self.data[rank].as_ref()
            && link.left.is_some()
            && link.head(sequence).is_none()
        {
            let cause = Cause::Left;
            return Err(self.fail(Failure { rank, cause }));
        }
        let mut ranks = 0..self.size;
        if let Some(rank) = ranks.find(|rank| gone(&self.control[*rank]) || gone(&self.data[*rank]))
        {
            let cause = Cause::Left;
            return Err(self.fail(Failure { rank, cause }));
        }
        Ok(())
    }

    /// Asks rank 0, or as rank 0 all others, who is to blame.
    pub(super) fn appeal(
        &mut self,
        flow: &mut Flow<'_>,
        suspect: Failure,
    ) -> Result<(), GroupError> {
        flow.appealed = Some((Instant::now(), suspect));
        if self.rank == 0 {
            return self.try_case(0, flow.state(&self.history), suspect);
        }
        let message = Message::Appeal(flow.state(&self.history), suspect);
        if let Some(link) = self.link(true, 0) {
            let sent = link.send(&message).and_then(|_| link.post());
            sent.map_err(|error| self.broken(error))?;
        }
        Ok(())
    }

    /// Rank 0 asks all how far they are, unless it does already.
    fn try_case(
        &mut self,
        accuser: usize,
        state: State,
        suspicion: Failure,
    ) -> Result<(), GroupError> {
        let until = Instant::now() + ANSWERS;
        if self.trial.is_none() {
            let mut states = vec![None; self.size];
            let sequence = state.sequence;
            states[accuser] = Some(state);
            self.trial = Some(Trial {
                accuser,
                suspicion,
                states,
                sequence,
                until,
            });
            for link in self.control.iter_mut().flatten() {
                let asked = link.send(&Message::Inquiry).map(drop);
                if let Err(error) = asked.and_then(|()| link.post()) {
                    return Err(self.broken(error));
                }
            }
        }
        Ok(())
    }

    /// Ends what stands still.
    fn judge(&mut self, flow: &mut Flow<'_>) -> Result<(), GroupError> {
        let now = Instant::now();
        if now - flow.moved.max(flow.probed) >= PROBE {
            flow.probed = now;
            let mut probed = Ok(());
            for link in self.links() {
                probed = probed.and_then(|()| link.probe());
            }
            probed.map_err(|error| self.broken(error))?;
        }
        if let Some(trial) = &mut self.trial {
            trial.states[0] = Some(flow.state(&self.history));
            let here = |state: &Option<State>| {
                state
                    .as_ref()
                    .is_some_and(|it| it.sequence >= trial.sequence)
            };
            let decided = trial.states.iter().all(here) || is_decided(&trial.states);
            if now < trial.until && !decided {
                return Ok(());
            }
            let failure = judge(&trial.states, trial.accuser, trial.suspicion);
            return Err(self.fail(failure));
        }
        match flow.appealed {
            Some((since, suspect)) if now - since >= VERDICT => Err(self.fail(suspect)),
            None if now - flow.moved >= self.options.timeout => {
                // If rank 0 does not even answer, it is what everybody waits for.
                let waits_for = flow.progress.waits_for().unwrap_or(0);
                let rank = if flow.meant.synchronizes() {
                    0
                } else {
                    waits_for
                };
                let cause = Cause::Late;
                self.appeal(flow, Failure { rank, cause })
            }
            _ => Ok(()),
        }
    }

    /// When a turn has to come even if nothing does.
    pub(super) fn deadline(&self, flow: &Flow<'_>) -> Instant {
        let still = match flow.appealed {
            Some((since, _)) => since + VERDICT,
            None => flow.moved + self.options.timeout,
        };
        let trial = self.trial.as_ref().map(|trial| trial.until);
        trial.map_or(still, |until| until.min(still))
    }

    /// Posts what has come together at all connections.
    pub(super) fn post(&mut self) -> Result<(), GroupError> {
        let mut posted = Ok(());
        for link in self.links() {
            posted = posted.and_then(|()| link.post());
        }
        posted.map_err(|error| self.broken(error))
    }

    /// Has the group fail, and tells the others why.
    pub(super) fn fail(&mut self, failure: Failure) -> GroupError {
        if let Some(error) = &self.failed {
            return error.clone();
        }
        let error = GroupError::Failed(failure);
        self.failed = Some(error.clone());
        // Nobody waits for this member at the switch.
        self.offload = None;
        if failure.cause == Cause::Lost {
            // It takes nothing any more.
            for row in [&mut self.control, &mut self.data] {
                if let Some(Some(link)) = row.get_mut(failure.rank) {
                    link.phase = Phase::Ended;
                }
            }
        }
        self.tell_all(&Message::Failed(failure));
        error
    }

    /// Tells all, and waits until they have it, though not for long.
    pub(super) fn tell_all(&mut self, message: &Message) {
        let until = Instant::now() + FAREWELL;
        for link in self.links() {
            // One that cannot be told finds out by the end of the connection.
            let _ = link.send(message).and_then(|_| link.post());
        }
        let open = |link: &Link| link.phase == Phase::Up && link.sends_out > 0;
        while self.links().any(|link| open(link)) && Instant::now() < until {
            if self.queue.wait(until - Instant::now()).is_err() {
                return;
            }
            while let Ok(Some(completion)) = self.queue.poll() {
                let Some((tag, link)) = self.link_of(&completion) else {
                    continue;
                };
                if tag.work != Work::Receive {
                    link.sent(tag.work, tag.place);
                }
                if !completion.is_success() {
                    link.phase = Phase::Ended;
                }
            }
        }
    }
}

impl Group {
    /// Tells rank 0 what this member calls, if nothing goes on, or looks at what others told.
    pub(super) fn compare(&mut self, flow: &mut Flow<'_>) -> Result<(), GroupError> {
        if flow.is_past {
            return Ok(());
        }
        if self.rank == 0 {
            // It has come to a collective that others told of.
            self.notes.fresh |= !std::mem::replace(&mut flow.noted, true);
            if self.trial.is_some() {
                return Ok(());
            }
            let own = || flow.state(&self.history);
            let states = self.notes.unseen(own, self.size);
            return match states.and_then(|states| mismatch(&states)) {
                Some(failure) => self.appeal(flow, failure),
                None => Ok(()),
            };
        }
        if flow.noted || self.notes.sent || flow.moved.elapsed() < STILL {
            return Ok(());
        }
        let note = Message::Note(flow.state(&self.history));
        if self.tell(0, &note)? {
            (flow.noted, self.notes.sent) = (true, true);
        }
        Ok(())
    }

    /// As rank 0: a member says what it calls.
    pub(super) fn noted(&mut self, from: usize, state: State) -> Result<(), GroupError> {
        self.notes.take(from, state);
        self.tell(from, &Message::Noted).map(drop)
    }
}
