//! Floats.

use super::integer::lanes;
use crate::Operation;
use half::slice::HalfFloatSliceExt;

/// The minimum and the maximum of a type of float, without branches. Of equal numbers only the
/// signs of zeros can differ: all bits of both are those of −0, the bits in common those of +0.
macro_rules! extremes {
    ($min:ident, $max:ident, $element:ident) => {
        #[inline]
        fn $min(a: $element, b: $element) -> $element {
            let equal = $element::from_bits(a.to_bits() | b.to_bits());
            let unequal = if a < b { a } else { b };
            let least = if a == b { equal } else { unequal };
            if a.is_nan() | b.is_nan() {
                $element::NAN
            } else {
                least
            }
        }

        #[inline]
        fn $max(a: $element, b: $element) -> $element {
            let equal = $element::from_bits(a.to_bits() & b.to_bits());
            let unequal = if a > b { a } else { b };
            let largest = if a == b { equal } else { unequal };
            if a.is_nan() | b.is_nan() {
                $element::NAN
            } else {
                largest
            }
        }
    };
}

extremes!(min_f32, max_f32, f32);
extremes!(min_f64, max_f64, f64);

/// The sum and the product of a type of float. Of two NaN a processor gives back the first, and
/// which that is the compiler chooses anew for each loop: so there is one NaN only.
macro_rules! arithmetic {
    ($sum:ident, $product:ident, $element:ident) => {
        #[inline]
        fn $sum(a: $element, b: $element) -> $element {
            let sum = a + b;
            if sum.is_nan() { $element::NAN } else { sum }
        }

        #[inline]
        fn $product(a: $element, b: $element) -> $element {
            let product = a * b;
            if product.is_nan() {
                $element::NAN
            } else {
                product
            }
        }
    };
}

arithmetic!(sum_f32, product_f32, f32);
arithmetic!(sum_f64, product_f64, f64);

/// Reduces vectors of a type of float. There are no operations on bits, which the caller knows.
macro_rules! float {
    ($element:ident, $sum:ident, $product:ident, $min:ident, $max:ident) => {
        pub(super) fn $element(operation: Operation, into: &mut [u8], from: &[u8]) {
            type E = $element;
            match operation {
                Operation::Sum => lanes!(E, into, from, $sum),
                Operation::Product => lanes!(E, into, from, $product),
                Operation::Min => lanes!(E, into, from, $min),
                Operation::Max => lanes!(E, into, from, $max),
                Operation::And | Operation::Or | Operation::Xor => (),
            }
        }
    };
}

float!(f32, sum_f32, product_f32, min_f32, max_f32);
float!(f64, sum_f64, product_f64, min_f64, max_f64);

/// A bfloat16 is the upper half of a binary32.
#[inline]
fn widened(narrow: u16) -> f32 {
    f32::from_bits(u32::from(narrow) << 16)
}

/// The nearest bfloat16, without branches, so that the compiler makes many at a time: half of the
/// last place is added, a bit less where the place is even, and what is below it is cut off.
#[inline]
pub(crate) fn narrowed(wide: f32) -> u16 {
    let bits = wide.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // Of a NaN either could make an infinity, so the quiet bit is set and nothing added.
    let upper = if wide.is_nan() {
        bits | 0x0040_0000
    } else {
        rounded
    };
    (upper >> 16) as u16
}

/// Reduces vectors of bfloat16.
pub(super) fn bf16(operation: Operation, into: &mut [u8], from: &[u8]) {
    macro_rules! steps {
        ($step:expr) => {
            lanes!(u16, into, from, |a, b| narrowed($step(
                widened(a),
                widened(b)
            )))
        };
    }
    match operation {
        Operation::Sum => steps!(sum_f32),
        Operation::Product => steps!(product_f32),
        Operation::Min => steps!(min_f32),
        Operation::Max => steps!(max_f32),
        Operation::And | Operation::Or | Operation::Xor => (),
    }
}

/// Elements of binary16 that are converted at a time, by the instructions that the processor has
/// for it: without them it is too much work for many at a time to be faster.
const BLOCK: usize = 64;

/// Reduces vectors of binary16.
pub(super) fn f16(operation: Operation, into: &mut [u8], from: &[u8]) {
    match operation {
        Operation::Sum => blocks(into, from, sum_f32),
        Operation::Product => blocks(into, from, product_f32),
        Operation::Min => blocks(into, from, min_f32),
        Operation::Max => blocks(into, from, max_f32),
        Operation::And | Operation::Or | Operation::Xor => (),
    }
}

fn blocks(into: &mut [u8], from: &[u8], step: impl Fn(f32, f32) -> f32) {
    const LEN: usize = 2 * BLOCK;
    for (into, from) in into.chunks_mut(LEN).zip(from.chunks(LEN)) {
        let (mut a, b) = (converted(into), converted(from));
        for (a, b) in a.iter_mut().zip(&b) {
            *a = step(*a, *b);
        }
        let mut narrow = [half::f16::ZERO; BLOCK];
        narrow.convert_from_f32_slice(&a);
        let (into, _) = into.as_chunks_mut();
        for (into, narrow) in into.iter_mut().zip(narrow) {
            *into = narrow.to_le_bytes();
        }
    }
}

fn converted(bytes: &[u8]) -> [f32; BLOCK] {
    let mut narrow = [half::f16::ZERO; BLOCK];
    let (elements, _) = bytes.as_chunks();
    for (narrow, bytes) in narrow.iter_mut().zip(elements) {
        *narrow = half::f16::from_le_bytes(*bytes);
    }
    let mut wide = [0.0; BLOCK];
    narrow.convert_to_f32_slice(&mut wide);
    wide
}
