//! Requests, replies and events on the application socket.
//!
//! Every message is one SOCK_SEQPACKET record: kind (u16), two reserved bytes, tag (u32), then the
//! fixed-width body of the kind. A reply bears the tag of its request; events have tag zero.
//! [`Request::decode`] takes any bytes at all and never panics.

use super::codec::{DecodeError, Reader, Writer};
pub use super::types::{Access, ErrorCode, Granularity, ObjectKind, Private};
use super::{MAGIC, MESSAGE_MAX, VERSION_MAJOR, VERSION_MINOR};
use std::net::IpAddr;

/// Bytes of the text in an error reply.
const TEXT_MAX: usize = 256;

const _: () = assert!(TEXT_MAX + 32 <= MESSAGE_MAX);

/// A message being written.
pub type Record = Writer<MESSAGE_MAX>;

/// What an application asks of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// First message of a session.
    Hello {
        /// Major version of the application's library.
        major: u16,
        /// Minor version of the application's library.
        minor: u16,
        /// Features that it knows ([`super::feature`]).
        features: u64,
    },
    /// Register the memfd that comes along.
    RegisterRegion {
        /// Bytes, from the beginning of the memfd.
        length: u64,
        /// Address of the first byte in the region's own address space, which local buffers and
        /// remote peers use. Zero makes addresses offsets.
        iova: u64,
        /// What it allows.
        access: Access,
    },
    /// Create a completion queue.
    CreateCompletionQueue {
        /// Completions that it holds; rounded up to a power of two.
        entries: u32,
    },
    /// Create a queue pair.
    CreateQueuePair {
        /// Handle of the completion queue of the send queue.
        send_cq: u32,
        /// Handle of the completion queue of the receive queue.
        receive_cq: u32,
        /// Work requests that the send queue holds; rounded up to a power of two.
        send_entries: u32,
        /// Work requests that the receive queue holds; rounded up to a power of two.
        receive_entries: u32,
    },
    /// Wait for connections.
    Listen {
        /// A local address, or an unspecified one for all.
        address: IpAddr,
        /// Port in the RDMA CM's TCP port space; zero lets the daemon choose.
        port: u16,
        /// Connection requests that may wait for an answer.
        backlog: u16,
    },
    /// Connect a queue pair. The outcome is an event.
    Connect {
        /// The queue pair.
        qp: u32,
        /// Address of the peer.
        address: IpAddr,
        /// Port of the peer.
        port: u16,
        /// Data for the peer's application.
        private: Private,
    },
    /// Accept a connection request with a queue pair. The outcome is an event.
    Accept {
        /// The request, from [`Event::ConnectRequest`].
        request: u32,
        /// The queue pair.
        qp: u32,
        /// Data for the peer's application.
        private: Private,
    },
    /// Turn a connection request down.
    Reject {
        /// The request, from [`Event::ConnectRequest`].
        request: u32,
        /// Data for the peer's application.
        private: Private,
    },
    /// Close the connection of a queue pair. The outcome is an event.
    Disconnect {
        /// The queue pair.
        qp: u32,
    },
    /// Give an object back.
    Destroy {
        /// What it is.
        kind: ObjectKind,
        /// Which one.
        handle: u32,
    },
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Hello`. Descriptors: bell page, doorbell eventfd.
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
        /// Its bit in the bell page.
        slot: u32,
        /// Entries of the send ring after rounding.
        send_entries: u32,
        /// Entries of the receive ring after rounding.
        receive_entries: u32,
    },
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
    /// A connection ended; what was outstanding has been flushed.
    Disconnected {
        /// Handle of the queue pair.
        qp: u32,
        /// Why: `Done` of both sides, or an error.
        reason: ErrorCode,
    },
}

/// A message of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDaemon {
    /// The answer to the request with this tag.
    Reply(u32, Reply),
    /// Something happened.
    Event(Event),
}

const HELLO: u16 = 1;
const REGISTER: u16 = 2;
const CREATE_CQ: u16 = 3;
const CREATE_QP: u16 = 4;
const LISTEN: u16 = 5;
const CONNECT: u16 = 6;
const ACCEPT: u16 = 7;
const REJECT: u16 = 8;
const DISCONNECT: u16 = 9;
const DESTROY: u16 = 10;

const REPLY_HELLO: u16 = 101;
const REPLY_REGION: u16 = 102;
const REPLY_CQ: u16 = 103;
const REPLY_QP: u16 = 104;
const REPLY_LISTENER: u16 = 105;
const REPLY_DONE: u16 = 106;
const REPLY_ERROR: u16 = 107;

const EVENT_CONNECT_REQUEST: u16 = 201;
const EVENT_ESTABLISHED: u16 = 202;
const EVENT_CONNECT_FAILED: u16 = 203;
const EVENT_DISCONNECTED: u16 = 204;

fn header(kind: u16, tag: u32) -> Record {
    Record::new().u16(kind).u16(0).u32(tag)
}

fn open(bytes: &[u8]) -> Result<(u16, u32, Reader<'_>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u16()?;
    reader.reserved::<2>()?;
    let tag = reader.u32()?;
    Ok((kind, tag, reader))
}

/// The tag of a request that may be malformed otherwise, so that its refusal can be matched.
pub fn tag_of(bytes: &[u8]) -> u32 {
    open(bytes).map_or(0, |(_, tag, _)| tag)
}

impl Request {
    /// The `Hello` of this version.
    pub fn hello() -> Self {
        Self::Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            features: super::feature::ALL,
        }
    }

    /// File descriptors that come with the request.
    pub fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::RegisterRegion { .. }))
    }

    /// The record with this tag.
    pub fn encode(&self, tag: u32) -> Record {
        match *self {
            Self::Hello {
                major,
                minor,
                features,
            } => header(HELLO, tag)
                .u32(MAGIC)
                .u16(major)
                .u16(minor)
                .u64(features),
            Self::RegisterRegion {
                length,
                iova,
                access,
            } => header(REGISTER, tag)
                .u64(length)
                .u64(iova)
                .u32(access.bits())
                .u32(0),
            Self::CreateCompletionQueue { entries } => header(CREATE_CQ, tag).u32(entries).u32(0),
            Self::CreateQueuePair {
                send_cq,
                receive_cq,
                send_entries,
                receive_entries,
            } => header(CREATE_QP, tag)
                .u32(send_cq)
                .u32(receive_cq)
                .u32(send_entries)
                .u32(receive_entries)
                .u64(0),
            Self::Listen {
                address,
                port,
                backlog,
            } => header(LISTEN, tag)
                .address(address)
                .u16(port)
                .u16(backlog)
                .u32(0),
            Self::Connect {
                qp,
                address,
                port,
                private,
            } => private.write(
                header(CONNECT, tag)
                    .u32(qp)
                    .address(address)
                    .u16(port)
                    .bytes(&[0; 2]),
            ),
            Self::Accept {
                request,
                qp,
                private,
            } => private.write(header(ACCEPT, tag).u32(request).u32(qp)),
            Self::Reject { request, private } => private.write(header(REJECT, tag).u32(request)),
            Self::Disconnect { qp } => header(DISCONNECT, tag).u32(qp),
            Self::Destroy { kind, handle } => {
                header(DESTROY, tag).u16(kind as u16).u16(0).u32(handle)
            }
        }
    }

    /// The tag and the request in a record of any bytes.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Self), DecodeError> {
        let (kind, tag, mut reader) = open(bytes)?;
        let r = &mut reader;
        let request = match kind {
            HELLO => {
                if r.u32()? != MAGIC {
                    return Err(DecodeError::Field("magic"));
                }
                Self::Hello {
                    major: r.u16()?,
                    minor: r.u16()?,
                    features: r.u64()?,
                }
            }
            REGISTER => {
                let (length, iova) = (r.u64()?, r.u64()?);
                let access = Access::from_bits(r.u32()?)?;
                r.reserved::<4>()?;
                Self::RegisterRegion {
                    length,
                    iova,
                    access,
                }
            }
            CREATE_CQ => {
                let entries = r.u32()?;
                r.reserved::<4>()?;
                Self::CreateCompletionQueue { entries }
            }
            CREATE_QP => decode_create_qp(r)?,
            LISTEN => {
                let (address, port, backlog) = (r.address()?, r.u16()?, r.u16()?);
                r.reserved::<4>()?;
                Self::Listen {
                    address,
                    port,
                    backlog,
                }
            }
            CONNECT => {
                let (qp, address, port) = (r.u32()?, r.address()?, r.u16()?);
                r.reserved::<2>()?;
                Self::Connect {
                    qp,
                    address,
                    port,
                    private: Private::read(r)?,
                }
            }
            ACCEPT => Self::Accept {
                request: r.u32()?,
                qp: r.u32()?,
                private: Private::read(r)?,
            },
            REJECT => Self::Reject {
                request: r.u32()?,
                private: Private::read(r)?,
            },
            DISCONNECT => Self::Disconnect { qp: r.u32()? },
            DESTROY => {
                let kind = ObjectKind::from_number(r.u16()?)?;
                r.reserved::<2>()?;
                Self::Destroy {
                    kind,
                    handle: r.u32()?,
                }
            }
            _ => return Err(DecodeError::Kind(kind)),
        };
        reader.end()?;
        Ok((tag, request))
    }
}

fn decode_create_qp(r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let (send_cq, receive_cq) = (r.u32()?, r.u32()?);
    let (send_entries, receive_entries) = (r.u32()?, r.u32()?);
    r.reserved::<8>()?;
    Ok(Request::CreateQueuePair {
        send_cq,
        receive_cq,
        send_entries,
        receive_entries,
    })
}

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
            Self::Disconnected { qp, reason } => {
                header(EVENT_DISCONNECTED, 0).u32(qp).u32(reason as u32)
            }
        }
    }
}

impl FromDaemon {
    /// The message in a record of any bytes.
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
        EVENT_DISCONNECTED => Event::Disconnected {
            qp: r.u32()?,
            reason: ErrorCode::from_number(r.u32()?)?,
        },
        _ => return Err(DecodeError::Kind(kind)),
    })
}
