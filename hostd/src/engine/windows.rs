//! Memory windows, made and given back. Requests of queue pairs bind them and take them back.

use super::Engine;
use crate::memory::RegionMemory;
use crate::stats::WindowStatistics;
use crate::verbs::{DomainId, EngineError};

impl<M: RegionMemory> Engine<M> {
    /// Makes a memory window of type 2 that is not bound (`ibv_alloc_mw`): its number, and its
    /// first key, which opens nothing.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such domain. [`EngineError::TooMany`]: the table of
    /// windows is full.
    pub fn create_window(&mut self, domain: DomainId) -> Result<(u32, u32), EngineError> {
        self.domains.get(domain.0).ok_or(EngineError::Unknown)?;
        let window = self.regions.create_window(domain.0);
        window.ok_or(EngineError::TooMany)
    }

    /// How a window stands; `None` if there is no such window.
    pub fn window_statistics(&self, window: u32) -> Option<WindowStatistics> {
        self.regions.window(window)
    }

    /// Lets no window be bound any more to a region that is going to be deregistered.
    ///
    /// # Errors
    /// As those of [`Self::deregister`]; nothing has changed then.
    pub fn forbid_windows(&mut self, lkey: u32) -> Result<(), EngineError> {
        self.regions.forbid_windows(lkey)
    }

    /// Ends a window, bound or not.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such window.
    pub fn destroy_window(&mut self, window: u32) -> Result<(), EngineError> {
        if self.regions.destroy_window(window) {
            Ok(())
        } else {
            Err(EngineError::Unknown)
        }
    }
}
