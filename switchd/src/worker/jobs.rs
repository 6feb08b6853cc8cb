//! The jobs of a worker, and messages in frames.

use crate::compute::{Backlog, Datagram, Engine, Outbox, Peer};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::packet::Version;
use crate::tables::Tables;
use common::time::Time;
use common::wire::compute::{Key, Packet, RANKS, guard, is_guarded};
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::ip::{protocol, v4, v6};
use common::wire::udp;
use common::xdp::frame::{Frame, FramePool};
use std::net::{IpAddr, SocketAddr};

/// TTL of what the switch says: forwarding takes one of it.
const TTL: u8 = 65;

/// ECT(0): switches may mark it (RFC 3168 §5).
const ECT_0: u8 = 2;

/// A message where it lies in a frame.
#[derive(Debug)]
pub struct Message {
    pub(super) frame: Frame,
    pub(super) ingress: PortId,
    pub(super) version: Version,
    /// Where the IP and the UDP header begin.
    pub(super) network: u16,
    pub(super) transport: u16,
    pub(super) is_ce: bool,
}

impl Message {
    /// Its frame, and where it arrived.
    pub(super) fn into_frame(self) -> (Frame, PortId) {
        (self.frame, self.ingress)
    }

    /// The datagram, if it is one and came between the addresses and ports that it says.
    ///
    /// # Errors
    /// Why it counts as none.
    pub(super) fn verified(&self) -> Result<Datagram<'_>, DropReason> {
        let (datagram, header) = self.parts().ok_or(DropReason::ComputeMalformed)?;
        let Peer { remote, local, .. } = datagram.peer;
        match is_guarded(&header, remote.ip(), local.ip()) {
            true => Ok(datagram),
            false => Err(DropReason::ComputeChecksum),
        }
    }

    /// The datagram, if it lies in the frame in one piece.
    pub(super) fn datagram(&self) -> Option<Datagram<'_>> {
        self.parts().map(|(datagram, _)| datagram)
    }

    /// The datagram with its header.
    fn parts(&self) -> Option<(Datagram<'_>, udp::Datagram<&[u8]>)> {
        let bytes = self.frame.bytes();
        let packet = bytes.get(usize::from(self.network)..)?;
        let (source, destination): (IpAddr, IpAddr) = match self.version {
            Version::V4 => {
                let packet = v4::Packet::new_checked(packet).ok()?;
                (packet.src().into(), packet.dst().into())
            }
            Version::V6 => {
                let packet = v6::Packet::new_checked(packet).ok()?;
                (packet.src().into(), packet.dst().into())
            }
        };
        let datagram = bytes.get(usize::from(self.transport)..)?;
        let header = udp::Datagram::new_checked(datagram).ok()?;
        let payload = datagram.get(udp::HEADER_LEN..header.len())?;
        let datagram = Datagram {
            peer: Peer {
                remote: SocketAddr::new(source, header.src_port()),
                local: SocketAddr::new(destination, header.dst_port()),
                port: self.ingress,
            },
            is_ce: self.is_ce,
            bytes: payload,
        };
        Some((datagram, header))
    }
}

/// The jobs of a worker, and what waits for them.
#[derive(Debug)]
pub(super) struct Compute {
    pub(super) engine: Engine,
    pub(super) backlog: Backlog<Message>,
    /// Messages of the switch that are to leave, with the port that they are charged to.
    pub(super) out: Vec<(Frame, PortId)>,
    /// Identification of the last message of IPv4.
    pub(super) ident: u16,
}

impl Compute {
    /// Nothing waits; messages arrive at so many ports.
    pub(super) fn new(engine: Engine, ports: usize) -> Self {
        Self {
            engine,
            backlog: Backlog::new(ports),
            out: Vec::with_capacity(2 * RANKS),
            ident: 0,
        }
    }

    /// Messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// When there is something to do.
    pub(super) fn deadline(&self, now: Time) -> Time {
        if self.backlog.is_empty() {
            self.engine.deadline()
        } else {
            now
        }
    }

    /// Takes the frames of all that waits, for a worker that ends.
    pub(super) fn abandon(&mut self, frames: &mut Vec<Frame>) {
        while let Some(message) = self.backlog.pop() {
            frames.push(message.frame);
        }
        frames.extend(self.out.drain(..).map(|(frame, _)| frame));
    }
}

/// Puts messages in frames.
pub(super) struct Frames<'a> {
    pub(super) pool: &'a mut FramePool,
    pub(super) tables: &'a Tables,
    pub(super) out: &'a mut Vec<(Frame, PortId)>,
    pub(super) ident: &'a mut u16,
    pub(super) dscp: u8,
}

impl Frames<'_> {
    fn frame(&mut self, to: &Peer, packet: &Packet<'_>, key: Option<&Key>) -> Option<Frame> {
        let mac = Mac(self.tables.port(to.port)?.mac);
        let network = ethernet::HEADER_LEN;
        let (kind, header) = match to.remote {
            SocketAddr::V4(_) => (ethertype::IPV4, v4::HEADER_LEN),
            SocketAddr::V6(_) => (ethertype::IPV6, v6::HEADER_LEN),
        };
        let transport = network + header;
        let payload = transport + udp::HEADER_LEN;
        let udp_len = u16::try_from(udp::HEADER_LEN + packet.len()).ok()?;
        let mut frame = self.pool.take_sized(payload + packet.len())?;
        let bytes = frame.bytes_mut();
        // Both are filled in by forwarding.
        ethernet::emit(bytes, mac, mac, kind);
        let traffic_class = self.dscp << 2 | ECT_0;
        match (to.local.ip(), to.remote.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                *self.ident = self.ident.wrapping_add(1);
                let header = v4::Repr {
                    src,
                    dst,
                    traffic_class,
                    ident: *self.ident,
                    ttl: TTL,
                    protocol: protocol::UDP,
                    payload_len: udp_len,
                };
                header.emit(&mut bytes[network..]);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = v6::Repr {
                    src,
                    dst,
                    traffic_class,
                    flow_label: 0,
                    hop_limit: TTL,
                    next_header: protocol::UDP,
                    payload_len: udp_len,
                };
                header.emit(&mut bytes[network..]);
            }
            _ => {
                self.pool.give(frame);
                return None;
            }
        }
        let (here, there) = (to.local.port(), to.remote.port());
        udp::emit(&mut bytes[transport..], here, there, udp_len);
        let seal = key.map(|key| to.seal(key));
        if packet.write(seal, &mut bytes[payload..]).is_err() {
            self.pool.give(frame);
            return None;
        }
        let end = transport + usize::from(udp_len);
        guard(&mut bytes[transport..end], to.local.ip(), to.remote.ip());
        Some(frame)
    }
}

impl Outbox for Frames<'_> {
    fn send(&mut self, to: &Peer, packet: &Packet<'_>, key: Option<&Key>) -> bool {
        let frame = self.frame(to, packet, key);
        let is_sent = frame.is_some();
        self.out.extend(frame.map(|frame| (frame, to.port)));
        is_sent
    }
}
