//! An application, with its own ends of what it shares with the daemon.

use super::daemon::{Daemon, OWN, PEER};
use hostd::app::session::Session;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::by_hand::ByHand;
use hostd_client::abi::collective::{JoinJob, Membership};
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_LEN};
use hostd_client::abi::doorbell::Doorbell;
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::memory_len;
use hostd_client::abi::types::Access;
use hostd_client::abi::{MAGIC, VERSION_MAJOR, VERSION_MINOR};
use hostd_client::shm::{Mapping, create_shared};
use nix::unistd::write;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Bytes of a region.
pub(super) const MEMORY: usize = 8192;

/// Entries of the rings.
const ENTRIES: u32 = 8;

/// Objects of each kind that an application remembers.
const KNOWN: usize = 4;

/// Where a ring has its indices.
const TAIL: usize = 64;
const HEAD: usize = 128;
const FIRST_ENTRY: usize = 256;

/// A ring as an application has it.
pub(super) struct Ring {
    pub(super) memory: Mapping,
    pub(super) entry: usize,
    /// Entries that it put in or took out.
    pub(super) index: u32,
}

impl Ring {
    /// A ring, and the descriptor for the daemon.
    pub(super) fn create(entry: usize) -> (OwnedFd, Self) {
        let (fd, memory) = create_shared(c"fuzz", memory_len(ENTRIES, entry)).expect("memory");
        let each = u32::try_from(entry).expect("small");
        let header = [MAGIC, u32::from(VERSION_MAJOR), ENTRIES, each];
        for (index, word) in header.into_iter().enumerate() {
            memory.word(4 * index).store(word, Ordering::Relaxed);
        }
        let index = 0;
        let ring = Self {
            memory,
            entry,
            index,
        };
        (fd, ring)
    }

    pub(super) fn place(&self) -> usize {
        FIRST_ENTRY + (self.index % ENTRIES) as usize * self.entry
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.entry);
        self.memory.copy_in(self.place(), &bytes[..len]);
        self.index = self.index.wrapping_add(1);
        self.memory.word(TAIL).store(self.index, Ordering::SeqCst);
    }

    pub(super) fn pop(&mut self) -> Option<[u8; COMPLETION_LEN]> {
        if self.memory.word(TAIL).load(Ordering::SeqCst) == self.index {
            return None;
        }
        let mut bytes = [0; COMPLETION_LEN];
        self.memory.copy_out(self.place(), &mut bytes);
        self.index = self.index.wrapping_add(1);
        self.memory.word(HEAD).store(self.index, Ordering::SeqCst);
        Some(bytes)
    }

    /// The first slot of a request and those that follow it, published together.
    pub(super) fn push_all(&mut self, first: &[u8], more: &[[u8; WORK_LEN]]) {
        for bytes in std::iter::once(first).chain(more.iter().map(<[u8; WORK_LEN]>::as_slice)) {
            self.memory.copy_in(self.place(), bytes);
            self.index = self.index.wrapping_add(1);
        }
        self.memory.word(TAIL).store(self.index, Ordering::SeqCst);
    }

    /// Writes `bytes` anywhere in the ring.
    pub(super) fn spoil(&self, at: u16, bytes: &[u8]) {
        let at = usize::from(at) % self.memory.len();
        let len = bytes.len().min(self.memory.len() - at);
        self.memory.copy_in(at, &bytes[..len]);
    }
}

pub(super) struct QueuePair {
    pub(super) handle: u32,
    pub(super) slot: u32,
    pub(super) send: Ring,
    pub(super) receive: Ring,
}

pub(super) struct SharedQueue {
    pub(super) handle: u32,
    pub(super) slot: u32,
    pub(super) ring: Ring,
}

pub(super) struct Memory {
    pub(super) handle: u32,
    pub(super) rkey: u32,
    pub(super) fd: OwnedFd,
    pub(super) mapping: Mapping,
}

/// An application and what it holds.
pub(super) struct Client {
    pub(super) session: Session,
    bell: Doorbell,
    waker: OwnedFd,
    pub(super) queues: Vec<(u32, Ring)>,
    pub(super) pairs: Vec<QueuePair>,
    pub(super) regions: Vec<Memory>,
    pub(super) listeners: Vec<u32>,
    pub(super) shared: Vec<SharedQueue>,
    /// Handles of windows and their first keys.
    pub(super) windows: Vec<(u32, u32)>,
}

pub(super) fn pick<T>(list: &mut [T], which: u8) -> Option<&mut T> {
    let count = list.len();
    list.get_mut(usize::from(which) % count.max(1))
}

pub(super) fn keep<T>(list: &mut Vec<T>, item: T) {
    if list.len() == KNOWN {
        list.remove(0);
    }
    list.push(item);
}

