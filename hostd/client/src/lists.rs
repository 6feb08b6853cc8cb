//! Work requests of several pieces of memory, and with their bytes in the ring.

use crate::abi::descriptor::{
    INLINE_FIRST, Local, ReceiveWork, SGE_FIRST, SGE_MORE, Sge, SgeList, WORK_LEN, inline_slot,
};
use crate::abi::ring::Producer;
use crate::abi::{INLINE_MAX, SGE_MAX};
use crate::queue_pair::RemoteUse;
use crate::{Error, QueuePair, SendRequest, SharedQueue, Slice};

impl QueuePair {
    /// Pieces that one work request may have (`max_send_sge`, `max_recv_sge`).
    pub const SGE_MAX: usize = SGE_MAX;

    /// Bytes that one work request may carry inline (`max_inline_data`).
    pub const INLINE_MAX: usize = INLINE_MAX;

    /// Posts a send request of several pieces, instead of [`SendRequest::local`]: a SEND or an
    /// RDMA WRITE of their bytes, one after the other, or an RDMA READ into them. Pieces without
    /// bytes are passed over. More than two take further places in the ring, four pieces each.
    ///
    /// A header and a body that lie apart leave as one message:
    ///
    /// ```no_run
    /// # use hostd_client::{Error, QueuePair, Region, SendRequest, Slice};
    /// # fn example(queue_pair: &mut QueuePair, region: &Region) -> Result<(), Error> {
    /// let header = region.slice(0, 64)?;
    /// let body = region.slice(4096, 10_000)?;
    /// let request = SendRequest::send(1, Slice::EMPTY);
    /// queue_pair.post_send_list(&request, &[header, body])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older requests; [`Error::TooManyPieces`]
    /// above [`Self::SGE_MAX`]; [`Error::AtomicLength`]: an atomic operation has one piece.
    pub fn post_send_list(&mut self, request: &SendRequest, pieces: &[Slice]) -> Result<(), Error> {
        let list = list(pieces)?;
        if let RemoteUse::Atomic(_) = request.remote_use
            && request.remote.is_some()
        {
            let [piece] = *pieces else {
                return Err(Error::AtomicLength(total(pieces)));
            };
            return self.post_send(&SendRequest {
                local: piece,
                ..*request
            });
        }
        self.may_send()?;
        let first = request.to_work(Local::Pieces(list)).to_bytes();
        let mut outstanding = self.sends.lock();
        if !push_list(&mut self.send, &first, &list, pieces)? {
            return Err(Error::QueueFull);
        }
        outstanding.note(request.wr_id, request.signaled);
        drop(outstanding);
        self.ring(&self.sends, 1)
    }

    /// Posts SENDs of two pieces each, by their `wr_id`, with one ring of the doorbell.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; as many as fit are posted then.
    pub(crate) fn post_pairs(&mut self, sends: &[(u64, [Slice; 2])]) -> Result<(), Error> {
        self.may_send()?;
        let mut posted = 0;
        let mut outstanding = self.sends.lock();
        for (wr_id, pair) in sends {
            let pieces = if pair[1].is_empty() { &pair[..1] } else { pair };
            let list = list(pieces)?;
            let request = SendRequest::send(*wr_id, Slice::EMPTY);
            let first = request.to_work(Local::Pieces(list)).to_bytes();
            if push_list(&mut self.send, &first, &list, pieces)? {
                outstanding.note(*wr_id, request.signaled);
                posted += 1;
            }
        }
        drop(outstanding);
        self.ring(&self.sends, posted)?;
        if posted < sends.len() {
            return Err(Error::QueueFull);
        }
        Ok(())
    }

    /// Posts a SEND or an RDMA WRITE whose bytes are `bytes`, instead of [`SendRequest::local`]
    /// (`IBV_SEND_INLINE`). They are copied into the ring, so they need no region, and may change
    /// as soon as this returns. More than 32 take further places in the ring, 64 bytes each.
    ///
    /// ```no_run
    /// # use hostd_client::{Error, QueuePair, SendRequest, Slice};
    /// # fn example(queue_pair: &mut QueuePair) -> Result<(), Error> {
    /// let request = SendRequest::send(2, Slice::EMPTY);
    /// queue_pair.post_send_inline(&request, b"no region is needed")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older requests; [`Error::NotInline`] above
    /// [`Self::INLINE_MAX`], and for what is answered with data.
    pub fn post_send_inline(&mut self, request: &SendRequest, bytes: &[u8]) -> Result<(), Error> {
        self.may_send()?;
        let answered = request.remote.is_some() && request.remote_use != RemoteUse::Write;
        let local = Local::inline(bytes).filter(|_| !answered);
        let local = local.ok_or(Error::NotInline(bytes.len()))?;
        let first = request.to_work(local).to_bytes();
        let rest = bytes.get(INLINE_FIRST..).unwrap_or_default();
        let more = rest.chunks(WORK_LEN).map(inline_slot);
        let mut outstanding = self.sends.lock();
        if !push(&mut self.send, &first, more)? {
            return Err(Error::QueueFull);
        }
        outstanding.note(request.wr_id, request.signaled);
        drop(outstanding);
        self.ring(&self.sends, 1)
    }

