//! Queue pairs.

use crate::abi::answer::{Event, Reply};
use crate::abi::by_hand::ByHand;
use crate::abi::descriptor::{
    ATOMIC_LEN, Local, Opcode, ReceiveWork, SendWork, SgeList, WORK_ENTRIES_MIN, WORK_LEN,
};
use crate::abi::message::Request;
use crate::abi::options::ConnectionOptions;
use crate::abi::ring::{Producer, RingMemory, ring_entries};
use crate::abi::types::{ErrorCode, Granularity, ObjectKind, Private};
use crate::channel::deadline;
use crate::outstanding::{Ledger, Side, Users};
use crate::session::{Object, Session, agree, unexpected};
use crate::stage::Stage;
use crate::{CompletionQueue, Error, Slice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// Send requests that may be outstanding (`max_send_wr`).
    pub send_entries: u32,
    /// Receives that may be posted (`max_recv_wr`).
    pub receive_entries: u32,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self {
            send_entries: 64,
            receive_entries: 64,
        }
    }
}

/// Bytes of a peer's region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteSlice {
    /// Address in the region's own address space.
    pub address: u64,
    /// Key that the peer told.
    pub rkey: u32,
}

/// What an atomic operation does to 8 bytes of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// They become `swap` if they are `compare`.
    CompareSwap {
        /// What they have to be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
    /// This is added, modulo 2⁶⁴.
    FetchAdd(u64),
}

/// How a request uses the memory of the peer that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteUse {
    /// RDMA WRITE.
    #[default]
    Write,
    /// RDMA READ.
    Read,
    /// An atomic operation.
    Atomic(AtomicOperation),
}

/// A request for the send queue (`ibv_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Given back in the completion.
    pub wr_id: u64,
    /// The bytes to send; of RDMA READs and atomic operations where the answer goes.
    pub local: Slice,
    /// The peer's memory that is written, read or changed; `None` for a SEND.
    pub remote: Option<RemoteSlice>,
    /// What is done to that memory.
    pub remote_use: RemoteUse,
    /// Immediate data for the peer; not for READs and atomic operations.
    pub immediate: Option<u32>,
    /// With a SEND: the peer's key that is taken back when it has arrived
    /// (`IBV_WR_SEND_WITH_INV`), instead of immediate data.
    pub invalidate: Option<u32>,
    /// Complete also when nothing went wrong (`IBV_SEND_SIGNALED`).
    pub signaled: bool,
    /// The peer's completion is a solicited event (`IBV_SEND_SOLICITED`).
    pub solicited: bool,
    /// Begin when all READs and atomic operations before are done (`IBV_SEND_FENCE`).
    pub fence: bool,
}

impl SendRequest {
    /// A SEND that completes.
    pub fn send(wr_id: u64, local: Slice) -> Self {
        Self {
            wr_id,
            local,
            remote: None,
            remote_use: RemoteUse::Write,
            immediate: None,
            invalidate: None,
            signaled: true,
            solicited: false,
            fence: false,
        }
    }

    /// An RDMA WRITE that completes.
    pub fn write(wr_id: u64, local: Slice, remote: RemoteSlice) -> Self {
        Self {
            remote: Some(remote),
            ..Self::send(wr_id, local)
        }
    }

    /// An RDMA READ that completes: the bytes of `remote` into `local`, which needs
    /// [`crate::Access::LOCAL_WRITE`].
    pub fn read(wr_id: u64, local: Slice, remote: RemoteSlice) -> Self {
        Self {
            remote_use: RemoteUse::Read,
            ..Self::write(wr_id, local, remote)
        }
    }

