//! Arithmetic on vectors of elements, for switches and for hosts that reduce among themselves
//! (SW-41).
//!
//! Elements are little-endian, as they lie in packets, and begin anywhere in memory. All is safe
//! code over arrays of fixed lengths, of which the compiler makes vector instructions.
//!
//! - Integers wrap.
//! - Sums and products of floats are those of IEEE 754, rounded to nearest, ties to even, after
//!   each step. A binary16 or bfloat16 is widened to binary32 for the step and rounded once:
//!   binary32 has more than twice as many bits, so this is the correctly rounded result.
//! - The minimum and the maximum of floats are those of IEEE 754-2019: NaN if one of both is, and
//!   −0 below +0. So they do not depend on the order.
//! - Infinities and NaN are added as IEEE 754 says.
//! - A NaN that comes of a step is the positive quiet one without a payload.

mod element;
mod float;
mod integer;
#[cfg(test)]
mod tests;

pub use element::{Element, Operation};

use std::fmt;

/// Why vectors are not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// They are not equally long, or not whole elements.
    Length {
        /// Bytes of the one that is added to.
        into: usize,
        /// Bytes of the other.
        from: usize,
        /// Their type.
        element: Element,
    },
    /// There is no such operation on such elements.
    Operation {
        /// The operation.
        operation: Operation,
        /// The type.
        element: Element,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length {
                into,
                from,
                element,
            } => write!(f, "vectors of {into} and {from} bytes of {element:?}"),
            Self::Operation { operation, element } => write!(f, "{operation:?} of {element:?}"),
        }
    }
}

impl std::error::Error for Error {}

/// Reduces `from` into `into`: each element of `into` becomes what comes of it and that of `from`,
/// in this order.
///
/// # Errors
/// If they are not equally long, not whole elements, or of a type on which there is no such
/// operation. Then nothing has changed.
pub fn reduce(
    operation: Operation,
    element: Element,
    into: &mut [u8],
    from: &[u8],
) -> Result<(), Error> {
    if into.len() != from.len() || !element.divides(into.len()) {
        let (into, from) = (into.len(), from.len());
        return Err(Error::Length {
            into,
            from,
            element,
        });
    }
    if !operation.takes(element) {
        return Err(Error::Operation { operation, element });
    }
    match element {
        Element::I32 => integer::i32(operation, into, from),
        Element::I64 => integer::i64(operation, into, from),
        Element::U32 => integer::u32(operation, into, from),
        Element::U64 => integer::u64(operation, into, from),
        Element::F16 => float::f16(operation, into, from),
        Element::Bf16 => float::bf16(operation, into, from),
        Element::F32 => float::f32(operation, into, from),
        Element::F64 => float::f64(operation, into, from),
    }
    Ok(())
}

/// Reduces vectors in the order of the iterator into `into`, whatever stood there: the same bits
/// for the same vectors. Without vectors nothing changes.
///
/// # Errors
/// As [`reduce`]; then `into` has what came of the vectors before.
pub fn reduce_in_order<'a>(
    operation: Operation,
    element: Element,
    into: &mut [u8],
    vectors: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Error> {
    let mut vectors = vectors.into_iter();
    let Some(first) = vectors.next() else {
        return Ok(());
    };
    if into.len() != first.len() {
        let (into, from) = (into.len(), first.len());
        return Err(Error::Length {
            into,
            from,
            element,
        });
    }
    into.copy_from_slice(first);
    for vector in vectors {
        reduce(operation, element, into, vector)?;
    }
    Ok(())
}
