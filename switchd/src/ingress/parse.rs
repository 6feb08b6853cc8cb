//! \[2\] Parse: what the router has to know of a frame, read once.
//!
//! The steering program sends only unicast IP for other machines and MAC control here, but a
//! program that lags behind, or a frame made to confuse, may bring anything: everything is checked.

use crate::drop::DropReason;
use crate::packet::{Address, Edits, NO_PCP, Parsed, Version};
use crate::tables::reading::Reading;
use common::wire::csig::{Form, Kind};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Header {
    /// That of a frame with these tags.
    fn behind(stack: vlan::Stack, edits: Edits) -> Self {
        Self {
            ethertype: stack.ethertype,
            payload_at: stack.payload_at,
            pcp: stack.outer.map_or(NO_PCP, |tag| tag.pcp()),
            edits,
        }
    }
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
    let tpids = reading.tpids;
    let of_form = |form| signed_by(frame, (tpids.of(form), Kind::Csig(form)), reading);
    of_form(Form::Compact)
        .or_else(|| of_form(Form::Expanded))
        .or_else(|| signed_by(frame, (tpids.int, Kind::Int), reading))
}

/// The same for a tag of one kind, if it has this TPID: its length is known where this is called,
/// so that nothing waits for the TPID to know where the packet begins.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn signed_by(
    frame: &[u8],
    (known, tag): (u16, Kind),
    reading: Reading,
) -> Option<([u8; 6], Header)> {
    let header = frame.first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let at = ethernet::field::ETHERTYPE;
    let tpid = u16::from_be_bytes([header[at], header[at + 1]]);
    // Zero: such tags are not known, and the frame has a length there.
    if tpid != known || tpid == 0 {
        return None;
    }
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
    Ok(Header::behind(stack, edits))
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

/// The link header of a frame with an IP packet and no tags, or only the one of its VLAN.
/// [`tags`] knows these, too.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn usual(frame: &[u8]) -> Option<Header> {
    let (payload_at, pcp) = match untagged(frame) {
        Some(_) => (ethernet::HEADER_LEN, NO_PCP),
        None => {
            let header = frame.first_chunk::<{ ethernet::HEADER_LEN + 2 }>()?;
            let [.., tpid_high, tpid_low, high, low] = *header;
            let tag = vlan::Tci(u16::from_be_bytes([high, low]));
            let is_tag = vlan::is_tag(u16::from_be_bytes([tpid_high, tpid_low]));
            is_tag.then_some((ethernet::HEADER_LEN + vlan::TAG_LEN, tag.pcp()))?
        }
    };
    let ethertype = u16::from_be_bytes(*frame.get(..payload_at)?.last_chunk()?);
    let is_ip = matches!(ethertype, ethertype::IPV4 | ethertype::IPV6);
    is_ip.then_some(Header {
        ethertype,
        payload_at,
        pcp,
        edits: Edits::default(),
    })
}

/// The link header of any frame that is bridged.
#[inline(never)]
fn bridged_header(frame: &[u8], reading: Option<Reading>) -> Result<Header, wire::Error> {
    let (stack, edits) = tags(frame, reading)?;
    Ok(Header::behind(stack, edits))
}

/// What the class and the flow of a frame follow from.
#[derive(Clone, Copy)]
struct Content {
    version: Version,
    protocol: u8,
    ttl: u8,
    traffic_class: u8,
    /// Where the upper layer begins; 0 if it is not there.
    transport: u16,
    /// Where the IP header begins.
    network: u16,
    is_fragment: bool,
}

impl Content {
    /// That of a frame in which there is nothing to be read.
    #[inline]
    fn unknown(frame: &[u8]) -> Self {
        Self {
            version: Version::V4,
            protocol: 0,
            ttl: 0,
            traffic_class: 0,
            transport: 0,
            network: u16::try_from(frame.len()).unwrap_or(u16::MAX),
            is_fragment: true,
        }
    }
}

