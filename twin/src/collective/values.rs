//! The vectors of members, which are functions of their place, and what may come of them.

use super::Task;
use common::reduce::{Element, Operation, reduce, reduce_in_order};
use common::wire::compute::Work;

/// Bits of the mantissa, and the exponent of one as it is written.
fn format(element: Element) -> Option<(u32, u64)> {
    match element {
        Element::F16 => Some((10, 15)),
        Element::Bf16 => Some((7, 127)),
        Element::F32 => Some((23, 127)),
        Element::F64 => Some((52, 1023)),
        Element::I32 | Element::I64 | Element::U32 | Element::U64 => None,
    }
}

/// A number that follows from others (splitmix64).
fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// An element of any bits, but of floats one whose sums and products stay in range: for sums of
/// either sign and from 1/16 to 2, for products from 1 to 1 + 1/16.
fn element_bits(operation: Operation, element: Element, random: u64) -> u64 {
    let Some((mantissa, one)) = format(element) else {
        return random;
    };
    let fraction = random & ((1 << mantissa) - 1);
    if operation == Operation::Product {
        return one << mantissa | fraction >> 4;
    }
    let sign = random >> 63 << (8 * element.len() - 1);
    sign | (one - (random >> 60 & 3)) << mantissa | fraction
}

/// The bytes from `offset` on of the vector of a member.
pub fn fill(seed: u64, task: &Task, world: u16, offset: u64, into: &mut [u8]) {
    let (operation, element) = match task.work {
        Work::Allreduce(operation, element) | Work::Reduce(operation, element) => {
            (operation, element)
        }
        Work::Broadcast | Work::Barrier => (Operation::Xor, Element::U64),
    };
    let len = element.len();
    let own = mixed(seed ^ u64::from(world).rotate_left(48));
    let first = offset / len as u64;
    // Whole elements but for the ends of a broadcast, whose bytes need not be any.
    let skip = usize::try_from(offset % len as u64).expect("less than an element");
    let mut at = 0;
    for number in first.. {
        if at >= into.len() {
            return;
        }
        let bits = element_bits(operation, element, mixed(own ^ number));
        let bytes = bits.to_le_bytes();
        let from = if at == 0 { skip } else { 0 };
        let part = &bytes[from..len];
        let count = part.len().min(into.len() - at);
        into[at..at + count].copy_from_slice(&part[..count]);
        at += count;
    }
}

/// What comes of a piece of the vectors of all members, by leaf: each leaf adds its own in the
/// order of their ranks, the spine adds those of the leaves.
pub fn ordered(seed: u64, task: &Task, leaves: &[Vec<u16>], offset: u64, len: usize) -> Vec<u8> {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = task.work else {
        let mut out = vec![0; len];
        fill(seed, task, task.root, offset, &mut out);
        return out;
    };
    let sum = |vectors: &[Vec<u8>]| {
        let mut sum = vec![0; len];
        let done = reduce_in_order(
            operation,
            element,
            &mut sum,
            vectors.iter().map(|it| &it[..]),
        );
        done.expect("equally long, whole elements");
        sum
    };
    let of_leaf = |members: &Vec<u16>| {
        let vectors = members.iter().map(|world| {
            let mut vector = vec![0; len];
            fill(seed, task, *world, offset, &mut vector);
            vector
        });
        sum(&vectors.collect::<Vec<_>>())
    };
    sum(&leaves.iter().map(of_leaf).collect::<Vec<_>>())
}

/// Whether what comes of vectors depends on their order.
pub fn depends_on_order(task: &Task) -> bool {
    match task.work {
        Work::Allreduce(operation, element) | Work::Reduce(operation, element) => {
            operation.is_ordered(element)
        }
        Work::Broadcast | Work::Barrier => false,
    }
}

/// The float that an element is.
#[expect(clippy::cast_precision_loss, reason = "mantissas have 53 bits at most")]
fn float(element: Element, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    let (mantissa, one) = format(element).expect("a float");
    let top = 8 * bytes.len() - 1;
    let written = (bits >> mantissa) & ((1 << (top - mantissa as usize)) - 1);
    let fraction = (bits & ((1 << mantissa) - 1)) as f64 / (1_u64 << mantissa) as f64;
    let power = |written: u64| {
        let exponent = i32::try_from(written).expect("small") - i32::try_from(one).expect("small");
        libm::ldexp(1.0, exponent)
    };
    let size = match written {
        0 => fraction * power(1),
        _ if written == 2 * one + 1 => f64::INFINITY,
        _ => (1.0 + fraction) * power(written),
    };
    if bits >> top == 0 { size } else { -size }
}

