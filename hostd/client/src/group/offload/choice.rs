//! Which collectives go through the switches.

use super::super::again::is_due;
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
    /// never did, or has gone back to them.
    pub fn fallback(&self) -> Option<Fallback> {
        self.fallback
    }

    /// How collective `sequence` begins: through the switches, with a question whether it may go
    /// there, or between the hosts. All members decide the same.
    pub(in super::super) fn way(&self, call: &Call, sequence: u32) -> Way {
        let chosen = matches!(self.algorithm, Algorithm::Auto | Algorithm::Inc);
        let Some(offload) = self.offload.as_ref().filter(|_| chosen) else {
            return Way::Hosts;
        };
        let possible = match call.collective {
            Collective::Barrier => true,
            Collective::Allgather | Collective::ReduceScatter(..) => false,
            _ => (1..=LEN_MAX).contains(&call.len),
        };
        // Leaves of their own would add in another order than that of the ranks.
        let in_order = match (&offload.state, &offload.tried) {
            (State::Joined(_), _) => offload.deterministic,
            (State::Over, Some(tried)) => tried.deterministic,
            _ => offload.seat.leaves == 1,
        };
        let ordered = self.deterministic && call.depends_on_order();
        if !possible || (ordered && !in_order) {
            return Way::Hosts;
        }
        let due = || offload.next.is_some_and(|next| is_due(sequence, next));
        match offload.state {
            State::Joined(_) => Way::Switches,
            State::Offered => Way::Asked,
            State::Over if due() => Way::Asked,
            State::Over => Way::Hosts,
        }
    }
}

/// How a collective begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// Between the hosts.
    Hosts,
    /// All ask rank 0.
    Asked,
    /// Through the switches.
    Switches,
}
