//! What the application's side has to know or do, besides completions.

use super::completion::Status;
use super::connect::PrivateData;
use super::id::{ConnectionId, SharedQueueId};
use std::net::IpAddr;

/// Something that the application's side has to know or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets wait for a route: answer with `set_route`. Asked again while they wait.
    NeedRoute {
        /// Of the peer.
        destination: IpAddr,
    },
    /// A peer wants to connect: answer with `accept` or `reject`.
    ConnectRequest {
        /// The new connection.
        connection: ConnectionId,
        /// The service that it asked for.
        port: u16,
        /// Its address.
        source: IpAddr,
        /// Its application data; of a peer that offers no multipath the whole field of the message,
        /// whose end is zeros.
        private_data: PrivateData,
        /// It offers multipath, and so does this side.
        multipath: bool,
    },
    /// The queue pair is connected and in RTS.
    Established {
        /// Which connection.
        connection: ConnectionId,
        /// Its queue pair.
        qpn: u32,
        /// The peer's application data; empty on the side that accepted.
        private_data: PrivateData,
        /// Multipath was agreed on.
        multipath: bool,
    },
    /// The peer refused. The connection is gone; the queue pair is in the error state.
    Rejected {
        /// Which connection.
        connection: ConnectionId,
        /// Its queue pair.
        qpn: u32,
        /// The reason on the wire (IBTA REJ codes; 28 = consumer reject, 8 = nobody listens).
        reason: u16,
        /// The peer's application data.
        private_data: PrivateData,
    },
    /// The peer did not answer. The connection is gone; the queue pair is in the error state.
    Unreachable {
        /// Which connection.
        connection: ConnectionId,
        /// Its queue pair, if one was given.
        qpn: Option<u32>,
    },
    /// The connection has ended, from either side. The queue pair is in the error state.
    Disconnected {
        /// Which connection.
        connection: ConnectionId,
        /// Its queue pair.
        qpn: u32,
    },
    /// The queue pair failed: everything outstanding has completed with an error.
    QueuePairFailed {
        /// Which queue pair.
        qpn: u32,
        /// Why.
        status: Status,
        /// A request of the peer was refused, and none of this side failed.
        refused: bool,
    },
    /// A queue pair in SQD has sent all that it had begun, and it is acknowledged
    /// (`IBV_EVENT_SQ_DRAINED`).
    SendQueueDrained {
        /// Which queue pair.
        qpn: u32,
    },
    /// Fewer receives are posted to a shared receive queue than its limit says
    /// (`IBV_EVENT_SRQ_LIMIT_REACHED`). Said once each time that the limit is set.
    SharedLimitReached {
        /// Which queue.
        queue: SharedQueueId,
    },
    /// A queue pair in the error state takes no receive of its shared queue any more, and those
    /// that it took have completed (`IBV_EVENT_QP_LAST_WQE_REACHED`).
    LastReceiveTaken {
        /// Which queue pair.
        qpn: u32,
    },
}

impl Event {
    /// The queue pair that it is about.
    pub(crate) fn queue_pair(&self) -> Option<u32> {
        match *self {
            Self::Established { qpn, .. }
            | Self::Rejected { qpn, .. }
            | Self::Disconnected { qpn, .. }
            | Self::QueuePairFailed { qpn, .. }
            | Self::SendQueueDrained { qpn }
            | Self::LastReceiveTaken { qpn } => Some(qpn),
            Self::Unreachable { qpn, .. } => qpn,
            Self::NeedRoute { .. }
            | Self::ConnectRequest { .. }
            | Self::SharedLimitReached { .. } => None,
        }
    }
}
