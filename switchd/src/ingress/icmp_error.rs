//! ICMP errors: telling a sender what became of its packet.

use crate::id::PortId;
use crate::limits::{ICMP_BURST, ICMP_PEER_BURST, ICMP_PEERS, ICMP_TOO_BIG_INTERVAL, MAX_PORTS};
use crate::packet::{Parsed, Version};
use crate::tables::PortEntry;
use crate::tables::errors::{ErrorRules, PeerRules};
use crate::tables::interfaces::Interface;
use common::time::{Span, Time};
use common::wire;
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::icmp::{self, Problem};
use common::wire::ip::{protocol, v4, v6};
use common::xdp::frame::{Frame, FramePool};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Limits how many errors a worker sends (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f), in all and to each
/// destination, as Linux does. Those by which senders find out the MTU of their path are not
/// counted among the others: Linux does not limit them at all, and a sender that does not hear them
/// loses all that it sends. Each port at which packets arrive has as many of these as it would have
/// alone.
#[derive(Debug)]
pub struct Limiter {
    rules: ErrorRules,
    /// When errors that are limited may come in a burst again.
    errors: Time,
    /// The same of the others, by port.
    others: Box<[Time; MAX_PORTS]>,
    peers: Peers,
    /// Identification of the last error of IPv4.
    ident: u16,
}

impl Default for Limiter {
    fn default() -> Self {
        Self {
            rules: ErrorRules::default(),
            errors: Time::ZERO,
            others: Box::new([Time::ZERO; MAX_PORTS]),
            peers: Peers::default(),
            ident: 0,
        }
    }
}

/// Takes one token of a bucket that is full at `full_at`, and holds `burst` of them. A bucket that
/// is full is as good as a new one.
fn take(full_at: &mut Time, (interval, burst): (Span, u64), now: Time) -> bool {
    let next = (*full_at).max(now) + interval;
    let allowed = next.since(now) <= interval.times(burst);
    if allowed {
        *full_at = next;
    }
    allowed
}

impl Limiter {
    /// Follows the kernel's settings.
    pub fn configure(&mut self, rules: &ErrorRules) {
        if self.rules == *rules {
            return;
        }
        self.rules = *rules;
        let limits_peers = |rules: PeerRules| rules.interval != Span::ZERO && rules.types != 0;
        if limits_peers(rules.v4) || limits_peers(rules.v6) {
            self.peers.make_room();
        }
    }

    /// The identification of the next error of IPv4.
    fn next_ident(&mut self) -> u16 {
        self.ident = self.ident.wrapping_add(1);
        self.ident
    }

    /// Whether an error about a packet that arrived at a port may be sent to a destination now;
    /// takes it from its buckets.
    pub fn allows(&mut self, problem: Problem, (ingress, to): (PortId, IpAddr), now: Time) -> bool {
        let rules = &self.rules;
        let (peer, icmp_type) = match to {
            IpAddr::V4(_) => (rules.v4, problem.type_v4()),
            IpAddr::V6(_) => (rules.v6, problem.type_v6()),
        };
        if matches!(problem, Problem::TooBig { .. }) || !peer.limits(icmp_type) {
            let limit = (ICMP_TOO_BIG_INTERVAL, ICMP_BURST);
            let bucket = self.others.get_mut(ingress.index());
            return bucket.is_some_and(|bucket| take(bucket, limit, now));
        }
        let limit = (rules.interval, u64::from(rules.burst.max(1)));
        self.peers.allow(to, peer.interval, now) && take(&mut self.errors, limit, now)
    }
}

/// A destination of errors.
#[derive(Clone, Copy, Debug)]
struct Peer {
    address: IpAddr,
    /// When its bucket is full: then there is nothing to remember.
    full_at: Time,
}

/// The destinations that errors were sent to lately: sets of a table, of which the least recent one
/// is forgotten when a set is full.
#[derive(Debug, Default)]
struct Peers(Vec<[Peer; PEER_WAYS]>);

/// Places of a set.
const PEER_WAYS: usize = 4;

impl Peers {
    fn make_room(&mut self) {
        let none = Peer {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            full_at: Time::ZERO,
        };
        self.0.resize(ICMP_PEERS / PEER_WAYS, [none; PEER_WAYS]);
    }

