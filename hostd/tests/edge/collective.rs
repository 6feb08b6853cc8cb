//! Collectives that a switch computes, of applications of one daemon.

use crate::leaf::{ADDRESS, Leaf};
use crate::rig::{Daemon, PATIENCE, alone, config};
use crate::switch::Switch;
use common::wire::compute::Key;
use hostd::config::Config;
use hostd_client::abi::collective::FailureReason;
use hostd_client::compute::{Element, Member, Membership, Operation};
use hostd_client::{Access, Context, Error, ErrorCode, Region};
use std::time::Duration;

const JOB: u32 = 0x1234;
const SECRET: [u8; 32] = [0xab; 32];
const SUM: (Operation, Element) = (Operation::Sum, Element::U64);

/// A daemon that knows a leaf.
fn settings() -> Config {
    let mut config = config();
    config.collective.leaf = Some(ADDRESS.into());
    config
}

fn membership(rank: u16, size: u16) -> Membership {
    Membership::new(JOB, 1, rank, size)
}

/// A member of an application of its own, with memory.
fn member(daemon: &Daemon, rank: u16, size: u16, bytes: usize) -> (Member, Region) {
    let context = daemon.application();
    let region = context
        .allocate(bytes, Access::LOCAL_WRITE)
        .expect("memory");
    let joined = Member::join(&context, &membership(rank, size), PATIENCE);
    (joined.expect("joined"), region)
}

fn numbers(region: &Region, len: usize) -> Vec<u64> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes).expect("inside");
    let words = bytes.chunks_exact(8);
    words
        .map(|it| u64::from_le_bytes(it.try_into().expect("eight")))
        .collect()
}

/// HT-50: four applications reduce, broadcast and meet through the switch, with keys, though one
/// packet in 23 is lost; then nothing is left of them.
#[test]
fn applications_reduce_through_the_switch() {
    const LEN: usize = 100_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, "ab".repeat(32)).expect("written");
    let mut config = settings();
    config.collective.secret_file = Some(path);
    let (daemon, peer) = alone(&config);
    let _leaf = Leaf::start(
        peer,
        Switch::new(JOB, 4, Some(Key::of_job(&SECRET, JOB)), 23),
    );
    std::thread::scope(|scope| {
        for rank in 0..4_u16 {
            let daemon = &daemon;
            scope.spawn(move || {
                let (mut member, region) = member(daemon, rank, 4, 2 * LEN);
                let place = |index: usize| 8 * index;
                for index in 0..LEN / 8 {
                    let value = (index as u64) << 8 | u64::from(rank);
                    region
                        .write(place(index), &value.to_le_bytes())
                        .expect("inside");
                }
                let (own, other) = (region.slice(0, LEN), region.slice(LEN, LEN));
                let (own, other) = (own.expect("inside"), other.expect("inside"));
                // The root of a reduce gets the sum beside, then it is broadcast over the vectors.
                let output = (rank == 2).then_some(other);
                member.reduce(SUM, own, output, PATIENCE).expect("reduced");
                member.barrier(PATIENCE).expect("all came");
                let first = member.start_allreduce(SUM, own, own).expect("posted");
                let second = member.start_broadcast(rank == 2, other).expect("posted");
                member.wait(second, PATIENCE).expect("broadcast");
                assert!(
                    member.has_ended(&first).expect("it lives"),
                    "they end in their order"
                );
                member.wait(first, PATIENCE).expect("reduced");
                let mut beside = vec![0; LEN];
                region.read(LEN, &mut beside).expect("inside");
                for (index, value) in numbers(&region, LEN).into_iter().enumerate() {
                    assert_eq!(value, 4 * ((index as u64) << 8) + 6);
                    assert_eq!(beside[place(index)..place(index + 1)], value.to_le_bytes());
                }
            });
        }
    });
    daemon.wait_for("all have left", |report| report.members.is_empty());
    daemon.wait_empty();
    let counted = daemon.report().engine.collective;
    assert_eq!((counted.memberships, counted.sums.completed), (4, 16));
    assert!(counted.sums.retransmissions > 0);
}

/// HT-50: members join, and await collectives, as futures in one thread; an end that nobody awaits
/// any more harms no other one.
#[test]
fn members_are_futures() {
    let (daemon, peer) = alone(&settings());
    let _leaf = Leaf::start(peer, Switch::new(JOB, 2, None, 0));
    let contexts = [0, 1].map(|_| daemon.application());
    let memory = |context: &Context| {
        let region = context.allocate(64, Access::LOCAL_WRITE).expect("memory");
        region.write(0, &1_u64.to_le_bytes()).expect("inside");
        region
    };
    let regions = [0, 1].map(|rank| memory(&contexts[rank]));
    let slices = [0, 1].map(|rank| regions[rank].slice(0, 8).expect("inside"));
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let terms = [0, 1].map(|rank| membership(rank, 2));
        let join = |rank: usize| Member::join_async(&contexts[rank], &terms[rank]);
        let (one, two) = tokio::join!(join(0), join(1));
        let (mut one, mut two) = (one.expect("joined"), two.expect("joined"));
        let first = one.start_allreduce(SUM, slices[0], slices[0]);
        let waits = one.wait_async(first.expect("posted"));
        let soon = Duration::from_millis(100);
        assert!(tokio::time::timeout(soon, waits).await.is_err());
        let late = two.start_allreduce(SUM, slices[1], slices[1]);
        two.wait_async(late.expect("posted"))
            .await
            .expect("reduced");
        let own = one.start_barrier().expect("posted");
        let other = two.start_barrier().expect("posted");
        let (own, other) = tokio::join!(one.wait_async(own), two.wait_async(other));
        assert!(own.is_ok() && other.is_ok(), "{own:?} {other:?}");
        assert_eq!(regions.each_ref().map(|it| numbers(it, 8)), [[2], [2]]);
        let alone = one.start_barrier().expect("posted");
        drop(two);
        let error = one.wait_async(alone).await.expect_err("the other left");
        let Error::Collective { reason, rank, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((reason, rank), (FailureReason::MemberLeft, Some(1)));
    });
}

