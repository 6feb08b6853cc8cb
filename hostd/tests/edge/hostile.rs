//! HT-3: applications that do not use the library.

use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::abi::answer::{Event, FromDaemon, Reply};
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_LEN};
use hostd_client::abi::doorbell::Doorbell;
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::{Producer, RingMemory};
use hostd_client::abi::types::{Access, ErrorCode, ObjectKind, Private};
use hostd_client::shm::Mapping;
use hostd_client::{Context, Error, shm_socket};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use rand_core::Rng;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// A connection without the library.
struct Raw {
    socket: OwnedFd,
    doorbell: Option<(Doorbell, OwnedFd)>,
}

impl Raw {
    fn connect(daemon: &Daemon) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
        let address = UnixAddr::new(&daemon.socket).expect("a path");
        connect(fd.as_raw_fd(), &address).expect("connected");
        Self {
            socket: fd,
            doorbell: None,
        }
    }

    fn greeted(daemon: &Daemon) -> Self {
        let mut raw = Self::connect(daemon);
        let (reply, mut fds) = raw.ask(&Request::hello(), &[]);
        assert!(matches!(reply, Reply::Hello { .. }), "{reply:?}");
        let wake = fds.pop().expect("the eventfd");
        let doorbell = Doorbell::open(fds.pop().expect("the page").as_fd()).expect("the page");
        raw.doorbell = Some((doorbell, wake));
        raw
    }

    fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        shm_socket::send(self.socket.as_fd(), bytes, fds).is_ok()
    }

    /// The next message; `None` when the daemon has closed.
    fn next(&self) -> Option<(FromDaemon, Vec<OwnedFd>)> {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let time = PollTimeout::try_from(PATIENCE).expect("short");
        assert!(
            poll(&mut fds, time).expect("poll") > 0,
            "the daemon says nothing"
        );
        match shm_socket::receive(self.socket.as_fd()) {
            Ok(Some(received)) => {
                let message = FromDaemon::decode(&received.bytes).expect("a lawful message");
                Some((message, received.descriptors))
            }
            Ok(None) | Err(Errno::ECONNRESET) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> (Reply, Vec<OwnedFd>) {
        assert!(self.send(request.encode(9).as_slice(), fds));
        match self.next() {
            Some((FromDaemon::Reply(9, reply), fds)) => (reply, fds),
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> ErrorCode {
        match self.ask(request, fds).0 {
            Reply::Error { code, .. } => code,
            other => panic!("{request:?} was not refused: {other:?}"),
        }
    }

    fn ring(&self, slot: u32) {
        let (doorbell, wake) = self.doorbell.as_ref().expect("greeted");
        if doorbell.ring(slot) {
            nix::unistd::write(wake, &1_u64.to_ne_bytes()).expect("rung");
        }
    }
}

/// A queue pair made by hand.
struct Rings {
    handle: u32,
    slot: u32,
    send: Mapping,
    receives: Producer<WORK_LEN>,
    completions: Mapping,
}

const TAIL: usize = 64;
const HEAD: usize = 128;

fn rings(raw: &Raw) -> Rings {
    let (reply, fds) = raw.ask(&Request::CreateCompletionQueue { entries: 16 }, &[]);
    let Reply::CompletionQueue {
        handle: cq,
        entries,
    } = reply
    else {
        panic!("{reply:?}")
    };
    let len = |entries: u32, each: usize| 256 + u64::from(entries) * each as u64;
    let completions =
        Mapping::of_peer(fds[0].as_fd(), len(entries, COMPLETION_LEN)).expect("a ring");
    let request = Request::CreateQueuePair {
        send_cq: cq,
        receive_cq: cq,
        send_entries: 8,
        receive_entries: 8,
    };
    let (reply, fds) = raw.ask(&request, &[]);
    let Reply::QueuePair { handle, slot, .. } = reply else {
        panic!("{reply:?}")
    };
    let send = Mapping::of_peer(fds[0].as_fd(), len(8, WORK_LEN)).expect("a ring");
    let receives = RingMemory::open(fds[1].as_fd(), 8)
        .expect("a ring")
        .producer();
    Rings {
        handle,
        slot,
        send,
        receives,
        completions,
    }
}

fn is_well(daemon: &Daemon) {
    let context = daemon.application();
    let memory = context.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    drop((memory, context));
}

/// Any bytes on the socket end the session that sent them, with a reason, and nothing else.
#[test]
fn garbage_on_the_socket() {
    let (a, _b) = pair(&config());
    let seed = 0x5eed_0001;
    println!("seed {seed}");
    let mut random = rand_pcg::Pcg64Mcg::new(seed);
    let bystander = a.application();
    for round in 0..60_u32 {
        let raw = if round % 2 == 0 {
            Raw::connect(&a)
        } else {
            Raw::greeted(&a)
        };
        let mut bytes = vec![0; 1 + usize::try_from(random.next_u32() % 700).expect("small")];
        random.fill_bytes(&mut bytes);
        if round % 3 == 0 {
            // A known kind, so that the fields are looked at.
            let kind = (1 + round % 10).to_le_bytes();
            let count = bytes.len().min(2);
            bytes[..count].copy_from_slice(&kind[..count]);
        }
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let fds = vec![null.as_fd(); usize::try_from(round % 4).expect("small")];
        raw.send(&bytes, &fds);
        // Nothing but refusals comes, and then most often the end.
        for _ in 0..2 {
            match raw.next() {
                None => break,
                Some((FromDaemon::Reply(_, Reply::Error { .. }), _)) => {}
                other => panic!("{bytes:?}: {other:?}"),
            }
        }
    }
    assert!(a.socket_statistics().malformed > 30);
    drop(bystander.create_completion_queue(4).expect("others go on"));
    drop(bystander);
    a.wait_empty();
}

/// Requests that are lawful in form and not in content are refused one by one.
#[test]
fn requests_for_what_is_not_ones_own() {
    let (a, _b) = pair(&config());
    let owner = Raw::greeted(&a);
    let own = rings(&owner);
    let thief = Raw::greeted(&a);
    let theirs = own.handle;
    let address = "10.0.0.2".parse().expect("an address");
    let private = Private::EMPTY;
    let create = Request::CreateQueuePair {
        send_cq: 1,
        receive_cq: 1,
        send_entries: 1,
        receive_entries: 1,
    };
    for request in [
        Request::Connect {
            qp: theirs,
            address,
            port: 1,
            private,
        },
        Request::Disconnect { qp: theirs },
        Request::Destroy {
            kind: ObjectKind::QueuePair,
            handle: theirs,
        },
        Request::Destroy {
            kind: ObjectKind::Region,
            handle: 0,
        },
        Request::Destroy {
            kind: ObjectKind::CompletionQueue,
            handle: u32::MAX,
        },
        Request::Destroy {
            kind: ObjectKind::Listener,
            handle: 80_000,
        },
        Request::Accept {
            request: 1,
            qp: theirs,
            private,
        },
        Request::Reject {
            request: 1,
            private,
        },
        create,
    ] {
        let code = thief.refused(&request, &[]);
        assert_eq!(code, ErrorCode::NotFound, "{request:?}");
    }
    let listen = Request::Listen {
        address,
        port: 1,
        backlog: 1,
    };
    assert_eq!(thief.refused(&listen, &[]), ErrorCode::InvalidArgument);
    assert_eq!(thief.refused(&Request::hello(), &[]), ErrorCode::BadMessage);
    let early = Raw::connect(&a);
    assert_eq!(
        early.refused(&Request::Disconnect { qp: 1 }, &[]),
        ErrorCode::BadMessage
    );
    let other_version = Request::Hello {
        major: 99,
        minor: 0,
        features: 0,
    };
    assert_eq!(
        Raw::connect(&a).refused(&other_version, &[]),
        ErrorCode::BadVersion
    );
    is_well(&a);
}

/// Memory that could vanish under the daemon, or is none, is refused.
#[test]
fn doubtful_memory() {
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let register = |length, iova| Request::RegisterRegion {
        length,
        iova,
        access: Access::LOCAL_WRITE,
    };
    let memfd = memfd_create(c"x", MFdFlags::MFD_ALLOW_SEALING).expect("memfd");
    nix::unistd::ftruncate(&memfd, 8192).expect("size");
    assert_eq!(
        raw.refused(&register(8192, 0), &[memfd.as_fd()]),
        ErrorCode::BadMemory
    );
    fcntl(&memfd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("sealed");
    assert!(
        nix::unistd::ftruncate(&memfd, 0).is_err(),
        "it cannot shrink any more"
    );
    for (length, iova, code) in [
        (8193, 0, ErrorCode::BadMemory),
        (0, 0, ErrorCode::BadMemory),
        (8192, u64::MAX, ErrorCode::InvalidArgument),
        (u64::MAX, 0, ErrorCode::Quota),
    ] {
        assert_eq!(
            raw.refused(&register(length, iova), &[memfd.as_fd()]),
            code,
            "{length}"
        );
    }
    let null = std::fs::File::open("/dev/zero").expect("/dev/zero");
    assert_eq!(
        raw.refused(&register(1, 0), &[null.as_fd()]),
        ErrorCode::BadMemory
    );
    assert_eq!(raw.refused(&register(1, 0), &[]), ErrorCode::BadMessage);
    let (reply, _) = raw.ask(&register(8192, 1 << 40), &[memfd.as_fd()]);
    assert!(matches!(reply, Reply::Region { .. }), "{reply:?}");
}

/// Descriptors and indices that the library never writes break their queue pair, and nothing else.
#[test]
fn descriptors_that_point_anywhere() {
    let (a, _b) = pair(&config());
    let seed = 0x5eed_0002;
    println!("seed {seed}");
    let mut random = rand_pcg::Pcg64Mcg::new(seed);
    for round in 0..40_u32 {
        let raw = Raw::greeted(&a);
        let mut own = rings(&raw);
        match round % 4 {
            // Any bytes as a receive.
            0 | 1 => {
                let mut bytes = [0; WORK_LEN];
                random.fill_bytes(&mut bytes);
                if round % 4 == 1 {
                    // In the form of a receive, with a key and an address that are not its own.
                    bytes[8..32].fill(0);
                    bytes[10] = 1;
                    bytes[48..].fill(0);
                    bytes[43] = 0;
                }
                own.receives.push(&bytes).expect("sound");
                own.receives.publish();
            }
            // Impossible indices.
            2 => own
                .send
                .word(TAIL)
                .store(random.next_u32() | 1 << 20, Ordering::SeqCst),
            _ => {
                own.completions
                    .word(HEAD)
                    .store(random.next_u32() | 1 << 20, Ordering::SeqCst);
                own.completions
                    .word(TAIL)
                    .store(random.next_u32(), Ordering::SeqCst);
                own.send.copy_in(0, &[0xff; 64]);
            }
        }
        // Every doorbell there is, so the daemon looks.
        (0..1024).for_each(|slot| raw.ring(slot));
        raw.ring(own.slot);
        if round % 4 == 0 {
            let (message, _) = raw.next().expect("an event");
            let broken = Event::Disconnected {
                qp: own.handle,
                reason: ErrorCode::Protocol,
            };
            assert_eq!(message, FromDaemon::Event(broken));
        }
        is_well(&a);
    }
    assert!(a.report().edge.broken_queues >= 10);
    a.wait_empty();
}

/// An application that fills its own doorbell, blocks it and drains it does not stop the daemon.
#[test]
fn a_doorbell_that_would_block() {
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let own = rings(&raw);
    let (doorbell, wake) = raw.doorbell.as_ref().expect("greeted");
    fcntl(wake, FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).expect("blocking");
    nix::unistd::write(wake, &(u64::MAX - 1).to_ne_bytes()).expect("full");
    // Only the bit: the application itself could not write its doorbell now.
    doorbell.ring(own.slot);
    is_well(&a);
    let mut count = [0; 8];
    nix::unistd::read(wake, &mut count).expect("drained");
    is_well(&a);
}

/// An application that asks and does not listen is disconnected, and meanwhile others are served.
#[test]
fn a_deaf_application() {
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let request = Request::Disconnect { qp: 1 }.encode(3);
    let mut sent = 0;
    while sent < 20_000 && raw.send(request.as_slice(), &[]) {
        sent += 1;
    }
    assert!(
        sent < 20_000,
        "the daemon stops reading from one that does not read"
    );
    is_well(&a);
    drop(raw);
    a.wait_empty();
}

/// What an application held is released when it goes, however it goes.
#[test]
fn everything_is_released() {
    let (a, b) = pair(&config());
    let server = b.application();
    let listener = server
        .listen("0.0.0.0".parse().expect("an address"), 5000, 8)
        .expect("listens");
    let raw = Raw::greeted(&a);
    let own = rings(&raw);
    let memfd = memfd_create(c"x", MFdFlags::MFD_ALLOW_SEALING).expect("memfd");
    nix::unistd::ftruncate(&memfd, 1 << 20).expect("size");
    fcntl(&memfd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("sealed");
    let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let (reply, _) = raw.ask(
        &Request::RegisterRegion {
            length: 1 << 20,
            iova: 0,
            access,
        },
        &[memfd.as_fd()],
    );
    assert!(matches!(reply, Reply::Region { .. }));
    let listen = Request::Listen {
        address: "::".parse().expect("any"),
        port: 5001,
        backlog: 1,
    };
    assert!(matches!(
        raw.ask(&listen, &[]).0,
        Reply::Listener { port: 5001, .. }
    ));
    let (address, private) = (b.address, Private::EMPTY);
    let connect = Request::Connect {
        qp: own.handle,
        address,
        port: 5000,
        private,
    };
    assert_eq!(raw.ask(&connect, &[]).0, Reply::Done);
    let request = listener.get_request(PATIENCE).expect("a request");
    a.wait_for("it is there", |report| report.sessions.len() == 1);
    drop(raw);
    a.wait_empty();
    drop((request, listener, server));
    b.wait_empty();
    let next = a.application();
    next.listen("::".parse().expect("any"), 5001, 1)
        .expect("its port is free again");
}

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
            .status()
            .expect("setpriv and python3 are there");
        assert_eq!(
            status.success(),
            welcome,
            "user {user}, group {group}, also in {more}"
        );
    }
    assert_eq!(a.socket_statistics().refused, 1);
    let _ = (Context::connect(&a.socket).expect("root"), Error::TimedOut);
}

/// Says hello and succeeds if the reply is the one to a hello.
const PROBE: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(struct.pack('<HHI4sHHQ', 1, 0, 7, b'hstd', 1, 0, 7))
kind, = struct.unpack_from('<H', s.recv(512))
sys.exit(kind != 101)
";
