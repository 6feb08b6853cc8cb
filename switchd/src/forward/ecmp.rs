//! \[4\] The hash of a flow, which names its bucket in a group.
//!
//! Two rounds of a 64 × 64 → 128 bit multiplication whose halves are folded together mix every
//! input bit into every output bit. The seed enters before the first, so switches with different
//! seeds have unrelated functions and do not polarise.

use crate::packet::{Parsed, Version};
use crate::tables::Hashing;
use common::wire::ip::{protocol, v4, v6};
use common::wire::udp;

/// SCTP has its ports where TCP and UDP have theirs (RFC 9260 §3.1).
const SCTP: u8 = 132;
/// The destination queue pair lies in bytes 5 to 7 of the BTH.
const BTH_DEST_QP: usize = 5;

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

/// The bytes at `at` as a number; zero where the frame ends before them.
#[inline]
fn word<const N: usize>(frame: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(found) = frame.get(at..at + N) {
        bytes[..N].copy_from_slice(found);
    }
    u64::from_le_bytes(bytes)
}

/// The hash of the flow that a packet belongs to. The same for all packets of a flow, also for its
/// fragments, of which it covers the addresses only.
#[inline]
pub fn flow_hash(frame: &[u8], parsed: &Parsed, hashing: &Hashing) -> u32 {
    let network = usize::from(parsed.network);
    let (addresses, label) = match parsed.version {
        Version::V4 => (
            fold(
                word::<8>(frame, network + v4::field::SRC) ^ ODD[0],
                hashing.seed ^ ODD[1],
            ),
            0,
        ),
        Version::V6 => {
            let src = network + v6::field::SRC;
            let high = fold(
                word::<8>(frame, src) ^ ODD[0],
                word::<8>(frame, src + 8) ^ hashing.seed ^ ODD[1],
            );
            let low = fold(
                word::<8>(frame, src + 16) ^ ODD[1],
                word::<8>(frame, src + 24) ^ ODD[2],
            );
            let label = if hashing.flow_label {
                word::<4>(frame, network) & 0xffff_0f00
            } else {
                0
            };
            (fold(high ^ ODD[2], low ^ ODD[0]), label)
        }
    };
    let upper = if parsed.is_fragment {
        0
    } else {
        upper(frame, parsed, hashing)
    };
    let mixed = fold(addresses ^ label, upper ^ ODD[2]);
    let mixed = fold(mixed ^ hashing.seed, ODD[0]);
    // The upper half is the better mixed one.
    (mixed >> 32) as u32
}

/// The hash of the connection that a RoCEv2 packet belongs to, in its direction: that of all of its
/// sub-paths, whose entropy values differ.
#[inline]
pub fn connection_hash(frame: &[u8], parsed: &Parsed, hashing: &Hashing) -> u32 {
    let hashing = Hashing {
        ports: false,
        flow_label: false,
        destination_qp: true,
        ..*hashing
    };
    flow_hash(frame, parsed, &hashing)
}

#[inline]
fn upper(frame: &[u8], parsed: &Parsed, hashing: &Hashing) -> u64 {
    let transport = usize::from(parsed.transport);
    if transport == 0 || !matches!(parsed.protocol, protocol::TCP | protocol::UDP | SCTP) {
        return u64::from(parsed.protocol) << 56;
    }
    let ports = word::<4>(frame, transport);
    let mut upper = 0;
    if hashing.ports {
        upper = ports | u64::from(parsed.protocol) << 56;
    }
    let roce = u64::from(udp::ROCE_PORT.swap_bytes()) << 16;
    if hashing.destination_qp && parsed.protocol == protocol::UDP && ports & 0xffff_0000 == roce {
        upper ^= word::<3>(frame, transport + udp::HEADER_LEN + BTH_DEST_QP) << 32;
    }
    upper
}