    /// An atomic operation that completes: `local`, 8 bytes with [`crate::Access::LOCAL_WRITE`],
    /// gets what was at `remote` before, in the order of this machine's bytes. The address there is
    /// a multiple of 8.
    ///
    /// It is atomic against all operations of peers on that host's memory, and against atomic
    /// instructions of its owner on the same 8 bytes.
    pub fn atomic(
        wr_id: u64,
        local: Slice,
        remote: RemoteSlice,
        operation: AtomicOperation,
    ) -> Self {
        Self {
            remote_use: RemoteUse::Atomic(operation),
            ..Self::write(wr_id, local, remote)
        }
    }

    /// The same, but after all READs and atomic operations before it.
    pub fn fenced(self) -> Self {
        Self {
            fence: true,
            ..self
        }
    }

    /// The same with immediate data.
    pub fn with_immediate(self, immediate: u32) -> Self {
        Self {
            immediate: Some(immediate),
            ..self
        }
    }

    /// The same SEND, which takes the peer's key `rkey` back: that of a memory window that the peer
    /// bound on this connection.
    pub fn with_invalidate(self, rkey: u32) -> Self {
        Self {
            invalidate: Some(rkey),
            ..self
        }
    }

    fn opcode(&self) -> Opcode {
        if self.remote.is_none() && self.invalidate.is_some() {
            return Opcode::SendWithInvalidate;
        }
        match (self.remote, self.remote_use, self.immediate) {
            (None, _, None) => Opcode::Send,
            (None, _, Some(_)) => Opcode::SendWithImmediate,
            (Some(_), RemoteUse::Write, None) => Opcode::Write,
            (Some(_), RemoteUse::Write, Some(_)) => Opcode::WriteWithImmediate,
            (Some(_), RemoteUse::Read, _) => Opcode::Read,
            (Some(_), RemoteUse::Atomic(AtomicOperation::CompareSwap { .. }), _) => {
                Opcode::CompareSwap
            }
            (Some(_), RemoteUse::Atomic(AtomicOperation::FetchAdd(_)), _) => Opcode::FetchAdd,
        }
    }

    /// Whether the daemon would take it: an atomic operation returns 8 bytes.
    fn check(&self) -> Result<(), Error> {
        if self.opcode().is_atomic() && self.local.len != ATOMIC_LEN {
            return Err(Error::AtomicLength(self.local.len));
        }
        Ok(())
    }

    pub(crate) fn to_work(self, local: Local) -> SendWork {
        let opcode = self.opcode();
        let (compare_add, swap) = match self.remote_use {
            RemoteUse::Atomic(AtomicOperation::CompareSwap { compare, swap }) => (compare, swap),
            RemoteUse::Atomic(AtomicOperation::FetchAdd(add)) => (add, 0),
            RemoteUse::Write | RemoteUse::Read => (0, 0),
        };
        let operands = opcode.is_atomic();
        let remote = self.remote.unwrap_or_default();
        SendWork {
            wr_id: self.wr_id,
            opcode,
            signaled: self.signaled,
            solicited: self.solicited,
            fence: self.fence,
            immediate: match opcode {
                Opcode::SendWithInvalidate => self.invalidate.unwrap_or(0),
                _ => self.immediate.unwrap_or(0),
            },
            remote_address: remote.address,
            rkey: remote.rkey,
            local,
            compare_add: if operands { compare_add } else { 0 },
            swap: if operands { swap } else { 0 },
        }
    }
}

/// A request for the receive queue (`ibv_recv_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Given back in the completion.
    pub wr_id: u64,
    /// Where a message is placed; may be empty for writes with immediate data.
    pub local: Slice,
}

/// What was agreed on with the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The peer's address.
    pub peer: IpAddr,
    /// Payload bytes of a packet.
    pub mtu: u16,
    /// Sub-paths in force; one for plain RoCEv2.
    pub paths: u16,
    /// What the scheduler of sub-paths decides for at once.
    pub granularity: Granularity,
    /// Data of the peer's application: what it gave to `connect`, also at the side that accepted,
    /// or to `accept`.
    pub private: Private,
}

