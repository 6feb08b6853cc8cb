//! \[6\] Packets: what they say, written into frames and read out of them.
//!
//! ```text
//!   data          data packets             parse     received frames, checked
//!   acknowledge   acknowledgements         address   where packets go, and by which path
//!   answer        answers to READs and atomic operations
//!   compute       messages of in-network compute
//!   tagging       tags of CSIG and INT, put on and taken off
//! ```

mod acknowledge;
mod address;
mod answer;
mod compute;
mod data;
mod parse;
mod tagging;

pub(crate) use acknowledge::{
    AckFields, Acknowledgement, Refusal, Report, SPAN_WORDS, SackFields, Trigger,
};
pub(crate) use address::{back, flow, on_path};
pub(crate) use answer::{AnswerFields, AnswerKind, IncomingAnswer};
pub(crate) use common::wire::roce::frame::{seal, seal_sparse};
pub(crate) use compute::{COMPUTE_FRAME, ComputeDatagram, compute_at, emit_compute};
pub(crate) use data::{
    DataFields, DataHeader, IncomingQuestion, IncomingSegment, PathFields, Position, Question,
};
pub(crate) use parse::ReceivedPacket;
pub(crate) use tagging::{Carried, put_tag, put_telemetry, take_tag};

use common::time::Time;
use common::wire::roce::{CLOCK_MASK, CLOCK_SHIFT, Flow, Headers, frame};
use common::xdp::frame::{Frame, FramePool};

/// Gives `frame` the length of the packet and writes all but the payload; returns where that goes.
/// `None` if the packet is longer than a frame.
pub(crate) fn lay_out(
    frame: &mut Frame,
    pool: &FramePool,
    flow: &Flow,
    headers: &Headers,
    payload_len: usize,
) -> Option<std::ops::Range<usize>> {
    let len = frame::layout(flow.addresses, headers, payload_len).len;
    if len > pool.capacity() {
        return None;
    }
    pool.resize(frame, len);
    Some(frame::emit(frame.bytes_mut(), flow, headers, payload_len))
}

/// The clock as the Scheduling Tag of data packets carries it (HT-11): units of 32 ns modulo 2¹⁶,
/// of which the upper nine bits are sent.
pub(crate) fn timestamp(now: Time) -> u16 {
    u16::try_from((now.nanos() >> CLOCK_SHIFT) & u64::from(CLOCK_MASK)).expect("16 bits")
}

/// How long a packet with this Scheduling Tag was under way, in units of 32 ns modulo 2¹⁶, against
/// an origin that is the same for all packets of its sender.
pub(crate) fn under_way(tag: u16, now: Time) -> u16 {
    timestamp(now).wrapping_sub(tag & CLOCK_MASK)
}
