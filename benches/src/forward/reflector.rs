//! The reflector: the AF_XDP layer of this project with nothing on top.

use crate::rig::mac_bytes;
use common::sys::{PollSet, monotonic};
use common::time::Span;
use common::xdp::frame::FramePool;
use common::xdp::queue::QueueIo;
use common::xdp::{PortOptions, Role, Umem, frames_needed, open_port};
use std::os::fd::AsFd;

/// Descriptors of each ring.
const RING: u32 = 2048;

/// Packets that are handled at once: as many as switchd.
const BATCH: usize = switchd::limits::BATCH;

/// Forwards between `p0` and `p1` of its namespace until it is terminated. What leaves `p1` goes
/// from the station `source` to the station `destination`.
///
/// # Errors
/// When the ports do not open.
pub fn reflect(source: &str, destination: &str) -> Result<(), String> {
    let addresses = [mac_bytes(destination), mac_bytes(source)].concat();
    let frames = frames_needed(2, RING, 1, 0);
    let umem = Umem::new(frames, RING).map_err(|error| error.to_string())?;
    let open = |name| {
        open_port(&umem, name, &PortOptions::new(Role::Switch)).map_err(|error| error.to_string())
    };
    let mut ports = [open("p0")?, open("p1")?];
    println!("{}, {}", ports[0].mode, ports[1].mode);
    let mut pool = FramePool::new(umem.region().clone());
    let mut batch = Vec::with_capacity(BATCH);
    let mut sleep = PollSet::new();
    loop {
        let mut work = 0;
        let now = monotonic();
        for (from, to) in [(0, 1), (1, 0)] {
            let room = ports[to].queues[0].transmit_room(&mut pool).min(BATCH);
            work += ports[from].queues[0].receive(&mut pool, &mut batch, room);
            for frame in &mut batch {
                if let Some(head) = frame.bytes_mut().get_mut(..12) {
                    head.copy_from_slice(&addresses);
                }
            }
            ports[to].queues[0].transmit(&mut batch);
            ports[to].queues[0].flush(&mut pool, now);
        }
        if work == 0 {
            let fds = ports.iter().map(|port| port.queues[0].as_fd());
            sleep
                .wait(fds, Span::from_millis(1))
                .map_err(|error| error.to_string())?;
        }
    }
}
