//! The traffic manager: what packets take of the buffer, and when they leave.
//!
//! ```text
//!   ingress port                                egress port
//!   charge ─▶ group        ┌─ queue 7 ─┐
//!   xoff, xon ─▶ PFC  ──▶  │     …     │  ──▶ scheduler ──▶ shapers ──▶ dequeue ─▶ release
//!             admit, mark  └─ queue 0 ─┘      strict, DWRR  queue, port
//!             or drop           ▲
//!                               └── stopped: paused by the peer, held by an operator
//! ```
//!
//! The owner of a port has one [`EgressPort`] for it, and one [`PacketStore`] for all of them: the
//! packets of every queue are links of chains in that store, so that memory is bounded by the
//! number of frames and not by the number of queues. The [`Ledger`](buffer::Ledger) is shared by
//! all workers.
//!
//! ```text
//!   buffer     [6] charged to priority groups: guaranteed, service, headroom
//!   headroom       how much of that
//!   elephants  [7] flows that move to a lower queue; gates: behind what they sent before
//!   egress_port [7] [8] the queues of a port, its scheduler and its shapers
//!   queue      [7] an egress queue, in the packet store; wred: marks and early drops; trim: headers instead of drops
//!   bypass     [7] past all of that: packets that find nothing to wait for
//!   scheduler  [8] which queue is next; shaper: when
//!   pfc        [8] pausing the peer (being paused by it: common::flow_control)
//! ```

pub mod buffer;
pub mod bypass;
pub mod egress_port;
pub mod elephants;
mod gates;
pub mod headroom;
pub mod pfc_tx;
mod queue;
pub mod scheduler;
pub mod shaper;
pub mod store;
pub mod trim;
pub mod watchdog;
pub mod wred;

pub use egress_port::EgressPort;
pub use store::PacketStore;
