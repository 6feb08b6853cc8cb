//! What the engine counts: packets, losses by reason, and how queue pairs and paths stand.

use crate::limits;
use crate::pauses::PauseCounters;
use crate::verbs::{
    Access, DropCounters, End, EndReason, MultipathConfig, PathStanding, PortSet, State, Traffic,
    Untagged,
};
use common::csig::SIGNALS;
use common::histogram::Histogram;
use common::time::{Span, Time};
use common::wire::csig::Signal;
use std::net::IpAddr;

impl EngineStatistics {
    /// Received packets that are accounted for: all but those that wait in reorder buffers.
    pub fn settled(&self) -> u64 {
        self.delivered
            + self.acknowledgements
            + self.notifications
            + self.changes
            + self.management
            + self.collective.messages
            + self.pauses().frames()
            + self.duplicates
            + self.drops.total()
    }

    /// Flow control that was received through all ports. A time at which two were paused counts
    /// twice.
    pub fn pauses(&self) -> PauseCounters {
        let mut all = PauseCounters::default();
        for port in &self.ports {
            all.add(&port.pauses);
        }
        all
    }
}

/// Counters of one port.
#[derive(Clone, Debug, Default)]
pub struct PortStatistics {
    /// Packets received, lost ones included.
    pub rx_packets: u64,
    /// Bytes received, Ethernet headers included.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Flow control that was received, and how long it kept each priority from sending.
    pub pauses: PauseCounters,
    /// What became of data packets on the sub-paths that lead through it.
    pub paths: PathCounters,
}

/// What became of the data packets that left through one port, on whatever sub-path of whatever
/// queue pair (MG-5). Outcomes are those of own requests: nobody acknowledges answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Packets sent, retransmissions and answers included.
    pub tx_packets: u64,
    /// Their bytes, Ethernet headers included.
    pub tx_bytes: u64,
    /// Those that were acknowledged.
    pub acknowledged: u64,
    /// Those of them that a switch marked: Congestion Experienced.
    pub marked: u64,
    /// Those whose payload a switch cut off.
    pub trimmed: u64,
    /// Those that were taken for lost.
    pub lost: u64,
}

impl PathCounters {
    /// Adds others.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.acknowledged += other.acknowledged;
        self.marked += other.marked;
        self.trimmed += other.trimmed;
        self.lost += other.lost;
    }
}

/// Counters of a whole engine. Each received packet is counted once: as delivered, as an
/// acknowledgement, notification of congestion, management, flow control or a duplicate, or as lost
/// with a reason. Packets that wait in frames of a reorder buffer are not counted yet.
#[derive(Clone, Debug, Default)]
pub struct EngineStatistics {
    /// Packets received, lost ones included.
    pub rx_packets: u64,
    /// Bytes received, Ethernet headers included.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Times that sending stopped because no frame was free.
    pub no_frame: u64,
    /// Packets that had come before and were acknowledged again. The first copy was only late, or
    /// its acknowledgement was lost, or the peer probed whether this side is still there.
    pub duplicates: u64,
    /// Data packets whose payload was delivered, some before their turn.
    pub delivered: u64,
    /// Acknowledgements of any kind that were taken in.
    pub acknowledgements: u64,
    /// Notifications of congestion (CNPs) that were taken in.
    pub notifications: u64,
    /// Changes of connections, probes of paths, and answers to both, that were taken in.
    pub changes: u64,
    /// Requests of operators to change a connection that were refused: they cannot be met.
    pub impossible_changes: u64,
    /// Messages of the connection manager that were taken in.
    pub management: u64,
    /// Connections without tags for CSIG or INT though both sides offer them, for their TPIDs are
    /// others.
    pub untagged_unlike: u64,
    /// The same: the data of the application left no room in the REQ to tell the own TPIDs.
    pub untagged_untold: u64,
    /// Collectives of the switches.
    pub collective: CollectiveStatistics,
    /// By port, also of those that there are not.
    pub ports: [PortStatistics; limits::PORTS],
    /// Events that were lost because nobody collected them.
    pub lost_events: u64,
    /// Received packets that were lost, by reason.
    pub drops: DropCounters,
    /// What queue pairs counted, also those that have ended.
    pub transport: TransportCounters,
    /// Round-trip times, one for each acknowledgement that gives one.
    pub round_trips: Histogram,
    /// Time from the turn that took a send request to that in which it succeeded, whether its
    /// application wanted a completion or not.
    pub send_latencies: Histogram,
}

