//! Queue pairs that applications take through their states attribute by attribute.

use super::{Link, Table, break_off, reply};
use crate::edge::command::{Answer, Notice, Readied, SessionId};
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{Access, Attributes, EngineError, State};
use hostd_client::abi::attributes::{QueuePairAttributes, QueuePairState};
use hostd_client::abi::types;

impl<M: RegionMemory> Table<M> {
    /// Changes the state or attributes of a queue pair, and answers.
    pub(super) fn change_state(
        &mut self,
        session: SessionId,
        qp: u32,
        (next, given): (QueuePairState, &QueuePairAttributes),
        answer: Answer<Readied>,
        engine: &mut Engine<M>,
    ) {
        match next {
            QueuePairState::Reset => self.reset(session, qp, given, answer, engine),
            _ => reply(answer, self.modify(session, qp, next, given, engine)),
        }
    }

    fn modify(
        &mut self,
        session: SessionId,
        qp: u32,
        next: QueuePairState,
        given: &QueuePairAttributes,
        engine: &mut Engine<M>,
    ) -> Result<Readied, EngineError> {
        let link = self.rings(session, qp)?.link;
        match next {
            QueuePairState::Error if matches!(link, Link::Reset | Link::None | Link::ByHand) => {
                return self.end_by_hand(qp, engine).map(|()| Readied::Done);
            }
            QueuePairState::ReadyToReceive => {
                self.may_connect()?;
                if !matches!(link, Link::None | Link::Reset) {
                    return Err(EngineError::State);
                }
                // Receives that were posted before are in place when the first message comes.
                self.serve_one(qp, engine);
            }
            _ => {}
        }
        let attributes = attributes_of(given);
        if let Err(refused) = engine.modify_attributes(qp, engine_state(next), &attributes) {
            return Ok(Readied::Refused(refused.to_string()));
        }
        match next {
            // What was posted meanwhile stands in the rings.
            QueuePairState::Init if link == Link::Reset => {
                self.rings(session, qp)?.link = Link::None;
            }
            QueuePairState::ReadyToReceive => self.rings(session, qp)?.link = Link::ByHand,
            _ => {}
        }
        self.mark(qp);
        Ok(Readied::Done)
    }

    /// Takes a queue pair to RESET, from any state: what was posted is forgotten without
    /// completions, the peer of a connection is told of its end. Later the application hears
    /// nothing of what was before.
    fn reset(
        &mut self,
        session: SessionId,
        qp: u32,
        given: &QueuePairAttributes,
        answer: Answer<Readied>,
        engine: &mut Engine<M>,
    ) {
        let refusal = match self.rings(session, qp).map(|rings| rings.link) {
            Ok(Link::Broken) => Some(Err(EngineError::State)),
            Err(error) => Some(Err(error)),
            Ok(_) => {
                let reset = engine.modify_attributes(qp, State::Reset, &attributes_of(given));
                reset.err().map(|it| Ok(Readied::Refused(it.to_string())))
            }
        };
        if let Some(refusal) = refusal {
            return reply(answer, refusal);
        }
        self.notices.retain(|notice| !concerns(notice, qp));
        if let Some((session, rings)) = self.queue_pairs.get_mut(&qp)
            && rings.reset().is_err()
        {
            self.statistics.broken_queues += 1;
            self.notices.push(break_off(*session, qp, rings, engine));
        }
        self.notices.push(Notice::Reset(answer));
    }

    /// The state and attributes of a queue pair.
    pub(super) fn query(
        &mut self,
        session: SessionId,
        qp: u32,
        engine: &Engine<M>,
    ) -> Result<(QueuePairState, QueuePairAttributes), EngineError> {
        self.rings(session, qp)?;
        let (state, known) = engine.query_queue_pair(qp).ok_or(EngineError::Unknown)?;
        let rights = [
            (Access::LOCAL_WRITE, types::Access::LOCAL_WRITE),
            (Access::REMOTE_WRITE, types::Access::REMOTE_WRITE),
            (Access::REMOTE_READ, types::Access::REMOTE_READ),
            (Access::REMOTE_ATOMIC, types::Access::REMOTE_ATOMIC),
        ];
        let access = known.access.map(|access| {
            let given = rights.iter().filter(|(right, _)| access.allows(*right));
            given.fold(types::Access::default(), |all, (_, right)| all.with(*right))
        });
        let attributes = QueuePairAttributes {
            access,
            destination: known.destination,
            destination_number: known.destination_qpn,
            rq_psn: known.rq_psn,
            sq_psn: known.sq_psn,
            path_mtu: known.path_mtu,
            min_rnr_timer: known.min_rnr_timer,
            max_dest_rd_atomic: known.max_dest_rd_atomic,
            max_rd_atomic: known.max_rd_atomic,
            timeout: known.timeout,
            retry_count: known.retry_count,
            rnr_retry: known.rnr_retry,
            notify_drained: known.notify_drained,
        };
        Ok((client_state(state), attributes))
    }
}

fn attributes_of(given: &QueuePairAttributes) -> Attributes {
    let access = given.access.map(|it| Access::from_bits(it.bits()));
    Attributes {
        access: access.map(|it| it.unwrap_or(Access::NONE)),
        destination: given.destination,
        destination_qpn: given.destination_number,
        rq_psn: given.rq_psn,
        sq_psn: given.sq_psn,
        path_mtu: given.path_mtu,
        min_rnr_timer: given.min_rnr_timer,
        max_dest_rd_atomic: given.max_dest_rd_atomic,
        max_rd_atomic: given.max_rd_atomic,
        timeout: given.timeout,
        retry_count: given.retry_count,
        rnr_retry: given.rnr_retry,
        notify_drained: given.notify_drained,
    }
}

/// Whether a notice tells an application of this queue pair.
fn concerns(notice: &Notice, qp: u32) -> bool {
    matches!(notice, Notice::Event(_, event) if event.queue_pair() == Some(qp))
}

fn engine_state(state: QueuePairState) -> State {
    match state {
        QueuePairState::Reset => State::Reset,
        QueuePairState::Init => State::Init,
        QueuePairState::ReadyToReceive => State::ReadyToReceive,
        QueuePairState::ReadyToSend => State::ReadyToSend,
        QueuePairState::SendQueueDrained => State::SendQueueDrained,
        QueuePairState::Error => State::Error,
    }
}

fn client_state(state: State) -> QueuePairState {
    match state {
        State::Reset => QueuePairState::Reset,
        State::Init => QueuePairState::Init,
        State::ReadyToReceive => QueuePairState::ReadyToReceive,
        State::ReadyToSend => QueuePairState::ReadyToSend,
        State::SendQueueDrained => QueuePairState::SendQueueDrained,
        State::Error => QueuePairState::Error,
    }
}
