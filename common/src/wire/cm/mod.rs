//! Connection management of InfiniBand over RoCEv2 (IBA volume 1, chapter 12; IP addressing: annex
//! A11), as RDMA CM uses it.
//!
//! A message is a management datagram (MAD) of 256 bytes: 24 of common header, 232 of message. It
//! travels as the payload of a UD SEND ONLY from queue pair 1 to queue pair 1.
//!
//! ```text
//!   active ── REQ ──▶ passive        REQ carries an IP CM header and the consumer's private data
//!          ◀── REP ──                REJ in its place refuses
//!          ── RTU ──▶               MRA: the answer to REQ or REP takes longer
//!          ◀─ LAP / APR ─▶           an alternate path is offered, or refused
//!          ◀─ DREQ / DREP ─▶         either side ends it
//!   SIDR REQ / SIDR REP              who serves a datagram service
//! ```

use super::{Error, Result, array, be16, be24, be32, be64, need, put, put24};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;
const MAD_HEADER_LEN: usize = 24;
const CLASS: u8 = 0x07;
const HEADER: &str = "cm";

/// Bytes of the IP CM header at the front of a REQ's private data.
pub const IP_HEADER_LEN: usize = 36;
/// Bytes that a REQ leaves to the consumer behind the IP CM header.
pub const REQ_PRIVATE_LEN: usize = 92 - IP_HEADER_LEN;
/// Bytes of private data of a REP.
pub const REP_PRIVATE_LEN: usize = 196;
/// Bytes of private data of a REJ.
pub const REJ_PRIVATE_LEN: usize = 148;
/// Bytes of additional reject information.
pub const REJ_INFO_LEN: usize = 72;
const REJ_INFO_MAX: u8 = 72;

/// Service identifier of a TCP-like port (annex A11.2): the prefix, protocol 6, the port.
pub const fn service_id(port: u16) -> u64 {
    0x0000_0000_0106_0000 | port as u64
}

/// Why a connection is refused (IBA volume 1, table 108).
pub mod reject {
    /// No queue pair left.
    pub const NO_QUEUE_PAIR: u16 = 1;
    /// No resources left.
    pub const NO_RESOURCES: u16 = 3;
    /// A message that was expected did not come in time.
    pub const TIMEOUT: u16 = 4;
    /// The message asks for what is not supported.
    pub const UNSUPPORTED: u16 = 5;
    /// The communication identifier is unknown or does not fit.
    pub const INVALID_COMM_ID: u16 = 6;
    /// Nobody listens at that service.
    pub const INVALID_SERVICE_ID: u16 = 8;
    /// The transport service is not known here.
    pub const INVALID_TRANSPORT: u16 = 9;
    /// The queue pair has a connection already (12.9.8.3.1).
    pub const STALE_CONNECTION: u16 = 10;
    /// The path MTU is not possible; the additional information is the code of one that is.
    pub const INVALID_MTU: u16 = 26;
    /// The consumer said no.
    pub const CONSUMER: u16 = 28;
}

/// What becomes of an offered alternate path (IBA volume 1, table 117).
pub mod alternate {
    /// Alternate paths are not supported.
    pub const UNSUPPORTED: u8 = 2;
}

/// What becomes of a question for a datagram service (IBA volume 1, table 121).
pub mod sidr {
    /// The service identifier is not supported.
    pub const UNSUPPORTED: u8 = 1;
}

/// Which message a REJ or an MRA is about.
pub mod about {
    /// A REQ.
    pub const REQ: u8 = 0;
    /// A REP.
    pub const REP: u8 = 1;
    /// Neither; in an MRA a LAP.
    pub const OTHER: u8 = 2;
}

/// Transport service of reliable connections in a REQ.
pub const RELIABLE_CONNECTION: u8 = 0;

