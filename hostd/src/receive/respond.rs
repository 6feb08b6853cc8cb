//! \[10\] Segments, in order, into messages: how each continues the message, and what is reported
//! to the peer and the application.
//!
//! ```text
//!              SEND First                          SEND Last
//!          ┌──────────────▶ Send ◀──┐ Middle  ─────────────────┐
//!   Idle ──┤                  └─────┘                          ├──▶ Idle
//!    ▲ │   └──────────────▶ Write ◀─┐ Middle  ─────────────────┘
//!    └─┘     WRITE First      └─────┘              WRITE Last
//!    Only
//! ```
//!
//! A segment that does not fit the state or its length is refused (InfiniBand 9.7.4.1): the peer
//! gets a NAK, and the queue pair fails. One that needs a receive when none is posted changes
//! nothing. One that is early, and certain to be right, is put into memory at once, and counted in
//! its turn (HT-40).

use super::place::Place;
use super::posted::ReceiveQueue;
use crate::frame::{IncomingSegment, Position, Refusal};
use crate::limits;
use crate::memory::{Part, RegionMemory, RegionTable};
use crate::verbs::{Access, Completion, CompletionOpcode, ReceiveRequest, Status};

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was taken; the message goes on.
    Taken,
    /// It was taken and ended a message; a receive completes, except for a plain WRITE.
    Finished(Option<Completion>),
    /// It needs a receive, and none is posted. Nothing changed.
    NotReady,
    /// It is refused; a receive that it had taken completes with an error.
    Refused(Refusal, Option<Completion>),
}

/// What packets of the peer may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// The protection domain of the queue pair.
    pub(crate) domain: u32,
    /// What peers may do through this queue pair.
    pub(crate) access: Access,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u16,
    /// The queue pair's own number, for completions.
    pub(crate) qpn: u32,
}

/// Where messages go.
#[derive(Debug)]
pub(crate) struct Target<'a, M> {
    pub(crate) regions: &'a RegionTable<M>,
    pub(crate) receives: &'a mut ReceiveQueue,
    /// Of the receive that a SEND is placed in, if it has several.
    pub(crate) parts: &'a mut Vec<Part>,
    pub(crate) rights: Rights,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Assembly {
    /// None.
    #[default]
    Idle,
    /// A SEND, into a posted receive.
    Send {
        /// The receive.
        receive: ReceiveRequest,
        /// Its memory.
        memory: Place,
        /// Bytes so far.
        received: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// The memory that the peer named.
        memory: Place,
        /// Bytes that the peer announced.
        total: u32,
        /// Bytes so far.
        received: u32,
    },
}

impl Assembly {
    /// Takes the next segment in order.
    pub(crate) fn accept<M: RegionMemory>(
        &mut self,
        arrival: &IncomingSegment<'_>,
        target: &mut Target<'_, M>,
    ) -> Outcome {
        if !has_right_length(arrival, target.rights.mtu) {
            return self.invalid(target.rights.qpn);
        }
        if arrival.position.begins() {
            match self.begin(arrival, target) {
                Ok(begun) => *self = begun,
                Err(outcome) => return outcome,
            }
        }
        if arrival.write {
            self.continue_write(arrival, target)
        } else {
            self.continue_send(arrival, target)
        }
    }

    /// The state in which the first segment of a message is taken.
    fn begin<M: RegionMemory>(
        &mut self,
        arrival: &IncomingSegment<'_>,
        target: &mut Target<'_, M>,
    ) -> Result<Self, Outcome> {
        if !matches!(self, Self::Idle) {
            return Err(self.invalid(target.rights.qpn));
        }
        if arrival.write {
            begin_write(arrival, target).map_err(|refusal| Outcome::Refused(refusal, None))
        } else {
            begin_send(target)
        }
    }

    fn continue_send<M: RegionMemory>(
        &mut self,
        arrival: &IncomingSegment<'_>,
        target: &mut Target<'_, M>,
    ) -> Outcome {
        let Self::Send {
            receive,
            memory,
            received,
        } = self
        else {
            return self.invalid(target.rights.qpn);
        };
        let len = u32::try_from(arrival.payload.len()).expect("a packet is short");
        if len > receive.len - *received {
            return self.refuse(
                Refusal::InvalidRequest,
                target.rights.qpn,
                Status::LocalLength,
            );
        }
        let placed = memory.put(target.regions, target.parts, *received, arrival.payload);
        if placed.is_err() {
            return self.refuse(
                Refusal::RemoteOperation,
                target.rights.qpn,
                Status::LocalProtection,
            );
        }
        *received += len;
        if !arrival.position.ends() {
            return Outcome::Taken;
        }
        let opcode = CompletionOpcode::Receive;
        let completion = finished(receive, opcode, *received, arrival, target.rights.qpn);
        *self = Self::Idle;
        Outcome::Finished(Some(completion))
    }

