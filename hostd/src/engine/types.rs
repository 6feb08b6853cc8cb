//! What goes in and out of the engine besides packets and work requests.

use crate::net::pfc::FlowControl;
use common::time::Span;
use common::units::Rate;
use std::fmt;
use std::net::IpAddr;

/// How an engine behaves; the same for all its queue pairs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where all randomness comes from: keys, queue pairs' first packet numbers, spraying. Secret;
    /// the daemon takes it from the kernel, a simulation from its own seed.
    pub seed: [u8; 32],
    /// What queue pairs offer and accept in negotiation (HT-20). `None`: plain RoCEv2 only.
    pub multipath: Option<MultipathConfig>,
    /// Most payload bytes in a packet; rounded down to a path MTU of InfiniBand, and further by the
    /// MTU of the route and by what the peer takes.
    pub path_mtu: u16,
    /// Packets in flight on a queue pair at most. The default, with 2048 bytes of payload each, stays below
    /// what a port of switchd queues by default (512 KiB), so one connection alone loses nothing.
    pub window: u32,
    /// Frames that all reorder buffers together hold at most: less than the pool has.
    pub reorder_frames: u32,
    /// DSCP and ECN of data packets.
    pub data_class: u8,
    /// DSCP and ECN of acknowledgements and connection messages.
    pub control_class: u8,
    /// Which pauses of the switch are obeyed, and which packets they are about.
    pub flow_control: FlowControl,
    /// Shortest retransmission time-out. Above the jitter of the hosts, or waiting threads are
    /// taken for lost packets.
    pub rto_min: Span,
    /// Retransmission time-out before the round-trip time is known.
    pub rto_initial: Span,
    /// An acknowledgement goes out after this many packets at the latest …
    pub ack_packets: u32,
    /// … or this long after a packet came.
    pub ack_delay: Span,
    /// A path on which packets vanish is not used for this long at first, up to 16 times as long
    /// when they vanish again.
    pub path_avoidance: Span,
    /// Bytes that may be sent in a row to catch up with the route's rate, when the thread ran late.
    pub pacer_burst: u32,
    /// First wait for an answer of the connection manager; doubled at each retry.
    pub cm_timeout: Span,
    /// Times that a connection message is sent again.
    pub cm_retries: u8,
    /// How long an ended connection is remembered, for its peer's repeated messages.
    pub time_wait: Span,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            seed: [0; 32],
            multipath: Some(MultipathConfig::default()),
            path_mtu: 4096,
            window: 224,
            reorder_frames: 4096,
            // AF31 with ECT(0), as RoCEv2 devices mark data; EF (RFC 3246).
            data_class: 26 << 2 | 0b10,
            control_class: 46 << 2,
            flow_control: FlowControl::default(),
            rto_min: Span::from_millis(10),
            rto_initial: Span::from_millis(50),
            ack_packets: 8,
            ack_delay: Span::from_micros(100),
            path_avoidance: Span::from_millis(100),
            pacer_burst: 128 * 1024,
            cm_timeout: Span::from_millis(100),
            cm_retries: 5,
            time_wait: Span::from_secs(2),
        }
    }
}

/// How the packets of a queue pair are spread over its sub-paths (HT-31, HT-34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// All on one sub-path, changed when packets on it vanish.
    Flow,
    /// A sub-path for each flowlet: a new one is chosen after a pause longer than the time-out.
    Flowlet,
    /// A sub-path for each packet, obliviously.
    #[default]
    Packet,
}

/// What one side offers in negotiation (HT-20, HT-22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipathConfig {
    /// Sub-paths at most, 1–256.
    pub paths: u16,
    /// The granularity that is wanted. The other side's is used if it does not know this one; every
    /// side knows all that are coarser than its own.
    pub granularity: Granularity,
    /// Packets by which one may be overtaken before it is taken for lost.
    pub reorder_packets: u16,
    /// Time by which a packet may be late before it is taken for lost.
    pub reorder_time: Span,
    /// Packets that wait in the reorder buffer at most.
    pub reorder_buffer: u16,
    /// A pause that ends a flowlet.
    pub flowlet_timeout: Span,
}

