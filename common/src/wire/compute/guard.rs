//! Which messages vouch for the addresses and ports that they come with.
//!
//! The checksum of a message covers the message alone, and whoever a message comes from first holds
//! its rank. So an address or a port that broke on the way would give the rank to nobody, and its
//! member would find it taken. The checksum of UDP covers both. Messages of a vector do without:
//! from a stranger they change nothing, and there are many of them.

use super::layout::{VERSION, field};
use super::{HEADER_LEN, Message, RESULT};
use crate::wire::udp;
use std::net::IpAddr;

/// The largest number of a kind that must have it; those after CONTRIBUTION and RESULT have to.
const LAST: u8 = Message::Left.kind();

/// Whether a message must have the checksum of UDP: all but CONTRIBUTION and RESULT. What is no
/// message is refused for that.
fn is_bound(message: &[u8]) -> bool {
    let first = match message.get(..HEADER_LEN) {
        Some(header) => header[field::KIND],
        None => return false,
    };
    first >> 4 == VERSION && (RESULT + 1..=LAST).contains(&(first & 0xf))
}

/// Writes the checksum of UDP of a whole datagram with a message in it, if it must have one.
///
/// # Panics
/// If `datagram` is shorter than a header of UDP, or longer than a datagram can be.
pub fn guard(datagram: &mut [u8], src: IpAddr, dst: IpAddr) {
    if is_bound(&datagram[udp::HEADER_LEN..]) {
        udp::seal(datagram, src, dst);
    }
}

/// Whether the message of a datagram came between these addresses and ports: the checksum of UDP is
/// right, or there is none and the message needs none.
pub fn is_guarded<T: AsRef<[u8]>>(datagram: &udp::Datagram<T>, src: IpAddr, dst: IpAddr) -> bool {
    let verified = datagram.verify_checksum(src, dst);
    verified.unwrap_or_else(|| !is_bound(datagram.payload()))
}

#[cfg(test)]
mod tests {
    use super::super::{Chunk, Flags, Join, Packet, Reason, Slot, Verdict, Work};
    use super::*;

    fn datagram(message: Message<'_>) -> Vec<u8> {
        let packet = Packet {
            flags: Flags::default(),
            job: 1,
            epoch: 0,
            rank: 2,
            message,
        };
        let mut bytes = vec![0; udp::HEADER_LEN + packet.len()];
        let len = u16::try_from(bytes.len()).expect("short");
        udp::emit(&mut bytes, 4795, 4795, len);
        let message = &mut bytes[udp::HEADER_LEN..];
        packet.write(None, message).expect("room");
        bytes
    }

    fn passes(bytes: &[u8], src: IpAddr, dst: IpAddr) -> bool {
        let datagram = udp::Datagram::new_checked(bytes);
        datagram.is_ok_and(|it| is_guarded(&it, src, dst))
    }

    /// An address with a bit turned.
    fn turned(address: IpAddr, bit: usize) -> IpAddr {
        match address {
            IpAddr::V4(address) => IpAddr::from((address.to_bits() ^ 1 << bit).to_be_bytes()),
            IpAddr::V6(address) => IpAddr::from((address.to_bits() ^ 1 << bit).to_be_bytes()),
        }
    }

    /// SW-42: a message that makes a member of who sent it, or ends one, is not believed once a bit
    /// of an address, of a port or of itself has turned, nor without a checksum.
    #[test]
    fn a_turned_bit_is_noticed_wherever_it_is() {
        for (src, dst) in [("10.0.0.1", "10.0.0.254"), ("fd00::1", "fd00::ff")] {
            let [src, dst]: [IpAddr; 2] = [src, dst].map(|it| it.parse().expect("an address"));
            let lost = Verdict {
                reason: Reason::MemberLost,
                level: 1,
                world: Some(3),
                generation: 7,
            };
            // The first and the last of the kinds that must have it are among them.
            for message in [
                Message::Error(lost),
                Message::Join(Join::new(1, 0, 2)),
                Message::KeepAlive,
                Message::Left,
            ] {
                let mut bytes = datagram(message);
                assert!(!passes(&bytes, src, dst), "without a checksum");
                guard(&mut bytes, src, dst);
                assert!(passes(&bytes, src, dst));
                for bit in 0..if src.is_ipv4() { 32 } else { 128 } {
                    assert!(!passes(&bytes, turned(src, bit), dst), "source, {bit}");
                    assert!(!passes(&bytes, src, turned(dst, bit)), "destination, {bit}");
                }
                for bit in 0..bytes.len() * 8 {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    assert!(!passes(&bytes, src, dst), "bit {bit} of {message:?}");
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    /// SW-40: a vector has no checksum of UDP; where a sender makes one it counts. What is no
    /// message is refused for that.
    #[test]
    fn vectors_do_without() {
        let [src, dst] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let chunk = Chunk {
            work: Work::Broadcast,
            slot: Slot::of(0, 4),
            sequence: 0,
            contributions: 1,
            complete: 0,
            data: &[1, 2, 3],
        };
        for message in [Message::Contribution(chunk), Message::Result(chunk)] {
            let mut bytes = datagram(message);
            guard(&mut bytes, src, dst);
            assert_eq!(bytes[udp::field::CHECKSUM..][..2], [0, 0]);
            assert!(passes(&bytes, src, dst));
            udp::seal(&mut bytes, src, dst);
            assert!(passes(&bytes, src, dst));
            assert!(!passes(&bytes, dst, dst));
        }
        let mut foreign = datagram(Message::KeepAlive);
        for first in [0x04, 0x10, 0x1b, 0x27, 0xff] {
            foreign[udp::HEADER_LEN] = first;
            assert!(passes(&foreign, src, dst), "{first:#x}");
        }
        let mut cut = [0; udp::HEADER_LEN + 1];
        udp::emit(&mut cut, 1, 2, 9);
        cut[udp::HEADER_LEN] = 0x14;
        assert!(passes(&cut, src, dst), "it is no message");
    }
}
