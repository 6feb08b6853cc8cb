//! Connections that are set up, as control hears of them.

use super::super::tests::set_up;
use super::*;
use crate::flows::tests::host;

/// Room for so many directions, more than are needed.
const MOST: usize = 1 << 20;

/// The message of connection management in a frame, between hosts behind ports of the same
/// numbers.
fn told(from: u8, to: u8, frame: &[u8], now: Time) -> Setup {
    // The message is the last of the packet, before its ICRC.
    let end = frame.len() - 4;
    let message = &frame[end - 256..end];
    Setup {
        ingress: PortId(from.into()),
        source: host(from, false),
        destination: host(to, false),
        message: message.try_into().expect("a whole message"),
        at: now,
    }
}

/// SW-50: more connections are set up in a minute than may wait for their answer; an answer
/// that is sent again says the same.
#[test]
fn answered_requests_make_room() {
    let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
    let (a, b) = (host(1, false), host(2, false));
    let count = 3 * u32::try_from(REQUESTS).expect("few");
    for number in 0..count {
        let [req, rep] = set_up(a, b, (1000 + number, 500_000 + number), number);
        assert_eq!(setups.take(&told(1, 2, &req, now), MOST), None);
        let [pair, again] = [(); 2].map(|()| setups.take(&told(2, 1, &rep, now), MOST));
        let expected = Key::new(a, b, 500_000 + number).zip(Key::new(b, a, 1000 + number));
        assert_eq!((pair, again), (expected, expected), "{number}");
    }
    assert_eq!(setups.refused, 0);
    assert_eq!(setups.others.len(), 2 * 3 * REQUESTS);
    assert!(setups.requests.open.is_empty());
    assert_eq!(setups.requests.shares.used(), 0);
    assert_eq!(setups.shares.used(), setups.others.len());
}

/// SW-50: a queue pair that is used anew has its new peer alone, and the old one has none.
#[test]
fn a_queue_pair_that_is_used_again_has_one_peer() {
    let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
    let (a, b) = (host(1, false), host(2, false));
    for (number, server) in [(1, 100), (2, 200)] {
        let [req, rep] = set_up(a, b, (7, server), number);
        setups.take(&told(1, 2, &req, now), MOST);
        setups.take(&told(2, 1, &rep, now), MOST);
    }
    let key = |from, to, qp| Key::new(from, to, qp).expect("one version");
    let other = |key| setups.other(&key).map(|other| other.key);
    assert_eq!(other(key(b, a, 7)), Some(key(a, b, 200)));
    assert_eq!(other(key(a, b, 200)), Some(key(b, a, 7)));
    assert_eq!(other(key(a, b, 100)), None);
    assert_eq!(setups.shares.used(), setups.others.len());
}

/// SW-50: a port from which requests with invented sources come, with answers or without, takes
/// at most half of the room, which is counted as its own; those of other ports find theirs.
#[test]
fn one_port_does_not_take_all_room() {
    let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
    let (a, b) = (host(1, false), host(2, false));
    let invented = |number: u32| IpAddr::from((0x0b00_0000 + number).to_be_bytes());
    let most = 2000;
    for number in 0..10_000 {
        let (client, hostile) = (invented(number), PortId(9));
        let [req, rep] = set_up(client, b, (7, number), 1);
        let mut req = told(9, 2, &req, now);
        (req.source, req.ingress) = (client, hostile);
        setups.take(&req, most);
        if number % 4 == 0 {
            let mut rep = told(2, 9, &rep, now);
            (rep.destination, rep.ingress) = (client, hostile);
            setups.take(&rep, most);
        }
    }
    assert_eq!(setups.requests.open.len(), REQUESTS / 2);
    assert_eq!(setups.others.len(), most / 2);
    let counted: Vec<(PortId, u64)> = setups.without_room().collect();
    assert_eq!(counted, [(PortId(9), setups.refused)]);
    for number in 0..200 {
        let [req, rep] = set_up(a, b, (number, 50_000 + number), number);
        setups.take(&told(1, 2, &req, now), most);
        let pair = setups.take(&told(2, 1, &rep, now), most);
        assert!(pair.is_some(), "{number}");
    }
    assert_eq!(setups.without_room().count(), 1);
    setups.forget(now + PATIENCE, |_| false);
    assert_eq!(
        (setups.requests.shares.used(), setups.shares.used()),
        (0, 0)
    );
}

/// SW-50: one source that asks and is not answered leaves room for the requests of others, and
/// has its own back after a minute.
#[test]
fn one_source_does_not_take_all_room() {
    let (mut setups, now) = (Setups::default(), Time::from_nanos(1));
    let (a, b, c) = (host(1, false), host(2, false), host(3, false));
    for number in 0..5000 {
        let [req, _] = set_up(a, b, (number, 0), number);
        setups.take(&told(1, 2, &req, now), MOST);
    }
    assert_eq!(setups.refused, 5000 - REQUESTS_OF_ONE as u64);
    // The same address at another port has its own room.
    let [req, rep] = set_up(a, b, (77, 6), 5000);
    let mut elsewhere = told(1, 2, &req, now);
    elsewhere.ingress = PortId(4);
    setups.take(&elsewhere, MOST);
    let pair = setups.take(&told(2, 1, &rep, now), MOST);
    assert_eq!(pair, Key::new(a, b, 6).zip(Key::new(b, a, 77)));
    let [req, rep] = set_up(c, b, (7, 8), 9);
    setups.take(&told(3, 2, &req, now), MOST);
    let pair = setups.take(&told(2, 3, &rep, now), MOST);
    assert_eq!(pair, Key::new(c, b, 8).zip(Key::new(b, c, 7)));
    let later = now + PATIENCE;
    setups.forget(later, |_| true);
    assert!(setups.requests.of.is_empty());
    assert_eq!(
        (setups.requests.shares.used(), setups.shares.used()),
        (0, 4)
    );
    let [req, rep] = set_up(a, b, (7, 8), 9);
    setups.take(&told(1, 2, &req, later), MOST);
    assert!(setups.take(&told(2, 1, &rep, later), MOST).is_some());
}
