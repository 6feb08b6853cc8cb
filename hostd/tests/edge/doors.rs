//! HT-3: who comes in, and what those take who do not, or who only knock.

use crate::raw::{Raw, is_well};
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::abi::answer::{FromDaemon, Reply};
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{Access, ErrorCode};
use hostd_client::shm::create_shared;
use hostd_client::{Context, Error};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use std::io::{BufRead, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// HT-3: who is neither named nor in a named group is told so, and gets nothing.
#[test]
fn the_wrong_user_is_refused() {
    if !netns::privileged() {
        return;
    }
    let mut config = config();
    config.application.groups = vec!["4242".to_owned()];
    config.application.users = vec!["4343".to_owned()];
    let (a, _b) = pair(&config);
    for (user, group, more, welcome) in [
        ("4000", "4000", "4001", false),
        ("4343", "4000", "4001", true),
        ("4000", "4242", "4001", true),
        ("4000", "4000", "4242", true),
    ] {
        // The folder is this user's alone.
        let folder = a.socket.parent().expect("a folder");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder, open).expect("opened");
        let status = std::process::Command::new("setpriv")
            .args(["--reuid", user, "--regid", group, "--groups", more, "--"])
            .args(["/usr/bin/python3", "-c", PROBE])
            .arg(&a.socket)
            .arg(hostd_client::abi::VERSION_MAJOR.to_string())
            .status()
            .expect("setpriv and python3 are there");
        assert_eq!(
            status.success(),
            welcome,
            "user {user}, group {group}, also in {more}"
        );
    }
    assert_eq!(a.socket_statistics().refused, 1);
    is_well(&a);
}

/// Succeeds if it is told nothing before its hello, and the reply is the one to a hello; who is
/// refused is told so before it has said anything.
const PROBE: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(1)
s.connect(sys.argv[1])
try:
    first = s.recv(512)
    assert struct.unpack_from('<HHII', first) == (107, 0, 0, 3), first
    assert s.recv(512) == b''
    sys.exit(1)
except TimeoutError:
    pass
s.settimeout(60)
s.send(struct.pack('<HHI4sHHQ', 1, 0, 7, b'hstd', int(sys.argv[2]), 0, 7))
kind, = struct.unpack_from('<H', s.recv(512))
sys.exit(kind != 101)
";

