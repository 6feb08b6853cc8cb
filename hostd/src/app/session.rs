//! One application's requests, on the control thread: checked against its quota, carried out by the
//! worker, answered.

use crate::config::Quota;
use crate::control::routes::RouterHandle;
use crate::doorbell::{Doorbell, Doorbells};
use crate::edge::command::{
    Answer, Command, NewQueuePair, SessionCommand, SessionId, WorkerHandle,
};
use crate::edge::completion::Wake;
use crate::edge::region::SharedMemory;
use crate::verbs::EngineError;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::descriptor::{COMPLETION_LEN, WORK_LEN};
use hostd_client::abi::doorbell::DoorbellPage;
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::{RingMemory, memory_len};
use hostd_client::abi::types::{Access, ErrorCode, ObjectKind, Private};
use hostd_client::abi::{
    MESSAGE_LEN_MAX, QUEUE_PAIRS_MAX, RING_ENTRIES_MAX, VERSION_MAJOR, VERSION_MINOR, feature,
};
use hostd_client::shm::{Mapping, MemoryError};
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

/// A refusal, on its way to becoming an error reply.
#[derive(Debug)]
pub struct Refusal {
    code: ErrorCode,
    text: String,
}

impl Refusal {
    /// Refuses with a code and a text for people.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// The reply.
    pub fn into_reply(self) -> Reply {
        Reply::error(self.code, self.text)
    }
}

impl From<MemoryError> for Refusal {
    fn from(error: MemoryError) -> Self {
        Self::new(ErrorCode::BadMemory, error.to_string())
    }
}

impl From<nix::errno::Errno> for Refusal {
    fn from(error: nix::errno::Errno) -> Self {
        Self::new(
            ErrorCode::Internal,
            format!("hostd lacks a resource: {error}"),
        )
    }
}

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
    /// What the application writes to wake the worker, from its hello on.
    doorbell: Option<Doorbell>,
    greeted: bool,
    memory: u64,
    work_requests: u32,
    /// Lengths by local key.
    regions: HashMap<u32, u64>,
    /// Bytes of the ring by handle.
    completion_queues: HashMap<u32, u64>,
    queue_pairs: HashMap<u32, HeldQueuePair>,
    slots: HashSet<u32>,
    listeners: HashSet<u32>,
}

#[derive(Clone, Copy, Debug)]
struct HeldQueuePair {
    slot: u32,
    work_requests: u32,
    memory: u64,
}

impl Session {
    /// A session that has not said hello yet.
    pub fn new(
        id: SessionId,
        quota: Quota,
        worker: WorkerHandle,
        routes: RouterHandle,
        doorbells: Doorbells,
    ) -> Self {
        Self {
            id,
            quota,
            worker,
            routes,
            doorbells,
            doorbell: None,
            greeted: false,
            memory: 0,
            work_requests: 0,
            regions: HashMap::new(),
            completion_queues: HashMap::new(),
            queue_pairs: HashMap::new(),
            slots: HashSet::new(),
            listeners: HashSet::new(),
        }
    }

    /// Carries out a request that came with `descriptors`.
    ///
    /// # Errors
    /// The refusal; nothing has changed then.
    pub async fn handle(&mut self, request: Request, descriptors: &[OwnedFd]) -> Outcome {
        if descriptors.len() != request.descriptors() {
            let text = format!("{} file descriptors with this request", descriptors.len());
            return Err(Refusal::new(ErrorCode::BadMessage, text));
        }
        if self.greeted == matches!(request, Request::Hello { .. }) {
            let text = "a session begins with one hello";
            return Err(Refusal::new(ErrorCode::BadMessage, text));
        }
        match request {
            Request::Hello {
                major, features, ..
            } => self.hello(major, features).await,
            Request::RegisterRegion {
                length,
                iova,
                access,
            } => {
                let memfd = descriptors.first().expect("counted above");
                self.register(memfd, length, iova, access).await
            }
            Request::CreateCompletionQueue { entries } => {
                self.create_completion_queue(entries).await
            }
            Request::CreateQueuePair {
                send_cq,
                receive_cq,
                send_entries,
                receive_entries,
            } => {
                self.create_queue_pair([send_cq, receive_cq], [send_entries, receive_entries])
                    .await
            }
            Request::Listen { address, port, .. } => self.listen(address, port).await,
            Request::Connect {
                qp,
                address,
                port,
                private,
            } => self.connect(qp, address, port, private).await,
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
            Request::Destroy { kind, handle } => self.destroy(kind, handle).await,
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(Answer<T>) -> SessionCommand,
    ) -> Result<T, Refusal> {
        let whole = |answer| Command::Session(self.id, command(answer));
        match self.worker.ask(whole).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(refusal(error)),
            None => Err(gone()),
        }
    }

