//! Work requests as they come out of a ring: slots into what the engine is asked for.
//!
//! A request is copied once, with all slots that it takes; what is checked and used is the copy.

use crate::limits;
use crate::verbs::{self, SendOpcode, SendRequest};
use hostd_client::abi::codec::DecodeError;
use hostd_client::abi::descriptor::{
    INLINE_FIRST, Local, Opcode, ReceiveWork, SGE_FIRST, SGE_MORE, SendWork, Sge, SgeList, WORK_LEN,
};
use hostd_client::abi::ring::{Consumer, RingFault};
use hostd_client::abi::{INLINE_MAX, SGE_MAX};

const _: () = assert!(SGE_MAX == limits::SGE && INLINE_MAX == limits::INLINE);

/// The application broke a rule of the rings: its queue pair is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl From<RingFault> for Broken {
    fn from(_: RingFault) -> Self {
        Self
    }
}

impl From<DecodeError> for Broken {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

/// Where the bytes of a request are that was taken out of a ring.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Named,
    Pieces(usize),
    Inline(usize),
}

/// A request to the send queue; its list or inline data is in the [`Copies`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenSend {
    pub(super) request: SendRequest,
    shape: Shape,
}

/// A receive; its pieces are in the [`Copies`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenReceive {
    pub(super) wr_id: u64,
    pieces: usize,
}

/// Lists and inline data of the request that was taken out of a ring last.
#[derive(Debug)]
pub(super) struct Copies {
    pieces: [verbs::Sge; SGE_MAX],
    bytes: [u8; INLINE_MAX],
}

impl Copies {
    pub(super) fn new() -> Self {
        Self {
            pieces: [verbs::Sge::default(); SGE_MAX],
            bytes: [0; INLINE_MAX],
        }
    }

    /// Where the bytes of that request are.
    pub(super) fn local(&self, taken: &TakenSend) -> verbs::Local<'_> {
        match taken.shape {
            Shape::Named => verbs::Local::Named,
            Shape::Pieces(count) => verbs::Local::Pieces(&self.pieces[..count]),
            Shape::Inline(len) => verbs::Local::Inline(&self.bytes[..len]),
        }
    }

    /// The pieces of that receive.
    pub(super) fn pieces(&self, taken: &TakenReceive) -> &[verbs::Sge] {
        &self.pieces[..taken.pieces]
    }

    /// Takes the oldest request out of a send ring.
    pub(super) fn take_send(
        &mut self,
        ring: &mut Consumer<WORK_LEN>,
    ) -> Result<Option<TakenSend>, Broken> {
        let Some(bytes) = ring.pop()? else {
            return Ok(None);
        };
        let work = SendWork::parse(&bytes)?;
        let mut request = send_request(&work);
        let shape = match &work.local {
            Local::Pieces(list) if list.count() <= 1 => {
                let local = list.first().first().copied().unwrap_or_default();
                request.addr = local.address;
                request.len = local.length;
                request.lkey = local.lkey;
                Shape::Named
            }
            Local::Pieces(list) => {
                self.take_pieces(list, ring)?;
                Shape::Pieces(list.count())
            }
            Local::Inline(first, len) => {
                self.take_inline(first, usize::from(*len), ring)?;
                Shape::Inline(usize::from(*len))
            }
        };
        Ok(Some(TakenSend { request, shape }))
    }

    /// Takes the oldest receive out of a receive ring.
    pub(super) fn take_receive(
        &mut self,
        ring: &mut Consumer<WORK_LEN>,
    ) -> Result<Option<TakenReceive>, Broken> {
        let Some(bytes) = ring.pop()? else {
            return Ok(None);
        };
        let work = ReceiveWork::parse(&bytes)?;
        self.take_pieces(&work.buffers, ring)?;
        Ok(Some(TakenReceive {
            wr_id: work.wr_id,
            pieces: work.buffers.count(),
        }))
    }

    fn take_pieces(&mut self, list: &SgeList, ring: &mut Consumer<WORK_LEN>) -> Result<(), Broken> {
        for (place, sge) in self.pieces.iter_mut().zip(list.first()) {
            *place = piece(sge);
        }
        let count = list.count();
        let rest = self.pieces[..count].get_mut(SGE_FIRST..);
        for places in rest.unwrap_or_default().chunks_mut(SGE_MORE) {
            let slot = Sge::of_slot(&following(ring)?)?;
            for (place, sge) in places.iter_mut().zip(&slot) {
                *place = piece(sge);
            }
        }
        Ok(())
    }

    fn take_inline(
        &mut self,
        first: &[u8; INLINE_FIRST],
        len: usize,
        ring: &mut Consumer<WORK_LEN>,
    ) -> Result<(), Broken> {
        let (begin, rest) = self.bytes.split_at_mut(INLINE_FIRST);
        begin.copy_from_slice(first);
        let rest = &mut rest[..len.saturating_sub(INLINE_FIRST)];
        for places in rest.chunks_mut(WORK_LEN) {
            places.copy_from_slice(&following(ring)?[..places.len()]);
        }
        Ok(())
    }
}

/// The next slot of a request, which was published with its first.
fn following(ring: &mut Consumer<WORK_LEN>) -> Result<[u8; WORK_LEN], Broken> {
    ring.pop()?.ok_or(Broken)
}

fn piece(sge: &Sge) -> verbs::Sge {
    verbs::Sge {
        addr: sge.address,
        len: sge.length,
        lkey: sge.lkey,
    }
}

fn send_request(work: &SendWork) -> SendRequest {
    SendRequest {
        wr_id: work.wr_id,
        opcode: match work.opcode {
            Opcode::Write => SendOpcode::RdmaWrite,
            Opcode::WriteWithImmediate => SendOpcode::RdmaWriteWithImm,
            Opcode::Send => SendOpcode::Send,
            Opcode::SendWithImmediate => SendOpcode::SendWithImm,
            Opcode::Read => SendOpcode::RdmaRead,
            Opcode::CompareSwap => SendOpcode::AtomicCmpAndSwp,
            Opcode::FetchAdd => SendOpcode::AtomicFetchAndAdd,
            Opcode::LocalInvalidate => SendOpcode::LocalInv,
            Opcode::BindWindow => SendOpcode::BindMw,
            Opcode::SendWithInvalidate => SendOpcode::SendWithInv,
        },
        remote_addr: work.remote_address,
        rkey: work.rkey,
        imm: work.immediate,
        signaled: work.signaled,
        solicited: work.solicited,
        fence: work.fence,
        compare_add: work.compare_add,
        swap: work.swap,
        ..SendRequest::default()
    }
}
