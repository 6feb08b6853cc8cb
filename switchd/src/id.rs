//! Numbers that name things: ports, next hops, groups, flows, traced packets.

use crate::limits::MAX_WORKERS;
use std::fmt;
use std::net::IpAddr;

/// Number of a port: its place in [`Tables::ports`](crate::tables::Tables::ports), the same for
/// a name as long as no other interface needs the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Number of a next hop: its place in [`Tables::next_hops`](crate::tables::Tables::next_hops).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHopId(pub u32);

/// Number of a group: its place in [`Tables::groups`](crate::tables::Tables::groups).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl PortId {
    /// The number as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl NextHopId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl GroupId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A neighbour of the switch: the kernel's number of the interface it is behind, and its address.
pub type Neighbour = (u32, IpAddr);

/// What makes packets one flow in the queues of an egress port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The port they leave by.
    pub port: PortId,
    /// The class they came with.
    pub class: u8,
    /// Hash of their addresses and ports.
    pub hash: u32,
}

/// Bits of a [`TraceId`] that count the packets of a worker in a session.
const NUMBER_BITS: u32 = 20;
/// Bits of a [`TraceId`] that say which worker.
const WORKER_BITS: u32 = 6;
/// Packets of a worker that a session can number.
pub(crate) const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;

const _: () = assert!(MAX_WORKERS <= 1 << WORKER_BITS);

/// Sessions that are told apart: a packet does not stay in the switch while so many come and go.
pub const SESSIONS: u8 = 1 << (u32::BITS - NUMBER_BITS - WORKER_BITS);

/// Which traced packet: session (6 bits), the worker that received it (6 bits), number (20 bits,
/// from 1). Goes with the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u32);

impl TraceId {
    /// The packet is not traced.
    pub const NONE: Self = Self(0);

    /// Whether the packet is traced.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The worker that received the packet.
    pub const fn worker(self) -> u8 {
        self.0.to_be_bytes()[1] >> 4 | (self.0.to_be_bytes()[0] & 3) << 4
    }

    /// Number zero of a worker in a session. It is no packet's: [`Self::numbered`] makes those.
    ///
    /// # Panics
    /// If there can be no such session or worker.
    pub(crate) fn base(session: u8, worker: u8) -> Self {
        assert!(session < SESSIONS && usize::from(worker) < MAX_WORKERS);
        let (session, worker) = (u32::from(session), u32::from(worker));
        Self((session << WORKER_BITS | worker) << NUMBER_BITS)
    }

    /// Packet `number` of the same worker and session.
    pub(crate) const fn numbered(self, number: u32) -> Self {
        Self(self.0 & !NUMBER_MASK | number & NUMBER_MASK)
    }

    /// The session, modulo [`SESSIONS`].
    #[inline]
    pub(crate) const fn session(self) -> u32 {
        self.0 >> (NUMBER_BITS + WORKER_BITS)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            self.session(),
            self.worker(),
            self.0 & NUMBER_MASK
        )
    }
}
