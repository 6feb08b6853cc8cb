//! The examples of the client library, as processes of their own at two daemons.

use crate::rig::{Daemon, config, pair};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Once;

/// Where a program of the client library lies. Builds all first: cargo builds those of the tested
/// package alone.
pub(crate) fn built(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_hostd"))
        .parent()
        .expect("a folder");
    BUILT.call_once(|| {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["build", "--quiet", "--bins", "--examples"])
            .arg("--target-dir")
            .arg(folder.parent().expect("the target folder"))
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.ends_with("release") {
            command.args(["--release", "--package", "hostd-client"]);
            command.args(["--features", "tokio"]);
        } else {
            // Other features of dependencies would build most of it anew.
            command.arg("--workspace");
        }
        assert!(command.status().expect("cargo").success());
    });
    folder.join(name)
}

/// Where an example lies.
fn example(name: &str) -> PathBuf {
    built("examples").join(name)
}

/// A process that is ended with its test.
struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    fn start(daemon: &Daemon, name: &str) -> Self {
        let mut process = Command::new(example(name))
            .args(["serve", "0"])
            .env("HOSTD_SOCKET", &daemon.socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(process.stdout.take().expect("piped"));
        let mut first = String::new();
        output.read_line(&mut first).expect("a line");
        let port = first.trim().strip_prefix("listening on port ");
        let port = port.unwrap_or_else(|| panic!("{first}")).to_owned();
        Self {
            process,
            output,
            port,
        }
    }

    /// What it printed after its first line, when it has ended well.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        assert!(self.process.wait().expect("it ends").success(), "{rest}");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs both sides of an example, the client with `words`; what the server and the client printed.
fn run(name: &str, words: &[&str]) -> (String, String) {
    let (a, b) = pair(&config());
    let server = Server::start(&b, name);
    let output = Command::new(example(name))
        .arg(format!("{}:{}", b.address, server.port))
        .args(words)
        .env("HOSTD_SOCKET", &a.socket)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    (server.end(), text)
}

/// HT-1: SEND and RECV between two processes, in rounds.
#[test]
fn ping_pong() {
    let (server, client) = run("ping_pong", &["50"]);
    assert!(client.contains("50 rounds of 64 bytes"), "{client}");
    assert!(server.contains("closed the connection"), "{server}");
}

/// HT-1: RDMA WRITE with and without immediate data.
#[test]
fn write_with_immediate() {
    let (server, client) = run("write_with_immediate", &["halves of a text"]);
    assert!(client.contains("write 2 of 2 is done"), "{client}");
    assert!(server.contains("16 bytes: halves of a text"), "{server}");
}

/// HT-1, HT-10: one large message over several paths.
#[test]
fn many_paths() {
    let (server, client) = run("many_paths", &["4"]);
    assert!(client.contains("4 MiB in "), "{client}");
    assert!(server.contains("connected to"), "{server}");
}

/// HT-1: several connections at once on one thread, with futures.
#[test]
fn ping_pong_async() {
    let (a, b) = pair(&config());
    let mut server = Server::start(&b, "ping_pong_async");
    let output = Command::new(example("ping_pong_async"))
        .arg(format!("{}:{}", b.address, server.port))
        .args(["5", "40"])
        .env("HOSTD_SOCKET", &a.socket)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("5 connections, 40 rounds"), "{text}");
    for _ in 0..5 {
        let mut line = String::new();
        server.output.read_line(&mut line).expect("a line");
        assert!(line.ends_with(": answered 40 messages\n"), "{line}");
    }
}

/// HT-1, HT-10: queue pairs that are set up by hand, with numbers exchanged over TCP.
#[test]
fn rc_pingpong() {
    let (a, b) = pair(&config());
    let start = |daemon: &Daemon, words: &[&str]| {
        Command::new(example("rc_pingpong"))
            .args(["--gid", &daemon.address.to_string(), "-c", "-n", "50"])
            .args(words)
            .env("HOSTD_SOCKET", &daemon.socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts")
    };
    let mut process = start(&b, &["-p", "0", "-s", "5000"]);
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    let mut first = String::new();
    output.read_line(&mut first).expect("a line");
    let port = first.trim().rsplit(' ').next().expect("a port").to_owned();
    let server = Server {
        process,
        output,
        port,
    };
    let client = start(&a, &["-p", &server.port, "-s", "5000", "127.0.0.1"]);
    let output = client.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("500000 bytes in "), "{text}");
    let told = server.end();
    assert!(
        told.contains(&format!("GID ::ffff:{}", a.address)),
        "{told}"
    );
}

/// HT-1, HT-10: SEND, RDMA READ and RDMA WRITE in the exchange of librdmacm's `rping`.
#[test]
fn rping() {
    let (a, b) = pair(&config());
    let start = |daemon: &Daemon, words: &[&str]| {
        Command::new(example("rping"))
            .args(words)
            // All lines fit into the pipe, which nobody reads until the end.
            .args(["-v", "-V", "-S", "500"])
            .env("HOSTD_SOCKET", &daemon.socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts")
    };
    let mut process = start(&b, &["-s", "-p", "0"]);
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    let mut first = String::new();
    output.read_line(&mut first).expect("a line");
    let port = first.trim().rsplit(' ').next().expect("a port").to_owned();
    let server = Server {
        process,
        output,
        port,
    };
    let to = b.address.to_string();
    let client = start(&a, &["-c", "-C", "20", "-a", &to, "-p", &server.port]);
    let output = client.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ping data: rdma-ping-19: "), "{text}");
    let told = server.end();
    let pings = told.matches("server ping data: rdma-ping-").count();
    assert_eq!(pings, 20, "{told}");
}

/// Who asks for help, or for nonsense, is told how to call them.
#[test]
fn usage_is_told() {
    let all = [
        "ping_pong",
        "ping_pong_async",
        "write_with_immediate",
        "many_paths",
    ];
    for name in all {
        for words in [
            &["--help"][..],
            &[],
            &["serve", "x"],
            &["nowhere", "1", "2"],
        ] {
            let output = Command::new(example(name))
                .args(words)
                .output()
                .expect("it starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{name} {words:?}: {text}");
            assert!(text.starts_with(&format!("usage: {name} serve")), "{text}");
        }
    }
}
