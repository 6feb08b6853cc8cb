//! Results through two levels.

use std::time::Duration;

use hostd_client::group::{Algorithm, Element, Operation, Vector};
use lab::privileged;

use crate::rig::{Rig, check, numbers, read, region};

/// The largest of the 64-bit numbers of so many ranks at each place.
fn largest(ranks: usize, len: usize, seed: u64) -> Vec<u8> {
    let vectors: Vec<_> = (0..ranks).map(|rank| numbers(rank, len, seed)).collect();
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
    let at = |place: usize| vectors.iter().map(move |it| number(&it[place..place + 8]));
    let all = (0..len).step_by(8).map(|place| at(place).max().unwrap());
    all.flat_map(i64::to_le_bytes).collect()
}

/// SW-40, HT-50: four members on two leaves with a spine, and with two spines, which both have the
/// job: exact results of all kinds of collectives, through the switches.
#[test]
fn groups_go_through_two_levels() {
    if !privileged() {
        return;
    }
    for (name, spines) in [("glevels", 1), ("gspines", 2)] {
        let rig = Rig::new(name, [2, spines, 4]);
        let member = |context: hostd_client::Context, mut group: hostd_client::group::Group| {
            for (seed, len) in [4, 1_400, 1_404, 100_000, 3 << 20].into_iter().enumerate() {
                check(&context, &mut group, len, seed as u64).unwrap();
            }
            let (rank, len) = (group.rank(), 10_000);
            group.barrier().unwrap();
            let memory = region(&context, &numbers(rank, len, 9));
            let vector = Vector::new(&memory, 0, len);
            group.broadcast(3, vector).unwrap();
            assert!(read(&memory, len) == numbers(3, len, 9), "rank {rank}");
            let memory = region(&context, &numbers(rank, len, 10));
            let (max, element) = (Operation::Max, Element::I64);
            let vector = Vector::new(&memory, 0, len);
            group.reduce(max, element, 1, vector).unwrap();
            assert!(rank != 1 || read(&memory, len) == largest(4, len, 10));
            assert!(group.uses_switches(), "{:?}", group.fallback());
            group.barrier().unwrap();
        };
        rig.group(4, member, || {});
        for switch in rig.switches() {
            let jobs = rig.jobs(switch);
            assert_eq!(jobs.len(), 1, "{switch}: {jobs:?}");
        }
    }
}

/// SW-40: the uplink of a leaf carries at most 1.1 times the vector, though four members are below
/// it, and so does the downlink: in the best of forty collectives, for a leaf that waits for a core
/// sends again.
#[test]
fn an_uplink_carries_the_vector_once() {
    const LEN: usize = 1 << 20;
    if !privileged() {
        return;
    }
    let rig = Rig::new("guplink", [2, 1, 8]);
    let sent = || [rig.sent("leaf1", "spine1"), rig.sent("spine1", "leaf1")];
    for least in rig.least_sent(8, LEN, sent) {
        let all = LEN as u64;
        assert!(least >= all && least * 10 <= all * 11, "{least}");
    }
}

/// Floats of very different sizes, whose sum depends on the order.
fn floats(rank: usize, count: usize, seed: u64) -> Vec<f32> {
    let bytes = numbers(rank, count * 4, seed);
    let float = |bytes: &[u8]| {
        let mantissa = f32::from(u16::from_le_bytes([bytes[0], bytes[1]])) + 1.0;
        let scale = f32::from(bytes[2] % 40) - 20.0;
        let sign = if bytes[3].is_multiple_of(2) {
            1.0
        } else {
            -1.0
        };
        sign * mantissa * scale.exp2()
    };
    bytes.chunks(4).map(float).collect()
}

/// SW-43: a deterministic group has the bits of ((r0 + r1) + r2) + r3 whatever member comes last,
/// through the leaf and between the hosts; without that the order of arrival shows.
#[test]
fn deterministic_groups_have_the_same_bits() {
    const COUNT: usize = 10_000;
    const ROUNDS: usize = 12;
    if !privileged() {
        return;
    }
    let rig = Rig::new("gdeterm", [1, 1, 4]);
    let in_order = {
        let mut sum = floats(0, COUNT, 5);
        for rank in 1..4 {
            let other = floats(rank, COUNT, 5);
            sum.iter_mut().zip(other).for_each(|(sum, it)| *sum += it);
        }
        let bytes = sum.into_iter().flat_map(f32::to_le_bytes);
        bytes.collect::<Vec<u8>>()
    };
    let same = |deterministic: bool| {
        let member = |context: hostd_client::Context, mut group: hostd_client::group::Group| {
            group.set_deterministic(deterministic);
            let (rank, mut same) = (group.rank(), 0);
            let own = floats(rank, COUNT, 5).into_iter();
            let own: Vec<u8> = own.flat_map(f32::to_le_bytes).collect();
            for round in 0..ROUNDS {
                group.set_algorithm(Algorithm::Auto);
                group.barrier().unwrap();
                // Each in turn is the last one.
                if round % 4 == rank {
                    std::thread::sleep(Duration::from_millis(15));
                }
                let between = deterministic && round >= ROUNDS - 2;
                if between {
                    group.set_algorithm(Algorithm::Chain);
                }
                let memory = region(&context, &own);
                let vector = Vector::new(&memory, 0, own.len());
                let (sum, element) = (Operation::Sum, Element::F32);
                group.allreduce(sum, element, vector).unwrap();
                same += usize::from(read(&memory, own.len()) == in_order);
                assert_eq!(group.uses_switches(), !between, "{:?}", group.fallback());
            }
            same
        };
        rig.group(4, member, || {})
    };
    assert_eq!(same(true), [ROUNDS; 4]);
    let any = same(false);
    assert!(any.iter().all(|same| *same == any[0]), "{any:?}");
    assert!(any[0] < ROUNDS, "the order of arrival is seen");
}