/// Request for communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// Identifier of the sender's side of this connection.
    pub local_comm_id: u32,
    /// Who is wanted, see [`service_id`].
    pub service_id: u64,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// Queue pair of the sender, 24 bits.
    pub local_qpn: u32,
    /// READs and atomics that the sender answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that the sender starts at a time.
    pub initiator_depth: u8,
    /// Time in which the receiver must answer: 4.096 µs × 2^n, five bits.
    pub remote_cm_timeout: u8,
    /// Transport service, two bits; see [`RELIABLE_CONNECTION`].
    pub transport: u8,
    /// Starting PSN, 24 bits: the one that the sender of this message wants to receive first, at
    /// which its peer begins to send (IBTA 12.6.5).
    pub starting_psn: u32,
    /// Time in which the sender answers: 4.096 µs × 2^n, five bits.
    pub local_cm_timeout: u8,
    /// Retransmissions that the receiver's queue pair should try, three bits.
    pub retry_count: u8,
    /// Partition key.
    pub partition: u16,
    /// Path MTU as the standard encodes it: 1 = 256 … 5 = 4096.
    pub path_mtu: u8,
    /// Retries after "receiver not ready", three bits; 7 means without end.
    pub rnr_retry_count: u8,
    /// REQs that are sent before giving up, four bits.
    pub max_cm_retries: u8,
    /// Flow label of the path, 20 bits.
    pub flow_label: u32,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Hop limit of the path.
    pub hop_limit: u8,
    /// Local ACK timeout of the sender: 4.096 µs × 2^n, five bits.
    pub ack_timeout: u8,
    /// Port that the sender connects from.
    pub src_port: u16,
    /// Address of the sender.
    pub src: IpAddr,
    /// Address of the receiver, of the same version.
    pub dst: IpAddr,
    /// The consumer's private data.
    pub private: [u8; REQ_PRIVATE_LEN],
}

/// Reply to a [`Req`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rep {
    /// Identifier of the sender's side.
    pub local_comm_id: u32,
    /// Identifier of the receiver's side.
    pub remote_comm_id: u32,
    /// Queue pair of the sender, 24 bits.
    pub local_qpn: u32,
    /// Starting PSN, 24 bits: the one that the sender of this message wants to receive first, at
    /// which its peer begins to send (IBTA 12.6.5).
    pub starting_psn: u32,
    /// READs and atomics that the sender answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that the sender starts at a time.
    pub initiator_depth: u8,
    /// Retries after "receiver not ready", three bits; 7 means without end.
    pub rnr_retry_count: u8,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// The consumer's private data.
    pub private: [u8; REP_PRIVATE_LEN],
}

/// Refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rej {
    /// Identifier of the sender's side; zero if it has none.
    pub local_comm_id: u32,
    /// Identifier of the receiver's side.
    pub remote_comm_id: u32,
    /// What is refused, see [`about`].
    pub message: u8,
    /// Why, see [`reject`].
    pub reason: u16,
    /// Bytes of additional information, [`REJ_INFO_LEN`] at most.
    pub info_len: u8,
    /// Additional reject information; its meaning depends on the reason.
    pub info: [u8; REJ_INFO_LEN],
    /// The consumer's private data.
    pub private: [u8; REJ_PRIVATE_LEN],
}

/// A message that names both sides of a connection and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Identifier of the sender's side.
    pub local_comm_id: u32,
    /// Identifier of the receiver's side.
    pub remote_comm_id: u32,
}

/// Request for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// Both sides.
    pub pair: Pair,
    /// Queue pair of the receiver, 24 bits.
    pub remote_qpn: u32,
}

/// Message receipt acknowledgement: the answer takes longer than the sender of the message expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra {
    /// Both sides.
    pub pair: Pair,
    /// Which message came, see [`about`].
    pub message: u8,
    /// Time in which the answer follows: 4.096 µs × 2^n, five bits.
    pub service_timeout: u8,
}

/// Offer of an alternate path; less what only a receiver that takes it has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    /// Both sides.
    pub pair: Pair,
    /// Queue pair of the receiver, 24 bits.
    pub remote_qpn: u32,
}

/// Answer to a [`Lap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apr {
    /// Both sides.
    pub pair: Pair,
    /// What becomes of the path, see [`alternate`].
    pub status: u8,
}

