//! Applications that do not use the library.

use crate::rig::{Daemon, PATIENCE};
use hostd_client::abi::answer::{FromDaemon, Reply};
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_ENTRIES_MIN, WORK_LEN};
use hostd_client::abi::doorbell::Doorbell;
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::{Producer, RingMemory, memory_len, ring_entries};
use hostd_client::abi::types::{Access, ErrorCode};
use hostd_client::abi::{MAGIC, VERSION_MAJOR};
use hostd_client::shm::{Mapping, create_shared};
use hostd_client::shm_socket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

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
        let raw = Self::connect(daemon).greet(&Request::hello());
        raw.expect("welcome")
    }

    /// Begins the session with this hello; `None` if it is refused.
    pub(crate) fn greet(mut self, hello: &Request) -> Option<Self> {
        self.send(hello.encode(1).as_slice(), &[]);
        let Some((FromDaemon::Reply(1, Reply::Hello { .. }), _)) = self.next() else {
            return None;
        };
        let (page, doorbell) = Doorbell::create().expect("memory");
        let (reply, mut fds) = self.ask(&Request::ShareDoorbells, &[page.as_fd()]);
        assert_eq!(reply, Reply::Done);
        self.doorbell = Some((doorbell, fds.pop().expect("the eventfd")));
        Some(self)
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
        // A daemon that closes unread what was sent resets the connection, and the kernel tells
        // that once before what the daemon had said.
        let received = match shm_socket::receive(self.socket.as_fd()) {
            Err(Errno::ECONNRESET) => shm_socket::receive(self.socket.as_fd()),
            received => received,
        };
        match received {
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

    /// Asks with new memory for what the request creates.
    pub(crate) fn create(&self, request: &Request) -> Reply {
        let memory = memory_for(request);
        let fds: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        self.ask(request, &fds).0
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

/// Memory for what a request creates, as the library makes it.
pub(crate) fn memory_for(request: &Request) -> Vec<OwnedFd> {
    fn ring<const N: usize>(entries: u32, least: u32) -> OwnedFd {
        let ring = RingMemory::<N>::create(c"ring", ring_entries(entries, least));
        ring.expect("memory").0
    }
    let work = |entries| ring::<WORK_LEN>(entries, WORK_ENTRIES_MIN);
    match *request {
        Request::ShareDoorbells => vec![Doorbell::create().expect("memory").0],
        Request::RegisterRegion { length, .. } => {
            let len = usize::try_from(length).expect("small");
            vec![create_shared(c"region", len).expect("memory").0]
        }
        Request::CreateCompletionQueue { entries } => vec![ring::<COMPLETION_LEN>(entries, 1)],
        Request::CreateSharedQueue { entries, .. } => vec![work(entries)],
        Request::CreateQueuePair {
            send_entries,
            receive_entries,
            ..
        } => vec![work(send_entries), work(receive_entries)],
        _ => Vec::new(),
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
    let memory = |len| create_shared(c"ring", len).expect("memory");
    let begin = |ring: &Mapping, entries, each| {
        let header = [MAGIC, u32::from(VERSION_MAJOR), entries, each];
        for (index, word) in header.into_iter().enumerate() {
            ring.word(4 * index).store(word, Ordering::Relaxed);
        }
    };
    let (memfd, completions) = memory(memory_len(16, COMPLETION_LEN));
    begin(&completions, 16, 32);
    let create = Request::CreateCompletionQueue { entries: 16 };
    let (reply, _) = raw.ask(&create, &[memfd.as_fd()]);
    let Reply::CompletionQueue { handle: cq, .. } = reply else {
        panic!("{reply:?}")
    };
    let request = Request::CreateQueuePair {
        send_cq: cq,
        receive_cq: cq,
        send_entries: 8,
        receive_entries: 8,
        shared: 0,
    };
    let (memfd, send) = memory(memory_len(8, WORK_LEN));
    begin(&send, 8, 64);
    let (receive_memfd, receive) = RingMemory::create(c"ring", 8).expect("memory");
    let (reply, _) = raw.ask(&request, &[memfd.as_fd(), receive_memfd.as_fd()]);
    let Reply::QueuePair { handle, slot, .. } = reply else {
        panic!("{reply:?}")
    };
    Rings {
        handle,
        slot,
        send,
        receives: receive.producer(),
        completions,
    }
}

pub(crate) fn is_well(daemon: &Daemon) {
    let context = daemon.application();
    let memory = context.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    drop((memory, context));
}
