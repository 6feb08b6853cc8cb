//! Routes that a table has no room for, until it has.

use ipnet::IpNet;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Routes that are tried again at once, at most.
const RETRIES: usize = 1000;

/// Routes that are not in a table because it is full.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    routes: BTreeSet<IpNet>,
    /// The last one that was tried again.
    tried: Option<IpNet>,
}

impl Lacking {
    /// Notes a route that found no room. Returns whether that is news.
    pub(super) fn insert(&mut self, route: IpNet) -> bool {
        self.routes.insert(route)
    }

    /// This one is not to be tried again. Returns whether it was to be.
    pub(super) fn remove(&mut self, route: &IpNet) -> bool {
        self.routes.remove(route)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    /// The next ones to be tried again: each has its turn, though those before it fail for ever.
    pub(super) fn take_turn(&mut self) -> Vec<IpNet> {
        let after = self.tried.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.routes.range((after, Bound::Unbounded));
        let mut turn: Vec<IpNet> = later.take(RETRIES).copied().collect();
        let rest = RETRIES.min(self.routes.len()) - turn.len();
        turn.extend(self.routes.iter().take(rest));
        self.tried = turn.last().copied();
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-1: of more routes than are tried again at once, each has its turn.
    #[test]
    fn each_route_is_tried_again() {
        let mut lacking = Lacking::default();
        let route = |number: u16| {
            let [high, low] = number.to_be_bytes();
            IpNet::new([10, high, low, 0].into(), 24).expect("a prefix")
        };
        assert!(lacking.take_turn().is_empty());
        assert!((0..2500).all(|number| lacking.insert(route(number))));
        let turns: Vec<Vec<IpNet>> = (0..4).map(|_| lacking.take_turn()).collect();
        let of = |range: std::ops::Range<u16>| -> Vec<IpNet> { range.map(route).collect() };
        assert_eq!(turns[0], of(0..1000));
        assert_eq!(turns[1], of(1000..2000));
        assert_eq!(turns[2], [of(2000..2500), of(0..500)].concat());
        assert_eq!(turns[3], of(500..1500));
        assert!((3..2500).all(|number| lacking.remove(&route(number))));
        assert_eq!((lacking.len(), lacking.take_turn()), (3, of(0..3)));
    }
}
