//! Netlink bytes to values: RFC 3549, linux/netlink.h, linux/rtnetlink.h, linux/nexthop.h.
//!
//! Every length is checked against the bytes that are left. A well-formed item that is unknown (a
//! newer attribute, another family) is skipped. A message that contradicts itself is an error, but
//! does not affect the next one.

use super::attribute::{Attribute, DecodeError, attributes, i32_at, ip, u8_at, u16_at, u32_at};
use super::bridge::{bridge_port, fdb_entry, vlan_states};
use super::link::link;
use super::rest::{Rest, on_link};
use super::rule::Rule;
use super::settings::settings;
use super::types::{
    Address, BridgePort, FdbEntry, Hop, Link, Mac, NO_MTU, Neighbour, NeighbourKey, NeighbourState,
    NextHop, NextHopKind, Resilience, Route, RouteKey, RouteKind, SettingsChange, VlanState,
};
use crate::time::Span;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER_LEN: usize = 16;

pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;
pub(super) const AF_BRIDGE: u8 = 7;

/// Numbers of messages (RTM_*).
pub(super) mod kind {
    pub(in super::super) const ERROR: u16 = 2;
    pub(in super::super) const DONE: u16 = 3;
    pub(in super::super) const OVERRUN: u16 = 4;
    pub(in super::super) const LINK: u16 = 16;
    pub(in super::super) const ADDRESS: u16 = 20;
    pub(in super::super) const ROUTE: u16 = 24;
    pub(in super::super) const NEIGHBOUR: u16 = 28;
    pub(in super::super) const RULE: u16 = 32;
    pub(in super::super) const SETTINGS: u16 = 80;
    pub(in super::super) const NEXT_HOP: u16 = 104;
    pub(in super::super) const VLAN: u16 = 112;
}

/// Flags of a message header (NLM_F_*).
pub(super) mod flag {
    pub(in super::super) const DUMP_INTERRUPTED: u16 = 0x10;
    pub(in super::super) const REPLACE: u16 = 0x100;
    pub(in super::super) const APPEND: u16 = 0x800;
}

/// What happened to the object of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It exists, now or still.
    Set,
    /// It is gone.
    Removed,
}

/// A decoded message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// NLM_F_*.
    pub flags: u16,
    /// The number of the request that this answers.
    pub sequence: u32,
    /// The socket whose request caused it.
    pub port: u32,
    /// What is left of the life of the route that it reports, if that ends by itself (`expires`);
    /// zero: it has ended.
    pub lifetime: Option<Span>,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A dump is complete (or failed, with a negative errno).
    Done(i32),
    /// A request failed (negative errno) or was acknowledged (zero).
    Error(i32),
    /// The kernel says that data was lost.
    Overrun,
    /// An interface.
    Link(Action, Link),
    /// An address of this machine.
    Address(Action, Address),
    /// A neighbour.
    Neighbour(Action, Neighbour),
    /// A port of a bridge, or the bridge itself.
    BridgePort(Action, BridgePort),
    /// VLANs of this port of a bridge, or of this bridge, with their states.
    VlanStates(Action, u32, Vec<VlanState>),
    /// A station that a bridge knows.
    Fdb(Action, FdbEntry),
    /// A route.
    Route(Action, RouteKey, Route),
    /// A next hop object.
    NextHop(Action, NextHop),
    /// A policy rule.
    Rule(Action, Rule),
    /// Settings of IPv4 on an interface, or on all.
    Settings(Action, SettingsChange),
    /// Well formed, of no interest here.
    Other,
}

/// Decodes all messages of one datagram. After a header whose length lies, nothing more of the
/// datagram can be found, so the iterator ends with that error.
pub fn decode(datagram: &[u8]) -> impl Iterator<Item = Result<Message, DecodeError>> + '_ {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match split_message(rest) {
            Ok((message, next)) => {
                rest = next;
                Some(decode_one(message))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error))
            }
        }
    })
}

fn split_message(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let len = usize::try_from(u32_at(bytes, 0)?).map_err(|_| DecodeError::Length)?;
    if len < HEADER_LEN || len > bytes.len() {
        return Err(DecodeError::Length);
    }
    let next = len.next_multiple_of(4).min(bytes.len());
    Ok((&bytes[..len], &bytes[next..]))
}

