//! Attributes of queue pairs, and which change of state takes which (`ibv_modify_qp` of reliable
//! connections, IBTA 11.2.5.2 table 96).
//!
//! ```text
//!   change          needed                                  taken besides
//!   RESET → INIT    qp_access_flags
//!   INIT → INIT                                             qp_access_flags
//!   INIT → RTR      ah_attr, path_mtu, dest_qp_num,         qp_access_flags
//!                   rq_psn, max_dest_rd_atomic,
//!                   min_rnr_timer
//!   RTR → RTS       timeout, retry_cnt, rnr_retry,          qp_access_flags, min_rnr_timer
//!                   sq_psn, max_rd_atomic
//!   RTS, SQD → RTS                                          qp_access_flags, min_rnr_timer
//!   RTS → SQD                                               en_sqd_async_notify
//!   SQD → SQD                                               timeout, retry_cnt, rnr_retry,
//!                                                           max_rd_atomic, qp_access_flags,
//!                                                           min_rnr_timer
//!   any → ERR, RESET
//! ```
//!
//! There is one port, so it is no attribute, and neither is the partition, which is chosen in INIT
//! (`Engine::choose_partition`). RESET forgets all of them, and what was chosen besides: own
//! address, partition, service. The standard also lets the path, the partition and
//! `max_dest_rd_atomic` change in SQD, which is refused here.

use super::access::Access;
use super::state::{ReadyToReceive, ReadyToSend, State};
use crate::limits;
use std::net::IpAddr;

/// Some attributes of a queue pair (`struct ibv_qp_attr`): those that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `qp_access_flags`: what peers may do.
    pub access: Option<Access>,
    /// `ah_attr`: the peer's address.
    pub destination: Option<IpAddr>,
    /// `dest_qp_num`: the peer's queue pair, 24 bits.
    pub destination_qpn: Option<u32>,
    /// `rq_psn`: the peer's first packet, 24 bits.
    pub rq_psn: Option<u32>,
    /// `sq_psn`: the own first packet, 24 bits.
    pub sq_psn: Option<u32>,
    /// `path_mtu` in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: Option<u16>,
    /// `min_rnr_timer`: code 0–31.
    pub min_rnr_timer: Option<u8>,
    /// `max_dest_rd_atomic`, at most [`limits::RD_ATOMIC`].
    pub max_dest_rd_atomic: Option<u8>,
    /// `max_rd_atomic`, at most [`limits::RD_ATOMIC`].
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

/// Why attributes were refused; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributesRefused {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    Unknown,
    /// The states have no such change between them.
    #[error("there is no way from {from} to {to}")]
    NoTransition {
        /// The present state.
        from: State,
        /// The state that was asked for.
        to: State,
    },
    /// A connection of the connection manager owns this change.
    #[error("the queue pair belongs to a connection that is being set up")]
    Connecting,
    /// The change needs another attribute.
    #[error("{from} to {to} needs {attribute}")]
    Missing {
        /// Its name in libibverbs.
        attribute: &'static str,
        /// The present state.
        from: State,
        /// The state that was asked for.
        to: State,
    },
    /// The change does not take an attribute.
    #[error("{from} to {to} does not take {attribute}")]
    NotAllowed {
        /// Its name in libibverbs.
        attribute: &'static str,
        /// The present state.
        from: State,
        /// The state that was asked for.
        to: State,
    },
    /// An attribute has a value that is not possible.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
    /// The queue pair was bound to an address of another family than the peer's.
    #[error("ah_attr is {peer}, which is of another family than {local}, the own address")]
    OtherFamily {
        /// The peer.
        peer: IpAddr,
        /// The own address.
        local: IpAddr,
    },
}

const ACCESS: &str = "qp_access_flags";
const DESTINATION: &str = "ah_attr";
const DESTINATION_QPN: &str = "dest_qp_num";
const RQ_PSN: &str = "rq_psn";
const SQ_PSN: &str = "sq_psn";
const PATH_MTU: &str = "path_mtu";
const MIN_RNR_TIMER: &str = "min_rnr_timer";
const MAX_DEST_RD_ATOMIC: &str = "max_dest_rd_atomic";
const MAX_RD_ATOMIC: &str = "max_rd_atomic";
const TIMEOUT: &str = "timeout";
const RETRY_COUNT: &str = "retry_cnt";
const RNR_RETRY: &str = "rnr_retry";
const NOTIFY: &str = "en_sqd_async_notify";

/// What a change needs, and what it takes besides.
type Rules = (&'static [&'static str], &'static [&'static str]);

