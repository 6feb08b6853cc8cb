//! The extended transport headers (IBA volume 1, 9.3).

use super::super::{Error, Result, be24, be32, be64, need, put, put24};

/// RDMA extended transport header: where a WRITE goes or a READ comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address in the remote region.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("reth", bytes, Self::LEN)?;
        Ok(Self {
            address: be64(bytes, 0),
            rkey: be32(bytes, 8),
            len: be32(bytes, 12),
        })
    }

    /// Writes the header; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.address.to_be_bytes());
        put(bytes, 8, self.rkey.to_be_bytes());
        put(bytes, 12, self.len.to_be_bytes());
    }
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address of the 8 bytes in the remote region.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// What is swapped in, or added.
    pub swap_or_add: u64,
    /// What the bytes must be for a swap.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("atomic eth", bytes, Self::LEN)?;
        Ok(Self {
            address: be64(bytes, 0),
            rkey: be32(bytes, 8),
            swap_or_add: be64(bytes, 12),
            compare: be64(bytes, 20),
        })
    }

    /// Writes the header; panics if `bytes` is shorter than it.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.address.to_be_bytes());
        put(bytes, 8, self.rkey.to_be_bytes());
        put(bytes, 12, self.swap_or_add.to_be_bytes());
        put(bytes, 20, self.compare.to_be_bytes());
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Queue pair of the sender, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;
    /// Queue key of the general services interface, queue pair 1.
    pub const GSI_QKEY: u32 = 0x8001_0000;

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("deth", bytes, Self::LEN)?;
        Ok(Self {
            qkey: be32(bytes, 0),
            src_qp: be24(bytes, 5),
        })
    }

    /// Writes the header; panics if `bytes` is shorter than it.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.qkey.to_be_bytes());
        put(bytes, 4, self.src_qp.to_be_bytes());
        bytes[4] = 0;
    }
}

/// Why a responder refuses (IBA volume 1, table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// A packet before this PSN is missing.
    PsnSequenceError,
    /// The request makes no sense.
    InvalidRequest,
    /// Key, range or right is wrong.
    RemoteAccessError,
    /// The responder failed.
    RemoteOperationalError,
    /// The reliable datagram is invalid.
    InvalidRdRequest,
}

/// Meaning of an AETH's syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckKind {
    /// Acknowledge; the low five bits are end-to-end credits, 31 meaning "no limit said".
    Ack {
        /// Encoded credit count.
        credits: u8,
    },
    /// The receiver was not ready; try again after the encoded time.
    ReceiverNotReady {
        /// Encoded timer, see [`Aeth::rnr_nanos`].
        timer: u8,
    },
    /// Negative acknowledge.
    Nak(NakCode),
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What is acknowledged, or refused.
    pub kind: AckKind,
    /// Message sequence number: requests completed by the responder, 24 bits.
    pub msn: u32,
}

/// Receives that a credit code stands for (IBA volume 1, table 47); code 31 says nothing.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// RNR timer values in units of 10 µs (IBA volume 1, table 45).
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;
    /// Credits of a responder that sets no limit.
    pub const NO_CREDIT_LIMIT: u8 = 31;

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut or its syndrome is reserved.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("aeth", bytes, Self::LEN)?;
        let (syndrome, low) = (bytes[0], bytes[0] & 0x1f);
        let kind = match syndrome {
            0x00..=0x1f => AckKind::Ack { credits: low },
            0x20..=0x3f => AckKind::ReceiverNotReady { timer: low },
            0x60 => AckKind::Nak(NakCode::PsnSequenceError),
            0x61 => AckKind::Nak(NakCode::InvalidRequest),
            0x62 => AckKind::Nak(NakCode::RemoteAccessError),
            0x63 => AckKind::Nak(NakCode::RemoteOperationalError),
            0x64 => AckKind::Nak(NakCode::InvalidRdRequest),
            _ => {
                let value = u32::from(syndrome);
                return Err(Error::Field {
                    header: "aeth",
                    field: "syndrome",
                    value,
                });
            }
        };
        Ok(Self {
            kind,
            msn: be24(bytes, 1),
        })
    }

    /// Writes the header; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = match self.kind {
            AckKind::Ack { credits } => credits & 0x1f,
            AckKind::ReceiverNotReady { timer } => 0x20 | timer & 0x1f,
            AckKind::Nak(code) => 0x60 | code as u8,
        };
        put24(bytes, 1, self.msn);
    }

    /// The code for this many receives: that of the greatest number that is not more.
    pub fn credit_code(receives: u32) -> u8 {
        let above = CREDITS.partition_point(|&credits| credits <= receives);
        u8::try_from(above - 1).expect("31 codes")
    }

    /// The receives that a credit code stands for; `None` for code 31, which sets no limit. Only
    /// its low five bits count.
    pub fn credits(code: u8) -> Option<u32> {
        CREDITS.get(usize::from(code & 0x1f)).copied()
    }

    /// The time that an encoded RNR timer stands for, in nanoseconds. Only its low five bits count.
    pub const fn rnr_nanos(timer: u8) -> u64 {
        RNR_TIMER[(timer & 0x1f) as usize] as u64 * 10_000
    }
}
