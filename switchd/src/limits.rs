//! Every bound of the engine, with where it comes from.

use common::time::Span;
use common::units::Rate;

/// Ports of one switch. A 2-rack-unit switch has 64; sub-ports and a margin make it 256, and a port
/// number fits in a byte of a flow record.
pub const MAX_PORTS: usize = 256;

/// Words that have a bit for each port.
pub const PORT_WORDS: usize = MAX_PORTS.div_ceil(64);

/// Interfaces that are no ports and that the workers serve: VLANs of ports, bridges and VLANs of
/// bridges. Their number is in each packet that is routed, where a byte has room; 0 is none.
pub const MAX_INTERFACES: usize = 255;

/// Workers of one switch: more cores than a switch of [`MAX_PORTS`] ports can use, and a set of
/// them fits in one word.
pub const MAX_WORKERS: usize = 64;

/// Traffic classes, which are the egress queues of a port: one for each 802.1Q priority.
pub const CLASSES: usize = 8;

/// Priorities of a port (IEEE 802.1Q), and priority groups: as many as traffic classes.
pub const PRIORITIES: usize = CLASSES;

/// Packets that a worker takes from one receive queue at a time. Long enough to hide the latency of
/// the route lookups of a batch, short enough that the headers stay in the first-level cache:
/// packets of several queues are forwarded together, up to [`LANES`] (256 × 64 bytes = 16 KiB of 32
/// KiB).
pub const BATCH: usize = 128;

/// Packets that are forwarded together at most: less than a batch of some queues, and a batch of
/// the next.
pub const LANES: usize = 2 * BATCH;

/// Next hops: every neighbour of a switch is one. 256 ports with a rack of 256 addresses behind
/// each.
pub const MAX_NEXT_HOPS: usize = 65_536;

/// Groups: one for each next hop that is used alone, and as many again for combinations of them.
pub const MAX_GROUPS: usize = 2 * MAX_NEXT_HOPS;

/// Members of one group; Linux takes no more from one netlink message either.
pub const MAX_MEMBERS: usize = 512;

/// Bytes of a cell, the unit in which the buffer is accounted. Switch chips use about 200; this one
/// is a power of two, so that the cells of a packet are a shift.
pub const CELL: usize = 256;

/// Cells of the buffer: 512 MiB less one, so that an amount of cells fits in 21 bits and the state
/// of a priority group in a word.
pub const MAX_CELLS: u32 = (1 << 21) - 2;

/// Packets in the ring between one worker and another: what arrives from every port of a worker in
/// two turns, so that a worker which is a whole turn late loses nothing.
pub const RING: usize = 1024;

/// Packets on the way into the ring of another worker. Those that may be lost only fill half of it:
/// a worker that takes nothing holds back the lossless ones, whose senders are paused meanwhile,
/// and nobody else.
pub const OUTBOUND: usize = 2 * RING;

/// A worker that has taken nothing out of a full ring for this long stands still: from then on
/// packets for it are lost, lossless or not, and no port waits for it. Longer than the kernel keeps
/// a thread from a busy core.
pub const STALL: Span = Span::from_millis(20);

/// Packets that wait for the link-layer address of one next hop. As Linux's `unres_qlen` was before
/// it counted bytes, and enough for the first window of several connections.
pub const PENDING_PER_NEIGHBOUR: usize = 32;

/// Packets of one worker that wait for any link-layer address, so that a scan of unused addresses
/// cannot hold the frames of the traffic.
pub const PENDING_TOTAL: usize = 1024;

/// Packets of one port among them: of eight neighbours. A scan that arrives at one port leaves room
/// for the packets of three others.
pub const PENDING_PER_PORT: usize = 8 * PENDING_PER_NEIGHBOUR;

/// Longest that a packet waits for a link-layer address: three requests of the kernel, one a second
/// (RFC 4861 §10, MAX_MULTICAST_SOLICIT and RETRANS_TIMER).
pub const PENDING_TIMEOUT: Span = Span::from_secs(3);

/// How often waiting packets are looked up again without a change of the tables: the route to a new
/// neighbour appears shortly after the tables that announce the neighbour.
pub const PENDING_RETRY: Span = Span::from_millis(2);

/// The longest time between two of these looks, which are twice as far apart each time: a packet
/// that waits until [`PENDING_TIMEOUT`] is looked up some twenty times.
pub const PENDING_RETRY_MAX: Span = Span::from_millis(256);

/// How long a worker sleeps at most before it kicks a device again that has not sent everything. A
/// device that was full is ready within a few packet times. A device that is down costs 500 turns a
/// second.
pub const KICK_AGAIN: Span = Span::from_millis(2);