    async fn hello(&mut self, major: u16, features: u64) -> Outcome {
        if major != VERSION_MAJOR {
            let text = format!("hostd speaks version {VERSION_MAJOR}, the application {major}");
            return Err(Refusal::new(ErrorCode::BadVersion, text));
        }
        let (page, doorbells) = DoorbellPage::create()?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let theirs = OwnedFd::from(EventFd::from_value_and_flags(0, flags)?);
        let ours = theirs.try_clone().map_err(|_| nix::errno::Errno::EMFILE)?;
        let doorbell =
            Doorbell::register(&self.doorbells, ours).map_err(|_| nix::errno::Errno::ENOSPC)?;
        let session = self.id;
        let open = |answer| Command::Open {
            session,
            doorbells,
            answer,
        };
        self.worker
            .ask(open)
            .await
            .ok_or_else(gone)?
            .map_err(refusal)?;
        self.greeted = true;
        self.doorbell = Some(doorbell);
        let reply = Reply::Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            features: features & feature::ALL,
            memory: self.quota.memory(),
            queue_pairs: self.quota.queue_pairs,
            message: MESSAGE_LEN_MAX,
        };
        Ok((reply, vec![page, theirs]))
    }

    /// Checks that `more` bytes are within the quota.
    fn afford(&self, more: u64) -> Result<u64, Refusal> {
        let quota = self.quota.memory();
        let sum = self.memory.saturating_add(more);
        if sum <= quota {
            return Ok(sum);
        }
        let text = format!(
            "{more} bytes with {} in use exceed the quota of {quota} bytes \
             (application.quota.memory_mib)",
            self.memory
        );
        Err(Refusal::new(ErrorCode::Quota, text))
    }

    async fn register(
        &mut self,
        memfd: &OwnedFd,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Outcome {
        below(self.regions.len(), self.quota.regions, "regions")?;
        let memory = self.afford(length)?;
        if iova.checked_add(length).is_none() {
            let text = "the addresses of the region overflow";
            return Err(Refusal::new(ErrorCode::InvalidArgument, text));
        }
        let memory_of_peer = SharedMemory::new(Mapping::of_peer(memfd.as_fd(), length)?);
        let register = |answer| SessionCommand::Register(memory_of_peer, iova, access, answer);
        let (lkey, rkey) = self.ask(register).await?;
        self.memory = memory;
        self.regions.insert(lkey, length);
        Ok((
            Reply::Region {
                handle: lkey,
                lkey,
                rkey,
            },
            Vec::new(),
        ))
    }

    async fn create_completion_queue(&mut self, entries: u32) -> Outcome {
        below(
            self.completion_queues.len(),
            self.quota.completion_queues,
            "completion_queues",
        )?;
        let entries = rounded(entries)?;
        let bytes = ring_bytes(entries, COMPLETION_LEN);
        let memory = self.afford(bytes)?;
        let (fd, ring) = RingMemory::<COMPLETION_LEN>::create(c"hostd-completions", entries)?;
        let (read, write) = nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        let producer = ring.producer();
        let wake = Wake::Pipe(write);
        let create = |answer| SessionCommand::CreateCompletionQueue(producer, wake, answer);
        let handle = self.ask(create).await?;
        self.memory = memory;
        self.completion_queues.insert(handle, bytes);
        Ok((Reply::CompletionQueue { handle, entries }, vec![fd, read]))
    }

    async fn create_queue_pair(&mut self, queues: [u32; 2], entries: [u32; 2]) -> Outcome {
        below(
            self.queue_pairs.len(),
            self.quota.queue_pairs,
            "queue_pairs",
        )?;
        let [send_entries, receive_entries] = [rounded(entries[0])?, rounded(entries[1])?];
        let work_requests = send_entries + receive_entries;
        let all = u64::from(self.work_requests) + u64::from(work_requests);
        if all > u64::from(self.quota.work_requests) {
            let text = format!(
                "room for {all} work requests exceeds the quota of {} \
                 (application.quota.work_requests)",
                self.quota.work_requests
            );
            return Err(Refusal::new(ErrorCode::Quota, text));
        }
        let bytes = ring_bytes(send_entries, WORK_LEN) + ring_bytes(receive_entries, WORK_LEN);
        let memory = self.afford(bytes)?;
        let slot = (0..u32::try_from(QUEUE_PAIRS_MAX).unwrap_or(u32::MAX))
            .find(|slot| !self.slots.contains(slot))
            .ok_or_else(|| Refusal::new(ErrorCode::Quota, "no doorbell is free"))?;
        let (send_fd, send) = RingMemory::<WORK_LEN>::create(c"hostd-sends", send_entries)?;
        let (receive_fd, receive) =
            RingMemory::<WORK_LEN>::create(c"hostd-receives", receive_entries)?;
        let request = Box::new(NewQueuePair {
            send_cq: queues[0],
            receive_cq: queues[1],
            send: send.consumer(),
            receive: receive.consumer(),
            send_entries,
            receive_entries,
            slot,
        });
        let create = |answer| SessionCommand::CreateQueuePair(request, answer);
        let handle = self.ask(create).await?;
        self.memory = memory;
        self.work_requests += work_requests;
        self.slots.insert(slot);
        let held = HeldQueuePair {
            slot,
            work_requests,
            memory: bytes,
        };
        self.queue_pairs.insert(handle, held);
        let qpn = handle;
        let reply = Reply::QueuePair {
            handle,
            qpn,
            slot,
            send_entries,
            receive_entries,
        };
        Ok((reply, vec![send_fd, receive_fd]))
    }

    async fn listen(&mut self, address: IpAddr, port: u16) -> Outcome {
        below(self.listeners.len(), self.quota.listeners, "listeners")?;
        if !address.is_unspecified() {
            let text = "hostd listens on all its addresses: give 0.0.0.0 or ::";
            return Err(Refusal::new(ErrorCode::InvalidArgument, text));
        }
        let listen = |answer| SessionCommand::Listen(port, answer);
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
        self.listeners.insert(handle);
        Ok((Reply::Listener { handle, port }, Vec::new()))
    }

    async fn connect(&self, qp: u32, address: IpAddr, port: u16, private: Private) -> Outcome {
        self.routes
            .reach(address)
            .await
            .map_err(|reason| Refusal::new(ErrorCode::Unreachable, reason))?;
        let connect = |answer| SessionCommand::Connect(qp, address, port, private, answer);
        self.ask(connect).await.map(done)
    }

    async fn destroy(&mut self, kind: ObjectKind, handle: u32) -> Outcome {
        self.ask(|answer| SessionCommand::Destroy(kind, handle, answer))
            .await?;
        match kind {
            ObjectKind::Region => {
                self.memory -= self.regions.remove(&handle).unwrap_or(0);
            }
            ObjectKind::CompletionQueue => {
                self.memory -= self.completion_queues.remove(&handle).unwrap_or(0);
            }
            ObjectKind::QueuePair => {
                if let Some(held) = self.queue_pairs.remove(&handle) {
                    self.memory -= held.memory;
                    self.work_requests -= held.work_requests;
                    self.slots.remove(&held.slot);
                }
            }
            ObjectKind::Listener => {
                self.listeners.remove(&handle);
            }
        }
        Ok(done(()))
    }
}

