//! Which flows are elephants, and where they go.

use crate::limits::CLASSES;
use common::time::Span;
use common::units::Rate;

/// Least threshold: two of the longest frames that a packet buffer holds, so that no flow is an
/// elephant at its first packets.
pub const MIN_BYTES: u64 = 2 * 4096;

/// Greatest threshold: 86 ms of a 100 Gbit/s port. A larger one would help mice too late.
pub const MAX_BYTES: u64 = 1 << 30;

/// When a flow that has become an elephant moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// When none of its packets is in the queue any more; in a queue that is never empty it may
    /// take until the flow pauses.
    Drained,
    /// At once; its packets in the lower queue wait at a gate, which the scheduler has to ask.
    Gated,
}

/// A class whose elephants are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The class whose flows are followed.
    pub from: u8,
    /// The queue of its elephants: lower than `from`, and lossless if that is.
    pub to: u8,
    /// A flow is an elephant when over some time t it sent more than `bytes` + `rate` × t, and a
    /// mouse again when it fell as much behind `rate`. [`MIN_BYTES`] to [`MAX_BYTES`].
    pub bytes: u64,
    /// What a mouse may send for ever. Zero counts bytes alone; then only ageing makes mice of
    /// elephants.
    pub rate: Rate,
    /// A flow that sends nothing for this long is forgotten and counts as a mouse. More than zero.
    pub ageing: Span,
    /// When it moves.
    pub moves: Moves,
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There is no such class.
    #[error("elephants: class {0} does not exist; classes are 0 to 7")]
    NoClass(u8),
    /// The queue for elephants is not lower than that of the class.
    #[error("elephants: those of class {from} cannot go to class {to}, which is not lower")]
    NotLower {
        /// The class that is watched.
        from: u8,
        /// Where its elephants were to go.
        to: u8,
    },
    /// The threshold is out of range.
    #[error(
        "elephants of class {from}: threshold is {bytes} bytes; possible are {MIN_BYTES} to {MAX_BYTES}"
    )]
    Bytes {
        /// The class that is watched.
        from: u8,
        /// Its threshold.
        bytes: u64,
    },
    /// Every flow would always be forgotten.
    #[error("elephants of class {from}: ageing is 0; it must be more")]
    Ageing {
        /// The class that is watched.
        from: u8,
    },
    /// A class is watched twice.
    #[error("elephants: class {0} is named twice")]
    Twice(u8),
    /// Two classes have one queue for their elephants; a queue can wait for one other only.
    #[error(
        "elephants of classes {first} and {second} go to class {to}; one of them must go elsewhere"
    )]
    Shared {
        /// A class that is watched.
        first: u8,
        /// Another.
        second: u8,
        /// Where both send elephants.
        to: u8,
    },
}

impl Settings {
    /// Looks at this class alone.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn check(&self) -> Result<(), SettingsError> {
        let &Self {
            from, to, bytes, ..
        } = self;
        if let Some(&class) = [from, to]
            .iter()
            .find(|class| usize::from(**class) >= CLASSES)
        {
            return Err(SettingsError::NoClass(class));
        }
        if to >= from {
            return Err(SettingsError::NotLower { from, to });
        }
        if !(MIN_BYTES..=MAX_BYTES).contains(&bytes) {
            return Err(SettingsError::Bytes { from, bytes });
        }
        if self.ageing == Span::ZERO {
            return Err(SettingsError::Ageing { from });
        }
        Ok(())
    }
}

/// Looks at each class and at all of them together.
///
/// # Errors
/// The first that is wrong.
pub fn check(all: &[Settings]) -> Result<(), SettingsError> {
    for (place, settings) in all.iter().enumerate() {
        settings.check()?;
        for other in &all[..place] {
            if other.from == settings.from {
                return Err(SettingsError::Twice(settings.from));
            }
            if other.to == settings.to {
                return Err(SettingsError::Shared {
                    first: other.from,
                    second: settings.from,
                    to: settings.to,
                });
            }
        }
    }
    Ok(())
}
