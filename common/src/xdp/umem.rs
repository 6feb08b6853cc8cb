//! The packet memory of a daemon, registered with the kernel.
//!
//! One UMEM serves every port and every queue (XDP_SHARED_UMEM), so that a frame goes from the
//! receive ring of one port to the transmit ring of another without a copy. How many frames it
//! needs is a sum of named holders: [`frames_needed`].
//!
//! The kernel binds later sockets to the UMEM by way of the socket that was bound first: its
//! anchor, on a device that carries nothing for it.

#![allow(unsafe_code, reason = "sockets and memory; see each SAFETY")]

use super::anchor::anchor;
use super::error::XdpError;
use super::frame::{Frame, Region, TRADE};
use super::limits::{CHUNK, FILL_FACTOR, HEADROOM, RING_MAX, RING_MIN, multi_buffer};
use super::ring::Rings;
use crate::sys::{MemlockError, memlock_limit, raise_memlock};
use std::fmt;
use std::io;
use std::mem::size_of_val;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use xsk_rs::config::{
    BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig,
};
use xsk_rs::{CompQueue, FillQueue, RxQueue, TxQueue};

/// Ports' queues of one daemon that may be open at a time.
pub const QUEUES_MAX: u16 = u16::MAX / 2 - 1;

/// Frames that the kernel may hold for one queue with receive and transmit rings of so many
/// descriptors.
pub const fn frames_per_queue(receive: u32, transmit: u32) -> u32 {
    // On the fill ring; on the receive ring, taken from there; taken for transmission and not
    // completed (transmit ring and completion ring together).
    FILL_FACTOR * receive + receive + transmit
}

/// Frames that a daemon needs: `queues` queues with rings of `ring` descriptors, `workers` workers,
/// and `engine` frames that its engine may hold (queued, in reassembly, under way between workers).
pub const fn frames_needed(queues: u32, ring: u32, workers: u32, engine: u32) -> u32 {
    queues * frames_per_queue(ring, ring) + frames_beside_rings(workers, engine)
}

/// Frames that a daemon needs beside those of its queues: as [`frames_needed`].
pub const fn frames_beside_rings(workers: u32, engine: u32) -> u32 {
    workers * WORKER_POOL + engine
}

/// Frames that a worker's pool may hold before it gives some away, and the batch in its hands.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a constant below a thousand"
)]
const WORKER_POOL: u32 = (super::frame::POOL_FULL + 4 * TRADE) as u32;

/// Nobody in the kernel holds the frame.
const HOME: u16 = 0;

/// Added to the number of a queue that holds a frame by two descriptors.
const TWICE: u16 = 1 << 15;

/// How a loan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The frame is back.
    Home,
    /// The kernel still has the other part of it.
    Half,
    /// There was none.
    Unknown,
}

/// Chunks of a frame that holds a packet of RoCEv2 of any length.
const LONG: u16 = 2;

const _: () = assert!(CHUNK.is_power_of_two() && LONG.is_power_of_two());

/// Which queue's rings hold a frame, for each frame. Checks what the kernel hands back, and finds
/// what it still held when a socket is closed.
pub(super) struct Holders(Box<[AtomicU16]>);

impl Holders {
    fn new(frames: u32) -> Self {
        Self((0..frames).map(|_| AtomicU16::new(HOME)).collect())
    }

    /// Notes that the rings of `queue` hold `frame` from now on.
    #[inline]
    pub(super) fn lend(&self, frame: &Frame, queue: u16) {
        self.0[frame.index() as usize].store(queue, Ordering::Relaxed);
    }

    /// Notes that the rings of `queue` hold `frame` by two descriptors.
    pub(super) fn lend_twice(&self, frame: &Frame, queue: u16) {
        self.0[frame.index() as usize].store(queue | TWICE, Ordering::Relaxed);
    }

    /// Ends the loan of frame `index` to `queue`, or that of a part of it.
    #[inline]
    pub(super) fn end(&self, index: u64, queue: u16) -> Ended {
        let holder = usize::try_from(index)
            .ok()
            .and_then(|index| self.0.get(index));
        let Some(holder) = holder else {
            return Ended::Unknown;
        };
        match holder.load(Ordering::Relaxed) {
            number if number == queue => {
                holder.store(HOME, Ordering::Relaxed);
                Ended::Home
            }
            number if number == queue | TWICE => {
                holder.store(queue, Ordering::Relaxed);
                Ended::Half
            }
            _ => Ended::Unknown,
        }
    }

