//! The multipath extended header: path, flowlet and feedback of a packet of a multipath connection.
//!
//! The standard does not say which end bit 0 of the flags is; here it is the least significant. The
//! meaning of flags and tag depends on the direction.

use super::super::{Error, Result, be16, need, put};

/// What an MPEH says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mpeh {
    /// Sub-path of the packet; in an ACK the sub-path of the packet that it answers.
    pub path: u8,
    /// [`DataFlags`] or [`AckFlags`].
    pub flags: u8,
    /// Flowlet of the packet; in an ACK the largest flowlet confirmed without a gap.
    pub flowlet: u16,
    /// Scheduler's hint, see [`Hint`](super::Hint); in an ACK a measurement of the path.
    pub tag: u16,
}

/// Flags of data packets.
#[derive(Clone, Copy, Debug)]
pub struct DataFlags;

impl DataFlags {
    /// First packet of a flowlet.
    pub const FLOWLET_BOUNDARY: u8 = 1 << 0;
    /// First packet after the sender changed the sub-path's route.
    pub const PATH_SWITCH: u8 = 1 << 1;
    /// Path probe.
    pub const PROBE: u8 = 1 << 2;
    /// Congestion signal.
    pub const CONGESTION: u8 = 1 << 3;
    /// All that are defined; the rest is zero.
    pub const ALL: u8 = 0x0f;
}

/// Flags of acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct AckFlags;

impl AckFlags {
    /// Packets arrived out of order.
    pub const REORDER: u8 = 1 << 0;
    /// A gap has outlived the reorder tolerance: loss is suspected.
    pub const LOSS: u8 = 1 << 1;
    /// Answer to a path probe.
    pub const PROBE_RESPONSE: u8 = 1 << 2;
    /// All that are defined; the rest is zero.
    pub const ALL: u8 = 0x07;
}

impl Mpeh {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut or a bit that must be zero is not.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("mpeh", bytes, Self::LEN)?;
        if be16(bytes, 6) != 0 {
            let value = u32::from(be16(bytes, 6));
            return Err(Error::Field {
                header: "mpeh",
                field: "reserved",
                value,
            });
        }
        if bytes[1] & !DataFlags::ALL != 0 {
            return Err(Error::Field {
                header: "mpeh",
                field: "flags",
                value: u32::from(bytes[1]),
            });
        }
        Ok(Self {
            path: bytes[0],
            flags: bytes[1],
            flowlet: be16(bytes, 2),
            tag: be16(bytes, 4),
        })
    }

    /// Writes the header; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = self.path;
        bytes[1] = self.flags;
        put(bytes, 2, self.flowlet.to_be_bytes());
        put(bytes, 4, self.tag.to_be_bytes());
        put(bytes, 6, [0, 0]);
    }

    /// Whether all flags of `mask` are set.
    pub const fn has(&self, mask: u8) -> bool {
        self.flags & mask == mask
    }
}
