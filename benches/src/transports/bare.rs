//! AF_XDP with nothing on top, at both ends of a link.

use crate::rig::{Namespace, mac_bytes};
use common::sys::monotonic;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;
use common::xdp::{Port, PortOptions, Role, Umem, frames_needed, open_port};
use std::os::fd::{AsFd, BorrowedFd};

/// Descriptors of each ring.
const RING: u32 = 2048;

/// Packets that are handled at once.
const BATCH: usize = 64;

/// Where a frame says its kind: in the payload.
const KIND: usize = 40;

/// Bytes of a frame.
pub(super) const FRAME: usize = 64;

/// One end of the link.
pub(super) struct Bare {
    port: Port,
    pool: FramePool,
    /// What is sent: addresses, and a type that neither kernel nor switch knows.
    frame: [u8; FRAME],
    batch: Vec<Frame>,
}

impl Bare {
    /// Both ends of a link.
    pub(super) fn pair(namespaces: &[Namespace; 2], link: &str) -> Result<[Self; 2], String> {
        let [near, far] = namespaces;
        Ok([Self::new(near, far, link)?, Self::new(far, near, link)?])
    }

    fn new(own: &Namespace, other: &Namespace, link: &str) -> Result<Self, String> {
        let umem = Umem::new(frames_needed(1, RING, 1, 0), RING).map_err(|e| e.to_string())?;
        let options = PortOptions::new(Role::Switch);
        let open = || open_port(&umem, link, &options).map_err(|error| error.to_string());
        let port = own.inside(open)?;
        let mut frame = [0; FRAME];
        frame[..6].copy_from_slice(&mac_bytes(&other.mac(link)?));
        frame[6..12].copy_from_slice(&mac_bytes(&own.mac(link)?));
        // An IPv4 packet, which the steering program gives to the socket whatever it says.
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        Ok(Self {
            pool: FramePool::new(umem.region().clone()),
            port,
            frame,
            batch: Vec::with_capacity(BATCH),
        })
    }

    /// Frames that are sent from now on are of this kind, 0 before.
    pub(super) fn set_kind(&mut self, kind: u8) {
        self.frame[KIND] = kind;
    }

    /// Sends up to `count` frames, as many as there is room for; returns how many.
    pub(super) fn send(&mut self, count: usize) -> usize {
        let queue = &mut self.port.queues[0];
        let room = queue.transmit_room(&mut self.pool).min(count).min(BATCH);
        for _ in 0..room {
            self.batch.extend(self.pool.take_filled(&self.frame));
        }
        let sent = queue.transmit(&mut self.batch);
        self.batch.drain(..).for_each(|frame| self.pool.give(frame));
        queue.flush(&mut self.pool, monotonic());
        sent
    }

    /// Takes what has arrived; returns how many frames.
    pub(super) fn receive(&mut self) -> usize {
        self.receive_kinds(|_| {})
    }

    /// The same; `each` is told the kind of each frame.
    pub(super) fn receive_kinds(&mut self, mut each: impl FnMut(u8)) -> usize {
        let queue = &mut self.port.queues[0];
        let count = queue.receive(&mut self.pool, &mut self.batch, BATCH);
        for frame in self.batch.drain(..) {
            each(frame.bytes()[KIND]);
            self.pool.give(frame);
        }
        // What was sent comes back, and a kick that did not suffice is repeated.
        queue.flush(&mut self.pool, monotonic());
        count
    }
}

impl AsFd for Bare {
    /// Readable when something has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.queues[0].as_fd()
    }
}
