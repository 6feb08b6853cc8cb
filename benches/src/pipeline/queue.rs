//! The ports' queues: a transmitted packet is received again, with another destination.

use crate::everything::TRAFFIC_CLASS;
use crate::measure::{busy_time, nanos_each};
use crate::routes;
use common::time::Time;
use common::wire::csig::{Form, Signal, Tag, Tpids};
use common::wire::ip::{protocol, v4, v6};
use common::wire::vlan::TAG_LEN;
use common::wire::{Mac, ethernet, udp};
use common::xdp::frame::{Frame, FramePool, Region};
use common::xdp::queue::QueueIo;
use ipnet::IpNet;
use rand_core::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use switchd::limits::BATCH;

/// Ports of the switch.
pub(super) const PORTS: u16 = 4;
/// Frames that go round at each port.
pub(super) const FRAMES: usize = 256;
/// Destinations, in random order.
pub(super) const DESTINATIONS: usize = 1 << 20;
/// Flows of the traffic that is not of a million: what a worker has at the same time on a busy
/// switch.
pub(super) const FLOWS: usize = 2048;
/// Bytes in front of a frame that a device leaves free, as AF_XDP does.
const HEADROOM: u16 = 256;
/// Bytes of each frame but for tags.
pub(super) const LEN: usize = 64;
/// Bytes of a jumbo frame: an MTU of 9000.
pub(super) const JUMBO: usize = 9014;
/// The VLAN that all tagged frames are of.
pub(super) const VLAN: u16 = 5;
/// Stations behind each port of a bridge: as many as the shipped configuration has room for.
pub(super) const STATIONS: u32 = 16_384 / PORTS as u32;
/// The MAC address of a bridge.
pub(super) const BRIDGE: [u8; 6] = [2, 0, 3, 0, 0, 0];

/// Packets of a turn: about 25 ms.
pub(super) const PACKETS: u64 = 250_000;

/// Packets before each turn, not measured: they bring back into the caches what other contenders
/// drove out.
pub(super) const LEAD: u64 = 25_000;

/// Packets of each contender before anything is measured: buffers grow to their size, a million
/// flows are seen once.
pub(super) const WARM_UP: u64 = 2_000_000;

/// What is written into a frame before it is received: its destination, and what depends on it.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// An IPv4 address, and the checksum of the header that has it.
    V4([u8; 4], u16),
    /// An IPv6 address.
    V6([u8; 16]),
    /// A number from which both stations of a bridged frame follow.
    Station(u32),
}

/// How frames come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Without tags, routed.
    Plain,
    /// Each with the tag of a port's VLAN, routed, to leave with such a tag.
    Tagged,
    /// To a VLAN of a bridge, routed, to leave by such a VLAN: of two ports with a tag, of the
    /// others without.
    Svi,
    /// Between the stations of a bridge without VLANs.
    Bridged,
    /// Between the stations of a VLAN of a bridge: of two ports with a tag, of the others without.
    Joined,
    /// As [`Self::Plain`], each with a CSIG tag of this form for this signal, as its sender begins
    /// it: any port replaces a minimum, and none the delay of a packet that did not wait.
    Signed(Form, Signal),
    /// As [`Self::Plain`], in several chunks.
    Jumbo,
}

impl Links {
    /// Whether frames have a tag on the link of this port.
    pub(super) fn has_tag(self, port: u16) -> bool {
        match self {
            Self::Plain | Self::Bridged | Self::Jumbo => false,
            Self::Tagged | Self::Signed(..) => true,
            Self::Svi | Self::Joined => port % 2 == 1,
        }
    }

    /// Bytes of tags in the header of a frame on the link of this port.
    fn tag_len(self, port: u16) -> usize {
        match self {
            Self::Signed(form, _) => form.len(),
            _ if self.has_tag(port) => TAG_LEN,
            _ => 0,
        }
    }

    /// Bytes of a frame on the link of this port.
    fn len(self, port: u16) -> usize {
        if self == Self::Jumbo {
            JUMBO
        } else {
            LEN + self.tag_len(port)
        }
    }
}

/// The station of this number behind a port of a bridge.
pub(super) fn station(port: u16, number: u32) -> [u8; 6] {
    let [_, port] = port.to_be_bytes();
    let [_, _, high, low] = number.to_be_bytes();
    [2, 0, 2, port, high, low]
}

impl Destination {
    /// Writes it into a frame without tags that has the rest.
    pub(super) fn write(self, frame: &mut [u8]) {
        self.write_behind(0, 0, frame);
    }

