//! Frames to what they mean and back: the transport's view of [`common::wire`].

use crate::bit_set::BitSet;
use crate::connection::sender::Acknowledgement;
use crate::path::{Choice, Entropy};
use crate::receive::Receiver;
use crate::receive::report::{Report, timestamp};
use crate::receive::respond::{Arrival, Refusal};
use crate::send::queue::{Position, Segment};
use crate::verbs::Psn;
use crate::verbs::{DropReason, Route};
use common::time::Time;
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::ip::{protocol, v4, v6};
use common::wire::roce::frame::Addresses;
use common::wire::roce::{
    AckFlags, AckKind, Aeth, Bth, DataFlags, Flow, Headers, Mpeh, NakCode, Opcode, Operation, Reth,
    Sack, icrc,
};
use common::wire::udp;
use std::net::IpAddr;
use std::ops::Range;

/// A RoCEv2 packet whose headers and checksum are right.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) headers: Headers,
    /// Where in the frame the payload is.
    pub(crate) payload: Range<usize>,
}

impl Packet {
    /// Reads an Ethernet frame. Without `has_bytes` the payload of data packets counts as zeros.
    pub(crate) fn parse(frame: &[u8], has_bytes: bool) -> Result<Self, DropReason> {
        let (source, destination, ip, transport) = parse_network(frame)?;
        let datagram = frame
            .get(transport.clone())
            .and_then(|bytes| udp::Datagram::new_checked(bytes).ok())
            .ok_or(DropReason::MalformedHeaders)?;
        if datagram.dst_port() != udp::ROCE_PORT {
            return Err(DropReason::NotRoce);
        }
        // The ICRC ends the IP packet, so nothing may follow the datagram.
        if datagram.len() != transport.len() {
            return Err(DropReason::MalformedHeaders);
        }
        let (headers, payload) = Headers::parse(datagram.payload()).map_err(|error| {
            let opcode = matches!(
                error,
                common::wire::Error::Field {
                    field: "opcode",
                    ..
                }
            );
            if opcode {
                DropReason::UnknownOpcode
            } else {
                DropReason::MalformedTransport
            }
        })?;
        let start = transport.start + udp::HEADER_LEN;
        let payload = start + payload.start..start + payload.end;
        let zeros = if has_bytes || headers.bth.opcode == Opcode::UdSendOnly {
            0..0
        } else {
            payload.start - ip.start..payload.end - ip.start
        };
        icrc::verify_sparse(&frame[ip], zeros).map_err(|_| DropReason::BadIcrc)?;
        Ok(Self {
            source,
            destination,
            headers,
            payload,
        })
    }
}

/// Addresses of an IP packet in a frame, where it is, and where its UDP datagram is.
type Network = (IpAddr, IpAddr, Range<usize>, Range<usize>);

fn parse_network(frame: &[u8]) -> Result<Network, DropReason> {
    const MALFORMED: DropReason = DropReason::MalformedHeaders;
    let start = ethernet::HEADER_LEN;
    let ethernet = ethernet::Frame::new_checked(frame).map_err(|_| MALFORMED)?;
    match ethernet.ethertype() {
        ethertype::IPV4 => {
            let ip = v4::Packet::new_checked(ethernet.payload()).map_err(|_| MALFORMED)?;
            if ip.is_fragment() || !ip.verify_checksum() {
                return Err(MALFORMED);
            }
            if ip.protocol() != protocol::UDP {
                return Err(DropReason::NotRoce);
            }
            let end = start + ip.total_len();
            let transport = start + ip.header_len()..end;
            Ok((ip.src().into(), ip.dst().into(), start..end, transport))
        }
        ethertype::IPV6 => {
            let ip = v6::Packet::new_checked(ethernet.payload()).map_err(|_| MALFORMED)?;
            // RoCEv2 has no extension headers: the ICRC would not know them.
            if ip.next_header() != protocol::UDP {
                return Err(DropReason::NotRoce);
            }
            let end = start + v6::HEADER_LEN + ip.payload_len();
            let transport = start + v6::HEADER_LEN..end;
            Ok((ip.src().into(), ip.dst().into(), start..end, transport))
        }
        _ => Err(DropReason::NotRoce),
    }
}

