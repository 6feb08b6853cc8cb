//! Frames as hosts send them.

use std::net::{Ipv4Addr, Ipv6Addr};

use common::wire::checksum::{self, Sum};

/// Addresses of the link of `e1`: the host's, and the port's.
pub(crate) const HOST: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub(crate) const PORT: [u8; 6] = [2, 0, 0, 0, 1, 1];

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [PORT, HOST].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

/// Bytes that tell their place.
fn filler(len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(|at| at.to_le_bytes()[0])
}

/// An IPv4 packet: UDP to a port where nobody listens, if nothing else is said.
#[derive(Clone)]
pub(crate) struct V4 {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    len: usize,
    tos: u8,
    ttl: u8,
    fragment: u16,
    protocol: u8,
    options: Vec<u8>,
    payload: Option<Vec<u8>>,
}

impl V4 {
    pub(crate) fn new(src: &str, dst: &str) -> Self {
        Self {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            len: 100,
            tos: 0,
            ttl: 64,
            fragment: 0,
            protocol: 17,
            options: Vec::new(),
            payload: None,
        }
    }

    /// Bytes of the packet.
    pub(crate) fn len(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    pub(crate) fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    pub(crate) fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    pub(crate) fn df(mut self) -> Self {
        self.fragment |= 0x4000;
        self
    }

    /// More flags, and the place of a fragment.
    pub(crate) fn fragment(mut self, fragment: u16) -> Self {
        self.fragment |= fragment;
        self
    }

    pub(crate) fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut packet = vec![0x40 | u8::try_from(header / 4).unwrap(), self.tos];
        packet.extend(u16::try_from(self.len).unwrap().to_be_bytes());
        packet.extend([0x12, 0x34]);
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, self.protocol, 0, 0]);
        packet.extend(self.src.octets());
        packet.extend(self.dst.octets());
        packet.extend(&self.options);
        let sum = checksum::of(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        match &self.payload {
            Some(payload) => packet.extend(payload),
            None => {
                let len = self.len - header;
                packet.extend([0x30, 0x39, 0x00, 0x09]);
                packet.extend(u16::try_from(len).unwrap().to_be_bytes());
                packet.extend([0, 0]);
                packet.extend(filler(len - 8));
            }
        }
        ethernet(0x0800, &packet)
    }
}

/// An ICMP packet of a type, which expires.
pub(crate) fn icmp4(src: &str, dst: &str, kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(filler(60));
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    V4 {
        protocol: 1,
        len: 20 + message.len(),
        payload: Some(message),
        ..V4::new(src, dst)
    }
    .ttl(1)
    .frame()
}

/// An IPv6 packet, as [`V4`].
#[derive(Clone)]
pub(crate) struct V6 {
    src: Ipv6Addr,
    dst: Ipv6Addr,
    len: usize,
    hop_limit: u8,
    next: u8,
    /// A header in front of the payload.
    extension: Vec<u8>,
    payload: Option<Vec<u8>>,
}

impl V6 {
    pub(crate) fn new(src: &str, dst: &str) -> Self {
        Self {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            len: 100,
            hop_limit: 64,
            next: 17,
            extension: Vec::new(),
            payload: None,
        }
    }

    pub(crate) fn len(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    pub(crate) fn ttl(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    /// A fragment at a multiple of eight bytes, with more behind it, of this protocol.
    pub(crate) fn fragment(mut self, place: u16, protocol: u8) -> Self {
        self.next = 44;
        let mut payload = vec![protocol, 0];
        payload.extend((place | 1).to_be_bytes());
        payload.extend([0, 0, 0, 7]);
        payload.extend(filler(64));
        self.len = 40 + payload.len();
        self.payload = Some(payload);
        self
    }

    /// A hop-by-hop header with these options: six bytes, or eight more each.
    pub(crate) fn hop_by_hop(mut self, options: &[u8]) -> Self {
        let more = u8::try_from(options.len() / 8).unwrap();
        self.extension = [&[self.next, more][..], options].concat();
        assert_eq!(self.extension.len() % 8, 0);
        self.next = 0;
        self
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let len = self.len - 40;
        let mut packet = vec![0x60, 0, 0, 0];
        let all = len + self.extension.len();
        packet.extend(u16::try_from(all).unwrap().to_be_bytes());
        packet.extend([self.next, self.hop_limit]);
        packet.extend(self.src.octets());
        packet.extend(self.dst.octets());
        packet.extend(&self.extension);
        match &self.payload {
            Some(payload) => packet.extend(payload),
            None => {
                let mut datagram = vec![0x30, 0x39, 0x00, 0x09];
                datagram.extend(u16::try_from(len).unwrap().to_be_bytes());
                datagram.extend([0, 0]);
                datagram.extend(filler(len - 8));
                let pseudo =
                    Sum::default().pseudo_v6(self.src, self.dst, 17, u32::try_from(len).unwrap());
                let sum = pseudo.bytes(&datagram).finish();
                datagram[6..8].copy_from_slice(&sum.to_be_bytes());
                packet.extend(datagram);
            }
        }
        ethernet(0x86dd, &packet)
    }
}

/// An ICMPv6 packet of a type, which expires.
pub(crate) fn icmp6(src: &str, dst: &str, kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(filler(60));
    V6 {
        next: 58,
        len: 40 + message.len(),
        payload: Some(message),
        ..V6::new(src, dst)
    }
    .ttl(1)
    .frame()
}
