//! \[10\] Buffers that were posted for messages and not used.

use crate::verbs::{ReceiveRequest, Sge, total};
use std::collections::VecDeque;

/// Receives in order, with their pieces: these are a queue of their own, from which a receive takes
/// what it put in. It grows to what the application uses at a time.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<(ReceiveRequest, usize)>,
    /// Of receives that have other than one.
    pieces: VecDeque<Sge>,
}

impl ReceiveQueue {
    /// An empty queue with room for `receives`.
    pub(crate) fn new(receives: u32) -> Self {
        Self {
            requests: VecDeque::with_capacity(receives as usize),
            pieces: VecDeque::new(),
        }
    }

    /// Receives in the queue.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Appends a receive of these pieces.
    pub(crate) fn push(&mut self, wr_id: u64, pieces: &[Sge]) {
        if let [Sge { addr, len, lkey }] = *pieces {
            let request = ReceiveRequest {
                wr_id,
                lkey,
                addr,
                len,
            };
            return self.requests.push_back((request, 0));
        }
        let request = ReceiveRequest {
            wr_id,
            lkey: 0,
            addr: 0,
            len: total(pieces),
        };
        self.requests.push_back((request, pieces.len()));
        self.pieces.extend(pieces);
    }

    /// Takes the oldest receive out.
    pub(crate) fn pop(&mut self) -> Option<ReceiveRequest> {
        let (request, pieces) = self.requests.pop_front()?;
        self.pieces.drain(..pieces);
        Some(request)
    }

    /// The oldest receive, with its pieces if it names other than one: none otherwise.
    pub(super) fn oldest(
        &self,
    ) -> Option<(&ReceiveRequest, impl ExactSizeIterator<Item = &Sge> + '_)> {
        let (request, pieces) = self.requests.front()?;
        Some((request, self.pieces.range(..*pieces)))
    }

    /// Takes the oldest receive out, with its pieces if it names other than one: none otherwise.
    pub(super) fn take(
        &mut self,
    ) -> Option<(ReceiveRequest, impl ExactSizeIterator<Item = Sge> + '_)> {
        let (request, pieces) = self.requests.pop_front()?;
        Some((request, self.pieces.drain(..pieces)))
    }

    /// Forgets all receives, and returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        self.pieces.clear();
        self.requests.drain(..).count()
    }
}