    /// Ends every loan of frame `index`.
    fn bring_home(&self, index: u32) {
        self.0[index as usize].store(HOME, Ordering::Relaxed);
    }

    /// Indices of the frames that the rings of `queue` hold.
    fn held_by(&self, queue: u16) -> impl Iterator<Item = u32> {
        (0..).zip(&self.0).filter_map(move |(index, holder)| {
            (holder.load(Ordering::Relaxed) & !TWICE == queue).then_some(index)
        })
    }
}

/// A UMEM as xsk-rs has it, with the descriptors of its frames.
type Registered = (xsk_rs::Umem, Vec<xsk_rs::FrameDesc>);

/// The anchor's halves as xsk-rs has them. Dropping all closes the socket.
struct Anchor {
    transmit: TxQueue,
    _receive: RxQueue,
    _rings: Option<(FillQueue, CompQueue)>,
}

struct Shared {
    _xsk: xsk_rs::Umem,
    anchor: Mutex<Anchor>,
    holders: Arc<Holders>,
    /// Numbers of queues that may be given out again.
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    highest: u16,
    free: Vec<u16>,
}

/// Handle on the UMEM of a daemon. Clones are the same memory, which lives until every clone, queue
/// and frame is gone.
#[derive(Clone)]
pub struct Umem {
    region: Arc<Region>,
    shared: Arc<Shared>,
    ring: u32,
}

impl Umem {
    /// Allocates `frames` frames (see [`frames_needed`]) and registers them. The rings of every
    /// port will have `ring` descriptors, if it asks for no others.
    ///
    /// # Errors
    /// When `ring` is not a power of two from [`RING_MIN`] to [`RING_MAX`], and when the kernel
    /// refuses, above all because too little memory may be locked.
    pub fn new(frames: u32, ring: u32) -> Result<Self, XdpError> {
        Self::of_chunks(1, frames, ring)
    }