/// `message` is one whole message: at least a header, and as long as its header says.
fn decode_one(message: &[u8]) -> Result<Message, DecodeError> {
    let number = u16_at(message, 4)?;
    let body = message.get(HEADER_LEN..).ok_or(DecodeError::Short)?;
    Ok(Message {
        flags: u16_at(message, 6)?,
        sequence: u32_at(message, 8)?,
        port: u32_at(message, 12)?,
        lifetime: lifetime(number, body)?,
        body: decode_body(number, body)?,
    })
}

fn decode_body(number: u16, body: &[u8]) -> Result<Body, DecodeError> {
    let action = if number.is_multiple_of(4) {
        Action::Set
    } else {
        Action::Removed
    };
    Ok(match number {
        // Some kernels end a dump without a status.
        kind::DONE => Body::Done(i32_at(body, 0).unwrap_or(0)),
        kind::ERROR => Body::Error(i32_at(body, 0)?),
        kind::OVERRUN => Body::Overrun,
        kind::LINK | 17 | kind::NEIGHBOUR | 29 if body.first() == Some(&AF_BRIDGE) => {
            decode_of_bridge(number, body, action)?
        }
        kind::LINK | 17 => link(body)?.map_or(Body::Other, |link| Body::Link(action, link)),
        kind::ADDRESS | 21 => {
            address(body)?.map_or(Body::Other, |address| Body::Address(action, address))
        }
        kind::ROUTE | 25 => {
            route(body)?.map_or(Body::Other, |(key, route)| Body::Route(action, key, route))
        }
        kind::NEIGHBOUR | 29 => neighbour(body, action)?
            .map_or(Body::Other, |neighbour| Body::Neighbour(action, neighbour)),
        kind::RULE | 33 => rule(body)?.map_or(Body::Other, |rule| Body::Rule(action, rule)),
        kind::SETTINGS | 81 => {
            settings(body)?.map_or(Body::Other, |settings| Body::Settings(action, settings))
        }
        kind::VLAN | 113 => {
            let (ifindex, states) = vlan_states(body)?;
            Body::VlanStates(action, ifindex, states)
        }
        kind::NEXT_HOP | 105 => Body::NextHop(action, next_hop(body, action)?),
        _ => Body::Other,
    })
}

/// A message of the family of bridges.
fn decode_of_bridge(number: u16, body: &[u8], action: Action) -> Result<Body, DecodeError> {
    Ok(match number {
        kind::LINK | 17 => bridge_port(body, action == Action::Set)?
            .map_or(Body::Other, |port| Body::BridgePort(action, port)),
        _ => fdb_entry(body)?.map_or(Body::Other, |entry| Body::Fdb(action, entry)),
    })
}

/// struct ifaddrmsg and IFA_*.
fn address(body: &[u8]) -> Result<Option<Address>, DecodeError> {
    let family = u8_at(body, 0)?;
    let prefix_len = u8_at(body, 1)?;
    let ifindex = u32_at(body, 4)?;
    if family != AF_INET && family != AF_INET6 {
        return Ok(None);
    }
    // IFA_LOCAL (2) is our own address; IFA_ADDRESS (1) is the peer's if both are given.
    let (mut own, mut other) = (None, None);
    for attribute in attributes(&body[8..]) {
        let attribute = attribute?;
        match attribute.kind {
            1 => other = Some(attribute.address()?),
            2 => own = Some(attribute.address()?),
            _ => {}
        }
    }
    let address = own.or(other).ok_or(DecodeError::Missing(1))?;
    check_family(family, address)?;
    checked_prefix(address, prefix_len)?;
    Ok(Some(Address {
        ifindex,
        address,
        prefix_len,
    }))
}

fn check_family(family: u8, address: IpAddr) -> Result<(), DecodeError> {
    if address.is_ipv4() == (family == AF_INET) {
        Ok(())
    } else {
        Err(DecodeError::Value("address family", u32::from(family)))
    }
}

fn checked_prefix(address: IpAddr, len: u8) -> Result<IpNet, DecodeError> {
    IpNet::new(address, len).map_err(|_| DecodeError::Value("prefix length", u32::from(len)))
}