    /// Whether a destination may have one more error.
    fn allow(&mut self, to: IpAddr, interval: Span, now: Time) -> bool {
        if self.0.is_empty() || interval == Span::ZERO {
            return true;
        }
        let bits = match to {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let [low, high] = [bits, bits >> 64].map(|it| u64::try_from(it & u128::from(u64::MAX)));
        // Multiplicative hashing: the high bits of the product depend on all of the address.
        let mixed = low.unwrap_or(0) ^ high.unwrap_or(0).rotate_left(31);
        let hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let count = self.0.len();
        let set = &mut self.0[usize::try_from(hash).unwrap_or(0) % count];
        let known = set.iter().position(|peer| peer.address == to);
        let place = known.unwrap_or_else(|| {
            let oldest = (0..PEER_WAYS).min_by_key(|place| set[*place].full_at);
            oldest.expect("a set has places")
        });
        if known.is_none() {
            set[place] = Peer {
                address: to,
                full_at: Time::ZERO,
            };
        }
        take(&mut set[place].full_at, (interval, ICMP_PEER_BURST), now)
    }
}

/// An ICMP error of the switch itself, which is to leave.
#[derive(Debug)]
pub struct OwnError {
    /// The whole of it.
    pub frame: Frame,
    /// What was found in it.
    pub parsed: Parsed,
    /// Where the packet arrived that it is about.
    pub ingress: PortId,
    /// When it was made.
    pub made: Time,
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
    /// The same with another IPv6 address.
    #[must_use]
    pub fn saying_from(self, v6: Ipv6Addr) -> Self {
        Self {
            v6: Some(v6),
            ..self
        }
    }

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

/// Decides about the error for a packet that arrived at `ingress`, and makes it. Its MAC addresses
/// are filled in by forwarding.
pub fn answer(
    limiter: &mut Limiter,
    pool: &mut FramePool,
    (frame, parsed): (&[u8], &Parsed),
    problem: Problem,
    (ingress, speaker): (PortId, Speaker),
    now: Time,
) -> Answer {
    if !may_be_reported(frame, parsed) {
        return Answer::Silence;
    }
    let sender = sender(frame, parsed);
    let allowed = sender.is_some_and(|to| limiter.allows(problem, (ingress, to), now));
    if !allowed {
        return Answer::Suppressed;
    }
    let ident = limiter.next_ident();
    about((frame, parsed), problem, speaker, ident, pool).map_or(Answer::Suppressed, Answer::Send)
}

/// The source of a packet.
pub fn sender(frame: &[u8], parsed: &Parsed) -> Option<IpAddr> {
    let packet = frame.get(usize::from(parsed.network)..)?;
    match parsed.version {
        Version::V4 => {
            let packet = v4::Packet::new_partial(packet, usize::MAX).ok()?;
            Some(packet.src().into())
        }
        Version::V6 => {
            let packet = v6::Packet::new_partial(packet, usize::MAX).ok()?;
            Some(packet.src().into())
        }
    }
}

/// Whether an error may be sent about this packet at all (RFC 1812 §4.3.2.7, RFC 4443 §2.4 e): not
/// about an error, nor about what may be one. Not about a later fragment of IPv4, either; IPv6 has
/// no such rule. Group addresses, of IP and of Ethernet, and sources that are no single host never
/// come this far, so that the exceptions that RFC 4443 makes for groups are the kernel's.
pub fn may_be_reported(frame: &[u8], parsed: &Parsed) -> bool {
    let is_v4 = parsed.version == Version::V4;
    if parsed.transport == 0 {
        return !is_v4 && !is_read_in_part(frame, parsed);
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

/// Whether a packet of IPv6 has more extension headers than are read: an error may be behind them.
#[cold]
fn is_read_in_part(frame: &[u8], parsed: &Parsed) -> bool {
    let packet = frame.get(usize::from(parsed.network)..).unwrap_or_default();
    let upper = v6::Packet::new_partial(packet, usize::MAX).and_then(|packet| packet.upper());
    matches!(upper, Err(wire::Error::Field { .. }))
}

/// Makes an ICMPv4 error in `frame` one from `source`, if it is one.
pub fn say_from(frame: &mut [u8], source: Ipv4Addr) {
    if let Some(ip) = frame.get_mut(ethernet::HEADER_LEN..)
        && let Ok(mut packet) = v4::Packet::new_checked(ip)
    {
        packet.set_src(source);
    }
}

/// Makes an ICMP error in `frame` leave with this TTL or hop limit. Forwarding takes one of it, so
/// that it is 254 at most.
pub fn say_with(frame: &mut [u8], version: Version, ttl: u8) {
    let Some(ip) = frame.get_mut(ethernet::HEADER_LEN..) else {
        return;
    };
    let ttl = ttl.saturating_add(1);
    match version {
        Version::V4 => {
            if let Ok(mut packet) = v4::Packet::new_checked(ip) {
                packet.set_ttl(ttl);
            }
        }
        Version::V6 => {
            if let Some(hop_limit) = ip.get_mut(v6::field::HOP_LIMIT) {
                *hop_limit = ttl;
            }
        }
    }
}

/// A frame with the ICMP error about a packet that arrived at `port`, addressed to its sender, with
/// this identification if it is of IPv4. Its MAC addresses are filled in by forwarding.
/// `None` if the port has no address to say it from, or no frame is free.
fn about(
    (frame, parsed): (&[u8], &Parsed),
    problem: Problem,
    port: Speaker,
    ident: u16,
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
            v4::Packet::new_checked(&mut answer.bytes_mut()[at..])
                .ok()?
                .set_ident(ident);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(interval: Span) -> ErrorRules {
        let types = 1 << 3 | 1 << 11;
        ErrorRules {
            interval: Span::from_millis(1),
            burst: 50,
            v4: PeerRules { interval, types },
            ..ErrorRules::default()
        }
    }

    /// SW-1: a destination gets six errors at once, and then one in each interval, whatever others
    /// get; all of them together have a limit, too. Types that are not limited, and those that tell
    /// an MTU, go on.
    #[test]
    fn errors_to_a_destination_are_limited() {
        let mut limiter = Limiter::default();
        limiter.configure(&rules(Span::from_secs(1)));
        let to = |last| IpAddr::from([10, 0, 0, last]);
        let expired = Problem::TimeExceeded;
        let mut now = Time::from_nanos(1);
        let sent = |limiter: &mut Limiter, to, problem, now| {
            (0..20)
                .filter(|_| limiter.allows(problem, (PortId(0), to), now))
                .count()
        };
        assert_eq!(sent(&mut limiter, to(1), expired, now), 6);
        assert_eq!(sent(&mut limiter, to(2), Problem::NoRoute, now), 6);
        let too_big = Problem::TooBig { mtu: 1400 };
        assert_eq!(sent(&mut limiter, to(1), too_big, now), 20);
        for _ in 0..3 {
            now += Span::from_secs(1);
            assert_eq!(sent(&mut limiter, to(1), expired, now), 1);
        }
        // In all: 50 at once.
        now += Span::from_secs(60);
        let all: usize = (0..20)
            .map(|last| sent(&mut limiter, to(last), expired, now))
            .sum();
        assert_eq!(all, 50);
        // Without limits for destinations.
        limiter.configure(&rules(Span::ZERO));
        now += Span::from_secs(60);
        assert_eq!(sent(&mut limiter, to(1), expired, now), 20);
        let none = ErrorRules {
            v4: PeerRules::default(),
            ..rules(Span::from_secs(1))
        };
        limiter.configure(&none);
        let all: usize = (0..4)
            .map(|_| sent(&mut limiter, to(1), expired, now))
            .sum();
        assert_eq!(all, 80, "the type is not limited");
    }

    /// SW-1: many destinations need no more room, and each is limited as long as it is remembered.
    #[test]
    fn destinations_beyond_the_table_are_forgotten() {
        let mut limiter = Limiter::default();
        let rules = ErrorRules {
            interval: Span::ZERO,
            ..rules(Span::from_secs(1))
        };
        limiter.configure(&rules);
        let now = Time::from_nanos(1);
        let to = |n: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n));
        let few = (0..100).flat_map(|n| std::iter::repeat_n(to(n), 20));
        let sent = few.filter(|to| limiter.allows(Problem::NoRoute, (PortId(0), *to), now));
        assert_eq!(sent.count(), 600);
        let many =
            (0..100_000).filter(|n| limiter.allows(Problem::NoRoute, (PortId(0), to(*n)), now));
        assert!(many.count() >= 99_900);
        assert_eq!(limiter.peers.0.len() * PEER_WAYS, ICMP_PEERS);
    }

    /// SW-1: no error is answered by an error, however many extension headers are in front of it;
    /// what is behind more of them than are read may be one.
    #[test]
    fn errors_are_not_answered_wherever_they_are() {
        for count in 0..=40_u8 {
            for (kind, is_error) in [(1, true), (3, true), (128, false)] {
                let options = [protocol::DESTINATION, 0, 1, 4, 0, 0, 0, 0];
                let mut chain: Vec<u8> = options.repeat(count.into());
                let mut next = protocol::ICMPV6;
                if count > 0 {
                    let last = chain.len() - options.len();
                    chain[last] = std::mem::replace(&mut next, protocol::DESTINATION);
                }
                let mut frame = vec![0; ethernet::HEADER_LEN + v6::HEADER_LEN];
                let (own, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
                ethernet::emit(&mut frame, own, other, ethertype::IPV6);
                let repr = v6::Repr {
                    src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
                    dst: Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1),
                    traffic_class: 0,
                    flow_label: 0,
                    hop_limit: 1,
                    next_header: next,
                    payload_len: u16::try_from(chain.len() + 8).unwrap(),
                };
                repr.emit(&mut frame[ethernet::HEADER_LEN..]);
                frame.extend([&chain[..], &[kind, 0, 0, 0, 0, 0, 0, 0]].concat());
                let parsed = crate::ingress::parse::parse(&frame, own.0).expect("forwarded");
                let told = may_be_reported(&frame, &parsed);
                assert_eq!(told, !is_error && count <= 8, "{kind} behind {count}");
            }
        }
    }
}
