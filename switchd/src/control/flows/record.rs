//! What is told of a direction when its flow is over, or its active time is.

use crate::flows::{Counts, Key};
use crate::id::PortId;
use common::time::{Span, Time};
use common::units::Rate;

/// How it is known which direction is the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// From the messages that set the connection up.
    Setup,
    /// From what it acknowledges.
    Data,
}

impl Learned {
    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setup => "set-up",
            Self::Data => "data",
        }
    }
}

/// Why a record is made: the values of IPFIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// Nothing passed for the inactive time.
    Idle = 1,
    /// The active time is over; the flow goes on.
    Active = 2,
    /// The switch stops.
    Forced = 4,
}

/// What passed in one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which direction.
    pub key: Key,
    /// The queue pair that its packets come from, and how that is known.
    pub other: Option<(u32, Learned)>,
    /// What was counted.
    pub counts: Counts,
    /// When the first of it passed,
    pub first: Time,
    /// the last of it,
    pub last: Time,
    /// and the last NAK, if there was one.
    pub nak_at: Option<Time>,
    /// The port where it arrived.
    pub ingress: PortId,
    /// UDP source port.
    pub source_port: u16,
    /// Traffic class (TOS of IPv4) of the last packet.
    pub traffic_class: u8,
    /// Round trip.
    pub rtt: Option<Span>,
    /// Mean rate, of an elephant.
    pub rate: Option<Rate>,
    /// Why it is told.
    pub reason: EndReason,
}

/// Mean rate of so many bytes between two times.
pub(super) fn mean_rate(bytes: u64, first: Time, last: Time) -> Option<Rate> {
    let nanos = last.since(first).nanos();
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    let rate = bits.checked_div(u128::from(nanos))?;
    Some(Rate::from_bps(u64::try_from(rate).unwrap_or(u64::MAX)))
}
