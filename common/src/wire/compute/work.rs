//! Collectives. Their operations and types are those of the arithmetic.

use super::layout::refused;
use crate::wire::Result;
use reduce::{Element, Operation};

/// What is done with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// All get what comes of all vectors.
    Allreduce(Operation, Element),
    /// The root gets it; the others learn that it is done.
    Reduce(Operation, Element),
    /// All get the vector of the root.
    Broadcast,
    /// All learn that all have come here.
    Barrier,
}

impl Work {
    /// The two bytes of the header.
    pub(super) const fn bytes(self) -> [u8; 2] {
        match self {
            Self::Allreduce(operation, element) => [operation as u8, element as u8],
            Self::Reduce(operation, element) => [0x10 | operation as u8, element as u8],
            Self::Broadcast => [0x20, 0],
            Self::Barrier => [0x30, 0],
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// If there is no such collective, operation or type, or no such operation on the type.
    pub(super) fn read([work, element]: [u8; 2]) -> Result<Self> {
        match (work >> 4, work & 0xf, element) {
            (0, operation, element) => pair(operation, element)
                .map(|(operation, element)| Self::Allreduce(operation, element)),
            (1, operation, element) => pair(operation, element)
                .map(|(operation, element)| Self::Reduce(operation, element)),
            (2, 0, 0) => Ok(Self::Broadcast),
            (3, 0, 0) => Ok(Self::Barrier),
            _ => Err(refused("collective", work.into())),
        }
    }
}

/// An operation and the type that it is done on.
fn pair(operation: u8, element: u8) -> Result<(Operation, Element)> {
    let found = Operation::ALL.into_iter().find(|it| *it as u8 == operation);
    let operation = found.ok_or_else(|| refused("operation", operation.into()))?;
    let found = Element::ALL.into_iter().find(|it| *it as u8 == element);
    let found = found.filter(|element| operation.takes(*element));
    let element = found.ok_or_else(|| refused("element", element.into()))?;
    Ok((operation, element))
}
