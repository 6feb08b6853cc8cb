//! hostcp, as processes of its own at two daemons: files of every length arrive unchanged, and a
//! copy ends.

use crate::examples::built;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{
    Access, CompletionOpcode, Private, QueuePairOptions, ReceiveRequest, RemoteSlice, SendRequest,
};
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

/// The first message of a sender, as hostcp writes it.
fn header(size: u64, target: &str) -> Vec<u8> {
    let mut bytes = b"hcp2".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(0o644_u32.to_le_bytes());
    for text in [target, "name"] {
        let len = u16::try_from(text.len()).expect("short");
        bytes.extend(len.to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Sends chunks of one byte as fast as they are acknowledged, and takes no message after the
/// welcome; how many were acknowledged before the receiver ended it, up to `most`.
fn pour(from: &Daemon, to: &Daemon, receiver: &Receiver, size: u64, most: u32) -> u32 {
    let context = from.application();
    let mut queue = context.create_completion_queue(64).expect("a queue");
    let options = QueuePairOptions {
        send_entries: 16,
        receive_entries: 4,
    };
    let pair = context.create_queue_pair(&queue, &queue, options);
    let mut pair = pair.expect("a queue pair");
    let memory = context.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    let welcome = ReceiveRequest {
        wr_id: 1,
        local: memory.slice(0, 1024).expect("inside"),
    };
    pair.post_receive(&welcome).expect("posted");
    let address = (to.address, receiver.port.parse().expect("a port")).into();
    let hello = Private::new(b"hcp2").expect("short");
    pair.connect(address, hello, PATIENCE).expect("accepted");
    let first = header(size, "copy");
    memory.write(1024, &first).expect("inside");
    let local = memory.slice(1024, first.len()).expect("inside");
    pair.post_send(&SendRequest::send(2, local)).expect("sent");
    let mut rkey = None;
    let mut acknowledged = 0;
    while acknowledged < most {
        let completion = queue.next(PATIENCE).expect("something happens");
        if !completion.is_success() {
            break;
        }
        match completion.opcode {
            CompletionOpcode::Receive => {
                let mut key = [0; 4];
                memory.read(8, &mut key).expect("inside");
                rkey = Some(u32::from_le_bytes(key));
            }
            CompletionOpcode::Write => acknowledged += 1,
            _ => continue,
        }
        let Some(rkey) = rkey else { continue };
        let local = memory.slice(0, 1).expect("inside");
        let chunk = SendRequest::write(3, local, RemoteSlice { address: 0, rkey });
        if pair.post_send(&chunk.with_immediate(0)).is_err() {
            break;
        }
    }
    acknowledged
}

/// HT-3: a sender that goes on without taking what the receiver says is ended after as much as a
/// lawful one has under way, and so is one that sends more than it announced; others are served.
#[test]
fn a_sender_that_does_not_listen_is_ended() {
    const MOST: u32 = 2000;
    let (a, b) = pair(&config());
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    let receiver = Receiver::start(&b, &root);
    let deaf = pour(&a, &b, &receiver, 1 << 40, MOST);
    assert!(deaf < MOST, "the receiver queues without bound");
    let liar = pour(&a, &b, &receiver, 3, MOST);
    assert!(liar < MOST, "more than was announced is taken");
    let source = folder.path().join("source");
    fs::write(&source, bytes(CHUNK)).expect("written");
    let output = copy(&a, &source, &b, &receiver, "copy");
    assert!(output.status.success(), "{output:?}");
    drop(receiver);
    let left: Vec<_> = fs::read_dir(&root).expect("listed").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// `hostperf serve` measures with several at a time: a short measurement ends while a long one
/// runs.
#[test]
fn measurements_run_side_by_side() {
    let (a, b) = pair(&config());
    let mut server = Command::new(built("hostperf"))
        .args(["serve", "--port", "7000"])
        .env("HOSTD_SOCKET", &b.socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let output = server.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let client = |words: &[&str]| {
        let mut command = Command::new(built("hostperf"));
        command.args(words).arg(b.address.to_string());
        command.args(["--port", "7000"]);
        command.env("HOSTD_SOCKET", &a.socket);
        command.stdout(Stdio::null());
        command
    };
    let mut long = client(&["lat", "--duration", "3600"])
        .spawn()
        .expect("it starts");
    b.wait_for("the long one runs", |report| {
        report.queue_pairs.iter().any(|(_, it, _)| it.rtt.is_some())
    });
    let short = client(&["lat", "--iterations", "100"]).status();
    let still = long.try_wait().expect("known");
    for process in [&mut long, &mut server] {
        process.kill().expect("ended");
        process.wait().expect("ended");
    }
    assert!(short.expect("started").success(), "it had to wait");
    assert_eq!(still, None, "the long one ended first");
    a.wait_empty();
}
