use super::*;

const RTO: Span = Span::from_millis(10);

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000 + micros * 1_000)
}

fn awaited(tolerance: Option<Span>) -> Awaited {
    Awaited::new(Patience {
        most: 2,
        tolerance,
        give_up: Some(Span::from_millis(1600)),
    })
}

fn psn(n: u32) -> Psn {
    Psn::new(0xff_fffe).plus(n)
}

/// HT-1: answers are taken once, in any order and across the wrap, and requests are bounded in
/// number and in answers.
#[test]
fn answers_come_once_and_in_any_order() {
    let mut awaited = awaited(Some(Span::from_millis(2)));
    assert!(awaited.has_room(64, 10), "one request always fits");
    awaited.ask(7, 0, (psn(0), 4), RTO, at(0));
    assert!(awaited.has_room(6, 10) && !awaited.has_room(7, 10));
    awaited.ask(7, 4, (psn(4), 2), RTO, at(0));
    assert!(!awaited.has_room(1, 100), "two may be outstanding");
    for (n, index) in [(5, 5), (0, 0), (3, 3), (2, 2), (4, 4), (1, 1)] {
        let question = if n < 4 { (psn(0), 4) } else { (psn(4), 2) };
        let expected = awaited.expected(psn(n)).expect("it is missing");
        assert_eq!(
            expected,
            Expected {
                request: 7,
                index,
                question,
                asked: at(0),
            }
        );
        awaited.take(psn(n), RTO, at(1));
        assert_eq!(awaited.expected(psn(n)), None, "it came");
    }
    assert_eq!(awaited.expected(psn(6)), None, "nobody asked");
    assert!(awaited.is_empty() && awaited.deadline() == Time::NEVER);
}

/// HT-1, HT-41: what newer answers overtook for longer than agreed is asked for again, and only
/// that. A plain peer repeats from a number on.
#[test]
fn what_is_missing_is_asked_for_again() {
    for tolerance in [Some(Span::from_millis(2)), None] {
        let mut awaited = awaited(tolerance);
        awaited.ask(0, 0, (psn(0), 6), RTO, at(0));
        for n in [0, 3, 4] {
            awaited.take(psn(n), RTO, at(5));
        }
        let due = at(5) + tolerance.unwrap_or_default();
        assert_eq!(awaited.deadline(), due);
        let lost = Lost {
            packets: 2,
            asked: at(0),
        };
        assert_eq!(awaited.expire(RTO, due, |_| true), Ok(lost));
        let packets = if tolerance.is_some() { 2 } else { 5 };
        let again = awaited.again().expect("two are missing");
        assert_eq!(
            (again.psn, again.index, again.packets),
            (psn(1), 1, packets)
        );
        awaited.asked_again(&again, due);
        assert_eq!(awaited.again(), None);
        awaited.take(psn(1), RTO, at(2100));
        awaited.take(psn(2), RTO, at(2100));
        assert_eq!(awaited.deadline(), at(2100) + RTO, "only silence is left");
    }
}

/// HT-41: an answer is given the time that was agreed on from when newer ones overtook it, also
/// behind one that has missed its time.
#[test]
fn what_was_overtaken_just_now_may_come_yet() {
    let tolerance = Span::from_millis(2);
    let mut awaited = awaited(Some(tolerance));
    awaited.ask(0, 0, (psn(0), 20), RTO, at(0));
    for n in [0, 2, 3] {
        awaited.take(psn(n), RTO, at(5));
    }
    let due = at(5) + tolerance;
    awaited.take(psn(10), RTO, at(2_004));
    let lost = awaited.expire(RTO, due, |_| true);
    assert_eq!(
        lost.map(|lost| lost.packets),
        Ok(1),
        "those from 4 to 9 are not late"
    );
}

/// HT-42: an answer that came without its payload is asked for again at once, and alone; a second
/// time only when the new one can have come.
#[test]
fn a_trimmed_answer_is_asked_for_again_at_once() {
    let least = Span::from_micros(10);
    let mut awaited = awaited(Some(Span::from_millis(2)));
    awaited.ask(0, 0, (psn(0), 6), RTO, at(0));
    assert_eq!(awaited.trimmed(psn(6), least, at(1)), None, "nobody asked");
    awaited.take(psn(1), RTO, at(1));
    assert_eq!(awaited.trimmed(psn(1), least, at(1)), None, "it came");
    assert_eq!(awaited.trimmed(psn(3), least, at(2)), Some(at(0)));
    assert_eq!(awaited.trimmed(psn(3), least, at(2)), None, "it is known");
    let again = awaited.again().expect("one is trimmed");
    assert_eq!((again.psn, again.index, again.packets), (psn(3), 3, 1));
    awaited.asked_again(&again, at(3));
    assert_eq!(awaited.again(), None);
    assert_eq!(awaited.trimmed(psn(3), least, at(4)), None, "too soon");
    assert_eq!(awaited.trimmed(psn(4), least, at(4)), Some(at(3)));
    assert_eq!(awaited.trimmed(psn(3), least, at(13)), Some(at(3)));
    let again = awaited.again().expect("two are trimmed");
    assert_eq!((again.psn, again.packets), (psn(3), 2));
}

/// HT-1, HT-24: silence asks for everything again, ever more slowly, but some 30 times at least,
/// and ends in giving up; not while the request itself is under way.
#[test]
fn silence_ends() {
    let mut awaited = awaited(Some(Span::from_millis(2)));
    awaited.ask(0, 0, (psn(0), 3), RTO, at(0));
    let late = awaited.deadline();
    let none = awaited
        .expire(RTO, late, |_| false)
        .map(|lost| lost.packets);
    assert_eq!(none, Ok(0));
    let mut asked = Vec::new();
    let status = loop {
        let now = awaited.deadline();
        match awaited.expire(RTO, now, |_| true) {
            Ok(lost) => {
                assert_eq!(lost.packets, 3);
                let again = awaited.again().expect("all are missing");
                assert_eq!((again.psn, again.packets), (psn(0), 3));
                awaited.asked_again(&again, now);
                asked.push(now.since(late));
            }
            Err(status) => break status,
        }
    };
    assert_eq!(status, Status::RetryExceeded);
    let millis: Vec<_> = asked.iter().map(|span| span.nanos() / 1_000_000).collect();
    assert_eq!(millis[..5], [10, 30, 70, 120, 170]);
    assert_eq!(millis.len(), 33);
}

/// HT-30: no new packet leaves so far behind a missing answer that numbers could be confused.
#[test]
fn what_is_new_stays_in_reach() {
    let mut awaited = awaited(None);
    assert!(
        awaited.reaches(psn(limits::PSN_REACH)),
        "nothing is missing"
    );
    awaited.ask(7, 0, (psn(0), 2), RTO, at(0));
    assert!(awaited.reaches(psn(2)) && awaited.reaches(psn(limits::PSN_REACH - 1)));
    assert!(!awaited.reaches(psn(limits::PSN_REACH)) && !awaited.reaches(psn(1 << 23)));
    awaited.take(psn(0), RTO, at(1));
    assert!(!awaited.reaches(psn(limits::PSN_REACH)), "one is missing");
    awaited.take(psn(1), RTO, at(1));
    assert!(awaited.reaches(psn(limits::PSN_REACH)));
}
