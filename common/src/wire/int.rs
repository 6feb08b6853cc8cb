//! INT: in-band telemetry for hosts in a tag of the link header (SW-52), as HPCC needs it (Li et
//! al., SIGCOMM 2019). Each switch of the path writes what its egress port is like.
//!
//! The tag stands where that of CSIG does: behind all VLAN tags, right before the EtherType of the
//! packet. A packet has one of the two at most. The sender makes room for all hops, so that the
//! frame has the same length on all links, and nothing that a checksum covers changes.
//!
//! ```text
//!    0                   1                   2                   3
//!    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//!   ├───────────────────────────────┼───────┼─┼─────┼───────────────┤
//!   │             TPID              │   V   │O│  R  │     hops      │
//!   ├───────────────────────────────┴───────┴─┴─────┴───────────────┤
//!   │                          sent, bytes                          │ ┐
//!   ├───────────────────────────────────────────────────────────────┤ │ five times
//!   │                           time, ns                            │ │
//!   ├─────────┬─────────────────────┬─────────┬─────────────────────┤ │
//!   │    e    │   m: queue, bytes   │    e    │   m: speed, kbit/s  │ ┘
//!   └─────────┴─────────────────────┴─────────┴─────────────────────┘
//! ```
//!
//! V is the version, zero. O: there was no room for a further hop. R is reserved and carried as it
//! is. `sent` and `time` count on from 2^32 − 1 to zero; the time is that of the clock of the
//! switch, of which only differences count. `queue` and `speed` are m · 2^e, rounded down; a speed
//! of zero is not known. A packet that is trimmed loses its tag.

use super::{Error, Result, need, put};

/// Hops that a tag has room for: host, leaf, spine, core, spine, leaf, host is five switches.
pub const HOPS: usize = 5;

/// Bytes of a tag, TPID included.
pub const LEN: usize = 4 + HOPS * Hop::LEN;

/// The TPID unless another is configured: none is assigned. Those of CSIG are the two before it.
pub const TPID: u16 = 0x9902;

const FULL: u8 = 0x08;
const VERSION: u8 = 0xf0;

/// A number in 16 bits: five of exponent and eleven of mantissa, rounded down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scaled(pub u16);

impl Scaled {
    const MANTISSA: u32 = 11;
    const EXPONENT_MAX: u32 = 31;

    /// The largest that is not larger than `value`.
    #[inline]
    pub const fn of(value: u64) -> Self {
        let bits = u64::BITS - value.leading_zeros();
        let exponent = bits.saturating_sub(Self::MANTISSA);
        if exponent > Self::EXPONENT_MAX {
            return Self(u16::MAX);
        }
        #[expect(clippy::cast_possible_truncation, reason = "eleven bits are left")]
        let mantissa = (value >> exponent) as u16;
        #[expect(clippy::cast_possible_truncation, reason = "at most 31")]
        Self((exponent as u16) << Self::MANTISSA | mantissa)
    }

    /// The number.
    #[inline]
    pub const fn value(self) -> u64 {
        let mantissa = self.0 & ((1 << Self::MANTISSA) - 1);
        (mantissa as u64) << (self.0 >> Self::MANTISSA)
    }
}

/// What a switch writes of the port that a packet leaves by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Bytes that the port has sent, with all that a frame takes on the line.
    pub sent: u32,
    /// Time of the switch in nanoseconds.
    pub at: u32,
    /// Bytes that wait in the packet's queue behind it.
    pub queue: Scaled,
    /// Speed of the link in kbit/s; zero: not known.
    pub speed: Scaled,
}

impl Hop {
    /// Bytes of a hop.
    pub const LEN: usize = 12;

    fn read(bytes: [u8; Self::LEN]) -> Self {
        let [s0, s1, s2, s3, t0, t1, t2, t3, q0, q1, v0, v1] = bytes;
        Self {
            sent: u32::from_be_bytes([s0, s1, s2, s3]),
            at: u32::from_be_bytes([t0, t1, t2, t3]),
            queue: Scaled(u16::from_be_bytes([q0, q1])),
            speed: Scaled(u16::from_be_bytes([v0, v1])),
        }
    }

    #[inline]
    fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.sent.to_be_bytes());
        put(&mut bytes, 4, self.at.to_be_bytes());
        put(&mut bytes, 8, self.queue.0.to_be_bytes());
        put(&mut bytes, 10, self.speed.0.to_be_bytes());
        bytes
    }
}

/// What became of a hop that a switch was to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in the tag.
    Added,
    /// There was no room for it, which the tag says now.
    Full,
    /// The tag is of an unknown version, or tells of more hops than it has room for: it stays as
    /// it is.
    Kept,
}

/// Writes an empty tag that begins at `bytes`, TPID included.
///
/// # Errors
/// If it does not fit.
#[inline]
pub fn clear(tpid: u16, bytes: &mut [u8]) -> Result<()> {
    need("int", bytes, LEN)?;
    bytes[..LEN].fill(0);
    put(bytes, 0, tpid.to_be_bytes());
    Ok(())
}