/// A reliable connection's two work queues (`ibv_qp` of type `IBV_QPT_RC`).
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) context: Arc<Session>,
    pub(crate) send: Producer<WORK_LEN>,
    pub(crate) receive: Producer<WORK_LEN>,
    pub(crate) handle: u32,
    number: u32,
    slot: u32,
    /// What of it has not completed.
    pub(crate) sends: Arc<Ledger>,
    pub(crate) receives: Arc<Ledger>,
    /// Where both complete.
    users: [Arc<Users>; 2],
    /// What may be posted.
    pub(crate) stage: Stage,
    /// Why the connection ended, once that was told.
    pub(crate) ended: OnceLock<ErrorCode>,
    /// The queue pair itself first: the daemon gives no completion queue up that is in use.
    _objects: [Arc<Object>; 3],
    /// Where receives are posted, if not here. Given back after the queue pair.
    shared: Option<Arc<Object>>,
}

impl QueuePair {
    pub(crate) fn create(
        context: &Arc<Session>,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        shared: Option<(u32, Arc<Object>)>,
        options: QueuePairOptions,
    ) -> Result<Self, Error> {
        let request = Request::CreateQueuePair {
            send_cq: send.handle(),
            receive_cq: receive.handle(),
            send_entries: options.send_entries,
            receive_entries: options.receive_entries,
            shared: shared.as_ref().map_or(0, |(handle, _)| *handle),
        };
        let ring =
            |name, entries| RingMemory::create(name, ring_entries(entries, WORK_ENTRIES_MIN));
        let (send_memfd, send_ring) = ring(c"hostd-sends", options.send_entries)?;
        let (receive_memfd, receive_ring) = ring(c"hostd-receives", options.receive_entries)?;
        let memfds = [send_memfd.as_fd(), receive_memfd.as_fd()];
        let (reply, _) = context.channel.call_with(&request, &memfds)?;
        let Reply::QueuePair {
            handle,
            qpn,
            slot,
            send_entries,
            receive_entries,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let object = Object::new(context, ObjectKind::QueuePair, handle);
        agree(send_entries, send_ring.entries())?;
        agree(receive_entries, receive_ring.entries())?;
        let sends = Ledger::new(send_entries);
        let receives = Ledger::new(receive_entries);
        let users = [send.users.clone(), receive.users.clone()];
        users[0].add(handle, Side::Sends, &sends);
        users[1].add(handle, Side::Receives, &receives);
        Ok(Self {
            context: context.clone(),
            send: send_ring.producer(),
            receive: receive_ring.producer(),
            handle,
            number: qpn,
            slot,
            sends,
            receives,
            users,
            stage: Stage::default(),
            ended: OnceLock::new(),
            _objects: [object, send.object(), receive.object()],
            shared: shared.map(|(_, object)| object),
        })
    }

    /// What [`crate::Completion::queue_pair`] says for this queue pair.
    pub fn id(&self) -> u32 {
        self.handle
    }

    /// The number on the wire (`qp_num`).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Posts a send request (`ibv_post_send`).
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older requests; [`Error::AtomicLength`];
    /// [`Error::Refused`] with [`ErrorCode::InvalidState`] before a connection was asked for;
    /// [`Error::DaemonGone`], which is noticed after some requests only while the daemon was busy:
    /// those are flushed ([`CompletionQueue::poll`]), this one was not posted. After the end of the
    /// connection requests complete as flushed.
    pub fn post_send(&mut self, request: &SendRequest) -> Result<(), Error> {
        match self.post_sends(std::slice::from_ref(request))? {
            0 => Err(Error::QueueFull),
            _ => Ok(()),
        }
    }

    /// Posts send requests with one ring of the doorbell, as many as fit, and returns how many.
    ///
    /// # Errors
    /// The ring is broken; [`Error::AtomicLength`], and nothing is posted.
    pub fn post_sends(&mut self, requests: &[SendRequest]) -> Result<usize, Error> {
        self.may_send()?;
        requests.iter().try_for_each(SendRequest::check)?;
        let works = requests.iter().map(|request| {
            let local = Local::Pieces(buffers(request.local));
            request.to_work(local).to_bytes()
        });
        let mut outstanding = self.sends.lock();
        let posted = push_all(&mut self.send, works)?;
        for request in &requests[..posted] {
            outstanding.note(request.wr_id, request.signaled);
        }
        drop(outstanding);
        self.ring(&self.sends, posted)?;
        Ok(posted)
    }

    /// Posts a receive (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older receives; [`Error::SharedReceives`].
    pub fn post_receive(&mut self, request: &ReceiveRequest) -> Result<(), Error> {
        match self.post_receives(std::slice::from_ref(request))? {
            0 => Err(Error::QueueFull),
            _ => Ok(()),
        }
    }

    /// Posts receives with one ring of the doorbell, as many as fit, and returns how many.
    ///
    /// # Errors
    /// The ring is broken; [`Error::SharedReceives`].
    pub fn post_receives(&mut self, requests: &[ReceiveRequest]) -> Result<usize, Error> {
        self.may_receive()?;
        let mut outstanding = self.receives.lock();
        let posted = push_all(&mut self.receive, receive_works(requests))?;
        for request in &requests[..posted] {
            outstanding.note(request.wr_id, true);
        }
        drop(outstanding);
        self.ring(&self.receives, posted)?;
        Ok(posted)
    }

    /// Whether its receives come from a shared queue.
    pub(crate) fn shares(&self) -> bool {
        self.shared.is_some()
    }

    /// Sets how the connection retries that this queue pair gets by [`Self::connect`] or
    /// [`crate::ConnectRequest::accept`].
    ///
    /// # Errors
    /// A value is out of its range, or the queue pair is connected; the daemon says which.
    pub fn set_options(&mut self, options: &ConnectionOptions) -> Result<(), Error> {
        let request = Request::SetOptions {
            qp: self.handle,
            options: *options,
        };
        self.context.channel.call(&request, None).map(|_| ())
    }

    /// Connects to a listener (`rdma_connect`). Receives that the peer's first messages need
    /// should be posted before.
    ///
    /// # Errors
    /// [`Error::ConnectFailed`] with the reason; [`Error::TimedOut`].
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        private: Private,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let request = self.connect_request(peer, private);
        self.context.channel.call(&request, None)?;
        self.begin_sends();
        self.established(timeout)
    }

