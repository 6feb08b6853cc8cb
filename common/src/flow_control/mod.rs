//! Flow control of a link (802.3x PAUSE, 802.1Qbb PFC): what a port obeys of its peer.

pub mod pfc_rx;
