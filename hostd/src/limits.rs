//! Every limit of the engine, with where it comes from.

use common::time::Span;
use common::wire::roce::Extension;

/// Queue pairs of one engine: 10,000 and some. Their number's low bits are the slot: 14 bits of
/// slot, 10 bits of generation make the 24 bits of a QP number. A table takes memory for what is in
/// it, and 24 bytes for each slot.
pub const QUEUE_PAIRS: u32 = 1 << QUEUE_PAIR_SLOT_BITS;

/// Bits of a QP number that name its slot; the rest is the slot's generation.
pub const QUEUE_PAIR_SLOT_BITS: u32 = 14;

/// Bits of a QP number on the wire.
pub const QUEUE_PAIR_NUMBER_BITS: u32 = 24;

/// Completion queues of one engine: one per direction of each queue pair.
pub const COMPLETION_QUEUES: u32 = 2 * QUEUE_PAIRS;

/// Shared receive queues of one engine.
pub const SHARED_QUEUES: u32 = QUEUE_PAIRS;

/// Memberships of jobs of one engine, those that are just ending included: some for each of the
/// processes that use a host's accelerators.
pub const MEMBERSHIPS: u32 = 1024;

/// Protection domains of one engine.
pub const DOMAINS: u32 = QUEUE_PAIRS;

/// Registered regions of one engine: four for each queue pair, and about as many as the kernel lets
/// a process map by default (`vm.max_map_count`, 65530).
pub const REGIONS: u32 = 4 * QUEUE_PAIRS;

/// Connections of the connection manager, those in time-wait included.
pub const CONNECTIONS: u32 = 2 * QUEUE_PAIRS;

/// Connections that peers asked for and that do not stand yet. At a flood of 10,000 requests a
/// second each has a tenth of a second, some round trips and decisions of an application, before it
/// makes way for a newer one.
pub const HALF_OPEN: u32 = 1024;

/// The same for one address.
pub const HALF_OPEN_OF_SOURCE: u32 = 128;

/// Connections for which strangers leave room: those that this host begins.
pub const OUTGOING: u32 = 1024;

/// Services that are listened on.
pub const LISTENERS: usize = 1024;

/// Destinations with a route: as many as queue pairs. Those without a connection make way for
/// others.
pub const ROUTES: usize = QUEUE_PAIRS as usize;

/// The same for the applications of one user: half of them, so that no user takes all.
pub const ROUTES_OF_USER: usize = ROUTES / 2;

/// Events that wait for the application's side: two for each queue pair, as many as its end causes.
/// Connection requests above half of it are refused.
pub const EVENTS: usize = 2 * QUEUE_PAIRS as usize;

/// Work requests of one queue of a queue pair, as `rdma_rxe`'s `max_qp_wr`.
pub const WORK_REQUESTS: u32 = 16_384;

/// Memory windows of one engine: as many as regions.
pub const WINDOWS: u32 = REGIONS;

/// Pieces of one work request (`max_sge`). `rdma_rxe` has 32.
pub const SGE: usize = 16;

/// Bytes of inline data of one work request (`max_inline_data`): four slots of a ring and half of
/// the request's own are 288.
pub const INLINE: usize = 256;

/// Longest message in bytes (InfiniBand 9.7.7). At the smallest path MTU it takes 2²³ packet
/// sequence numbers. They are compared with its end only when all of it was sent, and then those
/// that matter are within [`SEND_SPAN`] of it or, behind READs, [`PSN_REACH`].
pub const MESSAGE: u32 = 1 << 31;

/// New packets are at most this many numbers after the oldest answer that is missing: numbers can
/// be compared within 2²³, and the peer has to know that a question comes again.
pub const PSN_REACH: u32 = 1 << 22;

/// RDMA READs and atomic operations of one queue pair, in each direction, that may be outstanding:
/// as many answers are remembered for repetition. `rdma_rxe` has 128.
pub const RD_ATOMIC: u8 = 128;

/// Those that connections offer and accept unless the application says otherwise.
pub const RD_ATOMIC_DEFAULT: u8 = 16;

