//! How much of a table the packets of one port may take.

use crate::id::PortId;
use crate::limits::MAX_PORTS;

/// See [`Shares::leave_some`].
const RESERVED: usize = 8;

/// Places of a table for so many users that all find room, however they are spread over ports,
/// while [`Shares::leave_some`] decides. What they leave is for those of other ports.
pub(super) const fn with_reserve(users: usize) -> usize {
    users + users / RESERVED + 1
}

/// Places in use of a table, by port. A port may take more while it leaves as many free as it has:
/// never more than half of the table, or half of what others have left. As places are given back
/// and taken again, `n` ports that take all that they may come to have one part in `n + 1` each,
/// and leave another one.
#[derive(Debug)]
pub struct Shares {
    used: usize,
    of: Box<[usize]>,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            used: 0,
            of: vec![0; MAX_PORTS].into(),
        }
    }
}

impl Shares {
    /// Whether a port may take `more` places of a table that has `limit`.
    pub fn have_room(&self, port: PortId, more: usize, limit: usize) -> bool {
        let of = self.of.get(port.index()).copied();
        of.is_some_and(|of| of + more + self.used + more <= limit)
    }

    /// Whether a port may take another place of a table with `limit` of them where it has to leave
    /// others an eighth of what it has (`RESERVED`), and no more: then all but that are of use
    /// whichever port takes them.
    pub fn leave_some(&self, port: PortId, limit: usize) -> bool {
        let of = self.of.get(port.index()).copied();
        let free = limit.saturating_sub(self.used);
        of.is_some_and(|of| free > 0 && (free - 1) * RESERVED > of)
    }

    /// A port has taken `count` places.
    pub fn take(&mut self, port: PortId, count: usize) {
        if let Some(of) = self.of.get_mut(port.index()) {
            *of += count;
            self.used += count;
        }
    }

    /// A port has given `count` places back.
    pub fn give(&mut self, port: PortId, count: usize) {
        if let Some(of) = self.of.get_mut(port.index()) {
            let count = count.min(*of);
            *of -= count;
            self.used -= count;
        }
    }

    /// All places are free.
    pub fn clear(&mut self) {
        self.of.fill(0);
        self.used = 0;
    }

    /// Places in use.
    pub fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1000;

    fn fill(shares: &mut Shares, port: u16) {
        while shares.have_room(PortId(port), 1, LIMIT) {
            shares.take(PortId(port), 1);
        }
    }

    /// SW-50: with a reserve all that there is to be room for finds some, from one port or from
    /// several, and one that takes all that it may leaves others an eighth of that.
    #[test]
    fn a_reserve_is_left_to_other_ports() {
        let fill = |shares: &mut Shares, port, limit| {
            let before = shares.used();
            while shares.leave_some(PortId(port), limit) {
                shares.take(PortId(port), 1);
            }
            shares.used() - before
        };
        for users in [1, 16, 20, 23, 1000] {
            let limit = with_reserve(users);
            let mut shares = Shares::default();
            assert_eq!(fill(&mut shares, 1, limit), users);
            let other = fill(&mut shares, 2, limit);
            assert!(other >= users / 9, "{users}: {other}");
            // In turns.
            let mut shares = Shares::default();
            for turn in 0..users {
                let port = PortId(u16::try_from(turn % 3).expect("small"));
                assert!(shares.leave_some(port, limit), "{users}: {turn}");
                shares.take(port, 1);
            }
        }
        let full = with_reserve(8);
        let mut shares = Shares::default();
        for port in 0..40 {
            fill(&mut shares, port, full);
        }
        assert!(shares.used() <= full);
        assert!(!shares.leave_some(PortId(u16::MAX), full));
    }

    /// SW-50: each port that takes all that it may leaves half of what it found; in time all have
    /// the same, and one more finds as much.
    #[test]
    fn each_port_leaves_others_room() {
        for greedy in 0..9_u16 {
            let mut shares = Shares::default();
            for port in 0..greedy {
                let free = LIMIT - shares.used();
                fill(&mut shares, port);
                assert_eq!(LIMIT - shares.used(), free.div_ceil(2));
            }
            for _ in 0..200 {
                for port in 0..greedy {
                    let of = shares.of[usize::from(port)];
                    shares.give(PortId(port), of / 16);
                }
                (0..greedy).for_each(|port| fill(&mut shares, port));
            }
            let even = LIMIT / (usize::from(greedy) + 1);
            let near = |count: usize| count.abs_diff(even) <= even / 4;
            assert!(near(LIMIT - shares.used()), "{greedy}: {}", shares.used());
            let all = &shares.of[..usize::from(greedy)];
            assert!(all.iter().all(|of| near(*of)), "{greedy}: {all:?}");
        }
        let mut shares = Shares::default();
        fill(&mut shares, 7);
        shares.give(PortId(7), LIMIT);
        assert_eq!((shares.used(), shares.of[7]), (0, 0));
        assert!(!shares.have_room(PortId(u16::MAX), 1, LIMIT));
    }
}
