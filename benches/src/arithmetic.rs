//! SW-41: the arithmetic of collectives, beside a copy of the same bytes.
//!
//! Vectors of a chunk, as a switch adds them: both are in the first-level cache.

use crate::measure::{Better, Bound, Figure, Group, Subject, busy_time};
use reduce::{Element, Operation, reduce};
use std::hint::black_box;

/// Bytes of a vector: those of a chunk.
const LEN: usize = 1_400;

/// Vectors of a turn.
const VECTORS: u32 = 400_000;

/// What a sum of binary32 reaches at least of the copy.
const LEAST: f64 = 0.5;

/// Who takes turns, and what it does; a copy does nothing else.
const CONTENDERS: [(&str, Option<(Operation, Element)>); 6] = [
    ("copy", None),
    ("f32, sum", Some((Operation::Sum, Element::F32))),
    ("f64, sum", Some((Operation::Sum, Element::F64))),
    ("i32, max", Some((Operation::Max, Element::I32))),
    ("f32, max", Some((Operation::Max, Element::F32))),
    ("bf16, sum", Some((Operation::Sum, Element::Bf16))),
];

/// Where the sum of binary32 stands in [`CONTENDERS`].
const F32: usize = 1;

/// The bench.
struct Arithmetic {
    groups: [Group; 1],
    into: Vec<u8>,
    from: Vec<u8>,
}

/// Makes the vectors.
///
/// # Errors
/// None.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let names = CONTENDERS.map(|(name, _)| name);
    let title = format!("vectors of {LEN} bytes, one added to the other");
    let mut group = Group::beside_first(title, "GB/s", Better::High, &names);
    group.figures[F32 - 1] = Figure::ratio(&names, F32, 0, Some(Bound::AtLeast(LEAST)));
    // Zeros: whatever is done with them again and again, no float becomes subnormal.
    Ok(Box::new(Arithmetic {
        groups: [group],
        into: vec![0; LEN],
        from: vec![0; LEN],
    }))
}

impl Subject for Arithmetic {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, _: usize, contender: usize) -> Result<f64, String> {
        let work = CONTENDERS[contender].1;
        let began = busy_time();
        for _ in 0..VECTORS {
            let (into, from) = (black_box(&mut self.into[..]), black_box(&self.from[..]));
            match work {
                Some((operation, element)) => {
                    reduce(operation, element, into, from).map_err(|error| error.to_string())?;
                }
                None => into.copy_from_slice(from),
            }
        }
        let busy = busy_time() - began;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let gigabytes = (u64::from(VECTORS) * LEN as u64) as f64 / 1e9;
        Ok(gigabytes / busy.as_secs_f64())
    }
}