impl Default for MultipathConfig {
    fn default() -> Self {
        Self {
            paths: 8,
            granularity: Granularity::Packet,
            reorder_packets: 128,
            reorder_time: Span::from_millis(2),
            reorder_buffer: 512,
            flowlet_timeout: Span::from_micros(500),
        }
    }
}

/// How packets to a destination are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Own address, of the destination's family.
    pub source: IpAddr,
    /// Own Ethernet address.
    pub source_mac: [u8; 6],
    /// Ethernet address of the next hop.
    pub destination_mac: [u8; 6],
    /// Largest IP packet of the port.
    pub mtu: u16,
    /// Speed of the port, which packets are paced to.
    pub rate: Rate,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompletionQueueId(pub(crate) u32);

/// A protection domain: regions and queue pairs of one serve only one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DomainId(pub(crate) u32);

/// A connection of the connection manager; the number is its local communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u32);

macro_rules! show_number {
    ($($name:ident),+) => {
        $(
            impl $name {
                /// The number, for reports and as a key.
                pub const fn number(self) -> u32 {
                    self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.fmt(f)
                }
            }
        )+
    };
}

show_number!(CompletionQueueId, DomainId, ConnectionId);

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairRequest {
    /// Its protection domain.
    pub domain: DomainId,
    /// Where sends complete.
    pub send_cq: CompletionQueueId,
    /// Where receives complete.
    pub receive_cq: CompletionQueueId,
    /// Send requests that may be outstanding (`max_send_wr`).
    pub max_send_wr: u32,
    /// Receives that may be posted (`max_recv_wr`).
    pub max_recv_wr: u32,
    /// Every send completes, signaled or not (`sq_sig_all`).
    pub signal_all: bool,
}

/// What an application says when it connects or accepts (`struct rdma_conn_param`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParameters<'a> {
    /// Data for the other application; how much fits: [`crate::cm::request_data_max`] and
    /// [`crate::cm::REPLY_DATA_MAX`].
    pub private_data: &'a [u8],
    /// Local ACK time-out, 4.096 µs × 2^`timeout`.
    pub timeout: u8,
    /// Whole time-outs without progress before the queue pair fails, 0–7.
    pub retry_count: u8,
    /// Tries when the peer has no receive posted, 0–6; 7 never gives up.
    pub rnr_retry: u8,
}

impl Default for ConnectionParameters<'_> {
    /// No data; about one second eight times over, receives awaited for ever.
    fn default() -> Self {
        Self {
            private_data: &[],
            timeout: 18,
            retry_count: 7,
            rnr_retry: 7,
        }
    }
}

/// Application data of a connection message. What fits depends on the message: see
/// [`crate::cm::request_data_max`] and [`crate::cm::REPLY_DATA_MAX`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; Self::MAX],
}

impl PrivateData {
    /// The most that any connection message carries.
    pub const MAX: usize = 196;

    /// No data.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; Self::MAX],
    };

    /// These bytes; `None` if there are more than [`Self::MAX`].
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self {
            len: u8::try_from(data.len()).ok()?,
            bytes,
        })
    }

    /// The bytes. The wire does not carry their number: received data ends with the message's
    /// zeros.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateData({} bytes)", self.len)
    }
}

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
        /// Its application data, with trailing zeros.
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
        status: crate::message::work::Status,
    },
}

/// Why the engine refused a call; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// No object of that number.
    #[error("no such object")]
    Unknown,
    /// The table of such objects is full.
    #[error("the limit of such objects is reached")]
    TooMany,
    /// Other objects depend on this one.
    #[error("the object is in use")]
    Busy,
    /// The object's state does not allow it.
    #[error("not possible in this state")]
    State,
    /// An argument is outside what is possible.
    #[error("an argument is out of range")]
    Argument,
    /// As many requests are outstanding as the queue pair was made for.
    #[error("the work queue is full")]
    QueueFull,
    /// Completions have to be polled first.
    #[error("the completion queue is full")]
    CompletionQueueFull,
}
