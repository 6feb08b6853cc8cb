//! SW-41: every operation on every type against an oracle that computes element by element in wider
//! types.

use super::*;
use proptest::prelude::*;

/// What an element must become. Integers are computed in 128 bits and cut; floats in binary64,
/// whose one rounding to the type is right for sums and products of all but binary64 itself.
fn expected(operation: Operation, element: Element, a: &[u8], b: &[u8]) -> Vec<u8> {
    let len = element.len();
    let float = |bytes: &[u8]| match element {
        Element::F16 => half::f16::from_le_bytes(bytes.try_into().expect("two")).to_f64(),
        Element::Bf16 => half::bf16::from_le_bytes(bytes.try_into().expect("two")).to_f64(),
        Element::F32 => f32::from_le_bytes(bytes.try_into().expect("four")).into(),
        _ => f64::from_le_bytes(bytes.try_into().expect("eight")),
    };
    if element.is_float() {
        let (x, y) = (float(a), float(b));
        let by_total_order = |first| if x.total_cmp(&y) == first { x } else { y };
        let result = match operation {
            Operation::Sum => x + y,
            Operation::Product => x * y,
            _ if x.is_nan() || y.is_nan() => f64::NAN,
            Operation::Min => by_total_order(std::cmp::Ordering::Less),
            _ => by_total_order(std::cmp::Ordering::Greater),
        };
        let result = if result.is_nan() { f64::NAN } else { result };
        return match element {
            Element::F16 => half::f16::from_f64(result).to_le_bytes().to_vec(),
            Element::Bf16 => half::bf16::from_f64(result).to_le_bytes().to_vec(),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the rounding that is meant"
            )]
            Element::F32 => (result as f32).to_le_bytes().to_vec(),
            _ => result.to_le_bytes().to_vec(),
        };
    }
    let mut wide = [[0_u8; 16]; 2];
    for (wide, bytes) in wide.iter_mut().zip([a, b]) {
        let is_signed = matches!(element, Element::I32 | Element::I64);
        let is_negative = is_signed && bytes[len - 1] & 0x80 != 0;
        wide.fill(if is_negative { 0xff } else { 0 });
        wide[..len].copy_from_slice(bytes);
    }
    let [x, y] = wide.map(i128::from_le_bytes);
    let result = match operation {
        Operation::Sum => x.wrapping_add(y),
        Operation::Product => x.wrapping_mul(y),
        Operation::Min => x.min(y),
        Operation::Max => x.max(y),
        Operation::And => x & y,
        Operation::Or => x | y,
        Operation::Xor => x ^ y,
    };
    result.to_le_bytes()[..len].to_vec()
}

/// Compares every operation on every type with the oracle.
fn compare(a: &[u8], b: &[u8]) {
    for element in Element::ALL {
        let len = a.len().min(b.len()) / element.len() * element.len();
        for operation in Operation::ALL {
            let (mut into, from) = (a[..len].to_vec(), &b[..len]);
            let done = reduce(operation, element, &mut into, from);
            if !operation.takes(element) {
                assert_eq!(done, Err(Error::Operation { operation, element }));
                assert_eq!(into, a[..len]);
                continue;
            }
            assert_eq!(done, Ok(()));
            for at in (0..len).step_by(element.len()) {
                let end = at + element.len();
                let wanted = expected(operation, element, &a[at..end], &b[at..end]);
                let found = &into[at..end];
                let (a, b) = (&a[at..end], &b[at..end]);
                assert!(
                    wanted == found,
                    "{operation:?} {element:?}: {a:?} {b:?} is {found:?}, not {wanted:?}"
                );
            }
        }
    }
}

