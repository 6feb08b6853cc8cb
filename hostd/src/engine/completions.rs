//! Completion queues (HT-1): which there are, what has completed, and which have something new.

use crate::limits;
use crate::slab::Slab;
use crate::verbs::{Completion, CompletionQueueId, EngineError};
use std::collections::VecDeque;

/// Completions that a queue has memory for from the start. The worker takes them out each turn, so
/// more are there only when the application leaves a full ring unread: then the queue grows, up to
/// its capacity.
const RESERVED: usize = 1024;

/// All completion queues of an engine.
#[derive(Debug)]
pub(crate) struct CompletionQueues {
    queues: Slab<CompletionQueue>,
    /// Queues with something new.
    news: VecDeque<u32>,
    /// Queues where a request may find room that was refused before.
    relieved: Vec<u32>,
}

impl CompletionQueues {
    pub(super) fn new() -> Self {
        Self {
            queues: Slab::new(limits::COMPLETION_QUEUES, 32),
            news: VecDeque::new(),
            relieved: Vec::new(),
        }
    }

    /// Makes a queue.
    pub(super) fn create(&mut self) -> Result<CompletionQueueId, EngineError> {
        self.queues
            .insert(CompletionQueue::default())
            .map(CompletionQueueId)
            .map_err(|_| EngineError::TooMany)
    }

    /// Ends a queue that no queue pair uses.
    pub(super) fn destroy(&mut self, id: CompletionQueueId) -> Result<(), EngineError> {
        if self.queues.get(id.0).ok_or(EngineError::Unknown)?.users > 0 {
            return Err(EngineError::Busy);
        }
        self.queues.remove(id.0);
        Ok(())
    }

    /// Whether there is such a queue.
    pub(super) fn contains(&self, id: CompletionQueueId) -> bool {
        self.queues.get(id.0).is_some()
    }

    /// Makes room in a queue for one end of a queue pair, which holds `work_requests`.
    pub(super) fn attach(&mut self, id: CompletionQueueId, work_requests: u32) {
        if let Some(queue) = self.queues.get_mut(id.0) {
            queue.attach(work_requests as usize);
            queue.relieve(id.0, &mut self.relieved);
        }
    }

    /// Takes the room of one end of a queue pair back.
    pub(super) fn detach(&mut self, id: CompletionQueueId, work_requests: u32) {
        if let Some(queue) = self.queues.get_mut(id.0) {
            queue.detach(work_requests as usize);
        }
    }

    /// Completions to come that a queue has places for.
    pub(super) fn room(&self, id: CompletionQueueId) -> usize {
        let room = |queue: &CompletionQueue| queue.capacity.saturating_sub(queue.committed);
        self.queues.get(id.0).map_or(0, room)
    }

    /// Takes the place of one completion to come.
    pub(crate) fn commit(&mut self, id: CompletionQueueId) -> Result<(), EngineError> {
        let queue = self.queues.get_mut(id.0).ok_or(EngineError::Unknown)?;
        if queue.commit() {
            Ok(())
        } else {
            queue.wanted = true;
            Err(EngineError::CompletionQueueFull)
        }
    }

    /// Takes note of a request that completes here and found its own queue full: when one
    /// completes, there is room; see [`Self::next_relieved`].
    pub(super) fn note_refusal(
        &mut self,
        id: CompletionQueueId,
        checked: Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        if checked == Err(EngineError::QueueFull)
            && let Some(queue) = self.queues.get_mut(id.0)
        {
            queue.wanted = true;
        }
        checked
    }

    /// A queue of which requests were refused, and where one completed or was polled since.
    pub(super) fn next_relieved(&mut self) -> Option<CompletionQueueId> {
        self.relieved.pop().map(CompletionQueueId)
    }

    /// Gives the place of a request back that completed silently.
    pub(crate) fn release(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.queues.get_mut(id.0) {
            queue.release();
            queue.relieve(id.0, &mut self.relieved);
        }
    }

    /// Appends a completion.
    pub(crate) fn push(&mut self, id: CompletionQueueId, completion: Completion) {
        let Some(queue) = self.queues.get_mut(id.0) else {
            return;
        };
        queue.push(completion);
        queue.relieve(id.0, &mut self.relieved);
        if !queue.listed {
            queue.listed = true;
            self.news.push_back(id.0);
        }
    }

    /// The oldest completion of a queue.
    pub(super) fn poll(&mut self, id: CompletionQueueId) -> Option<Completion> {
        let queue = self.queues.get_mut(id.0)?;
        let completion = queue.poll()?;
        queue.relieve(id.0, &mut self.relieved);
        Some(completion)
    }

    /// A queue that got something since it was last named here.
    pub(super) fn next_ready(&mut self) -> Option<CompletionQueueId> {
        while let Some(number) = self.news.pop_front() {
            if let Some(queue) = self.queues.get_mut(number) {
                queue.listed = false;
                return Some(CompletionQueueId(number));
            }
        }
        None
    }
}

/// Completions of some queue pairs, in order. It never overflows: a place is taken when a request
/// is posted, and a request that would find none is refused.
#[derive(Debug, Default)]
struct CompletionQueue {
    ready: VecDeque<Completion>,
    /// Requests posted whose completion has not been polled.
    committed: usize,
    capacity: usize,
    /// In the list of queues with something new.
    listed: bool,
    /// Requests were refused for lack of room.
    wanted: bool,
    /// Queue ends of queue pairs that complete here.
    users: u32,
}

impl CompletionQueue {
    /// Makes room for the requests of one more queue.
    fn attach(&mut self, work_requests: usize) {
        self.capacity += work_requests;
        self.users += 1;
        let missing = self.capacity.min(RESERVED).saturating_sub(self.ready.len());
        self.ready.reserve(missing);
    }

    /// Gives the room of one queue back; what has completed remains to be polled.
    fn detach(&mut self, work_requests: usize) {
        debug_assert!(
            work_requests <= self.capacity && self.users > 0,
            "detached twice"
        );
        self.capacity -= work_requests;
        self.users -= 1;
    }

    /// There may be room for requests that were refused.
    fn relieve(&mut self, number: u32, relieved: &mut Vec<u32>) {
        if std::mem::take(&mut self.wanted) {
            relieved.push(number);
        }
    }

    /// Takes the place of one completion to come.
    fn commit(&mut self) -> bool {
        let free = self.committed < self.capacity;
        self.committed += usize::from(free);
        free
    }

    /// Gives a place back whose request completed silently.
    fn release(&mut self) {
        self.committed = self.committed.saturating_sub(1);
    }

    /// Appends the completion of a request that has its place.
    fn push(&mut self, completion: Completion) {
        debug_assert!(
            self.ready.len() < self.committed,
            "a completion without a place"
        );
        self.ready.push_back(completion);
    }

    /// The oldest completion.
    fn poll(&mut self) -> Option<Completion> {
        let completion = self.ready.pop_front()?;
        self.release();
        Some(completion)
    }
}
