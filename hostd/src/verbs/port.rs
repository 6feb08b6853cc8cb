//! Ports: the network devices that an engine sends through.

/// A port of an engine, numbered from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(u8);

impl PortId {
    /// The port of this number, modulo 64.
    pub(crate) const fn new(number: u8) -> Self {
        Self(number % 64)
    }

    /// Its place in a table of ports.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some ports of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortSet(u64);

impl PortSet {
    /// No port.
    pub(crate) const NONE: Self = Self(0);

    /// These and `port`.
    #[must_use]
    pub(crate) const fn with(self, port: PortId) -> Self {
        Self(self.0 | 1 << port.0)
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The one with the lowest number.
    pub(crate) fn first(self) -> Option<PortId> {
        let number = u8::try_from(self.0.trailing_zeros()).ok()?;
        (number < 64).then_some(PortId(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_lowest_port() {
        assert_eq!(PortSet::NONE.first(), None);
        assert!(PortSet::NONE.is_empty());
        let both = PortSet::NONE.with(PortId::new(63)).with(PortId::new(3));
        assert_eq!(both.first().map(PortId::index), Some(3));
        assert!(!both.is_empty());
    }
}
