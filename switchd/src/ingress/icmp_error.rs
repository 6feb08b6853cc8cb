//! ICMP errors: telling a sender what became of its packet.

use crate::limits::{ICMP_BURST, ICMP_INTERVAL};
use crate::packet::{Parsed, Version};
use crate::tables::PortEntry;
use common::time::Time;
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::icmp::{self, Problem};
use common::wire::ip::{protocol, v4, v6};
use common::xdp::frame::{Frame, FramePool};

/// Limits how many errors a worker sends (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f): a token bucket of
/// [`ICMP_BURST`] messages, one more each [`ICMP_INTERVAL`].
#[derive(Debug, Default)]
pub struct Limiter {
    /// The bucket is full again at this time.
    full_at: Time,
}

impl Limiter {
    /// Whether an error may be sent now; takes it from the bucket.
    pub fn allows(&mut self, now: Time) -> bool {
        let next = self.full_at.max(now) + ICMP_INTERVAL;
        let allowed = next.since(now) <= ICMP_INTERVAL.times(ICMP_BURST);
        if allowed {
            self.full_at = next;
        }
        allowed
    }
}

/// What the sender of a packet is to learn.
#[derive(Debug)]
pub enum Answer {
    /// This ICMP error.
    Send(Frame),
    /// An error, but it is not sent: there were too many, the port has no address to say it from,
    /// or no frame is free.
    Suppressed,
    /// Nothing: errors are not sent about such packets.
    Silence,
}

/// Decides about the error for a packet that arrived at `port`, and makes it. Its MAC addresses are
/// filled in by forwarding.
pub fn answer(
    limiter: &mut Limiter,
    pool: &mut FramePool,
    (frame, parsed): (&[u8], &Parsed),
    problem: Problem,
    port: &PortEntry,
    now: Time,
) -> Answer {
    if !may_be_reported(frame, parsed) {
        return Answer::Silence;
    }
    if !limiter.allows(now) {
        return Answer::Suppressed;
    }
    about(frame, parsed, problem, port, pool).map_or(Answer::Suppressed, Answer::Send)
}

/// Whether an error may be sent about this packet at all: not about an error and not about a
/// later fragment (RFC 1812 §4.3.2.7, RFC 4443 §2.4 e). Multicasts never come this far.
pub fn may_be_reported(frame: &[u8], parsed: &Parsed) -> bool {
    if parsed.transport == 0 {
        return false;
    }
    let kind = frame.get(usize::from(parsed.transport)).copied();
    match (parsed.protocol, kind) {
        (protocol::ICMP, Some(kind)) => !icmp::is_error_v4(kind),
        (protocol::ICMPV6, Some(kind)) => !icmp::is_error_v6(kind),
        (protocol::ICMP | protocol::ICMPV6, None) => false,
        _ => true,
    }
}

/// A frame with the ICMP error about a packet that arrived at `port`, addressed to its sender; its
/// MAC addresses are filled in by forwarding. `None` if the port has no address to say it from, or
/// no frame is free.
pub fn about(
    frame: &[u8],
    parsed: &Parsed,
    problem: Problem,
    port: &PortEntry,
    pool: &mut FramePool,
) -> Option<Frame> {
    let original = frame.get(usize::from(parsed.network)..)?;
    let original = &original[..original.len().min(usize::from(parsed.ip_len))];
    let at = ethernet::HEADER_LEN;
    match parsed.version {
        Version::V4 => {
            let (here, there) = (port.icmp_v4?, v4::Packet::new_checked(original).ok()?.src());
            let mut answer = pool.take_sized(at + icmp::len_v4(original))?;
            ethernet::emit(
                answer.bytes_mut(),
                Mac(port.mac),
                Mac(port.mac),
                ethertype::IPV4,
            );
            icmp::emit_v4(
                &mut answer.bytes_mut()[at..],
                here,
                there,
                problem,
                original,
            );
            Some(answer)
        }
        Version::V6 => {
            let (here, there) = (port.icmp_v6?, v6::Packet::new_checked(original).ok()?.src());
            let mut answer = pool.take_sized(at + icmp::len_v6(original))?;
            ethernet::emit(
                answer.bytes_mut(),
                Mac(port.mac),
                Mac(port.mac),
                ethertype::IPV6,
            );
            icmp::emit_v6(
                &mut answer.bytes_mut()[at..],
                here,
                there,
                problem,
                original,
            );
            Some(answer)
        }
    }
}
