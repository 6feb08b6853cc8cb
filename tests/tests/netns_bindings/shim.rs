//! MPI programs over hostd in which something goes wrong.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fabric_tests::installed::root;
use lab::privileged;

use crate::c;
use crate::ends::Rig;
use crate::groups::{RANKS, host, without_leaf};
use crate::mpi::Mpi;

/// A program and the shim, compiled with MPICH: it leaves the other ranks alone when one dies.
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
        let mut all: Vec<_> = ["timeout", "120", &mpiexec, "-disable-auto-cleanup"]
            .map(str::to_owned)
            .into();
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

/// HT-50: a rank that is killed is named to each of the others by a line, and an error that its
/// program can handle. A rank may be late for longer than the usual time-out of groups, and for as
/// long as HOSTD_PMPI_TIMEOUT says; one that cannot be is refused by its name.
#[test]
fn a_killed_rank_is_named_and_a_late_one_is_waited_for() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("mpikill");
    let trouble = Trouble::new(&rig);
    let others = RANKS - 1;
    let begun = Instant::now();
    let (said, wrong, _) = trouble.run("killed", &[]);
    let named = wrong.matches("hostd: MPI_Allreduce: rank 3 is lost");
    assert_eq!(named.count(), others, "{wrong}");
    assert_eq!(
        said.matches("MPI_Allreduce has failed").count(),
        others,
        "{said}"
    );
    println!("all have ended after {:?}", begun.elapsed());
    let (said, wrong, _) = trouble.run("late 8", &["HOSTD_PMPI_TIMEOUT=1"]);
    let named = wrong.matches("hostd: MPI_Barrier: rank 3 is late");
    assert!(named.count() >= others, "{wrong}");
    assert!(
        said.matches("MPI_Barrier has failed").count() >= others,
        "{said}"
    );
    for value in ["", "0", "-1", "5s", "4000001", "99999999999999999999"] {
        let variable = format!("HOSTD_PMPI_TIMEOUT={value}");
        let (said, wrong, well) = trouble.run("reduce", &[&variable]);
        let expected = format!("hostd: HOSTD_PMPI_TIMEOUT is '{value}': it has to be seconds");
        assert!(!well && wrong.contains(&expected), "{value}: {said}{wrong}");
    }
    let begun = Instant::now();
    let (said, wrong, well) = trouble.run("late 35", &[]);
    assert!(
        well && said.matches("done").count() == RANKS,
        "{said}{wrong}"
    );
    assert!(begun.elapsed() > Duration::from_secs(35), "it was late");
    assert!(!wrong.contains("hostd:"), "{wrong}");
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
