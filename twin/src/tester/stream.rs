//! Streams: what a tester sends, and when the next packet of each is due.
//!
//! Line time is in picoseconds, as on wires, so that no rate is rounded.

use common::time::{Span, Time};
use common::units::Rate;
use common::wire::ip::Ecn;
use common::wire::roce::{Headers, ICRC_LEN, Mpeh, Opcode, Operation};
use common::wire::{ethernet, ip, udp};
use switchd::packet::wire_len;

/// Picoseconds of a nanosecond.
pub(super) const PICO: u64 = 1000;

/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// Bytes of a frame check sequence: sizes of frames count it, packet memory does not hold it.
pub const FCS: usize = 4;

/// Bytes at the front of the payload: number of the stream, sequence number, time of sending.
pub(super) const SIGNATURE: usize = 2 + 8 + 8;

/// Sizes of frames: from the destination address to the frame check sequence, both counted, as IEEE
/// 802.3 and testers count them. A "64-byte frame" has 60 bytes in packet memory and takes 84 bytes
/// of line time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All of this size.
    Fixed(u16),
    /// These in turn.
    InTurn(Vec<u16>),
    /// Drawn from these; one that stands there several times comes as much more often.
    Mix(Vec<u16>),
    /// Drawn from all between these two, both included.
    Between(u16, u16),
}

impl Sizes {
    /// The size of the packet with this sequence number.
    fn of(&self, sequence: u64, seed: u64) -> u16 {
        let pick = |sizes: &[u16], number: u64| sizes[index(number % sizes.len() as u64)];
        match self {
            Self::Fixed(size) => *size,
            Self::InTurn(sizes) => pick(sizes, sequence),
            Self::Mix(sizes) => pick(sizes, draw(seed, sequence)),
            Self::Between(low, high) => {
                let span = u64::from(high - low) + 1;
                low + u16::try_from(draw(seed, sequence) % span).expect("a span of sizes")
            }
        }
    }

    /// The smallest and the largest size. There is at least one.
    fn bounds(&self) -> (u16, u16) {
        match self {
            Self::Fixed(size) => (*size, *size),
            Self::Between(low, high) => (*low, *high),
            Self::InTurn(sizes) | Self::Mix(sizes) => {
                let low = sizes.iter().min().expect("a list of sizes is not empty");
                let high = sizes.iter().max().expect("a list of sizes is not empty");
                (*low, *high)
            }
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a place in a list")
}

/// A number that depends on `seed` and `number` alone (splitmix64).
fn draw(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Packets come in bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Packets of a burst.
    pub packets: u64,
    /// Time between the end of one burst and the beginning of the next.
    pub gap: Span,
}

/// Packets are RoCEv2: SEND, middle, of the queue pair with the stream's number; the PSN is the
/// sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roce {
    /// With this MPEH. To its path the place of the source port among the stream's is added.
    pub mpeh: Option<Mpeh>,
}

/// What a tester sends to another. All of them is made from a default: `Stream { dscp: 24,
/// ..Stream::to(3) }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Number of the tester that receives it.
    pub to: usize,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// TTL, or hop limit.
    pub ttl: u8,
    /// UDP source ports, in turn: each makes a flow of its own.
    pub from_ports: Vec<u16>,
    /// UDP destination port. That of RoCEv2 is always 4791.
    pub to_port: u16,
    /// Sizes of frames. Those of RoCEv2 are rounded down, since a payload has whole words.
    pub sizes: Sizes,
    /// Bits of line time a second, preamble and gap between frames counted, so that streams of 40
    /// and 60 Gb/s fill 100 Gb/s whatever their sizes. `None`: all that streams with a rate leave,
    /// which such streams share packet by packet.
    pub rate: Option<Rate>,
    /// When the first packet is sent.
    pub start: Time,
    /// When no packet begins any more.
    pub stop: Time,
    /// Packets to send, if it is not stopped before.
    pub packets: u64,
    /// Packets come in bursts; otherwise evenly.
    pub bursts: Option<Bursts>,
    /// Packets are RoCEv2; otherwise they are plain UDP.
    pub roce: Option<Roce>,
}

