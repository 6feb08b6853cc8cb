//! What lies in the transmit ring of a device: packets, and the line time that they take.
//!
//! Completions say how many packets left, not how long they were. So each handed batch is
//! remembered with its packets and bytes, and a completed part of a batch counts as long as the
//! average of it. The cost is that of a batch, not of each packet.

use super::queue::LINE_OVERHEAD;

/// Batches that are told apart. More are counted with the last one, which only makes the average
/// coarser.
const BATCHES: usize = 64;

/// Packets that were handed together and are not completed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Handed {
    packets: u32,
    bytes: u64,
}

/// The packets that a device was handed and has not completed, and their bytes on the line.
#[derive(Debug)]
pub struct InFlight {
    batches: [Handed; BATCHES],
    first: usize,
    count: usize,
    all: Handed,
}

impl Default for InFlight {
    /// An empty ring.
    fn default() -> Self {
        Self {
            batches: [Handed::default(); BATCHES],
            first: 0,
            count: 0,
            all: Handed::default(),
        }
    }
}

impl InFlight {
    /// Packets in flight.
    #[inline]
    pub fn packets(&self) -> u32 {
        self.all.packets
    }

    /// Bytes of line time in flight: exact when all batches are complete, else to within the
    /// difference between the packets of one batch.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.all.bytes
    }

    /// Counts `packets` of `bytes` in all, without what the line adds, as handed to the device.
    #[inline]
    pub fn handed(&mut self, packets: u32, bytes: u64) {
        self.handed_in_pieces(packets, packets, bytes);
    }

    /// The same for packets that are handed over and completed in `pieces`, at least as many: from
    /// then on these are what is counted.
    #[inline]
    pub fn handed_in_pieces(&mut self, pieces: u32, packets: u32, bytes: u64) {
        if pieces == 0 {
            return;
        }
        let bytes = bytes + u64::from(packets) * LINE_OVERHEAD;
        let packets = pieces;
        self.all.packets += packets;
        self.all.bytes += bytes;
        if self.count < BATCHES {
            self.count += 1;
            self.batches[(self.first + self.count - 1) % BATCHES] = Handed { packets, bytes };
        } else {
            let last = &mut self.batches[(self.first + self.count - 1) % BATCHES];
            last.packets += packets;
            last.bytes += bytes;
        }
    }

    /// Counts `packets`, the oldest ones, as completed. More than are in flight count as all.
    #[inline]
    pub fn completed(&mut self, mut packets: u32) {
        packets = packets.min(self.all.packets);
        while packets > 0 {
            let batch = &mut self.batches[self.first];
            let part = packets.min(batch.packets);
            let bytes = if part == batch.packets {
                batch.bytes
            } else {
                batch.bytes * u64::from(part) / u64::from(batch.packets)
            };
            batch.packets -= part;
            batch.bytes -= bytes;
            if batch.packets == 0 {
                self.first = (self.first + 1) % BATCHES;
                self.count -= 1;
            }
            self.all.packets -= part;
            self.all.bytes -= bytes;
            packets -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes on the line: of whole batches exactly, of a part of one in proportion.
    #[test]
    fn completions_give_back_what_was_handed() {
        let mut ring = InFlight::default();
        ring.handed(10, 10 * 1514);
        ring.handed(4, 4 * 60);
        assert_eq!((ring.packets(), ring.bytes()), (14, 10 * 1538 + 4 * 84));
        ring.completed(3);
        assert_eq!((ring.packets(), ring.bytes()), (11, 7 * 1538 + 4 * 84));
        ring.completed(8);
        assert_eq!((ring.packets(), ring.bytes()), (3, 3 * 84));
        ring.completed(100);
        assert_eq!((ring.packets(), ring.bytes()), (0, 0));
        ring.handed_in_pieces(6, 2, 2 * 9014);
        ring.completed(3);
        assert_eq!((ring.packets(), ring.bytes()), (3, 9038));
    }

    /// However finely batches are cut, and in however many steps they complete, no byte stays
    /// behind.
    #[test]
    fn nothing_stays_behind_after_more_batches_than_are_told_apart() {
        let mut ring = InFlight::default();
        for round in 1..400_u32 {
            ring.handed(
                round % 7,
                u64::from(round % 7) * 100 + u64::from(round % 7 > 0),
            );
            ring.completed(round % 3);
            assert!(ring.bytes() >= u64::from(ring.packets()) * (100 + LINE_OVERHEAD));
        }
        assert!(ring.packets() > 500, "{}", ring.packets());
        while ring.packets() > 0 {
            ring.completed(11);
        }
        assert_eq!(ring.bytes(), 0);
    }
}
