//! Packets whose source address is in doubt: what Linux's `fib_validate_source` asks about it,
//! which asks nothing about the sources of IPv6, and what the port's configuration asks (RFC 2827).

use super::Worker;
use crate::drop::DropReason;
use crate::forward::choice::Choice;
use crate::id::{GroupId, PortId};
use crate::ingress::parse::{Arrived, ParseException, parse_partial};
use crate::packet::{Parsed, Version};
use crate::tables::sources::{PortRules, ReversePath, Sources};
use crate::tables::{Group, Tables};
use common::wire::ip::{v4, v6};
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The source of an IPv4 packet.
fn source_v4(frame: &Frame, parsed: &Parsed) -> Option<Ipv4Addr> {
    let at = usize::from(parsed.network) + v4::field::SRC;
    let octets: &[u8; 4] = frame.bytes().get(at..)?.first_chunk()?;
    (parsed.version == Version::V4).then(|| Ipv4Addr::from(*octets))
}

/// The source of an IPv6 packet.
fn source_v6(frame: &Frame, parsed: &Parsed) -> Option<Ipv6Addr> {
    let at = usize::from(parsed.network) + v6::field::SRC;
    let octets: &[u8; 16] = frame.bytes().get(at..)?.first_chunk()?;
    (parsed.version == Version::V6).then(|| Ipv6Addr::from(*octets))
}

/// How the packets of a port enter, found out once for many of them.
#[derive(Clone, Copy)]
pub(super) struct Entrance {
    /// The port, if it takes packets.
    port: Option<Arrived>,
    /// All sources of IPv4, and all of IPv6, are in doubt.
    doubts_v4: bool,
    doubts_v6: bool,
}

impl Entrance {
    /// That of packets of the port itself.
    #[inline]
    pub(super) fn of(tables: &Tables, port: PortId) -> Self {
        let entry = tables.port(port).filter(|entry| entry.up);
        Self {
            port: entry.map(|entry| Arrived {
                own: entry.mac,
                reading: entry.reading(),
            }),
            doubts_v4: tables.sources.doubt_v4(port),
            doubts_v6: tables.sources.doubt_v6(port),
        }
    }

    /// Reads a frame; `doubt` is as in [`parse_partial`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn parse(
        self,
        frame: &Frame,
        doubt: impl Fn(Option<Ipv4Addr>) -> bool,
    ) -> Result<Parsed, ParseException> {
        match self.port {
            Some(port) => parse_partial(frame.bytes(), frame.len(), port, doubt),
            None => Err(ParseException::Lost(DropReason::IngressDown)),
        }
    }

    /// Whether [`Worker::refuse_source`] is to be asked about a packet, given its source if it is
    /// of IPv4.
    #[inline]
    pub(super) fn doubts(self, sources: &Sources, source: Option<Ipv4Addr>) -> bool {
        match source {
            Some(source) => self.doubts_v4 || sources.may_be_own(source),
            None => self.doubts_v6,
        }
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// Why a packet with this source is not forwarded, if so.
    #[cold]
    pub(super) fn refuse_source(
        &self,
        frame: &Frame,
        parsed: &Parsed,
        choice: Choice,
        ingress: PortId,
    ) -> Option<DropReason> {
        let interface = self.tables.interfaces.get(parsed.interface);
        let of_port = || self.tables.sources.rules(ingress);
        let rules = interface.map_or_else(of_port, |interface| interface.rules);
        if parsed.version == Version::V6 && !rules.takes_v6 {
            return Some(DropReason::Ipv6Disabled);
        }
        if !self.validates(frame, parsed, ingress) {
            return Some(DropReason::SourceValidation);
        }
        // The kernel asks nothing about the sources of IPv6.
        let source = source_v4(frame, parsed)?;
        if !rules.forwards {
            return Some(DropReason::NotForwarding);
        }
        let is_forwarded = match choice {
            Choice::Hop(_) | Choice::Dead => true,
            Choice::Special(id) => matches!(self.tables.group(id), Some(Group::Glean { .. })),
            Choice::NoRoute => false,
        };
        if !is_forwarded {
            // The kernel asks about sources once it knows where a packet goes.
            return None;
        }
        let back = self.forward.look_up_v4(source);
        if self.is_behind() {
            return None;
        }
        refuse(&self.tables, back, rules, ingress)
    }

    /// A route that was just looked up may be newer than the tables, which will have its group in
    /// a moment. Sources are given the benefit of the doubt meanwhile.
    fn is_behind(&self) -> bool {
        self.reader.is_behind(self.forward.needs())
    }

    /// Whether the configuration of the port allows the source of a packet.
    fn validates(&self, frame: &Frame, parsed: &Parsed, ingress: PortId) -> bool {
        let validation = self.tables.sources.validation();
        if !validation.asking().contains(ingress) {
            return true;
        }
        let v4 = || Some(self.forward.look_up_v4(source_v4(frame, parsed)?));
        let v6 = || Some(self.forward.look_up_v6(source_v6(frame, parsed)?));
        let back = match parsed.version {
            Version::V4 => v4(),
            Version::V6 => v6(),
        };
        back.flatten()
            .is_some_and(|id| self.is_behind() || validation.allows(ingress, id))
    }
}

/// Why packets from a source to which `back` leads are refused, if so.
fn refuse(
    tables: &Tables,
    back: Option<GroupId>,
    rules: PortRules,
    ingress: PortId,
) -> Option<DropReason> {
    let is_missing = match back.map(|id| (id, tables.group(id))) {
        Some((_, Some(Group::Local))) => {
            return (!rules.accepts_own).then_some(DropReason::OwnSource);
        }
        Some((_, Some(Group::Broadcast))) => return Some(DropReason::Martian),
        None
        | Some((
            _,
            Some(Group::Blackhole | Group::Unreachable | Group::NoRoute | Group::Prohibit),
        )) => true,
        Some((id, _)) => {
            rules.reverse_path == ReversePath::Strict && !tables.sources.leads_to(id, ingress)
        }
    };
    let is_refused = is_missing && rules.reverse_path != ReversePath::Any;
    is_refused.then_some(DropReason::ReversePath)
}
