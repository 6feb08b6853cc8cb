//! ICMP errors: telling a sender what became of its packet.

use crate::limits::{ICMP_BURST, ICMP_INTERVAL, ICMP_TOO_BIG_INTERVAL};
use crate::packet::{Parsed, Version};
use crate::tables::PortEntry;
use crate::tables::interfaces::Interface;
use common::time::{Span, Time};
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::icmp::{self, Problem};
use common::wire::ip::{protocol, v4, v6};
use common::xdp::frame::{Frame, FramePool};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Limits how many errors a worker sends (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f). Those by which
/// senders find out the MTU of their path are not counted among the others: Linux does not limit
/// them at all, and a sender that does not hear them loses all that it sends.
#[derive(Debug)]
pub struct Limiter {
    errors: Bucket,
    too_big: Bucket,
}

/// A token bucket of [`ICMP_BURST`] messages.
#[derive(Debug)]
struct Bucket {
    /// Time in which there is one more.
    interval: Span,
    /// It is full again at this time.
    full_at: Time,
}

impl Bucket {
    fn new(interval: Span) -> Self {
        Self {
            interval,
            full_at: Time::ZERO,
        }
    }

    fn take(&mut self, now: Time) -> bool {
        let next = self.full_at.max(now) + self.interval;
        let allowed = next.since(now) <= self.interval.times(ICMP_BURST);
        if allowed {
            self.full_at = next;
        }
        allowed
    }
}

impl Default for Limiter {
    fn default() -> Self {
        Self {
            errors: Bucket::new(ICMP_INTERVAL),
            too_big: Bucket::new(ICMP_TOO_BIG_INTERVAL),
        }
    }
}

impl Limiter {
    /// Whether an error may be sent now; takes it from its bucket.
    pub fn allows(&mut self, problem: Problem, now: Time) -> bool {
        match problem {
            Problem::TooBig { .. } => self.too_big.take(now),
            _ => self.errors.take(now),
        }
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

/// Who sends an error.
#[derive(Clone, Copy, Debug)]
pub struct Speaker {
    mac: [u8; 6],
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl From<&PortEntry> for Speaker {
    fn from(port: &PortEntry) -> Self {
        Self {
            mac: port.mac,
            v4: port.icmp_v4,
            v6: port.icmp_v6,
        }
    }
}

impl Speaker {
    /// The same for a packet that arrived by an interface. ICMPv4 errors come from the interface
    /// that they leave by.
    #[must_use]
    pub fn of_interface(self, interface: &Interface) -> Self {
        Self {
            v6: interface.icmp_v6,
            ..self
        }
    }
}

/// Decides about the error for a packet that arrived at `port`, and makes it. Its MAC addresses are
/// filled in by forwarding.
pub fn answer(
    limiter: &mut Limiter,
    pool: &mut FramePool,
    (frame, parsed): (&[u8], &Parsed),
    problem: Problem,
    port: Speaker,
    now: Time,
) -> Answer {
    if !may_be_reported(frame, parsed) {
        return Answer::Silence;
    }
    if !limiter.allows(problem, now) {
        return Answer::Suppressed;
    }
    about(frame, parsed, problem, port, pool).map_or(Answer::Suppressed, Answer::Send)
}

/// Whether an error may be sent about this packet at all (RFC 1812 §4.3.2.7, RFC 4443 §2.4 e): not
/// about an error, nor about what may be one. Not about a later fragment of IPv4, either; IPv6 has
/// no such rule. Group addresses, of IP and of Ethernet, and sources that are no single host never
/// come this far, so that the exceptions that RFC 4443 makes for groups are the kernel's.
pub fn may_be_reported(frame: &[u8], parsed: &Parsed) -> bool {
    let is_v4 = parsed.version == Version::V4;
    if parsed.transport == 0 {
        return !is_v4;
    }
    let kind = frame.get(usize::from(parsed.transport)).copied();
    match (is_v4, parsed.protocol, kind) {
        (true, protocol::ICMP, kind) => kind.is_some_and(|kind| !icmp::is_error_v4(kind)),
        // A first fragment without any of ICMP does not say that it is an error.
        (false, protocol::ICMPV6, None) => parsed.is_fragment,
        (false, protocol::ICMPV6, Some(kind)) => !icmp::is_error_v6(kind),
        _ => true,
    }
}

/// Makes an ICMPv4 error in `frame` one from `source`, if it is one.
pub fn say_from(frame: &mut [u8], source: Ipv4Addr) {
    if let Some(ip) = frame.get_mut(ethernet::HEADER_LEN..)
        && let Ok(mut packet) = v4::Packet::new_checked(ip)
    {
        packet.set_src(source);
    }
}

/// A frame with the ICMP error about a packet that arrived at `port`, addressed to its sender; its
/// MAC addresses are filled in by forwarding. `None` if the port has no address to say it from, or
/// no frame is free.
pub fn about(
    frame: &[u8],
    parsed: &Parsed,
    problem: Problem,
    port: Speaker,
    pool: &mut FramePool,
) -> Option<Frame> {
    let original = frame.get(usize::from(parsed.network)..)?;
    let original = &original[..original.len().min(usize::from(parsed.ip_len))];
    let at = ethernet::HEADER_LEN;
    match parsed.version {
        Version::V4 => {
            let (here, there) = (
                port.v4?,
                v4::Packet::new_partial(original, usize::MAX).ok()?.src(),
            );
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
            let (here, there) = (
                port.v6?,
                v6::Packet::new_partial(original, usize::MAX).ok()?.src(),
            );
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
