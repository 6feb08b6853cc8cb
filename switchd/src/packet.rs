//! A packet: a frame and what the stages found out about it.

use crate::id::{PortId, TraceId};
use crate::limits::CELL;
use crate::tables::interfaces::InterfaceId;
use common::time::{Span, Time};
use common::wire::csig::{Form, Kind};
use common::wire::int;
use common::xdp::frame::Frame;
use common::xdp::queue::LINE_OVERHEAD;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet on its way from the ingress to an egress queue. It owns its frame.
///
/// Everything later stages need is here, so that they read the headers only to change them, and a
/// packet that crosses to another worker needs nothing but this.
#[derive(Debug)]
pub struct Packet {
    /// The bytes.
    pub frame: Frame,
    /// The port it arrived at; drops are counted there.
    pub ingress: PortId,
    /// The port it leaves by.
    pub egress: PortId,
    /// Where it goes on the next link, and where its IP header begins.
    pub link: NextLink,
    /// How it is treated until it leaves.
    pub treatment: Treatment,
    /// Cells that it is charged, to its group and to its queue, if it has to wait.
    pub cells: u16,
    /// Hash of its flow if flows of its class are told apart, otherwise zero.
    pub flow: u32,
    /// What is to be changed in it before it leaves, beside what a router always changes.
    pub edits: Edits,
    /// Which traced packet it is, if it is one.
    pub trace: TraceId,
    /// When the batch was taken from the device that it arrived in.
    pub received: Recently,
}

// Three quarters of a line: queues hold many of them.
const _: () = assert!(size_of::<Packet>() == 48);

/// The destination MAC address of a packet on its next link, and where its IP header begins.
///
/// One word, like [`Treatment`]: queues move packets by words, and what was written in pieces
/// cannot be read as a whole before it is in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextLink(u64);

impl NextLink {
    /// A destination, and the offset of the IP header in the frame.
    #[inline]
    pub const fn new([a, b, c, d, e, f]: [u8; 6], network: u16) -> Self {
        let [low, high] = network.to_le_bytes();
        Self(u64::from_le_bytes([a, b, c, d, e, f, low, high]))
    }