impl Stream {
    /// A stream of 1500-byte frames at full rate and without end, best effort, not ECN-capable.
    pub fn to(to: usize) -> Self {
        Self {
            to,
            dscp: 0,
            ecn: Ecn::NotEct,
            ttl: 64,
            from_ports: vec![0xc000],
            to_port: 5001,
            sizes: Sizes::Fixed(1500),
            rate: None,
            start: Time::ZERO,
            stop: Time::NEVER,
            packets: u64::MAX,
            bursts: None,
            roce: None,
        }
    }

    /// Bytes of the headers in front of the payload, and of what follows it.
    fn overhead(&self, v6: bool) -> (usize, usize) {
        let network = if v6 {
            ip::v6::HEADER_LEN
        } else {
            ip::v4::HEADER_LEN
        };
        let (transport, trailer) = match self.roce {
            Some(roce) => (Headers::len_of(roce.opcode()), ICRC_LEN),
            None => (0, 0),
        };
        let front = ethernet::HEADER_LEN + network + udp::HEADER_LEN + transport;
        (front, trailer)
    }

    /// The smallest size that its frames may have: that which holds headers and signature. 64 bytes
    /// with UDP over IPv4.
    pub fn least_size(&self, v6: bool) -> u16 {
        let (front, trailer) = self.overhead(v6);
        let payload = match self.roce {
            Some(_) => SIGNATURE.next_multiple_of(4),
            None => SIGNATURE,
        };
        u16::try_from(front + payload + trailer + FCS).expect("headers are small")
    }

    /// Bytes in packet memory of the packet with this sequence number.
    pub(super) fn frame_len(&self, sequence: u64, seed: u64, v6: bool) -> usize {
        let len = usize::from(self.sizes.of(sequence, seed)) - FCS;
        let (front, trailer) = self.overhead(v6);
        match self.roce {
            Some(_) => len - (len - front - trailer) % 4,
            None => len,
        }
    }

    /// Bytes in packet memory of its longest packet.
    pub(super) fn longest(&self) -> usize {
        usize::from(self.sizes.bounds().1) - FCS
    }

    /// What is wrong with it, if something is.
    pub(super) fn mistake(&self, v6: bool, capacity: usize) -> Option<String> {
        let lists: [&[u16]; 2] = [
            &self.from_ports,
            match &self.sizes {
                Sizes::InTurn(sizes) | Sizes::Mix(sizes) => sizes,
                Sizes::Fixed(_) | Sizes::Between(..) => &[0],
            },
        ];
        if lists.iter().any(|list| list.is_empty()) {
            return Some("an empty list of source ports or of sizes".to_owned());
        }
        let (low, high) = self.sizes.bounds();
        let least = self.least_size(v6);
        if low < least || high < low {
            return Some(format!("frames of {low} to {high} bytes; at least {least}"));
        }
        if self.longest() > capacity {
            return Some(format!("{high}-byte frames in memory for {capacity} bytes"));
        }
        if self.dscp > 63 {
            return Some(format!("DSCP {}", self.dscp));
        }
        let nothing = |bursts: Bursts| bursts.packets == 0;
        (self.bursts.is_some_and(nothing) || self.rate == Some(Rate::default()))
            .then(|| "a rate or a burst of nothing".to_owned())
    }
}

impl Roce {
    pub(super) fn opcode(self) -> Opcode {
        match self.mpeh {
            Some(_) => Opcode::Multipath(Operation::SendMiddle),
            None => Opcode::Rc(Operation::SendMiddle),
        }
    }
}

/// What was sent of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, check sequences counted.
    pub bytes: u64,
}

/// A stream that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) number: u16,
    pub(super) stream: Stream,
    pub(super) sent: Sent,
    /// The next packet is due when all bits since `origin` (in picoseconds) have passed at its
    /// rate.
    origin: u64,
    bits: u128,
    /// Packets of the present burst that were sent.
    of_burst: u64,
}

impl Outgoing {
    pub(super) fn new(number: u16, stream: Stream) -> Self {
        Self {
            number,
            sent: Sent::default(),
            origin: stream.start.nanos().saturating_mul(PICO),
            stream,
            bits: 0,
            of_burst: 0,
        }
    }

