//! What the engine counts: packets, losses by reason, and the state of queue pairs and paths.

use crate::engine::Granularity;
use crate::net::pfc::PauseCounters;
use crate::transport::State;
use common::time::Span;
use std::fmt;
use std::net::IpAddr;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+) => {
        /// Why a packet that came or should have gone was lost here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name of the counter.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }
    };
}

drop_reasons! {
    /// Not Ethernet with IPv4 or IPv6, cut short, a fragment, or a length that lies.
    MalformedHeaders = "malformed_headers",
    /// Not UDP to the port of RoCEv2.
    NotRoce = "not_roce",
    /// A transport header that is cut short, of another version, or with wrong padding.
    MalformedTransport = "malformed_transport",
    /// An opcode that reliable connections do not have, or that this queue pair did not agree to.
    UnknownOpcode = "unknown_opcode",
    /// The invariant checksum is wrong.
    BadIcrc = "bad_icrc",
    /// No queue pair of that number.
    UnknownQueuePair = "unknown_queue_pair",
    /// The queue pair does not receive in its state.
    QueuePairState = "queue_pair_state",
    /// The addresses are not those of the queue pair's connection.
    WrongPeer = "wrong_peer",
    /// The partition key is not the default one.
    WrongPartition = "wrong_partition",
    /// Too far ahead for the reorder buffer.
    BeyondWindow = "beyond_window",
    /// Early, and the engine holds as many early packets as it may.
    ReorderMemory = "reorder_memory",
    /// Out of order on a queue pair that does not reorder.
    OutOfOrder = "out_of_order",
    /// No receive was posted; the peer was told to wait.
    ReceiverNotReady = "receiver_not_ready",
    /// An acknowledgement of what was never sent.
    ImpossibleAcknowledgement = "impossible_acknowledgement",
    /// The queue pair has ended: before the packet came, which is then late or sent again for want of an acknowledgement, or
    /// while it waited in the reorder buffer.
    QueuePairEnded = "queue_pair_ended",
    /// The request was refused, which ends the queue pair.
    RequestRefused = "request_refused",
    /// A connection message that is malformed or of an unknown kind.
    MalformedManagement = "malformed_management",
    /// A connection message about no connection that is known.
    UnknownConnection = "unknown_connection",
    /// A connection request that found no room.
    ConnectionTableFull = "connection_table_full",
    /// A MAC control frame that is not understood.
    MalformedControl = "malformed_mac_control",
}

/// Number of reasons.
pub const DROP_REASONS: usize = DropReason::ALL.len();

/// Lost packets by reason.
#[derive(Clone, Debug)]
pub struct DropCounters([u64; DROP_REASONS]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; DROP_REASONS])
    }
}

impl DropCounters {
    pub(crate) fn add(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Packets lost for this reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|&reason| (reason, self.get(reason)))
    }

    /// Packets lost for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl EngineStatistics {
    /// Received packets of which it is known what became of them.
    pub fn settled(&self) -> u64 {
        self.delivered
            + self.acknowledgements
            + self.management
            + self.pauses.frames()
            + self.duplicates
            + self.drops.total()
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Counters of a whole engine. Each packet that was received is delivered, an acknowledgement, management, flow
/// control, a duplicate or lost for a reason, unless it still waits in a reorder buffer.
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
    /// Packets that had come before and were acknowledged again. Nothing is lost with them: the peer
    /// took for lost what was only late, or its acknowledgement was lost.
    pub duplicates: u64,
    /// Data packets whose payload was delivered.
    pub delivered: u64,
    /// Acknowledgements of any kind that were taken in.
    pub acknowledgements: u64,
    /// Messages of the connection manager that were taken in.
    pub management: u64,
    /// Flow control that was received, and how long it kept each priority from sending.
    pub pauses: PauseCounters,
    /// Events that were lost because nobody collected them.
    pub lost_events: u64,
    /// Received packets that were lost, by reason.
    pub drops: DropCounters,
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
    /// Payload bytes delivered in order.
    pub rx_bytes: u64,
    /// Messages that the peer acknowledged.
    pub tx_messages: u64,
    /// Messages delivered.
    pub rx_messages: u64,
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
    /// Times that the peer had no receive posted.
    pub rx_rnr: u64,
    /// Times that no receive was posted for the peer.
    pub tx_rnr: u64,
    /// Packets received twice.
    pub duplicates: u64,
    /// Packets that came before one that was sent earlier (HT-44).
    pub out_of_order: u64,
    /// Greatest distance in packets between one that came and the one that was expected (HT-44).
    pub reorder_depth_max: u32,
    /// Longest time that the oldest gap stayed open (HT-44).
    pub reorder_span_max: Span,
    /// Acknowledgements sent with the loss flag (HT-41).
    pub loss_reports: u64,
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
    /// Whether multipath was agreed on; plain RoCEv2 otherwise.
    pub multipath: bool,
    /// What its scheduler decides for at once, as agreed; flows without multipath.
    pub granularity: Granularity,
    /// Bytes of payload in a full packet.
    pub path_mtu: u16,
    /// Number of sub-paths.
    pub paths: usize,
    /// Packets in flight.
    pub in_flight: u32,
    /// Most packets that may be in flight.
    pub window: u32,
    /// Packets in the reorder buffer.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let mut counters = DropCounters::default();
        let mut labels: Vec<_> = DropReason::ALL
            .iter()
            .map(|reason| reason.label())
            .collect();
        for &reason in DropReason::ALL {
            counters.add(reason);
        }
        assert!(counters.iter().all(|(_, count)| count == 1));
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), DROP_REASONS);
        assert_eq!(counters.total(), DROP_REASONS as u64);
    }
}
