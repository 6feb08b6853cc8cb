//! The reference loop: the minimum that a router does with a packet, written as simply as possible.
//!
//! It parses the headers (with the checksum of IPv4), finds a next hop with one access to a table
//! that takes as much memory as the route table, and rewrites: station addresses, TTL, checksum. No
//! port, no class, no queue, no counter, no longest match: a table of that size that is indexed by
//! a hash of the destination misses the caches as a route table does, and costs little else. It
//! shares no code with switchd, so changes of switchd do not change its speed.

use super::queue::{
    DESTINATIONS, Destination, FRAMES, LEN, PORTS, header, neighbour_mac, port_mac,
};
use crate::measure::{busy_time, nanos_each};
use std::hint::black_box;
use std::sync::Arc;

/// Distance of frames in memory, as in the switch.
const STRIDE: usize = 2048;

/// Frames that are received before any of them is looked at, as a batch of a switch.
const BATCH: usize = 64;

/// Next hops.
const HOPS: u16 = 64;

/// A router that does nothing but route.
pub(super) struct Reference {
    frames: Vec<u8>,
    header: [u8; LEN],
    destinations: Arc<[Destination]>,
    next: usize,
    /// Numbers of next hops, by the hash of a destination.
    table: Vec<u32>,
    /// Destination and source station of each next hop.
    hops: Vec<[u8; 12]>,
    /// Packets that were not forwarded: none, unless the loop is wrong.
    refused: u64,
}

impl Reference {
    /// A router for these destinations, whose table takes at least `bytes`.
    pub(super) fn new(destinations: &Arc<[Destination]>, bytes: usize) -> Self {
        let entries = (bytes / 4).next_power_of_two();
        let hop = |n: u16| {
            let stations = [neighbour_mac(n % PORTS, n / PORTS), port_mac(n % PORTS)];
            stations.concat().try_into().expect("twice six bytes")
        };
        Self {
            frames: vec![0; usize::from(PORTS) * FRAMES * STRIDE],
            header: header(0, destinations[0]),
            destinations: destinations.clone(),
            next: 0,
            table: (0..u32::from(HOPS)).cycle().take(entries).collect(),
            hops: (0..HOPS).map(hop).collect(),
            refused: 0,
        }
    }

    /// Forwards about `least` packets; nanoseconds for each, with what their arrival costs.
    pub(super) fn turn(&mut self, least: u64) -> f64 {
        let (mut places, mut hops) = ([0; BATCH], [0; BATCH]);
        let (mut packets, began) = (0, busy_time());
        while packets < least {
            for batch in self.frames.chunks_mut(BATCH * STRIDE) {
                for frame in batch.chunks_mut(STRIDE) {
                    frame[..LEN].copy_from_slice(&self.header);
                    self.destinations[self.next % DESTINATIONS].write(&mut frame[..LEN]);
                    self.next += 1;
                }
                for (frame, place) in batch.chunks(STRIDE).zip(&mut places) {
                    let destination = parse(black_box(&frame[..LEN]));
                    self.refused += u64::from(destination.is_none());
                    *place = index(destination.unwrap_or(0), self.table.len());
                }
                for (place, hop) in places.iter().zip(&mut hops) {
                    *hop = self.table[*place];
                }
                for (frame, hop) in batch.chunks_mut(STRIDE).zip(&hops) {
                    let hop = &self.hops[*hop as usize % self.hops.len()];
                    rewrite(&mut frame[..LEN], hop);
                }
                packets += BATCH as u64;
            }
        }
        nanos_each(began, packets)
    }

    /// Packets that it has not forwarded: none, unless it is wrong.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

/// The destination, as a number; none of what is not to be forwarded.
fn parse(frame: &[u8]) -> Option<u64> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    match word(12) {
        0x0800 => {
            let len = usize::from(word(16));
            let sum: u32 = (14..34).step_by(2).map(|at| u32::from(word(at))).sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let good = frame[14] == 0x45 && 14 + len <= frame.len() && folded == 0xffff;
            let address = u32::from_be_bytes([frame[30], frame[31], frame[32], frame[33]]);
            (good && frame[22] > 1).then_some(u64::from(address))
        }
        0x86dd => {
            let len = usize::from(word(18));
            let good = frame[14] >> 4 == 6 && 54 + len <= frame.len();
            let half = frame[38..46].first_chunk::<8>()?;
            (good && frame[21] > 1).then_some(u64::from_be_bytes(*half))
        }
        _ => None,
    }
}

/// Where the entry of a destination is in a table of `entries`, a power of two.
fn index(destination: u64, entries: usize) -> usize {
    // Fibonacci hashing: the golden ratio times 2^64 (Knuth, volume 3, section 6.4). The upper bits
    // are the good ones.
    let hash = destination.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(hash).expect("32 bits") & (entries - 1)
}

fn rewrite(frame: &mut [u8], hop: &[u8; 12]) {
    frame[..12].copy_from_slice(hop);
    if frame[12] == 0x08 {
        frame[22] -= 1;
        // RFC 1624: the word with the TTL got smaller by 0x0100, so the complement of the sum
        // grows.
        let sum = u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 0x0100;
        let folded = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&folded.to_be_bytes()[2..]);
    } else {
        frame[21] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::destinations;
    use super::*;
    use crate::routes;

    #[test]
    fn every_packet_is_parsed_and_rewritten() {
        for v4 in [true, false] {
            let mut random = routes::random();
            let table = routes::table(1000, 1000, &mut random);
            let destinations = destinations(&table, v4, &mut random);
            let mut reference = Reference::new(&destinations, 1 << 20);
            reference.turn(1024);
            assert_eq!(reference.refused(), 0);
            for frame in reference.frames.chunks(STRIDE) {
                // What left has a good checksum, a TTL of 63 and a station of a neighbour.
                assert!(parse(&frame[..LEN]).is_some());
                assert_eq!(frame[if v4 { 22 } else { 21 }], 63);
                assert_eq!(frame[..3], [2, 0, 1]);
            }
        }
    }

    #[test]
    fn what_is_broken_is_not_forwarded() {
        let other = Destination::V4([10, 1, 2, 3], 0);
        let mut frame = header(0, other);
        assert_eq!(parse(&frame), Some(0));
        other.write(&mut frame);
        assert_eq!(parse(&frame), None, "a wrong checksum");
        frame[12] = 0x88;
        assert_eq!(parse(&frame), None);
    }
}
