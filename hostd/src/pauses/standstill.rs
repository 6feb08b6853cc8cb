//! How long packets of data were paused, for each set of ports: a queue pair stands still only
//! while all the ports are paused that its packets may leave through.

use crate::verbs::{PortId, PortSet};
use common::time::{Span, Time};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standstill {
    /// By set of ports.
    totals: [Span; PortSet::COUNT],
    /// When this was brought up to date last.
    looked: Time,
}

impl Standstill {
    /// For how long all of `ports` were paused at the same time, as of the last look. No port was
    /// never paused.
    pub(crate) fn of(&self, ports: PortSet) -> Span {
        self.totals[ports.place()]
    }

    /// Counts the time since the last look. `until`: of each port the end of its pause, as that
    /// look found it; `None` if it was not paused.
    pub(crate) fn go_on(&mut self, until: impl Iterator<Item = Option<Time>>, now: Time) {
        let mut paused = PortSet::NONE;
        let mut ends = [Time::ZERO; crate::limits::PORTS];
        for (end, number) in until.zip(0..) {
            if let Some(end) = end {
                ends[usize::from(number)] = end;
                paused = paused.with(PortId::new(number));
            }
        }
        for place in 1..PortSet::COUNT {
            let set = PortSet::at(place);
            if set.and(paused) == set {
                let end = set.iter().map(|port| ends[port.index()]).min();
                let end = end.map_or(now, |end| end.min(now));
                self.totals[place] = self.totals[place] + end.since(self.looked);
            }
        }
        self.looked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    /// HT-37, HT-45: two ports stand still together only while both are paused.
    #[test]
    fn what_overlaps_counts_for_both() {
        let [one, other] = [0, 1].map(PortId::new);
        let both = PortSet::NONE.with(one).with(other);
        let mut still = Standstill::default();
        still.go_on([None, None].into_iter(), at(100));
        // The first is paused from 100 to 200, the second from 150 to 300.
        still.go_on([Some(at(200)), None].into_iter(), at(150));
        assert_eq!(still.of(both), Span::ZERO);
        still.go_on([Some(at(200)), Some(at(300))].into_iter(), at(180));
        assert_eq!(still.of(both), Span::from_micros(30));
        still.go_on([Some(at(200)), Some(at(300))].into_iter(), at(400));
        assert_eq!(still.of(both), Span::from_micros(50));
        assert_eq!(still.of(PortSet::NONE), Span::ZERO);
        assert_eq!(still.of(PortSet::NONE.with(one)), Span::from_micros(100));
        assert_eq!(still.of(PortSet::NONE.with(other)), Span::from_micros(150));
    }
}