/// Sums over all queue pairs that were ever there, of fields of [`QueuePairCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCounters {
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets that acknowledgements showed to be missing.
    pub fast_retransmits: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Times that the newest packet was sent again to learn what became of it.
    pub tail_probes: u64,
    /// Packets sent again because the others had overtaken them and nothing else was to be sent.
    pub stragglers: u64,
    /// Probes that were sent to silent peers.
    pub keep_alives: u64,
    /// Packets that came before one that was sent earlier.
    pub out_of_order: u64,
    /// Those of them that were placed in memory before their turn.
    pub early_placed: u64,
    /// Acknowledgements sent with the loss flag.
    pub loss_reports: u64,
    /// Times that a peer had no receive posted.
    pub rx_rnr: u64,
    /// Times that no receive was posted for a peer.
    pub tx_rnr: u64,
    /// Notifications of congestion (CNPs) sent.
    pub tx_cnps: u64,
    /// Changes of connections that peers were asked for (HT-22).
    pub changes_asked: u64,
    /// Changes of connections that this side and the peer agreed on, whoever asked (HT-22).
    pub changes: u64,
    /// Changes of connections that one of both refused.
    pub changes_refused: u64,
    /// Probes of paths that were put in force (HT-32), or that a flow compared with its own
    /// (HT-31).
    pub path_probes: u64,
    /// Times that a flow left a congested or slow path (HT-31).
    pub path_moves: u64,
    /// Probes of the round trip for congestion control (CC-6).
    pub round_trip_probes: u64,
    /// Those of them whose answer counted.
    pub round_trip_answers: u64,
    /// Packets sent with a tag for CSIG or INT (CS-8, SW-52).
    pub tx_tags: u64,
    /// What peers said of such tags: values.
    pub rx_signals: u64,
    /// The same: that packets came without.
    pub rx_unsigned: u64,
    /// The same: of signals, hops or paths that there are not.
    pub rx_bad_signals: u64,
}

impl TransportCounters {
    /// These of one queue pair.
    pub(crate) fn of(counters: &QueuePairCounters) -> Self {
        Self {
            retransmits: counters.retransmits,
            fast_retransmits: counters.fast_retransmits,
            timeouts: counters.timeouts,
            tail_probes: counters.tail_probes,
            stragglers: counters.stragglers,
            keep_alives: counters.keep_alives,
            out_of_order: counters.out_of_order,
            early_placed: counters.early_placed,
            loss_reports: counters.loss_reports,
            rx_rnr: counters.rx_rnr,
            tx_rnr: counters.tx_rnr,
            tx_cnps: counters.tx_cnps,
            changes_asked: counters.changes_asked,
            changes: counters.changes,
            changes_refused: counters.changes_refused,
            path_probes: counters.path_probes,
            path_moves: counters.path_moves,
            round_trip_probes: counters.round_trip_probes,
            round_trip_answers: counters.round_trip_answers,
            tx_tags: counters.tx_tags,
            rx_signals: counters.rx_signals,
            rx_unsigned: counters.rx_unsigned,
            rx_bad_signals: counters.rx_bad_signals,
        }
    }

