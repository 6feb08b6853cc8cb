//! Sizes and bounds of frames, rings and ports.

use super::mode::{Hook, Mode};

/// Bytes of a chunk: one page, the most that the kernel allows without huge pages.
pub const CHUNK: u16 = 4096;

/// Bytes that the kernel keeps free in front of a received packet (XDP_PACKET_HEADROOM).
pub const HEADROOM: u16 = 256;

/// Longest packet that a chunk holds, from the destination address to the end of the payload.
pub const PACKET_MAX: u16 = CHUNK - HEADROOM;

/// Smallest ring: the kernel sends at least this much for each call (TX_BATCH_SIZE).
pub const RING_MIN: u32 = 32;

/// Largest ring. 2^15 descriptors on each of the rings of one queue are 0.5 GiB of frames.
pub const RING_MAX: u32 = 32_768;

/// The fill ring is this many times the receive ring: when the receive ring is full the kernel
/// still has as many buffers again, and never stops for want of one.
pub const FILL_FACTOR: u32 = 2;

const _: () = assert!(RING_MIN.is_power_of_two() && RING_MAX.is_power_of_two());
const _: () = assert!(FILL_FACTOR.is_power_of_two());

/// Queues of one device that the program has room for (`QUEUES_MAX` in steer.bpf.c).
pub const QUEUES_MAX: u32 = 256;

/// Bytes of an Ethernet header and of two VLAN tags, which the MTU does not count.
const LINK_HEADERS: u32 = 14 + 2 * 4;

/// What the kernel keeps at the end of the page of a veth frame (skb_shared_info, rounded to a
/// cache line).
const SHARED_INFO: u32 = 320;

/// The highest MTU with which every packet fits in a frame.
pub fn mtu_limit(mode: Mode, driver: &str) -> u32 {
    let chunk = u32::from(PACKET_MAX) - LINK_HEADERS;
    match (mode.hook(), driver) {
        // veth moves each packet to a page of its own for the program (veth_xdp_set checks this
        // same number against the other end).
        (Hook::Native, "veth") => {
            chunk.min(u32::from(CHUNK) - u32::from(HEADROOM) - SHARED_INFO - 14)
        }
        _ => chunk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_chunk() {
        assert_eq!(mtu_limit(Mode::NativeCopy, "veth"), 3506);
        assert_eq!(mtu_limit(Mode::GenericCopy, "veth"), 3818);
        assert_eq!(mtu_limit(Mode::NativeZeroCopy, "ice"), 3818);
    }
}
