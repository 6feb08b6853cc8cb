//! Results against an oracle.

use crate::rig::Rig;
use hostd_client::group::{Algorithm, Element, Group, GroupError, GroupOptions, Operation, Vector};
use hostd_client::{Access, Context, Region};

/// Bytes of `rank` for a test: any, so NaN and infinities are among the floats.
fn bytes(rank: usize, len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(byte).take(len).collect()
}

/// Floats as whole numbers that no order of a sum rounds; other types as they are.
pub(crate) fn vector(
    element: Element,
    operation: Operation,
    rank: usize,
    len: usize,
    seed: u64,
) -> Vec<u8> {
    let raw = bytes(rank, len, seed);
    if !operation.is_ordered(element) {
        return raw;
    }
    let width = element.len();
    let mut exact = Vec::with_capacity(len);
    for raw in raw.chunks(width) {
        let number = f32::from(1 + raw[0] % 2).to_le_bytes();
        match element {
            Element::F64 => exact.extend(f64::from(1 + raw[0] % 2).to_le_bytes()),
            Element::F32 => exact.extend(number),
            Element::Bf16 => exact.extend(&number[2..]),
            _ => exact.extend([0, [0x3c, 0x40][usize::from(raw[0] % 2)]]),
        }
    }
    exact
}

/// What comes of vectors in the order of the ranks.
pub(crate) fn fold(operation: Operation, element: Element, vectors: &[Vec<u8>]) -> Vec<u8> {
    let mut result = vectors[0].clone();
    for other in &vectors[1..] {
        reduce::reduce(operation, element, &mut result, other).expect("whole elements");
    }
    result
}

pub(crate) fn region(context: &Context, bytes: &[u8]) -> Region {
    let region = context
        .allocate(bytes.len().max(1), Access::LOCAL_WRITE)
        .expect("memory");
    region.write(0, bytes).expect("it fits");
    region
}

pub(crate) fn read(region: &Region, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(offset, &mut bytes).expect("inside");
    bytes
}

/// Every operation on every type, by `algorithm`.
fn all_work(context: &Context, group: &mut Group, algorithm: Algorithm, len: usize) {
    group.set_algorithm(algorithm);
    let (rank, size) = (group.rank(), group.size());
    for operation in Operation::ALL {
        for element in Element::ALL.into_iter().filter(|it| operation.takes(*it)) {
            let seed = (operation as u64) << 8 | element as u64;
            let vectors: Vec<_> = (0..size)
                .map(|rank| vector(element, operation, rank, len, seed))
                .collect();
            let memory = region(context, &vectors[rank]);
            let vector = Vector::new(&memory, 0, len);
            group.allreduce(operation, element, vector).expect("done");
            let what = format!("{operation:?} of {element:?} by {algorithm:?} at {rank}/{size}");
            let expected = fold(operation, element, &vectors);
            assert!(read(&memory, 0, len) == expected, "{what}");
        }
    }
}

/// HT-50, SW-41: 4 and 8 members, and 7 that are no power of two: every operation on every type has
/// at every member the bits of a fold, by the algorithms for short and for long vectors.
#[test]
fn every_operation_on_every_type() {
    let Some(rig) = Rig::new(4) else {
        return;
    };
    for size in [4, 7, 8] {
        rig.group(size, GroupOptions::default(), |context, mut group| {
            for (algorithm, len) in [
                (Algorithm::Doubling, 8),
                (Algorithm::Ring, 1000),
                (Algorithm::Chain, 48),
            ] {
                all_work(&context, &mut group, algorithm, len);
            }
        });
    }
}

