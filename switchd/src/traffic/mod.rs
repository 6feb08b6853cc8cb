//! \[6\] \[7\] \[8\] The traffic manager: what packets take of the buffer, and when they leave.
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
//!   bypass       [6] to [8] packets that need not wait go past all of this
//!   buffer       [6]        the ledger: charge when a packet arrives, release when it leaves
//!   headroom     [6]        how many cells a lossless group needs after its peer was paused
//!   ports        [7] [8]    the egress ports of a worker: admission, service, pauses, watchdogs
//!   egress_port  [7] [8]    the queues of a port: admit [7], serve [8]
//!   elephants    [7]        large flows, which move to a lower queue
//!   gates        [7] [8]    what holds the lower queue until a flow's earlier packets have left
//!   sketch       [7]        how the bytes of a queue are shared among flows
//!   wred         [7] [8]    early marks and drops, at enqueue or at dequeue
//!   trim         [7]        headers instead of drops
//!   queue        [7] [8]    one egress queue: a container that admit fills and serve empties
//!   store        [7] [8]    the memory in which queued packets lie
//!   scheduler    [8]        which queue is served next
//!   shaper       [8]        when a queue or a port may send
//!   signals      [8]        the load of a port, for the congestion signals in CSIG tags
//!   device_limit [8]        how much may lie in the device of a port
//!   flow_control [8]        pauses of a port in both directions: obeys its peer's, sends its own
//!   pfc_tx       [8]        pausing the peer (obeying its pauses: common::flow_control::pfc_rx)
//!   watchdog     [8]        what happens to a queue that its peer pauses for too long
//! ```

pub mod buffer;
pub mod bypass;
pub mod device_limit;
pub mod egress_port;
pub mod elephants;
pub mod flow_control;
mod gates;
pub mod headroom;
pub mod pfc_tx;
pub mod ports;
mod queue;
pub mod scheduler;
pub mod shaper;
pub mod signals;
pub mod sketch;
pub mod store;
pub mod trim;
pub mod watchdog;
pub mod wred;

pub use egress_port::EgressPort;
pub use store::PacketStore;