/// HT-50: when an application dies, the others learn its rank, within seconds.
#[test]
fn a_lost_application_is_named() {
    let (daemon, peer) = alone(&settings());
    let _leaf = Leaf::start(peer, Switch::new(JOB, 2, None, 0));
    std::thread::scope(|scope| {
        let victim = scope.spawn(|| member(&daemon, 1, 2, 8));
        let (mut survivor, region) = member(&daemon, 0, 2, 64);
        let own = region.slice(0, 64).expect("inside");
        let pending = survivor.start_allreduce(SUM, own, own).expect("posted");
        daemon.wait_for("it waits for the other", |report| {
            report.members.iter().any(|(_, it)| it.under_way == 1)
        });
        drop(victim.join().expect("joined"));
        let error = survivor
            .wait(pending, Duration::from_secs(10))
            .expect_err("it failed");
        let text = error.to_string();
        assert!(text.contains("because of rank 1"), "{text}");
        let named = matches!(
            error,
            Error::Collective {
                reason: FailureReason::MemberLeft,
                rank: Some(1),
                done: 0,
            }
        );
        assert!(named, "{text}");
        // The next one learns the same at once.
        let again = survivor
            .barrier(Duration::from_secs(10))
            .expect_err("it is over");
        assert!(
            matches!(again, Error::Collective { rank: Some(1), .. }),
            "{again}"
        );
    });
    daemon.wait_for("all are gone", |report| report.members.is_empty());
    let ends = daemon.report().engine.collective.ends;
    assert_eq!(ends.iter().sum::<u64>(), 2);
}

fn join(context: &Context, it: &Membership) -> Result<Member, Error> {
    Member::join(context, it, PATIENCE)
}

fn refused(error: Result<Member, Error>) -> (ErrorCode, String) {
    match error {
        Err(Error::Refused { code, text }) => (code, text),
        other => panic!("{other:?}"),
    }
}

/// HT-50, HT-3: without a leaf there are no memberships; a rank has one holder; quotas count, in
/// number and in memory; what can be no member is refused. A switch that does not answer is given
/// up.
#[test]
fn memberships_are_refused_with_reasons() {
    let (without, _peer) = alone(&config());
    let context = without.application();
    let (code, text) = refused(join(&context, &membership(0, 1)));
    assert_eq!(code, ErrorCode::InvalidState);
    assert!(text.contains("collective.leaf"), "{text}");

    let mut config = settings();
    config.collective.join_timeout_ms = 300;
    config.application.quota.memberships = 2;
    config.collective.staging_mib = 1;
    let (daemon, _peer) = alone(&config);
    let context = daemon.application();
    let silent = join(&context, &membership(0, 1)).expect_err("nobody is there");
    let reason = matches!(
        silent,
        Error::Collective {
            reason: FailureReason::NoAnswer,
            ..
        }
    );
    assert!(reason, "{silent}");
    let good = membership(0, 2);
    let wrong = [
        Membership { rank: 2, ..good },
        Membership {
            generation: 0,
            ..good
        },
        Membership { size: 65, ..good },
        Membership { slots: 0, ..good },
        Membership { payload: 7, ..good },
        Membership {
            payload: 1_401,
            ..good
        },
        Membership {
            world: 0xffff,
            ..good
        },
    ];
    for (number, wrong) in wrong.iter().enumerate() {
        let code = refused(join(&context, wrong)).0;
        assert_eq!(code, ErrorCode::InvalidArgument, "case {number}");
    }
    let large = Membership {
        slots: 1_024,
        ..good
    };
    let held = daemon.application();
    let holder = std::thread::spawn(move || join(&held, &good).is_err());
    daemon.wait_for("it joins", |report| report.members.len() == 1);
    assert_eq!(refused(join(&context, &good)).0, ErrorCode::InUse);
    let other = Membership { rank: 1, ..large };
    // 512 of the slots, the most of a membership, and 1400 bytes for each, are most of 1 MiB.
    let (code, text) = refused(join(&context, &other));
    assert!(
        code == ErrorCode::Quota && text.contains("staging_mib"),
        "{text}"
    );
    assert!(holder.join().expect("it ran"), "nobody answers");
    daemon.wait_for("all are gone", |report| report.members.is_empty());
}