    /// Adds what one queue pair counted from `before` to `now`.
    pub(crate) fn add_since(&mut self, before: &Self, now: &Self) {
        self.retransmits += now.retransmits - before.retransmits;
        self.fast_retransmits += now.fast_retransmits - before.fast_retransmits;
        self.timeouts += now.timeouts - before.timeouts;
        self.tail_probes += now.tail_probes - before.tail_probes;
        self.stragglers += now.stragglers - before.stragglers;
        self.keep_alives += now.keep_alives - before.keep_alives;
        self.out_of_order += now.out_of_order - before.out_of_order;
        self.early_placed += now.early_placed - before.early_placed;
        self.loss_reports += now.loss_reports - before.loss_reports;
        self.rx_rnr += now.rx_rnr - before.rx_rnr;
        self.tx_rnr += now.tx_rnr - before.tx_rnr;
        self.tx_cnps += now.tx_cnps - before.tx_cnps;
        self.changes_asked += now.changes_asked - before.changes_asked;
        self.changes += now.changes - before.changes;
        self.changes_refused += now.changes_refused - before.changes_refused;
        self.path_probes += now.path_probes - before.path_probes;
        self.path_moves += now.path_moves - before.path_moves;
        self.round_trip_probes += now.round_trip_probes - before.round_trip_probes;
        self.round_trip_answers += now.round_trip_answers - before.round_trip_answers;
        self.tx_tags += now.tx_tags - before.tx_tags;
        self.rx_signals += now.rx_signals - before.rx_signals;
        self.rx_unsigned += now.rx_unsigned - before.rx_unsigned;
        self.rx_bad_signals += now.rx_bad_signals - before.rx_bad_signals;
    }
}

/// Counters of one queue pair; they live as long as it does.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePairCounters {
    /// Data packets sent, retransmissions included.
    pub tx_packets: u64,
    /// Payload bytes sent, retransmissions included.
    pub tx_bytes: u64,
    /// Data packets received, those dropped included.
    pub rx_packets: u64,
    /// Payload bytes delivered.
    pub rx_bytes: u64,
    /// Messages that the peer acknowledged.
    pub tx_messages: u64,
    /// Messages delivered.
    pub rx_messages: u64,
    /// Those of them that were delivered before their turn (HT-39).
    pub early_messages: u64,
    /// Acknowledgements of any kind sent.
    pub tx_acks: u64,
    /// Acknowledgements of any kind received.
    pub rx_acks: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets that acknowledgements showed to be missing. They were sent again, except those that
    /// were acknowledged before it was their turn.
    pub fast_retransmits: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Times that the newest packet was sent again to learn what became of it.
    pub tail_probes: u64,
    /// Packets sent again because the others had overtaken them and nothing else was to be sent.
    pub stragglers: u64,
    /// Probes that were sent because the peer was silent.
    pub keep_alives: u64,
    /// Packets of which the peer got the headers alone, because a switch trimmed them.
    pub rx_trims: u64,
    /// Packets of which the headers alone came.
    pub trimmed: u64,
    /// Packets that came with Congestion Experienced.
    pub marked: u64,
    /// Times that the peer had no receive posted.
    pub rx_rnr: u64,
    /// Times that no receive was posted for the peer.
    pub tx_rnr: u64,
    /// Notifications of congestion (CNPs) received.
    pub rx_cnps: u64,
    /// Notifications of congestion (CNPs) sent.
    pub tx_cnps: u64,
    /// Packets received twice, probes of a silent connection included.
    pub duplicates: u64,
    /// Packets that came before one that was sent earlier (HT-44).
    pub out_of_order: u64,
    /// Those of them that were placed in memory before their turn (HT-40).
    pub early_placed: u64,
    /// Greatest distance in packets between one that came and the one that was expected (HT-44).
    pub reorder_depth_max: u32,
    /// Longest time that the oldest gap stayed open (HT-44).
    pub reorder_span_max: Span,
    /// Acknowledgements sent with the loss flag (HT-41).
    pub loss_reports: u64,
    /// Changes that the peer was asked for (HT-22).
    pub changes_asked: u64,
    /// Changes that this side and the peer agreed on, whoever asked (HT-22).
    pub changes: u64,
    /// Changes that one of both refused.
    pub changes_refused: u64,
    /// Probes of paths that were put in force (HT-32), or that a flow compared with its own
    /// (HT-31).
    pub path_probes: u64,
    /// Times that a flow left a congested or slow path (HT-31).
    pub path_moves: u64,
    /// Probes of the round trip for congestion control (CC-6).
    pub round_trip_probes: u64,
    /// Those of them whose answer counted.
    pub round_trip_answers: u64,
    /// Packets sent with a tag for CSIG or INT (CS-8, SW-52).
    pub tx_tags: u64,
    /// What the peer said of such tags: values.
    pub rx_signals: u64,
    /// The same: that packets came without.
    pub rx_unsigned: u64,
    /// The same: of signals, hops or paths that there are not.
    pub rx_bad_signals: u64,
}

