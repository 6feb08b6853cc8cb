//! How members agree on where what switches computed ends, and what goes on between the hosts.
//!
//! Each member says how far it is, and rank 0 decides for all. No I/O.
//!
//! ```text
//!   collective s, the earliest that somebody is in
//!
//!   rank 0  ██████████████░░░░░░     results in place; what is behind is the member's own vector
//!   rank 1  █████████░░░░░░░░░░░
//!   rank 2  ████████████░░░░░░░░
//!           ├────────┤├───┤├────┤
//!            all have  │    nobody has it: reduced between the hosts
//!                      rank 0 gives it to those that lack it
//! ```
//!
//! Results are put in place in the order of their bytes, and each member has the same bits: those
//! of the one result that the switch sent. So none that is in place is reduced again.
//!
//! One that is in a later collective has all of `s`: its first chunk went out when the last result
//! of `s` had come. Then the result is there, and whoever lacks some of it gets it from one that
//! has it.

use super::call::{Call, Collective};
use super::failure::{Cause, Failure};
use super::judge::{State, is_certain, odd};

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The collective that it is in, from zero on.
    pub(crate) sequence: u64,
    /// What that is.
    pub(crate) call: Call,
    /// It went through the switch so far.
    pub(crate) switched: bool,
    /// Bytes of the result that are in place, from the beginning on.
    pub(crate) done: u64,
    /// The whole collective is done.
    pub(crate) complete: bool,
}

/// What all do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// The earliest collective that somebody is in.
    pub(crate) sequence: u64,
    /// Its result is there as a whole: nothing is reduced any more.
    pub(crate) complete: bool,
    /// Bytes of the result, from the beginning on, that switches computed. From there on it is
    /// done between the hosts.
    pub(crate) agreed: u64,
    /// Who gives results to those that lack them, if some do.
    pub(crate) holder: Option<usize>,
    /// Bytes of them that each has, by rank; `agreed` if it lacks none.
    pub(crate) done: Vec<u64>,
}

impl Agreement {
    /// Who lacks results, and from which byte on.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let all = self.done.iter().copied().enumerate();
        all.filter(|(_, done)| *done < self.agreed)
    }
}

/// Decides by what the members said; `None` stands for one that left in good order, after the last
/// of its collectives.
///
/// # Errors
/// Who is to blame if there is no way to go on: members call different things, or one says what
/// cannot be, or all that have a result have left.
pub(crate) fn agree(positions: &[Option<Position>]) -> Result<Agreement, Failure> {
    let size = positions.len();
    let known = || {
        let all = positions.iter().enumerate();
        all.filter_map(|(rank, it)| Some((rank, (*it)?)))
    };
    same_calls(positions)?;
    let protocol = |rank| Failure {
        rank,
        cause: Cause::Protocol,
    };
    let Some(first) = known().map(|(_, it)| it.sequence).min() else {
        return Err(protocol(0));
    };
    possible(positions, first)?;
    let here: Vec<_> = known().filter(|(_, it)| it.sequence == first).collect();
    let (_, one) = here[0];
    let unlike = here.iter().find(|(_, it)| it.switched != one.switched);
    if let Some((rank, _)) = unlike {
        return Err(protocol(*rank));
    }
    let nothing = Agreement {
        sequence: first,
        complete: false,
        agreed: 0,
        holder: None,
        done: vec![0; size],
    };
    if !one.switched {
        return Ok(nothing);
    }
    let ahead = positions
        .iter()
        .any(|it| it.is_none_or(|it| it.sequence > first));
    let complete = ahead || here.iter().any(|(_, it)| it.complete);
    let root = match one.call.collective {
        Collective::Reduce { root, .. } | Collective::Broadcast { root } => Some(root),
        _ => None,
    };
    let broadcast = matches!(one.call.collective, Collective::Broadcast { .. });
    // The root of a broadcast lacks nothing; the others of a reduce need nothing.
    let needs = |rank: usize| root.is_none_or(|root| (rank == root) != broadcast);
    let has = |it: &Position| if it.complete { it.call.len } else { it.done };
    let needy = || here.iter().filter(|(rank, _)| needs(*rank));
    let agreed = if complete {
        one.call.len
    } else if broadcast {
        // The root gives all behind it, anyway.
        needy().map(|(_, it)| has(it)).min().unwrap_or(0)
    } else {
        here.iter().map(|(_, it)| has(it)).max().unwrap_or(0)
    };
    if !one.call.takes(agreed) {
        return Err(protocol(one_with(&here, agreed)));
    }
    let mut done = vec![agreed; size];
    for (rank, it) in needy() {
        done[*rank] = has(it).min(agreed);
    }
    let lacking = done.iter().any(|done| *done < agreed);
    let holder = here
        .iter()
        .find(|(rank, it)| has(it) >= agreed || (broadcast && Some(*rank) == root));
    let later = known().find(|(_, it)| it.sequence > first);
    let holder = holder
        .map(|(rank, _)| *rank)
        .or_else(|| later.map(|it| it.0));
    if lacking && holder.is_none() {
        let rank = positions.iter().position(Option::is_none).unwrap_or(0);
        let cause = Cause::Left;
        return Err(Failure { rank, cause });
    }
    Ok(Agreement {
        complete,
        agreed,
        holder: holder.filter(|_| lacking),
        done,
        ..nothing
    })
}

/// Nobody says what cannot be.
fn possible(positions: &[Option<Position>], first: u64) -> Result<(), Failure> {
    // Nobody is further by results than one that has not contributed.
    let impossible = |it: &Position| {
        let later = it.sequence > first && (it.done > 0 || it.complete);
        let between = !it.switched && (it.done > 0 || it.complete);
        later || between || it.done > it.call.len
    };
    let liar = positions
        .iter()
        .position(|it| it.as_ref().is_some_and(impossible));
    let cause = Cause::Protocol;
    liar.map_or(Ok(()), |rank| Err(Failure { rank, cause }))
}

fn one_with(here: &[(usize, Position)], done: u64) -> usize {
    let found = here.iter().find(|(_, it)| it.done == done);
    found.map_or(0, |(rank, _)| *rank)
}

/// All that are in a collective call the same. If it is not the earliest one, those that are still
/// on their way to it may have to say who is wrong: then it goes between the hosts, where they do.
fn same_calls(positions: &[Option<Position>]) -> Result<(), Failure> {
    let state = |it: &Option<Position>| {
        it.map(|it| State {
            sequence: it.sequence,
            calls: vec![it.call],
            waits_for: None,
        })
    };
    let states: Vec<_> = positions.iter().map(state).collect();
    let sequences = || positions.iter().flatten().map(|it| it.sequence);
    let first = sequences().min();
    let known = sequences().filter(|it| Some(*it) == first || is_certain(&states, *it));
    let mut odd_ones = known.filter_map(|sequence| odd(&states, sequence));
    odd_ones.next().map_or(Ok(()), Err)
}

#[cfg(test)]
pub(super) mod tests;
