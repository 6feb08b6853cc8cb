//! A table of objects with numbers. A number contains the slot of its object, so a look-up is one
//! index and one comparison. It also contains the slot's generation, so the number of an object
//! that was removed finds nothing.

use std::collections::VecDeque;

/// A bounded table of objects.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Oldest first, so that a number is not used again soon.
    free: VecDeque<u32>,
    slot_bits: u32,
    number_bits: u32,
    capacity: u32,
    /// The generation of a fresh slot.
    first: u32,
}

#[derive(Debug)]
struct Slot<T> {
    number: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// A table for `capacity` objects whose numbers have `number_bits` bits.
    pub(crate) fn new(capacity: u32, number_bits: u32) -> Self {
        let slot_bits = capacity.next_power_of_two().ilog2();
        assert!(
            slot_bits < number_bits && number_bits <= 32,
            "no bits left for generations"
        );
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            slot_bits,
            number_bits,
            capacity,
            first: 1,
        }
    }

    /// Makes generations begin somewhere, so that numbers differ from those before a restart.
    pub(crate) fn numbered_from(mut self, seed: u64) -> Self {
        let generations = (1_u64 << (self.number_bits - self.slot_bits)) - 1;
        self.first = u32::try_from(seed % generations).map_or(1, |first| first + 1);
        self
    }

    /// Puts an object in and returns its number; gives the object back when the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32, T> {
        let used = u32::try_from(self.slots.len()).expect("bounded by a u32");
        // Fresh slots first: as long as there are any, no number repeats.
        if used < self.capacity {
            let number = (self.first << self.slot_bits) | used;
            self.slots.push(Slot {
                number,
                value: Some(value),
            });
            return Ok(number);
        }
        let Some(index) = self.free.pop_front() else {
            return Err(value);
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Ok(slot.number)
    }

    fn index(&self, number: u32) -> usize {
        (number & ((1 << self.slot_bits) - 1)) as usize
    }

    /// The object `number`, if it is still there.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let slot = self.slots.get(self.index(number))?;
        (slot.number == number)
            .then_some(slot.value.as_ref())
            .flatten()
    }

    /// The object `number`, if it is still there.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number);
        let slot = self.slots.get_mut(index)?;
        (slot.number == number)
            .then_some(slot.value.as_mut())
            .flatten()
    }

    /// Takes the object `number` out; its number will not be given to another for long.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.index(number);
        let next = self.next_generation(number);
        let slot = self.slots.get_mut(index)?;
        if slot.number != number {
            return None;
        }
        let value = slot.value.take()?;
        slot.number = next;
        self.free
            .push_back(u32::try_from(index).expect("bounded by a u32"));
        Some(value)
    }

    /// Whether `number` is the object most recently removed from its slot.
    pub(crate) fn has_ended(&self, number: u32) -> bool {
        let slot = self.slots.get(self.index(number));
        slot.is_some_and(|slot| slot.number == self.next_generation(number))
    }

    /// The slot's next number. Generation zero is skipped, so no number is below the slots' count.
    fn next_generation(&self, number: u32) -> u32 {
        let generations = 1_u32 << (self.number_bits - self.slot_bits);
        let generation = (number >> self.slot_bits) + 1;
        let generation = if generation >= generations {
            1
        } else {
            generation
        };
        (generation << self.slot_bits) | (number & ((1 << self.slot_bits) - 1))
    }

    /// Objects in the table.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot of an object's number: dense, from zero.
    pub(crate) fn slot(&self, number: u32) -> usize {
        self.index(number)
    }

    /// The number of the object in a slot.
    pub(crate) fn number_of(&self, slot: usize) -> Option<u32> {
        let slot = self.slots.get(slot)?;
        slot.value.is_some().then_some(slot.number)
    }

    /// The numbers of all objects.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots
            .iter()
            .filter(|slot| slot.value.is_some())
            .map(|slot| slot.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_finds_nothing() {
        let mut slab = Slab::new(2, 4);
        let first = slab.insert('a').expect("room");
        let second = slab.insert('b').expect("room");
        assert_eq!(slab.insert('c'), Err('c'));
        assert!(first >= 2 && second >= 2, "0 and 1 are reserved QP numbers");
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        assert!(slab.has_ended(first) && !slab.has_ended(second));
        let third = slab.insert('c').expect("room");
        assert_ne!(third, first);
        assert_eq!((slab.get(first), slab.get(third)), (None, Some(&'c')));
        assert!(slab.has_ended(first) && !slab.has_ended(third));
        assert_eq!(slab.len(), 2);
    }

    #[test]
    fn generations_wrap_within_the_number() {
        let mut slab = Slab::new(1, 3);
        for _ in 0..100 {
            let number = slab.insert(()).expect("room");
            assert!((1..8).contains(&number));
            assert_eq!(slab.numbers().collect::<Vec<_>>(), [number]);
            slab.remove(number);
        }
    }
}