/// Writes a hop into the tag that begins at `bytes`.
///
/// # Errors
/// If the tag does not end there.
#[inline]
pub fn add(bytes: &mut [u8], hop: &Hop) -> Result<Written> {
    need("int", bytes, LEN)?;
    let (flags, hops) = (bytes[2], usize::from(bytes[3]));
    if flags & VERSION != 0 || hops > HOPS {
        return Ok(Written::Kept);
    }
    if hops == HOPS {
        bytes[2] |= FULL;
        return Ok(Written::Full);
    }
    put(bytes, 4 + hops * Hop::LEN, hop.bytes());
    bytes[3] += 1;
    Ok(Written::Added)
}

/// What was in a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    hops: [Hop; HOPS],
    count: u8,
    /// The path has more hops than the tag has room for.
    pub is_cut: bool,
}

impl Telemetry {
    /// Reads the tag that begins, with its TPID, at `bytes`.
    ///
    /// # Errors
    /// If it does not end there, is of another version, or tells of more hops than it has room for.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        need("int", bytes, LEN)?;
        let (flags, count) = (bytes[2], bytes[3]);
        let refused = |field, value: u8| Error::Field {
            header: "int",
            field,
            value: value.into(),
        };
        if flags & VERSION != 0 {
            return Err(refused("version", flags >> 4));
        }
        if usize::from(count) > HOPS {
            return Err(refused("hops", count));
        }
        let mut hops = [Hop::default(); HOPS];
        let (chunks, _) = bytes[4..LEN].as_chunks();
        for (hop, bytes) in hops.iter_mut().zip(chunks).take(count.into()) {
            *hop = Hop::read(*bytes);
        }
        Ok(Self {
            hops,
            count,
            is_cut: flags & FULL != 0,
        })
    }

    /// The hops, from the sender on.
    #[inline]
    pub fn hops(&self) -> &[Hop] {
        &self.hops[..usize::from(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOP: Hop = Hop {
        sent: 0x0102_0304,
        at: 0x0506_0708,
        queue: Scaled(0x090a),
        speed: Scaled(0x0b0c),
    };

    fn empty() -> [u8; LEN] {
        let mut bytes = [0xff; LEN];
        clear(TPID, &mut bytes).expect("room");
        bytes
    }

    /// SW-52: each field is where the page says, and hops follow each other.
    #[test]
    fn fields_are_where_they_are_described() {
        let mut bytes = empty();
        assert_eq!(bytes[..4], [0x99, 0x02, 0, 0]);
        assert_eq!(add(&mut bytes, &HOP), Ok(Written::Added));
        let other = Hop { sent: 9, ..HOP };
        assert_eq!(add(&mut bytes, &other), Ok(Written::Added));
        assert_eq!(bytes[..4], [0x99, 0x02, 0, 2]);
        assert_eq!(bytes[4..16], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(bytes[16..20], [0, 0, 0, 9]);
        assert!(bytes[28..].iter().all(|byte| *byte == 0));
        let read = Telemetry::read(&bytes).expect("a tag");
        assert_eq!(read.hops(), [HOP, other]);
        assert!(!read.is_cut);
    }

    /// SW-52: hops are bounded: what finds no room is said, and changes nothing else.
    #[test]
    fn hops_are_bounded() {
        let mut bytes = empty();
        for _ in 0..HOPS {
            assert_eq!(add(&mut bytes, &HOP), Ok(Written::Added));
        }
        let before = bytes;
        assert_eq!(add(&mut bytes, &HOP), Ok(Written::Full));
        assert_eq!(bytes[3..], before[3..]);
        let read = Telemetry::read(&bytes).expect("a tag");
        assert!(read.is_cut && read.hops().len() == HOPS);
    }

    /// SW-52: tags with lying counts and of other versions are left alone, and not read.
    #[test]
    fn tags_that_lie_are_left_alone() {
        for (at, value) in [(3, 6), (3, 255), (2, 0x10), (2, 0xf8)] {
            let mut bytes = empty();
            bytes[at] = value;
            let before = bytes;
            assert_eq!(add(&mut bytes, &HOP), Ok(Written::Kept));
            assert_eq!(bytes, before);
            assert!(Telemetry::read(&bytes).is_err());
        }
        let mut bytes = empty();
        for cut in 0..LEN {
            assert!(Telemetry::read(&bytes[..cut]).is_err());
            assert!(add(&mut bytes[..cut], &HOP).is_err());
            assert!(clear(TPID, &mut bytes[..cut]).is_err());
        }
    }

    proptest! {
        /// SW-52: a number is written to within a thousandth, never too large.
        #[test]
        fn numbers_are_rounded_down(value in 0..1_u64 << 42) {
            let written = Scaled::of(value).value();
            prop_assert!(written <= value && value - written <= value / 1_024);
        }

        /// SW-52: whatever comes is read or refused, and what is read can be written again.
        #[test]
        fn anything_is_read_or_refused(bytes: [u8; LEN]) {
            if let Ok(read) = Telemetry::read(&bytes) {
                let mut again = empty();
                for hop in read.hops() {
                    prop_assert_eq!(add(&mut again, hop), Ok(Written::Added));
                }
                let end = 4 + read.hops().len() * Hop::LEN;
                prop_assert_eq!(&again[4..end], &bytes[4..end]);
            }
        }
    }

    /// SW-52: what is larger than any link is written as the largest.
    #[test]
    fn the_largest_number_is_kept() {
        assert_eq!(Scaled::of(u64::MAX), Scaled(u16::MAX));
        assert_eq!(Scaled::of(2_047).value(), 2_047);
        assert_eq!(Scaled::of(100_000_000).value(), 99_942_400);
    }
}
