//! Two builds side by side: each contender of a bench, in this build and in another, in turns.
//!
//! Both run as children (see [`peer`](crate::peer)), so that neither has a warmer cache or another
//! parent than the other. In each round a contender is measured in mirrored order: this build, the
//! other, and later the other, this build.
//!
//! Each build runs twice, and what both children of a build say counts together. They are started
//! in mirrored order, too: of two equal children the one that is set up first is slower, by 2 % of
//! what goes over links.

use crate::measure::machine::Counters;
use crate::measure::{Better, Bound, Figure, Group, Subject};
use crate::peer::{Offer, Peer};
use crate::report::{GroupResult, compared};
use crate::run::{Bench, Limits, progress, timed_rounds};
use std::path::Path;

/// Share of its speed that a build may lose before it counts as slower: less than two builds of the
/// same source differ by where their code happens to lie.
const TOLERANCE: f64 = 0.03;

/// Measuring goes on until each ratio is known to this share.
const PRECISION: f64 = 0.01;

/// Children of each build.
const CHILDREN: usize = 2;

/// This build and another.
struct Builds {
    /// The children of each.
    peers: [[Peer; CHILDREN]; 2],
    groups: Vec<Group>,
    /// For each group and contender where it is measured.
    places: Vec<Vec<Place>>,
}

/// Where a contender is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// 0 for this build, 1 for the other.
    build: usize,
    /// The group in that build.
    group: usize,
    /// The contender in that group.
    contender: usize,
}

/// Compares `bench` of this build with that of the program `other`. `show` gets the results of each
/// group.
///
/// # Errors
/// When one of them does not serve, or a turn goes wrong.
pub fn run(
    bench: &Bench,
    other: &Path,
    limits: Limits,
    show: &mut dyn FnMut(GroupResult),
) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let start = |program: &Path| Peer::start(program, bench.name);
    let (first, second) = (start(&this)?, start(other)?);
    let (third, last) = (start(other)?, start(&this)?);
    let peers = [[first, last], [second, third]];
    let pids: Vec<u32> = peers.iter().flatten().map(Peer::pid).collect();
    let mut builds = Builds::new(bench.name, peers);
    let plan = bench.plan(limits, Some(PRECISION));
    for number in 0..builds.groups.len() {
        let group = builds.groups[number].clone();
        let before = Counters::read_processes(&pids);
        let rounds = timed_rounds(bench.name, &mut builds, number, &plan)?;
        let load = Counters::read_processes(&pids).since(&before);
        let mut result = GroupResult::new(bench.name, &group, &rounds, load, Vec::new());
        for line in &result.figures {
            let sense = compared(group.better, line.interval);
            result.notes.push(format!("{}: {sense}", line.name));
        }
        show(result);
    }
    Ok(())
}

impl Builds {
    fn new(bench: &str, peers: [[Peer; CHILDREN]; 2]) -> Self {
        let [this, other] = peers.each_ref().map(|children| children[0].offers());
        let (groups, places) = pairs(this, other, &mut |missing| {
            progress(bench, &format!("only one build has {missing}"));
        });
        Self {
            peers,
            groups,
            places,
        }
    }
}

/// What both builds offer, as groups in which the two stand side by side; and for each contender
/// its place. `missing` is called with what only this build has.
fn pairs(
    this: &[Offer],
    other: &[Offer],
    missing: &mut dyn FnMut(&str),
) -> (Vec<Group>, Vec<Vec<Place>>) {
    let place = |build, group, contender| Place {
        build,
        group,
        contender,
    };
    let (mut groups, mut all_places) = (Vec::new(), Vec::new());
    for (at, offer) in this.iter().enumerate() {
        let twin = other.iter().position(|it| it.title == offer.title);
        let Some(twin) = twin.filter(|twin| other[*twin].unit == offer.unit) else {
            missing(&offer.title);
            continue;
        };
        let (mut contenders, mut figures, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (one, name) in offer.contenders.iter().enumerate() {
            let Some(same) = other[twin].contenders.iter().position(|it| it == name) else {
                missing(name);
                continue;
            };
            places.extend([place(0, at, one), place(1, twin, same)]);
            contenders.extend([format!("{name}: this"), format!("{name}: other")]);
            let bound = match offer.better {
                Better::Low => Bound::AtMost(1.0 + TOLERANCE),
                Better::High => Bound::AtLeast(1.0 - TOLERANCE),
            };
            let last = contenders.len() - 1;
            let mut figure = Figure::ratio(&contenders, last - 1, last, Some(bound));
            figure.name = format!("{name}: this ÷ other");
            figures.push(figure);
        }
        groups.push(Group {
            title: offer.title.clone(),
            unit: offer.unit.clone(),
            better: offer.better,
            contenders,
            figures,
        });
        all_places.push(places);
    }
    (groups, all_places)
}

impl Subject for Builds {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let place = self.places[group][contender];
        let turn = |child: &mut Peer| child.turn(place.group, place.contender);
        let [one, two] = &mut self.peers[place.build];
        Ok(f64::midpoint(turn(one)?, turn(two)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(title: &str, better: Better, contenders: &[&str]) -> Offer {
        Offer {
            title: title.to_owned(),
            unit: "ns".to_owned(),
            better,
            contenders: contenders.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn what_both_have_stands_side_by_side() {
        let this = [
            offer("new", Better::Low, &["x"]),
            offer("speed", Better::High, &["a", "b", "c"]),
        ];
        let other = [offer("speed", Better::High, &["c", "a"])];
        let mut missing = Vec::new();
        let (groups, places) = pairs(&this, &other, &mut |name| missing.push(name.to_owned()));
        assert_eq!(missing, ["new", "b"]);
        assert_eq!(groups.len(), 1);
        let names = ["a: this", "a: other", "c: this", "c: other"];
        assert_eq!(groups[0].contenders, names);
        let place = |place: &Place| (place.build, place.group, place.contender);
        let places: Vec<_> = places[0].iter().map(place).collect();
        assert_eq!(places, [(0, 1, 0), (1, 0, 1), (0, 1, 2), (1, 0, 0)]);
        let figure = &groups[0].figures[1];
        assert_eq!(figure.name, "c: this ÷ other");
        assert_eq!(figure.value(&[1.0, 1.0, 3.0, 4.0]), Some(0.75));
        assert_eq!(figure.bound, Some(Bound::AtLeast(0.97)));
    }
}
