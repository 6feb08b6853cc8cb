//! What keeps the table of flows: it enters those of the book, and removes those that are over.

use crate::config::iqcn::Iqcn;
use crate::control::flows::{Book, Learned};
use crate::flows::Key;
use crate::iqcn::{Compensator, Counters, Place, Table, Times};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Flows whose compensation begins or ends, that one look tells of.
const TOLD: usize = 8;

/// The two directions of a flow.
type Pair = (Key, Key);

/// A flow that has entries.
#[derive(Clone, Copy, Debug)]
struct Entered {
    /// By direction.
    places: [Place; 2],
    /// CNPs that had been made for each at the last look, and whether that was some more than at
    /// the look before.
    made: [u64; 2],
    active: [bool; 2],
}

/// Something to be told: CNPs are made for the packets of a direction, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turning {
    /// The direction.
    pub key: Key,
    /// Whether they are.
    pub begins: bool,
}

/// One direction, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The direction whose packets find a port congested.
    pub key: Key,
    /// Queue pair of its sender.
    pub sender: u32,
    /// What has passed and what was made.
    pub times: Times,
}

/// What keeps the table.
#[derive(Debug)]
pub struct Keeper {
    table: Arc<Table>,
    counters: Vec<Arc<Counters>>,
    /// Directions for which there is room.
    room: usize,
    entered: HashMap<Pair, Entered>,
    /// Places that were left at the last look.
    left: Vec<Place>,
    /// Pairs from data that the last look found.
    fresh: HashSet<Pair>,
    /// Flows that found no room, while they last.
    refused: HashSet<Pair>,
    /// How many there ever were.
    full: u64,
}

impl Keeper {
    /// Of `workers` workers, with what each of them needs. `seed` is not to be known to those who
    /// send packets.
    pub fn new(settings: &Iqcn, workers: usize, seed: u64) -> (Self, Vec<Compensator>) {
        let room = 2 * settings.max_flows as usize;
        let table = Arc::new(Table::new(room, seed));
        let one = |_| Compensator::new(table.clone(), settings.rules());
        let compensators: Vec<_> = (0..workers).map(one).collect();
        let counters = compensators.iter().map(|it| it.counters().clone());
        let keeper = Self {
            counters: counters.collect(),
            table,
            room,
            entered: HashMap::new(),
            left: Vec::new(),
            fresh: HashSet::new(),
            refused: HashSet::new(),
            full: 0,
        };
        (keeper, compensators)
    }

    /// Follows the book. What is to be told, some of it if it is much.
    pub fn look(&mut self, book: &Book) -> Vec<Turning> {
        let left = std::mem::take(&mut self.left);
        left.into_iter().for_each(|place| self.table.free(place));
        let mut fresh = HashSet::new();
        let mut wanted = HashSet::new();
        for flow in book.flows() {
            let Some((other, learned)) = flow.other else {
                continue;
            };
            let forward = flow.forward.key;
            let pair = (forward.min(other), forward.max(other));
            if learned == Learned::Data {
                fresh.insert(pair);
            }
            if learned == Learned::Setup || self.fresh.contains(&pair) {
                wanted.insert(pair);
            }
        }
        self.fresh = fresh;
        self.refused.retain(|pair| wanted.contains(pair));
        self.remove_all_but(&wanted);
        for pair in wanted {
            if !self.entered.contains_key(&pair) {
                self.enter(pair);
            }
        }
        self.turnings()
    }

    fn remove_all_but(&mut self, wanted: &HashSet<Pair>) {
        let Self {
            entered,
            table,
            left,
            ..
        } = self;
        entered.retain(|pair, it| {
            let stays = wanted.contains(pair);
            if !stays {
                it.places.iter().for_each(|place| table.remove(*place));
                left.extend(it.places);
            }
            stays
        });
    }

    fn enter(&mut self, pair: Pair) {
        let (one, other) = pair;
        let used = 2 * self.entered.len() + self.left.len();
        let has_room = used + 2 <= self.room;
        let places = has_room.then(|| self.enter_both(&one, &other));
        match places.flatten() {
            Some(places) => {
                self.refused.remove(&pair);
                let entered = Entered {
                    places,
                    made: [0; 2],
                    active: [false; 2],
                };
                self.entered.insert(pair, entered);
            }
            None if self.refused.insert(pair) => self.full += 1,
            None => {}
        }
    }

    /// Both directions, or none: packets in each are sent by the queue pair that those in the other
    /// go to.
    fn enter_both(&mut self, one: &Key, other: &Key) -> Option<[Place; 2]> {
        let first = self.table.enter(one, other.qp())?;
        let second = self.table.enter(other, one.qp());
        if second.is_none() {
            self.table.remove(first);
            self.left.push(first);
        }
        Some([first, second?])
    }

    fn turnings(&mut self) -> Vec<Turning> {
        let mut all = Vec::new();
        for (pair, it) in &mut self.entered {
            for (side, key) in [pair.0, pair.1].into_iter().enumerate() {
                let made = self.table.at(it.places[side]).times().made;
                let active = made > it.made[side];
                if active != it.active[side] {
                    let begins = active;
                    all.push(Turning { key, begins });
                }
                (it.made[side], it.active[side]) = (made, active);
            }
        }
        all.sort_unstable_by_key(|it| (!it.begins, it.key));
        all.truncate(TOLD);
        all
    }

    /// The directions in which CNPs have passed, those first for which most were made.
    pub fn rows(&self) -> Vec<Row> {
        let row = |key: Key, sender: u32, place: Place| Row {
            key,
            sender,
            times: self.table.at(place).times(),
        };
        let both = self.entered.iter().flat_map(|((one, other), it)| {
            let [first, second] = it.places;
            [row(*one, other.qp(), first), row(*other, one.qp(), second)]
        });
        let mut rows: Vec<_> = both.filter(|row| row.times.passed > 0).collect();
        rows.sort_unstable_by_key(|row| {
            let Times { made, passed, .. } = row.times;
            (std::cmp::Reverse((made, passed)), row.key)
        });
        rows
    }

    /// The entries.
    #[cfg(test)]
    pub(super) fn table(&self) -> Arc<Table> {
        self.table.clone()
    }

    /// What the workers count, added up.
    pub fn counted(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.counters.iter().map(|it| of(it)).sum()
    }

    /// Directions that have an entry, and for how many there is room.
    pub fn used(&self) -> (usize, usize) {
        (2 * self.entered.len(), self.room)
    }

    /// Flows that found no room.
    pub fn full(&self) -> u64 {
        self.full
    }
}
