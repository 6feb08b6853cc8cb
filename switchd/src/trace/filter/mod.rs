//! Which packets are followed.
//!
//! A filter is a line of words, all of which must hold: `in=swp1 dst=10.2.0.0/16 dport=4791 dscp=26
//! drop count=100`. Those about headers, the ingress port and the priority are decided when a
//! packet arrives; the egress port and whether it is lost, when it leaves the switch. No word at
//! all means every packet.

use super::record::Arrival;
use crate::drop::DropReason;
use crate::id::PortId;
use crate::packet::{Parsed, Version};
use common::wire::ip::{protocol, v4, v6};
use common::wire::udp;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Packets that are followed unless the operator says otherwise: what a person reads.
pub const DEFAULT_COUNT: u32 = 100;

/// Most packets that may be followed: with their steps and first bytes about 40 MB of an answer.
pub const MAX_COUNT: u32 = 10_000;

/// SCTP (RFC 9260), so that it can be named.
const SCTP: u8 = 132;

/// The words, and what stands behind their `=`.
const WORDS: &[(&str, &str)] = &[
    ("in", "the name of a port"),
    ("out", "the name of a port"),
    ("src", "an address or a prefix like 10.2.0.0/16"),
    ("dst", "an address or a prefix like 10.2.0.0/16"),
    ("proto", "tcp, udp, icmp, icmp6, sctp, or 0 to 255"),
    ("sport", "0 to 65535"),
    ("dport", "0 to 65535"),
    ("dscp", "0 to 63"),
    ("priority", "0 to 7"),
    ("qp", "0 to 16777215 (0xffffff)"),
    ("drop", "nothing, or reasons separated by commas"),
    ("every", "1 to 4294967295"),
    ("count", "1 to 10000"),
];

/// What is wrong with the text of a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The word does not exist.
    #[error("{word}: there is no such word; there are {}", words())]
    Unknown {
        /// The word.
        word: String,
    },
    /// What stands behind the word makes no sense.
    #[error("{word}: {word_name} takes {allowed}")]
    Value {
        /// The word with its value.
        word: String,
        /// The word alone.
        word_name: &'static str,
        /// What it takes.
        allowed: String,
    },
    /// The word is there twice.
    #[error("{word}: {word_name} is there twice")]
    Twice {
        /// The second one.
        word: String,
        /// The word alone.
        word_name: &'static str,
    },
    /// No packet can match.
    #[error("no packet matches both: {0}")]
    Contradiction(&'static str),
}

/// The words, for people.
fn words() -> String {
    let names: Vec<&str> = WORDS.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// A set of drop reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonSet(u64);

const _: () = assert!(
    DropReason::COUNT <= u64::BITS as usize,
    "ReasonSet is one word"
);

impl ReasonSet {
    /// All reasons.
    pub const ALL: Self = Self(u64::MAX >> (u64::BITS as usize - DropReason::COUNT));
    /// No reason.
    pub const NONE: Self = Self(0);

    /// The set with `reason` in it.
    #[must_use]
    pub const fn with(self, reason: DropReason) -> Self {
        Self(self.0 | 1 << reason.index())
    }

    /// Whether `reason` is in it.
    pub const fn contains(self, reason: DropReason) -> bool {
        self.0 & 1 << reason.index() != 0
    }
}

/// Which packets are followed. `None`: any value matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The port they arrive at.
    pub ingress: Option<PortId>,
    /// The port they leave by, or would have left by.
    pub egress: Option<PortId>,
    /// Where they come from.
    pub src: Option<IpNet>,
    /// Where they go.
    pub dst: Option<IpNet>,
    /// Protocol of the upper layer, behind extension headers.
    pub protocol: Option<u8>,
    /// UDP or TCP source port.
    pub src_port: Option<u16>,
    /// UDP or TCP destination port.
    pub dst_port: Option<u16>,
    /// Code point on arrival, 0–63.
    pub dscp: Option<u8>,
    /// Priority that they are classified as, 0–7.
    pub priority: Option<u8>,
    /// Destination queue pair of RoCEv2 packets, 24 bits.
    pub dest_qp: Option<u32>,
    /// Only those that are lost for one of these reasons.
    pub drops: Option<ReasonSet>,
    /// Every n-th packet that matches; at least 1. Each worker counts for itself, unless the match
    /// depends on the packet's end.
    pub every: u32,
    /// At most so many.
    pub count: u32,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            ingress: None,
            egress: None,
            src: None,
            dst: None,
            protocol: None,
            src_port: None,
            dst_port: None,
            dscp: None,
            priority: None,
            dest_qp: None,
            drops: None,
            every: 1,
            count: DEFAULT_COUNT,
        }
    }
}

