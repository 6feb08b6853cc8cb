//! What a worker counts. The worker alone writes; control reads whenever it likes.

use crate::drop::DropReason;
use crate::ingress::flowlet::{FlowletRow, FlowletStats};
use crate::limits::CLASSES;
use crate::traffic::policy::PRIORITIES;
use common::sync::counter::Counter;
use std::sync::{Arc, Mutex};

/// Counters of one egress queue.
#[derive(Debug, Default)]
pub struct QueueStats {
    /// Packets accepted so far.
    pub enqueued_packets: Counter,
    /// Bytes accepted so far.
    pub enqueued_bytes: Counter,
    /// Packets refused so far, for whatever reason the traffic manager had.
    pub dropped_packets: Counter,
    /// Packets in the queue now.
    pub depth_packets: Counter,
    /// Bytes in the queue now.
    pub depth_bytes: Counter,
    /// Cells in the queue now.
    pub depth_cells: Counter,
    /// Most cells since the watermark was cleared.
    pub peak_cells: Counter,
    /// Packets sent so far.
    pub sent_packets: Counter,
    /// Bytes sent so far.
    pub sent_bytes: Counter,
    /// Packets trimmed so far because they did not fit here.
    pub trimmed_packets: Counter,
    /// Packets marked CE so far.
    pub marked_packets: Counter,
    /// How often control asked for the watermark to be cleared; control alone writes it.
    pub clear_peak: Counter,
    /// How often it was.
    pub cleared_peak: Counter,
}

/// Pauses of one priority of a port.
#[derive(Debug, Default)]
pub struct PauseStats {
    /// PFC frames received that pause it.
    pub received_xoff: Counter,
    /// PFC frames received that let it go on.
    pub received_xon: Counter,
    /// PFC frames received that name it but are not obeyed.
    pub ignored: Counter,
    /// PFC frames sent that pause it at the peer, refreshes included.
    pub sent_xoff: Counter,
    /// PFC frames sent that let it go on there.
    pub sent_xon: Counter,
    /// State of the watchdog: 0 operational, 1 stormed, 2 off.
    pub storm_state: Counter,
    /// Storms that it found.
    pub storms: Counter,
    /// Storms that ended.
    pub storms_restored: Counter,
    /// When the last one was found, in nanoseconds of the worker's clock; zero: never.
    pub last_storm: Counter,
    /// Nanoseconds that it was paused, as of the last change.
    pub paused_nanos: Counter,
}

/// Counters of one port as one worker sees it. A port with several receive queues is served by
/// several workers: its numbers are the sum over the workers.
#[derive(Debug)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: Counter,
    /// Bytes received, without preamble and frame check sequence.
    pub rx_bytes: Counter,
    /// Packets handed to the device.
    pub tx_packets: Counter,
    /// Bytes handed to the device.
    pub tx_bytes: Counter,
    /// Trimmed packets sent.
    pub trimmed_sent: Counter,
    /// Trimmed packets for which there was no room either.
    pub trimmed_dropped: Counter,
    /// Pauses, by priority; only the port's owner counts here.
    pub pauses: [PauseStats; PRIORITIES],
    /// PAUSE frames received, those sent, and those received but not obeyed.
    pub link_pauses: [Counter; 3],
    /// ICMP messages that the switch itself sent because of packets from this port.
    pub icmp_sent: Counter,
    /// MAC control frames received: they end here.
    pub control_received: Counter,
    /// MAC control frames sent.
    pub control_sent: Counter,
    /// ICMP messages that the rate limit or a lack of frames suppressed.
    pub icmp_suppressed: Counter,
    /// Packets that were received here and lost, by reason.
    pub drops: [Counter; DropReason::COUNT],
    /// The egress queues; only the port's owner counts here.
    pub queues: [QueueStats; CLASSES],
}

/// Counters of one worker.
#[derive(Debug)]
pub struct WorkerStats {
    /// Turns of the loop.
    pub turns: Counter,
    /// Turns in which there was something to do.
    pub busy_turns: Counter,
    /// When the last turn began, in nanoseconds of the worker's clock: shows that it lives.
    pub heartbeat: Counter,
    /// Packets that wait for a neighbour's MAC address now.
    pub pending: Counter,
    /// Events that were lost because control did not keep up; each is repeated later.
    pub events_lost: Counter,
    /// Flowlets of dynamic load balancing.
    pub flowlets: Arc<FlowletStats>,
    /// Flows that were in its table when control last asked for them.
    pub flowlet_rows: Mutex<Vec<FlowletRow>>,
    /// By port number.
    pub ports: Box<[PortStats]>,
}

impl Default for PortStats {
    fn default() -> Self {
        Self {
            rx_packets: Counter::new(),
            rx_bytes: Counter::new(),
            tx_packets: Counter::new(),
            tx_bytes: Counter::new(),
            trimmed_sent: Counter::new(),
            trimmed_dropped: Counter::new(),
            pauses: Default::default(),
            link_pauses: Default::default(),
            icmp_sent: Counter::new(),
            control_received: Counter::new(),
            control_sent: Counter::new(),
            icmp_suppressed: Counter::new(),
            drops: [const { Counter::new() }; DropReason::COUNT],
            queues: Default::default(),
        }
    }
}

impl PortStats {
    /// Packets lost for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()].get()
    }

    /// Packets that the switch itself made because of this port.
    pub fn made(&self) -> u64 {
        self.icmp_sent.get() + self.control_sent.get()
    }

    /// Packets received here that did not leave: lost, or meant for the port itself.
    pub fn ended(&self) -> u64 {
        self.dropped_in_all() + self.control_received.get()
    }

    /// Packets lost for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}

impl WorkerStats {
    /// All zero, for a switch of `ports` ports.
    pub fn new(ports: usize) -> Arc<Self> {
        Arc::new(Self {
            turns: Counter::new(),
            busy_turns: Counter::new(),
            heartbeat: Counter::new(),
            pending: Counter::new(),
            events_lost: Counter::new(),
            flowlets: Arc::default(),
            flowlet_rows: Mutex::default(),
            ports: (0..ports).map(|_| PortStats::default()).collect(),
        })
    }
}