    /// Writes it into a frame that has the rest, came by `port`, and has tags of `tags` bytes.
    fn write_behind(self, tags: usize, port: u16, frame: &mut [u8]) {
        let ip = &mut frame[tags..];
        match self {
            Self::V4(address, sum) => {
                ip[24..26].copy_from_slice(&sum.to_be_bytes());
                ip[30..34].copy_from_slice(&address);
            }
            Self::V6(address) => ip[38..54].copy_from_slice(&address),
            Self::Station(number) => {
                let others = u32::from(PORTS) - 1;
                let [a, b, c, d] = number.to_be_bytes();
                let other = 1 + u32::from(a) % others;
                let egress = (port + u16::try_from(other).expect("few")) % PORTS;
                let [to, from] = [[b, c], [c, d]].map(u16::from_be_bytes);
                let [to, from] = [to, from].map(|number| u32::from(number) % STATIONS);
                frame[..6].copy_from_slice(&station(egress, to));
                frame[6..12].copy_from_slice(&station(port, from));
            }
        }
    }

    /// The same in the header of a jumbo frame.
    fn in_jumbo(self) -> Self {
        match self {
            Self::V4(address, _) => {
                let mut ip = [0; 20];
                v4_header(address.into(), JUMBO).emit(&mut ip);
                Self::V4(address, u16::from_be_bytes([ip[10], ip[11]]))
            }
            other => other,
        }
    }
}

/// A port's queue that receives what it transmitted, with the next destination.
pub(super) struct Loopback {
    idle: Vec<Frame>,
    port: u16,
    len: usize,
    /// Bytes of tags in the header.
    tags: usize,
    header: [u8; LEN],
    destinations: Arc<[Destination]>,
    next: usize,
}

impl Loopback {
    pub(super) fn new(
        port: u16,
        links: Links,
        destinations: Arc<[Destination]>,
        region: &Arc<Region>,
    ) -> Self {
        let len = links.len(port);
        let header = link_header(port, links, destinations[0]);
        let mut pool = FramePool::new(region.clone());
        // Room for all frames: they leave by another port than they came.
        let mut idle = Vec::with_capacity(usize::from(PORTS) * FRAMES);
        let content = vec![0; len];
        idle.extend((0..FRAMES).map_while(|_| pool.take_chain(&content)));
        assert_eq!(idle.len(), FRAMES, "a region with room for all frames");
        let next = usize::from(port) * DESTINATIONS / usize::from(PORTS);
        Self {
            idle,
            port,
            len,
            tags: links.tag_len(port),
            header,
            destinations,
            next,
        }
    }
}

impl QueueIo for Loopback {
    fn receive(&mut self, pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let count = self.idle.len().min(max);
        for mut frame in self.idle.drain(..count) {
            if !frame.is_chained() {
                // As a device does, behind the headroom, wherever the packet began that has left.
                let _ = frame.grow_front(frame.start());
                frame.shrink_front(HEADROOM);
                pool.resize(&mut frame, self.len);
            }
            let bytes = frame.bytes_mut();
            bytes[..LEN].copy_from_slice(&self.header);
            let destination = self.destinations[self.next % DESTINATIONS];
            destination.write_behind(self.tags, self.port, bytes);
            self.next += 1;
            batch.push(frame);
        }
        count
    }

    fn transmit_room(&mut self, _: &mut FramePool) -> usize {
        usize::from(PORTS) * FRAMES - self.idle.len()
    }

    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        self.idle.append(batch);
        count
    }

    fn flush(&mut self, _: &mut FramePool, _: Time) {}

    fn in_flight(&self) -> usize {
        0
    }

    fn backlog(&self) -> u64 {
        0
    }
}

/// The queues alone: each batch is handed from receive to transmit directly.
pub(super) struct QueuesOnly {
    queues: Vec<Loopback>,
    pool: FramePool,
    batch: Vec<Frame>,
}