    pub(crate) fn connect_request(&self, peer: SocketAddr, private: Private) -> Request {
        Request::Connect {
            qp: self.handle,
            address: peer.ip(),
            port: peer.port(),
            private,
        }
    }

    /// Readies the queue pair for a peer with which numbers were exchanged by other means
    /// (`ibv_modify_qp` to RTR and RTS). The peer may send from then on. Nobody tells when it has
    /// gone: requests fail then, with [`crate::CompletionStatus::RetryExceeded`].
    ///
    /// # Errors
    /// There is no way to the peer from [`ByHand::local`], or that is no address of the interface,
    /// or an attribute is out of range; the daemon says which.
    pub fn connect_by_hand(&mut self, by_hand: &ByHand) -> Result<(), Error> {
        let request = Request::ConnectByHand {
            qp: self.handle,
            by_hand: *by_hand,
        };
        self.context.channel.call(&request, None)?;
        self.begin_sends();
        Ok(())
    }

    /// Accepts a connection request with this queue pair.
    pub(crate) fn accept(
        &mut self,
        request: u32,
        private: Private,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let request = Request::Accept {
            request,
            qp: self.handle,
            private,
        };
        self.context.channel.call(&request, None)?;
        self.begin_sends();
        self.established(timeout)
    }

    fn established(&self, timeout: Duration) -> Result<Connected, Error> {
        let until = deadline(timeout);
        let wanted = |event: &Event| established(self.handle, event);
        self.context.channel.wait_event(until, wanted)?
    }

