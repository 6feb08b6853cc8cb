//! The libraries for C and Python over real daemons in a laboratory: their examples, with each
//! other and with those in Rust, and what they answer to mistakes; and what stands on them: MPI and
//! PyTorch.

mod again;
mod ends;
mod groups;
mod mpi;
mod requests;
mod shim;
mod torch;

use std::path::{Path, PathBuf};
use std::process::Command;

use ends::{Client, Program, Rig};
use fabric_tests::installed::root;
use lab::observe::assert_healthy;
use lab::privileged;

/// Packets of a connection that has just ended may still be on their way.
const LATE: [&str; 2] = ["queue_pair_state", "queue_pair_ended"];

/// Where a Python program of the tree is.
fn python(path: &str) -> Vec<String> {
    let path = root().join(path).display().to_string();
    vec!["/usr/bin/python3".to_owned(), path]
}

/// Where an example of the Rust library is; builds them first: all of the workspace, as other
/// features of dependencies would build most of it anew.
fn rust(name: &str) -> Vec<String> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--workspace", "--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.expect("cargo").success());
    let path = lab::settings::binaries().join("examples").join(name);
    vec![path.display().to_string()]
}

fn c(program: &Path) -> Vec<String> {
    vec![program.display().to_string()]
}

/// HT-4, HT-1: messages go to and fro between C and C, C and Rust, each as server and as client.
#[test]
fn ping_pong_in_c_and_in_rust() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("cping");
    let (ours, theirs) = (rig.example("ping_pong"), rust("ping_pong"));
    for (server, client, apart) in [
        (c(&ours), c(&ours), true),
        (theirs.clone(), c(&ours), true),
        (c(&ours), theirs, false),
    ] {
        let server = Program::serve(&rig, &server);
        let said = Client { apart }.run(&rig, &client, server.port(), "200");
        assert!(said.contains("200 rounds of 64 bytes"), "{said}");
        let said = server.end();
        assert!(
            said.contains("the peer has closed the connection"),
            "{said}"
        );
    }
    rig.with_lab(|lab| assert_healthy(lab, &LATE));
}

/// HT-4, HT-1: RDMA WRITE with and without immediate data, inline and from memory, READ and atomic
/// operations from C; what was written is what the server shows.
#[test]
fn write_with_immediate_in_c_and_in_rust() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("cwrite");
    let (ours, theirs) = (
        rig.example("write_with_immediate"),
        rust("write_with_immediate"),
    );
    let mut write_only = c(&ours);
    write_only.push("--write-only".to_owned());
    let short = "halves of a text".to_owned();
    // Neither half goes inline, and a packet has 1 or 2 KiB.
    let long: String = ('a'..='z').cycle().take(3000).collect();
    for (server, client, apart, counter) in [
        (c(&ours), c(&ours), true, Some(42)),
        (theirs.clone(), write_only, true, None),
        (c(&ours), theirs, false, Some(0)),
    ] {
        for text in [&short, &long] {
            let server = Program::serve(&rig, &server);
            let said = Client { apart }.run(&rig, &client, server.port(), text);
            assert!(said.contains("write 2 of 2 is done"), "{said}");
            let said = server.end();
            let line = format!("{} bytes: {text}\n", text.len());
            assert!(said.contains(&line), "{said}");
            if let Some(counter) = counter {
                let line = format!("counter {counter}, closed in good order\n");
                assert!(said.ends_with(&line), "{said}");
            }
        }
    }
    rig.with_lab(|lab| assert_healthy(lab, &LATE));
}

/// HT-4: mistakes with a running daemon end in errors that name them, and never in a fault: handles
/// after their end, objects given back in any order, requests that cannot be, quotas, two threads.
#[test]
fn mistakes_in_c_are_answered() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("cwrong");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/netns_bindings/misuse.c");
    let program = rig.compile(&source).display().to_string();
    let said = rig.run_client(&[program.clone(), rig.server_address()]);
    assert_eq!(said.lines().last(), Some("all answered"), "{said}");
    // A wait without an end has one when the daemon is killed.
    let waiting = Program::start(&rig, &[program, "outlive".to_owned()]);
    assert_eq!(waiting.first(), "waiting");
    rig.with_lab(|lab| lab.kill("h2").unwrap());
    let said = waiting.end();
    assert_eq!(said, "all answered\n");
}

/// HT-4: arrays of numpy are exchanged between processes in Python, and come back doubled.
#[test]
fn vectors_in_python() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("pyvec");
    let words = python("hostd/client/python/examples/vectors.py");
    let server = Program::serve(&rig, &words);
    let said = Client { apart: true }.run(&rig, &words, server.port(), "20");
    assert!(
        said.contains("20 vectors of 100000 elements doubled"),
        "{said}"
    );
    let said = server.end();
    assert!(said.contains("doubled 20 vectors"), "{said}");
    rig.with_lab(|lab| assert_healthy(lab, &LATE));
}

/// HT-4: the two sides that the manual shows in Python talk to each other as it says.
#[test]
fn both_sides_of_the_manual_in_python() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("pyman");
    let page = include_str!("../../../docs/python-library.md");
    let mut programs = page.split("```python\nimport").skip(1);
    let mut write = |name: &str| {
        let (text, _) = programs.next().and_then(|it| it.split_once("```")).unwrap();
        let path = rig.system().join(name);
        let text = format!("import{text}").replace("10.2.4.2", &rig.server_address());
        std::fs::write(&path, text).unwrap();
        vec!["/usr/bin/python3".to_owned(), path.display().to_string()]
    };
    let (asking, waiting) = (write("asks.py"), write("waits.py"));
    let server = Program::start(&rig, &waiting);
    assert_eq!(server.port(), "7000");
    rig.run_client(&asking);
    let said = "sum 1000.0\nimmediate 19 b'few bytes go inline'\nCLOSED 5\n";
    assert_eq!(server.end(), said);
}

/// HT-4: Python and C understand each other: writes, reads, atomics, immediate data and private
/// data; and Python's exceptions, and memory that lives as long as its last array.
#[test]
fn python_and_c() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("pyc");
    let server = Program::serve(&rig, &c(&rig.example("write_with_immediate")));
    let words = python("tests/tests/netns_bindings/bindings.py");
    let said = Client { apart: true }.run(&rig, &words, server.port(), "from numpy to C");
    assert_eq!(said.lines().last(), Some("all as it should be"), "{said}");
    let said = server.end();
    assert!(said.contains("15 bytes: from numpy to C\n"), "{said}");
    assert!(
        said.ends_with("counter 42, closed in good order\n"),
        "{said}"
    );
}
