//! SW-41, SW-42: the arithmetic of collectives, beside a copy of the same bytes, and what a switch
//! does to a contribution before: it reads the message, whose checksum has to be right, and with
//! keys makes the tag that it has to have.
//!
//! Vectors of a chunk, which lie in messages. Once as a switch has them: contributions in the
//! frames of a ring, added to the slots of a job, neither of which is in the first-level cache. And
//! once the same two vectors again and again, which are.

use crate::measure::{Better, Bound, Figure, Group, Subject, busy_time};
use common::wire::compute::{
    Chunk, Flags, HEADER_LEN, Key, Message, PAYLOAD_MAX, Packet, Slot, Work,
};
use reduce::{Element, Operation, reduce};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of a vector: those of a chunk.
const LEN: usize = PAYLOAD_MAX;

/// Vectors of a turn.
const VECTORS: usize = 200_000;

/// Frames of a ring, and the bytes from one to the next.
const FRAMES: usize = 2_048;
const FRAME: usize = 4_096;

/// The addresses of a member and of its switch.
const ENDS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254)),
];

/// Slots of a job in both versions.
const SLOTS: usize = 512;

/// What a sum of binary32 reaches at least of the copy, where a switch has them.
const LEAST: f64 = 0.5;

/// What a contender does with a vector.
#[derive(Clone, Copy)]
enum Doing {
    Copy,
    Reduce(Operation, Element),
    /// Reads the message, looks at its tag if it has one, and adds.
    CheckAndSum,
    CheckTagAndSum,
}

/// Who takes turns, and what it does.
const CONTENDERS: [(&str, Doing); 9] = [
    ("copy", Doing::Copy),
    ("f32, sum", Doing::Reduce(Operation::Sum, Element::F32)),
    ("f64, sum", Doing::Reduce(Operation::Sum, Element::F64)),
    ("i32, max", Doing::Reduce(Operation::Max, Element::I32)),
    ("f32, max", Doing::Reduce(Operation::Max, Element::F32)),
    ("bf16, sum", Doing::Reduce(Operation::Sum, Element::Bf16)),
    ("f16, sum", Doing::Reduce(Operation::Sum, Element::F16)),
    ("f32, check and sum", Doing::CheckAndSum),
    ("f32, check, tag and sum", Doing::CheckTagAndSum),
];

/// The secret of the fabric, and a job.
const SECRET: [u8; 32] = [7; 32];
const JOB: u32 = 1;

/// Where the sum of binary32 stands in [`CONTENDERS`].
const F32: usize = 1;

/// The bench.
struct Arithmetic {
    groups: [Group; 2],
    slots: Vec<u8>,
    frames: Vec<u8>,
    key: Key,
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
    let key = Key::of_job(&SECRET, JOB);
    let mut frames = vec![0; FRAMES * FRAME];
    for (frame, sequence) in frames.chunks_mut(FRAME).zip(0..) {
        write(sequence, &key, frame)?;
    }
    Ok(Box::new(Arithmetic {
        groups: [spread, group("both in the first-level cache")],
        slots: vec![0; SLOTS * LEN],
        frames,
        key,
    }))
}

/// Writes a contribution. Zeros: whatever is done with them again and again, no float becomes
/// subnormal.
fn write(sequence: u64, key: &Key, frame: &mut [u8]) -> Result<(), String> {
    let chunk = Chunk {
        work: Work::Allreduce(Operation::Sum, Element::F32),
        slot: Slot::of(sequence, 256),
        sequence,
        contributions: 1,
        complete: 0,
        data: &[0; LEN],
    };
    let packet = Packet {
        flags: Flags::default(),
        job: JOB,
        epoch: 1,
        rank: 0,
        message: Message::Contribution(chunk),
    };
    let written = packet.write(Some(key.between(ENDS[0], ENDS[1])), frame);
    written.map(drop).map_err(|error| error.to_string())
}

/// Adds the vector of a message whose checksum is right, and whose tag is if there is a key.
fn add(message: &[u8], key: Option<&Key>, into: &mut [u8]) -> Result<(), String> {
    let packet = Packet::read(message).map_err(|error| error.to_string())?;
    let is_sealed = key.is_none_or(|key| key.between(ENDS[0], ENDS[1]).made(message));
    match packet.message {
        Message::Contribution(chunk) if is_sealed => {
            combine(Operation::Sum, Element::F32, into, chunk.data)
        }
        _ => Err("a message of nobody".to_owned()),
    }
}

fn combine(
    operation: Operation,
    element: Element,
    into: &mut [u8],
    from: &[u8],
) -> Result<(), String> {
    reduce(operation, element, into, from).map_err(|error| error.to_string())
}

impl Subject for Arithmetic {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let doing = CONTENDERS[contender].1;
        let (slots, frames) = [(SLOTS, FRAMES), (1, 1)][group];
        let began = busy_time();
        for number in 0..VECTORS {
            let (slot, frame) = (number % slots * LEN, number % frames * FRAME);
            let into = black_box(&mut self.slots[slot..slot + LEN]);
            let message = black_box(&self.frames[frame..frame + HEADER_LEN + LEN]);
            match doing {
                Doing::Copy => into.copy_from_slice(&message[HEADER_LEN..]),
                Doing::Reduce(operation, element) => {
                    combine(operation, element, into, &message[HEADER_LEN..])?;
                }
                Doing::CheckAndSum => add(message, None, into)?,
                Doing::CheckTagAndSum => add(message, Some(&self.key), into)?,
            }
        }
        let busy = busy_time() - began;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let gigabytes = (VECTORS * LEN) as f64 / 1e9;
        Ok(gigabytes / busy.as_secs_f64())
    }
}
