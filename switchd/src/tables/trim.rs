//! Which packets are trimmed, and to what (SW-23).

use common::wire::ip::v6;
use common::wire::roce::{Bth, Extension, Mpeh, Reth};
use common::wire::{ethernet, udp, vlan};

/// Differentiated services code points (RFC 2474): six bits.
pub const DSCPS: usize = 64;

/// Bytes that are kept when nothing else is configured, as in SONiC and SAI
/// (`SAI_SWITCH_ATTR_PACKET_TRIM_SIZE`). It holds [`SIZE_MIN`].
pub const SIZE_DEFAULT: u16 = 128;

/// Least size: the headers of the longest data packet, a WRITE ONLY with immediate data (4 bytes),
/// MPEH and its extension, over IPv6 in a frame with one tag. With less, trimming would silently
/// do nothing.
pub const SIZE_MIN: u16 = 114;

/// Largest size: the longest path MTU of RoCE. With more, nothing would ever be cut.
pub const SIZE_MAX: u16 = 4096;

const _: () = assert!(
    SIZE_MIN as usize
        == ethernet::HEADER_LEN
            + vlan::TAG_LEN
            + v6::HEADER_LEN
            + udp::HEADER_LEN
            + Bth::LEN
            + Mpeh::LEN
            + Extension::LEN
            + Reth::LEN
            + 4
);
const _: () = assert!(SIZE_MIN <= SIZE_DEFAULT && SIZE_DEFAULT <= SIZE_MAX);
const _: () = assert!(SIZE_MIN as usize >= ethernet::MIN_LEN);

/// Which packets are trimmed, to what size, and what they become. Code points are the operator's
/// choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimPolicy {
    /// Bytes of the frame that are kept, link header and tags included, check sequence not:
    /// [`SIZE_MIN`] to [`SIZE_MAX`].
    pub size: u16,
    /// RoCEv2 packets keep their transport headers and room for padding and ICRC, no payload, if
    /// that is less than the size.
    pub headers_only: bool,
    /// Bit n is set when packets of DSCP n may be trimmed.
    pub trimmable: u64,
    /// Bit n is set when DSCP n is for retransmissions, which are trimmed later than the others;
    /// all of them are trimmable too.
    pub rtx: u64,
    /// Bit n is set when DSCP n is for control packets (ACK, CNP): never trimmable, never trimmed.
    pub control: u64,
    /// What each trimmable DSCP becomes; several may become the same. The others are not looked at.
    pub trimmed_of: [u8; DSCPS],
}

/// Why a [`TrimPolicy`] makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrimPolicyError {
    /// The size keeps too little or too much.
    #[error("a trimmed frame of {size} bytes; {SIZE_MIN} to {SIZE_MAX} are possible")]
    Size {
        /// The size.
        size: u16,
    },
    /// A control packet would be trimmed.
    #[error("DSCP {dscp} is both trimmable and for control packets")]
    TrimmableControl {
        /// The code point.
        dscp: u8,
    },
    /// A threshold is named for packets that are not trimmed at all.
    #[error("DSCP {dscp} is for trimmable retransmissions, but not trimmable")]
    Retransmission {
        /// The code point.
        dscp: u8,
    },
    /// There is no such code point.
    #[error("trimmable DSCP {dscp} becomes {trimmed}; code points are 0 to 63")]
    Range {
        /// The trimmable code point.
        dscp: u8,
        /// What it would become.
        trimmed: u8,
    },
    /// A packet could be trimmed again.
    #[error("trimmable DSCP {dscp} becomes {trimmed}, which is trimmable itself")]
    TrimmedTrimmable {
        /// The trimmable code point.
        dscp: u8,
        /// What it would become.
        trimmed: u8,
    },
    /// A trimmed packet would look like a control packet.
    #[error("trimmable DSCP {dscp} becomes {trimmed}, which is for control packets")]
    TrimmedControl {
        /// The trimmable code point.
        dscp: u8,
        /// What it would become.
        trimmed: u8,
    },
}

impl Default for TrimPolicy {
    /// Nothing is trimmed.
    fn default() -> Self {
        Self {
            size: SIZE_DEFAULT,
            headers_only: false,
            trimmable: 0,
            rtx: 0,
            control: 0,
            trimmed_of: [0; DSCPS],
        }
    }
}

impl TrimPolicy {
    /// Refuses a policy that would trim a packet twice, or confuse trimmed packets with others.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), TrimPolicyError> {
        if !(SIZE_MIN..=SIZE_MAX).contains(&self.size) {
            return Err(TrimPolicyError::Size { size: self.size });
        }
        if let Some(dscp) = code_points(self.trimmable & self.control).next() {
            return Err(TrimPolicyError::TrimmableControl { dscp });
        }
        if let Some(dscp) = code_points(self.rtx & !self.trimmable).next() {
            return Err(TrimPolicyError::Retransmission { dscp });
        }
        code_points(self.trimmable).try_for_each(|dscp| {
            let trimmed = self.trimmed_of[usize::from(dscp)];
            if usize::from(trimmed) >= DSCPS {
                return Err(TrimPolicyError::Range { dscp, trimmed });
            }
            if has(self.trimmable, trimmed) {
                return Err(TrimPolicyError::TrimmedTrimmable { dscp, trimmed });
            }
            if has(self.control, trimmed) {
                return Err(TrimPolicyError::TrimmedControl { dscp, trimmed });
            }
            Ok(())
        })
    }

    /// The trimmed code points: bit n is set when packets of DSCP n were trimmed, here or before.
    pub fn trimmed(&self) -> u64 {
        code_points(self.trimmable)
            .map(|dscp| self.trimmed_of[usize::from(dscp)] & 63)
            .fold(0, |mask, trimmed| mask | 1 << trimmed)
    }

    /// Bytes of its queue above which a packet of this DSCP is trimmed, `None` if it is not
    /// trimmable: `bytes` for most, `rtx_bytes` for retransmissions.
    #[inline]
    pub fn threshold(&self, dscp: u8, bytes: u32, rtx_bytes: u32) -> Option<u64> {
        let bytes = if has(self.rtx, dscp) {
            rtx_bytes
        } else {
            bytes
        };
        has(self.trimmable, dscp).then_some(u64::from(bytes))
    }

    /// What packets of this DSCP become, `None` if they are not trimmable.
    #[inline]
    pub(crate) fn becomes(&self, dscp: u8) -> Option<u8> {
        has(self.trimmable, dscp).then(|| self.trimmed_of[usize::from(dscp & 63)] & 63)
    }
}

#[inline]
const fn has(mask: u64, dscp: u8) -> bool {
    mask & 1 << (dscp & 63) != 0
}

/// The code points of a mask.
fn code_points(mask: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |dscp| has(mask, *dscp))
}
