//! The trace of a simulation: a digest over all events, and the last events at each node, which are
//! shown when a check fails.

use super::network::{LinkId, NodeId, Plan};
use common::time::Time;
use common::wire::ethernet::ethertype;
use common::wire::roce::{Bth, Extension, Mpeh, Opcode};
use std::fmt::{self, Write};
use twox_hash::XxHash3_64;

/// Bytes of a frame that enter the digest: Ethernet, IPv4, UDP, BTH, more of IPv6, and MPEH
/// with its extension …
const HEADERS_V4: usize = 14 + 20 + 8 + 12;
const MORE_OF_V6: usize = 20;
const MPEH: usize = Mpeh::LEN + Extension::LEN;
const HEADERS: usize = HEADERS_V4 + MORE_OF_V6 + MPEH;

/// … and, where a host sends it, the ICRC, which stands for the rest: switches change nothing that
/// it covers.
const ICRC: usize = 4;

/// Happenings of each node that are remembered, and those that are shown.
const SHOWN: usize = 24;

/// What happened to a frame, or to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A frame was sent.
    Sent = 1,
    /// A frame arrived where it could not be received.
    Refused = 2,
    /// A frame was lost on the wire.
    Lost = 3,
    /// A link went down.
    Down = 4,
    /// A link came up.
    Up = 5,
    /// A daemon crashed.
    Crashed = 6,
    /// A daemon started.
    Started = 7,
}

/// Something that happened at a node.
#[derive(Clone, Copy, Debug)]
struct Happening {
    /// Its number among all.
    order: u64,
    at: Time,
    node: NodeId,
    kind: Kind,
    port: u16,
    len: u16,
    ethertype: u16,
    /// The first bytes behind UDP.
    transport: [u8; 12],
}

/// The record of a simulation.
#[derive(Debug)]
pub struct Trace {
    digest: u64,
    records: u64,
    /// Nodes below this number are hosts.
    hosts: u32,
    /// By node.
    last: Vec<Ring>,
}

/// The newest happenings at a node.
#[derive(Clone, Debug, Default)]
struct Ring {
    /// Where the next one goes.
    next: usize,
    happenings: Vec<Happening>,
}

impl Ring {
    #[inline]
    fn push(&mut self, happening: Happening) {
        match self.happenings.get_mut(self.next) {
            Some(oldest) => *oldest = happening,
            None => self.happenings.push(happening),
        }
        self.next = (self.next + 1) % SHOWN;
    }
}

impl Trace {
    /// Nothing has happened yet at this many nodes, of which the first are hosts.
    pub fn new(nodes: usize, hosts: u32) -> Self {
        Self {
            digest: 0,
            hosts,
            records: 0,
            last: vec![Ring::default(); nodes],
        }
    }

    /// A number that stands for everything that happened so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Records what happened at a port of a node; `frame` is empty if it was not to a frame.
    #[inline]
    pub fn record(&mut self, kind: Kind, at: Time, (node, port): (NodeId, u16), frame: &[u8]) {
        let mut bytes = [0; 24 + HEADERS + ICRC];
        bytes[..8].copy_from_slice(&at.nanos().to_le_bytes());
        bytes[8..12].copy_from_slice(&node.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&port.to_le_bytes());
        bytes[14] = kind as u8;
        bytes[16..20]
            .copy_from_slice(&u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes());
        let headers = frame.len().min(headers(frame));
        bytes[24..24 + headers].copy_from_slice(&frame[..headers]);
        if let Some(icrc) = frame.last_chunk::<ICRC>().filter(|_| node.0 < self.hosts) {
            bytes[24 + headers..24 + headers + ICRC].copy_from_slice(icrc);
        }
        let len = 24 + headers + ICRC;
        self.digest = XxHash3_64::oneshot_with_seed(self.digest, &bytes[..len]);
        self.remember(kind, at, (node, port), frame);
        self.records += 1;
    }

