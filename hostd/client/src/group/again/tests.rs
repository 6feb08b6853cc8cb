//! Members that do as rank 0 says, and switches that come and go.

use super::super::agree::tests::Random;
use super::*;

const LEAST: Duration = Duration::from_secs(1);

fn why(reason: FailureReason) -> Why {
    Why { reason, rank: None }
}

fn ready(parents: u16, standing: Standing) -> Ready {
    Ready { parents, standing }
}

fn idle() -> [Ready; 3] {
    [ready(2, Standing::Idle); 3]
}

/// One that has begun, and fell back with collective 10.
fn fallen(least: Duration, reason: FailureReason) -> (Again, Instant, Option<u64>) {
    let now = Instant::now();
    let mut again = Again::new(least, now);
    let first = again.decide(0, &idle(), now);
    let attempt = Attempt {
        generation: 1,
        trees: 2,
        first: 0,
    };
    assert_eq!(first, Word::Join(attempt));
    let next = again.fell_back(why(reason), 10, now);
    (again, now, next)
}

/// HT-50, SW-40: a group has as many trees as all its leaves have switches above; members that do
/// not know do not count; where nobody knows there is one.
#[test]
fn trees_are_those_that_all_leaves_have() {
    let cases = [
        ([u16::MAX, 4, 3], 3),
        ([u16::MAX, 4, 1], 1),
        ([2, u16::MAX, u16::MAX], 2),
        ([u16::MAX; 3], 1),
        ([500, u16::MAX, 400], TREES),
    ];
    for (parents, trees) in cases {
        let mut again = Again::new(LEAST, Instant::now());
        let all = parents.map(|it| ready(it, Standing::Idle));
        let generation = 1;
        let first = 0;
        let expected = Word::Join(Attempt {
            generation,
            trees,
            first,
        });
        assert_eq!(again.decide(5, &all, Instant::now()), expected);
    }
}

/// HT-50: a group tries again when its time is over, and not before; all ask with the first
/// collective after the failure, and then at most as many later as have passed.
#[test]
fn a_group_tries_when_its_time_is_over() {
    let (mut again, begin, next) = fallen(LEAST, FailureReason::SwitchLost);
    let mut sequence = next.expect("it asks again");
    assert_eq!(sequence, 11);
    let (mut asked, each) = (0, Duration::from_millis(1));
    let at = |sequence: u64| begin + each * u32::try_from(sequence - 10).expect("few");
    while let Word::Stay(next) = again.decide(sequence, &idle(), at(sequence)) {
        assert!(next > sequence && next - 10 <= 2 * (sequence - 10));
        assert!(at(sequence) - begin < LEAST);
        (sequence, asked) = (next, asked + 1);
    }
    let late = at(sequence) - begin;
    assert!(late >= LEAST && late < LEAST + 2 * each, "{late:?}");
    assert!(asked <= 12, "a thousand collectives, {asked} questions");
    let never = fallen(Duration::ZERO, FailureReason::SwitchLost);
    assert_eq!(never.2, None);
}

/// HT-50: each attempt in vain doubles the time, up to 64 times; one that an operator ended waits
/// so long at once; one that lasted begins anew.
#[test]
fn attempts_in_vain_become_rare() {
    let (mut again, mut now, _) = fallen(LEAST, FailureReason::SwitchLost);
    let mut sequence = 11;
    for doublings in [0, 1, 2, 3, 4, 5, 6, 6, 6] {
        let rest = LEAST * (1 << doublings);
        let early = now + rest - Duration::from_millis(1);
        assert!(matches!(
            again.decide(sequence, &idle(), early),
            Word::Stay(_)
        ));
        now += rest;
        assert!(matches!(
            again.decide(sequence, &idle(), now),
            Word::Try(..)
        ));
        let failed = Standing::Failed(why(FailureReason::NoAnswer));
        let all = [idle()[0], ready(2, failed), idle()[0]];
        assert!(matches!(
            again.decide(sequence + 1, &all, now),
            Word::Stay(_)
        ));
        sequence += 2;
    }
    let (mut again, now, _) = fallen(LEAST, FailureReason::Deleted);
    let early = now + LEAST * 64 - Duration::from_millis(1);
    assert!(matches!(again.decide(20, &idle(), early), Word::Stay(_)));
    let late = now + LEAST * 64;
    assert!(matches!(again.decide(20, &idle(), late), Word::Try(..)));
    let admitted = [ready(2, Standing::Admitted); 3];
    assert_eq!(again.decide(21, &admitted, late), Word::Use);
    let long_after = late + LEAST * 65;
    again.fell_back(why(FailureReason::SwitchLost), 30, long_after);
    let soon = again.decide(31, &idle(), long_after + LEAST);
    assert!(matches!(soon, Word::Try(..)), "{soon:?}");
}

