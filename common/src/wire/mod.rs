//! Wire formats: bytes to headers and back, one file a protocol.
//!
//! ```text
//!   ethernet ── vlan ── csig,─┬─ ip ─┬─ udp ── roce (bth, reth, aeth, deth, atomic, immdt, mpeh,
//!                      int    │      │           │     sack, icrc)
//!                             │      │           ├── cm
//!                             │      │           └── compute
//!                             │      └─ icmp
//!                             ├─ arp
//!                             ├─ schedule
//!                             └─ pause
//! ```
//!
//! A view (`ethernet::Frame`, `ip::v4::Packet`, …) wraps bytes. `new_checked` compares their length
//! once with what the header says of itself; after that no accessor panics. A length that the
//! packet claims is believed only within the bytes that are there. Setters need `T: AsMut<[u8]>`
//! and must not change a length field to more than was checked.
//!
//! Views say what the bytes are, not whether they make sense to a host: policy (martians, TTL,
//! options) is the reader's. All multi-byte fields are in network order unless their page says
//! otherwise; the invariant CRC is the exception.

pub mod arp;
pub mod checksum;
pub mod cm;
pub mod compute;
pub mod csig;
pub mod ethernet;
pub mod icmp;
pub mod int;
pub mod ip;
pub mod pause;
pub mod roce;
pub mod schedule;
pub mod udp;
pub mod vlan;

pub use ethernet::Mac;

/// Why bytes are not the header that they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Fewer bytes than the header needs.
    #[error("{header}: {needed} bytes needed, {found} found")]
    Truncated {
        /// Which header.
        header: &'static str,
        /// Its least length, by its own fields where they say more than the standard's minimum.
        needed: usize,
        /// What is there.
        found: usize,
    },
    /// A field has a value that the header cannot have.
    #[error("{header}: {field} is {value}")]
    Field {
        /// Which header.
        header: &'static str,
        /// Which field.
        field: &'static str,
        /// What stands there.
        value: u32,
    },
    /// A checksum or CRC does not match the bytes.
    #[error("{header}: wrong checksum")]
    Checksum {
        /// Which header.
        header: &'static str,
    },
}

/// Shorthand for results of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// Refuses `bytes` that are shorter than `needed`.
#[inline]
pub(crate) fn need(header: &'static str, bytes: &[u8], needed: usize) -> Result<()> {
    if bytes.len() < needed {
        return Err(Error::Truncated {
            header,
            needed,
            found: bytes.len(),
        });
    }
    Ok(())
}

/// The `N` bytes at `at`, which the caller has checked to be there.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// A 16-bit field.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// A 24-bit field.
#[inline]
pub(crate) fn be24(bytes: &[u8], at: usize) -> u32 {
    let [a, b, c] = array(bytes, at);
    u32::from_be_bytes([0, a, b, c])
}

/// A 32-bit field.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// A 64-bit field.
#[inline]
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// Writes a field of `N` bytes.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Writes the low 24 bits of `value`.
#[inline]
pub(crate) fn put24(bytes: &mut [u8], at: usize, value: u32) {
    let [_, a, b, c] = value.to_be_bytes();
    put(bytes, at, [a, b, c]);
}
