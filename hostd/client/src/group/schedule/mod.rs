//! Who sends what to whom, in which step: functions of rank, size and call, and of nothing else.
//!
//! A step has a send, a receive, or both. A send has what the receives of the steps before it have
//! made of its bytes. To one peer everything goes in the order of the steps, and the peer takes it
//! in the order of its own steps.

mod block;
mod step;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use step::{Action, Part, Step};

use super::call::{Algorithm, Call, Collective};
use step::Place;

/// The steps of member `rank` of `size`. None at all if it is alone.
pub(crate) fn schedule(call: &Call, rank: usize, size: usize) -> Vec<Step> {
    let place = Place {
        rank,
        size,
        len: usize::try_from(call.len).unwrap_or(usize::MAX),
        width: call.work().map_or(1, |(_, element)| element.len()),
    };
    if size < 2 {
        return Vec::new();
    }
    match (call.collective, call.algorithm) {
        (Collective::Allreduce(..), Algorithm::Ring) => {
            let mut steps = block::reduce_scatter(&place);
            steps.extend(block::allgather(&place));
            steps
        }
        (Collective::Allreduce(..), Algorithm::Chain) => {
            let mut steps = block::up(&place, place.rank);
            steps.extend(block::down(&place));
            steps
        }
        (Collective::Allreduce(..) | Collective::Barrier, _) => tree::exchange(&place),
        (Collective::Reduce { root, .. }, Algorithm::Ring) => {
            block::up(&place, place.back(root + 1))
        }
        (Collective::Reduce { root, .. }, Algorithm::Chain) => {
            let mut steps = block::up(&place, place.rank);
            steps.extend(block::hand_over(&place, |to| {
                (to == root).then(|| place.whole())
            }));
            steps
        }
        (Collective::Reduce { root, .. }, _) => tree::reduce(&place, root),
        (Collective::Broadcast { root }, Algorithm::Doubling) => tree::broadcast(&place, root),
        (Collective::Broadcast { root }, _) => block::along(&place, root),
        (Collective::Allgather, _) => block::allgather(&place),
        (Collective::ReduceScatter(..), Algorithm::Chain) => {
            let mut steps = block::up(&place, place.rank);
            steps.extend(block::hand_over(&place, |to| Some(place.block(to))));
            steps
        }
        (Collective::ReduceScatter(..), _) => block::reduce_scatter(&place),
    }
}
