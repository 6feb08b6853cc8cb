//! \[4\] Forward: from a next hop to its port and MAC address, or to the reason why the packet
//! goes nowhere.

use crate::drop::DropReason;
use crate::forward::choice::Choice;
use crate::id::{NextHopId, PortId};
use crate::packet::Parsed;
use crate::tables::{Group, Tables};
use common::wire::icmp::Problem;
use std::net::IpAddr;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To a neighbour.
    Send {
        /// The port it leaves by.
        port: PortId,
        /// The neighbour.
        next_hop: NextHopId,
        /// The neighbour's MAC address.
        mac: [u8; 6],
    },
    /// To a neighbour whose MAC address is not known yet.
    Wait {
        /// The kernel's number of the interface it is behind.
        ifindex: u32,
        /// Its address.
        address: IpAddr,
    },
    /// Nowhere; `problem` is the ICMP error for its sender, if any.
    Drop {
        /// Why.
        reason: DropReason,
        /// The ICMP error for the sender.
        problem: Option<Problem>,
    },
}

impl Decision {
    const fn silent(reason: DropReason) -> Self {
        Self::Drop {
            reason,
            problem: None,
        }
    }

    const fn told(reason: DropReason, problem: Problem) -> Self {
        Self::Drop {
            reason,
            problem: Some(problem),
        }
    }
}

/// Decides for a packet what to do with it.
#[inline]
pub fn decide(tables: &Tables, choice: Choice, parsed: &Parsed) -> Decision {
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
fn expired(parsed: &Parsed) -> Option<Decision> {
    (parsed.ttl <= 1).then_some(Decision::told(
        DropReason::TtlExpired,
        Problem::TimeExceeded,
    ))
}

#[inline]
fn send(tables: &Tables, next_hop: NextHopId, parsed: &Parsed) -> Decision {
    let Some(hop) = tables.next_hop(next_hop) else {
        return Decision::silent(DropReason::NoNextHop);
    };
    if let Some(refused) = leaves_by(tables, hop.port, parsed) {
        return refused;
    }
    match hop.mac {
        Some(mac) => Decision::Send {
            port: hop.port,
            next_hop,
            mac,
        },
        None => Decision::Wait {
            ifindex: hop.ifindex,
            address: hop.address,
        },
    }
}

/// Why the packet cannot leave by `port`.
#[inline]
fn leaves_by(tables: &Tables, port: PortId, parsed: &Parsed) -> Option<Decision> {
    let Some(entry) = tables.port(port) else {
        return Some(Decision::silent(DropReason::NoNextHop));
    };
    if !entry.up {
        return Some(Decision::silent(DropReason::EgressDown));
    }
    let problem = Problem::TooBig { mtu: entry.mtu };
    (parsed.ip_len > entry.mtu).then_some(Decision::told(DropReason::TooBig, problem))
}

#[cold]
fn without_next_hop(tables: &Tables, choice: Choice, parsed: &Parsed) -> Decision {
    let group = match choice {
        Choice::Special(id) => tables.group(id),
        Choice::Hop(_) | Choice::Dead | Choice::NoRoute => None,
    };
    // Neither is answered, whatever the TTL.
    match group {
        Some(Group::Local) => return Decision::silent(DropReason::Local),
        Some(Group::Blackhole) => return Decision::silent(DropReason::Blackhole),
        _ => {}
    }
    if let Some(expired) = expired(parsed) {
        return expired;
    }
    match group {
        Some(Group::Glean { port, ifindex }) => {
            let wait = Decision::Wait {
                ifindex: *ifindex,
                address: parsed.destination(),
            };
            leaves_by(tables, *port, parsed).unwrap_or(wait)
        }
        Some(Group::Prohibit) => Decision::told(DropReason::Prohibited, Problem::Prohibited),
        Some(Group::Unreachable) => {
            Decision::told(DropReason::Unreachable, Problem::HostUnreachable)
        }
        _ if choice == Choice::NoRoute => Decision::told(DropReason::NoRoute, Problem::NoRoute),
        _ => Decision::told(DropReason::NoNextHop, Problem::NoRoute),
    }
}
