//! Packet trace: what each stage decided about chosen packets.
//!
//! ```text
//!   operator ─ text ─▶ Filter ─▶ session() ─┬─▶ Tracer, one for each worker
//!                                           │      │ bounded rings: records, first bytes
//!                                           │      ▼
//!                                           └─▶ Collector (control)
//!                                                  └─▶ Trace ─▶ show (text, JSON), control::pcap
//! ```
//!
//! How a worker uses it. Control makes a [`session()`] and gives each worker its [`Tracer`] with a
//! command. The worker keeps it in a [`Probe`](probe::Probe), which is empty while nothing is
//! traced: such a switch has no memory for it and pays a branch for each packet:
//!
//! 1. When a batch is parsed and its routes are looked up, each packet gets an id from
//!    [`Tracer::begin`]. The id goes with the packet as `Packet::trace`, also through rings. The
//!    steps of classification are recorded then, too. A packet that the parser refused is offered
//!    without headers before it is dropped.
//! 2. Each stage that decides something about a packet records it with [`Tracer::step`], which does
//!    nothing for [`TraceId::NONE`](crate::id::TraceId::NONE).
//! 3. Each loss is recorded with [`Tracer::dropped`], also of packets without an id. So a search
//!    for rare losses finds every one. A loss has no history if too many packets matched to follow
//!    them all.
//! 4. Each packet that is sent is recorded with [`Tracer::sent`], after its headers were rewritten.
//! 5. [`Tracer::flush`] is called before the packets of the turn are put into rings to other
//!    workers, and at the end of the turn. So a packet's records are under way before another
//!    worker adds to them.
//!
//! Every worker has to have a tracer of the session, because packets cross. An id that is left over
//! from an earlier session is ignored. Nothing here waits for control: what does not fit is counted
//! as lost.
//!
//! ```text
//!   filter   which packets are followed
//!   record   what is recorded of one
//!   session  a tracer for each worker, and control's end
//!   tracer   a worker's end; probe: the stages' access to it
//!   collect  control's end; show: the result as text and JSON
//! ```

mod collect;
mod filter;
pub mod probe;
mod record;
mod session;
mod show;
#[cfg(test)]
mod tests;
mod tracer;

pub use collect::{Collector, Outcome, Totals, Trace};
pub use filter::{DEFAULT_COUNT, Filter, FilterError, MAX_COUNT, ReasonSet};
pub use record::{Arrival, Direction, Excerpt, How, MarkedAt, Record, Region, SNAP, Snap, Step};
pub use session::session;
pub use show::{Names, Shown, ShownStep, hexadecimal};
pub use tracer::Tracer;
