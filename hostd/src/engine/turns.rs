//! Who waits for a turn, listed by the ports that it may use: a paused port keeps nobody waiting
//! who can do without it, and nobody is looked at who cannot (HT-37).

use crate::verbs::PortSet;
use std::collections::VecDeque;

/// Queue pairs that wait, in the order of their turns.
#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<u32>,
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
    /// The list after that whose turn ended last.
    next: usize,
}

const _: () = assert!(PortSet::COUNT <= u16::BITS as usize);

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            lists: (0..PortSet::COUNT).map(|_| List::default()).collect(),
            filled: 0,
            next: 0,
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
            self.lists[place].waiting.push_back(qpn);
        }
    }

    /// The ports that the next one waits for, and who it is: one of those that may use one of
    /// `free`.
    pub(super) fn front(&self, free: PortSet) -> Option<(PortSet, u32)> {
        let mut left = self.filled;
        while left != 0 {
            // From the list whose turn it is, round to the one before it.
            let after = left >> self.next << self.next;
            let among = if after == 0 { left } else { after };
            let place = among.trailing_zeros() as usize;
            let ports = PortSet::at(place);
            if ports.meets(free) {
                let first = self.lists[place].waiting.front();
                return first.map(|qpn| (ports, *qpn));
            }
            left &= !(1 << place);
        }
        None
    }

    /// Packets that the first one of these ports has sent since it is its turn.
    pub(super) fn taken(&mut self, ports: PortSet) -> &mut usize {
        &mut self.lists[ports.place()].taken
    }

    /// It is the next one's turn.
    pub(super) fn rotate(&mut self, ports: PortSet) {
        let list = &mut self.lists[ports.place()];
        list.taken = 0;
        if !list.waiting.is_empty() {
            list.waiting.rotate_left(1);
        }
        self.next = (ports.place() + 1) % PortSet::COUNT;
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
        self.next = (place + 1) % PortSet::COUNT;
        first
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
        self.lists[ports.place()].waiting.get(index).copied()
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
        assert_eq!(turns.front(one), Some((one, 7)));
        assert_eq!(turns.pop(one), Some(7));
        Turns::unlist(one, &mut listed[0]);
        assert_eq!((listed[0], turns.front(one)), (0, Some((both, 9))));
        assert_eq!(turns.shut_out(one).collect::<Vec<_>>(), [other]);
        assert_eq!((turns.len(other), turns.waiting(other, 0)), (1, Some(8)));
        assert_eq!(turns.front(PortSet::NONE), None);
    }
}