/// The table above; `None`: there is no such change.
fn rules(from: State, to: State) -> Option<Rules> {
    Some(match (from, to) {
        (_, State::Error | State::Reset) => (&[], &[]),
        (State::Reset, State::Init) => (&[ACCESS], &[]),
        (State::Init, State::Init) => (&[], &[ACCESS]),
        (State::Init, State::ReadyToReceive) => (
            &[
                DESTINATION,
                PATH_MTU,
                DESTINATION_QPN,
                RQ_PSN,
                MAX_DEST_RD_ATOMIC,
                MIN_RNR_TIMER,
            ],
            &[ACCESS],
        ),
        (State::ReadyToReceive, State::ReadyToSend) => (
            &[TIMEOUT, RETRY_COUNT, RNR_RETRY, SQ_PSN, MAX_RD_ATOMIC],
            &[ACCESS, MIN_RNR_TIMER],
        ),
        (State::ReadyToSend | State::SendQueueDrained, State::ReadyToSend) => {
            (&[], &[ACCESS, MIN_RNR_TIMER])
        }
        (State::ReadyToSend, State::SendQueueDrained) => (&[], &[NOTIFY]),
        (State::SendQueueDrained, State::SendQueueDrained) => (
            &[],
            &[
                TIMEOUT,
                RETRY_COUNT,
                RNR_RETRY,
                MAX_RD_ATOMIC,
                ACCESS,
                MIN_RNR_TIMER,
            ],
        ),
        _ => return None,
    })
}

impl Attributes {
    /// Each attribute: its name, whether it is given, and whether its value is possible.
    fn each(&self) -> [(&'static str, bool, bool); 13] {
        fn entry<T: Copy>(
            name: &'static str,
            value: Option<T>,
            possible: impl Fn(T) -> bool,
        ) -> (&'static str, bool, bool) {
            (name, value.is_some(), value.is_none_or(possible))
        }
        let number = |value: u32| value < 1 << 24;
        let depth = |value: u8| value <= limits::RD_ATOMIC;
        let mtus = limits::PATH_MTU_MIN..=limits::PATH_MTU_MAX;
        let mtu = |value: u16| value.is_power_of_two() && mtus.contains(&value);
        [
            entry(ACCESS, self.access, |_| true),
            entry(DESTINATION, self.destination, |it| !it.is_unspecified()),
            entry(DESTINATION_QPN, self.destination_qpn, number),
            entry(RQ_PSN, self.rq_psn, number),
            entry(SQ_PSN, self.sq_psn, number),
            entry(PATH_MTU, self.path_mtu, mtu),
            entry(MIN_RNR_TIMER, self.min_rnr_timer, |code| code < 32),
            entry(MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic, depth),
            entry(MAX_RD_ATOMIC, self.max_rd_atomic, depth),
            entry(TIMEOUT, self.timeout, |code| code < 32),
            entry(RETRY_COUNT, self.retry_count, |count| count < 8),
            entry(RNR_RETRY, self.rnr_retry, |count| count < 8),
            entry(NOTIFY, self.notify_drained, |_| true),
        ]
    }

    /// Checks them against the change from `from` to `to`.
    ///
    /// # Errors
    /// The first that is missing, not taken, or not possible.
    pub(crate) fn check(&self, from: State, to: State) -> Result<(), AttributesRefused> {
        let (needed, taken) =
            rules(from, to).ok_or(AttributesRefused::NoTransition { from, to })?;
        for (attribute, given, possible) in self.each() {
            let is_needed = needed.contains(&attribute);
            if is_needed && !given {
                return Err(AttributesRefused::Missing {
                    attribute,
                    from,
                    to,
                });
            }
            if given && !is_needed && !taken.contains(&attribute) {
                return Err(AttributesRefused::NotAllowed {
                    attribute,
                    from,
                    to,
                });
            }
            if !possible {
                return Err(AttributesRefused::OutOfRange(attribute));
            }
        }
        Ok(())
    }

    /// Those of INIT → RTR, for a plain peer; `None` if one is missing.
    pub(crate) fn ready_to_receive(&self) -> Option<ReadyToReceive> {
        Some(ReadyToReceive {
            destination: self.destination?,
            destination_qpn: self.destination_qpn?,
            rq_psn: self.rq_psn?,
            path_mtu: self.path_mtu?,
            min_rnr_timer: self.min_rnr_timer?,
            max_dest_rd_atomic: self.max_dest_rd_atomic?,
            multipath: None,
        })
    }

    /// Those of RTR → RTS; `None` if one is missing.
    pub(crate) fn ready_to_send(&self) -> Option<ReadyToSend> {
        Some(ReadyToSend {
            sq_psn: self.sq_psn?,
            timeout: self.timeout?,
            retry_count: self.retry_count?,
            rnr_retry: self.rnr_retry?,
            max_rd_atomic: self.max_rd_atomic?,
        })
    }

    /// INIT → RTR gave these.
    pub(crate) fn receives(&mut self, given: &ReadyToReceive) {
        self.destination = Some(given.destination);
        self.destination_qpn = Some(given.destination_qpn);
        self.rq_psn = Some(given.rq_psn);
        self.path_mtu = Some(given.path_mtu);
        self.min_rnr_timer = Some(given.min_rnr_timer);
        self.max_dest_rd_atomic = Some(given.max_dest_rd_atomic);
    }

    /// RTR → RTS gave these.
    pub(crate) fn sends(&mut self, given: &ReadyToSend) {
        self.sq_psn = Some(given.sq_psn);
        self.timeout = Some(given.timeout);
        self.retry_count = Some(given.retry_count);
        self.rnr_retry = Some(given.rnr_retry);
        self.max_rd_atomic = Some(given.max_rd_atomic);
    }
}

#[cfg(test)]
mod tests;
