//! What control keeps of ports that are being opened and closed.

use super::opener::Opener;
use crate::worker::events::{Detached, QueueCommand};
use common::sys::Waker;
use common::xdp::AfXdpQueue;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// A port that workers are letting go of.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Workers that have not answered yet.
    pub(super) waiting: HashSet<usize>,
    /// What the others gave back.
    pub(super) queues: Vec<AfXdpQueue>,
}

/// What opens and closes ports while the switch runs.
#[derive(Debug)]
pub struct Porter {
    pub(super) opener: Opener,
    pub(super) detached: Receiver<Detached<AfXdpQueue>>,
    pub(super) leaving: BTreeMap<usize, Leaving>,
    /// By worker: commands that it had no room for.
    outboxes: Vec<Outbox<QueueCommand<AfXdpQueue>>>,
}

/// Commands for a worker, in their order. None is lost while the worker takes none.
#[derive(Debug)]
struct Outbox<T>(VecDeque<T>);

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Outbox<T> {
    /// Hands over what there is room for. Returns whether something was.
    fn flush(&mut self, to: &Sender<T>) -> bool {
        let mut sent = false;
        while let Some(command) = self.0.pop_front() {
            match to.try_send(command) {
                Ok(()) => sent = true,
                // Of one that has ended nobody needs anything.
                Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(command)) => {
                    self.0.push_front(command);
                    break;
                }
            }
        }
        sent
    }
}

impl Porter {
    /// `opener` opens and closes; workers give queues back by `detached`.
    pub fn new(opener: Opener, detached: Receiver<Detached<AfXdpQueue>>) -> Self {
        Self {
            opener,
            detached,
            leaving: BTreeMap::new(),
            outboxes: Vec::new(),
        }
    }

    /// Gives a worker a command as soon as it has room for it.
    pub(super) fn tell(&mut self, worker: usize, command: QueueCommand<AfXdpQueue>) {
        let known = self.outboxes.len().max(worker + 1);
        self.outboxes.resize_with(known, Outbox::default);
        self.outboxes[worker].0.push_back(command);
    }

    /// Hands over the commands that the workers have room for.
    pub(super) fn flush<'a>(
        &mut self,
        workers: impl Iterator<Item = (&'a Sender<QueueCommand<AfXdpQueue>>, &'a Waker)>,
    ) {
        for (outbox, (queues, waker)) in self.outboxes.iter_mut().zip(workers) {
            if outbox.flush(queues) {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-1: what a worker has no room for reaches it later, in its order.
    #[test]
    fn no_command_is_lost() {
        let (to, from) = crossbeam_channel::bounded(2);
        let mut outbox = Outbox::default();
        outbox.0.extend(0..5);
        assert!(outbox.flush(&to) && !outbox.flush(&to));
        assert_eq!(from.try_iter().collect::<Vec<_>>(), [0, 1]);
        outbox.0.push_back(5);
        assert!(outbox.flush(&to));
        assert_eq!(from.try_iter().collect::<Vec<_>>(), [2, 3]);
        assert!(outbox.flush(&to));
        assert_eq!(from.try_iter().collect::<Vec<_>>(), [4, 5]);
        drop(from);
        outbox.0.push_back(6);
        assert!(!outbox.flush(&to) && outbox.0.is_empty());
    }
}
