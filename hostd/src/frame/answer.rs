//! \[6\] Answers to RDMA READs and atomic operations: what they say, written and read.

use super::data::{PathFields, Position};
use super::parse::ReceivedPacket;
use crate::verbs::Psn;
use common::time::Time;
use common::wire::roce::{AckKind, Aeth, Bth, Headers, Opcode, Operation};

/// What an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Payload of an RDMA READ; where it lies in what was asked for.
    Read(Position),
    /// What an atomic operation found.
    Atomic(u64),
}

/// What an answer says, less the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerFields {
    pub(crate) kind: AnswerKind,
    /// The peer's queue pair.
    pub(crate) destination_qpn: u32,
    pub(crate) psn: Psn,
    /// Messages completed up to the one that is answered, modulo 2²⁴.
    pub(crate) msn: u32,
    /// Messages that a plain peer may send beyond those that are complete.
    pub(crate) credits: u32,
    /// What MPEH says of the path; `None` with a plain peer.
    pub(crate) multipath: Option<PathFields>,
}

impl AnswerFields {
    /// The headers that say it.
    pub(crate) fn headers(&self, now: Time) -> Headers {
        let operation = match self.kind {
            AnswerKind::Read(Position::First) => Operation::ReadResponseFirst,
            AnswerKind::Read(Position::Middle) => Operation::ReadResponseMiddle,
            AnswerKind::Read(Position::Last) => Operation::ReadResponseLast,
            AnswerKind::Read(Position::Only) => Operation::ReadResponseOnly,
            AnswerKind::Atomic(_) => Operation::AtomicAcknowledge,
        };
        let opcode = match self.multipath {
            Some(_) => Opcode::Multipath(operation),
            None => Opcode::Rc(operation),
        };
        let mut headers = Headers::new(Bth::new(opcode, self.destination_qpn, self.psn.value()));
        headers.mpeh = self.multipath.map(|path| path.header(now));
        if operation.has_aeth() {
            headers.aeth = Some(Aeth {
                kind: AckKind::Ack {
                    credits: match self.multipath {
                        Some(_) => Aeth::NO_CREDIT_LIMIT,
                        None => Aeth::credit_code(self.credits),
                    },
                },
                msn: self.msn,
            });
        }
        if let AnswerKind::Atomic(original) = self.kind {
            headers.atomic_original = Some(original);
        }
        headers
    }
}

/// An answer as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingAnswer<'a> {
    pub(crate) psn: Psn,
    /// Path that it came on.
    pub(crate) path: u8,
    /// Whether it has an MPEH.
    pub(crate) multipath: bool,
    /// What an atomic operation found; `None`: the answer is to an RDMA READ.
    pub(crate) original: Option<u64>,
    /// It says that the request was done; what refuses one comes as an acknowledgement.
    pub(crate) positive: bool,
    /// A switch marked it.
    pub(crate) congested: bool,
    pub(crate) payload: &'a [u8],
}

impl<'a> IncomingAnswer<'a> {
    /// What an answer in `frame` says. Of an RDMA READ's answers FIRST, MIDDLE, LAST and ONLY are
    /// alike: its place follows from its sequence number, and repeated ones differ in this.
    pub(crate) fn read(packet: &ReceivedPacket, frame: &'a [u8]) -> Self {
        let headers = &packet.headers;
        Self {
            psn: Psn::new(headers.bth.psn),
            path: headers.mpeh.map_or(0, |mpeh| mpeh.path),
            multipath: headers.mpeh.is_some(),
            original: headers.atomic_original,
            positive: headers
                .aeth
                .is_none_or(|aeth| matches!(aeth.kind, AckKind::Ack { .. })),
            congested: packet.congested,
            payload: frame.get(packet.payload.clone()).unwrap_or_default(),
        }
    }
}
