//! Segments that come and go.

use super::failure::{Cause, Failure, GroupError};
use super::link::Link;
use super::member::Group;
use super::message::Header;
use super::progress::Transfer;
use super::schedule::Action;
use super::turn::Flow;
use crate::Error;

/// Bytes that are rather copied than waited for until they are acknowledged.
const COPIED: usize = 4 << 10;

impl Group {
    /// Segments that come and go, as long as any can.
    pub(super) fn advance(&mut self, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        let mut moved = false;
        loop {
            let mut again = false;
            for peer in 0..flow.progress.peers() {
                let rank = flow.progress.rank(peer);
                let Some(mut link) = self.data[rank].take() else {
                    continue;
                };
                let done = self.exchange(flow, peer, &mut link);
                self.data[rank] = Some(link);
                again |= done.map_err(|error| self.broken(error))?;
            }
            if !again {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// The same with one peer.
    fn exchange(
        &mut self,
        flow: &mut Flow<'_>,
        peer: usize,
        link: &mut Link,
    ) -> Result<bool, Error> {
        let mut moved = false;
        while let Some((transfer, true)) = flow.progress.next_receive(peer)
            && link
                .inbox
                .front()
                .is_some_and(|it| flow.expects(peer, &transfer, (it.header, it.len)))
        {
            self.take(flow, &transfer, link)?;
            flow.progress.received(peer);
            flow.numbers[peer][0] += 1;
            moved = true;
        }
        while link.takes_segment()
            && let Some(transfer) = flow.progress.next_send(peer)
        {
            let header = Header {
                sequence: flow.sequence,
                call: flow.call,
                number: flow.numbers[peer][1],
            };
            self.give(flow, &transfer, header, link)?;
            flow.progress.sent(peer);
            flow.numbers[peer][1] += 1;
            moved = true;
        }
        Ok(moved)
    }

    fn give(
        &mut self,
        flow: &Flow<'_>,
        transfer: &Transfer,
        header: Header,
        link: &mut Link,
    ) -> Result<(), Error> {
        let Some(vector) = &flow.vector else {
            return link.send_segment(header, crate::Slice::EMPTY, None);
        };
        let (start, len) = (vector.offset + transfer.part.start, transfer.part.len);
        if transfer.copied || len <= COPIED {
            let bytes = &mut self.scratch[0][..len];
            vector.region.read(start, bytes)?;
            return link.send_segment(header, crate::Slice::EMPTY, Some(bytes));
        }
        link.send_segment(header, vector.region.slice(start, len)?, None)
    }

    /// Takes the oldest segment of a peer into the vector.
    fn take(&mut self, flow: &Flow<'_>, transfer: &Transfer, link: &mut Link) -> Result<(), Error> {
        let Some(vector) = &flow.vector else {
            return link.take();
        };
        let (start, len) = (vector.offset + transfer.part.start, transfer.part.len);
        let [came, own] = &mut self.scratch;
        let (came, own) = (&mut came[..len], &mut own[..len]);
        link.read(came)?;
        let work = flow
            .call
            .work()
            .filter(|_| transfer.action != Action::Replace);
        let Some((operation, element)) = work else {
            vector.region.write(start, came)?;
            return link.take();
        };
        vector.region.read(start, own)?;
        let (first, second) = match transfer.action {
            Action::ReduceAfter => (own, came),
            _ => (came, own),
        };
        reduce::reduce(operation, element, first, second)
            .expect("whole elements of a type that the operation takes");
        vector.region.write(start, first)?;
        link.take()
    }

    /// Compares what has come with what this member expects.
    pub(super) fn look_for_mismatch(&mut self, flow: &mut Flow<'_>) -> Result<(), GroupError> {
        if flow.appealed.is_some() {
            return Ok(());
        }
        let heads = self.data.iter().enumerate();
        let heads = heads.filter_map(|(rank, link)| Some((rank, *link.as_ref()?.inbox.front()?)));
        let peers = 0..flow.progress.peers();
        for (rank, arrived) in heads {
            let theirs = arrived.header;
            if theirs.sequence > flow.sequence {
                continue;
            }
            let peer = peers.clone().find(|peer| flow.progress.rank(*peer) == rank);
            let next = peer.and_then(|peer| Some((peer, flow.progress.next_receive(peer)?.0)));
            let expected = next.is_some_and(|(peer, transfer)| {
                flow.expects(peer, &transfer, (theirs, arrived.len))
            });
            if expected {
                continue;
            }
            let back = usize::try_from(flow.sequence - theirs.sequence).unwrap_or(usize::MAX);
            let (called, others) = (theirs.call, self.history.get(back).copied());
            let Some(others) = others.filter(|others| *others != called) else {
                let cause = Cause::Protocol;
                return Err(self.fail(Failure { rank, cause }));
            };
            let cause = Cause::Mismatch { called, others };
            return self.appeal(flow, Failure { rank, cause });
        }
        Ok(())
    }
}
