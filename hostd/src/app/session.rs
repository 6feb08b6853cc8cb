//! One application's requests, on the control thread: checked against its quota, carried out by the
//! worker, answered.

use super::ledger::{Account, Claim, Resource};
use super::opening::{Opener, keep};
use super::port;
use super::refusal::Refusal;
use crate::config::Quota;
use crate::control::questions::RouterHandle;
use crate::doorbell::{Doorbell, Doorbells};
use crate::edge::command::{
    Answer, Command, NewQueuePair, NewSharedQueue, SessionCommand, SessionId, WorkerHandle,
};
use crate::edge::completion::Wake;
use crate::edge::region::SharedMemory;
use crate::verbs::EngineError;
use crate::wakes::Waking;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_ENTRIES_MIN, WORK_LEN};
use hostd_client::abi::doorbell::DoorbellPage;
use hostd_client::abi::message::Request;
use hostd_client::abi::port::PortRequest;
use hostd_client::abi::ring::{memory_len, ring_entries};
use hostd_client::abi::types::{Access, ErrorCode, ObjectKind, Private};
use hostd_client::abi::{
    MESSAGE_LEN_MAX, QUEUE_PAIRS_MAX, RING_ENTRIES_MAX, VERSION_MAJOR, VERSION_MINOR, feature,
};
use hostd_client::shm::Mapping;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A reply and the descriptors that go with it.
pub type Outcome = Result<(Reply, Vec<OwnedFd>), Refusal>;

/// A session on the control thread.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    quota: Quota,
    worker: WorkerHandle,
    routes: RouterHandle,
    doorbells: Doorbells,
    waking: Waking,
    /// What the application writes to wake the worker, once the worker has its page.
    doorbell: Option<Arc<Doorbell>>,
    greeted: bool,
    /// What both sides know, by bits of [`feature`].
    features: u64,
    /// It asked for events of the port.
    watches: Arc<AtomicBool>,
    pub(super) account: Account,
    /// What is held, by handle.
    regions: HashMap<u32, Claim>,
    windows: HashMap<u32, Claim>,
    completion_queues: HashMap<u32, Claim>,
    queue_pairs: HashMap<u32, (u32, Claim)>,
    /// The addresses that queue pairs are bound to.
    pub(super) bound: HashMap<u32, IpAddr>,
    listeners: HashMap<u32, Claim>,
    shared: HashMap<u32, (u32, Claim)>,
    pub(super) members: HashMap<u32, (u32, Claim)>,
    /// Of the socket and the doorbells.
    own: Vec<Claim>,
    /// Doorbells of queue pairs.
    pub(super) slots: HashSet<u32>,
}

impl Session {
    /// A session that has not said hello yet.
    ///
    /// # Errors
    /// The daemon has no descriptors for it.
    pub fn new(
        id: SessionId,
        quota: Quota,
        account: Account,
        worker: WorkerHandle,
        routes: RouterHandle,
        doorbells: Doorbells,
        waking: Waking,
    ) -> Result<Self, Refusal> {
        // The socket, the process, the doorbell, two that a request brings.
        let own = account.claim(&[(Resource::Descriptors, 5)])?;
        Ok(Self {
            id,
            quota,
            worker,
            routes,
            doorbells,
            waking,
            doorbell: None,
            greeted: false,
            features: 0,
            watches: Arc::default(),
            account,
            regions: HashMap::new(),
            windows: HashMap::new(),
            completion_queues: HashMap::new(),
            queue_pairs: HashMap::new(),
            bound: HashMap::new(),
            listeners: HashMap::new(),
            shared: HashMap::new(),
            members: HashMap::new(),
            own: vec![own],
            slots: HashSet::new(),
        })
    }

