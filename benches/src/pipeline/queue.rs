//! The ports' queues: a transmitted packet is received again, with another destination.

use crate::everything::TRAFFIC_CLASS;
use crate::measure::{busy_time, nanos_each};
use crate::routes;
use common::time::Time;
use common::wire::ip::{protocol, v4, v6};
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
/// Bytes of each frame.
pub(super) const LEN: usize = 64;

/// What is written into a frame before it is received: its destination, and what depends on it.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// An IPv4 address, and the checksum of the header that has it.
    V4([u8; 4], u16),
    /// An IPv6 address.
    V6([u8; 16]),
}

impl Destination {
    /// Writes it into a frame that has the rest.
    pub(super) fn write(self, frame: &mut [u8]) {
        match self {
            Self::V4(address, sum) => {
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
                frame[30..34].copy_from_slice(&address);
            }
            Self::V6(address) => frame[38..54].copy_from_slice(&address),
        }
    }
}

/// A port's queue that receives what it transmitted, with the next destination.
pub(super) struct Loopback {
    idle: Vec<Frame>,
    header: [u8; LEN],
    destinations: Arc<[Destination]>,
    next: usize,
}

impl Loopback {
    pub(super) fn new(port: u16, destinations: Arc<[Destination]>, region: &Arc<Region>) -> Self {
        let header = header(port, destinations[0]);
        let mut pool = FramePool::new(region.clone());
        // Room for all frames: they leave by another port than they came.
        let mut idle = Vec::with_capacity(usize::from(PORTS) * FRAMES);
        idle.extend((0..FRAMES).map_while(|_| pool.take_sized(LEN)));
        let next = usize::from(port) * DESTINATIONS / usize::from(PORTS);
        Self {
            idle,
            header,
            destinations,
            next,
        }
    }
}

impl QueueIo for Loopback {
    fn receive(&mut self, _: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let count = self.idle.len().min(max);
        for mut frame in self.idle.drain(..count) {
            let bytes = frame.bytes_mut();
            bytes.copy_from_slice(&self.header);
            self.destinations[self.next % DESTINATIONS].write(bytes);
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
    pub(super) fn new(destinations: &Arc<[Destination]>) -> Self {
        let region = region();
        let queue = |port| Loopback::new(port, destinations.clone(), &region);
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
pub(super) fn region() -> Arc<Region> {
    Region::heap(u32::from(PORTS) * 512, 2048, 256)
}

/// The headers of a frame that comes by `port`, but for its destination.
pub(super) fn header(port: u16, destination: Destination) -> [u8; LEN] {
    let mut header = [0; LEN];
    let (own, other) = (Mac(port_mac(port)), Mac(neighbour_mac(port, 0)));
    let src_port = 49_152 + port;
    match destination {
        Destination::V4(..) => {
            ethernet::emit(&mut header, own, other, ethernet::ethertype::IPV4);
            v4_header(Ipv4Addr::UNSPECIFIED).emit(&mut header[14..]);
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

fn v4_header(dst: Ipv4Addr) -> v4::Repr {
    v4::Repr {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst,
        traffic_class: TRAFFIC_CLASS,
        ident: 0,
        ttl: 64,
        protocol: protocol::UDP,
        payload_len: 30,
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
                v4_header(dst).emit(&mut ip);
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
