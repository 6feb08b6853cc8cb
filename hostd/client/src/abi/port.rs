//! The port of a daemon: its state, its table of GIDs, and what happens to it.

use super::codec::{DecodeError, Reader};
use super::record::{Record, header};
use std::net::IpAddr;

/// The most GIDs of a port; further addresses of its interface are not listed, and cannot be
/// chosen.
pub const GIDS_MAX: u16 = 256;

/// Bytes of the name of an interface (`IFNAMSIZ`), zeros behind it.
pub const NAME_LEN: usize = 16;

/// What an application asks of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Its attributes.
    Query,
    /// An entry of the table of GIDs.
    Gid {
        /// The first entry at this index or after it.
        from: u16,
    },
    /// An entry of the table of partition keys.
    Partition {
        /// Its index.
        index: u16,
    },
    /// Events of the port.
    Watch {
        /// Whether they are wanted from now on.
        watch: bool,
    },
}

const QUERY: u16 = 30;
const GID: u16 = 31;
const PARTITION: u16 = 32;
const WATCH: u16 = 33;

impl PortRequest {
    pub(super) fn encode(self, tag: u32) -> Record {
        match self {
            Self::Query => header(QUERY, tag),
            Self::Gid { from } => header(GID, tag).u16(from).u16(0),
            Self::Partition { index } => header(PARTITION, tag).u16(index).u16(0),
            Self::Watch { watch } => header(WATCH, tag).u32(u32::from(watch)),
        }
    }

    pub(super) fn decode(kind: u16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            QUERY => Self::Query,
            GID => {
                let from = r.u16()?;
                r.reserved::<2>()?;
                Self::Gid { from }
            }
            PARTITION => {
                let index = r.u16()?;
                r.reserved::<2>()?;
                Self::Partition { index }
            }
            WATCH => match r.u32()? {
                0 => Self::Watch { watch: false },
                1 => Self::Watch { watch: true },
                _ => return Err(DecodeError::Field("watch")),
            },
            _ => return Err(DecodeError::Kind(kind)),
        })
    }
}

/// What packets can do at a port (`enum ibv_port_state`; what is not active is told apart).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortState {
    /// Packets can pass (`IBV_PORT_ACTIVE`).
    Active = 1,
    /// Its administrator has set the interface down (`IBV_PORT_DOWN`).
    Down = 2,
    /// The interface has no carrier (`IBV_PORT_DOWN`).
    NoCarrier = 3,
    /// The interface was deleted; the daemon will end when there is another one of its name.
    Gone = 4,
}

impl PortState {
    fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        let all = [Self::Active, Self::Down, Self::NoCarrier, Self::Gone];
        let known = all.into_iter().find(|state| *state as u8 == byte);
        known.ok_or(DecodeError::Field("port state"))
    }
}

/// What happens to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortEvent {
    /// Packets can pass again (`IBV_EVENT_PORT_ACTIVE`).
    Active = 1,
    /// Packets cannot pass any more (`IBV_EVENT_PORT_ERR`).
    Error = 2,
    /// The table of GIDs is another one (`IBV_EVENT_GID_CHANGE`).
    GidChange = 3,
    /// Its MTU or its speed is another one. libibverbs has no event for that.
    Changed = 4,
}

impl PortEvent {
    /// From the first to the last.
    pub const ALL: [Self; 4] = [Self::Active, Self::Error, Self::GidChange, Self::Changed];

    pub(super) fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        let known = Self::ALL.into_iter().find(|event| *event as u8 == byte);
        known.ok_or(DecodeError::Field("port event"))
    }
}

/// A port as it is (`struct ibv_port_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// Name of the interface, zeros behind it.
    pub name: [u8; NAME_LEN],
    /// Whether packets can pass.
    pub state: PortState,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// The longest IP packet that the link carries, in bytes.
    pub mtu: u32,
    /// Payload bytes of a packet of a new connection at most (`active_mtu`): 256 to 4096; zero if
    /// the link carries no packet of RoCE.
    pub path_mtu: u16,
    /// Bits a second on the link.
    pub speed: u64,
    /// Entries of the table of GIDs.
    pub gids: u16,
    /// Entries of the table of partition keys.
    pub partitions: u16,
}

impl PortAttributes {
    pub(super) fn write(&self, record: Record) -> Record {
        record
            .bytes(&self.name)
            .bytes(&self.mac)
            .u8(self.state as u8)
            .u8(0)
            .u32(self.mtu)
            .u16(self.path_mtu)
            .u16(self.gids)
            .u64(self.speed)
            .u16(self.partitions)
            .bytes(&[0; 2])
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, mac) = (r.bytes()?, r.bytes()?);
        let state = PortState::from_byte(r.u8()?)?;
        r.reserved::<1>()?;
        let port = Self {
            name,
            state,
            mac,
            mtu: r.u32()?,
            path_mtu: r.u16()?,
            gids: r.u16()?,
            speed: r.u64()?,
            partitions: r.u16()?,
        };
        r.reserved::<2>()?;
        Ok(port)
    }
}

/// An entry of the table of GIDs: an address of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its place, which it keeps as long as the interface has the address.
    pub index: u16,
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix that is on the link.
    pub prefix_len: u8,
}

impl GidEntry {
    pub(super) fn write(&self, record: Record) -> Record {
        let record = record.u16(self.index).u8(self.prefix_len).u8(0);
        record.address(self.address)
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (index, prefix_len) = (r.u16()?, r.u8()?);
        r.reserved::<1>()?;
        Ok(Self {
            index,
            address: r.address()?,
            prefix_len,
        })
    }
}
