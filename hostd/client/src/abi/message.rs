//! Requests of an application on its socket.
//!
//! [`Request::decode`] takes any bytes at all and never panics.

use super::attributes::{QueuePairAttributes, QueuePairState};
use super::by_hand::ByHand;
use super::codec::{DecodeError, Reader};
use super::collective::{FailureReason, JoinJob, NOTE_FALLBACK, QUERY_LEAF};
use super::options::ConnectionOptions;
use super::paths::PathRequest;
use super::port::PortRequest;
use super::record::{Record, header, open};
use super::types::{Access, ObjectKind, Private};
use super::{MAGIC, VERSION_MAJOR, VERSION_MINOR};
use std::net::IpAddr;

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
    /// Share the doorbell page whose memfd comes along: the second message of a session. It is
    /// not part of the first one because descriptors are for those who are welcome, with a version
    /// that is understood.
    ShareDoorbells,
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
    /// Create a completion queue; the memfd of its ring comes along.
    CreateCompletionQueue {
        /// Completions that it holds; rounded up to a power of two.
        entries: u32,
    },
    /// Create a queue pair; the memfds of its send ring and its receive ring come along.
    CreateQueuePair {
        /// Handle of the completion queue of the send queue.
        send_cq: u32,
        /// Handle of the completion queue of the receive queue.
        receive_cq: u32,
        /// Work requests that the send queue holds; rounded up to a power of two.
        send_entries: u32,
        /// Work requests that the receive queue holds; rounded up to a power of two. With a shared
        /// receive queue: completions of receives that may wait for this queue pair.
        receive_entries: u32,
        /// Handle of the shared receive queue; zero: the queue pair has one of its own.
        shared: u32,
    },
    /// Create a shared receive queue; the memfd of its ring comes along.
    CreateSharedQueue {
        /// Receives that it holds; rounded up to a power of two.
        entries: u32,
        /// Fewer receives than this are an event, once; zero: none.
        limit: u32,
    },
    /// Set the limit of a shared receive queue.
    LimitSharedQueue {
        /// The queue.
        queue: u32,
        /// As above.
        limit: u32,
    },
    /// Create a memory window of type 2.
    CreateWindow,
    /// Wait for connections.
    Listen {
        /// Where: one of the port's GIDs, or the unspecified address, which is all of them.
        address: IpAddr,
        /// Port in the RDMA CM's TCP port space; zero lets the daemon choose.
        port: u16,
        /// Connection requests that may wait for an answer. A hint: the daemon may let more wait.
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
    /// Set what the connection that a queue pair will get is to be like.
    SetOptions {
        /// The queue pair, which is not connected.
        qp: u32,
        /// What it is to be like.
        options: ConnectionOptions,
    },
    /// Accept a connection request with a queue pair. The outcome is an event.
    Accept {
        /// The request, from [`Event::ConnectRequest`](super::answer::Event::ConnectRequest).
        request: u32,
        /// The queue pair.
        qp: u32,
        /// Data for the peer's application.
        private: Private,
    },
    /// Turn a connection request down.
    Reject {
        /// The request, from [`Event::ConnectRequest`](super::answer::Event::ConnectRequest).
        request: u32,
        /// Data for the peer's application.
        private: Private,
    },
    /// Close the connection of a queue pair. The outcome is an event.
    Disconnect {
        /// The queue pair.
        qp: u32,
    },
    /// Ready a queue pair for a peer, without connection management.
    ConnectByHand {
        /// The queue pair.
        qp: u32,
        /// Both ends.
        by_hand: ByHand,
    },
    /// Take a queue pair to a state, which may be the present one, with these attributes.
    ModifyQueuePair {
        /// The queue pair.
        qp: u32,
        /// Its next state: RTR, RTS, SQD or ERR.
        next: QueuePairState,
        /// What is given.
        attributes: QueuePairAttributes,
    },
    /// Ask for the state and the attributes of a queue pair.
    QueryQueuePair {
        /// The queue pair.
        qp: u32,
    },
    /// Choose the own address that a queue pair connects from.
    Bind {
        /// The queue pair, which is not connected.
        qp: u32,
        /// One of the port's GIDs.
        address: IpAddr,
    },
    /// Choose the partition of a queue pair.
    ChoosePartition {
        /// The queue pair, which is not connected.
        qp: u32,
        /// Where its key is in the port's table.
        index: u16,
    },
    /// Ask something of the port.
    Port(PortRequest),
    /// Ask something of the sub-paths of a queue pair, or tell of its traffic.
    Paths {
        /// The queue pair.
        qp: u32,
        /// What.
        request: PathRequest,
    },
    /// Become a member of a job that switches compute for; the memfd of the ring of collectives
    /// comes along.
    JoinJob(JoinJob),
    /// Ask for the address of the switch that members ask (3.6).
    QueryLeaf,
    /// Tell that a member does without switches though it has no membership to withdraw from: it
    /// was refused, or there is no leaf (3.7). The daemon counts it.
    NoteFallback {
        /// The job; zero if there is none.
        job: u32,
        /// Why.
        reason: FailureReason,
    },
    /// Give an object back.
    Destroy {
        /// What it is.
        kind: ObjectKind,
        /// Which one.
        handle: u32,
    },
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
const CONNECT_BY_HAND: u16 = 16;
const CREATE_SHARED: u16 = 24;
const LIMIT_SHARED: u16 = 25;
const MODIFY_QP: u16 = 26;
const QUERY_QP: u16 = 27;
const CREATE_WINDOW: u16 = 18;
const SET_OPTIONS: u16 = 28;
const SHARE_DOORBELLS: u16 = 29;
// 30 to 33 are of the port.
const BIND: u16 = 34;
const CHOOSE: u16 = 35;
// 36 to 39 are of sub-paths.
// 40 to 42 are of memberships.

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
        match self {
            Self::ShareDoorbells
            | Self::RegisterRegion { .. }
            | Self::CreateCompletionQueue { .. }
            | Self::CreateSharedQueue { .. }
            | Self::JoinJob(_) => 1,
            Self::CreateQueuePair { .. } => 2,
            _ => 0,
        }
    }

    /// The record with this tag.
    pub fn encode(&self, tag: u32) -> Record {
        match *self {
            Self::Hello {
                major,
                minor,
                features,
            } => encode_hello(tag, major, minor, features),
            Self::ShareDoorbells => header(SHARE_DOORBELLS, tag),
            Self::RegisterRegion {
                length,
                iova,
                access,
            } => {
                let record = header(REGISTER, tag).u64(length).u64(iova);
                record.u32(access.bits()).u32(0)
            }
            Self::CreateCompletionQueue { entries } => header(CREATE_CQ, tag).u32(entries).u32(0),
            Self::CreateQueuePair {
                send_cq,
                receive_cq,
                send_entries,
                receive_entries,
                shared,
            } => header(CREATE_QP, tag)
                .u32(send_cq)
                .u32(receive_cq)
                .u32(send_entries)
                .u32(receive_entries)
                .u32(shared)
                .u32(0),
            Self::CreateSharedQueue { entries, limit } => {
                header(CREATE_SHARED, tag).u32(entries).u32(limit)
            }
            Self::LimitSharedQueue { queue, limit } => {
                header(LIMIT_SHARED, tag).u32(queue).u32(limit)
            }
            Self::CreateWindow => header(CREATE_WINDOW, tag),
            Self::Listen {
                address,
                port,
                backlog,
            } => encode_listen(tag, address, port, backlog),
            Self::Connect {
                qp,
                address,
                port,
                private,
            } => {
                let record = header(CONNECT, tag).u32(qp).address(address);
                private.write(record.u16(port).bytes(&[0; 2]))
            }
            Self::Accept {
                request,
                qp,
                private,
            } => private.write(header(ACCEPT, tag).u32(request).u32(qp)),
            Self::Reject { request, private } => private.write(header(REJECT, tag).u32(request)),
            Self::SetOptions { qp, options } => options.write(header(SET_OPTIONS, tag).u32(qp)),
            Self::Disconnect { qp } => header(DISCONNECT, tag).u32(qp),
            Self::ConnectByHand { qp, by_hand } => {
                by_hand.write(header(CONNECT_BY_HAND, tag).u32(qp))
            }
            Self::ModifyQueuePair {
                qp,
                next,
                attributes,
            } => attributes.write(header(MODIFY_QP, tag).u32(qp).u32(u32::from(next as u8))),
            Self::QueryQueuePair { qp } => header(QUERY_QP, tag).u32(qp),
            Self::Bind { qp, address } => header(BIND, tag).u32(qp).address(address),
            Self::ChoosePartition { qp, index } => header(CHOOSE, tag).u32(qp).u16(index).u16(0),
            Self::Port(request) => request.encode(tag),
            Self::Paths { qp, request } => request.encode(qp, tag),
            Self::JoinJob(join) => join.encode(tag),
            Self::QueryLeaf => header(QUERY_LEAF, tag),
            Self::NoteFallback { job, reason } => {
                header(NOTE_FALLBACK, tag).u32(job).u32(reason as u32)
            }
            Self::Destroy { kind, handle } => {
                header(DESTROY, tag).u16(kind as u16).u16(0).u32(handle)
            }
        }
    }

    /// The tag and the request in a record of any bytes.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Self), DecodeError> {
        let (kind, tag, mut reader) = open(bytes)?;
        let r = &mut reader;
        let request = match kind {
            HELLO => decode_hello(r)?,
            SHARE_DOORBELLS => Self::ShareDoorbells,
            REGISTER => decode_register(r)?,
            CREATE_CQ => {
                let entries = r.u32()?;
                r.reserved::<4>()?;
                Self::CreateCompletionQueue { entries }
            }
            CREATE_QP => decode_create_qp(r)?,
            CREATE_SHARED => Self::CreateSharedQueue {
                entries: r.u32()?,
                limit: r.u32()?,
            },
            LIMIT_SHARED => Self::LimitSharedQueue {
                queue: r.u32()?,
                limit: r.u32()?,
            },
            CREATE_WINDOW => Self::CreateWindow,
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
            SET_OPTIONS => Self::SetOptions {
                qp: r.u32()?,
                options: ConnectionOptions::read(r)?,
            },
            DISCONNECT => Self::Disconnect { qp: r.u32()? },
            CONNECT_BY_HAND => Self::ConnectByHand {
                qp: r.u32()?,
                by_hand: ByHand::read(r)?,
            },
            MODIFY_QP => decode_modify(r)?,
            QUERY_QP => Self::QueryQueuePair { qp: r.u32()? },
            DESTROY => {
                let kind = ObjectKind::from_number(r.u16()?)?;
                r.reserved::<2>()?;
                Self::Destroy {
                    kind,
                    handle: r.u32()?,
                }
            }
            BIND => Self::Bind {
                qp: r.u32()?,
                address: r.address()?,
            },
            CHOOSE => decode_choice(r)?,
            _ => decode_other(kind, r)?,
        };
        reader.end()?;
        Ok((tag, request))
    }
}