    fn continue_write<M: RegionMemory>(
        &mut self,
        arrival: &IncomingSegment<'_>,
        target: &mut Target<'_, M>,
    ) -> Outcome {
        let Self::Write {
            memory,
            total,
            received,
        } = self
        else {
            return self.invalid(target.rights.qpn);
        };
        let len = u32::try_from(arrival.payload.len()).expect("a packet is short");
        let left = *total - *received;
        // The announced length ends exactly with the message.
        if len > left || arrival.position.ends() != (len == left) {
            return self.invalid(target.rights.qpn);
        }
        if arrival.imm.is_some() && target.receives.is_empty() {
            if arrival.position.begins() {
                *self = Self::Idle;
            }
            return Outcome::NotReady;
        }
        let placed = memory.put(target.regions, target.parts, *received, arrival.payload);
        if placed.is_err() {
            return self.refuse(
                Refusal::RemoteAccess,
                target.rights.qpn,
                Status::LocalProtection,
            );
        }
        *received += len;
        if !arrival.position.ends() {
            return Outcome::Taken;
        }
        let total = *total;
        *self = Self::Idle;
        let receive = arrival.imm.and_then(|_| target.receives.pop());
        let opcode = CompletionOpcode::ReceiveRdmaWithImm;
        let completion = |receive| finished(&receive, opcode, total, arrival, target.rights.qpn);
        Outcome::Finished(receive.map(completion))
    }

    /// Puts a segment from the middle of the message that is being received where it belongs,
    /// `ahead` packets before its turn. `continues`: it can be of no other message. How far into
    /// the message it was put. If it was not, something of it may be wrong, which is said in its
    /// turn.
    ///
    /// The last segment is not: who polls the last bytes of a WRITE sees them when all is there.
    pub(crate) fn place_early<M: RegionMemory>(
        &self,
        arrival: &IncomingSegment<'_>,
        ahead: u32,
        continues: impl FnOnce() -> bool,
        (regions, parts): (&RegionTable<M>, &[Part]),
        mtu: u16,
    ) -> Option<u32> {
        if arrival.position != Position::Middle || !has_right_length(arrival, mtu) {
            return None;
        }
        let (memory, received, most) = match *self {
            // The announced length says which packets are of this message; another one follows.
            Self::Write {
                memory,
                total,
                received,
            } if arrival.write => (memory, received, total.saturating_sub(1)),
            // The length of a SEND nobody knows before its last packet.
            Self::Send {
                receive,
                memory,
                received,
            } if !arrival.write && continues() => (memory, received, receive.len),
            _ => return None,
        };
        let mtu = u32::from(mtu);
        let offset = ahead.checked_mul(mtu).and_then(|n| n.checked_add(received));
        let inside = offset.filter(|at| at.checked_add(mtu).is_some_and(|end| end <= most));
        inside.filter(|at| memory.put(regions, parts, *at, arrival.payload).is_ok())
    }

    /// It is the turn of a segment that [`Self::place_early`] put `offset` bytes into its message:
    /// what may be otherwise since then is as [`Self::accept`] finds it. If less than `offset` was
    /// received before it, something else came between, and there would be a hole.
    pub(crate) fn pass<M: RegionMemory>(
        &mut self,
        offset: u32,
        (regions, parts): (&RegionTable<M>, &[Part]),
        rights: Rights,
    ) -> Outcome {
        let len = u32::from(rights.mtu);
        let (memory, received, refusal) = match self {
            Self::Write {
                memory,
                total,
                received,
            } if offset == *received && len < *total - *received => {
                (memory, received, Refusal::RemoteAccess)
            }
            Self::Send {
                receive,
                memory,
                received,
            } if offset == *received && len <= receive.len - *received => {
                (memory, received, Refusal::RemoteOperation)
            }
            // One that it followed has ended the message, or was of another one.
            _ => return self.invalid(rights.qpn),
        };
        if memory.stands(regions, parts, *received, len).is_err() {
            return self.refuse(refusal, rights.qpn, Status::LocalProtection);
        }
        *received += len;
        Outcome::Taken
    }

    /// Whether no message is being received.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Refuses a segment that does not fit the state or its length.
    fn invalid(&mut self, qpn: u32) -> Outcome {
        self.refuse(Refusal::InvalidRequest, qpn, Status::LocalQpOperation)
    }

    /// Refuses a SEND whose last segment is `arrival`, because the key that it is to invalidate is
    /// not one that it may. One that has no place here is refused for that, as all are.
    pub(crate) fn refuse_invalidation<M: RegionMemory>(
        &mut self,
        arrival: &IncomingSegment<'_>,
        target: &mut Target<'_, M>,
    ) -> Outcome {
        let begins = arrival.position.begins();
        let fits = match self {
            Self::Idle => begins,
            Self::Send { .. } => !begins,
            Self::Write { .. } => false,
        };
        if !fits || !has_right_length(arrival, target.rights.mtu) {
            return self.invalid(target.rights.qpn);
        }
        if begins {
            match begin_send(target) {
                Ok(begun) => *self = begun,
                Err(outcome) => return outcome,
            }
        }
        self.refuse(
            Refusal::RemoteAccess,
            target.rights.qpn,
            Status::LocalAccess,
        )
    }

