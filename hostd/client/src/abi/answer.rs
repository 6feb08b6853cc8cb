//! What the daemon says on the application socket: replies and events.

use super::attributes::{QueuePairAttributes, QueuePairState};
use super::codec::{DecodeError, Reader};
use super::paths::PathOutcome;
use super::port::{GidEntry, PortAttributes, PortEvent};
use super::record::{Record, header, open};
use super::types::{ErrorCode, Granularity, Private};
use super::{MAGIC, MESSAGE_MAX};
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of the text in an error reply.
const TEXT_MAX: usize = 256;

const _: () = assert!(TEXT_MAX + 32 <= MESSAGE_MAX);

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Hello`. Descriptors: doorbell page, doorbell eventfd.
    Hello {
        /// Major version of the daemon.
        major: u16,
        /// Minor version of the daemon.
        minor: u16,
        /// Features that both sides know.
        features: u64,
        /// Bytes of memory that the session may register.
        memory: u64,
        /// Queue pairs that the session may have.
        queue_pairs: u32,
        /// The longest message in bytes.
        message: u64,
    },
    /// To `RegisterRegion`.
    Region {
        /// Handle of the region.
        handle: u32,
        /// Key for local buffers.
        lkey: u32,
        /// Key for peers; as unpredictable as 32 bits can be.
        rkey: u32,
    },
    /// To `CreateCompletionQueue`. Descriptors: ring, read end of the wake-up pipe.
    CompletionQueue {
        /// Handle of the queue.
        handle: u32,
        /// Entries after rounding.
        entries: u32,
    },
    /// To `CreateQueuePair`. Descriptors: send ring, receive ring.
    QueuePair {
        /// Handle of the queue pair.
        handle: u32,
        /// Its number on the wire.
        qpn: u32,
        /// Its bit in the doorbell page.
        slot: u32,
        /// Entries of the send ring after rounding.
        send_entries: u32,
        /// Entries of the receive ring after rounding.
        receive_entries: u32,
    },
    /// To `CreateSharedQueue`. Descriptor: its ring.
    SharedQueue {
        /// Handle of the queue.
        handle: u32,
        /// Its bit in the doorbell page.
        slot: u32,
        /// Entries after rounding.
        entries: u32,
    },
    /// To `JoinJob`. Descriptor: its ring.
    Member {
        /// Handle of the membership.
        handle: u32,
        /// Its bit in the doorbell page.
        slot: u32,
        /// Entries after rounding.
        entries: u32,
    },
    /// To `QueryLeaf`: the address of the switch that members ask, if there is one (3.6).
    Leaf(Option<IpAddr>),
    /// To `QueryQueuePair`.
    QueuePairState {
        /// Its state.
        state: QueuePairState,
        /// What it was given, and what was changed since.
        attributes: QueuePairAttributes,
    },
    /// To `CreateWindow`.
    Window {
        /// Handle of the window.
        handle: u32,
        /// Its first key, which opens nothing: the low 8 bits of those after it are free.
        rkey: u32,
    },
    /// To [`PortRequest::Query`](super::port::PortRequest::Query).
    Port(PortAttributes),
    /// To [`PortRequest::Gid`](super::port::PortRequest::Gid).
    Gid(GidEntry),
    /// To [`PortRequest::Partition`](super::port::PortRequest::Partition).
    Partition {
        /// The key; its highest bit says "full member".
        key: u16,
    },
    /// To [`PathRequest::Change`](super::paths::PathRequest::Change).
    PathsAsked {
        /// The name of the change; zero: it is made, and the peer was not asked.
        change: u16,
    },
    /// To [`PathRequest::Outcome`](super::paths::PathRequest::Outcome).
    PathsOutcome(PathOutcome),
    /// To `Listen`.
    Listener {
        /// Handle of the listener.
        handle: u32,
        /// The port.
        port: u16,
    },
    /// The request was carried out, or its outcome will come as an event.
    Done,
    /// The request was refused and changed nothing.
    Error {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        text: String,
    },
}

/// What the daemon reports on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer wants to connect.
    ConnectRequest {
        /// Handle of the listener.
        listener: u32,
        /// Name of the request for `Accept` and `Reject`.
        request: u32,
        /// Address of the peer.
        peer: IpAddr,
        /// Data of the peer's application.
        private: Private,
    },
    /// A queue pair is connected.
    Established {
        /// Handle of the queue pair.
        qp: u32,
        /// Address of the peer.
        peer: IpAddr,
        /// Payload bytes of a packet.
        mtu: u16,
        /// Sub-paths in force; 1 for plain RoCEv2.
        paths: u16,
        /// Granularity of the scheduler.
        granularity: Granularity,
        /// Data of the peer's application.
        private: Private,
    },
    /// A connection did not come about.
    ConnectFailed {
        /// Handle of the queue pair.
        qp: u32,
        /// Why.
        reason: ErrorCode,
        /// Reason in the peer's REJ (RDMA CM), if it sent one.
        rej: u16,
        /// Data of the peer's application.
        private: Private,
    },
    /// Fewer receives are posted to a shared receive queue than its limit says.
    SharedLimitReached {
        /// Handle of the queue.
        queue: u32,
    },
    /// A queue pair in SQD has sent all that it had begun, and it is acknowledged.
    SendQueueDrained {
        /// Handle of the queue pair.
        qp: u32,
    },
    /// A queue pair in the error state takes no receive of its shared queue any more; those that
    /// it took have completed.
    LastReceiveTaken {
        /// Handle of the queue pair.
        qp: u32,
    },
    /// Something has happened to the port. For sessions that asked for it.
    Port {
        /// What.
        event: PortEvent,
    },
    /// A connection ended; what was outstanding has been flushed.
    Disconnected {
        /// Handle of the queue pair.
        qp: u32,
        /// Why: `Done` of both sides, or an error.
        reason: ErrorCode,
    },
}

impl Event {
    /// Handle of the queue pair that it is about.
    pub fn queue_pair(&self) -> Option<u32> {
        match *self {
            Self::Established { qp, .. }
            | Self::ConnectFailed { qp, .. }
            | Self::SendQueueDrained { qp }
            | Self::LastReceiveTaken { qp }
            | Self::Disconnected { qp, .. } => Some(qp),
            Self::ConnectRequest { .. } | Self::SharedLimitReached { .. } | Self::Port { .. } => {
                None
            }
        }
    }
}

/// A message of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDaemon {
    /// The answer to the request with this tag.
    Reply(u32, Reply),
    /// Something happened.
    Event(Event),
}

const REPLY_HELLO: u16 = 101;
const REPLY_REGION: u16 = 102;
const REPLY_CQ: u16 = 103;
const REPLY_QP: u16 = 104;
const REPLY_LISTENER: u16 = 105;
const REPLY_DONE: u16 = 106;
const REPLY_ERROR: u16 = 107;
const REPLY_SHARED: u16 = 124;
const REPLY_QP_STATE: u16 = 125;
const REPLY_WINDOW: u16 = 109;
const REPLY_PORT: u16 = 130;
const REPLY_GID: u16 = 131;
const REPLY_PARTITION: u16 = 132;
const REPLY_PATHS_ASKED: u16 = 133;
const REPLY_PATHS_OUTCOME: u16 = 134;
const REPLY_MEMBER: u16 = 135;
const REPLY_LEAF: u16 = 136;

const EVENT_CONNECT_REQUEST: u16 = 201;
const EVENT_ESTABLISHED: u16 = 202;
const EVENT_CONNECT_FAILED: u16 = 203;
const EVENT_DISCONNECTED: u16 = 204;
const EVENT_SHARED_LIMIT: u16 = 224;
const EVENT_LAST_RECEIVE: u16 = 225;
const EVENT_DRAINED: u16 = 226;
const EVENT_PORT: u16 = 227;

impl Reply {
    /// A refusal.
    pub fn error(code: ErrorCode, text: impl Into<String>) -> Self {
        Self::Error {
            code,
            text: text.into(),
        }
    }

    /// The record that answers the request with this tag.
    pub fn encode(&self, tag: u32) -> Record {
        match self {
            Self::Hello {
                major,
                minor,
                features,
                memory,
                queue_pairs,
                message,
            } => header(REPLY_HELLO, tag)
                .u32(MAGIC)
                .u16(*major)
                .u16(*minor)
                .u64(*features)
                .u64(*memory)
                .u32(*queue_pairs)
                .u64(*message),
            Self::Region { handle, lkey, rkey } => {
                header(REPLY_REGION, tag).u32(*handle).u32(*lkey).u32(*rkey)
            }
            Self::CompletionQueue { handle, entries } => {
                header(REPLY_CQ, tag).u32(*handle).u32(*entries)
            }
            Self::QueuePair {
                handle,
                qpn,
                slot,
                send_entries,
                receive_entries,
            } => header(REPLY_QP, tag)
                .u32(*handle)
                .u32(*qpn)
                .u32(*slot)
                .u32(*send_entries)
                .u32(*receive_entries),
            Self::SharedQueue {
                handle,
                slot,
                entries,
            } => encode_queue(REPLY_SHARED, tag, [*handle, *slot, *entries]),
            Self::Member {
                handle,
                slot,
                entries,
            } => encode_queue(REPLY_MEMBER, tag, [*handle, *slot, *entries]),
            Self::Leaf(leaf) => {
                header(REPLY_LEAF, tag).address(leaf.unwrap_or(Ipv6Addr::UNSPECIFIED.into()))
            }
            Self::QueuePairState { state, attributes } => {
                let state = u32::from(*state as u8);
                attributes.write(header(REPLY_QP_STATE, tag).u32(state))
            }
            Self::Window { handle, rkey } => header(REPLY_WINDOW, tag).u32(*handle).u32(*rkey),
            Self::Port(port) => port.write(header(REPLY_PORT, tag)),
            Self::Gid(entry) => entry.write(header(REPLY_GID, tag)),
            Self::Partition { key } => header(REPLY_PARTITION, tag).u16(*key).u16(0),
            Self::PathsAsked { change } => header(REPLY_PATHS_ASKED, tag).u16(*change).u16(0),
            Self::PathsOutcome(outcome) => {
                header(REPLY_PATHS_OUTCOME, tag).u32(u32::from(*outcome as u8))
            }
            Self::Listener { handle, port } => {
                header(REPLY_LISTENER, tag).u32(*handle).u16(*port).u16(0)
            }
            Self::Done => header(REPLY_DONE, tag),
            Self::Error { code, text } => {
                let mut end = text.len().min(TEXT_MAX);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let mut field = [0; TEXT_MAX];
                field[..end].copy_from_slice(&text.as_bytes()[..end]);
                let len = u16::try_from(end).expect("at most TEXT_MAX");
                header(REPLY_ERROR, tag)
                    .u32(*code as u32)
                    .u16(len)
                    .u16(0)
                    .bytes(&field)
            }
        }
    }
}

impl Event {
    /// The record.
    pub fn encode(&self) -> Record {
        match *self {
            Self::ConnectRequest {
                listener,
                request,
                peer,
                private,
            } => private.write(
                header(EVENT_CONNECT_REQUEST, 0)
                    .u32(listener)
                    .u32(request)
                    .address(peer),
            ),
            Self::Established {
                qp,
                peer,
                mtu,
                paths,
                granularity,
                private,
            } => private.write(
                header(EVENT_ESTABLISHED, 0)
                    .u32(qp)
                    .address(peer)
                    .u16(mtu)
                    .u16(paths)
                    .u8(granularity as u8),
            ),
            Self::ConnectFailed {
                qp,
                reason,
                rej,
                private,
            } => private.write(
                header(EVENT_CONNECT_FAILED, 0)
                    .u32(qp)
                    .u32(reason as u32)
                    .u16(rej),
            ),
            Self::SharedLimitReached { queue } => header(EVENT_SHARED_LIMIT, 0).u32(queue),
            Self::SendQueueDrained { qp } => header(EVENT_DRAINED, 0).u32(qp),
            Self::LastReceiveTaken { qp } => header(EVENT_LAST_RECEIVE, 0).u32(qp),
            Self::Port { event } => header(EVENT_PORT, 0).u32(u32::from(event as u8)),
            Self::Disconnected { qp, reason } => {
                header(EVENT_DISCONNECTED, 0).u32(qp).u32(reason as u32)
            }
        }
    }
}

impl FromDaemon {
    /// The message in a record of any bytes.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, tag, mut reader) = open(bytes)?;
        let message = match kind {
            200.. => Self::Event(decode_event(kind, &mut reader)?),
            _ => Self::Reply(tag, decode_reply(kind, &mut reader)?),
        };
        reader.end()?;
        Ok(message)
    }
}

fn decode_of_paths(kind: u16, r: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    if kind == REPLY_PATHS_ASKED {
        let change = r.u16()?;
        r.reserved::<2>()?;
        return Ok(Reply::PathsAsked { change });
    }
    let outcome = PathOutcome::from_byte(r.u8()?)?;
    r.reserved::<3>()?;
    Ok(Reply::PathsOutcome(outcome))
}

fn encode_queue(kind: u16, tag: u32, [handle, slot, entries]: [u32; 3]) -> Record {
    header(kind, tag).u32(handle).u32(slot).u32(entries)
}

fn decode_queue(kind: u16, r: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    let (handle, slot, entries) = (r.u32()?, r.u32()?, r.u32()?);
    Ok(if kind == REPLY_MEMBER {
        Reply::Member {
            handle,
            slot,
            entries,
        }
    } else {
        Reply::SharedQueue {
            handle,
            slot,
            entries,
        }
    })
}

fn decode_reply(kind: u16, r: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    Ok(match kind {
        REPLY_HELLO => {
            if r.u32()? != MAGIC {
                return Err(DecodeError::Field("magic"));
            }
            Reply::Hello {
                major: r.u16()?,
                minor: r.u16()?,
                features: r.u64()?,
                memory: r.u64()?,
                queue_pairs: r.u32()?,
                message: r.u64()?,
            }
        }
        REPLY_REGION => Reply::Region {
            handle: r.u32()?,
            lkey: r.u32()?,
            rkey: r.u32()?,
        },
        REPLY_CQ => Reply::CompletionQueue {
            handle: r.u32()?,
            entries: r.u32()?,
        },
        REPLY_QP => Reply::QueuePair {
            handle: r.u32()?,
            qpn: r.u32()?,
            slot: r.u32()?,
            send_entries: r.u32()?,
            receive_entries: r.u32()?,
        },
        REPLY_SHARED | REPLY_MEMBER => decode_queue(kind, r)?,
        REPLY_LEAF => Reply::Leaf(Some(r.address()?).filter(|it| !it.is_unspecified())),
        REPLY_QP_STATE => {
            let state = QueuePairState::from_byte(r.u8()?)?;
            r.reserved::<3>()?;
            Reply::QueuePairState {
                state,
                attributes: QueuePairAttributes::read(r)?,
            }
        }
        REPLY_WINDOW => Reply::Window {
            handle: r.u32()?,
            rkey: r.u32()?,
        },
        REPLY_PORT => Reply::Port(PortAttributes::read(r)?),
        REPLY_GID => Reply::Gid(GidEntry::read(r)?),
        REPLY_PARTITION => {
            let key = r.u16()?;
            r.reserved::<2>()?;
            Reply::Partition { key }
        }
        REPLY_PATHS_ASKED | REPLY_PATHS_OUTCOME => decode_of_paths(kind, r)?,
        REPLY_LISTENER => {
            let (handle, port) = (r.u32()?, r.u16()?);
            r.reserved::<2>()?;
            Reply::Listener { handle, port }
        }
        REPLY_DONE => Reply::Done,
        REPLY_ERROR => {
            let code = ErrorCode::from_number(r.u32()?)?;
            let len = usize::from(r.u16()?);
            r.reserved::<2>()?;
            let field = r.bytes::<TEXT_MAX>()?;
            let text = field.get(..len).ok_or(DecodeError::Field("text"))?;
            Reply::Error {
                code,
                text: String::from_utf8_lossy(text).into_owned(),
            }
        }
        _ => return Err(DecodeError::Kind(kind)),
    })
}

fn decode_event(kind: u16, r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    Ok(match kind {
        EVENT_CONNECT_REQUEST => Event::ConnectRequest {
            listener: r.u32()?,
            request: r.u32()?,
            peer: r.address()?,
            private: Private::read(r)?,
        },
        EVENT_ESTABLISHED => Event::Established {
            qp: r.u32()?,
            peer: r.address()?,
            mtu: r.u16()?,
            paths: r.u16()?,
            granularity: Granularity::from_byte(r.u8()?)?,
            private: Private::read(r)?,
        },
        EVENT_CONNECT_FAILED => Event::ConnectFailed {
            qp: r.u32()?,
            reason: ErrorCode::from_number(r.u32()?)?,
            rej: r.u16()?,
            private: Private::read(r)?,
        },
        EVENT_SHARED_LIMIT => Event::SharedLimitReached { queue: r.u32()? },
        EVENT_DRAINED => Event::SendQueueDrained { qp: r.u32()? },
        EVENT_LAST_RECEIVE => Event::LastReceiveTaken { qp: r.u32()? },
        EVENT_PORT => {
            let event = PortEvent::from_byte(r.u8()?)?;
            r.reserved::<3>()?;
            Event::Port { event }
        }
        EVENT_DISCONNECTED => Event::Disconnected {
            qp: r.u32()?,
            reason: ErrorCode::from_number(r.u32()?)?,
        },
        _ => return Err(DecodeError::Kind(kind)),
    })
}
