//! The vectors, and what must come of them.
//!
//! Floats are small whole numbers, whose sums and products are exact in every order and every type:
//! at most 64 ranks × 2, and 2 to the power of 64 / 8. So each bit is compared, whatever the
//! algorithm.

use hostd_client::group::{Element, Operation};

/// What `rank` gives as element `index`, in `round`.
fn element(work: (Operation, Element), rank: usize, index: usize, round: usize) -> [u8; 8] {
    let (operation, element) = work;
    let mixed = (rank * 0x9e37 + index * 0x85eb + round * 0xc2b3) as u64;
    let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if !element.is_float() {
        return mixed.to_le_bytes();
    }
    let number = match operation {
        Operation::Product => 1 + u16::from((rank + index + round).is_multiple_of(8)),
        _ => u16::try_from(mixed >> 62).unwrap_or(0) % 3,
    };
    let single = f32::from(number).to_bits();
    let mut bytes = [0; 8];
    match element {
        Element::F64 => bytes = f64::from(number).to_le_bytes(),
        Element::F32 => bytes[..4].copy_from_slice(&single.to_le_bytes()),
        // The upper half of a binary32.
        Element::Bf16 => bytes[..2].copy_from_slice(&single.to_le_bytes()[2..]),
        // 0, 1 and 2 of binary16.
        _ => {
            let half: u16 = [0, 0x3c00, 0x4000][usize::from(number)];
            bytes[..2].copy_from_slice(&half.to_le_bytes());
        }
    }
    bytes
}

/// The vector of `rank`: `len` bytes, the last of which may be part of an element.
pub(crate) fn vector(work: (Operation, Element), rank: usize, len: usize, round: usize) -> Vec<u8> {
    let width = work.1.len();
    let mut bytes = Vec::with_capacity(len + width);
    for index in 0..len.div_ceil(width) {
        bytes.extend_from_slice(&element(work, rank, index, round)[..width]);
    }
    bytes.truncate(len);
    bytes
}

/// What must come of the vectors of `ranks` members.
pub(crate) fn reduced(
    work: (Operation, Element),
    ranks: usize,
    len: usize,
    round: usize,
) -> Vec<u8> {
    let (operation, element) = work;
    let mut result = vector(work, 0, len, round);
    for rank in 1..ranks {
        let other = vector(work, rank, len, round);
        reduce::reduce(operation, element, &mut result, &other)
            .expect("whole elements of a type that the operation takes");
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-41: a backwards fold gives the same bits, so no order of the ranks does not.
    #[test]
    fn no_order_changes_the_result() {
        for operation in Operation::ALL {
            for element in Element::ALL.into_iter().filter(|it| operation.takes(*it)) {
                let (work, ranks, len) = ((operation, element), 64, 64);
                let mut backwards = vector(work, ranks - 1, len, 3);
                for rank in (0..ranks - 1).rev() {
                    let other = vector(work, rank, len, 3);
                    reduce::reduce(operation, element, &mut backwards, &other).expect("whole");
                }
                assert_eq!(backwards, reduced(work, ranks, len, 3), "{work:?}");
            }
        }
        let sums = reduced((Operation::Sum, Element::F32), 64, 64, 0);
        assert!(sums.iter().any(|byte| *byte != 0), "something to compare");
        let one = vector((Operation::Product, Element::F16), 0, 4, 0);
        assert_eq!(one, [0x00, 0x40, 0x00, 0x3c], "2 and 1");
    }
}