/// A data packet, less its payload: what waits in the reorder ring beside the frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataHeader {
    pub(crate) psn: Psn,
    pub(crate) ack_request: bool,
    pub(crate) path: u8,
    pub(crate) flowlet: u16,
    pub(crate) tag: u16,
    pub(crate) probe: bool,
    solicited: bool,
    /// `None`: an operation that queue pairs do not do.
    operation: Option<(bool, Position)>,
    target: Option<(u64, u32, u32)>,
    imm: Option<u32>,
    payload: Range<usize>,
}

impl DataHeader {
    /// What a data packet says; `operation` is that of its opcode.
    pub(crate) fn new(packet: &Packet, operation: Operation) -> Self {
        let headers = &packet.headers;
        let mpeh = headers.mpeh.unwrap_or_default();
        Self {
            psn: Psn::new(headers.bth.psn),
            ack_request: headers.bth.ack_request,
            path: mpeh.path,
            flowlet: mpeh.flowlet,
            tag: mpeh.tag,
            probe: mpeh.has(DataFlags::PROBE),
            solicited: headers.bth.solicited,
            operation: data_operation(operation),
            target: headers.reth.map(|reth| (reth.address, reth.rkey, reth.len)),
            imm: headers.immediate,
            payload: packet.payload.clone(),
        }
    }

    /// The segment that the packet carries; `None` if its operation is not known here.
    pub(crate) fn arrival<'a>(&self, frame: &'a [u8]) -> Option<Arrival<'a>> {
        let (write, position) = self.operation?;
        Some(Arrival {
            write,
            position,
            target: self.target,
            imm: self.imm,
            solicited: self.solicited,
            payload: frame.get(self.payload.clone())?,
        })
    }

    /// Bytes of payload.
    pub(crate) fn len(&self) -> usize {
        self.payload.len()
    }
}

/// Whether an operation is a WRITE, and where in its message the segment lies.
fn data_operation(operation: Operation) -> Option<(bool, Position)> {
    use Operation as O;
    use Position::{First, Last, Middle, Only};
    Some(match operation {
        O::SendFirst => (false, First),
        O::SendMiddle => (false, Middle),
        O::SendLast | O::SendLastImmediate => (false, Last),
        O::SendOnly | O::SendOnlyImmediate => (false, Only),
        O::WriteFirst => (true, First),
        O::WriteMiddle => (true, Middle),
        O::WriteLast | O::WriteLastImmediate => (true, Last),
        O::WriteOnly | O::WriteOnlyImmediate => (true, Only),
        _ => return None,
    })
}

fn operation_of(segment: &Segment) -> Operation {
    use Operation as O;
    use Position::{First, Last, Middle, Only};
    let imm = segment.request.opcode.imm_at(segment.position);
    match (segment.request.opcode.is_write(), segment.position, imm) {
        (false, First, _) => O::SendFirst,
        (false, Middle, _) => O::SendMiddle,
        (false, Last, false) => O::SendLast,
        (false, Last, true) => O::SendLastImmediate,
        (false, Only, false) => O::SendOnly,
        (false, Only, true) => O::SendOnlyImmediate,
        (true, First, _) => O::WriteFirst,
        (true, Middle, _) => O::WriteMiddle,
        (true, Last, false) => O::WriteLast,
        (true, Last, true) => O::WriteLastImmediate,
        (true, Only, false) => O::WriteOnly,
        (true, Only, true) => O::WriteOnlyImmediate,
    }
}

fn opcode(operation: Operation, multipath: bool) -> Opcode {
    if multipath {
        Opcode::Multipath(operation)
    } else {
        Opcode::Rc(operation)
    }
}

/// What a data packet says besides its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) destination_qpn: u32,
    pub(crate) psn: Psn,
    pub(crate) choice: Choice,
    pub(crate) ack_request: bool,
    pub(crate) probe: bool,
    pub(crate) multipath: bool,
}

/// The headers of a data packet.
pub(crate) fn data_headers(segment: &Segment, sending: &Sending, now: Time) -> Headers {
    let request = &segment.request;
    let operation = operation_of(segment);
    let mut bth = Bth::new(
        opcode(operation, sending.multipath),
        sending.destination_qpn,
        sending.psn.value(),
    );
    bth.ack_request = sending.ack_request;
    bth.solicited = request.solicited && segment.position.ends();
    let mut headers = Headers::new(bth);
    if sending.multipath {
        let flag = |set: bool, mask: u8| if set { mask } else { 0 };
        headers.mpeh = Some(Mpeh {
            path: sending.choice.path,
            flags: flag(sending.choice.boundary, DataFlags::FLOWLET_BOUNDARY)
                | flag(sending.choice.switched, DataFlags::PATH_SWITCH)
                | flag(sending.probe || sending.choice.fresh, DataFlags::PROBE),
            flowlet: sending.choice.flowlet,
            tag: timestamp(now),
        });
    }
    if request.opcode.address_at(segment.position) {
        headers.reth = Some(Reth {
            address: request.remote_addr,
            rkey: request.rkey,
            len: request.len,
        });
    }
    if request.opcode.imm_at(segment.position) {
        headers.immediate = Some(request.imm);
    }
    headers
}

