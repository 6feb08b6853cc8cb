//! Queue pairs that applications take through their states attribute by attribute.

use super::{Link, Table};
use crate::edge::command::{Readied, SessionId};
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{Access, Attributes, EngineError, State};
use hostd_client::abi::attributes::{QueuePairAttributes, QueuePairState};
use hostd_client::abi::types;

impl<M: RegionMemory> Table<M> {
    /// Changes the state or attributes of a queue pair.
    pub(super) fn modify(
        &mut self,
        session: SessionId,
        qp: u32,
        next: QueuePairState,
        given: &QueuePairAttributes,
        engine: &mut Engine<M>,
    ) -> Result<Readied, EngineError> {
        let link = self.rings(session, qp)?.link;
        match next {
            QueuePairState::Reset | QueuePairState::Init => {
                let text = "hostd makes queue pairs in INIT: make another one instead".to_owned();
                return Ok(Readied::Refused(text));
            }
            QueuePairState::Error if matches!(link, Link::None | Link::ByHand) => {
                return self.end_by_hand(qp, engine).map(|()| Readied::Done);
            }
            QueuePairState::ReadyToReceive => {
                self.may_connect()?;
                if link != Link::None {
                    return Err(EngineError::State);
                }
                // Receives that were posted before are in place when the first message comes.
                self.serve_one(qp, engine);
            }
            _ => {}
        }
        let access = given.access.map(|it| Access::from_bits(it.bits()));
        let attributes = Attributes {
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
        };
        if let Err(refused) = engine.modify_attributes(qp, engine_state(next), &attributes) {
            return Ok(Readied::Refused(refused.to_string()));
        }
        if next == QueuePairState::ReadyToReceive {
            self.rings(session, qp)?.link = Link::ByHand;
        }
        self.mark(qp);
        Ok(Readied::Done)
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
