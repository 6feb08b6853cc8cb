//! The vectors of members, which are functions of their place, and what may come of them.

use super::{Branch, Seating, Task};
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

/// What is special about a place in the vectors of floats, the same at all members. The result
/// follows from it whatever the order, as the page has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// Some members have NaN: so has the result.
    Nan,
    /// Some have an infinity, all of one sign.
    Infinity,
    /// Some have one infinity, some the other; of products some have zero instead: NaN.
    Opposites,
    /// All have zeros of either sign, or all have −0; of products some have zeros.
    Zeros,
    /// All have subnormal numbers, so small that sums of all of them are exact; of products, which
    /// would be rounded, zeros.
    Subnormal,
}

impl Special {
    /// One of 16 places is special.
    fn of(place: u64) -> Option<Self> {
        if place >> 60 != 0 {
            return None;
        }
        Some(match place >> 8 & 7 {
            0 => Self::Nan,
            1 | 2 => Self::Infinity,
            3 => Self::Opposites,
            4 | 5 => Self::Zeros,
            _ => Self::Subnormal,
        })
    }

    /// The bits of a member whose own random number this is; `ordinary` are those that it would
    /// have else.
    fn bits(
        self,
        (operation, element): (Operation, Element),
        (place, own): (u64, u64),
        ordinary: u64,
    ) -> u64 {
        let Some((mantissa, one)) = format(element) else {
            return ordinary;
        };
        let infinity = (2 * one + 1) << mantissa;
        let sign = |bit: u64| (bit & 1) << (8 * element.len() - 1);
        let is_product = operation == Operation::Product;
        // A quarter of the members.
        let is_some = own >> 56 & 3 == 0;
        match self {
            Self::Zeros | Self::Subnormal if is_product && !is_some => ordinary,
            Self::Zeros if place & 1 == 0 => sign(1),
            Self::Zeros => sign(own),
            Self::Subnormal if is_product => sign(own),
            // Sums of 64 of them are below 2 to the power of the mantissa's bits.
            Self::Subnormal => sign(own) | (own >> 1 & ((1 << mantissa) - 1)) >> 6,
            _ if !is_some => ordinary,
            Self::Nan => infinity | 1 << (mantissa - 1),
            Self::Infinity => sign(place) | infinity,
            Self::Opposites if is_product && own & 1 == 0 => 0,
            Self::Opposites => sign(own) | infinity,
        }
    }
}

/// An element of any bits, but of floats one whose sums and products stay in range: for sums of
/// either sign and from 1/16 to 2, for products from 1 to 1 + 1/16; or a special one. `place` is
/// the same at all members.
fn element_bits(operation: Operation, element: Element, place: u64, random: u64) -> u64 {
    let Some((mantissa, one)) = format(element) else {
        return random;
    };
    let fraction = random & ((1 << mantissa) - 1);
    let ordinary = if operation == Operation::Product {
        one << mantissa | fraction >> 4
    } else {
        let sign = random >> 63 << (8 * element.len() - 1);
        sign | (one - (random >> 60 & 3)) << mantissa | fraction
    };
    match Special::of(place) {
        Some(special) => special.bits((operation, element), (place, random), ordinary),
        None => ordinary,
    }
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
    let places = mixed(!seed);
    let first = offset / len as u64;
    // Whole elements but for the ends of a broadcast, whose bytes need not be any.
    let skip = usize::try_from(offset % len as u64).expect("less than an element");
    let mut at = 0;
    for number in first.. {
        if at >= into.len() {
            return;
        }
        let place = mixed(places ^ number);
        let bits = element_bits(operation, element, place, mixed(own ^ number));
        let bytes = bits.to_le_bytes();
        let from = if at == 0 { skip } else { 0 };
        let part = &bytes[from..len];
        let count = part.len().min(into.len() - at);
        into[at..at + count].copy_from_slice(&part[..count]);
        at += count;
    }
}

/// Who adds what to what in a deterministic job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// World ranks by leaf.
    pub leaves: Vec<Vec<u16>>,
    /// The levels above, the nearest first: what each branch adds, by places in the level below.
    pub above: Vec<Vec<Vec<usize>>>,
}

impl Order {
    /// That of a job.
    pub fn of(seating: &Seating) -> Self {
        let below = |level: &Vec<Branch>| level.iter().map(|it| it.below.clone()).collect();
        Self {
            leaves: seating.leaves.iter().map(|it| it.1.clone()).collect(),
            above: seating.above.iter().map(below).collect(),
        }
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = u16> {
        self.leaves.iter().flatten().copied()
    }
}

/// What comes of a piece of the vectors of all members: each leaf adds its own in the order of
/// their ranks, and what is above adds those of the leaves.
pub fn ordered(seed: u64, task: &Task, order: &Order, offset: u64, len: usize) -> Vec<u8> {
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
    let mut sums: Vec<Vec<u8>> = order.leaves.iter().map(of_leaf).collect();
    for level in &order.above {
        let of_branch = |below: &Vec<usize>| {
            let vectors = below.iter().map(|place| sums[*place].clone());
            sum(&vectors.collect::<Vec<_>>())
        };
        sums = level.iter().map(of_branch).collect();
    }
    sums.swap_remove(0)
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
        _ if written == 2 * one + 1 && fraction == 0.0 => f64::INFINITY,
        _ if written == 2 * one + 1 => f64::NAN,
        _ => (1.0 + fraction) * power(written),
    };
    if bits >> top == 0 { size } else { -size }
}

