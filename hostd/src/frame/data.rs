//! \[6\] Data packets: what their headers say, written and read.

use super::parse::ReceivedPacket;
use super::timestamp;
use crate::limits;
use crate::verbs::{ATOMIC_LEN, AtomicOperation, Psn, SendOpcode, SendRequest};
use common::time::Time;
use common::wire::csig::{Form, Tag};
use common::wire::roce::{AtomicEth, Bth, DataFlags, Headers, Hint, Mpeh, Opcode, Operation, Reth};
use std::ops::Range;

/// Where in its message a segment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether the message begins here.
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether the message ends here.
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

impl SendOpcode {
    /// Whether a segment at `position` carries the immediate data.
    pub(crate) const fn imm_at(self, position: Position) -> bool {
        self.has_imm() && position.ends()
    }

    /// Whether a segment at `position` names a key that the peer invalidates.
    pub(crate) const fn invalidates_at(self, position: Position) -> bool {
        matches!(self, Self::SendWithInv) && position.ends()
    }

    /// Whether a segment at `position` names the peer's memory.
    pub(crate) const fn address_at(self, position: Position) -> bool {
        self.is_write() && position.begins()
    }
}

/// A segment as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingSegment<'a> {
    /// Whether it is of an RDMA WRITE; of a SEND otherwise.
    pub(crate) write: bool,
    /// Where in its message it lies.
    pub(crate) position: Position,
    /// The peer's view of this host's memory: address, key, length.
    pub(crate) target: Option<(u64, u32, u32)>,
    /// Immediate data.
    pub(crate) imm: Option<u32>,
    /// Key of this host that it invalidates.
    pub(crate) invalidate: Option<u32>,
    /// The peer asks for a solicited event.
    pub(crate) solicited: bool,
    /// What it carries.
    pub(crate) payload: &'a [u8],
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
    /// UDP source port and flow label, which led it here.
    pub(crate) entropy: (u16, u32),
    /// A switch marked it.
    pub(crate) congested: bool,
    /// Its CSIG tag.
    pub(crate) signal: Option<(Form, Tag)>,
    solicited: bool,
    /// `None`: an operation that queue pairs do not do.
    operation: Option<(bool, Position)>,
    target: Option<(u64, u32, u32)>,
    imm: Option<u32>,
    invalidate: Option<u32>,
    /// What it asks for, if it asks for an answer.
    question: Option<Question>,
    payload: Range<usize>,
}

/// What a request asks for that is answered with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// An RDMA READ.
    Read,
    /// An atomic operation.
    Atomic(AtomicOperation),
}

/// A request that is answered with data, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncomingQuestion {
    pub(crate) question: Question,
    /// The peer's view of this host's memory.
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    /// Bytes that are asked for.
    pub(crate) len: u32,
}

impl DataHeader {
    /// What a data packet says; `operation` is that of its opcode.
    pub(crate) fn new(packet: &ReceivedPacket, operation: Operation) -> Self {
        let headers = &packet.headers;
        let mpeh = headers.mpeh.unwrap_or_default();
        Self {
            psn: Psn::new(headers.bth.psn),
            ack_request: headers.bth.ack_request,
            path: mpeh.path,
            flowlet: mpeh.flowlet,
            tag: mpeh.tag,
            probe: mpeh.has(DataFlags::PROBE),
            entropy: packet.entropy,
            congested: packet.congested,
            signal: packet.signal,
            solicited: headers.bth.solicited,
            operation: data_operation(operation),
            target: headers
                .reth
                .map(|reth| (reth.address, reth.rkey, reth.len))
                .or_else(|| headers.atomic.map(|to| (to.address, to.rkey, ATOMIC_LEN))),
            imm: headers.immediate,
            invalidate: headers.invalidate,
            question: question(operation, headers),
            payload: packet.payload.clone(),
        }
    }

    /// What the packet asks for, if it is to be answered with data.
    pub(crate) fn question(&self) -> Option<IncomingQuestion> {
        let (address, rkey, len) = self.target?;
        Some(IncomingQuestion {
            question: self.question?,
            address,
            rkey,
            len,
        })
    }

    /// Sequence numbers that the packet takes with packets of `mtu` bytes: a READ takes those of
    /// its answers (InfiniBand 9.4.4).
    pub(crate) fn packets(&self, mtu: u16) -> u32 {
        match (self.question, self.target) {
            (Some(Question::Read), Some((_, _, len))) => {
                let len = len.min(limits::MESSAGE);
                len.div_ceil(u32::from(mtu.max(1))).max(1)
            }
            _ => 1,
        }
    }

    /// The segment that the packet carries; `None` if its operation is not known here.
    pub(crate) fn segment<'a>(&self, frame: &'a [u8]) -> Option<IncomingSegment<'a>> {
        let (write, position) = self.operation?;
        Some(IncomingSegment {
            write,
            position,
            target: self.target,
            imm: self.imm,
            invalidate: self.invalidate,
            solicited: self.solicited,
            payload: frame.get(self.payload.clone())?,
        })
    }

    /// Where in its message the segment lies that the packet carries.
    pub(crate) fn position(&self) -> Option<Position> {
        self.operation.map(|(_, position)| position)
    }

    /// Bytes of payload.
    pub(crate) fn len(&self) -> usize {
        self.payload.len()
    }
}