/// SW-41: binary32 is narrowed to bfloat16 as the crate `half` does it: numbers next to each
/// bfloat16, those half way to the next one, and those next to these; and others in steps.
#[test]
fn bfloat16_is_the_nearest() {
    let check = |bits: u32| {
        let wanted = half::bf16::from_f32(f32::from_bits(bits)).to_bits();
        let found = float::narrowed(f32::from_bits(bits));
        assert_eq!(found, wanted, "{bits:x}");
    };
    for narrow in 0..=u16::MAX {
        for beyond in [0, 0x8000] {
            for near in [u32::MAX, 0, 1] {
                let wide = u32::from(narrow) << 16;
                check(wide.wrapping_add(beyond).wrapping_add(near));
            }
        }
    }
    (0..=u32::MAX).step_by(997).for_each(check);
}

proptest! {
    /// SW-41: any bits.
    #[test]
    fn any_bits_are_reduced_as_by_the_oracle(
        pairs in prop::collection::vec(any::<(u64, u64)>(), 0..40)
    ) {
        let (a, b): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        let bytes = |all: Vec<u64>| all.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
        compare(&bytes(a), &bytes(b));
    }
}

/// SW-41: every pair of the numbers at which floats are peculiar, at every type.
#[test]
fn peculiar_numbers_are_reduced_as_by_the_oracle() {
    let halves: Vec<u16> = vec![
        0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0x7c00, 0xfc00,
        0x7e00, 0xfe00, 0x7c01, 0x3f80, 0xbf80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x0080,
    ];
    let words: Vec<u32> = [
        0,
        1,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f80_0001,
    ]
    .into_iter()
    .chain([
        0x3f80_0000,
        0x3f80_0001,
        0x7f7f_ffff,
        0x0080_0000,
        0x8000_0001,
        u32::MAX,
    ])
    .collect();
    let doubles = [
        0.0,
        -0.0,
        1.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
        f64::INFINITY,
    ];
    let doubles = doubles.into_iter().flat_map(|it| [it, -it]);
    let doubles: Vec<u64> = doubles.chain([f64::NAN]).map(f64::to_bits).collect();
    compare_all(halves.iter().map(|it| it.to_le_bytes().to_vec()).collect());
    compare_all(words.iter().map(|it| it.to_le_bytes().to_vec()).collect());
    compare_all(doubles.iter().map(|it| it.to_le_bytes().to_vec()).collect());
}

/// Every pair of these.
fn compare_all(all: Vec<Vec<u8>>) {
    for a in &all {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for b in &all {
            left.extend(a);
            right.extend(b);
        }
        compare(&left, &right);
    }
}

/// SW-41: vectors that do not go together are refused, and nothing has changed.
#[test]
fn lengths_that_do_not_go_together_are_refused() {
    let mut into = [1, 2, 3, 4, 5, 6];
    let before = into;
    for (element, len) in [(Element::U32, 6), (Element::U32, 4), (Element::F16, 4)] {
        let from = vec![9; len];
        assert!(matches!(
            reduce(Operation::Sum, element, &mut into, &from),
            Err(Error::Length { .. })
        ));
        assert_eq!(into, before);
    }
    let shorter: [&[u8]; 1] = [&[1, 2]];
    let done = reduce_in_order(Operation::Sum, Element::U32, &mut into, shorter);
    assert!(matches!(done, Err(Error::Length { .. })));
}

/// SW-43: in a given order the bits are given, and they are those of one step after the other.
#[test]
fn vectors_in_order_have_one_result() {
    let all = [1e8_f32, 1.0, -1e8, 0.5].map(f32::to_le_bytes);
    let mut in_order = [0xff; 4];
    let vectors = || all.iter().map(|it| &it[..]);
    reduce_in_order(Operation::Sum, Element::F32, &mut in_order, vectors()).expect("they fit");
    assert_eq!(f32::from_le_bytes(in_order), ((1e8 + 1.0) + -1e8) + 0.5);
    let mut backwards = [0; 4];
    let reversed = vectors().rev();
    reduce_in_order(Operation::Sum, Element::F32, &mut backwards, reversed).expect("they fit");
    assert_ne!(in_order, backwards, "the order is seen");
    let before = backwards;
    reduce_in_order(Operation::Sum, Element::F32, &mut backwards, []).expect("nothing to do");
    assert_eq!(backwards, before);
}