fn decode_choice(r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let (qp, index) = (r.u32()?, r.u16()?);
    r.reserved::<2>()?;
    Ok(Request::ChoosePartition { qp, index })
}

/// Requests that are described elsewhere.
fn decode_other(kind: u16, r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    if let Some(join) = JoinJob::decode(kind, r)? {
        return Ok(Request::JoinJob(join));
    }
    if kind == QUERY_LEAF {
        return Ok(Request::QueryLeaf);
    }
    if kind == NOTE_FALLBACK {
        let (job, reason) = (r.u32()?, FailureReason::of_number(r.u32()?)?);
        return Ok(Request::NoteFallback { job, reason });
    }
    match PathRequest::decode(kind, r)? {
        Some((qp, request)) => Ok(Request::Paths { qp, request }),
        None => PortRequest::decode(kind, r).map(Request::Port),
    }
}

fn encode_listen(tag: u32, address: IpAddr, port: u16, backlog: u16) -> Record {
    let record = header(LISTEN, tag).address(address);
    record.u16(port).u16(backlog).u32(0)
}

fn encode_hello(tag: u32, major: u16, minor: u16, features: u64) -> Record {
    let record = header(HELLO, tag).u32(MAGIC).u16(major).u16(minor);
    record.u64(features)
}

fn decode_hello(r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    if r.u32()? != MAGIC {
        return Err(DecodeError::Field("magic"));
    }
    Ok(Request::Hello {
        major: r.u16()?,
        minor: r.u16()?,
        features: r.u64()?,
    })
}

fn decode_register(r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let (length, iova) = (r.u64()?, r.u64()?);
    let access = Access::from_bits(r.u32()?);
    r.reserved::<4>()?;
    Ok(Request::RegisterRegion {
        length,
        iova,
        access,
    })
}

fn decode_modify(r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let (qp, next) = (r.u32()?, QueuePairState::from_byte(r.u8()?)?);
    r.reserved::<3>()?;
    Ok(Request::ModifyQueuePair {
        qp,
        next,
        attributes: QueuePairAttributes::read(r)?,
    })
}

fn decode_create_qp(r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let (send_cq, receive_cq) = (r.u32()?, r.u32()?);
    let (send_entries, receive_entries) = (r.u32()?, r.u32()?);
    let shared = r.u32()?;
    r.reserved::<4>()?;
    Ok(Request::CreateQueuePair {
        send_cq,
        receive_cq,
        send_entries,
        receive_entries,
        shared,
    })
}