/// What an operation asks for.
fn question(operation: Operation, headers: &Headers) -> Option<Question> {
    let atomic = headers.atomic;
    Some(match operation {
        Operation::ReadRequest => Question::Read,
        Operation::CompareSwap => Question::Atomic(AtomicOperation::CompareSwap {
            compare: atomic?.compare,
            swap: atomic?.swap_or_add,
        }),
        Operation::FetchAdd => Question::Atomic(AtomicOperation::FetchAdd(atomic?.swap_or_add)),
        _ => return None,
    })
}

/// Whether an operation is a WRITE, and where in its message the segment lies.
fn data_operation(operation: Operation) -> Option<(bool, Position)> {
    use Operation as O;
    use Position::{First, Last, Middle, Only};
    Some(match operation {
        O::SendFirst => (false, First),
        O::SendMiddle => (false, Middle),
        O::SendLast | O::SendLastImmediate | O::SendLastInvalidate => (false, Last),
        O::SendOnly | O::SendOnlyImmediate | O::SendOnlyInvalidate => (false, Only),
        O::WriteFirst => (true, First),
        O::WriteMiddle => (true, Middle),
        O::WriteLast | O::WriteLastImmediate => (true, Last),
        O::WriteOnly | O::WriteOnlyImmediate => (true, Only),
        _ => return None,
    })
}

fn operation_of(opcode: SendOpcode, position: Position) -> Operation {
    use Operation as O;
    use Position::{First, Last, Middle, Only};
    match opcode {
        SendOpcode::RdmaRead => return O::ReadRequest,
        SendOpcode::AtomicCmpAndSwp => return O::CompareSwap,
        SendOpcode::AtomicFetchAndAdd => return O::FetchAdd,
        SendOpcode::SendWithInv if position == Last => return O::SendLastInvalidate,
        SendOpcode::SendWithInv if position == Only => return O::SendOnlyInvalidate,
        _ => {}
    }
    let imm = opcode.imm_at(position);
    match (opcode.is_write(), position, imm) {
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

/// What a data packet says, less the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataFields<'a> {
    /// The request that it carries a segment of.
    pub(crate) request: &'a SendRequest,
    /// Where in the message the segment lies.
    pub(crate) position: Position,
    /// What the packet names of the peer's memory, if it names some: where that begins in the
    /// message, and its bytes.
    pub(crate) names: (u32, u32),
    /// The peer's queue pair.
    pub(crate) destination_qpn: u32,
    pub(crate) psn: Psn,
    /// The peer is asked to acknowledge at once (AckReq).
    pub(crate) ack_request: bool,
    /// What MPEH says of the path; `None` with a plain peer.
    pub(crate) multipath: Option<PathFields>,
}

/// What MPEH says of a data packet's path (HT-11).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathFields {
    /// Path ID.
    pub(crate) path: u8,
    /// Flowlet that the packet belongs to; 0 if there are none.
    pub(crate) flowlet: u16,
    /// First packet of its flowlet (flag F).
    pub(crate) boundary: bool,
    /// First packet after the sub-path changed (flag S).
    pub(crate) switched: bool,
    /// Sent to learn what becomes of it (flag P).
    pub(crate) probe: bool,
    /// What the application tells of its traffic.
    pub(crate) hint: Hint,
}

impl DataFields<'_> {
    /// The headers that say it.
    pub(crate) fn headers(&self, now: Time) -> Headers {
        let (request, position) = (self.request, self.position);
        let operation = operation_of(request.opcode, position);
        let opcode = match self.multipath {
            Some(_) => Opcode::Multipath(operation),
            None => Opcode::Rc(operation),
        };
        let mut bth = Bth::new(opcode, self.destination_qpn, self.psn.value());
        bth.ack_request = self.ack_request;
        // Only what completes at the peer can be solicited (IBTA 9.2.3).
        bth.solicited = request.solicited && request.opcode.takes_receive() && position.ends();
        let mut headers = Headers::new(bth);
        headers.mpeh = self.multipath.map(|path| path.header(now));
        if request.opcode.address_at(position) || request.opcode == SendOpcode::RdmaRead {
            let (offset, len) = self.names;
            headers.reth = Some(Reth {
                address: request.remote_addr.wrapping_add(u64::from(offset)),
                rkey: request.rkey,
                len,
            });
        }
        match request.opcode {
            SendOpcode::AtomicCmpAndSwp => {
                headers.atomic = Some(atomic(request, request.swap, request.compare_add));
            }
            SendOpcode::AtomicFetchAndAdd => {
                headers.atomic = Some(atomic(request, request.compare_add, 0));
            }
            _ => {}
        }
        if request.opcode.imm_at(position) {
            headers.immediate = Some(request.imm);
        }
        if request.opcode.invalidates_at(position) {
            headers.invalidate = Some(request.imm);
        }
        headers
    }
}

fn atomic(request: &SendRequest, swap_or_add: u64, compare: u64) -> AtomicEth {
    AtomicEth {
        address: request.remote_addr,
        rkey: request.rkey,
        swap_or_add,
        compare,
    }
}

impl PathFields {
    pub(super) fn header(&self, now: Time) -> Mpeh {
        let flag = |set: bool, mask: u8| if set { mask } else { 0 };
        Mpeh {
            path: self.path,
            flags: flag(self.boundary, DataFlags::FLOWLET_BOUNDARY)
                | flag(self.switched, DataFlags::PATH_SWITCH)
                | flag(self.probe, DataFlags::PROBE),
            flowlet: self.flowlet,
            tag: self.hint.tag(timestamp(now)),
        }
    }
}
