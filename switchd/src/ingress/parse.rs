//! \[2\] Parse: what the router has to know of a frame, read once.
//!
//! The steering program sends only unicast IP for other machines and MAC control here, but a
//! program that lags behind, or a frame made to confuse, may bring anything: everything is checked.

use crate::drop::DropReason;
use crate::packet::{Edits, NO_PCP, Parsed, Version};
use crate::tables::reading::Reading;
use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{protocol, v4, v6};
use common::wire::{self, csig, vlan};
use std::net::Ipv4Addr;

/// Why a frame is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseException {
    /// MAC control: for this port, and never for another (IEEE 802.3 clause 31).
    Control,
    /// It is lost.
    Lost(DropReason),
}

impl From<DropReason> for ParseException {
    fn from(reason: DropReason) -> Self {
        Self::Lost(reason)
    }
}

impl From<wire::Error> for ParseException {
    fn from(error: wire::Error) -> Self {
        Self::Lost(error.into())
    }
}

/// The port that a frame arrived at, for its parser.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its MAC address.
    pub own: [u8; 6],
    /// How tags that tell of a path are read there.
    pub reading: Option<Reading>,
}

/// Reads a frame that arrived at a port with the MAC address `own`, where no tags are known that
/// tell of a path.
///
/// # Errors
/// Why the packet is not to be forwarded.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "what is parsed goes from registers to its lane; through a result in memory it costs a stalled copy"
)]
pub fn parse(frame: &[u8], own: [u8; 6]) -> Result<Parsed, ParseException> {
    let port = Arrived { own, reading: None };
    parse_partial(frame, frame.len(), port, |_| false)
}

/// The same for a frame of `len` bytes that begins with `frame`: the rest lies elsewhere. `doubt`
/// says whether the source is in doubt, given that of an IPv4 packet.
///
/// # Errors
/// Why the packet is not to be forwarded.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
pub fn parse_partial(
    frame: &[u8],
    len: usize,
    port: Arrived,
    doubt: impl Fn(Option<Ipv4Addr>) -> bool,
) -> Result<Parsed, ParseException> {
    let header = match untagged(frame) {
        Some((to, kind)) if to == port.own => Header {
            ethertype: kind,
            payload_at: ethernet::HEADER_LEN,
            pcp: NO_PCP,
            edits: Edits::default(),
        },
        _ => match port.reading.and_then(|reading| signed(frame, reading)) {
            Some((to, header)) if to == port.own => header,
            _ => parse_header(frame, port)?,
        },
    };
    parse_payload(frame, len, header, doubt)
}

/// What the parser knows of a link header.
#[derive(Clone, Copy)]
struct Header {
    /// EtherType of what follows it.
    ethertype: u16,
    /// Where that begins.
    payload_at: usize,
    /// Priority code point of its first tag, or [`NO_PCP`].
    pcp: u8,
    /// The tag that tells of its path.
    edits: Edits,
}

/// Destination and EtherType of a frame without tags that has an IP packet.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn untagged(frame: &[u8]) -> Option<([u8; 6], u16)> {
    let header = frame.first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let at = ethernet::field::ETHERTYPE;
    let kind = u16::from_be_bytes([header[at], header[at + 1]]);
    let is_ip = matches!(kind, ethertype::IPV4 | ethertype::IPV6);
    is_ip.then_some((*header.first_chunk()?, kind))
}

/// The same of a frame with a tag alone that tells of its path. [`tags`] knows it, too; what it
/// says goes through memory, which costs a tenth of the whole pipeline.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn signed(frame: &[u8], reading: Reading) -> Option<([u8; 6], Header)> {
    let header = frame.first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let at = ethernet::field::ETHERTYPE;
    let tpid = u16::from_be_bytes([header[at], header[at + 1]]);
    let tag = reading.tpids.kind(tpid)?;
    let kind = frame.get(at + tag.len()..)?.first_chunk()?;
    let ethertype = u16::from_be_bytes(*kind);
    let is_ip = matches!(ethertype, ethertype::IPV4 | ethertype::IPV6);
    let read = Header {
        ethertype,
        payload_at: ethernet::HEADER_LEN + tag.len(),
        pcp: NO_PCP,
        edits: Edits::of_tag(tag, reading.trusts(tag)),
    };
    is_ip.then_some((*header.first_chunk()?, read))
}

/// The tags of a frame, and what follows from the one that tells of its path.
#[inline]
fn tags(frame: &[u8], reading: Option<Reading>) -> Result<(vlan::Stack, Edits), wire::Error> {
    let Some(reading) = reading else {
        return Ok((vlan::walk(frame)?, Edits::default()));
    };
    let tagged = csig::walk(frame, reading.tpids)?;
    let edits = tagged.signal.map_or_else(Edits::default, |(kind, _)| {
        Edits::of_tag(kind, reading.trusts(kind))
    });
    Ok((tagged.stack, edits))
}