/// Reads what is behind the link header of a frame that is bridged; `None` if it makes no sense.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
fn content(frame: &[u8], len: usize, header: Header) -> Option<Content> {
    let network = u16::try_from(header.payload_at).ok()?;
    let ip = frame.get(header.payload_at..)?;
    let ip_len = len - header.payload_at;
    let behind = |at: usize| u16::try_from(at).map_or(0, |at| network + at);
    match header.ethertype {
        ethertype::IPV4 => {
            let packet = v4::Packet::new_partial(ip, ip_len).ok()?;
            let is_first = packet.fragment_offset() == 0;
            Some(Content {
                version: Version::V4,
                protocol: packet.protocol(),
                ttl: packet.ttl(),
                traffic_class: packet.traffic_class(),
                transport: if is_first {
                    behind(packet.header_len())
                } else {
                    0
                },
                network,
                is_fragment: packet.is_fragment(),
            })
        }
        ethertype::IPV6 => {
            let packet = v6::Packet::new_partial(ip, ip_len).ok()?;
            let upper = packet.upper().ok();
            let first = upper.filter(|upper| upper.fragment.is_none_or(|offset| offset == 0));
            Some(Content {
                version: Version::V6,
                protocol: upper.map_or(protocol::NO_NEXT, |upper| upper.protocol),
                ttl: packet.hop_limit(),
                traffic_class: packet.traffic_class(),
                transport: first.map_or(0, |upper| behind(upper.at)),
                network,
                is_fragment: upper.is_some_and(|upper| upper.fragment.is_some()),
            })
        }
        _ => None,
    }
}

/// Reads of a frame that is bridged what its class and its flow follow from. A bridge judges no
/// packet: what is no IP packet, or none that makes sense, has no DSCP and no flow, and nothing in
/// it is ever changed but a tag that tells of the path. The frame has `len` bytes and begins with
/// `frame`.
///
/// # Errors
/// [`DropReason::BadCsig`] or [`DropReason::BadInt`]: it must not bring a tag to where tags are not
/// believed.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `parse`")]
pub fn parse_bridged(
    frame: &[u8],
    len: usize,
    reading: Option<Reading>,
) -> Result<Parsed, DropReason> {
    let header = match usual(frame) {
        Some(header) => Some(header),
        None => match bridged_header(frame, reading).map_err(DropReason::from) {
            Ok(header) => Some(header),
            Err(reason @ (DropReason::BadCsig | DropReason::BadInt)) => return Err(reason),
            Err(_) => None,
        },
    };
    let pcp = header.map_or(NO_PCP, |header| header.pcp);
    let edits = header.map(|header| header.edits).unwrap_or_default();
    let content = header.and_then(|header| content(frame, len, header));
    let content = content.unwrap_or_else(|| Content::unknown(frame));
    // Made in one place: to copy a part of it that was just written means to wait until that is in
    // the cache.
    Ok(Parsed {
        version: content.version,
        protocol: content.protocol,
        ttl: content.ttl,
        dscp: content.traffic_class >> 2,
        ecn: content.traffic_class & 3,
        pcp,
        network: content.network,
        transport: content.transport,
        is_fragment: content.is_fragment,
        may_fragment: false,
        in_doubt: false,
        interface: 0,
        edits,
        ip_len: 0,
        dst: Address::default(),
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
        dst: Address::v4(dst.octets()),
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
        dst: Address::v6(dst.octets()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::wire::csig::Tpids;

    /// SW-1, CS-1: a header that is read at once says what the walk through its tags says, wherever
    /// the frame ends, and whether tags that tell of a path are known or not.
    #[test]
    fn a_usual_header_is_read_as_any_other() {
        let reading = Reading {
            tpids: Tpids::default(),
            trusts_csig: true,
            trusts_int: false,
        };
        let csig = Tpids::default().compact.to_be_bytes();
        let tags: [&[u8]; 7] = [
            &[],
            &[0x81, 0, 0xa0, 5],
            &[0x88, 0xa8, 0x60, 0],
            &[0x81, 0, 0, 0, 0x81, 0, 0xe0, 7],
            &[csig[0], csig[1], 0, 1],
            &[0x81, 0, 0x20, 9, csig[0], csig[1], 0, 1],
            &[0x91, 0, 0, 1],
        ];
        let mut usual_ones = 0;
        for tags in tags {
            for kind in [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0], csig] {
                let frame = [&[2; 12], tags, &kind, &[0x45; 40]].concat();
                for end in 0..frame.len() {
                    let Some(found) = usual(&frame[..end]) else {
                        continue;
                    };
                    usual_ones += 1;
                    for reading in [None, Some(reading)] {
                        assert_eq!(bridged_header(&frame[..end], reading), Ok(found));
                    }
                }
            }
        }
        assert!(usual_ones > 200, "{usual_ones}");
    }
}
