//! HT-3: applications that do not use the library.

use crate::raw::{HEAD, Raw, TAIL, is_well, memory_for, rings};
use crate::rig::{Daemon, PATIENCE, config, pair};
use crate::solicited::{connected, sent};
use hostd_client::ReceiveRequest;
use hostd_client::abi::answer::{Event, FromDaemon, Reply};
use hostd_client::abi::descriptor::WORK_LEN;
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{Access, ErrorCode, ObjectKind, Private};
use hostd_client::abi::{VERSION_MAJOR, VERSION_MINOR};
use hostd_client::shm::create_shared;
use nix::fcntl::{FcntlArg, SealFlag, fcntl, posix_fallocate};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand_core::Rng;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// HT-3: any bytes on the socket end the session that sent them, with a reason, and nothing else.
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
        // Before it is known who this is, no descriptors are taken.
        while !raw.send(&bytes, &fds) {
            std::thread::yield_now();
        }
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

/// HT-3: requests that are lawful in form and not in content are refused one by one.
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
        shared: 0,
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
        let memory = memory_for(&request);
        let fds: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        let code = thief.refused(&request, &fds);
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
    is_well(&a);
}

/// HT-2: who speaks another version is told so, with both.
#[test]
fn other_versions() {
    let (a, _b) = pair(&config());
    for major in [1, 2, 99] {
        let hello = Request::Hello {
            major,
            minor: 1,
            features: 0,
        };
        match Raw::connect(&a).ask(&hello, &[]).0 {
            Reply::Error { code, text } => {
                assert_eq!(code, ErrorCode::BadVersion);
                let versions = format!(
                    "version {VERSION_MAJOR}.{VERSION_MINOR} of the ABI and the application {major}.1"
                );
                assert!(text.contains(&versions), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    is_well(&a);
}

/// HT-3: memory that could vanish under the daemon, or is none, is refused.
#[test]
fn doubtful_memory() {
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let register = |length, iova| Request::RegisterRegion {
        length,
        iova,
        access: Access::LOCAL_WRITE,
    };
    let memfd =
        memfd_create(c"x", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC).expect("memfd");
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
    assert_eq!(
        raw.refused(&register(8192, 0), &[memfd.as_fd()]),
        ErrorCode::BadMemory,
        "sparse"
    );
    posix_fallocate(&memfd, 0, 8192).expect("memory");
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
    // Flags that do not go together, or that do not exist: the session goes on.
    for access in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::ZERO_BASED,
    ] {
        let request = Request::RegisterRegion {
            length: 8192,
            iova: 0,
            access,
        };
        let code = raw.refused(&request, &[memfd.as_fd()]);
        assert_eq!(code, ErrorCode::InvalidArgument, "{access:?}");
    }
    let (reply, _) = raw.ask(&register(8192, 1 << 40), &[memfd.as_fd()]);
    assert!(matches!(reply, Reply::Region { .. }), "{reply:?}");
}

/// HT-3: descriptors and indices that the library never writes break their queue pair, and nothing
/// else.
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

/// HT-3: an application that fills its own doorbell, blocks it and drains it does not stop the
/// daemon.
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

/// HT-3: an application that asks and does not listen is disconnected, and meanwhile others are
/// served.
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

/// HT-3: an application that hangs very many watches on its socket, or on the pipe that wakes it,
/// has each of them walked by whoever writes there. Its session is ended. In a process of its own,
/// which may have more descriptors.
#[test]
fn an_application_that_is_dear_to_wake() {
    const CHILD: &str = "HOSTD_EDGE_DEAR";
    const NAME: &str = "hostile::an_application_that_is_dear_to_wake";
    if std::env::var_os(CHILD).is_none() {
        let status = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, "1")
            .status();
        assert!(status.expect("started").success());
        return;
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(8192), hard).expect("raised");
    let (a, b) = pair(&config());
    let bystander = a.application();
    let raw = Raw::greeted(&a);
    let watches = watch(raw.socket.as_fd());
    let nothing = Request::Disconnect { qp: 1 };
    while raw.send(nothing.encode(9).as_slice(), &[]) && raw.next().is_some() {}
    drop(watches);
    wait_costly(&a);
    let [mut sender, mut woken] = connected(&a, &b, 64);
    let watches = watch(woken.queue.as_fd());
    let until = std::time::Instant::now() + PATIENCE;
    while b.socket_statistics().costly == 0 && woken.queue.arm().is_ok() {
        // The last one may find the session ended.
        if !sent(&mut sender, false).is_success() {
            break;
        }
        while let Ok(Some(_)) = woken.queue.poll() {
            let local = woken.memory.slice(0, 64).expect("inside");
            let receive = ReceiveRequest { wr_id: 1, local };
            // Until the session is ended.
            let _ = woken.queue_pair.post_receive(&receive);
        }
        assert!(std::time::Instant::now() < until, "it is woken for ever");
    }
    drop(watches);
    wait_costly(&b);
    drop((sender, woken));
    b.wait_empty();
    drop(bystander.create_completion_queue(4).expect("others go on"));
    drop(bystander);
    a.wait_empty();
}

fn wait_costly(daemon: &Daemon) {
    let until = std::time::Instant::now() + PATIENCE;
    while daemon.socket_statistics().costly != 1 {
        assert!(std::time::Instant::now() < until, "the session goes on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A quarter of a million watches of what an application has one of.
fn watch(file: BorrowedFd<'_>) -> (Vec<OwnedFd>, Vec<Epoll>) {
    let copy = |_| file.try_clone_to_owned().expect("a copy");
    let copies: Vec<_> = (0..500).map(copy).collect();
    let epoll = |_| {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("an epoll");
        for file in &copies {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
            epoll.add(file, event).expect("watched");
        }
        epoll
    };
    let epolls = (0..500).map(epoll).collect();
    (copies, epolls)
}

/// HT-3: what an application held is released when it goes, however it goes.
#[test]
fn everything_is_released() {
    let (a, b) = pair(&config());
    let server = b.application();
    let listener = server
        .listen("0.0.0.0".parse().expect("an address"), 5000, 8)
        .expect("listens");
    let raw = Raw::greeted(&a);
    let own = rings(&raw);
    let (memfd, _mapping) = create_shared(c"x", 1 << 20).expect("memory");
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
