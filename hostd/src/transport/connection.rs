//! A queue pair: its queues, its state, and the two halves of the transport.

use super::state::{State, Transition};
use crate::engine::{EngineError, QueuePairRequest, Shared};
use crate::limits;
use crate::message::region::{Access, RegionMemory};
use crate::message::work::{Completion, CompletionOpcode, ReceiveRequest, SendRequest, Status};
use crate::stats::{QueuePairCounters, QueuePairStatistics};
use common::time::Span;
use std::collections::VecDeque;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) number: u32,
    pub(crate) request: QueuePairRequest,
    pub(crate) state: State,
    pub(crate) access: Access,
    sends: VecDeque<SendRequest>,
    receives: VecDeque<ReceiveRequest>,
    counters: QueuePairCounters,
}

impl QueuePair {
    pub(crate) fn new(request: QueuePairRequest) -> Self {
        Self {
            number: 0,
            request,
            state: State::Reset,
            access: Access::NONE,
            sends: VecDeque::with_capacity(request.max_send_wr as usize),
            receives: VecDeque::with_capacity(request.max_recv_wr as usize),
            counters: QueuePairCounters::default(),
        }
    }

    /// Changes the state, or nothing at all.
    pub(crate) fn transit<M: RegionMemory>(
        &mut self,
        transition: &Transition,
        shared: &mut Shared<M>,
    ) -> Result<(), EngineError> {
        self.state = transition.check(self.state)?;
        match transition {
            Transition::Init(access) => self.access = *access,
            Transition::Error => self.flush(shared),
            Transition::Reset => self.forget(shared),
            Transition::ReadyToReceive(_) | Transition::ReadyToSend(_) => {}
        }
        Ok(())
    }

    /// Appends a request to the send queue; one posted in ERR is flushed at once.
    pub(crate) fn post_send<M: RegionMemory>(
        &mut self,
        request: SendRequest,
        shared: &mut Shared<M>,
    ) -> Result<(), EngineError> {
        if !matches!(self.state, State::ReadyToSend | State::Error) {
            return Err(EngineError::State);
        }
        if request.len > limits::MESSAGE {
            return Err(EngineError::Argument);
        }
        if self.sends.len() >= self.request.max_send_wr as usize {
            return Err(EngineError::QueueFull);
        }
        shared.completions.commit(self.request.send_cq)?;
        self.sends.push_back(request);
        if self.state == State::Error {
            self.flush(shared);
        }
        Ok(())
    }

    /// Appends a buffer to the receive queue; one posted in ERR is flushed at once.
    pub(crate) fn post_receive<M: RegionMemory>(
        &mut self,
        request: ReceiveRequest,
        shared: &mut Shared<M>,
    ) -> Result<(), EngineError> {
        if self.state == State::Reset {
            return Err(EngineError::State);
        }
        if self.receives.len() >= self.request.max_recv_wr as usize {
            return Err(EngineError::QueueFull);
        }
        shared.completions.commit(self.request.receive_cq)?;
        self.receives.push_back(request);
        if self.state == State::Error {
            self.flush(shared);
        }
        Ok(())
    }

    /// Completes everything outstanding with a flush error: sends in order, then receives.
    fn flush<M: RegionMemory>(&mut self, shared: &mut Shared<M>) {
        let flushed = Completion {
            wr_id: 0,
            status: Status::WorkRequestFlushed,
            opcode: CompletionOpcode::Receive,
            byte_len: 0,
            imm: None,
            qpn: self.number,
            solicited: true,
        };
        for send in self.sends.drain(..) {
            let completion = Completion {
                wr_id: send.wr_id,
                opcode: send.opcode.into(),
                ..flushed
            };
            shared.completions.push(self.request.send_cq, completion);
        }
        for receive in self.receives.drain(..) {
            let completion = Completion {
                wr_id: receive.wr_id,
                ..flushed
            };
            shared.completions.push(self.request.receive_cq, completion);
        }
    }

    /// Drops everything outstanding without a completion.
    pub(crate) fn forget<M: RegionMemory>(&mut self, shared: &mut Shared<M>) {
        for _ in self.sends.drain(..) {
            shared.completions.release(self.request.send_cq);
        }
        for _ in self.receives.drain(..) {
            shared.completions.release(self.request.receive_cq);
        }
    }

    /// How the queue pair stands.
    pub(crate) fn statistics(&self) -> QueuePairStatistics {
        QueuePairStatistics {
            qpn: self.number,
            state: self.state,
            remote_qpn: 0,
            remote: None,
            multipath: false,
            path_mtu: 0,
            paths: 0,
            in_flight: 0,
            window: 0,
            reordering: 0,
            sends_outstanding: self.sends.len(),
            receives_posted: self.receives.len(),
            rtt: None,
            rto: Span::ZERO,
            counters: self.counters,
        }
    }
}