/// Reads the link header of any frame that arrived at a port.
#[inline(never)]
fn parse_header(frame: &[u8], port: Arrived) -> Result<Header, ParseException> {
    let (stack, edits) = tags(frame, port.reading)?;
    if stack.ethertype == ethertype::MAC_CONTROL {
        return Err(ParseException::Control);
    }
    if frame[..6] != port.own {
        let multicast = frame[0] & 1 != 0;
        return Err(ParseException::Lost(if multicast {
            DropReason::Multicast
        } else {
            DropReason::OtherMac
        }));
    }
    // A tag with VLAN identifier 0 is there for its priority only (802.1Q clause 6.9.1). As Linux
    // does, several of them are taken off.
    if stack.has_vlan {
        return Err(DropReason::UnknownVlan.into());
    }
    Ok(Header {
        ethertype: stack.ethertype,
        payload_at: stack.payload_at,
        pcp: stack.outer.map_or(NO_PCP, |tag| tag.pcp()),
        edits,
    })
}

/// The same for a frame that is known to be for this router, and whose first tag, if it had one, is
/// gone: that had the priority `pcp`. `None` if it is none that is read without tags; then
/// [`parse_partial`] says what it is.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
pub fn parse_addressed(
    frame: &[u8],
    len: usize,
    pcp: u8,
    doubt: impl Fn(Option<Ipv4Addr>) -> bool,
) -> Option<Result<Parsed, ParseException>> {
    let (_, kind) = untagged(frame)?;
    let header = Header {
        ethertype: kind,
        payload_at: ethernet::HEADER_LEN,
        pcp,
        edits: Edits::default(),
    };
    Some(parse_payload(frame, len, header, doubt))
}

/// Reads what follows the link header of a frame.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn parse_payload(
    frame: &[u8],
    len: usize,
    header: Header,
    doubt: impl Fn(Option<Ipv4Addr>) -> bool,
) -> Result<Parsed, ParseException> {
    let at = header.payload_at;
    let ip = &frame[at..];
    let network = u16::try_from(at).map_err(|_| DropReason::Malformed)?;
    match header.ethertype {
        ethertype::IPV4 => Ok(parse_v4(ip, len - at, (network, header), doubt)?),
        ethertype::IPV6 => Ok(parse_v6(ip, len - at, (network, header), doubt)?),
        _ => Err(DropReason::UnknownEtherType.into()),
    }
}

/// Reads a frame of `len` bytes that begins with `frame`, for any destination; `None` if it would
/// not be forwarded anyway.
pub fn parse_any(frame: &[u8], len: usize, reading: Option<Reading>) -> Option<Parsed> {
    let own = frame.first_chunk().copied().unwrap_or_default();
    parse_partial(frame, len, Arrived { own, reading }, |_| false).ok()
}

