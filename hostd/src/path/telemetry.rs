//! What peers say of the telemetry of own packets (SW-52): which packets have it, and how much of
//! the worst link of each sub-path is used.
//!
//! A path that takes telemetry off is noticed by empty answers ([`super::stripped`]): it is left
//! out there for a while, and then tried again.

use super::stripped::Stripping;
use crate::stats::PathLoad;
use crate::verbs::IntTerms;
use common::time::Time;
use common::wire::int::HOPS;
use common::wire::roce::Utilisation;

#[derive(Clone, Copy, Debug, Default)]
struct OfPath {
    load: Option<PathLoad>,
    stripping: Stripping,
}

/// What an answer turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A value.
    Load(PathLoad),
    /// There was no telemetry.
    Empty,
    /// It speaks of a path or a hop that there is not.
    Nonsense,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Loads {
    terms: IntTerms,
    /// Packets until the next one with telemetry.
    left: u32,
    paths: Box<[OfPath]>,
}

impl Loads {
    /// Of a queue pair with so many paths.
    pub(crate) fn new(terms: IntTerms, paths: usize) -> Self {
        Self {
            terms,
            left: 0,
            paths: vec![OfPath::default(); paths].into(),
        }
    }

    /// The TPID of the tag of a data packet that leaves on `path` now, if it gets one.
    #[inline]
    pub(crate) fn tag(&mut self, path: u8, now: Time) -> Option<u16> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        let path = self.paths.get(usize::from(path))?;
        if path.stripping.waits(now) {
            return None;
        }
        self.left = self.terms.every - 1;
        Some(self.terms.tpid)
    }

    /// Takes what came back.
    pub(crate) fn told(&mut self, utilisation: &Utilisation, now: Time) -> Told {
        let Some(path) = self.paths.get_mut(usize::from(utilisation.path)) else {
            return Told::Nonsense;
        };
        let Some(worst) = utilisation.worst else {
            path.stripping.on_empty(self.terms.every, now);
            return Told::Empty;
        };
        if !(1..=HOPS).contains(&usize::from(worst.hop)) || worst.speed.value() == 0 {
            return Told::Nonsense;
        }
        path.stripping.on_tag();
        let load = PathLoad {
            hop: worst.hop,
            is_cut: worst.is_cut,
            in_flight: worst.in_flight.value(),
            queue: worst.queue.value(),
            speed: worst.speed.value() * 1_000,
            at: now,
        };
        path.load = Some(load);
        Told::Load(load)
    }

    /// What is known of a path.
    pub(crate) fn of(&self, path: u8) -> Option<PathLoad> {
        self.paths.get(usize::from(path))?.load
    }
}

#[cfg(test)]
mod tests {
    use super::super::stripped::{EMPTY, WAIT};
    use super::*;
    use common::time::Span;
    use common::wire::int::Scaled;
    use common::wire::roce::WorstLink;

    fn loads(every: u32) -> Loads {
        let terms = IntTerms {
            tpid: 0x9902,
            every,
        };
        Loads::new(terms, 2)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    const WORST: WorstLink = WorstLink {
        hop: 2,
        is_cut: false,
        in_flight: Scaled(512),
        queue: Scaled(100),
        speed: Scaled(1_000),
    };

    fn back(worst: Option<WorstLink>) -> Utilisation {
        Utilisation { path: 1, worst }
    }

    /// SW-52: what a peer says is kept by path, in units that people know.
    #[test]
    fn loads_are_kept_by_path() {
        let mut loads = loads(1);
        let expected = PathLoad {
            hop: 2,
            is_cut: false,
            in_flight: 512,
            queue: 100,
            speed: 1_000_000,
            at: at(3),
        };
        assert_eq!(loads.told(&back(Some(WORST)), at(3)), Told::Load(expected));
        assert_eq!((loads.of(0), loads.of(1)), (None, Some(expected)));
    }

    /// SW-52: one packet in so many has telemetry, and a path that takes it off gets none for a
    /// while.
    #[test]
    fn a_path_that_strips_is_left_alone() {
        let mut thirds = loads(3);
        let tags = (0..6).map(|_| thirds.tag(0, at(1)).is_some());
        assert!(tags.eq([true, false, false, true, false, false]));
        let mut loads = loads(1);
        for _ in 0..EMPTY {
            assert_eq!(loads.tag(1, at(5)), Some(0x9902));
            assert_eq!(loads.told(&back(None), at(5)), Told::Empty);
        }
        assert_eq!(loads.tag(1, at(5)), None);
        assert!(loads.tag(0, at(5)).is_some(), "other paths have it");
        assert!(loads.tag(1, at(5) + WAIT).is_some());
    }

    /// SW-52: a peer that says nonsense changes nothing.
    #[test]
    fn nonsense_is_told() {
        let mut loads = loads(1);
        let nowhere = Utilisation {
            path: 2,
            worst: Some(WORST),
        };
        let of_hop = |hop| back(Some(WorstLink { hop, ..WORST }));
        let speed = Scaled(0);
        let no_speed = back(Some(WorstLink { speed, ..WORST }));
        for said in [nowhere, of_hop(0), of_hop(6), of_hop(15), no_speed] {
            assert_eq!(loads.told(&said, at(1)), Told::Nonsense);
        }
        assert_eq!(loads.of(1), None);
        let last = loads.told(&of_hop(5), at(1));
        assert!(
            matches!(last, Told::Load(load) if load.hop == 5),
            "{last:?}"
        );
    }
}
