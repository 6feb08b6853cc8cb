//! Fragments of an IPv4 packet that is longer than its next link carries, as Linux makes them.
//!
//! ```text
//!   link │ IP header, all options      │ data 0..n   │   n: as much as fits, in units of 8 bytes
//!   link │ IP header, copied options   │ data n..2n  │
//!   link │ IP header, copied options   │ the rest    │   "more fragments" is that of the packet
//! ```
//!
//! All headers are as long as the packet's: where an option is not for later fragments (RFC 791
//! §3.1, the copied flag) there are no-operations.

use common::wire::checksum;
use common::wire::ip::v4::{self, field};

/// How a packet is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the IP header begins.
    network: usize,
    /// Where its data begins.
    data: usize,
    /// Where its data ends.
    end: usize,
    /// Bytes of data in each fragment but the last.
    room: usize,
}

/// Units in which the place of a fragment is told.
const UNIT: usize = 8;

impl Plan {
    /// For the packet of a frame of `len` bytes whose IP header begins at `network`; its rest may
    /// lie elsewhere. `None` if no data fits beside the header, or there is no such packet.
    pub fn new((frame, len): (&[u8], usize), network: u16, mtu: u16) -> Option<Self> {
        let network = usize::from(network);
        let len = len.checked_sub(network)?;
        let packet = v4::Packet::new_partial(frame.get(network..)?, len).ok()?;
        let header = packet.header_len();
        let room = usize::from(mtu).checked_sub(header)? / UNIT * UNIT;
        (room > 0).then_some(Self {
            network,
            data: network + header,
            end: network + packet.total_len(),
            room,
        })
    }

    /// Number of fragments.
    pub fn count(&self) -> usize {
        (self.end - self.data).div_ceil(self.room).max(1)
    }

    /// Bytes of the frame of fragment `number`.
    pub fn frame_len(&self, number: usize) -> usize {
        self.data + self.payload(number).len()
    }

    /// Where the data of fragment `number` is.
    fn payload(&self, number: usize) -> std::ops::Range<usize> {
        let begin = (self.data + number * self.room).min(self.end);
        begin..(begin + self.room).min(self.end)
    }

    /// Writes the frame of fragment `number` of `frame` into `out`, which is
    /// [that long](Self::frame_len).
    pub fn write(&self, frame: &[u8], number: usize, out: &mut [u8]) {
        let payload = self.payload(number);
        out[..self.data].copy_from_slice(&frame[..self.data]);
        out[self.data..].copy_from_slice(&frame[payload.clone()]);
        let header = &mut out[self.network..self.data];
        if number > 0 {
            blank_uncopied(&mut header[v4::HEADER_LEN..]);
        }
        let of_packet = u16::from_be_bytes([header[field::FRAGMENT], header[field::FRAGMENT + 1]]);
        let units = u16::try_from(number * self.room / UNIT).unwrap_or(u16::MAX);
        let place = (of_packet & OFFSET).wrapping_add(units) & OFFSET;
        let more = if payload.end < self.end {
            v4::MORE_FRAGMENTS
        } else {
            of_packet & v4::MORE_FRAGMENTS
        };
        let total = u16::try_from(out.len() - self.network).unwrap_or(u16::MAX);
        let header = &mut out[self.network..self.data];
        put(header, field::TOTAL_LEN, total);
        put(header, field::FRAGMENT, place | more);
        put(header, field::CHECKSUM, 0);
        let sum = checksum::of(header);
        put(header, field::CHECKSUM, sum);
    }
}

/// The place of a fragment, in the fragment field.
const OFFSET: u16 = 0x1fff;