    /// When its next packet is due, in picoseconds.
    pub(super) fn due(&self) -> u64 {
        let rate = self.stream.rate.map_or(1, Rate::bps);
        let passed = self.bits * SECOND / u128::from(rate.max(1));
        self.origin
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Whether no packet of it begins at `at` picoseconds or later.
    pub(super) fn is_over(&self, at: u64) -> bool {
        let begins = at.max(self.due()) / PICO;
        self.sent.packets >= self.stream.packets || begins >= self.stream.stop.nanos()
    }

    /// By what streams that are due take turns: those with a rate first, then whose turn is longest
    /// ago.
    pub(super) fn turn(&self) -> (bool, u64) {
        (self.stream.rate.is_none(), self.due())
    }

    /// A packet of `len` bytes in memory begins at `at` and takes `taken` picoseconds of the line.
    /// A stream that waited for others makes up for at most `slack`: what it could not send while
    /// it was paused is not sent later.
    pub(super) fn served(&mut self, len: usize, (at, taken): (u64, u64), slack: u64) {
        self.sent.packets += 1;
        self.sent.bytes += (len + FCS) as u64;
        if self.stream.rate.is_none() {
            self.origin = at;
        } else {
            if self.due().saturating_add(slack) < at {
                self.origin = at - slack;
                self.bits = 0;
            }
            self.bits += u128::from(wire_len(len as u64) * 8);
        }
        self.of_burst += 1;
        if let Some(Bursts { packets, gap }) = self.stream.bursts
            && self.of_burst >= packets
        {
            let end = match self.stream.rate {
                Some(_) => self.due(),
                None => at.saturating_add(taken),
            };
            self.origin = end.saturating_add(gap.nanos().saturating_mul(PICO));
            self.bits = 0;
            self.of_burst = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_sizes_follow_from_the_headers() {
        let plain = Stream::to(0);
        assert_eq!(plain.least_size(false), 64);
        assert_eq!(plain.least_size(true), 84);
        let roce = Stream {
            roce: Some(Roce {
                mpeh: Some(Mpeh::default()),
            }),
            ..Stream::to(0)
        };
        assert_eq!((roce.least_size(false), roce.least_size(true)), (98, 118));
        let small = Stream {
            sizes: Sizes::Fixed(63),
            ..Stream::to(0)
        };
        assert!(small.mistake(false, 4096).is_some());
        assert_eq!(plain.mistake(false, 1496), None);
        assert!(plain.mistake(false, 1495).is_some());
    }

    /// RoCE frames have whole words of payload and are never longer than asked for.
    #[test]
    fn roce_frames_are_rounded_down() {
        for mpeh in [None, Some(Mpeh::default())] {
            let stream = Stream {
                roce: Some(Roce { mpeh }),
                sizes: Sizes::InTurn((90..=110).collect()),
                ..Stream::to(0)
            };
            let (front, trailer) = stream.overhead(false);
            for (sequence, size) in (90_usize..=110).enumerate() {
                let len = stream.frame_len(sequence as u64, 1, false);
                assert_eq!((len - front - trailer) % 4, 0);
                assert!(len + FCS <= size && len + FCS + 4 > size, "{size}: {len}");
            }
        }
    }

    /// Every size of a range is drawn, and nothing else; another seed draws others.
    #[test]
    fn sizes_are_drawn_from_all() {
        let sizes = Sizes::Between(64, 127);
        let drawn = |seed| -> Vec<u16> { (0..4000).map(|n| sizes.of(n, seed)).collect() };
        let mut seen = drawn(1);
        assert_ne!(seen, drawn(2));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (64..=127).collect::<Vec<_>>());
        let mix = Sizes::Mix(vec![64, 64, 64, 1500]);
        let large = (0..4000).filter(|n| mix.of(*n, 1) == 1500).count();
        assert!((800..1200).contains(&large), "{large}");
    }

    /// A rate is exact over any number of packets, and a stream that was stopped does not make up
    /// for it.
    #[test]
    fn a_rate_is_exact() {
        let stream = Stream {
            rate: Some(Rate::from_bps(7_000_000_000)),
            ..Stream::to(0)
        };
        let mut out = Outgoing::new(0, stream);
        for _ in 0..7_000 {
            let due = out.due();
            out.served(1496, (due, 100), 200);
        }
        assert_eq!(out.due(), 1520 * 8 * 1_000_000);
        out.served(1496, (20_000_000_000, 100), 200);
        assert_eq!(out.due(), 20_000_000_000 - 200 + 1520 * 8 * 1000 / 7);
    }
}
