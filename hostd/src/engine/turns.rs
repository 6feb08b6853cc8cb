//! Who waits for a turn, listed by the ports that it may use: a paused port keeps nobody waiting
//! who can do without it, and nobody is looked at who cannot (HT-37).
//!
//! Turns go round among queue pairs, and not among lists: of the first ones of those lists that may
//! send, it is the turn of the one that has waited longest. So one that is bound to a port has as
//! many turns as each of a thousand that use all ports. Lists are few, so a choice costs the same
//! however many wait.

use crate::verbs::PortSet;
use std::collections::VecDeque;

/// A queue pair that waits.
#[derive(Clone, Copy, Debug)]
struct Entry {
    qpn: u32,
    /// How many had come to wait before it, in all lists.
    place: u64,
}

/// Queue pairs that wait, in the order of their turns.
#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Entry>,
    /// Packets that the first of them has sent since it is its turn.
    taken: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Turns {
    /// By set of ports.
    lists: Vec<List>,
    /// Bit n: list n is not empty.
    filled: u16,
    /// How many have come to wait so far, again after a turn, too.
    came: u64,
}

const _: () = assert!(PortSet::COUNT <= u16::BITS as usize);

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            lists: (0..PortSet::COUNT).map(|_| List::default()).collect(),
            filled: 0,
            came: 0,
        }
    }

    /// Whether nobody waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// All ports that are waited for.
    pub(super) fn ports(&self) -> PortSet {
        let all = (0..PortSet::COUNT).filter(|place| self.filled & 1 << place != 0);
        all.fold(PortSet::NONE, |sum, place| sum.or(PortSet::at(place)))
    }

    /// A queue pair waits for one of these ports, unless `listed`, which has bit n for list n, says
    /// that it does already.
    pub(super) fn push(&mut self, qpn: u32, ports: PortSet, listed: &mut u16) {
        let place = ports.place();
        if *listed & 1 << place == 0 {
            *listed |= 1 << place;
            self.filled |= 1 << place;
            self.enter(qpn, place);
        }
    }

    /// The last of a list, and of all.
    fn enter(&mut self, qpn: u32, list: usize) {
        let place = self.came;
        self.came += 1;
        self.lists[list].waiting.push_back(Entry { qpn, place });
    }

    /// The ports that the next one waits for, and who it is: of those that may use one of `free`
    /// the one that has waited longest.
    pub(super) fn front(&self, free: PortSet) -> Option<(PortSet, u32)> {
        let mut longest: Option<(PortSet, Entry)> = None;
        let mut left = self.filled;
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            left &= left - 1;
            let ports = PortSet::at(place);
            if let Some(&first) = self.lists[place].waiting.front()
                && ports.meets(free)
                && longest.is_none_or(|(_, other)| first.place < other.place)
            {
                longest = Some((ports, first));
            }
        }
        longest.map(|(ports, entry)| (ports, entry.qpn))
    }

    /// Whether the first one of these ports came there before `last_turn` ended, as
    /// [`Self::rotate`] told it: it had its turn from another list meanwhile.
    pub(super) fn had_its_turn(&self, ports: PortSet, last_turn: u64) -> bool {
        let first = self.lists[ports.place()].waiting.front();
        first.is_some_and(|first| first.place < last_turn)
    }

    /// Packets that the first one of these ports has sent since it is its turn.
    pub(super) fn taken(&mut self, ports: PortSet) -> &mut usize {
        &mut self.lists[ports.place()].taken
    }

    /// It is the next one's turn. Returns when the one that ended did.
    pub(super) fn rotate(&mut self, ports: PortSet) -> u64 {
        let list = &mut self.lists[ports.place()];
        list.taken = 0;
        let ended = self.came;
        if let Some(first) = list.waiting.pop_front() {
            self.enter(first.qpn, ports.place());
        }
        ended
    }

    /// Takes the first one off a list; `listed` as with [`Self::push`].
    pub(super) fn pop(&mut self, ports: PortSet) -> Option<u32> {
        let place = ports.place();
        let list = &mut self.lists[place];
        list.taken = 0;
        let first = list.waiting.pop_front();
        if list.waiting.is_empty() {
            self.filled &= !(1 << place);
        }
        first.map(|first| first.qpn)
    }

    /// Says of a queue pair that it left the list of these ports.
    pub(super) fn unlist(ports: PortSet, listed: &mut u16) {
        *listed &= !(1 << ports.place());
    }

    /// The sets that somebody waits for without any of `open`.
    pub(super) fn shut_out(&self, open: PortSet) -> impl Iterator<Item = PortSet> + use<> {
        let filled = self.filled;
        let places = (0..PortSet::COUNT).filter(move |place| filled & 1 << place != 0);
        places
            .map(PortSet::at)
            .filter(move |ports| !ports.meets(open))
    }

    /// How many wait for these ports.
    pub(super) fn len(&self, ports: PortSet) -> usize {
        self.lists[ports.place()].waiting.len()
    }

    /// One of those who wait for these ports.
    pub(super) fn waiting(&self, ports: PortSet, index: usize) -> Option<u32> {
        let entry = self.lists[ports.place()].waiting.get(index);
        entry.map(|entry| entry.qpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::PortId;

    /// HT-37: who waits for a port that is not free is passed over, and the others take turns.
    #[test]
    fn turns_go_round_among_those_with_a_free_port() {
        let [one, other] = [0, 1].map(|port| PortSet::NONE.with(PortId::new(port)));
        let both = one.or(other);
        let mut turns = Turns::new();
        assert!(turns.is_empty() && turns.front(both).is_none());
        let mut listed = [0; 3];
        turns.push(7, one, &mut listed[0]);
        turns.push(7, one, &mut listed[0]);
        turns.push(8, other, &mut listed[1]);
        turns.push(9, both, &mut listed[2]);
        assert_eq!(turns.ports(), both);
        assert_eq!(turns.front(one), Some((one, 7)));
        turns.rotate(one);
        assert_eq!(turns.front(one), Some((both, 9)));
        assert_eq!(turns.front(other), Some((other, 8)));
        turns.rotate(both);
        assert_eq!(turns.front(other), Some((other, 8)));
        assert_eq!(turns.front(one), Some((one, 7)));
        assert_eq!(turns.pop(one), Some(7));
        Turns::unlist(one, &mut listed[0]);
        assert_eq!((listed[0], turns.front(one)), (0, Some((both, 9))));
        assert_eq!(turns.shut_out(one).collect::<Vec<_>>(), [other]);
        assert_eq!((turns.len(other), turns.waiting(other, 0)), (1, Some(8)));
        assert_eq!(turns.front(PortSet::NONE), None);
    }

    /// HT-37: one queue pair that is bound to a port has as many turns as each of a thousand that
    /// use all ports, and each of two that are bound to another one.
    #[test]
    fn each_queue_pair_has_as_many_turns() {
        const ROUNDS: usize = 5;
        let [one, other] = [0, 1].map(|port| PortSet::NONE.with(PortId::new(port)));
        let all = one.or(other);
        let mut turns = Turns::new();
        let ports = |qpn| match qpn {
            0 => one,
            1 | 2 => other,
            _ => all,
        };
        for qpn in 0..1003 {
            turns.push(qpn, ports(qpn), &mut 0);
        }
        let mut had = vec![0; 1003];
        for _ in 0..ROUNDS * had.len() {
            let (list, qpn) = turns.front(all).expect("they wait");
            assert_eq!(list, ports(qpn));
            had[qpn as usize] += 1;
            turns.rotate(list);
        }
        assert!(had.iter().all(|turns| *turns == ROUNDS), "{had:?}");
    }

    /// HT-37: who waits in two lists, for the ports that it may use have changed, has one turn.
    #[test]
    fn one_turn_though_it_waits_twice() {
        let [one, other] = [0, 1].map(|port| PortSet::NONE.with(PortId::new(port)));
        let both = one.or(other);
        let mut turns = Turns::new();
        let mut listed = 0;
        turns.push(7, one, &mut listed);
        turns.push(7, other, &mut listed);
        turns.push(8, both, &mut 0);
        assert_eq!(turns.front(both), Some((one, 7)));
        assert!(!turns.had_its_turn(one, 0));
        let ended = turns.rotate(one);
        assert_eq!(turns.front(both), Some((other, 7)));
        assert!(turns.had_its_turn(other, ended), "from the first list");
        assert_eq!(turns.pop(other), Some(7));
        assert_eq!(turns.front(both), Some((both, 8)));
        turns.rotate(both);
        assert_eq!(turns.front(both), Some((one, 7)));
        assert!(!turns.had_its_turn(one, ended), "it is due again");
    }
}
