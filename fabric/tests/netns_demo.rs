//! The demonstration beside a busy neighbour: what a newcomer runs first must not depend on a quiet
//! machine.

use std::process::{Child, Command, Stdio};

use lab::privileged;

const FABRIC: &str = env!("CARGO_BIN_EXE_fabric");

/// A neighbour that takes all it gets; ends when dropped.
struct Neighbour(Child);

impl Neighbour {
    /// Eight busy loops. The bound is for the case that this process is killed.
    fn begin() -> Neighbour {
        let mut command = Command::new("stress-ng");
        command.args(["--quiet", "--cpu", "8", "--timeout", "300s"]);
        let process = command.stdin(Stdio::null()).spawn();
        Neighbour(process.expect("scripts/setup installs stress-ng"))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // SIGTERM, so that it ends its workers.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a process"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// SW-12, SW-40, HT-50, MG-5: all chapters pass beside eight busy loops: files arrive as they were
/// sent, and switches lose nothing of a lossless class though all daemons wait for processors.
#[test]
fn the_demonstration_passes_on_a_busy_machine() {
    if !privileged() {
        return;
    }
    let _alone = lab::exclusive().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let neighbour = Neighbour::begin();
    let output = Command::new(FABRIC)
        .args(["demo", "--plot"])
        .arg(folder.path())
        .env_remove("KEEP")
        .output()
        .unwrap();
    drop(neighbour);
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{said}\n{errors}");
    assert!(output.status.success(), "{}", output.status);
    let verdicts = said.matches("What has to hold").count();
    assert_eq!(verdicts, 6, "four chapters, and incast twice");
    assert!(!said.contains('✗'), "a verdict that fails");
    for picture in [
        "paths.svg",
        "incast.svg",
        "incast-controlled.svg",
        "controls.svg",
    ] {
        assert!(folder.path().join(picture).is_file(), "{picture}");
    }
}
