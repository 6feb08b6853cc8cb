//! What steps are made of.

/// Bytes of the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Part {
    /// Whether they have bytes in common; two parts of an empty vector have.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self == other
            || (self.start < other.start + other.len && other.start < self.start + self.len)
    }
}

/// What becomes of bytes that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// They take the place of those that are there.
    Replace,
    /// They are reduced with those that are there, which are the second operand.
    ReduceBefore,
    /// They are the second operand.
    ReduceAfter,
}

/// Bytes to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) peer: usize,
    pub(crate) part: Part,
}

/// Bytes from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receive {
    pub(crate) peer: usize,
    pub(crate) part: Part,
    pub(crate) action: Action,
}

/// What a member does at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) send: Option<Send>,
    pub(crate) receive: Option<Receive>,
}

impl Step {
    pub(crate) fn send(peer: usize, part: Part) -> Self {
        let send = Some(Send { peer, part });
        Self {
            send,
            receive: None,
        }
    }

    pub(crate) fn receive(peer: usize, part: Part, action: Action) -> Self {
        let receive = Some(Receive { peer, part, action });
        Self {
            send: None,
            receive,
        }
    }
}

/// The member for which steps are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) len: usize,
    /// Bytes that must not be torn apart.
    pub(super) width: usize,
}

impl Place {
    pub(super) fn whole(&self) -> Part {
        Part {
            start: 0,
            len: self.len,
        }
    }

    /// Block `index` of as many as there are members, which differ by one element at most.
    pub(super) fn block(&self, index: usize) -> Part {
        let elements = self.len / self.width;
        let (each, more) = (elements / self.size, elements % self.size);
        let start = |index: usize| (each * index + more.min(index)) * self.width;
        let from = start(index);
        Part {
            start: from,
            len: start(index + 1) - from,
        }
    }

    /// The rank that is `distance` behind this one in the ring.
    pub(super) fn back(&self, distance: usize) -> usize {
        (self.rank + self.size - distance % self.size) % self.size
    }
}