    #[inline]
    fn remember(&mut self, kind: Kind, at: Time, (node, port): (NodeId, u16), frame: &[u8]) {
        let ethertype = frame
            .get(12..14)
            .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let transport = if ethertype == ethertype::IPV6 { 62 } else { 42 };
        let happening = Happening {
            order: self.records,
            at,
            node,
            kind,
            port,
            len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
            ethertype,
            transport: frame
                .get(transport..)
                .and_then(|rest| rest.first_chunk().copied())
                .unwrap_or_default(),
        };
        self.last[node.index()].push(happening);
    }

    /// The last happenings at a node and at the other ends of its links, oldest first, a line each.
    pub fn last(&self, plan: &Plan, node: NodeId) -> String {
        let links = plan.nodes[node.index()].ports.iter();
        let across = links.map(|link| plan.links[*link].across(node).node);
        let concerns = |happening: &&Happening| {
            let across = link_of(plan, happening);
            let across = across.map(|link| plan.links[link].across(happening.node));
            happening.node == node || across.is_some_and(|across| across.node == node)
        };
        let rings = across.chain([node]).map(|node| &self.last[node.index()]);
        let happenings = rings.flat_map(|ring| &ring.happenings);
        lines(plan, happenings.filter(concerns).collect())
    }

    /// The last happenings anywhere, oldest first, a line each.
    pub fn last_anywhere(&self, plan: &Plan) -> String {
        let happenings = self.last.iter().flat_map(|ring| &ring.happenings);
        lines(plan, happenings.collect())
    }
}

/// Bytes of the headers that this frame has, if it is RoCEv2. What is behind them may be payload
/// without bytes.
#[inline]
fn headers(frame: &[u8]) -> usize {
    let v6 = frame.get(12..14) == Some(&ethertype::IPV6.to_be_bytes()[..]);
    let common = HEADERS_V4 + if v6 { MORE_OF_V6 } else { 0 };
    let opcode = frame.get(common - Bth::LEN).copied();
    match opcode.and_then(Opcode::from_byte) {
        Some(Opcode::Multipath(_)) => common + MPEH,
        _ => common,
    }
}

fn lines(plan: &Plan, mut happenings: Vec<&Happening>) -> String {
    happenings.sort_unstable_by_key(|happening| happening.order);
    happenings.dedup_by_key(|happening| happening.order);
    let mut text = String::new();
    for happening in &happenings[happenings.len().saturating_sub(SHOWN)..] {
        let by = &plan.nodes[happening.node.index()].name;
        let link = link_of(plan, happening).map_or(String::new(), |link| plan.link_name(link));
        let _ = writeln!(text, "    {happening} by {by} on {link}");
    }
    text
}

fn link_of(plan: &Plan, happening: &Happening) -> Option<LinkId> {
    let ports = &plan.nodes[happening.node.index()].ports;
    ports.get(usize::from(happening.port)).copied()
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Sent => "sent",
            Kind::Refused => "refused",
            Kind::Lost => "lost on the wire",
            Kind::Down => "link down",
            Kind::Up => "link up",
            Kind::Crashed => "daemon crashed",
            Kind::Started => "daemon started",
        };
        write!(f, "{:>12} ns  {kind:<16}", self.at.nanos())?;
        if self.len == 0 {
            return Ok(());
        }
        write!(f, " {:>5} bytes  ", self.len)?;
        match self.ethertype {
            ethertype::IPV4 | ethertype::IPV6 => {
                let [opcode, _, _, _, _, a, b, c, _, d, e, g] = self.transport;
                let word = |x, y, z| u32::from_be_bytes([0, x, y, z]);
                match Opcode::from_byte(opcode) {
                    Some(opcode) => write!(
                        f,
                        "{opcode:?} to queue pair {:#x}, PSN {}",
                        word(a, b, c),
                        word(d, e, g)
                    ),
                    None => write!(f, "IP"),
                }
            }
            ethertype::MAC_CONTROL => write!(f, "MAC control"),
            other => write!(f, "ethertype {other:#06x}"),
        }
    }
}
