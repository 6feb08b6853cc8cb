//! \[4\] Forward: from a next hop to its port and MAC address, or to the reason why the packet
//! goes nowhere.

use crate::drop::DropReason;
use crate::forward::choice::Choice;
use crate::id::{NextHopId, PortId};
use crate::outcome::Outcome;
use crate::packet::Parsed;
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
    if let Some(refused) = leaves_by(tables, hop.port, parsed) {
        return refused;
    }
    match hop.mac {
        Some(mac) => Outcome::Forwarded(Hop {
            port: hop.port,
            next_hop,
            mac,
        }),
        None => Outcome::Unresolved((hop.ifindex, hop.address)),
    }
}

/// Why the packet cannot leave by `port`.
#[inline]
fn leaves_by(tables: &Tables, port: PortId, parsed: &Parsed) -> Option<Outcome<Hop>> {
    let Some(entry) = tables.port(port) else {
        return Some(Outcome::Dropped(DropReason::NoNextHop));
    };
    if !entry.up {
        return Some(Outcome::Dropped(DropReason::EgressDown));
    }
    let problem = Problem::TooBig { mtu: entry.mtu };
    (parsed.ip_len > entry.mtu).then_some(Outcome::Answered(DropReason::TooBig, problem))
}

#[cold]
fn without_next_hop(tables: &Tables, choice: Choice, parsed: &Parsed) -> Outcome<Hop> {
    let group = match choice {
        Choice::Special(id) => tables.group(id),
        Choice::Hop(_) | Choice::Dead | Choice::NoRoute => None,
    };
    // Neither is answered, whatever the TTL.
    match group {
        Some(Group::Local) => return Outcome::Dropped(DropReason::Local),
        Some(Group::Punt(_)) => return Outcome::Dropped(DropReason::Punted),
        Some(Group::Blackhole) => return Outcome::Dropped(DropReason::Blackhole),
        _ => {}
    }
    if let Some(expired) = expired(parsed) {
        return expired;
    }
    match group {
        Some(Group::Glean { port, ifindex }) => {
            let wait = Outcome::Unresolved((*ifindex, parsed.destination()));
            leaves_by(tables, *port, parsed).unwrap_or(wait)
        }
        Some(Group::Prohibit) => Outcome::Answered(DropReason::Prohibited, Problem::Prohibited),
        Some(Group::Unreachable) => {
            Outcome::Answered(DropReason::Unreachable, Problem::HostUnreachable)
        }
        _ if choice == Choice::NoRoute => Outcome::Answered(DropReason::NoRoute, Problem::NoRoute),
        _ => Outcome::Answered(DropReason::NoNextHop, Problem::NoRoute),
    }
}
