//! BTH opcodes: three bits of transport and five of operation (IBA volume 1, table 38).

/// What a packet is for; the low five bits of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// First packet of a SEND.
    SendFirst = 0x00,
    /// Packet of a SEND between the first and the last.
    SendMiddle = 0x01,
    /// Last packet of a SEND.
    SendLast = 0x02,
    /// Last packet of a SEND with immediate data.
    SendLastImmediate = 0x03,
    /// The only packet of a SEND.
    SendOnly = 0x04,
    /// The only packet of a SEND with immediate data.
    SendOnlyImmediate = 0x05,
    /// First packet of an RDMA WRITE.
    WriteFirst = 0x06,
    /// Packet of an RDMA WRITE between the first and the last.
    WriteMiddle = 0x07,
    /// Last packet of an RDMA WRITE.
    WriteLast = 0x08,
    /// Last packet of an RDMA WRITE with immediate data.
    WriteLastImmediate = 0x09,
    /// The only packet of an RDMA WRITE.
    WriteOnly = 0x0a,
    /// The only packet of an RDMA WRITE with immediate data.
    WriteOnlyImmediate = 0x0b,
    /// Request of an RDMA READ.
    ReadRequest = 0x0c,
    /// First packet of the answer to an RDMA READ.
    ReadResponseFirst = 0x0d,
    /// Packet of the answer to an RDMA READ between the first and the last.
    ReadResponseMiddle = 0x0e,
    /// Last packet of the answer to an RDMA READ.
    ReadResponseLast = 0x0f,
    /// The only packet of the answer to an RDMA READ.
    ReadResponseOnly = 0x10,
    /// Acknowledge, positive or negative.
    Acknowledge = 0x11,
    /// Answer to an atomic operation.
    AtomicAcknowledge = 0x12,
    /// Compare and swap.
    CompareSwap = 0x13,
    /// Fetch and add.
    FetchAdd = 0x14,
    /// Last packet of a SEND that invalidates a key.
    SendLastInvalidate = 0x16,
    /// The only packet of a SEND that invalidates a key.
    SendOnlyInvalidate = 0x17,
}

use Operation as O;

/// Every operation, in the order of its number.
pub const OPERATIONS: [Operation; 23] = [
    O::SendFirst,
    O::SendMiddle,
    O::SendLast,
    O::SendLastImmediate,
    O::SendOnly,
    O::SendOnlyImmediate,
    O::WriteFirst,
    O::WriteMiddle,
    O::WriteLast,
    O::WriteLastImmediate,
    O::WriteOnly,
    O::WriteOnlyImmediate,
    O::ReadRequest,
    O::ReadResponseFirst,
    O::ReadResponseMiddle,
    O::ReadResponseLast,
    O::ReadResponseOnly,
    O::Acknowledge,
    O::AtomicAcknowledge,
    O::CompareSwap,
    O::FetchAdd,
    O::SendLastInvalidate,
    O::SendOnlyInvalidate,
];

impl Operation {
    const fn from_bits(bits: u8) -> Option<Self> {
        let index = match bits {
            0x00..=0x14 => bits,
            0x16 | 0x17 => bits - 1,
            _ => return None,
        };
        Some(OPERATIONS[index as usize])
    }

    /// Whether a RETH follows.
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            O::WriteFirst | O::WriteOnly | O::WriteOnlyImmediate | O::ReadRequest
        )
    }

    /// Whether an AETH follows.
    pub const fn has_aeth(self) -> bool {
        matches!(
            self,
            O::ReadResponseFirst
                | O::ReadResponseLast
                | O::ReadResponseOnly
                | O::Acknowledge
                | O::AtomicAcknowledge
        )
    }

    /// Whether an AtomicETH follows.
    pub const fn has_atomic(self) -> bool {
        matches!(self, O::CompareSwap | O::FetchAdd)
    }

    /// Whether immediate data follows.
    pub const fn has_immediate(self) -> bool {
        matches!(
            self,
            O::SendLastImmediate
                | O::SendOnlyImmediate
                | O::WriteLastImmediate
                | O::WriteOnlyImmediate
        )
    }

    /// Whether the key to invalidate follows (IETH).
    pub const fn has_invalidate(self) -> bool {
        matches!(self, O::SendLastInvalidate | O::SendOnlyInvalidate)
    }

    /// Whether payload may follow.
    pub const fn has_payload(self) -> bool {
        !matches!(
            self,
            O::ReadRequest | O::Acknowledge | O::AtomicAcknowledge | O::CompareSwap | O::FetchAdd
        )
    }

    /// Whether this ends a message.
    pub const fn is_last(self) -> bool {
        !matches!(
            self,
            O::SendFirst
                | O::SendMiddle
                | O::WriteFirst
                | O::WriteMiddle
                | O::ReadResponseFirst
                | O::ReadResponseMiddle
        )
    }

    /// Whether a responder sends it: answers and acknowledgements.
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            O::ReadResponseFirst
                | O::ReadResponseMiddle
                | O::ReadResponseLast
                | O::ReadResponseOnly
                | O::Acknowledge
                | O::AtomicAcknowledge
        )
    }
}

const TRANSPORT_MASK: u8 = 0xe0;
const OPERATION_MASK: u8 = 0x1f;
const RELIABLE_CONNECTION: u8 = 0x00;
const UNRELIABLE_DATAGRAM: u8 = 0x60;
const MULTIPATH: u8 = 0xc0;
const CONGESTION_NOTIFICATION: u8 = 0x81;

/// An opcode that is understood here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Reliable connection, plain RoCEv2.
    Rc(Operation),
    /// Reliable connection with an MPEH after the BTH.
    Multipath(Operation),
    /// SEND ONLY of an unreliable datagram, which connection management uses.
    UdSendOnly,
    /// Congestion notification packet (annex A17.9).
    Cnp,
}

impl Opcode {
    /// The opcode of a BTH's first byte, if it is one of these.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if byte == CONGESTION_NOTIFICATION {
            return Some(Self::Cnp);
        }
        match (
            byte & TRANSPORT_MASK,
            Operation::from_bits(byte & OPERATION_MASK),
        ) {
            (RELIABLE_CONNECTION, Some(operation)) => Some(Self::Rc(operation)),
            (MULTIPATH, Some(operation)) => Some(Self::Multipath(operation)),
            (UNRELIABLE_DATAGRAM, Some(O::SendOnly)) => Some(Self::UdSendOnly),
            _ => None,
        }
    }

    /// The byte that stands in the BTH.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Rc(operation) => RELIABLE_CONNECTION | operation as u8,
            Self::Multipath(operation) => MULTIPATH | operation as u8,
            Self::UdSendOnly => UNRELIABLE_DATAGRAM | O::SendOnly as u8,
            Self::Cnp => CONGESTION_NOTIFICATION,
        }
    }

    /// The operation of a reliable connection.
    pub const fn operation(self) -> Option<Operation> {
        match self {
            Self::Rc(operation) | Self::Multipath(operation) => Some(operation),
            Self::UdSendOnly | Self::Cnp => None,
        }
    }

    /// Whether an MPEH follows the BTH.
    pub const fn is_multipath(self) -> bool {
        matches!(self, Self::Multipath(_))
    }

    /// Whether the byte of a BTH announces an MPEH, whatever its operation. For switches.
    #[inline]
    pub const fn announces_mpeh(byte: u8) -> bool {
        byte & TRANSPORT_MASK == MULTIPATH
    }
}
