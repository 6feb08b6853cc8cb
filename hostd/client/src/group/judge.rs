//! Who is to blame when members stand still: rank 0 asks all how far they are, and decides.

use super::call::Call;
use super::failure::{Cause, Failure};
use std::collections::BTreeSet;
use std::time::Instant;

/// Calls that a member remembers, for those that are not as far: one that only gives may be ahead.
pub(super) const REMEMBERED: usize = 16;

/// How far a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The collective that it is in, from zero on.
    pub(super) sequence: u32,
    /// What it calls, and what it called before, the last first.
    pub(super) calls: Vec<Call>,
    /// The rank that it waits for.
    pub(super) waits_for: Option<usize>,
}

impl State {
    /// What it calls, or called, as collective `sequence`.
    pub(super) fn call(&self, sequence: u32) -> Option<Call> {
        let back = usize::try_from(self.sequence.checked_sub(sequence)?).ok()?;
        self.calls.get(back).copied()
    }
}

/// Rank 0 asks who is to blame.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) accuser: usize,
    pub(super) suspicion: Failure,
    pub(super) states: Vec<Option<State>>,
    /// The collective that the accuser is in: others may only just come to it.
    pub(super) sequence: u32,
    pub(super) until: Instant,
}

/// Who calls, or called, something else than the others as collective `sequence`.
pub(super) fn odd(states: &[Option<State>], sequence: u32) -> Option<Failure> {
    let calls: Vec<_> = (0..states.len())
        .filter_map(|rank| Some((rank, states[rank].as_ref()?.call(sequence)?)))
        .collect();
    let votes = |call: Call| calls.iter().filter(|(_, other)| *other == call).count();
    // The lowest rank last: it wins a tie.
    let all = calls.iter().rev().map(|(_, call)| *call);
    let others = all.max_by_key(|call| votes(*call))?;
    let (rank, called) = *calls.iter().find(|(_, call)| *call != others)?;
    let cause = Cause::Mismatch { called, others };
    Some(Failure { rank, cause })
}

/// The collectives from `first` on that somebody tells of, in order. What is between them nobody
/// knows: numbers come from others, and may be any.
fn known(states: &[Option<State>], first: u32) -> impl Iterator<Item = u32> {
    let states = states.iter().flatten();
    let all = states.flat_map(|state| {
        let calls = (0..=state.sequence).rev().zip(&state.calls);
        calls.map(|(sequence, _)| sequence)
    });
    let all: BTreeSet<_> = all.filter(|it| *it >= first).collect();
    all.into_iter()
}

