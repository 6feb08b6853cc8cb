//! What may be posted to a queue pair, by its state.

use crate::Error;
use crate::abi::types::ErrorCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// Nothing: in RESET.
const NOTHING: u8 = 0;
/// Receives: in INIT.
const RECEIVES: u8 = 1;
/// Sends, too: a connection was asked for, or the state changed.
const ALL: u8 = 2;

/// What may be posted. Futures change it through a shared reference.
#[derive(Debug)]
pub(crate) struct Stage(AtomicU8);

impl Default for Stage {
    fn default() -> Self {
        Self(AtomicU8::new(RECEIVES))
    }
}

impl Stage {
    /// The queue pair went to RESET.
    pub(crate) fn reset(&self) {
        self.0.store(NOTHING, Ordering::Relaxed);
    }

    /// It went to INIT.
    pub(crate) fn init(&self) {
        self.0.store(RECEIVES, Ordering::Relaxed);
    }

    /// It goes on from there.
    pub(crate) fn begin(&self) {
        self.0.store(ALL, Ordering::Relaxed);
    }

    /// Whether sends may be posted.
    pub(crate) fn may_send(&self) -> Result<(), Error> {
        match self.0.load(Ordering::Relaxed) {
            ALL => Ok(()),
            RECEIVES => Err(invalid("INIT: connect it before sends are posted")),
            _ => Err(invalid("RESET: take it to INIT before anything is posted")),
        }
    }

    /// Whether receives may be posted.
    pub(crate) fn may_receive(&self) -> Result<(), Error> {
        match self.0.load(Ordering::Relaxed) {
            NOTHING => Err(invalid("RESET: take it to INIT before anything is posted")),
            _ => Ok(()),
        }
    }
}

fn invalid(state: &str) -> Error {
    Error::Refused {
        code: ErrorCode::InvalidState,
        text: format!("the queue pair is in {state}"),
    }
}
