//! Stations of bridges that move too often, and room that ran out. Pure: moves and the time come
//! in, what is to be told comes out.

use common::netlink::FdbKey;
use common::time::{Span, Time};
use std::collections::HashMap;

/// Stations whose moves are counted at a time; with more than this all counts begin again.
const FLAPS_MAX: usize = 4096;

/// Moves of stations that make an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlapLimit {
    /// So many moves of one station
    pub(super) moves: u32,
    /// in this time.
    pub(super) span: Span,
}

/// Moves of one station.
#[derive(Clone, Copy, Debug)]
struct Flap {
    since: Time,
    moves: u32,
}

/// What is known of bridges beside the tables.
#[derive(Debug, Default)]
pub(super) struct BridgeWatch {
    flaps: HashMap<FdbKey, Flap>,
    /// Moves of stations so far.
    pub(super) moves: u64,
    /// Whether there were stations without room when last looked at.
    is_full: bool,
}

impl BridgeWatch {
    /// Counts a move; how many there were in the span, if that is an event.
    pub(super) fn note(&mut self, key: FdbKey, limit: FlapLimit, now: Time) -> Option<u32> {
        self.moves += 1;
        if self.flaps.len() >= FLAPS_MAX && !self.flaps.contains_key(&key) {
            self.flaps.clear();
        }
        let begin = Flap {
            since: now,
            moves: 0,
        };
        let flap = self.flaps.entry(key).or_insert(begin);
        if now.since(flap.since) >= limit.span {
            *flap = begin;
        }
        flap.moves += 1;
        (flap.moves == limit.moves).then_some(flap.moves)
    }

    /// Notes how many stations have no room; whether that began or ended.
    pub(super) fn note_lacking(&mut self, lacking: usize) -> Option<bool> {
        let is_full = lacking > 0;
        let changed = std::mem::replace(&mut self.is_full, is_full) != is_full;
        changed.then_some(is_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// SW-1: a station that moves too often is told of once in a span; one that moves now and then
    /// is not.
    #[test]
    fn stations_that_flap_are_told_of() {
        let limit = FlapLimit {
            moves: 3,
            span: Span::from_secs(1),
        };
        let key = |last| FdbKey {
            bridge: 9,
            vlan: 5,
            mac: [2, 0, 0, 0, 0, last],
        };
        let mut watch = BridgeWatch::default();
        let told = [0, 100, 200, 300, 1100, 1200, 1300].map(|it| watch.note(key(1), limit, at(it)));
        let (no, yes) = (None, Some(3));
        assert_eq!(told, [no, no, yes, no, no, no, yes]);
        for round in 0..10 {
            assert_eq!(watch.note(key(2), limit, at(2000 + 600 * round)), None);
        }
        assert_eq!(watch.moves, 17);
        assert_eq!(
            [0, 2, 1, 0].map(|it| watch.note_lacking(it)),
            [None, Some(true), None, Some(false)]
        );
    }

    /// The counts of a scan of addresses do not grow without end.
    #[test]
    fn counted_stations_are_bounded() {
        let limit = FlapLimit {
            moves: 3,
            span: Span::from_secs(1),
        };
        let mut watch = BridgeWatch::default();
        for number in 0..3 * u32::try_from(FLAPS_MAX).unwrap() {
            let [a, b, c, d] = number.to_be_bytes();
            let mac = [2, 0, a, b, c, d];
            let key = FdbKey {
                bridge: 9,
                vlan: 0,
                mac,
            };
            watch.note(key, limit, at(0));
            assert!(watch.flaps.len() <= FLAPS_MAX);
        }
    }
}