/// HT-50, SW-42: after a switch above was lost the next attempts have one tree, by the first one,
/// by the second, and so on, and then there are all again: whichever is dead, one of the others is
/// found.
#[test]
fn a_lost_spine_is_gone_around() {
    let (mut again, mut now, _) = fallen(LEAST, FailureReason::ParentLost);
    let mut tried = Vec::new();
    for sequence in (11..).step_by(2).take(6) {
        now += LEAST * 64;
        let Word::Try(attempt, _) = again.decide(sequence, &idle(), now) else {
            panic!("time is over");
        };
        tried.push((attempt.first, attempt.trees));
        let failed = Standing::Failed(why(FailureReason::ParentLost));
        let all = [ready(2, failed); 3];
        assert!(matches!(
            again.decide(sequence + 1, &all, now),
            Word::Stay(_)
        ));
    }
    assert_eq!(tried, [(0, 1), (1, 1), (0, 2), (0, 1), (1, 1), (0, 2)]);
}

/// HT-50: all ask at the collective that was named, or at the first one after it that switches can
/// do, also when a group has done more of them than 32 bits count.
#[test]
fn all_ask_at_the_collective_that_was_named() {
    for next in [7, 1 << 32, (1 << 32) + 7] {
        assert!(is_due(next, next) && is_due(next + 1, next) && !is_due(next - 1, next));
    }
    assert!(!is_due(3, u64::MAX) && is_due(1 << 32, 3));
}

/// A member as it obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    next: Option<u64>,
    generation: u32,
    trying: bool,
    used: bool,
}

impl Member {
    fn obey(&mut self, word: Word) {
        match word {
            Word::Join(attempt) => (self.generation, self.used) = (attempt.generation, true),
            Word::Try(attempt, next) => {
                assert!(attempt.generation > self.generation, "a new one");
                assert!(!self.trying && attempt.trees > 0);
                (self.generation, self.trying) = (attempt.generation, true);
                self.next = Some(next);
            }
            Word::Use => {
                assert!(self.trying, "it has tried");
                (self.trying, self.used, self.next) = (false, true, None);
            }
            Word::Wait(next) => {
                assert!(self.trying);
                self.next = Some(next);
            }
            Word::Stay(next) => (self.trying, self.next) = (false, Some(next)),
        }
    }
}

/// HT-50, SW-42: whatever happens to the switches at random moments, a group goes there only when
/// all members are in the same attempt, always goes back to the hosts and always tries again; each
/// question names a later collective.
#[test]
fn a_group_comes_and_goes_at_random_moments() {
    let (mut used, mut failed) = (0, 0);
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let size = 2 + random.below(6);
        let mut now = Instant::now();
        let mut again = Again::new(LEAST, now);
        let mut members = vec![Standing::Idle; size];
        let mut model = Member {
            next: Some(0),
            generation: 0,
            trying: false,
            used: false,
        };
        for sequence in 0..3_000_u64 {
            now += Duration::from_millis(1) * u32::try_from(random.below(200)).expect("few");
            if model.used {
                if random.below(40) == 0 {
                    let reason = [FailureReason::SwitchLost, FailureReason::ParentLost];
                    let reason = reason[random.below(2)];
                    model.used = false;
                    model.next = again.fell_back(why(reason), sequence, now);
                    failed += 1;
                }
                continue;
            }
            for standing in &mut members {
                if *standing == Standing::Pending && random.below(3) == 0 {
                    *standing = match random.below(4) {
                        0 => Standing::Failed(why(FailureReason::ParentLost)),
                        _ => Standing::Admitted,
                    };
                }
            }
            if !model.next.is_some_and(|next| is_due(sequence, next)) {
                continue;
            }
            let all: Vec<_> = members.iter().map(|it| ready(2, *it)).collect();
            let word = again.decide(sequence, &all, now);
            let admitted = members.iter().all(|it| *it == Standing::Admitted);
            assert!(word != Word::Use || admitted, "seed {seed} at {sequence}");
            model.obey(word);
            match word {
                Word::Try(..) => members.fill(Standing::Pending),
                Word::Wait(_) => {}
                _ => members.fill(Standing::Idle),
            }
            let later = model.next.is_none_or(|next| next > sequence);
            assert!(model.used || later, "seed {seed} at {sequence}: {word:?}");
            used += usize::from(model.used);
        }
    }
    println!("{used} times to the switches, {failed} times back");
    assert!(used > 4_000 && failed > 4_000);
}
