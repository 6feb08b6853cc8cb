//! Where the fields of the header are, and what is computed over it.

use crate::wire::{Error, array};

/// Bytes of the header.
pub const HEADER_LEN: usize = 48;

/// Most bytes of payload: with IPv6, UDP and the header it fills an IP packet of 1500 bytes, and is
/// whole elements of any type.
pub const PAYLOAD_MAX: usize = 1400;

/// Most members of a job at one switch: a bit each.
pub const RANKS: usize = 64;

/// Most slots of a job: as many as the slot and its version leave room for.
pub const SLOTS_MAX: usize = 1 << 15;

/// Its name in errors.
pub(super) const HEADER: &str = "compute";
pub(super) const VERSION: u8 = 1;

/// Offsets of the header's fields.
pub(super) mod field {
    pub(in super::super) const KIND: usize = 0;
    pub(in super::super) const FLAGS: usize = 1;
    pub(in super::super) const WORK: usize = 2;
    pub(in super::super) const JOB: usize = 4;
    pub(in super::super) const EPOCH: usize = 8;
    pub(in super::super) const RANK: usize = 12;
    pub(in super::super) const SLOT: usize = 14;
    pub(in super::super) const SEQUENCE: usize = 16;
    pub(in super::super) const CONTRIBUTIONS: usize = 24;
    pub(in super::super) const LENGTH: usize = 32;
    pub(in super::super) const COMPLETE: usize = 34;
    pub(in super::super) const CHECKSUM: usize = 36;
    pub(in super::super) const TAG: usize = 40;
}

/// A refusal of a field.
pub(super) fn refused(field: &'static str, value: u32) -> Error {
    Error::Field {
        header: HEADER,
        field,
        value,
    }
}

/// The header of a message without what is computed over it.
pub(super) fn covered(message: &[u8]) -> [u8; HEADER_LEN] {
    let mut header: [u8; HEADER_LEN] = array(message, 0);
    header[field::CHECKSUM..].fill(0);
    header
}

/// CRC-32 over header and payload, its own field and the tag taken as zero.
pub(super) fn checksum(message: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&covered(message));
    hasher.update(&message[HEADER_LEN..]);
    hasher.finalize()
}
