//! A table of objects with numbers. A number contains the slot of its object, so a look-up is one
//! index and one comparison. It also contains the slot's generation, so the number of an object
//! that was removed finds nothing.
//!
//! Numbers that strangers could use are drawn ([`Slab::insert_drawn`]): slot and generation, so all
//! bits, come from the caller's generator. The others count up.

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
}

#[derive(Debug)]
struct Slot<T> {
    /// Of the object, or of the last one; zero before there was one.
    number: u32,
    /// Of the object that was last removed; zero before there was one.
    ended: u32,
    value: Option<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            number: 0,
            ended: 0,
            value: None,
        }
    }
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
        }
    }

    /// Generations of a slot, zero not counted: no number is below the slots' count.
    fn generations(&self) -> u32 {
        u32::try_from((1_u64 << (self.number_bits - self.slot_bits)) - 1).expect("32 bits")
    }

    /// Puts an object in and returns its number; gives the object back when the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32, T> {
        let used = u32::try_from(self.slots.len()).expect("bounded by a u32");
        // Fresh slots first: as long as there are any, no number repeats.
        let index = if used < self.capacity {
            self.slots.push(Slot::default());
            used
        } else if let Some(index) = self.free.pop_front() {
            index
        } else {
            return Err(value);
        };
        let generation = (self.slots[index as usize].number >> self.slot_bits) + 1;
        let generation = if generation > self.generations() {
            1
        } else {
            generation
        };
        Ok(self.occupy(index, generation, value))
    }

    /// Puts an object in under a number that nobody foresees who does not know `draw`; gives the
    /// object back when the table is full. The number differs from the last one of its slot. A
    /// table that is filled like this takes the room of all its slots at once.
    pub(crate) fn insert_drawn(&mut self, value: T, draw: u64) -> Result<u32, T> {
        let used = u32::try_from(self.slots.len()).expect("bounded by a u32");
        if used < self.capacity {
            self.slots
                .resize_with(self.capacity as usize, Slot::default);
            self.free.extend(used..self.capacity);
        }
        let free = self.free.len() as u64;
        if free == 0 {
            return Err(value);
        }
        let (high, low) = (draw >> 32, draw & 0xffff_ffff);
        let place = usize::try_from((high * free) >> 32).expect("an index");
        let index = self.free.swap_remove_back(place).expect("below the length");
        let generations = self.generations();
        let drawn = (low * u64::from(generations)) >> 32;
        let mut generation = u32::try_from(drawn).expect("fewer than 2^32") + 1;
        if generation == self.slots[index as usize].number >> self.slot_bits {
            generation = generation % generations + 1;
        }
        Ok(self.occupy(index, generation, value))
    }

    fn occupy(&mut self, index: u32, generation: u32, value: T) -> u32 {
        let number = (generation << self.slot_bits) | index;
        let slot = &mut self.slots[index as usize];
        slot.number = number;
        slot.value = Some(value);
        number
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

    /// Takes the object `number` out; its number will not be given to another soon.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.index(number);
        let slot = self.slots.get_mut(index)?;
        if slot.number != number {
            return None;
        }
        let value = slot.value.take()?;
        slot.ended = number;
        self.free
            .push_back(u32::try_from(index).expect("bounded by a u32"));
        Some(value)
    }

    /// Whether `number` is the object most recently removed from its slot.
    pub(crate) fn has_ended(&self, number: u32) -> bool {
        let slot = self.slots.get(self.index(number));
        slot.is_some_and(|slot| number != 0 && slot.ended == number)
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

    /// All objects.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
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

    /// HT-3: drawn numbers use all bits, never one of the reserved ones, never one twice in a row,
    /// and every slot is found.
    #[test]
    fn drawn_numbers_are_all_over_the_range() {
        use rand_core::Rng;
        let seed = 7;
        println!("seed {seed}");
        let mut random = rand_pcg::Pcg64Mcg::new(seed);
        let mut slab = Slab::new(16, 24);
        let (mut ones, mut zeros) = (0, 0);
        let mut last = [0; 16];
        for _ in 0..4000 {
            let mut numbers = Vec::new();
            while let Ok(number) = slab.insert_drawn((), random.next_u64()) {
                numbers.push(number);
            }
            assert_eq!((slab.len(), numbers.len()), (16, 16));
            for number in numbers {
                assert!((16..1 << 24).contains(&number));
                let slot = slab.slot(number);
                assert_ne!(std::mem::replace(&mut last[slot], number), number);
                assert_eq!(slab.number_of(slot), Some(number));
                ones |= number;
                zeros |= !number;
                assert_eq!(slab.remove(number), Some(()));
                assert!(slab.has_ended(number));
            }
        }
        assert_eq!((ones, zeros & 0xff_ffff), (0xff_ffff, 0xff_ffff));
    }
}