/// Decides by what the members said; `None` stands for those that did not answer, because they are
/// in no collective or stand still themselves. `accuser` has asked, and suspects somebody.
///
/// 1. If not all call the same, the fewest are wrong; of as many, those without the lowest rank.
///    What they do in an earlier collective comes first.
/// 2. One that does not answer is wrong if the accuser has seen that it calls something else.
/// 3. Else the accuser, or if others are behind one of them, waits for one that waits for another
///    one, and so on: at the end is who is not here.
pub(super) fn judge(states: &[Option<State>], accuser: usize, suspicion: Failure) -> Failure {
    let sequences = || states.iter().flatten().map(|state| state.sequence);
    let Some(first) = sequences().min() else {
        return suspicion;
    };
    if let Some(failure) = known(states, first).find_map(|it| odd(states, it)) {
        return failure;
    }
    let answered = states.get(suspicion.rank).is_some_and(Option::is_some);
    if suspicion.cause != Cause::Late && !answered {
        return suspicion;
    }
    let here = |rank: usize| {
        let state = states.get(rank).and_then(Option::as_ref);
        state.filter(|state| state.sequence == first)
    };
    let any = (0..states.len()).find(|rank| here(*rank).is_some());
    let mut rank = if here(accuser).is_some() {
        accuser
    } else {
        any.unwrap_or(accuser)
    };
    for _ in 0..states.len() {
        match here(rank).and_then(|state| state.waits_for) {
            Some(next) => rank = next,
            None => break,
        }
    }
    if here(rank).is_some() {
        // All in the chain are here: it is somebody that they do not know of, or a circle.
        let absent = (0..states.len()).find(|rank| here(*rank).is_none());
        rank = absent.unwrap_or(rank);
    }
    Failure {
        rank,
        cause: Cause::Late,
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Algorithm, Collective};
    use super::*;

    fn call(len: u64) -> Call {
        Call {
            collective: Collective::Broadcast { root: 0 },
            algorithm: Algorithm::Ring,
            len,
        }
    }

    fn state(sequence: u32, len: u64, waits_for: usize) -> Option<State> {
        Some(State {
            sequence,
            calls: vec![call(len)],
            waits_for: Some(waits_for),
        })
    }

    fn mismatch(rank: usize, called: u64, others: u64) -> Failure {
        let cause = Cause::Mismatch {
            called: call(called),
            others: call(others),
        };
        Failure { rank, cause }
    }

    fn late(rank: usize) -> Failure {
        let cause = Cause::Late;
        Failure { rank, cause }
    }

    /// HT-50: the one that calls something else is named, whoever complains.
    #[test]
    fn the_odd_one_is_named() {
        for odd in 0..5 {
            let mut states = [const { None }; 5].map(|_: Option<State>| state(3, 8, 1));
            states[odd] = state(3, 16, 1);
            for accuser in 0..5 {
                assert_eq!(judge(&states, accuser, late(4)), mismatch(odd, 16, 8));
            }
        }
        let two = [state(0, 8, 1), state(0, 16, 0)];
        assert_eq!(judge(&two, 1, late(0)), mismatch(1, 16, 8), "a tie");
        let some = [None, state(0, 8, 1), state(0, 8, 1), state(0, 4, 0)];
        assert_eq!(judge(&some, 1, late(0)), mismatch(3, 4, 8));
    }

    /// HT-50: one that is further may call anything, but must have called the same before; and one
    /// that has gone on to something else does not answer.
    #[test]
    fn one_that_is_ahead_is_judged_by_what_it_called() {
        let ahead = |before| {
            let state = state(1, 4, 1).map(|mut state| {
                state.calls.push(call(before));
                state
            });
            [state, self::state(0, 8, 2), self::state(0, 8, 0), None]
        };
        assert_eq!(judge(&ahead(5), 1, late(2)), mismatch(0, 5, 8));
        assert_eq!(judge(&ahead(8), 1, late(2)), late(0));
        let behind = [
            state(0, 8, 1),
            state(1, 4, 0),
            state(1, 5, 0),
            state(1, 4, 0),
        ];
        assert_eq!(
            judge(&behind, 1, late(0)),
            mismatch(2, 5, 4),
            "one has not come so far"
        );
        let away = [None, state(0, 8, 0), state(0, 8, 0)];
        assert_eq!(judge(&away, 1, mismatch(0, 4, 8)), mismatch(0, 4, 8));
        assert_eq!(judge(&away, 1, late(0)), late(0));
    }

    /// HT-50: only collectives that somebody tells of are looked at, however far apart they are.
    #[test]
    fn numbers_of_others_make_no_work() {
        let mut far = state(u32::MAX, 4, 1).expect("it is one");
        far.calls.push(call(5));
        let states = [Some(far), state(1, 8, 2), None];
        let looked: Vec<_> = known(&states, 1).collect();
        assert_eq!(looked, [1, u32::MAX - 1, u32::MAX]);
        assert_eq!(judge(&states, 1, late(2)), late(2));
        let mut begin = state(0, 8, 1).expect("it is one");
        begin.calls.push(call(8));
        assert_eq!(known(&[Some(begin)], 0).collect::<Vec<_>>(), [0]);
    }

    /// HT-50: the one at the end of the chain is named, not those that wait as well.
    #[test]
    fn the_one_that_is_not_here_is_named() {
        let ring = [
            state(7, 8, 4),
            state(7, 8, 0),
            None,
            state(7, 8, 2),
            state(7, 8, 3),
        ];
        for accuser in [0, 1, 3, 4] {
            assert_eq!(judge(&ring, accuser, late(0)), late(2));
        }
        let behind = [state(7, 8, 1), state(6, 8, 2), None];
        assert_eq!(
            judge(&behind, 0, late(0)),
            late(2),
            "what is behind comes first"
        );
        let circle = [state(7, 8, 1), state(7, 8, 0), state(7, 8, 0)];
        assert!(judge(&circle, 2, late(0)).rank < 2);
        assert_eq!(
            judge(&[None, None], 1, late(0)),
            late(0),
            "nobody answers at all"
        );
    }
}
