//! Why packets are lost here, each with a name and a counter.

use std::fmt;

common::drop_reasons! {
    /// Not Ethernet with IPv4 or IPv6, cut short, a fragment, or a length that lies.
    MalformedHeaders => "malformed_headers",
    /// Not UDP to the port of RoCEv2.
    NotRoce => "not_roce",
    /// A transport header that is cut short, of another version, or with wrong padding.
    MalformedTransport => "malformed_transport",
    /// An opcode that reliable connections do not have, or that this queue pair did not agree to.
    UnknownOpcode => "unknown_opcode",
    /// The invariant checksum is wrong.
    BadIcrc => "bad_icrc",
    /// A switch cut the payload off; the peer is asked to send the packet again.
    Trimmed => "trimmed",
    /// No queue pair of that number.
    UnknownQueuePair => "unknown_queue_pair",
    /// The queue pair does not receive in its state.
    QueuePairState => "queue_pair_state",
    /// The addresses are not those of the queue pair's connection.
    WrongPeer => "wrong_peer",
    /// The cookie in the extension header is not the one that the peer was told.
    WrongCookie => "wrong_cookie",
    /// A change of the connection, or an answer to one or to a probe, that is not awaited: an old
    /// one, or one of a connection whose sides did not agree on changes.
    UnexpectedChange => "unexpected_change",
    /// The partition key, of a packet or of a connection request, is of no partition that hears it.
    WrongPartition => "wrong_partition",
    /// Too far ahead for the reorder buffer.
    BeyondWindow => "beyond_window",
    /// Early, and the engine holds as many early packets as it may.
    ReorderMemory => "reorder_memory",
    /// Out of order on a queue pair that does not reorder.
    OutOfOrder => "out_of_order",
    /// No receive was posted; the peer was told to wait.
    ReceiverNotReady => "receiver_not_ready",
    /// It made an early message whole, of a service without an order, that cannot be given out
    /// before its turn: no receive is posted, or it would be refused. The peer sends it again.
    NotYet => "not_yet",
    /// An acknowledgement of what was never sent, or a NAK about what is not on its way.
    ImpossibleAcknowledgement => "impossible_acknowledgement",
    /// A notification of congestion for a queue pair that has nothing on its way.
    UnexpectedNotification => "unexpected_notification",
    /// The queue pair has ended, or ended while the packet waited in the reorder buffer.
    QueuePairEnded => "queue_pair_ended",
    /// The request was refused, which ends the queue pair.
    RequestRefused => "request_refused",
    /// An answer to an RDMA READ or an atomic operation of another kind or length than was asked,
    /// or with a NAK in it.
    WrongAnswer => "wrong_answer",
    /// An RDMA READ or atomic operation that came before, but whose answer is not remembered.
    ForgottenAnswer => "forgotten_answer",
    /// Its sequence number is among those of the answers to an RDMA READ before it.
    InsideRead => "inside_read",
    /// A message of in-network compute that cannot be read.
    CollectiveMalformed => "collective_malformed",
    /// One without the checksum of UDP that it must have, or with a wrong one.
    CollectiveChecksum => "collective_checksum",
    /// One from another address or port than those of the leaf.
    CollectiveSource => "collective_wrong_source",
    /// One without the tag that only those can make who have the key of the job.
    CollectiveKey => "collective_wrong_key",
    /// One for a job or a rank that no application of this host has, or had a moment ago.
    CollectiveMember => "collective_unknown_member",
    /// One for a member that leaves, or has ended a moment ago: it was under way, or came twice.
    CollectiveEnded => "collective_ended_member",
    /// One that members say, and not switches.
    CollectiveUpward => "collective_upward",
    /// One of another epoch or attempt than the member's.
    CollectiveEpoch => "collective_wrong_epoch",
    /// One that says nothing to a member that joins or takes part.
    CollectivePhase => "collective_wrong_phase",
    /// An admission with vectors that are too short, or longer than was asked for.
    CollectiveTerms => "collective_wrong_terms",
    /// A result that came before, or that is not awaited; an admission that came before.
    CollectiveRepeated => "collective_repeated",
    /// A result of another work, slot or length than what was contributed.
    CollectiveUnlike => "collective_unlike",
    /// A connection message that is malformed or of an unknown kind.
    MalformedManagement => "malformed_management",
    /// A connection message about no connection that is known.
    UnknownConnection => "unknown_connection",
    /// A connection message about the connection of another address.
    ManagementSource => "cm_wrong_source",
    /// A connection message that does not name the peer's side of the connection.
    ManagementId => "cm_wrong_id",
    /// An answer to another transaction than the connection's.
    ManagementTransaction => "cm_wrong_transaction",
    /// A request to disconnect, or a path, for another queue pair than the connection's.
    ManagementQueuePair => "cm_wrong_queue_pair",
    /// A connection message that does not fit the phase of its connection.
    ManagementPhase => "cm_out_of_place",
    /// A connection request or reply of a queue pair that is connected; the connection is probed.
    StaleConnection => "stale_connection",
    /// A connection request for a service or transport that is not offered; refused.
    NoService => "no_service",
    /// A connection request with a longer path MTU than the link carries; the refusal says which
    /// one is accepted.
    ManagementMtu => "cm_path_mtu",
    /// A connection request of an address that has too many half-open connections; refused.
    HalfOpen => "half_open",
    /// A connection request that found no room.
    ConnectionTableFull => "connection_table_full",
    /// As many answers to strangers wait as there may be; this one got none.
    AnswersFull => "answers_full",
    /// A MAC control frame that is not understood.
    MalformedControl => "malformed_mac_control",
}

/// Number of reasons.
pub const DROP_REASONS: usize = DropReason::COUNT;

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

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
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