/// The first element of a piece that no order of additions gives, if there is one: each rounds by
/// half of a last place at most. NaN, infinities and signs of zeros are the same in any order.
#[expect(clippy::cast_precision_loss, reason = "few members")]
pub fn out_of_bounds(
    seed: u64,
    task: &Task,
    order: &Order,
    offset: u64,
    got: &[u8],
) -> Option<usize> {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = task.work else {
        return None;
    };
    let members: Vec<u16> = order.members().collect();
    let product = operation == Operation::Product;
    let count = got.len() / element.len();
    // Nothing changes by these, not even the sign of a zero.
    let first = if product { 1.0 } else { -0.0 };
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
    let (mantissa, one) = format(element)?;
    // Below it nothing is rounded.
    let smallest = libm::ldexp(1.0, 1 - i32::try_from(one).expect("small"));
    let half_place = libm::ldexp(1.0, -i32::try_from(mantissa).expect("small") - 1);
    // Twice, for the sums here are rounded, too.
    let roundings = 2.0 * members.len() as f64 * half_place;
    let mut pieces = sums.iter().zip(got.chunks(element.len()));
    pieces.position(|((sum, sizes), bytes)| {
        let size = if product { sum.abs() } else { *sizes };
        let found = float(element, bytes);
        let is_right = if sum.is_nan() {
            found.is_nan()
        } else if sum.is_infinite() || size < smallest {
            found.to_bits() == sum.to_bits()
        } else {
            (found - sum).abs() <= roundings * size
        };
        !is_right
    })
}

/// Whether a piece of a result is another one. Which NaN a sum or product is, is not promised.
pub fn is_same(task: &Task, one: &[u8], other: &[u8]) -> bool {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = task.work else {
        return one == other;
    };
    let is_nan = |bytes: &[u8]| float(element, bytes).is_nan();
    let mut pairs = one.chunks(element.len()).zip(other.chunks(element.len()));
    one == other
        || operation.is_ordered(element)
            && one.len() == other.len()
            && pairs.all(|(one, other)| one == other || is_nan(one) && is_nan(other))
}

/// What comes of a piece when order does not matter, or is kept.
pub fn exact(seed: u64, task: &Task, order: &Order, offset: u64, len: usize) -> Vec<u8> {
    let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = task.work else {
        return ordered(seed, task, order, offset, len);
    };
    if operation.is_ordered(element) {
        return ordered(seed, task, order, offset, len);
    }
    let mut members = order.members();
    let (mut all, mut vector) = (vec![0; len], vec![0; len]);
    if let Some(world) = members.next() {
        fill(seed, task, world, offset, &mut all);
    }
    for world in members {
        fill(seed, task, world, offset, &mut vector);
        reduce(operation, element, &mut all, &vector).expect("equally long, whole elements");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves and one level above them.
    fn two_levels(leaves: &[Vec<u16>]) -> Order {
        Order {
            leaves: leaves.to_vec(),
            above: vec![vec![(0..leaves.len()).collect()]],
        }
    }

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
        let leaves = two_levels(&[vec![0, 1, 2], vec![3, 4]]);
        let other = two_levels(&[vec![4, 2], vec![3, 1, 0]]);
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

    /// SW-41: what is special about a place is the result's, whatever the order: NaN, infinities,
    /// zeros and subnormal numbers; and another result is noticed.
    #[test]
    fn special_places_have_results_of_their_own() {
        let leaves = two_levels(&[(0..5).collect(), (5..9).collect()]);
        let other = two_levels(&[vec![8, 1, 5, 3], vec![0, 7, 6, 2, 4]]);
        let mut found = std::collections::BTreeSet::new();
        for operation in [
            Operation::Sum,
            Operation::Product,
            Operation::Min,
            Operation::Max,
        ] {
            for element in [Element::F16, Element::Bf16, Element::F32, Element::F64] {
                let task = task(operation, element);
                let whole = element.len();
                let of = |order: &Order| exact(7, &task, order, 0, 4096 * whole);
                let [result, in_another_order] = [of(&leaves), of(&other)];
                let is_special = |place: usize| Special::of(mixed(mixed(!7) ^ place as u64));
                for (place, bytes) in result.chunks(whole).enumerate() {
                    let Some(special) = is_special(place) else {
                        continue;
                    };
                    let float = float(element, bytes);
                    found.insert((format!("{special:?}"), format!("{:?}", float.classify())));
                    let offset = (place * whole) as u64;
                    let judge = |bytes: &[u8]| match operation.is_ordered(element) {
                        true => out_of_bounds(7, &task, &leaves, offset, bytes).is_none(),
                        false => is_same(&task, &exact(7, &task, &leaves, offset, whole), bytes),
                    };
                    let what = format!("{operation:?} {element:?} {special:?}: {float}");
                    assert!(judge(bytes), "{what}");
                    let other = &in_another_order[place * whole..][..whole];
                    assert!(judge(other), "{what}");
                    let of_some = matches!(
                        special,
                        Special::Nan | Special::Infinity | Special::Opposites
                    );
                    if of_some && float.is_normal() {
                        // None of these members has what some may have: it is a number of many.
                        continue;
                    }
                    let mut wrong = bytes.to_vec();
                    // Of zeros, infinities and numbers the sign; what is NaN becomes a number.
                    let bit = if float.is_nan() { 0x40 } else { 0x80 };
                    wrong[whole - 1] ^= bit;
                    assert!(!judge(&wrong), "{what}");
                }
            }
        }
        for pair in [
            ("Nan", "Nan"),
            ("Infinity", "Infinite"),
            ("Opposites", "Nan"),
            ("Zeros", "Zero"),
            ("Subnormal", "Zero"),
        ] {
            let pair = (pair.0.to_owned(), pair.1.to_owned());
            assert!(found.contains(&pair), "{pair:?} of {found:?}");
        }
    }
}
