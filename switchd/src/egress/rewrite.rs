//! \[9\] A router's changes to a packet: addresses of the next link, one less of TTL or hop limit.

use super::remark::{set_ce, set_dscp};
use crate::packet::{Edits, Packet};
use crate::tables::interfaces::LinkHeader;
use common::wire::checksum;
use common::wire::ethernet;
use common::wire::ip::{v4, v6};
use common::wire::vlan::TAG_LEN;
use common::xdp::frame::Frame;
use std::hint::select_unpredictable;

/// Where the IP header begins behind a link header without a tag, and with one.
const UNTAGGED: u16 = 14;
const TAGGED: u16 = 18;
const _: () = assert!(UNTAGGED as usize == ethernet::HEADER_LEN);
const _: () = assert!(TAGGED as usize == ethernet::HEADER_LEN + TAG_LEN);

/// Gives the packet its new MAC addresses and decrements its TTL or hop limit, which the forwarding
/// stage has seen to be above one. The IPv4 header checksum is updated incrementally (RFC 1624).
#[inline]
pub fn rewrite(packet: &mut Packet, src: [u8; 6]) {
    if !packet.edits.is_empty() {
        edit(packet);
    }
    address(packet, src);
}

/// [`rewrite`] for a packet in which nothing else is to be changed.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
pub fn address(packet: &mut Packet, src: [u8; 6]) {
    if !packet.edits.contain(Edits::ADDRESSED) {
        readdress(
            packet.frame.bytes_mut(),
            packet.link.network(),
            packet.link.mac(),
            src,
        );
    }
}

/// Gives a frame whose IP header begins at `network` its new MAC addresses, and decrements.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
pub fn readdress(bytes: &mut [u8], network: u16, dst: [u8; 6], src: [u8; 6]) {
    let Some((link, ip)) = bytes.split_at_mut_checked(usize::from(network)) else {
        return;
    };
    if let Some(addresses) = link.first_chunk_mut::<12>() {
        addresses[ethernet::field::DST].copy_from_slice(&dst);
        addresses[ethernet::field::SRC].copy_from_slice(&src);
    }
    decrement(ip);
}

/// Gives a frame whose IP header begins at `network` another link header, to the neighbour `dst`,
/// and decrements. Nothing is moved: the EtherType stays where it is, in front of the IP header,
/// and a CSIG tag of `tag_len` bytes in front of that. The new place of the IP header, or `None`,
/// and nothing done, if there is no room for the tag.
///
/// What it does takes the same way with a tag and without, for a packet of the one kind often
/// follows one of the other.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
pub fn relink(
    frame: &mut Frame,
    (network, tag_len): (u16, u16),
    dst: [u8; 6],
    link_header: &LinkHeader,
) -> Option<u16> {
    let to = select_unpredictable(link_header.has_tag(), TAGGED, UNTAGGED);
    let len = frame.bytes().len();
    if len < usize::from(network) + v4::HEADER_LEN || !frame.replace_front(network - tag_len, to) {
        return None;
    }
    let bytes = frame.bytes_mut();
    let network = to + tag_len;
    decrement(bytes.get_mut(usize::from(network)..)?);
    link_header.write(bytes.first_chunk_mut()?, dst);
    Some(network)
}