/// Question for the queue pair of a datagram service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// Names the question.
    pub request: u32,
    /// Partition key.
    pub partition: u16,
    /// Who is wanted.
    pub service_id: u64,
}

/// Answer to a [`SidrReq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// That of the question.
    pub request: u32,
    /// What becomes of it, see [`sidr`].
    pub status: u8,
    /// Queue pair of the service, 24 bits; zero without one.
    pub qpn: u32,
    /// That of the question.
    pub service_id: u64,
    /// Key of the queue pair.
    pub qkey: u32,
}

/// A message of connection management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Request for communication.
    Req(Box<Req>),
    /// Refusal.
    Rej(Box<Rej>),
    /// Reply.
    Rep(Box<Rep>),
    /// Ready to use.
    Rtu(Pair),
    /// Request for the end.
    Dreq(Dreq),
    /// Reply to the end.
    Drep(Pair),
    /// The answer takes longer.
    Mra(Mra),
    /// Offer of an alternate path.
    Lap(Lap),
    /// Answer to it.
    Apr(Apr),
    /// Question for a datagram service.
    SidrReq(SidrReq),
    /// Answer to it.
    SidrRep(SidrRep),
}

mod attribute {
    pub(super) const REQ: u16 = 0x0010;
    pub(super) const MRA: u16 = 0x0011;
    pub(super) const REJ: u16 = 0x0012;
    pub(super) const REP: u16 = 0x0013;
    pub(super) const RTU: u16 = 0x0014;
    pub(super) const DREQ: u16 = 0x0015;
    pub(super) const DREP: u16 = 0x0016;
    pub(super) const SIDR_REQ: u16 = 0x0017;
    pub(super) const SIDR_REP: u16 = 0x0018;
    pub(super) const LAP: u16 = 0x0019;
    pub(super) const APR: u16 = 0x001a;
}

/// A message with the transaction that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Chosen by who began the exchange; answers repeat it.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

impl Mad {
    /// Reads a MAD.
    ///
    /// # Errors
    /// If it is cut, of another class or version, or a message that is not understood.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need(HEADER, bytes, MAD_LEN)?;
        let expected = [
            ("base version", 0, 1),
            ("management class", 1, CLASS),
            ("class version", 2, 2),
            ("method", 3, 3),
        ];
        for (field, at, value) in expected {
            if bytes[at] != value {
                return Err(Error::Field {
                    header: HEADER,
                    field,
                    value: u32::from(bytes[at]),
                });
            }
        }
        let message = Message::parse(be16(bytes, 16), &bytes[MAD_HEADER_LEN..MAD_LEN])?;
        Ok(Self {
            transaction: be64(bytes, 8),
            message,
        })
    }

    /// The MAD's bytes.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        put(&mut bytes, 0, [1, CLASS, 2, 3]);
        put(&mut bytes, 8, self.transaction.to_be_bytes());
        let attribute = self.message.emit(&mut bytes[MAD_HEADER_LEN..]);
        put(&mut bytes, 16, attribute.to_be_bytes());
        bytes
    }
}

impl Message {
    fn parse(attribute: u16, body: &[u8]) -> Result<Self> {
        let pair = Pair {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
        };
        Ok(match attribute {
            attribute::REQ => Self::Req(Box::new(Req::parse(body)?)),
            attribute::REJ => Self::Rej(Box::new(Rej::parse(body, pair))),
            attribute::REP => Self::Rep(Box::new(Rep::parse(body, pair))),
            attribute::RTU => Self::Rtu(pair),
            attribute::DREQ => Self::Dreq(Dreq {
                pair,
                remote_qpn: be24(body, 8),
            }),
            attribute::DREP => Self::Drep(pair),
            attribute::MRA => Self::Mra(Mra {
                pair,
                message: body[8] >> 6,
                service_timeout: body[9] >> 3,
            }),
            attribute::LAP => Self::Lap(Lap {
                pair,
                remote_qpn: be24(body, 12),
            }),
            attribute::APR => Self::Apr(Apr {
                pair,
                status: body[9],
            }),
            attribute::SIDR_REQ => Self::SidrReq(SidrReq {
                request: be32(body, 0),
                partition: be16(body, 4),
                service_id: be64(body, 8),
            }),
            attribute::SIDR_REP => Self::SidrRep(SidrRep {
                request: be32(body, 0),
                status: body[4],
                qpn: be24(body, 8),
                service_id: be64(body, 12),
                qkey: be32(body, 20),
            }),
            other => {
                let value = u32::from(other);
                return Err(Error::Field {
                    header: HEADER,
                    field: "attribute",
                    value,
                });
            }
        })
    }