/// Least time between two questions to the kernel about one neighbour.
pub const RESOLVE_INTERVAL: Span = Span::from_secs(1);

/// Questions to the kernel in a row for packets that arrive at one port: more neighbours than one
/// link usually has, and a quarter of those that the kernel keeps (`gc_thresh3`).
pub const RESOLVE_BURST: u64 = 256;

/// Time in which packets of one port may have the kernel asked once more: 500 times a second.
pub const RESOLVE_REFILL: Span = Span::from_millis(2);

/// ICMP errors of a worker in a row. A traceroute sends 16 probes at once; several may run.
pub const ICMP_BURST: u64 = 100;

/// Time in which a worker may send one more ICMP error: 1000 a second, as Linux does
/// (`icmp_msgs_per_sec`).
pub const ICMP_INTERVAL: Span = Span::from_millis(1);

/// ICMP errors to one destination in a row, as in Linux (XRLIM_BURST_FACTOR).
pub const ICMP_PEER_BURST: u64 = 6;

/// Destinations of ICMP errors that a worker remembers: with 1000 errors a second in all, those of
/// four seconds.
pub const ICMP_PEERS: usize = 4096;

/// The same for errors by which senders find out the MTU of their path, for each port at which
/// their packets arrive: ten times as many.
pub const ICMP_TOO_BIG_INTERVAL: Span = Span::from_micros(100);

/// How long a port may make up for having been served late, unless configured otherwise: as long as
/// workers are planned to be late (`qos.headroom.poll_gap_microseconds`). Its device holds no more,
/// and the peer's buffer has to take such a burst.
pub const PORT_BURST: Span = Span::from_micros(100);

/// Least burst of a port in bytes, so that a slow one can send two packets of any length in a row.
pub const PORT_BURST_MIN: u64 = 2 * 4096;

/// Least line time that the device of a port may hold: a worker whose turns are this short keeps it
/// busy from the first packet on.
pub const DEVICE_LEAST: Span = Span::from_micros(1);

/// The same in bytes of line time, for slow ports: two packets of any length.
pub const DEVICE_LEAST_BYTES: u64 = PORT_BURST_MIN;

/// The same for ports without a speed: a batch of packets of 1000 bytes.
pub const DEVICE_LEAST_UNSHAPED: u64 = 131_072;

/// Places in the transmit ring of a port that pauses its peer which packets leave free for control
/// frames: two for each of two turns, before and after packets are sent.
pub const CONTROL_FRAMES: usize = 4;

/// Bytes of the packets that an idle queue could have sent: by so many of them its average moves.
/// As RED's authors and Linux's recommend (`avpkt`).
pub const IDLE_PACKET: u64 = 1000;

/// The speed that an idle port without a speed is taken to have.
pub const IDLE_RATE: Rate = Rate::from_bps(10_000_000_000);

/// How long a device has to have too much before it gets less: longer than the time between two
/// turns that are late because the kernel had other work for the core.
pub const DEVICE_HOLD: Span = Span::from_millis(10);

/// Commands and events between control and a worker that may be under way.
pub const CHANNEL: usize = 1024;

/// Punted packets of a port per second, unless configured otherwise. The kernel takes about a
/// microsecond for each: this keeps a tenth of a core busy.
pub const PUNT_RATE: u32 = 100_000;

/// The highest limit of punted packets: more than the kernel forwards on a core.
pub const PUNT_RATE_MAX: u64 = 10_000_000;

/// Stations of bridges that the workers know, unless configured otherwise: as many as a switch chip
/// of the smaller kind. Each takes some 100 bytes, and a change copies 32 bytes of each.
pub const FDB_ENTRIES: u32 = 16_384;

/// The most of them: with the addresses of the bridges themselves they fit in the map of the
/// steering programs.
pub const FDB_ENTRIES_MAX: u64 = 65_536;

/// Frames per second of each kind that the kernel is handed from a port of a bridge to flood or to
/// learn from, unless configured otherwise. Flooding costs it a copy for each port: for 16 ports
/// this is a tenth to a fifth of a core.
pub const STORM_RATE: u32 = 10_000;

/// The same of frames that ask for the switch itself or are of protocols between neighbours: more
/// than the hosts behind a port have to ask.
pub const CONTROL_RATE: u32 = 1_000;

const _: () = assert!(LANES <= RING / 2, "a batch must fit in an idle ring");
const _: () = assert!(PENDING_PER_PORT <= PENDING_TOTAL);
const _: () = assert!(MAX_WORKERS <= u64::BITS as usize, "WorkerSet is one word");
const _: () = assert!(CELL.is_power_of_two());
const _: () = assert!(MAX_GROUPS < 1 << 23,);