/// Collectives of the switches, of a whole engine.
#[derive(Clone, Debug)]
pub struct CollectiveStatistics {
    /// Memberships that were made.
    pub memberships: u64,
    /// Messages of switches that were taken in.
    pub messages: u64,
    /// Memberships that ended, by [`EndReason::index`].
    pub ends: [u64; EndReason::COUNT],
    /// Times that applications went on without the switch, by why they said, in the same order.
    pub fallbacks: [u64; EndReason::COUNT],
    /// What all memberships counted so far.
    pub sums: MemberCounters,
}

impl Default for CollectiveStatistics {
    fn default() -> Self {
        Self {
            memberships: 0,
            messages: 0,
            ends: [0; EndReason::COUNT],
            fallbacks: [0; EndReason::COUNT],
            sums: MemberCounters::default(),
        }
    }
}

/// Counters of a membership of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Contributions sent, without retransmissions.
    pub contributions: u64,
    /// Contributions sent again.
    pub retransmissions: u64,
    /// Signs of life sent.
    pub keep_alives: u64,
    /// Results that were awaited.
    pub results: u64,
    /// Answers that a result is not complete.
    pub partials: u64,
    /// Results with a mark of congestion.
    pub marks: u64,
    /// Times that marks halved the window.
    pub cuts: u64,
    /// Collectives that were done.
    pub completed: u64,
    /// Collectives that failed with their epoch.
    pub failed: u64,
}

impl MemberCounters {
    /// Adds what a membership counted from `before` to `now`.
    pub(crate) fn add_since(&mut self, before: &Self, now: &Self) {
        self.contributions += now.contributions - before.contributions;
        self.retransmissions += now.retransmissions - before.retransmissions;
        self.keep_alives += now.keep_alives - before.keep_alives;
        self.results += now.results - before.results;
        self.partials += now.partials - before.partials;
        self.marks += now.marks - before.marks;
        self.cuts += now.cuts - before.cuts;
        self.completed += now.completed - before.completed;
        self.failed += now.failed - before.failed;
    }
}

/// One membership of a job as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStatistics {
    /// Its number.
    pub member: u32,
    /// The job.
    pub job: u32,
    /// Its rank at the leaf.
    pub rank: u16,
    /// Its rank in the whole job.
    pub world: u16,
    /// Members at the leaf.
    pub size: u16,
    /// Which attempt of the members it is.
    pub generation: u32,
    /// The epoch; zero before the job is complete.
    pub epoch: u32,
    /// joining, running, leaving or over.
    pub phase: &'static str,
    /// Why it ended, if it did.
    pub end: Option<End>,
    /// Slots that it uses.
    pub slots: usize,
    /// Chunks that may be under way.
    pub window: u32,
    /// Chunks that are.
    pub under_way: u32,
    /// Collectives that are not complete.
    pub waiting: usize,
    /// Chunks of the epoch that are complete.
    pub chunks: u64,
    /// The time that results take, once measured.
    pub round_trip: Option<Span>,
    /// What it counted.
    pub counters: MemberCounters,
}

/// How a shared receive queue stands (`ibv_query_srq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedQueueStatistics {
    /// Receives that may be posted.
    pub max_wr: u32,
    /// The limit that is set; 0 if none is, or once it was reached.
    pub limit: u32,
    /// Receives that are posted and not taken.
    pub posted: u32,
    /// Queue pairs that take receives here.
    pub queue_pairs: usize,
}

