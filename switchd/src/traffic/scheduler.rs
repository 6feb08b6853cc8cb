//! Which queue is served next.

use crate::limits::CLASSES;

/// Strict priority: the highest class that has a packet goes first (IEEE 802.1Q clause 8.6.8.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct StrictPriority {
    /// Bit n is set while queue n holds a packet.
    occupied: u8,
}

const _: () = assert!(CLASSES == u8::BITS as usize, "a bit for each class");

impl StrictPriority {
    /// The class to serve, or `None` when all queues are empty.
    #[inline]
    pub fn next(&self) -> Option<usize> {
        (CLASSES - 1).checked_sub(self.occupied.leading_zeros() as usize)
    }

    /// Queue `class` holds a packet.
    #[inline]
    pub fn filled(&mut self, class: usize) {
        self.occupied |= 1 << class;
    }

    /// Queue `class` holds none any more.
    #[inline]
    pub fn emptied(&mut self, class: usize) {
        self.occupied &= !(1 << class);
    }
}