fn done((): ()) -> (Reply, Vec<OwnedFd>) {
    (Reply::Done, Vec::new())
}

fn below(held: usize, quota: u32, name: &str) -> Result<(), Refusal> {
    if u64::try_from(held).unwrap_or(u64::MAX) < u64::from(quota) {
        return Ok(());
    }
    let text = format!("the quota is {quota} (application.quota.{name})");
    Err(Refusal::new(ErrorCode::Quota, text))
}

fn rounded(entries: u32) -> Result<u32, Refusal> {
    if (1..=RING_ENTRIES_MAX).contains(&entries) {
        return Ok(entries.next_power_of_two());
    }
    let text = format!("a queue of {entries} entries is not between 1 and {RING_ENTRIES_MAX}");
    Err(Refusal::new(ErrorCode::InvalidArgument, text))
}

fn ring_bytes(entries: u32, entry_len: usize) -> u64 {
    u64::try_from(memory_len(entries, entry_len)).unwrap_or(u64::MAX)
}

fn gone() -> Refusal {
    Refusal::new(ErrorCode::ShuttingDown, ErrorCode::ShuttingDown.text())
}

fn refusal(error: EngineError) -> Refusal {
    let code = match error {
        EngineError::Unknown => ErrorCode::NotFound,
        EngineError::TooMany => ErrorCode::Quota,
        EngineError::Argument => ErrorCode::InvalidArgument,
        EngineError::Busy => ErrorCode::InUse,
        _ => ErrorCode::InvalidState,
    };
    Refusal::new(code, error.to_string())
}