    /// Destination MAC address; zero if there is no next hop.
    #[inline]
    pub const fn mac(self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// Where the IP header begins.
    #[inline]
    pub const fn network(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Its IP header begins elsewhere now.
    #[inline]
    pub const fn set_network(&mut self, network: u16) {
        *self = Self::new(self.mac(), network);
    }
}

/// How a packet is treated until it leaves, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment(u32);

impl Treatment {
    /// That of a packet of a traffic class and a priority group, with the code point that it leaves
    /// with and the ECN field that it came with.
    #[inline]
    pub const fn new((class, group): (u8, u8), dscp: u8, ecn: u8) -> Self {
        Self(u32::from_le_bytes([class, group, dscp, ecn]))
    }

    /// Traffic class: the index of the egress queue.
    #[inline]
    pub const fn class(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// Priority group of its ingress port that it is charged to.
    #[inline]
    pub const fn group(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    /// Differentiated services code point that it leaves with.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0.to_le_bytes()[2]
    }

    /// Its ECN field as it came (RFC 3168 §5). Not zero: its sender understands marks, or it is
    /// marked already.
    #[inline]
    pub const fn ecn(self) -> u8 {
        self.0.to_le_bytes()[3]
    }

    /// Puts it in another class.
    #[inline]
    pub const fn set_class(&mut self, class: u8) {
        *self = Self::new((class, self.group()), self.dscp(), self.ecn());
    }

    /// Lets it leave with another code point.
    #[inline]
    pub const fn set_dscp(&mut self, dscp: u8) {
        *self = Self::new((self.class(), self.group()), dscp, self.ecn());
    }
}

/// A time of the last half minute, in four bytes: units of 16 ns, whose count begins anew every
/// 68 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recently(u32);

impl Recently {
    /// Binary logarithm of the unit in nanoseconds.
    const SHIFT: u32 = 4;

    /// This time, rounded down to the unit.
    #[inline]
    pub const fn at(time: Time) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the count begins anew")]
        Self((time.nanos() >> Self::SHIFT) as u32)
    }

    /// What has passed until `now`, to within the unit, if that is less than 34 s. Nothing if `now`
    /// is before: each worker looks at the clock once a turn, so a packet may come from one whose
    /// turn began later.
    #[inline]
    pub fn until(self, now: Time) -> Span {
        let units = Self::at(now).0.wrapping_sub(self.0);
        let units = if units > u32::MAX / 2 { 0 } else { units };
        Span::from_nanos(u64::from(units) << Self::SHIFT)
    }
}

/// A set of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits(u8);

impl Edits {
    /// It gets CE.
    pub const MARK: Self = Self(1);
    /// It gets [`Treatment::dscp`].
    pub const REMARK: Self = Self(2);
    /// It was trimmed: nothing is left to change, but it counts.
    pub const TRIMMED: Self = Self(4);
    /// Its link header is that of the next link already, and its TTL has been seen to: it was
    /// bridged.
    pub const ADDRESSED: Self = Self(8);
    /// It has a compact CSIG tag.
    pub const COMPACT: Self = Self(16);
    /// It has an expanded CSIG tag.
    pub const EXPANDED: Self = Self(32);
    /// The tag that tells of its path came from a port that is not trusted.
    pub const UNTRUSTED: Self = Self(64);
    /// It has an INT tag.
    pub const TELEMETRY: Self = Self(128);
    /// It has a CSIG tag.
    const SIGNAL: u8 = Self::COMPACT.0 | Self::EXPANDED.0;
    /// It has a tag that tells of its path. Which way it takes does not depend on that.
    const TAGGED: u8 = Self::SIGNAL | Self::TELEMETRY.0;

    /// Whether nothing is to be changed beside what every packet of its kind has.
    #[inline]
    pub const fn is_empty(self) -> bool {
        const OF_ITS_KIND: u8 = Edits::ADDRESSED.0 | Edits::TAGGED | Edits::UNTRUSTED.0;
        self.0 & !OF_ITS_KIND == 0
    }

    /// Those of a packet that arrived with a tag of this kind, at a port that is trusted or not.
    #[inline]
    pub const fn of_tag(kind: Kind, is_trusted: bool) -> Self {
        let kind = match kind {
            Kind::Csig(Form::Compact) => Self::COMPACT,
            Kind::Csig(Form::Expanded) => Self::EXPANDED,
            Kind::Int => Self::TELEMETRY,
        };
        let trust = if is_trusted { 0 } else { Self::UNTRUSTED.0 };
        Self(kind.0 | trust)
    }

    /// Whether it has a tag that tells of its path.
    #[inline]
    pub const fn has_tag(self) -> bool {
        self.0 & Self::TAGGED != 0
    }

    /// Bytes of the tag that tells of its path; 0 if it has none.
    #[inline]
    pub const fn tag_len(self) -> u16 {
        // 4, 8 and 64, each of its own bit.
        const _: () = assert!(Edits::COMPACT.0 >> 2 == 4 && Edits::EXPANDED.0 >> 2 == 8);
        const _: () = assert!(Form::Compact.len() == 4 && Form::Expanded.len() == 8);
        const _: () = assert!(Edits::TELEMETRY.0 as usize >> 1 == int::LEN);
        ((self.0 & Self::SIGNAL) >> 2 | (self.0 & Self::TELEMETRY.0) >> 1) as u16
    }

    /// The same of a packet whose tag was taken off.
    #[inline]
    pub const fn without_tag(self) -> Self {
        Self(self.0 & !(Self::TAGGED | Self::UNTRUSTED.0))
    }

    /// Whether all of `other` are in it.
    #[inline]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds those of `other`.
    #[inline]
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Packet {
    /// Whether it goes from one station of a bridge to another: it has no next hop.
    #[inline]
    pub fn is_bridged(&self) -> bool {
        self.edits.contain(Edits::ADDRESSED) && self.link.mac() == [0; 6]
    }

    /// A frame at a port, of which nothing else is known. It is charged to no group.
    pub fn at(frame: Frame, port: PortId) -> Self {
        Self {
            frame,
            ingress: port,
            egress: port,
            link: NextLink::default(),
            treatment: Treatment::default(),
            cells: 0,
            flow: 0,
            edits: Edits::default(),
            trace: TraceId::NONE,
            received: Recently(0),
        }
    }
}

/// Version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What the later stages need to know of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Parsed {
    /// Version of IP.
    pub version: Version,
    /// Protocol of the upper layer, behind extension headers.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Explicit congestion notification (RFC 3168 §5).
    pub ecn: u8,
    /// Priority code point of the VLAN tag, or [`NO_PCP`].
    pub pcp: u8,
    /// Where the IP header begins.
    pub network: u16,
    /// Where the upper layer begins; 0 if its header is not in this packet (a later fragment).
    pub transport: u16,
    /// The packet is a fragment, the first one included.
    pub is_fragment: bool,
    /// A router may fragment it: it is IPv4 and does not say otherwise.
    pub may_fragment: bool,
    /// The rules for source addresses are to be asked about it.
    pub in_doubt: bool,
    /// The interface that it arrived by, if that is not the port itself. Then the frame in its
    /// buffer has lost the tag, and may have lost its MAC addresses.
    pub interface: InterfaceId,
    /// What is to be seen to because of its link header: the tag that tells of its path.
    pub edits: Edits,
    /// Bytes of the IP packet.
    pub ip_len: u16,
    /// Destination address.
    pub dst: Address,
}

/// An address of either version, as words: these go from registers to a lane, while bytes that were
/// written one by one cannot be read as a whole before they are in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address([u64; 2]);

impl Address {
    /// That of an IPv4 packet.
    #[inline]
    pub const fn v4(octets: [u8; 4]) -> Self {
        Self([u32::from_ne_bytes(octets) as u64, 0])
    }

    /// That of an IPv6 packet.
    #[inline]
    pub const fn v6(octets: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = octets;
        let first = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        Self([first, u64::from_ne_bytes([i, j, k, l, m, n, o, p])])
    }

    /// The octets, if it is one of IPv4.
    #[inline]
    pub const fn octets_v4(self) -> [u8; 4] {
        #[expect(clippy::cast_possible_truncation, reason = "it has no more")]
        (self.0[0] as u32).to_ne_bytes()
    }

    /// The octets, if it is one of IPv6.
    #[inline]
    pub fn octets_v6(self) -> [u8; 16] {
        let mut octets = [0; 16];
        let (first, second) = octets.split_at_mut(8);
        first.copy_from_slice(&self.0[0].to_ne_bytes());
        second.copy_from_slice(&self.0[1].to_ne_bytes());
        octets
    }
}

/// A frame without a VLAN tag has no priority code point.
pub const NO_PCP: u8 = 0xff;

impl Parsed {
    /// The destination address.
    pub fn destination(&self) -> IpAddr {
        match self.version {
            Version::V4 => IpAddr::V4(Ipv4Addr::from(self.dst.octets_v4())),
            Version::V6 => IpAddr::V6(Ipv6Addr::from(self.dst.octets_v6())),
        }
    }
}

/// Least length of a frame on the wire without its check sequence.
const WIRE_MIN: u64 = 60;

/// Bytes of line time that a frame of `len` bytes takes.
#[inline]
pub const fn wire_len(len: u64) -> u64 {
    LINE_OVERHEAD + if len < WIRE_MIN { WIRE_MIN } else { len }
}

/// Cells that a frame of `len` bytes takes; at least one.
#[inline]
pub const fn cells(len: usize) -> u64 {
    let cells = len.div_ceil(CELL);
    if cells == 0 { 1 } else { cells as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-1, SW-15: each part of a word is what it was set to, and stays when another changes.
    #[test]
    fn parts_of_words_change_alone() {
        let mac = [1, 2, 3, 4, 5, 254];
        let mut link = NextLink::new(mac, 14);
        assert_eq!((link.mac(), link.network()), (mac, 14));
        link.set_network(0xfe01);
        assert_eq!((link.mac(), link.network()), (mac, 0xfe01));
        let parts = |it: Treatment| (it.class(), it.group(), it.dscp(), it.ecn());
        let mut treatment = Treatment::new((7, 3), 63, 2);
        assert_eq!(parts(treatment), (7, 3, 63, 2));
        treatment.set_class(255);
        assert_eq!(parts(treatment), (255, 3, 63, 2));
        treatment.set_dscp(10);
        assert_eq!(parts(treatment), (255, 3, 10, 2));
    }

    /// SW-1: addresses come out as they went in.
    #[test]
    fn addresses_keep_their_octets() {
        let octets = std::array::from_fn(|at| u8::try_from(at * 16 + 1).expect("less than 256"));
        assert_eq!(Address::v6(octets).octets_v6(), octets);
        assert_eq!(Address::v4([10, 0, 255, 7]).octets_v4(), [10, 0, 255, 7]);
    }

    /// CS-4: what has passed since a packet came is right also where the count begins anew.
    #[test]
    fn a_time_of_the_last_minute_takes_four_bytes() {
        let last = u64::from(u32::MAX) << Recently::SHIFT;
        for begin in [0, 1, 12_345_678, last, last + 31] {
            for passed in [0, 15, 16, 1_000, 20_000_000, 34_000_000_000] {
                let begin = Time::from_nanos(begin);
                let now = begin + Span::from_nanos(passed);
                let found = Recently::at(begin).until(now).nanos();
                assert!(found.abs_diff(passed) < 16, "{begin:?} {passed}: {found}");
                let before = Recently::at(now).until(begin).nanos();
                assert_eq!(before, 0, "{begin:?} is {passed} ns before");
            }
        }
    }
}
