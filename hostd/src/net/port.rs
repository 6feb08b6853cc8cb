//! The queues of one interface, all of which the worker owns.

use common::time::Time;
use common::wire::Mac;
use common::wire::ethernet::{ethertype, field};
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;

/// Where the UDP source port stands in an IP packet, by the version of IP (IPv4 without options,
/// IPv6 without extension headers: what the engine builds).
const UDP_SOURCE_V4: usize = 20;
const UDP_SOURCE_V6: usize = 40;

/// Bytes between the addresses and the EtherType of a frame: none, or a CSIG tag.
const TAGS: [usize; 3] = [0, 4, 8];

/// The queues of an interface.
#[derive(Debug)]
pub struct NetPort<Q> {
    queues: Vec<Queue<Q>>,
    /// The queue to receive from first: each in turn.
    first: usize,
    /// Its Ethernet address.
    mac: Mac,
}

#[derive(Debug)]
struct Queue<Q> {
    io: Q,
    /// Packets to send that the queue has not taken yet.
    waiting: Vec<Frame>,
}

impl<Q: QueueIo> NetPort<Q> {
    /// The port with these queues, at least one.
    pub fn new(queues: Vec<Q>) -> Self {
        let queue = |io| Queue {
            io,
            waiting: Vec::with_capacity(256),
        };
        Self {
            queues: queues.into_iter().map(queue).collect(),
            first: 0,
            mac: Mac::default(),
        }
    }

