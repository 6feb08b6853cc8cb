//! The transport engine of one worker: queue pairs, regions, completions and connections.
//!
//! It does no I/O and reads no clock: packets, time and randomness are arguments. The caller polls
//! it for frames, completions, events and its next deadline.
//!
//! ```text
//!   post_send ──▶ ┌────────────────────────────────────────┐ ──▶ transmit ──▶ frames
//!   post_receive  │ queue pairs ── regions ── completions  │
//!   connect …     │ connections ── routes                  │ ◀── receive  ◀── frames
//!                 └────────────────────────────────────────┘
//!   poll_completion ◀──       next_event ◀──       next_deadline ◀──
//! ```
//!
//! A worker's turn: `receive` every frame that arrived, apply the applications' requests,
//! `transmit`, then collect events and completions. With nothing left to do the worker sleeps until
//! `next_deadline`. Frames that the engine holds (reorder buffers) return to the pool that is
//! passed to `receive`, `transmit` or `reclaim`.
//!
//! ```text
//!   dispatch     packets in, each to its queue pair          transmit     packets out, in turns
//!   completions  completion queues                           schedule     who is due, and when
//!   ports        pacers, pauses and routes of each port      management   calls that connect
//!   by_hand      queue pairs readied without connections     addresses    own ones of connections
//!   establish    REQ and REP, and queue pairs readied        mads         connection messages
//!   shared       shared receive queues                       modify       attributes
//!   windows      memory windows                        turns        who waits for which ports
//!   ways         routes, and links that come and go          collective   memberships of jobs
//!   members      which memberships there are                 followers    queue pairs of a peer
//! ```

mod addresses;
mod by_hand;
mod collective;
mod completions;
mod dispatch;
mod establish;
mod followers;
mod mads;
mod management;
mod members;
mod modify;
mod ports;
mod schedule;
mod shared;
mod transmit;
mod turns;
mod ways;
mod windows;
pub use by_hand::NotReadied;
pub use modify::NotSteered;

use crate::cm::table::ConnectionTable;
use crate::connection::{Completed, Delivery, Effects, QueuePair, SharedSource};
use crate::limits;
use crate::memory::{RegionMemory, RegionTable};
use crate::receive::FrameBudget;
use crate::receive::shared::SharedReceives;
use crate::slab::Slab;
use crate::stats::{EngineStatistics, PathStatistics, QueuePairStatistics};
use crate::timers::Timers;
use crate::verbs::{
    Access, Completion, CompletionQueueId, DomainId, EngineConfig, EngineError, Event, Local,
    QueuePairRequest, ReceiveRequest, RegionKeys, SendRequest, Sge, Transition,
};
use chacha20::ChaCha20Rng;
use common::time::Time;
use common::xdp::frame::{Frame, FramePool};
use completions::CompletionQueues;
use followers::Followers;
use members::Members;
use ports::Ports;
use rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use turns::Turns;

/// The transport engine of one worker; `M` is how it reaches applications' memory.
#[derive(Debug)]
pub struct Engine<M> {
    config: EngineConfig,
    queue_pairs: Slab<Box<QueuePair>>,
    domains: Slab<u32>,
    regions: RegionTable<M>,
    completions: CompletionQueues,
    shared: Slab<SharedReceives>,
    /// Shared queues where a receive may find room that was refused before.
    relieved_shared: Vec<u32>,
    connections: ConnectionTable,
    /// Memberships of jobs that switches compute for.
    members: Members,
    ports: Ports,
    followers: Followers,
    timers: Timers,
    /// Queue pairs with something to acknowledge.
    to_acknowledge: Turns,
    /// Queue pairs with an answer to a question of the peer, which may measure the round trip.
    to_reply: Turns,
    /// Queue pairs with something to send, in the order of their turns.
    to_send: Turns,
    /// Effects of the queue pair that was called last.
    effects: Effects,
    /// Frames that reorder buffers may hold together.
    budget: FrameBudget,
    /// When gaps are looked at again should frames run short.
    gaps_from: Time,
    /// Queue pairs whose peers are in the middle of a message: they share this host's link.
    crowd: u32,
    /// Frames on their way back to a pool.
    spent: Vec<Frame>,
    /// The pool was empty: transmission pauses until then.
    out_of_frames_until: Time,
    /// See [`Self::stop_clocks`].
    clocks_stopped: bool,
    events: VecDeque<Event>,
    statistics: EngineStatistics,
    /// Draws what strangers must not guess: numbers of queue pairs and connections, transactions,
    /// first PSNs. Nothing that is sent tells what it draws next, or the keys of regions.
    random: ChaCha20Rng,
}