/// struct ndmsg and NDA_*.
fn neighbour(body: &[u8], action: Action) -> Result<Option<Neighbour>, DecodeError> {
    const NTF_PROXY: u8 = 8;
    let family = u8_at(body, 0)?;
    let ifindex = u32_at(body, 4)?;
    let bits = u16_at(body, 8)?;
    let flags = u8_at(body, 10)?;
    let rest = body.get(12..).ok_or(DecodeError::Short)?;
    if (family != AF_INET && family != AF_INET6) || flags & NTF_PROXY != 0 {
        return Ok(None);
    }
    let (mut address, mut mac) = (None, None);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            1 => address = Some(attribute.address()?),
            2 => mac = attribute.mac(),
            _ => {}
        }
    }
    let address = address.ok_or(DecodeError::Missing(1))?;
    check_family(family, address)?;
    let state = match (NeighbourState::from_bits(bits), action) {
        (Some(state), _) => state,
        (None, Action::Removed) => NeighbourState::None,
        (None, Action::Set) => {
            return Err(DecodeError::Value("neighbour state", u32::from(bits)));
        }
    };
    // Entries of groups and of loopback interfaces, of which the kernel tells in dumps only. Others
    // of this state are neighbours that an administrator or a tunnel knows.
    let is_station = |mac: Mac| mac[0] & 1 == 0 && mac != [0; 6];
    let is_set = action == Action::Set;
    if is_set && state == NeighbourState::NoArp && !mac.is_some_and(is_station) {
        return Ok(None);
    }
    Ok(Some(Neighbour {
        key: NeighbourKey { ifindex, address },
        mac,
        state,
    }))
}

