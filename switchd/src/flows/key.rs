//! Which direction of which connection a packet belongs to.

use crate::packet::{Parsed, Version};
use common::wire::ip::{v4, v6};
use common::wire::roce::PSN_MASK;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination address and the destination queue pair: what one direction of a
/// connection has in all of its packets, whichever way they take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Both addresses as they stand in the header; IPv4 leaves all but the first word zero.
    pub(super) addresses: [u64; 4],
    /// Queue pair in the low 24 bits, and [`Self::V6`].
    pub(super) pair: u32,
}

/// Odd numbers that bits are mixed with.
const ODD: [u64; 3] = [
    0x9e37_79b9_7f4a_7c15,
    0xd1b5_4a32_d192_ed03,
    0x8cb9_2ba7_2f3d_8dd7,
];

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let halves = (product as u64, (product >> 64) as u64);
    halves.0 ^ halves.1
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).and_then(|it| it.first_chunk());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

impl Key {
    /// The addresses are of IPv6.
    const V6: u32 = 1 << 24;

    /// The direction to queue pair `qp` of `destination`; `None` if the addresses are of different
    /// versions.
    pub fn new(source: IpAddr, destination: IpAddr, qp: u32) -> Option<Self> {
        let mut bytes = [0; 32];
        let version = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[..4].copy_from_slice(&source.octets());
                bytes[4..8].copy_from_slice(&destination.octets());
                0
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                bytes[..16].copy_from_slice(&source.octets());
                bytes[16..].copy_from_slice(&destination.octets());
                Self::V6
            }
            _ => return None,
        };
        Some(Self {
            addresses: [0, 8, 16, 24].map(|at| word(&bytes, at)),
            pair: qp & PSN_MASK | version,
        })
    }

    /// That of a packet to `qp`.
    #[inline]
    pub(super) fn of(frame: &[u8], parsed: &Parsed, qp: u32) -> Self {
        let network = usize::from(parsed.network);
        match parsed.version {
            Version::V4 => Self {
                addresses: [word(frame, network + v4::field::SRC), 0, 0, 0],
                pair: qp,
            },
            Version::V6 => {
                let at = network + v6::field::SRC;
                Self {
                    addresses: [0, 8, 16, 24].map(|word_at| word(frame, at + word_at)),
                    pair: qp | Self::V6,
                }
            }
        }
    }

    /// That of a packet of IP to `qp`; `None` if its addresses are not all there.
    #[inline]
    pub fn in_packet(ip: &[u8], qp: u32) -> Option<Self> {
        let pair = qp & PSN_MASK;
        match ip.first()? >> 4 {
            4 if ip.len() >= v4::HEADER_LEN => Some(Self {
                addresses: [word(ip, v4::field::SRC), 0, 0, 0],
                pair,
            }),
            6 if ip.len() >= v6::HEADER_LEN => Some(Self {
                addresses: [0, 8, 16, 24].map(|at| word(ip, v6::field::SRC + at)),
                pair: pair | Self::V6,
            }),
            _ => None,
        }
    }

    /// The direction back, to queue pair `qp`.
    #[inline]
    #[must_use]
    pub fn back_to(&self, qp: u32) -> Self {
        let [a, b, c, d] = self.addresses;
        let is_v6 = self.pair & Self::V6;
        Self {
            // Both addresses of IPv4 are halves of one word.
            addresses: if is_v6 == 0 {
                [a.rotate_left(32), 0, 0, 0]
            } else {
                [c, d, a, b]
            },
            pair: qp & PSN_MASK | is_v6,
        }
    }

    /// All of it, to compare.
    #[inline]
    pub const fn words(&self) -> [u64; 5] {
        let [a, b, c, d] = self.addresses;
        [a, b, c, d, self.pair as u64]
    }

    /// What it is looked up by.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let [a, b, c, d] = self.addresses;
        let first = fold(a ^ ODD[0] ^ seed, u64::from(self.pair) ^ ODD[1]);
        if self.pair & Self::V6 == 0 {
            return fold(first, ODD[2]);
        }
        fold(first ^ fold(b ^ ODD[1], c ^ seed), d ^ ODD[2])
    }

    fn octets(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.addresses) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn address(&self, at: usize) -> IpAddr {
        let bytes = self.octets();
        if self.is_v6() {
            let octets: &[u8; 16] = bytes[at * 16..].first_chunk().expect("32 bytes");
            return Ipv6Addr::from(*octets).into();
        }
        let octets: &[u8; 4] = bytes[at * 4..].first_chunk().expect("32 bytes");
        Ipv4Addr::from(*octets).into()
    }

    /// Whether its addresses are of IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        self.pair & Self::V6 != 0
    }

    /// Where its packets come from.
    pub fn source(&self) -> IpAddr {
        self.address(0)
    }

    /// Where they go.
    pub fn destination(&self) -> IpAddr {
        self.address(1)
    }

    /// The queue pair that they are for.
    pub fn qp(&self) -> u32 {
        self.pair & PSN_MASK
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source(), self.destination());
        write!(f, "{source} > {destination} qp {}", self.qp())
    }
}
