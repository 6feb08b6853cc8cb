//! What the network says of the sub-paths of a queue pair (CS-8 to CS-10): tags go out in data
//! packets, switches write the worst link into them, and acknowledgements bring them back.
//!
//! ```text
//!   data packet ──▶ tag: which signal, or none ──▶ switches ──▶ peer
//!                                                                 │ worst tag of a path
//!   by path and signal: value, locator  ◀── reflected ◀── acknowledgement
//! ```
//!
//! A path that takes tags off is noticed by empty reflections ([`super::stripped`]); tags are left
//! out there for a while, and then tried again.

use super::stripped::Stripping;
use crate::stats::PathSignal;
use crate::verbs::Signalling;
use common::csig::SIGNALS;
use common::time::Time;
use common::wire::csig::{Signal, Tag};
use common::wire::roce::Reflection;
use std::sync::Arc;

/// A new value counts for one part in this many of the smoothed one (CS-10).
const SMOOTHING: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct OfPath {
    known: [Option<PathSignal>; SIGNALS],
    /// Place of the signal that is asked for next.
    turn: usize,
    stripping: Stripping,
}

/// What a reflection turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reflected {
    /// A value.
    Value(PathSignal),
    /// There was no tag.
    Empty,
    /// It speaks of a path or a signal that there is not.
    Nonsense,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Signals {
    terms: Arc<Signalling>,
    /// Packets until the next one with a tag.
    left: u32,
    paths: Box<[OfPath]>,
}

impl Signals {
    /// Of a queue pair with so many paths.
    pub(crate) fn new(terms: Arc<Signalling>, paths: usize) -> Self {
        Self {
            terms,
            left: 0,
            paths: vec![OfPath::default(); paths].into(),
        }
    }

    /// How tags are written.
    pub(crate) fn terms(&self) -> &Signalling {
        &self.terms
    }

    /// The tag of a data packet that leaves on `path` now, if it gets one.
    #[inline]
    pub(crate) fn tag(&mut self, path: u8, now: Time) -> Option<Tag> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        let path = self.paths.get_mut(usize::from(path))?;
        if path.stripping.waits(now) {
            return None;
        }
        self.left = self.terms.every - 1;
        let signal = *self.terms.signals.get(path.turn)?;
        path.turn = (path.turn + 1) % self.terms.signals.len();
        Some(Tag::neutral(self.terms.form, signal, 0))
    }

    /// Takes what came back.
    pub(crate) fn reflected(&mut self, reflection: &Reflection, now: Time) -> Reflected {
        let Some(path) = self.paths.get_mut(usize::from(reflection.path)) else {
            return Reflected::Nonsense;
        };
        let Some((form, tag)) = reflection.tag else {
            path.stripping.on_empty(self.terms.every, now);
            return Reflected::Empty;
        };
        let Some(signal) = Signal::from_number(tag.kind) else {
            return Reflected::Nonsense;
        };
        let scale = self.terms.scales.of(signal);
        let is_neutral = tag.value == signal.neutral(form);
        // Where there are fewer than 32 buckets, what no port has lowered is in none.
        let unwritten = || is_neutral.then(|| scale.buckets.highest());
        let Some(value) = scale.read(form, tag.value).or_else(unwritten) else {
            return Reflected::Nonsense;
        };
        path.stripping.on_tag();
        let known = &mut path.known[usize::from(signal.number())];
        let smoothed = known.map_or(value, |known| {
            known.smoothed - known.smoothed / SMOOTHING + value / SMOOTHING
        });
        let read = PathSignal {
            signal,
            last: value,
            smoothed,
            locator: tag.locator,
            is_neutral,
            is_last_hop: !is_neutral && self.terms.host_locators.contains(&tag.locator),
            at: now,
        };
        *known = Some(read);
        Reflected::Value(read)
    }

    /// What is known of a path.
    pub(crate) fn of(&self, path: u8) -> [Option<PathSignal>; SIGNALS] {
        let path = self.paths.get(usize::from(path));
        path.map_or([None; SIGNALS], |path| path.known)
    }

    /// Whether a path takes tags off, as far as is known.
    pub(crate) fn is_stripped(&self, path: u8) -> bool {
        let path = self.paths.get(usize::from(path));
        path.is_some_and(|path| path.stripping.is_known())
    }
}

#[cfg(test)]
mod tests {
    use super::super::stripped::{EMPTY, WAIT};
    use super::*;
    use common::csig::{Bandwidth, Buckets, Delay, Scale, Scales, Share, scales};
    use common::time::Span;
    use common::wire::csig::{Form, Tpids};

    const SIGNALS_ASKED: [Signal; 2] = [Signal::AvailableShare, Signal::Delay];