fn put(header: &mut [u8], at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Replaces the options that are for the first fragment only.
fn blank_uncopied(options: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut rest = options;
    while let Some(&kind) = rest.first() {
        let len = match kind {
            END => return,
            NO_OPERATION => 1,
            _ => rest.get(1).map_or(0, |len| usize::from(*len)),
        };
        if len == 0 || len > rest.len() || (len < 2 && kind != NO_OPERATION) {
            return;
        }
        let (option, next) = rest.split_at_mut(len);
        if kind & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NETWORK: u16 = 14;
    /// Record route, not copied; a strict source route, copied; a no-operation.
    const OPTIONS: [u8; 12] = [7, 4, 4, 0, 137, 7, 4, 9, 9, 9, 9, 1];

    /// A frame with a packet of `len` bytes of data, of which the header says `fragment`.
    fn frame(len: usize, options: &[u8], fragment: u16) -> Vec<u8> {
        let header = v4::HEADER_LEN + options.len();
        let mut bytes = vec![0xee; usize::from(NETWORK)];
        bytes.resize(usize::from(NETWORK) + v4::HEADER_LEN, 0);
        bytes.extend(options);
        bytes.extend((0..len).map(|at| at.to_le_bytes()[0]));
        // Padding is not data.
        bytes.extend([0x99; 6]);
        let ip = &mut bytes[usize::from(NETWORK)..];
        ip[0] = 0x40 | u8::try_from(header / 4).unwrap();
        put(ip, field::TOTAL_LEN, u16::try_from(header + len).unwrap());
        put(ip, field::IDENT, 0x1234);
        put(ip, field::FRAGMENT, fragment);
        ip[field::TTL] = 9;
        let sum = checksum::of(&ip[..header]);
        put(ip, field::CHECKSUM, sum);
        bytes
    }

    fn fragments(frame: &[u8], mtu: u16) -> Vec<Vec<u8>> {
        let plan = Plan::new((frame, frame.len()), NETWORK, mtu).expect("a packet");
        let write = |number| {
            let mut out = vec![0; plan.frame_len(number)];
            plan.write(frame, number, &mut out);
            out
        };
        (0..plan.count()).map(write).collect()
    }

    /// SW-1: options without the copied flag are in the first fragment only.
    #[test]
    fn options_are_copied_as_they_say() {
        let all = fragments(&frame(100, &OPTIONS, 0), 80);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0][34..46], OPTIONS);
        for later in &all[1..] {
            assert_eq!(later[34..46], [1, 1, 1, 1, 137, 7, 4, 9, 9, 9, 9, 1]);
        }
        for broken in [[7, 1, 0, 0], [7, 0, 0, 0], [7, 9, 0, 0], [0, 7, 4, 0]] {
            assert_eq!(fragments(&frame(100, &broken, 0), 80)[1][34..38], broken);
        }
        let whole = frame(100, &OPTIONS, 0);
        assert_eq!(Plan::new((&whole, whole.len()), NETWORK, 39), None);
    }

    proptest! {
        /// SW-1: what a receiver puts together is the packet; no fragment is longer than the link
        /// carries, and a fragment that is fragmented stays where it was.
        #[test]
        fn fragments_are_the_packet(
            len in 1_usize..3000,
            mtu in 68_u16..1500,
            place in 0_u16..100,
            last: bool,
            has_options: bool,
        ) {
            let options = if has_options { &OPTIONS[..] } else { &[] };
            let more = if last { 0 } else { v4::MORE_FRAGMENTS };
            let whole = frame(len, options, place | more);
            let data = usize::from(NETWORK) + v4::HEADER_LEN + options.len();
            let mut together: Vec<u8> = Vec::new();
            let all = fragments(&whole, mtu);
            for (number, fragment) in all.iter().enumerate() {
                let ip = &fragment[usize::from(NETWORK)..];
                let packet = v4::Packet::new_checked(ip).expect("valid");
                prop_assert!(packet.verify_checksum() && ip.len() <= usize::from(mtu));
                prop_assert_eq!(packet.total_len(), ip.len());
                let at = usize::from(packet.fragment_offset() - place) * UNIT;
                prop_assert_eq!(at, together.len());
                together.extend(packet.payload());
                let more = u16::from_be_bytes([ip[6], ip[7]]) & v4::MORE_FRAGMENTS != 0;
                prop_assert_eq!(more, number + 1 < all.len() || !last);
                prop_assert_eq!((packet.ident(), packet.ttl()), (0x1234, 9));
            }
            prop_assert_eq!(&together[..], &whole[data..data + len]);
        }
    }
}