/// Does what the stages before wanted to be changed.
fn edit(packet: &mut Packet) {
    let (network, dscp) = (packet.link.network(), packet.treatment.dscp());
    let bytes = packet.frame.bytes_mut();
    if packet.edits.contain(Edits::REMARK) {
        set_dscp(bytes, network, dscp);
    }
    if packet.edits.contain(Edits::MARK) {
        set_ce(bytes, network);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
fn decrement(ip: &mut [u8]) {
    match ip.first().map(|byte| byte >> 4) {
        Some(4) => {
            if let Some(header) = ip.first_chunk_mut::<{ v4::HEADER_LEN }>() {
                let word =
                    |at: usize, header: &[u8]| u16::from_be_bytes([header[at], header[at + 1]]);
                let old = word(v4::field::TTL, header);
                let new = old.saturating_sub(0x0100);
                let sum = checksum::update(word(v4::field::CHECKSUM, header), old, new);
                header[v4::field::TTL] = new.to_be_bytes()[0];
                header[v4::field::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some(6) => {
            if let Some(limit) = ip.get_mut(v6::field::HOP_LIMIT) {
                *limit = limit.saturating_sub(1);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PortId;
    use crate::packet::NextLink;
    use common::xdp::frame::{FramePool, Region};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn rewritten(network: u16, ip: &[u8]) -> Vec<u8> {
        let mut pool = FramePool::new(Region::heap(1, 256, 0));
        let mut bytes = vec![0xee; usize::from(network)];
        bytes.extend(ip);
        let mut packet = Packet {
            link: NextLink::new([2, 0, 0, 0, 0, 9], network),
            ..Packet::at(pool.take_filled(&bytes).expect("a free frame"), PortId(1))
        };
        rewrite(&mut packet, [2, 0, 0, 0, 0, 1]);
        let bytes = packet.frame.bytes().to_vec();
        pool.give(packet.frame);
        bytes
    }

    /// SW-1: MAC rewrite, TTL decrement and incremental checksum; the rest, tags included, is left
    /// alone.
    #[test]
    fn an_ipv4_packet_is_readdressed() {
        for ttl in [2, 64, 255] {
            let mut ip = [7; 40];
            let repr = v4::Repr {
                src: Ipv4Addr::new(10, 0, 0, 1),
                dst: Ipv4Addr::new(10, 0, 1, 1),
                traffic_class: 0x2a,
                ident: 0xbeef,
                ttl,
                protocol: 17,
                payload_len: 20,
            };
            repr.emit(&mut ip);
            let bytes = rewritten(18, &ip);
            assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
            assert_eq!(bytes[12..18], [0xee; 6], "tags");
            let packet = v4::Packet::new_checked(&bytes[18..]).expect("valid");
            assert!(packet.verify_checksum());
            assert_eq!((packet.ttl(), packet.payload()), (ttl - 1, &ip[20..]));
        }
    }

    /// SW-1: with a tag or none before and behind, what follows the link header is the same but for
    /// the TTL.
    #[test]
    fn a_packet_gets_another_link_header() {
        let (dst, src) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1]);
        let mut ip = [7; 40];
        ip[0] = 0x60;
        let mut less = ip;
        less[7] -= 1;
        for had in [&[][..], &[0x81, 0, 0xa0, 5]] {
            for (tag, bytes) in [
                (None, &[][..]),
                (Some((0x88a8, 0x123)), &[0x88, 0xa8, 1, 0x23]),
            ] {
                let frame = |had: &[u8], ip: &[u8]| [&[0xee; 12], had, &[0x86, 0xdd], ip].concat();
                let mut pool = FramePool::new(Region::heap(1, 256, 4));
                let mut taken = pool.take_filled(&frame(had, &ip)).expect("a free frame");
                let network = u16::try_from(14 + had.len()).unwrap();
                let to = relink(&mut taken, (network, 0), dst, &LinkHeader::new(src, tag));
                assert_eq!(to.map(usize::from), Some(14 + bytes.len()));
                let rest = frame(bytes, &less);
                let expected = [&dst[..], &src, &rest[12..]].concat();
                assert_eq!(taken.bytes(), expected);
                pool.give(taken);
            }
        }
        let mut pool = FramePool::new(Region::heap(1, 256, 3));
        let mut taken = pool.take_filled(&ip).expect("a free frame");
        let tagged = LinkHeader::new(src, Some((0x8100, 5)));
        assert_eq!(relink(&mut taken, (14, 0), dst, &tagged), None);
        assert_eq!(taken.bytes(), ip, "no room, and nothing done");
        pool.give(taken);
    }

    /// SW-1: the hop limit of IPv6.
    #[test]
    fn an_ipv6_packet_is_readdressed() {
        let mut ip = [0; 48];
        let repr = v6::Repr {
            src: Ipv6Addr::LOCALHOST,
            dst: Ipv6Addr::LOCALHOST,
            traffic_class: 0xff,
            flow_label: 0xf_ffff,
            hop_limit: 9,
            next_header: 59,
            payload_len: 8,
        };
        repr.emit(&mut ip);
        let mut expected = ip;
        expected[7] = 8;
        assert_eq!(rewritten(14, &ip)[14..], expected);
    }
}