    /// The same with frames of two chunks where the kernel carries packets of several: what is sent
    /// from one may be twice as long, and what is received can be
    /// [gathered](super::frame::FramePool::gather) in one.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn with_long_frames(frames: u32, ring: u32) -> Result<Self, XdpError> {
        Self::of_chunks(if multi_buffer() { LONG } else { 1 }, frames, ring)
    }

    fn of_chunks(chunks: u16, frames: u32, ring: u32) -> Result<Self, XdpError> {
        if !ring.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&ring) {
            return Err(XdpError::Ring(ring));
        }
        let frame_len = chunks * CHUNK;
        let bytes = u64::from(frames) * u64::from(frame_len);
        // Root and CAP_IPC_LOCK need no limit, so only the registration itself tells.
        let _ = raise_memlock(bytes);
        let count = frames.saturating_mul(u32::from(chunks));
        let count = NonZeroU32::new(count).ok_or_else(|| {
            XdpError::Umem(io::Error::new(io::ErrorKind::InvalidInput, "no frames"))
        })?;
        let register = || {
            xsk_rs::Umem::new(umem_config(ring), count, false).map_err(|error| {
                match os_error(&error) {
                    // What xdp_umem_account_pages answers above RLIMIT_MEMLOCK.
                    Some(libc::ENOBUFS | libc::EPERM) if memlock_limit() < bytes => {
                        XdpError::Memlock(MemlockError {
                            needed: bytes,
                            limit: memlock_limit(),
                        })
                    }
                    _ => XdpError::Umem(io_error(&error)),
                }
            })
        };
        let bind = |(xsk, _): &Registered, device: &str| bind_anchor(xsk, device);
        let ((xsk, descriptors), anchor) = anchor(register, bind, XdpError::Anchor)?;
        let first = &descriptors[0];
        // SAFETY: the descriptor is of this UMEM and nothing has been received or filled yet.
        let data = unsafe { xsk.data(first) }.contents().as_ptr();
        // The memory came from mmap, outside of what the compiler tracks, so a pointer to all of it
        // may be made from its address.
        let base =
            std::ptr::with_exposed_provenance_mut::<u8>(data.expose_provenance() - first.addr());
        let base = NonNull::new(base).expect("mmap never maps address zero");
        let shared = Arc::new(Shared {
            _xsk: xsk,
            anchor: Mutex::new(anchor),
            holders: Arc::new(Holders::new(frames)),
            numbers: Mutex::new(Numbers::default()),
        });
        // SAFETY: xsk-rs mapped `frames × chunks` chunks of CHUNK bytes at `base`, which live as
        // long as `shared` and which nothing of it touches but by our descriptors.
        let region =
            unsafe { Region::new(base, frames, frame_len, HEADROOM, Box::new(shared.clone())) };
        Ok(Self {
            region,
            shared,
            ring,
        })
    }

    /// The memory, to make [`FramePool`](super::frame::FramePool)s of.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Descriptors on the transmit ring of each queue, and on the receive ring of those that ask
    /// for no other number.
    pub fn ring(&self) -> u32 {
        self.ring
    }

    pub(super) fn holders(&self) -> &Arc<Holders> {
        &self.shared.holders
    }

    /// A number for a queue, in use by no other.
    pub(super) fn take_number(&self) -> Option<u16> {
        let mut numbers = self.shared.numbers.lock().expect("never poisoned");
        numbers.free.pop().or_else(|| {
            (numbers.highest < QUEUES_MAX).then(|| {
                numbers.highest += 1;
                numbers.highest
            })
        })
    }

    /// Puts frames that the closed queue `number` held into the depot, and frees its number.
    ///
    /// # Safety
    /// The kernel no longer reads or writes frames for that queue.
    pub(super) unsafe fn reclaim(&self, number: u16) -> u32 {
        let mut pool = super::frame::FramePool::new(self.region.clone());
        let mut reclaimed = 0;
        for index in self.shared.holders.held_by(number) {
            self.shared.holders.bring_home(index);
            // SAFETY: the index is in the table, hence below the number of frames; its token was
            // given up when the frame was lent, and the loan ends here.
            pool.give(unsafe { self.region.frame(index) });
            reclaimed += 1;
        }
        self.shared
            .numbers
            .lock()
            .expect("never poisoned")
            .free
            .push(number);
        reclaimed
    }

    /// Opens an AF_XDP socket on a queue of the device with this index, with a receive ring of so
    /// many descriptors. The kernel binds a socket that shares a UMEM as the anchor was bound, and
    /// lets it ask for nothing of its own.
    pub(super) fn bind(
        &self,
        ifindex: u32,
        queue: u32,
        receive: u32,
    ) -> io::Result<(OwnedFd, Rings)> {
        // SAFETY: makes a descriptor, and touches no memory.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is new, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let rings = Rings::make(socket.as_fd(), receive, self.ring)?;
        let anchor = self.shared.anchor.lock().expect("never poisoned");
        let shared = anchor.transmit.fd().as_raw_fd();
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).expect("a small constant"),
            sxdp_flags: libc::XDP_SHARED_UMEM,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: u32::try_from(shared).expect("an open descriptor"),
        };
        let len = libc::socklen_t::try_from(size_of_val(&address)).expect("a small structure");
        // SAFETY: `address` is `len` readable bytes.
        let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        match result {
            0 => Ok((socket, rings)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

fn umem_config(ring: u32) -> UmemConfig {
    let size = |size| QueueSize::new(size).expect("a power of two");
    UmemConfig::builder()
        .frame_size(FrameSize::new(u32::from(CHUNK)).expect("a page"))
        .fill_queue_size(size(FILL_FACTOR * ring))
        .comp_queue_size(size(ring))
        .build()
        .expect("a page is a power of two and leaves room for packets")
}

fn bind_anchor(umem: &xsk_rs::Umem, ifname: &str) -> io::Result<Anchor> {
    let size = QueueSize::new(RING_MIN).map_err(|_| io::ErrorKind::InvalidInput)?;
    let interface: Interface = ifname.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let config = SocketConfig::builder()
        .rx_queue_size(size)
        .tx_queue_size(size)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(BindFlags::from_bits_retain(
            BindFlags::XDP_COPY.bits() | if multi_buffer() { libc::XDP_USE_SG } else { 0 },
        ))
        .build();
    // SAFETY: program loading is inhibited, which is what the function asks for.
    let (transmit, receive, rings) = unsafe { xsk_rs::Socket::new(config, umem, &interface, 0) }
        .map_err(|error| io_error(&error))?;
    Ok(Anchor {
        transmit,
        _receive: receive,
        _rings: rings,
    })
}

fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error)
}

fn io_error(error: &(dyn std::error::Error + 'static)) -> io::Error {
    match os_error(error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    }
}