impl Filter {
    /// Reads a filter on a switch whose ports have these names, in the order of their numbers.
    ///
    /// # Errors
    /// The word that makes no sense, and what would.
    pub fn parse<S: AsRef<str>>(text: &str, ports: &[S]) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split_whitespace() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let Some((name, allowed)) = WORDS.iter().find(|(known, _)| *known == name) else {
                return Err(FilterError::Unknown {
                    word: word.to_owned(),
                });
            };
            if seen.contains(name) {
                return Err(FilterError::Twice {
                    word: word.to_owned(),
                    word_name: name,
                });
            }
            seen.push(name);
            filter
                .set(name, value, ports)
                .ok_or_else(|| FilterError::Value {
                    word: word.to_owned(),
                    word_name: name,
                    allowed: with_names(name, allowed, ports),
                })?;
        }
        filter.check()?;
        Ok(filter)
    }

    /// Sets what one word says; `None` if its value makes no sense.
    fn set<S: AsRef<str>>(&mut self, name: &str, value: Option<&str>, ports: &[S]) -> Option<()> {
        if name == "drop" {
            self.drops = Some(value.map_or(Some(ReasonSet::ALL), reasons)?);
            return Some(());
        }
        let value = value?;
        match name {
            "in" => self.ingress = Some(port(value, ports)?),
            "out" => self.egress = Some(port(value, ports)?),
            "src" => self.src = Some(prefix(value)?),
            "dst" => self.dst = Some(prefix(value)?),
            "proto" => self.protocol = Some(protocol_number(value)?),
            "sport" => self.src_port = Some(value.parse().ok()?),
            "dport" => self.dst_port = Some(value.parse().ok()?),
            "dscp" => self.dscp = Some(within(value, 0, 63)?),
            "priority" => self.priority = Some(within(value, 0, 7)?),
            "qp" => self.dest_qp = Some(queue_pair(value)?),
            "every" => self.every = within(value, 1, u32::MAX)?,
            "count" => self.count = within(value, 1, MAX_COUNT)?,
            _ => return None,
        }
        Some(())
    }

    /// Refuses what no packet can match.
    fn check(&self) -> Result<(), FilterError> {
        let wrong = |text| Err(FilterError::Contradiction(text));
        if let (Some(src), Some(dst)) = (self.src, self.dst)
            && src.addr().is_ipv4() != dst.addr().is_ipv4()
        {
            return wrong("src and dst are of different versions of IP");
        }
        let has_ports = self.src_port.is_some() || self.dst_port.is_some();
        if has_ports
            && !self
                .protocol
                .is_none_or(|number| matches!(number, protocol::TCP | protocol::UDP))
        {
            return wrong("sport and dport are of tcp or udp, proto is neither");
        }
        if self.dest_qp.is_some() {
            if self.protocol.is_some_and(|number| number != protocol::UDP) {
                return wrong("qp is of RoCEv2, which is udp, and proto is not");
            }
            if self.dst_port.is_some_and(|port| port != udp::ROCE_PORT) {
                return wrong("qp is of RoCEv2, which is dport 4791, and dport is not");
            }
        }
        Ok(())
    }

    /// Whether a packet may match, as far as is known on its arrival. `parsed` is
    /// `None` if the parser refused it.
    pub fn matches(&self, arrival: Arrival, frame: &[u8], parsed: Option<&Parsed>) -> bool {
        let came =
            is(self.ingress, || Some(arrival.port)) && is(self.priority, || arrival.priority);
        came && match parsed {
            Some(parsed) => self.matches_headers(frame, parsed),
            None => !self.looks_at_headers(),
        }
    }

    /// Whether the filter selects a packet that was sent or lost.
    pub fn wants(&self, egress: Option<PortId>, dropped: Option<DropReason>) -> bool {
        let lost = self
            .drops
            .is_none_or(|set| dropped.is_some_and(|reason| set.contains(reason)));
        lost && is(self.egress, || egress)
    }

    /// Whether the filter can be decided only at the end of a packet.
    pub fn is_late(&self) -> bool {
        self.drops.is_some() || self.egress.is_some()
    }

    fn looks_at_headers(&self) -> bool {
        self.src.is_some()
            || self.dst.is_some()
            || self.protocol.is_some()
            || self.src_port.is_some()
            || self.dst_port.is_some()
            || self.dscp.is_some()
            || self.dest_qp.is_some()
    }

    fn matches_headers(&self, frame: &[u8], parsed: &Parsed) -> bool {
        is(self.dscp, || Some(parsed.dscp))
            && is(self.protocol, || Some(parsed.protocol))
            && inside(self.dst, || Some(parsed.destination()))
            && inside(self.src, || source(frame, parsed))
            && is(self.src_port, || {
                upper_port(frame, parsed, udp::field::SRC_PORT)
            })
            && is(self.dst_port, || {
                upper_port(frame, parsed, udp::field::DST_PORT)
            })
            && is(self.dest_qp, || dest_qp(frame, parsed))
    }
}