    /// Whether both sides know this, a bit of [`feature`].
    pub(super) const fn knows(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Its name.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether it has this listener.
    pub(super) fn listens(&self, listener: u32) -> bool {
        self.listeners.contains_key(&listener)
    }

    /// Whether it asked for events of the port.
    pub fn watches(&self) -> Arc<AtomicBool> {
        self.watches.clone()
    }

    /// Carries out a request that came with `descriptors`.
    ///
    /// # Errors
    /// The refusal; nothing has changed then.
    pub async fn handle(&mut self, request: Request, descriptors: &[OwnedFd]) -> Outcome {
        let out_of_turn = match request {
            Request::Hello { .. } => self.greeted,
            Request::ShareDoorbells => !self.greeted || self.doorbell.is_some(),
            _ => self.doorbell.is_none(),
        };
        if out_of_turn {
            let text = "a session begins with one hello and one page of doorbells";
            return Err(Refusal::new(ErrorCode::BadMessage, text));
        }
        if descriptors.len() != request.descriptors() {
            let text = format!(
                "{} file descriptors with this request, which takes {}",
                descriptors.len(),
                request.descriptors()
            );
            return Err(Refusal::new(ErrorCode::BadMessage, text));
        }
        self.carry_out(request, descriptors).await
    }

    /// Carries out a request whose turn it is, with as many descriptors as it takes.
    async fn carry_out(&mut self, request: Request, descriptors: &[OwnedFd]) -> Outcome {
        match request {
            Request::Hello {
                major,
                minor,
                features,
            } => self.hello(major, minor, features),
            Request::ShareDoorbells => self.share_doorbells(&descriptors[0]).await,
            Request::RegisterRegion {
                length,
                iova,
                access,
            } => self.register(&descriptors[0], length, iova, access).await,
            Request::CreateCompletionQueue { entries } => {
                self.create_completion_queue(entries, &descriptors[0]).await
            }
            Request::CreateQueuePair {
                send_cq,
                receive_cq,
                send_entries,
                receive_entries,
                shared,
            } => {
                let entries = [send_entries, receive_entries];
                let memfds = [&descriptors[0], &descriptors[1]];
                self.create_queue_pair([send_cq, receive_cq], entries, shared, memfds)
                    .await
            }
            Request::CreateSharedQueue { entries, limit } => {
                self.create_shared_queue(entries, limit, &descriptors[0])
                    .await
            }
            Request::LimitSharedQueue { queue, limit } => {
                self.limit_shared_queue(queue, limit).await
            }
            Request::JoinJob(join) => self.join_job(join, &descriptors[0]).await,
            Request::CreateWindow => self.create_window().await,
            Request::Listen {
                address,
                port,
                backlog,
            } => self.listen(address, port, backlog).await,
            Request::Connect {
                qp,
                address,
                port,
                private,
            } => self.connect(qp, address, port, private).await,
            Request::SetOptions { qp, options } => self.set_options(qp, options).await,
            Request::Accept {
                request,
                qp,
                private,
            } => {
                let accept = |answer| SessionCommand::Accept(request, qp, private, answer);
                self.ask(accept).await.map(done)
            }
            Request::Reject { request, private } => {
                let reject = |answer| SessionCommand::Reject(request, private, answer);
                self.ask(reject).await.map(done)
            }
            Request::Disconnect { qp } => self
                .ask(|answer| SessionCommand::Disconnect(qp, answer))
                .await
                .map(done),
            Request::ConnectByHand { qp, by_hand } => self.connect_by_hand(qp, by_hand).await,
            Request::ModifyQueuePair {
                qp,
                next,
                attributes,
            } => self.modify(qp, next, attributes).await,
            Request::QueryQueuePair { qp } => self.query(qp).await,
            Request::Bind { qp, address } => self.bind(qp, address).await,
            Request::ChoosePartition { qp, index } => self.choose_partition(qp, index).await,
            Request::Port(request) => self.port(request),
            Request::QueryLeaf => self.leaf().await,
            Request::NoteFallback { job, reason } => self
                .ask(|answer| SessionCommand::NoteFallback(job, reason, answer))
                .await
                .map(done),
            Request::Paths { qp, request } => self.paths(qp, request).await,
            Request::Destroy { kind, handle } => self.destroy(kind, handle).await,
        }
    }

    fn port(&self, request: PortRequest) -> Outcome {
        let reply = port::answer(self.routes.port(), request, &self.watches)?;
        Ok((reply, Vec::new()))
    }

    /// Opens memory for what takes all of `parts`.
    pub(super) fn opener(&self, parts: &[(Resource, u64)]) -> Result<Opener, Refusal> {
        Ok(Opener::new(&self.account, self.account.claim(parts)?))
    }

    pub(super) async fn ask<T>(
        &self,
        command: impl FnOnce(Answer<T>) -> SessionCommand,
    ) -> Result<T, Refusal> {
        let whole = |answer| Command::Session(self.id, command(answer));
        match self.worker.ask(whole).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(refusal(error)),
            None => Err(Refusal::gone()),
        }
    }

