//! States and attributes of queue pairs that an application takes through them by hand
//! (`ibv_modify_qp`, `ibv_query_qp`).

use super::codec::{DecodeError, Reader};
use super::record::Record;
use super::types::Access;
use std::net::{IpAddr, Ipv4Addr};

/// The state of a queue pair: `enum ibv_qp_state`, same numbers. SQE (5) is no state of reliable
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QueuePairState {
    /// Nothing may be posted.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// Send queue drained: no other message begins.
    SendQueueDrained = 4,
    /// Failed or closed: what is posted is flushed.
    Error = 6,
}

impl QueuePairState {
    pub(super) fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::ReadyToReceive,
            3 => Self::ReadyToSend,
            4 => Self::SendQueueDrained,
            6 => Self::Error,
            _ => return Err(DecodeError::Field("state")),
        })
    }
}

/// Some attributes of a queue pair (`struct ibv_qp_attr`): those that are given. Ranges are looked
/// at by the daemon, which names what it refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairAttributes {
    /// `qp_access_flags`: what peers may do through the queue pair, within what regions allow.
    pub access: Option<Access>,
    /// `ah_attr`: the peer's address.
    pub destination: Option<IpAddr>,
    /// `dest_qp_num`: the peer's queue pair, 24 bits.
    pub destination_number: Option<u32>,
    /// `rq_psn`: the peer's first packet, 24 bits.
    pub rq_psn: Option<u32>,
    /// `sq_psn`: the own first packet, 24 bits.
    pub sq_psn: Option<u32>,
    /// `path_mtu` in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: Option<u16>,
    /// `min_rnr_timer`: code 0–31.
    pub min_rnr_timer: Option<u8>,
    /// `max_dest_rd_atomic`, 0–128.
    pub max_dest_rd_atomic: Option<u8>,
    /// `max_rd_atomic`, 0–128.
    pub max_rd_atomic: Option<u8>,
    /// `timeout`: 4.096 µs × 2^`timeout`, 0–31; 0 never gives up.
    pub timeout: Option<u8>,
    /// `retry_cnt`, 0–7.
    pub retry_count: Option<u8>,
    /// `rnr_retry`, 0–6; 7 never gives up.
    pub rnr_retry: Option<u8>,
    /// `en_sqd_async_notify`: the end of draining is an event.
    pub notify_drained: Option<bool>,
}

impl QueuePairAttributes {
    /// A word of bits says which are given, in the order of the fields; the others are zero.
    pub(super) fn write(&self, record: Record) -> Record {
        let given = [
            self.access.is_some(),
            self.destination.is_some(),
            self.destination_number.is_some(),
            self.rq_psn.is_some(),
            self.sq_psn.is_some(),
            self.path_mtu.is_some(),
            self.min_rnr_timer.is_some(),
            self.max_dest_rd_atomic.is_some(),
            self.max_rd_atomic.is_some(),
            self.timeout.is_some(),
            self.retry_count.is_some(),
            self.rnr_retry.is_some(),
            self.notify_drained.is_some(),
        ];
        let bits = given.iter().rev();
        let mask = bits.fold(0, |mask, bit| mask << 1 | u32::from(*bit));
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        record
            .u32(mask)
            .u32(self.access.unwrap_or_default().bits())
            .address(self.destination.unwrap_or(unspecified))
            .u32(self.destination_number.unwrap_or(0))
            .u32(self.rq_psn.unwrap_or(0))
            .u32(self.sq_psn.unwrap_or(0))
            .u16(self.path_mtu.unwrap_or(0))
            .u8(self.min_rnr_timer.unwrap_or(0))
            .u8(self.max_dest_rd_atomic.unwrap_or(0))
            .u8(self.max_rd_atomic.unwrap_or(0))
            .u8(self.timeout.unwrap_or(0))
            .u8(self.retry_count.unwrap_or(0))
            .u8(self.rnr_retry.unwrap_or(0))
            .u32(u32::from(self.notify_drained.unwrap_or(false)))
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mask = r.u32()?;
        if mask >= 1 << 13 {
            return Err(DecodeError::Field("attributes"));
        }
        let given = |bit: u32| mask & 1 << bit != 0;
        Ok(Self {
            access: Some(Access::from_bits(r.u32()?)).filter(|_| given(0)),
            destination: Some(r.address()?).filter(|_| given(1)),
            destination_number: Some(r.u32()?).filter(|_| given(2)),
            rq_psn: Some(r.u32()?).filter(|_| given(3)),
            sq_psn: Some(r.u32()?).filter(|_| given(4)),
            path_mtu: Some(r.u16()?).filter(|_| given(5)),
            min_rnr_timer: Some(r.u8()?).filter(|_| given(6)),
            max_dest_rd_atomic: Some(r.u8()?).filter(|_| given(7)),
            max_rd_atomic: Some(r.u8()?).filter(|_| given(8)),
            timeout: Some(r.u8()?).filter(|_| given(9)),
            retry_count: Some(r.u8()?).filter(|_| given(10)),
            rnr_retry: Some(r.u8()?).filter(|_| given(11)),
            notify_drained: Some(r.u32()? != 0).filter(|_| given(12)),
        })
    }
}
