//! The responder: the buffers that were posted for messages, and how far packets have come.

use crate::receive::Receiver;
use crate::receive::respond::Assembly;
use crate::verbs::ReceiveRequest;
use std::collections::VecDeque;

/// What the responder owns.
#[derive(Debug)]
pub(super) struct Responder {
    /// Buffers that were posted and not used.
    pub(super) receives: VecDeque<ReceiveRequest>,
    /// The message that is being received.
    pub(super) assembly: Assembly,
    /// From RTR on.
    pub(super) receiver: Option<Receiver>,
    /// A receive was posted for a packet that waits for one.
    pub(super) resume: bool,
}

impl Responder {
    /// A responder for `receives` buffers at a time, which takes no packets yet.
    pub(super) fn new(receives: u32) -> Self {
        Self {
            receives: VecDeque::with_capacity(receives as usize),
            assembly: Assembly::Idle,
            receiver: None,
            resume: false,
        }
    }
}