/// HT-50: vectors from 4 bytes to 4 MiB, in place and out of place, by every algorithm; what a
/// member gives out of place stays.
#[test]
fn every_length() {
    let Some(rig) = Rig::new(4) else {
        return;
    };
    let (operation, element) = (Operation::Sum, Element::U32);
    rig.group(4, GroupOptions::default(), |context, mut group| {
        let rank = group.rank();
        for (algorithm, len) in [
            (Algorithm::Auto, 4),
            (Algorithm::Ring, 4),
            (Algorithm::Auto, 16 << 10),
            (Algorithm::Doubling, (100 << 10) + 4),
            (Algorithm::Ring, (100 << 10) + 4),
            (Algorithm::Chain, 300 << 10),
            (Algorithm::Auto, 4 << 20),
        ] {
            group.set_algorithm(algorithm);
            let vectors: Vec<_> = (0..4).map(|rank| bytes(rank, len, 7)).collect();
            let expected = fold(operation, element, &vectors);
            let source = region(&context, &vectors[rank]);
            let target = region(&context, &bytes(rank, len + 12, 8));
            let vector = Vector::new(&target, 8, len).from(&source, 0);
            group.allreduce(operation, element, vector).expect("done");
            assert!(read(&target, 8, len) == expected, "{len} by {algorithm:?}");
            assert!(
                read(&source, 0, len) == vectors[rank],
                "{len}: what was given"
            );
            let around = bytes(rank, len + 12, 8);
            assert_eq!(read(&target, 0, 8), around[..8], "{len}: before the vector");
            assert_eq!(
                read(&target, len + 8, 4),
                around[len + 8..],
                "{len}: behind it"
            );
            let vector = Vector::new(&source, 0, len);
            group.allreduce(operation, element, vector).expect("done");
            assert!(read(&source, 0, len) == expected, "{len} in place");
        }
    });
}

/// HT-50, SW-41: reduce and broadcast with every root, barrier, allgather and reduce-scatter, one
/// after the other in one group, short and long.
#[test]
fn every_collective() {
    let Some(rig) = Rig::new(4) else {
        return;
    };
    let (operation, element) = (Operation::Max, Element::I64);
    rig.group(5, GroupOptions::default(), |context, mut group| {
        let (rank, size) = (group.rank(), group.size());
        for (len, seed) in [(8 * 5, 1), (8 * 5 * 5000, 2)] {
            let vectors: Vec<_> = (0..size).map(|rank| bytes(rank, len, seed)).collect();
            let expected = fold(operation, element, &vectors);
            for root in 0..size {
                let memory = region(&context, &vectors[rank]);
                let vector = Vector::new(&memory, 0, len);
                group
                    .reduce(operation, element, root, vector)
                    .expect("done");
                assert!(
                    rank != root || read(&memory, 0, len) == expected,
                    "to {root}"
                );
                let memory = region(&context, &vectors[rank]);
                let vector = Vector::new(&memory, 0, len);
                group.broadcast(root, vector).expect("done");
                assert!(read(&memory, 0, len) == vectors[root], "from {root}");
                group.barrier().expect("done");
            }
            let block = len / size;
            let own = rank * block..(rank + 1) * block;
            let memory = region(&context, &vectors[rank]);
            group
                .reduce_scatter(operation, element, Vector::new(&memory, 0, len))
                .expect("done");
            assert!(
                read(&memory, own.start, block) == expected[own.clone()],
                "own block"
            );
            let given = region(&context, &vectors[rank][own]);
            let vector = Vector::new(&memory, 0, len).from(&given, 0);
            group.allgather(vector).expect("done");
            let all: Vec<u8> = (0..size)
                .flat_map(|of| vectors[of][of * block..(of + 1) * block].to_vec())
                .collect();
            assert!(read(&memory, 0, len) == all, "all blocks");
        }
    });
}

