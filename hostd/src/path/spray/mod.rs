//! Which entropy value a sprayed packet has (HT-34, HT-35).
//!
//! ```text
//!   oblivious   each value once before any repeats, in an order that is drawn anew
//!   bitmap      the same order, but values that led through congestion are passed over (STrack)
//!   recycling   values that led through no congestion are used again, others if there are none
//!               (REPS); after a time-out nothing new is tried for a while
//!   combined    recycling first, bitmap if there is nothing to recycle
//! ```
//!
//! Oblivious spraying never takes a value out, whatever becomes of packets (HT-36).

mod bitmap;
mod recycle;

use super::shuffle::{ALL, Shuffle, differs};
use crate::limits;
use crate::verbs::{PacketFate, Spraying};
use bitmap::Bitmap;
use common::time::Time;
use recycle::Recycler;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Spray {
    /// See [`Spraying::Oblivious`].
    Oblivious(Shuffle),
    /// See [`Spraying::Bitmap`].
    Bitmap(Bitmap),
    /// See [`Spraying::Recycling`].
    Recycling(Recycler, Shuffle),
    /// See [`Spraying::Combined`].
    Combined(Recycler, Bitmap),
}

impl Spray {
    /// Spraying over `values` entropy values, 1 to 256. If more than `saturation` percent of them
    /// led through congestion, none is passed over.
    pub(super) fn new((spraying, saturation): (Spraying, u8), values: usize, seed: u64) -> Self {
        let bitmap = |order| Bitmap::new(order, values, saturation);
        let order = Shuffle::new(values, seed);
        match spraying {
            Spraying::Oblivious => Self::Oblivious(order),
            Spraying::Bitmap => Self::Bitmap(bitmap(order)),
            Spraying::Recycling => Self::Recycling(Recycler::default(), order),
            Spraying::Combined => Self::Combined(Recycler::default(), bitmap(order)),
        }
    }

    /// The value of a packet that leaves now, of those that lead `through` a free port; not
    /// `other_than`, if there is a choice.
    pub(super) fn choose(
        &mut self,
        other_than: Option<u8>,
        now: Time,
        through: impl Fn(u8) -> bool,
    ) -> u8 {
        let other = |value| differs(value, other_than);
        match self {
            Self::Oblivious(order) => order.next_usable_through(other, through),
            Self::Bitmap(bitmap) => bitmap.choose(other_than, through),
            Self::Recycling(recycler, order) => recycler
                .take(other_than, now, &through)
                .unwrap_or_else(|| order.next_usable_through(other, through)),
            Self::Combined(recycler, bitmap) => recycler
                .take(other_than, now, &through)
                .unwrap_or_else(|| bitmap.choose(other_than, through)),
        }
    }

    /// What became of a packet with value `value`.
    pub(super) fn on_feedback(&mut self, value: u8, fate: PacketFate) {
        match self {
            Self::Oblivious(_) => {}
            Self::Bitmap(bitmap) => bitmap.on_feedback(value, fate),
            Self::Recycling(recycler, _) => recycler.on_feedback(value, fate),
            Self::Combined(recycler, bitmap) => {
                recycler.on_feedback(value, fate);
                bitmap.on_feedback(value, fate);
            }
        }
    }

    /// Only these `entries` are used from now on: at least one. What stands there twice is used
    /// twice as often.
    pub(super) fn set(&mut self, entries: &[u8]) {
        let among = |value| entries.contains(&value);
        match self {
            Self::Oblivious(order) => order.set(entries),
            Self::Bitmap(bitmap) => bitmap.set(entries),
            Self::Recycling(recycler, order) => {
                recycler.keep(among);
                order.set(entries);
            }
            Self::Combined(recycler, bitmap) => {
                recycler.keep(among);
                bitmap.set(entries);
            }
        }
    }

    /// So many packets may be in flight. Of a bitmap no more values take part than packets leave
    /// within two round trips, so that each is used again within these (HT-35); they become more
    /// again only when the greater number is within one: windows vary. What is recycled comes round
    /// with its acknowledgement anyway, and what is tried instead had better be new.
    pub(super) fn follow(&mut self, window: u32, paths: usize) {
        if let Self::Bitmap(bitmap) = self
            && let Some(below) = followed(bitmap.below(), window, paths)
        {
            bitmap.partake(below);
        }
    }

    /// A retransmission time-out expired.
    pub(super) fn timed_out(&mut self, now: Time) {
        if let Self::Recycling(recycler, _) | Self::Combined(recycler, _) = self {
            recycler.timed_out(now);
        }
    }
}

/// Values that take part at least, so that chance does not lead most of them the same way.
const VALUES_MIN: usize = 16;

/// Below which number values are to take part instead of `below`, if it changes: a power of two.
fn followed(below: u16, window: u32, paths: usize) -> Option<u16> {
    let least = VALUES_MIN.max(paths).next_power_of_two();
    let within = |packets: u32| {
        let values = 1 << packets.max(1).ilog2();
        let values = least.max(values).min(limits::ENTROPIES);
        u16::try_from(values).unwrap_or(ALL)
    };
    let (most, fewest) = (within(window.saturating_mul(2)), within(window));
    if below > most {
        Some(most)
    } else {
        (fewest > below).then_some(fewest)
    }
}

#[cfg(test)]
mod tests;
