//! The events that a simulation enters into the schedule of its fabric.

use crate::app::ConnectionId;
use crate::flow::FlowId;

/// What the simulation itself enters into the schedule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Do {
    Connect(ConnectionId),
    Start(FlowId),
    Begin(usize),
    End(usize),
    Again(usize),
    Sample,
    Look,
    Tune,
    LookAtFlows,
    /// Members of a job join.
    Job(usize),
}

impl Do {
    const BITS: u32 = 28;

    pub(super) fn code(self) -> u32 {
        let (kind, number) = match self {
            Self::Connect(number) => (0, number),
            Self::Start(number) => (1, number),
            Self::Begin(number) => (2, number),
            Self::End(number) => (3, number),
            Self::Again(number) => (4, number),
            Self::Sample => (5, 0),
            Self::Look => (6, 0),
            Self::Tune => (7, 0),
            Self::LookAtFlows => (8, 0),
            Self::Job(number) => (9, number),
        };
        kind << Self::BITS | u32::try_from(number).expect("fewer than 2^28")
    }

    pub(super) fn decode(code: u32) -> Self {
        let number = (code & ((1 << Self::BITS) - 1)) as usize;
        match code >> Self::BITS {
            0 => Self::Connect(number),
            1 => Self::Start(number),
            2 => Self::Begin(number),
            3 => Self::End(number),
            4 => Self::Again(number),
            5 => Self::Sample,
            6 => Self::Look,
            7 => Self::Tune,
            8 => Self::LookAtFlows,
            _ => Self::Job(number),
        }
    }
}
