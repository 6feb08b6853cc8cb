//! The connection manager: RDMA CM messages over QP 1 and the negotiation of multipath in their
//! private data (HT-20).

/// Bytes of the IP CM header at the head of a request's private data.
pub(crate) const IP_HEADER: usize = 36;

/// Bytes of the multipath offer that follows it, when there is one.
pub(crate) const OFFER: usize = 16;

/// Application bytes that a connection request carries: 92 less the IP CM header and, when multipath
/// is offered, the offer.
pub const fn request_data_max(multipath: bool) -> usize {
    92 - IP_HEADER - if multipath { OFFER } else { 0 }
}

/// Application bytes that the reply to a connection request carries: 196 less the multipath answer.
pub const REPLY_DATA_MAX: usize = 196 - OFFER;

/// Application bytes that a rejection carries.
pub const REJECT_DATA_MAX: usize = 148;