    fn signals(form: Form, every: u32) -> Signals {
        let terms = Signalling {
            tpids: Tpids::default(),
            form,
            every,
            signals: SIGNALS_ASKED.to_vec(),
            scales: scales(&Bandwidth::default(), &Share::default(), &Delay::default()),
            host_locators: vec![9],
        };
        Signals::new(Arc::new(terms), 2)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn back(form: Form, signal: Signal, value: u32, locator: u16) -> Reflection {
        let neutral = Tag::neutral(form, signal, locator);
        Reflection {
            path: 1,
            tag: Some((form, Tag { value, ..neutral })),
        }
    }

    /// CS-8: one in so many packets has a tag, and the signals of a path take turns.
    #[test]
    fn tags_and_signals_take_turns() {
        let mut signals = signals(Form::Compact, 3);
        let kinds: Vec<_> = (0..9)
            .map(|_| signals.tag(0, at(1)).map(|tag| tag.kind))
            .collect();
        let [one, other] = SIGNALS_ASKED.map(|signal| Some(signal.number()));
        let none = None;
        assert_eq!(kinds, [one, none, none, other, none, none, one, none, none]);
    }

    /// CS-3, CS-10: with eight buckets a tag that no port has lowered has a value, the highest, and
    /// tells of no port. Any other bucket that there is not is nonsense.
    #[test]
    fn neutral_tags_are_understood_with_few_buckets() {
        let mut signals = signals(Form::Compact, 1);
        let few = Scale {
            buckets: Buckets::new(&[0, 10, 20, 40, 80, 160, 320, 640]),
            unit: 1,
        };
        let terms = Signalling {
            scales: Scales::new([few.clone(), few.clone(), few]),
            ..(*signals.terms).clone()
        };
        signals.terms = Arc::new(terms);
        let mut read = |signal, value| match signals
            .reflected(&back(Form::Compact, signal, value, 0), at(5))
        {
            Reflected::Value(read) => Some((read.last, read.is_neutral)),
            _ => None,
        };
        assert_eq!(read(Signal::AvailableShare, 31), Some((640, true)));
        assert_eq!(read(Signal::AvailableShare, 7), Some((640, false)));
        assert_eq!(read(Signal::AvailableShare, 8), None);
        assert_eq!(read(Signal::Delay, 0), Some((0, true)));
        assert_eq!(read(Signal::Delay, 31), None);
    }

    /// CS-10: values are kept by path, smoothed, and told apart by the locator of the bottleneck.
    #[test]
    fn values_are_smoothed_and_located() {
        let mut signals = signals(Form::Expanded, 1);
        let mut take = |value, locator| {
            let reflection = back(Form::Expanded, Signal::Delay, value, locator);
            let found = signals.reflected(&reflection, at(5));
            assert!(matches!(found, Reflected::Value(_)), "{found:?}");
            signals.of(1)[2].expect("a delay")
        };
        let first = take(1000, 9);
        assert_eq!((first.last, first.smoothed), (128_000, 128_000));
        assert!(first.is_last_hop && !first.is_neutral);
        let second = take(2000, 4);
        assert_eq!((second.last, second.smoothed), (256_000, 144_000));
        assert!(!second.is_last_hop);
        assert!(take(0, 9).is_neutral);
        assert_eq!(signals.of(1).iter().flatten().count(), 1);
        assert_eq!(signals.of(0), [None; 3]);
    }

    /// CS-9: a path that takes tags off gets none for a while.
    #[test]
    fn a_path_that_strips_is_left_alone() {
        let mut signals = signals(Form::Compact, 1);
        let empty = Reflection { path: 1, tag: None };
        for _ in 1..EMPTY {
            assert_eq!(signals.reflected(&empty, at(5)), Reflected::Empty);
        }
        let good = back(Form::Compact, Signal::Delay, 3, 0);
        signals.reflected(&good, at(5));
        for _ in 0..EMPTY {
            assert!(signals.tag(1, at(5)).is_some() && !signals.is_stripped(1));
            signals.reflected(&empty, at(5));
        }
        assert!(signals.is_stripped(1) && signals.tag(1, at(5)).is_none());
        assert!(signals.tag(0, at(5)).is_some(), "other paths are tagged");
        assert!(signals.tag(1, at(5) + WAIT).is_some());
        signals.reflected(&good, at(1100));
        assert!(!signals.is_stripped(1));
    }

    /// CS-8: a peer that reflects nonsense changes nothing.
    #[test]
    fn nonsense_is_told() {
        let mut signals = signals(Form::Compact, 1);
        let reserved = Reflection {
            path: 1,
            tag: Some((Form::Compact, Tag::of_compact([0xff, 0]))),
        };
        assert_eq!(signals.reflected(&reserved, at(1)), Reflected::Nonsense);
        let nowhere = Reflection { path: 2, tag: None };
        assert_eq!(signals.reflected(&nowhere, at(1)), Reflected::Nonsense);
        assert_eq!(signals.of(1), [None; 3]);
    }
}