    /// Ends the message that was being received; its receive, if it has one, completes with
    /// `status`.
    fn refuse(&mut self, refusal: Refusal, qpn: u32, status: Status) -> Outcome {
        Outcome::Refused(refusal, self.abandon(qpn, status))
    }

    /// Gives the message up that was being received; its receive completes with `status`.
    pub(crate) fn abandon(&mut self, qpn: u32, status: Status) -> Option<Completion> {
        let Self::Send { receive, .. } = std::mem::take(self) else {
            return None;
        };
        Some(failed(&receive, qpn, status))
    }
}

/// FIRST and MIDDLE are full, LAST is not empty, ONLY is anything (IBTA 9.7.4.1.6).
fn has_right_length(arrival: &IncomingSegment<'_>, mtu: u16) -> bool {
    let (len, mtu) = (arrival.payload.len(), usize::from(mtu));
    match arrival.position {
        Position::First | Position::Middle => len == mtu,
        Position::Last => (1..=mtu).contains(&len),
        Position::Only => len <= mtu,
    }
}

/// Whether a message that is whole could be taken now, with nothing refused and nothing awaited:
/// [`Assembly::accept`] then takes each of its segments.
pub(crate) fn fits<'a, M: RegionMemory>(
    segments: impl Iterator<Item = Option<IncomingSegment<'a>>>,
    target: &Target<'_, M>,
) -> bool {
    let mut first: Option<IncomingSegment<'a>> = None;
    let mut last = None;
    let mut total = 0;
    for segment in segments {
        let Some(segment) = segment else { return false };
        let of_message = match &first {
            None => segment.position.begins(),
            Some(first) => segment.write == first.write && !segment.position.begins(),
        };
        if !of_message || last.is_some() || !has_right_length(&segment, target.rights.mtu) {
            return false;
        }
        total += u32::try_from(segment.payload.len()).expect("a packet is short");
        if segment.position.ends() {
            last = Some(segment);
        }
        first = first.or(Some(segment));
    }
    let (Some(first), Some(last)) = (first, last) else {
        return false;
    };
    let Rights { domain, qpn, .. } = target.rights;
    let may_invalidate = |key| target.regions.may_invalidate(domain, Some(qpn), key);
    if !last.invalidate.is_none_or(may_invalidate) {
        return false;
    }
    if first.write {
        let begun = begin_write(&first, target);
        let right =
            matches!(begun, Ok(Assembly::Write { total: announced, .. }) if announced == total);
        return right && (last.imm.is_none() || !target.receives.is_empty());
    }
    target.receives.oldest().is_some_and(|(receive, pieces)| {
        total <= receive.len && Place::may_be_posted(target.regions, domain, receive, pieces)
    })
}

fn begin_write<M: RegionMemory>(
    arrival: &IncomingSegment<'_>,
    target: &Target<'_, M>,
) -> Result<Assembly, Refusal> {
    let (addr, rkey, total) = arrival.target.ok_or(Refusal::InvalidRequest)?;
    if !target.rights.access.allows(Access::REMOTE_WRITE) || total > limits::MESSAGE {
        return Err(Refusal::InvalidRequest);
    }
    let memory = Place::named(
        target.regions,
        (target.rights.domain, target.rights.qpn),
        rkey,
        addr,
        total,
    )
    .map_err(|_| Refusal::RemoteAccess)?;
    Ok(Assembly::Write {
        memory,
        total,
        received: 0,
    })
}

fn begin_send<M: RegionMemory>(target: &mut Target<'_, M>) -> Result<Assembly, Outcome> {
    let (receive, pieces) = target.receives.take().ok_or(Outcome::NotReady)?;
    let (regions, domain) = (target.regions, target.rights.domain);
    let memory = Place::posted(regions, domain, &receive, pieces, target.parts);
    let memory = memory.map_err(|_| {
        let completion = failed(&receive, target.rights.qpn, Status::LocalProtection);
        Outcome::Refused(Refusal::RemoteOperation, Some(completion))
    })?;
    Ok(Assembly::Send {
        receive,
        memory,
        received: 0,
    })
}

/// The completion of a receive whose message ended with the segment `arrival`.
fn finished(
    receive: &ReceiveRequest,
    opcode: CompletionOpcode,
    byte_len: u32,
    arrival: &IncomingSegment<'_>,
    qpn: u32,
) -> Completion {
    Completion {
        wr_id: receive.wr_id,
        status: Status::Success,
        opcode,
        byte_len,
        imm: arrival.imm,
        invalidated: arrival.invalidate,
        qpn,
        solicited: arrival.solicited,
    }
}

/// The completion of a receive whose message was not received.
fn failed(receive: &ReceiveRequest, qpn: u32, status: Status) -> Completion {
    Completion {
        wr_id: receive.wr_id,
        status,
        opcode: CompletionOpcode::Receive,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qpn,
        solicited: true,
    }
}
