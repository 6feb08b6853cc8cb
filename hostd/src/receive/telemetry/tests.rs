use super::*;
use common::wire::int::{self, LEN, TPID};

const BASE: Span = Span::from_micros(10);

/// 100 Gb/s: 12.5 bytes in a nanosecond.
fn hop(at: u32, sent: u32, queue: u64) -> Hop {
    Hop {
        sent,
        at,
        queue: Scaled::of(queue),
        speed: Scaled::of(100_000_000),
    }
}

fn told(hops: &[Hop]) -> Telemetry {
    let mut tag = [0; LEN];
    int::clear(TPID, &mut tag).expect("room");
    for hop in hops {
        int::add(&mut tag, hop).expect("room");
    }
    Telemetry::read(&tag).expect("a tag")
}

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_secs(1) + Span::from_micros(micros)
}

/// The hop and what is in flight, in thousandths.
fn tell(observer: &mut Observer) -> Option<(u8, u64)> {
    let worst = observer.tell()?.worst?;
    Some((
        worst.hop,
        worst.in_flight.value() * 1_000 / Utilisation::WHOLE,
    ))
}

/// SW-52, CC-3: the worst hop counts, by what it sends and what waits there at both times; the
/// average gives the newest sample the weight of its time.
#[test]
fn what_is_in_flight_follows_from_two_packets() {
    let mut observer = Observer::new(BASE, 2);
    let first = told(&[hop(u32::MAX - 999, u32::MAX - 99, 9_000), hop(7, 0, 0)]);
    observer.note(1, Some(&first), at(0));
    assert_eq!(tell(&mut observer), None, "one packet says nothing");
    // 10 us later: 62,500 bytes at the first hop are half of its line, and 12,500 bytes waited
    // in both, a tenth of the product of 125,000. The second sent a quarter of it.
    let second = told(&[hop(9_000, 62_400, 12_500), hop(10_007, 31_250, 0)]);
    observer.note(1, Some(&second), at(10));
    let (hop_number, part) = tell(&mut observer).expect("a value");
    assert_eq!(hop_number, 1);
    assert!(
        (570..=573).contains(&part),
        "0.5 and 9,000 / 125,000: {part}"
    );
    assert_eq!(tell(&mut observer), None, "it is told once");
    // A quarter of the round trip later: nothing in flight, which counts for a quarter.
    let third = told(&[hop(11_500, 62_400, 0), hop(12_507, 31_250, 0)]);
    observer.note(1, Some(&third), at(13));
    let (_, part) = tell(&mut observer).expect("a value");
    assert!((427..=430).contains(&part), "{part}");
}

/// SW-52: packets of one turn of a switch are one sample; a changed way, an old packet, and
/// what cannot be are none.
#[test]
fn what_cannot_be_compared_is_no_sample() {
    let mut observer = Observer::new(BASE, 1);
    let mut note = |hops: &[Hop], micros| {
        observer.note(0, Some(&told(hops)), at(micros));
        tell(&mut observer)
    };
    note(&[hop(0, 0, 0)], 0);
    assert_eq!(note(&[hop(0, 0, 5_000)], 1), None, "the same turn");
    let half = note(&[hop(10_000, 62_500, 0)], 10);
    assert!(
        half.is_some_and(|(_, part)| (499..=501).contains(&part)),
        "{half:?}"
    );
    let other = note(&[hop(1, 1, 0), hop(2, 2, 0)], 11);
    assert_eq!(other, half, "the last value holds until there is another");
    // Ten times the line; and a clock that went back.
    assert_eq!(
        note(&[hop(1_001, 125_000, 0), hop(1_002, 125_000, 0)], 12),
        half
    );
    assert_eq!(note(&[hop(0, 0, 0), hop(0, 0, 0)], 13), half);
    assert_eq!(
        note(&[hop(9, 9, 0), hop(9, 9, 0)], 200_000),
        None,
        "another time"
    );
    let unknown = Hop {
        speed: Scaled(0),
        ..hop(10_009, 62_509, 0)
    };
    assert_eq!(note(&[unknown, unknown], 200_010), None);
}

/// SW-52: where one hop says what cannot be, it may be the worst: the others are no sample.
#[test]
fn a_hop_that_cannot_be_makes_the_pair_say_nothing() {
    let mut observer = Observer::new(BASE, 1);
    let mut note = |hops: &[Hop], micros| {
        observer.note(0, Some(&told(hops)), at(micros));
        tell(&mut observer)
    };
    note(&[hop(0, 0, 0), hop(0, 0, 0)], 0);
    let half = note(&[hop(10_000, 62_500, 0), hop(10_000, 20_000, 0)], 10);
    assert_eq!(half.map(|(number, _)| number), Some(1));
    // A device was handed 50 µs of data in one turn, and the next came 20 µs later.
    let burst = note(&[hop(30_000, 687_500, 0), hop(30_000, 40_000, 0)], 30);
    assert_eq!(burst, half, "the last value holds");
}

/// SW-52: at 400 Gb/s the count of bytes wraps in 86 ms. What may have wrapped is no sample,
/// and the last one stands: a full link would look idle.
#[test]
fn a_count_that_may_have_wrapped_is_no_sample() {
    let mut observer = Observer::new(BASE, 1);
    let of = |micros: u64| {
        let nanos = micros * 1_000;
        let sent = u32::try_from(nanos * 50 % (1 << 32)).expect("32 bits");
        let speed = Scaled::of(400_000_000);
        let hop = hop(u32::try_from(nanos).expect("short"), sent, 0);
        told(&[Hop { speed, ..hop }])
    };
    for (micros, expected) in [(0, None), (80_000, Some(())), (170_000, Some(()))] {
        observer.note(0, Some(&of(micros)), at(micros));
        let told = tell(&mut observer);
        assert_eq!(told.map(drop), expected, "{micros}: {told:?}");
        assert!(told.is_none_or(|(_, part)| part > 990), "{told:?}");
    }
}

/// SW-52: packets without telemetry are told as such, paths take turns, and a path that there
/// is not changes nothing.
#[test]
fn paths_take_turns() {
    let mut observer = Observer::new(BASE, 3);
    for path in [2, 0, 9] {
        observer.note(path, None, at(0));
    }
    let mut paths = || observer.tell().map(|it| (it.path, it.worst));
    assert_eq!(paths(), Some((0, None)));
    assert_eq!(paths(), Some((2, None)));
    assert_eq!(paths(), None);
}
