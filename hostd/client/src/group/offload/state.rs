//! How a group and the switches stand.

use super::super::agree::{Agreement, Position};
use super::super::message::Message;
use super::super::seat::{Seat, Why};
use super::tail::{Service, Tail};
use crate::Completion;
use crate::abi::collective::FailureReason;
use crate::abi::completion::CompletionStatus;
use crate::compute::Posts;

/// Tells collectives of switches from what is posted to connections.
pub(super) const NAME: u64 = 1 << 48;

/// How a group and the switches stand.
#[derive(Debug)]
pub(super) enum State {
    /// They were not asked so far.
    Offered,
    /// This member has joined, or is about to.
    Joined(Posts),
    /// They are not used any more.
    Over,
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
    pub(super) state: State,
    /// The membership that is over: the daemon has still to take what was posted last.
    pub(super) parting: Option<Posts>,
    pub(super) deterministic: bool,
    /// The collective that was posted last, and how one ended.
    pub(super) name: u64,
    pub(super) ended: Option<Ended>,
    pub(super) withdrawn: bool,
    pub(super) tail: Tail,
    /// Of rank 0: who is ready to join. Of all: rank 0 said that all are.
    pub(super) ready: Vec<bool>,
    pub(super) go: bool,
    /// Somebody stops; this member has said how far it is; and of rank 0: whom it has asked, and
    /// what they said.
    pub(super) stop: Option<Why>,
    pub(super) reported: bool,
    pub(super) asked: Vec<bool>,
    pub(super) reports: Vec<Option<Position>>,
    /// What rank 0 has decided.
    pub(super) plan: Option<(Why, Agreement)>,
    /// Results that this member gives to others.
    pub(super) service: Option<Service>,
}

impl Offload {
    pub(in super::super) fn new(seat: Seat, size: usize) -> Self {
        Self {
            seat,
            state: State::Offered,
            parting: None,
            deterministic: false,
            name: 0,
            ended: None,
            withdrawn: false,
            tail: Tail::default(),
            ready: vec![false; size],
            go: false,
            stop: None,
            reported: false,
            asked: vec![false; size],
            reports: vec![None; size],
            plan: None,
            service: None,
        }
    }

    pub(super) fn is_used(&self) -> bool {
        !matches!(self.state, State::Over)
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
        let State::Joined(posts) = &self.state else {
            return;
        };
        if completion.queue_pair != posts.handle() {
            return;
        }
        let word = completion.immediate.map(FailureReason::read);
        let failed = match (completion.status, word) {
            (CompletionStatus::Success, _) => None,
            (_, Some(Ok(why))) => Some(why),
            // A daemon that does not say why is one that cannot be relied on.
            _ => Some((FailureReason::Memory, None)),
        };
        self.ended = Some(Ended {
            name: completion.wr_id & !NAME,
            done: completion.byte_len.into(),
            failed,
        });
    }

    /// What other members say of the switches.
    pub(in super::super) fn told(&mut self, from: usize, message: Message) {
        match message {
            Message::Ready => {
                if let Some(ready) = self.ready.get_mut(from) {
                    *ready = true;
                }
            }
            Message::Go if from == 0 => self.go = true,
            Message::Recall(why) if from == 0 && self.is_used() => {
                self.stop.get_or_insert(why);
            }
            Message::Report(position, why) if self.is_used() => {
                if let Some(place) = self.reports.get_mut(from) {
                    *place = Some(position);
                }
                self.stop.get_or_insert(why);
            }
            Message::Plan(why, agreement) if from == 0 => self.plan = Some((why, agreement)),
            _ => {}
        }
    }
}