    fn hello(&mut self, major: u16, minor: u16, features: u64) -> Outcome {
        if major != VERSION_MAJOR {
            return Err(other_version(major, minor));
        }
        self.greeted = true;
        self.features = features & feature::ALL;
        let reply = Reply::Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            features: self.features,
            memory: self.quota.memory(),
            queue_pairs: self.quota.queue_pairs,
            message: MESSAGE_LEN_MAX,
        };
        Ok((reply, Vec::new()))
    }

    /// Begins the session in the worker, which looks at this page from then on.
    async fn share_doorbells(&mut self, page: &OwnedFd) -> Outcome {
        let opener = self.opener(&[(Resource::Mappings, 1)])?;
        let opened = opener.open("doorbell page", page, DoorbellPage::open);
        let (doorbells, opener) = opened.await?;
        self.own.push(opener.into_claim());
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let theirs = OwnedFd::from(EventFd::from_value_and_flags(0, flags)?);
        let ours = theirs.try_clone().map_err(|_| nix::errno::Errno::EMFILE)?;
        let session = self.id;
        let doorbell = Doorbell::register(&self.doorbells, ours, session.0)
            .map_err(|_| nix::errno::Errno::ENOSPC)?;
        let doorbell = Arc::new(doorbell);
        let bell = Some(doorbell.clone());
        let begin = |answer| Command::Open {
            session,
            doorbells,
            bell,
            answer,
        };
        self.worker
            .ask(begin)
            .await
            .ok_or_else(Refusal::gone)?
            .map_err(refusal)?;
        self.doorbell = Some(doorbell);
        Ok((Reply::Done, vec![theirs]))
    }

    async fn register(
        &mut self,
        memfd: &OwnedFd,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Outcome {
        if let Some(fault) = access.fault_of_region() {
            return Err(Refusal::new(ErrorCode::InvalidArgument, fault));
        }
        let opener = self.opener(&[
            (Resource::Memory, length),
            (Resource::Regions, 1),
            (Resource::Mappings, 1),
        ])?;
        if iova.checked_add(length).is_none() {
            let text = "the addresses of the region overflow";
            return Err(Refusal::new(ErrorCode::InvalidArgument, text));
        }
        let map = move |memfd: BorrowedFd<'_>| Mapping::of_region(memfd, length);
        let (memory, opener) = opener.open("region", memfd, map).await?;
        let memory = SharedMemory::new(memory);
        let register = |answer| SessionCommand::Register(memory, iova, access, answer);
        let (lkey, rkey) = self.ask(register).await?;
        self.regions.insert(lkey, opener.into_claim());
        Ok((
            Reply::Region {
                handle: lkey,
                lkey,
                rkey,
            },
            Vec::new(),
        ))
    }

    async fn create_completion_queue(&mut self, entries: u32, memfd: &OwnedFd) -> Outcome {
        let entries = rounded(entries)?;
        let opener = self.opener(&[
            (Resource::Memory, ring_bytes(entries, COMPLETION_LEN)),
            (Resource::CompletionQueues, 1),
            (Resource::Mappings, 1),
            (Resource::Descriptors, 1),
        ])?;
        let ring = opener.open_ring::<COMPLETION_LEN>("completion ring", memfd, entries);
        let (ring, opener) = ring.await?;
        let (read, write) = nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        let producer = ring.producer();
        let bell = self.waking.bell(write).map_err(|error| {
            let text = format!("hostd lacks a resource: {error}");
            Refusal::new(ErrorCode::Internal, text)
        })?;
        let wake = Wake::Bell(bell);
        let create = |answer| SessionCommand::CreateCompletionQueue(producer, wake, answer);
        let (handle, claim) = keep(self.ask(create).await, ring, opener).await?;
        self.completion_queues.insert(handle, claim);
        Ok((Reply::CompletionQueue { handle, entries }, vec![read]))
    }

    async fn create_queue_pair(
        &mut self,
        queues: [u32; 2],
        entries: [u32; 2],
        shared: u32,
        memfds: [&OwnedFd; 2],
    ) -> Outcome {
        let [send_entries, receive_entries] = [rounded(entries[0])?, rounded(entries[1])?];
        let rings = entries.map(|entries| ring_entries(entries, WORK_ENTRIES_MIN));
        let bytes = rings
            .map(|entries| ring_bytes(entries, WORK_LEN))
            .iter()
            .sum();
        let opener = self.opener(&[
            (Resource::Memory, bytes),
            (Resource::QueuePairs, 1),
            (
                Resource::WorkRequests,
                u64::from(send_entries) + u64::from(receive_entries),
            ),
            (Resource::Mappings, 2),
        ])?;
        let slot = self.free_slot()?;
        let send = opener.open_ring::<WORK_LEN>("send ring", memfds[0], rings[0]);
        let (send, opener) = send.await?;
        let receive = opener.open_ring::<WORK_LEN>("receive ring", memfds[1], rings[1]);
        let (receive, opener) = receive.await?;
        let request = Box::new(NewQueuePair {
            send_cq: queues[0],
            receive_cq: queues[1],
            send: send.consumer(),
            receive: receive.consumer(),
            send_entries,
            receive_entries,
            shared,
            slot,
        });
        let create = |answer| SessionCommand::CreateQueuePair(request, answer);
        let created = self.ask(create).await;
        let (handle, claim) = keep(created, (send, receive), opener).await?;
        self.slots.insert(slot);
        self.queue_pairs.insert(handle, (slot, claim));
        let qpn = handle;
        let reply = Reply::QueuePair {
            handle,
            qpn,
            slot,
            send_entries: rings[0],
            receive_entries: rings[1],
        };
        Ok((reply, Vec::new()))
    }

    /// It counts as a queue pair: its doorbell is one of theirs.
    async fn create_shared_queue(&mut self, entries: u32, limit: u32, memfd: &OwnedFd) -> Outcome {
        let entries = rounded(entries)?;
        let places = ring_entries(entries, WORK_ENTRIES_MIN);
        let opener = self.opener(&[
            (Resource::Memory, ring_bytes(places, WORK_LEN)),
            (Resource::QueuePairs, 1),
            (Resource::WorkRequests, entries.into()),
            (Resource::Mappings, 1),
        ])?;
        let slot = self.free_slot()?;
        let ring = opener.open_ring::<WORK_LEN>("shared ring", memfd, places);
        let (ring, opener) = ring.await?;
        let request = Box::new(NewSharedQueue {
            ring: ring.consumer(),
            entries,
            limit,
            slot,
        });
        let create = |answer| SessionCommand::CreateSharedQueue(request, answer);
        let (handle, claim) = keep(self.ask(create).await, ring, opener).await?;
        self.slots.insert(slot);
        self.shared.insert(handle, (slot, claim));
        let reply = Reply::SharedQueue {
            handle,
            slot,
            entries: places,
        };
        Ok((reply, Vec::new()))
    }

    async fn limit_shared_queue(&self, queue: u32, limit: u32) -> Outcome {
        self.ask(|answer| SessionCommand::LimitSharedQueue(queue, limit, answer))
            .await
            .map(done)
    }

    pub(super) fn free_slot(&self) -> Result<u32, Refusal> {
        (0..u32::try_from(QUEUE_PAIRS_MAX).unwrap_or(u32::MAX))
            .find(|slot| !self.slots.contains(slot))
            .ok_or_else(|| Refusal::new(ErrorCode::Quota, "no doorbell is free"))
    }

    /// A window counts as a region.
    async fn create_window(&mut self) -> Outcome {
        let claim = self.account.claim(&[(Resource::Regions, 1)])?;
        let (handle, rkey) = self.ask(SessionCommand::CreateWindow).await?;
        self.windows.insert(handle, claim);
        Ok((Reply::Window { handle, rkey }, Vec::new()))
    }

    async fn listen(&mut self, address: IpAddr, port: u16, backlog: u16) -> Outcome {
        let claim = self.account.claim(&[(Resource::Listeners, 1)])?;
        let at = Some(address).filter(|it| !it.is_unspecified());
        if let Some(address) = at {
            port::require_own(self.routes.port(), address)?;
        }
        let listen = |answer| SessionCommand::Listen(at, port, backlog, answer);
        let port = self
            .ask(listen)
            .await
            .map_err(|refusal| match refusal.code {
                ErrorCode::InUse => {
                    Refusal::new(ErrorCode::AddressInUse, format!("port {port} is in use"))
                }
                _ => refusal,
            })?;
        let handle = u32::from(port);
        self.listeners.insert(handle, claim);
        Ok((Reply::Listener { handle, port }, Vec::new()))
    }

    /// Waits until `peer` can be reached from `own`, if that is given.
    pub(super) async fn reach(&self, peer: IpAddr, own: Option<IpAddr>) -> Result<(), Refusal> {
        if let Some(own) = own {
            port::require_own(self.routes.port(), own)?;
            port::require_family(own, peer)?;
        }
        let reached = self.routes.reach(peer, own).await;
        reached.map_err(|reason| Refusal::new(ErrorCode::Unreachable, reason))
    }

    async fn bind(&mut self, qp: u32, address: IpAddr) -> Outcome {
        port::require_own(self.routes.port(), address)?;
        self.ask(|answer| SessionCommand::Bind(qp, address, answer))
            .await?;
        self.bound.insert(qp, address);
        Ok(done(()))
    }

    async fn choose_partition(&self, qp: u32, index: u16) -> Outcome {
        port::require_partition(self.routes.port(), index)?;
        self.ask(|answer| SessionCommand::ChoosePartition(qp, index, answer))
            .await
            .map(done)
    }

    async fn connect(&self, qp: u32, address: IpAddr, port: u16, private: Private) -> Outcome {
        self.reach(address, self.bound.get(&qp).copied()).await?;
        let connect = |answer| SessionCommand::Connect(qp, address, port, private, answer);
        self.ask(connect).await.map(done)
    }

    async fn destroy(&mut self, kind: ObjectKind, handle: u32) -> Outcome {
        self.ask(|answer| SessionCommand::Destroy(kind, handle, answer))
            .await?;
        match kind {
            ObjectKind::Region => drop(self.regions.remove(&handle)),
            ObjectKind::Window => drop(self.windows.remove(&handle)),
            ObjectKind::CompletionQueue => drop(self.completion_queues.remove(&handle)),
            ObjectKind::QueuePair => {
                self.bound.remove(&handle);
                if let Some((slot, _)) = self.queue_pairs.remove(&handle) {
                    self.slots.remove(&slot);
                }
            }
            ObjectKind::SharedQueue | ObjectKind::Member => {
                let held = match kind {
                    ObjectKind::Member => self.members.remove(&handle),
                    _ => self.shared.remove(&handle),
                };
                if let Some((slot, _)) = held {
                    self.slots.remove(&slot);
                }
            }
            ObjectKind::Listener => drop(self.listeners.remove(&handle)),
        }
        Ok(done(()))
    }
}

