//! Queue pairs that are set up by hand.

use super::{Link, Table};
use crate::edge::command::{Notice, Readied, SessionId};
use crate::engine::{Engine, NotReadied};
use crate::memory::RegionMemory;
use crate::verbs::{EngineError, ReadyToReceive, ReadyToSend, Transition};
use hostd_client::abi::answer::Event;
use hostd_client::abi::by_hand::ByHand;
use hostd_client::abi::types::ErrorCode;
use std::net::IpAddr;

impl<M: RegionMemory> Table<M> {
    /// Chooses the own address of a queue pair.
    pub(super) fn bind(
        &mut self,
        session: SessionId,
        qp: u32,
        local: IpAddr,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        if self.rings(session, qp)?.link != Link::None {
            return Err(EngineError::State);
        }
        engine.bind(qp, local)
    }

    /// Chooses the partition of a queue pair.
    pub(super) fn choose_partition(
        &mut self,
        session: SessionId,
        qp: u32,
        index: u16,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        if self.rings(session, qp)?.link != Link::None {
            return Err(EngineError::State);
        }
        engine.choose_partition(qp, index)
    }

    /// Readies a queue pair.
    pub(super) fn connect_by_hand(
        &mut self,
        session: SessionId,
        qp: u32,
        by_hand: &ByHand,
        engine: &mut Engine<M>,
    ) -> Result<Readied, EngineError> {
        self.may_connect()?;
        if self.rings(session, qp)?.link != Link::None {
            return Err(EngineError::State);
        }
        // Receives that were posted before are in place when the first message comes.
        self.serve_one(qp, engine);
        let receive = ReadyToReceive {
            destination: by_hand.peer,
            destination_qpn: by_hand.peer_number,
            rq_psn: by_hand.peer_psn,
            path_mtu: by_hand.mtu,
            min_rnr_timer: by_hand.min_rnr_timer,
            max_dest_rd_atomic: by_hand.max_dest_rd_atomic,
            multipath: None,
        };
        let send = ReadyToSend {
            sq_psn: by_hand.psn,
            timeout: by_hand.timeout,
            retry_count: by_hand.retry_count,
            rnr_retry: by_hand.rnr_retry,
            max_rd_atomic: by_hand.max_rd_atomic,
        };
        match engine.connect_by_hand(qp, by_hand.local, &receive, &send) {
            Ok(()) => {
                self.rings(session, qp)?.link = Link::ByHand;
                self.mark(qp);
                Ok(Readied::Done)
            }
            Err(NotReadied::Engine(error)) => Err(error),
            Err(refused) => Ok(Readied::Refused(refused.to_string())),
        }
    }

    /// Ends a queue pair that was set up by hand. Nobody tells the peer.
    pub(super) fn end_by_hand(
        &mut self,
        qp: u32,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        engine.modify_queue_pair(qp, &Transition::Error)?;
        if let Some((session, rings)) = self.queue_pairs.get_mut(&qp) {
            rings.link = Link::Ended;
            let reason = ErrorCode::Closed;
            let event = Event::Disconnected { qp, reason };
            self.notices.push(Notice::Event(*session, event));
        }
        self.mark(qp);
        Ok(())
    }
}
