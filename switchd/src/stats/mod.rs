//! What a worker counts. The worker alone writes; control may read at any time.

mod compute;
mod csig;
mod flows;
pub mod load;
mod on_demand;

use crate::drop::DropReason;
use crate::limits::{CLASSES, PRIORITIES};
use common::sync::counter::Counter;
use common::time::{Span, Time};
pub use compute::{ComputeStats, JobRow};
pub use csig::{CsigStats, Signed};
pub use flows::{ElephantRow, FlowletRow, FlowletStats, QueueFlows};
use on_demand::OnDemand;
use std::sync::Arc;

/// Counters of one egress queue.
#[derive(Debug, Default)]
pub struct QueueStats {
    /// Packets accepted so far, also those that were sent at once and never waited in it.
    pub enqueued_packets: Counter,
    /// Bytes accepted so far.
    pub enqueued_bytes: Counter,
    /// Packets that were accepted and lost in the queue so far: the port went down, or a storm was
    /// dropped.
    pub discarded_packets: Counter,
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
    /// Bytes times nanoseconds that they were in the queue, until [`Self::shown_at`]; it begins
    /// anew at 2^64.
    pub byte_time: Counter,
    /// When these counters were shown, in nanoseconds of the worker's clock.
    pub shown_at: Counter,
    /// How its bytes were shared among flows, when control asked last.
    pub flows: QueueFlows,
    /// How often control asked for the watermark to be cleared; control alone writes it.
    pub clear_peak: Counter,
    /// How often it was.
    pub cleared_peak: Counter,
}

impl QueueStats {
    /// All but those by which control asks for the watermark to be cleared.
    fn all(&self) -> [&Counter; 14] {
        [
            &self.enqueued_packets,
            &self.enqueued_bytes,
            &self.discarded_packets,
            &self.dropped_packets,
            &self.depth_packets,
            &self.depth_bytes,
            &self.depth_cells,
            &self.peak_cells,
            &self.sent_packets,
            &self.sent_bytes,
            &self.trimmed_packets,
            &self.marked_packets,
            &self.byte_time,
            &self.shown_at,
        ]
    }

    /// Bytes times nanoseconds that they were in the queue until `now`: what is in it has been
    /// there since it was shown.
    pub fn byte_time_at(&self, now: Time) -> u64 {
        let since = now.nanos().saturating_sub(self.shown_at.get());
        let rest = self.depth_bytes.get().wrapping_mul(since);
        self.byte_time.get().wrapping_add(rest)
    }

    /// Most cells since the watermark was cleared, also when the queue has not been used since.
    pub fn watermark(&self) -> u64 {
        if self.clear_peak.get() == self.cleared_peak.get() {
            self.peak_cells.get()
        } else {
            self.depth_cells.get()
        }
    }
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
    pub restored: Counter,
    /// When the last one was found, in nanoseconds of the worker's clock; zero: never.
    pub last_storm: Counter,
    /// Nanoseconds that it was paused until [`PortStats::pauses_at`].
    pub paused_nanos: Counter,
    /// When its pause ends or ended, in nanoseconds of the worker's clock.
    pub paused_until: Counter,
}

impl PauseStats {
    fn all(&self) -> [&Counter; 11] {
        [
            &self.received_xoff,
            &self.received_xon,
            &self.ignored,
            &self.sent_xoff,
            &self.sent_xon,
            &self.storm_state,
            &self.storms,
            &self.restored,
            &self.last_storm,
            &self.paused_nanos,
            &self.paused_until,
        ]
    }

    /// Whether it is paused at `now`.
    pub fn is_paused(&self, now: Time) -> bool {
        now.nanos() < self.paused_until.get()
    }