/// SW-43: sums of floats that every order rounds in another way: the bits are the same at all
/// members, time after time, and in order of the ranks those of a fold.
#[test]
fn floats_are_reproducible() {
    let Some(rig) = Rig::new(4) else {
        return;
    };
    let (operation, element, len) = (Operation::Sum, Element::F32, 40_000);
    let of = |rank: usize| -> Vec<u8> {
        let raw = bytes(rank, len / 4, 3);
        let number = |byte: u8| (f32::from(byte) - 127.3) * 1.7_f32.powi(i32::from(byte % 31));
        raw.into_iter()
            .flat_map(|byte| number(byte).to_le_bytes())
            .collect()
    };
    let vectors: Vec<_> = (0..4).map(of).collect();
    let run = |algorithm: Algorithm, deterministic: bool| {
        let mut all = rig.group(4, GroupOptions::default(), |context, mut group| {
            group.set_algorithm(algorithm);
            group.set_deterministic(deterministic);
            let mut results = Vec::new();
            for _ in 0..5 {
                let memory = region(&context, &vectors[group.rank()]);
                let vector = Vector::new(&memory, 0, len);
                group.allreduce(operation, element, vector).expect("done");
                results.push(read(&memory, 0, len));
            }
            results
        });
        let mut results: Vec<_> = all.drain(..).flatten().collect();
        results.dedup();
        assert_eq!(results.len(), 1, "{algorithm:?}");
        results.remove(0)
    };
    let ring = run(Algorithm::Ring, false);
    let doubling = run(Algorithm::Doubling, false);
    let in_order = run(Algorithm::Auto, true);
    assert!(in_order == fold(operation, element, &vectors));
    assert!(
        ring != in_order || doubling != in_order,
        "order matters to these numbers"
    );
}

/// HT-50: requests that are polled, and what cannot be asked for, which harms nobody.
#[test]
fn requests_are_polled_and_wrong_ones_refused() {
    let Some(rig) = Rig::new(2) else {
        return;
    };
    let options = GroupOptions::default();
    rig.group(2, options, |context, mut group| {
        let memory = region(&context, &[1; 64]);
        let stranger = rig.session(0);
        let foreign = region(&stranger, &[1; 64]);
        let (sum, f32) = (Operation::Sum, Element::F32);
        let vector = |len| Vector::new(&memory, 0, len);
        let foreign = Vector::new(&foreign, 0, 64);
        let refused = |result: Result<(), GroupError>| {
            assert!(matches!(result, Err(GroupError::Argument(_))), "{result:?}");
        };
        refused(group.allreduce(Operation::Xor, f32, vector(64)));
        refused(group.allreduce(sum, f32, vector(63)));
        refused(group.allreduce(sum, f32, vector(68)));
        refused(group.allreduce(sum, f32, foreign));
        refused(group.reduce(sum, f32, 2, vector(64)));
        refused(group.broadcast(2, vector(64)));
        refused(group.allgather(vector(63)));
        refused(group.reduce_scatter(sum, f32, vector(4)));
        group.set_deterministic(true);
        group.set_algorithm(Algorithm::Ring);
        refused(group.allreduce(sum, f32, vector(64)));
        group.set_deterministic(false);
        group.set_algorithm(Algorithm::Auto);
        let collective = hostd_client::group::Collective::Allreduce(sum, Element::U32);
        let mut request = group.start(collective, vector(64)).expect("begun");
        while !request.poll().expect("no failure") {
            std::thread::yield_now();
        }
        assert!(request.poll().expect("over"), "and it stays so");
        drop(request);
        assert_eq!(read(&memory, 0, 64), [2; 64]);
        assert!(group.failure().is_none());
    });
}

/// HT-50: requests as futures.
#[cfg(feature = "tokio")]
#[test]
fn requests_are_futures() {
    let Some(rig) = Rig::new(2) else {
        return;
    };
    rig.group(2, GroupOptions::default(), |context, mut group| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let memory = region(&context, &[1; 64]);
        let sum = hostd_client::group::Collective::Allreduce(Operation::Sum, Element::U32);
        runtime.block_on(async {
            for _ in 0..3 {
                let request = group.start(sum, Vector::new(&memory, 0, 64));
                request.expect("begun").finish().await.expect("done");
            }
        });
        assert_eq!(read(&memory, 0, 64), [8; 64]);
    });
}