/// The first element of a piece that no order of additions gives, if there is one: each rounds by
/// half of a last place at most.
#[expect(clippy::cast_precision_loss, reason = "few members")]
pub fn out_of_bounds(
    seed: u64,
    task: &Task,
    leaves: &[Vec<u16>],
    offset: u64,
    got: &[u8],
) -> Option<usize> {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = task.work else {
        return None;
    };
    let members: Vec<u16> = leaves.iter().flatten().copied().collect();
    let product = operation == Operation::Product;
    let count = got.len() / element.len();
    let first = if product { 1.0 } else { 0.0 };
    let mut sums = vec![(first, 0.0); count];
    let mut vector = vec![0; got.len()];
    for world in &members {
        fill(seed, task, *world, offset, &mut vector);
        for ((sum, sizes), bytes) in sums.iter_mut().zip(vector.chunks(element.len())) {
            let value = float(element, bytes);
            if product {
                *sum *= value;
            } else {
                (*sum, *sizes) = (*sum + value, *sizes + value.abs());
            }
        }
    }
    let (mantissa, _) = format(element)?;
    let half_place = libm::ldexp(1.0, -i32::try_from(mantissa).expect("small") - 1);
    // Twice, for the sums here are rounded, too.
    let roundings = 2.0 * members.len() as f64 * half_place;
    let mut pieces = sums.iter().zip(got.chunks(element.len()));
    pieces.position(|((sum, sizes), bytes)| {
        let bound = roundings * if product { sum.abs() } else { *sizes };
        let off = (float(element, bytes) - sum).abs();
        off.is_nan() || off > bound
    })
}

/// What comes of a piece when order does not matter, or is kept.
pub fn exact(seed: u64, task: &Task, leaves: &[Vec<u16>], offset: u64, len: usize) -> Vec<u8> {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = task.work else {
        return ordered(seed, task, leaves, offset, len);
    };
    if operation.is_ordered(element) {
        return ordered(seed, task, leaves, offset, len);
    }
    let mut members = leaves.iter().flatten();
    let (mut all, mut vector) = (vec![0; len], vec![0; len]);
    if let Some(world) = members.next() {
        fill(seed, task, *world, offset, &mut all);
    }
    for world in members {
        fill(seed, task, *world, offset, &mut vector);
        reduce(operation, element, &mut all, &vector).expect("equally long, whole elements");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(operation: Operation, element: Element) -> Task {
        let work = Work::Allreduce(operation, element);
        Task {
            work,
            len: 64,
            root: 0,
        }
    }

    /// SW-41: sums in any order are within the bound, those with one wrong bit of weight are not,
    /// and vectors are the same however they are cut.
    #[test]
    fn bounds_tell_right_sums_from_wrong_ones() {
        let leaves = [vec![0, 1, 2], vec![3, 4]];
        let other = [vec![4, 2], vec![3, 1, 0]];
        for operation in [Operation::Sum, Operation::Product] {
            for element in [Element::F16, Element::Bf16, Element::F32, Element::F64] {
                let task = task(operation, element);
                let sum = ordered(7, &task, &leaves, 64, 64);
                for order in [&leaves, &other] {
                    let found = out_of_bounds(7, &task, order, 64, &sum);
                    assert_eq!(found, None, "{operation:?} {element:?}");
                }
                let mut wrong = sum.clone();
                let last = 3 * element.len() - 1;
                wrong[last] ^= 0x10;
                let found = out_of_bounds(7, &task, &leaves, 64, &wrong);
                assert_eq!(found, Some(2), "{operation:?} {element:?}");
                let second = &ordered(7, &task, &leaves, 72, 56)[..];
                assert_eq!(&sum[8..], second);
            }
        }
        let whole = exact(7, &task(Operation::Xor, Element::U32), &leaves, 0, 64);
        let part = exact(7, &task(Operation::Xor, Element::U32), &other, 4, 60);
        assert_eq!(whole[4..], part);
        let mut bytes = [0; 11];
        let broadcast = Task {
            work: Work::Broadcast,
            len: 11,
            root: 1,
        };
        fill(7, &broadcast, 1, 0, &mut bytes);
        assert_eq!(exact(7, &broadcast, &leaves, 3, 8), bytes[3..]);
    }
}
