//! Results through three levels.

use std::time::Duration;

use hostd_client::Context;
use hostd_client::compute::{Element, Level, Member, Membership, Operation};
use lab::privileged;

use crate::rig::{Rig, numbers, read, region, sum};

const JOB: u32 = 0x3_1e7e;

/// How long a collective may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// SW-40: two members at each of two leaves, each of which has a switch above it that the other has
/// not, and one switch above both of those: exact results through three levels, for each of which
/// the switches have added what is below once.
#[test]
fn members_go_through_three_levels() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("gtiers", [3, 2, 6]);
    let address = |from: &str, to: &str| {
        let plan = rig.lab.plan();
        let mut ends = plan.links.iter().flat_map(|it| [&it.lower, &it.upper]);
        let end = ends.find(|end| end.node == from && end.interface == to);
        end.unwrap().addresses[0].0.to_string()
    };
    // The third leaf is above the spines: to them it is no more than an address.
    for (switch, above) in [
        ("leaf1", "spine1"),
        ("leaf2", "spine2"),
        ("spine1", "leaf3"),
        ("spine2", "leaf3"),
    ] {
        let pairs = [
            ("address", address(switch, above).into()),
            ("parents", vec![address(above, switch)].into()),
        ];
        rig.configure_all(switch, pairs);
    }
    let member = |rank: usize| {
        let context: Context = rig.session(rank);
        let one_of = |rank: usize, size| Level {
            rank: u16::try_from(rank).unwrap(),
            size,
            trees: 1,
            first: 0,
        };
        let world = u16::try_from(rank).unwrap();
        let membership = Membership {
            world,
            ..Membership::new(JOB, 1, world % 2, 2)
        };
        let levels = [one_of(0, 1), one_of(rank / 2, 2)];
        let membership = membership.with_levels(&levels).unwrap();
        let mut member = Member::join(&context, &membership, PATIENCE).unwrap();
        for (seed, len) in [4, 1_400, 1_404, 100_000, 1 << 20].into_iter().enumerate() {
            let seed = seed as u64;
            let memory = region(&context, &numbers(rank, len, seed));
            let all = memory.slice(0, len).unwrap();
            let with = (Operation::Sum, Element::U32);
            member.allreduce(with, all, all, PATIENCE).unwrap();
            let right = read(&memory, len) == sum(4, len, seed);
            assert!(right, "rank {rank}: {len} bytes");
        }
        member.barrier(PATIENCE).unwrap();
    };
    std::thread::scope(|scope| {
        for rank in 0..4 {
            scope.spawn(move || member(rank));
        }
    });
    let chunks = [4, 1_400, 1_404, 100_000, 1 << 20].map(|len: u64| len.div_ceil(1_400));
    let chunks = chunks.iter().sum::<u64>() + 1;
    for (switch, below) in [
        ("leaf1", 2),
        ("leaf2", 2),
        ("spine1", 1),
        ("spine2", 1),
        ("leaf3", 2),
    ] {
        let added = rig.metric(switch, "switchd_compute_contributions_total");
        assert_eq!(added, below * chunks, "{switch}");
    }
}
