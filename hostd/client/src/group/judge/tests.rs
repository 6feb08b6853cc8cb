//! Members that differ, and members that are not here.

use super::super::call::{Algorithm, Collective};
use super::*;

fn call(len: u64) -> Call {
    Call {
        collective: Collective::Broadcast { root: 0 },
        algorithm: Algorithm::Ring,
        len,
    }
}

fn state(sequence: u64, len: u64, waits_for: usize) -> Option<State> {
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
    let mut far = state(u64::MAX, 4, 1).expect("it is one");
    far.calls.push(call(5));
    let states = [Some(far), state(1, 8, 2), None];
    let looked: Vec<_> = known(&states).collect();
    assert_eq!(looked, [1, u64::MAX - 1, u64::MAX]);
    assert_eq!(judge(&states, 1, late(2)), late(2));
    let mut begin = state(0, 8, 1).expect("it is one");
    begin.calls.push(call(8));
    assert_eq!(known(&[Some(begin)]).collect::<Vec<_>>(), [0]);
}

/// HT-50: all have gone on since one called something else: it is named.
#[test]
fn what_was_called_before_counts_though_all_have_gone_on() {
    let states = [8, 8, 8, 5].map(|before| {
        let calls = vec![call(4), call(before)];
        state(1, 4, 1).map(|state| State { calls, ..state })
    });
    for suspicion in [mismatch(3, 5, 8), mismatch(1, 8, 5), late(0)] {
        assert_eq!(judge(&states, 2, suspicion), mismatch(3, 5, 8));
    }
    assert!(is_decided(&states));
}

/// HT-50: nobody is named as long as those who have not told yet may make it another one; rank 0,
/// which waits for them, does not wait for itself.
#[test]
fn who_has_not_told_may_change_who_is_named() {
    let told = |lens: &[u64]| -> Vec<_> {
        let one = |len: &u64| (*len > 0).then(|| state(3, *len, 1)).flatten();
        lens.iter().map(one).collect()
    };
    for (lens, decided) in [
        (&[8, 8, 8, 16][..], true),
        (&[8, 8, 16, 16], true),
        (&[0, 8, 8, 16], false),
        (&[0, 8, 8, 8, 16], true),
        (&[0, 0, 8, 8, 8, 16], false),
        (&[8, 0, 0, 16], false),
        (&[0, 8, 16], false),
        (&[8, 8, 0], false),
    ] {
        assert_eq!(is_decided(&told(lens)), decided, "{lens:?}");
    }
    let trial = |states: Vec<Option<State>>| Trial {
        accuser: 1,
        suspicion: late(0),
        states,
        sequence: 3,
        until: Instant::now(),
    };
    assert!(trial(told(&[0, 8, 16])).waits_for_own(2));
    assert!(!trial(told(&[8, 8, 16])).waits_for_own(3));
    assert!(
        !trial(told(&[0, 8, 0])).waits_for_own(2),
        "another one, too"
    );
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
    // Two that poll after collective 6, and one that is ahead.
    let waits_for = None;
    let free = |sequence| state(sequence, 8, 0).map(|it| State { waits_for, ..it });
    let ahead = [free(6), free(7), None, free(6)];
    assert_eq!(judge(&ahead, 1, late(0)), late(2), "who says nothing");
    let circle = [state(7, 8, 1), state(7, 8, 0), state(7, 8, 0)];
    assert!(judge(&circle, 2, late(0)).rank < 2);
    assert_eq!(
        judge(&[None, None], 1, late(0)),
        late(0),
        "nobody answers at all"
    );
}
