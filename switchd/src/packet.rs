//! A packet: a frame and what the stages found out about it.

use crate::ingress::tables::PortId;
use crate::trace::TraceId;
use common::xdp::frame::Frame;

/// A packet on its way from the ingress to an egress queue. It owns its frame.
///
/// Everything later stages need is here, so that they read the headers only to change them, and a
/// packet that crosses to another worker needs nothing but this.
#[derive(Debug)]
pub struct Packet {
    /// The bytes.
    pub frame: Frame,
    /// The port it arrived at; drops are counted there.
    pub ingress: PortId,
    /// The port it leaves by.
    pub egress: PortId,
    /// Destination MAC address.
    pub mac: [u8; 6],
    /// Where the IP header begins.
    pub network: u16,
    /// Cells that it is charged, to its group and to its queue, if it has to wait.
    pub cells: u16,
    /// Traffic class: the index of the egress queue.
    pub class: u8,
    /// Priority group of its ingress port that it is charged to.
    pub group: u8,
    /// Hash of its flow if elephants of its class are looked for, otherwise zero.
    pub flow: u32,
    /// Differentiated services code point that it leaves with.
    pub dscp: u8,
    /// Its ECN field as it came (RFC 3168 §5). Not zero: its sender understands marks, or it is marked already.
    pub ecn: u8,
    /// What is to be changed in it before it leaves, beside what a router always changes.
    pub edits: Edits,
    /// Which traced packet it is, if it is one.
    pub trace: TraceId,
}

/// A set of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits(u8);

impl Edits {
    /// It gets CE.
    pub const MARK: Self = Self(1);
    /// It gets [`Packet::dscp`].
    pub const REMARK: Self = Self(2);
    /// It was trimmed: nothing is left to change, but it counts.
    pub const TRIMMED: Self = Self(4);

    /// Whether there is nothing to be changed.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are in it.
    #[inline]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds those of `other`.
    #[inline]
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Packet {
    /// A frame at a port, of which nothing else is known. It is charged to nobody.
    pub fn at(frame: Frame, port: PortId) -> Self {
        Self {
            frame,
            ingress: port,
            egress: port,
            mac: [0; 6],
            network: 0,
            cells: 0,
            class: 0,
            group: 0,
            flow: 0,
            dscp: 0,
            ecn: 0,
            edits: Edits::default(),
            trace: TraceId::NONE,
        }
    }
}
