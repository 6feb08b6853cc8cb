//! Which collectives go through the switches.

use super::super::again::is_due;
use super::super::call::{Algorithm, Call, Collective};
use super::super::failure::GroupError;
use super::super::member::Group;
use super::super::seat::{Fallback, Leafless};
use super::state::State;
use crate::abi::collective::FailureReason;

/// The longest vector that goes through switches: of a longer one nobody would hear for long.
const LEN_MAX: u64 = 64 << 20;

impl Group {
    /// Whether collectives that switches can do go through them now.
    pub fn uses_switches(&self) -> bool {
        let chosen = matches!(self.algorithm, Algorithm::Auto | Algorithm::Inc);
        chosen && self.offload.as_ref().is_some_and(|it| it.is_used())
    }

    /// Whether the last collective went through the switches, to its end. Not all can, also while
    /// others of the group do.
    pub fn last_was_switched(&self) -> bool {
        self.switched
    }

    /// Why the group does without switches, if it does though they were meant to be used: it went
    /// through them before, or they refused it, or a host knows no leaf while others do or
    /// [`Algorithm::Inc`] is asked for. Known once a collective was called that switches can do.
    /// Nothing while it goes through them.
    pub fn fallback(&self) -> Option<Fallback> {
        self.fallback
    }

    /// How collective `sequence` begins: through the switches, with a question whether it may go
    /// there, or between the hosts. All members decide the same.
    pub(in super::super) fn way(&self, call: &Call, sequence: u64) -> Way {
        let chosen = matches!(self.algorithm, Algorithm::Auto | Algorithm::Inc);
        let Some(offload) = self.offload.as_ref().filter(|_| chosen) else {
            return Way::Hosts;
        };
        // Leaves of their own would add in another order than that of the ranks.
        let in_order = match (&offload.state, &offload.tried) {
            (State::Joined(_), _) => offload.deterministic,
            (State::Over, Some(tried)) => tried.deterministic,
            _ => offload.seat.leaves == 1,
        };
        let ordered = self.deterministic && call.depends_on_order();
        if !possible(call) || (ordered && !in_order) {
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

    /// Takes note that collective `sequence` goes between the hosts for want of a leaf, the first
    /// time that one does which is meant to go through switches.
    pub(in super::super) fn note_leafless(
        &mut self,
        call: &Call,
        sequence: u64,
    ) -> Result<(), GroupError> {
        let Some(Leafless { rank, others }) = self.leafless else {
            return Ok(());
        };
        let meant = match self.algorithm {
            Algorithm::Inc => true,
            Algorithm::Auto => others,
            _ => false,
        };
        if !meant || !possible(call) || self.fallback.is_some() {
            return Ok(());
        }
        let reason = FailureReason::NoLeaf;
        self.fallback = Some(Fallback {
            reason,
            // Where nobody knows a leaf it is nobody's doing.
            rank: others.then_some(rank),
            sequence,
            done: 0,
        });
        self.note_fallback(0, reason)
    }
}

/// Whether switches can do it.
fn possible(call: &Call) -> bool {
    match call.collective {
        Collective::Barrier => true,
        Collective::Allgather | Collective::ReduceScatter(..) => false,
        _ => (1..=LEN_MAX).contains(&call.len),
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