    /// The same, with this Ethernet address.
    #[must_use]
    pub fn with_mac(mut self, mac: Mac) -> Self {
        self.mac = mac;
        self
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// How full the fullest of its receive rings is: places taken, and places.
    pub fn filled(&mut self) -> (usize, usize) {
        let filled = self.queues.iter_mut().map(|queue| queue.io.filled());
        let fuller =
            |a: (usize, usize), b: (usize, usize)| if b.0 * a.1 > a.0 * b.1 { b } else { a };
        filled.reduce(fuller).unwrap_or((0, 1))
    }

    /// Its queues.
    pub fn queues(&self) -> impl Iterator<Item = &Q> {
        self.queues.iter().map(|queue| &queue.io)
    }

    /// A queue, so that a simulation can act as its device.
    pub fn queue_mut(&mut self, index: usize) -> &mut Q {
        &mut self.queues[index].io
    }

    /// Appends received packets to `batch`, at most `max`, and returns how many. A packet that came
    /// in several chunks is put together in one.
    pub fn receive(&mut self, pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let (count, before) = (self.queues.len(), batch.len());
        let mut received = 0;
        for step in 0..count {
            let index = (self.first + step) % count;
            received += self.queues[index].io.receive(pool, batch, max - received);
            if received >= max {
                break;
            }
        }
        self.first = (self.first + 1) % count;
        for frame in &mut batch[before..] {
            if frame.is_chained() {
                // One that is longer than any packet of RoCEv2 stays in pieces: it is not whole.
                pool.gather(frame);
            }
        }
        received
    }

    /// How many packets may be added, whatever queues they fall to.
    pub fn room(&mut self, pool: &mut FramePool) -> usize {
        let room = |queue: &mut Queue<Q>| {
            queue
                .io
                .transmit_room(pool)
                .saturating_sub(queue.waiting.len())
        };
        self.queues.iter_mut().map(room).min().unwrap_or(0)
    }

    /// Takes a packet to send, for which there is [`Self::room`]: [`Self::flush`] hands it to the
    /// device, and a pause that begins later does not concern it. A sub-path keeps to one queue, so
    /// its packets stay in order.
    pub fn add(&mut self, frame: Frame) {
        let index = entropy(frame.bytes()) % self.queues.len();
        self.queues[index].waiting.push(frame);
    }

    /// Hands the packets to the kernel, and collects the frames of those that are sent.
    pub fn flush(&mut self, pool: &mut FramePool, now: Time) {
        for queue in &mut self.queues {
            if !queue.waiting.is_empty() {
                queue.io.transmit(&mut queue.waiting);
            }
            queue.io.flush(pool, now);
        }
    }

    /// Whether packets wait that a queue had no room for.
    pub fn is_behind(&self) -> bool {
        self.queues.iter().any(|queue| !queue.waiting.is_empty())
    }

    /// Whether the kernel has packets that it has not sent, or whose frames were not collected.
    pub fn is_sending(&self) -> bool {
        self.queues.iter().any(|queue| queue.io.in_flight() > 0)
    }

    /// Gives the frames back that were never sent: at the end.
    pub fn abandon(&mut self, pool: &mut FramePool) {
        for queue in &mut self.queues {
            queue.waiting.drain(..).for_each(|frame| pool.give(frame));
        }
    }
}

/// What tells the sub-paths of a connection apart: the UDP source port (HT-12).
fn entropy(packet: &[u8]) -> usize {
    let place = |tag: usize| {
        let start = field::ETHERTYPE + tag;
        let kind = packet.get(start..start + 2)?;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            ethertype::IPV4 => Some(start + 2 + UDP_SOURCE_V4),
            ethertype::IPV6 => Some(start + 2 + UDP_SOURCE_V6),
            _ => None,
        }
    };
    let Some(place) = TAGS.into_iter().find_map(place) else {
        return 0;
    };
    match packet.get(place..place + 2) {
        Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::wire::ethernet::HEADER_LEN;
    use common::xdp::frame::Region;

    #[derive(Default)]
    struct Sink {
        sent: Vec<Frame>,
        room: usize,
    }

    impl QueueIo for Sink {
        fn receive(&mut self, _: &mut FramePool, _: &mut Vec<Frame>, _: usize) -> usize {
            0
        }
        fn transmit_room(&mut self, _: &mut FramePool) -> usize {
            self.room - self.sent.len()
        }
        fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
            let count = batch.len().min(self.room - self.sent.len());
            self.sent.extend(batch.drain(..count));
            count
        }
        fn flush(&mut self, _: &mut FramePool, _: Time) {}
        fn in_flight(&self) -> usize {
            0
        }
        fn backlog(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_path_keeps_to_its_queue_and_frames_come_home() {
        let mut pool = FramePool::new(Region::heap(64, 512, 0));
        let sinks = (0..4)
            .map(|_| Sink {
                sent: Vec::new(),
                room: 4,
            })
            .collect();
        let mut port = NetPort::new(sinks);
        for version in [0x45_u8, 0x60] {
            for source in 0..8_u16 {
                let mut packet = [2_u8; 80];
                // Some have a CSIG tag.
                let tag = TAGS[usize::from(source / 4)];
                let (kind, place) = if version == 0x45 {
                    (ethertype::IPV4, UDP_SOURCE_V4)
                } else {
                    (ethertype::IPV6, UDP_SOURCE_V6)
                };
                packet[12 + tag..14 + tag].copy_from_slice(&kind.to_be_bytes());
                let place = HEADER_LEN + tag + place;
                packet[place..place + 2].copy_from_slice(&source.to_be_bytes());
                let frame = pool.take_filled(&packet).expect("a frame");
                port.add(frame);
            }
        }
        assert!(port.is_behind());
        port.flush(&mut pool, Time::ZERO);
        assert!(!port.is_behind());
        assert!(port.queues().all(|sink| sink.sent.len() == 4));
        assert_eq!(port.room(&mut pool), 0);
        port.add(pool.take_filled(&[0; 3]).expect("a frame"));
        port.flush(&mut pool, Time::ZERO);
        assert!(port.is_behind(), "no room");
        port.abandon(&mut pool);
        port.queues
            .into_iter()
            .flat_map(|queue| queue.io.sent)
            .for_each(|f| pool.give(f));
        assert_eq!(pool.free_frames(), 64);
    }
}