impl Client {
    pub(super) fn new(daemon: &mut Daemon, user: u32, features: u64) -> Self {
        let mut session = daemon.session(user);
        let hello = Request::Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            features,
        };
        daemon.ask(&mut session, hello, &[]).expect("welcome");
        let (page, bell) = Doorbell::create().expect("memory");
        let shared = daemon.ask(&mut session, Request::ShareDoorbells, &[page]);
        let (_, mut descriptors) = shared.expect("a page");
        let waker = descriptors.pop().expect("an eventfd");
        Self {
            session,
            bell,
            waker,
            queues: Vec::new(),
            pairs: Vec::new(),
            regions: Vec::new(),
            listeners: Vec::new(),
            shared: Vec::new(),
            windows: Vec::new(),
        }
    }

    /// Rings for the queues of a slot, and wakes the worker if it asks for that.
    pub(super) fn ring(&self, slot: u32) {
        if self.bell.ring(slot) {
            write(&self.waker, &1_u64.to_ne_bytes()).expect("an eventfd");
        }
    }

    pub(super) fn register(&mut self, daemon: &mut Daemon, access: Access) {
        let (fd, mapping) = create_shared(c"fuzz", MEMORY).expect("memory");
        let request = Request::RegisterRegion {
            length: MEMORY as u64,
            iova: 0,
            access,
        };
        let fds = [fd];
        let reply = daemon.ask(&mut self.session, request, &fds);
        if let Some((Reply::Region { handle, rkey, .. }, _)) = reply {
            let [fd] = fds;
            let region = Memory {
                handle,
                rkey,
                fd,
                mapping,
            };
            keep(&mut self.regions, region);
        }
    }

    pub(super) fn completion_queue(&mut self, daemon: &mut Daemon) {
        let request = Request::CreateCompletionQueue { entries: ENTRIES };
        let (memfd, ring) = Ring::create(COMPLETION_LEN);
        let reply = daemon.ask(&mut self.session, request, &[memfd]);
        if let Some((Reply::CompletionQueue { handle, .. }, _)) = reply {
            keep(&mut self.queues, (handle, ring));
        }
    }

    /// A queue pair with a receive queue of its own.
    pub(super) fn queue_pair(&mut self, daemon: &mut Daemon, which: u8) {
        self.queue_pair_at(daemon, which, 0);
    }

    /// A queue pair that takes receives of a shared queue.
    pub(super) fn queue_pair_of_shared(&mut self, daemon: &mut Daemon, which: u8) {
        let shared = pick(&mut self.shared, which).map_or(0, |it| it.handle);
        self.queue_pair_at(daemon, which, shared);
    }

    fn queue_pair_at(&mut self, daemon: &mut Daemon, which: u8, shared: u32) {
        let cq = pick(&mut self.queues, which).map_or(0, |it| it.0);
        let request = Request::CreateQueuePair {
            send_cq: cq,
            receive_cq: cq,
            send_entries: ENTRIES,
            receive_entries: ENTRIES,
            shared,
        };
        let (send_memfd, send) = Ring::create(WORK_LEN);
        let (receive_memfd, receive) = Ring::create(WORK_LEN);
        let fds = [send_memfd, receive_memfd];
        let reply = daemon.ask(&mut self.session, request, &fds);
        if let Some((Reply::QueuePair { handle, slot, .. }, _)) = reply {
            let pair = QueuePair {
                handle,
                slot,
                send,
                receive,
            };
            keep(&mut self.pairs, pair);
        }
    }

    pub(super) fn shared_queue(&mut self, daemon: &mut Daemon, limit: u8) {
        let request = Request::CreateSharedQueue {
            entries: ENTRIES,
            limit: limit.into(),
        };
        let (memfd, ring) = Ring::create(WORK_LEN);
        let reply = daemon.ask(&mut self.session, request, &[memfd]);
        if let Some((Reply::SharedQueue { handle, slot, .. }, _)) = reply {
            keep(&mut self.shared, SharedQueue { handle, slot, ring });
        }
    }

    pub(super) fn window(&mut self, daemon: &mut Daemon) {
        let reply = daemon.ask(&mut self.session, Request::CreateWindow, &[]);
        if let Some((Reply::Window { handle, rkey }, _)) = reply {
            keep(&mut self.windows, (handle, rkey));
        }
    }

    /// Wants to be a member of a job, which this daemon has no switch for.
    pub(super) fn member(&mut self, daemon: &mut Daemon, which: u8) {
        let request = Request::JoinJob(JoinJob {
            cq: pick(&mut self.queues, which).map_or(0, |it| it.0),
            entries: ENTRIES,
            membership: Membership::new(7, 1, u16::from(which & 3), u16::from(which >> 2)),
        });
        let (memfd, _) = Ring::create(WORK_LEN);
        let _ = daemon.ask(&mut self.session, request, &[memfd]);
    }

    /// Connects a queue pair with itself.
    pub(super) fn connect(
        &mut self,
        daemon: &mut Daemon,
        which: u8,
        change: impl FnOnce(&mut ByHand),
    ) {
        let qp = pick(&mut self.pairs, which).map_or(0, |it| it.handle);
        let mut by_hand = ByHand::new(OWN.into(), PEER.into());
        by_hand.peer_number = qp;
        by_hand.max_rd_atomic = 4;
        by_hand.max_dest_rd_atomic = 4;
        by_hand.rnr_retry = 2;
        change(&mut by_hand);
        let request = Request::ConnectByHand { qp, by_hand };
        let _ = daemon.ask(&mut self.session, request, &[]);
    }
}