    /// Writes the message into `body` and returns its attribute.
    fn emit(&self, body: &mut [u8]) -> u16 {
        match self {
            Self::Req(req) => {
                req.emit(body);
                attribute::REQ
            }
            Self::Rej(rej) => {
                rej.emit(body);
                attribute::REJ
            }
            Self::Rep(rep) => {
                rep.emit(body);
                attribute::REP
            }
            Self::Rtu(pair) => {
                pair.emit(body);
                attribute::RTU
            }
            Self::Dreq(dreq) => {
                dreq.pair.emit(body);
                put24(body, 8, dreq.remote_qpn);
                attribute::DREQ
            }
            Self::Drep(pair) => {
                pair.emit(body);
                attribute::DREP
            }
            Self::Mra(mra) => {
                mra.pair.emit(body);
                body[8] = mra.message << 6;
                body[9] = mra.service_timeout << 3;
                attribute::MRA
            }
            Self::Lap(lap) => {
                lap.pair.emit(body);
                put24(body, 12, lap.remote_qpn);
                attribute::LAP
            }
            Self::Apr(apr) => {
                apr.pair.emit(body);
                body[9] = apr.status;
                attribute::APR
            }
            Self::SidrReq(question) => {
                put(body, 0, question.request.to_be_bytes());
                put(body, 4, question.partition.to_be_bytes());
                put(body, 8, question.service_id.to_be_bytes());
                attribute::SIDR_REQ
            }
            Self::SidrRep(answer) => {
                put(body, 0, answer.request.to_be_bytes());
                body[4] = answer.status;
                put24(body, 8, answer.qpn);
                put(body, 12, answer.service_id.to_be_bytes());
                put(body, 20, answer.qkey.to_be_bytes());
                attribute::SIDR_REP
            }
        }
    }
}

impl Pair {
    fn emit(self, body: &mut [u8]) {
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 4, self.remote_comm_id.to_be_bytes());
    }
}