/// Reads of a frame that is bridged what its class and its flow follow from. A bridge judges no
/// packet: what is no IP packet, or none that makes sense, has no DSCP and no flow, and nothing in
/// it is ever changed but a tag that tells of the path. The frame has `len` bytes and begins with
/// `frame`.
///
/// # Errors
/// [`DropReason::BadCsig`] or [`DropReason::BadInt`]: it must not bring a tag to where tags are not
/// believed.
#[inline]
pub fn parse_bridged(
    frame: &[u8],
    len: usize,
    reading: Option<Reading>,
) -> Result<Parsed, DropReason> {
    let opaque = Parsed {
        version: Version::V4,
        protocol: 0,
        ttl: 0,
        dscp: 0,
        ecn: 0,
        pcp: NO_PCP,
        network: u16::try_from(frame.len()).unwrap_or(u16::MAX),
        transport: 0,
        is_fragment: true,
        ip_len: 0,
        may_fragment: false,
        in_doubt: false,
        interface: 0,
        edits: Edits::default(),
        dst: [0; 16],
    };
    let (stack, edits) = match tags(frame, reading).map_err(DropReason::from) {
        Ok(tags) => tags,
        Err(reason @ (DropReason::BadCsig | DropReason::BadInt)) => return Err(reason),
        Err(_) => return Ok(opaque),
    };
    let pcp = stack.outer.map_or(NO_PCP, |tag| tag.pcp());
    let opaque = Parsed {
        pcp,
        edits,
        ..opaque
    };
    let (ip, ip_len) = (&frame[stack.payload_at..], len - stack.payload_at);
    let Ok(network) = u16::try_from(stack.payload_at) else {
        return Ok(opaque);
    };
    let class = match stack.ethertype {
        ethertype::IPV4 => v4::Packet::new_partial(ip, ip_len).ok().map(|packet| {
            let at = if packet.fragment_offset() == 0 {
                packet.header_len()
            } else {
                0
            };
            let upper = (packet.protocol(), at, packet.is_fragment());
            (Version::V4, packet.ttl(), packet.traffic_class(), upper)
        }),
        ethertype::IPV6 => v6::Packet::new_partial(ip, ip_len).ok().map(|packet| {
            let upper = packet.upper().ok();
            let is_fragment = upper.is_some_and(|upper| upper.fragment.is_some());
            let first = upper.filter(|upper| upper.fragment.is_none_or(|offset| offset == 0));
            let protocol = upper.map_or(protocol::NO_NEXT, |upper| upper.protocol);
            let upper = (protocol, first.map_or(0, |upper| upper.at), is_fragment);
            (
                Version::V6,
                packet.hop_limit(),
                packet.traffic_class(),
                upper,
            )
        }),
        _ => None,
    };
    let Some((version, ttl, class, (protocol, at, is_fragment))) = class else {
        return Ok(opaque);
    };
    Ok(Parsed {
        version,
        protocol,
        ttl,
        dscp: class >> 2,
        ecn: class & 3,
        network,
        transport: u16::try_from(at).map_or(0, |at| if at == 0 { 0 } else { network + at }),
        is_fragment,
        ..opaque
    })
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn parse_v4(
    ip: &[u8],
    len: usize,
    (network, header): (u16, Header),
    doubt: impl Fn(Option<Ipv4Addr>) -> bool,
) -> Result<Parsed, DropReason> {
    let packet = v4::Packet::new_partial(ip, len)?;
    if !packet.verify_checksum() {
        return Err(DropReason::BadChecksum);
    }
    let (src, dst) = (packet.src(), packet.dst());
    // RFC 1812 §5.3.7: such sources, and these destinations, are not forwarded.
    if is_no_host(src) || dst.is_unspecified() || dst.is_loopback() || dst.is_link_local() {
        return Err(DropReason::Martian);
    }
    if dst.is_multicast() || dst.is_broadcast() {
        return Err(DropReason::Multicast);
    }
    let header_len = u16::try_from(packet.header_len()).map_err(|_| DropReason::Malformed)?;
    if usize::from(header_len) != v4::HEADER_LEN && packet.has_options() {
        return Err(DropReason::Options);
    }
    let mut address = [0; 16];
    address[..4].copy_from_slice(&dst.octets());
    Ok(Parsed {
        version: Version::V4,
        protocol: packet.protocol(),
        ttl: packet.ttl(),
        dscp: packet.traffic_class() >> 2,
        ecn: packet.traffic_class() & 3,
        pcp: header.pcp,
        network,
        transport: if packet.fragment_offset() == 0 {
            network + header_len
        } else {
            0
        },
        is_fragment: packet.is_fragment(),
        may_fragment: !packet.dont_fragment(),
        in_doubt: doubt(Some(src)),
        interface: 0,
        edits: header.edits,
        ip_len: u16::try_from(packet.total_len()).map_err(|_| DropReason::Malformed)?,
        dst: address,
    })
}

/// Whether an IPv4 source is not that of a single host of another link: unspecified, loopback,
/// link-local (RFC 3927 §2.7), multicast, reserved (RFC 1112 §4) and broadcast. Linux would forward
/// link-local and reserved ones.
#[inline]
fn is_no_host(source: Ipv4Addr) -> bool {
    let first = source.octets()[0];
    first == 127 || first >= 224 || source.is_link_local() || source.is_unspecified()
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn parse_v6(
    ip: &[u8],
    len: usize,
    (network, header): (u16, Header),
    doubt: impl Fn(Option<Ipv4Addr>) -> bool,
) -> Result<Parsed, DropReason> {
    let packet = v6::Packet::new_partial(ip, len)?;
    let (src, dst) = (packet.src(), packet.dst());
    let link_local = dst.is_unicast_link_local() || src.is_unicast_link_local();
    let impossible_source = src.is_multicast() || src.is_loopback() || src.is_unspecified();
    if impossible_source || dst.is_loopback() || dst.is_unspecified() || link_local {
        return Err(DropReason::Martian);
    }
    if dst.is_multicast() {
        return Err(DropReason::Multicast);
    }
    // A hop-by-hop header is each router's to read (RFC 8200 §4.3).
    if packet.next_header() == protocol::HOP_BY_HOP {
        return Err(DropReason::Options);
    }
    // A chain that is not understood does not keep the packet from being forwarded (RFC 8200 §4).
    let upper = packet.upper().ok();
    let transport = upper
        .filter(|upper| upper.fragment.is_none_or(|offset| offset == 0))
        .and_then(|upper| u16::try_from(upper.at).ok());
    Ok(Parsed {
        version: Version::V6,
        protocol: upper.map_or(protocol::NO_NEXT, |upper| upper.protocol),
        ttl: packet.hop_limit(),
        dscp: packet.traffic_class() >> 2,
        ecn: packet.traffic_class() & 3,
        pcp: header.pcp,
        network,
        transport: transport.map_or(0, |at| network + at),
        is_fragment: upper.is_some_and(|upper| upper.fragment.is_some()),
        may_fragment: false,
        in_doubt: doubt(None),
        interface: 0,
        edits: header.edits,
        ip_len: u16::try_from(v6::HEADER_LEN + packet.payload_len())
            .map_err(|_| DropReason::Malformed)?,
        dst: dst.octets(),
    })
}
