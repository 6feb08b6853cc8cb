//! Sizes and bounds of frames, rings and ports.

#![allow(unsafe_code, reason = "a socket that asks; see each SAFETY")]

use super::mode::{Hook, Mode};
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Bytes of a chunk: one page, the most that the kernel allows without huge pages.
pub const CHUNK: u16 = 4096;

/// Bytes that the kernel keeps free in front of a received packet (XDP_PACKET_HEADROOM).
pub const HEADROOM: u16 = 256;

/// Longest packet that a chunk holds, from the destination address to the end of the payload.
/// Longer ones lie in several.
pub const PACKET_MAX: u16 = CHUNK - HEADROOM;

/// The highest MTU where packets may lie in several chunks: what switches call jumbo frames.
pub const JUMBO_MTU: u32 = 9216;

/// Longest packet in several chunks.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a constant below ten thousand"
)]
pub const JUMBO_MAX: u16 = (JUMBO_MTU + LINK_HEADERS) as u16;

/// Chunks that the longest packet takes.
pub const PIECES_MAX: u32 = (JUMBO_MAX as u32).div_ceil(PACKET_MAX as u32);

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

/// The highest MTU that AF_XDP carries in this mode on a device of this driver, by the kernel that
/// runs.
pub fn mtu_limit(mode: Mode, driver: &str) -> u32 {
    if multi_buffer() {
        JUMBO_MTU
    } else {
        linear_mtu_limit(mode, driver)
    }
}

/// Whether the kernel hands packets over in several chunks, and takes them so (XDP_USE_SG, Linux
/// 6.6).
pub fn multi_buffer() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // Whoever may not ask opens no port either.
        let answer = knows_multi_buffer().unwrap_or(true);
        if !answer {
            tracing::warn!(
                "this kernel's AF_XDP carries no jumbo frames (Linux 6.6 and later do): MTUs are \
                 limited to {} on veth, to {} on other devices",
                linear_mtu_limit(Mode::NativeCopy, "veth"),
                linear_mtu_limit(Mode::NativeZeroCopy, "")
            );
        }
        answer
    })
}

/// Asks for a socket with it on a device that does not exist: a kernel that knows what is asked for
/// says that there is no such device. `None`: this process may have no such socket.
fn knows_multi_buffer() -> Option<bool> {
    // SAFETY: makes a descriptor, and touches no memory.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return None;
    }
    // SAFETY: it is new, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = libc::sockaddr_xdp {
        sxdp_family: u16::try_from(libc::AF_XDP).expect("a small constant"),
        sxdp_flags: libc::XDP_USE_SG,
        sxdp_ifindex: i32::MAX.unsigned_abs(),
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let len = libc::socklen_t::try_from(size_of_val(&address)).expect("a small structure");
    // SAFETY: `address` is `len` readable bytes.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    Some(result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENODEV))
}

/// The highest MTU with which every packet fits in a chunk.
pub fn linear_mtu_limit(mode: Mode, driver: &str) -> u32 {
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
        assert_eq!(linear_mtu_limit(Mode::NativeCopy, "veth"), 3506);
        assert_eq!(linear_mtu_limit(Mode::GenericCopy, "veth"), 3818);
        assert_eq!(linear_mtu_limit(Mode::NativeZeroCopy, "ice"), 3818);
        assert_eq!((JUMBO_MAX, PIECES_MAX), (9238, 3));
    }
}