    /// How long it was paused until `now`. The worker has counted the part before `counted`.
    pub fn paused(&self, counted: &Counter, now: Time) -> Span {
        let end = now.nanos().min(self.paused_until.get());
        let since = end.saturating_sub(counted.get());
        Span::from_nanos(self.paused_nanos.get() + since)
    }
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
    /// Trimmed packets that were lost, whatever the reason: each one trimmed is sent, lost, or
    /// waits.
    pub trimmed_dropped: Counter,
    /// Pauses, by priority; only the port's owner counts here.
    pub pauses: [PauseStats; PRIORITIES],
    /// When the worker brought them up to date, in nanoseconds of its clock.
    pub pauses_at: Counter,
    /// Bit n: an operator holds queue n.
    pub held: Counter,
    /// PAUSE frames received, those sent, and those received but not obeyed.
    pub link_pauses: [Counter; 3],
    /// ICMP messages that the switch itself sent because of packets from this port.
    pub icmp_sent: Counter,
    /// Congestion notifications that the switch itself made because of packets that leave by this
    /// port.
    pub cnps_made: Counter,
    /// Frames from here that went on between two stations of a bridge so far.
    pub bridged_packets: Counter,
    /// Packets received for an interface that is no port, and routed.
    pub interface_packets: Counter,
    /// Messages of in-network compute received and taken: they end here.
    pub compute_received: Counter,
    /// Messages of in-network compute that the switch itself sent because of members behind it.
    pub compute_sent: Counter,
    /// MAC control frames received: they end here.
    pub control_received: Counter,
    /// MAC control frames sent.
    pub control_sent: Counter,
    /// Packets received here that were too long for the link they left by, and were fragmented.
    pub fragmented: Counter,
    /// What became of them: fragments.
    pub fragments: Counter,
    /// ICMP messages that the rate limit or a lack of frames suppressed.
    pub icmp_suppressed: Counter,
    /// ICMP messages that are counted as sent, and were left to the kernel: it alone knows the way.
    pub icmp_by_kernel: Counter,
    /// Congestion signals of packets that leave by it.
    pub csig: CsigStats,
    /// Packets with telemetry that left, by what became of the tag: see [`Signed`].
    pub int_signed: [Counter; Signed::COUNT],
    /// Packets that were received here and lost, by reason. Those that were on their way to the
    /// device when a port went down are counted at the port that they were to leave by.
    pub drops: [Counter; DropReason::COUNT],
    /// Those of them that were lost for lack of headroom, by priority group.
    pub headroom_lost: [Counter; PRIORITIES],
    /// The egress queues; only the port's owner counts here.
    pub queues: [QueueStats; CLASSES],
}

/// What a worker knows of elephants: [`elephants::Counters`](crate::traffic::elephants::Counters).
#[derive(Debug, Default)]
pub struct ElephantStats {
    /// Flows that are followed now.
    pub flows: Counter,
    /// Those of them that are elephants.
    pub elephants: Counter,
    /// Moves to a lower queue.
    pub demoted: Counter,
    /// Moves back.
    pub restored: Counter,
    /// Packets that stayed in a queue because others of their flow were still there.
    pub waiting: Counter,
    /// Flows whose place was given to another one.
    pub evicted: Counter,
    /// Packets whose flow found no place.
    pub unfollowed: Counter,
    /// The elephants themselves, and flows on their way back.
    pub rows: OnDemand<ElephantRow>,
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
    /// Longest time in nanoseconds by which a turn began after it was due: at once after the
    /// beginning of one that had something to do, or when a sleep was to end. It contains the turn
    /// itself and the time that the kernel's scheduler gave to other threads. How late a packet
    /// wakes the worker from a sleep is not known.
    pub worst_gap: Counter,
    /// How often control asked for `worst_gap` to be cleared; control alone writes it.
    pub clear_gap: Counter,
    /// How often the worker cleared it.
    pub cleared_gap: Counter,
    /// Packets that wait for a neighbour's MAC address now.
    pub pending: Counter,
    /// Events that were lost because control did not keep up; each is repeated later.
    pub events_lost: Counter,
    /// Flowlets of dynamic load balancing.
    pub flowlets: Arc<FlowletStats>,
    /// Some of the flows in its table.
    pub flowlet_rows: OnDemand<FlowletRow>,
    /// Elephants.
    pub elephants: ElephantStats,
    /// In-network compute.
    pub compute: Arc<ComputeStats>,
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
            pauses_at: Counter::new(),
            held: Counter::new(),
            link_pauses: Default::default(),
            icmp_sent: Counter::new(),
            cnps_made: Counter::new(),
            bridged_packets: Counter::new(),
            interface_packets: Counter::new(),
            compute_received: Counter::new(),
            compute_sent: Counter::new(),
            control_received: Counter::new(),
            control_sent: Counter::new(),
            fragmented: Counter::new(),
            fragments: Counter::new(),
            icmp_suppressed: Counter::new(),
            icmp_by_kernel: Counter::new(),
            csig: CsigStats::default(),
            int_signed: Default::default(),
            drops: [const { Counter::new() }; DropReason::COUNT],
            headroom_lost: Default::default(),
            queues: Default::default(),
        }
    }
}

