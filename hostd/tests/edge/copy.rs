//! hostcp, as processes of its own at two daemons: files of every length arrive unchanged, and a
//! copy ends.

use crate::examples::built;
use crate::rig::{Daemon, config, pair};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Bytes that hostcp sends in one message, and how many messages are on their way at most.
const CHUNK: usize = 256 * 1024;
const SLOTS: usize = 16;

/// Copies of a few MiB take a fraction of a second. One that hangs ends itself after 30 s, which is
/// a failure.
const LONG: Duration = Duration::from_secs(25);

/// `hostcp serve`; ends when dropped.
struct Receiver {
    process: Child,
    port: String,
}

impl Receiver {
    fn start(daemon: &Daemon, root: &Path) -> Self {
        let mut process = Command::new(built("hostcp"))
            .args(["serve", "--port", "0", "--root"])
            .arg(root)
            .env("HOSTD_SOCKET", &daemon.socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut first = String::new();
        let output = process.stdout.as_mut().expect("piped");
        BufReader::new(output)
            .read_line(&mut first)
            .expect("a line");
        let port = first.trim().strip_prefix("receiving on port ");
        let port = port.unwrap_or_else(|| panic!("{first}")).to_owned();
        Self { process, port }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn copy(from: &Daemon, source: &Path, to: &Daemon, receiver: &Receiver, name: &str) -> Output {
    Command::new(built("hostcp"))
        .args(["--port", &receiver.port])
        .arg(source)
        .arg(format!("{}:{name}", to.address))
        .env("HOSTD_SOCKET", &from.socket)
        .output()
        .expect("it starts")
}

/// Bytes that differ from place to place, so that chunks which are exchanged are found.
fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((at * 31 + at / 251 + at / CHUNK) % 256).expect("a byte"))
        .collect()
}

/// HT-1: lengths around those of a chunk and of all slots, none and one.
#[test]
fn files_of_every_length_arrive() {
    let (a, b) = pair(&config());
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    let receiver = Receiver::start(&b, &root);
    let whole = SLOTS * CHUNK;
    for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, whole, whole + CHUNK + 7] {
        let source = folder.path().join("source");
        let sent = bytes(len);
        fs::write(&source, &sent).expect("written");
        let began = Instant::now();
        let output = copy(&a, &source, &b, &receiver, "copy");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{len} bytes: {said}{errors}");
        assert!(began.elapsed() < LONG, "{len} bytes: it waited for nothing");
        assert!(said.contains("BLAKE3"), "{said}");
        let got = fs::read(root.join("copy")).expect("the file");
        assert!(got == sent, "{len} bytes: {} came", got.len());
    }
}

/// MG-1: a place that cannot be written is told to the sender, by name, and nothing is left there.
#[test]
fn a_receiver_that_cannot_write_says_so() {
    let (a, b) = pair(&config());
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    let receiver = Receiver::start(&b, &root);
    let source = folder.path().join("source");
    fs::write(&source, bytes(3 * CHUNK)).expect("written");
    let output = copy(&a, &source, &b, &receiver, "nowhere/copy");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("nowhere"), "{errors}");
    let left: Vec<_> = fs::read_dir(&root).expect("listed").collect();
    assert!(left.is_empty(), "{left:?}");
}
