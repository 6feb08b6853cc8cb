//! Where all members ask rank 0 whether a collective goes through the switches: at the first one
//! that switches can do, and after they failed at the collectives that rank 0 has named.
//!
//! ```text
//!   begin ─▶ asking the leaf ─▶ ready ── rank 0 has heard all ──▶ joining, running, hosts
//! ```

use super::super::again::{Ready, Standing, Word};
use super::super::failure::{Cause, Failure, GroupError};
use super::super::flow::{Flow, Stage};
use super::super::member::Group;
use super::super::message::Message;
use super::super::seat::{Attempt, ENTRIES, Seat, Why};
use super::state::{NAME, Offload, State, Tried};
use crate::abi::collective::{Buffer, Collective, CollectiveWork, FailureReason};
use crate::compute::{Membership, Posts};
use crate::{Error, ErrorCode};
use std::time::{Duration, Instant};

/// How long the leaf may take to say how many switches it has above.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

impl Group {
    /// A collective begins that goes through the switches, or about which all ask.
    pub(super) fn begin_there(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
    ) -> Result<bool, GroupError> {
        if matches!(offload.state, State::Joined(_)) {
            return self.run(offload, flow).map(|()| true);
        }
        if offload.parents == 0 {
            match self.take_seat(&offload.seat.question()) {
                Ok(posts) => {
                    offload.asking = Some(posts);
                    flow.stage = Stage::Asking(Instant::now());
                    return Ok(true);
                }
                // It will be refused again when it joins, and then all learn why.
                Err(Refused::For(_)) => offload.parents = 1,
                Err(Refused::Broken(error)) => return Err(error),
            }
        }
        self.say_ready(offload, flow)
    }

    /// The leaf has been asked how many switches it has above.
    pub(super) fn asking(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
        since: Instant,
    ) -> Result<bool, GroupError> {
        if offload.parents == 0 && since.elapsed() < ANSWER_WITHIN {
            return Ok(false);
        }
        offload.parents = offload.parents.max(1);
        offload.asking = None;
        self.say_ready(offload, flow)
    }

    fn say_ready(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
    ) -> Result<bool, GroupError> {
        let tried = offload.tried.as_ref();
        let ready = Ready {
            parents: offload.parents,
            standing: tried.map_or(Standing::Idle, |it| it.standing),
        };
        if self.rank == 0 {
            offload.ready[0] = Some(ready);
        } else if !self.tell(0, &Message::Ready(ready))? {
            return Ok(false);
        }
        flow.stage = Stage::Ready;
        Ok(true)
    }

    /// Goes on as soon as rank 0 has heard all and said how.
    pub(super) fn ready(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
    ) -> Result<bool, GroupError> {
        if self.rank == 0 {
            let all = offload.ready.iter().copied().collect::<Option<Vec<_>>>();
            if let Some(all) = all {
                // Those who are quick ask about the next one before all have been told.
                offload.ready.fill(None);
                let word = offload.again.decide(flow.sequence, &all, Instant::now());
                offload.decided = Some((word, 1));
            }
            while let Some((word, rank)) = offload.decided {
                if rank == self.size {
                    offload.word = Some(word);
                    offload.decided = None;
                } else if self.tell(rank, &Message::Word(word))? {
                    offload.decided = Some((word, rank + 1));
                } else {
                    break;
                }
            }
        }
        match offload.word.take() {
            Some(word) => self.obey(offload, flow, word).map(|()| true),
            None => Ok(false),
        }
    }

    fn obey(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
        word: Word,
    ) -> Result<(), GroupError> {
        match word {
            Word::Join(attempt) => return self.join_now(offload, flow, attempt),
            Word::Use => {
                let tried = offload.tried.take();
                let deterministic = tried.as_ref().is_some_and(|it| it.deterministic);
                let Some(posts) = tried.and_then(|it| it.posts) else {
                    let (rank, cause) = (0, Cause::Protocol);
                    return Err(self.fail(Failure { rank, cause }));
                };
                offload.state = State::Joined(posts);
                offload.deterministic = deterministic;
                offload.withdrawn = false;
                (offload.next, self.fallback) = (None, None);
                flow.switched = true;
                return self.run(offload, flow);
            }
            Word::Try(attempt, next) => {
                offload.next = Some(next);
                offload.tried = Some(self.begin_trial(offload.seat, attempt)?);
            }
            Word::Wait(next) => offload.next = Some(next),
            Word::Stay(next) => (offload.next, offload.tried) = (Some(next), None),
        }
        self.between_hosts(flow, 0);
        Ok(())
    }

    /// Joins, and waits until all have.
    fn join_now(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
        attempt: Attempt,
    ) -> Result<(), GroupError> {
        flow.switched = true;
        offload.deterministic = self.deterministic && offload.seat.leaves == 1;
        let deterministic = offload.deterministic;
        let membership = offload.seat.membership(attempt, self.rank, deterministic);
        match self.take_seat(&membership) {
            Ok(posts) => {
                offload.state = State::Joined(posts);
                flow.stage = Stage::Joining(Instant::now());
            }
            Err(Refused::For(reason)) => {
                let rank = Some(self.rank);
                offload.stop.get_or_insert(Why { reason, rank });
                flow.stage = Stage::Halted;
            }
            Err(Refused::Broken(error)) => return Err(error),
        }
        Ok(())
    }

    /// Joins, while collectives go on between the hosts.
    fn begin_trial(&mut self, seat: Seat, attempt: Attempt) -> Result<Tried, GroupError> {
        let deterministic = self.deterministic && seat.leaves == 1;
        let membership = seat.membership(attempt, self.rank, deterministic);
        let (posts, standing) = match self.take_seat(&membership) {
            Ok(posts) => (Some(posts), Standing::Pending),
            Err(Refused::For(reason)) => {
                let rank = Some(self.rank);
                (None, Standing::Failed(Why { reason, rank }))
            }
            Err(Refused::Broken(error)) => return Err(error),
        };
        Ok(Tried {
            posts,
            deterministic,
            standing,
        })
    }

    /// Asks the daemon for a membership, whose admission is the first that completes.
    fn take_seat(&mut self, membership: &Membership) -> Result<Posts, Refused> {
        let joined = Posts::join(&self.context.inner, &self.queue, membership, ENTRIES);
        let mut posts = match joined {
            Ok(posts) => posts,
            Err(Error::Refused { code, .. }) => {
                return Err(Refused::For(match code {
                    ErrorCode::Quota => FailureReason::Full,
                    _ => FailureReason::NotAllowed,
                }));
            }
            Err(error) => return Err(Refused::Broken(self.broken(error))),
        };
        let admission = CollectiveWork {
            wr_id: NAME,
            collective: Collective::Admission,
            root: false,
            length: 0,
            input: Buffer::default(),
            output: Buffer::default(),
        };
        let posted = posts.post(&admission);
        posted.map_err(|error| Refused::Broken(self.broken(error)))?;
        Ok(posts)
    }
}

/// Why there is no membership.
enum Refused {
    /// The daemon has no room for it, or takes no part.
    For(FailureReason),
    /// The group has failed.
    Broken(GroupError),
}