impl PortStats {
    /// Begins to count from zero, as for another port. The worker calls it.
    pub fn restart(&self) {
        // All of them by name: one that is new here cannot be left out.
        let Self {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            trimmed_sent,
            trimmed_dropped,
            pauses,
            pauses_at,
            held,
            link_pauses,
            icmp_sent,
            cnps_made,
            bridged_packets,
            interface_packets,
            compute_received,
            compute_sent,
            control_received,
            control_sent,
            fragmented,
            fragments,
            icmp_suppressed,
            icmp_by_kernel,
            csig,
            int_signed,
            drops,
            headroom_lost,
            queues,
        } = self;
        let packets = [
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            trimmed_sent,
            trimmed_dropped,
            pauses_at,
            held,
            icmp_sent,
            cnps_made,
            bridged_packets,
            interface_packets,
            compute_received,
            compute_sent,
            control_received,
            control_sent,
            fragmented,
            fragments,
            icmp_suppressed,
            icmp_by_kernel,
        ];
        let pauses = pauses.iter().flat_map(PauseStats::all);
        let queues = queues.iter().flat_map(QueueStats::all);
        let all = packets
            .into_iter()
            .chain(link_pauses)
            .chain(drops)
            .chain(headroom_lost)
            .chain(csig.all())
            .chain(int_signed);
        for counter in all.chain(pauses).chain(queues) {
            counter.set(0);
        }
    }

    /// Packets lost for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()].get()
    }

    /// Packets that the switch itself made because of this port.
    pub fn made(&self) -> u64 {
        let answers = self.icmp_sent.get() + self.cnps_made.get() + self.compute_sent.get();
        answers + self.control_sent.get() + self.fragments.get()
    }

    /// Packets received or made here that did not leave: lost, meant for the port itself,
    /// fragmented, or left to the kernel.
    pub fn ended(&self) -> u64 {
        let taken = self.compute_received.get() + self.icmp_by_kernel.get();
        self.dropped_in_all() + self.control_received.get() + self.fragmented.get() + taken
    }

    /// Packets lost for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}

impl WorkerStats {
    /// Notes that a turn began so long after it was due. The worker calls it.
    #[inline]
    pub fn note_gap(&self, gap: Span) {
        let asked = self.clear_gap.get();
        if asked != self.cleared_gap.get() {
            self.cleared_gap.set(asked);
            self.worst_gap.set(0);
        }
        if gap.nanos() > self.worst_gap.get() {
            self.worst_gap.set(gap.nanos());
        }
    }

    /// The longest such gap since it was cleared.
    pub fn longest_gap(&self) -> Span {
        if self.clear_gap.get() == self.cleared_gap.get() {
            Span::from_nanos(self.worst_gap.get())
        } else {
            Span::ZERO
        }
    }

    /// All zero, for a switch of `ports` ports.
    pub fn new(ports: usize) -> Arc<Self> {
        Arc::new(Self {
            turns: Counter::new(),
            busy_turns: Counter::new(),
            worst_gap: Counter::new(),
            clear_gap: Counter::new(),
            cleared_gap: Counter::new(),
            heartbeat: Counter::new(),
            pending: Counter::new(),
            events_lost: Counter::new(),
            flowlets: Arc::default(),
            flowlet_rows: OnDemand::default(),
            elephants: ElephantStats::default(),
            compute: Arc::default(),
            ports: (0..ports).map(|_| PortStats::default()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-7: a gap that was cleared is not shown any more, also while the worker has nothing to do.
    #[test]
    fn the_longest_gap_can_be_cleared() {
        let stats = WorkerStats::new(1);
        stats.note_gap(Span::from_micros(70));
        stats.note_gap(Span::from_micros(30));
        assert_eq!(stats.longest_gap(), Span::from_micros(70));
        stats.clear_gap.add(1);
        assert_eq!(stats.longest_gap(), Span::ZERO);
        stats.note_gap(Span::from_micros(20));
        assert_eq!(stats.longest_gap(), Span::from_micros(20));
    }

    /// MG-7: a port that has the number of another one begins to count from zero, also what it
    /// bridges and what it forwards for interfaces.
    #[test]
    fn another_port_begins_from_zero() {
        let stats = PortStats::default();
        stats.rx_packets.add(7);
        stats.bridged_packets.add(5);
        stats.interface_packets.add(3);
        assert_ne!(format!("{stats:?}"), format!("{:?}", PortStats::default()));
        stats.restart();
        assert_eq!(format!("{stats:?}"), format!("{:?}", PortStats::default()));
    }

    /// SW-31: the time of a pause that runs grows while nobody counts, and not beyond its end.
    #[test]
    fn pauses_are_counted_to_now() {
        let stats = PortStats::default();
        let pause = &stats.pauses[3];
        pause.paused_nanos.set(1000);
        stats.pauses_at.set(5000);
        pause.paused_until.set(7000);
        let paused = |now| {
            pause
                .paused(&stats.pauses_at, Time::from_nanos(now))
                .nanos()
        };
        assert_eq!(
            (paused(5000), paused(6000), paused(9000)),
            (1000, 2000, 3000)
        );
        assert!(pause.is_paused(Time::from_nanos(6999)));
        assert!(!pause.is_paused(Time::from_nanos(7000)));
    }
}
