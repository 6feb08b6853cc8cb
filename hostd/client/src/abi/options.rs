//! What an application wants of a connection beyond the defaults.

use super::codec::{DecodeError, Reader};
use super::record::Record;

/// How a connection retries, and how much of the peer's it takes at a time
/// (`struct rdma_conn_param`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Local ACK time-out, 4.096 µs × 2^`timeout`, 1–31; 0 never gives up. The side that connects
    /// decides for both, but the other one takes neither 0 nor more than 22 (17 s) unless that is
    /// its own.
    pub timeout: u8,
    /// Whole time-outs without progress before a queue pair fails, 0–7. The side that connects
    /// decides for both.
    pub retry_count: u8,
    /// How often the peer tries when no receive is posted here, 0–6; 7 never gives up.
    pub rnr_retry: u8,
    /// How long the peer waits then: code 0–31 of the RNR NAK (`min_rnr_timer`).
    pub min_rnr_timer: u8,
    /// READs and atomic operations of the peer that may be under way at a time, 0–128.
    pub responder_resources: u8,
    /// The same of this side; no more than the peer allows.
    pub initiator_depth: u8,
}

impl Default for ConnectionOptions {
    /// About one second eight times over; receives are awaited for ever, every 0.64 ms; 16 READs.
    fn default() -> Self {
        Self {
            timeout: 18,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            responder_resources: 16,
            initiator_depth: 16,
        }
    }
}

impl ConnectionOptions {
    /// The first value that is out of its range: name, value and the greatest one.
    pub fn wrong(&self) -> Option<(&'static str, u8, u8)> {
        let all = [
            ("timeout", self.timeout, 31),
            ("retry_count", self.retry_count, 7),
            ("rnr_retry", self.rnr_retry, 7),
            ("min_rnr_timer", self.min_rnr_timer, 31),
            ("responder_resources", self.responder_resources, 128),
            ("initiator_depth", self.initiator_depth, 128),
        ];
        all.into_iter().find(|(_, value, most)| value > most)
    }

    pub(super) fn write(&self, record: Record) -> Record {
        record
            .u8(self.timeout)
            .u8(self.retry_count)
            .u8(self.rnr_retry)
            .u8(self.min_rnr_timer)
            .u8(self.responder_resources)
            .u8(self.initiator_depth)
            .u16(0)
    }

    /// Ranges are looked at by [`Self::wrong`].
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let options = Self {
            timeout: r.u8()?,
            retry_count: r.u8()?,
            rnr_retry: r.u8()?,
            min_rnr_timer: r.u8()?,
            responder_resources: r.u8()?,
            initiator_depth: r.u8()?,
        };
        r.reserved::<2>()?;
        Ok(options)
    }
}
