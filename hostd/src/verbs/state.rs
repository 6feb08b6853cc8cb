//! The states of a queue pair, as in `ibv_modify_qp`.
//!
//! ```text
//!              Init              ReadyToReceive             ReadyToSend      Drain
//!   RESET ───────────▶ INIT ────────────────────▶ RTR ────────────────────▶ RTS ◀──────▶ SQD
//!     ▲                 │                          │                         │
//!     │ Reset           └──────────────┬───────────┴─────────────────────────┴──────Resume┘
//!     │                                ▼  Error, or a failure
//!     └────────── (any state)         ERR
//! ```
//!
//! SQE is no state of reliable connections: a request that fails takes them to ERR (IBTA 10.3.1).

use super::access::Access;
use super::config::Multipath;
use super::error::EngineError;
use crate::limits;
use std::fmt;
use std::net::IpAddr;

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Fresh: nothing may be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: packets are taken.
    ReadyToReceive,
    /// Ready to send: everything works.
    ReadyToSend,
    /// Send queue drained: messages that have begun are finished, no other begins.
    SendQueueDrained,
    /// Failed or disconnected: what is posted is flushed.
    Error,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Reset,
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::SendQueueDrained,
        Self::Error,
    ];

    /// The name in libibverbs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendQueueDrained => "SQD",
            Self::Error => "ERR",
        }
    }

    /// Whether packets of the peer are taken.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive) || self.sends()
    }

    /// Whether packets of own requests may leave.
    pub(crate) const fn sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrained)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Attributes that INIT → RTR needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToReceive {
    /// The peer's address.
    pub destination: IpAddr,
    /// The peer's queue pair.
    pub destination_qpn: u32,
    /// The peer's first packet sequence number (24 bits).
    pub rq_psn: u32,
    /// Payload bytes of a full packet: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u16,
    /// How long the peer waits when no receive is posted: code 0–31 of the RNR NAK.
    pub min_rnr_timer: u8,
    /// RDMA READs and atomic operations of the peer that may be outstanding, at most
    /// [`limits::RD_ATOMIC`].
    pub max_dest_rd_atomic: u8,
    /// What was negotiated; `None`: plain RoCEv2.
    pub multipath: Option<Multipath>,
}

/// Attributes that RTR → RTS needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToSend {
    /// Own first packet sequence number (24 bits).
    pub sq_psn: u32,
    /// Local ACK time-out, 4.096 µs × 2^`timeout`; 0 never gives up. The retransmission time-out
    /// grows up to it.
    pub timeout: u8,
    /// Whole time-outs without progress before the queue pair fails, 0–7.
    pub retry_count: u8,
    /// Tries when the peer has no receive posted, 0–6; 7 never gives up.
    pub rnr_retry: u8,
    /// Own RDMA READs and atomic operations that may be outstanding, at most
    /// [`limits::RD_ATOMIC`]; not more than the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
}

/// A change of state that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// To INIT, with the rights that peers have through this queue pair.
    Init(Access),
    /// To RTR.
    ReadyToReceive(ReadyToReceive),
    /// To RTS.
    ReadyToSend(ReadyToSend),
    /// To SQD; whether its completion is an event.
    Drain(bool),
    /// From SQD back to RTS.
    Resume,
    /// To ERR: what is outstanding is flushed.
    Error,
    /// To RESET: what is outstanding is forgotten.
    Reset,
}

impl Transition {
    /// The state after the transition from `state`, or why there is none; wrong attributes change
    /// nothing.
    pub(crate) fn check(&self, state: State) -> Result<State, EngineError> {
        let next = match (state, self) {
            (State::Reset | State::Init, Self::Init(_)) => State::Init,
            (State::Init, Self::ReadyToReceive(attributes)) => {
                attributes.check()?;
                State::ReadyToReceive
            }
            (State::ReadyToReceive, Self::ReadyToSend(attributes)) => {
                attributes.check()?;
                State::ReadyToSend
            }
            (State::ReadyToSend | State::SendQueueDrained, Self::Drain(_)) => {
                State::SendQueueDrained
            }
            (State::SendQueueDrained, Self::Resume) => State::ReadyToSend,
            (_, Self::Error) => State::Error,
            (_, Self::Reset) => State::Reset,
            _ => return Err(EngineError::State),
        };
        Ok(next)
    }
}

const PSN_MAX: u32 = (1 << 24) - 1;

