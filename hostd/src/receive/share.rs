//! \[11\] What part of the packets that come to this host are a queue pair's.
//!
//! A crowd is counted by queue pairs in the middle of a message, however little they send. Who
//! brings most packets shares the link with few, whatever that count says: it would leave the line
//! idle if it took its part of a hundred that send nothing.

/// Smaller crowds are as they are: a trim leaves each one and a half of its share.
const LARGE: u32 = 16;

/// Own packets that tell what part they are.
const ENOUGH: u64 = 32;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    /// Packets of all queue pairs, and of this one, when they were last compared.
    counted: (u64, u64),
    /// So many times as many packets came for all as for this one then; zero: not known.
    times: u32,
}

impl Share {
    /// How many share the link from this one's point of view, if `crowd` are in the middle of a
    /// message, and so many packets have come for all, and for this one.
    pub(super) fn crowd(&mut self, crowd: u32, (all, own): (u64, u64)) -> u32 {
        let since = (
            all.saturating_sub(self.counted.0),
            own.saturating_sub(self.counted.1),
        );
        if since.1 >= ENOUGH {
            self.counted = (all, own);
            self.times = u32::try_from(since.0.div_ceil(since.1)).unwrap_or(u32::MAX);
        }
        // What chance may do to so few packets is no share.
        if crowd >= LARGE && self.times > 0 && self.times < crowd / 2 {
            self.times
        } else {
            crowd
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CC-8: who has much of the link is told of few, others of all.
    #[test]
    fn who_brings_most_is_among_few() {
        let mut share = Share::default();
        assert_eq!(share.crowd(100, (0, 0)), 100, "nothing is known");
        assert_eq!(share.crowd(100, (31, 31)), 100, "too little");
        assert_eq!(share.crowd(100, (66, 64)), 2);
        assert_eq!(share.crowd(100, (96, 90)), 2, "no news");
        assert_eq!(
            share.crowd(15, (96, 90)),
            15,
            "small crowds are as they are"
        );
        assert_eq!(
            share.crowd(100, (66 + 3_200, 64 + 32)),
            100,
            "a part as all"
        );
        assert_eq!(share.crowd(100, (9_000, 100)), 100, "it rested");
    }
}
