//! Who stands still tells rank 0 what it calls.
//!
//! Segments show whether two members call the same, but where members take different ranks for the
//! root, nobody may send any: each waits for another one. So one that nothing has come to for a
//! moment says once in a collective what it calls. Rank 0 compares that with what it calls itself,
//! now or when it comes so far, and asks all when they differ.

use super::judge::State;
use std::time::Duration;

/// For how long nothing goes on before a member says what it calls: longer than members wait for
/// each other where all is well, mostly.
pub(super) const STILL: Duration = Duration::from_millis(250);

/// What members said that stand still.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Of rank 0: the last of each, as far as it has something to compare it with.
    states: Vec<(usize, State)>,
    /// Of rank 0: some came since it compared them.
    pub(super) fresh: bool,
    /// Of the others: rank 0 has not looked at the last one, which takes one of its places.
    pub(super) sent: bool,
}

impl Notes {
    /// A note has come.
    pub(super) fn take(&mut self, from: usize, state: State) {
        self.states.retain(|(rank, _)| *rank != from);
        self.states.push((from, state));
        self.fresh = true;
    }

    /// Rank 0 has taken the last one.
    pub(super) fn taken(&mut self) {
        self.sent = false;
    }

    /// What is to be compared, by rank, with rank 0's own; `None` if nothing is new.
    pub(super) fn unseen(
        &mut self,
        own: impl FnOnce() -> State,
        size: usize,
    ) -> Option<Vec<Option<State>>> {
        if !std::mem::take(&mut self.fresh) || self.states.is_empty() {
            return None;
        }
        let mut states = vec![None; size];
        for (rank, state) in &self.states {
            if let Some(place) = states.get_mut(*rank) {
                *place = Some(state.clone());
            }
        }
        let own = own();
        // Of what is left somebody is further than rank 0.
        self.states
            .retain(|(_, state)| state.sequence > own.sequence);
        states[0] = Some(own);
        Some(states)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Algorithm, Call, Collective};
    use super::super::failure::Cause;
    use super::super::judge::mismatch;
    use super::*;

    fn state(sequence: u64, roots: &[usize]) -> State {
        let call = |root: &usize| Call {
            collective: Collective::Broadcast { root: *root },
            algorithm: Algorithm::Ring,
            len: 64,
        };
        State {
            sequence,
            calls: roots.iter().map(call).collect(),
            waits_for: None,
        }
    }

    /// HT-50: one that waits for another root than rank 0 is found at once, in the collective that
    /// rank 0 is in, in one before, or when it comes to it.
    #[test]
    fn another_root_is_found_as_soon_as_it_is_told() {
        let found = |notes: &mut Notes, own: &State| {
            let states = notes.unseen(|| own.clone(), 4);
            states.and_then(|states| mismatch(&states))
        };
        for (theirs, own) in [
            (state(5, &[2, 0]), state(5, &[3, 0])),
            (state(5, &[2, 0]), state(6, &[0, 3, 0])),
            (state(5, &[0, 2]), state(5, &[0, 3])),
        ] {
            let mut notes = Notes::default();
            notes.take(1, theirs);
            let failure = found(&mut notes, &own).expect("they differ");
            assert!(matches!(failure.cause, Cause::Mismatch { .. }));
            assert_eq!(failure.rank, 1);
        }
        let mut notes = Notes::default();
        notes.take(2, state(6, &[2, 0]));
        notes.take(2, state(7, &[3, 2, 0]));
        assert_eq!(found(&mut notes, &state(5, &[0])), None, "not so far");
        assert_eq!(found(&mut notes, &state(5, &[0])), None, "nothing is new");
        notes.fresh = true;
        assert_eq!(found(&mut notes, &state(6, &[2, 0])), None, "the same");
        notes.fresh = true;
        let failure = found(&mut notes, &state(7, &[4, 2, 0])).expect("they differ");
        assert_eq!(failure.rank, 2);
        assert!(notes.states.is_empty());
    }
}
