//! Applications that do not use the library.

use crate::rig::{Daemon, PATIENCE};
use hostd_client::abi::answer::{FromDaemon, Reply};
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_LEN};
use hostd_client::abi::doorbell::Doorbell;
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::{Producer, RingMemory};
use hostd_client::abi::types::{Access, ErrorCode};
use hostd_client::shm::Mapping;
use hostd_client::shm_socket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A connection without the library.
pub(crate) struct Raw {
    pub(crate) socket: OwnedFd,
    pub(crate) doorbell: Option<(Doorbell, OwnedFd)>,
}

impl Raw {
    pub(crate) fn connect(daemon: &Daemon) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
        let address = UnixAddr::new(&daemon.socket).expect("a path");
        connect(fd.as_raw_fd(), &address).expect("connected");
        Self {
            socket: fd,
            doorbell: None,
        }
    }

    pub(crate) fn greeted(daemon: &Daemon) -> Self {
        let mut raw = Self::connect(daemon);
        let (reply, mut fds) = raw.ask(&Request::hello(), &[]);
        assert!(matches!(reply, Reply::Hello { .. }), "{reply:?}");
        let wake = fds.pop().expect("the eventfd");
        let doorbell = Doorbell::open(fds.pop().expect("the page").as_fd()).expect("the page");
        raw.doorbell = Some((doorbell, wake));
        raw
    }

    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        shm_socket::send(self.socket.as_fd(), bytes, fds).is_ok()
    }

    /// The next message; `None` when the daemon has closed.
    pub(crate) fn next(&self) -> Option<(FromDaemon, Vec<OwnedFd>)> {
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

    pub(crate) fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> (Reply, Vec<OwnedFd>) {
        assert!(self.send(request.encode(9).as_slice(), fds));
        match self.next() {
            Some((FromDaemon::Reply(9, reply), fds)) => (reply, fds),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn refused(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> ErrorCode {
        match self.ask(request, fds).0 {
            Reply::Error { code, .. } => code,
            other => panic!("{request:?} was not refused: {other:?}"),
        }
    }

    pub(crate) fn ring(&self, slot: u32) {
        let (doorbell, wake) = self.doorbell.as_ref().expect("greeted");
        if doorbell.ring(slot) {
            nix::unistd::write(wake, &1_u64.to_ne_bytes()).expect("rung");
        }
    }
}

/// A queue pair made by hand.
pub(crate) struct Rings {
    pub(crate) handle: u32,
    pub(crate) slot: u32,
    pub(crate) send: Mapping,
    pub(crate) receives: Producer<WORK_LEN>,
    pub(crate) completions: Mapping,
}

pub(crate) const TAIL: usize = 64;
pub(crate) const HEAD: usize = 128;

pub(crate) fn rings(raw: &Raw) -> Rings {
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
        shared: 0,
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

pub(crate) fn is_well(daemon: &Daemon) {
    let context = daemon.application();
    let memory = context.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    drop((memory, context));
}