fn other_version(major: u16, minor: u16) -> Refusal {
    let text = format!(
        "hostd speaks version {VERSION_MAJOR}.{VERSION_MINOR} of the ABI and the application \
         {major}.{minor}: build it with the library of this hostd"
    );
    Refusal::new(ErrorCode::BadVersion, text)
}

/// The reply to what needs no other.
pub(super) fn done((): ()) -> (Reply, Vec<OwnedFd>) {
    (Reply::Done, Vec::new())
}

pub(super) fn rounded(entries: u32) -> Result<u32, Refusal> {
    if (1..=RING_ENTRIES_MAX).contains(&entries) {
        return Ok(entries.next_power_of_two());
    }
    let text = format!("a queue of {entries} entries is not between 1 and {RING_ENTRIES_MAX}");
    Err(Refusal::new(ErrorCode::InvalidArgument, text))
}

pub(super) fn ring_bytes(entries: u32, entry_len: usize) -> u64 {
    u64::try_from(memory_len(entries, entry_len)).unwrap_or(u64::MAX)
}

fn refusal(error: EngineError) -> Refusal {
    let code = match error {
        EngineError::Unknown => ErrorCode::NotFound,
        EngineError::TooMany => ErrorCode::Quota,
        EngineError::Argument | EngineError::SharedLength => ErrorCode::InvalidArgument,
        EngineError::Busy => ErrorCode::InUse,
        _ => ErrorCode::InvalidState,
    };
    Refusal::new(code, error.to_string())
}
