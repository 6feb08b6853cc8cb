//! Ports: the network devices that an engine sends through.

use crate::limits;

/// A port of an engine, numbered from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(u8);

/// [`limits::PORTS`], as ports are numbered.
const PORTS: u8 = 4;
const _: () = assert!(PORTS as usize == limits::PORTS);

impl PortId {
    /// The only port of an engine that has one.
    pub const FIRST: Self = Self(0);

    /// The port of this number, modulo [`limits::PORTS`].
    pub const fn new(number: u8) -> Self {
        Self(number % PORTS)
    }

    /// The port at this place of a table of ports, if there can be one.
    pub fn at(index: usize) -> Option<Self> {
        let number = u8::try_from(index).ok()?;
        (number < PORTS).then_some(Self(number))
    }

    /// Its place in a table of ports.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some ports of an engine: bit n for port n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSet(u8);

impl PortSet {
    /// No port.
    pub const NONE: Self = Self(0);

    /// How many sets there are.
    pub(crate) const COUNT: usize = 1 << limits::PORTS;

    /// The first `count` ports.
    pub(crate) fn first_of(count: usize) -> Self {
        (0..PORTS)
            .take(count)
            .fold(Self::NONE, |set, number| set.with(PortId(number)))
    }

    /// The set at this place of a table of sets.
    pub(crate) fn at(place: usize) -> Self {
        Self(u8::try_from(place % Self::COUNT).expect("few sets"))
    }

    /// Its place in a table of sets.
    pub(crate) const fn place(self) -> usize {
        self.0 as usize
    }

    /// These and `port`.
    #[must_use]
    pub const fn with(self, port: PortId) -> Self {
        Self(self.0 | 1 << port.0)
    }

    /// These without `port`.
    #[must_use]
    pub(crate) const fn without(self, port: PortId) -> Self {
        Self(self.0 & !(1 << port.0))
    }

    /// These and those.
    #[must_use]
    pub(crate) const fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are in both.
    #[must_use]
    pub(crate) const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `port` is one of them.
    pub const fn contains(self, port: PortId) -> bool {
        self.0 & 1 << port.0 != 0
    }

    /// Whether one is in both.
    pub(crate) const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// The one with the lowest number.
    pub(crate) fn first(self) -> Option<PortId> {
        let number = u8::try_from(self.0.trailing_zeros()).ok()?;
        (number < PORTS).then_some(PortId(number))
    }

    /// All of them, by number.
    pub fn iter(self) -> impl Iterator<Item = PortId> {
        (0..PORTS)
            .map(PortId)
            .filter(move |port| self.contains(*port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_ports() {
        assert_eq!(PortSet::NONE.first(), None);
        assert!(PortSet::NONE.is_empty());
        let both = PortSet::NONE.with(PortId::new(3)).with(PortId::new(1));
        assert_eq!(both.first().map(PortId::index), Some(1));
        assert!(!both.is_empty() && both.contains(PortId::new(3)));
        assert_eq!(both.iter().collect::<Vec<_>>(), [PortId(1), PortId(3)]);
        assert_eq!(both.without(PortId::new(1)).first(), Some(PortId(3)));
        assert_eq!(PortSet::at(both.place()), both);
        assert!(both.meets(PortSet::first_of(2)) && !both.meets(PortSet::first_of(1)));
        assert_eq!(PortId::at(limits::PORTS), None);
    }
}
