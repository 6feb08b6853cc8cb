//! The base transport header (IBA volume 1, 9.2).

use super::super::{Error, Result, be16, be24, need, put, put24};
use super::Opcode;

/// PSNs and queue pair numbers have 24 bits.
pub const PSN_MASK: u32 = 0x00ff_ffff;

/// What a BTH says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Operation and transport.
    pub opcode: Opcode,
    /// Solicited event: the receiver's completion should wake it.
    pub solicited: bool,
    /// Migration state; one means "migrated", as an ordinary connection says.
    pub migrated: bool,
    /// Bytes that fill the payload up to a multiple of four, 0–3.
    pub pad: u8,
    /// Partition key.
    pub partition: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification: set in a CNP.
    pub becn: bool,
    /// Queue pair that the packet is for, 24 bits.
    pub dest_qp: u32,
    /// The sender wants an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// Bytes of the header.
    pub const LEN: usize = 12;
    /// The partition that everybody is in.
    pub const DEFAULT_PARTITION: u16 = 0xffff;

    /// A header with everything else at its ordinary value.
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: u32) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            partition: Self::DEFAULT_PARTITION,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut, its version is not 0, or its opcode is not understood.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("bth", bytes, Self::LEN)?;
        let refused = |field, value| {
            Err(Error::Field {
                header: "bth",
                field,
                value,
            })
        };
        if bytes[1] & 0x0f != 0 {
            return refused("transport version", u32::from(bytes[1] & 0x0f));
        }
        let Some(opcode) = Opcode::from_byte(bytes[0]) else {
            return refused("opcode", u32::from(bytes[0]));
        };
        Ok(Self {
            opcode,
            solicited: bytes[1] & 0x80 != 0,
            migrated: bytes[1] & 0x40 != 0,
            pad: bytes[1] >> 4 & 3,
            partition: be16(bytes, 2),
            fecn: bytes[4] & 0x80 != 0,
            becn: bytes[4] & 0x40 != 0,
            dest_qp: be24(bytes, 5),
            ack_request: bytes[8] & 0x80 != 0,
            psn: be24(bytes, 9),
        })
    }

    /// Writes the header at the front of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Self::LEN`].
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        bytes[0] = self.opcode.byte();
        bytes[1] = bit(self.solicited, 0x80) | bit(self.migrated, 0x40) | (self.pad & 3) << 4;
        put(bytes, 2, self.partition.to_be_bytes());
        bytes[4] = bit(self.fecn, 0x80) | bit(self.becn, 0x40);
        put24(bytes, 5, self.dest_qp);
        bytes[8] = bit(self.ack_request, 0x80);
        put24(bytes, 9, self.psn);
    }
}
