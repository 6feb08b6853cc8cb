//! The Scheduling Tag of data packets: what their sender tells of its traffic, and its clock.
//!
//! ```text
//!   15                      7   6   5     4   3     2   1     0
//!  ┌─────────────────────────┬───┬─────────┬─────────┬─────────┐
//!  │ clock, units of 4.096 µs│ M │ priority│ pattern │ blocks  │
//!  └─────────────────────────┴───┴─────────┴─────────┴─────────┘
//! ```
//!
//! A tag of an acknowledgement is something else: a measured delay.

/// How much of a tag is its sender's clock: the upper nine bits.
pub const CLOCK_MASK: u16 = !0x7f;

/// Binary digits of the nanoseconds that a unit of a whole tag stands for, so that the clock's
/// lowest bit, 2⁷ of them, stands for 4.096 µs and the clock comes round every 2.1 ms.
pub const CLOCK_SHIFT: u32 = 5;

const MOVABLE: u16 = 1 << 6;
const PRIORITY_AT: u32 = 4;
const PATTERN_AT: u32 = 2;

/// How urgent the traffic is among the sender's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficPriority {
    /// Nothing is said.
    #[default]
    Normal,
    /// May wait for others.
    Low,
    /// Others may wait for it.
    High,
}

impl TrafficPriority {
    /// All of them, by their codes.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Low, Self::High];
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficPattern {
    /// Nothing is said.
    #[default]
    Unknown,
    /// One to one, as in a ring.
    Pairs,
    /// Many send to this receiver at a time: congestion is at the last hop, which all paths share.
    ManyToOne,
    /// All to all.
    AllToAll,
}

impl TrafficPattern {
    /// All of them, by their codes.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Pairs, Self::ManyToOne, Self::AllToAll];
}

/// How long the pieces are in which the application sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockClass {
    /// Nothing is said.
    #[default]
    Unknown,
    /// Up to [`Self::SHORT_MAX`] bytes.
    Short,
    /// Up to [`Self::MEDIUM_MAX`] bytes.
    Medium,
    /// Longer.
    Long,
}

impl BlockClass {
    /// The longest short block in bytes.
    pub const SHORT_MAX: u64 = 16 << 10;

    /// The longest block in bytes that is neither short nor long.
    pub const MEDIUM_MAX: u64 = 1 << 20;

    /// All of them, by their codes.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Short, Self::Medium, Self::Long];

    /// That of blocks of so many bytes; zero: nothing is said.
    pub const fn of(bytes: u64) -> Self {
        if bytes == 0 {
            Self::Unknown
        } else if bytes <= Self::SHORT_MAX {
            Self::Short
        } else if bytes <= Self::MEDIUM_MAX {
            Self::Medium
        } else {
            Self::Long
        }
    }
}

/// What a sender tells of a packet's traffic. Nothing by default, and that its way is its own
/// choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hint {
    /// All packets of the connection take one sub-path at a time, and flag S tells of another one:
    /// switches may choose its way. Not if the sender spreads the packets itself.
    pub movable: bool,
    /// How urgent it is.
    pub priority: TrafficPriority,
    /// Who talks to whom.
    pub pattern: TrafficPattern,
    /// How long its blocks are.
    pub blocks: BlockClass,
}

impl Hint {
    /// The tag with this hint and the sender's `clock`, of which [`CLOCK_MASK`] counts.
    #[inline]
    pub const fn tag(self, clock: u16) -> u16 {
        let movable = if self.movable { MOVABLE } else { 0 };
        clock & CLOCK_MASK
            | movable
            | (self.priority as u16) << PRIORITY_AT
            | (self.pattern as u16) << PATTERN_AT
            | self.blocks as u16
    }

    /// What a tag says. Every tag says something; a priority without a meaning is a normal one.
    #[inline]
    pub const fn of(tag: u16) -> Self {
        Self {
            movable: tag & MOVABLE != 0,
            priority: match tag >> PRIORITY_AT & 3 {
                1 => TrafficPriority::Low,
                2 => TrafficPriority::High,
                _ => TrafficPriority::Normal,
            },
            pattern: TrafficPattern::ALL[(tag >> PATTERN_AT & 3) as usize],
            blocks: BlockClass::ALL[(tag & 3) as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-46: each hint survives its tag beside any clock, and each bit has its place.
    #[test]
    fn hints_are_read_as_they_were_written() {
        for priority in TrafficPriority::ALL {
            for pattern in TrafficPattern::ALL {
                for blocks in BlockClass::ALL {
                    for movable in [false, true] {
                        let hint = Hint {
                            movable,
                            priority,
                            pattern,
                            blocks,
                        };
                        for clock in [0, 0x80, 0xff80] {
                            let tag = hint.tag(clock | 0x55);
                            assert_eq!((Hint::of(tag), tag & CLOCK_MASK), (hint, clock));
                        }
                    }
                }
            }
        }
        let all = Hint {
            movable: true,
            priority: TrafficPriority::High,
            pattern: TrafficPattern::Pairs,
            blocks: BlockClass::Long,
        };
        assert_eq!(all.tag(0x1234), 0x1200 | 0b110_0111);
        assert_eq!(Hint::default().tag(0), 0);
        assert_eq!(Hint::of(0b011_0000).priority, TrafficPriority::Normal);
    }

    /// HT-46: sizes of blocks at the limits of the classes.
    #[test]
    fn blocks_have_classes() {
        use BlockClass as B;
        let sizes = [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20, (1 << 20) + 1];
        let classes = sizes.map(B::of);
        let expected = [
            B::Unknown,
            B::Short,
            B::Short,
            B::Medium,
            B::Medium,
            B::Long,
        ];
        assert_eq!(classes, expected);
    }
}
