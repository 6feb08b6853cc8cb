//! Sets of ports.

use crate::id::PortId;
use crate::limits::MAX_PORTS;

/// A set of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSet([u64; MAX_PORTS / 64]);

impl PortSet {
    /// Adds a port.
    pub fn insert(&mut self, port: PortId) {
        if let Some(word) = self.0.get_mut(port.index() / 64) {
            *word |= 1 << (port.index() % 64);
        }
    }

    /// Removes a port.
    pub fn remove(&mut self, port: PortId) {
        if let Some(word) = self.0.get_mut(port.index() / 64) {
            *word &= !(1 << (port.index() % 64));
        }
    }

    /// Adds the ports of another one.
    pub fn unite(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(other.0);
        words.for_each(|(word, other)| *word |= other);
    }

    /// Removes what is not in another one.
    pub fn intersect(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(other.0);
        words.for_each(|(word, other)| *word &= other);
    }

    /// Whether it contains a port.
    #[inline]
    pub fn contains(&self, port: PortId) -> bool {
        let word = self.0.get(port.index() / 64);
        word.is_some_and(|word| word >> (port.index() % 64) & 1 != 0)
    }
}
