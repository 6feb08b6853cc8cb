//! SW-41: the arithmetic of collectives, beside a copy of the same bytes.
//!
//! Vectors of a chunk. Once as a switch has them: contributions in the frames of a ring, added to
//! the slots of a job, neither of which is in the first-level cache. And once the same two vectors
//! again and again, which are.

use crate::measure::{Better, Bound, Figure, Group, Subject, busy_time};
use reduce::{Element, Operation, reduce};
use std::hint::black_box;

/// Bytes of a vector: those of a chunk.
const LEN: usize = 1_400;

/// Vectors of a turn.
const VECTORS: usize = 200_000;

/// Frames of a ring, and the bytes from one to the next.
const FRAMES: usize = 2_048;
const FRAME: usize = 4_096;

/// Slots of a job in both versions.
const SLOTS: usize = 512;

/// What a sum of binary32 reaches at least of the copy, where a switch has them.
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
    groups: [Group; 2],
    slots: Vec<u8>,
    frames: Vec<u8>,
}

/// Makes the vectors.
///
/// # Errors
/// None.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let names = CONTENDERS.map(|(name, _)| name);
    let group = |title: &str| {
        let title = format!("vectors of {LEN} bytes, {title}");
        Group::beside_first(title, "GB/s", Better::High, &names)
    };
    let mut spread = group("from the frames of a ring to the slots of a job");
    spread.figures[F32 - 1] = Figure::ratio(&names, F32, 0, Some(Bound::AtLeast(LEAST)));
    // Zeros: whatever is done with them again and again, no float becomes subnormal.
    Ok(Box::new(Arithmetic {
        groups: [spread, group("both in the first-level cache")],
        slots: vec![0; SLOTS * LEN],
        frames: vec![0; FRAMES * FRAME],
    }))
}

impl Subject for Arithmetic {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let work = CONTENDERS[contender].1;
        let (slots, frames) = [(SLOTS, FRAMES), (1, 1)][group];
        let began = busy_time();
        for number in 0..VECTORS {
            let (slot, frame) = (number % slots * LEN, number % frames * FRAME);
            let into = black_box(&mut self.slots[slot..slot + LEN]);
            let from = black_box(&self.frames[frame..frame + LEN]);
            match work {
                Some((operation, element)) => {
                    reduce(operation, element, into, from).map_err(|error| error.to_string())?;
                }
                None => into.copy_from_slice(from),
            }
        }
        let busy = busy_time() - began;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let gigabytes = (VECTORS * LEN) as f64 / 1e9;
        Ok(gigabytes / busy.as_secs_f64())
    }
}