/// A member that has joined and gives up makes room for another one; when rank 0 gives up those
/// that have joined learn it at once.
#[cfg(feature = "tokio")]
async fn leaves_while_it_forms(contexts: &[hostd_client::Context; 3], rig: &Rig) {
    let options = GroupOptions::default();
    // Whoever can join has, by then.
    let soon = std::time::Duration::from_secs(2);
    let port = rig.port();
    let join = |rank: usize| Group::join_async(&contexts[rank], Rig::root(port), rank, 3, options);
    let others = async {
        assert!(tokio::time::timeout(soon, join(1)).await.is_err());
        tokio::join!(join(1), join(2))
    };
    let root = Group::create_async(&contexts[0], port, 3, options);
    let (root, (one, two)) = tokio::join!(root, others);
    assert_eq!(
        [root, one, two].map(|it| it.expect("it formed").size()),
        [3; 3]
    );
    let port = rig.port();
    let root = Group::create_async(&contexts[0], port, 3, options);
    let root = tokio::time::timeout(soon, root);
    let one = Group::join_async(&contexts[1], Rig::root(port), 1, 3, options);
    let one = tokio::time::timeout(10 * soon, one);
    let (root, one) = tokio::join!(root, one);
    assert!(root.is_err(), "rank 2 is missing");
    match one.expect("it learns that").expect_err("rank 0 has left") {
        GroupError::Failed(failure) => assert_eq!(
            (failure.rank, failure.cause),
            (0, hostd_client::group::Cause::Left)
        ),
        other => panic!("{other}"),
    }
}

/// HT-50: groups form as futures, all members in one thread; one that is missing is named, and who
/// gives up has joined nothing.
#[cfg(feature = "tokio")]
#[test]
fn groups_form_as_futures() {
    let Some(rig) = Rig::new(3) else {
        return;
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let contexts = [0, 1, 2].map(|rank| rig.session(rank));
    let options = GroupOptions::default();
    let sum = hostd_client::group::Collective::Allreduce(Operation::Sum, Element::U32);
    runtime.block_on(async {
        let port = rig.port();
        let join =
            |rank: usize| Group::join_async(&contexts[rank], Rig::root(port), rank, 3, options);
        let (root, one, two) = tokio::join!(
            Group::create_async(&contexts[0], port, 3, options),
            join(1),
            join(2)
        );
        let mut groups = [root, one, two].map(|group| group.expect("it formed"));
        let regions: Vec<_> = contexts.iter().map(|it| region(it, &[1; 64])).collect();
        for value in [3, 9] {
            let mut members = groups.iter_mut().zip(&regions);
            let mut start = || {
                let (group, region) = members.next().expect("three");
                let request = group.start(sum, Vector::new(region, 0, 64));
                request.expect("begun").finish()
            };
            let (one, two, three) = tokio::join!(start(), start(), start());
            for end in [one, two, three] {
                end.expect("done");
            }
            drop(members);
            for region in &regions {
                assert_eq!(read(region, 0, 64), [value; 64]);
            }
        }
        let hasty = GroupOptions {
            join_timeout: std::time::Duration::from_secs(1),
            ..options
        };
        let port = rig.port();
        let (alone, gone) = tokio::join!(
            Group::create_async(&contexts[0], port, 3, hasty),
            Group::join_async(&contexts[1], Rig::root(port), 1, 3, hasty)
        );
        for end in [alone, gone] {
            let failure = match end.expect_err("rank 2 is missing") {
                GroupError::Failed(failure) => failure,
                other => panic!("{other}"),
            };
            assert_eq!(
                (failure.rank, failure.cause),
                (2, hostd_client::group::Cause::Missing)
            );
        }
        leaves_while_it_forms(&contexts, &rig).await;
        let port = rig.port();
        let soon = std::time::Duration::from_millis(300);
        let waits = Group::join_async(&contexts[1], Rig::root(port), 1, 2, options);
        assert!(tokio::time::timeout(soon, waits).await.is_err());
        // What it has asked for last may be on its way: rank 0 would take it in.
        tokio::time::sleep(soon).await;
        let (root, one) = tokio::join!(
            Group::create_async(&contexts[0], port, 2, options),
            Group::join_async(&contexts[1], Rig::root(port), 1, 2, options)
        );
        assert_eq!([root, one].map(|it| it.expect("it formed").size()), [2; 2]);
    });
}