/// An address as a GID: IPv4 is mapped into IPv6 (annex A17.5.1).
fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Req {
    fn parse(body: &[u8]) -> Result<Self> {
        let private = &body[140..];
        if private[0] >> 4 != 0 {
            return Err(Error::Field {
                header: HEADER,
                field: "version of the IP CM header",
                value: u32::from(private[0] >> 4),
            });
        }
        let address = |at: usize| match private[1] >> 4 {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(array::<4>(private, at + 12)))),
            6 => Ok(IpAddr::V6(Ipv6Addr::from(array::<16>(private, at)))),
            other => Err(Error::Field {
                header: HEADER,
                field: "ip version",
                value: u32::from(other),
            }),
        };
        Ok(Self {
            local_comm_id: be32(body, 0),
            service_id: be64(body, 8),
            ca_guid: be64(body, 16),
            local_qpn: be24(body, 32),
            responder_resources: body[35],
            initiator_depth: body[39],
            remote_cm_timeout: body[43] >> 3,
            transport: body[43] >> 1 & 3,
            starting_psn: be24(body, 44),
            local_cm_timeout: body[47] >> 3,
            retry_count: body[47] & 7,
            partition: be16(body, 48),
            path_mtu: body[50] >> 4,
            rnr_retry_count: body[50] & 7,
            max_cm_retries: body[51] >> 4,
            flow_label: be32(body, 88) >> 12,
            traffic_class: body[92],
            hop_limit: body[93],
            ack_timeout: body[95] >> 3,
            src_port: be16(private, 2),
            src: address(4)?,
            dst: address(20)?,
            private: array(private, IP_HEADER_LEN),
        })
    }

    fn emit(&self, body: &mut [u8]) {
        /// Local identifier that RoCE puts where InfiniBand has a LID.
        const PERMISSIVE_LID: [u8; 2] = [0xff, 0xff];
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 8, self.service_id.to_be_bytes());
        put(body, 16, self.ca_guid.to_be_bytes());
        put24(body, 32, self.local_qpn);
        body[35] = self.responder_resources;
        body[39] = self.initiator_depth;
        body[43] = self.remote_cm_timeout << 3 | (self.transport & 3) << 1;
        put24(body, 44, self.starting_psn);
        body[47] = self.local_cm_timeout << 3 | self.retry_count & 7;
        put(body, 48, self.partition.to_be_bytes());
        body[50] = self.path_mtu << 4 | self.rnr_retry_count & 7;
        body[51] = self.max_cm_retries << 4;
        put(body, 52, PERMISSIVE_LID);
        put(body, 54, PERMISSIVE_LID);
        put(body, 56, gid(self.src));
        put(body, 72, gid(self.dst));
        put(body, 88, (self.flow_label << 12).to_be_bytes());
        body[92] = self.traffic_class;
        body[93] = self.hop_limit;
        // The path does not leave the subnet as InfiniBand knows subnets.
        body[94] = 1 << 3;
        body[95] = self.ack_timeout << 3;
        let private = &mut body[140..];
        private[1] = if self.src.is_ipv4() { 4 << 4 } else { 6 << 4 };
        put(private, 2, self.src_port.to_be_bytes());
        for (at, address) in [(4, self.src), (20, self.dst)] {
            match address {
                IpAddr::V4(v4) => put(private, at + 12, v4.octets()),
                IpAddr::V6(v6) => put(private, at, v6.octets()),
            }
        }
        put(private, IP_HEADER_LEN, self.private);
    }
}

impl Rep {
    fn parse(body: &[u8], pair: Pair) -> Self {
        Self {
            local_comm_id: pair.local_comm_id,
            remote_comm_id: pair.remote_comm_id,
            local_qpn: be24(body, 12),
            starting_psn: be24(body, 20),
            responder_resources: body[24],
            initiator_depth: body[25],
            rnr_retry_count: body[27] >> 5,
            ca_guid: be64(body, 28),
            private: array(body, 36),
        }
    }

    fn emit(&self, body: &mut [u8]) {
        let pair = Pair {
            local_comm_id: self.local_comm_id,
            remote_comm_id: self.remote_comm_id,
        };
        pair.emit(body);
        put24(body, 12, self.local_qpn);
        put24(body, 20, self.starting_psn);
        body[24] = self.responder_resources;
        body[25] = self.initiator_depth;
        body[27] = self.rnr_retry_count << 5;
        put(body, 28, self.ca_guid.to_be_bytes());
        put(body, 36, self.private);
    }
}

impl Rej {
    fn parse(body: &[u8], pair: Pair) -> Self {
        Self {
            local_comm_id: pair.local_comm_id,
            remote_comm_id: pair.remote_comm_id,
            message: body[8] >> 6,
            reason: be16(body, 10),
            info_len: (body[9] >> 1).min(REJ_INFO_MAX),
            info: array(body, 12),
            private: array(body, 12 + REJ_INFO_LEN),
        }
    }

    fn emit(&self, body: &mut [u8]) {
        let pair = Pair {
            local_comm_id: self.local_comm_id,
            remote_comm_id: self.remote_comm_id,
        };
        pair.emit(body);
        body[8] = self.message << 6;
        body[9] = self.info_len.min(REJ_INFO_MAX) << 1;
        put(body, 10, self.reason.to_be_bytes());
        put(body, 12, self.info);
        put(body, 12 + REJ_INFO_LEN, self.private);
    }
}

#[cfg(test)]
mod tests;
