//! Groups whose members are programs in C or in Python.

use std::process::{Child, Output, Stdio};

use lab::observe::assert_healthy;
use lab::privileged;

use crate::ends::Rig;
use crate::{LATE, c, python};

/// Members: two on each host.
pub(crate) const RANKS: usize = 4;

/// What is lost while groups form, beside what comes after their end: members ask for connections
/// before others wait for them, and again before the answer is there. And results that come once
/// more, to members and to leaves that asked again because one of the others was late, or to
/// members that have ended by then.
pub(crate) const FORMING: [&str; 7] = [
    LATE[0],
    LATE[1],
    "no_service",
    "cm_wrong_transaction",
    "collective_repeated",
    "collective_ended_member",
    "compute_unexpected",
];

/// Where a rank is.
pub(crate) fn host(rank: usize) -> &'static str {
    ["h1", "h2"][rank % 2]
}

/// Waits for programs; each by its rank.
pub(crate) fn outcomes(started: Vec<Child>) -> Vec<Output> {
    // All of them first: one that waits for another one is not over before it.
    let waiting: Vec<_> = started
        .into_iter()
        .map(|child| std::thread::spawn(move || child.wait_with_output().unwrap()))
        .collect();
    waiting.into_iter().map(|it| it.join().unwrap()).collect()
}

/// Runs a member for each rank: `words RANK SIZE ADDRESS PORT` and what `more` says.
pub(crate) fn members(
    rig: &Rig,
    words: &[String],
    port: u16,
    more: impl Fn(usize) -> String,
) -> Vec<Output> {
    let start = |rank: usize| {
        let (size, port) = (RANKS.to_string(), port.to_string());
        let mut words = words.to_vec();
        words.extend([rank.to_string(), size, root(rig), port, more(rank)]);
        let mut command = rig.command(host(rank), &words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    outcomes((0..RANKS).map(start).collect())
}

/// Starts the daemon of a host without a leaf.
pub(crate) fn without_leaf(rig: &Rig, host: &str) {
    with_config(rig, host, |all| {
        let collective = all["collective"].as_table_mut().unwrap();
        assert!(collective.remove("leaf").is_some());
    });
}

/// Starts the daemon of a host with another configuration.
pub(crate) fn with_config(rig: &Rig, host: &str, change: impl FnOnce(&mut toml::Table)) {
    rig.with_lab(|lab| {
        let path = lab::node_dir(lab.name(), host).join("hostd.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut all: toml::Table = text.parse().unwrap();
        change(&mut all);
        std::fs::write(&path, all.to_string()).unwrap();
        lab.restart(host).unwrap();
    });
}

/// Where rank 0 is.
fn root(rig: &Rig) -> String {
    rig.address(host(0))
}

/// Members of a program that checks its results: short vectors, long ones, and one of several
/// pieces; then one member with another length than the others.
fn carry_out(rig: &Rig, words: &[String], counts: &[usize]) {
    let (before, added) = (rig.sent("h1"), rig.added());
    for (at, count) in counts.iter().enumerate() {
        let port = 7100 + u16::try_from(at).unwrap();
        let outputs = members(rig, words, port, |_| count.to_string());
        // What one says of another is half of the story.
        let wrong: String = outputs
            .iter()
            .map(|output| String::from_utf8_lossy(&output.stderr))
            .collect();
        for (rank, output) in outputs.iter().enumerate() {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{rank}: {said}{wrong}");
            let line = format!("rank {rank} of {RANKS}: all exact, {count} elements\n");
            assert_eq!(said, line, "{wrong}");
        }
    }
    let least = counts.iter().max().unwrap() * 4;
    assert!(rig.sent("h1") - before > least as u64, "not by hostd");
    rig.assert_reduced(added);
    let wrong = 3;
    let more = |rank| if rank == wrong { "17" } else { "16" }.to_owned();
    for output in members(rig, words, 7200, more) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("rank 3 calls allreduce"), "{said}");
    }
    rig.with_lab(|lab| assert_healthy(lab, &FORMING));
}

/// HT-50: four members in C on two hosts reduce, broadcast, gather and meet, in registered memory
/// and in other, with exact results; a member that calls something else is named to all. Between
/// the hosts, and through the switches.
#[test]
fn collectives_in_c() {
    if !privileged() {
        return;
    }
    Rig::both_ways("cgroup", |rig| {
        let words = c(&rig.example("collectives"));
        // The last one has two pieces.
        carry_out(rig, &words, &[1, 1000, 1_200_000]);
    });
}

/// HT-50: the same in Python with arrays of numpy, of every type.
#[test]
fn collectives_in_python() {
    if !privileged() {
        return;
    }
    let words = python("hostd/client/python/examples/collectives.py");
    Rig::both_ways("pygroup", |rig| carry_out(rig, &words, &[1, 20_000]));
}
