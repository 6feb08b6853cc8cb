//! AF_XDP with nothing on top, at both ends of a link.

use crate::rig::{Namespace, mac_bytes};
use common::sys::monotonic;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;
use common::xdp::{Port, PortOptions, Role, Umem, frames_needed, open_port};

/// Descriptors of each ring.
const RING: u32 = 2048;

/// Packets that are handled at once.
const BATCH: usize = 64;

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
    /// Both ends of the link `x0`.
    pub(super) fn pair(namespaces: &[Namespace; 2]) -> Result<[Self; 2], String> {
        let [near, far] = namespaces;
        Ok([Self::new(near, far)?, Self::new(far, near)?])
    }

    fn new(own: &Namespace, other: &Namespace) -> Result<Self, String> {
        let umem = Umem::new(frames_needed(1, RING, 1, 0), RING).map_err(|e| e.to_string())?;
        let options = PortOptions::new(Role::Switch);
        let open = || open_port(&umem, "x0", &options).map_err(|error| error.to_string());
        let port = own.inside(open)?;
        let mut frame = [0; FRAME];
        frame[..6].copy_from_slice(&mac_bytes(&other.mac("x0")?));
        frame[6..12].copy_from_slice(&mac_bytes(&own.mac("x0")?));
        // An IPv4 packet, which the steering program gives to the socket whatever it says.
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        Ok(Self {
            pool: FramePool::new(umem.region().clone()),
            port,
            frame,
            batch: Vec::with_capacity(BATCH),
        })
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
        let queue = &mut self.port.queues[0];
        let count = queue.receive(&mut self.pool, &mut self.batch, BATCH);
        self.batch.drain(..).for_each(|frame| self.pool.give(frame));
        // What was sent comes back, and a kick that did not suffice is repeated.
        queue.flush(&mut self.pool, monotonic());
        count
    }
}
