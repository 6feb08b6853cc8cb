//! MPI programs over hostd in which something goes wrong.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fabric_tests::installed::root;
use lab::privileged;

use crate::c;
use crate::ends::Rig;
use crate::groups::{RANKS, host, with_config, without_leaf};
use crate::mpi::Mpi;

/// A program and the shim, compiled with MPICH.
struct Trouble<'a> {
    rig: &'a Rig,
    shim: PathBuf,
    program: PathBuf,
}

impl<'a> Trouble<'a> {
    fn new(rig: &'a Rig) -> Self {
        let source = root().join("tests/tests/netns_bindings/mpi_trouble.c");
        let program = Mpi::Mpich.compile(rig, &source, "trouble", &[]);
        let shim = Mpi::Mpich.shim(rig);
        Self { rig, shim, program }
    }

    /// Runs it with these words and variables: what the ranks printed, what stood in standard
    /// error, and whether it ended well.
    fn run(&self, words: &str, variables: &[&str]) -> (String, String, bool) {
        let mpiexec = Mpi::Mpich.program("mpiexec");
        let mut all: Vec<_> = ["timeout", "120", &mpiexec].map(str::to_owned).into();
        for rank in 0..RANKS {
            if rank > 0 {
                all.push(":".to_owned());
            }
            all.extend(["-n", "1", "env"].map(str::to_owned));
            all.push(format!("LD_PRELOAD={}", self.shim.display()));
            let socket = self.rig.socket(host(rank));
            all.push(format!("HOSTD_SOCKET={}", socket.display()));
            all.extend(variables.iter().map(|&it| it.to_owned()));
            all.extend(c(&self.program));
            all.extend(words.split(' ').map(str::to_owned));
        }
        let output = self.rig.command("h1", &all).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, wrong) = (text(&output.stdout), text(&output.stderr));
        println!("{words} {variables:?}: {said}{wrong}");
        (said, wrong, output.status.success())
    }
}

/// HT-50: a rank may be late for longer than the usual time-out of groups, as one that writes a
/// file is.
#[test]
fn a_late_rank_is_waited_for() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("mpilate");
    let trouble = Trouble::new(&rig);
    let begun = Instant::now();
    let (said, wrong, well) = trouble.run("late 35", &[]);
    assert!(
        well && said.matches("done").count() == RANKS,
        "{said}{wrong}"
    );
    assert!(begun.elapsed() > Duration::from_secs(35), "it was late");
    assert!(!wrong.contains("hostd:"), "{wrong}");
}

/// HT-50, SW-42: ranks that have their result and wait in calls of MPI that the shim does not take
/// give it to those that the switches have left without: nobody stands still.
#[test]
fn ranks_that_wait_by_mpi_give_results() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("mpideaf");
    let trouble = Trouble::new(&rig);
    let words = format!("deaf {}", rig.leaf("h2").join(" "));
    let (said, wrong, well) = trouble.run(&words, &[]);
    assert!(
        well && said.matches("done").count() == RANKS,
        "{said}{wrong}"
    );
    let line = "hostd: collectives go on between the hosts";
    assert_eq!(wrong.matches(line).count(), 1, "{wrong}");
}

/// HT-50: a group that does without the switches that were to be used is told of by one line,
/// unless that is not wanted.
#[test]
fn collectives_without_switches_are_told_of_once() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("mpileaf");
    let trouble = Trouble::new(&rig);
    let (said, wrong, well) = trouble.run("reduce", &[]);
    assert!(well && !wrong.contains("hostd:"), "{said}{wrong}");
    without_leaf(&rig, "h2");
    let line = "hostd: collectives go on between the hosts: without switches since collective 0";
    let (said, wrong, well) = trouble.run("reduce", &["HOSTD_PMPI_QUIET=0"]);
    assert!(well && wrong.matches(line).count() == 1, "{said}{wrong}");
    assert!(wrong.contains("a host knows no leaf"), "{wrong}");
    let (said, wrong, well) = trouble.run("reduce", &["HOSTD_PMPI_QUIET=1"]);
    assert!(well && !wrong.contains("hostd:"), "{said}{wrong}");
}

/// HT-50: a rank whose own hostd refuses what it needs to form a group is named to the others
/// before any of them waits: rank 0 here, which needs a queue pair for each of the three others and
/// may have two. The program goes on by the MPI library.
#[test]
fn a_group_that_cannot_form_keeps_nobody_waiting() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("mpiquota");
    let trouble = Trouble::new(&rig);
    with_config(&rig, host(0), |all| {
        let quota = "[application.quota]\nqueue_pairs = 2\n";
        let quota: toml::Table = quota.parse().unwrap();
        let application = all["application"].as_table_mut().unwrap();
        application.extend(quota["application"].as_table().unwrap().clone());
    });
    let begun = Instant::now();
    let (said, wrong, well) = trouble.run("reduce", &[]);
    let took = begun.elapsed();
    assert!(
        well && said.matches("done").count() == RANKS,
        "{said}{wrong}"
    );
    assert!(took < Duration::from_secs(15), "{took:?}");
    let named = "rank 0 cannot take part: its own host refuses";
    assert_eq!(wrong.matches(named).count(), RANKS - 1, "{wrong}");
    let complaints = wrong.matches("MPI's own collectives are used").count();
    assert_eq!(complaints, RANKS, "{wrong}");
}
