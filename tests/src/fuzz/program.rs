//! A series of steps from one input.

/// Reads an input from the front; at its end everything is zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a>(&'a [u8]);

impl<'a> Program<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// A length of two bytes and as many bytes, or what is left of them.
    pub(super) fn block(&mut self) -> &'a [u8] {
        let len = usize::from(self.u16()).min(self.0.len());
        let (block, rest) = self.0.split_at(len);
        self.0 = rest;
        block
    }
}
