//! The invariant CRC (IBA volume 1, 7.8.1 and annex A17.3.3): covers what no switch may change.
//!
//! It is the CRC-32 of Ethernet over eight bytes of ones (in place of InfiniBand's local header), the
//! IP packet and all that follows up to the ICRC, with the fields that do change on the way replaced
//! by ones: ToS, TTL and checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP
//! checksum; the byte of the BTH with FECN and BECN. It is stored least significant byte first.

use super::super::ip::{v4, v6};
use super::super::{Error, Result, need, udp};
use super::Bth;
use crc32fast::Hasher;

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;

/// CRC-32 of eight bytes of ones.
const SEED: u32 = 0x2144_df1c;

/// Longest run of headers with masked fields: IPv4 with all options, UDP, BTH.
const MASKED_MAX: usize = 60 + udp::HEADER_LEN + Bth::LEN;

/// The ICRC of `packet`, an IP packet from its first byte to the last byte before the ICRC. Its length
/// fields already count the ICRC.
///
/// # Errors
/// If it is not IPv4 or IPv6, or shorter than IP, UDP and BTH; extension headers of IPv6 are not
/// part of RoCEv2 and are taken for UDP.
#[inline]
pub fn compute(packet: &[u8]) -> Result<u32> {
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
    hasher.update(&packet[masked_len..]);
    Ok(hasher.finalize())
}

/// Checks the ICRC at the end of `packet`, an IP packet from its first byte to its last.
///
/// # Errors
/// If the packet is too short or not IP, or the ICRC is not that of the packet.
#[inline]
pub fn verify(packet: &[u8]) -> Result<()> {
    need("icrc", packet, ICRC_LEN)?;
    let (covered, icrc) = packet.split_at(packet.len() - ICRC_LEN);
    if compute(covered)?.to_le_bytes() == *icrc {
        Ok(())
    } else {
        Err(Error::Checksum { header: "icrc" })
    }
}
