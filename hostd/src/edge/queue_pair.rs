//! Work requests out of an application's rings.

use super::statistics::EdgeStatistics;
use super::work::{Broken, Copies, TakenReceive, TakenSend};
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{CompletionQueueId, ConnectionId, EngineError, SharedQueueId};
use hostd_client::abi::descriptor::WORK_LEN;
use hostd_client::abi::options::ConnectionOptions;
use hostd_client::abi::ring::Consumer;
use hostd_client::shm::Mapping;
use std::sync::Arc;

/// Requests that one queue pair may hand over in a turn, per queue: bounds the turn, and keeps a
/// busy queue pair from pushing others aside.
pub(super) const TURN: u32 = 64;

/// Whether requests remain in the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// None do.
    Nothing,
    /// They could not be taken yet: the engine has no room for them, and tells when it has.
    Blocked,
    /// They could not be taken yet, for another reason.
    Waiting,
    /// There were more than a turn takes.
    More,
}

/// How far the connection of a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// In RESET: what is posted stays in the rings.
    Reset,
    /// No connection was asked for.
    None,
    /// Under way.
    Pending(ConnectionId),
    /// It stands.
    Up(ConnectionId),
    /// Set up by hand.
    ByHand,
    /// It has ended; what is posted is flushed.
    Ended,
    /// The application broke the rings.
    Broken,
}

/// A queue pair of an application.
#[derive(Debug)]
pub struct WorkRings {
    qpn: u32,
    send: Consumer<WORK_LEN>,
    receive: Consumer<WORK_LEN>,
    /// Taken and checked, but refused by the engine, which had no room.
    held_send: Option<TakenSend>,
    held_receive: Option<TakenReceive>,
    /// What belongs to these, or to those that were taken last.
    sends: Copies,
    receives: Copies,
    /// Where its requests complete: sends, receives.
    pub queues: [CompletionQueueId; 2],
    /// Where its receives come from, instead of its ring.
    pub shared: Option<SharedQueueId>,
    /// Its bit in the doorbell page.
    pub slot: u32,
    /// Its connection.
    pub link: Link,
    /// What that is to be like.
    pub options: ConnectionOptions,
}

impl WorkRings {
    /// The rings of queue pair `qpn`, whose requests complete in `queues`.
    pub fn new(
        qpn: u32,
        queues: [CompletionQueueId; 2],
        send: Consumer<WORK_LEN>,
        receive: Consumer<WORK_LEN>,
        slot: u32,
    ) -> Self {
        let (held_send, held_receive) = (None, None);
        let link = Link::None;
        Self {
            qpn,
            send,
            receive,
            held_send,
            held_receive,
            sends: Copies::new(),
            receives: Copies::new(),
            queues,
            shared: None,
            options: ConnectionOptions::default(),
            slot,
            link,
        }
    }

    /// The memory of the rings.
    pub fn into_memory(self) -> [Arc<Mapping>; 2] {
        [self.send.into_memory(), self.receive.into_memory()]
    }

    /// The connection, while there is one.
    pub fn connection(&self) -> Option<ConnectionId> {
        match self.link {
            Link::Pending(connection) | Link::Up(connection) => Some(connection),
            _ => None,
        }
    }

    /// The queue pair goes to RESET: what was posted is thrown away, and what was chosen for its
    /// connection.
    ///
    /// # Errors
    /// [`Broken`] if the application wrote what its library never would.
    pub fn reset(&mut self) -> Result<(), Broken> {
        self.held_send = None;
        self.held_receive = None;
        self.options = ConnectionOptions::default();
        self.link = Link::Reset;
        self.send.discard()?;
        self.receive.discard()?;
        Ok(())
    }

    /// Hands requests over to the engine, `most` of each kind: each descriptor is copied once and
    /// checked, and stays in this side's memory until the engine takes it.
    ///
    /// # Errors
    /// [`Broken`] if the application wrote what its library never would.
    pub fn serve<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        if matches!(self.link, Link::Broken | Link::Reset) {
            return Ok(Remains::Nothing);
        }
        let receives = self.serve_receives(engine, statistics, most)?;
        // As in verbs, nothing is sent before the connection stands; here it waits in the ring.
        let sends = match self.link {
            Link::Up(_) | Link::ByHand | Link::Ended => {
                self.serve_sends(engine, statistics, most)?
            }
            _ => Remains::Nothing,
        };
        Ok(match (receives, sends) {
            (Remains::More, _) | (_, Remains::More) => Remains::More,
            (Remains::Waiting, _) | (_, Remains::Waiting) => Remains::Waiting,
            (Remains::Blocked, _) | (_, Remains::Blocked) => Remains::Blocked,
            _ => Remains::Nothing,
        })
    }

    fn serve_sends<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        for _ in 0..most {
            let taken = match self.held_send.take() {
                Some(held) => held,
                None => match self.sends.take_send(&mut self.send)? {
                    Some(taken) => taken,
                    None => {
                        self.send.release();
                        return Ok(Remains::Nothing);
                    }
                },
            };
            let local = self.sends.local(&taken);
            match engine.post_send_of(self.qpn, taken.request, local) {
                Ok(()) => statistics.sends += 1,
                Err(error) => {
                    self.held_send = Some(taken);
                    self.send.release();
                    return match error {
                        EngineError::QueueFull | EngineError::CompletionQueueFull => {
                            Ok(Remains::Blocked)
                        }
                        // The connection is being closed. What is posted meanwhile waits for its
                        // end, and is flushed then.
                        EngineError::State => Ok(Remains::Waiting),
                        _ => Err(Broken),
                    };
                }
            }
        }
        self.send.release();
        Ok(Remains::More)
    }

    fn serve_receives<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        for _ in 0..most {
            let taken = match self.held_receive.take() {
                Some(held) => held,
                None => match self.receives.take_receive(&mut self.receive)? {
                    Some(taken) => taken,
                    None => {
                        self.receive.release();
                        return Ok(Remains::Nothing);
                    }
                },
            };
            let pieces = self.receives.pieces(&taken);
            match engine.post_receive_into(self.qpn, taken.wr_id, pieces) {
                Ok(()) => statistics.receives += 1,
                Err(EngineError::QueueFull | EngineError::CompletionQueueFull) => {
                    self.held_receive = Some(taken);
                    self.receive.release();
                    return Ok(Remains::Blocked);
                }
                Err(_) => return Err(Broken),
            }
        }
        self.receive.release();
        Ok(Remains::More)
    }
}
