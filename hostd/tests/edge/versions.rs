//! HT-2: one minor version of the ABI beside another.

use crate::ends::End;
use crate::raw::Raw;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::abi::answer::{Event, FromDaemon, Reply};
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{ErrorCode, Private};
use hostd_client::abi::{VERSION_MAJOR, VERSION_MINOR, feature};
use hostd_client::{Access, Context, Error, RemoteSlice, SendRequest, shm_socket};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, OwnedFd};

/// What version 3.0 knew.
const OLD: u64 = feature::OF_3_1 & !feature::PORT;

/// Answers as a daemon of version 3.0 does, until the application ends; what it was asked.
fn old_daemon(socket: OwnedFd) -> Vec<Request> {
    let mut asked = Vec::new();
    let time = PollTimeout::try_from(PATIENCE).expect("short");
    loop {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        assert!(poll(&mut fds, time).expect("poll") > 0, "nothing is asked");
        let Ok(Some(record)) = shm_socket::receive(socket.as_fd()) else {
            return asked;
        };
        let (tag, request) = Request::decode(&record.bytes).expect("a lawful request");
        let wake = EventFd::new().expect("an eventfd");
        let (reply, fds) = match request {
            Request::Hello { features, .. } => {
                let reply = Reply::Hello {
                    major: VERSION_MAJOR,
                    minor: 0,
                    features: features & OLD,
                    memory: 1 << 20,
                    queue_pairs: 8,
                    message: 1 << 20,
                };
                (reply, Vec::new())
            }
            Request::ShareDoorbells => (Reply::Done, vec![wake.as_fd()]),
            Request::RegisterRegion { .. } => {
                let (handle, lkey, rkey) = (1, 2, 3);
                (Reply::Region { handle, lkey, rkey }, Vec::new())
            }
            _ => (Reply::Done, Vec::new()),
        };
        asked.push(request);
        // Whoever ends does not wait for the answers.
        if shm_socket::send(socket.as_fd(), reply.encode(tag).as_slice(), &fds).is_err() {
            return asked;
        }
    }
}

/// HT-2: the library works with a daemon that offers less, and refuses what that daemon does not
/// know before it is asked.
#[test]
fn an_older_daemon() {
    let kind = SockType::SeqPacket;
    let ends = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = ends.expect("a socket pair");
    let daemon = std::thread::spawn(|| old_daemon(theirs));
    let context = Context::over(ours).expect("the major version agrees");
    drop(context.allocate(4096, Access::LOCAL_WRITE).expect("known"));
    let refused = |asked: Result<(), Error>| {
        let Err(Error::Refused { code, text }) = asked else {
            panic!("{asked:?}");
        };
        assert_eq!(code, ErrorCode::BadVersion);
        assert!(text.contains("older than 3.1"), "{text}");
    };
    refused(context.port().map(drop));
    refused(context.gids().map(drop));
    refused(context.partitions().map(drop));
    refused(context.watch_port(true));
    drop(context);
    let asked = daemon.join().expect("it ends well");
    assert_eq!(asked.first(), Some(&Request::hello()));
    let unknown = |it: &Request| matches!(it, Request::Port(_) | Request::Bind { .. });
    assert!(asked.len() >= 3 && !asked.iter().any(unknown), "{asked:?}");
}

/// HT-2: an application of version 3.0 is served by this daemon, which names what both know.
#[test]
fn an_older_application() {
    let (a, b) = pair(&config());
    let hello = Request::Hello {
        major: VERSION_MAJOR,
        minor: 0,
        features: OLD,
    };
    let raw = Raw::connect(&a);
    let (reply, _) = raw.ask(&hello, &[]);
    let Reply::Hello {
        major,
        minor,
        features,
        ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (major, minor, features),
        (VERSION_MAJOR, VERSION_MINOR, OLD)
    );
    let raw = Raw::connect(&a).greet(&hello).expect("welcome");
    let own = crate::raw::rings(&raw);
    let rights = Access::LOCAL_WRITE;
    let [mut first, mut second] = [&a, &b].map(|it| End::new(it, 8, (4096, rights)));
    first.connect(&mut second, b.address);
    assert_eq!(ended(&raw, own.handle, &b), ErrorCode::Protocol);
    let raw = Raw::greeted(&a);
    let own = crate::raw::rings(&raw);
    assert_eq!(ended(&raw, own.handle, &b), ErrorCode::Access);
}

/// Connects the queue pair of a raw application to another one, which writes with a key that there
/// is not; how the raw one is told.
fn ended(raw: &Raw, qp: u32, daemon: &Daemon) -> ErrorCode {
    let mut peer = End::new(daemon, 8, (4096, Access::LOCAL_WRITE));
    let listener = peer.listener();
    let request = Request::Connect {
        qp,
        address: daemon.address,
        port: listener.port(),
        private: Private::EMPTY,
    };
    assert_eq!(raw.ask(&request, &[]).0, Reply::Done);
    let asked = listener.get_request(PATIENCE).expect("a request");
    asked
        .accept(&mut peer.queue_pair, Private::EMPTY, PATIENCE)
        .expect("accepted");
    let nowhere = RemoteSlice {
        address: 0,
        rkey: 77,
    };
    let local = peer.memory.slice(0, 8).expect("inside");
    let write = SendRequest::write(1, local, nowhere);
    peer.queue_pair.post_send(&write).expect("room");
    loop {
        let (message, _) = raw.next().expect("an event");
        if let FromDaemon::Event(Event::Disconnected { reason, .. }) = message {
            return reason;
        }
    }
}