/// The headers of the acknowledgement that `receiver` has to send.
pub(crate) fn ack_headers(
    receiver: &Receiver,
    destination_qpn: u32,
    min_rnr_timer: u8,
    loss: bool,
) -> Headers {
    let reports = &receiver.reports;
    let multipath = receiver.reorders();
    let expected = receiver.expected();
    let kind = match reports.report {
        Report::Acknowledge => AckKind::Ack {
            credits: Aeth::NO_CREDIT_LIMIT,
        },
        Report::SequenceError => AckKind::Nak(NakCode::PsnSequenceError),
        Report::NotReady => AckKind::ReceiverNotReady {
            timer: min_rnr_timer,
        },
        Report::Refused(refusal) => AckKind::Nak(match refusal {
            Refusal::InvalidRequest => NakCode::InvalidRequest,
            Refusal::RemoteAccess => NakCode::RemoteAccessError,
            Refusal::RemoteOperation => NakCode::RemoteOperationalError,
        }),
    };
    // An ACK names the last packet that came in order, a NAK the one it is about. With multipath
    // the bitmap always begins after the last one in order.
    let psn = match kind {
        AckKind::Nak(_) | AckKind::ReceiverNotReady { .. } if !multipath => expected,
        _ => expected.minus(1),
    };
    let bth = Bth::new(
        opcode(Operation::Acknowledge, multipath),
        destination_qpn,
        psn.value(),
    );
    let mut headers = Headers::new(bth);
    headers.aeth = Some(Aeth {
        kind,
        msn: receiver.msn(),
    });
    if multipath {
        let flag = |set: bool, mask: u8| if set { mask } else { 0 };
        headers.mpeh = Some(Mpeh {
            path: reports.trigger.path,
            flags: flag(reports.reordered, AckFlags::REORDER)
                | flag(loss, AckFlags::LOSS)
                | flag(reports.trigger.probe, AckFlags::PROBE_RESPONSE),
            flowlet: reports.flowlet,
            tag: reports.trigger.delay,
        });
        headers.sack = Some(Sack {
            bitmap: receiver.came(),
            trigger: reports.trigger.psn.value(),
        });
    }
    headers
}

/// What an acknowledgement says to the sender.
pub(crate) fn acknowledgement(headers: &Headers, aeth: &Aeth) -> Acknowledgement {
    let psn = Psn::new(headers.bth.psn);
    let (Some(sack), Some(mpeh)) = (headers.sack, headers.mpeh) else {
        let expected = match aeth.kind {
            AckKind::Ack { .. } => psn.plus(1),
            AckKind::ReceiverNotReady { .. } | AckKind::Nak(_) => psn,
        };
        return Acknowledgement {
            expected,
            came: BitSet::default(),
            trigger: expected.minus(1),
            loss: false,
        };
    };
    let [a, b, c, d] = sack.bitmap;
    Acknowledgement {
        expected: psn.plus(1),
        came: BitSet::from_words([a, b, c, d, 0, 0, 0, 0]),
        trigger: Psn::new(sack.trigger),
        loss: mpeh.has(AckFlags::LOSS),
    }
}

/// Where packets go, less what differs from path to path.
pub(crate) fn flow(route: &Route, destination: IpAddr, traffic_class: u8) -> Option<Flow> {
    /// Hop limit of what hosts send (the default of Linux).
    const TTL: u8 = 64;
    Some(Flow {
        src_mac: Mac(route.source_mac),
        dst_mac: Mac(route.destination_mac),
        addresses: Addresses::new(route.source, destination)?,
        src_port: 0,
        flow_label: 0,
        traffic_class,
        ttl: TTL,
    })
}

/// `flow` on the path of `entropy`.
pub(crate) fn on_path(flow: &Flow, entropy: Entropy) -> Flow {
    Flow {
        src_port: entropy.port,
        flow_label: entropy.flow_label,
        ..*flow
    }
}