/// struct rtmsg and RTA_*. Cached routes are not part of the table.
fn route(body: &[u8]) -> Result<Option<(RouteKey, Route)>, DecodeError> {
    const RTM_F_CLONED: u32 = 0x200;
    let family = u8_at(body, 0)?;
    let prefix_len = u8_at(body, 1)?;
    let source_len = u8_at(body, 2)?;
    let tos = u8_at(body, 3)?;
    let kind = RouteKind::from_number(u8_at(body, 7)?);
    let flags = u32_at(body, 8)?;
    let unspecified: IpAddr = match family {
        AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    if flags & RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let mut table = u32::from(u8_at(body, 4)?);
    let (mut address, mut source) = (unspecified, unspecified);
    let (mut priority, mut next_hop, mut mtu) = (0, None, NO_MTU);
    let mut preferred = None;
    let mut single = Hop::default();
    let mut hops = None;
    let (mut rest, mut of_hops) = (Rest::default(), Rest::default());
    rest.add(0, &[u8_at(body, 6)?, 0]);
    of_hops.add(0, &[0, on_link(flags.to_ne_bytes()[0])]);
    for attribute in attributes(&body[12..]) {
        let attribute = attribute?;
        let is_metrics = attribute.kind == 8;
        let tells = if is_metrics { &mut rest } else { &mut of_hops };
        tells.add_attribute(0, &attribute);
        match attribute.kind {
            1 => address = attribute.address()?,
            2 => source = attribute.address()?,
            6 => priority = attribute.u32()?,
            7 => preferred = Some(attribute.address()?),
            8 => mtu = route_mtu(attribute.value)?,
            9 => hops = Some(multipath(attribute.value, &mut of_hops)?),
            15 => table = attribute.u32()?,
            30 => next_hop = Some(attribute.u32()?),
            _ => hop_attribute(&mut single, &attribute)?,
        }
    }
    check_family(family, address)?;
    check_family(family, source)?;
    let source = checked_prefix(source, source_len)?.trunc();
    let is_hop = single.ifindex != 0 || single.gateway.is_some();
    let single = || if is_hop { vec![single] } else { Vec::new() };
    // What the kernel tells of the hops of an object, it tells when it likes
    // (`net.ipv4.nexthop_compat_mode`), and the object changes without the route.
    let hops = match next_hop {
        Some(_) => Vec::new(),
        None => {
            rest.join(&of_hops);
            hops.unwrap_or_else(single)
        }
    };
    let key = RouteKey {
        table,
        prefix: checked_prefix(address, prefix_len)?.trunc(),
        priority,
        tos,
        source: (source_len > 0).then_some(source),
    };
    let route = Route {
        kind,
        protocol: u8_at(body, 5)?,
        hops: hops.into(),
        next_hop,
        source: preferred,
        mtu,
        rest: rest.number(),
    };
    Ok(Some((key, route)))
}

/// What is left of a route of IPv6 that ends by itself: RTA_CACHEINFO, with rta_expires in
/// hundredths of a second (clock_t). Negative: it is over; zero: it does not end.
fn lifetime(number: u16, body: &[u8]) -> Result<Option<Span>, DecodeError> {
    const CACHE_INFO: u16 = 12;
    if number != kind::ROUTE || body.first() != Some(&AF_INET6) {
        return Ok(None);
    }
    for attribute in attributes(body.get(12..).ok_or(DecodeError::Short)?) {
        let attribute = attribute?;
        if attribute.kind == CACHE_INFO {
            let left = i32_at(attribute.value, 8)?;
            let ticks = u64::try_from(left).unwrap_or(0);
            return Ok((left != 0).then(|| Span::from_millis(10).times(ticks)));
        }
    }
    Ok(None)
}

/// RTAX_MTU: how large packets may be that are forwarded by the route. Whether it is locked matters
/// only to those who find out the MTU of a path.
fn route_mtu(metrics: &[u8]) -> Result<u16, DecodeError> {
    let mut mtu = 0;
    for attribute in attributes(metrics) {
        let attribute = attribute?;
        if attribute.kind == 2 {
            mtu = attribute.u32()?;
        }
    }
    Ok(match mtu {
        0 => NO_MTU,
        mtu => u16::try_from(mtu).unwrap_or(NO_MTU),
    })
}

/// RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_ENCAP_TYPE: of a route, or of one hop of RTA_MULTIPATH.
fn hop_attribute(hop: &mut Hop, attribute: &Attribute<'_>) -> Result<(), DecodeError> {
    match attribute.kind {
        4 => hop.ifindex = attribute.u32()?,
        5 => hop.gateway = Some(attribute.address()?).filter(|address| !address.is_unspecified()),
        18 => hop.gateway = Some(via(attribute)?),
        21 => hop.encapsulated = true,
        _ => {}
    }
    Ok(())
}

/// struct rtvia: a gateway of another family than the route.
fn via(attribute: &Attribute<'_>) -> Result<IpAddr, DecodeError> {
    let wrong = DecodeError::Attribute(attribute.kind);
    let family = u16_at(attribute.value, 0).map_err(|_| wrong)?;
    let address = ip(&attribute.value[2..]).ok_or(wrong)?;
    let family = u8::try_from(family).map_err(|_| wrong)?;
    check_family(family, address)?;
    Ok(address)
}

/// A list of struct rtnexthop, each with attributes. The kernel's order means nothing and changes:
/// sorted.
fn multipath(bytes: &[u8], others: &mut Rest) -> Result<Vec<Hop>, DecodeError> {
    /// RTNH_F_DEAD.
    const DEAD: u8 = 1;
    let mut rest = bytes;
    let mut hops = Vec::new();
    while rest.len() >= 8 {
        let len = usize::from(u16_at(rest, 0)?);
        if len < 8 || len > rest.len() {
            return Err(DecodeError::Length);
        }
        let mut hop = Hop {
            ifindex: u32_at(rest, 4)?,
            weight: u32::from(rest[3]) + 1,
            dead: rest[2] & DEAD != 0,
            ..Hop::default()
        };
        others.add(hop.ifindex, &[on_link(rest[2])]);
        for attribute in attributes(&rest[8..len]) {
            let attribute = attribute?;
            others.add_attribute(hop.ifindex, &attribute);
            hop_attribute(&mut hop, &attribute)?;
        }
        hops.push(hop);
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    hops.sort_unstable();
    Ok(hops)
}

/// struct fib_rule_hdr and FRA_* (linux/fib_rules.h). Rules of multicast routing are of other
/// families.
fn rule(body: &[u8]) -> Result<Option<Rule>, DecodeError> {
    const INVERT: u32 = 2;
    let family = u8_at(body, 0)?;
    let unspecified: IpAddr = match family {
        AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    let (destination_len, source_len) = (u8_at(body, 1)?, u8_at(body, 2)?);
    let mut rule = Rule {
        is_v6: family == AF_INET6,
        table: u32::from(u8_at(body, 4)?),
        action: u8_at(body, 7)?,
        is_inverted: u32_at(body, 8)? & INVERT != 0,
        tos: u8_at(body, 3)?,
        ..Rule::default()
    };
    let (mut destination, mut source) = (unspecified, unspecified);
    let mut mask = None;
    for attribute in attributes(&body[12..]) {
        let attribute = attribute?;
        if !matches!(attribute.kind, 1..=3 | 6 | 10 | 15 | 17 | 19) {
            rule.rest.extend(attribute.kind.to_ne_bytes());
            rule.rest.extend_from_slice(attribute.value);
        }
        match attribute.kind {
            1 => destination = attribute.address()?,
            2 => source = attribute.address()?,
            3 => rule.input = Some(attribute.name()?),
            6 => rule.priority = attribute.u32()?,
            10 => rule.mark = Some(attribute.u32()?),
            15 => rule.table = attribute.u32()?,
            17 => rule.output = Some(attribute.name()?),
            19 => rule.is_of_vrf = u8_at(attribute.value, 0)? != 0,
            // Suppressors say -1 for none.
            13 | 14 => rule.has_more |= attribute.u32()? != u32::MAX,
            16 => mask = Some(attribute.u32()?),
            // A realm, padding and the protocol do not select.
            11 | 18 | 21 => {}
            _ => rule.has_more = true,
        }
    }
    // Of the mark 0 only the mask is told.
    rule.has_more |= mask.is_some_and(|mask| rule.mark.is_none() || mask != u32::MAX);
    check_family(family, destination)?;
    check_family(family, source)?;
    let prefix = |address, len| {
        let prefix = checked_prefix(address, len)?.trunc();
        Ok::<_, DecodeError>((len > 0).then_some(prefix))
    };
    rule.destination = prefix(destination, destination_len)?;
    rule.source = prefix(source, source_len)?;
    Ok(Some(rule))
}

/// struct nhmsg and NHA_* (linux/nexthop.h).
fn next_hop(body: &[u8], action: Action) -> Result<NextHop, DecodeError> {
    let rest = body.get(8..).ok_or(DecodeError::Short)?;
    let (mut id, mut group, mut hop) = (None, None, Hop::default());
    let (mut blackhole, mut foreign, mut resilient) = (false, false, None);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            1 => id = Some(attribute.u32()?),
            2 => group = Some(members(&attribute)?),
            4 => blackhole = true,
            5 => hop.ifindex = attribute.u32()?,
            6 => hop.gateway = Some(attribute.address()?).filter(|a| !a.is_unspecified()),
            7 => hop.encapsulated = true,
            11 => foreign = true,
            12 => resilient = Some(resilience(&attribute)?),
            _ => {}
        }
    }
    let id = id.filter(|&id| id != 0).ok_or(DecodeError::Missing(1))?;
    let kind = match group {
        _ if foreign => NextHopKind::Foreign,
        _ if blackhole => NextHopKind::Blackhole,
        Some(members) => match resilient {
            Some(resilience) => NextHopKind::Resilient(members, resilience),
            None => NextHopKind::Group(members),
        },
        None if hop.ifindex == 0 && action == Action::Set => {
            return Err(DecodeError::Missing(5));
        }
        None => NextHopKind::Single(hop),
    };
    Ok(NextHop { id, kind })
}

/// NHA_RES_GROUP_*: a number of buckets, and timers in hundredths of a second (clock_t).
fn resilience(attribute: &Attribute<'_>) -> Result<Resilience, DecodeError> {
    let mut resilience = Resilience {
        buckets: 0,
        idle: Span::ZERO,
        unbalanced: Span::ZERO,
    };
    let timer = |attribute: &Attribute<'_>| {
        let ticks = attribute.u32()?;
        Ok::<_, DecodeError>(Span::from_millis(10).times(ticks.into()))
    };
    for nested in attributes(attribute.value) {
        let nested = nested?;
        match nested.kind {
            1 => resilience.buckets = u16_at(nested.value, 0)?,
            2 => resilience.idle = timer(&nested)?,
            3 => resilience.unbalanced = timer(&nested)?,
            // How long it has been out of balance: as the kernel sees it, which sees no packets.
            _ => {}
        }
    }
    match resilience.buckets {
        0 => attribute.wrong(),
        _ => Ok(resilience),
    }
}

/// An array of struct nexthop_grp: number, weight - 1 in two bytes that are not adjacent in old
/// kernels.
fn members(attribute: &Attribute<'_>) -> Result<Vec<(u32, u32)>, DecodeError> {
    let entries = attribute.value.chunks_exact(8);
    if !entries.remainder().is_empty() {
        return attribute.wrong();
    }
    entries
        .map(|entry| {
            let weight = u32::from(entry[4]) | u32::from(entry[5]) << 8;
            Ok((u32_at(entry, 0)?, weight + 1))
        })
        .collect()
}
