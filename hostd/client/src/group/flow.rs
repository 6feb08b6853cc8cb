//! How far a collective under way is.

use super::agree::Position;
use super::call::Call;
use super::failure::Failure;
use super::judge::State;
use super::message::Header;
use super::progress::{Progress, Transfer};
use super::vector::Held;
use crate::Region;
use std::collections::VecDeque;
use std::time::Instant;

/// Where a collective is: see `offload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is about to go through the switches.
    Begin,
    /// The leaf is asked, since then, how many switches it has above.
    Asking(Instant),
    /// Rank 0 says how it goes on when all are ready.
    Ready,
    /// They were asked then.
    Joining(Instant),
    /// They have it.
    Running,
    /// It was withdrawn, and how far it came is not known yet.
    Ending,
    /// It came as far as it could, and rank 0 decides what comes next.
    Halted,
    /// This member gets results that it lacks.
    Mending,
    /// It goes on between the hosts, or always did.
    Hosts,
    /// Nothing is left to do.
    Done,
}

/// A collective under way.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    /// What segments that go and come are of.
    pub(super) call: Call,
    /// What the members call.
    pub(super) meant: Call,
    pub(super) sequence: u64,
    pub(super) stage: Stage,
    /// It began through the switches; nothing of it was given to them; bytes of the result that
    /// came from them, and whether those are all.
    pub(super) switched: bool,
    pub(super) unposted: bool,
    pub(super) done: u64,
    pub(super) complete: bool,
    /// From which byte on hosts do it, once what is lacking has come.
    pub(super) rest: Option<u64>,
    /// The byte of the vector at which the parts of `progress` begin.
    pub(super) base: usize,
    pub(super) progress: Progress,
    pub(super) vector: Option<Held<'a>>,
    /// Segments from and to each peer: their numbers.
    pub(super) numbers: Vec<[u32; 2]>,
    /// It is over, and its member calls nothing: it is here for what others need of it.
    pub(super) is_past: bool,
    /// Something went on then.
    pub(super) moved: Instant,
    /// The others' daemons were asked then whether they live.
    pub(super) probed: Instant,
    /// Rank 0 knows how far this is, after it has asked.
    pub(super) answered: bool,
    /// Rank 0 was told what this is, if it stood still; or has compared it with what others told.
    pub(super) noted: bool,
    /// Rank 0 was asked then who is to blame, and this one is suspected.
    pub(super) appealed: Option<(Instant, Failure)>,
}

impl Flow<'_> {
    /// Whether a segment of `len` bytes with this header is the next one of a peer. Any other stays
    /// where it is until it is known who is to blame.
    pub(super) fn expects(
        &self,
        peer: usize,
        transfer: &Transfer,
        (header, len): (Header, usize),
    ) -> bool {
        let wanted = Header {
            sequence: self.sequence,
            call: self.call,
            number: self.numbers[peer][0],
        };
        header == wanted && len == transfer.part.len
    }

    /// How far it is, for rank 0.
    pub(super) fn position(&self) -> Position {
        Position {
            sequence: self.sequence,
            call: self.meant,
            switched: self.switched,
            done: self.done,
            complete: self.complete,
        }
    }

    /// Where the vector is.
    pub(super) fn bytes(&self) -> Option<(&Region, usize, usize)> {
        let vector = self.vector.as_ref()?;
        Some((&*vector.region, vector.offset, vector.len))
    }

    pub(super) fn is_over(&self) -> bool {
        match self.stage {
            Stage::Done => true,
            Stage::Hosts => self.progress.is_done(),
            _ => false,
        }
    }

    pub(super) fn state(&self, history: &VecDeque<Call>) -> State {
        State {
            sequence: self.sequence,
            calls: history.iter().copied().collect(),
            waits_for: self.progress.waits_for(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Algorithm, Collective};
    use super::super::failure::Cause;
    use super::super::schedule::{Action, Part, Step};
    use super::*;

    /// HT-50: only the very segment that is awaited is taken, also by a member that has appealed
    /// and looks for no mismatch any more: not one of another call, place or length.
    #[test]
    fn only_what_is_awaited_is_taken() {
        let call = Call {
            collective: Collective::Broadcast { root: 0 },
            algorithm: Algorithm::Ring,
            len: 64,
        };
        let part = Part { start: 0, len: 64 };
        let step = Step::receive(0, part, Action::Replace);
        let now = Instant::now();
        let suspect = Failure {
            rank: 0,
            cause: Cause::Late,
        };
        let flow = Flow {
            call,
            meant: call,
            sequence: 4,
            stage: Stage::Hosts,
            switched: false,
            unposted: false,
            done: 0,
            complete: false,
            rest: None,
            base: 0,
            progress: Progress::new(vec![step], 64, false),
            vector: None,
            numbers: vec![[2, 0]],
            is_past: false,
            moved: now,
            probed: now,
            answered: false,
            noted: false,
            appealed: Some((now, suspect)),
        };
        let (transfer, may) = flow.progress.next_receive(0).expect("one is awaited");
        assert!(may);
        let good = Header {
            sequence: 4,
            call,
            number: 2,
        };
        let other = Call { len: 128, ..call };
        let cases = [
            (good, 64, true),
            (good, 56, false),
            (good, 72, false),
            (Header { number: 1, ..good }, 64, false),
            (
                Header {
                    call: other,
                    ..good
                },
                64,
                false,
            ),
            (
                Header {
                    sequence: 3,
                    ..good
                },
                64,
                false,
            ),
            (
                Header {
                    sequence: 5,
                    ..good
                },
                64,
                false,
            ),
        ];
        for (header, len, expected) in cases {
            let taken = flow.expects(0, &transfer, (header, len));
            assert_eq!(taken, expected, "{header:?} of {len} bytes");
        }
    }
}
