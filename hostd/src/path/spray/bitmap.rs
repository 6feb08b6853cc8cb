//! Values that led through congestion are passed over for a while (STrack, arXiv 2407.15266, with a
//! penalty of four bits for each value as in uet-htsim's `UecMpBitmap`).

use super::super::shuffle::{Shuffle, differs};
use crate::verbs::PacketFate;

/// Penalty of a mark, of a trim, and of a loss or a slow link, which is the most there is.
const MARKED: u8 = 1;
const TRIMMED: u8 = 4;
const LOST: u8 = 15;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    order: Shuffle,
    /// By value: how often it is passed over before it is used again.
    penalties: Box<[u8]>,
}

impl Bitmap {
    /// `order` is over so many `values`.
    pub(super) fn new(order: Shuffle, values: usize) -> Self {
        Self {
            order,
            penalties: vec![0; values.max(1)].into_boxed_slice(),
        }
    }

    /// The next value in the order without a penalty, of those that lead `through`. The first one
    /// with a penalty is paid for: it loses one. If all have penalties, the first one is taken.
    pub(super) fn choose(&mut self, other_than: Option<u8>, through: impl Fn(u8) -> bool) -> u8 {
        let first = self.order.next_through(&through);
        let mut value = first;
        let mut paid = false;
        for _ in 0..self.penalties.len() {
            let penalty = &mut self.penalties[usize::from(value)];
            if *penalty == 0 && differs(value, other_than) {
                return value;
            }
            if !std::mem::replace(&mut paid, true) {
                *penalty = penalty.saturating_sub(1);
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
    }

    /// What became of a packet with value `value`.
    pub(super) fn on_feedback(&mut self, value: u8, fate: PacketFate) {
        let more = match fate {
            PacketFate::Delivered { marked: true, .. } => MARKED,
            PacketFate::Trimmed => TRIMMED,
            PacketFate::Lost => LOST,
            PacketFate::Delivered { marked: false, .. } | PacketFate::NotReady => return,
        };
        self.add(value, more);
    }

    /// A packet with value `value` is late, or came late.
    pub(super) fn late(&mut self, value: u8) {
        self.add(value, LOST);
    }

    fn add(&mut self, value: u8, more: u8) {
        if let Some(penalty) = self.penalties.get_mut(usize::from(value)) {
            *penalty = penalty.saturating_add(more).min(LOST);
        }
    }
}
