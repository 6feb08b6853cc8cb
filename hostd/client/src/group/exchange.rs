//! Segments that come and go.

use super::failure::{Cause, Failure, GroupError};
use super::flow::{Flow, Stage};
use super::link::Link;
use super::member::Group;
use super::message::Header;
use super::progress::Transfer;
use super::schedule::Action;
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
                if flow.stage == Stage::Mending {
                    let room = link.set_aside(flow.sequence);
                    room.map_err(|error| self.broken(error))?;
                }
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
            && let Some(at) = link.head(flow.sequence)
            && flow.expects(peer, &transfer, (link.inbox[at].header, link.inbox[at].len))
        {
            self.take(flow, &transfer, at, link)?;
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
        let start = vector.offset + flow.base + transfer.part.start;
        let len = transfer.part.len;
        if transfer.copied || len <= COPIED {
            let bytes = &mut self.scratch[0][..len];
            vector.region.read(start, bytes)?;
            return link.send_segment(header, crate::Slice::EMPTY, Some(bytes));
        }
        link.send_segment(header, vector.region.slice(start, len)?, None)
    }

    /// Takes the oldest segment of a peer into the vector.
    fn take(
        &mut self,
        flow: &Flow<'_>,
        transfer: &Transfer,
        at: usize,
        link: &mut Link,
    ) -> Result<(), Error> {
        let Some(vector) = &flow.vector else {
            return link.take(at);
        };
        let start = vector.offset + flow.base + transfer.part.start;
        let len = transfer.part.len;
        let [came, own] = &mut self.scratch;
        let (came, own) = (&mut came[..len], &mut own[..len]);
        link.read(at, came)?;
        let work = flow
            .call
            .work()
            .filter(|_| transfer.action != Action::Replace);
        let Some((operation, element)) = work else {
            vector.region.write(start, came)?;
            return link.take(at);
        };
        vector.region.read(start, own)?;
        let (first, second) = match transfer.action {
            Action::ReduceAfter => (own, came),
            _ => (came, own),
        };
        reduce::reduce(operation, element, first, second)
            .expect("whole elements of a type that the operation takes");
        vector.region.write(start, first)?;
        link.take(at)
    }

    /// Compares what has come with what this member expects.
    pub(super) fn look_for_mismatch(&mut self, flow: &mut Flow<'_>) -> Result<(), GroupError> {
        if flow.appealed.is_some() {
            return Ok(());
        }
        let heads = self.data.iter().enumerate();
        let heads = heads.filter_map(|(rank, link)| {
            let link = link.as_ref()?;
            let arrived = &link.inbox[link.head(flow.sequence)?];
            Some((rank, arrived.header, arrived.len))
        });
        let peers = 0..flow.progress.peers();
        for (rank, theirs, len) in heads {
            let peer = peers.clone().find(|peer| flow.progress.rank(*peer) == rank);
            let next = peer.and_then(|peer| Some((peer, flow.progress.next_receive(peer)?.0)));
            let expected =
                next.is_some_and(|(peer, transfer)| flow.expects(peer, &transfer, (theirs, len)));
            if expected {
                continue;
            }
            let back = usize::try_from(flow.sequence - theirs.sequence).unwrap_or(usize::MAX);
            let (called, others) = (theirs.call, self.history.get(back).copied());
            // Others go on between the hosts already; this member will.
            let early = back == 0 && (others == Some(called) || called.mends());
            let early = early && flow.stage != Stage::Hosts;
            if early {
                continue;
            }
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
