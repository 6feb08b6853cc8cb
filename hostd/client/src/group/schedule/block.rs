//! From neighbour to neighbour: rings and chains.

use super::step::{Action, Part, Place, Receive, Send, Step};

/// A step of the ring: one block on, another one in.
fn pass(place: &Place, on: usize, into: usize, action: Action) -> Step {
    Step {
        send: Some(Send {
            peer: place.back(place.size - 1),
            part: place.block(on),
        }),
        receive: Some(Receive {
            peer: place.back(1),
            part: place.block(into),
            action,
        }),
    }
}

/// Around the ring, until block `rank` has the vectors of all.
pub(super) fn reduce_scatter(place: &Place) -> Vec<Step> {
    let step = |s| {
        let action = Action::ReduceBefore;
        pass(place, place.back(s + 1), place.back(s + 2), action)
    };
    (0..place.size - 1).map(step).collect()
}

/// Around the ring, until each has the block of each.
pub(super) fn allgather(place: &Place) -> Vec<Step> {
    let step = |s| pass(place, place.back(s), place.back(s + 1), Action::Replace);
    (0..place.size - 1).map(step).collect()
}

/// Reduces from the first to the last, this member being at `position`.
pub(super) fn up(place: &Place, position: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    if position > 0 {
        let action = Action::ReduceBefore;
        steps.push(Step::receive(place.back(1), place.whole(), action));
    }
    if position + 1 < place.size {
        steps.push(Step::send(place.back(place.size - 1), place.whole()));
    }
    steps
}

/// From the last rank to the first.
pub(super) fn down(place: &Place) -> Vec<Step> {
    let mut steps = Vec::new();
    if place.rank + 1 < place.size {
        steps.push(Step::receive(
            place.rank + 1,
            place.whole(),
            Action::Replace,
        ));
    }
    if place.rank > 0 {
        steps.push(Step::send(place.rank - 1, place.whole()));
    }
    steps
}

/// From the root along the ring to the rank before it.
pub(super) fn along(place: &Place, root: usize) -> Vec<Step> {
    let position = place.back(root);
    let mut steps = Vec::new();
    if position > 0 {
        steps.push(Step::receive(place.back(1), place.whole(), Action::Replace));
    }
    if position + 1 < place.size {
        steps.push(Step::send(place.back(place.size - 1), place.whole()));
    }
    steps
}

/// The last rank gives each other one what `of` says.
pub(super) fn hand_over(place: &Place, of: impl Fn(usize) -> Option<Part>) -> Vec<Step> {
    let last = place.size - 1;
    if place.rank < last {
        let receive = |part| Step::receive(last, part, Action::Replace);
        return of(place.rank).map(receive).into_iter().collect();
    }
    let give = |to| of(to).map(|part| Step::send(to, part));
    (0..last).filter_map(give).collect()
}