impl<M: RegionMemory> Engine<M> {
    /// An engine without any object.
    pub fn new(config: EngineConfig) -> Self {
        let mut random = ChaCha20Rng::from_seed(config.seed);
        let mut secret = [0; 32];
        random.fill_bytes(&mut secret);
        Self {
            queue_pairs: Slab::new(limits::QUEUE_PAIRS, limits::QUEUE_PAIR_NUMBER_BITS),
            domains: Slab::new(limits::DOMAINS, 32),
            regions: RegionTable::new(secret),
            completions: CompletionQueues::new(),
            shared: Slab::new(limits::SHARED_QUEUES, 32),
            relieved_shared: Vec::new(),
            connections: ConnectionTable::new(),
            members: Members::new(),
            ports: Ports::new(&config),
            followers: Followers::new(),
            timers: Timers::default(),
            to_acknowledge: Turns::new(),
            to_reply: Turns::new(),
            to_send: Turns::new(),
            effects: Effects::default(),
            budget: FrameBudget::new(config.reorder_frames),
            gaps_from: Time::ZERO,
            crowd: 0,
            spent: Vec::new(),
            out_of_frames_until: Time::ZERO,
            clocks_stopped: false,
            events: VecDeque::new(),
            statistics: EngineStatistics::default(),
            random,
            config,
        }
    }