/// Packets that one request of an RDMA READ asks for, at most. A longer READ takes several
/// requests, each when answers to those before it have come, so that the requester bounds what is
/// on its way. One word of bits says which have come.
pub const READ_REQUEST: u32 = u64::BITS;

/// Smallest path MTU of InfiniBand, in bytes of payload.
pub const PATH_MTU_MIN: u16 = 256;

/// Greatest path MTU of InfiniBand, in bytes of payload.
pub const PATH_MTU_MAX: u16 = 4096;

/// Packets of one queue pair between the oldest unacknowledged one and the newest. At 2048 bytes of
/// payload they keep a port of 1 Gb/s busy for 8 ms, one of 100 Gb/s for 80 µs.
pub const SEND_SPAN: u32 = 512;

/// The same for a plain peer: `rdma_rxe` takes no more than 128 at a time.
pub const PLAIN_SEND_SPAN: u32 = 128;

/// Greatest reorder buffer of a queue pair, in packets. The bitmap of a selective acknowledgement
/// covers 256 of them. Packets beyond are named once the gap before them has closed.
pub const REORDER_BUFFER: u32 = 512;

/// Shortest time after which an overtaken packet counts as lost. A peer that offers less gets this
/// one: otherwise reports of losses and their repetitions could take all of a host's time.
pub const REORDER_TIME_MIN: Span = Span::from_micros(100);

/// A gap in the packets of a queue pair that is open for longer is given up when reorder buffers
/// run short of frames. Senders give up earlier: with the time-out (1.07 s) and the retries (7)
/// that connections are set up with, after 8.6 s.
pub const GAP_ENDURANCE: Span = Span::from_secs(10);

/// How often gaps are looked at for that: each time costs a look at every queue pair.
pub const GAP_LOOK: Span = Span::from_secs(1);

/// Packets of this host to itself that are under way: as many as a turn of the worker sends.
pub const LOOPED: usize = 256;

/// Ports of one engine: planes of one host are two or four. Who waits for a turn is listed for each
/// set of ports, of which there are 2^n.
pub const PORTS: usize = 4;

/// Sub-paths of one queue pair. The Path ID of MPEH has eight bits.
pub const PATHS: usize = 256;

/// Partition keys of a port.
pub const PARTITIONS: usize = 16;

/// Largest weight of a sub-path.
pub const WEIGHT: u8 = 100;

/// Entropy values of a queue pair that sprays packets over several sub-paths, as UET recommends for
/// oblivious spraying: one byte names them.
pub const ENTROPIES: usize = 256;

/// Bytes in front of the payload: Ethernet 14, IPv6 40, UDP 8, BTH 12, MPEH 8 and its extension 8,
/// RETH 16, ImmDt 4.
pub const HEADERS: usize = 14 + 40 + 8 + 12 + 8 + Extension::LEN + 16 + 4;

/// Bytes behind the payload: padding 3, ICRC 4.
pub const TRAILER: usize = 3 + 4;

const _: () = assert!(HALF_OPEN_OF_SOURCE < HALF_OPEN && HALF_OPEN + OUTGOING < CONNECTIONS);
const _: () = assert!(MESSAGE / PATH_MTU_MIN as u32 <= 1 << 23);
const _: () = assert!(PSN_REACH + SEND_SPAN < 1 << 23);
const _: () = assert!(PLAIN_SEND_SPAN <= SEND_SPAN);
const _: () = assert!(SEND_SPAN.is_power_of_two() && SEND_SPAN <= REORDER_BUFFER);
const _: () = assert!(REORDER_BUFFER.is_power_of_two() && REORDER_BUFFER < 1 << 23);
const _: () = assert!(QUEUE_PAIR_SLOT_BITS < QUEUE_PAIR_NUMBER_BITS);
const _: () = assert!(PATHS <= 1 << 8);
const _: () = assert!(RD_ATOMIC_DEFAULT <= RD_ATOMIC);

/// Longest ACK time-out that a peer may ask for, as a code, if the own one is shorter: 17 s, with
/// seven retries 137 s.
pub(crate) const ACK_TIMEOUT_ASKED: u8 = 22;
