//! How a group and the switches stand.

use super::super::again::{Again, Ready, Standing, Word};
use super::super::agree::{Agreement, Position};
use super::super::blame::Heard;
use super::super::message::Message;
use super::super::seat::{Seat, Why};
use super::tail::{Service, Tail};
use crate::Completion;
use crate::abi::collective::FailureReason;
use crate::abi::completion::CompletionStatus;
use crate::compute::Posts;
use std::time::{Duration, Instant};

/// Tells collectives of switches from what is posted to connections.
pub(super) const NAME: u64 = 1 << 48;

/// In a plan: all never ask again.
pub(super) const NEVER: u64 = u64::MAX;

/// How many switches above it a leaf has, by how it refused more than there can be.
fn parents(failed: Option<(FailureReason, Option<u16>)>) -> u16 {
    match failed {
        Some((FailureReason::NoParents, Some(count))) => count.max(1),
        _ => 1,
    }
}

/// How a group and the switches stand.
#[derive(Debug)]
pub(super) enum State {
    /// They were not asked so far.
    Offered,
    /// This member has joined, or is about to.
    Joined(Posts),
    /// They are not used now.
    Over,
}

/// An attempt to join anew, beside collectives between the hosts.
#[derive(Debug)]
pub(super) struct Tried {
    /// None if the daemon refused.
    pub(super) posts: Option<Posts>,
    pub(super) deterministic: bool,
    pub(super) standing: Standing,
}

/// How a collective ended that went through the switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) name: u64,
    pub(super) done: u64,
    pub(super) failed: Option<(FailureReason, Option<u16>)>,
}

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Offload {
    pub(super) seat: Seat,
    pub(super) rank: usize,
    pub(super) state: State,
    /// The membership that is over: the daemon has still to take what was posted last.
    pub(super) parting: Option<Posts>,
    pub(super) deterministic: bool,
    /// The collective that was posted last, and how one ended.
    pub(super) name: u64,
    pub(super) ended: Option<Ended>,
    pub(super) withdrawn: bool,
    pub(super) tail: Tail,
    /// Switches above the leaf that this member knows of; zero if it has to ask.
    pub(super) parents: u16,
    pub(super) asking: Option<Posts>,
    /// After the switches failed: the collective at which all ask again, and the attempt.
    pub(super) next: Option<u64>,
    pub(super) tried: Option<Tried>,
    /// Of rank 0: who asks, what it says to all, and the first that was not told.
    pub(super) again: Again,
    pub(super) ready: Vec<Option<Ready>>,
    pub(super) decided: Option<(Word, usize)>,
    /// What rank 0 said.
    pub(super) word: Option<Word>,
    /// Somebody stops; this member has said how far it is; and of rank 0: whom it has asked, and
    /// what they said.
    pub(super) stop: Option<Why>,
    pub(super) reported: bool,
    /// Whether the leaf has answered this member, once it joined in vain.
    pub(super) heard: Heard,
    pub(super) asked: Vec<bool>,
    pub(super) reports: Vec<Option<(Position, Heard)>>,
    /// What rank 0 has decided.
    pub(super) plan: Option<(Why, u64, Agreement)>,
    /// Results that this member gives to others.
    pub(super) service: Option<Service>,
}

impl Offload {
    /// `again`: the shortest time from one attempt to the next.
    pub(in super::super) fn new(seat: Seat, (rank, size): (usize, usize), again: Duration) -> Self {
        let asks = seat.leaves > 1 && seat.rank == 0;
        Self {
            seat,
            rank,
            parents: if asks { 0 } else { u16::MAX },
            asking: None,
            next: None,
            tried: None,
            again: Again::new(again, Instant::now()),
            state: State::Offered,
            parting: None,
            deterministic: false,
            name: 0,
            ended: None,
            withdrawn: false,
            tail: Tail::default(),
            ready: vec![None; size],
            decided: None,
            word: None,
            stop: None,
            reported: false,
            heard: Heard::Unknown,
            asked: vec![false; size],
            reports: vec![None; size],
            plan: None,
            service: None,
        }
    }

    pub(super) fn is_used(&self) -> bool {
        !matches!(self.state, State::Over)
    }

    /// Whether others may use them already: this member is about to.
    fn is_about_to(&self) -> bool {
        let told = self.decided.map(|(word, _)| word).or(self.word);
        self.is_used() || told == Some(Word::Use)
    }

    /// They are not used from now on; at collective `next` all ask again, if at any.
    pub(super) fn rest(&mut self, next: u64) {
        self.parting = match std::mem::replace(&mut self.state, State::Over) {
            State::Joined(posts) => Some(posts),
            State::Offered | State::Over => None,
        };
        self.next = (next != NEVER).then_some(next);
        (self.stop, self.reported, self.heard) = (None, false, Heard::Unknown);
        self.asked.fill(false);
        self.reports.fill(None);
    }

    /// Whether the collective that this member is in must not end yet: others ask for this member.
    pub(in super::super) fn binds(&self) -> bool {
        self.stop.is_some() || self.service.is_some()
    }

    /// Another collective begins: nothing of the membership that is over is needed any more.
    pub(in super::super) fn part(&mut self) {
        self.parting = None;
    }

    /// Whether this member has results to give.
    pub(in super::super) fn serves(&self) -> bool {
        self.service.is_some()
    }

    /// To whom this member gives results.
    pub(in super::super) fn served(&self) -> Vec<usize> {
        let service = self.service.as_ref();
        service.map_or_else(Vec::new, Service::peers)
    }

    /// A completion that is of no connection.
    pub(in super::super) fn completed(&mut self, completion: &Completion) {
        let word = completion.immediate.map(FailureReason::read);
        let failed = match (completion.status, word) {
            (CompletionStatus::Success, _) => None,
            (_, Some(Ok(why))) => Some(why),
            // A daemon that does not say why is one that cannot be relied on.
            _ => Some((FailureReason::Memory, None)),
        };
        let is_of = |posts: Option<&Posts>| {
            posts.is_some_and(|posts| posts.handle() == completion.queue_pair)
        };
        if is_of(self.asking.as_ref()) {
            self.parents = parents(failed);
        } else if let Some(tried) = &mut self.tried
            && is_of(tried.posts.as_ref())
        {
            let failed = failed.map(|failed| Why::of(failed, self.rank));
            tried.standing = failed.map_or(Standing::Admitted, Standing::Failed);
        } else if let State::Joined(posts) = &self.state
            && is_of(Some(posts))
        {
            self.ended = Some(Ended {
                name: completion.wr_id & !NAME,
                done: completion.byte_len.into(),
                failed,
            });
        }
    }

    /// What other members say of the switches.
    pub(in super::super) fn told(&mut self, from: usize, message: Message) {
        match message {
            Message::Ready(ready) => {
                if let Some(place) = self.ready.get_mut(from) {
                    *place = Some(ready);
                }
            }
            Message::Word(word) if from == 0 => self.word = Some(word),
            Message::Recall(why) if from == 0 && self.is_about_to() => {
                self.stop.get_or_insert(why);
            }
            Message::Report(position, why, heard) if self.is_about_to() => {
                if let Some(place) = self.reports.get_mut(from) {
                    *place = Some((position, heard));
                }
                self.stop.get_or_insert(why);
            }
            Message::Plan(why, next, agreement) if from == 0 => {
                self.plan = Some((why, next, agreement));
            }
            _ => {}
        }
    }
}
