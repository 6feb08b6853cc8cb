//! A job of a test: who is in it, what it does, and what must come of that.

use super::world::{Member, Piece, Random, Switch, World, member_address, switch_address};
use crate::compute::Settings;
use common::reduce::reduce_in_order;
use common::wire::compute::{Element, Flags, Join, Level, Levels, Operation, Work};

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Members of each leaf.
    pub(super) leaves: Vec<usize>,
    /// Spines; with none there is one leaf.
    pub(super) trees: u16,
    pub(super) slots: u16,
    pub(super) deterministic: bool,
    pub(super) works: Vec<Work>,
    /// Bytes of a vector.
    pub(super) bytes: usize,
}

/// Any work.
pub(super) fn work(random: &mut Random) -> Work {
    let operation = Operation::ALL[usize::try_from(random.below(7)).expect("few")];
    let element = Element::ALL[usize::try_from(random.below(8)).expect("few")];
    match random.below(8) {
        0 => Work::Broadcast,
        1 => Work::Barrier,
        _ if !operation.takes(element) => Work::Barrier,
        2 => Work::Reduce(operation, element),
        _ => Work::Allreduce(operation, element),
    }
}

/// A vector of ones and twos, whose sums and products are exact in every type and order, and now
/// and then an infinity of floats, which is in the result of all but the minimum.
fn vector(random: &mut Random, element: Element, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < bytes {
        let drawn = random.below(64);
        let number = u8::try_from(1 + drawn % 2).expect("small");
        let is_infinite = drawn < 2;
        let float = if is_infinite {
            f32::INFINITY
        } else {
            number.into()
        };
        match element {
            Element::I32 | Element::U32 => out.extend(u32::from(number).to_le_bytes()),
            Element::I64 | Element::U64 => out.extend(u64::from(number).to_le_bytes()),
            Element::F32 => out.extend(float.to_le_bytes()),
            Element::F64 => out.extend(f64::from(float).to_le_bytes()),
            Element::F16 if is_infinite => out.extend(0x7c00_u16.to_le_bytes()),
            Element::Bf16 if is_infinite => out.extend(0x7f80_u16.to_le_bytes()),
            // One and two in both kinds of 16 bits.
            Element::F16 if number == 1 => out.extend(0x3c00_u16.to_le_bytes()),
            Element::F16 => out.extend(0x4000_u16.to_le_bytes()),
            Element::Bf16 if number == 1 => out.extend(0x3f80_u16.to_le_bytes()),
            Element::Bf16 => out.extend(0x4000_u16.to_le_bytes()),
        }
    }
    out
}

impl Plan {
    /// What comes of vectors, by leaf: each adds its own in order, the spines add those.
    fn result(&self, work: Work, vectors: &[Vec<u8>]) -> Vec<u8> {
        let (Work::Allreduce(operation, element) | Work::Reduce(operation, element)) = work else {
            return Vec::new();
        };
        let mut rest = vectors;
        let mut sums: Vec<Vec<u8>> = Vec::new();
        for count in &self.leaves {
            let (own, others) = rest.split_at(*count);
            rest = others;
            let mut sum = vec![0; self.bytes];
            let own = own.iter().map(|it| &it[..]);
            reduce_in_order(operation, element, &mut sum, own).expect("equally long");
            sums.push(sum);
        }
        let mut sum = vec![0; self.bytes];
        let sums = sums.iter().map(|it| &it[..]);
        reduce_in_order(operation, element, &mut sum, sums).expect("equally long");
        sum
    }

    /// The pieces of each member.
    fn pieces(&self, random: &mut Random) -> Vec<Vec<Piece>> {
        let members: usize = self.leaves.iter().sum();
        let mut all = vec![Vec::new(); members];
        for work in &self.works {
            let element = match work {
                Work::Allreduce(_, element) | Work::Reduce(_, element) => *element,
                _ => Element::U32,
            };
            let of = |random: &mut Random| vector(random, element, self.bytes);
            let vectors: Vec<_> = (0..members).map(|_| of(random)).collect();
            let result = self.result(*work, &vectors);
            let root = usize::try_from(random.below(members as u64)).expect("few");
            for (number, pieces) in all.iter_mut().enumerate() {
                let is_root = number == root;
                let (data, expected, is_root) = match work {
                    Work::Allreduce(..) => (vectors[number].clone(), result.clone(), false),
                    Work::Reduce(..) if is_root => (vectors[number].clone(), result.clone(), true),
                    Work::Reduce(..) => (vectors[number].clone(), Vec::new(), false),
                    Work::Broadcast if is_root => {
                        (vectors[root].clone(), vectors[root].clone(), true)
                    }
                    Work::Broadcast => (Vec::new(), vectors[root].clone(), false),
                    Work::Barrier => (Vec::new(), Vec::new(), false),
                };
                pieces.push(Piece {
                    work: *work,
                    data,
                    is_root,
                    call: Flags::LAST,
                    expected,
                });
            }
        }
        all
    }

    /// Adds the members of the job, and the switches if there are none yet: leaves, then spines.
    pub(super) fn build(&self, world: &mut World, job: u32, random: &mut Random) {
        let leaves = u8::try_from(self.leaves.len()).expect("few");
        let spines = leaves..leaves + u8::try_from(self.trees).expect("few");
        if world.switches.is_empty() {
            for number in 0..leaves {
                let address = switch_address(number);
                let settings = Settings {
                    address: Some(address.ip()),
                    parents: spines.clone().map(switch_address).collect(),
                    ..Settings::default()
                };
                world.switches.push(Switch::new(address, settings));
            }
            let spines = spines.map(switch_address);
            let spines = spines.map(|address| Switch::new(address, Settings::default()));
            world.switches.extend(spines);
        }
        let mut pieces = self.pieces(random).into_iter();
        let mut world_rank = 0;
        for (leaf, count) in self.leaves.iter().enumerate() {
            for rank in 0..*count {
                let above = Level {
                    rank: u16::try_from(leaf).expect("few"),
                    size: leaves.into(),
                    trees: self.trees,
                    first: 0,
                };
                let levels = if self.trees > 0 { &[above][..] } else { &[] };
                let join = Join {
                    slots: self.slots,
                    payload: u16::try_from(self.bytes).expect("short"),
                    operations: 0xfe,
                    elements: 0xff,
                    deterministic: self.deterministic,
                    above: Levels::new(levels),
                    ..Join::new(1, world_rank, u16::try_from(*count).expect("few"))
                };
                let number = u8::try_from(world.members.len()).expect("few");
                let at = switch_address(u8::try_from(leaf).expect("few"));
                let member = Member::new(
                    (member_address(number), at),
                    (job, u16::try_from(rank).expect("few")),
                    join,
                    pieces.next().expect("one each"),
                );
                world.members.push(member);
                world_rank += 1;
            }
        }
    }
}
