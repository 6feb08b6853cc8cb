//! What is recorded of a traced packet.

use crate::drop::DropReason;
use crate::id::{GroupId, NextHopId, PortId, TraceId};
use crate::packet::Version;
use common::time::{Span, Time};
use common::xdp::frame::Frame;

/// Bytes of a frame that are kept, from the destination address on: the longest headers that are
/// looked at (Ethernet with a tag 18, IPv6 40, UDP 8, BTH 12, MPEH and others 32) and some payload.
pub const SNAP: usize = 128;

/// What is looked at of a frame: its first bytes, and how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a> {
    /// The first bytes, with all headers.
    pub bytes: &'a [u8],
    /// Bytes of the frame; none is longer than this says.
    pub len: u16,
}

impl<'a> From<&'a [u8]> for Excerpt<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        Self { bytes, len }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Excerpt<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        bytes[..].into()
    }
}

impl<'a> From<&'a Vec<u8>> for Excerpt<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        bytes[..].into()
    }
}

impl<'a> From<&'a Frame> for Excerpt<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self {
            bytes: frame.bytes(),
            len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
        }
    }
}

/// How a next hop was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// There was only one.
    Single,
    /// By the flow's hash.
    Ecmp,
    /// By the quality of the ports, for this flowlet.
    Flowlet,
    /// By the quality of the ports, for this packet.
    Sprayed,
    /// By the quality of the ports and the hints of the sender, for this flowlet.
    Hinted,
    /// The same, because the sender has left a sub-path.
    Switched,
}

/// The part of the buffer that pays for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The minimum that belongs to the queue or group alone.
    Guaranteed,
    /// What all share.
    Service,
    /// What a lossless group may take while its peer has not stopped yet.
    Headroom,
}

/// When congestion was marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedAt {
    /// As the packet entered its queue.
    Enqueue,
    /// As it left it.
    Dequeue,
}

/// What a stage decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It arrived.
    Received {
        /// Where.
        port: PortId,
        /// Bytes of the frame.
        len: u16,
    },
    /// It was lost, and it was not followed until then.
    Noticed {
        /// Where it had arrived.
        port: PortId,
        /// Bytes of the frame.
        len: u16,
    },
    /// Its headers were understood.
    Parsed {
        /// Version of IP.
        version: Version,
        /// Protocol of the upper layer.
        protocol: u8,
        /// TTL or hop limit.
        ttl: u8,
        /// It is a fragment.
        fragment: bool,
    },
    /// It was given a priority and a class.
    Classified {
        /// Its code point.
        dscp: u8,
        /// Priority in its VLAN tag, if it has one.
        pcp: Option<u8>,
        /// The priority that it is received with.
        priority: u8,
        /// The egress queue that it goes to.
        class: u8,
        /// The ingress group that it is accounted in.
        group: u8,
    },
    /// It enters and leaves by the uplink group and so gets another priority (SW-33).
    Remapped {
        /// New priority.
        priority: u8,
        /// New code point.
        dscp: u8,
        /// New class.
        class: u8,
    },
    /// It has a next hop.
    Route {
        /// The group of next hops that the longest matching prefix leads to.
        group: GroupId,
        /// The one that was chosen.
        next_hop: NextHopId,
        /// The port that it leaves by.
        egress: PortId,
        /// How it was chosen.
        how: How,
    },
    /// It goes from one station of a bridge to another.
    Bridged {
        /// The VLAN; 0 in a bridge that looks at no tags.
        vlan: u16,
        /// The port that it leaves by, where its destination is.
        egress: PortId,
        /// Whether it leaves without a tag.
        untagged: bool,
    },
    /// It waits until the MAC address of its next hop is known.
    Unresolved {
        /// The kernel's number of the interface.
        ifindex: u32,
    },
    /// It was given to the worker that owns the egress port.
    Crossed {
        /// That worker.
        to: u8,
    },
    /// The buffer has room for it.
    Admitted {
        /// Who pays.
        region: Region,
        /// Cells of its ingress group, itself included.
        group_cells: u32,
        /// Cells of its egress queue, itself included.
        queue_cells: u32,
    },
    /// It was marked as having met congestion (CE).
    Marked {
        /// When.
        at: MarkedAt,
    },
    /// It was cut to its headers.
    Trimmed {
        /// Bytes of the frame before.
        from: u16,
        /// Bytes of the frame since.
        to: u16,
    },
    /// Its flow is an elephant: it goes to a lower queue.
    Demoted {
        /// That queue.
        class: u8,
    },
    /// It entered its queue.
    Enqueued {
        /// Which.
        class: u8,
        /// Packets in it, this one included.
        packets: u32,
        /// Bytes in it, this one included.
        bytes: u32,
    },
    /// It was given to the device. The end.
    Sent {
        /// The port.
        port: PortId,
        /// Time in the queue, from the turn in which it entered it to the one in which it left it.
        /// Only the [`Collector`](super::Collector) knows it.
        waited: Span,
    },
    /// It was lost. The end.
    Dropped {
        /// Why.
        reason: DropReason,
        /// The port that it would have left by, if that was decided.
        egress: Option<PortId>,
    },
}

impl Step {
    /// Whether nothing comes after it.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Sent { .. } | Self::Dropped { .. })
    }
}

/// One step of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the turn began in which it was taken.
    pub time: Time,
    /// The packet.
    pub id: TraceId,
    /// The worker that took it.
    pub worker: u8,
    /// The step.
    pub step: Step,
}

const _: () = assert!(size_of::<Record>() <= 40, "records are copied twice");

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As it was received.
    In,
    /// As it was sent.
    Out,
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Snap {
    /// The packet.
    pub id: TraceId,
    /// When.
    pub time: Time,
    /// Which way.
    pub direction: Direction,
    /// The port it came in or went out by.
    pub port: PortId,
    /// Bytes of the whole frame.
    pub len: u16,
    pub(super) kept: u8,
    pub(super) bytes: [u8; SNAP],
}

const _: () = assert!(SNAP <= u8::MAX as usize);

impl Snap {
    /// What was kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.kept)]
    }
}

/// How a packet came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The port.
    pub port: PortId,
    /// The priority it was classified as, where that is known.
    pub priority: Option<u8>,
}