/// One queue pair as it stands.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairStatistics {
    /// Its number.
    pub qpn: u32,
    /// Its state.
    pub state: State,
    /// The peer's number; zero before it is known.
    pub remote_qpn: u32,
    /// The peer's address.
    pub remote: Option<IpAddr>,
    /// The own address that packets leave from, once it is chosen.
    pub local: Option<IpAddr>,
    /// What both sides agreed on, with all changes since; `None`: plain RoCEv2.
    pub agreed: Option<MultipathConfig>,
    /// Why its packets have no tags for CSIG or INT though this side offers them.
    pub untagged: Option<Untagged>,
    /// What its application tells of its traffic.
    pub traffic: Traffic,
    /// Bytes of payload in a full packet.
    pub path_mtu: u16,
    /// The ports that its packets may leave through.
    pub ports: PortSet,
    /// Number of sub-paths.
    pub paths: usize,
    /// Packets in flight.
    pub in_flight: u32,
    /// Most packets that may be in flight.
    pub window: u32,
    /// The algorithm of congestion control.
    pub congestion: &'static str,
    /// Whether congestion signals decided the last time; `None`: they never do.
    pub guided: Option<bool>,
    /// Packets that wait in frames of the reorder buffer.
    pub reordering: u32,
    /// Send requests that have not completed.
    pub sends_outstanding: usize,
    /// Receives posted and not used.
    pub receives_posted: usize,
    /// Smoothed round-trip time, once measured.
    pub rtt: Option<Span>,
    /// The retransmission time-out that stands.
    pub rto: Span,
    /// What was counted.
    pub counters: QueuePairCounters,
}

/// One sub-path of a queue pair as it stands.
#[derive(Clone, Copy, Debug)]
pub struct PathStatistics {
    /// Path ID of MPEH.
    pub path: u8,
    /// UDP source port of the packets sent on it.
    pub entropy: u16,
    /// Data packets sent.
    pub tx_packets: u64,
    /// Data packets received.
    pub rx_packets: u64,
    /// Data packets sent on it that were acknowledged.
    pub acknowledged: u64,
    /// Data packets sent on it that were taken for lost.
    pub lost: u64,
    /// Smoothed round-trip time, once measured.
    pub rtt: Option<Span>,
    /// Shortest round-trip time measured.
    pub rtt_min: Option<Span>,
    /// One-way delay against the fastest path, as the peer measured it.
    pub delay_above_best: Option<Span>,
    /// Not used at present because packets on it vanished.
    pub avoided: bool,
    /// What it is used for.
    pub standing: PathStanding,
    /// The share of packets, or of flowlets, against that of other paths.
    pub weight: u8,
    /// What the network said of it (CS-10).
    pub signals: [Option<PathSignal>; SIGNALS],
    /// It takes CSIG tags off, as far as is known (CS-9).
    pub stripped: bool,
    /// What is in flight on its worst link, if the peer told of that (SW-52).
    pub load: Option<PathLoad>,
}

/// What telemetry says of the worst link of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLoad {
    /// The number of the hop, from one on: the first is that next to the sender.
    pub hop: u8,
    /// The path has more hops than telemetry has room for: a later one may be worse.
    pub is_cut: bool,
    /// What is in flight on it, in 1024ths of its delay-bandwidth product.
    pub in_flight: u64,
    /// Bytes in its queue.
    pub queue: u64,
    /// Its speed in bits a second.
    pub speed: u64,
    /// When it came.
    pub at: Time,
}

/// One signal of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSignal {
    /// Which.
    pub signal: Signal,
    /// The last value: bits a second, millionths of the capacity, or nanoseconds.
    pub last: u64,
    /// The moving average, in which each value counts for an eighth.
    pub smoothed: u64,
    /// The device that wrote the last value.
    pub locator: u16,
    /// No device has replaced what the packet began with: none of them knows the signal, or all
    /// are idle.
    pub is_neutral: bool,
    /// That device leads to a host.
    pub is_last_hop: bool,
    /// When it came.
    pub at: Time,
}

/// How a memory window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowStatistics {
    /// Its number.
    pub window: u32,
    /// Its key; it opens nothing while the window is not bound.
    pub rkey: u32,
    /// What it is bound to, if it is.
    pub bound: Option<BoundWindow>,
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundWindow {
    /// The queue pair whose peer may use it.
    pub qpn: u32,
    /// Local key of the region.
    pub lkey: u32,
    /// The first byte, from the beginning of the region.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What peers may do, and whether they call the first byte zero.
    pub access: Access,
}
