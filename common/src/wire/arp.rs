//! ARP for IPv4 over Ethernet (RFC 826). Read only: the kernel answers.

use super::{Error, Mac, Result, array, be16, need};
use std::net::Ipv4Addr;

/// Bytes of an Ethernet/IPv4 packet.
pub const LEN: usize = 28;

/// What is asked or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
    /// Something else (RARP and others).
    Other(u16),
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_mac: Mac,
    /// Protocol address of the sender.
    pub sender: Ipv4Addr,
    /// Hardware address of the target; zero in a request.
    pub target_mac: Mac,
    /// Protocol address of the target.
    pub target: Ipv4Addr,
}

impl Packet {
    /// Reads the payload of an ARP frame.
    ///
    /// # Errors
    /// If it is cut, or not for IPv4 over Ethernet.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("arp", bytes, LEN)?;
        let types = [
            ("hardware type", 0, 1),
            ("protocol type", 2, 0x0800),
            ("address lengths", 4, 0x0604),
        ];
        for (field, at, expected) in types {
            if be16(bytes, at) != expected {
                return Err(Error::Field {
                    header: "arp",
                    field,
                    value: u32::from(be16(bytes, at)),
                });
            }
        }
        Ok(Self {
            operation: match be16(bytes, 6) {
                1 => Operation::Request,
                2 => Operation::Reply,
                other => Operation::Other(other),
            },
            sender_mac: Mac(array(bytes, 8)),
            sender: Ipv4Addr::from(array::<4>(bytes, 14)),
            target_mac: Mac(array(bytes, 18)),
            target: Ipv4Addr::from(array::<4>(bytes, 24)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_anything_else_refused() {
        let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
        bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        let packet = Packet::parse(&bytes).expect("a request");
        assert_eq!(packet.operation, Operation::Request);
        assert_eq!(
            (packet.sender, packet.target),
            (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
        );
        for cut in 0..bytes.len() {
            assert!(Packet::parse(&bytes[..cut]).is_err());
        }
        bytes[4] = 8;
        assert!(Packet::parse(&bytes).is_err());
    }
}
