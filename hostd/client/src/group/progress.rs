//! How far a collective is, segment by segment. No I/O: what may be sent to a peer, and what is
//! awaited of it, follow from what was sent and received before.

use super::schedule::{Action, Part, Step};

/// A segment that goes or comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Where its bytes are.
    pub(crate) part: Part,
    /// What becomes of them where they come; of no meaning where they go.
    pub(crate) action: Action,
    /// They are changed before the peer is known to have them, so they are sent from a copy.
    pub(crate) copied: bool,
}

/// What has to come before: the segment of the same number of that step, or all of them.
#[derive(Clone, Copy, Debug)]
struct After {
    step: usize,
    whole: bool,
}

impl After {
    /// Whether segment `segment` may go on, with `done` segments of the step done.
    fn holds(self, segment: usize, done: usize, all: usize) -> bool {
        done == all || (!self.whole && segment < done)
    }
}

#[derive(Debug)]
struct Tracked {
    step: Step,
    /// Segments in all, and done.
    to_send: usize,
    sent: usize,
    to_receive: usize,
    received: usize,
    /// The receive that makes what is sent.
    send_after: Option<After>,
    /// The receive, and the send, of the same bytes before.
    receive_after: Option<After>,
    receive_after_send: Option<After>,
    copied: bool,
}

/// What goes to a peer and comes from it: steps, in order.
#[derive(Debug)]
struct Peer {
    rank: usize,
    sends: Vec<usize>,
    receives: Vec<usize>,
    sending: usize,
    receiving: usize,
}

/// A collective under way.
#[derive(Debug)]
pub(crate) struct Progress {
    steps: Vec<Tracked>,
    peers: Vec<Peer>,
    segment: usize,
    left: usize,
}

impl Progress {
    /// The collective of these steps, cut into segments of `segment` bytes at most. A part without
    /// bytes is nothing to send, unless the whole vector is empty: then each is a message.
    pub(crate) fn new(steps: Vec<Step>, segment: usize, empty: bool) -> Self {
        let segments = |part: &Part| part.len.div_ceil(segment).max(usize::from(empty));
        let mut tracked: Vec<Tracked> = Vec::with_capacity(steps.len());
        let mut peers: Vec<Peer> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let sent = step.send.map(|send| send.part);
            let received = step.receive.map(|receive| receive.part);
            let last = |part: Option<Part>, upto: usize, of: &dyn Fn(&Step) -> Option<Part>| {
                let part = part?;
                let found = steps[..upto]
                    .iter()
                    .rposition(|step| of(step).is_some_and(|other| other.overlaps(&part)))?;
                let whole = of(&steps[found]) != Some(part);
                Some(After { step: found, whole })
            };
            let receives = |step: &Step| step.receive.map(|receive| receive.part);
            let sends = |step: &Step| step.send.map(|send| send.part);
            let both = sent.zip(received);
            tracked.push(Tracked {
                step: *step,
                to_send: sent.as_ref().map_or(0, segments),
                sent: 0,
                to_receive: received.as_ref().map_or(0, segments),
                received: 0,
                send_after: last(sent, index, &receives),
                receive_after: last(received, index, &receives),
                receive_after_send: last(received, index + 1, &sends),
                copied: both.is_some_and(|(sent, received)| sent.overlaps(&received)),
            });
            let this = &tracked[index];
            if let Some(send) = step.send.filter(|_| this.to_send > 0) {
                Self::peer(&mut peers, send.peer).sends.push(index);
            }
            if let Some(receive) = step.receive.filter(|_| this.to_receive > 0) {
                Self::peer(&mut peers, receive.peer).receives.push(index);
            }
        }
        let left = tracked.iter().map(|it| it.to_send + it.to_receive).sum();
        Self {
            steps: tracked,
            peers,
            segment,
            left,
        }
    }

    fn peer(peers: &mut Vec<Peer>, rank: usize) -> &mut Peer {
        let index = peers.iter().position(|peer| peer.rank == rank);
        let index = index.unwrap_or_else(|| {
            peers.push(Peer {
                rank,
                sends: Vec::new(),
                receives: Vec::new(),
                sending: 0,
                receiving: 0,
            });
            peers.len() - 1
        });
        &mut peers[index]
    }

    /// How many members this one has to do with: they are numbered in what follows.
    pub(crate) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The rank of one of them.
    pub(crate) fn rank(&self, peer: usize) -> usize {
        self.peers[peer].rank
    }

    /// Whether all has been sent and received.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The next segment to a peer, if it may go now.
    pub(crate) fn next_send(&self, peer: usize) -> Option<Transfer> {
        let peer = &self.peers[peer];
        let tracked = &self.steps[*peer.sends.get(peer.sending)?];
        if !self.received_before(tracked.send_after, tracked.sent) {
            return None;
        }
        let part = tracked.step.send?.part;
        Some(Transfer {
            part: self.cut(part, tracked.sent),
            action: Action::Replace,
            copied: tracked.copied,
        })
    }

    /// That segment has gone.
    pub(crate) fn sent(&mut self, peer: usize) {
        let peer = &mut self.peers[peer];
        let tracked = &mut self.steps[peer.sends[peer.sending]];
        tracked.sent += 1;
        peer.sending += usize::from(tracked.sent == tracked.to_send);
        self.left -= 1;
    }

    fn receiving(&self, peer: usize) -> Option<&Tracked> {
        let peer = &self.peers[peer];
        let step = peer.receives.get(peer.receiving)?;
        Some(&self.steps[*step])
    }

    /// The next segment from a peer, and whether it may be taken now.
    pub(crate) fn next_receive(&self, peer: usize) -> Option<(Transfer, bool)> {
        let tracked = self.receiving(peer)?;
        let receive = tracked.step.receive?;
        let may = self.received_before(tracked.receive_after, tracked.received)
            && tracked.receive_after_send.is_none_or(|after| {
                let other = &self.steps[after.step];
                after.holds(tracked.received, other.sent, other.to_send)
            });
        let transfer = Transfer {
            part: self.cut(receive.part, tracked.received),
            action: receive.action,
            copied: false,
        };
        Some((transfer, may))
    }

    /// That segment was taken.
    pub(crate) fn received(&mut self, peer: usize) {
        let peer = &mut self.peers[peer];
        let tracked = &mut self.steps[peer.receives[peer.receiving]];
        tracked.received += 1;
        peer.receiving += usize::from(tracked.received == tracked.to_receive);
        self.left -= 1;
    }

    fn received_before(&self, after: Option<After>, segment: usize) -> bool {
        after.is_none_or(|after| {
            let other = &self.steps[after.step];
            after.holds(segment, other.received, other.to_receive)
        })
    }

    fn cut(&self, part: Part, segment: usize) -> Part {
        let from = segment * self.segment;
        Part {
            start: part.start + from,
            len: self.segment.min(part.len - from),
        }
    }

    /// The rank that this member waits for: whose segment is missing, or who takes none.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        let unreceived = self.steps.iter().find(|it| it.received < it.to_receive);
        let from = unreceived.and_then(|it| it.step.receive).map(|it| it.peer);
        let unsent = self.steps.iter().find(|it| it.sent < it.to_send);
        from.or_else(|| unsent.and_then(|it| it.step.send).map(|it| it.peer))
    }
}