/// HT-3, HT-50: a session ends with the process that opened it, though a child that it forked has
/// the socket, too, and lives on.
#[test]
fn a_session_ends_with_its_process() {
    let mut config = config();
    config.application.quota.sessions = 1;
    let (a, _b) = pair(&config);
    let has_room = || Raw::connect(&a).greet(&Request::hello()).is_some();
    let mut program = std::process::Command::new("/usr/bin/python3")
        .args(["-c", PARENT])
        .arg(&a.socket)
        .arg(hostd_client::abi::VERSION_MAJOR.to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let mut said = std::io::BufReader::new(program.stdout.take().expect("piped"));
    let mut child = String::new();
    said.read_line(&mut child).expect("the number of its child");
    assert!(!has_room(), "its session is there");
    program.kill().expect("it lives");
    program.wait().expect("our child");
    let until = Instant::now() + PATIENCE;
    while !has_room() {
        assert!(Instant::now() < until, "its session is there still");
        std::thread::sleep(Duration::from_millis(20));
    }
    let child = Pid::from_raw(child.trim().parse().expect("a number"));
    assert_eq!(kill(child, None), Ok(()), "it lives on");
    kill(child, Signal::SIGKILL).expect("it lives");
    a.wait_empty();
}

/// Opens a session, and has a child say its number; both stay.
const PARENT: &str = "
import os, socket, struct, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(60)
s.connect(sys.argv[1])
s.send(struct.pack('<HHI4sHHQ', 1, 0, 7, b'hstd', int(sys.argv[2]), 0, 7))
kind, = struct.unpack_from('<H', s.recv(512))
assert kind == 101
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
";

fn refusal(raw: &Raw) -> ErrorCode {
    match raw.next() {
        Some((FromDaemon::Reply(0, Reply::Error { code, .. }), _)) => code,
        other => panic!("not turned away: {other:?}"),
    }
}

fn wait_welcome(daemon: &Daemon) {
    let until = Instant::now() + PATIENCE;
    while let Err(error) = Context::connect(&daemon.socket) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// HT-3: connections that say nothing count, so that a user has no more of them than sessions; the
/// next is told so without being read, in the library's words too.
#[test]
fn silent_connections_are_counted() {
    let mut config = config();
    config.application.quota.sessions = 4;
    let (a, _b) = pair(&config);
    let silent: Vec<Raw> = (0..4).map(|_| Raw::connect(&a)).collect();
    assert_eq!(refusal(&Raw::connect(&a)), ErrorCode::Quota);
    match Context::connect(&a.socket) {
        Err(Error::Refused { code, text }) => {
            assert_eq!(code, ErrorCode::Quota);
            assert!(text.contains("application.quota.sessions"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.socket_statistics().refused, 2);
    drop(silent);
    wait_welcome(&a);
}

/// A connection whose close waits until the other end, the second one, is closed.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut lingering = TcpStream::connect(address).expect("connected");
    let (unread, _) = listener.accept().expect("accepted");
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 3600,
    };
    setsockopt(&lingering, sockopt::Linger, &linger).expect("lingers");
    lingering.set_nonblocking(true).expect("nonblocking");
    while lingering.write(&[0; 65_536]).is_ok() {}
    // Else its close would not wait.
    lingering.set_nonblocking(false).expect("blocking");
    (lingering, unread)
}

/// HT-3: a descriptor whose close takes as long as its sender likes keeps nobody else waiting: here
/// a connection that lingers, with data that its peer does not read. It comes with a request that
/// is refused, a record without bytes, one that is no request, and unread behind such a one.
#[test]
fn a_descriptor_that_does_not_close() {
    let (a, _b) = pair(&config());
    let request = register(4096).encode(9);
    let request = request.as_slice();
    for (before, bytes) in [
        (None, request),
        (None, &[][..]),
        (None, &[0xff; 64][..]),
        (Some(&[0xff; 64][..]), request),
    ] {
        // Whichever close is the last waits: the daemon's, or, if it is faster, this one. When it
        // has not to read the record it is faster at times.
        for round in 0.. {
            let (lingering, unread) = lingering();
            let raw = Raw::greeted(&a);
            let (tell, told) = std::sync::mpsc::channel();
            let closer = std::thread::scope(|scope| {
                let raw = &raw;
                scope.spawn(move || {
                    let sent = before.is_none_or(|before| raw.send(before, &[]))
                        && raw.send(bytes, &[lingering.as_fd()]);
                    let closer = std::thread::spawn(move || drop(lingering));
                    tell.send((sent, closer)).expect("heard");
                });
                told.recv()
            });
            let (sent, closer) = closer.expect("told");
            if sent {
                let refused = match raw.next() {
                    Some((FromDaemon::Reply(_, Reply::Error { code, .. }), _)) => Some(code),
                    None => None,
                    other => panic!("{other:?}"),
                };
                if before.is_none() && bytes == request {
                    assert_eq!(refused, Some(ErrorCode::BadMemory));
                } else {
                    while raw.next().is_some() {}
                }
            }
            is_well(&a);
            // Ends the lingering.
            drop(unread);
            closer.join().expect("closed");
            if sent {
                break;
            }
            assert!(round < 1000, "it is always faster");
        }
    }
    a.wait_empty();
}

/// HT-3: who is turned away attaches no descriptor to what he sends, where the kernel (from Linux
/// 6.16 on) lets the daemon say so, and keeps nobody waiting anywhere.
#[test]
fn descriptors_of_who_is_turned_away() {
    let mut config = config();
    config.application.quota.sessions = 1;
    let (a, _b) = pair(&config);
    let welcome = Raw::greeted(&a);
    let (probe, _other) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
    let known = common::sys::permit_descriptors(&probe, false).expect("a Unix socket");
    for _ in 0..20 {
        let (lingering, unread) = lingering();
        let raw = Raw::connect(&a);
        let sent = raw.send(b"hello", &[lingering.as_fd()]);
        assert!(!(known && sent), "it came");
        let closer = std::thread::spawn(move || drop(lingering));
        assert_eq!(refusal(&raw), ErrorCode::Quota);
        drop(raw);
        let reply = welcome.create(&Request::CreateCompletionQueue { entries: 4 });
        assert!(matches!(reply, Reply::CompletionQueue { .. }), "{reply:?}");
        drop(unread);
        closer.join().expect("closed");
    }
    assert_eq!(a.socket_statistics().refused, 20);
}

/// HT-3: a user whose descriptors do not close gets no further sessions when too many wait, and
/// goes on with those that he has when they are closed.
#[test]
fn too_many_descriptors_that_do_not_close() {
    let (a, _b) = pair(&config());
    let bystander = Raw::greeted(&a);
    let mut held = Vec::new();
    let refused = loop {
        let raw = Raw::connect(&a);
        // It may have been turned away before it says anything.
        raw.send(Request::hello().encode(9).as_slice(), &[]);
        match raw.next() {
            Some((FromDaemon::Reply(9, Reply::Hello { .. }), _)) => {}
            Some((FromDaemon::Reply(0, Reply::Error { code, text }), _)) => break (code, text),
            other => panic!("{other:?}"),
        }
        let (lingering, unread) = lingering();
        let many = vec![lingering.as_fd(); 100];
        assert!(raw.send(b"no request", &many));
        held.push((std::thread::spawn(move || drop(lingering)), unread));
        // The end comes when it is this connection's turn to be closed.
        match raw.next() {
            Some((FromDaemon::Reply(_, Reply::Error { code, .. }), _)) => {
                assert_eq!(code, ErrorCode::BadMessage);
            }
            other => panic!("{other:?}"),
        }
        assert!(held.len() < 100, "nothing bounds them");
    };
    assert_eq!(refused.0, ErrorCode::Quota);
    assert!(refused.1.contains("being closed"), "{}", refused.1);
    for (closer, unread) in held {
        drop(unread);
        closer.join().expect("closed");
    }
    let reply = bystander.create(&Request::CreateCompletionQueue { entries: 4 });
    assert!(matches!(reply, Reply::CompletionQueue { .. }), "{reply:?}");
    wait_welcome(&a);
}

fn register(length: u64) -> Request {
    Request::RegisterRegion {
        length,
        iova: 0,
        access: Access::LOCAL_WRITE,
    }
}

/// HT-3: what all sessions of a user hold together is bounded too, and free again when one of them
/// has ended.
#[test]
fn users_have_quotas() {
    let mut config = config();
    config.application.user_quota.regions = 5;
    config.application.quota.regions = 3;
    let (a, _b) = pair(&config);
    let memfds: Vec<_> = (0..3)
        .map(|_| create_shared(c"region", 4096).expect("memory"))
        .collect();
    let take = |raw: &Raw, index: usize| raw.ask(&register(4096), &[memfds[index].0.as_fd()]).0;
    let first = Raw::greeted(&a);
    for index in 0..3 {
        assert!(matches!(take(&first, index), Reply::Region { .. }));
    }
    let second = a.application();
    let own: Vec<_> = (0..2)
        .map(|_| second.allocate(4096, Access::LOCAL_WRITE).expect("five"))
        .collect();
    match second.allocate(4096, Access::LOCAL_WRITE) {
        Err(Error::Refused { code, text }) => {
            assert_eq!(code, ErrorCode::Quota);
            assert!(text.contains("application.user_quota.regions"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    drop(first);
    let until = Instant::now() + PATIENCE;
    while let Err(error) = second.allocate(4096, Access::LOCAL_WRITE) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop((own, second));
    a.wait_empty();
}

/// HT-3: an application whose descriptors find no free number in the daemon is told of the
/// shortage, and goes on when it is over. In a process of its own, which it takes all descriptors
/// from.
#[test]
fn a_shortage_of_descriptors() {
    const CHILD: &str = "HOSTD_EDGE_SHORTAGE";
    if std::env::var_os(CHILD).is_none() {
        let status = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "doors::a_shortage_of_descriptors", "--nocapture"])
            .env(CHILD, "1")
            .status();
        assert!(status.expect("started").success());
        return;
    }
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let (memfd, _mapping) = create_shared(c"region", 4096).expect("shared memory");
    let request = Request::RegisterRegion {
        length: 4096,
        iova: 0,
        access: Access::LOCAL_WRITE,
    };
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    match raw.ask(&request, &[memfd.as_fd()]).0 {
        Reply::Error { code, text } => {
            assert_eq!(code, ErrorCode::Internal);
            assert!(text.contains("lacks a resource"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    drop(taken);
    let (reply, _) = raw.ask(&request, &[memfd.as_fd()]);
    assert!(matches!(reply, Reply::Region { .. }), "{reply:?}");
    assert_eq!(a.socket_statistics().malformed, 0);
}