    /// Queue pair `qpn`, and what it needs to deliver packets; `None` if there is no such queue
    /// pair.
    fn delivery<'a>(
        &'a mut self,
        qpn: u32,
        pool: &'a mut FramePool,
        now: Time,
    ) -> Option<(&'a mut QueuePair, Delivery<'a, M>)> {
        let queue_pair = self.queue_pairs.get_mut(qpn)?;
        let room = self.completions.room(queue_pair.request.receive_cq);
        let shared = queue_pair.request.shared;
        let shared = shared.and_then(|id| self.shared.get_mut(id.number()));
        let delivery = Delivery {
            regions: &mut self.regions,
            budget: &mut self.budget,
            pool,
            effects: &mut self.effects,
            shared: shared.map(|receives| SharedSource { receives, room }),
            now,
        };
        Some((queue_pair, delivery))
    }

    /// Queues an event for the worker; counts it as lost when too many wait.
    fn notify(&mut self, event: Event) {
        if self.events.len() < limits::EVENTS {
            self.events.push_back(event);
        } else {
            self.statistics.lost_events += 1;
        }
    }

    /// Tells the time to calls that take none: what is posted from now on is posted at `now`.
    pub fn begin_turn(&mut self, now: Time) {
        self.effects.turn = now;
    }

    /// Whether the clocks of queue pairs stand still, because packets that came before their time
    /// was over are still to be received.
    pub fn stop_clocks(&mut self, stopped: bool) {
        self.clocks_stopped = stopped;
    }

    /// Carries out the effects of the queue pair that was called last.
    #[inline]
    fn carry_out_effects(&mut self) {
        let Effects {
            completed,
            failed,
            limit_reached,
            relieved,
            last_taken,
            dropped,
            released,
            owner,
            delivered,
            duplicates,
            round_trip,
            send_latencies,
            turn: _,
        } = &mut self.effects;
        for completed in completed.drain(..) {
            match completed {
                Completed::With(queue, completion) => self.completions.push(queue, completion),
                Completed::Silently(queue) => self.completions.release(queue),
                Completed::Taken(queue) => {
                    let room = self.completions.commit(queue);
                    debug_assert!(room.is_ok(), "looked at before");
                }
            }
        }
        let statistics = &mut self.statistics;
        statistics.delivered += u64::from(std::mem::take(delivered));
        statistics.duplicates += u64::from(std::mem::take(duplicates));
        if let Some(round_trip) = round_trip.take() {
            statistics.round_trips.observe(round_trip);
        }
        for latency in send_latencies.drain(..) {
            statistics.send_latencies.observe(latency);
        }
        for reason in dropped.drain(..) {
            statistics.drops.add(reason);
        }
        if !released.is_empty() {
            let frames = u32::try_from(released.len()).expect("bounded by the reorder buffers");
            self.budget.give(*owner, frames);
            self.spent.append(released);
        }
        self.relieved_shared.extend(relieved.take().map(|id| id.0));
        let (failed, last_taken) = (failed.take(), last_taken.take());
        if let Some(queue) = limit_reached.take() {
            self.notify(Event::SharedLimitReached { queue });
        }
        if let Some((qpn, status, refused)) = failed {
            let event = Event::QueuePairFailed {
                qpn,
                status,
                refused,
            };
            self.notify(event);
        }
        if let Some(qpn) = last_taken {
            self.notify(Event::LastReceiveTaken { qpn });
        }
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`EngineError::TooMany`]: the table of domains is full.
    pub fn create_domain(&mut self) -> Result<DomainId, EngineError> {
        let number = self.domains.insert(0).map_err(|_| EngineError::TooMany)?;
        Ok(DomainId(number))
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such domain. [`EngineError::Busy`]: it still has
    /// regions or queue pairs.
    pub fn destroy_domain(&mut self, domain: DomainId) -> Result<(), EngineError> {
        let users = *self.domains.get(domain.0).ok_or(EngineError::Unknown)?;
        if users > 0 || self.regions.any_in(domain.0) {
            return Err(EngineError::Busy);
        }
        self.domains.remove(domain.0);
        Ok(())
    }

    /// Registers memory (`ibv_reg_mr_iova`): work requests address it from `base` on. Both keys are
    /// random.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such domain. [`EngineError::Argument`]: the addresses
    /// overflow, or peers may write what the owner may not. [`EngineError::TooMany`]: the table of
    /// regions is full.
    pub fn register(
        &mut self,
        domain: DomainId,
        memory: M,
        base: u64,
        access: Access,
    ) -> Result<RegionKeys, EngineError> {
        self.domains.get(domain.0).ok_or(EngineError::Unknown)?;
        base.checked_add(memory.len())
            .ok_or(EngineError::Argument)?;
        // REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE: ibv_reg_mr(3).
        let changes = [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
        let changed_by_peers = changes.iter().any(|right| access.allows(*right));
        if changed_by_peers && !access.allows(Access::LOCAL_WRITE) {
            return Err(EngineError::Argument);
        }
        self.regions
            .register(domain.0, memory, base, access)
            .ok_or(EngineError::TooMany)
    }

    /// Ends a region and returns its memory. Requests that still use it fail.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: no region has this local key. [`EngineError::Busy`]: windows are
    /// bound to it.
    pub fn deregister(&mut self, lkey: u32) -> Result<M, EngineError> {
        self.regions.deregister(lkey)
    }

    /// Makes a completion queue. It grows with the queue pairs that use it.
    ///
    /// # Errors
    /// [`EngineError::TooMany`]: the table of completion queues is full.
    pub fn create_completion_queue(&mut self) -> Result<CompletionQueueId, EngineError> {
        self.completions.create()
    }

    /// Ends a completion queue.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue. [`EngineError::Busy`]: queue pairs use it.
    pub fn destroy_completion_queue(&mut self, id: CompletionQueueId) -> Result<(), EngineError> {
        self.completions.destroy(id)
    }

    /// Makes a queue pair, in RESET, and returns its number.
    ///
    /// # Errors
    /// [`EngineError::Argument`]: a work queue of that length is not possible.
    /// [`EngineError::Unknown`]: there is no such domain, completion queue or shared receive queue
    /// in the domain.
    /// [`EngineError::TooMany`]: the table of queue pairs is full.
    pub fn create_queue_pair(&mut self, request: QueuePairRequest) -> Result<u32, EngineError> {
        let fits = |requests: u32| (1..=limits::WORK_REQUESTS).contains(&requests);
        if !fits(request.max_send_wr) || !fits(request.max_recv_wr) {
            return Err(EngineError::Argument);
        }
        let completions = &self.completions;
        if !completions.contains(request.send_cq) || !completions.contains(request.receive_cq) {
            return Err(EngineError::Unknown);
        }
        if let Some(shared) = request.shared {
            self.check_shared(shared, request.domain)?;
        }
        let users = self
            .domains
            .get_mut(request.domain.0)
            .ok_or(EngineError::Unknown)?;
        let partition = self.config.partitions.keys()[0];
        let queue_pair = Box::new(QueuePair::new(request, partition));
        let number = self
            .queue_pairs
            .insert_drawn(queue_pair, self.random.next_u64())
            .map_err(|_| EngineError::TooMany)?;
        *users += 1;
        self.attach_shared(&request);
        let completions = &mut self.completions;
        for (queue, requests) in queue_ends(&request) {
            completions.attach(queue, requests);
        }
        self.queue_pairs
            .get_mut(number)
            .expect("inserted above")
            .number = number;
        Ok(number)
    }

    /// Ends a queue pair. Outstanding requests end without a completion. If it is connected, the
    /// connection ends and the peer is told.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue pair.
    pub fn destroy_queue_pair(&mut self, qpn: u32) -> Result<(), EngineError> {
        let mut queue_pair = self.queue_pairs.remove(qpn).ok_or(EngineError::Unknown)?;
        self.crowd -= u32::from(queue_pair.in_crowd);
        self.followers.moved(qpn, queue_pair.destination(), None);
        queue_pair.forget(&mut self.effects);
        queue_pair.leave_peer(&mut self.effects);
        queue_pair.report_to(&mut self.statistics);
        self.carry_out_effects();
        let request = queue_pair.request;
        for (queue, requests) in queue_ends(&request) {
            self.completions.detach(queue, requests);
        }
        if let Some(users) = self.domains.get_mut(request.domain.0) {
            *users -= 1;
        }
        self.detach_shared(&request, qpn);
        if let Some(connection) = queue_pair.connection {
            self.abandon_connection(connection);
        }
        Ok(())
    }

    /// Changes the state of a queue pair (`ibv_modify_qp`). From INIT on the connection manager
    /// does this itself.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue pair. [`EngineError::State`]: the present
    /// state has no such transition. [`EngineError::Argument`]: an attribute is out of range. Then
    /// nothing has changed.
    pub fn modify_queue_pair(
        &mut self,
        qpn: u32,
        transition: &Transition,
    ) -> Result<(), EngineError> {
        self.transit(qpn, transition)?;
        if let Transition::ReadyToReceive(attributes) = transition {
            let destination = attributes.destination;
            self.lead(qpn, destination);
            if self.ports.route(destination, None).is_none() {
                self.notify(Event::NeedRoute { destination });
            }
        }
        self.list(qpn);
        Ok(())
    }

    /// Changes the state of a queue pair; an error changes nothing.
    fn transit(&mut self, qpn: u32, transition: &Transition) -> Result<(), EngineError> {
        let queue_pair = self.queue_pairs.get_mut(qpn).ok_or(EngineError::Unknown)?;
        let draw = || self.random.next_u64();
        let before = queue_pair.destination();
        queue_pair.transit(transition, &self.config, draw, &mut self.effects)?;
        self.followers.moved(qpn, before, queue_pair.destination());
        self.carry_out_effects();
        Ok(())
    }

    /// Appends a request to a send queue. Errors that show only when it is carried out (keys,
    /// ranges, messages that are too long) are reported by its completion.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue pair. [`EngineError::State`]: it is not in
    /// RTS, or its connection is about to end. [`EngineError::Argument`]: the operation has no such
    /// length.
    /// [`EngineError::QueueFull`] and [`EngineError::CompletionQueueFull`]: there is no room.
    pub fn post_send(&mut self, qpn: u32, request: SendRequest) -> Result<(), EngineError> {
        self.post_send_of(qpn, request, Local::Named)
    }

    /// The same with bytes that the request itself does not name; its length is theirs.
    ///
    /// # Errors
    /// As [`Self::post_send`]. [`EngineError::Argument`]: also if they are too many, or not
    /// possible with that opcode.
    pub fn post_send_of(
        &mut self,
        qpn: u32,
        mut request: SendRequest,
        local: Local<'_>,
    ) -> Result<(), EngineError> {
        request.len = local.len(request.len);
        let queue_pair = self.queue_pairs.get_mut(qpn).ok_or(EngineError::Unknown)?;
        let checked = queue_pair.check_send(&request, local);
        self.completions
            .note_refusal(queue_pair.request.send_cq, checked)?;
        self.completions.commit(queue_pair.request.send_cq)?;
        queue_pair.post_send(request, local, &mut self.effects);
        self.carry_out_effects();
        self.list(qpn);
        Ok(())
    }

    /// Appends a buffer to a receive queue.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue pair. [`EngineError::State`]: it is in
    /// RESET. [`EngineError::QueueFull`] and [`EngineError::CompletionQueueFull`]: there is no
    /// room.
    pub fn post_receive(&mut self, qpn: u32, request: ReceiveRequest) -> Result<(), EngineError> {
        let ReceiveRequest {
            addr, len, lkey, ..
        } = request;
        self.post_receive_into(qpn, request.wr_id, &[Sge { addr, len, lkey }])
    }

    /// Appends a buffer of several pieces, which are filled in order.
    ///
    /// # Errors
    /// As [`Self::post_receive`]. [`EngineError::Argument`]: there are more than
    /// [`limits::SGE`].
    pub fn post_receive_into(
        &mut self,
        qpn: u32,
        wr_id: u64,
        pieces: &[Sge],
    ) -> Result<(), EngineError> {
        let queue_pair = self.queue_pairs.get_mut(qpn).ok_or(EngineError::Unknown)?;
        let checked = queue_pair.check_receive(pieces);
        self.completions
            .note_refusal(queue_pair.request.receive_cq, checked)?;
        self.completions.commit(queue_pair.request.receive_cq)?;
        queue_pair.post_receive(wr_id, pieces, &mut self.effects);
        self.carry_out_effects();
        self.list(qpn);
        Ok(())
    }

    /// The oldest completion of a queue.
    pub fn poll_completion(&mut self, id: CompletionQueueId) -> Option<Completion> {
        self.completions.poll(id)
    }

    /// A completion queue that received completions since this last returned it.
    pub fn next_ready_completion_queue(&mut self) -> Option<CompletionQueueId> {
        self.completions.next_ready()
    }

    /// A completion queue where requests were refused for lack of room, and where requests
    /// completed or were polled since.
    pub fn next_relieved_completion_queue(&mut self) -> Option<CompletionQueueId> {
        self.completions.next_relieved()
    }

    /// Counters of the engine.
    pub fn statistics(&self) -> &EngineStatistics {
        &self.statistics
    }

    /// The numbers of all queue pairs.
    pub fn queue_pairs(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue_pairs.numbers()
    }

    /// State and counters of a queue pair; `None` if there is no such queue pair.
    pub fn queue_pair_statistics(&self, qpn: u32) -> Option<QueuePairStatistics> {
        Some(self.queue_pairs.get(qpn)?.statistics())
    }

    /// Statistics of the sub-paths of a queue pair; empty if there is no such queue pair.
    pub fn path_statistics(&self, qpn: u32) -> Vec<PathStatistics> {
        self.queue_pairs
            .get(qpn)
            .map_or_else(Vec::new, |queue_pair| queue_pair.path_statistics())
    }
}

/// The two work queues of a queue pair: the completion queue and the capacity of each.
fn queue_ends(request: &QueuePairRequest) -> [(CompletionQueueId, u32); 2] {
    [
        (request.send_cq, request.max_send_wr),
        (request.receive_cq, request.max_recv_wr),
    ]
}
