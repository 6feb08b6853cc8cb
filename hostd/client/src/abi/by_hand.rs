//! A connection without connection management: what the two applications told each other.

use super::codec::{DecodeError, Reader};
use super::record::Record;
use std::net::IpAddr;

/// Both ends of a queue pair that is set up by hand (`ibv_modify_qp` to RTR and RTS), for peers
/// that exchange numbers by a way of their own. The connection is plain RoCEv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// Own address, one of the port's GIDs, which the peer was told: packets leave from it.
    pub local: IpAddr,
    /// The peer's address, from its GID.
    pub peer: IpAddr,
    /// Number of the peer's queue pair, 24 bits.
    pub peer_number: u32,
    /// Sequence number of the first packet that this side sends, 24 bits (`sq_psn`).
    pub psn: u32,
    /// Sequence number of the first packet that the peer sends, 24 bits (`rq_psn`).
    pub peer_psn: u32,
    /// Payload bytes of a full packet: 256, 512, 1024, 2048 or 4096; the same at both sides.
    pub mtu: u16,
    /// Local ACK time-out, 4.096 µs × 2^`timeout`, 0–31; 0 never gives up.
    pub timeout: u8,
    /// Whole time-outs without progress before the queue pair fails, 0–7.
    pub retry_count: u8,
    /// Tries when the peer has no receive posted, 0–6; 7 never gives up.
    pub rnr_retry: u8,
    /// How long the peer waits when no receive is posted here: code 0–31 of the RNR NAK.
    pub min_rnr_timer: u8,
    /// READs and atomic operations of the peer that may be under way at a time, 0–128.
    pub max_dest_rd_atomic: u8,
    /// The same of this side; not more than the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
}

impl ByHand {
    /// Between these addresses, with the attributes that `ibv_rc_pingpong` has.
    pub const fn new(local: IpAddr, peer: IpAddr) -> Self {
        Self {
            local,
            peer,
            peer_number: 0,
            psn: 0,
            peer_psn: 0,
            mtu: 1024,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_dest_rd_atomic: 1,
            max_rd_atomic: 1,
        }
    }

    pub(super) fn write(&self, record: Record) -> Record {
        record
            .address(self.local)
            .address(self.peer)
            .u32(self.peer_number)
            .u32(self.psn)
            .u32(self.peer_psn)
            .u16(self.mtu)
            .u8(self.timeout)
            .u8(self.retry_count)
            .u8(self.rnr_retry)
            .u8(self.min_rnr_timer)
            .u8(self.max_dest_rd_atomic)
            .u8(self.max_rd_atomic)
    }

    /// Ranges are looked at where the queue pair is set up.
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            local: r.address()?,
            peer: r.address()?,
            peer_number: r.u32()?,
            psn: r.u32()?,
            peer_psn: r.u32()?,
            mtu: r.u16()?,
            timeout: r.u8()?,
            retry_count: r.u8()?,
            rnr_retry: r.u8()?,
            min_rnr_timer: r.u8()?,
            max_dest_rd_atomic: r.u8()?,
            max_rd_atomic: r.u8()?,
        })
    }
}
