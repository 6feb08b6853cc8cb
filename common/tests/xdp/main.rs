//! The AF_XDP boundary against the real kernel, on veth pairs in network namespaces.
//!
//! ```text
//!   traffic   packets in and out, on every queue, under pressure, and every frame home again
//!   jumbo     packets in several chunks
//!   opening   modes, limits, occupied devices, processes that were killed
//!   steering  which packets are the kernel's
//!   punting   which are its own though they are for others
//!   bridging  which frames of a bridge's port are the daemon's
//!   csig      packets with congestion signals
//!   debian    some of these by the kernel of Debian 12
//! ```

mod bridging;
mod csig;
mod debian;
mod jumbo;
mod namespace;
mod opening;
mod punting;
mod steering;
mod traffic;

use common::sys::{PollSet, monotonic};
use common::time::Span;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;
use common::xdp::{AfXdpQueue, Port, PortOptions, Role, Umem, frames_needed, open_port};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const RING: u32 = 128;

fn umem(queues: u32) -> Umem {
    Umem::new(frames_needed(queues, RING, 1, 256), RING).expect("a UMEM")
}

fn open(umem: &Umem, ifname: &str) -> Port {
    open_port(umem, ifname, &PortOptions::new(Role::Switch)).expect("the port opens")
}

/// An Ethernet frame for `destination` with IPv4/UDP inside, padded to `len` bytes.
fn packet(destination: [u8; 6], len: usize) -> Vec<u8> {
    let mut packet = destination.to_vec();
    packet.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    packet.extend([
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    packet.extend([0xc0, 0, 0x12, 0xb7, 0, 26, 0, 0]);
    packet.resize(len, 0);
    packet
}

/// How long anything in these tests may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends `packets` on `queue` and waits until all have left.
fn send(queue: &mut AfXdpQueue, pool: &mut FramePool, packets: &[Vec<u8>]) {
    let mut batch: Vec<Frame> = packets
        .iter()
        .map(|packet| pool.take_chain(packet).expect("free frames"))
        .collect();
    let end = Instant::now() + PATIENCE;
    while !batch.is_empty() || queue.in_flight() > 0 {
        queue.transmit(&mut batch);
        queue.flush(pool, monotonic());
        assert!(Instant::now() < end, "packets did not leave");
    }
}

/// Receives `count` packets; fails when they do not come.
fn receive(queue: &mut AfXdpQueue, pool: &mut FramePool, count: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut batch = Vec::new();
    let mut sleep = PollSet::new();
    let end = Instant::now() + PATIENCE;
    while packets.len() < count {
        assert!(Instant::now() < end, "{} of {count} arrived", packets.len());
        if queue.receive(pool, &mut batch, 64) == 0 {
            sleep.wait([queue.as_fd()], Span::from_millis(100)).unwrap();
        }
        for frame in batch.drain(..) {
            packets.push(frame.pieces().flatten().copied().collect());
            pool.give(frame);
        }
    }
    packets
}
