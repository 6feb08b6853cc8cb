//! Why a packet was not forwarded: one reason for each, and a counter for each reason.

use common::wire;

common::drop_reasons! {
    /// The frame ends before its headers do, or claims more bytes than it has.
    Truncated => "truncated",
    /// A header contradicts itself: a wrong version or an impossible length.
    Malformed => "malformed",
    /// The checksum of the IPv4 header is wrong.
    BadChecksum => "bad_checksum",
    /// The destination MAC address is not the port's own, nor (of a MAC control frame) their group
    /// address.
    OtherMac => "other_mac",
    /// The frame carries a VLAN tag for which the port has no interface.
    UnknownVlan => "unknown_vlan",
    /// The EtherType is neither IPv4 nor IPv6.
    UnknownEtherType => "unknown_ether_type",
    /// The frame ends in its CSIG tag, or that is not the last tag: another one, of CSIG or of a
    /// VLAN, is behind it.
    BadCsig => "bad_csig",
    /// The same of its INT tag.
    BadInt => "bad_int",
    /// A MAC control frame is cut, or a PFC frame is shorter than its eight times (IEEE 802.3 annex
    /// 31).
    ControlLength => "control_length",
    /// A MAC control frame has an opcode that is neither PAUSE nor PFC.
    ControlOpcode => "control_opcode",
    /// A PFC frame has bits in its class enable vector that the standard reserves.
    ControlVector => "control_vector",
    /// The source or destination address must not appear on a wire (RFC 1812 §5.3.7, RFC 4291).
    Martian => "martian",
    /// The source is an address of the switch itself, and the port does not allow that
    /// (`accept_local`).
    OwnSource => "own_source",
    /// The route back to the source is missing, or leaves by another port than the rule of the port
    /// (`rp_filter`) demands.
    ReversePath => "reverse_path",
    /// The route back to the source leaves by another port than `source_validation` of the port
    /// allows, or there is none.
    SourceValidation => "source_validation",
    /// The port forwards no IPv4 packets: its `forwarding` is off while that of all interfaces is
    /// on.
    NotForwarding => "not_forwarding",
    /// The interface by which the IPv6 packet arrived has no IPv6 (`disable_ipv6`).
    Ipv6Disabled => "ipv6_disabled",
    /// The destination is a multicast or broadcast address, which this switch does not route.
    Multicast => "multicast",
    /// The packet has IPv4 options or an IPv6 hop-by-hop header, which only the kernel reads. The
    /// kernel's forwarding is off, or the port checks sources, which the kernel would not do.
    Options => "options",
    /// The packet arrived at a port that is down.
    IngressDown => "ingress_down",
    /// The TTL or hop limit ran out; answered with ICMP time exceeded.
    TtlExpired => "ttl_expired",
    /// No route covers the destination; answered with ICMP unreachable.
    NoRoute => "no_route",
    /// The route says: discard without an answer.
    Blackhole => "blackhole",
    /// The route says: answer that the host is unreachable.
    Unreachable => "unreachable",
    /// The route says: answer that communication is prohibited.
    Prohibited => "prohibited",
    /// The destination is the switch itself; the steering program should have kept the packet.
    Local => "local",
    /// Only the kernel can forward the packet; the steering program should have left it there.
    Punted => "punted",
    /// The route has no next hop that is alive.
    NoNextHop => "no_next_hop",
    /// The packet exceeds the MTU of its egress port; answered with ICMP.
    TooBig => "too_big",
    /// The egress port is down.
    EgressDown => "egress_down",
    /// Too many packets already wait for the next hop's MAC address.
    NeighbourFull => "neighbour_full",
    /// The next hop's MAC address did not become known in time; answered with ICMP host
    /// unreachable.
    NeighbourTimeout => "neighbour_timeout",
    /// The ring to the worker that owns the egress port is full.
    RingFull => "ring_full",
    /// The priority group of the ingress port, which is not lossless, has reached its threshold.
    IngressFull => "ingress_full",
    /// The headroom of a lossless priority group is used up: its peer sent on after it was told to
    /// wait.
    HeadroomFull => "headroom_full",
    /// The egress queue has reached its threshold.
    QueueFull => "queue_full",
    /// No place is left for any packet.
    BufferFull => "buffer_full",
    /// Weighted random early detection: the queue is long and the sender does not understand marks.
    Wred => "wred",
    /// The packet was trimmed, and there is no room for its headers either.
    TrimFull => "trim_full",
    /// The bridge does not know the source at this port, or the destination; the steering program
    /// should have left the frame to the kernel.
    StationUnknown => "station_unknown",
    /// The destination is behind the port at which the frame arrived.
    SamePort => "same_port",
    /// Both ports are isolated: nothing passes between them.
    PortIsolated => "port_isolated",
    /// The egress port is no member of the VLAN of the frame.
    VlanNotMember => "vlan_not_member",
    /// The spanning tree does not let the ingress or egress port forward.
    BridgeBlocked => "bridge_blocked",
    /// The bridged frame exceeds the MTU of its egress port, or its buffer has no room for a tag;
    /// nobody is told.
    FrameTooLong => "frame_too_long",
    /// The watchdog has shut the queue or group because of a PFC storm.
    PfcStorm => "pfc_storm",
    /// A message of in-network compute is cut, longer than it says, or has a wrong checksum or a
    /// field that there is not.
    ComputeMalformed => "compute_malformed",
    /// The message has not the checksum of UDP that it must have, or a wrong one.
    ComputeChecksum => "compute_checksum",
    /// The message is of a job that there is not at this switch.
    ComputeUnknownJob => "compute_unknown_job",
    /// The message was not sealed with the key of its job.
    ComputeTag => "compute_tag",
    /// The message is not from the address and port that joined with its rank.
    ComputeStranger => "compute_stranger",
    /// The message is of an epoch that is over, or that has not begun.
    ComputeEpoch => "compute_epoch",
    /// The contribution is to a chunk whose turn has not come, or names a slot or a rank that does
    /// not go with it.
    ComputeOutOfTurn => "compute_out_of_turn",
    /// The message is a result that nobody waits for.
    ComputeUnexpected => "compute_unexpected",
    /// Too many messages from the port already wait for their share of the worker, most of them of
    /// the job.
    ComputeFull => "compute_full",
}

impl From<wire::Error> for DropReason {
    fn from(error: wire::Error) -> Self {
        match error {
            wire::Error::Truncated { header: "csig", .. }
            | wire::Error::Field { header: "csig", .. } => Self::BadCsig,
            wire::Error::Truncated { header: "int", .. }
            | wire::Error::Field { header: "int", .. } => Self::BadInt,
            wire::Error::Truncated { .. } => Self::Truncated,
            wire::Error::Checksum { .. } => Self::BadChecksum,
            _ => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_and_named() {
        let mut labels: Vec<_> = DropReason::ALL
            .iter()
            .map(|reason| reason.label())
            .collect();
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(reason.describe().ends_with('.'), "{reason:?}");
        }
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), DropReason::COUNT);
    }
}