    /// Closes the connection (`rdma_disconnect`) and waits until it is closed. What is outstanding
    /// completes, with [`crate::CompletionStatus::Flushed`] if it was not done. A connection that
    /// has ended already, by a fault or by the peer, is closed.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; a refusal if there is no connection.
    pub fn disconnect(&mut self, timeout: Duration) -> Result<(), Error> {
        self.context
            .channel
            .call(&Request::Disconnect { qp: self.handle }, None)?;
        // Told before: nothing more comes.
        if self.ended.get().is_some() {
            return Ok(());
        }
        self.wait_disconnected(timeout).map(|_| ())
    }

    /// Waits until the connection has ended, and tells why: [`ErrorCode::Closed`] if the peer has
    /// closed it, or its application has ended; [`ErrorCode::TimedOut`] if the peer did not answer
    /// any more; [`ErrorCode::RequestFailed`] if a request of this side failed, as its completion
    /// says; [`ErrorCode::Access`] or [`ErrorCode::InvalidRequest`] if one of the peer was wrong.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: it has not ended within `timeout`. [`Error::DaemonGone`].
    pub fn wait_disconnected(&self, timeout: Duration) -> Result<ErrorCode, Error> {
        let until = deadline(timeout);
        let wanted = |event: &Event| disconnected(self.handle, event);
        let reason = self.context.channel.wait_event(until, wanted)?;
        let _ = self.ended.set(reason);
        Ok(reason)
    }

    /// Rings for the newest requests of a work queue, if any were posted. When the daemon is gone
    /// they are not posted, unless they were flushed meanwhile: each fails once.
    pub(crate) fn ring(&self, ledger: &Ledger, posted: usize) -> Result<(), Error> {
        if posted == 0 {
            return Ok(());
        }
        match self.context.ring(self.slot) {
            Err(error) if ledger.take_back(posted) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.forget_events();
        self.users
            .iter()
            .for_each(|users| users.remove(self.handle));
    }
}

/// Whether `event` ends the wait of queue pair `ours` for its connection, and how.
pub(crate) fn established(ours: u32, event: &Event) -> Option<Result<Connected, Error>> {
    match *event {
        Event::Established {
            qp,
            peer,
            mtu,
            paths,
            granularity,
            private,
        } if qp == ours => Some(Ok(Connected {
            peer,
            mtu,
            paths,
            granularity,
            private,
        })),
        Event::ConnectFailed {
            qp,
            reason,
            rej,
            private,
        } if qp == ours => Some(Err(Error::ConnectFailed {
            reason,
            rej,
            private,
        })),
        Event::Disconnected { qp, reason } if qp == ours => Some(Err(Error::Disconnected(reason))),
        _ => None,
    }
}

/// Whether `event` says that the connection of queue pair `ours` has ended, and why.
pub(crate) fn disconnected(ours: u32, event: &Event) -> Option<ErrorCode> {
    match *event {
        Event::Disconnected { qp, reason } if qp == ours => Some(reason),
        _ => None,
    }
}

fn buffers(local: Slice) -> SgeList {
    if local.is_empty() {
        return SgeList::default();
    }
    SgeList::new(&[local.sge()]).expect("one is always allowed")
}

/// The descriptors of receives.
pub(crate) fn receive_works(
    requests: &[ReceiveRequest],
) -> impl Iterator<Item = [u8; WORK_LEN]> + '_ {
    requests.iter().map(|request| {
        ReceiveWork {
            wr_id: request.wr_id,
            buffers: buffers(request.local),
        }
        .to_bytes()
    })
}

pub(crate) fn push_all(
    ring: &mut Producer<WORK_LEN>,
    works: impl Iterator<Item = [u8; WORK_LEN]>,
) -> Result<usize, Error> {
    let mut posted = 0;
    for work in works {
        if !ring.push(&work)? {
            break;
        }
        posted += 1;
    }
    ring.publish();
    Ok(posted)
}
