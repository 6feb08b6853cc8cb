//! The connection manager: RDMA CM messages over queue pair 1, and the negotiation of multipath in
//! their private data (HT-20). It owns no queue pair: the engine does what it decides.
//!
//! ```text
//!   machine       phases of a connection, and what each message does to it
//!   negotiation   the multipath offer in the private data
//!   tags          which TPIDs of tags both sides know
//!   table         connections, by own and by the peer's number, and their clocks
//! ```

pub(crate) mod machine;
pub(crate) mod negotiation;
pub(crate) mod table;
mod tags;

use common::time::Span;
use common::wire::cm::{REJ_PRIVATE_LEN, REP_PRIVATE_LEN, REQ_PRIVATE_LEN};

/// Application bytes that a connection request carries; fewer when multipath is offered.
pub const fn request_data_max(multipath: bool) -> usize {
    REQ_PRIVATE_LEN - if multipath { negotiation::OFFER_LEN } else { 0 }
}

/// Application bytes that the reply to a connection request carries, whatever is agreed on.
pub const REPLY_DATA_MAX: usize = REP_PRIVATE_LEN - negotiation::OFFER_LEN;

/// Application bytes that a rejection carries.
pub const REJECT_DATA_MAX: usize = REJ_PRIVATE_LEN;

/// The time that a code of five bits stands for in connection messages: 4.096 µs × 2^`code`.
pub(crate) const fn response_time(code: u8) -> Span {
    Span::from_nanos(4_096 << (code & 31))
}