/// Whether a criterion holds.
fn is<T: PartialEq>(wanted: Option<T>, found: impl FnOnce() -> Option<T>) -> bool {
    wanted.is_none_or(|wanted| found() == Some(wanted))
}

fn inside(wanted: Option<IpNet>, found: impl FnOnce() -> Option<IpAddr>) -> bool {
    wanted.is_none_or(|wanted| found().is_some_and(|address| wanted.contains(&address)))
}

/// The bytes at `at`, if the frame has them.
fn bytes<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}

fn source(frame: &[u8], parsed: &Parsed) -> Option<IpAddr> {
    let network = usize::from(parsed.network);
    match parsed.version {
        Version::V4 => {
            bytes::<4>(frame, network + v4::field::SRC).map(|octets| Ipv4Addr::from(octets).into())
        }
        Version::V6 => {
            bytes::<16>(frame, network + v6::field::SRC).map(|octets| Ipv6Addr::from(octets).into())
        }
    }
}

/// A port of UDP or TCP, which have them in the same places.
fn upper_port(frame: &[u8], parsed: &Parsed, field: usize) -> Option<u16> {
    let has_ports = matches!(parsed.protocol, protocol::TCP | protocol::UDP);
    if parsed.transport == 0 || !has_ports {
        return None;
    }
    bytes(frame, usize::from(parsed.transport) + field).map(u16::from_be_bytes)
}

fn dest_qp(frame: &[u8], parsed: &Parsed) -> Option<u32> {
    /// Where the destination queue pair lies in the BTH.
    const DEST_QP: usize = 5;
    let port = upper_port(frame, parsed, udp::field::DST_PORT);
    if parsed.protocol != protocol::UDP || port != Some(udp::ROCE_PORT) {
        return None;
    }
    let at = usize::from(parsed.transport) + udp::HEADER_LEN + DEST_QP;
    let [a, b, c] = bytes(frame, at)?;
    Some(u32::from_be_bytes([0, a, b, c]))
}

/// What a word takes, with the names that there are.
fn with_names<S: AsRef<str>>(word: &str, allowed: &str, ports: &[S]) -> String {
    let names: Vec<&str> = match word {
        // A place that is kept for a port has no name yet.
        "in" | "out" => ports
            .iter()
            .map(AsRef::as_ref)
            .filter(|name| !name.is_empty())
            .collect(),
        "drop" => DropReason::ALL
            .iter()
            .map(|reason| reason.label())
            .collect(),
        _ => return allowed.to_owned(),
    };
    format!("{allowed}: {}", names.join(", "))
}

fn port<S: AsRef<str>>(name: &str, ports: &[S]) -> Option<PortId> {
    let place = ports
        .iter()
        .position(|port| !name.is_empty() && port.as_ref() == name)?;
    u16::try_from(place).ok().map(PortId)
}

fn prefix(text: &str) -> Option<IpNet> {
    let net = IpNet::from_str(text).ok();
    let net = net.or_else(|| IpAddr::from_str(text).ok().map(IpNet::from))?;
    Some(net.trunc())
}

fn protocol_number(text: &str) -> Option<u8> {
    match text {
        "tcp" => Some(protocol::TCP),
        "udp" => Some(protocol::UDP),
        "icmp" => Some(protocol::ICMP),
        "icmp6" => Some(protocol::ICMPV6),
        "sctp" => Some(SCTP),
        number => number.parse().ok(),
    }
}

fn queue_pair(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|number| *number <= common::wire::roce::PSN_MASK)
}

fn within<T: FromStr + PartialOrd>(text: &str, least: T, most: T) -> Option<T> {
    let number = text.parse().ok()?;
    (least..=most).contains(&number).then_some(number)
}

fn reasons(text: &str) -> Option<ReasonSet> {
    text.split(',').try_fold(ReasonSet::NONE, |set, label| {
        let mut all = DropReason::ALL.iter();
        Some(set.with(*all.find(|reason| reason.label() == label)?))
    })
}

#[cfg(test)]
mod tests;