impl QueuesOnly {
    pub(super) fn new(links: Links, destinations: &Arc<[Destination]>) -> Self {
        let region = region(links);
        let queue = |port| Loopback::new(port, links, destinations.clone(), &region);
        Self {
            queues: (0..PORTS).map(queue).collect(),
            pool: FramePool::new(region.clone()),
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Hands on about `least` packets; nanoseconds for each.
    pub(super) fn turn(&mut self, least: u64) -> f64 {
        let (mut packets, began) = (0, busy_time());
        while packets < least {
            for queue in &mut self.queues {
                packets += queue.receive(&mut self.pool, &mut self.batch, BATCH) as u64;
                queue.transmit(&mut self.batch);
            }
        }
        nanos_each(began, packets)
    }
}

/// Memory for the frames of one contender.
pub(super) fn region(links: Links) -> Arc<Region> {
    let (frames, chunk) = if links == Links::Jumbo {
        (4 * FRAMES, 4096)
    } else {
        (2 * FRAMES, 2048)
    };
    let frames = u32::try_from(frames).expect("few");
    Region::heap(u32::from(PORTS) * frames, chunk, HEADROOM)
}

/// The first bytes of a frame on the link of `port`, but for its destination.
fn link_header(port: u16, links: Links, destination: Destination) -> [u8; LEN] {
    let mut plain = header(port, destination);
    if links == Links::Jumbo {
        v4_header(Ipv4Addr::UNSPECIFIED, JUMBO).emit(&mut plain[14..]);
    }
    if links == Links::Svi {
        plain[..6].copy_from_slice(&BRIDGE);
    }
    if !links.has_tag(port) {
        return plain;
    }
    let mut tagged = [0; LEN];
    tagged[..12].copy_from_slice(&plain[..12]);
    let behind = 12 + links.tag_len(port);
    if let Links::Signed(form, signal) = links {
        tagged[12..14].copy_from_slice(&Tpids::default().of(form).to_be_bytes());
        let tag = Tag::neutral(form, signal, 0);
        tag.write(form, &mut tagged[12..behind]).expect("room");
    } else {
        tagged[12..14].copy_from_slice(&ethernet::ethertype::VLAN.to_be_bytes());
        tagged[14..16].copy_from_slice(&VLAN.to_be_bytes());
    }
    tagged[behind..].copy_from_slice(&plain[12..12 + LEN - behind]);
    tagged
}

/// The headers of a frame that comes by `port`, but for its destination.
pub(super) fn header(port: u16, destination: Destination) -> [u8; LEN] {
    let mut header = [0; LEN];
    let (own, other) = (Mac(port_mac(port)), Mac(neighbour_mac(port, 0)));
    let src_port = 49_152 + port;
    match destination {
        Destination::V4(..) | Destination::Station(_) => {
            ethernet::emit(&mut header, own, other, ethernet::ethertype::IPV4);
            v4_header(Ipv4Addr::UNSPECIFIED, LEN).emit(&mut header[14..]);
            udp::emit(&mut header[34..], src_port, 4791, 30);
        }
        Destination::V6(_) => {
            ethernet::emit(&mut header, own, other, ethernet::ethertype::IPV6);
            v6_header().emit(&mut header[14..]);
            udp::emit(&mut header[54..], src_port, 4791, 10);
        }
    }
    header
}

pub(super) fn port_mac(port: u16) -> [u8; 6] {
    let [high, low] = port.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

pub(super) fn neighbour_mac(port: u16, neighbour: u16) -> [u8; 6] {
    let [_, port] = port.to_be_bytes();
    let [high, low] = neighbour.to_be_bytes();
    [2, 0, 1, port, high, low]
}

/// Bytes of the link header and of that of IPv4.
const HEADERS: usize = ethernet::HEADER_LEN + v4::HEADER_LEN;

/// The IPv4 header of a frame of `len` bytes.
fn v4_header(dst: Ipv4Addr, len: usize) -> v4::Repr {
    v4::Repr {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst,
        traffic_class: TRAFFIC_CLASS,
        ident: 0,
        ttl: 64,
        protocol: protocol::UDP,
        payload_len: u16::try_from(len - HEADERS).expect("a frame"),
    }
}

fn v6_header() -> v6::Repr {
    v6::Repr {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::UNSPECIFIED,
        traffic_class: TRAFFIC_CLASS,
        flow_label: 7,
        hop_limit: 64,
        next_header: protocol::UDP,
        payload_len: 10,
    }
}

/// Addresses that the table covers, of one family.
pub(super) fn destinations(
    table: &[IpNet],
    v4: bool,
    random: &mut rand_pcg::Pcg64Mcg,
) -> Arc<[Destination]> {
    let mut destinations = Vec::with_capacity(DESTINATIONS);
    while destinations.len() < DESTINATIONS {
        let which = usize::try_from(random.next_u64()).expect("64-bit machine") % table.len();
        match routes::inside(table[which], random) {
            // Loopback addresses are in the table, but not on a wire.
            IpAddr::V4(dst) if v4 && !dst.is_loopback() && !dst.is_link_local() => {
                let mut ip = [0; 20];
                v4_header(dst, LEN).emit(&mut ip);
                let sum = u16::from_be_bytes([ip[10], ip[11]]);
                destinations.push(Destination::V4(dst.octets(), sum));
            }
            IpAddr::V6(dst) if !v4 => destinations.push(Destination::V6(dst.octets())),
            _ => {}
        }
    }
    destinations.into()
}

/// The same destinations again and again, so few that there are [`FLOWS`] flows: each port has a
/// source port of its own.
pub(super) fn few(destinations: &[Destination]) -> Arc<[Destination]> {
    let few = destinations.iter().take(FLOWS / usize::from(PORTS)).cycle();
    few.copied().take(DESTINATIONS).collect()
}

/// The same destinations as jumbo frames name them.
pub(super) fn jumbo(destinations: &[Destination]) -> Arc<[Destination]> {
    let jumbo = destinations
        .iter()
        .map(|destination| destination.in_jumbo());
    jumbo.collect()
}

/// Pairs of stations.
pub(super) fn stations(random: &mut rand_pcg::Pcg64Mcg) -> Arc<[Destination]> {
    let pair = |_| Destination::Station(random.next_u32());
    (0..DESTINATIONS).map(pair).collect()
}