impl ReadyToReceive {
    fn check(&self) -> Result<(), EngineError> {
        let mtu = self.path_mtu.is_power_of_two()
            && (limits::PATH_MTU_MIN..=limits::PATH_MTU_MAX).contains(&self.path_mtu);
        let numbers = self.destination_qpn <= PSN_MAX && self.rq_psn <= PSN_MAX;
        let multipath = self.multipath.is_none_or(|agreed| {
            let agreed = agreed.config;
            (1..=limits::PATHS).contains(&usize::from(agreed.paths))
                && (1..=limits::REORDER_BUFFER).contains(&u32::from(agreed.reorder_buffer))
        });
        let depth = self.max_dest_rd_atomic <= limits::RD_ATOMIC;
        if mtu && numbers && multipath && depth && self.min_rnr_timer < 32 {
            Ok(())
        } else {
            Err(EngineError::Argument)
        }
    }
}

impl ReadyToSend {
    fn check(&self) -> Result<(), EngineError> {
        let fits = self.sq_psn <= PSN_MAX
            && self.timeout < 32
            && self.retry_count < 8
            && self.rnr_retry < 8
            && self.max_rd_atomic <= limits::RD_ATOMIC;
        if fits {
            Ok(())
        } else {
            Err(EngineError::Argument)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Cookies, MultipathConfig};
    use super::*;
    use std::net::Ipv4Addr;

    const RTR: ReadyToReceive = ReadyToReceive {
        destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
        destination_qpn: 17,
        rq_psn: PSN_MAX,
        path_mtu: 1024,
        min_rnr_timer: 12,
        max_dest_rd_atomic: 16,
        multipath: None,
    };
    const RTS: ReadyToSend = ReadyToSend {
        sq_psn: 0,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 16,
    };

    /// HT-1: every pair of state and transition, as `ibv_modify_qp` has it.
    #[test]
    fn only_the_verbs_transitions_exist() {
        use State::{
            Error, Init, ReadyToReceive as Rtr, ReadyToSend as Rts, Reset, SendQueueDrained as Sqd,
        };
        let to_init = Transition::Init(Access::REMOTE_WRITE);
        let to_rtr = Transition::ReadyToReceive(RTR);
        let to_rts = Transition::ReadyToSend(RTS);
        for from in State::ALL {
            let next = |transition: &Transition| transition.check(from).ok();
            assert_eq!(
                next(&to_init),
                matches!(from, Reset | Init).then_some(Init),
                "{from}"
            );
            assert_eq!(next(&to_rtr), (from == Init).then_some(Rtr), "{from}");
            assert_eq!(next(&to_rts), (from == Rtr).then_some(Rts), "{from}");
            let sends = matches!(from, Rts | Sqd);
            assert_eq!(next(&Transition::Drain(true)), sends.then_some(Sqd));
            let drained = from == Sqd;
            assert_eq!(next(&Transition::Resume), drained.then_some(Rts));
            assert_eq!(next(&Transition::Error), Some(Error));
            assert_eq!(next(&Transition::Reset), Some(Reset));
        }
    }

    #[test]
    fn attributes_out_of_range_change_nothing() {
        let wrong = [
            ReadyToReceive {
                path_mtu: 1500,
                ..RTR
            },
            ReadyToReceive {
                rq_psn: 1 << 24,
                ..RTR
            },
            ReadyToReceive {
                min_rnr_timer: 32,
                ..RTR
            },
            ReadyToReceive {
                max_dest_rd_atomic: limits::RD_ATOMIC + 1,
                ..RTR
            },
            ReadyToReceive {
                multipath: Some(Multipath {
                    config: MultipathConfig {
                        paths: 0,
                        ..MultipathConfig::default()
                    },
                    cookies: Cookies::default(),
                }),
                ..RTR
            },
        ];
        for attributes in wrong {
            let answer = Transition::ReadyToReceive(attributes).check(State::Init);
            assert_eq!(answer, Err(EngineError::Argument), "{attributes:?}");
        }
        let rts = Transition::ReadyToSend(ReadyToSend {
            retry_count: 8,
            ..RTS
        });
        assert_eq!(rts.check(State::ReadyToReceive), Err(EngineError::Argument));
        let rts = Transition::ReadyToSend(ReadyToSend {
            max_rd_atomic: limits::RD_ATOMIC + 1,
            ..RTS
        });
        assert_eq!(rts.check(State::ReadyToReceive), Err(EngineError::Argument));
    }
}
