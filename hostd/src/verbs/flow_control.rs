//! Which pauses of the switch are obeyed, which it is asked for, and which packets they are about
//! (HT-45).

use common::time::Span;
use common::units::Rate;

pub use common::wire::pause::PRIORITIES;

/// Values of a DSCP (RFC 2474 §3).
pub const DSCPS: usize = 64;

const _: () = assert!(PRIORITIES == 8);

/// Which pauses are obeyed, and which packets are of which priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowControl {
    /// Bit n: PFC frames pause priority n.
    pub pfc: u8,
    /// PAUSE frames pause all priorities.
    pub pause: bool,
    /// The priority, 0 to 7, of the packets with each DSCP.
    pub priority_of_dscp: [u8; DSCPS],
    /// Speed of the link, which quanta are counted at. Zero: that of routes, and until one is known
    /// a pause lasts as long as on the slowest link ([`common::flow_control::SLOWEST`]).
    pub speed: Rate,
    /// What the switch is asked for when packets come faster than they are taken.
    pub asks: Asks,
}

/// When hostd asks its switch for pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asks {
    /// Bit n: priority n is paused. Zero: nothing is asked for.
    pub priorities: u8,
    /// How full the fullest receive ring of a port is when a pause begins, in percent, 2 to 95.
    pub xoff_percent: u8,
    /// Below this the pause ends, 1 to 94: less than `xoff_percent`.
    pub xon_percent: u8,
    /// How long the port asks in a row; then it asks for nothing as long.
    pub longest: Span,
}

impl Default for Asks {
    /// Nothing is asked for.
    fn default() -> Self {
        Self {
            priorities: 0,
            xoff_percent: 50,
            xon_percent: 25,
            longest: Span::from_millis(10),
        }
    }
}

impl Default for FlowControl {
    /// Everything is obeyed, and the upper three bits of a DSCP are the priority: its class
    /// selector (RFC 2474 §4.2.2), as in switchd.
    fn default() -> Self {
        let mut priority_of_dscp = [0; DSCPS];
        for (priority, of_class) in (0..).zip(priority_of_dscp.chunks_mut(DSCPS / PRIORITIES)) {
            of_class.fill(priority);
        }
        Self {
            pfc: u8::MAX,
            pause: true,
            priority_of_dscp,
            speed: Rate::default(),
            asks: Asks::default(),
        }
    }
}

impl FlowControl {
    /// The priority of packets with this traffic class: six bits of DSCP, two of ECN.
    pub fn priority_of(&self, traffic_class: u8) -> usize {
        usize::from(self.priority_of_dscp[usize::from(traffic_class >> 2)]) % PRIORITIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_the_upper_bits_of_a_dscp_or_what_is_configured() {
        let mut rules = FlowControl::default();
        let all = (0..DSCPS).all(|dscp| usize::from(rules.priority_of_dscp[dscp]) == dscp >> 3);
        assert!(all);
        assert_eq!(rules.priority_of(26 << 2 | 0b10), 3);
        assert_eq!(rules.priority_of(46 << 2), 5);
        rules.priority_of_dscp[46] = 1;
        assert_eq!(rules.priority_of(46 << 2 | 0b11), 1);
    }
}
