//! The invariant CRC (IBA volume 1, 7.8.1 and annex A17.3.3): covers what no switch may change.
//!
//! It is the CRC-32 of Ethernet over eight bytes of ones (in place of InfiniBand's local header),
//! the IP packet and all that follows up to the ICRC, with the fields that do change on the way
//! replaced by ones: ToS, TTL and checksum of IPv4; traffic class, flow label and hop limit of
//! IPv6; the UDP checksum; the byte of the BTH with FECN and BECN. It is stored least significant
//! byte first.

use super::super::ip::{v4, v6};
use super::super::{Error, Result, need, udp};
use super::Bth;
use crc32fast::Hasher;
use std::ops::Range;

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;

/// CRC-32 of eight bytes of ones.
const SEED: u32 = 0x2144_df1c;

/// Longest run of headers with masked fields: IPv4 with all options, UDP, BTH.
const MASKED_MAX: usize = 60 + udp::HEADER_LEN + Bth::LEN;

/// The ICRC of `packet`, an IP packet from its first byte to the last byte before the ICRC. Its
/// length fields already count the ICRC.
///
/// # Errors
/// If it is not IPv4 or IPv6, or shorter than IP, UDP and BTH; extension headers of IPv6 are not
/// part of RoCEv2 and are taken for UDP.
#[inline]
pub fn compute(packet: &[u8]) -> Result<u32> {
    compute_sparse(packet, 0..0)
}

/// The ICRC of `packet` as it would be if its bytes `zeros` were zero; they are not looked at. For
/// simulations, whose payload has a length and no bytes: the result is that of a real packet with a
/// payload of zeros, and takes the time of its headers.
///
/// # Errors
/// As [`compute`], or if `zeros` is not inside `packet` and behind its BTH; empty ranges always
/// are.
#[inline]
pub fn compute_sparse(packet: &[u8], zeros: Range<usize>) -> Result<u32> {
    let version = packet.first().map_or(0, |byte| byte >> 4);
    let ip_len = match version {
        4 => usize::from(packet[0] & 0xf) * 4,
        6 => v6::HEADER_LEN,
        _ => {
            return Err(Error::Field {
                header: "ip",
                field: "version",
                value: u32::from(version),
            });
        }
    };
    if ip_len < v4::HEADER_LEN {
        let value = u32::from(packet[0] & 0xf);
        return Err(Error::Field {
            header: "ipv4",
            field: "header length",
            value,
        });
    }
    let masked_len = ip_len + udp::HEADER_LEN + Bth::LEN;
    need("roce", packet, masked_len)?;
    let mut masked = [0; MASKED_MAX];
    let masked = &mut masked[..masked_len];
    masked.copy_from_slice(&packet[..masked_len]);
    if version == 4 {
        masked[v4::field::TOS] = 0xff;
        masked[v4::field::TTL] = 0xff;
        masked[v4::field::CHECKSUM..v4::field::CHECKSUM + 2].fill(0xff);
    } else {
        masked[0] |= 0x0f;
        masked[1..4].fill(0xff);
        masked[v6::field::HOP_LIMIT] = 0xff;
    }
    let udp_checksum = ip_len + udp::field::CHECKSUM;
    masked[udp_checksum..udp_checksum + 2].fill(0xff);
    masked[ip_len + udp::HEADER_LEN + 4] = 0xff;

    let mut hasher = Hasher::new_with_initial(SEED);
    hasher.update(masked);
    if zeros.is_empty() {
        hasher.update(&packet[masked_len..]);
        return Ok(hasher.finalize());
    }
    let (Some(before), Some(behind)) =
        (packet.get(masked_len..zeros.start), packet.get(zeros.end..))
    else {
        return Err(Error::Checksum { header: "icrc" });
    };
    hasher.update(before);
    let mut hasher = Hasher::new_with_initial(append_zeros(hasher.finalize(), zeros.len()));
    hasher.update(behind);
    Ok(hasher.finalize())
}

/// The polynomial of Ethernet's CRC-32, bits reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Longest run of zeros whose effect is tabulated: a payload of the greatest path MTU.
const RUN_MAX: usize = 4096;

/// By number of zero bytes: the factor by which they multiply a remainder, x^8n modulo the
/// polynomial.
static FACTORS: [u32; RUN_MAX + 1] = {
    let mut factors = [0; RUN_MAX + 1];
    // x^0; reflected, so the highest bit is the lowest power.
    factors[0] = 1 << 31;
    let mut n = 0;
    while n < RUN_MAX {
        let mut factor = factors[n];
        let mut bit = 0;
        while bit < 8 {
            factor = times_x(factor);
            bit += 1;
        }
        factors[n + 1] = factor;
        n += 1;
    }
    factors
};

const fn times_x(value: u32) -> u32 {
    (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg())
}

/// The product of two polynomials modulo that of the CRC.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..u32::BITS).rev() {
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

/// The CRC of some bytes and `len` zero bytes behind them, from that of the bytes.
fn append_zeros(crc: u32, mut len: usize) -> u32 {
    // What is kept in a CRC is the inverse of the remainder.
    let mut remainder = !crc;
    while len > 0 {
        let run = len.min(RUN_MAX);
        remainder = multiply(FACTORS[run], remainder);
        len -= run;
    }
    !remainder
}

/// Checks the ICRC at the end of `packet`, an IP packet from its first byte to its last. Its bytes
/// `zeros` count as zero: see [`compute_sparse`].
///
/// # Errors
/// If the packet is too short or not IP, or the ICRC is not that of the packet.
#[inline]
pub fn verify_sparse(packet: &[u8], zeros: Range<usize>) -> Result<()> {
    need("icrc", packet, ICRC_LEN)?;
    let (covered, icrc) = packet.split_at(packet.len() - ICRC_LEN);
    if compute_sparse(covered, zeros)?.to_le_bytes() == *icrc {
        Ok(())
    } else {
        Err(Error::Checksum { header: "icrc" })
    }
}
