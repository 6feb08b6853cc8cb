//! Receives out of an application's ring, for a shared receive queue.

use super::queue_pair::Remains;
use super::statistics::EdgeStatistics;
use super::work::{Broken, Copies, TakenReceive};
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{EngineError, SharedQueueId};
use hostd_client::abi::descriptor::WORK_LEN;
use hostd_client::abi::ring::Consumer;
use hostd_client::shm::Mapping;
use std::sync::Arc;

/// A shared receive queue of an application.
#[derive(Debug)]
pub struct SharedRing {
    queue: SharedQueueId,
    ring: Consumer<WORK_LEN>,
    /// Taken and checked, but refused by the engine, which had no room.
    held: Option<TakenReceive>,
    /// What belongs to it, or to the one that was taken last.
    copies: Copies,
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
            copies: Copies::new(),
            slot,
            broken: false,
        }
    }

    /// The memory of the ring.
    pub fn into_memory(self) -> Arc<Mapping> {
        self.ring.into_memory()
    }

    /// Hands up to `most` receives over to the engine: each descriptor is copied once and checked.
    ///
    /// # Errors
    /// [`Broken`], once, if the application wrote what its library never would.
    pub fn serve<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        if self.broken {
            return Ok(Remains::Nothing);
        }
        let served = self.take(engine, statistics, most);
        self.broken = served.is_err();
        self.ring.release();
        served
    }

    fn take<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        for _ in 0..most {
            let taken = match self.held.take() {
                Some(held) => held,
                None => match self.copies.take_receive(&mut self.ring)? {
                    Some(taken) => taken,
                    None => return Ok(Remains::Nothing),
                },
            };
            let pieces = self.copies.pieces(&taken);
            match engine.post_shared_receive_into(self.queue, taken.wr_id, pieces) {
                Ok(()) => statistics.receives += 1,
                Err(EngineError::QueueFull) => {
                    self.held = Some(taken);
                    return Ok(Remains::Blocked);
                }
                Err(_) => return Err(Broken),
            }
        }
        Ok(Remains::More)
    }
}
