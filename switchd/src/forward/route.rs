//! \[4\] Forward: from a next hop to its port and MAC address, or to the reason why the packet
//! goes nowhere.

use crate::drop::DropReason;
use crate::forward::choice::Choice;
use crate::id::{NextHopId, PortId};
use crate::outcome::Outcome;
use crate::packet::{Parsed, Version};
use crate::tables::{Group, Tables};
use common::wire::icmp::Problem;

/// The neighbour that a packet goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The port it leaves by.
    pub port: PortId,
    /// The neighbour.
    pub next_hop: NextHopId,
    /// The neighbour's MAC address.
    pub mac: [u8; 6],
    /// It is behind an interface that is no port, and the next hop has the link header.
    pub by_interface: bool,
}

/// Decides for a packet what to do with it.
#[inline]
pub fn decide(tables: &Tables, choice: Choice, parsed: &Parsed) -> Outcome<Hop> {
    match choice {
        Choice::Hop(next_hop) => match expired(parsed) {
            None => send(tables, next_hop, parsed),
            Some(expired) => expired,
        },
        other => without_next_hop(tables, other, parsed),
    }
}

/// A router does not forward a packet whose TTL would become zero (RFC 1812 §5.3.1, RFC 8200 §3).
#[inline]
fn expired(parsed: &Parsed) -> Option<Outcome<Hop>> {
    (parsed.ttl <= 1).then_some(Outcome::Answered(
        DropReason::TtlExpired,
        Problem::TimeExceeded,
    ))
}

#[inline]
fn send(tables: &Tables, next_hop: NextHopId, parsed: &Parsed) -> Outcome<Hop> {
    let Some(hop) = tables.next_hop(next_hop) else {
        return Outcome::Dropped(DropReason::NoNextHop);
    };
    let by_interface = hop.link_header.is_some();
    let size = match leaves_by(tables, (hop.port, hop.mtu), by_interface, parsed) {
        Ok(size) => size,
        Err(refused) => return refused,
    };
    let Some(mac) = hop.mac else {
        return Outcome::Unresolved((hop.ifindex, hop.address));
    };
    let hop = Hop {
        port: hop.port,
        next_hop,
        mac,
        by_interface,
    };
    match size {
        Size::Fits => Outcome::Forwarded(hop),
        Size::Exceeds(mtu) => Outcome::Fragmented(hop, mtu),
    }
}

/// How a packet compares with what may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Fits,
    /// It is longer than this, and may be fragmented (RFC 791 §2.3).
    Exceeds(u16),
}

/// Least MTU of a link of IPv6.
const LEAST_OF_V6: u16 = 1280;

/// Whether the packet can leave by `port` on a route with this MTU, which an MTU of the port
/// above it does not lift. That of IPv6 is the port's own: the route has that of an interface.
#[inline]
fn leaves_by(
    tables: &Tables,
    (port, mtu): (PortId, u16),
    by_interface: bool,
    parsed: &Parsed,
) -> Result<Size, Outcome<Hop>> {
    let Some(entry) = tables.port(port) else {
        return Err(Outcome::Dropped(DropReason::NoNextHop));
    };
    if !entry.up {
        return Err(Outcome::Dropped(DropReason::EgressDown));
    }
    let mtu = match parsed.version {
        Version::V6 if !by_interface => entry.mtu.min(mtu).min(entry.mtu_v6),
        _ => entry.mtu.min(mtu),
    };
    if parsed.ip_len <= mtu {
        Ok(Size::Fits)
    } else if parsed.may_fragment {
        Ok(Size::Exceeds(mtu))
    } else {
        // Every link of IPv6 carries this (RFC 8200 §5): a sender is told of less only if it sends
        // less.
        let mtu = match parsed.version {
            Version::V6 if parsed.ip_len > LEAST_OF_V6 => mtu.max(LEAST_OF_V6),
            _ => mtu,
        };
        let problem = Problem::TooBig { mtu };
        Err(Outcome::Answered(DropReason::TooBig, problem))
    }
}

#[cold]
fn without_next_hop(tables: &Tables, choice: Choice, parsed: &Parsed) -> Outcome<Hop> {
    let group = match choice {
        Choice::Special(id) => tables.group(id),
        Choice::Hop(_) | Choice::Dead | Choice::NoRoute => None,
    };
    // As in Linux, the TTL counts for what would be forwarded only.
    match group {
        Some(Group::Local | Group::Broadcast) => Outcome::Dropped(DropReason::Local),
        Some(Group::Punt(_)) => Outcome::Dropped(DropReason::Punted),
        Some(Group::Blackhole) => Outcome::Dropped(DropReason::Blackhole),
        Some(Group::Glean { port, ifindex, mtu }) => {
            if let Some(expired) = expired(parsed) {
                return expired;
            }
            let wait = |_| Outcome::Unresolved((*ifindex, parsed.destination()));
            leaves_by(tables, (*port, *mtu), false, parsed).map_or_else(|refused| refused, wait)
        }
        Some(Group::Prohibit) => Outcome::Answered(DropReason::Prohibited, Problem::Prohibited),
        Some(Group::Unreachable) => {
            // As Linux answers: ICMPv6 has no code for a route that says so.
            let problem = match parsed.version {
                Version::V4 => Problem::HostUnreachable,
                Version::V6 => Problem::NoRoute,
            };
            Outcome::Answered(DropReason::Unreachable, problem)
        }
        Some(Group::NoRoute) => Outcome::Answered(DropReason::NoRoute, Problem::NoRoute),
        _ if choice == Choice::NoRoute => Outcome::Answered(DropReason::NoRoute, Problem::NoRoute),
        _ => Outcome::Answered(DropReason::NoNextHop, Problem::NoRoute),
    }
}
