//! Which collectives go through the switches.

use super::super::call::{Algorithm, Call, Collective};
use super::super::member::Group;
use super::super::seat::Fallback;
use super::state::State;

/// The longest vector that goes through switches: of a longer one nobody would hear for long.
const LEN_MAX: u64 = 64 << 20;

impl Group {
    /// Whether collectives that switches can do go through them now.
    pub fn uses_switches(&self) -> bool {
        let chosen = matches!(self.algorithm, Algorithm::Auto | Algorithm::Inc);
        chosen && self.offload.as_ref().is_some_and(|it| it.is_used())
    }

    /// Why the group goes on without the switches that it went through, if it does. Nothing if it
    /// never did.
    pub fn fallback(&self) -> Option<Fallback> {
        self.fallback
    }

    /// Whether a collective goes through the switches. All members decide the same.
    pub(in super::super) fn offloads(&self, call: &Call) -> bool {
        let Some(offload) = self.offload.as_ref().filter(|_| self.uses_switches()) else {
            return false;
        };
        let possible = match call.collective {
            Collective::Barrier => true,
            Collective::Allgather | Collective::ReduceScatter(..) => false,
            _ => (1..=LEN_MAX).contains(&call.len),
        };
        // Leaves of their own would add in another order than that of the ranks.
        let in_order = match offload.state {
            State::Joined(_) => offload.deterministic,
            _ => offload.seat.leaves == 1,
        };
        let ordered = self.deterministic && call.depends_on_order();
        possible && (!ordered || in_order)
    }
}