    /// Posts a receive of several pieces, which a message fills one after the other.
    ///
    /// The first 64 bytes of a message go to one place and the rest to another:
    ///
    /// ```no_run
    /// # use hostd_client::{Error, QueuePair, Region};
    /// # type Done = Result<(), Error>;
    /// # fn example(queue_pair: &mut QueuePair, [headers, bodies]: [&Region; 2]) -> Done {
    /// let pieces = [headers.slice(0, 64)?, bodies.slice(0, 1 << 20)?];
    /// queue_pair.post_receive_list(3, &pieces)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older receives; [`Error::TooManyPieces`]
    /// above [`Self::SGE_MAX`]; [`Error::SharedReceives`].
    pub fn post_receive_list(&mut self, wr_id: u64, pieces: &[Slice]) -> Result<(), Error> {
        self.may_receive()?;
        let mut outstanding = self.receives.lock();
        if !push_receive(&mut self.receive, wr_id, pieces)? {
            return Err(Error::QueueFull);
        }
        outstanding.note(wr_id, true);
        drop(outstanding);
        self.ring(&self.receives, 1)
    }
}

impl SharedQueue {
    /// Posts a receive of several pieces, which a message fills one after the other.
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older receives; [`Error::TooManyPieces`]
    /// above [`QueuePair::SGE_MAX`].
    pub fn post_receive_list(&mut self, wr_id: u64, pieces: &[Slice]) -> Result<(), Error> {
        if !push_receive(&mut self.ring, wr_id, pieces)? {
            return Err(Error::QueueFull);
        }
        self.context.ring(self.slot)
    }
}

fn push_receive(
    ring: &mut Producer<WORK_LEN>,
    wr_id: u64,
    pieces: &[Slice],
) -> Result<bool, Error> {
    let buffers = list(pieces)?;
    let first = ReceiveWork { wr_id, buffers }.to_bytes();
    push_list(ring, &first, &buffers, pieces)
}

fn list(pieces: &[Slice]) -> Result<SgeList, Error> {
    let too_many = Error::TooManyPieces(pieces.len());
    if pieces.len() > SGE_MAX {
        return Err(too_many);
    }
    let mut first = [Sge::default(); SGE_MAX];
    for (place, piece) in first.iter_mut().zip(pieces) {
        *place = piece.sge();
    }
    SgeList::new(&first[..pieces.len()]).ok_or(too_many)
}

fn total(pieces: &[Slice]) -> u32 {
    let add = |sum: u32, piece: &Slice| sum.saturating_add(piece.len());
    pieces.iter().fold(0, add)
}

fn push_list(
    ring: &mut Producer<WORK_LEN>,
    first: &[u8; WORK_LEN],
    list: &SgeList,
    pieces: &[Slice],
) -> Result<bool, Error> {
    debug_assert_eq!(list.count(), pieces.len());
    let rest = pieces.get(SGE_FIRST..).unwrap_or_default();
    let more = rest.chunks(SGE_MORE).map(|some| {
        let mut slot = [Sge::default(); SGE_MORE];
        for (place, piece) in slot.iter_mut().zip(some) {
            *place = piece.sge();
        }
        Sge::slot(&slot)
    });
    push(ring, first, more)
}

/// Puts all slots of a request into the ring, if there is room for all of them.
fn push(
    ring: &mut Producer<WORK_LEN>,
    first: &[u8; WORK_LEN],
    more: impl ExactSizeIterator<Item = [u8; WORK_LEN]>,
) -> Result<bool, Error> {
    if (ring.room()? as usize) <= more.len() {
        return Ok(false);
    }
    ring.push(first)?;
    for slot in more {
        ring.push(&slot)?;
    }
    ring.publish();
    Ok(true)
}
