//! Members that do not agree about a collective: all of them learn who differs from the first, as
//! the protocol says it, and another job at the same switches has its results.

use super::plan::Plan;
use super::world::{End, Piece, Random, World};
use common::time::Span;
use common::wire::compute::{Element, Flags, Operation, Reason, Work};

const JOB: u32 = 7;
const OTHER: u32 = 8;

/// Chunks that all agree about.
const AGREED: usize = 5;

const SUM: Work = Work::Allreduce(Operation::Sum, Element::U32);
const REDUCE: Work = Work::Reduce(Operation::Sum, Element::U32);

/// What a member contributes that is not the root.
fn piece(work: Work) -> Piece {
    let data = match work {
        Work::Broadcast | Work::Barrier => Vec::new(),
        _ => vec![1; 16],
    };
    Piece {
        work,
        data,
        is_root: false,
        call: Flags::LAST,
        expected: Vec::new(),
    }
}

/// What the root contributes.
fn root(work: Work) -> Piece {
    Piece {
        data: vec![1; 16],
        is_root: true,
        ..piece(work)
    }
}

/// A reduce whose result all get.
fn shared(it: Piece) -> Piece {
    Piece {
        call: Flags::LAST.with(Flags::SHARED),
        ..it
    }
}

/// Who is blamed when members at such leaves contribute these pieces, in the order of their ranks.
/// The contributions of one leaf come before those of the next.
fn blamed(leaves: &[usize], pieces: &[Piece]) -> Option<u16> {
    let plan = Plan {
        leaves: leaves.to_vec(),
        trees: u16::from(leaves.len() > 1),
        slots: 4,
        deterministic: false,
        works: vec![SUM; AGREED],
        bytes: 16,
    };
    let mut world = World::new(1);
    // None is overtaken.
    world.spread = 1;
    plan.build(&mut world, JOB, &mut Random(1));
    let members = world.members.len();
    assert_eq!(members, pieces.len());
    let other = Plan {
        works: vec![SUM; 100],
        ..plan
    };
    other.build(&mut world, OTHER, &mut Random(2));
    for (member, piece) in world.members.iter_mut().zip(pieces) {
        member.join.operations = !Operation::Product.bit() & 0xfe;
        member.join.elements = !Element::F64.bit();
        member.append(piece.clone());
    }
    assert!(world.finish(Span::from_secs(3)), "{pieces:?}");
    let told = world.members[..members].iter().map(|it| match it.end {
        Some(End::Failed(verdict)) if verdict.reason == Reason::Mismatch => verdict.world,
        other => panic!("{pieces:?}: {other:?}"),
    });
    let told: Vec<_> = told.collect();
    assert!(told.iter().all(|it| *it == told[0]), "{told:?}");
    let mut others = world.members[members..].iter();
    assert!(others.all(|it| it.end == Some(End::Done)));
    told[0]
}

/// Pairs of pieces that are not of the same collective.
fn unlike() -> Vec<(Piece, Piece)> {
    let short = Piece {
        data: vec![1; 8],
        ..piece(SUM)
    };
    let not_last = |it| Piece {
        call: Flags::default(),
        ..it
    };
    let of = |operation, element| piece(Work::Allreduce(operation, element));
    vec![
        (piece(SUM), of(Operation::Max, Element::U32)),
        (piece(SUM), of(Operation::Sum, Element::I32)),
        (piece(SUM), piece(REDUCE)),
        (piece(SUM), piece(Work::Broadcast)),
        (piece(SUM), piece(Work::Barrier)),
        (piece(SUM), short),
        // As long here, but one goes on behind it.
        (piece(SUM), not_last(piece(SUM))),
        (piece(REDUCE), not_last(piece(REDUCE))),
        (piece(Work::Broadcast), not_last(piece(Work::Broadcast))),
        // A reduce that is done as an allreduce.
        (piece(SUM), shared(piece(SUM))),
        (shared(piece(SUM)), piece(REDUCE)),
        (piece(REDUCE), piece(Work::Broadcast)),
        (piece(Work::Broadcast), piece(Work::Barrier)),
    ]
}

/// SW-42: at one switch the one is named that differs from who came first, whoever that is.
#[test]
fn who_differs_from_the_first_is_named() {
    for (one, other) in unlike() {
        for (one, other) in [(&one, &other), (&other, &one)] {
            let of = |odd: usize| {
                let mut pieces = [one, one, one].map(Clone::clone);
                pieces[odd] = other.clone();
                blamed(&[3], &pieces)
            };
            let named = [0, 1, 2].map(of);
            assert_eq!(named, [Some(1), Some(1), Some(2)], "{one:?} {other:?}");
        }
    }
}

/// SW-42: of leaves that differ a spine names the one that came second, by the smallest world rank
/// there; within a leaf it is the member that is named.
#[test]
fn a_leaf_that_differs_is_named_by_its_smallest_rank() {
    for (one, other) in unlike() {
        for (one, other) in [(&one, &other), (&other, &one)] {
            let of = |pieces: [&Piece; 4]| blamed(&[2, 2], &pieces.map(Clone::clone));
            let named = [
                of([one, one, other, other]),
                of([one, one, one, other]),
                of([one, other, one, one]),
            ];
            assert_eq!(named, [Some(2), Some(3), Some(1)], "{one:?} {other:?}");
        }
    }
}

/// SW-42: the second of two roots is named, at a spine by the smallest world rank of its leaf;
/// nobody is if there is none.
#[test]
fn roots_are_one() {
    let all = [
        (piece(REDUCE), root(REDUCE)),
        (piece(Work::Broadcast), root(Work::Broadcast)),
        (shared(piece(SUM)), shared(root(SUM))),
    ];
    for (none, root) in &all {
        let of = |leaves: &[usize], pieces: [&Piece; 4]| blamed(leaves, &pieces.map(Clone::clone));
        let named = [
            of(&[4], [root, none, root, none]),
            of(&[4], [none, root, none, root]),
            of(&[2, 2], [root, none, none, root]),
            of(&[2, 2], [none, none, root, root]),
            of(&[4], [none; 4]),
            of(&[2, 2], [none; 4]),
        ];
        let wanted = [Some(2), Some(3), Some(2), Some(3), None, None];
        assert_eq!(named, wanted, "{none:?}");
    }
}

/// SW-42: a work that the job has not asked for is its sender's doing, also if it comes first.
#[test]
fn work_outside_the_terms_is_its_senders() {
    for outside in [
        (Operation::Product, Element::U32),
        (Operation::Sum, Element::F64),
    ] {
        let outside = piece(Work::Allreduce(outside.0, outside.1));
        for leaves in [&[3][..], &[1, 2]] {
            for odd in 0..3 {
                let mut pieces = [(); 3].map(|()| piece(SUM));
                pieces[odd] = outside.clone();
                let named = u16::try_from(odd).expect("few");
                assert_eq!(blamed(leaves, &pieces), Some(named), "{leaves:?}");
            }
        }
    }
}
