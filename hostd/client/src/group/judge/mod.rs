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
    pub(super) sequence: u64,
    /// What it calls, and what it called before, the last first.
    pub(super) calls: Vec<Call>,
    /// The rank that it waits for.
    pub(super) waits_for: Option<usize>,
}

impl State {
    /// What it calls, or called, as collective `sequence`.
    pub(super) fn call(&self, sequence: u64) -> Option<Call> {
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
    pub(super) sequence: u64,
    pub(super) until: Instant,
}

impl Trial {
    /// Whether rank 0, which is in collective `own`, is the only one that has not come so far: it
    /// must go on to be able to say what it calls.
    pub(super) fn waits_for_own(&self, own: u64) -> bool {
        let here = |state: &Option<State>| {
            let state = state.as_ref();
            state.is_some_and(|it| it.sequence >= self.sequence)
        };
        own < self.sequence && self.states.iter().skip(1).all(here)
    }
}

/// Who calls, or called, something else than the others as collective `sequence`.
pub(super) fn odd(states: &[Option<State>], sequence: u64) -> Option<Failure> {
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

/// The collectives that somebody tells of, in order. What is between them nobody knows: numbers
/// come from others, and may be any.
fn known(states: &[Option<State>]) -> impl Iterator<Item = u64> {
    let states = states.iter().flatten();
    let all = states.flat_map(|state| {
        let calls = (0..=state.sequence).rev().zip(&state.calls);
        calls.map(|(sequence, _)| sequence)
    });
    let all: BTreeSet<_> = all.collect();
    all.into_iter()
}

/// Who calls something else than the others, in the earliest collective of which they tell that.
/// All may have gone on since then: who only gives is done before the others have taken it.
pub(super) fn mismatch(states: &[Option<State>]) -> Option<Failure> {
    known(states).find_map(|sequence| odd(states, sequence))
}

/// Whether those who have not told what they call as collective `sequence` cannot change who is
/// named by [`odd`].
pub(super) fn is_certain(states: &[Option<State>], sequence: u64) -> bool {
    let called = |state: &Option<State>| state.as_ref()?.call(sequence);
    let calls: Vec<_> = states.iter().filter_map(called).collect();
    let votes = |call: &Call| calls.iter().filter(|other| *other == call).count();
    let most = calls.iter().map(votes).max().unwrap_or(0);
    let unknown = states.len() - calls.len();
    let mut others = calls.iter().map(votes).filter(|votes| *votes < most);
    // As many of two kinds are told apart by the lowest rank, which is known if all are.
    unknown == 0 || (most * 2 > calls.len() && others.all(|votes| votes + unknown < most))
}

/// Whether it is known, and certain, who calls something else than the others.
pub(super) fn is_decided(states: &[Option<State>]) -> bool {
    let unlike = known(states).find(|sequence| odd(states, *sequence).is_some());
    unlike.is_some_and(|sequence| is_certain(states, sequence))
}

/// Decides by what the members said; `None` stands for those that did not answer, because they are
/// in no collective or stand still themselves. `accuser` has asked, and suspects somebody.
///
/// 1. If not all call the same, the fewest are wrong; of as many, those without the lowest rank.
///    What they do in an earlier collective comes first.
/// 2. Else one is wrong if the accuser has seen that it calls something else.
/// 3. Else the accuser, or if others are behind one of them, waits for one that waits for another
///    one, and so on: at the end is who is not here.
pub(super) fn judge(states: &[Option<State>], accuser: usize, suspicion: Failure) -> Failure {
    let sequences = || states.iter().flatten().map(|state| state.sequence);
    let Some(first) = sequences().min() else {
        return suspicion;
    };
    if let Some(failure) = mismatch(states) {
        return failure;
    }
    if suspicion.cause != Cause::Late {
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
        // All in the chain are here: it is somebody that they do not know of, or a circle. One that
        // has said nothing rather than one that is ahead.
        let all = || 0..states.len();
        let silent = all().find(|rank| states[*rank].is_none());
        let absent = silent.or_else(|| all().find(|rank| here(*rank).is_none()));
        rank = absent.unwrap_or(rank);
    }
    Failure {
        rank,
        cause: Cause::Late,
    }
}

#[cfg(test)]
mod tests;
