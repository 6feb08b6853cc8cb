//! Receives out of an application's ring, for a shared receive queue.

use super::queue_pair::{Broken, Remains, TURN, receive_request};
use super::statistics::EdgeStatistics;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{EngineError, ReceiveRequest, SharedQueueId};
use hostd_client::abi::descriptor::{ReceiveWork, WORK_LEN};
use hostd_client::abi::ring::Consumer;

/// A shared receive queue of an application.
#[derive(Debug)]
pub struct SharedRing {
    queue: SharedQueueId,
    ring: Consumer<WORK_LEN>,
    /// Taken and checked, but refused by the engine, which had no room.
    held: Option<ReceiveRequest>,
    /// Its bit in the doorbell page.
    pub slot: u32,
    /// The application broke the ring: it is not looked at any more.
    broken: bool,
}

impl SharedRing {
    /// The ring of `queue`.
    pub fn new(queue: SharedQueueId, ring: Consumer<WORK_LEN>, slot: u32) -> Self {
        Self {
            queue,
            ring,
            held: None,
            slot,
            broken: false,
        }
    }

    /// Hands receives over to the engine: each descriptor is copied once and checked.
    ///
    /// # Errors
    /// [`Broken`], once, if the application wrote what its library never would.
    pub fn serve<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
    ) -> Result<Remains, Broken> {
        if self.broken {
            return Ok(Remains::Nothing);
        }
        let served = self.take(engine, statistics);
        self.broken = served.is_err();
        self.ring.release();
        served
    }

    fn take<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
    ) -> Result<Remains, Broken> {
        for _ in 0..TURN {
            let request = match self.held.take() {
                Some(held) => held,
                None => match self.ring.pop()? {
                    Some(bytes) => receive_request(&ReceiveWork::parse(&bytes)?),
                    None => return Ok(Remains::Nothing),
                },
            };
            match engine.post_shared_receive(self.queue, request) {
                Ok(()) => statistics.receives += 1,
                Err(EngineError::QueueFull) => {
                    self.held = Some(request);
                    return Ok(Remains::Blocked);
                }
                Err(_) => return Err(Broken),
            }
        }
        Ok(Remains::More)
    }
}
