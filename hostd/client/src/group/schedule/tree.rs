//! In as few steps as can be: recursive doubling, and binomial trees.

use super::step::{Action, Place, Receive, Send, Step};

/// Allreduce by recursive doubling. Of a size that is no power of two, pairs of the first ranks
/// begin with a step by which one stands for both, and end with one that gives the result back.
pub(super) fn exchange(place: &Place) -> Vec<Step> {
    let (rank, size) = (place.rank, place.size);
    let power = 1 << size.ilog2();
    let pairs = size - power;
    let whole = place.whole();
    if rank < 2 * pairs && rank.is_multiple_of(2) {
        let give = Step::send(rank + 1, whole);
        let get = Step::receive(rank + 1, whole, Action::Replace);
        return vec![give, get];
    }
    let mut steps = Vec::new();
    if rank < 2 * pairs {
        steps.push(Step::receive(rank - 1, whole, Action::ReduceBefore));
    }
    let position = if rank < 2 * pairs {
        rank / 2
    } else {
        rank - pairs
    };
    for bit in 0..power.ilog2() {
        let partner = position ^ (1 << bit);
        let peer = if partner < pairs {
            2 * partner + 1
        } else {
            partner + pairs
        };
        // The lower ranks first, at both: so both get the same bits.
        let action = if peer < rank {
            Action::ReduceBefore
        } else {
            Action::ReduceAfter
        };
        steps.push(Step {
            send: Some(Send { peer, part: whole }),
            receive: Some(Receive {
                peer,
                part: whole,
                action,
            }),
        });
    }
    if rank < 2 * pairs {
        steps.push(Step::send(rank - 1, whole));
    }
    steps
}

/// To the root along a binomial tree.
pub(super) fn reduce(place: &Place, root: usize) -> Vec<Step> {
    let position = place.back(root);
    let rank = |position: usize| (position + root) % place.size;
    let mut steps = Vec::new();
    for bit in 0..usize::BITS {
        let mask = 1_usize << bit;
        if mask >= place.size {
            break;
        }
        if position & mask != 0 {
            steps.push(Step::send(rank(position ^ mask), place.whole()));
            break;
        }
        if position | mask < place.size {
            let from = rank(position | mask);
            steps.push(Step::receive(from, place.whole(), Action::ReduceAfter));
        }
    }
    steps
}

/// From the root along the same tree, the other way round.
pub(super) fn broadcast(place: &Place, root: usize) -> Vec<Step> {
    let mirrored = |step: Step| match (step.send, step.receive) {
        (Some(send), _) => Step::receive(send.peer, send.part, Action::Replace),
        (None, Some(receive)) => Step::send(receive.peer, receive.part),
        (None, None) => step,
    };
    reduce(place, root)
        .into_iter()
        .rev()
        .map(mirrored)
        .collect()
}
