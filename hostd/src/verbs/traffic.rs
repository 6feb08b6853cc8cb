//! What applications tell of their traffic (HT-46).

use super::config::{EngineConfig, Granularity};
use common::wire::roce::{BlockClass, Hint, TrafficPattern, TrafficPriority};

/// What an application tells of what it sends on a queue pair; the default says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of the pieces in which it sends, each of which may take another way; zero: nothing is
    /// said.
    pub block: u32,
    /// Who talks to whom.
    pub pattern: TrafficPattern,
    /// How urgent it is.
    pub priority: TrafficPriority,
}

impl Traffic {
    /// The name of its pattern; none if nothing is said.
    pub const fn pattern_label(&self) -> Option<&'static str> {
        match self.pattern {
            TrafficPattern::Unknown => None,
            TrafficPattern::Pairs => Some("pairs"),
            TrafficPattern::ManyToOne => Some("many-to-one"),
            TrafficPattern::AllToAll => Some("all-to-all"),
        }
    }

    /// The name of its priority.
    pub const fn priority_label(&self) -> &'static str {
        match self.priority {
            TrafficPriority::Normal => "normal",
            TrafficPriority::Low => "low",
            TrafficPriority::High => "high",
        }
    }

    /// What packets tell of it. With sprayed packets the way is not for switches to choose (SW-5).
    pub(crate) const fn hint(&self, granularity: Granularity) -> Hint {
        Hint {
            movable: matches!(granularity, Granularity::Flow | Granularity::Flowlet),
            priority: self.priority,
            pattern: self.pattern,
            blocks: BlockClass::of(self.block as u64),
        }
    }
}

impl EngineConfig {
    /// DSCP and ECN of data packets of this priority.
    pub(crate) const fn class_of(&self, priority: TrafficPriority) -> u8 {
        match priority {
            TrafficPriority::Normal => self.data_class,
            TrafficPriority::Low => self.low_class,
            TrafficPriority::High => self.high_class,
        }
    }
}
