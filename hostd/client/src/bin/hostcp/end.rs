//! One end of a copy: a queue pair, its memory, and messages beside the chunks.
//!
//! ```text
//!   memory:  slot 0 … slot SLOTS-1 │ messages received │ messages sent
//! ```

use crate::failure::Failure;
use crate::messages::{MESSAGE, Message};
use hostd_client::{
    Access, Completion, CompletionOpcode, CompletionQueue, Context, QueuePair, QueuePairOptions,
    ReceiveRequest, Region, SendRequest, Slice,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Chunks that may be on their way.
pub(crate) const SLOTS: u32 = 16;

/// Bytes of a chunk.
pub(crate) const CHUNK: u32 = 256 * 1024;

/// Messages that may come before the older ones were looked at: a credit for each slot, and the
/// others.
const RECEIVES: u32 = SLOTS + 4;

/// Messages that may be on their way to the other side.
const SENDS: u32 = SLOTS + 4;

/// What a peer can cause while this side waits to send: it has no more chunks and messages under
/// way until it takes this side's.
const EARLIER: usize = (SLOTS + RECEIVES) as usize;

/// How long nothing at all may happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Marks work requests that carry messages.
const MESSAGE_WORK: u64 = 1 << 32;

/// What happened.
#[derive(Debug)]
pub(crate) enum Happened {
    /// A message came.
    Message(Message),
    /// The peer wrote a chunk of this many bytes.
    Chunk(u32),
    /// A chunk of this side was acknowledged.
    Acknowledged,
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair,
    /// Shared with the thread that reads or writes the file.
    pub(crate) memory: Arc<Region>,
    queue: CompletionQueue,
    /// What happened while something else was waited for.
    earlier: VecDeque<Happened>,
    /// The place of the next message to send.
    next_send: u32,
    sends_outstanding: u32,
}

impl End {
    /// Makes an end; `access` is what the peer may do with its memory.
    pub(crate) fn new(context: &Context, access: Access) -> Result<Self, Failure> {
        let entries = 2 * (SLOTS + RECEIVES + SENDS);
        let queue = context.create_completion_queue(entries)?;
        let options = QueuePairOptions {
            send_entries: SLOTS + SENDS,
            receive_entries: SLOTS + RECEIVES,
        };
        let queue_pair = context.create_queue_pair(&queue, &queue, options)?;
        let memory = Arc::new(context.allocate(place(SLOTS + RECEIVES + SENDS), access)?);
        let mut end = Self {
            queue_pair,
            memory,
            queue,
            earlier: VecDeque::new(),
            next_send: 0,
            sends_outstanding: 0,
        };
        for index in 0..RECEIVES {
            end.post_message_receive(index)?;
        }
        Ok(end)
    }

    fn post_message_receive(&mut self, index: u32) -> Result<(), Failure> {
        let local = self.memory.slice(place(SLOTS + index), MESSAGE)?;
        let wr_id = MESSAGE_WORK | u64::from(index);
        Ok(self
            .queue_pair
            .post_receive(&ReceiveRequest { wr_id, local })?)
    }

    /// Sends a message beside the chunks.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Failure> {
        while self.sends_outstanding >= SENDS {
            self.put_off()?;
        }
        let offset = place(SLOTS + RECEIVES + self.next_send);
        let bytes = message.encode();
        self.memory.write(offset, bytes.as_slice())?;
        let local = self.memory.slice(offset, bytes.as_slice().len())?;
        self.queue_pair
            .post_send(&SendRequest::send(MESSAGE_WORK, local))?;
        self.sends_outstanding += 1;
        self.next_send = (self.next_send + 1) % SENDS;
        Ok(())
    }

    /// Waits for what happens next.
    pub(crate) fn next(&mut self) -> Result<Happened, Failure> {
        if let Some(happened) = self.earlier.pop_front() {
            return Ok(happened);
        }
        loop {
            if let Some(happened) = self.happens_or_sent()? {
                return Ok(happened);
            }
        }
    }

    /// Waits for a message.
    pub(crate) fn message(&mut self) -> Result<Message, Failure> {
        match self.next()? {
            Happened::Message(message) => Ok(message),
            other => Err(Failure::Protocol(format!("{other:?} instead of a message"))),
        }
    }

    /// Waits until the peer has every message of this side.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        while self.sends_outstanding > 0 {
            self.put_off()?;
        }
        Ok(())
    }

    /// Waits for a completion; what it says is looked at later. A peer that goes on and takes no
    /// messages breaks the protocol.
    fn put_off(&mut self) -> Result<(), Failure> {
        let happened = self.happens_or_sent()?;
        if happened.is_some() && self.earlier.len() >= EARLIER {
            let text = "it sends on and takes no messages";
            return Err(Failure::Protocol(text.to_owned()));
        }
        self.earlier.extend(happened);
        Ok(())
    }

    /// Waits for a completion; `None` if it was that of a message of this side.
    fn happens_or_sent(&mut self) -> Result<Option<Happened>, Failure> {
        let completion = self.queue.next(PATIENCE)?;
        if self.queue.daemon_is_gone() {
            return Err(hostd_client::Error::DaemonGone.into());
        }
        if !completion.is_success() {
            return Err(Failure::Work(completion.status));
        }
        self.understand(&completion)
    }

    fn understand(&mut self, completion: &Completion) -> Result<Option<Happened>, Failure> {
        match completion.opcode {
            CompletionOpcode::Write => Ok(Some(Happened::Acknowledged)),
            CompletionOpcode::Send => {
                self.sends_outstanding -= 1;
                Ok(None)
            }
            CompletionOpcode::Receive if completion.wr_id & MESSAGE_WORK != 0 => {
                let index = u32::try_from(completion.wr_id & !MESSAGE_WORK).unwrap_or(0);
                let len = usize::try_from(completion.byte_len)
                    .unwrap_or(0)
                    .min(MESSAGE);
                let mut bytes = [0; MESSAGE];
                self.memory.read(place(SLOTS + index), &mut bytes[..len])?;
                self.post_message_receive(index)?;
                Ok(Some(Happened::Message(Message::decode(&bytes[..len])?)))
            }
            CompletionOpcode::Receive => Err(Failure::Protocol(
                "a message where a chunk belongs".to_owned(),
            )),
            CompletionOpcode::ReceiveWriteImmediate => {
                // A chunk takes whatever receive is first in line, also one for messages.
                let wr_id = completion.wr_id;
                if wr_id & MESSAGE_WORK == 0 {
                    let local = Slice::EMPTY;
                    self.queue_pair
                        .post_receive(&ReceiveRequest { wr_id, local })?;
                } else {
                    let index = u32::try_from(wr_id & !MESSAGE_WORK).unwrap_or(0);
                    self.post_message_receive(index)?;
                }
                Ok(Some(Happened::Chunk(completion.byte_len)))
            }
            CompletionOpcode::Read
            | CompletionOpcode::CompareSwap
            | CompletionOpcode::FetchAdd
            | CompletionOpcode::BindWindow
            | CompletionOpcode::Collective
            | CompletionOpcode::LocalInvalidate => Err(Failure::Protocol(
                "the end of what was not asked for".to_owned(),
            )),
        }
    }
}

/// Where the slot, or the message behind the slots, of this number begins.
pub(crate) fn place(number: u32) -> usize {
    let (slots, messages) = (number.min(SLOTS), number.saturating_sub(SLOTS));
    let bytes = u64::from(slots) * u64::from(CHUNK) + u64::from(messages) * 1024;
    usize::try_from(bytes).expect("a few MiB")
}

const _: () = assert!(MESSAGE == 1024);
