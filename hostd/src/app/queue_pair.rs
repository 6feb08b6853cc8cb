//! What applications ask of one queue pair: its options, its state, its attributes.

use super::refusal::Refusal;
use super::session::{Outcome, Session, done};
use crate::edge::command::{Answer, Readied, SessionCommand};
use hostd_client::abi::answer::{Event, Reply};
use hostd_client::abi::attributes::{QueuePairAttributes, QueuePairState};
use hostd_client::abi::by_hand::ByHand;
use hostd_client::abi::feature;
use hostd_client::abi::options::ConnectionOptions;
use hostd_client::abi::types::{Access, ErrorCode};

impl Session {
    /// An event as the library of the application understands it.
    pub(super) fn understood(&self, event: Event) -> Event {
        if self.knows(feature::CONGESTION) {
            return event;
        }
        match event {
            Event::Disconnected { qp, reason } => {
                let reason = reason.for_older();
                Event::Disconnected { qp, reason }
            }
            Event::ConnectFailed {
                qp,
                reason,
                rej,
                private,
            } => {
                let reason = reason.for_older();
                Event::ConnectFailed {
                    qp,
                    reason,
                    rej,
                    private,
                }
            }
            other => other,
        }
    }

    pub(super) async fn set_options(&self, qp: u32, options: ConnectionOptions) -> Outcome {
        self.ready(|answer| SessionCommand::SetOptions(qp, options, answer))
            .await
    }

    pub(super) async fn connect_by_hand(&self, qp: u32, by_hand: ByHand) -> Outcome {
        self.reach(by_hand.peer, Some(by_hand.local)).await?;
        self.ready(|answer| SessionCommand::ConnectByHand(qp, Box::new(by_hand), answer))
            .await
    }

    /// Carries out what is refused with a text that says what is wrong.
    pub(super) async fn ready(
        &self,
        command: impl FnOnce(Answer<Readied>) -> SessionCommand,
    ) -> Outcome {
        match self.ask(command).await? {
            Readied::Done => Ok(done(())),
            Readied::Refused(text) => Err(Refusal::new(ErrorCode::InvalidArgument, text)),
        }
    }

    pub(super) async fn modify(
        &mut self,
        qp: u32,
        next: QueuePairState,
        attributes: QueuePairAttributes,
    ) -> Outcome {
        if let Some(fault) = attributes.access.and_then(Access::fault_of_queue_pair) {
            return Err(Refusal::new(ErrorCode::InvalidArgument, fault));
        }
        if let Some(peer) = attributes.destination {
            self.reach(peer, self.bound.get(&qp).copied()).await?;
        }
        let given = Box::new(attributes);
        let done = self
            .ready(|answer| SessionCommand::ModifyQueuePair(qp, next, given, answer))
            .await?;
        if next == QueuePairState::Reset {
            self.bound.remove(&qp);
        }
        Ok(done)
    }

    pub(super) async fn query(&self, qp: u32) -> Outcome {
        let query = |answer| SessionCommand::QueryQueuePair(qp, answer);
        let (state, attributes) = self.ask(query).await?;
        Ok((Reply::QueuePairState { state, attributes }, Vec::new()))
    }
}
