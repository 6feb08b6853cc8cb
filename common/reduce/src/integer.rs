//! Integers.

use crate::Operation;

/// One step on the elements of two vectors, pair by pair.
macro_rules! lanes {
    ($element:ty, $into:ident, $from:ident, $step:expr) => {{
        const LEN: usize = size_of::<$element>();
        let step = $step;
        let (into, _) = $into.as_chunks_mut::<LEN>();
        let (from, _) = $from.as_chunks::<LEN>();
        for (a, b) in into.iter_mut().zip(from) {
            let (x, y) = (<$element>::from_le_bytes(*a), <$element>::from_le_bytes(*b));
            *a = <$element>::to_le_bytes(step(x, y));
        }
    }};
}

pub(super) use lanes;

/// Reduces vectors of a type of integer.
macro_rules! integer {
    ($element:ident) => {
        pub(super) fn $element(operation: Operation, into: &mut [u8], from: &[u8]) {
            type E = $element;
            match operation {
                Operation::Sum => lanes!(E, into, from, E::wrapping_add),
                Operation::Product => lanes!(E, into, from, E::wrapping_mul),
                Operation::Min => lanes!(E, into, from, |a: E, b: E| a.min(b)),
                Operation::Max => lanes!(E, into, from, |a: E, b: E| a.max(b)),
                Operation::And => lanes!(E, into, from, |a: E, b: E| a & b),
                Operation::Or => lanes!(E, into, from, |a: E, b: E| a | b),
                Operation::Xor => lanes!(E, into, from, |a: E, b: E| a ^ b),
            }
        }
    };
}

integer!(i32);
integer!(i64);
integer!(u32);
integer!(u64);
