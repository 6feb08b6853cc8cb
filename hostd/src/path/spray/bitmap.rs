//! Values that led through congestion are passed over for a while (STrack, arXiv 2407.15266, with a
//! penalty of four bits for each value as in uet-htsim's `UecMpBitmap`). If most of the network is
//! congested, to pass values over would only crowd the rest: then all are used (HT-35).

use super::super::shuffle::{Shuffle, differs};
use crate::bit_set::BitSet;
use crate::verbs::PacketFate;

/// Penalty of a mark, of a trim, and of a loss, which is the most there is.
const MARKED: u8 = 1;
const TRIMMED: u8 = 4;
const LOST: u8 = 15;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    order: Shuffle,
    /// By value: how often it is passed over before it is used again.
    penalties: Box<[u8]>,
    /// Values with a penalty, among those in use.
    congested: usize,
    /// If more have one, none is passed over.
    bearable: usize,
    /// In percent of the values in use.
    saturation: u8,
    /// The values in use.
    used: BitSet<4>,
}

impl Bitmap {
    /// `order` is over so many `values`. If more than `saturation` percent are congested, none is
    /// passed over.
    pub(super) fn new(order: Shuffle, values: usize, saturation: u8) -> Self {
        let values = values.max(1);
        Self {
            order,
            penalties: vec![0; values].into_boxed_slice(),
            congested: 0,
            bearable: share(values, saturation),
            saturation,
            used: BitSet::first(u32::try_from(values).unwrap_or(u32::MAX)),
        }
    }

    /// The next value in the order without a penalty, of those that lead `through`. The first one
    /// with a penalty is paid for: it loses one. If all have penalties, or too many have, the first
    /// one is taken.
    pub(super) fn choose(&mut self, other_than: Option<u8>, through: impl Fn(u8) -> bool) -> u8 {
        let first = self.order.next_through(&through);
        let is_saturated = self.congested > self.bearable;
        let mut value = first;
        let mut paid = false;
        for _ in 0..self.penalties.len() {
            let penalty = &mut self.penalties[usize::from(value)];
            let passes = *penalty > 0 && !is_saturated;
            if !std::mem::replace(&mut paid, true) && *penalty > 0 {
                *penalty -= 1;
                self.congested -= usize::from(*penalty == 0);
            }
            if !passes && differs(value, other_than) {
                return value;
            }
            value = self.order.next_through(&through);
        }
        if differs(first, other_than) {
            first
        } else {
            value
        }
    }

    /// Only these `entries` are used from now on.
    pub(super) fn set(&mut self, entries: &[u8]) {
        self.order.set(entries);
        self.note_used();
    }

    /// A new round begins, in which the values below `below` take part.
    pub(super) fn partake(&mut self, below: u16) {
        self.order.partake(below);
        self.note_used();
    }

    /// See [`Shuffle::below`].
    pub(super) const fn below(&self) -> u16 {
        self.order.below()
    }

    /// Values that are not in use have no penalty: nothing would pay for it.
    fn note_used(&mut self) {
        self.used = BitSet::default();
        for value in self.order.partaking() {
            self.used.set((*value).into());
        }
        self.congested = 0;
        for (value, penalty) in (0..).zip(&mut self.penalties) {
            if !self.used.get(value) {
                *penalty = 0;
            }
            self.congested += usize::from(*penalty > 0);
        }
        let count: u32 = self.used.words().iter().map(|word| word.count_ones()).sum();
        self.bearable = share(count as usize, self.saturation);
    }

    /// What became of a packet with value `value`.
    pub(super) fn on_feedback(&mut self, value: u8, fate: PacketFate) {
        let more = match fate {
            PacketFate::Delivered { marked: true, .. } => MARKED,
            PacketFate::Trimmed => TRIMMED,
            PacketFate::Lost => LOST,
            PacketFate::Delivered { marked: false, .. } | PacketFate::NotReady => return,
        };
        if !self.used.get(value.into()) {
            return;
        }
        if let Some(penalty) = self.penalties.get_mut(usize::from(value)) {
            self.congested += usize::from(*penalty == 0);
            *penalty = penalty.saturating_add(more).min(LOST);
        }
    }
}

/// So many percent of `values`.
const fn share(values: usize, percent: u8) -> usize {
    values * percent as usize / 100
}
